//! The log's space: which segments are free, how much of each is live, when space is short.
//!
//! The log is divided into segments of one size, and a record is within one.
//!
//! | state  | cause                                                       | next   |
//! |--------|-------------------------------------------------------------|--------|
//! | free   | a record finds no room in the open one; the longest free    | open   |
//! | open   | a record finds no room in it                                | closed |
//! | closed | none of it is live, and no record in it is in flight        | free   |
//!
//! The extent map decides what is live. [`LogSpace::mapped`] gets every extent that the map enters, then
//! [`LogSpace::unmapped`] every piece that it replaced. The order matters, since an extent may take its own
//! place again, as another kind. A record is in flight from [`LogSpace::take`] until [`LogSpace::landed`]: so
//! a segment is not free between a write and its mapping. All memory is taken at construction.
//!
//! A segment that is free here may be overwritten at once. Where a crash could still undo the replacement of
//! a piece, `unmapped` has to wait until it cannot.

use super::{Extent, Kind, LOG_SECTORS_MAX};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// The configuration of a log's space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogShape {
    pub segments: u32,
    /// Sectors of a segment.
    pub segment_sectors: u32,
    /// Segments that only [`Purpose::Cleaning`] may open: at least one, or cleaning could find no space.
    pub reserve: u32,
    /// With fewer free segments, data should be destaged, or live data moved together.
    pub reclaim_below: u32,
    /// With fewer free segments, clean copies should be dropped.
    pub drop_below: u32,
}

impl LogShape {
    pub fn sectors(&self) -> u64 {
        u64::from(self.segments) * u64::from(self.segment_sectors)
    }
}

/// The purpose of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A client's write, or a clean copy.
    Use,
    /// Live data of a segment moves, so that the segment becomes free.
    Cleaning,
}

/// The measures that short space requires. Each includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Pressure {
    None,
    DropClean,
    Reclaim,
    /// Beyond the rest of the open segment only cleaning appends.
    Refuse,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Open,
    Closed,
}

#[derive(Clone, Copy)]
struct Segment {
    state: State,
    /// Sectors by kind.
    live: [u32; Kind::ALL.len()],
    /// Records in flight.
    under_way: u32,
    /// The number of segments that were opened before it.
    age: u64,
}

const FREE: Segment = Segment {
    state: State::Free,
    live: [0; Kind::ALL.len()],
    under_way: 0,
    age: 0,
};

impl Segment {
    /// Sectors that have to be moved or destaged. Clean ones need not.
    fn copy_sectors(&self) -> u32 {
        self.live[Kind::Instead as usize] + self.live[Kind::Also as usize]
    }

    fn is_dead(&self) -> bool {
        self.under_way == 0 && self.live == [0; Kind::ALL.len()]
    }
}

pub struct LogSpace {
    shape: LogShape,
    segments: Vec<Segment>,
    /// The longest free first.
    free: VecDeque<u32>,
    /// The open segment, and its sectors that are taken.
    open: Option<(u32, u32)>,
    opened: u64,
}

impl LogSpace {
    /// A log in which records were found in some segments, the oldest first: none in a new log. Each of these
    /// counts as having a record in flight, until it [landed](LogSpace::landed) with all live data mapped.
    ///
    /// # Panics
    /// With an invalid shape, or a segment that it does not have or that was found twice.
    pub fn new(shape: LogShape, found: &[u32]) -> LogSpace {
        let ordered = [1, shape.reserve, shape.reclaim_below, shape.drop_below];
        assert!(
            ordered.is_sorted() && shape.drop_below <= shape.segments && shape.segment_sectors > 0,
            "the thresholds are in order, and the log is larger: {shape:?}"
        );
        assert!(shape.sectors() <= LOG_SECTORS_MAX, "it can be addressed");
        let mut segments = vec![FREE; shape.segments as usize];
        for (segment, age) in found.iter().zip(0..) {
            let segment = &mut segments[*segment as usize];
            assert_eq!(segment.state, State::Free, "a segment is found once");
            *segment = Segment {
                state: State::Closed,
                under_way: 1,
                age,
                ..FREE
            };
        }
        let is_free = |segment: &u32| segments[*segment as usize].state == State::Free;
        let mut free = VecDeque::with_capacity(segments.len());
        free.extend((0..shape.segments).filter(is_free));
        LogSpace {
            shape,
            free,
            open: None,
            opened: found.len() as u64,
            segments,
        }
    }

