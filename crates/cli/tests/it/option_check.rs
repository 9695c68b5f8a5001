//! Options of `serve` that mean nothing to an array are refused, or named.

use crate::harness;
use crate::harness::Place;
use crate::harness::steps::{good, stop};

const MIRRORS: [&str; 4] = ["a0", "a1", "b0", "b1"];
const PARITY: [&str; 3] = ["p", "q", "r"];

/// An array beside `tank` that has no mirrors.
fn create_parity(place: &Place) {
    let made = ["create", "parity", "--level", "raid5", "--image-size"];
    good(place.run(&[&made[..], &["64M"], &PARITY].concat()));
}

/// How a start is refused that was called wrongly.
fn misused(place: &Place, options: &[&str], members: &[&str]) -> String {
    let words = [&["serve", "--unix", "nbd.sock"], options, members].concat();
    let run = place.run(&words);
    assert_eq!(run.status, 2, "{options:?}: {} {}", run.stdout, run.stderr);
    run.stderr
}

/// What a start said that was not refused.
fn warned(place: &Place, options: &[&str], members: &[&str]) -> String {
    let words = [&["serve", "--unix", "nbd.sock"], options, members].concat();
    let told = std::fs::File::create(place.path("told")).expect("a file there");
    let daemon = place.await_service(place.command(&words).stderr(told));
    stop(place, &daemon);
    String::from_utf8(place.bytes("told")).expect("letters")
}

/// An operator who asks for sleep believes that mirrors sleep.
#[test]
fn what_an_array_can_never_use_is_refused() {
    let place = Place::new("option-check-never");
    good(place.create(&MIRRORS, &["--level", "raid10"]));
    let asked = [
        (
            &["--standby-after", "1s"][..],
            "--standby-after",
            "--redirect eraid",
        ),
        (&["--destage-idle", "1s"], "--destage-idle", "no surrogate"),
        (
            &["--destage-every", "1s"],
            "--destage-every",
            "no surrogate",
        ),
        (&["--no-log-cleaning"], "--no-log-cleaning", "a code cache"),
        (
            &["--destage-order", "oldest"],
            "--destage-order",
            "a code cache",
        ),
        (
            &["--destage-memory", "1M"],
            "--destage-memory",
            "a code cache",
        ),
        (
            &["--power", "exec:true"],
            "--power",
            "pass --standby-after TIME as well",
        ),
        (
            &["--spin-downs-per-day", "3"],
            "--spin-downs-per-day",
            "pass --standby-after TIME as well",
        ),
    ];
    for (options, word, why) in asked {
        let told = misused(&place, options, &MIRRORS);
        let first = format!("{word} would have no effect here");
        assert!(told.contains(&first) && told.contains(why), "{told}");
    }
    create_parity(&place);
    let eraid = ["--redirect", "eraid", "--standby-after", "1s"];
    for options in [&["--standby-after", "1s"][..], &eraid] {
        let told = misused(&place, options, &PARITY);
        assert!(told.contains("raid1 or raid10"), "{told}");
    }
    let told = misused(&place, &["--redirect", "graid"], &PARITY);
    assert!(told.contains("requires raid1 or raid10"), "{told}");
    let none = place.shell("ls nbd.sock restripe/*").stdout;
    assert_eq!(none, "", "nothing was begun");
}

/// A surrogate that takes writes during rebuilds only is no log, until it is said to be one.
#[test]
fn a_plain_surrogate_lets_mirrors_sleep_when_it_takes_every_write() {
    let place = Place::new("option-check-plain");
    good(place.create(&MIRRORS, &["--level", "raid10", "--surrogate", "s0,s1"]));
    let all = [&MIRRORS[..], &["s0", "s1"]].concat();
    for options in [&["--standby-after", "1s"][..], &["--destage-idle", "1s"]] {
        let told = misused(&place, options, &all);
        assert!(told.contains("only while a member is rebuilt"), "{told}");
        assert!(told.contains("--redirect reraid"), "{told}");
        let told = warned(&place, &[&["--redirect", "reraid"], options].concat(), &all);
        assert!(!told.contains("has no effect:"), "{told}");
    }
    let order = ["--redirect", "reraid", "--destage-order", "oldest"];
    let told = misused(&place, &order, &all);
    assert!(told.contains("requires a code cache"), "{told}");
}

/// What may count later is named, and so is what a configuration keeps.
#[test]
fn what_does_nothing_now_is_named() {
    let place = Place::new("option-check-idle");
    let log = ["--level", "raid10", "--surrogate", "l", "--log-disk"];
    good(place.create(&MIRRORS, &log));
    let all = [&MIRRORS[..], &["l"]].concat();
    let sleep = ["--standby-after", "1s", "--destage-idle", "1s"];
    let told = warned(&place, &[&sleep[..], &["--read-only"]].concat(), &all);
    let read_only = "--standby-after, --destage-idle have no effect: it is served read-only";
    assert!(told.contains(read_only), "{told}");
    let told = warned(&place, &sleep, &MIRRORS);
    let absent = "--standby-after, --destage-idle have no effect: its surrogate is missing";
    assert!(told.contains(absent), "{told}");
    let told = warned(&place, &sleep, &all);
    assert!(!told.contains("no effect:"), "{told}");

    let place = Place::new("option-file");
    good(place.create(&MIRRORS, &["--level", "raid10"]));
    let told = warned(&place, &["--redirect", "reraid"], &MIRRORS);
    let later = "--redirect has no effect: it has no surrogate; `restripe surrogate add`";
    assert!(told.contains(later), "{told}");
    let config = "[[array]]\nname = \"tank\"\nmembers = [\"a0\", \"a1\", \"b0\", \"b1\"]\n\
                  [serve]\nsleep = \"1s\"\n";
    place.write("tank.toml", 0, 0, config.as_bytes());
    let told = warned(&place, &["--config", "tank.toml"], &[]);
    let kept = "warning: tank: standby-after has no effect: it has no surrogate\n";
    assert!(told.contains(kept), "{told}");
    let former = "sleep is now called standby-after; the old name is deprecated";
    assert!(told.contains(former), "{told}");
}

