//! Spare space (S2-RAID): partitions of a lost slot on spare partitions of members in service, and their way home.

use crate::shell::{Array, Setup, raid5};
use restripe_array::layout::{Level, Role, Skew};
use restripe_array::meta::{Superblock, WriteHole, superblock};
use restripe_array::report::{ArrayState, MemberState};
use restripe_array::{
    Command, CommandError, Fact, IoError, Member, MemberInfo, Nanos, RequestOp, Row, Slot,
    TaskKind, TaskOutcome,
};

/// A RAID-5 of three groups of three, with three partitions a slot and room for two of others on each member.
pub fn three_by_three() -> Setup {
    let mut setup = raid5(9).info(|info| info.sectors = 4096);
    setup.options.geometry.skew = Some(Skew {
        groups: 3,
        partitions: 3,
    });
    setup.options.spare_partitions = 2;
    setup.rows = 12;
    setup
}

/// With data in every row.
fn filled(setup: Setup) -> Array {
    let mut array = setup.start();
    let sectors = array.layout.size_sectors();
    array.written(0, sectors).expect("written");
    array.flushed();
    array.listing();
    array
}

/// The newest superblock on a member.
pub fn superblock_on(array: &Array, member: u16) -> Superblock {
    let image = &array.disks[usize::from(member)].image;
    let copy = |at: u64| {
        let at = at as usize * 512;
        Superblock::decode(image.get(at..at + superblock::SUPERBLOCK_BYTES)?).ok()
    };
    let places = [superblock::SUPER_A_AT].into_iter();
    let copies = places.chain(superblock::SUPER_B_PLACES).filter_map(copy);
    copies
        .max_by_key(|copy| copy.sequence)
        .expect("it is a member")
}

/// On which members, and in which of their regions, the partitions of a slot lie, by the word of one member.
fn lies(array: &Array, slot: u16, witness: u16) -> Vec<Option<(u16, u16)>> {
    let superblock = superblock_on(array, witness);
    (0..3)
        .map(|partition| {
            let line = superblock
                .placement_of(slot, partition)
                .expect("of the table");
            Some((line.member?, line.region))
        })
        .collect()
}

pub fn hosted(array: &Array) -> Vec<(u16, u16)> {
    let taken = array.facts.iter().filter_map(|fact| match fact {
        Fact::PartitionTaken {
            host, partition, ..
        } => Some((*partition, host.0)),
        _ => None,
    });
    taken.collect()
}

/// Goes on until the rebuild has brought a slot's partitions everywhere, and no further.
fn run_rebuild(array: &mut Array) {
    for _ in 0..100_000 {
        if array.ended(TaskKind::Rebuild, TaskOutcome::Done) {
            return;
        }
        match array.held.is_empty() {
            true => array.pass(Nanos::from_millis(200)),
            false => array.end_first(Ok(())),
        }
    }
    panic!("the rebuild never ends");
}

fn whole(array: &mut Array) {
    assert_eq!(array.engine.status().state, ArrayState::Healthy);
    array.verify();
    array.consistent();
}

#[test]
fn a_slot_is_rebuilt_onto_a_spare_and_hosts_and_comes_home() {
    let mut array = filled(three_by_three().spares(1));
    array.depart(4);
    run_rebuild(&mut array);
    assert_eq!(hosted(&array), [(1, 3), (2, 5)]);
    let listing = array.listing();
    for target in [
        "m9 write data",
        "m3 write sparepartition+0",
        "m5 write sparepartition+0",
    ] {
        assert!(listing.contains(target), "{target}");
    }
    array.run_tasks();
    assert!(array.ended(TaskKind::Replace, TaskOutcome::Done));
    assert_eq!(lies(&array, 4, 0), [Some((9, 0)); 3]);
    whole(&mut array);
    assert_eq!(array.engine.status().members[9].slot, Some(4));
}

