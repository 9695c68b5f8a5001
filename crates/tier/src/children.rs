//! Child requests: the requests of the tier to its sets.
//!
//! Owns them: each waits until its set has room, and its owner gets the result. Every event for a set and
//! every action of a set passes here. A set's answer to a command of the tier's own is stored for the top,
//! with the actions after it.

use super::facts::{Attempt, Facts};
use super::route::{PerSet, SITES};
use crate::overlay::{PartTag, Site};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use restripe_array::parts::{Copies, Part};
use restripe_array::{
    Action, Actions, Buf, BufRef, CommandError, CommandTag, Event, Fact, Halt, Nanos, Request,
    RequestError, RequestOp, RequestTag, SECTOR_BYTES, Slab,
};

/// The owner of a child request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// A client, whose request goes to the main set directly.
    Client(RequestTag),
    /// The overlay: a part of its work, unchanged.
    Part(PartTag),
    /// The overlay reads from a primary copy what the log has, too.
    PrimaryPart {
        part: PartTag,
        home: u64,
        at: u64,
        buf: BufRef,
    },
    /// A write to the primary copies of the data that goes into this record.
    Primaries(u64),
    /// The overlay reads from the log the current copy of sector `home` of the main set.
    LogPart {
        part: PartTag,
        home: u64,
        /// The main set has the same data.
        clean: bool,
        buf: BufRef,
    },
    Job(u32),
    /// The overlay flushes the NVRAM set.
    NvramFlush(PartTag),
    Stop,
    Start,
    /// The start's read of a page or a payload, by its number.
    StartRead(u32),
}

/// A request in flight in a set.
#[derive(Clone, Copy)]
struct Child {
    owner: Owner,
    request: Request,
    copies: Copies,
}

/// A set has answered a command of the tier's own. Then the rest of the set's actions is taken up.
pub(crate) struct Answer {
    pub(crate) site: Site,
    pub(crate) result: Result<(), CommandError>,
    pub(crate) rest: Actions,
}

pub(crate) struct Children {
    pub(crate) below: Facts,
    under_way: Slab<Child>,
    /// Requests of the log that found no space, to be issued again ([`super::revive`]): the oldest first.
    shelved: VecDeque<(Request, Copies)>,
    /// Requests by [`Site`] for which its engine has no room yet.
    waiting: PerSet<VecDeque<(Request, Copies)>>,
    ended: VecDeque<(Owner, Result<(), RequestError>)>,
    /// Requests were delivered to a set since this was last cleared.
    pub(crate) delivered: bool,
    /// The actions of a set in the current step.
    scratch: Actions,
    /// Answers that the top has to attend to, in this order.
    pub(crate) answers: Vec<Answer>,
}

floor!(Children over Facts { under_way, shelved, waiting, ended, delivered, scratch, answers });

/// A request of a set; its tag is given later.
pub(crate) fn child(op: RequestOp, sector: u64, sectors: u64, buf: BufRef, fua: bool) -> Request {
    Request {
        tag: RequestTag(0),
        op,
        offset: sector * SECTOR_BYTES,
        bytes: sectors * SECTOR_BYTES,
        buf,
        fua,
    }
}

pub(crate) fn flush() -> Request {
    child(RequestOp::Flush, 0, 0, BufRef::new(Buf(0), 0, 0), false)
}

/// The tag of commands that the tier itself gives to a set.
pub(crate) fn child_command(site: Site) -> CommandTag {
    CommandTag(u64::MAX - site as u64)
}

impl Children {
    /// Queues `request` for a set; its tag is replaced.
    pub(crate) fn ask(&mut self, site: Site, owner: Owner, request: Request) {
        self.ask_copies(site, owner, request, Copies::All);
    }

    /// Queues `request` for some copies of a set only.
    pub(crate) fn ask_copies(
        &mut self,
        site: Site,
        owner: Owner,
        mut request: Request,
        copies: Copies,
    ) {
        let child = Child {
            owner,
            request,
            copies,
        };
        let index = self.under_way.insert(child);
        request.tag = RequestTag(u64::from(index));
        self.waiting[site].push_back((request, copies));
    }

    pub(crate) fn read(&mut self, site: Site, owner: Owner, at: u64, into: BufRef) {
        self.read_copies(site, owner, at, into, Copies::All);
    }

    pub(crate) fn read_copies(
        &mut self,
        site: Site,
        owner: Owner,
        at: u64,
        into: BufRef,
        copies: Copies,
    ) {
        let sectors = u64::from(into.bytes) / SECTOR_BYTES;
        let request = child(RequestOp::Read, at, sectors, into, false);
        self.ask_copies(site, owner, request, copies);
    }

