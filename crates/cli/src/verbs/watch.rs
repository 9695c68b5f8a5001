//! Waits for the end of a task, and shows its progress.

use crate::args::Pace;
use crate::arrays::origin::Whose;
use crate::failure::{Failure, Outcome};
use crate::print::terminal::{Progress, print, print_note, task_line};
use crate::verbs::session::Session;
use restripe_io::control::{FactView, MemberView, Request, StatusView, TaskView};
use std::thread;
use std::time::Duration;

/// Between two looks at a running task.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) fn pace(pace: &Pace) -> Option<Request> {
    let rate = pace.rate.map(|rate| Request::Rate {
        min_bytes: rate.min,
        max_bytes: rate.max,
    });
    let throttle = pace.throttle.map(|throttle| Request::Throttle {
        name: throttle.to_string(),
    });
    match pace {
        Pace { pause: true, .. } => Some(Request::Pause),
        Pace { resume: true, .. } => Some(Request::Resume),
        _ => rate.or(throttle),
    }
}

/// Where the log tells that the last task of this kind began: how an older one ended is not asked.
pub(crate) fn begun_at(session: &Session, of_kind: fn(&str) -> bool) -> Outcome<u64> {
    let (facts, _) = session.facts(0)?;
    let begins = |fact: &&FactView| {
        fact.kind == "task-started" && of_kind(&fact.task) && Whose::Array.is_told(fact)
    };
    let begun = facts.iter().rev().find(begins);
    Ok(begun.map_or(0, |fact| fact.sequence))
}

/// So many rows that disagree are named, and the others counted.
const NAMED: usize = 50;

/// How a watched task ended.
pub(crate) struct Ended {
    outcome: String,
    mismatches: u64,
    facts: Vec<FactView>,
}

impl Ended {
    pub(crate) fn tell_mismatches(&self) {
        let told = || self.facts.iter().filter(|fact| fact.kind == "mismatch");
        for mismatch in told().take(NAMED) {
            print_note(&mismatch.text);
        }
        let more = told().count().saturating_sub(NAMED);
        if more > 0 {
            print(format_args!("and {more} more"));
        }
    }

    pub fn succeed(&self, what: &str) -> Outcome {
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

/// Whose task is watched.
impl Whose {
    /// Of the member of this path.
    pub fn of(status: &StatusView, path: &str) -> Whose {
        let has = |members: &[MemberView]| members.iter().any(|member| member.path == path);
        let Some(surrogate) = &status.surrogate else {
            return Whose::Array;
        };
        match &surrogate.buffer {
            Some(buffer) if has(&buffer.members) => Whose::Buffer,
            _ if has(&surrogate.members) => Whose::Surrogate,
            _ => Whose::Array,
        }
    }

    fn tasks(self, status: &StatusView) -> &[TaskView] {
        let surrogate = status.surrogate.as_deref();
        let buffer = surrogate.and_then(|one| one.buffer.as_ref());
        match self {
            Whose::Array => &status.tasks,
            Whose::Surrogate => surrogate.map_or(&[], |one| &one.tasks),
            Whose::Buffer => buffer.map_or(&[], |one| &one.tasks),
        }
    }

    fn is_told(self, fact: &FactView) -> bool {
        let sets = (fact.of_surrogate, fact.of_buffer);
        sets == (self == Whose::Surrogate, self == Whose::Buffer)
    }
}

/// Shows the progress of a task until it has ended: no task of its kind is left, and the log says how it went.
pub(crate) fn watch(
    session: &Session,
    since: u64,
    whose: Whose,
    of_kind: fn(&str) -> bool,
) -> Outcome<Ended> {
    let mut progress = Progress::new();
    let mut ended = Ended {
        outcome: String::new(),
        mismatches: 0,
        facts: Vec::new(),
    };
    let mut next = since;
    let mut gone = false;
    loop {
        let (facts, following) = session.facts(next)?;
        next = following;
        for fact in facts.into_iter().filter(|fact| whose.is_told(fact)) {
            if fact.kind == "task-ended" && of_kind(&fact.task) {
                ended.outcome = fact.outcome.clone();
            }
            ended.facts.push(fact);
        }
        let status = session.status()?;
        check_moves(&status)?;
        let tasks = whose.tasks(&status);
        match tasks.iter().find(|task| of_kind(&task.kind)) {
            Some(task) => {
                gone = false;
                check_its_turn_comes(task, tasks, &status.name)?;
                ended.mismatches = task.mismatches;
                progress.show(&task_line(task));
            }
            None if !ended.outcome.is_empty() => return Ok(counted(ended)),
            // Its end is in the log soon after, or was before the log's beginning.
            None if gone => return Ok(counted(ended)),
            None => gone = true,
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Nothing is waited for in an array that only reads.
pub(crate) fn check_moves(status: &StatusView) -> Outcome {
    if !status.read_only {
        return Ok(());
    }
    let what = "this array is read-only: its tasks wait";
    Err(Failure::new(what)
        .hint("it was started read-only, or halted for lack of space or members: the daemon's log contains the cause"))
}

/// Nor for a task behind one that is paused: who waits here may be the only one who could let that go on.
fn check_its_turn_comes(task: &TaskView, tasks: &[TaskView], name: &str) -> Outcome {
    let goes = |other: &TaskView| !other.paused && other.waits.is_empty();
    if task.waits == "members" && !tasks.iter().any(goes) {
        let hint = format!(
            "add a device with `restripe add {name} DEVICE`; the task resumes when the device is rebuilt"
        );
        let said = format!("the {} waits until no member is missing", task.kind);
        return Err(Failure::new(said).hint(hint));
    }
    if task.waits != "another-task" || tasks.iter().any(goes) {
        return Ok(());
    }
    let Some(first) = tasks.iter().find(|other| other.paused) else {
        return Ok(());
    };
    let said = format!(
        "the {} waits for the {}, which is paused",
        task.kind, first.kind
    );
    let hint = format!(
        "run `restripe rebuild {name} --resume` (with --offline and the members if it is not served)"
    );
    Err(Failure::new(said).hint(hint))
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

/// A task's name, as the schema has it.
pub(crate) fn is_scrub(kind: &str) -> bool {
    kind == "check" || kind == "repair"
}

pub(crate) fn is_growth(kind: &str) -> bool {
    kind == "growth"
}

/// The kinds of tasks that bring redundancy back.
pub(crate) fn is_rebuild(kind: &str) -> bool {
    matches!(kind, "rebuild" | "replace" | "resync")
}
