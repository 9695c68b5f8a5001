//! Whole arrays on real members, served by a reactor on its own thread.

use super::*;
use crate::member::{self, OpenOptions};
use crate::nbd_wire::message::Request;
use crate::nbd_wire::option::{encode_info_query, encode_option};
use crate::plain::Plain;
use crate::remote::LocalClient;
use restripe_array::layout::{Level, Rotation};
use restripe_array::meta::{self, Content, CreateOptions, Init};
use restripe_array::report::{ArrayState, MemberState};
use restripe_array::{Command, Member, StartMode, Uuid};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

mod leases;
mod turns;

const MIB: u64 = 1 << 20;

/// Files of an array, removed at the end.
struct Images {
    paths: Vec<PathBuf>,
}

impl Images {
    fn new(test: &str, count: usize, bytes: u64) -> Images {
        let name = |i| {
            std::env::temp_dir().join(format!("restripe-shell-{}-{test}-{i}", std::process::id()))
        };
        let paths: Vec<PathBuf> = (0..count).map(name).collect();
        for path in &paths {
            std::fs::File::create(path)
                .and_then(|file| file.set_len(bytes))
                .expect("a temporary file");
        }
        Images { paths }
    }

    fn names(&self) -> Vec<String> {
        self.paths
            .iter()
            .map(|path| path.to_str().expect("plain").to_owned())
            .collect()
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        for path in &self.paths {
            std::fs::remove_file(path).expect("ours");
        }
    }
}

fn create(members: &[Plain], level: Level, spares: usize) {
    create_with(members, level, |options| options.spares = spares);
}

fn create_with(members: &[Plain], level: Level, change: impl FnOnce(&mut CreateOptions)) {
    let mut options = CreateOptions::new("test", Uuid([7; 16]), level, 128);
    options.members = members.iter().map(Plain::info).collect();
    options.uuids = (0..members.len())
        .map(|i| Uuid([i as u8 + 1; 16]))
        .collect();
    change(&mut options);
    let creation = meta::create(&options).expect("a sound array");
    for (member, at, content) in &creation.writes {
        match content {
            Content::Page(page) => members[*member].write(*at, &page[..]),
            Content::Zero(sectors) => members[*member].zero(*at, *sectors),
        }
        .expect("the member takes it");
    }
    members
        .iter()
        .for_each(|member| member.flush().expect("it flushes"));
}

fn plain(names: &[String]) -> Vec<Plain> {
    names
        .iter()
        .map(|name| Plain::open(name, false).expect("it opens"))
        .collect()
}

fn spec(members: Vec<OpenMember>, record: Option<&Path>) -> ArraySpec {
    let record = record.map(Path::to_path_buf);
    ArraySpec {
        members,
        limits: Limits::default(),
        surrogate: None,
        io_timeout: Nanos::from_secs(30),
        probe: Nanos::from_secs(10),
        record,
    }
}

/// A reactor that hosts these members, started.
fn serve(backend: BackendChoice, members: Vec<OpenMember>, record: Option<&Path>) -> Running {
    let options = ShellOptions {
        backend,
        memory: 64 * MIB,
    };
    let spec = spec(members, record);
    let running =
        Shell::spawn(options, move |shell| shell.host(spec).map(drop)).expect("a reactor");
    let start = Command::Start(StartMode::default());
    running
        .remote
        .command(0, start)
        .expect("it lives")
        .expect("the array starts");
    running
}

fn open(names: &[String]) -> Vec<OpenMember> {
    member::open_members(names, OpenOptions::default()).expect("they open")
}

fn stop(running: Running) {
    running.remote.shutdown().expect("it lives");
    running.join().expect("it ends well");
}

fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |state: &mut u64| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state as u8
    };
    (0..bytes).map(|_| step(&mut state)).collect()
}

fn backends() -> Vec<BackendChoice> {
    let ring = backend::open(BackendChoice::Ring).is_ok();
    if ring {
        vec![BackendChoice::Ring, BackendChoice::Threads]
    } else {
        vec![BackendChoice::Threads]
    }
}

fn state(running: &Running) -> ArrayState {
    running
        .remote
        .status(0)
        .expect("it lives")
        .expect("array 0")
        .state
}

const RAID5: Level = Level::Raid5(Rotation::LeftSymmetric);

fn write_some(client: &mut LocalClient, seed: u64) {
    client
        .write(0, pattern(seed, 300_000 / 512 * 512), false)
        .expect("it is written");
    client
        .write(5 * MIB + 1536, pattern(seed + 1, 4096), true)
        .expect("it is written");
    client
        .write(7 * MIB + 7, pattern(seed + 2, 1000), false)
        .expect("also where no sector begins");
    client.flush().expect("it is flushed");
}

