//! Going home stripe by stripe, of a log in which writes were gathered: what lies in pieces all over it is read by clusters into
//! memory, and each stripe of home is written when all there is of it is there (RERAID, section 3.4).
//!
//! In which order, and what stays in memory, [`Destage`] says. So many stripes are begun at once as memory has room for, for a drive that
//! is asked for the log and for home in turns does little else than seek:
//!
//! | batch    | cause                                                            | next     |
//! |----------|------------------------------------------------------------------|----------|
//! | none     | stripes are left: as many as fit are begun                       | fetching |
//! | fetching | their clusters were read, in the log's order, and pieces kept    | writing  |
//! | writing  | in home's order, joined where they lie side by side, all is home | none     |
//!
//! What is kept is a help, no promise: a piece that could not be read with its cluster, or found no memory, is read for itself when
//! its turn comes. And what users write meanwhile is no part of it any more: the map tells, whenever a stripe's turn comes.

use super::{Effect, Overlay, Owner, PartTag};
use crate::overlay::{Extent, Kind};
use crate::policy::destage::{Destage, Fetch, Order};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;
use restripe_array::{PAGE_SECTORS, RequestError};

/// How what was gathered goes home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Homeward {
    pub order: Order,
    /// Sectors of a stripe of home.
    pub stripe_sectors: u64,
    /// Sectors that are written home at once, at most and from a multiple on.
    pub run_sectors: u32,
    /// Pages of memory for what was read and is not home yet.
    pub pages: u64,
}

/// Clusters that are read at once.
pub(crate) const FETCHES: usize = 4;

/// Where clusters and stripes lie, and what of them goes home.
struct Places {
    homeward: Homeward,
    below: u64,
    /// In the log, the oldest first.
    clusters: Vec<Range<u64>>,
    /// The first of each segment, by its number.
    first_of: BTreeMap<u32, u32>,
}

/// A way home that is under way.
pub(super) struct Stripes {
    places: Places,
    order: Destage,
    /// Begun, and being fetched.
    begun: Vec<u64>,
    /// Reads whose turn has yet to come, and those under way.
    fetches: VecDeque<Fetch>,
    fetching: Vec<(PartTag, Fetch)>,
    /// Of stripes that are in memory: what has yet to be written, and how much of each is not home.
    runs: VecDeque<(u64, Vec<Extent>)>,
    left: BTreeMap<u64, (u32, Range<u64>)>,
}

impl Places {
    fn stripe_of(&self, home: u64) -> u64 {
        home / self.homeward.stripe_sectors
    }

    fn home_of(&self, stripe: u64) -> Range<u64> {
        let sectors = self.homeward.stripe_sectors;
        stripe * sectors..(stripe + 1) * sectors
    }

    fn is_due(&self, extent: &Extent) -> bool {
        extent.sequence < self.below && extent.kind != Kind::Clean
    }

    /// The cluster that has a sector of the log.
    fn cluster_of(&self, segment: u32, at: u64) -> u32 {
        let mut cluster = self.first_of[&segment];
        while self.clusters[cluster as usize].end <= at {
            cluster += 1;
        }
        cluster
    }
}

impl Stripes {
    pub(super) fn fetches(&self) -> bool {
        !self.fetching.is_empty() || !self.fetches.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.fetching.is_empty() && self.left.is_empty()
    }
}

impl Overlay {
    /// Begins a way home by stripes, of the records below or of the oldest of them: below which. None if nothing was gathered here,
    /// or memory is too little for some stripe.
    pub(super) fn begin_by_stripes(&mut self, below: u64) -> Option<u64> {
        let packing = self.pack.as_ref()?.packing();
        let record = u64::from(self.footprint(self.limits.record_sectors));
        let mut places = self.places(packing.homeward, u64::from(packing.records) * record, below);
        if places.homeward.order == Order::Rounds {
            places.below = self.end_of_round(&places);
        }
        let (order, below) = (self.order_of(&places)?, places.below);
        self.stripes = Some(Stripes {
            places,
            order,
            begun: Vec::new(),
            fetches: VecDeque::new(),
            fetching: Vec::new(),
            runs: VecDeque::new(),
            left: BTreeMap::new(),
        });
        Some(below)
    }

