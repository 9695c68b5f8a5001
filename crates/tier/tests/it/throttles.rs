//! Throttles by name, on arrays: a rebuild beside users who never rest, and beside none.

use crate::shell::{Array, raid5};
use restripe_array::report::Aim;
use restripe_array::{Command, Nanos, RequestOp, ScrubMode, TaskKind, TaskOutcome, Throttle};

/// A minimum of this many rows a second, each 8 KiB of a member.
const ROWS_A_SECOND: u64 = 16;
const ROWS: u64 = 480;

/// An array whose rebuild of slot 2 onto member 4 has just begun.
fn rebuilding(throttle: Throttle) -> Array {
    let mut setup = raid5(4).info(|info| info.sectors = 16384).spares(1);
    setup.rows = ROWS;
    let mut array = setup.start();
    array.command(Command::Throttle(throttle)).expect("taken");
    let rate = Command::Rate {
        min: ROWS_A_SECOND * 8192,
        max: u64::MAX,
    };
    array.command(rate).expect("taken");
    array.depart(2);
    // Superblocks come first; then the first windows are out.
    array.run_but("m4 write data");
    array
}

/// Seconds in which users read far more than md's 64 sectors of each member every tenth.
fn under_load(array: &mut Array, seconds: u64) {
    (0..10 * seconds).for_each(|_| under_load_for_a_tenth(array));
}

fn under_load_for_a_tenth(array: &mut Array) {
    let ask = |part: u64| array.request(RequestOp::Read, part * 16, 16);
    let reads: Vec<u64> = (0..40).map(ask).collect();
    array.run();
    for read in reads {
        assert_eq!(array.reply(read), Some(Ok(())));
    }
    array.pass(Nanos::from_millis(100));
}

fn rows_done(array: &Array) -> u64 {
    let status = array.engine.status();
    status.tasks.first().map_or(ROWS, |task| task.rows_done)
}

#[test]
fn under_steady_load_md_2_6_sinks_to_its_minimum() {
    let mut array = rebuilding(Throttle::Md26);
    under_load(&mut array, 20);
    let done = rows_done(&array);
    let least = 20 * ROWS_A_SECOND;
    // A test every 16 rows, and md's whole seconds.
    assert!(
        (least * 8 / 10..=least + 48).contains(&done),
        "{done} of {ROWS}"
    );
    array.pass(Nanos::from_secs(5));
    assert_eq!(rows_done(&array), ROWS, "alone it goes on at full speed");
    array.run_tasks();
    assert!(array.ended(TaskKind::Rebuild, TaskOutcome::Done));
    array.verify();
    array.consistent();
}

#[test]
fn under_the_same_load_the_others_do_not() {
    for throttle in [Throttle::Restripe, Throttle::Md61, Throttle::Md2025] {
        let mut array = rebuilding(throttle);
        under_load(&mut array, 2);
        assert_eq!(rows_done(&array), ROWS, "{throttle:?}");
        array.run_tasks();
        assert!(array.ended(TaskKind::Rebuild, TaskOutcome::Done));
    }
}

/// What a task of so many rows a second is told.
fn at_most(rows_a_second: u64) -> Command {
    Command::Rate {
        min: 0,
        max: rows_a_second * 8192,
    }
}

fn told(array: &Array) -> Option<u64> {
    array.engine.status().tasks[0].rate(array.now())
}

/// Rows a second, as a status tells them now.
fn rows_a_second(array: &Array) -> u64 {
    told(array).expect("it has gone for a while") / 8192
}

/// An array whose rebuild has gone for five seconds with these limits.
fn limited(rows_a_second: u64) -> Array {
    let mut array = rebuilding(Throttle::Restripe);
    array.command(at_most(rows_a_second)).expect("taken");
    array.pass(Nanos::from_secs(5));
    let done = rows_done(&array);
    let expected = 4 * rows_a_second..=6 * rows_a_second + 8;
    assert!(expected.contains(&done), "{done}");
    array
}

