//! Quests: an event that is to meet a code cache at a certain moment.
//!
//! Moments are short and losses rare, so chance alone leaves much of the table of both empty. A quest provokes its moment, and then
//! lies in wait. Seeds take the cells of the table by turns: each has one of its own, which its array suits and for which it tries again,
//! and then goes on to others that the same array suits.

use super::moment::{Event, Moment, cells};
use super::stir::Standing;
use super::{Life, Plan, Run, Site, set_of};
use crate::fault::Fault;
use crate::oracle::WriteKind;
use crate::swarm::issue;
use crate::workload::Ask;
use restripe_array::layout::{Level, Rotation};
use restripe_array::meta::{Init, RegionKind};
use restripe_array::report::{MemberState, MemberStatus};
use restripe_array::{Command, Member, Nanos, ScrubMode};
use restripe_tier::Sleep;
use restripe_tier::overlay::{Cleans, SealCause};
use std::collections::BTreeSet;

/// What is to happen, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quest {
    moment: Moment,
    event: Event,
    /// Looks before it is given up.
    left: u32,
}

const LOOKS: u32 = 1500;
/// How often a run sets out for its own cell.
const TRIES: u64 = 3;
/// Looks between two provocations; and where much is to be written.
const WAIT: u32 = 40;
const HURRY: u32 = 10;
/// From a run's quest to the next in the table: the first is another one with each seed.
const STRIDE: u64 = 101;
/// Quests of a run at most.
const QUESTS: u64 = 12;
/// Sectors that are tried, until a mirror is asked for one.
const SECTORS: u32 = 8;
/// A member that has so many read errors is spared, before it is failed for them.
const ERRORS_BORNE: u32 = 10;
/// Steps between two disks that take another's place.
const MEND: u64 = 300;
/// Extents of a map that short writes fill, and how many of these at once.
const SMALL_MAP: u32 = 40;
const FEW: u32 = 8;
/// Steps in which what was begun ends.
const SOON: u64 = 24;
/// Sectors of a write that is to fill something.
const LONG: u64 = 200;

impl Quest {
    /// The cells of the table that can be met, by turns.
    fn of(turn: u64) -> Quest {
        let (moment, event) = Quest::cell(turn);
        // Every crash is followed by a start.
        let event = match event {
            Event::Start => Event::Crash,
            event => event,
        };
        Quest {
            moment,
            event,
            left: LOOKS,
        }
    }

    pub(super) fn cell(turn: u64) -> (Moment, Event) {
        let cells = cells();
        cells[(turn % cells.len() as u64) as usize]
    }

    /// Whether its moment comes of much that is written.
    fn fills(&self) -> bool {
        use Moment::{Cleaning, Reusing, Short, Starved};
        matches!(self.moment, Reusing | Short | Starved | Cleaning(_))
    }

    /// Whether users are to be silent for it.
    fn holds(&self) -> bool {
        let silent = matches!(
            self.moment,
            Moment::Empty
                | Moment::Sealed(SealCause::Age)
                | Moment::Resting
                | Moment::Asleep
                | Moment::Waking
                | Moment::WakesLate
                | Moment::WakesNever
        );
        // Of what users write again something is soon free.
        let fills = self.moment == Moment::Starved && self.event == Event::FailedWake;
        silent || fills || matches!(self.event, Event::AsleepLoss)
    }
}

impl Plan {
    /// An array that can meet what a run sets out for.
    pub(super) fn suit(&mut self, turn: u64) {
        let quest = Quest::of(turn);
        let sleeps = matches!(
            quest.moment,
            Moment::Resting
                | Moment::Asleep
                | Moment::Waking
                | Moment::WakesLate
                | Moment::WakesNever
        );
        if sleeps || matches!(quest.event, Event::AsleepLoss | Event::FailedWake) {
            self.destage.sleep = Some(Sleep {
                after: Nanos::from_millis(1),
                starts_a_day: 1 << 30,
            });
            self.home.level = Level::Raid10 { copies: 3 };
            self.home.slots = 6;
            // What nobody wrote is read from members, too.
            self.home.init = Init::Zero;
        }
        if quest.fills() || matches!(quest.event, Event::AsleepLoss | Event::FailedWake) {
            // Something lies in the log, and stays there; mirrors sleep on meanwhile.
            (self.destage.idle, self.destage.every) = (None, None);
        }
        if matches!(quest.event, Event::SecondLogLoss | Event::SecondDiskLoss) {
            self.log.level = Level::Raid6(Rotation::LeftSymmetric);
            // Its chunk may be such that a row of more is longer than a record.
            self.log.slots = self.log.slots.clamp(4, 5);
        }
        if quest.moment == Moment::Sealed(SealCause::Stop) {
            self.destage.seal = Nanos::from_secs(5);
        }
        match (quest.moment, quest.event) {
            (Moment::Cleaning(_), _) | (Moment::Short, Event::AsleepLoss) => self.suit_cleaning(),
            // Cleaning would make room first.
            (Moment::Starved | Moment::Resting | Moment::Short, _) => self.destage.clean = false,
            // Where mirrors may sleep all is announced before the array serves.
            (Moment::Announcing, _) => self.destage.sleep = None,
            // A buffer takes what is to be durable, and no record is sealed for it.
            (Moment::Sealed(SealCause::Flush | SealCause::Fua), _) => {
                (self.buffer, self.log.buffered) = (None, false);
            }
            _ => {}
        }
        if quest.moment == Moment::Starved {
            self.extents = self.extents.min(SMALL_MAP);
        }
    }
}

