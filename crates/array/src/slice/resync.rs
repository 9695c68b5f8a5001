//! Brings parity or copies of a row in step with its data.

use super::rows::Rows;
use super::table::{Phase, Source};
use crate::contract::Bug;
use crate::layout::{CellSet, RowMap};

pub(super) fn step(rows: &mut Rows, id: u32, compares: bool) {
    match rows.slices[id].phase {
        Phase::Preparing => begin(rows, id, compares),
        Phase::Reading if rows.below.layout.parity() => plan(rows, id, compares),
        Phase::Reading => copies(rows, id),
        Phase::Combining => computed(rows, id),
        Phase::Comparing => compared(rows, id),
        Phase::Writing => rows.band_done(id),
        other => unreachable!("a resync is never {other:?}"),
    }
}

fn begin(rows: &mut Rows, id: u32, compares: bool) {
    let row = rows.slices[id].map.row;
    if rows.extent_in_motion(row) || !rows.losses_settled(id) {
        return rows.slices.await_metadata(id);
    }
    if !rows.is_written(row) || rows.in_sync(row) {
        return rows.finish_slice(id);
    }
    match rows.layout.parity() {
        true => plan(rows, id, compares),
        false => copies(rows, id),
    }
}

/// Reads the data, and with `compares` also the parity as it is. A data cell that is missing or unreadable is
/// lost, since its parity cannot be trusted.
fn plan(rows: &mut Rows, id: u32, compares: bool) {
    let map = rows.slices[id].map;
    let live = rows.live_cells(&map);
    if live.intersection(map.parity_set()).is_empty() {
        return rows.band_done(id);
    }
    let slice = &rows.slices[id];
    let unreadable = map.data_set().minus(slice.zeroed).minus(slice.have);
    let readable = rows.readable(id);
    let absent = unreadable.minus(readable);
    if !absent.is_empty() {
        if !rows.narrow(id) {
            rows.declare_lost(id, absent);
        }
        return;
    }
    let parity = match compares {
        true => comparable(rows, id, &map),
        false => CellSet::EMPTY,
    };
    match parity.is_empty() {
        true => rows.plan_reset(id, &map),
        false => rows.read_cells(id, unreadable.union(parity)),
    }
}

/// The parities that have not been read and can be compared. A parity whose slot is being filled is written
/// to both members without a comparison.
fn comparable(rows: &mut Rows, id: u32, map: &RowMap) -> CellSet {
    let slice = &rows.slices[id];
    if !slice.zeroed.is_empty() {
        return CellSet::EMPTY;
    }
    let unread = map.parity_set().minus(slice.have);
    let unread = unread.intersection(rows.readable(id));
    let filled = |cell: &u8| {
        let slot = map.cells[usize::from(*cell)].slot;
        rows.roles_at(slot, map.row).incoming.is_some()
    };
    unread.minus(unread.iter().filter(filled).collect())
}

fn computed(rows: &mut Rows, id: u32) {
    let map = rows.slices[id].map;
    let read = rows.slices[id].have.intersection(map.parity_set());
    if read.is_empty() {
        return rows.write_reset(id, None);
    }
    rows.slices.set_phase(id, Phase::Comparing);
    rows.compare_parity(id, &map, read);
}

/// What was read and agrees stays as it is.
fn compared(rows: &mut Rows, id: u32) {
    let slice = &rows.slices[id];
    let (map, serial, differ) = (slice.map, slice.serial, slice.verdicts.differ);
    let read = slice.have.intersection(map.parity_set());
    let differ = match rows.planted(Bug::ParityBelieved) {
        true => 0,
        false => differ,
    };
    let agrees = |(parity, cell): (u8, u8)| {
        (read.contains(cell) && differ & 1 << parity == 0).then_some(cell)
    };
    let in_step: CellSet = map.parities().filter_map(agrees).collect();
    if in_step != read {
        rows.tasks.out_of_step(serial);
    }
    rows.slices.set_phase(id, Phase::Writing);
    let stale = rows.live_cells(&map).minus(in_step);
    rows.write_parity(id, &map, stale);
    rows.offer(id);
    rows.slices.requeue_if_idle(id);
}

/// The first copy that can be read is copied over the others.
fn copies(rows: &mut Rows, id: u32) {
    let map = rows.slices[id].map;
    let held = rows.slices[id].have.first();
    let Some(source) = held else {
        return match rows.readable(id).first() {
            Some(cell) => rows.read_cells(id, CellSet::only(cell)),
            None if rows.narrow(id) => {}
            None => {
                if rows.first_alone(map.row) {
                    // The other copies are older than the first, which cannot be read.
                    rows.lose_cells(id, map.data_set());
                }
                rows.band_done(id);
            }
        };
    };
    rows.slices.set_phase(id, Phase::Writing);
    let content = rows.slices[id].cell_ref(source);
    let others = rows.live_cells(&map).without(source);
    for cell in others.iter() {
        rows.write_cell(id, cell, Source::Buf(content), None);
    }
    rows.offer(id);
    rows.slices.requeue_if_idle(id);
}
