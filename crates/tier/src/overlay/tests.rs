//! The extent map against a naive model of one word a sector, and against its invariants after every step.

use super::tree::{WIDTH, least, nodes_max};
use super::*;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use restripe_format::meta::random::Random;

fn extent(home: u64, sectors: u32, at: u64, sequence: u64) -> Extent {
    Extent {
        home,
        sectors,
        at,
        sequence,
        kind: Kind::Instead,
    }
}

/// Inserts, and collects the displaced pieces.
fn insert(map: &mut ExtentMap, extent: Extent) -> Result<Vec<Extent>, Refusal> {
    let mut reported = Vec::new();
    map.insert(extent, |piece| reported.push(piece))?;
    Ok(reported)
}

fn all(map: &ExtentMap) -> Vec<Extent> {
    map.extents_from(0).collect()
}

// ------------------------------------------------------------------------------------------ worked examples

#[test]
fn an_insert_in_the_midst_leaves_both_ends() {
    let mut map = ExtentMap::new(8);
    assert_eq!(insert(&mut map, extent(100, 20, 1000, 1)), Ok(vec![]));
    let reported = insert(&mut map, extent(105, 5, 2000, 2));
    assert_eq!(reported, Ok(vec![extent(105, 5, 1005, 1)]));
    let left = [
        extent(100, 5, 1000, 1),
        extent(105, 5, 2000, 2),
        extent(110, 10, 1010, 1),
    ];
    assert_eq!(all(&map), left);
    map.check();
}

#[test]
fn one_that_continues_another_is_one_with_it_only_as_the_same_copy() {
    let mut map = ExtentMap::new(8);
    let mut put = |extent| insert(&mut map, extent).map(|_| ());
    assert_eq!(put(extent(0, 8, 100, 1)), Ok(()));
    assert_eq!(put(extent(16, 8, 116, 1)), Ok(()));
    assert_eq!(put(extent(8, 8, 108, 1)), Ok(()));
    // The same place in main set and log, and another sequence: it must be removable separately.
    assert_eq!(put(extent(24, 8, 124, 2)), Ok(()));
    // The same sequence, and another place in the log.
    assert_eq!(put(extent(32, 8, 200, 2)), Ok(()));
    let clean = Extent {
        kind: Kind::Clean,
        ..extent(40, 8, 208, 2)
    };
    assert_eq!(put(clean), Ok(()));
    let joined = [
        extent(0, 24, 100, 1),
        extent(24, 8, 124, 2),
        extent(32, 8, 200, 2),
        clean,
    ];
    assert_eq!(all(&map), joined);
    map.check();
}

#[test]
fn only_what_is_still_of_the_sequence_is_removed() {
    let mut map = ExtentMap::new(8);
    insert(&mut map, extent(0, 30, 100, 1)).expect("there is room");
    insert(&mut map, extent(10, 10, 500, 2)).expect("there is room");
    let mut reported = Vec::new();
    let removed = map.remove_if(5..28, 1, |piece| reported.push(piece));
    assert_eq!(removed, Ok(()));
    assert_eq!(reported, [extent(5, 5, 105, 1), extent(20, 8, 120, 1)]);
    let left = [
        extent(0, 5, 100, 1),
        extent(10, 10, 500, 2),
        extent(28, 2, 128, 1),
    ];
    assert_eq!(all(&map), left);
    map.check();
}

#[test]
fn a_full_map_takes_what_needs_no_more_and_says_so_otherwise() {
    let mut map = ExtentMap::new(2);
    assert!(map.room_for(1) && !map.room_for(2));
    insert(&mut map, extent(0, 8, 100, 1)).expect("there is room");
    insert(&mut map, extent(20, 8, 200, 1)).expect("there is room");
    let full = Refusal::NoRoom { capacity: 2 };
    assert_eq!(insert(&mut map, extent(10, 8, 300, 2)), Err(full));
    assert_eq!(insert(&mut map, extent(2, 2, 300, 2)), Err(full));
    let midst = map.remove_if(2..4, 1, |_| panic!("nothing goes"));
    assert_eq!(midst, Err(full));
    assert_eq!(map.remove_if(2..4, 9, |_| panic!("nothing goes")), Ok(()));
    let before = [extent(0, 8, 100, 1), extent(20, 8, 200, 1)];
    assert_eq!(all(&map), before);
    // Extents that only move, join, or cover another.
    assert!(insert(&mut map, extent(0, 8, 400, 3)).is_ok());
    assert!(insert(&mut map, extent(8, 2, 408, 3)).is_ok());
    assert!(insert(&mut map, extent(2, 2, 402, 3)).is_ok());
    assert!(insert(&mut map, extent(18, 12, 500, 4)).is_ok());
    assert_eq!(all(&map), [extent(0, 10, 400, 3), extent(18, 12, 500, 4)]);
    map.check();
}

