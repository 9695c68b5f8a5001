//! Members without space: which ones, and whether users' writes are spared meanwhile. [`crate::safety`]
//! judges them.

use super::Members;
use crate::contract::{Fact, FailCause};
use crate::members::ops::Owner;
use crate::units::{Member, Nanos};
use alloc::vec::Vec;

/// After a halt, what is being replaced or rebuilt has this long before a user's write is tried.
pub(crate) const SPARED: Nanos = Nanos::from_secs(10);

#[derive(Default)]
pub(crate) struct Full {
    /// Operations that found no space, and are not answered yet.
    pub(crate) aside: Vec<(Owner, Member, FailCause)>,
    pub(crate) until: Nanos,
    /// When a member was last found without space.
    pub(super) noted: Nanos,
    pub(crate) spared_until: Nanos,
}

impl Members {
    /// A write or flush found no space on a member that serves.
    pub(crate) fn note_full(&mut self, member: Member) {
        self.full.noted = self.now;
        let device = &mut self.devices[usize::from(member.0)];
        if !core::mem::replace(&mut device.full, true) {
            self.fact(Fact::OutOfSpace { member });
        }
    }

    /// A user's write to a member ended well: there is room again. Where one such member halts the array, the
    /// next write to another one will tell of that.
    pub(crate) fn note_room(&mut self, member: Member) {
        if self.starts() || self.halted() {
            return;
        }
        // Without redundancy each write finds space or does not, and where old bytes lie there is some.
        let alone = self.layout.tolerance() == 0;
        if alone && self.now < self.full.noted.after(SPARED) {
            return;
        }
        for index in 0..self.devices.len() {
            let this = Member(index as u16);
            if self.devices[index].full && self.serves(this) && (!alone || this == member) {
                self.devices[index].full = false;
                self.fact(Fact::RoomAgain { member: this });
            }
        }
    }

    /// The members in service that had no space when last written to.
    pub fn full_members(&self) -> impl Iterator<Item = Member> + '_ {
        let members = (0..self.devices.len()).map(|index| Member(index as u16));
        members.filter(|member| self.devices[usize::from(member.0)].full && self.serves(*member))
    }

    /// Whether users' writes are refused untried for now: members without space are being replaced, and a
    /// write that finds no space would halt the array and cut that short.
    pub(crate) fn spares_the_full(&self) -> bool {
        let fills = self.now < self.full.spared_until
            && self.tasks.list.iter().any(|task| task.kind.fills());
        fills && self.full_members().next().is_some()
    }
}