impl Plan {
    /// Whether this array is one that can meet it.
    fn suits(&self, turn: u64) -> bool {
        let mut suited = self.clone();
        suited.suit(turn);
        suited == *self
    }

    /// A log that runs short before its map does, or anything else asks for a way home.
    pub(super) fn suit_cleaning(&mut self) {
        (self.destage.idle, self.destage.every) = (None, None);
        self.destage.clean = true;
        self.destage.sleep.get_or_insert_default();
        self.extents = self.extents.max(4096);
        // Much is in memory at a time, and stays.
        self.destage.seal = Nanos::from_secs(5);
        self.cluster_records = self.cluster_records.max(4);
        self.records_in_memory = self.records_in_memory.max(8);
    }
}

impl Run {
    /// Whether users are to be silent.
    pub(super) fn holds(&self) -> bool {
        self.quest.as_ref().is_some_and(Quest::holds)
    }

    /// Counts an event against what the code cache is at.
    pub(super) fn note_event(&mut self, life: &Life, event: Event) {
        if self.options.gathers && !self.is_removed() {
            let met = Moment::of_life(life);
            self.count_event(met, event);
        }
    }

    pub(super) fn count_event(&mut self, met: BTreeSet<Moment>, event: Event) {
        self.say(|| format!("  {event:?} at {met:?}"));
        for moment in met {
            *self.outcome.events.entry((moment, event)).or_default() += 1;
        }
    }

    /// A user asks.
    pub(super) fn ask(&mut self, life: &mut Life, ask: Ask) {
        self.note_event(life, Event::of(&ask));
        issue(&mut life.session, ask);
    }

    /// Looks whether the moment has come.
    pub(super) fn pursue(&mut self, life: &mut Life, more: bool) {
        if !self.options.quests {
            return;
        }
        let met = Moment::of_life(life);
        let failed = self.note_failed_wakes(life, &met);
        let Some(mut quest) = self.quest.take() else {
            return self.next_quest();
        };
        quest.left = quest.left.saturating_sub(1);
        let comes = met.contains(&quest.moment);
        let done = match (comes, quest.event) {
            (true, Event::FailedWake) => failed,
            (true, event) => self.strike(life, quest.moment, event),
            (false, _) => false,
        };
        let idle = !more && life.session.outstanding() == 0;
        let wait = if quest.fills() { HURRY } else { WAIT };
        if done || quest.left == 0 || idle && quest.left.is_multiple_of(wait) {
            return;
        }
        let before = quest.moment == Moment::Resting;
        let prepared = match quest.event {
            Event::FailedWake => self.spoil(life, &met, before),
            Event::AsleepLoss => before || met.contains(&Moment::Asleep),
            _ => true,
        };
        let fleeting = quest.moment == Moment::Sealed(SealCause::Stop);
        let filled = met.contains(&Moment::Filling) && !met.contains(&Moment::Copying);
        let fleeting = fleeting && filled && life.session.outstanding() == 0;
        let soon_over = matches!(quest.moment, Moment::Resting | Moment::Cleaning(_));
        let fleeting = fleeting || comes && soon_over;
        if prepared && (quest.left.is_multiple_of(wait) || idle || fleeting) {
            match comes {
                true => self.wake(life, &quest),
                false => self.provoke(life, &met, &quest),
            }
        }
        self.quest = Some(quest);
    }

    /// In the last life everything comes to rest.
    pub(super) fn end_quests(&mut self) {
        self.quest = None;
        self.quests = QUESTS;
    }

