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

/// An open `/dev/ublkcN`, with the descriptors of its first queue mapped. One process has it open at a time.
pub(crate) struct CharDevice {
    file: File,
    /// Read-only, written by the kernel.
    descriptors: NonNull<u8>,
    mapped: usize,
    depth: u16,
}

// SAFETY: the mapping belongs to this value alone, and is only read.
unsafe impl Send for CharDevice {}

impl CharDevice {
    /// `depth`: the slots of its queue.
    pub(crate) fn open(path: &Path, depth: u16) -> io::Result<CharDevice> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let mapped = (usize::from(depth) * DESCRIPTOR_BYTES).next_multiple_of(PAGE_BYTES);
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping touches nothing that exists; the kernel checks the length.
        let start = unsafe {
            let (nowhere, fd) = (std::ptr::null_mut(), file.as_raw_fd());
            libc::mmap(nowhere, mapped, libc::PROT_READ, flags, fd, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let descriptors = NonNull::new(start.cast()).ok_or(ErrorKind::OutOfMemory)?;
        Ok(CharDevice {
            file,
            descriptors,
            mapped,
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
    fn descriptor(&self, slot: u16) -> [u8; DESCRIPTOR_BYTES] {
        assert!(slot < self.depth, "the kernel has no such slot");
        let at = usize::from(slot) * DESCRIPTOR_BYTES;
        // SAFETY: within the mapping, by the assertion. The kernel writes it before it hands the slot out,
        // and not while the slot is ours.
        unsafe {
            let place = self.descriptors.as_ptr().add(at);
            place.cast::<[u8; DESCRIPTOR_BYTES]>().read_volatile()
        }
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

impl Drop for CharDevice {
    fn drop(&mut self) {
        // SAFETY: mapped in `open` with this length, unmapped only here.
        unsafe { libc::munmap(self.descriptors.as_ptr().cast(), self.mapped) };
    }
}
