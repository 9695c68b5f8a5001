//! Tasks: rebuild, replace, resync, scrub, growth. One mechanism: a done-set over rows, and windows in flight.
//!
//! | state     | cause                                     | next      |
//! |-----------|-------------------------------------------|-----------|
//! | running   | every row done                            | flushing  |
//! | flushing  | the flush ended, maps durable             | ended, or opening |
//! | opening   | superblocks durable that end a growth     | ended     |
//! | running   | paused, another task goes first           | running   |
//! | any       | target failed, cancelled                  | ended     |
//!
//! The done-set counts at once for reads and writes; what a restart may believe is the durable one, which trails: a
//! checkpoint flushes first and then writes it into the superblocks.

mod growth;
mod places;
mod reshape;
pub(crate) mod reshaping;
mod scrub;
pub(crate) mod table;

use crate::contract::Order;
use crate::contract::{BAND_SECTORS_MAX, Fact, ScrubMode, ScrubState, TaskKind, TaskOutcome};
use crate::core::Core;
use crate::durability::flusher::Waiter;
use crate::facts::Wake;
use crate::planted::Bug;
use crate::policy::order::{Depth, Path, Streams};
use crate::policy::throttle::{DEFAULT, Decision, Pacer, View};
use crate::report::{Aim, ArrayState};
use crate::runset::RunSet;
use crate::slice::rows::Need;
use crate::slice::table::Kind;
use crate::units::{Nanos, Row, SECTOR_BYTES, Slot};
use restripe_format::meta::superblock::RUNS_OF_TASK_MAX;
use table::{CHECKPOINT_EVERY, GROWTH_CHECKPOINT_EVERY, Paced, State, Task};

