//! Readers of binary formats with records of known sizes: vSCSI, HP's SRT, plain lists of numbers.

use super::fields::{request, sectors};
use super::format::{Contents, Format, Opened};
use super::source::{self, Bytes};
use super::{Features, Item, Op, Place, Request, Requests, TraceError};
use std::path::PathBuf;

/// A file of records, and where in it we are.
pub struct Records {
    path: PathBuf,
    input: Bytes,
    /// Bytes read so far.
    position: u64,
}

impl Records {
    fn of(file: Opened<'_>) -> Records {
        Records::new(file.path, file.input)
    }

    pub fn new(path: PathBuf, input: Bytes) -> Records {
        Records {
            path,
            input,
            position: 0,
        }
    }

    /// Fills the buffer; `None` at the end of the file. A file that ends within the buffer is damaged.
    pub fn next(&mut self, buffer: &mut [u8]) -> Option<Result<(), TraceError>> {
        let start = self.position;
        match source::fill(&mut self.input, buffer) {
            Ok(0) => None,
            Ok(count) if count == buffer.len() => {
                self.position += count as u64;
                Some(Ok(()))
            }
            Ok(count) => {
                let reason = format!("the file ends {count} bytes into a record");
                // Nothing follows it.
                Some(Err(self.error(start, reason, true)))
            }
            Err(error) => {
                let cut = source::is_truncated(&error);
                if cut {
                    self.input = Box::new(std::io::empty());
                }
                Some(Err(self.error(start, error.to_string(), cut)))
            }
        }
    }

    fn error(&self, byte: u64, reason: impl Into<String>, skippable: bool) -> TraceError {
        TraceError::new(&self.path, Place::Byte(byte), reason, skippable)
    }
}

fn contents(features: Features, requests: Requests) -> Contents {
    Contents {
        features,
        label: None,
        requests,
    }
}

fn u16_le(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(record[at..at + 2].try_into().expect("two bytes"))
}

fn u32_le(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes"))
}

fn u64_le(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes"))
}

// ------------------------------------------------------------------------------------------------------------ vSCSI

/// VMware's vSCSI, both versions: little endian; microseconds, sectors of 512 bytes, lengths in bytes.
struct Vscsi {
    pub records: Records,
    pub version: VscsiVersion,
}

pub(super) static VSCSI: Format = Format {
    endings: &[".vscsi", ".vscsi1", ".vscsi2"],
    resembles: |start| VscsiVersion::of(start).is_some(),
    ..Format::of_bytes(
        "vscsi",
        "VMware vSCSI, versions 1 and 2 (CloudPhysics)",
        vscsi,
    )
};

fn vscsi(file: Opened<'_>) -> Result<Contents, TraceError> {
    let version = VscsiVersion::of(&file.start)
        .ok_or_else(|| file.failure("its records are of no version of vSCSI"))?;
    let records = Records::of(file);
    let requests = Box::new(Vscsi { records, version });
    Ok(contents(Features::ALL, requests))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum VscsiVersion {
    V1,
    V2,
}

const V1_BYTES: usize = 32;
const V2_BYTES: usize = 40;

impl VscsiVersion {
    /// The high byte of each record's version field says which it is, in two places.
    pub fn of(start: &[u8]) -> Option<VscsiVersion> {
        let two_agree = |bytes: usize, at: usize, version: u16| {
            let mut records = start.chunks_exact(bytes).take(2);
            start.len() >= bytes && records.all(|record| u16_le(record, at) >> 8 == version)
        };
        if two_agree(V1_BYTES, 14, 1) {
            Some(VscsiVersion::V1)
        } else if two_agree(V2_BYTES, 2, 2) {
            Some(VscsiVersion::V2)
        } else {
            None
        }
    }

    fn request(self, record: &[u8]) -> Result<Option<Request>, String> {
        let (command_at, length_at, expected) = match self {
            VscsiVersion::V1 => (12, 4, 1),
            VscsiVersion::V2 => (0, 8, 2),
        };
        let version = u16_le(record, command_at + 2) >> 8;
        if version != expected {
            return Err(format!("a record of version {version}, not {expected}"));
        }
        let Some(op) = scsi_op(u16_le(record, command_at)) else {
            return Ok(None);
        };
        let (block, time) = (u64_le(record, 16), u64_le(record, 24));
        let time = time
            .checked_mul(1000)
            .ok_or_else(|| format!("the time {time} is out of range"))?;
        let (offset, length) = match op {
            Op::Flush => (0, 0),
            _ => (sectors(block)?, u64::from(u32_le(record, length_at))),
        };
        request(time, 0, op, offset, length).map(Some)
    }
}

/// READ and WRITE of 6, 10, 12 and 16 bytes, SYNCHRONIZE CACHE, UNMAP has no address here; other commands move no data.
fn scsi_op(command: u16) -> Option<Op> {
    match command & 0xff {
        0x08 | 0x28 | 0xa8 | 0x88 => Some(Op::Read),
        0x0a | 0x2a | 0xaa | 0x8a => Some(Op::Write),
        0x35 | 0x91 => Some(Op::Flush),
        _ => None,
    }
}

impl Iterator for Vscsi {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        let mut buffer = [0; V2_BYTES];
        let record = match self.version {
            VscsiVersion::V1 => &mut buffer[..V1_BYTES],
            VscsiVersion::V2 => &mut buffer[..],
        };
        loop {
            let start = self.records.position;
            if let Err(error) = self.records.next(record)? {
                return Some(Err(error));
            }
            match self.version.request(record) {
                Ok(Some(request)) => return Some(Ok(request)),
                Ok(None) => {}
                Err(reason) => return Some(Err(self.records.error(start, reason, true))),
            }
        }
    }
}