    pub fn sectors(&self) -> u64 {
        self.shape.sectors()
    }

    pub(crate) fn free_segments(&self) -> u32 {
        self.free.len() as u32 // no more than segments
    }

    /// The sectors of the log that belong to a segment.
    pub(crate) fn segment_range(&self, segment: u32) -> core::ops::Range<u64> {
        let sectors = u64::from(self.shape.segment_sectors);
        let start = u64::from(segment) * sectors;
        start..start + sectors
    }

    pub(crate) fn pressure(&self) -> Pressure {
        let free = self.free_segments();
        if free <= self.shape.reserve {
            Pressure::Refuse
        } else if free < self.shape.reclaim_below {
            Pressure::Reclaim
        } else if free < self.shape.drop_below {
            Pressure::DropClean
        } else {
            Pressure::None
        }
    }

    /// The segments with data that has to be moved or destaged, the oldest first.
    pub(crate) fn to_copy(&self) -> impl Iterator<Item = u32> + use<> {
        let each = (0..).zip(&self.segments);
        let mut found: Vec<(u64, u32)> = each
            .filter(|(_, segment)| segment.copy_sectors() > 0)
            .map(|(index, segment)| (segment.age, index))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, index)| index)
    }

    /// The closed segments with nothing in flight, the oldest first, up to the first other one.
    pub(crate) fn oldest_closed(&self) -> impl Iterator<Item = u32> + use<> {
        let each = (0..).zip(&self.segments);
        let mut used: Vec<(u64, u32, bool)> = each
            .filter(|(_, segment)| segment.state != State::Free)
            .map(|(index, segment)| {
                let closed = segment.state == State::Closed && segment.under_way == 0;
                (segment.age, index, closed)
            })
            .collect();
        used.sort_unstable();
        let closed = used.into_iter().take_while(|(_, _, closed)| *closed);
        closed.map(|(_, index, _)| index)
    }

    /// Whether cleaning has opened segments that were reserved for it.
    pub(crate) fn in_reserve(&self) -> bool {
        self.free_segments() < self.shape.reserve
    }

    /// Sectors that are not taken yet.
    pub fn room(&self) -> u64 {
        let most = self.shape.segment_sectors;
        let open = self.open.map_or(0, |(_, taken)| most - taken);
        u64::from(self.free_segments()) * u64::from(most) + u64::from(open)
    }

    pub fn shape(&self) -> &LogShape {
        &self.shape
    }

    /// How often segments have been opened.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// Takes sectors for the log's next record. Returns the first one. `None`: space must be freed first.
    ///
    /// # Panics
    /// For a record that is empty or longer than a segment.
    pub fn take(&mut self, sectors: u32, purpose: Purpose) -> Option<u64> {
        let most = self.shape.segment_sectors;
        assert!(
            (1..=most).contains(&sectors),
            "a record is within a segment"
        );
        let fits = |open: &(u32, u32)| most - open.1 >= sectors;
        let (segment, taken) = match self.open.filter(fits) {
            Some(open) => open,
            None => (self.open_next(purpose)?, 0),
        };
        self.open = Some((segment, taken + sectors));
        self.segments[segment as usize].under_way += 1;
        Some(self.segment_range(segment).start + u64::from(taken))
    }

    /// Returns sectors that the last record does not need.
    ///
    /// # Panics
    /// If no segment is open.
    pub fn give_back(&mut self, sectors: u32) {
        let (_, taken) = self.open.as_mut().expect("a record took room");
        *taken -= sectors;
    }

    /// The record that begins there is mapped, or was given up: it is no longer in flight.
    pub fn landed(&mut self, at: u64) {
        let segment = self.segment_of(at);
        self.segments[segment as usize].under_way -= 1;
        self.free_if_dead(segment);
    }

    /// The map enters this extent.
    ///
    /// # Panics
    /// If its space was not taken.
    pub fn mapped(&mut self, extent: &Extent) {
        let free = |segment: u32| self.segments[segment as usize].state == State::Free;
        assert!(!self.segments_of(extent).any(free), "space is taken first");
        self.by_segment(extent, |live, sectors| *live += sectors);
    }

    /// The map has let this piece go.
    pub fn unmapped(&mut self, piece: &Extent) {
        self.by_segment(piece, |live, sectors| *live -= sectors);
    }

    /// The oldest segment with a live clean copy.
    pub(crate) fn oldest_clean(&self) -> Option<u32> {
        let clean = |(_, segment): &(u32, &Segment)| segment.live[Kind::Clean as usize] > 0;
        let segments = (0..).zip(&self.segments).filter(clean);
        segments
            .min_by_key(|(_, segment)| segment.age)
            .map(|(index, _)| index)
    }

    fn open_next(&mut self, purpose: Purpose) -> Option<u32> {
        let kept = match purpose {
            Purpose::Use => self.shape.reserve,
            Purpose::Cleaning => 0,
        };
        if self.free_segments() <= kept {
            return None;
        }
        let next = self.free.pop_front()?;
        self.segments[next as usize] = Segment {
            state: State::Open,
            age: self.opened,
            ..FREE
        };
        self.opened += 1;
        if let Some((full, _)) = self.open.take() {
            self.segments[full as usize].state = State::Closed;
            self.free_if_dead(full);
        }
        Some(next)
    }

    /// The segment of a sector of the log.
    pub fn segment_of(&self, at: u64) -> u32 {
        let segment = at / u64::from(self.shape.segment_sectors);
        u32::try_from(segment).expect("the log has this sector")
    }

    fn segments_of(&self, extent: &Extent) -> core::ops::RangeInclusive<u32> {
        self.segment_of(extent.at)..=self.segment_of(extent.log_end() - 1)
    }

    /// Changes the live sectors of an extent's kind in each of its segments: several, if records were joined.
    fn by_segment(&mut self, extent: &Extent, change: impl Fn(&mut u32, u32)) {
        for segment in self.segments_of(extent) {
            let part = extent.within_log(self.segment_range(segment));
            let sectors = part.map_or(0, |part| part.sectors);
            let live = &mut self.segments[segment as usize].live;
            change(&mut live[extent.kind as usize], sectors);
            self.free_if_dead(segment);
        }
    }

    fn free_if_dead(&mut self, segment: u32) {
        let dead = &mut self.segments[segment as usize];
        if dead.state == State::Closed && dead.is_dead() {
            dead.state = State::Free;
            self.free.push_back(segment);
        }
    }

    #[cfg(test)]
    pub(super) fn live_in(&self, segment: u32) -> [u32; 3] {
        self.segments[segment as usize].live
    }

    #[cfg(test)]
    pub(super) fn is_closed(&self, segment: u32) -> bool {
        self.segments[segment as usize].state == State::Closed
    }

    /// Checks the invariants of the space.
    #[cfg(test)]
    pub(super) fn check(&self) {
        for (segment, number) in self.segments.iter().zip(0..) {
            let listed = self.free.iter().filter(|free| **free == number).count();
            let is_free = segment.state == State::Free;
            assert_eq!(listed, usize::from(is_free), "segment {number}");
            assert!(!is_free || segment.is_dead(), "segment {number} is free");
            let open = self.open.is_some_and(|(open, _)| open == number);
            assert_eq!(segment.state == State::Open, open, "segment {number}");
            let waits = segment.state == State::Closed && segment.is_dead();
            assert!(!waits, "segment {number} is dead and not free");
        }
    }
}
