//! Durability: the floor above the metadata.
//!
//! Runs the flushes, and puts on record what tasks have done. Owns who waits for a flush, and the
//! partial-parity logs. Asks the metadata, the members and the facts. Sends [`crate::facts::Notice::Flushed`]
//! and [`crate::facts::Notice::FlushEnded`].
//!
//! Flushes go one at a time over all members with unflushed writes; what asks meanwhile shares the next. Data
//! is durable only after a flush by this daemon. So a member counts as unflushed when it is added, also with
//! data that an earlier daemon wrote, and a start flushes all members before it writes (`start`).
//!
//! | state   | cause                                   | next     |
//! |---------|-----------------------------------------|----------|
//! | idle    | a flush is requested                    | flushing |
//! | flushing| all members answered, failures on record| listing  |
//! | listing | done-lists of the logs written          | settling |
//! | settling| failures and lost-map pages are durable | idle     |
//!
//! A member that fails a flush is failed; the flush is never tried again on it. No flush of a halted array
//! succeeds.

mod checkpoint;
mod covering;
pub(crate) mod parity_log;
mod primary_first;

use crate::config::Config;
use crate::contract::{Bug, Class, IoOp};
use crate::facts::{NEVER, Notice, Waiter, Wake};
use crate::layout::{CellSet, RowMap};
use crate::members::device::Health;
use crate::members::ops::Owner;
use crate::members::pool::Share;
use crate::metadata::Metadata;
use crate::metadata::intent::LAZY;
use crate::units::{Member, Row};
use ::core::ops::Range;
use alloc::vec::Vec;
use parity_log::Logs;

/// Who waits for a flush, and which one runs.
#[derive(Default)]
pub(crate) struct Flusher {
    pub(crate) running: bool,
    /// All members have answered, and a failure that came with that is not on record yet.
    pub(crate) answered: bool,
    pub(crate) listing: bool,
    pub(crate) outstanding: u32,
    pub(crate) next: Vec<Waiter>,
    pub(crate) current: Vec<Waiter>,
    /// With the number of their flush: failures may hold up one while the next goes on.
    pub(crate) settling: Vec<(Waiter, u64)>,
    /// Counts flushes begun; what completed before flush `n` began is durable when it ends.
    pub(crate) begun: u64,
}

impl Flusher {
    /// Drops all that wait for a flush.
    pub(crate) fn forget_waiters(&mut self) {
        self.next.clear();
        self.current.clear();
        self.settling.clear();
    }

    /// Whether what a member held when it was added is being made durable.
    pub(crate) fn is_joining(&self) -> bool {
        let settling = self.settling.iter().map(|(waiter, _)| waiter);
        let waiting = self.next.iter().chain(&self.current).chain(settling);
        waiting.into_iter().any(|waiter| *waiter == Waiter::Join)
    }

    pub(crate) fn idle(&self) -> bool {
        !self.running && self.next.is_empty() && self.settling.is_empty()
    }
}

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
        self.below.intent_users[region].writes -= 1;
        self.note_region_written(region);
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
        durable && (!moved || self.writer.all_durable())
    }

    /// Begins a flush if one is wanted and none runs.
    pub(crate) fn flusher_turn(&mut self) {
        if self.flusher.running || self.flusher.next.is_empty() {
            return;
        }
        self.flusher.running = true;
        self.flusher.begun += 1;
        self.lost.flush_begun();
        let flusher = &mut self.flusher;
        core::mem::swap(&mut flusher.next, &mut flusher.current);
        let mut skip = self.planted(Bug::FlushSkipsMember);
        for index in 0..self.devices.len() {
            let device = &mut self.devices[index];
            if device.health == Health::Good && device.unflushed {
                device.unflushed = false;
                if core::mem::take(&mut skip) {
                    continue;
                }
                self.flusher.outstanding += 1;
                let (member, class) = (Member(index as u16), Class::Metadata);
                self.device_io(Owner::Flush, member, IoOp::Flush, 0, 0, class, |_| {});
            }
        }
        if self.flusher.outstanding == 0 {
            self.flush_ended();
        }
    }

    pub(crate) fn member_flushed(&mut self) {
        self.flusher.outstanding -= 1;
        if self.flusher.outstanding == 0 && self.flusher.running && !self.flusher.listing {
            self.flush_ended();
        }
    }

    fn flush_ended(&mut self) {
        let ended = self.flusher.begun;
        self.flusher.answered = false;
        if self.halted() {
            // Nothing was made durable, and no record is over.
            return self.listing_ended();
        }
        if !self.settled() && !self.replaying() {
            // After a crash now a member that failed its flush would count as current: the records and the
            // bits of what it did not write are all that tell.
            self.flusher.answered = true;
            return;
        }
        self.logs.flushed(ended);
        self.intent_flushed(ended);
        self.lost.flush_ended();
        self.flusher.listing = true;
        self.flusher.outstanding = self.write_done_lists();
        if self.flusher.outstanding == 0 {
            self.listing_ended();
        }
    }

    /// A failure is on record, or never will be: the flush that met it goes on.
    pub(crate) fn flush_resume(&mut self) {
        if self.flusher.answered {
            self.flush_ended();
        }
    }

    pub(crate) fn done_list_written(&mut self) {
        self.flusher.outstanding -= 1;
        if self.flusher.outstanding == 0 && self.flusher.listing {
            self.listing_ended();
        }
    }

    fn listing_ended(&mut self) {
        let flusher = &mut self.flusher;
        flusher.listing = false;
        flusher.running = false;
        let flush = flusher.begun;
        let ended = flusher.current.drain(..).map(|waiter| (waiter, flush));
        flusher.settling.extend(ended);
        self.flusher_settle();
        self.notify(Notice::FlushEnded);
    }

    /// Answers the flushes that have ended once nothing durable is owed any more.
    pub(crate) fn flusher_settle(&mut self) {
        // A recovery's own flush does not wait for superblocks: they are written when it is over.
        let settled = self.settled() && !self.lost.dirty();
        // Nor does it for the list of the lost while nothing may be written.
        let starting = self.undecided() || self.replaying() && !self.lost.dirty();
        if self.flusher.settling.is_empty() || !settled && !starting {
            return;
        }
        let mut settling = core::mem::take(&mut self.flusher.settling);
        for (waiter, flush) in settling.drain(..) {
            self.notify(Notice::Flushed(waiter, flush));
        }
        if self.flusher.settling.is_empty() {
            self.flusher.settling = settling;
        }
    }
}
