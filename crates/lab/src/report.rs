//! What a run comes to: tables for a terminal, and one HTML page that needs nothing beside itself.

use crate::latency::{Phase, Sample, summarize, within};
use crate::plot::Plot;
use crate::plot::style::SHEET;
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

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        assert_eq!(
            cells.len(),
            self.heading.len(),
            "a row has a cell for every column"
        );
        self.rows.push(cells);
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

    /// In a box of its own that scrolls where the window is narrower.
    pub(crate) fn html(&self) -> String {
        self.html_with(&[])
    }

    /// The same, with what is shown when a reader points at a column's name; empty: nothing. Columns of
    /// numbers are aligned to the right.
    pub(crate) fn html_with(&self, hints: &[String]) -> String {
        let columns = 0..self.heading.len();
        let classes: Vec<&str> = columns.map(|column| self.class(column)).collect();
        let heading = self.heading.iter().enumerate().map(|(column, name)| {
            let hint = hints.get(column).filter(|hint| !hint.is_empty());
            let hint = hint.map_or(String::new(), |hint| format!(" title=\"{}\"", escape(hint)));
            format!("<th{}{hint}>{}</th>", classes[column], escape(name))
        });
        let heading: String = heading.collect();
        let mut out = format!("<div class=\"scroll\"><table>\n<tr>{heading}</tr>\n");
        for row in &self.rows {
            let cells = row.iter().zip(&classes);
            let cells = cells.map(|(cell, class)| format!("<td{class}>{}</td>", escape(cell)));
            let _ = writeln!(out, "<tr>{}</tr>", cells.collect::<String>());
        }
        out.push_str("</table></div>\n");
        out
    }

    /// The class of a column's cells: of text where no cell begins with a digit, of long text where one is
    /// long.
    fn class(&self, column: usize) -> &'static str {
        let cells = || self.rows.iter().filter_map(|row| row.get(column));
        let number = |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit() || c == '<');
        match (cells().any(number), cells().any(|cell| cell.len() > 24)) {
            (_, true) => " class=\"text long\"",
            (false, false) => " class=\"text\"",
            (true, false) => "",
        }
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

// --------------------------------------------------------------------------------------------------- pages

/// Where the numbers of a page come from. The command passes it in, so a page is a function of
/// its inputs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Provenance {
    /// What makes the page again.
    pub command: String,
    pub version: String,
    /// Of the program's source; empty where it is not known.
    pub commit: String,
    /// Cores, and the processor's model where it is known.
    pub machine: String,
    pub date: String,
}

impl Provenance {
    fn html(&self) -> String {
        let rows = [
            ("Command", format!("<code>{}</code>", escape(&self.command))),
            ("Version", escape(&self.version)),
            ("Commit", escape(&self.commit)),
            ("Machine", escape(&self.machine)),
            ("Date", escape(&self.date)),
        ];
        let rows = rows.into_iter().filter(|(_, value)| !value.is_empty());
        let row = |(name, value): (&str, String)| format!("<dt>{name}</dt><dd>{value}</dd>\n");
        let rows: String = rows.map(row).collect();
        format!("<dl>\n{rows}</dl>\n")
    }
}

const STYLE: &str = "\
:root{color-scheme:light dark;--text:#1c2430;--page:#fff;--rule:#dde3ea;--quiet:#5b6878;--box:#f1f5f9}
@media screen and (prefers-color-scheme:dark){:root{--text:#e2e8f0;--page:#0f1620;--rule:#2b3646;--quiet:#9aa8ba;--box:#16202d}}
body{font:16px/1.5 system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif;color:var(--text);background:var(--page);\
max-width:1000px;margin:2rem auto;padding:0 1rem;overflow-wrap:break-word}
h1{font-size:1.5rem;line-height:1.25}h2{font-size:1.15rem;margin-top:2.2rem}
dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.15rem 1rem;font-size:.875rem;color:var(--quiet);margin:1rem 0}
dt{font-weight:600}dd{margin:0}
code{font-family:ui-monospace,Menlo,Consolas,\"DejaVu Sans Mono\",monospace;font-size:.9em;overflow-wrap:anywhere}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.875rem;line-height:1.35}
th,td{padding:.3rem .9rem .3rem 0;text-align:right;vertical-align:bottom;border-bottom:1px solid var(--rule);\
font-variant-numeric:tabular-nums;white-space:nowrap}td{vertical-align:top}
th{font-weight:600;min-width:4.2rem;max-width:12rem;white-space:normal}
th:first-child,td:first-child,.text{text-align:left}.long{white-space:normal;min-width:12rem}th[title]{text-decoration:underline dotted var(--quiet)}
.words td,.words th{text-align:left;white-space:normal}.words td{min-width:6rem}.words td:first-child{min-width:13rem}small{color:var(--quiet)}
.verdict{font-weight:600}
.figure{margin:2rem 0;max-width:720px}.figure .narrow{display:none}
@media (max-width:600px){body{margin:1rem auto;padding:0 .75rem}.figure .wide{display:none}.figure .narrow{display:block}}
@media print{body{margin:0;max-width:none}.figure{break-inside:avoid}.figure .wide{display:block}.figure .narrow{display:none}\
.scroll{overflow:visible}table{font-size:.6rem;width:100%}th,td{padding-right:.3rem;white-space:normal}\
th,.long,.words td,.words td:first-child{min-width:0}}
summary{cursor:pointer;font-weight:600;margin:.8rem 0}
pre{background:var(--box);padding:1rem;overflow-x:auto;font-size:.8rem}
";

/// A whole page, with everything in it: no other file, no network.
pub(crate) fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{0}</title>\n<style>{STYLE}{SHEET}</style>\n</head>\n<body>\n<h1>{0}</h1>\n{body}</body>\n</html>\n",
        escape(title)
    )
}

