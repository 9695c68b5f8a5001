//! How an array with a surrogate goes on without a restart, after one of its sets halted for want of space.
//!
//! | state    | cause                                                       | next                                |
//! |----------|-------------------------------------------------------------|-------------------------------------|
//! | rests    | a write or command while a set is halted                    | draining                            |
//! | draining | the halted sets are quiet; the overlay, too, if it goes     | starting                            |
//! | draining | a member that would be asked may still do what was given up on | rests: waiting requests go on    |
//! | draining | a set fails for another reason                              | rests: waiting requests go on       |
//! | starting | the sets serve                                              | rests: waiting requests go on       |
//! | starting | the start was refused                                       | failing                             |
//! | failing  | the refused start is quiet: the former sets are put back    | rests: waiting requests go on       |
//!
//! A halted set is started once more by a new engine, as `revival` of a set does for an array without a surrogate. Sets that
//! serve go on. Requests and commands wait meanwhile.
//!
//! A **code cache** keeps its overlay, because acknowledged writes may lie in memory alone. A request of the pair to a log that
//! has no space fails for users, but not for the pair: it is shelved, and given to the log again once that serves
//! ([`Pair::shelves`]). So no record is missing from the log, and the memory of a record stays until the log has it.
//!
//! **Other surrogates** have no write in memory. Their overlay is broken by the write that found no space. A new one is made
//! of what the log holds, as every start does.

use super::buffer::Buffer;
use super::jobs::Jobs;
use super::route::{PerSet, SITES};
use super::{Pair, Stage};
use crate::overlay::{Overlay, Site};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use restripe_array::parts::{Part, RETRY, Refused, TAG, Ties, keep_untold};
use restripe_array::report::ArrayState;
use restripe_array::{
    Action, Actions, Command, CommandError, Event, Fact, Halt, Nanos, Request, RequestError,
    RequestOp, SECTOR_BYTES, StartMode,
};

/// Between two attempts while first copies go on without their log: the mirrors wake for each.
const RETRY_OF_LOG: Nanos = Nanos::from_secs(10);

#[derive(Default)]
pub(super) struct Revive {
    /// How the array was started.
    mode: StartMode,
    state: State,
    /// Requests and commands that came meanwhile.
    waiting: VecDeque<Event>,
    requests: u32,
    not_before: Nanos,
    /// A write or flush was refused because the log is broken.
    pub(super) refused_write: bool,
    /// How the attempt's start ended.
    pub(super) outcome: Option<Result<(), CommandError>>,
    refused: Refused,
    /// Facts of the attempt, held back until it serves.
    facts: Actions,
    /// Facts of the sets that it is to replace, held back until it ends.
    former_facts: Actions,
}

#[derive(Default)]
enum State {
    #[default]
    Rests,
    Draining,
    Starting(Box<Former>),
    Failing(Box<Former>),
}

/// The state that a refused start gives back.
struct Former {
    sets: PerSet<Option<Part>>,
    started: PerSet<bool>,
    stage: Stage,
    absent: Option<CommandError>,
    buffer_absent: Option<CommandError>,
    /// Unless the overlay stays.
    above: Option<Above>,
    home: Ties,
}

/// The overlay, and the work for it.
struct Above {
    overlay: Option<Overlay>,
    jobs: Jobs,
    buffer: Buffer,
}

impl Revive {
    pub(super) fn rests(&self) -> bool {
        matches!(self.state, State::Rests)
    }

    fn former(&self) -> Option<&Former> {
        match &self.state {
            State::Starting(former) | State::Failing(former) => Some(former),
            _ => None,
        }
    }

    /// The overlay that a refused start gives back.
    pub(super) fn former_overlay(&self) -> Option<&Overlay> {
        self.former()?.above.as_ref()?.overlay.as_ref()
    }

    /// Whether the overlay waits for a set that is being started.
    pub(super) fn holds_overlay(&self) -> bool {
        self.former().is_some_and(|former| former.above.is_none())
    }

    pub(super) fn has_room(&self, most: u32) -> bool {
        self.requests < most
    }

    /// Takes note of how the array is started.
    pub(super) fn note(&mut self, mode: StartMode) {
        self.mode = mode.again();
    }
}

impl Pair {
    fn has_no_space(&self, site: Site) -> bool {
        let set = &self.sets[site];
        self.started[site] && set.halt() == Some(Halt::NoSpace)
    }

