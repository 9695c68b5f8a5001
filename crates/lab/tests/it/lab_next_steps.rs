//! What papers leave for later or a comparison leaves out: McPod's surrogate disk, IDO on mirrors and
//! during a scrub, and a second failure while S2-RAID rebuilds.

use restripe_lab::experiment::cell::{Cell, Contents, run};
use restripe_lab::experiment::metric::metric;
use restripe_lab::experiment::scenario::{self, Point, Value};
use restripe_lab::replay::facts::Log;

/// The first point of the shortest scale of a scenario, with some of its values set.
fn log_of(name: &str, values: &[(&str, Value)]) -> Log {
    let text = scenario::named(name).expect("built in");
    let scenario = scenario::parse(text).expect("sound").shortened();
    let mut point: Point = scenario.points().remove(0);
    for (path, value) in values {
        point.insert((*path).into(), value.clone());
    }
    let cell = Cell::new(&point, 1, &mut Contents::default()).expect("sound");
    let capacity = cell.capacity_key().map(|_| 100_000);
    run(&cell, capacity).expect("it runs")
}

fn number(log: &Log, name: &str) -> f64 {
    metric(log, name).unwrap_or_else(|| panic!("{name} was measured"))
}

fn text(value: &str) -> Value {
    Value::Text(value.into())
}

/// A region takes a read of parity and a write of the surrogate disk more, which go beside the others.
#[test]
fn outsourced_parity_takes_two_operations_a_region_and_little_time() {
    let of = |moves| {
        let values = [
            ("rebuild.moves", text(moves)),
            ("workload.source", text("none")),
            ("workload.load", Value::Real(0.0)),
            ("array.write_cache", Value::Flag(true)),
        ];
        log_of("mcpod-parts", &values)
    };
    let [best, in_place, outsourced] = ["best", "parity-in-place", "parity-outsourced"].map(of);
    let operations = |log| number(log, "during.ios_rebuild");
    // 1024 rows in regions of four.
    assert_eq!(operations(&outsourced) - operations(&best), 2.0 * 256.0);
    assert_eq!(operations(&outsourced), operations(&in_place));
    let seconds = |log| number(log, "rebuild_s");
    assert!(seconds(&outsourced) * 2.0 < seconds(&in_place));
}

#[test]
fn a_scrub_redirects_to_the_surrogate() {
    let of = |scheme| log_of("ido-scrub", &[("rebuild.scheme", text(scheme))]);
    let [pr, workout, ido] = ["pr", "workout", "ido"].map(of);
    assert_eq!(number(&pr, "during.redirected_share"), 0.0);
    for log in [workout, ido] {
        assert!(number(&log, "during.redirected_share") > 0.1);
        assert!(number(&log, "reclaim_s") > 0.0);
    }
}

#[test]
fn mirrors_have_a_surrogate_as_well() {
    let of = |scheme| log_of("ido-raid10", &[("rebuild.scheme", text(scheme))]);
    let [pr, ido] = ["pr", "ido"].map(of);
    assert_eq!(number(&pr, "during.redirected_share"), 0.0);
    assert!(number(&ido, "during.redirected_share") > 0.1);
    assert!(number(&ido, "during.hit_share") > 0.1 && number(&ido, "reclaim_s") > 0.0);
}

/// Of the rows in which two of nine cells are lost, the layout says how many are data: 7 of 9 rows have two, 2 have
/// one. Of S2-RAID's members six share one sub-RAID of nine with member 0, and two share none.
#[test]
fn a_second_failure_loses_what_the_layout_says() {
    let of = |skew: &str, second: i64, done: f64| {
        let values = [
            ("array.skew", text(skew)),
            ("rebuild.second_member", Value::Whole(second)),
            ("rebuild.second_failure_share", Value::Real(done)),
        ];
        log_of("s2-second", &values)
    };
    let lost = |log: &Log| number(log, "lost_share");
    let close = |log: &Log, share: f64| (lost(log) - share).abs() < 0.004;
    for second in [1, 5, 8] {
        let log = of("flat", second, 0.0);
        assert!(close(&log, 16.0 / 72.0), "{}", lost(&log));
        assert_eq!(metric(&log, "redundant_s"), None);
    }
    // Rows that are rebuilt lose one cell, and no data.
    let log = of("flat", 5, 0.5);
    assert!(close(&log, 8.0 / 72.0), "{}", lost(&log));
    for second in 3..9 {
        let log = of("3", second, 0.0);
        assert!(close(&log, 2.0 / 27.0), "{second}: {}", lost(&log));
    }
    for second in [1, 2] {
        let log = of("3", second, 0.5);
        assert_eq!(lost(&log), 0.0);
        assert!(number(&log, "redundant_s") > 0.0);
        assert!(number(&log, "second_s") > 0.0);
    }
}

/// One that is not there, the first itself, and one for whom there is no spare.
#[test]
fn a_second_failure_that_cannot_be_is_refused() {
    let refused = |path: &str, value: i64| {
        let named = scenario::named("s2-second").expect("built in");
        let mut point = scenario::parse(named)
            .expect("sound")
            .shortened()
            .points()
            .remove(0);
        point.insert(path.into(), Value::Whole(value));
        Cell::new(&point, 1, &mut Contents::default()).expect_err("it cannot be")
    };
    for member in [0, 9] {
        assert!(refused("rebuild.second_member", member).contains("from 1 to 8"));
    }
    assert!(refused("array.spares", 1).contains("two array.spares"));
}
