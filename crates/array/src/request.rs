//! Requests: admission, cutting into parts, and the reply when every part is done.
//!
//! Reads of healthy cells go straight to their members. Writes, and reads that redundancy must answer, become slices
//! (`slice/gather.rs` cuts them). Two queues, each first come first served, hold what could not be started yet.

use crate::contract::{BufRef, Class, IoError, IoOp, Request, RequestError, RequestOp, Segment};
use crate::core::Core;
use crate::durability::flusher::Waiter;
use crate::layout::Place;
use crate::members::ops::Owner;
use crate::planted::Bug;
use crate::read_cache::blocks_in;
use crate::report::ArrayState;
use crate::slice::gather::Gather;
use crate::slice::suspect::Suspects;
use crate::standing::Home;
use crate::units::{Member, Nanos, SECTOR_BYTES};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

/// Which copies of a chunk a request is about, where there are several: others are neither written, nor read if those cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Copies {
    #[default]
    All,
    First,
    /// All but the first.
    Further,
    /// What these members have is not believed: a read alone is about it, of any layout.
    Without(Suspects),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) request: Request,
    pub(crate) copies: Copies,
    /// Bytes of the request that have been cut into parts.
    pub(crate) cut: u64,
    /// Parts started and not done.
    parts: u32,
    error: Option<RequestError>,
    cut_all: bool,
    /// What had changed by its admission, as the read cache counts.
    pub(crate) begun: u64,
    admitted: Nanos,
}

pub(crate) struct Requests {
    list: Vec<Option<Pending>>,
    free: Vec<u32>,
    pub(crate) reads: VecDeque<u32>,
    pub(crate) writes: VecDeque<u32>,
    /// Done, but not to be acknowledged before metadata is durable.
    settling: Vec<u32>,
    pub(crate) gather: Gather,
    /// Cut to the end in this turn.
    pub(crate) gather_done: Vec<u32>,
    /// Requests that wait until a reshape lets go of their sectors, or until a row of theirs is resynchronised, in order.
    held: Vec<u32>,
}

impl Pending {
    pub(crate) fn cut_all(&mut self) {
        self.cut_all = true;
    }
}

impl Requests {
    pub(crate) fn new(limit: u32) -> Requests {
        Requests {
            list: alloc::vec![None; limit as usize],
            free: (0..limit).rev().collect(),
            reads: VecDeque::with_capacity(limit as usize),
            writes: VecDeque::with_capacity(limit as usize),
            settling: Vec::with_capacity(limit as usize),
            gather: Gather::default(),
            gather_done: Vec::with_capacity(limit as usize),
            held: Vec::new(),
        }
    }

    /// A request waits until [`Requests::release_held`].
    pub(crate) fn hold(&mut self, id: u32) {
        self.held.push(id);
    }

    /// They go on before those that came since.
    pub(crate) fn release_held(&mut self) {
        while let Some(id) = self.held.pop() {
            match self.get(id).request.op {
                RequestOp::Read => self.reads.push_front(id),
                _ => self.writes.push_front(id),
            }
        }
    }

    /// Whether nothing is under way for a request that has some of these sectors, nor, if `writes`, for any that changes
    /// something.
    pub(crate) fn quiet_in(&self, sectors: &Range<u64>, writes: bool) -> bool {
        let concerns = |pending: &&Pending| {
            let request = &pending.request;
            let first = request.offset / SECTOR_BYTES;
            let end = (request.offset + request.bytes).div_ceil(SECTOR_BYTES);
            let there = first < sectors.end && sectors.start < end;
            request.op != RequestOp::Flush && (there || writes && request.op.changes())
        };
        let mut list = self.list.iter().flatten().filter(concerns);
        list.all(|pending| pending.parts == 0)
    }

    pub(crate) fn room(&self) -> bool {
        !self.free.is_empty()
    }

    pub(crate) fn idle(&self) -> bool {
        self.free.len() == self.list.len()
    }

    /// Whether any has parts that found no room yet.
    pub(crate) fn waiting(&self) -> bool {
        !self.reads.is_empty() || !self.writes.is_empty() || self.gather.waiting()
    }