#[test]
fn a_map_without_capacity_refuses_all() {
    let mut map = ExtentMap::new(0);
    assert_eq!(
        insert(&mut map, extent(0, 8, 100, 1)),
        Err(Refusal::NoRoom { capacity: 0 })
    );
    assert!(map.is_empty() && map.room_for(0) && !map.room_for(1));
    let hole = Piece::Hole {
        home: 3,
        sectors: 4,
    };
    assert_eq!(map.lookup(3..7).collect::<Vec<_>>(), [hole]);
}

#[test]
fn what_cannot_be_addressed_is_refused_and_the_last_that_can_be_is_not() {
    let mut map = ExtentMap::new(8);
    let most = EXTENT_SECTORS_MAX;
    for wrong in [
        extent(0, 0, 0, 1),
        extent(0, most + 1, 0, 1),
        extent(HOME_SECTORS_MAX, 1, 0, 1),
        extent(HOME_SECTORS_MAX - 7, 8, 0, 1),
        extent(0, 1, LOG_SECTORS_MAX, 1),
        extent(0, 8, LOG_SECTORS_MAX - 7, 1),
        extent(u64::MAX, u32::MAX, u64::MAX, u64::MAX),
    ] {
        let refused = Err(Refusal::Unaddressable(wrong));
        assert_eq!(insert(&mut map, wrong), refused);
    }
    let last = extent(
        HOME_SECTORS_MAX - u64::from(most),
        most,
        LOG_SECTORS_MAX - u64::from(most),
        u64::MAX,
    );
    assert_eq!(insert(&mut map, last), Ok(vec![]));
    assert_eq!(all(&map), [last]);
    let around = Piece::Hole {
        home: HOME_SECTORS_MAX,
        sectors: u64::MAX - HOME_SECTORS_MAX,
    };
    let found: Vec<Piece> = map.lookup(last.home..u64::MAX).collect();
    assert_eq!(found, [Piece::Mapped(last), around]);
    map.check();
}

#[test]
fn a_longest_extent_is_continued_by_another() {
    let most = EXTENT_SECTORS_MAX;
    let mut map = ExtentMap::new(8);
    insert(&mut map, extent(0, most, 0, 1)).expect("there is room");
    insert(&mut map, extent(most.into(), 8, most.into(), 1)).expect("there is room");
    assert_eq!(map.extent_count(), 2);
    // Shorter by eight, both together are no longer than the limit.
    map.remove_if(0..8, 1, |_| {}).expect("a part at the end");
    assert_eq!(map.extent_count(), 2);
    let end = u64::from(most) - 8;
    insert(&mut map, extent(end, 8, end, 1)).expect("it is there already");
    assert_eq!(all(&map), [extent(8, most, 8, 1)]);
    map.check();
}

// ------------------------------------------------------------------------------------------------ the model

#[derive(Clone, Copy, PartialEq, Eq)]
struct Copied {
    at: u64,
    sequence: u64,
    kind: Kind,
}

/// The mapped copy of each sector.
struct Naive {
    sectors: Vec<Option<Copied>>,
}

impl Naive {
    /// The mapped pieces of a range, each as long as possible.
    fn pieces(&self, range: Range<u64>) -> Vec<Extent> {
        let mut pieces: Vec<Extent> = Vec::new();
        for home in range {
            let Some(Copied { at, sequence, kind }) = self.sectors[home as usize] else {
                continue;
            };
            let piece = Extent {
                home,
                sectors: 1,
                at,
                sequence,
                kind,
            };
            match pieces.last_mut() {
                Some(last) if last.joins(&piece) => last.sectors += 1,
                _ => pieces.push(piece),
            }
        }
        pieces
    }

    fn all(&self) -> Vec<Extent> {
        self.pieces(0..self.sectors.len() as u64)
    }

    fn put(&mut self, extent: &Extent) {
        for offset in 0..u64::from(extent.sectors) {
            self.sectors[(extent.home + offset) as usize] = Some(Copied {
                at: extent.at + offset,
                sequence: extent.sequence,
                kind: extent.kind,
            });
        }
    }

