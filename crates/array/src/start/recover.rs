//! After a crash: which rows were being written, and how each is made consistent.
//!
//! The newest complete record of a range decides alone; if a done-list calls that one over, so are the older
//! ones, listed or not, and nothing is replayed there. That is enough because of the log's two rules
//! (`log.rs`): every write to a row with parity is logged, and a record whose cells do not include those of
//! an older live one of the same sectors waits until the older is flushed. So whatever may have changed on
//! disk in a range is among the cells that its newest record names, and the partial parity in it is right for
//! the others.
//!
//! With the record's cells M and the missing cells L of the row:
//! - no data cell missing: parity is recomputed from all data; the partial parity is not needed.
//! - L and M have none in common: parity = partial parity + M as it is on disk. What only parity held, and no
//!   write touched, is exactly as it was.
//! - M is one cell, and missing: its value is what P says, old or new, sector by sector; Q is made to agree.
//! - otherwise: the missing cells of M are lost, are named so, and count as zeros. If their member is current
//!   and only not here, a command has to accept that, since with the member there would be no loss. What was
//!   replayed until then can be replayed again.
//!
//! A record that is not on every log it was meant for was never complete, so nothing was written in place for
//! it. Where all data cells are here it still has their parity recomputed; should one of them not be
//! readable, it tells nothing.

use super::{Record, Start};
use crate::contract::{Bug, FailCause, TaskKind};
use crate::facts::{Notice, StartStage};
use crate::layout::CellSet;
use crate::runset::RunSet;
use crate::slice::rows::Need;
use crate::slice::table::Kind;
use crate::task::table::{Cut, Payload, Replay};
use crate::units::{Member, PAGE_SECTORS, Row};
use alloc::vec::Vec;
use restripe_format::meta::log::{COPY_P, COPY_Q, DoneList, LogRecord, PayloadKind};

/// More records than can be under way at a crash: a member that is away may have some that nobody else knows
/// of.
const UNSEEN: u64 = 1 << 20;

/// The copies of one record that were found.
struct Found {
    record: LogRecord,
    /// Some done-list says that its data and parity are durable.
    over: bool,
    copies: Vec<Record>,
}

impl Start {
    pub(super) fn start_recover(&mut self) -> bool {
        self.note_returning();
        for member in core::mem::take(&mut self.starting.as_mut().expect("a start runs").unread) {
            self.fail_member(member, FailCause::Metadata);
            self.rebuild_in_full(member);
        }
        if self.has_notices() {
            let goes_on = !self.securing();
            self.notify(Notice::UnreadOut { goes_on });
            return false;
        }
        self.plan_replays()
    }

    /// The members whose logs cannot be read in full have failed.
    pub(crate) fn start_recover_without(&mut self, goes_on: bool) {
        if self.starts() && self.plan_replays() && goes_on {
            self.start_turn();
        }
    }

    fn plan_replays(&mut self) -> bool {
        if let Err(error) = self.check_decodable(self.mode) {
            return self.start_fail(error);
        }
        let found = self.standing_records();
        let unused = self.unused_sequence();
        self.logs.start(unused + UNSEEN);
        if self.mode.read_only {
            return self.doubt_records(&found);
        }
        let live = found.iter().filter(|found| !found.over);
        let mut rows: Vec<u64> = live.map(|found| found.record.row).collect();
        rows.sort_unstable();
        rows.dedup();
        for row in rows {
            let newest_first = found.iter().rev();
            let of_row = newest_first.filter(|found| found.record.row == row);
            self.plan_row(Row(row), &of_row.collect::<Vec<&Found>>());
        }
        self.start = Some(StartStage::Replaying);
        self.tasks.replays_left = self.tasks.replays.len() as u32;
        self.start_mut().replays_next = 0;
        true
    }

    /// A start that writes nothing cannot replay: what only the parity of these rows tells is not told.
    fn doubt_records(&mut self, found: &[Found]) -> bool {
        let mut done = RunSet::default();
        done.insert(0, self.layout.rows());
        for found in found.iter().filter(|found| !found.over) {
            done.remove(found.record.row, 1);
        }
        if done.len() < self.layout.rows() {
            self.start_task(TaskKind::Resync, None, done);
        }
        self.start_recovered()
    }

