//! Members through TLS: at our own server and at nbdkit, with what can go wrong.

use crate::nbd_clients::tools::{Folder, PATIENCE, installed, run};
use crate::nbd_protocol::world::Random;
use crate::tls::certificates::{ALICE, Authority, SERVER, Says, text};
use crate::tls::served::{FOR_ALL, FOR_CERTIFIED, Served, Terms, served};
use restripe_io::plain::Plain;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

/// Writes and reads of many lengths; what came back must be what went out.
fn keeps_bytes(name: &str) {
    let member = Plain::open(name, false).expect("it answers");
    let mut random = Random::new(11);
    let mut bytes = vec![0; 5 << 20];
    random.fill(&mut bytes);
    member.write(0, &bytes).expect("room");
    for _ in 0..40 {
        let (at, count) = (random.below(8192), 1 + random.below(2000));
        let part = &mut bytes[at * 512..(at + count) * 512];
        if random.below(3) == 0 {
            random.fill(part);
            member.write(at as u64, part).expect("room");
        }
        let mut back = vec![0; part.len()];
        member.read(at as u64, &mut back).expect("it reads");
        assert!(back == part, "{count} sectors at {at}");
    }
    member.zero(0, 4096).expect("it zeroes");
    member.flush().expect("it flushes");
    let mut back = vec![1; bytes.len()];
    member.read(0, &mut back).expect("it reads");
    bytes[..4096 * 512].fill(0);
    assert!(back == bytes, "what came back");
}