#[test]
fn hosts_alone_serve_until_there_is_a_spare() {
    let mut array = filled(three_by_three());
    array.depart(4);
    array.run_tasks();
    assert_eq!(hosted(&array), [(0, 3), (1, 5), (2, 3)]);
    assert_eq!(
        lies(&array, 4, 0),
        [Some((3, 1)), Some((5, 1)), Some((3, 2))]
    );
    whole(&mut array);
    array.crash(|_| false);
    array.start().expect("all that count are here");
    whole(&mut array);

    let spare = array.arrive(MemberInfo {
        sectors: 4096,
        logical_block: 512,
        trim_zeroes: true,
        fast_zero: true,
        volatile: false,
    });
    array.command(Command::Add(spare)).expect("it fits");
    array.run_tasks();
    assert_eq!(lies(&array, 4, 0), [Some((spare.0, 0)); 3]);
    whole(&mut array);
}

/// Which spares were taken for which slots.
fn spares_taken(array: &Array) -> Vec<(u16, u16)> {
    let taken = array.facts.iter().filter_map(|fact| match fact {
        Fact::SpareTaken { spare, slot } => Some((spare.0, *slot)),
        _ => None,
    });
    taken.collect()
}

fn states(array: &Array) -> Vec<MemberState> {
    let members = array.engine.status().set.members;
    members.iter().map(|line| line.state).collect()
}

/// As [`three_by_three`], with no room for partitions of others.
fn without_hosts(spares: usize) -> Setup {
    let mut setup = three_by_three().spares(spares);
    setup.options.spare_partitions = 0;
    setup
}

#[test]
fn several_spares_take_a_partition_each_and_all_but_one_are_spares_again() {
    let mut array = filled(without_hosts(3));
    array.depart(4);
    run_rebuild(&mut array);
    assert_eq!(spares_taken(&array), [(9, 4), (10, 4), (11, 4)]);
    whole(&mut array);
    array.run_tasks();
    assert_eq!(lies(&array, 4, 0), [Some((9, 0)); 3]);
    let (active, spare) = (MemberState::Active, MemberState::Spare);
    assert_eq!(states(&array)[9..], [active, spare, spare]);
    whole(&mut array);
    array.crash(|_| false);
    array.start().expect("all that count are here");
    whole(&mut array);
    array.depart(0);
    array.run_tasks();
    whole(&mut array);
}

/// A slot that waits for a spare has one as soon as those that share another can be had.
#[test]
fn a_spare_that_shares_a_slot_is_given_to_one_that_waits() {
    let mut array = filled(without_hosts(2));
    array.depart(4);
    run_rebuild(&mut array);
    assert_eq!(spares_taken(&array), [(9, 4), (10, 4)]);
    array.depart(0);
    array.run_tasks();
    assert_eq!(lies(&array, 4, 1), [Some((9, 0)); 3]);
    assert_eq!(lies(&array, 0, 1), [Some((10, 0)); 3]);
    assert_eq!(spares_taken(&array)[2..], [(10, 0)]);
    whole(&mut array);
}

#[test]
fn what_is_to_stay_stays_until_a_slot_waits_or_somebody_asks() {
    let mut array = filled(without_hosts(3));
    array.order(Command::CopyBack(false));
    array.depart(4);
    array.run_tasks();
    let apart = [Some((9, 0)), Some((10, 0)), Some((11, 0))];
    assert_eq!(lies(&array, 4, 0), apart);
    array.depart(0);
    array.run_tasks();
    assert_eq!(lies(&array, 4, 1), [Some((9, 0)); 3]);
    assert!(
        lies(&array, 0, 1)
            .iter()
            .all(|one| one.is_some_and(|(member, _)| member > 9))
    );
    whole(&mut array);
    array.order(Command::CopyBack(true));
    array.run_tasks();
    assert_eq!(lies(&array, 0, 1), [lies(&array, 0, 1)[0]; 3]);
    whole(&mut array);
}

