//! The slots of a log's NVRAM set: packed records that clients flushed before the log has them.
//!
//! A record's slot is its sequence modulo the number of slots. It has two halves of 64 KiB, each with a page
//! like a record's header and a payload behind it. *Versions* of one record, as it fills, go into the two
//! halves in turn. So the last version that a flush covered is whole, whatever happens to the next one.
//!
//! Valid after a crash: from the first sequence that the log lacks on, as many records as have versions of
//! just these sequences in the slots, up to the first that has none. Behind a record that was not closed
//! there are others only if it was closed with nothing new. A start brings the records up to it into the log,
//! reads the log again, and continues with the next ones.

use super::record::{self, RecordHeader};
use super::{LogOwner, check_zero};
use crate::overlay::Extent;
use alloc::vec::Vec;
use restripe_array::meta::bytes::{get_u32, get_u64, put, put_u32};
use restripe_array::meta::{MetaError, field, header};
use restripe_array::{Page, zeroed_page};

pub const MAGIC: [u8; 8] = *b"RstrpBuf";

/// Sectors of a half: the largest record, with its header.
pub const HALF_SECTORS: u64 = 128;
/// The largest number of slots.
pub const SLOTS_MAX: u64 = 64;

restripe_array::offsets! {
    /// Byte offsets where a slot's page differs from a record's header.
    pub mod at {
        pub const MAGIC: usize = super::record::at::MAGIC;
        pub const VERSION: usize = super::record::at::RESERVED;
        pub const CLOSED: usize = VERSION + 4;
        pub const RESERVED: usize = CLOSED + 1;
    }
}

/// The layout of the slots of an NVRAM set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotLayout {
    slots: u64,
}

impl SlotLayout {
    /// For an NVRAM set of this many sectors.
    pub fn of(sectors: u64) -> SlotLayout {
        SlotLayout {
            slots: (sectors / (2 * HALF_SECTORS)).min(SLOTS_MAX),
        }
    }

    pub fn slots(&self) -> u32 {
        self.slots as u32 // SLOTS_MAX at most
    }

    /// Halves of all slots.
    pub fn halves(&self) -> u32 {
        2 * self.slots()
    }

    /// The sector of the NVRAM set at which a half begins.
    pub(crate) fn half_at(&self, half: u32) -> u64 {
        u64::from(half) * HALF_SECTORS
    }

    /// The half for a version of a record.
    ///
    /// # Panics
    /// If there are no slots.
    pub fn half_of(&self, sequence: u64, version: u32) -> u32 {
        2 * (sequence % self.slots) as u32 + version % 2
    }
}

/// A version of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version {
    /// The header, as in the log. Its *durable* means nothing.
    pub header: RecordHeader,
    /// The number of the version, from 1 on.
    pub version: u32,
    /// Nothing more comes into the record.
    pub closed: bool,
    pub extents: Vec<Extent>,
}

/// Writes the page of a version.
///
/// # Panics
/// If the record breaks a rule of the [log's](record::encode).
pub fn encode(owner: &LogOwner, version: &Version, page: &mut Page) {
    record::encode(owner, &version.header, &version.extents, page);
    let bytes = &mut page[..];
    put(bytes, record::at::MAGIC, MAGIC);
    put_u32(bytes, at::VERSION, version.version);
    bytes[at::CLOSED] = u8::from(version.closed);
    header::seal(bytes);
}

/// Reads the page of a version. The caller has to check the payload.
///
/// # Errors
/// If the page is no version of this log.
pub fn decode(owner: &LogOwner, page: &Page) -> Result<Version, MetaError> {
    header::check(&page[..], MAGIC, owner.array)?;
    check_zero("slot reserved", &page[at::RESERVED..record::at::EXTENTS])?;
    let version = get_u32(&page[..], at::VERSION);
    let closed = match page[at::CLOSED] {
        0 => false,
        1 => true,
        other => return field("slot closed", other.into()),
    };
    if version == 0 {
        return field("slot version", 0);
    }
    let mut plain = zeroed_page();
    plain.copy_from_slice(&page[..]);
    let bytes = &mut plain[..];
    put(bytes, record::at::MAGIC, record::MAGIC);
    bytes[at::VERSION..at::RESERVED].fill(0);
    header::seal(bytes);
    let place = get_u64(bytes, record::at::AT);
    let view = record::decode(owner, place, &plain)?;
    Ok(Version {
        header: view.header,
        version,
        closed,
        extents: view.extents().collect(),
    })
}
