//! Rebuilds that take longer than a run allows: every output marks their numbers, and no claim is decided by them.

use crate::harness::Place;
use serde_json::Value;

const SENTENCE: &str = "a rebuild took longer than phases.rebuild_s allows";

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
