//! Peers that begin TLS and mean harm: the server lets go of them in time, and serves others meanwhile.

use crate::nbd_clients::tools::{installed, succeed};
use crate::nbd_protocol::world::Random;
use crate::tls::certificates::{ALICE, Authority, SERVER};
use crate::tls::served::{FOR_ALL, FOR_CERTIFIED, Served};
use restripe_io::nbd_wire::option::{
    GREETING_BYTES, OPTION_REPLY_BYTES, OptionReply, encode_info_query, encode_option, reply,
};
use restripe_io::plain::Plain;
use restripe_io::tls::{ClientSide, Going};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// The server's patience with a handshake, and its scan.
const LONGEST: Duration = Duration::from_secs(20);

const ACKNOWLEDGED: [u8; 20] = [
    0x00, 0x03, 0xe8, 0x89, 0x04, 0x55, 0x65, 0xa9, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0,
];

/// A peer that may send options.
fn greeted(served: &Served) -> UnixStream {
    let mut stream = UnixStream::connect(served.socket()).expect("it listens");
    stream.set_read_timeout(Some(LONGEST)).expect("a socket");
    stream.write_all(b"\0\0\0\x03").expect("room");
    let mut greeting = [0; GREETING_BYTES];
    stream.read_exact(&mut greeting).expect("a greeting");
    stream
}

/// A peer whose STARTTLS was answered.
fn started(served: &Served) -> UnixStream {
    let mut stream = greeted(served);
    let mut bytes = Vec::new();
    encode_option(5, &[], &mut bytes);
    stream.write_all(&bytes).expect("room");
    let mut answer = [0; 20];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer, ACKNOWLEDGED);
    stream
}

