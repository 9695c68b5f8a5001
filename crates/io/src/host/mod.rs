//! One engine with its members: delivers events, carries out actions.
//!
//! ```text
//! tell(event), request(...)  -> inbox
//! settle(now)                   inbox -> engine -> actions -> inbox ..., then Turn, until nothing is left to tell
//! completed(...)                a kernel operation is back -> inbox (or another kernel operation)
//! ```
//!
//! A host does not wait and does not look at a clock. What leaves it upwards (replies, answers, facts) gathers in
//! [`Outcome`]s for the shell to take.

mod flight;
#[cfg(test)]
mod tests;

use crate::backend::{Backend, Completion, Op, Token};
use crate::compute;
use crate::front::Export;
use crate::member::{Device, OpenMember};
use crate::memory::{Handles, PoolMemory, UserMemory};
use crate::record::Recorder;
use crate::slab::Slab;
use crate::tokens::Owner;
use flight::{Flight, Progress, Scratch};
use restripe_array::report::{ArrayState, Health, MapExtent, Status};
use restripe_array::{
    Action, Actions, Buf, Command, CommandError, CommandTag, Config, DeviceIo, Engine, Event, Fact,
    IoError, IoOp, Member, MemberInfo, Nanos, Request, RequestError, RequestTag, SECTOR_BYTES,
    Segment, Tag,
};
use std::collections::VecDeque;

/// What a host needs of its surroundings while it works.
pub struct World<'a> {
    pub backend: &'a mut dyn Backend,
    pub users: &'a mut UserMemory,
}

/// What a host has to say to those above it.
#[derive(Debug)]
pub enum Outcome {
    Reply(RequestTag, Result<(), RequestError>),
    CommandReply(CommandTag, Result<(), CommandError>),
    Fact(Nanos, Fact),
}

/// Users' requests of this size cost the least: a metadata page, and a file system's block.
const PREFERRED_BLOCK: u32 = 4096;

/// When completions reach the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Delivery {
    #[default]
    Prompt,
    /// They wait in [`Host::held`] until released: a test chooses their order.
    Held,
}

struct Place {
    name: String,
    /// `None` once closed.
    device: Option<Device>,
    /// Operations in flight; the device stays open until they are back.
    flights: u32,
    closing: bool,
    /// The engine was told that it is gone.
    departed: bool,
}

pub struct Host {
    index: u8,
    engine: Engine,
    pool: PoolMemory,
    members: Vec<Place>,
    flights: Slab<Flight>,
    inbox: VecDeque<Event>,
    requests: VecDeque<Request>,
    actions: Actions,
    wake: Option<Nanos>,
    delivery: Delivery,
    held: Vec<Event>,
    /// Something was told since the last turn.
    stirred: bool,
    pub outcomes: Vec<Outcome>,
    scratch: Scratch,
    recorder: Option<Recorder>,
}

impl Host {
    /// `index` tells this host's operations from others' on the same backend.
    /// `config` is the one of these members.
    pub fn new(index: u8, members: Vec<OpenMember>, config: Config) -> Host {
        let limits = config.limits;
        let engine = Engine::new(config);
        Host {
            index,
            engine,
            pool: PoolMemory::new(limits.pool),
            members: members.into_iter().map(Place::new).collect(),
            flights: Slab::default(),
            inbox: VecDeque::new(),
            requests: VecDeque::new(),
            actions: Actions::new(),
            wake: None,
            delivery: Delivery::Prompt,
            held: Vec::new(),
            stirred: false,
            outcomes: Vec::new(),
            scratch: Scratch::new(),
            recorder: None,
        }
    }

    pub fn deliver(&mut self, delivery: Delivery) {
        self.delivery = delivery;
    }

    pub fn record(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
    }

