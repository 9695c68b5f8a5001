//! `docs/explanation/results.md`: its tables and pictures are those that the optimised command's experiments write.

use super::{agrees, docs, files, pictured};
use crate::harness::Place;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The optimised command, which `.ci/test` names in a deep run.
fn optimised() -> Option<String> {
    std::env::var("RESTRIPE_OPTIMISED").ok()
}

#[test]
fn an_experiment_gives_the_same_bytes_at_any_level_of_optimisation() {
    let Some(optimised) = optimised() else {
        return;
    };
    let ordinary = env!("CARGO_BIN_EXE_restripe");
    let program = |path: &str| fs::read(path).expect("a program");
    assert!(program(ordinary) != program(&optimised), "two programs");
    let place = Place::new("lab-optimised");
    let made = [("ordinary", ordinary), ("optimised", &optimised)].map(|(folder, program)| {
        let script = format!(
            "set -e; mkdir {folder}; cd {folder}; restripe() {{ '{program}' \"$@\"; }}
            restripe replay --workload fin2 --requests 20000 --fail-after 20s --rebuild-after 10s --member-size 2G \
                --json replay.json --report replay.html --figures figures
            restripe lab run rebuild-cost --short --seeds 1 --set array.level=raid6 --set workload.source=tpcc"
        );
        let run = place.shell(&script);
        assert_eq!(run.status, 0, "{}", run.stderr);
        let mut files = files(&place.path(folder));
        // What is kept is kept by the program that ran it.
        files.retain(|name, _| !name.starts_with("lab/runs/"));
        (run.stdout, files)
    });
    assert!(made[0].1.len() > 8, "{:?}", made[0].1.keys());
    assert_eq!(made[0].0, made[1].0);
    for (name, bytes) in &made[0].1 {
        assert!(made[1].1.get(name) == Some(bytes), "{name}");
    }
    assert_eq!(made[0].1.len(), made[1].1.len());
}

/// Minutes: the quick scales of the experiments of one section, which `RESTRIPE_RESULTS` names by its heading. What ran
/// before may be kept in a folder that `RESTRIPE_LAB` names.
#[test]
fn the_results_are_those_of_the_experiments() {
    let (Some(optimised), Ok(section)) = (optimised(), std::env::var("RESTRIPE_RESULTS")) else {
        return;
    };
    let place = Place::new("lab-results");
    if let Ok(kept) = std::env::var("RESTRIPE_LAB") {
        assert_eq!(place.shell(&format!("ln -s '{kept}' lab")).status, 0);
    }
    let document = docs().join("explanation/results.md");
    let kept = fs::read_to_string(&document).expect("a document");
    let experiments = experiments(&kept, &section);
    assert!(!experiments.is_empty(), "a section with tables: {section}");
    let table = |experiment: &str| match experiment {
        "popular" => popular(&place, &optimised),
        _ => run(&place, &optimised, experiment),
    };
    let tables: BTreeMap<&str, String> = experiments
        .iter()
        .map(|one| (&one[..], table(one)))
        .collect();
    let made = tabled(&kept, &|experiment| tables.get(experiment).cloned());
    agrees(&document, &kept, &made);
}

/// A scenario, a picture that it makes, and the picture's name in the documents.
const PICTURES: [(&str, &str, &str); 1] = [("reraid", "power-web.svg", "reraid-power-web.svg")];

/// What the tables of a section show, each once: scenarios with their options.
fn experiments(document: &str, section: &str) -> BTreeSet<String> {
    let mut heading = "";
    let mut found = BTreeSet::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        heading = line.strip_prefix("## ").unwrap_or(heading);
        let mark = line.strip_prefix("<!-- table ");
        if let Some(begun) = mark.filter(|_| heading == section) {
            let mark = ended(begun, &mut lines, |_| ());
            found.insert(Shown::of(&mark).experiment.into());
        }
    }
    found
}

/// A mark without its end, from what the first of its lines has of it. `also` gets its further lines.
fn ended<'a>(
    begun: &str,
    lines: &mut impl Iterator<Item = &'a str>,
    mut also: impl FnMut(&str),
) -> String {
    let mut mark = begun.to_string();
    while !mark.ends_with(" -->") {
        let line = lines.next().expect("a mark ends");
        also(line);
        mark += &format!(" {line}");
    }
    mark.trim_end_matches(" -->").to_string()
}

