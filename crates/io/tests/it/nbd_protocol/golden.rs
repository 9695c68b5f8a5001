//! Transcripts written by hand from the specification: these bytes in, exactly these bytes out.

use crate::nbd_protocol::world::{Peer, World};
use restripe_array::RequestOp;
use restripe_io::front::{Protocol, Then};
use restripe_io::nbd_wire::message::Request;
use restripe_io::nbd_wire::option::{encode_context_query, encode_info_query, encode_option};

const SIZE: usize = 1 << 20;

/// Everything that both sides agreed to leave out is left out.
const FLAGS: &[u8] = b"\0\0\0\x03";

fn greeted() -> Peer {
    let mut peer = Peer::new(World::new(SIZE));
    assert_eq!(peer.take(), b"NBDMAGICIHAVEOPT\0\x03");
    peer.feed(FLAGS);
    assert_eq!(peer.take(), b"");
    peer
}

fn option(code: u32, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_option(code, &[data], &mut out);
    out
}

/// A reply to an option, put together from its parts.
fn reply(code: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 3, 0xe8, 0x89, 4, 0x55, 0x65, 0xa9];
    bytes.extend_from_slice(&code.to_be_bytes());
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

const ERROR: u32 = 1 << 31;

fn asks(peer: &mut Peer, code: u32, data: &[u8]) -> Vec<u8> {
    peer.feed(&option(code, data));
    peer.take()
}

/// Checks an error reply, whose message is for people.
fn assert_refused(sent: &[u8], code: u32, error: u32) {
    assert_eq!(sent[..8], [0, 3, 0xe8, 0x89, 4, 0x55, 0x65, 0xa9]);
    assert_eq!(sent[8..12], code.to_be_bytes());
    assert_eq!(sent[12..16], (ERROR | error).to_be_bytes(), "{sent:?}");
    let length = u32::from_be_bytes(sent[16..20].try_into().expect("four"));
    assert_eq!(sent.len(), 20 + length as usize);
}

fn attached(structured: bool) -> Peer {
    let mut peer = greeted();
    if structured {
        assert_eq!(asks(&mut peer, 8, b""), reply(8, 1, b""));
        let query = encode_context_query("disk", &["base:allocation", "restripe:health"]);
        asks(&mut peer, 10, &query);
    }
    asks(&mut peer, 7, &encode_info_query("disk", &[]));
    peer
}

fn request(command: u16, flags: u16, cookie: u64, offset: u64, bytes: u32) -> [u8; 28] {
    let request = Request {
        flags,
        command,
        cookie,
        offset,
        bytes,
    };
    request.encode()
}

fn exchange(peer: &mut Peer, bytes: &[u8]) -> Vec<u8> {
    peer.feed(bytes);
    peer.settle();
    peer.take()
}

