//! The read cache: what is held is what would be read, whatever happens below.

use crate::shell::{Array, Setup, raid1, raid5, raid6};
use restripe_array::cache::Rule;
use restripe_array::report::Counters;
use restripe_array::{Command, Cure, Fact, Member, RequestError, RequestOp, ScrubMode};

fn cached(setup: Setup) -> Setup {
    setup.cached(64, Rule::VdfLfu)
}

/// With data in its first two rows.
fn filled(setup: Setup) -> Array {
    let mut array = setup.start();
    array.written(0, 128).expect("written");
    array.flushed();
    array
}

fn counters(array: &Array) -> Counters {
    array.engine.status().counters
}

/// Reads, and tells whether any member was asked.
fn asks(array: &mut Array, lba: u64, sectors: u64) -> bool {
    let read = array.request(RequestOp::Read, lba, sectors);
    let asks = !array.held.is_empty();
    array.run();
    assert_eq!(array.reply(read), Some(Ok(())));
    asks
}

#[test]
fn a_block_is_asked_for_once() {
    let mut array = filled(cached(raid5(5)));
    assert!(asks(&mut array, 8, 8));
    assert!(!asks(&mut array, 8, 8));
    // Also a part of it, that is no whole block.
    assert!(!asks(&mut array, 11, 2));
    array.verify();
    array.verify();
}

#[test]
fn only_what_is_missing_is_read() {
    let mut array = filled(cached(raid5(5)));
    asks(&mut array, 8, 8);
    array.listing();
    array.request(RequestOp::Read, 0, 32);
    array.expect(&["m0 read data+0 8", "m1 read data+0 16"]);
}

#[test]
fn a_part_of_a_block_is_not_kept() {
    let mut array = filled(cached(raid5(5)));
    assert!(asks(&mut array, 2, 4));
    assert!(asks(&mut array, 2, 4));
}

#[test]
fn what_changes_is_forgotten() {
    let changes = [
        RequestOp::Write,
        RequestOp::WriteZeroes { fast: false },
        RequestOp::Trim,
    ];
    for change in changes {
        let mut array = filled(cached(raid5(5)));
        array.read(0, 64).expect("read");
        // A whole row, which a trim takes away at once.
        array.request(change, 0, 64);
        array.run();
        if change == RequestOp::Trim {
            // Its whole slices read as zeros, and nothing else may be made of the rest.
            array.model[..64 * 512].fill(0);
        }
        array.verify();
    }
}

/// Asks for a block, lets a write of the same block come and go, and only then answers the read.
#[test]
fn a_read_that_meets_a_write_keeps_nothing() {
    let mut array = filled(cached(raid1(2)));
    let read = array.request(RequestOp::Read, 16, 8);
    let first = array.labels()[0].to_string();
    let write = array.write(16, 8);
    array.run_but(&first);
    assert_eq!(array.reply(write), Some(Ok(())));
    array.complete(&first);
    assert_eq!(array.reply(read), Some(Ok(())));
    assert!(
        asks(&mut array, 16, 8),
        "nobody knows which bytes it brought"
    );
    assert!(!asks(&mut array, 16, 8));
}

#[test]
fn a_read_during_a_write_keeps_nothing() {
    let mut array = filled(cached(raid1(2)));
    let write = array.write(16, 8);
    let held = array.labels().len();
    array.request(RequestOp::Read, 16, 8);
    array.end_at(held);
    array.run();
    assert_eq!(array.reply(write), Some(Ok(())));
    assert!(asks(&mut array, 16, 8));
}

#[test]
fn what_is_held_outlives_its_member() {
    for setup in [raid5(5), raid6(6), raid1(3)] {
        let mut array = filled(cached(setup));
        array.verify();
        array.command(Command::Fail(Member(0))).expect("failed");
        let before = counters(&array).blocks_fetched;
        array.verify();
        assert_eq!(counters(&array).blocks_fetched, before);
        array.written(0, 40).expect("written");
        array.verify();
    }
}

#[test]
fn what_a_miss_costs_is_counted() {
    let mut array = filled(cached(raid5(5)));
    array.command(Command::Fail(Member(0))).expect("failed");
    array.read(0, 8).expect("read");
    let counted = counters(&array);
    assert_eq!((counted.blocks_asked, counted.blocks_fetched), (1, 4));
    array.read(0, 8).expect("read");
    let counted = counters(&array);
    let all = (
        counted.blocks_asked,
        counted.blocks_cached,
        counted.blocks_fetched,
    );
    assert_eq!(all, (2, 1, 4));
}

#[test]
fn degraded_the_dear_blocks_stay() {
    // Of two blocks held, the older lies on the failed member: the other makes room.
    let mut array = filled(raid5(5).cached(2, Rule::VdfLru));
    array.command(Command::Fail(Member(0))).expect("failed");
    for lba in [0, 16, 32] {
        array.read(lba, 8).expect("read");
    }
    assert!(!asks(&mut array, 0, 8));
    assert!(asks(&mut array, 16, 8));
}

