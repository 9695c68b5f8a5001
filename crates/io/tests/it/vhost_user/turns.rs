//! One device in a reactor small enough to see through: turn by turn, against a VMM that does as it likes.

use super::vmm::{
    EVENT_INDEX, FEATURES, FLUSH, GET_ID, Memory, QUEUE_SIZE, READ, Vmm, WRITE, message, send_with,
};
use crate::nbd_protocol::world::{Random, World};
use restripe_io::front::{Nudge, Protocol, Report, vhost_user};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DISK_BYTES: usize = 1 << 20;
/// Far more than any of these needs.
const TURNS_MAX: usize = 4096;
const OK: u8 = 0;
const IOERR: u8 = 1;

/// The device of one connection.
struct Device {
    connection: Box<dyn Protocol>,
    world: World,
    goes_on: bool,
    refusals: Arc<Mutex<Vec<String>>>,
}

/// Whether a descriptor can be read now.
fn is_readable(fd: RawFd) -> bool {
    let mut polled = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one live entry.
    unsafe { libc::poll(&raw mut polled, 1, 0) == 1 }
}

impl Device {
    fn new(world: World) -> Device {
        let refusals: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = Arc::clone(&refusals);
        let report = Report::new(move |why| noted.lock().expect("whole").push(why.to_owned()));
        let mut device = Device {
            connection: vhost_user::disk(0, report).expect("built with it")(),
            world,
            goes_on: false,
            refusals,
        };
        device.connection.opened(&mut device.world);
        device
    }

    /// A device and its VMM, which has said nothing yet.
    fn with_vmm(memory: &Arc<Memory>) -> (Device, Vmm) {
        Device::in_world(World::new(DISK_BYTES), memory)
    }

    fn in_world(mut world: World, memory: &Arc<Memory>) -> (Device, Vmm) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let patience = Some(Duration::from_secs(5));
        theirs.set_read_timeout(patience).expect("more than zero");
        world.socket = Some(OwnedFd::from(ours));
        (Device::new(world), Vmm::new(theirs, Arc::clone(memory)))
    }

    /// One turn of the reactor, without answers of the array. Whether anything happened.
    fn turn(&mut self) -> bool {
        let mut busy = self.goes_on;
        if self.goes_on {
            self.connection.woken(&mut self.world);
        }
        let watches = self.world.watches.clone();
        for (number, fd) in watches {
            let known = |(other, _): &(u16, Arc<OwnedFd>)| *other == number;
            if is_readable(fd.as_raw_fd()) && self.world.watches.iter().any(known) {
                self.world.watches.retain(|one| !known(one));
                self.connection.ready(number, &mut self.world);
                busy = true;
            }
        }
        self.goes_on = self.connection.turn_over();
        busy || self.goes_on
    }

    /// Turns until nothing is left to do but to wait for the array; how many.
    fn rest(&mut self) -> usize {
        let turns = (0..TURNS_MAX).take_while(|_| self.turn()).count();
        assert!(turns < TURNS_MAX, "it never rests");
        turns
    }

    /// The array answers all.
    fn answer(&mut self) {
        while let Some(ask) = self.world.asks.pop_front() {
            let result = self.world.execute(&ask);
            self.connection.replied(ask.tag, result, &mut self.world);
            if std::mem::take(&mut self.world.hungry) {
                self.connection.memory(&mut self.world);
            }
        }
    }

    /// Turns and answers until nothing is left.
    fn run(&mut self) {
        for _ in 0..TURNS_MAX {
            let busy = self.turn();
            let asked = !self.world.asks.is_empty();
            self.answer();
            if !busy && !asked {
                return;
            }
        }
        panic!("it never rests");
    }

    fn has_ended(&self) -> bool {
        self.world.nudges.iter().any(|(_, how)| *how == Nudge::End)
    }
}

/// A VMM whose first queue runs.
fn running(features: u64) -> (Device, Vmm) {
    let (mut device, vmm) = Device::with_vmm(&Memory::new());
    vmm.begin(features);
    vmm.start(0, 0);
    device.rest();
    assert!(!device.has_ended(), "{:?}", device.refusals);
    vmm.answer();
    assert!(vmm.is_called(0), "a ring that starts signals");
    (device, vmm)
}

/// A request, its length in the used ring, and its status.
fn one(device: &mut Device, vmm: &Vmm, kind: u32, sector: u64, data: u32) -> (u32, u8) {
    let before = vmm.memory.used(0);
    let head = vmm.memory.request(0, 0, kind, sector, data);
    vmm.memory.offer(0, head);
    vmm.kick(0);
    device.run();
    assert_eq!(vmm.memory.used(0), before.wrapping_add(1));
    let (id, length) = vmm.memory.used_entry(0, before);
    assert_eq!(id, u32::from(head));
    (length, vmm.memory.status(0))
}

