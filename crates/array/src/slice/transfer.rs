//! Transfers: data that a task reads of some rows goes to a log set in the same pass. The task passes its buffers.
//!
//! A window of the task holds the locks of its rows until each buffer that it passed has been copied or refused. So the
//! main set cannot change the data between the read and the copy.

use super::rows::Rows;
use crate::contract::BufRef;
use crate::layout::{CellSet, Role};
use crate::runset::RunSet;
use crate::units::SECTOR_BYTES;
use alloc::collections::VecDeque;

/// Part of a row, in a buffer that stays as it is until it was copied or refused.
#[derive(Clone, Copy, Debug)]
pub struct Handed {
    pub slice: u32,
    pub lba: u64,
    pub buf: BufRef,
}

#[derive(Default)]
pub(crate) struct Transfers {
    /// Zones whose data are wanted.
    pub(crate) zones: RunSet,
    queue: VecDeque<Handed>,
}

impl Transfers {
    pub(crate) fn next(&mut self) -> Option<Handed> {
        self.queue.pop_front()
    }
}

/// Passes on the data that a window of a task has of its band, if its zone is wanted. The window goes on when each
/// part has been copied or refused.
pub(super) fn offer(rows: &mut Rows, id: u32) {
    let slice = &rows.slices.list[id as usize];
    let (map, band, have, zeroed) = (slice.map, slice.band, slice.have, slice.zeroed);
    let zone = map.row.0 / rows.heat.zone_rows().max(1);
    if !rows.transfers.zones.contains(zone) || !zeroed.is_empty() {
        return;
    }
    let mut offered = CellSet::EMPTY;
    for cell in have.iter() {
        let data = match map.cells[usize::from(cell)].role {
            Role::Data(_) => cell,
            Role::Copy { of } => of,
            Role::P | Role::Q | Role::Parity(_) => continue,
        };
        let lba = rows.layout.lba(map.row, data, band);
        let buf = rows.slices.get(id).cell_ref(cell);
        let sectors = u64::from(buf.bytes) / SECTOR_BYTES;
        // What is lost is zeros on the members, and must not be taken for data.
        if offered.contains(data) || rows.lost.first_in(lba, sectors).is_some() {
            continue;
        }
        offered = offered.with(data);
        rows.slices.hold(id);
        let slice = id;
        rows.transfers.queue.push_back(Handed { slice, lba, buf });
    }
}
