//! Anchors: which records of each segment are obsolete, or cut off, and the shape of the log.
//!
//! An anchor describes [`SEGMENTS_PER_PAGE`] segments, under a version. It has two places, and a version is
//! written to the place that does not have the version before. So a torn write leaves the older version.
//!
//! | segment | cause                                                       | next   |
//! |---------|-------------------------------------------------------------|--------|
//! | open    | [`AnchorTable::close`]: nothing more will be written        | closed |
//! | closed  | [`AnchorTable::make_obsolete`] of all of it                 | open   |
//! | closed  | [`AnchorTable::begin`], if nothing in it is valid           | open   |
//!
//! In an open segment the records from `obsolete_below` on may be valid. Only an open segment is written.
//! Records behind the `end` of a closed segment must not become valid again when it opens; so opening
//! declares all below D obsolete (see the [format](super)), not only the requested ones.

use super::{LogLayout, LogOwner, check_found, check_owner, check_zero};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use restripe_array::meta::bytes::{get_u32, get_u64, put_u32, put_u64};
use restripe_array::meta::rules::check_counter;
use restripe_array::meta::{MetaError, field, header};
use restripe_array::{PAGE_BYTES, Page};

pub const MAGIC: [u8; 8] = *b"RstrpAnc";

/// Bytes in front of the segments' entries.
pub const HEADER_BYTES: usize = 128;
pub const ENTRY_BYTES: usize = 16;
/// The number of segments that one anchor describes.
pub const SEGMENTS_PER_PAGE: usize = (PAGE_BYTES - HEADER_BYTES) / ENTRY_BYTES;

restripe_array::offsets! {
    /// Byte offsets in an anchor, and in an entry of it.
    pub mod at {
        pub const MAGIC: usize = 0;
        pub const VERSION: usize = 8;
        pub const CRC: usize = 12;
        pub const ARRAY: usize = 16;
        pub const EPOCH: usize = super::super::EPOCH;
        pub const PAGE_VERSION: usize = 40;
        pub const DURABLE: usize = 48;
        pub const INDEX: usize = 56;
        pub const COUNT: usize = 60;
        pub const SEGMENT_SECTORS: usize = 64;
        pub const SEGMENTS: usize = 68;
        pub const RESERVED: usize = 72;
        pub const ENTRIES: usize = super::HEADER_BYTES;

        pub const ENTRY_OBSOLETE_BELOW: usize = 0;
        pub const ENTRY_END: usize = 8;
    }
}

/// Why a log cannot be opened: no place of an anchor holds one that is sound and of this log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnchorError {
    pub index: u32,
    /// The more specific cause of the two places. `None`: neither could be read.
    pub cause: Option<MetaError>,
}

impl fmt::Display for AnchorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "anchor {} of the overlay's log: ", self.index)?;
        match self.cause {
            Some(cause) => cause.fmt(f),
            None => f.write_str("neither of its homes can be read"),
        }
    }
}

/// Which records of a segment are valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Entry {
    obsolete_below: u64,
    /// Behind its last record, and not below `obsolete_below`; 0 in an open segment.
    end: u64,
}

impl Entry {
    fn is_open(&self) -> bool {
        self.end == 0
    }

    fn is_closed_and_obsolete(&self) -> bool {
        !self.is_open() && self.end == self.obsolete_below
    }
}

/// One anchor that has been checked.
struct Anchor {
    version: u64,
    durable: u64,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Default)]
struct PageState {
    /// The newest that was written, or is being written.
    version: u64,
    changed: bool,
    under_way: bool,
}

/// All anchors of a log, as they should be.
pub struct AnchorTable {
    owner: LogOwner,
    layout: LogLayout,
    /// All records below this sequence are flushed, or never valid.
    durable: u64,
    /// By segment.
    entries: Vec<Entry>,
    pages: Vec<PageState>,
    /// Anchors of which one place could not be read.
    doubted: Vec<u32>,
    /// Records may be appended. Until then D may not be above all records that are to be cut off.
    begun: bool,
}

