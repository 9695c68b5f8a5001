//! Operations in flight: who waits for each, and the boxes they travel in.
//!
//! A tag is an index here. A slot is freed only by its own completion, so a late completion of an abandoned
//! operation finds its slot still taken and its owner gone.

use crate::contract::{
    BufRef, Class, Compute, ComputeOp, DeviceIo, IoOp, Page, Segment, Tag, zeroed_page,
};
use crate::units::{Member, Nanos, SECTOR_BYTES};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

/// What a slice wanted of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SliceOp {
    /// A cell.
    Read(u8),
    Write(u8),
    /// The log record of a parity, or the read of one's payload.
    Log(u8),
    Compute,
}

/// Which way a block of the read cache, or part of it, is copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockCopy {
    /// To who asked for it.
    Out,
    /// From where it was read.
    In,
}

/// A part of a client's read: the request, its sectors, and the buffer that they go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadPart {
    pub(crate) request: u32,
    pub(crate) lba: u64,
    pub(crate) sectors: u64,
    pub(crate) target: BufRef,
}

impl ReadPart {
    /// The sectors of it from the `from`th on.
    pub(crate) fn cut(self, from: u64, sectors: u64) -> ReadPart {
        let (begin, bytes) = (from * SECTOR_BYTES, sectors * SECTOR_BYTES);
        ReadPart {
            lba: self.lba + from,
            sectors,
            target: self.target.part(begin as u32, bytes as u32),
            ..self
        }
    }
}

/// What goes on when an operation completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    Free,
    /// Given up on; its completion only frees the slot.
    Orphan,
    Slice(u32, SliceOp),
    ReadPart(ReadPart),
    /// A request, and the memory of a block.
    CacheCopy(u32, u32, BlockCopy),
    Flush,
    /// A member is being put in standby (`false`), or is spinning up (`true`).
    Power(bool),
    /// The list of a log's records that are over.
    DoneList,
    Superblock,
    /// A map by its kind, and a page.
    MapPage(u8, u16),
    ExtentInit(u32),
    /// The journal of a reshape is wiped out.
    Journal,
    /// A step of a start.
    Start(u32),
    /// A place of a superblock, of a device that a command takes in.
    Admission(u8),
    /// A start records itself as the owner.
    Claim,
    /// A copy of the superblock is read to see who owns the array.
    Look(u8),
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    owner: Owner,
    member: Member,
    /// The sectors of the member.
    at: u64,
    sectors: u64,
    /// When to ask why it is not there yet, and when not to wait any longer.
    deadline: Nanos,
    last: Nanos,
    /// The operation that travels with this one, and whether this one travels with another.
    rider: Option<Tag>,
    rides: bool,
}

impl Slot {
    const FREE: Slot = Slot {
        owner: Owner::Free,
        member: NO_MEMBER,
        at: 0,
        sectors: 0,
        deadline: Nanos(u64::MAX),
        last: Nanos(u64::MAX),
        rider: None,
        rides: false,
    };
}

/// Boxes are kept as boxes: they go out with actions and come back with events.
#[allow(clippy::vec_box)]
pub(crate) struct Ops {
    slots: Vec<Slot>,
    free: Vec<u32>,
    ios: Vec<Box<DeviceIo>>,
    pub(crate) boxes: Boxes,
    in_flight: u32,
    /// To be kept free for slices already admitted.
    pub(crate) reserve: u32,
}

/// Pages that wait to be used again: 4 MiB.
const PAGES_KEPT: usize = 1024;

/// What computations and pages travel in, recycled.
#[derive(Default)]
#[allow(clippy::vec_box)]
pub struct Boxes {
    computes: Vec<Box<Compute>>,
    coefficients: Vec<Vec<u8>>,
    pages: Vec<Page>,
}

impl Boxes {
    /// A computation that nothing goes into or comes out of yet.
    pub fn compute(&mut self, tag: Tag, op: ComputeOp) -> Box<Compute> {
        let mut compute = self.computes.pop().unwrap_or_else(|| {
            Box::new(Compute {
                tag,
                op,
                sources: Vec::with_capacity(TERMS),
                outputs: Vec::with_capacity(OUTPUTS),
                page: None,
            })
        });
        compute.tag = tag;
        compute.op = op;
        compute
    }

