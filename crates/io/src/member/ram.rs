//! A member in this process's memory: completes at once, so it hides nothing of the engine's own cost.

use super::OpenFailure;
use crate::memory::{Handles, Memory};
use restripe_array::{DeviceIo, IoError, IoOp, MemberInfo, SECTOR_BYTES, Segment};

pub struct RamDevice {
    memory: Memory,
}

pub fn open(bytes: u64) -> Result<(RamDevice, MemberInfo), OpenFailure> {
    let bytes = bytes / SECTOR_BYTES * SECTOR_BYTES;
    let size = usize::try_from(bytes).ok().filter(|size| *size > 0);
    let size = size.ok_or(OpenFailure::Size)?;
    let info = MemberInfo {
        sectors: bytes / SECTOR_BYTES,
        logical_block: 512,
        trim_zeroes: true,
        fast_zero: true,
        volatile: false,
    };
    let memory = Memory::of_size(size).map_err(OpenFailure::Io)?;
    Ok((RamDevice { memory }, info))
}

impl RamDevice {
    /// Does an operation, whole, now.
    pub fn perform(&mut self, io: &mut DeviceIo, handles: &Handles<'_>) -> Result<(), IoError> {
        let (start, bytes) = self.range(io)?;
        match io.op {
            IoOp::Read => self.read(start, io, handles),
            IoOp::Write => self.write(start, io, handles),
            IoOp::Flush => {}
            IoOp::Standby | IoOp::Wake => return Err(IoError::Unsupported),
            IoOp::Zero | IoOp::Trim => self.memory.clear(start, bytes),
        }
        Ok(())
    }

    fn range(&self, io: &DeviceIo) -> Result<(usize, usize), IoError> {
        let end = io.at.checked_add(io.sectors);
        match end.and_then(|end| end.checked_mul(SECTOR_BYTES)) {
            Some(end) if end <= self.memory.bytes() as u64 => Ok((
                (io.at * SECTOR_BYTES) as usize,
                (io.sectors * SECTOR_BYTES) as usize,
            )),
            _ => Err(IoError::Other(libc::EINVAL)),
        }
    }

    fn read(&self, mut at: usize, io: &mut DeviceIo, handles: &Handles<'_>) {
        for segment in &mut io.segments {
            let bytes = segment.bytes() as usize;
            let source = self.memory.slice(at, bytes);
            match segment {
                Segment::Page(page) => page.copy_from_slice(source),
                Segment::Buf(part) => handles.memory(part.buf).fill(part.offset as usize, source),
                Segment::Zero(_) => {}
            }
            at += bytes;
        }
    }

    fn write(&self, mut at: usize, io: &DeviceIo, handles: &Handles<'_>) {
        for segment in &io.segments {
            let bytes = segment.bytes() as usize;
            match segment {
                Segment::Page(page) => self.memory.fill(at, &page[..]),
                Segment::Buf(part) => self.memory.fill(at, handles.slice(*part)),
                Segment::Zero(_) => self.memory.clear(at, bytes),
            }
            at += bytes;
        }
    }
}
