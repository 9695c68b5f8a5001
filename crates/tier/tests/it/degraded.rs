//! Arrays with members missing: logged passes, what is owed, coming back, spares.

use crate::shell::{Array, CHUNK, Setup, raid1, raid5, raid6};
use restripe_array::meta::WriteHole;
use restripe_array::report::{ArrayState, MemberState};
use restripe_array::{Command, CommandError, Fact, Member, Nanos, TaskKind, TaskOutcome};

/// Log records in a listing; done-lists stand in the first 16 sectors.
fn records(listing: &str) -> usize {
    let list = |line: &str| line.contains("log+0 ") || line.contains("log+8 ");
    let records = listing
        .lines()
        .filter(|line| line.contains("write log+") && !list(line));
    records.count()
}

#[test]
fn lost_and_live_cells_are_written_in_two_logged_steps() {
    let mut array = raid5(4).start();
    array.depart(1);
    array.run();
    array.listing();
    array.write(0, 3 * CHUNK);
    array.run_but("write data");
    assert_eq!(records(&array.listing()), 1);
    assert!(array.mentions("m0 write data") && array.mentions("m2 write data"));
    array.run();
    let second = array.listing();
    assert_eq!(records(&second), 1, "{second}");
    assert!(second.contains("m3 write data"));
    array.verify();
}

#[test]
fn a_write_to_a_lost_cell_changes_only_parity() {
    let mut array = raid5(4).start();
    array.written(0, 48).expect("written");
    array.depart(1);
    array.run();
    array.write(16, 8);
    array.run_but("write data");
    assert_eq!(array.labels(), ["m3 write data+0 8"]);
    array.run();
    array.verify();
}

#[test]
fn a_row_without_its_parity_is_written_plainly() {
    let mut array = raid5(4).start();
    array.depart(3);
    array.run();
    array.listing();
    array.written(0, 8).expect("written");
    let listing = array.listing();
    assert!(
        !listing.contains("read") && !listing.contains("log+"),
        "{listing}"
    );
    array.verify();
}

#[test]
fn what_a_missing_member_is_owed_is_on_record_before_it_misses_it() {
    let mut array = raid5(4).start();
    array.depart(0);
    array.run();
    array.write(0, 8);
    array.run_but("write intent");
    assert!(array.mentions("write intent"), "{:?}", array.labels());
    array.run_only("m1 write intent");
    array.run_but("write intent");
    assert!(!array.mentions("write data"));
    array.run();
    array.verify();
}

#[test]
fn what_is_owed_already_is_not_announced_again() {
    let mut array = raid5(4).start();
    array.depart(0);
    array.run();
    array.written(0, 8).expect("written");
    array.write(8, 8);
    assert!(!array.mentions("intent"), "{:?}", array.labels());
}

#[test]
fn coming_back_costs_only_what_is_owed() {
    for setup in [raid5(4), raid1(3), raid6(5)] {
        let mut array = setup.start();
        array.flushed();
        array.depart(0);
        array.run();
        array.written(0, 8).expect("written");
        array.listing();
        array
            .command(Command::Add(Member(0)))
            .expect("it was a member");
        array.run_tasks();
        let listing = array.listing();
        let filled = listing
            .lines()
            .filter(|line| line.starts_with("m0 write data+"));
        let filled: Vec<&str> = filled.collect();
        assert_eq!(filled, ["m0 write data+0 16", "m0 write data+16 16"]);
        assert_eq!(array.engine.status().state, ArrayState::Healthy);
        array.verify();
        array.consistent();
    }
}

#[test]
fn one_that_comes_back_after_a_restart_is_owed_the_same() {
    let mut array = raid5(4).start();
    array.depart(0);
    array.run();
    array.written(0, 8).expect("written");
    array.command(Command::Stop).expect("stops");
    array.crash(|_| true);
    array.start().expect("starts degraded");
    assert_eq!(array.engine.status().state, ArrayState::Degraded);
    array
        .command(Command::Add(Member(0)))
        .expect("it was a member");
    array.run_tasks();
    array.verify();
    array.consistent();
}

#[test]
fn a_stale_member_does_not_serve_after_a_restart() {
    let mut array = raid1(3).start();
    array.written(0, 8).expect("written");
    array.depart(0);
    array.run();
    array.written(0, 8).expect("written");
    array.flushed();
    array.crash(|_| false);
    array.start().expect("starts");
    assert_eq!(array.engine.status().members[0].state, MemberState::Failed);
    array.verify();
}

#[test]
fn a_spare_takes_over_by_itself() {
    let mut array = raid5(4).spares(1).start();
    array.written(0, 100).expect("written");
    array.depart(2);
    array.run_tasks();
    let taken = Fact::SpareTaken {
        spare: Member(4),
        slot: 2,
    };
    assert!(array.has_fact(|fact| *fact == taken));
    assert!(array.ended(TaskKind::Rebuild, TaskOutcome::Done));
    assert_eq!(array.engine.status().state, ArrayState::Healthy);
    array.verify();
    array.consistent();
}

