//! Reads that no single member can answer: recovered from the row's other cells, repaired on the way.

use super::rows::{Need, Rows};
use super::table::{Kind, Phase, Source};
use crate::clients::Copies;
use crate::clients::read_cache::blocks_in;
use crate::contract::{BufRef, RequestError};
use crate::layout::CellSet;
use crate::members::ops::ReadPart;
use crate::units::{Member, SECTOR_BYTES};

/// Starts a read slice for part of a request; false when there is no room. `skip`: bytes of the first block
/// that the request does not want. `erred`: the member whose medium could not be read there.
pub(crate) fn start(rows: &mut Rows, part: ReadPart, skip: u32, erred: Option<Member>) -> bool {
    let place = rows.layout.place(part.lba);
    let need = Need {
        kind: Kind::Read(part, skip),
        row: place.row,
        start: place.offset,
        sectors: part.sectors,
        step: part.sectors,
        buffers: u32::from(rows.layout.width()) + 1,
    };
    let Some(id) = rows.admit_slice(&need) else {
        return false;
    };
    rows.requests.begin_part(part.request);
    let copies = rows.requests.get(part.request).copies;
    rows.slices[id].copies = copies;
    rows.counters.degraded_reads += u64::from(!matches!(copies, Copies::Without(_)));
    if let Some(member) = erred {
        let map = rows.slices[id].map;
        let reads = |slot| rows.homes(slot, place.row).reader() == Some(member);
        let cell = map.cells().iter().position(|cell| reads(cell.slot));
        if let Some(cell) = cell {
            let slice = &mut rows.slices[id];
            slice.bad = slice.bad.with(cell as u8);
            slice.unconfirmed = true;
        }
        // If another member is read there now, it was a cell of what was asked for.
        rows.medium_failed(id, cell.map_or(place.data, |cell| cell as u8), member);
    }
    count_fetched(rows, id, part.lba);
    true
}

/// Counts what a read slice asks of the members.
fn count_fetched(rows: &mut Rows, id: u32, lba: u64) {
    let slice = &rows.slices[id];
    let (map, bad, sectors) = (slice.map, slice.bad, slice.sectors);
    let live = rows.live_cells(&map).minus(bad);
    // What cannot be had costs nothing more than the attempt.
    let reads = map.reads_for(rows.layout.place(lba).data, live);
    rows.counters.blocks_fetched += blocks_in(lba, sectors) * u64::from(reads.unwrap_or(1));
}

pub(super) fn step(rows: &mut Rows, id: u32, part: ReadPart, skip: u32) {
    let cell = rows.layout.place(part.lba).data;
    match rows.slices[id].phase {
        Phase::Preparing | Phase::Reading => plan(rows, id, part.target, skip, cell),
        Phase::Recovering => deliver(rows, id, part.target, skip, cell),
        Phase::Delivering => repair(rows, id, cell),
        Phase::Writing => rows.band_done(id),
        other => unreachable!("a read is never {other:?}"),
    }
}

fn plan(rows: &mut Rows, id: u32, target: BufRef, skip: u32, cell: u8) {
    let slice = &rows.slices[id];
    let (have, sectors) = (slice.have, slice.band_sectors);
    let lba = rows.layout.lba(slice.map.row, cell, slice.band);
    if let Some(first) = rows.lost.first_in(lba, sectors) {
        fail(rows, id, first, 1);
    } else if have.contains(cell) {
        deliver(rows, id, target, skip, cell);
    } else if !rows.fetch(id, cell) && !rows.narrow(id) {
        fail(rows, id, lba, sectors);
    }
}

pub(super) fn end(rows: &mut Rows, part: ReadPart, result: Result<(), RequestError>) {
    // Otherwise more was read than was asked for, and the target begins somewhere within.
    let whole = u64::from(part.target.bytes) == part.sectors * SECTOR_BYTES;
    if whole && result.is_ok() {
        rows.keep_blocks(part.request, part.lba, part.target);
    }
    rows.request_part_done(part.request, result);
}

fn fail(rows: &mut Rows, id: u32, lba: u64, sectors: u64) {
    rows.slices[id].error = Some(RequestError::Lost { lba, sectors });
    rows.finish_slice(id);
}

/// Puts the band's bytes, as far as they were asked for, where the request wants them.
fn deliver(rows: &mut Rows, id: u32, target: BufRef, skip: u32, cell: u8) {
    let slice = &rows.slices[id];
    let before = ((slice.band - slice.start) * SECTOR_BYTES) as u32;
    let held = slice.cell_ref(cell);
    // The request's bytes begin `skip` into the slice; the band's begin `before` into it.
    let from = skip.max(before);
    let to = (skip + target.bytes).min(before + held.bytes);
    rows.slices.set_phase(id, Phase::Delivering);
    if from < to {
        let held = held.part(from - before, to - from);
        rows.compute_copy(id, Some(held), target.part(from - skip, to - from));
    } else {
        repair(rows, id, cell);
    }
}

/// Writes back a cell that could not be read and was recovered, and cells that were wrong.
fn repair(rows: &mut Rows, id: u32, cell: u8) {
    let map = rows.slices[id].map;
    let slice = &rows.slices[id];
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
    let wrong = wrong.intersection(rows.live_cells(&map));
    if wrong.is_empty() || rows.ties.primaries_first || rows.mode.read_only {
        return rows.band_done(id);
    }
    rows.slices.set_phase(id, Phase::Writing);
    let content = rows.slices[id].cell_ref(cell);
    for wrong in wrong.iter() {
        rows.note_repair(id, wrong);
        rows.write_cell(id, wrong, Source::Buf(content), None);
    }
}
