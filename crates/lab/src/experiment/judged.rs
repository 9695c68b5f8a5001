//! Printed numbers with ours, judged: the same for arrays and for caches.

use super::claim::{Between, Printed};
use super::scenario::Scenario;
use super::statistics::{Estimate, geometric, ratio};
use super::value::{Point, Value};
use super::verdict::{Band, Test, Tested, Verdict, family, side};
use std::collections::BTreeMap;

/// A metric's values by seed.
pub(crate) type BySeed = BTreeMap<u64, f64>;

/// The runs of one point.
pub(crate) trait Repeated {
    fn point(&self) -> &Point;
    /// `None` if a run does not have the number.
    fn by_seed(&self, metric: &str) -> Option<BySeed>;
    /// Whether the phase that a metric is of was offered more than it could serve.
    fn is_saturated(&self, metric: &str) -> bool;
    /// Whether, in any run, the metric is of less than a whole rebuild.
    fn is_cut(&self, metric: &str) -> bool;
    /// Whether seeds change nothing that counts: there is one run, or all are equal, or nothing in the
    /// workload is random.
    fn is_one_run(&self) -> bool;
}

/// Why there is no number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lack {
    Saturated,
    /// A rebuild took longer than the run allowed, so the number would be of a part of it.
    Cut,
    /// A rebuild did not end, or the phase or the metric is none of the run's.
    Unmeasured,
    NotPositive,
    /// No run has these parameters.
    NoRuns,
}

impl Lack {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Lack::Saturated => "saturated",
            Lack::Cut => "a rebuild was cut",
            Lack::Unmeasured => "unfinished, or not measured",
            Lack::NotPositive => "not positive",
            Lack::NoRuns => "not run at this scale",
        }
    }
}

/// A printed number at one setting of all other parameters, with ours.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) printed: Printed,
    /// The swept parameters that this line holds at one value.
    pub(crate) at: Vec<(String, Value)>,
    /// The points that it is of.
    pub(crate) of: Vec<Point>,
    pub(crate) ours: Result<Estimate, Lack>,
    /// Ours, where there is one, is of less than a whole rebuild.
    pub(crate) is_cut: bool,
    /// Planned looks at the data.
    pub(crate) looks: usize,
    pub(crate) tested: Option<Tested>,
    /// None of an absolute number, which is not judged.
    pub(crate) verdict: Option<Verdict>,
}

/// A ratio with its interval, or a value.
pub(crate) type Ratio = Result<Estimate, Lack>;

/// Pairs of a metric of one group with one of another, seed by seed: of those seeds that both have.
pub(crate) fn pair<G: Repeated>(of: (&G, &str), to: (&G, &str)) -> Ratio {
    if of.0.is_saturated(of.1) || to.0.is_saturated(to.1) {
        return Err(Lack::Saturated);
    }
    if of.0.is_cut(of.1) || to.0.is_cut(to.1) {
        return Err(Lack::Cut);
    }
    let both = of.0.by_seed(of.1).zip(to.0.by_seed(to.1));
    let (upper, lower) = both.ok_or(Lack::Unmeasured)?;
    let common = upper
        .iter()
        .filter_map(|(seed, one)| Some((*one, *lower.get(seed)?)));
    let pairs: Vec<(f64, f64)> = common.collect();
    if pairs.is_empty() {
        return Err(Lack::NoRuns);
    }
    let found = ratio(&pairs).ok_or(Lack::NotPositive)?;
    Ok(single_if(of.0.is_one_run() && to.0.is_one_run(), found))
}

fn single_if(single: bool, found: Estimate) -> Estimate {
    match single {
        true => Estimate::single(found.mean),
        false => found,
    }
}

fn value<G: Repeated>(of: &G, metric: &str) -> Ratio {
    let values = of.by_seed(metric).ok_or(Lack::Unmeasured)?;
    let values: Vec<f64> = values.into_values().collect();
    let found = geometric(&values).ok_or(Lack::NotPositive)?;
    Ok(single_if(of.is_one_run(), found))
}

/// Whether a point has these values.
pub(crate) fn fits(point: &Point, at: &Point) -> bool {
    at.iter()
        .all(|(path, value)| point.get(path) == Some(value))
}

/// The values of a point's swept parameters, but for those that are compared.
pub(crate) fn swept_of(
    scenario: &Scenario,
    point: &Point,
    compared: impl Fn(&str) -> bool,
) -> Vec<(String, Value)> {
    let paths = scenario.sweep.keys().filter(|path| !compared(path));
    let swept = paths.filter_map(|path| Some((path.clone(), point.get(path)?.clone())));
    swept.collect()
}

/// The points that a printed line compares: for each setting of the other parameters one, or two.
pub(crate) fn points_of(printed: &Printed, points: &[Point]) -> Vec<Vec<Point>> {
    compared_at(&printed.at, printed.between.as_ref(), points)
}

