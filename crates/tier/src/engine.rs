//! The array as reactors see it: one set, or a main set with a log set.

use crate::atomic::Atomics;
use crate::config::Config;
use crate::overlay::OverlayCounters;

use crate::report::Status;
use crate::tier::Tier;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use restripe_array::report::{GrowthPlan, HeatMap, MapExtent};
use restripe_array::{
    Action, Actions, Command, CommandError, CommandTag, Event, Member, Nanos, Request,
    RequestError, Row, Set, Slot, Work,
};

pub struct Engine {
    kind: Kind,
    atomics: Atomics,
    /// Commands to stop that wait for atomic requests: the next parts of these would be refused.
    stops: Vec<CommandTag>,
    /// The largest number of requests.
    most: usize,
}

enum Kind {
    Single(Box<Set>),
    /// With a log set.
    Tier(Box<Tier>),
}

impl Engine {
    pub fn new(config: Config) -> Engine {
        let most = config.limits.requests as usize;
        let kind = match config.surrogate {
            Some(surrogate) => Kind::Tier(Box::new(Tier::new(config, surrogate))),
            None => {
                let own = config.of_set(config.members.clone(), config.limits);
                Kind::Single(Box::new(Set::new(own)))
            }
        };
        Engine {
            kind,
            atomics: Atomics::default(),
            stops: Vec::new(),
            most,
        }
    }

    /// One step: takes an event, and appends the actions that follow.
    pub fn handle(&mut self, now: Nanos, event: Event, actions: &mut Actions) {
        let atomic = matches!(&event, Event::Request(request) if request.op.is_atomic());
        if self.atomics.is_empty() && !atomic {
            return self.kind.handle(now, event, actions);
        }
        self.handle_with_atomics(now, event, actions);
    }

    #[cold]
    fn handle_with_atomics(&mut self, now: Nanos, event: Event, actions: &mut Actions) {
        let turn = event == Event::Turn;
        match event {
            Event::Request(request) if self.atomics.takes(&request) => {
                match self.stops.is_empty() {
                    true => self.atomics.add(request),
                    false => refuse(request, actions),
                }
            }
            Event::Command(tag, Command::Stop) => self.stops.push(tag),
            Event::Compute(compute, verdict) if Atomics::owns(compute.tag) => {
                self.atomics.computed(compute.tag, verdict, actions);
            }
            event => self.step(now, event, actions),
        }
        // Requests that the sets get in a turn begin with a further one.
        while self.hand_down(now, actions) && turn {
            self.step(now, Event::Turn, actions);
        }
        if self.atomics.is_empty() {
            for tag in core::mem::take(&mut self.stops) {
                self.step(now, Event::Command(tag, Command::Stop), actions);
            }
        }
    }

    /// Gives the sets what they may have of atomic requests. Whether they got anything.
    fn hand_down(&mut self, now: Nanos, actions: &mut Actions) -> bool {
        let mut some = false;
        while self.kind.ready() {
            let kind = &self.kind;
            let is_written = |request: &Request| kind.is_written(&request.sectors());
            let Some(request) = self.atomics.next(is_written) else {
                break;
            };
            self.step(now, Event::Request(request), actions);
            some = true;
        }
        some
    }

    fn step(&mut self, now: Nanos, event: Event, actions: &mut Actions) {
        let first = actions.len();
        self.kind.handle(now, event, actions);
        self.atomics.take_replies(actions, first);
    }

    /// Whether another request is accepted now. A reactor holds requests back while this is false.
    pub fn ready(&self) -> bool {
        self.kind.ready() && self.atomics.len() < self.most
    }

    /// The first piece of a trim or a write of zeros, which may be as large as the array. A reactor takes one
    /// piece at a time, so that other requests have their turns. A piece is a request like any other.
    pub fn piece(&self, request: &Request) -> Work {
        match &self.kind {
            Kind::Single(set) => set.piece(request),
            // Zeros may go into the log, which has no holes.
            Kind::Tier(tier) => tier.home().piece(request, false),
        }
    }

