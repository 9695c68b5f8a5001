//! The simulated world: one clock, one heap of future events, one engine, and disks around it.
//!
//! Operations take effect when they complete, and so do computations. So the seed really decides the order
//! of operations in flight, on which the engine must not rely. The world also checks the engine's contract:
//! every tag is known and completed once, references are within their buffers, ranges within their members,
//! limits respected.

use crate::compute;
use crate::crash::Site;
use crate::digest::Digest;
use crate::disk::Disk;
use crate::fault::Fault;
use crate::image::words_digest;
use crate::invariant::{Invariant, Violation};
use crate::memory::{BufferTable, Private};
use crate::payload::Payload;
use crate::rng::Rng;
use restripe_array::report::{self, MemberState};
use restripe_array::{
    Action, Actions, BufRef, Class, Command, CommandError, CommandTag, Compute, ComputeOp,
    DeviceIo, Event, Fact, IoOp, Limits, LinearOutput, Member, Nanos, PAGE_BYTES, Request,
    RequestError, RequestTag, SECTOR_BYTES, Segment, Tag, Uuid,
};
use restripe_tier::Engine;
use restripe_tier::report::Status;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// What a world is built around: the engine, or a small stand-in in the world's own tests.
pub trait Machine {
    fn handle(&mut self, now: Nanos, event: Event, actions: &mut Actions);
    fn ready(&self) -> bool;
    fn status(&self) -> Status;
}

impl Machine for Engine {
    fn handle(&mut self, now: Nanos, event: Event, actions: &mut Actions) {
        Engine::handle(self, now, event, actions);
    }

    fn ready(&self) -> bool {
        Engine::ready(self)
    }

    fn status(&self) -> Status {
        Engine::status(self)
    }
}

/// Operations of metadata at once, on top of those of the limits: a failure writes all pages of a map to each
/// member.
const METADATA_IOS: u32 = 3072;

#[derive(Clone, Copy, Debug)]
pub struct WorldConfig {
    pub payload: Payload,
    pub limits: Limits,
    pub seed: u64,
    /// A computation takes up to so long.
    pub compute_delay: Nanos,
    /// Check what costs time: buffers under way, overlapping writes, the digest of actions.
    pub strict: bool,
    /// Keep every event for a replay.
    pub record: bool,
    /// Say what is sent and what ends.
    pub trace: bool,
}

impl WorldConfig {
    /// A world that checks all it can, computes at once and records nothing.
    pub fn strict(payload: Payload, limits: Limits) -> WorldConfig {
        WorldConfig {
            payload,
            limits,
            seed: 0,
            compute_delay: Nanos::ZERO,
            strict: true,
            record: false,
            trace: false,
        }
    }
}

/// The members of a set that are in this state.
pub fn members_in(status: &report::Status, state: MemberState) -> Vec<Member> {
    let lines = status.members.iter().filter(|line| line.state == state);
    lines.map(|line| line.member).collect()
}

/// The member with this identifier, if it is active.
pub fn active(status: &report::Status, uuid: Uuid) -> Option<Member> {
    let mut lines = status.members.iter();
    let line = lines.find(|line| line.uuid == uuid && line.state == MemberState::Active);
    line.map(|line| line.member)
}

/// What a scenario learns from a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Happening {
    Reply(RequestTag, Result<(), RequestError>),
    CommandReply(CommandTag, Result<(), CommandError>),
    Fact(Fact),
    /// The time of [`World::mark`] has come.
    Mark(u64),
}

/// Counts of what the members did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    pub ios: u64,
    pub computes: u64,
    pub late: u64,
    pub steps: u64,
}

pub struct World<M> {
    config: WorldConfig,
    now: Nanos,
    sequence: u64,
    heap: BinaryHeap<Reverse<Due>>,
    wake: Option<Nanos>,
    machine: M,
    disks: Vec<Disk>,
    memory: BufferTable,
    operations: HashMap<u32, Operation, BuildHasherDefault<TagHasher>>,
    ios_under_way: u32,
    /// Those of them that write superblocks and maps, or flush.
    metadata_under_way: u32,
    requests: HashMap<u64, Nanos, BuildHasherDefault<TagHasher>>,
    commands: HashMap<u64, Nanos, BuildHasherDefault<TagHasher>>,
    actions: Actions,
    turn_due: bool,
    happenings: VecDeque<Happening>,
    violations: Vec<Violation>,
    digest: Digest,
    events: Vec<(Nanos, Event)>,
    rng: Rng,
    tally: Tally,
}

