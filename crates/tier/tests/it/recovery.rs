//! After a crash: each of the ways in which a row whose write was cut short is made consistent.

use crate::shell::{Array, CHUNK, raid1, raid5, raid6};
use crate::spares::superblock_on;
use restripe_array::meta::WriteHole;
use restripe_array::report::ArrayState;
use restripe_array::{Command, CommandError, Fact, Member, RequestError, StartMode, TaskKind};

/// A raid5 with flushed data in row 0, ready for a write to be cut short.
fn flushed() -> Array {
    let mut array = raid5(5).start();
    array.written(0, 4 * CHUNK).expect("written");
    array.flushed();
    array
}

/// Everything but these sectors reads as the model says; these as one of the two.
fn old_or_new(array: &mut Array, old: &[u8], range: std::ops::Range<u64>) {
    for lba in 0..4 * CHUNK {
        let found = array.read(lba, 1).expect("nothing is lost");
        let bytes = lba as usize * 512..(lba as usize + 1) * 512;
        let is_old = found == old[bytes.clone()];
        let is_new = found == array.model[bytes];
        assert!(
            is_new || (range.contains(&lba) && is_old),
            "sector {lba} was made up"
        );
    }
}

#[test]
fn with_all_data_here_parity_follows_whatever_reached_the_disks() {
    for kept in ["m0 data", "m4 data", "m", "nothing"] {
        let mut array = flushed();
        let old = array.model.clone();
        array.write(0, 8);
        array.run();
        array.crash(|label| label.starts_with(kept));
        array.start().expect("starts");
        old_or_new(&mut array, &old, 0..8);
        array.consistent();
    }
}

#[test]
fn an_unchanged_cell_that_goes_with_the_crash_is_as_it_was() {
    for kept in ["m0 data", "m4 data", "m", "nothing"] {
        let mut array = flushed();
        let old = array.model.clone();
        array.write(0, 8);
        array.run();
        array.crash_without(&[2], |label| label.starts_with(kept));
        array.start().expect("starts without m2");
        old_or_new(&mut array, &old, 0..8);
    }
}

#[test]
fn one_changed_cell_that_goes_with_the_crash_is_old_or_new() {
    for kept in ["m4 data", "nothing"] {
        let mut array = flushed();
        let old = array.model.clone();
        array.write(0, 8);
        array.run();
        array.crash_without(&[0], |label| label.starts_with(kept));
        array.start().expect("starts without m0");
        old_or_new(&mut array, &old, 0..8);
    }
}

#[test]
fn one_changed_cell_of_raid6_is_old_or_new_and_q_agrees() {
    for kept in ["m0", "m1", "m4", "m5", "nothing"] {
        let mut array = raid6(6).start();
        array.written(0, 4 * CHUNK).expect("written");
        array.flushed();
        let old = array.model.clone();
        let (gone, _) = array.home(0);
        array.write(0, 8);
        array.run();
        array.crash_without(&[gone.into()], |label| label.starts_with(kept));
        array.start().expect("starts without one");
        old_or_new(&mut array, &old, 0..8);
        let other = array.home(CHUNK).0;
        array.depart(other);
        array.run();
        old_or_new(&mut array, &old, 0..8);
    }
}

/// A sector of the changed cell and another one of parity cannot be read: each sector is told by what is left of its own.
#[test]
fn a_changed_cell_and_parity_that_are_unreadable_in_places_agree_again() {
    for kept in ["m0 data", "m4 data", "m", "nothing"] {
        let mut array = flushed();
        let old = array.model.clone();
        array.write(0, 8);
        array.run();
        array.crash(|label| label.starts_with(kept));
        let (member, data) = array.home(0);
        array.spoil(member, data + 2, 1);
        array.spoil(4, data + 5, 1);
        array.start().expect("starts");
        old_or_new(&mut array, &old, 0..8);
        array.consistent();
    }
}

/// A sector of the changed cell alone cannot be read: the others stay as they are, old or new, and parity is made to fit.
#[test]
fn a_changed_cell_that_is_unreadable_in_one_place_fits_its_parity_again() {
    for kept in ["m0 data", "m4 data", "m", "nothing"] {
        let mut array = flushed();
        let old = array.model.clone();
        array.write(0, 8);
        array.run();
        array.crash(|label| label.starts_with(kept));
        let (member, data) = array.home(0);
        array.spoil(member, data + 2, 1);
        array.start().expect("starts");
        old_or_new(&mut array, &old, 0..8);
        array.consistent();
        let other = array.home(CHUNK).0;
        array.depart(other);
        array.run();
        old_or_new(&mut array, &old, 0..8);
    }
}

