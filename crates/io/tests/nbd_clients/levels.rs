//! Every level through the loss of a member, with every client in every state.

use crate::array::{Array, command, status, wait_until};
use crate::checks::{self, Check};
use restripe_array::layout::{Level, Rotation};
use restripe_array::report::ArrayState;
use restripe_array::{Command, Fact, TaskKind};

const ALL: [Check; 6] = [
    checks::describes_itself,
    checks::maps_every_byte,
    checks::copies_both_ways,
    checks::keeps_patterns,
    checks::passes_verified_load,
    checks::answers_probes,
];

/// Runs every check. None of them may cost the array a member.
pub fn try_all(array: &Array) {
    let health = |array: &Array| {
        let status = status(array.remote());
        let members = status.members.iter().map(|member| member.state);
        (status.state, members.collect::<Vec<_>>())
    };
    let before = health(array);
    for check in ALL {
        check(&array.target());
        assert_eq!(health(array), before, "{:?}", array.told());
    }
}

/// Healthy, degraded, rebuilding, rebuilt, and degraded again by another member.
fn through_a_loss(level: Level, members: usize) {
    let array = Array::new(level, members);
    try_all(&array);
    array.fail(1);
    assert_eq!(array.state(), ArrayState::Degraded);
    try_all(&array);
    let slow = 64 << 10;
    let rate = |rate| Command::Rate {
        min: rate,
        max: rate,
    };
    command(array.remote(), rate(slow));
    array.add_spare(members);
    array.wait_for(|fact| matches!(fact, Fact::TaskStarted { .. }));
    try_all(&array);
    assert_eq!(array.state(), ArrayState::Degraded, "still rebuilding");
    command(array.remote(), rate(u64::MAX));
    array.wait_for_end(TaskKind::Rebuild);
    wait_until(|| array.state() == ArrayState::Healthy);
    checks::copies_both_ways(&array.target());
    array.fail(0);
    try_all(&array);
}

const RAID5: Level = Level::Raid5(Rotation::LeftSymmetric);
const RAID6: Level = Level::Raid6(Rotation::LeftSymmetric);

#[test]
fn raid5_through_a_loss() {
    through_a_loss(RAID5, 4);
}

#[test]
fn raid6_through_a_loss() {
    through_a_loss(RAID6, 5);
}

#[test]
fn raid1_through_a_loss() {
    through_a_loss(Level::Raid1, 3);
}

#[test]
fn raid10_through_a_loss() {
    through_a_loss(Level::Raid10 { copies: 2 }, 4);
}

#[test]
fn raid0_serves() {
    try_all(&Array::new(Level::Raid0, 3));
}
