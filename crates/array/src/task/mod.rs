//! The floor of tasks: rebuild, replace, resync, scrub, growth. One mechanism: a done-set over rows, and
//! windows in flight.
//!
//! Decides when a task begins a window and when it ends. Owns nothing: the table of tasks is a fact, and
//! windows are slices. Asks every floor below, and sends no notice.
//!
//! | state     | cause                                     | next      |
//! |-----------|-------------------------------------------|-----------|
//! | running   | every row done                            | flushing  |
//! | flushing  | the flush ended, maps durable             | ended, or opening |
//! | opening   | superblocks durable that end a growth     | ended     |
//! | running   | paused, another task goes first           | running   |
//! | any       | target failed, cancelled                  | ended     |
//!
//! The done-set counts at once for reads and writes; what a restart may believe is the durable one, which
//! trails: a checkpoint flushes first and then writes it into the superblocks.

mod growth;
mod reshape;
mod reshape_facts;
pub(crate) mod reshaping;
mod scrub;
pub(crate) mod table;

use crate::config::Config;
use crate::contract::{Fact, Order, ScrubMode, ScrubState, TaskKind, TaskOutcome};
use crate::facts::{Waiter, Wake};
use crate::intake::Intake;
use crate::members::pool::Share;
use crate::policy::order::Depth;
use crate::policy::throttle::{DEFAULT, Decision, Pacer, View};
use crate::report::{Aim, ArrayState};
use crate::runset::RunSet;
use crate::units::{Nanos, Row, SECTOR_BYTES, Slot};
use restripe_format::meta::superblock::RUNS_OF_TASK_MAX;
use table::{Paced, State, Task};

pub struct Background {
    below: Intake,
}

floor!(Background, Intake);

impl Background {
    pub(crate) fn new(config: Config, share: Share) -> Background {
        Background {
            below: Intake::new(config, share),
        }
    }

    pub(crate) fn start_scrub(&mut self, mode: ScrubMode, done: RunSet) {
        let kind = match mode.writes() {
            true => TaskKind::Repair,
            false => TaskKind::Check,
        };
        let done = self.scrub_begins(mode, self.tasks.serials + 1, done);
        self.start_task(kind, None, done);
    }

    /// How much the task that goes first may have in flight now.
    fn decide(&mut self, task: u64, view: &View) -> Decision {
        let paced = self.tasks.paced.as_ref();
        if paced.is_none_or(|paced| paced.task != task) {
            let limits = self.tasks.limits.unwrap_or(DEFAULT);
            let pacer = Pacer::new(self.tasks.throttle, limits, view, &mut self.traffic);
            self.tasks.paced = Some(Paced { task, pacer });
        }
        let members = self.members();
        let paced = members.below.tasks.paced.as_mut();
        let paced = paced.expect("it was there or is new");
        paced.pacer.decide(view, &mut members.traffic)
    }

    /// Running tasks go on in another order.
    pub(crate) fn set_order(&mut self, order: Order) {
        self.tasks.order = order;
        for index in 0..self.tasks.list.len() {
            self.tasks.list[index].path = self.new_path(self.tasks.list[index].kind);
        }
    }

    /// What the throttle of the task that goes aims at.
    pub(crate) fn task_aim(&self, task: &Task) -> Option<Aim> {
        let paced = self.tasks.paced.as_ref()?;
        if paced.task != task.serial {
            return None;
        }
        let view = self.throttle_view(task);
        paced.pacer.aim(&view, &self.latencies)
    }

    fn throttle_view(&self, task: &Task) -> View {
        let user = self.counters.io_bytes[0] + self.counters.io_bytes[1];
        let window = self.window_bytes(task.kind);
        View {
            now: self.now,
            moved: task.moved,
            in_flight: u64::from(task.in_flight) * window,
            window,
            user_sectors: user / SECTOR_BYTES,
            parity: self.layout.parity(),
            depth: Depth::of(self.tasks.order_of(task.kind)),
            left: self.left_of(task),
            begun: task.begun,
        }
    }

