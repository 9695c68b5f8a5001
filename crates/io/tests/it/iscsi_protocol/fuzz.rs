//! Random and mutated streams: the target neither panics nor exceeds its memory, and gives all of it back.

use super::initiator::{Initiator, NAME, header, hub, put};
use crate::nbd_protocol::world::{Random, World};
use restripe_io::front::Then;
use restripe_io::front::iscsi::hub::NAME_PREFIX;

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
    initiator
}

/// A PDU that may make sense: commands of all kinds with lengths that may fit.
fn pdu(random: &mut Random, command: &mut u32) -> Vec<u8> {
    let opcode = [0x01, 0x01, 0x01, 0x05, 0x00, 0x02, 0x04, 0x06, 0x10][random.below(9)];
    let immediate = if random.below(8) == 0 { 0x40 } else { 0 };
    let mut pdu = header(
        opcode | immediate,
        random.next() as u8,
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
        0x00, 0x03, 0x08, 0x0a, 0x12, 0x15, 0x16, 0x17, 0x1a, 0x25, 0x28, 0x2a, 0x2e, 0x2f, 0x34,
        0x35, 0x41, 0x42, 0x55, 0x5a, 0x5e, 0x5f, 0x88, 0x8a, 0x8e, 0x8f, 0x93, 0x9e, 0xa0, 0xa3,
        0xa8, 0xaa,
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
    pdu[6..8].copy_from_slice(&(length as u16).to_be_bytes());
    let mut bytes = pdu.to_vec();
    let from = bytes.len();
    bytes.resize(from + length, 0);
    random.fill(&mut bytes[from..]);
    bytes
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
        let mut command = 1;
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
