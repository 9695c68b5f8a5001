//! iSCSI served by the daemon: what its start refuses, and what outlives its end.

use crate::harness::{Place, raid5};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// A port of this machine that was free just now.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("it has one").port()
}

/// An initiator that sends one PDU at a time.
struct Session {
    stream: TcpStream,
    command: u32,
}

impl Session {
    fn new(port: u16, initiator: &str) -> Session {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).expect("a socket");
        let mut session = Session { stream, command: 0 };
        let keys = format!(
            "InitiatorName=iqn.x:{initiator}\0TargetName=iqn.2026-11.restripe:tank\0InitialR2T=Yes\0"
        );
        // In the operational stage, with transit to the full feature phase.
        session.send(0x43, 0x87, &[], 0, keys.as_bytes());
        assert_eq!(session.receive().0[36], 0, "it is logged in");
        session.command = 0;
        // TEST UNIT READY takes the unit attention of a new session.
        session.send(0x01, 0x81, &[0; 6], 0, &[]);
        assert_eq!(session.receive().0[3], 2, "a unit attention");
        session
    }

    fn send(&mut self, opcode: u8, flags: u8, cdb: &[u8], expected: u32, data: &[u8]) {
        let mut pdu = [0; 48];
        (pdu[0], pdu[1]) = (opcode, flags);
        pdu[6..8].copy_from_slice(&(data.len() as u16).to_be_bytes());
        pdu[20..24].copy_from_slice(&expected.to_be_bytes());
        pdu[24..28].copy_from_slice(&self.command.to_be_bytes());
        pdu[32..32 + cdb.len()].copy_from_slice(cdb);
        self.command += 1;
        let padding = &[0; 3][..data.len().next_multiple_of(4) - data.len()];
        let pdu = [&pdu[..], data, padding].concat();
        self.stream.write_all(&pdu).expect("room");
    }

    fn receive(&mut self) -> ([u8; 48], Vec<u8>) {
        let mut pdu = [0; 48];
        self.stream.read_exact(&mut pdu).expect("it answers");
        let bytes = usize::from(u16::from_be_bytes([pdu[6], pdu[7]]));
        let mut data = vec![0; bytes.next_multiple_of(4)];
        self.stream.read_exact(&mut data).expect("it answers");
        data.truncate(bytes);
        (pdu, data)
    }

    /// PERSISTENT RESERVE OUT with APTPL: its status.
    fn persist(&mut self, action: u8, key: u64, new: u64) -> u8 {
        // Write exclusive, for registrants.
        let kind = if action == 0 { 0 } else { 5 };
        let mut list = [&key.to_be_bytes()[..], &new.to_be_bytes(), &[0; 8]].concat();
        list[20] = 1;
        let cdb = [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
        self.send(0x01, 0xa0, &cdb, 24, &list);
        self.receive().0[3]
    }

    fn write(&mut self) -> u8 {
        let cdb = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        self.send(0x01, 0xa0, &cdb, 512, &[1; 512]);
        self.receive().0[3]
    }
}

fn configure(place: &Place) {
    let text =
        "[[array]]\nname='tank'\nmembers=['a.img','b.img','c.img']\n[iscsi]\nstate='state'\n";
    place.write("tank.toml", 0, 0, text.as_bytes());
}

#[test]
fn a_reservation_outlives_a_killed_daemon() {
    let place = raid5("iscsi-reservation");
    configure(&place);
    let port = free_port();
    let portal = format!("--iscsi=127.0.0.1:{port}");
    let arguments = ["--config", "tank.toml", &portal];
    let daemon = place.serve(&arguments);
    let mut one = Session::new(port, "one");
    assert_eq!(one.persist(0, 0, 11), 0, "REGISTER");
    assert_eq!(one.persist(1, 11, 0), 0, "RESERVE");
    daemon.kill();

    let daemon = place.serve(&arguments);
    assert_eq!(
        Session::new(port, "two").write(),
        0x18,
        "a reservation conflict"
    );
    assert_eq!(Session::new(port, "one").write(), 0);
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(daemon.wait(), 0);

    // Half a file is none.
    let kept = place.shell("cd state/reservations && truncate -s -3 * && ls");
    assert_eq!(kept.stdout.lines().count(), 1, "{}", kept.stdout);
    let refused = place.run(&[&["serve", "--unix", "nbd.sock"], &arguments[..]].concat());
    assert_eq!(refused.status, 1, "{}", refused.stderr);
    for part in [
        "the reservations of an array cannot be read",
        kept.stdout.trim(),
        "remove the file",
    ] {
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
    let again = place.shell("rm state/reservations/*");
    assert_eq!(again.status, 0);
    let daemon = place.serve(&arguments);
    assert_eq!(Session::new(port, "two").write(), 0);
    assert_eq!(place.run(&["stop", "tank"]).status, 0);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_target_of_an_array_that_is_not_served_is_refused() {
    let place = raid5("iscsi-lun");
    let text = "[[array]]\nname='tank'\nmembers=['a.img','b.img','c.img']\n[iscsi]\nlisten='0'\n\
                [[iscsi.target]]\nname='iqn.2026-11.x:y'\nluns=['pool','tank']\n";
    place.write("tank.toml", 0, 0, text.as_bytes());
    let refused = place.run(&["serve", "--config", "tank.toml"]);
    assert_eq!(refused.status, 2, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("no array \"pool\""),
        "{}",
        refused.stderr
    );
}
