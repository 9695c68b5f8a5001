//! Scrubs: do the cells of a row agree, and if not, which one is wrong?
//!
//! A check never writes. With two parities the code can name a single wrong cell. With more parities a cell
//! is named only if the row agrees with every parity once that cell is computed from the others. With three
//! copies or more the majority can name one. With one parity or two copies it is known only that something is
//! wrong: a repair leaves such a row as it is, and a sync makes parity (or the other copies) follow the data,
//! right or not. Rows that were never written are not compared: they read as zeros. Before anything is
//! written, the superblocks record its region as owed: a member that leaves before the flush would come back
//! without the repair.

use super::issue::{OUTPUTS, Term};
use super::rows::Rows;
use super::table::{Extra, Found, PARTIALS, Phase, Scrubbed, Source, Verdicts};
use crate::contract::{ComputeOp, Cure, Guilty, ScrubMode};
use crate::layout::{CellSet, RowMap};
use crate::units::CELLS_MAX;

pub(super) fn step(rows: &mut Rows, id: u32, mode: ScrubMode) {
    match rows.slices[id].phase {
        Phase::Preparing => begin(rows, id, mode),
        Phase::Reading => all_read(rows, id, mode),
        Phase::Combining => compare(rows, id),
        Phase::Comparing => judge(rows, id, mode),
        Phase::Recovering => recovered(rows, id),
        Phase::Writing => rows.band_done(id),
        other => unreachable!("a scrub is never {other:?}"),
    }
}

/// Rows that were never written, that miss a cell, or that a resync still owes, have nothing to check.
/// Parity is repaired to fit what a crash would find.
fn begin(rows: &mut Rows, id: u32, mode: ScrubMode) {
    let map = rows.slices[id].map;
    let stays = !mode.writes() || rows.durably_moved(map.row.0..map.row.0 + 1);
    if rows.extent_in_motion(map.row) || !stays {
        return rows.slices.await_metadata(id);
    }
    let complete = rows.live_cells(&map) == map.all();
    let passed = match rows.is_written(map.row) {
        false => Some(Scrubbed::Unwritten),
        true if !complete || !rows.in_sync(map.row) => Some(Scrubbed::Passed),
        true => (map.data == map.width).then_some(Scrubbed::Passed),
    };
    if let Some(passed) = passed {
        rows.slices[id].scrubbed = passed;
        return rows.finish_slice(id);
    }
    rows.read_cells(id, map.all());
}

fn all_read(rows: &mut Rows, id: u32, mode: ScrubMode) {
    let map = rows.slices[id].map;
    if rows.live_cells(&map) != map.all() {
        rows.slices[id].scrubbed = Scrubbed::Passed;
        return rows.band_done(id);
    }
    if !rows.slices[id].bad.is_empty() {
        return unreadable(rows, id, &map, mode);
    }
    compute_or_compare(rows, id);
}

fn compute_or_compare(rows: &mut Rows, id: u32) {
    let map = rows.slices[id].map;
    match rows.layout.parity() {
        true => rows.compute_parity(id, map.parity_set()),
        false => compare(rows, id),
    }
}

/// After a medium error the band is read again block by block, so that the other blocks are compared as
/// usual. A check reports the error, a repair recovers the cell if it can.
fn unreadable(rows: &mut Rows, id: u32, map: &RowMap, mode: ScrubMode) {
    if rows.narrow(id) {
        return;
    }
    let (bad, have) = (rows.slices[id].bad, rows.slices[id].have);
    if mode.writes() && bad.iter().all(|cell| map.recover(cell, have).is_some()) {
        rows.recover_cells(id, bad);
    } else {
        found_bad(rows, id, Cure::Left);
        rows.band_done(id);
    }
}

/// Before a recovered cell is written, the row is compared once more. With redundancy left, this shows
/// whether another cell is silently wrong. Nothing is written from such a row.
fn recovered(rows: &mut Rows, id: u32) {
    rows.slices[id].verdicts = Verdicts::default();
    compute_or_compare(rows, id);
}

