//! What goes wrong for good: members that fail, an array without space, and what is lost with them.
//!
//! A failure takes effect here at once; it is on record when the superblocks that say so are durable, and
//! until then nothing is acknowledged. The one that redundancy does not bear is never put on record: the
//! array halts.

use super::Safety;
use crate::contract::{Bug, Fact, FailCause, Halt, IoError};
use crate::facts::{Notice, Waiter};
use crate::members::device::{Health, Power};
use crate::report::ArrayState;
use crate::units::Member;
use alloc::vec::Vec;

impl Safety {
    /// Takes a member out of service, whatever it was doing. Writes and flushes are not acknowledged again
    /// before the members that remain say so in their superblocks; where too few remain, never. Operations
    /// that found no space come to [`super::full`] first: what comes here for that was not set aside there.
    pub fn fail_member(&mut self, member: Member, cause: FailCause) {
        if cause.is_no_space() && (self.halted() || self.serves(member)) {
            self.note_full(member);
            if !self.halted() {
                self.halts(Halt::NoSpace);
            }
            return;
        }
        self.take_out(member, cause);
    }

    /// The same, whatever the cause.
    pub(crate) fn take_out(&mut self, member: Member, cause: FailCause) {
        let serves = self.serves(member);
        let device = &mut self.devices[member.0 as usize];
        if device.health != Health::Good {
            return;
        }
        device.health = Health::Failed;
        // Should it come back, what it holds by then counts only after a flush.
        device.unflushed = true;
        device.power = Power::default();
        self.note_phase(member);
        self.fact(Fact::MemberFailed { member, why: cause });
        let one_too_many = serves && self.is_one_too_many(member);
        if one_too_many {
            self.halt = Some(Halt::TooFew);
        }
        let filling = self.roles.slots_where(|one| one.takes(member));
        if serves {
            self.lose_homes(member);
        }
        for slot in filling {
            self.drop_incoming(slot, |other| other == member);
        }
        if !self.halted() {
            self.record_failure(member, serves);
        }
        self.logs.forget(member);
        self.assess();
        if one_too_many {
            self.halts(Halt::TooFew);
        }
        self.notify(Notice::MemberOut(member));
        if self.halted() {
            // A halted array makes nothing durable: what waits for that ends.
            self.notify(Notice::MetadataMoved);
        }
    }

    pub(crate) fn flush_failed(&mut self, member: Member, error: IoError) {
        self.devices[usize::from(member.0)].unflushed = true;
        self.fail_member(member, FailCause::FlushError(error));
    }

    /// The array's state as its members leave it.
    pub(crate) fn assess(&mut self) {
        if !self.serving() {
            return;
        }
        self.state = match self.all_decodable(|_| false) {
            _ if self.complete() => ArrayState::Healthy,
            true => ArrayState::Degraded,
            false => ArrayState::Failed,
        };
        self.price_misses();
    }

    fn record_failure(&mut self, member: Member, served: bool) {
        let stale_since = self.superblock.generation + 1;
        self.superblock.generation = stale_since;
        if let Some(entry) = self.devices[member.0 as usize].entry {
            let sequence = self.superblock.sequence;
            self.superblock.members[entry as usize].leave(stale_since, served, sequence);
        }
        self.place_entries();
        self.writer.note_failure();
        self.devices[member.0 as usize].left_under = self.writer.version_wanted();
        if self.logged() {
            // Records of writes that the member took part in are soon over: after a crash they would call its
            // cells lost.
            self.flush_for(Waiter::Log);
        }
    }

    // ----------------------------------------------------------------------------------------------- halting

    /// Halts, though no member has failed just now.
    pub fn halt_for(&mut self, why: Halt) {
        if !self.halted() {
            self.halts(why);
            self.notify(Notice::MetadataMoved);
        }
    }

