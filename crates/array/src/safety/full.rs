//! Members without space: whether the array goes on without them, or writes nothing until there is room.
//!
//! | state  | cause                                                   | next                                                   |
//! |--------|---------------------------------------------------------|--------------------------------------------------------|
//! | -      | a write or flush finds no space on a member that serves | aside                                                  |
//! | aside  | nothing else is under way, or [`AT_ONCE`] is over       | failed, halted                                         |
//! | failed | redundancy tolerates every member that is aside         | -: it comes back by the command to add                 |
//! | halted | redundancy does not                                     | -: [`crate::revival`]; in a tier: the tier |
//!
//! Members that lie on one full store fill up together. So the first error does not fail its member at once:
//! for a moment its operations are set aside, and the members that run full meanwhile are judged together.
//! Either all of them fail, or none.

use super::Safety;
use crate::contract::{FailCause, Halt, IoError, IoOp};
use crate::facts::Wake;
use crate::members::SPARED;
use crate::members::ops::Owner;
use crate::units::{Member, Nanos, Slot};
use alloc::vec::Vec;

/// Members whose errors lie no further apart than this fill up together.
const AT_ONCE: Nanos = Nanos::from_millis(200);

impl Safety {
    /// Sets an operation that found no space aside, if its member's failure is to be judged with that of
    /// others.
    pub(crate) fn set_aside(&mut self, owner: Owner, member: Member, op: IoOp) -> bool {
        let judged = !self.starts() && !self.halted() && self.layout.tolerance() > 0;
        if !judged || !self.good(member) || !self.serves(member) {
            return false;
        }
        let cause = match op {
            IoOp::Flush => FailCause::FlushError(IoError::NoSpace),
            _ => FailCause::WriteError(IoError::NoSpace),
        };
        if self.full.aside.is_empty() {
            self.full.until = self.now.after(AT_ONCE);
            self.wake_after(Wake::Full, AT_ONCE);
        }
        self.full.aside.push((owner, member, cause));
        true
    }

    /// The operations that were set aside, once no other member can be expected to run full.
    pub(crate) fn due_aside(&mut self) -> Vec<(Owner, Member, FailCause)> {
        let quiet = self.devices.iter().all(|device| device.in_flight == 0);
        if !quiet && self.now < self.full.until && !self.halted() {
            return Vec::new();
        }
        core::mem::take(&mut self.full.aside)
    }

    /// Decides about members that ran full, all at once: those to be failed. If redundancy does not tolerate
    /// that, the array halts.
    pub(crate) fn judge_full(
        &mut self,
        aside: &[(Owner, Member, FailCause)],
    ) -> Vec<(Member, FailCause)> {
        let mut full: Vec<(Member, FailCause)> = Vec::new();
        for &(_, member, cause) in aside {
            if self.serves(member) && full.iter().all(|(one, _)| *one != member) {
                full.push((member, cause));
            }
        }
        for (member, _) in &full {
            self.note_full(*member);
        }
        if self.halted() || full.is_empty() {
            return Vec::new();
        }
        if !self.tolerates(&full) {
            self.halt_for(Halt::NoSpace);
            return Vec::new();
        }
        full
    }

    /// Whether every byte is readable without these members: from redundancy that is in sync.
    fn tolerates(&self, full: &[(Member, FailCause)]) -> bool {
        let decodable =
            self.all_decodable(|one| full.iter().any(|(member, _)| one.serves(*member)));
        let alone = |member| self.tells_alone(member) || self.goes_ahead_alone(member);
        decodable && !full.iter().any(|(member, _)| alone(*member))
    }

    /// Whether a member has first copies that go ahead of the further ones, and no log has what they have.
    fn goes_ahead_alone(&self, member: Member) -> bool {
        let logged = self.ties.attached && !self.superblock.alone;
        let slots = self.roles.slots_where(|one| one.serves(member));
        let mut slots = slots.into_iter();
        self.is_ahead() && !logged && slots.any(|slot| self.layout.has_firsts(Slot(slot as u16)))
    }

    /// The array goes on after a halt for want of space. Whether there is room again, the first write will
    /// tell.
    pub fn go_on_after(&mut self, former: &Safety) {
        let members = self.members();
        for (device, before) in members.devices.iter_mut().zip(&former.devices) {
            if device.info != before.info {
                // The start did not ask this member, which had failed: its record is as before.
                let uuid = before
                    .entry
                    .map(|entry| former.superblock.members[usize::from(entry)].uuid);
                device.entry = uuid.and_then(|uuid| members.below.superblock.index_of(uuid));
                device.health = before.health;
                device.regions.clone_from(&before.regions);
                device.places = before.places;
                device.info = before.info;
            }
            device.full = before.full;
            device.spent = before.spent;
        }
        if !self.ties.is_part {
            self.full.spared_until = self.now.after(SPARED);
        }
        self.counters = former.counters;
        self.latencies = former.latencies.clone();
        self.rests = former.rests;
    }
}
