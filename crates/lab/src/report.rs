//! What a run comes to: tables for a terminal, and one HTML page that needs nothing beside itself.

use crate::chart::Chart;
use crate::latency::{Phase, Sample, summarize, within};
use crate::svg::escape;
use restripe_array::shown;
use std::fmt::Write;

/// A table of text, its first row the heading.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    pub heading: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Columns by one text, with `|` between their names.
    pub fn new(heading: &str) -> Table {
        let heading = heading.split('|').map(String::from).collect();
        Table {
            heading,
            rows: Vec::new(),
        }
    }

    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        assert_eq!(N, self.heading.len(), "a row has a cell for every column");
        self.rows.push(cells.to_vec());
    }

    /// Columns aligned: the first to the left, the others to the right.
    pub fn text(&self) -> String {
        let rows = self.shown();
        let widths = self.widths(&rows);
        let mut out = String::new();
        for row in &rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                // Writing to a string cannot fail, here and below.
                let _ = match column {
                    0 => write!(line, "{cell:<width$}"),
                    _ => write!(line, "  {cell:>width$}"),
                };
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    /// In at most this many columns where that can be: the widest columns are broken at words. Columns of numbers are
    /// aligned to the right.
    pub fn text_within(&self, most: usize) -> String {
        let rows = self.shown();
        let mut widths = self.widths(&rows);
        let least = |column: usize| {
            let words = rows.iter().flat_map(|row| row[column].split(' '));
            words.map(|word| word.chars().count()).max().unwrap_or(0)
        };
        let least: Vec<usize> = (0..widths.len()).map(least).collect();
        let taken =
            |widths: &[usize]| widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        while taken(&widths) > most {
            let breakable = (0..widths.len()).filter(|column| widths[*column] > least[*column]);
            let Some(widest) = breakable.max_by_key(|column| widths[*column]) else {
                break;
            };
            widths[widest] -= 1;
        }
        let number =
            |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit() || "-<".contains(c));
        let right = |column: usize| rows.iter().skip(1).all(|row| number(&row[column]));
        let right: Vec<bool> = (0..widths.len())
            .map(|column| column > 0 && right(column))
            .collect();
        rows.iter()
            .map(|row| lines_of(row, &widths, &right))
            .collect()
    }

    /// The heading and the rows, with what a terminal must not get replaced.
    fn shown(&self) -> Vec<Vec<String>> {
        let rows = std::iter::once(&self.heading).chain(&self.rows);
        let cells = |row: &Vec<String>| row.iter().map(|cell| shown(cell).to_string()).collect();
        rows.map(cells).collect()
    }

    fn widths(&self, rows: &[Vec<String>]) -> Vec<usize> {
        let width = |column: usize| {
            let lengths = rows.iter().map(|row| row[column].chars().count());
            lengths.max().unwrap_or(0)
        };
        (0..self.heading.len()).map(width).collect()
    }

    pub(crate) fn html(&self) -> String {
        let cells = |row: &[String], tag: &str| -> String {
            let cell = |cell: &String| format!("<{tag}>{}</{tag}>", escape(cell));
            row.iter().map(cell).collect()
        };
        let mut out = format!("<table>\n<tr>{}</tr>\n", cells(&self.heading, "th"));
        for row in &self.rows {
            let _ = writeln!(out, "<tr>{}</tr>", cells(row, "td"));
        }
        out.push_str("</table>\n");
        out
    }
}

/// The lines of a row whose cells are broken at words.
fn lines_of(row: &[String], widths: &[usize], right: &[bool]) -> String {
    let cells: Vec<Vec<String>> = row
        .iter()
        .zip(widths)
        .map(|(cell, width)| broken(cell, *width))
        .collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    let mut out = String::new();
    for nth in 0..height {
        let mut line = String::new();
        for ((cell, width), right) in cells.iter().zip(widths).zip(right) {
            let part = cell.get(nth).map_or("", String::as_str);
            let _ = match right {
                true => write!(line, "{part:>width$}  "),
                false => write!(line, "{part:<width$}  "),
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A text in lines of at most this width, unless a word is longer.
fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let length = |line: &String| line.chars().count() + 1 + word.chars().count();
        match lines.last_mut() {
            Some(line) if length(line) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

/// Throughput and latency by phase.
pub fn phases(samples: &[Sample], phases: &[Phase]) -> Table {
    let mut table = Table::new("phase|seconds|requests/s|MiB/s|p50|p99|longest");
    for phase in phases {
        let (summary, length) = (summarize(within(samples, phase)), phase.length_us());
        table.row([
            phase.name.clone(),
            format!("{:.1}", length as f64 / 1e6),
            summary.request_rate(length).to_string(),
            mebibytes(summary.rate(length)),
            duration(summary.p50_us),
            duration(summary.p99_us),
            duration(summary.max_us),
        ]);
    }
    table
}

/// Microseconds, as a person reads them.
pub fn duration(us: u32) -> String {
    match us {
        0..1000 => format!("{us} µs"),
        1000..1_000_000 => format!("{:.2} ms", f64::from(us) / 1e3),
        _ => format!("{:.2} s", f64::from(us) / 1e6),
    }
}

/// Bytes in MiB, with one decimal.
pub fn mebibytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

/// One page: a title, what happened, tables and the chart.
pub struct Page<'a> {
    pub title: &'a str,
    pub lead: &'a str,
    pub tables: &'a [(&'a str, &'a Table)],
    pub chart: &'a Chart<'a>,
    /// Pictures with a style of their own, each with its title and table.
    pub pictures: &'a [(&'a str, &'a str, &'a Table)],
    pub log: &'a [String],
}

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c2430; --paper: #ffffff; --faint: #d7dde5; --band: #f1f5f9;
  --p50: #1f6feb; --p99: #c2410c; --rate: #15803d; --mark: #64748b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e2e8f0; --paper: #0f1620; --faint: #2b3646; --band: #16202d;
  --p50: #6cb2ff; --p99: #ff9d66; --rate: #5fd38d; --mark: #94a3b8; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 980px;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } th, td { padding: .25rem .9rem .25rem 0; text-align: right;
  border-bottom: 1px solid var(--faint); font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; }
svg { width: 100%; height: auto; } svg text { font-size: 12px; fill: var(--ink); }
.band0 { fill: var(--band); } .band1 { fill: none; } .grid { stroke: var(--faint); }
.mark { stroke: var(--mark); stroke-dasharray: 3 3; }
.p50, .p99, .rate { fill: none; stroke-width: 1.6; }
.p50 { stroke: var(--p50); } .p99 { stroke: var(--p99); } .rate { stroke: var(--rate); }
img.own { width: 100%; background: #ffffff; }
pre { background: var(--band); padding: 1rem; overflow-x: auto; }
";

/// A picture as an address that holds it, so that its style is its own.
fn data_of(svg: &str) -> String {
    let mut out = String::from("data:image/svg+xml;charset=utf-8,");
    for character in svg.chars() {
        match character {
            '%' | '#' | '"' | '<' | '>' | '&' | '\n' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "%{:02X}", u32::from(character));
            }
            other => out.push(other),
        }
    }
    out
}

