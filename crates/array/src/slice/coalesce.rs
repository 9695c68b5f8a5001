//! Joins the operations that a step starts for a growth, where they are neighbours on a member: one operation
//! in place of several (McPod, section 3.2).
//!
//! Each has its own tag, owner and deadline; the first of them is submitted for all. If it fails, each is
//! tried by itself. So it is known exactly what cannot be read or written.

use super::rows::Rows;
use super::table::Kind;
use crate::contract::{Action, Class, DeviceIo, Segment};
use crate::members::ops::Owner;
use crate::units::SECTOR_BYTES;
use alloc::vec::Vec;

/// The most pieces of memory of one operation.
const SEGMENTS_MAX: usize = 32;

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
        Owner::Slice { slice, .. } => rows.slices[slice].kind == Kind::Move,
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

/// How many of the first segments make up this number of sectors.
pub(crate) fn pieces_of(segments: &[Segment], sectors: u64) -> usize {
    let mut left = sectors * SECTOR_BYTES;
    let whole = |segment: &&Segment| {
        let taken = left > 0;
        left = left.saturating_sub(u64::from(segment.bytes()));
        taken
    };
    segments.iter().take_while(whole).count()
}
