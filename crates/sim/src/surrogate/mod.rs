//! Whole lives of an array with a surrogate, from one seed: writes that are moved away while a member is
//! rebuilt, and that come home again, with failures in both sets and crashes at any moment.
//!
//! Whole bytes stand for sectors: a record's header lies among data, and no token holds a page.

mod buffer;
mod coverage;
mod directed;
mod faults;
mod moment;
mod plan;
mod removal;
mod rot;

use crate::array::{Spec, earlier, superblock_of};
use crate::atlas::Atlas;
use crate::disk::{Disk, Simple};
use crate::fault::Fault;
use crate::image::Image;
use crate::invariant::{Invariant, Violation};
use crate::oracle::Oracle;
use crate::payload::Payload;
use crate::rng::Rng;
use crate::run::{Base, Course, End, HasSession};
use crate::session::{News, PATIENCE, Session};
use crate::tally::{Tally, add};
use crate::world::{World, WorldConfig, members_in};
use buffer::{Buffers, Refused};
pub use coverage::{Incident, Phase};
use directed::Directed;
pub use moment::{Event, Moment, seeds_for, why_not};
use plan::Plan;
use removal::{Removal, Removals};
use restripe_array::layout::{Layout, Level};
use restripe_array::report::MemberState;
use restripe_array::report::Status as SetStatus;
use restripe_array::{Command, CommandError, CommandTag, Fact, Limits, Member, Nanos, StartMode};
use restripe_tier::report::{OverlayStatus, Status};
use restripe_tier::{Config, Engine, SurrogateConfig};
use std::collections::BTreeSet;

/// What is not left to the seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Say what happens.
    pub trace: bool,
    /// Home is of level 4 and grows.
    pub grows: bool,
    /// Every write goes into a log of clusters at all times (RERAID).
    pub gathers: bool,
    /// Every write goes into a log, and to first copies (GRAID).
    pub graid: bool,
    /// Every write goes to first copies, and nowhere else (ERAID).
    pub eraid: bool,
    /// And each event is to meet each of its moments, by turns ([`Moment`], [`Event`]).
    pub quests: bool,
    /// The bug that the engine is to have.
    pub bug: Option<restripe_array::Bug>,
}

impl Options {
    /// As the command has it.
    pub fn family(&self) -> &'static str {
        match self {
            Options { grows: true, .. } => " --growth",
            Options { quests: true, .. } => " --gathers --quests",
            Options { gathers: true, .. } => " --gathers",
            Options { graid: true, .. } => " --graid",
            Options { eraid: true, .. } => " --eraid",
            _ => "",
        }
    }
}

/// What came of a seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub violations: Vec<Violation>,
    /// Of all actions of all lives.
    pub digest: u64,
    /// How often was met what a run is to meet.
    pub met: Tally<&'static str>,
    /// Incidents by where users' data were.
    pub incidents: Tally<(Phase, Incident)>,
    /// Of a code cache: events by what it was at.
    pub events: Tally<(Moment, Event)>,
}

impl Outcome {
    /// Adds what another run met.
    pub fn add(&mut self, other: &Outcome) {
        add(&mut self.met, &other.met);
        add(&mut self.incidents, &other.incidents);
        add(&mut self.events, &other.events);
    }
}

/// A device that does not answer for so long is given up.
const IO_TIMEOUT: Nanos = Nanos::from_secs(5);

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Outcome {
    Run::new(seed, options).finish()
}

struct Run {
    seed: u64,
    base: Base,
    options: Options,
    plan: Plan,
    home: Vec<Disk>,
    log: Vec<Disk>,
    buffer: Vec<Disk>,
    buffers: Buffers,
    removals: Removals,
    /// Members of each set were lost in the life that ended, or in one before that since when nothing was served.
    lost_lately: [bool; 3],
    /// The surrogate is lost as a whole.
    log_gone: bool,
    /// The log disk of first copies that go ahead was lost in this life.
    log_away: bool,
    /// That loss was accepted: whatever comes back of it is a stranger.
    forgone: bool,
    /// Pages of the log rotted, and no start has read it since.
    rotten: bool,
    /// Parities of the log rotted with a header of their row: a start reads around them, and mends the header alone.
    parities_rotten: bool,
    /// Generation and sequence of the newest superblock that a disk of each set has taken away for good.
    taken: [(u64, u64); 3],
    directed: Option<Directed>,
    /// Directed scenarios so far, of these for the run's own cell, and the cell that was the last.
    scenarios: u64,
    tries: u64,
    turn: u64,
    /// The run's own cell.
    goal: (Moment, Event),
    /// What the code cache was at when it crashed.
    crashed_at: BTreeSet<Moment>,
    outcome: Outcome,
}

