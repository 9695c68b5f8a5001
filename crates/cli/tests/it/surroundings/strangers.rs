//! Both ends know whom they talk to: verbs, and the daemon. These tests are of two users, and so need root.

use super::until;
use crate::harness::{Daemon, Place, Run, skipped};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

const STRANGER: u32 = 65_534;

/// A user of this test's own, with a copy of the command where that user may run it.
struct User {
    place: Place,
    uid: u32,
}

impl User {
    fn new(test: &str, nth: u32) -> Option<User> {
        let able = Command::new("setpriv")
            .args([
                "--reuid",
                "65534",
                "--clear-groups",
                "/usr/bin/python3",
                "-c",
                "pass",
            ])
            .stderr(Stdio::null())
            .status();
        if !able.is_ok_and(|status| status.success()) {
            skipped(test, "needs root, setpriv and python3");
            return None;
        }
        let place = Place::new(test);
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(place.path(""), open).expect("ours");
        fs::copy(place.binary(), place.path("restripe-copy")).expect("a copy");
        // Different in every run and for every test, so that two of them do not meet in /tmp.
        let uid = 100_000 + (std::process::id() % 100_000) * 10 + nth;
        let user = User { place, uid };
        user.folder("own", uid);
        Some(user)
    }

    fn folder(&self, name: &str, uid: u32) {
        let path = self.place.path(name);
        fs::create_dir(&path).expect("a fresh folder");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("ours");
        std::os::unix::fs::chown(&path, Some(uid), Some(uid)).expect("root may");
    }

    fn command(&self, uid: u32, program: &str, arguments: &[&str]) -> Command {
        // Takes the program's place in the process, so that ending it ends the program.
        let mut command = Command::new("setpriv");
        let uid = uid.to_string();
        command
            .args(["--reuid", &uid, "--regid", &uid, "--clear-groups", program])
            .args(arguments)
            .current_dir(self.place.path("own"))
            .env_remove("XDG_RUNTIME_DIR")
            .stdin(Stdio::null());
        command
    }

    fn verb(&self, arguments: &[&str]) -> Command {
        self.command(self.uid, &self.place.path("restripe-copy"), arguments)
    }

    fn run(&self, command: &mut Command) -> Run {
        self.place.finish(command)
    }
}

/// Listens as a user, answers every line that all is done, and notes what was said.
const FAKE: &str = "
import os, socket, sys
folder, note = sys.argv[1:3]
if not os.path.isdir(folder): os.mkdir(folder, 0o755)
s = socket.socket(socket.AF_UNIX); s.bind(folder + '/tank.sock'); os.chmod(folder + '/tank.sock', 0o666); s.listen(9)
while True:
    c, _ = s.accept(); said = c.recv(4096)
    if said: open(note, 'ab').write(said)
    try: c.sendall(b'{\"done\":{\"note\":\"done\"}}\\n')
    except OSError: pass
    c.close()
";

fn fake(user: &User, folder: &str) -> Daemon {
    let note = user.place.path("heard");
    fs::write(&note, "").expect("ours");
    std::os::unix::fs::chown(&note, Some(STRANGER), None).expect("root may");
    let mut command = user.command(STRANGER, "/usr/bin/python3", &["-c", FAKE, folder, &note]);
    let daemon = Daemon::of(command.current_dir("/").spawn().expect("it runs"));
    until("it listens", || {
        fs::metadata(format!("{folder}/tank.sock")).is_ok()
    });
    daemon
}

const VERBS: [&[&str]; 14] = [
    &["status"],
    &["status", "tank"],
    &["metrics", "tank"],
    &["heat", "tank"],
    &["fail", "tank", "x", "--yes"],
    &["remove", "tank", "x"],
    &["add", "tank", "/secret/path", "--yes"],
    &["replace", "tank", "x", "/secret/path"],
    &["grow", "tank", "--add", "/secret/path"],
    &["rebuild", "tank"],
    &["scrub", "tank"],
    &["lease", "list", "tank"],
    &["surrogate", "remove", "tank"],
    &["stop", "tank"],
];

