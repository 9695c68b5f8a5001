//! Operations on members, the buffers and pages that they carry, and computations on buffers, with verdicts.

use alloc::vec::Vec;
use core::fmt;
use restripe_format::units::{Member, PAGE_BYTES, SECTOR_BYTES};
use restripe_format::values::Page;

// ---------------------------------------------------------------------------------------------------- buffers

/// A handle to memory that the shell keeps. The engine passes handles on and never looks at the bytes.
///
/// Handles below [`Buf::USER`] are the engine's own pool: first [`Pool::small`] buffers of [`SMALL_BYTES`], then
/// [`Pool::large`] buffers of [`LARGE_BYTES`]. Handles from [`Buf::USER`] on belong to requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Buf(pub u32);

impl Buf {
    /// The first handle that a front end may use for a request's memory.
    pub const USER: u32 = 1 << 24;
}

/// Bytes in a small pool buffer.
pub const SMALL_BYTES: u32 = 4096;
/// Bytes in a large pool buffer: the most that one cell of a slice covers.
pub const LARGE_BYTES: u32 = 65536;
/// The most sectors of one cell that a slice works on at once.
pub const BAND_SECTORS_MAX: u64 = LARGE_BYTES as u64 / SECTOR_BYTES;

/// How many buffers of each size the shell keeps for the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pool {
    pub small: u32,
    pub large: u32,
}

impl Pool {
    /// The bytes behind a pool handle.
    pub fn bytes_of(&self, buf: Buf) -> u32 {
        if buf.0 < self.small {
            SMALL_BYTES
        } else {
            LARGE_BYTES
        }
    }
}

/// Part of a buffer, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct BufRef {
    pub buf: Buf,
    pub offset: u32,
    pub bytes: u32,
}

impl BufRef {
    pub fn new(buf: Buf, offset: u32, bytes: u32) -> BufRef {
        BufRef { buf, offset, bytes }
    }

    /// The part of this reference that starts `offset` bytes in.
    pub fn part(&self, offset: u32, bytes: u32) -> BufRef {
        assert!(offset + bytes <= self.bytes, "a part lies within its whole");
        BufRef {
            buf: self.buf,
            offset: self.offset + offset,
            bytes,
        }
    }
}

// ----------------------------------------------------------------------------------------------------- device

/// Names one outstanding operation. Unique among those outstanding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Tag(pub u32);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum IoOp {
    Read,
    Write,
    /// Make every write that completed before this one durable.
    Flush,
    /// Make the range read as zeros, by whatever the device does best.
    Zero,
    /// The range's contents are no longer needed. Only sent to members that then read zeros.
    Trim,
    /// Nothing will be asked for a while: the spindle may stand still, once all that was written is durable. Without a range, as
    /// a flush. A device that cannot says [`IoError::Unsupported`]. Whatever is asked next wakes it.
    Standby,
    /// The spindle is to turn again; ends when it does. Without a range.
    Wake,
}

impl IoOp {
    /// Whether it is about a range of sectors.
    pub fn has_range(self) -> bool {
        !matches!(self, IoOp::Flush | IoOp::Standby | IoOp::Wake)
    }
}

/// Where the bytes of a device operation come from or go to, in address order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Segment {
    /// A metadata page, always whole. A read fills it; it comes back with the event.
    Page(Page),
    /// Part of a buffer of the shell.
    Buf(BufRef),
    /// A number of zero bytes (writes only).
    Zero(u32),
}

impl Segment {
    pub fn bytes(&self) -> u32 {
        match self {
            Segment::Page(_) => PAGE_BYTES as u32,
            Segment::Buf(buf) => buf.bytes,
            Segment::Zero(bytes) => *bytes,
        }
    }
}

/// Why an operation is done: for schedulers and for accounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Class {
    /// A user waits for it.
    User,
    /// Parity and old data that a user's write needs.
    Parity,
    /// A task: rebuild, resync, scrub.
    Task,
    /// Superblocks, maps, logs, and all flushes. The number of members that a flush reaches depends on timers, so a
    /// flush is not counted to the request that asked for it.
    Metadata,
}

/// One operation on one member. `segments` cover exactly `sectors` for reads and writes and are empty otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceIo {
    pub tag: Tag,
    pub member: Member,
    pub op: IoOp,
    /// First sector on the member.
    pub at: u64,
    pub sectors: u64,
    pub segments: Vec<Segment>,
    /// A write is durable when it completes (forced unit access).
    pub durable: bool,
    pub class: Class,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum IoError {
    /// This range cannot be read or written; others may.
    Media,
    /// The device does not answer any more.
    Gone,
    /// A thin device has no room left.
    NoSpace,
    /// The device does not know this operation.
    Unsupported,
    /// Anything else, by its errno.
    Other(i32),
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IoError::Media => f.write_str("media error"),
            IoError::Gone => f.write_str("device gone"),
            IoError::NoSpace => f.write_str("no space left on device"),
            IoError::Unsupported => f.write_str("operation not supported"),
            IoError::Other(errno) => write!(f, "errno {errno}"),
        }
    }
}

// ---------------------------------------------------------------------------------------------- computations

/// One output of a linear combination over GF(2^8), polynomial 0x11d: `target = sum of coefficients[i] * sources[i]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinearOutput {
    pub target: BufRef,
    pub coefficients: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ComputeOp {
    /// Every output from the sources. No target overlaps a source. Without sources the targets become zeros; with one
    /// source and a coefficient of 1 it is a copy. Xor, P+Q, delta, recovery and Reed-Solomon are all this.
    Linear,
    /// The crc32c of the first source. Verdict: [`Verdict::Checksum`].
    Checksum,
    /// Are the first two sources equal? Verdict: [`Verdict::Equal`] or [`Verdict::Differ`].
    Compare,
    /// `sources[0]` is the P syndrome (read xor computed), `sources[1]` the Q syndrome. Which single cell explains both?
    /// Verdict: [`Verdict::Equal`] when both are zero, [`Verdict::Guilty`] or [`Verdict::Ambiguous`].
    Locate,
    /// The only output becomes what the page holds. Verdict: [`Verdict::Done`].
    PutPage,
    /// The page becomes what the only source holds. Verdict: [`Verdict::Done`].
    TakePage,
    /// The only output becomes the bitwise or of the two sources. Verdict: [`Verdict::Done`].
    Or,
}

/// A computation on buffers. All sources and targets have the same length, that of a page if it has one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compute {
    pub tag: Tag,
    pub op: ComputeOp,
    pub sources: Vec<BufRef>,
    pub outputs: Vec<LinearOutput>,
    /// Of [`ComputeOp::PutPage`] and [`ComputeOp::TakePage`]: metadata that lies among data, and so in a buffer.
    pub page: Option<Page>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Verdict {
    /// A linear combination is done.
    Done,
    Checksum(u32),
    Equal,
    Differ,
    /// Which cell is wrong: data with this exponent of the generator in Q, or P, or Q.
    Guilty(Guilty),
    /// More than one cell is wrong.
    Ambiguous,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Guilty {
    Data { exponent: u8 },
    P,
    Q,
}
