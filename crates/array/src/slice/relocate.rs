//! Moves chunks of a row to the slots that a growth gives them (`task/growth`).
//!
//! The row is locked as a whole. Unreadable cells are recovered. Lost cells become zeros in their old places,
//! parity is made to fit, and then they are moved like the others.
//!
//! Rows of a region move together: writes of one wait while another is still being read. So neighbouring
//! chunks of a member are read, and written, in one operation ([`join_moves`]).

use super::rows::Rows;
use super::table::{Extra, Kind, Phase, Slice, Source};
use crate::contract::{Action, Class, DeviceIo, Moves};
use crate::layout::{CellSet, RowMap};
use crate::members::ops::Owner;
use crate::roles::Home;
use crate::units::Row;
use alloc::vec::Vec;

/// The most pieces of memory of one operation.
const SEGMENTS_MAX: usize = 32;

pub(super) fn step(rows: &mut Rows, id: u32) {
    let slice = &rows.slices[id];
    let resets = !slice.zeroed.is_empty();
    match slice.phase {
        Phase::Preparing => begin(rows, id),
        Phase::Combining if resets => rows.write_reset(id, None),
        Phase::Reading | Phase::Recovering | Phase::Combining | Phase::Merging => plan(rows, id),
        Phase::Writing => band_moved(rows, id),
        other => unreachable!("a move is never {other:?}"),
    }
    rows.tasks.moved_now = true;
}

fn begin(rows: &mut Rows, id: u32) {
    let row = rows.slices[id].map.row;
    if rows.extent_in_motion(row) || !rows.losses_settled(id) {
        return rows.slices.await_metadata(id);
    }
    if !rows.complete() {
        return leave_row(rows, id);
    }
    if !rows.is_written(row) || rows.tasks.is_moved(row) {
        return rows.finish_slice(id);
    }
    plan(rows, id);
}

/// A member is missing: the row stays as it is until the array is whole again.
fn leave_row(rows: &mut Rows, id: u32) {
    rows.slices[id].skipped = true;
    rows.finish_slice(id);
}

fn plan(rows: &mut Rows, id: u32) {
    let map = rows.slices[id].map;
    if !rows.slices[id].zeroed.is_empty() {
        return reset(rows, id, &map);
    }
    if !rows.complete() {
        return leave_row(rows, id);
    }
    let (moving, after) = rows.moving_cells(&map);
    let wanted = wanted(rows, id, &map, moving).minus(rows.slices[id].have);
    if wanted.is_empty() {
        if wants_parity(rows, id, &map, moving) {
            return rows.compute_parity(id, map.parity_set());
        }
        return match batch_reads(rows, map.row) {
            true => rows.slices.set_phase(id, Phase::Merging),
            false => write(rows, id, moving, &after),
        };
    }
    let readable = rows.readable(id);
    let at_hand = wanted.intersection(readable);
    if !at_hand.is_empty() {
        return rows.read_cells(id, at_hand);
    }
    recover(rows, id, &map, wanted, readable);
}

/// What has to be at hand: what moves, and what a comparison has parity made of.
fn wanted(rows: &Rows, id: u32, map: &RowMap, moving: CellSet) -> CellSet {
    match rows.tasks.moves {
        Moves::ParityOutsourced => moving.union(outsourced(rows, id, map)),
        _ if moving.is_empty() => moving,
        Moves::ParityInPlace => moving.union(map.parity_set()),
        Moves::ParityRecomputed => map.data_set(),
        Moves::Best | Moves::Chunkwise | Moves::Recorded => moving,
    }
}

/// The parity that goes to a substitute disk. What cannot be read is left to the task that fills the disk,
/// once the rows are moved: it knows what to do if data cannot be read, either.
fn outsourced(rows: &Rows, id: u32, map: &RowMap) -> CellSet {
    match substitute_of(rows, map) {
        Some(_) => map.parity_set().intersection(rows.readable(id)),
        None => CellSet::EMPTY,
    }
}

/// Where parity of this row goes besides, and by which task.
fn substitute_of(rows: &Rows, map: &RowMap) -> Option<(Home, u64)> {
    let task = rows.tasks.riding()?;
    let parity = map.cells[usize::from(map.p()?)].slot;
    let wanted = task.slot == Some(parity.0) && !task.done.contains(map.row.0);
    let home = rows.roles_at(parity, map.row).incoming.filter(|_| wanted)?;
    Some((home, task.serial))
}

