//! Figures of an experiment as SVG: curves with their intervals, bars, heat maps, distributions, courses
//! over time.
//!
//! Written by hand, like [`crate::chart`], and for the same reasons. Each stands alone: its style is within
//! it.

use super::outcome::{Group, Outcome, last, short};
use super::scenario::{Figure, FigureKind, Value};
use super::statistics::Estimate;
use crate::replay::facts::{Log, Phase};
use crate::svg::{escape, line, polyline, text};
use std::collections::BTreeMap;
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 52.0;
const COLOURS: [&str; 8] = [
    "#1f6feb", "#c2410c", "#15803d", "#7c3aed", "#b45309", "#0e7490", "#be185d", "#64748b",
];
const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#1c2430}.grid{stroke:#d7dde5}.axis{stroke:#64748b}\
.line{fill:none;stroke-width:1.8}.bar{stroke:none}.error{stroke:#1c2430}";

/// A figure's series: name and points (x, estimate).
type Series = (String, Vec<(f64, Estimate)>);

/// `None` where nothing was measured that it could show.
pub fn svg(outcome: &Outcome<'_>, figure: &Figure) -> Option<String> {
    match figure.kind {
        FigureKind::Curve => curve(outcome, figure),
        FigureKind::Bars => bars(outcome, figure),
        FigureKind::Heat => heat(outcome, figure),
        FigureKind::Cdf => distribution(outcome, figure),
        FigureKind::Course => course(outcome, figure),
    }
}

// ----------------------------------------------------------------------------------------------------------- frame

/// From numbers to places on paper.
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
    logarithmic_x: bool,
    logarithmic_y: bool,
}

impl Frame {
    fn of(points: &[(f64, f64)], logarithmic_x: bool, logarithmic_y: bool) -> Option<Frame> {
        let range = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            })
        };
        let x = range(&mut points.iter().map(|point| point.0));
        let mut y = range(&mut points.iter().map(|point| point.1));
        if !(x.0.is_finite() && y.0.is_finite()) {
            return None;
        }
        let logarithmic_y = logarithmic_y && y.0 > 0.0;
        if !logarithmic_y {
            y = (y.0.min(0.0), if y.1 > 0.0 { y.1 * 1.05 } else { 1.0 });
        }
        Some(Frame {
            x: if x.0 < x.1 { x } else { (x.0 - 0.5, x.1 + 0.5) },
            y: if y.0 < y.1 { y } else { (y.0 * 0.9, y.1 * 1.1) },
            logarithmic_x: logarithmic_x && x.0 > 0.0,
            logarithmic_y,
        })
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * part(value, self.x, self.logarithmic_x)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part(value, self.y, self.logarithmic_y)
    }

    fn stroke(&self, out: &mut String, number: usize, points: impl Iterator<Item = (f64, f64)>) {
        let places: Vec<_> = points.map(|(x, y)| (self.x(x), self.y(y))).collect();
        stroke(out, colour(number), &places);
    }

    fn draw_y(&self, out: &mut String, name: &str) {
        for value in ticks(self.y, self.logarithmic_y) {
            let y = self.y(value);
            line(out, "grid", (LEFT, y), (WIDTH - RIGHT, y));
            text(out, (LEFT - 8.0, y + 4.0), "end", &label(value));
        }
        text(out, (8.0, TOP - 8.0), "start", name);
    }

    fn draw_x(&self, out: &mut String, values: &[f64], name: &str) {
        for value in values {
            let x = self.x(*value);
            let foot = HEIGHT - BOTTOM;
            line(out, "axis", (x, foot), (x, foot + 5.0));
            below(out, x, &label(*value));
        }
        name_x(out, name);
    }
}

fn part(value: f64, (low, high): (f64, f64), logarithmic: bool) -> f64 {
    let part = match logarithmic {
        true => (value / low).ln() / (high / low).ln(),
        false => (value - low) / (high - low),
    };
    part.clamp(0.0, 1.0)
}

