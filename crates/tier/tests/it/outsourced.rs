//! McPod's surrogate disk: a growth by the least moves brings all parity to a spare, which is parity's member in the end.

use crate::growth::{after, crash_amid_growth, full, has_grown, moved, operations, plain};
use crate::shell::{Array, CHUNK};
use restripe_array::layout::{Layout, Level};
use restripe_array::report::MemberState;
use restripe_array::{Command, Fact, IoError, Member, Moves, Nanos, Row, TaskKind, TaskOutcome};
use std::collections::BTreeSet;

/// Parity's member before, and who becomes it: the spare before the one that takes chunks.
const PARITY: u16 = 2;
const SURROGATE: u16 = 3;
const NEW: u16 = 4;
const ROWS: u64 = 80;

/// Two spares for a growth by one.
fn array(slots: u16, rows: u64) -> Array {
    let mut setup = plain(Level::Raid4, slots, 2);
    setup.rows = rows;
    let mut array = full(setup.info(|info| info.sectors = 4096));
    array
        .command(Command::Moves(Moves::ParityOutsourced))
        .expect("taken");
    array
}

/// A growth that has moved some rows of many, with none of that on record.
fn half_moved(slots: u16) -> (Array, Layout) {
    let mut array = array(slots, ROWS);
    let after = after(&array, 1);
    array.flushed();
    array.pass(Nanos::from_secs(10));
    array.order(Command::Grow { by: 1 });
    array.run_only("super");
    while growth_moved(&array) < 10 {
        array.end_first(Ok(()));
    }
    (array, after)
}

fn growth_moved(array: &Array) -> u64 {
    let status = array.engine.status();
    let growth = status
        .tasks
        .iter()
        .find(|task| task.kind == TaskKind::Growth);
    growth.map_or(ROWS, |growth| growth.rows_done)
}

fn state_of(array: &Array, member: u16) -> Option<MemberState> {
    let status = array.engine.status();
    let found = status
        .members
        .iter()
        .find(|one| one.member == Member(member));
    found.map(|one| one.state)
}

/// The growth is over and the surrogate disk is parity's member, the former one a spare.
fn has_moved_parity(array: &mut Array, after: Layout) {
    has_grown(array, after);
    assert_eq!(state_of(array, SURROGATE), Some(MemberState::Active));
    assert_eq!(state_of(array, PARITY), Some(MemberState::Spare));
    array.consistent();
    array.depart(0);
    array.verify();
}

/// What a growth reads or writes of a member: `m2 read`.
fn sectors_of(data: &BTreeSet<String>, what: &str) -> BTreeSet<u64> {
    let ranges = data.iter().filter_map(|line| {
        let (at, sectors) = line
            .strip_prefix(what)?
            .strip_prefix(" data+")?
            .split_once(' ')?;
        let (at, sectors) = (at.parse::<u64>().ok()?, sectors.parse::<u64>().ok()?);
        Some(at..at + sectors)
    });
    ranges.flatten().collect()
}

/// Sections 3.3 and 3.4: parity's member is read in the same pass and never written, and the surrogate disk is written.
#[test]
fn parity_is_read_on_its_member_and_written_on_the_surrogate_disk() {
    for by in [1, 2] {
        let of = |moves, spares| {
            let array = full(plain(Level::Raid4, 3, usize::from(spares)));
            operations(array, by, moves)
        };
        let best = of(Moves::Best, by);
        let found = of(Moves::ParityOutsourced, by + 1);
        let all: BTreeSet<u64> = (0..8 * CHUNK).collect();
        assert_eq!(sectors_of(&found.data, "m2 read"), all, "by {by}");
        assert_eq!(sectors_of(&found.data, "m3 write"), all);
        for nothing in ["m2 write", "m3 read"] {
            assert!(sectors_of(&found.data, nothing).is_empty(), "{nothing}");
        }
        // Nothing else is read or written, and rows that are neighbours go as one.
        let parity = |list: &[u16]| list.iter().filter(|one| [2, 3].contains(*one)).count();
        let (reads, writes) = (parity(&found.reads), parity(&found.writes));
        assert!(
            (1..=4).contains(&reads) && (1..=4).contains(&writes),
            "{reads} {writes}"
        );
        assert_eq!(found.reads.len(), best.reads.len() + reads);
        assert_eq!(found.writes.len(), best.writes.len() + writes);
    }
}

#[test]
fn the_surrogate_disk_takes_the_place_of_paritys_member() {
    let mut array = array(3, 8);
    let after = after(&array, 1);
    array.command(Command::Grow { by: 1 }).expect("it can grow");
    array.written(3, 40).expect("meanwhile");
    array.run_tasks();
    assert!(array.ended(TaskKind::Replace, TaskOutcome::Done));
    has_moved_parity(&mut array, after);
}

