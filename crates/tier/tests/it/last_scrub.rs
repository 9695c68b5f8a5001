//! What a scrub found outlives it: on record, by member, over cuts and restarts. And a repair claims no more than a witness proves.

use crate::shell::{Array, CHUNK, Setup, raid1, raid5, raid6};
use restripe_array::layout::Level;
use restripe_array::meta::WriteHole;
use restripe_array::{
    Command, CommandError, Cure, Fact, LastScrub, Member, Nanos, ScrubMode, ScrubState, StartMode,
};

const SECTOR: u64 = 512;
const DATE: u64 = 1_795_000_000;

/// Arrays of every kind, with whether more than one witness tells what a cell has to be.
fn families() -> Vec<(Setup, bool)> {
    let rs = |parities| Setup::new(Level::ReedSolomon { parities }, 6).hole(WriteHole::Bitmap);
    let raid10 = |copies, slots| Setup::new(Level::Raid10 { copies }, slots);
    vec![
        (raid1(2), false),
        (raid1(3), true),
        (raid1(4), true),
        (raid10(2, 4), false),
        (raid10(3, 6), true),
        (Setup::new(Level::Raid4, 4), false),
        (raid5(4), false),
        (raid6(5), true),
        (rs(3), true),
        (crate::spares::three_by_three(), false),
        (crate::shell::grown4(&[2, 3]), false),
    ]
}

/// With data in every row, and a date.
fn filled(setup: &Setup) -> Array {
    let mut array = setup.clone().made();
    array.command(Command::Date(DATE)).expect("a date");
    array.start().expect("it starts");
    let size = array.layout.size_sectors();
    array.written(0, size).expect("written");
    array.flushed();
    array.pass(Nanos::from_secs(20));
    array
}

/// Looks at each member of each family: a filled array, the member, where its data begins, whether a second witness tells what a
/// cell has to be, and words for a failure.
fn each_member(look: impl Fn(Array, u16, u64, bool, &str)) {
    for (setup, witness) in families() {
        for member in 0..setup.clone().made().disks.len() as u16 {
            let array = filled(&setup);
            let start = array.data_start();
            let what = format!("{:?}, member {member}", setup.options.geometry.level);
            look(array, member, start, witness, &what);
        }
    }
}

fn scrub(array: &mut Array, mode: ScrubMode) -> Result<LastScrub, CommandError> {
    array.facts.clear();
    array.command(Command::Scrub(mode))?;
    array.run_tasks();
    Ok(last(array))
}

fn agrees(array: &mut Array) {
    let found = scrub(array, ScrubMode::Check).expect("it runs");
    assert_eq!((found.found(), found.compared), (0, found.rows));
}

fn last(array: &Array) -> LastScrub {
    array.engine.status().last_scrub.expect("a scrub ran")
}

/// Uuid, rows that are wrong and rows that are unreadable of each member with a finding.
fn by_member(last: &LastScrub) -> Vec<(u8, u32, u32)> {
    let lines = last.members().iter();
    let mut lines: Vec<_> = lines
        .map(|line| (line.member.0[0], line.wrong, line.unreadable))
        .collect();
    lines.sort_unstable();
    lines
}

fn images(array: &Array) -> Vec<Vec<u8>> {
    let data = (array.data_start() * SECTOR) as usize;
    let images = array.disks.iter();
    images.map(|disk| disk.image[data..].to_vec()).collect()
}

/// What a status says of a scrub, but for when it was.
fn counted(last: &LastScrub) -> LastScrub {
    let mut last = *last;
    (last.begun, last.ended) = (0, 0);
    last
}

/// Restarts behind a clean stop; the members live on.
fn restarted(array: &mut Array) {
    array.command(Command::Stop).expect("it stops");
    array.crash(|_| false);
    array.start().expect("it starts");
}