    /// Whether what this run set out for is still to be met.
    pub(super) fn seeks(&self) -> bool {
        let seeks = self.options.quests && self.quests < QUESTS;
        seeks && self.tries <= TRIES && !self.outcome.events.contains_key(&self.goal)
    }

    /// Whether it is sought at this moment: the life goes on for it.
    pub(super) fn is_at_it(&self) -> bool {
        self.quest.is_some() && self.seeks()
    }

    fn next_quest(&mut self) {
        if self.quests == QUESTS {
            return;
        }
        self.tries += u64::from(self.seeks());
        let turn = match self.seeks() {
            true => self.seed,
            false => self.next_turn(),
        };
        self.quests += 1;
        self.quest = Some(Quest::of(turn));
        self.say(|| format!("  quest: {:?}", self.quest));
    }

    /// The next cell that this array suits.
    fn next_turn(&mut self) -> u64 {
        for _ in cells() {
            self.turn = self.turn.wrapping_add(STRIDE);
            if self.plan.suits(self.turn) {
                return self.turn;
            }
        }
        unreachable!("it suits its own cell, and the stride comes to all of them")
    }

    /// Mirrors that were asked to wake, and never will: whether there is a new one.
    fn note_failed_wakes(&mut self, life: &mut Life, met: &BTreeSet<Moment>) -> bool {
        let world = &life.session.world;
        let before = life.spoilt.len();
        life.spoilt
            .retain(|member| !world.disk(*member).faults.never_woke());
        let failed = life.spoilt.len() < before;
        if failed {
            self.count_event(met.clone(), Event::FailedWake);
        }
        failed
    }

    // --------------------------------------------------------------------------------------------------- provocations

    fn provoke(&mut self, life: &mut Life, met: &BTreeSet<Moment>, quest: &Quest) {
        if !life.serving || life.stopping {
            return;
        }
        let asleep = met.contains(&Moment::Asleep);
        match quest.moment {
            Moment::Starting => life.crash_after = Some(life.steps),
            Moment::Stopping if asleep && !met.contains(&Moment::Filling) => {
                self.write(life, 3, false);
            }
            Moment::Stopping => life.stop_due = true,
            Moment::Sealed(SealCause::Stop) if met.contains(&Moment::Filling) => {
                if !life.spoilt.is_empty() {
                    self.scrub(life);
                }
                life.stop_due = true;
            }
            Moment::Sealed(SealCause::Stop) => self.write(life, 3, false),
            Moment::Sealed(SealCause::Flush) => {
                self.write(life, 3, false);
                self.may_ask(life, Ask::Flush);
            }
            Moment::Sealed(SealCause::Fua) => self.write(life, 3, true),
            Moment::Filling | Moment::InLog | Moment::Sealed(SealCause::Age) => {
                self.write(life, 1, false);
            }
            Moment::Starved if self.plan.extents <= SMALL_MAP => {
                for _ in 0..FEW {
                    self.write(life, 1, false);
                }
            }
            Moment::Cleaning(_) => self.write_anew(life),
            Moment::Short if quest.event == Event::AsleepLoss => self.write_anew(life),
            Moment::Copying
            | Moment::Announcing
            | Moment::InFlight
            | Moment::Reusing
            | Moment::Short
            | Moment::Starved
            | Moment::Sealed(SealCause::Full | SealCause::Failed) => {
                self.write(life, LONG, false);
                self.write(life, LONG, false);
            }
            Moment::Begun | Moment::Home(_) | Moment::Sealed(SealCause::Destage) => {
                self.write(life, 9, false);
                life.session.command(Command::Destage);
            }
            Moment::Empty => {
                life.session.command(Command::Destage);
            }
            Moment::Resting | Moment::Asleep => {}
            Moment::Waking if asleep => self.wake(life, quest),
            Moment::WakesLate if asleep => {
                self.spoil_one(life, true, false);
                self.wake(life, quest);
            }
            Moment::WakesNever if asleep => {
                self.spoil_one(life, false, false);
                self.wake(life, quest);
            }
            Moment::Waking | Moment::WakesLate | Moment::WakesNever => {}
        }
    }

    fn may_ask(&mut self, life: &mut Life, ask: Ask) -> bool {
        let may = life.serving && !life.stopping && life.session.world.ready();
        if may {
            self.ask(life, ask);
        }
        may
    }