    fn take(&mut self, pieces: &[Extent]) {
        for piece in pieces {
            self.sectors[piece.home as usize..piece.end() as usize].fill(None);
        }
    }
}

/// How an insert met existing extents.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Met {
    Nothing,
    Exactly,
    Inside,
    /// The left end of an extent, and sectors beyond it on the right.
    LeftEnd,
    RightEnd,
    Covered,
    Several,
    JoinedBefore,
    JoinedAfter,
    JoinedBoth,
    NoRoom,
    RemovedMidst,
    RemovedNoRoom,
}

const MET_ALL: usize = Met::RemovedNoRoom as usize + 1;

struct Trial {
    random: Random,
    map: ExtentMap,
    naive: Naive,
    met: [u64; MET_ALL],
    longest: u64,
}

impl Trial {
    fn new(seed: u64, home_sectors: usize, capacity: u32, longest: u64) -> Trial {
        Trial {
            random: Random::new(seed),
            map: ExtentMap::new(capacity),
            naive: Naive {
                sectors: vec![None; home_sectors],
            },
            met: [0; MET_ALL],
            longest,
        }
    }

    fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            match self.random.below(16) {
                0..=8 => self.insert(),
                9..=11 => self.remove(),
                12 => self.drop_clean(),
                13 => self.look_up(),
                14 => self.walk(),
                _ => self.in_log(),
            }
            self.compare();
        }
    }

    fn range(&mut self) -> Range<u64> {
        let most = self.naive.sectors.len() as u64;
        let start = self.random.below(most);
        let count = 1 + self.random.below(self.longest);
        start..(start + count).min(most)
    }

    /// Few sequences, and places that often continue each other.
    fn any_extent(&mut self) -> Extent {
        let mut home = self.range();
        if self.random.below(6) == 0
            && let Some(there) = self.map.extents_from(home.start).next()
        {
            home = there.home..there.end();
        }
        Extent {
            home: home.start,
            sectors: (home.end - home.start) as u32,
            at: home.start + 10_000 * self.random.below(2),
            sequence: self.random.below(3),
            kind: Kind::ALL[self.random.below(2) as usize * 2],
        }
    }

    fn insert(&mut self) {
        let mut new = self.any_extent();
        if self.random.below(5) == 0 {
            new.kind = Kind::Also;
            new.at = 50_000 + self.random.below(1 << 20);
        }
        let displaced = self.naive.pieces(new.home..new.end());
        let (before, count) = (self.naive.sectors.clone(), self.naive.all().len());
        let how = self.how(&new);
        self.naive.put(&new);
        let after = self.naive.all().len();
        assert!(after <= count + 2, "an insert takes two at most");
        let reported = insert(&mut self.map, new);
        if after > self.map.capacity() as usize {
            let capacity = self.map.capacity();
            assert_eq!(reported, Err(Refusal::NoRoom { capacity }));
            self.naive.sectors = before;
            return self.meet(Met::NoRoom);
        }
        assert_eq!(reported, Ok(displaced));
        self.meet(how);
        self.meet_joined(&new);
    }

    fn how(&self, new: &Extent) -> Met {
        let all = self.naive.all();
        let meets = |old: &&Extent| old.home < new.end() && new.home < old.end();
        let old: Vec<&Extent> = all.iter().filter(meets).collect();
        match old[..] {
            [] => Met::Nothing,
            [old] => match (old.home.cmp(&new.home), old.end().cmp(&new.end())) {
                (core::cmp::Ordering::Equal, core::cmp::Ordering::Equal) => Met::Exactly,
                (core::cmp::Ordering::Less, core::cmp::Ordering::Greater) => Met::Inside,
                (core::cmp::Ordering::Less, _) => Met::RightEnd,
                (_, core::cmp::Ordering::Greater) => Met::LeftEnd,
                _ => Met::Covered,
            },
            _ => Met::Several,
        }
    }

    fn meet(&mut self, met: Met) {
        self.met[met as usize] += 1;
    }

    fn meet_joined(&mut self, new: &Extent) {
        let all = self.naive.all();
        let of = all
            .iter()
            .find(|old| old.home <= new.home && new.end() <= old.end());
        let of = of.expect("what was put in is there");
        match (of.home < new.home, of.end() > new.end()) {
            (true, true) => self.meet(Met::JoinedBoth),
            (true, false) => self.meet(Met::JoinedBefore),
            (false, true) => self.meet(Met::JoinedAfter),
            (false, false) => {}
        }
    }

    fn remove(&mut self) {
        let (range, sequence) = (self.range(), self.random.below(3));
        self.take_out(
            range.clone(),
            |piece| piece.sequence == sequence,
            |map, reported| map.remove_if(range.clone(), sequence, |piece| reported.push(piece)),
        );
    }

    fn drop_clean(&mut self) {
        let range = self.range();
        self.take_out(
            range.clone(),
            |piece| piece.kind == Kind::Clean,
            |map, reported| map.drop_clean(range.clone(), |piece| reported.push(piece)),
        );
    }

    fn take_out(
        &mut self,
        range: Range<u64>,
        goes: impl Fn(&Extent) -> bool,
        remove: impl Fn(&mut ExtentMap, &mut Vec<Extent>) -> Result<(), Refusal>,
    ) {
        let mut expected = self.naive.pieces(range);
        expected.retain(&goes);
        let (before, count) = (self.naive.sectors.clone(), self.naive.all().len());
        self.naive.take(&expected);
        let after = self.naive.all().len();
        let mut reported = Vec::new();
        let removed = remove(&mut self.map, &mut reported);
        if after > self.map.capacity() as usize {
            let capacity = self.map.capacity();
            assert_eq!(removed, Err(Refusal::NoRoom { capacity }));
            assert!(reported.is_empty());
            self.naive.sectors = before;
            return self.meet(Met::RemovedNoRoom);
        }
        assert_eq!((removed, reported), (Ok(()), expected));
        if after > count {
            self.meet(Met::RemovedMidst);
        }
    }

    fn look_up(&mut self) {
        let range = self.range();
        let mut expected = Vec::new();
        let mut from = range.start;
        let hole = |from, to| Piece::Hole {
            home: from,
            sectors: to - from,
        };
        for piece in self.naive.pieces(range.clone()) {
            if from < piece.home {
                expected.push(hole(from, piece.home));
            }
            from = piece.end();
            expected.push(Piece::Mapped(piece));
        }
        if from < range.end {
            expected.push(hole(from, range.end));
        }
        assert_eq!(self.map.lookup(range).collect::<Vec<_>>(), expected);
    }

    fn walk(&mut self) {
        let from = self.random.below(self.naive.sectors.len() as u64);
        let mut expected = self.naive.all();
        expected.retain(|extent| extent.end() > from);
        let walked: Vec<Extent> = self.map.extents_from(from).collect();
        assert_eq!(walked, expected);
    }

    fn in_log(&mut self) {
        let (log, from) = (self.range(), self.range().start);
        let log = log.start + 10_000..log.end + 10_000;
        let mut expected = self.naive.all();
        expected.retain(|extent| extent.end() > from);
        let cut = expected
            .iter()
            .filter_map(|extent| extent.within_log(log.clone()));
        let found: Vec<Extent> = self.map.in_log(log.clone(), from).collect();
        assert_eq!(found, cut.collect::<Vec<_>>());
        assert!(
            found
                .iter()
                .all(|piece| log.start <= piece.at && piece.log_end() <= log.end)
        );
    }

    fn compare(&self) {
        self.map.check();
        assert_eq!(all(&self.map), self.naive.all());
        let mut totals = [Total::default(); 3];
        for extent in self.naive.all() {
            totals[extent.kind as usize].extents += 1;
            totals[extent.kind as usize].sectors += u64::from(extent.sectors);
        }
        assert_eq!(Kind::ALL.map(|kind| self.map.total(kind)), totals);
    }
}

