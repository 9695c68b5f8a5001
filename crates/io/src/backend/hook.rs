//! The configured command that spins disks down and up instead of the kernel. It runs as a process group of
//! its own, for a minute at most, and for a shorter time when the array stops. Its output is used in the
//! message if it fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A command that takes longer is ended, and has failed; a drive is given as long.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// So long may a spindle take that is to turn while the array stops: what is asked of it follows anyway.
const PATIENCE_OF_STOP: Duration = Duration::from_secs(20);
/// How often it is looked at.
const GLANCE: Duration = Duration::from_millis(20);
/// How long one that was killed is waited for.
const BURIAL: Duration = Duration::from_secs(2);
/// So much of what it says is kept.
const SAID_MAX: usize = 4096;

/// What is run in place of the kernel's commands: a program and its first words, behind which `standby` or `wake` comes, and the
/// member's path.
#[derive(Clone, Copy, Debug)]
pub struct PowerHook(&'static Hook);

#[derive(Debug)]
struct Hook {
    words: Vec<String>,
    /// Who hears of one that failed.
    say: fn(&str),
    /// Why it failed last, by path and word: said once, until it has gone well again.
    told: Mutex<BTreeMap<(String, &'static str), String>>,
    groups: Mutex<Groups>,
}

#[derive(Default, Debug)]
struct Groups {
    /// Process groups of those that run. One that was waited for is not among them: its number may be another's by now.
    running: BTreeSet<i32>,
    ended: bool,
}

/// How much a member's spindle is in the way of what is wanted next.
#[derive(Default, Debug)]
pub struct Haste(AtomicU8);

impl Haste {
    /// The array stops: nothing needs to stand still any more.
    pub fn stop(&self) {
        self.0.fetch_max(1, Ordering::Relaxed);
    }

    /// Nobody waits for it any more.
    pub fn leave(&self) {
        self.0.fetch_max(2, Ordering::Relaxed);
    }

    /// How long a command may take that is to let a spindle turn, or stand still.
    fn patience(&self, turns: bool) -> Duration {
        match (self.0.load(Ordering::Relaxed), turns) {
            (0, _) => PATIENCE,
            (1, true) => PATIENCE_OF_STOP,
            _ => Duration::ZERO,
        }
    }
}

#[derive(Debug)]
enum Failed {
    NotRun(io::Error),
    Status(ExitStatus),
    TookTooLong(Duration),
    /// Because of the array's stop.
    Ended,
}

impl Failed {
    fn errno(&self) -> i32 {
        match self {
            Failed::NotRun(error) => -error.raw_os_error().unwrap_or(libc::EIO),
            Failed::Status(_) | Failed::Ended => -libc::ECANCELED,
            Failed::TookTooLong(_) => -libc::ETIMEDOUT,
        }
    }

    fn reason(&self) -> String {
        match self {
            Failed::NotRun(error) => format!("it cannot be run: {error}"),
            Failed::Status(status) => status.to_string(),
            Failed::TookTooLong(limit) => {
                format!("it ran longer than {} s, and was killed", limit.as_secs())
            }
            Failed::Ended => "it was killed at the stop".into(),
        }
    }
}

impl PartialEq for PowerHook {
    fn eq(&self, other: &PowerHook) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for PowerHook {}

/// Whether a file may be run by us, and why not.
fn runnable(path: &Path) -> io::Result<()> {
    let found = path.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("no program"));
    }
    if found.permissions().mode() & 0o111 == 0 {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    Ok(())
}

impl PowerHook {
    /// The words live as long as the process. `say` is given a line about a command that failed, on any thread.
    pub fn new(words: Vec<String>, say: fn(&str)) -> PowerHook {
        PowerHook(Box::leak(Box::new(Hook {
            words,
            say,
            told: Mutex::default(),
            groups: Mutex::default(),
        })))
    }

    /// Whether there is such a program, as far as can be told without running it.
    pub fn check(self) -> Result<(), String> {
        let program = self.0.words.first().map_or("", String::as_str);
        if program.contains('/') {
            return runnable(Path::new(program)).map_err(|error| format!("{program}: {error}"));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = path.as_bytes().split(|byte| *byte == b':');
        let places = folders.map(|folder| PathBuf::from(std::ffi::OsStr::from_bytes(folder)));
        let mut programs = places.map(|folder| folder.join(program));
        match programs.any(|one| runnable(&one).is_ok()) {
            true => Ok(()),
            false => Err(format!("{program}: not found in PATH")),
        }
    }

    /// Ends all that run, and lets none begin: the process is about to.
    pub fn end(self) {
        let mut groups = lock(&self.0.groups);
        groups.ended = true;
        groups.running.iter().copied().for_each(kill);
    }

    /// 0, or an errno below it.
    pub(super) fn run(self, turns: bool, path: &str, haste: &Haste) -> i32 {
        let word = if turns { "wake" } else { "standby" };
        let mut said = Said::default();
        let outcome = self.0.run(word, path, || haste.patience(turns), &mut said);
        self.0.tell(word, path, outcome.as_ref().err(), &said);
        outcome.map_or_else(|failed| failed.errno(), |()| 0)
    }
}

impl Hook {
    fn run(
        &self,
        word: &str,
        path: &str,
        patience: impl Fn() -> Duration,
        said: &mut Said,
    ) -> Result<(), Failed> {
        let (mut child, mut output) = self.begin(word, path)?;
        let begun = Instant::now();
        loop {
            let done = self.look(&mut child);
            said.take(&mut output);
            let limit = patience();
            match done {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(Failed::Status(status)),
                Ok(None) if begun.elapsed() < limit => std::thread::sleep(GLANCE),
                Ok(None) => {
                    self.bury(child);
                    return Err(match limit.is_zero() {
                        true => Failed::Ended,
                        false => Failed::TookTooLong(limit),
                    });
                }
                Err(error) => {
                    self.bury(child);
                    return Err(Failed::NotRun(error));
                }
            }
        }
    }

    /// A process group of its own, so that it goes with all that it began.
    fn begin(&self, word: &str, path: &str) -> Result<(Child, File), Failed> {
        let (program, words) = match self.words.split_first() {
            Some(words) => words,
            None => return Err(Failed::NotRun(io::Error::from_raw_os_error(libc::EINVAL))),
        };
        let (output, input) = io::pipe().map_err(Failed::NotRun)?;
        let output = File::from(OwnedFd::from(output));
        never_wait(&output).map_err(Failed::NotRun)?;
        let also = input.try_clone().map_err(Failed::NotRun)?;
        let mut command = Command::new(program);
        command.args(words).args([word, path]).process_group(0);
        command.stdin(Stdio::null()).stdout(input).stderr(also);
        let mut groups = lock(&self.groups);
        if groups.ended {
            return Err(Failed::Ended);
        }
        let child = command.spawn().map_err(Failed::NotRun)?;
        groups.running.insert(child.id().cast_signed());
        Ok((child, output))
    }

    /// Whether it has ended; then its number is nobody's any more.
    fn look(&self, child: &mut Child) -> io::Result<Option<ExitStatus>> {
        let mut groups = lock(&self.groups);
        let done = child.try_wait();
        if !matches!(done, Ok(None)) {
            groups.running.remove(&child.id().cast_signed());
        }
        done
    }

    /// It is ours, and not waited for by anybody else.
    fn bury(&self, mut child: Child) {
        kill(child.id().cast_signed());
        let begun = Instant::now();
        while matches!(self.look(&mut child), Ok(None)) && begun.elapsed() < BURIAL {
            std::thread::sleep(GLANCE);
        }
    }

    /// Says why one failed, if that is news.
    fn tell(&self, word: &'static str, path: &str, failed: Option<&Failed>, said: &Said) {
        let key = (path.to_owned(), word);
        let reason = match failed {
            Some(Failed::Ended) => return,
            Some(failed) => failed.reason(),
            None => {
                lock(&self.told).remove(&key);
                return;
            }
        };
        if lock(&self.told).insert(key, reason.clone()) == Some(reason.clone()) {
            return;
        }
        let follows = match word {
            "wake" => "requests to the mirror are sent anyway",
            _ => "the mirror stays active",
        };
        let program = self.words.join(" ");
        let said = said.line();
        (self.say)(&format!(
            "{path}: {program} {word}: {reason}; {follows}{said}"
        ));
    }
}

/// Nothing that can panic runs under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn kill(group: i32) {
    // SAFETY: no pointers are passed; the group is that of a child that was not waited for.
    let _ = unsafe { libc::kill(-group, libc::SIGKILL) };
}

fn never_wait(file: &File) -> io::Result<()> {
    // SAFETY: no pointers are passed.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The beginning of what a command said on either output.
#[derive(Default)]
struct Said(Vec<u8>);

impl Said {
    /// Takes what is there, and drops what is too much. Who holds the other end may hold it for longer than the command runs.
    fn take(&mut self, output: &mut File) {
        let mut some = [0; SAID_MAX];
        for _ in 0..16 {
            match output.read(&mut some) {
                Ok(count) if count > 0 => {
                    let room = SAID_MAX - self.0.len();
                    self.0.extend_from_slice(&some[..count.min(room)]);
                }
                _ => return,
            }
        }
    }

    /// In one line, of its words.
    fn line(&self) -> String {
        let text = String::from_utf8_lossy(&self.0);
        let words = text.split(|c: char| c.is_whitespace() || c.is_control());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        match words.is_empty() {
            true => String::new(),
            false => format!(": {}", words.join(" ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn hook(script: &str) -> PowerHook {
        let words = ["sh", "-c", script].map(String::from).to_vec();
        PowerHook::new(words, |line| lock(&SAID).push(line.to_owned()))
    }

    fn said_of(path: &str) -> Vec<String> {
        let said = lock(&SAID);
        let told = said.iter().filter(|line| line.starts_with(path));
        told.cloned().collect()
    }

    #[test]
    fn one_that_fails_is_told_once_with_what_it_said() {
        let failing = hook("echo no; echo '  such\tdisk' >&2; exit 3");
        let calm = Haste::default();
        for _ in 0..2 {
            assert_eq!(failing.run(false, "/fails", &calm), -libc::ECANCELED);
        }
        let told = said_of("/fails");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("exit status: 3"), "{told:?}");
        let end = "the mirror stays active: no such disk";
        assert!(told[0].ends_with(end), "{told:?}");
    }

    #[test]
    fn one_that_succeeds_is_silent_and_what_it_said_is_dropped() {
        // More than the pipe holds.
        let talking = hook("head -c 300000 /dev/zero; exit 0");
        assert_eq!(talking.run(false, "/talks", &Haste::default()), 0);
        assert_eq!(said_of("/talks"), Vec::<String>::new());
        let said = Said(vec![b'x'; SAID_MAX]);
        assert_eq!(said.line().len(), SAID_MAX + 2);
    }

    /// It goes with what it began, and the stop does not wait for it.
    #[test]
    fn a_stop_ends_one_that_would_take_long() {
        let mark = std::env::temp_dir().join(format!("restripe-hook-{}", std::process::id()));
        let slow = hook(&format!("sleep 1000 & echo $! > {}; wait", mark.display()));
        let haste = Haste::default();
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let run = scope.spawn(|| slow.run(false, "/slow", &haste));
            await_mark(&mark);
            haste.stop();
            assert_eq!(run.join().expect("it ends"), -libc::ECANCELED);
        });
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert_eq!(said_of("/slow"), Vec::<String>::new());
        assert_gone(&mark);
    }

    #[test]
    fn none_runs_once_the_process_is_about_to_end() {
        let mark = std::env::temp_dir().join(format!("restripe-hook-end-{}", std::process::id()));
        let slow = hook(&format!("sleep 1000 & echo $! > {}; wait", mark.display()));
        std::thread::scope(|scope| {
            let run = scope.spawn(|| slow.run(true, "/end", &Haste::default()));
            await_mark(&mark);
            slow.end();
            assert_eq!(run.join().expect("it ends"), -libc::ECANCELED);
        });
        assert_gone(&mark);
        assert_eq!(slow.run(true, "/end", &Haste::default()), -libc::ECANCELED);
    }

    fn await_mark(mark: &Path) {
        while std::fs::read_to_string(mark).unwrap_or_default().is_empty() {
            std::thread::sleep(GLANCE);
        }
    }

    /// The process whose number stands there has ended, and may wait to be buried by who inherited it.
    fn assert_gone(mark: &Path) {
        let text = std::fs::read_to_string(mark).expect("it was written");
        let stat = format!("/proc/{}/stat", text.trim());
        let begun = Instant::now();
        loop {
            let stat = std::fs::read_to_string(&stat).unwrap_or_default();
            if stat.is_empty() || stat.contains(") Z ") {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "{stat}");
            std::thread::sleep(GLANCE);
        }
        std::fs::remove_file(mark).expect("ours");
    }

    #[test]
    fn a_program_that_is_not_there_is_found_out_before() {
        let check = |program: &str| PowerHook::new(vec![program.into()], |_| {}).check();
        assert_eq!(check("sh"), Ok(()));
        assert_eq!(check("/bin/sh"), Ok(()));
        let not = |program: &str| check(program).expect_err("it is not there");
        assert!(not("/nowhere/at/all").contains("No such file"));
        assert!(not("/etc/passwd").contains("permission denied"));
        assert!(not("/tmp").contains("no program"));
        assert!(not("restripe-nowhere").contains("not found in PATH"));
    }
}
