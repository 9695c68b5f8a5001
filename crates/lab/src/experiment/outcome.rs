//! The results of an experiment: groups of seeds, comparisons seed by seed, and both as table, CSV and JSON
//! lines.

use super::cell::Cell;
use super::claim::{Claim, Printed};
use super::fair::unequal;
use super::judged::{BySeed, Judged, Lack, Repeated, fits, judge, pair, printed, swept_of};
use super::metric::{cut, is_cut, known, metric, saturated};
use super::requests::is_random;
use super::scenario::{Comparison, Point, Scenario, Value};
use super::statistics::{Estimate, geometric};
use super::verdict::{Test, Tested, family};
use crate::replay::facts::Log;
use crate::report::Table;
use serde_json::{Map, json};
use std::fmt::Write;

/// One run with what it was of.
pub struct Run {
    pub cell: Cell,
    pub log: Log,
}

pub struct Outcome<'a> {
    pub scenario: &'a Scenario,
    /// By point, then by seed.
    pub runs: Vec<Run>,
    /// Where the runs of each point end.
    ends: Vec<usize>,
}

/// The runs of one point: one for each seed.
pub struct Group<'a> {
    pub point: &'a Point,
    pub runs: &'a [Run],
}

impl Group<'_> {
    /// The geometric mean over the seeds; `None` if a run does not have the number, or zero.
    pub fn estimate(&self, name: &str) -> Option<Estimate> {
        geometric(&self.values(name)?)
    }

    pub fn values(&self, name: &str) -> Option<Vec<f64>> {
        self.runs.iter().map(|run| metric(&run.log, name)).collect()
    }

    /// Whether, in any run, the phase that a metric is of was offered more than it could serve.
    pub fn saturated(&self, name: &str) -> bool {
        name.split_once('.').is_some_and(|(phase, _)| {
            let mut phases = self.runs.iter().filter_map(|run| run.log.phase(phase));
            phases.any(saturated)
        })
    }

    /// Whether, in any run, a metric is of less than a whole rebuild.
    fn cut(&self, name: &str) -> bool {
        self.runs.iter().any(|run| cut(&run.log, name))
    }

    /// What tables and figures add to a number that is not what it seems; else nothing.
    pub(crate) fn mark(&self, name: &str) -> &'static str {
        match (self.saturated(name), self.cut(name)) {
            (true, true) => "sat. cut",
            (true, false) => "sat.",
            (false, true) => "cut",
            (false, false) => "",
        }
    }

    /// What a table shows: the mean, or a word where there is none; with marks where it is not what it seems.
    pub fn shown(&self, name: &str) -> String {
        let marked = |value: f64| match self.mark(name) {
            "" => short(value),
            mark => format!("{} {mark}", short(value)),
        };
        if let Some(estimate) = self.estimate(name) {
            return marked(estimate.mean);
        }
        match self.values(name) {
            // Without a logarithm, the plain mean.
            Some(values) => marked(values.iter().sum::<f64>() / values.len() as f64),
            None if name == "rebuild_s" && self.unfinished() => "unfinished".into(),
            None => "-".into(),
        }
    }

    fn unfinished(&self) -> bool {
        let mut rebuilds = self.runs.iter().filter_map(|run| run.log.rebuild);
        rebuilds.any(|rebuild| rebuild.to_ns.is_none())
    }
}

impl Repeated for Group<'_> {
    fn point(&self) -> &Point {
        self.point
    }

    fn by_seed(&self, name: &str) -> Option<BySeed> {
        let of = |run: &Run| Some((run.cell.seed, metric(&run.log, name)?));
        self.runs.iter().map(of).collect()
    }

    fn is_saturated(&self, name: &str) -> bool {
        self.saturated(name)
    }

    fn is_cut(&self, name: &str) -> bool {
        self.cut(name)
    }

    fn is_one_run(&self) -> bool {
        let [first, others @ ..] = self.runs else {
            return true;
        };
        let random = is_random(&first.cell.settings.workload);
        !random || others.iter().all(|run| run.log == first.log)
    }
}

