//! What members were at, and for how long, by a clock of the script's: a microsecond for each event, and what is let pass.

use crate::shell::{Array, CHUNK, raid1};
use restripe_array::energy::{Phase, Rating, Spent};
use restripe_array::{IoError, Nanos};
use restripe_tier::report::OverlayStatus;

fn spent(array: &Array) -> Vec<Spent> {
    let members = array.engine.status().set.members;
    let of = members.iter().map(|one| one.spent.until(array.now()));
    of.collect()
}

fn milliseconds(spent: &Spent, since: &Spent, phase: Phase) -> u64 {
    spent.time(phase).since(since.time(phase)).0 / 1_000_000
}

/// Idle for five seconds, active for as long as a write is under way, on both, and idle again.
#[test]
fn a_member_is_active_while_something_is_under_way() {
    let mut array = raid1(2).start();
    array.pass(Nanos::from_secs(60));
    let before = spent(&array);
    array.wait(Nanos::from_secs(5));
    let tag = array.write(0, CHUNK);
    array.wait(Nanos::from_secs(3));
    array.run();
    assert_eq!(array.reply(tag), Some(Ok(())));
    let after = spent(&array);
    for (after, before) in after.iter().zip(&before) {
        assert_eq!(milliseconds(after, before, Phase::Idle), 5_000);
        assert_eq!(milliseconds(after, before, Phase::Active), 3_000);
        assert_eq!(after.time(Phase::Standby), Nanos::ZERO);
        assert_eq!((after.starts, after.stops), (0, 0));
    }
    let rating = Rating {
        active_mw: 8_000,
        idle_mw: 6_000,
        standby_mw: 1_000,
        start_mj: 1_000_000,
        stop_mj: 1_000_000,
    };
    let joules = |spent: &Spent| rating.energy_nj(spent);
    let drawn = (joules(&after[0]) - joules(&before[0])) / 1_000_000_000;
    assert_eq!(drawn, 5 * 6 + 3 * 8);
}

/// Two copies of which the second is being told to rest: a shell gives that a minute, whatever else is waited for.
fn told_to_rest() -> Array {
    let mut array = raid1(2).made();
    array.eraid(Nanos::from_secs(5));
    array.start().expect("a whole array starts");
    array.run();
    array.wait(Nanos::from_secs(6));
    assert!(array.mentions("m1 standby"), "{:?}", array.labels());
    array
}

fn overlay(array: &Array) -> OverlayStatus {
    let surrogate = array.engine.status().surrogate;
    surrogate.and_then(|one| one.overlay).expect("there is one")
}

#[test]
fn who_cannot_be_told_to_rest_for_a_minute_stays_awake() {
    let mut array = told_to_rest();
    array.wait(Nanos::from_secs(60));
    assert!(!array.failed(1));
    let at = array
        .labels()
        .iter()
        .position(|one| one.contains("m1 standby"));
    array.end_as(at.expect("it is held"), Err(IoError::Other(110)));
    array.run();
    assert!(!array.failed(1));
    assert_eq!(overlay(&array).mirrors_restless, 1);
}

/// The mirror that is told to rest is wanted: that waits for whoever tells it, and then for whoever wakes it.
#[test]
fn what_is_asked_of_a_mirror_that_is_told_to_rest_waits_for_the_telling() {
    let mut array = told_to_rest();
    array.depart(0);
    array.turn();
    assert!(array.mentions("m1 wake"), "{:?}", array.labels());
    array.wait(Nanos::from_secs(119));
    assert!(!array.failed(1), "{:?}", array.labels());
    array.run();
    assert!(!array.failed(1));
    let tag = array.write(0, CHUNK);
    array.run();
    assert_eq!(array.reply(tag), Some(Ok(())));
}
