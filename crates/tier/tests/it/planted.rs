//! Bugs planted in the engine that scripts find.

use crate::flushes::{flushed_after_a_death, kinds};
use crate::halts::lost_too_many;
use crate::handed_on::{
    grown_onto_old_data, hosted_over_old_data, made_over_old_data, replaced_by_old_data,
};
use crate::ordering::{replies_around_a_failure, writes_before_the_record};
use crate::owners::back_from_a_pause;
use crate::shell::{Setup, raid1, raid5, raid6};
use crate::spares::{
    hosted, needed_before_it_is_on_record, needed_while_read, recovered_after_a_way_home,
    three_by_three,
};
use restripe_array::layout::Level;
use restripe_array::meta::WriteHole;
use restripe_array::{Bug, CommandError};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn with(bug: Bug, mut setup: Setup) -> Setup {
    setup.bug = Some(bug);
    setup
}

#[test]
fn write_of_a_run_that_was_taken_over_is_found() {
    let ends = back_from_a_pause(with(Bug::OtherOwnerIgnored, raid5(4)), false);
    assert!(ends.contains(&Some(Ok(()))), "{ends:?}");
}

#[test]
fn a_write_ahead_of_a_failure_s_record_is_found() {
    assert!(writes_before_the_record(with(
        Bug::FailureNotRecorded,
        raid5(5)
    )));
}

/// All members are back, and too few of them are current: the others record the last one as failed. The swarm unplugs
/// all at once, and no member is left to record it.
#[test]
fn a_member_too_many_on_record_is_found() {
    let setups = [
        (raid5(4), &[2, 1][..]),
        (raid6(5), &[4, 0, 3]),
        (Setup::new(Level::Raid0, 3), &[1]),
    ];
    for (setup, gone) in setups {
        let mut array = lost_too_many(with(Bug::OneTooManyRecorded, setup), gone);
        array.crash(|_| true);
        let start = array.start();
        let too_few = matches!(start, Err(CommandError::TooFew { .. }));
        assert!(too_few, "{start:?}");
    }
}

#[test]
fn volatile_member_taken_in_is_found() {
    let setup = with(Bug::VolatileTakenIn, raid5(4));
    assert_eq!(
        crate::commands::volatile_taken_in(setup),
        ["add", "replace"]
    );
}

#[test]
fn an_early_acknowledgement_is_found() {
    let setup = with(Bug::FailureNotRecorded, raid1(3));
    assert_eq!(replies_around_a_failure(setup)[0], Some(true));
}

#[test]
fn a_start_without_its_flush_is_found() {
    for setup in kinds() {
        let mut array = flushed_after_a_death(with(Bug::StartUnflushed, setup));
        array.start().expect("all are here");
        assert!(array.read(4, 8).expect("it reads") != array.wanted(4, 8));
    }
}

#[test]
fn copies_that_are_shown_apart_are_found() {
    assert!(crate::mirrors::is_shown_apart(with(
        Bug::CopiesShownApart,
        raid1(2)
    )));
    assert!(!crate::mirrors::is_shown_apart(raid1(2)));
}

/// Old bytes on each kind of space that changes hands.
#[test]
fn old_bytes_that_are_not_zeroed_are_found() {
    let bug = Bug::ExtentNotZeroed;
    let shows = |work: fn(Setup), setup| {
        let work = || work(with(bug, setup));
        catch_unwind(AssertUnwindSafe(work)).is_err()
    };
    for setup in [raid1(2).hole(WriteHole::Bitmap), raid5(4), raid6(5)] {
        assert!(shows(made_over_old_data, setup));
    }
    for setup in [raid1(2).hole(WriteHole::Bitmap), raid5(4), raid6(5)] {
        assert!(shows(replaced_by_old_data, setup));
    }
    assert!(shows(hosted_over_old_data, three_by_three()));
    let mut setup = Setup::new(Level::Raid4, 3).spares(1);
    setup.rows = 12;
    let grown = |setup| grown_onto_old_data(with(Bug::AddedNotZeroed, setup), false);
    assert!(catch_unwind(AssertUnwindSafe(|| grown(setup))).is_err());
}

#[test]
fn a_place_that_is_taken_while_it_is_read_is_found() {
    let (array, _) = needed_while_read(with(Bug::PlaceTakenInUse, three_by_three()));
    assert!(!hosted(&array).is_empty());
}

#[test]
fn a_place_that_is_taken_before_that_is_on_record_is_found() {
    let setup = with(Bug::PlaceTakenEarly, three_by_three());
    assert!(!hosted(&needed_before_it_is_on_record(setup)).is_empty());
}

/// It costs a start time, and no byte: a record counts only if it is on the logs of all who have its parity by then.
#[test]
fn a_former_host_that_is_heard_is_found() {
    let setup = with(Bug::FormerHostHeard, three_by_three());
    assert!(recovered_after_a_way_home(setup) > 1);
}