impl AnchorTable {
    /// The anchors of a new log, whose first record has sequence 1. It exists once all anchors are durable.
    pub fn new(owner: LogOwner, layout: LogLayout) -> AnchorTable {
        let page = PageState {
            changed: true,
            ..PageState::default()
        };
        AnchorTable {
            owner,
            layout,
            durable: 1,
            entries: vec![Entry::default(); layout.segments() as usize],
            pages: vec![page; layout.anchors() as usize],
            doubted: Vec::new(),
            begun: true,
        }
    }

    /// The anchors of the log set. `homes` has the two places of each anchor in turn: even versions, odd
    /// versions; `None` for one that cannot be read.
    ///
    /// # Panics
    /// If there are not two places for each.
    pub fn load(
        owner: LogOwner,
        layout: LogLayout,
        homes: &[Option<Page>],
    ) -> Result<AnchorTable, AnchorError> {
        assert_eq!(homes.len(), 2 * layout.anchors() as usize, "all homes");
        let mut table = AnchorTable {
            begun: false,
            ..AnchorTable::new(owner, layout)
        };
        let (pairs, _) = homes.as_chunks::<2>();
        for (homes, index) in pairs.iter().zip(0..) {
            let anchor = newest(&owner, &layout, index, homes)?;
            if homes.contains(&None) {
                table.doubted.push(index);
            }
            table.durable = table.durable.max(anchor.durable);
            table.pages[index as usize] = PageState {
                version: anchor.version,
                ..PageState::default()
            };
            let segments = segments_of(&layout, index);
            table.entries[segments].copy_from_slice(&anchor.entries);
        }
        Ok(table)
    }

    pub fn owner(&self) -> &LogOwner {
        &self.owner
    }

    pub fn layout(&self) -> &LogLayout {
        &self.layout
    }

    /// Anchors of which one place could not be read: it may have had the newer version.
    pub fn doubted(&self) -> &[u32] {
        &self.doubted
    }

    /// All records below this sequence are flushed, or never valid.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Whether a record with this sequence is valid in this segment. A record that is not valid there must
    /// not be written to the segment.
    pub fn counts(&self, segment: u32, sequence: u64) -> bool {
        let entry = &self.entries[segment as usize];
        sequence >= entry.obsolete_below && (entry.is_open() || sequence < entry.end)
    }

    /// Behind the last record of a closed segment.
    pub fn end(&self, segment: u32) -> Option<u64> {
        let entry = &self.entries[segment as usize];
        (!entry.is_open()).then_some(entry.end)
    }

    /// Whether no record of a segment is valid, whatever is stored there.
    pub(crate) fn is_obsolete(&self, segment: u32) -> bool {
        self.entries[segment as usize].is_closed_and_obsolete()
    }

    /// All records below this sequence are flushed. The next anchor that is written records it.
    pub fn flushed(&mut self, below: u64) {
        self.durable = self.durable.max(below);
    }

    /// The segment's records below a sequence are obsolete: they are destaged, or replaced, and the
    /// replacement is durable. A closed segment without valid records opens: it can be written once this is
    /// durable.
    ///
    /// # Panics
    /// If not all below the sequence is [flushed](AnchorTable::flushed), or a log that was found has not
    /// [begun](AnchorTable::begin).
    pub(crate) fn make_obsolete(&mut self, segment: u32, below: u64) {
        assert!(self.begun, "records behind the gap are cut off first");
        assert!(below <= self.durable, "obsolete records were flushed");
        let old = self.entries[segment as usize];
        let new = match !old.is_open() && below >= old.end {
            true => self.reopened(),
            false => Entry {
                obsolete_below: old.obsolete_below.max(below),
                ..old
            },
        };
        self.set(segment, new);
    }

    /// The records below a sequence are obsolete, in every segment: as [`AnchorTable::make_obsolete`].
    pub(crate) fn make_all_obsolete(&mut self, below: u64) {
        for segment in 0..self.layout.segments() {
            self.make_obsolete(segment, below);
        }
    }

