//! An instance of the array, from its start to its stop or halt: the top, above all floors.
//!
//! Takes each event through the floors, and attends to their notices. Owns nothing else. A floor owns the one
//! beneath it as `below`, and reads as that one too: whatever it calls lies on its own level or further down.

mod completions;
mod notices;
mod status;

use crate::clients::Copies;
use crate::commands::Commands;
use crate::config::Config;
use crate::contract::{Actions, Event, IoError, Request};
use crate::facts::{NEVER, Waiter, Wake};
use crate::members::device::Power;
use crate::members::pool::Share;
use crate::slice::relocate;
use crate::units::{Member, Nanos};
use alloc::vec::Vec;
use restripe_format::meta::pages::MapKind;

pub struct Instance {
    below: Commands,
}

floor!(Instance, Commands);

impl Instance {
    pub fn new(config: Config, share: Share) -> Instance {
        Instance {
            below: Commands::new(config, share),
        }
    }

    // ------------------------------------------------------------------------------------------------ each step

    /// As [`crate::Set::handle`].
    pub fn step(&mut self, now: Nanos, event: Event, actions: &mut Actions) {
        self.step_by(now, actions, |instance| instance.take(event));
    }

    /// The same for a request that is about some copies only.
    pub fn step_request(
        &mut self,
        now: Nanos,
        request: Request,
        copies: Copies,
        actions: &mut Actions,
    ) {
        self.step_by(now, actions, |instance| instance.request(request, copies));
    }

    pub fn step_by(
        &mut self,
        now: Nanos,
        actions: &mut Actions,
        change: impl FnOnce(&mut Instance),
    ) {
        assert!(
            now >= self.now,
            "time never goes back: {now:?} after {:?}",
            self.now
        );
        self.now = now;
        let unsure = self.unsure();
        core::mem::swap(&mut self.out, actions);
        change(self);
        self.attend();
        self.owner_turn();
        self.attend();
        self.judge_aside();
        self.run_slices();
        self.settle_turn();
        self.doubts(unsure);
        if !self.unsure() {
            self.drop_held_in_vain();
            self.release_held();
        }
        while let Some(io) = self.refused() {
            self.device_done(io, Err(IoError::NoSpace));
            self.run_slices();
            self.settle_turn();
        }
        self.hold_while_unsure();
        self.drop_held_in_vain();
        relocate::join_moves(self);
        core::mem::swap(&mut self.out, actions);
    }

    /// Operations that are held and were given up on never go out.
    #[inline]
    fn drop_held_in_vain(&mut self) {
        if !self.holds() {
            return;
        }
        for io in self.held_in_vain() {
            self.device_done(io, Err(IoError::Gone));
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Request(request) => self.request(request, Copies::All),
            Event::Device(io, result) => self.device_done(io, result),
            Event::Compute(compute, verdict) => self.compute_done(compute, verdict),
            Event::Timer => self.timer(),
            Event::Arrived(info) => self.arrived(info),
            Event::Departed(member) => self.departed(member),
            Event::Command(tag, command) => self.command(tag, command),
            Event::Turn => self.turn(),
            Event::Paused(time) => self.ownership.paused(time),
        }
    }

    /// The shell has nothing more for now: everything that waited for a turn gets one.
    pub(crate) fn turn(&mut self) {
        if self.starts() {
            self.run_slices();
            self.boot_turn();
        }
        // Also in the turn that ended the start: on an idle array nothing else would come to wake a task that
        // the members tell of.
        if !self.starts() {
            self.pump();
            // Slices that end without any operation make room that nothing else would tell the waiting
            // requests of.
            while self.run_slices() && self.requests_wait() {
                self.pump();
            }
            self.task_turn();
            self.attend();
        }
    }

    /// Starts as much queued work as there is room for.
    fn pump(&mut self) {
        self.pump_reads();
        while self.pump_writes() {
            self.attend();
        }
    }

