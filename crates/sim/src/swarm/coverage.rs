//! What a swarm has met, counted: incidents by what the array was doing at that moment.

use restripe_array::TaskKind;
use restripe_array::report::{Status, TaskStatus};
use std::collections::BTreeMap;
use std::fmt;

/// Something that happened to a running array.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Incident {
    Crash,
    /// A crash before the array served after the one before.
    CrashInRecovery,
    MemberLoss,
    LatentError,
    LateWrite,
    /// More members than redundancy bears, for a while.
    Unplugged,
    Pause,
    Command,
}

/// How far a task has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// No row is done.
    Beginning,
    Middle,
    /// Three quarters of the rows are done, or more.
    End,
}

impl Phase {
    pub fn of(task: &TaskStatus) -> Phase {
        match task.rows_done {
            0 => Phase::Beginning,
            done if done * 4 >= task.rows_total * 3 => Phase::End,
            _ => Phase::Middle,
        }
    }
}

/// A task in one of its phases.
pub type Moment = (TaskKind, Phase);

/// What the tasks of an array are at.
pub fn moments(status: &Status) -> Vec<Moment> {
    let moment = |task: &TaskStatus| (task.kind, Phase::of(task));
    status.tasks.iter().map(moment).collect()
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    incidents: BTreeMap<(Option<Moment>, Incident), u64>,
    counts: BTreeMap<&'static str, u64>,
    /// Transitions of the slice table: kind, from, to.
    slices: BTreeMap<(&'static str, &'static str, &'static str), u64>,
}

impl Coverage {
    /// Counts an incident against each of the tasks, or against none.
    pub fn incident(&mut self, tasks: &[Moment], incident: Incident) {
        let idle = tasks.is_empty().then_some(None);
        for moment in tasks.iter().copied().map(Some).chain(idle) {
            *self.incidents.entry((moment, incident)).or_default() += 1;
        }
    }

    /// How often an incident has met a task in a phase.
    pub fn met(&self, moment: Moment, incident: Incident) -> u64 {
        let key = (Some(moment), incident);
        self.incidents.get(&key).copied().unwrap_or(0)
    }

    /// How often a transition of the slice table was taken.
    pub fn transition(&self, kind: &str, from: &str, to: &str) -> u64 {
        let of = |line: &(&str, &str, &str, u64)| (line.0, line.1, line.2) == (kind, from, to);
        self.transitions().find(of).map_or(0, |line| line.3)
    }

    /// The transitions of the slice table that were taken: kind, from, to, how often.
    pub fn transitions(
        &self,
    ) -> impl Iterator<Item = (&'static str, &'static str, &'static str, u64)> + '_ {
        self.slices
            .iter()
            .map(|(&(kind, from, to), &times)| (kind, from, to, times))
    }

    pub fn count(&mut self, what: &'static str, times: u64) {
        *self.counts.entry(what).or_default() += times;
    }

    /// How often something of this name was counted.
    pub fn total(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    /// Adds what an engine counted of its slice table.
    pub fn slices<'a>(
        &mut self,
        counted: impl Iterator<Item = (&'static str, &'static str, &'static str, u64)> + 'a,
    ) {
        for (kind, from, to, times) in counted {
            *self.slices.entry((kind, from, to)).or_default() += times;
        }
    }

    pub fn merge(&mut self, other: &Coverage) {
        for (key, times) in &other.incidents {
            *self.incidents.entry(*key).or_default() += times;
        }
        for (key, times) in &other.slices {
            *self.slices.entry(*key).or_default() += times;
        }
        for (key, times) in &other.counts {
            *self.counts.entry(key).or_default() += times;
        }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, times) in &self.counts {
            writeln!(f, "{what:<32} {times:>12}")?;
        }
        for ((task, incident), times) in &self.incidents {
            let task = task.map_or("idle".to_string(), |(kind, phase)| {
                format!("{kind:?} {phase:?}")
            });
            writeln!(f, "{task:<18} {:<13} {times:>12}", format!("{incident:?}"))?;
        }
        for ((kind, from, to), times) in &self.slices {
            writeln!(f, "slice {kind:<12} {from:>14} -> {to:<14} {times:>12}")?;
        }
        Ok(())
    }
}
