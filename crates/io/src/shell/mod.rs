//! The reactor: one thread that owns the arrays, their members, their memory and the connections.
//!
//! A turn: end the sessions that were closed; take what the kernel gave back and what other threads ask for;
//! tell the engines; carry out what they want until all are quiet; send and receive; sleep until the next
//! completion, call or timer. The clock is read once a turn.

mod admission;
mod borrowers;
mod calls;
mod clock;
mod handshakes;
mod leases;
mod requests;
#[cfg(test)]
mod tests;

use crate::backend::{self, Backend, BackendChoice, Completion, Op};
use crate::fleet::WatchLimits;
use crate::front::connection::{Attached, Catalogue, Connection, Surroundings};
use crate::front::listen::{Listener, Wire};
use crate::front::watches::Watching;
use crate::front::{Ask, DriverCommand, Export, Nudge};
use crate::host::{Host, Outcome, World};
use crate::member::OpenMember;
use crate::memory::{USER_BYTES_MAX, UserMemory};
use crate::record::Recorder;
use crate::remote::{Call, ProtocolMaker, Remote};
use crate::tokens::Owner;
use admission::{CONNECTIONS_MAX, Places};
use calls::Answers;
use clock::Clock;
use handshakes::Handshakes;
use leases::Exposed;
pub use leases::{BorrowerIs, EXPORT_PREFIX, LeaseUse, export_name};
use requests::{LocalWait, Pending};
use restripe_array::Slab;
use restripe_array::report::MapExtent;
use restripe_array::{BufRef, CommandError, Limits, Nanos, RequestError, RequestTag};
use restripe_tier::{Config, SurrogateConfig};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two looks at whether the reactor has ended.
const LOOK_AFTER: Duration = Duration::from_millis(2);
/// How often peers are looked at for whether they still move.
const PATIENCE_SCAN: Nanos = Nanos::from_secs(1);
/// Events told to one engine before the next has its turn, and how often they have it before the clients
/// do: a task on members in memory must not keep anyone waiting.
const STEPS_A_ROUND: u32 = 1024;
const ROUNDS_A_TURN: u32 = 16;
/// Unsent bytes from which a reply is sent within the turn: the client can take them while we go on.
const SEND_EARLY_BYTES: u64 = 256 * 1024;
/// After running out of descriptors, accepting rests this long.
const ACCEPT_REST: Nanos = Nanos::from_millis(100);
/// Arrays of one reactor: what a token's owner can tell apart.
const ARRAYS_MAX: usize = 255;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShellOptions {
    pub backend: BackendChoice,
    /// Bytes for users' requests, over all connections. Never less than one largest request has.
    pub memory: u64,
}

impl Default for ShellOptions {
    fn default() -> ShellOptions {
        ShellOptions {
            backend: BackendChoice::Automatic,
            memory: 256 << 20,
        }
    }
}

/// An array to host.
pub struct ArraySpec {
    pub members: Vec<OpenMember>,
    pub limits: Limits,
    /// The last of the members are a surrogate of the others.
    pub surrogate: Option<SurrogateConfig>,
    /// A device operation that takes longer fails its member.
    pub io_timeout: Nanos,
    /// A remote member that has been idle for so long is asked whether it is there.
    pub probe: Nanos,
    /// Where to record the run.
    pub record: Option<PathBuf>,
}

struct Listening {
    listener: Listener,
    protocol: ProtocolMaker,
    /// Accepting is paused until then,
    rests_until: Option<Nanos>,
    /// or until there is a place.
    crowded: bool,
}

