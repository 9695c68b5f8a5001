//! Finds the valid records of a log after a crash, by reading it. It does no I/O of its own.
//!
//! | phase    | reads                                                | then     |
//! |----------|------------------------------------------------------|----------|
//! | headers  | the first page of each segment, and the page behind each record found | behind |
//! | behind   | where a chain ends and its next sequence is nowhere else, the pages that its next record would have filled | payloads |
//! | payloads | those of the records from D on, up to the first missing sequence; near repaired places, of all records | done |
//!
//! A missing header ends a chain like the log's end does. But if a valid record's header is found behind it,
//! within a record's length, and all records below that are recorded as flushed, a flushed record is missing,
//! and that is damage. A crash leaves no such state, nor does a segment that is used again: its anchor has
//! made its records obsolete.
//!
//! The [format](super) defines which records are valid. Within a segment the chain of records ends at the
//! first page that is no header of this log and place with a sequence above the one before. The reads of a
//! phase may be in flight all at once, and answers come in any order: the outcome is the same.

use super::anchor::SEGMENTS_PER_PAGE;
use super::record::{self, RecordHeader, RecordView};
use super::{AnchorTable, LogLayout, LogOwner, check_found};
use crate::overlay::Extent;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use restripe_array::meta::MetaError;
use restripe_array::{PAGE_SECTORS, Page, zeroed_page};

/// The next read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// The page at a sector of the log, for [`Scan::header`].
    Header { at: u64 },
    /// The payload of a record, for [`Scan::payload`].
    Payload(RecordHeader),
}

/// The result of reading a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PayloadFound {
    /// Its checksum is right.
    Sound,
    /// Its checksum is wrong: the crash came before it was written.
    Torn,
    /// Some of it cannot be read: whether it was written is unknown.
    Unreadable,
}

/// Records may be lost with their data, or obsolete records may be valid. A start should be refused, unless
/// it is configured to continue nevertheless.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Damage {
    pub segment: u32,
    /// The sector of the log without a header, or without its own; of an anchor, the first that it describes.
    pub at: u64,
    pub cause: Cause,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cause {
    /// One place of the anchor of this segment and those behind it cannot be read, and may have had the newer
    /// version: records that it made obsolete may be among the valid ones.
    Anchor { index: u32 },
    /// The page cannot be read. Whether a record begins there is unknown.
    Unreadable,
    /// The segment was closed behind its records, and some from this sequence on, below `end`, are missing.
    Missing { from: u64, end: u64 },
    /// Another record has the same sequence. This one is left out.
    Twice { sequence: u64 },
}

/// The result of a scan.
pub struct Recovered {
    /// The anchors. In this order: flush the records that were found; write the anchors that are
    /// [changed](AnchorTable::changed), and flush them; [begin](AnchorTable::begin) with `next`, and again
    /// write and flush those that are changed; append.
    pub table: AnchorTable,
    /// The valid extents, of every kind, in the order in which the map takes them. The caller leaves the
    /// clean ones out: a crash may have undone their bytes in the main set ([`crate::overlay`], rule 7 of its
    /// machine).
    pub extents: Vec<Extent>,
    /// Valid records whose payload could not be read: extents that the map still has of these sequences in
    /// the end are lost. Rising.
    pub unread: Vec<u64>,
    /// The segments with valid records, the oldest first. The others are free.
    pub segments: Vec<u32>,
    /// The sequence of the next record: above everything that was ever written.
    pub next: u64,
    /// By segment and place.
    pub damage: Vec<Damage>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Headers,
    Behind,
    Payloads,
}

/// How far the chain of a segment is known.
#[derive(Clone, Copy, Default)]
struct Chain {
    /// The sequence of its last record; 0 before the first.
    last: u64,
    /// Its next page is being read, or to be read.
    open: bool,
    /// The page behind its last record, if that is no header.
    broken: Option<u64>,
    /// Its payloads are checked, even those that are known to be flushed.
    mistrusted: bool,
}

