//! A trace's summary as a person reads it, and as JSON.

use restripe_array::shown;
use restripe_lab::trace::locality::ByZone;
use restripe_lab::trace::{BLOCK_BYTES, Features, Format, Summary};
use serde_json::json;
use std::fmt::Write;
use std::path::Path;

/// Shades of the heat map, from nothing to the most.
const SHADES: [char; 6] = [' ', '.', ':', '+', '#', '@'];
const TOP_SIZES: usize = 5;

pub(crate) struct Shown<'a> {
    pub file: &'a Path,
    pub format: &'static Format,
    pub features: Features,
    pub label: Option<&'a str>,
    pub skipped: u64,
    pub summary: &'a Summary,
}

impl Shown<'_> {
    pub fn json(&self) -> String {
        let summary = self.summary;
        let value = json!({
            "file": self.file.display().to_string(),
            "format": self.format.name,
            "label": self.label,
            "synthetic": self.label.is_some_and(|label| label.starts_with("synthetic")),
            "has_times": self.features.times,
            "has_operations": self.features.ops,
            "skipped": self.skipped,
            "write_percent": summary.write_share().filter(|_| self.features.ops),
            "footprint_bytes": summary.footprint_blocks * BLOCK_BYTES,
            "summary": summary,
        });
        serde_json::to_string_pretty(&value).expect("a summary is plain data")
    }

    pub fn text(&self) -> String {
        let mut lines = Lines::default();
        self.counts(&mut lines);
        self.times(&mut lines);
        self.places(&mut lines);
        let mut text = lines.0;
        text.push_str(&self.locality());
        text.push_str(&self.heat());
        text
    }

    fn counts(&self, lines: &mut Lines) {
        let s = self.summary;
        lines.add("trace", &self.file.display().to_string());
        if let Some(label) = self.label {
            lines.add("label", label);
        }
        let Format { name, about, .. } = self.format;
        lines.add("format", &format!("{name}: {about}"));
        let others = format!("(plus {} discards and {} flushes)", s.discards, s.flushes);
        lines.add("requests", &format!("{} {others}", s.requests));
        if self.skipped > 0 {
            lines.add("skipped", &format!("{} bad records", self.skipped));
        }
        let directions = self.features.ops;
        lines.add("writes", &percent(s.write_share().filter(|_| directions)));
        let mut mean = kib(s.mean_bytes());
        if directions {
            let (read, written) = (kib(s.mean_read_bytes()), kib(s.mean_written_bytes()));
            mean = format!("{mean} (reads {read}, writes {written})");
        }
        lines.add("mean size", &mean);
        let size = |(bytes, share): &(u64, f64)| format!("{bytes} B {share:.1}%");
        let sizes: Vec<String> = s.top_sizes(TOP_SIZES).iter().map(size).collect();
        lines.add("top sizes", &sizes.join(", "));
    }

    fn times(&self, lines: &mut Lines) {
        let s = self.summary;
        lines.add("duration", &seconds(s.duration_ns));
        let peak = s.iops_peak.map_or("-".into(), |peak| peak.to_string());
        let mean = number(s.iops_mean);
        lines.add(
            "rate",
            &format!("{mean} per second, {peak} in the busiest second"),
        );
        let (cv, dispersion, gap) = (
            number(s.gap_cv),
            number(s.dispersion),
            seconds(s.gap_max_ns),
        );
        let bursts = format!("gap CV {cv}, dispersion {dispersion}, longest gap {gap}");
        lines.add("burstiness", &bursts);
        if s.disordered > 0 {
            let count = s.disordered;
            lines.add(
                "order",
                &format!("{count} requests recorded out of order; sorted here"),
            );
        }
    }

    fn places(&self, lines: &mut Lines) {
        let s = self.summary;
        let mib = s.footprint_blocks as f64 / 256.0;
        let blocks = s.footprint_blocks;
        lines.add(
            "footprint",
            &format!("{blocks} blocks of 4 KiB ({mib:.1} MiB)"),
        );
        lines.add("sequential", &percent(s.sequential));
        lines.add("rewrite", &percent(s.rewrite.filter(|_| self.features.ops)));
        lines.add("reuse", &percent(s.reuse));
        let extent = s.devices.values().copied().fold(0, u64::saturating_add);
        let gib = extent as f64 / (1u64 << 30) as f64;
        let count = s.devices.len();
        lines.add("devices", &format!("{count} spanning {gib:.1} GiB"));
    }

    fn locality(&self) -> String {
        let what = if self.features.ops {
            "Reads"
        } else {
            "Accesses"
        };
        let mut text = format!(
            "\n{what} by zone, % in the hottest 10/20/30% of zones; learned: ranked by the first half, scored on the second\n\
             \x20    zone    zones  in-sample            null  learned 10/20/30/all        alt reactive  theta\n"
        );
        for zone in &self.summary.locality.zones {
            text.push_str(&zone_line(zone));
        }
        let locality = &self.summary.locality;
        let [first, second] = [locality.request_proactive, locality.request_reactive].map(percent);
        let _ = writeln!(
            text,
            "Reads repeated as whole requests: {first} from the first half, {second} within the second"
        );
        text
    }

    fn heat(&self) -> String {
        let cells = &self.summary.heat.cells;
        let most = cells.iter().flatten().copied().max().unwrap_or(0);
        let axis = if self.features.times {
            "time"
        } else {
            "number"
        };
        let mut text = format!("\nRequests by address (down) and {axis} (across); @ is {most}\n");
        for row in cells {
            let shades: String = row.iter().map(|count| shade(*count, most)).collect();
            let _ = writeln!(text, "  |{shades}|");
        }
        text
    }
}

/// By the logarithm: rare requests are seen beside bursts.
fn shade(count: u64, most: u64) -> char {
    if count == 0 {
        return SHADES[0];
    }
    let steps = (SHADES.len() - 2) as f64;
    let level = (count as f64).ln() / (most.max(2) as f64).ln() * steps;
    SHADES[1 + (level as usize).min(SHADES.len() - 2)]
}

fn zone_line(zone: &ByZone) -> String {
    let list = |shares: &[Option<f64>]| {
        let shown: Vec<String> = shares.iter().map(|share| whole(*share)).collect();
        shown.join(" / ")
    };
    let learned = [&zone.learned[..], &[zone.learned_all]].concat();
    format!(
        "{:>5} KiB {:>8}  {:<19} {:>5}  {:<25} {:>5} {:>8} {:>6}\n",
        zone.zone_bytes >> 10,
        zone.zones,
        list(&zone.in_sample),
        whole(zone.null),
        list(&learned),
        whole(zone.alternating),
        whole(zone.reactive),
        number(zone.theta)
    )
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, value: &str) {
        let _ = writeln!(self.0, "{name:<11} {}", shown(value));
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.2}"))
}

fn whole(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.0}"))
}

fn percent(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.1}%"))
}

fn kib(bytes: Option<f64>) -> String {
    bytes.map_or("-".into(), |bytes| format!("{:.2} KiB", bytes / 1024.0))
}

fn seconds(ns: Option<u64>) -> String {
    ns.map_or("-".into(), |ns| format!("{:.3} s", ns as f64 / 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_run_from_nothing_to_the_most() {
        assert_eq!(shade(0, 100), ' ');
        assert_eq!(shade(1, 100), '.');
        assert_eq!(shade(100, 100), '@');
        assert_eq!(shade(1, 1), '.');
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        assert_eq!(percent(None), "-");
        assert_eq!(seconds(Some(1_500_000_000)), "1.500 s");
    }
}
