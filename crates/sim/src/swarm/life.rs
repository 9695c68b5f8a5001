//! The course of a run: lives, their ends, and what is on the disks between them.

use super::Outcome;
use super::copies::Copy;
use super::coverage::Scene;
use super::directed::{Directed, IDLE_STEPS};
use super::ends::newest;
use super::excess::{Excess, unreadable_sectors};
use super::faults::{Schedule, UNPLUG_RARITY, UNPLUGGING};
use super::hosts::Plot;
use super::plan::{Options, Plan, Roughness};
use super::triggers::Trigger;
use super::{copies, directed, excess, faults, hosts, triggers};
use crate::array::{Spec, earlier};
use crate::disk::{Disk, Simple};
use crate::invariant::Invariant;
use crate::rng::Rng;
use crate::run::{Base, Course, End, HasSession};
use crate::session::{News, PATIENCE, Session};
use crate::workload::Ask;
use crate::world::WorldConfig;
use restripe_array::layout::Layout;
use restripe_array::meta::ArrayOwner;
use restripe_array::{
    Command, CommandError, CommandTag, Fact, FailCause, Halt, IoError, Member, Nanos, StartMode,
    TaskKind, TaskOutcome, Uuid,
};
use restripe_tier::{Config, Engine};

/// An operation outstanding for longer fails its member.
pub const IO_TIMEOUT: Nanos = Nanos::from_secs(1);
/// One start in so many is without space.
const SHORT_OF_SPACE: u64 = 60;
/// Counted: arrays that halted for want of space, and starts that failed for it.
pub const HALTS: &str = "halts for want of space";
/// Counted: arrays that halted for want of members, and those whose members were all whole.
pub const HALTS_TOO_FEW: &str = "halts for want of members";
pub const UNPLUGGED: &str = "unplugged, and whole again";
pub const STARTS_WITHOUT_SPACE: &str = "starts without space";
/// Counted: blocks that reads found in the read cache.
pub const BLOCKS_CACHED: &str = "blocks from the read cache";

/// The daemon of an array whose members are locked: always the same one, started again.
const OWNER: ArrayOwner = ArrayOwner {
    run: Uuid([0xda; 16]),
    host: Uuid([0xdb; 16]),
    started: 1,
    process: 2,
    namespace: 3,
    interval_ms: 0,
};
/// Its users rest for 60 times as long, so that versions are written meanwhile.
const OWNED_RESTS: u64 = 60;

/// A life with a plot goes on for so many steps at least.
const STEPS_OF_PLOT: u64 = 2000;
/// So many steps without a moment passing are one too many.
const STILL_STEPS: u64 = 10_000;

/// The state of a run between lives and in them.
pub struct Run {
    pub base: Base,
    pub options: Options,
    pub plan: Plan,
    pub disks: Vec<Disk>,
    /// Disks that are not here in this life.
    pub aside: Vec<Disk>,
    /// A member was lost in the life that ended.
    pub lost_lately: bool,
    pub directed: Option<Directed>,
    pub trigger: Option<Trigger>,
    pub excess: Option<Excess>,
    /// Disks are likely to stay away after the next crash.
    pub disks_away: bool,
    /// Nothing that is under way survives the next cut.
    pub swept: bool,
    /// Of what is under way then, data arrive and metadata do not.
    pub data_alone: bool,
    /// A partition that the host of a plot had.
    pub hosted_last: Option<(u16, u16)>,
    /// The next crash comes before the array serves again.
    pub crash_again: bool,
    /// A member in whose place an old copy lies.
    pub copied: Option<restripe_array::Uuid>,
    /// What the tasks were at when power went.
    pub cut_short: Scene,
    pub outcome: Outcome,
}

/// One life: a started engine and what this life has seen.
pub struct Life {
    pub session: Session<Engine>,
    pub faults: Schedule,
    pub steps: u64,
    /// Steps since time last went on.
    still: u64,
    crash_after: Option<u64>,
    pub issued: u64,
    /// Where the last write went.
    pub written: Option<u64>,
    pub serving: bool,
    /// It was told to stop: no requests are taken any more.
    pub stopping: bool,
    /// Tasks run: every step may be the moment of a directed scenario.
    pub watchful: bool,
    /// Power goes when more replies than this were given.
    crash_at_reply: Option<u64>,
    /// Power goes when more durable writes than this were acknowledged.
    crash_at_durable: Option<u64>,
    /// Everything comes to rest in it.
    pub last: bool,
    /// Requests wait until this mark has come.
    resting: bool,
    /// At this step more members go than redundancy bears.
    unplug_after: Option<u64>,
    /// Of a member, to be put back when the array has stopped.
    pub copy: Option<Copy>,
    /// When something happens to hosts of partitions.
    pub disturb_after: Option<u64>,
    pub plot: Option<Plot>,
    /// So much was brought about for it.
    pub provoked: u32,
    /// What was on its way home has just come there.
    pub came_home: bool,
    /// Those that went so: nothing is the matter with them.
    pub unplugged: Vec<Member>,
}

