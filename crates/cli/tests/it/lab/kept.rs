//! Stored runs. A command that cannot store them fails before the first run. One that is ended early says how to
//! continue.

use super::{files, place, refused};
use crate::harness::{Daemon, Place};
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

const EXPERIMENT: &str = "lab run rebuild-cost --short --seeds 1 --threads 2";

/// Names in the folder of runs.
fn kept(place: &Place) -> Vec<String> {
    let entries = fs::read_dir(place.path("lab/runs")).into_iter().flatten();
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    names.sort();
    names
}

/// Starts a command and waits until it has stored `runs` runs.
fn begun(place: &Place, line: &str, runs: usize) -> Daemon {
    let arguments: Vec<&str> = line.split(' ').collect();
    let mut command = place.command(&arguments);
    let log = fs::File::create(place.path("log")).expect("a file of ours");
    command.stdout(Stdio::null()).stderr(log);
    let daemon = Daemon::of(command.spawn().expect("it starts"));
    let begun = Instant::now();
    while kept(place)
        .iter()
        .filter(|name| name.ends_with(".json"))
        .count()
        < runs
    {
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "nothing is kept"
        );
        assert_eq!(daemon.try_wait(), None, "it has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    daemon
}

#[test]
fn a_folder_that_cannot_keep_runs_is_told_before_any_run() {
    let place = place("lab-folder");
    for verb in [
        "run rebuild-cost",
        "report rebuild-cost",
        "verify",
        "papers",
        "compare rebuild-cost --metric rebuild_s --vary rebuild.min_mb_s --of 50 --to 1 --short",
    ] {
        for (folder, why) in [
            ("t.spc", "Not a directory"),
            ("t.spc/lab", "Not a directory"),
            ("/proc/lab", "No such file or directory"),
        ] {
            let line = format!("lab {verb} --folder {folder}");
            refused(
                &place,
                &[(&line, 1, &["runs cannot be kept: ", why, folder])],
            );
        }
        // As a full disk has no room for a run.
        let full = place.shell(&format!("ulimit -f 100; restripe lab {verb} --folder full"));
        assert_eq!((full.status, full.stdout.as_str()), (1, ""), "{verb}");
        let told = full.stderr.contains("runs cannot be kept: File too large");
        assert!(told, "{verb}: {}", full.stderr);
        assert!(files(&place.path("full")).is_empty(), "{verb}");
    }
    let list = place.run(&["lab", "verify", "IDO", "--list", "--folder", "t.spc"]);
    assert_eq!(list.status, 0, "it runs nothing: {}", list.stderr);
}

#[test]
fn a_disk_that_becomes_full_is_told_with_what_is_kept() {
    let place = Place::new("lab-full");
    // The last of the runs has no place.
    let line: Vec<&str> = EXPERIMENT.split(' ').collect();
    assert_eq!(place.run(&line).status, 0);
    let all = kept(&place).len();
    let of = |name: &String| place.path(&format!("lab/runs/{name}"));
    let runs = kept(&place).into_iter();
    let runs = runs.filter(|name| place.bytes(&format!("lab/runs/{name}")).len() > 2000);
    let runs: Vec<String> = runs.collect();
    let first = of(&runs[0]);
    fs::remove_file(&first).expect("ours");
    fs::create_dir(&first).expect("ours");
    let run = place.run(&line);
    assert_eq!((run.status, run.stdout.as_str()), (1, ""), "{}", run.stderr);
    assert!(
        run.stderr.contains("a run cannot be kept: "),
        "{}",
        run.stderr
    );
    let (count, others) = (runs.len(), runs.len() - 1);
    let told = run.stderr.contains(&format!(
        "rebuild-cost: {others} of {count} runs are stored; run the same command to continue"
    ));
    // With the runs in another order, those after it were not begun.
    let less = run
        .stderr
        .contains(&format!(" of {count} runs are stored; "));
    assert!(told || less, "{}", run.stderr);
    assert_eq!(kept(&place).len(), all, "no partial file is left");
    fs::remove_dir(&first).expect("ours");
    let run = place.run(&line);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert_eq!(kept(&place).len(), all);
}

#[test]
fn an_interrupted_experiment_says_what_is_kept_and_goes_on() {
    let place = Place::new("lab-interrupted");
    for (signal, status) in [("INT", 130), ("TERM", 143)] {
        fs::remove_dir_all(place.path("lab")).ok();
        let daemon = begun(&place, EXPERIMENT, 2);
        daemon.signal(signal);
        assert_eq!(daemon.wait(), status);
        let log = String::from_utf8(place.bytes("log")).expect("text");
        let told = log
            .lines()
            .find(|line| line.contains("interrupted: rebuild-cost: "));
        let told = told.unwrap_or_else(|| panic!("{log}"));
        assert!(told.ends_with("; run the same command to continue"));
        let partial = kept(&place)
            .into_iter()
            .find(|name| !name.ends_with(".json"));
        assert_eq!(partial, None);
    }
}

/// After each of several kills, at whatever moment: nothing that was half written counts, and the end is the same.
#[test]
fn a_killed_experiment_goes_on_to_the_same_bytes() {
    let place = Place::new("lab-killed");
    for runs in 1..4 {
        begun(&place, EXPERIMENT, runs).kill();
    }
    // As a kill leaves it in the middle of a write, long ago and just now.
    let then = std::time::SystemTime::now() - Duration::from_secs(7200);
    for (name, old) in [("0123456789abcdef.1.partial", true), ("1.1.partial", false)] {
        let file = fs::File::create(place.path(&format!("lab/runs/{name}"))).expect("ours");
        if old {
            file.set_modified(then).expect("ours");
        }
    }
    let whole = Place::new("lab-whole");
    let line: Vec<&str> = EXPERIMENT.split(' ').collect();
    for place in [&place, &whole] {
        let run = place.run(&line);
        assert_eq!(run.status, 0, "{}", run.stderr);
    }
    let mut left = kept(&place);
    left.retain(|name| name.ends_with(".partial"));
    assert!(
        left.contains(&"1.1.partial".to_string()),
        "another may be at it"
    );
    assert!(!left.contains(&"0123456789abcdef.1.partial".to_string()));
    let results = |place: &Place| {
        let mut all = files(&place.path("lab"));
        all.retain(|name, _| !name.ends_with(".partial"));
        all
    };
    assert!(
        results(&place) == results(&whole),
        "a kill shows in the results"
    );
}

#[test]
fn figures_that_a_run_does_not_have_do_not_stay_from_an_earlier_one() {
    let place = Place::new("lab-figures");
    let figures = |place: &Place| {
        let mut names: Vec<String> = files(&place.path("lab/rebuild-cost")).into_keys().collect();
        names.retain(|name| name.ends_with(".svg"));
        names
    };
    let run = |place: &Place, line: &str| {
        let run = place.run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(run.status, 0, "{}", run.stderr);
    };
    let without = format!("{EXPERIMENT} --set phases.rebuild_s=0");
    let fresh = Place::new("lab-figures-fresh");
    run(&fresh, &without);
    run(&place, EXPERIMENT);
    let before = figures(&place).len();
    place.write("lab/rebuild-cost/mine.svg", 0, 0, b"<svg/>");
    run(&place, &without);
    let mut after = figures(&place);
    assert!(after.contains(&"mine.svg".to_string()), "it is not ours");
    after.retain(|name| name != "mine.svg");
    assert_eq!(after, figures(&fresh));
    assert!(after.len() < before, "{after:?}");
}
