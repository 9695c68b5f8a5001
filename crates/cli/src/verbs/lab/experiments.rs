//! `lab list`, `lab run`, `lab report`, `lab compare`: experiments from scenarios, and what came of them.

use crate::failure::{Failure, Outcome as Result, failed_at};
use crate::print::terminal::{Progress as Line, out, say, warn};
use crate::units::seconds;
use crate::verbs::lab::provenance::provenance;
use crate::verbs::lab::under_way;
use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use restripe_lab::cache::grid;
use restripe_lab::experiment::cell::{Cell, Settings};
use restripe_lab::experiment::form;
use restripe_lab::experiment::outcome::{Outcome, Run};
use restripe_lab::experiment::parameters::Grouped;
use restripe_lab::experiment::runner::{Failed, Progress, RUNS, Runner};
use restripe_lab::experiment::scenario::{self, Comparison, Point, Scale, Scenario, Value};
use restripe_lab::experiment::sequential::Study;
use restripe_lab::experiment::{fair, figure, metric, page};
use restripe_lab::generate::preset;
use restripe_lab::nearest;
use restripe_lab::replay::facts::Log;
use restripe_lab::report::Table;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Which experiment, and where its runs are kept.
#[derive(Args, Debug)]
pub(crate) struct Experiment {
    /// Name of a scenario, or a TOML file
    pub scenario: String,
    /// Scale of the experiment: whole (hours), quick (minutes), verify (what `lab verify` runs) or short
    /// (seconds) [default: quick if the scenario has it, else whole]
    #[arg(long, value_enum, value_name = "SCALE")]
    pub scale: Option<ScaleName>,
    /// Same as --scale short
    #[arg(long, conflicts_with = "scale")]
    pub short: bool,
    /// Run N seeds instead of the scenario's number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub seeds: Option<u64>,
    /// Set a parameter, as in workload.load=0.5, or sweep it, as in workload.load=0.3,0.5; may be repeated
    #[arg(long, value_name = "PATH=VALUE[,VALUE]")]
    pub set: Vec<String>,
    /// Folder for runs and reports
    #[arg(long, value_name = "FOLDER", default_value = "lab")]
    pub folder: PathBuf,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScaleName {
    Whole,
    Quick,
    Verify,
    Short,
}

impl ScaleName {
    pub(crate) fn scale(self) -> Scale {
        match self {
            ScaleName::Whole => Scale::Whole,
            ScaleName::Quick => Scale::Quick,
            ScaleName::Verify => Scale::Verify,
            ScaleName::Short => Scale::Short,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            ScaleName::Whole => "whole",
            ScaleName::Quick => "quick",
            ScaleName::Verify => "verify",
            ScaleName::Short => "short",
        }
    }
}

impl Experiment {
    fn scale(&self, scenario: &Scenario) -> Scale {
        match (self.short, self.scale) {
            (true, _) => Scale::Short,
            (_, Some(name)) => name.scale(),
            (_, None) => scenario.usual_scale(),
        }
    }
}

#[derive(Args, Debug)]
#[command(
    after_help = "Results are stored under a hash of the run's parameters and of this program. A run with stored results is
not repeated, and an interrupted experiment resumes where it stopped.

Example: restripe lab run rebuild-cost --short"
)]
pub(crate) struct LabRun {
    #[command(flatten)]
    pub experiment: Experiment,
    /// Number of threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = some_threads())]
    pub threads: Option<usize>,
    /// Run again even if results are stored
    #[arg(long)]
    pub fresh: bool,
    /// Sweep each fixed parameter that has a range, one after another
    #[arg(long)]
    pub sensitivity: bool,
}