    /// Above every sequence that any log knows: one that a floor or a done-list calls over would be void from
    /// the start.
    fn unused_sequence(&self) -> u64 {
        let starting = self.starting.as_ref().expect("a start runs");
        let records = starting.records.iter().chain(&starting.stale_records);
        let listed = starting.done_lists.iter().flat_map(|(_, list)| {
            let over = list.sequences.iter().map(|sequence| sequence + 1);
            over.chain([list.floor])
        });
        let members = self.superblock.members.iter().map(|line| line.log_floor);
        let found = records.map(|(_, _, record)| record.sequence + 1);
        let floor = self.superblock.log_floor.max(1);
        found.chain(listed).chain(members).fold(floor, u64::max)
    }

    /// Records that no floor calls void, by sequence, with their copies together.
    fn standing_records(&mut self) -> Vec<Found> {
        let records = self
            .starting
            .as_ref()
            .expect("a start runs")
            .records
            .clone();
        let mut found: Vec<Found> = Vec::new();
        let stands = |entry: &&Record| {
            let held = self.holds_parity_of(entry.0, &entry.2);
            held && entry.2.sequence >= self.record_floor(entry.0, &records)
        };
        let mut copies: Vec<Record> = records.iter().filter(stands).copied().collect();
        copies.sort_by_key(|(member, at, record)| (record.sequence, *member, *at));
        for copy in copies {
            let list = self.done_list(copy.0);
            let listed = list.is_some_and(|list| list.sequences.contains(&copy.2.sequence));
            match found.last_mut() {
                Some(last) if last.record.sequence == copy.2.sequence => {
                    last.over |= listed;
                    last.copies.push(copy);
                }
                _ => found.push(Found {
                    record: copy.2,
                    over: listed,
                    copies: alloc::vec![copy],
                }),
            }
        }
        found.retain(|found| self.plausible(&found.record));
        found
    }

    /// Whether a member serves the parity that a record of its log is about, or is being filled for it. If it
    /// hosted that parity once, all of its records are over, and later ones are elsewhere.
    fn holds_parity_of(&self, member: Member, record: &LogRecord) -> bool {
        if record.row >= self.layout.rows() {
            return false;
        }
        let map = self.row_map(Row(record.row));
        let parity = match record.kind {
            PayloadKind::P => map.p(),
            PayloadKind::Q => map.q(),
        };
        let slot = parity.map(|parity| map.cells[usize::from(parity)].slot);
        let of_slot = |slot| self.roles_at(slot, map.row).members();
        let mut holders = slot.into_iter().flat_map(of_slot);
        holders.any(|holder| holder == member) || self.planted(Bug::FormerHostHeard)
    }

    fn record_floor(&self, member: Member, records: &[Record]) -> u64 {
        let own = self.own_record_floor(member, records);
        own.max(self.superblock.log_floor)
    }

    /// What a member's own log, and its line in the member table, say of it.
    pub(super) fn own_record_floor(&self, member: Member, records: &[Record]) -> u64 {
        let entry = self.devices[usize::from(member.0)].entry.unwrap_or(0);
        let own = records.iter().filter(|other| other.0 == member);
        let newest = own.max_by_key(|other| other.2.sequence);
        let own = newest.map_or(0, |newest| newest.2.floor);
        let listed = self.done_list(member).map_or(0, |list| list.floor);
        let line = &self.superblock.members[usize::from(entry)];
        own.max(listed).max(line.log_floor)
    }

    fn done_list(&self, member: Member) -> Option<&DoneList> {
        let lists = &self.starting.as_ref().expect("a start runs").done_lists;
        let list = lists.iter().find(|(other, _)| *other == member);
        list.map(|(_, list)| list)
    }

    fn plausible(&self, record: &LogRecord) -> bool {
        let chunk = self.layout.chunk_sectors();
        let end = u64::from(record.offset) + u64::from(record.sectors);
        record.row < self.layout.rows()
            && record.sectors > 0
            && end <= chunk
            && CellSet(record.modified).within(self.row_map(Row(record.row)).data_set())
            && self.is_written(Row(record.row))
    }