#[test]
fn rebuilt_blocks_are_cheap_again() {
    let mut array = filled(raid5(5).spares(1).cached(2, Rule::VdfLru));
    array.command(Command::Fail(Member(0))).expect("failed");
    array.run_tasks();
    for lba in [0, 16, 32] {
        array.read(lba, 8).expect("read");
    }
    assert!(asks(&mut array, 0, 8));
}

#[test]
fn what_a_repair_found_wrong_is_not_held() {
    for setup in [raid6(6), raid1(3)] {
        let mut array = filled(cached(setup));
        let start = array.data_start();
        array.corrupt(0, start + 3);
        // Whichever copy is asked, it is held, and perhaps it is the wrong one.
        array.read(0, 64).expect("read");
        array.facts.clear();
        array
            .command(Command::Scrub(ScrubMode::Sync))
            .expect("a scrub can run");
        array.run_tasks();
        let repaired = |fact: &Fact| {
            matches!(
                fact,
                Fact::Mismatch {
                    cure: Cure::Repaired,
                    ..
                }
            )
        };
        assert!(array.has_fact(repaired));
        array.verify();
    }
}

#[test]
fn what_is_lost_is_not_held() {
    let mut array = filled(cached(raid5(4)));
    array.read(0, 8).expect("read");
    let (member, at) = array.home(0);
    array.spoil(member, at, 8);
    array
        .command(Command::Fail(Member(1)))
        .expect("one can be spared");
    // What is held is right, and is given; what is not is lost.
    array.read(0, 8).expect("held");
    array.spoil(member, at + 8, 1);
    assert!(matches!(array.read(8, 8), Err(RequestError::Lost { .. })));
}

/// While a member is away, its blocks are recovered from cells that may be rotten. A repair that ends the rot ends those.
#[test]
fn what_was_recovered_from_rot_is_not_held_beyond_its_repair() {
    let mut array = filled(cached(raid6(6)));
    // Otherwise the member that goes would be owed what has just been written, and get what is made of rot.
    array.command(Command::Stop).expect("it stops");
    array.crash(|_| true);
    array.start().expect("it starts again");
    let ((rotten, at), (away, _)) = (array.home(0), array.home(16));
    array.corrupt(rotten, at + 3);
    array.command(Command::Fail(Member(away))).expect("failed");
    let made_of_rot = array.read(16, 8).expect("recovered");
    assert!(made_of_rot != array.model[16 * 512..24 * 512]);
    array.command(Command::Add(Member(away))).expect("back");
    array.run_tasks();
    array
        .command(Command::Scrub(ScrubMode::Sync))
        .expect("a scrub can run");
    array.run_tasks();
    array.verify();
}

/// A read of a block that is held: its copy to the client has not begun.
fn being_copied(array: &mut Array, lba: u64) -> u64 {
    array.hold_computes();
    let read = array.request(RequestOp::Read, lba, 8);
    assert!(array.held.is_empty(), "it is held");
    assert_eq!(array.reply(read), None);
    read
}

/// Each time the one block that fits makes room while it is being copied from, more often than there are spares. The
/// copy into the cache ends before the copy out of it, which was asked for earlier.
#[test]
fn a_block_that_makes_room_while_it_is_copied_from_is_delivered() {
    let mut array = filled(raid5(5).cached(1, Rule::Lru));
    assert!(asks(&mut array, 8, 8));
    for turn in 0..200 {
        let (held, other) = if turn % 2 == 0 { (8, 16) } else { (16, 8) };
        let hit = being_copied(&mut array, held);
        let miss = array.request(RequestOp::Read, other, 8);
        array.run();
        assert_eq!(array.reply(miss), None, "it is being copied into the cache");
        array.end_computes();
        for (read, lba) in [(hit, held), (miss, other)] {
            assert_eq!(array.reply(read), Some(Ok(())));
            assert!(array.brought(read, lba), "turn {turn}: sector {lba}");
        }
    }
    assert!(!asks(&mut array, 8, 8), "the last one missed is held");
    array.verify();
}

/// As when a block makes room, but it is a write that takes it away; the next block gets the frame.
#[test]
fn a_block_that_is_overwritten_while_it_is_copied_from_is_delivered() {
    let mut array = filled(raid1(2).cached(1, Rule::Lru));
    for _ in 0..100 {
        array.read(8, 8).expect("read");
        let before = array.model[8 * 512..16 * 512].to_vec();
        let hit = being_copied(&mut array, 8);
        let write = array.write(8, 8);
        array.run();
        assert_eq!(array.reply(write), Some(Ok(())));
        let miss = array.request(RequestOp::Read, 16, 8);
        array.run();
        array.end_computes();
        assert_eq!(array.reply(hit), Some(Ok(())));
        // The write was asked for after the read: either's bytes are right, and the read came first.
        assert!(array.bytes_read(hit) == before);
        assert!(array.brought(miss, 16));
    }
    array.verify();
}
