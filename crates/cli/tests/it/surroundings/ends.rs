//! An end always ends, within a bound, whatever of its surroundings is missing.

use super::{clean, end_of, mirror, until};
use crate::harness::{Daemon, Place};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

const SERVE: [&str; 5] = ["serve", "--unix", "nbd.sock", "a.img", "b.img"];

/// A daemon that serves, started with these streams.
fn start(place: &Place, stdout: Stdio, stderr: Stdio) -> Daemon {
    let mut command = place.command(&SERVE);
    let child = command.stdout(stdout).stderr(stderr).spawn();
    let daemon = Daemon::of(child.expect("it runs"));
    until("it serves", || place.run(&["status", "tank"]).status == 0);
    daemon
}

fn remove(place: &Place, what: &str) {
    let path = place.path(what);
    match fs::symlink_metadata(&path).expect("it is there").is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
    .expect("ours");
}

#[test]
fn a_daemon_without_its_files_ends_cleanly() {
    let cases: [&[&str]; 6] = [
        &["restripe/tank.sock"],
        &["restripe/tank.sock.lock"],
        &["restripe"],
        &["nbd.sock"],
        &["nbd.sock.lock"],
        &["restripe", "nbd.sock", "nbd.sock.lock"],
    ];
    for (nth, gone) in cases.into_iter().enumerate() {
        let place = mirror(&format!("gone{nth}"));
        let daemon = start(&place, Stdio::null(), Stdio::null());
        gone.iter().for_each(|what| remove(&place, what));
        daemon.terminate();
        assert_eq!(end_of(&daemon, "it ends"), 0, "{gone:?}");
        assert!(clean(&place, "a.img") && clean(&place, "b.img"), "{gone:?}");
    }
}

/// Others have the place by now: what they have there stays.
#[test]
fn a_daemon_does_not_take_away_what_others_put_in_its_place() {
    let place = mirror("replaced");
    let daemon = start(&place, Stdio::null(), Stdio::null());
    for socket in ["restripe/tank.sock", "nbd.sock"] {
        remove(&place, socket);
        place.write(socket, 0, 0, b"precious");
    }
    daemon.terminate();
    assert_eq!(end_of(&daemon, "it ends"), 0);
    for socket in ["restripe/tank.sock", "nbd.sock"] {
        assert_eq!(place.bytes(socket), b"precious", "{socket}");
    }
}

/// A pipe that is full and stays open, and nobody reads.
fn full_pipe() -> (std::io::PipeReader, Stdio) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut filling = writer.try_clone().expect("a second handle");
    // Blocks when the pipe is full, until the reader goes.
    thread::spawn(move || filling.write_all(&[b'.'; 2 << 20]));
    thread::sleep(Duration::from_millis(300));
    (reader, Stdio::from(writer))
}

#[test]
fn a_daemon_whose_words_are_not_read_goes_on_and_ends_cleanly() {
    for stream in ["stdout", "stderr", "closed"] {
        let place = mirror(&format!("unread-{stream}"));
        let (reader, pipe) = full_pipe();
        let daemon = match stream {
            "stdout" => start(&place, pipe, Stdio::null()),
            "stderr" => start(&place, Stdio::null(), pipe),
            _ => {
                let script = format!("exec restripe {} >&- 2>&-", SERVE.join(" "));
                let child = place.script(&script).spawn();
                let daemon = Daemon::of(child.expect("it runs"));
                until("it serves", || place.run(&["status", "tank"]).status == 0);
                daemon
            }
        };
        // More lines than a queue or a pipe holds are no reason to wait either.
        for _ in 0..3 {
            assert_eq!(place.run(&["fail", "tank", "b.img", "--yes"]).status, 0);
            assert_eq!(place.run(&["add", "tank", "b.img"]).status, 0);
            assert_eq!(place.run(&["rebuild", "tank"]).status, 0);
        }
        daemon.terminate();
        assert_eq!(end_of(&daemon, "it ends"), 0, "{stream}");
        assert!(clean(&place, "a.img"), "{stream}");
        drop(reader);
    }
}

/// Half a write, reads whose replies nobody takes, a control client that says nothing, and one that does not listen.
#[test]
fn a_daemon_with_clients_that_stall_ends_cleanly() {
    let place = mirror("stalled");
    let daemon = start(&place, Stdio::null(), Stdio::null());
    let mut half = attached(&place);
    half.write_all(&request(1, 0, 1 << 20)).expect("it reads");
    half.write_all(&[7; 1000]).expect("it reads");
    let mut greedy = attached(&place);
    for _ in 0..64 {
        greedy.write_all(&request(0, 0, 1 << 20)).expect("it reads");
    }
    let control = |words: &[u8]| {
        let mut control =
            UnixStream::connect(place.path("restripe/tank.sock")).expect("it listens");
        control.write_all(words).expect("it reads");
        control
    };
    let silent = control(b"{\"ver");
    let deaf = control(&b"{\"verb\":\"status\"}\n".repeat(200));
    daemon.terminate();
    assert_eq!(end_of(&daemon, "it ends"), 0);
    assert!(clean(&place, "a.img"));
    drop((half, greedy, silent, deaf));
}