/// A growth without a spare for it is refused before anything has changed; where nothing is parity none is needed.
#[test]
fn parity_needs_a_spare_of_its_own() {
    let mut array = full(plain(Level::Raid4, 3, 1));
    array
        .command(Command::Moves(Moves::ParityOutsourced))
        .expect("taken");
    let refused = array.command(Command::Grow { by: 1 });
    assert!(refused.is_err_and(|error| format!("{error:?}").contains("no spare is left")));
    assert!(array.engine.status().tasks.is_empty());
    array.verify();
    let mut striped = full(plain(Level::Raid0, 2, 1));
    let after = after(&striped, 1);
    striped
        .command(Command::Moves(Moves::ParityOutsourced))
        .expect("taken");
    striped
        .command(Command::Grow { by: 1 })
        .expect("nothing to outsource");
    striped.run_tasks();
    has_grown(&mut striped, after);
}

/// All other refusals of a growth stand, with nothing changed and no spare taken: a plan names parity's member only
/// where one has all parity.
#[test]
fn parity_is_outsourced_only_where_the_array_may_grow_and_one_member_has_it() {
    let refused = |array: &mut Array, why: &str| {
        let outsourced = Command::Moves(Moves::ParityOutsourced);
        array.command(outsourced).expect("taken");
        let states = |array: &Array| (0..8).map(|one| state_of(array, one)).collect::<Vec<_>>();
        let before = states(array);
        let answer = array.command(Command::Grow { by: 1 });
        let told = format!("{:?}", answer.expect_err(why));
        assert!(told.contains(why), "{told}");
        assert_eq!(states(array), before, "{why}");
        assert!(array.engine.status().tasks.is_empty(), "{why}");
        array.verify();
    };
    let plan = |array: &Array| array.engine.growth_plan(1);
    let mut raid4 = full(plain(Level::Raid4, 3, 2));
    assert_eq!(plan(&raid4).expect("can grow").parity, Some(Member(PARITY)));
    let raid0 = full(plain(Level::Raid0, 3, 2));
    assert_eq!(plan(&raid0).expect("can grow").parity, None);
    let mut raid5 = full(plain(Level::Raid5(Default::default()), 3, 2));
    assert_eq!(plan(&raid5).expect("can grow").parity, None);
    refused(&mut raid5, "levels 5 and 6");
    let mut mirror = full(plain(Level::Raid1, 2, 2));
    refused(&mut mirror, "level 1 and 10");
    refused(
        &mut full(plain(Level::Raid4, 3, 2).lending(CHUNK)),
        "leases",
    );
    for gone in 0..3 {
        raid4.depart(gone);
        raid4.run_tasks();
    }
    refused(&mut raid4, "degraded");
}

/// Status says of the surrogate disk's task that the growth fills it, as long as that goes.
#[test]
fn the_task_of_the_surrogate_disk_rides_on_the_growth() {
    let (mut array, _) = half_moved(3);
    let rides = |array: &Array| {
        let status = array.engine.status();
        let mut tasks = status.tasks.iter().map(|task| (task.kind, task.rides));
        tasks.find(|(kind, _)| *kind == TaskKind::Replace)
    };
    assert_eq!(rides(&array), Some((TaskKind::Replace, true)));
    array.order(Command::Moves(Moves::Best));
    assert_eq!(rides(&array), Some((TaskKind::Replace, false)));
}

/// A member fails, and the only spare is the surrogate disk: parity's move ends, and the former parity member is the
/// spare that the lost member is rebuilt on.
#[test]
fn the_former_parity_member_replaces_one_that_fails_half_way() {
    for gone in [0, 1, NEW] {
        let (mut array, after) = half_moved(3);
        array.depart(gone);
        array.run_tasks();
        has_grown(&mut array, after);
        assert_eq!(state_of(&array, SURROGATE), Some(MemberState::Active));
        assert_eq!(state_of(&array, PARITY), Some(MemberState::Active));
        array.consistent();
        array.depart(SURROGATE);
        array.verify();
    }
}

/// Of rows that are moved, users' writes read parity on the surrogate disk only, and both disks get the new one: until
/// the growth has ended, either is enough.
#[test]
fn users_of_moved_rows_read_the_surrogate_disk() {
    let (mut array, after) = half_moved(5);
    let (parity, surrogate) = (4, 5);
    // Of row 0 the first chunk has moved, and the second stays.
    let lba = CHUNK + 3;
    assert_eq!(array.home(lba), (1, array.data_start() + 3));
    array.listing();
    let write = array.write(lba, 8);
    for part in ["flush", "super", "data+3 8", "log", "data+3 8"] {
        array.run_only(part);
    }
    assert_eq!(array.reply(write), Some(Ok(())));
    let listing = array.listing();
    let has = |member: u16, op: &str| listing.contains(&format!("m{member} {op} data+3 8"));
    assert!(has(surrogate, "read") && !has(parity, "read"), "{listing}");
    assert!(has(surrogate, "write") && has(parity, "write"), "{listing}");
    array.run_tasks();
    has_grown(&mut array, after);
    assert_eq!(state_of(&array, surrogate), Some(MemberState::Active));
    array.consistent();
}

