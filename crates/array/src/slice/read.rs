//! Reads that no single member can answer: recovered from the row's other cells, repaired on the way.

use super::{Kind, Need, Phase};
use crate::clients::requests::Copies;
use crate::contract::{BufRef, Fact, RequestError};
use crate::core::Core;
use crate::layout::CellSet;
use crate::slice::gather::Source;
use crate::units::{Member, SECTOR_BYTES};

impl Core {
    /// Starts a read slice for part of a request; false when there is no room. `skip`: bytes of the first block that
    /// were not asked for. `erred`: the member whose medium could not be read there.
    pub(crate) fn start_read_slice(
        &mut self,
        request: u32,
        lba: u64,
        sectors: u64,
        target: BufRef,
        skip: u32,
        erred: Option<Member>,
    ) -> bool {
        let place = self.layout.place(lba);
        let kind = Kind::Read {
            request,
            lba,
            target,
            skip,
        };
        let buffers = u32::from(self.layout.width()) + 1;
        let need = Need {
            kind,
            row: place.row,
            start: place.offset,
            sectors,
            step: sectors,
            buffers,
        };
        let Some(id) = self.admit_slice(&need) else {
            return false;
        };
        self.requests.begin_part(request);
        let copies = self.requests.get(request).copies;
        self.slices.get(id).copies = copies;
        self.counters.degraded_reads += u64::from(!matches!(copies, Copies::Without(_)));
        if let Some(member) = erred {
            let map = self.slices.get(id).map;
            let cells = map
                .cells()
                .iter()
                .position(|cell| self.homes(cell.slot, place.row).reader() == Some(member));
            if let Some(cell) = cells {
                let slice = self.slices.get(id);
                slice.bad = slice.bad.with(cell as u8);
                slice.hearsay = true;
            }
            self.read_failed(member, crate::IoError::Media);
        }
        self.count_fetched(id, lba);
        true
    }

    pub(crate) fn step_read(&mut self, id: u32) {
        match self.slices.get(id).phase {
            Phase::Preparing | Phase::Reading => self.plan_read(id),
            Phase::Recovering => self.deliver(id),
            Phase::Delivering => self.repair_read(id),
            Phase::Writing => self.band_done(id),
            other => unreachable!("a read is never {other:?}"),
        }
    }

    fn read_cell_of(&mut self, id: u32) -> u8 {
        let Kind::Read { lba, .. } = self.slices.get(id).kind else {
            unreachable!("a read slice reads")
        };
        self.layout.place(lba).data
    }

    fn plan_read(&mut self, id: u32) {
        let cell = self.read_cell_of(id);
        let slice = &self.slices.list[id as usize];
        let (map, have) = (slice.map, slice.have);
        let (lba, sectors) = (
            self.layout.lba(map.row, cell, slice.band),
            slice.band_sectors,
        );
        if let Some(first) = self.lost.first_in(lba, sectors) {
            return self.fail_read(id, first, 1);
        }
        if have.contains(cell) {
            return self.deliver(id);
        }
        let readable = self.readable(id);
        if readable.contains(cell) {
            return self.read_cells(id, CellSet::only(cell));
        }
        let trusted = !self.layout.parity() || self.in_sync(map.row);
        match map.recover(cell, readable.union(have)).filter(|_| trusted) {
            Some(recipe) if !recipe.set().within(have) => {
                self.read_cells(id, recipe.set().minus(have))
            }
            Some(_) => {
                self.recover_cells(id, CellSet::only(cell));
            }
            None => {
                if !self.narrow(id) {
                    self.fail_read(id, lba, sectors);
                }
            }
        }
    }

    pub(super) fn end_read(&mut self, id: u32, result: Result<(), RequestError>) {
        let slice = self.slices.get(id);
        let bytes = slice.sectors * SECTOR_BYTES;
        let Kind::Read {
            request,
            lba,
            target,
            ..
        } = slice.kind
        else {
            unreachable!("a read slice reads")
        };
        // Otherwise more was read than was asked for, and `target` begins somewhere within.
        let whole = u64::from(target.bytes) == bytes;
        if whole && result.is_ok() {
            self.keep_blocks(request, lba, target);
        }
        self.request_part_done(request, result);
    }

    fn fail_read(&mut self, id: u32, lba: u64, sectors: u64) {
        self.slices.get(id).error = Some(RequestError::Lost { lba, sectors });
        self.finish_slice(id);
    }

    /// Puts the band's bytes, as far as they were asked for, where the request wants them.
    fn deliver(&mut self, id: u32) {
        let cell = self.read_cell_of(id);
        let slice = &self.slices.list[id as usize];
        let Kind::Read { target, skip, .. } = slice.kind else {
            unreachable!("a read slice reads")
        };
        let before = ((slice.band - slice.start) * SECTOR_BYTES) as u32;
        let held = slice.cell_ref(cell);
        // The request's bytes begin `skip` into the slice; the band's begin `before` into it.
        let from = skip.max(before);
        let to = (skip + target.bytes).min(before + held.bytes);
        self.set_phase(id, Phase::Delivering);
        if from < to {
            self.compute_copy(
                id,
                Some(held.part(from - before, to - from)),
                target.part(from - skip, to - from),
            );
        } else {
            self.repair_read(id);
        }
    }

    /// What could not be read and was recovered is written back where it belongs; what was wrong, wherever that is.
    fn repair_read(&mut self, id: u32) {
        let cell = self.read_cell_of(id);
        let map = self.slices.get(id).map;
        let slice = self.slices.get(id);
        let wrong = match slice.copies {
            Copies::Without(suspects) if suspects.repairs => {
                let same = match map.parity_set().is_empty() {
                    true => map.copies_of(cell),
                    false => CellSet::only(cell),
                };
                suspects.cells(&map).intersection(same)
            }
            Copies::Without(_) => CellSet::EMPTY,
            _ => slice.bad.intersection(CellSet::only(cell)),
        };
        let wrong = wrong.intersection(self.live_cells(&map));
        if wrong.is_empty() || self.ties.primaries_first || self.mode.read_only {
            return self.band_done(id);
        }
        self.set_phase(id, Phase::Writing);
        let content = self.slices.get(id).cell_ref(cell);
        for wrong in wrong.iter() {
            self.note_repair(id, wrong);
            self.write_cell(id, wrong, Source::Buf(content), None);
        }
    }

    pub(crate) fn note_repair(&mut self, id: u32, cell: u8) {
        let slice = self.slices.get(id);
        let (place, row) = (slice.map.cells[cell as usize], slice.map.row);
        let (band, sectors) = (slice.band, slice.band_sectors);
        let without = matches!(slice.copies, Copies::Without(_));
        let rotten = without || slice.left_out || !slice.bad.contains(cell);
        let Some(home) = self.homes(place.slot, row).read else {
            return;
        };
        self.counters.repaired_sectors += sectors;
        let (member, at) = (home.member, home.at(place.at) + band);
        self.fact(Fact::Repaired {
            member,
            at,
            sectors,
            rotten,
        });
    }
}