/// The points that have these values, each with the one that it is compared with, if there is one.
pub(crate) fn compared_at(
    at: &Point,
    between: Option<&Between>,
    points: &[Point],
) -> Vec<Vec<Point>> {
    let mut at = at.clone();
    if let Some(between) = between {
        at.extend(between.side(false));
    }
    let chosen = points.iter().filter(|point| fits(point, &at));
    let with_other = |point: &Point| match between {
        Some(between) => {
            let mut other = point.clone();
            other.extend(between.side(true));
            vec![point.clone(), other]
        }
        None => vec![point.clone()],
    };
    chosen.map(with_other).collect()
}

/// The scenario's printed numbers, each with ours of these groups, not judged yet. A line of which there is
/// no point says so.
pub(crate) fn printed<G: Repeated>(scenario: &Scenario, groups: &[G]) -> Vec<Judged> {
    let points: Vec<Point> = groups.iter().map(|group| group.point().clone()).collect();
    let looks = scenario.looks().len();
    let is_cut = |printed: &Printed, of: &[Point]| {
        let mut groups = groups.iter().filter(|group| of.contains(group.point()));
        groups.any(|group| group.is_cut(&printed.metric))
    };
    let line = |printed: &Printed, of: Vec<Point>, ours| Judged {
        printed: printed.clone(),
        is_cut: is_cut(printed, &of),
        at: at(scenario, printed, of.first()),
        of,
        ours,
        looks,
        tested: None,
        verdict: None,
    };
    let lines = |printed: &Printed| -> Vec<Judged> {
        let all = points_of(printed, &points);
        if all.is_empty() {
            return vec![line(printed, Vec::new(), Err(Lack::NoRuns))];
        }
        let one = |of: Vec<Point>| {
            let ours = ours(printed, groups, &of);
            line(printed, of, ours)
        };
        all.into_iter().map(one).collect()
    };
    scenario.printed.iter().flat_map(lines).collect()
}

fn at(scenario: &Scenario, printed: &Printed, point: Option<&Point>) -> Vec<(String, Value)> {
    let between = printed.between.as_ref();
    let compared = |path: &str| between.is_some_and(|between| between.varies(path));
    let own = || printed.at.clone().into_iter().collect();
    point.map_or_else(own, |point| swept_of(scenario, point, compared))
}

fn ours<G: Repeated>(printed: &Printed, groups: &[G], of: &[Point]) -> Ratio {
    let group = |point: &Point| {
        let found = groups.iter().find(|group| group.point() == point);
        found.ok_or(Lack::NoRuns)
    };
    let Some(first) = of.first() else {
        return Err(Lack::NoRuns);
    };
    let metric = printed.metric.as_str();
    match of.get(1) {
        Some(other) => pair((group(first)?, metric), (group(other)?, metric)),
        None if printed.over.is_empty() => {
            let group = group(first)?;
            // What nothing is decided by is shown all the same, with a mark.
            match group.is_cut(metric) && printed.is_judged() {
                true => Err(Lack::Cut),
                false => value(group, metric),
            }
        }
        None => pair((group(first)?, metric), (group(first)?, &printed.over)),
    }
}

/// Judges lines as one family.
pub(crate) fn judge(lines: &mut [&mut Judged]) {
    let test = |line: &&mut Judged| {
        Some(Test {
            ratio: line.ours.ok()?,
            band: Band::of(line.printed.claim, line.printed.value)?,
            looks: line.looks,
        })
    };
    let tests: Vec<Option<Test>> = lines.iter().map(test).collect();
    let tested = family(&tests);
    for ((line, test), tested) in lines.iter_mut().zip(tests).zip(tested) {
        line.tested = tested;
        line.verdict = match (line.ours, test, tested) {
            (Err(Lack::Saturated), ..) => Some(Verdict::Saturated),
            (Err(Lack::Cut), ..) => line.printed.is_judged().then_some(Verdict::Undecided),
            (Err(_), ..) => Some(Verdict::NotRun),
            (Ok(_), Some(test), Some(tested)) => Some(test.verdict(tested)),
            (Ok(_), Some(test), None) => Some(test.one_run()),
            (Ok(_), None, _) => None,
        };
    }
}

/// As in `fails: larger`.
pub(crate) fn with_side(verdict: &str, side: Option<&str>) -> String {
    match side {
        Some(side) => format!("{verdict}: {side}"),
        None => verdict.into(),
    }
}

impl Judged {
    /// The verdict with its reason where there is no number, and with the side on which ours is where it is
    /// another; `shown` of an absolute one.
    pub(crate) fn says(&self) -> String {
        with_side(&self.decided(), self.side())
    }

    /// The verdict with its reason where there is no number.
    pub(crate) fn decided(&self) -> String {
        match (self.verdict, self.ours) {
            (Some(verdict @ (Verdict::NotRun | Verdict::Undecided)), Err(lack)) => {
                format!("{verdict}: {}", lack.text())
            }
            (Some(verdict), _) => verdict.to_string(),
            (None, Err(lack)) => format!("shown: {}", lack.text()),
            (None, Ok(_)) => "shown".into(),
        }
    }

