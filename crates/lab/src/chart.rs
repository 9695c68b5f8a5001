//! The course of a load over time as SVG: latency above, throughput below, phases shaded, events marked.
//!
//! Written by hand, a string and no library: the page must open anywhere, by itself, in ten years. Colours
//! come from the page's style sheet, so that it follows the reader's light or dark setting.

use crate::latency::{Phase, Step};
use crate::svg::{line, polyline, text};
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 12.0;
const LATENCY_TOP: f64 = 44.0;
const LATENCY_HEIGHT: f64 = 260.0;
const RATE_TOP: f64 = LATENCY_TOP + LATENCY_HEIGHT + 42.0;
const RATE_HEIGHT: f64 = 110.0;
const HEIGHT: f64 = RATE_TOP + RATE_HEIGHT + 40.0;
/// The latency axis: decades from 10 microseconds to 10 seconds.
const DECADES: std::ops::RangeInclusive<i32> = 1..=7;

/// Something that happened, marked by a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    pub at_us: u64,
    pub text: String,
}

impl Mark {
    pub fn new(at_us: u64, text: &str) -> Mark {
        let text = text.into();
        Mark { at_us, text }
    }
}

/// What a chart shows.
pub struct Chart<'a> {
    pub steps: &'a [Step],
    pub step_us: u64,
    pub phases: &'a [Phase],
    pub marks: &'a [Mark],
}

impl Chart<'_> {
    /// The `<svg>` element.
    pub fn svg(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            out,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"latency and throughput over time\">"
        );
        self.bands(&mut out);
        self.latency_axis(&mut out);
        self.rate_axis(&mut out);
        self.time_axis(&mut out);
        self.latency_line(&mut out, "p99", |step| step.summary.p99_us);
        self.latency_line(&mut out, "p50", |step| step.summary.p50_us);
        self.rate_line(&mut out);
        self.event_lines(&mut out);
        self.legend(&mut out);
        out.push_str("</svg>\n");
        out
    }

    fn end_us(&self) -> u64 {
        let last = self.steps.last();
        let steps_end = last.map_or(0, |step| step.from_us + self.step_us);
        let phases_end = self.phases.last().map_or(0, |phase| phase.to_us);
        steps_end.max(phases_end).max(1)
    }

    fn x(&self, at_us: u64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * at_us as f64 / self.end_us() as f64
    }

    fn rate_max(&self) -> u64 {
        let steps = self.steps.iter();
        let most = steps.map(|step| step.summary.rate(self.step_us)).max();
        most.unwrap_or(0).max(1)
    }

    fn bands(&self, out: &mut String) {
        let height = RATE_TOP + RATE_HEIGHT - LATENCY_TOP;
        for (number, phase) in self.phases.iter().enumerate() {
            let (x, end) = (self.x(phase.from_us), self.x(phase.to_us));
            let shade = number % 2;
            let _ = writeln!(
                out,
                "<rect class=\"band{shade}\" x=\"{x:.1}\" y=\"{LATENCY_TOP}\" width=\"{:.1}\" height=\"{height}\"/>",
                (end - x).max(0.0)
            );
            let middle = ((x + end) / 2.0, LATENCY_TOP - 26.0);
            text(out, middle, "middle", &phase.name);
        }
    }

    fn latency_axis(&self, out: &mut String) {
        for decade in DECADES {
            let y = latency_y(10f64.powi(decade));
            line(out, "grid", (LEFT, y), (WIDTH - RIGHT, y));
            text(out, (LEFT - 8.0, y + 4.0), "end", &latency_label(decade));
        }
        text(out, (4.0, LATENCY_TOP - 10.0), "start", "latency");
    }

    fn rate_axis(&self, out: &mut String) {
        for part in 0..=2 {
            let y = RATE_TOP + RATE_HEIGHT / 2.0 * (2 - part) as f64;
            line(out, "grid", (LEFT, y), (WIDTH - RIGHT, y));
            let megabytes = self.rate_max() * part / 2 / (1 << 20);
            text(out, (LEFT - 8.0, y + 4.0), "end", &format!("{megabytes}"));
        }
        text(out, (4.0, RATE_TOP - 10.0), "start", "MiB/s");
    }

    fn time_axis(&self, out: &mut String) {
        let seconds = self.end_us() / 1_000_000;
        let mut rounds = [1, 2, 5, 10, 20, 50].into_iter();
        let every = rounds.find(|every| seconds / every <= 14).unwrap_or(100);
        for second in (0..=seconds).filter(|second| second % every == 0) {
            let at = (self.x(second * 1_000_000), RATE_TOP + RATE_HEIGHT + 18.0);
            text(out, at, "middle", &format!("{second} s"));
        }
    }

    /// A line that breaks where nothing was answered.
    fn latency_line(&self, out: &mut String, class: &str, value: impl Fn(&Step) -> u32) {
        let point = |step: &Step| (self.middle(step), latency_y(f64::from(value(step))));
        let runs = self.steps.split(|step| step.summary.requests == 0);
        for run in runs.filter(|run| !run.is_empty()) {
            polyline(out, &format!("class=\"{class}\""), run.iter().map(point));
        }
    }

    fn rate_line(&self, out: &mut String) {
        let most = self.rate_max() as f64;
        let y = |step: &Step| {
            RATE_TOP + RATE_HEIGHT * (1.0 - step.summary.rate(self.step_us) as f64 / most)
        };
        let points = self.steps.iter().map(|step| (self.middle(step), y(step)));
        polyline(out, "class=\"rate\"", points);
    }

    fn middle(&self, step: &Step) -> f64 {
        self.x(step.from_us + self.step_us / 2)
    }

    fn event_lines(&self, out: &mut String) {
        for (number, mark) in self.marks.iter().enumerate() {
            let x = self.x(mark.at_us);
            line(out, "mark", (x, LATENCY_TOP), (x, RATE_TOP + RATE_HEIGHT));
            // Texts of neighbours on different heights; near the right edge they end at their line.
            let y = LATENCY_TOP + 14.0 + 15.0 * (number % 5) as f64;
            let (x, anchor) = match x > WIDTH * 0.75 {
                true => (x - 4.0, "end"),
                false => (x + 4.0, "start"),
            };
            text(out, (x, y), anchor, &mark.text);
        }
    }

    fn legend(&self, out: &mut String) {
        let y = HEIGHT - 6.0;
        let lines = [("p50", "p50"), ("p99", "p99"), ("rate", "throughput")];
        for (number, (class, name)) in lines.into_iter().enumerate() {
            let x = LEFT + 90.0 * number as f64;
            line(out, class, (x, y - 4.0), (x + 22.0, y - 4.0));
            text(out, (x + 28.0, y), "start", name);
        }
    }
}

