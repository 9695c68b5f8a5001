//! A surrogate whose members are NBD exports elsewhere, behind links that are cut and mended: for a moment, for longer
//! than a member may be silent, one after the other, and both at once with something away.

use crate::harness::apart::Links;
use crate::harness::paired::{HOME, come_home, overlay};
use crate::harness::steps::{
    Fio, PATIENCE, URI, content, good, has, number, read_pattern, status, wait_until, write_pattern,
};
use crate::harness::{Daemon, Place};
use serde_json::Value;
use std::thread;
use std::time::{Duration, Instant};

/// A member that is silent for so long is failed.
const SILENCE: [&str; 2] = ["--io-timeout", "3s"];
/// Shorter than that.
const MOMENT: Duration = Duration::from_secs(1);
/// A rebuild takes longer than the test, until it is told to hurry.
const SLOW: [&str; 2] = ["--rate", "128K..128K"];

struct Far {
    links: Links,
    place: Place,
    exports: [String; 2],
}

impl Far {
    fn new(test: &str, name: &str) -> Option<Far> {
        let place = Place::new(&format!("far-{name}"));
        if !has(&place, test, &["ip", "nbdkit", "fio", "nbdcopy", "qemu-io"]) {
            return None;
        }
        let mut links = Links::new(test, name)?;
        let exports = ["s0.img", "s1.img"].map(|image| links.export(&place, image));
        let surrogate = exports.join(",");
        let options = ["create", "tank", "--image-size", "64M", "--level", "raid5"];
        let more = ["--init", "zero", "--spares", "1", "--surrogate", &surrogate];
        links.verb(&place, &[&options[..], &more, &HOME].concat());
        Some(Far {
            links,
            place,
            exports,
        })
    }

    fn serve(&self, home: &[&str]) -> Daemon {
        let exports = [&*self.exports[0], &*self.exports[1]];
        let arguments = [&SILENCE[..], &SLOW, home, &exports].concat();
        self.links.serve(&self.place, &arguments)
    }

    fn members(&self, wanted: &str) -> usize {
        let found = status(&self.place);
        states(&found).filter(|state| *state == wanted).count()
    }

    /// Cuts a link until its member is failed, and mends it. A write that goes there notices its silence, and is
    /// acknowledged without it.
    fn lose(&self, link: usize) {
        self.links.cut(link);
        thread::scope(|scope| {
            scope.spawn(|| write_pattern(&self.place, 9, "30M", "64K"));
            wait_until(&self.place, |status| {
                status["surrogate"]["state"] == "degraded"
            });
        });
        self.links.mend(link);
    }

    /// Takes a member back as soon as its link has recovered, and waits until it is whole.
    fn take_back(&self, link: usize) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let told = self.place.run(&["add", "tank", &self.exports[link]]);
            if told.status == 0 {
                break;
            }
            // What was sent before the cut comes back first.
            assert!(told.stderr.contains("still outstanding"), "{}", told.stderr);
            assert!(Instant::now() < deadline, "{}", told.stderr);
            thread::sleep(Duration::from_millis(100));
        }
        wait_until(&self.place, |status| {
            status["surrogate"]["state"] == "healthy"
        });
    }
}

fn states(status: &Value) -> impl Iterator<Item = &str> {
    let members = status["surrogate"]["members"].as_array().expect("a list");
    members.iter().filter_map(|member| member["state"].as_str())
}

fn redirected(status: &Value) -> u64 {
    number(&overlay(status)["redirected_writes"])
}

