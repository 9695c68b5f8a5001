//! Bugs planted in the engine that scripts find.

use crate::ordering::{replies_around_a_failure, writes_before_the_record};
use crate::shell::{Setup, raid1, raid5};
use restripe_array::Bug;

fn with(bug: Bug, mut setup: Setup) -> Setup {
    setup.bug = Some(bug);
    setup
}

#[test]
fn a_write_ahead_of_a_failure_s_record_is_found() {
    assert!(writes_before_the_record(with(
        Bug::FailureNotRecorded,
        raid5(5)
    )));
}

#[test]
fn an_early_acknowledgement_is_found() {
    let setup = with(Bug::FailureNotRecorded, raid1(3));
    assert_eq!(replies_around_a_failure(setup)[0], Some(true));
}
