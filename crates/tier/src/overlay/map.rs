//! The extent map: the sectors of the main set that have a copy in the log, and the places of the copies.
//!
//! The memory is bounded at construction, and nothing is allocated afterwards: at most 32 bytes an extent in
//! all, for capacities of 16,384 extents or more. An operation takes logarithmic time for each piece that it
//! meets.
//!
//! Extents never overlap. A new extent is joined with those that it continues: adjacent in the main set and
//! in the log, of the same sequence and kind, and not too long together. An insert takes up to two more
//! extents: the new one, and the end of an extent that it splits. To remove the middle of an extent takes one
//! more. A caller that must not be refused halfway checks [`ExtentMap::room_for`] before it starts.

use super::tree::{Tree, Way};
use super::{Extent, Kind, Piece, Refusal, Total};
use core::ops::Range;

/// The largest number of extents that one insert takes.
const GROWTH_MAX: usize = 2;

pub struct ExtentMap {
    tree: Tree,
    capacity: u32,
    /// By kind.
    totals: [Total; Kind::ALL.len()],
}

impl ExtentMap {
    /// Takes all the memory that this many extents will ever need.
    pub fn new(capacity: u32) -> ExtentMap {
        // A step may have more extents than its result: pieces of an extent that was cut are joined again.
        let entries = capacity as usize + GROWTH_MAX;
        ExtentMap {
            tree: Tree::new(entries),
            capacity,
            totals: Default::default(),
        }
    }

    /// The largest number of extents.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The number of extents.
    pub fn extent_count(&self) -> u32 {
        self.tree.len() as u32 // the capacity at most
    }

    pub fn is_empty(&self) -> bool {
        self.tree.len() == 0
    }

    /// The bytes of memory that it has taken, regardless of its content.
    pub fn memory_bytes(&self) -> usize {
        size_of::<ExtentMap>() - size_of::<Tree>() + self.tree.bytes()
    }

    pub fn total(&self, kind: Kind) -> Total {
        self.totals[kind as usize]
    }

    /// Whether this many inserts would all find room, wherever they fall.
    pub(crate) fn room_for(&self, inserts: u32) -> bool {
        let worst = u64::from(inserts) * GROWTH_MAX as u64;
        worst <= u64::from(self.capacity - self.extent_count())
    }

    /// Maps an extent's sectors to its copy. Reports the former copies, in the order of the main set.
    pub fn insert(&mut self, extent: Extent, report: impl FnMut(Extent)) -> Result<(), Refusal> {
        if !extent.is_addressable() {
            return Err(Refusal::Unaddressable(extent));
        }
        self.check_room(|map| map.growth_of_insert(&extent))?;
        self.take_out(extent.home..extent.end(), |_| true, report);
        self.put_in(extent);
        Ok(())
    }

    /// Removes exactly those pieces of a range whose copy is of this sequence: they are destaged, unless a
    /// newer copy came. Reports the removed pieces in the order of the main set. Refused only for a range in
    /// the middle of one extent, in a full map.
    pub fn remove_if(
        &mut self,
        home: Range<u64>,
        sequence: u64,
        report: impl FnMut(Extent),
    ) -> Result<(), Refusal> {
        self.remove_where(home, |extent| extent.sequence == sequence, report)
    }

    /// Removes the clean pieces of a range: no read needs them. Reports the pieces, and refuses, as
    /// [`ExtentMap::remove_if`].
    pub fn drop_clean(
        &mut self,
        home: Range<u64>,
        report: impl FnMut(Extent),
    ) -> Result<(), Refusal> {
        self.remove_where(home, |extent| extent.kind == Kind::Clean, report)
    }

