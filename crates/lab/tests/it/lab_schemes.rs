//! Rebuild schemes with a surrogate: the same bytes every time, and what they move and leave behind adds up.

use restripe_lab::experiment::cell::{Cell, Contents, DURING, Settings};
use restripe_lab::experiment::metric::metric;
use restripe_lab::experiment::runner::Runner;
use restripe_lab::experiment::scenario::{self, Point, Value};
use restripe_lab::replay::facts::Log;
use restripe_lab::replay::stage::{Stage, size_bytes};

/// A point of the scenario on members that are rebuilt in seconds.
fn point(scheme: &str) -> Point {
    point_of("ido", scheme)
}

fn point_of(name: &str, scheme: &str) -> Point {
    let text = scenario::named(name).expect("built in");
    let mut scenario = scenario::parse(text).expect("sound").shortened();
    let small = [
        ("array.member_mib", 128),
        ("phases.before_s", 30),
        ("phases.rebuild_s", 150),
        ("phases.common_s", 150),
        ("capacity.measure_s", 5),
    ];
    for (path, value) in small {
        scenario.fixed.get_mut(path).expect("it has it").value = Value::Whole(value);
    }
    let mut point = scenario.points().remove(0);
    point.insert("rebuild.scheme".into(), Value::Text(scheme.into()));
    point
}

fn logs(schemes: &[&str], threads: usize) -> Vec<Log> {
    let points: Vec<Point> = schemes.iter().map(|scheme| point(scheme)).collect();
    run(&points, threads)
}

fn run(points: &[Point], threads: usize) -> Vec<Log> {
    let cell = |point: &Point| Cell::new(point, 1, &mut Contents::default()).expect("sound");
    let cells: Vec<Cell> = points.iter().map(cell).collect();
    let runner = Runner {
        threads,
        cache: None,
        fresh: false,
        progress: &|_| {},
    };
    runner.run(&cells).expect("it runs")
}

fn number(log: &Log, name: &str) -> f64 {
    metric(log, name).unwrap_or_else(|| panic!("{name} was measured"))
}

#[test]
fn a_surrogate_takes_users_away_and_a_rebuild_ends_sooner() {
    let logs = logs(&["pr", "workout", "vdf", "ido"], 2);
    let [pr, workout, vdf, ido] = &logs[..] else {
        panic!("a log a scheme")
    };
    assert_eq!(pr.moved, None);
    assert_eq!(number(pr, "during.redirected_share"), 0.0);
    for log in [workout, vdf, ido] {
        assert!(number(log, "rebuild_s") < number(pr, "rebuild_s"));
        assert!(number(log, "reclaim_s") > 0.0 && number(log, "map_extents") > 0.0);
        let moved = number(log, "during.redirected_share");
        let (writes, reads) = (
            number(log, "during.write_share"),
            number(log, "during.hit_share"),
        );
        // Every write but VDF's; some requests are answered in another phase than they were made in.
        assert!(
            moved < writes + (1.0 - writes) * reads + 0.02,
            "{moved} {writes} {reads}"
        );
    }
    for log in [workout, ido] {
        let writes = number(log, "during.write_share");
        let share = writes + (1.0 - writes) * number(log, "during.hit_share");
        assert!((number(log, "during.redirected_share") - share).abs() < 0.02);
    }
    for log in &logs {
        time_by_cause_is_the_time(log);
        let during = log.phase(DURING).expect("it was rebuilt");
        let at_surrogate: u64 = during.moved_histogram.iter().map(|(_, count)| count).sum();
        let share = at_surrogate as f64 / during.times.count as f64;
        assert!((number(log, "during.redirected_share") - share).abs() < 0.02);
    }
    // Hot zones were moved, in zones; WorkOut keeps what was read twice.
    assert!(number(ido, "clean_mib") >= 12.0);
    assert!(number(ido, "during.hit_share") > number(workout, "during.hit_share"));
}

