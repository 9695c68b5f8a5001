//! Every reader on real files: counts and statistics are those of the shared folder's table, row by row.

use crate::shared;
use restripe_lab::trace::{Options, Order, Requests, Summary, open};
use std::path::Path;

/// What the table's text calls a request with a bad time stamp lies beyond this.
const BAD_STAMP: u64 = 1_000_000 * 1_000_000_000;

fn summary(path: &Path) -> Summary {
    let options = Options::default();
    let features = open(path, &options).expect("it opens").features;
    Summary::measure(features, |order| {
        let sort = order == Order::ByTime;
        let trace = open(
            path,
            &Options {
                sort,
                ..options.clone()
            },
        )?;
        let keep_all = !path.ends_with("ycsb-blkparse.ext4.txt.zst");
        let kept = trace.filter(move |item| {
            keep_all || item.as_ref().is_ok_and(|request| request.time < BAD_STAMP)
        });
        Ok(Box::new(kept) as Requests)
    })
    .unwrap_or_else(|error| panic!("{error}"))
}

fn decimals(value: Option<f64>, places: usize) -> String {
    value.map_or("-".into(), |value| format!("{value:.places$}"))
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn kib(bytes: Option<f64>) -> String {
    format!("{:.2}", bytes.unwrap_or(0.0) / 1024.0)
}

fn duration(ns: Option<u64>) -> String {
    let Some(ns) = ns else {
        return "-".into();
    };
    match ns as f64 / 1e9 {
        s if s < 10.0 => format!("{s:.3} s"),
        s if s < 10_000.0 => format!("{s:.0} s"),
        s => format!("{:.1} h", s / 3600.0),
    }
}

fn rates(found: &Summary) -> String {
    let Some(mean) = found.iops_mean else {
        return "-".into();
    };
    let mean = format!("{mean:.2}");
    let (whole, fraction) = mean.split_once('.').expect("two decimals");
    let whole = grouped(whole.parse().expect("a number"));
    let peak = found.iops_peak.map_or("-".into(), grouped);
    format!("{whole}.{fraction} / {peak}")
}

fn sizes(found: &Summary, directions: bool) -> String {
    let mean = kib(found.mean_bytes());
    if !directions {
        return mean;
    }
    let (read, write) = (
        kib(found.mean_read_bytes()),
        kib(found.mean_written_bytes()),
    );
    format!("{mean} ({read} / {write})")
}

/// The row as the table has it.
fn row(name: &str, found: &Summary) -> Vec<String> {
    let directions = found.duration_ns.is_some();
    let mib = format!("{:.1}", found.footprint_blocks as f64 / 256.0);
    let (mib, tenth) = mib.split_once('.').expect("one decimal");
    let mib = grouped(mib.parse().expect("a number"));
    vec![
        format!("`{name}`"),
        grouped(found.requests),
        duration(found.duration_ns),
        if directions {
            decimals(found.write_share(), 2)
        } else {
            "-".into()
        },
        sizes(found, directions),
        rates(found),
        format!("{} ({mib}.{tenth})", grouped(found.footprint_blocks)),
        decimals(found.sequential, 1),
        if directions {
            decimals(found.rewrite, 1)
        } else {
            "-".into()
        },
        decimals(found.reuse, 1),
        found.devices.len().to_string(),
    ]
}

#[test]
fn every_row_of_the_table_is_what_the_readers_find() {
    let Some(folder) = shared::folder(
        "traces",
        "README.md",
        "trace_table::every_row_of_the_table_is_what_the_readers_find",
    ) else {
        return;
    };
    let table = std::fs::read_to_string(folder.join("README.md")).expect("a text");
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in rows {
        let expected: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let name = expected[0].trim_matches('`');
        let found = row(name, &summary(&folder.join(name)));
        if found != expected {
            wrong.push(format!("expected {expected:?}\n   found {found:?}"));
        }
        count += 1;
    }
    assert_eq!(count, 22, "rows of the table");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_top_sizes_are_those_of_the_list() {
    let Some(folder) = shared::folder(
        "traces",
        "README.md",
        "trace_table::the_top_sizes_are_those_of_the_list",
    ) else {
        return;
    };
    let text = std::fs::read_to_string(folder.join("README.md")).expect("a text");
    let lines = text
        .lines()
        .filter(|line| line.starts_with("- `") && line.contains("`: "));
    let mut count = 0;
    for line in lines {
        let (name, expected) = line[3..].split_once("`: ").expect("a name and sizes");
        if !folder.join(name).exists() || name.starts_with("hadoop") || name.starts_with("addr") {
            continue;
        }
        let found = summary(&folder.join(name));
        let top = found.top_sizes(5);
        for (index, size) in expected.split(", ").enumerate() {
            // Sizes of equal frequency are in no order.
            let (bytes, share) = size.split_once(": ").expect("a size and a share");
            assert_eq!(share, format!("{:.1}", top[index].1), "{name}");
            let count = found.sizes[&bytes.parse::<u64>().expect("bytes")];
            let of_all = (count * 100) as f64 / found.requests as f64;
            assert_eq!(share, format!("{of_all:.1}"), "{name}: {bytes}");
        }
        count += 1;
    }
    assert_eq!(count, 18, "files of the list, the two large ones left out");
}
