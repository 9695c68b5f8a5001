//! `lab list`, `lab run`, `lab report`, `lab compare`: experiments from scenarios, and what came of them.

use crate::failure::{Failure, Outcome as Result};
use crate::terminal::Progress as Line;
use crate::units::seconds;
use clap::{Args, ValueEnum};
use restripe_lab::experiment::cell::{Cell, Contents};
use restripe_lab::experiment::outcome::{Outcome, Run};
use restripe_lab::experiment::runner::{Progress, Runner};
use restripe_lab::experiment::scenario::{self, Comparison, Point, Scale, Scenario, Value};
use restripe_lab::experiment::{figure, metric, page};
use restripe_lab::generate::preset;
use restripe_lab::nearest;
use restripe_lab::report::Table;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

/// Which experiment, and where its runs are kept.
#[derive(Args, Debug)]
pub struct Experiment {
    /// A scenario by name, or a TOML file
    pub scenario: String,
    /// How much of it: the whole, what answers in minutes, or seconds of it [default: quick, if the scenario has that]
    #[arg(long, value_enum, value_name = "SCALE")]
    pub scale: Option<ScaleName>,
    /// As --scale short
    #[arg(long, conflicts_with = "scale")]
    pub short: bool,
    /// So many seeds in place of the scenario's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub seeds: Option<u64>,
    /// A parameter in place of the scenario's, fixed or swept, as in workload.load=0.5; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Where runs and reports are kept
    #[arg(long, value_name = "FOLDER", default_value = "lab")]
    pub folder: PathBuf,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScaleName {
    Whole,
    Quick,
    Short,
}

impl Experiment {
    fn scale(&self, scenario: &Scenario) -> Scale {
        match (self.short, self.scale) {
            (true, _) | (_, Some(ScaleName::Short)) => Scale::Short,
            (_, Some(ScaleName::Quick)) => Scale::Quick,
            (_, Some(ScaleName::Whole)) => Scale::Whole,
            (_, None) => scenario.usual_scale(),
        }
    }
}

#[derive(Args, Debug)]
#[command(
    after_help = "Runs are kept by a hash of their parameters and of this program: what was run is not run again, and an
experiment that was interrupted goes on where it was.

Example: restripe lab run rebuild-cost --short"
)]
pub struct LabRun {
    #[command(flatten)]
    pub experiment: Experiment,
    /// Threads [default: one a core]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Run again what was kept
    #[arg(long)]
    pub fresh: bool,
    /// Sweep each fixed parameter that has a range alone, one after another
    #[arg(long)]
    pub sensitivity: bool,
}

#[derive(Args, Debug)]
pub struct LabReport {
    #[command(flatten)]
    pub experiment: Experiment,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Example: restripe lab compare rebuild-cost --short --metric during.mean_ms \\
           --vary rebuild.min_mb_s --of 50 --to 1"
)]
pub struct LabCompare {
    #[command(flatten)]
    pub experiment: Experiment,
    /// What is compared, as during.p95_ms or rebuild_s
    #[arg(long)]
    pub metric: String,
    /// The swept parameter whose values are compared
    #[arg(long, value_name = "PATH")]
    pub vary: String,
    /// The value whose metric is divided
    #[arg(long, value_name = "VALUE")]
    pub of: String,
    /// The value whose metric divides
    #[arg(long, value_name = "VALUE")]
    pub to: String,
}

pub fn list() -> Result {
    let mut table = Table::new(["scenario", "whole", "quick", "short", "what"]);
    for name in scenario::names() {
        let scenario = load(name)?;
        let runs = |scenario: &Scenario| scenario.points().len() as u64 * scenario.seeds;
        let title = scenario.title.clone();
        let at = |scale| runs(&scenario.clone().scaled(scale)).to_string();
        let quick = at(scenario.usual_scale());
        table.row([
            name.into(),
            at(Scale::Whole),
            quick,
            at(Scale::Short),
            title,
        ]);
    }
    print!("{}", table.text());
    Ok(())
}