    /// Gives tasks their turn: new ones where a slot lost its member, windows for the one that goes first.
    pub(crate) fn task_turn(&mut self) {
        if self.state == ArrayState::Stopping && !self.mode.read_only {
            return self.end_reshape_window();
        }
        if !self.serving() || self.mode.read_only || self.tasks.waits_for_start {
            return;
        }
        self.end_orphans();
        self.take_spares();
        self.bring_home();
        self.growth_waits();
        let Some(index) = self.tasks.active() else {
            return;
        };
        if self.is_reshaping() && self.tasks.list[index].kind == TaskKind::Growth {
            return self.reshape_turn(index);
        }
        match self.tasks.list[index].state {
            State::Running => self.issue_windows(index),
            State::Flushing => {}
            State::Flushed => self.end_task(index),
            State::Opening { version } => self.open_capacity(index, version),
        }
    }

    /// A window that is open when the array is stopped is ended, one way or the other.
    fn end_reshape_window(&mut self) {
        let index = self.tasks.growth_index();
        if let Some(index) = index.filter(|_| self.is_reshaping()) {
            self.reshape_turn(index);
        }
    }

    /// Tasks whose target failed.
    fn end_orphans(&mut self) {
        let orphaned = |task: &Task| task.is_orphaned() && task.in_flight == 0;
        while let Some(index) = self.tasks.list.iter().position(orphaned) {
            let task = self.tasks.list.remove(index);
            self.writer.note_change();
            self.task_ended(&task, TaskOutcome::Failed);
        }
    }

    fn task_ended(&mut self, task: &Task, outcome: TaskOutcome) {
        let (kind, slot) = (task.kind, task.slot);
        self.fact(Fact::TaskEnded {
            kind,
            slot,
            outcome,
        });
    }

    fn issue_windows(&mut self, index: usize) {
        let task = &self.tasks.list[index];
        if task.stands() {
            self.tasks.paced = None;
            return;
        }
        if self.is_through(index) {
            return self.flush_last(index);
        }
        if self.records_region(&self.tasks.list[index]) {
            self.checkpoint(index);
        }
        let task = &self.tasks.list[index];
        if self.now < task.not_before {
            let until = task.not_before;
            return self.wake_at(Wake::Task, until);
        }
        let (serial, view) = (task.serial, self.throttle_view(task));
        let more = match self.decide(serial, &view) {
            Decision::Issue(bytes) => u32::try_from(bytes / view.window).unwrap_or(u32::MAX),
            Decision::Hold => return,
            Decision::Wait(until) => return self.wake_at(Wake::Task, until),
        };
        let in_flight = self.tasks.list[index].in_flight;
        let windows = in_flight.saturating_add(more).min(self.most_windows());
        let mut issued = None;
        while self.tasks.list[index].in_flight < windows || self.in_one_batch(index, issued) {
            let Some(row) = self.next_row(index) else {
                break;
            };
            if !self.issue_window(index, row) {
                break;
            }
            issued = Some(row);
        }
        self.run_slices();
        let task = self.tasks.list.get(index);
        if issued.is_some() && task.is_some_and(|task| task.in_flight == 0) {
            // These windows needed no operation: nothing else would bring the next turn.
            self.wake_now(Wake::Task);
        }
        if index < self.tasks.list.len() && self.is_through(index) {
            self.flush_last(index);
        }
    }

    /// Whether all rows are done, but for those that need nothing: then a task ends, whatever its pace.
    fn is_through(&self, index: usize) -> bool {
        let task = &self.tasks.list[index];
        if task.in_flight > 0 {
            return false;
        }
        let mut row = task.done.first_gap(0);
        while row < self.layout.rows() {
            match self.needless_until(index, Row(row)) {
                Some(end) => row = task.done.first_gap(end),
                None => return false,
            }
        }
        true
    }

    /// The rows are done; what was written for them is not durable yet.
    fn flush_last(&mut self, index: usize) {
        let rows = self.layout.rows();
        let task = &mut self.tasks.list[index];
        let (serial, left) = (task.serial, rows - task.done.len());
        self.tasks.note_unwritten(serial, left);
        self.tasks.scrub_snapshot(serial);
        let begun = self.flusher.begun;
        let facts = self.facts();
        let task = &mut facts.tasks.list[index];
        task.pass(0, rows);
        (task.state, task.asked) = (State::Flushing, begun);
        task.barrier = facts.now;
        self.flush_for(Waiter::Checkpoint);
    }