/// What one array of a daemon can use is no reason to refuse the others.
#[test]
fn arrays_share_what_only_one_can_use() {
    let place = Place::new("option-check-shared");
    let log = ["--level", "raid10", "--surrogate", "l", "--log-disk"];
    good(place.create(&MIRRORS, &log));
    create_parity(&place);
    let all = [&MIRRORS[..], &["l"], &PARITY].concat();
    let words = [
        &["serve", "--unix", "nbd.sock", "--standby-after", "1s"],
        &all[..],
    ]
    .concat();
    let told = std::fs::File::create(place.path("told")).expect("a file there");
    let mut child = place.command(&words);
    let child = child.stdout(std::process::Stdio::null()).stderr(told);
    let daemon = harness::Daemon::of(child.spawn().expect("the command runs"));
    let up = "for i in $(seq 600); do restripe status tank && restripe status parity && exit; sleep 0.1; done; exit 1";
    good(place.shell(up));
    good(place.run(&["stop", "parity"]));
    stop(&place, &daemon);
    let told = String::from_utf8(place.bytes("told")).expect("letters");
    let named = "warning: parity: --standby-after has no effect: only secondary copies of a raid1 or raid10 enter standby";
    assert!(
        told.contains(named) && !told.contains("tank: --standby-after"),
        "{told}"
    );
}

/// A time of nothing is over before anything was done, and no memory takes no request.
#[test]
fn nothing_is_no_time_and_no_memory() {
    let place = Place::new("option-check-zero");
    good(place.create(&MIRRORS, &["--level", "raid10"]));
    for option in [
        "--io-timeout",
        "--standby-after",
        "--destage-idle",
        "--destage-every",
    ] {
        let told = misused(&place, &[option, "0s"], &MIRRORS);
        assert!(told.contains("a time above zero"), "{told}");
    }
    let told = misused(&place, &["--memory", "0"], &MIRRORS);
    assert!(told.contains("at least 32M"), "{told}");
}

/// Members that are slow hold an array all the same.
#[test]
fn a_start_that_does_not_wait_for_its_members_says_so() {
    let place = Place::new("option-check-late");
    good(place.create(&["c0"], &["--level", "raid0"]));
    // A server whose reads take longer than the daemon waits.
    if place.shell("command -v nbdkit").status != 0 {
        return harness::skipped(
            "a_start_that_does_not_wait_for_its_members_says_so",
            "nbdkit is missing",
        );
    }
    let slow = "nbdkit -f -U slow.sock --filter=delay file c0 delay-read=400ms & id=$!
        until [ -S slow.sock ]; do sleep 0.05; done
        restripe serve --unix nbd.sock --io-timeout 100ms 'nbd+unix:///?socket=slow.sock'
        told=$?; kill $id; wait $id; exit $told";
    let told = harness::steps::refused(place.shell(slow));
    assert!(told.contains("responded in time"), "{told}");
    assert!(told.contains("--io-timeout (100ms here)"), "{told}");
}

/// What a new array is made of is named as it was meant.
#[test]
fn members_that_cannot_be_are_named() {
    let place = Place::new("option-check-create");
    let made = |options: &[&str], members: &[&str]| {
        let cache = ["--level", "raid10", "--code-cache"];
        let run = place.create(members, &[&cache[..], options].concat());
        assert_ne!(run.status, 0, "{options:?}");
        run.stderr
    };
    let told = made(&["--surrogate", "ca,cb,cc,"], &MIRRORS);
    assert!(
        told.contains("--surrogate has no name: \"ca,cb,cc,\""),
        "{told}"
    );
    let told = made(&["--surrogate", "ca,cb,cc", "--nvram", ""], &MIRRORS);
    assert!(told.contains("--nvram has no name"), "{told}");
    place.write("small", 1 << 20, 0, &[]);
    let told = made(&["--surrogate", "ca,cb,cc", "--nvram", "small"], &MIRRORS);
    assert!(
        told.contains("has 1M, but 16M are required") && told.contains("at: small"),
        "{told}"
    );
    good(place.shell("ln -s a0 cb"));
    let told = made(&["--surrogate", "ca,cb,cc"], &MIRRORS);
    assert!(
        told.contains("named twice") && told.contains("a0 and cb"),
        "{told}"
    );
    assert!(
        !place.exists("a0") && !place.exists("ca"),
        "nothing is left"
    );
}
