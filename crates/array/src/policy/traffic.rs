//! What members move besides the tasks' own operations: the evidence for md's rule of idleness.
//!
//! An array has one, though it may have several tasks. Windows are given to one task at a time, the most urgent
//! ([`crate::task::table::Tasks`]), so one task asks, and what any task moves is left out. md does the same: one
//! thread an array resynchronises, and what such threads move on a disk is taken out of its statistics. A task
//! that begins while another runs resets the evidence once: at its next test the running one finds members idle
//! if clients moved little since then, and at the test after that nothing differs.

use crate::contract::Class;
use crate::members::ops::Owner;
use crate::units::Member;
use alloc::vec::Vec;

/// A member that moves no more sectors than this counts as idle.
const IDLE_SECTORS: u64 = 64;

#[derive(Clone, Copy, Default, Debug)]
struct Moved {
    sectors: u64,
    /// As many when the member was last found busy.
    seen: u64,
}

/// By member.
#[derive(Default)]
pub(crate) struct Traffic(Vec<Moved>);

impl Traffic {
    /// An operation was sent. md takes everything that is not its own resynchronisation from the disks' statistics;
    /// superblocks are left out here, because our checkpoints write them far more often than md does.
    pub(crate) fn note(&mut self, member: Member, owner: Owner, class: Class, sectors: u64) {
        if class == Class::Task || owner == Owner::Superblock {
            return;
        }
        let index = usize::from(member.0);
        if self.0.len() <= index {
            self.0.resize(index + 1, Moved::default());
        }
        self.0[index].sectors += sectors;
    }

    /// Whether no member has moved more than a little since it was last found busy: md's `is_mddev_idle`.
    pub(crate) fn idle(&mut self) -> bool {
        let mut idle = true;
        for moved in &mut self.0 {
            if moved.sectors - moved.seen > IDLE_SECTORS {
                moved.seen = moved.sectors;
                idle = false;
            }
        }
        idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trickle_is_idle_until_it_adds_up() {
        let mut traffic = Traffic::default();
        assert!(traffic.idle());
        for _ in 0..8 {
            traffic.note(Member(1), Owner::Flush, Class::User, 8);
            assert!(traffic.idle());
        }
        traffic.note(Member(1), Owner::Flush, Class::Parity, 1);
        assert!(!traffic.idle());
        assert!(traffic.idle(), "what was seen is not seen again");
        traffic.note(Member(0), Owner::Flush, Class::Task, 1000);
        traffic.note(Member(0), Owner::Superblock, Class::Metadata, 1000);
        assert!(
            traffic.idle(),
            "neither the task itself nor its checkpoints"
        );
    }
}