#[test]
fn a_length_is_of_what_was_written_from_the_first_byte_on() {
    let (mut device, vmm) = running(FEATURES);
    let beyond = DISK_BYTES as u64 / 512;
    assert_eq!(one(&mut device, &vmm, READ, 0, 4096), (4097, OK));
    assert_eq!(one(&mut device, &vmm, READ, beyond, 512), (0, IOERR));
    assert_eq!(one(&mut device, &vmm, WRITE, 0, 4096), (1, OK));
    assert_eq!(one(&mut device, &vmm, WRITE, beyond, 512), (1, IOERR));
    assert_eq!(one(&mut device, &vmm, GET_ID, 0, 20), (21, OK));
    assert_eq!(one(&mut device, &vmm, GET_ID, 0, 64), (20, OK));
    assert_eq!(one(&mut device, &vmm, FLUSH, 0, 512), (0, OK));
}

/// 64 queues of 1024 requests that are answered at once.
#[test]
fn a_turn_is_bounded_whatever_the_guest_asks() {
    let (mut device, vmm) = Device::with_vmm(&Memory::new());
    vmm.begin(FEATURES);
    device.rest();
    for queue in 0..64 {
        vmm.start(queue, 0);
        device.rest();
    }
    for queue in 0..64 {
        let head = vmm.memory.request(queue, 0, READ, u64::MAX, 512);
        (0..QUEUE_SIZE).for_each(|_| vmm.memory.offer(queue, head));
        vmm.kick(queue);
    }
    let answered = || (0..64).map(|queue| u32::from(vmm.memory.used(queue))).sum();
    let (mut before, mut turns): (u32, u32) = (answered(), 0);
    while device.turn() {
        let now: u32 = answered();
        assert!(now - before <= 512, "{} in a turn", now - before);
        (before, turns) = (now, turns + 1);
    }
    assert_eq!(before, 64 * u32::from(QUEUE_SIZE), "none is forgotten");
    assert!((128..1024).contains(&turns), "{turns} turns");
}

/// A guest that makes chains available while they are taken has its turns, and messages have theirs.
#[test]
fn a_ring_that_is_never_empty_does_not_keep_messages_out() {
    let (mut device, vmm) = running(FEATURES);
    let head = vmm.memory.request(0, 0, READ, u64::MAX, 512);
    vmm.kick(0);
    for turn in 0..200 {
        let taken = vmm.memory.used(0);
        vmm.memory.offer(0, head);
        vmm.memory.set_available(0, taken.wrapping_add(QUEUE_SIZE));
        if turn == 100 {
            vmm.send(message::GET_FEATURES, &[], &[]).expect("room");
        }
        assert!(device.turn() || turn == 199);
        if turn < 100 {
            assert!(!is_readable(vmm.socket.as_raw_fd()));
        }
    }
    assert_eq!(vmm.answer().0.len(), 8);
}

/// A flood of messages leaves time to others, and each is taken.
#[test]
fn messages_share_the_turn() {
    let (mut device, vmm) = running(FEATURES);
    for _ in 0..64 {
        vmm.send(message::GET_FEATURES, &[], &[]).expect("room");
    }
    let turns = device.rest();
    assert!((4..64).contains(&turns), "{turns} turns");
    (0..64).for_each(|_| assert_eq!(vmm.answer().0.len(), 8));
}

/// Kills the connection with requests in flight. The next one does exactly these again, in their order, and
/// gives a base only when all of them are answered.
#[test]
fn a_base_covers_what_another_process_had_begun() {
    let memory = Memory::new();
    let (mut device, vmm) = Device::with_vmm(&memory);
    vmm.begin(FEATURES);
    vmm.get_inflight();
    device.rest();
    vmm.answer();
    let (named, file) = vmm.answer();
    let file = file.expect("memory");
    vmm.set_inflight(&named, &file);
    vmm.start(0, 0);
    device.rest();
    let offer = |slot: u16| {
        let head = memory.request(0, slot, WRITE, u64::from(slot) * 8, 4096);
        memory.offer(0, head);
    };
    (0..8).for_each(offer);
    vmm.kick(0);
    device.rest();
    assert_eq!(device.world.asks.len(), 8);
    // Two are answered, out of order.
    for index in [4, 1] {
        let ask = device.world.asks.remove(index).expect("it was asked");
        let result = device.world.execute(&ask);
        device
            .connection
            .replied(ask.tag, result, &mut device.world);
    }
    device.rest();
    assert_eq!(memory.used(0), 2);
    let left: Vec<u64> = device.world.asks.iter().map(|ask| ask.offset).collect();
    drop((device, vmm));
    // The next, which has little room: it takes two at a time.
    let mut world = World::new(DISK_BYTES);
    world.in_flight_max = 2;
    let (mut device, vmm) = Device::in_world(world, &memory);
    vmm.begin(FEATURES);
    vmm.set_inflight(&named, &file);
    vmm.start(0, 2);
    // One that is new, and that is not begun before the base is given.
    offer(8);
    vmm.kick(0);
    device.rest();
    assert_eq!(device.world.asks.len(), 2);
    vmm.answer();
    let base = [0u32, 0].map(u32::to_le_bytes).concat();
    vmm.send(message::GET_VRING_BASE, &base, &[]).expect("room");
    device.rest();
    assert!(!is_readable(vmm.socket.as_raw_fd()), "six are not answered");
    assert!(vmm.is_called(0), "it started");
    device.run();
    assert!(
        vmm.is_called(0),
        "before the answer, after which none looks"
    );
    let (state, _) = vmm.answer();
    assert_eq!(state, [0u32, 8].map(u32::to_le_bytes).concat());
    assert_eq!(memory.used(0), 8);
    let done: Vec<u64> = device.world.log.iter().map(|one| one.1).collect();
    assert_eq!(done, left, "exactly these, in order");
    device.run();
    assert!(!vmm.is_called(0), "nothing after the base");
}

