//! Windows of tasks: a row of a task is a slice, and what becomes of it is noted with the task.

use super::rows::{Need, Rows};
use super::table::{Kind, Scrubbed};
use crate::contract::{BAND_SECTORS_MAX, Bug, Cure, Fact, TaskKind};
use crate::task::table::LOOKED_AT_CLOSELY;
use crate::units::Row;
use alloc::vec::Vec;
use restripe_format::meta::superblock::last_scrub::{Finding, count};

impl Rows {
    /// A row that no one has brought in step goes first: a write needs its parity, or a read its copies.
    /// False if there is no room for it now.
    pub(crate) fn resync_row(&mut self, row: Row) -> bool {
        let mut tasks = self.tasks.list.iter();
        let Some(index) = tasks.position(|task| task.kind == TaskKind::Resync) else {
            return true;
        };
        self.tasks.list[index].claimed.contains(row.0) || self.issue_window(index, row)
    }

    pub(crate) fn issue_window(&mut self, index: usize, row: Row) -> bool {
        let task = &self.tasks.list[index];
        let kind = match (task.kind, task.slot) {
            (TaskKind::Rebuild | TaskKind::Replace, Some(slot)) => Kind::Fill(slot),
            (TaskKind::Rebuild | TaskKind::Replace, None) => return false,
            (TaskKind::Resync, _) => Kind::Resync {
                compares: task.unseen == 0,
            },
            (TaskKind::Check | TaskKind::Repair, _) => Kind::Scrub(self.tasks.scrub_mode()),
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
        self.slices[id].serial = serial;
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
        if matches!(self.slices[id].kind, Kind::Scrub(_)) {
            self.scrubbed_row(id);
        }
        let slice = &self.slices[id];
        let (serial, skipped, outsourced) = (slice.serial, slice.skipped, slice.outsourced);
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
            if let Some(substitute) = outsourced {
                facts.tasks.note_outsourced(substitute, row);
            }
        }
        self.slices.wake_waiting();
        self.requests.release_held();
        let mut tasks = self.tasks.list.iter();
        if let Some(index) = tasks.position(|task| task.serial == serial) {
            self.checkpoint_if_due(index);
        }
    }

    /// Reports and counts what a scrub found in the row of a window, once the window is done.
    fn scrubbed_row(&mut self, id: u32) {
        let slice = &mut self.slices[id];
        let (map, serial, scrubbed) = (slice.map, slice.serial, slice.scrubbed);
        let row = map.row;
        let mut findings = core::mem::take(&mut slice.findings);
        if self.halt.is_some() {
            return;
        }
        if self.live_cells(&map) != map.all() {
            // A member that failed may have failed a repair.
            let findings = findings.iter_mut();
            findings.for_each(|found| found.cure = Cure::Left);
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
}
