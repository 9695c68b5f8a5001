//! The engine: owns the parts and routes events to them. It decides nothing itself.

use crate::contract::{
    Actions, Compute, DeviceIo, Event, HeatLimits, IoError, MemberInfo, Pool, Verdict,
};
use crate::core::Core;
use crate::ops::{Owner, SliceOp};
use crate::read_cache::CacheLimits;
use crate::report::{HeatMap, MapExtent, Status};
use crate::units::{Member, Nanos};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// What an engine is built with. Everything about the array itself comes from its members' metadata.
#[derive(Clone, Debug)]
pub struct Config {
    /// The devices that the shell has opened, in the order of their [`crate::Member`] numbers.
    pub members: Vec<MemberInfo>,
    pub limits: Limits,
    /// A member that completes nothing for so long is failed, and one that keeps a single operation four times as long.
    pub io_timeout: Nanos,
    /// The bug to have.
    #[cfg(feature = "planted")]
    pub bug: Option<crate::Bug>,
}

/// Bounds, fixed at construction.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub pool: Pool,
    /// Requests accepted and not yet replied to; see [`Engine::ready`].
    pub requests: u32,
    pub slices: u32,
    /// Device operations of direct reads in flight; slices have their own on top.
    pub ios: u32,
    /// A cache of what was read; its memory comes out of the pool.
    pub cache: Option<CacheLimits>,
    pub heat: HeatLimits,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            pool: Pool {
                small: 4096,
                large: 512,
            },
            requests: 1024,
            slices: 512,
            ios: 4096,
            cache: None,
            heat: HeatLimits::default(),
        }
    }
}

impl Limits {
    /// The same with a read cache, if there is to be one, and the memory for it.
    pub fn with_cache(mut self, cache: Option<CacheLimits>) -> Limits {
        self.pool.small += cache.map_or(0, CacheLimits::buffers);
        self.cache = cache;
        self
    }
}

pub struct Engine {
    pub(crate) core: Box<Core>,
}

impl Engine {
    pub fn new(config: Config) -> Engine {
        Engine {
            core: Box::new(Core::new(config)),
        }
    }

    /// One step: takes an event, appends what is to be done about it.
    pub fn handle(&mut self, now: Nanos, event: Event, actions: &mut Actions) {
        let core = &mut *self.core;
        assert!(
            now >= core.now,
            "time never goes back: {now:?} after {:?}",
            core.now
        );
        core.now = now;
        core::mem::swap(&mut core.out, actions);
        match event {
            Event::Request(request) => core.request(request),
            Event::Device(io, result) => core.device_done(io, result),
            Event::Compute(compute, verdict) => core.compute_done(compute, verdict),
            Event::Timer => core.timer(),
            Event::Arrived(info) => core.arrived(info),
            Event::Departed(member) => core.departed(member),
            Event::Command(tag, command) => core.command(tag, command),
            Event::Turn => core.turn(),
        }
        core.run_slices();
        core.settle_turn();
        while let Some(io) = core.refused() {
            core.device_done(io, Err(IoError::NoSpace));
            core.run_slices();
            core.settle_turn();
        }
        core::mem::swap(&mut core.out, actions);
    }

    /// Whether another request is accepted now. A shell holds requests back while this is false.
    pub fn ready(&self) -> bool {
        self.core.requests.room()
    }

    /// A view of the whole array, for people and metrics.
    pub fn status(&self) -> Status {
        self.core.status()
    }

    /// What users read, by zones.
    pub fn heat(&self) -> HeatMap {
        self.core.heat.map()
    }

    /// What a range of the array is like, in order, at most `most` extents.
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
        self.core.idle()
    }
}

impl Core {
    fn device_done(&mut self, io: Box<DeviceIo>, result: Result<(), IoError>) {
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
            } => {
                self.read_part_done(request, lba, io.member, sectors, target, result);
            }
            Owner::Boot { step } => self.boot_read_done(step, &io, result),
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

    fn owner_done(&mut self, owner: Owner, member: Member, result: Result<(), IoError>) {
        match owner {
            Owner::Slice { slice, what } => self.slice_op_done(slice, what, Some(member), result),
            Owner::Flush => self.member_flushed(member, result),
            Owner::DoneList => self.done_list_written(member, result),
            Owner::Superblock => self.superblock_written(member, result),
            Owner::MapPage { map, page } => self.map_page_written(map, page, member, result),
            Owner::ExtentInit { init } => self.extent_zeroed(init, member, result),
            Owner::Boot { step } => self.boot_read_given_up(step),
            Owner::ReadPart { .. } | Owner::CacheCopy { .. } | Owner::Free | Owner::Orphan => {
                unreachable!("handled by the caller, or no operation of a device")
            }
        }
    }

    fn compute_done(&mut self, compute: Box<Compute>, verdict: Verdict) {
        match self.ops.release(compute.tag) {
            Owner::Slice { slice, what } => {
                let index = if let SliceOp::Log { parity } = what {
                    u32::from(parity)
                } else {
                    0
                };
                self.slice_computed(slice, verdict, index);
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
