//! In which order a task goes through the rows, and how many at once: orders by name, one of which each task follows.
//!
//! | name | next | at once | source |
//! |---|---|---|---|
//! | `pr` | the first row that is left | what its throttle lets | Linux md: pipelined reconstruction |
//! | `pro` | the first row of the zone most read since then | as `pr` | PRO (Tian et al., FAST 2007) |
//! | `ido` | the zones that were hottest then, hottest first; after them the first row that is left | as `pr` | IDO, section 3.4 |
//! | `sor` | the first row that is left | one | stripe-oriented (Holland, Gibson and Siewiorek, FTCS 1993) |
//! | `dor` | the first row that is left | what buffers allow | disk-oriented (the same) |
//!
//! "Then" is when the task began or got its order. A zone that was begun is brought to its end. PRO's areas are our zones; and where it gives the hottest area a share
//! of time, ours has the whole of it.
//!
//! SOR is one process: it reads a stripe's survivors, computes, writes, and only then turns to the next stripe, so each disk
//! waits for the slowest of each stripe. DOR is a process for each disk, that reads what is next on it into whatever buffer
//! is free. A window of ours asks all disks of its row at once, and takes its buffers then rather than when a disk has read;
//! but each disk goes through its own queue at its own pace, so with as many windows as there are buffers one may be that
//! many rows ahead of another, and none waits: which is what DOR is for. Between the two, md's pipeline is as deep as the
//! throttle has it, and waits where that yields to users ([`Depth`]).
//!
//! With any order, zones may be rebuilt on demand: a read that had to be recovered from the other members says that its zone
//! is wanted now, and that zone goes before all others. Of several the one read last goes first: a user who reads where
//! nothing is rebuilt will read on there, as traces do, and whoever was there earlier may have left, so the latest read is the best guess
//! at the next one, where the hottest zone would be that of the heaviest user, read or not. It costs nothing to keep:
//! [`DEMANDS_MAX`] zones, a move within them for each such read; the zone that was wanted longest ago is forgotten first, and its turn
//! comes by the order. The zone in progress is brought to its end all the same, or two users would have the task go back and forth.
//!
//! A slot of several partitions is filled in as many streams (S2-RAID, section 3): "the first row that is left" is that of the
//! partition with the fewest windows under way, so that each stream goes through its own partition in sequence, beside the
//! others and at their depth. What is read for them stands on disjoint slots. Zones go before that, one after the other.

use super::heat::Heat;
use crate::contract::Order;
use crate::runset::RunSet;
use crate::units::{Nanos, Row};
use alloc::vec::Vec;
use restripe_format::meta::superblock::RUNS_OF_TASK_MAX;

/// How much a task has under way at once, as far as its order and not its rate decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Depth {
    /// A window.
    Row,
    /// What its throttle lets.
    #[default]
    Pipeline,
    /// What buffers allow: the throttle holds the rate, and gathers no windows to batches.
    Buffers,
}

impl Depth {
    pub(crate) fn of(order: Order) -> Depth {
        match order {
            Order::Pr | Order::Pro | Order::Ido => Depth::Pipeline,
            Order::Sor => Depth::Row,
            Order::Dor => Depth::Buffers,
        }
    }
}

/// No new zone is begun while the rows of a task lie in so many pieces: its superblock has no room for many more, and what
/// it does not hold a crash forgets. The first row that is left goes on then, until pieces have met.
const PIECES_MAX: usize = RUNS_OF_TASK_MAX - 8;

/// Zones that are wanted: by users who read in different places at one time.
const DEMANDS_MAX: usize = 8;

/// The streams of one task: as many equal parts of the rows, each gone through by address.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    /// Rows of each.
    each: u64,
    /// Windows under way in each.
    in_flight: Vec<u32>,
}

impl Streams {
    pub(crate) fn new(rows: u64, count: u16) -> Streams {
        Streams {
            each: rows / u64::from(count),
            in_flight: alloc::vec![0; usize::from(count)],
        }
    }

    fn of(&mut self, row: Row) -> &mut u32 {
        let stream = (row.0 / self.each) as usize; // few
        &mut self.in_flight[stream]
    }

    pub(crate) fn begun(&mut self, row: Row) {
        *self.of(row) += 1;
    }

