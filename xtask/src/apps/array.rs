//! The array under test: its members as files, served directly to prepare them, and by `sim-disk` to measure.

use super::plan::{Layout, Scale, Scheme};
use super::tools::{Outcome, now, pause, run, text_error};
use super::undo::{Process, Undo};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub const NAME: &str = "apps";
pub const DRIVE: &str = "st3500320as";
const SLOTS: usize = 9;
/// Nine and a spare.
const MEMBERS: usize = SLOTS + 1;
const SURROGATE: usize = 2;
const STEP_MS: u64 = 200;

/// The command and the folder of its sockets.
#[derive(Clone)]
pub struct Restripe {
    binary: PathBuf,
    folder: PathBuf,
}

impl Restripe {
    pub fn new(binary: PathBuf, folder: &Path) -> Restripe {
        Restripe {
            binary,
            folder: folder.to_path_buf(),
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .env("XDG_RUNTIME_DIR", &self.folder)
            .current_dir(&self.folder);
        command
    }

    fn ask(&self, verb: &str, arguments: &[&str]) -> Outcome<String> {
        let output = self
            .command()
            .args(verb.split(' '))
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("restripe: {error}"))?;
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
        match output.status.success() {
            true => Ok(said(&output.stdout)),
            false => Err(format!("restripe {verb}: {}", said(&output.stderr))),
        }
    }

    /// Creates the array on files of a folder.
    pub fn create(&self, files: &Path, layout: Layout, scale: &Scale) -> Outcome<()> {
        fs::create_dir_all(files).map_err(text_error(files))?;
        let paths = member_files(files);
        for path in &paths {
            let file = fs::File::create(path).map_err(text_error(path))?;
            file.set_len(scale.file_kib(layout) * 1024)
                .map_err(text_error(path))?;
        }
        let size = format!("--size-per-member={}K", scale.data_kib());
        let mut arguments = vec![NAME, &size];
        // As md is in the paper: no bitmap, and every row is rebuilt.
        arguments.extend(["--level=raid5", "--chunk=64K", "--write-hole=none"]);
        arguments.extend(["--init=assume-clean", "--spares=1", "--yes"]);
        arguments.extend(layout.options());
        let names: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        arguments.extend(names.iter().map(String::as_str));
        self.ask("create", &arguments).map(|_| ())
    }

    /// Serves files as they are, to prepare them.
    pub fn serve_files(&self, undo: &Undo, files: &Path) -> Outcome<Array> {
        let names = member_files(files);
        let names = names
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        self.serve(undo, names, Vec::new(), &[])
    }

    /// Serves files as drives of 7200 rpm.
    pub fn serve_drives(
        &self,
        undo: &Undo,
        files: &Path,
        scheme: &Scheme,
        scale: &Scale,
    ) -> Outcome<Array> {
        let kib = scale.file_kib(scheme.layout);
        let (mut drives, mut names) = (Vec::new(), Vec::new());
        for path in member_files(files) {
            let (drive, uri) = self.drive(undo, &path, kib)?;
            drives.push(drive);
            names.push(uri);
        }
        let least = format!("{}K..200M", scheme.least_kib);
        let mut options = vec!["--rate", &least, "--throttle", scheme.throttle];
        options.push("--no-copy-back");
        if scheme.ido {
            options.extend(["--order=ido", "--redirect=ido"]);
            options.extend(["--heat-zone", scale.ido_zone]);
        }
        let mut surrogate = Vec::new();
        if scheme.ido {
            for nth in 0..SURROGATE {
                let path = files.join(format!("surrogate{nth}"));
                let kib = u64::from(scale.surrogate_mib) * 1024;
                let (drive, uri) = self.drive(undo, &path, kib)?;
                drives.push(drive);
                surrogate.push(uri);
            }
        }
        let array = self.serve(undo, names, drives, &options)?;
        if scheme.ido {
            let mut arguments = vec![NAME];
            arguments.extend(surrogate.iter().map(String::as_str));
            arguments.push("--yes");
            self.ask("surrogate add", &arguments)?;
        }
        Ok(array)
    }

    fn drive(&self, undo: &Undo, file: &Path, kib: u64) -> Outcome<(Process, String)> {
        let socket = file.with_extension("sock");
        let mut command = self.command();
        command
            .args(["sim-disk", DRIVE, "--schedule=look", "--write-cache=on"])
            .args(["--size", &format!("{kib}K"), "--file"])
            .arg(file)
            .arg("--unix")
            .arg(&socket)
            .stdout(Stdio::piped());
        let mut drive = Process::start(undo, command, "TERM")?;
        drive.first_line()?;
        Ok((drive, format!("nbd+unix:///?socket={}", socket.display())))
    }

    fn serve(
        &self,
        undo: &Undo,
        members: Vec<String>,
        drives: Vec<Process>,
        options: &[&str],
    ) -> Outcome<Array> {
        let socket = self.folder.join("nbd.sock");
        let mut command = self.command();
        command
            .args(["serve", "--unix"])
            .arg(&socket)
            .args(options)
            .args(&members)
            .stdout(Stdio::piped());
        let mut daemon = Process::start(undo, command, "TERM")?;
        daemon.first_line()?;
        Ok(Array {
            restripe: self.clone(),
            daemon,
            drives,
            members,
            socket,
        })
    }
}

