//! The machine: the top floor of the overlay, between clients and the main set. Writes go into the log, reads
//! are assembled from log and main set, and data in the log is destaged. It decides places, and moves no
//! bytes.
//!
//! The floors, from the lowest: [`Log`](super::log::Log), requests, records, slots of NVRAM, packing, rounds
//! of NVRAM, clean copies, destage, cleaning. Each owns its state and calls down only. After each call the
//! machine checks what the floor has ended, and lets waiting work continue.
//!
//! Rules, and why a crash at any moment is tolerated:
//! 1. Records are acknowledged in the order of their sequences. So the acknowledged ones are a prefix, and
//!    recovery may stop at the first torn record.
//! 2. A write that overlaps a mapped extent of any kind, or a record in flight, always goes to the log. So
//!    the main set never has data newer than the log's.
//! 3. A piece leaves the map permanently only when it is obsolete: otherwise a write could go to the main
//!    set, and a crash would bring the older piece back over it.
//! 4. A piece that a newer record replaced keeps its place in the log until that record is durable, and until
//!    the reads that began before have ended.
//! 5. Before records are made obsolete the log is flushed: the records that replaced some of them must be
//!    durable.
//! 6. A clean copy has the sectors as they were when no write of them was in flight: a write that begins
//!    between the read and the record spoils the copy.
//! 7. A start ignores all clean copies: a copy may be of bytes that the main set had not made durable, and
//!    that a crash undid there.
//! 8. A record that is also written to the primary copies is acknowledged when both have it (GRAID). As long
//!    as the primary copies are trusted ([`Overlay::trust`]), its sectors are read there, and are destaged
//!    from there to the secondary copies. Afterwards, and after every start, only the log's copy is valid.
//! 9. A segment is rewritten only when its records are durably obsolete: a torn record over an old one would
//!    otherwise look like a record that never was acknowledged, and end recovery ([`super::format`]).
//! 10. Cleaning moves live data as a write of the same bytes would: a record of a higher sequence has them,
//!     and in the map the new place replaces the old one, if that is still mapped. Old records are made
//!     obsolete when the log was flushed after the last of the moved data was acknowledged.

use super::clean::{Cleaner, Oldest};
use super::clean_copies::CleanCopies;
use super::destage::Destaging;
use super::effect::{CopyTag, Effect, PackTag, PartTag, Site};
use super::limits::{FoundInLog, OverlayLimits, SealCause};
use super::log::Log;
use super::nvram::rounds::NvramRounds;
use super::nvram::slots::NvramSlots;
use super::pack::{Packer, Source};
use super::records::{AckTarget, Records};
use super::requests::{Owner, Part, Pending, Requests, whole};
use super::{Kind, LogShape, Piece, Refusal};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use restripe_array::{BufRef, Request, RequestError, RequestOp, SECTOR_BYTES};

pub struct Overlay {
    below: Cleaner,
    /// Writes that found no room, the oldest first.
    writes: VecDeque<u32>,
    /// Reads that found no room, the oldest first.
    reads: VecDeque<u32>,
    /// The log is being flushed to make room for a write.
    space_flush: bool,
}

floor!(Overlay over Cleaner);

impl Overlay {
    /// An overlay of a log with these records, which are durable.
    ///
    /// # Errors
    /// If more extents were found than the map holds.
    ///
    /// # Panics
    /// If a record of the longest payload does not fit a segment, or a shape or segment is invalid.
    pub fn new(
        limits: OverlayLimits,
        shape: LogShape,
        found: &FoundInLog,
    ) -> Result<Overlay, Refusal> {
        let requests = Requests::new(Log::new(limits, shape, found)?);
        let packer = NvramRounds::new(Packer::new(NvramSlots::new(Records::new(requests))));
        let destaging = Destaging::new(CleanCopies::new(packer));
        Ok(Overlay {
            below: Cleaner::new(destaging),
            writes: VecDeque::with_capacity(limits.requests as usize),
            reads: VecDeque::with_capacity(limits.requests as usize),
            space_flush: false,
        })
    }

    // ---------------------------------------------------------------------------------------------- queries

    /// Whether writes wait for room that only a destage can make, or a cleaning that has yet to begin.
    pub fn is_starved(&self) -> bool {
        let waits = self.waits_for_memory() || self.append_waits() || self.has_retired();
        !self.writes.is_empty() && !waits && !self.is_cleaning()
    }