/// A client that has agreed on the export.
fn attached(place: &Place) -> UnixStream {
    let mut stream = UnixStream::connect(place.path("nbd.sock")).expect("it listens");
    stream.read_exact(&mut [0; 18]).expect("it greets");
    // Fixed newstyle, no zeroes; EXPORT_NAME of the default export.
    stream.write_all(&3u32.to_be_bytes()).expect("it reads");
    stream
        .write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0")
        .expect("it reads");
    stream.read_exact(&mut [0; 10]).expect("it agrees");
    stream
}

fn request(kind: u16, at: u64, bytes: u32) -> Vec<u8> {
    let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
    request.extend(0u16.to_be_bytes());
    request.extend(kind.to_be_bytes());
    request.extend(1u64.to_be_bytes());
    request.extend(at.to_be_bytes());
    request.extend(bytes.to_be_bytes());
    request
}

fn signal(daemon: &Daemon, signal: &str) {
    let sent = Command::new("kill").args([signal, &daemon.id()]).status();
    assert!(sent.expect("kill is there").success());
}

/// Members that stop to answer, all of them at once and for good.
#[test]
fn a_daemon_whose_members_hang_ends_within_their_time_out() {
    for backend in ["uring", "threads"] {
        let place = Place::new(&format!("hung-{backend}"));
        let below = place.command(&[]);
        drop(below);
        for (name, image) in [("one", "one.img"), ("two", "two.img")] {
            let create = [
                "create",
                name,
                "--level",
                "raid0",
                "--image-size",
                "64M",
                image,
            ];
            assert_eq!(place.run(&create).status, 0);
        }
        let serve = ["serve", "--unix", "below.sock", "one.img", "two.img"];
        let below = place.await_service(&mut place.command(&serve));
        let members = ["one", "two"].map(|name| {
            let socket = place.path("below.sock");
            format!("nbd+unix:///{name}?socket={socket}")
        });
        let create = [
            "create",
            "tank",
            "--level",
            "raid1",
            &members[0],
            &members[1],
        ];
        let made = place.run(&create);
        assert_eq!(made.status, 0, "{}", made.stderr);
        let serve = [
            "serve",
            "--io-timeout",
            "1s",
            "--backend",
            backend,
            "--unix",
            "nbd.sock",
            &members[0],
            &members[1],
        ];
        let daemon = place.await_service(&mut place.command(&serve));
        let mut client = attached(&place);
        client.write_all(&request(1, 0, 4096)).expect("it reads");
        client.write_all(&[7; 4096]).expect("it reads");
        client.read_exact(&mut [0; 16]).expect("it is written");
        signal(&below, "-STOP");
        daemon.terminate();
        end_of(&daemon, "it ends");
        signal(&below, "-CONT");
    }
}

/// Each verb first asks for the status, which a daemon answers at once unless it hangs.
#[test]
fn daemon_that_hangs_is_named_and_keeps_no_verb_from_others() {
    let place = mirror("hangs");
    let other = ["create", "other", "--level", "1", "--image-size", "16M"];
    assert_eq!(
        place
            .run(&[&other[..], &["c.img", "d.img"]].concat())
            .status,
        0
    );
    let hangs = place.serve(&["a.img", "b.img"]);
    let serves = place.await_service(&mut place.command(&["serve", "c.img", "d.img"]));
    place.write("new.img", 16 << 20, 0, &[]);
    hangs.signal("STOP");
    let verbs = [
        &["status"][..],
        &["status", "tank"],
        &["stop", "tank"],
        &["metrics", "tank"],
        &["add", "tank", "new.img"],
        &["scrub", "tank", "--cancel"],
        &["lease", "add", "tank", "part", "--size", "1M"],
    ];
    let told = thread::scope(|scope| {
        let asked = verbs.map(|verb| scope.spawn(|| place.run(verb)));
        asked.map(|one| one.join().expect("it ends"))
    });
    for (verb, told) in verbs.iter().zip(&told) {
        let process = format!("from process {}", hangs.id());
        let named =
            told.stderr.contains(&process) && told.stderr.contains("hint: the process hangs");
        assert!(told.status == 1 && named, "{verb:?}: {}", told.stderr);
    }
    assert!(
        told[0].stdout.contains("other: healthy"),
        "{}",
        told[0].stdout
    );
    hangs.signal("CONT");
    for name in ["tank", "other"] {
        assert_eq!(place.run(&["stop", name]).status, 0);
    }
    assert_eq!((hangs.wait(), serves.wait()), (0, 0));
}
