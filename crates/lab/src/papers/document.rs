//! The printed numbers next to ours: a table for a terminal, JSON, and the document of a paper.

use super::claims::{Line, Planned};
use super::former::{Former, source_of};
use super::inventory::{Inventory, Item, source};
use crate::experiment::judged::Judged;
use crate::experiment::outcome::{judged_numbers, place, theirs};
use crate::experiment::value::Value as Parameter;
use crate::experiment::verdict::Verdict;
use crate::report::{Provenance, Table};
use std::fmt::Write;

/// Columns of prose.
const WIDTH: usize = 110;

/// A line a printed number; with what a former run said in a last column.
pub fn table(lines: &[Line], former: Option<&Former>) -> Table {
    let head = "paper|place|what|printed|ours (95% interval)|seeds|verdict";
    let mut table = Table::new(&match former {
        Some(former) => format!("{head}|{}", former.head()),
        None => head.to_string(),
    });
    for line in lines {
        let judged = &line.judged;
        let (paper, at) = source(&judged.printed);
        let [_, _, seeds] = judged_numbers(judged);
        let cells = [
            paper.into(),
            at.into(),
            what(judged),
            theirs(&judged.printed),
            ours(judged),
            seeds,
            judged.says(),
        ];
        table.row(
            cells
                .into_iter()
                .chain(former.map(|former| former.cell(line))),
        );
    }
    table
}

/// A line a printed number that could be run, with its runs at first and at the cap.
pub fn plan(lines: &[Planned]) -> Table {
    let mut table = Table::new("paper|place|what|claim|printed|scenario|points|runs");
    for planned in lines {
        let line = &planned.line;
        let (paper, at) = source(line);
        table.row([
            paper.into(),
            at.into(),
            with_place(&line.what, &line.at.clone().into_iter().collect::<Vec<_>>()),
            line.claim.name().into(),
            theirs(line),
            planned.scenario.clone(),
            planned.points.to_string(),
            runs(&planned.runs),
        ]);
    }
    table
}

/// A number of runs, or the first and the largest that there may be.
pub fn runs(runs: &std::ops::Range<u64>) -> String {
    match runs.start == runs.end {
        true => runs.start.to_string(),
        false => format!("{} to {}", runs.start, runs.end),
    }
}

/// How often each verdict was given, in words.
pub fn summary(lines: &[Line]) -> String {
    let judged: Vec<Verdict> = lines
        .iter()
        .filter_map(|line| line.judged.verdict)
        .collect();
    let single = |agrees| Verdict::OneRun { agrees };
    let kinds = [
        Verdict::Holds,
        Verdict::Fails,
        Verdict::Undecided,
        Verdict::Saturated,
        single(true),
        single(false),
        Verdict::NotRun,
    ];
    let count = |kind: Verdict| judged.iter().filter(|one| **one == kind).count();
    let parts = kinds.into_iter().filter(|kind| count(*kind) > 0);
    let parts: Vec<String> = parts
        .map(|kind| format!("{} {kind}", count(kind)))
        .collect();
    let shown = lines.len() - judged.len();
    let shown = match shown {
        0 => String::new(),
        shown => format!("; {shown} values shown"),
    };
    match judged.len() {
        0 => format!("no claims{shown}"),
        claims => format!("{claims} claims: {}{shown}", parts.join(", ")),
    }
}

fn what(judged: &Judged) -> String {
    with_place(&judged.printed.what, &judged.at)
}

fn with_place(what: &str, at: &[(String, Parameter)]) -> String {
    match at.is_empty() {
        true => what.to_string(),
        false => format!("{what}; {}", place(at)),
    }
}

fn ours(judged: &Judged) -> String {
    let [mean, interval, _] = judged_numbers(judged);
    match interval.as_str() {
        "-" => mean,
        _ => format!("{mean} ({interval})"),
    }
}

// Writing to a string cannot fail, here and below.

/// What stands before the papers: the command and where its runs and those of a former run come from.
pub fn head(provenance: &Provenance, command: &str, former: Option<&Former>) -> String {
    let mut out = String::from("# What the papers print, and what ours says\n\n");
    let Provenance {
        version,
        commit,
        date,
        ..
    } = provenance;
    let source = source_of(version, Some(commit), date);
    let former = former.map_or(String::new(), |former| {
        format!(" A last column is of another run, {}.", former.source())
    });
    let text = format!(
        "Written by `{command}` of {source}.{former} Each section is an item of a paper: a figure, a table, or a \
         sentence with a number. Its table has every printed number of a scenario of the laboratory, with ours: the \
         geometric mean over the seeds with its 95% interval. Verdicts are explained in \
         [lab.md](reference/lab.md#how-results-are-judged); all judged numbers of a paper are one family."
    );
    paragraph(&mut out, &text);
    out
}