struct Life {
    session: Session<Engine>,
    /// Disks of home, of the log, and of none, in the order of their numbers.
    sites: Vec<Site>,
    steps: u64,
    crash_after: Option<u64>,
    /// Members may fail in this life: somebody did something to them.
    troubled: [bool; 3],
    serving: bool,
    /// It was told to stop; it is to be.
    stopping: bool,
    stop_due: bool,
    /// Sectors of first copies were made bad.
    bad_sectors: bool,
    /// Members that will not wake, and do not have to yet.
    spoilt: Vec<Member>,
    /// No member is replaced before this step.
    mend_after: u64,
    removal: Removal,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Site {
    Home,
    Log,
    Buffer,
}

impl Run {
    fn new(seed: u64, options: Options) -> Run {
        let mut rng = Rng::new(seed);
        let mut plan = Plan::draw(&mut rng, options);
        if options.quests {
            plan.suit(seed);
        }
        let creation = plan.home.create().expect("plans are made to fit");
        let layout = Layout::new(creation.geometry).expect("a created geometry is sound");
        let (payload, Options { bug, trace, .. }) = (Payload::Bytes, options);
        let mut base = Base::new(seed, rng, layout, payload, 1, bug, trace);
        let home = format(&plan, &plan.home, base.rng.word());
        let mut log = format(&plan, &plan.log, base.rng.word());
        if options.eraid {
            log.clear();
        }
        let buffer = plan.buffer.clone();
        let buffer = buffer.map_or(Vec::new(), |spec| format(&plan, &spec, 0xb0f ^ seed));
        let run = Run {
            seed,
            base,
            options,
            home,
            log,
            buffer,
            buffers: Buffers::new(seed),
            removals: Removals::new(seed),
            lost_lately: [false; 3],
            log_gone: false,
            log_away: false,
            forgone: false,
            rotten: false,
            parities_rotten: false,
            taken: [(0, 0); 3],
            directed: None,
            scenarios: 0,
            tries: 0,
            turn: seed,
            goal: Directed::cell(seed),
            crashed_at: BTreeSet::new(),
            outcome: Outcome::default(),
            plan,
        };
        run.base.say(|| format!("seed {seed}: {:?}", run.plan));
        run
    }

    fn finish(mut self) -> Outcome {
        self.live_all();
        Outcome {
            violations: self.base.violations,
            digest: self.base.digest,
            met: self.base.counts,
            ..self.outcome
        }
    }

    fn live_all(&mut self) {
        for _ in 0..self.plan.lives {
            let crash = self.base.rng.chance(3, 4);
            let most = *self.base.rng.pick(&[30, 200, 1000, 4000]);
            let crash_after = crash.then(|| self.base.rng.between(1, most));
            // What a run sets out for would seldom come before that.
            let crash_after = crash_after.filter(|_| !directed::seeks(self));
            if !self.live(crash_after, false) {
                return;
            }
        }
        directed::end_directed(self);
        let mut whole = self.live(None, true);
        while whole && buffer::is_needed(self) {
            whole = self.live(None, true);
        }
        if whole {
            self.without_surrogate();
        }
    }

    /// One life. False when something was broken.
    fn live(&mut self, crash_after: Option<u64>, last: bool) -> bool {
        let with = !self.log_gone || !self.log.is_empty() && self.base.rng.chance(1, 2);
        let mut life = self.begin(with, crash_after);
        let hushed = self.base.deaths.hushes() && !last;
        let end = match self.start(&mut life) {
            Some(end) => end,
            None if last => self.come_to_rest(&mut life),
            None if hushed => self.flush_alone(&mut life),
            None => self.serve(&mut life),
        };
        self.end(life, end)
    }

