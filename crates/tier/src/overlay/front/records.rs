//! Records on their way into the log, clean copies, and the log's places that are needed no more.

use super::beside::Beside;
use super::pack::{Pack, SealCause};
use super::{
    CleanCopy, CopyTag, Effect, Overlay, Owner, Pending, Record, Retired, Teller, footprint,
    sectors_of, whole,
};
use crate::overlay::{Extent, Kind, Piece, Purpose, UNLOGGED, is_logged};
use alloc::vec::Vec;
use core::ops::Range;
use restripe_array::parts::Bug;
use restripe_array::{BufRef, PAGE_SECTORS, Request, RequestError, RequestOp, SECTOR_BYTES};

impl Record {
    fn is_over(&self) -> bool {
        let waits = matches!(
            self.beside,
            Beside::UnderWay(_) | Beside::Doubted(_) | Beside::Mending
        );
        self.result.is_some() && !waits
    }
}

impl Overlay {
    pub(super) fn pump_writes(&mut self) {
        if self.broken {
            self.seal(SealCause::Failed);
        }
        self.pump_buffer();
        while let Some(&id) = self.writes.front() {
            let Pending { request, cut, .. } = *self.pending(id);
            if cut == whole(&request) {
                self.writes.pop_front();
                self.reply_if_done(id);
            } else if self.broken && self.trusts {
                if !self.go_on_unlogged(id, &request, cut) {
                    return;
                }
            } else if self.broken {
                self.pending(id).error = Some(RequestError::Unavailable);
                self.pending(id).cut = whole(&request);
            } else if !self.begin_piece(id, &request, cut) {
                return self.win_space();
            } else if matches!(request.op, RequestOp::WriteZeroes { .. })
                && self.pending(id).cut < whole(&request)
            {
                // A write of zeros is a short request with long work: other writes go on after each of its records.
                self.writes.rotate_left(1);
            }
        }
    }

    /// Nothing goes home any more, so there will be no room: who waits for some is refused. False if nobody does.
    pub fn refuse_waiting(&mut self, error: RequestError) -> bool {
        let any = !self.writes.is_empty();
        while let Some(id) = self.writes.pop_front() {
            let pending = self.pending(id);
            pending.error.get_or_insert(error);
            pending.cut = whole(&pending.request);
            self.reply_if_done(id);
        }
        any
    }

    /// Starts the next piece of a write; false if there is no room for it.
    fn begin_piece(&mut self, id: u32, request: &Request, cut: u64) -> bool {
        match self.pack {
            Some(_) => self.pack(id),
            None => self.append(id, request, cut),
        }
    }

