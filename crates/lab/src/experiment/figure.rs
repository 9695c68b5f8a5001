//! Figures of an experiment: from its groups of runs to curves with their intervals, bars, heat maps,
//! distributions and courses over time. [`crate::plot`] draws them.

use super::course::{self, POWER};
use super::outcome::{Group, Outcome};
use super::ratios::ratios;
use super::scenario::{Figure, FigureKind, Scenario};
use super::value::Value;
use super::words::{self, Words};
use crate::nearest;
use crate::plot::bars::{self, Bar, Bars};
use crate::plot::heat::{self, Heat};
use crate::plot::lines::{Axis, Curve, Lines, Panel, Point};
use crate::plot::scale::number;
use crate::plot::{HEIGHT, Kind, Picture, Plot};
use crate::replay::facts::{Log, Phase};
use std::collections::{BTreeMap, BTreeSet};

/// `None` where nothing was measured that it could show.
fn plot(outcome: &Outcome<'_>, figure: &Figure) -> Option<Plot> {
    let plot = Plot(match figure.kind {
        FigureKind::Curve => Kind::Lines(curve(outcome, figure)),
        FigureKind::Bars => Kind::Bars(bars(outcome, figure)),
        FigureKind::Heat => Kind::Heat(heat(outcome, figure)),
        FigureKind::Cdf => Kind::Lines(distribution(outcome, figure)),
        FigureKind::Course => Kind::Lines(courses(outcome, figure)),
        FigureKind::Ratios => Kind::Bars(ratios(outcome, figure)),
    });
    (!plot.is_empty()).then_some(plot)
}

/// What restores redundancy, in a word for names of metrics.
pub(super) fn task(outcome: &Outcome<'_>, at: &BTreeMap<String, Value>) -> String {
    const TASK: &str = "rebuild.task";
    let fixed = outcome.scenario.fixed.get(TASK).map(|fixed| &fixed.value);
    let swept = outcome.scenario.sweep.contains_key(TASK);
    match at.get(TASK).or(fixed) {
        Some(task) => task.to_string(),
        None if swept => "task".into(),
        None => "rebuild".into(),
    }
}

fn metric_words(outcome: &Outcome<'_>, figure: &Figure, name: &str) -> Words {
    Words::of_metric(name, &task(outcome, &figure.at))
}

// -------------------------------------------------------------------------------------------------- series

/// Groups of runs that are one series: its name, and the groups by the figure's parameter.
type Series<'a> = (String, Vec<Group<'a>>);

/// Groups by the value of a parameter; all of them under an empty name without a parameter.
fn series<'a>(outcome: &'a Outcome<'_>, figure: &Figure) -> Vec<Series<'a>> {
    let groups = |at: &BTreeMap<String, Value>| outcome.groups_at(at);
    if figure.series.is_empty() {
        return vec![(String::new(), groups(&figure.at))];
    }
    let named = |value: &Value| {
        let mut at = figure.at.clone();
        at.insert(figure.series.clone(), value.clone());
        (words::value(&figure.series, value), groups(&at))
    };
    outcome.values(&figure.series).iter().map(named).collect()
}

/// What the series are values of.
fn heading(figure: &Figure) -> String {
    match figure.series.is_empty() {
        true => String::new(),
        false => Words::of_parameter(&figure.series).words,
    }
}

fn lines(title: &str, x: Axis, heading: String, panel: Panel) -> Lines {
    Lines {
        title: title.into(),
        x,
        heading,
        panels: vec![panel],
        shades: Vec::new(),
        shaded: String::new(),
        moments: Vec::new(),
        dots: String::new(),
    }
}

