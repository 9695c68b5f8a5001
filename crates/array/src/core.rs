//! The running array: the top of the set, above the floors of facts, members, metadata and durability.
//!
//! Owns what has no floor of its own yet, takes each event through the floors, and does what they give notice of.
//! A floor owns the one beneath it as `below`, and reads as that one too: whatever it calls lies on its own level or
//! further down.

use crate::admission::Admission;
use crate::boot::Boot;
use crate::clients::Clients;
use crate::command::Answer;
use crate::config::Config;
use crate::contract::{CommandTag, FailCause, IoError};
use crate::durability::flusher::Waiter;
use crate::facts::{NEVER, Notice, Wake};
use crate::members::device::Power;
use crate::members::pool::Share;
use crate::report::ArrayState;
use crate::slice::gather::Gather;
use crate::slice::table::Slices;
use crate::slice::transfer::Transfers;
use crate::units::{Member, Nanos};
use crate::written::{INITS_OPS, Inits};
use ::core::ops::{Deref, DerefMut};
use alloc::vec::Vec;
use restripe_format::meta::pages::MapKind;

pub struct Core {
    pub(crate) below: Clients,
    pub(crate) gather: Gather,
    pub(crate) slices: Slices,
    pub(crate) inits: Inits,
    pub(crate) transfers: Transfers,
    pub(crate) boot: Option<Boot>,
    /// Commands that wait for a version of the superblock to be durable.
    pub(crate) answers: Vec<Answer>,
    pub(crate) admissions: Vec<Admission>,
    pub(crate) stopping: Option<CommandTag>,
    pub(crate) stop_flush: bool,
    pub(crate) stop_version: u64,
    /// The second version of this stop is being written.
    pub(crate) stop_confirms: bool,
}

/// Operations of superblocks, maps and flushes.
pub(crate) const METADATA_OPS: u32 = 3072;

impl Deref for Core {
    type Target = Clients;

    #[inline]
    fn deref(&self) -> &Clients {
        &self.below
    }
}

impl DerefMut for Core {
    #[inline]
    fn deref_mut(&mut self) -> &mut Clients {
        &mut self.below
    }
}

impl Core {
    pub fn new(config: Config, share: Share) -> Core {
        let limits = config.limits;
        Core {
            gather: Gather::new(limits.requests),
            slices: Slices::new(limits.slices),
            inits: Inits::default(),
            transfers: Transfers::default(),
            boot: None,
            answers: Vec::new(),
            admissions: Vec::new(),
            stopping: None,
            stop_flush: false,
            stop_version: 0,
            stop_confirms: false,
            below: Clients::new(config, share),
        }
    }

    /// Room for what every admitted slice, the metadata and the direct reads may have outstanding.
    pub(crate) fn size_ops(&mut self) {
        let width = u32::from(self.layout.width());
        let limits = self.config.limits;
        let reserve = limits.slices * (4 * width + 8) + METADATA_OPS + INITS_OPS;
        self.ops.reserve = reserve;
        self.ops.grow(reserve + limits.ios);
    }

    // ------------------------------------------------------------------------------------------------ each step

    /// Starts as much queued work as there is room for.
    fn pump(&mut self) {
        self.pump_reads();
        while self.pump_writes() {
            self.attend();
        }
    }

    /// The shell has nothing more for now: everything that waited for a turn gets one.
    pub(crate) fn turn(&mut self) {
        if self.starts() {
            self.run_slices();
            self.boot_turn();
        }
        // Also in the turn that ended the boot: on an idle array nothing else would come to wake a task that
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
        self.stop_settle();
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

    /// Fails members that have completed nothing for too long, or kept one operation for `TIMEOUTS_MAX` times
    /// as long: a slow member with a long queue is not a dead one.
    fn watch(&mut self) {
        loop {
            let (late, next) = self.ops.overdue(self.now);
            match late {
                Some((tag, member)) => {
                    let progress = self.devices[member.0 as usize].progress;
                    let now = self.now;
                    let until = progress.after(self.config.io_timeout);
                    if !self.ops.extend(tag, now, until) {
                        self.time_out(member);
                    }
                }
                None => {
                    if next != NEVER {
                        self.wake_at(Wake::Watchdog, next);
                    }
                    return;
                }
            }
        }
    }

    fn time_out(&mut self, member: Member) {
        if self.good(member) && !self.starts() {
            self.fail_member(member, FailCause::TimedOut);
            self.attend();
        }
        // Whatever it was doing, nobody waits for it any longer.
        self.abandon(member);
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

    // ------------------------------------------------------------------------------------------- operations
    // ------------------------------------------------------------------------------------------------ standing

    /// The array's state as its members leave it.
    pub(crate) fn assess(&mut self) {
        if matches!(
            self.state,
            ArrayState::Starting | ArrayState::Stopping | ArrayState::Stopped
        ) {
            return;
        }
        self.state = if self.complete() {
            ArrayState::Healthy
        } else if self.all_decodable(|_| false) {
            ArrayState::Degraded
        } else {
            ArrayState::Failed
        };
        self.price_misses();
    }
}

impl Core {
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

    /// Begins a flush if mirrors have unflushed writes and no flush runs, since no client may ask for one. Returns
    /// whether it began one.
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

impl Core {
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

    pub(crate) fn superblock_written(&mut self, member: Member, result: Result<(), IoError>) {
        self.keeper.answered();
        if result.is_ok() {
            self.ownership.version_written(member);
        }
        if self.keeper.quiet() {
            self.superblocks_written();
            self.attend();
            self.boot_levelled();
        }
    }

    pub(crate) fn map_page_written(&mut self, map: u8, page: u16) {
        let kind = MapKind::ALL[map as usize];
        let state = self.page_state(kind, page as usize);
        state.writing -= 1;
        if state.writing == 0 {
            self.map_page_durable(kind, page as usize);
            self.attend();
        }
    }

    /// Does what the floors below have given notice of, in the order of the notices. What one of them leads to comes
    /// before the next.
    pub(crate) fn attend(&mut self) {
        let (first, end) = (self.attended, self.notices.len());
        if first == end {
            return;
        }
        self.attended = end;
        for index in first..end {
            match self.notices[index] {
                Notice::MetadataMoved => self.metadata_moved(),
                Notice::Halted(why) => self.come_to_a_halt(why),
                Notice::MemberOut(member) => self.abandon(member),
                Notice::Flushed(waiter, flush) => self.flushed(waiter, flush),
            }
            self.attend();
        }
        self.notices.truncate(first);
        self.attended = first;
    }

    /// The flush has ended that this waiter asked for.
    fn flushed(&mut self, waiter: Waiter, flush: u64) {
        match waiter {
            Waiter::Checkpoint => self.checkpoint_flushed(flush),
            Waiter::Boot => self.boot_flushed(),
            Waiter::Stop => self.stop_flushed(),
            Waiter::Request(_) | Waiter::Log | Waiter::Intent | Waiter::Join => {}
        }
    }

    /// Something durable has changed: whoever waited for it looks again.
    pub(crate) fn metadata_moved(&mut self) {
        self.owing &= self.intent.dirty();
        self.inits_settle();
        self.slices.wake_waiting();
        self.flush_resume();
        self.flusher_settle();
        self.requests_settle();
    }
}
