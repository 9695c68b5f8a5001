//! Cuts reads into parts: straight from the member that has a cell, from the read cache, or by a slice that
//! recovers the cell.

use super::Intake;
use crate::clients::read_cache::blocks_in;
use crate::clients::{Copies, Pending};
use crate::contract::{BufRef, Class, IoOp, Segment};
use crate::layout::Place;
use crate::members::ops::Owner;
use crate::slice::read;
use crate::units::{Member, SECTOR_BYTES};

impl Intake {
    /// Starts as many queued reads as there is room for.
    pub(crate) fn pump_reads(&mut self) {
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

    // ----------------------------------------------------------------------------------------------- reads

    /// Starts parts of a read; false if there was no room for all of it.
    fn cut_read(&mut self, id: u32) -> bool {
        loop {
            let pending = *self.requests.get(id);
            if pending.cut == pending.request.bytes {
                return true;
            }
            if !self.ops.has_spare() {
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
                let started = read::start(self, id, lba, sectors, target, 0, None);
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
        read::start(
            self,
            id,
            lba,
            block / SECTOR_BYTES,
            target,
            (offset % block) as u32,
            None,
        )
    }

    /// A direct read has succeeded.
    pub(crate) fn read_part_done(&mut self, request: u32, lba: u64, target: BufRef) {
        self.keep_blocks(request, lba, target);
        self.request_part_done(request, Ok(()));
    }

    /// Reads again, in slices, what a member could not read. `bad`: the member whose medium erred. If several
    /// slices read it again, the sector that erred is not known: each asks the member again.
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
            self.gather
                .retries
                .push_back((request, lba + done, step, part, bad));
            self.requests.begin_part(request);
            done += step;
        }
        self.request_part_done(request, Ok(()));
    }
}