/// A paper: every item of its inventory, with the printed numbers of scenarios that are of it.
/// A column has what a former run said of those that it ran.
pub fn markdown(inventory: &Inventory, lines: &[Line], former: Option<&Former>) -> String {
    let mut out = format!("## {}\n\n", inventory.paper);
    paragraph(&mut out, &inventory.title);
    let count =
        |what: &dyn Fn(&Item) -> bool| inventory.items.iter().filter(|item| what(item)).count();
    let lost = count(&|item| !item.lost.is_empty());
    let items = inventory.items.len();
    paragraph(
        &mut out,
        &format!(
            "{items} items, of which {lost} cannot be had. {}.",
            summary(lines)
        ),
    );
    for item in &inventory.items {
        let of = |line: &&Line| source(&line.judged.printed).1 == item.at;
        let own: Vec<&Line> = lines.iter().filter(of).collect();
        describe(&mut out, item);
        let former = former.filter(|former| own.iter().any(|line| former.of(line).is_some()));
        list(&mut out, &own, former);
    }
    out
}

fn describe(out: &mut String, item: &Item) {
    let _ = writeln!(out, "### {}\n", capital(&item.at));
    let mut text = sentence(&item.what);
    if !item.printed.is_empty() {
        let _ = write!(text, " Printed: {}", sentence(&item.printed));
    }
    paragraph(out, &text);
    if !item.lost.is_empty() {
        paragraph(out, &format!("Cannot be had: {}", sentence(&item.lost)));
    }
    if !item.note.is_empty() {
        paragraph(out, &sentence(&item.note));
    }
    if !item.answer.is_empty() {
        let names = item.answer.iter().map(|name| format!("`{name}`"));
        let names: Vec<String> = names.collect();
        paragraph(out, &format!("Answered by {}.", names.join(", ")));
    }
}

fn list(out: &mut String, lines: &[&Line], former: Option<&Former>) {
    if lines.is_empty() {
        return;
    }
    let (head, rule) = match former {
        Some(former) => (format!(" {} |", former.head()), "---|"),
        None => (String::new(), ""),
    };
    let _ = writeln!(
        out,
        "| scenario | what | claim | printed | ours (95% interval) | seeds | verdict |{head}\n\
         |---|---|---|--:|--:|--:|---|{rule}"
    );
    let mut notes: Vec<&str> = Vec::new();
    for line in lines {
        let judged = &line.judged;
        let [_, _, seeds] = judged_numbers(judged);
        let mut what = what(judged);
        if let Some(number) = numbered(&mut notes, &judged.printed.note) {
            let _ = write!(what, " (note {number})");
        }
        let cells = [
            format!("`{}`", line.scenario),
            what,
            judged.printed.claim.name().into(),
            theirs(&judged.printed),
            ours(judged),
            seeds,
            judged.says(),
        ];
        let cells = cells.into_iter();
        let cells = cells.chain(former.map(|former| former.cell(line)));
        let cells: Vec<String> = cells.map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push('\n');
    for (number, note) in (1..).zip(notes) {
        paragraph(out, &format!("Note {number}: {}", sentence(note)));
    }
}

/// The number of a note among those of a table, from 1 on; a new one is added. None of an empty note.
fn numbered<'a>(notes: &mut Vec<&'a str>, note: &'a str) -> Option<usize> {
    if note.is_empty() {
        return None;
    }
    if !notes.contains(&note) {
        notes.push(note);
    }
    let known = notes.iter().position(|known| *known == note);
    known.map(|at| at + 1)
}