// -------------------------------------------------------------------------------------------------------------- SRT

pub(super) static SRT: Format = Format {
    endings: &[".srt"],
    begins: |start| start.starts_with(b"$$TR_IOREC"),
    ..Format::of_bytes("srt", "HP Labs SRT 1.3, binary", |file| {
        let srt = Srt::new(Records::of(file));
        Ok(contents(Features::ALL, Box::new(srt)))
    })
};

/// HP's SRT 1.3: a text that ends with a form feed, then records of big-endian 32-bit words; microseconds, sectors of
/// 256 bytes, lengths in bytes.
struct Srt {
    records: Records,
    header_done: bool,
}

/// Words of an I/O record; one more where the length of the queue is recorded.
const SRT_WORDS: usize = 13;
/// No record is longer; what says so is damaged.
const SRT_RECORD_MAX: u32 = 4096;
const SRT_SECTOR: u64 = 256;
const SRT_HEADER_MAX: u64 = 1 << 20;
const SRT_HEADER_END: u8 = 0x0c;

impl Srt {
    pub fn new(records: Records) -> Srt {
        Srt {
            records,
            header_done: false,
        }
    }

    fn skip_header(&mut self) -> Result<(), TraceError> {
        let mut byte = [0];
        while byte[0] != SRT_HEADER_END {
            let read = match self.records.position {
                ..SRT_HEADER_MAX => self.records.next(&mut byte),
                _ => None,
            };
            let no_end = "the header has no end: no form feed in it";
            let position = self.records.position;
            read.unwrap_or_else(|| Err(self.records.error(position, no_end, false)))?;
        }
        self.header_done = true;
        Ok(())
    }

    fn record(&mut self) -> Option<Result<Option<Request>, TraceError>> {
        let start = self.records.position;
        let mut word = [0; 4];
        if let Err(error) = self.records.next(&mut word)? {
            return Some(Err(error));
        }
        let size = u32::from_be_bytes(word);
        if size % 4 != 0 || !(8..=SRT_RECORD_MAX).contains(&size) {
            // Without a size there is no way to the next record.
            let reason = format!("a record of {size} bytes");
            return Some(Err(self.records.error(start, reason, false)));
        }
        let mut record = vec![0; size as usize - 4];
        Some(match self.records.next(&mut record) {
            Some(Ok(())) => {
                let word = |word: &[u8]| u32::from_be_bytes(word.try_into().expect("four bytes"));
                let words: Vec<u32> = record.chunks_exact(4).map(word).collect();
                srt_request(&words).map_err(|reason| self.records.error(start, reason, true))
            }
            Some(Err(error)) => Err(error),
            None => Err((self.records).error(start, "the file ends within a record", true)),
        })
    }
}

/// The words behind the size: id, seconds, microseconds, start, stop, bytes, sector, device, driver, cylinder, flags,
/// info. Records of other kinds than I/O hold no request.
fn srt_request(words: &[u32]) -> Result<Option<Request>, String> {
    if words[0] & 0xffff != 1 {
        return Ok(None);
    }
    if words.len() < SRT_WORDS - 1 {
        return Err(format!("an I/O record of only {} words", words.len() + 1));
    }
    if words[2] >= 1_000_000 {
        return Err(format!("{} microseconds in a second", words[2]));
    }
    let time = u64::from(words[1]) * 1_000_000_000 + u64::from(words[2]) * 1000;
    let device = (words[7] >> 8) & 0xff;
    let op = [Op::Write, Op::Read][words[10] as usize & 1];
    let offset = u64::from(words[6]) * SRT_SECTOR;
    request(time, device, op, offset, u64::from(words[5])).map(Some)
}