/// The head of a page: paragraphs, verdicts, and where it comes from.
pub(crate) fn head(lead: &[String], verdicts: &[String], provenance: &Provenance) -> String {
    let words = |text: &String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let lead = lead
        .iter()
        .map(|text| format!("<p>{}</p>\n", escape(&words(text))));
    let verdicts = verdicts
        .iter()
        .map(|text| format!("<p class=\"verdict\">{}</p>\n", escape(&words(text))));
    let head: String = lead.chain(verdicts).collect();
    head + &provenance.html()
}

/// A figure of a page, for wide windows and for narrow ones.
pub(crate) fn figure(plot: &Plot) -> String {
    format!("<div class=\"figure\">\n{}</div>\n", plot.inline())
}

/// A part of a page.
pub(crate) fn section(title: &str, html: &str) -> String {
    format!("<h2>{}</h2>\n{html}", escape(title))
}

/// The page of a demonstration: what happened, tables and figures.
pub struct Page<'a> {
    pub title: &'a str,
    pub lead: &'a str,
    pub verdict: &'a str,
    pub provenance: &'a Provenance,
    pub chart: &'a Plot,
    pub tables: &'a [(&'a str, &'a Table)],
    /// Further figures, each with its title and its table in HTML.
    pub pictures: &'a [(&'a str, &'a Plot, &'a str)],
    pub log: &'a [String],
}

impl Page<'_> {
    pub fn html(&self) -> String {
        let mut body = head(&[self.lead.into()], &[self.verdict.into()], self.provenance);
        body += &figure(self.chart);
        for (title, table) in self.tables {
            body += &section(title, &table.html());
        }
        for (title, plot, table) in self.pictures {
            body += &section(title, &(figure(plot) + table));
        }
        let log: Vec<String> = self.log.iter().map(|line| escape(line)).collect();
        body += &section("What happened", &format!("<pre>{}</pre>\n", log.join("\n")));
        document(self.title, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Chart;
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
            title: "C",
            steps: &[],
            step_us: 1,
            phases: &[],
            marks: &[],
        };
        let table = Table::new("a");
        let log = ["<killed>".to_string()];
        let provenance = Provenance {
            command: "restripe demo --report 'a b.html'".into(),
            version: "restripe 0.1.0".into(),
            commit: String::new(),
            machine: "2 cores".into(),
            date: "2026-01-01".into(),
        };
        let page = Page {
            title: "A & B",
            lead: "x\n  y",
            verdict: "all is well",
            provenance: &provenance,
            tables: &[("T", &table)],
            chart: &chart.plot(),
            pictures: &[("P", &chart.plot(), "<table></table>")],
            log: &log,
        };
        let html = page.html();
        assert!(html.contains("<title>A &amp; B</title>") && html.contains("&lt;killed&gt;"));
        for told in [
            "<p>x y</p>",
            "all is well",
            &provenance.command,
            "2 cores",
            "2026-01-01",
        ] {
            assert!(html.contains(told), "{told}");
        }
        for outside in ["http:", "https:", "src=", "<link", "@import"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }

    #[test]
    fn a_table_scrolls_alone_and_its_names_have_hints() {
        let mut table = Table::new("rebuild time, s|x");
        table.row(["a<1>".into(), "2".into()]);
        let html = table.html_with(&["rebuild_s".into()]);
        assert!(html.starts_with("<div class=\"scroll\"><table>"));
        let first = "<th class=\"text\" title=\"rebuild_s\">rebuild time, s</th><th>x</th>";
        assert!(html.contains(first), "{html}");
        assert!(html.contains("<td class=\"text\">a&lt;1&gt;</td><td>2</td>"));
    }
}
