//! Deferred mirrors (GRAID, ERAID): a floor above the records. A record is also written to the primary copies
//! of the main set; the secondary copies follow with the destage.
//!
//! As long as the primary copies are trusted, a record is acknowledged when log and primary copies have it,
//! and is read from the primary copies. When they are no longer trusted, and after every start, only the
//! log's copy is valid. `pair/deferred_mirror.rs` decides when they are trusted.

use super::effect::{Effect, PartTag};
use super::records::{AckTarget, PrimaryWrite, Record, Records};
use super::requests::sectors_of;
use super::{Extent, Kind, UNLOGGED, is_logged};
use alloc::vec::Vec;
use restripe_array::{PAGE_SECTORS, Request, RequestError, RequestOp};

pub struct DeferredMirror {
    below: Records,
    /// Primary copies are no longer trusted, or the log is not, and that is not yet recorded.
    lapsing: bool,
    /// Flushes of a log that failed, until that is recorded.
    late_flushes: Vec<PartTag>,
}

floor!(DeferredMirror over Records { lapsing, late_flushes });

impl DeferredMirror {
    pub(super) fn set_trust(&mut self, trusts: bool) {
        self.trusts = trusts;
        self.lapsing = !trusts;
    }

    /// Whether no record is acknowledged before it is recorded what is trusted.
    pub fn is_lapsing(&self) -> bool {
        self.lapsing
    }

    /// It is recorded what is trusted; false if nothing waited for that.
    pub(super) fn end_lapse(&mut self) -> bool {
        core::mem::take(&mut self.lapsing)
    }

    /// A flush of the log that failed waits until that is recorded.
    pub(super) fn delay_flush(&mut self, part: PartTag) {
        self.late_flushes.push(part);
    }

    pub(super) fn take_late_flushes(&mut self) -> Vec<PartTag> {
        core::mem::take(&mut self.late_flushes)
    }

    /// A primary copy was lost: what it has of records that have not landed is not valid.
    pub(super) fn doubt(&mut self) {
        for record in &mut self.below.records {
            record.primary = match record.primary {
                PrimaryWrite::Done(request) => PrimaryWrite::Failed(request),
                PrimaryWrite::InFlight(request) => PrimaryWrite::Doubted(request),
                other => other,
            };
        }
    }

    /// Whether only the log has something that was acknowledged.
    pub(super) fn needs_log(&self) -> bool {
        let deferred = |record: &Record| !matches!(record.primary, PrimaryWrite::None);
        match self.trusts {
            true => self.map.total(Kind::Instead).extents > 0 || !self.records.iter().all(deferred),
            false => !self.holds_nothing_instead(),
        }
    }

    /// The log has failed. Primary copies that go on without it acknowledge nothing before that is recorded:
    /// a start that finds the log again would use it.
    pub(super) fn fail_log(&mut self) {
        self.lapsing |= self.trusts && !self.broken;
        self.broken = true;
    }

    /// Starts the next record of a write; false if there is no room for it.
    pub(super) fn append(&mut self, id: u32, request: &Request, cut: u64) -> bool {
        let part = self.next_part(request, cut);
        let sectors = sectors_of(&part);
        let payload = (part.op == RequestOp::Write).then_some(part.buf);
        let target = AckTarget::Request(id);
        let (home, count) = (sectors.start, (sectors.end - sectors.start) as u32);
        if !self.begin_record(home, count, Kind::Instead, target, payload) {
            return false;
        }
        if self.trusts {
            self.write_primaries(part);
        }
        true
    }

