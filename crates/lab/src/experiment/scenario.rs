//! An experiment as a file.
//!
//! `[fixed]` names every parameter by its path, with its value and the value's origin. `[sweep]` lists the
//! values of the others, and all combinations are run. `[short]` has the values that a quick run uses
//! instead.

pub use super::claim::{Between, Claim, Comparison, Printed, Stopping};
use super::named;
use super::parameters::{Grouped, Keys};
use super::plain;
pub use super::value::{Point, Value};
use crate::nearest;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Where a parameter's value is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    Paper,
    Kernel,
    Assumed,
    /// Set by command, in place of the scenario's.
    #[serde(skip)]
    Given,
}

impl Origin {
    pub fn name(self) -> &'static str {
        match self {
            Origin::Paper => "paper",
            Origin::Kernel => "kernel",
            Origin::Assumed => "assumed",
            Origin::Given => "set by command",
        }
    }
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixed {
    pub value: Value,
    pub origin: Origin,
    #[serde(default)]
    pub note: String,
    /// Values over which it is swept alone, to show what hangs on it.
    #[serde(default)]
    pub range: Vec<Value>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FigureKind {
    /// A metric over a parameter, a line for each value of another.
    Curve,
    /// A metric by parameter, grouped by another.
    Bars,
    /// A metric over two parameters, by shade.
    Heat,
    /// The distribution of response times in a phase.
    Cdf,
    /// The course over time of one run of each series.
    Course,
    /// Printed ratios by the values of a parameter: those that are above 1 at one value and below at another.
    Ratios,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    pub name: String,
    pub kind: FigureKind,
    pub title: String,
    /// A parameter; of a distribution, a phase.
    #[serde(default)]
    pub x: String,
    /// A metric; of a heat map, the second parameter; of a course `power_w`, or nothing: mean response.
    #[serde(default)]
    pub y: String,
    /// The metric of a heat map.
    #[serde(default)]
    pub z: String,
    #[serde(default)]
    pub series: String,
    /// Parameters held at one value.
    #[serde(default)]
    pub at: BTreeMap<String, Value>,
    #[serde(default)]
    pub logarithmic: bool,
}

impl Figure {
    fn of_ratios(path: &str) -> Figure {
        Figure {
            name: "headlines".into(),
            kind: FigureKind::Ratios,
            title: "Headline ratios on both sides of 1".into(),
            x: path.into(),
            y: String::new(),
            z: String::new(),
            series: String::new(),
            at: BTreeMap::new(),
            logarithmic: false,
        }
    }
}

/// How much of a scenario is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Every point and seed.
    Whole,
    /// `[quick]`: what answers the question in minutes.
    Quick,
    /// `[verify]`: what decides the headline claims in minutes; without it `[quick]`.
    Verify,
    /// `[short]`: seconds, to see that it works.
    Short,
}

/// What a smaller scale puts in the place of seeds, fixed values and swept ones.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Short {
    pub seeds: Option<u64>,
    /// Looks of [`Stopping`], in place of a number of seeds.
    pub looks: Option<Vec<u64>>,
    #[serde(default)]
    pub fixed: BTreeMap<String, Value>,
    #[serde(default)]
    pub sweep: BTreeMap<String, Vec<Value>>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub name: String,
    pub title: String,
    /// What is asked, in a paragraph.
    pub question: String,
    pub seeds: u64,
    pub fixed: BTreeMap<String, Fixed>,
    #[serde(default)]
    pub sweep: BTreeMap<String, Vec<Value>>,
    #[serde(default)]
    pub short: Short,
    pub quick: Option<Short>,
    pub verify: Option<Short>,
    /// Numbers of seeds after which undecided claims get more of them.
    pub stopping: Option<Stopping>,
    /// Promises in which the sides of its comparisons differ on purpose: see [`super::fair`].
    #[serde(default)]
    pub unequal: Vec<String>,
    /// Metrics of the table.
    pub table: Vec<String>,
    #[serde(default, rename = "figure")]
    pub figures: Vec<Figure>,
    #[serde(default, rename = "compare")]
    pub comparisons: Vec<Comparison>,
    #[serde(default)]
    pub printed: Vec<Printed>,
}

