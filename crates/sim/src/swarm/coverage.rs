//! What a swarm has met, counted: incidents by what the array was doing at that moment.

use restripe_array::{TaskKind, report::Status};
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
    Pause,
    Command,
}

/// How far a task has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    Beginning,
    Middle,
    End,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    incidents: BTreeMap<(Option<(TaskKind, Phase)>, Incident), u64>,
    counts: BTreeMap<&'static str, u64>,
    /// Transitions of the slice table: kind, from, to.
    slices: BTreeMap<(&'static str, &'static str, &'static str), u64>,
}

impl Coverage {
    /// Counts an incident against each task that runs, or against none.
    pub fn incident(&mut self, status: &Status, incident: Incident) {
        if status.tasks.is_empty() {
            *self.incidents.entry((None, incident)).or_default() += 1;
        }
        for task in &status.tasks {
            let phase = match (task.rows_done, task.rows_total) {
                (0, _) => Phase::Beginning,
                (done, total) if done >= total => Phase::End,
                _ => Phase::Middle,
            };
            *self
                .incidents
                .entry((Some((task.kind, phase)), incident))
                .or_default() += 1;
        }
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
