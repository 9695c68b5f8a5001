//! Which records a slot of NVRAM has, or is to have: a floor above the records, below packing.
//!
//! A record is *safe* when it is durable in the log. Until then it occupies its slot, so the number of
//! records that are not safe is at most the number of slots.

use crate::overlay::Extent;
use crate::overlay::records::Records;
use crate::overlay::requests::Owner;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use restripe_array::parts::Bug;

/// How far a round of flushes is; [`super::rounds`] has the transitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::overlay) enum Stage {
    Idle,
    Packing,
    Writing,
    Flushing,
    Sealing,
    Marking,
    Over,
}

/// What NVRAM has of a record that is not safe.
pub(super) struct Held {
    pub(super) sequence: u64,
    /// Of the version begun last.
    pub(super) version: u32,
    /// Writes were acknowledged that no version has.
    pub(super) fresh: bool,
    /// A version is being written.
    pub(super) writing: bool,
    /// Of a record that is sealed: its table, and sectors of its payload.
    pub(super) sealed: Option<(Vec<Extent>, u32)>,
}

pub(super) struct Slots {
    /// As many as NVRAM has, and as records fit in memory.
    count: u32,
    pub(super) stage: Stage,
    /// All records that are not safe, the oldest first; their sequences have no gap.
    pub(super) held: VecDeque<Held>,
    /// The log is being flushed to make slots free.
    flushing: bool,
}

impl Slots {
    fn new(count: u32) -> Slots {
        Slots {
            count,
            stage: Stage::Idle,
            held: VecDeque::new(),
            flushing: false,
        }
    }

    fn serves(&self) -> bool {
        !matches!(self.stage, Stage::Sealing | Stage::Marking | Stage::Over)
    }

    fn index_of(&self, sequence: u64) -> Option<usize> {
        let first = self.held.front()?.sequence;
        let index = sequence.checked_sub(first)? as usize;
        (index < self.held.len()).then_some(index)
    }

    fn of(&mut self, sequence: u64) -> Option<&mut Held> {
        let index = self.index_of(sequence)?;
        self.held.get_mut(index)
    }
}

pub struct NvramSlots {
    pub(super) below: Records,
    pub(super) slots: Option<Slots>,
}

floor!(NvramSlots over Records);

impl NvramSlots {
    pub(in crate::overlay) fn new(below: Records) -> NvramSlots {
        let limits = below.limits;
        let held = limits.packing.map_or(0, |packing| packing.held);
        NvramSlots {
            below,
            slots: limits.slots.map(|slots| Slots::new(slots.min(held))),
        }
    }

    /// Whether flushes go to NVRAM.
    pub fn uses_nvram(&self) -> bool {
        !self.broken && self.slots.as_ref().is_some_and(Slots::serves)
    }

    /// Records that are not durable in the log, and may be in NVRAM; none without one.
    pub(crate) fn records_in_nvram(&self) -> u32 {
        match &self.slots {
            Some(slots) if self.uses_nvram() => {
                slots.held.iter().filter(|held| held.version > 0).count() as u32
            }
            _ => 0,
        }
    }

    /// Whether memory has to hold a record until NVRAM or the log has it.
    pub fn is_held(&self, sequence: u64) -> bool {
        let needed = |slots: &Slots| {
            let held = &slots.held[slots.index_of(sequence)?];
            Some(held.fresh || held.writing)
        };
        let needed = self.slots.as_ref().and_then(needed);
        self.uses_nvram() && needed == Some(true)
    }

    /// Whether nothing may come into records now, so that their versions are whole.
    pub(in crate::overlay) fn is_versioning(&self) -> bool {
        let versioning = |stage| matches!(stage, Stage::Packing | Stage::Writing);
        self.slots.as_ref().is_some_and(|one| versioning(one.stage))
    }

    /// Records below need no slot any more.
    fn safe(&self) -> u64 {
        match self.planted(Bug::SlotReusedEarly) {
            true => self.acknowledged(),
            false => self.durable,
        }
    }

    fn slot_count(&self) -> u64 {
        self.slots.as_ref().map_or(0, |slots| slots.count.into())
    }

    /// Whether the next record would have no slot.
    pub(in crate::overlay) fn lacks_slot(&self) -> bool {
        self.uses_nvram() && self.sequence - self.safe() >= self.slot_count()
    }

    /// Flushes the log in time for slots to be free.
    pub(in crate::overlay) fn free_slots(&mut self) {
        let taken = self.sequence - self.safe();
        if !self.uses_nvram()
            || 2 * taken < self.slot_count()
            || self.acknowledged() <= self.durable
        {
            return;
        }
        let flushing = self.slots.as_mut().map(|slots| &mut slots.flushing);
        if flushing.is_none_or(|flushing| core::mem::replace(flushing, true)) {
            return;
        }
        let part = self.begin_part(Owner::Slots);
        self.flush_acknowledged_records(part);
    }

    pub(in crate::overlay) fn slots_flushed(&mut self) {
        if let Some(slots) = &mut self.slots {
            slots.flushing = false;
        }
    }

    /// Every record that was acknowledged before this flush of the log began is durable.
    pub(in crate::overlay) fn log_flushed(&mut self, acknowledged: u64) {
        self.durable = self.durable.max(acknowledged);
        let safe = self.safe();
        let is_safe = |held: &mut Held| held.sequence < safe;
        if let Some(slots) = &mut self.slots {
            while slots.held.pop_front_if(is_safe).is_some() {}
        }
        self.settle_retired();
    }

    /// A record is opened that needs a slot.
    pub(in crate::overlay) fn hold(&mut self, sequence: u64) {
        if !self.uses_nvram() {
            return;
        }
        if let Some(slots) = &mut self.slots {
            slots.held.push_back(Held {
                sequence,
                version: 0,
                fresh: false,
                writing: false,
                sealed: None,
            });
        }
    }

    /// Writes in a record are acknowledged.
    pub(in crate::overlay) fn freshen(&mut self, sequence: u64) {
        if let Some(held) = self.slots.as_mut().and_then(|one| one.of(sequence)) {
            held.fresh = true;
        }
    }

    /// A record is on its way into the log.
    pub(in crate::overlay) fn hold_sealed(&mut self, sequence: u64, extents: &[Extent], used: u32) {
        if let Some(held) = self.slots.as_mut().and_then(|one| one.of(sequence)) {
            held.sealed = held.fresh.then(|| (extents.to_vec(), used));
        }
    }
}