#[test]
fn a_spare_that_fails_while_it_is_filled_ends_its_rebuild() {
    let mut array = raid5(4).spares(1).start();
    array.written(0, 100).expect("written");
    array.depart(2);
    array.run_but("m4 write data");
    array.depart(4);
    array.run_tasks();
    assert!(array.ended(TaskKind::Rebuild, TaskOutcome::Failed));
    assert_eq!(array.engine.status().state, ArrayState::Degraded);
    array.verify();
}

#[test]
fn a_second_spare_follows_a_failed_one() {
    let mut array = raid5(4).spares(2).start();
    array.written(0, 100).expect("written");
    array.depart(2);
    array.run_but("m4 write data");
    array.depart(4);
    array.run_tasks();
    assert_eq!(array.engine.status().members[5].slot, Some(2));
    array.verify();
    array.consistent();
}

#[test]
fn raid6_rebuilds_two_members() {
    let mut array = raid6(5).spares(2).start();
    array.written(0, 200).expect("written");
    array.depart(1);
    array.depart(3);
    array.run_tasks();
    assert_eq!(array.engine.status().state, ArrayState::Healthy);
    array.verify();
    array.consistent();
}

#[test]
fn a_paused_rebuild_holds_no_other_up() {
    let mut array = raid6(5).spares(2).start();
    array.written(0, 200).expect("written");
    let rate = |max| Command::Rate { min: 1, max };
    array.command(rate(8 << 10)).expect("slow");
    array.depart(1);
    array.run();
    array.command(Command::Pause(true)).expect("it is not done");
    array.command(rate(1 << 30)).expect("fast");
    array.depart(3);
    for _ in 0..20 {
        array.pass(Nanos::from_millis(200));
    }
    let tasks = array.engine.status().set.tasks;
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    assert!(tasks[0].paused && tasks[0].first, "{tasks:?}");
    array.command(Command::Pause(false)).expect("it is there");
    array.run_tasks();
    assert_eq!(array.engine.status().state, ArrayState::Healthy);
    array.verify();
    array.consistent();
}

#[test]
fn writes_during_a_rebuild_are_kept() {
    let mut array = raid5(4).spares(1).start();
    array.written(0, 100).expect("written");
    array.depart(2);
    array.run_but("m4 write data");
    array.write(30, 8);
    array.write(300, 40);
    array.write(0, 48);
    array.run_tasks();
    array.verify();
    array.consistent();
}

#[test]
fn a_bitmap_array_serves_degraded_too() {
    let mut array = raid5(4).hole(WriteHole::Bitmap).start();
    array.depart(1);
    array.run();
    array.written(0, 100).expect("written");
    array.verify();
    array
        .command(Command::Add(Member(1)))
        .expect("it was a member");
    array.run_tasks();
    array.verify();
    array.consistent();
}

#[test]
fn a_raid10_loses_one_of_each_pair() {
    use restripe_array::layout::Level;
    let mut array = Setup::new(Level::Raid10 { copies: 2 }, 4).start();
    array.written(0, 60).expect("written");
    array.depart(0);
    array.depart(3);
    array.run();
    array.written(10, 40).expect("written");
    array.verify();
}

#[test]
fn degraded_write_golden() {
    let mut array = raid5(4).start();
    array.depart(1);
    array.run();
    array.listing();
    array.note("a full row without m1");
    array.write(0, 3 * CHUNK);
    array.note("what m1 is owed is on record");
    array.run_only("intent");
    array.note("first step");
    array.run_only("log+");
    array.note("and the rest");
    array.run();
    array.golden("degraded_full_row");
}

#[test]
fn what_a_pass_wrote_is_not_taken_for_unreadable_by_the_next() {
    let mut array = raid5(4).start();
    array.written(0, 3 * CHUNK).expect("written");
    let start = array.data_start();
    array.depart(1);
    array.run();
    // The old value of the missing cell cannot be had there; the new values of all cells can.
    array.spoil(0, start + 5, 1);
    array.written(0, 3 * CHUNK).expect("written");
    assert!(array.engine.status().lost.is_empty());
    array.verify();
}

#[test]
fn a_member_that_cannot_be_filled_is_not_added() {
    let mut array = raid5(4).start();
    array.written(0, 100).expect("written");
    array.depart(2);
    array.run();
    array.written(20, 40).expect("written");
    array.depart(1);
    array.run();
    let too_few = Err(CommandError::TooFew {
        missing: vec![1, 2],
    });
    let members = |array: &Array| format!("{:?}", array.engine.status().members);
    let before = members(&array);
    for command in [Command::Add, Command::Remove] {
        for member in [1, 2] {
            assert_eq!(array.command(command(Member(member))), too_few);
        }
    }
    assert_eq!(members(&array), before, "nothing was done");
    assert!(!array.has_fact(|fact| matches!(fact, Fact::Lost { .. })));
}