#[derive(Args, Debug)]
pub(crate) struct LabReport {
    #[command(flatten)]
    pub experiment: Experiment,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Example: restripe lab compare rebuild-cost --short --metric during.mean_ms \\
           --vary rebuild.min_mb_s --of 50 --to 1"
)]
pub(crate) struct LabCompare {
    #[command(flatten)]
    pub experiment: Experiment,
    /// The metric to compare, such as during.p95_ms or rebuild_s
    #[arg(long)]
    pub metric: String,
    /// The swept parameter whose values are compared
    #[arg(long, value_name = "PATH")]
    pub vary: String,
    /// The value whose metric is the dividend
    #[arg(long, value_name = "VALUE")]
    pub of: String,
    /// The value whose metric is the divisor
    #[arg(long, value_name = "VALUE")]
    pub to: String,
}

pub(crate) fn list() -> Result {
    let mut arrays = Table::new("scenario|whole|quick|short|what");
    for name in scenario::names() {
        arrays.row(counted(name, &load(name)?));
    }
    let mut caches = Table::new("grid of caches|whole|quick|short|what");
    for name in grid::names() {
        caches.row(counted(name, &grid::load(name).map_err(Failure::new)?));
    }
    out!("{}", arrays.text());
    out!(
        "\nCaches alone: restripe cache-sim --grid NAME\n{}",
        caches.text()
    );
    Ok(())
}

/// A scenario's name, its numbers of runs by scale, and what it is of.
fn counted(name: &str, scenario: &Scenario) -> [String; 5] {
    let at = |scale| runs(&scenario.clone().scaled(scale));
    let [whole, quick, short] = [Scale::Whole, scenario.usual_scale(), Scale::Short].map(at);
    [name.into(), whole, quick, short, scenario.title.clone()]
}

/// The number of runs: where seeds are run until claims are decided, at first and at the cap.
fn runs(scenario: &Scenario) -> String {
    let points = scenario.points().len() as u64;
    let looks = scenario.looks();
    match (looks.first(), looks.last()) {
        (Some(first), Some(last)) if first < last => {
            format!("{}-{}", points * first, points * last)
        }
        _ => (points * looks.last().copied().unwrap_or(0)).to_string(),
    }
}

pub(crate) fn run(verb: &LabRun) -> Result {
    let scenario = prepared(&verb.experiment)?;
    under_way::begin(&verb.experiment.folder, verb.fresh)?;
    let threads = threads_or_cores(verb.threads);
    if !verb.sensitivity {
        let study = Study::new(scenario.clone());
        return one(
            &verb.experiment.folder,
            &scenario,
            study,
            threads,
            verb.fresh,
        );
    }
    let sensitivities = scenario.sensitivities();
    sensitivities
        .iter()
        .try_for_each(|(_, swept)| check_points(swept))?;
    for (path, mut swept) in sensitivities {
        swept.name = format!("{}-{}", scenario.name, path.replace(['.', '_'], "-"));
        swept.title = format!("{}: sweep of {path} only", scenario.title);
        let study = match swept.printed.is_empty() {
            true => Study::new(swept.clone()),
            false => Study::of_printed(swept.clone()),
        };
        one(&verb.experiment.folder, &swept, study, threads, verb.fresh)?;
    }
    Ok(())
}

/// Reads a number of threads: one at least.
pub(crate) fn some_threads() -> impl TypedValueParser<Value = usize> {
    clap::value_parser!(u16).range(1..=10_000).map(usize::from)
}

/// As many threads as are asked for, or one for each core.
pub(crate) fn threads_or_cores(threads: Option<usize>) -> usize {
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    threads.unwrap_or_else(cores)
}

fn one(folder: &Path, scenario: &Scenario, study: Study, threads: usize, fresh: bool) -> Result {
    let runs = gather(scenario, study, folder, threads, fresh)?;
    let outcome = Outcome::new(scenario, runs);
    out!("{}", outcome.table().text());
    let compared = outcome.comparison_table(&outcome.compared());
    tell("Comparisons, seed by seed", &compared, Table::text);
    let judged = outcome.judged_table();
    let broken = |table: &Table| table.text_within(WIDTH);
    tell("Compared with the printed figures", &judged, broken);
    write_all(&folder.join(&scenario.name), &outcome)
}