    fn begin(&mut self, with: bool, crash_after: Option<u64>) -> Life {
        self.log_away = self.log_gone;
        let on_record = removal::is_on_record(self);
        let removal = self.removals.of_life(on_record);
        let with = with && !on_record;
        let mut disks = std::mem::take(&mut self.home);
        let mut sites = vec![Site::Home; disks.len()];
        let log = match with {
            true => std::mem::take(&mut self.log),
            false => Vec::new(),
        };
        sites.resize(disks.len() + log.len(), Site::Log);
        let buffer = buffer::take(self, with);
        sites.resize(sites.len() + buffer.len(), Site::Buffer);
        let (limits, surrogate) = self.plan.limits();
        let surrogate = SurrogateConfig {
            buffer_members: buffer.len() as u16,
            members: log.len() as u16,
            limits: surrogate,
            redirect: self.plan.redirect,
            scrubs: self.plan.scrubs,
            destage: self.plan.destage,
        };
        disks.extend(log);
        disks.extend(buffer);
        let config = Config {
            members: Vec::new(),
            limits,
            surrogate: with.then_some(surrogate),
            io_timeout: IO_TIMEOUT,
            bug: self.options.bug,
        };
        let of_world = Limits {
            ios: 1 << 16,
            ..limits
        };
        let world = WorldConfig::strict(Payload::Bytes, of_world);
        let session = self
            .base
            .begin_session(disks, config, world, &[0, 1_000, 3_000_000]);
        Life {
            session,
            sites,
            steps: 0,
            crash_after,
            troubled: [false; 3],
            serving: false,
            stopping: false,
            stop_due: false,
            bad_sectors: false,
            spoilt: Vec::new(),
            mend_after: 0,
            removal,
        }
    }

    /// Home may have grown.
    fn take_capacity(&mut self, life: &mut Life) {
        if self.plan.grows && self.base.take_capacity(&mut life.session) {
            self.base.count("growths of home", 1);
        }
    }

    // ----------------------------------------------------------------------------------------------------- starting

    /// Starts the array. `None` when it serves.
    fn start(&mut self, life: &mut Life) -> Option<End> {
        let mut mode = StartMode::default();
        for _ in 0..4 {
            let tag = life.session.command(Command::Start(mode));
            let error = match self.answer(life, tag) {
                Ok(Ok(())) => {
                    self.started(life, mode);
                    return None;
                }
                Ok(Err(error)) => error,
                Err(end) => return Some(end),
            };
            self.base.say(|| format!("  start refused: {error:?}"));
            if let Some(end) = buffer::refused(self, life, &error, &mut mode) {
                match end {
                    Refused::Again => continue,
                    Refused::End(end) => return Some(end),
                }
            }
            let (site, inner) = match &error {
                CommandError::OfSurrogate(inner) => (Site::Log, &**inner),
                own => (Site::Home, own),
            };
            match inner {
                CommandError::Foreign(_) if site == Site::Log && self.forgone => {
                    self.base.count("surrogates that were given up refused", 1);
                    return Some(End::Forgo);
                }
                CommandError::Minority { .. } if self.outdated(life, site) => {
                    self.base.count("outdated minorities refused", 1);
                    return Some(match site {
                        Site::Home => End::Beyond,
                        Site::Log | Site::Buffer => End::Forgo,
                    });
                }
                CommandError::Minority { .. } if !mode.from_minority => mode.from_minority = true,
                CommandError::SurrogateMissing { .. } | CommandError::LogDamaged { .. }
                    if self.may_miss(life) && !mode.accept_loss =>
                {
                    self.miss(life, &mut mode);
                }
                // From a member that another has replaced, and those that followed are gone.
                CommandError::LogIsOld
                    if site == Site::Log
                        && mode.from_minority
                        && self.may_miss(life)
                        && !mode.accept_loss =>
                {
                    self.miss(life, &mut mode);
                }
                // What is left of the log can be read in part, and not be written.
                CommandError::Metadata
                    if site == Site::Log && mode.accept_loss && self.may_miss(life) =>
                {
                    return Some(End::Forgo);
                }
                CommandError::WouldLose { .. } if life.session.oracle.allows_losses() => {
                    mode.accept_loss = true;
                }
                _ => {
                    let detail = format!("{mode:?}: {error:?}");
                    return Some(life.broken(Invariant::StartRefused, detail));
                }
            }
        }
        let detail = format!("{mode:?}, over and over");
        Some(life.broken(Invariant::StartRefused, detail))
    }

    /// Goes on without what the surrogate held.
    fn miss(&mut self, life: &mut Life, mode: &mut StartMode) {
        removal::is_not_on_record(self);
        life.session.oracle.allow_all_losses();
        self.base.count("starts without a lost surrogate", 1);
        mode.accept_loss = true;
    }

