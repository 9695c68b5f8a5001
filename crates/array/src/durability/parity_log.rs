//! The partial-parity log: closes the write hole of rows with parity.
//!
//! Before a row is changed in place, a record on the parity's own member says which data cells change and
//! what the xor (for Q: the Reed-Solomon sum) of the others is. After a crash the parity can be made to fit
//! whatever reached the disks, even if a member whose cell was not being written is lost with the crash.
//!
//! A record lives until its data and parity are flushed. Two rules make the newest live record of a range
//! sufficient: every write to a row with parity is logged, and a write whose cells do not include those of an
//! overlapping live record waits until that record has been flushed away.
//!
//! One log a member: a ring of records, each a header page and its payload. Space is given back in order. In
//! front of the ring stands a done-list: the records that are over, though they lie there still. Without it a
//! write that was flushed long ago would look like one that was cut short. It is written when a flush
//! releases a record of several data cells, before the flush is acknowledged; records of one cell do no harm
//! when they are replayed late, unless a newer one of their range is listed: then the start takes them for
//! over, too.

use super::Durability;
use crate::facts::Waiter;
use crate::members::ops::Owner;
use crate::units::{Member, PAGE_SECTORS, Row};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use restripe_format::meta::log::{DONE_MAX, DONE_SECTORS, encode_done};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Its write in place is not finished.
    Open,
    /// Finished when this many flushes had begun: durable after the next.
    Finished(u64),
    Released,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    sequence: u64,
    at: u64,
    row: Row,
    start: u64,
    end: u64,
    modified: u32,
    stage: Stage,
}

impl Live {
    /// Over, and a write of several cells.
    fn over(&self) -> bool {
        self.stage == Stage::Released && self.several()
    }

    /// More than one data cell was written: after a crash with one of them missing, it matters whether this
    /// was over.
    fn several(&self) -> bool {
        self.modified.count_ones() > 1
    }
}

const HASH: usize = 512;
/// With this many records to list no more are taken: a flush may add as many as are in flight.
const LISTED_MAX: usize = DONE_MAX / 2;

struct Log {
    sectors: u64,
    head: u64,
    records: VecDeque<Live>,
    /// Live records by row, hashed: zero means there is none to look for.
    rows: Vec<u16>,
    /// The version of the done-list last written, and whether another is due.
    done_version: u64,
    done_due: bool,
    /// Records in the ring that are over and must be listed.
    listed: usize,
}

impl Log {
    /// `version`: at least that of any done-list ever written there. A record is written for each list, so the next
    /// sequence is.
    fn new(sectors: u64, version: u64) -> Log {
        let records = VecDeque::with_capacity((sectors / PAGE_SECTORS) as usize);
        Log {
            sectors,
            head: 0,
            records,
            rows: vec![0; HASH],
            done_version: version,
            done_due: false,
            listed: 0,
        }
    }

    fn tail(&self) -> Option<u64> {
        self.records.front().map(|record| record.at)
    }

    /// Where `sectors` contiguous sectors are free, if anywhere.
    fn room(&self, sectors: u64) -> Option<u64> {
        match self.tail() {
            None => (sectors <= self.sectors).then_some(0),
            Some(tail) if self.head > tail => match self.head + sectors <= self.sectors {
                true => Some(self.head),
                false => (sectors < tail).then_some(0),
            },
            Some(tail) => (self.head + sectors < tail).then_some(self.head),
        }
    }

    fn clashes(&self, entry: &Entry) -> bool {
        self.rows[entry.row.0 as usize % HASH] != 0
            && self.records.iter().any(|live| {
                live.stage != Stage::Released
                    && live.row == entry.row
                    && live.start < entry.start + entry.sectors
                    && entry.start < live.end
                    && live.modified & !entry.modified != 0
            })
    }

    fn release_front(&mut self) {
        let over = |record: &mut Live| record.stage == Stage::Released;
        while self.records.pop_front_if(over).is_some() {}
    }
}

/// A record about to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) row: Row,
    pub(crate) start: u64,
    pub(crate) sectors: u64,
    pub(crate) modified: u32,
    pub(crate) payload_sectors: u64,
}

impl Entry {
    /// Sectors of the log that the record takes: its header page and its payload, in whole pages.
    fn footprint(&self) -> u64 {
        PAGE_SECTORS + self.payload_sectors.next_multiple_of(PAGE_SECTORS)
    }
}

#[derive(Default)]
pub(crate) struct Logs {
    logs: Vec<Option<Log>>,
    next_sequence: u64,
    /// Room for a done-list in the making.
    sequences: Vec<u64>,
}

impl Logs {
    pub(crate) fn start(&mut self, next_sequence: u64) {
        self.next_sequence = next_sequence;
    }

    pub(crate) fn open(&mut self, member: Member, sectors: u64) {
        let (index, version) = (usize::from(member.0), self.next_sequence);
        while self.logs.len() <= index {
            self.logs.push(None);
        }
        let ring = sectors.checked_sub(DONE_SECTORS).filter(|ring| *ring > 0);
        self.logs[index] = ring.map(|ring| Log::new(ring, version));
    }

    pub(crate) fn forget(&mut self, member: Member) {
        if let Some(log) = self.logs.get_mut(member.0 as usize) {
            *log = None;
        }
    }

