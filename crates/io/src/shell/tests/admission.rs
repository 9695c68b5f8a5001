//! Who has a place among the connections, when more come than there is room for.

use super::leases::Client;
use super::sessions::{Session, portal, socket};
use super::*;
use crate::front::connection::Connection;
use crate::front::{HANDSHAKE_MAX, Link, Protocol, Received, Then};
use crate::nbd_wire::option::encode_option;
use crate::shell::admission::STRANGERS_MAX;
use std::net::{SocketAddr, TcpStream};

const FLOOD: usize = 2 * STRANGERS_MAX;

/// An array in memory behind NBD and iSCSI, on a Unix socket each and NBD on loopback as well.
struct Doors {
    running: Running,
    nbd: PathBuf,
    iscsi: PathBuf,
    tcp: SocketAddr,
}

impl Doors {
    fn open(test: &str) -> Doors {
        let members = plain(&vec!["ram:16M".to_owned(); 3]);
        create_with(&members, RAID5, |_| {});
        let members = members.into_iter().map(Plain::into_member).collect();
        let running = serve(BackendChoice::Automatic, members, None);
        let [nbd_path, iscsi_path] = ["nbd", "iscsi"].map(|kind| socket(&format!("{test}-{kind}")));
        let tcp = Listener::tcp(([127, 0, 0, 1], 0).into()).expect("loopback");
        let address = tcp.address().expect("bound");
        let unix = |path: &PathBuf| Listener::unix(path).expect("a free path");
        for (listener, maker) in [
            (unix(&nbd_path), nbd()),
            (unix(&iscsi_path), portal()),
            (tcp, nbd()),
        ] {
            running.remote.listen(listener, maker).expect("it lives");
        }
        Doors {
            running,
            nbd: nbd_path,
            iscsi: iscsi_path,
            tcp: address,
        }
    }

    fn attach(&self) -> Client {
        Client::attach(&self.nbd, "").expect("the array is the default")
    }

    fn log_in(&self, initiator: &str) -> Session {
        Session::new(&self.iscsi, initiator, "iqn.2026-11.restripe:test")
    }

    /// Peers that begin and do not go on.
    fn flood(&self, path: &Path, speech: &[u8]) -> Vec<UnixStream> {
        let begin = |_| {
            let mut stream = UnixStream::connect(path).expect("it listens");
            // It may have been let go of already.
            let _ = stream.write_all(speech);
            stream
        };
        (0..FLOOD).map(begin).collect()
    }
}

/// An option that is answered with an error, and after which more may follow.
fn half_open_nbd() -> Vec<u8> {
    let mut speech = b"\0\0\0\x03".to_vec();
    encode_option(99, &[], &mut speech);
    speech
}

/// The first request of a login that is to have more.
fn half_open_iscsi() -> Vec<u8> {
    let keys = b"InitiatorName=iqn.test:half\0SessionType=Discovery\0";
    let mut pdu = vec![0; 48];
    (pdu[0], pdu[7]) = (0x43, keys.len() as u8);
    pdu.extend_from_slice(keys);
    pdu.resize(pdu.len().next_multiple_of(4), 0);
    pdu
}

/// Discovery needs no secret, so such a session proves nothing.
fn discovery() -> Vec<u8> {
    let mut pdu = half_open_iscsi();
    pdu[1] = 0x87;
    pdu
}

#[test]
fn half_open_peers_do_not_keep_others_out() {
    let doors = Doors::open("half-open");
    let (mut client, mut session) = (doors.attach(), doors.log_in("iqn.test:one"));
    let mut turned_away = 0;
    for (path, speech) in [
        (&doors.nbd, Vec::new()),
        (&doors.nbd, half_open_nbd()),
        (&doors.iscsi, Vec::new()),
        (&doors.iscsi, half_open_iscsi()),
        (&doors.iscsi, discovery()),
    ] {
        let flood = doors.flood(path, &speech);
        let remote = &doors.running.remote;
        turned_away += (FLOOD - STRANGERS_MAX) as u64;
        while remote.turned_away().expect("it lives") < turned_away {
            std::thread::yield_now();
        }
        // Two that were there before, and one that has left. What was let go of is counted until its sockets
        // are closed.
        while remote.connections().expect("it lives") > STRANGERS_MAX + 3 {
            std::thread::yield_now();
        }
        // Clients that were attached are served, and so are new ones.
        client.read(0, 4096).expect("it is served");
        // TEST UNIT READY.
        session.send(0x01, 0x81, &[0; 6], &[]);
        assert_eq!(session.receive().0, 0x21);
        doors.attach().read(0, 4096).expect("it is served");
        drop(doors.log_in("iqn.test:two"));
        drop(flood);
    }
    stop(doors.running);
}

/// A flood takes the places of its own address before those of others.
#[test]
fn a_flood_displaces_its_own() {
    let doors = Doors::open("addresses");
    let mut patient = TcpStream::connect(doors.tcp).expect("it listens");
    patient.write_all(&half_open_nbd()).expect("room");
    let answer = 18 + 20 + "unknown option".len();
    patient
        .read_exact(&mut vec![0; answer])
        .expect("it answers");
    let flood = doors.flood(&doors.nbd, &[]);
    doors.attach();
    patient.write_all(&half_open_nbd()[4..]).expect("room");
    patient
        .read_exact(&mut vec![0; answer - 18])
        .expect("it answers");
    drop(flood);
    stop(doors.running);
}

