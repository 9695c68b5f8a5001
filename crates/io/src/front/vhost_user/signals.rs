//! Signals to a peer: the count of an event descriptor goes up by one, and nothing ever waits for that.
//!
//! A write to an event descriptor waits while its count is at the maximum. Whether it waits is a flag of the
//! open file, which the peer has as well, so a peer could stop the reactor at any time. The kernel's own
//! signals never wait: it sends one for a finished asynchronous operation (`io_submit` with
//! `IOCB_FLAG_RESFD`). So each signal is the end of a read of an empty file.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Operations that may be over and not yet looked at.
const EVENTS: usize = 128;
const READ: u16 = 0;
const SIGNAL: u32 = 1;

/// The kernel's `struct iocb`.
#[repr(C)]
#[derive(Default)]
struct Operation {
    data: u64,
    key_and_flags: [u32; 2],
    code: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    signalled: u32,
}

/// The kernel's `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    operation: u64,
    results: [i64; 2],
}

/// A context of the kernel's asynchronous I/O, for as long as its process lives. To give it back takes
/// milliseconds, so it is shared by the connections of a socket.
pub(crate) struct Signals {
    context: libc::c_ulong,
    empty: OwnedFd,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Signals> {
        // SAFETY: the name is a string that ends in zero.
        let fd = unsafe { libc::memfd_create(c"restripe-signals".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, with no other owner.
        let empty = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut context: libc::c_ulong = 0;
        // SAFETY: the pointer is to a word of zero, which the kernel fills in.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, EVENTS, &raw mut context) };
        match made {
            0 => Ok(Signals { context, empty }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Signals each of these event descriptors.
    pub(crate) fn send(&self, descriptors: &[RawFd]) {
        for some in descriptors.chunks(EVENTS) {
            self.send_some(some);
        }
    }

    fn send_some(&self, descriptors: &[RawFd]) {
        // Nothing is read into it: the file is empty.
        let mut byte = 0u8;
        let operation = |signalled: &RawFd| Operation {
            code: READ,
            file: self.empty.as_raw_fd() as u32,
            buffer: (&raw mut byte) as u64,
            bytes: 1,
            flags: SIGNAL,
            signalled: *signalled as u32,
            ..Operation::default()
        };
        let mut operations: Vec<Operation> = descriptors.iter().map(operation).collect();
        // The kernel writes into them.
        let list = operations.iter_mut().map(std::ptr::from_mut);
        let mut list: Vec<*mut Operation> = list.collect();
        // Each step takes an operation off the list, or makes room for some.
        let mut made_room = false;
        while !list.is_empty() {
            match self.submit(&list) {
                Ok(count) if count > 0 => {
                    list.drain(..count);
                    made_room = false;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !made_room => {
                    self.make_room();
                    made_room = true;
                }
                // The kernel has no memory for this one, or it is no event descriptor.
                _ => drop(list.remove(0)),
            }
        }
    }

    /// Reads of an empty file in memory end before this call returns.
    fn submit(&self, list: &[*mut Operation]) -> io::Result<usize> {
        let count = list.len() as libc::c_long;
        // SAFETY: as many pointers to live operations, which are over when the call returns.
        let taken =
            unsafe { libc::syscall(libc::SYS_io_submit, self.context, count, list.as_ptr()) };
        usize::try_from(taken).map_err(|_| io::Error::last_os_error())
    }

    /// Takes the results of what is over.
    fn make_room(&self) {
        let mut events = [Event::default(); EVENTS];
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: room for as many events as said; the time is live.
        let _ = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                0 as libc::c_long,
                EVENTS as libc::c_long,
                events.as_mut_ptr(),
                &raw const at_once,
            )
        };
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: no pointers are passed, and nothing uses the context any more.
        let _ = unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};

    pub(in super::super) fn event(flags: i32) -> File {
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | flags) };
        assert!(fd >= 0);
        // SAFETY: just made, with no other owner.
        unsafe { File::from_raw_fd(fd) }
    }

    fn count(mut event: &File) -> u64 {
        let mut count = [0; 8];
        event.read_exact(&mut count).expect("signalled");
        u64::from_ne_bytes(count)
    }

    #[test]
    fn each_descriptor_is_signalled_however_many_there_are() {
        let signals = Signals::new().expect("a context");
        let [first, second] = [event(0), event(0)];
        let fds = [first.as_raw_fd(), second.as_raw_fd()];
        for _ in 0..3 * EVENTS {
            signals.send(&fds);
        }
        signals.send(&fds[..1].repeat(2 * EVENTS));
        assert_eq!(count(&first), 5 * EVENTS as u64);
        assert_eq!(count(&second), 3 * EVENTS as u64);
    }

    /// A write would wait for a reader.
    #[test]
    fn a_full_count_makes_nothing_wait() {
        let signals = Signals::new().expect("a context");
        let full = event(0);
        (&full)
            .write_all(&(u64::MAX - 1).to_ne_bytes())
            .expect("room");
        signals.send(&[full.as_raw_fd(); 3]);
        assert!(count(&full) >= u64::MAX - 1);
    }

    #[test]
    fn what_is_no_event_descriptor_keeps_no_other_from_its_signal() {
        let signals = Signals::new().expect("a context");
        let (reader, writer) = io::pipe().expect("a pipe");
        let last = event(0);
        let fds = [writer.as_raw_fd(), -1, last.as_raw_fd()];
        signals.send(&fds);
        assert_eq!(count(&last), 1);
        drop(writer);
        let mut written = Vec::new();
        (&reader).read_to_end(&mut written).expect("closed");
        assert!(written.is_empty());
    }
}