fn judge_recovered(rows: &mut Rows, id: u32, mode: ScrubMode) {
    let (bad, verdicts) = (rows.slices[id].bad, rows.slices[id].verdicts);
    if verdicts.differ != 0 {
        // Some cell is wrong, and the code cannot say which, unless each block has only one.
        if !rows.narrow(id) {
            found(rows, id, None, false, Cure::Left);
            rows.band_done(id);
        }
        return;
    }
    if !mode.writes() {
        found_bad(rows, id, Cure::Left);
        return rows.band_done(id);
    }
    if !repair_announced(rows, id) {
        return;
    }
    rows.slices.set_phase(id, Phase::Writing);
    for cell in bad.iter() {
        let content = rows.slices[id].cell_ref(cell);
        rows.note_repair(id, cell);
        rows.write_cell(id, cell, Source::Buf(content), None);
    }
    found_bad(rows, id, Cure::Repaired);
    rows.slices.requeue_if_idle(id);
}

fn compare(rows: &mut Rows, id: u32) {
    rows.slices.set_phase(id, Phase::Comparing);
    let map = rows.slices[id].map;
    rows.compare_parity(id, &map, map.parity_set());
    if !rows.layout.parity() {
        compare_copies(rows, id, &map);
    }
}

/// Each copy against one of them: the first, unless that has no majority.
fn compare_copies(rows: &mut Rows, id: u32, map: &RowMap) {
    let against = rows.slices[id].verdicts.against;
    for cell in map.copies_of(0).without(against).iter() {
        let slice = &mut rows.slices[id];
        let pair = [slice.cell_ref(against), slice.cell_ref(cell)];
        rows.compute_verdict(id, ComputeOp::Compare, &pair, cell);
    }
}

fn judge(rows: &mut Rows, id: u32, mode: ScrubMode) {
    let verdicts = rows.slices[id].verdicts;
    if !rows.slices[id].bad.is_empty() {
        return judge_recovered(rows, id, mode);
    }
    if verdicts.differ == 0 && verdicts.against == 0 {
        return agreed(rows, id);
    }
    if rows.tasks.looks_closely() && rows.narrow(id) {
        return;
    }
    let map = rows.slices[id].map;
    if !rows.layout.parity() {
        return judge_copies(rows, id, &map, mode);
    }
    let guilty = match blame(&map, &verdicts) {
        Blame::Unasked if !verdicts.syndromes => return compute_syndromes(rows, id, &map),
        Blame::Unasked => return locate(rows, id),
        // Perhaps no two of them in one block.
        Blame::Several if rows.narrow(id) => return,
        Blame::Cell(cell) => Some(cell),
        Blame::Several | Blame::Untold => None,
    };
    let data = guilty.filter(|cell| map.data_set().contains(*cell));
    if let Some(cell) = data.filter(|_| mode.writes() || map.parity_set().len() > 2) {
        // Reported once it has been recovered.
        return leave_out(rows, id, cell);
    }
    let cure = cure_of(mode, guilty.is_some());
    if cure != Cure::Left && !repair_announced(rows, id) {
        return;
    }
    found(rows, id, guilty, false, cure);
    if cure == Cure::Left {
        return rows.band_done(id);
    }
    rows.slices.set_phase(id, Phase::Writing);
    if let Some(cell) = guilty {
        rows.note_repair(id, cell);
    }
    let only = guilty.map_or(map.parity_set(), CellSet::only);
    rows.write_parity(id, &map, only);
}

/// Makes a data cell that was read of the others.
fn leave_out(rows: &mut Rows, id: u32, cell: u8) {
    let slice = &mut rows.slices[id];
    slice.have = slice.have.without(cell);
    slice.bad = CellSet::only(cell);
    slice.left_out = true;
    rows.recover_cells(id, CellSet::only(cell));
}

