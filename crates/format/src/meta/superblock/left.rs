//! The departures: of each failed member, the version of the superblock under which it left. They lie in front of the tail, where an older program
//! writes zeros, and count only while LENGTH leaves their space free.
//!
//! A device whose own version is higher went on without the array. One whose version is lower by two or more is an older copy of the member.

use super::{MEMBERS_MAX, MemberEntry, MemberRole, at, tail};
use crate::meta::bytes::{get_u32, get_u64, put_u64};

pub const LEFT_BYTES: usize = 8;
/// Where they start.
pub const LEFT_AT: usize = tail::TAIL_AT - MEMBERS_MAX * LEFT_BYTES;

const COMPATIBLE_LEFT: u64 = 4;

offsets! {
    /// Byte offsets in each.
    pub mod place {
        pub const LEFT_SEQUENCE: usize = 0;
    }
}

fn is_free(bytes: &[u8]) -> bool {
    get_u32(bytes, at::LENGTH) as usize <= LEFT_AT
}

fn place_of(index: usize) -> usize {
    LEFT_AT + index * LEFT_BYTES + place::LEFT_SEQUENCE
}

pub(super) fn put(members: &[MemberEntry], bytes: &mut [u8]) {
    let left = members.iter().map(MemberEntry::left_under).enumerate();
    if !is_free(bytes) || left.clone().all(|(_, sequence)| sequence == 0) {
        return;
    }
    left.for_each(|(index, sequence)| put_u64(bytes, place_of(index), sequence));
    let compatible = get_u64(bytes, at::COMPATIBLE);
    put_u64(bytes, at::COMPATIBLE, compatible | COMPATIBLE_LEFT);
}

pub(super) fn get(bytes: &[u8], members: &mut [MemberEntry]) {
    if !is_free(bytes) || get_u64(bytes, at::COMPATIBLE) & COMPATIBLE_LEFT == 0 {
        return;
    }
    for (index, entry) in members.iter_mut().enumerate() {
        if matches!(entry.role, MemberRole::Failed { .. }) {
            entry.left_at = get_u64(bytes, place_of(index));
        }
    }
}

impl MemberEntry {
    /// It is current no longer, in this generation and under this version of the superblock.
    pub fn leave(&mut self, stale_since: u64, partial: bool, sequence: u64) {
        self.role = MemberRole::Failed {
            stale_since,
            partial,
        };
        self.left_at = sequence;
        self.dropped_for = None;
    }

    /// 0 if it has not left, or it is not known when.
    fn left_under(&self) -> u64 {
        match self.role {
            MemberRole::Failed { .. } => self.left_at,
            _ => 0,
        }
    }

    /// Whether a copy of this member under this version has more than the array knows of: beyond the write that a crash may have cut short.
    pub fn went_on(&self, sequence: u64) -> bool {
        self.left_under() != 0 && sequence > self.left_at.saturating_add(1)
    }

    /// Whether a copy of this member under this version is from before it left: nobody knows what it lacks.
    pub fn is_outdated(&self, sequence: u64) -> bool {
        sequence.saturating_add(1) < self.left_under()
    }
}