    /// Whether nothing at all is in flight.
    pub(crate) fn is_quiet(&self) -> bool {
        let parts = self.has_parts() || self.append_waits();
        let works = self.runs_destage() || self.has_copies() || !self.records.is_empty();
        let works = works || self.is_cleaning() || self.memory_works();
        self.is_idle() && !parts && !works && !self.has_effects()
    }

    /// Whether the main set has all data, and no write is being written into the log or waits for it.
    pub(crate) fn is_drained(&self) -> bool {
        self.holds_nothing_instead() && self.writes.is_empty()
    }

    /// Whether nothing is in the log, not even clean copies, and nothing is on its way there or being
    /// destaged. Reads of the log may be in flight.
    pub fn is_empty(&self) -> bool {
        let copied = self.map.total(Kind::Clean).extents > 0 || self.has_copies();
        let works = self.is_destaging() || self.is_cleaning() || self.append_waits();
        self.is_drained() && !copied && !self.memory_works() && !works
    }

    // --------------------------------------------------------------------------------------------- requests

    /// A client's request, in whole sectors. `redirect`: into the log, if it writes. A request that overlaps
    /// the log goes there in any case.
    pub fn request(&mut self, request: Request, redirect: bool) {
        let Some(id) = self.accept(request) else {
            return;
        };
        match request.op {
            RequestOp::Flush => self.flush_both(id),
            RequestOp::Read => {
                self.reads.push_back(id);
                self.pump_reads();
            }
            _ => self.change(id, redirect),
        }
    }

    fn change(&mut self, id: u32, redirect: bool) {
        let request = self.pending(id).request;
        self.spoil(request.sectors());
        let met = self.is_in_log(request.sectors());
        match request.op {
            // A trim may do nothing.
            RequestOp::Trim if met || redirect => {
                self.pending(id).cut = whole(&request);
                self.reply_if_done(id);
            }
            RequestOp::WriteZeroes { fast: true } if met || redirect => {
                self.give_up(id, RequestError::NotFast);
            }
            RequestOp::Write | RequestOp::WriteZeroes { .. } if met && self.is_closing() => {
                self.hold_up(id);
            }
            RequestOp::Write | RequestOp::WriteZeroes { .. }
                if met || redirect && self.takes_writes() =>
            {
                self.counters.redirected_writes += 1;
                self.writes.push_back(id);
                self.pump_writes();
            }
            _ => self.pass(id, request),
        }
    }

    fn pass(&mut self, id: u32, request: Request) {
        self.pending(id).cut = whole(&request);
        let part = self.begin_part(Owner::Request(id));
        self.emit(Effect::Pass { part, request });
    }

    fn flush_both(&mut self, id: u32) {
        self.pending(id).cut = 0;
        let part = self.begin_part(Owner::Request(id));
        let site = Site::Home;
        self.emit(Effect::Flush { part, site });
        self.flush_acknowledged(id);
    }

    /// Makes the acknowledged writes durable, for a client.
    fn flush_acknowledged(&mut self, id: u32) {
        self.flush_for(id);
        self.settle_refused();
        self.acknowledge_flushes();
    }

    /// Acknowledges flushes that NVRAM has made durable.
    fn acknowledge_flushes(&mut self) {
        for part in self.take_durable_flushes() {
            self.part_done(part, Ok(()));
        }
    }

    /// The log has no room for now: clients' flushes that wait for records, and writes that wait for the last
    /// destage, are refused. Records stay in flight. Returns false if there are none.
    pub(crate) fn refuse_clients(&mut self, error: RequestError) -> bool {
        let waiting = core::mem::take(&mut self.flushes);
        let (users, others) = waiting
            .into_iter()
            .partition(|(_, part)| self.is_of_client(*part));
        self.flushes = others;
        let mut parts: Vec<PartTag> = users.into_iter().map(|(_, part): (u64, _)| part).collect();
        parts.extend(self.take_unanswered_flushes());
        let held_up = self.take_held_up();
        let any = !parts.is_empty() || !held_up.is_empty();
        for tag in parts {
            if let Owner::Request(id) = self.end_part(tag).owner {
                self.request_part_done(id, Err(error));
            }
        }
        for id in held_up {
            self.give_up(id, error);
        }
        any
    }

    /// Nothing is destaged any more: writes that wait for room are refused. Returns false if there are none.
    pub(crate) fn refuse_waiting(&mut self, error: RequestError) -> bool {
        let any = !self.writes.is_empty();
        while let Some(id) = self.writes.pop_front() {
            self.give_up(id, error);
        }
        any
    }

    // ------------------------------------------------------------------------------------------------ reads

