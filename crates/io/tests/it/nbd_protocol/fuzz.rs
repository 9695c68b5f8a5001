//! Broken and hostile streams: no panic, no memory beyond the bounds, nothing left behind, and the same answer however
//! the stream is cut.

use crate::nbd_protocol::world::{Peer, Random, World};
use restripe_io::front::Then;
use restripe_io::nbd_wire::client::{Client, ClientEvent, Replies};
use restripe_io::nbd_wire::message::Request;
use restripe_io::nbd_wire::option::{
    encode_context_query, encode_greeting, encode_info_query, encode_option, encode_reply,
};

const SIZE: usize = 256 << 10;

/// So many seeds, and fifty times as many in the long run of the suites.
fn seeds(count: u64) -> std::ops::Range<u64> {
    match std::env::var_os("RESTRIPE_DEEP") {
        Some(_) => 0..50 * count,
        None => 0..count,
    }
}

/// A conversation of a client that mostly behaves.
fn conversation(random: &mut Random) -> Vec<u8> {
    let mut bytes = b"\0\0\0\x03".to_vec();
    for _ in 0..random.below(6) {
        option(random, &mut bytes);
    }
    let last = encode_info_query("disk", &[3]);
    encode_option(7, &[&last], &mut bytes);
    for _ in 0..random.below(40) {
        request(random, &mut bytes);
    }
    if random.below(2) == 0 {
        bytes.extend_from_slice(&request_header(2, 0, 0, 0, 0));
    }
    bytes
}

fn option(random: &mut Random, out: &mut Vec<u8>) {
    let name = ["disk", "", "other"][random.below(3)];
    let context = ["base:allocation", "base:", "restripe:health", "x"][random.below(4)];
    match random.below(8) {
        0 => encode_option(3, &[], out),
        1 => encode_option(8, &[], out),
        2 => encode_option(6, &[&encode_info_query(name, &[1, 2, 3])], out),
        3 => encode_option(9, &[&encode_context_query(name, &[context])], out),
        4 => encode_option(10, &[&encode_context_query(name, &[context])], out),
        5 => encode_option(5, &[], out),
        6 => encode_option(random.next() as u32 | 64, &[b"what"], out),
        _ => encode_option(6, &[&vec![7; 40_000]], out),
    }
}

fn request_header(command: u16, flags: u16, cookie: u64, offset: u64, bytes: u32) -> [u8; 28] {
    let request = Request {
        flags,
        command,
        cookie,
        offset,
        bytes,
    };
    request.encode()
}

fn request(random: &mut Random, out: &mut Vec<u8>) {
    let command = [0, 0, 0, 1, 1, 1, 3, 4, 5, 6, 7, 9][random.below(12)];
    let flags = [0, 0, 0, 1, 2, 4, 8, 16, 32][random.below(9)];
    let (offset, bytes) = match (command, random.below(8)) {
        (3, _) => (0, 0),
        (_, 0) => (random.next(), random.below(1 << 14) as u32),
        _ => (random.below(SIZE) as u64, random.below(1 << 13) as u32),
    };
    out.extend_from_slice(&request_header(
        command,
        flags,
        random.next(),
        offset,
        bytes,
    ));
    if command == 1 {
        let payload = out.len();
        out.resize(payload + bytes as usize, 0);
        random.fill(&mut out[payload..]);
    }
}

fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len());
        match random.below(5) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            2 => bytes.truncate(at.max(1)),
            3 => {
                let piece = bytes[at..(at + random.below(64)).min(bytes.len())].to_vec();
                let into = random.below(bytes.len());
                bytes.splice(into..into, piece);
            }
            _ => {
                let until = (at + random.below(64)).min(bytes.len() - 1);
                bytes.drain(at.min(until)..until);
            }
        }
    }
}

fn world() -> World {
    let mut world = World::new(SIZE);
    // Room for one largest request: what a shell grants at the least.
    world.budget = SIZE;
    world.in_flight_max = 4;
    world
}

/// Feeds a stream in pieces of random size, answering in random order, and returns what was sent and how it ended.
fn run(random: &mut Random, stream: &[u8], piece_max: usize) -> (Vec<u8>, Then, World) {
    let mut peer = Peer::new(world());
    let mut rest = stream;
    while !rest.is_empty() && !peer.ended() {
        let (piece, after) = rest.split_at(1 + random.below(piece_max.min(rest.len())));
        rest = after;
        peer.feed(piece);
        while !peer.world.asks.is_empty() && random.below(3) > 0 {
            let place = random.below(peer.world.asks.len());
            peer.answer(place);
        }
        if !matches!(peer.then, Then::More) {
            peer.settle();
        }
    }
    peer.settle();
    let then = peer.then;
    let world = peer.close();
    (world.sent.clone(), then, world)
}

#[test]
fn mutated_conversations_never_break_the_server() {
    for seed in seeds(4000) {
        let mut random = Random::new(seed);
        let mut stream = conversation(&mut random);
        mutate(&mut random, &mut stream);
        let (_, _, world) = run(&mut random, &stream, 4096);
        assert!(world.memory_peak <= world.budget, "seed {seed}");
    }
}