    pub(crate) fn ended(&mut self, row: Row) {
        *self.of(row) -= 1;
    }

    /// The first row that is left of the least busy stream that has any.
    fn next(&self, claimed: &RunSet) -> Option<Row> {
        let left = (0..).zip(&self.in_flight).filter_map(|(stream, busy)| {
            let first = stream * self.each;
            let row = claimed.first_gap(first);
            (row < first + self.each).then_some((*busy, Row(row)))
        });
        left.min().map(|(_, row)| row)
    }
}

/// The way of one task through the rows.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    rule: Rule,
    /// The zone in progress.
    zone: Option<u64>,
    demands: Demands,
}

/// Zones that users asked for before they were rebuilt, the latest first.
#[derive(Clone, Debug, Default)]
struct Demands {
    zones: [u64; DEMANDS_MAX],
    count: usize,
}

impl Demands {
    fn note(&mut self, zone: u64) {
        let held = self.zones[..self.count].iter().position(|one| *one == zone);
        let place = held.unwrap_or_else(|| {
            self.count = DEMANDS_MAX.min(self.count + 1);
            self.count - 1
        });
        self.zones[..=place].rotate_right(1);
        self.zones[0] = zone;
    }

    fn next(&mut self) -> Option<u64> {
        let latest = *self.zones[..self.count].first()?;
        self.zones[..self.count].rotate_left(1);
        self.count -= 1;
        Some(latest)
    }
}

#[derive(Clone, Debug)]
enum Rule {
    ByAddress,
    /// What was read since the order was set, and the zones that were, but for those found finished.
    ByReadsSince {
        heat: Heat,
        read: RunSet,
    },
    /// Hot zones that are left, hottest last.
    Planned(Vec<u32>),
}

impl Path {
    /// `heat`: what is known by now. `blank`: the same table before anything is.
    pub(crate) fn new(order: Order, heat: &Heat, blank: impl FnOnce() -> Heat) -> Path {
        let rule = match order {
            Order::Pr | Order::Sor | Order::Dor => Rule::ByAddress,
            Order::Pro => Rule::ByReadsSince {
                heat: blank(),
                read: RunSet::default(),
            },
            Order::Ido => {
                let map = heat.map();
                let mut zones = map.hottest();
                zones.truncate(map.hot_zones());
                zones.reverse();
                Rule::Planned(zones)
            }
        };
        Path {
            rule,
            zone: None,
            demands: Demands::default(),
        }
    }

    /// A user's read in this zone had to be recovered.
    pub(crate) fn demand(&mut self, zone: u64) {
        self.demands.note(zone);
    }

    /// What was wanted by now is wanted no more than anything else.
    pub(crate) fn forget_demands(&mut self) {
        self.demands = Demands::default();
    }

    /// A user reads these sectors of the array while the task is under way.
    pub(crate) fn note_read(&mut self, lba: u64, sectors: u64, now: Nanos) {
        if let Rule::ByReadsSince { heat, read } = &mut self.rule {
            for zone in heat.zones_of(lba, sectors) {
                if heat.popularity(zone as usize) == 0 {
                    read.insert(zone, 1);
                }
            }
            heat.note_read(lba, sectors, now);
        }
    }

    /// The next row below `rows` that is not claimed.
    pub(crate) fn next(
        &mut self,
        claimed: &RunSet,
        streams: &Streams,
        zone_rows: u64,
        rows: u64,
    ) -> Option<Row> {
        let first_left = |zone: u64| {
            let row = claimed.first_gap(zone * zone_rows);
            (row < rows.min((zone + 1) * zone_rows)).then_some(Row(row))
        };
        let is_left = |zone: &u64| first_left(*zone).is_some();
        self.zone = self.zone.filter(is_left);
        if self.zone.is_none() && claimed.runs().len() < PIECES_MAX {
            self.zone = self.next_zone(is_left);
        }
        match self.zone {
            Some(zone) => first_left(zone),
            None => streams.next(claimed),
        }
    }