/// Something to come. Ordered by time, then by the order in which it was planned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Due {
    at: Nanos,
    sequence: u64,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum What {
    Device(Tag),
    Compute(Tag),
    Mark(u64),
}

enum Operation {
    Device(Flight),
    Compute(Box<Compute>),
}

impl Operation {
    fn flight(&self) -> Option<&Flight> {
        match self {
            Operation::Device(flight) => Some(flight),
            Operation::Compute(_) => None,
        }
    }
}

struct Flight {
    io: Box<DeviceIo>,
    /// The disk's writes before it was sent: what a flush covers.
    mark: u64,
    /// A digest of what it writes, as of its submission.
    contents: u64,
    /// Set once the engine gave it up.
    private: Option<Private>,
    /// It has a place in the heap; otherwise it waits its turn or hangs.
    planned: bool,
    /// It waits in the disk's queue.
    queued: bool,
}

/// Tags are small integers; one multiplication spreads them. Never iterated where order matters.
#[derive(Default)]
struct TagHasher(u64);

impl Hasher for TagHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = words_digest(self.0, bytes);
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        let spread = (value + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread.rotate_left(32);
    }
}

impl<M: Machine> World<M> {
    pub fn new(config: WorldConfig, machine: M, disks: Vec<Disk>) -> World<M> {
        World::at(config, Nanos::ZERO, machine, disks)
    }

    /// A world whose clock begins at `now`: after a crash, time goes on.
    pub fn at(config: WorldConfig, now: Nanos, machine: M, disks: Vec<Disk>) -> World<M> {
        World {
            config,
            now,
            sequence: 0,
            heap: BinaryHeap::new(),
            wake: None,
            machine,
            disks,
            memory: BufferTable::new(config.payload, config.limits.pool),
            operations: HashMap::default(),
            ios_under_way: 0,
            metadata_under_way: 0,
            requests: HashMap::default(),
            commands: HashMap::default(),
            actions: Actions::new(),
            turn_due: false,
            happenings: VecDeque::new(),
            violations: Vec::new(),
            digest: Digest::default(),
            events: Vec::new(),
            rng: Rng::new(config.seed),
            tally: Tally::default(),
        }
    }

    // ----------------------------------------------------------------------------------------- what is known

    pub fn now(&self) -> Nanos {
        self.now
    }

    pub fn machine(&self) -> &M {
        &self.machine
    }

    pub fn status(&self) -> Status {
        self.machine.status()
    }

    pub fn disk(&self, member: Member) -> &Disk {
        &self.disks[usize::from(member.0)]
    }

    pub fn disks(&self) -> impl Iterator<Item = &Disk> {
        self.disks.iter()
    }

    pub fn disk_mut(&mut self, member: Member) -> &mut Disk {
        &mut self.disks[usize::from(member.0)]
    }

    pub fn members(&self) -> impl Iterator<Item = Member> + use<M> {
        (0..self.disks.len() as u16).map(Member)
    }

    pub fn memory(&mut self) -> &mut BufferTable {
        &mut self.memory
    }

    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    pub fn digest(&self) -> u64 {
        self.digest.value()
    }

    pub fn traces(&self) -> bool {
        self.config.trace
    }

    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// The events so far, if they were recorded.
    pub fn events(&self) -> &[(Nanos, Event)] {
        &self.events
    }

    /// What happened since this was last asked, one at a time.
    pub fn happening(&mut self) -> Option<Happening> {
        self.happenings.pop_front()
    }

    /// Whether the engine takes another request.
    pub fn ready(&self) -> bool {
        self.machine.ready()
    }

    /// Nothing is under way and nobody waits for an answer. Timers may still be set.
    pub fn quiescent(&self) -> bool {
        let asked = self.requests.is_empty() && self.commands.is_empty();
        asked && self.operations.is_empty() && !self.turn_due && self.happenings.is_empty()
    }