#[test]
fn rot_is_wrong_by_member_where_a_witness_tells_and_on_record_for_good() {
    each_member(|mut array, member, start, witness, what| {
        array.corrupt(member, start + 3);
        let before = images(&array);
        let found = scrub(&mut array, ScrubMode::Check).expect("it runs");
        assert_eq!((found.wrong, found.unreadable), (1, 0), "{what}: {found:?}");
        assert_eq!((found.left, found.found()), (1, 1), "{what}");
        assert_eq!(found.first_rows().len(), 1, "{what}");
        assert_eq!(found.compared, found.rows, "{what}");
        assert!(found.begun >= DATE && found.ended >= found.begun, "{what}");
        let culprit = match witness {
            true => vec![(member as u8 + 1, 1, 0)],
            false => vec![],
        };
        assert_eq!(by_member(&found), culprit, "{what}");
        assert!(images(&array) == before, "{what}: a check writes nothing");
        restarted(&mut array);
        assert_eq!(last(&array), found, "{what}: over a restart");
        array.crash(|_| false);
        array.start().expect("it starts");
        assert_eq!(last(&array), found, "{what}: over a crash");
    });
}

#[test]
fn what_has_no_second_witness_is_brought_in_sync_if_asked_for_and_never_called_repaired() {
    each_member(|mut array, member, start, witness, what| {
        array.corrupt(member, start + 3);
        let before = images(&array);
        let repair = scrub(&mut array, ScrubMode::Repair).expect("it runs");
        if witness {
            assert_eq!((repair.repaired, repair.found()), (1, 1), "{what}");
            assert_eq!(by_member(&repair), [(member as u8 + 1, 1, 0)], "{what}");
            array.verify();
            agrees(&mut array);
            return;
        }
        assert_eq!((repair.left, repair.found()), (1, 1), "{what}");
        assert!(images(&array) == before, "{what}: nothing is written");
        let sync = scrub(&mut array, ScrubMode::Sync).expect("it runs");
        assert_eq!((sync.in_sync, sync.found()), (1, 1), "{what}: {sync:?}");
        agrees(&mut array);
    });
}

#[test]
fn what_cannot_be_read_is_unreadable_by_member_and_repaired_as_it_was_written() {
    each_member(|mut array, member, start, _, what| {
        array.spoil(member, start + 3, 1);
        let check = scrub(&mut array, ScrubMode::Check).expect("it runs");
        assert_eq!((check.wrong, check.unreadable), (0, 1), "{what}: {check:?}");
        assert_eq!(by_member(&check), [(member as u8 + 1, 0, 1)], "{what}");
        assert_eq!((check.left, check.repaired), (1, 0), "{what}");
        let repair = scrub(&mut array, ScrubMode::Repair).expect("it runs");
        assert_eq!(
            (repair.repaired, repair.found()),
            (1, 1),
            "{what}: {repair:?}"
        );
        assert!(array.disks[usize::from(member)].bad.is_empty(), "{what}");
        array.verify();
    });
}

/// A block cannot be read, and another one of the same row is wrong. Without a second witness the first is repaired alone: its
/// finding counts as repaired, and the row as left.
#[test]
fn row_that_is_repaired_in_part_counts_once_and_as_left() {
    each_member(|mut array, member, start, witness, what| {
        array.spoil(member, start + 3, 1);
        array.corrupt(member, start + 11);
        let found = scrub(&mut array, ScrubMode::Repair).expect("it runs");
        assert_eq!((found.wrong, found.unreadable), (1, 1), "{what}");
        let rows = (found.repaired, found.left, found.found());
        assert_eq!(rows, (u64::from(witness), u64::from(!witness), 1), "{what}");
        assert!(array.disks[usize::from(member)].bad.is_empty(), "{what}");
        let cure_of = |unreadable| {
            array.facts.iter().find_map(|fact| match fact {
                Fact::Mismatch {
                    unreadable: it,
                    cure,
                    ..
                } if *it == unreadable => Some(*cure),
                _ => None,
            })
        };
        let wrong = match witness {
            true => Cure::Repaired,
            false => Cure::Left,
        };
        let cures = (cure_of(true), cure_of(false));
        assert_eq!(cures, (Some(Cure::Repaired), Some(wrong)), "{what}");
    });
}

