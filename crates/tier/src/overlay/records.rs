//! Records on their way into the log, and flushes of the log: a floor above the requests.
//!
//! A **record** is one write to the log, or a part of a large one. With **deferred mirrors** (GRAID, ERAID)
//! it is also written to the primary copies of the main set; the secondary copies follow with the destage.
//!
//! | state   | cause                                                     | next    |
//! |---------|-----------------------------------------------------------|---------|
//! | waiting | room in log and map, and no older write waits             | writing |
//! | writing | the log has it                                            | landed  |
//! | writing | the log could not take it                                 | failed  |
//! | landed  | every older record has landed: mapped, acknowledged       | -       |
//! | failed  | every older record has landed: the log is broken          | -       |
//!
//! Sequences of records have no gap. A record is acknowledged only when every older one is.
//!
//! As long as the primary copies are trusted, a record is acknowledged when log and primary copies have it,
//! and is read from the primary copies. When they are no longer trusted, and after every start, only the
//! log's copy is valid. `deferred_mirror.rs` of the tier decides when they are trusted.

use super::effect::{CopyTag, Effect, PartTag, Site};
use super::limits::SealCause;
use super::requests::{Owner, Requests, whole};
use super::{Extent, Kind, Purpose, UNLOGGED, is_logged};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use restripe_array::{BufRef, PAGE_SECTORS, Request, RequestError, RequestOp, SECTOR_BYTES};

/// What waits for a record to land.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AckTarget {
    /// Nothing: its writes were acknowledged when they were packed.
    None,
    Request(u32),
    Copy(CopyTag),
}

/// How far the write of a record to the primary copies has come (GRAID, ERAID).
#[derive(Clone, Copy, Debug)]
pub(super) enum PrimaryWrite {
    /// It does not go there.
    None,
    InFlight(Request),
    Done(Request),
    /// Not all of it is there, or that is not known.
    Failed(Request),
    /// In flight, and its result will not be valid.
    Doubted(Request),
    /// All copies are being written.
    Mending,
    Mended,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) extent: Extent,
    pub(super) target: AckTarget,
    /// Of a packed one: nothing more comes into it, and why.
    pub(super) sealed: Option<SealCause>,
    /// Whether the log has it.
    pub(super) result: Option<Result<(), RequestError>>,
    pub(super) primary: PrimaryWrite,
}

impl Record {
    pub(super) fn new(extent: Extent, target: AckTarget) -> Record {
        Record {
            extent,
            target,
            sealed: None,
            result: None,
            primary: PrimaryWrite::None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        let waits = matches!(
            self.primary,
            PrimaryWrite::InFlight(_) | PrimaryWrite::Doubted(_) | PrimaryWrite::Mending
        );
        self.result.is_some() && !waits
    }
}

pub struct Records {
    below: Requests,
    /// The oldest first; their sequences have no gap.
    pub(super) records: VecDeque<Record>,
    /// The first record of a segment, until the log's anchor makes its old records obsolete.
    append_waiting: Option<Effect>,
    /// Flushes of the log that wait until records below have landed.
    pub(super) flushes: VecDeque<(u64, PartTag)>,
    /// Primary copies are no longer trusted, or the log is not, and that is not yet recorded.
    lapsing: bool,
    /// Flushes of a log that failed, until that is recorded.
    late_flushes: Vec<PartTag>,
}

floor!(Records over Requests { records, append_waiting, flushes, lapsing, late_flushes });

impl Records {
    /// Every record below has been acknowledged, and is mapped as far as it is valid.
    pub fn acknowledged(&self) -> u64 {
        let oldest = self.records.front();
        oldest.map_or(self.sequence, |record| record.extent.sequence)
    }

    /// Whether anything in the log was acknowledged: a destage would free something.
    pub(crate) fn has_to_destage(&self) -> bool {
        let below = self.acknowledged();
        let mut extents = self.map.extents_from(0);
        extents.any(|extent| extent.sequence < below)
    }

    /// Whether the main set has everything, and nothing is on its way into the log.
    pub fn holds_nothing_instead(&self) -> bool {
        self.extents_instead() == 0 && self.records.is_empty()
    }

    pub(super) fn record_mut(&mut self, sequence: u64) -> &mut Record {
        let first = self.records.front().expect("it is in flight");
        let index = (sequence - first.extent.sequence) as usize;
        &mut self.records[index]
    }