#[test]
fn cut_off_and_returned_a_remote_surrogate_loses_nothing() {
    let test = "cut_off_and_returned_a_remote_surrogate_loses_nothing";
    let Some(far) = Far::new(test, "c") else {
        return;
    };
    let place = &far.place;
    let fio = Fio { place };
    let daemon = far.serve(&HOME);
    good(place.run(&["fail", "tank", "b.img"]));
    thread::scope(|scope| {
        let options = "--verify_state_save=1 --verify_fatal=1 --rate_iops=300";
        let load = scope.spawn(|| fio.run(options));
        wait_until(place, |status| redirected(status) > 50);
        // The length of the cut is what is tested here, and nothing is waited for.
        (0..2).for_each(|link| far.links.cut(link));
        thread::sleep(MOMENT);
        (0..2).for_each(|link| far.links.mend(link));
        let before = redirected(&status(place));
        wait_until(place, |status| redirected(status) > before + 50);
        assert_eq!(far.members("active"), 2, "nobody was failed for a moment");
        far.lose(1);
        far.take_back(1);
        good(load.join().expect("no panic there"));
    });
    // Now everything that is away is on the one that was cut off, and on it alone.
    far.lose(0);
    let found = status(place);
    assert!(number(&overlay(&found)["away_bytes"]) > 0, "{found}");
    fio.verify(0);
    let before = content(place, "before.raw");
    far.take_back(0);
    come_home(place);
    fio.verify(0);
    assert!(before == content(place, "home.raw"), "bytes changed");
    good(place.run(&["scrub", "tank"]));
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
    let alone = place.serve(&["a.img", "c.img", "d.img"]);
    assert!(
        before == content(place, "alone.raw"),
        "home lacks something"
    );
    drop(alone);
}

/// Writes a pattern, and says whether that was acknowledged.
fn acknowledged(place: &Place, pattern: u8, at: &str, length: &str) -> bool {
    let script = format!(
        "qemu-io -f raw -c 'write -P {pattern} {at} {length}' '{URI}' > write.txt 2>&1
         grep -q '^wrote' write.txt && ! grep -Eiq 'fail|error' write.txt"
    );
    place.shell(&script).status == 0
}

#[test]
fn with_the_whole_surrogate_cut_off_nothing_is_made_up_and_nothing_is_lost() {
    let test = "with_the_whole_surrogate_cut_off_nothing_is_made_up_and_nothing_is_lost";
    let Some(far) = Far::new(test, "w") else {
        return;
    };
    let place = &far.place;
    let daemon = far.serve(&HOME);
    write_pattern(place, 1, "0", "8M");
    good(place.run(&["fail", "tank", "b.img"]));
    write_pattern(place, 2, "1M", "2M");
    let found = status(place);
    assert_eq!(number(&overlay(&found)["away_bytes"]), 2 << 20, "{found}");
    (0..2).for_each(|link| far.links.cut(link));
    let run = read_pattern(place, 2, "1M", "64K");
    assert_ne!(run.status, 0, "nobody can know it: {}", run.stdout);
    assert!(
        run.stdout.contains("read failed") && !run.stdout.contains("verification"),
        "an error, and no other bytes: {}",
        run.stdout
    );
    good(read_pattern(place, 1, "4M", "2M"));
    let over = acknowledged(place, 3, "2M", "64K");
    let beside = acknowledged(place, 4, "16M", "64K");
    daemon.kill();
    // What is unsent would come after what is written next. The kernel closes a killed daemon's files in its own time, and
    // would try for minutes without being told otherwise.
    let deadline = Instant::now() + PATIENCE / 10;
    while far.links.unsent() > 0 {
        assert!(Instant::now() < deadline, "the dead daemon goes on sending");
        thread::sleep(Duration::from_millis(20));
    }
    (0..2).for_each(|link| far.links.mend(link));
    let daemon = far.serve(&HOME);
    let holds_all = || {
        good(read_pattern(place, 2, "1M", "1M"));
        let pattern = if over { 3 } else { 2 };
        good(read_pattern(place, pattern, "2M", "64K"));
        good(read_pattern(place, 2, "2112K", "960K"));
        if beside {
            good(read_pattern(place, 4, "16M", "64K"));
        }
        good(read_pattern(place, 1, "3M", "5M"));
    };
    holds_all();
    come_home(place);
    holds_all();
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}
