//! Tables of superblocks with several wrong fields at once: members, placements, tasks, leases, growths and regions.
//!
//! Each superblock here is sound by itself, under a right checksum, and was written by no engine. A start refuses it by
//! name, or serves. An array that serves goes on: tasks end, members fail and come back, space is lent, and the array
//! starts again from the superblocks that it wrote then. Leases do not decide what was written where, so every byte is
//! right after a start with forged leases.

use crate::ranges::{forge_superblocks, of_growth, read_all, until_cut, varied};
use crate::shell::{Array, CHUNK};
use crate::spares::three_by_three;
use restripe_array::meta::superblock::{MemberRole, Placement, TaskRecord};
use restripe_array::meta::{Journal, Superblock};
use restripe_array::{
    Command, LeaseCommand, LeaseName, Member, Nanos, ScrubMode, StartMode, TaskKind,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A generator for one case.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// A number beside this one, or a small one.
    fn near(&mut self, own: u64) -> u64 {
        match self.below(4) {
            0 => own.wrapping_add(1),
            1 => own.saturating_sub(1),
            2 => self.next() % 4,
            _ => self.next() % own.saturating_mul(2).max(1),
        }
    }
}

// ------------------------------------------------------------------------------------------------------- changes

type Change = fn(&mut Superblock, &mut Random);

const CHANGES: [Change; 9] = [
    placement, placement, role, counter, task, runs, mark, growth, region,
];

fn placement(superblock: &mut Superblock, random: &mut Random) {
    let one = random.below(superblock.placement.len());
    let member = random.below(superblock.members.len() + 1);
    let member = (member < superblock.members.len()).then_some(member as u16);
    let line = &mut superblock.placement[one];
    match random.below(4) {
        0 => line.member = member,
        1 => line.incoming = member,
        2 => line.region = random.below(4) as u16,
        _ => line.incoming_region = random.below(4) as u16,
    }
}

fn role(superblock: &mut Superblock, random: &mut Random) {
    let one = random.below(superblock.members.len());
    let stale_since = random.near(superblock.generation);
    let failed = |partial| MemberRole::Failed {
        stale_since,
        partial,
    };
    superblock.members[one].role = random.pick(&[
        MemberRole::Active,
        MemberRole::Rebuilding,
        MemberRole::Spare,
        failed(true),
        failed(false),
    ]);
}

fn counter(superblock: &mut Superblock, random: &mut Random) {
    let one = random.below(superblock.members.len());
    let member = &mut superblock.members[one];
    let counter = match random.below(7) {
        0 => &mut member.current_since,
        1 => &mut member.log_floor,
        2 => &mut member.left_at,
        3 => &mut superblock.generation,
        4 => &mut superblock.forced,
        5 => &mut superblock.log_floor,
        _ => &mut superblock.intent_rows,
    };
    *counter = random.near(*counter);
}

fn task(superblock: &mut Superblock, random: &mut Random) {
    let kind = random.pick(&[
        TaskKind::Rebuild,
        TaskKind::Replace,
        TaskKind::Resync,
        TaskKind::Check,
        TaskKind::Repair,
        TaskKind::Growth,
    ]);
    let slot = random.below(usize::from(superblock.geometry.slots) + 1) as u16;
    let slot = (slot < superblock.geometry.slots).then_some(slot);
    let one = random.below(superblock.tasks.len() + 1);
    match (superblock.tasks.get_mut(one), random.below(4)) {
        (Some(task), 0) => task.kind = kind,
        (Some(task), 1) => task.slot = slot,
        (Some(task), 2) => task.paused = !task.paused,
        (Some(_), _) => drop(superblock.tasks.remove(one)),
        (None, _) => superblock.tasks.push(TaskRecord {
            kind,
            slot,
            paused: false,
            done: Vec::new(),
        }),
    }
}

fn runs(superblock: &mut Superblock, random: &mut Random) {
    let one = random.below(superblock.tasks.len());
    let Some(task) = superblock.tasks.get_mut(one) else {
        return;
    };
    let first = random.next() % 20;
    match task.done.pop() {
        Some((first, rows)) if random.below(2) == 0 => {
            task.done.push((first, random.near(rows)));
        }
        Some(_) => {}
        None => task.done.push((first, 1 + random.next() % 8)),
    }
}

fn mark(superblock: &mut Superblock, random: &mut Random) {
    let mark = match random.below(4) {
        0 => &mut superblock.clean,
        1 => &mut superblock.resync_pending,
        2 => &mut superblock.written_all,
        _ => &mut superblock.ahead,
    };
    *mark = !*mark;
}

