//! Growth that keeps the plain layout: every chunk moves, in windows by address, and users wait for their own window only.

use crate::shell::{Array, CHUNK, Setup};
use restripe_array::layout::{Geometry, Layout, Level, Rotation};
use restripe_array::{
    Command, CommandError, MemberInfo, Nanos, RequestOp, Row, StartMode, TaskKind, TaskOutcome,
};

fn levels() -> [(Level, u16, u16); 8] {
    [
        (Level::Raid0, 2, 1),
        (Level::Raid0, 3, 2),
        (Level::Raid4, 3, 1),
        (Level::Raid4, 3, 3),
        (Level::Raid5(Rotation::LeftSymmetric), 3, 1),
        (Level::Raid5(Rotation::RightAsymmetric), 4, 2),
        (Level::Raid6(Rotation::LeftSymmetric), 4, 1),
        (Level::Raid6(Rotation::ParityFirst), 5, 2),
    ]
}

fn plain(level: Level, slots: u16, spares: u16) -> Setup {
    let mut setup = Setup::new(level, slots).spares(spares.into());
    setup.rows = 12;
    setup
}

/// The next operation ends, or if there is none some time goes by.
fn go_on(array: &mut Array) {
    match array.held.is_empty() {
        true => array.pass(Nanos::from_millis(10)),
        false => array.end_first(Ok(())),
    }
}

/// Everything written, and flushed.
fn full(setup: Setup) -> Array {
    let mut array = setup.start();
    let size = array.layout.size_sectors();
    for lba in (0..size).step_by(24) {
        array.written(lba, 24.min(size - lba)).expect("written");
    }
    array.flushed();
    array
}

pub fn after(array: &Array, by: u16) -> Layout {
    let geometry = *array.layout.geometry();
    Layout::new(Geometry {
        slots: geometry.slots + by,
        ..geometry
    })
    .expect("it can have so many")
}

fn has_grown(array: &mut Array, after: Layout) {
    assert!(array.engine.status().tasks.is_empty());
    assert_eq!(array.engine.status().size_bytes, after.size_sectors() * 512);
    array.layout = after;
    array.model.resize(after.size_sectors() as usize * 512, 0);
    array.verify();
}

fn reshape(array: &mut Array, by: u16) {
    let after = after(array, by);
    array.command(Command::Reshape { by }).expect("it can");
    array.run_tasks();
    assert!(array.ended(TaskKind::Growth, TaskOutcome::Done));
    has_grown(array, after);
}

fn has_redundancy(array: &Array) -> bool {
    array.layout.tolerance() > 0
}

#[test]
fn an_array_takes_another_shape_and_another() {
    for (level, slots, by) in levels() {
        let mut array = full(plain(level, slots, by + 1));
        reshape(&mut array, by);
        if has_redundancy(&array) {
            array.consistent();
        }
        let size = array.layout.size_sectors();
        array.written(size - 40, 40).expect("new capacity");
        array.written(3, size - 7).expect("all of it");
        array.verify();
        reshape(&mut array, 1);
        let end = array.layout.size_sectors();
        array.written(size - 5, end - size).expect("old and new");
        array.flushed();
        array.crash(|_| false);
        array.start().expect("starts");
        array.verify();
        if has_redundancy(&array) {
            array.consistent();
            array.depart(0);
            array.verify();
        }
    }
}

/// What has taken another shape can grow by the least moves, and then no more the other way.
#[test]
fn an_array_grows_both_ways() {
    let mut array = full(plain(Level::Raid4, 3, 3));
    reshape(&mut array, 1);
    let size = array.layout.size_sectors();
    array.written(size / 2, 50).expect("new capacity");
    array.command(Command::Grow { by: 1 }).expect("it can");
    array.run_tasks();
    let geometry = array.engine.status().geometry.expect("it serves");
    let grown = Layout::new(geometry).expect("it serves by that");
    has_grown(&mut array, grown);
    let size = array.layout.size_sectors();
    array.written(size - 99, 99).expect("new capacity");
    array.flushed();
    array.crash(|_| false);
    array.start().expect("starts");
    array.verify();
    array.consistent();
    let again = array.command(Command::Reshape { by: 1 });
    assert!(matches!(again, Err(CommandError::Unsuited(_))));
}

