//! The engine's units: identifiers and time, one type each.
//!
//! Lengths and addresses are plain `u64` whose name carries the unit: `*_sectors`, `*_bytes`, `lba` (a sector of the
//! array), `at` (a sector of a member). A sector is always 512 bytes, whatever the logical block of the members.

use core::fmt;

/// Bytes in a sector: the unit of every address in the engine and in the on-disk format.
pub const SECTOR_BYTES: u64 = 512;

/// Bytes in a metadata page: superblock pieces, map pages and log headers own whole pages.
pub const PAGE_BYTES: usize = 4096;

/// Sectors in a metadata page.
pub const PAGE_SECTORS: u64 = PAGE_BYTES as u64 / SECTOR_BYTES;

/// Most cells of a row.
pub const CELLS_MAX: usize = 32;

/// Most slots (positions in a layout) of one array. Where a row has a cell in every slot, [`CELLS_MAX`] bounds them.
pub const SLOTS_MAX: usize = 64;

/// A moment, in nanoseconds since the shell's own origin. Never decreases.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    pub const ZERO: Nanos = Nanos(0);

    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    pub const fn from_secs(s: u64) -> Nanos {
        Nanos(s * 1_000_000_000)
    }

    /// The time from `earlier` to here; zero if `earlier` is later.
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    pub const fn after(self, delay: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(delay.0))
    }
}

/// A device, as the shell numbers the ones it has opened. Never reused within an engine's life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Member(pub u16);

/// A position in a layout. Which device stands in it is the placement table's business.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Slot(pub u16);

/// The number of a row: the chunks bound by one code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Row(pub u64);

/// A universally unique identifier, of an array or a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    pub const NIL: Uuid = Uuid([0; 16]);
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
