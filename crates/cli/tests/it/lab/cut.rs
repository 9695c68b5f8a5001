//! Rebuilds that take longer than a run allows: every output marks their numbers, and no claim is decided by them.

use super::files;
use crate::harness::Place;
use serde_json::Value;

const SENTENCE: &str = "a rebuild took longer than phases.rebuild_s or phases.common_s";

/// The text of a file, once the command has written it.
fn written(place: &Place, line: &str, name: &str) -> String {
    let arguments: Vec<&str> = line.split(' ').collect();
    let run = place.run(&arguments);
    assert_eq!(run.status, 0, "{line}\n{}", run.stderr);
    let bytes = place.bytes(name);
    run.stdout + &String::from_utf8(bytes).expect("text")
}

/// The values of a column of `runs.csv`.
fn column(csv: &str, name: &str) -> Vec<String> {
    let rows = csv.lines().skip_while(|line| !line.contains(",seed,hash,"));
    let mut rows = rows.map(|line| line.split(','));
    let mut head = rows.next().expect("a heading");
    let place = head.position(|one| one == name).expect("a column");
    let value = |mut row: std::str::Split<'_, char>| row.nth(place).unwrap_or_default().to_string();
    rows.map(value).collect()
}

#[test]
fn a_rebuild_that_is_cut_is_marked_in_every_output() {
    let place = Place::new("lab-cut");
    let whole = "lab run rebuild-cost --short --seeds 1";
    let cut = "lab run rebuild-cost --short --seeds 1 --set phases.rebuild_s=1";
    for (line, is_cut) in [(whole, false), (cut, true)] {
        let csv = written(&place, line, "lab/rebuild-cost/runs.csv");
        let table = csv.split("Comparisons").next().unwrap_or_default();
        assert_eq!(table.contains(" cut"), is_cut, "{table}");
        let cuts = column(&csv, "cut");
        assert!(!cuts.is_empty());
        assert!(
            cuts.iter().all(|value| *value == is_cut.to_string()),
            "{cuts:?}"
        );
        let lines = String::from_utf8(place.bytes("lab/rebuild-cost/runs.jsonl")).expect("text");
        for line in lines.lines() {
            let run: Value = serde_json::from_str(line).expect("a run");
            assert_eq!(run["cut"], Value::Bool(is_cut));
        }
        let page = String::from_utf8(place.bytes("lab/rebuild-cost/report.html")).expect("text");
        assert_eq!(page.contains(SENTENCE), is_cut);
        // Of figures with numbers each says so; a course over time is of what was.
        let drawn = files(&place.path("lab/rebuild-cost")).into_iter();
        let drawn = drawn.filter(|(name, _)| name.ends_with(".svg"));
        let drawn = drawn.map(|(_, bytes)| String::from_utf8(bytes).expect("text"));
        let marked = drawn.filter(|figure| figure.contains(" cut")).count();
        assert_eq!(marked >= 2, is_cut, "{marked} figures");
        assert!(is_cut || marked == 0);
    }
}

#[test]
fn no_claim_is_decided_by_a_rebuild_that_is_cut() {
    let place = Place::new("lab-cut-claims");
    let whole = "lab run ido --short --seeds 2";
    let cut = "lab run ido --short --seeds 2 --set phases.rebuild_s=1";
    let page = written(&place, whole, "lab/ido/report.html");
    assert!(!page.contains("undecided: a rebuild was cut"));
    let page = written(&place, cut, "lab/ido/report.html");
    let rows = page
        .split("<tr><td")
        .filter_map(|row| row.split("</tr>").next());
    let of_it: Vec<&str> = rows
        .filter(|row| row.contains("mean response during") && !row.contains("not run"))
        .collect();
    assert!(!of_it.is_empty(), "{page}");
    for row in of_it {
        assert!(row.contains("a rebuild was cut"), "{row}");
    }
    assert!(page.contains("undecided: a rebuild was cut"), "{page}");
}

/// The rows of comparisons that a run prints.
fn comparisons(stdout: &str) -> Vec<String> {
    let rows = stdout
        .lines()
        .skip_while(|line| !line.starts_with("Comparisons"));
    let rows = rows.skip(2).take_while(|line| !line.trim().is_empty());
    rows.map(str::to_string).collect()
}

#[test]
fn no_comparison_is_decided_by_runs_that_do_not_end_at_their_common_time() {
    let place = Place::new("lab-cut-common");
    let short = "run ido-energy --short --seeds 2";
    // Of less than a rebuild, and of whole rebuilds that take longer than the runs have in common.
    for (set, is_cut) in [
        ("phases.rebuild_s=20 --set phases.common_s=20", true),
        ("phases.common_s=1", true),
        ("phases.after_s=100000", false),
    ] {
        let line = format!("lab {short} --set {set}");
        let arguments: Vec<&str> = line.split(' ').collect();
        let run = place.run(&arguments);
        assert_eq!(run.status, 0, "{line}\n{}", run.stderr);
        let energy: Vec<String> = comparisons(&run.stdout)
            .into_iter()
            .filter(|row| row.starts_with("energy"))
            .collect();
        assert!(!energy.is_empty(), "{}", run.stdout);
        for row in energy {
            assert_eq!(row.contains("a rebuild was cut"), is_cut, "{set}: {row}");
        }
    }
}

#[test]
fn a_time_that_is_known_is_not_cut() {
    let place = Place::new("lab-cut-times");
    let line = "lab run s2-second-levels --short --seeds 2 --set phases.rebuild_s=13 --set phases.after_s=60";
    let csv = written(&place, line, "lab/s2-second-levels/runs.csv");
    let table = csv.split("\n\n").next().unwrap_or_default();
    let mut rows = table.lines().map(|row| {
        row.split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty())
    });
    let place = rows
        .next()
        .and_then(|mut head| head.position(|name| name == "redundant_s"));
    let place = place.unwrap_or_else(|| panic!("{table}"));
    let cells: Vec<&str> = rows.filter_map(|mut row| row.nth(place)).collect();
    assert!(table.contains(" cut") && !cells.is_empty(), "{table}");
    assert!(cells.iter().all(|cell| !cell.contains("cut")), "{cells:?}");
}