/// Whether it is on record that a member which leaves before the repair is flushed lacks this row. If not
/// yet, the band starts again once it is.
fn repair_announced(rows: &mut Rows, id: u32) -> bool {
    let row = rows.slices[id].map.row;
    if !core::mem::replace(&mut rows.slices[id].intent_held, true) {
        rows.intent_acquire(row);
    }
    if rows.owe_rows(row, row) {
        return true;
    }
    rows.drop_buffers(id);
    let slice = &mut rows.slices[id];
    // What cannot be read is met again, and is counted once.
    slice.narrowed |= !slice.bad.is_empty();
    slice.begin_band(slice.band);
    rows.slices.await_metadata(id);
    false
}

/// All agree. What the tier wants of the band is passed on before the next band.
fn agreed(rows: &mut Rows, id: u32) {
    rows.slices.set_phase(id, Phase::Writing);
    rows.offer(id);
    if rows.slices[id].pending == 0 {
        rows.band_done(id);
    }
}

/// What is wrong with P, and what with Q; of more parities, with the first two.
fn compute_syndromes(rows: &mut Rows, id: u32, map: &RowMap) {
    for (parity, cell) in map.parities().take(PARTIALS.len()) {
        let mut targets = [None; OUTPUTS];
        targets[0] = Some(rows.extra_buffer(id, Extra::Partial(parity)));
        let slice = &rows.slices[id];
        let computed = slice.extra_ref(Extra::New(parity));
        let terms = [
            Term::plain(slice.cell_ref(cell), 0),
            Term::plain(computed.expect("computed before"), 0),
        ];
        rows.compute_terms(id, &terms, &targets);
    }
    rows.slices[id].verdicts.syndromes = true;
}

/// Whose error explains both syndromes?
fn locate(rows: &mut Rows, id: u32) {
    let slice = &rows.slices[id];
    let syndromes = PARTIALS.map(|extra| slice.extra_ref(extra).expect("computed before"));
    rows.compute_verdict(id, ComputeOp::Locate, &syndromes, 2);
}

/// A content that more than half of the copies have is right. Without such a majority, the first copy is
/// copied over the others, if the command says so.
fn judge_copies(rows: &mut Rows, id: u32, map: &RowMap, mode: ScrubMode) {
    let verdicts = rows.slices[id].verdicts;
    let (copies, differ) = (map.copies_of(0), CellSet(verdicts.differ));
    let majority = 2 * differ.len() < copies.len();
    if !majority && 2 * verdicts.against + 2 < copies.len() {
        // One copy of a majority is among the first half.
        let against = verdicts.against + 1;
        rows.slices[id].verdicts = Verdicts::default();
        rows.slices[id].verdicts.against = against;
        return compare_copies(rows, id, map);
    }
    // Perhaps each block has a majority of its own.
    if !majority && rows.narrow(id) {
        return;
    }
    let cure = cure_of(mode, majority);
    if cure != Cure::Left && !repair_announced(rows, id) {
        return;
    }
    let (source, targets) = match majority {
        true => (verdicts.against, differ),
        false => (0, copies.without(0)),
    };
    match majority {
        true => differ
            .iter()
            .for_each(|one| found(rows, id, Some(one), false, cure)),
        false => found(rows, id, None, false, cure),
    }
    if cure == Cure::Left {
        return rows.band_done(id);
    }
    rows.slices.set_phase(id, Phase::Writing);
    let content = rows.slices[id].cell_ref(source);
    for cell in targets.iter() {
        if majority {
            rows.note_repair(id, cell);
        }
        rows.write_cell(id, cell, Source::Buf(content), None);
    }
}

/// Notes each cell of the band that is out.
fn found_bad(rows: &mut Rows, id: u32, cure: Cure) {
    let slice = &mut rows.slices[id];
    let (bad, unreadable) = (slice.bad, !slice.left_out);
    for cell in bad.iter() {
        found(rows, id, Some(cell), unreadable, cure);
    }
}

/// Adds a finding of the band to those of the row, which are reported when the row is done.
fn found(rows: &mut Rows, id: u32, cell: Option<u8>, unreadable: bool, cure: Cure) {
    let slice = &mut rows.slices[id];
    let (at, sectors) = (slice.band, slice.band_sectors);
    let same = |one: &&mut Found| (one.cell, one.unreadable, one.cure) == (cell, unreadable, cure);
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
    /// The two syndromes would show it.
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