#[test]
fn what_is_to_stay_leaves_a_spare_that_comes_to_the_next_loss() {
    let mut array = filled(three_by_three());
    array.order(Command::CopyBack(false));
    array.depart(4);
    array.run_tasks();
    let spare = array.arrive(MemberInfo {
        sectors: 4096,
        logical_block: 512,
        trim_zeroes: true,
        fast_zero: true,
        volatile: false,
    });
    array.command(Command::Add(spare)).expect("it fits");
    array.run_tasks();
    assert!(
        array
            .facts
            .iter()
            .all(|fact| !matches!(fact, Fact::SpareTaken { .. }))
    );
    array.depart(0);
    array.run_tasks();
    assert!(spares_taken(&array).contains(&(spare.0, 0)));
    whole(&mut array);
}

/// As the members of a group take it first, and then over all.
#[test]
fn what_is_to_stay_is_spread_over_the_hosts() {
    let mut array = filled(three_by_three());
    array.order(Command::CopyBack(false));
    array.depart(4);
    run_rebuild(&mut array);
    assert_eq!(hosted(&array), [(0, 3), (1, 5), (2, 3)]);
    array.run_tasks();
    let lying = lies(&array, 4, 8).into_iter();
    let mut of_four: Vec<u16> = lying.map(|place| place.expect("it is served").0).collect();
    of_four.sort_unstable();
    of_four.dedup();
    assert_eq!(of_four.len(), 3, "{of_four:?}");
    whole(&mut array);
    array.crash_without(&[4], |_| false);
    array.start().expect("all that count are here");
    whole(&mut array);
    array.depart(of_four[0]);
    array.run_tasks();
    whole(&mut array);
}

#[test]
fn two_slots_that_are_lost_at_once_have_a_spare_each() {
    let mut array = filled(without_hosts(2));
    array.depart(4);
    array.depart(3);
    array.run_tasks();
    assert_eq!(lies(&array, 3, 0), [Some((9, 0)); 3]);
    assert_eq!(lies(&array, 4, 0), [Some((10, 0)); 3]);
    whole(&mut array);
}

#[test]
fn a_member_whose_slot_others_share_is_not_replaced() {
    let mut array = filled(without_hosts(2));
    array.depart(4);
    run_rebuild(&mut array);
    let fresh = array.arrive(MemberInfo {
        sectors: 4096,
        logical_block: 512,
        trim_zeroes: true,
        fast_zero: true,
        volatile: false,
    });
    let replace = |old| Command::Replace {
        old: Member(old),
        new: fresh,
    };
    let refused = array.command(replace(9));
    assert!(matches!(refused, Err(CommandError::Busy(_))), "{refused:?}");
    array.run_tasks();
    array.command(replace(9)).expect("it has all of it now");
    array.run_tasks();
    whole(&mut array);
}

#[test]
fn a_spare_that_shares_a_slot_and_fails_takes_its_part_alone() {
    let mut array = filled(without_hosts(3));
    array.depart(4);
    run_rebuild(&mut array);
    array.depart(10);
    array.run_tasks();
    let lying = lies(&array, 4, 0);
    assert_eq!(lying, [lying[0]; 3]);
    whole(&mut array);
}

/// Also of a member that has no room for partitions of others.
#[test]
fn a_spare_without_spare_partitions_takes_its_slot() {
    let mut array = filled(three_by_three());
    let data_end = array.data_start() + 12 * 16;
    let spare = array.arrive(MemberInfo {
        sectors: data_end,
        logical_block: 512,
        trim_zeroes: true,
        fast_zero: true,
        volatile: false,
    });
    array.command(Command::Add(spare)).expect("it fits");
    array.depart(4);
    array.run_tasks();
    assert_eq!(lies(&array, 4, 0), [Some((spare.0, 0)); 3]);
    array.depart(0);
    array.run_tasks();
    whole(&mut array);
    array.crash(|_| false);
    array.start().expect("it is a member like the others");
    whole(&mut array);
}

