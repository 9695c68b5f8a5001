//! Rows: the floor of slices, with what all slices do alike. A slice is admitted, goes from phase to phase
//! and from band to band, takes buffers, and ends. Where a block is partly lost, it is reset: the lost cells
//! become zeros, and parity is made to fit.
//!
//! Owns the table of slices and the queue of transfers. Asks every floor below.

use super::table::{Extra, Kind, Phase, Scrubbed, Slices, Source};
use crate::clients::Copies;
use crate::config::Config;
use crate::contract::BufRef;
use crate::layout::{CellSet, Role, RowMap};
use crate::members::pool::{Share, Size};
use crate::runset::RunSet;
use crate::targets::Targets;
use crate::units::{Row, SECTOR_BYTES, Slot};
use alloc::collections::VecDeque;

pub struct Rows {
    pub(crate) below: Targets,
    pub(crate) slices: Slices,
    pub(crate) transfers: Transfers,
}

floor!(Rows, Targets);

/// Slices that requests leave to tasks.
const TASK_SLICES: usize = 2;

/// What a slice of some kind needs to be admitted.
pub(crate) struct Need {
    pub(crate) kind: Kind,
    pub(crate) row: Row,
    pub(crate) start: u64,
    pub(crate) sectors: u64,
    /// Highest band.
    pub(crate) step: u64,
    pub(crate) buffers: u32,
}

/// Part of a row, in a buffer that stays as it is until it was copied or refused.
#[derive(Clone, Copy, Debug)]
pub struct Handed {
    pub slice: u32,
    pub lba: u64,
    pub buf: BufRef,
}

/// Data that a task reads of some rows goes to a log set in the same pass. A window of the task holds the
/// locks of its rows until each buffer that it passed has been copied or refused. So the main set cannot
/// change the data between the read and the copy.
#[derive(Default)]
pub(crate) struct Transfers {
    /// Zones whose data are wanted.
    pub(crate) zones: RunSet,
    queue: VecDeque<Handed>,
}

impl Transfers {
    pub(super) fn add(&mut self, handed: Handed) {
        self.queue.push_back(handed);
    }

    pub(crate) fn next(&mut self) -> Option<Handed> {
        self.queue.pop_front()
    }
}

impl Rows {
    pub(crate) fn new(config: Config, share: Share) -> Rows {
        Rows {
            slices: Slices::new(config.limits.slices),
            transfers: Transfers::default(),
            below: Targets::new(config, share),
        }
    }

    /// Whether cells of a row, up to this data cell, can be written. False: wait for metadata to move.
    pub(crate) fn extent_ready(&mut self, row: Row, last: u8) -> bool {
        let slices = &self.slices;
        let moves = |rows| slices.moves_in(rows);
        self.below.make_ready(row, last, moves)
    }

    /// Admits a slice with everything its worst case takes; `None` when there is no room.
    pub(crate) fn admit_slice(&mut self, need: &Need) -> Option<u32> {
        let size = Size::holding(need.step * SECTOR_BYTES);
        if self.slices.free.len() <= self.kept_slices(need) || !self.room_in_buffers(need, size) {
            return None;
        }
        let id = self.slices.free.pop().expect("checked above");
        let map = self.row_map(need.row);
        let slice = &mut self.slices[id];
        slice.kind = need.kind;
        slice.phase = Phase::Queued;
        (slice.row, slice.map) = (need.row, map);
        (slice.start, slice.sectors) = (need.start, need.sectors);
        slice.step = need.step;
        (slice.size, slice.reserved) = (size, need.buffers);
        (slice.pending, slice.durable, slice.intent_held) = (0, false, false);
        slice.copies = Copies::All;
        slice.outsourced = None;
        (slice.several, slice.skipped, slice.narrowed) = (false, false, false);
        slice.reset = false;
        slice.erred.clear();
        slice.scrubbed = Scrubbed::Compared;
        slice.findings.clear();
        (slice.error, slice.record) = (None, None);
        slice.live = true;
        slice.fragments.clear();
        slice.begin_band(need.start);
        self.slices.enqueue(id);
        self.slices.requeue(id);
        Some(id)
    }

    /// Requests leave room for tasks, on which they may have to wait.
    fn kept_slices(&self, need: &Need) -> usize {
        match need.kind {
            Kind::Write(_) | Kind::Read(..) => TASK_SLICES,
            _ => 0,
        }
    }

    fn room_in_buffers(&mut self, need: &Need, size: Size) -> bool {
        let kept = match self.kept_slices(need) {
            0 => 0,
            _ => self.task_buffers(),
        };
        if !self.buffers.reserve(size, need.buffers + kept) {
            return false;
        }
        self.buffers.unreserve(size, kept);
        true
    }

    /// The band is done: the next one, or the end.
    pub(crate) fn band_done(&mut self, id: u32) {
        self.judge_errors(id);
        self.drop_buffers(id);
        let slice = &mut self.slices[id];
        let next = slice.band + slice.band_sectors;
        if next < slice.end() {
            slice.begin_band(next);
            self.slices.set_phase(id, Phase::Preparing);
            self.slices.requeue(id);
        } else {
            self.close_slice(id, true);
        }
    }

