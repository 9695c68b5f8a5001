//! The course of a load over time as a figure: latency above, throughput below, phases shaded, events marked.

use crate::latency::{Phase, Step};
use crate::plot::lines::{Axis, Curve, Lines, Moment, Panel, Point};
use crate::plot::{Kind, Plot};

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
    pub title: &'a str,
    pub steps: &'a [Step],
    pub step_us: u64,
    /// Every second one is shaded, from the second on.
    pub phases: &'a [Phase],
    pub marks: &'a [Mark],
}

impl Chart<'_> {
    pub fn plot(&self) -> Plot {
        let shaded = self.phases.iter().skip(1).step_by(2);
        let moment = |mark: &Mark| Moment {
            x: seconds(mark.at_us),
            text: mark.text.clone(),
        };
        Plot(Kind::Lines(Lines {
            title: self.title.into(),
            x: Axis {
                name: "time, s".into(),
                logarithmic: false,
                wanted: Vec::new(),
                ends: self.phases.last().map(|phase| (0.0, seconds(phase.to_us))),
            },
            heading: String::new(),
            panels: vec![self.latency(), self.throughput()],
            shades: shaded
                .map(|phase| (seconds(phase.from_us), seconds(phase.to_us)))
                .collect(),
            shaded: "degraded".into(),
            moments: self.marks.iter().map(moment).collect(),
            dots: String::new(),
        }))
    }

    fn latency(&self) -> Panel {
        let milliseconds = |us: u32| f64::from(us) / 1e3;
        let median = self.curve("median", 0, &|step| milliseconds(step.summary.p50_us));
        let p99 = self.curve("99th percentile", 1, &|step| {
            milliseconds(step.summary.p99_us)
        });
        Panel {
            name: "latency, ms".into(),
            logarithmic: true,
            height: 220.0,
            curves: vec![median, p99],
        }
    }

    fn throughput(&self) -> Panel {
        let mebibytes = |step: &Step| step.summary.rate(self.step_us) as f64 / f64::from(1 << 20);
        let mut curve = self.curve("throughput", 2, &mebibytes);
        // Nothing was answered: that is a throughput, and no latency.
        curve.pieces = vec![
            self.whole()
                .map(|step| self.point(step, &mebibytes))
                .collect(),
        ];
        Panel {
            name: "throughput, MiB/s".into(),
            logarithmic: false,
            height: 120.0,
            curves: vec![curve],
        }
    }

    /// The steps that lie within the phases as a whole. A part of a step would show a part of its throughput.
    fn whole(&self) -> impl Iterator<Item = &Step> {
        let end = self.phases.last().map_or(u64::MAX, |phase| phase.to_us);
        let steps = self.steps.iter();
        steps.filter(move |step| step.from_us + self.step_us <= end)
    }

    fn point(&self, step: &Step, value: &dyn Fn(&Step) -> f64) -> Point {
        Point::sole((seconds(step.from_us + self.step_us / 2), value(step)))
    }

    /// A line that breaks where nothing was answered.
    fn curve(&self, name: &str, number: usize, value: &dyn Fn(&Step) -> f64) -> Curve {
        let whole: Vec<&Step> = self.whole().collect();
        let runs = whole.split(|step| step.summary.requests == 0);
        let piece = |run: &[&Step]| run.iter().map(|step| self.point(step, value)).collect();
        Curve {
            name: name.into(),
            number,
            pieces: runs.filter(|run| !run.is_empty()).map(piece).collect(),
            marked: false,
            dot: None,
        }
    }
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Summary;
    use crate::plot::sheet::assert_legible;
    use crate::plot::{NARROW, WIDE};

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

    fn chart<'a>(steps: &'a [Step], phases: &'a [Phase], marks: &'a [Mark]) -> Chart<'a> {
        Chart {
            title: "Latency and throughput over time",
            steps,
            step_us: 100,
            phases,
            marks,
        }
    }

    fn pieces(chart: &Chart<'_>) -> [Vec<usize>; 2] {
        let Kind::Lines(lines) = chart.plot().0 else {
            panic!("lines");
        };
        let lengths = |curve: &Curve| curve.pieces.iter().map(Vec::len).collect();
        [0, 1].map(|panel| lengths(&lines.panels[panel].curves[0]))
    }

    #[test]
    fn a_gap_breaks_the_line_of_latency_and_is_no_throughput() {
        let steps = [step(0, 5), step(100, 0), step(200, 5)];
        let phases = [("before <1>", 0, 150), ("after", 150, 300)];
        let phases = phases.map(|(name, from, to)| Phase::new(name, from, to));
        let marks = [Mark::new(120, "<killed>")];
        let chart = chart(&steps, &phases, &marks);
        assert_eq!(pieces(&chart), [vec![1, 1], vec![3]]);
        let drawn = chart.plot().alone();
        assert!(drawn.contains("&lt;killed&gt;</text>") && drawn.contains("class=\"shade\""));
        for width in [WIDE, NARROW] {
            assert_legible(&chart.plot().sheet(width));
        }
    }

    #[test]
    fn a_last_step_that_the_end_cuts_is_left_out() {
        let steps = [step(0, 5), step(100, 5), step(200, 1)];
        let phases = [Phase::new("all", 0, 250)];
        assert_eq!(pieces(&chart(&steps, &phases, &[])), [vec![2], vec![2]]);
        let phases = [Phase::new("all", 0, 300)];
        assert_eq!(pieces(&chart(&steps, &phases, &[])), [vec![3], vec![3]]);
    }

    #[test]
    fn an_empty_chart_is_a_chart() {
        let svg = chart(&[], &[], &[]).plot().alone();
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"));
    }
}
