//! Messages on the socket before the library takes them: it reads and writes as if it might wait, and the
//! reactor must not. So a message is looked at first, and taken only when all of it is there.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const HEADER_BYTES: usize = 12;
/// The longest message.
const BODY_BYTES_MAX: u32 = 4096;

/// Flags of a header: the version, an answer, and the asked for one.
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// Requests of a VMM that are treated apart from all others.
pub(crate) mod request {
    pub(crate) const RESET_OWNER: u32 = 4;
    pub(crate) const GET_VRING_BASE: u32 = 11;
    pub(crate) const SET_BACKEND_REQ_FD: u32 = 21;
    pub(crate) const RESET_DEVICE: u32 = 34;
}

/// A request of ours: the configuration space has changed.
const CONFIG_CHANGE: u32 = 2;

/// What lies at the front of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Front {
    Nothing,
    /// Less than a message.
    Part,
    Message {
        request: u32,
        /// The first field of its body, or 0.
        first: u32,
    },
    Closed,
    /// No message begins like this.
    Nonsense,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    word.map_or(0, u32::from_le_bytes)
}

/// Looks at the front of a socket, and takes nothing.
pub(crate) fn look(fd: RawFd) -> Front {
    let mut bytes = [0u8; HEADER_BYTES + 4];
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: the buffer is as long as said.
    let count = unsafe { libc::recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), flags) };
    let Ok(count) = usize::try_from(count) else {
        return match io::Error::last_os_error().kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => Front::Nothing,
            _ => Front::Closed,
        };
    };
    let length = word(&bytes, 8);
    match count {
        0 => Front::Closed,
        _ if count < HEADER_BYTES => Front::Part,
        _ if length > BODY_BYTES_MAX => Front::Nonsense,
        _ if waiting(fd) < HEADER_BYTES + length as usize => Front::Part,
        _ => Front::Message {
            request: word(&bytes, 0),
            first: if length >= 4 {
                word(&bytes, HEADER_BYTES)
            } else {
                0
            },
        },
    }
}

/// Bytes that can be received.
fn waiting(fd: RawFd) -> usize {
    let mut count: libc::c_int = 0;
    // SAFETY: the pointer is to an int, which this request fills in.
    let result = unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut count) };
    if result == 0 { count as usize } else { 0 }
}

/// Whether a write would not have to wait.
pub(crate) fn can_write(fd: RawFd) -> bool {
    let mut polled = libc::pollfd {
        fd,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one live entry.
    unsafe { libc::poll(&raw mut polled, 1, 0) == 1 && polled.revents & libc::POLLOUT != 0 }
}

/// Takes the message [`request::SET_BACKEND_REQ_FD`], which lies at the front: the channel for requests of
/// ours.
/// `acknowledge`: the VMM may want an answer.
pub(crate) fn take_channel(fd: RawFd, acknowledge: bool) -> io::Result<OwnedFd> {
    let (header, channel) = receive_with_descriptor(fd)?;
    let channel = channel.ok_or(ErrorKind::InvalidData)?;
    // It has no body.
    if word(&header, 8) != 0 {
        return Err(ErrorKind::InvalidData.into());
    }
    if acknowledge && word(&header, 4) & NEED_REPLY != 0 {
        let mut answer = message(request::SET_BACKEND_REQ_FD, VERSION | REPLY, 8).to_vec();
        answer.extend(0u64.to_le_bytes());
        send(fd, &answer)?;
    }
    Ok(channel)
}

fn message(request: u32, flags: u32, length: u32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    for (field, value) in header.chunks_exact_mut(4).zip([request, flags, length]) {
        field.copy_from_slice(&value.to_le_bytes());
    }
    header
}

/// Sends what fits at once, or nothing.
fn send(fd: RawFd, bytes: &[u8]) -> io::Result<()> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the buffer is as long as said.
    let count = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) };
    match count {
        count if count == bytes.len() as isize => Ok(()),
        count if count < 0 => Err(io::Error::last_os_error()),
        _ => Err(ErrorKind::WriteZero.into()),
    }
}

/// Has the VMM read the configuration space again.
pub(crate) fn config_changed(channel: &OwnedFd) -> io::Result<()> {
    send(channel.as_raw_fd(), &message(CONFIG_CHANGE, VERSION, 0))
}

/// Receives a header, and the descriptor that came with it.
fn receive_with_descriptor(fd: RawFd) -> io::Result<([u8; HEADER_BYTES], Option<OwnedFd>)> {
    let mut header = [0u8; HEADER_BYTES];
    let mut vector = libc::iovec {
        iov_base: header.as_mut_ptr().cast(),
        iov_len: header.len(),
    };
    // Room for one descriptor: the kernel closes any more. In words, for the alignment of its header.
    let mut control = [0u64; 4];
    // SAFETY: a header of zeros is a valid empty header.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: computes a length.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as _;
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: header, vector and both buffers live until the call is over.
    let count = unsafe { libc::recvmsg(fd, &raw mut message, flags) };
    if count != header.len() as isize {
        return Err(ErrorKind::InvalidData.into());
    }
    // SAFETY: the kernel filled the control buffer in; its first entry is within it or null.
    let first = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    if first.is_null() {
        return Ok((header, None));
    }
    // SAFETY: not null, so a whole entry lies there.
    let (level, kind) = unsafe { ((*first).cmsg_level, (*first).cmsg_type) };
    if (level, kind) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
        return Ok((header, None));
    }
    // SAFETY: an entry of this kind has a descriptor, which is now ours alone.
    let descriptor = unsafe {
        let descriptor = libc::CMSG_DATA(first).cast::<RawFd>().read_unaligned();
        OwnedFd::from_raw_fd(descriptor)
    };
    Ok((header, Some(descriptor)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_message_is_taken_only_when_it_is_whole() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let fd = ours.as_raw_fd();
        assert_eq!(look(fd), Front::Nothing);
        let mut bytes = message(request::GET_VRING_BASE, VERSION, 8).to_vec();
        bytes.extend([3, 0, 0, 0, 0, 0, 0, 0]);
        for byte in &bytes[..19] {
            theirs.write_all(&[*byte]).expect("room");
            assert_eq!(look(fd), Front::Part);
        }
        theirs.write_all(&bytes[19..]).expect("room");
        let whole = Front::Message {
            request: request::GET_VRING_BASE,
            first: 3,
        };
        assert_eq!(look(fd), whole);
        (&ours).read_exact(&mut [0; 20]).expect("nothing was taken");
        let long = message(request::GET_VRING_BASE, VERSION, BODY_BYTES_MAX + 1);
        theirs.write_all(&long).expect("room");
        assert_eq!(look(fd), Front::Nonsense);
        (&ours).read_exact(&mut [0; 12]).expect("the same");
        drop(theirs);
        assert_eq!(look(fd), Front::Closed);
    }

    #[test]
    fn a_channel_without_a_descriptor_is_refused() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let header = message(request::SET_BACKEND_REQ_FD, VERSION | NEED_REPLY, 0);
        theirs.write_all(&header).expect("room");
        assert!(take_channel(ours.as_raw_fd(), true).is_err());
    }
}
