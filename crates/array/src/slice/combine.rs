//! What a write makes of its data: sub-block parts merged into blocks, and the parity of a pass, by strips whose
//! sources are contiguous.

use super::gather::{Fragment, Source};
use super::issue::{OUTPUTS, Outputs, PARTIALS_AT, Term};
use super::{Extra, PARTIALS, Phase, Slice};
use crate::contract::{BufRef, ComputeOp, RequestError};
use crate::core::Core;
use crate::layout::{CellSet, RowMap};
use crate::planted::Bug;
use crate::units::SECTOR_BYTES;

/// The parts of a band's new data that are contiguous in every source.
struct Strip {
    start: u64,
    sectors: u64,
}

impl Core {
    /// Puts less than a block of new bytes over the old block.
    pub(super) fn merge(&mut self, id: u32, skip: u32, bytes: u32) {
        let slice = &self.slices.list[id as usize];
        let (map, fragment) = (slice.map, slice.fragments[0]);
        let (cell, have) = (fragment.cell, slice.have);
        let lba = self.layout.lba(map.row, cell, fragment.start);
        if self.lost.first_in(lba, fragment.sectors).is_some() {
            return self.fail_write(
                id,
                RequestError::Lost {
                    lba,
                    sectors: fragment.sectors,
                },
            );
        }
        if have.contains(cell) {
            return self.merge_held(id, cell, fragment, skip, bytes);
        }
        let readable = self.readable(id);
        if readable.contains(cell) {
            return self.read_cells(id, CellSet::only(cell));
        }
        let recipe = if self.in_sync(map.row) || !self.layout.parity() {
            map.recover(cell, readable.union(have))
        } else {
            None
        };
        match recipe {
            None => self.fail_write(
                id,
                RequestError::Lost {
                    lba,
                    sectors: fragment.sectors,
                },
            ),
            Some(recipe) if !recipe.set().within(have) => {
                self.read_cells(id, recipe.set().minus(have))
            }
            Some(_) => {
                self.recover_cells(id, CellSet::only(cell));
            }
        }
    }

    fn merge_held(&mut self, id: u32, cell: u8, fragment: Fragment, skip: u32, bytes: u32) {
        let bounce = self.extra_buffer(id, Extra::Bounce);
        let old = self.slices.get(id).cell_ref(cell);
        let end = skip + bytes;
        if skip > 0 {
            self.compute_copy(id, Some(old.part(0, skip)), bounce.part(0, skip));
        }
        let new = match fragment.source {
            Source::Buf(buf) => Some(buf),
            Source::Zero => None,
        };
        self.compute_copy(id, new, bounce.part(skip, bytes));
        if end < old.bytes {
            self.compute_copy(
                id,
                Some(old.part(end, old.bytes - end)),
                bounce.part(end, old.bytes - end),
            );
        }
        self.slices.get(id).fragments[0].source = Source::Buf(bounce);
        self.set_phase(id, Phase::Merging);
    }

    // ------------------------------------------------------------------------------------------------ combining

    /// New parity, and, for the log, the part of it that this pass does not change.
    pub(super) fn combine(&mut self, id: u32, modify: bool) {
        let map = self.slices.get(id).map;
        let live = self.live_cells(&map);
        let logged = self.logged();
        let slice = &self.slices.list[id as usize];
        let others = map.data_set().minus(slice.pass).minus(slice.zeroed);
        let partial = logged && (modify || !others.is_empty());
        let mut targets = [None; OUTPUTS];
        for (parity, _) in map.parities().filter(|(_, cell)| live.contains(*cell)) {
            let index = usize::from(parity);
            targets[index] = Some(self.extra_buffer(id, Extra::New(parity)));
            if partial {
                let old = self.extra_buffer(id, Extra::Partial(parity));
                targets[PARTIALS_AT + index] = Some(old);
            }
        }
        self.set_phase(id, Phase::Combining);
        let (band, end) = {
            let slice = self.slices.get(id);
            (slice.band, slice.band + slice.band_sectors)
        };
        let mut at = band;
        while at < end {
            let strip = self.slices.list[id as usize].strip(at, end);
            at += strip.sectors;
            self.combine_strip(id, &map, &strip, modify, others, &targets);
        }
    }

    fn combine_strip(
        &mut self,
        id: u32,
        map: &RowMap,
        strip: &Strip,
        modify: bool,
        others: CellSet,
        targets: &Outputs<Option<BufRef>>,
    ) {
        let slice = &self.slices.list[id as usize];
        let offset = ((strip.start - slice.band) * SECTOR_BYTES) as u32;
        let bytes = (strip.sectors * SECTOR_BYTES) as u32;
        let wrong = self.planted(Bug::WrongQCoefficient);
        let of_data = |cell: u8, source: BufRef| {
            let mut term = Term::of_data(map, cell, source);
            if let (true, 0, Some((_, q))) = (wrong && map.data > 1, cell, map.parities().nth(1)) {
                term.coefficients[1] = map.coefficient(q, 1);
            }
            term
        };
        let mut terms = [Term::NONE; 2 * crate::CELLS_MAX];
        let mut count = 0;
        let mut push = |term: Term| {
            terms[count] = term;
            count += 1;
        };
        let old_data = if modify { slice.pass } else { others };
        for cell in old_data.iter() {
            push(of_data(cell, slice.cell_ref(cell).part(offset, bytes)).in_partials());
        }
        if modify {
            for (parity, cell) in map.parities().filter(|(_, at)| slice.have.contains(*at)) {
                let old = slice.cell_ref(cell).part(offset, bytes);
                push(Term::plain(old, parity.into()).in_partials());
            }
        }
        for cell in slice.pass.iter() {
            if let Source::Buf(buf) = slice.new_data(cell, strip) {
                push(of_data(cell, buf));
            }
        }
        let mut parts = *targets;
        for target in parts.iter_mut().flatten() {
            *target = target.part(offset, bytes);
        }
        self.compute_terms(id, &terms[..count], &parts);
    }

    pub(super) fn checksum_partials(&mut self, id: u32) {
        let mut any = false;
        for (index, extra) in PARTIALS.into_iter().enumerate() {
            if let Some(partial) = self.slices.get(id).extra_ref(extra) {
                self.compute_verdict(id, ComputeOp::Checksum, &[partial], index as u8);
                any = true;
            }
        }
        if any {
            self.set_phase(id, Phase::Checksumming);
        } else {
            self.log_pass(id);
        }
    }
}

impl Slice {
    /// The longest strip from `at` on in which every cell of the pass has one contiguous source.
    fn strip(&self, at: u64, end: u64) -> Strip {
        let ends = self
            .fragments
            .iter()
            .filter(|fragment| self.pass.contains(fragment.cell) && fragment.end() > at);
        let end = ends
            .map(|fragment| {
                if fragment.start > at {
                    fragment.start
                } else {
                    fragment.end()
                }
            })
            .min()
            .unwrap_or(end)
            .min(end);
        Strip {
            start: at,
            sectors: end - at,
        }
    }

    fn new_data(&self, cell: u8, strip: &Strip) -> Source {
        let holds = |fragment: &&Fragment| {
            fragment.cell == cell && fragment.start <= strip.start && strip.start < fragment.end()
        };
        let fragment = self
            .fragments
            .iter()
            .find(holds)
            .expect("a pass cell has data for the whole band");
        fragment
            .source
            .part(strip.start - fragment.start, strip.sectors)
    }
}