/// Nothing is read or moved where nothing was written.
#[test]
fn what_was_never_written_is_not_moved() {
    for (level, slots, by) in levels() {
        let mut setup = plain(level, slots, by).unwritten();
        setup.rows = 40;
        let mut array = setup.info(|info| info.sectors = 4096).start();
        array.listing();
        let after = after(&array, by);
        array.order(Command::Reshape { by });
        array.run_tasks();
        let listing = array.listing();
        assert!(!listing.contains(" data+"), "{listing}");
        has_grown(&mut array, after);
        let size = array.layout.size_sectors();
        for lba in [0, size / 2, size - 9] {
            array.written(lba, 9).expect("written");
        }
        array.verify();
    }
}

/// Some extents are written, here and there, also while rows move.
#[test]
fn what_is_written_in_part_stays_so() {
    for (level, slots, by) in levels() {
        for first in 0..6 {
            let mut setup = plain(level, slots, by).unwritten();
            setup.rows = 24;
            let mut array = setup.info(|info| info.sectors = 4096).start();
            let size = array.layout.size_sectors();
            for lba in (first * 50..size).step_by(301) {
                array.written(lba, 7.min(size - lba)).expect("written");
            }
            let after = after(&array, by);
            array.order(Command::Reshape { by });
            let mut step = first * 7;
            while !array.engine.status().tasks.is_empty() || array.held.is_empty() {
                for _ in 0..9 {
                    if !array.held.is_empty() {
                        array.end_first(Ok(()));
                    }
                }
                step += 1;
                if step % 3 == 0 {
                    array.write(step * 37 % (size - 5), 5);
                }
                if array.held.is_empty() {
                    array.pass(Nanos::from_millis(100));
                }
                if step > 5000 {
                    panic!("no end: {:?}", array.labels());
                }
                if array.ended(TaskKind::Growth, TaskOutcome::Done) {
                    break;
                }
            }
            array.run_tasks();
            has_grown(&mut array, after);
            if has_redundancy(&array) {
                array.consistent();
            }
        }
    }
}

/// Power is cut after one operation in seven, with all that was cached kept, or nothing.
#[test]
fn a_reshape_goes_on_after_any_crash() {
    for (nth, (level, slots, by)) in levels().into_iter().enumerate() {
        for kept in [true, false] {
            for step in (nth % 7..).step_by(7) {
                let mut array = full(plain(level, slots, by));
                let after = after(&array, by);
                array.order(Command::Reshape { by });
                let mut ended = false;
                for _ in 0..step {
                    ended = array.ended(TaskKind::Growth, TaskOutcome::Done);
                    if ended {
                        break;
                    }
                    go_on(&mut array);
                }
                array.crash(|_| kept);
                array.start().expect("starts");
                array.verify();
                array.run_tasks();
                if array.engine.status().size_bytes == array.layout.size_sectors() * 512 {
                    // The command was not on record.
                    array.verify();
                    array.command(Command::Reshape { by }).expect("again");
                    array.run_tasks();
                }
                has_grown(&mut array, after);
                if has_redundancy(&array) {
                    array.consistent();
                }
                if ended {
                    break;
                }
            }
        }
    }
}

/// A start that writes nothing finds everything, also what lies in the journal alone.
#[test]
fn a_start_that_only_reads_finds_everything() {
    let reading = StartMode {
        read_only: true,
        ..StartMode::default()
    };
    for (level, slots, by) in levels() {
        for step in (0..).step_by(5) {
            let mut array = full(plain(level, slots, by));
            array.order(Command::Reshape { by });
            let mut ended = false;
            for _ in 0..step {
                ended = array.ended(TaskKind::Growth, TaskOutcome::Done);
                if !ended {
                    go_on(&mut array);
                }
            }
            array.crash(|label| label.len() % 2 == 0);
            array.command(Command::Start(reading)).expect("it reads");
            array.verify();
            if ended {
                break;
            }
        }
    }
}