    pub(crate) fn get(&self, id: u32) -> &Pending {
        self.list[id as usize]
            .as_ref()
            .expect("a request lives until its reply")
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> &mut Pending {
        self.list[id as usize]
            .as_mut()
            .expect("a request lives until its reply")
    }

    /// Whether a request is under way that was admitted by then.
    pub(crate) fn any_since_before(&self, moment: Nanos) -> bool {
        let mut pending = self.list.iter().flatten();
        pending.any(|pending| pending.admitted <= moment)
    }

    /// One more part of a request is under way.
    pub(crate) fn begin_part(&mut self, id: u32) {
        self.get_mut(id).parts += 1;
    }
}

impl Core {
    pub(crate) fn request(&mut self, request: Request, copies: Copies) {
        if let Err(error) = self.admit(&request) {
            self.reply(request.tag, Err(error));
            return;
        }
        if !self.ties.counted_above {
            self.note_request(&request);
        }
        let Some(id) = self.requests.free.pop() else {
            // The shell did not heed `ready`.
            self.reply(request.tag, Err(RequestError::Unavailable));
            return;
        };
        self.requests.list[id as usize] = Some(Pending {
            request,
            copies,
            cut: 0,
            parts: 0,
            error: None,
            cut_all: false,
            begun: self.cache_clock(),
            admitted: self.now,
        });
        if request.op.changes() && !self.ties.cached_above {
            self.cache_change_begins(request.offset, request.bytes);
        }
        match request.op {
            RequestOp::Flush => {
                let pending = self.requests.get_mut(id);
                pending.cut_all = true;
                pending.parts = 1;
                self.flush_for(Waiter::Request(id));
            }
            RequestOp::Read => self.requests.reads.push_back(id),
            RequestOp::Write | RequestOp::Trim | RequestOp::WriteZeroes { .. } => {
                self.requests.writes.push_back(id)
            }
        }
    }

    pub fn admit(&self, request: &Request) -> Result<(), RequestError> {
        if !matches!(
            self.state,
            ArrayState::Healthy | ArrayState::Degraded | ArrayState::Failed
        ) {
            return Err(RequestError::Unavailable);
        }
        if self.disowned() {
            return Err(RequestError::Unavailable);
        }
        let size = self.layout.size_sectors() * SECTOR_BYTES;
        let end = request.offset.saturating_add(request.bytes);
        if request.op != RequestOp::Flush && end > size {
            return Err(RequestError::OutOfRange { end, size });
        }
        let writes = request.op.changes();
        if writes && self.halted() {
            return Err(self.refusal(request.op));
        }
        if writes && self.mode.read_only {
            return Err(RequestError::ReadOnly);
        }
        if writes && self.spares_the_full() {
            return Err(RequestError::NoSpace);
        }
        if matches!(request.op, RequestOp::WriteZeroes { fast: true })
            && !self.zeroing_is_fast(request)
        {
            return Err(RequestError::NotFast);
        }
        Ok(())
    }

    /// Counts a user's request, and what it reads as heat.
    pub fn note_request(&mut self, request: &Request) {
        match request.op {
            RequestOp::Read => {
                self.note_heat(request.offset, request.bytes);
                self.counters.reads += 1;
                self.counters.read_bytes += request.bytes;
            }
            RequestOp::Write | RequestOp::WriteZeroes { .. } => {
                self.counters.writes += 1;
                self.counters.written_bytes += request.bytes;
            }
            RequestOp::Flush => self.counters.flushes += 1,
            RequestOp::Trim => self.counters.trims += 1,
        }
    }

    /// Starts as much queued work as there is room for.
    pub(crate) fn pump(&mut self) {
        while let Some(&id) = self.requests.reads.front() {
            let cut = self.cut_read(id);
            if !cut && !self.waits_for_reshape(id) && !self.waits_for_copies(id) {
                break;
            }
            self.requests.reads.pop_front();
            match cut {
                true => self.all_cut(id),
                false => self.requests.hold(id),
            }
        }
        self.pump_writes();
    }

    /// Whether a reshape has what a request wants next.
    pub(crate) fn waits_for_reshape(&self, id: u32) -> bool {
        let pending = self.requests.get(id);
        let lba = (pending.request.offset + pending.cut) / SECTOR_BYTES;
        let left = pending.cut < pending.request.bytes;
        left && self.is_held(lba, pending.request.op.changes())
    }

