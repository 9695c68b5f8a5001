//! Arrays of mirrors whose first copies go ahead, with a log disk (GRAID) and without (ERAID), by the command alone: killed, and
//! without a disk.

use crate::harness::Place;
use crate::harness::steps::{
    Fio, comes_home, good, has, number, overlay, read_pattern, refused, serve_sleepers, status,
    stop, wait_until, write_pattern,
};
use serde_json::Value;

const HOME: [&str; 4] = ["a0", "a1", "b0", "b1"];

fn writes(fio: &Fio) {
    good(fio.run("--verify_state_save=1 --verify_fatal=1 --end_fsync=1"));
}

/// A command for `--power` that succeeds at once: image files have no spindle that could stop.
fn power_command(place: &Place) -> String {
    good(place.shell("printf '#!/bin/sh\\n' > power; chmod +x power"));
    format!("exec:{}", place.path("power"))
}

/// Either of log and first copy may go, with a kill or without.
#[test]
fn a_log_disk_stands_in_for_first_copies_and_they_for_it() {
    let place = Place::new("ahead-graid");
    let test = "a_log_disk_stands_in_for_first_copies_and_they_for_it";
    if !has(&place, test, &["fio"]) {
        return;
    }
    let log = ["--level", "raid10", "--surrogate", "l", "--log-disk"];
    good(place.create(&HOME, &log));
    let fio = Fio { place: &place };
    let all = [&HOME[..], &["l"]].concat();
    let daemon = serve_sleepers(&place, &[], &all);
    writes(&fio);
    let found = status(&place);
    assert!(overlay(&found, "ahead_bytes") > 0, "{found}");
    assert_eq!(overlay(&found, "exposed_bytes"), 0, "{found}");
    // The log has what a first copy takes with it.
    good(place.run(&["fail", "tank", "a0", "--yes"]));
    fio.verify(0);
    daemon.kill();
    let daemon = serve_sleepers(&place, &["--degraded"], &["a1", "b0", "b1", "l"]);
    fio.verify(0);
    good(place.run(&["add", "tank", "a0"]));
    comes_home(&place);
    wait_until(&place, |status| status["state"] == "healthy");
    fio.verify(0);
    writes(&fio);
    let found = wait_until(&place, |status| overlay(status, "ahead_bytes") > 0);
    assert_eq!(overlay(&found, "away_bytes"), 0, "{found}");
    daemon.kill();
    // First copies have what the log disk takes with it.
    let daemon = serve_sleepers(&place, &["--degraded"], &HOME);
    fio.verify(0);
    wait_until(&place, |status| status["tasks"] == serde_json::json!([]));
    good(place.run(&["fail", "tank", "a0", "--yes"]));
    fio.verify(0);
    stop(&place, &daemon);
}

/// Without its log disk an array goes on when that is asked for, or when all is at home.
#[test]
fn a_log_disk_is_not_left_out_by_the_way() {
    let place = Place::new("ahead-left-out");
    let test = "a_log_disk_is_not_left_out_by_the_way";
    if !has(&place, test, &["qemu-io"]) {
        return;
    }
    let log = ["--level", "raid10", "--surrogate", "l", "--log-disk"];
    good(place.create(&HOME, &log));
    let all = [&HOME[..], &["l"]].concat();
    let daemon = serve_sleepers(&place, &[], &all);
    stop(&place, &daemon);
    good(place.run(&[&["assemble"][..], &HOME].concat()));
    for killed in [false, true] {
        let daemon = serve_sleepers(&place, &[], &all);
        // First copies are believed once all is home and in step.
        comes_home(&place);
        wait_until(&place, |status| {
            write_pattern(&place, 7, "3M", "1M");
            overlay(status, "ahead_bytes") > 0
        });
        match killed {
            true => daemon.kill(),
            false => stop(&place, &daemon),
        }
        let told = refused(place.run(&[&["assemble"][..], &HOME].concat()));
        assert!(told.contains("omit the log disk"), "{told}");
        assert!(told.contains("--degraded"), "{told}");
    }
    let daemon = serve_sleepers(&place, &["--degraded"], &HOME);
    good(read_pattern(&place, 7, "3M", "1M"));
    wait_until(&place, |status| status["tasks"] == serde_json::json!([]));
    stop(&place, &daemon);
    good(place.run(&[&["assemble"][..], &HOME].concat()));
}

