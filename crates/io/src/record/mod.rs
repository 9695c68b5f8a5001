//! A run in a file: what an engine was told and when, and a checksum of what it wanted each time.
//!
//! The engine is deterministic (rule 7 of its contract), so the events are the run. Operations that come back are named
//! by their tags: a replayed engine has asked for the same ones. Only what the world added is stored: results, verdicts,
//! and the metadata pages that were read.
//!
//! ```text
//! file   = magic, configuration, step*
//! step   = time since the step before, event, crc32c of the encoded actions
//! ```
//!
//! Integers are LEB128. A file that ends within a step ends with the step before it: a recorder may be killed.

mod code;
mod replay;

pub use code::encode_actions;
pub use replay::{Replay, ReplayError, Step, replay};

use code::Writer;
use restripe_array::{Action, Config, Event, Nanos};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

pub(crate) const MAGIC: &[u8; 8] = b"RSTREC02";

/// Writes a run as it happens. An error is kept until the end; the run is more important than its record.
pub struct Recorder {
    file: BufWriter<Box<dyn Write + Send>>,
    before: Nanos,
    step: Writer,
    scratch: Writer,
    failed: Option<io::Error>,
}

impl Recorder {
    pub fn create(path: &Path, config: &Config) -> io::Result<Recorder> {
        Recorder::new(Box::new(File::create(path)?), config)
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
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.file.flush(),
        }
    }
}
