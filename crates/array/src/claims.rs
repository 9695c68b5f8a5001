//! The floor of claims to the array: one run serves it, and is seen to.
//!
//! Where no lock guards the members, two daemons could serve one array. So a run records itself in the
//! superblocks, looks at them again in intervals, and renews its record.
//!
//! Owns what this run knows of its claim ([`Ownership`]). Asks every floor below. Tells a start by notices
//! whether the array is this run's.
//!
//! | state     | cause                                                      | next       |
//! |-----------|------------------------------------------------------------|------------|
//! | idle      | a start finds the record of a run that may live            | waiting    |
//! | waiting   | a superblock changes                                       | the start is refused |
//! | waiting   | none changes for [`WAITS`] intervals                       | claiming   |
//! | idle      | a start finds no such record                               | claiming   |
//! | claiming  | the record of this run is durable                          | guarding   |
//! | guarding  | [`GUARDS`] intervals, or a moment if no other run can live | confirming |
//! | confirming| the newest superblocks are this run's                      | serving    |
//! | confirming, serving | a newest superblock is another run's             | refused, halted |
//! | serving   | an interval, or the run is unsure                          | serving: a look, and a renewal if the run is alone |
//! | serving   | a member has another array's superblock, or none for [`BLANKS`] looks | serving: the member is failed |
//!
//! A run is *unsure* when its last look that found it alone was begun more than [`TRUSTS`] intervals ago.
//! Nothing is written and nothing is answered while it is unsure ([`Claims::hold_while_unsure`]). All ages of
//! looks are by the time of the world, which goes on while the shell stands still
//! ([`Event::Paused`](crate::Event::Paused)).
//!
//! Two runs never acknowledge at the same time: a look that begins after another run's claim finds that
//! claim, and `GUARDS > TRUSTS`. So the former run has halted, or is unsure, when the next one leaves its
//! guard. Two starts at once see each other: a start that took longer than [`MOMENT`] from its reads to its
//! claim guards for the full time, and all others guard at least for that moment.

use crate::choose::{Candidate, Choice, newest_of};
use crate::config::Config;
use crate::contract::{
    Action, ArrayOwner, Bug, CommandError, DeviceIo, FailCause, Halt, IoError, IoOp, RequestError,
    RequestTag, Rival,
};
use crate::facts::{NEVER, Notice, StartStage, Wake};
use crate::members::device::Health;
use crate::members::ops::Owner;
use crate::members::pool::Share;
use crate::metadata::superblock_in;
use crate::report::ArrayState;
use crate::task::Background;
use crate::units::{Member, Nanos, Uuid};
use alloc::boxed::Box;
use alloc::vec::Vec;
use restripe_format::meta::MetaError;
use restripe_format::meta::superblock::{SUPERBLOCK_PAGES, Superblock};

/// Intervals in which a record that is renewed changes.
const WAITS: u64 = 2;
/// Intervals for which a look counts.
const TRUSTS: u64 = 2;
/// Intervals between the claim of a run and its first write, where a former run may live.
const GUARDS: u64 = 3;
/// The same where none can live; and the longest time between the reads and the claim of such a start.
const MOMENT: Nanos = Nanos(500_000_000);
/// Versions that leave no other run's copy on a member.
const VERSIONS: u8 = 2;
/// Looks without a sound superblock until a member counts as overwritten.
const BLANKS: u8 = 3;

/// What takes the place of an owner that left no record.
const UNKNOWN: ArrayOwner = ArrayOwner {
    run: Uuid::NIL,
    host: Uuid::NIL,
    started: 0,
    process: 0,
    namespace: 0,
    interval_ms: 0,
};

pub(crate) type Copies = [Option<Result<Superblock, MetaError>>; 2];

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Waiting {
        next: Nanos,
    },
    /// Members that lag get the chosen version first.
    Levelling,
    Claiming,
    Guarding {
        until: Nanos,
    },
    Confirming,
    Serving {
        next: Nanos,
    },
}

#[derive(Default)]
pub(crate) struct Ownership {
    pub(crate) phase: Phase,
    pub(crate) interval: Nanos,
    /// How long the shell stood still, of which the time of the engine knows nothing.
    pub(crate) paused: Nanos,
    /// When this start last began to read superblocks.
    pub(crate) asked: Nanos,
    /// Since when a start waits, and what the superblocks held then.
    pub(crate) seen: Option<(Nanos, Vec<Copies>)>,
    /// The version to which a claim brings members that lag.
    pub(crate) chosen: Option<Superblock>,
    /// A former run may live.
    pub(crate) former: bool,
    /// Writes of levelling and of the claim that are under way.
    pub(crate) outstanding: u32,
    /// A member had no space for one of them.
    pub(crate) full: Option<Member>,
    /// By device.
    pub(crate) looks: Vec<Look>,
    pub(crate) renewed: bool,
    // They come boxed, and go on so.
    #[allow(clippy::vec_box)]
    pub(crate) held: Vec<Box<DeviceIo>>,
    pub(crate) replies: Vec<(RequestTag, Result<(), RequestError>)>,
}

