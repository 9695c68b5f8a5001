//! The set: owns the parts and routes events to them. It decides nothing itself.

use crate::clients::requests::Copies;
use crate::config::Config;
use crate::contract::{
    Actions, CommandError, Compute, DeviceIo, Event, FailCause, IoError, Request, Verdict, Work,
};
use crate::core::Core;
use crate::members::ops::{Owner, SliceOp};
use crate::members::pool::Share;
use crate::report::{GrowthPlan, HeatMap, MapExtent, Status};
use crate::revival::Revival;
use crate::slice::coalesce;
use crate::units::{Member, Nanos};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// One RAID set: layouts, redundancy, tasks and metadata over its members.
pub struct Set {
    core: Box<Core>,
    config: Config,
    /// How it goes on after it halted for want of space.
    revival: Revival,
}

impl Set {
    pub fn new(config: Config) -> Set {
        let share = Share::whole(config.limits.pool);
        Set {
            core: Box::new(Core::new(config.clone(), share)),
            config,
            revival: Revival::default(),
        }
    }

    /// One step: takes an event, appends what is to be done about it.
    pub fn handle(&mut self, now: Nanos, event: Event, actions: &mut Actions) {
        let (core, revival) = (&mut self.core, &mut self.revival);
        revival.note(&event);
        if let Event::Arrived(info) = event {
            self.config.members.push(info);
        }
        match core.halt.is_none() && revival.rests() {
            true => core.step(now, event, actions),
            false => revival.step(core, &self.config, now, event, actions),
        }
    }

    /// Whether another request is accepted now. A shell holds requests back while this is false.
    pub fn ready(&self) -> bool {
        match self.revival.rests() {
            true => self.core.requests.room(),
            false => self.revival.requests() < self.config.limits.requests,
        }
    }

    /// The first piece of a trim or a write of zeros, which may be as large as the array: what a shell takes at a time, so
    /// that others have their turns meanwhile. A piece is a request like any other.
    pub fn piece(&self, request: &Request) -> Work {
        self.core.piece(request, true)
    }

    /// A view of the whole set, for people and metrics.
    pub fn status(&self) -> Status {
        self.core.status()
    }

    /// What users read, by zones.
    pub fn heat(&self) -> HeatMap {
        self.core.heat.map()
    }

    /// What a growth by so many members would do, or why there can be none now.
    pub fn growth_plan(&self, by: u16) -> Result<GrowthPlan, CommandError> {
        self.core.growth_plan(by)
    }

    /// Whether a member may be failed by command, or why not.
    pub fn may_fail(&self, member: Member) -> Result<(), CommandError> {
        self.core.may_fail(member)
    }

    /// What a range of the set is like, in order, at most `most` extents.
    pub fn map(&self, lba: u64, sectors: u64, most: usize, into: &mut Vec<MapExtent>) {
        self.core.map(lba, sectors, most, into);
    }

    /// How often each transition of the slice table was taken: (kind, from, to, count).
    pub fn coverage(
        &self,
    ) -> impl Iterator<Item = (&'static str, &'static str, &'static str, u64)> + '_ {
        self.core.slices.coverage()
    }

    /// Whether nothing is in flight: no request, slice, operation or write of metadata.
    pub fn idle(&self) -> bool {
        self.core.idle() && self.revival.rests()
    }
}

#[cfg(test)]
impl Set {
    pub(crate) fn core(&mut self) -> &mut Core {
        &mut self.core
    }
}

impl Core {
    /// As [`Set::handle`].
    pub fn step(&mut self, now: Nanos, event: Event, actions: &mut Actions) {
        self.step_by(now, actions, |core| core.take(event));
    }

    /// The same for a request that is about some copies only.
    pub fn step_request(
        &mut self,
        now: Nanos,
        request: Request,
        copies: Copies,
        actions: &mut Actions,
    ) {
        self.step_by(now, actions, |core| core.request(request, copies));
    }

    pub fn step_by(&mut self, now: Nanos, actions: &mut Actions, change: impl FnOnce(&mut Core)) {
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
            self.release_held();
        }
        while let Some(io) = self.refused() {
            self.device_done(io, Err(IoError::NoSpace));
            self.run_slices();
            self.settle_turn();
        }
        self.hold_while_unsure();
        coalesce::join_moves(self);
        core::mem::swap(&mut self.out, actions);
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

