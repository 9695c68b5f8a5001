//! `assemble`: starts arrays, prints how they are, and stops them.

use crate::args::StartOptions;
use crate::args::config::members_from;
use crate::arrays::opening::by_array;
use crate::arrays::setup::Setup;
use crate::daemon::event_log::tell_of_losses;
use crate::daemon::running::Running;
use crate::failure::{Failure, Outcome};
use crate::print::status;
use crate::print::terminal::print;
use clap::Args;
use restripe_io::control::StatusView;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct Assemble {
    /// The members of one array and of its surrogate
    #[arg(value_name = "MEMBER", required_unless_present = "config")]
    pub members: Vec<String>,
    /// Read the members from this file
    #[arg(long, value_name = "FILE", conflicts_with = "members")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub start: StartOptions,
    /// Print the status as JSON
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(verb: Assemble) -> Outcome {
    let members = members_from(verb.members, verb.config.as_deref())?;
    let setup = Setup {
        start: verb.start.mode(),
        degraded: verb.start.degraded,
        ..Setup::default()
    };
    let running = Running::start(&by_array(members, setup.start)?, &setup)?;
    let views = running
        .controls()
        .iter()
        .map(|control| control.array.status())
        .collect::<Result<Vec<StatusView>, _>>();
    let controls = running.controls().to_vec();
    let stopped = running.stop();
    if let Ok(views) = &views {
        tell_of_losses(&controls, views);
    }
    stopped?;
    for view in views? {
        if verb.json {
            print(serde_json::to_string(&view).map_err(|error| Failure::new(error.to_string()))?);
        } else {
            print(status::text(&view).trim_end());
        }
    }
    Ok(())
}
