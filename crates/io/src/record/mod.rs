//! A run in a file: the engine's events with their times, and a checksum of its actions after each event.
//!
//! The engine is deterministic (rule 7 of its contract), so the events are the run. Completed operations are
//! named by their tags, because a replayed engine submits the same ones. Only input from outside is stored:
//! results, verdicts, and the metadata pages that were read.
//!
//! ```text
//! file   = magic, configuration, step*
//! step   = time since the step before, event, crc32c of the encoded actions
//! ```
//!
//! Integers are LEB128. A file that ends within a step ends with the step before it, since a recorder may be
//! killed.

mod code;
mod coded;
mod replay;

pub use code::encode_actions;
pub use replay::{Replay, ReplayError, Step, replay};

use coded::Writer;
use restripe_array::{Action, Event, Nanos};
use restripe_tier::Config;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

pub(crate) const MAGIC: &[u8; 8] = b"RSTREC11";
/// What records of every version begin with.
const MAGIC_OF_ALL: &[u8] = b"RSTREC";

/// Writes a run as it happens. An error is kept until the end; the run is more important than its record.
pub struct Recorder {
    /// Where it is written, for errors.
    place: String,
    file: BufWriter<Box<dyn Write + Send>>,
    before: Nanos,
    step: Writer,
    scratch: Writer,
    failed: Option<io::Error>,
}

impl Recorder {
    /// Records in a file. What is there is written over only if it is a record: the name may be a member's by mistake.
    pub fn create(path: &Path, config: &Config) -> io::Result<Recorder> {
        let place = path.display().to_string();
        let failed = |error| not_recorded(&place, error);
        let file = open_for_record(path).map_err(failed)?;
        let recorder = Recorder::new(Box::new(file), config).map_err(failed)?;
        Ok(Recorder { place, ..recorder })
    }

    /// Records to anything that takes bytes.
    pub fn new(sink: Box<dyn Write + Send>, config: &Config) -> io::Result<Recorder> {
        let mut file = BufWriter::with_capacity(1 << 20, sink);
        let mut head = Writer::default();
        head.config(config);
        file.write_all(MAGIC)?;
        file.write_all(head.bytes())?;
        let (step, scratch) = (Writer::default(), Writer::default());
        Ok(Recorder {
            place: String::new(),
            file,
            before: Nanos::ZERO,
            step,
            scratch,
            failed: None,
        })
    }

    /// The engine is told this.
    pub fn event(&mut self, now: Nanos, event: &Event) {
        self.step.clear();
        self.step.number(now.since(self.before).0);
        self.step.event(event);
        self.before = now;
    }

    /// This is what it wants done about it.
    pub fn actions(&mut self, actions: &[Action]) {
        self.scratch.clear();
        actions
            .iter()
            .for_each(|action| self.scratch.action(action));
        let sum = restripe_code::crc32c(0, self.scratch.bytes());
        self.step.raw(&sum.to_le_bytes());
        if self.failed.is_none() {
            self.failed = self.file.write_all(self.step.bytes()).err();
        }
    }

    /// Whether all of it was written.
    pub fn finish(mut self) -> io::Result<()> {
        let outcome = match self.failed.take() {
            Some(error) => Err(error),
            None => self.file.flush(),
        };
        outcome.map_err(|error| not_recorded(&self.place, error))
    }
}

/// Opens a file that a record may be written to, empty. Nothing is cut off before that is known.
fn open_for_record(path: &Path) -> io::Result<File> {
    let options = || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        options
    };
    let found = path.metadata().map(|found| found.file_type());
    if found.as_ref().is_ok_and(FileTypeExt::is_block_device) {
        return Err(refused("it is a block device"));
    }
    if found.is_ok_and(|kind| !kind.is_file()) {
        return options().open(path);
    }
    let file = options().read(true).open(path)?;
    let mut head = Vec::new();
    let mut beginning = (&file).take(MAGIC_OF_ALL.len() as u64);
    beginning.read_to_end(&mut head)?;
    if !head.is_empty() && head != MAGIC_OF_ALL {
        return Err(refused("it exists already, and is not a record"));
    }
    file.set_len(0)?;
    (&file).rewind()?;
    Ok(file)
}

fn refused(why: &str) -> io::Error {
    io::Error::new(ErrorKind::AlreadyExists, why)
}

fn not_recorded(place: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot record in {place}: {error}"))
}