/// Two rows with findings of different kinds and sizes are both on record, with their true size.
#[test]
fn each_finding_counts_with_its_size() {
    for setup in [raid6(5), raid1(3)] {
        let mut array = filled(&setup);
        let start = array.data_start();
        for sector in 0..8 {
            array.corrupt(1, start + sector);
        }
        array.spoil(2, start + 3 * CHUNK, 2);
        let found = scrub(&mut array, ScrubMode::Repair).expect("it runs");
        assert_eq!((found.wrong, found.unreadable), (1, 1), "{found:?}");
        assert_eq!(found.repaired, 2);
        assert_eq!(by_member(&found), [(2, 1, 0), (3, 0, 1)]);
        assert_eq!(found.sectors, 10, "blocks are sectors here");
        array.verify();
    }
}

/// After a thousand findings a scrub compares whole bands. Where the copies of a band have no majority, it still compares blocks: here
/// each block has one.
#[test]
fn copies_are_told_block_by_block_however_many_rows_disagreed_before() {
    for mode in [ScrubMode::Repair, ScrubMode::Sync] {
        let mut setup = raid1(3).info(|info| info.sectors = 32_768);
        setup.rows = 1_210;
        let mut array = filled(&setup);
        let start = array.data_start();
        for row in 0..1_005 {
            array.corrupt(2, start + row * CHUNK);
        }
        let last = start + 1_200 * CHUNK;
        array.corrupt(0, last + 3);
        array.corrupt(1, last + 7);
        let found = scrub(&mut array, mode).expect("it runs");
        assert_eq!((found.repaired, found.found()), (1_006, 1_006), "{found:?}");
        array.verify();
        agrees(&mut array);
    }
}

/// A scrub goes on with a record only: an older program clears the record and leaves the task.
#[test]
fn a_scrub_without_its_record_begins_anew() {
    let mut array = filled(&raid6(5));
    let at = array.data_start() + 3;
    array.corrupt(1, at);
    array.order(Command::Scrub(ScrubMode::Check));
    while last(&array).left == 0 {
        array.end_first(Ok(()));
        array.turn();
    }
    array.command(Command::Stop).expect("it stops");
    for disk in &mut array.disks {
        crate::ranges::forget_last_scrub(disk);
    }
    array.die();
    array.start().expect("it starts");
    array.run_tasks();
    let found = last(&array);
    assert_eq!((found.left, found.compared), (1, found.rows), "{found:?}");
}

#[test]
fn rows_that_were_never_written_are_told_apart() {
    let mut array = raid5(4).unwritten().start();
    array.written(0, CHUNK).expect("written");
    array.flushed();
    let found = scrub(&mut array, ScrubMode::Check).expect("it runs");
    assert_eq!(found.compared + found.unwritten, found.rows, "{found:?}");
    assert!(found.compared > 0 && found.unwritten > 0, "{found:?}");
}

#[test]
fn a_cancelled_scrub_is_on_record_as_far_as_it_came() {
    let mut setup = raid6(5).info(|info| info.sectors = 8192);
    setup.rows = 200;
    let mut array = filled(&setup);
    let at = array.data_start() + 3;
    array.corrupt(1, at);
    array.order(Command::Scrub(ScrubMode::Check));
    while last(&array).left == 0 {
        array.end_first(Ok(()));
        array.turn();
    }
    array.command(Command::Cancel).expect("it runs");
    array.run();
    let found = last(&array);
    assert_eq!(found.state, ScrubState::Cancelled);
    assert!(found.done < found.rows, "{found:?}");
    assert_eq!(by_member(&found), [(2, 1, 0)]);
    restarted(&mut array);
    assert_eq!(last(&array), found);
}

