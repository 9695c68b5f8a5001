//! An instance of the array, from its start to its stop or halt: the top, above all floors.
//!
//! Takes each event through the floors, and attends to their notices. Owns nothing else. A floor owns the one
//! beneath it as `below`, and reads as that one too: whatever it calls lies on its own level or further down.
//!
//! An operation that failed may fail its member. All that this leads to, other operations of the member among
//! it, comes before the operation itself ends.

mod status;

use crate::clients::Copies;
use crate::commands::Commands;
use crate::config::Config;
use crate::contract::{
    Action, Actions, CommandError, Compute, DeviceIo, Event, Fact, FailCause, Halt, IoError,
    Request, Rival, Segment, TaskKind, Verdict,
};
use crate::facts::{NEVER, Notice, Waiter, Wake};
use crate::members::device::Power;
use crate::members::ops::{Owner, SliceOp};
use crate::members::pool::Share;
use crate::slice::relocate;
use crate::units::{Member, Nanos, SECTOR_BYTES};
use alloc::boxed::Box;
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
        let before = self.now;
        assert!(
            now >= before,
            "time never goes back: {now:?} after {before:?}"
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
            self.start_turn();
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
            // Without a member to flush, the flush has ended already.
            self.start_turn();
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
        let now = self.now;
        let due = self.wake.map(|wake| wake <= now);
        for (wake, _) in self.wake.iter_mut().zip(due).filter(|(_, due)| *due) {
            *wake = NEVER;
        }
        if due[Wake::Watchdog as usize] {
            self.watch();
        }
        if due[Wake::Lazy as usize] {
            self.lazy_timer();
        }
        if due[Wake::Heat as usize] {
            self.heat_timer();
        }
        if due[Wake::Version as usize] {
            self.version_timer();
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
        // What a member is owed is durable before the record that it left: a crash between the two leaves it
        // current.
        let owed = !self.owing || !self.intent.dirty();
        if !self.replaying() && owed && self.writer.is_due() {
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
            && self.writer.all_durable()
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

    // ---------------------------------------------------------------------------- operations that have ended

    pub(crate) fn device_done(&mut self, io: Box<DeviceIo>, result: Result<(), IoError>) {
        if self.ops.rider_of(io.tag).is_some() {
            return self.joined_done(io, result);
        }
        let owner = self.ops.release(io.tag);
        self.settle_io(&io, result.is_ok());
        match owner {
            Owner::Free => unreachable!("a free slot has no operation"),
            Owner::Orphan => {}
            Owner::ReadPart(part) => match result {
                Ok(()) => self.read_part_done(part),
                Err(IoError::Media) => self.retry_read(part, Some(io.member)),
                Err(error) => {
                    self.read_failed(io.member, error);
                    self.attend();
                    self.retry_read(part, None);
                }
            },
            Owner::Start(step) => self.start_read_done(step, &io, result),
            Owner::Admission(place) => {
                self.admission_read(io.member, place, result.map(|()| &*io));
            }
            Owner::Look(home) => self.looked_at(io.member, home, Some(&io), result),
            other if result == Err(IoError::NoSpace) && self.set_aside(other, io.member, io.op) => {
            }
            other => self.owner_done(other, io.member, result),
        }
        self.recycle(io);
        self.attend();
    }

    /// The first of several operations came back, and brings the others.
    pub(crate) fn joined_done(&mut self, mut io: Box<DeviceIo>, result: Result<(), IoError>) {
        self.settle_io(&io, result.is_ok());
        let mut segments = core::mem::take(&mut io.segments);
        let apart = result.is_err_and(|error| error != IoError::Gone);
        let mut tag = Some(io.tag);
        let mut at = io.at;
        while let Some(this) = tag {
            tag = self.ops.rider_of(this);
            let sectors = self.ops.sectors(this);
            let rest = segments.split_off(pieces_of(&segments, sectors));
            let owner = self.ops.release(this);
            match owner {
                Owner::Slice(..) if apart => {
                    self.device_io(owner, io.member, io.op, at, sectors, io.class, |one| {
                        one.segments.append(&mut segments)
                    })
                }
                Owner::Slice(..) => self.owner_done(owner, io.member, result),
                _ => {}
            }
            (segments, at) = (rest, at + sectors);
        }
        self.recycle(io);
    }

    /// An operation has failed: its member may fail with it, and all that this leads to comes first.
    fn op_failed(&mut self, owner: Owner, member: Member, error: IoError) {
        match owner {
            Owner::Slice(slice, what) => self.slice_op_failed(slice, what, member, error),
            Owner::Flush => self.flush_failed(member, error),
            Owner::DoneList
            | Owner::Superblock
            | Owner::MapPage(..)
            | Owner::Journal
            | Owner::ExtentInit(_) => self.fail_member(member, FailCause::WriteError(error)),
            _ => {}
        }
        self.attend();
    }

    pub(crate) fn owner_done(&mut self, owner: Owner, member: Member, result: Result<(), IoError>) {
        if let Err(error) = result {
            self.op_failed(owner, member, error);
        }
        match owner {
            Owner::Slice(slice, _) => self.slices.op_ended(slice),
            Owner::Flush => self.member_flushed(),
            Owner::Power(wakes) => self.power_told(member, wakes, result),
            Owner::DoneList => self.done_list_written(),
            Owner::Superblock => self.superblock_written(member, result),
            Owner::MapPage(map, page) => self.map_page_written(map, page),
            Owner::Journal => self.journal_wiped(),
            Owner::ExtentInit(init) => self.extent_zeroed(init),
            Owner::Start(step) => self.start_read_given_up(step),
            Owner::Admission(place) => self.admission_read(member, place, Err(IoError::Gone)),
            Owner::Claim => self.claim_written(member, result),
            Owner::Look(home) => self.looked_at(member, home, None, result),
            Owner::ReadPart(_) | Owner::CacheCopy(..) | Owner::Free | Owner::Orphan => {
                unreachable!("handled by the caller, or no operation of a device")
            }
        }
        self.attend();
    }

    /// A copy of a superblock was read to see who owns the array. A member that cannot give it fails.
    fn looked_at(
        &mut self,
        member: Member,
        home: u8,
        io: Option<&DeviceIo>,
        result: Result<(), IoError>,
    ) {
        let waited = self.looked(member, home, io.filter(|_| result.is_ok()));
        self.attend();
        if let Err(error) = result
            && waited
            && error != IoError::Media
            && !self.starts()
        {
            self.fail_member(member, FailCause::Metadata);
        }
    }

    /// The members that ran full fail, or the array halts, before the operations end that found no space.
    fn judge_aside(&mut self) {
        if self.full.aside.is_empty() {
            return;
        }
        let aside = self.due_aside();
        for (member, cause) in self.judge_full(&aside) {
            self.take_out(member, cause);
            self.attend();
        }
        self.attend();
        for (owner, member, _) in aside {
            self.owner_done(owner, member, Err(IoError::NoSpace));
        }
    }

    fn compute_done(&mut self, compute: Box<Compute>, verdict: Verdict) {
        match self.ops.release(compute.tag) {
            Owner::Slice(slice, what) => {
                let index = match what {
                    SliceOp::Log(parity) => parity,
                    _ => 0,
                };
                self.slices.computed(slice, verdict, index.into());
            }
            Owner::ReadPart(part) => self.request_part_done(part.request, Ok(())),
            Owner::CacheCopy(request, memory, way) => self.block_copied(request, memory, way),
            other => unreachable!("{other:?} does not compute"),
        }
        self.ops.boxes.recycle_compute(compute);
    }

    // ---------------------------------------------------------------------------------------------- metadata

    pub(crate) fn superblock_written(&mut self, member: Member, result: Result<(), IoError>) {
        self.writer.answered();
        if result.is_ok() {
            self.ownership.version_written(member);
        }
        if self.writer.quiet() {
            self.superblocks_written();
            self.attend();
            self.start_levelled();
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

    // ---------------------------------------------------------------------------------------------- time-outs

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
        // All its operations end now, whatever they were for.
        self.abandon(member);
    }

    // ----------------------------------------------------------------------------------------------- notices

    /// Does what the floors below have given notice of, in the order of the notices. What one of them leads
    /// to comes before the next.
    #[inline]
    pub(crate) fn attend(&mut self) {
        if self.attended < self.notices.len() {
            self.attend_to_new();
        }
    }

    fn attend_to_new(&mut self) {
        let (first, end) = (self.attended, self.notices.len());
        self.attended = end;
        for index in first..end {
            match self.notices[index] {
                Notice::MetadataMoved => self.metadata_moved(),
                Notice::Halted(why) => self.come_to_a_halt(why),
                Notice::MemberOut(member) => self.abandon(member),
                Notice::Flushed(waiter, flush) => self.flushed(waiter, flush),
                Notice::FlushEnded => self.slices.wake_waiting(),
                Notice::CarriedOut { tag, added } => self.answer_when_durable(tag, added),
                Notice::OwnerAwaited => self.start_again(),
                Notice::Owned => self.start_owned(),
                Notice::OwnerUnclear => {
                    self.start_fail(CommandError::Metadata);
                }
                Notice::UnreadOut { goes_on } => self.start_recover_without(goes_on),
                Notice::OwnedBy(by) => {
                    let rival = Rival::Claims;
                    self.start_fail(CommandError::Owned { by, rival });
                }
            }
            self.attend();
        }
        self.notices.truncate(first);
        self.attended = first;
    }

    /// Something durable has changed: what waited for it looks again.
    pub(crate) fn metadata_moved(&mut self) {
        self.owing &= self.intent.dirty();
        self.inits_settle();
        self.slices.wake_waiting();
        self.flush_resume();
        self.attend();
        self.flusher_settle();
        self.attend();
        self.requests_settle();
    }

    /// The flush has ended that this waiter asked for.
    fn flushed(&mut self, waiter: Waiter, flush: u64) {
        match waiter {
            Waiter::Request(request) => self.request_part_done(request, Ok(())),
            Waiter::Log | Waiter::Intent | Waiter::Join => {}
            Waiter::Version => self.write_covering_version(),
            Waiter::Checkpoint => self.checkpoint_flushed(flush),
            Waiter::Start => self.start_flushed(),
            Waiter::Stop => self.stop_flushed(),
        }
    }

    /// Nothing is written any more, as if the power had gone: the next start recovers what was being written,
    /// and until then that is in doubt where parity would have to tell it. Copies of one cell may differ,
    /// too, as they may after a crash: what was being written is not acknowledged.
    ///
    /// - No space is left on members that serve, and redundancy does not tolerate all of them, or the array
    ///   is starting. They have not failed ([`crate::safety`]).
    /// - A member has failed that is one too many. Its failure is not put on record: the members that are
    ///   current by their superblocks have all that was acknowledged, and the array starts again when they
    ///   are back.
    pub(crate) fn come_to_a_halt(&mut self, why: Halt) {
        if self.starts() {
            self.flusher.forget_waiters();
            let error = self.halt_error(why);
            self.start_fail(error);
            return;
        }
        let mut known = self.resynced_before();
        for row in self.slices.rows_at_work() {
            known.remove(row, 1);
        }
        for slot in self.roles.slots_where(|one| one.incoming.is_some()) {
            self.drop_incoming(slot, |_| true);
        }
        self.tasks.list.retain(|task| task.kind != TaskKind::Resync);
        if known.len() < self.layout.rows() {
            self.start_task(TaskKind::Resync, None, known);
        }
        self.inits_settle();
        self.requests.release_held();
        self.reshape_halts();
        self.slices.wake_waiting();
        self.flush_resume();
        self.attend();
        self.fact(Fact::Halted(why));
    }

    /// Ends everything outstanding on a member as if it had answered with an error.
    pub(crate) fn abandon(&mut self, member: Member) {
        let mut given_up = Vec::new();
        self.ops.abandon(member, &mut given_up);
        for tag in given_up.iter().filter_map(|(tag, _)| *tag) {
            self.out.push(Action::Detach(tag));
        }
        for (_, owner) in given_up {
            self.orphaned(owner, member);
        }
    }

    /// An operation that was given up on: its owner hears that the member is gone.
    pub(crate) fn orphaned(&mut self, owner: Owner, member: Member) {
        match owner {
            Owner::ReadPart(part) => self.retry_read(part, None),
            other => self.owner_done(other, member, Err(IoError::Gone)),
        }
    }
}

/// How many of the first segments make up this number of sectors.
fn pieces_of(segments: &[Segment], sectors: u64) -> usize {
    let mut left = sectors * SECTOR_BYTES;
    let whole = |segment: &&Segment| {
        let taken = left > 0;
        left = left.saturating_sub(u64::from(segment.bytes()));
        taken
    };
    segments.iter().take_while(whole).count()
}