    pub(crate) fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    pub(crate) fn take_sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }

    /// Records below this are void on every member.
    pub(crate) fn floor(&self) -> u64 {
        let fronts = self.logs.iter().flatten().map(|log| log.records.front());
        let live = fronts.flatten().map(|record| record.sequence);
        live.min().unwrap_or(self.next_sequence)
    }

    /// Whether a write is under way whose record is below this.
    pub(crate) fn open_below(&self, sequence: u64) -> bool {
        let mut records = self.logs.iter().flatten().flat_map(|log| &log.records);
        records.any(|record| record.sequence < sequence && record.stage == Stage::Open)
    }

    /// The oldest live record of one member's log.
    pub(crate) fn floor_of(&self, member: Member) -> u64 {
        let log = self.logs.get(member.0 as usize).and_then(Option::as_ref);
        let front = log.and_then(|log| log.records.front());
        front.map_or(self.next_sequence, |record| record.sequence)
    }

    fn log(&self, member: Member) -> &Log {
        let log = self.logs[member.0 as usize].as_ref();
        log.expect("a current member of a logged array has a log")
    }

    /// Whether a record must wait for a flush, because of room or of an older record that it does not cover.
    fn must_wait(&self, member: Member, entry: &Entry) -> bool {
        let log = self.log(member);
        log.room(entry.footprint()).is_none() || log.listed >= LISTED_MAX || log.clashes(entry)
    }

    /// Takes room for a record; returns its place from the start of the log region.
    pub(crate) fn place(&mut self, member: Member, sequence: u64, entry: &Entry) -> u64 {
        let log = self.logs[member.0 as usize].as_mut();
        let log = log.expect("checked with must_wait");
        let sectors = entry.footprint();
        let at = log.room(sectors).expect("checked with must_wait");
        log.head = at + sectors;
        log.rows[entry.row.0 as usize % HASH] += 1;
        log.records.push_back(Live {
            sequence,
            at,
            row: entry.row,
            start: entry.start,
            end: entry.start + entry.sectors,
            modified: entry.modified,
            stage: Stage::Open,
        });
        DONE_SECTORS + at
    }

    /// The write in place of a record has ended; `begun` flushes had begun by then.
    pub(crate) fn finished(&mut self, sequence: u64, begun: u64) {
        for log in self.logs.iter_mut().flatten() {
            let records = &log.records;
            if let Ok(index) = records.binary_search_by_key(&sequence, |one| one.sequence) {
                log.records[index].stage = Stage::Finished(begun);
            }
        }
    }

    /// Flush number `ended` has ended: what was finished before it began is released.
    pub(crate) fn flushed(&mut self, ended: u64) {
        for log in self.logs.iter_mut().flatten() {
            for record in &mut log.records {
                if matches!(record.stage, Stage::Finished(begun) if begun < ended) {
                    record.stage = Stage::Released;
                    log.done_due |= record.several();
                    log.rows[record.row.0 as usize % HASH] -= 1;
                }
            }
            log.release_front();
            log.listed = log.records.iter().filter(|record| record.over()).count();
        }
    }

    /// The done-list that a member's log owes, if it does: its version, the floor, and the sequences done
    /// above it.
    fn take_done_list(&mut self, member: Member, sequences: &mut Vec<u64>) -> Option<(u64, u64)> {
        let floor = self.floor_of(member);
        let log = self.logs.get_mut(member.0 as usize)?.as_mut()?;
        if !core::mem::take(&mut log.done_due) {
            return None;
        }
        log.done_version += 1;
        let done = log.records.iter().filter(|record| record.over());
        sequences.extend(done.map(|record| record.sequence).take(DONE_MAX));
        Some((log.done_version, floor))
    }

    /// The version of the done-list found on a member at the start: the next goes to the other home.
    pub(crate) fn found_done_list(&mut self, member: Member, version: u64) {
        if let Some(Some(log)) = self.logs.get_mut(member.0 as usize) {
            log.done_version += (log.done_version ^ version) & 1;
        }
    }

    /// Rows with a live record anywhere: what a member that fails now may lack.
    pub(crate) fn live_rows(&self, into: &mut Vec<Row>) {
        for log in self.logs.iter().flatten() {
            let records = log.records.iter();
            let live = records.filter(|record| record.stage != Stage::Released);
            into.extend(live.map(|record| record.row));
        }
    }
}

impl Durability {
    /// Writes the done-lists that are due; how many writes that takes.
    pub(crate) fn write_done_lists(&mut self) -> u32 {
        let mut writes = 0;
        let mut sequences = core::mem::take(&mut self.logs.sequences);
        for member in self.all() {
            sequences.clear();
            let Some((version, floor)) = self.logs.take_done_list(member, &mut sequences) else {
                continue;
            };
            let mut page = self.ops.boxes.page();
            encode_done(self.superblock.array, version, floor, &sequences, &mut page);
            let log = self.devices[usize::from(member.0)].places.log;
            let at = log + (version & 1) * PAGE_SECTORS;
            self.write_pages(Owner::DoneList, member, at, core::iter::once(page));
            writes += 1;
        }
        self.logs.sequences = sequences;
        writes
    }

    /// Whether a record can be written now to all these members; if not, a flush is asked for.
    pub(crate) fn log_ready(&mut self, members: &[Option<Member>], entry: &Entry) -> bool {
        let mut members = members.iter().flatten();
        let waits = members.any(|&member| self.logs.must_wait(member, entry));
        if waits {
            self.flush_for(Waiter::Log);
        }
        !waits
    }
}
