//! Tasks: replace, pause, checkpoint and restart, cancel, rates.

use crate::shell::{Array, CHUNK, Setup, raid1, raid5, raid6};
use restripe_array::layout::Role;
use restripe_array::meta::{Init, WriteHole};
use restripe_array::report::{ArrayState, MemberState};
use restripe_array::{
    Command, CommandError, IoError, Member, Nanos, RequestOp, ScrubMode, StartMode, TaskKind,
    TaskOutcome,
};
use std::ops::Range;

/// Enough for a rebuild of eight rows a second to last.
const ROWS: u64 = 160;

/// An array with data whose rebuild of slot 2 onto member 4 is under way, slowed to a row a wake-up or so.
fn rebuilding() -> Array {
    let mut setup = raid5(4).info(|info| info.sectors = 8192).spares(1);
    setup.rows = ROWS;
    let mut array = setup.start();
    array.written(0, 16 * 48).expect("written");
    array.flushed();
    array
        .command(Command::Rate { min: 1, max: 65536 })
        .expect("rates are taken");
    array.depart(2);
    array.run();
    array
}

fn rows_done(array: &Array) -> u64 {
    array
        .engine
        .status()
        .tasks
        .first()
        .map_or(0, |task| task.rows_done)
}

#[test]
fn replace_copies_and_retires_the_old() {
    let mut array = raid5(4).spares(1).start();
    array.written(0, 100).expect("written");
    let replace = Command::Replace {
        old: Member(1),
        new: Member(4),
    };
    array.command(replace).expect("accepted");
    array.run_tasks();
    assert!(array.ended(TaskKind::Replace, TaskOutcome::Done));
    let status = array.engine.status();
    assert_eq!(status.state, ArrayState::Healthy);
    assert_eq!(status.members[1].state, MemberState::Failed);
    assert_eq!(status.members[4].slot, Some(1));
    array.verify();
    array.consistent();
}

#[test]
fn replace_copies_without_asking_the_others() {
    let mut array = raid5(4).spares(1).start();
    array.written(0, 48).expect("written");
    array.listing();
    let replace = Command::Replace {
        old: Member(1),
        new: Member(4),
    };
    array.command(replace).expect("accepted");
    array.run_tasks();
    let listing = array.listing();
    let others = ["m0 read", "m2 read", "m3 read"];
    assert!(
        others.iter().all(|other| !listing.contains(other)),
        "{listing}"
    );
}

#[test]
fn a_replace_whose_old_member_goes_becomes_a_rebuild() {
    let mut array = raid5(4).spares(1).start();
    array.written(0, 100).expect("written");
    array.order(Command::Replace {
        old: Member(1),
        new: Member(4),
    });
    array.run_but("m4 write data");
    array.depart(1);
    array.run_tasks();
    assert!(array.ended(TaskKind::Rebuild, TaskOutcome::Done));
    array.verify();
    array.consistent();
}

#[test]
fn writes_during_a_replace_reach_both() {
    let mut array = raid1(2).spares(1).start();
    array.written(0, 100).expect("written");
    array.order(Command::Replace {
        old: Member(0),
        new: Member(2),
    });
    array.run_but("m2 write data");
    array.write(0, 8);
    array.write(100, 20);
    array.run_tasks();
    array.verify();
    array.consistent();
}

#[test]
fn a_paused_task_stands_still_until_it_goes_on() {
    let mut array = rebuilding();
    array.command(Command::Pause(true)).expect("a task runs");
    let done = rows_done(&array);
    array.pass(Nanos::from_secs(20));
    assert_eq!(rows_done(&array), done);
    assert!(array.engine.status().tasks[0].paused);
    array.command(Command::Pause(false)).expect("a task runs");
    array.run_tasks();
    array.verify();
    array.consistent();
}

#[test]
fn a_paused_task_is_still_paused_after_a_restart() {
    let mut array = rebuilding();
    array.command(Command::Pause(true)).expect("a task runs");
    array.crash(|_| false);
    array.start().expect("starts");
    array.pass(Nanos::from_secs(5));
    assert!(array.engine.status().tasks[0].paused);
    array.command(Command::Pause(false)).expect("a task runs");
    array.run_tasks();
    array.verify();
    array.consistent();
}

#[test]
fn nothing_to_pause_is_an_error() {
    let mut array = raid5(4).start();
    let paused = array.command(Command::Pause(true));
    assert!(matches!(paused, Err(CommandError::Busy(_))));
}

#[test]
fn a_rate_limits_a_rebuild() {
    let mut array = rebuilding();
    let before = rows_done(&array);
    array.pass(Nanos::from_secs(1));
    assert!(rows_done(&array) < ROWS, "rows of 8 KiB at 64 KiB a second");
    array.pass(Nanos::from_secs(5));
    assert!(rows_done(&array) > before);
}

