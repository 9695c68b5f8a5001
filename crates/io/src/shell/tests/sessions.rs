//! Sessions of the iSCSI target, as the reactor sees them.

use super::leases::Bench;
use super::*;
use crate::front::iscsi::{self, hub};
use crate::remote::NotTaken;
use std::sync::Arc;

const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

/// An array of this name in memory.
fn ram_array_named(name: &str) -> ArraySpec {
    let members = plain(&vec!["ram:16M".to_owned(); 3]);
    create_with(&members, RAID5, |options| options.name = name.to_owned());
    spec(members.into_iter().map(Plain::into_member).collect(), None)
}

/// Each array is a target.
pub(super) fn portal() -> ProtocolMaker {
    let hub = Arc::new(hub::Hub::new(Vec::new()));
    maker(hub)
}

fn maker(hub: Arc<hub::Hub>) -> ProtocolMaker {
    Arc::new(move || Box::new(iscsi::Connection::new(Arc::clone(&hub))))
}

pub(super) fn socket(test: &str) -> PathBuf {
    let name = format!("restripe-iscsi-{}-{test}", std::process::id());
    std::env::temp_dir().join(name)
}

/// An initiator that sends one PDU at a time.
pub(super) struct Session {
    stream: UnixStream,
    command: u32,
}

impl Session {
    pub(super) fn new(path: &Path, initiator: &str, target: &str) -> Session {
        let stream = UnixStream::connect(path).expect("it listens");
        stream.set_read_timeout(PATIENCE).expect("a socket");
        let mut session = Session { stream, command: 0 };
        let keys = format!("InitiatorName={initiator}\0TargetName={target}\0");
        // In the operational stage, with transit to the full feature phase.
        session.send(0x43, 0x87, &[], keys.as_bytes());
        assert_eq!(session.receive(), (0x23, 0), "it is logged in");
        session.command = 0;
        // TEST UNIT READY takes the unit attention of a new session.
        session.send(0x01, 0x81, &[0; 6], &[]);
        assert_eq!(session.receive().0, 0x21);
        session
    }

    pub(super) fn send(&mut self, opcode: u8, flags: u8, cdb: &[u8], data: &[u8]) {
        let mut pdu = [0; 48];
        (pdu[0], pdu[1]) = (opcode, flags);
        pdu[6..8].copy_from_slice(&(data.len() as u16).to_be_bytes());
        pdu[20..24].copy_from_slice(&(data.len() as u32).to_be_bytes());
        pdu[24..28].copy_from_slice(&self.command.to_be_bytes());
        pdu[32..32 + cdb.len()].copy_from_slice(cdb);
        self.command += 1;
        let padding = &[0; 3][..data.len().next_multiple_of(4) - data.len()];
        let pdu = [&pdu[..], data, padding].concat();
        self.stream.write_all(&pdu).expect("room");
    }

    /// The next PDU: its opcode, and a login's status. Its data is passed over.
    pub(super) fn receive(&mut self) -> (u8, u8) {
        let mut pdu = [0; 48];
        self.stream.read_exact(&mut pdu).expect("it answers");
        let bytes = usize::from(u16::from_be_bytes([pdu[6], pdu[7]]));
        let mut data = vec![0; bytes.next_multiple_of(4)];
        self.stream.read_exact(&mut data).expect("it answers");
        (pdu[0], pdu[36])
    }
}