/// Round numbers within a range: about five, or decades with twos and fives.
fn ticks((low, high): (f64, f64), logarithmic: bool) -> Vec<f64> {
    if logarithmic {
        let steps = [1.0, 2.0, 5.0].into_iter();
        let steps = steps.take(if high / low > 300.0 { 1 } else { 3 });
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let of = |decade| steps.clone().map(move |step| step * 10f64.powi(decade));
        let within = |value: &f64| (low * 0.999..=high * 1.001).contains(value);
        return decades.flat_map(of).filter(within).collect();
    }
    let rough = (high - low) / 5.0;
    let magnitude = 10f64.powi(rough.log10().floor() as i32);
    let mut steps = [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * magnitude)
        .into_iter();
    let step = steps.find(|step| *step >= rough).unwrap_or(rough);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    let numbers = (first..=last).take(50);
    numbers.map(|number| number as f64 * step).collect()
}

fn label(value: f64) -> String {
    let text = short(value);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

fn begin(title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
         <style>{STYLE}</style>\n<title>{0}</title>\n<text x=\"{LEFT}\" y=\"14\" font-weight=\"bold\">{0}</text>\n",
        escape(title)
    )
}

/// Lines that have no name need none.
fn legend<'a>(out: &mut String, names: impl Iterator<Item = &'a str> + Clone) {
    if names.clone().all(str::is_empty) {
        return;
    }
    for (number, name) in names.enumerate() {
        let y = TOP + 8.0 + 18.0 * number as f64;
        let x = WIDTH - RIGHT + 16.0;
        stroke(out, colour(number), &[(x, y - 4.0), (x + 20.0, y - 4.0)]);
        text(out, (x + 26.0, y), "start", name);
    }
}

fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

// Writing to a string cannot fail, here and below.
fn dot(out: &mut String, colour: &str, (x, y): (f64, f64)) {
    let _ = writeln!(
        out,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{colour}\"/>"
    );
}

fn stroke(out: &mut String, colour: &str, points: &[(f64, f64)]) {
    let attributes = format!("class=\"line\" stroke=\"{colour}\"");
    polyline(out, &attributes, seen(points).into_iter());
}

/// The first point, the last, and of those between what is a pixel or more away from the one drawn before.
fn seen(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for (index, (x, y)) in points.iter().enumerate() {
        let near = |(left, top): &(f64, f64)| (x - left).abs() < 1.0 && (y - top).abs() < 1.0;
        let near = kept.last().is_some_and(near);
        if !near || index + 1 == points.len() {
            kept.push((*x, *y));
        }
    }
    kept
}

fn rectangle(out: &mut String, fill: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
    let _ = writeln!(
        out,
        "<rect class=\"bar\" fill=\"{fill}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\"/>",
        height.max(0.0)
    );
}

/// Below the axis, at a place of it.
fn below(out: &mut String, x: f64, content: &str) {
    text(out, (x, HEIGHT - BOTTOM + 20.0), "middle", content);
}

/// Below that, the name of the axis.
fn name_x(out: &mut String, name: &str) {
    let middle = ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 10.0);
    text(out, middle, "middle", name);
}

fn end(mut out: String) -> Option<String> {
    out.push_str("</svg>\n");
    Some(out)
}

// ---------------------------------------------------------------------------------------------------------- curves

/// Groups by the value of a parameter; all of them under one name without a parameter.
fn by<'a>(outcome: &'a Outcome<'_>, figure: &Figure) -> Vec<(String, Vec<Group<'a>>)> {
    let groups = |at: &BTreeMap<String, Value>| outcome.groups_at(at);
    if figure.series.is_empty() {
        return vec![(String::new(), groups(&figure.at))];
    }
    let named = |value: &Value| {
        let mut at = figure.at.clone();
        at.insert(figure.series.clone(), value.clone());
        (format!("{} {value}", last(&figure.series)), groups(&at))
    };
    outcome.values(&figure.series).iter().map(named).collect()
}

fn series(outcome: &Outcome<'_>, figure: &Figure) -> Vec<Series> {
    let point = |group: &Group<'_>| {
        let x = group.point.get(&figure.x)?.number()?;
        Some((x, group.estimate(&figure.y)?))
    };
    let one = |(name, groups): (String, Vec<Group<'_>>)| {
        (name, groups.iter().filter_map(point).collect())
    };
    by(outcome, figure).into_iter().map(one).collect()
}