/// A record that its anchor does not exclude.
struct Found {
    header: RecordHeader,
    /// The indices of its extents among the scan's.
    extents: Range<usize>,
    unread: bool,
}

pub struct Scan {
    table: AnchorTable,
    phase: Phase,
    /// Reads to be started.
    reads: VecDeque<Read>,
    under_way: usize,
    /// By segment.
    chains: Vec<Chain>,
    records: Vec<Found>,
    extents: Vec<Extent>,
    /// The highest *durable* found.
    durable: u64,
    /// The highest *durable* of a record: an anchor's may be above records that a start had yet to cut off.
    recorded: u64,
    /// The highest sequence found.
    highest: u64,
    /// The first sequence from which on no record is valid, as far as is known: in the second phase.
    gap: u64,
    /// Records from this sequence on are not valid in any case.
    cut: u64,
    /// The sectors of a record at most; 0 until it is set.
    longest: u32,
    /// Headers found behind broken chains: their place, and their sequence.
    behind: Vec<(u64, u64)>,
    damage: Vec<Damage>,
}

impl Scan {
    pub fn new(table: AnchorTable) -> Scan {
        let segments = table.layout().segments();
        let mut scan = Scan {
            durable: table.durable(),
            phase: Phase::Headers,
            reads: VecDeque::new(),
            under_way: 0,
            chains: alloc::vec![Chain::default(); segments as usize],
            records: Vec::new(),
            extents: Vec::new(),
            recorded: 0,
            highest: 0,
            gap: u64::MAX,
            cut: u64::MAX,
            longest: 0,
            behind: Vec::new(),
            damage: Vec::new(),
            table,
        };
        for index in scan.table.doubted().to_vec() {
            let segment = index * SEGMENTS_PER_PAGE as u32;
            let at = scan.table.layout().segment_start(segment);
            scan.harm(segment, at, Cause::Anchor { index });
        }
        for segment in 0..segments {
            if !scan.table.is_obsolete(segment) {
                let at = scan.table.layout().segment_start(segment);
                scan.read_header(segment, at);
            }
        }
        scan
    }

    /// Records from this sequence on are treated as invalid: their data is lost, and known to be.
    pub fn cut_at(&mut self, sequence: u64) {
        self.cut = sequence;
    }

    /// Sets the largest number of sectors of a record, its header included: up to this distance behind a
    /// chain's end the scan checks whether a record is missing.
    pub(crate) fn look_behind(&mut self, longest: u32) {
        self.longest = longest;
    }

    /// The first sequence from which on no record is valid. Known once the scan is done.
    pub fn gap(&self) -> u64 {
        self.gap
    }

    /// The first valid record whose payload could not be read.
    pub(crate) fn unread_from(&self) -> Option<u64> {
        let counts = |found: &&Found| found.unread && found.header.sequence < self.gap;
        let found = self.records.iter().find(counts);
        found.map(|found| found.header.sequence)
    }

    /// Whether a record from elsewhere may be written into the log at its place: within a segment in which it
    /// is valid, and over no valid record.
    pub fn has_place(&self, record: &RecordHeader) -> bool {
        let layout = self.table.layout();
        let grain = u64::from(layout.grain());
        let sectors = u64::from(layout.segments()) * u64::from(layout.segment_sectors());
        if record.at >= sectors || !record.at.is_multiple_of(grain) {
            return false;
        }
        let (segment, end) = (layout.segment_of(record.at), layout.end_of(record));
        let over = |found: &Found| {
            let (at, until) = (found.header.at, layout.end_of(&found.header));
            let counts = found.header.sequence < self.gap;
            counts && found.header.sequence != record.sequence && at < end && record.at < until
        };
        end <= self.segment_end(segment)
            && self.table.counts(segment, record.sequence)
            && record.sequence >= self.durable
            && !self.records.iter().any(over)
    }

