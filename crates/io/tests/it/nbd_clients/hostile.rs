//! Many connections that mean harm: they announce and do not send, ask and do not read, flood, and talk nonsense. The
//! server stays within its memory, and decent clients are served.

use crate::nbd_clients::array::make;
use crate::nbd_clients::checks;
use crate::nbd_clients::server::Server;
use crate::nbd_clients::tools::{Folder, Target, installed, succeed};
use crate::nbd_protocol::world::Random;
use restripe_array::layout::{Level, Rotation};
use restripe_io::nbd_wire::message::Request;
use restripe_io::nbd_wire::option::{encode_info_query, encode_option};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

const MEMBERS: usize = 4;
const MEMORY: u64 = 96 << 20;
const CONNECTIONS: usize = 64;
const LARGEST: u32 = 32 << 20;

/// How a peer behaves. Every one stays connected afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    /// Says nothing at all.
    Mute,
    /// Announces a largest write and sends nothing of it.
    Announces,
    /// Sends half of a largest write.
    Halves,
    /// Asks for largest reads and takes nothing.
    Hoards,
    /// Asks for lists of exports and takes nothing.
    Floods,
    /// Sends bad requests and takes no answer.
    Errs,
    /// Announces a write of four gigabytes and begins it.
    Overdoes,
    /// Random bytes.
    Babbles,
}

const MANNERS: [Manner; 8] = [
    Manner::Mute,
    Manner::Announces,
    Manner::Halves,
    Manner::Hoards,
    Manner::Floods,
    Manner::Errs,
    Manner::Overdoes,
    Manner::Babbles,
];

fn request(command: u16, bytes: u32) -> [u8; 28] {
    let request = Request {
        flags: 0,
        command,
        cookie: 1,
        offset: 0,
        bytes,
    };
    request.encode()
}

/// What a peer sends, of which the server may take as much as it likes.
fn speech(manner: Manner) -> Vec<u8> {
    let mut bytes = b"\0\0\0\x03".to_vec();
    if !matches!(manner, Manner::Mute | Manner::Floods) {
        encode_option(7, &[&encode_info_query("disk", &[])], &mut bytes);
    }
    match manner {
        Manner::Mute => bytes.clear(),
        Manner::Announces => bytes.extend(request(1, LARGEST)),
        Manner::Halves => {
            bytes.extend(request(1, LARGEST));
            bytes.resize(bytes.len() + LARGEST as usize / 2, 7);
        }
        Manner::Hoards => (0..1000).for_each(|_| bytes.extend(request(0, LARGEST))),
        Manner::Floods => (0..100_000).for_each(|_| encode_option(3, &[], &mut bytes)),
        Manner::Errs => (0..100_000).for_each(|_| bytes.extend(request(99, 0))),
        Manner::Overdoes => {
            bytes.extend(request(1, u32::MAX));
            bytes.resize(bytes.len() + (8 << 20), 7);
        }
        Manner::Babbles => {
            let begun = bytes.len();
            bytes.resize(begun + 100_000, 0);
            Random::new(1).fill(&mut bytes[begun..]);
        }
    }
    bytes
}

/// Sends what the server takes, and reads nothing but the greeting.
fn behave(socket: &Path, manner: Manner) -> Option<UnixStream> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.read_exact(&mut [0; 18]).ok()?;
    let patience = Some(Duration::from_millis(200));
    stream.set_write_timeout(patience).expect("not zero");
    match stream.write_all(&speech(manner)) {
        Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
        _ => Some(stream),
    }
}

/// The most memory that a process ever had, in bytes.
fn peak_memory(process: u32) -> u64 {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(path).expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kilobytes.expect("Linux tells") * 1024
}

/// Starts a server and lets peers behave, all at once.
fn beside(folder: &Folder, manners: &[Manner]) -> (Server, Vec<Option<UnixStream>>, Target) {
    make(folder, Level::Raid5(Rotation::LeftSymmetric), MEMBERS);
    let server = Server::start(folder, MEMBERS, MEMORY);
    let socket = &folder.file("socket");
    let peers = std::thread::scope(|scope| {
        let behaving: Vec<_> = manners
            .iter()
            .map(|manner| scope.spawn(move || behave(socket, *manner)))
            .collect();
        let connection = |peer: ScopedJoinHandle<'_, _>| peer.join().expect("no panic there");
        behaving.into_iter().map(connection).collect()
    });
    let target = Target {
        socket: socket.clone(),
        export: "disk".to_owned(),
        size: 0,
    };
    (server, peers, target)
}

#[test]
fn peers_that_mean_harm_do_none() {
    let folder = Folder::new();
    let manners: Vec<Manner> = MANNERS.into_iter().cycle().take(CONNECTIONS).collect();
    let (server, peers, target) = beside(&folder, &manners);
    let peak = peak_memory(server.process());
    assert!(peak < MEMORY + (64 << 20), "{peak} bytes");
    if installed(&["nbdinfo"]) {
        succeed("nbdinfo", &["--size", &target.uri()]);
    }
    drop(peers);
    checks::keeps_patterns(&target);
    server.kill();
}

/// Memory that lies still is taken from those who hold it when others wait for it.
#[test]
fn hoarders_do_not_starve_others() {
    let folder = Folder::new();
    let hoarders = [Manner::Announces, Manner::Halves, Manner::Hoards];
    let (server, peers, target) = beside(&folder, &hoarders);
    checks::keeps_patterns(&target);
    drop(peers);
    server.kill();
}
