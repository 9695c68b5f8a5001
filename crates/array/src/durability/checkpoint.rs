//! Tasks begin, and what they have done becomes durable: a flush first, then superblocks that say so.

use super::Durability;
use crate::contract::{Fact, TaskKind};
use crate::facts::Waiter;
use crate::policy::order::{Path, Streams};
use crate::runset::RunSet;
use crate::task::table::{CHECKPOINT_EVERY, GROWTH_CHECKPOINT_EVERY, State, Task};
use crate::units::Nanos;

impl Durability {
    pub(crate) fn start_task(&mut self, kind: TaskKind, slot: Option<u16>, done: RunSet) {
        self.tasks.serials += 1;
        if kind.fills() {
            self.forget_dropped(|one| Some(one.slot) == slot);
        }
        let path = self.new_path(kind);
        let streams = self.new_streams(kind);
        let facts = self.facts();
        facts.tasks.list.push(Task {
            kind,
            slot,
            paused: false,
            claimed: done.clone(),
            durable: done.clone(),
            done,
            path,
            streams,
            checkpoint: None,
            asked: 0,
            next_checkpoint: facts.now.after(checkpoint_every(kind)),
            begun: facts.now,
            waits: false,
            not_before: Nanos::ZERO,
            barrier: facts.now,
            in_flight: 0,
            serial: facts.tasks.serials,
            state: State::Running,
            moved: 0,
            unseen: 0,
            outsourced: false,
        });
        self.writer.note_change();
        self.fact(Fact::TaskStarted { kind, slot });
    }

    /// What fills a slot goes through all its partitions at once. What goes through whole rows keeps every
    /// member busy in one stream.
    fn new_streams(&self, kind: TaskKind) -> Streams {
        let count = match kind {
            TaskKind::Rebuild | TaskKind::Replace => self.layout.partitions(),
            TaskKind::Resync | TaskKind::Check | TaskKind::Repair | TaskKind::Growth => 1,
        };
        Streams::new(self.layout.rows(), count)
    }

    pub(crate) fn new_path(&self, kind: TaskKind) -> Path {
        Path::new(self.tasks.order_of(kind), &self.heat, || self.blank_heat())
    }

    /// Makes what a task has done so far durable, unless that is under way.
    pub(crate) fn checkpoint(&mut self, index: usize) {
        let task = &self.tasks.list[index];
        if task.checkpoint.is_none() && task.state == State::Running {
            self.flush_for_checkpoint(index);
        }
    }

    /// What a growth has filled besides, as it moved rows, becomes durable with it.
    fn flush_for_checkpoint(&mut self, index: usize) {
        let begun = self.flusher.begun;
        let rider = match self.tasks.list[index].kind {
            TaskKind::Growth => self.tasks.riding().map(|task| task.serial),
            _ => None,
        };
        let tasks = self.tasks.list.iter_mut().enumerate();
        for (_, task) in tasks.filter(|(nth, task)| *nth == index || rider == Some(task.serial)) {
            (task.checkpoint, task.asked) = (Some(task.done.clone()), begun);
        }
        self.flush_for(Waiter::Checkpoint);
    }

    pub(crate) fn checkpoint_if_due(&mut self, index: usize) {
        let now = self.now;
        let task = &mut self.tasks.list[index];
        let stands = task.checkpoint.is_some() || task.state != State::Running;
        if now < task.next_checkpoint || stands {
            return;
        }
        task.next_checkpoint = now.after(checkpoint_every(task.kind));
        let serial = task.serial;
        self.tasks.scrub_snapshot(serial);
        self.flush_for_checkpoint(index);
    }
}

fn checkpoint_every(kind: TaskKind) -> Nanos {
    match kind {
        TaskKind::Growth => GROWTH_CHECKPOINT_EVERY,
        _ => CHECKPOINT_EVERY,
    }
}