    /// Whether the next row of a read is being resynchronised for it.
    fn waits_for_copies(&self, id: u32) -> bool {
        let pending = self.requests.get(id);
        let left = pending.cut < pending.request.bytes;
        let row = || {
            let lba = (pending.request.offset + pending.cut) / SECTOR_BYTES;
            self.layout.place(lba).row
        };
        left && self.copies_may_differ(row(), pending.copies) && self.tasks.is_resyncing(row())
    }

    /// Whether a crash may have left the copies of a row different. Such a row is resynchronised before a read of it is answered:
    /// the value that the read shows is on every copy then, and the next flush covers all of them.
    fn copies_may_differ(&self, row: crate::Row, copies: Copies) -> bool {
        let clean = self.tasks.list.is_empty();
        if clean || copies != Copies::All || self.layout.parity() || self.layout.tolerance() == 0 {
            return false;
        }
        let writes = !self.mode.read_only && !self.tasks.waits_for_start;
        let alone = self.first_alone(row) || self.planted(Bug::CopiesShownApart);
        writes && !alone && !self.in_sync(row)
    }

    /// The whole request has been cut; it may be done already.
    pub(crate) fn all_cut(&mut self, id: u32) {
        self.requests.get_mut(id).cut_all = true;
        self.reply_if_done(id);
    }

    pub(crate) fn request_part_done(&mut self, id: u32, result: Result<(), RequestError>) {
        let pending = self.requests.get_mut(id);
        pending.parts -= 1;
        if let Err(error) = result {
            pending.error.get_or_insert(error);
        }
        self.reply_if_done(id);
    }

    fn reply_if_done(&mut self, id: u32) {
        let pending = self.requests.get(id);
        if !pending.cut_all || pending.parts > 0 {
            return;
        }
        if self.may_acknowledge(pending) {
            self.finish_request(id);
        } else {
            self.requests.settling.push(id);
        }
    }

    /// A write is acknowledged only when the failures that it lived through are on the surviving members' record.
    fn may_acknowledge(&self, pending: &Pending) -> bool {
        let writes = pending.request.op.changes();
        !writes || self.settled() && !(pending.request.fua && self.lost.dirty())
    }

    fn finish_request(&mut self, id: u32) {
        let pending = self.requests.list[id as usize]
            .take()
            .expect("a request is finished once");
        self.requests.free.push(id);
        if pending.request.op.changes() && !self.ties.cached_above {
            self.cache_change_ends(pending.request.offset, pending.request.bytes);
        }
        if !self.ties.counted_above {
            let latency = self.now.since(pending.admitted);
            self.note_latency(pending.request.op, latency);
        }
        let reads = pending.request.op == RequestOp::Read;
        let result = match pending.error {
            _ if self.halted() && !reads || self.disowned() => {
                Err(self.refusal(pending.request.op))
            }
            Some(error) => Err(error),
            None => Ok(()),
        };
        self.reply(pending.request.tag, result);
    }

    /// A flush or trim takes as long as there is to flush or trim, whatever else goes on: only reads and writes count.
    pub fn note_latency(&mut self, op: RequestOp, latency: Nanos) {
        if matches!(op, RequestOp::Read | RequestOp::Write) {
            self.latencies.note(self.now, latency);
            self.tasks.note_latency(latency);
        }
    }

    /// Metadata became durable: acknowledges what waited for it.
    pub(crate) fn requests_settle(&mut self) {
        let mut index = 0;
        while index < self.requests.settling.len() {
            let id = self.requests.settling[index];
            if self.may_acknowledge(self.requests.get(id)) {
                self.requests.settling.swap_remove(index);
                self.finish_request(id);
            } else {
                index += 1;
            }
        }
    }

    // --------------------------------------------------------------------------------------------------- reads

    /// Starts parts of a read; false if there was no room for all of it.
    fn cut_read(&mut self, id: u32) -> bool {
        loop {
            let pending = *self.requests.get(id);
            if pending.cut == pending.request.bytes {
                return true;
            }
            if self.ops.available() <= self.slices.op_reserve {
                return false;
            }
            let Some(bytes) = self.start_read_part(id, &pending) else {
                return false;
            };
            self.requests.get_mut(id).cut += bytes;
        }
    }