/// The table of a scenario, run with the options that its mark gives.
fn run(place: &Place, program: &str, experiment: &str) -> String {
    let (scenario, options) = experiment.split_once(" with ").unwrap_or((experiment, ""));
    let run = place.shell(&format!("'{program}' lab run {scenario} {options}"));
    assert_eq!(run.status, 0, "{}", run.stderr);
    for (_, made, shown) in PICTURES.iter().filter(|(of, _, _)| *of == scenario) {
        pictured(place, &format!("lab/{scenario}/{made}"), shown);
    }
    let table = place.bytes(&format!("lab/{scenario}/table.txt"));
    String::from_utf8(table).expect("text")
}

/// What can be learned of synthetic workloads, as IDO's figure 4 has it of its traces: a row each.
fn popular(place: &Place, program: &str) -> String {
    let mut table = String::from("source  hot_zones  zone  zone_meanwhile  request  meanwhile\n");
    for source in ["fin2", "web2", "proj", "noise", "stable"] {
        let run = place.shell(&format!(
            "'{program}' trace generate {source} --requests 200000 --seed 1 --force -o popular.rtrace > made.txt && \
             '{program}' trace info popular.rtrace --json"
        ));
        assert_eq!(run.status, 0, "{}", run.stderr);
        let told: Value = serde_json::from_str(&run.stdout).expect("JSON");
        let found = &told["summary"]["locality"];
        let shares = [
            // Of zones of 12 MiB, the hottest fifth.
            &found["zones"][2]["learned"][1],
            &found["reactive_as_many"],
            &found["request_proactive"],
            &found["request_reactive"],
        ];
        table += &format!("{source}  {}", found["hot_zones"]);
        for share in shares {
            table += &format!("  {:.1}", share.as_f64().expect("there are reads"));
        }
        table.push('\n');
    }
    table
}

/// A document with the rows of its tables computed again, each by the mark before it. A mark names the scenario and
/// options with which it is run, conditions for its rows, optionally a parameter whose values are compared, and the
/// columns. A column with a star is repeated for each value of this parameter; a column with a % is a share. A mark
/// may go over several lines.
///
/// `<!-- table width with --set workload.load=0.5 where write_share=0.2: members rebuild_s -->`
///
/// Rows of an experiment that was not run stay. A table that no experiment prints has another mark, which says where
/// its numbers come from: `<!-- by hand: one seed of ... -->`.
fn tabled(document: &str, table_of: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut lines = document.lines();
    let mut tables = 0;
    while let Some(line) = lines.next() {
        out += &format!("{line}\n");
        tables += usize::from(line.starts_with("<!-- by hand: "));
        let Some(mark) = line.strip_prefix("<!-- table ") else {
            continue;
        };
        tables += 1;
        let mark = ended(mark, &mut lines, |line| out += &format!("{line}\n"));
        let shown = Shown::of(&mark);
        let headings = lines.by_ref().take(2);
        headings.for_each(|heading| out += &format!("{heading}\n"));
        let table = table_of(shown.experiment);
        for row in table.iter().flat_map(|table| shown.rows(table)) {
            out += &format!("| {} |\n", row.join(" | "));
        }
        // The rows that stand there end at an empty line.
        let after = lines.by_ref().find(|line| {
            if table.is_none() && line.starts_with('|') {
                out += &format!("{line}\n");
            }
            !line.starts_with('|')
        });
        out += &format!("{}\n", after.expect("a table is not the end"));
    }
    let rules = document.lines().filter(|line| is_rule(line)).count();
    assert_eq!(tables, rules, "every table has a mark");
    out
}

/// The line between the headings of a table and its rows.
fn is_rule(line: &str) -> bool {
    let of_rule = |byte: u8| matches!(byte, b'|' | b'-' | b':' | b' ');
    line.starts_with('|') && line.contains("---") && line.bytes().all(of_rule)
}

/// What a mark asks for.
struct Shown<'a> {
    experiment: &'a str,
    wanted: Vec<(&'a str, &'a str)>,
    beside: Option<&'a str>,
    columns: Vec<&'a str>,
}

type Cells = BTreeMap<String, String>;

