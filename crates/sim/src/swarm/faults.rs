//! What goes wrong while an array serves: faults that redundancy can repair, and an operator's commands.

use super::coverage::{Incident, Scene};
use super::life::{IO_TIMEOUT, Life, Run, blank_disk};
use super::plan::Roughness;
use crate::atlas::Atlas;
use crate::disk::Disk;
use crate::fault::Fault;
use crate::rng::Rng;
use crate::session::Session;
use crate::world::{active, members_in};
use restripe_array::meta::{MemberRole, WriteHole};
use restripe_array::report::{MemberState, MemberStatus};
use restripe_array::{Command, Member, Moves, Nanos, Order, ScrubMode, Uuid};
use restripe_tier::Engine;
use restripe_tier::report::Status;
use std::collections::BTreeSet;

/// What was done to the members of one life.
pub struct Schedule {
    pub rng: Rng,
    /// Members that the engine has a reason to fail.
    suspects: BTreeSet<Member>,
    /// Members that are or were without space: the engine fails them if redundancy tolerates that, else it halts.
    full: BTreeSet<Member>,
    /// They are without space now.
    short: Option<Nanos>,
    /// Members that were taken away and are not yet brought up to date again.
    lost: BTreeSet<Member>,
    /// Those of them that the engine has not given up yet: one that is being filled may take over before it is seen to
    /// fail.
    unseen: BTreeSet<Member>,
    arrivals: u32,
    paused: bool,
}

/// The way of losing a member in which it answers nothing for a while.
pub const HANG: u64 = 2;
/// Marks from here on release what hangs on a member.
const RELEASE: u64 = 1000;
/// The stream that orders of tasks are drawn from.
const ORDER: u64 = 0x02de2;
const MOVES: u64 = 0x40fe5;
/// The stream that it is drawn from when members are unplugged, and one life in so many.
pub const UNPLUGGING: u64 = 0x0ff;
/// The stream that says when there is room again, and the mark of that moment.
const ROOM_AGAIN: u64 = 0x0f1;
const ROOM: u64 = 1;
/// A write that found no space may fail this long after there is room again.
const LATE_NEWS: Nanos = Nanos::from_secs(2);
const NEVER: Nanos = Nanos(u64::MAX);
pub const UNPLUG_RARITY: u64 = 12;
/// A member's latent errors stay below what fails it.
const LATENT_MAX: usize = 4;

impl Schedule {
    pub fn new(rng: Rng) -> Schedule {
        Schedule {
            rng,
            suspects: BTreeSet::new(),
            full: BTreeSet::new(),
            short: None,
            lost: BTreeSet::new(),
            unseen: BTreeSet::new(),
            arrivals: 0,
            paused: false,
        }
    }

    /// Whether a member may be failed for want of space.
    fn is_short(&self, now: Nanos) -> bool {
        self.short.is_some_and(|until| now < until)
    }

    pub fn suspects(&self, member: Member) -> bool {
        self.suspects.contains(&member)
    }

    /// Whether a member may have been failed, a task or a stop been in vain, for what was done in this life.
    pub fn troubled(&self) -> bool {
        self.suspects_any() || !self.full.is_empty()
    }

    /// Whether the engine may fail this member if it is one that only receives.
    pub fn full(&self, member: Member) -> bool {
        self.full.contains(&member)
    }

    /// Whether the shelf goes at this moment. Drawn from a stream of its own.
    pub fn unplugs(&self) -> bool {
        self.rng.clone().fork(UNPLUGGING).chance(1, UNPLUG_RARITY)
    }

    /// The engine may fail this member from now on.
    pub fn suspect(&mut self, member: Member) {
        self.suspects.insert(member);
    }

