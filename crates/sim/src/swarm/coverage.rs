//! What a swarm has met, counted: incidents by what the array was doing at that moment.

use crate::tally::{Tally, add};
use restripe_array::TaskKind;
use restripe_array::report::TaskStatus;
use restripe_tier::report::Status;
use std::collections::BTreeSet;
use std::fmt;

/// Something that happened to a running array.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Incident {
    Crash,
    /// A crash before the array served after the one before.
    CrashInRecovery,
    /// The daemon died, and the members' caches lived on.
    Death,
    /// The same, before the array served after the crash or death before.
    DeathInRecovery,
    MemberLoss,
    /// Of a member that hosts partitions of others: it counts as a loss, too.
    HostLoss,
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

/// How partitions of a slot stand in spare partitions of members in service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Hosting {
    /// Some of the slot are being rebuilt.
    Filling,
    Serving,
    /// They are being brought to a member of the slot's own.
    GoingHome,
}

/// What an array is at.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    tasks: Vec<Moment>,
    hosting: BTreeSet<Hosting>,
}

impl Scene {
    pub fn of(status: &Status) -> Scene {
        let moment = |task: &TaskStatus| (task.kind, Phase::of(task));
        let hosting = |&(slot, _): &(u16, u16)| {
            let mut tasks = status.tasks.iter();
            let task = tasks.find(|task| task.slot == Some(slot));
            match task.map(|task| task.kind) {
                Some(TaskKind::Rebuild) => Hosting::Filling,
                Some(TaskKind::Replace) => Hosting::GoingHome,
                _ => Hosting::Serving,
            }
        };
        let hosted = status.members.iter().flat_map(|line| &line.hosts);
        Scene {
            tasks: status.tasks.iter().map(moment).collect(),
            hosting: hosted.map(hosting).collect(),
        }
    }

    /// How spare partitions are in use.
    pub fn hosting(&self) -> impl Iterator<Item = Hosting> + '_ {
        self.hosting.iter().copied()
    }

    pub fn hosts(&self, hosting: Hosting) -> bool {
        self.hosting.contains(&hosting)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    incidents: Tally<(Option<Moment>, Incident)>,
    of_hosts: Tally<(Hosting, Incident)>,
    pub(super) counts: Tally<&'static str>,
    /// Transitions of the slice table: kind, from, to.
    slices: Tally<(&'static str, &'static str, &'static str)>,
}

impl Coverage {
    /// Counts an incident against each of the tasks, or against none, and against how partitions are hosted.
    pub fn incident(&mut self, scene: &Scene, incident: Incident) {
        let idle = scene.tasks.is_empty().then_some(None);
        for moment in scene.tasks.iter().copied().map(Some).chain(idle) {
            *self.incidents.entry((moment, incident)).or_default() += 1;
        }
        for hosting in &scene.hosting {
            *self.of_hosts.entry((*hosting, incident)).or_default() += 1;
        }
    }

    /// How often an incident has met a task in a phase.
    pub fn met(&self, moment: Moment, incident: Incident) -> u64 {
        let key = (Some(moment), incident);
        self.incidents.get(&key).copied().unwrap_or(0)
    }

    /// How often an incident has met partitions that were hosted so.
    pub fn met_hosts(&self, hosting: Hosting, incident: Incident) -> u64 {
        let hits = self.of_hosts.get(&(hosting, incident));
        hits.copied().unwrap_or(0)
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
        let slices = self.slices.iter();
        slices.map(|(&(kind, from, to), &times)| (kind, from, to, times))
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
        add(&mut self.incidents, &other.incidents);
        add(&mut self.of_hosts, &other.of_hosts);
        add(&mut self.slices, &other.slices);
        add(&mut self.counts, &other.counts);
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
        for ((hosting, incident), times) in &self.of_hosts {
            let (hosting, incident) = (format!("Hosts {hosting:?}"), format!("{incident:?}"));
            writeln!(f, "{hosting:<18} {incident:<13} {times:>12}")?;
        }
        for ((kind, from, to), times) in &self.slices {
            writeln!(f, "slice {kind:<12} {from:>14} -> {to:<14} {times:>12}")?;
        }
        Ok(())
    }
}
