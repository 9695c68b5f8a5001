//! Orders by name: which zones a rebuild comes to first, and that it comes to all.

use crate::shell::{Array, CHUNK, raid5};
use restripe_array::{
    Command, HeatLimits, Nanos, Order, RequestOp, ScrubMode, TaskKind, TaskOutcome,
};

const ROWS: u64 = 160;
const ZONE_ROWS: u64 = 4;
/// With three data cells a row.
const ZONE: u64 = ZONE_ROWS * 3 * CHUNK;
/// Windows that half of the large buffers hold.
const BUFFERED: usize = 14;
const FILLING: &str = "m4 write data";

/// A whole array of forty zones and a spare.
fn whole(order: Order) -> Array {
    zoned(order, ZONE)
}

fn zoned(order: Order, zone_sectors: u64) -> Array {
    let mut setup = raid5(4).info(|info| info.sectors = 8192).spares(1);
    setup.rows = ROWS;
    setup.heat = HeatLimits {
        zone_sectors,
        epoch: Nanos::from_secs(600),
    };
    let mut array = setup.start();
    array.command(Command::Order(order)).expect("taken");
    array
}

fn read_zone(array: &mut Array, zone: u64, times: u64) {
    for _ in 0..times {
        let read = array.request(RequestOp::Read, zone * ZONE + 20, 8);
        array.run_but(FILLING);
        assert_eq!(array.reply(read), Some(Ok(())));
    }
}

/// A member is lost: the first windows are read and recovered, and about to be written to the spare.
fn lose_a_member(array: &mut Array) {
    array.depart(2);
    array.run_but(FILLING);
}

/// Ends the windows that are out, and lets the next get so far.
fn next_windows(array: &mut Array) {
    array.complete_held(FILLING);
    array.run_but(FILLING);
}

/// The zones of the windows that are out, as they follow on each other.
fn zones_out(array: &Array) -> Vec<u64> {
    let zone = |label: &&str| -> Option<u64> {
        let at = label.strip_prefix(FILLING)?.strip_prefix('+')?;
        let at: u64 = at.split(' ').next()?.parse().ok()?;
        Some(at / CHUNK / ZONE_ROWS)
    };
    let mut zones: Vec<u64> = array.labels().iter().filter_map(zone).collect();
    zones.dedup();
    zones
}

/// Windows that are out.
fn rows_out(array: &Array) -> usize {
    let labels = array.labels();
    labels.iter().filter(|l| l.starts_with(FILLING)).count()
}

fn finish(mut array: Array) {
    array.run_tasks();
    assert!(array.ended(TaskKind::Rebuild, TaskOutcome::Done));
    array.verify();
    array.consistent();
}

#[test]
fn ido_begins_with_what_was_read_before() {
    let mut array = whole(Order::Ido);
    read_zone(&mut array, 30, 5);
    read_zone(&mut array, 10, 9);
    lose_a_member(&mut array);
    assert_eq!(zones_out(&array), [10, 30, 0, 1]);
    finish(array);
}

#[test]
fn pro_turns_to_what_is_read_meanwhile() {
    let mut array = whole(Order::Pro);
    read_zone(&mut array, 30, 5);
    lose_a_member(&mut array);
    assert_eq!(
        zones_out(&array),
        [0, 1, 2, 3],
        "nothing is known of what was before"
    );
    read_zone(&mut array, 20, 2);
    next_windows(&mut array);
    assert_eq!(zones_out(&array), [20, 3, 4, 5]);
    finish(array);
}

#[test]
fn an_order_given_meanwhile_counts_from_then_on() {
    let mut array = whole(Order::Pr);
    read_zone(&mut array, 30, 5);
    lose_a_member(&mut array);
    assert_eq!(zones_out(&array), [0, 1, 2, 3]);
    array.order(Command::Order(Order::Ido));
    next_windows(&mut array);
    assert_eq!(zones_out(&array), [30, 3, 4, 5]);
    finish(array);
}

/// What was read is not known after a restart; what was rebuilt and checkpointed is.
#[test]
fn a_restart_among_hot_zones_rebuilds_the_rest() {
    let mut array = whole(Order::Ido);
    for zone in [30, 10, 25] {
        read_zone(&mut array, zone, 1);
    }
    array.written(0, 48).expect("written");
    array.flushed();
    lose_a_member(&mut array);
    assert_eq!(zones_out(&array), [10, 25, 30, 0]);
    next_windows(&mut array);
    array.crash(|_| false);
    array.start().expect("it starts degraded");
    finish(array);
}