    pub fn suspects_any(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// Whether a member may have failed in this life, for what was done to it or for want of space.
    pub fn lost_any(&self) -> bool {
        self.suspects_any() || self.full.iter().any(|member| self.lost.contains(member))
    }

    /// The engine has given a member up, perhaps without any record of that yet.
    pub fn gone(&mut self, member: Member) {
        self.lost.insert(member);
        self.unseen.remove(&member);
    }

    /// A rebuild or a replacement has ended: who is active now is up to date, unless it is about to fail.
    pub fn rebuilt(&mut self, status: &Status) {
        let active = |member: &Member| {
            let found = status.members.iter().find(|line| line.member == *member);
            found.is_some_and(|line| line.state == MemberState::Active)
        };
        let unseen = &self.unseen;
        self.lost
            .retain(|member| unseen.contains(member) || !active(member));
    }

    /// A planned moment has come: what hung goes on, late.
    pub fn marked(&mut self, mark: u64, session: &mut Session<Engine>) {
        if mark == ROOM {
            self.short = Some(session.world.now().after(LATE_NEWS));
            for member in session.world.members().collect::<Vec<_>>() {
                session.world.inject(member, Fault::Room);
            }
        }
        if mark >= RELEASE {
            let member = Member((mark - RELEASE) as u16);
            session.world.release(member, Nanos(1));
        }
    }
}

/// Something happens.
pub fn perturb(run: &mut Run, life: &mut Life) {
    match life.faults.rng.below(12) {
        0..=2 => {
            let way = life.faults.rng.below(7);
            lose_member(run, life, way);
        }
        3..=4 => {
            latent_error(run, life);
        }
        5 if life.faults.rng.chance(1, 4) => fill_up(run, life),
        5 => slow_down(life),
        6..=7 => take_back(run, life),
        8 => arrive(run, life),
        9 if run.plan.grows && life.faults.rng.chance(1, 2) => grow(run, life),
        9 => replace(life),
        _ => task_command(run, life),
    }
}

fn note(run: &mut Run, life: &Life, incident: Incident) {
    let scene = Scene::of(&life.session.world.status());
    run.outcome.coverage.incident(&scene, incident);
}

/// An active member whose loss redundancy can bear, now and after a crash at this moment.
fn expendable(life: &mut Life) -> Option<Member> {
    let status = life.session.world.status();
    let active = |line: &&MemberStatus| line.state == MemberState::Active;
    let active = status.members.iter().filter(active);
    let candidates = active.filter_map(|line| line.slot.map(|_| line.member));
    let candidates: Vec<Member> = candidates.collect();
    if candidates.is_empty() {
        return None;
    }
    let member = *life.faults.rng.pick(&candidates);
    spared(life, &status, member).then_some(member)
}

/// A member that is being filled, and without which nothing is missing that was there.
fn incoming(life: &mut Life) -> Option<Member> {
    let status = life.session.world.status();
    let filling = |state| state == MemberState::Rebuilding;
    let mut lines = status.members.iter();
    let member = lines.find(|line| filling(line.state))?.member;
    let others = || sound(life).filter(|other| *other != member);
    whole(life, others).then_some(member)
}

/// False if redundancy could not bear it.
pub fn lose_member(run: &mut Run, life: &mut Life, way: u64) -> bool {
    let incoming = match life.faults.rng.chance(1, 2) {
        true => incoming(life),
        false => None,
    };
    match incoming.or_else(|| expendable(life)) {
        Some(member) => {
            lose(run, life, member, way);
            true
        }
        None => false,
    }
}

/// Loses this member if redundancy can bear it.
pub fn lose_spared(run: &mut Run, life: &mut Life, member: Member, way: u64) -> bool {
    let status = life.session.world.status();
    let bears = spared(life, &status, member);
    if bears {
        lose(run, life, member, way);
    }
    bears
}

fn lose(run: &mut Run, life: &mut Life, member: Member, way: u64) {
    expose(run, life);
    life.faults.suspects.insert(member);
    life.faults.lost.insert(member);
    // Where redundancy could not bear that it takes over, a replacement must be seen to fail before it does.
    let way = if run.base.layout.tolerance() == 0 || !whole(life, || dependable(life)) {
        *life.faults.rng.pick(&[1, 6])
    } else {
        way
    };
    let status = life.session.world.status();
    let filled =
        |line: &MemberStatus| line.member == member && line.state == MemberState::Rebuilding;
    if status.members.iter().any(filled) {
        life.faults.unseen.insert(member);
    }
    let now = life.session.world.now().0;
    run.base
        .say(|| format!("  {now:>14} {member:?} is lost, way {way}"));
    crash_soon(life);
    let late = way == HANG || way == 3;
    let incident = match late {
        true => Incident::LateWrite,
        false => Incident::MemberLoss,
    };
    note(run, life, incident);
    let hosts = |line: &MemberStatus| line.member == member && !line.hosts.is_empty();
    if status.members.iter().any(hosts) {
        note(run, life, Incident::HostLoss);
    }
    let world = &mut life.session.world;
    match way {
        0 => world.inject(member, Fault::Death),
        1 => world.depart(member),
        HANG => {
            world.inject(member, Fault::Hang);
            let delay = IO_TIMEOUT.0 + life.faults.rng.below(9 * IO_TIMEOUT.0);
            life.session
                .mark_in(Nanos(delay), RELEASE + u64::from(member.0));
        }
        3 => {
            let delay = Nanos(IO_TIMEOUT.0 + life.faults.rng.below(4 * IO_TIMEOUT.0));
            let operations = 1;
            world.inject(member, Fault::Stuck { operations, delay });
        }
        4 => world.inject(member, Fault::FlushError { flushes: 1 }),
        5 => {
            let sectors = world.disk(member).info().sectors;
            world.inject(member, Fault::Unwritable { at: 0, sectors });
        }
        _ => {
            life.session.command(Command::Fail(member));
        }
    }
}

/// What follows a loss is where a crash hurts: often one comes soon.
fn crash_soon(life: &mut Life) {
    if life.faults.rng.chance(1, 3) {
        let steps = 1 + life.faults.rng.below(60);
        life.crash_within(steps);
    }
}

/// The members that are left are being told of a failure: a crash may come before they know.
pub fn crash_at_failure(run: &mut Run, life: &mut Life) {
    if run.options.roughness == Roughness::Faults && life.faults.rng.chance(1, 4) {
        match *life.faults.rng.pick(&[0, 0, 1, 2, 8, 20, 40]) {
            0 => life.crash_at_reply(),
            steps => life.crash_within(steps - 1),
        }
    }
}

/// False if redundancy could not bear one there.
pub fn latent_error(run: &mut Run, life: &mut Life) -> bool {
    let slots = u64::from(run.base.layout.geometry().slots);
    let slot = life.faults.rng.below(slots) as u16;
    let at = latent_place(run, life);
    latent_at(run, life, slot, at)
}

/// More members go than redundancy bears, as when a shelf loses power. They come back whole with the next life.
pub fn unplug(run: &mut Run, life: &mut Life) {
    expose(run, life);
    note(run, life, Incident::Unplugged);
    life.session.refusals_expected = true;
    run.base
        .say(|| format!("  {:>14} the shelf goes", life.session.world.now().0));
    for _ in 0..run.base.layout.tolerance() {
        if let Some(member) = expendable(life) {
            unplug_one(life, member);
        }
    }
    if members_err(life) {
        // Redundancy was not what bore the losses.
        life.session.oracle.allow_all_losses();
    }
    let count = life.session.world.members().count();
    let mut order = life.faults.rng.order(count);
    // Whoever does not come back goes first: what goes last is not put on record.
    let world = &life.session.world;
    order.sort_by_key(|index| !world.disk(Member(*index as u16)).faults.doomed());
    for index in order {
        if life.session.halted.is_none() {
            unplug_one(life, Member(index as u16));
        }
    }
    let steps = 1 + life.faults.rng.below(200);
    life.crash_within(steps);
}

fn unplug_one(life: &mut Life, member: Member) {
    life.faults.suspects.insert(member);
    life.faults.lost.insert(member);
    let world = &mut life.session.world;
    if !world.disk(member).faults.doomed() {
        life.unplugged.push(member);
    }
    world.depart(member);
    life.session.listen();
}

fn members_err(life: &Life) -> bool {
    let world = &life.session.world;
    let errs = |member| world.disk(member).faults.latent().next().is_some();
    world.members().any(errs)
}

/// Makes the block at a sector of a slot unreadable. False if redundancy could not bear that.
pub fn latent_at(run: &mut Run, life: &mut Life, slot: u16, at: u64) -> bool {
    if life.faults.is_short(life.session.world.now()) {
        return false;
    }
    let sectors = block_sectors(run);
    let at = at / sectors * sectors;
    let world = &life.session.world;
    let disks = || dependable(life).map(|member| world.disk(member));
    let most = LATENT_MAX * sectors as usize;
    let place = |atlas: Option<Atlas>| -> Option<(Uuid, u64)> {
        let atlas = atlas?;
        let spot = atlas.spot(slot, at)?;
        let room = spot.disk.faults.latent().count() < most;
        (room && atlas.spares_sector(slot, at)).then(|| (spot.member, spot.at(at)))
    };
    let places = (place(Atlas::of(disks())), place(Atlas::durably(disks())));
    let (Some((member, at)), Some(_), false) = (places.0, places.1, is_unrecorded(life)) else {
        return false;
    };
    let Some(member) = active(&world.status(), member) else {
        return false;
    };
    expose(run, life);
    note(run, life, Incident::LatentError);
    life.faults.suspects.insert(member);
    run.base.say(|| {
        let now = life.session.world.now().0;
        format!("  {now:>14} {member:?} cannot read {at} +{sectors}")
    });
    let fault = Fault::Latent { at, sectors };
    life.session.world.inject(member, fault);
    true
}

/// Sectors that are read, lost and found together.
pub fn block_sectors(run: &Run) -> u64 {
    u64::from(run.plan.spec.logical_block) / restripe_array::SECTOR_BYTES
}

/// Anywhere in a slot, or close to a sector that is unreadable already: then a row is short of two cells at once,
/// though no sector of it is.
fn latent_place(run: &Run, life: &mut Life) -> u64 {
    let (world, rng) = (&life.session.world, &mut life.faults.rng);
    let anywhere = rng.below(run.base.layout.geometry().slot_sectors);
    let disks = || world.disks();
    let Some(atlas) = Atlas::of(disks()).filter(|_| rng.chance(2, 3)) else {
        return anywhere;
    };
    let slots = 0..run.base.layout.geometry().slots;
    let known: Vec<u64> = slots.filter_map(|slot| atlas.first_latent(slot)).collect();
    if known.is_empty() {
        return anywhere;
    }
    let (near, chunk) = (*rng.pick(&known), run.base.layout.chunk_sectors());
    let further = rng.between(1, 7) * block_sectors(run);
    near / chunk * chunk + (near + further) % chunk
}

/// Where parity may be out of step, a loss now may cost data.
pub fn expose(run: &mut Run, life: &mut Life) {
    let closed = run.plan.spec.write_hole == WriteHole::Ppl && !unsynced(life);
    if closed || !run.base.layout.parity() {
        return;
    }
    let status = life.session.world.status();
    if !status.tasks.is_empty() || unsynced(life) {
        life.session.oracle.allow_all_losses();
    }
}

/// A member has no space left, or none has: perhaps all lie on one file system.
pub fn fill_up(run: &mut Run, life: &mut Life) {
    let members: Vec<Member> = life.session.world.members().collect();
    let flushes = life.faults.rng.chance(1, 4);
    let some = *life.faults.rng.pick(&members);
    let all = life.faults.rng.chance(1, 3);
    let now = life.session.world.now().0;
    run.base
        .say(|| format!("  {now:>14} no space on {some:?}, or all: {all}"));
    let status = life.session.world.status();
    let doomed = |line: &MemberStatus| {
        line.state == MemberState::Active && life.faults.lost.contains(&line.member)
    };
    if status.members.iter().any(doomed) {
        // Redundancy is spoken for.
        return;
    }
    expose(run, life);
    if life.serving && members_err(life) {
        // A member that is failed for it bore what others cannot give.
        life.session.oracle.allow_all_losses();
    }
    life.session.space_is_short = true;
    life.faults.short = Some(NEVER);
    for member in members.into_iter().filter(|member| all || *member == some) {
        life.faults.full.insert(member);
        life.session.full.insert(member);
        life.session.world.inject(member, Fault::Full { flushes });
    }
    make_room(life);
}

/// Plans the moment at which there is room again, if there is one. It is drawn from a stream of its own.
fn make_room(life: &mut Life) {
    let mut drawn = life.faults.rng.clone().fork(ROOM_AGAIN);
    if drawn.chance(2, 3) {
        let most = *drawn.pick(&[1_000_000, 300_000_000, 3_000_000_000]);
        let delay = Nanos(drawn.below(most));
        life.session.mark_in(delay, ROOM);
    }
}

fn slow_down(life: &mut Life) {
    let members = life.session.world.members().count() as u64;
    let member = Member(life.faults.rng.below(members) as u16);
    let factor = *life.faults.rng.pick(&[1, 3, 10]);
    life.session.world.inject(member, Fault::Slow { factor });
}

/// A failed member comes back: the same disk, stale.
pub fn take_back(run: &mut Run, life: &mut Life) {
    let status = life.session.world.status();
    let failed = members_in(&status, MemberState::Failed);
    if failed.is_empty() {
        return;
    }
    let member = *life.faults.rng.pick(&failed);
    let world = &mut life.session.world;
    let disk = world.disk(member);
    let sound = !disk.faults.dead() && !disk.faults.hanging();
    if sound && world.under_way(member) == 0 {
        world.disk_mut(member).faults.clear();
        run.base.say(|| format!("  {member:?} is taken back"));
        life.session.command(Command::Add(member));
    }
}

/// A new disk is plugged in and made a spare.
pub fn arrive(run: &mut Run, life: &mut Life) {
    if life.faults.arrivals >= 2 {
        return;
    }
    life.faults.arrivals += 1;
    let disk = blank_disk(&run.plan, life.faults.rng.word());
    let member = life.session.world.arrive(disk);
    life.session.command(Command::Add(member));
}

pub fn replace(life: &mut Life) {
    let status = life.session.world.status();
    let [active, spares] =
        [MemberState::Active, MemberState::Spare].map(|state| members_in(&status, state));
    if active.is_empty() || spares.is_empty() {
        return;
    }
    let rng = &mut life.faults.rng;
    let (old, new) = (*rng.pick(&active), *rng.pick(&spares));
    life.session.command(Command::Replace { old, new });
}

/// Spares are made data slots, unless one of them is about to fail: it would be one member more that is lost.
pub fn grow(run: &mut Run, life: &mut Life) {
    let status = life.session.world.status();
    let spares = members_in(&status, MemberState::Spare);
    if spares.iter().any(|member| life.faults.suspects(*member)) {
        return;
    }
    let by = life.faults.rng.between(1, 2) as u16;
    // Drawn from a stream of its own.
    let mut drawn = life.faults.rng.clone().fork(MOVES);
    if run.plan.outsources && drawn.chance(7, 8) {
        let moves = Command::Moves(Moves::ParityOutsourced);
        life.session.command(moves);
    } else if drawn.below(2) == 0 {
        life.session
            .command(Command::Moves(*drawn.pick(&Moves::WITHOUT_SURROGATE)));
    }
    life.session.command(match run.plan.reshapes {
        true => Command::Reshape { by },
        false => Command::Grow { by },
    });
}

fn task_command(run: &mut Run, life: &mut Life) {
    note(run, life, Incident::Command);
    // Drawn from a stream of its own.
    let mut drawn = life.faults.rng.clone().fork(ORDER);
    let order = drawn.below(1 + Order::ALL.len() as u64);
    if let Some(&order) = Order::ALL.get(order as usize) {
        life.session.command(Command::Order(order));
    }
    if drawn.below(4) == 0 {
        let on_demand = Command::OnDemand(drawn.below(4) > 0);
        life.session.command(on_demand);
    }
    if drawn.below(4) == 0 {
        let copy_back = Command::CopyBack(drawn.below(2) == 0);
        life.session.command(copy_back);
    }
    let command = match life.faults.rng.below(6) {
        0 => Command::Scrub(ScrubMode::Check),
        1 => Command::Scrub(ScrubMode::Sync),
        2 => Command::Cancel,
        3 => Command::Rate {
            min: 1 << 20,
            max: *life.faults.rng.pick(&[1 << 20, 1 << 30]),
        },
        _ => {
            life.faults.paused = !life.faults.paused;
            Command::Pause(life.faults.paused)
        }
    };
    life.session.command(command);
}

/// Members that were not taken away.
fn sound(life: &Life) -> impl Iterator<Item = Member> {
    let here = |member: &Member| !life.faults.lost.contains(member);
    life.session.world.members().filter(here)
}

/// Members that serve and go on to: not those that were taken away, nor those that stand in a slot which one taken away
/// is about to take over.
fn dependable(life: &Life) -> impl Iterator<Item = Member> {
    let status = life.session.world.status();
    let lost = &life.faults.lost;
    let doomed =
        |line: &&MemberStatus| line.state == MemberState::Rebuilding && lost.contains(&line.member);
    let doomed = status.members.iter().filter(doomed);
    let slots: Vec<Option<u16>> = doomed.map(|line| line.slot).collect();
    let serves = |line: &MemberStatus| {
        line.state == MemberState::Active
            && !lost.contains(&line.member)
            && !slots.contains(&line.slot)
    };
    let serving = status.members.iter().filter(|line| serves(line));
    let members: Vec<Member> = serving.map(|line| line.member).collect();
    members.into_iter()
}

/// Whether these members make up every sector of the array, now and after a crash at this moment.
fn whole<I: Iterator<Item = Member>>(life: &Life, members: impl Fn() -> I) -> bool {
    holds(life, members, |atlas| atlas.whole(None))
}

/// Whether something holds of the array that these members make up, now and after a crash at this moment.
fn holds<I: Iterator<Item = Member>>(
    life: &Life,
    members: impl Fn() -> I,
    rule: impl Fn(&Atlas) -> bool,
) -> bool {
    let world = &life.session.world;
    let disks = || members().map(|member| world.disk(member));
    let fits = |atlas: Option<Atlas>| atlas.is_some_and(|atlas| rule(&atlas));
    !is_unrecorded(life) && fits(Atlas::of(disks())) && fits(Atlas::durably(disks()))
}

/// Whether a member that was taken away serves, and no medium has that on record yet: it has just been
/// filled. Until then the media show the slot on the member that served it before.
fn is_unrecorded(life: &Life) -> bool {
    let world = &life.session.world;
    let newest = Atlas::of(world.disks()).map(|atlas| atlas.superblock().clone());
    let serves = |line: &&MemberStatus| {
        line.state == MemberState::Active && life.faults.lost.contains(&line.member)
    };
    let on_record = |line: &MemberStatus| {
        let mut entries = newest.iter().flat_map(|newest| &newest.members);
        entries.any(|entry| entry.uuid == line.uuid && entry.role == MemberRole::Active)
    };
    let status = world.status();
    let mut serving = status.members.iter().filter(serves);
    serving.any(|line| !on_record(line))
}

/// Whether redundancy can bear the loss of an active member, now and after a crash at this moment.
fn spared(life: &Life, status: &Status, member: Member) -> bool {
    if life.faults.is_short(life.session.world.now()) {
        // Redundancy is for those without space.
        return false;
    }
    let line = status.members.iter().find(|line| line.member == member);
    let serving = line.filter(|line| line.state == MemberState::Active && line.slot.is_some());
    let Some(uuid) = serving.map(|line| line.uuid) else {
        return false;
    };
    // A growth that has just begun is not on the disks yet.
    let slots = status.geometry.map(|geometry| geometry.slots);
    holds(
        life,
        || dependable(life),
        |atlas| {
            let known = slots == Some(atlas.layout().geometry().slots);
            known && atlas.whole(Some(uuid)) && !weak(atlas)
        },
    )
}

/// A disk of this array is expected to fail although the engine may not know yet: one at a time.
fn weak(atlas: &Atlas) -> bool {
    atlas.absent() >= usize::from(atlas.layout().tolerance())
}

/// Some rows are not known to be in step.
pub fn unsynced(life: &Life) -> bool {
    let world = &life.session.world;
    let disks: Vec<&Disk> = world.disks().collect();
    Atlas::of(disks.into_iter()).is_none_or(|atlas| atlas.superblock().resync_pending)
}