    /// The header page of a record that was found.
    ///
    /// # Panics
    /// If none of this sequence was.
    pub(crate) fn header_page(&self, sequence: u64) -> Page {
        let found = &self.records[self.position(sequence)];
        assert_eq!(found.header.sequence, sequence, "it was found");
        let extents = &self.extents[found.extents.clone()];
        let mut page = zeroed_page();
        record::encode(self.owner(), &found.header, extents, &mut page);
        page
    }

    pub fn owner(&self) -> &LogOwner {
        self.table.owner()
    }

    pub fn layout(&self) -> &LogLayout {
        self.table.layout()
    }

    /// A read to start; any number may be in flight. `None`: answers are awaited, or it [is
    /// done](Scan::is_done).
    pub(crate) fn next_read(&mut self) -> Option<Read> {
        if self.phase == Phase::Headers && self.reads.is_empty() && self.under_way == 0 {
            self.begin_behind();
        }
        if self.phase == Phase::Behind && self.reads.is_empty() && self.under_way == 0 {
            self.judge_behind();
            self.begin_payloads();
        }
        while let Some(read) = self.reads.pop_front() {
            if !self.is_behind_gap(&read) {
                self.under_way += 1;
                return Some(read);
            }
        }
        None
    }

    /// All reads are started, and none is in flight.
    pub fn is_done(&self) -> bool {
        let waiting = self.reads.iter().any(|read| !self.is_behind_gap(read));
        self.phase == Phase::Payloads && !waiting && self.under_way == 0
    }

    /// Payloads are read in the order of their sequences, so none is read that can no longer be valid.
    fn is_behind_gap(&self, read: &Read) -> bool {
        matches!(read, Read::Payload(record) if record.sequence >= self.gap)
    }

    /// Whether a page that was read is the header of the next record in its segment, or is only examined.
    pub(crate) fn expects(&self, at: u64, page: &Page) -> bool {
        if self.phase == Phase::Behind {
            return true;
        }
        let segment = self.table.layout().segment_of(at);
        let view = record::decode(self.table.owner(), at, page);
        view.is_ok_and(|view| self.continues(segment, &view.header))
    }

    /// A member's content at this sector was wrong, and may be wrong near it: all payloads of its segment and
    /// of its two neighbours are checked.
    pub(crate) fn mistrust(&mut self, at: u64) {
        let segment = self.table.layout().segment_of(at);
        let last = self.chains.len() as u32 - 1;
        for segment in segment.saturating_sub(1)..=(segment + 1).min(last) {
            self.chains[segment as usize].mistrusted = true;
        }
    }

    /// The page that was requested, or `None` if it cannot be read.
    ///
    /// # Panics
    /// If it was not requested.
    pub fn header(&mut self, at: u64, page: Option<&Page>) {
        self.under_way -= 1;
        let segment = self.table.layout().segment_of(at);
        if self.phase == Phase::Behind {
            return self.look_at(segment, at, page);
        }
        let chain = &mut self.chains[segment as usize];
        assert!(core::mem::take(&mut chain.open), "a header was requested");
        let Some(page) = page else {
            return self.harm(segment, at, Cause::Unreadable);
        };
        match record::decode(self.table.owner(), at, page) {
            Ok(view) if self.continues(segment, &view.header) => self.take(segment, &view),
            _ => {
                self.chains[segment as usize].broken = Some(at);
                self.end_chain(segment, at);
            }
        }
    }

    /// Whether a record is the next of its segment, and is within it.
    fn continues(&self, segment: u32, record: &RecordHeader) -> bool {
        let end = self.segment_end(segment);
        let fits = self.table.layout().end_of(record) <= end;
        record.sequence > self.chains[segment as usize].last && fits
    }

    fn segment_end(&self, segment: u32) -> u64 {
        let layout = self.table.layout();
        layout.segment_start(segment) + u64::from(layout.segment_sectors())
    }

