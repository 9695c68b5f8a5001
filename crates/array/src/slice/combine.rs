//! What a write makes of its data: sub-block parts merged into blocks, and the parity of a pass. Parity is
//! computed by strips whose sources are contiguous.

use super::issue::{OUTPUTS, Outputs, PARTIALS_AT, Term};
use super::rows::Rows;
use super::table::{Extra, Fragment, PARTIALS, Phase, Slice, Source};
use crate::contract::{BufRef, Bug, ComputeOp, RequestError};
use crate::layout::{CellSet, RowMap};
use crate::units::SECTOR_BYTES;

/// The parts of a band's new data that are contiguous in every source.
struct Strip {
    start: u64,
    sectors: u64,
}

/// Puts less than a block of new bytes over the old block.
pub(super) fn merge(rows: &mut Rows, id: u32, skip: u32, bytes: u32) -> Result<(), RequestError> {
    let slice = &rows.slices[id];
    let (map, fragment, have) = (slice.map, slice.fragments[0], slice.have);
    let (cell, sectors) = (fragment.cell, fragment.sectors);
    let lba = rows.layout.lba(map.row, cell, fragment.start);
    let lost = RequestError::Lost { lba, sectors };
    if rows.lost.first_in(lba, sectors).is_some() {
        return Err(lost);
    }
    if have.contains(cell) {
        merge_held(rows, id, cell, fragment, skip, bytes);
        return Ok(());
    }
    match rows.fetch(id, cell) {
        true => Ok(()),
        false => Err(lost),
    }
}

fn merge_held(rows: &mut Rows, id: u32, cell: u8, fragment: Fragment, skip: u32, bytes: u32) {
    let bounce = rows.extra_buffer(id, Extra::Bounce);
    let old = rows.slices[id].cell_ref(cell);
    let end = skip + bytes;
    if skip > 0 {
        rows.compute_copy(id, Some(old.part(0, skip)), bounce.part(0, skip));
    }
    let new = match fragment.source {
        Source::Buf(buf) => Some(buf),
        Source::Zero => None,
    };
    rows.compute_copy(id, new, bounce.part(skip, bytes));
    if end < old.bytes {
        let rest = old.part(end, old.bytes - end);
        rows.compute_copy(id, Some(rest), bounce.part(end, rest.bytes));
    }
    rows.slices[id].fragments[0].source = Source::Buf(bounce);
    rows.slices.set_phase(id, Phase::Merging);
}

// ----------------------------------------------------------------------------------------------- combining

/// New parity, and, for the log, the part of it that this pass does not change.
pub(super) fn combine(rows: &mut Rows, id: u32, modify: bool) {
    let map = rows.slices[id].map;
    let live = rows.live_cells(&map);
    let logged = rows.logged();
    let slice = &rows.slices[id];
    let others = map.data_set().minus(slice.pass).minus(slice.zeroed);
    let partial = logged && (modify || !others.is_empty());
    let mut targets = [None; OUTPUTS];
    for (parity, _) in map.parities().filter(|(_, cell)| live.contains(*cell)) {
        let index = usize::from(parity);
        targets[index] = Some(rows.extra_buffer(id, Extra::New(parity)));
        if partial {
            let old = rows.extra_buffer(id, Extra::Partial(parity));
            targets[PARTIALS_AT + index] = Some(old);
        }
    }
    rows.slices.set_phase(id, Phase::Combining);
    let slice = &rows.slices[id];
    let (mut at, end) = (slice.band, slice.band + slice.band_sectors);
    while at < end {
        let strip = rows.slices[id].strip(at, end);
        at += strip.sectors;
        combine_strip(rows, id, &map, &strip, modify, others, &targets);
    }
}

fn combine_strip(
    rows: &mut Rows,
    id: u32,
    map: &RowMap,
    strip: &Strip,
    modify: bool,
    others: CellSet,
    targets: &Outputs<Option<BufRef>>,
) {
    let slice = &rows.slices[id];
    let offset = ((strip.start - slice.band) * SECTOR_BYTES) as u32;
    let bytes = (strip.sectors * SECTOR_BYTES) as u32;
    let wrong = rows.planted(Bug::WrongQCoefficient);
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
    rows.compute_terms(id, &terms[..count], &parts);
}

pub(super) fn checksum_partials(rows: &mut Rows, id: u32) -> bool {
    let mut any = false;
    for (index, extra) in PARTIALS.into_iter().enumerate() {
        if let Some(partial) = rows.slices[id].extra_ref(extra) {
            rows.compute_verdict(id, ComputeOp::Checksum, &[partial], index as u8);
            any = true;
        }
    }
    if any {
        rows.slices.set_phase(id, Phase::Checksumming);
    }
    any
}

impl Slice {
    /// The longest strip from `at` on in which every cell of the pass has one contiguous source.
    fn strip(&self, at: u64, end: u64) -> Strip {
        let beyond = |one: &&Fragment| self.pass.contains(one.cell) && one.end() > at;
        let edge = |one: &Fragment| match one.start > at {
            true => one.start,
            false => one.end(),
        };
        let ends = self.fragments.iter().filter(beyond).map(edge);
        let end = ends.min().unwrap_or(end).min(end);
        Strip {
            start: at,
            sectors: end - at,
        }
    }

    fn new_data(&self, cell: u8, strip: &Strip) -> Source {
        let holds = |fragment: &&Fragment| {
            fragment.cell == cell && fragment.start <= strip.start && strip.start < fragment.end()
        };
        let fragment = self.fragments.iter().find(holds);
        let Fragment { source, start, .. } =
            fragment.expect("a pass cell has data for the whole band");
        source.part(strip.start - start, strip.sectors)
    }
}
