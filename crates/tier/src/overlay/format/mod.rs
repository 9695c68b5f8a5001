//! The overlay log on its surrogate: its pages, where they lie, and what of it counts after a crash.
//!
//! A log's [region](region::LogRegion) begins with [anchors](anchor), two homes for each. The segments
//! follow, with [records](record): a header page, then its payload, padded to whole pages. Addresses *in the
//! log* count from the first segment. `docs/reference/format.md` has every byte.
//!
//! # What counts
//!
//! A record's *durable* says: all records below this sequence were flushed when this one was written. An
//! anchor's says the same of the moment when that anchor was written. The highest one found is D. Then, of
//! the records that lie in the log:
//!
//! * A segment's anchor may void them: those below its `void_below`, and, in a segment that is closed, those
//!   from its `end` on.
//! * The others below D count, and nobody needs to look at their payload. Below D a missing sequence means
//!   nothing: it was in a segment that has been voided since, and written over.
//! * From D on they count as long as each sequence is there, its payload sound. The first that is not, the
//!   *gap*, ends what counts in all segments: records are acknowledged in the order of their sequences, so
//!   nothing behind it was.
//!
//! That a sequence is missing from D on can only mean a crash, because of what the writer keeps to:
//!
//! 1. Sequences rise by one from record to record, and in a segment from its start on.
//! 2. A record is acknowledged when it, and all below it, are written; flushed, if a flush is asked for.
//! 3. A segment is written again only after an anchor that voids its records is durable, whether they went
//!    home or were superseded. That anchor's D is above them all. So whatever is at or above D was never
//!    written over. It is not enough that the new record's own durable is above them: that record may be
//!    torn, and what it tore away be taken for a gap. And an anchor voids a record only when all that came in
//!    its place, at home or in the log, is durable: otherwise a crash could take that back.
//! 4. What lies behind the gap stays on the surrogate, and must never come to count. So a start, before it
//!    appends, (a) flushes; (b) closes every segment in which it found records, each behind the last that
//!    counts, cuts off those in which none does, and makes these anchors durable; (c) makes an anchor durable
//!    whose D is a sequence above everything that was ever written, seen or not, and goes on from there. With
//!    (c) before (b) all would count that (b) had yet to cut off.
//!
//! In (c), "above everything" is D and as many more as the log has room for: by rule 3 all records from D on
//! lie there side by side.

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

/// Whose log it is. A page of another owner means nothing in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogOwner {
    pub array: Uuid,
    /// A surrogate that is attached anew gets a higher one.
    pub epoch: u64,
}

/// Where the epoch stands in both kinds of page.
const EPOCH: usize = 32;

/// Checks what both kinds of page begin with.
fn check_owner(bytes: &[u8], magic: [u8; 8], owner: &LogOwner) -> Result<(), MetaError> {
    header::check(bytes, magic, owner.array)?;
    match get_u64(bytes, EPOCH) {
        epoch if epoch == owner.epoch => Ok(()),
        other => field("overlay epoch", other),
    }
}

/// Reserved bytes are zero: what gives them a meaning raises the version.
fn check_zero(name: &'static str, bytes: &[u8]) -> Result<(), MetaError> {
    match bytes.iter().find(|byte| **byte != 0) {
        Some(byte) => field(name, u64::from(*byte)),
        None => Ok(()),
    }
}

fn check_found(name: &'static str, value: u64) -> Result<(), MetaError> {
    if value < FOUND_LIMIT {
        Ok(())
    } else {
        field(name, value)
    }
}