/// Columns of a table with long cells.
const WIDTH: usize = 110;

fn tell(title: &str, table: &Table, text: impl Fn(&Table) -> String) {
    if !table.rows.is_empty() {
        out!("\n{title}\n{}", text(table));
    }
}

/// Everything anew from the runs that are kept; what is missing is run.
pub(crate) fn report(verb: &LabReport) -> Result {
    let scenario = prepared(&verb.experiment)?;
    let folder = &verb.experiment.folder;
    under_way::begin(folder, false)?;
    say(format_args!(
        "runs without results in {} are run first",
        folder.join("runs").display()
    ));
    let study = Study::new(scenario.clone());
    let runs = gather(&scenario, study, folder, 1, false)?;
    write_all(&folder.join(&scenario.name), &Outcome::new(&scenario, runs))
}

pub(crate) fn compare(verb: &LabCompare) -> Result {
    let scenario = prepared(&verb.experiment)?;
    if !metric::known(&verb.metric) {
        return Err(Failure::usage(format!("{:?} is not a metric", verb.metric))
            .hint("docs/reference/lab.md lists them"));
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
            Failure::usage(format!("{text:?} is not a value of {}", verb.vary)).hint(all.join(", "))
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
    under_way::begin(&verb.experiment.folder, false)?;
    let study = Study::new(scenario.clone());
    let runs = gather(&scenario, study, &verb.experiment.folder, 1, false)?;
    let outcome = Outcome::new(&scenario, runs);
    out!(
        "{}",
        outcome
            .comparison_table(&outcome.compare(&comparison))
            .text()
    );
    Ok(())
}

// -------------------------------------------------------------------------------------------------------- scenarios

pub(crate) fn load(name: &str) -> Result<Scenario> {
    let name = present_name(name);
    let built_in = scenario::named(name);
    let text = match built_in {
        Some(text) => text.to_string(),
        None => fs::read_to_string(name).map_err(|error| neither(name, &error))?,
    };
    let at = name.to_string();
    let unsound = |error: String| {
        let failure = Failure::usage(error.trim_end()).at(&at);
        failure.hint("docs/reference/lab.md lists what a scenario sets")
    };
    let mut scenario = scenario::parse_of::<Settings>(&text).map_err(unsound)?;
    if built_in.is_none() {
        scenario.with_traces_in(Path::new(name).parent().unwrap_or(Path::new("")));
    }
    if let Some(name) = Outcome::unknown_metrics(&scenario).first() {
        return Err(Failure::usage(format!("{name:?} is not a metric")).at(&at));
    }
    figure::check(&scenario).map_err(|error| Failure::usage(error).at(&at))?;
    Ok(scenario)
}

/// The present name of a scenario, with a warning about a deprecated one. A file of that name is preferred.
fn present_name(name: &str) -> &str {
    match scenario::renamed(name) {
        Some(present) if !Path::new(name).exists() => {
            warn(format_args!(
                "the scenario {name} is now called {present}; the old name is deprecated"
            ));
            present
        }
        _ => name,
    }
}

fn neither(name: &str, error: &std::io::Error) -> Failure {
    if grid::named(name).is_some() {
        let what = "this is a grid of caches, not a scenario of arrays";
        let hint = format!("run it by restripe cache-sim --grid {name}");
        return Failure::usage(what).at(name).hint(hint);
    }
    let hint = nearest::unknown("scenario", name, scenario::names());
    Failure::usage(format!("neither a scenario nor a file: {error}"))
        .at(name)
        .hint(hint)
}

fn prepared(experiment: &Experiment) -> Result<Scenario> {
    let mut scenario = load(&experiment.scenario)?;
    let scale = experiment.scale(&scenario);
    scenario = scenario.scaled(scale);
    fair::check(&scenario).map_err(Failure::usage)?;
    if let Some(seeds) = experiment.seeds {
        (scenario.seeds, scenario.stopping) = (seeds, None);
    }
    let mut said = BTreeSet::new();
    for set in &experiment.set {
        let (path, value) = set
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("{set:?} is not PATH=VALUE")))?;
        if !said.insert(path) {
            let hint = format!("--set {path}=VALUE,VALUE sweeps it");
            return Err(Failure::usage(format!("--set {path} is given twice")).hint(hint));
        }
        let values = values_of(value).into_iter();
        let values = values.map(|value| form::for_parameter(path, value));
        place(&mut scenario, path, values.collect())?;
    }
    scenario.check_sweeps().map_err(Failure::usage)?;
    check_points(&scenario)?;
    Ok(scenario)
}