/// And one member is gone with the power, whichever it is; what it held is rebuilt, and the reshape goes on.
#[test]
fn a_reshape_goes_on_after_a_crash_that_takes_a_member() {
    for (level, slots, by) in levels() {
        if level == Level::Raid0 {
            continue;
        }
        for step in (0..).step_by(5) {
            let gone = step / 5 % usize::from(slots + by);
            let mut array = full(plain(level, slots, by));
            let after = after(&array, by);
            array.order(Command::Reshape { by });
            let mut ended = false;
            for _ in 0..step {
                ended = array.ended(TaskKind::Growth, TaskOutcome::Done);
                if ended {
                    break;
                }
                go_on(&mut array);
            }
            array.crash_without(&[gone], |label| (step + label.len()) % 2 == 0);
            array.start().expect("starts");
            array.verify();
            let size = array.layout.size_sectors();
            for lba in (0..size - 5).step_by(97) {
                array.written(lba, 5).expect("degraded");
            }
            array.verify();
            let on_record = !array.engine.status().tasks.is_empty();
            let info = MemberInfo {
                sectors: 1024,
                logical_block: 512,
                trim_zeroes: true,
                fast_zero: true,
                volatile: false,
            };
            let spare = array.arrive(info);
            array.command(Command::Add(spare)).expect("it fits");
            array.run_tasks();
            if on_record || ended {
                has_grown(&mut array, after);
            }
            array.verify();
            array.consistent();
            if ended {
                break;
            }
        }
    }
}

fn half_way(level: Level, slots: u16, by: u16) -> (Array, Layout) {
    let mut setup = plain(level, slots, by);
    setup.rows = 80;
    let mut array = full(setup.info(|info| info.sectors = 4096));
    let after = after(&array, by);
    array.order(Command::Reshape { by });
    while rows_done(&array) < 30 {
        go_on(&mut array);
    }
    (array, after)
}

fn rows_done(array: &Array) -> u64 {
    array
        .engine
        .status()
        .tasks
        .first()
        .map_or(80, |task| task.rows_done)
}

/// In front of the window, in it and behind it: whoever wants the window's data waits, and nobody else.
#[test]
fn users_wait_for_their_own_window_only() {
    for (level, slots, by) in levels() {
        let (mut array, after) = half_way(level, slots, by);
        while !array.mentions("read data") {
            go_on(&mut array);
        }
        let row = array.layout.row_sectors();
        let edge = rows_done(&array) * after.row_sectors();
        let size = array.layout.size_sectors();
        let early = array.request(RequestOp::Read, edge - 2 * row, 9);
        let late = array.request(RequestOp::Read, size - 9, 9);
        let within = array.request(RequestOp::Read, edge, 9);
        let across = array.write(edge - 3, 7);
        for _ in 0..400 {
            if array.reply(early).is_some() && array.reply(late).is_some() {
                break;
            }
            assert_eq!(array.reply(within), None);
            go_on(&mut array);
        }
        assert!(array.brought(early, edge - 2 * row) && array.brought(late, size - 9));
        array.run();
        array.pass(Nanos::from_millis(10));
        assert_eq!(array.reply(within), Some(Ok(())));
        assert_eq!(array.reply(across), Some(Ok(())));
        array.run_tasks();
        has_grown(&mut array, after);
        if has_redundancy(&array) {
            array.consistent();
        }
    }
}

/// Whichever it is, in the middle of a window: the reshape stands until it is rebuilt, and goes on.
#[test]
fn a_member_lost_half_way_is_rebuilt_and_the_reshape_goes_on() {
    for (level, slots, by) in levels() {
        if level == Level::Raid0 {
            continue;
        }
        for gone in 0..slots + by {
            let (mut array, after) = half_way(level, slots, by);
            for _ in 0..gone * 5 {
                go_on(&mut array);
            }
            array.depart(gone);
            array.run();
            array.pass(Nanos::from_secs(3));
            let done = rows_done(&array);
            assert!(done < 80, "it stands while somebody is missing");
            array.verify();
            for row in (0..80).step_by(3) {
                let lba = array.layout.lba(Row(row), 1, 2);
                array.written(lba, 9).expect("degraded");
            }
            array.verify();
            array.flushed();
            array.crash(|_| false);
            let blank = array.take_out(gone.into());
            array.start().expect("starts without it");
            array.verify();
            drop(blank);
            let info = MemberInfo {
                sectors: 4096,
                logical_block: 512,
                trim_zeroes: true,
                fast_zero: true,
                volatile: false,
            };
            let spare = array.arrive(info);
            array.command(Command::Add(spare)).expect("it fits");
            array.run_tasks();
            has_grown(&mut array, after);
            array.consistent();
        }
    }
}