    /// Nothing more is written to a segment, whose last record is the one before `end`. The call is optional,
    /// but of a closed segment a start can detect that records are missing from its end.
    ///
    /// # Panics
    /// If not all below the end is [flushed](AnchorTable::flushed).
    pub fn close(&mut self, segment: u32, end: u64) {
        assert!(end <= self.durable, "a closed segment was flushed");
        let obsolete_below = self.entries[segment as usize].obsolete_below;
        let new = if end > obsolete_below {
            Entry {
                obsolete_below,
                end,
            }
        } else {
            self.shut()
        };
        self.set(segment, new);
    }

    /// No record of a segment is valid, but it must not be written yet.
    pub(super) fn cut(&mut self, segment: u32) {
        self.set(segment, self.shut());
    }

    /// Records are appended from this sequence on, once this is durable: the last step of a start. No record
    /// in the log set may have this sequence or a higher one.
    ///
    /// # Panics
    /// If an earlier change is not yet [durable](AnchorTable::written).
    pub fn begin(&mut self, next: u64) {
        let waiting = |page: &PageState| page.changed || page.under_way;
        assert!(
            !self.pages.iter().any(waiting),
            "what is cut off is durable"
        );
        self.begun = true;
        self.durable = self.durable.max(next);
        for segment in 0..self.layout.segments() {
            if self.is_obsolete(segment) {
                self.set(segment, self.reopened());
            }
        }
        self.pages[0].changed = true;
    }

    fn reopened(&self) -> Entry {
        Entry {
            obsolete_below: self.durable,
            end: 0,
        }
    }

    fn shut(&self) -> Entry {
        Entry {
            obsolete_below: self.durable,
            end: self.durable,
        }
    }

    fn set(&mut self, segment: u32, entry: Entry) {
        let place = &mut self.entries[segment as usize];
        if *place != entry {
            *place = entry;
            self.pages[segment as usize / SEGMENTS_PER_PAGE].changed = true;
        }
    }

    /// An anchor that must be written, and can be.
    pub fn changed(&self) -> Option<u32> {
        let due = |(page, _): &(&PageState, u32)| page.changed && !page.under_way;
        let (_, index) = self.pages.iter().zip(0..).find(due)?;
        Some(index)
    }

    /// Writes an anchor into a page, and returns its sector of the log set. Until it is
    /// [durable](AnchorTable::written), the same anchor is not written again: the other place has the version
    /// before. If it cannot be made durable, the log is at an end.
    ///
    /// # Panics
    /// If its write is in flight already.
    pub fn encode(&mut self, index: u32, page: &mut Page) -> u64 {
        let state = &mut self.pages[index as usize];
        assert!(!state.under_way, "one write of an anchor at a time");
        *state = PageState {
            version: state.version + 1,
            changed: false,
            under_way: true,
        };
        let version = state.version;
        let bytes = &mut page[..];
        header::begin(bytes, MAGIC, self.owner.array);
        put_u64(bytes, at::EPOCH, self.owner.epoch);
        put_u64(bytes, at::PAGE_VERSION, version);
        put_u64(bytes, at::DURABLE, self.durable);
        put_u32(bytes, at::INDEX, index);
        put_u32(bytes, at::COUNT, self.layout.anchors());
        put_u32(bytes, at::SEGMENT_SECTORS, self.layout.segment_sectors());
        put_u32(bytes, at::SEGMENTS, self.layout.segments());
        let (places, _) = bytes[at::ENTRIES..].as_chunks_mut::<ENTRY_BYTES>();
        let entries = &self.entries[segments_of(&self.layout, index)];
        for (entry, place) in entries.iter().zip(places) {
            put_u64(place, at::ENTRY_OBSOLETE_BELOW, entry.obsolete_below);
            put_u64(place, at::ENTRY_END, entry.end);
        }
        header::seal(bytes);
        self.layout.anchor_home(index, version)
    }