    /// When the oldest request or command without an answer was made.
    pub fn oldest_outstanding(&self) -> Option<Nanos> {
        let asked = self.requests.values().chain(self.commands.values());
        asked.min().copied()
    }

    /// All operations under way, computations included.
    pub fn operations(&self) -> usize {
        self.operations.len()
    }

    /// Operations under way on a member.
    pub fn under_way(&self, member: Member) -> usize {
        let flights = self.operations.values().filter_map(Operation::flight);
        flights.filter(|flight| flight.io.member == member).count()
    }

    /// Operations under way that are of a kind, in the order of their tags.
    pub fn under_way_as(&self, wanted: impl Fn(&DeviceIo) -> bool) -> Vec<&DeviceIo> {
        let flights = self.operations.values().filter_map(Operation::flight);
        let ios = flights.map(|flight| &*flight.io);
        let mut found: Vec<&DeviceIo> = ios.filter(|io| wanted(io)).collect();
        found.sort_unstable_by_key(|io| io.tag);
        found
    }

    /// Whether a computation is under way.
    pub fn computing(&self) -> bool {
        self.operations.len() > self.ios_under_way as usize
    }

    /// Whether less than a block is being put over a block.
    pub fn merging(&self) -> bool {
        self.computes(|compute| {
            let mut sources = compute.sources.iter();
            sources.any(|source| !u64::from(source.bytes).is_multiple_of(PAGE_BYTES as u64))
        })
    }

    /// Whether a checksum is being taken.
    pub fn checking(&self) -> bool {
        self.computes(|compute| compute.op == ComputeOp::Checksum)
    }

    fn computes(&self, wanted: impl Fn(&Compute) -> bool) -> bool {
        let compute = |operation: &Operation| matches!(operation, Operation::Compute(compute) if wanted(compute));
        self.computing() && self.operations.values().any(compute)
    }

    // ------------------------------------------------------------------------------------------- what is done

    pub fn request(&mut self, request: Request) {
        let fresh = self.requests.insert(request.tag.0, self.now).is_none();
        assert!(fresh, "a request's tag is its own");
        self.deliver(Event::Request(request));
        self.turn_due = true;
    }

    pub fn command(&mut self, tag: CommandTag, command: Command) {
        let fresh = self.commands.insert(tag.0, self.now).is_none();
        assert!(fresh, "a command's tag is its own");
        self.deliver(Event::Command(tag, command));
        self.turn_due = true;
    }

    /// A device is opened while the array runs.
    pub fn arrive(&mut self, disk: Disk) -> Member {
        let member = Member(self.disks.len() as u16);
        let info = disk.info();
        self.disks.push(disk);
        self.deliver(Event::Arrived(info));
        self.turn_due = true;
        member
    }

    /// The shell loses a device: it answers nothing but errors from now on, what hangs included.
    pub fn depart(&mut self, member: Member) {
        self.inject(member, Fault::Death);
        self.release(member, Nanos(1000));
        self.deliver(Event::Departed(member));
        self.turn_due = true;
    }

    pub fn inject(&mut self, member: Member, fault: Fault) {
        self.disk_mut(member).faults.inject(fault);
    }

    /// Ends what hangs on a member, `delay` from now.
    pub fn release(&mut self, member: Member, delay: Nanos) {
        let hangs =
            |flight: &Flight| flight.io.member == member && !flight.planned && !flight.queued;
        let mut tags: Vec<Tag> = Vec::new();
        for operation in self.operations.values_mut() {
            match operation {
                Operation::Device(flight) if hangs(flight) => {
                    flight.planned = true;
                    tags.push(flight.io.tag);
                }
                _ => {}
            }
        }
        tags.sort_unstable();
        tags.into_iter()
            .for_each(|tag| self.plan(self.now.after(delay), What::Device(tag)));
    }

    /// Asks for [`Happening::Mark`] at a time.
    pub fn mark(&mut self, at: Nanos, mark: u64) {
        self.plan(at.max(self.now), What::Mark(mark));
    }

