//! A server in a process of its own, made of this very program, so that it can be killed and measured.

use crate::nbd_clients::array::{Array, IO_TIMEOUT, member, status, wait_until};
use crate::nbd_clients::tools::Folder;
use restripe_array::Limits;
use restripe_io::ShellOptions;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::str::FromStr;

/// Names the folder whose members [`serves_until_killed`] serves.
const FOLDER: &str = "RESTRIPE_TEST_FOLDER";
/// How many they are.
const MEMBERS: &str = "RESTRIPE_TEST_MEMBERS";
/// Bytes for users' requests.
const MEMORY: &str = "RESTRIPE_TEST_MEMORY";
/// Whether with a read cache.
const CACHED: &str = "RESTRIPE_TEST_CACHED";
const READY: &str = "the array is served";
const UNDER_WAY: &str = "writes are coming in";

pub struct Server {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Server {
    pub fn start(folder: &Folder, members: usize, memory: u64) -> Server {
        Server::spawn(folder, members, memory, false)
    }

    pub fn cached(folder: &Folder, members: usize, memory: u64) -> Server {
        Server::spawn(folder, members, memory, true)
    }

    fn spawn(folder: &Folder, members: usize, memory: u64, cached: bool) -> Server {
        let program = std::env::current_exe().expect("a test has a program");
        let mut child = Command::new(program)
            .args([
                "--exact",
                "nbd_clients::server::serves_until_killed",
                "--nocapture",
            ])
            .env(FOLDER, folder.path())
            .env(MEMBERS, members.to_string())
            .env(MEMORY, memory.to_string())
            .env(CACHED, cached.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process more");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut server = Server { child, lines };
        server.wait_for(READY);
        server
    }

    /// The number of its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    fn wait_for(&mut self, what: &str) {
        let told = |line: Result<String, _>| line.is_ok_and(|line| line.contains(what));
        assert!(self.lines.any(told), "the server says: {what}");
    }

    pub fn wait_for_work(&mut self) {
        let questions = self.child.stdin.as_mut().expect("piped");
        questions.write_all(b"?").expect("the server listens");
        self.wait_for(UNDER_WAY);
    }

    pub fn kill(mut self) {
        self.child.kill().expect("it still runs");
        self.child.wait().expect("it was ours");
    }
}

/// Not a test by itself: the server's process. Ends when its parent does.
#[test]
fn serves_until_killed() {
    let Some(path) = std::env::var_os(FOLDER) else {
        return;
    };
    let folder = Folder::of_another(Path::new(&path));
    let members: usize = parameter(MEMBERS);
    let names: Vec<String> = (0..members).map(|i| member(&folder, i)).collect();
    let options = ShellOptions {
        memory: parameter(MEMORY),
        ..ShellOptions::default()
    };
    let array = match parameter(CACHED) {
        true => Array::serve_cached(folder, &names, options),
        false => Array::serve_with(folder, &names, IO_TIMEOUT, options, Limits::default()),
    };
    println!("{READY}");
    // Every byte from the parent asks to be told when clients are at work.
    while matches!(std::io::stdin().read(&mut [0]), Ok(1)) {
        wait_until(|| status(array.remote()).counters.writes > 500);
        println!("{UNDER_WAY}");
    }
    drop(array);
}

fn parameter<T: FromStr>(name: &str) -> T {
    let text = std::env::var(name).unwrap_or_default();
    text.parse().ok().expect("the parent said how much")
}
