//! Scrubs: a check only looks; a repair knows whom to blame where the code can tell.

use crate::shell::{Array, CHUNK, Setup, raid1, raid5, raid6};
use restripe_array::layout::{Level, Role};
use restripe_array::meta::WriteHole;
use restripe_array::{Command, CommandError, Cure, Fact, IoError, Member, Nanos, ScrubMode};

fn scrub(array: &mut Array, repair: bool) -> Vec<(Option<Member>, bool)> {
    array.facts.clear();
    array.listing();
    array
        .command(Command::Scrub(ScrubMode::writing(repair)))
        .expect("a scrub can run");
    array.run_tasks();
    let mismatches = array.facts.iter().filter_map(|fact| match fact {
        Fact::Mismatch { guilty, cure, .. } => Some((*guilty, *cure != Cure::Left)),
        _ => None,
    });
    mismatches.collect()
}

/// An array with data, one byte of which was changed on this member.
fn corrupted(setup: Setup, member: u16) -> Array {
    let mut array = setup.start();
    array.written(0, 32).expect("written");
    array.flushed();
    let start = array.data_start();
    array.corrupt(member, start + 3);
    array
}

#[test]
fn a_sound_array_has_nothing_to_tell() {
    for setup in [raid5(4), raid6(5), raid1(3)] {
        let mut array = setup.start();
        array.written(0, 40).expect("written");
        assert_eq!(scrub(&mut array, false), []);
        assert_eq!(scrub(&mut array, true), []);
    }
}

#[test]
fn a_check_never_writes_data() {
    for setup in [raid5(4), raid6(5), raid1(3)] {
        let mut array = corrupted(setup, 1);
        let found = scrub(&mut array, false);
        assert_eq!(found.len(), 1);
        assert!(!found[0].1, "a check repairs nothing");
        let listing = array.listing();
        assert!(
            !listing.contains("write data") && !listing.contains("write log"),
            "{listing}"
        );
    }
}

#[test]
fn a_check_counts_what_it_finds() {
    let mut array = corrupted(raid5(4), 1);
    array.order(Command::Scrub(ScrubMode::Check));
    array.run_but("flush");
    let tasks = array.engine.status().set.tasks;
    assert!(
        tasks.first().is_none_or(|task| task.mismatches == 1),
        "{tasks:?}"
    );
    array.run_tasks();
}

#[test]
fn raid6_names_the_guilty_whoever_it_is() {
    for member in 0..5 {
        let mut array = corrupted(raid6(5), member);
        let guilty = Some(Member(member));
        assert_eq!(scrub(&mut array, false), [(guilty, false)]);
        let repaired = scrub(&mut array, true);
        assert!(!repaired.is_empty() && repaired.iter().all(|found| *found == (guilty, true)));
        assert_eq!(scrub(&mut array, false), []);
        array.verify();
    }
}

#[test]
fn a_three_way_mirror_names_the_odd_one() {
    for member in 0..3 {
        let mut array = corrupted(raid1(3), member);
        assert_eq!(scrub(&mut array, true), [(Some(Member(member)), true)]);
        assert_eq!(scrub(&mut array, false), []);
        array.verify();
    }
}

#[test]
fn a_two_way_mirror_cannot_tell() {
    let mut array = corrupted(raid1(2), 1);
    assert_eq!(scrub(&mut array, true), [(None, true)]);
    assert_eq!(scrub(&mut array, false), []);
    array.verify();
}

#[test]
fn raid5_makes_parity_follow_the_data() {
    let parity = raid5(4).start().slot_of(0, Role::P);
    let mut array = corrupted(raid5(4), parity);
    assert_eq!(scrub(&mut array, true), [(None, true)]);
    assert_eq!(scrub(&mut array, false), []);
    array.verify();
}

#[test]
fn two_wrong_cells_of_raid6_are_nobody_s_fault() {
    let mut array = corrupted(raid6(6), 1);
    let start = array.data_start();
    array.corrupt(2, start + 3);
    let found = scrub(&mut array, false);
    assert!(found.len() == 1 && !found[0].1);
}

#[test]
fn a_scrub_finds_unreadable_sectors_before_they_are_needed() {
    let mut array = raid5(4).start();
    array.written(0, 48).expect("written");
    let start = array.data_start();
    array.spoil(1, start + 4, 1);
    scrub(&mut array, true);
    assert!(array.disks[1].bad.is_empty());
    array.verify();
}