#[test]
fn a_lowered_rate_holds_at_once_and_nothing_stands_still() {
    let mut array = limited(64);
    let before = rows_done(&array);
    array.command(at_most(16)).expect("taken");
    for second in 1..=5 {
        array.pass(Nanos::from_secs(1));
        let done = rows_done(&array) - before;
        assert!(
            (second * 16 - 8..=second * 16 + 8).contains(&done),
            "{done} rows in {second} s"
        );
        let told = rows_a_second(&array);
        assert!((8..=24).contains(&told), "{told} after {second} s");
    }
}

#[test]
fn a_raised_rate_is_told_at_once() {
    let mut array = limited(8);
    array.command(at_most(64)).expect("taken");
    array.pass(Nanos::from_secs(1));
    let told = rows_a_second(&array);
    assert!((48..=72).contains(&told), "{told}");
}

#[test]
fn a_task_does_not_make_up_for_its_pause() {
    let mut array = limited(16);
    array.command(Command::Pause(true)).expect("a task runs");
    array.pass(Nanos::from_secs(60));
    let status = array.engine.status();
    assert_eq!(status.tasks[0].rate(array.now()), Some(0));
    assert_eq!(status.tasks[0].lasts(array.now()), None);
    let before = rows_done(&array);
    array.command(Command::Pause(false)).expect("a task runs");
    array.pass(Nanos::from_secs(1));
    let done = rows_done(&array) - before;
    assert!((8..=24).contains(&done), "{done}");
    let told = rows_a_second(&array);
    assert!((8..=24).contains(&told), "{told}");
}

/// A scrub that a rebuild has kept waiting is told apart from one that crawls.
#[test]
fn a_task_that_waits_for_another_has_no_rate_and_makes_up_for_nothing() {
    let mut setup = raid5(4).info(|info| info.sectors = 16384).spares(1);
    setup.rows = ROWS;
    let mut array = setup.start();
    array.command(at_most(16)).expect("taken");
    array
        .command(Command::Scrub(ScrubMode::Check))
        .expect("taken");
    array.pass(Nanos::from_secs(2));
    array.depart(2);
    array.run();
    array.pass(Nanos::from_secs(10));
    let status = array.engine.status();
    let of = |kind| status.tasks.iter().find(|task| task.kind == kind);
    let rate = |kind| of(kind).expect("it is there").rate(array.now());
    assert_eq!(rate(TaskKind::Check), Some(0));
    let rows = rate(TaskKind::Rebuild).expect("it has gone for a while") / 8192;
    assert!((8..=24).contains(&rows));
    while of_kind(&array, TaskKind::Rebuild).is_some() {
        array.pass(Nanos::from_millis(100));
    }
    let before = of_kind(&array, TaskKind::Check).expect("it is there");
    array.pass(Nanos::from_secs(1));
    let done = of_kind(&array, TaskKind::Check).expect("it is there") - before;
    assert!((8..=24).contains(&done), "{done}");
}

/// The rows that a task has done, if there is one of the kind.
fn of_kind(array: &Array, kind: TaskKind) -> Option<u64> {
    let status = array.engine.status();
    let task = status.tasks.iter().find(|task| task.kind == kind);
    task.map(|task| task.rows_done)
}

#[test]
fn a_rate_is_of_the_time_until_now() {
    let array = limited(64);
    let told = rows_a_second(&array);
    // Nothing is ended, so nothing happens.
    let later = array.now().after(Nanos::from_secs(5));
    let task = array.engine.status().tasks[0].clone();
    assert!(task.rate(later).expect("it is known") / 8192 <= told * 6 / 10);
    assert!(task.lasts(later) > task.lasts(array.now()));
}

#[test]
fn a_rebuild_is_done_by_its_time_and_not_long_before() {
    let within = Nanos::from_secs(20);
    let mut array = rebuilding(Throttle::Finish(within));
    let began = array.now();
    under_load(&mut array, 10);
    let half = rows_done(&array);
    assert!((220..=290).contains(&half), "{half} of {ROWS}");
    let aim = array.engine.status().tasks[0].aim;
    let Some(Aim::Finish { by, missed, .. }) = aim else {
        unreachable!("it is to finish: {aim:?}");
    };
    assert!(by.since(began) <= within && !missed, "{aim:?}");
    under_load(&mut array, 10);
    assert_eq!(rows_done(&array), ROWS);
    array.run_tasks();
    assert!(array.ended(TaskKind::Rebuild, TaskOutcome::Done));
    array.verify();
    array.consistent();
}