/// Settings from a point, whose paths are a group and a name, as the example is.
pub fn settings<T: Grouped>(point: &Point, example: &str) -> Result<T, String> {
    none_of(mistaken_parameters::<T>(point.keys().map(String::as_str)))?;
    let mut table = toml::Table::new();
    for (path, value) in point {
        let (group, name) = path
            .split_once('.')
            .ok_or_else(|| format!("{path} is not a group and a name, as in {example}"))?;
        let empty = || toml::Table::new().into();
        if let toml::Value::Table(group) = table.entry(group).or_insert_with(empty) {
            group.insert(name.into(), value.to());
        }
    }
    table
        .try_into()
        .map_err(|error| plain::of_parameters(&error))
}

/// Scenarios that the command is built with: names and texts.
pub struct BuiltIn(pub &'static [(&'static str, &'static str)]);

impl BuiltIn {
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(name, _)| *name)
    }

    pub fn named(&self, name: &str) -> Option<&'static str> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map(|(_, text)| *text)
    }
}

const BUILT_IN: BuiltIn = BuiltIn(texts![
    "../../../../scenarios/":
    "rebuild-cost", "levels", "width", "chunk", "own-trace", "orders", "streams", "goals",
    "ido", "ido-load", "pr-vs-ido", "ido-surrogate", "ido-raid6", "ido-throttle", "ido-zone", "ido-chunk", "ido-disks",
    "ido-locality", "ido-parts", "ido-rate", "ido-combined", "ido-regions", "ido-regions-rate", "ido-identifier",
    "ido-migration", "ido-own-trace", "ido-resync", "ido-remote", "ido-raid10", "ido-scrub", "ido-energy",
    "s2-offline", "s2-online", "s2-load", "s2-minimum", "s2-raid10", "s2-ido", "s2-spares", "s2-disks", "s2-writes",
    "s2-scrub", "s2-cache", "s2-second", "s2-second-levels",
    "mcpod-offline", "mcpod-online", "mcpod-parts", "mcpod-ido", "mcpod-wide", "mcpod-after",
    "energy", "reraid", "reraid-cache", "reraid-clean", "reraid-destage", "reraid-groups", "reraid-parities",
    "reraid-sizes", "reraid-writes",
    "vdf-open-loop", "vdf-closed-loop",
]);

/// The laboratory's own.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.names()
}

pub fn named(name: &str) -> Option<&'static str> {
    BUILT_IN.named(name)
}

/// Deprecated names of scenarios, each with the present one.
const RENAMED: [(&str, &str); 1] = [("pr-beside-ido", "pr-vs-ido")];

/// The present name of a scenario that has a deprecated one.
pub fn renamed(name: &str) -> Option<&'static str> {
    let found = RENAMED.iter().find(|(old, _)| *old == name);
    found.map(|(_, present)| *present)
}

pub fn parse(text: &str) -> Result<Scenario, String> {
    read(text, |_| Vec::new())
}

/// A scenario whose parameters are those of some settings, as are the values that it compares.
pub fn parse_of<T: Grouped>(text: &str) -> Result<Scenario, String> {
    let scenario = read(text, |table| {
        let groups = ["fixed", "sweep"].map(|key| part::<toml::Table>(table, key));
        let paths: Vec<&String> = groups.iter().flat_map(toml::Table::keys).collect();
        mistaken_parameters::<T>(paths.into_iter().map(String::as_str))
    })?;
    let mistaken = named::impossible_values(
        &scenario.values(),
        &scenario.points(),
        &scenario.comparisons,
        &scenario.printed,
        T::check_point,
    );
    none_of(mistaken)?;
    Ok(scenario)
}

/// Names all mistakes at once, where the parser would name the first.
fn read(text: &str, more: impl Fn(&toml::Table) -> Vec<String>) -> Result<Scenario, String> {
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
    let checks = [
        mistaken_keys,
        mistaken_values,
        mistaken_sweeps,
        mistaken_looks,
        mistaken_names,
    ];
    let found = checks.iter().flat_map(|check| check(&table));
    none_of(found.chain(more(&table)).collect())?;
    toml::from_str(text).map_err(|error| plain::of_file(&error))
}

fn none_of(mistakes: Vec<String>) -> Result<(), String> {
    match mistakes.is_empty() {
        true => Ok(()),
        false => Err(mistakes.join("\n")),
    }
}

/// A part of a scenario, as far as it is sound.
fn part<T: Default + DeserializeOwned>(table: &toml::Table, key: &str) -> T {
    let value = table.get(key).cloned().map(toml::Value::try_into);
    value.and_then(Result::ok).unwrap_or_default()
}