    /// Ends a recording; its outcome is whether all of it was written.
    pub fn end_recording(&mut self) -> Option<std::io::Result<()>> {
        self.recorder.take().map(Recorder::finish)
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn status(&self) -> Status {
        self.engine.status()
    }

    /// The array as clients may attach to it.
    pub fn export(&self) -> Export {
        let status = self.status();
        let serving = matches!(status.state, ArrayState::Healthy | ArrayState::Degraded);
        Export {
            name: status.name,
            description: String::new(),
            size_bytes: status.size_bytes,
            logical_block: status.logical_block,
            preferred_block: PREFERRED_BLOCK,
            read_only: status.read_only,
            serving,
        }
    }

    /// What a byte range of the array is like; see [`crate::front::Link::map`].
    pub fn map(&self, offset: u64, bytes: u64, max: usize) -> Vec<MapExtent> {
        let _ = max;
        let (first, end) = (
            offset / SECTOR_BYTES,
            (offset + bytes).div_ceil(SECTOR_BYTES),
        );
        vec![MapExtent {
            lba: first,
            sectors: end - first,
            hole: false,
            health: Health::Healthy,
        }]
    }

    pub fn member_name(&self, member: Member) -> Option<&str> {
        self.members
            .get(usize::from(member.0))
            .map(|place| &*place.name)
    }

    /// Every device ever opened, in the order of their numbers, with whether it is still open.
    pub fn member_names(&self) -> impl Iterator<Item = (&str, bool)> {
        self.members
            .iter()
            .map(|place| (&*place.name, place.device.is_some() && !place.closing))
    }

    // --------------------------------------------------------------------------------------------------- events in

    pub fn request(&mut self, request: Request) {
        self.requests.push_back(request);
    }

    pub fn command(&mut self, tag: CommandTag, command: Command) {
        self.inbox.push_back(Event::Command(tag, command));
    }

    /// Takes a device in while the array runs, and tells its number.
    pub fn arrive(&mut self, member: OpenMember) -> Member {
        let number =
            Member(u16::try_from(self.members.len()).expect("operators do not add 65,536 devices"));
        let info: MemberInfo = member.info;
        self.members.push(Place::new(member));
        self.inbox.push_back(Event::Arrived(info));
        number
    }

    /// Closes a device once its operations are back. From now on it is gone to the engine.
    pub fn close(&mut self, member: Member) {
        if let Some(place) = self.members.get_mut(usize::from(member.0)) {
            place.closing = true;
            place.close_if_idle();
        }
    }

    /// When the engine wants to be told the time.
    pub fn wake(&self) -> Option<Nanos> {
        self.wake
    }

    /// Device operations in flight.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Completions that wait to be released, in the order in which they came.
    pub fn held(&self) -> &[Event] {
        &self.held
    }

    /// Lets one held completion through to the engine.
    pub fn release(&mut self, index: usize) {
        let event = self.held.remove(index);
        self.inbox.push_back(event);
    }

    // ------------------------------------------------------------------------------------------------------- steps

    /// Tells the engine everything there is to tell, and carries out what it wants, until both are quiet.
    pub fn settle(&mut self, now: Nanos, world: &mut World<'_>) {
        if self.wake.is_some_and(|time| time <= now) {
            self.wake = None;
            self.inbox.push_back(Event::Timer);
        }
        loop {
            while let Some(event) = self.next_event() {
                self.stirred = true;
                self.step(now, event, world);
            }
            if !self.stirred {
                return;
            }
            self.stirred = false;
            self.step(now, Event::Turn, world);
        }
    }

    fn next_event(&mut self) -> Option<Event> {
        if let Some(event) = self.inbox.pop_front() {
            return Some(event);
        }
        if self.requests.is_empty() || !self.engine.ready() {
            return None;
        }
        self.requests.pop_front().map(Event::Request)
    }

    fn step(&mut self, now: Nanos, event: Event, world: &mut World<'_>) {
        if let Some(recorder) = &mut self.recorder {
            recorder.event(now, &event);
        }
        let mut actions = std::mem::take(&mut self.actions);
        self.engine.handle(now, event, &mut actions);
        if let Some(recorder) = &mut self.recorder {
            recorder.actions(&actions);
        }
        for action in actions.drain(..) {
            self.act(now, action, world);
        }
        self.actions = actions;
    }

    fn act(&mut self, now: Nanos, action: Action, world: &mut World<'_>) {
        match action {
            Action::Device(io) => self.start(io, world),
            Action::Compute(compute) => {
                let verdict = compute::perform(&compute, &handles(&mut self.pool, world));
                self.finish(Event::Compute(compute, verdict));
            }
            Action::Reply(tag, result) => self.outcomes.push(Outcome::Reply(tag, result)),
            Action::Detach(tag) => self.detach(tag, world),
            Action::Wake(time) => self.wake = Some(time),
            Action::CommandReply(tag, result) => {
                self.outcomes.push(Outcome::CommandReply(tag, result))
            }
            Action::Fact(fact) => self.outcomes.push(Outcome::Fact(now, fact)),
        }
    }

    fn finish(&mut self, event: Event) {
        match self.delivery {
            Delivery::Prompt => self.inbox.push_back(event),
            Delivery::Held => self.held.push(event),
        }
    }

    // ------------------------------------------------------------------------------------------- device operations

    fn start(&mut self, mut io: Box<DeviceIo>, world: &mut World<'_>) {
        let place = self
            .members
            .get_mut(usize::from(io.member.0))
            .filter(|place| !place.closing);
        match place.and_then(|place| place.device.as_mut()) {
            None => self.finish(Event::Device(io, Err(IoError::Gone))),
            Some(Device::Ram(ram)) => {
                let result = ram.perform(&mut io, &handles(&mut self.pool, world));
                self.finish(Event::Device(io, result));
            }
            Some(Device::File(_)) => self.take_off(io, world),
            Some(Device::Nbd(_)) => self.take_off_remote(io, world),
        }
    }

    fn take_off(&mut self, io: Box<DeviceIo>, world: &mut World<'_>) {
        let member = usize::from(io.member.0);
        self.members[member].flights += 1;
        let index = self.flights.insert(Flight::new(io));
        let flight = self.flights.get_mut(index).expect("just made");
        let Some(Device::File(device)) = &self.members[member].device else {
            unreachable!("the caller looked")
        };
        let progress = flight.start(device, &handles(&mut self.pool, world), &mut self.scratch);
        self.progress(index, progress, world);
    }

    /// A kernel operation of this host is back.
    pub fn completed(&mut self, flight: u32, done: Completion, world: &mut World<'_>) {
        let airborne = self.flights.get_mut(flight).expect("a flight ends once");
        let member = usize::from(airborne.io.member.0);
        let Some(Device::File(device)) = &mut self.members[member].device else {
            unreachable!("a device stays open while operations on it are in flight")
        };
        let progress = airborne.go_on(device, done.result, done.pieces, &mut self.scratch);
        self.progress(flight, progress, world);
    }

    fn progress(&mut self, flight: u32, progress: Progress, world: &mut World<'_>) {
        match progress {
            Progress::Submit(op) => world.backend.submit(self.token(flight), op),
            Progress::Done(result) => self.land(flight, result, world),
        }
    }

    fn token(&self, flight: u32) -> Token {
        Owner::Device {
            host: self.index,
            flight,
        }
        .token()
    }

    fn land(&mut self, flight: u32, result: Result<(), IoError>, world: &mut World<'_>) {
        let landed = self.flights.remove(flight).expect("a flight ends once");
        let io = landed.land(result, &handles(&mut self.pool, world), &mut self.scratch);
        let place = &mut self.members[usize::from(io.member.0)];
        place.flights -= 1;
        place.close_if_idle();
        self.finish(Event::Device(io, result));
    }

    fn take_off_remote(&mut self, io: Box<DeviceIo>, world: &mut World<'_>) {
        let member = io.member;
        let place = &mut self.members[usize::from(member.0)];
        place.flights += 1;
        let index = self.flights.insert(Flight::new(io));
        let flight = self.flights.get_mut(index).expect("just made");
        let pieces = flight.gather(&handles(&mut self.pool, world), &mut self.scratch);
        if let Some(Device::Nbd(device)) = &mut place.device {
            device.start(index, &flight.io, pieces);
        }
        self.tend_remote(u32::from(member.0), world);
    }

    /// A send or receive of a remote member is back.
    pub fn remote_completed(
        &mut self,
        member: u32,
        sent: bool,
        done: Completion,
        world: &mut World<'_>,
    ) {
        let Some(Device::Nbd(device)) = &mut self.members[member as usize].device else {
            unreachable!("a device stays open while operations on it are in flight")
        };
        if !sent {
            device.received(done.result);
        } else if let Some(pieces) = device.sent(done.result, done.pieces) {
            let token = Owner::Remote {
                host: self.index,
                member,
                sent: true,
            }
            .token();
            world.backend.submit(
                token,
                Op::Send {
                    stream: device.output(),
                    pieces,
                },
            );
        }
        self.tend_remote(member, world);
    }

    /// Sends and receives what a remote member has to, and lands what is done.
    fn tend_remote(&mut self, member: u32, world: &mut World<'_>) {
        let place = &mut self.members[member as usize];
        let Some(Device::Nbd(device)) = &mut place.device else {
            return;
        };
        let token = |sent| {
            Owner::Remote {
                host: self.index,
                member,
                sent,
            }
            .token()
        };
        if let Some(pieces) = device.next_send() {
            world.backend.submit(
                token(true),
                Op::Send {
                    stream: device.output(),
                    pieces,
                },
            );
        }
        if let Some(pieces) = device.next_receive() {
            world.backend.submit(
                token(false),
                Op::Receive {
                    stream: device.input(),
                    pieces,
                },
            );
        }
        let mut done = Vec::new();
        device.take_done(&mut done);
        if device.broken() && !place.departed {
            place.departed = true;
            self.inbox.push_back(Event::Departed(Member(member as u16)));
        }
        for (flight, result) in done {
            self.land(flight, result, world);
        }
        self.members[member as usize].close_if_idle();
    }

    /// Gives an operation its memory for good. Other reads in flight into the same handles go on into the old memory
    /// too, so their data is brought over when they land.
    fn detach(&mut self, tag: Tag, world: &mut World<'_>) {
        let Some(index) = self
            .flights
            .iter()
            .find(|(_, flight)| flight.io.tag == tag)
            .map(|(index, _)| index)
        else {
            return;
        };
        let flight = self.flights.get_mut(index).expect("just found");
        flight.detached = true;
        let bufs = bufs_of(&flight.io);
        let mut handles = handles(&mut self.pool, world);
        for buf in bufs {
            redirect(&mut self.flights, buf, &handles);
            handles.renew(buf);
        }
    }
}

impl Place {
    fn new(member: OpenMember) -> Place {
        Place {
            name: member.name,
            device: Some(member.device),
            flights: 0,
            closing: false,
            departed: false,
        }
    }