    /// The pieces of a range in the order of the main set, mapped ones and holes, without a gap. Holes are
    /// never adjacent.
    pub fn lookup(&self, home: Range<u64>) -> Pieces<'_> {
        let mut extents = self.extents_from(home.start);
        Pieces {
            found: within(&mut extents, &home),
            extents,
            home,
        }
    }

    /// The extents in the order of the main set, from the first that ends behind a sector. To continue later,
    /// start from the [end](Extent::end) of the last extent seen.
    pub fn extents_from(&self, home: u64) -> Extents<'_> {
        Extents {
            tree: &self.tree,
            way: self.tree.seek(home),
        }
    }

    /// The parts of extents in a range of the log, in the order of the main set, from a sector of the main
    /// set on. It visits every extent.
    pub fn in_log(&self, log: Range<u64>, home: u64) -> impl Iterator<Item = Extent> + '_ {
        self.extents_from(home)
            .filter_map(move |extent| extent.within_log(log.clone()))
    }

    fn remove_where(
        &mut self,
        home: Range<u64>,
        goes: impl Fn(&Extent) -> bool,
        report: impl FnMut(Extent),
    ) -> Result<(), Refusal> {
        self.check_room(|map| {
            let around = map.extents_from(home.start).next();
            let cut = |extent: Extent| extent.home < home.start && home.end < extent.end();
            i64::from(!home.is_empty() && around.filter(&goes).is_some_and(cut))
        })?;
        self.take_out(home, goes, report);
        Ok(())
    }

    /// Refuses a change that would exceed the capacity. The growth is computed only if it matters.
    fn check_room(&self, growth: impl Fn(&ExtentMap) -> i64) -> Result<(), Refusal> {
        let left = i64::from(self.capacity - self.extent_count());
        if left >= GROWTH_MAX as i64 || growth(self) <= left {
            return Ok(());
        }
        Err(Refusal::NoRoom {
            capacity: self.capacity,
        })
    }

    /// The number of extents that an insert adds. Removed extents are counted only as far as they matter.
    fn growth_of_insert(&self, extent: &Extent) -> i64 {
        let (home, end) = (extent.home, extent.end());
        let before = home.checked_sub(1).and_then(|last| self.covering(last));
        let after = self.covering(end);
        let split = before.is_some() && before == after;
        let covered = |other: &Extent| home <= other.home && other.end() <= end;
        let gone = self
            .extents_from(home)
            .take_while(|other| other.home < end)
            .filter(covered)
            .take(GROWTH_MAX)
            .count();
        let mut joined = *extent;
        let mut joins = 0;
        if let Some(tail) = after.and_then(|extent| extent.within(end..u64::MAX))
            && joined.joins(&tail)
        {
            joined.sectors += tail.sectors;
            joins += 1;
        }
        let head = before.and_then(|extent| extent.within(0..home));
        joins += i64::from(head.is_some_and(|head| head.joins(&joined)));
        1 + i64::from(split) - gone as i64 - joins
    }

    /// The extent that has a sector of the main set.
    fn covering(&self, home: u64) -> Option<Extent> {
        let extent = self.extents_from(home).next()?;
        (extent.home <= home).then_some(extent)
    }

    fn take_out(
        &mut self,
        home: Range<u64>,
        goes: impl Fn(&Extent) -> bool,
        mut report: impl FnMut(Extent),
    ) {
        let mut from = home.start;
        while let Some(way) = self.tree.seek(from) {
            let extent = self.tree.entry(&way).extent();
            let Some(piece) = extent.within(home.clone()) else {
                break;
            };
            if goes(&extent) {
                self.cut(way, &extent, &piece);
                report(piece);
            }
            from = piece.end();
            if from >= home.end {
                break;
            }
        }
    }

    /// Cuts a piece out of an extent.
    fn cut(&mut self, way: Way, extent: &Extent, piece: &Extent) {
        self.uncount(extent);
        let head = extent.within(0..piece.home);
        let tail = extent.within(piece.end()..u64::MAX);
        head.iter().chain(&tail).for_each(|left| self.count(left));
        match (head, tail) {
            (None, None) => self.tree.remove(way),
            (Some(left), None) | (None, Some(left)) => self.tree.replace(&way, left.into()),
            (Some(head), Some(tail)) => {
                self.tree.replace(&way, head.into());
                self.tree.insert(self.tree.next(way), tail.into());
            }
        }
    }

    /// Maps an extent where nothing is mapped, joined with those that it continues and that continue it.
    fn put_in(&mut self, extent: Extent) {
        self.count(&extent);
        let near = self.tree.seek(extent.home.saturating_sub(1));
        let head = near.filter(|way| self.tree.entry(way).home() < extent.home);
        let behind = head.map_or(near, |way| self.tree.next(way));
        let (joined, tail) = self.with_tail(extent, behind);
        match head.map(|way| (way, self.tree.entry(&way).extent())) {
            Some((way, head)) if head.joins(&joined) => {
                self.totals[head.kind as usize].extents -= 1;
                let sectors = head.sectors + joined.sectors;
                self.tree.replace(&way, Extent { sectors, ..head }.into());
                tail.into_iter().for_each(|way| self.tree.remove(way));
            }
            _ => match tail {
                Some(way) => self.tree.replace(&way, joined.into()),
                None => self.tree.insert(behind, joined.into()),
            },
        }
    }

    /// Joins an extent with the next one, if that continues it. Also returns the way to that one, still in
    /// the tree.
    fn with_tail(&mut self, extent: Extent, behind: Option<Way>) -> (Extent, Option<Way>) {
        if let Some(way) = behind
            && let tail = self.tree.entry(&way).extent()
            && extent.joins(&tail)
        {
            self.totals[tail.kind as usize].extents -= 1;
            let sectors = extent.sectors + tail.sectors;
            return (Extent { sectors, ..extent }, behind);
        }
        (extent, None)
    }

    fn count(&mut self, extent: &Extent) {
        let total = &mut self.totals[extent.kind as usize];
        total.extents += 1;
        total.sectors += u64::from(extent.sectors);
    }

    fn uncount(&mut self, extent: &Extent) {
        let total = &mut self.totals[extent.kind as usize];
        total.extents -= 1;
        total.sectors -= u64::from(extent.sectors);
    }

    /// Checks the invariants of the map.
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.tree.check();
        let mut totals = <[Total; 3]>::default();
        let mut before: Option<Extent> = None;
        for extent in self.extents_from(0) {
            let total = &mut totals[extent.kind as usize];
            total.extents += 1;
            total.sectors += u64::from(extent.sectors);
            if let Some(before) = before {
                assert!(
                    before.end() <= extent.home,
                    "{before:?} overlaps {extent:?}"
                );
                assert!(!before.joins(&extent), "{before:?} and {extent:?} are one");
            }
            before = Some(extent);
        }
        assert_eq!(self.totals, totals);
        assert!(self.tree.len() <= self.capacity as usize);
    }
}

/// The extents of a map in the order of the main set.
pub struct Extents<'a> {
    tree: &'a Tree,
    way: Option<Way>,
}

impl Iterator for Extents<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let way = self.way.take()?;
        self.way = self.tree.next(way);
        Some(self.tree.entry(&way).extent())
    }
}

/// A range of the main set: mapped pieces and holes.
pub struct Pieces<'a> {
    extents: Extents<'a>,
    /// The next mapped piece.
    found: Option<Extent>,
    /// The rest of the range.
    home: Range<u64>,
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.home.is_empty() {
            return None;
        }
        let first = self.home.start;
        if let Some(extent) = self.found.filter(|extent| extent.home == first) {
            self.home.start = extent.end();
            self.found = within(&mut self.extents, &self.home);
            return Some(Piece::Mapped(extent));
        }
        self.home.start = self.found.map_or(self.home.end, |extent| extent.home);
        Some(Piece::Hole {
            home: first,
            sectors: self.home.start - first,
        })
    }
}

/// The next extent's part in a range.
fn within(extents: &mut Extents<'_>, home: &Range<u64>) -> Option<Extent> {
    extents.next()?.within(home.clone())
}