impl Core {
    pub(crate) fn start_scrub(&mut self, mode: ScrubMode, done: RunSet) {
        let kind = match mode.writes() {
            true => TaskKind::Repair,
            false => TaskKind::Check,
        };
        let done = self.scrub_begins(mode, self.tasks.serials + 1, done);
        self.start_task(kind, None, done);
    }

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
        });
        self.keeper.note_change();
        self.fact(Fact::TaskStarted { kind, slot });
    }

    /// How much the task that goes first may have in flight now.
    fn decide(&mut self, task: u64, view: &View) -> Decision {
        if self
            .tasks
            .paced
            .as_ref()
            .is_none_or(|paced| paced.task != task)
        {
            let limits = self.tasks.limits.unwrap_or(DEFAULT);
            let pacer = Pacer::new(self.tasks.throttle, limits, view, &mut self.traffic);
            self.tasks.paced = Some(Paced { task, pacer });
        }
        let members = self.members();
        let paced = members
            .below
            .tasks
            .paced
            .as_mut()
            .expect("it was there or is new");
        paced.pacer.decide(view, &mut members.traffic)
    }

    /// What fills a slot goes through all its partitions at once. What goes through whole rows keeps every member busy
    /// in one stream.
    fn new_streams(&self, kind: TaskKind) -> Streams {
        let count = match kind {
            TaskKind::Rebuild | TaskKind::Replace => self.layout.partitions(),
            TaskKind::Resync | TaskKind::Check | TaskKind::Repair | TaskKind::Growth => 1,
        };
        Streams::new(self.layout.rows(), count)
    }

    /// Bytes of one member that a task has yet to go through.
    pub(crate) fn left_of(&self, task: &Task) -> u64 {
        let rows = self.layout.rows() - task.done.len();
        let chunks = match task.kind {
            TaskKind::Growth => self.moved_of(rows),
            _ => self.layout.rows_of_slot(rows),
        };
        chunks * self.layout.chunk_sectors() * SECTOR_BYTES
    }

    /// Bytes of one member that a window moves. What fills a slot has windows in rows of that alone; of what goes through all rows
    /// a member of a skewed array has a part, and the others have theirs at the same time.
    fn window_bytes(&self, kind: TaskKind) -> u64 {
        let chunk = self.layout.chunk_sectors() * SECTOR_BYTES;
        match kind {
            TaskKind::Rebuild | TaskKind::Replace => chunk,
            TaskKind::Resync | TaskKind::Check | TaskKind::Repair => {
                self.layout.rows_of_slot(chunk)
            }
            TaskKind::Growth => self.moved_of(chunk),
        }
    }

    fn new_path(&self, kind: TaskKind) -> Path {
        Path::new(self.tasks.order_of(kind), &self.heat, || self.blank_heat())
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
        if !matches!(
            self.state,
            ArrayState::Healthy | ArrayState::Degraded | ArrayState::Failed
        ) || self.mode.read_only
            || self.tasks.waits_for_start
        {
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
            self.keeper.note_change();
            self.fact(Fact::TaskEnded {
                kind: task.kind,
                slot: task.slot,
                outcome: TaskOutcome::Failed,
            });
        }
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
            Decision::Wait(until) => {
                self.wake_at(Wake::Task, until);
                return;
            }
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
        if issued.is_some()
            && self
                .tasks
                .list
                .get(index)
                .is_some_and(|task| task.in_flight == 0)
        {
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

    /// The end of the rows from this one on that a task has nothing to do with: they were never written, or have no cell in the
    /// slot that is filled. None: it has.
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
            let row = task
                .path
                .next(&task.claimed, &task.streams, zone_rows, rows)?;
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

    /// A row that no one has brought in step goes first: a write needs its parity, or a read its copies. False if there
    /// is no room for it now.
    pub(crate) fn resync_row(&mut self, row: Row) -> bool {
        let Some(index) = self
            .tasks
            .list
            .iter()
            .position(|task| task.kind == TaskKind::Resync)
        else {
            return true;
        };
        self.tasks.list[index].claimed.contains(row.0) || self.issue_window(index, row)
    }

    fn issue_window(&mut self, index: usize, row: Row) -> bool {
        let task = &self.tasks.list[index];
        let kind = match (task.kind, task.slot) {
            (TaskKind::Rebuild | TaskKind::Replace, Some(slot)) => Kind::Fill { slot },
            (TaskKind::Rebuild | TaskKind::Replace, None) => return false,
            (TaskKind::Resync, _) => Kind::Resync {
                compares: task.unseen == 0,
            },
            (TaskKind::Check | TaskKind::Repair, _) => Kind::Scrub {
                mode: self.tasks.scrub_mode(),
            },
            (TaskKind::Growth, _) => Kind::Move,
        };
        let chunk = self.layout.chunk_sectors();
        let need = Need {
            kind,
            row,
            start: 0,
            sectors: chunk,
            step: chunk.min(BAND_SECTORS_MAX),
            buffers: self.task_buffers(),
        };
        let (serial, window) = (task.serial, self.window_bytes(task.kind));
        let Some(id) = self.admit_slice(&need) else {
            return false;
        };
        let ahead = self.planted(Bug::RebuildRunsAhead);
        self.slices.get(id).serial = serial;
        let task = &mut self.tasks.list[index];
        task.claimed.insert(row.0, 1);
        task.in_flight += 1;
        task.streams.begun(row);
        task.unseen = task.unseen.saturating_sub(1);
        if ahead {
            task.done.insert(row.0, 1);
        }
        if let Some(paced) = &mut self.tasks.paced {
            paced.pacer.issued(window);
        }
        true
    }

    pub(crate) fn window_done(&mut self, id: u32, row: Row) {
        if matches!(self.slices.get(id).kind, Kind::Scrub { .. }) {
            self.scrubbed_row(id);
        }
        let slice = self.slices.get(id);
        let (serial, skipped) = (slice.serial, slice.skipped);
        let tasks = &self.tasks.list;
        let Some(index) = tasks.iter().position(|task| task.serial == serial) else {
            return;
        };
        let window = self.window_bytes(tasks[index].kind);
        let facts = self.facts();
        let task = &mut facts.tasks.list[index];
        task.in_flight -= 1;
        task.streams.ended(row);
        task.moved += window;
        if skipped {
            task.claimed.remove(row.0, 1);
        } else if facts.halt.is_none() {
            task.done.insert(row.0, 1);
        }
        self.slices.wake_waiting();
        self.requests.release_held();
        let mut tasks = self.tasks.list.iter();
        if let Some(index) = tasks.position(|task| task.serial == serial) {
            self.checkpoint_if_due(index);
        }
    }

    // ---------------------------------------------------------------------------------------------- checkpoints

    fn checkpoint_if_due(&mut self, index: usize) {
        let (now, begun) = (self.now, self.flusher.begun);
        let task = &mut self.tasks.list[index];
        let stands = task.checkpoint.is_some() || task.state != State::Running;
        if now < task.next_checkpoint || stands {
            return;
        }
        (task.checkpoint, task.asked) = (Some(task.done.clone()), begun);
        task.next_checkpoint = now.after(checkpoint_every(task.kind));
        let serial = task.serial;
        self.tasks.scrub_snapshot(serial);
        self.flush_for(Waiter::Checkpoint);
    }

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
            self.keeper.note_change();
        }
        self.reshape_flushed(flush);
    }

    // --------------------------------------------------------------------------------------------------- ending

    fn end_task(&mut self, index: usize) {
        // Until superblocks say that all is filled, a crash would find less than is trusted from here on.
        if self.maps_dirty() || !self.keeper.all_durable() {
            return;
        }
        if self.tasks.list[index].kind == TaskKind::Growth {
            return self.end_growth(index);
        }
        let task = self.tasks.list.remove(index);
        match (task.kind, task.slot) {
            (TaskKind::Rebuild | TaskKind::Replace, Some(slot)) => self.install(slot as usize),
            (TaskKind::Resync, _) => self.superblock.resync_pending = false,
            _ => self.scrub_ends(&task, ScrubState::Completed),
        }
        if self.intent.any() {
            self.wake_after(Wake::Lazy, Nanos::from_secs(1));
        }
        self.keeper.note_change();
        self.fact(Fact::TaskEnded {
            kind: task.kind,
            slot: task.slot,
            outcome: TaskOutcome::Done,
        });
    }

    /// Ends a scrub before its time.
    pub(crate) fn cancel_scrub(&mut self) -> bool {
        let scrub = |task: &Task| task.kind.is_scrub();
        let Some(index) = self.tasks.list.iter().position(scrub) else {
            return false;
        };
        let task = self.tasks.list.remove(index);
        self.scrub_ends(&task, ScrubState::Cancelled);
        self.keeper.note_change();
        self.fact(Fact::TaskEnded {
            kind: task.kind,
            slot: task.slot,
            outcome: TaskOutcome::Cancelled,
        });
        true
    }
}

fn checkpoint_every(kind: TaskKind) -> Nanos {
    match kind {
        TaskKind::Growth => GROWTH_CHECKPOINT_EVERY,
        _ => CHECKPOINT_EVERY,
    }
}
