//! The queue against a model of the driver and of the reactor.

use super::wire::{COMMIT_AND_FETCH, DESCRIPTOR_BYTES, FETCH, RESULT_ENDED};
use super::{Device, Queue, Setup};
use crate::front::{Ask, DriverCommand, Export, Link, Nudge, Protocol};
use crate::memory::{Memory, Piece};
use restripe_array::report::MapExtent;
use restripe_array::{Buf, BufRef, RequestError, RequestOp, Uuid};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

const DEPTH: u16 = 4;
const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 2;
const DISCARD: u32 = 3;
const WRITE_ZEROES: u32 = 5;
const FUA: u32 = 1 << 13;

/// What the kernel has of each slot.
#[derive(Default)]
struct Pages {
    descriptors: BTreeMap<u16, [u8; DESCRIPTOR_BYTES]>,
    data: BTreeMap<u16, Vec<u8>>,
    /// Copies fail with it.
    fails: Option<i32>,
    /// Descriptors cannot be mapped.
    hidden: Option<i32>,
}

#[derive(Clone, Default)]
struct Driver(Arc<Mutex<Pages>>);

impl Driver {
    fn with<T>(&self, act: impl FnOnce(&mut Pages) -> T) -> T {
        act(&mut self.0.lock().expect("no test panics with it"))
    }

    /// The kernel puts a request into a slot.
    fn request(&self, slot: u16, op: u32, first: u64, sectors: u32, data: &[u8]) {
        let mut descriptor = [0; DESCRIPTOR_BYTES];
        descriptor[..4].copy_from_slice(&op.to_ne_bytes());
        descriptor[4..8].copy_from_slice(&sectors.to_ne_bytes());
        descriptor[8..16].copy_from_slice(&first.to_ne_bytes());
        self.with(|pages| {
            pages.descriptors.insert(slot, descriptor);
            pages.data.insert(slot, data.to_vec());
        });
    }
}

impl Device for Driver {
    fn descriptor(&mut self, slot: u16) -> io::Result<[u8; DESCRIPTOR_BYTES]> {
        self.with(|pages| match pages.hidden {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Ok(pages.descriptors[&slot]),
        })
    }

    fn take(&self, slot: u16, into: &Piece) -> io::Result<()> {
        self.with(|pages| match pages.fails {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => {
                into.memory.fill(into.offset as usize, &pages.data[&slot]);
                Ok(())
            }
        })
    }

    fn give(&self, slot: u16, from: &Piece) -> io::Result<()> {
        self.with(|pages| match pages.fails {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => {
                pages.data.insert(slot, from.slice().to_vec());
                Ok(())
            }
        })
    }
}

/// A reactor that has a fixed number of buffers to lend.
struct World {
    serving: bool,
    full: bool,
    free: usize,
    buffers: BTreeMap<u32, Memory>,
    asks: Vec<Ask>,
    commands: Vec<DriverCommand>,
    nudges: Vec<Nudge>,
    /// Calls that were asked for.
    awaits_memory: bool,
    awaits_turn: bool,
}

impl World {
    fn new() -> World {
        World {
            serving: true,
            full: false,
            free: 8,
            buffers: BTreeMap::new(),
            asks: Vec::new(),
            commands: Vec::new(),
            nudges: Vec::new(),
            awaits_memory: false,
            awaits_turn: false,
        }
    }

    /// The answers since the last call: slot and result.
    fn answers(&mut self) -> Vec<(u16, i32)> {
        let answer = |command: DriverCommand| {
            assert_eq!(command.number, COMMIT_AND_FETCH);
            assert_eq!(command.bytes[..2], [0, 0], "the only queue");
            assert_eq!(command.bytes[2..4], command.slot.to_ne_bytes());
            assert_eq!(command.bytes[8..], [0; 8], "no address");
            let result = command.bytes[4..8].try_into().expect("four bytes");
            (command.slot, i32::from_ne_bytes(result))
        };
        self.commands.drain(..).map(answer).collect()
    }

    fn asks(&mut self) -> Vec<Ask> {
        std::mem::take(&mut self.asks)
    }
}

impl Link for World {
    fn exports(&self) -> usize {
        2
    }

    fn export(&self, index: usize) -> Option<Export> {
        Some(Export {
            name: ["other", "tank"][index].into(),
            uuid: Uuid([7; 16]),
            description: String::new(),
            size_bytes: 1 << 30,
            logical_block: 512,
            minimum_block: 1,
            preferred_block: 4096,
            row_bytes: 3 << 16,
            maximum_block: 1 << 25,
            exclusive: false,
            busy: false,
            read_only: false,
            durable: true,
            serving: self.serving,
        })
    }