/// Four digits that count.
pub fn short(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = usize::try_from((3 - magnitude).clamp(0, 9)).unwrap_or(0);
    format!("{value:.decimals$}")
}

/// A comparison at one setting of all other parameters.
pub struct Compared {
    pub comparison: Comparison,
    /// The swept parameters that this line holds at one value.
    pub at: Vec<(String, Value)>,
    /// The two points.
    pub(crate) of: [Point; 2],
    pub(crate) result: Result<Estimate, Lack>,
    pub(crate) tested: Option<Tested>,
}

impl Compared {
    /// Whether further seeds may decide it.
    pub(crate) fn is_undecided(&self) -> bool {
        self.tested.is_some_and(|tested| !tested.is_decided())
    }

    fn says(&self) -> &'static str {
        match (&self.result, self.tested) {
            (Err(lack), _) => lack.text(),
            (Ok(_), None) => "one run",
            (Ok(_), Some(tested)) if !tested.is_decided() => "undecided",
            (Ok(estimate), Some(_)) if estimate.mean > 1.0 => "more",
            (Ok(_), Some(_)) => "less",
        }
    }
}

impl<'a> Outcome<'a> {
    /// `runs` are all seeds of the first point, then of the second, and so on.
    pub fn new(scenario: &'a Scenario, runs: Vec<Run>) -> Outcome<'a> {
        let of_one_point = |a: &Run, b: &Run| a.cell.point == b.cell.point;
        let lengths = runs.chunk_by(of_one_point).map(<[Run]>::len);
        let ends = lengths.scan(0, |end, length| {
            *end += length;
            Some(*end)
        });
        Outcome {
            scenario,
            ends: ends.collect(),
            runs,
        }
    }

    /// The runs of each point. Points may have unequal numbers of seeds.
    pub fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| Group {
            point: &self.runs[start].cell.point,
            runs: &self.runs[start..*end],
        })
    }

    /// Groups in which these parameters have these values.
    pub(crate) fn groups_at(&self, at: &Point) -> Vec<Group<'_>> {
        self.groups()
            .filter(|group| fits(group.point, at))
            .collect()
    }

    /// Whether a rebuild took longer than a run allowed, or than what the runs have in common.
    pub(crate) fn has_cut(&self) -> bool {
        self.runs.iter().any(|run| is_cut(&run.log))
    }

    /// Values of a swept parameter, in the order of the scenario.
    pub fn values(&self, path: &str) -> Vec<Value> {
        let Scenario { fixed, sweep, .. } = self.scenario;
        let fixed = || Some(vec![fixed.get(path)?.value.clone()]);
        sweep.get(path).cloned().or_else(fixed).unwrap_or_default()
    }

    // ----------------------------------------------------------------------------------------- comparisons

    /// The scenario's comparisons, tested as one family.
    pub fn compared(&self) -> Vec<Compared> {
        let all = self.scenario.comparisons.iter();
        let compared = all.flat_map(|comparison| self.compare_each(comparison));
        self.tested(compared.collect())
    }

    /// One comparison, tested as a family of its own.
    pub fn compare(&self, comparison: &Comparison) -> Vec<Compared> {
        self.tested(self.compare_each(comparison))
    }

    fn tested(&self, mut compared: Vec<Compared>) -> Vec<Compared> {
        let looks = self.scenario.looks().len();
        let side = |line: &Compared| Some(Test::side_of_one(line.result.ok()?, looks));
        let tests: Vec<Option<Test>> = compared.iter().map(side).collect();
        for (line, tested) in compared.iter_mut().zip(family(&tests)) {
            line.tested = tested;
        }
        compared
    }

    fn compare_each(&self, comparison: &Comparison) -> Vec<Compared> {
        let mut at = comparison.at.clone();
        at.insert(comparison.vary.clone(), comparison.of.clone());
        let one = |group: Group<'_>| {
            let mut other = group.point.clone();
            other.insert(comparison.vary.clone(), comparison.to.clone());
            let to = self.groups().find(|group| *group.point == other);
            let metric = comparison.metric.as_str();
            let both = |to: Group<'_>| pair((&group, metric), (&to, metric));
            Compared {
                comparison: comparison.clone(),
                at: swept_of(self.scenario, group.point, |path| path == comparison.vary),
                result: to.map_or(Err(Lack::NoRuns), both),
                of: [group.point.clone(), other],
                tested: None,
            }
        };
        self.groups_at(&at).into_iter().map(one).collect()
    }

    /// Printed numbers with ours, judged as one family.
    pub(crate) fn judged(&self) -> Vec<Judged> {
        let groups: Vec<Group<'_>> = self.groups().collect();
        let mut lines = printed(self.scenario, &groups);
        judge(&mut lines.iter_mut().collect::<Vec<_>>());
        lines
    }

    // ----------------------------------------------------------------------------------------------- tables

    /// A line a point: its swept parameters, then the scenario's metrics.
    pub fn table(&self) -> Table {
        let paths: Vec<&String> = self.scenario.sweep.keys().collect();
        let swept = paths.iter().map(|path| last(path).to_string());
        let mut table = Table::default();
        table.heading = swept.chain(self.scenario.table.clone()).collect();
        for group in self.groups() {
            let swept = paths.iter().map(|path| group.point[*path].to_string());
            let metrics = self.scenario.table.iter().map(|name| group.shown(name));
            table.rows.push(swept.chain(metrics).collect());
        }
        table
    }

    pub fn comparison_table(&self, compared: &[Compared]) -> Table {
        let mut table =
            Table::new("comparison|at|ratio|95% interval|seeds|p|corrected|says|unequal");
        for line in compared {
            let [ratio, interval, seeds] = numbers(&line.result);
            let name = line.comparison.name.clone();
            let [raw, corrected] = chances(line.tested);
            let says = line.says().to_string();
            let at = place(&line.at);
            let unequal = unequal_of(&line.of);
            table.row([
                name, at, ratio, interval, seeds, raw, corrected, says, unequal,
            ]);
        }
        table
    }

    /// Printed numbers with ours; those of points that are not run say so.
    pub fn judged_table(&self) -> Table {
        judged_table(&self.judged())
    }

    // ------------------------------------------------------------------------------------------------- files

    /// A line a run: its swept parameters, its seed, every metric that anything here shows.
    pub fn csv(&self) -> String {
        let metrics = self.metrics();
        let paths: Vec<&String> = self.scenario.sweep.keys().collect();
        let heading = paths.iter().map(|path| path.as_str());
        let heading = heading.chain(["seed", "hash", "cut"]);
        let heading = heading.chain(metrics.iter().map(String::as_str));
        let mut out = heading.collect::<Vec<_>>().join(",") + "\n";
        for Run { cell, log } in &self.runs {
            let swept = paths
                .iter()
                .map(|path| quoted(&cell.point[*path].to_string()));
            let mut line: Vec<String> = swept.collect();
            line.extend([cell.seed.to_string(), cell.hash(), is_cut(log).to_string()]);
            let number = |name: &String| metric(log, name).map_or(String::new(), |v| v.to_string());
            line.extend(metrics.iter().map(number));
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{}", line.join(","));
        }
        out
    }

    fn metrics(&self) -> Vec<String> {
        let figures = self.scenario.figures.iter();
        let figures = figures.flat_map(|figure| [&figure.y, &figure.z]);
        let mut names = self.scenario.table.clone();
        for name in figures.chain(compared_metrics(self.scenario)) {
            if known(name) && !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }

    /// A line a run: all parameters, and the whole log of facts.
    pub fn json_lines(&self) -> String {
        let mut out = String::new();
        for run in &self.runs {
            let point = run.cell.point.iter();
            let parameters: Map<_, _> = point.map(|(path, v)| (path.clone(), v.to())).collect();
            let line = json!({
                "scenario": self.scenario.name,
                "hash": run.cell.hash(),
                "seed": run.cell.seed,
                "cut": is_cut(&run.log),
                "parameters": parameters,
                "log": run.log,
            });
            let _ = writeln!(out, "{line}");
        }
        out
    }

    /// Metrics of the scenario that nothing is known of.
    pub fn unknown_metrics(scenario: &Scenario) -> Vec<String> {
        let names = scenario.table.iter().chain(compared_metrics(scenario));
        let unknown = names.filter(|name| !name.is_empty() && !known(name));
        unknown.cloned().collect()
    }
}

