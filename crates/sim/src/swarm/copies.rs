//! What operators do with copies and halves of arrays: an old copy of a member is put back after a clean
//! stop, and members that were left behind are started alone, and are given one that went on without them.

use super::life::{Life, Run};
use super::plan::Roughness;
use crate::array::superblock_of;
use crate::atlas::Atlas;
use crate::disk::{Disk, Simple};
use crate::image::Image;
use crate::invariant::{Invariant, Violation};
use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::run::begin_session;
use crate::world::WorldConfig;
use restripe_array::meta::MemberRole;
use restripe_array::{Command, CommandError, Member, Nanos, StartMode, Uuid};

/// Streams of random numbers, one for copies and one for halves.
const COPIES: u64 = 0x01dc;
const HALVES: u64 = 0x4a1f;
/// One life in four makes a copy, and one in four parts its halves.
const RARITY: u64 = 4;
/// A half that is started alone answers an order within this number of steps.
const STEPS: u64 = 100_000;
/// Counted: copies put back, and members that came back to a half that lacked their writes.
pub const COPIES_BACK: &str = "old copies put back after a clean stop";
pub const HALVES_MET: &str = "newer halves offered to older ones";

/// A copy of a member that is being made, or was.
pub enum Copy {
    /// At this step.
    Due(u64),
    Made(Member, Image),
}

fn uuid_of(image: &Image) -> Option<Uuid> {
    superblock_of(image).map(|found| found.member)
}

/// Whether a member says of itself that it is current, in which generation.
fn current_in(disk: &Disk) -> Option<u64> {
    let found = superblock_of(disk.live())?;
    let index = usize::from(found.index_of(found.member)?);
    let active = found.members[index].role == MemberRole::Active;
    active.then_some(found.generation)
}

pub fn due(run: &Run) -> Option<Copy> {
    let mut drawn = run.base.rng.clone().fork(COPIES);
    let redundant = run.base.layout.tolerance() > 0 && run.excess.is_none();
    let copies = run.options.roughness == Roughness::Faults && redundant;
    (copies && drawn.chance(1, RARITY)).then(|| Copy::Due(drawn.below(400)))
}

/// Makes the copy that is due.
pub fn make_copy(life: &mut Life) {
    if let Some(Copy::Due(at)) = life.copy
        && life.steps >= at
    {
        let members: Vec<Member> = life.session.world.members().collect();
        let member = members[at as usize % members.len()];
        let image = life.session.world.disk(member).live().clone();
        life.copy = Some(Copy::Made(member, image));
    }
}

/// Puts an old copy in the place of its member, if the others can do without that.
pub fn put_back(run: &mut Run, copy: Option<Copy>) {
    let Some(Copy::Made(member, image)) = copy else {
        return;
    };
    let index = usize::from(member.0);
    let disk = &run.disks[index];
    if disk.faults.doomed() || uuid_of(disk.live()) != uuid_of(&image) || !spares(run, index) {
        return;
    }
    run.base
        .say(|| format!("  an old copy of {member:?} is put back"));
    run.base.count(COPIES_BACK, 1);
    run.copied = uuid_of(&image);
    let disk = run.disks.remove(index);
    run.disks.insert(index, disk.restart(image));
}

/// Whether the others are whole without this one, and know as much.
fn spares(run: &Run, index: usize) -> bool {
    let others = || (run.disks.iter().enumerate()).filter(|(other, _)| *other != index);
    let left = Atlas::of(others().map(|(_, disk)| disk));
    let newest = super::ends::newest(run.disks.iter()).0;
    left.is_some_and(|atlas| atlas.whole(None) && atlas.superblock().generation >= newest)
}

/// Whether a copy that was put back is not on record as one yet.
pub fn is_copied(run: &mut Run) -> bool {
    let atlas = Atlas::of(run.disks.iter());
    let copied = run.copied;
    let serves = |atlas: Atlas| copied.is_some_and(|uuid| atlas.serves(uuid));
    let is_copied = atlas.is_some_and(serves);
    if !is_copied {
        run.copied = None;
    }
    is_copied
}

// --------------------------------------------------------------------------------------------- halves

/// On copies of the disks: members that were left behind are started alone, and one that went on comes.
pub fn part_halves(run: &mut Run) {
    let drawn = run.base.rng.clone().fork(HALVES).chance(1, RARITY);
    let faults = run.options.roughness == Roughness::Faults;
    let sound = |disk: &&Disk| !disk.faults.doomed();
    let current: Vec<(u64, &Disk)> = (run.disks.iter())
        .filter(sound)
        .filter_map(|disk| Some((current_in(disk)?, disk)))
        .collect();
    let generations = || current.iter().map(|(generation, _)| *generation);
    let (Some(first), Some(last)) = (generations().min(), generations().max()) else {
        return;
    };
    if !drawn || !faults || first == last || run.excess.is_some() {
        return;
    }
    let of = |generation: u64| {
        let half = current.iter().filter(move |(one, ..)| *one == generation);
        half.map(|(_, disk)| duplicate(disk))
    };
    let (older, newer) = (of(first).collect(), of(last).next());
    if let Some(violation) = newer.and_then(|newer| meet(run, older, newer)) {
        run.base.violations.push(violation);
    }
}

fn meet(run: &mut Run, older: Vec<Disk>, newer: Disk) -> Option<Violation> {
    let world = WorldConfig {
        seed: 1,
        ..run.world_config()
    };
    let oracle = Oracle::new(run.plan.spec.payload, run.base.layout.size_sectors());
    let mut session = begin_session(older, run.config(), world, run.base.now, oracle);
    let alone = StartMode {
        from_minority: true,
        ..StartMode::default()
    };
    session.answer(Command::Start(alone), STEPS)?.ok()?;
    let member = session.world.arrive(newer);
    run.base.count(HALVES_MET, 1);
    match session.answer(Command::Add(member), STEPS) {
        Some(Err(CommandError::OtherHistory { .. })) => None,
        other => {
            let detail = format!("an older half did not refuse a newer member: {other:?}");
            Some(Violation::new(Invariant::NewerOverwritten, detail))
        }
    }
}

/// Another disk with the same content.
fn duplicate(disk: &Disk) -> Disk {
    let device = Box::new(Simple::new(Nanos(1000), 1 << 30, Nanos(1)));
    Disk::new(disk.config(), disk.live().clone(), device, Rng::new(1))
}