    fn write(&mut self, life: &mut Life, sectors: u64, fua: bool) {
        let ask = self.some_write(sectors, WriteKind::Data, fua);
        self.may_ask(life, ask);
    }

    /// Of the little that is written again and again, so that most of the log is dead.
    fn write_anew(&mut self, life: &mut Life) {
        for _ in 0..FEW {
            let sectors = LONG.min(self.layout.size_sectors()) / 2;
            let ask = self.write_within(2 * sectors - 1, sectors, WriteKind::Data, false);
            self.may_ask(life, ask);
        }
    }

    fn some_write(&mut self, sectors: u64, kind: WriteKind, fua: bool) -> Ask {
        let size = self.layout.size_sectors();
        self.write_within(size, sectors.min(size), kind, fua)
    }

    /// Somewhere in the beginning of the array.
    fn write_within(&mut self, room: u64, sectors: u64, kind: WriteKind, fua: bool) -> Ask {
        let lba = self.rng.below(room - sectors + 1);
        let fast = false;
        Ask::Write {
            lba,
            sectors,
            kind,
            fua,
            fast,
        }
    }

    /// Something is asked of mirrors: of all, or of one, where there are as many as it takes.
    fn wake(&mut self, life: &mut Life, quest: &Quest) {
        if !life.serving || life.stopping {
            return;
        }
        let late = life.spoilt.is_empty();
        let bears = late || matches!(self.plan.home.level, Level::Raid10 { copies: 3 });
        // Others are to sleep on, where one of them is to be lost, or are still to come to rest.
        let one = quest.event == Event::AsleepLoss || quest.moment == Moment::Resting;
        if bears && (one || self.rng.chance(1, 2)) {
            return self.wake_one(life);
        }
        if self.rng.chance(1, 2) {
            self.scrub(life);
        }
        life.session.command(Command::Destage);
    }

    fn scrub(&mut self, life: &mut Life) {
        let repair = false;
        life.session
            .command(Command::Scrub(ScrubMode::writing(repair)));
    }

    /// The first copy of a sector cannot be read: so a mirror is asked that sleeps.
    fn wake_one(&mut self, life: &mut Life) {
        let Some(home) = self.standing_of(life, Site::Home) else {
            return;
        };
        let sets = match life.spoilt.is_empty() {
            true => self.whole_mirrors(life, &home),
            false => self.spoilt_mirrors(life),
        };
        let status = life.session.world.status();
        for _ in 0..SECTORS {
            let lba = self.rng.below(self.layout.size_sectors());
            let place = self.layout.place(lba);
            let cell = self.layout.row(place.row).cells[usize::from(place.data)];
            let mut lines = status.members.iter();
            let first = lines
                .find(|line| line.slot == Some(cell.slot.0) && line.read_errors < ERRORS_BORNE)
                .map(|line| line.member);
            let Some(set) = sets.first().filter(|set| Some(set[0]) == first) else {
                continue;
            };
            let sleeps = |member: &Member| life.session.world.disk(*member).faults.asleep();
            if !set[1..].iter().any(sleeps) || !life.session.world.ready() {
                continue;
            }
            let spec = self.plan.home.create().expect("plans are made to fit");
            let data = spec.superblock.region(RegionKind::Data);
            let at = data.map_or(0, |region| region.start) + cell.at + place.offset;
            life.bad_sectors = true;
            life.session
                .world
                .inject(set[0], Fault::Latent { at, sectors: 1 });
            self.ask(life, Ask::Read { lba, sectors: 1 });
        }
    }

    /// A mirror that sleeps, or is going to, will never wake: whether there is one.
    fn spoil(&mut self, life: &mut Life, met: &BTreeSet<Moment>, before: bool) -> bool {
        if life.spoilt.is_empty() && (before || met.contains(&Moment::Asleep)) {
            self.spoil_one(life, false, before);
        }
        !life.spoilt.is_empty()
    }

    fn spoil_one(&mut self, life: &mut Life, late: bool, before: bool) {
        let Some(home) = self.standing_of(life, Site::Home) else {
            return;
        };
        let sleeps = |member: &Member| before || life.session.world.disk(*member).faults.asleep();
        let sets = self.whole_mirrors(life, &home).into_iter();
        let mut mirrors = sets.flat_map(|set| set.into_iter().skip(1));
        if let Some(member) = mirrors.find(sleeps) {
            let after = late.then(|| Nanos(self.rng.between(1, 30) * 1_000_000_000));
            self.spoil_member(life, member, after);
        }
    }

    // -------------------------------------------------------------------------------------------------------- strikes