/// An old copy of a log disk, put back after a clean stop, is refused; the way out that the refusal names loses nothing.
#[test]
fn an_old_log_disk_is_left_out_as_its_refusal_says() {
    let place = Place::new("ahead-old-log");
    if !has(
        &place,
        "an_old_log_disk_is_left_out_as_its_refusal_says",
        &["qemu-io"],
    ) {
        return;
    }
    let log = ["--level", "raid10", "--surrogate", "l", "--log-disk"];
    good(place.create(&HOME, &log));
    let all = [&HOME[..], &["l"]].concat();
    let daemon = serve_sleepers(&place, &[], &all);
    good(place.shell("cp l l.old"));
    write_pattern(&place, 7, "3M", "1M");
    stop(&place, &daemon);
    good(place.shell("mv l.old l"));
    for lost in [&[][..], &["--accept-loss"]] {
        let told = refused(place.run(&[&["assemble"][..], lost, &all].concat()));
        assert!(
            told.contains("omit its members and pass --degraded"),
            "{told}"
        );
    }
    let daemon = serve_sleepers(&place, &["--degraded"], &HOME);
    good(read_pattern(&place, 7, "3M", "1M"));
    stop(&place, &daemon);
}

/// It has to be asked for, says what is exposed, and keeps it through a kill while no disk is lost.
#[test]
fn without_a_log_first_copies_are_exposed_and_said_to_be() {
    let place = Place::new("ahead-eraid");
    let test = "without_a_log_first_copies_are_exposed_and_said_to_be";
    if !has(&place, test, &["fio"]) {
        return;
    }
    good(place.create(&HOME, &["--level", "raid10"]));
    let fio = Fio { place: &place };
    let eraid = ["--redirect", "eraid"];
    let daemon = serve_sleepers(&place, &eraid, &HOME);
    writes(&fio);
    let found = wait_until(&place, |status| overlay(status, "exposed_bytes") > 0);
    assert_eq!(found["surrogate"]["state"], "none");
    let text = place.run(&["status", "tank"]);
    assert!(text.stdout.contains("EXPOSED"), "{}", text.stdout);
    daemon.kill();
    let daemon = serve_sleepers(&place, &eraid, &HOME);
    fio.verify(0);
    wait_until(&place, |status| status["tasks"] == serde_json::json!([]));
    writes(&fio);
    // What only first copies have is not given up by the way.
    wait_until(&place, |status| overlay(status, "exposed_bytes") > 0);
    let told = refused(place.run(&["fail", "tank", "b0", "--yes"]));
    assert!(told.contains("that no other member holds"), "{told}");
    assert!(told.contains("--accept-loss"), "{told}");
    assert_eq!(status(&place)["state"], "healthy");
    comes_home(&place);
    good(place.run(&["fail", "tank", "b0", "--yes"]));
    fio.verify(0);
    stop(&place, &daemon);
}