fn curve(outcome: &Outcome<'_>, figure: &Figure) -> Option<String> {
    let series = series(outcome, figure);
    let all = series.iter().flat_map(|(_, points)| points);
    let corners = all.flat_map(|(x, e)| [(*x, e.low), (*x, e.high)]);
    let corners: Vec<(f64, f64)> = corners.collect();
    let frame = Frame::of(&corners, figure.logarithmic, figure.logarithmic)?;
    let mut out = begin(&figure.title);
    frame.draw_y(&mut out, &figure.y);
    let values = outcome.values(&figure.x);
    let values: Vec<f64> = values.iter().filter_map(Value::number).collect();
    frame.draw_x(&mut out, &values, &figure.x);
    for (number, (_, points)) in series.iter().enumerate() {
        frame.stroke(&mut out, number, points.iter().map(|(x, e)| (*x, e.mean)));
        for (x, estimate) in points {
            let (low, high) = (frame.y(estimate.low), frame.y(estimate.high));
            line(&mut out, "error", (frame.x(*x), low), (frame.x(*x), high));
        }
    }
    legend(&mut out, series.iter().map(|(name, _)| name.as_str()));
    end(out)
}

// ------------------------------------------------------------------------------------------------------------ bars

fn bars(outcome: &Outcome<'_>, figure: &Figure) -> Option<String> {
    let places = outcome.values(&figure.x);
    let series = by(outcome, figure);
    let found = |groups: &[Group<'_>], value: &Value| {
        let group = groups
            .iter()
            .find(|group| group.point.get(&figure.x) == Some(value));
        group.and_then(|group| group.estimate(&figure.y))
    };
    let heights = series
        .iter()
        .flat_map(|(_, groups)| places.iter().filter_map(|v| found(groups, v)));
    let heights: Vec<(f64, f64)> = heights.map(|estimate| (0.0, estimate.high)).collect();
    let frame = Frame::of(&heights, false, false)?;
    let mut out = begin(&figure.title);
    frame.draw_y(&mut out, &figure.y);
    let slot = (WIDTH - LEFT - RIGHT) / places.len().max(1) as f64;
    let width = slot * 0.8 / series.len().max(1) as f64;
    for (place, value) in places.iter().enumerate() {
        let from = LEFT + slot * place as f64 + slot * 0.1;
        below(&mut out, from + slot * 0.4, &value.to_string());
        for (number, (_, groups)) in series.iter().enumerate() {
            let Some(estimate) = found(groups, value) else {
                continue;
            };
            let (x, y) = (from + width * number as f64, frame.y(estimate.mean));
            let size = (width * 0.92, frame.y(0.0) - y);
            rectangle(&mut out, colour(number), (x, y), size);
            let middle = x + width * 0.46;
            let (low, high) = (frame.y(estimate.low), frame.y(estimate.high));
            line(&mut out, "error", (middle, low), (middle, high));
        }
    }
    name_x(&mut out, &figure.x);
    legend(&mut out, series.iter().map(|(name, _)| name.as_str()));
    end(out)
}

// ------------------------------------------------------------------------------------------------------------ heat

fn heat(outcome: &Outcome<'_>, figure: &Figure) -> Option<String> {
    let (columns, rows) = (outcome.values(&figure.x), outcome.values(&figure.y));
    let groups = outcome.groups_at(&figure.at);
    let at = |x: &Value, y: &Value| {
        let fits = |group: &&Group<'_>| {
            group.point.get(&figure.x) == Some(x) && group.point.get(&figure.y) == Some(y)
        };
        groups
            .iter()
            .find(fits)
            .and_then(|group| group.estimate(&figure.z))
    };
    let means = rows
        .iter()
        .flat_map(|y| columns.iter().filter_map(|x| Some(at(x, y)?.mean)));
    let largest = means.fold(0.0, f64::max);
    if largest <= 0.0 {
        return None;
    }
    let mut out = begin(&format!("{}: {}", figure.title, figure.z));
    let width = (WIDTH - LEFT - RIGHT) / columns.len() as f64;
    let height = (HEIGHT - TOP - BOTTOM) / rows.len() as f64;
    for (row, y) in rows.iter().enumerate() {
        let top = TOP + height * row as f64;
        let place = (LEFT - 8.0, top + height / 2.0);
        text(&mut out, place, "end", &y.to_string());
        for (column, x) in columns.iter().enumerate() {
            let left = LEFT + width * column as f64;
            let Some(estimate) = at(x, y) else { continue };
            let depth = 235 - (190.0 * estimate.mean / largest) as u8;
            let fill = format!("rgb({depth},{},255)", depth.saturating_add(15));
            rectangle(&mut out, &fill, (left, top), (width - 2.0, height - 2.0));
            let middle = (left + width / 2.0, top + height / 2.0);
            text(&mut out, middle, "middle", &short(estimate.mean));
        }
    }
    for (column, x) in columns.iter().enumerate() {
        let middle = LEFT + width * (column as f64 + 0.5);
        below(&mut out, middle, &x.to_string());
    }
    let names = format!("{} (across), {} (down)", figure.x, figure.y);
    name_x(&mut out, &names);
    end(out)
}