impl Life {
    /// Power goes right behind the next reply.
    pub fn crash_at_reply(&mut self) {
        self.crash_at_reply = Some(self.session.replies);
    }

    /// Power goes right behind the next acknowledgement of a durable write.
    pub fn crash_at_durable_reply(&mut self) {
        self.crash_at_durable = Some(self.session.durable_replies);
    }

    /// Brings the crash of this life forward.
    pub fn crash_within(&mut self, steps: u64) {
        if self.last {
            return;
        }
        let at = self.steps + steps;
        self.crash_after = Some(self.crash_after.map_or(at, |after| after.min(at)));
    }
}

impl Run {
    pub fn new(seed: u64, options: Options) -> Run {
        let mut rng = Rng::new(seed);
        let plan = Plan::draw(&mut rng, &options);
        let layout = Layout::new(plan.geometry).expect("a created geometry is sound");
        let block = match plan.unaligned {
            true => 1,
            false => u64::from(plan.spec.logical_block / 512),
        };
        let (payload, Options { bug, trace, .. }) = (plan.spec.payload, options);
        let mut base = Base::new(seed, rng, layout, payload, block, bug, trace);
        let disks = disks(&plan, &mut base.rng);
        let run = Run {
            base,
            options,
            plan,
            disks,
            aside: Vec::new(),
            lost_lately: false,
            directed: None,
            trigger: None,
            excess: None,
            disks_away: false,
            swept: false,
            data_alone: false,
            hosted_last: None,
            crash_again: false,
            copied: None,
            cut_short: Scene::default(),
            outcome: Outcome::default(),
        };
        run.base.say(|| format!("seed {seed}: {:?}", run.plan));
        run
    }

    /// Lives all lives and returns the outcome.
    pub fn finish(mut self) -> Outcome {
        if self.live_all() {
            self.base.count("runs to the end", 1);
        }
        self.outcome.coverage.counts = self.base.counts;
        Outcome {
            violations: self.base.violations,
            digest: self.base.digest,
            ..self.outcome
        }
    }

    fn live_all(&mut self) -> bool {
        let mut lives = 0;
        while lives < self.plan.lives {
            lives += 1;
            if !self.live() {
                return false;
            }
        }
        self.last_life()
    }

    // ------------------------------------------------------------------------------------------------ lives

    /// One life with everything that the seed has in store. False when the run is over.
    fn live(&mut self) -> bool {
        let crash_after = self.crash_point();
        directed::draw_next(self);
        triggers::lay(self);
        let mut life = self.begin(crash_after);
        life.unplug_after = self.unplug_point();
        life.copy = copies::due(self);
        life.plot = hosts::draw_plot(self);
        if life.plot.is_some() {
            life.crash_after = life.crash_after.map(|after| after + STEPS_OF_PLOT);
        }
        if self.options.roughness == Roughness::Faults && self.base.rng.chance(1, SHORT_OF_SPACE) {
            faults::fill_up(self, &mut life);
        }
        let hushed = self.base.deaths.hushes();
        let end = match self.start(&mut life) {
            Some(end) => end,
            None if hushed => self.flush_alone(&mut life),
            None => self.serve(&mut life),
        };
        self.end(life, end)
    }

    fn crash_point(&mut self) -> Option<u64> {
        if std::mem::take(&mut self.crash_again) {
            let most = *self.base.rng.pick(&[8, 30, 100]);
            return Some(self.base.rng.between(1, most));
        }
        let crashes = self.options.roughness >= Roughness::Crashes && self.base.rng.chance(3, 4);
        let most = *self.base.rng.pick(&[30, 100, 400, 2000]);
        crashes.then(|| self.base.rng.between(1, most))
    }

    /// Drawn from a stream of its own.
    fn unplug_point(&self) -> Option<u64> {
        let mut drawn = self.base.rng.clone().fork(UNPLUGGING);
        let faults = self.options.roughness == Roughness::Faults;
        let unplugs = faults && drawn.chance(1, UNPLUG_RARITY);
        unplugs.then(|| drawn.below(400))
    }

