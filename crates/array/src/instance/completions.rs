//! Operations of members and computations that have ended: each goes to the floor that owns it.
//!
//! An operation that failed may fail its member. All that this leads to, other operations of the member among
//! it, comes before the operation itself ends.

use super::Instance;
use crate::contract::{Compute, DeviceIo, FailCause, IoError, Segment, Verdict};
use crate::facts::{NEVER, Wake};
use crate::members::ops::{Owner, SliceOp};
use crate::units::{Member, SECTOR_BYTES};
use alloc::boxed::Box;
use restripe_format::meta::pages::MapKind;

impl Instance {
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
            Owner::Boot(step) => self.boot_read_done(step, &io, result),
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
            Owner::Boot(step) => self.boot_read_given_up(step),
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
    pub(super) fn judge_aside(&mut self) {
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

    pub(super) fn compute_done(&mut self, compute: Box<Compute>, verdict: Verdict) {
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

    // ---------------------------------------------------------------------------------------------- time-outs

    /// Fails members that have completed nothing for too long, or kept one operation for `TIMEOUTS_MAX` times
    /// as long: a slow member with a long queue is not a dead one.
    pub(super) fn watch(&mut self) {
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
