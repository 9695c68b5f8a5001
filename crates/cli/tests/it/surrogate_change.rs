//! An array that is given a surrogate, and goes on without it: served and offline, under load, and with an end in between.

use crate::harness;
use crate::harness::paired::{BOTH, HOME, SLOW, come_home, overlay, paired, serve};
use crate::harness::steps::{
    Fio, content, good, has, number, read_pattern, refused, serve_sleepers, status, stop,
    wait_until, write_pattern,
};
use crate::harness::{Daemon, Place, line_of};
use std::process::Command;
use std::thread;

const SURROGATE: [&str; 2] = ["s0.img", "s1.img"];

/// An array without a surrogate, and two devices for one.
fn plain(name: &str) -> Place {
    let place = Place::new(name);
    let options = ["--level", "raid5", "--init", "zero", "--spares", "1"];
    good(place.create(&HOME, &options));
    for device in SURROGATE {
        place.write(device, 64 << 20, 0, &[]);
    }
    place
}

/// A verb, and the members to work on directly.
fn offline(verb: &[&str], members: &[&str]) -> Vec<String> {
    let words = [verb, &["--offline"], members].concat();
    words.iter().map(|word| word.to_string()).collect()
}

fn run(place: &Place, words: &[String]) -> harness::Run {
    place.run(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A removal takes as long as it takes to bring home what is away: who asks for another change meanwhile is told, and does not wait.
#[test]
fn a_removal_that_takes_its_time_is_not_waited_for() {
    let place = Place::new("change-slow");
    let test = "a_removal_that_takes_its_time_is_not_waited_for";
    if !has(&place, test, &["qemu-io", "nbdkit"]) {
        return;
    }
    let mirrors = ["a0", "a1", "b0", "b1"];
    let log = ["--level", "raid10", "--surrogate", "l", "--log-disk"];
    good(place.create(&mirrors, &log));
    // What goes home is written to a further copy, which takes a second for each write.
    let mut server = Command::new("nbdkit");
    server.args(["-f", "-U", &place.path("slow.sock"), "--filter=delay"]);
    server.args(["file", &place.path("a1"), "delay-write=1"]);
    let server = Daemon::of(server.spawn().expect("it runs"));
    good(place.shell("timeout 20 sh -c 'until [ -S slow.sock ]; do sleep 0.05; done'"));
    let slow = format!("nbd+unix:///?socket={}", place.path("slow.sock"));
    let daemon = serve_sleepers(&place, &[], &["a0", &slow, "b0", "b1", "l"]);
    wait_until(&place, |status| {
        write_pattern(&place, 7, "0", "64K");
        number(&overlay(status)["ahead_bytes"]) > 0
    });
    thread::scope(|scope| {
        let removing = scope.spawn(|| place.run(&REMOVE));
        wait_until(&place, |status| overlay(status)["going_home"] == true);
        for verb in [&REMOVE[..], &ADD] {
            let told = refused(place.run(verb));
            assert!(
                told.contains("removal of the array's surrogate is already running"),
                "{told}"
            );
            assert!(
                told.contains("`restripe surrogate status tank` shows how much is left"),
                "{told}"
            );
        }
        assert!(!removing.is_finished(), "nobody waited for it");
        let told = good(removing.join().expect("no panic there"));
        assert!(told.ends_with("its members are free\n"), "{told}");
    });
    good(read_pattern(&place, 7, "0", "64K"));
    let told = refused(place.run(&REMOVE));
    assert!(told.contains("the array has no surrogate"), "{told}");
    stop(&place, &daemon);
    drop(server);
}

const ADD: [&str; 5] = ["surrogate", "add", "tank", "s0.img", "s1.img"];
const REMOVE: [&str; 3] = ["surrogate", "remove", "tank"];

/// Given while a member is being rebuilt and users write, and taken away again beneath them.
#[test]
fn an_array_is_given_a_surrogate_under_load_and_goes_on_without_it() {
    let place = plain("change-served");
    let test = "an_array_is_given_a_surrogate_under_load_and_goes_on_without_it";
    if !has(&place, test, &["fio", "nbdcopy"]) {
        return;
    }
    let fio = Fio { place: &place };
    let daemon = serve(&place, &["--rate", SLOW], &HOME);
    good(place.run(&["fail", "tank", "b.img"]));
    let load = |options: &str| good(fio.run(&format!("{options} --verify_fatal=1")));
    thread::scope(|scope| {
        let load = scope.spawn(|| load("--verify_state_save=1 --rate_iops=1500"));
        wait_until(&place, |status| number(&status["counters"]["writes"]) > 500);
        good(place.run(&ADD));
        let found = wait_until(&place, |status| {
            number(&overlay(status)["redirected_writes"]) > 100
        });
        assert_eq!(found["tasks"][0]["rate_max_bytes"], 2 << 20, "{found}");
        load.join().expect("no panic there");
    });
    let told = refused(place.run(&REMOVE));
    assert!(
        told.contains("the array is being rebuilt, and writes are redirected to its surrogate"),
        "{told}"
    );
    assert!(
        told.contains("wait for its end with `restripe rebuild tank`"),
        "{told}"
    );
    fio.verify(0);
    let before = content(&place, "before.raw");
    come_home(&place);
    thread::scope(|scope| {
        let load = scope.spawn(|| load("--verify_state_save=1 --rate_iops=1500"));
        let begun = number(&status(&place)["counters"]["writes"]);
        wait_until(&place, |status| {
            number(&status["counters"]["writes"]) > begun + 500
        });
        let told = good(place.run(&REMOVE));
        assert!(told.ends_with("its members are free\n"), "{told}");
        load.join().expect("no panic there");
    });
    let found = status(&place);
    assert!(found["surrogate"].is_null());
    let listed = found["members"].as_array().expect("a list");
    assert_eq!(listed.len(), HOME.len(), "{found}");
    fio.verify(0);
    let after = content(&place, "after.raw");
    assert_eq!(before[24 << 20..], after[24 << 20..], "beside the load");
    // They are free indeed.
    good(place.run(&ADD));
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
    let again = good(place.run(&[&["assemble"][..], &BOTH].concat()));
    assert!(
        again.contains("  surrogate tank-surrogate: healthy"),
        "{again}"
    );
}

#[test]
fn offline_it_is_the_same() {
    let place = plain("change-offline");
    good(run(&place, &offline(&ADD, &HOME)));
    let told = refused(run(&place, &offline(&ADD, &HOME)));
    assert!(told.contains("the array has a surrogate already"), "{told}");
    let told = good(place.run(&[&["assemble"][..], &BOTH].concat()));
    assert!(
        told.contains("  surrogate tank-surrogate: healthy"),
        "{told}"
    );
    good(run(&place, &offline(&REMOVE, &BOTH)));
    let told = good(place.run(&[&["assemble"][..], &HOME].concat()));
    assert!(!told.contains("surrogate"), "{told}");
    let told = refused(run(&place, &offline(&REMOVE, &HOME)));
    assert!(told.contains("the array has no surrogate"), "{told}");
    let examined = place.run(&["examine", "s0.img"]);
    assert!(!examined.stdout.contains("tank"), "{}", examined.stdout);
}

/// One whose members are gone, with nothing there, is taken off the record, and another comes in its place.
#[test]
fn a_surrogate_that_is_gone_makes_room_for_another() {
    let place = paired("change-gone");
    let daemon = place.serve(&HOME);
    let told = good(place.run(&REMOVE));
    assert!(told.contains("are unchanged"), "{told}");
    let told = refused(place.run(&ADD));
    assert!(
        told.contains("already contains the array \"tank-surrogate\""),
        "{told}"
    );
    good(place.run(&[&ADD[..], &["--force", "--yes"]].concat()));
    assert_eq!(status(&place)["surrogate"]["state"], "healthy");
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}

/// A member that the array has failed is still there, and bears a superblock.
#[test]
fn a_failed_member_of_a_surrogate_is_freed_with_it() {
    let place = Place::new("surrogate-failed-freed");
    let test = "a_failed_member_of_a_surrogate_is_freed_with_it";
    if !has(&place, test, &["qemu-io"]) {
        return;
    }
    let home = ["a0", "a1", "b0", "b1"];
    let log = ["--level", "raid10", "--surrogate", "l", "--log-disk"];
    good(place.create(&home, &log));
    good(place.run(&["examine", "l"]));
    let daemon = serve_sleepers(&place, &[], &[&home[..], &["l"]].concat());
    write_pattern(&place, 0x5a, "0", "64K");
    good(place.run(&["fail", "tank", "l", "--yes"]));
    let told = place.run(&["surrogate", "remove", "tank"]);
    assert_eq!(told.status, 0, "{}", told.stderr);
    let left = good(place.run(&["examine", "l"]));
    assert!(left.contains("no Restripe superblock"), "{left}");
    stop(&place, &daemon);
}

#[test]
fn what_cannot_be_a_surrogate_is_refused_and_untouched() {
    let place = plain("change-refused");
    let daemon = place.serve(&HOME);
    place.write("tiny.img", 64 << 10, 0, &[]);
    for (members, word) in [
        (&["s0.img"][..], "a surrogate with one member"),
        (&["s0.img", "s0.img"], "named twice"),
        (&["s0.img", "a.img"], "a.img"),
        (&["s0.img", "tiny.img"], "needs at least"),
        (&["s0.img", "nowhere.img"], "nowhere.img"),
    ] {
        let run = place.run(&[&["surrogate", "add", "tank"][..], members].concat());
        assert_ne!(run.status, 0, "{members:?}");
        assert!(run.stderr.contains(word), "{members:?}: {}", run.stderr);
    }
    let run = place.run(&[
        "surrogate",
        "add",
        "tank",
        "s0.img",
        "d.img",
        "--force",
        "--yes",
    ]);
    assert!(
        run.status == 1 && run.stderr.contains("in the array already"),
        "{}",
        run.stderr
    );
    let empty = place.bytes("s0.img");
    assert!(empty.iter().all(|byte| *byte == 0), "nothing was written");
    assert!(status(&place)["surrogate"].is_null());
    drop(daemon);
}

/// It would have stopped, and not have started again.
#[test]
fn a_run_that_is_recorded_keeps_its_engine() {
    let place = plain("change-recorded");
    let daemon = serve(&place, &["--record", "run.rec"], &HOME);
    let told = refused(place.run(&ADD));
    assert!(told.contains("a recorded run"), "{told}");
    assert_eq!(status(&place)["state"], "healthy");
    assert!(place.bytes("s0.img").iter().all(|byte| *byte == 0));
    drop(daemon);
}

/// The power goes between the surrogate's superblocks and the array's. (Among the array's: a script of the engine's,
/// `a_surrogate_comes_on_record_and_off_it_whole`.)
#[test]
fn an_end_in_between_leaves_an_array_that_starts() {
    let place = plain("change-between");
    if !has(
        &place,
        "an_end_in_between_leaves_an_array_that_starts",
        &["qemu-io"],
    ) {
        return;
    }
    let daemon = place.serve(&HOME);
    write_pattern(&place, 7, "3M", "1M");
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
    let keep = |from: &str, to: &str| {
        good(place.shell(&format!("for m in a b c d; do cp $m.{from} $m.{to}; done")));
    };
    let still = |members: &[&str]| {
        let daemon = place.serve(members);
        good(read_pattern(&place, 7, "3M", "1M"));
        good(place.run(&["stop", "tank"]));
        assert_eq!(daemon.wait(), 0);
    };
    keep("img", "before");
    good(run(&place, &offline(&ADD, &HOME)));
    keep("img", "after");
    // The surrogate is made, and nobody has it on record.
    keep("before", "img");
    let told = refused(place.run(&[&["assemble"][..], &BOTH].concat()));
    assert!(told.contains("omit these members"), "{told}");
    still(&HOME);
    keep("after", "img");
    still(&BOTH);
    // All the same on the way out: off the record, and its members not wiped.
    good(place.shell("cp s0.img s0.keep; cp s1.img s1.keep"));
    good(run(&place, &offline(&REMOVE, &BOTH)));
    good(place.shell("cp s0.keep s0.img; cp s1.keep s1.img"));
    let told = refused(place.run(&[&["assemble"][..], &BOTH].concat()));
    assert!(
        line_of(&told, "no longer uses its surrogate").contains("tank"),
        "{told}"
    );
    still(&HOME);
    // Some of them are wiped, as many as its redundancy does not bear: what has begun is as good as done.
    good(place.shell("truncate -s 0 s0.img; truncate -s 64M s0.img"));
    let told = place.run(&[&["assemble"][..], &BOTH].concat());
    assert_eq!(told.status, 0, "{}", told.stderr);
    let told = line_of(&told.stderr, "no longer uses its surrogate");
    assert!(told.contains("s1.img omitted"), "{told}");
    still(&BOTH);
    // Of one that is not all here, and of which nothing is wiped, nobody can tell.
    let less = [&HOME[..], &["s1.img"]].concat();
    let told = refused(place.run(&[&["assemble"][..], &less].concat()));
    assert!(told.contains("no longer uses its surrogate"), "{told}");
    assert!(!told.contains("minority"), "{told}");
}

/// Killed as soon as the surrogate is made: whether the array has it on record by then is a matter of luck, and either is
/// an array that starts.
#[test]
fn killed_in_between_it_has_the_surrogate_or_has_not() {
    let test = "killed_in_between_it_has_the_surrogate_or_has_not";
    for round in 0..4 {
        let place = plain(&format!("change-killed-{round}"));
        if !has(&place, test, &["qemu-io"]) {
            return;
        }
        let daemon = place.serve(&HOME);
        write_pattern(&place, 7, "3M", "1M");
        thread::scope(|scope| {
            let adding = scope.spawn(|| place.run(&ADD));
            let made = "head -c 64K s0.img | grep -qa tank-surrogate";
            while !adding.is_finished() && place.shell(made).status != 0 {
                thread::yield_now();
            }
            daemon.kill();
            adding.join().expect("no panic there");
        });
        let both = place.run(&[&["assemble"][..], &BOTH].concat());
        let members = match both.status {
            0 => &BOTH[..],
            _ => &HOME,
        };
        let left_out = both.stderr.contains("omit these members");
        // A superblock of the surrogate's that is not there yet is a member's that carries nothing.
        assert!(
            both.status == 0 || left_out || both.stderr.contains("the surrogate"),
            "{}",
            both.stderr
        );
        let daemon = place.serve(members);
        good(read_pattern(&place, 7, "3M", "1M"));
        drop(daemon);
    }
}

/// Killed before the surrogate's superblocks are written: a daemon that is given its devices all the same lets them go.
#[test]
fn devices_that_a_killed_add_left_blank_are_added_again() {
    let place = plain("change-blank");
    let daemon = place.serve(&BOTH);
    good(place.run(&ADD));
    assert!(!status(&place)["surrogate"].is_null());
    let told = refused(place.run(&ADD));
    assert!(told.contains("has a surrogate already"), "{told}");
    drop(daemon);
}