/// What first copies alone have is in doubt until the others are in step: all of the array after a kill, and no more than what was written
/// after a stop. So much is told, and lost with a first copy.
#[test]
fn what_is_in_doubt_is_told_and_no_more_is_after_a_stop() {
    let place = Place::new("ahead-in-doubt");
    let test = "what_is_in_doubt_is_told_and_no_more_is_after_a_stop";
    if !has(&place, test, &["qemu-io"]) {
        return;
    }
    good(place.create(&HOME, &["--level", "raid10"]));
    let power = power_command(&place);
    let eraid = [
        "--redirect",
        "eraid",
        "--power",
        &power,
        "--rate",
        "100K..100K",
    ];
    let in_doubt = |status: &Value| number(&status["in_doubt_bytes"]);
    let exposes = |place: &Place| {
        let daemon = serve_sleepers(place, &eraid[..4], &HOME);
        wait_until(place, |status| status["tasks"] == serde_json::json!([]));
        wait_until(place, |status| overlay(status, "mirrors_asleep") == 2);
        write_pattern(place, 7, "3M", "1M");
        let found = wait_until(place, |status| overlay(status, "exposed_bytes") > 0);
        assert_eq!(in_doubt(&found), 0, "{found}");
        daemon
    };
    exposes(&place).kill();
    let daemon = serve_sleepers(&place, &eraid, &HOME);
    let found = status(&place);
    let size = number(&found["size_bytes"]);
    assert!(in_doubt(&found) > size / 2, "{found}");
    let text = good(place.run(&["status", "tank"]));
    assert!(text.contains("DIRTY: up to"), "{text}");
    assert!(
        text.lines()
            .next()
            .is_some_and(|line| line.contains("dirty")),
        "{text}"
    );
    stop(&place, &daemon);
    let daemon = exposes(&place);
    stop(&place, &daemon);
    let daemon = serve_sleepers(&place, &eraid, &HOME);
    let found = status(&place);
    assert!((1..=size / 8).contains(&in_doubt(&found)), "{found}");
    good(read_pattern(&place, 7, "3M", "1M"));
    stop(&place, &daemon);
    // A first copy is lost with it.
    let less = ["assemble", "--degraded", "a1", "b0", "b1"];
    let told = refused(place.run(&less));
    assert!(told.contains("--accept-loss"), "{told}");
    let accepting = [&["assemble", "--accept-loss", "--json"][..], &less[1..]].concat();
    let told = good(place.run(&accepting));
    let told: Value = serde_json::from_str(&told).expect("it is JSON");
    assert!(
        (1..=size / 8).contains(&number(&told["lost_bytes"])),
        "{told}"
    );
}

#[test]
fn first_copies_go_ahead_in_mirrors_only() {
    let place = Place::new("ahead-refused");
    good(place.create(&["a", "b", "c"], &["--level", "raid5"]));
    let words = [
        "serve",
        "--unix",
        "nbd.sock",
        "--redirect",
        "eraid",
        "a",
        "b",
        "c",
    ];
    let told = refused(place.run(&words));
    assert!(told.contains("raid1 or raid10"), "{told}");
}

/// What spindles were at is counted, and joules are estimated by the rating that was given; a start is counted when a mirror is wanted.
#[test]
fn joules_and_starts_are_told_of_mirrors_that_sleep() {
    let place = Place::new("ahead-joules");
    good(place.create(&HOME, &["--level", "raid10"]));
    // What is asked of a mirror waits for the operator's command, which takes its time.
    let script = "#!/bin/sh\\necho $1 $(basename $2) >> told\\n[ $1 = standby ] || sleep 0.5\\n";
    good(place.shell(&format!("printf '{script}' > power.sh; chmod +x power.sh")));
    let rating = "active=8,idle=6,standby=1,start=100J,stop=4J";
    let wrong = place.run(&["serve", "--power-rating", "idle=6", "a0"]);
    assert_eq!(wrong.status, 2, "{}", wrong.stderr);
    let options = [
        "--redirect",
        "eraid",
        "--power",
        "exec:./power.sh",
        "--power-rating",
        rating,
    ];
    let daemon = serve_sleepers(&place, &options, &HOME);
    let stood = |status: &Value| number(&status["members"][1]["spindle"]["standby_ms"]) > 500;
    let found = wait_until(&place, stood);
    let spindle = |status: &Value, member: usize| status["members"][member]["spindle"].clone();
    let told = |status: &Value| {
        let one = |member| {
            let spindle = spindle(status, member);
            (number(&spindle["stops"]), number(&spindle["starts"]))
        };
        [0, 1, 2, 3].map(one)
    };
    assert_eq!(told(&found), [(0, 0), (1, 0), (0, 0), (1, 0)], "{found}");
    assert_eq!(overlay(&found, "starts_a_day_max"), 27);
    assert_eq!(overlay(&found, "starts_left"), 26);
    assert_eq!(spindle(&found, 0)["standby_ms"], 0);
    let text = good(place.run(&["status", "tank"]));
    assert!(
        text.contains("energy, estimated from given (8 W active"),
        "{text}"
    );
    // A first copy that fails is put on record, on mirrors too.
    good(place.run(&["fail", "tank", "a0", "--yes"]));
    let woken = |status: &Value| number(&spindle(status, 1)["starting_ms"]) >= 500;
    let found = wait_until(&place, woken);
    let told = String::from_utf8(place.bytes("told")).expect("letters");
    assert!(told.contains("wake a1"), "{told}");
    let starting = number(&spindle(&found, 1)["starting_ms"]);
    assert!(starting >= 500, "{found}");
    let mut sum = 0;
    for member in 0..4 {
        let spindle = spindle(&found, member);
        let of = |phase: &str| number(&spindle[format!("{phase}_ms")]);
        let (starts, stops) = (number(&spindle["starts"]), number(&spindle["stops"]));
        let worked = 8 * of("active") + 6 * of("idle") + of("standby");
        let wanted = worked / 1000 + 100 * starts + 4 * stops;
        let joules = number(&spindle["joules"]);
        assert!(
            joules.abs_diff(wanted) <= 1,
            "{joules}, not {wanted}: {spindle}"
        );
        sum += joules;
    }
    let all = number(&found["energy"]["joules"]);
    assert!(all.abs_diff(sum) <= 4, "{all}, not {sum}");
    let metrics = good(place.run(&["metrics", "tank"]));
    for name in [
        "restripe_joules_total{",
        "restripe_member_phase_seconds_total{",
    ] {
        assert!(metrics.contains(name), "{metrics}");
    }
    stop(&place, &daemon);
}