#[test]
fn agrees_with_the_model_through_every_kind_of_overlap() {
    let mut met = [0; MET_ALL];
    for seed in 0..40 {
        let mut trial = Trial::new(seed, 120, 10 + 10 * (seed as u32 % 4), 24);
        trial.run(1000);
        (0..MET_ALL).for_each(|index| met[index] += trial.met[index]);
    }
    let least = met.iter().min().expect("there are kinds");
    assert!(*least >= 20, "{met:?}");
}

#[test]
fn agrees_with_the_model_when_it_is_several_nodes_deep() {
    for seed in 0..2 {
        let mut trial = Trial::new(seed, 3000, 1200, 4);
        trial.run(3000);
        assert!(
            trial.map.extent_count() > 8 * WIDTH as u32,
            "it became so large"
        );
        trial.longest = 2000;
        trial.run(500);
    }
}

// ---------------------------------------------------------------------------------------------- large trees

/// No two of these extents join.
fn single(home: u64) -> Extent {
    extent(home, 1, home * 3, 7)
}

fn large(order: &[u64]) -> ExtentMap {
    let mut map = ExtentMap::new(order.len() as u32);
    for (step, home) in order.iter().enumerate() {
        assert_eq!(insert(&mut map, single(*home)), Ok(vec![]));
        if step % (order.len() / 8) == 0 {
            map.check();
        }
    }
    map.check();
    assert!(!map.room_for(1));
    map
}

