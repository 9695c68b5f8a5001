//! Every level through the loss of a member, with every client in every state.

use crate::nbd_clients::array::{Array, command, status, wait_until};
use crate::nbd_clients::checks::{self, Check};
use crate::nbd_clients::tools::{installed, succeed};
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
fn through_a_loss(array: Array, members: usize) {
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
    checks::copies_both_ways(&array.target());
    checks::keeps_patterns(&array.target());
}

const RAID5: Level = Level::Raid5(Rotation::LeftSymmetric);
const RAID6: Level = Level::Raid6(Rotation::LeftSymmetric);

#[test]
fn raid5_through_a_loss() {
    through_a_loss(Array::new(RAID5, 4), 4);
}

#[test]
fn raid6_through_a_loss() {
    through_a_loss(Array::new(RAID6, 5), 5);
}

#[test]
fn raid1_through_a_loss() {
    through_a_loss(Array::new(Level::Raid1, 3), 3);
}

#[test]
fn raid10_through_a_loss() {
    through_a_loss(Array::new(Level::Raid10 { copies: 2 }, 4), 4);
}

#[test]
fn a_cache_goes_through_a_loss() {
    through_a_loss(Array::cached(RAID6, 5), 5);
    let array = Array::cached(RAID5, 4);
    array.fail(2);
    try_all(&array);
    let before = status(array.remote()).counters.blocks_cached;
    if installed(&["qemu-io"]) {
        let read = "read -P 7 0 1M";
        let twice = ["-f", "raw", "-c", "write -P 7 0 1M", "-c", read, "-c", read];
        succeed("qemu-io", &[&twice[..], &[&array.target().uri()]].concat());
        let after = status(array.remote()).counters.blocks_cached;
        // A quarter of the blocks lie on the failed member: they cost most, and stay.
        assert!(after - before >= 256 / 4, "{before}, {after}");
    }
}

#[test]
fn raid0_serves() {
    try_all(&Array::new(Level::Raid0, 3));
}

/// What nbdinfo shows of a context: (offset, bytes, flags).
fn map(array: &Array, context: &str) -> Vec<(u64, u64, u64)> {
    let argument = format!("--map={context}");
    let printed = succeed("nbdinfo", &[&argument, &array.target().uri()]);
    let extent = |line: &str| {
        let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>());
        let mut next = || numbers.next().and_then(Result::ok).expect("a number");
        (next(), next(), next())
    };
    printed.lines().map(extent).collect()
}

#[test]
fn block_status_tells_what_is_written_and_how_it_fares() {
    if !installed(&["nbdinfo", "qemu-io"]) {
        return;
    }
    const WRITTEN: u64 = 4 << 20;
    let array = Array::new(RAID5, 4);
    let size = array.target().size as u64;
    let allocation = || map(&array, "base:allocation");
    // Nothing is degraded about a stretch that holds nothing, nor is it ever anything but healthy.
    let health_of_written = || {
        let health = map(&array, "restripe:health");
        assert!(
            health
                .iter()
                .all(|&(at, _, flags)| at < size / 2 || flags == 0)
        );
        health[0].2
    };
    assert_eq!(allocation(), [(0, size, 3)], "a new array is one hole");
    let write = format!("write -P 1 0 {WRITTEN}");
    let uri = array.target().uri();
    succeed("qemu-io", &["-f", "raw", "-c", &write, &uri]);
    let now = allocation();
    assert!(now[0].1 >= WRITTEN && now[0].2 == 0, "{now:?}");
    assert_eq!(now.last().map(|extent| extent.2), Some(3), "{now:?}");
    assert_eq!(health_of_written(), 0);
    array.fail(3);
    assert_eq!(health_of_written(), 1, "degraded");
    assert_eq!(allocation(), now);
    array.add_spare(9);
    array.wait_for_end(TaskKind::Rebuild);
    wait_until(|| array.state() == ArrayState::Healthy);
    assert_eq!(health_of_written(), 0);
}