/// Said to be borne, exactly what was exposed there is lost.
#[test]
fn a_loss_that_is_accepted_is_told_and_listed() {
    let place = Place::new("ahead-loss");
    if !has(
        &place,
        "a_loss_that_is_accepted_is_told_and_listed",
        &["qemu-io"],
    ) {
        return;
    }
    good(place.create(&HOME, &["--level", "raid10"]));
    let power = power_command(&place);
    let daemon = serve_sleepers(&place, &["--redirect", "eraid", "--power", &power], &HOME);
    // A write that meets mirrors as they spin down wakes them, and reaches both copies.
    wait_until(&place, |status| overlay(status, "mirrors_asleep") == 2);
    write_pattern(&place, 0x5a, "0", "1M");
    let found = wait_until(&place, |status| overlay(status, "exposed_bytes") == 1 << 20);
    let of = |member: usize| found["members"][member]["exposed_bytes"].as_u64();
    assert_eq!(
        [0, 1, 2, 3].map(of),
        [Some(1 << 20), None, Some(1 << 20), None]
    );
    good(place.run(&["fail", "tank", "a0", "--yes", "--accept-loss"]));
    // Every second chunk lay there.
    let found = wait_until(&place, |status| number(&status["lost_bytes"]) > 0);
    assert_eq!(number(&found["lost_bytes"]), 1 << 19, "{found}");
    stop(&place, &daemon);
}

/// Of three members each has first copies: none may go without being asked for.
#[test]
fn every_member_of_an_odd_array_has_first_copies() {
    let place = Place::new("ahead-odd");
    let test = "every_member_of_an_odd_array_has_first_copies";
    if !has(&place, test, &["qemu-io"]) {
        return;
    }
    let members = ["a", "b", "c"];
    good(place.create(&members, &["--level", "raid10"]));
    let daemon = serve_sleepers(&place, &["--redirect", "eraid"], &members);
    // Nothing goes ahead before that is on record.
    wait_until(&place, |status| {
        write_pattern(&place, 0x5a, "0", "1M");
        overlay(status, "exposed_bytes") == 1 << 20
    });
    for member in members {
        let told = refused(place.run(&["fail", "tank", member, "--yes"]));
        assert!(told.contains("--accept-loss"), "{member}: {told}");
    }
    stop(&place, &daemon);
}

/// Image files have no spindle that the kernel knows: who asks for sleep is told, at the start and in the status.
#[test]
fn mirrors_that_cannot_sleep_are_named() {
    let place = Place::new("ahead-restless");
    good(place.create(&HOME, &["--level", "raid10"]));
    let words = [
        "serve",
        "--unix",
        "nbd.sock",
        "--redirect",
        "eraid",
        "--standby-after",
        "1s",
    ];
    let mut command = place.command(&[&words[..], &HOME].concat());
    let told = std::fs::File::create(place.path("told")).expect("a file there");
    let daemon = place.await_service(command.stderr(told));
    let restless = |status: &Value| overlay(status, "mirrors_restless") == 2;
    let found = wait_until(&place, restless);
    assert_eq!(overlay(&found, "mirrors_asleep"), 0, "{found}");
    let text = good(place.run(&["status", "tank"]));
    assert!(text.contains("2 mirrors cannot enter standby"), "{text}");
    stop(&place, &daemon);
    let told = String::from_utf8(place.bytes("told")).expect("letters");
    assert!(
        told.contains("a0 and 3 more cannot enter standby"),
        "{told}"
    );
}

