//! Experiments: the same bytes on any number of threads and from the cache, and results with the right sign.

use restripe_lab::experiment::cell::{Cell, Contents};
use restripe_lab::experiment::outcome::{Outcome, Run};
use restripe_lab::experiment::runner::{Progress, Runner};
use restripe_lab::experiment::scenario::{self, Scenario, Value};
use restripe_lab::experiment::{figure, page};
use restripe_lab::replay::facts::Log;
use restripe_lab::report::Provenance;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

/// The quick form of what a rebuild costs, on members that are rebuilt in a second.
fn small() -> Scenario {
    let text = scenario::named("rebuild-cost").expect("built in");
    let mut scenario = scenario::parse(text).expect("sound").shortened();
    scenario.seeds = 2;
    let short = [
        ("array.member_mib", 96),
        ("phases.warm_up_s", 1),
        ("phases.before_s", 5),
        ("phases.degraded_s", 5),
        ("phases.after_s", 1),
        ("capacity.warm_up_s", 1),
        ("capacity.measure_s", 5),
    ];
    for (path, value) in short {
        scenario.fixed.get_mut(path).expect("it has it").value = Value::Whole(value);
    }
    let swept = BTreeMap::from([
        (
            "rebuild.min_mb_s".to_string(),
            vec![Value::Whole(1), Value::Whole(50)],
        ),
        (
            "workload.load".to_string(),
            vec![Value::Real(0.0), Value::Real(0.4)],
        ),
        (
            "workload.source".to_string(),
            vec![Value::Text("noise".into())],
        ),
        (
            "rebuild.throttle".to_string(),
            vec![Value::Text("restripe".into())],
        ),
    ]);
    scenario.sweep.extend(swept);
    for figure in &mut scenario.figures {
        figure.at.clear();
    }
    scenario
}

fn cells(scenario: &Scenario) -> Vec<Cell> {
    let seeds = |point: &_| -> Vec<Cell> {
        (1..=scenario.seeds)
            .map(|seed| Cell::new(point, seed, &mut Contents::default()).expect("sound"))
            .collect()
    };
    scenario.points().iter().flat_map(seeds).collect()
}

/// Everything that is written of an experiment, in one text.
fn written(
    scenario: &Scenario,
    threads: usize,
    cache: Option<PathBuf>,
    cached: &Mutex<usize>,
) -> String {
    let progress = |progress: Progress| *cached.lock().expect("sound") = progress.cached;
    let runner = Runner {
        threads,
        cache,
        fresh: false,
        progress: &progress,
    };
    let cells = cells(scenario);
    let logs = runner.run(&cells).expect("it runs");
    let runs = cells
        .into_iter()
        .zip(logs)
        .map(|(cell, log)| Run { cell, log });
    let outcome = Outcome::new(scenario, runs.collect());
    let figures = figure::all(&outcome);
    assert!(!figures.is_empty());
    let mut drawn = String::new();
    for picture in &figures {
        let svg = picture.plot.alone();
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"));
        drawn += &svg;
    }
    let provenance = Provenance {
        command: "restripe lab run small".into(),
        date: "2026-01-01T00:00:00Z".into(),
        ..Provenance::default()
    };
    let page = page::report(&outcome, &figures, &provenance);
    assert!(page.contains("<code>restripe lab run small</code>"));
    assert!(
        !page.contains("src=") && !page.contains("<link"),
        "it needs nothing beside itself"
    );
    outcome.csv() + &outcome.json_lines() + &outcome.table().text() + &page + &drawn
}

#[test]
fn the_same_scenario_gives_the_same_bytes_on_any_number_of_threads_and_from_the_cache() {
    let scenario = small();
    let cached = Mutex::new(0);
    let folder = std::env::temp_dir().join(format!("restripe-lab-{}", std::process::id()));
    let alone = written(&scenario, 1, None, &cached);
    let together = written(&scenario, 4, Some(folder.clone()), &cached);
    assert_eq!(*cached.lock().expect("sound"), 0);
    let again = written(&scenario, 2, Some(folder.clone()), &cached);
    assert_eq!(*cached.lock().expect("sound"), cells(&scenario).len());
    std::fs::remove_dir_all(&folder).expect("a folder of ours");
    assert!(alone == together, "threads show in the results");
    assert!(alone == again, "the cache shows in the results");
}

