//! Grids of caches: the saving of a VDF rule over its base rule, by workload, array and size, with paired
//! seeds.
//!
//! A grid is a scenario of the laboratory's form ([`crate::experiment::scenario`]): every parameter is fixed
//! with its origin, or swept. A seed names the workload and the failed disks: seed s fails slot s modulo the
//! members, and the slots after it. So a recorded trace, which exists once, has pairs too. The base rule and
//! the VDF rule see the same requests in one pass. A cell is judged by the ratio of their request generation
//! ratios, seed by seed.

use super::{CacheError, Members, Outcome, Rebuild, Setup, simulate};
use crate::experiment::choices::level;
use crate::experiment::judged::{BySeed, Judged, Repeated, judge, printed};
use crate::experiment::outcome::judged_table;
use crate::experiment::parameters::{Grouped, Groups, Keys};
use crate::experiment::scenario::{self, BuiltIn, Point, Scale, Scenario, Value};
use crate::experiment::statistics::{Estimate, ratio};
use crate::experiment::verdict::{Test, Tested, family};
use crate::generate::{Generator, Parameters, preset};
use crate::nearest;
use crate::report::Table;
use crate::threads::over;
use crate::trace::{BLOCK_BYTES, Options, Requests, open};
use restripe_array::cache::{Rule, Ties};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;

const BUILT_IN: BuiltIn = BuiltIn(texts![
    "../../../../scenarios/cache/":
    "vdf-size", "vdf-disks", "vdf-raid6", "vdf-rebuild", "vdf-weight",
    "vdf-samples", "vdf-distance", "vdf-reuse", "vdf-crowd", "vdf-flip",
]);

pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.names()
}

