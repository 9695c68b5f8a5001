//! A session that its peer has closed executes nothing more: its requests may have been sent again elsewhere.

use super::leases::{Bench, Client};
use super::*;
use crate::front::connection::IN_FLIGHT_MAX;
use crate::front::nbd::{self, KernelPeer};
use std::sync::Arc;

const READ: u16 = 0;
const WRITE: u16 = 1;
const BLOCK: u32 = 4096;
/// Where the request writes that may not begin, what it writes, and what is there else.
const AT: u64 = 1 << 20;
const STALE: u8 = 0xaa;
const BEFORE: u8 = 0;
/// Fits into a socket's buffer.
const LARGE: u32 = 64 * 1024;

/// A reactor whose members wait, and the kernel as its client.
struct Machine {
    bench: Bench,
    kernel: Client,
    alive: Arc<()>,
}

impl Machine {
    fn new(test: &str) -> Machine {
        let mut bench = Bench::new(test);
        let alive = Arc::new(());
        let theirs = connect(&mut bench, &alive);
        let attach = move || Client::on(theirs, "test");
        let kernel = bench.during(attach).expect("it is served");
        bench.hold(true);
        Machine {
            bench,
            kernel,
            alive,
        }
    }

    fn write(&mut self, byte: u8, bytes: u32) {
        let payload = vec![byte; bytes as usize];
        self.kernel.ask(WRITE, AT, bytes, &payload);
    }

    fn turns(&mut self) {
        (0..20).for_each(|_| self.bench.turn());
    }

    fn reads(&mut self, count: u32) {
        (0..count).for_each(|_| self.kernel.ask(READ, 0, BLOCK, &[]));
    }

    fn requests(&self) -> u32 {
        self.bench.shell.pending.iter().count() as u32
    }

    /// The kernel closes the connection, and then the members answer and `release` is called. What is there in
    /// the end.
    fn close_and_find(self, release: impl FnOnce(&mut UserMemory)) -> u8 {
        let Machine {
            mut bench,
            kernel,
            alive,
        } = self;
        drop(kernel);
        bench.turn();
        let ended = Arc::strong_count(&alive) == 1;
        release(&mut bench.shell.users);
        bench.hold(false);
        bench.turn_until(|bench| bench.shell.connections.is_empty());
        let path = bench.path.clone();
        let read = bench.during(move || Client::attach(&path, "test")?.read(AT, BLOCK));
        let bytes = read.expect("it is read");
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "whole blocks");
        if bytes[0] != STALE {
            assert!(ended, "it ends although its members still wait");
        }
        bytes[0]
    }
}

/// The kernel's end of a new connection.
fn connect(bench: &mut Bench, alive: &Arc<()>) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let alive = Arc::downgrade(alive);
    let maker: ProtocolMaker = Arc::new(move || {
        let peer = KernelPeer {
            read_only: false,
            alive: alive.upgrade(),
        };
        Box::new(nbd::Connection::for_kernel(peer))
    });
    bench.shell.adopt(Wire::socket(ours.into()), &maker);
    theirs
}

#[test]
fn what_is_unread_when_its_session_is_closed_does_not_begin() {
    let mut machine = Machine::new("closed-unread");
    machine.write(STALE, BLOCK);
    assert_eq!(machine.close_and_find(|_| ()), BEFORE);
}

#[test]
fn what_is_behind_a_full_session_that_is_closed_does_not_begin() {
    let mut machine = Machine::new("closed-hold");
    machine.reads(IN_FLIGHT_MAX / 2);
    machine.turns();
    machine.reads(IN_FLIGHT_MAX / 2);
    machine.write(STALE, BLOCK);
    machine.turns();
    assert_eq!(machine.requests(), IN_FLIGHT_MAX);
    assert_eq!(machine.close_and_find(|_| ()), BEFORE);
}

#[test]
fn what_waits_for_memory_when_its_session_is_closed_does_not_begin() {
    let mut machine = Machine::new("closed-memory");
    let users = &mut machine.bench.shell.users;
    let taken = (1000..).map_while(|other| users.allocate(LARGE, other));
    let taken: Vec<BufRef> = taken.collect();
    machine.write(STALE, LARGE);
    machine.turns();
    assert_eq!(machine.requests(), 0);
    let release = |users: &mut UserMemory| taken.into_iter().for_each(|buf| users.release(buf));
    assert_eq!(machine.close_and_find(release), BEFORE);
}

/// Here the session is also full, so that nothing is received that would tell of the end.
#[test]
fn what_waits_for_its_turn_when_its_session_is_closed_does_not_begin() {
    let mut machine = Machine::new("closed-lanes");
    // The array gets a few writes of a client to one block at a time. These begin, and finish.
    (0..10).for_each(|_| machine.write(1, BLOCK));
    machine.write(STALE, BLOCK);
    machine.turns();
    machine.reads(IN_FLIGHT_MAX - 8);
    machine.turns();
    assert_eq!(machine.requests(), IN_FLIGHT_MAX);
    assert_eq!(machine.close_and_find(|_| ()), 1);
}