    fn started(&mut self, life: &mut Life, mode: StartMode) {
        life.serving = true;
        removal::started(self, life, mode);
        self.rotten &= !life.sites.contains(&Site::Log);
        let crashed_at = std::mem::take(&mut self.crashed_at);
        directed::count_event(self, crashed_at, Event::Start);
        self.take_capacity(life);
        self.forgone |= mode.accept_loss && !life.sites.contains(&Site::Log);
    }

    /// Whether a disk that is gone for good knew more than those of this set that are here: an operator would not start it
    /// from these, since they hold what was replaced long ago.
    fn outdated(&self, life: &Life, site: Site) -> bool {
        let world = &life.session.world;
        let of_site = life.sites.iter().enumerate().filter(|(_, of)| **of == site);
        let disks = of_site.map(|(member, _)| world.disk(Member(member as u16)));
        let here = disks.map(age).max().unwrap_or_default();
        here.0 < self.taken[site as usize].0
    }

    /// Whether what the surrogate held may be lost: with it, or with a member of it and a crash.
    fn may_miss(&self, life: &Life) -> bool {
        let lost = self.log_gone || self.lost_lately[Site::Log as usize];
        lost && !life.removal.is_on_record()
    }

    fn fact(&mut self, life: &mut Life, fact: &Fact) {
        match fact {
            Fact::MemberFailed { .. } => judge_failure(life, Site::Home, "", fact),
            Fact::OfBuffer(fact) => judge_failure(life, Site::Buffer, "of the buffer: ", fact),
            Fact::BufferFailed if !life.troubled[Site::Buffer as usize] => {
                life.broken(Invariant::MemberFailedWrongly, "the buffer");
            }
            Fact::BufferFailed => self.base.count("buffers failed", 1),
            Fact::BufferAbsent { .. } => self.base.count("starts without a buffer", 1),
            Fact::TaskStarted { .. } => self.base.count("tasks of home", 1),
            Fact::TaskEnded { .. } => self.take_capacity(life),
            Fact::Lost { lba, sectors } => {
                life.session.judge_loss(*lba, *sectors);
            }
            Fact::OfSurrogate(fact) => match &**fact {
                Fact::MemberFailed { .. } => {
                    judge_failure(life, Site::Log, "of the surrogate: ", fact);
                }
                Fact::TaskStarted { .. } => self.base.count("tasks of the surrogate", 1),
                Fact::Repaired { rotten: true, .. } => self.base.count("repairs of rot", 1),
                _ => {}
            },
            _ => {}
        }
    }

    // ------------------------------------------------------------------------------------------------------ serving

    fn serve(&mut self, life: &mut Life) -> End {
        let (min, max) = (self.plan.pace, self.plan.pace);
        life.session.command(Command::Rate { min, max });
        let mut issued = 0;
        while issued < self.plan.requests
            || life.session.outstanding() > 0
            || directed::is_at_it(self)
        {
            while issued < self.plan.requests
                && life.session.outstanding() < self.plan.depth
                && life.session.world.ready()
                && !directed::holds(self)
            {
                let ask = self.base.workload.draw();
                directed::request(self, life, ask);
                issued += 1;
                let status = life.session.world.status();
                let busy = !status.tasks.is_empty() || away(&status) > 0;
                let seeks = if directed::seeks(self) { 4 } else { 1 };
                let calm = self.plan.calm.max(seeks);
                if self.base.rng.chance(1, calm * if busy { 4 } else { 12 }) {
                    faults::perturb(self, life, busy);
                }
            }
            self.hear(life, None);
            if let Some(end) = self.step(life) {
                return end;
            }
            if life.stop_due {
                return self.stop(life);
            }
        }
        for _ in 0..*self.base.rng.pick(&[0, 0, 100, 1000]) {
            if let Some(end) = self.step(life) {
                return end;
            }
            if life.stop_due {
                break;
            }
            self.hear(life, None);
        }
        self.stop(life)
    }

    // --------------------------------------------------------------------------------------------------------- ends

