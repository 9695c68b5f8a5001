//! What surrounds the command: files that go, other users, text of strangers, streams that take nothing, udev.

mod ends;
mod log;
mod outside;
mod prober;
mod strangers;
mod unwritten;

use crate::harness::{Daemon, Place};
use std::time::{Duration, Instant};

/// For what should take a moment, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

fn mirror(name: &str) -> Place {
    let place = Place::new(name);
    let made = place.create(&["a.img", "b.img"], &["--level", "raid1"]);
    assert_eq!(made.status, 0, "{}", made.stderr);
    place
}

/// Waits until something holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The status of a daemon that is to end within a bound.
fn end_of(daemon: &Daemon, what: &str) -> i32 {
    let mut ended = None;
    until(what, || {
        ended = daemon.try_wait();
        ended.is_some()
    });
    ended.expect("it has ended")
}

fn clean(place: &Place, member: &str) -> bool {
    place
        .run(&["examine", member])
        .stdout
        .contains("\n  clean, ")
}
