//! The table of tasks: what each has done, and what it is at. [`super`] goes on with them.

use crate::contract::{DroppedTask, LastScrub, Moves, Order, ScrubMode, TaskKind, Throttle};
use crate::policy::order::{Path, Streams};
use crate::policy::throttle::{DEFAULT, Limits, Pacer};
use crate::report::{Moved, Pacing};
use crate::runset::RunSet;
use crate::units::{Member, Nanos, Row, Slot};
use alloc::vec::Vec;
use core::ops::Range;
use restripe_format::meta::superblock::last_scrub::count;
use restripe_format::meta::superblock::{RUNS_OF_TASK_MAX, TASKS_MAX, TaskRecord};

/// Of the tasks that superblocks have room for, one is a scrub and one a resynchronisation.
const FILLS_MAX: usize = TASKS_MAX - 2;

/// An array that disagrees in more rows than this is no case of single sectors, and a look at each block
/// would take long.
pub(crate) const LOOKED_AT_CLOSELY: u64 = 1000;

/// A write that failed is tried again after this time.
pub(super) const AGAIN_AFTER: Nanos = Nanos::from_secs(2);

/// The scrub that runs.
#[derive(Clone, Copy)]
pub(crate) struct Live {
    pub(crate) serial: u64,
    pub(crate) result: LastScrub,
    /// As of the checkpoint under way.
    pub(crate) checkpoint: LastScrub,
}

/// Part of a row to be made consistent after a crash, and the records that may decide it, newest first.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    pub(crate) row: Row,
    pub(crate) start: u64,
    pub(crate) sectors: u64,
    pub(crate) cuts: Vec<Cut>,
    /// The record in question; those before it proved torn.
    pub(crate) current: usize,
}

/// A write that a crash may have cut short, as its log record tells it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// The range of the whole record.
    pub(crate) start: u64,
    pub(crate) sectors: u64,
    pub(crate) modified: u32,
    /// It is on every log that it was meant for. Otherwise nothing was written in place for it, and it tells
    /// nothing.
    pub(crate) complete: bool,
    /// Partial P and partial Q, unless every data cell was being written.
    pub(crate) payloads: [Option<Payload>; 2],
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Payload {
    pub(crate) member: Member,
    pub(crate) at: u64,
    pub(crate) checksum: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Running,
    /// All rows done; the target's cache is being flushed.
    Flushing,
    /// Flushed; the maps are still on their way to it.
    Flushed,
    /// Of a growth: over, as soon as this version of the superblocks says so.
    Opening {
        version: u64,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) kind: TaskKind,
    pub(crate) slot: Option<u16>,
    pub(crate) paused: bool,
    pub(crate) done: RunSet,
    pub(crate) durable: RunSet,
    pub(crate) checkpoint: Option<RunSet>,
    /// How many flushes had begun when the checkpoint, or the last flush, was asked for: only a later one
    /// will do.
    pub(crate) asked: u64,
    pub(crate) next_checkpoint: Nanos,
    /// Since the array was started.
    pub(crate) begun: Nanos,
    /// A growth, while a member is missing.
    pub(crate) waits: bool,
    /// A growth that could not write to a member waits this long.
    pub(crate) not_before: Nanos,
    /// When its last row was done.
    pub(crate) barrier: Nanos,
    /// Rows done or in flight.
    pub(crate) claimed: RunSet,
    pub(crate) path: Path,
    pub(crate) streams: Streams,
    pub(crate) in_flight: u32,
    pub(crate) serial: u64,
    /// Bytes of one member in windows that are done: what was never written is done without moving any.
    pub(crate) moved: u64,
    pub(crate) state: State,
    /// Of a resynchronisation: for so many rows to come, parity is written without being looked at.
    pub(crate) unseen: u32,
    /// It fills a substitute disk with parity, for a growth that outsources that: windows of the growth fill
    /// it. Superblocks do not record this: after a restart it is a replacement like any other.
    pub(crate) outsourced: bool,
}