    /// The log has failed: only the primary copies get what is written over its extents, until that is
    /// destaged. False if the map has no room.
    pub(super) fn append_unlogged(&mut self, id: u32, request: &Request, cut: u64) -> bool {
        if !self.map.room_for(self.records.len() as u32 + 1) {
            return false;
        }
        let part = self.next_part(request, cut);
        let sectors = sectors_of(&part);
        let extent = Extent {
            home: sectors.start,
            sectors: (sectors.end - sectors.start) as u32,
            at: UNLOGGED + sectors.start,
            sequence: self.sequence,
            kind: Kind::Instead,
        };
        self.sequence += 1;
        self.push_record(Record {
            result: Some(Err(RequestError::Unavailable)),
            ..Record::new(extent, AckTarget::Request(id))
        });
        self.write_primaries(part);
        true
    }

    /// Writes the newest record to the primary copies as well.
    fn write_primaries(&mut self, request: Request) {
        let record = self.records.back_mut().expect("it was begun just now");
        record.primary = PrimaryWrite::InFlight(request);
        let sequence = record.extent.sequence;
        self.emit(Effect::WritePrimaries {
            sequence,
            request,
            all: false,
        });
    }

    pub(super) fn note_primaries(&mut self, sequence: u64, result: Result<(), RequestError>) {
        let record = self.record_mut(sequence);
        record.primary = match (record.primary, result) {
            (PrimaryWrite::InFlight(request), Ok(())) => PrimaryWrite::Done(request),
            (PrimaryWrite::InFlight(request), Err(_)) => PrimaryWrite::Failed(request),
            (PrimaryWrite::Doubted(request), _) => PrimaryWrite::Failed(request),
            (PrimaryWrite::Mending, Ok(())) => PrimaryWrite::Mended,
            _ => PrimaryWrite::None,
        };
    }

    /// Takes the oldest record, if it is over and may land.
    pub(super) fn next_over(&mut self) -> Option<Record> {
        let record = *self.records.front().filter(|record| record.is_over())?;
        // A record that is not complete is a reason to trust primary copies no longer.
        if matches!(record.result, Some(Err(_))) {
            self.fail_log();
        }
        let unsettled = matches!(record.primary, PrimaryWrite::Failed(_)) && self.trusts;
        if self.lapsing || unsettled && !self.broken || self.mends(record) {
            return None;
        }
        self.records.pop_front()
    }

    /// A record that is valid neither in the log nor in the primary copies, though they may have it: all
    /// copies get it, or they would differ from now on. False if it is not such a record.
    fn mends(&mut self, record: Record) -> bool {
        let request = match record.primary {
            PrimaryWrite::Done(request) if !self.trusts => request,
            PrimaryWrite::Failed(request) => request,
            _ => return false,
        };
        if !self.broken && record.result == Some(Ok(())) {
            return false;
        }
        let sequence = record.extent.sequence;
        // The record is over when this is, with any result.
        self.record_mut(sequence).primary = PrimaryWrite::Mending;
        self.emit(Effect::WritePrimaries {
            sequence,
            request,
            all: true,
        });
        true
    }

    /// Every older record has landed: enters a record in the map, and says how it is acknowledged.
    pub(super) fn land(&mut self, record: &Record) -> Result<(), RequestError> {
        let result = record.result.expect("it is over");
        self.broken |= result.is_err();
        // Mended records are mapped as well: an older copy may be on its way to the secondary copies.
        let deferred =
            self.trusts && matches!(record.primary, PrimaryWrite::Done(_) | PrimaryWrite::Mended);
        let acknowledged = match self.broken {
            // Recovery finds nothing behind a record that may be torn.
            true if !deferred => Err(result.err().unwrap_or(RequestError::Unavailable)),
            _ => Ok(()),
        };
        let extent = record.extent;
        if record.target != AckTarget::None && acknowledged.is_ok() {
            let kind = if deferred { Kind::Also } else { extent.kind };
            // A record that the log failed to take may have any content there.
            let at = match result {
                Ok(()) => extent.at,
                Err(_) => UNLOGGED + extent.home,
            };
            self.put_on_map(Extent { kind, at, ..extent });
        }
        if is_logged(extent.at) {
            self.space.landed(extent.at - PAGE_SECTORS);
        }
        acknowledged
    }
}