/// Why a member is not opened.
fn refusal(name: &str) -> String {
    match Plain::open(name, false) {
        Ok(_) => panic!("{name} is opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_member_at_our_own_server_keeps_its_bytes() {
    let Some((authority, served)) = served(&FOR_CERTIFIED) else {
        return;
    };
    let alice = authority.folder("alice", &[("client", ALICE)]);
    keeps_bytes(&served.uri(&alice));
    keeps_bytes(&served.unix_uri(&alice));
}

#[test]
fn a_member_that_is_not_let_in_says_why() {
    let rules = ["cn:alice"];
    let listed = Terms {
        clients: &rules,
        ..FOR_CERTIFIED
    };
    let Some((authority, served)) = served(&listed) else {
        return;
    };
    let alice = authority.folder("alice", &[("client", ALICE)]);
    drop(Plain::open(&served.uri(&alice), false).expect("it is on the list"));
    let bob = Says {
        subject: "/CN=bob",
        ..ALICE
    };
    let bob = authority.folder("bob", &[("client", bob)]);
    let said = refusal(&served.uri(&bob));
    assert!(
        said.contains("list of clients does not have CN=bob") && !said.contains("in use"),
        "{said}"
    );
    let none = authority.folder("none", &[]);
    let said = refusal(&served.uri(&none));
    assert!(
        said.contains("TLS with the NBD server") && said.contains("alert"),
        "{said}"
    );
    let said = refusal(&served.clear_uri());
    assert!(said.contains("demands TLS"), "{said}");
    let stranger = Authority::new().expect("openssl is installed");
    let strange = stranger.folder("strange", &[("client", ALICE)]);
    let said = refusal(&served.uri(&strange));
    assert!(said.contains("UnknownIssuer"), "{said}");
    let unverified = format!("{}&tls-verify-peer=no", served.uri(&strange));
    let said = refusal(&unverified);
    assert!(
        said.contains("alert"),
        "the server does not know it: {said}"
    );
    served.expect_refused("UnknownIssuer");
    let elsewhere = format!("{}&tls-hostname=elsewhere", served.uri(&alice));
    let said = refusal(&elsewhere);
    assert!(said.contains("not valid for name"), "{said}");
    let said = refusal(&served.uri(Path::new("/nowhere")));
    assert!(said.contains("/nowhere/ca-cert.pem"), "{said}");
}

/// A server whose certificate has expired, and one that has no TLS to offer.
#[test]
fn a_server_that_cannot_be_trusted_gets_no_member() {
    let Some(authority) = Authority::new() else {
        return;
    };
    let ca_only = authority.folder("ca-only", &[]);
    let expired = Says {
        expired: true,
        ..SERVER
    };
    let expired = authority.folder("expired", &[("server", expired)]);
    let served = Served::new(&expired, &FOR_ALL);
    let said = refusal(&served.uri(&ca_only));
    assert!(said.contains("expired"), "{said}");
    let clear = served.array.target();
    let (socket, folder) = (text(&clear.socket), text(&ca_only));
    let uri = format!("nbds+unix:///disk?socket={socket}&tls-certificates={folder}");
    let said = refusal(&uri);
    assert!(said.contains("offers no TLS"), "{said}");
}

/// nbdkit with a disk in memory behind TLS, until it is dropped.
struct Nbdkit {
    child: Child,
    socket: PathBuf,
}

impl Nbdkit {
    fn start(folder: &Folder, certificates: &Path) -> Nbdkit {
        let socket = folder.file("nbdkit");
        let child = Command::new("nbdkit")
            .args([
                "-f",
                "-U",
                &text(&socket),
                "--tls=require",
                "--tls-verify-peer",
            ])
            .arg(format!("--tls-certificates={}", text(certificates)))
            .args(["memory", "16M"])
            .stdout(Stdio::null())
            .spawn()
            .expect("nbdkit is installed");
        let nbdkit = Nbdkit { child, socket };
        let begun = Instant::now();
        while UnixStream::connect(&nbdkit.socket).is_err() {
            assert!(begun.elapsed() < PATIENCE, "nbdkit listens");
            thread::yield_now();
        }
        nbdkit
    }

    fn uri(&self, socket: &Path, certificates: &Path) -> String {
        let (socket, folder) = (text(socket), text(certificates));
        format!("nbds+unix:///?socket={socket}&tls-certificates={folder}")
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn nbdkit() -> Option<(Folder, PathBuf, Nbdkit)> {
    let authority = Authority::new().filter(|_| installed(&["nbdkit"]))?;
    let certificates = authority.folder("server", &[("server", SERVER)]);
    let alice = authority.folder("alice", &[("client", ALICE)]);
    let folder = Folder::new();
    // They outlive the authority.
    let kept = folder.file("alice");
    for (from, to) in [(&alice, &kept), (&certificates, &folder.file("server"))] {
        assert!(run("cp", &["-r", &text(from), &text(to)]).status.success());
    }
    let nbdkit = Nbdkit::start(&folder, &folder.file("server"));
    Some((folder, kept, nbdkit))
}

#[test]
fn a_member_at_nbdkit_keeps_its_bytes() {
    let Some((_folder, alice, nbdkit)) = nbdkit() else {
        return;
    };
    keeps_bytes(&nbdkit.uri(&nbdkit.socket, &alice));
}

#[test]
fn a_killed_server_is_an_error_of_its_member() {
    let Some((_folder, alice, nbdkit)) = nbdkit() else {
        return;
    };
    let member = Plain::open(&nbdkit.uri(&nbdkit.socket, &alice), false).expect("it answers");
    member.write(0, &[7; 4096]).expect("room");
    drop(nbdkit);
    assert!(member.read(0, &mut [0; 4096]).is_err());
    assert!(member.write(0, &[8; 4096]).is_err() && member.flush().is_err());
}

/// Passes bytes on in both directions, and changes one bit of what the server sends behind so many bytes.
fn relay(from: &Path, to: PathBuf, change_at: Arc<AtomicU64>) {
    let listener = UnixListener::bind(from).expect("a new socket");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = UnixStream::connect(&to) else {
                return;
            };
            let up = (client.try_clone(), server.try_clone());
            let (Ok(client_up), Ok(server_up)) = up else {
                return;
            };
            thread::spawn(move || pass(client_up, server_up, None));
            let change_at = Arc::clone(&change_at);
            thread::spawn(move || pass(server, client, Some(change_at)));
        }
    });
}

fn pass(mut from: UnixStream, mut to: UnixStream, change_at: Option<Arc<AtomicU64>>) {
    let mut bytes = vec![0; 65536];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if let Some(at) = &change_at {
            let left = at.load(Ordering::SeqCst);
            if left < count as u64 {
                bytes[left as usize] ^= 0x10;
            }
            at.store(left.wrapping_sub(count as u64), Ordering::SeqCst);
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// A read returns what was written or an error, whichever byte an attacker changes.
#[test]
fn a_byte_changed_on_the_way_is_an_error_and_never_data() {
    let Some((folder, alice, nbdkit)) = nbdkit() else {
        return;
    };
    let mut bytes = vec![0; 1 << 20];
    Random::new(5).fill(&mut bytes);
    let direct = Plain::open(&nbdkit.uri(&nbdkit.socket, &alice), false).expect("it answers");
    direct.write(0, &bytes).expect("room");
    let mut random = Random::new(6);
    let mut errors = 0;
    for number in 0..20 {
        let between = folder.file(&format!("relay-{number}"));
        let never = Arc::new(AtomicU64::new(u64::MAX / 2));
        relay(&between, nbdkit.socket.clone(), Arc::clone(&never));
        let member = Plain::open(&nbdkit.uri(&between, &alice), false).expect("it answers");
        never.store(random.below(1 << 20) as u64, Ordering::SeqCst);
        let mut back = vec![0; bytes.len()];
        match member.read(0, &mut back) {
            Ok(()) => assert!(back == bytes, "data that nobody wrote"),
            Err(_) => errors += 1,
        }
        assert!(
            member.read(0, &mut back).is_err(),
            "the connection has ended"
        );
    }
    assert!(errors > 10, "{errors}");
}
