//! Records on their way into the log, and flushes of the log: a floor above the requests.
//!
//! A **record** is one write to the log, or a part of a large one.
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

use super::effect::{CopyTag, Effect, PartTag, Site};
use super::limits::SealCause;
use super::requests::{Owner, Requests, whole};
use super::{Extent, Kind, Purpose};
use alloc::collections::VecDeque;
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
    /// The first record of a segment, until the log's anchor says that the segment's old records are
    /// obsolete.
    append_waiting: Option<Effect>,
    /// Flushes of the log that wait until records below have landed.
    pub(super) flushes: VecDeque<(u64, PartTag)>,
}

floor!(Records over Requests { records, append_waiting, flushes });

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
}
