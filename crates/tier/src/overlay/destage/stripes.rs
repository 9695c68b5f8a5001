//! Destage of packed writes, stripe by stripe: pieces all over the log are read by clusters into memory, and
//! each stripe of the main set is written when memory has all of its pieces (RERAID, section 3.4).
//!
//! [`Destage`] decides the order, and what stays in memory. As many stripes as memory has room for are begun
//! at once: a drive that has to read the log and write the main set in turns does little else than seek.
//!
//! | batch    | cause                                                              | next     |
//! |----------|--------------------------------------------------------------------|----------|
//! | none     | stripes are left: as many as fit are begun                         | fetching |
//! | fetching | their clusters were read, in the log's order, and pieces staged    | writing  |
//! | writing  | in the order of addresses, adjacent pieces joined; all are written | none     |
//!
//! A piece may not be in memory: it could not be read with its cluster, or found no room. It is read
//! separately. When a stripe's turn comes, the map decides which of its pieces are still to be written.

use crate::overlay::effect::{Effect, PartTag};
use crate::overlay::limits::{FETCHES, Packing, StripeDestage};
use crate::overlay::log::Log;
use crate::overlay::requests::{Owner, Requests};
use crate::overlay::{Extent, Kind};
use crate::policy::destage_order::{Destage, DestageOrder, Fetch};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;
use restripe_array::PAGE_SECTORS;

/// Where clusters and stripes are, and what of them is destaged.
struct Places {
    destage: StripeDestage,
    below: u64,
    /// The places in the log, the oldest first.
    clusters: Vec<Range<u64>>,
    /// The first of each segment, by its number.
    first_of: BTreeMap<u32, u32>,
}

/// A destage by stripes that is running.
pub(super) struct Stripes {
    places: Places,
    order: Destage,
    /// Begun, and being fetched.
    begun: Vec<u64>,
    /// Reads that wait for their turn, and those in flight.
    fetches: VecDeque<Fetch>,
    fetching: Vec<(PartTag, Fetch)>,
    /// The unwritten runs of stripes in memory, and the number of unwritten runs of each stripe.
    runs: VecDeque<(u64, Vec<Extent>)>,
    left: BTreeMap<u64, (u32, Range<u64>)>,
}

impl Places {
    /// Cuts the segments that have something to copy in clusters of this number of sectors.
    fn new(log: &Log, destage: StripeDestage, sectors: u64, below: u64) -> Places {
        let (mut clusters, mut first_of) = (Vec::new(), BTreeMap::new());
        for segment in log.space.to_copy() {
            let all = log.space.segment_range(segment);
            first_of.insert(segment, clusters.len() as u32);
            let starts = (all.start..all.end).step_by(sectors as usize);
            clusters.extend(starts.map(|start| start..all.end.min(start + sectors)));
        }
        Places {
            destage,
            below,
            clusters,
            first_of,
        }
    }

    fn stripe_of(&self, home: u64) -> u64 {
        home / self.destage.stripe_sectors
    }

    fn home_of(&self, stripe: u64) -> Range<u64> {
        let sectors = self.destage.stripe_sectors;
        stripe * sectors..(stripe + 1) * sectors
    }

    fn is_due(&self, extent: &Extent) -> bool {
        extent.sequence < self.below && extent.kind != Kind::Clean
    }

    /// The cluster of a sector of the log.
    fn cluster_of(&self, segment: u32, at: u64) -> u32 {
        let mut cluster = self.first_of[&segment];
        while self.clusters[cluster as usize].end <= at {
            cluster += 1;
        }
        cluster
    }

    /// The oldest records that memory has room for are destaged together: those below which.
    fn end_of_round(&self, log: &Log) -> u64 {
        let all = log.map.extents_from(0);
        let mut due: Vec<Extent> = all.filter(|one| self.is_due(one)).collect();
        due.sort_unstable_by_key(|extent| extent.sequence);
        let first = due.first().map(|extent| extent.sequence);
        let mut left = self.destage.pages;
        for extent in due {
            let pieces = self.pieces(log, extent);
            let wanted: u64 = pieces.iter().map(|(_, piece)| pages(piece)).sum();
            match left.checked_sub(wanted) {
                Some(rest) => left = rest,
                // All extents of one record are destaged together.
                None if Some(extent.sequence) > first => return extent.sequence,
                None => break,
            }
        }
        self.below
    }

