//! Requests that the pair makes of its sets: each waits until the set takes it, and tells its owner how it ended.

use super::route::PerSet;
use super::{Pair, jobs, route};
use crate::overlay::{Kind, PartTag, Site};
use alloc::collections::VecDeque;
use restripe_array::parts::Copies;
use restripe_array::report::ArrayState;
use restripe_array::{BufRef, Request, RequestError, RequestOp, RequestTag, SECTOR_BYTES, Slab};

/// Who asked for a child request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// A user, who asks home itself.
    User(RequestTag),
    /// The overlay: a part of its work, as it is.
    Part(PartTag),
    /// The overlay reads at home, of a first copy, what the log has there, too.
    FirstPart {
        part: PartTag,
        home: u64,
        at: u64,
        buf: BufRef,
    },
    /// What goes into this record goes to first copies, too.
    Beside(u64),
    /// The overlay reads a copy in the log of what has this home.
    LogPart {
        part: PartTag,
        home: u64,
        /// Home has the same.
        clean: bool,
        buf: BufRef,
    },
    Job(u32),
    Stop,
    Start,
    /// The start's read of a page or a payload, by its number.
    StartRead(u32),
}

/// A request of a set that is under way.
#[derive(Clone, Copy)]
struct Child {
    owner: Owner,
    request: Request,
    copies: Copies,
}

#[derive(Default)]
pub(super) struct Children {
    under_way: Slab<Child>,
    /// Requests of the log that found no space there, and are given to it again ([`super::revive`]): the oldest first.
    shelved: VecDeque<(Request, Copies)>,
    /// By [`Site`]: what its engine has no room for yet.
    waiting: PerSet<VecDeque<(Request, Copies)>>,
    ended: VecDeque<(Owner, Result<(), RequestError>)>,
    /// Some were handed to a set since this was last cleared.
    pub(super) delivered: bool,
}

impl Children {
    /// `request` is made of a set; its tag means nothing.
    pub(super) fn ask(&mut self, site: Site, owner: Owner, request: Request) {
        self.ask_copies(site, owner, request, Copies::All);
    }