    /// Everything comes home, and is looked at.
    fn come_to_rest(&mut self, life: &mut Life) -> End {
        life.session.command(Command::Pause(false));
        let (min, max) = (u64::MAX, u64::MAX);
        life.session.command(Command::Rate { min, max });
        let failed = members_in(&life.session.world.status(), MemberState::Failed);
        for member in failed {
            life.session.command(Command::Add(member));
        }
        for round in 0..200_000 {
            if self.plan.redirect.is_constant() && round % 1000 == 0 {
                life.session.command(Command::Destage);
            }
            self.hear(life, None);
            let status = life.session.world.status();
            let at_rest = life.session.world.quiescent() && status.tasks.is_empty();
            if at_rest && away(&status) == 0 && !going_home(&status) {
                break;
            }
            if let Some(end) = self.step(life) {
                return end;
            }
        }
        let status = life.session.world.status();
        if away(&status) > 0 {
            let detail = format!("not everything comes home: {:?}", status.surrogate);
            return life.broken(Invariant::TaskFailed, detail);
        }
        if !self.base.read_all(&mut life.session) {
            return End::Broken;
        }
        self.stop(life)
    }

    fn end(&mut self, mut life: Life, end: End) -> bool {
        let status = life.session.world.status();
        let (steps, surrogate) = (life.steps, &status.surrogate);
        let say = || format!("  life ends: {end:?} after {steps} steps, {surrogate:?}");
        self.base.say(say);
        let cached = status.counters.blocks_cached;
        self.base.count("blocks from the read cache", cached);
        if let Some(overlay) = overlay(&status) {
            let counters = overlay.counters;
            for (what, times) in [
                ("writes redirected", counters.redirected_writes),
                ("reads of the log", counters.reads_of_log),
                ("reads of both", counters.reads_of_both),
                ("sectors home", counters.sectors_destaged),
                ("clusters read", counters.clusters_read),
                ("clusters read again", counters.clusters_reread),
                ("rests of mirrors", overlay.rests),
                ("destages", overlay.destages),
                ("cleanings", counters.cleanings),
                ("sectors moved", counters.sectors_moved),
                ("clean copies", counters.clean_copies),
                ("records kept in buffers", counters.versions),
            ] {
                self.base.count(what, times);
            }
        }
        let sweeps = self.base.deaths.sweeps();
        let bears = end == End::Crash && !sweeps && !self.options.quests;
        let dies = bears && !life.troubled.contains(&true) && self.base.deaths.is_death();
        if dies {
            faults::note(self, &life, Incident::Death);
        } else if end == End::Crash {
            faults::note(self, &life, Incident::Crash);
            directed::note_event(self, &life, Event::Crash);
            if self.options.gathers && !removal::is_removed(self) {
                self.crashed_at = Moment::of_life(&life);
            }
        }
        removal::look_at_what_was_let_go(&mut life);
        if !self.base.settle(&life.session) {
            return false;
        }
        self.cut(life, end, sweeps, dies)
    }

    /// Power goes, also after an orderly stop, or the daemon alone dies.
    fn cut(&mut self, life: Life, end: End, sweeps: bool, dies: bool) -> bool {
        let overlay = overlay(&life.session.world.status());
        let ahead = overlay.is_some_and(|overlay| overlay.ahead);
        let phase = Phase::of(&life.session.world.status(), life.serving);
        let whole = rot::log_is_whole(self, &life);
        let Life {
            session,
            sites,
            troubled,
            serving,
            removal,
            ..
        } = life;
        for (lately, troubled) in self.lost_lately.iter_mut().zip(troubled) {
            *lately = troubled || *lately && !serving;
        }
        let Session {
            mut world,
            mut oracle,
            ..
        } = session;
        mend(&mut world);
        self.base.now = world.now();
        let site = world.site();
        // What was acknowledged may lie in the memory of a code cache.
        match dies && !self.options.gathers {
            true => oracle.death(),
            false => oracle.crash(),
        }
        if dies {
            oracle.outlived();
        }
        let cut = match self.base.rng.chance(1, 4) {
            true => site.nothing(),
            false => site.sample(&mut self.base.rng),
        };
        let cut = if sweeps { site.nothing() } else { cut };
        let disks = site.next(world.into_disks(), &cut, dies);
        for (disk, site) in disks.into_iter().zip(sites) {
            match site {
                _ if disk.faults.doomed() => {
                    let taken = &mut self.taken[site as usize];
                    *taken = age(&disk).max(*taken);
                }
                Site::Home => self.home.push(disk),
                Site::Log => self.log.push(disk),
                Site::Buffer => self.buffer.push(disk),
            }
        }
        if self.plan.buffer.is_some() {
            buffer::settle(self);
        }
        removal::settle(self, &removal);
        let ahead = ahead && !troubled[Site::Home as usize] && !dies;
        let goes_on = self.settle_cut(oracle, end, ahead);
        if goes_on && whole && !dies && rot::rot(self, end) {
            let cell = (phase, Incident::Rot);
            *self.outcome.incidents.entry(cell).or_default() += 1;
        }
        goes_on
    }

