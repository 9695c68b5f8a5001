//! `xtask deep`: the long tests as named parts, each meant to last less than 30 minutes on two cores.
//!
//! The result of a part is recorded in `target/deep.json` with a hash of the sources it depends on. Without arguments
//! the verb runs every part that has not passed for the present sources, so that a run that was cut goes on where it
//! stopped. With arguments it runs the named parts, passed or not. `list` prints the parts and their records.

use crate::md;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Tests append a line here for what they skip.
const SKIPS: &str = "target/deep.skips";
const RECORD: &str = "target/deep.json";
const RESULTS: &str = "docs/explanation/results.md";
/// Every part depends on these.
const SOURCES: [&str; 9] = [
    ".ci",
    "Cargo.lock",
    "Cargo.toml",
    "Makefile",
    "crates",
    "docs",
    "scenarios",
    "tests",
    "xtask",
];

/// What a part runs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Work {
    /// Tests of one crate whose names contain one of these words, in their deep form.
    Tests(&'static str, &'static [&'static str]),
    /// The tables and pictures of one section of the results.
    Results(String),
    /// Comparisons with Linux md in a guest.
    Md,
}

struct Part {
    name: String,
    work: Work,
}

const TESTS: [(&str, &str, &[&str]); 13] = [
    ("swarm", "restripe-sim", &["the_swarm_keeps_every_promise"]),
    (
        "families",
        "restripe-sim",
        &[
            "arrays_made_with_a_history",
            "arrays_of_many_parities",
            "partitions_are_hosted",
        ],
    ),
    (
        "growths",
        "restripe-sim",
        &["arrays_grow_through", "arrays_are_reshaped_through"],
    ),
    ("images", "restripe-sim", &["crash_images_are_assembled"]),
    ("images-of-changes", "restripe-sim", &["crash_images_of_"]),
    (
        "surrogates",
        "restripe-sim",
        &[
            "nothing_is_lost_on_the_way",
            "nothing_is_lost_while_home_grows",
        ],
    ),
    (
        "code-caches",
        "restripe-sim",
        &["nothing_is_lost_while_writes_are_gathered"],
    ),
    (
        "code-cache-table",
        "restripe-sim",
        &["each_event_meets_a_code_cache"],
    ),
    ("planted", "restripe-sim", &["planted"]),
    ("ranges", "restripe-tier", &["ranges"]),
    ("fuzz-protocol", "restripe-io", &["fuzz"]),
    ("fuzz-traces", "restripe-lab", &["trace_fuzz"]),
    (
        "optimised",
        "restripe-cli",
        &["an_experiment_gives_the_same_bytes"],
    ),
];

pub fn run(root: &Path, wanted: &[&str]) -> ExitCode {
    match deep(root, wanted) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("deep: {error}");
            ExitCode::from(2)
        }
    }
}

fn deep(root: &Path, wanted: &[&str]) -> Result<bool, String> {
    let parts = parts(root)?;
    let mut record = Record::read(root);
    if wanted == ["list"] {
        let tree = tree(root)?;
        for part in &parts {
            println!(
                "{:<40} {}",
                part.name,
                record.state(&part.name, &tree).name()
            );
        }
        return Ok(true);
    }
    if let Some(name) = wanted
        .iter()
        .find(|name| !parts.iter().any(|part| part.name == **name))
    {
        return Err(format!(
            "{name} is not a part; `xtask deep list` prints the parts"
        ));
    }
    let tree = tree(root)?;
    let chosen = parts.iter().filter(|part| match wanted {
        [] => record.state(&part.name, &tree) != State::Passed,
        names => names.contains(&part.name.as_str()),
    });
    let chosen: Vec<&Part> = chosen.collect();
    let mut left = Vec::new();
    for part in &chosen {
        println!("== {}", part.name);
        let start = Instant::now();
        let result = part.run(root);
        record.note(part, &tree, result, start.elapsed().as_secs());
        record.write(root)?;
        if result != State::Passed {
            left.push((part.name.as_str(), result));
        }
    }
    let failed = left.iter().any(|(_, result)| *result == State::Failed);
    println!(
        "deep: {} of {} parts passed",
        chosen.len() - left.len(),
        chosen.len()
    );
    for (name, result) in &left {
        println!("  {}: make test-deep PART={name}", result.name());
    }
    Ok(!failed)
}

impl Part {
    fn run(&self, root: &Path) -> State {
        let skips = root.join(SKIPS);
        let mut command = Command::new(root.join(".ci/test"));
        command.current_dir(root);
        command
            .env("RESTRIPE_DEEP", "1")
            .env("RESTRIPE_SKIPS", &skips);
        match &self.work {
            Work::Tests(package, words) => command.args(["-p", *package, "--"]).args(*words),
            Work::Results(section) => command.env("RESTRIPE_RESULTS", section).args([
                "-p",
                "restripe-cli",
                "--",
                "the_results_are_those",
            ]),
            Work::Md if !md::has_guest(root) => return State::Skipped,
            Work::Md if md::run(root, &[]) == ExitCode::SUCCESS => return State::Passed,
            Work::Md => return State::Failed,
        };
        // What an earlier part skipped is not this one's.
        let _ = fs::remove_file(&skips);
        if !command.status().is_ok_and(|status| status.success()) {
            return State::Failed;
        }
        match fs::read_to_string(&skips) {
            Ok(lines) if !lines.trim().is_empty() => State::Skipped,
            _ => State::Passed,
        }
    }
}

