//! Flushes: one at a time over all members with unflushed writes; what asks meanwhile shares the next.
//!
//! Data is durable only after a flush by this daemon. So a member counts as unflushed when it is added, also
//! with data that an earlier daemon wrote, and a start flushes all members before it writes (`start`).
//!
//! | state   | cause                                   | next     |
//! |---------|-----------------------------------------|----------|
//! | idle    | somebody waits                          | flushing |
//! | flushing| all members answered, failures on record| listing  |
//! | listing | done-lists of the logs written          | settling |
//! | settling| failures and lost-map pages are durable | idle     |
//!
//! A member that fails a flush is failed; the flush is never tried again on it. No
//! flush of a halted array succeeds.

use super::Durability;
use crate::contract::{Bug, Class, IoOp};
use crate::facts::Notice;
use crate::members::device::Health;
use crate::members::ops::Owner;
use crate::units::Member;

impl Durability {
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
                self.device_io(
                    Owner::Flush,
                    Member(index as u16),
                    IoOp::Flush,
                    0,
                    0,
                    Class::Metadata,
                    |_| {},
                );
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