    /// Cuts a row where its records begin and end; each part is decided by the newest record that proves
    /// complete, unless one that is over comes before: what is older is over, too, since the lock of the
    /// range was had in turn.
    fn plan_row(&mut self, row: Row, newest_first: &[&Found]) {
        let map = self.row_map(row);
        let all_here = map.data_set().within(self.live_cells(&map));
        let tells = |found: &&&Found| found.over || all_here || self.record_complete(found);
        let usable: Vec<&&Found> = newest_first.iter().filter(tells).collect();
        let ends = usable.iter().map(|found| range(found));
        let mut cuts: Vec<u64> = ends.flat_map(<[u64; 2]>::from).collect();
        cuts.sort_unstable();
        cuts.dedup();
        for pair in cuts.windows(2) {
            let (start, end) = (pair[0], pair[1]);
            let covers = |found: &&&&Found| range(found).0 < end && start < range(found).1;
            let covering = usable.iter().filter(covers);
            let live = covering.take_while(|found| !found.over);
            let cuts: Vec<Cut> = live.map(|found| self.cut_of(found)).collect();
            if !cuts.is_empty() {
                self.tasks.replays.push(Replay {
                    row,
                    start,
                    sectors: end - start,
                    cuts,
                    current: 0,
                });
            }
        }
    }

    fn cut_of(&self, found: &Found) -> Cut {
        let payload = |kind: PayloadKind| {
            let mut copies = found.copies.iter();
            let held = copies.find(|copy| copy.2.kind == kind && copy.2.payload_sectors > 0);
            held.map(|(member, at, copy)| Payload {
                member: *member,
                at: self.devices[member.0 as usize].places.log + at + PAGE_SECTORS,
                checksum: copy.payload_crc,
            })
        };
        let (start, end) = range(found);
        let payloads = [payload(PayloadKind::P), payload(PayloadKind::Q)];
        Cut {
            start,
            sectors: end - start,
            modified: found.record.modified,
            complete: self.record_complete(found),
            payloads,
        }
    }

    fn record_complete(&self, found: &Found) -> bool {
        let map = self.row_map(Row(found.record.row));
        [
            (map.p(), COPY_P, PayloadKind::P),
            (map.q(), COPY_Q, PayloadKind::Q),
        ]
        .into_iter()
        .all(|(cell, bit, kind)| {
            let wanted = found.record.copies & bit != 0;
            let holder =
                cell.and_then(|cell| self.homes(map.cells[cell as usize].slot, map.row).reader());
            match holder {
                Some(member) if wanted => {
                    let mut copies = found.copies.iter();
                    copies.any(|copy| copy.0 == member && copy.2.kind == kind)
                }
                _ => true,
            }
        })
    }

    /// Starts as many replays as there is room for; goes on when all have ended.
    pub(super) fn replay_at_start(&mut self) -> bool {
        loop {
            let starting = self.starting.as_ref().expect("a start runs");
            let next = starting.replays_next;
            if next as usize >= self.tasks.replays.len() {
                break;
            }
            if !self.start_replay(next) {
                return false;
            }
            self.starting.as_mut().expect("a start runs").replays_next += 1;
        }
        if self.tasks.replays_left > 0 {
            return false;
        }
        if let Err(error) = self.check_accepted() {
            return self.start_fail(error);
        }
        let rows = self.tasks.replays.len() as u64;
        self.tasks.replays.clear();
        self.starting.as_mut().expect("a start runs").recovered = rows;
        self.start_flush()
    }

    fn start_replay(&mut self, index: u32) -> bool {
        let replay = self.tasks.replay(index);
        let map = self.row_map(replay.row);
        let need = Need {
            kind: Kind::Replay(index),
            row: replay.row,
            start: replay.start,
            sectors: replay.sectors,
            step: crate::BAND_SECTORS_MAX,
            buffers: u32::from(map.width) + 5,
        };
        self.admit_slice(&need).is_some()
    }
}

/// The sectors of the chunk that a record is about.
fn range(found: &Found) -> (u64, u64) {
    let start = u64::from(found.record.offset);
    (start, start + u64::from(found.record.sectors))
}
