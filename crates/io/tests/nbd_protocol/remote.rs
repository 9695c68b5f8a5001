//! The engine's operations on a remote member, against servers of different talents.

use crate::world::{Peer, Random, World};
use restripe_array::{IoError, IoOp, RequestOp};
use restripe_io::nbd_wire::remote::{Incoming, Operation, Payload, Remote, member_info};
use std::collections::BTreeMap;

const SIZE: usize = 1 << 20;

/// A remote member whose bytes go straight to a server's connection.
struct Member {
    remote: Remote,
    server: Peer,
    inbox: Vec<u8>,
    /// Memory of the operations.
    memory: BTreeMap<u64, Vec<u8>>,
    landed: Vec<(u64, Result<(), IoError>)>,
    /// Flags that the server does not offer: it is made to look poorer on the way.
    hidden: u16,
}

const FLUSH: u16 = 1 << 2;
const FUA: u16 = 1 << 3;
const TRIM: u16 = 1 << 5;
const WRITE_ZEROES: u16 = 1 << 6;

impl Member {
    fn new(hidden: u16) -> Member {
        let mut member = Member {
            remote: Remote::new("disk"),
            server: Peer::new(World::new(SIZE)),
            inbox: Vec::new(),
            memory: BTreeMap::new(),
            landed: Vec::new(),
            hidden,
        };
        member.exchange();
        assert!(member.remote.info().is_some());
        member
    }

    fn begin(&mut self, tag: u64, op: IoOp, offset: u64, data: Vec<u8>, durable: bool) {
        let operation = Operation {
            op,
            offset,
            bytes: data.len() as u64,
            durable,
        };
        self.memory.insert(tag, data);
        self.remote.begin(tag, operation);
    }

    /// Takes flags out of the export's description as it passes by.
    fn impoverish(&self, sent: &mut [u8]) {
        let info = [0, 0, 0, 3, 0, 0, 0, 12, 0, 0];
        if let Some(at) = sent.windows(info.len()).position(|window| window == info) {
            let flags = at + info.len() + 8;
            let offered = u16::from_be_bytes([sent[flags], sent[flags + 1]]);
            let left = (offered & !self.hidden).to_be_bytes();
            sent[flags..flags + 2].copy_from_slice(&left);
        }
    }

    fn send(&mut self) -> bool {
        let mut any = false;
        while let Some(outgoing) = self.remote.next_outgoing() {
            let mut message = outgoing.header.to_vec();
            match outgoing.payload {
                Payload::Nothing => {}
                Payload::Zeros(bytes) => message.resize(message.len() + bytes as usize, 0),
                Payload::Memory { tag, from, bytes } => {
                    let from = from as usize;
                    let memory = &self.memory[&tag];
                    message.extend_from_slice(&memory[from..from + bytes as usize]);
                }
            }
            self.server.feed(&message);
            any = true;
        }
        any
    }

    fn exchange(&mut self) {
        loop {
            let sending = self.send();
            self.server.settle();
            let mut sent = self.server.take();
            self.impoverish(&mut sent);
            self.inbox.extend(sent);
            let receiving = self.receive();
            self.landed
                .extend(std::iter::from_fn(|| self.remote.next_landed()));
            if !sending && !receiving {
                return;
            }
        }
    }

    fn receive(&mut self) -> bool {
        let mut out = Vec::new();
        let (consumed, incoming) = self
            .remote
            .received(&self.inbox, &mut out)
            .expect("a sound server");
        self.inbox.drain(..consumed);
        self.server.feed(&out);
        if let Incoming::Payload { tag, from, bytes } = incoming {
            let memory = self.memory.get_mut(&tag).expect("a read");
            let (from, bytes) = (from as usize, bytes as usize);
            memory[from..from + bytes].copy_from_slice(&self.inbox[..bytes]);
            self.inbox.drain(..bytes);
            self.remote.filled();
        }
        incoming != Incoming::More
    }

    fn ops(&self) -> Vec<(RequestOp, u64, u64, bool)> {
        self.server.world.log.clone()
    }
}

#[test]
fn a_rich_server_is_used_as_it_is() {
    let mut member = Member::new(0);
    let data = vec![9; 4096];
    member.begin(1, IoOp::Write, 512, data.clone(), true);
    member.begin(2, IoOp::Flush, 0, Vec::new(), false);
    member.begin(3, IoOp::Zero, 8192, vec![0; 4096], false);
    member.begin(4, IoOp::Trim, 0, vec![0; 512], false);
    member.begin(5, IoOp::Read, 512, vec![0; 4096], false);
    member.exchange();
    assert_eq!(
        member.ops(),
        [
            (RequestOp::Write, 512, 4096, true),
            (RequestOp::Flush, 0, 0, false),
            (RequestOp::WriteZeroes { fast: false }, 8192, 4096, false),
            (RequestOp::Trim, 0, 512, false),
            (RequestOp::Read, 512, 4096, false),
        ]
    );
    let landed: Vec<_> = (1..=5).map(|tag| (tag, Ok(()))).collect();
    assert_eq!(member.landed, landed);
    assert_eq!(member.memory[&5], data);
}

