//! What an operator tells background work, what is told back, and what lasts.

use crate::harness;
use crate::harness::steps::good;
use crate::harness::{Place, Run, line_of, raid5};

const FOUR: [&str; 4] = ["a.img", "b.img", "c.img", "d.img"];

/// A RAID-5 with a spare, and a whole disk to fill when one fails.
fn spared(name: &str) -> Place {
    let place = Place::new(name);
    let options = ["--level", "raid5", "--init", "zero", "--spares", "1"];
    let made = place.create(&FOUR, &options);
    assert_eq!(made.status, 0, "{}", made.stderr);
    place
}

/// Leaves a rebuild that takes a minute undone, after more verbs.
fn left_undone(place: &Place, verbs: &[&[&str]]) {
    let daemon = place.serve(&[&["--rate", "1M..1M"][..], &FOUR].concat());
    good(place.run(&["fail", "tank", "a.img"]));
    for verb in verbs {
        good(place.run(verb));
    }
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
}

fn offline(words: &[&str]) -> Vec<String> {
    let words = words.iter().chain(&["--offline"]).chain(&FOUR);
    words.map(|word| word.to_string()).collect()
}

fn run_offline(place: &Place, words: &[&str]) -> Run {
    let words = offline(words);
    place.run(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn what_was_set_is_told_and_shown() {
    let place = spared("told");
    let daemon = place.serve(&[&["--rate", "1M..1M"][..], &FOUR].concat());
    good(place.run(&["fail", "tank", "a.img"]));
    for (option, value, told) in [
        (
            "--rate",
            "1000..2M",
            "rate: 1000 bytes/s at least, 2M/s at most\n",
        ),
        ("--throttle", "md-6.1", "throttle: md-6.1\n"),
        ("--order", "ido", "order: ido\n"),
        ("--on-demand=on", "", "on demand: on\n"),
    ] {
        let words = ["rebuild", "tank", option, value];
        let given = words.iter().filter(|word| !word.is_empty());
        let run = place.run(&given.copied().collect::<Vec<_>>());
        assert_eq!(good(run), told);
    }
    let status = good(place.run(&["status", "tank"]));
    let pacing = "    1000 bytes/s at least, 2M/s at most; throttle md-6.1, order ido, on demand\n";
    assert!(status.contains(pacing), "{status}");
    let status = good(place.run(&["status", "tank", "--json"]));
    let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
    let task = &status["tasks"][0];
    assert_eq!(task["rate_min_bytes"], 1000);
    assert_eq!(task["rate_max_bytes"], 2 << 20);
    assert_eq!(
        (&task["throttle"], &task["order"]),
        (&"md-6.1".into(), &"ido".into())
    );
    assert_eq!(task["on_demand"], true);
    let off = place.run(&["rebuild", "tank", "--on-demand=off"]);
    assert_eq!(good(off), "on demand: off\n");
    let status = good(place.run(&["status", "tank"]));
    assert!(status.contains("order ido\n"), "{status}");
    drop(daemon);
}

#[test]
fn a_goal_is_told_and_shown() {
    let place = spared("goal");
    let options = ["--rate", "1M..1M", "--throttle", "finish:2h"];
    let daemon = place.serve(&[&options[..], &FOUR].concat());
    good(place.run(&["fail", "tank", "a.img"]));
    let status = good(place.run(&["status", "tank"]));
    assert!(
        status.contains("throttle finish:2h, order pr\n"),
        "{status}"
    );
    let shown = line_of(&status, "to finish within 1h 59m, which requires ");
    assert!(shown.ends_with("/s"), "{status}");
    let told = place.run(&["rebuild", "tank", "--throttle", "p99:20ms"]);
    assert_eq!(good(told), "throttle: p99:20ms\n");
    let status = good(place.run(&["status", "tank"]));
    let shown = "    p99 is not known, 20ms at most; 1M/s under load\n";
    assert!(status.contains(shown), "{status}");
    let wrong = place.run(&["rebuild", "tank", "--throttle", "p99:20"]);
    assert_eq!(wrong.status, 2);
    assert!(
        wrong.stderr.contains("p99:TIME, finish:TIME"),
        "{}",
        wrong.stderr
    );
    drop(daemon);
}

/// The help tells a default that is the engine's.
#[test]
fn the_default_rate_is_what_help_says() {
    let place = spared("default");
    left_undone(&place, &[&["rebuild", "tank", "--pause"]]);
    let daemon = place.serve(&FOUR);
    let status = good(place.run(&["status", "tank", "--json"]));
    let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
    let task = &status["tasks"][0];
    assert_eq!(task["rate_min_bytes"], 1000 << 10, "{task}");
    assert_eq!(task["rate_max_bytes"], 2_000_000_u64 << 10, "{task}");
    drop(daemon);
    let help = good(place.run(&["serve", "--help"]));
    assert!(help.contains("[default: 1000K..2000000K]"), "{help}");
}

/// It was set for the moments of that very command, and told as if it lasted.
#[test]
fn offline_a_rebuild_runs_under_the_rate_that_is_set() {
    let place = spared("offline-rate");
    left_undone(&place, &[]);
    let told = good(run_offline(
        &place,
        &["rebuild", "tank", "--rate", "1G..2G"],
    ));
    assert_eq!(told, "rate: 1G/s at least, 2G/s at most\ntank is healthy\n");
}

/// So was a scrub's, if one was under way: that goes on with the command, and has its end told.
#[test]
fn offline_a_scrub_goes_on_under_the_rate_that_is_set() {
    let place = spared("offline-scrub");
    let daemon = place.serve(&[&["--rate", "1M..1M"][..], &FOUR].concat());
    good(place.run(&["scrub", "tank", "--no-wait"]));
    good(place.run(&["scrub", "tank", "--pause"]));
    good(place.run(&["stop", "tank"]));
    assert_eq!(daemon.wait(), 0);
    let paused = run_offline(&place, &["scrub", "tank"]);
    let hint = "hint: restripe scrub tank --resume --offline a.img b.img c.img d.img\n";
    assert!(paused.stderr.ends_with(hint), "{}", paused.stderr);
    let other = run_offline(&place, &["scrub", "tank", "--repair", "--yes"]);
    assert!(
        other.stderr.contains("a scrub is running"),
        "{}",
        other.stderr
    );
    good(run_offline(&place, &["scrub", "tank", "--resume"]));
    let told = good(run_offline(&place, &["scrub", "tank", "--rate", "1G..2G"]));
    assert!(
        told.starts_with("rate: 1G/s at least, 2G/s at most\n"),
        "{told}"
    );
    assert!(told.ends_with("every row agrees\n"), "{told}");
}

#[test]
fn a_rebuild_that_nobody_serves_waits_and_is_not_paused() {
    let place = spared("at-rest");
    left_undone(&place, &[]);
    let status = good(run_offline(&place, &["status"]));
    let task = line_of(&status, "rebuild ");
    assert!(
        task.contains("waits for a start that may write"),
        "{status}"
    );
}

#[test]
fn the_hint_of_a_pause_offline_is_for_offline() {
    let place = spared("hint");
    left_undone(&place, &[&["rebuild", "tank", "--pause"]]);
    let status = good(run_offline(&place, &["status"]));
    assert!(line_of(&status, "rebuild ").contains("paused"), "{status}");
    let run = run_offline(&place, &["rebuild", "tank"]);
    let hint = "hint: restripe rebuild tank --resume --offline a.img b.img c.img d.img\n";
    assert!(run.stderr.ends_with(hint), "{}", run.stderr);
    assert_eq!(run.status, 1);
}

#[test]
fn nobody_waits_behind_a_task_that_is_paused() {
    let place = Place::new("behind");
    let options = ["--level", "raid5", "--init", "sync"];
    let made = place.create(&FOUR, &options);
    assert_eq!(made.status, 0, "{}", made.stderr);
    good(run_offline(&place, &["rebuild", "tank", "--pause"]));
    let scrub = run_offline(&place, &["scrub", "tank"]);
    assert_eq!(scrub.status, 1, "{}", scrub.stdout);
    assert!(
        scrub
            .stderr
            .contains("waits for the resync, which is paused"),
        "{}",
        scrub.stderr
    );
    assert!(scrub.stderr.contains("--resume"), "{}", scrub.stderr);
}

#[test]
fn heat_without_its_daemon_names_the_arrays_that_are_served() {
    let place = raid5("unheard");
    let nobody = place.run(&["heat", "tank"]);
    assert_eq!(nobody.status, 1);
    let hint = "hint: no array is served; start it with `restripe serve`\n";
    assert!(nobody.stderr.ends_with(hint), "{}", nobody.stderr);
    let daemon = place.serve(&harness::THREE);
    let other = place.run(&["heat", "tnak"]);
    assert!(
        other.stderr.ends_with("hint: the served arrays are tank\n"),
        "{}",
        other.stderr
    );
    let none = place.run(&["heat", "tank", "--top", "0"]);
    assert_eq!(none.status, 2, "{}", none.stderr);
    drop(daemon);
}
