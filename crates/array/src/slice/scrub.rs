//! Scrubs: do the cells of a row agree, and if not, which one is wrong?
//!
//! A check never writes. With two parities the code can name a single wrong cell; with more it is named only if the row agrees
//! with every parity once that cell is left out and made of the others; with three copies or more the majority can; with one parity or two copies it is known only that something is wrong, and a repair makes parity (or
//! the other copies) follow the data. Before a repair writes, its region counts as owed, durably: a member that leaves
//! before the flush would come back with what was repaired there.

use super::gather::Source;
use super::issue::{OUTPUTS, Term};
use super::{Extra, PARTIALS, Phase};
use crate::contract::{ComputeOp, Fact, Guilty, Verdict};
use crate::core::Core;
use crate::layout::{CellSet, RowMap};
use crate::units::CELLS_MAX;

/// What the comparisons of a band said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Verdicts {
    /// Bit `i`: comparison `i` found a difference.
    pub(crate) differ: u32,
    pub(crate) guilty: Option<Guilty>,
    pub(crate) located: bool,
    /// The syndromes of P and Q are in their buffers.
    syndromes: bool,
}

impl Verdicts {
    pub(crate) fn note(&mut self, index: u32, verdict: Verdict) {
        match verdict {
            Verdict::Differ => self.differ |= 1 << index,
            Verdict::Guilty(guilty) => (self.guilty, self.located) = (Some(guilty), true),
            Verdict::Ambiguous => self.located = true,
            Verdict::Equal | Verdict::Done | Verdict::Checksum(_) => {}
        }
    }
}

impl Core {
    pub(crate) fn step_scrub(&mut self, id: u32, repair: bool) {
        match self.slices.get(id).phase {
            Phase::Preparing => self.begin_scrub(id, repair),
            Phase::Reading => self.scrub_read(id, repair),
            Phase::Combining => self.scrub_compare(id),
            Phase::Comparing => self.scrub_judge(id, repair),
            Phase::Recovering => self.scrub_recovered(id),
            Phase::Writing => self.band_done(id),
            other => unreachable!("a scrub is never {other:?}"),
        }
    }

    /// Rows that were never written, that miss a cell, or that a resynchronisation still owes, have nothing to check.
    /// Parity is repaired to fit what a crash would find.
    fn begin_scrub(&mut self, id: u32, repair: bool) {
        let map = self.slices.get(id).map;
        let stays = !repair || self.durably_moved(map.row.0..map.row.0 + 1);
        if self.extent_in_motion(map.row) || !stays {
            return self.await_metadata(id);
        }
        let complete = self.live_cells(&map) == map.all();
        if !complete || !self.is_written(map.row) || !self.in_sync(map.row) || map.data == map.width
        {
            return self.finish_slice(id);
        }
        self.read_cells(id, map.all());
    }

    fn scrub_read(&mut self, id: u32, repair: bool) {
        let map = self.slices.get(id).map;
        if self.live_cells(&map) != map.all() {
            return self.band_done(id);
        }
        if !self.slices.get(id).bad.is_empty() {
            return self.scrub_unreadable(id, &map, repair);
        }
        if self.layout.parity() {
            self.compute_parity(id, map.parity_set());
        } else {
            self.scrub_compare(id);
        }
    }

    /// A medium error, looked at block by block, so that the other blocks are compared as ever: a check reports it, a
    /// repair recovers what redundancy gives.
    fn scrub_unreadable(&mut self, id: u32, map: &RowMap, repair: bool) {
        if self.narrow(id) {
            return;
        }
        let (bad, have) = (self.slices.get(id).bad, self.slices.get(id).have);
        if repair && bad.iter().all(|cell| map.recover(cell, have).is_some()) {
            self.recover_cells(id, bad);
        } else {
            self.report_mismatch(id, bad.first(), false);
            self.band_done(id);
        }
    }

    /// Before what was recovered is written, the row is compared once more: with redundancy left, a cell that is wrong
    /// without saying so shows, and nothing is made of it.
    fn scrub_recovered(&mut self, id: u32) {
        self.slices.get(id).verdicts = Verdicts::default();
        let map = self.slices.get(id).map;
        if self.layout.parity() {
            self.compute_parity(id, map.parity_set());
        } else {
            self.scrub_compare(id);
        }
    }

