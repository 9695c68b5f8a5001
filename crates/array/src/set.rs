//! One RAID set, as shells hold it: an instance of the array, and what replaces that after a halt.

use crate::config::Config;
use crate::contract::{Actions, CommandError, Event, Request, Work};
use crate::instance::Instance;
use crate::members::pool::Share;
use crate::report::{GrowthPlan, HeatMap, MapExtent, Status};
use crate::revival::Revival;
use crate::units::{Member, Nanos, Row, Slot};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

/// One RAID set: layouts, redundancy, tasks and metadata over its members.
pub struct Set {
    instance: Box<Instance>,
    config: Config,
    /// How it goes on after it halted for want of space.
    revival: Revival,
}

impl Set {
    pub fn new(config: Config) -> Set {
        let share = Share::whole(config.limits.pool);
        Set {
            instance: Box::new(Instance::new(config.clone(), share)),
            config,
            revival: Revival::default(),
        }
    }

    /// One step: takes an event, appends what is to be done about it.
    pub fn handle(&mut self, now: Nanos, event: Event, actions: &mut Actions) {
        let (instance, revival) = (&mut self.instance, &mut self.revival);
        revival.note(&event);
        if let Event::Arrived(info) = event {
            self.config.members.push(info);
        }
        match instance.halt.is_none() && revival.rests() {
            true => instance.step(now, event, actions),
            false => revival.step(instance, &self.config, now, event, actions),
        }
    }

    /// Whether another request is accepted now. A shell holds requests back while this is false.
    pub fn ready(&self) -> bool {
        match self.revival.rests() {
            true => self.instance.requests.room(),
            false => self.revival.requests() < self.config.limits.requests,
        }
    }

    /// Whether a request that changes some of these sectors may be in flight.
    pub fn is_written(&self, sectors: &Range<u64>) -> bool {
        !self.revival.rests() || self.instance.requests.is_written(sectors)
    }

    /// The first piece of a trim or a write of zeros, which may be as large as the array: what a shell takes at a time, so
    /// that others have their turns meanwhile. A piece is a request like any other.
    pub fn piece(&self, request: &Request) -> Work {
        self.instance.piece(request, true)
    }

    /// A view of the whole set, for people and metrics.
    pub fn status(&self) -> Status {
        self.instance.status()
    }

    /// What users read, by zones.
    pub fn heat(&self) -> HeatMap {
        self.instance.heat.map()
    }

    /// What a growth by `by` members would do, or why there can be none now.
    pub fn growth_plan(&self, by: u16) -> Result<GrowthPlan, CommandError> {
        self.instance.growth_plan(by)
    }

    /// Whether a member may be failed by command, or why not.
    pub fn may_fail(&self, member: Member) -> Result<(), CommandError> {
        self.instance.may_fail(member)
    }

    /// The member that a slot's cell of a row is read from; none: no member has it.
    pub fn reader_of(&self, slot: Slot, row: Row) -> Option<Member> {
        self.instance.homes(slot, row).reader()
    }

    /// What a range of the set is like, in order, at most `most` extents.
    pub fn map(&self, lba: u64, sectors: u64, most: usize, into: &mut Vec<MapExtent>) {
        self.instance.map(lba, sectors, most, into);
    }

    /// How often each transition of the slice table was taken: (kind, from, to, count).
    pub fn coverage(
        &self,
    ) -> impl Iterator<Item = (&'static str, &'static str, &'static str, u64)> + '_ {
        self.instance.slices.coverage()
    }

    /// Whether nothing is in flight: no request, slice, operation or write of metadata.
    pub fn idle(&self) -> bool {
        self.instance.idle() && self.revival.rests()
    }
}

#[cfg(test)]
impl Set {
    pub(crate) fn instance(&mut self) -> &mut Instance {
        &mut self.instance
    }
}
