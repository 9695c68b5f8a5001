//! Random SCSI commands, several at a time, held against a model of the medium.
//!
//! Commands of one batch that change the medium are about different blocks, so each has one outcome; what a
//! batch reads may be of before or after each change. Requests are answered in any order, data goes every
//! way, memory is short, and some blocks are lost. A failure names the seed.

use super::initiator::{Initiator, Outcome, Pdu, hub};
use crate::nbd_protocol::world::{Random, World};
use std::collections::BTreeMap;

const BLOCK: usize = 512;
const BLOCKS: usize = 1024;
/// The longest command, and the most commands of a batch.
const LENGTH: usize = 24;
const COMMANDS: usize = 8;
const BATCHES: usize = 40;
const SEEDS: u64 = 60;
const GOOD: u8 = 0;
const TASK_SET_FULL: u8 = 0x28;
const CHECK: u8 = 2;
const MEDIUM_ERROR: (u8, u8, u8) = (3, 0x11, 0);
const MISCOMPARE: (u8, u8, u8) = (0x0e, 0x1d, 0);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Read,
    Write,
    WriteVerify,
    /// With bytes to compare.
    Verify,
    CompareWrite,
    OrWrite,
    /// With a pattern of one block.
    WriteSame,
    Zero,
    Unmap,
    Synchronize,
}

const ALL: [What; 10] = [
    What::Read,
    What::Write,
    What::WriteVerify,
    What::Verify,
    What::CompareWrite,
    What::OrWrite,
    What::WriteSame,
    What::Zero,
    What::Unmap,
    What::Synchronize,
];

struct Command {
    what: What,
    lba: usize,
    blocks: usize,
    data: Vec<u8>,
    /// Bytes that come from the medium.
    reads: usize,
    /// What it makes of its blocks; nothing, if it fails or changes nothing.
    makes: Option<Vec<u8>>,
    status: (u8, Option<(u8, u8, u8)>),
    /// What it has read.
    read: Vec<u8>,
}

struct Swarm {
    random: Random,
    one: Initiator,
    /// What the medium must hold.
    model: Vec<u8>,
    lost: Option<(usize, usize)>,
    /// Whether a write sends data with its command (immediate), or right behind it without an R2T (unsolicited).
    /// `first_burst` is the most bytes of both.
    immediate: bool,
    unsolicited: bool,
    first_burst: usize,
    /// How many commands came with data, with data behind them, and found the task set full.
    ways: [usize; 3],
    /// Commands to be sent again.
    again: Vec<Command>,
}

fn cdb(what: What, lba: usize, blocks: usize) -> [u8; 16] {
    let (code, flags) = match what {
        What::Read => (0x88, 0),
        What::Write => (0x8a, 0),
        What::WriteVerify => (0x8e, 0x02),
        What::Verify => (0x8f, 0x02),
        What::CompareWrite => (0x89, 0),
        What::OrWrite => (0x8b, 0),
        What::WriteSame => (0x93, 0x08),
        What::Zero => (0x93, 0x09),
        What::Unmap => (0x42, 0),
        What::Synchronize => (0x91, 0),
    };
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (code, flags);
    match what {
        What::Unmap => cdb[8] = 24,
        _ => {
            cdb[2..10].copy_from_slice(&(lba as u64).to_be_bytes());
            cdb[13] = blocks as u8;
        }
    }
    cdb
}

/// The list of an UNMAP with one descriptor.
fn unmap(lba: usize, blocks: usize) -> Vec<u8> {
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend_from_slice(&(lba as u64).to_be_bytes());
    list.extend_from_slice(&(blocks as u32).to_be_bytes());
    list.extend_from_slice(&[0; 4]);
    list
}

fn or(one: &[u8], other: &[u8]) -> Vec<u8> {
    one.iter()
        .zip(other)
        .map(|(one, other)| one | other)
        .collect()
}