#[test]
fn a_scrub_passes_by_what_was_never_written() {
    let mut array = raid5(4).unwritten().start();
    scrub(&mut array, false);
    assert!(!array.listing().contains("read data"));
}

#[test]
fn a_write_waits_for_the_scrub_of_its_sectors() {
    let mut array = raid5(4).start();
    array.order(Command::Scrub(ScrubMode::Sync));
    array.run_but("read data+0 16");
    let write = array.write(0, 3 * CHUNK);
    array.run_but("read data+0 16");
    assert_eq!(array.reply(write), None);
    array.run_tasks();
    assert_eq!(array.reply(write), Some(Ok(())));
    array.verify();
    array.consistent();
}

#[test]
fn without_redundancy_there_is_nothing_to_scrub() {
    let mut array = Setup::new(restripe_array::layout::Level::Raid0, 3).start();
    let refused = array.command(Command::Scrub(ScrubMode::Check));
    assert!(matches!(refused, Err(CommandError::Busy(_))));
}

#[test]
fn checks_do_not_count_the_same_bad_sector_again_and_again() {
    let mut array = raid5(4).start();
    array.written(0, 48).expect("written");
    let start = array.data_start();
    array.spoil(0, start + 5, 1);
    for _ in 0..40 {
        scrub(&mut array, false);
    }
    assert!(!array.failed(0));
    assert_eq!(array.engine.status().members[0].read_errors, 1);
}

#[test]
fn a_repair_next_to_rot_recovers_only_what_cannot_be_read() {
    let mut array = corrupted(raid5(4), 0);
    let start = array.data_start();
    array.spoil(1, start + 9, 1);
    let data = start as usize * 512..;
    let before = array.disks[1].image[data.clone()].to_vec();
    // One sector to recover; and one that parity, which follows the data, will call right.
    scrub(&mut array, true);
    assert!(array.disks[1].bad.is_empty());
    assert!(
        array.disks[1].image[data] == before,
        "what was there all along"
    );
}

#[test]
fn a_repair_makes_nothing_of_rot_where_it_can_tell() {
    for setup in [raid6(5), raid1(3)] {
        let mut array = corrupted(setup, 0);
        let start = array.data_start();
        array.spoil(1, start + 3, 1);
        let data = start as usize * 512..;
        let before = array.disks[1].image[data.clone()].to_vec();
        assert_eq!(scrub(&mut array, true), [(None, false)]);
        assert_eq!(array.disks[1].bad.len(), 1, "left as it was");
        assert!(array.disks[1].image[data] == before);
    }
}

fn every_kind(holes: &[WriteHole]) -> Vec<Setup> {
    let parity = holes
        .iter()
        .flat_map(|&hole| [raid5(4).hole(hole), raid6(5).hole(hole)]);
    parity.chain([raid1(3)]).collect()
}

/// An array whose parity, or last copy, is wrong in the first row, with the member that has it.
fn with_wrong_parity(setup: Setup) -> (Array, u16) {
    let mut array = setup.start();
    let members = array.engine.status().members.len() as u16;
    let wrong = match usize::from(members) {
        3 => members - 1,
        _ => array.slot_of(0, Role::P),
    };
    array.written(0, 32).expect("written");
    array.flushed();
    // Nothing is left to be owed to anybody but what is repaired.
    array.wait(Nanos::from_secs(20));
    array.run();
    let start = array.data_start();
    array.corrupt(wrong, start + 3);
    (array, wrong)
}

/// What a repair wrote to a member that then fails the flush is not there when the member comes back.
#[test]
fn a_member_that_failed_the_flush_lacks_what_was_repaired() {
    for setup in every_kind(&[WriteHole::Ppl, WriteHole::Bitmap, WriteHole::None]) {
        let (mut array, wrong) = with_wrong_parity(setup);
        let flush = format!("m{wrong} flush");
        array.order(Command::Scrub(ScrubMode::Sync));
        array.run_but(&flush);
        array.wait(Nanos::from_secs(1));
        array.run_but(&flush);
        array.fail(&flush, IoError::Other(5));
        array.run_tasks();
        assert!(array.failed(wrong));
        array.command(Command::Stop).expect("it stops");
        array.crash(|_| false);
        array.start().expect("one may be missing");
        array
            .command(Command::Add(Member(wrong)))
            .expect("it is back");
        array.run_tasks();
        array.consistent();
    }
}

