//! Rebuild schemes with a surrogate: the same bytes every time, and what they move and leave behind adds up.

use restripe_lab::experiment::cell::{Cell, Contents, Settings};
use restripe_lab::experiment::metric::metric;
use restripe_lab::experiment::runner::Runner;
use restripe_lab::experiment::scenario::{self, Point, Value};
use restripe_lab::replay::facts::Log;
use restripe_lab::replay::stage::{Stage, size_bytes};

/// A point of the scenario on members that are rebuilt in seconds.
fn point(scheme: &str) -> Point {
    let text = scenario::named("ido").expect("built in");
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
    let cell =
        |scheme: &&str| Cell::new(&point(scheme), 1, &mut Contents::default()).expect("sound");
    let cells: Vec<Cell> = schemes.iter().map(cell).collect();
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
    assert!(refused("rebuild.order", text("dor")).contains("in place of"));
    assert!(refused("rebuild.redirect", text("vdf")).contains("in place of"));
    assert!(refused("array.surrogate", Value::Whole(0)).contains("array.surrogate"));
    assert!(refused("array.surrogate_level", text("raid7")).contains("raid7"));
}
