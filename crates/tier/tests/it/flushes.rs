//! Flushes: every member that has something unflushed, once, and never again after an error.

use crate::shell::{Array, CHUNK, Setup, raid1, raid5};
use restripe_array::layout::{Level, Rotation};
use restripe_array::meta::WriteHole;
use restripe_array::{
    Command, CommandError, Fact, FailCause, IoError, Member, RequestError, StartMode,
};

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

/// Arrays of every kind that has its own way through a start.
pub fn kinds() -> Vec<Setup> {
    let guards = [WriteHole::Ppl, WriteHole::Bitmap, WriteHole::None];
    let raid5 = guards.map(|hole| raid5(4).hole(hole));
    let raid1 = [WriteHole::Bitmap, WriteHole::None].map(|hole| raid1(3).hole(hole));
    let others = [
        Setup::new(Level::Raid0, 3),
        Setup::new(Level::Raid4, 4),
        Setup::new(Level::Raid6(Rotation::default()), 5),
        Setup::new(Level::Raid10 { copies: 2 }, 4),
    ];
    raid5.into_iter().chain(raid1).chain(others).collect()
}

/// One row is flushed; then another write is acknowledged, the daemon dies, and its members live on.
fn died(setup: Setup) -> Array {
    let mut array = setup.start();
    array.written(0, 2 * CHUNK).expect("written");
    array.flushed();
    array.written(4, 8).expect("acknowledged");
    array.die();
    array
}

/// The same; a flush is acknowledged after the start, and then power goes.
pub fn flushed_after_a_death(setup: Setup) -> Array {
    let mut array = died(setup);
    array.start().expect("all are here");
    array.flushed();
    array.crash(|_| false);
    array
}

/// Ends reads and the flushes of a start, until it wants to write.
fn run_to_writes(array: &mut Array) {
    while array.mentions("read") || array.mentions("flush") {
        array.run_only("read");
        array.run_only("flush");
    }
}

#[test]
fn a_start_writes_nothing_before_every_member_is_flushed() {
    for setup in kinds() {
        let mut array = died(setup);
        let members = array.disks.len();
        let start = array.order(Command::Start(StartMode::default()));
        array.run_only("read");
        let mut labels = array.labels();
        labels.sort_unstable();
        let flushes: Vec<String> = (0..members).map(|m| format!("m{m} flush")).collect();
        assert_eq!(labels, flushes);
        array.run();
        assert_eq!(array.answer(start), Some(Ok(())));
        array.verify();
    }
}

/// Power goes at the start's first write, behind its last, and behind a stop: with all that is not durable.
#[test]
fn a_start_after_a_daemons_death_makes_durable_what_it_believes() {
    for setup in kinds() {
        for ending in 0..3 {
            let mut array = died(setup.clone());
            array.order(Command::Start(StartMode::default()));
            match ending {
                0 => run_to_writes(&mut array),
                _ => array.run(),
            }
            if ending == 2 {
                array.command(Command::Stop).expect("it stops");
            }
            array.crash(|_| false);
            array.start().expect("all are here");
            array.run_tasks();
            array.verify();
            if setup.options.geometry.level != Level::Raid0 {
                array.consistent();
            }
        }
    }
}

#[test]
fn a_flush_after_a_start_covers_what_a_dead_daemon_wrote() {
    for setup in kinds() {
        let mut array = flushed_after_a_death(setup);
        array.start().expect("all are here");
        let wanted = array.wanted(4, 8);
        assert_eq!(array.read(4, 8), Ok(wanted));
    }
}

/// A member that cannot flush at a start is failed, on record, and what only it had is not believed.
#[test]
fn a_member_that_fails_the_starts_flush_is_failed() {
    for setup in kinds() {
        let redundant = setup.options.geometry.level != Level::Raid0;
        let guarded = setup.options.write_hole == WriteHole::Ppl
            || matches!(
                setup.options.geometry.level,
                Level::Raid1 | Level::Raid10 { .. }
            );
        let mut array = died(setup);
        let mode = StartMode {
            accept_loss: redundant && !guarded,
            ..StartMode::default()
        };
        let start = array.order(Command::Start(mode));
        array.run_only("read");
        array.fail("m1 flush", IoError::Other(5));
        array.run();
        let why = FailCause::FlushError(IoError::Other(5));
        assert!(array.has_fact(|fact| *fact
            == Fact::MemberFailed {
                member: Member(1),
                why
            }));
        if !redundant {
            let refused = matches!(array.answer(start), Some(Err(CommandError::TooFew { .. })));
            assert!(refused, "{:?}", array.answer(start));
            continue;
        }
        assert_eq!(array.answer(start), Some(Ok(())));
        array.flushed();
        if guarded {
            array.verify();
        }
        array.crash(|_| false);
        array.command(Command::Start(mode)).expect("on record");
        assert!(!array.has_fact(|fact| matches!(fact, Fact::MemberFailed { .. })));
        let failed = array.engine.status().members[1].state;
        assert_eq!(failed, restripe_array::report::MemberState::Failed);
    }
}

#[test]
fn a_read_only_start_flushes_nothing_and_a_flush_then_reaches_every_member() {
    for setup in kinds() {
        let mut array = died(setup);
        let members = array.disks.len();
        let start = array.order(Command::Start(StartMode {
            read_only: true,
            ..StartMode::default()
        }));
        array.run_only("read");
        assert_eq!(array.answer(start), Some(Ok(())));
        let flush = array.flush();
        let flushes: Vec<String> = (0..members).map(|m| format!("m{m} flush")).collect();
        let labels = array.labels();
        assert!(
            flushes.iter().all(|flush| labels.contains(&flush.as_str())),
            "{labels:?}"
        );
        array.run();
        assert_eq!(array.reply(flush), Some(Ok(())));
    }
}

#[test]
fn a_member_that_is_added_is_flushed_as_it_joins() {
    let mut array = raid5(4).spares(1).start();
    array.written(0, 8).expect("written");
    array
        .command(Command::Fail(Member(1)))
        .expect("one may fail");
    array.run_tasks();
    array.listing();
    array.order(Command::Add(Member(1)));
    array.complete_held(" read ");
    assert!(array.labels().contains(&"m1 flush"), "{:?}", array.labels());
    array.run();
}
