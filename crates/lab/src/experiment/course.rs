//! Courses over time: response or power of one run or of several, with failure and rebuild marked.

use super::cell::{DEGRADED, DURING};
use crate::plot::HEIGHT;
use crate::plot::lines::{Axis, Curve, Lines, Moment, Panel, Point};
use crate::plot::scale::number;
use crate::replay::facts::{Log, Step};

/// What a course shows if not response.
pub(crate) const POWER: &str = "power_w";

/// At most this many points a line, each the mean of as many steps.
const POINTS: usize = 120;

/// What is drawn of runs.
pub(crate) struct Drawn<'a> {
    pub title: &'a str,
    /// What restores redundancy.
    pub task: &'a str,
    /// Power in place of response.
    pub power: bool,
    pub logarithmic: bool,
}

/// A unit of time for an axis, and its seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Unit {
    name: &'static str,
    seconds: f64,
}

const UNITS: [Unit; 3] = [
    Unit {
        name: "s",
        seconds: 1.0,
    },
    Unit {
        name: "min",
        seconds: 60.0,
    },
    Unit {
        name: "h",
        seconds: 3600.0,
    },
];

/// The largest unit of which a time has ten or more, or seconds.
fn unit(seconds: f64) -> Unit {
    let mut fitting = UNITS.iter().rev();
    *fitting
        .find(|unit| seconds >= 10.0 * unit.seconds)
        .unwrap_or(&UNITS[0])
}

