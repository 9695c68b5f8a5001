//! Atomic requests beside other changes of the same sectors, judged by the order that the values show.
//!
//! Each value is written once. A compare and write names the value that it took the place of, so the last value
//! leads back, one by one, to a plain write. Every other plain write must have come before that one.

use crate::sets::{PLAIN, Pair, Start};
use restripe_array::layout::{Level, Rotation};
use restripe_array::{
    Buf, BufRef, Command, CommandTag, Member, Nanos, Request, RequestError, RequestOp, RequestTag,
    SECTOR_BYTES,
};
use restripe_sim::rng::Rng;
use restripe_sim::world::{Happening, World};
use restripe_tier::Engine;
use std::collections::BTreeMap;

const CLIENTS: usize = 10;
const REQUESTS: u64 = 300;
/// Registers: a sector, two within a block, and the last of a chunk.
const REGISTERS: [u64; 3] = [3, 9, 15];
/// Sectors of the array in which bits are set: across chunks, and not in whole blocks.
const BITS: (u64, u64) = (29, 7);
const BYTE: u64 = 8;

struct Asked {
    client: usize,
    op: RequestOp,
    buf: Buf,
    bytes: u32,
    register: usize,
    /// What it expects, and what it writes.
    values: (u64, u64),
    begun: u64,
}

/// A value that was written, or may have been.
#[derive(Clone, Copy)]
struct Written {
    /// What it took the place of, if a compare and write put it there.
    over: Option<u64>,
    begun: u64,
    ended: u64,
}

struct Trial {
    world: World<Engine>,
    rng: Rng,
    asked: BTreeMap<u64, Asked>,
    /// By register and value.
    written: [BTreeMap<u64, Written>; REGISTERS.len()],
    /// What a client read last of each register.
    known: [[u64; REGISTERS.len()]; CLIENTS],
    next: u64,
    clock: u64,
    bits: Vec<u8>,
    differed: u64,
    succeeded: u64,
}

fn pairs() -> Vec<(&'static str, Pair)> {
    let rotation = Rotation::default();
    let mut pairs = vec![
        ("raid1", Pair::single(Level::Raid1, 2)),
        ("raid5", Pair::single(Level::Raid5(rotation), 3)),
        ("raid6", Pair::single(Level::Raid6(rotation), 5)),
        ("ido", Pair::redundant()),
        ("graid", Pair::log_disk()),
        ("reraid", Pair::buffered()),
    ];
    pairs.iter_mut().for_each(|(_, pair)| pair.uneven = true);
    pairs
}

impl Trial {
    fn new(pair: &Pair, seed: u64) -> Trial {
        let mut start = Start::ask(pair, pair.created(), PLAIN);
        assert_eq!(start.go_on(), Ok(()));
        let mut world = start.session.world;
        while world.happening().is_some() {}
        let zero = Written {
            over: None,
            begun: 0,
            ended: 0,
        };
        Trial {
            world,
            rng: Rng::new(seed),
            asked: BTreeMap::new(),
            written: std::array::from_fn(|_| BTreeMap::from([(0, zero)])),
            known: [[0; REGISTERS.len()]; CLIENTS],
            next: 1,
            clock: 1,
            bits: vec![0; (BITS.1 * SECTOR_BYTES) as usize],
            differed: 0,
            succeeded: 0,
        }
    }

    fn ask(&mut self, client: usize) {
        let register = self.rng.below(REGISTERS.len() as u64) as usize;
        let expected = self.known[client][register];
        match self.rng.below(8) {
            0 => self.send(client, RequestOp::Write, register, expected),
            1 | 2 => self.send(client, RequestOp::Or, register, 0),
            3 | 4 => self.send(client, RequestOp::Read, register, 0),
            _ => self.send(client, RequestOp::CompareAndWrite, register, expected),
        }
    }

