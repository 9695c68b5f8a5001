//! Users' requests, and why one fails.

use crate::BufRef;
use core::fmt;
use core::ops::Range;
use restripe_format::units::SECTOR_BYTES;

/// Names a request; chosen by the front end, echoed in the reply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct RequestTag(pub u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum RequestOp {
    Read,
    Write,
    /// Covers every write replied to before it, on all connections.
    Flush,
    Trim,
    /// `fast`: refuse rather than be slow.
    WriteZeroes {
        fast: bool,
    },
    /// Writes if the bytes there are as given; if not, [`RequestError::Differs`]. No other change of these
    /// bytes comes between. The buffer has three parts, each as long as the request: what is compared, what
    /// is written, and what was read.
    CompareAndWrite,
    /// Writes the bitwise or of the bytes there and those given. No other change of these bytes comes
    /// between. The buffer has three parts, each as long as the request: what is given, what is written, and
    /// what was read.
    Or,
}

impl RequestOp {
    /// Whether it changes bytes.
    pub fn changes(self) -> bool {
        !matches!(self, RequestOp::Read | RequestOp::Flush)
    }

    /// Whether it depends on the bytes that it changes.
    pub fn is_atomic(self) -> bool {
        matches!(self, RequestOp::CompareAndWrite | RequestOp::Or)
    }
}

/// A user's request, in bytes. `buf` is as long as the request for reads and writes, and ignored for other
/// operations than these and the atomic ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    pub tag: RequestTag,
    pub op: RequestOp,
    pub offset: u64,
    pub bytes: u64,
    pub buf: BufRef,
    /// Durable when replied to.
    pub fua: bool,
}

impl Request {
    /// The sectors that it has bytes of.
    pub fn sectors(&self) -> Range<u64> {
        let end = self.offset.saturating_add(self.bytes);
        self.offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES)
    }

    /// Whether it has bytes of these sectors.
    pub fn meets(&self, sectors: &Range<u64>) -> bool {
        let own = self.sectors();
        own.start < sectors.end && sectors.start < own.end
    }
}

/// The first bytes of a request, and what they cost the members: as much as writing `cost` bytes does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    pub bytes: u64,
    pub cost: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum RequestError {
    /// Beyond the end of the array.
    OutOfRange {
        end: u64,
        size: u64,
    },
    /// These bytes are lost: redundancy could not bring them back, and no made-up byte stands in for them.
    Lost {
        lba: u64,
        sectors: u64,
    },
    /// The array takes no writes: too many members are gone, or it was started read-only.
    ReadOnly,
    NoSpace,
    /// A fast zero would have been slow.
    NotFast,
    /// The bytes are not those of a compare and write. Nothing was written.
    Differs,
    /// An array with a surrogate takes whole sectors only.
    NotWholeSectors,
    /// The array is stopping or not yet started.
    Unavailable,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::OutOfRange { end, size } => {
                write!(f, "request ends at byte {end}, the array at {size}")
            }
            RequestError::Lost { lba, sectors } => write!(f, "{sectors} sectors at {lba} are lost"),
            RequestError::ReadOnly => f.write_str("the array refuses writes"),
            RequestError::NoSpace => f.write_str("a member has no space left"),
            RequestError::NotFast => f.write_str("zeroing this range would be slow"),
            RequestError::Differs => f.write_str("the bytes there are others"),
            RequestError::NotWholeSectors => f.write_str("not whole sectors of 512 bytes"),
            RequestError::Unavailable => f.write_str("the array is not serving"),
        }
    }
}
