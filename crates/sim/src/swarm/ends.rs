//! How lives end: power goes, disks stay away, and the oracle is told what may be lost. In the last one all
//! comes to rest and is looked at.

use super::coverage::{Incident, Scene};
use super::life::{BLOCKS_CACHED, Life, Run, UNPLUGGED};
use super::plan::Roughness;
use super::verify;
use super::{copies, excess};
use crate::array::superblock_of;
use crate::atlas::Atlas;
use crate::crash::Site;
use crate::disk::Disk;
use crate::fault::Fault;
use crate::invariant::{Invariant, Violation};
use crate::oracle::WriteKind;
use crate::run::{Course, End, HasSession};
use crate::session::{PATIENCE, Session};
use crate::world::members_in;
use restripe_array::report::{ArrayState, MemberState};
use restripe_array::{Command, TaskKind};

/// Steps in which the tasks of the last life must end.
const TASK_STEPS: u64 = 400_000;

impl Run {
    /// Ends a life. False when the run is over.
    pub fn end(&mut self, mut life: Life, end: End) -> bool {
        let (steps, now) = (life.steps, life.session.world.now().0);
        let say = || format!("  life ends: {end:?} after {steps} steps at {now}");
        self.base.say(say);
        let sweeps = self.base.deaths.sweeps();
        let dies = end == End::Crash && !sweeps && self.may_die() && self.base.deaths.is_death();
        if end == End::Crash {
            if life.serving {
                self.cut_short = Scene::of(&life.session.world.status());
            }
            let incident = match (life.serving, dies) {
                (true, false) => Incident::Crash,
                (false, false) => Incident::CrashInRecovery,
                (true, true) => Incident::Death,
                (false, true) => Incident::DeathInRecovery,
            };
            self.outcome.coverage.incident(&self.cut_short, incident);
        } else {
            self.cut_short = Scene::default();
        }
        let stopped = end == End::Stop;
        life.copy = life.copy.filter(|_| stopped);
        let world = &life.session.world;
        self.outcome.coverage.slices(world.machine().coverage());
        let cached = world.machine().status().counters.blocks_cached;
        self.base.count(BLOCKS_CACHED, cached);
        self.outcome.ios += world.tally().ios;
        self.base.count("late completions", world.tally().late);
        self.outcome.requests += life.session.replies;
        if !self.base.settle(&life.session) {
            return false;
        }
        self.swept |= sweeps;
        if !self.cut(life, dies) {
            return false;
        }
        if stopped {
            copies::part_halves(self);
        }
        self.base.violations.is_empty()
    }

    /// Whether what this run set out for bears that members outlive the daemon.
    fn may_die(&self) -> bool {
        self.excess.is_none() && !self.swept && !self.data_alone
    }

    /// Power goes, also after an orderly stop, or the daemon alone dies; some disks may not come back.
    fn cut(&mut self, life: Life, dies: bool) -> bool {
        let Session {
            world, mut oracle, ..
        } = life.session;
        self.base.now = world.now();
        self.lost_lately = life.faults.lost_any();
        let site = world.site();
        match dies {
            true => oracle.death(),
            false => oracle.crash(),
        }
        self.base
            .count("open writes at crashes", site.open_count() as u64);
        let data_alone = std::mem::take(&mut self.data_alone);
        let cut = match std::mem::take(&mut self.swept) {
            true => site.nothing(),
            false if data_alone => site.without_metadata(self.plan.data_start),
            false => site.sample(&mut self.base.rng),
        };
        self.say_cut(&site, &cut);
        self.disks = site.next(world.into_disks(), &cut, dies);
        copies::put_back(self, life.copy);
        for member in &life.unplugged {
            let disk = &mut self.disks[usize::from(member.0)];
            disk.faults.inject(Fault::Revive);
        }
        self.disks.append(&mut self.aside);
        self.base.oracle = Some(oracle);
        self.disks.retain(|disk| !disk.faults.doomed());
        if !life.unplugged.is_empty() && !self.whole_again() {
            return false;
        }
        self.take_aside();
        self.say_disks();
        self.judge_losses()
    }