fn parts(root: &Path) -> Result<Vec<Part>, String> {
    let results =
        fs::read_to_string(root.join(RESULTS)).map_err(|error| format!("{RESULTS}: {error}"))?;
    let tests = TESTS.iter().map(|(name, package, words)| Part {
        name: (*name).to_string(),
        work: Work::Tests(package, words),
    });
    let results = sections(&results).into_iter().map(|section| Part {
        name: format!("results-{}", slug(section)),
        work: Work::Results(section.to_string()),
    });
    let md = Part {
        name: "md".into(),
        work: Work::Md,
    };
    Ok(tests.chain(results).chain([md]).collect())
}

/// Headings of the sections that have tables of experiments.
fn sections(document: &str) -> Vec<&str> {
    let mut sections: Vec<&str> = Vec::new();
    let mut heading = None;
    for line in document.lines() {
        if let Some(text) = line.strip_prefix("## ") {
            heading = Some(text);
        } else if line.starts_with("<!-- table ") {
            sections.extend(heading.take());
        }
    }
    sections
}

/// A heading in small letters, with one dash for each run of other characters.
fn slug(heading: &str) -> String {
    let words = heading.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join("-").to_ascii_lowercase()
}

/// A hash of the sources in the work tree, committed or not.
fn tree(root: &Path) -> Result<String, String> {
    let index = root.join("target/deep.index");
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command
            .current_dir(root)
            .env("GIT_INDEX_FILE", &index)
            .args(args);
        let output = command.output().map_err(|error| format!("git: {error}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_string()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
        }
    };
    fs::create_dir_all(root.join("target")).map_err(|error| format!("target: {error}"))?;
    let _ = fs::remove_file(&index);
    git(&[&["add", "--"], &SOURCES[..]].concat())?;
    git(&["write-tree"])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Passed,
    Failed,
    /// Nothing failed, and something was skipped: a tool, a right or the guest is missing.
    Skipped,
    /// Not run, or run for other sources.
    Due,
}

impl State {
    const ALL: [State; 4] = [State::Passed, State::Failed, State::Skipped, State::Due];

    fn name(self) -> &'static str {
        match self {
            State::Passed => "passed",
            State::Failed => "failed",
            State::Skipped => "skipped",
            State::Due => "due",
        }
    }
}

/// The last result of each part: one line a part in the file.
#[derive(Default)]
struct Record(BTreeMap<String, Line>);

#[derive(Debug, PartialEq, Eq)]
struct Line {
    tree: String,
    result: State,
    seconds: u64,
}

impl Record {
    fn read(root: &Path) -> Record {
        let text = fs::read_to_string(root.join(RECORD)).unwrap_or_default();
        Record::parse(&text)
    }

    fn parse(text: &str) -> Record {
        let line = |line: &str| {
            let text = |name: &str| {
                let (_, rest) = line.split_once(&format!("\"{name}\": \""))?;
                rest.split_once('"').map(|(value, _)| value.to_string())
            };
            let (_, seconds) = line.split_once("\"seconds\": ")?;
            let result = Line {
                tree: text("tree")?,
                result: {
                    let name = text("result")?;
                    State::ALL.into_iter().find(|state| state.name() == name)?
                },
                seconds: seconds.trim_end_matches([',', '}']).parse().ok()?,
            };
            Some((text("part")?, result))
        };
        Record(text.lines().filter_map(line).collect())
    }

    fn text(&self) -> String {
        let lines = self.0.iter().map(|(part, line)| {
            let result = line.result.name();
            format!(
                "  {{\"part\": \"{part}\", \"tree\": \"{}\", \"result\": \"{result}\", \"seconds\": {}}}",
                line.tree, line.seconds
            )
        });
        format!("[\n{}\n]\n", lines.collect::<Vec<_>>().join(",\n"))
    }

    fn write(&self, root: &Path) -> Result<(), String> {
        fs::write(root.join(RECORD), self.text()).map_err(|error| format!("{RECORD}: {error}"))
    }

    fn note(&mut self, part: &Part, tree: &str, result: State, seconds: u64) {
        let line = Line {
            tree: tree.to_string(),
            result,
            seconds,
        };
        self.0.insert(part.name.clone(), line);
    }

    fn state(&self, part: &str, tree: &str) -> State {
        match self.0.get(part) {
            Some(line) if line.tree == tree => line.result,
            _ => State::Due,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_survives_its_file_and_counts_only_for_its_sources() {
        let part = |name: &str| Part {
            name: name.into(),
            work: Work::Md,
        };
        let mut record = Record::default();
        record.note(&part("swarm"), "aa", State::Passed, 7);
        record.note(&part("md"), "aa", State::Skipped, 3);
        let read = Record::parse(&record.text());
        assert_eq!(read.0, record.0);
        assert_eq!(read.state("swarm", "aa"), State::Passed);
        assert_eq!(read.state("md", "aa"), State::Skipped);
        assert_eq!(read.state("swarm", "bb"), State::Due);
        assert_eq!(read.state("images", "aa"), State::Due);
    }

    #[test]
    fn sections_without_tables_are_no_parts() {
        let document = "## A, first\ntext\n<!-- table a: b -->\n<!-- table c: d -->\n## B\ntext\n## C\n<!-- table e: f -->";
        assert_eq!(sections(document), ["A, first", "C"]);
        assert_eq!(slug("A, first"), "a-first");
    }

    #[test]
    fn parts_have_names_of_their_own() {
        let parts = parts(&crate::root()).expect("parts");
        let mut names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), parts.len());
        assert!(
            parts
                .iter()
                .any(|part| matches!(part.work, Work::Results(_)))
        );
    }
}
