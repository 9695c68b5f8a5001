//! One HTML report of an experiment, with everything in it: no other file, no network.

use super::figure;
use super::outcome::{Outcome, last};
use super::words::{self, Words};
use crate::plot::Picture;
use crate::report::{self, Provenance, Table};
use crate::svg::escape;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A page from a title, paragraphs, figures and tables.
pub fn html(
    title: &str,
    lead: &[String],
    provenance: &Provenance,
    figures: &[Picture],
    tables: &[(&str, &Table)],
) -> String {
    let mut body = report::head(lead, &[], provenance);
    figures
        .iter()
        .for_each(|picture| body += &report::figure(&picture.plot));
    for (name, table) in tables {
        if !table.rows.is_empty() {
            body += &report::section(name, &table.html());
        }
    }
    report::document(title, &body)
}

/// What the mark of such numbers says.
const CUT: &str = "\"cut\": a rebuild took longer than phases.rebuild_s or phases.common_s, so the number is of a part of it or \
                   of another time, and no comparison or claim is decided by it.";

/// The report of an experiment.
pub fn report(outcome: &Outcome<'_>, figures: &[Picture], provenance: &Provenance) -> String {
    let scenario = outcome.scenario;
    let mut lead = vec![
        scenario.question.clone(),
        format!(
            "{} runs: {} points of up to {} seeds. Values are geometric means over the seeds; intervals are of 95%. \
             \"sat.\": a phase was offered more than it could serve, so its times tell how long it lasted.",
            outcome.runs.len(),
            outcome.groups().count(),
            scenario.looks().last().copied().unwrap_or_default()
        ),
    ];
    if outcome.has_cut() {
        lead.push(CUT.into());
    }
    let compared = outcome.comparison_table(&outcome.compared());
    let compared = verdict_first(in_words(outcome, compared));
    let printed = verdict_first(in_words(outcome, outcome.judged_table()));
    let verdicts = [
        counted("Compared with the printed figures", &printed),
        counted("Comparisons, seed by seed", &compared),
    ];
    let verdicts: Vec<String> = verdicts.into_iter().flatten().collect();
    let mut body = report::head(&lead, &verdicts, provenance);
    body += &foldable("Compared with the printed figures", &printed);
    body += &foldable("Comparisons, seed by seed", &compared);
    figures
        .iter()
        .for_each(|picture| body += &report::figure(&picture.plot));
    body += &report::section("Results", &results(outcome));
    body += &report::section("Fixed parameters", &fixed(outcome));
    report::document(&scenario.title, &body)
}

/// The name of the column that says where in a sweep a row is.
const AT: &str = "at";

/// A table whose column [`AT`] has the words of parameters and values in place of their names.
fn in_words(outcome: &Outcome<'_>, mut table: Table) -> Table {
    let Some(column) = table.heading.iter().position(|name| name == AT) else {
        return table;
    };
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for path in outcome.scenario.sweep.keys() {
        for value in outcome.values(path) {
            let name = format!("{} {value}", last(path));
            known.insert(name, words::at(path, &value));
        }
    }
    for row in &mut table.rows {
        let parts: Option<Vec<&str>> = row[column]
            .split(", ")
            .map(|part| known.get(part).map(String::as_str))
            .collect();
        if let Some(parts) = parts {
            row[column] = parts.join(", ");
        }
    }
    table
}

/// The names of the columns that have verdicts.
const VERDICTS: [&str; 2] = ["verdict", "says"];
/// The name of the column that has the promises in which two arrays differ.
const UNEQUAL: &str = "unequal";

/// The place of a table's verdicts.
fn verdicts_of(table: &Table) -> Option<usize> {
    let mut heading = table.heading.iter();
    heading.position(|name| VERDICTS.contains(&name.as_str()))
}

/// A table with its verdicts behind the first column, where they are seen without scrolling.
fn verdict_first(mut table: Table) -> Table {
    if let Some(column) = verdicts_of(&table).filter(|column| *column > 1) {
        for row in table.rows.iter_mut().chain([&mut table.heading]) {
            row[1..=column].rotate_right(1);
        }
    }
    table
}