    fn pump_reads(&mut self) {
        while let Some(&id) = self.reads.front() {
            if !self.cut_read(id) {
                return;
            }
            self.reads.pop_front();
            self.reply_if_done(id);
        }
    }

    /// Starts the rest of a read, piece by piece. Returns false if there was no room for all of it.
    fn cut_read(&mut self, id: u32) -> bool {
        loop {
            let pending = self.pending(id);
            let (request, cut, asked) = (pending.request, pending.cut, pending.asked);
            let sectors = request.sectors();
            if cut == whole(&request) {
                self.counters.reads_of_log += u64::from(asked[Site::Log as usize]);
                self.counters.reads_of_both += u64::from(asked == [true; 2]);
                return true;
            }
            if !self.may_read() {
                return false;
            }
            let rest = sectors.start + cut..sectors.end;
            let home = rest.start;
            let piece = self.map.lookup(rest).next().expect("a range has pieces");
            let (copy, count) = match piece {
                Piece::Mapped(extent) => {
                    let copy = (self.kind_now(&extent), extent.at);
                    (Some(copy), u64::from(extent.sectors))
                }
                Piece::Hole { sectors, .. } => (None, sectors),
            };
            let at_home = copy.is_none_or(|(kind, _)| kind == Kind::Also);
            self.pending(id).asked[usize::from(!at_home)] = true;
            let serial = self.begin_reading();
            let part = self.begin_part(Owner::Reading {
                request: id,
                serial,
            });
            let bytes = (count * SECTOR_BYTES) as u32;
            let buf = request.buf.part((cut * SECTOR_BYTES) as u32, bytes);
            self.pending(id).cut += count;
            self.emit(Effect::Read {
                part,
                home,
                copy,
                buf,
            });
        }
    }

    // ----------------------------------------------------------------------------------------------- writes

    fn pump_writes(&mut self) {
        if self.is_broken() {
            self.seal(SealCause::Failed);
        }
        self.pump_nvram();
        while let Some(&id) = self.writes.front() {
            let Pending { request, cut, .. } = *self.pending(id);
            if cut == whole(&request) {
                self.writes.pop_front();
                self.reply_if_done(id);
            } else if self.is_primary_only() {
                if !self.append_unlogged(id, &request, cut) {
                    return;
                }
            } else if self.is_broken() {
                self.pending(id).error = Some(RequestError::Unavailable);
                self.pending(id).cut = whole(&request);
            } else if !self.begin_piece(id, &request, cut) {
                return self.free_space();
            } else if matches!(request.op, RequestOp::WriteZeroes { .. })
                && self.pending(id).cut < whole(&request)
            {
                // A write of zeros is long work: other writes continue after each of its records.
                self.writes.rotate_left(1);
            }
        }
    }

    /// Starts the next piece of a write; false if there is no room for it.
    fn begin_piece(&mut self, id: u32, request: &Request, cut: u64) -> bool {
        match self.pack {
            Some(_) => self.pack(id),
            None => self.append(id, request, cut),
        }
    }

    /// A write waits for room: places that were replaced are freed.
    fn free_space(&mut self) {
        // Cleaning flushes when it has moved all: each flush before would cost the rest of a record.
        if self.waits_for_memory() || self.is_cleaning() {
            return;
        }
        if self.retires_with_flush() && !self.space_flush {
            self.space_flush = true;
            self.flush_log(Owner::Space, SealCause::Flush);
        }
    }

    /// A record was written, or could not be.
    ///
    /// # Panics
    /// If no record of this sequence is in flight.
    pub fn appended(&mut self, sequence: u64, result: Result<(), RequestError>) {
        self.record_mut(sequence).result = Some(result);
        self.settle_records();
    }

    /// A write of a record's data to the primary copies has ended.
    ///
    /// # Panics
    /// If no record of this sequence is in flight.
    pub fn primaries_written(&mut self, sequence: u64, result: Result<(), RequestError>) {
        self.note_primaries(sequence, result);
        self.settle_records();
    }

    /// Records that are complete land, in their order.
    fn settle_records(&mut self) {
        while let Some(record) = self.next_over() {
            let result = self.land(&record);
            match record.target {
                AckTarget::None => {}
                AckTarget::Copy(tag) => self.copied_clean(tag, result),
                AckTarget::Request(id) => self.acknowledge(id, result),
            }
        }
        self.begin_flushes();
        self.free_slots();
        self.pump_writes();
        self.clean_more();
        self.begin_last();
    }

    /// Records that were refused since the log failed land.
    fn settle_refused(&mut self) {
        if self.take_refused() {
            self.settle_records();
        }
    }