#[test]
fn a_spare_that_fails_leaves_the_hosts_to_go_on() {
    let mut array = filled(three_by_three().spares(1));
    array.depart(4);
    array.run_but("write data");
    array.depart(9);
    run_rebuild(&mut array);
    assert!(!array.ended(TaskKind::Rebuild, TaskOutcome::Failed));
    array.run_tasks();
    assert_eq!(
        hosted(&array).len(),
        3,
        "the partition of the spare went to a host"
    );
    assert_eq!(lies(&array, 4, 0)[1..], [Some((3, 1)), Some((5, 1))]);
    whole(&mut array);
    array.crash(|_| false);
    array.start().expect("the hosts are here");
    whole(&mut array);
}

#[test]
fn a_host_that_fails_while_it_is_filled_loses_its_own_as_well() {
    let mut array = filled(three_by_three().spares(1));
    array.depart(4);
    array.run_but("sparepartition");
    array.depart(3);
    array.run_tasks();
    let told = hosted(&array);
    assert!(told.len() > 2, "both slots were placed: {told:?}");
    whole(&mut array);
    for slot in [3, 4] {
        let homes = lies(&array, slot, 0);
        assert!(homes.iter().all(Option::is_some), "{homes:?}");
    }
}

#[test]
fn a_host_that_fails_later_takes_what_it_hosts_along() {
    let mut array = filled(three_by_three());
    array.depart(4);
    array.run_tasks();
    array.depart(3);
    assert_eq!(array.engine.status().state, ArrayState::Degraded);
    array.run_tasks();
    array.verify();
    array.crash(|_| false);
    array.start().expect("as many are left as are needed");
    array.verify();
}

/// A former host is filled for its own slot, and what it hosted is not believed again.
#[test]
fn a_host_that_comes_back_has_its_own_slot_alone() {
    let mut array = filled(three_by_three());
    array.depart(4);
    array.run_tasks();
    assert_eq!(lies(&array, 4, 0)[0], Some((3, 1)));
    array
        .command(Command::Pause(true))
        .expect_err("nothing runs");
    array.command(Command::Fail(Member(3))).expect("redundant");
    array.run_tasks();
    let size = array.layout.size_sectors();
    array.written(0, size).expect("written");
    array.command(Command::Add(Member(3))).expect("it is back");
    array.run_tasks();
    array.verify();
    for restart in [false, true] {
        if restart {
            array.crash(|_| false);
            array.start().expect("it starts");
        }
        array.run_tasks();
        array.verify();
        let status = array.engine.status();
        assert_ne!(status.members[3].state, MemberState::Failed);
    }
}

/// Else a start would believe what it hosted once it serves again.
#[test]
fn a_host_that_comes_back_is_remembered_as_one_no_more() {
    let mut array = filled(three_by_three());
    array.depart(4);
    array.run_tasks();
    array
        .command(Command::Rate { min: 1, max: 1 })
        .expect("taken");
    array.command(Command::Fail(Member(3))).expect("redundant");
    array.run();
    let remembered = |array: &Array| {
        let superblock = superblock_on(array, 0);
        let mut lines = superblock.placement.iter();
        lines.any(|line| line.member == Some(3) && line.region > 0)
    };
    assert!(remembered(&array), "it is not back yet");
    array.command(Command::Add(Member(3))).expect("it is back");
    array.run();
    assert!(!remembered(&array));
}

/// Power is cut every so many steps from the loss to the end of the way home, and what was in caches is gone.
#[test]
fn every_moment_of_the_way_bears_a_restart() {
    let hosts = || three_by_three().spares(1);
    let spares = || without_hosts(3);
    restarts_everywhere(hosts, WriteHole::Ppl);
    restarts_everywhere(hosts, WriteHole::Bitmap);
    restarts_everywhere(spares, WriteHole::Ppl);
    restarts_everywhere(spares, WriteHole::Bitmap);
}