impl Swarm {
    fn new(seed: u64) -> Swarm {
        let mut random = Random::new(seed);
        let mut world = World::new(BLOCKS * BLOCK);
        world.budget = [96 << 10, 1 << 20][random.below(2)];
        random.fill(&mut world.disk);
        let model = world.disk.clone();
        let lost = (random.below(3) == 0).then(|| {
            let first = random.below(BLOCKS - 4);
            (first, first + 1 + random.below(4))
        });
        world.lost = lost.map(|(first, end)| ((first * BLOCK) as u64, (end * BLOCK) as u64));
        let (immediate, unsolicited) = (random.below(2) == 1, random.below(2) == 1);
        let bursts = random.below(2);
        let first_burst = [1024, 65536][bursts];
        let keys = [
            ["ImmediateData=No", "ImmediateData=Yes"][usize::from(immediate)],
            ["InitialR2T=Yes", "InitialR2T=No"][usize::from(unsolicited)],
            ["HeaderDigest=None", "HeaderDigest=CRC32C"][random.below(2)],
            ["DataDigest=None", "DataDigest=CRC32C"][random.below(2)],
            ["MaxBurstLength=2048", "MaxBurstLength=262144"][bursts],
            ["FirstBurstLength=1024", "FirstBurstLength=65536"][bursts],
            [
                "MaxRecvDataSegmentLength=700",
                "MaxRecvDataSegmentLength=65536",
            ][random.below(2)],
        ];
        let mut one = Initiator::logged_in(&hub(), world, &keys);
        one.segment = [513, 4096, 8192][random.below(3)];
        Swarm {
            random,
            one,
            model,
            lost,
            immediate,
            unsolicited,
            first_burst,
            ways: [0; 3],
            again: Vec::new(),
        }
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.random.fill(&mut bytes);
        bytes
    }

    fn is_lost(&self, lba: usize, blocks: usize) -> bool {
        self.lost
            .is_some_and(|(first, end)| first < lba + blocks && lba < end)
    }

    /// A command about these blocks, and what must come of it.
    fn draw(&mut self, lba: usize, blocks: usize) -> Command {
        let what = ALL[self.random.below(ALL.len())];
        let there = self.model[lba * BLOCK..(lba + blocks) * BLOCK].to_vec();
        let given = self.bytes(there.len());
        let differs = self.random.below(3) == 0;
        let compared = if differs {
            given.clone()
        } else {
            there.clone()
        };
        let (data, makes) = match what {
            What::Read | What::Synchronize => (Vec::new(), None),
            What::Write | What::WriteVerify => (given.clone(), Some(given)),
            What::Verify => (compared, None),
            What::CompareWrite => {
                let new = self.bytes(there.len());
                ([&compared[..], &new].concat(), (!differs).then_some(new))
            }
            What::OrWrite => (given.clone(), Some(or(&given, &there))),
            What::WriteSame => (given[..BLOCK].to_vec(), Some(given[..BLOCK].repeat(blocks))),
            What::Zero => (Vec::new(), Some(vec![0; there.len()])),
            What::Unmap => (unmap(lba, blocks), Some(vec![0; there.len()])),
        };
        let compares = matches!(what, What::Verify | What::CompareWrite);
        let reads_medium = compares || matches!(what, What::Read | What::OrWrite);
        let verifies = what == What::WriteVerify;
        let (makes, status) = match self.is_lost(lba, blocks) {
            true if reads_medium && what != What::OrWrite && what != What::CompareWrite => {
                (None, (CHECK, Some(MEDIUM_ERROR)))
            }
            true if verifies => (makes, (CHECK, Some(MEDIUM_ERROR))),
            _ if compares && differs => (None, (CHECK, Some(MISCOMPARE))),
            _ => (makes, (GOOD, None)),
        };
        let reads = if what == What::Read { there.len() } else { 0 };
        Command {
            what,
            lba,
            blocks,
            data,
            reads,
            makes,
            status,
            read: Vec::new(),
        }
    }

    /// Commands about blocks that no two of them have.
    fn batch(&mut self) -> Vec<Command> {
        let count = 1 + self.random.below(COMMANDS);
        let part = BLOCKS / count;
        let places: Vec<(usize, usize)> = (0..count)
            .map(|nth| {
                let blocks = 1 + self.random.below(LENGTH);
                (nth * part + self.random.below(part - blocks), blocks)
            })
            .collect();
        places
            .into_iter()
            .map(|(lba, blocks)| self.draw(lba, blocks))
            .collect()
    }