#[test]
fn a_folder_that_a_stranger_made_is_not_believed() {
    let Some(user) = User::new("squatted", 1) else {
        return;
    };
    let squatted = format!("/tmp/restripe-{}", user.uid);
    let _fake = fake(&user, &squatted);
    for verb in VERBS {
        let run = user.run(&mut user.verb(verb));
        assert!(
            run.status == 1 && run.stderr.contains("belongs to another user"),
            "{verb:?}: {} {}",
            run.stdout,
            run.stderr
        );
    }
    let create = [
        "create",
        "tank",
        "--level",
        "raid1",
        "--image-size",
        "16M",
        "a",
        "b",
    ];
    assert_eq!(user.run(&mut user.verb(&create)).status, 0);
    let serve = ["serve", "--unix", "t.nbd", "a", "b"];
    let refused = user.run(&mut user.verb(&serve));
    assert!(
        refused.stderr.contains("export XDG_RUNTIME_DIR="),
        "{}",
        refused.stderr
    );
    // What the hint says works, for the daemon and for verbs.
    user.folder("run", user.uid);
    let run = user.place.path("run");
    let served = user.verb(&serve).env("XDG_RUNTIME_DIR", &run).spawn();
    let _daemon = Daemon::of(served.expect("it runs"));
    until("it serves", || {
        user.run(user.verb(&["status", "tank"]).env("XDG_RUNTIME_DIR", &run))
            .status
            == 0
    });
    // Root talks to it by the same name.
    let mut root = Command::new(user.place.path("restripe-copy"));
    let root = user.run(root.args(["status", "tank"]).env("XDG_RUNTIME_DIR", &run));
    assert_eq!(root.status, 0, "{}", root.stderr);
    let stop = user.run(user.verb(&["stop", "tank"]).env("XDG_RUNTIME_DIR", &run));
    assert_eq!(stop.status, 0, "{}", stop.stderr);
    assert_eq!(
        user.place.bytes("heard"),
        b"",
        "nothing was said to the stranger"
    );
    let _ = fs::remove_dir_all(squatted);
}

/// Its folder is ours; the process at the other end is not.
#[test]
fn a_strangers_process_behind_our_own_socket_is_not_believed() {
    let Some(user) = User::new("impostor", 2) else {
        return;
    };
    user.folder("run", STRANGER);
    let _fake = fake(&user, &user.place.path("run"));
    user.folder("run/restripe", user.uid);
    let (from, to) = (
        user.place.path("run/tank.sock"),
        user.place.path("run/restripe/tank.sock"),
    );
    fs::rename(from, to).expect("root may");
    fs::set_permissions(user.place.path("run"), fs::Permissions::from_mode(0o755)).expect("ours");
    for verb in VERBS {
        let run = user.run(
            user.verb(verb)
                .env("XDG_RUNTIME_DIR", user.place.path("run")),
        );
        assert!(
            run.status == 1 && run.stderr.contains("belongs to another user"),
            "{verb:?}: {} {}",
            run.stdout,
            run.stderr
        );
    }
    assert_eq!(
        user.place.bytes("heard"),
        b"",
        "nothing was said to the stranger"
    );
}

/// The socket's permissions were opened; orders are taken from the owner and from root all the same.
#[test]
fn a_daemon_takes_no_orders_from_a_stranger() {
    let Some(user) = User::new("orders", 3) else {
        return;
    };
    let create = [
        "create",
        "tank",
        "--level",
        "raid1",
        "--image-size",
        "16M",
        "a",
        "b",
    ];
    assert_eq!(user.run(&mut user.verb(&create)).status, 0);
    user.folder("run", user.uid);
    let run = user.place.path("run");
    let serve = ["serve", "--unix", "t.nbd", "a", "b"];
    let served = user.verb(&serve).env("XDG_RUNTIME_DIR", &run).spawn();
    let daemon = Daemon::of(served.expect("it runs"));
    let status = || {
        user.run(user.verb(&["status", "tank"]).env("XDG_RUNTIME_DIR", &run))
            .status
    };
    until("it serves", || status() == 0);
    for (path, mode) in [
        ("run", 0o755),
        ("run/restripe", 0o755),
        ("run/restripe/tank.sock", 0o666),
    ] {
        fs::set_permissions(user.place.path(path), fs::Permissions::from_mode(mode))
            .expect("root may");
    }
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n\
                  try: s.sendall(b'{\"verb\":\"stop\"}\\n')\nexcept OSError: pass\nprint(s.recv(4096).decode())";
    let socket = user.place.path("run/restripe/tank.sock");
    let said = user.run(
        user.command(STRANGER, "/usr/bin/python3", &["-c", script, &socket])
            .current_dir("/"),
    );
    assert!(
        said.stdout.contains("belongs to another user"),
        "{} {}",
        said.stdout,
        said.stderr
    );
    let close = fs::Permissions::from_mode(0o700);
    fs::set_permissions(user.place.path("run/restripe"), close).expect("root may");
    assert_eq!(status(), 0, "it serves on");
    drop(daemon);
}