    fn map(&mut self, _: usize, _: u64, _: u64, _: usize) -> Vec<MapExtent> {
        Vec::new()
    }

    fn buffer(&mut self, bytes: u32) -> Option<BufRef> {
        self.free = self.free.checked_sub(1)?;
        let number = (0..).find(|number| !self.buffers.contains_key(number))?;
        self.buffers.insert(number, Memory::new(bytes as usize));
        Some(BufRef::new(Buf(Buf::USER + number), 0, bytes))
    }

    fn release(&mut self, buf: BufRef) {
        let had = self.buffers.remove(&(buf.buf.0 - Buf::USER));
        assert!(had.is_some(), "a buffer is released once");
        self.free += 1;
    }

    fn full(&self) -> bool {
        self.full
    }

    fn view(&self, index: usize) -> Option<Arc<Export>> {
        self.export(index).map(Arc::new)
    }

    fn unread(&self) -> bool {
        false
    }

    fn await_memory(&mut self) {
        self.awaits_memory = true;
    }

    fn await_turn(&mut self) {
        self.awaits_turn = true;
    }

    fn bytes(&self, _part: BufRef) -> &[u8] {
        &[]
    }

    fn piece(&self, part: BufRef) -> Piece {
        let memory = self.buffers[&(part.buf.0 - Buf::USER)].clone();
        Piece::new(memory, part.offset, part.bytes)
    }

    fn bytes_mut(&mut self, _part: BufRef) -> &mut [u8] {
        unreachable!("a device copies between the driver and a piece")
    }

    fn fill(&mut self, part: BufRef, bytes: &[u8]) {
        self.piece(part).memory.fill(0, bytes);
    }

    fn local_address(&self) -> Option<SocketAddr> {
        None
    }

    fn number(&self) -> u32 {
        0
    }

    fn nudge(&mut self, connection: u32, how: Nudge) {
        assert_eq!(connection, 0);
        self.nudges.push(how);
    }

    fn send_part(&mut self, _part: BufRef) {}

    fn submit(&mut self, ask: Ask) {
        self.asks.push(ask);
    }

    fn send(&mut self, _bytes: &[u8]) {}

    fn send_buffer(&mut self, _buf: BufRef) {}

    fn command(&mut self, command: DriverCommand) {
        self.commands.push(command);
    }
}

/// A queue whose slots are all with the driver.
fn opened(read_only: bool) -> (Queue, Driver, World) {
    let (driver, mut world) = (Driver::default(), World::new());
    let setup = Setup {
        array: "tank".into(),
        depth: DEPTH,
        read_only,
    };
    let mut queue = Queue::new(
        Box::new(driver.clone()),
        setup,
        Arc::default(),
        Arc::default(),
    );
    queue.opened(&mut world);
    let fetched: Vec<(u16, u32)> = world
        .commands
        .drain(..)
        .map(|it| (it.slot, it.number))
        .collect();
    let expected: Vec<(u16, u32)> = (0..DEPTH).map(|slot| (slot, FETCH)).collect();
    assert_eq!(fetched, expected);
    (queue, driver, world)
}

#[test]
fn a_write_has_its_data_and_is_answered_with_its_length() {
    let (mut queue, driver, mut world) = opened(false);
    driver.request(2, WRITE | FUA, 8, 2, &[7; 1024]);
    queue.commanded(2, 0, &mut world);
    let [ask] = world.asks()[..] else {
        panic!("one request")
    };
    assert_eq!((ask.op, ask.fua, ask.export), (RequestOp::Write, true, 1));
    assert_eq!((ask.offset, ask.bytes), (4096, 1024));
    let piece = world.piece(ask.buf.expect("data"));
    assert_eq!(piece.slice(), [7; 1024]);
    assert!(world.answers().is_empty(), "before it is done");
    queue.replied(ask.tag, Ok(()), &mut world);
    assert_eq!(world.answers(), [(2, 1024)]);
    assert!(world.buffers.is_empty());
}

#[test]
fn a_read_gives_its_data_before_its_answer() {
    let (mut queue, driver, mut world) = opened(false);
    driver.request(0, READ, 0, 1, &[]);
    queue.commanded(0, 0, &mut world);
    let [ask] = world.asks()[..] else {
        panic!("one request")
    };
    assert_eq!((ask.op, ask.fua), (RequestOp::Read, false));
    world.fill(ask.buf.expect("room"), &[9; 512]);
    queue.replied(ask.tag, Ok(()), &mut world);
    assert_eq!(driver.with(|pages| pages.data[&0].clone()), [9; 512]);
    assert_eq!(world.answers(), [(0, 512)]);
    assert!(world.buffers.is_empty());
}

