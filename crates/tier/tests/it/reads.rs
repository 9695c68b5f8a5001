//! Reads: from one member when it can, from redundancy when it must, and never made up.

use crate::shell::{CHUNK, Setup, raid1, raid5, raid6};
use restripe_array::layout::Level;
use restripe_array::meta::WriteHole;
use restripe_array::{BAND_SECTORS_MAX, Fact, IoError, Member, RequestError, RequestOp};

#[test]
fn a_read_asks_one_member() {
    let mut array = raid5(5).start();
    array.request(RequestOp::Read, 20, 8);
    array.expect(&["m1 read data+4 8"]);
}

#[test]
fn a_read_across_chunks_asks_each_member_once() {
    let mut array = raid5(5).start();
    array.request(RequestOp::Read, 8, 16);
    array.expect(&["m0 read data+8 8", "m1 read data+0 8"]);
}

#[test]
fn a_read_beyond_the_end_is_refused() {
    let mut array = raid5(5).start();
    let end = array.layout.size_sectors();
    let read = array.request(RequestOp::Read, end - 4, 8);
    assert!(matches!(
        array.reply(read),
        Some(Err(RequestError::OutOfRange { .. }))
    ));
}

#[test]
fn mirrors_share_reads() {
    let mut array = raid1(2).start();
    array.request(RequestOp::Read, 0, 8);
    array.request(RequestOp::Read, 8, 8);
    assert!(
        array.mentions("m0") && array.mentions("m1"),
        "{:?}",
        array.labels()
    );
}

#[test]
fn an_unreadable_sector_is_reconstructed_rewritten_and_counted() {
    let mut array = raid5(4).start();
    array.written(0, 48).expect("written");
    let (member, at) = array.home(20);
    array.spoil(member, at, 1);
    array.verify();
    assert!(array.disks[usize::from(member)].bad.is_empty());
    let repaired = |fact: &Fact| matches!(fact, Fact::Repaired { member: m, .. } if m.0 == member);
    assert!(array.has_fact(repaired));
    assert_eq!(
        array.engine.status().members[usize::from(member)].read_errors,
        1
    );
    assert!(array.engine.status().counters.repaired_sectors > 0);
}

#[test]
fn what_was_written_since_a_read_failed_is_read_again_before_it_is_called_lost() {
    let mut array = raid5(4).start();
    array.written(0, 48).expect("written");
    let (member, at) = array.home(20);
    array.spoil(member, at, 1);
    let read = array.request(RequestOp::Read, 20, 1);
    let label = format!("m{member} read data+4 1");
    let write = array.write(0, 48);
    array.run_but(&label);
    assert_eq!(array.reply(write), Some(Ok(())));
    array.depart(0);
    array.run_but(&label);
    array.fail(&label, IoError::Media);
    array.run();
    assert_eq!(array.reply(read), Some(Ok(())));
    assert_eq!(array.bytes_read(read), &array.model[20 * 512..21 * 512]);
    array.verify();
}

#[test]
fn of_a_long_read_only_what_is_unreadable_is_lost_or_counted() {
    // Longer than a slice reads at once, and what is left over is one block: it was not what could not be read.
    let sectors = BAND_SECTORS_MAX + 1;
    let mut array = Setup::new(Level::Raid0, 3).hole(WriteHole::None);
    array.rows = 2;
    let mut array = array.chunk(256).start();
    array.written(0, 768).expect("written");
    let (member, at) = array.home(20);
    array.spoil(member, at, 1);
    let read = array.read(0, sectors);
    assert_eq!(
        read,
        Err(RequestError::Lost {
            lba: 20,
            sectors: 1
        })
    );
    assert_eq!(
        array.engine.status().members[usize::from(member)].read_errors,
        1
    );
    array
        .read(sectors, 256 - sectors)
        .expect("the rest is readable");
}

#[test]
fn a_bad_sector_of_a_large_chunk_is_one_read_error() {
    let mut setup = raid5(3);
    setup.rows = 2;
    let mut array = setup.chunk(4096).start();
    array.written(0, 8192).expect("written");
    let (member, at) = array.home(20);
    array.spoil(member, at, 1);
    array.read(0, 4096).expect("redundancy answers");
    assert!(!array.failed(member));
    assert_eq!(
        array.engine.status().members[usize::from(member)].read_errors,
        1
    );
}

#[test]
fn a_mirror_repairs_from_its_other_copy() {
    let mut array = raid1(2).start();
    array.written(0, 16).expect("written");
    let start = array.data_start();
    array.spoil(0, start + 3, 1);
    array.spoil(1, start + 9, 1);
    array.verify();
    array.verify();
    assert!(!array.failed(0) && !array.failed(1));
}

/// Spoils one sector after another of member 0 until it is failed; how many that took, if it was.
fn errors_until_failed(array: &mut crate::shell::Array) -> Option<u64> {
    let start = array.data_start();
    for count in 0..100 {
        let row = count % 8;
        array.spoil(0, start + row * CHUNK + count / 8, 1);
        array.verify();
        if array.failed(0) {
            return Some(count + 1);
        }
    }
    None
}

#[test]
fn too_many_read_errors_fail_the_member() {
    let mut array = raid5(4).start();
    let count = errors_until_failed(&mut array);
    assert!(count.is_some_and(|count| count > 1), "{count:?}");
    array.verify();
}

