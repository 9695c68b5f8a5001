//! The tables of all runs, and how their ratios compare with what the paper prints.

use super::plan::{SCHEMES, Scheme, WORKLOADS, Workload};
use super::results::Figures;
use std::fmt::Write as _;

/// A run that has ended.
pub struct Run {
    pub workload: Workload,
    pub scheme: Scheme,
    pub repetition: u32,
    pub figures: Figures,
}

const COLUMNS: [(&str, &str); 10] = [
    ("rebuild, s", "rebuild_s"),
    ("served, healthy", "healthy.per_second"),
    ("served, in a rebuild", "rebuild.per_second"),
    ("mean, healthy", "healthy.mean_ms"),
    ("mean, in a rebuild", "rebuild.mean_ms"),
    ("p99, healthy", "healthy.p99_ms"),
    ("p99, in a rebuild", "rebuild.p99_ms"),
    ("reads of the device", "rebuild.device_read_ms"),
    ("writes of the device", "rebuild.device_write_ms"),
    ("member operations", "rebuild.operations_per_request"),
];

/// Ratios that the paper prints or bounds: of RAID-5's figure to that of another scheme.
const RATIOS: [(&str, &str); 4] = [
    ("rebuild time", "rebuild_s"),
    ("mean response in a rebuild", "rebuild.mean_ms"),
    ("mean response in its first 15 s", "first.mean_ms"),
    (
        "mean response of device reads in a rebuild",
        "rebuild.device_read_ms",
    ),
];

/// Markdown: medians, and in parentheses the least and the most. The last three columns are of the time of a rebuild: the
/// mean response of reads and writes of the block device, and operations on members for each of them.
pub fn markdown(runs: &[Run]) -> String {
    let mut text = String::new();
    let heads: Vec<&str> = COLUMNS.iter().map(|(head, _)| *head).collect();
    for workload in WORKLOADS {
        let of: Vec<&Run> = runs.iter().filter(|run| run.workload == workload).collect();
        if of.is_empty() {
            continue;
        }
        let (name, unit) = (workload.name(), workload.unit());
        let _ = write!(
            text,
            "`{name}`, served in {unit}, times in ms:\n\n| scheme | runs | {} |\n|---|{}\n",
            heads.join(" | "),
            "---|".repeat(COLUMNS.len() + 1)
        );
        for scheme in SCHEMES {
            let count = of.iter().filter(|run| run.scheme == scheme).count();
            if count > 0 {
                let cells = COLUMNS.map(|(_, name)| spread(&values(&of, scheme.name, name)));
                let _ = writeln!(
                    text,
                    "| {} | {count} | {} |",
                    scheme.name,
                    cells.join(" | ")
                );
            }
        }
        text.push('\n');
    }
    text + &ratios(runs)
}

fn ratios(runs: &[Run]) -> String {
    let mut text = String::from("| workload | RAID-5 over | ");
    let heads: Vec<&str> = RATIOS.iter().map(|(head, _)| *head).collect();
    let _ = writeln!(
        text,
        "{} | paper, rebuild time over S2-RAID |",
        heads.join(" | ")
    );
    let _ = writeln!(text, "|---|---|{}---|", "---|".repeat(RATIOS.len()));
    for workload in WORKLOADS {
        for scheme in SCHEMES.iter().filter(|scheme| scheme.name != scheme.base) {
            let of: Vec<&Run> = runs.iter().filter(|run| run.workload == workload).collect();
            let cells = RATIOS.map(|(_, name)| spread(&paired(&of, scheme, name)));
            if cells.iter().all(|cell| cell == NONE) {
                continue;
            }
            let printed = match scheme.name.starts_with("s2") {
                true => workload.printed().unwrap_or(NONE),
                false => NONE,
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {printed} |",
                workload.name(),
                scheme.name,
                cells.join(" | ")
            );
        }
    }
    text
}

fn values(runs: &[&Run], scheme: &str, name: &str) -> Vec<f64> {
    let of = runs.iter().filter(|run| run.scheme.name == scheme);
    of.filter_map(|run| run.figures.get(name)).collect()
}

/// RAID-5's figure over the scheme's, of each repetition that has both.
fn paired(runs: &[&Run], scheme: &Scheme, name: &str) -> Vec<f64> {
    let of = |scheme: &str, repetition: u32| {
        let run = runs
            .iter()
            .find(|run| run.scheme.name == scheme && run.repetition == repetition)?;
        run.figures.get(name).filter(|value| *value > 0.0)
    };
    runs.iter()
        .filter(|run| run.scheme.name == scheme.base)
        .filter_map(|run| Some(of(scheme.base, run.repetition)? / of(scheme.name, run.repetition)?))
        .collect()
}

const NONE: &str = "-";

/// Median, least and most.
fn spread(values: &[f64]) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (sorted.first(), sorted.last()) else {
        return NONE.into();
    };
    let middle = sorted.len() / 2;
    let median = match sorted.len() % 2 {
        0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    };
    match sorted.len() {
        1 => digits(median),
        _ => format!(
            "{} ({} to {})",
            digits(median),
            digits(*least),
            digits(*most)
        ),
    }
}

/// Three digits that count.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(scheme: usize, repetition: u32, rebuild_s: f64) -> Run {
        let mut figures = Figures::default();
        figures.number("rebuild_s", rebuild_s);
        Run {
            workload: Workload::TpcC,
            scheme: SCHEMES[scheme],
            repetition,
            figures,
        }
    }

    #[test]
    fn ratios_are_of_pairs_and_stand_next_to_the_papers() {
        let runs = [
            run(0, 1, 60.0),
            run(1, 1, 10.0),
            run(0, 2, 50.0),
            run(1, 2, 20.0),
            // Without its partner.
            run(1, 3, 1.0),
        ];
        let text = markdown(&runs);
        let line = "| tpcc | s2 | 4.25 (2.50 to 6.00) | - | - | - | over 6 |";
        assert!(text.contains(line), "{text}");
        assert!(
            text.contains("| s2 | 3 | 10.0 (1.00 to 20.0) | - |"),
            "{text}"
        );
        assert!(!text.contains("postmark"));
    }

    #[test]
    fn a_spread_has_the_median_of_an_even_count_too() {
        assert_eq!(spread(&[]), "-");
        assert_eq!(spread(&[123.4]), "123");
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), "2.50 (1.00 to 4.00)");
    }
}