pub fn run(verb: &LabRun) -> Result {
    let scenario = prepared(&verb.experiment)?;
    let threads = match verb.threads {
        Some(threads) => threads,
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    if !verb.sensitivity {
        return one(&verb.experiment.folder, &scenario, threads, verb.fresh);
    }
    for (path, mut swept) in scenario.sensitivities() {
        swept.name = format!("{}-{}", scenario.name, path.replace(['.', '_'], "-"));
        swept.title = format!("{}: {path} swept alone", scenario.title);
        one(&verb.experiment.folder, &swept, threads, verb.fresh)?;
    }
    Ok(())
}

fn one(folder: &Path, scenario: &Scenario, threads: usize, fresh: bool) -> Result {
    let runs = gather(scenario, folder, threads, fresh)?;
    let outcome = Outcome::new(scenario, runs);
    print!("{}", outcome.table().text());
    tell(
        "Comparisons, seed by seed",
        &outcome.comparison_table(&outcome.compared()),
    );
    tell("Beside what was printed", &outcome.beside_table());
    write_all(&folder.join(&scenario.name), &outcome)
}

fn tell(title: &str, table: &Table) {
    if !table.rows.is_empty() {
        print!("\n{title}\n{}", table.text());
    }
}

/// Everything anew from the runs that are kept; what is missing is run.
pub fn report(verb: &LabReport) -> Result {
    let scenario = prepared(&verb.experiment)?;
    let folder = &verb.experiment.folder;
    eprintln!(
        "runs that are not kept in {} are run first",
        folder.join("runs").display()
    );
    let runs = gather(&scenario, folder, 1, false)?;
    write_all(&folder.join(&scenario.name), &Outcome::new(&scenario, runs))
}

pub fn compare(verb: &LabCompare) -> Result {
    let scenario = prepared(&verb.experiment)?;
    if !metric::known(&verb.metric) {
        return Err(Failure::usage(format!("{:?} is no metric", verb.metric))
            .hint("docs/lab.md lists them"));
    }
    let Some(values) = scenario.sweep.get(&verb.vary) else {
        let swept: Vec<&str> = scenario.sweep.keys().map(String::as_str).collect();
        let hint = format!("it sweeps {}", swept.join(", "));
        return Err(
            Failure::usage(format!("the scenario does not sweep {:?}", verb.vary)).hint(hint),
        );
    };
    let find = |text: &String| {
        let found = values.iter().find(|value| value.to_string() == *text);
        found.cloned().ok_or_else(|| {
            let all: Vec<String> = values.iter().map(Value::to_string).collect();
            Failure::usage(format!("{text:?} is no value of {}", verb.vary)).hint(all.join(", "))
        })
    };
    let comparison = Comparison {
        name: format!("{}: {} over {}", verb.metric, verb.of, verb.to),
        metric: verb.metric.clone(),
        vary: verb.vary.clone(),
        of: find(&verb.of)?,
        to: find(&verb.to)?,
        at: Point::default(),
    };
    let runs = gather(&scenario, &verb.experiment.folder, 1, false)?;
    let outcome = Outcome::new(&scenario, runs);
    print!(
        "{}",
        outcome
            .comparison_table(&outcome.compare(&comparison))
            .text()
    );
    Ok(())
}

// -------------------------------------------------------------------------------------------------------- scenarios

pub fn load(name: &str) -> Result<Scenario> {
    let (text, at) = match scenario::named(name) {
        Some(text) => (text.to_string(), name.to_string()),
        None => {
            let unknown = |error| {
                let hint = nearest::unknown("scenario", name, scenario::names());
                Failure::usage(format!("neither a scenario nor a file: {error}"))
                    .at(name)
                    .hint(hint)
            };
            (fs::read_to_string(name).map_err(unknown)?, name.to_string())
        }
    };
    let scenario = scenario::parse(&text).map_err(|error| Failure::usage(error).at(&at))?;
    if let Some(name) = Outcome::unknown_metrics(&scenario).first() {
        return Err(Failure::usage(format!("{name:?} is no metric")).at(&at));
    }
    for one in &scenario.figures {
        figure::check(one).map_err(|error| Failure::usage(error).at(&at))?;
    }
    Ok(scenario)
}

fn prepared(experiment: &Experiment) -> Result<Scenario> {
    let mut scenario = load(&experiment.scenario)?;
    let scale = experiment.scale(&scenario);
    scenario = scenario.scaled(scale);
    scenario.seeds = experiment.seeds.unwrap_or(scenario.seeds);
    for set in &experiment.set {
        let (path, value) = set
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("{set:?} is not PATH=VALUE")))?;
        place(&mut scenario, path, value_of(value))?;
    }
    Ok(scenario)
}

