//! The verbs that ask a running array: about members, tasks, and its end.

use crate::command::{Add, Metrics, OnMember, Pace, Rebuild, Replace, Scrub, Stop};
use crate::desk::{is_rebuild, is_scrub};
use crate::failure::{Failure, Outcome};
use crate::member::{content, open};
use crate::session::Session;
use crate::terminal::{Lost, Progress, confirm, task_line};
use restripe_io::control::{FactView, MemberView, Reply, Request, StatusView};
use std::thread;
use std::time::Duration;

/// Between two looks at a running task.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub fn fail(verb: &OnMember) -> Outcome {
    let session = Session::open(&verb.name, &verb.without_daemon)?;
    let member = session.which(&verb.member)?;
    let status = session.status()?;
    let serves = |view: &MemberView| {
        view.path == member && matches!(view.state.as_str(), "active" | "rebuilding")
    };
    if status.members.iter().any(serves) {
        warn_of_thin_redundancy(&status, &member, verb.yes)?;
    }
    session.order(&Request::Fail { member })?;
    session.close()
}

/// A second failed member is a decision of its own.
fn warn_of_thin_redundancy(status: &StatusView, member: &str, yes: bool) -> Outcome {
    if status.state != "degraded" || yes {
        return Ok(());
    }
    let what =
        format!("the array is degraded already; without {member} it may have no redundancy left");
    confirm(
        "Redundancy would go:",
        &[Lost {
            at: status.name.clone(),
            what,
        }],
        false,
    )
}

pub fn remove(verb: &OnMember) -> Outcome {
    let session = Session::open(&verb.name, &verb.without_daemon)?;
    let member = session.which(&verb.member)?;
    session.order(&Request::Remove { member })?;
    session.close()
}

pub fn add(verb: &Add) -> Outcome {
    let session = Session::open(&verb.name, &verb.without_daemon)?;
    confirm_overwriting(&session, &verb.member, verb.force, verb.yes)?;
    session.order(&Request::Add {
        path: absolute(&verb.member),
        force: verb.force,
    })?;
    session.close()
}

pub fn replace(verb: &Replace) -> Outcome {
    let session = Session::open(&verb.name, &verb.without_daemon)?;
    let old = session.which(&verb.old)?;
    confirm_overwriting(&session, &verb.new, verb.force, verb.yes)?;
    let (_, since) = session.facts(u64::MAX)?;
    let request = Request::Replace {
        old: old.clone(),
        path: absolute(&verb.new),
        force: verb.force,
    };
    session.order(&request)?;
    if !verb.no_wait || !verb.without_daemon.offline.is_empty() {
        watch(&session, since, is_rebuild)?.succeed("the replacement")?;
        println!("{old} is replaced");
    }
    session.close()
}

/// The daemon refuses to overwrite without `force`; with it, the person is asked here, where there is a terminal. What
/// is in the array already is not overwritten, and the daemon has it open.
fn confirm_overwriting(session: &Session, path: &str, force: bool, yes: bool) -> Outcome {
    if !force || session.which(path).is_ok() {
        return Ok(());
    }
    match content(&open(path, true)?)? {
        None => Ok(()),
        Some(what) => confirm(
            "This device will be overwritten:",
            &[Lost {
                at: path.into(),
                what,
            }],
            yes,
        ),
    }
}

/// The daemon may run in another folder.
fn absolute(path: &str) -> String {
    std::fs::canonicalize(path).map_or_else(
        |_| path.to_string(),
        |found| found.to_string_lossy().into_owned(),
    )
}

// ------------------------------------------------------------------------------------------------------------ tasks

pub fn rebuild(verb: &Rebuild) -> Outcome {
    let session = Session::open(&verb.target.name, &verb.target.without_daemon)?;
    if let Some(request) = pace(&verb.pace) {
        session.order(&request)?;
        return session.close();
    }
    let status = session.status()?;
    if status.tasks.iter().any(|task| is_rebuild(&task.kind)) {
        watch(&session, 0, is_rebuild)?.succeed("the rebuild")?;
    }
    let status = session.status()?;
    session.close()?;
    if status.state != "healthy" {
        return Err(
            Failure::new(format!("the array is {} and no rebuild runs", status.state)).hint(
                format!("give it a spare: restripe add {} DEVICE", status.name),
            ),
        );
    }
    println!("{} is {}", status.name, status.state);
    Ok(())
}

fn pace(pace: &Pace) -> Option<Request> {
    let rate = pace.rate.map(|rate| Request::Rate {
        min_bytes: rate.min,
        max_bytes: rate.max,
    });
    let throttle = pace.throttle.map(|throttle| Request::Throttle {
        name: throttle.name().into(),
    });
    match pace {
        Pace { pause: true, .. } => Some(Request::Pause),
        Pace { resume: true, .. } => Some(Request::Resume),
        _ => rate.or(throttle),
    }
}

