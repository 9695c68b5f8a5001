//! Random and mutated streams: the target neither panics nor exceeds its memory, and gives all of it back.

use super::initiator::{HEADER, Initiator, NAME, chap_response, header, hex, hub, put};
use crate::nbd_protocol::world::{Random, World};
use restripe_io::front::iscsi::chap::Secrets;
use restripe_io::front::iscsi::hub::{Hub, NAME_PREFIX, Target};
use restripe_io::front::{Nudge, Protocol, Then};
use std::sync::Arc;

const SIZE: usize = 1 << 20;
const BUDGET: usize = 2 << 20;

fn world() -> World {
    let mut world = World::new(SIZE);
    world.budget = BUDGET;
    world.in_flight_max = 16;
    world
}

fn initiator(random: &mut Random) -> Initiator {
    let mut initiator = Initiator::new(&hub(), world());
    let keys = [
        format!("InitiatorName={NAME}"),
        format!("TargetName={NAME_PREFIX}disk"),
        ["InitialR2T=No", "InitialR2T=Yes"][random.below(2)].to_owned(),
        ["MaxBurstLength=4096", "MaxBurstLength=262144"][random.below(2)].to_owned(),
    ];
    initiator.log_in(1, 3, &keys.each_ref().map(String::as_str));
    initiator.attend();
    initiator
}

/// A PDU that may make sense: commands of all kinds with lengths that may fit.
fn pdu(random: &mut Random, command: &mut u32) -> Vec<u8> {
    let (mut header, data) = parts(random, command);
    header[6..8].copy_from_slice(&(data.len() as u16).to_be_bytes());
    [&header[..], &data].concat()
}

/// Its header, and its data.
fn parts(random: &mut Random, command: &mut u32) -> ([u8; HEADER], Vec<u8>) {
    let opcode = [0x01, 0x01, 0x01, 0x05, 0x00, 0x02, 0x04, 0x06, 0x10][random.below(9)];
    let immediate = if random.below(8) == 0 { 0x40 } else { 0 };
    // Most commands have a task attribute that there is.
    let odd = opcode != 0x01 || random.below(8) == 0;
    let mut pdu = header(
        opcode | immediate,
        random.next() as u8 & if odd { 0xff } else { 0xf9 },
        random.below(6) as u32,
    );
    put(
        &mut pdu,
        20,
        [0, 512, 4096, 65536, u32::MAX, 1 << 8][random.below(6)],
    );
    put(&mut pdu, 24, *command);
    if opcode != 0x05 && immediate == 0 {
        *command += 1;
    }
    put(&mut pdu, 36, random.below(2) as u32);
    put(&mut pdu, 40, [0, 512, 4096][random.below(3)]);
    let codes = [
        0x00, 0x03, 0x08, 0x0a, 0x12, 0x15, 0x16, 0x17, 0x1a, 0x1b, 0x1e, 0x25, 0x28, 0x2a, 0x2e,
        0x2f, 0x34, 0x35, 0x37, 0x41, 0x42, 0x55, 0x56, 0x57, 0x5a, 0x5e, 0x5f, 0x88, 0x89, 0x8a,
        0x8b, 0x8e, 0x8f, 0x90, 0x91, 0x93, 0x9e, 0xa0, 0xa3, 0xa8, 0xaa, 0xae, 0xaf, 0xb7,
    ];
    if opcode == 0x01 {
        let mut cdb = [0; 16];
        if random.below(2) == 0 {
            random.fill(&mut cdb[1..]);
        } else {
            (cdb[8], cdb[4], cdb[13]) = (8, 8, random.below(9) as u8);
        }
        cdb[0] = codes[random.below(codes.len())];
        pdu[32..48].copy_from_slice(&cdb);
    }
    let length = [0, 0, 4, 512, 1000, 4096][random.below(6)];
    let mut data = vec![0; length];
    random.fill(&mut data);
    (pdu, data)
}

fn run(random: &mut Random, mut initiator: Initiator, stream: &[u8]) -> World {
    let mut rest = stream;
    while !rest.is_empty() && !initiator.peer.ended() {
        let (piece, after) = rest.split_at(1 + random.below(rest.len().min(3000)));
        rest = after;
        initiator.peer.feed(piece);
        while !initiator.peer.world.asks.is_empty() && random.below(3) > 0 {
            let place = random.below(initiator.peer.world.asks.len());
            initiator.peer.answer(place);
        }
        if !matches!(initiator.peer.then, Then::More) {
            initiator.peer.settle();
            initiator.peer.take();
        }
    }
    initiator.peer.settle();
    initiator.peer.take();
    initiator.peer.settle();
    initiator.peer.abandon()
}

#[test]
fn commands_that_may_make_sense_never_break_the_target() {
    for seed in 0..4000 {
        let mut random = Random::new(seed);
        let initiator = initiator(&mut random);
        let mut command = initiator.command;
        let mut stream = Vec::new();
        for _ in 0..1 + random.below(40) {
            stream.extend(pdu(&mut random, &mut command));
        }
        if seed % 2 == 0 {
            for _ in 0..1 + random.below(4) {
                let at = random.below(stream.len());
                stream[at] ^= 1 << random.below(8);
            }
        }
        let world = run(&mut random, initiator, &stream);
        assert!(world.memory_peak <= BUDGET, "seed {seed}");
    }
}