    /// Whether ours is larger or smaller than the claim has it, where the verdict is that it is another.
    pub(crate) fn side(&self) -> Option<&'static str> {
        let ours = self.ours.ok()?.mean;
        let verdict = self.verdict?.to_string();
        side(&verdict, self.printed.claim, self.printed.value, ours)
    }

    /// Whether there is a number, be it decided or not.
    pub(crate) fn is_run(&self) -> bool {
        self.verdict != Some(Verdict::NotRun)
    }

    /// Whether further seeds may decide it.
    pub(crate) fn is_undecided(&self) -> bool {
        self.verdict == Some(Verdict::Undecided) && self.ours.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(task: &str, rate: i64) -> Point {
        let task = ("task".to_string(), Value::Text(task.into()));
        [task, ("rate".to_string(), Value::Whole(rate))].into()
    }

    /// Runs that differ by seed, of which some may be cut.
    struct Runs(Point, bool);

    impl Repeated for Runs {
        fn point(&self) -> &Point {
            &self.0
        }

        fn by_seed(&self, _: &str) -> Option<BySeed> {
            let size = if self.0["rate"] == Value::Whole(2) {
                3.0
            } else {
                1.0
            };
            let values = (1..=5).map(|seed| (seed, size + 0.01 * seed as f64));
            Some(values.collect())
        }

        fn is_saturated(&self, _: &str) -> bool {
            false
        }

        fn is_cut(&self, _: &str) -> bool {
            self.1
        }

        fn is_one_run(&self) -> bool {
            false
        }
    }

    #[test]
    fn no_claim_holds_or_fails_by_a_rebuild_that_was_cut() {
        let text = "what = \"w\"\nsource = \"IDO, table 1\"\nvalue = 3.0\nclaim = \"sign\"\n\
                    metric = \"during.mean_ms\"\nbetween = { vary = \"rate\", of = 2, to = 8 }";
        let scenario = super::super::scenario::named("rebuild-cost").expect("built in");
        let mut scenario = super::super::scenario::parse(scenario).expect("sound");
        let says = |scenario: &Scenario, cut: [bool; 2]| {
            let of = |(rate, cut)| Runs(point("grow", rate), cut);
            let groups = [2, 8].into_iter().zip(cut).map(of).collect::<Vec<_>>();
            let mut lines = printed(scenario, &groups);
            judge(&mut lines.iter_mut().collect::<Vec<_>>());
            let line = lines.pop().expect("a claim");
            (line.says(), line.is_run(), line.is_undecided())
        };
        // Holds, fails, and is only shown.
        for (claim, value, whole) in [("sign", 3.0, "holds"), ("sign", 0.3, "fails: larger")] {
            let text = text.replace("3.0", &format!("{value:.1}"));
            let line = toml::from_str(&text.replace("sign", claim)).expect("a printed number");
            scenario.printed = vec![line];
            assert_eq!(says(&scenario, [false; 2]).0, whole);
            for cut in [[true, false], [false, true], [true; 2]] {
                let undecided = "undecided: a rebuild was cut".to_string();
                // More seeds would not decide it.
                assert_eq!(says(&scenario, cut), (undecided, true, false), "{cut:?}");
            }
        }
        // Where nothing is judged nothing is undecided: the number is given, with its mark.
        let alone = text.replace("\nbetween = { vary = \"rate\", of = 2, to = 8 }", "");
        for is_cut in [false, true] {
            let line = toml::from_str(&alone.replace("sign", "value")).expect("a printed number");
            scenario.printed = vec![line];
            let groups = [Runs(point("grow", 2), is_cut)];
            let mut lines = printed(&scenario, &groups);
            judge(&mut lines.iter_mut().collect::<Vec<_>>());
            let line = lines.pop().expect("a number");
            assert_eq!((line.says().as_str(), line.verdict), ("shown", None));
            assert!(line.ours.is_ok());
            assert_eq!(line.is_cut, is_cut);
        }
        let line = toml::from_str(&text.replace("sign", "value")).expect("a printed number");
        scenario.printed = vec![line];
        assert_eq!(says(&scenario, [true, false]).0, "shown: a rebuild was cut");
    }

    #[test]
    fn two_runs_may_differ_in_further_parameters() {
        let all: Vec<Point> = ["grow", "deal"]
            .iter()
            .flat_map(|task| [2, 8].map(|rate| point(task, rate)))
            .collect();
        let between = Between {
            vary: "task".into(),
            of: Value::Text("deal".into()),
            to: Value::Text("grow".into()),
            with: [("rate".to_string(), [2, 8].map(Value::Whole))].into(),
        };
        let pairs = compared_at(&Point::new(), Some(&between), &all);
        assert_eq!(pairs, [vec![point("deal", 2), point("grow", 8)]]);
        assert!(between.varies("rate") && !between.varies("load"));
    }
}