fn restarts_everywhere(setup: impl Fn() -> Setup, hole: WriteHole) {
    let home = |array: &Array| array.ended(TaskKind::Replace, TaskOutcome::Done);
    let mut steps = 3;
    let mut lasts = true;
    while lasts {
        let mut array = filled(setup().hole(hole));
        array.depart(4);
        for _ in 0..steps {
            match array.held.is_empty() {
                true => array.pass(Nanos::from_millis(200)),
                false => array.end_first(Ok(())),
            }
        }
        lasts = !home(&array) || !array.held.is_empty();
        array.crash_without(&[4], |_| false);
        array.start().expect("it starts");
        array.verify();
        array.run_tasks();
        let lying = lies(&array, 4, 0);
        assert_eq!(lying, [lying[0]; 3], "{steps} steps");
        whole(&mut array);
        steps += 13;
    }
    assert!(steps > 200, "{steps}");
}

/// Operations on a spare partition that was another's may still be under way when that has gone home.
#[test]
fn a_spare_partition_is_not_taken_while_something_is_under_way_to_it() {
    let (mut array, read) = needed_while_read(three_by_three());
    assert_eq!(hosted(&array), [], "it was taken too early");
    array.run();
    assert!(array.brought(read, lba_of(&array, 4)));
    array.run_tasks();
    array.verify();
}

/// A sector of the first chunk of a slot.
fn lba_of(array: &Array, slot: u16) -> u64 {
    let size = array.layout.size_sectors();
    let first = (0..size).find(|lba| array.home(*lba).0 == slot);
    first.expect("the slot has data") + 5
}

/// A new disk, as large as the others, that is made a spare.
fn new_spare(array: &mut Array) -> Member {
    array.arrive(MemberInfo {
        sectors: 4096,
        logical_block: 512,
        trim_zeroes: true,
        fast_zero: true,
        volatile: false,
    })
}

/// A place is given up while a read of what lies there is under way, and another slot of the group is lost, the partitions of
/// which could go there. Gives the read, which is still under way.
pub fn needed_while_read(setup: Setup) -> (Array, u64) {
    let mut array = filled(setup);
    array.depart(4);
    array.run_tasks();
    assert_eq!(
        lies(&array, 4, 0),
        [Some((3, 1)), Some((5, 1)), Some((3, 2))]
    );
    let lba = lba_of(&array, 4);
    let read = array.request(RequestOp::Read, lba, 3);
    let held = array.labels()[0].to_string();
    assert!(held.starts_with("m3 read sparepartition+"), "{held}");
    let spare = new_spare(&mut array);
    array.order(Command::Add(spare));
    come_home(&mut array, &held);
    array.facts.clear();
    array.depart(5);
    array.run_but(&held);
    assert!(array.holds(&held));
    (array, read)
}

/// A slot has come home, which no superblock tells yet, and another slot of the group is lost, the partitions of which could go where
/// the first one's were.
pub fn needed_before_it_is_on_record(setup: Setup) -> Array {
    let (mut array, _) = home_with_a_record(setup);
    assert_eq!(lies(&array, 4, 0)[0], Some((3, 1)), "not on record yet");
    array.facts.clear();
    array.depart(5);
    array.run_but("super");
    assert!(array.mentions("super"));
    array
}

#[test]
fn a_place_is_not_taken_before_superblocks_give_it_up() {
    let mut array = needed_before_it_is_on_record(three_by_three());
    assert_eq!(hosted(&array), [], "it was taken too early");
    array.run_tasks();
    assert!(!hosted(&array).is_empty());
    whole(&mut array);
}

/// Ends everything but what mentions this, until a slot has come home.
fn come_home(array: &mut Array, held: &str) {
    for _ in 0..200 {
        array.run_but(held);
        if array.ended(TaskKind::Replace, TaskOutcome::Done) {
            return;
        }
        array.wait(Nanos::from_millis(200));
    }
    panic!("it never comes home");
}

/// The rows whose parity a slot has.
fn rows_with_parity_on(array: &Array, slot: u16) -> Vec<u64> {
    let rows = 0..array.layout.rows();
    rows.filter(|row| array.slot_of(*row, Role::P) == slot)
        .collect()
}