fn check_some(client: &mut LocalClient, seed: u64) {
    let long = pattern(seed, 300_000 / 512 * 512);
    assert!(client.read(0, long.len() as u64).expect("it is read") == long);
    assert_eq!(
        client.read(5 * MIB + 1536, 4096).expect("it is read"),
        pattern(seed + 1, 4096)
    );
    assert_eq!(
        client.read(7 * MIB + 7, 1000).expect("it is read"),
        pattern(seed + 2, 1000)
    );
    assert_eq!(
        client.read(9 * MIB, 4096).expect("it is read"),
        vec![0; 4096],
        "never written"
    );
}

#[test]
fn an_array_of_files_keeps_what_it_is_given_over_a_restart() {
    for backend in backends() {
        let images = Images::new(&format!("restart-{backend:?}"), 4, 16 * MIB);
        create(&plain(&images.names()), RAID5, 0);
        let running = serve(backend, open(&images.names()), None);
        assert_eq!(state(&running), ArrayState::Healthy);
        let mut client = running.remote.client(0);
        write_some(&mut client, 1);
        check_some(&mut client, 1);
        stop(running);
        let running = serve(backend, open(&images.names()), None);
        check_some(&mut running.remote.client(0), 1);
        stop(running);
    }
}

#[test]
fn an_abandoned_array_has_what_was_flushed() {
    for backend in backends() {
        let images = Images::new(&format!("abandon-{backend:?}"), 4, 16 * MIB);
        create(&plain(&images.names()), RAID5, 0);
        let running = serve(backend, open(&images.names()), None);
        write_some(&mut running.remote.client(0), 5);
        running.remote.abandon().expect("it lives");
        running.join().expect("it ends");
        let running = serve(backend, open(&images.names()), None);
        check_some(&mut running.remote.client(0), 5);
        stop(running);
    }
}

#[test]
fn a_spare_takes_over_and_the_next_loss_is_borne() {
    for backend in backends() {
        let images = Images::new(&format!("spare-{backend:?}"), 5, 16 * MIB);
        create(&plain(&images.names()), RAID5, 1);
        let running = serve(backend, open(&images.names()), None);
        let facts = running.remote.facts(0).expect("it lives");
        let mut client = running.remote.client(0);
        write_some(&mut client, 9);
        running
            .remote
            .command(0, Command::Fail(Member(1)))
            .expect("it lives")
            .expect("it fails");
        check_some(&mut client, 9);
        wait_for_task(&facts);
        assert_eq!(state(&running), ArrayState::Healthy);
        running
            .remote
            .command(0, Command::Fail(Member(2)))
            .expect("it lives")
            .expect("it fails");
        check_some(&mut client, 9);
        let status = running
            .remote
            .status(0)
            .expect("it lives")
            .expect("array 0");
        assert_eq!(status.state, ArrayState::Degraded);
        assert_eq!(status.members[2].state, MemberState::Failed);
        stop(running);
    }
}

fn wait_for_task(facts: &mpsc::Receiver<(Nanos, restripe_array::Fact)>) {
    use restripe_array::{Fact, TaskOutcome};
    loop {
        let (_, fact) = facts
            .recv_timeout(Duration::from_secs(60))
            .expect("the rebuild ends");
        if let Fact::TaskEnded { outcome, .. } = fact {
            assert_eq!(outcome, TaskOutcome::Done);
            return;
        }
    }
}

/// An array in memory.
fn ram_array(level: Level, count: usize) -> Vec<OpenMember> {
    let members = plain(&vec!["ram:16M".to_owned(); count]);
    create(&members, level, 0);
    members.into_iter().map(Plain::into_member).collect()
}

#[test]
fn every_level_serves_from_memory() {
    let raid6 = Level::Raid6(Rotation::LeftSymmetric);
    for level in [
        Level::Raid0,
        Level::Raid1,
        Level::Raid4,
        RAID5,
        raid6,
        Level::Raid10 { copies: 2 },
    ] {
        let running = serve(BackendChoice::Automatic, ram_array(level, 4), None);
        let mut client = running.remote.client(0);
        write_some(&mut client, 3);
        check_some(&mut client, 3);
        client.trim(0, MIB).expect("it is trimmed");
        client.zero(5 * MIB, MIB, false).expect("it is zeroed");
        assert_eq!(
            client.read(5 * MIB, MIB).expect("it is read"),
            vec![0; MIB as usize]
        );
        stop(running);
    }
}

