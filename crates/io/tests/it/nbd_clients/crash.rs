//! The server is killed while a client writes; another one takes the members over. What was acknowledged as durable is
//! there, also when a member is then lost: parity is as true as the data.

use crate::nbd_clients::array::{Array, IO_TIMEOUT, make};
use crate::nbd_clients::checks::nbdsh;
use crate::nbd_clients::server::Server;
use crate::nbd_clients::tools::{Folder, bounded, installed};
use restripe_array::layout::{Level, Rotation};
use restripe_array::{Command as Order, Fact, ScrubMode, TaskKind};
use restripe_io::ShellOptions;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::thread;

const MEMBERS: usize = 4;
const MEMORY: u64 = 64 << 20;

/// How far a client came: blocks written with FUA, and blocks written and then flushed.
#[derive(Clone, Copy, Default)]
struct Acknowledged {
    forced: usize,
    flushed: usize,
}

/// Writes until the server is killed, after so many acknowledgements.
fn write_until_killed(folder: &Folder, uri: &str, from: usize, kill_after: usize) -> Acknowledged {
    let server = Server::start(folder, MEMBERS, MEMORY);
    let set_up = format!("uri = '{uri}'; first = {from}");
    let mut client = Command::new("env")
        .args(["PATH=/usr/bin:/bin", "nbdsh", "-c", &set_up, "-c", BLOCKS])
        .args(["-c", WRITER])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("nbdsh is installed");
    let mut lines = BufReader::new(client.stdout.take().expect("piped")).lines();
    let mut acknowledged = Acknowledged::default();
    let mut take = |line: String| {
        let (what, block) = line.split_once(' ').expect("two words");
        let blocks = 1 + block.parse::<usize>().expect("a number");
        match what {
            "forced" => acknowledged.forced = blocks,
            _ => acknowledged.flushed = blocks,
        }
    };
    for line in lines.by_ref().take(kill_after) {
        take(line.expect("text"));
    }
    server.kill();
    lines.map_while(Result::ok).for_each(&mut take);
    client.wait().expect("it was ours");
    acknowledged
}

const BLOCKS: &str = r#"
# Blocks of odd sizes at odd places: most touch several sectors and some touch several cells.
bytes_of_block = 7777

def content(block, turn):
    return bytes((block * 7 + turn * 13 + i) % 251 for i in range(256)) * 31

def place(block, region):
    return region * (4 << 20) + (block * bytes_of_block) % (3 << 20)

def data(block, region):
    return content(block, region)[:bytes_of_block]
"#;

const WRITER: &str = r#"
h.connect_uri(uri)
block = first
while True:
    h.pwrite(data(block, 0), place(block, 0), nbd.CMD_FLAG_FUA)
    print("forced", block, flush=True)
    h.pwrite(data(block, 1), place(block, 1))
    if block % 8 == 7:
        h.flush()
        print("flushed", block, flush=True)
    block += 1
"#;

/// Blocks wrap around: only the last of those that share a place are looked at.
const READER: &str = r#"
h.connect_uri(uri)
kept = (3 << 20) // bytes_of_block - 16
for region, end in ((0, forced), (1, flushed)):
    for block in range(max(0, end - kept), end):
        found = h.pread(bytes_of_block, place(block, region))
        assert found == data(block, region), (region, block)
print("all probes answered")
"#;

fn verify(uri: &str, acknowledged: Acknowledged) {
    let Acknowledged { forced, flushed } = acknowledged;
    let set_up = format!("uri = '{uri}'; forced = {forced}; flushed = {flushed}");
    nbdsh(&["-c", &set_up, "-c", BLOCKS, "-c", READER]);
}

