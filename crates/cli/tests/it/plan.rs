//! `restripe plan`: the tables of `docs/reference/layouts.md`, what it says to programs, and what it refuses.

use crate::harness;
use crate::harness::Place;
use crate::harness::steps::good;
use serde_json::Value;
use std::fmt::Write;
use std::path::PathBuf;

/// A table stands in a fenced block right after a line with this and its options.
const MARK: &str = "<!-- plan: ";

fn plan(place: &Place, options: &str) -> harness::Run {
    let words: Vec<&str> = ["plan"].into_iter().chain(options.split(' ')).collect();
    place.run(&words)
}

#[test]
fn the_document_has_the_tables_that_the_command_makes() {
    let place = Place::new("plan-document");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/layouts.md");
    let written = std::fs::read_to_string(&path).expect("docs/reference/layouts.md can be read");
    let made = made_anew(&written, |options| good(plan(&place, options)));
    for disks in [8, 9, 12, 20, 24, 25, 36] {
        let mark = format!("{MARK}--disks {disks} ");
        assert_eq!(made.matches(&mark).count(), 1, "one table of {disks}");
    }
    if std::env::var_os("RESTRIPE_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, made).expect("docs/reference/layouts.md can be written");
    } else {
        assert!(
            written == made,
            "docs/reference/layouts.md is out of date: run this with RESTRIPE_BLESS=1"
        );
    }
}

/// The document with each fenced block after a mark replaced by the table of those options.
fn made_anew(document: &str, table: impl Fn(&str) -> String) -> String {
    let mut lines = document.lines();
    let mut made = String::new();
    while let Some(line) = lines.next() {
        writeln!(made, "{line}").expect("a string takes all");
        let options = line.strip_prefix(MARK);
        let Some(options) = options.and_then(|rest| rest.strip_suffix(" -->")) else {
            continue;
        };
        assert_eq!(lines.next(), Some("```text"), "a block follows {options}");
        assert!(lines.by_ref().any(|line| line == "```"), "and ends");
        write!(made, "```text\n{}```\n", table(options)).expect("a string takes all");
    }
    made
}

fn layout<'a>(value: &'a Value, name: &str) -> &'a Value {
    let layouts = value["layouts"].as_array().expect("a list");
    let named = layouts.iter().find(|one| one["layout"] == name);
    named.unwrap_or_else(|| panic!("{name} in {value}"))
}

/// Costs and gains of the papers' two arrays, and their rebuilds three and four times as fast where writes are spread, but
/// for what spare partitions take: partitions are the smaller for each that is kept.
#[test]
fn programs_are_told_costs_beside_gains() {
    let place = Place::new("plan-json");
    let of = |options: &str| -> Value {
        let told = good(plan(&place, &format!("{options} --json")));
        serde_json::from_str(&told).expect("it is JSON")
    };
    let nine = of("--disks 9 --disk-size 10G --speed 60M");
    let (plain, skewed) = (layout(&nine, "RAID-5"), layout(&nine, "S2-RAID-5"));
    assert_eq!(plain["spare"]["bytes"], 80u64 << 30);
    let lost_to_rounding = (60u64 << 30) - skewed["spare"]["bytes"].as_u64().expect("bytes");
    assert!(lost_to_rounding < 1 << 20, "{skewed}");
    let hurts = |one: &Value| (one["second_loss_hurts"].clone(), one["others"].clone());
    assert_eq!(hurts(plain), (8.into(), 8.into()));
    assert_eq!(hurts(skewed), (6.into(), 8.into()));
    let eight = of("--disks 8 --disk-size 10G --speed 60M");
    let (plain, mirrors) = (layout(&eight, "RAID-10"), layout(&eight, "S2-RAID-10"));
    assert_eq!(hurts(plain), (1.into(), 7.into()));
    assert_eq!(hurts(mirrors), (4.into(), 7.into()));
    for (one, streams) in [(skewed, 3.0), (mirrors, 4.0)] {
        let seconds = |course: &str| one[course]["rebuild_seconds"].as_f64().expect("seconds");
        let ratio = seconds("spare") / seconds("spread");
        assert!((ratio - (streams + 1.0)).abs() < 0.01, "{one}");
        assert_eq!(one["spare"]["streams"], streams as u64);
    }
    assert!(plain["spread"].is_null(), "{plain}");
}

#[test]
fn a_repair_time_is_the_same_for_all() {
    let place = Place::new("plan-repair");
    let told = good(plan(
        &place,
        "--disks 8 --disk-size 10G --speed 60M --repair 24h --json",
    ));
    let told: Value = serde_json::from_str(&told).expect("it is JSON");
    let hours = |name: &str| {
        let hours = &layout(&told, name)["spare"]["mttdl_hours"];
        hours.as_f64().expect("hours")
    };
    // The lost disk's mirrors: four instead of one.
    let ratio = hours("RAID-10") / hours("S2-RAID-10");
    assert!((ratio - 4.0).abs() < 0.01, "{told}");
}

#[test]
fn what_makes_no_disks_is_refused() {
    let place = Place::new("plan-refused");
    for (options, words) in [
        ("--disks 9 --disk-size 10G", "--disk <MODEL>"),
        ("--disks 9 --speed 60M", "--disk-size"),
        ("--disks 1 --disk-size 10G --speed 60M", "2..=64"),
        ("--disks 65 --disk-size 10G --speed 60M", "2..=64"),
        ("--disks 9 --disk-size 10G --speed 0", "--speed"),
        ("--disks 9 --disk-size 1K --speed 60M", "1 or more chunks"),
        ("--disks 9 --disk wd1600ajs", "the nearest is wd1600aajs"),
        ("--disks 9 --disk wd1600aajs --disk-size 10T", "MiB"),
        (
            "--disks 9 --disk-size 10G --speed 60M --mttf 0h",
            "above zero",
        ),
    ] {
        let run = plan(&place, options);
        assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{options}");
        assert!(run.stderr.contains(words), "{options}: {}", run.stderr);
    }
}
