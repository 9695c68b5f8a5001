//! A stop: requests under way end, all is flushed, and two versions of the superblock say that the array is
//! clean.

use super::Commands;
use crate::contract::{Action, Bug, CommandError, CommandTag, Fact};
use crate::durability::flusher::Waiter;
use crate::report::ArrayState;

impl Commands {
    /// Refuses requests from now on, lets those under way end, flushes, and marks the array clean.
    pub(super) fn stop(&mut self, tag: CommandTag) {
        if !self.serving() {
            let error = CommandError::Busy("the array is not serving");
            self.out.push(Action::CommandReply(tag, Err(error)));
            return;
        }
        self.state = ArrayState::Stopping;
        self.stopping = Some(tag);
        self.stop_turn();
    }

    /// Goes on with a stop when nothing is in flight any more.
    pub(crate) fn stop_turn(&mut self) {
        if self.state != ArrayState::Stopping || self.stop_flush {
            return;
        }
        let drained = self.requests.idle()
            && self.slices.idle()
            && self.makes_no_extents()
            && self.flusher.idle()
            && self.admissions.is_empty()
            && self.reshape_rests();
        if drained {
            self.stop_flush = true;
            self.flush_for(Waiter::Stop);
        }
    }

    pub(crate) fn stop_flushed(&mut self) {
        if self.mode.read_only {
            return self.stopped();
        }
        self.tasks.all_durable();
        self.scrub_stops();
        self.heat_due();
        self.superblock.clean = true;
        self.superblock.tail.owner = None;
        self.keeper.note_change();
        self.stop_version = self.keeper.version_wanted();
    }

    /// A stop writes two versions, as a start does: a copy of a member from before is two behind
    /// ([`crate::choose::choose`]). True if the second is to be written now.
    pub(crate) fn stop_settle(&mut self) -> bool {
        let durable = self.stop_version > 0 && self.keeper.is_durable(self.stop_version);
        if !durable || self.maps_dirty() || self.heat_pages.dirty() {
            return false;
        }
        let once = self.planted(Bug::StopWritesOnce);
        if core::mem::replace(&mut self.stop_confirms, true) || once || self.halted() {
            self.stopped();
            return false;
        }
        self.keeper.note_change();
        self.stop_version = self.keeper.version_wanted();
        true
    }

    fn stopped(&mut self) {
        self.stop_version = 0;
        self.stop_confirms = false;
        self.state = ArrayState::Stopped;
        let on_record = self.on_record();
        if on_record.is_ok() {
            self.fact(Fact::Stopped);
        }
        if let Some(tag) = self.stopping.take() {
            self.out.push(Action::CommandReply(tag, on_record));
        }
    }
}
