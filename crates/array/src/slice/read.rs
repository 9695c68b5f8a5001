//! Reads that no single member can answer: recovered from the row's other cells, repaired on the way.

use super::rows::{Need, Rows};
use super::table::{Kind, Phase, Source};
use crate::clients::Copies;
use crate::clients::read_cache::blocks_in;
use crate::contract::{BufRef, RequestError};
use crate::layout::CellSet;
use crate::units::{Member, SECTOR_BYTES};

/// Starts a read slice for part of a request; false when there is no room. `skip`: bytes of the first block
/// that the request does not want. `erred`: the member whose medium could not be read there.
pub(crate) fn start(
    rows: &mut Rows,
    request: u32,
    lba: u64,
    sectors: u64,
    target: BufRef,
    skip: u32,
    erred: Option<Member>,
) -> bool {
    let place = rows.layout.place(lba);
    let kind = Kind::Read {
        request,
        lba,
        target,
        skip,
    };
    let buffers = u32::from(rows.layout.width()) + 1;
    let need = Need {
        kind,
        row: place.row,
        start: place.offset,
        sectors,
        step: sectors,
        buffers,
    };
    let Some(id) = rows.admit_slice(&need) else {
        return false;
    };
    rows.requests.begin_part(request);
    let copies = rows.requests.get(request).copies;
    rows.slices[id].copies = copies;
    rows.counters.degraded_reads += u64::from(!matches!(copies, Copies::Without(_)));
    if let Some(member) = erred {
        let map = rows.slices[id].map;
        let cells = map
            .cells()
            .iter()
            .position(|cell| rows.homes(cell.slot, place.row).reader() == Some(member));
        if let Some(cell) = cells {
            let slice = &mut rows.slices[id];
            slice.bad = slice.bad.with(cell as u8);
            slice.unconfirmed = true;
        }
        rows.read_failed(member, crate::IoError::Media);
    }
    count_fetched(rows, id, lba);
    true
}

/// Counts what a read slice asks of the members.
fn count_fetched(rows: &mut Rows, id: u32, lba: u64) {
    let slice = &rows.slices[id];
    let (map, bad, sectors) = (slice.map, slice.bad, slice.sectors);
    let live = rows.live_cells(&map).minus(bad);
    // What cannot be had costs nothing more than the attempt.
    let reads = map
        .reads_for(rows.layout.place(lba).data, live)
        .unwrap_or(1);
    rows.counters.blocks_fetched += blocks_in(lba, sectors) * u64::from(reads);
}

pub(super) fn step(rows: &mut Rows, id: u32) {
    match rows.slices[id].phase {
        Phase::Preparing | Phase::Reading => plan(rows, id),
        Phase::Recovering => deliver(rows, id),
        Phase::Delivering => repair(rows, id),
        Phase::Writing => rows.band_done(id),
        other => unreachable!("a read is never {other:?}"),
    }
}

fn cell_of(rows: &mut Rows, id: u32) -> u8 {
    let Kind::Read { lba, .. } = rows.slices[id].kind else {
        unreachable!("a read slice reads")
    };
    rows.layout.place(lba).data
}

fn plan(rows: &mut Rows, id: u32) {
    let cell = cell_of(rows, id);
    let slice = &rows.slices[id];
    let (have, sectors) = (slice.have, slice.band_sectors);
    let lba = rows.layout.lba(slice.map.row, cell, slice.band);
    if let Some(first) = rows.lost.first_in(lba, sectors) {
        fail(rows, id, first, 1);
    } else if have.contains(cell) {
        deliver(rows, id);
    } else if !rows.fetch(id, cell) && !rows.narrow(id) {
        fail(rows, id, lba, sectors);
    }
}

pub(super) fn end(rows: &mut Rows, id: u32, result: Result<(), RequestError>) {
    let slice = &rows.slices[id];
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
        rows.keep_blocks(request, lba, target);
    }
    rows.request_part_done(request, result);
}

fn fail(rows: &mut Rows, id: u32, lba: u64, sectors: u64) {
    rows.slices[id].error = Some(RequestError::Lost { lba, sectors });
    rows.finish_slice(id);
}

/// Puts the band's bytes, as far as they were asked for, where the request wants them.
fn deliver(rows: &mut Rows, id: u32) {
    let cell = cell_of(rows, id);
    let slice = &rows.slices[id];
    let Kind::Read { target, skip, .. } = slice.kind else {
        unreachable!("a read slice reads")
    };
    let before = ((slice.band - slice.start) * SECTOR_BYTES) as u32;
    let held = slice.cell_ref(cell);
    // The request's bytes begin `skip` into the slice; the band's begin `before` into it.
    let from = skip.max(before);
    let to = (skip + target.bytes).min(before + held.bytes);
    rows.slices.set_phase(id, Phase::Delivering);
    if from < to {
        rows.compute_copy(
            id,
            Some(held.part(from - before, to - from)),
            target.part(from - skip, to - from),
        );
    } else {
        repair(rows, id);
    }
}

/// Writes back a cell that could not be read and was recovered, and cells that were wrong.
fn repair(rows: &mut Rows, id: u32) {
    let cell = cell_of(rows, id);
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
