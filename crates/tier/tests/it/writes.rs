//! Writes to whole arrays: fewest reads, log first, reply last.

use crate::shell::{CHUNK, raid1, raid5, raid6};
use restripe_array::RequestOp;

/// The held operations that read.
fn reads(array: &crate::shell::Array) -> Vec<String> {
    let labels = array.labels();
    labels
        .iter()
        .filter(|l| l.contains(" read "))
        .map(|l| l.to_string())
        .collect()
}

#[test]
fn a_small_write_reads_old_data_and_parity_of_a_wide_row() {
    let mut array = raid5(5).start();
    array.write(0, 8);
    array.expect(&["m0 read data+0 8", "m4 read data+0 8"]);
}

#[test]
fn a_small_write_reads_the_other_data_of_a_narrow_row() {
    let mut array = raid5(3).start();
    array.write(0, 8);
    array.expect(&["m1 read data+0 8"]);
}

#[test]
fn most_of_a_row_reads_the_rest_of_it() {
    let mut array = raid5(5).start();
    array.write(0, 3 * CHUNK);
    assert_eq!(reads(&array), ["m3 read data+0 16"]);
}

#[test]
fn a_full_row_reads_nothing() {
    let mut array = raid5(4).start();
    let write = array.write(0, 3 * CHUNK);
    assert!(reads(&array).is_empty(), "{:?}", array.labels());
    array.run();
    assert_eq!(array.reply(write), Some(Ok(())));
    assert_eq!(array.engine.status().counters.full_row_writes, 1);
    array.verify();
    array.consistent();
}

#[test]
fn neighbours_of_one_turn_become_one_full_row() {
    let mut array = raid5(4).start();
    let tags = [2, 0, 1].map(|n| array.gather(RequestOp::Write, n * CHUNK, CHUNK, false));
    array.turn();
    assert!(reads(&array).is_empty(), "{:?}", array.labels());
    array.run();
    assert!(tags.iter().all(|&tag| array.reply(tag) == Some(Ok(()))));
    assert_eq!(array.engine.status().counters.full_row_writes, 1);
    array.verify();
}

#[test]
fn the_record_is_durable_before_anything_is_written_in_place() {
    let mut array = raid5(5).start();
    array.write(0, 8);
    array.run_only("read");
    assert!(array.mentions("write log+"), "{:?}", array.labels());
    assert!(!array.mentions("write data+"));
    assert!(
        array
            .held
            .iter()
            .all(|held| held.label.ends_with("durable"))
    );
    array.run_only("log+");
    assert!(array.holds("m0 write data+0 8") && array.holds("m4 write data+0 8"));
}

#[test]
fn the_reply_comes_after_data_and_parity() {
    for last in ["m0 write data", "m4 write data"] {
        let mut array = raid5(5).start();
        let write = array.write(0, 8);
        array.run_but(last);
        assert_eq!(array.reply(write), None, "{last} is still held");
        array.run();
        assert_eq!(array.reply(write), Some(Ok(())));
        array.verify();
    }
}

#[test]
fn raid6_sends_a_record_to_both_parities() {
    let mut array = raid6(6).start();
    array.write(0, 8);
    array.run_only("read");
    let logs = array
        .labels()
        .iter()
        .filter(|l| l.contains("write log+"))
        .count();
    assert_eq!(logs, 2, "{:?}", array.labels());
    array.run();
    array.verify();
    array.consistent();
}

#[test]
fn a_mirror_announces_the_region_before_it_writes() {
    let mut array = raid1(2).start();
    let write = array.write(0, 8);
    assert!(!array.mentions("write data+"), "{:?}", array.labels());
    array.run_only("intent");
    assert!(array.holds("m0 write data+0 8") && array.holds("m1 write data+0 8"));
    array.complete("m0 write data");
    assert_eq!(array.reply(write), None);
    array.complete("m1 write data");
    assert_eq!(array.reply(write), Some(Ok(())));
}

#[test]
fn a_second_write_to_an_announced_region_announces_nothing() {
    let mut array = raid1(2).start();
    array.written(0, 8).expect("written");
    array.write(8, 8);
    assert!(!array.mentions("intent"), "{:?}", array.labels());
}

#[test]
fn a_forced_write_is_durable_in_place() {
    let mut array = raid5(5).start();
    let write = array.gather(RequestOp::Write, 0, 8, true);
    array.turn();
    array.run_but("write data+");
    assert!(
        array
            .held
            .iter()
            .all(|held| held.label.ends_with("durable"))
    );
    array.run();
    assert_eq!(array.reply(write), Some(Ok(())));
    array.crash(|_| false);
    array.start().expect("starts");
    array.verify();
}

#[test]
fn a_write_across_rows_is_replied_to_once() {
    let mut array = raid5(4).start();
    let write = array.write(40, 24);
    array.run();
    assert_eq!(array.reply(write), Some(Ok(())));
    array.verify();
    array.consistent();
}

#[test]
fn every_level_keeps_what_is_written() {
    use restripe_array::layout::Level;
    let setups = [
        (Level::Raid0, 3),
        (Level::Raid4, 4),
        (Level::Raid10 { copies: 2 }, 5),
    ];
    for (level, slots) in setups {
        let mut array = crate::shell::Setup::new(level, slots).start();
        for (lba, sectors) in [(0, 8), (20, 30), (5, 1), (60, 3)] {
            array.written(lba, sectors).expect("written");
        }
        array.verify();
    }
}

#[test]
fn small_write_golden() {
    let mut array = raid5(5).start();
    array.note("write of 8 sectors at 0");
    array.write(0, 8);
    array.note("old data and parity are there");
    array.run_only("read");
    array.note("the record is durable");
    array.run_only("log+");
    array.note("all is written");
    array.run();
    array.golden("raid5_small_write");
}
