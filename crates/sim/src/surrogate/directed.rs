//! Directed scenarios: an event that shall meet a code cache in a certain state.
//!
//! Such states are short and losses rare, so random draws leave much of the table of both empty. A directed
//! scenario triggers its state, and then waits for it. Seeds take the cells of the table in rotation. Each
//! seed has one cell of its own that its array suits, tries it again if it fails, and then continues with
//! other cells that the same array suits.

use super::faults::SetState;
use super::moment::{Event, Moment, cells};
use super::{Life, Plan, Run, Site, set_of};
use super::{faults, removal, rot};
use crate::fault::Fault;
use crate::oracle::WriteKind;
use crate::workload::Ask;
use restripe_array::layout::{Level, Rotation};
use restripe_array::meta::{Init, RegionKind};
use restripe_array::report::{MemberState, MemberStatus};
use restripe_array::{Command, Member, Nanos};
use restripe_tier::Sleep;
use restripe_tier::overlay::{Cleans, SealCause};
use std::collections::BTreeSet;

/// What is to happen, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Directed {
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
/// From a run's directed scenario to the next in the table: the first is another one with each seed.
const STRIDE: u64 = 101;
/// Directed scenarios of a run at most.
const SCENARIOS: u64 = 12;
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

impl Directed {
    /// The cells of the table that can be met, by turns.
    fn of(turn: u64) -> Directed {
        let (moment, event) = Directed::cell(turn);
        // Every crash is followed by a start.
        let event = match event {
            Event::Start => Event::Crash,
            event => event,
        };
        Directed {
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

    /// Whether its moment is one of mirrors in standby.
    fn sleeps(&self) -> bool {
        (Moment::Resting..=Moment::WakesNever).contains(&self.moment)
    }

    /// Whether users are to be silent for it.
    fn holds(&self) -> bool {
        let silent = matches!(self.moment, Moment::Empty | Moment::Sealed(SealCause::Age));
        let silent = silent || self.sleeps();
        // Of what users write again something is soon free.
        let fills = self.moment == Moment::Starved && self.event == Event::FailedWake;
        silent || fills || matches!(self.event, Event::AsleepLoss)
    }
}

impl Plan {
    /// An array that can meet what a run sets out for.
    pub(super) fn suit(&mut self, turn: u64) {
        let directed = Directed::of(turn);
        let asleep = matches!(directed.event, Event::AsleepLoss | Event::FailedWake);
        if directed.sleeps() || asleep {
            self.destage.sleep = Some(Sleep {
                after: Nanos::from_millis(1),
                starts_a_day: 1 << 30,
            });
            self.home.level = Level::Raid10 { copies: 3 };
            self.home.slots = 6;
            // What nobody wrote is read from members, too.
            self.home.init = Init::Zero;
        }
        if directed.fills() || asleep {
            // Something lies in the log, and stays there; mirrors sleep on meanwhile.
            (self.destage.idle, self.destage.every) = (None, None);
        }
        if matches!(directed.event, Event::SecondLogLoss | Event::SecondDiskLoss) {
            self.log.level = Level::Raid6(Rotation::LeftSymmetric);
            // Its chunk may be such that a row of more is longer than a record.
            self.log.slots = self.log.slots.clamp(4, 5);
        }
        if directed.moment == Moment::Sealed(SealCause::Stop) {
            self.destage.seal = Nanos::from_secs(5);
        }
        match (directed.moment, directed.event) {
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
        if directed.moment == Moment::Starved {
            self.extents = self.extents.min(SMALL_MAP);
        }
    }

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

/// Whether users are to be silent.
pub(super) fn holds(run: &Run) -> bool {
    run.directed.as_ref().is_some_and(Directed::holds)
}

/// Counts an event against what the code cache is at.
pub(super) fn note_event(run: &mut Run, life: &Life, event: Event) {
    if run.options.gathers && !removal::is_removed(run) {
        let met = Moment::of_life(life);
        count_event(run, met, event);
    }
}

pub(super) fn count_event(run: &mut Run, met: BTreeSet<Moment>, event: Event) {
    run.base.say(|| format!("  {event:?} at {met:?}"));
    for moment in met {
        *run.outcome.events.entry((moment, event)).or_default() += 1;
    }
}

/// A user asks.
pub(super) fn request(run: &mut Run, life: &mut Life, ask: Ask) {
    note_event(run, life, Event::of(&ask));
    life.session.issue(ask);
}

/// Looks whether the moment has come.
pub(super) fn look(run: &mut Run, life: &mut Life, more: bool) {
    if !run.options.quests {
        return;
    }
    let met = Moment::of_life(life);
    let failed = note_failed_wakes(run, life, &met);
    let Some(mut directed) = run.directed.take() else {
        return next_directed(run);
    };
    directed.left = directed.left.saturating_sub(1);
    let comes = met.contains(&directed.moment);
    let done = match (comes, directed.event) {
        (true, Event::FailedWake) => failed,
        (true, event) => strike(run, life, directed.moment, event),
        (false, _) => false,
    };
    let idle = !more && life.session.outstanding() == 0;
    let wait = if directed.fills() { HURRY } else { WAIT };
    if done || directed.left == 0 || idle && directed.left.is_multiple_of(wait) {
        return;
    }
    let before = directed.moment == Moment::Resting;
    let prepared = match directed.event {
        Event::FailedWake => spoil(run, life, &met, before),
        Event::AsleepLoss => before || met.contains(&Moment::Asleep),
        _ => true,
    };
    let fleeting = directed.moment == Moment::Sealed(SealCause::Stop);
    let filled = met.contains(&Moment::Filling) && !met.contains(&Moment::Copying);
    let fleeting = fleeting && filled && life.session.outstanding() == 0;
    let soon_over = matches!(directed.moment, Moment::Resting | Moment::Cleaning(_));
    let fleeting = fleeting || comes && soon_over;
    if prepared && (directed.left.is_multiple_of(wait) || idle || fleeting) {
        match comes {
            true => wake(run, life, &directed),
            false => trigger(run, life, &met, &directed),
        }
    }
    run.directed = Some(directed);
}

/// In the last life everything comes to rest.
pub(super) fn end_directed(run: &mut Run) {
    run.directed = None;
    run.scenarios = SCENARIOS;
}

/// Whether what this run set out for is still to be met.
pub(super) fn seeks(run: &Run) -> bool {
    let seeks = run.options.quests && run.scenarios < SCENARIOS;
    seeks && run.tries <= TRIES && !run.outcome.events.contains_key(&run.goal)
}

/// Whether it is sought at this moment: the life goes on for it.
pub(super) fn is_at_it(run: &Run) -> bool {
    run.directed.is_some() && seeks(run)
}

fn next_directed(run: &mut Run) {
    if run.scenarios == SCENARIOS {
        return;
    }
    run.tries += u64::from(seeks(run));
    let turn = match seeks(run) {
        true => run.seed,
        false => next_turn(run),
    };
    run.scenarios += 1;
    run.directed = Some(Directed::of(turn));
    run.base.say(|| format!("  quest: {:?}", run.directed));
}

/// The next cell that this array suits.
fn next_turn(run: &mut Run) -> u64 {
    for _ in cells() {
        run.turn = run.turn.wrapping_add(STRIDE);
        if run.plan.suits(run.turn) {
            return run.turn;
        }
    }
    unreachable!("it suits its own cell, and the stride comes to all of them")
}

/// Mirrors that were asked to wake, and never will: whether there is a new one.
fn note_failed_wakes(run: &mut Run, life: &mut Life, met: &BTreeSet<Moment>) -> bool {
    let world = &life.session.world;
    let before = life.spoilt.len();
    life.spoilt
        .retain(|member| !world.disk(*member).faults.never_woke());
    let failed = life.spoilt.len() < before;
    if failed {
        count_event(run, met.clone(), Event::FailedWake);
    }
    failed
}

// --------------------------------------------------------------------------------------------------- provocations

fn trigger(run: &mut Run, life: &mut Life, met: &BTreeSet<Moment>, directed: &Directed) {
    if !life.serving || life.stopping {
        return;
    }
    let asleep = met.contains(&Moment::Asleep);
    match directed.moment {
        Moment::Starting => life.crash_after = Some(life.steps),
        Moment::Stopping if asleep && !met.contains(&Moment::Filling) => {
            write(run, life, 3, false);
        }
        Moment::Stopping => life.stop_due = true,
        Moment::Sealed(SealCause::Stop) if met.contains(&Moment::Filling) => {
            if !life.spoilt.is_empty() {
                life.session.scrub(false);
            }
            life.stop_due = true;
        }
        Moment::Sealed(SealCause::Stop) => write(run, life, 3, false),
        Moment::Sealed(SealCause::Flush) => {
            write(run, life, 3, false);
            may_ask(run, life, Ask::Flush);
        }
        Moment::Sealed(SealCause::Fua) => write(run, life, 3, true),
        Moment::Filling | Moment::InLog | Moment::Sealed(SealCause::Age) => {
            write(run, life, 1, false);
        }
        Moment::Starved if run.plan.extents <= SMALL_MAP => {
            for _ in 0..FEW {
                write(run, life, 1, false);
            }
        }
        Moment::Cleaning(_) => write_anew(run, life),
        Moment::Short if directed.event == Event::AsleepLoss => write_anew(run, life),
        Moment::Copying
        | Moment::Announcing
        | Moment::InFlight
        | Moment::Reusing
        | Moment::Short
        | Moment::Starved
        | Moment::Sealed(SealCause::Full | SealCause::Failed) => {
            write(run, life, LONG, false);
            write(run, life, LONG, false);
        }
        Moment::Begun | Moment::Home(_) | Moment::Sealed(SealCause::Destage) => {
            write(run, life, 9, false);
            life.session.command(Command::Destage);
        }
        Moment::Empty => {
            life.session.command(Command::Destage);
        }
        Moment::Resting | Moment::Asleep => {}
        Moment::Waking if asleep => wake(run, life, directed),
        Moment::WakesLate if asleep => {
            spoil_one(run, life, true, false);
            wake(run, life, directed);
        }
        Moment::WakesNever if asleep => {
            spoil_one(run, life, false, false);
            wake(run, life, directed);
        }
        Moment::Waking | Moment::WakesLate | Moment::WakesNever => {}
    }
}

fn may_ask(run: &mut Run, life: &mut Life, ask: Ask) -> bool {
    let may = life.serving && !life.stopping && life.session.world.ready();
    if may {
        request(run, life, ask);
    }
    may
}

fn write(run: &mut Run, life: &mut Life, sectors: u64, fua: bool) {
    let ask = some_write(run, sectors, WriteKind::Data, fua);
    may_ask(run, life, ask);
}

/// Of the little that is written again and again, so that most of the log is dead.
fn write_anew(run: &mut Run, life: &mut Life) {
    for _ in 0..FEW {
        let sectors = LONG.min(run.base.layout.size_sectors()) / 2;
        let ask = write_within(run, 2 * sectors - 1, sectors, WriteKind::Data, false);
        may_ask(run, life, ask);
    }
}

fn some_write(run: &mut Run, sectors: u64, kind: WriteKind, fua: bool) -> Ask {
    let size = run.base.layout.size_sectors();
    write_within(run, size, sectors.min(size), kind, fua)
}

/// Somewhere in the beginning of the array.
fn write_within(run: &mut Run, room: u64, sectors: u64, kind: WriteKind, fua: bool) -> Ask {
    let lba = run.base.rng.below(room - sectors + 1);
    Ask::write(lba, sectors, kind, fua)
}

/// Something is asked of mirrors: of all, or of one, where there are as many as it takes.
fn wake(run: &mut Run, life: &mut Life, directed: &Directed) {
    if !life.serving || life.stopping {
        return;
    }
    let late = life.spoilt.is_empty();
    let bears = late || matches!(run.plan.home.level, Level::Raid10 { copies: 3 });
    // Others are to sleep on, where one of them is to be lost, or are still to come to rest.
    let one = directed.event == Event::AsleepLoss || directed.moment == Moment::Resting;
    if bears && (one || run.base.rng.chance(1, 2)) {
        return wake_one(run, life);
    }
    if run.base.rng.chance(1, 2) {
        life.session.scrub(false);
    }
    life.session.command(Command::Destage);
}

/// The first copy of a sector cannot be read: so a mirror is asked that sleeps.
fn wake_one(run: &mut Run, life: &mut Life) {
    let Some(home) = state_of(run, life, Site::Home) else {
        return;
    };
    let sets = match life.spoilt.is_empty() {
        true => whole_mirrors(run, life, &home),
        false => spoilt_mirrors(run, life),
    };
    let status = life.session.world.status();
    for _ in 0..SECTORS {
        let lba = run.base.rng.below(run.base.layout.size_sectors());
        let place = run.base.layout.place(lba);
        let cell = run.base.layout.row(place.row).cells[usize::from(place.data)];
        let serves = |line: &&MemberStatus| {
            line.slot == Some(cell.slot.0) && line.read_errors < ERRORS_BORNE
        };
        let first = status.members.iter().find(serves).map(|line| line.member);
        let Some(set) = sets.first().filter(|set| Some(set[0]) == first) else {
            continue;
        };
        let sleeps = |member: &Member| life.session.world.disk(*member).faults.asleep();
        if !set[1..].iter().any(sleeps) || !life.session.world.ready() {
            continue;
        }
        let spec = run.plan.home.create().expect("plans are made to fit");
        let data = spec.superblock.region(RegionKind::Data);
        let at = data.map_or(0, |region| region.start) + cell.at + place.offset;
        life.bad_sectors = true;
        let latent = Fault::Latent { at, sectors: 1 };
        life.session.world.inject(set[0], latent);
        request(run, life, Ask::Read { lba, sectors: 1 });
    }
}

/// A mirror that sleeps, or is going to, will never wake: whether there is one.
fn spoil(run: &mut Run, life: &mut Life, met: &BTreeSet<Moment>, before: bool) -> bool {
    if life.spoilt.is_empty() && (before || met.contains(&Moment::Asleep)) {
        spoil_one(run, life, false, before);
    }
    !life.spoilt.is_empty()
}

fn spoil_one(run: &mut Run, life: &mut Life, late: bool, before: bool) {
    let Some(home) = state_of(run, life, Site::Home) else {
        return;
    };
    let sleeps = |member: &Member| before || life.session.world.disk(*member).faults.asleep();
    let sets = whole_mirrors(run, life, &home).into_iter();
    let mut mirrors = sets.flat_map(|set| set.into_iter().skip(1));
    if let Some(member) = mirrors.find(sleeps) {
        let after = late.then(|| Nanos(run.base.rng.between(1, 30) * 1_000_000_000));
        faults::spoil_member(run, life, member, after);
    }
}

// -------------------------------------------------------------------------------------------------------- strikes

/// Lets it happen; false if it cannot now.
fn strike(run: &mut Run, life: &mut Life, met: Moment, event: Event) -> bool {
    let sectors = run.base.rng.between(1, 40);
    match event {
        Event::Write | Event::Fua => {
            let ask = some_write(run, sectors, WriteKind::Data, event == Event::Fua);
            may_ask(run, life, ask)
        }
        Event::Zeroes | Event::Trim => {
            let kind = match event {
                Event::Trim => WriteKind::Trim,
                _ => WriteKind::Zeroes,
            };
            let ask = some_write(run, sectors, kind, false);
            may_ask(run, life, ask)
        }
        Event::Read => {
            let lba = run.base.rng.below(run.base.layout.size_sectors() - sectors);
            may_ask(run, life, Ask::Read { lba, sectors })
        }
        Event::Flush => may_ask(run, life, Ask::Flush),
        Event::Stop => {
            let may = life.serving && !life.stopping;
            life.stop_due |= may;
            may
        }
        Event::Crash | Event::Start => {
            // What was moved is to be in the log when the old records are void, and so it is soon after.
            let late = matches!(met, Moment::Cleaning(Cleans::Voiding));
            let late = late && run.base.rng.chance(1, 2);
            let steps = if late { run.base.rng.below(SOON) } else { 0 };
            life.crash_after = Some(life.steps + steps);
            true
        }
        Event::LogLoss => lose_of_log(run, life, false),
        Event::SecondLogLoss => lose_of_log(run, life, true),
        Event::DiskLoss => lose_disk(run, life, false),
        Event::SecondDiskLoss => lose_disk(run, life, true),
        Event::SurrogateLoss => {
            let log = state_of(run, life, Site::Log);
            let some = log.filter(|log| !log.serving.is_empty());
            let lost = some.map(|log| faults::lose_surrogate(run, life, &log.serving));
            lost.is_some()
        }
        Event::AwakeLoss => lose_of_home(run, life, false),
        Event::AsleepLoss => lose_of_home(run, life, true),
        Event::FailedWake => false,
    }
}

fn state_of(run: &Run, life: &Life, site: Site) -> Option<SetState> {
    let status = life.session.world.status();
    let set = set_of(&status, site)?;
    Some(faults::set_state(run, life, set, site))
}

/// One that turns, or one that stands still, of chunks of which every copy is there.
fn lose_of_home(run: &mut Run, life: &mut Life, asleep: bool) -> bool {
    let Some(home) = state_of(run, life, Site::Home) else {
        return false;
    };
    let world = &life.session.world;
    let is = |member: &Member| world.disk(*member).faults.asleep() == asleep;
    let sets = whole_mirrors(run, life, &home);
    let found = sets.into_iter().flatten().find(is);
    match found {
        Some(member) => lose(run, life, Site::Home, member),
        None => mend(run, life, Site::Home, &home),
    }
    found.is_some()
}

/// A member of the log, or another one.
fn lose_of_log(run: &mut Run, life: &mut Life, second: bool) -> bool {
    let Some(log) = state_of(run, life, Site::Log) else {
        return false;
    };
    let bears = matches!(run.plan.log.level, Level::Raid6(_));
    if second && !bears {
        return true;
    }
    // What is wrong already may be all that redundancy bears.
    if !rot::bears_loss_of_log(run) {
        return false;
    }
    let mut members = log.serving.clone();
    let whole = log.whole && log.quiet;
    if whole {
        let member = pick_out(run, &mut members);
        lose(run, life, Site::Log, member);
    }
    if second && takes_another(run, whole, log.misses_one) {
        note_event(run, life, Event::SecondLogLoss);
        let member = pick_out(run, &mut members);
        take(run, life, Site::Log, member);
        return true;
    }
    if whole {
        return !second;
    }
    mend(run, life, Site::Log, &log);
    false
}

/// A disk that has the first copy that is left of chunks, and a part of the log; or another one.
fn lose_disk(run: &mut Run, life: &mut Life, second: bool) -> bool {
    let sets = [Site::Home, Site::Log].map(|site| state_of(run, life, site));
    let [Some(home), Some(log)] = sets else {
        return false;
    };
    if second && !matches!(run.plan.log.level, Level::Raid6(_)) {
        return true;
    }
    if !rot::bears_loss_of_log(run) {
        return false;
    }
    let whole = log.whole && log.quiet;
    let all = mirrors(run, life, |member| home.serving.contains(&member));
    let bear = all.iter().filter(|set| set.len() > 1 && !home.resyncs);
    let mut firsts: Vec<Member> = bear.map(|copies| copies[0]).collect();
    if firsts.is_empty() || !(whole || second && log.misses_one) {
        mend(run, life, Site::Home, &home);
        mend(run, life, Site::Log, &log);
        return false;
    }
    let mut beside = log.serving.clone();
    if whole {
        note_event(run, life, Event::DiskLoss);
        take_disk(run, life, &mut firsts, &mut beside);
    }
    let another = second && takes_another(run, whole, log.misses_one);
    if another && !firsts.is_empty() {
        note_event(run, life, Event::SecondDiskLoss);
        take_disk(run, life, &mut firsts, &mut beside);
        return true;
    }
    !second
}

/// The first of the one kind, and any of the other.
fn take_disk(run: &mut Run, life: &mut Life, firsts: &mut Vec<Member>, beside: &mut Vec<Member>) {
    take(run, life, Site::Home, firsts.remove(0));
    let member = pick_out(run, beside);
    take(run, life, Site::Log, member);
}

/// Whether a second one is lost now: while the first is missing, or at the same moment with it.
fn takes_another(run: &mut Run, whole: bool, misses_one: bool) -> bool {
    match whole {
        true => run.base.rng.chance(1, 2),
        false => misses_one,
    }
}

fn pick_out(run: &mut Run, members: &mut Vec<Member>) -> Member {
    let index = run.base.rng.below(members.len() as u64);
    members.remove(index as usize)
}

/// Members that hold the same chunks, the first copy first, where all of them are there and alike.
fn whole_mirrors(run: &Run, life: &Life, home: &SetState) -> Vec<Vec<Member>> {
    let Level::Raid10 { copies } = run.plan.home.level else {
        return Vec::new();
    };
    let all = mirrors(run, life, |member| home.serving.contains(&member));
    let whole = |set: &Vec<Member>| set.len() == usize::from(copies) && !home.resyncs;
    all.into_iter().filter(whole).collect()
}

/// Those with one that will never wake, and two that are there, the first copy among them.
fn spoilt_mirrors(run: &Run, life: &Life) -> Vec<Vec<Member>> {
    let world = &life.session.world;
    let all = mirrors(run, life, |member| {
        let faults = &world.disk(member).faults;
        !faults.dead() && !faults.hanging() && faults.latent().next().is_none()
    });
    let spoilt = |set: &Vec<Member>| {
        set.len() == 3 && set[1..].iter().any(|member| life.spoilt.contains(member))
    };
    all.into_iter().filter(spoilt).collect()
}

/// Members in service of this kind by the chunks that they hold, in the order of their slots.
fn mirrors(run: &Run, life: &Life, is: impl Fn(Member) -> bool) -> Vec<Vec<Member>> {
    let Level::Raid10 { copies } = run.plan.home.level else {
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
    let firsts = (0..run.plan.home.slots).step_by(usize::from(copies));
    let mirrors = firsts.map(|first| (first..first + copies).filter_map(of_slot).collect());
    mirrors.collect()
}

fn lose(run: &mut Run, life: &mut Life, site: Site, member: Member) {
    note_event(run, life, faults::loss_of(life, site, member));
    take(run, life, site, member);
}

fn take(run: &mut Run, life: &mut Life, site: Site, member: Member) {
    life.troubled[site as usize] = true;
    if run.base.rng.chance(1, 3) && life.serving && !life.stopping {
        life.session.command(Command::Fail(member));
    } else {
        life.session.world.inject(member, Fault::Death);
    }
    run.base.count("members lost", 1);
}

/// A new disk takes the place of one that is gone.
fn mend(run: &mut Run, life: &mut Life, site: Site, set: &SetState) {
    let may = life.serving && !life.stopping && life.steps >= life.mend_after;
    if !may || !set.quiet || set.failed.is_empty() {
        return;
    }
    life.mend_after = life.steps + MEND;
    let new = faults::arrive(run, life, site);
    let command = match site {
        Site::Home => Command::Add(new),
        Site::Log | Site::Buffer => Command::Replace {
            old: set.failed[0],
            new,
        },
    };
    life.session.command(command);
}
