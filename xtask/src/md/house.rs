//! Restripe as a user runs it: the command, and a daemon that ends with its owner.

use super::nbd::Client;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Words for people; nothing is decided by what kind of failure it was.
pub type Outcome<T> = Result<T, String>;

/// The array's name: there is one at a time.
const NAME: &str = "judged";

/// The command, in a folder of its own.
pub struct House {
    binary: PathBuf,
    folder: PathBuf,
}

impl House {
    pub fn new(binary: PathBuf, folder: &Path) -> Outcome<House> {
        let folder = folder.to_path_buf();
        if !binary.is_file() {
            return Err(format!("{} is not there: make build", binary.display()));
        }
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        Ok(House { binary, folder })
    }

    fn command(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(arguments)
            .env("XDG_RUNTIME_DIR", &self.folder)
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        command
    }

    /// Runs a verb to its end and gives what it printed.
    pub fn run(&self, arguments: &[String]) -> Outcome<String> {
        let output = self.command(arguments).output();
        let output = output.map_err(|error| format!("restripe does not start: {error}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        Err(format!("restripe {}: {}", arguments.join(" "), said.trim()))
    }

    pub fn create(&self, options: &[String], members: &[PathBuf]) -> Outcome<()> {
        let mut arguments = words(&["create", NAME]);
        arguments.extend_from_slice(options);
        arguments.extend(members.iter().map(|path| path.display().to_string()));
        self.run(&arguments).map(|_| ())
    }

    /// Serves the members until it is stopped or dropped.
    pub fn serve(&self, members: &[PathBuf]) -> Outcome<Daemon<'_>> {
        self.serve_with(&[], members)
    }

    pub fn serve_with(&self, options: &[&str], members: &[PathBuf]) -> Outcome<Daemon<'_>> {
        let mut arguments = words(&["serve", "--unix", "nbd.sock"]);
        arguments.extend(words(options));
        arguments.extend(members.iter().map(|path| path.display().to_string()));
        let mut command = self.command(&arguments);
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|error| format!("restripe does not start: {error}"))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            // An empty line says as much as an error.
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        let daemon = Daemon {
            house: self,
            child,
            uri: line.trim().to_string(),
        };
        if line.starts_with("nbd+unix:") {
            Ok(daemon)
        } else {
            Err(format!("restripe serve: {}", daemon.last_words()))
        }
    }
}

/// One that serves the array.
pub struct Daemon<'a> {
    house: &'a House,
    child: Child,
    uri: String,
}

/// A member as `status` tells it.
struct Seat {
    slot: u64,
    state: String,
    path: PathBuf,
}

impl Daemon<'_> {
    pub fn client(&self) -> Outcome<Client> {
        let connected = Client::connect(&self.house.folder.join("nbd.sock"));
        connected.map_err(|error| format!("connecting: {error}"))
    }

    /// Where clients find the array.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Runs a verb on the array.
    pub fn ask(&self, verb: &str, rest: &[&str]) -> Outcome<String> {
        self.house.run(&words(&[&[verb, NAME], rest].concat()))
    }

    pub fn fail(&self, member: &Path) -> Outcome<()> {
        self.ask("fail", &[&member.display().to_string(), "--yes"])
            .map(|_| ())
    }

    /// Gives the array a spare and waits until it has taken over.
    pub fn rebuild_onto(&self, spare: &Path) -> Outcome<()> {
        self.ask("add", &[&spare.display().to_string()])?;
        self.settle()
    }

    /// Waits until no task runs: a resync after `create --init sync`, a rebuild.
    pub fn settle(&self) -> Outcome<()> {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while !self.ask("status", &["--json"])?.contains("\"tasks\":[]") {
            if std::time::Instant::now() > deadline {
                return Err(format!("a task does not end: {}", self.ask("status", &[])?));
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Ok(())
    }

    /// A scrub that only checks; an error names the rows that disagree.
    pub fn scrub(&self) -> Outcome<()> {
        self.ask("scrub", &[]).map(|_| ())
    }

    /// Which file holds each slot, `None` for those that no active member holds.
    pub fn slots(&self, count: u64) -> Outcome<Vec<Option<PathBuf>>> {
        let status = self.ask("status", &[])?;
        let seats: Vec<Seat> = status.lines().filter_map(seat).collect();
        let holder = |slot| {
            let active = |seat: &&Seat| seat.slot == slot && seat.state == "active";
            seats.iter().find(active).map(|seat| seat.path.clone())
        };
        Ok((0..count).map(holder).collect())
    }

    /// Flushes, marks clean and ends.
    pub fn stop(mut self) -> Outcome<()> {
        self.ask("stop", &[])?;
        let status = self.child.wait().map_err(|error| error.to_string())?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("the daemon ends with {status}")),
        }
    }

    fn last_words(mut self) -> String {
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            // What can be read is told.
            let _ = std::io::Read::read_to_string(&mut stderr, &mut said);
        }
        said.trim().to_string()
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        // Both fail only when it has ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A line of the table that ends `status`: number, slot, state, read errors, path.
fn seat(line: &str) -> Option<Seat> {
    let mut rest = line;
    let mut word = || {
        let trimmed = rest.trim_start();
        let (word, behind) = trimmed.split_once(' ')?;
        rest = behind;
        Some(word)
    };
    let _number: u64 = word()?.parse().ok()?;
    let slot = word()?.parse().ok()?;
    let state = word()?.to_string();
    let _read_errors: u64 = word()?.parse().ok()?;
    let path = PathBuf::from(rest.trim());
    Some(Seat { slot, state, path })
}

pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_is_a_line_of_the_table() {
        let found = seat("       3     1  active                0  /tmp/a b.img").expect("a seat");
        assert_eq!((found.slot, found.state.as_str()), (1, "active"));
        assert_eq!(found.path, Path::new("/tmp/a b.img"));
        assert!(seat("       1     -  failed                0  1.img").is_none());
        assert!(seat("  number  slot  state       read errors  member").is_none());
        assert!(seat("  raid5 left-symmetric, 3 slots, chunk 64K, 2G usable").is_none());
    }
}
