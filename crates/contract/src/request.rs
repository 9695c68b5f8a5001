//! Users' requests, and why one fails.

use crate::BufRef;
use core::fmt;

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
}

impl RequestOp {
    /// Whether it changes bytes.
    pub fn changes(self) -> bool {
        !matches!(self, RequestOp::Read | RequestOp::Flush)
    }
}

/// A user's request, in bytes. `buf` is as long as the request for reads and writes and ignored otherwise.
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
            RequestError::NotWholeSectors => f.write_str("not whole sectors of 512 bytes"),
            RequestError::Unavailable => f.write_str("the array is not serving"),
        }
    }
}
