//! The results of an experiment: groups of seeds, comparisons seed by seed, and both as table, CSV and JSON
//! lines.

use super::cell::Cell;
use super::metric::{known, metric, saturated};
use super::scenario::{Between, Claim, Comparison, Point, Printed, Scenario, Value};
use super::statistics::{Estimate, geometric, ratio};
use crate::replay::facts::Log;
use crate::report::Table;
use serde_json::{Map, json};
use std::collections::BTreeMap;
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

    /// What a table shows: the mean, a word where there is none.
    pub fn shown(&self, name: &str) -> String {
        let mark = if self.saturated(name) { " sat." } else { "" };
        if let Some(estimate) = self.estimate(name) {
            return format!("{}{mark}", short(estimate.mean));
        }
        match self.values(name) {
            // Without a logarithm, the plain mean.
            Some(values) => short(values.iter().sum::<f64>() / values.len() as f64) + mark,
            None if name == "rebuild_s" && self.unfinished() => "unfinished".into(),
            None => "-".into(),
        }
    }

    fn unfinished(&self) -> bool {
        let mut rebuilds = self.runs.iter().filter_map(|run| run.log.rebuild);
        rebuilds.any(|rebuild| rebuild.to_ns.is_none())
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
    pub result: Result<Estimate, &'static str>,
}

/// Beside what a paper printed.
pub struct Beside {
    pub printed: Printed,
    pub at: Vec<(String, Value)>,
    pub result: Option<Estimate>,
}

impl Beside {
    /// Whether ours has the same sign: the interval lies on the printed side of 1.
    pub fn agrees(&self) -> Option<bool> {
        let estimate = self.result?;
        if self.printed.claim == Claim::Value {
            return None;
        }
        let ours = estimate.mean > 1.0;
        let theirs = self.printed.value > 1.0;
        estimate.excludes_one().then_some(ours == theirs)
    }
}

impl<'a> Outcome<'a> {
    /// `runs` are all seeds of the first point, then of the second, and so on.
    pub fn new(scenario: &'a Scenario, runs: Vec<Run>) -> Outcome<'a> {
        Outcome { scenario, runs }
    }

    pub fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        let seeds = usize::try_from(self.scenario.seeds).unwrap_or(usize::MAX);
        self.runs.chunks(seeds).map(|runs| Group {
            point: &runs[0].cell.point,
            runs,
        })
    }

