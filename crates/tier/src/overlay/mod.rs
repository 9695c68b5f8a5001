//! The overlay: which sectors of the main set have a copy in the log, what becomes of each request, and what is
//! destaged when. It knows neither slices nor devices: it asks for actions ([`Effect`]) and gets their results.
//!
//! | floor, from the lowest | owns |
//! |---|---|
//! | `log` | the extent map ([`ExtentMap`]; IDO's D_Map), the log's space ([`LogSpace`]), places still needed |
//! | `requests` | requests of clients, and parts of the work in flight |
//! | `records` | records on their way into the log, and to primary copies (GRAID, ERAID); flushes of the log |
//! | `nvram::slots` | which records NVRAM has, or lacks |
//! | `pack` | records that are collected in memory (ECW in RERAID) |
//! | `nvram::rounds` | flushes of clients that NVRAM makes durable |
//! | `clean_copies` | copies that are read from the main set into the log |
//! | `destage` | what is being written to the main set |
//! | `clean` | live data that is being moved to the log's end |
//! | `machine` | [`Overlay`]: requests that wait, and the order in which the floors go on |
//!
//! Each floor is a type that owns the one beneath, so it can call down only; it reports upward by values that
//! `machine` asks for. [`format`] has the log's pages, and finds which records are valid after a crash.

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

/// Sectors of home that a map can tell apart: 8 PiB.
pub const HOME_SECTORS_MAX: u64 = 1 << 44;
/// Sectors of a log that a map can tell apart.
pub const LOG_SECTORS_MAX: u64 = 1 << 62;
/// What first copies at home have, and the log does not, is mapped to places that no log has: from here on,
/// by its home.
pub(crate) const UNLOGGED: u64 = LOG_SECTORS_MAX / 2;

/// Whether a sector is one of the log.
pub(crate) fn is_logged(at: u64) -> bool {
    at < UNLOGGED
}
/// Sectors of one extent at most: 512 MiB. What continues a longest extent is an extent of its own.
pub const EXTENT_SECTORS_MAX: u32 = 1 << 20;

/// What a copy in the log stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Kind {
    /// The only current copy: home is old.
    Instead,
    /// Home is current on the members that are awake; this copy stands in for those that are not.
    Also,
    /// Home is current: this copy may be dropped at any time.
    Clean,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Instead, Kind::Also, Kind::Clean];
}

/// Home sectors with a copy in the log, which lies there in one piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Extent {
    /// The first sector at home.
    pub home: u64,
    /// Sectors: 1 to [`EXTENT_SECTORS_MAX`].
    pub sectors: u32,
    /// The first sector in the log.
    pub at: u64,
    /// Of the log record that brought the copy: a later record has a higher one.
    pub sequence: u64,
    pub kind: Kind,
}

impl Extent {
    /// The sector behind the last one at home.
    pub fn end(&self) -> u64 {
        self.home + u64::from(self.sectors)
    }

    /// The sector behind the last one in the log.
    pub fn log_end(&self) -> u64 {
        self.at + u64::from(self.sectors)
    }

    /// Its part whose home lies in a range.
    pub fn within(&self, home: Range<u64>) -> Option<Extent> {
        self.part(self.home, home)
    }

    /// Its part whose copy lies in a range of the log.
    pub(crate) fn within_log(&self, log: Range<u64>) -> Option<Extent> {
        self.part(self.at, log)
    }

    /// The part that lies in a range of an address in which the extent begins at `base`.
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

    /// Whether `next` goes on where this ends, at home and in the log, as a copy of the same record and kind,
    /// and both fit one extent. Only then are they one: a piece must never leave the map by the sequence of
    /// an older one.
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

/// A stretch of home in an answer of [`ExtentMap::lookup`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece {
    /// The log has a copy.
    Mapped(Extent),
    /// Only home has these sectors.
    Hole { home: u64, sectors: u64 },
}

/// How much of a kind is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Total {
    pub extents: u64,
    pub sectors: u64,
}

/// Why a map was left as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// More extents would be needed than its capacity.
    NoRoom { capacity: u32 },
    /// The extent is empty, or goes beyond [`HOME_SECTORS_MAX`], [`LOG_SECTORS_MAX`] or
    /// [`EXTENT_SECTORS_MAX`].
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
