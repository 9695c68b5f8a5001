//! The overlay log on its log set: its pages, their locations, and which records are valid after a crash.
//!
//! A log's [region](region::LogRegion) begins with [anchors](anchor), two places for each. The segments
//! follow, with [records](record): a header page, then the payload, padded to whole pages. Addresses *in the
//! log* count from the first segment. `docs/reference/format.md` has every byte.
//!
//! # Which records are valid
//!
//! A record's *durable* states that all records below this sequence were flushed when the record was written.
//! An anchor's *durable* states the same for the time of the anchor's write. The highest one found is D.
//!
//! * A segment's anchor may declare records obsolete: those below its `obsolete_below`, and, in a closed
//!   segment, those from its `end` on.
//! * Of the others, all below D are valid, and their payload need not be checked. Below D a missing sequence
//!   means nothing: its segment became obsolete and was rewritten.
//! * From D on they are valid as long as each sequence is present with a sound payload. The first missing or
//!   torn one is the *gap*. It ends the valid records in all segments, since records are acknowledged in the
//!   order of their sequences.
//!
//! From D on, a missing sequence can only be the result of a crash, because the writer obeys four rules:
//!
//! 1. Sequences rise by one from record to record, and in a segment from its start on.
//! 2. A record is acknowledged when it and all records below it are written, and flushed if a flush was
//!    requested.
//! 3. A segment is rewritten only after an anchor is durable that declares its records obsolete, and whose D
//!    is above them all. So nothing at or above D was ever overwritten. The *durable* of the new record would
//!    not suffice: the record may be torn, and the record that it overwrote be taken for a gap. An anchor
//!    declares a record obsolete only when all data that replaced it, in the main set or in the log, is
//!    durable. Otherwise a crash could undo the replacement.
//! 4. Records behind the gap stay on the log set, and must never become valid. So a start, before it appends,
//!    (a) flushes; (b) closes every segment with records behind the last valid one, or from its start if none
//!    is valid, and makes these anchors durable; (c) makes an anchor durable whose D is above every sequence
//!    that was ever written, seen or not, and continues from there. If (c) came before (b), records would be
//!    valid that (b) has not cut off yet.
//!
//! In (c), "above every sequence" is D plus the number of records that the log has room for: by rule 3 all
//! records from D on are in the log together.

pub mod anchor;
#[cfg(test)]
mod document;
pub mod record;
pub mod region;
pub mod scan;
#[cfg(test)]
mod scan_model_tests;
#[cfg(test)]
mod scan_tests;
pub mod slot;
#[cfg(test)]
mod slot_tests;
#[cfg(test)]
mod tests;

pub use anchor::{AnchorError, AnchorTable};
pub use record::{EXTENTS_MAX, RecordHeader, RecordView};
pub use region::{LogLayout, LogRegion, RegionError};
use restripe_array::Uuid;
use restripe_array::meta::bytes::get_u64;
use restripe_array::meta::rules::FOUND_LIMIT;
use restripe_array::meta::{MetaError, field, header};
pub use scan::{Cause, Damage, PayloadFound, Read, Recovered, Scan};
pub use slot::{SlotLayout, Version};

/// The owner of a log. A page of another owner means nothing in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogOwner {
    pub array: Uuid,
    /// A log set that is attached again gets a higher epoch.
    pub epoch: u64,
}

/// The offset of the epoch in both kinds of page.
const EPOCH: usize = 32;

/// Checks the first bytes of both kinds of page.
fn check_owner(bytes: &[u8], magic: [u8; 8], owner: &LogOwner) -> Result<(), MetaError> {
    header::check(bytes, magic, owner.array)?;
    match get_u64(bytes, EPOCH) {
        epoch if epoch == owner.epoch => Ok(()),
        other => field("overlay epoch", other),
    }
}

/// Reserved bytes are zero: a change that gives them a meaning raises the version.
fn check_zero(name: &'static str, bytes: &[u8]) -> Result<(), MetaError> {
    match bytes.iter().find(|byte| **byte != 0) {
        Some(byte) => field(name, u64::from(*byte)),
        None => Ok(()),
    }
}

fn check_found(name: &'static str, value: u64) -> Result<(), MetaError> {
    match value < FOUND_LIMIT {
        true => Ok(()),
        false => field(name, value),
    }
}