    /// From here on nothing is written.
    fn halts(&mut self, why: Halt) {
        self.halt = Some(why);
        self.mode.read_only = true;
        self.notify(Notice::Halted(why));
    }

    /// Whether redundancy bears what has failed, and this member not. A start looks for itself while it
    /// reads.
    fn is_one_too_many(&self, member: Member) -> bool {
        let may_write = !self.mode.read_only && !self.undecided();
        let borne = self.all_decodable(|one| one.serves(member));
        may_write && !borne && !self.planted(Bug::OneTooManyRecorded)
    }

    /// These members are filled for a slot no longer: they are gone, or nothing is written any more. The task
    /// goes on with the others, or is at an end.
    pub(crate) fn drop_incoming(&mut self, slot: usize, gone: impl Fn(Member) -> bool) {
        let mut dropped = Vec::new();
        for (partition, roles) in (0..).zip(self.roles.of_slot_mut(slot)) {
            if roles.incoming.is_some_and(|home| gone(home.member)) {
                roles.incoming = None;
                dropped.push(partition);
            }
        }
        if self.roles.is_filled(slot) {
            for partition in dropped {
                let rows = self.layout.partition_rows(partition);
                self.tasks.pass_by(slot, rows);
            }
        } else {
            self.tasks.target_failed(slot);
        }
        self.cache_unrebuilt(slot);
    }

    /// No member serves what this one served: what it may lack from now on goes into the intent map, and what
    /// cannot be recovered into the list of lost sectors.
    fn lose_homes(&mut self, member: Member) {
        let mut lost = Vec::new();
        for slot in self.roles.slots_where(|one| one.serves(member)) {
            let mut was_copied = false;
            for (partition, roles) in (0..).zip(self.roles.of_slot_mut(slot)) {
                if roles.serves(member) {
                    roles.home = None;
                    was_copied |= roles.incoming.is_some();
                    lost.push((slot, partition));
                }
            }
            if was_copied {
                self.tasks.source_failed(slot);
            }
        }
        self.owe_unflushed_rows();
        for (slot, partition) in lost {
            self.lose_unsynced(slot, partition);
        }
        self.cache_loses_copies();
    }

    /// Cells of rows whose parity was never brought in step cannot be recovered.
    pub(crate) fn lose_unsynced(&mut self, slot: usize, partition: u16) {
        if self.halted() {
            return;
        }
        let cells: Vec<u64> = self.unsynced_cells(slot, partition).collect();
        for lba in cells {
            self.lose(lba, self.layout.chunk_sectors());
        }
    }

    /// Gives sectors up for good: they are named, and read as lost until they are written anew.
    pub fn lose(&mut self, lba: u64, sectors: u64) {
        if !self.planted(Bug::LossForgotten) {
            self.lost.add(lba, sectors);
        }
        self.cache_lost(lba, sectors);
        self.fact(Fact::Lost { lba, sectors });
        self.fit_lost(None);
    }

    /// Keeps the list of the lost within its pages.
    pub(crate) fn fit_lost(&mut self, written: Option<(u64, u64)>) {
        while let Some((lba, sectors)) = self.lost.give_up_gap(written) {
            self.cache_lost(lba, sectors);
            self.fact(Fact::Lost { lba, sectors });
        }
    }

    /// A member is gone from now on: it may lack every row whose last writes were not flushed. And a copy
    /// of it may come back in its place, and lack what was written lately ([`crate::metadata::recent`]).
    pub(crate) fn owe_unflushed_rows(&mut self) {
        if self.layout.tolerance() == 0 {
            return;
        }
        self.owing = true;
        self.owe_inits();
        self.owe_task_rows();
        let mut rows = Vec::new();
        self.logs.live_rows(&mut rows);
        rows.extend(self.row_in_journal());
        for row in rows {
            self.owe_rows(row, row);
        }
        for region in 0..self.regions() {
            if self.written_lately(region) || self.in_doubt(region) {
                self.owe_region(region);
            }
        }
    }
}