/// Rows in more pieces than a superblock has room for: what was once on record stays there.
#[test]
fn pieces_without_number_are_bounded_and_survive_restarts() {
    let mut array = zoned(Order::Ido, ZONE / ZONE_ROWS);
    array.written(0, 160).expect("written");
    array.flushed();
    lose_a_member(&mut array);
    array.order(Command::Order(Order::Pro));
    for row in (0..ROWS).rev().step_by(2) {
        let read = array.request(RequestOp::Read, row * ZONE / ZONE_ROWS, 8);
        array.run_but(FILLING);
        assert_eq!(array.reply(read), Some(Ok(())));
    }
    for _ in 0..6 {
        next_windows(&mut array);
        array.wait(Nanos::from_secs(1));
        array.run_but(FILLING);
    }
    let rows_done = array.engine.status().tasks[0].rows_done;
    assert!((40..ROWS).contains(&rows_done), "{rows_done}");
    array.crash(|_| false);
    array.start().expect("it starts degraded");
    array.verify();
    finish(array);
}

#[test]
fn sor_has_one_row_under_way_and_dor_what_buffers_allow() {
    let mut array = whole(Order::Sor);
    lose_a_member(&mut array);
    assert_eq!(rows_out(&array), 1);
    next_windows(&mut array);
    assert_eq!(rows_out(&array), 1);
    array.order(Command::Order(Order::Dor));
    next_windows(&mut array);
    assert_eq!(rows_out(&array), BUFFERED);
    array.order(Command::Order(Order::Sor));
    next_windows(&mut array);
    assert_eq!(rows_out(&array), 1, "what was out is done first");
    finish(array);
}

/// A batch is brought to its end while users are active: there members wait for each other.
#[test]
fn dor_fills_what_a_done_row_leaves_and_pr_does_not() {
    for (order, out) in [(Order::Pr, BUFFERED - 1), (Order::Dor, BUFFERED)] {
        let mut array = whole(order);
        let rate = Command::Rate {
            min: 0,
            max: u64::MAX,
        };
        array.command(rate).expect("taken");
        lose_a_member(&mut array);
        read_zone(&mut array, 0, 1);
        next_windows(&mut array);
        assert_eq!(rows_out(&array), BUFFERED, "{order:?}");
        array.complete(FILLING);
        array.run_but(FILLING);
        assert_eq!(rows_out(&array), out, "{order:?}");
        finish(array);
    }
}

/// Reads a row of a zone, of which one cell has to be recovered.
fn read_row(array: &mut Array, zone: u64) {
    let read = array.request(RequestOp::Read, zone * ZONE, 3 * CHUNK);
    array.run_but(FILLING);
    assert_eq!(array.reply(read), Some(Ok(())));
}

#[test]
fn zones_that_are_read_are_rebuilt_on_demand() {
    for (order, zones) in [
        (Order::Pr, [30, 20, 3, 4]),
        (Order::Ido, [30, 20, 3, 4]),
        (Order::Dor, [30, 20, 3, 4]),
    ] {
        let mut array = whole(order);
        lose_a_member(&mut array);
        assert_eq!(zones_out(&array), [0, 1, 2, 3], "{order:?}");
        read_row(&mut array, 9);
        array.order(Command::OnDemand(true));
        read_row(&mut array, 20);
        read_row(&mut array, 30);
        next_windows(&mut array);
        assert_eq!(zones_out(&array), zones, "{order:?}: not 9, read before");
        let status = array.engine.status();
        assert!(status.tasks[0].pacing.on_demand);
        finish(array);
    }
}

/// What is rebuilt is read from where it is, and what another member holds is no reason either.
#[test]
fn only_reads_that_are_recovered_call_for_their_zone() {
    let mut array = whole(Order::Pr);
    array.command(Command::OnDemand(true)).expect("taken");
    lose_a_member(&mut array);
    let member_of = |array: &Array, lba| array.home(lba).0;
    let held = (30 * ZONE..31 * ZONE).step_by(CHUNK as usize);
    let lba = held.into_iter().find(|lba| member_of(&array, *lba) != 2);
    let read = array.request(RequestOp::Read, lba.expect("most are"), CHUNK);
    array.run_but(FILLING);
    assert_eq!(array.reply(read), Some(Ok(())));
    next_windows(&mut array);
    read_row(&mut array, 0);
    next_windows(&mut array);
    let zones = zones_out(&array);
    assert_eq!(zones, [7, 8, 9, 10]);
    finish(array);
}

#[test]
fn a_scrub_goes_by_address() {
    let mut array = whole(Order::Ido);
    read_zone(&mut array, 30, 5);
    array.order(Command::Scrub(ScrubMode::Check));
    assert!(array.holds("m0 read data+0"), "{:?}", array.labels());
    array.run_tasks();
    assert!(array.ended(TaskKind::Check, TaskOutcome::Done));
}
