//! What a run has started, mounted and attached, and how all of it ends: by guards in this process, and by a helper
//! process if this one is killed.
//!
//! Every guard notes in a file how to undo its part. The helper, a shell in a session of its own, waits for the end of a
//! pipe that only this process holds. Whatever ends this process closes the pipe, also SIGINT and SIGKILL; the helper
//! then undoes what is still noted, the newest first. After an orderly end nothing is noted.

use super::tools::{Outcome, pause, text_error, write};
use std::cell::RefCell;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// $1 is the file of notes, $2 the folder of the run. A process is ended only if its command line names the folder.
const HELPER: &str = r#"
trap '' INT TERM HUP
read -r _
[ -f "$1" ] && tac "$1" | while read -r verb what rest; do
  case $verb in
  kill)
    grep -aqF "$2" "/proc/$rest/cmdline" 2>/dev/null || continue
    kill -s "$what" "$rest"
    for _ in $(seq 50); do [ -d "/proc/$rest" ] || break; sleep 0.2; done
    if grep -aqF "$2" "/proc/$rest/cmdline" 2>/dev/null; then kill -s KILL "$rest"; fi ;;
  umount) timeout 20 umount "$what" || umount -l "$what" ;;
  loop) losetup -d "$what" ;;
  nbd) timeout 20 nbd-client -d "$what" ;;
  group) sleep 0.5; rmdir "$what" ;;
  esac
done >/dev/null 2>&1
rm -rf --one-file-system "$2"
"#;
/// A transaction on a busy array takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The notes of one run. Cloned handles share them.
#[derive(Clone)]
pub struct Undo(Rc<Shared>);

struct Shared {
    folder: PathBuf,
    notes: RefCell<Notes>,
    helper: RefCell<Child>,
}

#[derive(Default)]
struct Notes {
    next: u64,
    lines: Vec<(u64, String)>,
}

impl Undo {
    /// Starts the helper. The folder is removed at the end, by either of the two.
    pub fn start(folder: &Path) -> Outcome<Undo> {
        fs::create_dir_all(folder).map_err(text_error(folder))?;
        let helper = Command::new("setsid")
            .args(["sh", "-c", HELPER, "restripe-apps-undo"])
            .arg(folder.join("undo"))
            .arg(folder)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("setsid: {error}"))?;
        Ok(Undo(Rc::new(Shared {
            folder: folder.to_path_buf(),
            notes: RefCell::default(),
            helper: RefCell::new(helper),
        })))
    }

    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// Notes a line of the helper's language until the guard is dropped.
    pub fn note(&self, line: String) -> Outcome<Note> {
        let number = {
            let mut notes = self.0.notes.borrow_mut();
            notes.next += 1;
            let number = notes.next;
            notes.lines.push((number, line));
            number
        };
        self.0.save()?;
        Ok(Note {
            undo: self.clone(),
            number,
        })
    }
}

impl Shared {
    fn save(&self) -> Outcome<()> {
        let lines: String = self
            .notes
            .borrow()
            .lines
            .iter()
            .map(|(_, line)| format!("{line}\n"))
            .collect();
        write(&self.folder.join("undo"), &lines)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let helper = self.helper.get_mut();
        // The end of the pipe: the helper removes the folder.
        drop(helper.stdin.take());
        // It was started, so it can be waited for.
        let _ = helper.wait();
    }
}

/// A line of the notes, struck out when this is dropped.
pub struct Note {
    undo: Undo,
    number: u64,
}

impl Drop for Note {
    fn drop(&mut self) {
        let shared = &self.undo.0;
        let mut notes = shared.notes.borrow_mut();
        notes.lines.retain(|(number, _)| *number != self.number);
        drop(notes);
        // A line that stays in the file is undone twice, which is harmless.
        let _ = shared.save();
    }
}

/// A program that ends with its owner.
pub struct Process {
    name: String,
    child: Child,
    /// That ends it in good order.
    signal: &'static str,
    errors: PathBuf,
    _note: Note,
}