    pub fn begin(&mut self, crash_after: Option<u64>) -> Life {
        let order = self.base.rng.order(self.disks.len());
        let mut present: Vec<Option<Disk>> = self.disks.drain(..).map(Some).collect();
        let disks = order.into_iter().filter_map(|index| present[index].take());
        let disks = disks.collect();
        let delays: &[u64] = match triggers::ponders(self) {
            true => &[100_000, 20_000_000],
            false => &[0, 1_000, 100_000],
        };
        let (config, world) = (self.config(), self.world_config());
        let mut session = self.base.begin_session(disks, config, world, delays);
        self.base.count("lives", 1);
        if self.excess.is_some() {
            session.unreadable = Some(unreadable_sectors);
        }
        Life {
            session,
            faults: Schedule::new(self.base.rng.fork(2)),
            steps: 0,
            still: 0,
            crash_after,
            issued: 0,
            written: None,
            serving: false,
            stopping: false,
            watchful: true,
            crash_at_reply: None,
            crash_at_durable: None,
            last: false,
            resting: false,
            unplug_after: None,
            copy: None,
            disturb_after: None,
            plot: None,
            provoked: 0,
            came_home: false,
            unplugged: Vec::new(),
        }
    }

    pub fn config(&self) -> Config {
        Config {
            members: Vec::new(),
            limits: self.plan.limits,
            surrogate: None,
            io_timeout: IO_TIMEOUT,
            bug: self.options.bug,
        }
    }

    pub fn world_config(&self) -> WorldConfig {
        WorldConfig::strict(self.plan.spec.payload, self.plan.limits)
    }

    /// Starts the array. `None` when it serves.
    pub fn start(&mut self, life: &mut Life) -> Option<End> {
        let mut mode = StartMode {
            owner: self.plan.owned.then_some(OWNER),
            ..StartMode::default()
        };
        for _ in 0..3 {
            let tag = life.session.command(Command::Start(mode));
            let error = match self.answer(life, tag) {
                Err(end) => return Some(end),
                Ok(Ok(())) => {
                    life.serving = true;
                    return None;
                }
                Ok(Err(error)) => error,
            };
            self.base.say(|| format!("  start refused: {error:?}"));
            match error {
                CommandError::NoSpace if life.faults.troubled() => {
                    self.base.count(STARTS_WITHOUT_SPACE, 1);
                    return Some(End::Crash);
                }
                CommandError::Minority { .. } if self.outdated(life) => {
                    self.base.count("outdated minorities refused", 1);
                    return Some(End::Crash);
                }
                CommandError::Minority { present, current } if present * 2 <= current => {
                    mode.from_minority = true;
                }
                CommandError::WouldLose { .. } if life.session.oracle.allows_losses() => {
                    mode.accept_loss = true
                }
                CommandError::TooFew { .. } if self.in_ruins() => {
                    excess::doubt_rows(self, life);
                    mode.accept_loss = true;
                }
                _ => {
                    let detail = format!("{mode:?}: {error:?}");
                    return Some(life.broken(Invariant::StartRefused, detail));
                }
            }
        }
        Some(life.broken(Invariant::StartRefused, format!("{mode:?}, over and over")))
    }

    /// Whether a disk that is away knows more than those that are here: an operator would wait for it.
    fn outdated(&self, life: &Life) -> bool {
        let world = &life.session.world;
        let here = newest(world.disks());
        newest(self.aside.iter()) > here
    }

    /// Members beyond redundancy are gone.
    pub fn in_ruins(&self) -> bool {
        self.excess.as_ref().is_some_and(|excess| excess.members)
    }

    /// Serves until the plan is through.
    fn serve(&mut self, life: &mut Life) -> End {
        let requests = self.plan.requests;
        while life.issued < requests || life.session.outstanding() > 0 {
            self.ask(life, requests);
            self.hear(life, None);
            if let Some(end) = self.step(life) {
                return end;
            }
        }
        match self.linger(life) {
            Some(end) => end,
            None => self.stop(life),
        }
    }