#[test]
fn the_other_operations_have_no_data() {
    let (mut queue, driver, mut world) = opened(false);
    let cases = [
        (FLUSH, u64::MAX, 0, RequestOp::Flush, (0, 0)),
        (DISCARD, 8, 16, RequestOp::Trim, (4096, 8192)),
        (
            WRITE_ZEROES,
            1,
            u32::MAX,
            RequestOp::WriteZeroes { fast: false },
            (512, u64::from(u32::MAX) * 512),
        ),
    ];
    for (op, first, sectors, expected, (offset, bytes)) in cases {
        driver.request(1, op, first, sectors, &[]);
        queue.commanded(1, 0, &mut world);
        let [ask] = world.asks()[..] else {
            panic!("one request")
        };
        assert_eq!((ask.op, ask.buf), (expected, None));
        assert_eq!((ask.offset, ask.bytes), (offset, bytes));
        queue.replied(ask.tag, Ok(()), &mut world);
        assert_eq!(world.answers(), [(1, 0)]);
    }
}

#[test]
fn what_cannot_be_done_is_answered_at_once() {
    let (mut queue, driver, mut world) = opened(true);
    let cases = [
        (WRITE, 0, 1, libc::EPERM),
        (DISCARD, 0, 1, libc::EPERM),
        (WRITE_ZEROES, 0, 1, libc::EPERM),
        (READ, 0, 0, libc::EINVAL),
        (READ, 0, (1 << 16) + 1, libc::EINVAL),
        (READ, u64::MAX / 8, 1, libc::EINVAL),
        (4, 0, 1, libc::EOPNOTSUPP),
        (13, 0, 1, libc::EOPNOTSUPP),
    ];
    for (op, first, sectors, errno) in cases {
        driver.request(3, op, first, sectors, &[0; 512]);
        queue.commanded(3, 0, &mut world);
        assert_eq!(world.answers(), [(3, -errno)], "{op} {first} {sectors}");
    }
    assert!(world.asks().is_empty() && world.buffers.is_empty());
}

#[test]
fn errors_of_the_engine_are_those_of_other_front_ends() {
    let (mut queue, driver, mut world) = opened(false);
    let lost = RequestError::Lost { lba: 3, sectors: 1 };
    let cases = [
        (lost, libc::EIO),
        (RequestError::ReadOnly, libc::EPERM),
        (RequestError::NoSpace, libc::ENOSPC),
        (RequestError::Unavailable, libc::EIO),
    ];
    for (error, errno) in cases {
        driver.request(0, READ, 0, 1, &[]);
        queue.commanded(0, 0, &mut world);
        let ask = world.asks()[0];
        queue.replied(ask.tag, Err(error), &mut world);
        assert_eq!(world.answers(), [(0, -errno)], "{error}");
        assert!(world.buffers.is_empty());
    }
}

#[test]
fn data_that_cannot_be_copied_is_an_error() {
    let (mut queue, driver, mut world) = opened(false);
    driver.request(0, READ, 0, 1, &[]);
    queue.commanded(0, 0, &mut world);
    let ask = world.asks()[0];
    driver.with(|pages| pages.fails = Some(libc::EFAULT));
    queue.replied(ask.tag, Ok(()), &mut world);
    assert_eq!(world.answers(), [(0, -libc::EFAULT)]);
    driver.request(1, WRITE, 0, 1, &[1; 512]);
    queue.commanded(1, 0, &mut world);
    assert_eq!(world.answers(), [(1, -libc::EFAULT)]);
    assert!(world.asks().is_empty() && world.buffers.is_empty());
}

#[test]
fn a_request_whose_descriptor_cannot_be_mapped_is_an_error() {
    let (mut queue, driver, mut world) = opened(false);
    driver.request(0, READ, 0, 1, &[]);
    driver.with(|pages| pages.hidden = Some(libc::ENOMEM));
    queue.commanded(0, 0, &mut world);
    assert_eq!(world.answers(), [(0, -libc::ENOMEM)]);
    assert!(world.asks().is_empty());
}

#[test]
fn requests_wait_for_memory_and_for_their_turn_in_order() {
    let (mut queue, driver, mut world) = opened(false);
    world.free = 1;
    for slot in 0..DEPTH {
        driver.request(slot, WRITE, u64::from(slot), 1, &[1; 512]);
        queue.commanded(slot, 0, &mut world);
    }
    let begun = world.asks();
    assert_eq!((begun.len(), world.awaits_memory), (1, true));
    world.full = true;
    queue.memory(&mut world);
    assert!(world.asks().is_empty() && world.awaits_turn);
    queue.replied(begun[0].tag, Ok(()), &mut world);
    (world.full, world.free) = (false, 2);
    queue.memory(&mut world);
    let offsets: Vec<u64> = world.asks().iter().map(|ask| ask.offset).collect();
    assert_eq!(offsets, [512, 1024], "the first first");
    // A request that comes now is behind the one that waits.
    driver.request(0, FLUSH, 0, 0, &[]);
    world.answers();
    queue.commanded(0, 0, &mut world);
    assert!(world.asks().is_empty());
    world.free = 1;
    queue.memory(&mut world);
    let ops: Vec<RequestOp> = world.asks().iter().map(|ask| ask.op).collect();
    assert_eq!(ops, [RequestOp::Write, RequestOp::Flush]);
}