/// Where neither can be read, the sector is lost, and no other.
#[test]
fn a_sector_that_neither_the_changed_cell_nor_parity_tells_is_lost() {
    let mut array = flushed();
    array.write(0, 8);
    array.run();
    array.crash(|label| label.starts_with("m4 data"));
    let (member, data) = array.home(0);
    array.spoil(member, data + 2, 1);
    array.spoil(4, data + 2, 1);
    array.start().expect("starts");
    for lba in 0..4 * CHUNK {
        assert_eq!(array.read(lba, 1).is_ok(), lba != 2, "sector {lba}");
    }
    assert!(array.has_fact(|fact| matches!(fact, Fact::Lost { lba: 2, sectors: 1 })));
}

fn accepting() -> StartMode {
    StartMode {
        accept_loss: true,
        ..StartMode::default()
    }
}

/// The extents that a start is refused for.
fn would_lose(start: Result<(), CommandError>) -> Vec<(u64, u64)> {
    match start {
        Err(CommandError::WouldLose { extents }) => extents,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_member_that_is_brought_after_all_saves_what_was_being_written() {
    let mut array = flushed();
    let old = array.model.clone();
    array.write(0, 2 * CHUNK);
    array.run();
    let absent = array.disks[0].clone();
    array.crash_without(&[0], |label| label.starts_with("m1 data"));
    would_lose(array.start());
    array.disks[0] = absent;
    array.crash(|_| true);
    array.start().expect("all are here");
    assert!(!array.has_fact(|fact| matches!(fact, Fact::Lost { .. })));
    old_or_new(&mut array, &old, 0..2 * CHUNK);
    array.run_tasks();
    array.consistent();
}

#[test]
fn one_of_several_changed_cells_that_goes_is_lost_and_named() {
    let mut array = flushed();
    array.write(0, 2 * CHUNK);
    array.run();
    array.crash_without(&[0], |label| label.starts_with("m1 data"));
    let lost = would_lose(array.start());
    assert_eq!(lost.iter().map(|extent| extent.1).sum::<u64>(), CHUNK);
    array.command(Command::Start(accepting())).expect("told so");
    assert!(array.has_fact(|fact| matches!(fact, Fact::Lost { .. })));
    for lba in 0..4 * CHUNK {
        let wanted = array.model[lba as usize * 512..][..512].to_vec();
        match array.read(lba, 1) {
            Ok(found) => assert!(found == wanted, "sector {lba}"),
            Err(RequestError::Lost { .. }) => assert!(lba < CHUNK, "sector {lba}"),
            Err(error) => panic!("sector {lba}: {error}"),
        }
    }
}

/// A member of the pass fails while its record is being written: its cell then goes alone, so that it is old or new.
#[test]
fn a_cell_whose_member_failed_beside_the_record_is_not_written_with_others() {
    let mut array = flushed();
    let old = array.model.clone();
    array.write(0, 4 * CHUNK);
    array.run_but("write log");
    assert!(array.mentions("m4 write log"), "{:?}", array.labels());
    array.depart(1);
    array.run_but("write data+0");
    array.complete_held("m0 write data+0");
    array.crash(|_| true);
    array.start().expect("m1 had failed before");
    old_or_new(&mut array, &old, 0..4 * CHUNK);
}

#[test]
fn what_was_flushed_is_never_lost_with_a_member() {
    for gone in 0..5 {
        let mut array = flushed();
        array.crash_without(&[gone], |_| false);
        array.start().expect("starts without one");
        array.verify();
    }
}

#[test]
fn a_record_that_never_was_whole_changes_nothing() {
    for gone in [0, 1, 2, 3] {
        let mut array = flushed();
        let old = array.model.clone();
        array.write(0, 2 * CHUNK);
        array.run_but("write log+");
        array.crash_without(&[gone], |_| true);
        array.model = old;
        array.start().expect("starts without one");
        array.verify();
    }
}

#[test]
fn a_torn_record_changes_nothing() {
    for gone in [0, 1, 2, 3] {
        let mut array = flushed();
        let old = array.model.clone();
        array.write(0, 2 * CHUNK);
        let at = tear(&mut array);
        array.crash_without(&[gone], |_| true);
        array.corrupt(4, at);
        array.model = old;
        array.start().expect("starts without one");
        array.verify();
    }
}

/// Ends the write of m4's record; the sector of its payload that a crash is to tear.
fn tear(array: &mut Array) -> u64 {
    array.run_but("write log+");
    let label = array
        .labels()
        .iter()
        .find(|l| l.starts_with("m4 write log+"))
        .map(|l| l.to_string());
    let label = label.expect("a record is written");
    let numbers = label
        .split(['+', ' '])
        .filter_map(|word| word.parse::<u64>().ok());
    let offset = numbers.into_iter().next().expect("a place in the log");
    array.complete("m4 write log+");
    let log = |region: &&restripe_array::meta::Region| {
        region.kind == restripe_array::meta::RegionKind::Log
    };
    array
        .regions
        .iter()
        .find(log)
        .expect("there is a log")
        .start
        + offset
        + 8
}

#[test]
fn a_record_on_one_log_of_two_changes_nothing() {
    let mut array = raid6(6).start();
    array.written(0, 4 * CHUNK).expect("written");
    array.flushed();
    let old = array.model.clone();
    array.write(0, 2 * CHUNK);
    array.run_but("write log+");
    let first = array.labels()[0].to_string();
    array.complete(&first);
    let gone = array.home(0).0;
    array.crash_without(&[gone.into()], |_| true);
    array.model = old;
    array.start().expect("starts without one");
    array.verify();
}

/// The older record stays in its log, because in front of it is one that is not over; no done-list names it, since it
/// is of one cell.
#[test]
fn a_record_that_a_listed_one_has_followed_is_over_too() {
    let mut array = flushed();
    let apart = array.layout.row_sectors() * 5;
    array.write(apart, 8);
    array.run_but("write data+80");
    assert!(array.mentions("m0 write data+80"), "{:?}", array.labels());
    for sectors in [8, 4 * CHUNK] {
        array.write(0, sectors);
        array.run_but("write data+80");
    }
    array.flush();
    array.run_but("write data+80");
    let old = array.model.clone();
    array.crash_without(&[1], |_| true);
    array.start().expect("starts without m1");
    old_or_new(&mut array, &old, 0..0);
}

#[test]
fn a_crash_while_recovering_recovers_again() {
    let mut array = flushed();
    let old = array.model.clone();
    array.write(0, 8);
    array.run();
    array.crash(|label| label.starts_with("m0 data"));
    array.order(Command::Start(StartMode::default()));
    array.run_but("flush");
    array.crash(|_| false);
    array.start().expect("starts");
    old_or_new(&mut array, &old, 0..8);
    array.consistent();
}

#[test]
fn what_is_replayed_is_flushed_before_the_log_is_void() {
    let mut array = flushed();
    array.write(0, 8);
    array.run();
    array.crash(|label| label.starts_with("m0 data"));
    array.order(Command::Start(StartMode::default()));
    array.run_but("flush");
    assert!(array.mentions("flush"), "{:?}", array.labels());
    assert!(!array.peek().contains("write super"), "{}", array.peek());
}

#[test]
fn a_clean_row_is_not_recovered() {
    let mut array = flushed();
    array.crash(|_| false);
    array.start().expect("starts");
    let none = |fact: &Fact| {
        matches!(
            fact,
            Fact::Started {
                recovered_rows: 0,
                ..
            }
        )
    };
    assert!(array.has_fact(none), "{:?}", array.facts);
}

#[test]
fn a_mirror_is_brought_in_step_after_a_crash() {
    let mut array = raid1(2).start();
    array.written(0, 32).expect("written");
    array.flushed();
    array.write(0, 8);
    array.run();
    array.crash(|label| label.starts_with("m1 data"));
    array.start().expect("starts");
    array.run_tasks();
    let first = array.read(0, 8).expect("readable");
    assert_eq!(first, array.read(0, 8).expect("readable"));
    array.consistent();
}

#[test]
fn reads_of_a_mirror_out_of_step_do_not_waver() {
    let mut array = raid1(2).start();
    array.written(0, 8).expect("written");
    array.crash(|label| label.starts_with("m1 data"));
    array.order(Command::Start(StartMode::default()));
    array.run_but("data+");
    let first = array.read(0, 8).expect("readable");
    array.run_tasks();
    assert_eq!(first, array.read(0, 8).expect("readable"));
}

#[test]
fn a_bitmap_resyncs_what_was_being_written() {
    let mut array = raid5(4).hole(WriteHole::Bitmap).start();
    array.written(0, 100).expect("written");
    array.flushed();
    array.write(0, 8);
    array.run();
    array.crash(|label| label.starts_with("m0 data"));
    array.start().expect("starts");
    array.run_tasks();
    array.consistent();
}

#[test]
fn only_a_bitmap_has_a_write_wait_for_the_intent_map() {
    for (hole, waits) in [(WriteHole::Bitmap, true), (WriteHole::None, false)] {
        let mut array = raid5(4).hole(hole).start();
        array.write(0, 8);
        assert_eq!(array.mentions("intent"), waits, "{:?}", array.labels());
    }
}

#[test]
fn without_either_everything_is_resynced() {
    let mut array = raid5(4).hole(WriteHole::None).start();
    array.written(0, 100).expect("written");
    array.crash(|label| label.starts_with("m0 data"));
    array.start().expect("starts");
    let resync = |fact: &Fact| {
        matches!(
            fact,
            Fact::TaskStarted {
                kind: TaskKind::Resync,
                ..
            }
        )
    };
    assert!(array.has_fact(resync));
    array.run_tasks();
    array.consistent();
}

#[test]
fn a_dirty_degraded_array_without_a_log_says_what_it_would_lose() {
    let mut array = raid5(4).hole(WriteHole::Bitmap).start();
    array.written(0, 48).expect("written");
    array.crash_without(&[0], |_| true);
    assert!(!would_lose(array.start()).is_empty());
    array.command(Command::Start(accepting())).expect("told so");
    assert!(matches!(array.read(0, 8), Err(RequestError::Lost { .. })));
}

#[test]
fn who_was_away_when_its_rows_were_recovered_is_told_by_its_own_log() {
    let mut array = flushed();
    array.write(0, 8);
    array.run();
    array.crash(|label| label.starts_with("m0 data"));
    let parity = array.disks[4].clone();
    array.crash_without(&[4], |_| true);
    array.start().expect("starts without m4");
    // Of another region, and with records of their own: the array's floor rises above what m4 alone knows of.
    for row in 4..8 {
        array.written(row * 4 * CHUNK, 8).expect("written");
        array.flushed();
    }
    array.command(Command::Stop).expect("stops");
    array.disks[4] = parity;
    array.crash(|_| true);
    array.start().expect("starts with a stale m4");
    array.command(Command::Add(Member(4))).expect("it was here");
    array.run_tasks();
    array.consistent();
    array.verify();
}

#[test]
fn records_after_a_crash_are_newer_than_what_a_done_list_calls_over() {
    let mut array = flushed();
    for _ in 0..4 {
        array.written(0, 2 * CHUNK).expect("written");
        array.flushed();
    }
    array.crash(|_| true);
    array.start().expect("starts");
    array.write(0, 8);
    array.run();
    array.crash(|label| label.starts_with("m0 data"));
    array.start().expect("starts");
    array.consistent();
}

#[test]
fn an_old_copy_of_a_current_member_is_not_current() {
    let mut array = raid1(2).start();
    array.written(0, 8).expect("written");
    array.flushed();
    array.crash(|_| true);
    let old = array.disks[1].clone();
    array.start().expect("starts");
    array
        .command(Command::Fail(Member(1)))
        .expect("one is left");
    array.command(Command::Add(Member(1))).expect("it was here");
    array.run_tasks();
    array.written(0, 8).expect("written");
    array.command(Command::Stop).expect("stops");
    array.disks[1] = old;
    array.crash(|_| true);
    let alone = StartMode {
        from_minority: true,
        ..StartMode::default()
    };
    array
        .command(Command::Start(alone))
        .expect("starts with one member");
    assert_eq!(array.engine.status().state, ArrayState::Degraded);
    array.verify();
    array
        .command(Command::Add(Member(1)))
        .expect("as a stale one");
    array.run_tasks();
    array
        .command(Command::Fail(Member(0)))
        .expect("one is left");
    array.run();
    array.verify();
}

/// Who lags is given the version that was chosen, tasks and all: the next start may choose that copy.
#[test]
fn a_member_that_lags_is_told_of_the_tasks_as_well() {
    let mut array = raid5(5).spares(1).start();
    array.written(0, 4 * CHUNK).expect("written");
    array.flushed();
    array
        .command(Command::Rate { min: 1, max: 1 })
        .expect("taken");
    array.depart(4);
    array.run();
    array.order(Command::Pause(true));
    array.run_but("m0 write super");
    array.crash_without(&[4], |_| true);

    array.order(Command::Start(StartMode::default()));
    array.run_but("write super");
    array.complete("m0 write super");
    array.crash_without(&[4], |_| true);
    let [behind, ahead] = [0, 1].map(|member| superblock_on(&array, member));
    assert_eq!(behind.sequence, ahead.sequence, "it was brought level");
    assert_eq!(ahead.tasks.len(), 1);
    assert_eq!(behind.tasks, ahead.tasks);

    array.start().expect("one is missing");
    array.command(Command::Pause(false)).expect("it goes on");
    array.run_tasks();
    assert_eq!(array.engine.status().state, ArrayState::Healthy);
    array.verify();
    array.consistent();
}

/// The copy was made after a crash, the next start wrote nothing but what any start does, and a crash left that.
#[test]
fn a_copy_from_before_the_last_start_is_not_taken_for_the_member() {
    for setup in [raid5(3), raid6(4), raid1(3)] {
        let mut array = setup.start();
        array.written(0, CHUNK).expect("written");
        array.flushed();
        array.crash(|_| false);
        let old = array.disks[0].clone();
        array.start().expect("starts");
        array.written(0, CHUNK).expect("written again");
        array.flushed();
        array.crash(|_| false);
        array.put_back(0, old);
        array.start().expect("starts without it");
        assert_eq!(array.engine.status().state, ArrayState::Degraded);
        array.verify();
    }
}