    fn ask(&mut self, life: &mut Life, requests: u64) {
        let depth = self.plan.queue_depth as usize;
        while !life.resting
            && life.issued < requests
            && life.session.outstanding() < depth
            && life.session.world.ready()
        {
            let ask = self.base.workload.draw();
            if let Ask::Write { lba, .. } = ask {
                life.written = Some(lba);
            }
            life.session.issue(ask);
            life.issued += 1;
            if self.options.roughness == Roughness::Faults && self.base.rng.chance(1, 16) {
                faults::perturb(self, life);
            }
            if self.base.rng.chance(1, 8) {
                self.rest(life);
            }
        }
    }

    /// The users do nothing for a while.
    fn rest(&mut self, life: &mut Life) {
        let most = *self.base.rng.pick(&[10_000, 10_000_000, 3_000_000_000]);
        let times = if self.plan.owned { OWNED_RESTS } else { 1 };
        let delay = Nanos(self.base.rng.below(most) * times);
        life.session.mark_in(delay, 0);
        life.resting = true;
    }

    /// Lets time pass without requests, for tasks and lazy work. An end, when one has come.
    fn linger(&mut self, life: &mut Life) -> Option<End> {
        let mut steps = *self.base.rng.pick(&[0, 0, 50, 500]);
        if self.directed.is_some() {
            steps += 1000;
        }
        if life.plot.is_some() {
            steps += STEPS_OF_PLOT;
        }
        for _ in 0..steps {
            if let Some(end) = self.step(life) {
                return Some(end);
            }
            self.hear(life, None);
        }
        None
    }

    fn fact(&mut self, life: &mut Life, fact: Fact) {
        if let Fact::MemberFailed { member, .. } = fact {
            life.faults.gone(member);
        }
        match fact {
            // What nothing can repair is met again and again.
            Fact::MemberFailed {
                why: FailCause::ReadErrors,
                ..
            } if self.excess.is_some() => {}
            Fact::MemberFailed {
                member,
                why:
                    FailCause::WriteError(IoError::NoSpace) | FailCause::FlushError(IoError::NoSpace),
            } if life.faults.full(member) => {
                self.base.count("members without space", 1);
            }
            Fact::MemberFailed { member, why } if !life.faults.suspects(member) => {
                let detail = format!("{member:?}: {why:?}");
                life.broken(Invariant::MemberFailedWrongly, detail);
            }
            Fact::MemberFailed { .. } if life.last => {}
            Fact::TaskStarted { .. } => life.watchful = true,
            Fact::MemberFailed { .. } => faults::crash_at_failure(self, life),
            Fact::Lost { lba, sectors } => self.lost(life, lba, sectors),
            Fact::TaskEnded { kind, outcome, .. } => self.task_ended(life, kind, outcome),
            Fact::Halted(Halt::NoSpace) if life.session.space_is_short => {
                self.base.count(HALTS, 1);
            }
            Fact::Halted(Halt::TooFew) if self.in_ruins() || !life.unplugged.is_empty() => {
                self.base.count(HALTS_TOO_FEW, 1);
            }
            Fact::Halted(why) => {
                let detail = format!("it halts without need: {why:?}");
                life.session.violation(Invariant::HaltBroken, detail);
            }
            Fact::PartitionTaken { .. } => {
                self.base.count("partitions taken by hosts", 1);
                hosts::watch_hosts(self, life);
            }
            Fact::SpareTaken { .. } => hosts::watch_hosts(self, life),
            Fact::Repaired { .. } => self.base.count("repairs", 1),
            Fact::Started { recovered_rows, .. } => {
                self.take_capacity(life);
                self.base.count("rows recovered", recovered_rows);
            }
            _ => {}
        }
    }

    fn task_ended(&mut self, life: &mut Life, kind: TaskKind, outcome: TaskOutcome) {
        match outcome {
            TaskOutcome::Failed if !life.faults.troubled() => {
                life.broken(Invariant::TaskFailed, format!("{kind:?}"));
            }
            TaskOutcome::Done => {
                if kind == TaskKind::Growth {
                    self.base.count("growths", 1);
                    self.take_capacity(life);
                }
                // A resynchronisation or a scrub brings nobody back who is about to fail.
                if kind.fills() {
                    let status = life.session.world.status();
                    life.faults.rebuilt(&status);
                    life.came_home = kind == TaskKind::Replace;
                    hosts::watch_hosts(self, life);
                }
                self.base.count("tasks done", 1);
            }
            TaskOutcome::Failed | TaskOutcome::Cancelled => {}
        }
    }

    fn take_capacity(&mut self, life: &mut Life) {
        if self.plan.grows {
            self.base.take_capacity(&mut life.session);
        }
    }