/// Nor does the first error after that which redundancy recovers. What the array has only there would go with it.
#[test]
fn what_is_lost_never_fails_its_member_however_often_it_is_read() {
    let mut array = raid5(4).start();
    array.written(0, 96).expect("written");
    let start = array.data_start();
    for member in [0, 1] {
        array.spoil(member, start + 5, 1);
    }
    for _ in 0..50 {
        let lost = array.read(5, 1).expect_err("nothing has it");
        assert!(matches!(lost, RequestError::Lost { lba: 5, .. }));
    }
    let reads: Vec<u64> = (0..32)
        .map(|_| array.request(RequestOp::Read, 5, 1))
        .collect();
    array.run();
    for read in reads {
        assert!(matches!(
            array.reply(read),
            Some(Err(RequestError::Lost { .. }))
        ));
    }
    array.spoil(0, start + 2, 1);
    array.read(2, 1).expect("redundancy answers");
    array.run();
    assert!(!array.failed(0) && !array.failed(1));
    let line = &array.engine.status().members[0];
    assert!(line.read_errors > line.lost_errors && line.lost_errors >= 82);
}

#[test]
fn an_indispensable_member_is_kept_whatever_it_errs() {
    let mut array = raid5(3).start();
    array.depart(2);
    array.run();
    let start = array.data_start();
    for sector in 0..40 {
        array.spoil(0, start + sector, 1);
        let _ = array.read(sector, 1);
        array.written(sector, 1).expect("written");
    }
    assert!(!array.failed(0));
}

#[test]
fn of_a_double_error_exactly_the_lost_block_reads_as_an_error() {
    let mut array = raid5(4).start();
    array.written(0, 48).expect("written");
    let start = array.data_start();
    array.spoil(0, start + 5, 1);
    array.spoil(1, start + 5, 1);
    for lba in 0..48 {
        let lost = lba == 5 || lba == CHUNK + 5;
        match array.read(lba, 1) {
            Err(error) => assert!(lost && matches!(error, RequestError::Lost { .. }), "{lba}"),
            Ok(bytes) => {
                assert!(!lost, "{lba} was made up");
                assert!(bytes == array.model[lba as usize * 512..][..512], "{lba}");
            }
        }
    }
}

#[test]
fn raid6_outlives_a_double_error() {
    let mut array = raid6(5).start();
    array.written(0, 48).expect("written");
    let start = array.data_start();
    array.spoil(0, start + 5, 1);
    array.spoil(1, start + 5, 1);
    array.verify();
    array.run();
}

#[test]
fn what_was_lost_is_well_again_when_it_is_written() {
    let mut array = raid5(4).start();
    array.written(0, 48).expect("written");
    let start = array.data_start();
    array.spoil(0, start + 5, 1);
    array.spoil(1, start + 5, 1);
    assert!(array.read(5, 1).is_err());
    array.written(0, 48).expect("written");
    array.verify();
    array.consistent();
}

#[test]
fn what_was_lost_and_written_stays_lost_if_a_crash_takes_the_write() {
    let mut array = raid5(4).start();
    array.written(0, 48).expect("written");
    array.flushed();
    let start = array.data_start();
    array.spoil(0, start + 5, 1);
    array.depart(1);
    // The degraded write knows neither the old value of the lost cell nor that of the spoilt one.
    array.written(16, 8).expect("written");
    let lost = array.engine.status().set.lost;
    assert!(!lost.is_empty(), "a row with two cells gone");
    let lba = lost[0].0;
    let write = array.write(lba, 1);
    array.run_but("flush");
    assert_eq!(array.reply(write), None, "not before it is durable");
    array.crash(|label| !label.contains("data"));
    array.start().expect("starts without m1");
    let known = array.engine.status().set.lost;
    assert!(
        known
            .iter()
            .any(|&(first, count)| first <= lba && lba < first + count)
    );
}

#[test]
fn a_read_whose_member_goes_is_answered_by_the_others() {
    let mut array = raid5(4).start();
    array.written(0, 48).expect("written");
    let read = array.request(RequestOp::Read, 0, 8);
    array.fail("m0 read", IoError::Gone);
    array.run();
    assert_eq!(array.reply(read), Some(Ok(())));
    assert!(array.failed(0));
    array.verify();
}

#[test]
fn a_degraded_read_asks_all_the_others() {
    let mut array = raid5(4).start();
    array.depart(1);
    array.run();
    array.listing();
    array.request(RequestOp::Read, 16, 8);
    array.expect(&["m0 read data+0 8", "m2 read data+0 8", "m3 read data+0 8"]);
    assert!(array.engine.status().members[1].member == Member(1));
}

#[test]
fn beyond_its_tolerance_a_raid5_still_reads_what_is_there() {
    let mut array = raid5(4).start();
    array.written(0, 48).expect("written");
    array.depart(1);
    array.depart(2);
    array.run();
    assert!(array.read(0, 16).is_ok());
    assert!(matches!(array.read(16, 8), Err(RequestError::Lost { .. })));
    assert!(array.written(16, 8).is_err());
}

#[test]
fn more_reads_of_lost_sectors_than_there_is_room_for_are_all_answered() {
    let mut array = raid5(4).start();
    array.written(0, 48).expect("written");
    array.depart(1);
    array.depart(2);
    array.run();
    let reads: Vec<u64> = (0..64)
        .map(|_| array.gather(RequestOp::Read, 16, 8, false))
        .collect();
    array.turn();
    array.run();
    for read in reads {
        assert!(matches!(array.reply(read), Some(Err(_))));
    }
}
