//! The overlay: which sectors of the main set have a copy in the log, what happens to each request, and what
//! is destaged when. It knows no slices or devices: it requests actions ([`Effect`]).
//!
//! | floor, from the lowest | owns |
//! |---|---|
//! | `log` | the extent map ([`ExtentMap`]; IDO's D_Map), the log's space ([`LogSpace`]), places still needed |
//! | `requests` | requests of clients, and parts of the work in flight |
//! | `records` | records that are being written into the log, and to primary copies (GRAID, ERAID); flushes of the log |
//! | `nvram::slots` | which records NVRAM has, or lacks |
//! | `pack` | records that are collected in memory (ECW in RERAID) |
//! | `nvram::rounds` | flushes of clients that NVRAM makes durable |
//! | `clean_copies` | copies that are read from the main set into the log |
//! | `destage` | data that is being written to the main set |
//! | `clean` | live data that is being moved to the log's end |
//! | `machine` | [`Overlay`]: requests that wait, and the order in which the floors continue |
//!
//! Each floor is a type that owns the floor below it, so it can call down only. It reports upward by values
//! that `machine` reads. [`format`] has the log's pages, and finds which records are valid after a crash.

mod clean;
mod clean_copies;
mod destage;
mod effect;
pub mod format;
mod limits;
mod log;
mod machine;
#[cfg(test)]
mod machine_tests;
mod map;
mod nvram;
mod pack;
mod records;
mod requests;
mod space;
#[cfg(test)]
mod space_tests;
#[cfg(test)]
mod tests;
mod tree;

pub use clean::{Cleans, Oldest};
pub use destage::DestageStage;
pub use effect::{CopyTag, Effect, NvramVersion, PackTag, PartTag, Site};
pub(crate) use limits::FETCHES;
pub use limits::{FoundInLog, OverlayCounters, OverlayLimits, Packing, SealCause, StripeDestage};
pub use machine::Overlay;
pub use map::{ExtentMap, Extents, Pieces};
pub use pack::PackState;
pub use space::{LogShape, LogSpace, Pressure, Purpose};

use core::fmt;
use core::ops::Range;

/// The number of sectors of a main set that a map can address: 8 PiB.
pub const HOME_SECTORS_MAX: u64 = 1 << 44;
/// The number of sectors of a log that a map can address.
pub const LOG_SECTORS_MAX: u64 = 1 << 62;
/// Sectors that the primary copies have, and the log does not, are mapped to places beyond any log: from here
/// on, by their place in the main set.
pub(crate) const UNLOGGED: u64 = LOG_SECTORS_MAX / 2;

/// Whether a sector is one of the log.
pub(crate) fn is_logged(at: u64) -> bool {
    at < UNLOGGED
}
/// The longest extent in sectors: 512 MiB. Sectors that continue a longest extent are an extent of their own.
pub const EXTENT_SECTORS_MAX: u32 = 1 << 20;

/// How a copy in the log relates to the main set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Kind {
    /// The only current copy: the main set's is stale.
    Instead,
    /// The main set's primary copies are current: this copy takes the place of the secondary ones.
    Also,
    /// The main set is current: this copy may be dropped at any time.
    Clean,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Instead, Kind::Also, Kind::Clean];
}

/// Sectors of the main set with a copy in the log, which is contiguous there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Extent {
    /// The first sector in the main set.
    pub home: u64,
    /// The number of sectors: 1 to [`EXTENT_SECTORS_MAX`].
    pub sectors: u32,
    /// The first sector in the log.
    pub at: u64,
    /// The sequence of the log record that has the copy: a later record has a higher one.
    pub sequence: u64,
    pub kind: Kind,
}

impl Extent {
    /// The sector behind the last one in the main set.
    pub fn end(&self) -> u64 {
        self.home + u64::from(self.sectors)
    }

    /// The sector behind the last one in the log.
    pub fn log_end(&self) -> u64 {
        self.at + u64::from(self.sectors)
    }

    /// Its part in a range of the main set.
    pub fn within(&self, home: Range<u64>) -> Option<Extent> {
        self.part(self.home, home)
    }

    /// Its part in a range of the log.
    pub(crate) fn within_log(&self, log: Range<u64>) -> Option<Extent> {
        self.part(self.at, log)
    }

    /// The part in a range of an address space in which the extent begins at `base`.
    fn part(&self, base: u64, range: Range<u64>) -> Option<Extent> {
        let end = base + u64::from(self.sectors);
        let (from, to) = (range.start.max(base), range.end.min(end));
        (from < to).then(|| Extent {
            home: self.home + (from - base),
            at: self.at + (from - base),
            sectors: (to - from) as u32, // no more than it has
            ..*self
        })
    }

    /// Whether `next` continues this extent, in the main set and in the log, as a copy of the same record and
    /// kind, and both fit one extent. Only then are they joined: a piece must never leave the map by the
    /// sequence of an older one.
    fn joins(&self, next: &Extent) -> bool {
        (self.end(), self.log_end()) == (next.home, next.at)
            && (self.sequence, self.kind) == (next.sequence, next.kind)
            && self.sectors + next.sectors <= EXTENT_SECTORS_MAX
    }

    fn is_addressable(&self) -> bool {
        let fits = |first: u64, most: u64| {
            first < most && most - first >= u64::from(self.sectors) // no sum that could overflow
        };
        (1..=EXTENT_SECTORS_MAX).contains(&self.sectors)
            && fits(self.home, HOME_SECTORS_MAX)
            && fits(self.at, LOG_SECTORS_MAX)
    }
}

/// A piece of the main set in an answer of [`ExtentMap::lookup`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece {
    /// The log has a copy.
    Mapped(Extent),
    /// Only the main set has these sectors.
    Hole { home: u64, sectors: u64 },
}

/// The mapped amount of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Total {
    pub extents: u64,
    pub sectors: u64,
}

/// Why a map was left unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// More extents would be needed than its capacity.
    NoRoom { capacity: u32 },
    /// The extent is empty, or beyond [`HOME_SECTORS_MAX`], [`LOG_SECTORS_MAX`] or [`EXTENT_SECTORS_MAX`].
    Unaddressable(Extent),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoRoom { capacity } => write!(f, "the map is full: {capacity} extents"),
            Refusal::Unaddressable(extent) => {
                let (home, sectors, at) = (extent.home, extent.sectors, extent.at);
                write!(
                    f,
                    "no such extent: {sectors} sectors of {home}, at {at} of the log"
                )
            }
        }
    }
}