    /// After every step: metadata, flushes and answers that the step made due.
    pub(crate) fn settle_turn(&mut self) {
        if self.securing() {
            self.flusher_turn();
            self.attend();
            // With nobody to flush that has ended already.
            self.boot_turn();
        }
        if self.undecided() {
            return self.arm();
        }
        self.settle_ahead();
        self.keep();
        self.flusher_turn();
        self.attend();
        if self.run_slices() && self.requests_wait() {
            self.wake_now(Wake::Task);
        }
        self.keep();
        self.stop_turn();
        if self.stop_settle() {
            self.keep();
        }
        self.admissions_turn();
        self.answers_turn();
        self.arm();
    }

    pub(crate) fn timer(&mut self) {
        self.armed = NEVER;
        let due = |wake: &mut Nanos, now: Nanos| {
            let due = *wake <= now;
            if due {
                *wake = NEVER;
            }
            due
        };
        let now = self.now;
        let (watchdog, lazy, heat) = (
            due(&mut self.wake[Wake::Watchdog as usize], now),
            due(&mut self.wake[Wake::Lazy as usize], now),
            due(&mut self.wake[Wake::Heat as usize], now),
        );
        for who in [Wake::Task, Wake::Full, Wake::Room, Wake::Owner] {
            due(&mut self.wake[who as usize], now);
        }
        if watchdog {
            self.watch();
        }
        if lazy {
            self.lazy_timer();
        }
        if heat {
            self.heat_timer();
        }
        self.turn();
    }

    /// Starts what needs writing and is not being written.
    pub(crate) fn keep(&mut self) {
        if !self.has_to_write() {
            return;
        }
        if self.undecided() {
            return;
        }
        if self.mode.read_only {
            self.keep_nothing();
            return self.attend();
        }
        if !self.replaying() && self.keeper.is_due() {
            let log_floor = self.logs.floor();
            self.write_superblocks(log_floor);
            self.attend();
        }
        for kind in MapKind::ALL {
            self.write_map(kind);
            self.attend();
        }
    }

    pub fn idle(&self) -> bool {
        self.ops.idle() && self.idle_but_for_orphans()
    }

    /// Nothing is under way but operations that were given up on, whose buffers are their own.
    pub fn idle_but_for_orphans(&self) -> bool {
        self.requests.idle()
            && self.slices.idle()
            && self.ops.only_orphans()
            && self.flusher.idle()
            && self.buffers.all_free()
    }

    /// Whether all mirrors are awake that can rest, some are, and nothing is under way or on its way that
    /// would wake them again.
    pub fn may_rest(&self) -> bool {
        let power = |member: &Member| self.devices[usize::from(member.0)].power;
        let can = |member: &Member| power(member) != Power::Restless;
        let mut mirrors: Vec<Member> = self.mirrors();
        mirrors.retain(can);
        !mirrors.is_empty()
            && mirrors.iter().all(|member| self.is_restful(*member))
            && self.serving()
            && self.complete()
            && self.tasks.list.is_empty()
            && !self.halted()
            && self.keeper.all_durable()
            && !self.maps_dirty()
            && (self.all_dirty || !self.intent.any())
            && self.wake[Wake::Lazy as usize] == NEVER
            && self.spares_mirrors()
    }

    /// Begins a flush if mirrors have unflushed writes and no flush runs, since no client may ask for one.
    /// Returns whether it began one.
    pub fn flush_mirrors(&mut self) -> bool {
        let unflushed = |member: &Member| self.devices[usize::from(member.0)].unflushed;
        if !self.flusher.idle() || !self.mirrors().iter().any(unflushed) {
            return false;
        }
        self.flush_for(Waiter::Intent);
        true
    }

    /// Whether nothing that is under way can be about mirrors; what goes to first copies alone is not.
    pub(crate) fn spares_mirrors(&self) -> bool {
        self.superblock.ahead || self.flusher.idle() && self.slices.idle()
    }
}