#[test]
fn random_bytes_never_break_the_target() {
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let mut stream = vec![0; 1 + random.below(3000)];
        random.fill(&mut stream);
        // Lengths that do not end it at once.
        for at in (0..stream.len()).step_by(48) {
            if let Some(head) = stream.get_mut(at..at + 8) {
                (head[4], head[5], head[6]) = (0, 0, head[6] & 3);
            }
        }
        let initiator = match seed % 3 {
            0 => Initiator::new(&hub(), world()),
            _ => initiator(&mut random),
        };
        run(&mut random, initiator, &stream);
    }
}

const SECRET: &str = "wonderland-1865";
const TARGET: &str = "iqn.2026-11.test:secret";

/// Sessions of one portal, some of the same initiator, with secrets and digests, and what they do to each other.
struct Portal {
    hub: Arc<Hub>,
    sessions: Vec<Initiator>,
}

impl Portal {
    fn new() -> Portal {
        let secrets = Secrets::parse(&format!("initiator alice {SECRET}"));
        let target = Target {
            name: TARGET.to_owned(),
            luns: vec!["disk".to_owned()],
            removable: true,
            secrets: Some(secrets.expect("they are right")),
            ..Target::default()
        };
        Portal {
            hub: Arc::new(Hub::new(vec![target])),
            sessions: Vec::new(),
        }
    }

    /// Logs in as one of some initiators. One that is there already loses its session.
    fn log_in(&mut self, name: usize, digests: [&str; 2]) {
        let mut world = world();
        world.number = self.sessions.len() as u32;
        let mut one = Initiator::new(&self.hub, world);
        let [header, data] = digests;
        let names = [
            format!("InitiatorName={NAME}-{name}"),
            format!("TargetName={TARGET}"),
        ];
        one.log_in(0, 1, &[&names[0], &names[1], "AuthMethod=CHAP"]);
        let challenge = one.log_in(0, 0, &[["CHAP_A=5", "CHAP_A=7"][name % 2]]);
        let response = hex(&chap_response(&challenge, SECRET));
        one.log_in(0, 1, &["CHAP_N=alice", &format!("CHAP_R={response}")]);
        let header = format!("HeaderDigest={header}");
        let answer = one.log_in(
            1,
            3,
            &[&header, &format!("DataDigest={data}"), "InitialR2T=No"],
        );
        assert_eq!(answer.header[36], 0, "it is logged in");
        one.take_digests(&answer);
        self.sessions.push(one);
        self.pass_nudges();
    }

    fn pass_nudges(&mut self) {
        let mut nudges: Vec<(u32, Nudge)> = Vec::new();
        loop {
            for one in &mut self.sessions {
                nudges.append(&mut one.peer.world.nudges);
            }
            let Some((number, how)) = nudges.pop() else {
                return;
            };
            let peer = &mut self.sessions[number as usize].peer;
            match how {
                Nudge::Wake => {
                    peer.connection.woken(&mut peer.world);
                    peer.pump();
                }
                Nudge::Finish => peer.then = Then::Finish,
                Nudge::End => peer.end(),
            }
        }
    }

    /// Something happens to one of them.
    fn step(&mut self, random: &mut Random) {
        let place = random.below(self.sessions.len());
        let one = &mut self.sessions[place];
        match random.below(12) {
            0 => {
                if !one.pass(random.below(40) as u32) {
                    one.peer.end();
                }
            }
            1 if random.below(8) == 0 => one.peer.end(),
            2..=4 if !one.peer.world.asks.is_empty() => {
                one.peer.answer(random.below(one.peer.world.asks.len()));
            }
            5 => drop(one.peer.take()),
            _ if one.peer.ended() => {}
            _ => {
                let mut command = one.command;
                let (header, data) = parts(random, &mut command);
                one.command = command;
                let mut bytes = one.encode(header, &data);
                if random.below(60) == 0 {
                    let at = random.below(bytes.len());
                    bytes[at] ^= 1 << random.below(8);
                }
                let (first, rest) = bytes.split_at(random.below(bytes.len()));
                one.peer.feed(first);
                one.peer.feed(rest);
            }
        }
        self.pass_nudges();
    }

    /// All sessions end, and all that they asked for is answered.
    fn end(&mut self) {
        for one in &mut self.sessions {
            one.peer.end();
            one.peer.settle();
            assert!(one.peer.world.memory_peak <= BUDGET);
        }
        self.pass_nudges();
    }
}

/// After all that sessions do to one another nothing is left of them: a reset waits for nothing.
#[test]
fn several_sessions_with_secrets_and_digests_leave_nothing_behind() {
    for seed in 0..1500 {
        let mut random = Random::new(seed);
        let mut portal = Portal::new();
        let digest = |random: &mut Random| ["None", "CRC32C"][random.below(2)];
        for _ in 0..2 + random.below(3) {
            let digests = [digest(&mut random), digest(&mut random)];
            portal.log_in(random.below(3), digests);
            (0..random.below(60)).for_each(|_| portal.step(&mut random));
        }
        portal.end();
        let hub = Arc::clone(&portal.hub);
        drop(portal);
        let mut last = Portal {
            hub,
            sessions: Vec::new(),
        };
        last.log_in(9, ["CRC32C", "CRC32C"]);
        assert_eq!(last.sessions[0].manage(5, 0), 0, "seed {seed}: a reset");
    }
}
