//! What a task reads of some rows goes to a log in the same pass: the task hands its buffers over.
//!
//! A window of the task keeps its rows locked until what it handed over has been copied or refused. So nobody can have
//! changed, at home, what is being copied, since it was read.

use crate::contract::BufRef;
use crate::core::Core;
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
pub(crate) struct Handover {
    /// Zones whose data are wanted.
    pub(crate) zones: RunSet,
    queue: VecDeque<Handed>,
}

impl Handover {
    pub(crate) fn next(&mut self) -> Option<Handed> {
        self.queue.pop_front()
    }
}

impl Core {
    /// Hands over the data that a window of a task has of its band, if its zone is wanted. The window goes on when each
    /// part has been [copied or refused](Core::handed_over).
    pub(crate) fn hand_over(&mut self, id: u32) {
        let slice = self.slices.get(id);
        let (map, band, have, zeroed) = (slice.map, slice.band, slice.have, slice.zeroed);
        let zone = map.row.0 / self.heat.zone_rows().max(1);
        if !self.handover.zones.contains(zone) || !zeroed.is_empty() {
            return;
        }
        let mut told = CellSet::EMPTY;
        for cell in have.iter() {
            let data = match map.cells[usize::from(cell)].role {
                Role::Data(_) => cell,
                Role::Copy { of } => of,
                Role::P | Role::Q | Role::Parity(_) => continue,
            };
            let lba = self.layout.lba(map.row, data, band);
            let buf = self.slices.get(id).cell_ref(cell);
            let sectors = u64::from(buf.bytes) / SECTOR_BYTES;
            // What is lost is zeros on the members, and must not be taken for data.
            if told.contains(data) || self.lost.first_in(lba, sectors).is_some() {
                continue;
            }
            told = told.with(data);
            self.slices.get(id).pending += 1;
            self.handover.queue.push_back(Handed {
                slice: id,
                lba,
                buf,
            });
        }
    }

    /// The window waits for one piece more.
    pub fn hold(&mut self, slice: u32) {
        self.slices.get(slice).pending += 1;
    }

    /// A piece of what was handed over is not needed any more. The window goes on with the next step.
    pub fn handed_over(&mut self, slice: u32) {
        let held = self.slices.get(slice);
        held.pending -= 1;
        if held.pending == 0 {
            self.slices.requeue(slice);
        }
    }
}
