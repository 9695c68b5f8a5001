//! A record's header page: which sectors of the main set its payload has copies of, in the payload's order.
//!
//! The payload begins behind the header page, without a gap between extents, and is padded to whole pages.
//! Its checksum leaves the padding out. A header contains its own place in the log, so a copy of a header, in
//! a payload or an old segment, is not valid.

use super::super::{Extent, Kind, LOG_SECTORS_MAX};
use super::{LogOwner, check_owner, check_zero};
use restripe_array::meta::bytes::{get_u16, get_u32, get_u64, put_u16, put_u32, put_u64};
use restripe_array::meta::rules::check_counter;
use restripe_array::meta::{MetaError, field, header};
use restripe_array::{PAGE_BYTES, PAGE_SECTORS, Page};

pub const MAGIC: [u8; 8] = *b"RstrpOvl";

/// Bytes in front of the extents.
pub const HEADER_BYTES: usize = 96;
pub const EXTENT_BYTES: usize = 16;
/// The largest number of extents of one record.
pub const EXTENTS_MAX: usize = (PAGE_BYTES - HEADER_BYTES) / EXTENT_BYTES;

restripe_array::offsets! {
    /// Byte offsets in a header page, and in an extent of it.
    pub mod at {
        pub const MAGIC: usize = 0;
        pub const VERSION: usize = 8;
        pub const COUNT: usize = 10;
        pub const CRC: usize = 12;
        pub const ARRAY: usize = 16;
        pub const EPOCH: usize = super::super::EPOCH;
        pub const SEQUENCE: usize = 40;
        pub const DURABLE: usize = 48;
        pub const AT: usize = 56;
        pub const PAYLOAD_SECTORS: usize = 64;
        pub const PAYLOAD_CRC: usize = 68;
        pub const RESERVED: usize = 72;
        pub const EXTENTS: usize = super::HEADER_BYTES;

        pub const EXTENT_HOME: usize = 0;
        pub const EXTENT_SECTORS: usize = 8;
        pub const EXTENT_KIND: usize = 12;
        pub const EXTENT_RESERVED: usize = 13;
    }
}

/// The fields of a header page, without its extents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// From 1 on, one series for the whole log.
    pub sequence: u64,
    /// All records below this sequence were flushed when this one was written.
    pub durable: u64,
    /// The sector in the log of the header page itself.
    pub at: u64,
    pub payload_sectors: u32,
    /// crc32c of the payload without its padding.
    pub payload_crc: u32,
}

impl RecordHeader {
    /// The sector of the log at which the payload begins.
    pub fn payload_at(&self) -> u64 {
        self.at + PAGE_SECTORS
    }
}

/// Writes a header page. The extents are those that the map will have for the record.
///
/// # Panics
/// If they do not follow each other through the payload, or break another rule that [`decode`] checks.
pub fn encode(owner: &LogOwner, record: &RecordHeader, extents: &[Extent], page: &mut Page) {
    let sound = check_header(record, extents.len())
        .and_then(|()| check_extents(record.payload_sectors, extents.iter().copied()));
    assert_eq!(sound, Ok(()), "a record's header obeys its rules");
    let mut place = record.payload_at();
    let bytes = &mut page[..];
    header::begin(bytes, MAGIC, owner.array);
    put_u64(bytes, at::EPOCH, owner.epoch);
    put_u64(bytes, at::SEQUENCE, record.sequence);
    put_u64(bytes, at::DURABLE, record.durable);
    put_u64(bytes, at::AT, record.at);
    put_u32(bytes, at::PAYLOAD_SECTORS, record.payload_sectors);
    put_u32(bytes, at::PAYLOAD_CRC, record.payload_crc);
    put_u16(bytes, at::COUNT, extents.len() as u16); // at most EXTENTS_MAX
    let (entries, _) = bytes[at::EXTENTS..].as_chunks_mut::<EXTENT_BYTES>();
    for (extent, entry) in extents.iter().zip(entries) {
        let named = (extent.at, extent.sequence);
        assert_eq!(named, (place, record.sequence), "extents make the payload");
        place = extent.log_end();
        put_u64(entry, at::EXTENT_HOME, extent.home);
        put_u32(entry, at::EXTENT_SECTORS, extent.sectors);
        entry[at::EXTENT_KIND] = code(extent.kind);
    }
    header::seal(bytes);
}

fn code(kind: Kind) -> u8 {
    match kind {
        Kind::Instead => 1,
        Kind::Also => 2,
        Kind::Clean => 3,
    }
}

fn kind(byte: u8) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| code(*kind) == byte)
}