/// The last look at a device.
#[derive(Clone, Default)]
pub(crate) struct Look {
    pub(crate) begun: Nanos,
    pub(crate) outstanding: u8,
    pub(crate) copies: Copies,
    /// When the last look was begun that found this run's superblock to be the newest there.
    pub(crate) alone: Option<Nanos>,
    /// Versions that this run has written there, as far as they matter: before there are [`VERSIONS`],
    /// another run's copy may be one that lay there, and proves nothing.
    pub(crate) versions: u8,
    /// Looks in a row that found no sound superblock.
    pub(crate) blanks: u8,
}

impl Ownership {
    pub(crate) fn asked(&mut self, now: Nanos) {
        self.asked = self.world_time(now);
    }

    pub(crate) fn paused(&mut self, time: Nanos) {
        self.paused = self.paused.after(time);
    }

    fn world_time(&self, now: Nanos) -> Nanos {
        now.after(self.paused)
    }

    /// A device has a version of this run.
    pub(crate) fn version_written(&mut self, member: Member) {
        if let Some(look) = self.looks.get_mut(usize::from(member.0)) {
            look.versions = (look.versions + 1).min(VERSIONS);
        }
    }

    fn times(&self, intervals: u64) -> Nanos {
        Nanos(self.interval.0.saturating_mul(intervals))
    }
}

/// What is known may be old by now.
pub fn refuse_all(actions: &mut [Action]) {
    for action in actions {
        if let Action::Reply(_, result) = action {
            *result = result.and(Err(RequestError::Unavailable));
        }
    }
}

fn interval_of(owner: &ArrayOwner) -> Nanos {
    Nanos(u64::from(owner.interval_ms) * 1_000_000)
}

fn changed(before: &[Copies], now: &[Copies]) -> bool {
    let differs = |(old, new): (&Copies, &Copies)| {
        let both = old.iter().zip(new);
        both.into_iter()
            .any(|(old, new)| old.is_some() && new.is_some() && old != new)
    };
    before.iter().zip(now).any(differs)
}

pub struct Claims {
    below: Background,
    pub(crate) ownership: Ownership,
}

floor!(Claims, Background);

impl Claims {
    pub(crate) fn new(config: Config, share: Share) -> Claims {
        Claims {
            ownership: Ownership::default(),
            below: Background::new(config, share),
        }
    }

    // ------------------------------------------------------------------------------------------------- a
    // start

    /// Whether this start may go on with what it chose. False if it waits to see whether another run lives.
    pub(crate) fn may_take_over(
        &mut self,
        candidates: &[Candidate],
        choice: &Choice,
    ) -> Result<bool, CommandError> {
        let me = self.mode.owner;
        let found = choice.superblock.tail.owner;
        let interval =
            |owner: Option<ArrayOwner>| owner.map_or(Nanos::ZERO, |one| interval_of(&one));
        self.ownership.interval = interval(me).max(interval(found));
        let other = found.filter(|by| {
            me.is_none_or(|me| me.run != by.run) && !self.mode.ended.contains(&Some(by.run))
        });
        self.ownership.former = other.is_some_and(|by| by.interval_ms > 0);
        let Some(by) = other.filter(|_| !self.mode.force_owner) else {
            return Ok(true);
        };
        if by.interval_ms == 0 {
            let guarded = me.is_none_or(|me| me.interval_ms == 0);
            let rival = Rival::Silent;
            return match guarded {
                true => Ok(true),
                false => Err(CommandError::Owned { by, rival }),
            };
        }
        self.wait_for(by, candidates)
    }

    fn wait_for(&mut self, by: ArrayOwner, candidates: &[Candidate]) -> Result<bool, CommandError> {
        let interval = interval_of(&by);
        let copies: Vec<Copies> = candidates.iter().map(|one| one.copies.clone()).collect();
        let waits = Nanos(interval.0 * WAITS);
        match &self.ownership.seen {
            Some((_, before)) if changed(before, &copies) => {
                let rival = Rival::Renews;
                return Err(CommandError::Owned { by, rival });
            }
            Some((since, _)) if self.now >= since.after(waits) => return Ok(true),
            Some(_) => {}
            None => self.ownership.seen = Some((self.now, copies)),
        }
        let next = self.now.after(Nanos(interval.0 / 2));
        self.ownership.phase = Phase::Waiting { next };
        self.wake_at(Wake::Owner, next);
        self.start = Some(StartStage::Owner);
        Ok(false)
    }

