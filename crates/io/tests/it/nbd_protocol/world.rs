//! A shell and an engine small enough to see through: memory with a budget, a disk of bytes, requests
//! answered when a test says so. It checks what the seam demands of a connection on every call.

use restripe_array::report::{Health, MapExtent};
use restripe_array::{Buf, BufRef, RequestError, RequestOp, SECTOR_BYTES, Uuid};
use restripe_io::front::nbd::Connection;
use restripe_io::front::{
    Ask, BUFFER_BYTES_MAX, DriverCommand, Export, Link, MESSAGE_BYTES_MAX, Nudge, Protocol, Then,
};
use restripe_io::memory::{Memory, Piece};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A small generator of reproducible numbers (xorshift).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = self.next() as u8);
    }
}

/// What one turn maps for a connection, as in the shell.
const MAPPED_A_TURN: u64 = 256 << 20;

pub struct World {
    pub exports: Vec<Export>,
    pub disk: Vec<u8>,
    /// Bytes of the disk that are lost.
    pub lost: Option<(u64, u64)>,
    pub buffers: BTreeMap<u32, Vec<u8>>,
    next_buffer: u32,
    pub budget: usize,
    pub in_flight_max: usize,
    /// Requests handed in and not yet answered.
    pub asks: VecDeque<Ask>,
    /// What was asked for, oldest first.
    pub log: Vec<(RequestOp, u64, u64, bool)>,
    /// What was sent to the peer and not yet taken by it.
    pub sent: Vec<u8>,
    /// The peer takes no more than this before requests are held back.
    pub unsent_max: usize,
    pub memory_peak: usize,
    /// It is to be called when memory is free.
    pub hungry: bool,
    /// Bytes mapped since something was last received or sent, and maps in all.
    mapped: u64,
    pub maps: usize,
    /// The exports that it has attached to.
    pub attached: Vec<usize>,
    /// Its number as a connection, and what it did to others.
    pub number: u32,
    pub nudges: Vec<(u32, Nudge)>,
    pub local: Option<std::net::SocketAddr>,
    /// The socket of a connection that reads it itself, and the descriptors that it watches.
    pub socket: Option<OwnedFd>,
    pub watches: Vec<(u16, Arc<OwnedFd>)>,
    next_watch: u16,
}

impl World {
    pub fn new(size: usize) -> World {
        let export = Export {
            name: "disk".to_owned(),
            uuid: Uuid([7; 16]),
            description: "a test".to_owned(),
            size_bytes: size as u64,
            logical_block: 512,
            minimum_block: 1,
            preferred_block: 65536,
            row_bytes: 3 << 16,
            maximum_block: restripe_io::front::BUFFER_BYTES_MAX,
            exclusive: false,
            busy: false,
            read_only: false,
            durable: true,
            serving: true,
        };
        World {
            exports: vec![export],
            disk: vec![0; size],
            lost: None,
            buffers: BTreeMap::new(),
            next_buffer: Buf::USER,
            budget: 64 << 20,
            in_flight_max: 16,
            asks: VecDeque::new(),
            log: Vec::new(),
            sent: Vec::new(),
            unsent_max: 1 << 20,
            memory_peak: 0,
            hungry: false,
            mapped: 0,
            maps: 0,
            attached: Vec::new(),
            number: 0,
            nudges: Vec::new(),
            local: None,
            socket: None,
            watches: Vec::new(),
            next_watch: 0,
        }
    }

    fn memory(&self) -> usize {
        self.buffers.values().map(Vec::len).sum()
    }

    pub fn execute(&mut self, ask: &Ask) -> Result<(), RequestError> {
        let range = ask.offset as usize..(ask.offset + ask.bytes) as usize;
        assert!(range.end <= self.disk.len(), "nothing beyond the end");
        match ask.op {
            RequestOp::Read => {
                if let Some((from, until)) = self.lost
                    && from < ask.offset + ask.bytes
                    && ask.offset < until
                {
                    let lba = from / SECTOR_BYTES;
                    let sectors = (until - from) / SECTOR_BYTES;
                    return Err(RequestError::Lost { lba, sectors });
                }
                let part = ask.buf.expect("reads have memory");
                let buffer = self.buffers.get_mut(&part.buf.0).expect("known");
                buffer[self::range(part)].copy_from_slice(&self.disk[range]);
            }
            RequestOp::Write => {
                let part = ask.buf.expect("writes have memory");
                let buffer = &self.buffers[&part.buf.0][self::range(part)];
                self.disk[range].copy_from_slice(buffer);
            }
            RequestOp::Trim | RequestOp::WriteZeroes { fast: false } => self.disk[range].fill(0),
            RequestOp::WriteZeroes { fast: true } => return Err(RequestError::NotFast),
            RequestOp::Flush => {}
            RequestOp::CompareAndWrite | RequestOp::Or => return self.execute_atomic(ask, range),
        }
        Ok(())
    }

