//! The open devices of one array, and the operations in flight on them.
//!
//! ```text
//! start(io), start_joined(ios)     -> landed at once, or in flight
//! completed, remote_completed      -> landed, or another kernel operation
//! ```
//!
//! A device is closed only when nothing of it is with the kernel any more.

mod flight;
mod watch;

pub use watch::WatchLimits;

use crate::backend::{Backend, Completion, Haste, Op, Token};
use crate::member::nbd::{NbdDevice, QUESTION};
use crate::member::{Device, OpenMember};
use crate::memory::{Handles, Piece};
use crate::tokens::Owner;
use flight::{Flight, Progress, Scratch};
pub use flight::{Landed, Operations};
use restripe_array::Slab;
use restripe_array::{
    Buf, DeviceIo, IoError, IoOp, Member, Nanos, SECTOR_BYTES, Segment, Tag, Uuid,
};
use std::collections::BTreeMap;
use watch::{Look, Watch};

/// Bytes of operations that are joined at most.
const JOINED_BYTES_MAX: u64 = 1 << 20;
/// The same of writes through the page cache. It keeps what one call writes as one folio, and ext4 goes over
/// all blocks of a folio in every later write to it, however small.
const JOINED_CACHED_WRITE_MAX: u64 = 256 * 1024;

struct Place {
    name: String,
    /// `None` once closed.
    device: Option<Device>,
    flights: u32,
    /// Its spindle is being told to stand still, or to turn: what is asked meanwhile waits until that has ended, so that the last word
    /// counts, and nobody asks a disk without power.
    rests: u32,
    wakes: u32,
    held: Operations,
    /// Operations to come that are not joined, because joined ones have failed.
    unjoined: u32,
    closing: bool,
    /// Its loss was told.
    departed: bool,
    /// Of a remote one.
    watch: Watch,
}

/// Operations on a member that are not joined after joined ones have failed.
const UNJOINED_AFTER_FAILURE: u32 = 1024;

pub struct Fleet {
    /// Tells this fleet's operations from others' on the same backend.
    index: u8,
    places: Vec<Place>,
    flights: Slab<Flight>,
    scratch: Scratch,
    /// How often a handle was backed anew, and for each such handle at which count last.
    renewals: u64,
    renewed: BTreeMap<Buf, u64>,
    /// Operations that are back, for the owner to take.
    pub landed: Vec<Landed>,
    /// Devices lost altogether since the owner looked.
    pub departed: Vec<Member>,
    /// `None`: idle members are not asked.
    watched: Option<WatchLimits>,
}

impl Fleet {
    pub fn new(index: u8, members: Vec<OpenMember>) -> Fleet {
        Fleet {
            index,
            places: members.into_iter().map(Place::new).collect(),
            flights: Slab::default(),
            scratch: Scratch::new(),
            renewals: 0,
            renewed: BTreeMap::new(),
            landed: Vec::new(),
            departed: Vec::new(),
            watched: None,
        }
    }

    pub fn watch(&mut self, limits: WatchLimits) {
        self.watched = Some(limits);
    }

    /// Operations in flight.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Whether operations on a member are in flight.
    pub fn is_used(&self, member: Member) -> bool {
        let place = self.places.get(usize::from(member.0));
        place.is_some_and(|place| place.flights > 0)
    }

    /// Every device ever opened, in the order of their numbers, with whether it is still open: one that hung up is not.
    pub fn names(&self) -> impl Iterator<Item = (&str, bool)> {
        let places = self.places.iter();
        places.map(|place| (&*place.name, place.is_open()))
    }

    pub fn is_open(&self, member: Member) -> bool {
        let place = self.places.get(usize::from(member.0));
        place.is_some_and(Place::is_open)
    }

    pub fn name(&self, member: Member) -> Option<&str> {
        let place = self.places.get(usize::from(member.0));
        place.map(|place| &*place.name)
    }

