//! Parameters whose values are names: what each name stands for, and what there is where it is none.

use crate::drives;
use crate::generate::blocks::Course;
use crate::generate::preset;
use crate::nearest;
use restripe_array::cache::Rule;
use restripe_array::layout::{Level, Rotation};
use restripe_array::meta::WriteHole;
use restripe_array::{Moves, Order, Throttle};
use restripe_sim::disk::queue::Policy;
use restripe_tier::{DestageOrder, Redirect};

/// A command that waits in a drive longer than this goes first, whatever the schedule.
const PATIENCE_NS: u64 = 500_000_000;

/// What a parameter's value stands for; an error begins with the parameter.
pub(super) fn at<T>(path: &str, found: Result<T, String>) -> Result<T, String> {
    found.map_err(|error| format!("{path}: {error}"))
}

/// What a name stands for, of all that there are.
fn one_of<T: Copy>(what: &str, name: &str, all: &[(&str, T)]) -> Result<T, String> {
    let found = all.iter().find(|(known, _)| *known == name);
    let known = all.iter().map(|(known, _)| *known);
    let found = found.map(|(_, value)| *value);
    found.ok_or_else(|| nearest::unknown(what, name, known))
}

pub fn level(name: &str) -> Result<Level, String> {
    let levels = [
        ("raid0", Level::Raid0),
        ("raid1", Level::Raid1),
        ("raid4", Level::Raid4),
        ("raid5", Level::Raid5(Rotation::default())),
        ("raid6", Level::Raid6(Rotation::default())),
        ("raid10", Level::Raid10 { copies: 2 }),
    ];
    one_of("level", name, &levels)
}

/// As an array's; a code cache may have three parities and more.
pub(super) fn surrogate_level(name: &str, code_cache: bool) -> Result<Level, String> {
    match name.strip_prefix("rs").map(str::parse) {
        Some(Ok(parities @ 3..=8)) if code_cache => Ok(Level::ReedSolomon { parities }),
        Some(Ok(3..=8)) => Err(format!("{name:?} is for a code cache")),
        _ => level(name),
    }
}

pub fn write_hole(name: &str, level: Level) -> Result<WriteHole, String> {
    let protections = [
        ("default", WriteHole::default_for(level)),
        ("none", WriteHole::None),
        ("bitmap", WriteHole::Bitmap),
        ("ppl", WriteHole::Ppl),
    ];
    one_of("protection", name, &protections)
}

pub fn schedule(name: &str) -> Result<Policy, String> {
    let patience_ns = PATIENCE_NS;
    let schedules = [
        ("fcfs", Policy::Fcfs),
        ("look", Policy::Look),
        ("sptf", Policy::Sptf { patience_ns }),
    ];
    one_of("schedule", name, &schedules)
}

pub(super) fn rule(name: &str) -> Result<Rule, String> {
    let found = Rule::named(name);
    found.ok_or_else(|| nearest::unknown("rule", name, Rule::ALL.map(Rule::name)))
}

pub(super) fn destage_order(name: &str) -> Result<DestageOrder, String> {
    let names = DestageOrder::ALL.map(DestageOrder::name);
    DestageOrder::named(name).ok_or_else(|| nearest::unknown("order of a destage", name, names))
}

pub(super) fn moves(name: &str) -> Result<Moves, String> {
    let found = Moves::named(name);
    found.ok_or_else(|| nearest::unknown("way to move", name, Moves::ALL.map(Moves::name)))
}

pub(super) fn order(name: &str) -> Result<Order, String> {
    let found = Order::named(name);
    found.ok_or_else(|| nearest::unknown("order", name, Order::ALL.map(Order::name)))
}

pub(super) fn redirect(name: &str) -> Result<Redirect, String> {
    let found = Redirect::named(name);
    found.ok_or_else(|| nearest::unknown("redirection", name, Redirect::ALL.map(Redirect::name)))
}

pub(super) fn throttle(name: &str) -> Result<Throttle, String> {
    let found = Throttle::named(name);
    found.ok_or_else(|| nearest::unknown("throttle", name, Throttle::FORMS))
}

/// Whether a drive is one of the names, or a file, which is not looked at.
pub(super) fn check_drive(name: &str) -> Result<(), String> {
    let mut known = drives::preset::names();
    match name.starts_with("file:") || known.any(|known| known == name) {
        true => Ok(()),
        false => {
            let names = drives::preset::names().chain(["file:PATH"]);
            Err(nearest::unknown("drive", name, names))
        }
    }
}

/// Whether a workload is one of the names, or a trace, which is not looked at.
pub(super) fn check_source(name: &str) -> Result<(), String> {
    let blocks = Course::named(name).is_some();
    let presets = preset::names();
    if name == "none" || blocks || name.starts_with("trace:") || presets.contains(name) {
        return Ok(());
    }
    let others = ["none", "random", "sequential", "trace:PATH"];
    let names = presets.iter().map(String::as_str).chain(others);
    Err(nearest::unknown("workload", name, names))
}

#[cfg(test)]
mod tests {
    use super::super::cell::{Cell, Contents, Settings};
    use super::super::form::for_parameter;
    use super::super::parameters::Grouped;
    use super::super::scenario::{Point, Value, named, parse};

    /// A sound point, without the scheme that would stand in the place of order and redirection.
    fn point() -> Point {
        let scenario = parse(named("rebuild-cost").expect("built in")).expect("sound");
        let mut point = scenario.shortened().points().remove(0);
        point.remove("rebuild.scheme");
        point
    }

    fn refused(path: &str, value: Value) -> Option<String> {
        let mut point = point();
        point.insert(path.into(), for_parameter(path, value));
        Cell::new(&point, 1, &mut Contents::default()).err()
    }

    #[test]
    fn every_parameter_of_names_lists_them_before_a_run() {
        let mut of_names = 0;
        for path in Settings::all() {
            let nonsense = Value::Text("no-such-name".into());
            let error = refused(&path, nonsense).expect(&path);
            // The forms of a skewed array come without a sign between.
            let error = error.strip_prefix(&path).expect(&error);
            if error.starts_with(": takes ") {
                continue;
            }
            of_names += 1;
            if [" as flat, 3, ", " as 6, 5+1 or "]
                .iter()
                .any(|form| error.contains(form))
            {
                continue;
            }
            let (no, all) = error.split_once("; there are ").expect(error);
            assert!(no.starts_with(": there is no "), "{error}");
            let names: Vec<&str> = all.split(", ").collect();
            assert!(names.len() > 1, "{path}: {error}");
            for name in names {
                let name = name.replace("TIME", "2h");
                let other = refused(&path, Value::Text(name.clone())).unwrap_or_default();
                assert!(!other.contains(": there is no "), "{path}={name}: {other}");
            }
            // A number is a name that there is not.
            let error = refused(&path, Value::Whole(77)).expect(&path);
            assert!(
                error.contains("there is no") && error.contains("'77'"),
                "{error}"
            );
        }
        assert_eq!(of_names, 18);
    }

    #[test]
    fn a_file_that_is_not_there_is_named_before_a_run() {
        for (path, kind) in [
            ("workload.source", "trace"),
            ("array.drive", "file"),
            ("array.spare_drive", "file"),
        ] {
            for file in ["no/such.spc", "no-such.model"] {
                let error = refused(path, Value::Text(format!("{kind}:{file}"))).expect(path);
                assert!(error.starts_with(path) && error.contains(file), "{error}");
            }
        }
    }
}