    /// What of both sets is there afterwards, and what may be lost with the rest.
    fn settle_cut(&mut self, mut oracle: Oracle, end: End, ahead: bool) -> bool {
        if self.options.graid && ahead && self.base.rng.chance(1, 8) {
            // First copies have all that was flushed.
            self.log.clear();
            self.log_gone = true;
            self.base.count("log disks lost with a crash", 1);
        }
        if end == End::Forgo {
            self.log.clear();
            self.log_gone = true;
            oracle.allow_all_losses();
        }
        // Most of a log may have been given up one by one, and be what is left when the rest is gone for good: a majority of what it
        // knows. An operator would not start from these.
        let newest = self.log.iter().map(age).max().unwrap_or_default();
        let many = matches!(self.plan.log.level, Level::ReedSolomon { .. });
        if many && !self.log.is_empty() && newest.0 < self.taken[Site::Log as usize].0 {
            self.log.clear();
            self.log_gone = true;
            oracle.allow_all_losses();
            self.base.count("outdated logs left out", 1);
        }
        let whole = |disks: &[Disk]| Atlas::of(disks.iter()).is_some_and(|atlas| atlas.whole(None));
        let removed = removal::is_on_record(self);
        if !self.options.eraid && !removed && !whole(&self.log) {
            self.log_gone = true;
            if !self.options.graid {
                oracle.allow_all_losses();
            }
        }
        if !whole(&self.home) || end == End::Beyond {
            self.base.count("runs beyond redundancy", 1);
            return false;
        }
        if let Some(atlas) = Atlas::of(self.home.iter()) {
            let lost_lately = self.lost_lately[Site::Home as usize];
            atlas.grant_losses(self.plan.home.write_hole, lost_lately, &mut oracle);
        }
        if self.options.eraid && self.lost_lately[Site::Home as usize] {
            oracle.allow_all_losses();
        }
        if self.lost_lately[Site::Log as usize] && !removed {
            // What was being written there may be lost with the member, and with it what it stood for.
            let unsettled: Vec<u64> = (0..oracle.sectors())
                .filter(|lba| oracle.unsettled(*lba))
                .collect();
            unsettled.into_iter().for_each(|lba| oracle.allow_loss(lba));
        }
        self.base.oracle = Some(oracle);
        true
    }

    /// Home has everything: it serves alone.
    fn without_surrogate(&mut self) {
        let mut life = self.begin(false, None);
        let end = match self.start(&mut life) {
            Some(end) => end,
            None if self.base.read_all(&mut life.session) => self.stop(&mut life),
            None => End::Broken,
        };
        if self.end(life, end) {
            self.base.count("runs to the end", 1);
        }
    }
}

impl HasSession for Life {
    fn session(&mut self) -> &mut Session<Engine> {
        &mut self.session
    }
}

impl Course for Run {
    type Life = Life;

    fn base(&mut self) -> &mut Base {
        &mut self.base
    }

    fn hear(
        &mut self,
        life: &mut Life,
        tag: Option<CommandTag>,
    ) -> Option<Result<(), CommandError>> {
        let mut answer = None;
        while let Some(news) = life.session.news() {
            self.base
                .say(|| format!("  {:>14} {news:?}", life.session.world.now().0));
            match news {
                News::CommandReply(answered, result) if Some(answered) == tag => {
                    answer = Some(result);
                }
                News::CommandReply(answered, result) if life.removal.is_asked_by(answered) => {
                    removal::answered(self, life, &result);
                }
                News::Fact(fact) => self.fact(life, &fact),
                News::Mark(member) => faults::come_back(self, life, Member(member as u16)),
                News::CommandReply(..) => {}
            }
        }
        answer
    }