/// A curve's name, with the marks of the numbers that it is of.
fn with_marks(name: String, groups: &[Group<'_>], metric: &str) -> String {
    let marks = groups.iter().map(|group| group.mark(metric));
    let marks: BTreeSet<&str> = marks.flat_map(|mark| mark.split_whitespace()).collect();
    let marks = Vec::from_iter(marks).join(", ");
    match (name.is_empty(), marks.is_empty()) {
        (_, true) => name,
        (true, false) => format!("with values that are {marks}"),
        (false, false) => format!("{name} (with values that are {marks})"),
    }
}

// -------------------------------------------------------------------------------------------------- curves

fn curve(outcome: &Outcome<'_>, figure: &Figure) -> Lines {
    let x = Words::of_parameter(&figure.x);
    let y = metric_words(outcome, figure, &figure.y);
    let point = |group: &Group<'_>| {
        let at = group.point.get(&figure.x)?.number()?;
        let estimate = group.estimate(&figure.y)?;
        Some(Point {
            x: at * x.factor(),
            y: estimate.mean * y.factor(),
            low: estimate.low * y.factor(),
            high: estimate.high * y.factor(),
        })
    };
    let one = |(number, (name, groups)): (usize, Series<'_>)| Curve {
        name: with_marks(name, &groups, &figure.y),
        number,
        pieces: vec![groups.iter().filter_map(point).collect()],
        marked: true,
        dot: None,
    };
    let curves = series(outcome, figure).into_iter().enumerate().map(one);
    let wanted = outcome.values(&figure.x);
    let wanted = wanted.iter().filter_map(Value::number);
    let axis = Axis {
        name: x.with_unit(),
        logarithmic: figure.logarithmic,
        wanted: wanted.map(|value| value * x.factor()).collect(),
        ends: None,
    };
    let panel = Panel {
        name: y.with_unit(),
        logarithmic: figure.logarithmic,
        height: HEIGHT,
        curves: curves.collect(),
    };
    lines(&figure.title, axis, heading(figure), panel)
}

// ---------------------------------------------------------------------------------------------------- bars

fn bars(outcome: &Outcome<'_>, figure: &Figure) -> Bars {
    let words = metric_words(outcome, figure, &figure.y);
    let all = series(outcome, figure);
    let found = |groups: &[Group<'_>], value: &Value, name: &str, number: usize| {
        let mut groups = groups.iter();
        let group = groups.find(|group| group.point.get(&figure.x) == Some(value))?;
        bar(group, figure, &words, name, number)
    };
    let alone = figure.series.is_empty();
    let group = |value: &Value| {
        let at = words::value(&figure.x, value);
        let of = |(number, (name, groups)): (usize, &Series<'_>)| {
            let name = if alone { &at } else { name };
            found(groups, value, name, number)
        };
        bars::Group {
            bars: all.iter().enumerate().filter_map(of).collect(),
            name: if alone { String::new() } else { at.clone() },
        }
    };
    let values = outcome.values(&figure.x);
    let groups = values.iter().map(group);
    let of = Words::of_parameter(&figure.x).words;
    Bars {
        title: figure.title.clone(),
        name: words.with_unit(),
        heading: match alone {
            true => format!("By {of}"),
            false => format!("By {of}, then by {}", heading(figure)),
        },
        groups: groups.filter(|group| !group.bars.is_empty()).collect(),
    }
}

/// `None` where nothing was measured.
fn bar(
    group: &Group<'_>,
    figure: &Figure,
    words: &Words,
    name: &str,
    number: usize,
) -> Option<Bar> {
    let shown = group.shown(&figure.y);
    let [mean, low, high] = match group.estimate(&figure.y) {
        Some(estimate) => [estimate.mean, estimate.low, estimate.high],
        // Zeros have no geometric mean, and the plain one is shown.
        None => [shown.split(' ').next()?.parse().ok()?; 3],
    };
    let mark = shown.split_once(' ').map_or("", |(_, mark)| mark);
    let value = mean * words.factor();
    Some(Bar {
        name: name.into(),
        number,
        value,
        low: low * words.factor(),
        high: high * words.factor(),
        shown: format!("{} {mark}", self::number(value)).trim_end().into(),
    })
}

// ----------------------------------------------------------------------------------------------- heat maps

fn heat(outcome: &Outcome<'_>, figure: &Figure) -> Heat {
    let words = metric_words(outcome, figure, &figure.z);
    let (columns, rows) = (outcome.values(&figure.x), outcome.values(&figure.y));
    let cell = |x: &Value, y: &Value| {
        let mut at = figure.at.clone();
        at.insert(figure.x.clone(), x.clone());
        at.insert(figure.y.clone(), y.clone());
        let groups = outcome.groups_at(&at);
        let group = groups.first()?;
        Some(heat::Cell {
            value: group.estimate(&figure.z)?.mean * words.factor(),
            mark: group.mark(&figure.z),
        })
    };
    let row = |y: &Value| columns.iter().map(|x| cell(x, y)).collect();
    let names = |path: &str, values: &[Value]| {
        let names = values.iter().map(|value| words::bare_value(path, value));
        names.collect::<Vec<String>>()
    };
    Heat {
        title: figure.title.clone(),
        name: words.with_unit(),
        columns_of: Words::of_parameter(&figure.x).with_unit(),
        rows_of: Words::of_parameter(&figure.y).with_unit(),
        cells: rows.iter().map(row).collect(),
        columns: names(&figure.x, &columns),
        rows: names(&figure.y, &rows),
    }
}