    fn execute_atomic(&mut self, ask: &Ask, on_disk: Range<usize>) -> Result<(), RequestError> {
        let whole = ask.buf.expect("atomic requests have memory");
        assert_eq!(u64::from(whole.bytes), 3 * ask.bytes, "three parts");
        let part = |index: u32| self::range(whole.part(index * ask.bytes as u32, ask.bytes as u32));
        let buffer = self.buffers.get_mut(&whole.buf.0).expect("known");
        buffer[part(2)].copy_from_slice(&self.disk[on_disk.clone()]);
        if ask.op == RequestOp::Or {
            let (given, found) = (buffer[part(0)].to_vec(), buffer[part(2)].to_vec());
            let made = given.iter().zip(&found).map(|(one, other)| one | other);
            buffer[part(1)].copy_from_slice(&made.collect::<Vec<u8>>());
        } else if buffer[part(0)] != buffer[part(2)] {
            return Err(RequestError::Differs);
        }
        self.disk[on_disk].copy_from_slice(&buffer[part(1)]);
        Ok(())
    }
}

impl Link for World {
    fn exports(&self) -> usize {
        self.exports.len()
    }

    fn export(&self, index: usize) -> Option<Export> {
        self.exports.get(index).cloned()
    }

    fn view(&self, index: usize) -> Option<Arc<Export>> {
        self.export(index).map(Arc::new)
    }

    fn attach(&mut self, export: usize) {
        self.attached.push(export);
    }

    /// Odd pages are holes; a lost range is lost.
    fn map(&mut self, _: usize, offset: u64, bytes: u64, max: usize) -> Vec<MapExtent> {
        self.mapped += bytes;
        self.maps += 1;
        let first = offset / 4096;
        let last = (offset + bytes).div_ceil(4096);
        (first..last)
            .map(|page| MapExtent {
                lba: page * 8,
                sectors: 8,
                hole: page % 2 == 1,
                health: match self.lost {
                    Some((from, until)) if from <= page * 4096 && page * 4096 < until => {
                        Health::Lost
                    }
                    _ => Health::Healthy,
                },
            })
            .take(max)
            .collect()
    }

    fn buffer(&mut self, bytes: u32) -> Option<BufRef> {
        assert!(bytes > 0 && bytes <= BUFFER_BYTES_MAX);
        if self.memory() + bytes as usize > self.budget {
            return None;
        }
        let buf = self.next_buffer;
        self.next_buffer += 1;
        self.buffers.insert(buf, vec![0xee; bytes as usize]);
        self.memory_peak = self.memory_peak.max(self.memory());
        Some(BufRef::new(Buf(buf), 0, bytes))
    }

    fn release(&mut self, buf: BufRef) {
        let found = self.buffers.remove(&buf.buf.0);
        assert!(found.is_some(), "released once");
        let used = self.asks.iter().any(|ask| uses(ask, buf));
        assert!(!used, "not while a request uses it");
    }

    fn full(&self) -> bool {
        let in_flight = self.asks.len() >= self.in_flight_max;
        in_flight || self.sent.len() >= self.unsent_max || self.mapped >= MAPPED_A_TURN
    }

    fn unread(&self) -> bool {
        self.sent.len() >= self.unsent_max
    }

    fn await_memory(&mut self) {
        self.hungry = true;
    }

    fn await_turn(&mut self) {
        self.hungry = true;
    }

    fn local_address(&self) -> Option<std::net::SocketAddr> {
        self.local
    }

    fn bytes(&self, part: BufRef) -> &[u8] {
        &self.buffers[&part.buf.0][range(part)]
    }

    fn command(&mut self, _command: DriverCommand) {
        panic!("a client over bytes has no driver");
    }

    fn piece(&self, part: BufRef) -> Piece {
        Piece::new(Memory::new(part.bytes as usize), 0, part.bytes)
    }

    fn bytes_mut(&mut self, part: BufRef) -> &mut [u8] {
        let used = self.asks.iter().any(|ask| uses(ask, part));
        assert!(!used, "not while a request uses it");
        let buffer = self.buffers.get_mut(&part.buf.0).expect("known");
        &mut buffer[range(part)]
    }

    fn fill(&mut self, part: BufRef, bytes: &[u8]) {
        self.bytes_mut(part)[..bytes.len()].copy_from_slice(bytes);
    }

    fn number(&self) -> u32 {
        self.number
    }

    fn nudge(&mut self, connection: u32, how: Nudge) {
        self.nudges.push((connection, how));
    }

    fn submit(&mut self, ask: Ask) {
        assert!(self.asks.len() < self.in_flight_max);
        assert!(self.asks.iter().all(|other| other.tag != ask.tag));
        self.log.push((ask.op, ask.offset, ask.bytes, ask.fua));
        self.asks.push_back(ask);
    }

    fn socket(&self) -> io::Result<OwnedFd> {
        self.socket.as_ref().expect("it has one").try_clone()
    }

    fn watch(&mut self, fd: &Arc<OwnedFd>) -> u16 {
        self.next_watch += 1;
        self.watches.push((self.next_watch, Arc::clone(fd)));
        self.next_watch
    }