/// Whether each point is one that can be run, but for what files hold.
fn check_points(scenario: &Scenario) -> Result {
    let mut points = scenario.points().into_iter();
    points.try_for_each(|point| {
        let settings = Settings::of(&point).map(drop);
        settings.map_err(|error| unsound(scenario, &error))
    })
}

/// Commas part values; in a list of traces only those before the next `trace:`, since paths may have commas.
fn values_of(text: &str) -> Vec<Value> {
    let Some(traces) = text.strip_prefix("trace:") else {
        return text.split(',').map(value_of).collect();
    };
    let paths = traces.split(",trace:");
    paths
        .map(|path| Value::Text(format!("trace:{path}")))
        .collect()
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
    let hint = format!("to replay it, use workload.source=trace:{source}");
    Err(Failure::usage(what).at(source).hint(hint))
}

/// Puts values in the place of the scenario's, or of a parameter's default where the scenario leaves it out.
fn place(scenario: &mut Scenario, path: &str, mut values: Vec<Value>) -> Result {
    if path == "workload.source" {
        values.iter().try_for_each(check_source)?;
    }
    let known = Settings::all();
    let there = scenario.sweep.contains_key(path) || scenario.fixed.contains_key(path);
    if !there && !known.iter().any(|known| known == path) {
        let names = known.iter().map(String::as_str);
        return Err(Failure::usage(nearest::unknown("parameter", path, names)));
    }
    if values.len() > 1 {
        scenario.fixed.remove(path);
    }
    if values.len() > 1 || scenario.sweep.contains_key(path) {
        scenario.sweep.insert(path.into(), values);
    } else if let Some(value) = values.pop() {
        scenario.fix(path, value);
    }
    Ok(())
}

// -------------------------------------------------------------------------------------------------------------- runs

fn unsound(scenario: &Scenario, error: &str) -> Failure {
    let failure = Failure::usage(error.trim_end()).at(&scenario.name);
    failure.hint("docs/reference/lab.md lists what a scenario sets")
}

/// A cell a point and seed, the seeds of a point together.
pub(crate) fn cells(scenario: &Scenario) -> Result<Vec<Cell>> {
    let mut study = Study::new(scenario.clone());
    let cells = study.next_look();
    let cells = cells.map_err(|error| unsound(scenario, &error))?;
    Ok(cells.unwrap_or_default())
}

fn gather(
    scenario: &Scenario,
    mut study: Study,
    folder: &Path,
    threads: usize,
    fresh: bool,
) -> Result<Vec<Run>> {
    while let Some(cells) = study
        .next_look()
        .map_err(|error| unsound(scenario, &error))?
    {
        let logs = run_all(&scenario.name, &cells, folder, threads, fresh);
        let logs = logs.map_err(under_way::failure)?;
        study.add(cells, logs);
    }
    Ok(study.into_runs())
}