    /// Part of a write is in a record that has landed, or in memory.
    fn acknowledge(&mut self, id: u32, result: Result<(), RequestError>) {
        let pending = self.pending(id);
        let last = pending.parts == 1 && pending.cut == whole(&pending.request);
        let fua = last && pending.request.fua && result.is_ok();
        if fua && !self.planted(restripe_array::parts::Bug::FuaUnsealed) {
            self.flush_acknowledged(id);
        }
        self.request_part_done(id, result);
    }

    /// All records in memory go into the log now.
    pub fn seal(&mut self, cause: SealCause) {
        self.seal_records(cause);
        self.settle_refused();
    }

    /// A copy into a record has ended.
    ///
    /// # Panics
    /// If it is not in flight.
    pub fn packed(&mut self, tag: PackTag) {
        self.copy_ended(tag);
        while let Some(source) = self.next_copied() {
            match source {
                Source::Request(id) => self.acknowledge(id, Ok(())),
                Source::Move(serial) => self.moved(serial),
            }
        }
        self.send_records();
        self.settle_refused();
        self.go_on();
    }

    /// The sectors of a clean copy have been read: they are appended, or the copy ends at once because they
    /// are being written, or for want of room. [`Effect::Copied`] reports it.
    ///
    /// # Panics
    /// If it was not begun.
    pub fn append_copy(&mut self, tag: CopyTag, payload: BufRef) {
        // Clients' writes that wait for room go first.
        let room = self.writes.is_empty();
        self.append_read(tag, payload, room);
    }

    /// The segment of a waiting record may be rewritten, or the log has failed.
    fn reused(&mut self, result: Result<(), RequestError>) {
        if self.pack.is_some() {
            self.segment_begun(result.is_err());
            self.settle_refused();
        } else if let Err((sequence, error)) = self.append_reused(result) {
            self.appended(sequence, Err(error));
        }
    }

    // ------------------------------------------------------------------------------------------------ parts

    /// A part of the work has ended.
    ///
    /// # Panics
    /// If it is not in flight.
    pub fn part_done(&mut self, tag: PartTag, result: Result<(), RequestError>) {
        if self.part_mut(tag).covers.is_some() && result.is_err() && self.trusts() {
            self.fail_log();
            if self.is_lapsing() {
                return self.delay_flush(tag);
            }
        }
        let part = self.end_part(tag);
        let result = match part.covers {
            Some(covers) => self.log_flush_ended(&part, covers, result),
            None => result,
        };
        match part.owner {
            Owner::Request(id) => self.request_part_done(id, result),
            Owner::Reading { request, serial } => {
                self.end_reading(serial);
                self.request_part_done(request, result);
            }
            Owner::Space => self.space_flush = false,
            Owner::Nvram => {
                if self.round_flushed(result) {
                    self.acknowledge_flushes();
                    self.pump_nvram();
                }
            }
            Owner::Slots => self.slots_flushed(),
            Owner::NvramEnd => {
                self.nvram_sealed(result);
                self.settle_refused();
            }
            Owner::Copy { serial, stripe } => self.copied(serial, stripe, result),
            Owner::Fetch { serial } => self.fetched(tag, serial),
            Owner::MainFlush | Owner::LogFlush => self.destage_flushed(result),
            Owner::Obsolete if result.is_ok() => self.voided(),
            Owner::Obsolete => self.end_destage(false),
            Owner::Reuse => self.reused(result),
            Owner::Move { serial } => self.end_reading(serial),
            Owner::CleanFlush => {
                let over = self.clean_flushed(result);
                self.cleaning_went_on(over);
            }
            Owner::CleanObsolete => {
                let over = self.clean_voided(result);
                self.cleaning_went_on(over);
            }
        }
        self.settle_destage();
        self.go_on();
    }

    /// Ends a flush of the log for its owner.
    fn log_flush_ended(
        &mut self,
        part: &Part,
        covers: u64,
        result: Result<(), RequestError>,
    ) -> Result<(), RequestError> {
        let result = match result {
            // Some acknowledged writes may be in memory only.
            Ok(()) if self.broken && self.pack.is_some() => Err(RequestError::Unavailable),
            result => result,
        };
        match result {
            // No acknowledged write is in the log only: its failure costs no data.
            Err(_) if !self.needs_log() => {
                self.broken = true;
                Ok(())
            }
            Ok(()) => {
                self.log_flushed(covers);
                Ok(())
            }
            // The log may have room again: the write that filled it was not given up.
            Err(RequestError::NoSpace)
                if self.pack.is_some() && matches!(part.owner, Owner::Request(_)) =>
            {
                Err(RequestError::NoSpace)
            }
            // Data in the log may be lost, and a client that flushes again at once would do so without end.
            Err(error) => {
                self.broken = true;
                Err(error)
            }
        }
    }