/// A served array. Fields end in their order: the daemon first.
pub struct Array {
    restripe: Restripe,
    daemon: Process,
    drives: Vec<Process>,
    members: Vec<String>,
    pub socket: PathBuf,
}

/// What came of a rebuild.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rebuilt {
    pub seconds: f64,
    /// Of the rows, when it ended or was no longer watched.
    pub share: f64,
}

impl Rebuilt {
    /// The time of all rows, at the speed of those that were rebuilt.
    pub fn whole_s(&self) -> f64 {
        self.seconds / self.share
    }
}

impl Array {
    /// Fails a member, whose rebuild onto the spare begins at once, and waits for its end.
    pub fn rebuild(
        &self,
        longest_s: f64,
        load: &mut dyn FnMut() -> Outcome<()>,
    ) -> Outcome<Rebuilt> {
        self.restripe
            .ask("fail", &[NAME, &self.members[0], "--yes"])?;
        let begin = now();
        let mut share = 0.0;
        loop {
            let status = self.restripe.ask("status", &[NAME, "--json"])?;
            let seconds = now() - begin;
            if is_redundant(&status) {
                return Ok(Rebuilt {
                    seconds,
                    share: 1.0,
                });
            }
            share = done(&status).unwrap_or(share);
            if seconds > longest_s {
                return match share > 0.0 {
                    true => Ok(Rebuilt { seconds, share }),
                    false => Err(format!("no row was rebuilt in {seconds:.0} s: {status}")),
                };
            }
            load()?;
            pause(STEP_MS);
        }
    }

    /// What clients and members have done so far.
    pub fn operations(&self) -> Outcome<Operations> {
        let status = self.restripe.ask("status", &[NAME, "--json"])?;
        Operations::parse(&status).ok_or(format!("status has no counters: {status}"))
    }

    /// Ends the daemon, which must have lost nothing, and the drives.
    pub fn end(self) -> Outcome<()> {
        self.restripe.ask("stop", &[NAME])?;
        let mut daemon = self.daemon;
        daemon.wait()?;
        for drive in self.drives {
            drive.end()?;
        }
        Ok(())
    }
}

/// Counts of `status`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operations {
    requests: f64,
    /// Of the main set, for clients' data and for parity.
    members: f64,
}

impl Operations {
    fn parse(status: &str) -> Option<Operations> {
        let counters = status.split_once("\"counters\":")?.1;
        let by_cause = counters.split_once("\"ios\":[")?.1;
        let mut by_cause = by_cause.split([',', ']']).map(str::parse::<f64>);
        let (data, parity) = (by_cause.next()?.ok()?, by_cause.next()?.ok()?);
        Some(Operations {
            requests: number(counters, "reads")? + number(counters, "writes")?,
            members: data + parity,
        })
    }

    /// Operations on members for each read or write of clients since an earlier reading.
    pub fn each_since(&self, earlier: &Operations) -> f64 {
        (self.members - earlier.members) / (self.requests - earlier.requests).max(1.0)
    }
}

/// Copies the members' files, without their holes.
pub fn copy_files(from: &Path, to: &Path) -> Outcome<()> {
    fs::create_dir_all(to).map_err(text_error(to))?;
    for path in member_files(from) {
        let arguments = [path.display().to_string(), to.display().to_string()];
        run(
            "cp --sparse=always --reflink=auto",
            &[&arguments[0], &arguments[1]],
        )?;
    }
    Ok(())
}

fn member_files(folder: &Path) -> Vec<PathBuf> {
    (0..MEMBERS)
        .map(|nth| folder.join(format!("drive{nth}")))
        .collect()
}

/// Whether the set itself has all its redundancy.
fn is_redundant(status: &str) -> bool {
    status.contains("\"own_state\":\"healthy\"")
}

/// The share of rows that a rebuild has done.
fn done(status: &str) -> Option<f64> {
    let task = status.split_once("\"kind\":\"rebuild\"")?.1;
    let rows = number(task, "rows_total")?;
    (rows > 0.0).then_some(number(task, "rows_done")? / rows)
}

/// The first number of this name in a JSON text.
fn number(json: &str, name: &str) -> Option<f64> {
    let rest = json.split_once(&format!("\"{name}\":"))?.1;
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_that_of_the_rebuild() {
        let status = r#"{"state":"degraded","own_state":"degraded","tasks":[{"kind":"rebuild","slot":0,"rows_done":2414,"rows_total":4828,"throttle":"md-2.6"}]}"#;
        assert_eq!(done(status), Some(0.5));
        assert!(!is_redundant(status));
        let over = r#"{"state":"healthy","own_state":"healthy","tasks":[]}"#;
        assert_eq!(done(over), None);
        assert!(is_redundant(over));
    }

    #[test]
    fn operations_are_counted_for_each_request() {
        let status = |reads: u32, user: u32| {
            format!(
                r#"{{"counters":{{"reads":{reads},"writes":5,"ios":[{user},20,7,235],"io_bytes":[1,2,3,4]}}}}"#
            )
        };
        let [first, second] =
            [status(5, 10), status(15, 40)].map(|text| Operations::parse(&text).expect("counters"));
        assert_eq!(second.each_since(&first), 3.0);
        assert_eq!(Operations::parse("{}"), None);
    }

    #[test]
    fn a_rebuild_that_was_not_watched_to_its_end_is_extended_at_its_speed() {
        let half = Rebuilt {
            seconds: 60.0,
            share: 0.5,
        };
        assert_eq!(half.whole_s(), 120.0);
    }
}
