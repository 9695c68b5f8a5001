//! Heat over restarts: what was hot is known after a stop and after a crash, for no I/O while users read.

use crate::shell::{Array, CHUNK, grown4, raid5};
use restripe_array::meta::RegionKind;
use restripe_array::{Command, HeatLimits, Member, Nanos, PAGE_BYTES, RequestOp};

/// Four rows of three data cells.
const ZONE: u64 = 4 * 3 * CHUNK;
const EPOCH: Nanos = Nanos::from_secs(600);
const READS: [(u64, u64); 3] = [(7, 9), (21, 2), (3, 5)];

/// Forty zones, and a spare.
fn started() -> Array {
    let mut setup = raid5(4).info(|info| info.sectors = 8192).spares(1);
    setup.rows = 160;
    setup.heat = HeatLimits {
        zone_sectors: ZONE,
        epoch: EPOCH,
    };
    setup.start()
}

fn read(array: &mut Array, zone: u64, times: u64) {
    for _ in 0..times {
        array.request(RequestOp::Read, zone * ZONE + 20, 8);
        array.run();
    }
}

/// Where heat lies on every member.
fn region(array: &Array) -> u64 {
    let mut regions = array.regions.iter();
    let found = regions.find(|region| region.kind == RegionKind::Heat);
    found.expect("every array has it").start
}

fn read_all(array: &mut Array) {
    for (zone, times) in READS {
        read(array, zone, times);
    }
}

fn restart(array: &mut Array, keep: bool) {
    array.crash(|_| keep);
    array.start().expect("it is whole");
}

#[test]
fn a_stop_keeps_all_that_was_read() {
    let mut array = started();
    read_all(&mut array);
    let before = array.engine.heat();
    assert_eq!(before.hottest(), [7, 3, 21]);
    array.listing();
    array.command(Command::Stop).expect("stopped");
    let written = array.listing();
    assert_eq!(written.matches("write heat").count(), 4, "{written}");
    restart(&mut array, true);
    assert_eq!(array.engine.heat(), before);
}

#[test]
fn a_crash_keeps_what_the_last_epoch_knew() {
    let mut array = started();
    read_all(&mut array);
    array.pass(EPOCH);
    let before = array.engine.heat();
    read(&mut array, 30, 50);
    restart(&mut array, false);
    assert_eq!(array.engine.heat(), before);
    assert_eq!(
        before.hottest(),
        [7, 3, 21],
        "what was read since is not known"
    );
    restart(&mut array, false);
    assert_eq!(array.engine.heat(), before, "a start takes nothing away");
}

/// The paper's table is in memory because a read must not cost a write.
#[test]
fn reads_write_nothing_and_an_idle_array_is_not_woken() {
    let mut array = started();
    array.pass(EPOCH);
    array.pass(EPOCH);
    array.listing();
    array.pass(Nanos(20 * EPOCH.0));
    assert_eq!(array.listing(), "", "nobody has read anything");
    read(&mut array, 5, 3);
    assert!(!array.listing().contains("heat"), "a read is a read");
    array.pass(EPOCH);
    assert_eq!(array.listing().matches("write heat").count(), 4);
    array.pass(EPOCH);
    array.pass(Nanos(20 * EPOCH.0));
    let since = array.listing();
    assert!(!since.contains("heat"), "nobody read since: {since}");
    assert_eq!(array.wake, None);
}

#[test]
fn a_start_with_other_zones_shares_the_heat_out() {
    let mut array = started();
    read_all(&mut array);
    array.command(Command::Stop).expect("stopped");
    array.limit(|limits| limits.heat.zone_sectors = 2 * ZONE);
    restart(&mut array, true);
    let larger = array.engine.heat();
    assert_eq!(
        (larger.zone_sectors, larger.popularity.len()),
        (2 * ZONE, 20)
    );
    assert_eq!(larger.hottest(), [3, 1, 10]);
    array.limit(|limits| limits.heat.zone_sectors = ZONE);
    restart(&mut array, false);
    let again = array.engine.heat();
    assert_eq!(
        again.hottest(),
        [6, 7, 2, 3, 20, 21],
        "written anew at the start before"
    );
}

#[test]
fn pages_that_cannot_be_read_know_nothing() {
    for unreadable in [false, true] {
        let mut array = started();
        read_all(&mut array);
        array.command(Command::Stop).expect("stopped");
        array.crash(|_| true);
        let start = region(&array);
        for disk in &mut array.disks {
            if unreadable {
                disk.bad.extend(start..start + 16);
            } else {
                disk.forge(start, &[0xa5; 2 * PAGE_BYTES]);
            }
        }
        array.start().expect("nobody needs heat");
        assert!(array.engine.heat().hottest().is_empty());
        assert!((0..4).all(|member| !array.failed(member)));
        if !unreadable {
            read(&mut array, 11, 2);
            array.command(Command::Stop).expect("stopped");
            restart(&mut array, true);
            assert_eq!(array.engine.heat().hottest(), [11]);
        }
    }
}

/// One home is torn: the page is as it was at the epoch's end before.
#[test]
fn a_torn_page_is_the_one_before() {
    let mut array = started();
    read_all(&mut array);
    array.pass(EPOCH);
    let before = array.engine.heat();
    read(&mut array, 30, 50);
    array.pass(EPOCH);
    array.crash(|_| false);
    let start = region(&array);
    // Sequences 0 and 1 are as created; then 2 was written, and now 3 to the second home.
    for disk in &mut array.disks {
        disk.forge(start + 8, &[0xa5; 512]);
    }
    array.start().expect("nobody needs heat");
    assert_eq!(array.engine.heat(), before);
}

/// What a spare learned while it was filled is enough when all others have lost it.
#[test]
fn a_member_that_is_filled_knows_it_too() {
    let mut array = started();
    read_all(&mut array);
    array.command(Command::Fail(Member(0))).expect("failed");
    array.run_tasks();
    let before = array.engine.heat();
    array.crash(|_| true);
    let start = region(&array);
    for disk in &mut array.disks[..4] {
        disk.forge(start, &[0; 2 * PAGE_BYTES]);
    }
    array.start().expect("nobody needs heat");
    assert_eq!(array.engine.heat(), before);
}

/// Chunks that a growth added are the end of the array and lie in all its rows.
#[test]
fn heat_of_a_grown_array_is_that_of_its_rows() {
    let mut setup = grown4(&[2, 3]);
    setup.heat = HeatLimits {
        zone_sectors: 1,
        ..HeatLimits::default()
    };
    let mut array = setup.start();
    for lba in [0, array.layout.size_sectors() - CHUNK] {
        let before = array.engine.heat().popularity;
        array.read(lba, CHUNK).expect("it is there");
        let row = array.layout.place(lba).row.0 as usize;
        let after = array.engine.heat().popularity;
        assert_eq!(after.len() as u64, array.layout.rows());
        assert!(after[row] > before[row], "row {row}: {before:?}, {after:?}");
    }
}
