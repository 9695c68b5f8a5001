//! The last scrub: a record of the tail with the result of the scrub that runs, or of the last one that ended.
//!
//! The record outlives its task, so that a scrub without an observer leaves a trace. Its counters are those of the durable
//! done-set while the scrub runs. A record whose fields are out of range does not count, and is no reason to refuse a member.

use crate::meta::bytes::{get_u32, get_u64, get_uuid, put, put_u32, put_u64};
use crate::meta::{MetaError, field};
use crate::units::Uuid;
use crate::values::{Cure, ScrubMode};

pub const LAST_SCRUB_BYTES: usize = 448;
/// Bytes of a line about one member.
pub const SCRUBBED_BYTES: usize = 24;
/// Rows with a finding that are listed.
pub const SCRUB_ROWS_MAX: usize = 7;
/// Members with a finding that are listed.
pub const SCRUB_MEMBERS_MAX: usize = 12;

offsets! {
    /// Byte offsets in the record, and in each line about a member.
    pub mod place {
        pub const SCRUB_MODE: usize = 0;
        pub const SCRUB_STATE: usize = 1;
        pub const SCRUB_ROWS_LISTED: usize = 2;
        pub const SCRUB_MEMBERS_LISTED: usize = 3;
        pub const SCRUB_OTHERS: usize = 4;
        pub const SCRUB_BEGUN: usize = 8;
        pub const SCRUB_ENDED: usize = 16;
        pub const SCRUB_ROWS: usize = 24;
        pub const SCRUB_DONE: usize = 32;
        pub const SCRUB_COMPARED: usize = 40;
        pub const SCRUB_UNWRITTEN: usize = 48;
        pub const SCRUB_WRONG: usize = 56;
        pub const SCRUB_UNREADABLE: usize = 64;
        pub const SCRUB_REPAIRED: usize = 72;
        pub const SCRUB_IN_SYNC: usize = 80;
        pub const SCRUB_LEFT: usize = 88;
        pub const SCRUB_SECTORS: usize = 96;
        pub const SCRUB_FIRST_ROWS: usize = 104;
        pub const SCRUB_MEMBERS: usize = 160;

        pub const SCRUBBED_MEMBER: usize = 0;
        pub const SCRUBBED_WRONG: usize = 16;
        pub const SCRUBBED_UNREADABLE: usize = 20;
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ScrubState {
    /// It runs, or goes on at the next start.
    Running,
    Completed,
    Cancelled,
}

codes! { "scrub state": ScrubState { Running = 0, Completed = 1, Cancelled = 2 } }

/// The result of a scrub, up to its end or so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastScrub {
    pub mode: ScrubMode,
    pub state: ScrubState,
    /// Seconds since 1970-01-01 UTC; 0 where the date is not known.
    pub begun: u64,
    pub ended: u64,
    /// Rows of the array, and rows that are done.
    pub rows: u64,
    pub done: u64,
    /// Rows that were compared as a whole.
    pub compared: u64,
    /// Rows that were never written: they read as zeros, and have nothing to compare.
    pub unwritten: u64,
    /// Rows whose cells disagree.
    pub wrong: u64,
    /// Rows of which a member could not read something.
    pub unreadable: u64,
    /// Rows of which every finding was repaired: a second witness proved what is right, or the cell could not be read.
    pub repaired: u64,
    /// Rows with no finding left, that were brought in sync without a witness: perhaps what was wrong is now in sync as well.
    pub in_sync: u64,
    /// Rows of which a finding was left; others of the same row may be repaired.
    pub left: u64,
    /// Sectors with a finding; cells that disagree without a known culprit count once.
    pub sectors: u64,
    /// Findings on members beyond the list.
    pub others: u32,
    rows_listed: u8,
    members_listed: u8,
    first_rows: [u64; SCRUB_ROWS_MAX],
    members: [ScrubbedMember; SCRUB_MEMBERS_MAX],
}

/// The findings on one member, in rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScrubbedMember {
    pub member: Uuid,
    pub wrong: u32,
    pub unreadable: u32,
}