    fn take(&mut self, segment: u32, view: &RecordView<'_>) {
        let header = view.header;
        self.recorded = self.recorded.max(header.durable);
        self.durable = self.durable.max(header.durable);
        self.highest = self.highest.max(header.sequence);
        let chain = &mut self.chains[segment as usize];
        chain.last = header.sequence;
        if self.table.counts(segment, header.sequence) {
            let from = self.extents.len();
            self.extents.extend(view.extents());
            self.records.push(Found {
                header,
                extents: from..self.extents.len(),
                unread: false,
            });
        }
        let end = self.table.layout().end_of(&header);
        if end < self.segment_end(segment) && !self.is_whole(segment) {
            self.read_header(segment, end);
        } else {
            self.end_chain(segment, end);
        }
    }

    /// Whether all records of a closed segment were found.
    fn is_whole(&self, segment: u32) -> bool {
        let next = self.chains[segment as usize].last + 1;
        self.table.end(segment).is_some_and(|end| next >= end)
    }

    fn read_header(&mut self, segment: u32, at: u64) {
        self.chains[segment as usize].open = true;
        self.reads.push_back(Read::Header { at });
    }

    fn end_chain(&mut self, segment: u32, at: u64) {
        if let Some(end) = self.table.end(segment)
            && !self.is_whole(segment)
        {
            let from = self.chains[segment as usize].last + 1;
            self.harm(segment, at, Cause::Missing { from, end });
        }
    }

    /// All chains are known. Checks whether one is longer than it seems, if its next record is not elsewhere.
    fn begin_behind(&mut self) {
        self.phase = Phase::Behind;
        self.records
            .sort_unstable_by_key(|found| (found.header.sequence, found.header.at));
        for segment in 0..self.chains.len() as u32 {
            let chain = self.chains[segment as usize];
            let Some(broken) = chain.broken.filter(|_| !self.is_found(chain.last + 1)) else {
                continue;
            };
            let end = (broken + u64::from(self.longest)).min(self.segment_end(segment) - 1);
            let pages = (broken + PAGE_SECTORS..=end).step_by(PAGE_SECTORS as usize);
            self.reads.extend(pages.map(|at| Read::Header { at }));
        }
    }

    fn is_found(&self, sequence: u64) -> bool {
        let found = self.records.get(self.position(sequence));
        found.is_some_and(|found| found.header.sequence == sequence)
    }

    /// A page behind a broken chain.
    fn look_at(&mut self, segment: u32, at: u64, page: Option<&Page>) {
        let view = page.map(|page| record::decode(self.table.owner(), at, page));
        let Some(Ok(RecordView { header, .. })) = view else {
            return;
        };
        if self.continues(segment, &header) && self.table.counts(segment, header.sequence) {
            self.recorded = self.recorded.max(header.durable);
            self.durable = self.durable.max(header.durable);
            self.highest = self.highest.max(header.sequence);
            self.behind.push((at, header.sequence));
            self.follow(segment, &header);
        }
    }

    /// Reads the page behind a record, which may show more.
    fn follow(&mut self, segment: u32, record: &RecordHeader) {
        let broken = self.chains[segment as usize].broken.unwrap_or(0);
        let next = self.table.layout().end_of(record);
        if next > broken + u64::from(self.longest) && next < self.segment_end(segment) {
            self.reads.push_back(Read::Header { at: next });
        }
    }

    /// The record before one that was found behind a broken chain must have been there, too. If it is not
    /// found, and it was valid and flushed, it is missing.
    fn judge_behind(&mut self) {
        let behind = core::mem::take(&mut self.behind);
        for &(at, sequence) in &behind {
            let segment = self.table.layout().segment_of(at);
            let from = sequence - 1;
            let counted = self.table.counts(segment, from) && from < self.recorded;
            let is_behind = behind.iter().any(|(_, other)| *other == from);
            if counted && !is_behind && !self.is_found(from) {
                let end = sequence;
                self.harm(segment, at, Cause::Missing { from, end });
            }
        }
    }

    fn harm(&mut self, segment: u32, at: u64, cause: Cause) {
        self.damage.push(Damage { segment, at, cause });
    }