impl Drawn<'_> {
    /// Of runs by name. One run has its moments marked; of several, the moments that they share, and a dot
    /// for each where its rebuild ended.
    pub(crate) fn lines(&self, heading: String, runs: &[(String, &Log)]) -> Lines {
        let ends = runs.iter().flat_map(|(_, log)| log.phases.last());
        let last = ends.map(|phase| seconds(phase.to_ns)).fold(0.0, f64::max);
        let unit = unit(last);
        let sole = runs.len() == 1;
        let mut lines = Lines {
            title: self.title.into(),
            x: Axis {
                name: format!("time, {}", unit.name),
                logarithmic: false,
                wanted: Vec::new(),
                ends: (last > 0.0).then_some((0.0, last / unit.seconds)),
            },
            heading,
            panels: vec![self.panel(unit, runs)],
            shades: Vec::new(),
            shaded: self.task.into(),
            moments: Vec::new(),
            dots: format!("end of the {}", self.task),
        };
        if let Some((_, log)) = runs.first() {
            lines.moments = self.moments(log, unit, sole);
            if sole {
                lines.shades.extend(rebuilt(log, unit));
            }
        }
        lines
    }

    fn panel(&self, unit: Unit, runs: &[(String, &Log)]) -> Panel {
        let curve = |(number, (name, log)): (usize, &(String, &Log))| {
            let points = match self.power {
                true => power_of(log),
                false => response_of(log),
            };
            let end = log.rebuild.and_then(|rebuild| rebuild.to_ns).map(seconds);
            let end = end.filter(|_| runs.len() > 1);
            let dot = end.and_then(|end| Some((end / unit.seconds, at(&points, end)?)));
            let points = points
                .into_iter()
                .map(|(x, y)| Point::sole((x / unit.seconds, y)));
            Curve {
                name: self.named(name, log),
                number,
                pieces: vec![points.collect()],
                marked: false,
                dot,
            }
        };
        Panel {
            name: match self.power {
                true => "power of all drives, W".into(),
                false => "mean response, ms".into(),
            },
            logarithmic: self.logarithmic,
            height: HEIGHT,
            curves: runs.iter().enumerate().map(curve).collect(),
        }
    }

    /// The series' name, and how long its rebuild took.
    fn named(&self, name: &str, log: &Log) -> String {
        let Some(rebuild) = log.rebuild.filter(|_| !name.is_empty()) else {
            return name.into();
        };
        match rebuild.to_ns {
            Some(to_ns) => {
                let took = seconds(to_ns.saturating_sub(rebuild.from_ns));
                let decimals = if took < 100.0 { 10.0 } else { 1.0 };
                let took = number((took * decimals).round() / decimals);
                format!("{name} ({} took {took} s)", self.task)
            }
            None => format!("{name} ({} did not end)", self.task),
        }
    }

    /// Of the failure and of the rebuild's begin, and its end if it is of this run alone.
    fn moments(&self, log: &Log, unit: Unit, sole: bool) -> Vec<Moment> {
        let moment = |ns: u64, text: String| Moment {
            x: seconds(ns) / unit.seconds,
            text,
        };
        let begins = format!("{} begins", self.task);
        let mut moments = Vec::new();
        if let Some(degraded) = log.phase(DEGRADED) {
            moments.push(moment(degraded.from_ns, "failure".into()));
        }
        let during = log.phase(DURING).map(|during| during.from_ns);
        if let Some(from_ns) = log.rebuild.map(|rebuild| rebuild.from_ns).or(during) {
            let fails = moments.is_empty() && self.task == "rebuild";
            let text = if fails {
                format!("failure, {begins}")
            } else {
                begins
            };
            moments.push(moment(from_ns, text));
        }
        let end = log.rebuild.and_then(|rebuild| rebuild.to_ns);
        if let Some(to_ns) = end.filter(|_| sole) {
            moments.push(moment(to_ns, format!("{} ends", self.task)));
        }
        moments
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The time of a run's rebuild.
fn rebuilt(log: &Log, unit: Unit) -> Option<(f64, f64)> {
    let rebuild = log.rebuild?;
    let span = [rebuild.from_ns, rebuild.to_ns?];
    let [from, to] = span.map(|ns| seconds(ns) / unit.seconds);
    Some((from, to))
}

/// A course's value at a time.
fn at(points: &[(f64, f64)], time: f64) -> Option<f64> {
    let before = points.iter().rev().find(|point| point.0 <= time);
    before.or(points.first()).map(|point| point.1)
}

/// What all drives drew, in seconds and watts. The log has whole steps only.
fn power_of(log: &Log) -> Vec<(f64, f64)> {
    let at_once = log.drawn_uj.len().div_ceil(POINTS).max(1);
    let step_s = seconds(log.step_ns);
    let point = |(place, steps): (usize, &[u64])| {
        let joules = steps.iter().sum::<u64>() as f64 / 1e6;
        let length = steps.len() as f64 * step_s;
        let from = (place * at_once) as f64 * step_s;
        (from + length / 2.0, joules / length)
    };
    let steps = log.drawn_uj.chunks(at_once).enumerate();
    steps.map(point).collect()
}

/// Mean response, in seconds and milliseconds.
fn response_of(log: &Log) -> Vec<(f64, f64)> {
    let steps = whole_steps(log);
    let at_once = steps.len().div_ceil(POINTS).max(1);
    let point = |steps: &[&Step]| {
        let requests: u64 = steps.iter().map(|step| step.requests).sum();
        let times = steps
            .iter()
            .map(|step| step.requests as f64 * step.mean_ns as f64);
        let sum: f64 = times.sum();
        let middle = steps[0].from_ns + log.step_ns * steps.len() as u64 / 2;
        (requests > 0).then(|| (seconds(middle), sum / requests as f64 / 1e6))
    };
    steps.chunks(at_once).filter_map(point).collect()
}

/// The steps that lie within the phases as a whole. The last step of a run may be a part of one.
fn whole_steps(log: &Log) -> Vec<&Step> {
    let end = log.phases.last().map_or(u64::MAX, |phase| phase.to_ns);
    let whole = log
        .steps
        .iter()
        .filter(|step| step.from_ns + log.step_ns <= end);
    whole.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::facts::{Phase, Rebuild};

    fn log(phases: &[(&str, u64, u64)], steps: u64) -> Log {
        let phase = |(name, from, to): &(&str, u64, u64)| Phase {
            name: (*name).into(),
            from_ns: from * 1_000_000,
            to_ns: to * 1_000_000,
            ..Phase::default()
        };
        let step = |number: u64| Step {
            from_ns: number * 1_000_000_000,
            requests: 1,
            bytes: 0,
            mean_ns: 2_000_000,
            p50_ns: 0,
            p99_ns: 0,
            max_ns: 0,
        };
        Log {
            phases: phases.iter().map(phase).collect(),
            steps: (0..steps).map(step).collect(),
            step_ns: 1_000_000_000,
            ..Log::default()
        }
    }

    /// Of 960 steps of 10 s eight are a point: two drives of 5 W and one of 2 W in every second step draw
    /// 11 W.
    #[test]
    fn a_course_of_power_is_in_watts() {
        let log = Log {
            step_ns: 10_000_000_000,
            drawn_uj: [100_000_000, 120_000_000].repeat(480),
            ..Log::default()
        };
        let points = power_of(&log);
        assert_eq!(points.len(), 120);
        assert_eq!((points[0], points[119]), ((40.0, 11.0), (9560.0, 11.0)));
    }

    #[test]
    fn a_last_step_that_the_end_cuts_is_left_out() {
        let cut = log(&[("before", 0, 4500)], 5);
        assert_eq!(response_of(&cut).len(), 4);
        let whole = log(&[("before", 0, 5000)], 5);
        assert_eq!(response_of(&whole).len(), 5);
    }

    #[test]
    fn failure_and_rebuild_are_marked() {
        let phases = [
            ("before", 0, 1000),
            ("degraded", 1000, 2000),
            ("during", 2000, 4000),
        ];
        let rebuild = Rebuild {
            from_ns: 2_100_000_000,
            to_ns: Some(3_500_000_000),
            rows_done: 1,
            rows_total: 1,
        };
        let run = Log {
            rebuild: Some(rebuild),
            ..log(&phases, 4)
        };
        let drawn = Drawn {
            title: "",
            task: "rebuild",
            power: false,
            logarithmic: false,
        };
        let told = |lines: &Lines| -> Vec<(f64, String)> {
            let moments = lines.moments.iter();
            moments
                .map(|moment| (moment.x, moment.text.clone()))
                .collect()
        };
        let one = drawn.lines(String::new(), &[(String::new(), &run)]);
        let marked = [
            (1.0, "failure"),
            (2.1, "rebuild begins"),
            (3.5, "rebuild ends"),
        ];
        assert_eq!(told(&one), marked.map(|(x, text)| (x, text.to_string())));
        assert_eq!(one.shades, [(2.1, 3.5)]);
        // Of two runs each has a dot where its own rebuild ended.
        let two = drawn.lines(
            "scheme".into(),
            &[("PR".into(), &run), ("IDO".into(), &run)],
        );
        assert_eq!(
            told(&two),
            marked.map(|(x, text)| (x, text.to_string()))[..2]
        );
        let curve = &two.panels[0].curves[1];
        assert_eq!(curve.dot, Some((3.5, 2.0)));
        assert_eq!(curve.name, "IDO (rebuild took 1.4 s)");
    }

    #[test]
    fn a_member_with_a_spare_fails_as_its_rebuild_begins() {
        let run = log(&[("before", 0, 1000), ("during", 1000, 2000)], 2);
        let drawn = |task| Drawn {
            title: "",
            task,
            power: false,
            logarithmic: false,
        };
        let text = |task| drawn(task).moments(&run, UNITS[0], true)[0].text.clone();
        assert_eq!(text("rebuild"), "failure, rebuild begins");
        assert_eq!(text("growth"), "growth begins");
    }

    #[test]
    fn long_courses_are_in_hours() {
        assert_eq!(
            [9.0, 599.0, 601.0, 86_400.0].map(|s| unit(s).name),
            ["s", "s", "min", "h"]
        );
    }
}
