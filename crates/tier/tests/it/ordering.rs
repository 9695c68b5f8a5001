//! What waits for what: overlapping writes, failures on record, members that time out.

use crate::shell::{Array, CHUNK, Setup, TIMEOUT, raid1, raid5, raid6};
use restripe_array::{Command, CommandError, Fact, FailCause, IoError, Member, Nanos, RequestOp};

#[test]
fn overlapping_writes_take_effect_in_order() {
    let mut array = raid5(5).start();
    let first = array.write(0, 8);
    let second = array.write(4, 8);
    array.run_only("m0 read");
    array.run_but("m0 write data+0");
    assert!(!array.mentions("data+4"), "{:?}", array.labels());
    assert_eq!((array.reply(first), array.reply(second)), (None, None));
    array.run();
    assert_eq!(array.reply(second), Some(Ok(())));
    array.verify();
    array.consistent();
}

#[test]
fn overlapping_writes_of_a_mirror_take_effect_in_order() {
    let mut array = raid1(2).start();
    array.write(0, 8);
    array.run_only("intent");
    array.write(4, 8);
    assert!(!array.mentions("data+4"), "{:?}", array.labels());
    array.run();
    array.verify();
}

#[test]
fn apart_on_one_row_writes_run_side_by_side() {
    let mut array = raid5(5).start();
    array.write(0, 4);
    array.write(8, 4);
    assert!(array.holds("m0 read data+0 4") && array.holds("m0 read data+8 4"));
    array.run_but("write data");
    assert!(array.holds("m0 write data+0 4") && array.holds("m0 write data+8 4"));
    array.run();
    array.verify();
    array.consistent();
}

#[test]
fn the_later_of_two_apart_may_end_first() {
    let mut array = raid5(5).start();
    let first = array.write(0, 4);
    let second = array.write(8, 4);
    array.run_but("m0 read data+0");
    assert_eq!(
        (array.reply(first), array.reply(second)),
        (None, Some(Ok(())))
    );
    array.run();
    array.verify();
}

/// A write during which a copy fails: what is replied to it while the others' superblocks are under way, and after.
pub fn replies_around_a_failure(setup: Setup) -> [Option<bool>; 2] {
    let mut array = setup.start();
    let write = array.write(0, 8);
    array.run_only("intent");
    array.complete("m0 write data");
    array.fail("m1 write data", IoError::Media);
    array.complete("m2 write data");
    array.run_but("super");
    let before = array.reply(write).map(|result| result.is_ok());
    array.run();
    [before, array.reply(write).map(|result| result.is_ok())]
}

#[test]
fn a_write_is_acknowledged_only_once_a_failure_is_on_record() {
    assert_eq!(replies_around_a_failure(raid1(3)), [None, Some(true)]);
}

/// Whether a write that begins right after a failure changes members before it is on record.
pub fn writes_before_the_record(setup: Setup) -> bool {
    let mut array = setup.start();
    array.written(0, 8).expect("written");
    array.depart(1);
    array.write(8, 8);
    array.run_but("super");
    array.wrote("data+8")
}

impl Array {
    fn wrote(&self, place: &str) -> bool {
        let listing = self.peek();
        listing
            .lines()
            .any(|line| line.contains("write") && line.contains(place))
    }
}

#[test]
fn with_a_log_nothing_is_written_in_place_before_a_failure_is_on_record() {
    assert!(!writes_before_the_record(raid5(5)));
    assert!(!writes_before_the_record(raid6(6)));
}

#[test]
fn nothing_is_written_in_place_while_one_that_misses_the_record_may_count_as_current() {
    for (mut array, parity) in [(raid5(4).start(), 3), (raid6(5).start(), 4)] {
        array.flushed();
        let write = array.write(0, 8);
        array.run_but("write log");
        let log = format!("m{parity} write log");
        assert!(array.mentions(&log), "{:?}", array.labels());
        array.depart(parity);
        array.listing();
        array.run_but("super");
        assert!(!array.wrote("data+0"), "{}", array.peek());
        array.run();
        assert_eq!(array.reply(write), Some(Ok(())));
        array.verify();
    }
}

#[test]
fn a_flush_is_acknowledged_only_once_a_failure_is_on_record() {
    let mut array = raid1(3).start();
    array.written(0, 8).expect("written");
    let flush = array.flush();
    array.fail("m1 flush", IoError::Media);
    array.run_but("super");
    assert_eq!(array.reply(flush), None);
    array.run();
    assert_eq!(array.reply(flush), Some(Ok(())));
}