pub struct Shell {
    backend: Box<dyn Backend>,
    users: UserMemory,
    hosts: Vec<Host>,
    connections: Slab<Connection>,
    listeners: Slab<Listening>,
    pending: Slab<Pending>,
    local_waiting: VecDeque<LocalWait>,
    /// Connections that wait for memory, the first first.
    starved: VecDeque<u32>,
    /// Connections whose handshake of TLS goes on.
    handshakes: Handshakes,
    /// Borrowers that wait for their own.
    starved_borrowers: Vec<u32>,
    /// The leases of all arrays.
    exposed: Vec<Exposed>,
    /// Leases to be looked at for who borrows them.
    looks_due: VecDeque<usize>,
    /// Who has taken a lease back to which requests are still under way.
    taken_back: Vec<(usize, Sender<Result<(), CommandError>>)>,
    /// Requests that reached no engine, to be answered.
    refused: Vec<(RequestTag, RequestError)>,
    /// Peers that found the table full, or their places taken.
    turned_away: u64,
    /// Connections to look after at the end of the turn.
    dirty: Vec<u32>,
    asks: Vec<Ask>,
    /// What connections did to one another in this round.
    nudges: Vec<(u32, Nudge)>,
    outcomes: Vec<(usize, Outcome)>,
    release: Vec<BufRef>,
    done: Vec<Completion>,
    answers: Answers,
    remote: Remote,
    calls: Receiver<Call>,
    clock: Clock,
    /// The last turn left nothing to do at once.
    quiet: bool,
    /// What the last wait was allowed.
    waited: Option<Duration>,
    now: Nanos,
    next_scan: Nanos,
}

/// A reactor on a thread of its own.
pub struct Running {
    pub remote: Remote,
    thread: JoinHandle<io::Result<()>>,
}

impl Running {
    /// Waits for the reactor's end, for as long as its members do something at least once in `patience`.
    /// `None`: they do not, and the reactor is left as it is.
    pub fn join_moving(self, patience: Duration) -> Option<io::Result<()>> {
        let mut seen = None;
        let mut since = Instant::now();
        while !self.thread.is_finished() && since.elapsed() < patience {
            std::thread::sleep(LOOK_AFTER);
            if since.elapsed() < patience / 4 {
                continue;
            }
            let now = self.remote.progress(patience / 4);
            if now.is_some() && now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
        self.thread.is_finished().then(|| self.join())
    }

    /// Waits for the reactor's end.
    pub fn join(self) -> io::Result<()> {
        self.thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the reactor's thread panicked")))
    }
}

impl Shell {
    /// A reactor for this thread.
    pub fn new(options: ShellOptions) -> io::Result<Shell> {
        let backend = backend::open(options.backend)?;
        let (sender, calls) = mpsc::channel();
        let remote = Remote {
            calls: sender,
            waker: backend.waker(),
        };
        Ok(Shell {
            backend,
            users: UserMemory::new(options.memory.max(u64::from(USER_BYTES_MAX))),
            hosts: Vec::new(),
            connections: Slab::default(),
            listeners: Slab::default(),
            pending: Slab::default(),
            local_waiting: VecDeque::new(),
            starved: VecDeque::new(),
            handshakes: Handshakes::default(),
            starved_borrowers: Vec::new(),
            exposed: Vec::new(),
            looks_due: VecDeque::new(),
            taken_back: Vec::new(),
            refused: Vec::new(),
            turned_away: 0,
            dirty: Vec::new(),
            asks: Vec::new(),
            nudges: Vec::new(),
            outcomes: Vec::new(),
            release: Vec::new(),
            done: Vec::new(),
            answers: Answers::default(),
            remote,
            calls,
            clock: Clock::new(),
            quiet: true,
            waited: Some(Duration::ZERO),
            now: Nanos::ZERO,
            next_scan: Nanos::ZERO,
        })
    }