/// The metrics of what a scenario compares, with itself and with what papers printed.
fn compared_metrics(scenario: &Scenario) -> impl Iterator<Item = &String> {
    let compared = scenario.comparisons.iter().map(|one| &one.metric);
    let printed = scenario.printed.iter();
    compared.chain(printed.flat_map(|line| [&line.metric, &line.over]))
}

/// The name of a parameter, without its group.
pub fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// Printed numbers with ours; those of points that are not run say so.
pub(crate) fn judged_table(lines: &[Judged]) -> Table {
    let heading = "printed|claim|at|theirs|ours|95% interval|seeds|p|corrected|verdict|unequal";
    let mut table = Table::new(heading);
    for line in lines {
        let [ours, interval, seeds] = judged_numbers(line);
        let [raw, corrected] = chances(line.tested);
        let what = format!("{} ({})", line.printed.what, line.printed.source);
        let claim = line.printed.claim.name().to_string();
        let (at, theirs, says) = (place(&line.at), theirs(&line.printed), line.says());
        let unequal = unequal_of(&line.of);
        table.row([
            what, claim, at, theirs, ours, interval, seeds, raw, corrected, says, unequal,
        ]);
    }
    table
}

/// What a paper printed; of a direction without a number, the side of 1.
pub(crate) fn theirs(printed: &Printed) -> String {
    match (printed.claim, printed.value) {
        (Claim::Sign | Claim::Order, 0.0) => "less than 1".into(),
        _ => short(printed.value),
    }
}

