//! Members of the set: the floor above the facts.
//!
//! Owns the devices, the operations in flight, the buffers, the accounts of traffic, and which members are
//! without space. One door starts an operation on a member: [`Members::device_io`]. Asks the facts. Sends no
//! notice.

pub(crate) mod device;
pub(crate) mod ops;
pub(crate) mod pool;
pub(crate) mod power;
mod roles;

use crate::config::Config;
use crate::contract::{
    Action, BufRef, Class, ComputeOp, DeviceIo, Fact, FailCause, IoOp, LinearOutput, Page, Request,
    Segment,
};
use crate::facts::{Facts, NEVER, Wake};
use crate::policy::traffic::Traffic;
use crate::roles::Home;
use crate::units::{Member, Nanos, PAGE_SECTORS, SECTOR_BYTES};
use alloc::boxed::Box;
use alloc::vec::Vec;
use device::{Device, Health};
use ops::{Ops, Owner};
use pool::{Buffers, Share};

/// How many time-outs one operation may take on a member that goes on completing others.
const TIMEOUTS_MAX: u64 = 4;
/// Operations before the array is known: reads of metadata.
const START_OPS: u32 = 256;

/// After a halt, what is being replaced or rebuilt has this long before a user's write is tried.
pub(crate) const SPARED: Nanos = Nanos::from_secs(10);

#[derive(Default)]
pub(crate) struct Full {
    /// Operations that found no space, and are not answered yet.
    pub(crate) aside: Vec<(Owner, Member, FailCause)>,
    pub(crate) until: Nanos,
    /// When a member was last found without space.
    noted: Nanos,
    pub(crate) spared_until: Nanos,
}

pub struct Members {
    pub(crate) below: Facts,
    pub(crate) devices: Vec<Device>,
    pub(crate) ops: Ops,
    pub(crate) buffers: Buffers,
    pub(crate) traffic: Traffic,
    /// How often members were let sleep, each counted by itself.
    pub(crate) rests: u64,
    pub(crate) full: Full,
}

floor!(Members, Facts);

impl Members {
    pub(crate) fn new(config: Config, share: Share) -> Members {
        Members {
            devices: config.members.iter().copied().map(Device::new).collect(),
            ops: Ops::new(START_OPS),
            buffers: Buffers::new(share),
            traffic: Traffic::default(),
            rests: 0,
            full: Full::default(),
            below: Facts::new(config),
        }
    }

    /// This floor alone, from a floor above.
    #[inline]
    pub(crate) fn members(&mut self) -> &mut Members {
        self
    }

    /// All devices that the engine knows.
    pub(crate) fn all(&self) -> impl Iterator<Item = Member> + use<> {
        (0..self.devices.len()).map(|index| Member(index as u16))
    }