    /// Runs a reactor on a new thread; `prepare` gives it its arrays there.
    pub fn spawn(
        options: ShellOptions,
        prepare: impl FnOnce(&mut Shell) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Running> {
        let (sender, ready) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("reactor".to_owned())
            .spawn(move || {
                let prepared =
                    Shell::new(options).and_then(|mut shell| prepare(&mut shell).map(|()| shell));
                match prepared {
                    Ok(mut shell) => {
                        // If nobody waits for it, nobody can reach the reactor either, and it ends at once.
                        let _ = sender.send(Ok(shell.remote()));
                        drop(sender);
                        shell.run()
                    }
                    Err(error) => {
                        let _ = sender.send(Err(error));
                        Ok(())
                    }
                }
            })?;
        let panicked = |_| io::Error::other("the reactor's thread panicked");
        let remote = ready.recv().map_err(panicked)??;
        Ok(Running { remote, thread })
    }

    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// Takes an array in and gives its index. It serves once it is told to start.
    pub fn host(&mut self, spec: ArraySpec) -> io::Result<usize> {
        assert!(self.exposed.is_empty(), "arrays come before any is started");
        let index = self.hosts.len();
        if index >= ARRAYS_MAX {
            return Err(io::Error::other("too many arrays for one reactor"));
        }
        let infos = spec.members.iter().map(|member| member.info).collect();
        let config = Config {
            members: infos,
            limits: spec.limits,
            surrogate: spec.surrogate,
            io_timeout: spec.io_timeout,
            bug: None,
        };
        let mut host = Host::new(index as u8, spec.members, config.clone())?;
        host.watch(WatchLimits {
            interval: spec.probe,
            patience: spec.io_timeout,
        });
        if let Some(path) = spec.record {
            host.record(Recorder::create(&path, &config)?);
        }
        self.hosts.push(host);
        Ok(index)
    }

    /// Turns until told to shut down.
    pub fn run(&mut self) -> io::Result<()> {
        let outcome = self.turns();
        self.hosts.iter().for_each(Host::leave);
        outcome
    }

    fn turns(&mut self) -> io::Result<()> {
        loop {
            self.turn()?;
            // Looked at before waiting: after the end nothing may come any more that would end the wait.
            if self.answers.ended() {
                return self.end();
            }
            self.wait()?;
        }
    }

    fn end(&mut self) -> io::Result<()> {
        let mut outcome = Ok(());
        for host in &mut self.hosts {
            outcome = outcome.and(host.end_recording().unwrap_or(Ok(())));
        }
        outcome
    }

    fn turn(&mut self) -> io::Result<()> {
        self.now = self.look_at_clock(self.waited);
        let mut wakes = self.hosts.iter().filter_map(Host::wake);
        if wakes.any(|time| time <= self.now) {
            // A time-out must not be noticed before the completion that was there in time.
            self.backend.wait(Some(Duration::ZERO), &mut self.done)?;
        }
        let now = self.now;
        self.hosts.iter_mut().for_each(|host| host.begin_turn(now));
        end_closed(self);
        let mut done = std::mem::take(&mut self.done);
        done.drain(..)
            .for_each(|completion| self.completed(completion));
        self.done = done;
        while let Ok(call) = self.calls.try_recv() {
            self.call(call);
        }
        shake_hands(self);
        self.look_at_members();
        self.settle();
        self.tend();
        Ok(())
    }

    /// The time now, after a wait like this one. Reports a gap to the engines.
    fn look_at_clock(&mut self, waited: Option<Duration>) -> Nanos {
        let (now, gap) = self.clock.look(waited);
        if let Some(gap) = gap {
            self.hosts.iter_mut().for_each(|host| host.paused(gap));
        }
        now
    }

    fn look_at_members(&mut self) {
        for host in &mut self.hosts {
            if host.next_look().is_some_and(|time| time <= self.now) {
                let mut world = World::new(&mut *self.backend, &mut self.users);
                host.look(self.now, &mut world);
            }
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        let now = self.look_at_clock(Some(Duration::ZERO));
        self.waited = match !self.quiet || self.hosts.iter().any(Host::busy) {
            true => Some(Duration::ZERO),
            false => self
                .next_time()
                .map(|time| Duration::from_nanos(time.since(now).0)),
        };
        self.backend.wait(self.waited, &mut self.done)
    }

    /// When something is to be done even if nothing happens.
    fn next_time(&self) -> Option<Nanos> {
        let wakes = self.hosts.iter().filter_map(Host::wake);
        let looks = self.hosts.iter().filter_map(Host::next_look);
        let scan = (!self.connections.is_empty()).then_some(self.next_scan);
        let listeners = self.listeners.iter();
        let rests = listeners.filter_map(|(_, listening)| listening.rests_until);
        let handshake = self.handshakes.due();
        let times = wakes.chain(looks).chain(scan).chain(rests);
        times.chain(handshake).min()
    }

    fn completed(&mut self, done: Completion) {
        match Owner::of(done.token) {
            Owner::Device { host, flight } => {
                let mut world = World::new(&mut *self.backend, &mut self.users);
                self.hosts[usize::from(host)].completed(flight, done, &mut world);
            }
            Owner::Remote { host, member, sent } => {
                let mut world = World::new(&mut *self.backend, &mut self.users);
                self.hosts[usize::from(host)].remote_completed(member, sent, done, &mut world);
            }
            Owner::Accept { listener } => self.accepted(listener, done.result),
            Owner::Receive { connection } => {
                self.with(connection, |c, around| c.received(done.result, around))
            }
            Owner::Send { connection } => self.sent(connection, done),
            Owner::Command { connection, slot } => self.with(connection, |c, around| {
                c.commanded(slot, done.result, around);
            }),
            Owner::Watch { connection, watch } => {
                self.with(connection, |c, around| c.watched(watch, around))
            }
        }
    }

    /// Tells the engines what there is to tell until they want nothing more at once, or the turn has been
    /// long enough.
    fn settle(&mut self) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        for _ in 0..ROUNDS_A_TURN {
            for (index, host) in self.hosts.iter_mut().enumerate() {
                let mut world = World::new(&mut *self.backend, &mut self.users);
                host.settle(self.now, STEPS_A_ROUND, &mut world);
                outcomes.extend(host.outcomes.drain(..).map(|outcome| (index, outcome)));
            }
            let mut stirred = self.feed_starved();
            stirred |= self.feed_borrowers();
            stirred |= self.answer_refused();
            for (number, how) in std::mem::take(&mut self.nudges) {
                if self.connections.get(number).is_some() {
                    self.with(number, |c, around| c.nudged(how, around));
                    stirred = true;
                }
            }
            stirred |= self.begin_looks();
            self.answer_taken_back();
            self.quiet = outcomes.is_empty() && !stirred;
            if self.quiet {
                break;
            }
            outcomes
                .drain(..)
                .for_each(|(array, outcome)| self.outcome(array, outcome));
        }
        self.outcomes = outcomes;
    }

    fn outcome(&mut self, array: usize, outcome: Outcome) {
        match outcome {
            Outcome::Reply(tag, result) => self.reply(tag, result),
            Outcome::CommandReply(tag, result) => {
                self.follow_leases(array);
                self.command_answered(tag, result);
            }
            Outcome::Fact(now, fact) => self.answers.fact(array, now, &fact),
        }
    }

    // -------------------------------------------------------------------------------------------------
    // connections

    fn adopt(&mut self, wire: Wire, protocol: &ProtocolMaker) {
        let protocol = protocol();
        if self.answers.stopping() {
            return;
        }
        let places = Places::of(&self.connections, self.leases());
        if !protocol.resends() && places.are_full() {
            self.turned_away += 1;
            let Some(number) = places.next_displaced() else {
                return;
            };
            if let Some(connection) = self.connections.get_mut(number) {
                connection.kill();
            }
            self.dirty.push(number);
        }
        if self.connections.is_empty() {
            // Later ones do not postpone it, however many come.
            self.next_scan = self.now.after(PATIENCE_SCAN);
        }
        let connection = Connection::new(wire, protocol, self.now);
        let number = self.connections.insert(connection);
        self.with(number, |c, around| c.opened(around));
    }

    /// Calls a connection with what it may use, and takes up the requests it makes.
    fn with<T>(
        &mut self,
        number: u32,
        call: impl FnOnce(&mut Connection, &mut Surroundings<'_>) -> T,
    ) -> T {
        self.with_memory(number, !self.starved.is_empty(), call)
    }

    fn with_memory<T>(
        &mut self,
        number: u32,
        memory_reserved: bool,
        call: impl FnOnce(&mut Connection, &mut Surroundings<'_>) -> T,
    ) -> T {
        let connection = self
            .connections
            .get_mut(number)
            .expect("a connection lives while anything of it is in flight");
        let mut around = Surroundings {
            now: self.now,
            users: &mut self.users,
            catalogue: &Shelf {
                hosts: &self.hosts,
                exposed: &self.exposed,
            },
            number,
            memory_reserved,
            asks: &mut self.asks,
            nudges: &mut self.nudges,
        };
        let before = connection.attached();
        let result = call(connection, &mut around);
        let (after, starved) = (connection.attached(), connection.starved());
        if starved && connection.is_borrowers() {
            self.starved_borrowers.push(number);
        } else if starved && !self.starved.contains(&number) {
            self.starved.push_back(number);
        }
        if connection.shakes_hands() {
            self.handshakes.join(number);
        }
        if let Some(attached) = after.filter(|_| before.is_none()) {
            self.attached(number, attached);
        }
        self.dirty.push(number);
        self.take_asks(number);
        result
    }

    /// A connection has attached to an export. Users leave those connections alone that are there for
    /// borrowers.
    fn attached(&mut self, number: u32, attached: Attached) {
        if attached.lease {
            return self.note_client(number, attached.export);
        }
        let users = |(_, one): &(u32, &Connection)| {
            !one.resends() && one.attached().is_some_and(|it| !it.lease)
        };
        if self.connections.iter().filter(users).count() > CONNECTIONS_MAX
            && let Some(connection) = self.connections.get_mut(number)
            && !connection.resends()
        {
            connection.kill();
        }
    }

    fn sent(&mut self, number: u32, done: Completion) {
        let mut release = std::mem::take(&mut self.release);
        let more = self.with(number, |c, around| {
            c.sent(done.result, done.pieces, &mut release, around)
        });
        self.release = release;
        if let Some(pieces) = more {
            self.send(number, pieces);
        }
    }

    fn send(&mut self, number: u32, pieces: Vec<crate::memory::Piece>) {
        let Some(connection) = self.connections.get(number) else {
            return;
        };
        let stream = connection.wire().output;
        let token = Owner::Send { connection: number }.token();
        self.backend.submit(token, Op::Send { stream, pieces });
    }

    /// Sends what gathered for a connection, if that is much.
    fn send_early(&mut self, number: u32) {
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        if connection.unsent() < SEND_EARLY_BYTES {
            return;
        }
        if let Some(pieces) = connection.next_send() {
            self.send(number, pieces);
        }
    }

    /// Gives memory to those who wait for it, in their order. Whether anyone got some.
    fn feed_starved(&mut self) -> bool {
        let mut fed = false;
        while let Some(&number) = self.starved.front() {
            let connection = self.connections.get(number);
            let waits = connection.is_some_and(Connection::starved);
            if waits && !self.with_memory(number, false, |c, around| c.retry_memory(around)) {
                break;
            }
            fed |= waits;
            self.starved.pop_front();
        }
        self.feed_local() || fed
    }

    /// Sends, receives and buries, for every connection that was called.
    fn tend(&mut self) {
        if self.now >= self.next_scan {
            self.scan_patience();
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.sort_unstable();
        dirty.dedup();
        dirty.drain(..).for_each(|number| self.tend_one(number));
        // What the end of a session has to do with others.
        self.quiet &= self.dirty.is_empty();
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
        self.accept_again();
    }

    fn tend_one(&mut self, number: u32) {
        command_driver(self, number);
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        if connection.turn_over() {
            self.nudges.push((number, Nudge::Wake));
            self.quiet = false;
        }
        if let Some(pieces) = connection.next_send() {
            self.send(number, pieces);
        }
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        while let Some(watching) = connection.next_watch() {
            let token = |watch| {
                Owner::Watch {
                    connection: number,
                    watch,
                }
                .token()
            };
            match watching {
                Watching::Begin(watch, fd) => self.backend.submit(token(watch), Op::Poll { fd }),
                Watching::End(watch) => self.backend.cancel(token(watch)),
            }
        }
        connection.finish_if_done();
        if let Some(pieces) = connection.next_receive(&self.users) {
            let stream = connection.wire().input;
            let token = Owner::Receive { connection: number }.token();
            self.backend.submit(token, Op::Receive { stream, pieces });
        }
        if connection.cut() {
            self.with(number, |c, around| c.end(around));
            self.drop_waiting(number);
        }
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        if connection.gone() {
            self.bury(number);
        } else if connection.dead() {
            // Ends of pipes cannot be shut, so what is in flight on them is called back.
            let connection = number;
            self.backend.cancel(Owner::Receive { connection }.token());
            self.backend.cancel(Owner::Send { connection }.token());
        }
    }

    /// Forgets a connection. Requests of it that are in flight keep their memory until they are answered.
    fn bury(&mut self, number: u32) {
        let in_use = self.orphan_requests(number);
        for buf in self.users.owned_by(number) {
            if !in_use.contains(&buf.buf) {
                self.users.release(buf);
            }
        }
        self.users.disown(number);
        self.forget_client(number);
        self.connections.remove(number);
        self.drop_waiting(number);
    }

    fn scan_patience(&mut self) {
        self.next_scan = self.now.after(PATIENCE_SCAN);
        let hurried = !self.starved.is_empty() || !self.local_waiting.is_empty();
        let sessions = self.connections.iter();
        let sessions = sessions.filter(|(_, connection)| connection.is_session());
        let numbers: Vec<u32> = sessions.map(|(number, _)| number).collect();
        for number in numbers {
            self.with(number, |c, around| c.second(around));
        }
        for (number, connection) in self.connections.iter_mut() {
            connection.check_patience(self.now, hurried && !connection.is_borrowers());
            if connection.dead() {
                self.dirty.push(number);
            }
        }
    }

    // ---------------------------------------------------------------------------------------------------
    // accepting

    fn listen(&mut self, listener: Listener, protocol: ProtocolMaker) {
        let number = self.listeners.insert(Listening {
            listener,
            protocol,
            rests_until: None,
            crowded: false,
        });
        self.accept(number);
    }

    fn accept(&mut self, number: u32) {
        let places = Places::of(&self.connections, self.leases());
        let not_before = places.none_before(self.now);
        if let Some(listening) = self.listeners.get_mut(number) {
            listening.rests_until = not_before;
            listening.crowded = not_before.is_some();
            if not_before.is_some() {
                return;
            }
            let fd = listening.listener.fd();
            let token = Owner::Accept { listener: number }.token();
            self.backend.submit(token, Op::Accept { fd });
        }
    }

    fn accepted(&mut self, number: u32, result: i32) {
        let Some(listening) = self.listeners.get_mut(number) else {
            return;
        };
        if result >= 0 {
            // SAFETY: the kernel just made it, for us alone.
            let wire = Wire::accepted(unsafe { OwnedFd::from_raw_fd(result) });
            let protocol = listening.protocol.clone();
            self.adopt(wire, &protocol);
        }
        if self.answers.stopping() {
            self.listeners.remove(number);
            return;
        }
        match -result {
            libc::EINVAL | libc::EBADF | libc::ENOTSOCK | libc::EOPNOTSUPP => {
                self.listeners.remove(number);
            }
            taken if taken <= 0 => self.accept(number),
            libc::ECONNABORTED | libc::EINTR | libc::EAGAIN | libc::EPROTO => self.accept(number),
            // Out of descriptors or memory: others may give some back meanwhile.
            _ => self.rest(number),
        }
    }

    fn rest(&mut self, number: u32) {
        if let Some(listening) = self.listeners.get_mut(number) {
            listening.rests_until = Some(self.now.after(ACCEPT_REST));
        }
    }

    fn accept_again(&mut self) {
        if self
            .listeners
            .iter()
            .all(|(_, one)| one.rests_until.is_none())
        {
            return;
        }
        let full = Places::of(&self.connections, self.leases()).are_full();
        let now = self.now;
        let mut ready = Vec::new();
        for (number, listening) in self.listeners.iter_mut() {
            let rested = listening.rests_until.is_some_and(|time| time <= now);
            if rested || (listening.crowded && !full) {
                (listening.rests_until, listening.crowded) = (None, false);
                ready.push(number);
            }
        }
        ready.into_iter().for_each(|number| self.accept(number));
    }

    /// No new connections from now on. A socket file goes at once, its accept when the kernel gives it back.
    fn close_listeners(&mut self) {
        for (listener, _) in self.listeners.iter() {
            self.backend.cancel(Owner::Accept { listener }.token());
        }
    }
}

/// Ends the sessions that their peers have closed. Each turn begins with this, before anything is taken that
/// came on other connections: that may be the same requests again, and newer ones may follow. So the requests
/// of a closed session either have begun, and precede these in the engine, or never begin.
fn end_closed(shell: &mut Shell) {
    let connections = shell.connections.iter();
    // A device has no peer that closes it: the driver gives its commands back.
    let may_be_closed = |one: &Connection| one.ends_with_peer() && !one.wire().is_device();
    let sessions = connections.filter(|(_, one)| may_be_closed(one));
    for number in Wire::closed(sessions.map(|(number, one)| (number, one.wire()))) {
        if let Some(connection) = shell.connections.get_mut(number) {
            connection.kill();
        }
        shell.tend_one(number);
    }
}

/// Takes a step of one handshake of TLS, if it is time.
fn shake_hands(shell: &mut Shell) {
    let Some(number) = shell.handshakes.next(shell.now) else {
        return;
    };
    if shell.connections.get(number).is_some() {
        let begun = Instant::now();
        shell.with(number, |c, around| c.shake_hands(around));
        shell.handshakes.took(shell.now, begun.elapsed());
    }
}

/// Gives a connection's commands to the driver of its device.
fn command_driver(shell: &mut Shell, connection: u32) {
    let Some(one) = shell.connections.get_mut(connection) else {
        return;
    };
    let fd = one.wire().input.fd;
    for DriverCommand {
        slot,
        number,
        bytes,
    } in one.next_commands()
    {
        let token = Owner::Command { connection, slot }.token();
        let op = Op::Command { fd, number, bytes };
        shell.backend.submit(token, op);
    }
}

/// The arrays and then the leases, as connections see them.
struct Shelf<'a> {
    hosts: &'a [Host],
    exposed: &'a [Exposed],
}

impl Shelf<'_> {
    fn lease(&self, index: usize) -> Option<&Exposed> {
        self.exposed.get(index.checked_sub(self.hosts.len())?)
    }
}

impl Catalogue for Shelf<'_> {
    fn exports(&self) -> usize {
        self.hosts.len() + self.exposed.len()
    }

    fn export(&self, index: usize) -> Option<Export> {
        match self.hosts.get(index) {
            Some(host) => Some(host.export()),
            None => self.lease(index)?.export(self.hosts),
        }
    }

    fn view(&self, index: usize) -> Option<Arc<Export>> {
        match self.hosts.get(index) {
            Some(host) => Some(host.view()),
            None => self.export(index).map(Arc::new),
        }
    }

    fn is_lease(&self, index: usize) -> bool {
        self.lease(index).is_some()
    }

    fn map(&self, export: usize, offset: u64, bytes: u64, max: usize) -> Vec<MapExtent> {
        match (self.hosts.get(export), self.lease(export)) {
            (Some(host), _) => host.map(offset, bytes, max),
            (None, Some(lease)) => lease.map(self.hosts, offset, bytes, max),
            (None, None) => Vec::new(),
        }
    }
}