/// Something that a scrub found in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finding {
    pub member: Option<Uuid>,
    pub unreadable: bool,
    pub cure: Cure,
    pub sectors: u64,
}

impl ScrubbedMember {
    const NONE: ScrubbedMember = ScrubbedMember {
        member: Uuid::NIL,
        wrong: 0,
        unreadable: 0,
    };
}

impl LastScrub {
    pub fn new(mode: ScrubMode, begun: u64) -> LastScrub {
        LastScrub {
            mode,
            state: ScrubState::Running,
            begun,
            ended: 0,
            rows: 0,
            done: 0,
            compared: 0,
            unwritten: 0,
            wrong: 0,
            unreadable: 0,
            repaired: 0,
            in_sync: 0,
            left: 0,
            sectors: 0,
            others: 0,
            rows_listed: 0,
            members_listed: 0,
            first_rows: [0; SCRUB_ROWS_MAX],
            members: [ScrubbedMember::NONE; SCRUB_MEMBERS_MAX],
        }
    }

    /// The first rows with a finding, in the order in which they were met.
    pub fn first_rows(&self) -> &[u64] {
        &self.first_rows[..usize::from(self.rows_listed)]
    }

    /// The members with a finding, but for those counted in `others`.
    pub fn members(&self) -> &[ScrubbedMember] {
        &self.members[..usize::from(self.members_listed)]
    }

    /// Rows with a finding.
    pub fn found(&self) -> u64 {
        self.repaired
            .saturating_add(self.in_sync)
            .saturating_add(self.left)
    }

    /// Rows that are done, and were neither compared nor unwritten: a member was missing, or a resync still owed them.
    pub fn not_compared(&self) -> u64 {
        let looked_at = self.compared.saturating_add(self.unwritten);
        self.done.saturating_sub(looked_at)
    }

    /// Counts the findings of a row. The row counts once, by the least that was done for one of them.
    pub fn note_row(&mut self, row: u64, findings: &[Finding]) {
        let any = |what: &dyn Fn(&Finding) -> bool| u64::from(findings.iter().any(what));
        count(&mut self.wrong, any(&|one| !one.unreadable));
        count(&mut self.unreadable, any(&|one| one.unreadable));
        let cured = match findings.iter().map(|one| one.cure).min() {
            None => return,
            Some(Cure::Left) => &mut self.left,
            Some(Cure::InSync) => &mut self.in_sync,
            Some(Cure::Repaired) => &mut self.repaired,
        };
        count(cured, 1);
        for finding in findings {
            count(&mut self.sectors, finding.sectors);
        }
        if let Some(place) = self.first_rows.get_mut(usize::from(self.rows_listed)) {
            *place = row;
            self.rows_listed += 1;
        }
        for finding in findings {
            self.note_member(finding);
        }
    }

    fn note_member(&mut self, finding: &Finding) {
        let Some(member) = finding.member else {
            return;
        };
        let listed = usize::from(self.members_listed);
        let known = self.members().iter().position(|one| one.member == member);
        let Some(line) = self.members.get_mut(known.unwrap_or(listed)) else {
            self.others = self.others.saturating_add(1);
            return;
        };
        line.member = member;
        let rows = match finding.unreadable {
            true => &mut line.unreadable,
            false => &mut line.wrong,
        };
        *rows = rows.saturating_add(1);
        if known.is_none() {
            self.members_listed += 1;
        }
    }

    pub(super) fn check(&self) -> Result<(), MetaError> {
        let listed = [
            (self.rows_listed, SCRUB_ROWS_MAX),
            (self.members_listed, SCRUB_MEMBERS_MAX),
        ];
        for (count, most) in listed {
            if usize::from(count) > most {
                return field("last scrub list", count.into());
            }
        }
        match self.done <= self.rows {
            true => Ok(()),
            false => field("last scrub done", self.done),
        }
    }