/// A slot more with its line, a former shape, and what a growth has on record.
fn growth(superblock: &mut Superblock, random: &mut Random) {
    let slots = superblock.geometry.slots;
    if random.below(3) == 0 {
        superblock.geometry.slots += 1;
        superblock.placement.push(Placement {
            slot: slots,
            partition: 0,
            member: Some(random.below(superblock.members.len()) as u16),
            incoming: None,
            region: 0,
            incoming_region: 0,
        });
    }
    let Some(reshape) = &mut superblock.reshape else {
        return;
    };
    match random.below(3) {
        0 => reshape.former = random.pick(&[None, Some(slots), Some(slots - 1), Some(2)]),
        1 => reshape.journal = random.pick(&[Journal::Closed, Journal::Open, Journal::Filled]),
        _ => reshape.first_sectors = random.near(reshape.first_sectors),
    }
}

fn region(superblock: &mut Superblock, random: &mut Random) {
    let one = random.below(superblock.regions.len());
    let region = &mut superblock.regions[one];
    match random.below(2) {
        0 => region.sectors = random.near(region.sectors / 8) * 8,
        _ => region.start = random.near(region.start / 8) * 8,
    }
}

/// The border of two parcels, or one parcel that is made two, and what they are called.
fn leases(superblock: &mut Superblock, random: &mut Random) {
    let one = random.below(superblock.lent.len());
    let by = random.pick(&[1, CHUNK, 3 * CHUNK]);
    let parcel = superblock.lent[one];
    match (random.below(4), superblock.lent.get(one + 1)) {
        (0, Some(_)) => {
            superblock.lent[one].sectors += by;
            superblock.lent[one + 1].start += by;
            let rest = superblock.lent[one + 1].sectors.saturating_sub(by);
            superblock.lent[one + 1].sectors = rest;
        }
        (1, _) => {
            let mut second = parcel;
            superblock.lent[one].sectors = by;
            second.start += by;
            second.sectors = second.sectors.saturating_sub(by);
            superblock.lent.insert(one + 1, second);
        }
        (2, _) => {
            let lease = random.pick(&superblock.lent).lease;
            superblock.lent[one].lease = lease;
        }
        _ => superblock.lent[one].start = random.near(parcel.start),
    }
}

// -------------------------------------------------------------------------------------------------------- a case

/// Starts; whether the array serves.
fn start(array: &mut Array) -> bool {
    let mode = StartMode {
        accept_loss: true,
        ..StartMode::default()
    };
    let start = array.order(Command::Start(mode));
    array.run();
    array.pass(Nanos::from_secs(60));
    array.answer(start).expect("a start ends").is_ok()
}

/// Starts, has members fail and come back while tasks run, and starts once more; whether the first start served.
fn live(array: &mut Array, random: &mut Random, bytes_stay: bool) -> bool {
    if !start(array) {
        return false;
    }
    if bytes_stay {
        read_all(array);
    }
    for _ in 0..4 {
        let size = array.layout.size_sectors();
        let _ = array.written(random.next() % (size / 8).max(1) * 8, 8);
        array.pass(Nanos::from_secs(20));
        array.order(incident(array.disks.len(), random));
        array.run();
        array.pass(Nanos::from_millis(200));
    }
    array.order(Command::Stop);
    array.run();
    array.pass(Nanos::from_secs(60));
    array.die();
    if start(array) {
        array.pass(Nanos::from_secs(20));
    }
    true
}

fn incident(members: usize, random: &mut Random) -> Command {
    let member = Member(random.below(members) as u16);
    let name = LeaseName::new(random.pick(&["a", "b"])).expect("a name");
    let lent = LeaseCommand::Add { name, sectors: 9 };
    let back = LeaseCommand::Remove { name, force: true };
    let scrub = Command::Scrub(ScrubMode::Check);
    match random.below(9) {
        0..=2 => Command::Fail(member),
        3..=4 => Command::Add(member),
        5 => scrub,
        6 => Command::CopyBack(random.below(2) == 0),
        7 => Command::Lease(lent),
        _ => Command::Lease(back),
    }
}

/// Changes every member, or each fourth time the first alone, and goes on from there. All draws come from the case's number.
fn sweep<C: Fn(&mut Superblock, &mut Random)>(
    array: &mut Array,
    cases: impl IntoIterator<Item = C>,
    bytes_stay: bool,
) {
    let (disks, model) = (array.disks.clone(), array.model.clone());
    let (mut sound, mut served, mut wrong) = (0, 0, Vec::new());
    for (seed, change) in (0..).zip(cases) {
        array.disks.clone_from(&disks);
        array.model.clone_from(&model);
        array.die();
        let on = if seed % 4 == 3 { 1 } else { disks.len() };
        let change = |superblock: &mut Superblock| change(superblock, &mut Random(seed));
        if !forge_superblocks(&mut array.disks[..on], change) {
            continue;
        }
        sound += 1;
        let mut random = Random(!seed);
        let work = || live(array, &mut random, bytes_stay);
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(serves) => served += usize::from(serves),
            Err(_) => wrong.push(seed),
        }
    }
    (array.disks, array.model) = (disks, model);
    assert!(served > 10, "{sound} are sound, {served} serve");
    assert!(wrong.is_empty(), "cases {wrong:?}");
}