/// The text of a grid that the command is built with.
pub fn named(name: &str) -> Option<&'static str> {
    BUILT_IN.named(name)
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArraySettings {
    level: String,
    members: u16,
    chunk_kib: u64,
    /// How many members have failed.
    failed: u16,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadSettings {
    /// A generator's preset, or `trace:` and a file in the folder of traces.
    source: String,
    requests: u64,
    /// Whether written blocks are asked for too.
    writes: bool,
    /// In place of the preset's own: the share of the reads that repeat an earlier one, and at which depth all of them do,
    /// in different requests.
    reread_share: Option<f64>,
    reread_distance: Option<u64>,
}

impl WorkloadSettings {
    fn parameters(&self) -> Result<Parameters, String> {
        let found = preset::named(&self.source).ok_or_else(|| preset::unknown(&self.source))?;
        let mut parameters = found.map_err(|error| error.to_string())?;
        parameters.reread_share = self.reread_share.unwrap_or(parameters.reread_share);
        if let Some(distance) = self.reread_distance {
            parameters.reread_distance = (distance, distance);
        }
        Ok(parameters)
    }

    fn is_as_recorded(&self) -> bool {
        self.reread_share.is_none() && self.reread_distance.is_none()
    }
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CacheSettings {
    blocks: u32,
    /// The rule that the VDF rule starts from.
    base: String,
    ties: String,
    /// Blocks asked for before anything is counted.
    warm_up: u64,
    /// What the cache is told that a miss on a failed slot costs; 0: the truth.
    weight: u16,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RebuildSettings {
    /// Shares of the trace; equal: nothing is rebuilt.
    from: f64,
    to: f64,
    /// Whether the cache learns what is rebuilt.
    followed: bool,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    array: ArraySettings,
    workload: WorkloadSettings,
    cache: CacheSettings,
    rebuild: RebuildSettings,
}

impl Grouped for Settings {
    fn groups() -> Groups {
        vec![
            ("array", Keys::of::<ArraySettings>()),
            ("workload", Keys::of::<WorkloadSettings>()),
            ("cache", Keys::of::<CacheSettings>()),
            ("rebuild", Keys::of::<RebuildSettings>()),
        ]
    }

    fn check_point(point: &Point) -> Result<(), String> {
        let settings: Settings = scenario::settings(point, "cache.blocks")?;
        let at = |path: &str, error: String| format!("{path}: {error}");
        level(&settings.array.level).map_err(|error| at("array.level", error))?;
        let workload = &settings.workload;
        if !workload.source.starts_with("trace:") {
            let sound = workload.parameters();
            sound.map_err(|error| at("workload.source", error))?;
        }
        settings.rules().map(drop)
    }
}

impl Settings {
    /// The base rule and its VDF version.
    fn rules(&self) -> Result<(Rule, Rule), String> {
        let base = Rule::named(&self.cache.base);
        let of = |base: Rule| move |rule: &Rule| *rule != base && rule.base() == base;
        let pair = base.and_then(|base| Some((base, Rule::ALL.into_iter().find(of(base))?)));
        pair.ok_or_else(|| format!("cache.base is {:?}: lru, lfu or arc", self.cache.base))
    }

    fn setup(&self, seed: u64) -> Result<Setup, String> {
        let members = u64::from(self.array.members.max(1));
        let failed = (0..u64::from(self.array.failed)).map(|nth| ((seed + nth) % members) as u16);
        let ties = Ties::named(&self.cache.ties);
        Ok(Setup {
            members: Members {
                level: level(&self.array.level)?,
                count: self.array.members,
                chunk_bytes: self.array.chunk_kib.saturating_mul(1024),
                failed: failed.collect(),
            },
            block_bytes: BLOCK_BYTES,
            contenders: Vec::new(),
            ties: ties.ok_or_else(|| format!("cache.ties is {:?}", self.cache.ties))?,
            warm_up: self.cache.warm_up,
            writes: self.workload.writes,
            rebuild: (self.rebuild.from < self.rebuild.to).then_some(Rebuild {
                from: self.rebuild.from,
                to: self.rebuild.to,
                followed: self.rebuild.followed,
            }),
            weight: (self.cache.weight > 0).then_some(self.cache.weight),
        })
    }
}

fn settings(point: &Point) -> Result<Settings, String> {
    scenario::settings(point, "cache.blocks")
}

/// Runs that share everything but size and rules: one pass over the requests.
struct Pass {
    setup: Setup,
    workload: WorkloadSettings,
    seed: u64,
    /// The cell of each pair of contenders.
    cells: Vec<usize>,
}

/// One seed of a cell.
#[derive(Clone, PartialEq, Debug)]
pub struct Pair {
    pub seed: u64,
    pub base: Outcome,
    pub vdf: Outcome,
}

impl Pair {
    /// How much less the VDF rule asks of the members.
    pub fn gain(&self) -> f64 {
        self.won() - self.lost()
    }

    /// What it adds of reads of blocks on standing members, which it holds for a shorter time, as a share of all.
    pub fn lost(&self) -> f64 {
        self.share(self.vdf.reads_standing(), self.base.reads_standing())
    }

    /// What it spares of reads on account of blocks on failed members.
    pub fn won(&self) -> f64 {
        self.share(self.base.reads_failed, self.vdf.reads_failed)
    }

    fn share(&self, more: u64, less: u64) -> f64 {
        match self.base.reads {
            0 => 0.0,
            reads => (more as f64 - less as f64) / reads as f64,
        }
    }

    /// Whether it gains more than a rule can that misses no more on the standing members. For LRU that cannot be: VDF-LRU
    /// holds of each standing member no more than LRU does.
    pub fn over_bound(&self) -> bool {
        self.gain() > self.base.bound() + 1e-12
    }
}

/// A point of the grid with what its seeds came to.
#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    pub point: Point,
    pub pairs: Vec<Pair>,
}

impl Cell {
    /// RGR of the VDF rule over that of its base.
    pub fn ratio(&self) -> Option<Estimate> {
        let pairs: Vec<(f64, f64)> = self
            .pairs
            .iter()
            .map(|pair| (pair.vdf.rgr(), pair.base.rgr()))
            .collect();
        ratio(&pairs)
    }

    /// `less`, `more`, or `undecided`, of a cell that is alone in its family.
    pub fn says(&self) -> &'static str {
        says(std::slice::from_ref(self))[0]
    }

    pub fn over_bound(&self) -> usize {
        self.pairs.iter().filter(|pair| pair.over_bound()).count()
    }

    fn mean(&self, value: impl Fn(&Pair) -> f64) -> f64 {
        self.pairs.iter().map(value).sum::<f64>() / self.pairs.len().max(1) as f64
    }
}

/// What the ratio of each cell is found to be, all tested as one family.
fn says(cells: &[Cell]) -> Vec<&'static str> {
    let test = |cell: &Cell| Some(Test::side_of_one(cell.ratio()?, 1));
    let tests: Vec<Option<Test>> = cells.iter().map(test).collect();
    let says = |(tested, cell): (Option<Tested>, &Cell)| match (tested, cell.ratio()) {
        (Some(tested), Some(found)) if tested.is_decided() && found.mean < 1.0 => "less",
        (Some(tested), Some(_)) if tested.is_decided() => "more",
        (Some(_), _) => "undecided",
        (None, _) => "one run",
    };
    family(&tests).into_iter().zip(cells).map(says).collect()
}