/// Whether the server hangs up within its patience.
fn is_let_go(mut stream: UnixStream) -> bool {
    let begun = Instant::now();
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(1..) if begun.elapsed() < LONGEST => {}
            Ok(0) => return true,
            Ok(_) => return false,
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// What a client of TLS says first.
fn hello(certificates: &Path) -> Vec<u8> {
    let client = ClientSide::read(certificates, true).expect("certificates");
    let mut channel = client.begin("localhost").expect("a name");
    assert_eq!(channel.open(&mut |_| {}), Going::On);
    channel.launch().expect("a hello").slice().to_vec()
}

fn served() -> Option<(Authority, Served, Vec<u8>)> {
    let (authority, served) = crate::tls::served::served(&FOR_ALL)?;
    let hello = hello(&authority.folder("client", &[]));
    Some((authority, served, hello))
}

#[test]
fn garbage_instead_of_tls_ends_the_connection() {
    let Some((_authority, served, hello)) = served() else {
        return;
    };
    let mut go = Vec::new();
    encode_option(7, &[&encode_info_query("disk", &[])], &mut go);
    let mut noise = vec![0; 100_000];
    Random::new(3).fill(&mut noise);
    let mut endless = vec![0x16, 3, 1, 0x3f, 0xff, 1, 0xff, 0xff, 0xff];
    endless.resize(200_000, 0x16);
    let twice = [&hello[..], &hello].concat();
    for bytes in [go, noise, endless, twice] {
        let mut stream = started(&served);
        // The server may hang up before it has taken everything.
        let _ = stream.write_all(&bytes);
        assert!(is_let_go(stream));
    }
}

#[test]
fn a_handshake_that_stalls_is_ended_in_time_and_others_are_served() {
    let Some((authority, served, hello)) = served() else {
        return;
    };
    let mute = started(&served);
    let mut half = started(&served);
    half.write_all(&hello[..hello.len() / 2]).expect("room");
    let mut whole = started(&served);
    whole.write_all(&hello).expect("room");
    if installed(&["nbdinfo"]) {
        let ca_only = authority.folder("ca-only", &[]);
        succeed("nbdinfo", &["--size", &served.uri(&ca_only)]);
    }
    for stream in [mute, half, whole] {
        assert!(is_let_go(stream));
    }
}

/// More than there are places for peers that have shown no certificate.
#[test]
fn peers_that_do_not_finish_do_not_keep_others_out() {
    let authority = Authority::new();
    let Some(authority) = authority else { return };
    let certificates = authority.folder("server", &[("server", SERVER)]);
    let served = Served::new(&certificates, &FOR_CERTIFIED);
    let mine = authority.folder("mine", &[("client", ALICE)]);
    let hello = hello(&mine);
    let uri = served.unix_uri(&mine);
    let attached = Plain::open(&uri, false).expect("a client with a certificate");
    let begin = |nth: usize| {
        let mut stream = match nth % 3 {
            0 => UnixStream::connect(served.socket()).expect("it listens"),
            1 => greeted(&served),
            _ => started(&served),
        };
        if nth % 6 == 5 {
            // It may have been let go of already.
            let _ = stream.write_all(&hello);
        }
        stream
    };
    let peers: Vec<UnixStream> = (0..150).map(begin).collect();
    attached.read(0, &mut [0; 4096]).expect("it is served");
    Plain::open(&uri, false).expect("another client with a certificate");
    let turned_away = served.array.remote().turned_away().expect("it lives");
    assert!(turned_away >= 150 - 64, "{turned_away}");
    drop(peers);
}

/// A byte every few milliseconds is no progress, in clear text and within TLS, and whenever the server looks.
#[test]
fn bytes_that_drip_do_not_keep_a_connection() {
    let Some((_authority, served, _)) = served() else {
        return;
    };
    let mut clear = greeted(&served);
    let mut option = Vec::new();
    encode_option(3, &[&[0; 30_000]], &mut option);
    clear.write_all(&option[..16]).expect("room");
    let mut secure = started(&served);
    let record = [0x16, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb];
    secure.write_all(&record).expect("room");
    let (begun, mut ended) = (Instant::now(), [false; 2]);
    while ended != [true; 2] {
        assert!(begun.elapsed() < LONGEST, "{ended:?}");
        for (stream, ended) in [&mut clear, &mut secure].into_iter().zip(&mut ended) {
            *ended |= stream.write_all(&[0]).is_err();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What each option is answered with before TLS, where it is required: the kind of the reply.
#[test]
fn nothing_is_answered_in_clear_text_but_starttls_and_abort() {
    let Some((_authority, served, _)) = served() else {
        return;
    };
    let query = encode_info_query("disk", &[]);
    let mut wrong = vec![0; 40_000];
    wrong.fill(7);
    for (option, data, kind) in [
        (3, &[][..], reply::ERR_TLS_REQD),
        (6, &query, reply::ERR_TLS_REQD),
        (7, &query, reply::ERR_TLS_REQD),
        (8, &[], reply::ERR_TLS_REQD),
        (9, &query, reply::ERR_TLS_REQD),
        (10, &query, reply::ERR_TLS_REQD),
        (7, &wrong, reply::ERR_TLS_REQD),
        (99, &[], reply::ERR_TLS_REQD),
        (5, b"x", reply::ERR_INVALID),
        (2, &[], reply::ACK),
    ] {
        let mut stream = greeted(&served);
        let mut bytes = Vec::new();
        encode_option(option, &[data], &mut bytes);
        stream.write_all(&bytes).expect("room");
        let mut header = [0; OPTION_REPLY_BYTES];
        stream.read_exact(&mut header).expect("an answer");
        let header = OptionReply::decode(&header).expect("an answer");
        assert_eq!((header.code, header.kind), (option, kind), "{option}");
    }
    // The oldest way in has no errors.
    let mut stream = greeted(&served);
    let mut bytes = Vec::new();
    encode_option(1, &[b"disk"], &mut bytes);
    stream.write_all(&bytes).expect("room");
    assert!(is_let_go(stream));
}

/// Requests behind STARTTLS in clear text are not taken for requests within TLS.
#[test]
fn what_comes_behind_starttls_is_part_of_the_handshake() {
    let Some((_authority, served, _)) = served() else {
        return;
    };
    let mut stream = UnixStream::connect(served.socket()).expect("it listens");
    stream.set_read_timeout(Some(LONGEST)).expect("a socket");
    let mut bytes = b"\0\0\0\x03".to_vec();
    encode_option(5, &[], &mut bytes);
    encode_option(7, &[&encode_info_query("disk", &[])], &mut bytes);
    stream.write_all(&bytes).expect("room");
    let mut said = Vec::new();
    // It may end with a reset, since not all was read.
    let _ = stream.read_to_end(&mut said);
    let answers = said.len() - 18;
    // The acknowledgement, then an alert of TLS: no reply to GO.
    assert!(
        said[18..].starts_with(&ACKNOWLEDGED) && answers <= 20 + 7,
        "{said:?}"
    );
    assert!(answers == 20 || said[38] == 0x15, "{said:?}");
}