    fn plan(&mut self, at: Nanos, what: What) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.heap.push(Reverse(Due { at, sequence, what }));
    }

    /// Goes to the next thing to come, and through all that comes at the same moment. False when nothing will.
    pub fn step(&mut self) -> bool {
        if self.turn_due {
            self.turn();
            return true;
        }
        let Some(next) = self.next_time() else {
            return false;
        };
        assert!(next >= self.now, "time does not run backwards");
        self.now = next;
        self.tally.steps += 1;
        while self.heap.peek().is_some_and(|due| due.0.at <= next) {
            let Reverse(due) = self.heap.pop().expect("just seen");
            self.happen(due.what);
        }
        if self.wake.is_some_and(|wake| wake <= next) {
            self.wake = None;
            if self.config.trace {
                eprintln!("  {:>14} timer", self.now.0);
            }
            self.deliver(Event::Timer);
        }
        self.turn();
        true
    }

    fn next_time(&self) -> Option<Nanos> {
        let planned = self.heap.peek().map(|due| due.0.at);
        match (planned, self.wake) {
            (Some(planned), Some(wake)) => Some(planned.min(wake.max(self.now))),
            (Some(planned), None) => Some(planned),
            (None, wake) => wake.map(|wake| wake.max(self.now)),
        }
    }

    fn turn(&mut self) {
        self.turn_due = false;
        self.deliver(Event::Turn);
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Device(tag) => self.complete_device(tag),
            What::Compute(tag) => self.complete_compute(tag),
            What::Mark(mark) => self.happenings.push_back(Happening::Mark(mark)),
        }
    }

    fn complete_compute(&mut self, tag: Tag) {
        match self.operations.remove(&tag.0) {
            Some(Operation::Compute(mut compute)) => {
                let verdict = compute::perform(&mut compute, self.config.payload, &mut self.memory);
                self.deliver(Event::Compute(compute, verdict));
            }
            _ => unreachable!("planned operations are known"),
        }
    }

    fn complete_device(&mut self, tag: Tag) {
        let Some(Operation::Device(mut flight)) = self.operations.remove(&tag.0) else {
            unreachable!("planned operations are known")
        };
        self.ios_under_way -= 1;
        self.metadata_under_way -= u32::from(flight.io.class == Class::Metadata);
        self.tally.late += u64::from(flight.private.is_some());
        self.check_contents(&flight);
        let disk = &mut self.disks[usize::from(flight.io.member.0)];
        let (io, private) = (&mut flight.io, flight.private.as_mut());
        let result = disk.perform(io, &mut self.memory, private, flight.mark);
        if let Some(next) = disk.end() {
            self.begin(next);
        }
        if self.config.trace {
            let (now, io) = (self.now.0, brief(&flight.io));
            let failed = if result.is_ok() { "" } else { " FAILED" };
            eprintln!("  {now:>14} ended {io}{failed}");
        }
        self.deliver(Event::Device(flight.io, result));
    }

    /// The disk has room for an operation that waited.
    fn begin(&mut self, tag: Tag) {
        let Some(Operation::Device(flight)) = self.operations.get_mut(&tag.0) else {
            unreachable!("waiting operations are known")
        };
        flight.queued = false;
        let due = self.disks[usize::from(flight.io.member.0)].begin(self.now, &flight.io);
        flight.planned = due.is_some();
        if let Some(due) = due {
            self.plan(due, What::Device(tag));
        }
    }

    /// Hands the engine one event and takes its actions.
    fn deliver(&mut self, event: Event) {
        if self.config.record {
            self.events.push((self.now, event.clone()));
        }
        let mut actions = std::mem::take(&mut self.actions);
        self.machine.handle(self.now, event, &mut actions);
        for action in actions.drain(..) {
            if self.config.strict {
                self.digest.action(self.now, &action);
            }
            self.act(action);
        }
        self.actions = actions;
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Device(io) => self.submit_device(io),
            Action::Compute(compute) => self.submit_compute(compute),
            Action::Reply(tag, result) => self.reply(tag, result),
            Action::Detach(tag) => self.detach(tag),
            Action::Wake(at) => self.wake = Some(at),
            Action::CommandReply(tag, result) => self.command_reply(tag, result),
            Action::Fact(fact) => self.happenings.push_back(Happening::Fact(fact)),
        }
    }

    fn reply(&mut self, tag: RequestTag, result: Result<(), RequestError>) {
        if self.requests.remove(&tag.0).is_none() {
            return self.breach(format!("a reply to {tag:?}, which is not outstanding"));
        }
        self.happenings.push_back(Happening::Reply(tag, result));
    }

    fn command_reply(&mut self, tag: CommandTag, result: Result<(), CommandError>) {
        if self.commands.remove(&tag.0).is_none() {
            return self.breach(format!("a reply to {tag:?}, which is not outstanding"));
        }
        self.happenings
            .push_back(Happening::CommandReply(tag, result));
    }

    fn detach(&mut self, tag: Tag) {
        match self.operations.get_mut(&tag.0) {
            Some(Operation::Device(flight)) if flight.private.is_none() => {
                flight.private = Some(self.memory.detach(&flight.io.segments));
            }
            _ => self.breach(format!(
                "{tag:?} was given up on, but is no device operation under way"
            )),
        }
    }

    fn submit_device(&mut self, io: Box<DeviceIo>) {
        self.tally.ios += 1;
        if let Err(why) = self.check_device(&io) {
            return self.breach(format!("{why}: {io:?}"));
        }
        if self.config.trace {
            eprintln!("  {:>14} sends {}", self.now.0, brief(&io));
        }
        let contents = self.contents(&io, None);
        let disk = &mut self.disks[usize::from(io.member.0)];
        let mark = disk.mark();
        let waits = disk.full();
        let due = disk.submit(self.now, &io);
        let tag = io.tag;
        let flight = Flight {
            io,
            mark,
            contents,
            private: None,
            planned: due.is_some(),
            queued: waits,
        };
        self.ios_under_way += 1;
        self.metadata_under_way += u32::from(flight.io.class == Class::Metadata);
        self.operations.insert(tag.0, Operation::Device(flight));
        if let Some(due) = due {
            self.plan(due, What::Device(tag));
        }
    }

    fn submit_compute(&mut self, compute: Box<Compute>) {
        self.tally.computes += 1;
        if let Err(why) = self.check_compute(&compute) {
            return self.breach(format!("{why}: {compute:?}"));
        }
        if self.config.strict {
            self.check_outputs(&compute);
        }
        let tag = compute.tag;
        let delay = match self.config.compute_delay.0 {
            0 => 0,
            most => self.rng.below(most),
        };
        self.operations.insert(tag.0, Operation::Compute(compute));
        self.plan(self.now.after(Nanos(delay)), What::Compute(tag));
    }

    /// No other computation under way writes what this one does: whichever ends last would win.
    fn check_outputs(&mut self, compute: &Compute) {
        let meets = |one: &BufRef, other: &BufRef| {
            let before = one.offset + one.bytes <= other.offset;
            let behind = other.offset + other.bytes <= one.offset;
            one.buf == other.buf && !before && !behind
        };
        let writes = |other: &Compute| {
            let mut outputs = compute.outputs.iter();
            outputs.any(|mine| {
                let mut theirs = other.outputs.iter();
                theirs.any(|output| meets(&mine.target, &output.target))
            })
        };
        if self.computes(writes) {
            let detail = format!("{:?} writes what another one does", compute.tag);
            self.violation(Invariant::OverlappingComputes, detail);
        }
    }

    // --------------------------------------------------------------------------------------------- contract

    fn breach(&mut self, detail: String) {
        self.violation(Invariant::Contract, detail);
    }

    pub fn violation(&mut self, invariant: Invariant, detail: impl Into<String>) {
        self.violations.push(Violation::new(invariant, detail));
    }

    fn check_device(&mut self, io: &DeviceIo) -> Result<(), String> {
        let Some(disk) = self.disks.get(usize::from(io.member.0)) else {
            return Err("no such member".into());
        };
        if self.operations.contains_key(&io.tag.0) {
            return Err("its tag is under way already".into());
        }
        let (under_way, most) = match io.class {
            Class::Metadata => (self.metadata_under_way, METADATA_IOS),
            _ => (
                self.ios_under_way - self.metadata_under_way,
                self.config.limits.ios,
            ),
        };
        if under_way >= most {
            return Err(format!("more than {most} operations under way"));
        }
        let end = io.at.checked_add(io.sectors);
        if end.is_none_or(|end| end > disk.info().sectors) {
            return Err("beyond the member's end".into());
        }
        let block = u64::from(disk.info().logical_block) / SECTOR_BYTES;
        if !io.at.is_multiple_of(block) || !io.sectors.is_multiple_of(block) {
            return Err("not whole logical blocks".into());
        }
        self.check_segments(io)?;
        if self.config.strict {
            self.check_overlap(io);
        }
        Ok(())
    }

    fn check_segments(&self, io: &DeviceIo) -> Result<(), String> {
        let carries = matches!(io.op, IoOp::Read | IoOp::Write);
        let segments = io.segments.iter();
        let bytes: u64 = segments.map(|segment| u64::from(segment.bytes())).sum();
        let sectors = io.sectors;
        if carries && (bytes != sectors * SECTOR_BYTES || bytes == 0) {
            return Err(format!("segments of {bytes} bytes for {sectors} sectors"));
        }
        if !carries && !io.segments.is_empty() {
            return Err("segments on an operation that carries none".into());
        }
        if io.op.has_range() && io.sectors == 0 {
            return Err("no sectors".into());
        }
        for segment in &io.segments {
            match segment {
                Segment::Buf(reference) => self.memory.check(*reference)?,
                Segment::Zero(_) if io.op == IoOp::Read => return Err("a read of zeros".into()),
                Segment::Zero(bytes) if !u64::from(*bytes).is_multiple_of(SECTOR_BYTES) => {
                    return Err("zeros that are no whole sectors".into());
                }
                Segment::Page(_) | Segment::Zero(_) => {}
            }
        }
        Ok(())
    }

    fn check_overlap(&mut self, io: &DeviceIo) {
        let writes = |op| matches!(op, IoOp::Write | IoOp::Zero | IoOp::Trim);
        if !writes(io.op) {
            return;
        }
        let DeviceIo {
            member,
            at,
            sectors,
            ..
        } = *io;
        let meets = |flight: &&Flight| {
            let other = &flight.io;
            let live = other.member == member && flight.private.is_none() && writes(other.op);
            live && other.at < at + sectors && at < other.at + other.sectors
        };
        let flights = self.operations.values().filter_map(Operation::flight);
        if let Some(tag) = flights.filter(meets).map(|flight| flight.io.tag).min() {
            let detail = format!("{member:?} {at:?} +{sectors} meets {tag:?} under way");
            self.violation(Invariant::OverlappingMemberWrites, detail);
        }
    }

    fn check_compute(&self, compute: &Compute) -> Result<(), String> {
        if self.operations.contains_key(&compute.tag.0) {
            return Err("its tag is under way already".into());
        }
        let targets = compute.outputs.iter().map(|output| output.target);
        let all: Vec<BufRef> = compute.sources.iter().copied().chain(targets).collect();
        for reference in &all {
            self.memory.check(*reference)?;
        }
        if all.iter().any(|reference| reference.bytes != all[0].bytes) {
            return Err("sources and targets of different lengths".into());
        }
        match compute.op {
            ComputeOp::Linear => check_linear(compute),
            ComputeOp::Or => check_or(compute),
            ComputeOp::PutPage | ComputeOp::TakePage => check_page(compute, self.config.payload),
            ComputeOp::Checksum | ComputeOp::Compare | ComputeOp::Locate => check_verdict(compute),
        }
    }

    fn contents(&self, io: &DeviceIo, private: Option<&Private>) -> u64 {
        if !self.config.strict || io.op != IoOp::Write {
            return 0;
        }
        let mut digest = 0;
        for (index, segment) in io.segments.iter().enumerate() {
            if let Segment::Buf(reference) = segment {
                let bytes = match private {
                    Some(private) => &private[index][..],
                    None => self.memory.get(*reference),
                };
                digest = words_digest(digest, bytes);
            }
        }
        digest
    }

    fn check_contents(&mut self, flight: &Flight) {
        if self.contents(&flight.io, flight.private.as_ref()) != flight.contents {
            let (io, sectors) = (&flight.io, flight.io.sectors);
            let detail = format!("{:?} at {} +{sectors}, {:?}", io.member, io.at, io.segments);
            self.violation(Invariant::BufferChangedInFlight, detail);
        }
    }

    // ---------------------------------------------------------------------------------------------- crashes

    /// What a cut of power at this moment would leave.
    pub fn site(&self) -> Site {
        let flights = self.operations.values().filter_map(Operation::flight);
        let mut flights: Vec<&Flight> = flights.filter(|flight| !flight.queued).collect();
        flights.sort_unstable_by_key(|flight| flight.io.tag);
        let mut under_way: Vec<Vec<_>> = self.disks.iter().map(|_| Vec::new()).collect();
        for flight in flights {
            let member = usize::from(flight.io.member.0);
            let write =
                self.disks[member].under_way(&flight.io, &self.memory, flight.private.as_ref());
            under_way[member].extend(write);
        }
        Site::new(&self.disks, under_way)
    }

    /// Power goes, and comes back to another machine on the same disks. Nothing survives that was not durable.
    pub fn power_cycle(&mut self, machine: M) {
        let site = self.site();
        let disks = site.restart(std::mem::take(&mut self.disks), &site.nothing());
        let violations = std::mem::take(&mut self.violations);
        *self = World::at(self.config, self.now, machine, disks);
        self.violations = violations;
    }

    /// Takes the world apart: its disks as they are.
    pub fn into_disks(self) -> Vec<Disk> {
        self.disks
    }
}