    /// Whether this start records itself, and looks, before it goes on.
    pub(crate) fn must_claim(&self) -> bool {
        let renews = |me: ArrayOwner| me.interval_ms > 0 || self.ownership.former;
        !self.mode.read_only && self.mode.owner.is_some_and(renews) && self.superblock.keeps_tail()
    }

    /// Brings members that lag to the chosen version, then writes the next one with this run as the owner.
    pub(crate) fn claim(&mut self, chosen: Superblock, lagging: &[u16]) {
        self.start = Some(StartStage::Owner);
        self.ownership.phase = Phase::Levelling;
        let here = self.entry_members();
        for member in lagging.iter().filter_map(|&entry| here[usize::from(entry)]) {
            self.write_claim(member, &chosen);
        }
        self.ownership.chosen = Some(chosen);
        self.claim_goes_on();
    }

    fn write_claim(&mut self, member: Member, version: &Superblock) {
        if self.good(member) {
            let (at, pages) = self.copy_for(member, version.clone());
            self.ownership.outstanding += 1;
            self.write_pages(Owner::Claim, member, at, pages.into_iter());
        }
    }

    pub(crate) fn claim_written(&mut self, member: Member, result: Result<(), IoError>) {
        self.ownership.outstanding -= 1;
        match result {
            Ok(()) => {}
            Err(IoError::NoSpace) => self.ownership.full = Some(member),
            Err(_) => {
                self.devices[usize::from(member.0)].health = Health::Failed;
                self.stand();
            }
        }
        self.claim_goes_on();
    }

    fn claim_goes_on(&mut self) {
        if self.ownership.outstanding > 0 || !self.starts() {
            return;
        }
        if let Some(member) = self.ownership.full.take() {
            self.fail_member(member, FailCause::WriteError(IoError::NoSpace));
            if self.halted() {
                return;
            }
        }
        match self.ownership.phase {
            Phase::Levelling => self.write_claims(),
            Phase::Claiming => self.guard(),
            _ => {}
        }
    }

    fn write_claims(&mut self) {
        self.ownership.phase = Phase::Claiming;
        let chosen = self.ownership.chosen.take();
        let mut version = chosen.expect("members were levelled to it");
        version.sequence += 1;
        version.tail.owner = self.mode.owner;
        self.superblock.sequence = version.sequence;
        self.superblock.tail.owner = self.mode.owner;
        for index in 0..self.devices.len() {
            if self.devices[index].entry.is_some() {
                self.write_claim(Member(index as u16), &version);
            }
        }
        self.claim_goes_on();
    }

    fn guard(&mut self) {
        let took = self.ownership.world_time(self.now);
        let took = took.since(self.ownership.asked);
        let moment = MOMENT.min(self.ownership.interval);
        // One that waited has seen for long that nothing changes, and still not that nothing is on its way.
        let time = match self.ownership.former || took > moment {
            true => self.ownership.times(GUARDS),
            false => moment,
        };
        let until = self.now.after(time);
        self.ownership.phase = Phase::Guarding { until };
        self.wake_at(Wake::Owner, until);
    }

    fn confirm_owner(&mut self) {
        self.ownership.phase = Phase::Confirming;
        self.ownership.looks.clear();
        self.look_at_all();
        // One that failed, or has no entry yet, has not this run's claim: an old copy there proves nothing.
        for index in 0..self.ownership.looks.len() {
            if self.is_looked_at(index) {
                self.ownership.looks[index].versions = VERSIONS;
            }
        }
        self.confirmed();
    }

    /// Goes on when all members were looked at.
    fn confirmed(&mut self) {
        let looks = &self.ownership.looks;
        if looks.iter().any(|look| look.outstanding > 0) || !self.starts() {
            return;
        }
        if !self.is_alone_since(Nanos::ZERO) {
            return self.notify(Notice::OwnerUnclear);
        }
        let next = self.now.after(self.ownership.interval);
        let renews = self.mode.owner.is_some_and(|me| me.interval_ms > 0);
        self.ownership.phase = match renews {
            true => Phase::Serving { next },
            false => Phase::Idle,
        };
        self.wake_at(Wake::Owner, next);
        self.notify(Notice::Owned);
    }

    // ----------------------------------------------------------------------------------------------------
    // looks