/// Whether parity is yet to be made of the data, for a comparison.
fn wants_parity(rows: &mut Rows, id: u32, map: &RowMap, moving: CellSet) -> bool {
    let recomputed = rows.tasks.moves == Moves::ParityRecomputed;
    let made = rows.slices[id].extra_ref(Extra::New(0)).is_some();
    recomputed && !made && map.p().is_some() && !moving.is_empty()
}

/// Whether something is still being read or computed for rows that are moved together with this one. A slice
/// that waits for its row, or for metadata, does not count.
fn batch_reads(rows: &Rows, row: Row) -> bool {
    batch_of(rows, row).any(|(_, slice)| {
        matches!(
            slice.phase,
            Phase::Reading | Phase::Recovering | Phase::Combining
        )
    })
}

/// Rows that wait to be written with others are, as soon as nothing is read for those.
pub(super) fn release_batch(rows: &mut Rows, row: Row) {
    if !batch_reads(rows, row) {
        let waiting = batch_of(rows, row).filter(|(_, slice)| slice.phase == Phase::Merging);
        let waiting: Vec<u32> = waiting.map(|(id, _)| id).collect();
        waiting.into_iter().for_each(|id| rows.slices.requeue(id));
    }
}

/// From now on other rows may go together: who waits for others looks again.
pub(crate) fn set_moves(rows: &mut Rows, moves: Moves) {
    rows.tasks.moves = moves;
    let waiting = rows.slices.moves();
    let waiting = waiting.filter(|(_, slice)| slice.phase == Phase::Merging);
    let waiting: Vec<u32> = waiting.map(|(id, _)| id).collect();
    waiting.into_iter().for_each(|id| rows.slices.requeue(id));
}

fn batch_of(rows: &Rows, row: Row) -> impl Iterator<Item = (u32, &Slice)> {
    let batch_rows = rows.batch_rows();
    let batch = row.0 / batch_rows;
    let moves = rows.slices.moves();
    moves.filter(move |(_, slice)| slice.map.row.0 / batch_rows == batch)
}

fn recover(rows: &mut Rows, id: u32, map: &RowMap, wanted: CellSet, readable: CellSet) {
    let have = rows.slices[id].have;
    let trusted = rows.layout.parity() && rows.in_sync(map.row);
    let recipe = |cell| map.recover(cell, readable.union(have)).filter(|_| trusted);
    let mut missing = CellSet::EMPTY;
    for cell in wanted.iter() {
        match recipe(cell) {
            Some(recipe) => missing = missing.union(recipe.set().minus(have)),
            None if rows.narrow(id) => return,
            None => return rows.declare_lost(id, CellSet::only(cell)),
        }
    }
    if missing.is_empty() {
        assert!(rows.recover_cells(id, wanted), "every recipe is at hand");
    } else {
        rows.read_cells(id, missing);
    }
}

/// What is lost becomes zeros where it is; then the band begins anew.
fn reset(rows: &mut Rows, id: u32, map: &RowMap) {
    match rows.layout.parity() {
        true => rows.plan_reset(id, map),
        false => rows.write_reset(id, None),
    }
}

fn write(rows: &mut Rows, id: u32, moving: CellSet, after: &RowMap) {
    rows.slices.set_phase(id, Phase::Writing);
    for cell in moving.iter() {
        let content = rows.slices[id].cell_ref(cell);
        let slot = after.cells[usize::from(cell)].slot;
        for home in rows.homes(slot, after.row).write.into_iter().flatten() {
            rows.write_cell(id, cell, Source::Buf(content), Some(home));
        }
    }
    if rows.tasks.moves.writes_parity() && !moving.is_empty() {
        rewrite_parity(rows, id, after);
    }
    outsource_parity(rows, id, after);
    rows.slices.requeue_if_idle(id);
}