    fn order(&self, log: &Log) -> Option<Destage> {
        let mut blocks: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        for extent in log.map.extents_from(0).filter(|one| self.is_due(one)) {
            for (cluster, piece) in self.pieces(log, extent) {
                let stripe = self.stripe_of(piece.home);
                *blocks.entry((cluster, stripe)).or_default() += pages(&piece);
            }
        }
        let entries = blocks.into_iter();
        let entries = entries.map(|((cluster, stripe), blocks)| (cluster, stripe, blocks));
        Destage::new(self.destage.order, self.destage.pages, entries)
    }

    /// An extent's pieces by cluster, each within one stripe.
    fn pieces(&self, log: &Log, extent: Extent) -> Vec<(u32, Extent)> {
        let mut pieces = Vec::new();
        let mut from = extent.home;
        while let Some(rest) = extent.within(from..extent.end()) {
            let segment = log.space.segment_of(rest.at);
            let cluster = self.cluster_of(segment, rest.at);
            let stripe = self.home_of(self.stripe_of(rest.home));
            let rest = rest.within_log(self.clusters[cluster as usize].clone());
            let piece = rest.and_then(|rest| rest.within(stripe));
            let piece = piece.expect("its first sector lies in both");
            from = piece.end();
            pieces.push((cluster, piece));
        }
        pieces
    }

    /// What is due of a stripe, by cluster.
    fn due_of(&self, log: &Log, stripe: u64) -> Vec<(u32, Extent)> {
        let home = self.home_of(stripe);
        let extents = log.map.extents_from(home.start);
        let extents = extents.take_while(|extent| extent.home < home.end);
        let due = extents.filter(|extent| self.is_due(extent));
        let parts = due.filter_map(|extent| extent.within(home.clone()));
        parts.flat_map(|part| self.pieces(log, part)).collect()
    }
}

impl Stripes {
    /// A destage of the records below, or of the oldest, and below which. `None` if memory is too small for
    /// some stripe.
    pub(super) fn begin(log: &Log, packing: Packing, below: u64) -> Option<(Stripes, u64)> {
        let record = u64::from(log.footprint(log.limits.record_sectors));
        let cluster = u64::from(packing.records) * record;
        let mut places = Places::new(log, packing.destage, cluster, below);
        if places.destage.order == DestageOrder::Rounds {
            places.below = places.end_of_round(log);
        }
        let (order, below) = (places.order(log)?, places.below);
        let stripes = Stripes {
            places,
            order,
            begun: Vec::new(),
            fetches: VecDeque::new(),
            fetching: Vec::new(),
            runs: VecDeque::new(),
            left: BTreeMap::new(),
        };
        Some((stripes, below))
    }

    pub(super) fn fetches(&self) -> bool {
        !self.fetching.is_empty() || !self.fetches.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.fetching.is_empty() && self.left.is_empty()
    }

    /// Whether nothing is in flight, and nothing is left to begin: nothing is once the destage has `failed`.
    pub(super) fn is_over(&self, failed: bool) -> bool {
        (self.order.is_over() || failed) && self.is_idle()
    }

    /// Begins as many batches, reads and writes as it can.
    pub(super) fn advance(&mut self, floor: &mut Requests) {
        while self.is_idle() && !self.order.is_over() {
            self.begin_batch(floor);
            self.begin_fetches(floor);
            self.begin_writing(floor);
        }
        self.begin_fetches(floor);
        self.begin_writing(floor);
    }

    /// Begins nothing more.
    pub(super) fn give_up(&mut self, floor: &mut Requests) {
        self.fetches.clear();
        for (stripe, _) in core::mem::take(&mut self.runs) {
            self.run_over(floor, stripe);
        }
    }

    /// Begins as many stripes as memory has room for.
    fn begin_batch(&mut self, floor: &mut Requests) {
        let again = self.order.read_again();
        while let Some(step) = self.order.next_stripe() {
            floor.counters.clusters_read += step.reads.len() as u64;
            for (cluster, stripe) in step.dropped {
                let log = self.places.clusters[cluster as usize].clone();
                let home = self.places.home_of(stripe);
                floor.emit(Effect::Forget { home, log });
            }
            self.begun.push(step.stripe);
            self.fetches.extend(step.reads);
        }
        floor.counters.clusters_reread += self.order.read_again() - again;
        let fetches = self.fetches.make_contiguous();
        fetches.sort_by_key(|fetch| fetch.cluster);
        self.begun.sort_unstable();
    }