    /// Takes a device in, and gives its number.
    pub fn arrive(&mut self, member: OpenMember) -> Member {
        let number =
            Member(u16::try_from(self.places.len()).expect("operators do not add 65,536 devices"));
        self.places.push(Place::new(member));
        number
    }

    /// The arrays that lie beneath the devices that are open.
    pub fn beneath(&self) -> impl Iterator<Item = Uuid> + '_ {
        let open = self.places.iter().filter_map(|place| place.device.as_ref());
        open.flat_map(|device| device.beneath().iter().copied())
    }

    /// Closes a device once its operations are back. From now on it is gone. A remote server may never answer them: its
    /// connection ends at once.
    pub fn close(&mut self, member: Member) {
        self.hang_up(member);
        if let Some(place) = self.places.get_mut(usize::from(member.0)) {
            place.closing = true;
            place.close_if_idle();
        }
    }

    /// Ends the connection of a remote member; what is in flight there comes back as gone. On other members, which the
    /// kernel answers for, it has no effect.
    pub fn hang_up(&mut self, member: Member) {
        if let Some(place) = self.places.get_mut(usize::from(member.0))
            && let Some(Device::Nbd(device)) = &mut place.device
        {
            device.hang_up();
        }
    }

    /// How long spindles are waited for, of each device that has one.
    pub fn hastes(&self) -> impl Iterator<Item = &Haste> {
        self.places.iter().filter_map(|place| match &place.device {
            Some(Device::File(file)) => Some(file.haste()),
            _ => None,
        })
    }

    /// The device of a member, to be used elsewhere. Only while nothing is in flight on it.
    pub fn take_device(&mut self, member: Member) -> Option<Device> {
        let place = self.places.get_mut(usize::from(member.0))?;
        assert_eq!(place.flights, 0, "a device in use is not taken away");
        place.device.take()
    }

    pub fn start(
        &mut self,
        mut io: Box<DeviceIo>,
        handles: &Handles<'_>,
        backend: &mut dyn Backend,
    ) {
        let place = self.places.get_mut(usize::from(io.member.0));
        let place = place.filter(|place| !place.closing);
        match place.and_then(|place| place.device.as_mut()) {
            None => self.landed.push((io, Err(IoError::Gone))),
            Some(Device::Ram(ram)) => {
                let result = ram.perform(&mut io, handles);
                self.landed.push((io, result));
            }
            Some(Device::File(device)) if changes(io.op) && device.was_cut() => {
                self.part_with(io.member);
                self.landed.push((io, Err(IoError::Gone)));
            }
            Some(Device::File(_)) => match self.waits_for_spindle(&io) {
                true => self.places[usize::from(io.member.0)].held.push(io),
                false => self.take_off(Flight::new(io, self.renewals), handles, backend),
            },
            Some(Device::Nbd(_)) => self.take_off_remote(io, handles, backend),
        }
    }

    // ------------------------------------------------------------------------------------- files and block devices

    /// Whether an operation may be joined with others: it moves data of a file or a block device.
    pub(crate) fn joins(&self, io: &DeviceIo) -> bool {
        let place = self.places.get(usize::from(io.member.0));
        let is_page = |segment: &Segment| matches!(segment, Segment::Page(_));
        place.is_some_and(|place| matches!(place.device, Some(Device::File(_))))
            && matches!(io.op, IoOp::Read | IoOp::Write)
            && !io.segments.iter().any(is_page)
    }

    /// Starts operations that may be joined: neighbours on a member as one, which costs little more than
    /// each.
    pub(crate) fn start_joined(
        &mut self,
        ios: &mut Operations,
        handles: &Handles<'_>,
        backend: &mut dyn Backend,
    ) {
        ios.sort_by_key(|io| {
            let kind = (io.op == IoOp::Write, io.durable, io.class as u8);
            (io.member, kind, io.at)
        });
        let (mut run, mut bytes) = (Operations::new(), 0);
        for io in ios.drain(..) {
            let more = io.sectors * SECTOR_BYTES;
            let goes_on = run.last().is_some_and(|last| follows(last, &io));
            if !goes_on || bytes + more > self.joined_max(&io) {
                self.start_run(&mut run, handles, backend);
                bytes = 0;
            }
            bytes += more;
            run.push(io);
        }
        self.start_run(&mut run, handles, backend);
    }

    fn joined_max(&self, io: &DeviceIo) -> u64 {
        match &self.places[usize::from(io.member.0)].device {
            Some(Device::File(device)) if io.op == IoOp::Write && device.is_cached() => {
                JOINED_CACHED_WRITE_MAX
            }
            _ => JOINED_BYTES_MAX,
        }
    }

    /// Starts neighbours as one, if they need not wait.
    fn start_run(
        &mut self,
        run: &mut Operations,
        handles: &Handles<'_>,
        backend: &mut dyn Backend,
    ) {
        let Some(first) = run.first() else { return };
        let unjoined = &mut self.places[usize::from(first.member.0)].unjoined;
        let may_join = *unjoined == 0;
        *unjoined = unjoined.saturating_sub(run.len() as u32);
        if may_join && run.len() > 1 && self.is_ready_for(&run[0]) {
            let flight = Flight::joined(std::mem::take(run), self.renewals);
            self.take_off(flight, handles, backend);
        }
        run.drain(..)
            .for_each(|io| self.start(io, handles, backend));
    }

    /// Whether an operation on a file or a block device can begin at once.
    fn is_ready_for(&self, io: &DeviceIo) -> bool {
        let place = &self.places[usize::from(io.member.0)];
        match &place.device {
            Some(Device::File(device)) if !place.closing => {
                !(self.waits_for_spindle(io) || changes(io.op) && device.was_cut())
            }
            _ => false,
        }
    }

    fn waits_for_spindle(&self, io: &DeviceIo) -> bool {
        let place = &self.places[usize::from(io.member.0)];
        place.rests > 0 || place.wakes > 0 && io.op != IoOp::Wake
    }

    /// Spindles turn, or cannot: what waited for them goes on.
    fn release(&mut self, member: Member, handles: &Handles<'_>, backend: &mut dyn Backend) {
        let place = &mut self.places[usize::from(member.0)];
        if place.rests + place.wakes > 0 {
            return;
        }
        for io in std::mem::take(&mut place.held) {
            self.start(io, handles, backend);
        }
        self.places[usize::from(member.0)].close_if_idle();
    }

    fn take_off(&mut self, flight: Flight, handles: &Handles<'_>, backend: &mut dyn Backend) {
        let (member, op) = (usize::from(flight.io.member.0), flight.io.op);
        self.places[member].flights += 1;
        self.places[member].rests += u32::from(op == IoOp::Standby);
        self.places[member].wakes += u32::from(op == IoOp::Wake);
        let index = self.flights.insert(flight);
        let flight = self.flights.get_mut(index).expect("just made");
        let Some(Device::File(device)) = &self.places[member].device else {
            unreachable!("the caller looked")
        };
        let progress = flight.start(device, handles, &mut self.scratch);
        self.progress(index, progress, handles, backend);
    }

    /// A kernel operation is back.
    pub fn completed(
        &mut self,
        flight: u32,
        done: Completion,
        handles: &Handles<'_>,
        backend: &mut dyn Backend,
    ) {
        let airborne = self.flights.get_mut(flight).expect("a flight ends once");
        let member = usize::from(airborne.io.member.0);
        let Some(Device::File(device)) = &mut self.places[member].device else {
            unreachable!("a device stays open while operations on it are in flight")
        };
        let progress = airborne.go_on(device, done.result, done.pieces, &mut self.scratch);
        self.progress(flight, progress, handles, backend);
    }

    fn progress(
        &mut self,
        flight: u32,
        progress: Progress,
        handles: &Handles<'_>,
        backend: &mut dyn Backend,
    ) {
        match progress {
            Progress::Submit(op) => backend.submit(
                Owner::Device {
                    host: self.index,
                    flight,
                }
                .token(),
                op,
            ),
            Progress::Done(Err(_)) if self.failed_in_part(flight) => {
                self.split(flight, handles, backend);
            }
            Progress::Done(result) => {
                let member = self.land(flight, result, handles);
                self.release(member, handles, backend);
            }
        }
    }

    fn failed_in_part(&self, flight: u32) -> bool {
        self.flights.get(flight).is_some_and(|flight| {
            let place = &self.places[usize::from(flight.io.member.0)];
            let way = match &place.device {
                Some(Device::File(device)) => device.way(),
                _ => return false,
            };
            flight.may_have_failed_in_part(way)
        })
    }

    /// Does operations one by one that have failed as one, so that each has a result of its own. Those to
    /// come are not joined for a while: a disk takes long for each attempt at a weak place.
    fn split(&mut self, flight: u32, handles: &Handles<'_>, backend: &mut dyn Backend) {
        let failed = self.flights.remove(flight).expect("a flight ends once");
        let member = usize::from(failed.io.member.0);
        let (parts, detached) = failed.split();
        for io in parts {
            match detached.contains(&io.tag) {
                true => self.landed.push((io, Err(IoError::Gone))),
                false => self.start(io, handles, backend),
            }
        }
        self.places[member].unjoined = UNJOINED_AFTER_FAILURE;
        self.places[member].flights -= 1;
        self.places[member].close_if_idle();
    }

    fn land(&mut self, flight: u32, result: Result<(), IoError>, handles: &Handles<'_>) -> Member {
        let landed = self.flights.remove(flight).expect("a flight ends once");
        let (member, op) = (landed.io.member, landed.io.op);
        let place = &mut self.places[usize::from(member.0)];
        place.flights -= 1;
        match (op, &place.device) {
            (IoOp::Standby, Some(Device::File(_))) => place.rests -= 1,
            (IoOp::Wake, Some(Device::File(_))) => place.wakes -= 1,
            _ => {}
        }
        place.close_if_idle();
        landed.land(result, handles, &mut self.scratch, &mut self.landed);
        member
    }

    // -------------------------------------------------------------------------------------------------- remote ones

    fn take_off_remote(
        &mut self,
        io: Box<DeviceIo>,
        handles: &Handles<'_>,
        backend: &mut dyn Backend,
    ) {
        let member = io.member;
        let place = &mut self.places[usize::from(member.0)];
        place.flights += 1;
        let index = self.flights.insert(Flight::new(io, self.renewals));
        let flight = self.flights.get_mut(index).expect("just made");
        let pieces = flight.gather(handles, &mut self.scratch);
        if let Some(Device::Nbd(device)) = &mut place.device {
            device.start(index, &flight.io, pieces);
        }
        self.tend_remote(u32::from(member.0), handles, backend);
    }

    /// A send or receive of a remote member is back.
    pub fn remote_completed(
        &mut self,
        member: u32,
        sent: bool,
        done: Completion,
        handles: &Handles<'_>,
        backend: &mut dyn Backend,
    ) {
        let token = self.remote_token(member, true);
        let Some(Device::Nbd(device)) = &mut self.places[member as usize].device else {
            unreachable!("a device stays open while operations on it are in flight")
        };
        if !sent {
            device.received(done.result);
        } else if let Some(pieces) = device.sent(done.result, done.pieces) {
            send(device, token, pieces, backend);
        }
        self.tend_remote(member, handles, backend);
    }

    fn remote_token(&self, member: u32, sent: bool) -> Token {
        Owner::Remote {
            host: self.index,
            member,
            sent,
        }
        .token()
    }

    /// Sends and receives what a remote member has to, and lands what is done.
    fn tend_remote(&mut self, member: u32, handles: &Handles<'_>, backend: &mut dyn Backend) {
        let [sends, receives] = [true, false].map(|sent| self.remote_token(member, sent));
        let place = &mut self.places[member as usize];
        let Some(Device::Nbd(device)) = &mut place.device else {
            return;
        };
        if let Some(pieces) = device.next_send() {
            send(device, sends, pieces, backend);
        }
        if let Some(pieces) = device.next_receive() {
            let stream = device.input();
            backend.submit(receives, Op::Receive { stream, pieces });
        }
        let mut done = Vec::new();
        device.take_done(&mut done);
        // One that is closed on purpose is not lost.
        if device.broken() && !place.departed && !place.closing {
            place.departed = true;
            self.departed.push(Member(member as u16));
        }
        for (flight, result) in done {
            match flight {
                QUESTION => self.places[member as usize].watch.answered(result.is_ok()),
                flight => drop(self.land(flight, result, handles)),
            }
        }
        self.places[member as usize].close_if_idle();
    }

    // ------------------------------------------------------------------------------------------------- watching

    /// When idle members are to be looked at.
    pub fn next_look(&self) -> Option<Nanos> {
        let limits = self.watched?;
        let watched = self.places.iter().filter(|place| place.is_watched());
        watched.map(|place| place.watch.due(limits)).min()
    }

    /// Asks the remote members that have been idle for long, and looks at the size of local ones; gives up those that do not answer, or
    /// are not whole.
    pub fn look(&mut self, now: Nanos, handles: &Handles<'_>, backend: &mut dyn Backend) {
        let Some(limits) = self.watched else {
            return;
        };
        for member in 0..self.places.len() {
            let place = &mut self.places[member];
            let watched = place.is_watched();
            let device = match place.device.as_mut().filter(|_| watched) {
                Some(Device::Nbd(device)) => device,
                Some(Device::File(device)) => {
                    let due = place.watch.look(now, false, limits) == Look::Ask;
                    place.watch.answered(true);
                    if due && !device.is_whole() {
                        self.part_with(Member(member as u16));
                    }
                    continue;
                }
                Some(Device::Ram(_)) | None => continue,
            };
            match place.watch.look(now, device.lives(), limits) {
                Look::Nothing => continue,
                Look::Ask => device.ask(),
                Look::Lost => device.hang_up(),
            }
            self.tend_remote(member as u32, handles, backend);
        }
    }

    /// A local member is not what was opened any more.
    fn part_with(&mut self, member: Member) {
        self.places[usize::from(member.0)].departed = true;
        self.departed.push(member);
        self.close(member);
    }

    // ------------------------------------------------------------------------------------------------- giving up

    /// Gives an operation its memory for good. Other reads in flight into the same handles go on into the old memory
    /// too, so their data is brought over when they land.
    ///
    /// A handle that was backed anew since the operation began is another memory already: of all operations that a
    /// failed member leaves on one large buffer, only the first costs a copy of it.
    pub fn detach(&mut self, tag: Tag, handles: &mut Handles<'_>) {
        for place in &mut self.places {
            if let Some(at) = place.held.iter().position(|io| io.tag == tag) {
                // Nobody has begun it.
                self.landed
                    .push((place.held.remove(at), Err(IoError::Gone)));
                return place.close_if_idle();
            }
        }
        let flights = self.flights.iter_mut().map(|(_, flight)| flight);
        let found = flights.filter_map(|flight| {
            let io = flight.operations().iter().find(|io| io.tag == tag)?;
            Some((bufs_of(io), flight))
        });
        let Some((bufs, flight)) = found.into_iter().next() else {
            return;
        };
        flight.detach(tag);
        let began = flight.renewals;
        for buf in bufs {
            if self.renewed.get(&buf).is_some_and(|last| *last > began) {
                continue;
            }
            let flights = self.flights.iter_mut();
            flights.for_each(|(_, flight)| flight.redirect(buf, handles.memory(buf)));
            handles.renew(buf);
            self.renewals += 1;
            self.renewed.insert(buf, self.renewals);
        }
    }
}

