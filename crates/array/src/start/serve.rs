//! From consistent rows to service: what is owed and who is missing is written down first.

use super::{Record, Start};
use crate::contract::{Action, CommandError, Fact, TaskKind};
use crate::facts::{StartStage, Waiter};
use crate::report::ArrayState;
use crate::units::{Member, Row, Slot};
use alloc::vec::Vec;
use restripe_format::meta::superblock::MemberRole;

impl Start {
    /// Everything is read: nothing is written before it is durable where it was read.
    pub(super) fn start_secure(&mut self) -> bool {
        if self.mode.read_only {
            return self.start_secured();
        }
        self.start = Some(StartStage::Securing);
        self.flush_for(Waiter::Start);
        false
    }

    /// Goes on with the members that could flush.
    fn start_secured(&mut self) -> bool {
        if self.start_mut().reads_logs {
            return self.start_recover();
        }
        if let Err(error) = self.check_decodable(self.mode) {
            return self.start_fail(error);
        }
        match self.mode.read_only {
            true => self.start_recovered(),
            false => self.start_flush(),
        }
    }

    /// Rows are consistent: a crash must not take that back once their records are void.
    pub(super) fn start_flush(&mut self) -> bool {
        self.start = Some(StartStage::Flushing);
        self.flush_for(Waiter::Start);
        false
    }

    /// A flush of the start has ended.
    pub(crate) fn start_flushed(&mut self) {
        match self.start {
            Some(StartStage::Securing) => {
                self.start_secured();
            }
            Some(StartStage::Flushing) => self.start_level(),
            _ => {}
        }
    }

    /// Brings lagging members to the chosen version before anybody gets a next one, which would go over their
    /// last.
    fn start_level(&mut self) {
        self.start = Some(StartStage::Levelling);
        let starting = self.start_mut();
        let (lagging, chosen) = (
            core::mem::take(&mut starting.lagging),
            starting.chosen.take(),
        );
        let chosen = chosen.expect("one was chosen before anything was read");
        let members = self.entry_members();
        for entry in lagging {
            if let Some(member) = members[entry as usize].filter(|&member| self.good(member)) {
                self.write_version(member, chosen.clone());
            }
        }
        self.start_levelled();
    }

    /// Goes on when the last lagging member has been written.
    pub(crate) fn start_levelled(&mut self) {
        let levelling = self.start == Some(StartStage::Levelling);
        if levelling && self.writer.quiet() {
            self.start_recovered();
        }
    }

    /// Rows are consistent, or owed by a resynchronisation: what is missing is written down and service
    /// begins.
    pub(super) fn start_recovered(&mut self) -> bool {
        if let Err(error) = self.owe_resync() {
            return self.start_fail(error);
        }
        self.start = Some(StartStage::Settle);
        if self.mode.read_only {
            return true;
        }
        self.note_missing();
        for member in self.roles.members() {
            let sectors = self.devices[member.0 as usize].places.log_sectors;
            if self.logged() {
                self.logs.open(member, sectors);
                let version = self.start_mut().done_version(member);
                self.logs.found_done_list(member, version);
            }
        }
        if !self.superblock.clean {
            for row in self.start_mut().rows() {
                self.undo_replace(row, 1);
            }
            self.undo_owed_replacements();
            self.undo_replacements_in_doubt();
            if self.layout.tolerance() == 0 {
                // Nothing tells which rows were being written.
                let rows = self.layout.rows();
                self.undo_replace(0, rows);
            }
        }
        self.superblock.clean = false;
        self.superblock.tail.owner = self.mode.owner;
        self.writer.note_failure();
        self.rewrite_maps();
        true
    }

    /// After a crash, members of an array without a log may differ wherever the intent map says so.
    fn owe_resync(&mut self) -> Result<(), CommandError> {
        let unlogged = self.layout.tolerance() > 0 && !self.logged() && !self.whole_rows();
        let ahead = self.is_ahead();
        let dirty: Vec<u64> = (0..self.regions())
            .filter(|&region| ahead && !self.left_ahead() || self.in_doubt(region))
            .collect();
        if self.superblock.clean && !ahead || !unlogged || dirty.is_empty() {
            return Ok(());
        }
        let mut done = self.resynced_before();
        for region in dirty {
            let first = region * self.superblock.intent_rows;
            let count = self.superblock.intent_rows.min(self.layout.rows() - first);
            done.remove(first, count);
            self.undo_replace(first, count);
        }
        self.tasks.list.retain(|task| task.kind != TaskKind::Resync);
        self.start_task(TaskKind::Resync, None, done);
        if self.mode.read_only {
            // What is in doubt reads as lost for now; nothing is written down.
            return Ok(());
        }
        self.lose_unsynced_slots()
    }

    /// Of a row that is written whole and counts for nobody yet, one place of a cell may have it and the
    /// other not.
    fn undo_replacements_in_doubt(&mut self) {
        if !self.whole_rows() {
            return;
        }
        for region in 0..self.regions() {
            if self.in_doubt(region) {
                let rows = self.superblock.intent_rows;
                self.undo_replace(region * rows, rows);
            }
        }
    }