// ------------------------------------------------------------------------------------------- distributions

/// The distribution of response times, all seeds together.
fn distribution(outcome: &Outcome<'_>, figure: &Figure) -> Lines {
    let all = series(outcome, figure);
    // All numbers of a phase have the same mark.
    let any = format!("{}.mean_ms", figure.x);
    let curves = all.iter().map(|(name, groups)| {
        let of_it = groups.first().map_or(&[][..], std::slice::from_ref);
        let runs = groups.first().map_or(&[][..], |group| group.runs);
        let phases = runs.iter().filter_map(|run| run.log.phase(&figure.x));
        (
            with_marks(name.clone(), of_it, &any),
            shares(phases.flat_map(|phase| &phase.histogram)),
        )
    });
    let mut lines = cumulative(&figure.title, heading(figure), curves.collect());
    lines.panels[0].logarithmic = figure.logarithmic;
    lines
}

fn cumulative(title: &str, heading: String, curves: Vec<(String, Vec<(f64, f64)>)>) -> Lines {
    let measured = curves.into_iter().filter(|(_, points)| !points.is_empty());
    let curve = |(number, (name, points)): (usize, (String, Vec<(f64, f64)>))| Curve {
        name,
        number,
        pieces: vec![points.into_iter().map(Point::sole).collect()],
        marked: false,
        dot: None,
    };
    let axis = Axis {
        name: "response time, ms".into(),
        logarithmic: true,
        wanted: Vec::new(),
        ends: None,
    };
    let panel = Panel {
        name: "share of requests that took at most this long, %".into(),
        logarithmic: false,
        height: HEIGHT,
        curves: measured.enumerate().map(curve).collect(),
    };
    lines(title, axis, heading, panel)
}

/// Shares below the first percent of a thousand and above the last are left out: they would be most of the
/// axis.
const TAIL: f64 = 0.1;

/// The share of requests up to each time, in milliseconds and percent, from the buckets of any number of
/// histograms.
fn shares<'a>(buckets: impl Iterator<Item = &'a (u64, u64)>) -> Vec<(f64, f64)> {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for (top, count) in buckets {
        *counts.entry(*top).or_insert(0) += count;
    }
    let all: u64 = counts.values().sum();
    let mut seen = 0;
    let point = |(top, count): (u64, u64)| {
        seen += count;
        (top.max(1000) as f64 / 1e6, 100.0 * seen as f64 / all as f64)
    };
    let points: Vec<(f64, f64)> = counts.into_iter().map(point).collect();
    let first = points.partition_point(|(_, share)| *share < TAIL);
    let last = points.partition_point(|(_, share)| *share < 100.0 - TAIL);
    points[first..points.len().min(last + 1)].to_vec()
}

// ------------------------------------------------------------------------------------------------- courses

/// The course of the first seed's run of each series, with a dot where its rebuild ended.
fn courses(outcome: &Outcome<'_>, figure: &Figure) -> Lines {
    let all = series(outcome, figure);
    let runs = all.iter().filter_map(|(name, groups)| {
        let run = groups.first()?.runs.first()?;
        Some((name.clone(), &run.log))
    });
    let runs: Vec<(String, &Log)> = runs.collect();
    let drawn = course::Drawn {
        title: &figure.title,
        task: &task(outcome, &figure.at),
        power: figure.y == POWER,
        logarithmic: figure.logarithmic,
    };
    drawn.lines(heading(figure), &runs)
}

// ------------------------------------------------------------------------------------------------ of a run