    /// An empty coefficient list.
    pub fn coefficient_list(&mut self) -> Vec<u8> {
        let fresh = || Vec::with_capacity(TERMS);
        self.coefficients.pop().unwrap_or_else(fresh)
    }

    /// A page of zeros.
    pub fn page(&mut self) -> Page {
        match self.pages.pop() {
            Some(mut page) => {
                page.fill(0);
                page
            }
            None => zeroed_page(),
        }
    }

    /// Superblocks come in pages of their own: what nobody takes again is not kept for ever.
    pub fn recycle_page(&mut self, page: Page) {
        if self.pages.len() < PAGES_KEPT {
            self.pages.push(page);
        }
    }

    pub fn recycle_compute(&mut self, mut compute: Box<Compute>) {
        compute.sources.clear();
        for mut output in compute.outputs.drain(..) {
            output.coefficients.clear();
            self.coefficients.push(output.coefficients);
        }
        self.computes.push(compute);
    }
}

/// Operations of superblocks, maps and flushes.
pub(crate) const METADATA_OPS: u32 = 3072;

/// Room that new operations begin with: enough for most, so that recycled ones need not grow.
const SEGMENTS: usize = 8;
const TERMS: usize = 2 * crate::CELLS_MAX;
const OUTPUTS: usize = 4;

const NO_MEMBER: Member = Member(u16::MAX);

impl Ops {
    pub(crate) fn new(limit: u32) -> Ops {
        Ops {
            slots: alloc::vec![Slot::FREE; limit as usize],
            free: (0..limit).rev().collect(),
            ios: Vec::new(),
            boxes: Boxes::default(),
            in_flight: 0,
            reserve: 0,
        }
    }

    /// Makes room for `limit` operations in all.
    pub(crate) fn grow(&mut self, limit: u32) {
        let held = self.slots.len() as u32;
        if limit > held {
            self.slots.resize(limit as usize, Slot::FREE);
            self.free.splice(0..0, (held..limit).rev());
        }
    }

    pub(crate) fn available(&self) -> u32 {
        self.free.len() as u32
    }

    /// Whether there is one beyond those that are kept free.
    pub(crate) fn has_spare(&self) -> bool {
        self.available() > self.reserve
    }

    pub(crate) fn idle(&self) -> bool {
        self.in_flight == 0
    }