    /// Lets it happen; false if it cannot now.
    fn strike(&mut self, life: &mut Life, met: Moment, event: Event) -> bool {
        let sectors = self.rng.between(1, 40);
        match event {
            Event::Write | Event::Fua => {
                let ask = self.some_write(sectors, WriteKind::Data, event == Event::Fua);
                self.may_ask(life, ask)
            }
            Event::Zeroes | Event::Trim => {
                let kind = match event {
                    Event::Trim => WriteKind::Trim,
                    _ => WriteKind::Zeroes,
                };
                let ask = self.some_write(sectors, kind, false);
                self.may_ask(life, ask)
            }
            Event::Read => {
                let lba = self.rng.below(self.layout.size_sectors() - sectors);
                self.may_ask(life, Ask::Read { lba, sectors })
            }
            Event::Flush => self.may_ask(life, Ask::Flush),
            Event::Stop => {
                let may = life.serving && !life.stopping;
                life.stop_due |= may;
                may
            }
            Event::Crash | Event::Start => {
                // What was moved is to be in the log when the old records are void, and so it is soon after.
                let late = matches!(met, Moment::Cleaning(Cleans::Voiding));
                let late = late && self.rng.chance(1, 2);
                let steps = if late { self.rng.below(SOON) } else { 0 };
                life.crash_after = Some(life.steps + steps);
                true
            }
            Event::LogLoss => self.lose_of_log(life, false),
            Event::SecondLogLoss => self.lose_of_log(life, true),
            Event::DiskLoss => self.lose_disk(life, false),
            Event::SecondDiskLoss => self.lose_disk(life, true),
            Event::SurrogateLoss => {
                let log = self.standing_of(life, Site::Log);
                let some = log.filter(|log| !log.serving.is_empty());
                some.map(|log| self.lose_surrogate(life, &log.serving))
                    .is_some()
            }
            Event::AwakeLoss => self.lose_of_home(life, false),
            Event::AsleepLoss => self.lose_of_home(life, true),
            Event::FailedWake => false,
        }
    }

    fn standing_of(&self, life: &Life, site: Site) -> Option<Standing> {
        let status = life.session.world.status();
        let set = set_of(&status, site)?;
        Some(self.standing(life, set, site))
    }

    /// One that turns, or one that stands still, of chunks of which every copy is there.
    fn lose_of_home(&mut self, life: &mut Life, asleep: bool) -> bool {
        let Some(home) = self.standing_of(life, Site::Home) else {
            return false;
        };
        let world = &life.session.world;
        let is = |member: &Member| world.disk(*member).faults.asleep() == asleep;
        let sets = self.whole_mirrors(life, &home);
        let found = sets.into_iter().flatten().find(is);
        match found {
            Some(member) => self.lose(life, Site::Home, member),
            None => self.mend(life, Site::Home, &home),
        }
        found.is_some()
    }

    /// A member of the log, or another one.
    fn lose_of_log(&mut self, life: &mut Life, second: bool) -> bool {
        let Some(log) = self.standing_of(life, Site::Log) else {
            return false;
        };
        let bears = matches!(self.plan.log.level, Level::Raid6(_));
        if second && !bears {
            return true;
        }
        // What is wrong already may be all that redundancy bears.
        if !self.bears_loss_of_log() {
            return false;
        }
        let mut members = log.serving.clone();
        let whole = log.whole && log.quiet;
        if whole {
            let member = self.pick_out(&mut members);
            self.lose(life, Site::Log, member);
        }
        if second && self.takes_another(whole, log.misses_one) {
            self.note_event(life, Event::SecondLogLoss);
            let member = self.pick_out(&mut members);
            self.take(life, Site::Log, member);
            return true;
        }
        if whole {
            return !second;
        }
        self.mend(life, Site::Log, &log);
        false
    }

