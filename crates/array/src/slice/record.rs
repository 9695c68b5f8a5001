//! Log records of a write: one for each parity that is there, durable before anything is written in place.

use super::{Kind, PARTIALS, Phase};
use crate::contract::{BufRef, Class, IoOp, Segment};
use crate::core::Core;
use crate::durability::parity_log::Entry;
use crate::layout::{CellSet, RowMap};
use crate::members::ops::{Owner, SliceOp};
use crate::planted::Bug;
use crate::units::{Member, PAGE_BYTES, PAGE_SECTORS, SECTOR_BYTES};
use restripe_format::meta::log::{self, LogRecord, PayloadKind};

impl Core {
    /// Writes the pass's record to the parity's members, when there is room and no older record forbids it.
    pub(super) fn log_pass(&mut self, id: u32) {
        if self.logged() && !self.settled() {
            // A crash now would take the failed member for a current one: what it misses must not be written yet.
            return self.await_log(id);
        }
        let map = self.slices.get(id).map;
        if self.pass_outdated(id, &map) {
            return self.plan_anew(id);
        }
        let holders = self.log_holders(&map);
        if !self.logged() || holders.iter().all(Option::is_none) {
            self.write_pass(id);
            return;
        }
        let slice = &self.slices.list[id as usize];
        let partial = PARTIALS
            .into_iter()
            .find_map(|extra| slice.extra_ref(extra));
        let payload_sectors = if partial.is_some() {
            slice.band_sectors
        } else {
            0
        };
        let modified = self.pass_with_zeroed(id).0;
        let slice = &self.slices.list[id as usize];
        let entry = Entry {
            row: map.row,
            start: slice.band,
            sectors: slice.band_sectors,
            modified,
            payload_sectors,
        };
        if !self.log_ready(&holders, &entry) {
            return self.await_log(id);
        }
        self.write_records(id, &map, &holders, &entry);
    }

    /// The pass's record is on every member that is there. One that failed meanwhile may lack it: as long as a crash would
    /// take that member for a current one, its log would say that nothing was written in place. Nothing of the pass is in
    /// place yet: one that is outdated now is planned anew, and its next record waits until this one is over.
    pub(super) fn pass_recorded(&mut self, id: u32) {
        if !self.settled() {
            return self.await_log(id);
        }
        let map = self.slices.get(id).map;
        if self.pass_outdated(id, &map) {
            self.end_record(id);
            self.plan_anew(id);
        } else {
            self.write_pass(id);
        }
    }

    /// A member failed since the pass was chosen, and one of its cells must not be written together with others now.
    fn pass_outdated(&mut self, id: u32, map: &RowMap) -> bool {
        let pass = self.slices.get(id).pass;
        let planted = self.planted(Bug::DegradedInOneStep);
        let whole = self.whole_rows() && pass == map.data_set();
        let outdated = pass.len() > 1 && !pass.within(self.firm_cells(map));
        self.layout.parity() && outdated && !whole && !planted
    }

    fn plan_anew(&mut self, id: u32) {
        self.drop_buffers(id);
        let slice = self.slices.get(id);
        slice.zeroed = CellSet::EMPTY;
        let Kind::Write(kind) = slice.kind else {
            unreachable!("only writes are logged")
        };
        self.set_phase(id, Phase::Preparing);
        self.prepare_write(id, kind);
    }

    /// Leaves a slice before its record until metadata moves.
    fn await_log(&mut self, id: u32) {
        if self.slices.get(id).phase != Phase::Logging {
            self.set_phase(id, Phase::Logging);
        }
        self.slices.waiting.push(id);
    }

    /// The members whose logs take a record: P's, then Q's, with those being filled to replace them.
    fn log_holders(&self, map: &RowMap) -> [Option<Member>; 4] {
        let mut holders = [None; 4];
        for (index, parity) in [map.p(), map.q()].into_iter().enumerate() {
            if let Some(parity) = parity {
                let homes = self.homes(map.cells[parity as usize].slot, map.row);
                [holders[2 * index], holders[2 * index + 1]] =
                    homes.write.map(|home| home.map(|home| home.member));
            }
        }
        holders
    }

    fn write_records(
        &mut self,
        id: u32,
        map: &RowMap,
        holders: &[Option<Member>; 4],
        entry: &Entry,
    ) {
        let sequence = self.logs.take_sequence();
        self.set_phase(id, Phase::Logging);
        let slice = self.slices.get(id);
        slice.record = Some(sequence);
        slice.several |= slice.durable && entry.modified.count_ones() > 1;
        let has = |parity: usize| holders[2 * parity].or(holders[2 * parity + 1]).is_some();
        let copies = u8::from(has(0)) * log::COPY_P + u8::from(has(1)) * log::COPY_Q;
        for (index, member) in holders.iter().enumerate() {
            let Some(member) = *member else { continue };
            let parity = index / 2;
            let (kind, extra) = ([PayloadKind::P, PayloadKind::Q][parity], PARTIALS[parity]);
            let record = LogRecord {
                array: self.superblock.array,
                sequence,
                floor: self.logs.floor_of(member).min(sequence),
                generation: self.superblock.generation,
                row: map.row.0,
                offset: entry.start as u32,
                sectors: entry.sectors as u32,
                modified: entry.modified,
                copies,
                kind,
                payload_sectors: entry.payload_sectors as u32,
                payload_crc: if entry.payload_sectors > 0 {
                    self.slices.get(id).checksums[parity]
                } else {
                    0
                },
            };
            let payload = self
                .slices
                .get(id)
                .extra_ref(extra)
                .filter(|_| entry.payload_sectors > 0);
            self.write_record(id, member, parity as u8, &record, payload, entry);
        }
    }

    fn write_record(
        &mut self,
        id: u32,
        member: Member,
        parity: u8,
        record: &LogRecord,
        payload: Option<BufRef>,
        entry: &Entry,
    ) {
        let mut page = self.ops.page();
        log::encode(record, &mut page);
        let at = self.devices[member.0 as usize].places.log
            + self.logs.place(member, record.sequence, entry);
        let padded = entry.payload_sectors.next_multiple_of(PAGE_SECTORS);
        let owner = Owner::Slice {
            slice: id,
            what: SliceOp::Log { parity },
        };
        self.slices.get(id).pending += 1;
        self.device_io(
            owner,
            member,
            IoOp::Write,
            at,
            PAGE_SECTORS + padded,
            Class::Metadata,
            |io| {
                io.durable = true;
                io.segments.push(Segment::Page(page));
                if let Some(payload) = payload {
                    io.segments.push(Segment::Buf(payload));
                    let rest = (padded * SECTOR_BYTES) as u32 - payload.bytes;
                    if rest > 0 {
                        debug_assert!((rest as usize) < PAGE_BYTES);
                        io.segments.push(Segment::Zero(rest));
                    }
                }
            },
        );
    }
}