    pub(super) fn is_in_records(&self, sectors: &Range<u64>) -> bool {
        let meets = |record: &Record| record.extent.within(sectors.clone()).is_some();
        self.records.iter().any(meets)
    }

    pub(super) fn append_waits(&self) -> bool {
        self.append_waiting.is_some()
    }

    /// The next part of a write that one record takes.
    pub(super) fn next_part(&self, request: &Request, cut: u64) -> Request {
        let sectors = (whole(request) - cut).min(u64::from(self.limits.record_sectors));
        let (offset, bytes) = (cut * SECTOR_BYTES, sectors * SECTOR_BYTES);
        let buf = match request.op {
            RequestOp::Write => request.buf.part(offset as u32, bytes as u32),
            _ => request.buf,
        };
        Request {
            offset: request.offset + offset,
            bytes,
            buf,
            ..*request
        }
    }

    /// Adds a record for a part of a request.
    pub(super) fn push_record(&mut self, record: Record) {
        if let AckTarget::Request(id) = record.target {
            let pending = self.pending(id);
            pending.cut += u64::from(record.extent.sectors);
            pending.parts += 1;
        }
        self.records.push_back(record);
    }

    /// Starts the next record of a write; false if there is no room for it.
    pub(super) fn append(&mut self, id: u32, request: &Request, cut: u64) -> bool {
        let part = self.next_part(request, cut);
        let sectors = part.sectors();
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

    pub(super) fn begin_record(
        &mut self,
        home: u64,
        sectors: u32,
        kind: Kind,
        target: AckTarget,
        payload: Option<BufRef>,
    ) -> bool {
        if self.append_waiting.is_some() || !self.map.room_for(self.records.len() as u32 + 1) {
            return false;
        }
        let opened = self.space.opened();
        let footprint = self.footprint(sectors);
        let Some(at) = self.space.take(footprint, Purpose::Use) else {
            return false;
        };
        let extent = Extent {
            home,
            sectors,
            at: at + PAGE_SECTORS,
            sequence: self.sequence,
            kind,
        };
        self.sequence += 1;
        self.counters.records += 1;
        self.push_record(Record::new(extent, target));
        let append = Effect::Append {
            extent,
            payload,
            durable: self.durable,
        };
        if self.space.opened() == opened {
            self.emit(append);
        } else {
            self.append_waiting = Some(append);
            self.reuse(at);
        }
        true
    }

    /// A record begins a segment: the segment's old records are made obsolete first.
    pub(super) fn reuse(&mut self, at: u64) {
        let part = self.begin_part(Owner::Reuse);
        let (segment, durable) = (self.space.segment_of(at), self.durable);
        self.emit(Effect::Reuse {
            part,
            segment,
            durable,
        });
    }

    /// The segment of the record that waits may be written, or not: then the sequence of the record.
    pub(super) fn append_reused(
        &mut self,
        result: Result<(), RequestError>,
    ) -> Result<(), (u64, RequestError)> {
        let append = self.append_waiting.take().expect("a record waits for it");
        match (result, &append) {
            (Err(error), Effect::Append { extent, .. }) => Err((extent.sequence, error)),
            _ => {
                self.emit(append);
                Ok(())
            }
        }
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

    // ---------------------------------------------------------------------------------------------- flushes

    /// Begins the flushes whose records have landed.
    pub(super) fn begin_flushes(&mut self) {
        let acknowledged = self.acknowledged();
        while let Some((_, part)) = self
            .flushes
            .pop_front_if(|(until, _)| *until <= acknowledged)
        {
            self.flush_acknowledged_records(part);
        }
    }

    /// Makes durable in the log what was acknowledged.
    pub(super) fn flush_acknowledged_records(&mut self, part: PartTag) {
        let (acknowledged, site) = (self.acknowledged(), Site::Log);
        self.part_mut(part).covers = Some(acknowledged);
        self.emit(Effect::Flush { part, site });
    }

    // -------------------------------------------------------------------------------------- deferred mirrors

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
        for record in &mut self.records {
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

    /// The log has failed: only the primary copies get what is written over its extents, until that is
    /// destaged. False if the map has no room.
    pub(super) fn append_unlogged(&mut self, id: u32, request: &Request, cut: u64) -> bool {
        if !self.map.room_for(self.records.len() as u32 + 1) {
            return false;
        }
        let part = self.next_part(request, cut);
        let sectors = part.sectors();
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
}
