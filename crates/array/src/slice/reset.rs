//! What several kinds of slices do about a block that is partly lost: the lost cells become zeros, and parity
//! is made to fit.

use super::fragment::Source;
use super::rows::Rows;
use super::table::{Extra, Phase};
use crate::layout::{Role, RowMap};
use crate::standing::Home;
use crate::units::Slot;

/// Whether it is on record what the slice has called lost, and the cells may become zeros where they stand.
pub(super) fn losses_settled(rows: &mut Rows, id: u32) -> bool {
    let slice = &rows.slices[id];
    let (map, zeroed) = (slice.map, slice.zeroed);
    zeroed.is_empty() || !rows.lost.dirty() && rows.may_change(&map, zeroed)
}

/// A block in which something is lost for good: the lost cells become zeros, and parity is made to fit.
pub(super) fn plan(rows: &mut Rows, id: u32, map: &RowMap) {
    let slice = &rows.slices[id];
    let wanted = map.data_set().minus(slice.zeroed).minus(slice.have);
    let readable = rows.readable(id);
    if !wanted.within(readable) {
        let more = wanted.minus(readable);
        return rows.declare_lost(id, more);
    }
    if wanted.is_empty() {
        rows.compute_parity(id, map.parity_set())
    } else {
        rows.read_cells(id, wanted)
    }
}

/// Writes what a reset decided: zeros and parity, to the serving members and to the one being filled.
pub(super) fn write(rows: &mut Rows, id: u32, slot: Option<u16>) {
    let map = rows.slices[id].map;
    let live = rows.live_cells(&map);
    let zeroed = rows.slices[id].zeroed;
    rows.slices.set_phase(id, Phase::Writing);
    for cell in live
        .iter()
        .filter(|&cell| zeroed.contains(data_of(&map, cell)))
    {
        rows.write_cell(id, cell, Source::Zero, None);
    }
    rows.write_parity(id, &map, live);
    rows.offer(id);
    if let Some(slot) = slot.map(Slot)
        && let Some(target) = rows.standing_at(slot, map.row).incoming
        && let Some(cell) = map.cell_on(slot)
    {
        write_target(rows, id, &map, cell, target);
    }
    rows.slices.requeue_if_idle(id);
}

fn write_target(rows: &mut Rows, id: u32, map: &RowMap, cell: u8, target: Home) {
    let slice = &rows.slices[id];
    let source = if let Some(parity) = map.parity_at(cell) {
        slice.extra_ref(Extra::New(parity)).map(Source::Buf)
    } else if slice.zeroed.contains(data_of(map, cell)) {
        Some(Source::Zero)
    } else {
        Some(Source::Buf(slice.cell_ref(cell)))
    };
    if let Some(source) = source {
        rows.write_cell(id, cell, source, Some(target));
    }
}

/// The data cell whose content a cell holds; a parity cell holds its own.
fn data_of(map: &RowMap, cell: u8) -> u8 {
    match map.cells[cell as usize].role {
        Role::Copy { of } => of,
        Role::Data(_) | Role::P | Role::Q | Role::Parity(_) => cell,
    }
}
