//! Durability: the floor above the metadata.
//!
//! Runs the flushes, and puts on record what tasks have done. Owns who waits for a flush, and the
//! partial-parity logs. Asks the metadata, the members and the facts. Sends [`crate::facts::Notice::Flushed`]
//! and [`crate::facts::Notice::FlushEnded`].

mod checkpoint;
mod flush;
pub(crate) mod flusher;
pub(crate) mod parity_log;
mod primary_first;

use crate::config::Config;
use crate::contract::Bug;
use crate::facts::{NEVER, Wake};
use crate::layout::{CellSet, RowMap};
use crate::members::pool::Share;
use crate::metadata::Metadata;
use crate::metadata::intent::LAZY;
use crate::units::Row;
use ::core::ops::Range;
use flusher::{Flusher, Waiter};
use parity_log::Logs;

pub struct Durability {
    pub(crate) below: Metadata,
    pub(crate) flusher: Flusher,
    pub(crate) logs: Logs,
}

floor!(Durability, Metadata);

impl Durability {
    pub(crate) fn new(config: Config, share: Share) -> Durability {
        Durability {
            flusher: Flusher::default(),
            logs: Logs::default(),
            below: Metadata::new(config, share),
        }
    }
}

impl Durability {
    pub(crate) fn flush_for(&mut self, waiter: Waiter) {
        let shared = !matches!(waiter, Waiter::Request(_));
        if !(shared && self.flusher.next.contains(&waiter)) {
            self.flusher.next.push(waiter);
        }
    }

    /// Sectors are going to be written soon, or all that was to be written of them is: until then their
    /// regions stay dirty, called so in one go and not one after the other.
    pub fn foresee_writes(&mut self, sectors: Range<u64>, soon: bool) {
        if self.layout.tolerance() == 0 || self.logged() || self.unguarded() {
            return;
        }
        let row = |lba| self.layout.place(lba).row;
        let (first, last) = (row(sectors.start), row(sectors.end - 1));
        for region in self.intent_region(first)..=self.intent_region(last) {
            let row = Row(region * self.superblock.intent_rows);
            match soon {
                true => {
                    self.below.intent.put(self.below.dirty_bit(region), true);
                    self.intent_acquire(row);
                }
                false => self.intent_release(row),
            }
        }
    }

    pub(crate) fn intent_release(&mut self, row: Row) {
        let region = self.intent_region(row) as usize;
        let users = &mut self.below.intent_users[region];
        users.writes -= 1;
        users.finished_at = self.flusher.begun;
        let dirty = self.intent.get(self.dirty_bit(region as u64));
        let owed = self.complete() && self.intent.get(self.owed_bit(region as u64));
        if (dirty || owed) && !self.all_dirty && self.wake[Wake::Lazy as usize] == NEVER {
            self.wake_after(Wake::Lazy, LAZY);
        }
    }

    pub(crate) fn lazy_timer(&mut self) {
        if self.intent.any() {
            self.flush_for(Waiter::Intent);
        }
    }

    /// Whether other bytes than were there may be written to these cells of a row: not where a crash would
    /// find them on the places that they were moved from. If not, that is about to change: wait for metadata
    /// to move.
    pub(crate) fn may_change(&mut self, map: &RowMap, cells: CellSet) -> bool {
        let stays = || self.moving_cells(map).0.intersection(cells).is_empty();
        if !self.layout.is_growing() || self.planted(Bug::MoveNotOnRecord) || stays() {
            return true;
        }
        self.durably_moved(map.row.0..map.row.0 + 1)
    }

    /// Whether these rows are found after a crash where they are now. If not, that is about to change: wait
    /// for metadata to move.
    pub(crate) fn durably_moved(&mut self, rows: Range<u64>) -> bool {
        let index = self.tasks.growth_index();
        let Some(index) = index.filter(|_| self.layout.is_growing()) else {
            return true;
        };
        let task = &self.tasks.list[index];
        let (mut moved, mut durable) = (false, true);
        for row in rows {
            let done = task.done.contains(row);
            moved |= done;
            durable &= !done || task.durable.contains(row);
        }
        if !durable {
            self.checkpoint(index);
        }
        durable && (!moved || self.keeper.all_durable())
    }
}
