//! `fail`, `remove`, `add` and `replace`: the verbs about one member.

use crate::args::WithoutDaemon;
use crate::arrays::member::{content, open};
use crate::arrays::origin::Whose;
use crate::failure::Outcome;
use crate::print::terminal::{confirm_one, print_note};
use crate::units::Size;
use crate::verbs::session::{Session, absolute};
use crate::verbs::watch::{is_rebuild, watch};
use clap::Args;
use restripe_io::control::{MemberView, Request, StatusView};

#[derive(Args, Debug)]
pub(crate) struct FailMember {
    #[command(flatten)]
    pub of: OnMember,
    /// Fail the member even if it holds the only current copy of some data (possible with `serve --redirect
    /// eraid`)
    #[arg(long)]
    pub accept_loss: bool,
}

#[derive(Args, Debug)]
pub(crate) struct OnMember {
    /// Name of the array
    pub name: String,
    /// The member: its path, its UUID, or its number in `status` (the order in which they were named to the
    /// daemon)
    pub member: String,
    #[command(flatten)]
    pub without_daemon: WithoutDaemon,
    /// Do not ask, even if the array then has no redundancy left
    #[arg(long)]
    pub yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Add {
    /// Name of the array
    pub name: String,
    /// The device to add
    pub member: String,
    #[command(flatten)]
    pub without_daemon: WithoutDaemon,
    /// Add to the array's surrogate: in place of a missing member, otherwise as a spare. A returning member
    /// of the surrogate needs no option
    #[arg(long)]
    pub to_surrogate: bool,
    /// Add to the NVRAM buffer of the array's code cache: in place of a missing member, otherwise as a spare
    #[arg(long, conflicts_with = "to_surrogate")]
    pub to_nvram: bool,
    /// Overwrite what the device contains; lists what will be lost and asks
    #[arg(long)]
    pub force: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Replace {
    /// Name of the array
    pub name: String,
    /// The member to replace
    pub old: String,
    /// The new device, at least as large: a spare of the array, or a blank device
    pub new: String,
    #[command(flatten)]
    pub without_daemon: WithoutDaemon,
    /// Return when the copy has started
    #[arg(long)]
    pub no_wait: bool,
    /// Overwrite what the device contains; lists what will be lost and asks
    #[arg(long)]
    pub force: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

pub(crate) fn fail(fails: &FailMember) -> Outcome {
    let verb = &fails.of;
    Session::open(&verb.name, &verb.without_daemon)?.end_after(|session| {
        let member = session.which(&verb.member)?;
        let status = session.status()?;
        let serves = |view: &MemberView| {
            view.path == member && matches!(view.state.as_str(), "active" | "rebuilding")
        };
        let surrogate = status.surrogate.as_deref();
        let buffer = surrogate.and_then(|one| one.buffer.as_ref());
        // What is refused in any case is refused before a question.
        session.ask(&Request::Fail {
            member: member.clone(),
            accept_loss: true,
            dry_run: true,
        })?;
        let accept_loss = confirm_exposed(&status, &member, fails.accept_loss)?;
        if status.members.iter().any(serves) {
            warn_of_thin_redundancy("array", &status.own_state, &status.name, &member, verb.yes)?;
        } else if let Some(set) = surrogate.filter(|set| set.members.iter().any(serves)) {
            warn_of_thin_redundancy("surrogate", &set.state, &set.name, &member, verb.yes)?;
        } else if let Some(set) = buffer.filter(|set| set.members.iter().any(serves)) {
            warn_of_thin_redundancy("NVRAM buffer", &set.state, &set.name, &member, verb.yes)?;
        }
        session.order(&Request::Fail {
            member,
            accept_loss,
            dry_run: false,
        })
    })
}

/// What nobody else has is lost with a first copy, which is a decision of its own: `--yes` does not make it. Whether it was made.
fn confirm_exposed(status: &StatusView, member: &str, accept_loss: bool) -> Outcome<bool> {
    let mut members = status.members.iter();
    let exposed = members.find(|view| view.path == member);
    let bytes = exposed.map_or(0, |view| view.exposed_bytes);
    if bytes == 0 || accept_loss {
        return Ok(accept_loss);
    }
    let (bytes, name) = (Size(bytes), &status.name);
    let what = format!(
        "up to {bytes} that no other member holds; `restripe surrogate destage {name} --wait` copies them to the other members first"
    );
    let confirmed = confirm_one("Data would be lost:", member, what, false);
    confirmed.map_err(|failure| failure.hint("pass --accept-loss to confirm the loss"))?;
    Ok(true)
}

/// A second failed member is a decision of its own.
fn warn_of_thin_redundancy(set: &str, state: &str, name: &str, member: &str, yes: bool) -> Outcome {
    if state != "degraded" || yes {
        return Ok(());
    }
    let what =
        format!("the {set} is degraded already; without {member} it may have no redundancy left");
    confirm_one("Redundancy would be lost:", name, what, false)
}

pub(crate) fn remove(verb: &OnMember) -> Outcome {
    Session::open(&verb.name, &verb.without_daemon)?.end_after(|session| {
        let member = session.which(&verb.member)?;
        session.order(&Request::Remove { member })
    })
}

pub(crate) fn add(verb: &Add) -> Outcome {
    Session::open(&verb.name, &verb.without_daemon)?.end_after(|session| {
        let path = absolute(&verb.member);
        confirm_overwriting(session, &path, verb.force, verb.yes)?;
        session.order(&Request::Add {
            path,
            force: verb.force,
            to_surrogate: verb.to_surrogate,
            to_buffer: verb.to_nvram,
        })
    })
}

pub(crate) fn replace(verb: &Replace) -> Outcome {
    let session = Session::open(&verb.name, &verb.without_daemon)?;
    session.end_after(|session| replace_in(session, verb))
}

fn replace_in(session: &Session, verb: &Replace) -> Outcome {
    let old = session.which(&verb.old)?;
    let path = absolute(&verb.new);
    confirm_overwriting(session, &path, verb.force, verb.yes)?;
    let (_, since) = session.facts(u64::MAX)?;
    let request = Request::Replace {
        old: old.clone(),
        path,
        force: verb.force,
    };
    session.order(&request)?;
    if !verb.no_wait || !session.is_served() {
        let whose = Whose::of(&session.status()?, &old);
        watch(session, since, whose, is_rebuild)?.succeed("the replacement")?;
        print_note(&format!("{old} is replaced"));
    }
    Ok(())
}

/// The daemon refuses to overwrite without `force`; with it, the person is asked here, where there is a terminal. What
/// is in the array already is not overwritten, and the daemon has it open. `path` is the very text that the request
/// will name: the daemon's folder may have another file under a relative one.
pub(crate) fn confirm_overwriting(on: &Session, path: &str, force: bool, yes: bool) -> Outcome {
    if !force || on.which_exactly(path).is_ok() {
        return Ok(());
    }
    match content(&open(path, true)?)? {
        None => Ok(()),
        Some(what) => confirm_one("This device will be overwritten:", path, what, yes),
    }
}
