//! PostMark as the load: Debian's own program, with the paper's files and buffers. It works until it is ended; how much
//! it read and wrote is what the kernel counts of its calls.

use super::limit::Limit;
use super::plan::Scale;
use super::tools::{Outcome, pause, text_error, write};
use super::undo::{Process, Undo};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// More transactions than a run has time for.
const TRANSACTIONS: u32 = 100_000_000;
const CREATED: &str = "Performing transactions";

pub struct PostMark {
    process: Process,
    output: PathBuf,
}

impl PostMark {
    /// Starts it, and waits until all its files are there and transactions begin.
    pub fn start(
        undo: &Undo,
        place: &Path,
        scale: &Scale,
        limit: Option<&Limit>,
        seed: u32,
    ) -> Outcome<PostMark> {
        let settings = undo.folder().join("postmark");
        write(&settings, &configuration(place, scale.postmark_files, seed))?;
        let output = undo.folder().join("postmark.out");
        let file = fs::File::create(&output).map_err(text_error(&output))?;
        let enter = limit.map_or(String::new(), |limit| {
            format!("echo $$ > '{}' && ", limit.members().display())
        });
        // PostMark's own output is buffered, but not line by line.
        let script = format!("{enter}exec stdbuf -o0 postmark \"$1\"");
        let mut command = Command::new("sh");
        command
            .args(["-c", &script, "restripe-apps"])
            .arg(&settings)
            .stdout(Stdio::from(file));
        let mut postmark = PostMark {
            process: Process::start(undo, command, "KILL")?,
            output,
        };
        postmark.await_files(scale.rebuild_s * 4)?;
        Ok(postmark)
    }

    fn await_files(&mut self, seconds: u32) -> Outcome<()> {
        for _ in 0..seconds * 10 {
            let said = fs::read(&self.output).unwrap_or_default();
            if String::from_utf8_lossy(&said).contains(CREATED) {
                return Ok(());
            }
            self.process.check()?;
            pause(100);
        }
        Err(format!("PostMark has not made its files in {seconds} s"))
    }

    pub fn check(&mut self) -> Outcome<()> {
        self.process.check()
    }

    /// Bytes that its calls have read and written so far.
    pub fn bytes(&self) -> Outcome<u64> {
        let path = PathBuf::from(format!("/proc/{}/io", self.process.id()));
        let text = fs::read_to_string(&path).map_err(text_error(&path))?;
        moved(&text).ok_or(format!("{}: {text}", path.display()))
    }
}

/// PostMark's commands: the paper's sizes and buffers, its defaults otherwise.
fn configuration(place: &Path, files: u32, seed: u32) -> String {
    format!(
        "set location {}\nset size 4096 512000\nset number {files}\nset transactions {TRANSACTIONS}\n\
         set read 4096\nset write 4096\nset seed {seed}\nrun\nquit\n",
        place.display()
    )
}

/// From the text of `/proc/*/io`.
fn moved(text: &str) -> Option<u64> {
    let field = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some(field("rchar:")? + field("wchar:")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_calls() {
        let text = "rchar: 1000\nwchar: 234\nsyscr: 7\nsyscw: 8\nread_bytes: 4096\n";
        assert_eq!(moved(text), Some(1234));
        assert_eq!(moved("rchar: 1\n"), None);
    }

    #[test]
    fn the_same_seed_gives_the_same_commands() {
        let text = configuration(Path::new("/mnt/x"), 800, 3);
        assert!(text.starts_with("set location /mnt/x\nset size 4096 512000\nset number 800\n"));
        assert!(text.contains("set seed 3\n"));
        assert!(text.ends_with("run\nquit\n"));
        assert_eq!(text, configuration(Path::new("/mnt/x"), 800, 3));
    }
}
