//! Makes part of a row consistent after a crash, from the log record of the write that was cut short.
//!
//! Which cases there are, and why these are all, is in `boot/recover.rs`.

use super::issue::{OUTPUTS, Term};
use super::{Extra, PARTIALS, Phase};
use crate::contract::{BufRef, ComputeOp, IoOp, Segment};
use crate::core::Core;
use crate::layout::{CellSet, RowMap};
use crate::members::ops::{Owner, SliceOp};
use crate::task::table::Cut;
use crate::units::{Row, SECTOR_BYTES, Slot};
use restripe_format::meta::superblock::MemberRole;

impl Core {
    pub(crate) fn step_replay(&mut self, id: u32, record: u32) {
        let unrecorded = !self.slices.get(id).zeroed.is_empty() && self.lost.dirty();
        match self.slices.get(id).phase {
            // The start has been refused: what it found out so far counts no more.
            Phase::Preparing | Phase::Reading if !self.below.starts() => self.band_done(id),
            Phase::Preparing if unrecorded => self.await_metadata(id),
            Phase::Preparing | Phase::Reading => self.plan_replay(id, record),
            Phase::Checksumming => self.judge_replay(id, record),
            Phase::Combining => self.write_reset(id, None),
            Phase::Writing => self.band_done(id),
            other => unreachable!("a replay is never {other:?}"),
        }
    }

    fn cut(&self, record: u32) -> Option<Cut> {
        let replay = self.tasks.replay(record);
        replay.cuts.get(replay.current).copied()
    }

    /// The newest that is on every log it was meant for, from the one in question on.
    fn complete_cut(&mut self, record: u32) -> Option<Cut> {
        let replay = &mut self.tasks.replays[record as usize];
        let left = replay.cuts.get(replay.current..)?;
        replay.current += left.iter().position(|cut| cut.complete)?;
        replay.cuts.get(replay.current).copied()
    }

    fn plan_replay(&mut self, id: u32, record: u32) {
        let map = self.slices.get(id).map;
        let here = self.readable(id);
        let data = map.data_set().minus(self.slices.get(id).zeroed);
        if data.within(here) {
            return self.reset_band(id, &map);
        }
        // Without a record that proves durable nothing was written in place, and the row is as it was.
        let Some(cut) = self.complete_cut(record) else {
            return self.band_done(id);
        };
        let modified = CellSet(cut.modified).intersection(data);
        let lost = modified.minus(here);
        // A medium that errs here and there has the rest of its cell, which parity was not made for.
        if !lost.intersection(self.live_cells(&map)).is_empty() && self.narrow(id) {
            return;
        }
        let parities = map.parity_set().intersection(here);
        let told = CellSet(cut.modified).len() == 1 && !parities.is_empty();
        if !lost.is_empty() && !told {
            // Lost only if the record proves whole: else nothing was in flight.
            if !self.partials_verified(id, &cut) {
                self.load_replay(id, &cut, CellSet::EMPTY);
            } else if self.ties.is_part {
                self.zero_replayed(id, lost);
                self.plan_replay(id, record);
            } else if !self.narrow(id) {
                self.lose_replayed(id, lost);
            }
            return;
        }
        let telling = if lost.is_empty() {
            CellSet::EMPTY
        } else {
            parities
        };
        self.load_replay(id, &cut, modified.minus(lost).union(telling));
    }

    /// These cells cannot be told, and need not be: a log bears a torn record at its end, and all told of those behind it is
    /// that they were not. As zeros they are no record.
    fn zero_replayed(&mut self, id: u32, cells: CellSet) {
        let slice = self.slices.get(id);
        slice.zeroed = slice.zeroed.union(cells);
    }

    /// These cells cannot be told. If the member of one could be brought, or nothing may be lost, the start is refused.
    fn lose_replayed(&mut self, id: u32, cells: CellSet) {
        let slice = self.slices.get(id);
        let (map, band, sectors) = (slice.map, slice.band, slice.band_sectors);
        let absent = |cell: &u8| self.merely_absent(map.cells[*cell as usize].slot, map.row);
        let asks = self.may_lose_nothing() || cells.iter().any(|cell| absent(&cell));
        if self.mode.accept_loss || !asks {
            return self.declare_lost(id, cells);
        }
        let addressed = |cell: &u8| self.layout.is_addressed(map.row, *cell);
        let cells = cells.intersection(map.data_set()).iter().filter(addressed);
        for cell in cells.collect::<CellSet>().iter() {
            self.would_lose(self.layout.lba(map.row, cell, band), sectors);
        }
        self.band_done(id);
    }

    /// Whether the slot's member is current, and only not here.
    fn merely_absent(&self, slot: Slot, row: Row) -> bool {
        let partition = self.layout.partition_of(row);
        let placement = self.superblock.placement_of(slot.0, partition);
        let entry = placement.and_then(|placement| placement.member);
        let line = entry.map(|entry| &self.superblock.members[entry as usize]);
        let current = line.is_some_and(|line| line.role == MemberRole::Active);
        current && self.standing_at(slot, row).home.is_none()
    }

    /// Whether the partial parities of this record are in their buffers and were found whole.
    fn partials_verified(&self, id: u32, cut: &Cut) -> bool {
        let slice = &self.slices.list[id as usize];
        cut.payloads.iter().all(Option::is_none) || slice.verdicts.located
    }