/// The keys that are missing, then those that are unknown.
fn mistaken_keys(table: &toml::Table) -> Vec<String> {
    let keys = Keys::of::<Scenario>();
    let mut missing: Vec<String> = keys.missing(table).map(str::to_string).collect();
    let mut unknown = keys.unknown(table, "");
    let keys = Keys::of::<Fixed>();
    for (path, value) in &part::<toml::Table>(table, "fixed") {
        if let Some(value) = value.as_table() {
            missing.extend(keys.missing(value).map(|key| format!("{key} of {path:?}")));
            unknown.extend(keys.unknown(value, &format!(" of {path:?}")));
        }
    }
    let keys = Keys::of::<Short>();
    for scale in SMALLER {
        let of = format!(" of [{scale}]");
        unknown.extend(keys.unknown(&part(table, scale), &of));
    }
    if !missing.is_empty() {
        unknown.insert(0, format!("the scenario lacks {}", missing.join(", ")));
    }
    unknown
}

/// Of a scenario's parameters, those that it needs and lacks, and those that there are not.
fn mistaken_parameters<'a, T: Grouped>(paths: impl Iterator<Item = &'a str>) -> Vec<String> {
    let paths: BTreeSet<&str> = paths.collect();
    let known = T::all();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let unknown = paths.iter().filter(|path| !known.contains(path));
    let unknown = unknown.map(|path| nearest::unknown_one("parameter", path, known.clone()));
    let mut missing = T::required();
    missing.retain(|path| !paths.contains(path.as_str()));
    let missing = missing.join(", ");
    let lacks = format!("neither [fixed] nor [sweep] has {missing}");
    let lacks = (!missing.is_empty()).then_some(lacks);
    lacks.into_iter().chain(unknown).collect()
}

/// In the folder of an experiment, the one of the runs that are kept; each scenario has one of its name.
const RUNS: &str = "runs";
/// Letters of a scenario's name, which is part of names of folders.
const NAME_MAX: usize = 80;

/// Values that are none of their key's.
fn mistaken_values(table: &toml::Table) -> Vec<String> {
    let mut mistakes = Vec::new();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let name = table.get("name").and_then(toml::Value::as_str);
    let sound = |name: &str| (1..=NAME_MAX).contains(&name.len()) && name.chars().all(plain);
    if let Some(name) = name.filter(|name| !sound(name)) {
        mistakes.push(format!(
            "{name:?} is not a name: small letters, digits and -, {NAME_MAX} at most"
        ));
    }
    if name == Some(RUNS) {
        mistakes.push(format!(
            "{RUNS:?} cannot be the name of a scenario: the folder of that name has the runs of all"
        ));
    }
    let seeds = table.get("seeds").and_then(toml::Value::as_integer);
    if let Some(seeds) = seeds.filter(|seeds| !(1..=10_000).contains(seeds)) {
        mistakes.push(format!("{seeds} seeds: 1 to 10000 can be"));
    }
    let keys = Keys::of::<Fixed>();
    for (path, value) in part::<toml::Table>(table, "fixed") {
        let Some(given) = value.as_table() else {
            mistakes.push(format!(
                "{path} is not as {{ value = 4, origin = \"assumed\" }}"
            ));
            continue;
        };
        let whole = keys.missing(given).next().is_none() && keys.unknown(given, "").is_empty();
        if let (true, Err(error)) = (whole, value.try_into::<Fixed>()) {
            mistakes.push(format!("{path}: {}", plain::plain(error.message())));
        }
    }
    for figure in part::<Vec<toml::Table>>(table, "figure") {
        let name: String = part(&figure, "name");
        if !name.chars().all(plain) {
            mistakes.push(format!("{name:?} is not a name of a figure"));
        }
    }
    mistakes
}

/// Tables of what a smaller scale puts in the place of a scenario's values.
const SMALLER: [&str; 3] = ["short", "quick", "verify"];

type Sweep = BTreeMap<String, Vec<Value>>;