    /// Starts the next record of a write; false if there is no room for it.
    fn append(&mut self, id: u32, request: &Request, cut: u64) -> bool {
        let part = self.next_part(request, cut);
        let (home, sectors) = (part.offset / SECTOR_BYTES, part.bytes / SECTOR_BYTES);
        let payload = (part.op == RequestOp::Write).then_some(part.buf);
        let (sequence, teller) = (self.sequence, Teller::Request(id));
        if !self.begin_record(home, sectors as u32, Kind::Instead, teller, payload) {
            return false;
        }
        if self.trusts {
            self.go_beside(sequence, part);
        }
        let pending = self.pending(id);
        pending.cut += sectors;
        pending.parts += 1;
        true
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

    pub(super) fn record_mut(&mut self, sequence: u64) -> &mut Record {
        let first = self.records.front().expect("it is under way");
        let index = (sequence - first.extent.sequence) as usize;
        &mut self.records[index]
    }

    fn begin_record(
        &mut self,
        home: u64,
        sectors: u32,
        kind: Kind,
        teller: Teller,
        payload: Option<BufRef>,
    ) -> bool {
        if self.append_waiting.is_some() || !self.map.room_for(self.records.len() as u32 + 1) {
            return false;
        }
        let opened = self.space.opened();
        let Some(at) = self.space.take(self.footprint(sectors), Purpose::Use) else {
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
        self.records.push_back(Record {
            extent,
            teller,
            sealed: None,
            result: None,
            beside: Beside::Not,
        });
        let append = Effect::Append {
            extent,
            payload,
            durable: self.durable,
        };
        if self.space.opened() == opened {
            self.effects.push_back(append);
        } else {
            self.append_waiting = Some(append);
            self.reuse(at);
        }
        true
    }

    pub(super) fn footprint(&self, payload: u32) -> u32 {
        footprint(payload, self.limits.grain)
    }

    /// A record begins a segment: what lies there is made void first.
    pub(super) fn reuse(&mut self, at: u64) {
        let part = self.begin_part(Owner::Reuse);
        self.effects.push_back(Effect::Reuse {
            part,
            segment: self.space.segment_of(at),
            durable: self.durable,
        });
    }

    pub(super) fn reused(&mut self, result: Result<(), RequestError>) {
        if self.pack.is_some() {
            return self.segment_begun(result.is_err());
        }
        let append = self.append_waiting.take().expect("a record waits for it");
        match (result, &append) {
            (Err(error), Effect::Append { extent, .. }) => {
                self.appended(extent.sequence, Err(error));
            }
            _ => self.effects.push_back(append),
        }
    }

    /// A record was written, or could not be.
    ///
    /// # Panics
    /// If no record of this sequence is under way.
    pub fn appended(&mut self, sequence: u64, result: Result<(), RequestError>) {
        self.record_mut(sequence).result = Some(result);
        self.settle_records();
    }

    /// What is over of the records goes on, in their order.
    pub(super) fn settle_records(&mut self) {
        while let Some(record) = self
            .records
            .front()
            .filter(|record| record.is_over())
            .copied()
        {
            // That it is not all there is a reason to believe first copies no more.
            if matches!(record.result, Some(Err(_))) {
                self.fail_log();
            }
            let unsettled = matches!(record.beside, Beside::Failed(_)) && self.trusts;
            if self.lapsing || unsettled && !self.broken || self.mends(record) {
                break;
            }
            let record = self.records.pop_front().expect("just seen");
            self.landed(&record);
        }
        self.begin_flushes();
        self.win_slots();
        self.pump_writes();
        self.clean_more();
        self.begin_last();
    }

    /// Its turn has come: all older ones have landed.
    fn landed(&mut self, record: &Record) {
        let result = record.result.expect("it is over");
        self.broken |= result.is_err();
        // What all copies have is mapped as well: an older copy may be on its way to further ones.
        let beside = self.trusts && matches!(record.beside, Beside::There(_) | Beside::Mended);
        let told = match self.broken {
            // Behind a record that may be torn, recovery finds nothing.
            true if !beside => Err(result.err().unwrap_or(RequestError::Unavailable)),
            _ => Ok(()),
        };
        if record.teller != Teller::Nobody && told.is_ok() {
            let extent = record.extent;
            let kind = if beside { Kind::Also } else { extent.kind };
            // What the log failed to take it may have anything of.
            let at = match result {
                Ok(()) => extent.at,
                Err(_) => UNLOGGED + extent.home,
            };
            self.put_on_map(Extent { kind, at, ..extent });
        }
        if is_logged(record.extent.at) {
            self.space.landed(record.extent.at - PAGE_SECTORS);
        }
        self.tell(record.teller, told);
    }

    fn put_on_map(&mut self, extent: Extent) {
        let mut replaced = Vec::new();
        self.map
            .insert(extent, |piece| replaced.push(piece))
            .expect("its room was there before it was begun");
        if is_logged(extent.at) {
            self.space.mapped(&extent);
        }
        for piece in replaced {
            self.retire(piece, extent.sequence + 1);
        }
    }

    pub(super) fn tell(&mut self, teller: Teller, result: Result<(), RequestError>) {
        let id = match teller {
            Teller::Nobody => return,
            Teller::Copy(tag) => {
                self.counters.clean_copies += u64::from(result.is_ok());
                return self.effects.push_back(Effect::Copied(tag, result));
            }
            Teller::Request(id) => id,
        };
        let pending = self.pending(id);
        let last = pending.parts == 1 && pending.cut == whole(&pending.request);
        let fua = last && pending.request.fua && result.is_ok();
        if fua && !self.planted(Bug::FuaUnsealed) {
            self.flush_log(Owner::Request(id));
        }
        self.request_part_done(id, result);
    }

    // ------------------------------------------------------------------------------------------------ clean copies

    /// Sectors of home, a record's payload at most, are going to be read, to be copied into the log: none if some of
    /// them are there already, or are being written, or too many copies are being made.
    ///
    /// # Panics
    /// If they are none, or more than a record's payload.
    pub fn begin_copy(&mut self, home: u64, sectors: u32) -> Option<CopyTag> {
        assert!((1..=self.limits.record_sectors).contains(&sectors));
        let range = home..home + u64::from(sectors);
        let room = self.copies.len() < self.limits.copies as usize;
        if !room
            || self.broken
            || self.pack.is_some()
            || self.is_in_log(range.clone())
            || self.is_written(&range)
        {
            return None;
        }
        self.next_copy += 1;
        let tag = CopyTag(self.next_copy);
        self.copies.push(CleanCopy {
            tag,
            home,
            sectors,
            spoiled: false,
        });
        Some(tag)
    }

    /// The sectors have been read: they are appended, or it ends at once because somebody writes them, or for want of
    /// room. [`Effect::Copied`] tells.
    ///
    /// # Panics
    /// If it was not begun.
    pub fn append_copy(&mut self, tag: CopyTag, payload: BufRef) {
        let index = self.copies.iter().position(|copy| copy.tag == tag);
        let copy = self.copies.swap_remove(index.expect("it was begun"));
        self.counters.copies_spoiled += u64::from(copy.spoiled);
        // Users' writes that wait for room go first.
        let fits = !copy.spoiled && !self.broken && self.writes.is_empty();
        let (home, sectors) = (copy.home, copy.sectors);
        let teller = Teller::Copy(tag);
        if !fits || !self.begin_record(home, sectors, Kind::Clean, teller, Some(payload)) {
            let refused = Err(RequestError::Unavailable);
            self.effects.push_back(Effect::Copied(tag, refused));
        }
    }

    pub(super) fn spoil(&mut self, sectors: Range<u64>) {
        for copy in &mut self.copies {
            let end = copy.home + u64::from(copy.sectors);
            copy.spoiled |= copy.home < sectors.end && sectors.start < end;
        }
    }

    /// Whether a request that changes some of these sectors is under way.
    fn is_written(&self, range: &Range<u64>) -> bool {
        self.requests.iter().flatten().any(|pending| {
            let sectors = sectors_of(&pending.request);
            pending.request.op.changes() && sectors.start < range.end && range.start < sectors.end
        })
    }

    /// Copying is given up before anything was appended.
    ///
    /// # Panics
    /// If it was not begun.
    pub fn abandon_copy(&mut self, tag: CopyTag) {
        let index = self.copies.iter().position(|copy| copy.tag == tag);
        self.copies.swap_remove(index.expect("it was begun"));
    }

    /// Drops the clean copies of the oldest segment that has any, telling each piece; false if there are none.
    pub fn drop_clean(&mut self, told: impl FnMut(&Extent)) -> bool {
        match self.space.oldest_clean() {
            Some(segment) => self.drop_clean_of(segment, told),
            None => false,
        }
    }

    /// The segment in which the first clean copy of a range of home lies.
    pub fn clean_segment(&self, home: Range<u64>) -> Option<u32> {
        let clean = |piece| match piece {
            Piece::Mapped(extent) if extent.kind == Kind::Clean => Some(extent.at),
            _ => None,
        };
        let at = self.map.lookup(home).find_map(clean)?;
        Some(self.space.segment_of(at))
    }

    /// Drops the clean copies of a segment.
    pub fn drop_clean_of(&mut self, segment: u32, mut told: impl FnMut(&Extent)) -> bool {
        let log = self.space.segment_range(segment);
        let clean = |extent: &Extent| extent.kind == Kind::Clean;
        let copies: Vec<Extent> = self.map.in_log(log, 0).filter(clean).collect();
        let mut dropped = Vec::new();
        for copy in &copies {
            // In a map too full to cut an extent in two it stays.
            let home = copy.home..copy.end();
            let _ = self.map.drop_clean(home, |piece| dropped.push(piece));
        }
        let any = !dropped.is_empty();
        for piece in dropped {
            told(&piece);
            self.retire(piece, 0);
        }
        self.settle_retired();
        any
    }

    // ------------------------------------------------------------------------------------------------------- space

    /// The map let a piece go: its place is needed until all records below are durable, and who reads there has ended.
    pub(super) fn retire(&mut self, piece: Extent, until: u64) {
        if !is_logged(piece.at) {
            return;
        }
        self.retired.push_back(Retired {
            piece,
            serial: self.serial,
            until,
        });
    }

    /// Gives back places that nobody needs any more.
    pub(super) fn settle_retired(&mut self) {
        let oldest = self.reading.front().map(|(serial, _)| *serial);
        let durable = self.durable;
        let free = |retired: &&Retired| {
            retired.until <= durable && oldest.is_none_or(|oldest| oldest > retired.serial)
        };
        while let Some(retired) = self.retired.front().filter(free).copied() {
            self.retired.pop_front();
            self.space.unmapped(&retired.piece);
        }
    }

    /// Everything told before this flush of the log began is durable.
    pub(super) fn log_flushed(&mut self, told: u64) {
        self.durable = self.durable.max(told);
        self.forget_safe();
        self.settle_retired();
    }

    /// A write waits for room: what was replaced is made free.
    fn win_space(&mut self) {
        // Cleaning flushes when it has moved all: each time before would cost a record's rest.
        if self.pack.as_ref().is_some_and(Pack::waits) || self.cleaning.is_some() {
            return;
        }
        let durable = self.durable;
        let volatile = self.retired.iter().any(|retired| retired.until > durable);
        if volatile && !self.space_flush {
            self.space_flush = true;
            self.flush_log(Owner::Space);
        }
    }
}
