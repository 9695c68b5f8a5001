//! The result of a scrub: kept while its task runs, on record from then on, and told when it ends.
//!
//! The record in the superblocks trails: it has the rows of the durable done-set. So a row counts once, but for a row that was
//! repaired right before a crash: it is compared again, and agrees.

use super::table::{LOOKED_AT_CLOSELY, Live, Task, Tasks};
use crate::contract::{Cure, Fact, LastScrub, ScrubMode, ScrubState};
use crate::core::Core;
use crate::runset::RunSet;
use crate::slice::findings::Scrubbed;
use alloc::boxed::Box;
use alloc::vec::Vec;
use restripe_format::meta::superblock::last_scrub::{Finding, count};

impl Tasks {
    pub(super) fn scrub_mode(&self) -> ScrubMode {
        self.scrub.map_or(ScrubMode::Check, |live| live.result.mode)
    }

    /// These rows were never written.
    pub(super) fn note_unwritten(&mut self, serial: u64, rows: u64) {
        if let Some(live) = self.scrub.as_mut().filter(|live| live.serial == serial) {
            count(&mut live.result.unwritten, rows);
        }
    }

    /// Whether a row that disagrees is looked at block by block, so that sizes are true: the first ones of a scrub.
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
    pub(super) fn scrub_snapshot(&mut self, serial: u64) {
        if let Some(live) = self.scrub.as_mut().filter(|live| live.serial == serial) {
            live.checkpoint = live.result;
        }
    }
}

impl Core {
    /// A scrub begins, or goes on after a restart with what is on record of it: the rows that are done. One without a record begins
    /// anew.
    pub(super) fn scrub_begins(&mut self, mode: ScrubMode, serial: u64, done: RunSet) -> RunSet {
        let on_record = self.superblock.tail.last_scrub;
        let goes_on = on_record.filter(|last| {
            self.starts()
                && last.state == ScrubState::Running
                && last.mode.writes() == mode.writes()
        });
        let done = if goes_on.is_some() {
            done
        } else {
            RunSet::default()
        };
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

    /// Reports and counts what a scrub found in the row of a window, once the window is done.
    pub(super) fn scrubbed_row(&mut self, id: u32) {
        let slice = self.slices.get(id);
        let (map, serial, scrubbed) = (slice.map, slice.serial, slice.scrubbed);
        let row = map.row;
        let mut findings = core::mem::take(&mut slice.findings);
        if self.halt.is_some() {
            return;
        }
        if self.live_cells(&map) != map.all() {
            // A member that failed may have failed a repair.
            findings
                .iter_mut()
                .for_each(|found| found.cure = Cure::Left);
        }
        let mut counted = Vec::new();
        for found in &findings {
            let slot = found.cell.map(|cell| map.cells[usize::from(cell)].slot);
            let guilty = slot.and_then(|slot| self.homes(slot, row).reader());
            self.fact(Fact::Mismatch {
                row: row.0,
                at: found.at,
                sectors: found.sectors,
                guilty,
                unreadable: found.unreadable,
                cure: found.cure,
            });
            let entry = guilty.and_then(|member| self.devices[usize::from(member.0)].entry);
            counted.push(Finding {
                member: entry.map(|entry| self.superblock.members[usize::from(entry)].uuid),
                unreadable: found.unreadable,
                cure: found.cure,
                sectors: found.sectors,
            });
        }
        let live = self.tasks.scrub.as_mut();
        let Some(live) = live.filter(|live| live.serial == serial) else {
            return;
        };
        match scrubbed {
            Scrubbed::Compared => count(&mut live.result.compared, 1),
            Scrubbed::Unwritten => count(&mut live.result.unwritten, 1),
            Scrubbed::Passed => {}
        }
        let looks_closely = live.result.found() < LOOKED_AT_CLOSELY;
        live.result.note_row(row.0, &counted);
        if looks_closely && !counted.is_empty() {
            self.records_scrub_soon(serial);
        }
    }

    /// Asks for a checkpoint, so that the newest findings are on record as soon as their repairs are durable.
    fn records_scrub_soon(&mut self, serial: u64) {
        let now = self.now;
        let mut tasks = self.tasks.list.iter_mut();
        if let Some(task) = tasks.find(|task| task.serial == serial) {
            task.next_checkpoint = now;
        }
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
