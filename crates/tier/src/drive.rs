//! Starts the work that is due by time, by space, or by the state of the sets.

use super::facts::{Stage, Stopping};
use super::remove::NOT_DESTAGED;
use crate::overlay::{Overlay, Pressure};
use crate::tier::Tier;
use restripe_array::report::ArrayState;
use restripe_array::{Nanos, RequestError, RequestOp};

/// A failed destage is retried after this time.
const RETRY: Nanos = Nanos::from_secs(1);

impl Tier {
    /// Starts and ends the work that is due. Returns false if there is none now.
    pub(super) fn drive(&mut self) -> bool {
        if self.settle_trust() || self.go_on_leaving() {
            return true;
        }
        if self.lacks_room() {
            self.cancel_removal(NOT_DESTAGED);
            let overlay = self.overlay_mut();
            let error = RequestError::NoSpace;
            return overlay.refuse_waiting(error) | overlay.refuse_clients(error);
        }
        if self.home().halted() {
            let refusal = self.home().refusal(RequestOp::Write);
            let overlay = self.overlay.as_mut();
            return overlay.is_some_and(|overlay| overlay.refuse_waiting(refusal));
        }
        self.lose_primaries();
        if !(self.stage == Stage::Serving || self.drains_writes()) || self.home().mode().read_only {
            return false;
        }
        let moving = self.redirects_clients() && !self.is_leaving();
        self.choose(moving);
        let log_failed = self.log().state() == ArrayState::Failed;
        let overlay = self.overlay_mut();
        if log_failed && !overlay.is_broken() {
            overlay.break_log();
            return true;
        }
        if self.watch_buffer() {
            return true;
        }
        let overlay = self.overlay_mut();
        let clean_go = overlay.pressure() >= Pressure::DropClean || self.is_leaving();
        if clean_go && self.drop_clean() {
            return true;
        }
        if self.going && !self.overlay().is_destaging() {
            self.going = false;
            self.destage_ended();
            return true;
        }
        let overlay = self.overlay();
        let short = overlay.is_starved() || overlay.pressure() >= Pressure::Reclaim;
        let due = match self.surrogate.redirect {
            redirect if redirect.is_constant() => return self.drive_destage(short),
            _ => short || !moving && overlay.holds_anything(),
        };
        // A destage that frees nothing would restart at once, and the awaited event would never come.
        let idle = overlay.is_destaging() || overlay.is_broken() || !overlay.has_to_destage();
        if !due || idle {
            return false;
        }
        if self.now < self.not_before {
            let at = self.not_before;
            self.route.wake_own(at);
            return false;
        }
        let last = !moving && self.is_last_destage();
        let overlay = self.overlay_mut();
        if last {
            overlay.destage_for_good();
        } else {
            overlay.destage(overlay.next_sequence());
        }
        self.going = overlay.is_destaging();
        self.going
    }

    /// Whether the array is stopping, and writes that it accepted wait for room that only a destage makes.
    fn drains_writes(&self) -> bool {
        let draining = self.stage == Stage::Stopping(Stopping::Draining);
        draining && self.overlay.as_ref().is_some_and(Overlay::is_starved)
    }

    /// A destage has ended, completely or not.
    fn destage_ended(&mut self) {
        if self.overlay.as_ref().is_some_and(|one| one.fell_short()) {
            self.not_before = self.now.after(RETRY);
        }
        self.removal_destage_ended();
        self.forget_redirects();
    }
}