/// A client that finishes its handshake leaves its place at once. New clients need not wait until one is
/// displaced.
#[test]
fn more_than_the_strangers_share_may_come_at_once() {
    let doors = Doors::open("burst");
    // Where the machine stalls for a second, some may be displaced.
    while !all_come_within_a_second(&doors) {
        while doors.running.remote.connections().expect("it lives") > 0 {
            std::thread::yield_now();
        }
    }
    stop(doors.running);
}

fn all_come_within_a_second(doors: &Doors) -> bool {
    let turned_away = || doors.running.remote.turned_away().expect("it lives");
    let (begun, before) = (Instant::now(), turned_away());
    let clients: Vec<_> = std::thread::scope(|scope| {
        let attach = |_| scope.spawn(|| Client::attach(&doors.nbd, ""));
        let attaching: Vec<_> = (0..3 * STRANGERS_MAX).map(attach).collect();
        attaching.into_iter().map(|one| one.join()).collect()
    });
    if begun.elapsed() >= Duration::from_secs(1) {
        return false;
    }
    assert!(clients.iter().all(|one| matches!(one, Ok(Ok(_)))));
    assert_eq!(turned_away(), before);
    true
}

/// A peer whose handshake always goes on.
struct Endless {
    proven: bool,
    patience: Option<Nanos>,
}

impl Protocol for Endless {
    fn opened(&mut self, _: &mut dyn Link) {}

    fn received(&mut self, bytes: &[u8], _: &mut dyn Link) -> Received {
        let consumed = bytes.len();
        let then = Then::More;
        Received { consumed, then }
    }

    fn filled(&mut self, _: &mut dyn Link) {}

    fn replied(&mut self, _: u64, _: Result<(), RequestError>, _: &mut dyn Link) {}

    fn patience(&self) -> Option<Nanos> {
        self.patience
    }

    fn is_proven(&self) -> bool {
        self.proven
    }
}

#[test]
fn a_handshake_has_one_deadline_however_often_it_goes_on() {
    let begun = Nanos::from_secs(100);
    for proven in [false, true] {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let wire = Wire::socket(ours.into());
        let patience = None;
        let protocol = Box::new(Endless { proven, patience });
        let mut connection = Connection::new(wire, protocol, begun);
        connection.check_patience(begun.after(HANDSHAKE_MAX), false);
        assert!(!connection.dead());
        let later = begun.after(HANDSHAKE_MAX).after(Nanos::from_secs(1));
        connection.check_patience(later, false);
        assert_eq!(connection.dead(), !proven);
    }
}

/// Deadlines hold however many connect meanwhile.
#[test]
fn new_peers_do_not_postpone_the_end_of_a_silent_one() {
    let doors = Doors::open("postponed");
    let path = socket("postponed");
    let impatient = || Endless {
        proven: false,
        patience: Some(Nanos::from_millis(100)),
    };
    let maker: ProtocolMaker = Arc::new(move || Box::new(impatient()));
    let listener = Listener::unix(&path).expect("a free path");
    let listening = doors.running.remote.listen(listener, maker);
    listening.expect("it lives");
    let mut silent = UnixStream::connect(&path).expect("it listens");
    let (wait, begun) = (Duration::from_millis(200), Instant::now());
    silent.set_read_timeout(Some(wait)).expect("a socket");
    while silent.read(&mut [0]).is_err() {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "it is still there"
        );
        drop(UnixStream::connect(&doors.nbd).expect("it listens"));
    }
    stop(doors.running);
}

/// Else a guesser closes when no answer comes at once, and has its place for the next guess.
#[test]
fn a_refused_login_keeps_its_place_although_its_peer_closes() {
    let doors = Doors::open("guesses");
    let keys = b"InitiatorName=iqn.test:guess\0TargetName=iqn.test:none\0";
    let mut login = vec![0; 48];
    (login[0], login[1], login[7]) = (0x43, 0x87, keys.len() as u8);
    login.extend_from_slice(keys);
    login.resize(login.len().next_multiple_of(4), 0);
    let remote = &doors.running.remote;
    let connections = || remote.connections().expect("it lives");
    let guess = |attempt: u64| {
        let mut stream = UnixStream::connect(&doors.iscsi).expect("it listens");
        stream.write_all(&login).expect("room");
        // It has to be read, or it was no guess.
        std::thread::sleep(Duration::from_millis(20 * attempt));
        drop(stream);
        (0..3).all(|_| {
            std::thread::sleep(Duration::from_millis(5));
            connections() == 1
        })
    };
    let wait_until_gone = || {
        let begun = Instant::now();
        while connections() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "it stays");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let stayed = (1..10).any(|attempt| {
        wait_until_gone();
        guess(attempt)
    });
    assert!(stayed);
    wait_until_gone();
    stop(doors.running);
}
