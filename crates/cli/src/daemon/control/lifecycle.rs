//! The start of an array, and its end: by command, or with its reactor; and what the end achieved.

use crate::arrays::origin::other_sets;
use crate::daemon::control::array::{Answered, Said, ServedArray, done, ended, locked};
use crate::daemon::control::facts::name_among;
use crate::daemon::control::leases::no_borrowers;
use crate::daemon::control::start::start_refusal;
use restripe_array::meta::ArrayOwner;
use restripe_array::report::{ArrayState, MemberState, MemberStatus, Status as SetStatus};
use restripe_array::{Command, CommandError, Member, StartMode};
use restripe_io::control::Refusal;
use restripe_tier::report::Status;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Instant;

/// An array before it is stopped with its reactor.
pub(crate) struct BeforeEnd {
    serves: bool,
    /// Where the facts of the end begin.
    since: u64,
    /// The members that have failed before, by name.
    failed: Vec<String>,
}

/// Why a daemon might end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// SIGTERM or SIGINT.
    Signal,
    /// An operator stopped this array.
    Stopped(usize),
}

/// Whether an array serves, and as whose.
pub(super) struct Lifecycle {
    /// As whose the array was started.
    owner: Mutex<Option<ArrayOwner>>,
    /// The array has been started, and not stopped since.
    serves: AtomicBool,
    /// Why an end by command was not all that it should be.
    unclean: Mutex<Option<Refusal>>,
    /// Takes a message when the array has stopped.
    ends: Sender<End>,
}

impl Lifecycle {
    pub(super) fn new(ends: Sender<End>) -> Lifecycle {
        Lifecycle {
            owner: Mutex::default(),
            serves: AtomicBool::default(),
            unclean: Mutex::default(),
            ends,
        }
    }

    pub(super) fn owner(&self) -> Option<ArrayOwner> {
        *locked(&self.owner)
    }

    /// Starts an array whose superblocks were looked at beforehand.
    pub(super) fn start(&self, array: &ServedArray, mode: StartMode) -> Said {
        let begun = Instant::now();
        *locked(&self.owner) = mode.owner;
        let answer = array.ask(Command::Start(mode))?;
        self.serves.store(answer.is_ok(), Ordering::Relaxed);
        answer.map_err(|error| {
            let refused = array.refused(&error);
            start_refusal(
                refused,
                &error,
                mode,
                begun.elapsed(),
                array.setup.io_timeout,
            )
        })
    }