    fn send(&mut self, client: usize, op: RequestOp, register: usize, expected: u64) {
        let (lba, sectors) = match op {
            RequestOp::Or => BITS,
            _ => (REGISTERS[register], 1),
        };
        let bytes = (sectors * SECTOR_BYTES) as u32;
        let parts = if op.is_atomic() { 3 } else { 1 };
        let buf = self.world.memory().allocate(bytes * parts);
        let value = self.next;
        self.next += 1;
        match op {
            RequestOp::Or => self.set_bit(client, buf, bytes),
            RequestOp::Write => self.put(buf, 0, value),
            RequestOp::CompareAndWrite => {
                self.put(buf, 0, expected);
                self.put(buf, bytes, value);
            }
            _ => {}
        }
        self.clock += 1;
        let asked = Asked {
            client,
            op,
            buf,
            bytes,
            register,
            values: (expected, value),
            begun: self.clock,
        };
        self.asked.insert(value, asked);
        self.world.request(Request {
            tag: RequestTag(value),
            op,
            offset: lba * SECTOR_BYTES,
            bytes: u64::from(bytes),
            buf: BufRef::new(buf, 0, bytes * parts),
            fua: false,
        });
    }

    /// A bit that no other request sets.
    fn set_bit(&mut self, client: usize, buf: Buf, bytes: u32) {
        let bit = self.next % (u64::from(bytes) * BYTE);
        let memory = self.world.memory().get_mut(BufRef::new(buf, 0, bytes));
        memory[(bit / BYTE) as usize] |= 1 << (bit % BYTE);
        assert!(client < CLIENTS);
        self.bits[(bit / BYTE) as usize] |= 1 << (bit % BYTE);
    }

    /// A sector filled with a value.
    fn put(&mut self, buf: Buf, at: u32, value: u64) {
        let sector = BufRef::new(buf, at, SECTOR_BYTES as u32);
        let memory = self.world.memory().get_mut(sector);
        memory
            .chunks_mut(8)
            .for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
    }

    fn value(&mut self, buf: Buf, at: u32) -> u64 {
        let memory = self
            .world
            .memory()
            .get(BufRef::new(buf, at, SECTOR_BYTES as u32));
        let word = |word: &[u8]| u64::from_le_bytes(word.try_into().expect("8 bytes"));
        let first = word(&memory[..8]);
        assert!(
            memory.chunks(8).all(|one| word(one) == first),
            "a torn sector"
        );
        first
    }

    fn answered(&mut self, tag: u64, result: Result<(), RequestError>) {
        let asked = self.asked.remove(&tag).expect("it was asked");
        self.clock += 1;
        let (expected, value) = asked.values;
        let over = (asked.op == RequestOp::CompareAndWrite).then_some(expected);
        let (begun, ended) = (asked.begun, self.clock);
        match (asked.op, result) {
            (RequestOp::Read, Ok(())) => {
                self.known[asked.client][asked.register] = self.value(asked.buf, 0);
            }
            (RequestOp::CompareAndWrite, Err(RequestError::Differs)) => {
                let there = self.value(asked.buf, 2 * asked.bytes);
                assert_ne!(there, expected, "it says that equal values differ");
                self.known[asked.client][asked.register] = there;
                self.differed += 1;
            }
            (RequestOp::Write | RequestOp::CompareAndWrite, Ok(())) => {
                self.succeeded += u64::from(over.is_some());
                self.known[asked.client][asked.register] = value;
                let written = Written { over, begun, ended };
                self.written[asked.register].insert(value, written);
            }
            (RequestOp::Or, Ok(())) => {}
            (op, result) => panic!("{op:?} of {value}: {result:?}"),
        }
        self.world.memory().release(asked.buf);
    }

    fn step(&mut self) {
        assert!(self.world.step(), "requests wait for nothing");
        while let Some(happening) = self.world.happening() {
            if let Happening::Reply(tag, result) = happening {
                self.answered(tag.0, result);
            }
        }
    }

    fn run(&mut self, lost: Option<(u64, Member)>) {
        for count in 0..REQUESTS {
            if let Some((_, member)) = lost.filter(|(at, _)| *at == count) {
                self.world.depart(member);
            }
            while self.asked.len() == CLIENTS || !self.world.ready() {
                self.step();
            }
            let busy = |client: &usize| self.asked.values().any(|asked| asked.client == *client);
            let idle: Vec<usize> = (0..CLIENTS).filter(|client| !busy(client)).collect();
            let client = *self.rng.pick(&idle);
            self.ask(client);
            if self.rng.chance(1, 3) {
                self.step();
            }
        }
        while !self.asked.is_empty() {
            self.step();
        }
    }

