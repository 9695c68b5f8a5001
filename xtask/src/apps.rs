//! `xtask apps`: the benchmarks of the S2-RAID paper's figure 7 on what users run, while a member is rebuilt.
//!
//! A file system lies on an array of nine drives of 7200 rpm, which `sim-disk` serves in real time from files. PostgreSQL
//! with pgbench, or PostMark, works on it; then a member fails. Each run is kept as JSON below `target/apps`, so the
//! command goes on where it was interrupted. docs/explanation/performance.md has what came of it.

mod array;
mod attach;
mod cell;
mod limit;
mod pgbench;
mod plan;
mod postgres;
mod postmark;
mod report;
mod results;
mod tools;
mod undo;

use cell::Setting;
use plan::{Cell, FULL, QUICK, Scale, Workload, cells, every_cell};
use report::Run;
use results::Figures;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use tools::{Outcome, first_line_of, text_error, write};

pub const USAGE: &str = "apps [--quick] [--repetitions N] [--report] [--only NAME]...";

/// What was asked for.
struct Asked {
    scale: &'static Scale,
    repetitions: u32,
    patterns: Vec<String>,
    /// Measure nothing.
    report_only: bool,
}

pub fn run(root: &Path, arguments: &[&str]) -> ExitCode {
    let done = parse(arguments).and_then(|asked| measure(root, &asked));
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("apps: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[&str]) -> Outcome<Asked> {
    let mut asked = Asked {
        scale: &FULL,
        repetitions: FULL.repetitions,
        patterns: Vec::new(),
        report_only: false,
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match *argument {
            "--quick" => (asked.scale, asked.repetitions) = (&QUICK, QUICK.repetitions),
            "--report" => asked.report_only = true,
            "--only" => {
                let name = rest.next().ok_or("--only needs a name")?;
                asked.patterns.push((*name).to_string());
            }
            "--repetitions" => {
                let count = rest.next().and_then(|word| word.parse().ok());
                asked.repetitions = count
                    .filter(|count| (1..=100).contains(count))
                    .ok_or("--repetitions needs a number from 1 to 100")?;
            }
            other => return Err(format!("unknown argument {other}; usage: {USAGE}")),
        }
    }
    Ok(asked)
}

fn measure(root: &Path, asked: &Asked) -> Outcome<ExitCode> {
    let chosen = cells(&asked.patterns, asked.repetitions);
    if chosen.is_empty() {
        return Err(format!("no run's name contains {:?}", asked.patterns));
    }
    let folder = root.join("target/apps").join(asked.scale.name);
    fs::create_dir_all(&folder).map_err(text_error(&folder))?;
    let mut failures = 0;
    if !asked.report_only {
        install(root);
        let (able, unable): (Vec<Cell>, Vec<Cell>) = chosen
            .iter()
            .partition(|cell| lacking(cell.workload).is_empty());
        for cell in &unable {
            let why = lacking(cell.workload).join("; ");
            println!("skipped {}: needs {why}", cell.name());
        }
        let setting = setting(root, asked.scale, &folder)?;
        failures = run_all(&setting, &folder, asked, &able);
        println!(
            "{} measured, {failures} failed, {} skipped",
            able.len() - failures,
            unable.len()
        );
    }
    report(root, &folder, asked)?;
    Ok(match failures {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// What can be installed is; what is then missing is reported for each run.
fn install(root: &Path) {
    // A kernel without the module has no such client.
    let _ = tools::run("modprobe -q nbd", &[]);
    let needs = ["--optional", "nbdfuse", "postmark", "pg_ctlcluster"];
    let script = root.join(".ci/need");
    let _ = Command::new(script).args(needs).status();
}

fn lacking(workload: Workload) -> Vec<&'static str> {
    let postmark = workload == Workload::PostMark;
    tools::lacking(!postmark, postmark)
}

fn setting<'a>(root: &Path, scale: &'a Scale, folder: &Path) -> Outcome<Setting<'a>> {
    let binary = crate::md::binary()?;
    if !binary.is_file() {
        return Err(format!("{} is not there: make build", binary.display()));
    }
    Ok(Setting {
        scale,
        binary,
        programs: tools::postgres_folder().unwrap_or_default(),
        scripts: root.join("xtask/src/apps"),
        store: folder.join("prepared"),
    })
}

/// Runs what has no results yet. Gives the number of runs that failed.
fn run_all(setting: &Setting<'_>, folder: &Path, asked: &Asked, chosen: &[Cell]) -> usize {
    let mut failures = 0;
    for (nth, cell) in chosen.iter().enumerate() {
        let path = folder.join(format!("{}.json", cell.name()));
        if path.is_file() {
            continue;
        }
        // It takes minutes: a sign of life.
        eprintln!("{} of {}: {}", nth + 1, chosen.len(), cell.name());
        let figures = cell::run(setting, cell).and_then(|mut figures| {
            describe(&mut figures, cell, asked);
            figures.save(&path)
        });
        if let Err(error) = figures {
            failures += 1;
            println!("FAILED {}: {error}", cell.name());
        }
        let over = chosen[nth + 1..]
            .iter()
            .all(|later| later.workload != cell.workload);
        if over {
            forget(setting, cell.workload);
        }
    }
    failures
}

/// Prepared members of a workload take gigabytes at the full scale.
fn forget(setting: &Setting<'_>, workload: Workload) {
    for layout in [plan::Layout::Flat, plan::Layout::Skewed] {
        // It is not there if no run needed it.
        let _ = fs::remove_dir_all(cell::prepared(setting, workload, layout));
    }
}

/// What the figures are of.
fn describe(figures: &mut Figures, cell: &Cell, asked: &Asked) {
    let scale = asked.scale;
    let command = format!(
        "cargo run -p xtask -- apps{} --only {}",
        if scale.name == QUICK.name {
            " --quick"
        } else {
            ""
        },
        cell.name()
    );
    figures.text("command", &command);
    figures.text("workload", cell.workload.name());
    figures.text("scheme", cell.scheme.name);
    figures.text("scale", scale.name);
    figures.text("drive", array::DRIVE);
    figures.text("data", "synthetic");
    figures.text("version", &first_line_of("git describe --always --dirty"));
    figures.text("date", &first_line_of("date -u +%Y-%m-%dT%H:%MZ"));
    figures.text("machine", &machine());
    figures.number("repetition", f64::from(cell.repetition));
    figures.number("member_mib", f64::from(scale.member_mib));
    figures.number("memory_mib", f64::from(scale.memory_mib));
}

fn machine() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("?", |line| line.trim_start_matches(['\t', ':', ' ']));
    let count = first_line_of("nproc");
    format!("{count} x {model}, {}", first_line_of("uname -sr"))
}