    fn unwatch(&mut self, watch: u16) {
        self.watches.retain(|(number, _)| *number != watch);
    }

    fn send(&mut self, bytes: &[u8]) {
        self.sent.extend_from_slice(bytes);
    }

    fn send_part(&mut self, part: BufRef) {
        let bytes = &self.buffers[&part.buf.0][range(part)];
        self.sent.extend_from_slice(bytes);
    }

    fn send_buffer(&mut self, buf: BufRef) {
        self.send_part(buf);
        self.release(buf);
    }
}

fn range(part: BufRef) -> std::ops::Range<usize> {
    let start = part.offset as usize;
    start..start + part.bytes as usize
}

fn uses(ask: &Ask, part: BufRef) -> bool {
    ask.buf.is_some_and(|buf| buf.buf == part.buf)
}

/// A connection in its world, fed with whatever pieces a test likes.
pub struct Peer<P = Connection> {
    pub connection: P,
    pub world: World,
    inbox: Vec<u8>,
    /// The buffer that is being filled, and how far it is.
    payload: Option<(BufRef, usize)>,
    pub then: Then,
}

impl Peer {
    pub fn new(world: World) -> Peer {
        Peer::of(Connection::new(), world)
    }
}

impl<P: Protocol> Peer<P> {
    pub fn of(connection: P, world: World) -> Peer<P> {
        let mut peer = Peer {
            connection,
            world,
            inbox: Vec::new(),
            payload: None,
            then: Then::More,
        };
        peer.connection.opened(&mut peer.world);
        peer
    }

    pub fn ended(&self) -> bool {
        matches!(self.then, Then::Finish | Then::Abort)
    }

    /// Hands over received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
        self.world.mapped = 0;
        self.pump();
    }

    /// Does what a shell does until the connection wants something that is not there.
    pub fn pump(&mut self) {
        while !self.ended() && self.pump_once() {}
    }

    fn pump_once(&mut self) -> bool {
        if let Some((buf, filled)) = self.payload {
            let whole = buf.bytes as usize;
            let count = (whole - filled).min(self.inbox.len());
            let memory = self.world.buffers.get_mut(&buf.buf.0).expect("held");
            let at = buf.offset as usize + filled;
            memory[at..at + count].copy_from_slice(&self.inbox[..count]);
            self.inbox.drain(..count);
            if filled + count < whole {
                self.payload = Some((buf, filled + count));
                return false;
            }
            self.payload = None;
            self.connection.filled(&mut self.world);
        }
        let received = self.connection.received(&self.inbox, &mut self.world);
        assert!(received.consumed <= self.inbox.len());
        self.inbox.drain(..received.consumed);
        self.then = received.then;
        match received.then {
            Then::Payload(buf) => {
                self.payload = Some((buf, 0));
                true
            }
            Then::More => {
                assert!(self.inbox.len() <= MESSAGE_BYTES_MAX);
                false
            }
            Then::Hold => {
                assert!(self.world.full() || !self.connection.is_proven());
                false
            }
            Then::Memory => {
                assert!(!self.world.buffers.is_empty(), "memory will come free");
                false
            }
            Then::Secure => unreachable!("TLS is not offered here"),
            Then::Finish | Then::Abort => false,
        }
    }

    /// Answers the request at this place in the queue.
    pub fn answer(&mut self, place: usize) {
        let ask = self.world.asks.remove(place).expect("a request in flight");
        let result = self.world.execute(&ask);
        self.connection.replied(ask.tag, result, &mut self.world);
        self.feed_hungry();
        self.pump();
    }

    /// Answers everything, oldest first.
    pub fn settle(&mut self) {
        while !self.world.asks.is_empty() {
            self.answer(0);
        }
    }

    /// Takes what was sent, and goes on if that was waited for.
    pub fn take(&mut self) -> Vec<u8> {
        let sent = std::mem::take(&mut self.world.sent);
        self.world.mapped = 0;
        self.feed_hungry();
        self.pump();
        sent
    }

    /// Something was answered or sent: memory may be free.
    fn feed_hungry(&mut self) {
        if std::mem::take(&mut self.world.hungry) {
            self.connection.memory(&mut self.world);
        }
    }

    /// The peer is gone, and the shell waits for the requests in flight.
    pub fn end(&mut self) {
        self.then = Then::Abort;
        self.connection.ended(&mut self.world);
    }

    /// The socket is closed, and the shell gives back what the protocol still holds. No request may be left.
    pub fn abandon(mut self) -> World {
        self.then = Then::Abort;
        self.settle();
        self.world.buffers.clear();
        self.world
    }

    /// The socket is closed: what a shell then does, and the check that nothing stays behind.
    pub fn close(mut self) -> World {
        if let Some((buf, _)) = self.payload.take() {
            self.world.release(buf);
        }
        self.then = Then::Abort;
        self.settle();
        assert!(self.world.buffers.is_empty(), "every buffer is given back");
        self.world
    }
}
