//! Whether nothing is under way: so that an array may be given up, or its mirrors may be sent to standby.

use super::Instance;
use crate::durability::flusher::Waiter;
use crate::facts::{NEVER, Wake};
use crate::members::device::Power;
use crate::units::Member;
use alloc::vec::Vec;

impl Instance {
    pub fn idle(&self) -> bool {
        self.ops.idle() && self.idle_but_for_orphans()
    }

    /// Nothing is under way but operations that were given up on, whose buffers are their own.
    pub fn idle_but_for_orphans(&self) -> bool {
        self.requests.idle()
            && self.slices.idle()
            && self.ops.only_orphans()
            && self.flusher.idle()
            && self.buffers.all_free()
    }

    /// Whether all mirrors are awake that can rest, some are, and nothing is under way or on its way that
    /// would wake them again.
    pub fn may_rest(&self) -> bool {
        let power = |member: &Member| self.devices[usize::from(member.0)].power;
        let can = |member: &Member| power(member) != Power::Restless;
        let mut mirrors: Vec<Member> = self.mirrors();
        mirrors.retain(can);
        !mirrors.is_empty()
            && mirrors.iter().all(|member| self.is_restful(*member))
            && self.serving()
            && self.complete()
            && self.tasks.list.is_empty()
            && !self.halted()
            && self.keeper.all_durable()
            && !self.maps_dirty()
            && (self.all_dirty || !self.intent.any())
            && self.wake[Wake::Lazy as usize] == NEVER
            && self.spares_mirrors()
    }

    /// Begins a flush if mirrors have unflushed writes and no flush runs, since no client may ask for one.
    /// Returns whether it began one.
    pub fn flush_mirrors(&mut self) -> bool {
        let unflushed = |member: &Member| self.devices[usize::from(member.0)].unflushed;
        if !self.flusher.idle() || !self.mirrors().iter().any(unflushed) {
            return false;
        }
        self.flush_for(Waiter::Intent);
        true
    }

    /// Whether nothing that is under way can be about mirrors; what goes to first copies alone is not.
    pub(crate) fn spares_mirrors(&self) -> bool {
        self.superblock.ahead || self.flusher.idle() && self.slices.idle()
    }
}