    /// A disk that has the first copy that is left of chunks, and a part of the log; or another one.
    fn lose_disk(&mut self, life: &mut Life, second: bool) -> bool {
        let (Some(home), Some(log)) = (
            self.standing_of(life, Site::Home),
            self.standing_of(life, Site::Log),
        ) else {
            return false;
        };
        if second && !matches!(self.plan.log.level, Level::Raid6(_)) {
            return true;
        }
        if !self.bears_loss_of_log() {
            return false;
        }
        let whole = log.whole && log.quiet;
        let all = self.mirrors(life, |member| home.serving.contains(&member));
        let bear = all.iter().filter(|set| set.len() > 1 && !home.resyncs);
        let mut firsts: Vec<Member> = bear.map(|copies| copies[0]).collect();
        if firsts.is_empty() || !(whole || second && log.misses_one) {
            self.mend(life, Site::Home, &home);
            self.mend(life, Site::Log, &log);
            return false;
        }
        let mut beside = log.serving.clone();
        if whole {
            self.note_event(life, Event::DiskLoss);
            self.take_disk(life, &mut firsts, &mut beside);
        }
        let another = second && self.takes_another(whole, log.misses_one);
        if another && !firsts.is_empty() {
            self.note_event(life, Event::SecondDiskLoss);
            self.take_disk(life, &mut firsts, &mut beside);
            return true;
        }
        !second
    }

    /// The first of the one kind, and any of the other.
    fn take_disk(&mut self, life: &mut Life, firsts: &mut Vec<Member>, beside: &mut Vec<Member>) {
        self.take(life, Site::Home, firsts.remove(0));
        let member = self.pick_out(beside);
        self.take(life, Site::Log, member);
    }

    /// Whether a second one is lost now: while the first is missing, or at the same moment with it.
    fn takes_another(&mut self, whole: bool, misses_one: bool) -> bool {
        match whole {
            true => self.rng.chance(1, 2),
            false => misses_one,
        }
    }

    fn pick_out(&mut self, members: &mut Vec<Member>) -> Member {
        let index = self.rng.below(members.len() as u64);
        members.remove(index as usize)
    }

    /// Members that hold the same chunks, the first copy first, where all of them are there and alike.
    fn whole_mirrors(&self, life: &Life, home: &Standing) -> Vec<Vec<Member>> {
        let Level::Raid10 { copies } = self.plan.home.level else {
            return Vec::new();
        };
        let all = self.mirrors(life, |member| home.serving.contains(&member));
        let whole = |set: &Vec<Member>| set.len() == usize::from(copies) && !home.resyncs;
        all.into_iter().filter(whole).collect()
    }

    /// Those with one that will never wake, and two that are there, the first copy among them.
    fn spoilt_mirrors(&self, life: &Life) -> Vec<Vec<Member>> {
        let world = &life.session.world;
        let all = self.mirrors(life, |member| {
            let faults = &world.disk(member).faults;
            !faults.dead() && !faults.hanging() && faults.latent().next().is_none()
        });
        let spoilt = |set: &Vec<Member>| {
            set.len() == 3 && set[1..].iter().any(|member| life.spoilt.contains(member))
        };
        all.into_iter().filter(spoilt).collect()
    }

    /// Members in service of this kind by the chunks that they hold, in the order of their slots.
    fn mirrors(&self, life: &Life, is: impl Fn(Member) -> bool) -> Vec<Vec<Member>> {
        let Level::Raid10 { copies } = self.plan.home.level else {
            return Vec::new();
        };
        let status = life.session.world.status();
        let of_slot = |slot: u16| {
            let serves = |line: &&MemberStatus| {
                line.slot == Some(slot) && line.state == MemberState::Active && is(line.member)
            };
            status.members.iter().find(serves).map(|line| line.member)
        };
        let copies = u16::from(copies);
        let firsts = (0..self.plan.home.slots).step_by(usize::from(copies));
        firsts
            .map(|first| (first..first + copies).filter_map(of_slot).collect())
            .collect()
    }

    fn lose(&mut self, life: &mut Life, site: Site, member: Member) {
        self.note_event(life, self.loss_of(life, site, member));
        self.take(life, site, member);
    }

    fn take(&mut self, life: &mut Life, site: Site, member: Member) {
        life.troubled[site as usize] = true;
        if self.rng.chance(1, 3) && life.serving && !life.stopping {
            life.session.command(Command::Fail(member));
        } else {
            life.session.world.inject(member, Fault::Death);
        }
        self.count("members lost", 1);
    }

    /// A new disk takes the place of one that is gone.
    fn mend(&mut self, life: &mut Life, site: Site, set: &Standing) {
        let may = life.serving && !life.stopping && life.steps >= life.mend_after;
        if !may || !set.quiet || set.failed.is_empty() {
            return;
        }
        life.mend_after = life.steps + MEND;
        let disk = self.blank(site);
        let new = life.session.world.arrive(disk);
        life.sites.push(site);
        let command = match site {
            Site::Home => Command::Add(new),
            Site::Log | Site::Buffer => Command::Replace {
                old: set.failed[0],
                new,
            },
        };
        life.session.command(command);
    }
}
