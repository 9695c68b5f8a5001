//! The processes that are measured, and the folder of their files.

use std::error::Error;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

const PATIENCE: Duration = Duration::from_secs(10);

/// A folder for sockets and images, removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Outcome<Folder> {
        let path = std::env::temp_dir().join(format!("restripe-bench-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Folder(path))
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind is in the temporary folder, and named for us.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that has its socket. It ends with this.
pub struct Process(Child);

impl Process {
    pub fn start(name: &str, socket: &Path, mut command: Command) -> Outcome<Process> {
        let process = Process(command.spawn()?);
        let begin = Instant::now();
        while UnixStream::connect(socket).is_err() {
            if begin.elapsed() > PATIENCE {
                return Err(format!("{name} does not come up").into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(process)
    }

    /// User and system time so far.
    pub fn cpu(&self) -> Outcome<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let ticks = |index: usize| {
            fields
                .get(index)
                .and_then(|text| text.parse::<u64>().ok())
                .unwrap_or(0)
        };
        // Ticks are 10 ms on every Linux that we know of.
        Ok(Duration::from_millis((ticks(11) + ticks(12)) * 10))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
