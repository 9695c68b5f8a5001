//! One engine with its members: delivers events, carries out actions.
//!
//! ```text
//! tell(event), request(...)  -> inbox
//! settle(now)                   inbox -> engine -> actions -> inbox ..., then Turn, until nothing is left to tell
//! completed(...)                a kernel operation is back -> inbox (or another kernel operation)
//! ```
//!
//! A host does not wait and does not look at a clock. What leaves it upwards (replies, answers, facts)
//! gathers in [`Outcome`]s for the shell to take.

mod exchange;
pub mod lanes;
mod view;
/// Whether clients are offered an export that cannot be written. One without space may have room again by the next write, which
/// tries.
fn refuses_for_good(status: &Status) -> bool {
    let no_space = |one: &Refusal| one.why == WhyRefused::NoSpace;
    status.read_only && !status.refusal.as_ref().is_some_and(no_space)
}

fn row_bytes(status: &Status) -> u64 {
    let layout = status.geometry.map(Layout::new);
    layout.map_or(0, |layout| {
        layout.map_or(0, |layout| layout.row_sectors() * SECTOR_BYTES)
    })
}

#[cfg(test)]
mod tests;

pub use exchange::Exchange;

use crate::backend::{Backend, Completion, Haste};
use crate::compute;
use crate::fleet::{Fleet, Operations, WatchLimits};
use crate::front::{BUFFER_BYTES_MAX, Export};
use crate::member::OpenMember;
use crate::memory::{Handles, PoolMemory, UserMemory};
use crate::nbd_wire::beneath::describe;
use crate::record::Recorder;
use lanes::{LOCAL, Lanes, USERS};
use restripe_array::layout::Layout;
use restripe_array::report::{
    ArrayState, MapExtent, MemberState, MemberStatus, Refusal, WhyRefused,
};
use restripe_array::{
    Action, Actions, Command, CommandError, CommandTag, DeviceIo, Event, Fact, Member, Nanos,
    Request, RequestError, RequestTag, SECTOR_BYTES, Uuid,
};
use restripe_tier::report::Status;
use restripe_tier::{Config, Engine};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use view::View;

/// What a host needs of its surroundings while it works.
pub struct World<'a> {
    pub backend: &'a mut dyn Backend,
    pub users: &'a mut UserMemory,
}

impl<'a> World<'a> {
    pub fn new(backend: &'a mut dyn Backend, users: &'a mut UserMemory) -> World<'a> {
        World { backend, users }
    }
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

/// Replies to requests of so many bytes are sent before further requests are looked at.
const BYTES_AT_ONCE: u64 = 512 * 1024;

/// When completions reach the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Delivery {
    #[default]
    Prompt,
    /// They wait in [`Host::held`] until released: a test chooses their order.
    Held,
}

pub struct Host {
    /// Of this engine, and every device that came since.
    config: Config,
    engine: Engine,
    pool: PoolMemory,
    fleet: Fleet,
    /// Operations that are started together at the end of a step or several.
    joining: Operations,
    inbox: VecDeque<Event>,
    requests: Lanes,
    actions: Actions,
    wake: Option<Nanos>,
    delivery: Delivery,
    held: Vec<Event>,
    /// Something was told since the last turn.
    stirred: bool,
    pub outcomes: Vec<Outcome>,
    recorder: Option<Recorder>,
    /// While requests wait for another engine: how the array is shown.
    held_as: Option<Export>,
    view: View,
}

impl Host {
    /// `index` tells this host's operations from others' on the same backend.
    /// `config` is the one of these members. An error if there is not the memory that its limits ask for.
    pub fn new(index: u8, members: Vec<OpenMember>, config: Config) -> io::Result<Host> {
        let pool = PoolMemory::new(config.limits.pool)?;
        let places = config.limits.requests;
        let engine = Engine::new(config.clone());
        Ok(Host {
            config,
            engine,
            pool,
            fleet: Fleet::new(index, members),
            joining: Operations::new(),
            inbox: VecDeque::new(),
            requests: Lanes::new(places),
            actions: Actions::new(),
            wake: None,
            delivery: Delivery::Prompt,
            held: Vec::new(),
            stirred: false,
            outcomes: Vec::new(),
            recorder: None,
            held_as: None,
            view: View::default(),
        })
    }

    pub fn deliver(&mut self, delivery: Delivery) {
        self.delivery = delivery;
    }

    pub fn record(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
    }

    /// Ends a recording; its outcome is whether all of it was written.
    pub fn end_recording(&mut self) -> Option<io::Result<()>> {
        self.recorder.take().map(Recorder::finish)
    }