/// An experiment on a drive from a file: the same drive under another name gives the same run.
#[test]
fn drives_of_an_experiment_come_from_files() {
    let file = std::env::temp_dir().join(format!("restripe-drive-{}.toml", std::process::id()));
    std::fs::write(&file, include_str!("../../presets/wd1600aajs.toml")).expect("a file");
    let runner = Runner {
        threads: 2,
        cache: None,
        fresh: true,
        progress: &|_| {},
    };
    let of = |drive: &str| {
        let mut scenario = small();
        let of = scenario.fixed.get_mut("array.drive").expect("it has it");
        of.value = Value::Text(drive.into());
        Cell::new(&scenario.points()[0], 1, &mut Contents::default())
    };
    let run = |drive: &str| {
        let cell = of(drive).expect("sound");
        runner.run(&[cell]).expect("it runs")
    };
    let named = run("wd1600aajs");
    let by_file = run(&format!("file:{}", file.display()));
    let bytes = |logs: &[Log]| logs[0].rebuild.expect("it has one").to_ns;
    assert_eq!(bytes(&named), bytes(&by_file));
    std::fs::remove_file(&file).expect("a file of ours");
    // Before anything is run.
    let error = of(&format!("file:{}", file.display())).expect_err("no file");
    assert!(error.contains("restripe-drive-"), "{error}");
}

#[test]
fn a_rebuild_ends_sooner_without_users() {
    let scenario = small();
    let cells = cells(&scenario);
    let runner = Runner {
        threads: 2,
        cache: None,
        fresh: false,
        progress: &|_| {},
    };
    let logs = runner.run(&cells).expect("it runs");
    let took = |load: f64| -> Vec<u64> {
        let of = cells
            .iter()
            .zip(&logs)
            .filter(|(cell, _)| cell.settings.workload.load == load);
        let rebuild = |log: &Log| log.rebuild.expect("it has one");
        of.map(|(_, log)| rebuild(log).to_ns.expect("it ended") - rebuild(log).from_ns)
            .collect()
    };
    let (idle, loaded) = (took(0.0), took(0.4));
    assert_eq!((idle.len(), loaded.len()), (4, 4));
    for (idle, loaded) in idle.iter().zip(&loaded) {
        assert!(loaded > idle, "{loaded} after {idle}");
    }
}

/// Throttles with a goal, on drives under a fifth of the load that they bear: users' p99 is kept within a
/// twentieth while the rebuild without a goal is far above, and an end is in time.
#[test]
fn goals_are_kept_on_drives_under_load() {
    let text = scenario::named("goals").expect("built in");
    let mut scenario = scenario::parse(text).expect("sound").shortened();
    scenario.seeds = 1;
    let throttles = ["restripe", "p99:200ms", "finish:2m"];
    let throttles = throttles.map(|name| Value::Text(name.into())).to_vec();
    scenario.sweep = BTreeMap::from([
        ("workload.load".into(), vec![Value::Real(0.2)]),
        ("rebuild.throttle".into(), throttles),
    ]);
    let size = scenario.fixed.get_mut("array.member_mib");
    size.expect("it has it").value = Value::Whole(2048);
    let runner = Runner {
        threads: 2,
        cache: None,
        fresh: false,
        progress: &|_| {},
    };
    let logs = runner.run(&cells(&scenario)).expect("it runs");
    let p99_ms = |log: &Log| {
        let during = log.phase("during").expect("it rebuilds");
        during.times.p99_ns / 1_000_000
    };
    let (plain, goal) = (p99_ms(&logs[0]), p99_ms(&logs[1]));
    assert!(goal <= 210 && plain > 250, "{goal} ms, without {plain} ms");
    let rebuild = logs[2].rebuild.expect("it has one");
    let took_ms = (rebuild.to_ns.expect("it ended") - rebuild.from_ns) / 1_000_000;
    assert!((100_000..=120_000).contains(&took_ms), "{took_ms} ms");
}

#[test]
fn in_closed_loop_so_many_are_outstanding_whatever_their_times() {
    let text = scenario::named("vdf-closed-loop").expect("built in");
    let mut scenario = scenario::parse(text).expect("sound").shortened();
    scenario.seeds = 1;
    scenario.sweep.insert(
        "array.cache_policy".into(),
        vec![Value::Text("vdf-lru".into())],
    );
    scenario.fixed.remove("workload.depth");
    let depths = [1, 16].map(Value::Whole).to_vec();
    scenario.sweep.insert("workload.depth".into(), depths);
    let runner = Runner {
        threads: 2,
        cache: None,
        fresh: false,
        progress: &|_| {},
    };
    let logs = runner.run(&cells(&scenario)).expect("it runs");
    for (log, depth) in logs.iter().zip([1, 16]) {
        let phase = log.phase("degraded").expect("a member was lost");
        assert_eq!(phase.held, 0, "nobody waits before the array");
        // Little's law: rate times mean response is what was outstanding, but for those at the phase's two ends.
        let busy_ns = phase.times.count * phase.times.mean_ns;
        let outstanding = busy_ns as f64 / phase.length_ns() as f64;
        assert!(
            (outstanding / f64::from(depth) - 1.0).abs() < 0.1,
            "{outstanding}"
        );
    }
}