fn simple(error: u32, cookie: u64) -> Vec<u8> {
    let mut bytes = vec![0x67, 0x44, 0x66, 0x98];
    bytes.extend_from_slice(&error.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes
}

#[test]
fn the_old_way_in_sends_size_flags_and_zeros() {
    let mut peer = Peer::new(World::new(SIZE));
    peer.take();
    peer.feed(b"\0\0\0\0");
    peer.feed(&option(1, b"disk"));
    let mut expected = vec![0, 0, 0, 0, 0, 0x10, 0, 0];
    // HAS_FLAGS FLUSH FUA TRIM | WRITE_ZEROES MULTI_CONN CACHE FAST_ZERO
    expected.extend_from_slice(&[0x0d, 0x6d]);
    expected.extend_from_slice(&[0; 124]);
    assert_eq!(peer.take(), expected);
    assert_eq!(exchange(&mut peer, &request(3, 0, 9, 0, 0)), simple(0, 9));
}

#[test]
fn the_old_way_in_ends_the_connection_when_there_is_no_such_export() {
    let mut peer = greeted();
    peer.feed(&option(1, b"other"));
    assert_eq!(peer.then, Then::Abort);
}

#[test]
fn an_old_client_may_only_name_an_export() {
    let mut peer = Peer::new(World::new(SIZE));
    peer.take();
    peer.feed(b"\0\0\0\0");
    peer.feed(&option(3, b""));
    assert_eq!(peer.then, Then::Abort);
}

#[test]
fn unknown_client_flags_end_the_connection() {
    let mut peer = Peer::new(World::new(SIZE));
    peer.feed(b"\0\0\0\x07");
    assert_eq!(peer.then, Then::Abort);
}

#[test]
fn go_tells_what_was_asked_and_requests_follow() {
    let mut peer = greeted();
    let sent = asks(&mut peer, 7, &encode_info_query("disk", &[1, 2, 3, 77]));
    let mut expected = reply(7, 3, b"\0\0\0\0\0\0\0\x10\0\0\x0d\x6d");
    expected.extend(reply(7, 3, b"\0\x01disk"));
    expected.extend(reply(7, 3, b"\0\x02a test"));
    expected.extend(reply(
        7,
        3,
        b"\0\x03\0\0\0\x01\0\x01\0\0\x02\0\0\0", // 1, 65536, 32 MiB
    ));
    expected.extend(reply(7, 1, b""));
    assert_eq!(sent, expected);
    assert_eq!(exchange(&mut peer, &request(3, 0, 1, 0, 0)), simple(0, 1));
}

#[test]
fn the_only_export_is_the_default_and_tells_its_name() {
    let mut peer = greeted();
    let sent = asks(&mut peer, 6, &encode_info_query("", &[]));
    let mut expected = reply(6, 3, b"\0\0\0\0\0\0\0\x10\0\0\x0d\x6d");
    expected.extend(reply(6, 3, b"\0\x01disk"));
    expected.extend(reply(6, 1, b""));
    assert_eq!(sent, expected);

    let second = peer.world.exports[0].clone();
    peer.world.exports.push(second);
    let sent = asks(&mut peer, 6, &encode_info_query("", &[]));
    assert_refused(&sent, 6, 6);
}

#[test]
fn info_and_go_refuse_and_go_on() {
    let mut peer = greeted();
    for code in [6, 7] {
        assert_refused(&asks(&mut peer, code, b""), code, 3);
        assert_refused(&asks(&mut peer, code, b"\0\0\0\x05disk\0\0"), code, 3);
        assert_refused(&asks(&mut peer, code, b"\0\0\0\x04disk\0\x01"), code, 3);
        let other = encode_info_query("other", &[]);
        assert_refused(&asks(&mut peer, code, &other), code, 6);
        peer.world.exports[0].serving = false;
        let stopped = encode_info_query("disk", &[]);
        assert_refused(&asks(&mut peer, code, &stopped), code, 6);
        peer.world.exports[0].serving = true;
    }
}

#[test]
fn list_names_every_export() {
    let mut peer = greeted();
    let mut second = peer.world.exports[0].clone();
    second.name = "b".to_owned();
    second.description = String::new();
    peer.world.exports.push(second);
    let mut expected = reply(3, 2, b"\0\0\0\x04diska test");
    expected.extend(reply(3, 2, b"\0\0\0\x01b"));
    expected.extend(reply(3, 1, b""));
    assert_eq!(asks(&mut peer, 3, b""), expected);
    assert_refused(&asks(&mut peer, 3, b"x"), 3, 3);
}

#[test]
fn tls_unknown_and_oversize_options_keep_the_frame() {
    let mut peer = greeted();
    assert_refused(&asks(&mut peer, 5, b""), 5, 1);
    assert_refused(&asks(&mut peer, 4711, b"whatever"), 4711, 1);
    let long = vec![0xaa; 300_000];
    assert_refused(&asks(&mut peer, 6, &long), 6, 9);
    assert_refused(&asks(&mut peer, 4711, &long), 4711, 9);
    assert_eq!(asks(&mut peer, 8, b""), reply(8, 1, b""));
    assert_refused(&asks(&mut peer, 8, b"x"), 8, 3);
}

#[test]
fn abort_is_acknowledged_and_ends() {
    let mut peer = greeted();
    peer.feed(&option(2, b""));
    assert_eq!(peer.take(), reply(2, 1, b""));
    assert_eq!(peer.then, Then::Finish);
}

#[test]
fn a_wrong_magic_or_too_many_options_end_the_connection() {
    let mut peer = greeted();
    peer.feed(b"IHAVEOPS\0\0\0\x03\0\0\0\0");
    assert_eq!(peer.then, Then::Abort);

    let mut peer = greeted();
    let mut answered = 0;
    while !peer.ended() {
        peer.feed(&option(3, b""));
        answered += 1;
        assert!(answered <= 1000);
    }
    assert_eq!(peer.then, Then::Abort);
}

#[test]
fn contexts_are_listed_and_chosen() {
    let mut peer = greeted();
    let base = b"\0\0\0\0base:allocation";
    let health = b"\0\0\0\0restripe:health";
    let mut both = reply(9, 4, base);
    both.extend(reply(9, 4, health));
    both.extend(reply(9, 1, b""));
    assert_eq!(asks(&mut peer, 9, &encode_context_query("disk", &[])), both);
    let sent = asks(
        &mut peer,
        9,
        &encode_context_query("disk", &["restripe:", "qemu:x"]),
    );
    assert_eq!(sent, [reply(9, 4, health), reply(9, 1, b"")].concat());

    let set = encode_context_query("disk", &["restripe:health", "base:", "restripe:health"]);
    assert_refused(&asks(&mut peer, 10, &set), 10, 3);
    asks(&mut peer, 8, b"");
    let chosen = reply(10, 4, b"\0\0\0\x02restripe:health");
    assert_eq!(
        asks(&mut peer, 10, &set),
        [chosen, reply(10, 1, b"")].concat()
    );
    assert_refused(&asks(&mut peer, 10, b"\0\0\0\x04disk\0\0\0\x01"), 10, 3);
    asks(&mut peer, 7, &encode_info_query("disk", &[]));
    let sent = exchange(&mut peer, &request(7, 0, 1, 0, 4096));
    assert_eq!(sent[4..8], [0, 1, 0x80, 1], "the failed choice unset them");
}

#[test]
fn reads_and_writes_the_simple_way() {
    let mut peer = attached(false);
    let mut message = request(1, 1, 0xabcd, 4096, 3).to_vec();
    message.extend_from_slice(b"xyz");
    assert_eq!(exchange(&mut peer, &message), simple(0, 0xabcd));
    assert_eq!(peer.world.log, [(RequestOp::Write, 4096, 3, true)]);

    let sent = exchange(&mut peer, &request(0, 0, 5, 4095, 5));
    assert_eq!(sent, [&simple(0, 5)[..], b"\0xyz\0"].concat());
    peer.close();
}

#[test]
fn reads_the_structured_way() {
    let mut peer = attached(true);
    peer.world.disk[512..516].copy_from_slice(b"abcd");
    let sent = exchange(&mut peer, &request(0, 4, 6, 512, 4));
    assert_eq!(
        sent,
        b"\x66\x8e\x33\xef\0\x01\0\x01\0\0\0\0\0\0\0\x06\0\0\0\x0c\0\0\0\0\0\0\x02\0abcd"
    );
    peer.world.lost = Some((1024, 2048));
    let sent = exchange(&mut peer, &request(0, 0, 7, 512, 4096));
    assert_eq!(sent[4..8], [0, 1, 0x80, 2]);
    assert_eq!(sent[20..24], [0, 0, 0, 5]);
    assert_eq!(
        sent[sent.len() - 8..],
        1024u64.to_be_bytes(),
        "where it failed"
    );
    peer.close();
}

#[test]
fn every_command_reaches_the_engine_as_what_it_is() {
    let mut peer = attached(true);
    let fast = RequestOp::WriteZeroes { fast: true };
    let slow = RequestOp::WriteZeroes { fast: false };
    for (command, flags, op, fua) in [
        (4, 0, RequestOp::Trim, false),
        (4, 1, RequestOp::Trim, true),
        (6, 0, slow, false),
        (6, 2, slow, false),
        (6, 3, slow, true),
    ] {
        let sent = exchange(&mut peer, &request(command, flags, 1, 8192, 4096));
        assert_eq!(sent, simple(0, 1));
        assert_eq!(peer.world.log.pop(), Some((op, 8192, 4096, fua)));
    }
    let sent = exchange(&mut peer, &request(6, 16, 1, 0, 4096));
    assert_eq!(sent[4..8], [0, 1, 0x80, 1]);
    assert_eq!(sent[20..24], [0, 0, 0, 95], "not supported: not fast");
    assert_eq!(peer.world.log.pop(), Some((fast, 0, 4096, false)));
    let sent = exchange(&mut peer, &request(3, 1, 2, 0, 0));
    assert_eq!(sent, simple(0, 2));
    assert_eq!(peer.world.log.pop(), Some((RequestOp::Flush, 0, 0, true)));
    let sent = exchange(&mut peer, &request(5, 0, 3, 0, SIZE as u32));
    assert_eq!(sent, simple(0, 3), "a hint to cache is taken");
    assert_eq!(peer.world.log, []);
}

#[test]
fn block_status_of_both_contexts() {
    let mut peer = attached(true);
    peer.world.lost = Some((4096, 8192));
    let sent = exchange(&mut peer, &request(7, 0, 1, 2048, 8192));
    let mut expected = b"\x66\x8e\x33\xef\0\0\0\x05\0\0\0\0\0\0\0\x01\0\0\0\x1c".to_vec();
    expected
        .extend_from_slice(b"\0\0\0\x01\0\0\x08\0\0\0\0\0\0\0\x10\0\0\0\0\x03\0\0\x08\0\0\0\0\0");
    expected.extend_from_slice(b"\x66\x8e\x33\xef\0\x01\0\x05\0\0\0\0\0\0\0\x01\0\0\0\x1c");
    expected
        .extend_from_slice(b"\0\0\0\x02\0\0\x08\0\0\0\0\0\0\0\x10\0\0\0\0\x03\0\0\x08\0\0\0\0\0");
    assert_eq!(sent, expected);

    let sent = exchange(&mut peer, &request(7, 8, 1, 0, SIZE as u32));
    assert_eq!(sent.len(), 2 * (20 + 4 + 8), "one descriptor a context");
}

/// What is wrong with a request, and what it is answered with.
#[test]
fn what_is_wrong_is_told_and_the_frame_kept() {
    const INVALID: u32 = 22;
    const NO_SPACE: u32 = 28;
    let end = SIZE as u64;
    let cases: &[(u16, u16, u64, u32, u32)] = &[
        (0, 0, 0, 0, INVALID),
        (0, 0, end, 1, INVALID),
        (0, 0, end - 1, 2, INVALID),
        (0, 0, u64::MAX, 2, INVALID),
        (0, 2, 0, 512, INVALID),
        (0, 8, 0, 512, INVALID),
        (0, 0x100, 0, 512, INVALID),
        (1, 0, 0, 0, INVALID),
        (1, 0, end, 512, NO_SPACE),
        (1, 0, u64::MAX - 5, 512, NO_SPACE),
        (1, 4, 0, 512, INVALID),
        (3, 0, 0, 512, INVALID),
        (3, 0, 512, 0, INVALID),
        (3, 4, 0, 0, INVALID),
        (4, 0, end, 512, INVALID),
        (4, 2, 0, 512, INVALID),
        (5, 0, end, 512, INVALID),
        (6, 0, end - 1, 512, NO_SPACE),
        (6, 4, 0, 512, INVALID),
        (7, 0, 0, 512, INVALID),
        (8, 0, 0, 512, INVALID),
        (0xffff, 0, 0, 512, INVALID),
    ];
    for (command, flags, offset, bytes, error) in cases.iter().copied() {
        let mut peer = attached(false);
        let mut message = request(command, flags, 77, offset, bytes).to_vec();
        if command == 1 {
            message.resize(28 + bytes as usize, 0xcc);
        }
        message.extend_from_slice(&request(3, 0, 78, 0, 0));
        let sent = exchange(&mut peer, &message);
        let expected = [simple(error, 77), simple(0, 78)].concat();
        assert_eq!(sent, expected, "{command} {flags:#x} {offset} {bytes}");
        assert_eq!(peer.world.disk, vec![0; SIZE]);
        peer.close();
    }
}

#[test]
fn an_oversize_write_is_skipped_without_memory() {
    let mut world = World::new(64 << 20);
    world.budget = 1 << 20;
    let mut peer = Peer::new(world);
    peer.feed(FLAGS);
    peer.feed(&option(7, &encode_info_query("disk", &[])));
    peer.take();
    let bytes = (32 << 20) + 1;
    peer.feed(&request(1, 0, 1, 0, bytes));
    let piece = vec![1; 1 << 16];
    for _ in 0..(bytes as usize / piece.len()) {
        peer.feed(&piece);
    }
    assert_eq!(peer.take(), b"", "no answer while the payload comes");
    peer.feed(&[1]);
    assert_eq!(peer.take(), simple(22, 1));
    assert_eq!(exchange(&mut peer, &request(3, 0, 2, 0, 0)), simple(0, 2));
    assert_eq!(peer.world.memory_peak, 0);
}

#[test]
fn a_read_only_export_refuses_what_writes() {
    let mut peer = greeted();
    peer.world.exports[0].read_only = true;
    let sent = asks(&mut peer, 7, &encode_info_query("disk", &[]));
    assert_eq!(sent[30..32], [0x05, 0x0f], "no trim, no zeros, read-only");
    for command in [1, 4, 6] {
        let mut message = request(command, 0, 1, 0, 4).to_vec();
        if command == 1 {
            message.extend_from_slice(b"data");
        }
        assert_eq!(exchange(&mut peer, &message), simple(1, 1));
    }
    assert_eq!(peer.world.log, []);
}

#[test]
fn disconnect_answers_what_is_in_flight_first() {
    let mut peer = attached(false);
    peer.feed(&request(0, 0, 1, 0, 4));
    peer.feed(&request(2, 0, 2, 0, 0));
    assert_eq!(peer.then, Then::Finish);
    assert_eq!(peer.take(), b"");
    peer.settle();
    assert_eq!(peer.take(), [&simple(0, 1)[..], &[0; 4]].concat());
    peer.close();
}

#[test]
fn a_wrong_request_magic_ends_the_connection() {
    let mut peer = attached(false);
    let mut message = request(0, 0, 1, 0, 4);
    message[3] ^= 0x80;
    peer.feed(&message);
    assert_eq!(peer.then, Then::Abort);
}

#[test]
fn requests_wait_for_room_and_for_memory() {
    let mut peer = attached(false);
    peer.world.in_flight_max = 2;
    for cookie in 0..5 {
        peer.feed(&request(0, 0, cookie, 0, 4));
    }
    assert_eq!(peer.then, Then::Hold);
    assert_eq!(peer.world.asks.len(), 2);
    peer.settle();
    assert_eq!(peer.take().len(), 5 * 20);

    peer.world.budget = 4096;
    peer.feed(&request(0, 0, 1, 0, 4096));
    peer.feed(&request(0, 0, 2, 0, 4096));
    assert_eq!(peer.then, Then::Memory);
    assert_eq!(peer.connection.patience(), None, "it is we who are slow");
    peer.settle();
    assert_eq!(peer.take().len(), 2 * (16 + 4096));
    assert_eq!(peer.world.memory_peak, 4096);
}

#[test]
fn patience_is_for_halves_only() {
    let mut peer = greeted();
    assert!(peer.connection.patience().is_some(), "a handshake");
    peer.feed(&option(7, &encode_info_query("disk", &[])));
    assert_eq!(peer.connection.patience(), None, "an idle client may rest");
    let write = request(1, 0, 1, 0, SIZE as u32);
    peer.feed(&write[..27]);
    let header = peer.connection.patience().expect("half a header");
    peer.feed(&write[27..]);
    let payload = peer.connection.patience().expect("no payload");
    assert!(payload > header, "a payload takes time");
    peer.feed(&vec![0; SIZE]);
    assert_eq!(peer.connection.patience(), None);
    peer.settle();
}
