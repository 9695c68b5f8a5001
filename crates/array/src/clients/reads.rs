//! Reads without a slice: which member answers them, and parts that no member has to answer.

use super::{Clients, Copies};
use crate::contract::{BufRef, Bug, RequestError};
use crate::members::ops::{Owner, ReadPart};
use crate::roles::Home;
use crate::units::{Row, SECTOR_BYTES};

impl Clients {
    /// Whether a crash may have left the copies of a row different. Such a row is resynchronised before a
    /// read of it is answered: the value that the read shows is on every copy then, and the next flush covers
    /// all of them.
    pub(crate) fn copies_may_differ(&self, row: Row, copies: Copies) -> bool {
        let clean = self.tasks.list.is_empty();
        if clean || copies != Copies::All || self.layout.parity() || self.layout.tolerance() == 0 {
            return false;
        }
        let writes = !self.mode.read_only && !self.tasks.waits_for_start;
        let alone = self.first_alone(row) || self.planted(Bug::CopiesShownApart);
        writes && !alone && !self.in_sync(row)
    }

    /// What was never written is zeros, but for what a log set took away with it.
    pub(crate) fn start_unwritten_part(
        &mut self,
        id: u32,
        offset: u64,
        bytes: u64,
        target: BufRef,
    ) {
        let lba = offset / SECTOR_BYTES;
        let end = (offset + bytes).div_ceil(SECTOR_BYTES);
        match self.lost.first_in(lba, end - lba) {
            Some(first) => self.lose_part(id, first),
            None => self.start_zero_part(id, target),
        }
    }

    fn start_zero_part(&mut self, id: u32, target: BufRef) {
        self.requests.begin_part(id);
        let part = ReadPart {
            request: id,
            lba: 0,
            sectors: 0,
            target,
        };
        self.copy(Owner::ReadPart(part), None, target);
    }

    /// Whether the first copy of a sector is on a member that serves.
    pub fn has_first(&self, lba: u64) -> bool {
        let place = self.layout.place(lba);
        let first = self.read_home_of(place.row, place.data, Copies::First);
        first.is_some()
    }

    /// The member that reads a data cell without computing: its own, or the least busy that holds a copy.
    /// While copies may differ, always the same one.
    pub(crate) fn read_home(&self, row: Row, data: u8) -> Option<(Home, u64)> {
        self.read_home_of(row, data, Copies::All)
    }

    pub(crate) fn read_home_of(&self, row: Row, data: u8, copies: Copies) -> Option<(Home, u64)> {
        let map = self.row_map(row);
        let first = copies == Copies::First || self.first_alone(row);
        if first || map.data == map.width || self.layout.parity() {
            let cell = map.cells[data as usize];
            return self.homes(cell.slot, row).read.map(|home| (home, cell.at));
        }
        let settled = self.in_sync(row);
        let mut best: Option<(Home, u64)> = None;
        let copies = map.copies_of(data);
        for cell in copies.iter().map(|cell| map.cells[usize::from(cell)]) {
            let Some(home) = self.homes(cell.slot, row).read else {
                continue;
            };
            let load = |home: Home| {
                let device = &self.devices[home.member.0 as usize];
                (!device.power.is_up(), device.in_flight)
            };
            if best.is_none_or(|(held, _)| settled && load(home) < load(held)) {
                best = Some((home, cell.at));
            }
        }
        best
    }

    /// A part of a read has a lost sector in it.
    pub(crate) fn lose_part(&mut self, id: u32, lba: u64) {
        self.requests.begin_part(id);
        let error = RequestError::Lost { lba, sectors: 1 };
        self.request_part_done(id, Err(error));
    }
}