/// A session has the promise of each of its arrays that a flush makes writes durable.
#[test]
fn a_session_is_a_client_of_all_its_arrays() {
    let specs = ["first", "second", "third"].map(ram_array_named);
    let running = serve_within(BackendChoice::Automatic, 64 * MIB, specs);
    let target = hub::Target {
        name: "iqn.test:both".to_owned(),
        luns: vec!["first".to_owned(), "third".to_owned()],
        ..hub::Target::default()
    };
    let path = socket("clients");
    let listener = Listener::unix(&path).expect("a free path");
    let hub = Arc::new(hub::Hub::new(vec![target]));
    let listening = running.remote.listen(listener, maker(hub));
    listening.expect("it lives");
    let session = Session::new(&path, "iqn.test:one", "iqn.test:both");
    let arrive = |array| {
        let mut member = ram_array_named("spare").members.remove(0);
        member.info.volatile = true;
        running.remote.arrive(array, member).expect("it lives")
    };
    assert_eq!(arrive(0), Err(NotTaken::Promised));
    assert!(arrive(1).is_ok(), "no session has this array");
    assert_eq!(arrive(2), Err(NotTaken::Promised));
    drop(session);
    stop(running);
}

/// A reset is answered when no write of the sessions that it cleared can land, also of one whose initiator is gone.
#[test]
fn a_lost_session_stays_until_its_writes_are_over() {
    let mut bench = Bench::new("lost-session");
    let path = socket("lost");
    let listener = Listener::unix(&path).expect("a free path");
    bench.shell.listen(listener, portal());
    let target = format!("{}test", hub::NAME_PREFIX);
    let (mut lost, mut other) = bench.during(move || {
        let session = |name| Session::new(&path, name, &target);
        (session("iqn.test:one"), session("iqn.test:two"))
    });
    bench.hold(true);
    // WRITE (10) of one block.
    let write = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    lost.send(0x01, 0xa0, &write, &[0xaa; 512]);
    bench.turn_until(|bench| !bench.shell.hosts[0].held().is_empty());
    drop(lost);
    // LOGICAL UNIT RESET.
    other.send(0x02, 0x85, &[], &[]);
    (0..50).for_each(|_| bench.turn());
    other.stream.set_nonblocking(true).expect("a socket");
    assert!(
        other.stream.read(&mut [0; 48]).is_err(),
        "the write may still land"
    );
    assert_eq!(bench.shell.connections.iter().count(), 2);
    other.stream.set_nonblocking(false).expect("a socket");
    bench.hold(false);
    let response = bench.during(move || other.receive());
    assert_eq!(response.0, 0x22);
    bench.turn_until(|bench| bench.shell.connections.iter().count() == 0);
}

/// What an initiator sent is not taken any more once it has closed its side: it may send it again in a new session.
#[test]
fn a_command_that_is_unread_when_its_session_is_closed_does_not_begin() {
    let mut bench = Bench::new("unread-command");
    let path = socket("unread");
    let listener = Listener::unix(&path).expect("a free path");
    bench.shell.listen(listener, portal());
    let target = format!("{}test", hub::NAME_PREFIX);
    let mut session = bench.during(move || Session::new(&path, "iqn.test:one", &target));
    bench.hold(true);
    let write = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    session.send(0x01, 0xa0, &write, &[0xaa; 512]);
    drop(session);
    bench.turn_until(|bench| bench.shell.connections.is_empty());
    assert!(bench.shell.hosts[0].held().is_empty());
}

/// What sessions see of an array for every command is kept, and found out anew when the array changes.
#[test]
fn a_view_is_kept_until_the_array_changes() {
    let mut bench = Bench::new("view");
    let before = bench.shell.hosts[0].view();
    assert!(Arc::ptr_eq(&before, &bench.shell.hosts[0].view()));
    assert!(before.serving && before.durable);
    let member = ram_array_named("spare").members.remove(0);
    bench.shell.hosts[0].arrive(member);
    let arrived = bench.shell.hosts[0].view();
    assert!(!Arc::ptr_eq(&before, &arrived));
    bench.shell.hosts[0].hold(true);
    assert_eq!(bench.shell.hosts[0].view().minimum_block, 512);
    bench.shell.hosts[0].hold(false);
    assert_eq!(bench.shell.hosts[0].view().minimum_block, 1);
    bench.done(Command::Stop).expect("it stops");
    assert!(!bench.shell.hosts[0].view().serving);
}