/// First copies have all that a log has which cannot be read: nothing is lost with it, whatever is accepted, after a stop or a kill.
#[test]
fn first_copies_bear_a_log_that_cannot_be_read() {
    let place = Place::new("ahead-log");
    if !has(
        &place,
        "first_copies_bear_a_log_that_cannot_be_read",
        &["qemu-io"],
    ) {
        return;
    }
    let log = ["--level", "raid10", "--surrogate", "l", "--log-disk"];
    let all = [&HOME[..], &["l"]].concat();
    for killed in [false, true] {
        good(place.shell("rm -f a0 a1 b0 b1 l"));
        good(place.create(&HOME, &log));
        let daemon = serve_sleepers(&place, &[], &all);
        // Nothing goes ahead before that is on record.
        let found = wait_until(&place, |status| {
            write_pattern(&place, 0x5a, "1M", "4M");
            overlay(status, "ahead_bytes") >= 4 << 20
        });
        assert_eq!(overlay(&found, "away_bytes"), 0, "{found}");
        match killed {
            true => daemon.kill(),
            false => stop(&place, &daemon),
        }
        // All of its log is zeros: superblocks and maps lie before, in the first MiB.
        place.write("l", 0, 1 << 20, &vec![0; 63 << 20]);
        for option in ["--buffered", "--accept-loss", "--degraded"] {
            let words = ["serve", "--unix", "nbd.sock", option];
            let told = refused(place.run(&[&words[..], &all].concat()));
            assert!(
                told.contains("primary copies hold all data"),
                "{option}: {told}"
            );
        }
        let daemon = serve_sleepers(&place, &["--degraded"], &HOME);
        good(read_pattern(&place, 0x5a, "1M", "4M"));
        let found = wait_until(&place, |status| status["tasks"] == serde_json::json!([]));
        assert_eq!(found["lost_bytes"], 0);
        good(place.run(&["fail", "tank", "a0", "--yes"]));
        good(read_pattern(&place, 0x5a, "1M", "4M"));
        stop(&place, &daemon);
    }
}

#[test]
fn an_operator_takes_a_log_disk_out() {
    let place = Place::new("ahead-log-out");
    if !has(&place, "an_operator_takes_a_log_disk_out", &["qemu-io"]) {
        return;
    }
    let log = ["--level", "raid10", "--surrogate", "l", "--log-disk"];
    good(place.create(&HOME, &log));
    let all = [&HOME[..], &["l"]].concat();
    let words = [
        &["serve", "--unix", "nbd.sock", "--standby-after", "1s"],
        &all[..],
    ]
    .concat();
    let told = std::fs::File::create(place.path("told")).expect("a file there");
    let daemon = place.await_service(place.command(&words).stderr(told));
    // Nothing goes ahead before that is on record.
    wait_until(&place, |status| {
        write_pattern(&place, 0x5a, "1M", "4M");
        overlay(status, "ahead_bytes") >= 4 << 20
    });
    good(place.run(&["fail", "tank", "l", "--yes"]));
    let text = good(place.run(&["status", "tank"]));
    let goes_on = "writes continue without it, and mirrors stay active until a start with a log";
    let without = format!("the log FAILED: {goes_on}");
    assert!(text.contains(&without), "{text}");
    write_pattern(&place, 0xa5, "2M", "1M");
    good(read_pattern(&place, 0x5a, "1M", "1M"));
    good(read_pattern(&place, 0xa5, "2M", "1M"));
    let home = |status: &Value| overlay(status, "ahead_bytes") + overlay(status, "away_bytes") == 0;
    wait_until(&place, home);
    // What was brought to further copies is there without the first.
    good(place.run(&["fail", "tank", "a0", "--yes"]));
    good(read_pattern(&place, 0xa5, "2M", "1M"));
    stop(&place, &daemon);
    let told = String::from_utf8(place.bytes("told")).expect("letters");
    assert!(told.contains(&format!("is missing: {goes_on}")), "{told}");
    assert!(
        !told.contains("writes are refused until a restart"),
        "{told}"
    );
}