    /// The sets that are started anew. A buffer is not: the array goes on without it.
    fn halted_sites(&self) -> impl Iterator<Item = Site> + '_ {
        let sites = [Site::Home, Site::Log].into_iter();
        sites.filter(|site| self.has_no_space(*site))
    }

    /// Whether the log serves, and takes nothing more: without redundancy a write finds no space, and nothing halts.
    fn is_log_left(&self) -> bool {
        let (log, overlay) = (self.log(), self.overlay.as_ref());
        let broken = overlay.is_some_and(|one| one.is_broken() && !one.is_logless());
        let serves = self.started[Site::Log] && log.serving() && !log.halted();
        broken && serves && log.state() != ArrayState::Failed
    }

    fn gathers_writes(&self) -> bool {
        let overlay = self.overlay.as_ref();
        overlay.is_some_and(|one| one.gathering().is_some() && !one.is_broken())
    }

    /// Whether a code cache takes no writes, since its log or the main set has no space. Its log is not broken.
    pub(super) fn lacks_room(&self) -> bool {
        self.stage == Stage::Serving
            && self.gathers_writes()
            && self.halted_sites().next().is_some()
    }

    /// Whether what the pair writes to this set is shelved instead of failed: also while another set is started anew.
    pub(super) fn shelves(&self, site: Site) -> bool {
        let goes_on = self.stage == Stage::Serving || !self.revive.rests();
        site == Site::Log && goes_on && self.gathers_writes() && self.has_no_space(Site::Log)
    }

    /// Gives shelved requests to the log, if that takes them again, or fails them, if it never will; false if there are none.
    pub(super) fn unshelve(&mut self) -> bool {
        if !self.revive.rests() || self.shelves(Site::Log) {
            return false;
        }
        match self.log().halted() {
            true => self.children.fail_shelved(RequestError::NoSpace),
            false => self.children.unshelve(Site::Log),
        }
    }

    /// Whether a set that is withheld still gets what users wait for: these requests end before it is started anew.
    pub(super) fn lets_users_end(&self) -> bool {
        matches!(self.revive.state, State::Draining)
    }

    /// Whether the requests of a set have to wait until it is started anew.
    pub(super) fn withholds(&self, site: Site) -> bool {
        match &self.revive.state {
            State::Draining => self.gathers_writes() && self.has_no_space(site),
            State::Starting(former) | State::Failing(former) => {
                former.above.is_none() && former.sets[site].is_some()
            }
            State::Rests => false,
        }
    }

    /// Takes a request or a command that has to wait; gives back what need not.
    pub(super) fn park(&mut self, event: Event) -> Option<Event> {
        let asks = matches!(event, Event::Request(_) | Event::Command(..));
        if self.revive.rests() && self.calls_for_it(&event) {
            self.revive.state = State::Draining;
            if !self.gathers_writes()
                && let Some(overlay) = &mut self.overlay
            {
                overlay.rest();
            }
        }
        if self.revive.rests() || !asks {
            return Some(event);
        }
        self.revive.requests += u32::from(matches!(event, Event::Request(_)));
        self.revive.waiting.push_back(event);
        None
    }

    /// Whether an event is worth an attempt.
    fn calls_for_it(&self, event: &Event) -> bool {
        let serves = matches!(self.stage, Stage::Serving | Stage::Alone);
        let may_write = !self.revive.mode.read_only && !self.is_leaving();
        let asks = match event {
            Event::Request(request) => {
                let in_time = self.now >= self.revive.not_before;
                in_time && request.op != RequestOp::Read && self.needs_revival(request)
            }
            Event::Command(_, command) => !matches!(command, Command::Start(_)),
            _ => false,
        };
        let unlogged = self
            .overlay
            .as_ref()
            .is_some_and(|one| one.is_alone() && !one.is_void());
        let held_ahead = unlogged && !self.is_logless() && !self.home().halted();
        let any = self.halted_sites().next().is_some() || self.is_log_left();
        let fit = self.only_space_is_missing() && !self.has_lost_touch();
        serves && may_write && asks && !held_ahead && any && fit
    }

    /// Whether the log of a code cache failed for another reason: memory alone may have writes, which no attempt may forget.
    fn has_lost_touch(&self) -> bool {
        let overlay = self.overlay.as_ref();
        overlay.is_some_and(|one| one.gathering().is_some() && one.is_broken())
    }

    /// A set that halted for another reason would get no number of the attempt on record, and the others would be ahead of it.
    fn only_space_is_missing(&self) -> bool {
        let halts = [Site::Home, Site::Log].map(|site| self.sets[site].halt());
        halts
            .iter()
            .all(|halt| matches!(halt, None | Some(Halt::NoSpace)))
    }

    /// Whether users miss the halted set: a broken log is missed by flushes, and by writes over what it has.
    fn needs_revival(&self, request: &Request) -> bool {
        let ahead = self.policy.redirect().goes_ahead();
        let all = self.has_no_space(Site::Home) || self.gathers_writes() || ahead;
        let flushes = request.op == RequestOp::Flush;
        all || flushes || self.revive.refused_write || self.meets_log(request)
    }

    fn meets_log(&self, request: &Request) -> bool {
        let (lba, sectors) = (request.offset / SECTOR_BYTES, request.bytes / SECTOR_BYTES);
        let overlay = self.overlay.as_ref();
        let left = overlay.map(|one| one.not_instead(lba..lba + sectors));
        let left: u64 = left.iter().flatten().map(|(_, sectors)| sectors).sum();
        overlay.is_some() && left < sectors
    }

    /// Goes on; false if it has to wait.
    pub(super) fn advance_revival(&mut self) -> bool {
        match &self.revive.state {
            State::Rests => return false,
            State::Draining if !self.can_begin() => self.end_revival(),
            State::Draining if self.is_drained() => self.begin_revival(),
            State::Starting(_) => match self.revive.outcome.take() {
                None => return false,
                Some(Ok(())) => self.revived(),
                Some(Err(error)) => self.refuse_revival(error),
            },
            State::Failing(_) if self.attempt_is_quiet() => self.put_back(),
            State::Draining | State::Failing(_) => return false,
        }
        true
    }

    /// Whether nothing has happened that an attempt must not begin after.
    fn can_begin(&self) -> bool {
        let fit = self.only_space_is_missing() && !self.has_lost_touch();
        fit && !self.orphans_may_count()
    }

    fn orphans_may_count(&self) -> bool {
        let mut sites = self.halted_sites();
        sites.any(|site| self.sets[site].orphans_may_count())
    }

    fn is_drained(&self) -> bool {
        let quiet = |site: Site| self.sets[site].idle_but_for_orphans();
        if !self.halted_sites().all(quiet) {
            return false;
        }
        if self.gathers_writes() {
            let users = self.overlay.as_ref().is_none_or(Overlay::is_idle);
            return users && self.keeping.is_idle();
        }
        self.overlay.as_ref().is_none_or(Overlay::is_quiet)
            && self.jobs.is_idle()
            && self.children.is_idle()
            && self.keeping.is_idle()
            && self.copies.is_empty()
    }

    fn begin_revival(&mut self) {
        let home = self.home().ties();
        let stays = self.gathers_writes();
        let mut former = Former {
            sets: PerSet::default(),
            started: self.started,
            stage: self.stage,
            absent: self.absent.take(),
            buffer_absent: self.buffer_absent.take(),
            above: None,
            home,
        };
        let sites: alloc::vec::Vec<Site> = self.halted_sites().collect();
        for site in sites {
            former.sets[site] = Some(self.renew(site));
            self.started[site] = false;
        }
        if !stays {
            former.above = Some(Above {
                overlay: self.overlay.take(),
                jobs: core::mem::take(&mut self.jobs),
                buffer: core::mem::take(&mut self.buffer),
            });
        }
        self.stage = Stage::Idle;
        self.revive.outcome = None;
        self.revive.state = State::Starting(Box::new(former));
        self.begin_start(TAG, self.revive.mode);
    }

    /// Puts a new engine in the place of a set's; the former one.
    fn renew(&mut self, site: Site) -> Part {
        let former = &self.sets[site];
        let fresh = former.renewed(self.shares[site].clone());
        let mut former = core::mem::replace(&mut self.sets[site], fresh);
        former.hand_operations_to(&mut self.sets[site]);
        former
    }

    /// Whether an attempt starts this set from the members that served until the halt, however few they are.
    pub(super) fn starts_from_those_that_served(&self, site: Site) -> bool {
        let former = self.revive.former();
        let set = former.and_then(|former| former.sets[site].as_ref());
        set.is_some_and(|set| set.is_complete())
    }

    /// A set of an attempt has been told to start.
    pub(super) fn revives_without_loss(&mut self, site: Site) {
        let former = self.revive.former();
        if former.is_some_and(|former| former.sets[site].is_some()) {
            self.sets[site].lose_nothing();
        }
    }

    fn revived(&mut self) {
        let State::Starting(former) = core::mem::take(&mut self.revive.state) else {
            unreachable!("just seen");
        };
        let former = *former;
        if self.stage == Stage::Alone && former.stage == Stage::Serving {
            // The log is not there yet.
            self.revive.state = State::Starting(Box::new(former));
            return self.refuse_revival(CommandError::NoSpace);
        }
        for (site, set) in SITES.into_iter().zip(&former.sets.0) {
            if let Some(set) = set {
                self.sets[site].go_on_after(set);
            }
        }
        if former.above.is_some() {
            self.at_home(|home| home.cache_forgets());
            self.policy.begin_anew();
        }
        self.revive.refused = Refused::default();
        self.revive.refused_write = false;
        let revive = &mut self.revive;
        keep_untold(&mut revive.former_facts, &revive.facts, is_failure);
        self.out.append(&mut self.revive.former_facts);
        self.out.append(&mut self.revive.facts);
        self.end_revival();
    }

    fn refuse_revival(&mut self, error: CommandError) {
        let State::Starting(former) = core::mem::take(&mut self.revive.state) else {
            unreachable!("just seen");
        };
        self.revive.state = State::Failing(former);
        self.revive.refused.record(error, &mut self.out);
    }

    fn attempt_is_quiet(&self) -> bool {
        let Some(former) = self.revive.former() else {
            return false;
        };
        let renewed = SITES
            .into_iter()
            .filter(|site| former.sets[*site].is_some());
        let mut quiet = renewed.map(|site| self.sets[site].idle_but_for_orphans());
        let above = former.above.is_none() || self.jobs.is_idle() && self.children.is_idle();
        quiet.all(|quiet| quiet) && above
    }

    fn put_back(&mut self) {
        let State::Failing(former) = core::mem::take(&mut self.revive.state) else {
            unreachable!("just seen");
        };
        let former = *former;
        self.stage = former.stage;
        for (site, set) in SITES.into_iter().zip(former.sets.0) {
            // One that the attempt was the first to start serves, and goes on to: the next attempt finds it so.
            let Some(mut set) = set else { continue };
            self.started[site] = former.started[site];
            self.sets[site].hand_operations_to(&mut set);
            // Recovery may have brought rows in sync that were in doubt.
            set.cache_forgets();
            set.arm_anew();
            self.sets[site] = set;
        }
        if let Some(above) = former.above {
            self.overlay = above.overlay;
            self.jobs = above.jobs;
            self.buffer = above.buffer;
        }
        (self.absent, self.buffer_absent) = (former.absent, former.buffer_absent);
        *self.sets[Site::Home].ties_mut() = former.home;
        for site in SITES {
            self.at(site, |set| set.wait_for_tier(false));
        }
        self.revive.facts.clear();
        self.out.append(&mut self.revive.former_facts);
        self.end_revival();
    }

    /// Requests and commands that waited go to the array as it is now.
    fn end_revival(&mut self) {
        self.revive.state = State::Rests;
        self.revive.requests = 0;
        let pause = match self.goes_on_without_log() {
            true => RETRY_OF_LOG,
            false => RETRY,
        };
        self.revive.not_before = self.now.after(pause);
        self.unshelve();
        for event in core::mem::take(&mut self.revive.waiting) {
            self.take(event);
        }
        self.children.delivered = true;
    }

    /// Tells what came of a set. What a set tells that an attempt started counts only once that serves.
    pub(super) fn tell_of(&mut self, site: Site, fact: Fact) {
        let former = self.revive.former();
        match former.is_some_and(|former| former.sets[site].is_some()) {
            true => self.revive.facts.push(Action::Fact(fact)),
            false => self.out.push(Action::Fact(fact)),
        }
    }

    /// Tells how a start goes: an attempt's counts only once it serves.
    pub(super) fn tell_of_start(&mut self, fact: Fact) {
        match self.revive.former() {
            Some(_) => self.revive.facts.push(Action::Fact(fact)),
            None => self.out.push(Action::Fact(fact)),
        }
    }

    /// A device came or went while sets are started anew: those that may come back hear of it, too.
    pub(super) fn tell_former(&mut self, site: Site, event: &Event) {
        let (State::Starting(former) | State::Failing(former)) = &mut self.revive.state else {
            return;
        };
        if let Some(set) = &mut former.sets[site] {
            let mut actions = Actions::new();
            set.step(self.now, event.clone(), &mut actions);
            actions.retain(|action| !matches!(action, Action::Wake(_)));
            for action in actions {
                match action {
                    Action::Fact(fact) => {
                        let fact = self.route.fact_of(site, fact);
                        self.revive.former_facts.push(Action::Fact(fact));
                    }
                    action => self.take_up(site, action),
                }
            }
        }
    }
}

/// Whether a fact is that a member of the main set or of the log set failed.
fn is_failure(fact: &Fact) -> bool {
    match fact {
        Fact::OfSurrogate(fact) => matches!(**fact, Fact::MemberFailed { .. }),
        fact => matches!(fact, Fact::MemberFailed { .. }),
    }
}