    /// Starts a device operation; `fill` adds its segments and flags.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn device_io(
        &mut self,
        owner: Owner,
        member: Member,
        op: IoOp,
        at: u64,
        sectors: u64,
        class: Class,
        fill: impl FnOnce(&mut DeviceIo),
    ) {
        self.wake_for(member, op);
        let spins_up = self.rouse(member, op);
        let deadline = self.now.after(self.config.io_timeout).after(spins_up);
        let last = Nanos(self.config.io_timeout.0.saturating_mul(TIMEOUTS_MAX));
        let last = self.now.after(last).after(spins_up);
        let mut io = self
            .ops
            .device(owner, member, op, at, sectors, class, deadline, last);
        fill(&mut io);
        let bytes = io.segments.iter().map(|segment| u64::from(segment.bytes()));
        let carried: u64 = bytes.sum();
        debug_assert!(
            !matches!(op, IoOp::Read | IoOp::Write) || carried == sectors * crate::SECTOR_BYTES,
            "segments cover the operation: {io:?}"
        );
        self.devices[member.0 as usize].in_flight += 1;
        self.note_phase(member);
        self.counters.ios[class as usize] += 1;
        self.counters.io_bytes[class as usize] += sectors * crate::SECTOR_BYTES;
        self.traffic.note(member, owner, class, sectors);
        if self.wake[Wake::Watchdog as usize] == NEVER {
            self.wake_at(Wake::Watchdog, deadline);
        }
        self.out.push(Action::Device(io));
    }

    /// Starts a write of whole metadata pages.
    pub(crate) fn write_pages(
        &mut self,
        owner: Owner,
        member: Member,
        at: u64,
        pages: impl ExactSizeIterator<Item = Page>,
    ) {
        let (sectors, class) = (pages.len() as u64 * PAGE_SECTORS, Class::Metadata);
        self.device_io(owner, member, IoOp::Write, at, sectors, class, |io| {
            io.durable = true;
            io.segments.extend(pages.map(Segment::Page));
        });
    }

    /// Starts a read of whole metadata pages.
    pub(crate) fn read_pages(&mut self, owner: Owner, member: Member, at: u64, count: usize) {
        let pages: Vec<Page> = (0..count).map(|_| self.ops.boxes.page()).collect();
        let (sectors, class) = (count as u64 * PAGE_SECTORS, Class::Metadata);
        self.device_io(owner, member, IoOp::Read, at, sectors, class, |io| {
            io.segments.extend(pages.into_iter().map(Segment::Page));
        });
    }

    /// Copies bytes, or makes them zeros when there is no source.
    pub(crate) fn copy(&mut self, owner: Owner, source: Option<BufRef>, target: BufRef) {
        let mut compute = self.ops.compute(owner, ComputeOp::Linear);
        let mut coefficients = self.ops.boxes.coefficient_list();
        if let Some(source) = source {
            compute.sources.push(source);
            coefficients.push(1);
        }
        compute.outputs.push(LinearOutput {
            target,
            coefficients,
        });
        self.out.push(Action::Compute(compute));
    }

    /// Accounts for a completed operation; the caller has its owner already.
    pub(crate) fn settle_io(&mut self, io: &DeviceIo, ok: bool) {
        let device = &mut self.devices[io.member.0 as usize];
        device.in_flight -= 1;
        device.progress = self.below.now;
        self.roused(io.member, io.op);
        self.note_phase(io.member);
        let device = &mut self.devices[io.member.0 as usize];
        if ok && !io.durable && matches!(io.op, IoOp::Write | IoOp::Zero | IoOp::Trim) {
            device.unflushed = true;
        }
        if ok && device.full && io.class == Class::User && matches!(io.op, IoOp::Write | IoOp::Zero)
        {
            self.note_room(io.member);
        }
    }

    pub(crate) fn recycle(&mut self, io: Box<DeviceIo>) {
        self.ops.recycle_io(io);
    }

    pub(crate) fn good(&self, member: Member) -> bool {
        self.devices
            .get(member.0 as usize)
            .is_some_and(|device| device.health == Health::Good)
    }

    /// Read-side of the member table, for `status` and for new members.
    pub(crate) fn entry_members(&self) -> Vec<Option<Member>> {
        let mut members = alloc::vec![None; self.superblock.members.len()];
        for (index, device) in self.devices.iter().enumerate() {
            if let Some(entry) = device.entry {
                members[entry as usize] = Some(Member(index as u16));
            }
        }
        members
    }

    pub(crate) fn zeroes_fast(&self) -> bool {
        let fast = |home: Option<Home>| {
            home.is_some_and(|home| self.devices[home.member.0 as usize].info.fast_zero)
        };
        self.roles.iter().all(|roles| fast(roles.home))
    }

    pub(crate) fn trim_reads_zero(&self) -> bool {
        let zeroes = |member: Member| self.devices[member.0 as usize].info.trim_zeroes;
        let mut roles = self.roles.iter();
        roles.all(|roles| roles.members().all(zeroes))
    }

    /// Whether a write of zeros to this range needs nothing but fast zeroing of whole cells.
    pub(crate) fn zeroing_is_fast(&self, request: &Request) -> bool {
        let row_bytes = self.layout.row_sectors() * SECTOR_BYTES;
        if self.layout.parity() && !self.layout.rows_are_fixed() {
            return false;
        }
        let unit = match self.layout.parity() {
            true => row_bytes,
            false => u64::from(self.superblock.logical_block),
        };
        let whole = request.offset.is_multiple_of(unit) && request.bytes.is_multiple_of(unit);
        whole && self.zeroes_fast()
    }

    /// Operations that were given up on are the other's from now on. Both have no others.
    pub fn hand_operations_to(&mut self, other: &mut Members) {
        core::mem::swap(&mut self.ops, &mut other.ops);
        for (device, other) in self.devices.iter_mut().zip(&mut other.devices) {
            other.in_flight = core::mem::take(&mut device.in_flight);
        }
    }

    /// A write or flush found no space on a member that serves.
    pub(crate) fn note_full(&mut self, member: Member) {
        self.full.noted = self.now;
        let device = &mut self.devices[usize::from(member.0)];
        if !core::mem::replace(&mut device.full, true) {
            self.fact(Fact::OutOfSpace { member });
        }
    }

    /// A user's write to a member ended well: there is room again. Where one such member halts the array, the
    /// next write to another one will tell of that.
    pub(crate) fn note_room(&mut self, member: Member) {
        if self.starts() || self.halted() {
            return;
        }
        // Without redundancy each write finds space or does not, and where old bytes lie there is some.
        let alone = self.layout.tolerance() == 0;
        if alone && self.now < self.full.noted.after(SPARED) {
            return;
        }
        for this in self.all() {
            let full = self.devices[usize::from(this.0)].full;
            if full && self.serves(this) && (!alone || this == member) {
                self.devices[usize::from(this.0)].full = false;
                self.fact(Fact::RoomAgain { member: this });
            }
        }
    }

    /// The members in service that had no space when last written to.
    pub fn full_members(&self) -> impl Iterator<Item = Member> + '_ {
        let full = |member: &Member| self.devices[usize::from(member.0)].full;
        self.all().filter(move |one| full(one) && self.serves(*one))
    }

    /// Whether users' writes are refused untried for now: members without space are being replaced, and a
    /// write that finds no space would halt the array and cut that short.
    pub(crate) fn spares_the_full(&self) -> bool {
        let fills = self.now < self.full.spared_until
            && self.tasks.list.iter().any(|task| task.kind.fills());
        fills && self.full_members().next().is_some()
    }
}