    fn judge_recovered(&mut self, id: u32, repair: bool) {
        let (bad, verdicts) = (self.slices.get(id).bad, self.slices.get(id).verdicts);
        if verdicts.differ != 0 {
            // Some cell lies, and which cannot be told, unless there is but one in a block.
            if !self.narrow(id) {
                self.report_mismatch(id, None, false);
                self.band_done(id);
            }
            return;
        }
        if !repair {
            self.report_mismatch(id, bad.first(), false);
            return self.band_done(id);
        }
        if !self.repair_announced(id) {
            return;
        }
        self.set_phase(id, Phase::Writing);
        for cell in bad.iter() {
            let content = self.slices.get(id).cell_ref(cell);
            self.note_repair(id, cell);
            self.write_cell(id, cell, Source::Buf(content), None);
        }
        self.report_mismatch(id, bad.first(), true);
        if self.slices.get(id).pending == 0 {
            self.slices.requeue(id);
        }
    }

    fn scrub_compare(&mut self, id: u32) {
        self.set_phase(id, Phase::Comparing);
        let map = self.slices.get(id).map;
        self.compare_parity(id, &map, map.parity_set());
        if !self.layout.parity() {
            self.compare_copies(id, &map);
        }
    }

    /// These parities as they were read with what was computed: each is the comparison of its number.
    pub(super) fn compare_parity(&mut self, id: u32, map: &RowMap, read: CellSet) {
        for (parity, cell) in map.parities().filter(|(_, cell)| read.contains(*cell)) {
            let slice = self.slices.get(id);
            let computed = slice.extra_ref(Extra::New(parity));
            let computed = computed.expect("computed before");
            let pair = [slice.cell_ref(cell), computed];
            self.compute_verdict(id, ComputeOp::Compare, &pair, parity);
        }
    }

    /// Each further copy against the first of its data.
    fn compare_copies(&mut self, id: u32, map: &RowMap) {
        for cell in map.data..map.width {
            if let crate::layout::Role::Copy { of } = map.cells[cell as usize].role {
                let slice = self.slices.get(id);
                let pair = [slice.cell_ref(of), slice.cell_ref(cell)];
                self.compute_verdict(id, ComputeOp::Compare, &pair, cell);
            }
        }
    }

    fn scrub_judge(&mut self, id: u32, repair: bool) {
        let verdicts = self.slices.get(id).verdicts;
        if !self.slices.get(id).bad.is_empty() {
            return self.judge_recovered(id, repair);
        }
        if verdicts.differ == 0 {
            return self.scrubbed(id);
        }
        if repair && !self.repair_announced(id) {
            return;
        }
        let map = self.slices.get(id).map;
        if !self.layout.parity() {
            return self.judge_copies(id, &map, repair);
        }
        let guilty = match blame(&map, &verdicts) {
            Blame::Unasked if !verdicts.syndromes => return self.compute_syndromes(id, &map),
            Blame::Unasked => return self.locate(id),
            // Perhaps no two of them in one block.
            Blame::Several if self.narrow(id) => return,
            Blame::Cell(cell) => Some(cell),
            Blame::Several | Blame::Untold => None,
        };
        let data = guilty.filter(|cell| map.data_set().contains(*cell));
        if let Some(cell) = data.filter(|_| repair || map.parity_set().len() > 2) {
            // Told of once it has been recovered.
            return self.leave_out(id, cell);
        }
        self.report_mismatch(id, guilty, repair);
        if repair {
            self.set_phase(id, Phase::Writing);
            let only = guilty.map_or(map.parity_set(), CellSet::only);
            self.write_parity(id, &map, only);
        } else {
            self.band_done(id)
        }
    }

    /// Makes a data cell that was read of the others.
    fn leave_out(&mut self, id: u32, cell: u8) {
        let slice = self.slices.get(id);
        slice.have = slice.have.without(cell);
        slice.bad = CellSet::only(cell);
        self.recover_cells(id, CellSet::only(cell));
    }

    /// Whether the row is owed, durably, to a member that leaves before what is repaired is flushed. If not yet, the band
    /// is looked at afresh once it is.
    fn repair_announced(&mut self, id: u32) -> bool {
        let row = self.slices.get(id).map.row;
        if !core::mem::replace(&mut self.slices.get(id).intent_held, true) {
            self.intent_acquire(row);
        }
        if self.owe_rows(row, row) {
            return true;
        }
        self.drop_buffers(id);
        let slice = self.slices.get(id);
        // What cannot be read is met again, and has been counted.
        slice.narrowed |= !slice.bad.is_empty();
        slice.begin_band(slice.band);
        self.await_metadata(id);
        false
    }

    /// All agree. What the surrogate wants of the band is handed over before the next.
    fn scrubbed(&mut self, id: u32) {
        self.set_phase(id, Phase::Writing);
        self.hand_over(id);
        if self.slices.get(id).pending == 0 {
            self.band_done(id);
        }
    }