/// What a printed number may be compared with: of the base rule and of its VDF version.
type Metric = (&'static str, fn(&Pair) -> f64);

const METRICS: [Metric; 4] = [
    ("base.rgr", |pair| pair.base.rgr()),
    ("vdf.rgr", |pair| pair.vdf.rgr()),
    ("base.miss_ratio", |pair| pair.base.miss_ratio()),
    ("vdf.miss_ratio", |pair| pair.vdf.miss_ratio()),
];

fn metric(name: &str) -> Option<fn(&Pair) -> f64> {
    let found = METRICS.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value)
}

impl Repeated for Cell {
    fn point(&self) -> &Point {
        &self.point
    }

    fn by_seed(&self, name: &str) -> Option<BySeed> {
        let value = metric(name)?;
        let all = self.pairs.iter().map(|pair| (pair.seed, value(pair)));
        Some(all.collect())
    }

    fn is_saturated(&self, _: &str) -> bool {
        false
    }

    fn is_cut(&self, _: &str) -> bool {
        false
    }

    fn is_one_run(&self) -> bool {
        let [first, others @ ..] = self.pairs.as_slice() else {
            return true;
        };
        let same = |pair: &Pair| pair.base == first.base && pair.vdf == first.vdf;
        others.iter().all(same)
    }
}

/// Printed numbers of a grid with those of its cells, judged as one family.
fn judged(scenario: &Scenario, cells: &[Cell]) -> Vec<Judged> {
    let mut lines = printed(scenario, cells);
    judge(&mut lines.iter_mut().collect::<Vec<_>>());
    lines
}

