//! The description of a format of traces. Each is in the file of its reader; [`super::FORMATS`] lists them.
//!
//! | part of a description | what it is for |
//! |---|---|
//! | name, description | `--format`, `restripe trace formats` |
//! | features | what the format records |
//! | signs | how a file is recognised: first bytes, endings of names, lines |
//! | reading | a parser of one line, or a reader of bytes |

use super::options::Options;
use super::source::Bytes;
use super::{Features, Request, Requests, TraceError};
use std::fmt;
use std::path::{Path, PathBuf};

/// A format of traces.
pub struct Format {
    /// The name for `--format`.
    pub name: &'static str,
    /// A description in a few words.
    pub about: &'static str,
    /// What the format records; an `rtrace` file has a header of its own for this.
    pub features: Features,
    /// Whether records may come in another order than that of time, so that reading must sort.
    pub is_grouped: bool,
    /// Endings of file names, in small letters, that only this format has.
    pub(super) endings: &'static [&'static str],
    /// Whether a file begins as only files of this format do.
    pub(super) begins: fn(&[u8]) -> bool,
    /// Whether a file that no format's lines fit may be of this format.
    pub(super) resembles: fn(&[u8]) -> bool,
    pub(super) reading: Reading,
}

type Open = fn(Opened<'_>) -> Result<Contents, TraceError>;
type MakeParser = fn(&Options) -> Box<dyn Parser>;

pub(super) enum Reading {
    /// One request a line.
    Lines(Lines),
    Bytes(Open),
}

/// A file whose format is known.
pub(super) struct Opened<'a> {
    pub path: PathBuf,
    pub options: &'a Options,
    pub input: Bytes,
    /// The first bytes of the input.
    pub start: Vec<u8>,
}

impl<'a> Opened<'a> {
    pub fn new(path: &Path, options: &'a Options, input: Bytes, start: Vec<u8>) -> Opened<'a> {
        Opened {
            path: path.into(),
            options,
            input,
            start,
        }
    }

    /// An error of the file as a whole.
    pub fn failure(&self, reason: impl Into<String>) -> TraceError {
        TraceError::of_file(&self.path, reason)
    }
}

/// What a file of bytes holds.
pub(super) struct Contents {
    pub features: Features,
    pub label: Option<String>,
    pub requests: Requests,
}

pub(super) struct Lines {
    /// A sound trace, of one line or two.
    pub example: &'static str,
    pub parser: MakeParser,
    pub fields: Option<Fields>,
    /// Whether a text that begins so may be of this format, where formats are alike.
    pub suits: fn(&Beginning<'_>) -> bool,
}

/// What a line holds: a request, or nothing that counts.
pub type Parsed = Result<Option<Request>, String>;

/// Reads one line of a format.
pub trait Parser: Send {
    /// A text begins with these bytes. The parser forgets the times and events of the text before it.
    fn begin(&mut self, _start: &[u8]) {}

    fn parse(&mut self, line: &str) -> Parsed;
}

/// The first lines of a text that is to be recognised.
pub(super) struct Beginning<'a> {
    /// Numbers of lines from 0, and lines; no empty lines and comments.
    pub lines: &'a [(usize, &'a str)],
    /// The text may lack the first line by which its format is recognised.
    pub headless: bool,
}

/// The fields that a line has: five whole numbers are five whole numbers to the parser of four.
pub(super) struct Fields {
    /// The separator; white space if there is none.
    pub separator: Option<char>,
    pub least: usize,
    pub most: usize,
    /// All fields are whole numbers.
    pub whole_numbers: bool,
}

impl Format {
    /// A format of one request a line that records times and operations.
    pub(super) const fn of_lines(name: &'static str, about: &'static str, lines: Lines) -> Format {
        Format::of(name, about, Reading::Lines(lines))
    }

    /// A format of bytes that records times and operations.
    pub(super) const fn of_bytes(name: &'static str, about: &'static str, open: Open) -> Format {
        Format::of(name, about, Reading::Bytes(open))
    }

    const fn of(name: &'static str, about: &'static str, reading: Reading) -> Format {
        Format {
            name,
            about,
            features: Features::ALL,
            is_grouped: false,
            endings: &[],
            begins: |_| false,
            resembles: |_| false,
            reading,
        }
    }

    /// A sound trace of this format, if it is a text.
    pub fn example(&self) -> Option<&'static str> {
        self.lines().map(|lines| lines.example)
    }

    pub(super) fn lines(&self) -> Option<&Lines> {
        match &self.reading {
            Reading::Lines(lines) => Some(lines),
            Reading::Bytes(_) => None,
        }
    }
}

impl Lines {
    pub(super) const fn of(example: &'static str, parser: MakeParser) -> Lines {
        Lines {
            example,
            parser,
            fields: None,
            suits: |_| true,
        }
    }
}

impl Fields {
    const fn new(separator: Option<char>, least: usize, most: usize) -> Fields {
        Fields {
            separator,
            least,
            most,
            whole_numbers: false,
        }
    }

    pub(super) const fn words(least: usize, most: usize) -> Option<Fields> {
        Some(Fields::new(None, least, most))
    }

    pub(super) const fn commas(least: usize, most: usize) -> Option<Fields> {
        Some(Fields::new(Some(','), least, most))
    }

    pub(super) const fn whole_numbers(count: usize) -> Option<Fields> {
        let mut fields = Fields::new(None, count, count);
        fields.whole_numbers = true;
        Some(fields)
    }

    /// Refuses a line of another number of fields, or of fields of another kind.
    pub(super) fn check(&self, line: &str) -> Result<(), String> {
        let count = match self.separator {
            Some(separator) => line.split(separator).count(),
            None => line.split_ascii_whitespace().count(),
        };
        let is_number = |field: &str| field.parse::<u64>().is_ok();
        if self.whole_numbers && !line.split_ascii_whitespace().all(is_number) {
            return Err(format!("it is not {} whole numbers", self.least));
        }
        match (self.least..=self.most).contains(&count) {
            true => Ok(()),
            false => Err(format!("it has {count} fields")),
        }
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Format) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