#[test]
fn the_common_time_is_as_long_for_every_scheme() {
    let logs = logs(&["pr", "ido", "pr-wide"], 2);
    for log in &logs {
        let phase = |name| log.phase(name).expect("it was run");
        let (during, after) = (phase("during"), phase("after"));
        assert_eq!(after.to_ns - during.from_ns, 150_000_000_000);
        assert_eq!(
            number(log, "common.requests") as u64,
            during.times.count + after.times.count
        );
    }
    // The same requests, but for those that are answered across an end.
    let requests = |log: &Log| number(log, "common.requests");
    for log in &logs[1..] {
        let off = requests(log) / requests(&logs[0]) - 1.0;
        assert!(off.abs() < 0.01, "{off}");
    }
}

#[test]
fn a_run_with_a_surrogate_is_the_same_every_time() {
    assert!(logs(&["ido", "vdf", "workout"], 1) == logs(&["ido", "vdf", "workout"], 3));
}

#[test]
fn an_array_that_resynchronises_moves_its_users_too() {
    let points = ["pr", "ido"].map(|scheme| point_of("ido-resync", scheme));
    let found = run(&points, 2);
    let [pr, ido] = &found[..] else {
        panic!("a log a scheme")
    };
    for log in [pr, ido] {
        assert!(log.phase("degraded").is_none());
        let told = log.happened.iter().map(|happened| happened.what.as_str());
        let told: Vec<&str> = told.collect();
        assert_eq!(told[..2], ["power was cut", "resynchronisation begins"]);
        assert_eq!(number(log, "rebuild_share"), 1.0);
        assert_eq!(number(log, "during.failed"), 0.0);
    }
    assert!(number(ido, "rebuild_s") < number(pr, "rebuild_s"));
    // What was hot is known after the cut: zones were moved, and read where they are.
    assert!(number(ido, "clean_mib") >= 12.0);
    assert!(number(ido, "during.hit_share") > 0.1);
    assert!(number(ido, "reclaim_s") > 0.0);
    assert!(found == run(&points, 1));
}

#[test]
fn a_surrogate_behind_a_link_answers_a_round_trip_later() {
    let mut far = point("ido");
    far.insert("array.surrogate_link_mb_s".into(), Value::Real(100.0));
    far.insert("array.surrogate_round_trip_us".into(), Value::Real(50e3));
    let found: [Log; 2] = run(&[point("ido"), far], 2)
        .try_into()
        .expect("a log a point");
    let write_ms = |log: &Log| number(log, "during.write_mean_ms");
    assert!(write_ms(&found[1]) > write_ms(&found[0]) + 50.0);
    // It is the surrogate that is far: before the failure nobody notices.
    let before = found.map(|log| number(&log, "before.mean_ms"));
    assert!((before[0] / before[1] - 1.0).abs() < 0.01, "{before:?}");
}

#[test]
fn of_a_zone_as_large_as_the_array_nothing_is_moved() {
    let mut whole = point_of("ido-migration", "ido");
    whole.insert("rebuild.zone_mib".into(), Value::Real(65536.0));
    let log = &run(&[whole], 1)[0];
    assert_eq!(number(log, "clean_mib"), 0.0);
    assert!(number(log, "during.redirected_share") > 0.1);
}

#[test]
fn a_surrogate_takes_nothing_from_the_arrays_size() {
    for (scheme, drives) in [("pr", 4), ("ido", 6), ("pr-wide", 6)] {
        let plan = Settings::of(&point(scheme)).and_then(|settings| settings.plan());
        let plan = plan.expect("sound");
        let stage = Stage::new(&plan, 1).expect("it starts");
        assert_eq!(stage.size_bytes, size_bytes(&plan).expect("sound"));
        assert_eq!(stage.meters.len(), drives, "{scheme}");
    }
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let refused = |path: &str, value: Value| {
        let mut point = point("ido");
        point.insert(path.into(), value);
        Settings::of(&point).expect_err("it does not fit")
    };
    let text = |text: &str| Value::Text(text.into());
    assert!(refused("rebuild.scheme", text("workaut")).contains("workout"));
    assert!(refused("rebuild.order", text("dor")).contains("replaces"));
    assert!(refused("rebuild.redirect", text("vdf")).contains("replaces"));
    assert!(refused("array.surrogate", Value::Whole(0)).contains("array.surrogate"));
    for (level, told) in [
        ("raid7", "raid7"),
        ("rs3", "for a code cache"),
        ("rs9", "no level"),
    ] {
        let why = refused("array.surrogate_level", text(level));
        assert!(why.contains(told), "{why}");
    }
}