fn survives_kills(level: Level) {
    if !installed(&["nbdsh"]) {
        return;
    }
    let folder = Folder::new();
    let names = make(&folder, level, MEMBERS);
    let uri = format!(
        "nbd+unix:///disk?socket={}",
        folder.file("socket").display()
    );
    let mut from = 0;
    for kill_after in [20, 111, 300] {
        let acknowledged = write_until_killed(&folder, &uri, from, kill_after);
        assert!(acknowledged.flushed > from);
        // Blocks beyond the last flush may be lost in one region: they are written again.
        from = acknowledged.flushed;
        let borrowed = Folder::of_another(folder.path());
        let array = Array::serve(borrowed, &names, IO_TIMEOUT);
        verify(&uri, acknowledged);
        check_parity(&array);
        drop(array);
    }
    let last = write_until_killed(&folder, &uri, from, 50);
    let array = Array::serve(folder, &names, IO_TIMEOUT);
    array.fail(2);
    verify(&uri, last);
}

/// Of fio's blocks at most those are missing that were in flight, and what is there is right: with a read cache before
/// and after, degraded after.
#[test]
fn fio_finds_what_it_wrote_before_a_kill() {
    const DEPTH: usize = 8;
    if !installed(&["fio"]) {
        return;
    }
    let (folder, notes) = (Folder::new(), Folder::new());
    let names = make(&folder, Level::Raid5(Rotation::LeftSymmetric), MEMBERS);
    let uri = format!(
        "--uri=nbd+unix:///disk?socket={}",
        folder.file("socket").display()
    );
    let fio = |arguments: &[&str]| -> Output {
        bounded("fio")
            .args(["--name=load", "--ioengine=nbd", &uri, "--size=24m"])
            .args(["--rw=randwrite", "--bs=4k", "--verify=crc32c"])
            .arg(format!("--iodepth={DEPTH}"))
            .args(arguments)
            .current_dir(notes.path())
            .output()
            .expect("fio runs")
    };
    let mut server = Server::cached(&folder, MEMBERS, MEMORY);
    let written = thread::scope(|scope| {
        let load = scope.spawn(|| fio(&["--verify_state_save=1", "--do_verify=0"]));
        server.wait_for_work();
        server.kill();
        load.join().expect("no panic there")
    });
    assert!(!written.status.success(), "it was interrupted");
    let borrowed = Folder::of_another(folder.path());
    let array = Array::serve_cached(borrowed, &names, ShellOptions::default());
    array.fail(1);
    let verify = [
        "--verify_only",
        "--verify_state_load=1",
        "--verify_state_save=0",
        "--continue_on_error=verify",
    ];
    let verified = fio(&verify);
    let told = String::from_utf8_lossy(&verified.stderr);
    let wrong: Vec<&str> = told
        .lines()
        .filter(|line| line.starts_with("verify:"))
        .collect();
    assert!(wrong.len() < DEPTH + 1, "{told}");
    assert!(
        wrong.iter().all(|line| line.contains("bad magic header 0")),
        "{told}"
    );
    // Once more, now that much of it is held.
    let again = fio(&verify);
    let told_again = String::from_utf8_lossy(&again.stderr);
    assert!(
        told_again
            .lines()
            .filter(|line| line.starts_with("verify:"))
            .count()
            <= wrong.len()
    );
    drop(array);
}

fn check_parity(array: &Array) {
    array.order(Order::Scrub(ScrubMode::Check));
    array.wait_for(|fact| {
        assert!(!matches!(fact, Fact::Mismatch { .. }), "{fact:?}");
        matches!(fact, Fact::TaskEnded { kind, .. } if *kind == TaskKind::Check)
    });
}

#[test]
fn raid5_survives_kills() {
    survives_kills(Level::Raid5(Rotation::LeftSymmetric));
}

#[test]
fn raid6_survives_kills() {
    survives_kills(Level::Raid6(Rotation::LeftSymmetric));
}

#[test]
fn raid1_survives_kills() {
    survives_kills(Level::Raid1);
}

#[test]
fn raid10_survives_kills() {
    survives_kills(Level::Raid10 { copies: 2 });
}
