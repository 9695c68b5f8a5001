//! How an array with a log set continues without a restart, after one of its sets halted for want of space.
//!
//! | state    | cause                                                       | next                                |
//! |----------|-------------------------------------------------------------|-------------------------------------|
//! | rests    | a write or command while a set is halted                    | draining                            |
//! | draining | the halted sets are quiet; so is the overlay, if it is replaced | starting                        |
//! | draining | a member of the attempt may still carry out an operation that was given up | rests: waiting requests continue |
//! | draining | a set fails for another reason                              | rests: waiting requests continue    |
//! | starting | the sets serve                                              | rests: waiting requests continue    |
//! | starting | the start was refused                                       | failing                             |
//! | failing  | the refused start is quiet: the former sets are put back    | rests: waiting requests continue    |
//!
//! A halted set is restarted by a new engine, as `revival` of a set does for an array without a log set. Sets
//! that serve continue. Requests and commands wait meanwhile.
//!
//! A **code cache** retains its overlay, because acknowledged writes may be in memory only. If the log has no
//! space, a request of the tier to the log fails for clients, but not for the tier. The tier shelves the
//! request, and issues it again once the log serves ([`Facts::shelves`]). So no record is missing from the
//! log, and the memory of a record stays until the log has it.
//!
//! **Other log sets** have no write in memory. The write that found no space breaks their overlay. A new
//! overlay is made from the content of the log, as every start does.

use super::append::Appends;
use super::append::Rounds;
use super::clean::Cleaning;
use super::deferred_mirror::DeferredMirror;
use super::destage::Destaging;
use super::destage::copies::Copies;
use super::destage::staging::Staging;
use super::facts::{Attempt, Facts, Former, Stage};
use super::nvram::{Buffer, Nvram};
use super::pack::Packs;
use super::reads::Reads;
use super::redirect::Redirects;
use super::redirect::hot_reads::HotReads;
use super::redirect::hot_zones::HotZones;
use super::remove::Removal;
use super::route::{PerSet, SITES};
use super::start::Start;
use super::start::reading::LogReader;
use super::stop::Stops;
use super::works::Jobs;
use super::works::Works;
use crate::config::{Config, SurrogateConfig};
use crate::overlay::format::AnchorTable;
use crate::overlay::{Overlay, Site};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use restripe_array::parts::{Part, RETRY, Refused, TAG, keep_untold};
use restripe_array::report::ArrayState;
use restripe_array::{
    Command, CommandError, Event, Fact, Halt, Nanos, Request, RequestOp, SECTOR_BYTES, StartMode,
};

/// The time between two attempts while primary copies serve without their log: each spins the mirrors up.
const RETRY_OF_LOG: Nanos = Nanos::from_secs(10);

#[derive(Default)]
pub(crate) struct Revive {
    /// The mode in which the array was started.
    mode: StartMode,
    /// Requests and commands that arrived during an attempt.
    waiting: VecDeque<Event>,
    requests: u32,
    not_before: Nanos,
    refused: Refused,
    /// The work for the overlay, which is put back if the start is refused.
    above: Option<Above>,
}

/// The work for an overlay.
struct Above {
    jobs: Jobs,
    table: Option<AnchorTable>,
    rounds: Rounds,
    buffer: Buffer,
}

impl Revive {
    pub(crate) fn has_room(&self, most: u32) -> bool {
        self.requests < most
    }

    /// Stores the mode in which the array is started.
    pub(crate) fn note(&mut self, mode: StartMode) {
        self.mode = mode.again();
    }
}

/// Whether a fact reports that a member of the main set or of the log set failed.
fn is_failure(fact: &Fact) -> bool {
    match fact {
        Fact::OfSurrogate(fact) => matches!(**fact, Fact::MemberFailed { .. }),
        fact => matches!(fact, Fact::MemberFailed { .. }),
    }
}

pub(crate) struct Revival {
    pub(crate) below: Stops,
    pub(crate) revive: Revive,
}

floor!(Revival over Stops);

impl Revival {
    pub(crate) fn new(config: Config, surrogate: SurrogateConfig) -> Revival {
        let reads = Reads::new(Works::new(config, surrogate));
        let packs = Packs::new(Appends::new(reads));
        let redirects = Redirects::new(DeferredMirror::new(Nvram::new(packs)));
        let cleaning = Cleaning::new(HotZones::new(HotReads::new(redirects)));
        let removal = Removal::new(Destaging::new(Copies::new(Staging::new(cleaning))));
        Revival {
            below: Stops::new(Start::new(LogReader::new(removal))),
            revive: Revive::default(),
        }
    }

    /// Whether the log serves, but takes no more writes: without redundancy a full set does not halt.
    fn is_log_left(&self) -> bool {
        let (log, overlay) = (self.log(), self.overlay.as_ref());
        let broken = overlay.is_some_and(|one| one.is_broken() && !one.is_logless());
        let serves = self.started[Site::Log] && log.serving() && !log.halted();
        broken && serves && log.state() != ArrayState::Failed
    }