    /// What is wrong with P, and what with Q; of more parities, with the first two.
    fn compute_syndromes(&mut self, id: u32, map: &RowMap) {
        for (parity, cell) in map.parities().take(PARTIALS.len()) {
            let mut targets = [None; OUTPUTS];
            targets[0] = Some(self.extra_buffer(id, Extra::Partial(parity)));
            let slice = self.slices.get(id);
            let computed = slice.extra_ref(Extra::New(parity));
            let terms = [
                Term::plain(slice.cell_ref(cell), 0),
                Term::plain(computed.expect("computed before"), 0),
            ];
            self.compute_terms(id, &terms, &targets);
        }
        self.slices.get(id).verdicts.syndromes = true;
    }

    /// Whose error explains both syndromes?
    fn locate(&mut self, id: u32) {
        let slice = self.slices.get(id);
        let syndromes = PARTIALS.map(|extra| slice.extra_ref(extra).expect("computed before"));
        self.compute_verdict(id, ComputeOp::Locate, &syndromes, 2);
    }

    /// The copy that most others equal is right; of two, the first.
    fn judge_copies(&mut self, id: u32, map: &RowMap, repair: bool) {
        let differ = CellSet(self.slices.get(id).verdicts.differ);
        let copies = map.copies_of(0);
        let first_is_wrong = copies.len() > 2 && differ.len() + 1 >= copies.len();
        let guilty = if first_is_wrong {
            Some(0)
        } else {
            differ.first().filter(|_| copies.len() > 2)
        };
        self.report_mismatch(id, guilty, repair);
        if !repair {
            return self.band_done(id);
        }
        self.set_phase(id, Phase::Writing);
        let (source, targets) = if first_is_wrong {
            (1, CellSet::only(0))
        } else {
            (0, differ)
        };
        let content = self.slices.get(id).cell_ref(source);
        for cell in targets.iter() {
            self.write_cell(id, cell, Source::Buf(content), None);
        }
    }

    /// Whether a row has not told of this cell (or of an unknown one) before; the first time it counts as a row that
    /// disagrees.
    fn first_of_row(&mut self, id: u32, guilty: Option<u8>) -> bool {
        let told = &mut self.slices.get(id).told;
        let silent = *told == (CellSet::EMPTY, false);
        let first = match guilty {
            Some(cell) => !told.0.contains(cell),
            None => !told.1,
        };
        match guilty {
            Some(cell) => told.0 = told.0.with(cell),
            None => told.1 = true,
        }
        if silent {
            self.tasks.mismatch();
        }
        first
    }

    /// Tells of a row, once for each cell that is to blame; the place is the first.
    fn report_mismatch(&mut self, id: u32, guilty: Option<u8>, repaired: bool) {
        if !self.first_of_row(id, guilty) {
            return;
        }
        let slice = self.slices.get(id);
        let (row, at, sectors) = (slice.map.row, slice.band, slice.band_sectors);
        let slot = guilty.map(|cell| slice.map.cells[cell as usize].slot);
        let guilty = slot.and_then(|slot| self.homes(slot, row).reader());
        self.fact(Fact::Mismatch {
            row: row.0,
            at,
            sectors,
            guilty,
            repaired,
        });
    }
}

/// What is known of who is wrong where parities differ from what was computed.
enum Blame {
    /// One parity is wrong, or any of its data.
    Untold,
    /// The two syndromes would tell.
    Unasked,
    Cell(u8),
    /// No single cell.
    Several,
}

/// A data cell enters each parity, so an error in it shows in all of them.
fn blame(map: &RowMap, verdicts: &Verdicts) -> Blame {
    let differs = |(parity, cell): (u8, u8)| (verdicts.differ & 1 << parity != 0).then_some(cell);
    let differ: CellSet = map.parities().filter_map(differs).collect();
    let parities = map.parity_set();
    match (parities.len(), differ.len()) {
        (1, _) => Blame::Untold,
        (3.., 1) => differ.first().map_or(Blame::Several, Blame::Cell),
        (3.., _) if differ != parities => Blame::Several,
        _ if !verdicts.located => Blame::Unasked,
        _ => {
            let guilty = verdicts.guilty.and_then(|guilty| guilty_cell(map, guilty));
            guilty.map_or(Blame::Several, Blame::Cell)
        }
    }
}

fn guilty_cell(map: &RowMap, guilty: Guilty) -> Option<u8> {
    let mut parities = map.parities().map(|(_, cell)| cell);
    match guilty {
        Guilty::P => parities.next(),
        Guilty::Q => parities.nth(1),
        Guilty::Data { exponent } => map.data_of_exponent(exponent),
    }
}

const _: () = assert!(CELLS_MAX <= 32, "verdicts are a bit for each cell");