/// Slot 4 has just come home from members 3 and 5. One write to a row of which it has the parity was logged on its way, and is
/// not flushed yet. Gives the member where it is now.
fn home_with_a_record(setup: Setup) -> (Array, Member) {
    let mut array = filled(setup);
    array.depart(4);
    array.run_tasks();
    let spare = new_spare(&mut array);
    array.order(Command::Add(spare));
    array.complete_held(" read "); // What the spare has on record.
    array.complete_held("flush"); // The spare's own, as it joins.
    // Every row is filled, and the flush that ends the task is under way.
    for _ in 0..200 {
        array.run_but("flush");
        if array.labels().iter().any(|label| label.contains("flush")) && filled_wholly(&array) {
            break;
        }
        array.wait(Nanos::from_millis(200));
    }
    let row = rows_with_parity_on(&array, 4)[0];
    let lba = array.layout.lba(Row(row), 0, 0);
    let write = array.write(lba, 3);
    array.run_but("flush");
    assert_eq!(array.reply(write), Some(Ok(())));
    while !array.ended(TaskKind::Replace, TaskOutcome::Done) {
        array.end_first(Ok(()));
    }
    (array, spare)
}

fn filled_wholly(array: &Array) -> bool {
    let tasks = array.engine.status().set.tasks;
    tasks.iter().all(|task| task.rows_done == task.rows_total)
}

/// How many rows a start brings in step when only one of the logged writes is not over. `setup`: see the planted bugs.
pub fn recovered_after_a_way_home(setup: Setup) -> u64 {
    let (mut array, spare) = home_with_a_record(setup);
    assert_eq!(lies(&array, 4, 0)[0], Some((3, 1)), "not on record yet");
    array.run();
    assert_eq!(lies(&array, 4, 0), [Some((spare.0, 0)); 3]);
    array.flushed();
    let rows = rows_with_parity_on(&array, 4);
    let last = rows[rows.len() - 1];
    assert!(last > rows[0]);
    let lba = array.layout.lba(Row(last), 0, 0);
    array.written(lba, 3).expect("written");
    array.crash(|_| true);
    array.start().expect("all are here");
    array.verify();
    let recovered = array.facts.iter().find_map(|fact| match fact {
        Fact::Started { recovered_rows, .. } => Some(*recovered_rows),
        _ => None,
    });
    recovered.expect("it has started")
}

/// What a former host logged of a partition is over, also where nothing in its own log says so.
#[test]
fn a_former_host_is_not_heard() {
    assert_eq!(recovered_after_a_way_home(three_by_three()), 1);
}

/// Its records still count for the partitions that it has given up: it would be heard about them if it took them again.
#[test]
fn a_former_host_takes_nothing_until_its_records_are_void() {
    let (mut array, spare) = home_with_a_record(three_by_three());
    array.run_but("flush");
    array.facts.clear();
    array.depart(spare.0);
    array.run_but("flush");
    let hosts: Vec<u16> = hosted(&array).iter().map(|(_, host)| *host).collect();
    assert!(!hosts.contains(&3) && !hosts.contains(&5), "{hosts:?}");
    array.run_tasks();
    whole(&mut array);
}

