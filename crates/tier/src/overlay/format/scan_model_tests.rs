//! Compares the scan of a log with a model that records all writes: through crashes that leave any part of
//! the unflushed writes, also in the middle of a start, again and again.

use super::record::encode;
use super::*;
use crate::overlay::{Extent, Kind};
use alloc::vec;
use alloc::vec::Vec;
use restripe_array::meta::crc::crc32c;
use restripe_array::{PAGE_BYTES, PAGE_SECTORS, Page, zeroed_page};
use restripe_format::meta::random::Random;

const OWNER: LogOwner = LogOwner {
    array: Uuid([9; 16]),
    epoch: 5,
};
const START: u64 = 800;
const SEGMENT_SECTORS: u32 = 64;

fn layout(segments: u64) -> LogLayout {
    let region = LogRegion {
        start: START,
        sectors: segments.div_ceil(248) * 16 + segments * u64::from(SEGMENT_SECTORS),
    };
    region.cut(SEGMENT_SECTORS).expect("room")
}

/// The log set: pages, and those that a crash may undo or tear.
#[derive(Clone)]
struct Disk {
    pages: Vec<Page>,
    cached: Vec<(u64, Page)>,
}

impl Disk {
    fn new(layout: &LogLayout) -> Disk {
        let end = layout.sector(layout.segment_start(layout.segments()));
        Disk {
            pages: vec![zeroed_page(); ((end - START) / PAGE_SECTORS) as usize],
            cached: Vec::new(),
        }
    }

    fn place(sector: u64) -> usize {
        ((sector - START) / PAGE_SECTORS) as usize
    }

    fn write(&mut self, sector: u64, page: Page) {
        self.cached.push((sector, page));
    }

    fn page(&self, sector: u64) -> &Page {
        assert!(self.cached.is_empty(), "only what is there for good");
        &self.pages[Disk::place(sector)]
    }

    fn flush(&mut self) {
        for (sector, page) in self.cached.drain(..) {
            self.pages[Disk::place(sector)] = page;
        }
    }

    fn crash(&mut self, random: &mut Random) {
        let lost = random.below(4);
        for (sector, page) in self.cached.drain(..) {
            let old = &mut self.pages[Disk::place(sector)];
            match random.below(8) {
                0 => tear(random, old, &page),
                step if step > lost * 2 => *old = page,
                _ => {}
            }
        }
    }
}

/// Any of the sectors are new.
fn tear(random: &mut Random, old: &mut Page, new: &Page) {
    for sector in 0..8 {
        if random.flag() {
            let bytes = sector * 512..(sector + 1) * 512;
            old[bytes.clone()].copy_from_slice(&new[bytes]);
        }
    }
}

/// A record as it was written.
#[derive(Clone)]
struct Written {
    sequence: u64,
    segment: u32,
    /// Place, content, and the bytes of it that are not padding.
    pages: Vec<(u64, Page, usize)>,
    extents: Vec<Extent>,
}

/// An anchor as it was written, with the obsolete records of its segments in the model.
struct Anchored {
    index: u32,
    sector: u64,
    page: Page,
    obsolete: Vec<u64>,
}

/// Counts the cases that a test has met, so that it cannot pass without them.
#[derive(Default, Debug)]
struct Met {
    starts: u64,
    /// Crashes that tore a record with sound ones behind it.
    gaps: u64,
    /// Starts that a crash interrupted.
    broken_off: u64,
    reused: u64,
    found: u64,
}

struct World {
    random: Random,
    disk: Disk,
    table: AnchorTable,
    /// Segments that are written, of a log that may have more.
    usable: Vec<u32>,
    /// The place of the next record.
    open: Option<(u32, u64)>,
    free: Vec<u32>,
    /// Obsolete as a whole, but not yet durably.
    freed: Vec<u32>,
    next: u64,
    /// All below is flushed.
    flushed: u64,
    highest: u64,
    /// By sequence: records that were written and can be valid.
    records: Vec<Written>,
    obsolete: Vec<u64>,
    anchored: Vec<Anchored>,
    under_way: Vec<u32>,
    met: Met,
}

impl World {
    fn new(seed: u64, segments: u64, usable: Vec<u32>) -> World {
        let layout = layout(segments);
        let mut world = World {
            random: Random::new(seed),
            disk: Disk::new(&layout),
            table: AnchorTable::new(OWNER, layout),
            open: None,
            free: usable.clone(),
            usable,
            freed: Vec::new(),
            next: 1,
            flushed: 1,
            highest: 0,
            records: Vec::new(),
            obsolete: vec![0; segments as usize],
            anchored: Vec::new(),
            under_way: Vec::new(),
            met: Met::default(),
        };
        world.write_anchors();
        world.flush();
        world
    }