/// What paces the task that goes first, since it goes.
pub(crate) struct Paced {
    /// Its serial.
    pub(crate) task: u64,
    pub(crate) pacer: Pacer,
}

#[derive(Default)]
pub(crate) struct Tasks {
    pub(crate) list: Vec<Task>,
    pub(crate) replays: Vec<Replay>,
    /// Those that have not ended.
    pub(crate) replays_left: u32,
    pub(crate) serials: u64,
    /// Begun anew when another task goes first, after a pause, and under other limits or another throttle:
    /// what was moved before says nothing about the speed since. None while nothing goes.
    pub(crate) paced: Option<Paced>,
    pub(crate) limits: Option<Limits>,
    pub(crate) throttle: Throttle,
    pub(crate) order: Order,
    pub(crate) on_demand: bool,
    /// The start of a pair of sets is on its way: it reads what lies beside home, and mends what is wrong
    /// there, before anybody brings copies in step, who knows less of which is; and users wait for it, not
    /// for tasks.
    pub(crate) waits_for_start: bool,
    pub(crate) moves: Moves,
    /// A window of a growth was at work in this step.
    pub(crate) moved_now: bool,
    /// What was rebuilt apart stays so and is spread, unless a slot waits for a spare.
    pub(crate) stays_apart: bool,
    pub(crate) rows: u64,
    /// The scrub that runs.
    pub(crate) scrub: Option<Live>,
    /// A date in seconds since 1970-01-01 UTC, and when it was given.
    pub(crate) date: Option<(Nanos, u64)>,
    /// A reshape has a window open: no other task gets any.
    pub(crate) reshape_open: bool,
    /// Members in service that gave up partitions, and the log sequence as of then.
    pub(crate) vacated: Vec<(Member, u64)>,
    /// Under this version of the superblock what is hosted lies as evenly as it may.
    pub(crate) spread_under: u64,
    /// Those whose targets were missing at a start, until the slot is filled anew or the target is used for
    /// something else.
    pub(crate) dropped: Vec<DroppedTask>,
    /// Slots for which nobody was found who could take a partition, under this version of the superblock.
    pub(crate) in_vain: (u64, Vec<usize>),
}

/// After a row whose parity differs, so many have theirs written unseen.
pub(crate) const UNSEEN_ROWS: u32 = 64;

/// A checkpoint is made this often.
pub(crate) const CHECKPOINT_EVERY: Nanos = Nanos::from_secs(2);
/// And of a growth, whose moves only cost time if they are done again: those that users' writes ask for come
/// on top.
pub(crate) const GROWTH_CHECKPOINT_EVERY: Nanos = Nanos::from_secs(30);

impl Tasks {
    /// No tasks, at the paces that were asked for.
    pub(crate) fn begin_anew(&mut self) {
        let former = core::mem::take(self);
        self.paced_like(&former);
        self.waits_for_start = former.waits_for_start;
    }

    /// The same paces as another's.
    pub(crate) fn paced_like(&mut self, other: &Tasks) {
        (self.limits, self.throttle) = (other.limits, other.throttle);
        (self.order, self.on_demand) = (other.order, other.on_demand);
        (self.moves, self.stays_apart) = (other.moves, other.stays_apart);
        self.date = other.date;
    }

    pub(crate) fn filler(&self, slot: Slot) -> Option<&Task> {
        let fills = |task: &&Task| task.is_filling() && task.slot == Some(slot.0);
        self.list.iter().find(fills)
    }

    /// Whether a row of the slot's incoming member is as good as a serving member's.
    pub(crate) fn filled(&self, slot: Slot, row: Row) -> bool {
        let task = self.filler(slot);
        task.is_some_and(|task| task.done.contains(row.0))
    }

    /// Whether a checkpoint, perhaps still on its way, says that a row of the incoming member is filled.
    pub(crate) fn filled_durably(&self, slot: Slot, row: Row) -> bool {
        let task = self.filler(slot);
        task.is_some_and(|task| task.durable.contains(row.0))
    }

    pub(crate) fn resync(&self) -> Option<&Task> {
        self.list.iter().find(|task| task.kind == TaskKind::Resync)
    }