    /// The write of an anchor is durable.
    pub fn written(&mut self, index: u32) {
        let state = &mut self.pages[index as usize];
        assert!(state.under_way, "a write of it was in flight");
        state.under_way = false;
    }
}

/// The segments that an anchor describes.
fn segments_of(layout: &LogLayout, index: u32) -> core::ops::Range<usize> {
    let first = index as usize * SEGMENTS_PER_PAGE;
    first..(first + SEGMENTS_PER_PAGE).min(layout.segments() as usize)
}

/// The valid one of the two places of an anchor; the more specific error if neither is valid.
fn newest(
    owner: &LogOwner,
    layout: &LogLayout,
    index: u32,
    homes: &[Option<Page>; 2],
) -> Result<Anchor, AnchorError> {
    let [even, odd] = [0, 1].map(|parity| {
        let page = homes[parity as usize].as_ref()?;
        Some(decode(owner, layout, index, parity, page))
    });
    let cause = match (even, odd) {
        (Some(Ok(even)), Some(Ok(odd))) if odd.version > even.version => return Ok(odd),
        (Some(Ok(anchor)), _) | (_, Some(Ok(anchor))) => return Ok(anchor),
        (Some(Err(MetaError::NotFound)) | None, Some(Err(odd))) => Some(odd),
        (Some(Err(even)), _) => Some(even),
        (None, None) => None,
    };
    Err(AnchorError { index, cause })
}

/// Whether a place of an anchor, by its number among the places of all, holds one.
pub(crate) fn is_sound(owner: &LogOwner, layout: &LogLayout, home: usize, page: &Page) -> bool {
    let (index, parity) = (home as u32 / 2, home as u64 % 2);
    decode(owner, layout, index, parity, page).is_ok()
}

/// Reads the anchor at the place for versions of this parity.
fn decode(
    owner: &LogOwner,
    layout: &LogLayout,
    index: u32,
    parity: u64,
    page: &Page,
) -> Result<Anchor, MetaError> {
    let bytes = &page[..];
    check_owner(bytes, MAGIC, owner)?;
    check_shape(bytes, layout)?;
    let version = get_u64(bytes, at::PAGE_VERSION);
    if get_u32(bytes, at::INDEX) != index || version % 2 != parity {
        return Err(MetaError::Misplaced);
    }
    check_found("anchor version", version)?;
    check_zero("anchor reserved", &bytes[at::RESERVED..at::ENTRIES])?;
    let durable = get_u64(bytes, at::DURABLE);
    check_counter("anchor durable", durable)?;
    let (places, _) = bytes[at::ENTRIES..].as_chunks::<ENTRY_BYTES>();
    let (used, unused) = places.split_at(segments_of(layout, index).len());
    check_zero("anchor unused entries", unused.as_flattened())?;
    let entries: Result<_, _> = used.iter().map(|place| entry(place, durable)).collect();
    Ok(Anchor {
        version,
        durable,
        entries: entries?,
    })
}

fn check_shape(bytes: &[u8], layout: &LogLayout) -> Result<(), MetaError> {
    let shape = [
        (
            "segment sectors",
            at::SEGMENT_SECTORS,
            layout.segment_sectors(),
        ),
        ("segments", at::SEGMENTS, layout.segments()),
        ("anchors", at::COUNT, layout.anchors()),
    ];
    for (name, place, expected) in shape {
        let found = get_u32(bytes, place);
        if found != expected {
            return field(name, u64::from(found));
        }
    }
    Ok(())
}

fn entry(place: &[u8], durable: u64) -> Result<Entry, MetaError> {
    let entry = Entry {
        obsolete_below: get_u64(place, at::ENTRY_OBSOLETE_BELOW),
        end: get_u64(place, at::ENTRY_END),
    };
    if entry.obsolete_below > durable {
        return field("segment void below", entry.obsolete_below);
    }
    if entry.end > durable || !entry.is_open() && entry.end < entry.obsolete_below {
        return field("segment end", entry.end);
    }
    Ok(entry)
}
