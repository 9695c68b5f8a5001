//! The actions that the overlay requests, and the names by which their results are reported.

use super::{Extent, Kind};
use alloc::vec::Vec;
use core::ops::Range;
use restripe_array::{BufRef, Request, RequestError, RequestTag};

/// The set that does a part of the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Site {
    Home,
    Log,
    /// The NVRAM set: a flush moves packed records there before the log has them.
    Nvram,
}

/// Names a part of the work, from its [`Effect`] to the call that ends it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PartTag(pub u32);

/// Names a copy of a client's bytes into a record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PackTag(pub u64);

/// Names a clean copy that is being made, from [`Overlay::begin_copy`] on.
///
/// [`Overlay::begin_copy`]: super::Overlay::begin_copy
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct CopyTag(pub u64);

/// An action that the overlay requests. A method of [`Overlay`](super::Overlay) reports its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Reads sectors into a client's buffer; ends with `part_done`.
    Read {
        part: PartTag,
        /// The sector of the main set.
        home: u64,
        /// The kind and place of the log's copy; `None` where only the main set has the sectors.
        copy: Option<(Kind, u64)>,
        buf: BufRef,
    },
    /// Passes a request to the main set unchanged; ends with `part_done`.
    Pass {
        part: PartTag,
        request: Request,
    },
    /// Makes everything that was acknowledged durable; ends with `part_done`.
    Flush {
        part: PartTag,
        site: Site,
    },
    /// Writes a record: its header, and the payload where the extent says; ends with `appended`.
    Append {
        extent: Extent,
        /// `None`: zeros.
        payload: Option<BufRef>,
        /// Every record below is durable.
        durable: u64,
    },
    /// Writes the bytes of a record to the primary copies of the main set. `all`: to all copies, so that they
    /// agree on bytes that are not valid in the end. Ends with `primaries_written`.
    WritePrimaries {
        sequence: u64,
        request: Request,
        all: bool,
    },
    /// Copies part of a client's write, or zeros, to the extent's place in a record in memory; ends with
    /// `packed`.
    Pack {
        tag: PackTag,
        extent: Extent,
        /// The place of the record's header in the log.
        at: u64,
        source: Option<BufRef>,
    },
    /// Writes a record that was packed in memory; ends with `appended`. Then its memory is free.
    Seal {
        sequence: u64,
        extents: Vec<Extent>,
        payload_sectors: u32,
        /// Every record below is durable.
        durable: u64,
    },
    /// Writes a version of a record in memory to the NVRAM set; ends with `nvram_written`.
    WriteNvram(NvramVersion),
    /// Records durably that the NVRAM set is not valid; ends with `nvram_disabled`.
    DisableNvram,
    /// Reads pieces that are near each other in the log into memory, as far as memory has room: they are
    /// destaged next. Ends with `part_done`, which may report any result.
    Fetch {
        part: PartTag,
        pieces: Vec<Extent>,
    },
    /// Reads part of the log into memory, so that its live data can be packed again. Ends with `moved_in`.
    Move {
        part: PartTag,
        at: u64,
        sectors: u32,
    },
    /// The memory of a [`Effect::Move`] is free.
    Moved {
        buf: BufRef,
    },
    /// Memory need not hold pieces of these sectors that were read from this part of the log.
    Forget {
        home: Range<u64>,
        log: Range<u64>,
    },
    /// Writes to these sectors of the main set begin soon, or are over.
    ExpectWrites {
        home: Range<u64>,
        soon: bool,
    },
    /// Writes copies to the main set, where they are adjacent. Copies of [`Kind::Also`] go from the primary
    /// copies to the secondary ones. Ends with `part_done`.
    Destage {
        part: PartTag,
        extents: Vec<Extent>,
    },
    /// Records durably in the log that all records below are obsolete; ends with `part_done`.
    Void {
        part: PartTag,
        below: u64,
    },
    /// Records durably in the log that all records below are durable, and that those of this segment are
    /// obsolete: new ones are going to be written over them. Ends with `part_done`.
    Reuse {
        part: PartTag,
        segment: u32,
        durable: u64,
    },
    /// The log has a clean copy, or the copy failed.
    Copied(CopyTag, Result<(), RequestError>),
    Reply(RequestTag, Result<(), RequestError>),
}

/// A version of a record that the NVRAM set is to have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NvramVersion {
    pub sequence: u64,
    pub version: u32,
    /// Every record below is durable in the log.
    pub durable: u64,
    /// Nothing more comes into the record.
    pub closed: bool,
    pub extents: Vec<Extent>,
    pub payload_sectors: u32,
}
