//! Our client against our server, in memory, with a model of the disk beside them.

use crate::nbd_protocol::world::{Peer, Random, World};
use restripe_array::IoError;
use restripe_io::nbd_wire::client::{
    Client, ClientError, ClientEvent, ClientRequest, ExportInfo, Replies,
};
use restripe_io::nbd_wire::{Command, Errno, command_flags};
use std::collections::BTreeMap;

const SIZE: usize = 256 << 10;

/// A client whose bytes go straight to a server's connection.
struct Pair {
    client: Client,
    server: Peer,
    inbox: Vec<u8>,
    /// Memory of reads in flight.
    reads: BTreeMap<u64, Vec<u8>>,
    replies: Vec<(u64, Result<(), Errno>)>,
}

impl Pair {
    fn new(replies: Replies, world: World) -> Pair {
        let mut pair = Pair {
            client: Client::new("disk", replies),
            server: Peer::new(world),
            inbox: Vec::new(),
            reads: BTreeMap::new(),
            replies: Vec::new(),
        };
        pair.exchange().expect("a server that greets");
        pair
    }

    fn info(&self) -> ExportInfo {
        *self.client.info().expect("connected")
    }

    fn request(&mut self, request: ClientRequest, payload: &[u8]) -> Result<(), IoError> {
        let mut out = Vec::new();
        self.client.request(request, &mut out)?;
        out.extend_from_slice(payload);
        if request.command == Command::Read {
            let memory = vec![0xdd; request.bytes as usize];
            self.reads.insert(request.tag, memory);
        }
        self.server.feed(&out);
        Ok(())
    }

    /// Carries bytes both ways until nothing moves.
    fn exchange(&mut self) -> Result<(), ClientError> {
        loop {
            self.inbox.extend(self.server.take());
            let mut out = Vec::new();
            let step = self.client.received(&self.inbox, &mut out)?;
            self.inbox.drain(..step.consumed);
            let still = out.is_empty() && step.consumed == 0;
            self.server.feed(&out);
            match step.event {
                ClientEvent::More if still => return Ok(()),
                ClientEvent::More | ClientEvent::Ready | ClientEvent::Secure => {}
                ClientEvent::Payload { tag, offset, bytes } => {
                    let memory = self.reads.get_mut(&tag).expect("a read");
                    let (from, count) = (offset as usize, bytes as usize);
                    assert!(self.inbox.len() >= count, "sent in one piece here");
                    memory[from..from + count].copy_from_slice(&self.inbox[..count]);
                    self.inbox.drain(..count);
                    self.client.filled();
                }
                ClientEvent::Zeroes { tag, offset, bytes } => {
                    let memory = self.reads.get_mut(&tag).expect("a read");
                    memory[offset as usize..(offset + bytes) as usize].fill(0);
                }
                ClientEvent::Reply { tag, result } => self.replies.push((tag, result)),
            }
        }
    }
}

fn read(tag: u64, offset: u64, bytes: u32) -> ClientRequest {
    ClientRequest {
        tag,
        command: Command::Read,
        offset,
        bytes,
        flags: 0,
    }
}

#[test]
fn the_client_learns_what_the_server_offers() {
    for replies in [Replies::Simple, Replies::Structured] {
        let info = Pair::new(replies, World::new(SIZE)).info();
        assert_eq!(info.size_bytes, SIZE as u64);
        assert_eq!((info.block_minimum, info.block_preferred), (1, 65536));
        assert_eq!(info.payload_maximum, 32 << 20);
        assert!(info.forces_unit_access() && info.zeroes_fast() && !info.read_only());
        assert!(info.takes(Command::Trim) && info.takes(Command::Flush));
    }
}

#[test]
fn the_client_says_why_it_was_refused() {
    let mut server = Peer::new(World::new(SIZE));
    let mut client = Client::new("nothing", Replies::Simple);
    let mut out = Vec::new();
    let greeting = server.take();
    client.received(&greeting, &mut out).expect("a greeting");
    server.feed(&out);
    let error = client.received(&server.take(), &mut out);
    let reason = ClientError::Refused("no such export".to_owned());
    assert_eq!(error, Err(reason));
}

#[test]
fn the_client_sends_nothing_that_was_not_offered() {
    let mut world = World::new(SIZE);
    world.exports[0].read_only = true;
    let mut pair = Pair::new(Replies::Simple, world);
    let mut request = read(1, SIZE as u64 - 4, 8);
    assert_eq!(
        pair.request(request, b""),
        Err(IoError::Other(libc::EINVAL))
    );
    request.command = Command::Trim;
    assert_eq!(pair.request(request, b""), Err(IoError::Unsupported));
    assert_eq!(pair.client.in_flight(), 0);
}

#[test]
fn errors_come_back_as_what_they_are() {
    for replies in [Replies::Simple, Replies::Structured] {
        let mut pair = Pair::new(replies, World::new(SIZE));
        pair.server.world.lost = Some((0, 512));
        pair.request(read(5, 0, 1024), b"").expect("in range");
        let fast = ClientRequest {
            tag: 6,
            command: Command::WriteZeroes,
            offset: 0,
            bytes: 512,
            flags: command_flags::FAST_ZERO,
        };
        pair.request(fast, b"").expect("offered");
        pair.server.settle();
        pair.exchange().expect("sound replies");
        assert_eq!(
            pair.replies,
            [(5, Err(Errno::Io)), (6, Err(Errno::NotSupported))]
        );
        assert_eq!(Errno::Io.io_error(), IoError::Media);
    }
}

/// Rounds of requests that do not overlap, answered in random order, against a model.
#[test]
fn what_was_written_is_read() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let replies = [Replies::Simple, Replies::Structured][random.below(2)];
        let mut world = World::new(SIZE);
        world.in_flight_max = 1 + random.below(8);
        world.budget = 64 << 10;
        let mut pair = Pair::new(replies, world);
        let mut model = vec![0; SIZE];
        for _ in 0..30 {
            round(&mut random, &mut pair, &mut model);
        }
        assert_eq!(pair.server.world.disk, model, "seed {seed}");
        pair.server.close();
    }
}

fn round(random: &mut Random, pair: &mut Pair, model: &mut [u8]) {
    const LANE: usize = 16 << 10;
    let lanes = 1 + random.below(SIZE / LANE);
    for lane in 0..lanes {
        let start = lane * LANE + random.below(LANE / 2);
        let count = 1 + random.below(LANE / 2 - 1);
        let mut request = read(lane as u64, start as u64, count as u32);
        let mut payload = Vec::new();
        match random.below(3) {
            0 => {}
            1 => {
                request.command = Command::Write;
                payload.resize(count, 0);
                random.fill(&mut payload);
                model[start..start + count].copy_from_slice(&payload);
            }
            _ => {
                request.command = Command::WriteZeroes;
                model[start..start + count].fill(0);
            }
        }
        pair.request(request, &payload).expect("offered");
    }
    while !pair.server.world.asks.is_empty() {
        let place = random.below(pair.server.world.asks.len());
        pair.server.answer(place);
    }
    pair.exchange().expect("sound replies");
    assert_eq!(pair.replies.len(), lanes);
    assert!(pair.replies.drain(..).all(|(_, result)| result.is_ok()));
    for (lane, memory) in std::mem::take(&mut pair.reads) {
        let within = &model[lane as usize * LANE..][..LANE];
        let found = within.windows(memory.len()).any(|window| window == memory);
        assert!(found, "what is read was written");
    }
}