    pub(crate) fn in_sync(&self, row: Row) -> bool {
        self.resync().is_none_or(|task| task.done.contains(row.0))
    }

    /// Whether the resynchronisation of a row is under way, or over.
    pub(crate) fn is_resyncing(&self, row: Row) -> bool {
        let task = self.resync();
        task.is_none_or(|task| task.claimed.contains(row.0))
    }

    /// These rows have just been made consistent as a whole: a resynchronisation has no work with them.
    pub(crate) fn note_in_step(&mut self, first: u64, count: u64) {
        let rows = first..(first + count).min(self.rows);
        let mut tasks = self.list.iter_mut();
        if let Some(task) = tasks.find(|task| task.kind == TaskKind::Resync) {
            task.pass(rows.start, rows.end - rows.start);
        }
    }

    /// The rows that a resynchronisation still owes, as runs; `None` if there is none.
    pub(crate) fn resync_owes(&self) -> Option<Vec<(u64, u64)>> {
        Some(self.rows_but(&self.resync()?.done))
    }

    /// The rows that a resynchronisation would do again after a crash, and those that a growth has moved and
    /// would, as runs.
    pub(crate) fn not_durable(&self) -> Vec<(u64, u64)> {
        let rows_but = |task: &Task| self.rows_but(&task.durable);
        let mut rows = self.resync().map(rows_but).unwrap_or_default();
        rows.extend(self.growth().map_or(Vec::new(), Task::done_not_durable));
        rows
    }

    pub(crate) fn rows_but(&self, done: &RunSet) -> Vec<(u64, u64)> {
        let mut left = RunSet::default();
        left.insert(0, self.rows);
        for &(first, count) in done.runs() {
            left.remove(first, count);
        }
        left.runs().to_vec()
    }

    pub(crate) fn replay_ended(&mut self) {
        self.replays_left = self.replays_left.saturating_sub(1);
    }

    pub(crate) fn replay(&self, record: u32) -> &Replay {
        &self.replays[record as usize]
    }

    /// A resynchronisation found a row whose parity differs. After a crash few do; in an array whose parity
    /// was never made all do, and reading it before it is written would take the longer.
    pub(crate) fn out_of_step(&mut self, serial: u64) {
        if let Some(task) = self.list.iter_mut().find(|task| task.serial == serial) {
            task.unseen = UNSEEN_ROWS;
        }
    }

    /// The task that goes first: what restores redundancy before what moves cells, and that before what only
    /// looks. A slot that is filled does not wait for another one whose filling is paused; all else waits for
    /// what it needs first, paused or not.
    pub(crate) fn active(&self) -> Option<usize> {
        let order = |task: &Task| match task.kind {
            TaskKind::Growth if self.reshape_open => -1,
            _ if self.rides(task) => 7,
            TaskKind::Resync => 0,
            TaskKind::Rebuild if !task.stands() => 1,
            TaskKind::Replace if !task.stands() => 2,
            TaskKind::Rebuild | TaskKind::Replace => 3,
            TaskKind::Growth if !task.stands() => 4,
            TaskKind::Check | TaskKind::Repair => 5,
            TaskKind::Growth => 6,
        };
        (0..self.list.len()).min_by_key(|&index| (order(&self.list[index]), index))
    }

    /// Whether windows are given to this task, or would be if it were not paused.
    pub(crate) fn goes_first(&self, task: &Task) -> bool {
        let first = self.active().map(|index| self.list[index].serial);
        first == Some(task.serial)
    }

    /// Who served what is being filled failed: the task goes on as a rebuild.
    pub(crate) fn source_failed(&mut self, slot: usize) {
        if let Some(task) = self.filler_mut(slot) {
            task.kind = TaskKind::Rebuild;
        }
    }

    /// Everything was flushed with nothing under way: what is done is durable.
    pub(crate) fn all_durable(&mut self) {
        for task in &mut self.list {
            let done = task.done.clone();
            task.trust(&done);
        }
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = Some(limits);
        self.paced = None;
    }

