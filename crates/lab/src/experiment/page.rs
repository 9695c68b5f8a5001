//! One HTML report of an experiment, with everything in it: no other file, no network.

use super::outcome::Outcome;
use crate::report::Table;
use crate::svg::escape;
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;color:#1c2430;background:#fff;max-width:1080px;margin:2rem auto;\
padding:0 1rem}h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;display:block;\
overflow-x:auto}th,td{padding:.2rem .8rem .2rem 0;text-align:right;border-bottom:1px solid #d7dde5;\
font-variant-numeric:tabular-nums}th:first-child,td:first-child{text-align:left}svg{width:100%;max-width:800px;height:auto}";

/// A page from a title, paragraphs, figures and tables.
pub fn html(
    title: &str,
    lead: &[String],
    figures: &[(String, String)],
    tables: &[(&str, &Table)],
) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{0}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
        escape(title)
    );
    // Writing to a string cannot fail, here and below.
    for paragraph in lead {
        let _ = writeln!(out, "<p>{}</p>", escape(paragraph));
    }
    for (_, svg) in figures {
        out.push_str(svg);
    }
    for (name, table) in tables {
        if !table.rows.is_empty() {
            let _ = write!(out, "<h2>{}</h2>\n{}", escape(name), table.html());
        }
    }
    out.push_str("</body>\n</html>\n");
    out
}

/// The report of an experiment.
pub fn report(outcome: &Outcome<'_>, figures: &[(String, String)]) -> String {
    let scenario = outcome.scenario;
    let lead = [
        scenario.question.trim().to_string(),
        format!(
            "{} runs: {} points of up to {} seeds. Values are geometric means over the seeds; intervals are of 95%. \
             \"sat.\": a phase was offered more than it could serve, so its times tell how long it lasted.",
            outcome.runs.len(),
            outcome.groups().count(),
            scenario.looks().last().copied().unwrap_or_default()
        ),
    ];
    let compared = outcome.comparison_table(&outcome.compared());
    let tables = [
        ("Results", &outcome.table()),
        ("Comparisons, seed by seed", &compared),
        ("Compared with the printed figures", &outcome.judged_table()),
        ("Fixed parameters", &outcome.fixed_table()),
    ];
    html(&scenario.title, &lead, figures, &tables)
}