    /// Rows whose parity was missing were written without a record; they are among those owed.
    fn undo_owed_replacements(&mut self) {
        for region in 0..self.regions() {
            if self.intent.get(self.owed_bit(region)) {
                let first = region * self.superblock.intent_rows;
                let count = self.superblock.intent_rows.min(self.layout.rows() - first);
                self.undo_replace(first, count);
            }
        }
    }

    /// With members missing and parity untrusted, what only parity held is lost: not without being told so.
    fn lose_unsynced_slots(&mut self) -> Result<(), CommandError> {
        for slot in 0..self.roles.slots() {
            for partition in 0..self.layout.partitions() {
                let roles = self.roles.at(Slot(slot as u16), partition);
                if roles.home.is_none() {
                    self.lose_unsynced_part(slot, partition);
                }
            }
        }
        self.check_accepted()
    }

    fn lose_unsynced_part(&mut self, slot: usize, partition: u16) {
        if self.mode.accept_loss {
            return self.lose_unsynced(slot, partition);
        }
        let cells: Vec<u64> = self.unsynced_cells(slot, partition).collect();
        let chunk = self.layout.chunk_sectors();
        for lba in cells {
            self.would_lose(lba, chunk);
        }
    }

    /// Current members that are not here are current no longer.
    fn note_missing(&mut self) {
        let members = self.entry_members();
        let stale_since = self.superblock.generation + 1;
        let mut any = false;
        let good = |member: &Option<Member>| member.is_some_and(|member| self.good(member));
        let good: Vec<bool> = members.iter().map(good).collect();
        let facts = self.facts();
        for (entry, line) in facts.superblock.members.iter_mut().enumerate() {
            // It is not known what a member lacks that is present with an older state.
            let partial = line.role == MemberRole::Active && members[entry].is_none();
            if !good[entry] && matches!(line.role, MemberRole::Active | MemberRole::Rebuilding) {
                line.leave(stale_since, partial, facts.superblock.sequence);
                let mut dropped = facts.tasks.dropped.iter();
                let of_it = dropped.find(|one| one.target == line.uuid);
                line.dropped_for = of_it.map(|one| one.slot);
                any = true;
            }
        }
        if any {
            self.superblock.generation = stale_since;
            self.place_entries();
        }
        if self.layout.tolerance() > 0 && !self.complete() {
            self.owe_task_rows();
        }
        // A failure may be on record without what it left owing.
        if !self.superblock.clean && self.layout.tolerance() > 0 && !self.complete() {
            let mut rows = self.start_mut().rows();
            rows.extend(self.row_in_journal().map(|row| row.0));
            for row in rows {
                self.owe_rows(Row(row), Row(row));
            }
            for region in 0..self.regions() {
                if self.in_doubt(region) {
                    self.owe_region(region);
                }
            }
        }
        self.owe_returning();
    }

    /// What was being written when a member left with a crash may be known to its own log alone: a partial
    /// rebuild of it includes those rows. Done before recovery, which is not theirs to decide.
    pub(super) fn note_returning(&mut self) {
        let returning = self.returning_members();
        let starting = self.start_mut();
        let returns = |member: &mut Member| returning.contains(member);
        let unread: Vec<Member> = starting.unread.extract_if(.., returns).collect();
        let ours = |entry: &mut Record| returning.contains(&entry.0);
        starting.stale_records = starting.records.extract_if(.., ours).collect();
        for member in unread {
            self.rebuild_in_full(member);
        }
    }

    fn owe_returning(&mut self) {
        let records = core::mem::take(&mut self.start_mut().stale_records);
        for (member, _, record) in &records {
            let row = Row(record.row);
            // The array's own floor is of a time when this member was away.
            let floor = self.own_record_floor(*member, &records);
            if record.sequence >= floor && row.0 < self.layout.rows() {
                self.owe_rows(row, row);
            }
        }
    }

    /// A start writes two versions, so that a copy of a member from before it is two behind, as no crash
    /// leaves one ([`crate::choose::choose`]). True until the second is on its way.
    fn confirm(&mut self) -> bool {
        let read_only = self.mode.read_only;
        let starting = self.start_mut();
        if read_only || core::mem::replace(&mut starting.confirms, true) {
            return false;
        }
        self.writer.note_change();
        true
    }

    /// Serves once the members agree on the new state of things.
    pub(super) fn start_settle(&mut self) -> bool {
        let durable = self.writer.all_durable() && !self.maps_dirty();
        if !durable && !self.mode.read_only {
            return false;
        }
        if self.forsake_log_set() || self.confirm() {
            return false;
        }
        let starting = self.end_start();
        self.open_cache();
        self.state = ArrayState::Healthy;
        self.assess();
        self.out.push(Action::CommandReply(starting.tag, Ok(())));
        let generation = self.superblock.generation;
        self.recovered_rows = starting.recovered;
        for dropped in self.tasks.dropped.clone() {
            self.fact(Fact::TaskDropped(dropped));
        }
        self.fact(Fact::Started {
            generation,
            recovered_rows: starting.recovered,
        });
        false
    }
}