/// What cannot be read is recovered, and what cannot be recovered is lost, and nothing else.
#[test]
fn what_is_lost_where_it_stood_is_told_and_the_rest_moves() {
    for (level, slots, by) in levels() {
        let tolerance = plain(level, slots, by).start().layout.tolerance();
        for row in [0, 5] {
            let mut array = full(plain(level, slots, by));
            let after = after(&array, by);
            let lba = array.layout.lba(Row(row), 0, 5);
            let map = array.layout.row(Row(row));
            let mut lost = vec![];
            for (index, cell) in map.cells().iter().enumerate() {
                if index <= usize::from(tolerance) {
                    let at = array.data_start() + cell.at + 5;
                    array.spoil(cell.slot.0, at, 1);
                    if index < usize::from(map.data) {
                        lost.push(lba + index as u64 * CHUNK);
                    }
                }
            }
            let last = *lost.last().expect("some");
            array.command(Command::Reshape { by }).expect("it can");
            array.run_tasks();
            let told: Vec<(u64, u64)> = lost.iter().map(|lba| (*lba, 1)).collect();
            assert_eq!(array.engine.status().lost, told, "{level:?}");
            for lba in lost {
                assert!(array.read(lba, 1).is_err());
                array.written(lba, 1).expect("written anew");
            }
            has_grown(&mut array, after);
            assert!(array.read(last, 1).is_ok());
            if has_redundancy(&array) {
                array.consistent();
            }
        }
    }
}

/// A stop in the middle of anything leaves an array that starts and goes on.
#[test]
fn a_stop_ends_the_window_and_a_start_goes_on() {
    for (level, slots, by) in levels() {
        for step in (0..400).step_by(31) {
            let mut array = full(plain(level, slots, by));
            let after = after(&array, by);
            array.order(Command::Reshape { by });
            for _ in 0..step {
                if !array.held.is_empty() {
                    array.end_first(Ok(()));
                }
            }
            let write = array.write(20, 30);
            let stop = array.order(Command::Stop);
            array.run();
            array.pass(Nanos::from_millis(10));
            assert_eq!(array.answer(stop), Some(Ok(())), "{level:?} {step}");
            assert_eq!(array.reply(write), Some(Ok(())));
            array.crash(|_| false);
            array.start().expect("starts");
            array.verify();
            array.run_tasks();
            has_grown(&mut array, after);
        }
    }
}

#[test]
fn what_is_not_reshaped_says_why() {
    let refused = |array: &mut Array, by, why: &str| {
        let answer = array.command(Command::Reshape { by });
        let Err(CommandError::Busy(reason) | CommandError::Unsuited(reason)) = answer else {
            panic!("{answer:?}");
        };
        assert!(reason.contains(why), "{reason}");
        array.verify();
    };
    let raid5 = Level::Raid5(Default::default());
    let mut mirrored = full(Setup::new(Level::Raid1, 2).spares(1));
    refused(&mut mirrored, 1, "level 1 and 10");
    let bitmap = plain(raid5, 3, 1).hole(restripe_array::meta::WriteHole::Bitmap);
    refused(&mut full(bitmap), 1, "partial parity log");
    let mut grown = full(crate::shell::grown4(&[2, 3]).spares(1));
    refused(&mut grown, 1, "least moves");
    let mut array = full(plain(raid5, 3, 1));
    refused(&mut array, 2, "too few spares");
    refused(&mut array, 0, "at least one new member");
    refused(&mut array, 31, "maximum number of members");
    let mut wide = full(plain(raid5, 3, 1).chunk(256));
    refused(&mut wide, 1, "smaller than a chunk");
    array.depart(0);
    array.run_tasks();
    array.depart(1);
    refused(&mut array, 1, "degraded");
}