    /// The status of the whole array, for people and metrics.
    pub fn status(&self) -> Status {
        match &self.kind {
            Kind::Single(set) => set.status().into(),
            Kind::Tier(tier) => tier.status(),
        }
    }

    /// Reads of clients, by zones.
    pub fn heat(&self) -> HeatMap {
        match &self.kind {
            Kind::Single(set) => set.heat(),
            Kind::Tier(tier) => tier.home().heat_map(),
        }
    }

    /// The effect of a growth by this many members, or why none is possible now.
    pub fn growth_plan(&self, by: u16) -> Result<GrowthPlan, CommandError> {
        match &self.kind {
            Kind::Single(set) => set.growth_plan(by),
            Kind::Tier(tier) => tier.home().growth_plan(by),
        }
    }

    /// Whether a member may be failed by command, or why not.
    pub fn may_fail(&self, member: Member) -> Result<(), CommandError> {
        match &self.kind {
            Kind::Single(set) => set.may_fail(member),
            Kind::Tier(tier) => tier.may_fail(member),
        }
    }

    /// The member that a slot's cell of a row is read from, of the main set; none: no member has it.
    pub fn reader_of(&self, slot: Slot, row: Row) -> Option<Member> {
        match &self.kind {
            Kind::Single(set) => set.reader_of(slot, row),
            Kind::Tier(tier) => tier.home().reader_of(slot, row),
        }
    }

    /// The counters of redirected data; `None` without a log set that serves.
    pub fn moved(&self) -> Option<OverlayCounters> {
        match &self.kind {
            Kind::Single(_) => None,
            Kind::Tier(tier) => tier.moved(),
        }
    }

    /// The state of a range of the array, in order, at most `most` extents.
    pub fn map(&self, lba: u64, sectors: u64, most: usize, into: &mut Vec<MapExtent>) {
        match &self.kind {
            Kind::Single(set) => set.map(lba, sectors, most, into),
            Kind::Tier(tier) => tier.map(lba, sectors, most, into),
        }
    }

    /// How often each transition of the slice table was taken: (kind, from, to, count).
    pub fn coverage(
        &self,
    ) -> impl Iterator<Item = (&'static str, &'static str, &'static str, u64)> + '_ {
        let (single, tier) = match &self.kind {
            Kind::Single(set) => (Some(set.coverage()), None),
            Kind::Tier(tier) => (None, Some(tier.coverage())),
        };
        let (single, tier) = (single.into_iter(), tier.into_iter());
        single.flatten().chain(tier.flatten())
    }

    /// Whether nothing is in flight: no request, slice, operation or write of metadata.
    pub fn idle(&self) -> bool {
        let idle = match &self.kind {
            Kind::Single(set) => set.idle(),
            Kind::Tier(tier) => tier.idle(),
        };
        idle && self.atomics.is_empty()
    }
}

/// As a set does that has a command to stop.
fn refuse(request: Request, actions: &mut Actions) {
    let refused = Err(RequestError::Unavailable);
    actions.push(Action::Reply(request.tag, refused));
}

impl Kind {
    #[inline]
    fn handle(&mut self, now: Nanos, event: Event, actions: &mut Actions) {
        match self {
            Kind::Single(set) => set.handle(now, event, actions),
            Kind::Tier(tier) => tier.handle(now, event, actions),
        }
    }

    fn ready(&self) -> bool {
        match self {
            Kind::Single(set) => set.ready(),
            Kind::Tier(tier) => tier.ready(),
        }
    }

    /// Whether a request that changes some of these sectors may be in flight.
    fn is_written(&self, sectors: &Range<u64>) -> bool {
        match self {
            Kind::Single(set) => set.is_written(sectors),
            Kind::Tier(tier) => tier.is_written(sectors),
        }
    }
}