    pub(super) fn put(&self, bytes: &mut [u8]) {
        bytes[place::SCRUB_MODE] = self.mode as u8;
        bytes[place::SCRUB_STATE] = self.state.code();
        bytes[place::SCRUB_ROWS_LISTED] = self.rows_listed;
        bytes[place::SCRUB_MEMBERS_LISTED] = self.members_listed;
        put_u32(bytes, place::SCRUB_OTHERS, self.others);
        for (at, value) in { *self }.numbers() {
            put_u64(bytes, at, *value);
        }
        for (index, row) in self.first_rows().iter().enumerate() {
            put_u64(bytes, place::SCRUB_FIRST_ROWS + index * 8, *row);
        }
        for (index, line) in self.members().iter().enumerate() {
            let at = place::SCRUB_MEMBERS + index * SCRUBBED_BYTES;
            put(bytes, at + place::SCRUBBED_MEMBER, line.member.0);
            put_u32(bytes, at + place::SCRUBBED_WRONG, line.wrong);
            put_u32(bytes, at + place::SCRUBBED_UNREADABLE, line.unreadable);
        }
    }

    fn numbers(&mut self) -> [(usize, &mut u64); 12] {
        [
            (place::SCRUB_BEGUN, &mut self.begun),
            (place::SCRUB_ENDED, &mut self.ended),
            (place::SCRUB_ROWS, &mut self.rows),
            (place::SCRUB_DONE, &mut self.done),
            (place::SCRUB_COMPARED, &mut self.compared),
            (place::SCRUB_UNWRITTEN, &mut self.unwritten),
            (place::SCRUB_WRONG, &mut self.wrong),
            (place::SCRUB_UNREADABLE, &mut self.unreadable),
            (place::SCRUB_REPAIRED, &mut self.repaired),
            (place::SCRUB_IN_SYNC, &mut self.in_sync),
            (place::SCRUB_LEFT, &mut self.left),
            (place::SCRUB_SECTORS, &mut self.sectors),
        ]
    }

    /// None if some field is out of range.
    pub(super) fn get(bytes: &[u8]) -> Option<LastScrub> {
        let mode = *ScrubMode::ALL.get(usize::from(bytes[place::SCRUB_MODE]))?;
        let mut found = LastScrub {
            state: ScrubState::of_code(bytes[place::SCRUB_STATE]).ok()?,
            others: get_u32(bytes, place::SCRUB_OTHERS),
            rows_listed: bytes[place::SCRUB_ROWS_LISTED],
            members_listed: bytes[place::SCRUB_MEMBERS_LISTED],
            ..LastScrub::new(mode, 0)
        };
        for (at, value) in found.numbers() {
            *value = get_u64(bytes, at);
        }
        found.check().ok()?;
        let rows = usize::from(found.rows_listed);
        for (index, row) in found.first_rows[..rows].iter_mut().enumerate() {
            *row = get_u64(bytes, place::SCRUB_FIRST_ROWS + index * 8);
        }
        let members = usize::from(found.members_listed);
        for (index, line) in found.members[..members].iter_mut().enumerate() {
            let at = place::SCRUB_MEMBERS + index * SCRUBBED_BYTES;
            line.member = get_uuid(bytes, at + place::SCRUBBED_MEMBER);
            line.wrong = get_u32(bytes, at + place::SCRUBBED_WRONG);
            line.unreadable = get_u32(bytes, at + place::SCRUBBED_UNREADABLE);
        }
        Some(found)
    }
}

/// What is on record may be any number.
pub fn count(counter: &mut u64, more: u64) {
    *counter = counter.saturating_add(more);
}

const _: () =
    assert!(place::SCRUB_MEMBERS + SCRUB_MEMBERS_MAX * SCRUBBED_BYTES == LAST_SCRUB_BYTES);
const _: () = assert!(place::SCRUB_FIRST_ROWS + SCRUB_ROWS_MAX * 8 == place::SCRUB_MEMBERS);
