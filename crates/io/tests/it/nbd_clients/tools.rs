//! Running other people's programs, with a time limit, and temporary folders for them.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

static SKIPPED: AtomicUsize = AtomicUsize::new(0);
static FOLDERS: AtomicUsize = AtomicUsize::new(0);

/// An export to be tried.
pub struct Target {
    pub socket: PathBuf,
    pub export: String,
    pub size: usize,
}

impl Target {
    pub fn uri(&self) -> String {
        format!(
            "nbd+unix:///{}?socket={}",
            self.export,
            self.socket.display()
        )
    }
}

/// Whether the programs are installed. If not, the test is skipped, which is said and counted.
pub fn installed(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let missing = programs
        .iter()
        .find(|program| !std::env::split_paths(&path).any(|folder| folder.join(program).is_file()));
    if let Some(program) = missing {
        skip(&format!("{program} is not installed"));
    }
    missing.is_none()
}

/// Tells that the running test is skipped: to whoever reads the output, and in the file that gathers all skips.
pub fn skip(reason: &str) {
    let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    eprintln!("skipped ({count}): {test}: {reason}");
    if let Some(list) = std::env::var_os("RESTRIPE_SKIPS") {
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(list)
            .expect("the list of skips takes a line");
        writeln!(file, "{test}: {reason}").expect("the list of skips takes a line");
    }
}

/// The longest that a test waits for something that must come, on a machine that has much else to do.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A program that is killed if it runs beyond [`PATIENCE`].
pub fn bounded(program: &str) -> Command {
    let mut command = Command::new("timeout");
    let seconds = PATIENCE.as_secs().to_string();
    command.args(["--kill-after=5", &seconds, program]);
    command
}

/// Runs a program to its end.
pub fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Output {
    bounded(program)
        .args(arguments)
        .output()
        .expect("coreutils are installed")
}

/// Runs a program that must succeed; what it printed.
pub fn succeed<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> String {
    let output = run(program, arguments);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} {:?} ended with {}:\n{printed}\n{}",
        arguments
            .iter()
            .map(|a| a.as_ref().to_string_lossy())
            .collect::<Vec<_>>(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    printed
}

/// A folder for a test's files.
pub struct Folder {
    path: PathBuf,
    /// Gone when it is dropped.
    ours: bool,
}

impl Folder {
    pub fn new() -> Folder {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("restripe-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a new folder");
        Folder { path, ours: true }
    }

    /// A folder that somebody else removes.
    pub fn of_another(path: &Path) -> Folder {
        let path = path.to_path_buf();
        Folder { path, ours: false }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.ours {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
