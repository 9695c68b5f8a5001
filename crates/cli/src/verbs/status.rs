//! `status`: asks how arrays are, and prints it.

use crate::failure::{Failure, Outcome};
use crate::print::status::text;
use crate::print::terminal::{finish, out, outln, say_failure};
use crate::verbs::session::Session;
use clap::Args;
use restripe_io::control::{ClientError, Reply, Request, StatusView, ask, running};
use std::thread::{self, ScopedJoinHandle};

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// Name of the array [default: every served array, or the array of the members given with --offline]
    pub name: Option<String>,
    /// Read these members directly, without a daemon; changes nothing
    #[arg(long, value_name = "MEMBER", num_args = 1..)]
    pub offline: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Exit with 0 if all arrays are healthy, 1 if an array is degraded, 2 if an array has failed, 3 if the
    /// state is unknown, for example because no array is served
    #[arg(long)]
    pub exit_code: bool,
}

pub(crate) fn run(verb: &Status) -> Outcome {
    let (views, unanswered) = views(verb).map_err(|failure| match verb.exit_code {
        true => failure.with_code(NOT_KNOWN),
        false => failure,
    })?;
    if verb.json {
        let one = verb.name.is_some() || !verb.offline.is_empty();
        outln!("{}", as_json(&views, one)?);
    } else if views.is_empty() && unanswered.is_empty() {
        outln!("no array is served");
    } else {
        let texts: Vec<String> = views.iter().map(text).collect();
        out!("{}", texts.join("\n"));
    }
    unanswered.iter().for_each(say_failure);
    match (verb.exit_code, unanswered.is_empty()) {
        (true, all) => finish()
            .map_err(|failure| failure.with_code(NOT_KNOWN))
            .and_then(|()| worst(&views, all)),
        (false, true) => Ok(()),
        (false, false) => Err(Failure::silent(1)),
    }
}

/// How the arrays are, and why others do not answer.
fn views(verb: &Status) -> Outcome<(Vec<StatusView>, Vec<Failure>)> {
    let one = match &verb.name {
        name if !verb.offline.is_empty() => offline(name.as_deref(), &verb.offline)?,
        Some(name) => Session::open_to_look(name, &[])?.status()?,
        None => {
            let (views, failures): (Vec<_>, Vec<_>) =
                everything()?.into_iter().partition(Result::is_ok);
            let views = views.into_iter().flatten().collect();
            let failures = failures.into_iter().filter_map(Result::err).collect();
            return Ok((views, failures));
        }
    };
    Ok((vec![one], Vec::new()))
}

/// As an exit status, how the worst of these arrays is; `all`: none but these is served.
fn worst(views: &[StatusView], all: bool) -> Outcome {
    let grave = |view: &StatusView| match view.state.as_str() {
        "healthy" => 0,
        "failed" => FAILED,
        "starting" | "stopping" | "stopped" => NOT_KNOWN,
        _ => DEGRADED,
    };
    // Of an array that is not known less is known than of a failed one, but that one is worse.
    let order = |code: &u8| {
        [0, DEGRADED, NOT_KNOWN, FAILED]
            .iter()
            .position(|one| one == code)
    };
    match views
        .iter()
        .map(grave)
        .chain((!all).then_some(NOT_KNOWN))
        .max_by_key(order)
        .unwrap_or(NOT_KNOWN)
    {
        0 => Ok(()),
        code => Err(Failure::silent(code)),
    }
}

/// Exit status of `--exit-code`.
const DEGRADED: u8 = 1;

const FAILED: u8 = 2;

const NOT_KNOWN: u8 = 3;

/// The array of these members, whatever it is called if no name is given.
fn offline(name: Option<&str>, members: &[String]) -> Outcome<StatusView> {
    Session::of_members_to_look(name, members)?.end_after(Session::status)
}

/// Every array that has a control socket. All are asked at once, so daemons that hang cost the time of one.
pub(crate) fn everything() -> Outcome<Vec<Outcome<StatusView>>> {
    let names = running()?;
    let views: Vec<_> = thread::scope(|scope| {
        let asked: Vec<_> = names
            .iter()
            .map(|name| scope.spawn(|| served(name)))
            .collect();
        let ended = asked.into_iter().map(ScopedJoinHandle::join);
        ended.map(|view| view.expect("it panics nowhere")).collect()
    });
    Ok(views.into_iter().flatten().collect())
}

/// The status of a served array. None where a killed daemon left its socket.
fn served(name: &str) -> Option<Outcome<StatusView>> {
    let view = match ask(name, &Request::Status) {
        Err(ClientError::NotRunning { .. }) => return None,
        Ok(Reply::Status(view)) => Ok(*view),
        Ok(_) => Err(Failure::unexpected("status")),
        Err(error) => Err(Failure::from(error)),
    };
    Some(view.map_err(|failure| failure.at(name)))
}

/// One object for one array, a list for all.
fn as_json(views: &[StatusView], one: bool) -> Outcome<String> {
    let written = match views {
        [view] if one => serde_json::to_string(view),
        views => serde_json::to_string(views),
    };
    written.map_err(|error| Failure::new(error.to_string()))
}