    fn lost(&mut self, life: &mut Life, lba: u64, sectors: u64) {
        self.base.count("sectors lost", sectors);
        life.session.judge_loss(lba, sectors);
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
        while let Some(news) = life.session.news() {
            if let News::CommandReply(answered, result) = &news
                && Some(*answered) == tag
            {
                return Some(result.clone());
            }
            (self.base).say(|| format!("  {:>14} {news:?}", life.session.world.now().0));
            match news {
                News::Mark(0) => life.resting = false,
                News::Mark(mark) => life.faults.marked(mark, &mut life.session),
                News::CommandReply(_, Ok(())) => self.base.count("commands done", 1),
                News::CommandReply(_, Err(_)) => self.base.count("commands refused", 1),
                News::Fact(fact) => {
                    hosts::look_for_crowds(self, life, &fact);
                    self.fact(life, fact)
                }
            }
        }
        None
    }

    fn step(&mut self, life: &mut Life) -> Option<End> {
        if life.session.violations().next().is_some() {
            return Some(End::Broken);
        }
        if life.serving && !life.last && self.trigger.is_some() {
            triggers::look(self, life);
        }
        if life.serving && !life.last && (life.watchful || life.steps.is_multiple_of(IDLE_STEPS)) {
            directed::look(self, life);
        }
        let replied = |most: u64| life.session.replies > most;
        if life.crash_after.is_some_and(|after| life.steps >= after)
            || life.crash_at_reply.is_some_and(replied)
            || (life.crash_at_durable).is_some_and(|most| life.session.durable_replies > most)
        {
            return Some(End::Crash);
        }
        let serving = life.serving && !life.stopping && !life.last;
        if serving && life.unplug_after.is_some_and(|after| life.steps >= after) {
            life.unplug_after = None;
            faults::unplug(self, life);
        }
        if serving {
            copies::make_copy(life);
            hosts::disturb(self, life);
        }
        life.steps += 1;
        let before = life.session.world.now();
        let more = life.session.step();
        let now = life.session.world.now();
        life.still = if now > before { 0 } else { life.still + 1 };
        let oldest = life.session.world.oldest_outstanding();
        let patient = life.still < STILL_STEPS
            && oldest.is_none_or(|since| more && now.since(since) <= PATIENCE);
        if patient {
            return None;
        }
        let detail = format!(
            "{} requests and the commands wait; {} operations under way; {} steps without a moment passing; {}",
            life.session.outstanding(),
            life.session.world.operations(),
            life.still,
            life.session.waiting()
        );
        Some(life.broken(Invariant::StuckRequest, detail))
    }

    /// An orderly end. What was acknowledged is durable after it.
    fn stop(&mut self, life: &mut Life) -> End {
        life.stopping = true;
        let ticket = life.session.oracle.flush();
        let tag = life.session.command(Command::Stop);
        match self.answer(life, tag) {
            Err(end) => end,
            Ok(Ok(())) if life.session.halted.is_some() => {
                life.broken(Invariant::HaltBroken, "it stops as if all were well")
            }
            Ok(Ok(())) => {
                life.session.oracle.flush_ended(ticket, true);
                End::Stop
            }
            Ok(Err(_)) if life.faults.troubled() => End::Crash,
            Ok(Err(error)) => {
                let detail = format!("the array does not stop: {error:?}");
                life.broken(Invariant::StuckRequest, detail)
            }
        }
    }
}

/// The disks of a plan, formatted.
fn disks(plan: &Plan, rng: &mut Rng) -> Vec<Disk> {
    let seed = rng.word();
    let of_spares = plan.dirt.or(earlier(seed));
    let images = plan.spec.format_over(plan.dirt, of_spares);
    let images = images.expect("plans are made to fit");
    let disk = |(index, image)| disk_of(plan, &plan.spec, index as u16, image, seed);
    images.into_iter().enumerate().map(disk).collect()
}

fn disk_of(plan: &Plan, spec: &Spec, index: u16, image: crate::image::Image, seed: u64) -> Disk {
    let mut device = Simple::new(plan.latency, plan.rate, plan.jitter);
    device.far = (plan.data_start, plan.far);
    spec.disk(index, image, Box::new(device), seed)
}

/// A disk that was never a member, and holds what an earlier owner left there.
pub fn blank_disk(plan: &Plan, seed: u64) -> Disk {
    let index = plan.spec.slots + plan.spec.spares;
    let image = plan.spec.blank(index, earlier(seed));
    disk_of(plan, &plan.spec, index, image, seed)
}