pub fn scrub(verb: &Scrub) -> Outcome {
    let session = Session::open(&verb.target.name, &verb.target.without_daemon)?;
    if let Some(request) = pace(&verb.pace) {
        session.order(&request)?;
        return session.close();
    }
    if verb.cancel {
        return session.order(&Request::Cancel);
    }
    let (_, end) = session.facts(u64::MAX)?;
    let since = match verb.watch {
        true => watched_from(&session)?,
        false => {
            session.order(&Request::Scrub {
                repair: verb.repair,
            })?;
            end
        }
    };
    if verb.no_wait && verb.target.without_daemon.offline.is_empty() {
        return Ok(());
    }
    let ended = watch(&session, since, is_scrub)?;
    let state = session.status()?.state;
    session.close()?;
    ended.tell_mismatches();
    ended.succeed("the scrub")?;
    if state != "healthy" {
        let said = format!("the array is {state}: not every row could be compared");
        return Err(Failure::new(said).hint("restripe status says who is missing"));
    }
    match (ended.mismatches, verb.repair) {
        (0, _) => println!("every row agrees"),
        (1, true) => println!("1 row disagreed: see above whether it is repaired"),
        (rows, true) => println!("{rows} rows disagreed: see above which are repaired"),
        (rows, false) => {
            let hint = format!(
                "restripe scrub {} --repair writes what can be recovered anew",
                verb.target.name
            );
            let said = if rows == 1 {
                "1 row disagrees".to_owned()
            } else {
                format!("{rows} rows disagree")
            };
            return Err(Failure::new(said).hint(hint));
        }
    }
    Ok(())
}

/// Where the log tells of the scrub that runs: what it found before is told too.
fn watched_from(session: &Session) -> Outcome<u64> {
    let status = session.status()?;
    if !status.tasks.iter().any(|task| is_scrub(&task.kind)) {
        return Err(Failure::new("no scrub runs").hint("restripe scrub without --watch starts one"));
    }
    let (facts, _) = session.facts(0)?;
    let begins = |fact: &&FactView| {
        fact.kind == "task-started" && fact.text.split(' ').next().is_some_and(is_scrub)
    };
    let begun = facts.iter().rev().find(begins);
    Ok(begun.map_or(0, |fact| fact.sequence))
}

/// So many rows that disagree are named, and the others counted.
const NAMED: usize = 50;

/// How a watched task ended.
struct Ended {
    outcome: String,
    mismatches: u64,
    facts: Vec<FactView>,
}

impl Ended {
    fn tell_mismatches(&self) {
        let told = || self.facts.iter().filter(|fact| fact.kind == "mismatch");
        for mismatch in told().take(NAMED) {
            println!("{}", mismatch.text);
        }
        let more = told().count().saturating_sub(NAMED);
        if more > 0 {
            println!("and {more} more");
        }
    }

    fn succeed(&self, what: &str) -> Outcome {
        match self.outcome.as_str() {
            "done" => Ok(()),
            "" => Err(Failure::new(format!("{what} ended without an outcome"))),
            other => Err(Failure::new(format!(
                "{what} {}",
                if other == "failed" {
                    "failed"
                } else {
                    "was cancelled"
                }
            ))),
        }
    }
}

/// Shows the progress of a task until it has ended: no task of its kind is left, and the log says how it went.
fn watch(session: &Session, since: u64, of_kind: fn(&str) -> bool) -> Outcome<Ended> {
    let mut progress = Progress::new();
    let mut ended = Ended {
        outcome: String::new(),
        mismatches: 0,
        facts: Vec::new(),
    };
    let mut next = since;
    loop {
        let (facts, following) = session.facts(next)?;
        next = following;
        for fact in facts {
            let is_end =
                fact.kind == "task-ended" && fact.text.split(' ').next().is_some_and(of_kind);
            if is_end {
                ended.outcome = fact.outcome.clone();
            }
            ended.facts.push(fact);
        }
        let tasks = session.status()?.tasks;
        match tasks.iter().find(|task| of_kind(&task.kind)) {
            Some(task) => {
                ended.mismatches = task.mismatches;
                progress.show(&task_line(task));
            }
            None if !ended.outcome.is_empty() => return Ok(counted(ended)),
            // Its end is in the log, or was before the log's beginning.
            None if session.facts(next)?.0.is_empty() => return Ok(counted(ended)),
            None => {}
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// The last look may have missed the last rows: the log has them.
fn counted(mut ended: Ended) -> Ended {
    let logged = ended
        .facts
        .iter()
        .filter(|fact| fact.kind == "mismatch")
        .count() as u64;
    ended.mismatches = ended.mismatches.max(logged);
    ended
}

// --------------------------------------------------------------------------------------------------- the daemon itself

pub fn stop(verb: &Stop) -> Outcome {
    let session = Session::open_to_look(&verb.name, &[])?;
    // The usual hint, to work on the members, leads nowhere: there is nothing to stop.
    let hint = "restripe status lists the arrays that are served; one that is not needs no stop";
    session.status().map_err(|failure| failure.hint(hint))?;
    session.order(&Request::Stop)
}

pub fn metrics(target: &Metrics) -> Outcome {
    let session = Session::open_to_look(&target.name, &target.offline)?;
    let Reply::Metrics { text } = session.ask(&Request::Metrics)? else {
        return Err(Failure::new(
            "the daemon answered `metrics` with something else",
        ));
    };
    print!("{text}");
    session.close()
}
