//! The configuration of an overlay, and its counters.

use super::Extent;
use crate::policy::destage_order::DestageOrder;
use alloc::vec::Vec;

/// Bounds, fixed at construction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverlayLimits {
    /// Extents of the map.
    pub extents: u32,
    /// Requests accepted and not yet replied to.
    pub requests: u32,
    /// Sectors of a record's payload at most; a longer write becomes several records.
    pub record_sectors: u32,
    /// Writes of a destage in flight, and clean copies in flight, at most.
    pub copies: u32,
    /// Writes to the log are multiples of this number of sectors: whole pages.
    pub grain: u32,
    /// Writes are packed in memory. Then no clean copies are made.
    pub packing: Option<Packing>,
    /// Slots of the NVRAM set that flushes go to, where writes are packed.
    pub slots: Option<u32>,
    /// There is no log: only the primary copies have deferred writes (ERAID).
    pub logless: bool,
}

impl OverlayLimits {
    pub(super) fn parts(&self) -> u32 {
        self.requests * PARTS_PER_REQUEST + self.copies + PARTS_OF_OWN
    }

    /// Parts that reads leave free for other work, so that nothing waits for reads only.
    pub(super) fn parts_without_reads(&self) -> u32 {
        self.requests * 2 + self.copies + PARTS_OF_OWN
    }
}

/// How writes are packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packing {
    /// Records of a cluster.
    pub records: u32,
    /// Records in memory at once: filling, closed, or being written.
    pub held: u32,
    pub destage: StripeDestage,
}

/// How packed data is destaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripeDestage {
    pub order: DestageOrder,
    /// Sectors of a stripe of the main set.
    pub stripe_sectors: u64,
    /// A destage write has at most this number of sectors, and begins at a multiple.
    pub run_sectors: u32,
    /// Pages of memory for data that was read and is not yet destaged.
    pub pages: u64,
}

/// Clusters that a destage reads at once.
pub(crate) const FETCHES: usize = 4;
/// Windows that cleaning reads or packs at once.
pub(super) const MOVES: usize = 4;
/// Parts in flight for each request besides its records. A read of both sets in turn waits for room.
const PARTS_PER_REQUEST: u32 = 8;
/// Parts of no request: a flush for space, two flushes of a destage or its anchors, the reuse of a segment,
/// clusters that are read; the reads of cleaning, and its flush or anchors; and three for NVRAM.
const PARTS_OF_OWN: u32 = 7 + FETCHES as u32 + MOVES as u32 + 1;

/// The records that a start finds in a log. A new log has none, and the first sequence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundInLog {
    /// Segments with valid records, the oldest first.
    pub segments: Vec<u32>,
    /// The valid copies, in the order of their sequences; clean ones never are.
    pub extents: Vec<Extent>,
    /// The sequence of the next record: above all that were ever written.
    pub sequence: u64,
}

/// Why nothing more came into a record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SealCause {
    /// Its payload or its table is full.
    Full,
    /// Its first write is old enough.
    Age,
    /// A flush: a client's, or one that makes room in the log.
    Flush,
    /// A write that was to be durable with its reply.
    Fua,
    /// A destage of everything.
    Destage,
    /// The array stops.
    Stop,
    /// The log failed: the record is refused.
    Failed,
}

restripe_array::named! {
    /// Named as `status` and the metrics have them.
    SealCause {
        Full = "full",
        Age = "age",
        Flush = "flush",
        Fua = "fua",
        Destage = "destage",
        Stop = "stop",
        Failed = "failed",
    }
}

/// Counted since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OverlayCounters {
    pub redirected_writes: u64,
    pub reads_of_log: u64,
    pub reads_of_both: u64,
    pub records: u64,
    pub sectors_destaged: u64,
    /// Writes by which they were destaged.
    pub destage_writes: u64,
    /// Clusters that a destage read, and how many of these it had read before.
    pub clusters_read: u64,
    pub clusters_reread: u64,
    pub copies_spoiled: u64,
    pub clean_copies: u64,
    /// How often the log was cleaned, and sectors that were moved for it.
    pub cleanings: u64,
    pub sectors_moved: u64,
    /// Versions of records that were written to NVRAM.
    pub versions: u64,
    /// Records that were packed in memory and sealed, by [`SealCause`].
    pub seals: [u64; SealCause::ALL.len()],
}