/// A scrub that is cut at any step goes on, and ends with the counters of one that was not.
#[test]
fn a_scrub_that_is_cut_counts_each_row_once() {
    let cuts: [fn(&mut Array); 3] = [
        |array| array.crash(|_| false),
        Array::die,
        |array| {
            array.command(Command::Stop).expect("it stops");
            array.die();
        },
    ];
    for setup in [raid6(5), raid1(2)] {
        let prepared = || {
            let mut array = filled(&setup);
            let start = array.data_start();
            array.corrupt(1, start + 3);
            array.spoil(0, start + 2 * CHUNK, 1);
            array.corrupt(0, start + 4 * CHUNK);
            array
        };
        let whole = counted(&scrub(&mut prepared(), ScrubMode::Check).expect("it runs"));
        for cut in cuts {
            for steps in 0.. {
                let mut array = prepared();
                array.order(Command::Scrub(ScrubMode::Check));
                if !steps_of(&mut array, steps) {
                    break;
                }
                cut(&mut array);
                array.command(Command::Date(DATE)).expect("a date");
                array.start().expect("it starts");
                // Nothing of it was on record.
                if array.engine.status().last_scrub.is_none() {
                    array.order(Command::Scrub(ScrubMode::Check));
                }
                array.run_tasks();
                assert_eq!(counted(&last(&array)), whole, "cut behind {steps} steps");
            }
        }
    }
}

/// Carries out this number of steps of a scrub. False: the scrub ended before them.
fn steps_of(array: &mut Array, steps: usize) -> bool {
    for _ in 0..steps {
        if array.held.is_empty() {
            array.pass(Nanos::from_millis(200));
        } else {
            array.end_first(Ok(()));
            array.turn();
        }
        if array.engine.status().tasks.is_empty() {
            return false;
        }
    }
    true
}

#[test]
fn the_end_of_a_scrub_is_told_once_and_by_its_result() {
    let mut array = filled(&raid6(5));
    let at = array.data_start() + 3;
    array.corrupt(1, at);
    array.facts.clear();
    let found = scrub(&mut array, ScrubMode::Check).expect("it runs");
    let told = array.facts.iter().filter_map(|fact| match fact {
        Fact::Scrubbed(last) => Some(**last),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [found]);
}

/// Members that are gone, or that are back, change nothing about what is on record of them.
#[test]
fn a_member_that_left_stays_on_record_with_its_findings() {
    let mut array = filled(&raid6(5));
    let at = array.data_start() + 3;
    array.corrupt(1, at);
    let found = scrub(&mut array, ScrubMode::Check).expect("it runs");
    array.command(Command::Fail(Member(1))).expect("it fails");
    array
        .command(Command::Remove(Member(1)))
        .expect("it leaves");
    array.command(Command::Stop).expect("it stops");
    array.crash(|_| false);
    let degraded = StartMode::default();
    array.take_out(1);
    array
        .command(Command::Start(degraded))
        .expect("one may be missing");
    assert_eq!(last(&array), found);
}

/// What is repaired is on record as soon as it is durable, not at the next checkpoint in passing.
#[test]
fn a_repair_is_on_record_before_time_passes() {
    each_member(|mut array, member, start, _, what| {
        array.spoil(member, start + 3, 1);
        array.facts.clear();
        array.order(Command::Scrub(ScrubMode::Repair));
        let repaired = |fact: &Fact| matches!(fact, Fact::Mismatch { .. });
        while !array.facts.iter().any(repaired) {
            array.end_first(Ok(()));
            array.turn();
        }
        array.order(Command::Pause(true));
        while !array.held.is_empty() {
            array.end_first(Ok(()));
            array.turn();
        }
        array.crash(|_| false);
        array.start().expect("it starts");
        assert_eq!(last(&array).repaired, 1, "{what}");
        if !array.engine.status().tasks.is_empty() {
            array.command(Command::Pause(false)).expect("it goes on");
        }
        array.run_tasks();
        let found = last(&array);
        assert_eq!((found.repaired, found.left), (1, 0), "{what}");
        assert_eq!(by_member(&found), [(member as u8 + 1, 0, 1)], "{what}");
    });
}
