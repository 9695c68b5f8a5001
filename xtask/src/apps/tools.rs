//! Programs of the machine: which are there, and how they are run within a time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Words for people; nothing is decided by the kind of failure.
pub type Outcome<T> = Result<T, String>;

/// No program that prepares something takes longer, in seconds.
const LONGEST_S: u64 = 3600;

pub fn text_error(path: &Path) -> impl Fn(io::Error) -> String {
    let path = path.display().to_string();
    move |error| format!("{path}: {error}")
}

pub fn write(path: &Path, text: &str) -> Outcome<()> {
    fs::write(path, text).map_err(text_error(path))
}

pub fn pause(milliseconds: u64) {
    thread::sleep(Duration::from_millis(milliseconds));
}

/// Seconds since 1970, the clock of pgbench's log.
pub fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |elapsed| elapsed.as_secs_f64())
}

/// Runs a program to its end and returns what it printed. The line is split at spaces; further arguments are whole.
pub fn run(line: &str, rest: &[&str]) -> Outcome<String> {
    let mut words = line.split(' ');
    let name = words.next().unwrap_or_default();
    let output = Command::new("timeout")
        .args(["-k", "5", &LONGEST_S.to_string(), name])
        .args(words)
        .args(rest)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_string());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let said: String = said.trim().chars().take(500).collect();
    Err(format!("{line} {}: {said}", rest.join(" ")))
}

/// The first line of a program's output, or a question mark.
pub fn first_line_of(line: &str) -> String {
    let said = run(line, &[]).unwrap_or_default();
    said.lines().next().unwrap_or("?").to_string()
}

/// A program on the path.
pub fn has(name: &str) -> bool {
    let folders = std::env::var("PATH").unwrap_or_default();
    let folders = folders
        .split(':')
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"]);
    folders.map(Path::new).any(|path| path.join(name).is_file())
}

/// The folder of PostgreSQL's own programs, the newest version first.
pub fn postgres_folder() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok();
    let mut found: Vec<(u32, PathBuf)> = versions
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    found.sort();
    let asked = Command::new("pg_config").arg("--bindir").output().ok();
    let asked = asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().into());
    let newest_first = found.into_iter().rev().map(|(_, path)| path);
    newest_first.chain(asked).find(|folder: &PathBuf| {
        let programs = ["initdb", "postgres", "pgbench", "psql"];
        programs.iter().all(|name| folder.join(name).is_file())
    })
}

/// Why nothing can be measured here; empty if it can.
pub fn lacking(postgres: bool, postmark: bool) -> Vec<&'static str> {
    let root = run("id -u", &[]).is_ok_and(|id| id == "0");
    let device = kernel_client() || (has("nbdfuse") && Path::new("/dev/fuse").exists() && loops());
    let needs = [
        (root, "root, to mount a file system"),
        (
            device,
            "an attached device: nbd.ko with nbd-client, or nbdfuse with /dev/fuse and loop \
             devices (apt-get install libnbd-bin)",
        ),
        (
            has("mkfs.ext4"),
            "mkfs.ext4 and e2fsck (apt-get install e2fsprogs)",
        ),
        (
            has("setpriv"),
            "setpriv and losetup (apt-get install util-linux mount)",
        ),
        (
            !postgres || postgres_folder().is_some(),
            "PostgreSQL (apt-get install postgresql; its own server is not used)",
        ),
        (
            !postmark || has("postmark"),
            "PostMark (apt-get install postmark)",
        ),
    ];
    needs
        .iter()
        .filter(|(there, _)| !there)
        .map(|(_, what)| *what)
        .collect()
}

/// Whether the kernel's own NBD client can attach an export.
pub fn kernel_client() -> bool {
    has("nbd-client") && Path::new("/sys/block/nbd0").exists()
}

fn loops() -> bool {
    Path::new("/dev/loop-control").exists() && has("losetup")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_is_quoted() {
        assert_eq!(run("echo a b", &["c d"]), Ok("a b c d".into()));
        let error = run("ls /nowhere-at-all", &[]).expect_err("no such folder");
        assert!(error.contains("nowhere-at-all"), "{error}");
        assert!(run("no-such-program", &[]).is_err());
    }

    #[test]
    fn a_program_is_found_on_the_path() {
        assert!(has("sh"));
        assert!(!has("no-such-program"));
    }
}