fn mistaken_sweeps(table: &toml::Table) -> Vec<String> {
    let fixed: toml::Table = part(table, "fixed");
    let sweep: Sweep = part(table, "sweep");
    let mut mistakes = mistaken_sweep("the sweep of", &sweep);
    let twice = sweep.keys().filter(|path| fixed.contains_key(*path));
    mistakes.extend(twice.map(|path| format!("{path} is both fixed and swept")));
    for name in SMALLER {
        let scale: Short = part(table, name);
        let stray =
            |does: &str, path: &str| format!("[{name}] {does} {path}, which the scenario does not");
        let fixes = scale.fixed.keys().filter(|path| !fixed.contains_key(*path));
        mistakes.extend(fixes.map(|path| stray("fixes", path)));
        let sweeps = scale.sweep.keys().filter(|path| !sweep.contains_key(*path));
        mistakes.extend(sweeps.map(|path| stray("sweeps", path)));
        let of = format!("[{name}]'s sweep of");
        mistakes.extend(mistaken_sweep(&of, &scale.sweep));
    }
    mistakes
}

/// Looks that do not rise from one to the next, from the scenario and its smaller scales.
fn mistaken_looks(table: &toml::Table) -> Vec<String> {
    let of = |name: &&str| part::<toml::Table>(table, name);
    let tables = ["stopping"]
        .iter()
        .chain(&SMALLER)
        .map(|name| (name, of(name)));
    let mistake = |(name, table): (&&str, toml::Table)| {
        let looks: Vec<u64> = table.get("looks")?.clone().try_into().unwrap_or_default();
        let rising = looks.windows(2).all(|pair| pair[0] < pair[1]);
        let sound = rising && (1..=10_000).contains(&looks.first().copied().unwrap_or(0));
        let most = looks.last().is_some_and(|last| *last <= 10_000);
        let what = "looks are rising numbers of seeds, such as [10, 20, 40]";
        (!(sound && most)).then(|| format!("[{name}]: {what}"))
    };
    tables.filter_map(mistake).collect()
}

/// What comparisons and printed numbers name, where the parameters can be read.
fn mistaken_names(table: &toml::Table) -> Vec<String> {
    let groups = ["fixed", "sweep"].map(|key| part::<toml::Table>(table, key));
    named::mistaken(
        &groups.iter().flat_map(toml::Table::keys).cloned().collect(),
        &part::<Vec<Comparison>>(table, "compare"),
        &part::<Vec<Printed>>(table, "printed"),
    )
}

/// Sweeps over nothing, and over a value twice: its runs would count twice.
fn mistaken_sweep(of: &str, sweep: &Sweep) -> Vec<String> {
    let mistake = |(path, values): (&String, &Vec<Value>)| {
        if values.is_empty() {
            return Some(format!("{of} {path} is empty"));
        }
        let is_known = |&nth: &usize| values[..nth].iter().any(|one| one.is_same(&values[nth]));
        let twice = (0..values.len()).find(is_known)?;
        Some(format!("{of} {path} has {} twice", values[twice]))
    };
    sweep.iter().filter_map(mistake).collect()
}

impl Scenario {
    /// The values that each parameter has in `[fixed]`, its range, `[sweep]`, and at the smaller scales.
    fn values(&self) -> named::Values {
        let mut values = named::Values::new();
        for (path, fixed) in &self.fixed {
            let own = values.entry(path.clone()).or_default();
            own.push(fixed.value.clone());
            own.extend(fixed.range.iter().cloned());
        }
        let scales = [Some(&self.short), self.quick.as_ref(), self.verify.as_ref()];
        let scales = || scales.into_iter().flatten();
        let sweeps = scales().map(|scale| &scale.sweep).chain([&self.sweep]);
        for (path, swept) in sweeps.flatten() {
            let own = values.entry(path.clone()).or_default();
            own.extend(swept.iter().cloned());
        }
        for (path, value) in scales().flat_map(|scale| &scale.fixed) {
            values.entry(path.clone()).or_default().push(value.clone());
        }
        values
    }

    /// What is wrong with the sweeps, where a command has changed them.
    pub fn check_sweeps(&self) -> Result<(), String> {
        none_of(mistaken_sweep("the sweep of", &self.sweep))
    }

    /// Fixes a parameter at a value given by command.
    pub fn fix(&mut self, path: &str, value: Value) {
        let fixed = self.fixed.entry(path.into()).or_insert_with(|| Fixed {
            value: value.clone(),
            origin: Origin::Given,
            note: String::new(),
            range: Vec::new(),
        });
        fixed.value = value;
        fixed.origin = Origin::Given;
    }

