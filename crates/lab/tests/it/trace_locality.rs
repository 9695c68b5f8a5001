//! Locality of real files: zones, shares and exponents are those of the shared folder's table of locality.
//!
//! Zones of equal counts are ranked in no order, which moves shares by a point. The share by noise alone is left out: it is
//! drawn at random there and here.

use crate::shared;
use restripe_lab::trace::locality::Locality;
use restripe_lab::trace::{Options, Order, Requests, Summary, open};
use std::fs;
use std::path::{Path, PathBuf};

fn locality(path: &Path) -> Locality {
    let features = open(path, &Options::default()).expect("it opens").features;
    let measured = Summary::measure(features, |order| {
        let options = Options {
            sort: order == Order::ByTime,
            ..Options::default()
        };
        // One request of ycsb-blkparse.ext4 has a time stamp of years later, which the table leaves out.
        let sound = open(path, &options)?
            .filter(|item| item.as_ref().is_ok_and(|one| one.time < u64::MAX / 16));
        Ok(Box::new(sound) as Requests)
    });
    measured.unwrap_or_else(|error| panic!("{error}")).locality
}

/// `a / b / c` as numbers, told within a tolerance.
#[track_caller]
fn compare(what: &str, cell: &str, found: &[Option<f64>], tolerance: f64) {
    let told: Vec<f64> = cell
        .split('/')
        .map(|part| part.trim().parse().expect("a number"))
        .collect();
    assert_eq!(told.len(), found.len(), "{what}");
    for (told, found) in told.iter().zip(found) {
        let found = found.expect("reads in both halves");
        let off = (told - found).abs();
        assert!(off <= tolerance, "{what}: {found}, not {told}");
    }
}

/// Half a point of rounding, and one of ties.
const POINTS: f64 = 1.5;

fn check(row: &[&str], found: &Locality) {
    let zones = found.of_12_mib();
    let name = row[0];
    assert_eq!(zones.zones.to_string(), row[2], "{name}: zones");
    compare(
        &format!("{name}: in-sample"),
        row[3],
        &zones.in_sample,
        POINTS,
    );
    let learned = [&zones.learned[..], &[zones.learned_all]].concat();
    compare(&format!("{name}: learned"), row[5], &learned, POINTS);
    compare(
        &format!("{name}: alternating"),
        row[6],
        &[zones.alternating],
        POINTS,
    );
    compare(
        &format!("{name}: reactive"),
        row[8],
        &[zones.reactive],
        POINTS,
    );
    let requests = [found.request_proactive, found.request_reactive];
    compare(&format!("{name}: requests"), row[9], &requests, POINTS);
    let held = format!("{} / {}", zones.bytes_of_50 >> 20, zones.bytes_of_80 >> 20);
    assert_eq!(held, row[10], "{name}: MiB of 50 and 80%");
    compare(&format!("{name}: theta"), row[11], &[zones.theta], 0.011);
}

#[test]
fn every_row_of_the_table_of_locality_is_found() {
    let Some(folder) = shared::folder(
        "traces",
        "LOCALITY.md",
        "trace_locality::every_row_of_the_table_of_locality_is_found",
    ) else {
        return;
    };
    let table = fs::read_to_string(folder.join("LOCALITY.md")).expect("a text");
    let names: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    let mut count = 0;
    for line in table.lines().filter(|line| line.starts_with("| ")) {
        let row: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if row.len() != 13 || row[1].parse::<u64>().is_err() {
            continue;
        }
        let begins = |path: &&PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(row[0])
        };
        let path = names.iter().find(begins).expect("the row's file");
        check(&row, &locality(path));
        count += 1;
    }
    assert_eq!(count, 16, "rows of the table");
}