#[test]
fn a_restart_goes_on_from_the_durable_done_set() {
    let mut array = rebuilding();
    array.pass(Nanos::from_secs(12));
    let done = rows_done(&array);
    assert!(done > 0 && done < ROWS, "{done}");
    array.crash(|_| false);
    array.start().expect("starts");
    array.run_tasks();
    let filled = array.peek().matches("m4 write data+").count() as u64;
    assert!(
        (ROWS - done..ROWS).contains(&filled),
        "{done} of {ROWS} were done, then {filled}"
    );
    array.verify();
    array.consistent();
}

#[test]
fn rows_done_but_not_checkpointed_are_done_again() {
    let mut array = raid5(4).spares(1).start();
    array.written(0, 300).expect("written");
    array.flushed();
    array.depart(2);
    array.run_but("m4 write data+112");
    array.crash(|_| false);
    array.start().expect("starts");
    array.run_tasks();
    assert!(array.ended(TaskKind::Rebuild, TaskOutcome::Done));
    array.verify();
    array.consistent();
}

#[test]
fn a_task_ends_with_its_own_flush_and_not_with_an_earlier_one() {
    let mut array = raid5(4).spares(1).start();
    array
        .written(0, array.layout.size_sectors())
        .expect("written");
    array.flushed();
    array.depart(1);
    array.run_but("m4 write data");
    array.wait(Nanos::from_secs(20));
    array.complete("m4 write data");
    array.run_but("m4");
    assert!(array.holds("m4 flush"), "{:?}", array.labels());
    // Everything else is filled while that checkpoint's flush is out: it does not cover it.
    array.run_but("m4 flush");
    array.complete("m4 flush");
    array.run_but("m4 flush");
    assert!(array.holds("m4 flush"), "{:?}", array.labels());
    let rebuilding = |array: &Array| {
        let line = &array.engine.status().members[4];
        line.state == MemberState::Rebuilding
    };
    assert!(rebuilding(&array));
    array.run_tasks();
    assert!(array.ended(TaskKind::Rebuild, TaskOutcome::Done));
    array.consistent();
}

#[test]
fn the_new_member_is_flushed_before_it_is_current() {
    let mut array = raid5(4).spares(1).start();
    array.written(0, 300).expect("written");
    array.depart(2);
    array.run_but("m4 flush");
    assert!(array.holds("m4 flush"), "{:?}", array.labels());
    assert_eq!(array.engine.status().state, ArrayState::Degraded);
    array.run_tasks();
    assert_eq!(array.engine.status().state, ArrayState::Healthy);
}

#[test]
fn a_finished_rebuild_survives_a_crash() {
    let mut array = raid5(4).spares(1).start();
    array.written(0, 300).expect("written");
    array.flushed();
    array.depart(2);
    array.run_tasks();
    array.crash_without(&[0], |_| false);
    array.start().expect("starts without m0");
    array.verify();
}

#[test]
fn a_cancelled_scrub_ends() {
    let mut array = raid5(4).start();
    array.order(Command::Scrub(ScrubMode::Check));
    array.run_but("data+");
    array.command(Command::Cancel).expect("a scrub runs");
    assert!(array.ended(TaskKind::Check, TaskOutcome::Cancelled));
    array.run();
    assert!(array.engine.status().tasks.is_empty());
    assert!(matches!(
        array.command(Command::Cancel),
        Err(CommandError::Busy(_))
    ));
}

#[test]
fn only_one_scrub_runs() {
    let mut array = raid5(4).start();
    array.order(Command::Scrub(ScrubMode::Check));
    let second = array.order(Command::Scrub(ScrubMode::Sync));
    assert!(matches!(
        array.answer(second),
        Some(Err(CommandError::Busy(_)))
    ));
}

#[test]
fn a_rebuild_goes_before_a_scrub() {
    let mut array = raid5(4).spares(1).start();
    array.written(0, 300).expect("written");
    array.order(Command::Scrub(ScrubMode::Check));
    array.run_but("read data");
    array.depart(2);
    array.run_tasks();
    assert!(array.ended(TaskKind::Rebuild, TaskOutcome::Done));
    assert!(array.ended(TaskKind::Check, TaskOutcome::Done));
    array.verify();
}

#[test]
fn what_is_written_ahead_of_a_resynchronisation_survives_a_failure() {
    let (row, setup) = (100, raid5(4).hole(WriteHole::Bitmap));
    let mut setup = setup.info(|info| info.sectors = 8192);
    setup.rows = ROWS;
    setup.options.init = Init::Sync;
    let mut array = setup.made();
    let start = array.order(Command::Start(StartMode::default()));
    while array.answer(start).is_none() {
        array.end_at(0);
    }
    // A row far ahead: everything else waits.
    let (lba, place) = (row * 3 * CHUNK, format!("data+{} ", row * CHUNK));
    let write = array.write(lba, 8);
    while array.reply(write).is_none() {
        array.run_only(&place);
        array.run_but("data+");
    }
    array.depart(array.home(lba).0);
    array.run_but("data+");
    let read = array.request(RequestOp::Read, lba, 8);
    array.run_only(&place);
    assert_eq!(array.reply(read), Some(Ok(())));
}