/// Nothing that a drive did is without a cause; only a rebuild is a task, and only a surrogate's writes are in no parity.
fn time_by_cause_is_the_time(log: &Log) {
    const TASK: usize = 2;
    for phase in &log.phases {
        let tasks = phase.labour.iter().map(|labour| labour.busy_ns[TASK]);
        assert_eq!(tasks.sum::<u64>() > 0, phase.name == DURING);
        let sums = phase
            .labour
            .iter()
            .map(|labour| labour.busy_ns.iter().sum::<u64>());
        assert_eq!(sums.collect::<Vec<_>>(), phase.busy_ns, "{}", phase.name);
        let turned = phase.labour.iter().filter(|labour| labour.rotate_ns > 0);
        assert!(turned.count() >= 3, "{}", phase.name);
    }
}

/// What `status` of a real array estimates is what the simulated drives drew, drive by drive. One that never stops agrees to a part in
/// two thousand: what is left is what a drive does of itself after it answered, and members on one drive that were active at once. Beyond that a rating has no figure for the time of a start
/// (the model has it in the start's joules; the engine counts what is asked meanwhile as part of the start), nor for that of a stop (the engine calls a
/// drive standing as soon as that was told): 5.6 s at 7.9 W for each start and 5 s at 0.7 W for each stop of this drive, at most. It has one power for
/// work, moving the arm or not; for drives that have two the estimate is lower by the difference, while they seek.
#[test]
fn the_ledger_of_the_engine_is_that_of_the_drives() {
    const START_UJ: u64 = 5_600_000 * 79 / 10;
    const STOP_UJ: u64 = 5_000_000 * 7 / 10;
    let text = scenario::named("reraid").expect("built in");
    let scenario = scenario::parse(text).expect("sound").shortened();
    let points = scenario.points();
    let logs = run(&points, 2);
    for (log, point) in logs.iter().zip(&points) {
        assert!(log.energy.len() >= 8, "every drive is counted");
        for energy in &log.energy {
            let (estimate, drawn) = (energy.estimate_uj, energy.total_uj());
            let spins = match energy.standby_ns {
                0 => 0,
                _ => energy.spin_ups * START_UJ + (energy.spin_ups + 1) * STOP_UJ,
            };
            let apart = estimate.abs_diff(drawn);
            let scheme = &point["rebuild.redirect"];
            assert!(apart <= drawn / 2_000 + spins, "{scheme:?}: {energy:?}");
        }
    }
    let starts = logs.iter().map(|log| number(log, "spin_ups"));
    assert!(
        starts.sum::<f64>() > 0.0,
        "some drives slept and were woken"
    );
}

/// What mirrors draw step by step adds up to what they drew, but for the last step and the time before the replay, and is less while half of
/// them stand still.
#[test]
fn steps_of_power_add_up() {
    let text = scenario::named("reraid").expect("built in");
    let scenario = scenario::parse(text).expect("sound").shortened();
    let redirected = |to: &str| {
        let mut point = scenario.points()[0].clone();
        point.insert("rebuild.redirect".into(), Value::Text(to.into()));
        point
    };
    let logs = run(&[redirected("none"), redirected("reraid")], 2);
    for log in &logs {
        let (drawn, steps) = (log.drawn_uj.iter().sum::<u64>() as f64, log.drawn_uj.len());
        let all = number(log, "energy_kj") * 1e9;
        assert!(
            drawn <= all && drawn >= all * (1.0 - 2.0 / steps as f64),
            "{drawn} of {all}"
        );
        assert!(steps.abs_diff(log.steps.len()) <= 1);
    }
    let least = |log: &Log| {
        let least = log.drawn_uj.iter().min().expect("steps");
        *least as f64 * 1e3 / log.step_ns as f64
    };
    let (awake, asleep) = (least(&logs[0]), least(&logs[1]));
    assert!(awake >= 8.0 * 5.8, "{awake} W: no drive stands still");
    assert!(
        asleep < 4.0 * 7.9 + 4.0 * 0.8,
        "{asleep} W: four stand still"
    );
}
