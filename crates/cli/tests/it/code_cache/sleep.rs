//! Mirrors that sleep: what the operator's command hears, and one that fails or hangs.

use super::{CACHE, HOME, is_destaged, of_mirrors, serve};
use crate::harness::steps::{Fio, PATIENCE, good, has, overlay, refused, status, stop, wait_until};
use crate::harness::{Daemon, Place};
use serde_json::Value;
use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

/// The operator's command hears who may stand still and who is to turn; fio sees what it wrote all the while.
#[test]
fn mirrors_sleep_and_wake_by_the_operators_command() {
    let place = of_mirrors("code-cache-sleep");
    let test = "mirrors_sleep_and_wake_by_the_operators_command";
    good(place.shell(
        "printf '#!/bin/sh\\necho \"$1 $(basename $2)\" >> told\\n' > power.sh; chmod +x power.sh; touch told",
    ));
    let bad = place.run(&["serve", "--power", "hdparm", "a0"]);
    assert_eq!(bad.status, 2, "{}", bad.stderr);
    if !has(&place, test, &["fio"]) {
        return;
    }
    let told = |word: &str| {
        let bytes = place.bytes("told");
        let text = String::from_utf8(bytes).expect("letters");
        let of = text.lines().filter_map(|line| line.strip_prefix(word));
        let mut of: Vec<String> = of.map(|name| name.trim().to_string()).collect();
        of.sort();
        of
    };
    let mirrors = ["a1", "b1", "c1", "d1"];
    let fio = Fio { place: &place };
    let daemon = serve(&place, &["--power", "exec:./power.sh"], &[]);
    let asleep = |status: &Value| overlay(status, "mirrors_asleep") == 4;
    wait_until(&place, asleep);
    assert_eq!(told("standby"), mirrors);
    good(fio.run("--verify_state_save=1 --verify_fatal=1 --end_fsync=1"));
    let found = status(&place);
    assert!(asleep(&found), "they sleep through it: {found}");
    assert!(told("wake").is_empty());
    is_destaged(&place);
    assert_eq!(told("wake"), mirrors);
    fio.verify(0);
    // A lost disk of those that are awake wakes its mirror.
    wait_until(&place, asleep);
    good(place.run(&["fail", "tank", "a0"]));
    fio.verify(0);
    stop(&place, &daemon);
}

/// The words of a daemon whose command is this script, into a file.
fn serve_told(place: &Place, script: &str) -> Daemon {
    let script = format!("printf '#!/bin/sh\\n{script}\\n' > power.sh; chmod +x power.sh");
    good(place.shell(&script));
    let members = [&HOME[..], &CACHE].concat();
    let mut words = vec!["serve", "--unix", "nbd.sock", "--standby-after", "1s"];
    words.extend(["--io-timeout", "1s", "--power", "exec:./power.sh"]);
    words.extend(members);
    let mut command = place.command(&words);
    let said = File::create(place.path("said")).expect("a file for what it says");
    place.await_service(command.stderr(said))
}

/// A command that fails leaves mirrors awake, and is told with its reason and what it said: once.
#[test]
fn an_operators_command_that_fails_is_told() {
    let place = of_mirrors("code-cache-fails");
    for program in ["./nowhere", "nowhere-in-path", "/etc/passwd"] {
        let command = format!("exec:{program}");
        let told = refused(place.run(&["serve", "--power", &command, "a0", "a1"]));
        assert!(told.contains(program), "{told}");
    }
    let daemon = serve_told(&place, "echo no; echo disk >&2; exit 3");
    let restless = |status: &Value| overlay(status, "mirrors_restless") == 4;
    assert_eq!(wait_until(&place, restless)["state"], "healthy");
    stop(&place, &daemon);
    let said = String::from_utf8(place.bytes("said")).expect("letters");
    for mirror in ["a1", "b1", "c1", "d1"] {
        let told = format!(
            "restripe: {mirror}: ./power.sh standby: exit status: 3; the mirror stays active: no disk"
        );
        assert_eq!(said.matches(&told).count(), 1, "{said}");
    }
}

/// A stop does not wait for a command that hangs, leaves nothing of it behind, and costs no member.
#[test]
fn a_stop_ends_an_operators_command_that_hangs() {
    let place = of_mirrors("code-cache-hangs");
    let script = "[ $1 = wake ] || { sleep 987 & echo $! >> told; echo talks; wait; }";
    let daemon = serve_told(&place, script);
    let told = || String::from_utf8(place.bytes("told")).expect("letters");
    let deadline = Instant::now() + PATIENCE;
    while !place.exists("told") || told().lines().count() < 4 {
        assert!(Instant::now() < deadline, "all mirrors are told");
        thread::sleep(Duration::from_millis(50));
    }
    let begun = Instant::now();
    stop(&place, &daemon);
    assert!(begun.elapsed() < Duration::from_secs(30));
    let left = "for p in $(cat told); do kill -0 $p && grep -v '[)] Z' /proc/$p/stat; done; true";
    assert_eq!(good(place.shell(left)), "");
    let said = String::from_utf8(place.bytes("said")).expect("letters");
    assert!(
        !said.contains("talks") && !said.contains("failed"),
        "{said}"
    );
}
