//! Cuts reads into parts: straight from the member that has a cell, from the read cache, or by a slice that
//! recovers the cell.

use super::Intake;
use crate::clients::read_cache::blocks_in;
use crate::clients::{Copies, Pending};
use crate::contract::{Class, IoOp, Segment};
use crate::layout::Place;
use crate::members::ops::{Owner, ReadPart};
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
        let (offset, left) = pending.uncut();
        let row = || self.layout.place(offset / SECTOR_BYTES).row;
        left > 0 && self.copies_may_differ(row(), pending.copies) && self.tasks.is_resyncing(row())
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
        let (offset, left) = pending.uncut();
        if self.is_reshaping() && self.waits_for_reshape(id) {
            return None;
        }
        let place = self.layout.place(offset / SECTOR_BYTES);
        if !self.is_written_at(place) {
            let chunk_left =
                (self.layout.chunk_sectors() - place.offset) * SECTOR_BYTES - offset % SECTOR_BYTES;
            let bytes = left.min(chunk_left);
            self.start_unwritten_part(id, offset, bytes, pending.buffer(bytes));
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
            let part = ReadPart {
                request: id,
                lba: offset / block * block / SECTOR_BYTES,
                sectors: block / SECTOR_BYTES,
                target: pending.buffer(bytes),
            };
            let started = read::start(self, part, (offset % block) as u32, None);
            self.counters.blocks_asked += u64::from(started);
            return started.then_some(bytes);
        }
        let sectors =
            (self.layout.chunk_sectors() - place.offset).min(left / block * block / SECTOR_BYTES);
        let lba = offset / SECTOR_BYTES;
        if let Some(first) = self.lost.first_in(lba, sectors) {
            self.lose_part(id, first);
            return Some(sectors * SECTOR_BYTES);
        }
        let target = pending.buffer(sectors * SECTOR_BYTES);
        let part = ReadPart {
            request: id,
            lba,
            sectors,
            target,
        };
        self.start_whole_part(place, part)
    }

    /// Whole blocks of one chunk: straight from their home, or by a slice that recovers them.
    fn start_whole_part(&mut self, place: Place, part: ReadPart) -> Option<u64> {
        let copies = self.requests.get(part.request).copies;
        let home = match copies {
            Copies::Without(_) => None,
            _ => self.read_home_of(place.row, place.data, copies),
        };
        let most = home.map_or(crate::BAND_SECTORS_MAX, |_| u64::MAX);
        let part = part.cut(0, self.uncached(part.lba, part.sectors.min(most)));
        let blocks = blocks_in(part.lba, part.sectors);
        match home {
            Some((home, cell_at)) => {
                self.requests.begin_part(part.request);
                self.counters.blocks_fetched += blocks;
                let (owner, class) = (Owner::ReadPart(part), Class::User);
                let (member, at) = (home.member, home.at(cell_at) + place.offset);
                self.device_io(owner, member, IoOp::Read, at, part.sectors, class, |io| {
                    io.segments.push(Segment::Buf(part.target));
                });
            }
            None if read::start(self, part, 0, None) => self.note_demand(place),
            None => return None,
        }
        self.counters.blocks_asked += blocks;
        Some(part.sectors * SECTOR_BYTES)
    }

    /// A direct read has succeeded.
    pub(crate) fn read_part_done(&mut self, part: ReadPart) {
        self.keep_blocks(part.request, part.lba, part.target);
        self.request_part_done(part.request, Ok(()));
    }

    /// Reads again, in slices, what a member could not read. `bad`: the member whose medium erred. If several
    /// slices read it again, the sector that erred is not known: each asks the member again.
    pub(crate) fn retry_read(&mut self, part: ReadPart, bad: Option<Member>) {
        let bad = bad.filter(|_| part.sectors <= crate::BAND_SECTORS_MAX);
        let mut done = 0;
        while done < part.sectors {
            let sectors = (part.sectors - done).min(crate::BAND_SECTORS_MAX);
            self.gather
                .retries
                .push_back((part.cut(done, sectors), bad));
            self.requests.begin_part(part.request);
            done += sectors;
        }
        self.request_part_done(part.request, Ok(()));
    }
}
