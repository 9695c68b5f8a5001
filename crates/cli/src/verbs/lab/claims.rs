//! `lab verify`, `lab papers`: the numbers that papers print, run again and judged.

use crate::failure::{Failure, Outcome as Result, failed_at};
use crate::print::terminal::{Progress, out, outln, warn};
use crate::verbs::lab::cache_sim::TRACES;
use crate::verbs::lab::experiments::{ScaleName, run_all, some_threads, threads_or_cores};
use crate::verbs::lab::provenance::{given_date, provenance};
use crate::verbs::lab::under_way;
use clap::Args;
use restripe_lab::cache::grid;
use restripe_lab::experiment::cell::Cell;
use restripe_lab::experiment::runner::Failed;
use restripe_lab::experiment::scenario::Point;
use restripe_lab::nearest;
use restripe_lab::papers::claims::{Claims, Line, Planned, Runs, Which};
use restripe_lab::papers::document;
use restripe_lab::papers::former::{Former, Seconds, written};
use restripe_lab::papers::inventory::{self, Inventory};
use restripe_lab::replay::facts::Log;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Columns of a table.
const WIDTH: usize = 110;

/// Which papers, and where runs are kept.
#[derive(Args, Debug)]
pub(crate) struct Papers {
    /// Papers: IDO, McPod, VDF, S2-RAID, RERAID [default: all]
    #[arg(value_name = "PAPER")]
    pub papers: Vec<String>,
    /// Folder for runs
    #[arg(long, value_name = "FOLDER", default_value = "lab")]
    pub folder: PathBuf,
    /// Folder of the traces that experiments with caches read
    #[arg(long, value_name = "FOLDER", default_value = TRACES)]
    pub traces: PathBuf,
    /// Number of threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = some_threads())]
    pub threads: Option<usize>,
    /// Run again even if results are stored
    #[arg(long)]
    pub fresh: bool,
}

#[derive(Args, Debug)]
#[command(
    after_help = "A claim holds, fails, or is undecided; see \"How results are judged\" in docs/reference/lab.md.
Exit status: 0 if every claim was run, whatever its verdict; 1 if one could not be run.

Example: restripe lab verify IDO"
)]
pub(crate) struct LabVerify {
    #[command(flatten)]
    pub papers: Papers,
    /// Scale of the experiments: whole is the papers' own size, hours [default: verify]
    #[arg(long, value_enum, value_name = "SCALE")]
    pub scale: Option<ScaleName>,
    /// List the claims with the number of runs that each takes, and run nothing
    #[arg(long)]
    pub list: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "list")]
    pub json: bool,
    /// Show what another run said of the same claims: a file that lab verify --json wrote
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "list"])]
    pub against: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(
    after_help = "The document is written to standard output. The first time this takes hours; runs with stored results are
not repeated.

Example: restripe lab papers > papers.md"
)]
pub(crate) struct LabPapers {
    #[command(flatten)]
    pub papers: Papers,
    /// Scale of the experiments: whole, quick, verify or short [default: quick where a scenario has it]
    #[arg(long, value_enum, value_name = "SCALE")]
    pub scale: Option<ScaleName>,
    /// Show what another run said of the same claims: a file that lab verify --json wrote
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
}

pub(crate) fn verify(verb: &LabVerify) -> Result {
    let which = Which::Headlines(verb.scale.map(ScaleName::scale));
    let former = verb.against.as_deref().map(former).transpose()?;
    let inventories = chosen(&verb.papers.papers)?;
    let mut papers = Vec::new();
    for inventory in &inventories {
        papers.push(claims(&inventory.paper, which)?);
    }
    if verb.list {
        list(&papers);
        return Ok(());
    }
    under_way::begin(&verb.papers.folder, verb.papers.fresh)?;
    let mut lines: Vec<Line> = Vec::new();
    let mut took = Seconds::new();
    for (inventory, claims) in inventories.iter().zip(&mut papers) {
        let begun = Instant::now();
        lines.extend(verb.papers.run(claims)?);
        took.insert(inventory.paper.clone(), begun.elapsed().as_secs());
    }
    if given_date().is_some() {
        took.clear();
    }
    if verb.json {
        let scale = verb.scale.unwrap_or(ScaleName::Verify).name();
        let text = serde_json::to_string_pretty(&written(&lines, scale, &provenance(), &took))
            .map_err(|e| Failure::new(format!("the claims cannot be written: {e}")))?;
        outln!("{text}");
    } else {
        out!(
            "{}",
            document::table(&lines, former.as_ref()).text_within(WIDTH)
        );
        outln!("{}", document::summary(&lines));
    }
    let failed = papers.iter().any(|claims| !claims.failures.is_empty());
    match failed || lines.iter().any(|line| !line.is_run()) {
        true => Err(Failure::silent(1)),
        false => Ok(()),
    }
}