#[test]
fn many_requests_at_once_within_little_memory_are_all_answered() {
    let options = ShellOptions {
        backend: BackendChoice::Automatic,
        memory: MIB,
    };
    let spec = spec(ram_array(RAID5, 4), None);
    let running =
        Shell::spawn(options, move |shell| shell.host(spec).map(drop)).expect("a reactor");
    let start = Command::Start(StartMode::default());
    running
        .remote
        .command(0, start)
        .expect("it lives")
        .expect("the array starts");
    let mut client = running.remote.client(0);
    for i in 0..1000 {
        let data = pattern(i, 65536);
        client
            .submit(
                restripe_array::RequestOp::Write,
                i % 50 * 65536,
                65536,
                data,
                false,
            )
            .expect("it lives");
    }
    for _ in 0..1000 {
        client
            .next_reply()
            .expect("it lives")
            .result
            .expect("it is written");
    }
    let last = client.read(3 * 65536, 65536).expect("it is read");
    assert!(last == pattern(953, 65536), "the last of its writes");
    stop(running);
}

#[test]
fn a_recorded_run_replays_to_the_same_actions() {
    let path = std::env::temp_dir().join(format!("restripe-record-{}", std::process::id()));
    let running = serve(BackendChoice::Automatic, ram_array(RAID5, 4), Some(&path));
    write_some(&mut running.remote.client(0), 2);
    running
        .remote
        .command(0, Command::Fail(Member(1)))
        .expect("it lives")
        .expect("it fails");
    check_some(&mut running.remote.client(0), 2);
    stop(running);
    let record = std::fs::read(&path).expect("it was written");
    std::fs::remove_file(&path).expect("ours");
    let replayed = crate::record::replay(&record, |_| {}).expect("the same engine does the same");
    assert!(replayed.steps > 20 && !replayed.cut);
    let cut = crate::record::replay(&record[..record.len() - 3], |_| {})
        .expect("a cut record is a shorter one");
    assert!(cut.cut && cut.steps < replayed.steps);
}

/// Reads a block over NBD on pipes, as over standard input and output.
fn read_over_pipes(running: &Running, bytes: u32) -> Vec<u8> {
    use crate::nbd_wire::client::{Client, ClientEvent, ClientRequest, Replies};
    let (their_input, mut requests) = std::io::pipe().expect("a pipe");
    let (mut replies, their_output) = std::io::pipe().expect("a pipe");
    let wire = Wire::pair(their_input.into(), their_output.into());
    let maker: ProtocolMaker =
        std::sync::Arc::new(|| Box::new(crate::front::nbd::Connection::new()));
    running.remote.adopt(wire, maker).expect("it lives");
    let mut client = Client::new("", Replies::Simple);
    let (mut inbox, mut out, mut buffer, mut block) =
        (Vec::new(), Vec::new(), [0; 1024], vec![0; bytes as usize]);
    loop {
        let step = client.received(&inbox, &mut out).expect("a sound server");
        inbox.drain(..step.consumed);
        match step.event {
            ClientEvent::Ready => {
                let request = ClientRequest {
                    tag: 1,
                    command: crate::nbd_wire::Command::Read,
                    offset: 0,
                    bytes,
                    flags: 0,
                };
                client.request(request, &mut out).expect("it may be asked");
            }
            ClientEvent::Payload { bytes, .. } => {
                let here = inbox.len().min(bytes as usize);
                block[..here].copy_from_slice(&inbox[..here]);
                inbox.drain(..here);
                replies.read_exact(&mut block[here..]).expect("it is sent");
                client.filled();
                continue;
            }
            ClientEvent::Reply { result, .. } => {
                result.expect("it is read");
                return block;
            }
            ClientEvent::More | ClientEvent::Zeroes { .. } => {}
        }
        requests.write_all(&out).expect("room");
        out.clear();
        if step.event == ClientEvent::More && step.consumed == 0 {
            let count = replies.read(&mut buffer).expect("it answers");
            assert!(count > 0, "the server hung up");
            inbox.extend_from_slice(&buffer[..count]);
        }
    }
}

#[test]
fn pipes_carry_a_connection_on_every_backend() {
    for backend in backends() {
        let running = serve(backend, ram_array(RAID5, 3), None);
        let bytes = pattern(4, 300 * 1024);
        running
            .remote
            .client(0)
            .write(0, bytes.clone(), false)
            .expect("it is written");
        assert!(
            read_over_pipes(&running, 300 * 1024) == bytes,
            "more than a pipe holds comes through whole"
        );
        while running.remote.connections().expect("it lives") > 0 {
            std::thread::yield_now();
        }
        stop(running);
    }
}