#[test]
fn one_superblock_missing_still_holds_the_reply() {
    let mut array = raid1(3).start();
    let write = array.write(0, 8);
    array.run_only("intent");
    array.fail("m1 write data", IoError::Gone);
    array.run_but("m2 write super");
    assert!(array.holds("m2 write super"));
    assert_eq!(array.reply(write), None);
    array.run();
    assert_eq!(array.reply(write), Some(Ok(())));
}

#[test]
fn a_write_error_fails_the_member_and_not_the_write() {
    let mut array = raid5(4).start();
    let write = array.write(0, 8);
    array.run_but("write data");
    array.fail("m0 write data", IoError::Media);
    array.run();
    assert_eq!(array.reply(write), Some(Ok(())));
    let why = FailCause::WriteError(IoError::Media);
    assert!(array.has_fact(|fact| *fact
        == Fact::MemberFailed {
            member: Member(0),
            why
        }));
    array.verify();
}

#[test]
fn a_log_that_cannot_be_written_fails_its_member() {
    let mut array = raid5(4).start();
    let write = array.write(0, 8);
    array.run_but("write log");
    array.fail("m3 write log", IoError::Media);
    array.run();
    assert!(array.failed(3));
    assert_eq!(array.reply(write), Some(Ok(())));
    array.verify();
}

#[test]
fn a_member_that_does_not_answer_is_given_up() {
    let mut array = raid5(4).start();
    let write = array.write(0, 8);
    array.run_but("m0");
    array.listing();
    array.wait(TIMEOUT);
    assert!(array.listing().contains("detach m0"));
    assert!(array.failed(0));
    array.run_but("m0");
    assert_eq!(array.reply(write), Some(Ok(())));
}

#[test]
fn a_slow_member_with_a_long_queue_is_not_given_up() {
    let mut array = raid5(4).start();
    array.written(0, 48).expect("written");
    let half = Nanos(TIMEOUT.0 / 2);
    for lba in 0..4 {
        array.request(RequestOp::Read, lba, 1);
    }
    for _ in 0..3 {
        array.wait(half);
        array.complete("m0 read");
    }
    assert!(!array.failed(0), "it completes one after the other");
    let stuck = array.request(RequestOp::Read, 8, 1);
    for _ in 0..8 {
        array.wait(half);
        if array.failed(0) {
            break;
        }
        array.request(RequestOp::Read, 0, 1);
        array.end_at(array.held.len() - 1);
    }
    assert!(array.failed(0), "one operation is never completed");
    array.run_but("m0");
    assert_eq!(array.reply(stuck), Some(Ok(())));
}

#[test]
fn what_a_given_up_member_says_late_is_not_heard() {
    let mut array = raid5(4).start();
    array.written(0, 8).expect("written");
    let read = array.request(RequestOp::Read, 0, 8);
    array.wait(TIMEOUT);
    array.run_but("m0");
    assert_eq!(array.reply(read), Some(Ok(())));
    array.listing();
    array.run();
    array.expect(&[]);
    array.verify();
}

#[test]
fn a_member_with_operations_outstanding_cannot_come_back() {
    let mut array = raid5(4).start();
    array.written(0, 8).expect("written");
    array.request(RequestOp::Read, 0, 8);
    array.wait(TIMEOUT);
    array.run_but("m0");
    let add = array.order(Command::Add(Member(0)));
    assert!(matches!(
        array.answer(add),
        Some(Err(CommandError::Busy(_)))
    ));
    array.run();
    assert_eq!(array.command(Command::Add(Member(0))), Ok(()));
    array.run_tasks();
    array.verify();
    array.consistent();
}

#[test]
fn a_member_that_departs_fails_at_once() {
    let mut array = raid5(4).start();
    array.depart(2);
    array.run();
    let gone = Fact::MemberFailed {
        member: Member(2),
        why: FailCause::Gone,
    };
    assert!(array.has_fact(|fact| *fact == gone));
    array.written(0, 3 * CHUNK).expect("written");
    array.verify();
}

#[test]
fn a_write_that_no_member_took_is_not_acknowledged() {
    let mut array = raid1(2).start();
    let write = array.write(0, 8);
    array.run_only("intent");
    array.fail("m0 write data", IoError::Gone);
    array.fail("m1 write data", IoError::Gone);
    array.run();
    assert!(array.reply(write).is_some_and(|result| result.is_err()));
}
