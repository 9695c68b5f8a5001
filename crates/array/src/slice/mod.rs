//! The slice machine: one sector range of a row, worked on under a lock, for every layout alike.
//!
//! Analyse, decide, act: a slice issues a batch of operations, waits until all have ended, and looks again at
//! its row. A member may fail between any two steps.
//!
//! | phase         | waits for                               | then                                                |
//! |---------------|-----------------------------------------|-----------------------------------------------------|
//! | Queued        | older slices on the same sectors        | Preparing                                           |
//! | Preparing     | extent, intent, lost map, log room      | Reading, Merging, Combining, Writing, Finished      |
//! | Reading       | old data and parity                     | Reading (another way), Recovering, Merging, ...     |
//! | Recovering    | lost cells computed                     | Merging, Combining, Comparing, Writing, Delivering  |
//! | Merging       | new bytes put over an old block; a move: rows that go together | Reading, Recovering, Combining, Logging, Writing |
//! | Combining     | parity and partial parity computed      | Checksumming, Logging, Writing                      |
//! | Checksumming  | checksum of the partial parity          | Logging, Writing; a replay: Preparing, judged       |
//! | Logging       | the record durable                      | Writing                                             |
//! | Writing       | all cells written                       | Preparing (next pass or band), Finished             |
//! | Delivering    | bytes put into the request's buffer     | Writing (repair), Preparing (next band), Finished   |
//! | Comparing     | verdicts of a scrub                     | Recovering, Preparing (narrower), Writing, Finished |
//! | Finished      |                                         | freed                                               |
//!
//! When a member fails that the plan needs, Reading and Recovering plan again with what is left, and the
//! phases from Combining on go back to Preparing; so does a narrowed band. In Writing the other members are
//! waited for: the pass is done if the row can be decoded. `crates/sim/tests/it/table.rs` lists every
//! transition.
//!
//! A slice works on its range band by band. If a band cannot be decoded because of an unreadable sector, the
//! band is narrowed to one logical block, so that exactly the lost sectors are lost.
//!
//! Each kind of slice is a module of functions over [`rows::Rows`]: `read`, `write` (with `combine` and
//! `record`), `fill`, `resync`, `scrub`, `relocate`, `reshape` and `replay`. This file dispatches to the
//! kinds, `window` starts and ends those of tasks. Beneath the kinds are the table of slices (`table`), what
//! all slices do alike (`rows`) and their operations (`issue`).

mod combine;
mod erred;
mod fill;
mod issue;
pub(crate) mod read;
mod record;
pub(crate) mod relocate;
mod replay;
pub(crate) mod reshape;
mod resync;
pub(crate) mod rows;
mod scrub;
pub(crate) mod table;
mod window;
pub(crate) mod write;

use crate::contract::Bug;
use crate::layout::RowMap;
use crate::units::Slot;
use rows::Rows;
use table::{Kind, Phase};

impl Rows {
    /// Runs every slice that can go on. Whether any of them ended, which makes room for requests.
    pub(crate) fn run_slices(&mut self) -> bool {
        self.slices.ended = false;
        while let Some(id) = self.slices.runnable.pop_front() {
            let slice = &self.slices[id];
            if !slice.live || slice.pending > 0 {
                continue;
            }
            if slice.phase == Phase::Queued {
                // A write that a resynchronisation of its row goes before would be queued again at once.
                let ordered = !self.planted(Bug::OverlapOrderLost) || !self.in_sync(slice.row);
                if self.slices.blocked(id) && ordered {
                    continue;
                }
                self.slices.set_phase(id, Phase::Preparing);
                self.slices[id].map = self.row_now(id);
            }
            self.step_slice(id);
        }
        self.slices.ended
    }

    /// The cells of a slice's row. While the slice waited for its range, the row may have got more cells, or
    /// cells other places.
    fn row_now(&self, id: u32) -> RowMap {
        let map = self.slices[id].map;
        match self.layout.rows_are_fixed() || self.planted(Bug::RowSeenOnce) {
            true => map,
            false => self.row_map(map.row),
        }
    }

    /// The row may also get more cells while the slice waits for metadata and has read none of them yet.
    fn look_again(&mut self, id: u32) {
        let slice = &self.slices[id];
        let known = slice.bad.union(slice.have).union(slice.zeroed);
        if slice.phase == Phase::Preparing && known.is_empty() {
            self.slices[id].map = self.row_now(id);
        }
    }

    fn step_slice(&mut self, id: u32) {
        if !self.layout.rows_are_runs() {
            self.look_again(id);
        }
        let slice = &self.slices[id];
        let (kind, phase, row) = (slice.kind, slice.phase, slice.map.row);
        if phase == Phase::Preparing && kind.is_window() && self.halted() {
            // What it would wait for becomes durable no more.
            self.finish_slice(id);
            return self.end_slice(id);
        }
        match kind {
            Kind::Write(kind) => write::step(self, id, kind),
            Kind::Read(part, skip) => read::step(self, id, part, skip),
            Kind::Fill(slot) => fill::step(self, id, slot),
            Kind::Move => relocate::step(self, id),
            Kind::Reshape(aim) => reshape::step(self, id, aim),
            Kind::Resync { compares } => resync::step(self, id, compares),
            Kind::Scrub(mode) => scrub::step(self, id, mode),
            Kind::Replay(record) => replay::step(self, id, record),
        }
        if self.slices[id].phase == Phase::Finished {
            self.end_slice(id);
        }
        if kind == Kind::Move {
            relocate::release_batch(self, row);
        }
    }

    /// Reports the end of a slice to what it worked for, and frees it.
    fn end_slice(&mut self, id: u32) {
        let slice = &self.slices[id];
        let result = slice.error.map_or(Ok(()), Err);
        let row = slice.row;
        match slice.kind {
            Kind::Write(_) => write::end(self, id, result),
            Kind::Read(part, _) => read::end(self, part, result),
            Kind::Fill(slot) => {
                self.window_done(id, row);
                self.cache_rebuilt(Slot(slot), row);
            }
            Kind::Move | Kind::Resync { .. } | Kind::Scrub(_) => self.window_done(id, row),
            Kind::Reshape(_) => self.reshaped_row(result),
            Kind::Replay(_) => self.tasks.replay_ended(),
        }
        self.slices.free.push(id);
        self.slices.ended = true;
    }
}