    fn close_if_idle(&mut self) {
        if !self.closing || self.flights > 0 {
            return;
        }
        if let Some(Device::Nbd(device)) = &mut self.device {
            device.hang_up();
            if !device.idle() {
                return;
            }
        }
        self.device = None;
    }
}

fn handles<'a>(pool: &'a mut PoolMemory, world: &'a mut World<'_>) -> Handles<'a> {
    Handles {
        pool,
        users: world.users,
    }
}

/// The handles that an operation names, each once.
fn bufs_of(io: &DeviceIo) -> Vec<Buf> {
    let mut bufs: Vec<Buf> = io
        .segments
        .iter()
        .filter_map(|segment| match segment {
            Segment::Buf(part) => Some(part.buf),
            Segment::Page(_) | Segment::Zero(_) => None,
        })
        .collect();
    bufs.sort_unstable();
    bufs.dedup();
    bufs
}

/// Notes for every read in flight into `buf` which memory it really fills.
fn redirect(flights: &mut Slab<Flight>, buf: Buf, handles: &Handles<'_>) {
    for (_, flight) in flights.iter_mut() {
        if flight.io.op != IoOp::Read || flight.detached {
            continue;
        }
        for segment in &flight.io.segments {
            if let Segment::Buf(part) = segment
                && part.buf == buf
                && !flight.redirects.iter().any(|(known, _)| known == part)
            {
                flight.redirects.push((*part, handles.memory(buf).clone()));
            }
        }
    }
}