fn list(papers: &[Claims]) {
    let lines: Vec<Planned> = papers.iter().flat_map(Claims::planned).collect();
    out!("{}", document::plan(&lines).text_within(WIDTH));
    let runs = papers.iter().map(Claims::runs);
    let sum = runs.fold(0..0, |sum, runs| sum.start + runs.start..sum.end + runs.end);
    outln!(
        "{} claims; {} runs, since claims share points",
        lines.len(),
        document::runs(&sum)
    );
}

/// The run that a file holds.
fn former(path: &Path) -> std::result::Result<Former, Failure> {
    let failed = failed_at("the claims cannot be read", path);
    let text = fs::read_to_string(path).map_err(failed)?;
    let wrong = |error| Failure::new(format!("not written by lab verify --json: {error}"));
    Former::read(&text).map_err(|error| wrong(error).at(path.display()))
}

pub(crate) fn papers(verb: &LabPapers) -> Result {
    let which = Which::All(verb.scale.map(ScaleName::scale));
    let former = verb.against.as_deref().map(former).transpose()?;
    let inventories = chosen(&verb.papers.papers)?;
    under_way::begin(&verb.papers.folder, verb.papers.fresh)?;
    let mut sections = String::new();
    for inventory in &inventories {
        let mut claims = claims(&inventory.paper, which)?;
        let lines = verb.papers.run(&mut claims)?;
        sections += &document::markdown(inventory, &lines, former.as_ref());
    }
    out!(
        "{}",
        document::head(&provenance(), &command(verb), former.as_ref())
    );
    out!("{}", sections.trim_end());
    outln!("");
    Ok(())
}

/// The command that writes the same document.
fn command(verb: &LabPapers) -> String {
    let mut command = String::from("restripe lab papers");
    for paper in &verb.papers.papers {
        command += &format!(" {paper}");
    }
    if let Some(scale) = verb.scale {
        command += &format!(" --scale {}", scale.name());
    }
    if let Some(file) = &verb.against {
        command += &format!(" --against {}", file.display());
    }
    command
}

/// The papers of these names, in whatever case; all of none.
fn chosen(names: &[String]) -> Result<Vec<Inventory>> {
    let all = inventory::all().map_err(Failure::new)?;
    for name in names {
        if !all.iter().any(|one| one.paper.eq_ignore_ascii_case(name)) {
            let known = all.iter().map(|one| one.paper.as_str());
            return Err(Failure::usage(nearest::unknown("paper", name, known)));
        }
    }
    let wanted = |one: &Inventory| {
        let named = |name: &String| one.paper.eq_ignore_ascii_case(name);
        names.is_empty() || names.iter().any(named)
    };
    Ok(all.into_iter().filter(wanted).collect())
}

fn claims(paper: &str, which: Which) -> Result<Claims> {
    Claims::of(paper, which).map_err(Failure::new)
}

impl Papers {
    fn run(&self, claims: &mut Claims) -> Result<Vec<Line>> {
        let threads = threads_or_cores(self.threads);
        let runs = Here {
            folder: &self.folder,
            traces: &self.traces,
            threads,
            fresh: self.fresh,
        };
        let lines = claims.run(&runs).map_err(under_way::failure)?;
        for (scenario, error) in &claims.failures {
            warn(format_args!("{scenario} could not be run: {error}"));
        }
        Ok(lines)
    }
}

/// Runs on this machine's threads.
struct Here<'a> {
    folder: &'a Path,
    traces: &'a Path,
    threads: usize,
    fresh: bool,
}

impl Runs for Here<'_> {
    fn arrays(&self, scenario: &str, cells: &[Cell]) -> std::result::Result<Vec<Log>, Failed> {
        run_all(scenario, cells, self.folder, self.threads, self.fresh)
    }

    fn caches(
        &self,
        scenario: &str,
        points: Vec<Point>,
        seeds: Range<u64>,
    ) -> std::result::Result<Vec<grid::Cell>, String> {
        let line = Mutex::new(Progress::new());
        let progress = |done: usize, all: usize| {
            let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
            line.show(&format!("{scenario}: {done} of {all} passes"));
        };
        grid::run_at(points, seeds, self.traces, self.threads, &progress)
    }
}