    fn begin_fetches(&mut self, floor: &mut Requests) {
        while self.fetching.len() < FETCHES {
            let Some(fetch) = self.fetches.pop_front() else {
                return;
            };
            let wanted = fetch.keep.iter();
            let pieces = wanted.flat_map(|stripe| self.places.due_of(floor, *stripe));
            let here = pieces.filter(|(cluster, _)| *cluster == fetch.cluster);
            let pieces: Vec<Extent> = here.map(|(_, piece)| piece).collect();
            let serial = floor.begin_reading();
            let part = floor.begin_part(Owner::Fetch { serial });
            self.fetching.push((part, fetch));
            floor.emit(Effect::Fetch { part, pieces });
        }
    }

    pub(super) fn fetched(&mut self, tag: PartTag) {
        let mut fetching = self.fetching.iter();
        let index = fetching.position(|(part, _)| *part == tag);
        let (_, fetch) = self.fetching.remove(index.expect("it is in flight"));
        self.order.arrived(&fetch);
    }

    /// Memory has all stripes that were begun, or cannot have them: they are written.
    fn begin_writing(&mut self, floor: &mut Requests) {
        if self.fetches() {
            return;
        }
        for stripe in core::mem::take(&mut self.begun) {
            self.write_stripe(floor, stripe);
        }
    }

    /// Joins what is due of a stripe where it is adjacent in the main set.
    fn write_stripe(&mut self, floor: &mut Requests, stripe: u64) {
        let mut runs: Vec<Vec<Extent>> = Vec::new();
        let grain = u64::from(self.places.destage.run_sectors);
        for (_, piece) in self.places.due_of(floor, stripe) {
            let mut from = piece.home;
            while let Some(rest) = piece.within(from..(from / grain + 1) * grain) {
                from = rest.end();
                let joins = |run: &&mut Vec<Extent>| {
                    let last = run.last().expect("a run has a piece");
                    last.end() == rest.home && !rest.home.is_multiple_of(grain)
                };
                match runs.last_mut().filter(joins) {
                    Some(run) => run.push(rest),
                    None => runs.push(Vec::from([rest])),
                }
            }
        }
        if runs.is_empty() {
            return self.written(floor, stripe);
        }
        let first = runs[0][0].home;
        let last = runs.last().and_then(|run| run.last());
        let home = first..last.map_or(first, Extent::end);
        let left = runs.len() as u32;
        self.left.insert(stripe, (left, home.clone()));
        floor.emit(Effect::ExpectWrites { home, soon: true });
        self.runs.extend(runs.into_iter().map(|run| (stripe, run)));
    }

    /// The next run that is to be written, of a stripe in memory.
    pub(super) fn next_run(&mut self) -> Option<(u64, Vec<Extent>)> {
        self.runs.pop_front()
    }

    /// A run was written, or could not be.
    pub(super) fn run_ended(&mut self, floor: &mut Requests, stripe: u64, written: bool) {
        if self.run_over(floor, stripe) && written {
            self.written(floor, stripe);
        }
    }

    /// One run less of a stripe is to be written: whether it was the last.
    fn run_over(&mut self, floor: &mut Requests, stripe: u64) -> bool {
        let (left, home) = self.left.get_mut(&stripe).expect("it is being written");
        *left -= 1;
        if *left > 0 {
            return false;
        }
        let home = home.clone();
        self.left.remove(&stripe);
        floor.emit(Effect::ExpectWrites { home, soon: false });
        true
    }

    fn written(&mut self, floor: &mut Requests, stripe: u64) {
        self.order.written(stripe);
        let (home, log) = (self.places.home_of(stripe), 0..u64::MAX);
        floor.emit(Effect::Forget { home, log });
    }
}

fn pages(piece: &Extent) -> u64 {
    u64::from(piece.sectors).div_ceil(PAGE_SECTORS)
}