    /// Nobody waits any more for what is in flight.
    pub fn leave(&self) {
        self.fleet.hastes().for_each(Haste::leave);
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn status(&self) -> Status {
        self.engine.status()
    }

    /// The array as clients may attach to it.
    pub fn export(&self) -> Export {
        if let Some(held_as) = &self.held_as {
            return held_as.clone();
        }
        let status = self.status();
        // A failed array still gives what can be read.
        let serving = matches!(
            status.state,
            ArrayState::Healthy | ArrayState::Degraded | ArrayState::Failed
        );
        let durable = self.is_durable(&status);
        let read_only = refuses_for_good(&status);
        Export {
            uuid: status.uuid,
            description: describe("", &self.beneath(status.uuid)),
            size_bytes: status.size_bytes,
            logical_block: status.logical_block,
            minimum_block: match status.surrogate {
                Some(_) => SECTOR_BYTES as u32,
                None => 1,
            },
            preferred_block: PREFERRED_BLOCK,
            row_bytes: row_bytes(&status),
            maximum_block: BUFFER_BYTES_MAX,
            exclusive: false,
            busy: false,
            read_only,
            durable,
            serving,
            name: status.set.name,
        }
    }

    /// The same, which may be 100 ms old: for every small command.
    pub fn view(&self) -> Arc<Export> {
        self.view.get(|| self.export())
    }

    /// The array and all that lie beneath its members, each once.
    fn beneath(&self, own: Uuid) -> Vec<Uuid> {
        let mut arrays = vec![own];
        for array in self.fleet.beneath() {
            if !arrays.contains(&array) {
                arrays.push(array);
            }
        }
        arrays
    }

    /// A device that has arrived counts from then on: nothing is promised while it is being taken in.
    fn is_durable(&self, status: &Status) -> bool {
        let arrives = |one: &MemberStatus| {
            one.volatile && one.state == MemberState::Foreign && self.fleet.is_open(one.member)
        };
        status.is_durable() && !status.all_members().any(arrives)
    }

    /// What a byte range of the array is like; see [`crate::front::Link::map`].
    pub fn map(&self, offset: u64, bytes: u64, max: usize) -> Vec<MapExtent> {
        let first = offset / SECTOR_BYTES;
        let end = (offset + bytes).div_ceil(SECTOR_BYTES);
        if let Some(held) = self.map_while_held(first, end) {
            return held;
        }
        let mut extents = Vec::new();
        self.engine.map(first, end - first, max, &mut extents);
        extents
    }

    pub fn member_name(&self, member: Member) -> Option<&str> {
        self.fleet.name(member)
    }

    /// Every device ever opened, in the order of their numbers, with whether it is still open.
    pub fn member_names(&self) -> impl Iterator<Item = (&str, bool)> {
        self.fleet.names()
    }

    // --------------------------------------------------------------------------------------------------- events in

    /// A request of this process, among the array's users.
    pub fn request(&mut self, request: Request) {
        self.request_in(USERS, LOCAL, request);
    }

    /// A request of one client; its tag is an index of a list, and no other request's.
    pub fn request_in(&mut self, lane: u32, client: u32, request: Request) {
        self.requests.push(lane, client, request);
    }

    /// The lanes of requests: for whoever opens and closes those of leases.
    pub fn lanes(&mut self) -> &mut Lanes {
        &mut self.requests
    }

    /// Whether nothing is under way in lanes that were closed.
    pub fn lanes_closed_are_idle(&self) -> bool {
        self.requests.closed_are_idle()
    }

    pub fn lane_is_idle(&self, lane: u32) -> bool {
        self.requests.idle(lane)
    }

    pub fn command(&mut self, tag: CommandTag, command: Command) {
        if command == Command::Stop {
            // Spindles that are being told to stand still are wanted now.
            self.fleet.hastes().for_each(Haste::stop);
        }
        self.inbox.push_back(Event::Command(tag, command));
    }

    /// Takes a device in while the array runs, and tells its number.
    pub fn arrive(&mut self, member: OpenMember) -> Member {
        self.view.forget();
        self.inbox.push_back(Event::Arrived(member.info));
        self.config.members.push(member.info);
        self.fleet.arrive(member)
    }

    /// Closes a device once its operations are back. From now on it is gone to the engine.
    pub fn close(&mut self, member: Member) {
        self.view.forget();
        self.fleet.close(member);
    }

    /// Has idle remote members asked whether they are there.
    pub fn watch(&mut self, limits: WatchLimits) {
        self.fleet.watch(limits);
    }

    /// When they are to be looked at.
    pub fn next_look(&self) -> Option<Nanos> {
        self.fleet.next_look()
    }

    pub fn look(&mut self, now: Nanos, world: &mut World<'_>) {
        let handles = handles(&mut self.pool, world.users);
        self.fleet.look(now, &handles, world.backend);
        self.landed();
    }

    /// When the engine wants to be told the time.
    pub fn wake(&self) -> Option<Nanos> {
        self.wake
    }

    /// Device operations in flight.
    pub fn in_flight(&self) -> usize {
        self.fleet.in_flight()
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

    /// Puts a pause of the shell first among the engine's events.
    pub fn paused(&mut self, time: Nanos) {
        self.inbox.push_front(Event::Paused(time));
    }

    // ------------------------------------------------------------------------------------------------------- steps

    /// A turn begins: what was seen too long ago is found out anew.
    pub(crate) fn begin_turn(&mut self, now: Nanos) {
        self.view.age(now);
    }

    /// Tells the engine everything there is to tell, and carries out what it wants, until both are quiet, `steps` are
    /// used up, or replies with much data are worth sending first.
    pub fn settle(&mut self, now: Nanos, steps: u32, world: &mut World<'_>) {
        self.handle_events(now, steps, world);
        self.start_joined(world);
    }

    fn handle_events(&mut self, now: Nanos, mut steps: u32, world: &mut World<'_>) {
        let mut bytes = 0;
        if self.wake.is_some_and(|time| time <= now) {
            self.wake = None;
            self.inbox.push_back(Event::Timer);
        }
        loop {
            while let Some(event) = self.next_event() {
                self.stirred = true;
                if let Event::Request(request) = &event {
                    bytes += request.bytes;
                }
                self.step(now, event, world);
                steps -= 1;
                if steps == 0 || (bytes > BYTES_AT_ONCE && !self.outcomes.is_empty()) {
                    return;
                }
            }
            if !self.stirred {
                return;
            }
            self.stirred = false;
            self.step(now, Event::Turn, world);
        }
    }

    /// Whether there is something to tell right now.
    pub fn busy(&self) -> bool {
        self.stirred || !self.inbox.is_empty() || self.takes_requests()
    }

    fn next_event(&mut self) -> Option<Event> {
        if let Some(event) = self.inbox.pop_front() {
            return Some(event);
        }
        if !self.takes_requests() {
            return None;
        }
        let engine = &self.engine;
        let request = self.requests.take(|request| engine.piece(request));
        request.map(Event::Request)
    }

    fn takes_requests(&self) -> bool {
        self.held_as.is_none() && self.engine.ready() && self.requests.ready()
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
        if matches!(
            action,
            Action::CommandReply(..) | Action::Fact(_) | Action::Reply(_, Err(_))
        ) {
            self.view.forget();
        }
        match action {
            Action::Device(io) => self.start(io, world),
            Action::Compute(mut compute) => {
                let verdict = compute::perform(&mut compute, &handles(&mut self.pool, world.users));
                self.finish(Event::Compute(compute, verdict));
            }
            Action::Reply(tag, result) => {
                if let Some(result) = self.requests.ended(tag, result) {
                    self.outcomes.push(Outcome::Reply(tag, result));
                }
            }
            Action::Detach(tag) => {
                self.start_joined(world);
                let mut handles = handles(&mut self.pool, world.users);
                self.fleet.detach(tag, &mut handles);
            }
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

    fn start(&mut self, io: Box<DeviceIo>, world: &mut World<'_>) {
        if self.fleet.joins(&io) {
            return self.joining.push(io);
        }
        let handles = handles(&mut self.pool, world.users);
        self.fleet.start(io, &handles, world.backend);
        self.landed();
    }

    /// Starts what may be joined: a request to many rows is many operations.
    fn start_joined(&mut self, world: &mut World<'_>) {
        if !self.joining.is_empty() {
            let handles = handles(&mut self.pool, world.users);
            let ios = &mut self.joining;
            self.fleet.start_joined(ios, &handles, world.backend);
            self.landed();
        }
    }

    /// A kernel operation of this host is back.
    pub fn completed(&mut self, flight: u32, done: Completion, world: &mut World<'_>) {
        let handles = handles(&mut self.pool, world.users);
        self.fleet.completed(flight, done, &handles, world.backend);
        self.landed();
    }

    /// A send or receive of a remote member is back.
    pub fn remote_completed(
        &mut self,
        member: u32,
        sent: bool,
        done: Completion,
        world: &mut World<'_>,
    ) {
        let handles = handles(&mut self.pool, world.users);
        self.fleet
            .remote_completed(member, sent, done, &handles, world.backend);
        self.landed();
    }

    fn landed(&mut self) {
        for member in self.fleet.departed.drain(..) {
            self.inbox.push_back(Event::Departed(member));
        }
        for (io, result) in self.fleet.landed.drain(..) {
            let event = Event::Device(io, result);
            match self.delivery {
                Delivery::Prompt => self.inbox.push_back(event),
                Delivery::Held => self.held.push(event),
            }
        }
    }
}

fn handles<'a>(pool: &'a mut PoolMemory, users: &'a mut UserMemory) -> Handles<'a> {
    Handles { pool, users }
}
