//! The log's space and an extent map, compared with a walk of the map; and a log that never gets stuck.

use super::*;
use alloc::vec::Vec;
use restripe_format::meta::random::Random;

const SHAPE: LogShape = LogShape {
    segments: 12,
    segment_sectors: 32,
    reserve: 2,
    reclaim_below: 4,
    drop_below: 6,
};

/// A log with its map, and what is known of both without either.
struct Log {
    random: Random,
    map: ExtentMap,
    space: LogSpace,
    /// Records in flight, as they will be mapped.
    under_way: Vec<Extent>,
    sequence: u64,
    cleaned: u64,
    met: [u64; 4],
}

impl Log {
    fn new(seed: u64) -> Log {
        Log {
            random: Random::new(seed),
            map: ExtentMap::new(400),
            space: LogSpace::new(SHAPE, &[]),
            under_way: Vec::new(),
            sequence: 0,
            cleaned: 0,
            met: [0; 4],
        }
    }

    /// The main set is smaller than the log without its reserve: only garbage and clean copies can fill it.
    fn any_extent(&mut self, at: u64, sectors: u32) -> Extent {
        self.sequence += 1;
        Extent {
            home: self.random.below(180),
            sectors,
            at,
            sequence: self.sequence,
            kind: Kind::ALL[self.random.below(3) as usize],
        }
    }

    fn step(&mut self) {
        match self.random.below(12) {
            0..=5 => self.append(),
            6..=9 => self.land(),
            10 => self.destage(),
            _ => self.turn_clean(),
        }
        self.met[self.space.pressure() as usize] += 1;
        self.check();
    }

    fn append(&mut self) {
        let sectors = 1 + self.random.below(16) as u32;
        match self.space.take(sectors, Purpose::Use) {
            Some(at) => {
                self.is_unused(at, sectors);
                let record = self.any_extent(at, sectors);
                self.under_way.push(record);
            }
            None => {
                assert_eq!(self.space.pressure(), Pressure::Refuse);
                self.win_space();
            }
        }
    }

    /// No valid copy, and no record in flight, is in space that is given out.
    fn is_unused(&self, at: u64, sectors: u32) {
        let taken = at..at + u64::from(sectors);
        assert_eq!(self.map.in_log(taken.clone(), 0).next(), None);
        let overlaps = |record: &&Extent| record.within_log(taken.clone()).is_some();
        assert_eq!(self.under_way.iter().find(overlaps), None);
        let segment = at / u64::from(SHAPE.segment_sectors);
        let edge = self.space.segment_range(segment as u32).end;
        assert!(taken.end <= edge, "a record is within a segment");
    }

    /// A record in flight is mapped, or was of no use.
    fn land(&mut self) {
        if self.under_way.is_empty() {
            return;
        }
        let index = self.random.below(self.under_way.len() as u64);
        let record = self.under_way.swap_remove(index as usize);
        if self.random.below(8) > 0 {
            self.put(record);
        }
        self.space.landed(record.at);
    }

    fn put(&mut self, extent: Extent) {
        assert!(self.map.room_for(1));
        self.space.mapped(&extent);
        let space = &mut self.space;
        let inserted = self.map.insert(extent, |piece| space.unmapped(&piece));
        assert_eq!(inserted, Ok(()));
    }

    fn destage(&mut self) {
        let from = self.random.below(196);
        if let Some(extent) = self.map.extents_from(from).next() {
            let space = &mut self.space;
            let home = extent.home..extent.end();
            let removed = self
                .map
                .remove_if(home, extent.sequence, |piece| space.unmapped(&piece));
            assert_eq!(removed, Ok(()));
        }
    }

    /// The copy stays, and the main set becomes current.
    fn turn_clean(&mut self) {
        let from = self.random.below(196);
        if let Some(extent) = self.map.extents_from(from).next() {
            self.put(Extent {
                kind: Kind::Clean,
                ..extent
            });
        }
    }

    /// Records in flight land. Then the cheapest segments are cleaned until a client may append again.
    fn win_space(&mut self) {
        while !self.under_way.is_empty() {
            self.land();
        }
        let mut cleaned = 0;
        while self.space.pressure() == Pressure::Refuse {
            let cheapest = self.cheapest().expect("some of it is garbage");
            self.clean(cheapest);
            cleaned += 1;
            assert!(cleaned <= 3 * SHAPE.segments, "cleaning frees space");
        }
        self.cleaned += u64::from(cleaned);
    }