    pub(crate) fn device_done(&mut self, io: Box<DeviceIo>, result: Result<(), IoError>) {
        if self.ops.rider_of(io.tag).is_some() {
            return coalesce::ended(self, io, result);
        }
        let owner = self.ops.release(io.tag);
        self.settle_io(&io, result.is_ok());
        match owner {
            Owner::Free => unreachable!("a free slot has no operation"),
            Owner::Orphan => {}
            Owner::ReadPart {
                request,
                lba,
                sectors,
                target,
            } => match result {
                Ok(()) => self.read_part_done(request, lba, target),
                Err(IoError::Media) => {
                    self.retry_read(request, lba, sectors, target, Some(io.member));
                }
                Err(error) => {
                    self.read_failed(io.member, error);
                    self.attend();
                    self.retry_read(request, lba, sectors, target, None);
                }
            },
            Owner::Boot { step } => self.boot_read_done(step, &io, result),
            Owner::Admission { place } => {
                self.admission_read(io.member, place, result.map(|()| &*io));
            }
            Owner::Look { home } => self.looked(io.member, home, Some(&io), result),
            other if result == Err(IoError::NoSpace) && self.set_aside(other, io.member, io.op) => {
            }
            other => self.owner_done(other, io.member, result),
        }
        self.recycle(io);
    }

    /// An operation that was given up on: its owner hears that the member is gone.
    pub(crate) fn orphaned(&mut self, owner: Owner, member: Member) {
        match owner {
            Owner::ReadPart {
                request,
                lba,
                sectors,
                target,
            } => {
                self.retry_read(request, lba, sectors, target, None);
            }
            other => self.owner_done(other, member, Err(IoError::Gone)),
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

    /// An operation has failed: its member may fail with it, and all that this leads to comes first.
    fn op_failed(&mut self, owner: Owner, member: Member, error: IoError) {
        match owner {
            Owner::Slice { slice, what } => self.slice_op_failed(slice, what, member, error),
            Owner::Flush => self.flush_failed(member, error),
            Owner::DoneList
            | Owner::Superblock
            | Owner::MapPage { .. }
            | Owner::Journal
            | Owner::ExtentInit { .. } => self.fail_member(member, FailCause::WriteError(error)),
            _ => {}
        }
        self.attend();
    }

    pub(crate) fn owner_done(&mut self, owner: Owner, member: Member, result: Result<(), IoError>) {
        if let Err(error) = result {
            self.op_failed(owner, member, error);
        }
        match owner {
            Owner::Slice { slice, .. } => self.slices.op_ended(slice),
            Owner::Flush => self.member_flushed(),
            Owner::Power { wakes } => self.power_told(member, wakes, result),
            Owner::DoneList => self.done_list_written(),
            Owner::Superblock => self.superblock_written(member, result),
            Owner::MapPage { map, page } => self.map_page_written(map, page),
            Owner::Journal => self.journal_wiped(),
            Owner::ExtentInit { init } => self.extent_zeroed(init),
            Owner::Boot { step } => self.boot_read_given_up(step),
            Owner::Admission { place } => self.admission_read(member, place, Err(IoError::Gone)),
            Owner::Claim => self.claim_written(member, result),
            Owner::Look { home } => self.looked(member, home, None, result),
            Owner::ReadPart { .. } | Owner::CacheCopy { .. } | Owner::Free | Owner::Orphan => {
                unreachable!("handled by the caller, or no operation of a device")
            }
        }
        self.attend();
    }

    fn compute_done(&mut self, compute: Box<Compute>, verdict: Verdict) {
        match self.ops.release(compute.tag) {
            Owner::Slice { slice, what } => {
                let index = if let SliceOp::Log { parity } = what {
                    u32::from(parity)
                } else {
                    0
                };
                self.slices.computed(slice, verdict, index);
            }
            Owner::ReadPart { request, .. } => self.request_part_done(request, Ok(())),
            Owner::CacheCopy {
                request,
                memory,
                way,
            } => self.block_copied(request, memory, way),
            other => unreachable!("{other:?} does not compute"),
        }
        self.ops.recycle_compute(compute);
    }
}