    fn step(&mut self, life: &mut Life) -> Option<End> {
        if life.session.violations().next().is_some() {
            return Some(End::Broken);
        }
        if life.crash_after.is_some_and(|after| life.steps >= after) {
            return Some(End::Crash);
        }
        life.steps += 1;
        let more = life.session.step();
        let oldest = life.session.world.oldest_outstanding();
        let now = life.session.world.now();
        if oldest.is_some_and(|since| !more || now.since(since) > PATIENCE) {
            let detail = format!(
                "{} requests and the commands wait; {} operations under way; {}; {:?}",
                life.session.outstanding(),
                life.session.world.operations(),
                life.session.waiting(),
                life.session.world.status().surrogate
            );
            return Some(life.broken(Invariant::StuckRequest, detail));
        }
        if self.options.gathers {
            faults::watch_sleepers(life);
        }
        directed::look(self, life, more);
        let crashes = life.crash_after.is_some_and(|after| life.steps >= after);
        (self.options.quests && crashes).then_some(End::Crash)
    }

    fn stop(&mut self, life: &mut Life) -> End {
        directed::note_event(self, life, Event::Stop);
        life.stopping = true;
        let ticket = life.session.oracle.flush();
        life.session.refusals_expected = true;
        let tag = life.session.command(Command::Stop);
        match self.answer(life, tag) {
            Err(end) => end,
            Ok(Ok(())) => {
                life.session.oracle.flush_ended(ticket, true);
                End::Stop
            }
            Ok(Err(CommandError::OfSurrogate(_)))
                if life.troubled[Site::Log as usize] && !removal::is_removed(self) =>
            {
                life.session.oracle.flush_ended(ticket, false);
                End::Stop
            }
            Ok(Err(CommandError::TooFew { .. })) if life.session.halted.is_some() => {
                life.session.oracle.flush_ended(ticket, false);
                End::Stop
            }
            Ok(Err(error)) => {
                let detail = format!("it does not stop: {error:?}");
                life.broken(Invariant::StuckRequest, detail)
            }
        }
    }
}

/// Members fail only in sets that something happened to.
fn judge_failure(life: &mut Life, site: Site, of: &str, fact: &Fact) {
    if let Fact::MemberFailed { member, why } = fact
        && !life.troubled[site as usize]
    {
        let detail = format!("{of}{member:?}: {why:?}");
        life.broken(Invariant::MemberFailedWrongly, detail);
    }
}

/// What could not be read can be, and what was cut off is there again.
fn mend(world: &mut World<Engine>) {
    for member in world.members() {
        world.disk_mut(member).faults.mend_reads();
        if world.disk(member).faults.hanging() {
            world.inject(member, Fault::Revive);
        }
    }
}

/// Generation and sequence of what a disk says.
fn age(disk: &Disk) -> (u64, u64) {
    let found = superblock_of(disk.live());
    found.map_or((0, 0), |found| (found.generation, found.sequence))
}

fn spec_of(plan: &Plan, site: Site) -> &Spec {
    match site {
        Site::Home => &plan.home,
        Site::Log => &plan.log,
        Site::Buffer => plan.buffer.as_ref().expect("it has one"),
    }
}

fn set_of(status: &Status, site: Site) -> Option<&SetStatus> {
    match site {
        Site::Home => Some(&status.set),
        Site::Log => status.surrogate.as_ref().map(|surrogate| &surrogate.set),
        Site::Buffer => Some(&status.surrogate.as_ref()?.buffer.as_ref()?.set),
    }
}

fn overlay(status: &Status) -> Option<OverlayStatus> {
    status.surrogate.as_ref()?.overlay
}

/// Sectors whose current copy is in the surrogate alone.
fn away(status: &Status) -> u64 {
    overlay(status).map_or(0, |overlay| overlay.sectors[0] + overlay.sectors[1])
}

fn going_home(status: &Status) -> bool {
    overlay(status).is_some_and(|overlay| overlay.going_home)
}

fn format(plan: &Plan, spec: &Spec, seed: u64) -> Vec<Disk> {
    let images = spec.format(earlier(seed)).expect("plans are made to fit");
    let made = |(index, image)| disk(plan, spec, index as u16, image, seed);
    images.into_iter().enumerate().map(made).collect()
}

fn disk(plan: &Plan, spec: &Spec, index: u16, image: Image, seed: u64) -> Disk {
    let device = Simple::new(plan.latency, plan.rate, plan.jitter);
    spec.disk(index, image, Box::new(device), seed)
}