// --------------------------------------------------------------------------------------------- times of one group

/// The distribution of response times, all seeds together.
fn distribution(outcome: &Outcome<'_>, figure: &Figure) -> Option<String> {
    let all = by(outcome, figure);
    let curves = all.iter().filter_map(|(name, groups)| {
        let curve = cumulative(groups.first()?, &figure.x);
        (!curve.is_empty()).then(|| (name.clone(), curve))
    });
    let curves: Vec<(String, Vec<(f64, f64)>)> = curves.collect();
    let mut axes = DISTRIBUTION;
    axes.logarithmic_y = figure.logarithmic;
    lines(&figure.title, &axes, &curves, &[])
}

fn cumulative(group: &Group<'_>, phase: &str) -> Vec<(f64, f64)> {
    let phases = group.runs.iter().filter_map(|run| run.log.phase(phase));
    shares(phases.flat_map(|phase| &phase.histogram))
}

/// The share of requests up to each time, in milliseconds, from the buckets of any number of histograms.
fn shares<'a>(buckets: impl Iterator<Item = &'a (u64, u64)>) -> Vec<(f64, f64)> {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for (top, count) in buckets {
        *counts.entry(*top).or_insert(0) += count;
    }
    let all: u64 = counts.values().sum();
    let mut seen = 0;
    let point = |(top, count): (u64, u64)| {
        seen += count;
        (top.max(1000) as f64 / 1e6, seen as f64 / all as f64)
    };
    counts.into_iter().map(point).collect()
}

/// The course of the first seed's run, with a dot where its rebuild ended.
fn course(outcome: &Outcome<'_>, figure: &Figure) -> Option<String> {
    let all = by(outcome, figure);
    let (mut curves, mut dots) = (Vec::new(), Vec::new());
    for (name, groups) in &all {
        let Some(run) = groups.first().and_then(|group| group.runs.first()) else {
            continue;
        };
        let points = match figure.y == POWER {
            true => power_of(&run.log),
            false => course_of(&run.log),
        };
        dots.extend(end_on(&points, &run.log).map(|end| (curves.len(), end)));
        curves.push((name.clone(), points));
    }
    let axes = Axes {
        x: "time, s",
        y: match figure.y == POWER {
            true => "power of all drives, W",
            false => "mean response, ms",
        },
        logarithmic_x: false,
        logarithmic_y: figure.logarithmic,
    };
    lines(&figure.title, &axes, &curves, &dots)
}

/// Where on its course a run's rebuild ended.
fn end_on(points: &[(f64, f64)], log: &Log) -> Option<(f64, f64)> {
    let end = log.rebuild?.to_ns? as f64 / 1e9;
    points.iter().rev().find(|point| point.0 <= end).copied()
}

/// What a course shows if not response.
const POWER: &str = "power_w";

/// At most so many points a line, each the mean of as many steps.
const POINTS: usize = 400;

/// What all drives drew, in watts.
fn power_of(log: &Log) -> Vec<(f64, f64)> {
    let at_once = log.drawn_uj.len().div_ceil(POINTS).max(1);
    let step_s = log.step_ns as f64 / 1e9;
    let point = |(place, steps): (usize, &[u64])| {
        let joules = steps.iter().sum::<u64>() as f64 / 1e6;
        let from = (place * at_once) as f64 * step_s;
        (from, joules / (steps.len() as f64 * step_s))
    };
    let steps = log.drawn_uj.chunks(at_once).enumerate();
    steps.map(point).collect()
}

