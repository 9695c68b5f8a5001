//! Plain blocking access to a member: for making arrays and for looking at them, when no engine runs.
//!
//! The member is opened as the shell opens it, with its lock, so that nobody else uses it meanwhile. Reads and writes
//! go through the page cache and need no alignment; a flush makes them durable.

use crate::member::{self, Device, OpenError, OpenMember, OpenOptions};
use restripe_array::{MemberInfo, SECTOR_BYTES};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::fs::FileExt;

/// Zeros written at once where the device cannot zero by itself.
const ZEROS: usize = 1 << 20;

/// A member, open and locked for as long as this lives.
pub struct Plain {
    name: String,
    info: MemberInfo,
    file: File,
    /// Holds the lock.
    _member: OpenMember,
}

impl Plain {
    /// Opens a member. `read_only` looks and cannot touch.
    pub fn open(name: &str, read_only: bool) -> Result<Plain, OpenError> {
        let options = OpenOptions {
            direct: false,
            read_only,
            ..OpenOptions::default()
        };
        let member = member::open(name, options)?;
        let file = match &member.device {
            Device::File(device) => duplicate(device.fd()),
            _ => Err(io::Error::new(
                ErrorKind::Unsupported,
                "only files and block devices can be used this way",
            )),
        };
        let file = file.map_err(|error| OpenError {
            member: name.into(),
            why: member::OpenFailure::Io(error),
        })?;
        Ok(Plain {
            name: name.into(),
            info: member.info,
            file,
            _member: member,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn info(&self) -> MemberInfo {
        self.info
    }

    pub fn bytes(&self) -> u64 {
        self.info.sectors * SECTOR_BYTES
    }

    /// Fills the buffer from this sector on.
    pub fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, at * SECTOR_BYTES)
    }

    pub fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.check_end(at * SECTOR_BYTES, bytes.len() as u64)?;
        self.file.write_all_at(bytes, at * SECTOR_BYTES)
    }

    /// Makes a range read as zeros.
    pub fn zero(&self, at: u64, sectors: u64) -> io::Result<()> {
        let zeros = vec![0; ZEROS];
        let (mut from, end) = (at * SECTOR_BYTES, (at + sectors) * SECTOR_BYTES);
        self.check_end(from, end - from)?;
        while from < end {
            let bytes = (end - from).min(ZEROS as u64);
            let part = &zeros[..usize::try_from(bytes).expect("no more than there are")];
            self.file.write_all_at(part, from)?;
            from += bytes;
        }
        Ok(())
    }

    /// Makes everything written so far durable.
    pub fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// An image file would grow where a device refuses: both refuse.
    fn check_end(&self, from: u64, bytes: u64) -> io::Result<()> {
        if from
            .checked_add(bytes)
            .is_some_and(|end| end <= self.bytes())
        {
            return Ok(());
        }
        Err(io::Error::new(
            ErrorKind::InvalidInput,
            "beyond the end of the member",
        ))
    }
}

fn duplicate(fd: RawFd) -> io::Result<File> {
    // SAFETY: the descriptor belongs to an open member that lives beyond this call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    borrowed.try_clone_to_owned().map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_member_is_locked_written_and_bounded() {
        let path = std::env::temp_dir().join(format!("restripe-plain-{}", std::process::id()));
        fs::write(&path, vec![7; 8192]).expect("a file");
        let name = path.to_str().expect("plain text");
        let member = Plain::open(name, false).expect("it opens");
        assert!(Plain::open(name, true).is_err(), "it is locked");
        member.write(1, &[9; 512]).expect("it takes it");
        member.zero(2, 4).expect("it zeros");
        assert!(member.write(16, &[1; 512]).is_err() && member.zero(15, 2).is_err());
        member.flush().expect("it flushes");
        let mut bytes = [1; 4096];
        member.read(0, &mut bytes).expect("it reads");
        assert_eq!(
            (bytes[0], bytes[512], bytes[1024], bytes[3071], bytes[3072]),
            (7, 9, 0, 0, 7)
        );
        fs::remove_file(&path).expect("ours");
    }
}
