//! What papers leave for later or a comparison leaves out: McPod's surrogate disk, and IDO on mirrors and during a scrub.

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
    run(&cell, Some(100_000)).expect("it runs")
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
    assert!(seconds(&outsourced) > seconds(&best));
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