    fn judge(&mut self, what: &str) {
        let violation = self.world.violations().first();
        assert!(violation.is_none(), "{what}: {violation:?}");
        for register in 0..REGISTERS.len() {
            self.send(0, RequestOp::Read, register, 0);
            while !self.asked.is_empty() {
                self.step();
            }
            let last = self.known[0][register];
            judge_order(what, &self.written[register], last);
        }
        let (differed, succeeded) = (self.differed, self.succeeded);
        assert!(
            differed > 10 && succeeded > 10,
            "{what}: {differed}, {succeeded}"
        );
        self.judge_bits(what);
    }

    fn judge_bits(&mut self, what: &str) {
        let bytes = (BITS.1 * SECTOR_BYTES) as u32;
        let buf = self.world.memory().allocate(bytes);
        let buf = BufRef::new(buf, 0, bytes);
        self.world.request(Request {
            tag: RequestTag(0),
            op: RequestOp::Read,
            offset: BITS.0 * SECTOR_BYTES,
            bytes: u64::from(bytes),
            buf,
            fua: false,
        });
        while self.world.happening().is_none() {
            assert!(self.world.step());
        }
        assert!(
            self.world.memory().get(buf) == self.bits,
            "{what}: a bit is lost"
        );
    }
}

fn judge_order(what: &str, written: &BTreeMap<u64, Written>, last: u64) {
    let mut chain = vec![last];
    let mut root = written[&last];
    while let Some(over) = root.over {
        assert!(
            written.contains_key(&over),
            "{what}: {over} was never written"
        );
        assert!(!chain.contains(&over), "{what}: {over} was replaced twice");
        chain.push(over);
        root = written[&over];
    }
    for (value, one) in written {
        let before = one.begun <= root.ended || chain.contains(value);
        assert!(
            before,
            "{what}: {value} was acknowledged, and {chain:?} do not know of it"
        );
    }
    let mut replaced: Vec<u64> = written.values().filter_map(|one| one.over).collect();
    replaced.sort_unstable();
    let count = replaced.len();
    replaced.dedup();
    assert_eq!(
        replaced.len(),
        count,
        "{what}: two requests replaced the same value"
    );
}

#[test]
fn no_change_comes_between_reading_and_writing() {
    for (name, pair) in pairs() {
        for seed in 0..6 {
            let mut trial = Trial::new(&pair, seed);
            trial.run(None);
            trial.judge(&format!("{name}, seed {seed}"));
        }
    }
}

#[test]
fn nor_while_a_member_fails() {
    for (name, pair) in pairs() {
        for seed in 0..6 {
            let mut trial = Trial::new(&pair, seed);
            let at = trial.rng.below(REQUESTS);
            trial.run(Some((at, Member(1))));
            trial.judge(&format!("{name}, seed {seed}, member 1 lost at {at}"));
        }
    }
}

/// Limits are those of all requests: those that wait count, too.
#[test]
fn what_waits_is_bounded() {
    let pair = Pair::single(Level::Raid1, 2);
    let mut trial = Trial::new(&pair, 1);
    let mut count = 0;
    while trial.world.ready() {
        trial.send(0, RequestOp::CompareAndWrite, 0, 0);
        count += 1;
        assert!(count <= 16, "more requests than the limits allow");
    }
    while !trial.asked.is_empty() {
        trial.step();
    }
    assert_eq!((trial.succeeded, trial.differed), (1, count - 1));
    assert!(trial.world.now() < Nanos::from_secs(1));
}

/// A stop, also one that exchanges the engine, ends them all as if nothing had been asked.
#[test]
fn a_stop_waits_for_them() {
    for (name, pair) in pairs() {
        let mut trial = Trial::new(&pair, 3);
        for client in 0..CLIENTS {
            trial.send(client, RequestOp::Or, 0, 0);
        }
        for _ in 0..3 {
            trial.step();
        }
        let tag = CommandTag(77);
        trial.world.command(tag, Command::Stop);
        let mut answered = None;
        while answered.is_none() {
            assert!(trial.world.step(), "{name}: the stop is not answered");
            while let Some(happening) = trial.world.happening() {
                match happening {
                    Happening::Reply(tag, result) => trial.answered(tag.0, result),
                    Happening::CommandReply(it, result) if it == tag => answered = Some(result),
                    _ => {}
                }
            }
        }
        assert_eq!((answered, trial.asked.len()), (Some(Ok(())), 0), "{name}");
    }
}
