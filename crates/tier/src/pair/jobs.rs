//! Jobs: computations and child requests of the tier's own. A job's number is the tag of both.

use crate::overlay::{CopyTag, Extent, PackTag, PartTag};
use restripe_array::parts::{BlockCopy, Boxes};
use restripe_array::{Buf, BufRef, RequestError, RequestTag, Slab};

#[derive(Clone, Copy, Debug)]
pub(crate) struct AnchorPage {
    pub(crate) index: u32,
    pub(crate) at: u64,
    pub(crate) buf: Buf,
}

/// A record on its way into the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Append {
    pub(crate) extent: Extent,
    /// `None`: zeros.
    pub(crate) payload: Option<BufRef>,
    pub(crate) durable: u64,
    /// The buffer of its header, once it has one.
    pub(crate) header: Option<Buf>,
    /// Writes under way.
    pub(crate) writes: u8,
    pub(crate) failed: Option<RequestError>,
}

/// Bytes of a read that are copied out of its memory, to be kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyOut {
    pub(crate) copy: CopyTag,
    pub(crate) home: u64,
    pub(crate) target: BufRef,
    pub(crate) read: RequestTag,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Job {
    /// A copy into a record in memory.
    Pack(PackTag),
    /// A read of a record in memory.
    Gathered {
        part: PartTag,
        sequence: u64,
    },
    /// A record on its way out of memory.
    Seal(u64),
    /// A version of one on its way into the buffer, by its number in [`super::nvram`].
    Version(u32),
    /// A half of a slot that a start reads, or writes into the log.
    Slot,
    /// Part of the log that is read to go home, and a copy out of it to where it is kept: by the load's number.
    Load(u32),
    Keep(u32),
    /// A copy between a user's buffer and the read cache.
    Cached {
        part: PartTag,
        memory: u32,
        way: BlockCopy,
    },
    Append(Append),
    /// By its number in [`super::destage`].
    CopyHome(u32),
    Anchor(AnchorPage),
    CopyOut(CopyOut),
    /// Part of the log that is read to be moved.
    Move {
        part: PartTag,
        buf: BufRef,
    },
}

#[derive(Default)]
pub(crate) struct Jobs {
    pub(crate) list: Slab<Job>,
    pub(crate) boxes: Boxes,
}
