//! Block traces: the type of a request, and the output of a reader of any format.
//!
//! Readers stream: memory does not grow with the trace. Every format becomes the same [`Request`], in
//! nanoseconds and bytes. [`Features`] lists the properties that a format does not record; they are never
//! invented. The formats, their units and their pitfalls are in `docs/reference/traces.md`.

mod binary;
mod blkparse;
mod blktrace;
mod blocks;
mod detect;
mod fields;
mod format;
mod formats;
mod lines;
pub mod locality;
mod members;
mod options;
mod reader;
pub(crate) mod replicate;
pub mod rtrace;
pub mod shape;
mod sort;
mod source;
mod summary;
mod tar;
mod text;
mod write;

pub use blocks::{BLOCK_BYTES, BlockSet, TooLarge, blocks};
pub use format::Format;
pub use formats::FORMATS;
pub use members::PassedOver;
pub use options::{Action, Options};
pub use reader::{Trace, files, open, read, read_twice};
pub use sort::Sorted;
pub use summary::{Heat, Order, Refused, Summary};
pub use write::{TraceWriter, WRITABLE};

use std::fmt;
use std::path::{Path, PathBuf};

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Op {
    Read,
    Write,
    Discard,
    Flush,
}

impl Op {
    pub fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Discard => "discard",
            Op::Flush => "flush",
        }
    }

    /// Reads and writes move data; only they count in sizes, footprints and rates.
    pub fn moves_data(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }
}

/// One request as it was issued.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// When it was issued, in nanoseconds of the trace's own clock: the first request need not be at zero. Zero
    /// throughout when [`Features::times`] is not set.
    pub time: u64,
    /// The device or address space, as the trace numbers it. Addresses of two devices are unrelated.
    pub device: u32,
    /// [`Op::Read`] throughout when [`Features::ops`] is not set.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes. A flush has none. A read or a write has at least one and at most [`LENGTH_MAX`].
    pub length: u64,
}

impl Request {
    pub(crate) fn new(time: u64, device: u32, op: Op, offset: u64, length: u64) -> Request {
        Request {
            time,
            device,
            op,
            offset,
            length,
        }
    }

    /// A discard of nothing, which asks for nothing.
    pub fn is_void(&self) -> bool {
        self.op != Op::Flush && self.length == 0
    }

    /// The byte after the last one. Readers refuse requests for which it is beyond [`END_MAX`].
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// The largest read or write that is believed; more is a damaged record. Linux stops at 32 MiB for one request.
pub const LENGTH_MAX: u64 = 1 << 30;

/// No device reaches further, in bytes; a request that does is a damaged record. Whoever rounds an end up needs no care.
pub const END_MAX: u64 = 1 << 62;

/// What a trace records, beyond addresses and lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    /// Requests carry times. Without them there are no rates, durations or gaps.
    pub times: bool,
    /// Requests carry their direction. Without it every access is called a read, and nothing is a rewrite.
    pub ops: bool,
}

impl Features {
    pub const ALL: Features = Features {
        times: true,
        ops: true,
    };
    pub const ADDRESSES: Features = Features {
        times: false,
        ops: false,
    };
}

/// Where in a file something is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The file as a whole.
    File,
    /// A line of (decompressed) text, from 1.
    Line(u64),
    /// A byte of the (decompressed) file, from 0.
    Byte(u64),
}

/// Why a trace, or one record of it, cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceError {
    pub path: PathBuf,
    pub place: Place,
    pub reason: String,
    /// Whether the reader can go on behind the bad record. `--skip-bad` counts such records and goes on.
    pub skippable: bool,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        match self.place {
            Place::File => {}
            Place::Line(line) => write!(f, ", line {line}")?,
            Place::Byte(byte) => write!(f, ", byte {byte}")?,
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for TraceError {}

impl TraceError {
    fn new(path: &Path, place: Place, reason: impl Into<String>, skippable: bool) -> TraceError {
        TraceError {
            path: path.into(),
            place,
            reason: reason.into(),
            skippable,
        }
    }

    /// An error of the file as a whole.
    fn of_file(path: impl AsRef<Path>, reason: impl Into<String>) -> TraceError {
        TraceError::new(path.as_ref(), Place::File, reason, false)
    }

    /// A list of addresses where requests are wanted at their times.
    pub fn timeless(path: &Path) -> TraceError {
        TraceError::of_file(path, "the trace has no times to replay it by")
    }

    /// A second pass that finds other requests than the first.
    pub fn changed() -> TraceError {
        TraceError::of_file("the trace", "it changed while it was read")
    }
}

/// What every reader, generator and transformation is: requests one by one.
///
/// Nothing follows an error that is not skippable.
pub type Item = Result<Request, TraceError>;
pub type Requests = Box<dyn Iterator<Item = Item> + Send>;

/// Everything a reader yields up to its end or its first error that is not skippable.
#[cfg(test)]
fn drain(reader: impl Iterator<Item = Item>) -> Vec<Item> {
    let mut items = Vec::new();
    for item in reader {
        let fatal = matches!(&item, Err(error) if !error.skippable);
        items.push(item);
        if fatal {
            break;
        }
    }
    items
}
