//! Facts of arrays as lines of a daemon's log.

use crate::daemon::control::Control;
use crate::daemon::running::Running;
use crate::print::journal::{self, Level};
use crate::print::status;
use crate::print::terminal::say;
use restripe_io::control::{Answer, FactView, Reply, Request, StatusView};
use std::sync::{Arc, Mutex, PoisonError};

/// What a start gave up or went without, on standard error: no later one tells it again.
pub(crate) fn tell_of_losses(controls: &[Arc<Control>], views: &[StatusView]) {
    for (control, StatusView { name, .. }) in controls.iter().zip(views) {
        let (facts, _) = control.array.facts_since(0);
        let lost = |fact: &&FactView| LOSSES.contains(&fact.kind.as_str());
        tell(name, facts.iter().filter(lost));
    }
}

/// Facts of an array, on standard error.
fn tell<'a>(name: &str, facts: impl Iterator<Item = &'a FactView>) {
    let mut more = 0;
    for (index, fact) in facts.enumerate() {
        if index < AT_ONCE || LOUD.contains(&fact.kind.as_str()) {
            journal::line(level(fact), format_args!("restripe: {name}: {}", fact.text));
        } else {
            more += 1;
        }
    }
    if more > 0 {
        say(format_args!("restripe: {name}: and {more} more"));
    }
}

/// How grave a fact is: what costs redundancy or data, what an operator should look at, and the rest.
fn level(fact: &FactView) -> Level {
    match fact.kind.as_str() {
        "member-failed" | "halted" | "lost" | "buffer-failed" => Level::Error,
        "surrogate-absent" | "buffer-absent" | "repaired" | "move-failed" | "mismatch"
        | "task-dropped" => Level::Warning,
        _ => Level::Info,
    }
}

/// What befalls the arrays, on standard error, where an operator or the system's journal looks for it.
pub(crate) struct EventLog {
    controls: Vec<Arc<Control>>,
    names: Vec<String>,
    /// How far each array's log of facts has been told.
    next: Mutex<Vec<u64>>,
}

/// Answers for an array that a daemon serves. The daemon's log has a verb's lines before the verb has its answer. So a
/// daemon killed after the answer loses none of them.
pub(crate) struct Answering {
    pub control: Arc<Control>,
    pub log: Arc<EventLog>,
}

impl Answer for Answering {
    fn answer(&self, request: Request) -> Reply {
        let reply = self.control.answer(request);
        self.control.array.wait_for_facts();
        self.log.tell();
        journal::settle();
        reply
    }
}

impl EventLog {
    pub fn new(running: &Running, names: Vec<String>) -> EventLog {
        let controls = running.controls().to_vec();
        EventLog {
            next: Mutex::new(vec![0; controls.len()]),
            controls,
            names,
        }
    }

    /// Logs the slots without a member and what is lost.
    pub fn begin(&self) {
        for status in self
            .controls
            .iter()
            .filter_map(|control| control.array.status().ok())
        {
            for slot in status::vacant_slots(&status) {
                let what = format_args!("restripe: {}: slot {slot} has no member", status.name);
                journal::line(Level::Warning, what);
            }
            for lost in &status.lost {
                let (name, lost) = (&status.name, status::lost_line(lost));
                journal::line(Level::Error, format_args!("restripe: {name}: {lost}"));
            }
        }
    }

    pub fn tell(&self) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let places = self.names.iter().zip(&mut *next);
        for (control, (name, next)) in self.controls.iter().zip(places) {
            let (facts, following) = control.array.facts_since(*next);
            *next = following;
            let silent = |kind: &str| SILENT.contains(&kind);
            tell(name, facts.iter().filter(|fact| !silent(&fact.kind)));
        }
    }
}

/// So many facts of one look are told, and of the others those that nobody may miss; the rest is counted.
const AT_ONCE: usize = 20;

const LOUD: [&str; 8] = [
    "scrubbed",
    "task-dropped",
    "member-failed",
    "halted",
    "started",
    "stopped",
    "surrogate-absent",
    "buffer-absent",
];

/// What a start did without.
const LOSSES: [&str; 3] = ["lost", "surrogate-absent", "buffer-absent"];

/// Facts too frequent for a journal: `status` has them.
const SILENT: [&str; 1] = ["throttled"];