/// The promises in which two points differ. Caches have no promises, so there is a dash.
fn unequal_of(pair: &[Point]) -> String {
    let unequal = unequal(pair).unwrap_or_default();
    match unequal.is_empty() {
        true => "-".into(),
        false => unequal.join(", "),
    }
}

/// The ratio, its interval and the number of seeds.
fn numbers(result: &Result<Estimate, Lack>) -> [String; 3] {
    let none = || "-".to_string();
    let Ok(estimate) = result else {
        return [none(), none(), none()];
    };
    let interval = match estimate.is_single() {
        true => none(),
        false => format!("{} to {}", short(estimate.low), short(estimate.high)),
    };
    [short(estimate.mean), interval, estimate.count.to_string()]
}

/// The same of a line, with the mark of a number that is of less than a whole rebuild.
pub(crate) fn judged_numbers(line: &Judged) -> [String; 3] {
    let [mut ours, interval, seeds] = numbers(&line.ours);
    if line.is_cut && line.ours.is_ok() {
        ours += " cut";
    }
    [ours, interval, seeds]
}

/// The probabilities of a test, alone and corrected.
fn chances(tested: Option<Tested>) -> [String; 2] {
    tested.map_or(["-".into(), "-".into()], |tested| {
        [tested.raw, tested.corrected].map(chance)
    })
}

fn chance(p: f64) -> String {
    match p < 0.0001 {
        true => "<0.0001".into(),
        false => format!("{p:.4}"),
    }
}

/// Swept parameters with their values, without their groups.
pub(crate) fn place(at: &[(String, Value)]) -> String {
    let parts = at
        .iter()
        .map(|(path, value)| format!("{} {value}", last(path)));
    parts.collect::<Vec<_>>().join(", ")
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenario::{named, parse};
    use super::*;

    #[test]
    fn a_printed_number_without_runs_says_so() {
        let scenario = parse(named("ido").expect("built in")).expect("sound");
        let table = Outcome::new(&scenario, Vec::new()).judged_table();
        let column = table.heading.iter().position(|name| name == "verdict");
        let column = column.expect("a column");
        assert!(!scenario.printed.is_empty());
        assert_eq!(table.rows.len(), scenario.printed.len());
        let told = |row: &Vec<String>| row[column].starts_with("not run");
        assert!(table.rows.iter().all(told), "{}", table.text());
    }
}
