//! The slots of a log's buffer: what was gathered in memory, and users flushed, before the log has it.
//!
//! A record's slot is its sequence modulo their number. It has two halves of 64 KiB, each with a page like a
//! record's header and a payload behind it: *versions* of one record, as more and more comes into it, go by
//! turns into one and the other. So the last version that a flush covered lies there whole whatever becomes
//! of the next.
//!
//! What counts, after a crash: from the first sequence that the log lacks on, so many records as slots have
//! versions of just these sequences, up to the first that has none. Behind one that was not closed there are
//! others only if it was closed with nothing new: a start brings what comes up to it into the log, reads that
//! again, and goes on with them.

use super::record::{self, RecordHeader};
use super::{LogOwner, check_zero};
use crate::overlay::Extent;
use alloc::vec::Vec;
use restripe_array::meta::bytes::{get_u32, get_u64, put, put_u32};
use restripe_array::meta::{MetaError, field, header};
use restripe_array::{Page, zeroed_page};

pub const MAGIC: [u8; 8] = *b"RstrpBuf";

/// Sectors of a half: a record at most, with its header.
pub const HALF_SECTORS: u64 = 128;
/// Slots at most.
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

/// Where the slots of a buffer lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotLayout {
    slots: u64,
}

impl SlotLayout {
    /// In a buffer of so many sectors.
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

    /// The sector of the buffer at which a half begins.
    pub(crate) fn half_at(&self, half: u32) -> u64 {
        u64::from(half) * HALF_SECTORS
    }

    /// The half that a version of a record lies in.
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
    /// As it would stand in the log. Its *durable* says nothing.
    pub header: RecordHeader,
    /// Of its versions, from 1 on.
    pub version: u32,
    /// Nothing more came into it.
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

/// Reads the page of a version. The payload is the caller's to check.
///
/// # Errors
/// If it is none of this log.
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