/// Whichever it is: one that gives chunks, either of parity's, or the one that takes chunks.
#[test]
fn a_member_lost_half_way_costs_nothing() {
    for gone in 0..5 {
        let (mut array, after) = half_moved(3);
        array.depart(gone);
        array.run();
        array.verify();
        for row in (0..ROWS).step_by(3) {
            let lba = array.layout.lba(Row(row), 1, 2);
            array.written(lba, 9).expect("degraded or not");
        }
        array.verify();
        array.flushed();
        array.crash(|_| false);
        let blank = array.take_out(gone.into());
        array.start().expect("starts without it");
        array.verify();
        drop(blank);
        let info = array.info_of(0);
        let spare = array.arrive(info);
        array.command(Command::Add(spare)).expect("it fits");
        array.run_tasks();
        has_grown(&mut array, after);
        array.consistent();
        array.depart(if gone == 1 { 0 } else { 1 });
        array.verify();
    }
}

/// The surrogate disk cannot be written: the growth goes on without, and parity stays where it is.
#[test]
fn a_surrogate_disk_that_fails_is_left_out() {
    let (mut array, after) = half_moved(3);
    // What was joined is tried apart, and fails again.
    while !array.failed(SURROGATE) {
        let labels = array.labels();
        let label = labels.iter().find(|label| label.contains("m3 write data"));
        match label.map(|label| label.to_string()) {
            Some(label) => array.fail(&label, IoError::Media),
            None => array.end_first(Ok(())),
        }
    }
    array.run_tasks();
    assert!(array.ended(TaskKind::Replace, TaskOutcome::Failed));
    assert!(array.ended(TaskKind::Growth, TaskOutcome::Done));
    has_grown(&mut array, after);
    assert_eq!(state_of(&array, PARITY), Some(MemberState::Active));
    array.consistent();
    array.depart(1);
    array.verify();
}

/// Parity that cannot be read is made of the data, by the task that fills the surrogate disk, once the rows are moved.
#[test]
fn parity_that_cannot_be_read_is_made_anew() {
    for data_too in [false, true] {
        let mut array = array(3, 8);
        let after = after(&array, 1);
        let lba = 2 * CHUNK + 3;
        let (member, at) = array.home(lba);
        array.spoil(PARITY, at, 1);
        if data_too {
            array.spoil(member, at, 1);
        }
        array.command(Command::Grow { by: 1 }).expect("it can grow");
        array.run_tasks();
        let told: &[(u64, u64)] = if data_too { &[(lba, 1)] } else { &[] };
        assert_eq!(array.engine.status().lost, told);
        if data_too {
            array.written(lba, 1).expect("given anew");
        }
        has_moved_parity(&mut array, after);
    }
}

/// Power is cut after every operation; the caches keep everything or nothing. If the start does not ask for a surrogate
/// disk again, the replacement that has begun ends first, and then the growth.
#[test]
fn a_growth_with_a_surrogate_disk_goes_on_after_any_crash() {
    for (kept, asks_again) in [(true, false), (false, true), (false, false)] {
        for step in 0.. {
            let mut array = array(3, 8);
            let after = after(&array, 1);
            let ended = crash_amid_growth(&mut array, 1, step, kept);
            array.start().expect("starts");
            if asks_again {
                let moves = Command::Moves(Moves::ParityOutsourced);
                array.command(moves).expect("taken");
            }
            array.run_tasks();
            if array.engine.status().size_bytes == array.layout.size_sectors() * 512 {
                // The command was not on record.
                array.verify();
                let moves = Command::Moves(Moves::ParityOutsourced);
                array.command(moves).expect("taken");
                array.command(Command::Grow { by: 1 }).expect("again");
                array.run_tasks();
            }
            has_grown(&mut array, after);
            assert_eq!(
                state_of(&array, SURROGATE),
                Some(MemberState::Active),
                "{step}"
            );
            assert_eq!(state_of(&array, NEW), Some(MemberState::Active), "{step}");
            array.consistent();
            array.depart(0);
            array.verify();
            if ended {
                break;
            }
        }
    }
}

/// If the way to move is changed half way, a replacement of its own brings the rest of parity to the surrogate disk.
#[test]
fn other_moves_half_way_end_it_as_a_replacement() {
    let (mut array, after) = half_moved(3);
    assert!(moved(&array) > 0);
    array.command(Command::Moves(Moves::Best)).expect("taken");
    array.run_tasks();
    has_grown(&mut array, after);
    assert_eq!(state_of(&array, SURROGATE), Some(MemberState::Active));
    assert!(!array.has_fact(|fact| matches!(fact, Fact::MemberFailed { .. })));
    array.consistent();
}