fn send(device: &NbdDevice, token: Token, pieces: Vec<Piece>, backend: &mut dyn Backend) {
    let stream = device.output();
    backend.submit(token, Op::Send { stream, pieces });
}

impl Place {
    fn new(member: OpenMember) -> Place {
        Place {
            name: member.name,
            device: Some(member.device),
            flights: 0,
            rests: 0,
            wakes: 0,
            held: Vec::new(),
            unjoined: 0,
            closing: false,
            departed: false,
            watch: Watch::default(),
        }
    }

    /// A member that is open, unless it is remote and was told to rest: a question would wake its disk.
    fn is_watched(&self) -> bool {
        let rests = |device: &Device| match device {
            Device::Nbd(device) => device.rests(),
            Device::File(_) => false,
            Device::Ram(_) => true,
        };
        self.is_open() && !self.device.as_ref().is_none_or(rests)
    }

    fn is_open(&self) -> bool {
        self.device.is_some() && !self.closing && !self.departed
    }

    fn close_if_idle(&mut self) {
        if !self.closing || self.flights > 0 || !self.held.is_empty() {
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

fn changes(op: IoOp) -> bool {
    matches!(op, IoOp::Write | IoOp::Zero | IoOp::Trim)
}

/// The handles that an operation names, each once.
fn bufs_of(io: &DeviceIo) -> Vec<Buf> {
    let parts = io.segments.iter().filter_map(|segment| match segment {
        Segment::Buf(part) => Some(part.buf),
        Segment::Page(_) | Segment::Zero(_) => None,
    });
    let mut bufs: Vec<Buf> = parts.collect();
    bufs.sort_unstable();
    bufs.dedup();
    bufs
}

/// Whether one operation goes on where another ends, so that they can be one.
fn follows(first: &DeviceIo, second: &DeviceIo) -> bool {
    let kind = |io: &DeviceIo| (io.member, io.op, io.durable, io.class);
    kind(first) == kind(second) && first.at + first.sectors == second.at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Waker;
    use crate::member::{OpenOptions, open};
    use crate::memory::{PoolMemory, UserMemory};
    use crate::plain::bare_io;
    use restripe_array::Pool;
    use std::io::{self, Read, Write};
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    /// Counts the sends that it is asked for, has the tokens of reads and writes, and completes nothing.
    #[derive(Default)]
    struct Counting {
        sends: usize,
        moves: Vec<Token>,
    }

    impl Backend for Counting {
        fn name(&self) -> &'static str {
            "counting"
        }

        fn submit(&mut self, token: Token, op: Op) {
            self.sends += usize::from(matches!(op, Op::Send { .. }));
            if matches!(op, Op::Read { .. } | Op::Write { .. }) {
                self.moves.push(token);
            }
        }

        fn cancel(&mut self, _: Token) {}

        fn wait(&mut self, _: Option<Duration>, _: &mut Vec<Completion>) -> io::Result<()> {
            Ok(())
        }

        fn outstanding(&self) -> usize {
            0
        }

        fn waker(&self) -> Waker {
            unreachable!("nothing waits here")
        }
    }

    /// A member whose server agrees on an export of 1 MiB the oldest way, and says nothing more.
    fn mute(name: &str) -> OpenMember {
        let name = format!("restripe-fleet-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a free place");
        let server = std::thread::spawn(move || -> io::Result<_> {
            let (mut stream, _) = listener.accept()?;
            stream.write_all(b"NBDMAGICIHAVEOPT\0\x02")?;
            stream.read_exact(&mut [0; 20])?;
            stream.write_all(&(1u64 << 20).to_be_bytes())?;
            stream.write_all(&1u16.to_be_bytes())?;
            Ok(stream)
        });
        let uri = format!("nbd+unix:///?socket={}", path.display());
        let member = open(&uri, OpenOptions::default()).expect("they agree");
        let served = server.join().expect("no panic");
        served.expect("nothing went wrong");
        std::fs::remove_file(&path).expect("ours");
        member
    }

    /// A member that is looked at after 10 s without a sign of life, and given up 30 s after that.
    fn watching(member: OpenMember) -> Fleet {
        let mut fleet = Fleet::new(0, vec![member]);
        fleet.watch(WatchLimits {
            interval: Nanos::from_secs(10),
            patience: Nanos::from_secs(30),
        });
        fleet
    }

    fn memory() -> (PoolMemory, UserMemory) {
        let pool = PoolMemory::new(Pool { small: 0, large: 1 });
        (pool.expect("memory"), UserMemory::new(0))
    }

    /// Looks every second for 100 seconds: how many questions were sent, and whether the member was lost.
    fn watched(first: Option<IoOp>, name: &str) -> (usize, bool) {
        let (mut pool, mut users) = memory();
        let handles = Handles::new(&mut pool, &mut users);
        let mut backend = Counting::default();
        let mut fleet = watching(mute(name));
        if let Some(op) = first {
            fleet.start(Box::new(bare_io(op, 0, 0)), &handles, &mut backend);
        }
        for second in 0..100 {
            fleet.look(Nanos::from_secs(second), &handles, &mut backend);
        }
        (backend.sends, !fleet.names().all(|(_, open)| open))
    }

    /// A fleet of one file of 1 MiB, and its path.
    fn of_file(name: &str) -> (Fleet, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("restripe-{name}-{}", std::process::id()));
        std::fs::write(&path, [7; 1 << 20]).expect("a file");
        let options = crate::member::OpenOptions::default();
        let member = crate::member::open(path.to_str().expect("text"), options);
        (watching(member.expect("it opens")), path)
    }

    fn cut_short(path: &std::path::Path) {
        let file = std::fs::File::options().write(true).open(path);
        file.expect("ours").set_len(4096).expect("cut short");
    }

    #[test]
    fn local_member_that_was_cut_short_is_given_up_without_being_read() {
        let (mut fleet, path) = of_file("short");
        let (mut pool, mut users) = memory();
        let handles = Handles::new(&mut pool, &mut users);
        let mut backend = Counting::default();
        fleet.look(Nanos::from_secs(10), &handles, &mut backend);
        assert!(fleet.departed.is_empty());
        cut_short(&path);
        fleet.look(Nanos::from_secs(19), &handles, &mut backend);
        assert!(fleet.departed.is_empty(), "it is not time yet");
        fleet.look(Nanos::from_secs(20), &handles, &mut backend);
        assert_eq!(fleet.departed, [Member(0)]);
        assert!(fleet.names().all(|(_, open)| !open));
        let _ = std::fs::remove_file(&path);
    }

    #[test]
    fn local_member_that_was_cut_short_is_given_up_before_a_write_makes_it_longer() {
        for op in [IoOp::Write, IoOp::Zero, IoOp::Trim] {
            let (mut fleet, path) = of_file("cut");
            let (mut pool, mut users) = memory();
            let handles = Handles::new(&mut pool, &mut users);
            let mut backend = Counting::default();
            cut_short(&path);
            fleet.start(Box::new(bare_io(op, 1024, 8)), &handles, &mut backend);
            let (_, result) = fleet.landed.pop().expect("it is answered");
            assert_eq!(
                (result, &fleet.departed[..]),
                (Err(IoError::Gone), &[Member(0)][..])
            );
            assert_eq!(std::fs::metadata(&path).expect("ours").len(), 4096);
            let _ = std::fs::remove_file(&path);
        }
    }

    /// Operations of a page each at these pages, started together.
    fn started(fleet: &mut Fleet, op: IoOp, durable: bool, pages: &[u64]) -> Counting {
        let (mut pool, mut users) = memory();
        let handles = Handles::new(&mut pool, &mut users);
        let mut backend = Counting::default();
        let io = |page: &u64| DeviceIo {
            durable,
            segments: vec![Segment::Zero(4096)],
            ..bare_io(op, page * 8, 8)
        };
        let mut ios = pages.iter().map(|page| Box::new(io(page))).collect();
        fleet.start_joined(&mut ios, &handles, &mut backend);
        backend
    }

    /// Large folios of the page cache make later small writes slow.
    #[test]
    fn cached_writes_are_joined_to_less_than_reads() {
        let (_, path) = of_file("cached");
        let options = OpenOptions {
            direct: false,
            ..OpenOptions::default()
        };
        let member = open(path.to_str().expect("text"), options);
        let mut fleet = watching(member.expect("it opens"));
        let pages = Vec::from_iter(0..256);
        for (op, operations) in [(IoOp::Read, 1), (IoOp::Write, 4)] {
            let backend = started(&mut fleet, op, false, &pages);
            assert_eq!(backend.moves.len(), operations, "{op:?}");
        }
        let _ = std::fs::remove_file(&path);
    }

    #[test]
    fn only_neighbours_are_joined() {
        let (mut fleet, path) = of_file("neighbours");
        for (pages, operations) in [
            (&[2, 0, 3, 1][..], 1),
            (&[0, 2, 4], 3),
            (&[0, 1, 3, 4], 2),
            (&[7], 1),
            // The same page again, and a page as large as all: 1 MiB is the most.
            (&[5, 5], 2),
            (&Vec::from_iter(0..256), 1),
            (&Vec::from_iter(0..257), 2),
        ] {
            let backend = started(&mut fleet, IoOp::Read, false, pages);
            assert_eq!(backend.moves.len(), operations, "{pages:?}");
        }
        let _ = std::fs::remove_file(&path);
    }

    /// Fails what was started together. Gives how many operations follow, and how many are back.
    fn failed(durable: bool) -> (usize, usize) {
        let (mut fleet, path) = of_file("failed");
        let mut backend = started(&mut fleet, IoOp::Write, durable, &[0, 1, 2]);
        let Owner::Device { flight, .. } = Owner::of(backend.moves[0]) else {
            panic!("not a flight")
        };
        let (mut pool, mut users) = memory();
        let handles = Handles::new(&mut pool, &mut users);
        let failed = Completion {
            token: backend.moves.remove(0),
            result: -libc::EIO,
            pieces: Vec::new(),
        };
        fleet.completed(flight, failed, &handles, &mut backend);
        let _ = std::fs::remove_file(&path);
        assert!(fleet.landed.iter().all(|(_, result)| result.is_err()));
        (backend.moves.len(), fleet.landed.len())
    }

    /// The kernel reports once that it could not make data durable: a second attempt would hide it.
    #[test]
    fn durable_writes_that_fail_together_are_not_tried_again() {
        assert_eq!(failed(false), (3, 0), "each is done by itself");
        assert_eq!(failed(true), (0, 3), "each has failed");
    }

    #[test]
    fn idle_remote_member_is_asked_and_given_up_without_an_answer() {
        assert_eq!(watched(None, "idle"), (1, true));
    }

    #[test]
    fn remote_member_that_is_closed_is_not_lost() {
        let (mut pool, mut users) = memory();
        let handles = Handles::new(&mut pool, &mut users);
        let mut backend = Counting::default();
        let mut fleet = Fleet::new(0, vec![mute("closed")]);
        fleet.close(Member(0));
        fleet.tend_remote(0, &handles, &mut backend);
        assert!(fleet.departed.is_empty() && !fleet.is_open(Member(0)));
    }

    #[test]
    fn remote_member_that_was_told_to_rest_is_not_asked() {
        assert_eq!(watched(Some(IoOp::Standby), "rests"), (0, false));
    }
}
