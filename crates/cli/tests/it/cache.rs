//! `restripe cache-sim`: what is refused and in which words, figures that anyone can count, grids.

use crate::harness::Place;
use serde_json::Value;

/// Six blocks of 4 KiB in one chunk of the first member, then the same again.
fn place(name: &str) -> Place {
    let place = Place::new(name);
    let line = |block: u64| format!("0,{},4096,r,{block}.0\n", block % 6 * 8);
    let text: String = (0..12).map(line).collect();
    place.write("t.spc", 0, 0, text.as_bytes());
    place
}

fn results(place: &Place, line: &str) -> Vec<Value> {
    let run = place.run(&line.split(' ').collect::<Vec<_>>());
    assert_eq!(run.status, 0, "{}", run.stderr);
    let told: Value = serde_json::from_str(&run.stdout).expect("JSON");
    told["results"].as_array().expect("a list").clone()
}

#[test]
fn a_miss_on_a_failed_disk_costs_the_rest_of_the_row() {
    let place = place("cache-cost");
    let line = "cache-sim t.spc --disks 8 --blocks 8 --policy lru,vdf-arc --json --failed";
    for (failed, reads) in [("0", 42), ("7", 6)] {
        for result in results(&place, &format!("{line} {failed}")) {
            assert_eq!(result["asked"], 12);
            assert_eq!(result["misses"], 6);
            assert_eq!(result["reads"], reads, "{failed}");
        }
    }
}

#[test]
fn the_rebuild_takes_what_users_leave() {
    let place = place("cache-rebuild");
    // RGR 0.5: 1 GiB over 100 - 40 x 0.5 MiB a second.
    let line = "cache-sim t.spc --blocks 8 --policy lru --failed 7 --json \
                --bandwidth 100M --user-rate 40M --to-read 1G";
    let found = results(&place, line);
    assert_eq!(found[0]["rgr"], 0.5);
    assert_eq!(found[0]["rebuild_seconds"], 12.8);
}

#[test]
fn a_grid_is_judged_cell_by_cell_and_is_the_same_every_time() {
    let place = place("cache-grid");
    let run = || {
        let line = "cache-sim --grid vdf-raid6 --scale short --csv runs.csv";
        let run = place.run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(run.status, 0, "{}", run.stderr);
        run.stdout
    };
    let told = run();
    assert!(told.starts_with("cells are array.failed cache.base workload.source\n"));
    assert!(told.contains("\n1 lru dtrs-mid "), "{told}");
    assert_eq!(told, run());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = place("cache-refused");
    for (line, word) in [
        ("cache-sim --grid nothing", "vdf-size"),
        ("cache-sim --grid vdf-size t.spc", "--grid"),
        ("cache-sim t.spc --failed 9", "no disk 9"),
        ("cache-sim t.spc --failed 0,1", "lost data"),
        ("cache-sim t.spc --policy mru", "vdf-arc"),
        ("cache-sim", "<FILE>"),
        ("cache-sim --workload web2 --seed x", "invalid value"),
        ("cache-sim t.spc --csv runs.csv", "--csv requires a grid"),
        ("cache-sim t.spc --scale short", "--scale requires a grid"),
        (
            "cache-sim --workload web2 --traces .",
            "--traces requires a grid",
        ),
        ("cache-sim --grid vdf-size --disks 5", "--disks"),
        ("cache-sim --grid vdf-size --failed 0", "--failed"),
        ("cache-sim --grid vdf-size --seed 2", "--seed"),
        ("cache-sim --grid vdf-size --format spc", "--format"),
        (
            "cache-sim --grid vdf-size --follow-rebuild",
            "--follow-rebuild",
        ),
        ("cache-sim t.spc --warm-up 12", "none would be counted"),
    ] {
        let run = place.run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(run.status, 2, "{line}\n{}", run.stderr);
        assert!(run.stderr.contains(word), "{line}\n{}", run.stderr);
    }
}

#[test]
fn a_workload_needs_no_file_and_usage_says_so() {
    let run = place("cache-usage").run(&["cache-sim", "--workload", "web2", "--disks", "x"]);
    let help = place("cache-usage").run(&["cache-sim", "--help"]);
    assert_eq!(run.status, 2);
    assert!(!run.stderr.contains("<FILE|"), "{}", run.stderr);
    for way in [
        "[OPTIONS] <FILE>\n",
        "[OPTIONS] --workload <NAME>\n",
        "--grid <NAME>",
    ] {
        assert!(help.stdout.contains(way), "{way}: {}", help.stdout);
    }
}

/// What `docs/explanation/cache.md` has people paste, as it stands there.
#[test]
fn the_session_of_the_manual_can_be_pasted() {
    let manual = include_str!("../../../../docs/explanation/cache.md");
    let (_, rest) = manual.split_once("```sh\n").expect("it has a session");
    let (session, rest) = rest.split_once("```").expect("the session ends");
    assert!(rest.contains("(RGR), 12.9% from the cache"));
    let ran = Place::new("cache-session").shell(&format!("set -e\n{session}wait"));
    assert_eq!(ran.status, 0, "{} {}", ran.stdout, ran.stderr);
    for told in ["(RGR), ", "% from the cache", "tank: 20 zones of 12M, "] {
        assert!(ran.stdout.contains(told), "{told}: {}", ran.stdout);
    }
}

#[test]
fn a_grid_of_traces_that_are_not_here_says_how_to_name_them() {
    let run =
        place("cache-samples").run(&["cache-sim", "--grid", "vdf-samples", "--traces", "none"]);
    assert_eq!(run.status, 1, "{}", run.stderr);
    assert!(
        run.stderr.contains("hint: pass the folder"),
        "{}",
        run.stderr
    );
}