impl Process {
    /// Starts it in a process group of its own, so that a terminal's SIGINT reaches only this process. Its messages go
    /// to a file of the run's folder.
    pub fn start(undo: &Undo, mut command: Command, signal: &'static str) -> Outcome<Process> {
        let name = command.get_program().to_string_lossy().into_owned();
        let errors = undo
            .folder()
            .join(format!("errors.{}", undo.0.notes.borrow().next));
        let file = fs::File::create(&errors).map_err(text_error(&errors))?;
        let child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stderr(file)
            .spawn()
            .map_err(|error| format!("{name}: {error}"))?;
        let note = undo.note(format!("kill {signal} {}", child.id()))?;
        Ok(Process {
            name,
            child,
            signal,
            errors,
            _note: note,
        })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the first line of its standard output, which must be piped.
    pub fn first_line(&mut self) -> Outcome<String> {
        let mut line = Vec::new();
        if let Some(stdout) = &mut self.child.stdout {
            let mut byte = [0];
            while matches!(stdout.read(&mut byte), Ok(1)) && byte[0] != b'\n' {
                line.push(byte[0]);
            }
        }
        match line.is_empty() {
            true => Err(self.complaint("ended at once")),
            false => Ok(String::from_utf8_lossy(&line).trim().to_string()),
        }
    }

    /// Fails if it has ended.
    pub fn check(&mut self) -> Outcome<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.complaint(&format!("ended too early, {status}"))),
            Err(error) => Err(format!("{}: {error}", self.name)),
        }
    }

    /// Asks it to end and waits; a program that ends with an error is one.
    pub fn end(mut self) -> Outcome<()> {
        self.ask_to_end();
        self.wait()
    }

    /// Waits until it has ended by itself.
    pub fn wait(&mut self) -> Outcome<()> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(self.complaint(&format!("ended with {status}"))),
                Ok(None) => pause(20),
                Err(error) => return Err(format!("{}: {error}", self.name)),
            }
        }
        Err(self.complaint("does not end"))
    }

    fn ask_to_end(&self) {
        // A process that has ended needs no signal.
        let _ = Command::new("kill")
            .args(["-s", self.signal, &self.child.id().to_string()])
            .stderr(Stdio::null())
            .status();
    }

    fn complaint(&self, what: &str) -> String {
        let said = fs::read_to_string(&self.errors).unwrap_or_default();
        let last: Vec<&str> = said.lines().rev().take(5).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        format!("{} {what}: {}", self.name, last.join(" / "))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        self.ask_to_end();
        // What does not end in time is killed; a process that has ended cannot be.
        let _ = self.wait();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("restripe-undo-{}-{name}", std::process::id()))
    }

    #[test]
    fn a_process_ends_with_its_owner_and_the_folder_goes() {
        let folder = folder("owner");
        let undo = Undo::start(&folder).expect("a helper");
        let mut command = Command::new("sleep");
        command.arg("100");
        let process = Process::start(&undo, command, "TERM").expect("sleep");
        let place = PathBuf::from(format!("/proc/{}", process.id()));
        let noted = fs::read_to_string(folder.join("undo")).expect("notes");
        assert_eq!(noted, format!("kill TERM {}\n", process.id()));
        drop(process);
        assert!(!place.exists());
        assert_eq!(fs::read_to_string(folder.join("undo")).expect("notes"), "");
        drop(undo);
        assert!(!folder.exists());
    }

    #[test]
    fn the_helper_ends_what_is_still_noted_and_nothing_else() {
        let folder = folder("helper");
        let undo = Undo::start(&folder).expect("a helper");
        let mut ours = Command::new("tail")
            .args(["-f", "/dev/null"])
            .arg(folder.join("undo"))
            .stdout(Stdio::null())
            .spawn()
            .expect("a program that names the folder");
        let mut other = Command::new("sleep").arg("100").spawn().expect("sleep");
        for id in [ours.id(), other.id()] {
            // As if this process had been killed: the note is never struck out.
            std::mem::forget(undo.note(format!("kill TERM {id}")).expect("noted"));
        }
        // The forgotten notes hold the shared part, so the pipe is closed by hand.
        drop(undo.0.helper.borrow_mut().stdin.take());
        let ended = ours.wait().expect("it ends");
        assert!(!ended.success());
        undo.0.helper.borrow_mut().wait().expect("the helper ends");
        assert!(other.try_wait().expect("a child").is_none());
        other.kill().expect("it still ran");
        other.wait().expect("it ends");
        assert!(!folder.exists());
    }
}