impl Iterator for Srt {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        if !self.header_done
            && let Err(error) = self.skip_header()
        {
            return Some(Err(error));
        }
        loop {
            match self.record()? {
                Ok(Some(request)) => return Some(Ok(request)),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

// ---------------------------------------------------------------------------------------------------- plain numbers

pub(super) static U32LE: Format = Format {
    features: Features::ADDRESSES,
    endings: &[".u32le"],
    ..Format::of_bytes(
        "u32le",
        "32-bit block numbers, little endian; no times",
        u32le,
    )
};

fn u32le(file: Opened<'_>) -> Result<Contents, TraceError> {
    let list = U32le {
        block_bytes: file.options.block_bytes,
        records: Records::of(file),
    };
    Ok(contents(Features::ADDRESSES, Box::new(list)))
}

/// A list of block numbers, 32 bits each, little endian. No times, no operations.
struct U32le {
    pub records: Records,
    pub block_bytes: u64,
}

impl Iterator for U32le {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        let start = self.records.position;
        let mut record = [0; 4];
        if let Err(error) = self.records.next(&mut record)? {
            return Some(Err(error));
        }
        let block = u64::from(u32::from_le_bytes(record));
        let found = block
            .checked_mul(self.block_bytes)
            .ok_or_else(|| format!("block {block} is out of range"))
            .and_then(|offset| request(0, 0, Op::Read, offset, self.block_bytes));
        Some(found.map_err(|reason| self.records.error(start, reason, true)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn records(bytes: Vec<u8>) -> Records {
        Records::new("t".into(), Box::new(Cursor::new(bytes)))
    }

    fn v1(command: u16, length: u32, block: u64, time: u64) -> Vec<u8> {
        let mut record = vec![0; 4];
        record.extend(length.to_le_bytes());
        record.extend(1u32.to_le_bytes());
        record.extend(command.to_le_bytes());
        record.extend(0x0100u16.to_le_bytes());
        record.extend(block.to_le_bytes());
        record.extend(time.to_le_bytes());
        record
    }

    #[test]
    fn vscsi_of_both_versions() {
        let bytes = [
            v1(0x2a, 512, 63, 5),
            v1(0x12, 9, 9, 9),
            v1(0x28, 4096, 8, 6),
        ]
        .concat();
        assert_eq!(VscsiVersion::of(&bytes), Some(VscsiVersion::V1));
        let version = VscsiVersion::V1;
        let reader = Vscsi {
            records: records(bytes),
            version,
        };
        let found: Vec<Request> = reader.map(Result::unwrap).collect();
        assert_eq!(found.len(), 2, "INQUIRY is no request");
        assert_eq!(
            (found[0].op, found[0].offset, found[0].time),
            (Op::Write, 63 * 512, 5000)
        );
        let mut record = Vec::new();
        record.extend(0x28u16.to_le_bytes());
        record.extend(0x0200u16.to_le_bytes());
        record.extend([0; 4]);
        record.extend(8192u32.to_le_bytes());
        record.extend([0; 4]);
        record.extend(16u64.to_le_bytes());
        record.extend(7u64.to_le_bytes());
        record.extend([0; 8]);
        assert_eq!(VscsiVersion::of(&record), Some(VscsiVersion::V2));
        let version = VscsiVersion::V2;
        let found = Vscsi {
            records: records(record),
            version,
        }
        .next()
        .unwrap()
        .unwrap();
        assert_eq!((found.offset, found.length, found.time), (8192, 8192, 7000));
    }

    #[test]
    fn a_cut_record_names_its_byte() {
        let mut bytes = [v1(0x28, 512, 0, 0), v1(0x28, 512, 0, 0)].concat();
        bytes.truncate(40);
        let version = VscsiVersion::V1;
        let mut reader = Vscsi {
            records: records(bytes),
            version,
        };
        reader.next().unwrap().unwrap();
        let error = reader.next().unwrap().unwrap_err();
        assert_eq!(
            error.to_string(),
            "t, byte 32: the file ends 8 bytes into a record"
        );
    }

    #[test]
    fn srt_has_its_own_sectors() {
        let mut bytes = b"tracefile { }\x0c".to_vec();
        let words = [52, 1, 2, 3, 4, 5, 8192, 10, 0x0100, 0, 0, 1, 0];
        words
            .iter()
            .for_each(|word: &u32| bytes.extend(word.to_be_bytes()));
        bytes.extend([0, 0, 0, 3]);
        let mut reader = Srt::new(records(bytes));
        let found = reader.next().unwrap().unwrap();
        assert_eq!(
            (found.time, found.device, found.op),
            (2_000_003_000, 1, Op::Read)
        );
        assert_eq!((found.offset, found.length), (2560, 8192));
        let error = reader.next().unwrap().unwrap_err();
        assert!(
            !error.skippable,
            "without a size the next record is not found"
        );
    }

    #[test]
    fn a_text_without_form_feed_is_no_srt() {
        assert!(Srt::new(records(vec![b'x'; 100])).next().unwrap().is_err());
        assert!(Srt::new(records(Vec::new())).next().unwrap().is_err());
    }
}