#[test]
fn one_reactor_serves_several_arrays() {
    let specs = [
        spec(ram_array(RAID5, 3), None),
        spec(ram_array(Level::Raid1, 2), None),
    ];
    let prepare = move |shell: &mut Shell| {
        specs
            .into_iter()
            .try_for_each(|spec| shell.host(spec).map(drop))
    };
    let running = Shell::spawn(ShellOptions::default(), prepare).expect("a reactor");
    for array in 0..2 {
        let start = Command::Start(StartMode::default());
        running
            .remote
            .command(array, start)
            .expect("it lives")
            .expect("the array starts");
    }
    let (mut first, mut second) = (running.remote.client(0), running.remote.client(1));
    first
        .write(0, pattern(1, 8192), false)
        .expect("it is written");
    second
        .write(0, pattern(2, 8192), false)
        .expect("it is written");
    assert!(first.read(0, 8192).expect("it is read") == pattern(1, 8192));
    assert!(second.read(0, 8192).expect("it is read") == pattern(2, 8192));
    assert!(
        running.remote.status(2).expect("it lives").is_none(),
        "there is no third"
    );
    stop(running);
}

#[test]
fn nonsense_from_this_process_is_refused() {
    let running = serve(BackendChoice::Automatic, ram_array(RAID5, 3), None);
    let mut client = running.remote.client(0);
    assert!(client.read(1 << 60, 4096).is_err(), "beyond the end");
    assert!(
        client.read(u64::MAX - 5, 4096).is_err(),
        "around the end of all numbers"
    );
    assert!(
        client.read(0, 1 << 40).is_err(),
        "more than one request may have"
    );
    assert!(
        running.remote.client(7).read(0, 512).is_err(),
        "of no array"
    );
    assert!(client.read(0, 512).is_ok());
    stop(running);
}

/// Attaches to the only array of a server.
fn attach(path: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(path).expect("it listens");
    stream.read_exact(&mut [0; 18]).expect("it greets");
    let mut hello = b"\0\0\0\x03".to_vec();
    encode_option(7, &[&encode_info_query("", &[])], &mut hello);
    stream.write_all(&hello).expect("room");
    loop {
        let mut header = [0; 20];
        stream.read_exact(&mut header).expect("it answers");
        let word = |at: usize| {
            header[at..]
                .first_chunk()
                .map(|word| u32::from_be_bytes(*word))
        };
        let mut data = vec![0; word(16).expect("a length") as usize];
        stream.read_exact(&mut data).expect("it answers");
        if word(12) == Some(1) {
            return stream;
        }
    }
}

/// Asks for the first bytes, so many times.
fn ask_to_read(stream: &mut UnixStream, bytes: u32, times: usize) {
    let request = Request {
        flags: 0,
        command: 0,
        cookie: 1,
        offset: 0,
        bytes,
    };
    let all = request.encode().repeat(times);
    stream.write_all(&all).expect("the server takes it");
}

/// A client was kept waiting for half a minute by eight others that did not read their replies: each held as much memory
/// as there was, one after the other, until its time was up.
#[test]
fn clients_that_do_not_read_keep_nobody_waiting() {
    for backend in backends() {
        let options = ShellOptions {
            backend,
            ..ShellOptions::default()
        };
        let spec = spec(ram_array(RAID5, 3), None);
        let running =
            Shell::spawn(options, move |shell| shell.host(spec).map(drop)).expect("a reactor");
        let start = Command::Start(StartMode::default());
        let started = running.remote.command(0, start).expect("it lives");
        started.expect("the array starts");
        let path = std::env::temp_dir().join(format!("restripe-stalled-{}", std::process::id()));
        let listener = Listener::unix(&path).expect("a free path");
        let maker: ProtocolMaker =
            std::sync::Arc::new(|| Box::new(crate::front::nbd::Connection::new()));
        running.remote.listen(listener, maker).expect("it lives");
        let mut stalled: Vec<UnixStream> = (0..8).map(|_| attach(&path)).collect();
        for stream in &mut stalled {
            ask_to_read(stream, 1 << 20, 1000);
            // It is served, and takes no more than this.
            stream.read_exact(&mut [0; 16]).expect("a reply begins");
        }
        let mut decent = attach(&path);
        for bytes in [4096, 1 << 20, 8 << 20] {
            ask_to_read(&mut decent, bytes, 1);
            let mut reply = vec![0; 16 + bytes as usize];
            decent.read_exact(&mut reply).expect("it is served");
        }
        let connections = running.remote.connections().expect("it lives");
        assert_eq!(connections, 9, "nobody had to be hung up on for that");
        drop((stalled, decent));
        stop(running);
    }
}