#[test]
fn a_driver_is_signalled_at_the_index_that_it_names() {
    let (mut device, vmm) = running(FEATURES | EVENT_INDEX);
    vmm.memory.set_used_event(0, 2);
    for expected in [false, false, true, false] {
        one(&mut device, &vmm, READ, 0, 512);
        assert_eq!(vmm.is_called(0), expected);
    }
    vmm.memory.set_used_event(0, 4);
    one(&mut device, &vmm, READ, 0, 512);
    assert!(vmm.is_called(0));
}

#[test]
fn a_size_is_reported_until_it_is_read() {
    let memory = Memory::new();
    let (mut device, vmm) = Device::with_vmm(&memory);
    vmm.begin(FEATURES);
    vmm.get_config();
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    ours.set_nonblocking(true).expect("a socket");
    vmm.send(message::SET_BACKEND_REQ_FD, &[], &[theirs.as_raw_fd()])
        .expect("room");
    vmm.start(0, 0);
    device.rest();
    let second = |device: &mut Device| {
        assert!(device.connection.second(&mut device.world));
        (&ours).read_exact(&mut [0; 12]).is_ok()
    };
    assert!(!second(&mut device), "it has read this size");
    device.world.exports[0].size_bytes += 1 << 20;
    assert!(second(&mut device) && second(&mut device));
    vmm.get_config();
    device.rest();
    assert!(!second(&mut device));
    // It comes back, and has read what the array had then, or has it from before a growth meanwhile.
    drop((device, vmm));
    let (mut device, vmm) = Device::with_vmm(&memory);
    vmm.begin(FEATURES);
    vmm.send(message::SET_BACKEND_REQ_FD, &[], &[theirs.as_raw_fd()])
        .expect("room");
    device.rest();
    assert!(!second(&mut device), "it would not look before it runs");
    vmm.start(0, 0);
    device.rest();
    assert!(second(&mut device));
    vmm.get_config();
    device.rest();
    assert!(!second(&mut device));
}

#[test]
fn a_guest_goes_on_when_its_array_has_turned_read_only() {
    const DISCARD: u64 = 1 << 13;
    let mut world = World::new(DISK_BYTES);
    world.exports[0].read_only = true;
    let (mut device, vmm) = Device::in_world(world, &Memory::new());
    vmm.begin(FEATURES | DISCARD);
    vmm.start(0, 0);
    device.rest();
    assert!(!device.has_ended());
    assert_eq!(one(&mut device, &vmm, READ, 0, 512), (513, OK));
    assert_eq!(one(&mut device, &vmm, WRITE, 0, 512), (1, IOERR));
    assert_eq!(device.world.log.len(), 1, "no write reaches the array");
}

/// Half a message, and a header whose descriptors came with its first half only.
#[test]
fn half_a_message_ends_the_connection_in_time() {
    let event = super::vmm::event();
    for files in [&[][..], &[event.as_raw_fd()]] {
        let (mut device, vmm) = running(FEATURES);
        send_with(&vmm.socket, &[12, 0, 0, 0, 1], files).expect("room");
        device.rest();
        if !files.is_empty() {
            send_with(&vmm.socket, &[0, 0, 0, 8, 0, 0, 0], &[]).expect("room");
            device.rest();
        }
        for _ in 0..30 {
            assert!(device.connection.second(&mut device.world));
            assert_eq!(device.rest(), 0, "it is not looked at meanwhile");
        }
        let ends = !device.connection.second(&mut device.world);
        assert!(ends && device.refusals.lock().expect("whole").len() == 1);
    }
}

