//! What the kernel of this machine gets that other clients do not.

use super::{Connection, KernelPeer};
use crate::front::{Ask, Export, Link, Nudge, Protocol};
use crate::memory::{Memory, Piece};
use crate::nbd_wire::message::{Request, SIMPLE_REPLY_BYTES, SimpleReply};
use crate::nbd_wire::option::{code, encode_info_query, encode_option};
use crate::nbd_wire::{Command, Errno, handshake_flags};
use restripe_array::report::MapExtent;
use restripe_array::{BufRef, RequestError, Uuid};
use std::net::SocketAddr;
use std::sync::Arc;

const BLOCK: u32 = 4096;

/// One export.
struct World {
    size: u64,
    serving: bool,
    sent: Vec<u8>,
    asks: Vec<Ask>,
}

impl Link for World {
    fn exports(&self) -> usize {
        1
    }

    fn export(&self, _index: usize) -> Option<Export> {
        Some(Export {
            name: "tank".into(),
            uuid: Uuid([7; 16]),
            description: String::new(),
            size_bytes: self.size,
            logical_block: 512,
            minimum_block: 1,
            preferred_block: BLOCK,
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

    fn buffer(&mut self, _bytes: u32) -> Option<BufRef> {
        None
    }

    fn release(&mut self, _buf: BufRef) {}

    fn full(&self) -> bool {
        false
    }

    fn view(&self, index: usize) -> Option<Arc<Export>> {
        self.export(index).map(Arc::new)
    }

    fn unread(&self) -> bool {
        false
    }

    fn await_memory(&mut self) {}

    fn await_turn(&mut self) {}

    fn bytes(&self, _part: BufRef) -> &[u8] {
        &[]
    }

    fn piece(&self, part: BufRef) -> Piece {
        Piece::new(Memory::new(part.bytes as usize), 0, part.bytes)
    }

    fn bytes_mut(&mut self, _part: BufRef) -> &mut [u8] {
        &mut []
    }

    fn fill(&mut self, _part: BufRef, _bytes: &[u8]) {}

    fn local_address(&self) -> Option<SocketAddr> {
        None
    }

    fn number(&self) -> u32 {
        0
    }

    fn nudge(&mut self, _connection: u32, _how: Nudge) {}

    fn send_part(&mut self, _part: BufRef) {}

    fn submit(&mut self, ask: Ask) {
        self.asks.push(ask);
    }

    fn send(&mut self, bytes: &[u8]) {
        self.sent.extend_from_slice(bytes);
    }

    fn send_buffer(&mut self, _buf: BufRef) {}
}

fn world() -> World {
    World {
        size: u64::from(BLOCK),
        serving: true,
        sent: Vec::new(),
        asks: Vec::new(),
    }
}

/// A connection past its handshake.
fn connected(mut connection: Connection, world: &mut World) -> Connection {
    let flags = handshake_flags::CLIENT_FIXED_NEWSTYLE | handshake_flags::CLIENT_NO_ZEROES;
    let mut bytes = flags.to_be_bytes().to_vec();
    encode_option(code::GO, &[&encode_info_query("tank", &[])], &mut bytes);
    connection.opened(world);
    let received = connection.received(&bytes, world);
    assert_eq!(received.consumed, bytes.len());
    world.sent.clear();
    connection
}

fn kernel(read_only: bool, world: &mut World) -> (Connection, Arc<()>) {
    let alive = Arc::new(());
    let peer = KernelPeer {
        read_only,
        alive: Some(Arc::clone(&alive)),
    };
    (connected(Connection::for_kernel(peer), world), alive)
}

/// Trims the block at this offset; a request without data. The error of the reply, if there is a reply.
fn trim(connection: &mut Connection, world: &mut World, offset: u64) -> Option<u32> {
    let request = Request {
        flags: 0,
        command: Command::Trim.code(),
        cookie: 7,
        offset,
        bytes: BLOCK,
    };
    let _ = connection.received(&request.encode(), world);
    reply(world)
}

fn reply(world: &mut World) -> Option<u32> {
    let sent = std::mem::take(&mut world.sent);
    let reply = sent.first_chunk::<SIMPLE_REPLY_BYTES>()?;
    Some(SimpleReply::decode(reply).expect("a reply").error)
}

#[test]
fn the_kernel_sees_a_growth_and_other_clients_do_not() {
    let mut world = world();
    let mut other = connected(Connection::new(), &mut world);
    let (mut kernel, _alive) = kernel(false, &mut world);
    let beyond = u64::from(BLOCK);
    let refused = Some(Errno::Invalid.code());
    assert_eq!(trim(&mut kernel, &mut world, beyond), refused);
    world.size *= 2;
    assert_eq!(trim(&mut other, &mut world, beyond), refused);
    assert!(world.asks.is_empty());
    assert_eq!(trim(&mut kernel, &mut world, beyond), None);
    assert_eq!(world.asks.len(), 1, "the array has it");
    assert_eq!(trim(&mut kernel, &mut world, 2 * beyond), refused);
}

#[test]
fn a_stopping_array_gives_the_kernel_no_error() {
    for serving in [false, true] {
        let mut world = world();
        let mut other = connected(Connection::new(), &mut world);
        let (mut kernel, _alive) = kernel(false, &mut world);
        for connection in [&mut other, &mut kernel] {
            assert_eq!(trim(connection, &mut world, 0), None);
        }
        world.serving = serving;
        let unavailable = Err(RequestError::Unavailable);
        other.replied(0, unavailable, &mut world);
        assert_eq!(reply(&mut world), Some(Errno::Shutdown.code()));
        kernel.replied(0, unavailable, &mut world);
        // An array that halts and stays is an error: no other daemon will come.
        let expected = serving.then(|| Errno::Shutdown.code());
        assert_eq!(reply(&mut world), expected);
    }
}

#[test]
fn a_device_that_may_not_write_does_not() {
    let mut world = world();
    let (mut kernel, _alive) = kernel(true, &mut world);
    let refused = Some(Errno::NotPermitted.code());
    assert_eq!(trim(&mut kernel, &mut world, 0), refused);
    assert!(world.asks.is_empty());
}

#[test]
fn the_end_of_a_connection_is_noticed() {
    let mut world = world();
    let (mut kernel, alive) = kernel(false, &mut world);
    assert!(
        kernel.is_session(),
        "requests that have not begun are dropped"
    );
    assert_eq!(trim(&mut kernel, &mut world, 0), None);
    assert_eq!(Arc::strong_count(&alive), 2);
    kernel.ended(&mut world);
    assert_eq!(Arc::strong_count(&alive), 1);
    kernel.replied(0, Ok(()), &mut world);
    assert_eq!(reply(&mut world), None);
}