    /// The same, of some copies only.
    pub(super) fn ask_copies(
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

    pub(super) fn ended(&mut self, tag: RequestTag, result: Result<(), RequestError>) {
        let child = self.under_way.remove(tag.0 as u32);
        let owner = child.expect("it was asked for once").owner;
        self.ended.push_back((owner, result));
    }

    fn of(&self, tag: RequestTag) -> &Child {
        let child = self.under_way.get(tag.0 as u32);
        child.expect("it was asked for once")
    }

    /// A request that failed is given to its set again later.
    fn shelve(&mut self, tag: RequestTag) {
        let Child {
            request, copies, ..
        } = *self.of(tag);
        self.shelved.push_back((Request { tag, ..request }, copies));
    }

    /// Shelved requests go to their set, before others; false if there are none.
    pub(super) fn unshelve(&mut self, site: Site) -> bool {
        let any = !self.shelved.is_empty();
        while let Some(one) = self.shelved.pop_back() {
            self.waiting[site].push_front(one);
        }
        any
    }

    /// Shelved requests end with this error; false if there are none.
    pub(super) fn fail_shelved(&mut self, error: RequestError) -> bool {
        let any = !self.shelved.is_empty();
        while let Some((request, _)) = self.shelved.pop_front() {
            self.ended(request.tag, Err(error));
        }
        any
    }

    pub(super) fn reply(&mut self) -> Option<(Owner, Result<(), RequestError>)> {
        self.ended.pop_front()
    }

    /// Whether nothing waits for room in a set.
    pub(super) fn is_empty(&self, site: Site) -> bool {
        self.waiting[site].is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty() && self.ended.is_empty()
    }
}

impl Pair {
    /// Hands the next waiting request to a set that has room.
    pub(super) fn next_child(&mut self) -> bool {
        for site in route::SITES {
            if !self.sets[site].has_room() {
                continue;
            }
            if let Some((request, copies)) = self.next_waiting(site) {
                self.children.delivered = true;
                self.tell_by(site, |set, now, actions| {
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
        let some = all || self.lets_users_end();
        let mut waiting = self.children.waiting[site].iter();
        let index = waiting.position(|(request, _)| all || some && self.is_of_user(request.tag))?;
        self.children.waiting[site].remove(index)
    }

    /// Whether a request is of a user's own.
    fn is_of_user(&self, tag: RequestTag) -> bool {
        let of_user = |part| {
            let overlay = self.overlay.as_ref();
            overlay.is_some_and(|one| one.is_users(part))
        };
        match self.children.of(tag).owner {
            Owner::User(_) => true,
            Owner::Part(part) | Owner::FirstPart { part, .. } | Owner::LogPart { part, .. } => {
                of_user(part)
            }
            _ => false,
        }
    }

    /// A set has answered. What the pair itself writes to a log without space is shelved: users alone hear of it.
    pub(super) fn child_replied(
        &mut self,
        site: Site,
        tag: RequestTag,
        result: Result<(), RequestError>,
    ) {
        let writes = self.children.of(tag).request.op != RequestOp::Read;
        match result.is_err() && writes && !self.is_of_user(tag) && self.shelves(site) {
            true => self.children.shelve(tag),
            false => self.children.ended(tag, result),
        }
    }

    pub(super) fn child_ended(&mut self, owner: Owner, result: Result<(), RequestError>) {
        let result = match owner {
            Owner::Job(job) if self.reads_first(job) => result,
            Owner::LogPart { .. } | Owner::Job(_) => result.map_err(|error| self.of_log(error)),
            _ => result,
        };
        match owner {
            Owner::User(tag) => self.reply(tag, result),
            Owner::Part(part) => self.part_done(part, result),
            Owner::FirstPart {
                part,
                home,
                at,
                buf,
            } => self.first_read(part, home, at, buf, result),
            Owner::Beside(sequence) => {
                self.policy.beside_failed |= result.is_err();
                let overlay = self.overlay.as_mut().expect("it writes");
                overlay.went_beside(sequence, result);
            }
            // Home has it, too.
            Owner::LogPart {
                part,
                home,
                clean,
                buf,
            } if self.is_gone() || clean && result.is_err() => {
                let sectors = u64::from(buf.bytes) / SECTOR_BYTES;
                let request = jobs::child(RequestOp::Read, home, sectors, buf, false);
                self.children.ask(Site::Home, Owner::Part(part), request);
            }
            Owner::LogPart {
                part, home, buf, ..
            } => {
                let sectors = u64::from(buf.bytes) / SECTOR_BYTES;
                let result = result.map_err(|error| at_home(error, home, sectors));
                self.part_done(part, result);
            }
            Owner::Job(job) => self.job_child_ended(job, result),
            Owner::Stop => self.stop_flushed(result),
            Owner::Start => self.start_written(result),
            Owner::StartRead(read) => self.start_read(read, result),
        }
    }

    /// A first copy was read. What cannot be had there, or not be believed any more, the log has; all copies, if it was let go.
    fn first_read(
        &mut self,
        part: PartTag,
        home: u64,
        at: u64,
        buf: BufRef,
        result: Result<(), RequestError>,
    ) {
        let overlay = self.overlay.as_ref().expect("it reads");
        if overlay.trusts() && (result.is_ok() || overlay.is_broken()) {
            return self.part_done(part, result);
        }
        if self.is_gone() {
            return match result {
                Ok(()) => self.part_done(part, result),
                Err(_) => self.read_overlaid(part, home, None, buf),
            };
        }
        self.read_overlaid(part, home, Some((Kind::Instead, at)), buf);
    }

    /// What a log without enough members calls lost may be there again when they are.
    fn of_log(&self, error: RequestError) -> RequestError {
        match error {
            RequestError::Lost { .. } if self.log().state() == ArrayState::Failed => {
                RequestError::Unavailable
            }
            error => error,
        }
    }

    pub(super) fn part_done(&mut self, part: PartTag, result: Result<(), RequestError>) {
        if let Some(result) = self.part_over(part, result) {
            let overlay = self.overlay.as_mut().expect("it has parts under way");
            overlay.part_done(part, result);
        }
    }
}

/// What is lost in the log is lost at home: nothing else has it.
fn at_home(error: RequestError, home: u64, sectors: u64) -> RequestError {
    match error {
        RequestError::Lost { .. } => RequestError::Lost { lba: home, sectors },
        other => other,
    }
}
