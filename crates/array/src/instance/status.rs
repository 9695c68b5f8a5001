//! What the array looks like: for people, metrics and block-status queries.

use super::Instance;
use crate::contract::Halt;
use crate::members::device::Health as DeviceHealth;
use crate::report::{
    ArrayState, Health, MapExtent, MemberState, MemberStatus, Refusal, Status, TaskStatus,
    WhyRefused,
};
use crate::units::{Member, Row, Slot, Uuid};
use alloc::vec::Vec;
use restripe_format::meta::superblock::MemberRole;

impl Instance {
    pub fn status(&self) -> Status {
        let (started, tasks) = (!self.roles.is_empty(), self.tasks.list.iter());
        Status {
            name: self.superblock.name.clone(),
            uuid: self.superblock.array,
            generation: self.superblock.generation,
            state: self.state,
            geometry: started.then_some(self.superblock.geometry),
            size_bytes: if started { self.own_bytes() } else { 0 },
            logical_block: self.superblock.logical_block,
            read_only: self.mode.read_only,
            refusal: self.refused_for(),
            members: self.all().map(|one| self.member_status(one)).collect(),
            tasks: tasks.map(|task| self.task_status(task)).collect(),
            dropped: self.tasks.dropped.clone(),
            lost: self.lost.extents.runs().to_vec(),
            in_doubt: self.sectors_in_doubt(),
            last_scrub: self.last_scrub(),
            counters: self.counters,
            redirectable: self.redirectable(),
            log_set: self.superblock.partner.map(|partner| partner.array),
            lent: self.lent().to_vec(),
        }
    }

    /// Why writes are refused. Without space, also while it is open whether there is room again.
    pub(crate) fn refused_for(&self) -> Option<Refusal> {
        let refusal = |why, members: Vec<Member>| Some(Refusal { why, members });
        if !self.serving() {
            return None;
        }
        let gone = |device: &crate::members::device::Device| device.health == DeviceHealth::Failed;
        let device = |member: &Member| &self.devices[usize::from(member.0)];
        let gone = self.all().filter(|member| gone(device(member)));
        let full = self.all().filter(|member| device(member).full);
        match self.halt {
            Some(Halt::NoSpace) => refusal(WhyRefused::NoSpace, full.collect()),
            Some(Halt::Owned(_)) => refusal(WhyRefused::Owned, Vec::new()),
            Some(Halt::TooFew) => refusal(WhyRefused::TooFew, gone.collect()),
            None if self.state == ArrayState::Failed => refusal(WhyRefused::TooFew, gone.collect()),
            None if self.mode.read_only => refusal(WhyRefused::ReadOnly, Vec::new()),
            None => {
                let full: Vec<Member> = self.full_members().collect();
                (!full.is_empty()).then_some(Refusal {
                    why: WhyRefused::NoSpace,
                    members: full,
                })
            }
        }
    }

    fn member_status(&self, member: Member) -> MemberStatus {
        let device = &self.devices[usize::from(member.0)];
        let line = |entry| &self.superblock.members[usize::from(entry)];
        let line = device.entry.map(line);
        let state = match (device.health, line.map(|line| line.role)) {
            (DeviceHealth::Stranger, _) | (_, None) => MemberState::Foreign,
            (DeviceHealth::Failed, _) | (_, Some(MemberRole::Failed { .. })) => MemberState::Failed,
            (_, Some(MemberRole::Active)) => MemberState::Active,
            (_, Some(MemberRole::Rebuilding)) => MemberState::Rebuilding,
            (_, Some(MemberRole::Spare)) => MemberState::Spare,
        };
        let slot = self.slot_of(member).map(|slot| Slot(slot as u16));
        MemberStatus {
            member,
            uuid: line.map_or(Uuid::NIL, |line| line.uuid),
            slot: slot.map(|slot| slot.0),
            has_firsts: slot.is_some_and(|slot| self.layout.has_firsts(slot)),
            hosts: self.roles.hosted_by(member),
            state,
            replaced: line.is_some_and(|line| self.superblock.was_replaced(line)),
            volatile: device.info.volatile,
            full: device.full,
            read_errors: line
                .map_or(0, |line| line.read_errors)
                .saturating_add(device.check_errors)
                .saturating_add(device.lost_errors),
            lost_errors: device.lost_errors,
            spent: device.spent,
        }
    }

    fn task_status(&self, task: &crate::task::table::Task) -> TaskStatus {
        let (done, total) = (task.done.len(), self.layout.rows());
        TaskStatus {
            kind: task.kind,
            slot: task.slot,
            paused: task.paused,
            first: self.tasks.goes_first(task),
            rides: self.tasks.rides(task),
            rows_done: done,
            rows_total: total,
            moved: self.tasks.moved_lately(task),
            left: self.left_of(task),
            pacing: self.tasks.pacing(task.kind),
            aim: self.task_aim(task),
            mismatches: self.tasks.mismatches(task),
        }
    }

    /// Extents of like kind from `lba` on, chunk by chunk, joined.
    pub fn map(&self, lba: u64, sectors: u64, most: usize, into: &mut Vec<MapExtent>) {
        let end = (lba + sectors).min(self.layout.size_sectors());
        let mut at = lba;
        while at < end {
            let mut extent = self.extent_at(at, end);
            extent.sectors = extent.sectors.min(end - at);
            at += extent.sectors;
            let full = into.len() >= most;
            match into.last_mut() {
                Some(last) if last.hole == extent.hole && last.health == extent.health => {
                    last.sectors += extent.sectors;
                }
                _ if full => return,
                _ => into.push(extent),
            }
        }
    }

    fn extent_at(&self, lba: u64, end: u64) -> MapExtent {
        let place = self.layout.place(lba);
        let unwritten = !self.is_written_at(place);
        if unwritten && !self.lost.extents.contains(lba) {
            let next = (self.extent_of(place.row) + 1) * self.superblock.extent_rows;
            let end = Row(next.min(self.layout.rows()));
            let sectors = self.layout.run_sectors(place, end);
            let lost = self.lost.first_in(lba, sectors);
            return MapExtent {
                lba,
                sectors: lost.map_or(sectors, |first| first - lba),
                hole: true,
                health: Health::Healthy,
            };
        }
        let chunk_left = (self.layout.chunk_sectors() - place.offset).min(end - lba);
        if let Some(first) = self.lost.first_in(lba, chunk_left) {
            let lost_end = self.lost.extents.first_gap(first);
            let (sectors, health) = match first > lba {
                true => (first - lba, self.health_at(place.row, place.data)),
                false => (lost_end - lba, Health::Lost),
            };
            return MapExtent {
                lba,
                sectors: sectors.min(chunk_left),
                hole: false,
                health,
            };
        }
        MapExtent {
            lba,
            sectors: chunk_left,
            hole: false,
            health: self.health_at(place.row, place.data),
        }
    }

    fn health_at(&self, row: Row, data: u8) -> Health {
        if self.state == ArrayState::Healthy && self.complete() {
            return Health::Healthy;
        }
        let map = self.row_map(row);
        let live = self.live_cells(&map);
        if live != map.all() {
            let readable = live.contains(data) || map.recover(data, live).is_some();
            return match readable {
                true => Health::Degraded,
                false => Health::Lost,
            };
        }
        let serving = |cell: &crate::layout::Cell| self.roles_at(cell.slot, row).home.is_some();
        match map.cells().iter().all(serving) {
            true => Health::Healthy,
            false => Health::Rebuilt,
        }
    }
}