/// How often each verdict is in a table, and how many rows compare arrays with unequal promises; `None` of an
/// empty table.
fn counted(title: &str, table: &Table) -> Option<String> {
    let column = |name: &str| table.heading.iter().position(|one| one == name);
    let verdicts = verdicts_of(table)?;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for row in &table.rows {
        // Not why, or on which side.
        let verdict = row[verdicts].split(": ").next().unwrap_or_default();
        *counts.entry(verdict).or_insert(0) += 1;
    }
    let mut parts: Vec<String> = counts
        .iter()
        .map(|(verdict, count)| format!("{verdict} {count}"))
        .collect();
    let unequal = column(UNEQUAL).map_or(0, |column| {
        let rows = table.rows.iter().filter(|row| row[column] != "-");
        rows.count()
    });
    if unequal > 0 {
        parts.push(format!("with unequal promises {unequal}"));
    }
    (!table.rows.is_empty()).then(|| format!("{title}: {}.", parts.join("; ")))
}

/// More rows than this are folded away at first.
const ROWS: usize = 12;

fn foldable(title: &str, table: &Table) -> String {
    match table.rows.len() {
        0 => String::new(),
        1..=ROWS => report::section(title, &table.html()),
        rows => format!(
            "<details>\n<summary>{}: {rows} rows</summary>\n{}</details>\n",
            escape(title),
            table.html()
        ),
    }
}

/// The table of results in words: a column's own name is shown where a reader points at its words.
pub fn results(outcome: &Outcome<'_>) -> String {
    let scenario = outcome.scenario;
    let task = figure::task(outcome, &BTreeMap::new());
    let paths: Vec<&String> = scenario.sweep.keys().collect();
    let metrics = scenario
        .table
        .iter()
        .map(|name| Words::of_metric(name, &task));
    let metrics: Vec<Words> = metrics.collect();
    let swept = paths.iter().map(|path| Words::of_parameter(path));
    let heading = swept.chain(metrics.iter().cloned());
    let mut table = Table {
        heading: heading.map(|words| words.with_unit()).collect(),
        rows: Vec::new(),
    };
    for group in outcome.groups() {
        let swept = paths
            .iter()
            .map(|path| words::bare_value(path, &group.point[*path]));
        let names = scenario.table.iter().zip(&metrics);
        let numbers = names.map(|(name, words)| words::scaled(&group.shown(name), words));
        table.rows.push(swept.chain(numbers).collect());
    }
    let hints = paths.into_iter().chain(&scenario.table);
    table.html_with(&hints.cloned().collect::<Vec<String>>())
}

/// Every fixed parameter in words, with its own name in small letters.
fn fixed(outcome: &Outcome<'_>) -> String {
    let heading = "<tr><th>parameter</th><th>value</th><th>origin</th><th>note</th></tr>";
    let mut out = format!("<div class=\"scroll\"><table class=\"words\">\n{heading}\n");
    for (path, fixed) in &outcome.scenario.fixed {
        let cells = [
            format!(
                "{}<br><small><code>{}</code></small>",
                escape(&Words::of_parameter(path).words),
                escape(path)
            ),
            escape(&words::value(path, &fixed.value)),
            escape(fixed.origin.name()),
            escape(&fixed.note),
        ];
        let cells = cells.map(|cell| format!("<td>{cell}</td>"));
        // Writing to a string cannot fail.
        let _ = writeln!(out, "<tr>{}</tr>", cells.concat());
    }
    out + "</table></div>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_counted_wherever_their_column_is() {
        let mut table = Table::new("printed|ours|verdict|unequal");
        assert_eq!(counted("Printed", &table), None);
        for (verdict, unequal) in [
            ("holds", "-"),
            ("fails: larger", "write hole"),
            ("holds", "-"),
        ] {
            table.row(["x".into(), "1".into(), verdict.into(), unequal.into()]);
        }
        let table = verdict_first(table);
        assert_eq!(table.heading, ["printed", "verdict", "ours", "unequal"]);
        assert_eq!(table.rows[1], ["x", "fails: larger", "1", "write hole"]);
        let told = counted("Printed", &table);
        let wanted = "Printed: fails 1; holds 2; with unequal promises 1.";
        assert_eq!(told.as_deref(), Some(wanted));
    }
}
