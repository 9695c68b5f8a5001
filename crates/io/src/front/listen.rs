//! Where connections come from: sockets that listen, sockets handed over, and standard input and output.

use crate::backend::Stream;
use crate::control::{Claim, PlaceError};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a socket may be in use before that is an error, and between two attempts.
const PATIENCE: Duration = Duration::from_secs(2);
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// First descriptor that systemd hands over.
const SYSTEMD_FIRST: RawFd = 3;

/// A socket that listens.
pub struct Listener {
    fd: OwnedFd,
    /// Of a Unix socket: the file goes at the end.
    _claim: Option<Claim>,
}

impl Listener {
    /// Listens on a Unix socket. A socket file without a listener is replaced, by one process at a time. A
    /// socket in use is tried again for a while: the kernel closes that of a killed process a moment after
    /// the process has ended.
    pub fn unix(path: &Path) -> io::Result<Listener> {
        Listener::unix_within(path, PATIENCE)
    }

    fn unix_within(path: &Path, patience: Duration) -> io::Result<Listener> {
        let begin = Instant::now();
        loop {
            match Claim::take(path) {
                Ok((claim, listener)) => {
                    return Ok(Listener {
                        fd: listener.into(),
                        _claim: Some(claim),
                    });
                }
                Err(PlaceError::Taken { .. }) if begin.elapsed() < patience => {
                    std::thread::sleep(RETRY_AFTER);
                }
                Err(error) => return Err(in_words_of_io(error)),
            }
        }
    }

    pub fn tcp(address: SocketAddr) -> io::Result<Listener> {
        Ok(Listener {
            fd: TcpListener::bind(address)?.into(),
            _claim: None,
        })
    }

    /// A socket that already listens.
    pub fn inherited(fd: OwnedFd) -> Listener {
        Listener { fd, _claim: None }
    }

    /// The sockets that systemd opened for this process, if it did. To be called once, early in `main`.
    pub fn systemd() -> Vec<Listener> {
        let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
        if number("LISTEN_PID") != Some(std::process::id()) {
            return Vec::new();
        }
        let count = number("LISTEN_FDS").unwrap_or(0).min(16) as RawFd;
        let sockets = SYSTEMD_FIRST..SYSTEMD_FIRST + count;
        sockets.filter_map(systemd_socket).collect()
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The address of a TCP listener, with the port that the kernel chose.
    pub fn address(&self) -> Option<SocketAddr> {
        let copy = TcpListener::from(self.fd.try_clone().ok()?);
        copy.local_addr().ok()
    }
}

fn systemd_socket(fd: RawFd) -> Option<Listener> {
    // SAFETY: no pointers are passed; fails on a descriptor that is not open.
    let open = unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == 0;
    // SAFETY: open, and by systemd's protocol ours alone.
    open.then(|| Listener::inherited(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// The same for every kind of address; whoever asked knows the path.
fn in_words_of_io(error: PlaceError) -> io::Error {
    match error {
        PlaceError::Taken { .. } => io::Error::new(
            ErrorKind::AddrInUse,
            "another process listens on this socket",
        ),
        PlaceError::InTheWay { .. } => {
            io::Error::new(ErrorKind::AlreadyExists, "exists and is not a socket")
        }
        PlaceError::Socket { error, .. } => error,
        error => io::Error::new(ErrorKind::InvalidInput, error.to_string()),
    }
}

/// Whether the kernel filled in what holds now.
fn poll_now(asked: &mut [libc::pollfd]) -> bool {
    loop {
        let count = asked.len() as libc::nfds_t;
        // SAFETY: the pointer is to as many live entries as the count says.
        let found = unsafe { libc::poll(asked.as_mut_ptr(), count, 0) };
        if found >= 0 {
            return true;
        }
        if io::Error::last_os_error().kind() != ErrorKind::Interrupted {
            return false;
        }
    }
}

/// Both directions of one connection.
pub struct Wire {
    pub(crate) input: Stream,
    pub(crate) output: Stream,
    /// It has commands in place of bytes.
    device: bool,
    /// Kept open for as long as the connection lives.
    _fds: Vec<OwnedFd>,
}

impl Wire {
    /// A connected socket.
    pub fn socket(fd: OwnedFd) -> Wire {
        let stream = Stream {
            fd: fd.as_raw_fd(),
            socket: true,
        };
        send_at_once(&fd);
        Wire {
            input: stream,
            output: stream,
            device: false,
            _fds: vec![fd],
        }
    }

    /// The same, of a client.
    pub fn accepted(fd: OwnedFd) -> Wire {
        notice_the_gone(&fd);
        Wire::socket(fd)
    }

    /// Standard input and output, each a socket or a pipe.
    pub fn stdio() -> io::Result<Wire> {
        let input = duplicate(libc::STDIN_FILENO)?;
        Ok(Wire::pair(input, duplicate(libc::STDOUT_FILENO)?))
    }

    /// Two descriptors, each a socket or a pipe.
    pub fn pair(input: OwnedFd, output: OwnedFd) -> Wire {
        let stream = |fd: &OwnedFd| Stream {
            fd: fd.as_raw_fd(),
            socket: is_socket(fd),
        };
        Wire {
            input: stream(&input),
            output: stream(&output),
            device: false,
            _fds: vec![input, output],
        }
    }

    /// The file of a device of the kernel that is served by commands to its driver.
    #[cfg(feature = "ublk")]
    pub(crate) fn device(fd: OwnedFd) -> Wire {
        let stream = Stream {
            fd: fd.as_raw_fd(),
            socket: false,
        };
        Wire {
            input: stream,
            output: stream,
            device: true,
            _fds: vec![fd],
        }
    }

    pub(crate) fn is_device(&self) -> bool {
        self.device
    }

    /// The address at which a client of TCP reached us.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        self.stream()?.local_addr().ok()
    }

    /// The address of a client of TCP.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        self.stream()?.peer_addr().ok()
    }

    fn stream(&self) -> Option<TcpStream> {
        let [fd] = self._fds.as_slice() else {
            return None;
        };
        Some(TcpStream::from(fd.try_clone().ok()?))
    }

    /// The numbers of those whose peers have closed their side, also if bytes that came before are still to
    /// be received. All of them if the kernel gives no answer.
    pub(crate) fn closed<'a>(wires: impl Iterator<Item = (u32, &'a Wire)>) -> Vec<u32> {
        let asked = |(number, wire): (u32, &Wire)| {
            let asked = libc::pollfd {
                fd: wire.input.fd,
                events: libc::POLLRDHUP,
                revents: 0,
            };
            (number, asked)
        };
        let (mut numbers, mut asked): (Vec<u32>, Vec<libc::pollfd>) = wires.map(asked).unzip();
        let known = asked.is_empty() || poll_now(&mut asked);
        let mut looked_at = asked.iter();
        numbers.retain(|_| {
            looked_at
                .next()
                .is_none_or(|one| !known || one.revents != 0)
        });
        numbers
    }