    /// The zone that goes before all others, of those that are left.
    fn next_zone(&mut self, is_left: impl Fn(&u64) -> bool) -> Option<u64> {
        let wanted = core::iter::from_fn(|| self.demands.next()).find(&is_left);
        if wanted.is_some() {
            return wanted;
        }
        match &mut self.rule {
            Rule::ByAddress => None,
            Rule::ByReadsSince { heat, read } => loop {
                let hottest = heat.hottest_of(read)?;
                if is_left(&hottest) {
                    return Some(hottest);
                }
                read.remove(hottest, 1);
            },
            Rule::Planned(hot) => core::iter::from_fn(|| hot.pop().map(u64::from)).find(is_left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_format::zones::HeatLimits;

    const ROWS: u64 = 95;
    /// Of 1.2 MiB, so that a zone has ten.
    const ROW_SECTORS: u64 = (12 << 11) / 10;

    fn blank() -> Heat {
        Heat::new(HeatLimits::default(), ROWS, ROW_SECTORS, Nanos::ZERO)
    }

    fn heat_of(reads: &[(u64, usize)]) -> Heat {
        let mut heat = blank();
        assert_eq!((heat.map().popularity.len(), heat.zone_rows()), (9, 11));
        for &(row, times) in reads {
            for _ in 0..times {
                heat.note_read(row * ROW_SECTORS, 8, Nanos::ZERO);
            }
        }
        heat
    }

    fn one_stream(rows: u64) -> Streams {
        Streams::new(rows, 1)
    }

    fn path(order: Order, heat: &Heat) -> Path {
        Path::new(order, heat, blank)
    }

    fn next(path: &mut Path, claimed: &RunSet) -> Option<Row> {
        path.next(claimed, &one_stream(ROWS), 11, ROWS)
    }

    /// The zones in the order in which their first rows come, every row being claimed as it comes.
    fn walk(path: &mut Path, claimed: &mut RunSet) -> Vec<u64> {
        let mut zones = Vec::new();
        while let Some(row) = next(path, claimed) {
            assert!(!claimed.contains(row.0), "each row comes once");
            claimed.insert(row.0, 1);
            if zones.last() != Some(&(row.0 / 11)) {
                zones.push(row.0 / 11);
            }
        }
        assert_eq!(claimed.runs(), [(0, ROWS)], "every row comes");
        zones
    }

    #[test]
    fn names_lead_back() {
        for order in Order::ALL {
            assert_eq!(Order::named(order.name()), Some(order));
        }
        assert_eq!(Order::named("fifo"), None);
    }

    #[test]
    fn the_others_go_by_address() {
        let heat = heat_of(&[(50, 3)]);
        for order in [Order::Pr, Order::Sor, Order::Dor] {
            let walked = walk(&mut path(order, &heat), &mut RunSet::default());
            assert_eq!(walked, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        }
    }

    #[test]
    fn ido_goes_through_the_hottest_zones_first() {
        let heat = heat_of(&[(50, 3), (94, 9), (12, 1)]);
        let walked = walk(&mut path(Order::Ido, &heat), &mut RunSet::default());
        let order = [8, 4, 0, 1, 2, 3, 5, 6, 7];
        assert_eq!(walked, order, "two of nine are a fifth");
    }

    #[test]
    fn what_is_done_already_is_passed_by() {
        let heat = heat_of(&[(50, 3), (94, 9)]);
        let mut claimed = RunSet::from_runs(&[(0, 30), (88, 7), (45, 2)]);
        let walked = walk(&mut path(Order::Ido, &heat), &mut claimed);
        assert_eq!(walked, [4, 2, 3, 5, 6, 7]);
    }

    /// Runs of a task that a superblock holds.
    #[test]
    fn the_rows_never_lie_in_more_pieces_than_can_be_recorded() {
        let mut heat = Heat::new(HeatLimits::default(), 11_000, ROW_SECTORS, Nanos::ZERO);
        for zone in (0..1000).step_by(2) {
            heat.note_read(zone * 11 * ROW_SECTORS, 8, Nanos::ZERO);
        }
        let mut path = Path::new(Order::Ido, &heat, blank);
        let (mut claimed, mut most) = (RunSet::default(), 0);
        while let Some(row) = path.next(&claimed, &one_stream(11_000), 11, 11_000) {
            claimed.insert(row.0, 1);
            most = most.max(claimed.runs().len());
        }
        assert_eq!(claimed.runs(), [(0, 11_000)]);
        assert_eq!(most, PIECES_MAX);
    }

    #[test]
    fn what_is_wanted_goes_first_the_latest_before_the_others() {
        let heat = heat_of(&[(50, 3), (94, 9)]);
        for (order, rest) in [
            (Order::Pr, &[0, 1, 2, 4, 5, 7, 8][..]),
            (Order::Ido, &[8, 4, 0, 1, 2, 5, 7]),
        ] {
            let mut path = path(order, &heat);
            for zone in [6, 3, 6, 3] {
                path.demand(zone);
            }
            let walked = walk(&mut path, &mut RunSet::default());
            assert_eq!(walked, [&[3, 6], rest].concat(), "{order:?}");
        }
    }

    #[test]
    fn a_zone_in_progress_goes_before_what_is_wanted() {
        let heat = heat_of(&[]);
        let mut path = path(Order::Pr, &heat);
        let mut claimed = RunSet::default();
        path.demand(5);
        assert_eq!(next(&mut path, &claimed), Some(Row(55)));
        claimed.insert(55, 1);
        path.demand(2);
        assert_eq!(walk(&mut path, &mut claimed), [5, 2, 0, 1, 3, 4, 6, 7, 8]);
    }

    #[test]
    fn of_too_many_wants_the_oldest_are_forgotten() {
        let heat = heat_of(&[]);
        let mut path = path(Order::Pr, &heat);
        (0..9).for_each(|zone| path.demand(zone));
        let walked = walk(&mut path, &mut RunSet::default());
        assert_eq!(walked, [8, 7, 6, 5, 4, 3, 2, 1, 0]);
        (0..9).rev().for_each(|zone| path.demand(zone));
        path.forget_demands();
        let walked = walk(&mut path, &mut RunSet::default());
        assert_eq!(walked, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn streams_go_side_by_side_each_by_address() {
        let mut streams = Streams::new(90, 3);
        let mut path = path(Order::Pr, &heat_of(&[]));
        let mut claimed = RunSet::default();
        let mut begin = |streams: &mut Streams| {
            let row = path.next(&claimed, streams, 11, 90).unwrap();
            claimed.insert(row.0, 1);
            streams.begun(row);
            row.0
        };
        let first: Vec<u64> = (0..6).map(|_| begin(&mut streams)).collect();
        assert_eq!(first, [0, 30, 60, 1, 31, 61]);
        // One that is slow gets no more than the others.
        streams.ended(Row(30));
        streams.ended(Row(60));
        streams.ended(Row(61));
        let then: Vec<u64> = (0..4).map(|_| begin(&mut streams)).collect();
        assert_eq!(then, [62, 32, 63, 2]);
    }

    /// Whoever has ended leaves the others their turns.
    #[test]
    fn a_stream_without_rows_is_passed_by() {
        let mut streams = Streams::new(90, 3);
        let claimed = RunSet::from_runs(&[(0, 30), (40, 20)]);
        let mut path = path(Order::Pr, &heat_of(&[]));
        assert_eq!(path.next(&claimed, &streams, 11, 90), Some(Row(30)));
        streams.begun(Row(30));
        assert_eq!(path.next(&claimed, &streams, 11, 90), Some(Row(60)));
        let all = RunSet::from_runs(&[(0, 90)]);
        assert_eq!(path.next(&all, &streams, 11, 90), None);
    }

    #[test]
    fn pro_follows_what_is_read_meanwhile() {
        let heat = heat_of(&[(50, 9)]);
        let mut path = path(Order::Pro, &heat);
        let mut claimed = RunSet::default();
        let first = next(&mut path, &claimed);
        assert_eq!(first, Some(Row(0)), "nothing was read yet");
        path.note_read(70 * ROW_SECTORS, 8, Nanos::ZERO);
        assert_eq!(next(&mut path, &claimed), Some(Row(66)));
        path.note_read(94 * ROW_SECTORS, 8, Nanos::ZERO);
        path.note_read(94 * ROW_SECTORS, 8, Nanos::ZERO);
        assert_eq!(walk(&mut path, &mut claimed), [6, 8, 0, 1, 2, 3, 4, 5, 7]);
    }
}