/// Logarithmic, clamped to the axis.
fn latency_y(us: f64) -> f64 {
    let (low, high) = (f64::from(*DECADES.start()), f64::from(*DECADES.end()));
    let part = (us.max(1.0).log10().clamp(low, high) - low) / (high - low);
    LATENCY_TOP + LATENCY_HEIGHT * (1.0 - part)
}

fn latency_label(decade: i32) -> String {
    match decade {
        0..=2 => format!("{} µs", 10i64.pow(decade.unsigned_abs())),
        3..=5 => format!("{} ms", 10i64.pow(decade.unsigned_abs() - 3)),
        _ => format!("{} s", 10i64.pow(decade.unsigned_abs() - 6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Summary;

    fn step(from_us: u64, requests: u64) -> Step {
        let summary = Summary {
            requests,
            bytes: requests << 20,
            p50_us: 100,
            p99_us: 900,
            max_us: 1000,
        };
        Step { from_us, summary }
    }

    fn svg(steps: &[Step], phases: &[Phase], marks: &[Mark]) -> String {
        let chart = Chart {
            steps,
            step_us: 100,
            phases,
            marks,
        };
        chart.svg()
    }

    #[test]
    fn a_gap_breaks_the_line_and_elements_are_closed() {
        let steps = [step(0, 5), step(100, 0), step(200, 5)];
        let phases = [("before <1>", 0, 150), ("after", 150, 300)];
        let phases = phases.map(|(name, from, to)| Phase::new(name, from, to));
        let svg = svg(&steps, &phases, &[Mark::new(120, "killed")]);
        assert_eq!(svg.matches("class=\"p99\" points").count(), 2);
        assert!(svg.contains("before &lt;1&gt;") && svg.contains(">killed</text>"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn an_empty_chart_is_a_chart() {
        let svg = svg(&[], &[], &[]);
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"));
    }

    #[test]
    fn latency_is_logarithmic_and_stays_on_the_axis() {
        let step = latency_y(100.0) - latency_y(1000.0);
        assert!((step - (latency_y(1000.0) - latency_y(10_000.0))).abs() < 1e-9);
        assert!((latency_y(0.0) - (LATENCY_TOP + LATENCY_HEIGHT)).abs() < 1e-9);
        assert!((latency_y(1e12) - LATENCY_TOP).abs() < 1e-9);
        assert_eq!([1, 3, 6].map(latency_label), ["10 µs", "1 ms", "1 s"]);
    }
}
