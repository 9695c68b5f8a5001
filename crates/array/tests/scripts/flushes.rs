//! Flushes: every member that has something unflushed, once, and never again after an error.

use crate::shell::{CHUNK, raid1, raid5};
use restripe_array::{Command, CommandError, Fact, FailCause, IoError, Member, RequestError};

#[test]
fn a_flush_with_nothing_unflushed_asks_nobody() {
    let mut array = raid5(5).start();
    array.flushed();
    array.listing();
    let flush = array.flush();
    assert_eq!(array.reply(flush), Some(Ok(())));
    array.expect(&["reply Ok(())"]);
}

#[test]
fn a_flush_covers_exactly_the_members_written_to() {
    let mut array = raid5(5).start();
    array.flushed();
    array.written(0, 8).expect("written");
    array.listing();
    array.flush();
    array.expect(&["m0 flush", "m4 flush"]);
}

#[test]
fn a_flush_is_acknowledged_after_the_last_member() {
    for last in ["m0 flush", "m4 flush"] {
        let mut array = raid5(5).start();
        array.written(0, 8).expect("written");
        let flush = array.flush();
        array.run_but(last);
        assert_eq!(array.reply(flush), None);
        array.run();
        assert_eq!(array.reply(flush), Some(Ok(())));
    }
}

#[test]
fn a_failed_flush_fails_the_member_and_is_not_tried_again() {
    let mut array = raid5(5).start();
    array.written(0, 8).expect("written");
    let flush = array.flush();
    array.fail("m0 flush", IoError::Other(5));
    array.listing();
    array.run();
    assert_eq!(array.reply(flush), Some(Ok(())));
    let why = FailCause::FlushError(IoError::Other(5));
    assert!(array.has_fact(|fact| *fact
        == Fact::MemberFailed {
            member: Member(0),
            why
        }));
    array.flushed();
    assert!(!array.listing().contains("m0"));
    array.verify();
}

#[test]
fn a_write_of_several_cells_is_off_the_log_before_its_flush_is_acknowledged() {
    let mut array = raid5(5).start();
    array.written(0, 4 * CHUNK).expect("written");
    let flush = array.flush();
    array.run_only("flush");
    assert!(array.mentions("write log+"), "{:?}", array.labels());
    assert_eq!(array.reply(flush), None);
    array.run();
    assert_eq!(array.reply(flush), Some(Ok(())));
}

#[test]
fn a_log_keeps_its_records_until_it_is_known_who_failed_the_flush() {
    let mut array = raid5(5).start();
    array.written(0, 4 * CHUNK).expect("written");
    let flush = array.flush();
    array.fail("m0 flush", IoError::Other(5));
    array.run_only("flush");
    // After a crash here member 0 counts as current, without what it had not flushed.
    assert!(!array.mentions("write log+"), "{:?}", array.labels());
    assert_eq!(array.reply(flush), None);
    array.crash(|_| false);
    array.start().expect("starts");
    array.consistent();
}

#[test]
fn a_flush_goes_on_when_a_failure_is_on_record() {
    let mut array = raid5(5).start();
    array.written(0, 4 * CHUNK).expect("written");
    let flush = array.flush();
    array.fail("m0 flush", IoError::Other(5));
    array.run();
    assert_eq!(array.reply(flush), Some(Ok(())));
    array.crash(|_| false);
    array.start().expect("starts");
    array.verify();
}

#[test]
fn a_write_of_one_cell_needs_no_list() {
    let mut array = raid5(5).start();
    array.written(0, 8).expect("written");
    let flush = array.flush();
    array.run_only("flush");
    assert!(!array.mentions("write log+"), "{:?}", array.labels());
    assert_eq!(array.reply(flush), Some(Ok(())));
}

#[test]
fn flushes_asked_for_meanwhile_share_the_next() {
    let mut array = raid1(2).start();
    array.written(0, 8).expect("written");
    let first = array.flush();
    array.write(64, 8);
    array.run_but("flush");
    let (second, third) = (array.flush(), array.flush());
    array.listing();
    array.complete_held("flush");
    assert_eq!(array.reply(first), Some(Ok(())));
    assert_eq!(array.reply(second), None);
    assert_eq!(array.listing().matches("flush").count(), 2);
    array.run();
    assert_eq!(
        (array.reply(second), array.reply(third)),
        (Some(Ok(())), Some(Ok(())))
    );
}

#[test]
fn what_was_flushed_survives_a_crash() {
    for lossy in [true, false] {
        let mut array = raid5(4).start();
        array.written(0, 8).expect("written");
        array.written(40, 100).expect("written");
        array.flushed();
        array.crash(|_| !lossy);
        array.start().expect("starts");
        array.verify();
        array.consistent();
    }
}

#[test]
fn flush_golden() {
    let mut array = raid5(4).start();
    array.note("a full row");
    array.write(0, 3 * CHUNK);
    array.run();
    array.note("flush");
    array.flush();
    array.note("all members have flushed");
    array.run_only("flush");
    array.note("the done-list is written");
    array.run();
    array.golden("flush_after_full_row");
}

/// What was acknowledged before is on neither: no flush may say otherwise, nor a stop.
#[test]
fn a_flush_that_fails_too_many_members_is_no_flush() {
    let mut array = raid1(2).start();
    array.written(0, 8).expect("written");
    let flush = array.flush();
    array.fail("m0 flush", IoError::Other(5));
    array.fail("m1 flush", IoError::Other(5));
    array.run();
    assert_eq!(array.reply(flush), Some(Err(RequestError::Unavailable)));
    let missing = vec![0, 1];
    assert_eq!(
        array.command(Command::Stop),
        Err(CommandError::TooFew { missing })
    );
}
