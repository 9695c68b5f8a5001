//! An extent as the map keeps it: 24 bytes, ordered by home.

use super::nodes::{Item, Nodes};
use super::tree::Tree;
use super::{EXTENT_SECTORS_MAX, Extent, HOME_SECTORS_MAX, Kind, LOG_SECTORS_MAX};

/// Bits of a length; home takes the others of its word.
const LENGTH_BITS: u32 = EXTENT_SECTORS_MAX.trailing_zeros();
const LENGTH_MASK: u64 = EXTENT_SECTORS_MAX as u64 - 1;
const KIND_BITS: u32 = 2;
const KIND_MASK: u64 = (1 << KIND_BITS) - 1;

const _: () = assert!(LENGTH_BITS + HOME_SECTORS_MAX.trailing_zeros() == u64::BITS);
const _: () = assert!(KIND_BITS + LOG_SECTORS_MAX.trailing_zeros() == u64::BITS);
const _: () = assert!(size_of::<Entry>() == 24);

#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// Home, then the length less one.
    place: u64,
    /// The sector in the log, then the kind.
    log: u64,
    sequence: u64,
}

impl Entry {
    pub(super) fn home(&self) -> u64 {
        self.place >> LENGTH_BITS
    }

    pub(super) fn end(&self) -> u64 {
        self.home() + (self.place & LENGTH_MASK) + 1
    }

    pub(super) fn extent(&self) -> Extent {
        Extent {
            home: self.home(),
            sectors: (self.place & LENGTH_MASK) as u32 + 1, // 20 bits
            at: self.log >> KIND_BITS,
            sequence: self.sequence,
            kind: match self.log & KIND_MASK {
                0 => Kind::Instead,
                1 => Kind::Also,
                _ => Kind::Clean,
            },
        }
    }
}

/// Of an extent that the map can address: whoever lets it in has looked.
impl From<Extent> for Entry {
    fn from(extent: Extent) -> Entry {
        debug_assert!(extent.is_addressable(), "{extent:?}");
        Entry {
            place: extent.home << LENGTH_BITS | u64::from(extent.sectors - 1),
            log: extent.at << KIND_BITS | extent.kind as u64,
            sequence: extent.sequence,
        }
    }
}

impl Item for Entry {
    const NONE: Entry = Entry {
        place: 0,
        log: 0,
        sequence: 0,
    };

    fn first(&self) -> u64 {
        self.home()
    }

    fn nodes(tree: &mut Tree) -> &mut Nodes<Entry> {
        &mut tree.leaves
    }
}