/// An array that stops, or that comes back within this daemon.
#[test]
fn a_request_that_an_array_cannot_take_is_left_and_not_failed() {
    let (mut queue, driver, mut world) = opened(false);
    driver.request(0, WRITE, 0, 1, &[5; 512]);
    queue.commanded(0, 0, &mut world);
    let ask = world.asks()[0];
    world.serving = false;
    queue.replied(ask.tag, Err(RequestError::Unavailable), &mut world);
    assert!(queue.second(&mut world));
    assert!(world.answers().is_empty() && world.asks().is_empty());
    assert!(world.buffers.is_empty());
    world.serving = true;
    assert!(queue.second(&mut world));
    let [ask] = world.asks()[..] else {
        panic!("the same request")
    };
    assert_eq!(world.piece(ask.buf.expect("data")).slice(), [5; 512]);
    queue.replied(ask.tag, Ok(()), &mut world);
    assert_eq!(world.answers(), [(0, 512)]);
}

#[test]
fn the_queue_ends_when_the_driver_has_given_up_every_slot() {
    let (mut queue, _driver, mut world) = opened(false);
    let alive = Arc::downgrade(queue.alive.as_ref().expect("it lives"));
    for slot in 0..DEPTH {
        assert!(world.nudges.is_empty());
        queue.commanded(slot, RESULT_ENDED, &mut world);
    }
    assert_eq!(world.nudges, [Nudge::End]);
    queue.ended(&mut world);
    assert_eq!(alive.strong_count(), 0);
}

fn refused(queue: &Queue) -> Option<i32> {
    queue.refused.error()?.raw_os_error()
}

/// Whether it was the first for its slot, or an answer: the kernel has it once.
#[test]
fn a_command_that_is_refused_for_the_moment_is_given_again() {
    for errno in [libc::EAGAIN, libc::EINTR, libc::ENOMEM, libc::ECANCELED] {
        let (mut queue, driver, mut world) = opened(false);
        driver.request(1, WRITE, 0, 1, &[5; 512]);
        queue.commanded(1, 0, &mut world);
        let ask = world.asks()[0];
        queue.replied(ask.tag, Ok(()), &mut world);
        assert_eq!(world.answers(), [(1, 512)]);
        for slot in [0, 1] {
            queue.commanded(slot, -errno, &mut world);
        }
        assert!(world.commands.is_empty(), "not at once");
        assert_eq!(refused(&queue), Some(errno));
        assert!(queue.second(&mut world));
        let numbers = world.commands.iter().map(|command| command.number);
        assert_eq!(numbers.collect::<Vec<_>>(), [FETCH, COMMIT_AND_FETCH]);
        world.commands.remove(0);
        assert_eq!(world.answers(), [(1, 512)]);
        assert_eq!(refused(&queue), None);
        assert!(queue.second(&mut world));
        assert!(world.commands.is_empty() && world.nudges.is_empty());
    }
}

#[test]
fn a_command_that_is_refused_for_good_is_noted() {
    for result in [-libc::EINVAL, -libc::EBUSY, -libc::EOPNOTSUPP, 1] {
        let (mut queue, _driver, mut world) = opened(false);
        queue.commanded(0, result, &mut world);
        queue.commanded(1, -libc::EAGAIN, &mut world);
        assert!(queue.second(&mut world));
        assert_eq!(world.commands.drain(..).count(), 1);
        assert_eq!(refused(&queue), Some(-result), "it stays");
        for slot in 1..DEPTH {
            queue.commanded(slot, RESULT_ENDED, &mut world);
        }
        assert_eq!(world.nudges, [Nudge::End]);
    }
}

#[test]
fn an_array_that_is_not_there_ends_the_queue() {
    let mut world = World::new();
    let setup = Setup {
        array: "gone".into(),
        depth: DEPTH,
        read_only: false,
    };
    let mut queue = Queue::new(
        Box::new(Driver::default()),
        setup,
        Arc::default(),
        Arc::default(),
    );
    queue.opened(&mut world);
    assert_eq!(world.nudges, [Nudge::End]);
    assert!(world.commands.is_empty());
}