/// Figures of one run, of a replay say, by name: its course, its times by phase, and their distribution.
pub fn of_run(log: &Log) -> Vec<Picture> {
    const TASK: &str = "rebuild";
    let drawn = course::Drawn {
        title: "Response over time",
        task: TASK,
        power: false,
        logarithmic: true,
    };
    let asked: Vec<&Phase> = log
        .phases
        .iter()
        .filter(|phase| phase.times.count > 0)
        .collect();
    let curve = |phase: &&Phase| {
        (
            words::phase(&phase.name, TASK),
            shares(phase.histogram.iter()),
        )
    };
    let curves = asked.iter().map(curve).collect();
    let course = drawn.lines(String::new(), &[(String::new(), log)]);
    let phases = Bars {
        title: "Response by phase".into(),
        name: "response time, ms".into(),
        heading: String::new(),
        groups: asked.iter().map(|phase| times(phase, TASK)).collect(),
    };
    let distribution = cumulative("Response times by phase", String::new(), curves);
    let all = [
        ("course", Kind::Lines(course)),
        ("phases", Kind::Bars(phases)),
        ("distribution", Kind::Lines(distribution)),
    ];
    let named = all.into_iter().map(|(name, kind)| Picture {
        name: name.into(),
        plot: Plot(kind),
    });
    named.filter(|picture| !picture.plot.is_empty()).collect()
}

/// Mean and percentiles of a phase.
fn times(phase: &Phase, task: &str) -> bars::Group {
    let times = &phase.times;
    let shown = [
        ("mean", times.mean_ns),
        ("median", times.p50_ns),
        ("95th percentile", times.p95_ns),
        ("99th percentile", times.p99_ns),
    ];
    let bar = |(number, (name, ns)): (usize, (&str, u64))| {
        let value = ns as f64 / 1e6;
        Bar {
            name: name.into(),
            number,
            value,
            low: value,
            high: value,
            shown: number_of(value),
        }
    };
    bars::Group {
        name: words::phase(&phase.name, task),
        bars: shown.into_iter().enumerate().map(bar).collect(),
    }
}

/// Milliseconds in a bar's label: four digits, two decimals at most.
fn number_of(value: f64) -> String {
    number((value * 100.0).round() / 100.0)
}

/// Whether the figures of a scenario can be drawn: each has a name of its own, and what it names is known.
pub fn check(scenario: &Scenario) -> Result<(), String> {
    for (nth, figure) in scenario.figures.iter().enumerate() {
        let of_figure = |error| format!("the figure {}: {error}", figure.name);
        if scenario.figures[..nth]
            .iter()
            .any(|one| one.name == figure.name)
        {
            return Err(format!("two figures have the name {:?}", figure.name));
        }
        check_parameters(scenario, figure).map_err(of_figure)?;
        check_metric(figure)?;
    }
    Ok(())
}

fn check_parameters(scenario: &Scenario, figure: &Figure) -> Result<(), String> {
    let known = scenario.fixed.keys().chain(scenario.sweep.keys());
    let known: Vec<&str> = known.map(String::as_str).collect();
    let axes: &[&String] = match figure.kind {
        FigureKind::Heat => &[&figure.x, &figure.y],
        FigureKind::Curve | FigureKind::Bars => &[&figure.x],
        FigureKind::Cdf | FigureKind::Course | FigureKind::Ratios => &[],
    };
    let series = Some(&figure.series).filter(|path| !path.is_empty());
    let mut paths = axes.iter().copied().chain(figure.at.keys()).chain(series);
    match paths.find(|path| !known.contains(&path.as_str())) {
        Some(path) => Err(nearest::unknown_one("parameter", path, known) + " of the scenario"),
        None => Ok(()),
    }
}

fn check_metric(figure: &Figure) -> Result<(), String> {
    let known = super::metric::known;
    let (name, drawn, is_no) = match figure.kind {
        FigureKind::Curve | FigureKind::Bars => (&figure.y, known(&figure.y), "metric"),
        FigureKind::Heat => (&figure.z, known(&figure.z), "metric"),
        FigureKind::Course => {
            let course = figure.y.is_empty() || figure.y == POWER;
            let is_no = "course: there is power_w, and response without a name";
            (&figure.y, course, is_no)
        }
        FigureKind::Cdf | FigureKind::Ratios => return Ok(()),
    };
    let figure = &figure.name;
    match drawn {
        true => Ok(()),
        false => Err(format!(
            "the figure {figure} shows {name:?}, which is no {is_no}"
        )),
    }
}