    /// At each step: what time has made due.
    pub(crate) fn owner_turn(&mut self) {
        if self.ownership.phase == Phase::Idle {
            return;
        }
        let over = !self.starts() && !self.serving() && self.state != ArrayState::Stopping;
        if self.halted() || over {
            self.ownership.phase = Phase::Idle;
            return;
        }
        let due = match self.ownership.phase {
            Phase::Waiting { next } | Phase::Serving { next } => next,
            Phase::Guarding { until } => until,
            _ => NEVER,
        };
        let due = due.min(self.urgent_look());
        if self.now < due {
            return self.wake_at(Wake::Owner, due);
        }
        match self.ownership.phase {
            Phase::Waiting { .. } => {
                self.ownership.phase = Phase::Idle;
                self.notify(Notice::OwnerAwaited);
            }
            Phase::Guarding { .. } => self.confirm_owner(),
            _ => self.look_in_time(),
        }
    }

    /// When a run that is unsure looks again: soon, since writes and answers wait for it.
    fn urgent_look(&self) -> Nanos {
        let last = self.ownership.looks.iter().map(|look| look.begun).max();
        match self.unsure() {
            true => last.map_or(self.now, |last| {
                last.after(MOMENT).since(self.ownership.paused)
            }),
            false => NEVER,
        }
    }

    fn look_in_time(&mut self) {
        let next = self.now.after(self.ownership.interval);
        self.ownership.phase = Phase::Serving { next };
        self.wake_at(Wake::Owner, next);
        self.ownership.renewed = false;
        self.look_at_all();
    }

    /// Reads both copies of every member that serves and is awake, but of those that still owe an answer.
    fn look_at_all(&mut self) {
        let (count, now) = (self.devices.len(), self.ownership.world_time(self.now));
        self.ownership.looks.resize_with(count, Look::default);
        for index in 0..count {
            let serves = self.is_looked_at(index);
            let is_up = self.devices[index].power.is_up();
            let look = &mut self.ownership.looks[index];
            if !serves {
                (look.alone, look.versions) = (None, 0);
            } else if look.outstanding == 0 && is_up {
                (look.begun, look.outstanding) = (now, 2);
                look.copies = [None, None];
                self.read_copies(Member(index as u16));
            }
        }
    }

    fn is_looked_at(&self, index: usize) -> bool {
        let device = &self.devices[index];
        device.health == Health::Good && device.entry.is_some()
    }

    fn read_copies(&mut self, member: Member) {
        let places = self.devices[usize::from(member.0)].places.superblock;
        for (home, at) in (0..).zip(places) {
            self.read_pages(Owner::Look(home), member, at, SUPERBLOCK_PAGES);
        }
    }

    /// A copy was read for a look, or could not be. Whether a look waited for that.
    pub(crate) fn looked(&mut self, member: Member, home: u8, read: Option<&DeviceIo>) -> bool {
        let Some(look) = self.ownership.looks.get_mut(usize::from(member.0)) else {
            return false;
        };
        if look.outstanding == 0 {
            return false;
        }
        look.outstanding -= 1;
        look.copies[usize::from(home)] = read.map(superblock_in);
        if look.outstanding == 0 {
            self.look_ended(member);
        }
        true
    }

    fn look_ended(&mut self, member: Member) {
        let judged = self.is_looked_at(usize::from(member.0));
        let ours = self.superblock.array;
        let look = &mut self.ownership.looks[usize::from(member.0)];
        let judged = judged && look.versions >= VERSIONS;
        let copies = look.copies.iter().flatten();
        let newest = newest_of(copies);
        let was_read = look.copies.iter().any(Option::is_some);
        look.blanks = match newest {
            Some(_) => 0,
            None => look.blanks.saturating_add(u8::from(was_read)),
        };
        let foreign = newest.is_some_and(|copy| copy.array != ours) || look.blanks >= BLANKS;
        if judged && foreign && !self.starts() {
            return self.fail_member(member, FailCause::Overwritten);
        }
        let look = &self.ownership.looks[usize::from(member.0)];
        let newest = newest_of(look.copies.iter().flatten());
        let newest = newest.filter(|copy| copy.array == ours);
        let other = newest.filter(|copy| !self.is_own(copy));
        let by = other.map(|copy| copy.tail.owner.unwrap_or(UNKNOWN));
        let (alone, begun) = (newest.is_some() && by.is_none(), look.begun);
        if let Some(by) = by.filter(|_| judged) {
            return self.is_disowned(by);
        }
        if alone {
            self.ownership.looks[usize::from(member.0)].alone = Some(begun);
        }
        match self.ownership.phase {
            Phase::Confirming => self.confirmed(),
            Phase::Serving { .. } => self.renew(),
            _ => {}
        }
    }