    /// Takes a request or a command that has to wait. Returns one that need not wait.
    pub(crate) fn park(&mut self, event: Event) -> Option<Event> {
        let asks = matches!(event, Event::Request(_) | Event::Command(..));
        if self.attempt.rests() && self.calls_for_it(&event) {
            self.attempt = Attempt::Draining;
            if !self.packs_writes()
                && let Some(overlay) = &mut self.overlay
            {
                overlay.rest();
            }
        }
        if self.attempt.rests() || !asks {
            return Some(event);
        }
        self.revive.requests += u32::from(matches!(event, Event::Request(_)));
        self.revive.waiting.push_back(event);
        None
    }

    /// Whether an event justifies an attempt.
    fn calls_for_it(&self, event: &Event) -> bool {
        // Nearly always nothing is halted, and then no request is looked up in the map.
        if self.halted_sites().next().is_none() && !self.is_log_left() {
            return false;
        }
        let serves = matches!(self.stage, Stage::Serving | Stage::MainOnly);
        let may_write = !self.revive.mode.read_only && !self.is_leaving();
        let asks = match event {
            Event::Request(request) => {
                let in_time = self.now >= self.revive.not_before;
                in_time && request.op != RequestOp::Read && self.needs_revival(request)
            }
            Event::Command(_, command) => !matches!(command, Command::Start(_)),
            _ => false,
        };
        let overlay = self.overlay.as_ref();
        let unlogged = overlay.is_some_and(|one| one.is_primary_only() && !one.is_drained());
        let held_unlogged = unlogged && !self.is_logless() && !self.home().halted();
        let fit = self.only_space_is_missing() && !self.has_lost_touch();
        serves && may_write && asks && !held_unlogged && fit
    }

    /// Whether a code cache's log failed for another reason. Then no attempt may drop writes that only memory
    /// has.
    fn has_lost_touch(&self) -> bool {
        let overlay = self.overlay.as_ref();
        overlay.is_some_and(|one| one.pack_state().is_some() && one.is_broken())
    }

    /// Whether no set halted for a reason other than space. Such a set could not record a number of the
    /// attempt, and the other sets would have a higher one.
    fn only_space_is_missing(&self) -> bool {
        let halts = [Site::Home, Site::Log].map(|site| self.sets[site].halt());
        let fits = |halt: &Option<Halt>| matches!(halt, None | Some(Halt::NoSpace));
        halts.iter().all(fits)
    }

    /// Whether clients need the halted set. Flushes need a broken log, as do writes over its data.
    fn needs_revival(&self, request: &Request) -> bool {
        let defers = self.surrogate.redirect.goes_ahead();
        let all = self.has_no_space(Site::Home) || self.packs_writes() || defers;
        let flushes = request.op == RequestOp::Flush;
        all || flushes || self.refused_write || self.meets_log(request)
    }

    fn meets_log(&self, request: &Request) -> bool {
        let (lba, sectors) = (request.offset / SECTOR_BYTES, request.bytes / SECTOR_BYTES);
        let overlay = self.overlay.as_ref();
        let left = overlay.map(|one| one.not_instead(lba..lba + sectors));
        let left: u64 = left.iter().flatten().map(|(_, sectors)| sectors).sum();
        overlay.is_some() && left < sectors
    }

    /// The events that waited for an attempt that has ended.
    pub(crate) fn released(&mut self) -> VecDeque<Event> {
        match self.attempt.rests() {
            true => core::mem::take(&mut self.revive.waiting),
            false => VecDeque::new(),
        }
    }

    /// Continues an attempt. Returns false if it has to wait.
    pub(crate) fn advance_revival(&mut self) -> bool {
        match &self.attempt {
            Attempt::Rests => return false,
            Attempt::Draining if !self.can_begin() => self.end_revival(),
            Attempt::Draining if self.is_drained() => self.begin_revival(),
            Attempt::Starting(_) => match self.outcome.take() {
                None => return false,
                Some(Ok(())) => self.revived(),
                Some(Err(error)) => self.refuse_revival(error),
            },
            Attempt::Failing(_) if self.attempt_is_quiet() => self.put_back(),
            Attempt::Draining | Attempt::Failing(_) => return false,
        }
        true
    }