    /// Lets all waiting work continue that may.
    fn go_on(&mut self) {
        self.pump_reads();
        self.pump_writes();
        self.clean_more();
        self.begin_last();
    }

    // ------------------------------------------------------------------------------------------------ NVRAM

    fn pump_nvram(&mut self) {
        self.advance_round();
        self.settle_refused();
        self.acknowledge_flushes();
    }

    /// A version was written to NVRAM, or could not be.
    ///
    /// # Panics
    /// If none is in flight.
    pub fn nvram_written(&mut self, result: Result<(), RequestError>) {
        self.version_written(result);
        self.go_on();
    }

    /// It is recorded that NVRAM is not valid.
    pub fn nvram_disabled(&mut self) {
        self.end_nvram();
        self.settle_refused();
        self.pump_writes();
        self.begin_last();
    }

    // --------------------------------------------------------------------------------- log, deferred mirror

    /// The log cannot be written any more: nothing waits for room in it.
    pub fn break_log(&mut self) {
        self.fail_log();
        self.pump_writes();
        self.clean_more();
        self.begin_last();
    }

    /// With `trusts`, data that goes into the log is also written to the primary copies from now on, and they
    /// are trusted to have it. Otherwise that ends, and no record is acknowledged before [`Overlay::lapsed`].
    /// Trust starts only when nothing is left from the time without it (`holds_nothing_instead`).
    pub fn trust(&mut self, trusts: bool) {
        self.set_trust(trusts);
        if !trusts {
            self.cut_short();
            self.settle_destage();
        }
    }

    /// The end of the trust in the primary copies, or in the log, is recorded.
    pub fn lapsed(&mut self) {
        if self.end_lapse() {
            self.settle_records();
            for part in self.take_late_flushes() {
                self.part_done(part, Err(RequestError::Unavailable));
            }
        }
    }

    /// A primary copy was lost, and may soon be replaced: records that have not landed go to all copies.
    pub fn doubt_records(&mut self) {
        self.doubt();
        self.settle_records();
    }

    // ---------------------------------------------------------------------------------------------- destage

    /// Begins to destage the records below this sequence that have landed; nothing if a destage runs already.
    pub fn destage(&mut self, below: u64) {
        if self.may_destage() {
            self.stop_cleaning();
            let below = below.min(self.acknowledged());
            self.destage_below(below);
            self.settle_destage();
        }
    }

    /// Begins the last destage: from now on writes that overlap the log wait.
    pub fn destage_for_good(&mut self) {
        if self.may_destage() {
            self.stop_cleaning();
            self.close();
            self.begin_last();
        }
    }

    fn begin_last(&mut self) {
        if self.is_closing() {
            self.seal(SealCause::Destage);
        }
        self.below.begin_last();
        self.settle_destage();
    }

    /// Nothing more is destaged: work in flight ends. A destage can start again.
    pub fn rest(&mut self) {
        self.stop_cleaning();
        if !self.cut_short() {
            self.end_destage(false);
        }
        self.settle_destage();
    }

    /// If a destage has ended, writes that waited for it continue.
    fn settle_destage(&mut self) {
        if let Some((whole, released)) = self.take_ended() {
            self.note_destage(whole);
            for id in released {
                self.change(id, false);
            }
        }
    }

    // --------------------------------------------------------------------------------------------- cleaning

    /// Begins to move live data of the oldest segments; nothing if a cleaning or a destage runs already.
    pub fn clean(&mut self, oldest: Oldest) {
        self.begin_cleaning(&oldest);
        self.clean_more();
    }

    /// Nothing more is moved: work in flight ends.
    pub fn stop_cleaning(&mut self) {
        if self.give_up_cleaning() {
            self.clean_more();
        }
    }

    /// A read of data that is to be moved has ended.
    ///
    /// # Panics
    /// If it is not in flight.
    pub fn moved_in(&mut self, part: PartTag, result: Result<BufRef, RequestError>) {
        self.window_read(part, result);
        self.part_done(part, result.map(|_| ()));
    }

    fn clean_more(&mut self) {
        let over = self.below.clean_more();
        self.cleaning_went_on(over);
    }

    /// If a cleaning has ended, writes that waited for it continue.
    fn cleaning_went_on(&mut self, over: bool) {
        if over {
            self.pump_writes();
        }
    }
}