#[test]
fn a_poor_server_is_helped_out() {
    let mut member = Member::new(FUA | WRITE_ZEROES | TRIM);
    member.server.world.disk.fill(7);
    member.begin(1, IoOp::Write, 0, vec![9; 512], true);
    member.begin(2, IoOp::Zero, 8192, vec![0; 4096], true);
    member.begin(3, IoOp::Trim, 0, vec![0; 512], false);
    member.exchange();
    assert_eq!(
        member.ops(),
        [
            (RequestOp::Write, 0, 512, false),
            (RequestOp::Write, 8192, 4096, false),
            (RequestOp::Flush, 0, 0, false),
            (RequestOp::Flush, 0, 0, false),
        ],
        "durable by a flush behind, zeros by writing"
    );
    member.landed.sort_by_key(|(tag, _)| *tag);
    assert_eq!(
        member.landed,
        [(1, Ok(())), (2, Ok(())), (3, Err(IoError::Unsupported))]
    );
    assert_eq!(member.server.world.disk[8192..12288], [0; 4096]);
}

#[test]
fn without_a_flush_there_is_nothing_to_wait_for() {
    let mut member = Member::new(FUA | FLUSH);
    member.begin(1, IoOp::Flush, 0, Vec::new(), false);
    member.begin(2, IoOp::Write, 0, vec![9; 512], true);
    member.exchange();
    assert_eq!(member.ops(), [(RequestOp::Write, 0, 512, false)]);
    assert_eq!(member.landed, [(1, Ok(())), (2, Ok(()))]);
}

#[test]
fn what_fails_is_told_and_what_breaks_is_gone() {
    let mut member = Member::new(0);
    member.server.world.lost = Some((0, 512));
    member.begin(1, IoOp::Read, 0, vec![0; 1024], false);
    member.begin(2, IoOp::Read, SIZE as u64, vec![0; 512], false);
    member.begin(3, IoOp::Read, 512, vec![0; 512], false);
    member.exchange();
    member.landed.sort_by_key(|(tag, _)| *tag);
    assert_eq!(
        member.landed,
        [
            (1, Err(IoError::Media)),
            (2, Err(IoError::Other(libc::EINVAL))),
            (3, Ok(()))
        ]
    );
    member.landed.clear();
    member.begin(4, IoOp::Flush, 0, Vec::new(), false);
    member.remote.next_outgoing().expect("a flush");
    member.begin(5, IoOp::Flush, 0, Vec::new(), false);
    member.remote.break_off();
    let mut landed: Vec<_> = std::iter::from_fn(|| member.remote.next_landed()).collect();
    landed.sort_by_key(|(tag, _)| *tag);
    let gone = Err(IoError::Gone);
    assert_eq!(landed, [(4, gone), (5, gone)]);
    assert_eq!(member.remote.next_outgoing(), None);
}

#[test]
fn what_an_export_is_like_as_a_member() {
    let member = Member::new(0);
    let mut info = *member.remote.info().expect("connected");
    let seen = member_info(&info).expect("blocks of one byte");
    assert_eq!((seen.sectors, seen.logical_block), (2048, 512));
    assert!(seen.fast_zero && !seen.trim_zeroes);
    info.block_minimum = 4096;
    assert_eq!(member_info(&info).map(|m| m.logical_block), Some(4096));
    info.block_minimum = 8192;
    assert_eq!(member_info(&info), None);
}

#[test]
fn many_operations_at_once_against_a_model() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut member = Member::new([0, FUA, WRITE_ZEROES][random.below(3)]);
        let mut model = vec![0; SIZE];
        let mut expected = BTreeMap::new();
        for tag in 0..300 {
            let place = (tag as usize % 256) * 4096;
            let mut data = vec![0; 512 * (1 + random.below(8))];
            let range = place..place + data.len();
            let op = [IoOp::Read, IoOp::Write, IoOp::Zero][random.below(3)];
            if op == IoOp::Write {
                random.fill(&mut data);
                model[range].copy_from_slice(&data);
            } else if op == IoOp::Zero {
                model[range].fill(0);
            } else {
                expected.insert(tag, model[range].to_vec());
            }
            member.begin(tag, op, place as u64, data, random.below(2) == 0);
            if random.below(20) == 0 {
                member.exchange();
            }
        }
        member.exchange();
        assert_eq!(member.landed.len(), 300);
        assert!(member.landed.iter().all(|(_, result)| result.is_ok()));
        assert!(member.server.world.disk == model, "seed {seed}");
        for (tag, data) in expected {
            assert!(member.memory[&tag] == data, "seed {seed} read {tag}");
        }
    }
}