    fn step(&mut self) {
        match self.random.below(24) {
            0..=12 => self.append(),
            13..=14 => self.flush(),
            15..=17 => self.void_some(),
            18 => self.void_segment(),
            19 => self.make_all_obsolete(),
            20 => self.close(),
            21..=22 => self.write_anchors(),
            _ => self.crash_and_start(),
        }
    }

    fn append(&mut self) {
        let sectors = 1 + self.random.below(20) as u32;
        let total = restripe_array::meta::log::total_sectors(sectors);
        let layout = *self.table.layout();
        let end = |segment: u32| layout.segment_start(segment + 1);
        let (segment, at) = match self
            .open
            .filter(|(segment, at)| at + total <= end(*segment))
        {
            Some(open) => open,
            None if self.free.is_empty() => return,
            None => {
                let index = self.random.below(self.free.len() as u64) as usize;
                let segment = self.free.swap_remove(index);
                self.met.reused += u64::from(self.obsolete[segment as usize] > 0);
                (segment, layout.segment_start(segment))
            }
        };
        assert!(self.table.counts(segment, self.next), "a segment to write");
        self.open = Some((segment, at + total));
        let record = self.any_record(segment, at, sectors);
        for (sector, page, _) in &record.pages {
            self.disk.write(*sector, page.clone());
        }
        self.highest = self.next;
        self.next += 1;
        self.records.push(record);
    }

    fn any_record(&mut self, segment: u32, at: u64, sectors: u32) -> Written {
        let sequence = self.next;
        let mut payload = vec![0; sectors as usize * 512];
        payload.fill_with(|| self.random.number() as u8);
        let extents = self.any_extents(at + PAGE_SECTORS, sectors);
        let header = RecordHeader {
            sequence,
            durable: self.flushed - self.random.below(2) * self.random.below(self.flushed),
            at,
            payload_sectors: sectors,
            payload_crc: crc32c(&payload),
        };
        let mut first = zeroed_page();
        encode(&OWNER, &header, &extents, &mut first);
        let mut sector = self.table.layout().sector(at);
        let mut pages = vec![(sector, first, PAGE_BYTES)];
        for bytes in payload.chunks(PAGE_BYTES) {
            let mut page = zeroed_page();
            page[..bytes.len()].copy_from_slice(bytes);
            sector += PAGE_SECTORS;
            pages.push((sector, page, bytes.len()));
        }
        Written {
            sequence,
            segment,
            pages,
            extents,
        }
    }

    fn any_extents(&mut self, mut at: u64, mut sectors: u32) -> Vec<Extent> {
        let mut extents = Vec::new();
        while sectors > 0 {
            let extent = Extent {
                home: extents.len() as u64 * 100 + self.random.below(50),
                sectors: 1 + self.random.below(u64::from(sectors)) as u32,
                at,
                sequence: self.next,
                kind: Kind::ALL[self.random.below(3) as usize],
            };
            at = extent.log_end();
            sectors -= extent.sectors;
            extents.push(extent);
        }
        extents
    }

    fn flush(&mut self) {
        self.disk.flush();
        self.flushed = self.next;
        for index in self.under_way.drain(..) {
            self.table.written(index);
        }
        if self.table.changed().is_none() {
            self.free.append(&mut self.freed);
        }
    }

    fn write_anchors(&mut self) {
        while let Some(index) = self.table.changed() {
            let mut page = zeroed_page();
            let sector = self.table.encode(index, &mut page);
            self.under_way.push(index);
            self.disk.write(sector, page.clone());
            self.anchored.push(Anchored {
                index,
                sector,
                page,
                obsolete: self.obsolete.clone(),
            });
        }
    }

    fn any_segment(&mut self) -> u32 {
        self.usable[self.random.below(self.usable.len() as u64) as usize]
    }

    fn is_used(&self, segment: u32) -> bool {
        !self.free.contains(&segment) && !self.freed.contains(&segment)
    }

    fn last_of(&self, segment: u32) -> Option<u64> {
        let mut records = self.records.iter().rev();
        let last = records.find(|record| record.segment == segment)?;
        Some(last.sequence)
    }