#[test]
fn random_bytes_never_break_the_server() {
    for seed in seeds(2000) {
        let mut random = Random::new(seed);
        let mut stream = vec![0; random.below(2000)];
        random.fill(&mut stream);
        let mut begun = b"\0\0\0\x03".to_vec();
        if seed % 2 == 0 {
            encode_option(7, &[&encode_info_query("disk", &[])], &mut begun);
        }
        begun.extend_from_slice(&stream);
        run(&mut random, &begun, 100);
    }
}

/// One request at a time, so that the order of replies is fixed and the bytes sent can be compared.
fn run_in_order(stream: &[u8], cuts: &[usize]) -> (Vec<u8>, Then) {
    let mut peer = Peer::new(world());
    peer.world.in_flight_max = 1;
    let mut from = 0;
    for cut in cuts.iter().copied().chain([stream.len()]) {
        if !peer.ended() {
            peer.feed(&stream[from..cut]);
            peer.settle();
        }
        from = cut;
    }
    let then = peer.then;
    (peer.close().sent, then)
}

#[test]
fn a_stream_split_anywhere_gives_the_same_answer() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let mut stream = conversation(&mut random);
        if seed % 3 == 0 {
            mutate(&mut random, &mut stream);
        }
        stream.truncate(20_000);
        let whole = run_in_order(&stream, &[]);
        for cut in 0..stream.len().min(2500) {
            assert!(
                run_in_order(&stream, &[cut]) == whole,
                "seed {seed} cut {cut}"
            );
        }
        let every: Vec<usize> = (0..stream.len()).collect();
        assert!(run_in_order(&stream, &every) == whole, "seed {seed}");
    }
}

/// Replies that nobody reads stop the server from taking more.
#[test]
fn a_peer_that_does_not_read_is_not_served_for_ever() {
    let mut peer = Peer::new(world());
    peer.world.unsent_max = 4096;
    peer.feed(b"\0\0\0\x03");
    let mut fed = 0;
    while peer.then == Then::More {
        let mut message = Vec::new();
        encode_option(3, &[], &mut message);
        peer.feed(&message);
        fed += 1;
        assert!(fed < 1000);
    }
    assert_eq!(peer.then, Then::Hold);
    assert!(peer.world.sent.len() < 8192);
}

// -------------------------------------------------------------------------------------------------- the client

fn server_stream(random: &mut Random) -> Vec<u8> {
    let mut bytes = encode_greeting().to_vec();
    encode_reply(8, 1, &[], &mut bytes);
    let size = (SIZE as u64).to_be_bytes();
    encode_reply(7, 3, &[&[0, 0], &size, &[0x0f, 0xff]], &mut bytes);
    encode_reply(7, 1, &[], &mut bytes);
    for _ in 0..random.below(20) {
        let cookie = 4096 * (1 + random.below(8) as u64) + random.below(8) as u64;
        let kind = [0, 1, 2, 5, 0x8001, 0x8002][random.below(6)];
        let length = random.below(40) as u32;
        bytes.extend_from_slice(&0x668e_33ef_u32.to_be_bytes());
        bytes.extend_from_slice(&[0, random.below(2) as u8]);
        bytes.extend_from_slice(&(kind as u16).to_be_bytes());
        bytes.extend_from_slice(&cookie.to_be_bytes());
        bytes.extend_from_slice(&length.to_be_bytes());
        let payload = bytes.len();
        bytes.resize(payload + length as usize, 0);
    }
    bytes
}

/// Feeds a client with a hostile server's bytes; every range it names must lie within its request.
fn drive_client(random: &mut Random, stream: &[u8]) {
    use restripe_io::nbd_wire::Command;
    use restripe_io::nbd_wire::client::ClientRequest;
    let mut client = Client::new("disk", Replies::Structured);
    let mut out = Vec::new();
    let mut at = 0;
    let mut until = 0;
    while until < stream.len() || at < until {
        until = (until + 1 + random.below(64)).min(stream.len());
        let Ok(step) = client.received(&stream[at..until], &mut out) else {
            return;
        };
        assert!(step.consumed <= until - at);
        at += step.consumed;
        match step.event {
            ClientEvent::Ready => {
                for tag in 0..8 {
                    let request = ClientRequest {
                        tag,
                        command: Command::Read,
                        offset: 512 * tag,
                        bytes: 32,
                        flags: 0,
                    };
                    // The server may have told a size that leaves no room for it.
                    let _ = client.request(request, &mut out);
                }
            }
            ClientEvent::Payload { offset, bytes, .. } => {
                assert!(offset.checked_add(bytes).is_some_and(|end| end <= 32));
                at = (at + bytes as usize).min(stream.len());
                until = until.max(at);
                client.filled();
            }
            ClientEvent::Zeroes { offset, bytes, .. } => {
                assert!(offset.checked_add(bytes).is_some_and(|end| end <= 32));
            }
            ClientEvent::More if until == stream.len() && step.consumed == 0 => return,
            ClientEvent::More | ClientEvent::Secure | ClientEvent::Reply { .. } => {}
        }
    }
}

#[test]
fn a_hostile_server_never_breaks_the_client() {
    for seed in seeds(4000) {
        let mut random = Random::new(seed);
        let mut stream = server_stream(&mut random);
        if seed % 4 > 0 {
            mutate(&mut random, &mut stream);
        }
        drive_client(&mut random, &stream);
    }
}