    /// A box for a device operation, with an owner and a deadline.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn device(
        &mut self,
        owner: Owner,
        member: Member,
        op: IoOp,
        at: u64,
        sectors: u64,
        class: Class,
        deadline: Nanos,
        last: Nanos,
    ) -> Box<DeviceIo> {
        let tag = self.claim(Slot {
            owner,
            member,
            at,
            sectors,
            deadline,
            last,
            ..Slot::FREE
        });
        let fresh = DeviceIo {
            tag,
            member,
            op,
            at,
            sectors,
            segments: Vec::new(),
            durable: false,
            class,
        };
        match self.ios.pop() {
            Some(mut io) => {
                let segments = core::mem::take(&mut io.segments);
                *io = DeviceIo { segments, ..fresh };
                io
            }
            None => Box::new(DeviceIo {
                segments: Vec::with_capacity(SEGMENTS),
                ..fresh
            }),
        }
    }

    pub(crate) fn compute(&mut self, owner: Owner, op: ComputeOp) -> Box<Compute> {
        let tag = self.claim(Slot {
            owner,
            ..Slot::FREE
        });
        self.boxes.compute(tag, op)
    }

    fn claim(&mut self, slot: Slot) -> Tag {
        let index = self.free.pop();
        let index = index.expect("operations are admitted within their limit");
        self.slots[index as usize] = slot;
        self.in_flight += 1;
        Tag(index)
    }

    /// Ends an operation and tells who waited for it.
    pub(crate) fn release(&mut self, tag: Tag) -> Owner {
        let slot = &mut self.slots[tag.0 as usize];
        let owner = slot.owner;
        assert!(owner != Owner::Free, "each operation completes once");
        slot.owner = Owner::Free;
        slot.deadline = Nanos(u64::MAX);
        self.free.push(tag.0);
        self.in_flight -= 1;
        owner
    }

    pub(crate) fn recycle_io(&mut self, mut io: Box<DeviceIo>) {
        for segment in io.segments.drain(..) {
            if let Segment::Page(page) = segment {
                self.boxes.recycle_page(page);
            }
        }
        self.ios.push(io);
    }

    pub(crate) fn owner(&self, tag: Tag) -> Owner {
        self.slots[tag.0 as usize].owner
    }

    /// From here on an operation travels with another, after what travels with that already.
    pub(crate) fn join(&mut self, with: Tag, rider: Tag) {
        let mut last = with;
        while let Some(next) = self.slots[last.0 as usize].rider {
            last = next;
        }
        self.slots[last.0 as usize].rider = Some(rider);
        self.slots[rider.0 as usize].rides = true;
    }

    pub(crate) fn rider_of(&self, tag: Tag) -> Option<Tag> {
        self.slots[tag.0 as usize].rider
    }

    pub(crate) fn sectors(&self, tag: Tag) -> u64 {
        self.slots[tag.0 as usize].sectors
    }

    /// The members of operations that were given up on and are still outstanding.
    pub(crate) fn orphans(&self) -> impl Iterator<Item = Member> + '_ {
        let orphaned = |slot: &&Slot| slot.owner == Owner::Orphan;
        self.slots.iter().filter(orphaned).map(|slot| slot.member)
    }

    /// Whether nothing is outstanding but what was given up on.
    pub(crate) fn only_orphans(&self) -> bool {
        self.idle() || self.orphans().count() == self.in_flight as usize
    }

    /// Gives up on what is outstanding on a member: its owners in the order of the slots, with the tags of
    /// those that travel by themselves.
    pub(crate) fn abandon(&mut self, member: Member, into: &mut Vec<(Option<Tag>, Owner)>) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if slot.member == member && !matches!(slot.owner, Owner::Free | Owner::Orphan) {
                let tag = Tag(index as u32);
                into.push(((!slot.rides).then_some(tag), slot.owner));
                slot.owner = Owner::Orphan;
                slot.deadline = Nanos(u64::MAX);
            }
        }
    }

    /// An operation past its deadline, with its member, and the earliest deadline still ahead.
    pub(crate) fn overdue(&self, now: Nanos) -> (Option<(Tag, Member)>, Nanos) {
        let mut late = None;
        let mut next = Nanos(u64::MAX);
        for (index, slot) in self.slots.iter().enumerate() {
            if slot.deadline <= now {
                late = late.or(Some((Tag(index as u32), slot.member)));
            } else {
                next = next.min(slot.deadline);
            }
        }
        (late, next)
    }

    /// Gives an operation more time, but not past its last; false when there is none left.
    pub(crate) fn extend(&mut self, tag: Tag, now: Nanos, until: Nanos) -> bool {
        let slot = &mut self.slots[tag.0 as usize];
        let until = until.min(slot.last);
        if until > now {
            slot.deadline = until;
        }
        until > now
    }

    /// Whether a member still has operations outstanding, given up on or not.
    pub(crate) fn busy(&self, member: Member) -> bool {
        self.outstanding_on(member).next().is_some()
    }

    /// The same of some of its sectors.
    pub(crate) fn busy_in(&self, member: Member, sectors: &Range<u64>) -> bool {
        let there = |slot: &Slot| slot.at < sectors.end && sectors.start < slot.at + slot.sectors;
        self.outstanding_on(member).any(there)
    }

    fn outstanding_on(&self, member: Member) -> impl Iterator<Item = &Slot> {
        let outstanding = self.slots.iter().filter(|slot| slot.owner != Owner::Free);
        outstanding.filter(move |slot| slot.member == member)
    }
}