    /// Whether nothing has happened that forbids an attempt.
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
        if self.packs_writes() {
            let clients = self.overlay.as_ref().is_none_or(|one| one.is_idle());
            return clients && self.read_parts.is_idle();
        }
        self.overlay.as_ref().is_none_or(Overlay::is_quiet)
            && self.works_idle()
            && self.children_idle()
            && self.read_parts.is_idle()
            && self.clean_copies.is_empty()
    }

    fn begin_revival(&mut self) {
        let home = self.home().ties();
        let stays = self.packs_writes();
        let mut former = Former {
            sets: PerSet::default(),
            started: self.started,
            stage: self.stage,
            absent: self.absent.take(),
            buffer_absent: self.buffer_absent.take(),
            overlay_stays: stays,
            overlay: None,
            home,
        };
        let sites: alloc::vec::Vec<Site> = self.halted_sites().collect();
        for site in sites {
            former.sets[site] = Some(self.renew(site));
            self.started[site] = false;
        }
        if !stays {
            former.overlay = self.overlay.take();
            self.revive.above = Some(Above {
                jobs: core::mem::take(&mut self.jobs),
                table: self.table.take(),
                rounds: core::mem::take(&mut self.rounds),
                buffer: core::mem::take(&mut self.buffer),
            });
        }
        self.stage = Stage::Idle;
        self.outcome = None;
        self.attempt = Attempt::Starting(Box::new(former));
        let mode = self.revive.mode;
        self.begin_start(TAG, mode);
    }

    /// Replaces a set's engine by a new one. Returns the former one.
    fn renew(&mut self, site: Site) -> Part {
        let former = &self.sets[site];
        let fresh = former.renewed(self.shares[site].clone());
        let mut former = core::mem::replace(&mut self.sets[site], fresh);
        former.hand_operations_to(&mut self.sets[site]);
        former
    }

    fn revived(&mut self) {
        let Attempt::Starting(former) = core::mem::take(&mut self.attempt) else {
            unreachable!("just seen");
        };
        let former = *former;
        if self.stage == Stage::MainOnly && former.stage == Stage::Serving {
            // The log is not there yet.
            self.attempt = Attempt::Starting(Box::new(former));
            return self.refuse_revival(CommandError::NoSpace);
        }
        for (site, set) in SITES.into_iter().zip(&former.sets.0) {
            if let Some(set) = set {
                self.sets[site].go_on_after(set);
            }
        }
        if !former.overlay_stays {
            self.at_home(|home| home.cache_forgets());
            self.begin_destaging_anew();
        }
        self.revive.above = None;
        self.revive.refused = Refused::default();
        self.refused_write = false;
        let facts: &mut Facts = self;
        keep_untold(&mut facts.former_facts, &facts.attempt_facts, is_failure);
        facts.out.append(&mut facts.former_facts);
        facts.out.append(&mut facts.attempt_facts);
        self.end_revival();
    }

    fn refuse_revival(&mut self, error: CommandError) {
        let Attempt::Starting(former) = core::mem::take(&mut self.attempt) else {
            unreachable!("just seen");
        };
        self.attempt = Attempt::Failing(former);
        self.revive.refused.record(error, &mut self.below.out);
    }

    fn attempt_is_quiet(&self) -> bool {
        let Some(former) = self.attempt.former() else {
            return false;
        };
        let renewed = SITES
            .into_iter()
            .filter(|site| former.sets[*site].is_some());
        let mut quiet = renewed.map(|site| self.sets[site].idle_but_for_orphans());
        let above = former.overlay_stays || self.works_idle() && self.children_idle();
        quiet.all(|quiet| quiet) && above
    }

    fn put_back(&mut self) {
        let Attempt::Failing(former) = core::mem::take(&mut self.attempt) else {
            unreachable!("just seen");
        };
        let former = *former;
        self.stage = former.stage;
        for (site, set) in SITES.into_iter().zip(former.sets.0) {
            // A set that only the attempt could start serves, and continues to: the next attempt finds it so.
            let Some(mut set) = set else { continue };
            self.started[site] = former.started[site];
            self.sets[site].hand_operations_to(&mut set);
            // Recovery may have brought dirty rows in sync.
            set.cache_forgets();
            set.arm_anew();
            self.sets[site] = set;
        }
        if let Some(above) = self.revive.above.take() {
            self.overlay = former.overlay;
            self.jobs = above.jobs;
            self.table = above.table;
            self.rounds = above.rounds;
            self.buffer = above.buffer;
        }
        (self.absent, self.buffer_absent) = (former.absent, former.buffer_absent);
        *self.sets[Site::Home].ties_mut() = former.home;
        for site in SITES {
            self.at(site, |set| set.wait_for_tier(false));
        }
        self.attempt_facts.clear();
        let facts: &mut Facts = self;
        facts.out.append(&mut facts.former_facts);
        self.end_revival();
    }

    /// Lets the waiting requests and commands go to the array as it is now.
    fn end_revival(&mut self) {
        self.attempt = Attempt::Rests;
        self.revive.requests = 0;
        let pause = match self.goes_on_without_log() {
            true => RETRY_OF_LOG,
            false => RETRY,
        };
        self.revive.not_before = self.now.after(pause);
        self.unshelve();
        self.delivered = true;
    }
}