fn deep() -> bool {
    std::env::var_os("RESTRIPE_DEEP").is_some()
}

/// Two to four of these changes at once, 200 times. With `RESTRIPE_DEEP` set: 4000 times.
fn drawn(changes: &[Change]) -> impl Iterator<Item = impl Fn(&mut Superblock, &mut Random)> {
    let change = |superblock: &mut Superblock, random: &mut Random| {
        for _ in 0..2 + random.below(3) {
            random.pick(changes)(superblock, random);
        }
    };
    std::iter::repeat_n(change, if deep() { 4_000 } else { 200 })
}

/// Every number of a slot's lines, with these members and every region as its value.
fn numbers_of(slot: u16, members: &[u16]) -> Vec<impl Fn(&mut Superblock) + use<>> {
    let mut changes = Vec::new();
    let entries = members.iter().map(|member| Some(*member));
    let values: Vec<Option<u16>> = entries.chain([None]).collect();
    for partition in 0..3 {
        for (field, values) in [
            (0, &values[..]),
            (1, &values[..]),
            (2, &[Some(0), Some(1), Some(2)]),
            (3, &[Some(0), Some(1), Some(2)]),
        ] {
            changes.extend(values.iter().map(|value| (partition, field, *value)));
        }
    }
    let change = move |(partition, field, value): (u16, u8, Option<u16>)| {
        move |superblock: &mut Superblock| {
            let mut lines = superblock.placement.iter_mut();
            let line = lines.find(|line| (line.slot, line.partition) == (slot, partition));
            let Some(line) = line else { return };
            match field {
                0 => line.member = value,
                1 => line.incoming = value,
                2 => line.region = value.unwrap_or(0),
                _ => line.incoming_region = value.unwrap_or(0),
            }
        }
    };
    changes.into_iter().map(change).collect()
}

/// Two numbers of one slot's lines, each with every value. One table had a spare that was being filled for a slot take
/// another partition of that slot to one of its own spare partitions. It ended the daemon.
#[test]
fn two_numbers_of_a_placement_that_are_wrong_end_no_daemon() {
    let mut array = rebuilding();
    let changes = &numbers_of(4, &[0, 4, 9, 10]);
    let pairs = (0..changes.len()).flat_map(|one| (0..one).map(move |other| (one, other)));
    let pairs = pairs.step_by(if deep() { 1 } else { 3 });
    let both = |(one, other): (usize, usize)| {
        move |superblock: &mut Superblock, _: &mut Random| {
            changes[one](superblock);
            changes[other](superblock);
        }
    };
    sweep(&mut array, pairs.map(both), false);
}

fn written_groups(spares: usize) -> Array {
    let mut array = three_by_three().spares(spares).start();
    array.written(0, 100).expect("written");
    array
}

/// A slot of groups is being filled on two spares.
fn rebuilding() -> Array {
    let mut array = written_groups(2);
    array.order(Command::Fail(Member(4)));
    until_cut(&mut array, 60);
    array
}

/// What spare partitions have of a slot is being brought to a spare.
fn brought_to_a_spare() -> Array {
    let mut array = written_groups(0);
    array.depart(4);
    array.run_tasks();
    let spare = array.arrive(array.info_of(0));
    array.order(Command::Add(spare));
    until_cut(&mut array, 100);
    array
}

#[test]
fn tables_of_a_set_that_are_wrong_together_end_no_daemon() {
    sweep(&mut varied(), drawn(&CHANGES), false);
}

#[test]
fn tables_of_groups_that_are_wrong_together_end_no_daemon() {
    for mut array in [rebuilding(), brought_to_a_spare()] {
        sweep(&mut array, drawn(&CHANGES), false);
        sweep(&mut array, drawn(&[placement, role]), false);
    }
}

#[test]
fn tables_of_a_growth_that_are_wrong_together_end_no_daemon() {
    for command in [Command::Reshape { by: 1 }, Command::Grow { by: 1 }] {
        let mut array = of_growth(command);
        sweep(&mut array, drawn(&CHANGES), false);
        sweep(&mut array, drawn(&[growth, task, runs, placement]), false);
    }
}

#[test]
fn leases_that_are_wrong_together_end_no_daemon_and_change_no_byte() {
    sweep(&mut varied(), drawn(&[leases]), true);
}