    /// Starts the read's next part: one chunk's worth at most, or a partial block. Returns its bytes.
    fn start_read_part(&mut self, id: u32, pending: &Pending) -> Option<u64> {
        let block = u64::from(self.superblock.logical_block);
        let offset = pending.request.offset + pending.cut;
        let left = pending.request.bytes - pending.cut;
        if self.is_reshaping() && self.waits_for_reshape(id) {
            return None;
        }
        let place = self.layout.place(offset / SECTOR_BYTES);
        if !self.is_written_at(place) {
            let chunk_left =
                (self.layout.chunk_sectors() - place.offset) * SECTOR_BYTES - offset % SECTOR_BYTES;
            let bytes = left.min(chunk_left);
            let target = pending.request.buf.part(pending.cut as u32, bytes as u32);
            self.start_unwritten_part(id, offset, bytes, target);
            return Some(bytes);
        }
        if self.copies_may_differ(place.row, pending.copies) {
            self.resync_row(place.row);
            return None;
        }
        if let Some(bytes) = self.start_cached_part(id, pending) {
            return Some(bytes);
        }
        if !offset.is_multiple_of(block) || left < block {
            let bytes = left.min(block - offset % block);
            return self.start_partial_read(id, pending, bytes).then(|| {
                self.counters.blocks_asked += 1;
                bytes
            });
        }
        let sectors =
            (self.layout.chunk_sectors() - place.offset).min(left / block * block / SECTOR_BYTES);
        let lba = offset / SECTOR_BYTES;
        let target = pending
            .request
            .buf
            .part(pending.cut as u32, (sectors * SECTOR_BYTES) as u32);
        if let Some(first) = self.lost.first_in(lba, sectors) {
            self.lose_part(id, first);
            return Some(sectors * SECTOR_BYTES);
        }
        self.start_whole_part(id, place, lba, sectors, target)
    }

    /// Whole blocks of one chunk: straight from their home, or by a slice that recovers them.
    fn start_whole_part(
        &mut self,
        id: u32,
        place: Place,
        lba: u64,
        sectors: u64,
        target: BufRef,
    ) -> Option<u64> {
        let copies = self.requests.get(id).copies;
        let home = match copies {
            Copies::Without(_) => None,
            _ => self.read_home_of(place.row, place.data, copies),
        };
        match home {
            Some((home, cell_at)) => {
                let sectors = self.uncached(lba, sectors);
                let target = target.part(0, (sectors * SECTOR_BYTES) as u32);
                let (member, at) = (home.member, home.at(cell_at) + place.offset);
                self.requests.begin_part(id);
                self.count_asked(lba, sectors);
                self.counters.blocks_fetched += blocks_in(lba, sectors);
                let owner = Owner::ReadPart {
                    request: id,
                    lba,
                    sectors,
                    target,
                };
                self.device_io(owner, member, IoOp::Read, at, sectors, Class::User, |io| {
                    io.segments.push(Segment::Buf(target));
                });
                Some(sectors * SECTOR_BYTES)
            }
            None => {
                let sectors = self.uncached(lba, sectors.min(crate::BAND_SECTORS_MAX));
                let target = target.part(0, (sectors * SECTOR_BYTES) as u32);
                let started = self.start_read_slice(id, lba, sectors, target, 0, None);
                started.then(|| {
                    self.note_demand(place);
                    self.count_asked(lba, sectors);
                    sectors * SECTOR_BYTES
                })
            }
        }
    }

    fn count_asked(&mut self, lba: u64, sectors: u64) {
        self.counters.blocks_asked += blocks_in(lba, sectors);
    }

    fn start_partial_read(&mut self, id: u32, pending: &Pending, bytes: u64) -> bool {
        let block = u64::from(self.superblock.logical_block);
        let offset = pending.request.offset + pending.cut;
        let target = pending.request.buf.part(pending.cut as u32, bytes as u32);
        let lba = offset / block * block / SECTOR_BYTES;
        self.start_read_slice(
            id,
            lba,
            block / SECTOR_BYTES,
            target,
            (offset % block) as u32,
            None,
        )
    }

