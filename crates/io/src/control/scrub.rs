//! The result of a scrub, as every output shows it: of the running one, or of the last one, also after a
//! restart.

use restripe_array::report::MemberStatus;
use restripe_array::{Cure, LastScrub, SECTOR_BYTES, ScrubMode, ScrubState, ScrubbedMember, Uuid};
use restripe_tier::report::Status;
use serde::{Deserialize, Serialize};

view! {
    /// Of a record, with the path of each member that is here.
    LastScrubView: pub fn new(last: &LastScrub, path: impl Fn(Uuid) -> Option<String>) {
        let known = |date: u64| (date > 0).then_some(date);
        let member = |line: &ScrubbedMember| ScrubbedMemberView::new(line, path(line.member));
    } => {
        /// `check`, `repair`, or `sync`: a repair that also brings rows in sync without a witness.
        mode: String = mode_word(last.mode).into(),
        /// `running` (or waiting for the next start), `completed` or `cancelled`.
        state: String = state_word(last.state).into(),
        /// Seconds since 1970-01-01 UTC; none where the date is not known.
        began_at: Option<u64> = known(last.begun),
        ended_at: Option<u64> = known(last.ended),
        rows_total: u64 = last.rows,
        rows_done: u64 = last.done,
        rows_compared: u64 = last.compared,
        /// Never written: they read as zeros, and have nothing to compare.
        rows_unwritten: u64 = last.unwritten,
        /// Done, and not compared: a member was missing, or a resync still owed the row.
        rows_not_compared: u64 = last.not_compared(),
        /// Rows whose cells disagree: `mismatches` counts these and the unreadable ones.
        rows_wrong: u64 = last.wrong,
        rows_unreadable: u64 = last.unreadable,
        /// Each row with a finding counts once: repaired, in sync without a witness, or left. Left includes
        /// rows that were repaired in part.
        rows_repaired: u64 = last.repaired,
        rows_in_sync_unverified: u64 = last.in_sync,
        rows_left: u64 = last.left,
        /// Rows with a finding.
        mismatches: u64 = last.found(),
        /// Bytes with a finding.
        mismatched_bytes: u64 = fact_bytes(last.sectors),
        /// The first rows with a finding.
        first_rows: Vec<u64> = last.first_rows().to_vec(),
        members: Vec<ScrubbedMemberView> = last.members().iter().map(member).collect(),
        /// Findings on members that are not listed.
        findings_on_others: u64 = last.others.into(),
    }
}

view! {
    ScrubbedMemberView: fn new(line: &ScrubbedMember, path: Option<String>) => {
        uuid: String = line.member.to_string(),
        /// The member's path, if it is here.
        path: Option<String> = path,
        rows_wrong: u64 = line.wrong.into(),
        rows_unreadable: u64 = line.unreadable.into(),
    }
}

impl ScrubbedMemberView {
    pub fn name(&self) -> &str {
        self.path.as_deref().unwrap_or(&self.uuid)
    }
}

impl LastScrubView {
    pub(super) fn of(status: &Status, path_of: impl Fn(u16) -> String) -> Option<LastScrubView> {
        let path = |uuid| {
            let mut members = status.members.iter();
            let here = members.find(|one: &&MemberStatus| one.uuid == uuid)?;
            Some(path_of(here.member.0))
        };
        Some(LastScrubView::new(status.last_scrub.as_ref()?, path))
    }

    /// How far it got and what it found, as a sentence.
    pub fn text(&self) -> String {
        let mut parts = vec![format!(
            "{} of {} rows compared",
            self.rows_compared, self.rows_total
        )];
        let counts = [
            (self.rows_unwritten, "never written"),
            (self.rows_not_compared, "not compared"),
        ];
        for (count, what) in counts {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        }
        let findings = [
            (self.rows_wrong, "wrong (cells disagree)"),
            (self.rows_unreadable, "unreadable"),
            (self.rows_repaired, "repaired"),
            (
                self.rows_in_sync_unverified,
                "brought in sync, data not verified",
            ),
            (self.rows_left, "left with findings"),
        ];
        let mut found: Vec<String> = findings
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if found.is_empty() {
            found.push("all compared rows agree".into());
        }
        format!("{}; {}", parts.join(", "), found.join(", "))
    }

    /// Rows and members with a finding, a sentence each.
    pub fn details(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.first_rows.is_empty() {
            let rows: Vec<String> = self.first_rows.iter().map(u64::to_string).collect();
            let more = self.mismatches.saturating_sub(rows.len() as u64);
            let more = match more {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let bytes = self.mismatched_bytes;
            let word = if self.mismatches == 1 { "row" } else { "rows" };
            lines.push(format!("{word} {}{more}: {bytes} bytes", rows.join(", ")));
        }
        for member in &self.members {
            let (wrong, unreadable) = (member.rows_wrong, member.rows_unreadable);
            let name = member.name();
            lines.push(match (wrong, unreadable) {
                (wrong, 0) => format!("{name}: wrong in {}", rows_text(wrong)),
                (0, unreadable) => format!("{name}: unreadable in {}", rows_text(unreadable)),
                _ => format!(
                    "{name}: wrong in {}, unreadable in {}",
                    rows_text(wrong),
                    rows_text(unreadable)
                ),
            });
        }
        if self.findings_on_others > 0 {
            let others = self.findings_on_others;
            lines.push(format!("{others} findings on other members"));
        }
        lines
    }
}

fn rows_text(rows: u64) -> String {
    match rows {
        1 => "1 row".into(),
        rows => format!("{rows} rows"),
    }
}

fn mode_word(mode: ScrubMode) -> &'static str {
    match mode {
        ScrubMode::Check => "check",
        ScrubMode::Repair => "repair",
        ScrubMode::Sync => "sync",
    }
}

fn state_word(state: ScrubState) -> &'static str {
    match state {
        ScrubState::Running => "running",
        ScrubState::Completed => "completed",
        ScrubState::Cancelled => "cancelled",
    }
}

pub(super) fn fact_bytes(sectors: u64) -> u64 {
    sectors.saturating_mul(SECTOR_BYTES)
}

/// One finding of a scrub.
pub(super) fn mismatch_text(
    row: u64,
    sectors: u64,
    guilty: Option<String>,
    unreadable: bool,
    cure: Cure,
) -> String {
    let bytes = fact_bytes(sectors);
    let what = match (guilty, unreadable) {
        (Some(name), true) => format!("{bytes} bytes of {name} are unreadable"),
        (Some(name), false) => format!("the cells disagree in {bytes} bytes, {name} is wrong"),
        (None, _) => {
            format!("the cells disagree in {bytes} bytes, and the wrong cell is unknown")
        }
    };
    let cure = match cure {
        Cure::Left => "",
        Cure::Repaired => ", repaired",
        Cure::InSync => ", brought in sync, data not verified",
    };
    format!("row {row}: {what}{cure}")
}

/// The end of a scrub, for its log.
pub(super) fn scrubbed_text(last: &LastScrub) -> String {
    let view = LastScrubView::new(last, |_| None);
    format!("{} {}: {}", view.mode, view.state, view.text())
}
