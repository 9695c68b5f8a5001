//! `stop`: ends an array's service, and waits until its name is free.

use crate::failure::{Failure, Outcome};
use crate::print::terminal::print_note;
use crate::verbs::session::Session;
use clap::Args;
use restripe_io::control::{Request, wait_until_free};
use std::time::Duration;

#[derive(Args, Debug)]
pub(crate) struct Stop {
    /// Name of the array
    pub name: String,
}

/// How long a daemon that has stopped its array may take to give up the array's name.
const FREE_WITHIN: Duration = Duration::from_secs(5);

pub(crate) fn run(verb: &Stop) -> Outcome {
    let session = Session::open_to_look(&verb.name, &[])?;
    // The usual hint, to work on the members, leads nowhere: there is nothing to stop.
    let hint =
        "`restripe status` lists the served arrays; an array that is not served needs no stop";
    session
        .status()
        .map_err(|failure| match failure.is_not_running() {
            true => failure.hint(hint),
            false => failure,
        })?;
    let stopped = session.order(&Request::Stop);
    let ended = stopped.as_ref().err().is_none_or(Failure::is_of_ended);
    if ended && !wait_until_free(&verb.name, FREE_WITHIN)? {
        let name = &verb.name;
        print_note(&format!(
            "the name {name} is still in use: the daemon has not ended, or another daemon has started"
        ));
    }
    stopped
}