    /// The oldest records that memory has room for go home together: those below which.
    fn end_of_round(&self, places: &Places) -> u64 {
        let all = self.map.extents_from(0);
        let mut due: Vec<Extent> = all.filter(|one| places.is_due(one)).collect();
        due.sort_unstable_by_key(|extent| extent.sequence);
        let first = due.first().map(|extent| extent.sequence);
        let mut left = places.homeward.pages;
        for extent in due {
            let pieces = self.pieces(places, extent);
            let wanted: u64 = pieces.iter().map(|(_, piece)| pages(piece)).sum();
            match left.checked_sub(wanted) {
                Some(rest) => left = rest,
                // What one record has of home goes home at once.
                None if Some(extent.sequence) > first => return extent.sequence,
                None => break,
            }
        }
        places.below
    }

    /// Cuts the segments of which something has to be copied in clusters of so many sectors.
    fn places(&self, homeward: Homeward, sectors: u64, below: u64) -> Places {
        let (mut clusters, mut first_of) = (Vec::new(), BTreeMap::new());
        for segment in self.space.to_copy() {
            let all = self.space.segment_range(segment);
            first_of.insert(segment, clusters.len() as u32);
            let starts = (all.start..all.end).step_by(sectors as usize);
            clusters.extend(starts.map(|start| start..all.end.min(start + sectors)));
        }
        Places {
            homeward,
            below,
            clusters,
            first_of,
        }
    }

    fn order_of(&self, places: &Places) -> Option<Destage> {
        let mut blocks: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        for extent in self.map.extents_from(0).filter(|one| places.is_due(one)) {
            for (cluster, piece) in self.pieces(places, extent) {
                let stripe = places.stripe_of(piece.home);
                *blocks.entry((cluster, stripe)).or_default() += pages(&piece);
            }
        }
        let entries = blocks.into_iter();
        let entries = entries.map(|((cluster, stripe), blocks)| (cluster, stripe, blocks));
        Destage::new(places.homeward.order, places.homeward.pages, entries)
    }

    /// An extent's pieces by cluster, each within one stripe.
    fn pieces(&self, places: &Places, extent: Extent) -> Vec<(u32, Extent)> {
        let mut pieces = Vec::new();
        let mut from = extent.home;
        while let Some(rest) = extent.within(from..extent.end()) {
            let segment = self.space.segment_of(rest.at);
            let cluster = places.cluster_of(segment, rest.at);
            let stripe = places.home_of(places.stripe_of(rest.home));
            let rest = rest.within_log(places.clusters[cluster as usize].clone());
            let piece = rest.and_then(|rest| rest.within(stripe));
            let piece = piece.expect("its first sector lies in both");
            from = piece.end();
            pieces.push((cluster, piece));
        }
        pieces
    }

    /// What is due of a stripe, by cluster.
    fn due_of(&self, places: &Places, stripe: u64) -> Vec<(u32, Extent)> {
        let home = places.home_of(stripe);
        let extents = self.map.extents_from(home.start);
        let extents = extents.take_while(|extent| extent.home < home.end);
        let due = extents.filter(|extent| places.is_due(extent));
        let parts = due.filter_map(|extent| extent.within(home.clone()));
        parts.flat_map(|part| self.pieces(places, part)).collect()
    }

    /// Begins what may be begun of a way home by stripes.
    pub(super) fn go_by_stripes(&mut self) {
        let Some(mut stripes) = self.stripes.take() else {
            return;
        };
        let home = self.home.expect("something goes home");
        if home.failed {
            stripes.fetches.clear();
            for (stripe, _) in core::mem::take(&mut stripes.runs) {
                self.run_over(&mut stripes, stripe);
            }
        } else {
            while stripes.is_idle() && !stripes.order.is_over() {
                self.begin_batch(&mut stripes);
                self.begin_fetches(&mut stripes);
                self.begin_writing(&mut stripes);
            }
            self.begin_fetches(&mut stripes);
            self.begin_writing(&mut stripes);
            self.begin_runs(&mut stripes);
        }
        let over = stripes.order.is_over() || home.failed;
        let over = over && stripes.is_idle();
        self.stripes = Some(stripes);
        match over {
            true if home.failed => self.end_way_home(false),
            true => self.flush_home(),
            false => {}
        }
    }