    /// Ends both directions, so that operations in flight come back.
    pub(crate) fn shut(&self) {
        for stream in [self.input, self.output] {
            if stream.socket {
                // SAFETY: no pointers are passed; an end already shut is no matter.
                let _ = unsafe { libc::shutdown(stream.fd, libc::SHUT_RDWR) };
            }
        }
    }
}

pub(super) fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

fn is_socket(fd: &OwnedFd) -> bool {
    let mut kind: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: both pointers are to variables of the lengths told.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TYPE,
            (&raw mut kind).cast(),
            &raw mut length,
        )
    };
    result == 0
}

/// Replies are sent whole, so waiting for more to send (Nagle) would only delay them. No effect on Unix
/// sockets.
fn send_at_once(fd: &OwnedFd) {
    set(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
}

/// A peer whose machine or network is gone says nothing, and what it holds alone (a lease) would be held
/// for ever: after 15 seconds without a word the kernel asks, and hangs up when nothing comes for 15 more.
/// No effect on Unix sockets.
fn notice_the_gone(fd: &OwnedFd) {
    set(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 15);
    set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 5);
    set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3);
}

/// Sets an option where the socket has it.
fn set(fd: &OwnedFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option's value is an int of the length told.
    let _ = unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(fd.as_raw_fd(), level, option, value, length)
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::net::UnixListener;

    /// Another process could replace a socket between the look that found it stale and its own.
    #[test]
    fn a_path_belongs_to_who_claimed_it_before_there_is_a_socket() {
        let path = std::env::temp_dir().join(format!("restripe-claimed-{}", std::process::id()));
        let first = Listener::unix_within(&path, Duration::ZERO).expect("nobody listened");
        fs::remove_file(&path).expect("ours");
        drop(UnixListener::bind(&path).expect("what the first has yet to replace"));
        assert!(
            Listener::unix_within(&path, Duration::ZERO)
                .is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
        );
        drop(first);
        Listener::unix_within(&path, Duration::ZERO).expect("free again");
        assert!(!path.exists());
    }

    #[test]
    fn a_closed_peer_is_seen_behind_what_it_sent() {
        use std::io::Write;
        let pair = || {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
            (Wire::socket(ours.into()), theirs)
        };
        let [(first, _open), (second, mut theirs)] = [pair(), pair()];
        let closed = || Wire::closed([(7, &first), (8, &second)].into_iter());
        theirs.write_all(b"request").expect("room");
        assert!(closed().is_empty());
        theirs.shutdown(std::net::Shutdown::Both).expect("open");
        assert_eq!(closed(), [8], "although the request is unread");
        assert!(Wire::closed(std::iter::empty()).is_empty());
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let path = std::env::temp_dir().join(format!("restripe-listen-{}", std::process::id()));
        drop(UnixListener::bind(&path).expect("a socket"));
        let listener = Listener::unix_within(&path, Duration::ZERO).expect("nobody listened");
        assert!(
            Listener::unix_within(&path, Duration::ZERO)
                .is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
        );
        drop(listener);
        assert!(!path.exists());
        fs::write(&path, b"precious").expect("a file");
        assert!(Listener::unix_within(&path, Duration::ZERO).is_err() && path.exists());
        fs::remove_file(&path).expect("ours");
    }
}