    /// Groups in which these parameters have these values.
    pub fn groups_at(&self, at: &BTreeMap<String, Value>) -> Vec<Group<'_>> {
        let fits = |point: &Point| {
            at.iter()
                .all(|(path, value)| point.get(path) == Some(value))
        };
        self.groups().filter(|group| fits(group.point)).collect()
    }

    /// Values of a swept parameter, in the order of the scenario.
    pub fn values(&self, path: &str) -> Vec<Value> {
        let Scenario { fixed, sweep, .. } = self.scenario;
        let fixed = || Some(vec![fixed.get(path)?.value.clone()]);
        sweep.get(path).cloned().or_else(fixed).unwrap_or_default()
    }

    fn swept_of(&self, point: &Point, but: &str) -> Vec<(String, Value)> {
        let paths = self.scenario.sweep.keys().filter(|path| *path != but);
        let swept = paths.map(|path| (path.clone(), point[path].clone()));
        swept.collect()
    }

    // ----------------------------------------------------------------------------------------- comparisons

    pub fn compared(&self) -> Vec<Compared> {
        let all = self.scenario.comparisons.iter();
        all.flat_map(|comparison| self.compare(comparison))
            .collect()
    }

    pub fn compare(&self, comparison: &Comparison) -> Vec<Compared> {
        let mut at = comparison.at.clone();
        at.insert(comparison.vary.clone(), comparison.of.clone());
        let one = |group: Group<'_>| {
            let mut other = group.point.clone();
            other.insert(comparison.vary.clone(), comparison.to.clone());
            Compared {
                comparison: comparison.clone(),
                at: self.swept_of(group.point, &comparison.vary),
                result: self.pair(&group, &other, &comparison.metric),
            }
        };
        self.groups_at(&at).into_iter().map(one).collect()
    }

    fn pair(&self, of: &Group<'_>, to: &Point, name: &str) -> Result<Estimate, &'static str> {
        let to = self.groups().find(|group| group.point == to);
        let to = to.ok_or("nothing to compare with")?;
        if of.saturated(name) || to.saturated(name) {
            return Err("saturated");
        }
        let both = of.values(name).zip(to.values(name));
        let (of, to) = both.ok_or("unfinished, or not measured")?;
        ratio(&of.into_iter().zip(to).collect::<Vec<_>>()).ok_or("not positive")
    }

    pub fn beside(&self) -> Vec<Beside> {
        let of = |printed: &Printed| -> Vec<Beside> {
            if let Some(between) = &printed.between {
                return self.printed_between(printed, between);
            }
            let one = |group: Group<'_>| Beside {
                printed: printed.clone(),
                at: self.swept_of(group.point, ""),
                result: own_ratio(&group, printed),
            };
            self.groups_at(&printed.at).into_iter().map(one).collect()
        };
        self.scenario.printed.iter().flat_map(of).collect()
    }

    fn printed_between(&self, printed: &Printed, between: &Between) -> Vec<Beside> {
        let comparison = Comparison {
            name: printed.what.clone(),
            metric: printed.metric.clone(),
            vary: between.vary.clone(),
            of: between.of.clone(),
            to: between.to.clone(),
            at: printed.at.clone(),
        };
        let one = |compared: Compared| Beside {
            printed: printed.clone(),
            at: compared.at,
            result: compared.result.ok(),
        };
        self.compare(&comparison).into_iter().map(one).collect()
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
        let mut table = Table::new("comparison|at|ratio|95% interval|says");
        for line in compared {
            let (ratio, interval, says) = match &line.result {
                Ok(estimate) => (short(estimate.mean), interval(estimate), verdict(estimate)),
                Err(why) => ("-".into(), "-".into(), (*why).to_string()),
            };
            let name = line.comparison.name.clone();
            table.row([name, place(&line.at), ratio, interval, says]);
        }
        table
    }

    pub fn beside_table(&self) -> Table {
        let mut table = Table::new("printed|claim|at|theirs|ours|95% interval|sign");
        for line in self.beside() {
            let (ours, range) = match &line.result {
                Some(estimate) => (short(estimate.mean), interval(estimate)),
                None => ("-".into(), "-".into()),
            };
            let agrees = match line.agrees() {
                Some(true) => "agrees",
                Some(false) => "differs",
                None if line.printed.claim == Claim::Value => "-",
                None => "undecided",
            };
            let what = format!("{} ({})", line.printed.what, line.printed.source);
            let claim = line.printed.claim.name().to_string();
            let (at, theirs) = (place(&line.at), short(line.printed.value));
            table.row([what, claim, at, theirs, ours, range, agrees.into()]);
        }
        table
    }

    /// Every fixed parameter with its origin.
    pub fn fixed_table(&self) -> Table {
        let mut table = Table::new("parameter|value|origin|note");
        for (path, fixed) in &self.scenario.fixed {
            let (value, origin) = (fixed.value.to_string(), fixed.origin.name().to_string());
            table.row([path.clone(), value, origin, fixed.note.clone()]);
        }
        table
    }

    // ------------------------------------------------------------------------------------------------- files

    /// A line a run: its swept parameters, its seed, every metric that anything here shows.
    pub fn csv(&self) -> String {
        let metrics = self.metrics();
        let paths: Vec<&String> = self.scenario.sweep.keys().collect();
        let heading = paths.iter().map(|path| path.as_str());
        let heading = heading.chain(["seed", "hash"]);
        let heading = heading.chain(metrics.iter().map(String::as_str));
        let mut out = heading.collect::<Vec<_>>().join(",") + "\n";
        for Run { cell, log } in &self.runs {
            let swept = paths
                .iter()
                .map(|path| quoted(&cell.point[*path].to_string()));
            let mut line: Vec<String> = swept.collect();
            line.extend([cell.seed.to_string(), cell.hash()]);
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

fn own_ratio(group: &Group<'_>, printed: &Printed) -> Option<Estimate> {
    if printed.claim == Claim::Value {
        return group.estimate(&printed.metric);
    }
    let (of, to) = (group.values(&printed.metric)?, group.values(&printed.over)?);
    if group.saturated(&printed.metric) || group.saturated(&printed.over) {
        return None;
    }
    ratio(&of.into_iter().zip(to).collect::<Vec<_>>())
}

fn interval(estimate: &Estimate) -> String {
    if estimate.count < 2 {
        return "-".into();
    }
    format!("{} to {}", short(estimate.low), short(estimate.high))
}

fn verdict(estimate: &Estimate) -> String {
    if estimate.count < 2 {
        return "one run".into();
    }
    match (estimate.excludes_one(), estimate.mean > 1.0) {
        (true, true) => "more".into(),
        (true, false) => "less".into(),
        (false, _) => "undecided".into(),
    }
}

fn place(at: &[(String, Value)]) -> String {
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