    /// Takes relative paths of traces and drives, also where they are compared, for relative to a folder: that
    /// of the scenario's file.
    pub fn with_traces_in(&mut self, folder: &Path) {
        let scales = [
            Some(&mut self.short),
            self.quick.as_mut(),
            self.verify.as_mut(),
        ];
        let scales = scales.into_iter().flatten();
        let (mut values, mut lists) = (Vec::new(), Vec::new());
        for scale in scales {
            values.extend(scale.fixed.values_mut());
            lists.extend(scale.sweep.values_mut());
        }
        lists.extend(self.sweep.values_mut());
        for fixed in self.fixed.values_mut() {
            values.push(&mut fixed.value);
            lists.push(&mut fixed.range);
        }
        for one in &mut self.comparisons {
            values.extend(one.at.values_mut().chain([&mut one.of, &mut one.to]));
        }
        for line in &mut self.printed {
            values.extend(line.at.values_mut());
            if let Some(between) = &mut line.between {
                values.extend([&mut between.of, &mut between.to]);
                values.extend(between.with.values_mut().flatten());
            }
        }
        values.extend(self.figures.iter_mut().flat_map(|one| one.at.values_mut()));
        for value in values.into_iter().chain(lists.into_iter().flatten()) {
            value.put_in(folder);
        }
    }

    /// What is run unless asked otherwise: the quick scale if there is one.
    pub fn usual_scale(&self) -> Scale {
        match self.quick {
            Some(_) => Scale::Quick,
            None => Scale::Whole,
        }
    }

    /// The scenario at a scale. Without a quick scale of its own it is run whole.
    pub fn scaled(mut self, scale: Scale) -> Scenario {
        let chosen = match scale {
            Scale::Whole => None,
            Scale::Quick => self.quick.take(),
            Scale::Verify => self.verify.take().or_else(|| self.quick.take()),
            Scale::Short => Some(std::mem::take(&mut self.short)),
        };
        let chosen = chosen.unwrap_or_default();
        self.seeds = chosen.seeds.unwrap_or(self.seeds);
        self.stopping = match (chosen.looks, chosen.seeds) {
            (Some(looks), _) => Some(Stopping { looks }),
            (None, Some(_)) => None,
            (None, None) => self.stopping,
        };
        for (path, value) in chosen.fixed {
            if let Some(fixed) = self.fixed.get_mut(&path) {
                fixed.value = value;
            }
        }
        self.sweep.extend(chosen.sweep);
        self
    }

    /// Numbers of seeds, rising, after each of which the results are looked at. The last is the cap.
    pub fn looks(&self) -> Vec<u64> {
        let planned = self.stopping.as_ref().map(|stopping| &stopping.looks);
        planned.cloned().unwrap_or_else(|| vec![self.seeds])
    }

    /// The scenario as a run of seconds has it.
    pub fn shortened(self) -> Scenario {
        self.scaled(Scale::Short)
    }

    /// All points of the sweep: the last parameter, by name, varies fastest.
    pub fn points(&self) -> Vec<Point> {
        let fixed = |(path, fixed): (&String, &Fixed)| (path.clone(), fixed.value.clone());
        let mut points: Vec<Point> = vec![self.fixed.iter().map(fixed).collect()];
        for (path, values) in &self.sweep {
            let with = |point: &Point, value: &Value| {
                let mut point = point.clone();
                point.insert(path.clone(), value.clone());
                point
            };
            let spread = |point: &Point| values.iter().map(|v| with(point, v)).collect::<Vec<_>>();
            points = points.iter().flat_map(spread).collect();
        }
        points
    }

    /// A scenario for each fixed parameter with a range: it alone is swept, beside the sweep, and the headlines
    /// are judged at every value. Without headlines every value is compared with the fixed one.
    pub fn sensitivities(&self) -> Vec<(String, Scenario)> {
        let fixed = self.fixed.iter();
        let ranged = fixed.filter(|(_, fixed)| !fixed.range.is_empty());
        let swept = |(path, fixed): (&String, &Fixed)| {
            let mut values = fixed.range.clone();
            if !values.contains(&fixed.value) {
                values.insert(0, fixed.value.clone());
            }
            let mut scenario = self.clone();
            // They would mix what is swept here.
            scenario.figures = vec![Figure::of_ratios(path)];
            scenario.printed.retain(|line| line.headline);
            scenario.comparisons = match scenario.printed.is_empty() {
                true => self.beside(path, &fixed.value, &values),
                false => Vec::new(),
            };
            scenario.fixed.remove(path);
            scenario.sweep.insert(path.clone(), values);
            (path.clone(), scenario)
        };
        ranged.map(swept).collect()
    }