/// A parity array whose members hold what they happened to, to be brought in step as it serves.
fn out_of_step(hole: WriteHole) -> Array {
    out_of_step_in(raid5(4).hole(hole), 0..8)
}

/// One that is so in these rows, and holds zeros elsewhere.
fn out_of_step_in(mut setup: Setup, rows: Range<u64>) -> Array {
    setup.options.init = Init::Sync;
    let mut array = setup.made();
    let data = array.data_start();
    for (member, disk) in array.disks.iter_mut().enumerate() {
        for sector in rows.start * CHUNK..rows.end * CHUNK {
            let seed = (sector as usize * 7 + member * 31) as u8;
            disk.forge(data + sector, &[seed; 512]);
        }
    }
    array
}

const HOLES: [WriteHole; 3] = [WriteHole::Ppl, WriteHole::Bitmap, WriteHole::None];

/// What a resynchronisation wrote to a member that then fails the flush is not there when the member comes back.
#[test]
fn a_member_that_failed_a_checkpoint_lacks_what_was_resynchronised() {
    for hole in HOLES {
        let mut array = out_of_step(hole);
        let start = array.order(Command::Start(StartMode::default()));
        array.run_but("m3 flush");
        array.complete_held("m3 flush"); // The start's own.
        array.run_but("m3 flush");
        array.wait(Nanos::from_secs(20));
        array.run_but("m3 flush");
        assert_eq!(array.answer(start), Some(Ok(())), "{:?}", array.labels());
        array.fail("m3 flush", IoError::Other(5));
        array.run_tasks();
        array.command(Command::Stop).expect("it stops");
        array.crash(|_| false);
        array.start().expect("one may be missing");
        array.command(Command::Add(Member(3))).expect("it is back");
        array.run_tasks();
        array.consistent();
    }
}

/// Nor is what was resynchronised while it was away.
#[test]
fn a_member_that_was_away_lacks_what_was_resynchronised() {
    for hole in HOLES {
        let mut array = out_of_step(hole);
        let away = array.take_out(3);
        let forced = StartMode {
            accept_loss: true,
            ..StartMode::default()
        };
        array
            .command(Command::Start(forced))
            .expect("one may be missing");
        array.run_tasks();
        array.command(Command::Stop).expect("it stops");
        array.crash(|_| false);
        array.put_back(3, away);
        array.start().expect("a whole array starts");
        array.command(Command::Add(Member(3))).expect("it is back");
        array.run_tasks();
        array.consistent();
    }
}

/// How many cells the resynchronisation of a new array wrote, which is in step then.
fn cells_written(array: &mut Array) -> usize {
    array.listing();
    array.start().expect("a whole array starts");
    array.run_tasks();
    let listing = array.listing();
    array.consistent();
    let writes = listing.lines().filter(|line| line.contains("write data+"));
    writes.count()
}

/// Sixty rows of four members.
fn sixty_rows() -> Setup {
    let mut setup = raid5(4).hole(WriteHole::None);
    setup = setup.info(|info| info.sectors = 4096);
    setup.rows = 60;
    setup
}

#[test]
fn a_resynchronisation_writes_only_parity_that_differs() {
    assert_eq!(cells_written(&mut out_of_step_in(sixty_rows(), 59..60)), 1);
    assert_eq!(cells_written(&mut out_of_step_in(sixty_rows(), 0..0)), 0);
}

/// Of two parities each speaks for itself.
#[test]
fn a_resynchronisation_writes_the_one_of_two_parities_that_differs() {
    let mut setup = raid6(5).hole(WriteHole::None);
    setup.options.init = Init::Sync;
    let mut array = setup.made();
    let (row, data) = (3, array.data_start());
    let member = array.slot_of(row, Role::Q);
    array.corrupt(member, data + row * CHUNK);
    assert_eq!(cells_written(&mut array), 1);
}

/// Behind a row that differs it does not look before it writes.
#[test]
fn a_resynchronisation_of_what_was_never_in_step_writes_unseen() {
    let mut array = out_of_step_in(sixty_rows(), 0..1);
    let written = cells_written(&mut array);
    assert!((30..60).contains(&written), "{written}");
}

#[test]
fn a_resynchronisation_writes_parity_that_it_cannot_read() {
    let mut array = out_of_step_in(sixty_rows(), 0..0);
    let (row, data) = (7, array.data_start());
    let member = array.slot_of(row, Role::P);
    array.spoil(member, data + row * CHUNK + 3, 1);
    assert_eq!(cells_written(&mut array), 1);
    assert!(!array.failed(member));
}

/// A row takes hours at this pace; when the last one is done there is nothing to wait for.
#[test]
fn a_task_that_has_done_all_rows_waits_for_no_pace() {
    let mut setup = sixty_rows();
    setup.rows = 1;
    let mut array = out_of_step_in(setup, 0..1);
    let slow = Command::Rate { min: 1, max: 1 };
    array.order(slow);
    array.start().expect("a whole array starts");
    array.run();
    assert!(array.ended(TaskKind::Resync, TaskOutcome::Done));
}