fn value_of(text: &str) -> Value {
    if let Ok(flag) = text.parse() {
        return Value::Flag(flag);
    }
    if let Ok(whole) = text.parse() {
        return Value::Whole(whole);
    }
    text.parse()
        .map_or_else(|_| Value::Text(text.into()), Value::Real)
}

/// A file in place of a workload's name is a trace that somebody forgot to call one.
fn check_source(value: &Value) -> Result {
    let Value::Text(source) = value else {
        return Ok(());
    };
    if preset::named(source).is_some() || !Path::new(source).is_file() {
        return Ok(());
    }
    let what = "this file is not the name of a workload";
    let hint = format!("to replay it, say workload.source=trace:{source}");
    Err(Failure::usage(what).at(source).hint(hint))
}

fn place(scenario: &mut Scenario, path: &str, value: Value) -> Result {
    if path == "workload.source" {
        check_source(&value)?;
    }
    if let Some(values) = scenario.sweep.get_mut(path) {
        *values = vec![value];
        return Ok(());
    }
    if let Some(fixed) = scenario.fixed.get_mut(path) {
        fixed.value = value;
        return Ok(());
    }
    let known: Vec<&str> = scenario
        .fixed
        .keys()
        .chain(scenario.sweep.keys())
        .map(String::as_str)
        .collect();
    Err(Failure::usage(format!("the scenario has no parameter {path:?}")).hint(known.join(", ")))
}

// -------------------------------------------------------------------------------------------------------------- runs

/// A cell a point and seed, the seeds of a point together.
pub fn cells(scenario: &Scenario) -> Result<Vec<Cell>> {
    let (mut cells, mut contents) = (Vec::new(), Contents::default());
    for point in scenario.points() {
        for seed in 1..=scenario.seeds {
            let cell = Cell::new(&point, seed, &mut contents);
            let unsound = |error: String| {
                let failure = Failure::usage(error.trim_end()).at(&scenario.name);
                failure.hint("docs/lab.md lists what a scenario sets")
            };
            cells.push(cell.map_err(unsound)?);
        }
    }
    Ok(cells)
}

fn gather(scenario: &Scenario, folder: &Path, threads: usize, fresh: bool) -> Result<Vec<Run>> {
    let cells = cells(scenario)?;
    let shown = Mutex::new((Line::new(), Instant::now(), ""));
    let show = |progress: Progress| {
        // A line of progress is not worth an error.
        let Ok(mut guard) = shown.lock() else { return };
        let (line, since, what) = &mut *guard;
        if *what != progress.what {
            (*since, *what) = (Instant::now(), progress.what);
        }
        line.show(&told(progress, since.elapsed().as_secs()));
    };
    let runner = Runner {
        threads,
        cache: Some(folder.join("runs")),
        fresh,
        progress: &show,
    };
    let logs = runner.run(&cells).map_err(Failure::new)?;
    drop(shown);
    let run = |(cell, log)| Run { cell, log };
    Ok(cells.into_iter().zip(logs).map(run).collect())
}

/// The estimate takes the runs still to be done to be like those that were.
fn told(progress: Progress, elapsed: u64) -> String {
    let Progress {
        what,
        done,
        total,
        cached,
    } = progress;
    let run = (done - cached) as u64;
    let left = (total - done) as u64;
    let rest = match run {
        0 => String::new(),
        run => format!(", about {} left", seconds(elapsed * left / run)),
    };
    format!("{what}: {done} of {total}, {cached} from before{rest}")
}

fn write_all(folder: &Path, outcome: &Outcome<'_>) -> Result {
    let figures = figure::all(outcome);
    let mut files = vec![
        ("table.txt".to_string(), outcome.table().text()),
        ("runs.csv".to_string(), outcome.csv()),
        ("runs.jsonl".to_string(), outcome.json_lines()),
        ("report.html".to_string(), page::report(outcome, &figures)),
    ];
    files.extend(
        figures
            .into_iter()
            .map(|(name, svg)| (format!("{name}.svg"), svg)),
    );
    fs::create_dir_all(folder).map_err(|error| unwritable(folder, &error))?;
    for (name, text) in &files {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| unwritable(&path, &error))?;
    }
    eprintln!("written: {}", folder.join("report.html").display());
    Ok(())
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot be written: {error}")).at(path.display())
}