    /// Some records of a segment are destaged, perhaps of the one that is being written.
    fn void_some(&mut self) {
        let segment = self.any_segment();
        if let Some(last) = self.last_of(segment)
            && self.is_used(segment)
        {
            let below = (last + 1 - self.random.below(4).min(last)).min(self.flushed);
            let is_open = self.open.is_some_and(|(open, _)| open == segment);
            if below <= last || is_open {
                self.make_obsolete(segment, below);
            }
        }
    }

    fn void_segment(&mut self) {
        let segment = self.any_segment();
        let is_open = self.open.is_some_and(|(open, _)| open == segment);
        if let Some(last) = self.last_of(segment)
            && self.is_used(segment)
            && !is_open
            && last < self.flushed
        {
            self.make_obsolete(segment, last + 1);
            self.freed.push(segment);
        }
    }

    /// All flushed records are destaged, or the oldest of them.
    fn make_all_obsolete(&mut self) {
        let below = self.flushed - self.random.below(6).min(self.flushed);
        self.table.flushed(below);
        self.table.make_all_obsolete(below);
        for obsolete in &mut self.obsolete {
            *obsolete = below.max(*obsolete);
        }
        for segment in self.usable.clone() {
            let is_open = self.open.is_some_and(|(open, _)| open == segment);
            let is_dead = self.last_of(segment).is_some_and(|last| last < below);
            if self.is_used(segment) && is_dead && !is_open {
                self.freed.push(segment);
            }
        }
    }

    fn make_obsolete(&mut self, segment: u32, below: u64) {
        self.table.flushed(below);
        self.table.make_obsolete(segment, below);
        let obsolete = &mut self.obsolete[segment as usize];
        *obsolete = below.max(*obsolete);
    }

    fn close(&mut self) {
        let segment = self.any_segment();
        let is_open = self.open.is_some_and(|(open, _)| open == segment);
        let is_partly_obsolete = |last: u64| self.obsolete[segment as usize] <= last;
        if let Some(last) = self.last_of(segment)
            && self.is_used(segment)
            && !is_open
            && last < self.flushed
            && is_partly_obsolete(last)
        {
            self.table.flushed(last + 1);
            self.table.close(segment, last + 1);
        }
    }

    fn crash_and_start(&mut self) {
        let mut broken_off = true;
        while broken_off {
            self.disk.crash(&mut self.random);
            broken_off = self.start().is_none();
            self.met.broken_off += u64::from(broken_off);
        }
    }

    /// `None`: the power failed during the start.
    fn start(&mut self) -> Option<()> {
        self.met.starts += 1;
        self.expect();
        let recovered = self.scan();
        self.check(&recovered);
        self.table = recovered.table;
        self.next = recovered.next;
        self.settle()?;
        self.table.begin(recovered.next);
        self.settle()?;
        self.flushed = self.next;
        self.open = None;
        self.freed.clear();
        self.free = self.usable.clone();
        self.free
            .retain(|segment| !recovered.segments.contains(segment));
        Some(())
    }

    /// Writes what is changed and flushes it, unless the power fails.
    fn settle(&mut self) -> Option<()> {
        self.write_anchors();
        if self.random.below(4) == 0 {
            return None;
        }
        self.disk.flush();
        for index in self.under_way.drain(..) {
            self.table.written(index);
        }
        Some(())
    }

    /// The model's records become the valid ones: by the writes that reached the disk only.
    fn expect(&mut self) {
        self.under_way.clear();
        let reached = |disk: &Disk, record: &Written| {
            let mut pages = record.pages.iter();
            pages.all(|(sector, page, bytes)| disk.page(*sector)[..*bytes] == page[..*bytes])
        };
        let torn = self
            .records
            .iter()
            .position(|record| record.sequence >= self.flushed && !reached(&self.disk, record));
        if let Some(torn) = torn {
            let mut behind = self.records[torn..].iter();
            self.met.gaps += u64::from(behind.any(|record| reached(&self.disk, record)));
            self.records.truncate(torn);
        }
        self.flushed = self
            .records
            .last()
            .map_or(self.flushed, |last| self.flushed.max(last.sequence + 1));
        self.obsolete = self.void_on_disk();
        let obsolete = &self.obsolete;
        self.records
            .retain(|record| record.sequence >= obsolete[record.segment as usize]);
    }