    /// Running tasks go on under another throttle, which starts from their present speed of nothing.
    pub(crate) fn set_throttle(&mut self, throttle: Throttle) {
        self.throttle = throttle;
        self.paced = None;
    }

    /// What a task has moved lately; none of one that does not go.
    pub(crate) fn moved_lately(&self, task: &Task) -> Option<Moved> {
        let paced = self.paced.as_ref()?;
        (paced.task == task.serial).then(|| paced.pacer.moved_lately(task.moved))
    }

    /// A client's read or write has ended, after this time.
    pub(crate) fn note_latency(&mut self, latency: Nanos) {
        if let Some(paced) = &mut self.paced {
            paced.pacer.note_latency(latency);
        }
    }

    /// What holds for a task while it goes.
    pub(crate) fn pacing(&self, kind: TaskKind) -> Pacing {
        let limits = self.limits.unwrap_or(DEFAULT);
        Pacing {
            rate_min: limits.min,
            rate_max: limits.max,
            throttle: self.throttle,
            order: self.order_of(kind),
            on_demand: self.on_demand,
        }
    }

    /// From now on, also in tasks that run, users' reads of what is not restored call the task there, or do
    /// not.
    pub(crate) fn set_on_demand(&mut self, on_demand: bool) {
        self.on_demand = on_demand;
        let tasks = self.list.iter_mut();
        tasks.for_each(|task| task.path.forget_demands());
    }

    /// The order that was asked for; a scrub restores nothing, and goes by address.
    pub(crate) fn order_of(&self, kind: TaskKind) -> Order {
        match kind {
            TaskKind::Check | TaskKind::Repair | TaskKind::Growth => Order::Pr,
            TaskKind::Rebuild | TaskKind::Replace | TaskKind::Resync => self.order,
        }
    }

    pub(crate) fn filler_mut(&mut self, slot: usize) -> Option<&mut Task> {
        let fills = |task: &&mut Task| task.is_filling() && task.slot == Some(slot as u16);
        self.list.iter_mut().find(fills)
    }

    /// No member is filled for the slot any more.
    pub(crate) fn target_failed(&mut self, slot: usize) {
        if let Some(task) = self.filler_mut(slot) {
            // Ended at the next turn: its windows may still be out.
            task.slot = None;
        }
    }

    /// Nobody is filled in these rows any more, and somebody is in others: these need no window.
    pub(crate) fn pass_by(&mut self, slot: usize, rows: Range<u64>) {
        if let Some(task) = self.filler_mut(slot) {
            task.pass(rows.start, rows.end - rows.start);
        }
    }

    /// Whether superblocks have room for one task more that fills a slot.
    pub(crate) fn may_fill(&self) -> bool {
        self.fills() < FILLS_MAX
    }

    pub(crate) fn fills(&self) -> usize {
        self.list.iter().filter(|task| task.is_filling()).count()
    }

    /// The tasks as the superblock shows them.
    pub(crate) fn records_into(&mut self, records: &mut Vec<TaskRecord>) {
        records.clear();
        for task in &mut self.list {
            if task.is_orphaned() || matches!(task.state, State::Opening { .. }) {
                continue;
            }
            let durable = task.durable.clone();
            task.trust(&durable);
            records.push(TaskRecord {
                kind: task.kind,
                slot: task.slot,
                paused: task.paused,
                done: task.durable.runs().to_vec(),
            });
        }
    }
}

impl Task {
    /// These rows need nothing.
    pub(crate) fn pass(&mut self, first: u64, count: u64) {
        self.claimed.insert(first, count);
        self.done.insert(first, count);
    }

    pub(crate) fn done_not_durable(&self) -> Vec<(u64, u64)> {
        let mut rows = self.done.clone();
        for &(first, count) in self.durable.runs() {
            rows.remove(first, count);
        }
        rows.runs().to_vec()
    }

    /// This much is flushed. Of a done-set of very many runs a superblock holds some, and no more is durable
    /// then: what was durable stays so.
    pub(crate) fn trust(&mut self, flushed: &RunSet) {
        self.durable = flushed.at_most(RUNS_OF_TASK_MAX, &self.durable);
    }