/// Prints the tables of what is there, and leaves them next to the results.
fn report(root: &Path, folder: &Path, asked: &Asked) -> Outcome<()> {
    let mut runs = Vec::new();
    for cell in every_cell(&asked.patterns, asked.repetitions) {
        let figures = Figures::load(&folder.join(format!("{}.json", cell.name())))?;
        runs.extend(figures.map(|figures| Run {
            workload: cell.workload,
            scheme: cell.scheme,
            repetition: cell.repetition,
            figures,
        }));
    }
    let text = report::markdown(&runs);
    println!("{text}");
    let objects: Vec<String> = runs
        .iter()
        .map(|run| run.figures.json().trim().to_string())
        .collect();
    write(&folder.join("report.md"), &text)?;
    write(
        &folder.join("report.json"),
        &format!("[\n{}\n]\n", objects.join(",\n")),
    )?;
    let shown = folder.strip_prefix(root).unwrap_or(folder);
    println!(
        "{} runs of {}: {}",
        runs.len(),
        asked.scale.name,
        shown.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_choose_scale_and_runs() {
        let asked = parse(&["--quick", "--only", "tpcc", "--repetitions", "5"]).expect("known");
        assert_eq!((asked.scale.name, asked.repetitions), ("quick", 5));
        assert_eq!(asked.patterns, ["tpcc"]);
        assert!(parse(&["--quik"]).is_err());
        assert!(parse(&["--repetitions", "0"]).is_err());
        assert!(parse(&["--only"]).is_err());
    }
}
