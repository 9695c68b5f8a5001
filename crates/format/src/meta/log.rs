//! Records of the partial-parity log: one header page each, then its payload, padded to whole pages.
//!
//! A record is written, and durable, on the parity member of its row before any cell of the row is written in place.
//! Its payload is the parity of the data cells that the write does *not* change. After a crash, parity is recomputed
//! from the payload and the changed cells as they are found, so that the unchanged cells stay recoverable.

use super::bytes::{get_u32, get_u64, put_u32, put_u64};
use super::rules::check_counter;
use super::{MetaError, field, header};
use crate::layout::CHUNK_SECTORS_MAX;
use crate::units::{PAGE_BYTES, PAGE_SECTORS, SECTOR_BYTES, Uuid};
use crate::values::Page;
use alloc::vec::Vec;

pub const MAGIC: [u8; 8] = *b"RstrpLog";

/// The header proper: one sector, so that a torn page is either whole where it matters or refused.
pub const HEADER_BYTES: usize = SECTOR_BYTES as usize;

/// `copies`: the record was sent to P's member.
pub const COPY_P: u8 = 1;
/// `copies`: the record was sent to Q's member.
pub const COPY_Q: u8 = 2;

offsets! {
    /// Byte offsets in a header page.
    pub mod at {
        pub const MAGIC: usize = 0;
        pub const VERSION: usize = 8;
        pub const CRC: usize = 12;
        pub const ARRAY: usize = 16;
        pub const SEQUENCE: usize = 32;
        pub const FLOOR: usize = 40;
        pub const GENERATION: usize = 48;
        pub const ROW: usize = 56;
        pub const OFFSET: usize = 64;
        pub const SECTORS: usize = 68;
        pub const MODIFIED: usize = 72;
        pub const PAYLOAD_SECTORS: usize = 76;
        pub const PAYLOAD_CRC: usize = 80;
        pub const COPIES: usize = 84;
        pub const KIND: usize = 85;
        pub const RESERVED: usize = 86;
    }
}

/// Which partial parity the payload is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum PayloadKind {
    P,
    Q,
}

// The code is the bit of this log in [`LogRecord::copies`].
codes! { "log payload kind": PayloadKind { P = 1, Q = 2 } }
const _: () = assert!(COPY_P == 1 && COPY_Q == 2);

/// Sectors at the start of a log region that its done-list takes: two homes of a page, by the list's version.
pub const DONE_SECTORS: u64 = 2 * PAGE_SECTORS;
/// Begins a done-list.
pub const DONE_MAGIC: [u8; 8] = *b"RstrpDon";
/// Sequences that a done-list holds.
pub const DONE_MAX: usize = (PAGE_BYTES - done_at::SEQUENCES) / 8;

/// Offsets in a done-list.
pub mod done_at {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 8;
    pub const CRC: usize = 12;
    pub const ARRAY: usize = 16;
    pub const LIST_VERSION: usize = 32;
    pub const FLOOR: usize = 40;
    pub const COUNT: usize = 48;
    pub const SEQUENCES: usize = 56;
}

/// Which records of a log are done with, though they lie there still: all below `floor`, and those named.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DoneList {
    pub version: u64,
    pub floor: u64,
    pub sequences: Vec<u64>,
}

/// Writes a done-list of at most [`DONE_MAX`] sequences.
pub fn encode_done(array: Uuid, version: u64, floor: u64, sequences: &[u64], page: &mut Page) {
    assert!(sequences.len() <= DONE_MAX, "a done-list fits its page");
    let bytes = &mut page[..];
    header::begin(bytes, DONE_MAGIC, array);
    put_u64(bytes, done_at::LIST_VERSION, version);
    put_u64(bytes, done_at::FLOOR, floor);
    put_u64(bytes, done_at::COUNT, sequences.len() as u64);
    for (index, sequence) in sequences.iter().enumerate() {
        put_u64(bytes, done_at::SEQUENCES + 8 * index, *sequence);
    }
    header::seal(bytes);
}

