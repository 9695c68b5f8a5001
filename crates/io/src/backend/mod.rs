//! Submitting operations to the kernel. Two backends of one shape: [`ring`] over io_uring, [`threads`]
//! anywhere.
//!
//! An operation goes in with a token and comes back once, with the token, the kernel's result (a count, or a
//! negative errno) and its memory. Tokens are the caller's; a backend does not look at them.

mod blocking;
mod hook;
mod power;
pub mod ring;
pub mod threads;

#[cfg(test)]
mod tests;

use crate::memory::Piece;
pub use hook::{Haste, PowerHook};
pub use power::Spindle;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// Names an operation in flight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Token(pub u64);

/// What to do. Descriptors stay open until the operation is back: who submits sees to it.
#[derive(Debug)]
pub enum Op {
    /// `cached`: only what the page cache has. It is copied by another thread meanwhile, which never waits
    /// for a device: `EAGAIN`, or another error, where it would have to.
    Read {
        fd: RawFd,
        at: u64,
        pieces: Vec<Piece>,
        cached: bool,
    },
    /// `durable`: on stable media when it completes.
    Write {
        fd: RawFd,
        at: u64,
        pieces: Vec<Piece>,
        durable: bool,
    },
    /// Data (and what is needed to read it) on stable media.
    Sync {
        fd: RawFd,
    },
    /// fallocate with these mode bits.
    Allocate {
        fd: RawFd,
        mode: i32,
        at: u64,
        bytes: u64,
    },
    /// A block device's discard or zero-out, which only exist as blocking calls.
    Erase {
        fd: RawFd,
        how: Erase,
        at: u64,
        bytes: u64,
    },
    /// A spindle is to turn, or to stand still.
    Power {
        spindle: Box<Spindle>,
        turns: bool,
    },
    /// Up to as many bytes as the pieces hold; 0 at the end of the stream.
    Receive {
        stream: Stream,
        pieces: Vec<Piece>,
    },
    Send {
        stream: Stream,
        pieces: Vec<Piece>,
    },
    /// The result is the new descriptor.
    Accept {
        fd: RawFd,
    },
    /// A command to a device's driver, which may keep it for ever. Only io_uring has it: `EOPNOTSUPP`
    /// elsewhere. It uses no memory, and a backend does not wait for it at its end.
    Command {
        fd: RawFd,
        number: u32,
        bytes: [u8; 16],
    },
    /// Done once the descriptor can be read, or at once if it never can be.
    Poll {
        fd: RawFd,
    },
}

/// One direction of a connection: a socket, or an end of a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stream {
    pub fd: RawFd,
    pub socket: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Erase {
    Discard,
    ZeroOut,
}

/// An operation that is back.
#[derive(Debug)]
pub struct Completion {
    pub token: Token,
    /// A count or a descriptor; a negative errno on failure.
    pub result: i32,
    /// The operation's memory, for going on after a short transfer or for reuse of the list.
    pub pieces: Vec<Piece>,
}

pub trait Backend {
    fn name(&self) -> &'static str;

    /// Whether it has [`Op::Command`].
    fn has_commands(&self) -> bool {
        false
    }

    /// Starts an operation, now or at the next [`Backend::wait`].
    fn submit(&mut self, token: Token, op: Op);

    /// Asks an operation to end early. It still completes once, perhaps with `-ECANCELED`.
    fn cancel(&mut self, token: Token);

    /// Submits what was gathered, waits for a completion, a [`Waker::wake`] or the time to pass, whichever
    /// comes first, and appends what is back. Does not wait when the time is zero.
    fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<Completion>) -> io::Result<()>;

    /// Operations not yet back.
    fn outstanding(&self) -> usize;

    fn waker(&self) -> Waker;
}

/// Which backend to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BackendChoice {
    /// io_uring where the kernel allows it, threads elsewhere.
    #[default]
    Automatic,
    Ring,
    Threads,
}

impl std::str::FromStr for BackendChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<BackendChoice, String> {
        match text {
            "auto" => Ok(BackendChoice::Automatic),
            "ring" => Ok(BackendChoice::Ring),
            "threads" => Ok(BackendChoice::Threads),
            other => Err(format!(
                "backend `{other}` is not one of auto, ring, threads"
            )),
        }
    }
}

/// Opens the chosen backend on this thread, which must be the one that uses it.
pub fn open(choice: BackendChoice) -> io::Result<Box<dyn Backend>> {
    match choice {
        BackendChoice::Ring => Ok(Box::new(ring::Ring::new()?)),
        BackendChoice::Threads => Ok(Box::new(threads::Threads::new()?)),
        BackendChoice::Automatic => match ring::Ring::new() {
            Ok(ring) => Ok(Box::new(ring)),
            Err(_) => Ok(Box::new(threads::Threads::new()?)),
        },
    }
}

/// Wakes a backend's thread out of [`Backend::wait`]. Cheap to clone, usable from any thread.
#[derive(Clone, Debug)]
pub struct Waker {
    event: Arc<OwnedFd>,
}

impl Waker {
    fn new() -> io::Result<Waker> {
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, owned by nobody else.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Waker {
            event: Arc::new(event),
        })
    }

    pub fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // A full counter wakes as well, so the result does not matter.
        // SAFETY: the buffer is 8 readable bytes.
        let _ = unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    fn raw(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Takes the wakes that have come so far.
    fn drain(&self) {
        let mut count = [0u8; 8];
        // SAFETY: the buffer is 8 writable bytes.
        let _ = unsafe { libc::read(self.raw(), count.as_mut_ptr().cast(), count.len()) };
    }
}

/// The kernel's form of a list of pieces.
fn vectors(pieces: &[Piece], into: &mut Vec<libc::iovec>) {
    into.clear();
    into.extend(pieces.iter().map(|p| libc::iovec {
        iov_base: p.start().cast(),
        iov_len: p.bytes as usize,
    }));
}

/// Most vectors that one system call takes (the kernel's UIO_MAXIOV).
pub const VECTORS_MAX: usize = 1024;

/// A message header over vectors, which must outlive its use.
fn message(vectors: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: a header of zeros is a valid empty header.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = vectors.as_mut_ptr();
    header.msg_iovlen = vectors.len() as _;
    header
}

/// A system call's result as the completions carry it.
fn outcome(result: isize) -> i32 {
    if result >= 0 {
        return i32::try_from(result).expect("transfers are below 2 GiB");
    }
    -io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}
