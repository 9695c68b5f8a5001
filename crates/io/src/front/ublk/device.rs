//! The character device of a ublk device, by which its server has requests and their data.

use super::Device;
use super::wire::{self, DESCRIPTOR_BYTES};
use crate::memory::Piece;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;

const PAGE_BYTES: usize = 4096;

/// An open `/dev/ublkcN`. One process has it open at a time.
///
/// The descriptors of its queue are mapped with the first request, and so after the driver has the queue's
/// commands. Kernels before 6.16 let no other process map them once one has, until the queue was complete.
/// A daemon that died in between with a mapping would leave a device that no daemon can serve.
pub(crate) struct CharDevice {
    file: File,
    descriptors: Option<Descriptors>,
    depth: u16,
}

impl CharDevice {
    /// `depth`: the slots of its queue.
    pub(crate) fn open(path: &Path, depth: u16) -> io::Result<CharDevice> {
        Ok(CharDevice {
            file: OpenOptions::new().read(true).write(true).open(path)?,
            descriptors: None,
            depth,
        })
    }

    /// A descriptor of its own for the commands of its queue.
    pub(crate) fn for_commands(&self) -> io::Result<OwnedFd> {
        self.file.try_clone().map(OwnedFd::from)
    }

    /// Copies all of a piece, in as many steps as the kernel makes of it. `copy` gets an address, a length
    /// and a position.
    fn copy(
        slot: u16,
        piece: &Piece,
        copy: impl Fn(*mut u8, usize, i64) -> isize,
    ) -> io::Result<()> {
        let (start, bytes) = (piece.start(), piece.bytes as usize);
        let mut done = 0;
        while done < bytes {
            let at = wire::position(slot) + done as u64;
            let at = i64::try_from(at).map_err(|_| ErrorKind::InvalidInput)?;
            match copy(start.wrapping_add(done), bytes - done, at) {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count if count > 0 => done += count.cast_unsigned(),
                _ => {
                    let error = io::Error::last_os_error();
                    if error.kind() != ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Device for CharDevice {
    fn descriptor(&mut self, slot: u16) -> io::Result<[u8; DESCRIPTOR_BYTES]> {
        assert!(slot < self.depth, "the kernel has no such slot");
        let descriptors = match &mut self.descriptors {
            Some(mapped) => mapped,
            unmapped => unmapped.insert(Descriptors::map(&self.file, self.depth)?),
        };
        Ok(descriptors.read(slot))
    }

    fn take(&self, slot: u16, into: &Piece) -> io::Result<()> {
        let fd = self.file.as_raw_fd();
        CharDevice::copy(slot, into, |start, bytes, at| {
            // SAFETY: the piece keeps its memory, which no operation in flight uses.
            unsafe { libc::pread(fd, start.cast(), bytes, at) }
        })
    }

    fn give(&self, slot: u16, from: &Piece) -> io::Result<()> {
        let fd = self.file.as_raw_fd();
        CharDevice::copy(slot, from, |start, bytes, at| {
            // SAFETY: as above.
            unsafe { libc::pwrite(fd, start.cast(), bytes, at) }
        })
    }
}

/// The descriptors of the first queue: read-only, written by the kernel.
struct Descriptors {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, and is only read.
unsafe impl Send for Descriptors {}

impl Descriptors {
    fn map(file: &File, depth: u16) -> io::Result<Descriptors> {
        let bytes = (usize::from(depth) * DESCRIPTOR_BYTES).next_multiple_of(PAGE_BYTES);
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping touches nothing that exists; the kernel checks the length.
        let start = unsafe {
            let (nowhere, fd) = (std::ptr::null_mut(), file.as_raw_fd());
            libc::mmap(nowhere, bytes, libc::PROT_READ, flags, fd, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(ErrorKind::OutOfMemory)?;
        Ok(Descriptors { start, bytes })
    }

    fn read(&self, slot: u16) -> [u8; DESCRIPTOR_BYTES] {
        let at = usize::from(slot) * DESCRIPTOR_BYTES;
        assert!(
            at + DESCRIPTOR_BYTES <= self.bytes,
            "it has that many slots"
        );
        // SAFETY: within the mapping, by the assertion. The kernel writes it before it hands the slot out,
        // and not while the slot is ours.
        unsafe {
            let place = self.start.as_ptr().add(at);
            place.cast::<[u8; DESCRIPTOR_BYTES]>().read_volatile()
        }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, unmapped only here.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The driver has all commands of the queue before that.
    #[test]
    fn descriptors_are_mapped_with_the_first_request() {
        let name = format!("restripe-descriptors-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let bytes = (0..4 * DESCRIPTOR_BYTES).map(|at| at as u8);
        fs::write(&path, bytes.collect::<Vec<u8>>()).expect("a file");
        let mut device = CharDevice::open(&path, 4).expect("it is there");
        assert!(device.descriptors.is_none());
        let last = device.descriptor(3).expect("it can be mapped");
        assert_eq!((last[0], last[23]), (72, 95));
        assert!(device.descriptors.is_some());
        let _ = fs::remove_file(path);
    }
}