    /// Comparisons of every value of a parameter with one of them, by what the scenario compares, or else shows first.
    fn beside(&self, path: &str, to: &Value, values: &[Value]) -> Vec<Comparison> {
        let compared = self.comparisons.iter().map(|one| &one.metric);
        let mut metrics: Vec<&String> = compared.collect();
        if metrics.is_empty() {
            metrics.extend(self.table.first());
        }
        metrics.sort();
        metrics.dedup();
        let mut comparisons = Vec::new();
        for metric in metrics {
            let others = values.iter().filter(|value| *value != to);
            comparisons.extend(others.map(|of| Comparison {
                name: format!("{metric}, {path} {of} over {to}"),
                metric: metric.clone(),
                vary: path.into(),
                of: of.clone(),
                to: to.clone(),
                at: BTreeMap::new(),
            }));
        }
        comparisons
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
        name = "small"
        title = "t"
        question = "q"
        seeds = 3
        table = []
        [fixed]
        "a.b" = { value = 1, origin = "paper", range = [1, 2] }
        [sweep]
        "c" = [1, 2]
        "d" = ["x", "y", "z"]
        [short]
        seeds = 1
        fixed = { "a.b" = 7 }
        sweep = { d = ["x"] }
    "#;

    #[test]
    fn a_sweep_is_all_combinations() {
        let scenario = parse(SMALL).expect("sound");
        let points = scenario.points();
        assert_eq!(points.len(), 6);
        let shown = |point: &Point| format!("{}{}{}", point["a.b"], point["c"], point["d"]);
        let all: Vec<String> = points.iter().map(shown).collect();
        assert_eq!(all, ["11x", "11y", "11z", "12x", "12y", "12z"]);
        assert_eq!(scenario.sensitivities()[0].1.points().len(), 12);
        let short: Vec<String> = scenario.shortened().points().iter().map(shown).collect();
        assert_eq!(short, ["71x", "72x"]);
    }

    #[test]
    fn what_is_both_fixed_and_swept_is_refused() {
        let twice = SMALL.replace("\"c\" = [1, 2]", "\"a.b\" = [1, 2]");
        assert!(parse(&twice).expect_err("twice").contains("a.b"));
        let stray = SMALL.replace("fixed = { \"a.b\" = 7 }", "fixed = { \"q\" = 7 }");
        assert!(parse(&stray).expect_err("stray").contains('q'));
        let stray = SMALL.replace("sweep = { d =", "sweep = { \"a.b\" =");
        assert!(parse(&stray).expect_err("it is fixed").contains("a.b"));
    }

    #[test]
    fn a_parameter_swept_alone_is_compared_with_its_fixed_value() {
        let text = SMALL.replace("table = []", "table = [\"rebuild_s\"]");
        let text = text.replace("range = [1, 2]", "range = [2, 3]");
        let (path, swept) = parse(&text).expect("sound").sensitivities().remove(0);
        assert_eq!(path, "a.b");
        assert_eq!(swept.sweep["a.b"], [1, 2, 3].map(Value::Whole));
        let names = swept.comparisons.iter().map(|one| one.name.as_str());
        let compared = ["rebuild_s, a.b 2 over 1", "rebuild_s, a.b 3 over 1"];
        assert_eq!(names.collect::<Vec<_>>(), compared);
    }

    #[test]
    fn headlines_are_judged_at_every_value_of_a_parameter_swept_alone() {
        let claim = |what: &str, headline| {
            format!(
                "[[printed]]\nwhat = \"{what}\"\nsource = \"IDO, table 1\"\nvalue = 2.0\nclaim = \"sign\"\n\
                 metric = \"rebuild_s\"\nheadline = {headline}\n\
                 between = {{ vary = \"c\", of = 1, to = 2 }}\n"
            )
        };
        let text = format!(
            "{SMALL}\n{}{}",
            claim("first", true),
            claim("second", false)
        );
        let (_, swept) = parse(&text).expect("sound").sensitivities().remove(0);
        assert_eq!(swept.sweep["a.b"], [1, 2].map(Value::Whole));
        let named: Vec<&str> = swept
            .printed
            .iter()
            .map(|line| line.what.as_str())
            .collect();
        assert_eq!((named, swept.comparisons.len()), (vec!["first"], 0));
    }

    #[test]
    fn the_quick_scale_is_the_usual_one_where_there_is_one() {
        let plain = parse(SMALL).expect("sound");
        assert_eq!(plain.usual_scale(), Scale::Whole);
        assert_eq!(plain.clone().scaled(Scale::Quick).points().len(), 6);
        let quick = SMALL.to_string() + "[quick]\nseeds = 2\nsweep = { c = [2] }\n";
        let quick = parse(&quick).expect("sound");
        assert_eq!(quick.usual_scale(), Scale::Quick);
        assert_eq!(quick.clone().scaled(Scale::Whole).points().len(), 6);
        let quick = quick.scaled(Scale::Quick);
        assert_eq!((quick.points().len(), quick.seeds), (3, 2));
    }

    #[test]
    fn the_verify_scale_is_the_quick_one_where_there_is_none() {
        let quick = SMALL.to_string() + "[quick]\nseeds = 2\n";
        let seeds = |text: &str| parse(text).expect("sound").scaled(Scale::Verify).seeds;
        assert_eq!((seeds(SMALL), seeds(&quick)), (3, 2));
        let verify = quick.clone() + "[verify]\nseeds = 5\n";
        assert_eq!(seeds(&verify), 5);
        let stray = quick + "[verify]\nsweep = { q = [1] }\n";
        let refused = parse(&stray).expect_err("it is not swept");
        assert!(refused.contains("[verify] sweeps q"), "{refused}");
    }

    #[test]
    fn seeds_are_looked_at_as_planned() {
        let text =
            SMALL.to_string() + "[quick]\n[verify]\nlooks = [4, 8]\n[stopping]\nlooks = [2, 6]\n";
        let looks = |scale| parse(&text).expect("sound").scaled(scale).looks();
        assert_eq!(looks(Scale::Whole), [2, 6]);
        assert_eq!(looks(Scale::Quick), [2, 6]);
        assert_eq!(looks(Scale::Verify), [4, 8]);
        // It has a number of seeds of its own.
        assert_eq!(looks(Scale::Short), [1]);
        assert_eq!(parse(SMALL).expect("sound").looks(), [3]);
        for wrong in ["[6, 6]", "[]", "[0, 2]", "[2, 1]", "[1, 20000]", "3"] {
            let text = text.replace("[2, 6]", wrong);
            let refused = parse(&text).expect_err(wrong);
            assert!(
                refused.contains("[stopping]: looks are rising"),
                "{refused}"
            );
        }
    }

    #[test]
    fn printed_numbers_have_claims() {
        const OVER: &str = "over = \"second_s\"\n";
        let printed = |claim: &str, more: &str| {
            let head = "[[printed]]\nwhat = \"w\"\nsource = \"IDO, table 1\"\nvalue = 2.0";
            let text =
                format!("{SMALL}{head}\nmetric = \"rebuild_s\"\nclaim = \"{claim}\"\n{more}");
            parse(&text).map(|mut scenario| scenario.printed.remove(0))
        };
        let all = ["sign", "order", "factor", "equal", "value"];
        for claim in all {
            let more = if claim == "value" { "" } else { OVER };
            assert_eq!(printed(claim, more).expect(claim).claim.name(), claim);
        }
        assert!(printed("guess", "").is_err());
        let more = format!("{OVER}headline = true\nnote = \"n\"");
        let line = printed("equal", &more).expect("sound");
        assert!(line.headline && line.note == "n");
    }

    #[test]
    fn paths_are_of_the_files_folder_wherever_a_scenario_names_them() {
        let own = "\"trace:own.spc\"";
        let text = SMALL
            .replace("\"x\"", own)
            .replace("[\"x\"]", &format!("[{own}]"));
        let text = format!(
            "{text}
            [quick]
            sweep = {{ d = [{own}] }}
            [[compare]]
            name = \"n\"
            metric = \"rebuild_s\"
            vary = \"d\"
            of = {own}
            to = {own}
            at = {{ d = {own} }}
            [[printed]]
            what = \"w\"
            source = \"IDO, table 1\"
            value = 2.0
            claim = \"sign\"
            metric = \"rebuild_s\"
            between = {{ vary = \"d\", of = {own}, to = {own}, with = {{ d = [{own}, {own}] }} }}
            at = {{ d = {own} }}
            [[figure]]
            name = \"f\"
            kind = \"curve\"
            title = \"t\"
            at = {{ d = {own} }}"
        );
        // Unchecked: what is varied cannot be held as well.
        let mut scenario: Scenario = toml::from_str(&text).expect("all keys are there");
        scenario.with_traces_in(Path::new("there"));
        let shown = format!("{scenario:?}");
        assert_eq!(
            shown.matches("own.spc").count(),
            text.matches("own.spc").count()
        );
        assert!(!shown.contains("trace:own.spc"), "{shown}");
    }

    #[test]
    fn the_folder_of_the_runs_is_no_scenarios() {
        let named = |name: &str| parse(&SMALL.replace("\"small\"", &format!("{name:?}")));
        assert!(named("runs").expect_err("it is taken").contains("runs"));
        assert!(named("runs-2").is_ok());
    }

    #[test]
    fn all_missing_keys_are_named_at_once() {
        let refused = |text: &str| parse(text).expect_err("keys are missing");
        assert_eq!(
            refused("name = \"x\"\n[fixed]\n\"a.b\" = { note = \"n\" }\n\"a.c\" = { value = 1 }"),
            "the scenario lacks title, question, seeds, table, value of \"a.b\", origin of \"a.b\", origin of \"a.c\""
        );
        let levels = parse(named("levels").expect("built in")).expect("sound");
        let mut point = levels.points().remove(0);
        point.retain(|path, _| !path.starts_with("capacity.") && path != "array.drive");
        let refused = settings::<super::super::cell::Settings>(&point, "array.level");
        assert_eq!(
            refused.expect_err("four are missing"),
            "neither [fixed] nor [sweep] has array.drive, capacity.depth, capacity.warm_up_s, capacity.measure_s"
        );
    }

    #[test]
    fn all_mistakes_of_a_file_are_named_at_once() {
        let text = r#"
            name = "Many"
            question = "q"
            seeds = 0
            sedes = 3
            table = []
            [fixed]
            "array.level" = { value = "raid5", origin = "guess" }
            "array.members" = { value = 4, orgin = "paper" }
            "array.chunk_kib" = { value = 64, origin = 7 }
            "array.drvie" = { value = "x", origin = "paper" }
            "workload.load" = 3
            [sweep]
            "array.member_mib" = []
            "array.level" = ["raid5", "raid6", "raid5"]
            "colour" = [1]
            [short]
            fixd = 1
            sweep = { "rebuild.throttle" = [] }
        "#;
        let refused = parse_of::<super::super::cell::Settings>(text).expect_err("all is wrong");
        for mistake in [
            "the scenario lacks title, origin of \"array.members\"",
            "there is no key 'sedes'; the nearest is seeds",
            "there is no key 'orgin' of \"array.members\"; the nearest is origin",
            "\"Many\" is not a name",
            "0 seeds",
            "array.level: there is no value 'guess'; there are paper, kernel, assumed",
            "array.chunk_kib: ",
            "workload.load is not as { value = ",
            "the sweep of array.member_mib is empty",
            "the sweep of array.level has raid5 twice",
            "array.level is both fixed and swept",
            "there is no key 'fixd' of [short]; the nearest is fixed",
            "neither [fixed] nor [sweep] has array.write_hole, array.drive,",
            "capacity.depth, capacity.warm_up_s, capacity.measure_s",
            "there is no parameter 'array.drvie'; the nearest is array.drive",
            "there is no parameter 'colour'",
        ] {
            assert!(refused.contains(mistake), "{mistake}:\n{refused}");
        }
        for scale in SMALLER {
            let of = "fixed = { \"q\" = 1 }\nsweep = { d = [], \"a.b\" = [1, 1], c = [90, 9e1] }";
            let (before, _) = SMALL.split_once("[short]").expect("a part");
            let text = format!("{before}[{scale}]\n{of}");
            let refused = parse(&text).expect_err(scale);
            for mistake in [
                "fixes q, which the scenario does not",
                "sweeps a.b, which the scenario does not",
                "sweep of d is empty",
                "sweep of a.b has 1 twice",
                "sweep of c has 90 twice",
            ] {
                assert!(refused.contains(mistake), "{mistake}:\n{refused}");
            }
        }
    }

    #[test]
    fn every_built_in_scenario_is_sound() {
        for name in names() {
            let scenario = parse(named(name).expect("listed")).expect(name);
            assert_eq!(scenario.name, name);
            let offline = scenario.fixed.get("workload.source");
            let offline = offline.is_some_and(|source| source.value.to_string() == "none");
            match offline {
                true => assert_eq!(scenario.seeds, 1, "{name}: nothing is random"),
                false => assert!(scenario.seeds >= 10, "{name}: paired seeds are ten or more"),
            }
        }
    }
}
