//! The result of a scrub: kept while its task runs, on record from then on, and told when it ends.
//!
//! The record in the superblocks trails: it has the rows of the durable done-set. So a row counts once, but
//! for a row that was repaired right before a crash: it is compared again, and agrees.

use super::Background;
use super::table::{Live, Task};
use crate::contract::{Fact, LastScrub, ScrubMode, ScrubState};
use crate::runset::RunSet;
use alloc::boxed::Box;

impl Background {
    /// A scrub begins, or goes on after a restart with what is on record of it: the rows that are done. One
    /// without a record begins anew.
    pub(super) fn scrub_begins(&mut self, mode: ScrubMode, serial: u64, done: RunSet) -> RunSet {
        let on_record = self.superblock.tail.last_scrub;
        let goes_on = on_record.filter(|last| {
            self.starts()
                && last.state == ScrubState::Running
                && last.mode.writes() == mode.writes()
        });
        let done = goes_on.map_or_else(RunSet::default, |_| done);
        let mut result = goes_on.unwrap_or_else(|| LastScrub::new(mode, self.date()));
        result.rows = self.layout.rows();
        self.tasks.scrub = Some(Live {
            serial,
            result,
            checkpoint: result,
        });
        self.superblock.tail.last_scrub = Some(result);
        done
    }

    /// The result so far, with this many rows done.
    fn scrub_result(&self, mut result: LastScrub) -> LastScrub {
        let mut tasks = self.tasks.list.iter();
        result.rows = self.layout.rows();
        let scrub = tasks.find(|task| task.kind.is_scrub());
        result.done = scrub.map_or(result.done, |task| task.done.len());
        result
    }

    /// The result of the scrub that runs, or of the last one.
    pub(crate) fn last_scrub(&self) -> Option<LastScrub> {
        let live = self.tasks.scrub.map(|live| self.scrub_result(live.result));
        live.or(self.superblock.tail.last_scrub)
    }

    /// What was done at the last checkpoint is durable.
    pub(super) fn scrub_trusted(&mut self, task: usize) {
        let task = &self.tasks.list[task];
        if let Some(live) = self.tasks.scrub.filter(|live| live.serial == task.serial) {
            let mut result = live.checkpoint;
            (result.rows, result.done) = (self.layout.rows(), task.durable.len());
            self.superblock.tail.last_scrub = Some(result);
        }
    }

    /// All is flushed, and the array stops: the scrub goes on at the next start.
    pub(crate) fn scrub_stops(&mut self) {
        let scrub = self.tasks.list.iter().position(|task| task.kind.is_scrub());
        if let Some(index) = scrub {
            let serial = self.tasks.list[index].serial;
            self.tasks.scrub_snapshot(serial);
            self.scrub_trusted(index);
        }
    }

    /// A scrub has ended: its task is off the list.
    pub(super) fn scrub_ends(&mut self, task: &Task, state: ScrubState) {
        let live = self.tasks.scrub.take_if(|live| live.serial == task.serial);
        let Some(mut result) = live.map(|live| live.result) else {
            return;
        };
        (result.rows, result.done) = (self.layout.rows(), task.done.len());
        (result.state, result.ended) = (state, self.date());
        self.superblock.tail.last_scrub = Some(result);
        self.fact(Fact::Scrubbed(Box::new(result)));
    }

    /// Seconds since 1970-01-01 UTC, or 0 if no date was given.
    fn date(&self) -> u64 {
        let Some((given, date)) = self.tasks.date else {
            return 0;
        };
        date.saturating_add(self.now.since(given).0 / 1_000_000_000)
    }
}