/// One task may bring what is hosted home and rebuild what was. After a crash only the former is begun anew: of the latter there is
/// one copy, without which a row may be short of two cells.
#[test]
fn a_crash_gives_up_no_copy_that_is_the_only_one() {
    let mut array = filled(three_by_three());
    array.depart(4);
    array.run_tasks();
    let spare = new_spare(&mut array);
    assert_eq!(spare, Member(9));
    array.order(Command::Add(spare));
    let last = "m9 write data+0 ";
    // A row at a time, each with a checkpoint behind it, but for the first.
    for _ in 0..9 {
        array.run_but("m9 write data+");
        array.wait(Nanos::from_millis(2200));
        let labels = array.labels();
        let next = labels
            .iter()
            .find(|label| label.starts_with("m9 write data+") && !label.starts_with(last));
        if let Some(label) = next.map(|label| label.to_string()) {
            array.complete(&label);
        }
    }
    array.run_but(last);
    assert!(array.mentions(last), "{:?}", array.labels());
    array.depart(5);
    array.run_but(last);
    // A row that is in doubt, of which member 9 has the one copy of slot 4's cell, and another cell becomes unreadable.
    let row = array
        .layout
        .partition_rows(1)
        .find(|row| array.layout.row(Row(*row)).cell_on(Slot(4)).is_some());
    let row = Row(row.expect("slot 4 stands there"));
    let map = array.layout.row(row);
    let data = (0..map.data).find(|data| map.cells[usize::from(*data)].slot != Slot(4));
    let lba = array
        .layout
        .lba(row, data.expect("another cell has data"), 0);
    let write = array.write(lba, 3);
    array.run_but(last);
    assert_eq!(array.reply(write), Some(Ok(())));
    let (member, at) = array.home(lba + 8);
    array.crash_without(&[5], |_| true);
    array.spoil(member, at, 1);
    array.start().expect("it starts");
    array.read(lba + 8, 1).expect("member 9 tells it");
    array.run_tasks();
    array.verify();
}

#[test]
fn a_member_that_hosts_is_not_replaced() {
    let mut array = filled(three_by_three().spares(1));
    array
        .command(Command::Rate { min: 1, max: 1 })
        .expect("taken");
    array.depart(4);
    array.run();
    let (old, new) = (Member(3), Member(9));
    let refused = array.command(Command::Replace { old, new });
    assert!(matches!(refused, Err(CommandError::Busy(_))), "{refused:?}");
}

/// Superblocks keep record of so many tasks, and of no more.
#[test]
fn only_so_many_members_are_filled_at_once() {
    let mut setup = Setup::new(Level::Raid10 { copies: 2 }, 16).info(|info| info.sectors = 4096);
    setup.rows = 8;
    let mut array = filled(setup.spares(16));
    array
        .command(Command::Rate { min: 1, max: 1 })
        .expect("taken");
    let replace = |slot: u16| Command::Replace {
        old: Member(slot),
        new: Member(slot + 16),
    };
    for slot in 0..6 {
        array.command(replace(slot)).expect("there is room");
    }
    assert!(matches!(
        array.command(replace(6)),
        Err(CommandError::Busy(_))
    ));
    array.command(Command::Fail(Member(7))).expect("redundant");
    array
        .command(Command::Rate {
            min: 1 << 30,
            max: 1 << 30,
        })
        .expect("taken");
    array.run_tasks();
    whole(&mut array);
}

#[test]
fn a_place_whose_write_fails_is_not_believed() {
    let mut array = filled(three_by_three());
    array.depart(4);
    array.run_but("sparepartition");
    array.fail("m5 write sparepartition", IoError::Gone);
    array.run_tasks();
    array.verify();
    array.crash(|_| false);
    array.start().expect("it starts");
    array.run_tasks();
    array.verify();
}

/// Partitions of slot 2 stay vacant: whoever has room holds another cell of their rows. That room is right for slot 4.
#[test]
fn a_slot_that_nobody_can_take_keeps_no_other_from_its_places() {
    let mut setup = three_by_three();
    setup.options.spare_partitions = 1;
    let mut array = filled(setup);
    for member in [1, 2] {
        array.command(Command::Fail(Member(member))).expect("borne");
        array.run_tasks();
    }
    array.facts.clear();
    array.command(Command::Fail(Member(4))).expect("borne");
    array.run_tasks();
    let taken = array.facts.iter();
    let slots: Vec<u16> = taken
        .filter_map(|fact| match fact {
            Fact::PartitionTaken { slot, .. } => Some(*slot),
            _ => None,
        })
        .collect();
    assert!(slots.contains(&4), "{slots:?}");
    array.verify();
}