fn course_of(log: &Log) -> Vec<(f64, f64)> {
    let at_once = log.steps.len().div_ceil(POINTS).max(1);
    let point = |steps: &[crate::replay::facts::Step]| {
        let requests: u64 = steps.iter().map(|step| step.requests).sum();
        let times = steps
            .iter()
            .map(|step| step.requests as f64 * step.mean_ns as f64);
        let sum: f64 = times.sum();
        (requests > 0).then(|| (steps[0].from_ns as f64 / 1e9, sum / requests as f64 / 1e6))
    };
    log.steps.chunks(at_once).filter_map(point).collect()
}

struct Axes {
    x: &'static str,
    y: &'static str,
    logarithmic_x: bool,
    logarithmic_y: bool,
}

const DISTRIBUTION: Axes = Axes {
    x: "response time, ms",
    y: "share of requests",
    logarithmic_x: true,
    logarithmic_y: false,
};

fn lines(
    title: &str,
    axes: &Axes,
    curves: &[(String, Vec<(f64, f64)>)],
    dots: &[(usize, (f64, f64))],
) -> Option<String> {
    let points = curves.iter().flat_map(|(_, points)| points);
    let all: Vec<(f64, f64)> = points.copied().collect();
    let frame = Frame::of(&all, axes.logarithmic_x, axes.logarithmic_y)?;
    let mut out = begin(title);
    frame.draw_y(&mut out, axes.y);
    frame.draw_x(&mut out, &ticks(frame.x, frame.logarithmic_x), axes.x);
    for (number, (_, points)) in curves.iter().enumerate() {
        frame.stroke(&mut out, number, points.iter().copied());
    }
    for (number, (x, y)) in dots {
        dot(&mut out, colour(*number), (frame.x(*x), frame.y(*y)));
    }
    legend(&mut out, curves.iter().map(|(name, _)| name.as_str()));
    end(out)
}

/// The course of one run, of a replay say, with its phases and what happened.
fn course_svg(title: &str, log: &Log) -> Option<String> {
    let points = course_of(log);
    let frame = Frame::of(&points, false, true)?;
    let mut out = begin(title);
    frame.draw_y(&mut out, "mean response, ms");
    frame.draw_x(&mut out, &ticks(frame.x, false), "time, s");
    for (number, phase) in log.phases.iter().enumerate() {
        let (from, to) = (phase.from_ns, phase.to_ns);
        let (from, to) = (frame.x(from as f64 / 1e9), frame.x(to as f64 / 1e9));
        line(&mut out, "axis", (from, TOP), (from, HEIGHT - BOTTOM));
        let y = TOP + 12.0 + 14.0 * (number % 3) as f64;
        if to > from {
            text(&mut out, (from + 3.0, y), "start", &phase.name);
        }
    }
    frame.stroke(&mut out, 0, points.into_iter());
    end(out)
}

/// Figures of one run, of a replay say, by name: its course, its times by phase, and their distribution.
pub fn of_run(log: &Log) -> Vec<(String, String)> {
    let distribution = distribution_svg("Response times by phase", log);
    let drawn = [
        ("course", course_svg("Response over time", log)),
        ("phases", phases_svg("Response by phase", log)),
        ("distribution", distribution),
    ];
    let named = drawn.into_iter();
    let named = named.filter_map(|(name, svg)| Some((name.to_string(), svg?)));
    named.collect()
}

fn asked(log: &Log) -> impl Iterator<Item = &Phase> {
    log.phases.iter().filter(|phase| phase.times.count > 0)
}

fn distribution_svg(title: &str, log: &Log) -> Option<String> {
    let curve = |phase: &Phase| (phase.name.clone(), shares(phase.histogram.iter()));
    let curves: Vec<_> = asked(log).map(curve).collect();
    lines(title, &DISTRIBUTION, &curves, &[])
}