/// With a full stop.
fn sentence(text: &str) -> String {
    let text = capital(text.trim());
    match text.ends_with(['.', '?', '!', '"']) {
        true => text,
        false => text + ".",
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

fn paragraph(out: &mut String, text: &str) {
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            out.push('\n');
            column = 0;
        }
        if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push_str("\n\n");
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::experiment::claim::Printed;
    use crate::experiment::judged::{Lack, judge};
    use crate::experiment::statistics::{Estimate, geometric};
    use crate::papers::former::{Seconds, written};
    use crate::papers::inventory;

    fn printed(at: &str, claim: &str, note: &str) -> Printed {
        let text = format!(
            "what = \"rebuild time\"\nsource = \"IDO, {at}\"\nvalue = 2.0\nmetric = \"rebuild_s\"\n\
             claim = \"{claim}\"\nnote = \"{note}\""
        );
        toml::from_str(&text).expect("a printed number")
    }

    fn line(printed: Printed, ours: Result<Estimate, Lack>) -> Line {
        let judged = Judged {
            printed,
            at: Vec::new(),
            of: Vec::new(),
            ours,
            is_cut: false,
            looks: 1,
            tested: None,
            verdict: None,
        };
        Line {
            scenario: "ido".into(),
            judged,
        }
    }

    pub(crate) fn lines() -> Vec<Line> {
        let two = geometric(&[2.0, 2.01, 2.02]).ok_or(Lack::NoRuns);
        let mut lines = vec![
            line(printed("figure 9", "factor", ""), two),
            line(printed("figure 9", "sign", "a | b"), Err(Lack::NoRuns)),
            line(printed("table 1", "value", ""), two),
            line(printed("table 1", "sign", ""), Ok(Estimate::single(0.5))),
        ];
        judge(
            &mut lines
                .iter_mut()
                .map(|line| &mut line.judged)
                .collect::<Vec<_>>(),
        );
        lines
    }

    #[test]
    fn a_summary_counts_each_verdict() {
        assert_eq!(
            summary(&lines()),
            "3 claims: 1 holds, 1 one run (differs), 1 not run; 1 values shown"
        );
        assert_eq!(summary(&[]), "no claims");
    }

    /// `docs/papers.md` has every item of every paper, as it is described now.
    #[test]
    fn the_document_that_is_kept_has_every_item() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/papers.md");
        let kept = std::fs::read_to_string(path).expect("kept");
        let mut lacking = Vec::new();
        for Inventory { paper, items, .. } in inventory::all().expect("sound") {
            for item in &items {
                let mut text = String::new();
                describe(&mut text, item);
                if !kept.contains(text.trim_end()) {
                    lacking.push(format!("{paper}, {}", item.at));
                }
            }
        }
        assert!(lacking.is_empty(), "write it again: {lacking:?}");
    }

    #[test]
    fn the_head_says_where_both_runs_come_from() {
        let provenance = |commit: &str| Provenance {
            version: "restripe 0.1.0".into(),
            commit: commit.into(),
            date: "2026-11-29T01:02:03Z".into(),
            ..Provenance::default()
        };
        let whole = written(
            &lines()[..1],
            "whole",
            &provenance("64a4f7c0"),
            &Seconds::new(),
        );
        let former = Former::read(&whole.to_string()).expect("a run");
        let head = head(&provenance(""), "restripe lab papers", Some(&former));
        let head = head.replace('\n', " ");
        for part in [
            "Written by `restripe lab papers` of restripe 0.1.0, on 2026-11-29. A last column",
            "another run, at scale whole, by restripe 0.1.0, commit 64a4f7c0, on 2026-11-29. Each",
        ] {
            assert!(head.contains(part), "{part} in {head}");
        }
    }

    #[test]
    fn a_paper_has_every_item_with_its_numbers() {
        let item = |at: &str, lost: &str| Item {
            at: at.into(),
            what: "what is drawn".into(),
            printed: "a factor of 2 ".repeat(20),
            answer: vec!["ido".into()],
            lost: lost.into(),
            note: String::new(),
        };
        let inventory = Inventory {
            paper: "IDO".into(),
            title: "A title".into(),
            items: vec![item("figure 9", ""), item("figure 1", "it is lost")],
        };
        let text = markdown(&inventory, &lines()[..2], None);
        for part in [
            "2 items, of which 1 cannot be had. 2 claims: 1 holds, 1 not run.",
            "### Figure 9\n",
            "| `ido` | rebuild time | factor | 2.000 | 2.010 (1.985 to 2.035) | 3 | holds |",
            "| `ido` | rebuild time (note 1) | sign | 2.000 | - | - | not run: not run at this scale |\n",
            "\n\nNote 1: A | b.\n",
            "### Figure 1\n",
            "Cannot be had: It is lost.",
            "Answered by `ido`.",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let wide = text.lines().filter(|line| !line.starts_with('|'));
        assert!(wide.map(str::len).max() <= Some(WIDTH));

        let whole = written(
            &lines()[..1],
            "whole",
            &Provenance::default(),
            &Seconds::new(),
        );
        let former = Former::read(&whole.to_string()).expect("a run");
        let text = markdown(&inventory, &lines()[..2], Some(&former));
        for part in [
            "| seeds | verdict | at scale whole |\n|---|---|---|--:|--:|--:|---|---|\n",
            "| 3 | holds | 2.010 (1.985 to 2.035), holds |\n",
            "not run at this scale | - |\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
