//! The command's contract: exit status, what goes to which stream, and the words that scripts and people rely on.
//! Every test works in a folder of its own and ends the processes that it starts.

use crate::harness::steps::stop;
use crate::harness::{Place, bare, line_of, skipped};
use serde_json::Value;
use std::io::Read;

#[test]
fn wrong_use_is_status_2_and_says_how() {
    let place = Place::new("usage");
    for arguments in [
        &["create"][..],
        &["bogus"],
        &["status", "--bogus"],
        &["create", "t", "--level", "raid7", "x"],
    ] {
        let run = place.run(arguments);
        assert_eq!(run.status, 2, "{arguments:?}: {}", run.stderr);
        assert!(run.stdout.is_empty() && !run.stderr.is_empty());
    }
    let help = place.run(&["--help"]);
    assert_eq!((help.status, help.stderr.as_str()), (0, ""));
    assert!(help.stdout.contains("Usage: restripe <COMMAND>"));
    assert_eq!(
        place.run(&["--version"]).stdout,
        format!("restripe {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn create_makes_images_and_examine_reads_them() {
    let place = Place::new("create");
    let made = place.create(
        &["a.img", "b.img", "c.img", "d.img"],
        &["--level", "raid5", "--spares", "1"],
    );
    assert_eq!(made.status, 0, "{}", made.stderr);
    assert!(
        made.stdout
            .starts_with("created tank: RAID-5 left-symmetric, 4 members, chunk 64K,"),
        "{}",
        made.stdout
    );
    let examined = place.run(&["examine", "--json", "a.img", "d.img"]);
    let value: Value = serde_json::from_str(&examined.stdout).expect("it is JSON");
    assert_eq!(value[0]["array"]["name"], "tank");
    assert_eq!(value[0]["superblocks"].as_array().map(Vec::len), Some(2));
    assert_eq!(value[1]["array"]["members"][3]["state"], "spare");
    let text = place.run(&["examine", "a.img"]).stdout;
    assert!(
        text.contains("array \"tank\"") && text.contains("write hole closed by ppl"),
        "{text}"
    );
}

#[test]
fn what_is_there_is_not_overwritten_unasked() {
    let place = Place::new("overwrite");
    let names = ["a.img", "b.img"];
    assert_eq!(place.create(&names, &["--level", "raid1"]).status, 0);
    let before = place.bytes("a.img");
    let refused = place.create(&names, &["--level", "raid1"]);
    assert_eq!(refused.status, 1);
    assert!(
        refused
            .stderr
            .contains("already contains the array \"tank\"")
            && refused.stderr.contains("--force")
    );
    let unasked = place.create(&names, &["--level", "raid1", "--force"]);
    assert_eq!(unasked.status, 1, "nobody is there to say yes");
    assert!(unasked.stderr.contains("--yes"), "{}", unasked.stderr);
    assert!(before == place.bytes("a.img"), "nothing was touched");
    assert_eq!(
        place
            .create(&names, &["--level", "raid1", "--force", "--yes"])
            .status,
        0
    );
    assert!(before != place.bytes("a.img"));
}

#[test]
fn a_file_system_is_not_overwritten_either() {
    let place = Place::new("ext4");
    place.write("a.img", 64 << 20, 1080, &[0x53, 0xef]);
    let refused = place.create(&["a.img", "b.img"], &["--level", "raid1"]);
    assert_eq!(refused.status, 1);
    assert!(
        refused.stderr.contains("an ext2/3/4 file system"),
        "{}",
        refused.stderr
    );
    assert!(
        !place.exists("b.img"),
        "the image made for an array that was not made is gone"
    );
}

#[test]
fn mistakes_are_told_before_anything_is_touched() {
    let place = Place::new("mistakes");
    let twice = place.create(&["a.img", "a.img"], &["--level", "raid1"]);
    assert!(
        twice.status == 2 && twice.stderr.contains("named twice"),
        "{}",
        twice.stderr
    );
    let few = place.create(&["a.img", "b.img"], &["--level", "raid6"]);
    assert!(few.status == 1 && !place.exists("a.img"), "{}", few.stderr);
    let name = place.run(&["create", "no/name", "--level", "raid1", "a.img", "b.img"]);
    assert!(
        name.status == 2 && name.stderr.contains("not a name"),
        "{}",
        name.stderr
    );
    let missing = place.run(&["create", "t", "--level", "raid1", "a.img", "b.img"]);
    assert!(
        missing.status == 1 && missing.stderr.contains("--image-size"),
        "{}",
        missing.stderr
    );
    let nobody = place.run(&["status", "nobody"]);
    assert!(
        nobody.status == 1 && nobody.stderr.contains("restripe serve"),
        "{}",
        nobody.stderr
    );
}

#[test]
fn unequal_members_use_the_smallest_and_say_so() {
    let place = Place::new("unequal");
    place.write("big.img", 96 << 20, 0, &[]);
    let made = place.create(&["a.img", "big.img"], &["--level", "raid1"]);
    assert_eq!(made.status, 0, "{}", made.stderr);
    assert!(
        made.stdout.contains("note: 32M of big.img stay unused"),
        "{}",
        made.stdout
    );
}

#[test]
fn a_configuration_says_the_same_as_the_command_line() {
    let place = Place::new("config");
    let config = "[[array]]\nname='tank'\nlevel='raid5'\nimage-size='64M'\nmembers=['a.img','b.img','c.img']\n";
    place.write("tank.toml", 0, 0, config.as_bytes());
    assert_eq!(place.run(&["create", "--config", "tank.toml"]).status, 0);
    let assembled = place.run(&["assemble", "--config", "tank.toml"]);
    assert_eq!(assembled.status, 0, "{}", assembled.stderr);
    assert!(
        assembled.stdout.starts_with("tank: healthy"),
        "{}",
        assembled.stdout
    );
    place.write(
        "bad.toml",
        0,
        0,
        b"[[array]]\nname='tank'\nmembers=[]\nlevle='raid5'\n",
    );
    let bad = place.run(&["create", "--config", "bad.toml"]);
    assert!(
        bad.status == 1 && bad.stderr.contains("levle") && bad.stderr.contains("bad.toml"),
        "{}",
        bad.stderr
    );
}

#[test]
fn a_served_array_is_operated_by_name() {
    let place = Place::new("operate");
    place.create(&["a.img", "b.img", "c.img"], &["--level", "raid5"]);
    let daemon = place.serve(&["a.img", "b.img", "c.img"]);
    let status = place.run(&["status", "tank"]);
    assert!(
        status.stdout.starts_with("tank: healthy\n"),
        "{}",
        status.stdout
    );
    let json: Value =
        serde_json::from_str(&place.run(&["status", "--json", "tank"]).stdout).expect("it is JSON");
    assert_eq!(
        (&json["name"], &json["level"], &json["slots"]),
        (&"tank".into(), &"raid5".into(), &3.into())
    );

    let metrics = place.run(&["metrics", "tank"]).stdout;
    for line in [
        "restripe_state{array=\"tank\",state=\"healthy\"} 1\n",
        "restripe_heat_read_zones{array=\"tank\"} ",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }

    let failed = place.run(&["fail", "tank", "b.img"]);
    assert_eq!(
        (failed.status, failed.stdout.as_str()),
        (0, "b.img failed\n"),
        "{}",
        failed.stderr
    );
    assert!(line_of(&place.run(&["status", "tank"]).stdout, "b.img").contains("failed"));
    let unknown = place.run(&["fail", "tank", "z.img", "--yes"]);
    assert!(
        unknown.status == 1
            && unknown
                .stderr
                .contains("the members are a.img, b.img, c.img"),
        "{}",
        unknown.stderr
    );

    assert_eq!(place.run(&["remove", "tank", "b.img"]).status, 0);
    let added = place.run(&["add", "tank", "b.img"]);
    assert_eq!(added.status, 0, "{}", added.stderr);
    let rebuilt = place.run(&["rebuild", "tank"]);
    assert_eq!(
        (rebuilt.status, rebuilt.stdout.as_str()),
        (0, "tank is healthy\n"),
        "{}",
        rebuilt.stderr
    );

    let stopped = place.run(&["stop", "tank"]);
    assert_eq!(stopped.status, 0, "{}", stopped.stderr);
    assert_eq!(daemon.wait(), 0);
    assert!(
        place
            .run(&["examine", "a.img"])
            .stdout
            .contains("\n  clean, ")
    );
}

#[test]
fn a_scrub_that_finds_nothing_is_a_success() {
    let place = Place::new("scrub");
    place.create(
        &["a.img", "b.img", "c.img"],
        &["--level", "raid5", "--init", "zero"],
    );
    let scrubbed = place.run(&["scrub", "tank", "--offline", "a.img", "b.img", "c.img"]);
    assert_eq!(scrubbed.status, 0, "{}", scrubbed.stderr);
    assert!(
        scrubbed.stdout.ends_with("every row agrees\n"),
        "{}",
        scrubbed.stdout
    );
}

#[test]
fn a_scrub_that_finds_something_is_a_failure_and_to_bring_it_in_sync_is_not() {
    let place = Place::new("rot");
    place.create(
        &["a.img", "b.img", "c.img"],
        &["--level", "raid5", "--init", "zero"],
    );
    place.write("b.img", 0, 40 << 20, b"rotten");
    let offline = ["--offline", "a.img", "b.img", "c.img"];
    let found = place.run(&[&["scrub", "tank"][..], &offline].concat());
    assert!(
        found.status == 1 && found.stderr.contains("--repair"),
        "{} {}",
        found.stdout,
        found.stderr
    );
    let repaired = place.run(&[&["scrub", "tank", "--repair", "--yes"][..], &offline].concat());
    assert_eq!(repaired.status, 0, "{}", repaired.stderr);
    assert_eq!(
        place
            .run(&[&["scrub", "tank"][..], &offline].concat())
            .status,
        0
    );
}

#[test]
fn offline_verbs_check_the_name() {
    let place = Place::new("offline");
    place.create(&["a.img", "b.img"], &["--level", "raid1"]);
    let wrong = place.run(&["status", "other", "--offline", "a.img", "b.img"]);
    assert!(
        wrong.status == 1 && wrong.stderr.contains("\"tank\", not \"other\""),
        "{}",
        wrong.stderr
    );
    let right = place.run(&["status", "tank", "--offline", "a.img", "b.img"]);
    assert!(
        right.status == 0 && right.stdout.starts_with("tank: healthy"),
        "{}",
        right.stderr
    );
}

#[test]
fn a_verb_that_fails_offline_leaves_the_array_clean() {
    let place = Place::new("offline-clean");
    let names = ["a.img", "b.img", "c.img"];
    place.create(&names, &["--level", "raid5", "--init", "zero"]);
    let before = names.map(|name| place.bytes(name));
    let other = place.run(&[&["fail", "other", "a.img", "--offline"][..], &names].concat());
    assert_eq!(other.status, 1);
    assert!(
        before == names.map(|name| place.bytes(name)),
        "another array is not even started"
    );
    for verb in [
        &["fail", "tank", "z.img"][..],
        &["remove", "tank", "z.img"],
        &["add", "tank", "z.img"],
        &["replace", "tank", "z.img", "y.img"],
    ] {
        let run = place.run(&[verb, &["--offline"], &names].concat());
        assert_eq!(run.status, 1, "{verb:?}: {}", run.stderr);
        let told = place.run(&["examine", "a.img"]).stdout;
        assert!(!told.contains("not stopped cleanly"), "{verb:?}: {told}");
    }
}

#[test]
fn a_look_offline_changes_nothing() {
    let place = Place::new("look");
    let names = ["a.img", "b.img", "c.img"];
    place.create(&names, &["--level", "raid5"]);
    // As a kill leaves them, and one member short.
    place.serve(&names).kill();
    let before = names.map(|name| place.bytes(name));
    for members in [&names[..], &names[..2]] {
        for verb in ["status", "metrics"] {
            let run = place.run(&[&[verb, "tank", "--offline"][..], members].concat());
            assert_eq!(run.status, 0, "{verb}: {}", run.stderr);
        }
    }
    assert!(
        before == names.map(|name| place.bytes(name)),
        "not a byte was written"
    );
}

#[test]
fn operated_offline_an_array_is_the_same_as_served() {
    let place = Place::new("offline-work");
    place.create(
        &["a.img", "b.img", "c.img"],
        &["--level", "raid5", "--init", "zero"],
    );
    place.write("d.img", 64 << 20, 0, &[]);
    let three = ["--offline", "a.img", "b.img", "c.img"];
    let four = ["--offline", "a.img", "b.img", "c.img", "d.img"];
    for (verb, members) in [
        (&["fail", "tank", "b.img"][..], &three[..]),
        (&["add", "tank", "d.img"], &three),
    ] {
        let run = place.run(&[verb, members].concat());
        assert_eq!(run.status, 0, "{verb:?}: {}", run.stderr);
    }
    let rebuilt = place.run(&[&["rebuild", "tank"][..], &four].concat());
    assert_eq!(
        (rebuilt.status, rebuilt.stdout.as_str()),
        (0, "tank is healthy\n"),
        "{}",
        rebuilt.stderr
    );
    let assembled = place.run(&["assemble", "a.img", "c.img", "d.img"]);
    assert!(
        assembled.stdout.starts_with("tank: healthy"),
        "{} {}",
        assembled.stdout,
        assembled.stderr
    );
}

#[test]
fn a_signal_ends_a_daemon_cleanly() {
    let place = Place::new("signal");
    place.create(&["a.img", "b.img"], &["--level", "raid1"]);
    let daemon = place.serve(&["a.img", "b.img"]);
    daemon.terminate();
    assert_eq!(daemon.wait(), 0);
    assert!(
        place
            .run(&["examine", "a.img"])
            .stdout
            .contains("\n  clean, ")
    );
    assert!(!place.exists("nbd.sock"), "the socket is gone");
}

#[test]
fn a_signal_and_a_clean_end_are_in_the_journal() {
    let place = Place::new("journal");
    place.create(&["a.img", "b.img"], &["--level", "raid1"]);
    let ended = place.shell(
        "exec 3< <(exec restripe serve --unix nbd.sock a.img b.img 2>journal)
         id=$!; read -u 3 uri
         restripe rebuild tank --watch && kill -TERM $id; wait $id; echo \"status $?\"; cat journal",
    );
    let expected = "\
tank is healthy
status 0
restripe: tank: serving, generation 1, 0 rows recovered
restripe: stopping on a signal
restripe: tank: stopped and marked clean
";
    assert_eq!(bare(&ended.stdout), expected, "{}", ended.stderr);
}

#[test]
fn an_impossible_size_of_an_image_is_told() {
    let place = Place::new("size");
    for size in ["9000000T", "16000000T"] {
        let members = ["--level", "1", "--image-size", size, "a.img", "b.img"];
        let refused = place.run(&[&["create", "tank"][..], &members].concat());
        assert!(
            refused.status == 1 && refused.stderr.contains(&format!("as large as {size}")),
            "{}",
            refused.stderr
        );
        assert!(!place.exists("a.img"));
    }
    let limited =
        place.shell("ulimit -f 1000; restripe create tank --level 1 --image-size 64M a.img b.img");
    assert!(
        limited.status == 1 && limited.stderr.contains("as large as 64M"),
        "{}",
        limited.stderr
    );
    assert!(!place.exists("a.img"), "what was made is taken back");
}

#[test]
fn a_killed_daemon_is_replaced_at_once_on_the_same_sockets() {
    let place = Place::new("kill");
    place.create(&["a.img", "b.img"], &["--level", "raid1"]);
    let daemon = place.serve(&["a.img", "b.img"]);
    daemon.kill();
    assert!(place.exists("nbd.sock"), "what a kill leaves");
    let again = place.serve(&["a.img", "b.img"]);
    assert!(
        place
            .run(&["status", "tank"])
            .stdout
            .starts_with("tank: healthy")
    );
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(again.wait(), 0);
}

#[test]
fn two_daemons_never_share_a_member() {
    let place = Place::new("shared");
    place.create(&["a.img", "b.img"], &["--level", "raid1"]);
    let daemon = place.serve(&["a.img", "b.img"]);
    let second = place.run(&["assemble", "a.img", "b.img"]);
    assert!(
        second.status == 1 && second.stderr.contains("is in use"),
        "{}",
        second.stderr
    );
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_member_may_be_an_export_of_another_daemon() {
    let place = Place::new("remote");
    place.create(&["a.img", "b.img"], &["--level", "raid1"]);
    let inner = place.serve(&["a.img", "b.img"]);
    let remote = format!("nbd+unix:///?socket={}", place.path("nbd.sock"));
    let made = place.run(&[
        "create",
        "outer",
        "--level",
        "raid1",
        "--image-size",
        "64M",
        &remote,
        "c.img",
    ]);
    assert_eq!(made.status, 0, "{}", made.stderr);
    let examined = place.run(&["examine", &remote]);
    assert!(
        examined.stdout.contains("array \"outer\""),
        "{} {}",
        examined.stdout,
        examined.stderr
    );
    let assembled = place.run(&["assemble", &remote, "c.img"]);
    assert!(
        assembled.stdout.starts_with("outer: healthy"),
        "{} {}",
        assembled.stdout,
        assembled.stderr
    );
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(inner.wait(), 0);
}

#[test]
fn a_recorded_run_replays_to_the_same_actions() {
    let place = Place::new("record");
    place.create(&["a.img", "b.img"], &["--level", "raid1"]);
    let daemon = place.serve(&["--record", "run.rec", "a.img", "b.img"]);
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(daemon.wait(), 0);
    let replayed = place.run(&["sim", "--replay", "run.rec"]);
    assert!(
        replayed.status == 0 && replayed.stdout.contains("all actions equal"),
        "{}",
        replayed.stderr
    );
}

#[test]
fn a_record_is_written_over_nothing_but_records() {
    let place = Place::new("record-over");
    place.create(&["a.img", "b.img"], &["--level", "raid1"]);
    let before = place.bytes("a.img");
    place.write("notes", 0, 0, b"precious");
    for (file, why) in [
        ("a.img", "is not a record"),
        ("notes", "is not a record"),
        ("nowhere/run.rec", "No such file"),
        (".", "Is a directory"),
    ] {
        let refused = place.run(&["serve", "--record", file, "a.img", "b.img"]);
        assert!(
            refused.status == 1
                && refused
                    .stderr
                    .contains(&format!("cannot record in {file}: "))
                && refused.stderr.contains(why),
            "{file}: {}",
            refused.stderr
        );
    }
    assert!(before == place.bytes("a.img") && place.bytes("notes") == b"precious");
    for _ in 0..2 {
        let daemon = place.serve(&["--record", "run.rec", "a.img", "b.img"]);
        assert_eq!(place.run(&["stop", "tank"]).status, 0);
        assert_eq!(daemon.wait(), 0);
        assert_eq!(place.run(&["sim", "--replay", "run.rec"]).status, 0);
    }
}

#[test]
fn a_member_is_replaced_while_it_serves() {
    let place = Place::new("replace");
    place.create(&["a.img", "b.img"], &["--level", "raid1"]);
    place.write("new.img", 80 << 20, 0, &[]);
    let daemon = place.serve(&["a.img", "b.img"]);
    let replaced = place.run(&["replace", "tank", "a.img", "new.img"]);
    assert_eq!(replaced.status, 0, "{}", replaced.stderr);
    let status = place.run(&["status", "tank"]).stdout;
    assert!(
        status.starts_with("tank: healthy") && line_of(&status, "new.img").contains("active"),
        "{status}"
    );
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_failed_member_comes_back_under_its_own_name() {
    let place = Place::new("back");
    let names = ["a.img", "b.img", "c.img"];
    assert_eq!(place.create(&names, &["--level", "raid5"]).status, 0);
    let daemon = place.serve(&names);
    assert_eq!(place.run(&["fail", "tank", "b.img"]).status, 0);
    let back = place.run(&["add", "tank", "b.img"]);
    assert_eq!(back.status, 0, "{}", back.stderr);
    assert_eq!(place.run(&["rebuild", "tank"]).status, 0);
    let twice = place.run(&["add", "tank", "b.img"]);
    assert!(
        twice.status == 1 && twice.stderr.contains("in the array already, and is active"),
        "{}",
        twice.stderr
    );
    place.write("small.img", 4096, 0, &[]);
    assert_eq!(place.run(&["add", "tank", "small.img"]).status, 1);
    let status = place.run(&["status", "tank"]).stdout;
    assert!(
        !status.contains("small.img"),
        "what was refused is gone: {status}"
    );
    drop(daemon);
}

/// A failed member's file is deleted and another is made under its name, while the daemon has the first one
/// open. `add` opens the new file.
#[test]
fn a_file_that_took_the_name_of_a_failed_member_is_the_one_added() {
    let place = Place::new("renamed");
    let names = ["a.img", "b.img"];
    assert_eq!(place.create(&names, &["--level", "raid1"]).status, 0);
    let daemon = place.serve(&names);
    assert_eq!(place.run(&["fail", "tank", "b.img"]).status, 0);
    let size = place.bytes("b.img").len();
    assert_eq!(place.shell("rm b.img").status, 0);
    let missing = place.run(&["add", "tank", "b.img"]);
    assert_eq!(missing.status, 1, "{}", missing.stderr);
    let other = format!("truncate -s {size} b.img");
    assert_eq!(place.shell(&other).status, 0);
    let taken = place.run(&["add", "tank", "b.img"]);
    assert_eq!(taken.status, 0, "{}", taken.stderr);
    assert_eq!(place.run(&["rebuild", "tank"]).status, 0);
    stop(&place, &daemon);
    let examined = place.run(&["examine", "b.img"]);
    assert_eq!(examined.status, 0, "{}", examined.stderr);
}

/// The same of `replace`, also of a file that was renamed.
#[test]
fn a_file_that_took_the_name_of_a_failed_member_is_the_one_that_replaces() {
    for (number, away) in ["rm c.img", "mv c.img former.img"].iter().enumerate() {
        let place = Place::new(&format!("renamed-replaces-{number}"));
        let names = ["a.img", "b.img", "c.img"];
        assert_eq!(place.create(&names, &["--level", "raid1"]).status, 0);
        let daemon = place.serve(&names);
        assert_eq!(place.run(&["fail", "tank", "c.img"]).status, 0);
        let size = place.bytes("c.img").len();
        assert_eq!(place.shell(away).status, 0);
        let replace = ["replace", "tank", "a.img", "c.img"];
        let missing = place.run(&replace);
        assert_eq!(missing.status, 1, "{}{}", missing.stdout, missing.stderr);
        let other = format!("truncate -s {size} c.img");
        assert_eq!(place.shell(&other).status, 0);
        let taken = place.run(&replace);
        assert_eq!(taken.status, 0, "{}", taken.stderr);
        stop(&place, &daemon);
        let examined = place.run(&["examine", "c.img"]);
        assert_eq!(examined.status, 0, "{}", examined.stderr);
        let daemon = place.serve(&["b.img", "c.img", "--degraded"]);
        stop(&place, &daemon);
    }
}

#[test]
fn every_level_is_made_and_starts() {
    let place = Place::new("levels");
    let images = ["a.img", "b.img", "c.img", "d.img"];
    for (level, shown) in [
        ("raid0", "raid0, 4 slots"),
        ("raid1", "raid1, 4 slots"),
        ("raid4", "raid4, 4 slots"),
        ("raid5", "raid5 left-symmetric, 4 slots"),
        ("raid6", "raid6 left-symmetric, 4 slots"),
        ("raid10", "raid10, 4 slots"),
    ] {
        let made = place.create(&images, &["--level", level, "--force", "--yes"]);
        assert_eq!(made.status, 0, "{level}: {}", made.stderr);
        let assembled = place.run(&[&["assemble"][..], &images].concat());
        let healthy =
            assembled.stdout.starts_with("tank: healthy") && assembled.stdout.contains(shown);
        assert!(
            healthy,
            "{level}: {} {}",
            assembled.stdout, assembled.stderr
        );
    }
}

#[test]
fn a_missing_member_is_told_and_gone_without() {
    let place = Place::new("missing");
    place.create(&["a.img", "b.img", "c.img"], &["--level", "raid5"]);
    let assembled = place.run(&["assemble", "--degraded", "a.img", "gone.img", "c.img"]);
    assert_eq!(assembled.status, 0, "{}", assembled.stderr);
    assert!(
        assembled.stderr.contains("gone.img") && assembled.stdout.starts_with("tank: degraded")
    );
    let alone = place.run(&["assemble", "b.img"]);
    assert!(
        alone.status == 1 && alone.stderr.contains("hint:"),
        "{} {}",
        alone.stdout,
        alone.stderr
    );
}

#[test]
fn the_session_in_the_readme_works_as_pasted() {
    let place = Place::new("readme");
    let readme = include_str!("../../../../README.md");
    let session = readme
        .split("<!-- session -->\n```sh\n")
        .nth(1)
        .expect("the README has a session");
    let session = session.split("```").next().expect("it ends");
    let run = place.shell(&format!("set -e\n{session}\nwait\n"));
    assert_eq!(run.status, 0, "{}\n{}", run.stdout, run.stderr);
    for line in [
        "created tank: RAID-5",
        "b.img failed",
        "tank is healthy",
        "every row agrees",
        "stopped,",
    ] {
        assert!(run.stdout.contains(line), "{line} in\n{}", run.stdout);
    }
    // A scrub compares written rows only, so the session writes some first.
    let compared = run
        .stdout
        .lines()
        .find_map(|line| line.split_once(" rows compared, "))
        .and_then(|(rows, _)| rows.split_once(" of "));
    let (some, all) = compared.expect("the scrub counts rows");
    let [some, all] = [some, all].map(|rows| rows.parse::<u64>().expect("a number"));
    assert!(some * 2 > all, "most rows: {some} of {all}");
}

/// The mounted file system needs root, FUSE and a loop device.
#[test]
fn the_session_of_the_first_array_works_as_pasted() {
    let (place, test) = (Place::new("first-array"), "first-array");
    for needed in [
        "command -v nbdfuse",
        "command -v fusermount3",
        "command -v mkfs.ext4",
        "test $(id -u) = 0 && losetup --find",
    ] {
        if place.shell(needed).status != 0 {
            return skipped(test, &format!("{needed} fails"));
        }
    }
    let tutorial = include_str!("../../../../docs/tutorial/first-array.md");
    let session = tutorial
        .split("<!-- session -->\n```sh\n")
        .nth(1)
        .expect("the tutorial has a session");
    let session = session.split("```").next().expect("it ends");
    let run = place.shell(session);
    let _ = place.shell("umount files; fusermount3 -u export");
    assert_eq!(run.status, 0, "{}\n{}", run.stdout, run.stderr);
    for line in ["tank is healthy", "every row agrees", "stopped,"] {
        assert!(run.stdout.contains(line), "{line} in\n{}", run.stdout);
    }
}

#[test]
fn standard_input_and_output_are_a_connection() {
    let place = Place::new("stdio");
    place.create(&["a.img", "b.img"], &["--level", "raid1"]);
    let (mut client, daemon) = place.serve_stdio(&["a.img", "b.img"]);
    let mut greeting = [0; 18];
    client.read_exact(&mut greeting).expect("it greets");
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
    drop(client);
    assert_eq!(daemon.wait(), 0, "it ends with its client");
    assert!(
        place
            .run(&["examine", "a.img"])
            .stdout
            .contains("\n  clean, ")
    );
}

#[test]
fn a_socket_may_come_from_the_service_manager() {
    let place = Place::new("activation");
    place.create(
        &["a.img", "b.img"],
        &["--level", "raid1", "--size-per-member", "32M"],
    );
    // nbdinfo passes its socket as systemd does.
    let asked = place.shell("command -v nbdinfo >/dev/null || exit 99; nbdinfo --size -- [ restripe serve a.img b.img ]");
    if asked.status == 99 {
        return skipped(
            "contract::a_socket_may_come_from_the_service_manager",
            "nbdinfo is missing",
        );
    }
    assert_eq!(asked.status, 0, "{}", asked.stderr);
    assert!(asked.stdout.ends_with("\n33554432\n"), "{}", asked.stdout);
}

#[test]
fn a_seed_runs_in_the_simulator() {
    let place = Place::new("sim");
    let ran = place.run(&["sim", "--seed", "1"]);
    assert!(
        ran.stdout.contains("1 seeds:"),
        "{} {}",
        ran.stdout,
        ran.stderr
    );
}

#[test]
fn a_scrub_is_paced_and_watched_as_a_rebuild_is() {
    let place = Place::new("paced");
    let names = ["a.img", "b.img", "c.img"];
    let made = place.create(&names, &["--level", "raid5", "--init", "zero"]);
    assert_eq!(made.status, 0, "{}", made.stderr);
    let daemon = place.serve(&["--rate", "1M..1M", "a.img", "b.img", "c.img"]);
    let idle = place.run(&["scrub", "tank", "--watch"]);
    assert!(
        idle.status == 1 && idle.stderr.contains("no scrub is running"),
        "{}",
        idle.stderr
    );
    assert_eq!(place.run(&["scrub", "tank", "--no-wait"]).status, 0);
    let paused = place.run(&["scrub", "tank", "--pause"]);
    assert_eq!((paused.status, paused.stdout.as_str()), (0, "paused\n"));
    let status = place.run(&["status", "tank"]).stdout;
    assert!(line_of(&status, "check").contains("paused"), "{status}");
    for pace in [&["--rate", "1G..2G"][..], &["--resume"]] {
        let run = place.run(&[&["scrub", "tank"][..], pace].concat());
        assert_eq!(run.status, 0, "{pace:?}: {}", run.stderr);
    }
    let watched = place.run(&["scrub", "tank", "--watch"]);
    let over = watched.stderr.contains("no scrub is running");
    assert!(
        over || watched.stdout.ends_with("every row agrees\n"),
        "{} {}",
        watched.stdout,
        watched.stderr
    );
    let both = place.run(&["scrub", "tank", "--watch", "--pause"]);
    assert_eq!(both.status, 2, "{}", both.stderr);
    drop(daemon);
}

#[test]
fn help_is_a_verb_too() {
    let place = Place::new("help");
    for arguments in [
        &["help"][..],
        &["help", "create"],
        &["help", "trace", "info"],
    ] {
        let help = place.run(arguments);
        assert_eq!(help.status, 0, "{arguments:?}: {}", help.stderr);
        assert!(help.stdout.contains("Usage: restripe"), "{}", help.stdout);
    }
    let usage = place.run(&["metrics", "--offline", "a.img"]);
    assert!(
        usage.status == 2
            && usage
                .stderr
                .contains("<NAME> [OPTIONS] [--offline <MEMBER>...]"),
        "{}",
        usage.stderr
    );
}

#[test]
fn a_scrub_with_a_rate_is_a_scrub() {
    let place = Place::new("rated");
    let names = ["a.img", "b.img", "c.img"];
    assert_eq!(place.create(&names, &["--level", "raid5"]).status, 0);
    let daemon = place.serve(&names);
    let run = place.run(&["scrub", "tank", "--rate", "1G..2G"]);
    assert!(
        run.status == 0 && run.stdout.contains("every row agrees"),
        "{} {}",
        run.stdout,
        run.stderr
    );
    drop(daemon);
}

#[test]
fn a_paused_rebuild_is_not_waited_for() {
    let place = Place::new("paused");
    let names = ["a.img", "b.img", "c.img", "d.img"];
    let options = ["--level", "raid5", "--init", "zero", "--spares", "1"];
    assert_eq!(place.create(&names, &options).status, 0);
    let daemon = place.serve(&["--rate", "1M..1M", "a.img", "b.img", "c.img", "d.img"]);
    assert_eq!(place.run(&["fail", "tank", "a.img"]).status, 0);
    assert_eq!(place.run(&["rebuild", "tank", "--pause"]).status, 0);
    let run = place.run(&["rebuild", "tank"]);
    assert!(
        run.status == 1 && run.stderr.contains("the rebuild is paused"),
        "{}",
        run.stderr
    );
    drop(daemon);
}

#[test]
fn a_reader_that_leaves_ends_what_prints_without_a_word() {
    let place = Place::new("pipe");
    for verb in ["lab list", "trace formats", "help"] {
        let run = place.shell(&format!("restripe {verb} | true"));
        assert_eq!(run.stderr, "", "{verb}");
    }
}