    /// By the newest anchors that reached the disk.
    fn void_on_disk(&mut self) -> Vec<u64> {
        let disk = &self.disk;
        self.anchored
            .retain(|anchor| *disk.page(anchor.sector) == anchor.page);
        let owner = |segment: usize| segment as u32 / 248;
        let obsolete = |segment: usize| {
            let mut anchors = self.anchored.iter().rev();
            let newest = anchors.find(|anchor| anchor.index == owner(segment));
            newest.expect("one of two is whole").obsolete[segment]
        };
        (0..self.obsolete.len()).map(obsolete).collect()
    }

    fn scan(&mut self) -> Recovered {
        let layout = *self.table.layout();
        let homes: Vec<Option<Page>> = (0..2 * u64::from(layout.anchors()))
            .map(|home| layout.anchor_home(home as u32 / 2, home % 2))
            .map(|sector| Some(self.disk.page(sector).clone()))
            .collect();
        let table = AnchorTable::load(OWNER, layout, &homes).expect("sound anchors");
        let mut scan = Scan::new(table);
        scan.look_behind(SEGMENT_SECTORS);
        run(scan, &self.disk, &mut self.random).expect("a log of ours")
    }

    fn check(&mut self, recovered: &Recovered) {
        let expected: Vec<Extent> = self
            .records
            .iter()
            .flat_map(|record| record.extents.clone())
            .collect();
        assert_eq!(recovered.extents, expected);
        let mut segments: Vec<u32> = self.records.iter().map(|record| record.segment).collect();
        let mut seen = Vec::new();
        segments.retain(|segment| {
            let is_new = !seen.contains(segment);
            seen.push(*segment);
            is_new
        });
        assert_eq!(recovered.segments, segments);
        assert!(recovered.next > self.highest, "no sequence twice");
        assert_eq!(
            (&recovered.damage[..], &recovered.unread[..]),
            (&[][..], &[][..])
        );
        self.met.found += self.records.len() as u64;
    }
}

/// Carries out a scan's reads, some at a time, and answers in any order.
fn run(mut scan: Scan, disk: &Disk, random: &mut Random) -> Result<Recovered, MetaError> {
    let mut reads: Vec<Read> = Vec::new();
    while !scan.is_done() {
        if random.flag()
            && let Some(read) = scan.next_read()
        {
            reads.push(read);
        } else if !reads.is_empty() {
            let index = random.below(reads.len() as u64) as usize;
            answer(&mut scan, disk, reads.swap_remove(index));
        }
    }
    assert_eq!(scan.next_read(), None);
    scan.finish()
}

fn answer(scan: &mut Scan, disk: &Disk, read: Read) {
    let layout = *scan.layout();
    match read {
        Read::Header { at } => scan.header(at, Some(disk.page(layout.sector(at)))),
        Read::Payload(record) => {
            let bytes: Vec<u8> = (record.payload_at()..layout.end_of(&record))
                .step_by(PAGE_SECTORS as usize)
                .flat_map(|at| disk.page(layout.sector(at)).to_vec())
                .collect();
            let crc = crc32c(&bytes[..record.payload_sectors as usize * 512]);
            let found = match crc == record.payload_crc {
                true => PayloadFound::Sound,
                false => PayloadFound::Torn,
            };
            scan.payload(record.sequence, found);
        }
    }
}

fn live(seeds: core::ops::Range<u64>, steps: u64, segments: u64, usable: &[u32]) -> Met {
    let mut met = Met::default();
    for seed in seeds {
        let mut world = World::new(seed, segments, usable.to_vec());
        for _ in 0..steps {
            world.step();
        }
        met.starts += world.met.starts;
        met.gaps += world.met.gaps;
        met.broken_off += world.met.broken_off;
        met.reused += world.met.reused;
        met.found += world.met.found;
    }
    met
}

/// Exactly those records are valid that reached the disk before the first that did not, and are not obsolete,
/// whatever else the log has from before any number of crashes.
#[test]
fn what_counts_is_found_after_any_crash() {
    let met = live(0..300, 600, 4, &[0, 1, 2, 3]);
    assert!(met.starts > 5000 && met.found > 10_000, "{met:?}");
    assert!(met.gaps > 300 && met.broken_off > 1000, "{met:?}");
    assert!(met.reused > 5000, "{met:?}");
}

/// A start has several anchors to write, of which a crash may leave any.
#[test]
fn what_counts_is_found_with_several_anchors() {
    let met = live(1000..1020, 600, 252, &[0, 1, 247, 248, 249, 251]);
    assert!(met.gaps > 30 && met.broken_off > 50, "{met:?}");
}