    fn run_batch(&mut self) {
        let mut flying: BTreeMap<u32, Command> = BTreeMap::new();
        for command in self.batch() {
            self.launch(command, &mut flying);
        }
        while !flying.is_empty() {
            while let Some(pdu) = self.one.receive() {
                self.take(&pdu, &mut flying);
            }
            let asks = self.one.peer.world.asks.len();
            if asks > 0 {
                let place = self.random.below(asks);
                self.one.peer.answer(place);
            }
            for command in std::mem::take(&mut self.again) {
                self.launch(command, &mut flying);
            }
        }
    }

    /// Sends a command, with as much of its data as may come at once, or less.
    fn launch(&mut self, command: Command, flying: &mut BTreeMap<u32, Command>) {
        let cdb = cdb(command.what, command.lba, command.blocks);
        let data = &command.data;
        let mut request = self.one.scsi(&cdb, command.reads, data.len());
        let first = data.len().min(self.first_burst);
        let with_it = match self.immediate {
            true => self.random.below(first + 1),
            false => 0,
        };
        let follows = self.unsolicited && with_it < first && self.random.below(2) == 0;
        if follows {
            request[1] &= !0x80;
        }
        self.one.send(request, &data[..with_it]);
        if follows {
            self.one.unsolicited(data, with_it, first);
        }
        self.ways[0] += usize::from(with_it > 0);
        self.ways[1] += usize::from(follows);
        flying.insert(self.one.tag, command);
    }

    fn take(&mut self, pdu: &Pdu, flying: &mut BTreeMap<u32, Command>) {
        let tag = pdu.number(16);
        let command = flying.get_mut(&tag).expect("it is of a command in flight");
        self.one.tag = tag;
        match pdu.opcode() {
            0x31 => {
                let data = std::mem::take(&mut command.data);
                self.one.data_out(pdu, &data);
                command.data = data;
            }
            0x25 => {
                assert_eq!(pdu.number(40) as usize, command.read.len());
                command.read.extend_from_slice(&pdu.data);
                if pdu.header[1] & 1 != 0 {
                    self.end(pdu, tag, flying);
                }
            }
            0x21 => self.end(pdu, tag, flying),
            other => panic!("an opcode of {other:#x}"),
        }
        self.one.tag = self.one.tag.max(flying.keys().copied().max().unwrap_or(0));
    }

    fn end(&mut self, pdu: &Pdu, tag: u32, flying: &mut BTreeMap<u32, Command>) {
        let command = flying.remove(&tag).expect("it was in flight");
        let outcome: Outcome = self.one.ended(pdu, Vec::new());
        if outcome.status == TASK_SET_FULL {
            self.ways[2] += 1;
            return self.again.push(command);
        }
        let told = (command.what, command.lba, command.blocks);
        assert_eq!((outcome.status, outcome.sense), command.status, "{told:?}");
        let range = command.lba * BLOCK..(command.lba + command.blocks) * BLOCK;
        if command.what == What::Read && outcome.status == GOOD {
            assert!(
                command.read == self.model[range.clone()],
                "{told:?} reads other bytes"
            );
        }
        if let Some(made) = command.makes {
            self.model[range].copy_from_slice(&made);
        }
    }
}

#[test]
fn random_commands_do_what_a_disk_does() {
    let mut ways = [0; 3];
    for seed in 0..SEEDS {
        let seed =
            std::env::var("RESTRIPE_SEED").map_or(seed, |only| only.parse().expect("a number"));
        eprintln!("replay: RESTRIPE_SEED={seed} cargo nextest run -p restripe-io random_commands");
        let mut swarm = Swarm::new(seed);
        for _ in 0..BATCHES {
            swarm.run_batch();
        }
        for (all, of_this) in ways.iter_mut().zip(swarm.ways) {
            *all += of_this;
        }
        let world = swarm.one.peer.close();
        assert!(
            world.disk == swarm.model,
            "seed {seed}: the medium has other bytes"
        );
    }
    let replayed = std::env::var_os("RESTRIPE_SEED").is_some();
    assert!(replayed || ways.iter().all(|count| *count > 10), "{ways:?}");
}
