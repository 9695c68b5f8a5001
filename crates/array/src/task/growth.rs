//! Growth by the least moves (McPod): data slots are added, and chunks move to them within their rows.
//!
//! | step     | durable before the next                             | what a crash finds                                   |
//! |----------|-----------------------------------------------------|------------------------------------------------------|
//! | begun    | superblocks with the new slots and the task         | the array as before, or a growth with nothing moved  |
//! | moving   | from time to time, which rows are moved             | those rows on their new places, others on their old  |
//! | moved    | that all are, and a clear map of what is added      | a growth that has nothing left to do                 |
//! | ended    | superblocks without the task                        | the array with its new capacity                      |
//!
//! A chunk is copied within its row, and nothing live is written over: both places are good until a user
//! writes one. So which rows are moved becomes durable late, and a write to a row that was moved, but not
//! durably, waits until that is. Parity is never touched: it binds the chunks of a row wherever they stand,
//! and neither the copies left behind nor the new slots' places, which are no part of their rows until they
//! are written (`written`).
//!
//! McPod does touch it: a substitute disk gets all parity, and takes the place of parity's member in the end.
//! With `Moves::ParityOutsourced` that is a replacement which the growth's windows fill (`Tasks::rides`).

use super::Background;
use crate::contract::{CommandError, Moves, TaskKind, TaskOutcome};
use crate::layout::Level;
use crate::report::GrowthPlan;
use crate::runset::RunSet;
use crate::task::table::{State, Task};
use crate::units::{Member, Row, Slot};

/// Rows are moved no further ahead of the first that is not, so that a superblock has room for all runs of
/// those that are.
const AHEAD: u64 = 32;

const NO_SUBSTITUTE: &str =
    "parity is to be outsourced, and no spare is left for it: add one first";

impl Background {
    // ------------------------------------------------------------------------------------------------- begin

    /// The array takes `by` of its spares as data slots: those that came last.
    pub(crate) fn command_grow(&mut self, by: u16) -> Result<(), CommandError> {
        let layout = self.layout_grown_by(by)?;
        let substitute = self.substitute_to_take(by)?;
        let spares = self.spares_to_take(by)?;
        self.superblock.geometry = *layout.geometry();
        self.layout = layout.growing();
        self.superblock.generation += 1;
        for member in spares {
            self.take_slot(member);
        }
        self.place_entries();
        let bits = self.written_bits();
        self.written.widen(bits);
        self.widen_redirected();
        self.forget_unfinished();
        self.rewrite_maps();
        self.size_ops();
        self.start_task(TaskKind::Growth, None, RunSet::default());
        if let Some((slot, member)) = substitute {
            self.outsource_parity(slot, member);
        }
        Ok(())
    }

    /// Parity's slot, and the spare that is to be its substitute disk: the last that the growth leaves.
    fn substitute_to_take(&self, by: u16) -> Result<Option<(Slot, Member)>, CommandError> {
        let outsources = self.tasks.moves == Moves::ParityOutsourced;
        let Some(slot) = self.parity_slot().filter(|_| outsources) else {
            return Ok(None);
        };
        let with_substitute = self.spares_to_take(by.saturating_add(1));
        let spares = with_substitute.map_err(|_| CommandError::Busy(NO_SUBSTITUTE))?;
        Ok(Some((slot, spares[0])))
    }

    /// The substitute disk takes parity's place as any member is replaced, so that a crash or the loss of a
    /// member finds what it would find then. But windows of the growth fill it.
    fn outsource_parity(&mut self, slot: Slot, member: Member) {
        let places = self.places_on(member, 0..1);
        self.fill(slot.0.into(), &places, TaskKind::Replace, RunSet::default());
        let filler = self.tasks.filler_mut(slot.0.into());
        filler.expect("begun just now").outsourced = true;
    }

    /// What a growth by `by` members would do, if it may begin now: by the least moves where the level has
    /// them, and else with every chunk dealt anew.
    pub fn growth_plan(&self, by: u16) -> Result<GrowthPlan, CommandError> {
        match self.superblock.geometry.level {
            Level::Raid5(_) | Level::Raid6(_) => self.reshape_plan(by),
            _ => self.least_growth_plan(by),
        }
    }

    // ------------------------------------------------------------------------------------------------ moving

    /// A growth waits until all members are present: each chunk needs a member to move to.
    pub(super) fn growth_waits(&mut self) {
        let waits = !self.complete();
        if let Some(task) = self.tasks.growth_mut() {
            task.waits = waits;
        }
    }

    /// Whether the row after this one, which was begun just now, goes with it.
    pub(super) fn in_one_batch(&self, index: usize, begun: Option<Row>) -> bool {
        let next = begun.map_or(0, |row| row.0 + 1);
        let moves = self.tasks.list[index].kind == TaskKind::Growth;
        moves && !next.is_multiple_of(self.batch_rows())
    }

    /// Rows from here on are not moved yet.
    pub(super) fn move_at_most(&self, task: &Task) -> u64 {
        match self.tasks.moves {
            Moves::Recorded => {
                let region = self.region_rows();
                (task.durable.first_gap(0) / region + 1) * region
            }
            _ => task.done.first_gap(0) + AHEAD,
        }
    }

    /// Whether all is moved that may be before that is on record.
    pub(super) fn records_region(&self, task: &Task) -> bool {
        let recorded = task.kind == TaskKind::Growth && self.tasks.moves == Moves::Recorded;
        recorded && task.done.first_gap(0) >= self.move_at_most(task).min(self.layout.rows())
    }

    // ------------------------------------------------------------------------------------------------ ending

    /// Every row stands as it will. Reads that began before may still be on their way to places that new
    /// capacity is to have.
    pub(super) fn end_growth(&mut self, index: usize) {
        let barrier = self.tasks.list[index].barrier;
        if self.requests.any_since_before(barrier) {
            return;
        }
        self.writer.note_change();
        let version = self.writer.version_wanted();
        self.tasks.list[index].state = State::Opening { version };
    }

    /// The new capacity is there once the superblocks say that everything is moved.
    pub(super) fn open_capacity(&mut self, index: usize, version: u64) {
        if !self.writer.is_durable(version) {
            return;
        }
        let task = self.tasks.list.remove(index);
        self.reshape_ended();
        self.layout = self.layout.settled();
        self.spread_heat();
        self.task_ended(&task, TaskOutcome::Done);
    }
}
