//! Whole arrays on real members, served by a reactor on its own thread.

use super::*;
use crate::member::{self, OpenOptions};
use crate::nbd_wire::message::Request;
use crate::plain::Plain;
use crate::remote::LocalClient;
use restripe_array::layout::{Level, Rotation};
use restripe_array::meta::{self, Content, CreateOptions, Init};
use restripe_array::report::{ArrayState, MemberState};
use restripe_array::{Command, Member, StartMode, Uuid};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

mod admission;
mod closed;
mod leases;
mod sessions;
mod turns;

const MIB: u64 = 1 << 20;

/// Files of an array, removed at the end.
struct Images {
    paths: Vec<PathBuf>,
}

impl Images {
    fn new(test: &str, count: usize, bytes: u64) -> Images {
        let (folder, process) = (std::env::temp_dir(), std::process::id());
        let name = |i| folder.join(format!("restripe-shell-{process}-{test}-{i}"));
        let paths: Vec<PathBuf> = (0..count).map(name).collect();
        for path in &paths {
            let file = std::fs::File::create(path).expect("a temporary file");
            file.set_len(bytes).expect("room");
        }
        Images { paths }
    }

    fn names(&self) -> Vec<String> {
        let name = |path: &PathBuf| path.to_str().expect("plain").to_owned();
        self.paths.iter().map(name).collect()
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
    let uuids = (1..).map(|i| Uuid([i; 16]));
    options.uuids = uuids.take(members.len()).collect();
    change(&mut options);
    let creation = meta::create(&options).expect("a sound array");
    for (member, at, content) in &creation.writes {
        match content {
            Content::Page(page) => members[*member].write(*at, &page[..]),
            Content::Zero(sectors) => members[*member].zero(*at, *sectors),
        }
        .expect("the member takes it");
    }
    for member in members {
        member.flush().expect("it flushes");
    }
}

fn plain(names: &[String]) -> Vec<Plain> {
    let open = |name: &String| Plain::open(name, false).expect("it opens");
    names.iter().map(open).collect()
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
    serve_within(backend, 64 * MIB, [spec(members, record)])
}

/// One that hosts an array of each spec, with so much memory for users.
fn serve_within<const N: usize>(
    backend: BackendChoice,
    memory: u64,
    specs: [ArraySpec; N],
) -> Running {
    let options = ShellOptions { backend, memory };
    let prepare = move |shell: &mut Shell| {
        let mut specs = specs.into_iter();
        specs.try_for_each(|spec| shell.host(spec).map(drop))
    };
    let running = Shell::spawn(options, prepare).expect("a reactor");
    for array in 0..N {
        let start = Command::Start(StartMode::default());
        let started = running.remote.command(array, start).expect("it lives");
        started.expect("the array starts");
    }
    running
}

fn fail(running: &Running, member: Member) {
    let failed = running.remote.command(0, Command::Fail(member));
    failed.expect("it lives").expect("it fails");
}

fn nbd() -> ProtocolMaker {
    std::sync::Arc::new(|| Box::new(crate::front::nbd::Connection::new()))
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
    let mut backends = vec![BackendChoice::Ring, BackendChoice::Threads];
    backends.retain(|backend| backend::open(*backend).is_ok());
    backends
}

fn status(running: &Running) -> restripe_tier::report::Status {
    let status = running.remote.status(0).expect("it lives");
    status.expect("array 0")
}

const RAID5: Level = Level::Raid5(Rotation::LeftSymmetric);

/// Where something is written, what, and whether durably: the last also where no sector begins.
fn some(seed: u64) -> [(u64, Vec<u8>, bool); 3] {
    [
        (0, pattern(seed, 300_000 / 512 * 512), false),
        (5 * MIB + 1536, pattern(seed + 1, 4096), true),
        (7 * MIB + 7, pattern(seed + 2, 1000), false),
    ]
}

fn write_some(client: &mut LocalClient, seed: u64) {
    for (at, bytes, fua) in some(seed) {
        client.write(at, bytes, fua).expect("it is written");
    }
    client.flush().expect("it is flushed");
}

fn check_some(client: &mut LocalClient, seed: u64) {
    let never_written = (9 * MIB, vec![0; 4096], false);
    for (at, bytes, _) in some(seed).into_iter().chain([never_written]) {
        let read = client.read(at, bytes.len() as u64).expect("it is read");
        assert!(read == bytes, "at {at}");
    }
}

#[test]
fn an_array_of_files_keeps_what_it_is_given_over_a_restart() {
    for backend in backends() {
        let images = Images::new(&format!("restart-{backend:?}"), 4, 16 * MIB);
        create(&plain(&images.names()), RAID5, 0);
        let running = serve(backend, open(&images.names()), None);
        assert_eq!(status(&running).state, ArrayState::Healthy);
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
        fail(&running, Member(1));
        check_some(&mut client, 9);
        wait_for_task(&facts);
        assert_eq!(status(&running).state, ArrayState::Healthy);
        fail(&running, Member(2));
        check_some(&mut client, 9);
        let status = status(&running);
        assert_eq!(status.state, ArrayState::Degraded);
        assert_eq!(status.members[2].state, MemberState::Failed);
        stop(running);
    }
}

fn wait_for_task(facts: &mpsc::Receiver<(Nanos, restripe_array::Fact)>) {
    use restripe_array::{Fact, TaskOutcome};
    loop {
        let told = facts.recv_timeout(Duration::from_secs(60));
        let (_, fact) = told.expect("the rebuild ends");
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
    let raid10 = Level::Raid10 { copies: 2 };
    let plain = [Level::Raid0, Level::Raid1, Level::Raid4];
    for level in plain.into_iter().chain([RAID5, raid6, raid10]) {
        let running = serve(BackendChoice::Automatic, ram_array(level, 4), None);
        let mut client = running.remote.client(0);
        write_some(&mut client, 3);
        check_some(&mut client, 3);
        client.trim(0, MIB).expect("it is trimmed");
        client.zero(5 * MIB, MIB, false).expect("it is zeroed");
        let zeroed = client.read(5 * MIB, MIB).expect("it is read");
        assert_eq!(zeroed, vec![0; MIB as usize]);
        stop(running);
    }
}

#[test]
fn many_requests_at_once_within_little_memory_are_all_answered() {
    let spec = spec(ram_array(RAID5, 4), None);
    let running = serve_within(BackendChoice::Automatic, MIB, [spec]);
    let mut client = running.remote.client(0);
    for i in 0..1000 {
        let (write, at) = (restripe_array::RequestOp::Write, i % 50 * 65536);
        let submitted = client.submit(write, at, 65536, pattern(i, 65536), false);
        submitted.expect("it lives");
    }
    for _ in 0..1000 {
        let reply = client.next_reply().expect("it lives");
        reply.result.expect("it is written");
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
    fail(&running, Member(1));
    check_some(&mut running.remote.client(0), 2);
    stop(running);
    let record = std::fs::read(&path).expect("it was written");
    std::fs::remove_file(&path).expect("ours");
    let replayed = crate::record::replay(&record, |_| {}).expect("the same engine does the same");
    assert!(replayed.steps > 20 && !replayed.cut);
    let cut = crate::record::replay(&record[..record.len() - 3], |_| {});
    let cut = cut.expect("a cut record is a shorter one");
    assert!(cut.cut && cut.steps < replayed.steps);
}

/// Reads a block over NBD on pipes, as over standard input and output.
fn read_over_pipes(running: &Running, bytes: u32) -> Vec<u8> {
    use crate::nbd_wire::client::{Client, ClientEvent, ClientRequest, Replies};
    let (their_input, mut requests) = std::io::pipe().expect("a pipe");
    let (mut replies, their_output) = std::io::pipe().expect("a pipe");
    let wire = Wire::pair(their_input.into(), their_output.into());
    running.remote.adopt(wire, nbd()).expect("it lives");
    let mut client = Client::new("", Replies::Simple);
    let (mut inbox, mut out, mut buffer) = (Vec::new(), Vec::new(), [0; 1024]);
    let mut block = vec![0; bytes as usize];
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
            ClientEvent::More | ClientEvent::Secure | ClientEvent::Zeroes { .. } => {}
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
        let written = running.remote.client(0).write(0, bytes.clone(), false);
        written.expect("it is written");
        // More than a pipe holds comes through whole.
        assert!(read_over_pipes(&running, 300 * 1024) == bytes);
        while running.remote.connections().expect("it lives") > 0 {
            std::thread::yield_now();
        }
        stop(running);
    }
}

#[test]
fn one_reactor_serves_several_arrays() {
    let (one, other) = (ram_array(RAID5, 3), ram_array(Level::Raid1, 2));
    let specs = [spec(one, None), spec(other, None)];
    let ShellOptions { backend, memory } = ShellOptions::default();
    let running = serve_within(backend, memory, specs);
    let (mut first, mut second) = (running.remote.client(0), running.remote.client(1));
    for (client, seed) in [(&mut first, 1), (&mut second, 2)] {
        let written = client.write(0, pattern(seed, 8192), false);
        written.expect("it is written");
    }
    assert!(first.read(0, 8192).expect("it is read") == pattern(1, 8192));
    assert!(second.read(0, 8192).expect("it is read") == pattern(2, 8192));
    let third = running.remote.status(2).expect("it lives");
    assert!(third.is_none());
    stop(running);
}

#[test]
fn nonsense_from_this_process_is_refused() {
    let running = serve(BackendChoice::Automatic, ram_array(RAID5, 3), None);
    let mut client = running.remote.client(0);
    for (offset, bytes, what) in [
        (1 << 60, 4096, "beyond the end"),
        (u64::MAX - 5, 4096, "around the end of all numbers"),
        (0, 1 << 40, "more than one request may have"),
    ] {
        assert!(client.read(offset, bytes).is_err(), "{what}");
    }
    let of_no_array = running.remote.client(7).read(0, 512);
    assert!(of_no_array.is_err());
    assert!(client.read(0, 512).is_ok());
    stop(running);
}

/// Attaches to the only array of a server.
fn attach(path: &Path) -> UnixStream {
    leases::Client::attach(path, "")
        .expect("it is served")
        .stream
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
        let spec = spec(ram_array(RAID5, 3), None);
        let running = serve_within(backend, ShellOptions::default().memory, [spec]);
        let path = std::env::temp_dir().join(format!("restripe-stalled-{}", std::process::id()));
        let listener = Listener::unix(&path).expect("a free path");
        running.remote.listen(listener, nbd()).expect("it lives");
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