    pub(crate) fn write(&mut self, site: Site, owner: Owner, at: u64, from: BufRef) {
        self.write_copies(site, owner, at, from, Copies::All);
    }

    pub(crate) fn write_copies(
        &mut self,
        site: Site,
        owner: Owner,
        at: u64,
        from: BufRef,
        copies: Copies,
    ) {
        let sectors = u64::from(from.bytes) / SECTOR_BYTES;
        let request = child(RequestOp::Write, at, sectors, from, false);
        self.ask_copies(site, owner, request, copies);
    }

    pub(crate) fn request_ended(&mut self, tag: RequestTag, result: Result<(), RequestError>) {
        let child = self.under_way.remove(tag.0 as u32);
        let owner = child.expect("it was requested once").owner;
        self.ended.push_back((owner, result));
    }

    fn child_of(&self, tag: RequestTag) -> &Child {
        let child = self.under_way.get(tag.0 as u32);
        child.expect("it was requested once")
    }

    /// A request that failed is issued to its set again later.
    fn shelve(&mut self, tag: RequestTag) {
        let Child {
            request, copies, ..
        } = *self.child_of(tag);
        self.shelved.push_back((Request { tag, ..request }, copies));
    }

    /// Issues shelved requests to their set, before others. Returns false if there are none.
    fn give_again(&mut self, site: Site) -> bool {
        let any = !self.shelved.is_empty();
        while let Some(one) = self.shelved.pop_back() {
            self.waiting[site].push_front(one);
        }
        any
    }

    /// Ends shelved requests with this error. Returns false if there are none.
    fn fail_shelved(&mut self, error: RequestError) -> bool {
        let any = !self.shelved.is_empty();
        while let Some((request, _)) = self.shelved.pop_front() {
            self.request_ended(request.tag, Err(error));
        }
        any
    }

    /// Issues shelved requests to the log again, or fails them if it never takes them. False if there are
    /// none.
    pub(crate) fn unshelve(&mut self) -> bool {
        if !self.attempt.rests() || self.shelves(Site::Log) {
            return false;
        }
        match self.log().halted() {
            true => self.fail_shelved(RequestError::NoSpace),
            false => self.give_again(Site::Log),
        }
    }

    pub(crate) fn next_ended(&mut self) -> Option<(Owner, Result<(), RequestError>)> {
        self.ended.pop_front()
    }

    /// Whether nothing waits for room in a set.
    pub(crate) fn none_waits_for(&self, site: Site) -> bool {
        self.waiting[site].is_empty()
    }

    pub(crate) fn children_idle(&self) -> bool {
        self.under_way.is_empty() && self.ended.is_empty()
    }

    /// Issues the next waiting request to a set that has room.
    pub(crate) fn next_child(&mut self) -> bool {
        for site in SITES {
            if !self.sets[site].has_room() {
                continue;
            }
            if let Some((request, copies)) = self.next_waiting(site) {
                self.delivered = true;
                self.step_set_by(site, |set, now, actions| {
                    set.step_request(now, request, copies, actions);
                });
                return true;
            }
        }
        false
    }

    /// The next request that a set may have.
    fn next_waiting(&mut self, site: Site) -> Option<(Request, Copies)> {
        let all = !self.withholds(site);
        let some = all || self.lets_clients_end();
        let mut waiting = self.waiting[site].iter();
        let index =
            waiting.position(|(request, _)| all || some && self.is_of_client(request.tag))?;
        self.waiting[site].remove(index)
    }

    /// Whether a request is a client's own.
    fn is_of_client(&self, tag: RequestTag) -> bool {
        match self.child_of(tag).owner {
            Owner::Client(_) => true,
            Owner::Part(part) | Owner::PrimaryPart { part, .. } | Owner::LogPart { part, .. } => {
                let overlay = self.overlay.as_ref();
                overlay.is_some_and(|one| one.is_of_client(part))
            }
            _ => false,
        }
    }

    /// A set has answered. If a log without space fails a write of the tier itself, the write is shelved.
    /// Only clients' own requests fail.
    fn child_replied(&mut self, site: Site, tag: RequestTag, result: Result<(), RequestError>) {
        let writes = self.child_of(tag).request.op != RequestOp::Read;
        match result.is_err() && writes && !self.is_of_client(tag) && self.shelves(site) {
            true => self.shelve(tag),
            false => self.request_ended(tag, result),
        }
    }

    // ----------------------------------------------------------------------------------- events, actions

    /// Gives a set an event, and takes up its actions.
    pub(crate) fn step_set(&mut self, site: Site, event: Event) {
        self.step_set_by(site, |set, now, actions| set.step(now, event, actions));
    }