/// Some other client, or one that only tries whether the socket is there.
#[test]
fn a_peer_that_says_nothing_gives_its_place_back() {
    let (mut silent, _peer) = Device::with_vmm(&Memory::new());
    let (mut device, _vmm) = running(FEATURES);
    for _ in 0..30 {
        assert!(silent.connection.second(&mut silent.world));
        assert!(device.connection.second(&mut device.world));
        silent.rest();
    }
    assert!(!silent.connection.second(&mut silent.world));
    assert!(device.connection.second(&mut device.world), "it has begun");
}

/// Each is a line in the journal of the daemon.
#[test]
fn a_refused_vmm_and_a_stopped_queue_are_reported() {
    let why = |device: &Device| device.refusals.lock().expect("whole").join(", ");
    let mut world = World::new(DISK_BYTES);
    world.exports[0].serving = false;
    let (device, _vmm) = Device::in_world(world, &Memory::new());
    assert!(device.has_ended());
    assert_eq!(why(&device), "a VMM: the array does not serve");
    let (mut device, vmm) = running(FEATURES);
    vmm.memory.set_available(0, QUEUE_SIZE + 1);
    vmm.kick(0);
    device.rest();
    assert_eq!(
        why(&device),
        "disk: queue 0 makes no sense, and was stopped"
    );
    vmm.kick(0);
    device.rest();
    assert!(!device.has_ended() && device.refusals.lock().expect("whole").len() == 1);
    vmm.send(message::SET_VRING_KICK, &[0; 8], &[])
        .expect("room");
    device.rest();
    assert!(device.has_ended() && why(&device).contains("disk: message 12: "));
}

/// Random messages with random bodies and descriptors, and random bytes in the rings: the device rests, or
/// ends the connection.
#[test]
fn a_hostile_vmm_ends_its_own_connection_at_most() {
    let (mut steps, mut ended) = (0, 0);
    for seed in 0..300 {
        let random = &mut Random::new(seed);
        let (mut device, vmm) = match random.below(3) {
            0 => Device::with_vmm(&Memory::new()),
            _ => running(FEATURES | EVENT_INDEX),
        };
        for _ in 0..40 {
            match random.below(8) {
                0 => shout(&vmm, random),
                1 | 2 => vmm.kick(random.below(2)),
                3 => offer_any(&vmm, random),
                _ => scribble(&vmm, random),
            }
            steps += 1;
            device.run();
            device.connection.second(&mut device.world);
            if device.has_ended() {
                ended += 1;
                break;
            }
        }
    }
    assert!(
        ended > 100 && steps > 2000,
        "{ended} of 300 ended in {steps} steps"
    );
}

/// A chain that begins anywhere, or a request.
fn offer_any(vmm: &Vmm, random: &mut Random) {
    let kind = [READ, WRITE, FLUSH, GET_ID, 11, 13, 99][random.below(7)];
    let data = [512, 4096, 16, 1, 4095][random.below(5)];
    let sector = random.below(4096) as u64;
    let head = vmm
        .memory
        .request(0, random.below(8) as u16, kind, sector, data);
    vmm.memory.offer(0, head + random.below(2) as u16);
}

/// Random bytes where the rings of the first queue are.
fn scribble(vmm: &Vmm, random: &mut Random) {
    for _ in 0..1 + random.below(8) {
        let places = [0, 48, 16 << 10, (16 << 10) + 2, 20 << 10];
        let at = places[random.below(places.len())] + 2 * random.below(16);
        let mut bytes = [0; 16];
        random.fill(&mut bytes);
        let kept = random.below(bytes.len());
        vmm.memory.put(at, &bytes[..kept]);
    }
}

/// A message of random kind. Most are as long as they should be.
fn shout(vmm: &Vmm, random: &mut Random) {
    let lengths = [0, 4, 8, 12, 20, 24, 40, 72];
    let request = random.below(45) as u32;
    let length = match request {
        8 | 10 | 11 | 18 => 8,
        1 | 3 | 4 | 15 | 17 | 21 | 34 => 0,
        2 | 12 | 13 | 14 | 16 => 8,
        9 | 5 | 37 | 38 => 40,
        31 | 32 => 24,
        _ => lengths[random.below(lengths.len())],
    };
    let mut body = vec![0; length];
    random.fill(&mut body);
    // Numbers that are small more often than not.
    for word in body.chunks_exact_mut(4) {
        if random.below(3) > 0 {
            word.copy_from_slice(&[random.below(4) as u8, random.below(2) as u8, 0, 0]);
        }
    }
    let file: OwnedFd = match random.below(3) {
        0 => super::vmm::event().into(),
        1 => vmm.socket.try_clone().expect("a copy").into(),
        _ => std::fs::File::open("/dev/zero")
            .expect("it is there")
            .into(),
    };
    let files = [file.as_raw_fd(); 2];
    let _ = vmm.send(request, &body, &files[..random.below(3)]);
}