/// Every figure of an outcome, by name.
pub fn all(outcome: &Outcome<'_>) -> Vec<Picture> {
    let drawn = |figure: &Figure| {
        let name = figure.name.clone();
        Some(Picture {
            name,
            plot: plot(outcome, figure)?,
        })
    };
    outcome.scenario.figures.iter().filter_map(drawn).collect()
}

#[cfg(test)]
mod tests {
    use super::super::scenario;
    use super::*;
    use crate::plot::sheet::assert_legible;
    use crate::plot::{NARROW, WIDE};
    use crate::replay::facts::{Rebuild, Step};
    use crate::replay::histogram::Times;

    fn log() -> Log {
        let phase = |(name, from, to): (&str, u64, u64)| Phase {
            name: name.into(),
            from_ns: from * 1_000_000_000,
            to_ns: to * 1_000_000_000,
            times: Times {
                count: 10,
                mean_ns: 3_000_000,
                p50_ns: 2_000_000,
                p95_ns: 90_000_000,
                p99_ns: 12_345_678_901,
                ..Times::default()
            },
            histogram: (1..=2000).map(|top| (top * 100_000, 1)).collect(),
            ..Phase::default()
        };
        let step = |number: u64| Step {
            from_ns: number * 1_000_000_000,
            requests: 30,
            bytes: 0,
            mean_ns: 1_000_000 + number * 100_000,
            p50_ns: 0,
            p99_ns: 0,
            max_ns: 0,
        };
        let phases = [
            ("before", 0, 60),
            ("degraded", 60, 63),
            ("during", 63, 200),
            ("after", 200, 260),
        ];
        Log {
            phases: phases.map(phase).into(),
            steps: (0..260).map(step).collect(),
            step_ns: 1_000_000_000,
            rebuild: Some(Rebuild {
                from_ns: 63_000_000_000,
                to_ns: Some(200_000_000_000),
                rows_done: 1,
                rows_total: 1,
            }),
            ..Log::default()
        }
    }

    #[test]
    fn figures_of_a_run_are_legible_on_any_paper() {
        let pictures = of_run(&log());
        let names: Vec<&str> = pictures.iter().map(|picture| &picture.name[..]).collect();
        assert_eq!(names, ["course", "phases", "distribution"]);
        for picture in pictures {
            for width in [WIDE, NARROW] {
                assert_legible(&picture.plot.sheet(width));
            }
        }
    }

    #[test]
    fn a_distribution_is_cut_where_nothing_happens() {
        let buckets: Vec<(u64, u64)> = (1..=10_000).map(|top| (top * 1000, 1)).collect();
        let points = shares(buckets.iter());
        assert!((points[0].1 - 0.1).abs() < 1e-9, "{:?}", points[0]);
        assert!((points[points.len() - 1].1 - 99.9).abs() < 0.02);
    }

    #[test]
    fn a_course_of_a_metric_is_refused() {
        let figure = |y: &str| Figure {
            name: "power".into(),
            kind: FigureKind::Course,
            title: String::new(),
            x: String::new(),
            y: y.into(),
            z: String::new(),
            series: String::new(),
            at: BTreeMap::new(),
            logarithmic: false,
        };
        assert!(check_metric(&figure("")).is_ok() && check_metric(&figure(POWER)).is_ok());
        let refused = check_metric(&figure("energy_kj")).expect_err("no course");
        assert!(refused.contains("power_w"), "{refused}");
    }

    #[test]
    fn a_figure_is_over_what_the_scenario_has() {
        let scenario = scenario::named("rebuild-cost").expect("built in");
        let scenario = scenario::parse(scenario).expect("sound");
        assert_eq!(check(&scenario), Ok(()));
        let of = |kind| scenario.figures.iter().position(|one| one.kind == kind);
        let first = of(FigureKind::Bars).expect("it has bars");
        let changes: [fn(&mut Figure); 5] = [
            |figure| figure.x = "array.levle".into(),
            |figure| figure.series = "array.nope".into(),
            |figure| figure.y = "durng.mean_ms".into(),
            |figure| drop(figure.at.insert("array.nope".into(), Value::Whole(1))),
            |figure| figure.name = "another".into(),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut changed = scenario.clone();
            let mut other = changed.figures[first].clone();
            other.name = "another".into();
            changed.figures.push(other);
            assert_eq!(check(&changed), Ok(()));
            change(&mut changed.figures[first]);
            assert!(check(&changed).is_err(), "change {number}");
        }
    }
}