impl Shown<'_> {
    fn of(mark: &str) -> Shown<'_> {
        let (head, columns) = mark.split_once(": ").expect("columns");
        let (head, beside) = match head.split_once(" by ") {
            Some((head, beside)) => (head, Some(beside)),
            None => (head, None),
        };
        let (experiment, wanted) = head.split_once(" where ").unwrap_or((head, ""));
        let wanted = wanted
            .split_whitespace()
            .map(|pair| pair.split_once('=').expect("a name and a value"));
        Shown {
            experiment,
            wanted: wanted.collect(),
            beside,
            columns: columns.split_whitespace().collect(),
        }
    }

    fn rows(&self, table: &str) -> Vec<Vec<String>> {
        let wanted = |row: &Cells| self.wanted.iter().all(|(name, value)| row[*name] == *value);
        let all: Vec<Cells> = cells(table).into_iter().filter(wanted).collect();
        assert!(!all.is_empty(), "{}: {:?}", self.experiment, self.wanted);
        let mut values: Vec<&str> = Vec::new();
        for row in &all {
            let value = self.beside.map_or("", |name| &row[name]);
            if !values.contains(&value) {
                values.push(value);
            }
        }
        let of = |value: &str, row: &&Cells| self.beside.is_none_or(|name| row[name] == value);
        let first = all.iter().filter(|row| of(values[0], row));
        first.map(|row| self.row(row, &all, &values)).collect()
    }

    /// A row, with what its fellows of other values have in the starred columns.
    fn row(&self, first: &Cells, all: &[Cells], values: &[&str]) -> Vec<String> {
        let shared: Vec<&&str> = self
            .columns
            .iter()
            .filter(|name| !name.ends_with('*'))
            .collect();
        let fellow = |value: &str| {
            let same = |row: &&Cells| {
                let plain = |name: &str| name.trim_end_matches('%').to_string();
                self.beside.is_none_or(|name| row[name] == value)
                    && shared
                        .iter()
                        .all(|name| row[&plain(name)] == first[&plain(name)])
            };
            all.iter().find(same).expect("a row of each value")
        };
        let cells = |name: &&str| match name.strip_suffix('*') {
            Some(name) => values
                .iter()
                .map(|value| shown(fellow(value), name))
                .collect(),
            None => vec![shown(first, name)],
        };
        self.columns.iter().flat_map(cells).collect()
    }
}

fn shown(row: &Cells, name: &str) -> String {
    match name.strip_suffix('%') {
        // An array that has no such thing.
        Some(name) if row[name] == "-" => row[name].clone(),
        Some(name) => format!(
            "{:.1}%",
            100.0 * row[name].parse::<f64>().expect("a number")
        ),
        None => row[name].clone(),
    }
}

/// The rows of a table of ours by its headings; two spaces stand between columns.
fn cells(table: &str) -> Vec<Cells> {
    let split = |line: &str| -> Vec<String> {
        let parts = line.split("  ").map(|part| part.trim().to_string());
        parts.filter(|part| !part.is_empty()).collect()
    };
    let mut lines = table.lines();
    let headings = split(lines.next().expect("headings"));
    lines
        .map(|line| {
            let cells = split(line);
            assert_eq!(cells.len(), headings.len(), "{line}");
            headings.iter().cloned().zip(cells).collect()
        })
        .collect()
}

#[test]
fn marked_tables_are_made_of_the_experiments_rows() {
    let table = "level  load  way  a_s  b\nr5      0.5  x    1.0  0.125\nr5      0.5  y    2.0  0.125\n\
                 r6      0.5  x    3.0  0.25\nr6      0.5  y    4.0 sat.  0.25\nr6      0.1  y    5.0  0.25\n";
    let document = "a\n<!-- table t with --set a=b where load=0.5 by way:\nlevel b% a_s* -->\n| l | b | x | y |\n\
                    |---|---|---|---|\n| stale |\n\nz\n";
    let made = tabled(document, &|experiment| {
        assert_eq!(experiment, "t with --set a=b");
        Some(table.into())
    });
    let rows = "| r5 | 12.5% | 1.0 | 2.0 |\n| r6 | 25.0% | 3.0 | 4.0 sat. |\n";
    assert_eq!(made, document.replace("| stale |\n", rows));
    assert_eq!(tabled(document, &|_| None), document);
}