    /// Every member that was unplugged is back: nothing may be missing that was not missing before.
    fn whole_again(&mut self) -> bool {
        let whole = Atlas::of(self.disks.iter()).is_some_and(|atlas| atlas.stands());
        if whole {
            self.base.count(UNPLUGGED, 1);
        } else {
            let detail = "too few members are current, though all are back";
            let breach = Violation::new(Invariant::NotWholeAgain, detail);
            self.base.violations.push(breach);
        }
        whole
    }

    fn say_cut(&self, site: &crate::crash::Site, cut: &crate::crash::Cut) {
        for (disk, fates) in cut.0.iter().enumerate() {
            for (write, fate) in site.open(disk).iter().zip(fates) {
                let durable = if write.durable { " durable" } else { "" };
                let (at, sectors) = (write.at, write.sectors);
                let say = || format!("  cut m{disk} {at} +{sectors}{durable} {fate:?}");
                self.base.say(say);
            }
        }
    }

    fn say_disks(&self) {
        let here = self.disks.iter().map(|disk| ("", disk));
        let away = self.aside.iter().map(|disk| (" (away)", disk));
        for (away, disk) in here.chain(away) {
            let said = superblock_of(disk.live()).map(|found| {
                let me = found.index_of(found.member);
                let members = found.members.iter();
                let roles = members.map(|entry| format!("{:?}", entry.role));
                let roles: Vec<String> = roles.collect();
                let (age, clean, roles) = (found.sequence, found.clean, roles.join(", "));
                let generation = found.generation;
                format!(
                    "member {me:?} generation {generation} sequence {age} clean {clean}: {roles}"
                )
            });
            (self.base).say(|| format!("  disk{away}: {}", said.unwrap_or_default()));
        }
    }

    /// A disk or two may stay away in the next life.
    fn take_aside(&mut self) {
        let copied = copies::is_copied(self);
        if self.options.roughness < Roughness::Faults || self.excess.is_some() || copied {
            return;
        }
        let disks_away = std::mem::take(&mut self.disks_away);
        let often = if disks_away { (7, 8) } else { (1, 3) };
        let mut chance = self.base.rng.chance(often.0, often.1);
        while chance && self.disks.len() > 1 {
            let index = self.base.rng.below(self.disks.len() as u64);
            let disk = self.disks.swap_remove(index as usize);
            let newest = newest(self.disks.iter().chain([&disk])).0;
            let left = Atlas::of(self.disks.iter());
            // Going on without the one that knows best would make two histories.
            let knows = |atlas: &Atlas| atlas.superblock().generation >= newest;
            if !left.is_some_and(|atlas| atlas.whole(None) && knows(&atlas)) {
                self.disks.push(disk);
                return;
            }
            self.base.say(|| "  a disk stays away".to_string());
            self.base.count("disks lost with a crash", 1);
            self.put_aside(disk);
            chance = self.base.rng.chance(often.0, often.1);
        }
    }

    /// A disk that stays away has no power: what was in its cache alone counts no more.
    fn put_aside(&mut self, disk: Disk) {
        let site = Site::new(std::slice::from_ref(&disk), vec![Vec::new()]);
        if site.open_count() > 0 {
            let oracle = self.base.oracle.as_mut();
            oracle.expect("it is here between lives").crash();
        }
        let cut = site.sample(self.base.deaths.rng());
        self.aside.extend(site.restart(vec![disk], &cut));
    }

    /// Tells the oracle what may be lost in the next life. False when the array is beyond redundancy.
    fn judge_losses(&mut self) -> bool {
        let goes_on = |atlas: &Atlas| self.excess.is_some() || atlas.whole(None);
        let Some(atlas) = Atlas::of(self.disks.iter()).filter(goes_on) else {
            self.base.count("runs beyond redundancy", 1);
            return false;
        };
        let oracle = self.base.oracle.as_mut();
        let oracle = oracle.expect("the oracle is here between lives");
        atlas.grant_losses(self.plan.spec.write_hole, self.lost_lately, oracle);
        true
    }