    /// All headers are known. The payloads to check are those from D on, without a gap.
    fn begin_payloads(&mut self) {
        self.phase = Phase::Payloads;
        self.drop_twins();
        self.gap = self.durable;
        let first = self.position(self.durable);
        for found in &self.records[..first] {
            let segment = self.table.layout().segment_of(found.header.at);
            if self.chains[segment as usize].mistrusted {
                self.reads.push_back(Read::Payload(found.header));
            }
        }
        for found in &self.records[first..] {
            if found.header.sequence != self.gap {
                break;
            }
            self.reads.push_back(Read::Payload(found.header));
            self.gap += 1;
        }
    }

    /// The index of a record of this sequence, or of the place for it.
    fn position(&self, sequence: u64) -> usize {
        self.records
            .partition_point(|found| found.header.sequence < sequence)
    }

    fn drop_twins(&mut self) {
        let mut records = core::mem::take(&mut self.records);
        records.dedup_by(|twin, first| {
            let sequence = first.header.sequence;
            let is_twin = twin.header.sequence == sequence;
            if is_twin {
                let segment = self.table.layout().segment_of(twin.header.at);
                self.harm(segment, twin.header.at, Cause::Twice { sequence });
            }
            is_twin
        });
        self.records = records;
    }

    /// The result of a payload that was requested.
    ///
    /// # Panics
    /// If it was not requested.
    pub fn payload(&mut self, sequence: u64, found: PayloadFound) {
        self.under_way -= 1;
        let index = self.position(sequence);
        let record = &mut self.records[index];
        assert_eq!(record.header.sequence, sequence, "a payload was requested");
        match found {
            PayloadFound::Sound => {}
            // It was flushed, and has changed since.
            PayloadFound::Torn if sequence < self.durable => record.unread = true,
            PayloadFound::Torn => self.gap = self.gap.min(sequence),
            PayloadFound::Unreadable => record.unread = true,
        }
    }

    /// The outcome. An error is a log that no writer made: its sequences leave no room to continue.
    ///
    /// # Panics
    /// If it is not done.
    pub fn finish(mut self) -> Result<Recovered, MetaError> {
        assert!(self.is_done(), "everything was read");
        // At most records_limit above numbers that decoding has bounded: no overflow.
        let above = self.gap.max(self.highest + 1);
        let next = above + self.table.layout().records_limit();
        check_found("next record sequence", next)?;
        self.gap = self.gap.min(self.cut);
        let counted = self.position(self.gap);
        self.records.truncate(counted);
        let segments = self.close_segments();
        self.damage.sort_unstable();
        Ok(Recovered {
            extents: self.extents_in_order(),
            unread: self.unread(),
            segments,
            next,
            table: self.table,
            damage: self.damage,
        })
    }

    /// Closes every segment with valid records, behind the last of them, and cuts off the others. They may
    /// have records that no chain led to, or that only parity has, and D will be above them.
    fn close_segments(&mut self) -> Vec<u32> {
        self.table.flushed(self.gap);
        let mut lasts = alloc::vec![None; self.chains.len()];
        let mut segments = Vec::new();
        for found in &self.records {
            let segment = self.table.layout().segment_of(found.header.at);
            let last = lasts[segment as usize].replace(found.header.sequence);
            if last.is_none() {
                segments.push(segment);
            }
        }
        for (last, segment) in lasts.into_iter().zip(0..) {
            match last {
                Some(last) => self.table.close(segment, last + 1),
                None if !self.table.is_obsolete(segment) => self.table.cut(segment),
                None => {}
            }
        }
        segments
    }

    fn extents_in_order(&self) -> Vec<Extent> {
        let records = self.records.iter();
        let extents = records.flat_map(|found| &self.extents[found.extents.clone()]);
        extents.copied().collect()
    }

    fn unread(&self) -> Vec<u64> {
        let unread = self.records.iter().filter(|found| found.unread);
        unread.map(|found| found.header.sequence).collect()
    }
}