impl Page<'_> {
    pub fn html(&self) -> String {
        let mut out = String::new();
        let _ = write!(
            out,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{0}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{0}</h1>\n<p>{1}</p>\n",
            escape(self.title),
            escape(self.lead)
        );
        out.push_str(&self.chart.svg());
        for (title, table) in self.tables {
            let _ = write!(out, "<h2>{}</h2>\n{}", escape(title), table.html());
        }
        for (title, svg, table) in self.pictures {
            let (source, title) = (data_of(svg), escape(title));
            let image = format!("<img class=\"own\" alt=\"{title}\" src=\"{source}\">");
            let _ = write!(out, "<h2>{title}</h2>\n{image}\n{}", table.html());
        }
        let log: Vec<String> = self.log.iter().map(|line| escape(line)).collect();
        let log = log.join("\n");
        let _ = write!(
            out,
            "<h2>What happened</h2>\n<pre>{log}</pre>\n</body>\n</html>\n"
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Op;

    #[test]
    fn long_cells_are_broken_at_words_and_numbers_are_aligned_to_the_right() {
        let mut table = Table::new("what|value|verdict");
        let row = |what: &str, value: &str, verdict: &str| [what, value, verdict].map(String::from);
        table.row(row(
            "rebuild time of WorkOut over IDO under fin1",
            "1.2",
            "holds",
        ));
        table.row(row("response", "10", "one run (agrees)"));
        let shown = table.text_within(40);
        let wanted = "what              value  verdict\n\
                      rebuild time of     1.2  holds\n\
                      WorkOut over IDO\n\
                      under fin1\n\
                      response             10  one run\n\
                      \u{20}                        (agrees)\n";
        assert_eq!(shown, wanted);
        // Words are not broken: it is as narrow as it can be.
        assert!(
            table
                .text_within(1)
                .lines()
                .any(|line| line.starts_with("response"))
        );
        assert!(table.text_within(200).lines().count() == 3);
    }

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new("phase|p50");
        table.row(["before".into(), "90 µs".into()]);
        table.row(["x".into(), "1.20 ms".into()]);
        let aligned = "phase       p50\nbefore    90 µs\nx       1.20 ms\n";
        assert_eq!(table.text(), aligned);
    }

    #[test]
    fn phases_are_measured_by_themselves() {
        let sample = |at_us, latency_us| Sample {
            at_us,
            latency_us,
            bytes: 1 << 20,
            op: Op::Read,
        };
        let samples = [sample(100, 10), sample(1_500_000, 2000)];
        let after = Phase::new("after", 1_000_000, 2_000_000);
        let table = phases(&samples, &[Phase::new("before", 0, 1_000_000), after]);
        assert_eq!(table.rows[0][..4], ["before", "1.0", "1", "1.0"]);
        assert_eq!(table.rows[0][4..], ["10 µs"; 3]);
        assert_eq!(table.rows[1][4], "2.00 ms");
    }

    #[test]
    fn the_page_needs_nothing_beside_itself() {
        let chart = Chart {
            steps: &[],
            step_us: 1,
            phases: &[],
            marks: &[],
        };
        let table = Table::new("a");
        let log = ["<killed>".to_string()];
        let page = Page {
            title: "A & B",
            lead: "x",
            tables: &[("T", &table)],
            chart: &chart,
            pictures: &[("P", "<svg x=\"#1\">&\n</svg>", &table)],
            log: &log,
        };
        let html = page.html();
        assert!(html.contains("<title>A &amp; B</title>") && html.contains("&lt;killed&gt;"));
        let picture =
            "src=\"data:image/svg+xml;charset=utf-8,%3Csvg x=%22%231%22%3E%26%0A%3C/svg%3E\"";
        assert!(html.contains(picture));
        let html = html.replace(picture, "");
        for outside in ["http:", "https:", "src=", "<link", "@import"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