/// Reads a done-list.
pub fn decode_done(page: &Page, array: Uuid) -> Result<DoneList, MetaError> {
    let bytes = &page[..];
    header::check(bytes, DONE_MAGIC, array)?;
    let count = get_u64(bytes, done_at::COUNT);
    if count > DONE_MAX as u64 {
        return field("done sequences", count);
    }
    let sequence = |i| get_u64(bytes, done_at::SEQUENCES + 8 * i);
    let list = DoneList {
        version: get_u64(bytes, done_at::LIST_VERSION),
        floor: get_u64(bytes, done_at::FLOOR),
        sequences: (0..count as usize).map(sequence).collect(),
    };
    check_counter("done version", list.version)?;
    check_counter("done floor", list.floor)?;
    for &sequence in &list.sequences {
        check_counter("done sequence", sequence)?;
    }
    Ok(list)
}

/// What a record's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRecord {
    pub array: Uuid,
    /// One series for the whole array. The records of one write carry the same number.
    pub sequence: u64,
    /// The oldest sequence still live in this log when this record was written; older records of it are void.
    pub floor: u64,
    pub generation: u64,
    pub row: u64,
    /// The range within each cell of the row.
    pub offset: u32,
    pub sectors: u32,
    /// Which data cells this write changes, one bit each.
    pub modified: u32,
    /// Which logs got a record of this write: [`COPY_P`], [`COPY_Q`].
    pub copies: u8,
    pub kind: PayloadKind,
    /// `sectors`, or 0 if every data cell is changed and there is nothing to keep.
    pub payload_sectors: u32,
    /// crc32c of the payload without its padding.
    pub payload_crc: u32,
}

impl LogRecord {
    /// Sectors that this record takes in the log region: header page and padded payload.
    pub fn total_sectors(&self) -> u64 {
        total_sectors(self.payload_sectors)
    }
}

/// Sectors that a record with this payload takes in the log region.
pub fn total_sectors(payload_sectors: u32) -> u64 {
    PAGE_SECTORS + u64::from(payload_sectors).next_multiple_of(PAGE_SECTORS)
}

/// Writes the header page of a record. The record obeys the rules that [`decode`] checks.
pub fn encode(record: &LogRecord, page: &mut Page) {
    assert!(check(record).is_ok(), "a log record is in range");
    let bytes = &mut page[..];
    header::begin(bytes, MAGIC, record.array);
    put_u64(bytes, at::SEQUENCE, record.sequence);
    put_u64(bytes, at::FLOOR, record.floor);
    put_u64(bytes, at::GENERATION, record.generation);
    put_u64(bytes, at::ROW, record.row);
    put_u32(bytes, at::OFFSET, record.offset);
    put_u32(bytes, at::SECTORS, record.sectors);
    put_u32(bytes, at::MODIFIED, record.modified);
    put_u32(bytes, at::PAYLOAD_SECTORS, record.payload_sectors);
    put_u32(bytes, at::PAYLOAD_CRC, record.payload_crc);
    bytes[at::COPIES] = record.copies;
    bytes[at::KIND] = record.kind.code();
    header::seal(&mut bytes[..HEADER_BYTES]);
}

/// Reads a header page. The payload is the caller's to check against [`LogRecord::payload_crc`].
pub fn decode(page: &Page, array: Uuid) -> Result<LogRecord, MetaError> {
    let bytes = &page[..HEADER_BYTES];
    header::check(bytes, MAGIC, array)?;
    let record = LogRecord {
        array,
        sequence: get_u64(bytes, at::SEQUENCE),
        floor: get_u64(bytes, at::FLOOR),
        generation: get_u64(bytes, at::GENERATION),
        row: get_u64(bytes, at::ROW),
        offset: get_u32(bytes, at::OFFSET),
        sectors: get_u32(bytes, at::SECTORS),
        modified: get_u32(bytes, at::MODIFIED),
        copies: bytes[at::COPIES],
        kind: PayloadKind::of_code(bytes[at::KIND])?,
        payload_sectors: get_u32(bytes, at::PAYLOAD_SECTORS),
        payload_crc: get_u32(bytes, at::PAYLOAD_CRC),
    };
    check(&record)?;
    Ok(record)
}

