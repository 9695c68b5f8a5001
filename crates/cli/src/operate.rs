//! The verbs that ask a running array: about members, tasks, and its end.

use crate::command::{Add, OnMember, Pace, Rebuild, Replace, Scrub, Stop, Target};
use crate::desk::{is_rebuild, is_scrub};
use crate::failure::{Failure, Outcome};
use crate::member::{content, open};
use crate::session::Session;
use crate::terminal::{Lost, Progress, confirm, task_line};
use restripe_io::control::{FactView, Reply, Request};
use std::thread;
use std::time::Duration;

/// Between two looks at a running task.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub fn fail(verb: &OnMember) -> Outcome {
    let session = Session::open(&verb.name, &verb.offline)?;
    warn_of_thin_redundancy(&session, verb)?;
    session.order(&Request::Fail {
        member: verb.member.clone(),
    })?;
    session.close()
}

/// A second failed member is a decision of its own.
fn warn_of_thin_redundancy(session: &Session, verb: &OnMember) -> Outcome {
    let status = session.status()?;
    if status.state != "degraded" || verb.yes {
        return Ok(());
    }
    let what = format!(
        "the array is degraded already; without {} it may have no redundancy left",
        verb.member
    );
    confirm(
        "Redundancy would go:",
        &[Lost {
            at: verb.name.clone(),
            what,
        }],
        false,
    )
}

pub fn remove(verb: &OnMember) -> Outcome {
    let session = Session::open(&verb.name, &verb.offline)?;
    session.order(&Request::Remove {
        member: verb.member.clone(),
    })?;
    session.close()
}

pub fn add(verb: &Add) -> Outcome {
    confirm_overwriting(&verb.member, verb.force, verb.yes)?;
    let session = Session::open(&verb.name, &verb.offline)?;
    session.order(&Request::Add {
        path: absolute(&verb.member),
        force: verb.force,
    })?;
    session.close()
}

pub fn replace(verb: &Replace) -> Outcome {
    confirm_overwriting(&verb.new, verb.force, verb.yes)?;
    let session = Session::open(&verb.name, &verb.offline)?;
    let (_, since) = session.facts(u64::MAX)?;
    let request = Request::Replace {
        old: verb.old.clone(),
        path: absolute(&verb.new),
        force: verb.force,
    };
    session.order(&request)?;
    if !verb.no_wait || !verb.offline.is_empty() {
        watch(&session, since, is_rebuild)?.succeed("the replacement")?;
        println!("{} is replaced", verb.old);
    }
    session.close()
}

/// The daemon refuses to overwrite without `force`; with it, the person is asked here, where there is a terminal.
fn confirm_overwriting(path: &str, force: bool, yes: bool) -> Outcome {
    if !force {
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
    let session = Session::open(&verb.target.name, &verb.target.offline)?;
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
    match pace {
        Pace { pause: true, .. } => Some(Request::Pause),
        Pace { resume: true, .. } => Some(Request::Resume),
        _ => rate,
    }
}

pub fn scrub(verb: &Scrub) -> Outcome {
    let session = Session::open(&verb.target.name, &verb.target.offline)?;
    if verb.cancel {
        return session.order(&Request::Cancel);
    }
    let (_, since) = session.facts(u64::MAX)?;
    session.order(&Request::Scrub {
        repair: verb.repair,
    })?;
    if verb.no_wait && verb.target.offline.is_empty() {
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
    Session::open(&verb.name, &[])?.order(&Request::Stop)
}

pub fn metrics(target: &Target) -> Outcome {
    let session = Session::open_to_look(&target.name, &target.offline)?;
    let Reply::Metrics { text } = session.ask(&Request::Metrics)? else {
        return Err(Failure::new(
            "the daemon answered `metrics` with something else",
        ));
    };
    print!("{text}");
    session.close()
}
