//! Scrubs: do the cells of a row agree, and if not, which one is wrong?
//!
//! A check never writes. With two parities the code can name a single wrong cell; with more it is named only if the row agrees
//! with every parity once that cell is left out and made of the others; with three copies or more the majority can. With one
//! parity or two copies it is known only that something is wrong: a repair leaves such a row alone, and a sync makes parity (or
//! the other copies) follow the data, right or not. Rows that were never written are not compared: they read as zeros. Before
//! anything is written, its region counts as owed, durably: a member that leaves before the flush would come back with what was
//! repaired there.

use super::gather::Source;
use super::issue::{OUTPUTS, Term};
use super::{Extra, PARTIALS, Phase};
use crate::contract::{ComputeOp, Cure, Guilty, ScrubMode, Verdict};
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
    /// The copy that the others are compared with.
    against: u8,
}

/// What a scrub found in a row: all sectors of a cell with the same fault and the same cure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// None: some cell of the row, and the code cannot tell which.
    pub(crate) cell: Option<u8>,
    /// The first sector, in the chunk.
    pub(crate) at: u64,
    pub(crate) sectors: u64,
    pub(crate) unreadable: bool,
    pub(crate) cure: Cure,
}

/// What became of the row of a scrub's window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scrubbed {
    Compared,
    Unwritten,
    /// Not all of it could be compared.
    Passed,
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
    pub(crate) fn step_scrub(&mut self, id: u32, mode: ScrubMode) {
        match self.slices.get(id).phase {
            Phase::Preparing => self.begin_scrub(id, mode),
            Phase::Reading => self.scrub_read(id, mode),
            Phase::Combining => self.scrub_compare(id),
            Phase::Comparing => self.scrub_judge(id, mode),
            Phase::Recovering => self.scrub_recovered(id),
            Phase::Writing => self.band_done(id),
            other => unreachable!("a scrub is never {other:?}"),
        }
    }

    /// Rows that were never written, that miss a cell, or that a resynchronisation still owes, have nothing to check.
    /// Parity is repaired to fit what a crash would find.
    fn begin_scrub(&mut self, id: u32, mode: ScrubMode) {
        let map = self.slices.get(id).map;
        let stays = !mode.writes() || self.durably_moved(map.row.0..map.row.0 + 1);
        if self.extent_in_motion(map.row) || !stays {
            return self.await_metadata(id);
        }
        let complete = self.live_cells(&map) == map.all();
        let passed = match self.is_written(map.row) {
            false => Some(Scrubbed::Unwritten),
            true if !complete || !self.in_sync(map.row) || map.data == map.width => {
                Some(Scrubbed::Passed)
            }
            true => None,
        };
        if let Some(passed) = passed {
            self.slices.get(id).scrubbed = passed;
            return self.finish_slice(id);
        }
        self.read_cells(id, map.all());
    }

    fn scrub_read(&mut self, id: u32, mode: ScrubMode) {
        let map = self.slices.get(id).map;
        if self.live_cells(&map) != map.all() {
            self.slices.get(id).scrubbed = Scrubbed::Passed;
            return self.band_done(id);
        }
        if !self.slices.get(id).bad.is_empty() {
            return self.scrub_unreadable(id, &map, mode);
        }
        if self.layout.parity() {
            self.compute_parity(id, map.parity_set());
        } else {
            self.scrub_compare(id);
        }
    }

    /// A medium error, looked at block by block, so that the other blocks are compared as ever: a check reports it, a
    /// repair recovers what redundancy gives.
    fn scrub_unreadable(&mut self, id: u32, map: &RowMap, mode: ScrubMode) {
        if self.narrow(id) {
            return;
        }
        let (bad, have) = (self.slices.get(id).bad, self.slices.get(id).have);
        if mode.writes() && bad.iter().all(|cell| map.recover(cell, have).is_some()) {
            self.recover_cells(id, bad);
        } else {
            self.found_bad(id, Cure::Left);
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

    fn judge_recovered(&mut self, id: u32, mode: ScrubMode) {
        let (bad, verdicts) = (self.slices.get(id).bad, self.slices.get(id).verdicts);
        if verdicts.differ != 0 {
            // Some cell is wrong, and the code cannot tell which, unless there is but one in a block.
            if !self.narrow(id) {
                self.found(id, None, false, Cure::Left);
                self.band_done(id);
            }
            return;
        }
        if !mode.writes() {
            self.found_bad(id, Cure::Left);
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
        self.found_bad(id, Cure::Repaired);
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

    /// Each copy against one of them: the first, unless that has no majority.
    fn compare_copies(&mut self, id: u32, map: &RowMap) {
        let against = self.slices.get(id).verdicts.against;
        for cell in map.copies_of(0).without(against).iter() {
            let slice = self.slices.get(id);
            let pair = [slice.cell_ref(against), slice.cell_ref(cell)];
            self.compute_verdict(id, ComputeOp::Compare, &pair, cell);
        }
    }

    fn scrub_judge(&mut self, id: u32, mode: ScrubMode) {
        let verdicts = self.slices.get(id).verdicts;
        if !self.slices.get(id).bad.is_empty() {
            return self.judge_recovered(id, mode);
        }
        if verdicts.differ == 0 && verdicts.against == 0 {
            return self.scrubbed(id);
        }
        if self.tasks.looks_closely() && self.narrow(id) {
            return;
        }
        let map = self.slices.get(id).map;
        if !self.layout.parity() {
            return self.judge_copies(id, &map, mode);
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
        if let Some(cell) = data.filter(|_| mode.writes() || map.parity_set().len() > 2) {
            // Told of once it has been recovered.
            return self.leave_out(id, cell);
        }
        let cure = cure_of(mode, guilty.is_some());
        if cure != Cure::Left && !self.repair_announced(id) {
            return;
        }
        self.found(id, guilty, false, cure);
        if cure == Cure::Left {
            return self.band_done(id);
        }
        self.set_phase(id, Phase::Writing);
        if let Some(cell) = guilty {
            self.note_repair(id, cell);
        }
        let only = guilty.map_or(map.parity_set(), CellSet::only);
        self.write_parity(id, &map, only);
    }

    /// Makes a data cell that was read of the others.
    fn leave_out(&mut self, id: u32, cell: u8) {
        let slice = self.slices.get(id);
        slice.have = slice.have.without(cell);
        slice.bad = CellSet::only(cell);
        slice.left_out = true;
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

    /// All agree. What the tier wants of the band is handed over before the next.
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

    /// Copies that more than half of all equal are right. Where no content has such a majority, the first copy is copied over
    /// the others, if that was asked for.
    fn judge_copies(&mut self, id: u32, map: &RowMap, mode: ScrubMode) {
        let verdicts = self.slices.get(id).verdicts;
        let (copies, differ) = (map.copies_of(0), CellSet(verdicts.differ));
        let majority = 2 * differ.len() < copies.len();
        if !majority && 2 * verdicts.against + 2 < copies.len() {
            // One copy of a majority is among the first half.
            self.slices.get(id).verdicts = Verdicts {
                against: verdicts.against + 1,
                ..Verdicts::default()
            };
            return self.compare_copies(id, map);
        }
        // Perhaps each block has a majority of its own.
        if !majority && self.narrow(id) {
            return;
        }
        let cure = cure_of(mode, majority);
        if cure != Cure::Left && !self.repair_announced(id) {
            return;
        }
        let (source, targets) = match majority {
            true => (verdicts.against, differ),
            false => (0, copies.without(0)),
        };
        match majority {
            true => differ
                .iter()
                .for_each(|cell| self.found(id, Some(cell), false, cure)),
            false => self.found(id, None, false, cure),
        }
        if cure == Cure::Left {
            return self.band_done(id);
        }
        self.set_phase(id, Phase::Writing);
        let content = self.slices.get(id).cell_ref(source);
        for cell in targets.iter() {
            if majority {
                self.note_repair(id, cell);
            }
            self.write_cell(id, cell, Source::Buf(content), None);
        }
    }

    /// Notes each cell of the band that is out.
    fn found_bad(&mut self, id: u32, cure: Cure) {
        let slice = self.slices.get(id);
        let (bad, unreadable) = (slice.bad, !slice.left_out);
        for cell in bad.iter() {
            self.found(id, Some(cell), unreadable, cure);
        }
    }

    /// Adds a finding of the band to those of the row, which are reported when the row is done.
    fn found(&mut self, id: u32, cell: Option<u8>, unreadable: bool, cure: Cure) {
        let slice = self.slices.get(id);
        let (at, sectors) = (slice.band, slice.band_sectors);
        let same =
            |one: &&mut Found| (one.cell, one.unreadable, one.cure) == (cell, unreadable, cure);
        match slice.findings.iter_mut().find(same) {
            Some(found) => found.sectors += sectors,
            None => slice.findings.push(Found {
                cell,
                at,
                sectors,
                unreadable,
                cure,
            }),
        }
    }
}

/// What is done about a row that disagrees, by whether a second witness proves which cell is wrong.
fn cure_of(mode: ScrubMode, proven: bool) -> Cure {
    match mode {
        ScrubMode::Check => Cure::Left,
        _ if proven => Cure::Repaired,
        ScrubMode::Repair => Cure::Left,
        ScrubMode::Sync => Cure::InSync,
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