/// The rules of a record, alike for what is written and what is read.
fn check(record: &LogRecord) -> Result<(), MetaError> {
    let end = u64::from(record.offset) + u64::from(record.sectors);
    if record.sectors == 0 || end > u64::from(CHUNK_SECTORS_MAX) {
        return field("log range end", end);
    }
    if record.payload_sectors != 0 && record.payload_sectors != record.sectors {
        return field("log payload sectors", u64::from(record.payload_sectors));
    }
    if record.modified == 0 {
        return field("log modified cells", 0);
    }
    if record.copies & !(COPY_P | COPY_Q) != 0 || record.copies & record.kind.code() == 0 {
        return field("log copies", u64::from(record.copies));
    }
    if record.floor > record.sequence {
        return field("log floor", record.floor);
    }
    check_counter("log sequence", record.sequence)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Random;
    use super::*;
    use crate::values::zeroed_page;

    const ARRAY: Uuid = Uuid([9; 16]);

    fn any(random: &mut Random) -> LogRecord {
        let sectors = 1 + random.below(128) as u32;
        let kind = match random.flag() {
            true => PayloadKind::P,
            false => PayloadKind::Q,
        };
        let sequence = random.number() >> 2;
        LogRecord {
            array: ARRAY,
            sequence,
            floor: random.below(sequence.max(1)),
            generation: random.number(),
            row: random.number(),
            offset: random.below(u64::from(CHUNK_SECTORS_MAX - sectors)) as u32,
            sectors,
            modified: random.number() as u32 | 1,
            copies: match random.flag() {
                true => COPY_P | COPY_Q,
                false => kind.code(),
            },
            kind,
            payload_sectors: if random.flag() { sectors } else { 0 },
            payload_crc: random.number() as u32,
        }
    }

    fn encoded(record: &LogRecord) -> Page {
        let mut page = Page::new([0xaa; 4096]);
        encode(record, &mut page);
        page
    }

    fn reseal(page: &mut Page) {
        header::seal(&mut page[..HEADER_BYTES]);
    }

    #[test]
    fn round_trip() {
        let mut random = Random::new(1);
        for _ in 0..2000 {
            let record = any(&mut random);
            assert_eq!(decode(&encoded(&record), ARRAY), Ok(record));
        }
    }

    #[test]
    fn total_covers_header_and_padded_payload() {
        assert_eq!([0, 1, 8, 128].map(total_sectors), [8, 16, 16, 136]);
        let _ = total_sectors(u32::MAX);
    }

    /// The header sector is guarded bit by bit; the rest of the page means nothing.
    #[test]
    fn every_bit_flip_is_refused_or_harmless() {
        let record = any(&mut Random::new(2));
        let page = encoded(&record);
        for bit in 0..4096 * 8 {
            let mut flipped = page.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            match decode(&flipped, ARRAY) {
                Ok(same) => assert!(bit >= HEADER_BYTES * 8 && same == record, "bit {bit}"),
                Err(_) => assert!(bit < HEADER_BYTES * 8, "bit {bit}"),
            }
        }
    }

    #[test]
    fn blank_and_foreign_pages_are_told_apart() {
        assert_eq!(decode(&zeroed_page(), ARRAY), Err(MetaError::NotFound));
        let page = encoded(&any(&mut Random::new(3)));
        assert_eq!(decode(&page, Uuid([8; 16])), Err(MetaError::OtherArray));
    }

    #[test]
    fn hostile_fields_with_a_good_checksum_are_refused() {
        let sound = encoded(&any(&mut Random::new(4)));
        let hostile: [(usize, u32); 8] = [
            (at::SECTORS, 0),
            (at::SECTORS, u32::MAX),
            (at::OFFSET, u32::MAX),
            (at::PAYLOAD_SECTORS, u32::MAX),
            (at::MODIFIED, 0),
            (at::COPIES, 0x0000_0100),
            (at::COPIES, 0x0000_01ff),
            (at::COPIES, 0x0000_0301),
        ];
        for (offset, value) in hostile {
            let mut page = sound.clone();
            put_u32(&mut page[..], offset, value);
            reseal(&mut page);
            let refused = matches!(decode(&page, ARRAY), Err(MetaError::Field { .. }));
            assert!(refused, "{offset} {value}");
        }
        let mut page = sound.clone();
        put_u64(&mut page[..], at::FLOOR, u64::MAX);
        put_u64(&mut page[..], at::SEQUENCE, 1);
        reseal(&mut page);
        assert!(decode(&page, ARRAY).is_err());
    }

    #[test]
    fn random_fields_never_panic_and_stay_in_range() {
        let mut random = Random::new(5);
        let sound = encoded(&any(&mut random));
        for _ in 0..20_000 {
            let mut page = sound.clone();
            for _ in 0..1 + random.below(6) {
                page[32 + random.below(60) as usize] = random.number() as u8;
            }
            reseal(&mut page);
            if let Ok(record) = decode(&page, ARRAY) {
                assert!(check(&record).is_ok());
                encode(&record, &mut page);
            }
        }
    }
}