/// Runs cells, with a line of progress.
pub(crate) fn run_all(
    scenario: &str,
    cells: &[Cell],
    folder: &Path,
    threads: usize,
    fresh: bool,
) -> std::result::Result<Vec<Log>, Failed> {
    let watched = Mutex::new(Watched::new(scenario, cells.len()));
    let show = |progress: Progress| {
        under_way::note(scenario, progress);
        // A line of progress is not worth an error.
        if let Ok(mut watched) = watched.lock() {
            watched.note(progress);
        }
    };
    let runner = Runner {
        threads,
        cache: Some(folder.join("runs")),
        fresh,
        progress: &show,
    };
    every(
        TICK,
        || watched.lock().map_or((), |mut it| it.show()),
        || runner.run(cells),
    )
}

/// How often the line of progress is shown while runs are under way.
const TICK: Duration = Duration::from_secs(1);

/// Does the work, and meanwhile `tick` at every interval.
fn every<T>(interval: Duration, tick: impl Fn() + Sync, work: impl FnOnce() -> T) -> T {
    let (ended, end) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(|| {
            let end = end;
            while end.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                tick();
            }
        });
        let done = work();
        drop(ended);
        done
    })
}

/// What is known of the runs under way, and the line that says it.
struct Watched {
    line: Line,
    scenario: String,
    progress: Progress,
    since: Instant,
    /// When the last run ended.
    ended: Instant,
}

impl Watched {
    fn new(scenario: &str, total: usize) -> Watched {
        Watched {
            scenario: scenario.to_string(),
            line: Line::new(),
            progress: Progress {
                what: RUNS,
                done: 0,
                total,
                cached: 0,
                kept: 0,
            },
            since: Instant::now(),
            ended: Instant::now(),
        }
    }

    fn note(&mut self, progress: Progress) {
        if self.progress.what != progress.what {
            self.since = Instant::now();
        }
        self.ended = Instant::now();
        self.progress = progress;
        self.show();
    }

    fn show(&mut self) {
        let elapsed = self.since.elapsed().as_secs();
        let running = self.ended.elapsed().as_secs();
        let line = told(self.progress, elapsed, running);
        self.line.show(&format!("{}: {line}", self.scenario));
    }
}

/// The estimate takes the runs still to be done to be like those that were.
fn told(progress: Progress, elapsed: u64, running: u64) -> String {
    let Progress {
        what,
        done,
        total,
        cached,
        ..
    } = progress;
    let run = (done - cached) as u64;
    let left = (total - done) as u64;
    let rest = match run {
        0 => String::new(),
        run => format!(
            ", about {} left",
            seconds((elapsed * left / run).saturating_sub(running))
        ),
    };
    let next = match (left, running) {
        (0, _) | (_, 0..5) => String::new(),
        _ => format!(", the next running for {}", seconds(running)),
    };
    format!("{what}: {done} of {total}, {cached} from before{rest}{next}")
}

fn write_all(folder: &Path, outcome: &Outcome<'_>) -> Result {
    let figures = figure::all(outcome);
    let mut files = vec![
        ("table.txt".to_string(), outcome.table().text()),
        ("runs.csv".to_string(), outcome.csv()),
        ("runs.jsonl".to_string(), outcome.json_lines()),
        (
            "report.html".to_string(),
            page::report(outcome, &figures, &provenance()),
        ),
    ];
    files.extend(
        figures
            .into_iter()
            .map(|picture| (format!("{}.svg", picture.name), picture.plot.alone())),
    );
    fs::create_dir_all(folder).map_err(failed_at("cannot be written", folder))?;
    for (name, text) in &files {
        let path = folder.join(name);
        fs::write(&path, text).map_err(failed_at("cannot be written", &path))?;
    }
    for figure in &outcome.scenario.figures {
        let name = format!("{}.svg", figure.name);
        if !files.iter().any(|(written, _)| *written == name) {
            remove(&folder.join(name))?;
        }
    }
    say(format_args!(
        "written: {}",
        folder.join("report.html").display()
    ));
    Ok(())
}

/// A figure of an earlier run that this one does not have: it would be taken for one of the new table.
fn remove(path: &Path) -> Result {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed_at(
            "the figure of an earlier run cannot be removed",
            path,
        )(error)),
        _ => Ok(()),
    }
}
