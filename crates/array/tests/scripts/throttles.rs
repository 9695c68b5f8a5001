//! Throttles by name, on arrays: a rebuild beside users who never rest, and beside none.

use crate::shell::{Array, raid5};
use restripe_array::{Command, Nanos, RequestOp, TaskKind, TaskOutcome, Throttle};

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
    for _ in 0..10 * seconds {
        let ask = |part: u64| array.request(RequestOp::Read, part * 16, 16);
        let reads: Vec<u64> = (0..40).map(ask).collect();
        array.run();
        for read in reads {
            assert_eq!(array.reply(read), Some(Ok(())));
        }
        array.pass(Nanos::from_millis(100));
    }
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