/// An operation on a line.
fn brief(io: &DeviceIo) -> String {
    let segments = io.segments.iter().map(|segment| match segment {
        Segment::Page(_) => "page".to_string(),
        Segment::Buf(buf) => format!("{}:{}+{}", buf.buf.0, buf.offset / 512, buf.bytes / 512),
        Segment::Zero(bytes) => format!("zero+{}", bytes / 512),
    });
    let segments: Vec<String> = segments.collect();
    let durable = if io.durable { " durable" } else { "" };
    let (tag, member, op, class) = (io.tag.0, io.member.0, io.op, io.class);
    let (at, sectors, segments) = (io.at, io.sectors, segments.join(" "));
    format!("#{tag} m{member} {op:?} {at} +{sectors}{durable} {class:?} [{segments}]")
}

fn check_linear(compute: &Compute) -> Result<(), String> {
    for output in &compute.outputs {
        if output.coefficients.len() != compute.sources.len() {
            return Err("not one coefficient a source".into());
        }
        let mut sources = compute.sources.iter();
        if sources.any(|source| overlap(source, &output.target)) {
            return Err("a target overlaps a source".into());
        }
    }
    Ok(())
}

fn check_page(compute: &Compute, payload: Payload) -> Result<(), String> {
    let puts = compute.op == ComputeOp::PutPage;
    let targets = compute.outputs.iter().map(|output| output.target);
    let mut memory = compute.sources.iter().copied().chain(targets);
    let ends = (compute.sources.len(), compute.outputs.len());
    if ends != (usize::from(!puts), usize::from(puts)) || compute.page.is_none() {
        return Err("not a page and one buffer".into());
    }
    if memory.any(|reference| reference.bytes as usize != PAGE_BYTES) {
        return Err("a buffer that is no page".into());
    }
    if !compute::holds_pages(payload) {
        return Err("a page among data that cannot hold one".into());
    }
    Ok(())
}

fn check_or(compute: &Compute) -> Result<(), String> {
    let disjoint = |output: &LinearOutput| {
        compute
            .sources
            .iter()
            .all(|source| !overlap(source, &output.target))
    };
    match (compute.sources.len(), &compute.outputs[..]) {
        (2, [output]) if disjoint(output) => Ok(()),
        _ => Err("not the or of two buffers in a third".into()),
    }
}

fn check_verdict(compute: &Compute) -> Result<(), String> {
    let sources = match compute.op {
        ComputeOp::Checksum => 1,
        _ => 2,
    };
    if compute.sources.len() < sources || !compute.outputs.is_empty() {
        return Err(format!("a verdict on {sources} sources"));
    }
    Ok(())
}

fn overlap(a: &BufRef, b: &BufRef) -> bool {
    a.buf == b.buf && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes
}