    /// It does not go on for now, whatever the throttle says.
    pub(crate) fn stands(&self) -> bool {
        self.paused || self.waits || self.is_orphaned()
    }

    /// The member that it filled has failed: it ends as soon as none of its windows is out.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.is_filling() && self.slot.is_none()
    }

    pub(crate) fn is_filling(&self) -> bool {
        self.kind.fills()
    }
}

/// Growths.
impl Tasks {
    /// The growth that is under way, of either kind.
    pub(crate) fn growth_index(&self) -> Option<usize> {
        let mut kinds = self.list.iter().map(|task| task.kind);
        kinds.position(|kind| kind == TaskKind::Growth)
    }

    pub(crate) fn growth(&self) -> Option<&Task> {
        Some(&self.list[self.growth_index()?])
    }

    pub(crate) fn growth_mut(&mut self) -> Option<&mut Task> {
        let index = self.growth_index()?;
        Some(&mut self.list[index])
    }

    /// Whether the growth fills this task's target as it moves rows: until it has, no window is this task's.
    pub(crate) fn rides(&self, task: &Task) -> bool {
        let moves = |growth: &Task| growth.state == State::Running && !growth.stands();
        let outsourced = task.outsourced && self.moves == Moves::ParityOutsourced;
        outsourced && !task.stands() && self.growth().is_some_and(moves)
    }

    /// The task that a growth fills as it moves rows.
    pub(crate) fn riding(&self) -> Option<&Task> {
        self.list.iter().find(|task| self.rides(task))
    }

    /// Whether a slot's filled rows are read where they are filled, and not where the slot is served:
    /// parity's member is spared what its substitute disk can do.
    pub(crate) fn reads_substitute(&self, slot: Slot) -> bool {
        self.moves == Moves::ParityOutsourced
            && self.riding().is_some_and(|task| task.slot == Some(slot.0))
    }

    /// A substitute disk has the parity of a row, by the move of that row.
    pub(crate) fn note_outsourced(&mut self, serial: u64, row: Row) {
        let fills = |task: &&mut Task| task.serial == serial && !task.is_orphaned();
        if let Some(task) = self.list.iter_mut().find(fills) {
            task.pass(row.0, 1);
        }
    }

    /// Something could not be moved: it is tried again, after a while.
    pub(crate) fn move_later(&mut self, now: Nanos) {
        if let Some(task) = self.growth_mut() {
            task.not_before = now.after(AGAIN_AFTER);
        }
    }

    /// Whether a row stands as it will after the growth, or there is none.
    pub(crate) fn is_moved(&self, row: Row) -> bool {
        self.growth().is_none_or(|task| task.done.contains(row.0))
    }
}

/// Scrubs.
impl Tasks {
    pub(crate) fn scrub_mode(&self) -> ScrubMode {
        self.scrub.map_or(ScrubMode::Check, |live| live.result.mode)
    }

    /// These rows were never written.
    pub(crate) fn note_unwritten(&mut self, serial: u64, rows: u64) {
        if let Some(live) = self.scrub.as_mut().filter(|live| live.serial == serial) {
            count(&mut live.result.unwritten, rows);
        }
    }

    /// Whether a row that disagrees is looked at block by block, so that sizes are true: the first ones of a
    /// scrub.
    pub(crate) fn looks_closely(&self) -> bool {
        let found = self.scrub.map_or(0, |live| live.result.found());
        found < LOOKED_AT_CLOSELY
    }

    /// Rows in which the running scrub found something.
    pub(crate) fn mismatches(&self, task: &Task) -> u64 {
        match self.scrub.filter(|live| live.serial == task.serial) {
            Some(live) => live.result.found(),
            None => 0,
        }
    }

    /// What is done is about to be flushed.
    pub(crate) fn scrub_snapshot(&mut self, serial: u64) {
        if let Some(live) = self.scrub.as_mut().filter(|live| live.serial == serial) {
            live.checkpoint = live.result;
        }
    }
}