/// Nor is it if power goes first, and the member is away at the next start.
#[test]
fn a_member_that_left_with_a_crash_lacks_what_was_repaired() {
    // Without a guard, parity proves nothing of a member that left with a crash.
    for setup in every_kind(&[WriteHole::Ppl, WriteHole::Bitmap]) {
        let (mut array, wrong) = with_wrong_parity(setup);
        array.order(Command::Scrub(ScrubMode::Sync));
        array.run_but("flush");
        let other = |label: &str| !label.starts_with(&format!("m{wrong} "));
        array.crash(other);
        let away = array.take_out(usize::from(wrong));
        array.start().expect("one may be missing");
        array.run_tasks();
        array.command(Command::Stop).expect("it stops");
        array.crash(|_| false);
        array.put_back(usize::from(wrong), away);
        array.start().expect("a whole array starts");
        array
            .command(Command::Add(Member(wrong)))
            .expect("it is back");
        array.run_tasks();
        array.consistent();
    }
}

/// Rows of these arrays: more than a member may have read errors.
const ROWS: u64 = 30;

/// Arrays of all kinds of redundancy, each with as many members as may be missing at once.
fn redundant() -> Vec<(Array, u16)> {
    let rs = Setup::new(Level::ReedSolomon { parities: 3 }, 6).hole(WriteHole::Bitmap);
    let kinds = [
        (raid1(2), 1),
        (raid1(3), 2),
        (raid5(4), 1),
        (raid6(5), 2),
        (rs, 3),
    ];
    let made = kinds.into_iter().map(|(mut setup, borne)| {
        setup.rows = ROWS;
        let mut array = setup.start();
        let size = array.layout.size_sectors();
        array.written(0, size).expect("written");
        array.flushed();
        (array, borne)
    });
    made.collect()
}

const MODES: [ScrubMode; 3] = [ScrubMode::Check, ScrubMode::Repair, ScrubMode::Sync];

fn scrubbed(array: &mut Array, mode: ScrubMode) {
    array.listing();
    array.command(Command::Scrub(mode)).expect("it can run");
    array.run_tasks();
}

/// This sector of each row, on this member.
fn spoil_rows(array: &mut Array, member: u16, sector: u64) {
    let start = array.data_start();
    for row in 0..ROWS {
        array.spoil(member, start + row * CHUNK + sector, 1);
    }
}

fn failed(array: &Array) -> usize {
    let members = 0..array.engine.status().members.len() as u16;
    members.filter(|member| array.failed(*member)).count()
}

/// What the others cannot recover is met again by each scrub. What else the members have may be on no other.
#[test]
fn what_a_scrub_cannot_recover_never_fails_its_member() {
    for mode in MODES {
        for (mut array, borne) in redundant() {
            for member in 0..=borne {
                spoil_rows(&mut array, member, 5);
            }
            for pass in 1..=2 {
                scrubbed(&mut array, mode);
                assert_eq!(failed(&array), 0, "{mode:?} {borne}");
                let line = &array.engine.status().members[0];
                let errors = (line.read_errors.into(), line.lost_errors.into());
                assert_eq!(errors, (pass * ROWS, pass * ROWS), "all are seen");
            }
        }
    }
}

/// What the others have counts as it always did, also where something else of the chunk is lost.
#[test]
fn what_a_scrub_could_recover_counts_against_its_member() {
    for mode in MODES {
        for lost_too in [false, true] {
            for (mut array, borne) in redundant() {
                for member in (0..=borne).filter(|_| lost_too) {
                    spoil_rows(&mut array, member, 5);
                }
                spoil_rows(&mut array, 0, 9);
                scrubbed(&mut array, mode);
                assert!(array.failed(0), "{mode:?} {borne} {lost_too}");
                assert_eq!(failed(&array), 1, "{mode:?} {borne} {lost_too}");
            }
        }
    }
}

/// One error more, which the others recover, fails no member whose other errors are of what is lost.
#[test]
fn what_is_lost_leaves_the_limit_of_a_scrub_alone() {
    for mode in MODES {
        for (mut array, borne) in redundant() {
            for member in 0..=borne {
                spoil_rows(&mut array, member, 5);
            }
            let start = array.data_start();
            array.spoil(0, start + 9, 1);
            scrubbed(&mut array, mode);
            assert_eq!(failed(&array), 0, "{mode:?} {borne}");
            let line = &array.engine.status().members[0];
            let others = line.read_errors - line.lost_errors;
            assert_eq!(others, 1, "{mode:?} {borne}");
        }
    }
}