/// A header page that has been checked: its extents are in range.
#[derive(Clone, Copy, Debug)]
pub struct RecordView<'a> {
    pub header: RecordHeader,
    page: &'a Page,
    count: usize,
}

impl<'a> RecordView<'a> {
    /// The extents in the payload's order, placed in the log.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + use<'a> {
        placed(self.page, self.header, self.count)
    }
}

/// The entries of a page as extents, up to an invalid kind. The header is in range: no sum overflows.
fn placed(
    page: &Page,
    header: RecordHeader,
    count: usize,
) -> impl Iterator<Item = Extent> + use<'_> {
    let (entries, _) = page[at::EXTENTS..].as_chunks::<EXTENT_BYTES>();
    let mut place = header.payload_at();
    entries.iter().take(count).map_while(move |entry| {
        let extent = Extent {
            home: get_u64(entry, at::EXTENT_HOME),
            sectors: get_u32(entry, at::EXTENT_SECTORS),
            at: place,
            sequence: header.sequence,
            kind: kind(entry[at::EXTENT_KIND])?,
        };
        place += u64::from(extent.sectors);
        Some(extent)
    })
}

/// Reads the header page at this sector of the log. The caller has to check the payload. It also has to check
/// that the main set has these sectors, because the log does not record the main set's size.
pub fn decode<'a>(
    owner: &LogOwner,
    place: u64,
    page: &'a Page,
) -> Result<RecordView<'a>, MetaError> {
    let bytes = &page[..];
    check_owner(bytes, MAGIC, owner)?;
    if get_u64(bytes, at::AT) != place {
        return Err(MetaError::Misplaced);
    }
    let header = RecordHeader {
        sequence: get_u64(bytes, at::SEQUENCE),
        durable: get_u64(bytes, at::DURABLE),
        at: place,
        payload_sectors: get_u32(bytes, at::PAYLOAD_SECTORS),
        payload_crc: get_u32(bytes, at::PAYLOAD_CRC),
    };
    let count = usize::from(get_u16(bytes, at::COUNT));
    check_header(&header, count)?;
    check_entries(bytes, count)?;
    check_extents(header.payload_sectors, placed(page, header, count))?;
    Ok(RecordView {
        header,
        page,
        count,
    })
}

/// Checks the fields of entries that extents do not have: kinds, and bytes that mean nothing.
fn check_entries(bytes: &[u8], count: usize) -> Result<(), MetaError> {
    check_zero("record reserved", &bytes[at::RESERVED..at::EXTENTS])?;
    let (entries, _) = bytes[at::EXTENTS..].as_chunks::<EXTENT_BYTES>();
    let (used, unused) = entries.split_at(count);
    for entry in used {
        if kind(entry[at::EXTENT_KIND]).is_none() {
            return field("record extent kind", u64::from(entry[at::EXTENT_KIND]));
        }
        check_zero("record extent reserved", &entry[at::EXTENT_RESERVED..])?;
    }
    check_zero("record unused extents", unused.as_flattened())
}

/// The rules of a header, the same for writing and for reading, as are those of its extents.
fn check_header(record: &RecordHeader, count: usize) -> Result<(), MetaError> {
    check_counter("record sequence", record.sequence)?;
    if record.sequence == 0 || record.durable > record.sequence {
        return field("record durable", record.durable);
    }
    if !record.at.is_multiple_of(PAGE_SECTORS) || record.at >= LOG_SECTORS_MAX {
        return field("record place", record.at);
    }
    match count {
        1..=EXTENTS_MAX => Ok(()),
        _ => field("record extents", count as u64),
    }
}

/// Each extent is in range, all together are the payload, and no two have a sector of the main set in common.
/// For at most [`EXTENTS_MAX`] extents.
fn check_extents(
    payload_sectors: u32,
    extents: impl Iterator<Item = Extent>,
) -> Result<(), MetaError> {
    let mut homes = [(u64::MAX, u64::MAX); EXTENTS_MAX];
    let mut sum = 0_u64;
    for (extent, home) in extents.zip(&mut homes) {
        if !extent.is_addressable() {
            return field("record extent home", extent.home);
        }
        sum += u64::from(extent.sectors);
        *home = (extent.home, extent.end());
    }
    if sum != u64::from(payload_sectors) {
        return field("record payload sectors", u64::from(payload_sectors));
    }
    homes.sort_unstable();
    match homes.array_windows().find(|[one, next]| one.1 > next.0) {
        Some([_, overlapped]) => field("record extent home", overlapped.0),
        None => Ok(()),
    }
}