    /// The end of the rows from this one on that a task has nothing to do with: they were never written, or
    /// have no cell in the slot that is filled. None: it has.
    fn needless_until(&self, index: usize, row: Row) -> Option<u64> {
        let task = &self.tasks.list[index];
        let fills = task.slot.filter(|_| task.is_filling());
        let apart = fills.is_some_and(|slot| !self.layout.stands_on(row, Slot(slot)));
        let end = if !self.is_written(row) && !self.extent_in_motion(row) {
            (self.extent_of(row) + 1) * self.superblock.extent_rows
        } else if apart {
            row.0 + 1
        } else {
            return None;
        };
        Some(self.same_side_until(row, end))
    }

    /// The end of rows that are as dead or alive as this one, and in the same shape: `end` at most.
    fn same_side_until(&self, row: Row, end: u64) -> u64 {
        let sides = [self.layout.edge(), self.layout.live_from()];
        let mut sides = sides.into_iter().filter(|side| *side > row);
        let end = end.min(self.layout.rows());
        sides.next().map_or(end, |side| end.min(side.0))
    }

    /// The next row that is neither done nor in flight; those that need nothing are done in passing.
    fn next_row(&mut self, index: usize) -> Option<Row> {
        loop {
            let (zone_rows, rows) = (self.heat.zone_rows(), self.layout.rows());
            let task = &mut self.tasks.list[index];
            let (path, claimed) = (&mut task.path, &task.claimed);
            let row = path.next(claimed, &task.streams, zone_rows, rows)?;
            let furthest = match self.tasks.list[index].kind {
                TaskKind::Growth => self.move_at_most(&self.tasks.list[index]),
                _ => rows,
            };
            if row.0 >= furthest {
                return None;
            }
            let Some(end) = self.needless_until(index, row) else {
                return Some(row);
            };
            let end = end.min(furthest);
            let task = &mut self.tasks.list[index];
            let (serial, before) = (task.serial, task.done.len());
            task.pass(row.0, end - row.0);
            let passed = task.done.len() - before;
            self.tasks.note_unwritten(serial, passed);
        }
    }

    // ---------------------------------------------------------------------------------------------- checkpoints

    pub(crate) fn checkpoint_flushed(&mut self, flush: u64) {
        let mut changed = false;
        for index in 0..self.tasks.list.len() {
            let task = &mut self.tasks.list[index];
            if task.asked >= flush {
                continue;
            }
            // What a scrub has on record is the result of all these rows, so that none counts twice.
            let whole = |rows: &RunSet| rows.runs().len() <= RUNS_OF_TASK_MAX;
            let is_scrub = task.kind.is_scrub();
            let snapshot = task.checkpoint.take();
            let snapshot = snapshot.filter(|rows| !is_scrub || whole(rows));
            let trusted = snapshot.is_some() || task.state == State::Flushing;
            if let Some(snapshot) = snapshot {
                task.trust(&snapshot);
            }
            if task.state == State::Flushing {
                task.durable = task.done.clone();
                task.state = State::Flushed;
            }
            if trusted {
                self.scrub_trusted(index);
                changed = true;
            }
            if is_scrub {
                self.checkpoint_if_due(index);
            }
        }
        if changed {
            self.writer.note_change();
        }
        self.reshape_flushed(flush);
    }

    // --------------------------------------------------------------------------------------------------- ending

    fn end_task(&mut self, index: usize) {
        // Until superblocks say that all is filled, a crash would find less than is trusted from here on.
        if self.maps_dirty() || !self.writer.all_durable() {
            return;
        }
        if self.tasks.list[index].kind == TaskKind::Growth {
            return self.end_growth(index);
        }
        let task = self.tasks.list.remove(index);
        match (task.kind, task.slot) {
            (TaskKind::Rebuild | TaskKind::Replace, Some(slot)) => {
                self.install(slot as usize, task.outsourced)
            }
            (TaskKind::Resync, _) => self.superblock.resync_pending = false,
            _ => self.scrub_ends(&task, ScrubState::Completed),
        }
        if self.intent.any() {
            self.wake_after(Wake::Lazy, Nanos::from_secs(1));
        }
        self.writer.note_change();
        self.task_ended(&task, TaskOutcome::Done);
    }

    /// Ends a scrub before its time.
    pub(crate) fn cancel_scrub(&mut self) -> bool {
        let scrub = |task: &Task| task.kind.is_scrub();
        let Some(index) = self.tasks.list.iter().position(scrub) else {
            return false;
        };
        let task = self.tasks.list.remove(index);
        self.scrub_ends(&task, ScrubState::Cancelled);
        self.writer.note_change();
        self.task_ended(&task, TaskOutcome::Cancelled);
        true
    }
}