#[test]
fn an_end_that_the_maximum_forbids_is_told() {
    let mut array = rebuilding(Throttle::Finish(Nanos::from_secs(20)));
    array.command(at_most(16)).expect("taken");
    under_load(&mut array, 5);
    let aim = array.engine.status().tasks[0].aim;
    assert!(
        matches!(aim, Some(Aim::Finish { missed: true, .. })),
        "{aim:?}"
    );
}

/// Here members answer at once, so nobody is ever late.
#[test]
fn users_who_do_not_wait_let_a_rebuild_go_faster() {
    let goal = Throttle::latency(99, Nanos::from_millis(20)).expect("a share");
    let mut array = rebuilding(goal);
    under_load_for_a_tenth(&mut array);
    assert!(
        rows_done(&array) <= ROWS_A_SECOND,
        "it begins at its minimum"
    );
    (0..4).for_each(|_| under_load_for_a_tenth(&mut array));
    assert!(rows_done(&array) < ROWS, "and goes faster by and by");
    let aim = array.engine.status().tasks[0].aim;
    let Some(Aim::Latency {
        is, rate, missed, ..
    }) = aim
    else {
        unreachable!("it has a goal: {aim:?}");
    };
    assert!(is.is_some_and(|is| is < Nanos::from_millis(1)), "{aim:?}");
    assert!(!missed && rate > 2 * ROWS_A_SECOND * 8192, "{aim:?}");
    under_load(&mut array, 2);
    assert_eq!(rows_done(&array), ROWS);
    array.run_tasks();
    assert!(array.ended(TaskKind::Rebuild, TaskOutcome::Done));
}

#[test]
fn a_throttle_may_change_while_a_task_runs() {
    let mut array = rebuilding(Throttle::Md26);
    under_load(&mut array, 5);
    let done = rows_done(&array);
    assert!(done < ROWS / 2, "{done}");
    array
        .command(Command::Throttle(Throttle::Restripe))
        .expect("taken");
    under_load(&mut array, 2);
    assert_eq!(rows_done(&array), ROWS);
}

/// A rebuild that a start went on with ran at the usual rate until it was told another one.
#[test]
fn paces_said_before_a_start_hold_from_its_first_window() {
    let restarted = |pace: Option<Command>| {
        let mut array = rebuilding(Throttle::Restripe);
        array.crash(|_| true);
        if let Some(pace) = pace {
            array.command(pace).expect("taken before the start");
        }
        array.start().expect("it starts degraded");
        array
    };
    assert_eq!(rows_done(&restarted(None)), ROWS, "nothing holds it up");
    let mut array = restarted(Some(at_most(ROWS_A_SECOND)));
    assert_eq!(
        array.engine.status().tasks[0].pacing.rate_max,
        ROWS_A_SECOND * 8192
    );
    let done = rows_done(&array);
    assert!(done <= ROWS_A_SECOND, "{done} rows at once");
    array.pass(Nanos::from_secs(60));
    array.run_tasks();
    assert!(array.ended(TaskKind::Rebuild, TaskOutcome::Done));
    array.verify();
}

/// A start that is refused forgets what it had read, and not what it was told.
#[test]
fn paces_outlive_a_start_that_is_refused() {
    let mut array = rebuilding(Throttle::Restripe);
    array.crash(|_| true);
    let mine = array.disks[0].clone();
    array.disks[0].scribble_from(0);
    array.command(at_most(ROWS_A_SECOND)).expect("taken");
    array.start().expect_err("two are missing");
    array.disks[0] = mine;
    array.start().expect("one is missing");
    let done = rows_done(&array);
    assert!(done <= ROWS_A_SECOND, "{done} rows at once");
}

#[test]
fn a_rate_is_not_told_before_it_is_known() {
    let mut array = limited(64);
    array.command(Command::Pause(true)).expect("a task runs");
    array.command(Command::Pause(false)).expect("a task runs");
    array.pass(Nanos(400_000_000));
    let status = array.engine.status();
    assert_eq!(status.tasks[0].rate(array.now()), None);
    assert_eq!(status.tasks[0].lasts(array.now()), None);
    array.pass(Nanos(200_000_000));
    assert!(rows_a_second(&array) > 0);
}