    /// What was never written is zeros, but for what a log set took away with it.
    fn start_unwritten_part(&mut self, id: u32, offset: u64, bytes: u64, target: BufRef) {
        let lba = offset / SECTOR_BYTES;
        let end = (offset + bytes).div_ceil(SECTOR_BYTES);
        match self.lost.first_in(lba, end - lba) {
            Some(first) => self.lose_part(id, first),
            None => self.start_zero_part(id, target),
        }
    }

    /// A part of a read has a lost sector in it.
    fn lose_part(&mut self, id: u32, lba: u64) {
        self.requests.begin_part(id);
        let error = RequestError::Lost { lba, sectors: 1 };
        self.request_part_done(id, Err(error));
    }

    fn start_zero_part(&mut self, id: u32, target: BufRef) {
        self.requests.begin_part(id);
        let owner = Owner::ReadPart {
            request: id,
            lba: 0,
            sectors: 0,
            target,
        };
        self.copy(owner, None, target);
    }

    /// Whether the first copy of a sector is on a member that serves.
    pub fn has_first(&self, lba: u64) -> bool {
        let place = self.layout.place(lba);
        let first = self.read_home_of(place.row, place.data, Copies::First);
        first.is_some()
    }

    /// The member that reads a data cell without computing: its own, or the least busy that holds a copy. While
    /// copies may differ, always the same one.
    pub(crate) fn read_home(&self, row: crate::Row, data: u8) -> Option<(Home, u64)> {
        self.read_home_of(row, data, Copies::All)
    }

    fn read_home_of(&self, row: crate::Row, data: u8, copies: Copies) -> Option<(Home, u64)> {
        let map = self.row_map(row);
        let first = copies == Copies::First || self.first_alone(row);
        if first || map.data == map.width || self.layout.parity() {
            let cell = map.cells[data as usize];
            return self.homes(cell.slot, row).read.map(|home| (home, cell.at));
        }
        let settled = self.in_sync(row);
        let mut best: Option<(Home, u64)> = None;
        for cell in map
            .copies_of(data)
            .iter()
            .map(|cell| map.cells[cell as usize])
        {
            let Some(home) = self.homes(cell.slot, row).read else {
                continue;
            };
            let load = |home: Home| {
                let device = &self.devices[home.member.0 as usize];
                (!device.power.is_up(), device.in_flight)
            };
            if best.is_none_or(|(held, _)| settled && load(home) < load(held)) {
                best = Some((home, cell.at));
            }
        }
        best
    }

    /// A direct read ended. On an error, redundancy answers in its place.
    pub(crate) fn read_part_done(
        &mut self,
        request: u32,
        lba: u64,
        member: Member,
        sectors: u64,
        target: BufRef,
        result: Result<(), IoError>,
    ) {
        match result {
            Ok(()) => {
                self.keep_blocks(request, lba, target);
                self.request_part_done(request, Ok(()));
            }
            Err(error) => {
                if error != IoError::Media {
                    self.read_failed(member, error);
                }
                self.retry_read(
                    request,
                    lba,
                    sectors,
                    target,
                    (error == IoError::Media).then_some(member),
                );
            }
        }
    }

    /// Reads again what a member could not give, in slices. `bad`: the member whose medium erred. When several slices
    /// read it again, none of them is known to be the one that erred: each asks the member anew.
    pub(crate) fn retry_read(
        &mut self,
        request: u32,
        lba: u64,
        sectors: u64,
        target: BufRef,
        bad: Option<Member>,
    ) {
        let bad = bad.filter(|_| sectors <= crate::BAND_SECTORS_MAX);
        let mut done = 0;
        while done < sectors {
            let step = (sectors - done).min(crate::BAND_SECTORS_MAX);
            let part = target.part((done * SECTOR_BYTES) as u32, (step * SECTOR_BYTES) as u32);
            self.requests
                .gather
                .retries
                .push_back((request, lba + done, step, part, bad));
            self.requests.begin_part(request);
            done += step;
        }
        self.request_part_done(request, Ok(()));
    }
}