    /// Whether a stop would be refused, and why.
    pub(super) fn may_stop(&self, array: &ServedArray) -> Said {
        no_borrowers(array)?;
        match self.serves.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(array.refused(&CommandError::Busy("the array is not serving"))),
        }
    }

    /// What the end achieved is said after the fact: a member that failed meanwhile may lack what was flushed last.
    pub(super) fn stop(&self, array: &ServedArray) -> Answered {
        no_borrowers(array)?;
        let before = array.look()?.0;
        let answer = array.ask(Command::Stop)?;
        if let Err(error @ CommandError::Busy(_)) = &answer {
            return Err(array.refused(error));
        }
        let stopped = match answer {
            Ok(()) => stopped_from(array, &before),
            // One that halted, or lost too many members, has stopped, too: its members only do not say so.
            Err(error) => Err(ended_unclean(match error.innermost() {
                CommandError::NoSpace => array.refused(&error).hint(AFTER_ROOM),
                _ => array.refused(&error),
            })),
        };
        if let Err(refusal) = &stopped {
            *locked(&self.unclean) = Some(refusal.clone());
        }
        self.leave(array);
        stopped.map(done)
    }

    /// The array serves no more. Its members are closed, because the daemon may go on with other arrays.
    pub(super) fn leave(&self, array: &ServedArray) {
        self.serves.store(false, Ordering::Relaxed);
        // A reactor that has ended by itself has none open.
        let _ = close_members(array);
        // Last: the daemon may end with it. One that is already ending does not listen.
        let _ = self.ends.send(End::Stopped(array.number));
    }

    /// Looks at an array that is about to be stopped with its reactor.
    pub(super) fn before_end(&self, array: &ServedArray) -> BeforeEnd {
        BeforeEnd {
            serves: self.serves.load(Ordering::Relaxed),
            since: array.facts_since(u64::MAX).1,
            failed: array.look().map_or(Vec::new(), |(status, names)| {
                let failed = status.all_members();
                let failed = failed.filter(|one| one.state == MemberState::Failed);
                failed.map(|one| name_among(&names, one.member)).collect()
            }),
        }
    }

    /// How the array has ended, once the reactor has.
    pub(super) fn ended(&self, array: &ServedArray, before: BeforeEnd) -> Said {
        if let Some(refusal) = locked(&self.unclean).take() {
            return Err(refusal);
        }
        if !before.serves {
            return Ok(());
        }
        let (facts, _) = array.facts_since(before.since);
        let of_kind = |kind: &'static str| facts.iter().filter(move |fact| fact.kind == kind);
        let is_old = |text: &str| {
            let mut names = before.failed.iter();
            names.any(|name| text.contains(&format!("{name} failed: ")))
        };
        let failed = of_kind("member-failed").map(|fact| &*fact.text);
        let failed: Vec<&str> = failed.filter(|text| !is_old(text)).collect();
        if of_kind("stopped").next().is_none() {
            let why = Refusal::new("the array could not be stopped cleanly");
            return Err(ended_unclean(why));
        }
        match failed.is_empty() {
            true => Ok(()),
            false => Err(ended_without(&failed.join("; "))),
        }
    }
}

fn close_members(array: &ServedArray) -> Said {
    let names = array.remote.member_names(array.number).map_err(ended)?;
    for member in (0..).map(Member).take(names.len()) {
        array.close(member)?;
    }
    // The reactor has begun to close them by its answer; a device with operations in flight closes when these end.
    array.look().map(drop)
}

/// How an array has stopped that was like this before.
fn stopped_from(array: &ServedArray, before: &Status) -> Said<&'static str> {
    let (after, names) = array.look()?;
    let failed = |one: &&MemberStatus| one.state == MemberState::Failed;
    let was: BTreeSet<Member> = before
        .all_members()
        .filter(failed)
        .map(|one| one.member)
        .collect();
    let new = after
        .all_members()
        .filter(failed)
        .filter(|one| !was.contains(&one.member));
    let failed: Vec<String> = new.map(|one| name_among(&names, one.member)).collect();
    match failed.is_empty() {
        false => Err(ended_without(&failed.join(", "))),
        true if array.open.read_only || before.state == ArrayState::Failed => {
            Ok("stopped, nothing was written")
        }
        true if is_whole(before) => Ok("stopped, everything is flushed and marked clean"),
        true => Ok("stopped, degraded: the members in service are flushed and marked clean"),
    }
}

const AFTER_ROOM: &str =
    "free space there and serve the array again: flushed data is safe, unflushed data may be lost";

/// A stop that its array could not follow as it should: a start goes by what is on record.
fn ended_unclean(why: Refusal) -> Refusal {
    let what = format!(
        "{}; the array is no longer served, and not marked clean (a daemon without further arrays ends)",
        why.what
    );
    Refusal {
        what,
        ended: true,
        ..why
    }
}

/// A stop during which members failed: the others have it on record, and are flushed.
fn ended_without(failed: &str) -> Refusal {
    let what = "stopped, but some members could not be flushed and marked clean; the others are";
    let refusal = Refusal::new(what)
        .at(failed)
        .hint("start it with --degraded, and add the failed members again, or other devices");
    Refusal {
        ended: true,
        ..refusal
    }
}

/// Whether no member is missing in any of the array's sets.
fn is_whole(status: &Status) -> bool {
    let healthy = |set: &SetStatus| set.state == ArrayState::Healthy;
    healthy(&status.set) && other_sets(status).all(|(_, set)| healthy(set))
}