/// Runs a grid at a scale, over so many threads; its traces lie in the folder. The order of the cells is the scenario's.
pub fn run(
    scenario: Scenario,
    scale: Scale,
    folder: &Path,
    threads: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<Cell>, String> {
    let scenario = scenario.scaled(scale);
    run_at(
        scenario.points(),
        0..scenario.seeds,
        folder,
        threads,
        progress,
    )
}

/// Runs points with these seeds.
pub fn run_at(
    points: Vec<Point>,
    seeds: Range<u64>,
    folder: &Path,
    threads: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<Cell>, String> {
    let passes = passes(&points, seeds)?;
    let work = |pass: &Pass| outcomes(pass, folder);
    let found = over(threads, &passes, work, |done, _| {
        progress(done, passes.len());
    })?;
    Ok(gathered(points, &passes, found))
}

/// The pairs of each cell, in order of their seeds.
fn gathered(points: Vec<Point>, passes: &[Pass], found: Vec<Vec<Outcome>>) -> Vec<Cell> {
    let mut pairs: BTreeMap<(usize, u64), Pair> = BTreeMap::new();
    for (pass, outcomes) in passes.iter().zip(found) {
        for (cell, both) in pass.cells.iter().zip(outcomes.chunks_exact(2)) {
            let pair = Pair {
                seed: pass.seed,
                base: both[0].clone(),
                vdf: both[1].clone(),
            };
            pairs.insert((*cell, pass.seed), pair);
        }
    }
    let empty = |point| Cell {
        point,
        pairs: Vec::new(),
    };
    let mut cells: Vec<Cell> = points.into_iter().map(empty).collect();
    for ((cell, _), pair) in pairs {
        cells[cell].pairs.push(pair);
    }
    cells
}

fn passes(points: &[Point], seeds: Range<u64>) -> Result<Vec<Pass>, String> {
    let mut passes: Vec<Pass> = Vec::new();
    for (cell, point) in points.iter().enumerate() {
        let settings = settings(point)?;
        let (base, vdf) = settings.rules()?;
        for seed in seeds.clone() {
            let setup = settings.setup(seed)?;
            let same = |pass: &Pass| {
                let own = Setup {
                    contenders: Vec::new(),
                    ..pass.setup.clone()
                };
                pass.seed == seed && pass.workload == settings.workload && own == setup
            };
            let blocks = settings.cache.blocks;
            let pair = [(base, blocks), (vdf, blocks)];
            match passes.iter().position(same) {
                Some(at) => {
                    passes[at].setup.contenders.extend(pair);
                    passes[at].cells.push(cell);
                }
                None => passes.push(Pass {
                    setup: Setup {
                        contenders: pair.to_vec(),
                        ..setup
                    },
                    workload: settings.workload.clone(),
                    seed,
                    cells: vec![cell],
                }),
            }
        }
    }
    Ok(passes)
}

fn outcomes(pass: &Pass, folder: &Path) -> Result<Vec<Outcome>, String> {
    let workload = &pass.workload;
    let WorkloadSettings {
        source, requests, ..
    } = workload;
    let most = usize::try_from(*requests).unwrap_or(usize::MAX);
    let told = |error: CacheError| format!("{error}, of {source}");
    if let Some(path) = source.strip_prefix("trace:") {
        if !workload.is_as_recorded() {
            return Err(format!("what {source} repeats is as it was recorded"));
        }
        let open = || {
            let trace = open(&folder.join(path), &Options::default())?;
            Ok(Box::new(trace.take(most)) as Requests)
        };
        return simulate(&pass.setup, open).map_err(told);
    }
    let parameters = workload.parameters()?;
    let fresh = || Generator::new(&parameters, pass.seed);
    fresh().map_err(|error| error.to_string())?;
    let open = || {
        let generator = fresh().expect("made a moment ago");
        Ok(Box::new(generator.map(Ok).take(most)) as Requests)
    };
    simulate(&pass.setup, open).map_err(told)
}

/// What each cell came to. Shares of the base rule's reads: LOST on blocks of standing members, WON on those of failed
/// ones. HELD: the part of the VDF rule's cache that blocks of failed members have at the end.
pub fn table(scenario: &Scenario, cells: &[Cell]) -> String {
    let paths: Vec<&str> = scenario.sweep.keys().map(String::as_str).collect();
    let mut table = Table::new("CELL|MISSED|RGR|VDF|RATIO|95%|SAYS|LOST|WON|BOUND|OVER|HELD");
    for (cell, says) in cells.iter().zip(says(cells)) {
        table.row(columns(name(scenario, cell), cell, says));
    }
    let judged = judged_table(&judged(scenario, cells));
    let judged = match judged.rows.is_empty() {
        true => String::new(),
        false => format!("\nCompared with the printed figures\n{}", judged.text()),
    };
    format!(
        "cells are {}\n{}{}{judged}",
        paths.join(" "),
        table.text(),
        verdict(scenario, cells)
    )
}

fn name(scenario: &Scenario, cell: &Cell) -> String {
    let values = scenario.sweep.keys().map(|path| short(&cell.point[path]));
    values.collect::<Vec<_>>().join(" ")
}

/// How many cells say what, and each that gains more than its bound.
fn verdict(scenario: &Scenario, cells: &[Cell]) -> String {
    let all = says(cells);
    let count = |one: &str| all.iter().filter(|says| **says == one).count();
    let mut text = format!(
        "{} cells: {} less, {} more, {} undecided\n",
        cells.len(),
        count("less"),
        count("more"),
        count("undecided")
    );
    for cell in cells.iter().filter(|cell| cell.over_bound() > 0) {
        let (name, over, all) = (name(scenario, cell), cell.over_bound(), cell.pairs.len());
        let why = match cell.pairs[0].base.rule {
            "lru" => "VDF-LRU cannot gain that much: it does not do what it should",
            _ => "no bound is proved of this rule",
        };
        text += &format!("over the bound: {name}, {over} of {all} pairs: {why}\n");
    }
    text
}

fn columns(name: String, cell: &Cell, says: &str) -> [String; 12] {
    let ratio = cell.ratio();
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    let held = |pair: &Pair| f64::from(pair.vdf.held_failed) / f64::from(pair.vdf.blocks);
    [
        name,
        percent(cell.mean(|pair| pair.base.miss_ratio())),
        format!("{:.4}", cell.mean(|pair| pair.base.rgr())),
        format!("{:.4}", cell.mean(|pair| pair.vdf.rgr())),
        ratio.map_or("-".into(), |found| format!("{:.4}", found.mean)),
        ratio.map_or("-".into(), |found| {
            format!("{:.4}..{:.4}", found.low, found.high)
        }),
        says.into(),
        percent(cell.mean(Pair::lost)),
        percent(cell.mean(Pair::won)),
        percent(cell.mean(|pair| pair.base.bound())),
        format!("{} of {}", cell.over_bound(), cell.pairs.len()),
        percent(cell.mean(held)),
    ]
}

/// A value without the folder of a path.
fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.rsplit_once('/') {
        Some((_, name)) => name.into(),
        None => text,
    }
}

/// A line a run.
pub fn csv(scenario: &Scenario, cells: &[Cell]) -> String {
    let swept: Vec<&String> = scenario.sweep.keys().collect();
    let mut text = String::new();
    swept.iter().for_each(|path| text += &format!("{path},"));
    text += "seed,asked,base,base_misses,base_misses_failed,base_reads,vdf,vdf_misses,vdf_misses_failed,vdf_reads,gain,lost,won,bound\n";
    for cell in cells {
        for pair in &cell.pairs {
            swept
                .iter()
                .for_each(|path| text += &format!("{},", short(&cell.point[*path])));
            let (base, vdf) = (&pair.base, &pair.vdf);
            let written = writeln!(
                text,
                "{},{},{},{},{},{},{},{},{},{},{:.6},{:.6},{:.6},{:.6}",
                pair.seed,
                base.asked,
                base.rule,
                base.misses,
                base.misses_failed,
                base.reads,
                vdf.rule,
                vdf.misses,
                vdf.misses_failed,
                vdf.reads,
                pair.gain(),
                pair.lost(),
                pair.won(),
                base.bound(),
            );
            written.expect("a text takes all");
        }
    }
    text
}

/// A grid by name, or from a file.
pub fn load(name: &str) -> Result<Scenario, String> {
    if let Some(text) = named(name) {
        return parse(text);
    }
    let text = std::fs::read_to_string(name).map_err(|error| {
        let known = names().collect::<Vec<_>>().join(", ");
        format!("{name}: {error}; the grids built in are {known}")
    })?;
    parse(&text)
}

fn parse(text: &str) -> Result<Scenario, String> {
    let scenario = scenario::parse_of::<Settings>(text)?;
    let names = scenario
        .printed
        .iter()
        .flat_map(|line| [&line.metric, &line.over]);
    for name in names.filter(|name| !name.is_empty()) {
        if metric(name).is_none() {
            let known = METRICS.iter().map(|(known, _)| *known);
            return Err(nearest::unknown("metric", name, known));
        }
    }
    Ok(scenario)
}