    // -------------------------------------------------------------------------------------------- last life

    /// Everything comes to rest and is looked at. True when all was well.
    pub fn last_life(&mut self) -> bool {
        self.disks.append(&mut self.aside);
        for pass in 0..2 {
            let mut life = self.begin(None);
            life.last = true;
            let end = match self.start(&mut life) {
                Some(end) => end,
                None => self.rest_and_look(&mut life, pass),
            };
            let calm = end != End::Crash || life.faults.troubled();
            assert!(calm, "nothing crashes in the last life");
            if !self.end(life, end) {
                return false;
            }
        }
        true
    }

    fn rest_and_look(&mut self, life: &mut Life, pass: u32) -> End {
        if pass == 0 && self.options.roughness == Roughness::Faults {
            self.add_all(life);
        }
        if let Some(end) = self.await_tasks(life) {
            return end;
        }
        life.session.refusals_expected = self.in_ruins();
        let read = match self.excess.is_some() {
            true => excess::tells_exactly(self, life),
            false => self.base.read_all(&mut life.session),
        };
        if !read {
            return End::Broken;
        }
        if let Some(end) = self.await_tasks(life) {
            return end;
        }
        verify::media(self, life);
        let rots = pass == 0 && self.options.roughness == Roughness::Faults;
        if rots
            && self.base.rng.chance(2, 3)
            && let Some(end) = self.scrub_rot(life)
        {
            return end;
        }
        if pass == 0
            && let Some(end) = excess::inject(self, life)
        {
            return end;
        }
        if self.options.canary {
            self.expect_nonsense(life);
        }
        self.stop(life)
    }

    /// Something rots; a check and a repair later nothing must be left of it. An end, when one has come.
    fn scrub_rot(&mut self, life: &mut Life) -> Option<End> {
        if !verify::rot(self, life) {
            return None;
        }
        for repair in [false, true] {
            life.session.scrub(repair);
            if let Some(end) = self.await_tasks(life) {
                return Some(end);
            }
        }
        verify::media(self, life);
        None
    }

    /// What the canary expects: that a write which was made was not.
    fn expect_nonsense(&mut self, life: &mut Life) {
        let oracle = &mut life.session.oracle;
        let touched = oracle.write(0, 1, WriteKind::Data, true);
        oracle.write_ended(touched, true);
        life.session.read_all(1 << 10, PATIENCE);
    }

    /// Takes every disk back that can come back.
    fn add_all(&mut self, life: &mut Life) {
        let status = life.session.world.status();
        for member in members_in(&status, MemberState::Failed) {
            if self.base.rng.chance(3, 4) {
                life.session.command(Command::Add(member));
            }
        }
        life.session.command(Command::Pause(false));
    }

    pub fn await_tasks(&mut self, life: &mut Life) -> Option<End> {
        for _ in 0..TASK_STEPS {
            self.hear(life, None);
            let status = life.session.world.status();
            // An array in ruins writes nothing, and what tasks it has stand.
            let mut tasks = status.tasks.iter();
            let waits = tasks.all(|task| task.kind == TaskKind::Growth)
                && status.state != ArrayState::Healthy;
            let ended = waits || status.tasks.is_empty() || status.read_only && self.in_ruins();
            if life.session.world.quiescent() && ended {
                return None;
            }
            if let Some(end) = self.step(life) {
                return Some(end);
            }
        }
        let tasks = life.session.world.status().set.tasks;
        Some(life.broken(Invariant::TaskFailed, format!("never ends: {tasks:?}")))
    }
}

/// Generation and sequence of the newest superblock.
pub fn newest<'a>(disks: impl Iterator<Item = &'a Disk>) -> (u64, u64) {
    Atlas::of(disks).map_or((0, 0), |atlas| {
        let superblock = atlas.superblock();
        (superblock.generation, superblock.sequence)
    })
}