fn empty(map: &mut ExtentMap, order: &[u64]) {
    for (step, home) in order.iter().enumerate() {
        let mut reported = None;
        let removed = map.remove_if(*home..home + 1, 7, |piece| reported = Some(piece));
        assert_eq!((removed, reported), (Ok(()), Some(single(*home))));
        if step % (order.len() / 8) == 0 {
            map.check();
        }
    }
    map.check();
    assert!(map.is_empty());
}

/// Sectors 0 to `count` in an order: rising, falling, from both ends, from the middle, and shuffled.
fn orders(count: u64) -> [Vec<u64>; 5] {
    let rising: Vec<u64> = (0..count).collect();
    let falling = rising.iter().rev().copied().collect();
    let ends = |step: u64| match step % 2 {
        0 => step / 2,
        _ => count - 1 - step / 2,
    };
    let both: Vec<u64> = (0..count).map(ends).collect();
    let outwards = both.iter().rev().copied().collect();
    let mut shuffled = rising.clone();
    let mut random = Random::new(5);
    for last in (1..shuffled.len()).rev() {
        shuffled.swap(last, random.below(last as u64 + 1) as usize);
    }
    [rising, falling, both, outwards, shuffled]
}

/// At most three inner levels: 270,000 entries fill at least 4,219 leaves, more than 64 nodes have.
#[test]
fn fills_and_empties_in_every_order() {
    for (count, each) in [(2000, true), (270_000, false)] {
        let orders = orders(count);
        for (index, filling) in orders.iter().enumerate() {
            let mut map = large(filling);
            let emptying = if each {
                &orders[..]
            } else {
                &orders[4 - index..][..1]
            };
            for order in emptying {
                empty(&mut map, order);
                if each {
                    map = large(filling);
                }
            }
        }
    }
}

/// A map at its capacity, to which one extent is added for each that is removed, keeps within its nodes.
/// Added and removed extents are at different places in turn.
#[test]
fn lives_at_its_capacity() {
    let count = 20_000_u64;
    let mut map = large(&(0..count).map(|home| home * 2).collect::<Vec<_>>());
    let mut random = Random::new(9);
    let mut there: Vec<u64> = (0..count).map(|home| home * 2).collect();
    for step in 0..100_000_u64 {
        let sweep = step % count * 2;
        let wanted = match step / count % 3 {
            0 => random.below(4 * count),
            1 => sweep,
            _ => 4 * count - sweep,
        };
        if map.lookup(wanted..wanted + 1).next() != Some(hole(wanted)) {
            continue;
        }
        assert!(insert(&mut map, single(wanted)).is_err(), "it is full");
        let index = random.below(there.len() as u64) as usize;
        let gone = there[index];
        let removed = map.remove_if(gone..gone + 1, 7, |_| {});
        assert_eq!(removed, Ok(()));
        insert(&mut map, single(wanted)).expect("one went");
        there[index] = wanted;
        if step % 1000 == 0 {
            map.check();
        }
    }
    map.check();
    there.sort_unstable();
    assert!(all(&map).iter().map(|extent| extent.home).eq(there));
}

fn hole(home: u64) -> Piece {
    Piece::Hole { home, sectors: 1 }
}

/// The fewest nodes that a tree of this many items can have, against the nodes that are taken for them.
#[test]
fn there_are_nodes_for_every_number_of_items() {
    for nodes in 2..10_000 {
        let fewest = nodes * least(nodes);
        assert!(nodes_max(fewest) >= nodes, "{nodes} nodes");
    }
    assert_eq!((nodes_max(0), nodes_max(1)), (1, 1));
    let mut inner = nodes_max(u32::MAX as usize + 2);
    let mut levels = 0;
    while inner > 1 {
        inner = nodes_max(inner);
        levels += 1;
    }
    assert!(levels <= 7);
}
