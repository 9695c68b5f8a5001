//! `surrogate status`: the surrogate's members, what lies there, what it has done.

use crate::args::{SurrogateLevel, Target, WithoutDaemon, served_level_parser};
use crate::arrays::origin::Whose;
use crate::failure::{Failure, Outcome};
use crate::print::surrogate::{details, text};
use crate::print::terminal::{Progress, out, outln, print};
use crate::units::Size;
use crate::verbs::members::confirm_overwriting;
use crate::verbs::session::{Session, absolute};
use crate::verbs::watch::{LOOK_EVERY, begun_at, is_rebuild, watch};
use clap::{Args, Subcommand, ValueEnum};
use restripe_io::control::{OverlayView, Request, StatusView};
use std::thread;

#[derive(Subcommand, Debug)]
pub(crate) enum Surrogate {
    /// Show the surrogate's members, its contents, and its counters
    Status(SurrogateStatus),
    /// Add a surrogate to an array that has none
    Add(AddSurrogate),
    /// Remove the surrogate; its log is destaged first if it holds at most 64M
    Remove(Target),
    /// Destage a code cache, a log disk, or writes that are on primary copies only
    Destage(DestageNow),
}

#[derive(Args, Debug)]
pub(crate) struct DestageNow {
    #[command(flatten)]
    pub target: Target,
    /// Return when everything that was logged at the request is destaged; --offline always waits
    #[arg(long)]
    pub wait: bool,
}

#[derive(Args, Debug)]
pub(crate) struct AddSurrogate {
    /// Name of the array that gets the surrogate
    pub name: String,
    /// Members of the surrogate, two or more: files, block devices or NBD URIs; or the URI of a lease of
    /// another array
    #[arg(required = true)]
    pub members: Vec<String>,
    /// RAID level of the surrogate [default: raid1 for two members, raid5 for more]
    #[arg(long, value_name = "LEVEL", value_parser = served_level_parser())]
    pub level: Option<SurrogateLevel>,
    #[command(flatten)]
    pub without_daemon: WithoutDaemon,
    /// Overwrite what the devices contain; lists what will be lost and asks
    #[arg(long)]
    pub force: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SurrogateStatus {
    /// Name of the array with the surrogate
    pub name: String,
    /// Read these members of the array and of the surrogate directly, without a daemon; changes nothing
    #[arg(long, value_name = "MEMBER", num_args = 1..)]
    pub offline: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn status(verb: &SurrogateStatus) -> Outcome {
    let session = Session::open_to_look(&verb.name, &verb.offline)?;
    let status = session.end_after(Session::status)?;
    let Some(surrogate) = status.surrogate else {
        let what = format!("{} is served without a surrogate", verb.name);
        let hint = "add one with `restripe surrogate add`; then name its members together with the array's";
        return Err(Failure::new(what).hint(hint));
    };
    if verb.json {
        let json = serde_json::to_string(&surrogate);
        outln!("{}", json.map_err(|error| Failure::new(error.to_string()))?);
        return Ok(());
    }
    out!("{}{}", text(&surrogate), details(&surrogate));
    Ok(())
}

pub(crate) fn add(verb: &AddSurrogate) -> Outcome {
    Session::open(&verb.name, &verb.without_daemon)?.end_after(|session| {
        let members: Vec<String> = verb.members.iter().map(|name| absolute(name)).collect();
        for member in &members {
            confirm_overwriting(session, member, verb.force, verb.yes)?;
        }
        let level = verb.level.as_ref().and_then(ValueEnum::to_possible_value);
        session.order(&Request::AddSurrogate {
            members,
            level: level.map(|level| level.get_name().into()),
            force: verb.force,
        })
    })
}

pub(crate) fn remove(verb: &Target) -> Outcome {
    let session = Session::open(&verb.name, &verb.without_daemon)?;
    session.end_after(|session| session.order(&Request::RemoveSurrogate))
}

pub(crate) fn destage(verb: &DestageNow) -> Outcome {
    let DestageNow { target, wait } = verb;
    let session = Session::open(&target.name, &target.without_daemon)?;
    session.end_after(|session| {
        if !wait && session.is_served() {
            return session.order(&Request::Destage);
        }
        let status = session.status()?;
        let resyncs = status.tasks.iter().any(|task| task.kind == "resync");
        match overlay_of(&status) {
            // Further copies are being brought in step with the first ones, which went ahead without a log.
            None if resyncs => {
                let since = begun_at(session, is_rebuild)?;
                watch(session, since, Whose::Array, is_rebuild)?.succeed("the resync")?;
                print("all copies are in sync");
                Ok(())
            }
            overlay => {
                let begun = overlay.map_or(0, |overlay| overlay.destages);
                session.ask(&Request::Destage)?;
                wait_for_home(session, begun)
            }
        }
    })
}

fn overlay_of(status: &StatusView) -> Option<&OverlayView> {
    status.surrogate.as_ref()?.overlay.as_ref()
}

/// Waits until a way home that began after so many others has ended, or nothing is away.
fn wait_for_home(session: &Session, begun: u64) -> Outcome {
    let mut progress = Progress::new();
    loop {
        let status = session.status()?;
        let Some(overlay) = overlay_of(&status) else {
            return Err(Failure::new("the log is no longer served"));
        };
        let left = overlay.away_bytes + overlay.ahead_bytes;
        let ended = overlay.destages > begun && !overlay.going_home;
        // Users go on to write.
        if left == 0 || ended && session.is_served() {
            drop(progress);
            print("destage complete");
            return Ok(());
        }
        let fails = overlay.broken || !["healthy", "degraded"].contains(&status.state.as_str());
        if fails || ended {
            let what = format!("{} cannot be destaged", Size(left));
            return Err(Failure::new(what).hint("`restripe status` shows the failure"));
        }
        progress.show(&format!("{} to destage", Size(left)));
        thread::sleep(LOOK_EVERY);
    }
}
