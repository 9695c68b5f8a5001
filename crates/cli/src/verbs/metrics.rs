//! `metrics`: an array's counters in the Prometheus text format.

use crate::failure::{Failure, Outcome};
use crate::print::terminal::print;
use crate::verbs::session::Session;
use clap::Args;
use restripe_io::control::{Reply, Request};

#[derive(Args, Debug)]
pub(crate) struct Metrics {
    /// Name of the array
    pub name: String,
    /// Read these members directly, without a daemon; changes nothing
    #[arg(long, value_name = "MEMBER", num_args = 1..)]
    pub offline: Vec<String>,
}

pub(crate) fn run(target: &Metrics) -> Outcome {
    let session = Session::open_to_look(&target.name, &target.offline)?;
    match session.end_after(|session| session.ask(&Request::Metrics))? {
        Reply::Metrics { text } => {
            print(text.trim_end());
            Ok(())
        }
        _ => Err(Failure::unexpected("metrics")),
    }
}
