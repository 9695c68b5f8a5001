//! The comparison that ends `demo`: md's rebuild (PR) and IDO's under one load, with a picture of both.
//!
//! The drives are simulated, in virtual time: it takes seconds, and the result is the same on every machine.

use crate::failure::{Failure, Outcome as Result};
use crate::verbs::lab::experiments::{cells, load};
use restripe_lab::experiment::outcome::{Outcome, Run};
use restripe_lab::experiment::runner::Runner;
use restripe_lab::experiment::{figure, page};
use restripe_lab::plot::Plot;
use restripe_lab::report::Table;

const SCENARIO: &str = "pr-vs-ido";

pub(crate) struct SchemeComparison {
    pub title: String,
    pub table: Table,
    /// The table in words, as a page has it.
    pub html: String,
    pub plot: Plot,
}

pub(crate) fn run() -> Result<SchemeComparison> {
    let scenario = load(SCENARIO)?.shortened();
    let cells = cells(&scenario)?;
    let runner = Runner {
        threads: cells.len(),
        cache: None,
        fresh: false,
        progress: &|_| {},
    };
    let logs = runner
        .run(&cells)
        .map_err(|failed| Failure::new(failed.to_string()))?;
    let runs = cells.into_iter().zip(logs);
    let runs = runs.map(|(cell, log)| Run { cell, log }).collect();
    let outcome = Outcome::new(&scenario, runs);
    let picture = figure::all(&outcome).pop();
    let picture =
        picture.ok_or_else(|| Failure::new("the simulated array received no requests"))?;
    Ok(SchemeComparison {
        title: scenario.title.clone(),
        table: outcome.table(),
        html: page::results(&outcome),
        plot: picture.plot,
    })
}