    /// Whether a copy is of this run. A stop has taken the owner out of its last version.
    fn is_own(&self, copy: &Superblock) -> bool {
        let own = self.mode.owner.map(|me| me.run) == copy.tail.owner.map(|by| by.run);
        let ended = self.superblock.tail.owner.is_none()
            && copy.tail.owner.is_none()
            && copy.sequence <= self.superblock.sequence;
        own || ended || !self.superblock.keeps_tail() || self.planted(Bug::OtherOwnerIgnored)
    }

    fn is_disowned(&mut self, by: ArrayOwner) {
        match self.ownership.phase {
            Phase::Confirming => {
                self.ownership.phase = Phase::Idle;
                self.notify(Notice::OwnedBy(by));
            }
            _ => self.halt_for(Halt::Owned(by)),
        }
    }

    /// The array may have halted in a step before which this run was unsure.
    pub(crate) fn doubts(&mut self, unsure: bool) {
        self.doubted |= unsure && self.halted();
    }

    /// Once a look: writes the superblocks anew, but for a mirror that would have to wake.
    fn renew(&mut self) {
        let all_up = self.devices.iter().all(|device| device.power.is_up());
        let rests = self.serving() && self.writer.all_durable() && all_up;
        if rests && !self.ownership.renewed && !self.unsure() {
            self.ownership.renewed = true;
            self.writer.note_change();
        }
    }

    // ---------------------------------------------------------------------------------------------------
    // fences

    /// Whether looks since then found this run alone: at most members, or at all that are awake while some
    /// sleep.
    fn is_alone_since(&self, since: Nanos) -> bool {
        let (mut sleeps, mut judged, mut alone) = (false, 0, 0);
        for (index, look) in self.ownership.looks.iter().enumerate() {
            if !self.is_looked_at(index) {
                continue;
            }
            if !self.devices[index].power.is_up() {
                sleeps = true;
            } else if look.versions >= VERSIONS || look.alone.is_some() {
                judged += 1;
                alone += usize::from(look.alone.is_some_and(|begun| begun >= since));
            }
        }
        match sleeps {
            true => judged > 0 && alone == judged,
            false => 2 * alone > judged,
        }
    }

    /// Whether another run may have the array by now.
    #[inline]
    pub fn unsure(&self) -> bool {
        let serving = matches!(self.ownership.phase, Phase::Serving { .. });
        if !serving || self.halted() || self.planted(Bug::OtherOwnerIgnored) {
            return false;
        }
        let now = self.ownership.world_time(self.now);
        let trusted = now.since(self.ownership.times(TRUSTS));
        let any = (0..self.devices.len()).any(|index| self.is_looked_at(index));
        any && !self.is_alone_since(trusted)
    }

    /// What was held goes out.
    #[inline]
    pub(crate) fn release_held(&mut self) {
        if self.holds() {
            self.release();
        }
    }

    fn release(&mut self) {
        let held = core::mem::take(&mut self.ownership.held);
        self.out.extend(held.into_iter().map(Action::Device));
        let replies = core::mem::take(&mut self.ownership.replies);
        let replies = replies.into_iter();
        self.out
            .extend(replies.map(|(tag, result)| Action::Reply(tag, result)));
    }

    /// Whether operations or replies are held.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        !self.ownership.held.is_empty() || !self.ownership.replies.is_empty()
    }

    /// Keeps back every write and every answer of this step while this run is unsure. One that is disowned
    /// answers with errors alone.
    pub(crate) fn hold_while_unsure(&mut self) {
        if self.disowned() {
            return refuse_all(&mut self.out);
        }
        if !self.unsure() {
            return;
        }
        for action in core::mem::take(&mut self.out) {
            match action {
                Action::Device(io) if io.op != IoOp::Read => self.ownership.held.push(io),
                Action::Reply(tag, result) => self.ownership.replies.push((tag, result)),
                other => self.out.push(other),
            }
        }
    }

    /// Operations that are held and were given up on: they never go out.
    #[allow(clippy::vec_box)] // They go back in their boxes.
    pub(crate) fn held_in_vain(&mut self) -> Vec<Box<DeviceIo>> {
        let mut given_up = Vec::new();
        let held = &mut self.ownership.held;
        self.below.out.retain(|action| {
            let Action::Detach(tag) = action else {
                return true;
            };
            let found = held.iter().position(|io| io.tag == *tag);
            given_up.extend(found.map(|index| held.remove(index)));
            found.is_none()
        });
        given_up
    }
}