    /// Begins as many stripes as there is memory for.
    fn begin_batch(&mut self, stripes: &mut Stripes) {
        let again = stripes.order.read_again();
        while let Some(step) = stripes.order.next_stripe() {
            self.counters.clusters_read += step.reads.len() as u64;
            for (cluster, stripe) in step.dropped {
                let log = stripes.places.clusters[cluster as usize].clone();
                let home = stripes.places.home_of(stripe);
                self.effects.push_back(Effect::Forget { home, log });
            }
            stripes.begun.push(step.stripe);
            stripes.fetches.extend(step.reads);
        }
        self.counters.clusters_reread += stripes.order.read_again() - again;
        let fetches = stripes.fetches.make_contiguous();
        fetches.sort_by_key(|fetch| fetch.cluster);
        stripes.begun.sort_unstable();
    }

    /// All stripes that were begun are in memory, or cannot be: they are written.
    fn begin_writing(&mut self, stripes: &mut Stripes) {
        if stripes.fetches() {
            return;
        }
        for stripe in core::mem::take(&mut stripes.begun) {
            self.write_stripe(stripes, stripe);
        }
    }

    /// Joins what is due of a stripe where home has it side by side.
    fn write_stripe(&mut self, stripes: &mut Stripes, stripe: u64) {
        let mut runs: Vec<Vec<Extent>> = Vec::new();
        let grain = u64::from(stripes.places.homeward.run_sectors);
        for (_, piece) in self.due_of(&stripes.places, stripe) {
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
            return self.stripe_home(stripes, stripe);
        }
        let first = runs[0][0].home;
        let last = runs.last().and_then(|run| run.last());
        let home = first..last.map_or(first, Extent::end);
        let left = runs.len() as u32;
        stripes.left.insert(stripe, (left, home.clone()));
        let soon = true;
        self.effects.push_back(Effect::Foresee { home, soon });
        stripes
            .runs
            .extend(runs.into_iter().map(|run| (stripe, run)));
    }

    fn stripe_home(&mut self, stripes: &mut Stripes, stripe: u64) {
        stripes.order.written(stripe);
        let (home, log) = (stripes.places.home_of(stripe), 0..u64::MAX);
        self.effects.push_back(Effect::Forget { home, log });
    }

    fn begin_fetches(&mut self, stripes: &mut Stripes) {
        while stripes.fetching.len() < FETCHES {
            let Some(fetch) = stripes.fetches.pop_front() else {
                return;
            };
            let wanted = fetch.keep.iter();
            let pieces = wanted.flat_map(|stripe| self.due_of(&stripes.places, *stripe));
            let here = pieces.filter(|(cluster, _)| *cluster == fetch.cluster);
            let pieces: Vec<Extent> = here.map(|(_, piece)| piece).collect();
            let serial = self.begin_reading();
            let part = self.begin_part(Owner::Fetch { serial });
            stripes.fetching.push((part, fetch));
            self.effects.push_back(Effect::Fetch { part, pieces });
        }
    }

    fn begin_runs(&mut self, stripes: &mut Stripes) {
        while self
            .home
            .is_some_and(|home| home.copies < self.limits.copies)
        {
            let Some((stripe, extents)) = stripes.runs.pop_front() else {
                return;
            };
            self.begin_copy_home(extents, Some(stripe));
        }
    }

    pub(super) fn fetched(&mut self, tag: PartTag, serial: u64) {
        self.end_reading(serial);
        let stripes = self.stripes.as_mut().expect("it goes home by stripes");
        let mut fetching = stripes.fetching.iter();
        let index = fetching.position(|(part, _)| *part == tag);
        let (_, fetch) = stripes.fetching.remove(index.expect("it is under way"));
        stripes.order.arrived(&fetch);
    }

    /// A run is home, or could not be brought there.
    pub(super) fn run_ended(&mut self, stripe: u64, result: Result<(), RequestError>) {
        let mut stripes = self.stripes.take().expect("it goes home by stripes");
        if self.run_over(&mut stripes, stripe) && result.is_ok() {
            self.stripe_home(&mut stripes, stripe);
        }
        self.stripes = Some(stripes);
    }

    /// One run less of a stripe is to be written: whether it was the last.
    fn run_over(&mut self, stripes: &mut Stripes, stripe: u64) -> bool {
        let (left, home) = stripes.left.get_mut(&stripe).expect("it is being written");
        *left -= 1;
        if *left > 0 {
            return false;
        }
        let (home, soon) = (home.clone(), false);
        stripes.left.remove(&stripe);
        self.effects.push_back(Effect::Foresee { home, soon });
        true
    }
}

fn pages(piece: &Extent) -> u64 {
    u64::from(piece.sectors).div_ceil(PAGE_SECTORS)
}