    fn clean(&mut self, segment: u32) {
        let range = self.space.segment_range(segment);
        let live: Vec<Extent> = self.map.in_log(range, 0).collect();
        let clean = |piece: &&Extent| piece.kind == Kind::Clean;
        for piece in live.iter().filter(clean) {
            let space = &mut self.space;
            let home = piece.home..piece.end();
            let dropped = self.map.drop_clean(home, |piece| space.unmapped(&piece));
            assert_eq!(dropped, Ok(()));
        }
        for piece in live.iter().filter(|piece| !clean(piece)) {
            let at = self.space.take(piece.sectors, Purpose::Cleaning);
            let at = at.expect("the reserve is for this");
            self.is_unused(at, piece.sectors);
            self.put(Extent { at, ..*piece });
            self.space.landed(at);
        }
    }

    fn check(&self) {
        for segment in 0..SHAPE.segments {
            let range = self.space.segment_range(segment);
            let pieces = self.map.in_log(range, 0);
            let mut copies = [0; 3];
            pieces.for_each(|piece| copies[piece.kind as usize] += piece.sectors);
            assert_eq!(self.space.live_in(segment), copies, "segment {segment}");
        }
        self.map.check();
        self.space.check();
    }

    /// The closed segment that is freed by copying the least.
    fn cheapest(&self) -> Option<u32> {
        let busy = |segment: u32| {
            let range = self.space.segment_range(segment);
            let mut records = self.under_way.iter();
            records.any(|record| record.within_log(range.clone()).is_some())
        };
        let closed = (0..SHAPE.segments).filter(|segment| self.space.is_closed(*segment));
        let cost = |segment: &u32| {
            let [instead, also, _] = self.space.live_in(*segment);
            instead + also
        };
        let idle = closed.filter(|segment| !busy(*segment));
        let wins = idle.filter(|segment| cost(segment) < SHAPE.segment_sectors);
        wins.min_by_key(cost)
    }
}

#[test]
fn space_is_what_the_map_leaves_and_never_runs_out_for_good() {
    let (mut met, mut cleaned) = ([0; 4], 0);
    for seed in 0..12 {
        let mut log = Log::new(seed);
        (0..1500).for_each(|_| log.step());
        (0..4).for_each(|pressure| met[pressure] += log.met[pressure]);
        cleaned += log.cleaned;
    }
    assert!(met.iter().all(|times| *times > 50), "{met:?}");
    assert!(cleaned > 100, "{cleaned}");
}

#[test]
fn segments_are_opened_by_how_long_they_are_free() {
    let mut space = LogSpace::new(SHAPE, &[]);
    let mut take = |sectors| space.take(sectors, Purpose::Use);
    assert_eq!((take(20), take(12)), (Some(0), Some(20)));
    // A record that does not fit leaves a rest.
    assert_eq!((take(30), take(3)), (Some(32), Some(64)));
    space.landed(32);
    // Nothing of the second was mapped: it is free, behind all others.
    assert_eq!(space.free_segments(), 10);
    let opened = (0..9).map(|_| space.take(32, Purpose::Cleaning));
    let expected: Vec<u64> = (3..12).map(|segment| segment * 32).collect();
    assert_eq!(opened.flatten().collect::<Vec<_>>(), expected);
    assert_eq!(space.take(32, Purpose::Use), None);
    assert_eq!(space.take(32, Purpose::Cleaning), Some(32));
    assert_eq!(space.take(32, Purpose::Cleaning), None);
}

#[test]
fn what_was_found_is_kept_until_it_is_known_to_be_dead() {
    let mut space = LogSpace::new(SHAPE, &[5, 3]);
    assert_eq!(space.free_segments(), 10);
    let extent = |at| Extent {
        home: 0,
        sectors: 8,
        at,
        sequence: 1,
        kind: Kind::Instead,
    };
    space.mapped(&extent(3 * 32));
    space.mapped(&extent(5 * 32));
    space.unmapped(&extent(3 * 32));
    space.landed(3 * 32);
    space.landed(5 * 32);
    assert_eq!(space.free_segments(), 11);
    assert!(space.is_closed(5));
    assert_eq!(space.take(1, Purpose::Use), Some(0));
}