    /// Starts the band again with one block at a time. False if it is one block already, and the slice itself
    /// has found what cannot be read of it.
    pub(crate) fn narrow(&mut self, id: u32) -> bool {
        let block = u64::from(self.superblock.logical_block) / SECTOR_BYTES;
        let slice = &mut self.slices[id];
        if slice.band_sectors <= block && !slice.unconfirmed {
            return false;
        }
        self.drop_buffers(id);
        let slice = &mut self.slices[id];
        slice.step = block;
        slice.narrowed = true;
        slice.begin_band(slice.band);
        self.slices.set_phase(id, Phase::Preparing);
        self.slices.requeue(id);
        true
    }

    /// Starts the band again, as high as it is.
    pub(crate) fn begin_band_again(&mut self, id: u32) {
        self.judge_errors(id);
        self.drop_buffers(id);
        let slice = &mut self.slices[id];
        slice.begin_band(slice.band);
        self.slices.set_phase(id, Phase::Preparing);
        self.slices.requeue(id);
    }

    /// The slice ends where it is, whatever is left of its bands.
    pub(crate) fn finish_slice(&mut self, id: u32) {
        self.judge_errors(id);
        self.close_slice(id, false);
    }

    /// The slice has done its work, all of it or not. The dispatcher reports that after the step.
    fn close_slice(&mut self, id: u32, complete: bool) {
        self.drop_buffers(id);
        self.slices.set_phase(id, Phase::Finished);
        let slice = &mut self.slices[id];
        slice.live = false;
        let (size, reserved, row) = (slice.size, slice.reserved, slice.row);
        let intent_held = core::mem::take(&mut slice.intent_held);
        let unannounced =
            slice.kind.writes_unannounced() || slice.reset || !slice.zeroed.is_empty();
        self.buffers.unreserve(size, reserved);
        self.slices.dequeue(id);
        if intent_held {
            self.intent_release(row);
        } else if unannounced {
            self.note_row_written(row);
        }
        self.cache_repair_ends(id);
        self.count_errors(id, complete);
    }

    /// The buffer of a cell, taken if it has none yet.
    pub(crate) fn cell_buffer(&mut self, id: u32, cell: u8) -> BufRef {
        let slice = &mut self.slices[id];
        if slice.cells[cell as usize].is_none() {
            slice.cells[cell as usize] = Some(self.below.buffers.take(slice.size));
        }
        slice.cell_ref(cell)
    }

    pub(crate) fn extra_buffer(&mut self, id: u32, extra: Extra) -> BufRef {
        let slice = &mut self.slices[id];
        if slice.extras[extra.index()].is_none() {
            slice.extras[extra.index()] = Some(self.below.buffers.take(slice.size));
        }
        slice.extra_ref(extra).expect("taken just now")
    }

    pub(crate) fn drop_buffers(&mut self, id: u32) {
        let slice = &mut self.slices[id];
        let width = slice.map.width as usize;
        for held in slice.cells[..width].iter_mut().chain(&mut slice.extras) {
            if let Some(buf) = held.take() {
                self.below.buffers.give_back(buf);
            }
        }
        if matches!(slice.kind, Kind::Reshape(_)) {
            slice.made.drop_buffers(&mut self.below.buffers);
        }
        slice.have = CellSet::default();
    }

    /// Whether it is on record what the slice has called lost, and the cells may become zeros where they
    /// stand.
    pub(super) fn losses_settled(&mut self, id: u32) -> bool {
        let slice = &self.slices[id];
        let (map, zeroed) = (slice.map, slice.zeroed);
        zeroed.is_empty() || !self.lost.dirty() && self.may_change(&map, zeroed)
    }

    /// A block in which something is lost for good: the lost cells become zeros, and parity is made to fit.
    pub(super) fn plan_reset(&mut self, id: u32, map: &RowMap) {
        let slice = &self.slices[id];
        let wanted = map.data_set().minus(slice.zeroed).minus(slice.have);
        let readable = self.readable(id);
        if !wanted.within(readable) {
            self.declare_lost(id, wanted.minus(readable))
        } else if wanted.is_empty() {
            self.compute_parity(id, map.parity_set())
        } else {
            self.read_cells(id, wanted)
        }
    }

    /// Writes what a reset decided: zeros and parity, to the serving members and to the one being filled.
    pub(super) fn write_reset(&mut self, id: u32, slot: Option<u16>) {
        let map = self.slices[id].map;
        let live = self.live_cells(&map);
        let zeroed = self.slices[id].zeroed;
        self.slices[id].reset = true;
        self.slices.set_phase(id, Phase::Writing);
        let lost = |cell: &u8| zeroed.contains(data_of(&map, *cell));
        for cell in live.iter().filter(lost) {
            self.write_cell(id, cell, Source::Zero, None);
        }
        self.write_parity(id, &map, live);
        self.offer(id);
        if let Some(slot) = slot.map(Slot)
            && let Some(target) = self.roles_at(slot, map.row).incoming
            && let Some(cell) = map.cell_on(slot)
        {
            let slice = &self.slices[id];
            let source = match map.parity_at(cell) {
                Some(parity) => slice.extra_ref(Extra::New(parity)).map(Source::Buf),
                None if lost(&cell) => Some(Source::Zero),
                None => Some(Source::Buf(slice.cell_ref(cell))),
            };
            if let Some(source) = source {
                self.write_cell(id, cell, source, Some(target));
            }
        }
        self.slices.requeue_if_idle(id);
    }
}

/// The data cell whose content a cell holds; a parity cell holds its own.
fn data_of(map: &RowMap, cell: u8) -> u8 {
    match map.cells[cell as usize].role {
        Role::Copy { of } => of,
        Role::Data(_) | Role::P | Role::Q | Role::Parity(_) => cell,
    }
}