/// Mean and percentiles, side by side for each phase.
fn phases_svg(title: &str, log: &Log) -> Option<String> {
    const SHOWN: [&str; 4] = ["mean", "p50", "p95", "p99"];
    let heights = |phase: &Phase| {
        let times = &phase.times;
        [times.mean_ns, times.p50_ns, times.p95_ns, times.p99_ns].map(|ns| ns as f64 / 1e6)
    };
    let phases: Vec<&Phase> = asked(log).collect();
    let all = phases.iter().flat_map(|phase| heights(phase));
    let all: Vec<(f64, f64)> = all.map(|height| (0.0, height)).collect();
    let frame = Frame::of(&all, false, false)?;
    let mut out = begin(title);
    frame.draw_y(&mut out, "response time, ms");
    let slot = (WIDTH - LEFT - RIGHT) / phases.len() as f64;
    let width = slot * 0.8 / SHOWN.len() as f64;
    for (place, phase) in phases.iter().enumerate() {
        let from = LEFT + slot * (place as f64 + 0.1);
        below(&mut out, from + slot * 0.4, &phase.name);
        for (number, height) in heights(phase).into_iter().enumerate() {
            let (x, y) = (from + width * number as f64, frame.y(height));
            let size = (width * 0.92, frame.y(0.0) - y);
            rectangle(&mut out, colour(number), (x, y), size);
            let above = (x + width * 0.46, y - 3.0);
            text(&mut out, above, "middle", &narrow(height));
        }
    }
    legend(&mut out, SHOWN.into_iter());
    end(out)
}

/// As much of a number as fits over a bar.
fn narrow(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Whether a figure can be drawn at all: its names are known.
pub fn check(figure: &Figure) -> Result<(), String> {
    let known = super::metric::known;
    let (name, drawn, is_no) = match figure.kind {
        FigureKind::Curve | FigureKind::Bars => (&figure.y, known(&figure.y), "metric"),
        FigureKind::Heat => (&figure.z, known(&figure.z), "metric"),
        FigureKind::Course => {
            let course = figure.y.is_empty() || figure.y == POWER;
            let is_no = "course: there is power_w, and response without a name";
            (&figure.y, course, is_no)
        }
        FigureKind::Cdf => return Ok(()),
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
pub fn all(outcome: &Outcome<'_>) -> Vec<(String, String)> {
    let drawn = |figure: &Figure| Some((figure.name.clone(), svg(outcome, figure)?));
    outcome.scenario.figures.iter().filter_map(drawn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(ticks((0.0, 10.0), false), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        let decades = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
        assert_eq!(ticks((1.0, 100.0), true), decades);
        assert!(ticks((0.0, 0.37), false).len() > 3);
    }

    #[test]
    fn points_that_nobody_could_tell_apart_are_left_out() {
        let points = (0..=100).map(|step| (f64::from(step) / 10.0, 5.0));
        let points: Vec<(f64, f64)> = points.collect();
        let kept = seen(&points);
        assert_eq!(
            (kept.len(), kept[0], kept[10]),
            (11, points[0], points[100])
        );
    }

    /// Of 800 steps of 10 s two are a point: what two drives of 5 W and one of 2 W in every second step draw is 11 W.
    #[test]
    fn a_course_of_power_is_in_watts() {
        let log = Log {
            step_ns: 10_000_000_000,
            drawn_uj: [100_000_000, 120_000_000].repeat(400),
            ..Log::default()
        };
        let points = power_of(&log);
        assert_eq!(points.len(), 400);
        assert_eq!((points[0], points[399]), ((0.0, 11.0), (7980.0, 11.0)));
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
        assert!(check(&figure("")).is_ok() && check(&figure(POWER)).is_ok());
        let refused = check(&figure("energy_kj")).expect_err("no course");
        assert!(refused.contains("power_w"), "{refused}");
    }

    #[test]
    fn a_frame_holds_its_corners() {
        let frame = Frame::of(&[(1.0, 2.0), (100.0, 8.0)], true, true).expect("finite");
        assert!((frame.x(1.0) - LEFT).abs() < 1e-9);
        assert!((frame.x(10.0) - (LEFT + (WIDTH - LEFT - RIGHT) / 2.0)).abs() < 1e-9);
        assert!((frame.y(8.0) - TOP).abs() < 1e-9);
        assert!(Frame::of(&[], false, false).is_none());
    }
}
