//! Fills a cell of a row for the incoming member of a slot.

use super::rows::Rows;
use super::table::{Phase, Source};
use crate::roles::Home;
use crate::units::Slot;

pub(super) fn step(rows: &mut Rows, id: u32, slot: u16) {
    match rows.slices[id].phase {
        Phase::Preparing => begin(rows, id, slot),
        Phase::Reading | Phase::Recovering => plan(rows, id, slot),
        Phase::Combining => rows.write_reset(id, Some(slot)),
        Phase::Writing => rows.band_done(id),
        other => unreachable!("a fill is never {other:?}"),
    }
}

fn begin(rows: &mut Rows, id: u32, slot: u16) {
    let row = rows.slices[id].map.row;
    // The member that is filled gets nothing of what was moved away from the slot. After a crash, no read may
    // expect it there.
    let stays_moved = rows.durably_moved(row.0..row.0 + 1);
    if rows.extent_in_motion(row) || !stays_moved || !rows.losses_settled(id) {
        return rows.slices.await_metadata(id);
    }
    if !rows.is_written(row) || rows.roles_at(Slot(slot), row).incoming.is_none() {
        return rows.finish_slice(id);
    }
    plan(rows, id, slot);
}

fn plan(rows: &mut Rows, id: u32, slot: u16) {
    let map = rows.slices[id].map;
    let Some(target) = rows.roles_at(Slot(slot), map.row).incoming else {
        return rows.finish_slice(id);
    };
    let Some(cell) = map.cell_on(Slot(slot)) else {
        return rows.finish_slice(id);
    };
    let slice = &rows.slices[id];
    if slice.have.contains(cell) {
        write(rows, id, cell, target);
    } else if !slice.zeroed.is_empty() {
        rows.plan_reset(id, &map);
    } else if !rows.fetch(id, cell) && !rows.narrow(id) {
        let unreadable = map.data_set().minus(rows.readable(id));
        rows.declare_lost(id, unreadable);
    }
}

fn write(rows: &mut Rows, id: u32, cell: u8, target: Home) {
    rows.slices.set_phase(id, Phase::Writing);
    let content = rows.slices[id].cell_ref(cell);
    rows.write_cell(id, cell, Source::Buf(content), Some(target));
    rows.offer(id);
}
