//! Requests of a text, line by line, by the parser of its format.

use super::fields::{Line, Lines};
use super::format::Parser;
use super::members::Members;
use super::source::{self, Bytes};
use super::{Item, Place, TraceError};
use std::io;
use std::path::PathBuf;

/// Requests of a text, by the parser of its format.
pub(super) struct TextReader {
    /// Of the file, or of the archive that it is a member of.
    path: PathBuf,
    lines: Lines,
    parser: Box<dyn Parser>,
    /// The name of the archive's member that is being read, and those that follow.
    members: Option<(String, Members)>,
}

impl TextReader {
    /// The text begins with the bytes of `start`.
    pub fn new(path: PathBuf, input: Bytes, start: &[u8], mut parser: Box<dyn Parser>) -> Self {
        parser.begin(start);
        TextReader {
            path,
            lines: Lines::new(input),
            parser,
            members: None,
        }
    }

    /// Goes on with these members of the archive where the first of them, of this name, ends.
    pub fn with_members(mut self, name: String, members: Members) -> TextReader {
        self.members = Some((name, members));
        self
    }

    /// Begins the archive's next member; false where there is none.
    fn next_member(&mut self) -> Result<bool, TraceError> {
        let Some((name, members)) = &mut self.members else {
            return Ok(false);
        };
        let Some(member) = members.next_text()? else {
            return Ok(false);
        };
        *name = member.name;
        self.lines = Lines::new(member.bytes);
        self.parser.begin(&member.start);
        Ok(true)
    }
}

impl Iterator for TextReader {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            let parsed = match self.lines.next_line() {
                Ok(None) => match self.next_member() {
                    Ok(true) => continue,
                    Ok(false) => return None,
                    Err(error) => return Some(Err(error)),
                },
                Ok(Some(Line::Text(line))) => self.parser.parse(line),
                Ok(Some(Line::Bad(reason))) => Err(reason.to_string()),
                Err(error) => return Some(Err(self.unreadable(&error))),
            };
            match parsed {
                Ok(Some(request)) => return Some(Ok(request)),
                Ok(None) => {}
                Err(reason) => return Some(Err(self.error(self.lines.number, reason, true))),
            }
        }
    }
}

impl TextReader {
    fn error(&self, line: u64, reason: String, skippable: bool) -> TraceError {
        let path = match &self.members {
            Some((name, _)) => self.path.join(name),
            None => self.path.clone(),
        };
        TraceError::new(&path, Place::Line(line), reason, skippable)
    }

    /// What cannot be read stands behind the last line that could. A file that was cut ends there. So does a member that
    /// is damaged, as long as its archive is sound: the next one begins at a place that is known.
    fn unreadable(&mut self, error: &io::Error) -> TraceError {
        let goes_on = match &self.members {
            Some((_, members)) => members.go_on(),
            None => source::is_truncated(error),
        };
        let found = self.error(self.lines.number + 1, error.to_string(), goes_on);
        self.lines = Lines::new(Box::new(io::empty()));
        found
    }
}