    fn step_set_by(&mut self, site: Site, step: impl FnOnce(&mut Part, Nanos, &mut Actions)) {
        let mut actions = core::mem::take(&mut self.scratch);
        let now = self.now;
        step(&mut self.sets[site], now, &mut actions);
        let all = self.take_up_all(site, &mut actions);
        self.scratch = actions;
        if all {
            self.look_for_owner(site);
        }
    }

    /// Takes up the rest of a set's actions, after an answer that has been attended to.
    pub(crate) fn take_up_rest(&mut self, site: Site, mut rest: Actions) {
        if self.take_up_all(site, &mut rest) {
            self.look_for_owner(site);
        }
    }

    /// Takes up a set's actions, up to an answer to a command of the tier's own. False if there is one.
    fn take_up_all(&mut self, site: Site, actions: &mut Actions) -> bool {
        let mut actions = actions.drain(..);
        while let Some(action) = actions.next() {
            match action {
                Action::CommandReply(tag, result) if tag == child_command(site) => {
                    let result = result.map_err(|error| self.route.error_of(site, error));
                    let rest = actions.collect();
                    self.answers.push(Answer { site, result, rest });
                    return false;
                }
                action => self.take_up(site, action),
            }
        }
        true
    }

    fn look_for_owner(&mut self, site: Site) {
        if let Some(halt @ Halt::Owned(_)) = self.sets[site].halt() {
            self.all_disowned(halt);
        }
    }

    /// Another run has one of the sets, and so has the others, or soon will: that set's end decides nothing.
    fn all_disowned(&mut self, halt: Halt) {
        for site in SITES {
            let set = &self.sets[site];
            if set.serving() && !set.halted() {
                self.step_set_by(site, |set, now, actions| {
                    set.step_by(now, actions, |core| core.halt_for(halt));
                });
            }
        }
    }

    fn take_up(&mut self, site: Site, action: Action) {
        match action {
            Action::Reply(tag, result) => self.child_replied(site, tag, result),
            Action::Wake(at) => self.route.wake(site, at),
            Action::CommandReply(tag, result) => {
                let result = result.map_err(|error| self.route.error_of(site, error));
                self.out.push(Action::CommandReply(tag, result));
            }
            // The tier reports these facts when all sets are ready.
            Action::Fact(Fact::Started { .. } | Fact::Stopped) => {}
            Action::Fact(Fact::Lost { lba, sectors }) if site == Site::Home => {
                self.lost_at_home(lba, sectors);
            }
            Action::Fact(fact) => {
                let fact = self.route.fact_of(site, fact);
                self.report_of(site, fact);
            }
            action => {
                let action = self.route.action_of(site, action);
                self.out.push(action);
            }
        }
    }

    /// Changes the main set outside of its events. Its turn follows.
    pub(crate) fn at_home<T>(&mut self, change: impl FnOnce(&mut Part) -> T) -> T {
        self.at(Site::Home, change)
    }

    /// Changes any set outside of its events. Its turn follows.
    pub(crate) fn at<T>(&mut self, site: Site, change: impl FnOnce(&mut Part) -> T) -> T {
        self.delivered = true;
        let set = &mut self.sets[site];
        let outcome = change(set);
        let mut actions = set.take_actions();
        self.take_up_all(site, &mut actions);
        outcome
    }

    /// A device arrived or departed during a restart: the former engines get the event, too.
    pub(crate) fn step_former_set(&mut self, site: Site, event: &Event) {
        let now = self.now;
        let (Attempt::Starting(former) | Attempt::Failing(former)) = &mut self.attempt else {
            return;
        };
        if let Some(set) = &mut former.sets[site] {
            let mut actions = Actions::new();
            set.step(now, event.clone(), &mut actions);
            actions.retain(|action| !matches!(action, Action::Wake(_)));
            for action in actions {
                match action {
                    Action::Fact(fact) => {
                        let fact = self.route.fact_of(site, fact);
                        self.former_facts.push(Action::Fact(fact));
                    }
                    action => self.take_up(site, action),
                }
            }
        }
    }

    /// Neither the main set nor the log has these sectors.
    pub(crate) fn lose_everywhere(&mut self, lba: u64, sectors: u64) {
        self.at_home(|home| home.lose(lba, sectors));
        self.out.push(Action::Fact(Fact::Lost { lba, sectors }));
    }

    /// Clears the redirect map if the log is empty.
    pub(crate) fn forget_redirects(&mut self) {
        let overlay = self.overlay.as_ref();
        let holds_nothing = overlay.is_some_and(|one| one.holds_nothing_instead());
        if holds_nothing && !self.home().mode().read_only && !self.marks_stay() {
            self.at_home(|home| home.redirects_home());
        }
    }
}