/// Brings parity to the substitute disk in the same pass (McPod, 3.3 and 3.4). It is written as it was read:
/// what leaves a place leaves the row, so a moved chunk counts once. In the paper the copy left behind counts
/// too, and P' = P xor the moved chunks.
fn outsource_parity(rows: &mut Rows, id: u32, map: &RowMap) {
    let slice = &rows.slices[id];
    let (first, so_far) = (slice.band == slice.start, slice.outsourced);
    let held = map.p().filter(|parity| slice.have.contains(*parity));
    let target = held.zip(substitute_of(rows, map));
    let target = target.filter(|(_, (_, serial))| first || so_far == Some(*serial));
    rows.slices[id].outsourced = target.map(|(_, (_, serial))| serial);
    if let Some((parity, (home, _))) = target {
        let content = rows.slices[id].cell_ref(parity);
        rows.write_cell(id, parity, Source::Buf(content), Some(home));
    }
}

/// Parity is what it was, wherever its data stand: only the time that this takes is of interest.
fn rewrite_parity(rows: &mut Rows, id: u32, after: &RowMap) {
    for cell in after.parity_set().iter() {
        let slice = &rows.slices[id];
        let made = slice.extra_ref(Extra::New(0));
        let content = made.unwrap_or_else(|| slice.cell_ref(cell));
        rows.write_cell(id, cell, Source::Buf(content), None);
    }
}

fn band_moved(rows: &mut Rows, id: u32) {
    if rows.slices[id].error.take().is_some() {
        let now = rows.now;
        rows.tasks.move_later(now);
        return leave_row(rows, id);
    }
    if !rows.slices[id].zeroed.is_empty() {
        return rows.begin_band_again(id);
    }
    // Who failed meanwhile may have been written to.
    if !rows.complete() {
        return leave_row(rows, id);
    }
    rows.band_done(id);
}

/// Joins the operations that a step starts for a growth, where they are neighbours on a member: one operation
/// in place of several (McPod, section 3.2).
///
/// Each has its own tag, owner and deadline; the first of them is submitted for all. If it fails, each is
/// tried by itself. So it is known exactly what cannot be read or written.
pub(crate) fn join_moves(rows: &mut Rows) {
    if !core::mem::take(&mut rows.tasks.moved_now) || !rows.tasks.moves.coalesces() {
        return;
    }
    let mut actions: Vec<Option<Action>> = rows.out.drain(..).map(Some).collect();
    let mut moves: Vec<usize> = (0..actions.len())
        .filter(|index| io_of(&actions[*index]).is_some_and(|io| may_join(rows, io)))
        .collect();
    moves.sort_by_key(|index| io_of(&actions[*index]).map(|io| (io.member, io.op as u8, io.at)));
    let mut head = None;
    for index in moves {
        let joins = head.is_some_and(|head: usize| {
            let pair = (io_of(&actions[head]), io_of(&actions[index]));
            matches!(pair, (Some(io), Some(next)) if follows(io, next))
        });
        match head.filter(|_| joins) {
            Some(head) => join(rows, &mut actions, head, index),
            None => head = Some(index),
        }
    }
    rows.out.extend(actions.into_iter().flatten());
}

fn may_join(rows: &Rows, io: &DeviceIo) -> bool {
    let moves = match rows.ops.owner(io.tag) {
        Owner::Slice(slice, _) => rows.slices[slice].kind == Kind::Move,
        _ => false,
    };
    moves && io.class == Class::Task && !io.durable
}

fn join(rows: &mut Rows, actions: &mut [Option<Action>], head: usize, index: usize) {
    let Some(Action::Device(mut rider)) = actions[index].take() else {
        unreachable!("looked at by the caller")
    };
    let Some(Action::Device(io)) = &mut actions[head] else {
        unreachable!("looked at by the caller")
    };
    io.sectors += rider.sectors;
    io.segments.append(&mut rider.segments);
    rows.ops.join(io.tag, rider.tag);
    rows.devices[usize::from(io.member.0)].in_flight -= 1;
    rows.counters.ios[io.class as usize] -= 1;
    rows.recycle(rider);
}

fn io_of(action: &Option<Action>) -> Option<&DeviceIo> {
    match action {
        Some(Action::Device(io)) => Some(io),
        _ => None,
    }
}

fn follows(io: &DeviceIo, next: &DeviceIo) -> bool {
    let alike = io.member == next.member && io.op == next.op;
    alike
        && io.at + io.sectors == next.at
        && io.segments.len() + next.segments.len() <= SEGMENTS_MAX
}
