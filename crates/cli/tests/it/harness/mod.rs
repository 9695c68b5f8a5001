//! A folder, the command run in it, and daemons that end with their test.

pub mod apart;
pub mod paired;
pub mod steps;
pub mod volatile;

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

/// A folder of one test's own: images, sockets and the runtime folder lie in it.
pub struct Place {
    folder: PathBuf,
}

/// How a run ended.
pub struct Run {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    fn of(command: &mut Command) -> Run {
        let output = command.output().expect("the command runs");
        Run {
            status: output.status.code().expect("it ends by itself"),
            stdout: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8(output.stderr).expect("text"),
        }
    }
}

impl Place {
    pub fn new(name: &str) -> Place {
        let folder =
            std::env::temp_dir().join(format!("restripe-cli-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .expect("a fresh folder");
        Place { folder }
    }

    /// The command, to be run in this folder.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_restripe"));
        command.args(arguments);
        self.place(&mut command);
        command
    }

    pub fn binary(&self) -> &'static str {
        env!("CARGO_BIN_EXE_restripe")
    }

    /// A program, to be run in this folder and in a network namespace.
    pub fn within(&self, namespace: &str, program: &str, arguments: &[String]) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", namespace, program])
            .args(arguments);
        self.place(&mut command);
        command
    }

    pub fn finish(&self, command: &mut Command) -> Run {
        Run::of(command)
    }

    fn place(&self, command: &mut Command) {
        command
            .current_dir(&self.folder)
            .env("XDG_RUNTIME_DIR", &self.folder)
            // The date of reports.
            .env("SOURCE_DATE_EPOCH", "1767225600")
            .stdin(Stdio::null());
    }

    /// Runs a script in a shell that finds the command.
    pub fn shell(&self, script: &str) -> Run {
        Run::of(&mut self.script(script))
    }

    pub fn script(&self, script: &str) -> Command {
        let bin = Path::new(env!("CARGO_BIN_EXE_restripe"))
            .parent()
            .expect("a folder")
            .to_path_buf();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        command
            .args(["-c", script])
            .env("PATH", format!("{}:{path}", bin.display()));
        self.place(&mut command);
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Run {
        Run::of(&mut self.command(arguments))
    }

    /// An array called `tank` on images of 64 MiB, made where they are not there.
    pub fn create(&self, members: &[&str], options: &[&str]) -> Run {
        self.run(&[&["create", "tank", "--image-size", "64M"], options, members].concat())
    }

    /// A daemon that serves: clients can connect when this returns.
    pub fn serve(&self, members: &[&str]) -> Daemon {
        let arguments = [&["serve", "--unix", "nbd.sock"], members].concat();
        self.await_service(&mut self.command(&arguments))
    }

    /// Starts a daemon, and returns when clients can connect.
    pub fn await_service(&self, daemon: &mut Command) -> Daemon {
        let (daemon, line) = self.first_line(daemon);
        assert!(
            line.contains("nbd+unix:///") && line.contains("?socket="),
            "{line:?}"
        );
        daemon
    }

    /// Starts a daemon, and returns with the first line that it prints.
    pub fn first_line(&self, daemon: &mut Command) -> (Daemon, String) {
        let mut child = daemon
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command runs");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("it says when it serves");
        (Daemon::of(child), line.trim().to_owned())
    }

    /// A daemon whose only connection is its standard input and output, and the other end of it.
    pub fn serve_stdio(&self, members: &[&str]) -> (UnixStream, Daemon) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let input = OwnedFd::from(theirs.try_clone().expect("a second handle"));
        let mut command = self.command(&[&["serve", "--stdio"], members].concat());
        command
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(OwnedFd::from(theirs)));
        let child = command
            .stderr(Stdio::null())
            .spawn()
            .expect("the command runs");
        (ours, Daemon::of(child))
    }

    /// Writes into a file, made if it is not there and at least so long.
    pub fn write(&self, name: &str, length: u64, at: u64, bytes: &[u8]) {
        let path = self.folder.join(name);
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .expect("a file of ours");
        if length > 0 {
            file.set_len(length).expect("room");
        }
        file.seek(SeekFrom::Start(at)).expect("a place in it");
        file.write_all(bytes).expect("room");
    }

    pub fn path(&self, name: &str) -> String {
        self.folder
            .join(name)
            .to_str()
            .expect("plain text")
            .to_string()
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder.join(name)).expect("a file of ours")
    }

    pub fn exists(&self, name: &str) -> bool {
        self.folder.join(name).exists()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub struct Daemon {
    child: Mutex<Child>,
}

impl Daemon {
    pub fn of(child: Child) -> Daemon {
        Daemon {
            child: Mutex::new(child),
        }
    }

    /// Waits for its end and gives its status.
    pub fn wait(&self) -> i32 {
        let status = self
            .child
            .lock()
            .expect("one thread")
            .wait()
            .expect("it was started");
        status.code().expect("it ends by itself")
    }

    /// Its status, if it has ended.
    pub fn try_wait(&self) -> Option<i32> {
        let status = self.child.lock().expect("one thread").try_wait();
        let status = status.expect("it was started")?;
        Some(status.code().expect("it ends by itself"))
    }

    pub fn id(&self) -> String {
        self.child.lock().expect("one thread").id().to_string()
    }

    pub fn terminate(&self) {
        self.signal("TERM");
    }

    pub fn signal(&self, signal: &str) {
        let id = self.child.lock().expect("one thread").id().to_string();
        assert!(
            Command::new("kill")
                .args([&format!("-{signal}"), &id])
                .status()
                .expect("kill is there")
                .success()
        );
    }

    pub fn kill(&self) {
        let mut child = self.child.lock().expect("one thread");
        child.kill().expect("it runs");
        child.wait().expect("it was started");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let child = self.child.get_mut().expect("one thread");
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// The members of [`raid5`].
pub const THREE: [&str; 3] = ["a.img", "b.img", "c.img"];

/// A place with an array that is not served yet.
pub fn raid5(name: &str) -> Place {
    let place = Place::new(name);
    let made = place.create(&THREE, &["--level", "raid5"]);
    assert_eq!(made.status, 0, "{}", made.stderr);
    place
}

/// Lines of a daemon's log without their times and levels.
pub fn bare(log: &str) -> String {
    let lines = log.lines().map(|line| match line.split_once("Z ") {
        Some((_, rest)) if line.starts_with("20") => rest.split_once(' ').map_or(rest, |it| it.1),
        _ => line,
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// The line of a text that names this.
pub fn line_of(text: &str, name: &str) -> String {
    text.lines()
        .find(|line| line.contains(name))
        .unwrap_or_default()
        .to_string()
}

/// Notes that a test could not run here.
pub fn skipped(name: &str, why: &str) {
    eprintln!("skipped {name}: {why}");
    let Some(list) = std::env::var_os("RESTRIPE_SKIPS") else {
        return;
    };
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(list)
        .expect("the list of skips");
    writeln!(file, "{name}: {why}").expect("room");
}