    /// Reads the cells wanted and the partial parities, as far as they are not held yet.
    fn load_replay(&mut self, id: u32, cut: &Cut, cells: CellSet) {
        let have = self.slices.get(id).have;
        let verified = self.partials_verified(id, cut);
        if cells.within(have) && verified {
            return self.combine_replay(id, cut);
        }
        let loaded = PARTIALS
            .iter()
            .any(|&extra| self.slices.get(id).extra_ref(extra).is_some());
        if cells.within(have) && loaded {
            return self.verify_replay(id, cut);
        }
        self.read_cells(id, cells.minus(have));
        if !loaded {
            self.read_partials(id, cut);
        }
        if self.slices.get(id).pending == 0 {
            self.slices.requeue(id);
        }
    }

    fn read_partials(&mut self, id: u32, cut: &Cut) {
        for (parity, payload) in cut.payloads.iter().enumerate() {
            let Some(payload) = *payload else { continue };
            let target = self.whole_partial(id, PARTIALS[parity], cut);
            let owner = Owner::Slice {
                slice: id,
                what: SliceOp::Log {
                    parity: parity as u8,
                },
            };
            self.slices.get(id).pending += 1;
            let class = crate::Class::Task;
            self.device_io(
                owner,
                payload.member,
                IoOp::Read,
                payload.at,
                cut.sectors,
                class,
                |io| {
                    io.segments.push(Segment::Buf(target));
                },
            );
        }
    }

    /// The buffer of a partial parity of the whole record, of which the band is a part.
    fn whole_partial(&mut self, id: u32, extra: Extra, cut: &Cut) -> BufRef {
        let buf = self.extra_buffer(id, extra).buf;
        BufRef::new(buf, 0, (cut.sectors * SECTOR_BYTES) as u32)
    }

    fn verify_replay(&mut self, id: u32, cut: &Cut) {
        self.set_phase(id, Phase::Checksumming);
        for (parity, payload) in cut.payloads.iter().enumerate() {
            if payload.is_some() {
                let whole = self.whole_partial(id, PARTIALS[parity], cut);
                self.compute_verdict(id, ComputeOp::Checksum, &[whole], parity as u8);
            }
        }
    }

    /// A record whose partial parity is not whole was never durable: an older one decides.
    fn judge_replay(&mut self, id: u32, record: u32) {
        let Some(cut) = self.cut(record) else {
            return self.band_done(id);
        };
        let slice = self.slices.get(id);
        let unreadable = slice.verdicts.differ != 0;
        let torn = (0..2).any(|parity| {
            cut.payloads[parity].is_some_and(|payload| payload.checksum != slice.checksums[parity])
        });
        if unreadable {
            // Nobody knows what the others were: what is missing is lost.
            let map = slice.map;
            let absent = map.data_set().minus(slice.zeroed).minus(self.readable(id));
            return self.lose_replayed(id, absent);
        }
        if torn {
            self.tasks.replays[record as usize].current += 1;
            self.drop_buffers(id);
        } else {
            slice.verdicts.located = true;
        }
        // With another record, or without a member that failed meanwhile, other cells may be wanted.
        self.set_phase(id, Phase::Preparing);
        self.slices.requeue(id);
    }

    /// P and Q from the partial parities and the cells as they are; a single missing cell takes its value from P.
    fn combine_replay(&mut self, id: u32, cut: &Cut) {
        let map = self.slices.get(id).map;
        let live = self.live_cells(&map);
        let slice = &self.slices.list[id as usize];
        let modified = CellSet(cut.modified).minus(slice.zeroed);
        let offset = ((slice.band - cut.start) * SECTOR_BYTES) as u32;
        let partial = PARTIALS.map(|extra| {
            slice
                .extra_ref(extra)
                .map(|part| BufRef::new(part.buf, offset, part.bytes))
        });
        let lost = modified.minus(live.minus(slice.bad));
        let mut terms = [Term::NONE; crate::CELLS_MAX + 2];
        let count = match lost.first() {
            Some(cell) => match self.terms_of_lost(id, &map, cell, partial, &mut terms) {
                Some(count) => count,
                // One parity is left, and it says what the cell is.
                None => return self.band_done(id),
            },
            None => self.terms_of_present(id, &map, modified, partial, &mut terms),
        };
        let mut targets = [None; OUTPUTS];
        for (parity, cell) in map.parities() {
            let told_by = parity == 0 && !lost.is_empty();
            if live.contains(cell) && !told_by {
                targets[usize::from(parity)] = Some(self.extra_buffer(id, Extra::New(parity)));
            }
        }
        self.set_phase(id, Phase::Combining);
        self.compute_terms(id, &terms[..count], &targets);
    }

    fn terms_of_present(
        &self,
        id: u32,
        map: &RowMap,
        modified: CellSet,
        partial: [Option<BufRef>; 2],
        terms: &mut [Term],
    ) -> usize {
        let slice = &self.slices.list[id as usize];
        let mut count = 0;
        for cell in modified.iter() {
            terms[count] = Term::of_data(map, cell, slice.cell_ref(cell));
            count += 1;
        }
        for (parity, source) in partial.into_iter().enumerate() {
            if let Some(source) = source {
                terms[count] = Term::plain(source, parity);
                count += 1;
            }
        }
        count
    }

    /// The cell is P less partial P, whatever part of the write P has seen; Q is made to agree with that.
    fn terms_of_lost(
        &self,
        id: u32,
        map: &RowMap,
        cell: u8,
        partial: [Option<BufRef>; 2],
        terms: &mut [Term],
    ) -> Option<usize> {
        let slice = &self.slices.list[id as usize];
        let (p, q) = (map.p()?, map.q()?);
        if !slice.have.contains(p) || !slice.have.contains(q) {
            return None;
        }
        let factor = map.coefficient(q, cell);
        terms[0] = Term::times(factor, slice.cell_ref(p), 1);
        terms[1] = Term::times(factor, partial[0]?, 1);
        terms[2] = Term::plain(partial[1]?, 1);
        Some(3)
    }
}
