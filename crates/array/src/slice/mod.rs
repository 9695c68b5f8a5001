//! The slice machine: one sector range of a row, worked on under a lock, for every layout alike.
//!
//! Analyse, decide, act: a slice issues a batch of operations, waits until all have ended, and looks afresh at what
//! its row is like now. A member may fail between any two steps.
//!
//! | phase         | waits for                               | then                                                |
//! |---------------|-----------------------------------------|-----------------------------------------------------|
//! | Queued        | older slices on the same sectors        | Preparing                                           |
//! | Preparing     | extent, intent, lost map, log room      | Reading, Merging, Combining, Writing, Finished      |
//! | Reading       | old data and parity                     | Reading (another way), Recovering, Merging, ...     |
//! | Recovering    | lost cells computed                     | Merging, Combining, Comparing, Writing, Delivering  |
//! | Merging       | new bytes put over an old block; a move: rows that go together | Reading, Recovering, Combining, Logging, Writing |
//! | Combining     | parity and partial parity computed      | Checksumming, Logging, Writing                      |
//! | Checksumming  | checksum of the partial parity          | Logging, Writing; a replay: Preparing, judged       |
//! | Logging       | the record durable                      | Writing                                             |
//! | Writing       | all cells written                       | Preparing (next pass or band), Finished             |
//! | Delivering    | bytes put into the request's buffer     | Writing (repair), Preparing (next band), Finished   |
//! | Comparing     | verdicts of a scrub                     | Recovering, Preparing (narrower), Writing, Finished |
//! | Finished      |                                         | freed                                               |
//!
//! Any phase before Writing goes back to Preparing when a member fails that the plan counted on, or when the band is
//! narrowed; `crates/sim/tests/it/table.rs` lists every transition there is.
//!
//! A slice works on its range band by band. When an unreadable sector leaves no way to decode a band, the band is
//! narrowed to one logical block, so that exactly the sectors that are lost are lost.

mod combine;
pub(crate) mod gather;
mod issue;
mod read;
mod record;
mod relocate;
mod replay;
pub(crate) mod reshape;
mod scrub;
mod task;
mod write;

use crate::clients::requests::Copies;
use crate::contract::{Buf, BufRef, Fact, FailCause, IoError, RequestError, ScrubMode, Verdict};
use crate::core::Core;
use crate::layout::RowMap;
use crate::layout::code::CellSet;
use crate::layout::reed_solomon::PARITIES_MAX;
use crate::members::ops::SliceOp;
use crate::members::pool::Size;
use crate::planted::Bug;
use crate::units::{CELLS_MAX, Member, Row, SECTOR_BYTES, Slot};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use gather::{BandKind, Fragment};
use scrub::Found;
pub(crate) use scrub::Scrubbed;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Phase {
    Queued,
    Preparing,
    Reading,
    Recovering,
    Merging,
    Combining,
    Checksumming,
    Logging,
    Writing,
    Delivering,
    Comparing,
    Finished,
}

pub(crate) const PHASES: usize = 12;

/// What a slice is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Write(BandKind),
    /// A read that no single member can answer. `skip`: bytes of the first block that were not asked for.
    Read {
        request: u32,
        lba: u64,
        target: BufRef,
        skip: u32,
    },
    /// Fill the incoming member of a slot.
    Fill {
        slot: u16,
    },
    /// Copy what a growth moves.
    Move,
    /// Make a row of a new shape.
    Reshape(reshape::Aim),
    /// Bring parity or copies in step with the data.
    Resync {
        /// Parity is read as well, and written only where it differs.
        compares: bool,
    },
    Scrub {
        mode: ScrubMode,
    },
    /// Make a row whose write was cut short by a crash consistent from its log record.
    Replay {
        record: u32,
    },
}

impl Kind {
    /// Whether it is a window of a task.
    fn is_window(self) -> bool {
        matches!(
            self,
            Kind::Fill { .. }
                | Kind::Move
                | Kind::Reshape(_)
                | Kind::Resync { .. }
                | Kind::Scrub { .. }
        )
    }

    /// For coverage: the kind without its data.
    pub(crate) fn index(self) -> usize {
        match self {
            Kind::Write(_) => 0,
            Kind::Read { .. } => 1,
            Kind::Fill { .. } => 2,
            Kind::Resync { .. } => 3,
            Kind::Scrub { .. } => 4,
            Kind::Replay { .. } => 5,
            Kind::Move => 6,
            Kind::Reshape(_) => 7,
        }
    }
}

pub(crate) const KINDS: usize = 8;
const KIND_NAMES: [&str; KINDS] = [
    "write", "read", "fill", "resync", "scrub", "replay", "move", "reshape",
];
const PHASE_NAMES: [&str; PHASES] = [
    "queued",
    "preparing",
    "reading",
    "recovering",
    "merging",
    "combining",
    "checksumming",
    "logging",
    "writing",
    "delivering",
    "comparing",
    "finished",
];
const NONE: u32 = u32::MAX;

/// The buffers a slice may hold besides one for each cell. Parities go by their numbers: P is 0, and Q 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extra {
    /// A parity as it will be.
    New(u8),
    /// The part of a parity that a write leaves as it is, for the log; in a scrub, what is wrong with it.
    Partial(u8),
    Bounce,
}
const EXTRAS: usize = PARITIES_MAX + PARTIALS_MAX + 1;
/// The most parities that have partial ones: levels with a log, and what a scrub locates by, know P and Q.
pub(crate) const PARTIALS_MAX: usize = 2;
const PARTIALS: [Extra; PARTIALS_MAX] = [Extra::Partial(0), Extra::Partial(1)];

impl Extra {
    fn index(self) -> usize {
        match self {
            Extra::New(parity) => parity.into(),
            Extra::Partial(parity) => PARITIES_MAX + usize::from(parity),
            Extra::Bounce => EXTRAS - 1,
        }
    }
}

pub(crate) struct Slice {
    pub(crate) kind: Kind,
    pub(crate) phase: Phase,
    /// The row that is locked.
    row: Row,
    /// Its cells; while one of a new shape is made, in turn those of the rows that it is made of.
    pub(crate) map: RowMap,
    /// The locked range, in sectors of the chunk.
    pub(crate) start: u64,
    pub(crate) sectors: u64,
    /// The band being worked on.
    pub(crate) band: u64,
    pub(crate) band_sectors: u64,
    pub(crate) step: u64,
    pub(crate) pending: u32,
    pub(crate) durable: bool,
    /// Which cells of those that hold the same it is about.
    pub(crate) copies: Copies,
    /// Cells whose medium cannot be read in this band.
    pub(crate) bad: CellSet,
    /// `bad` tells what was found before the slice had its range for itself: a write may have healed it since.
    pub(crate) hearsay: bool,
    /// Cells whose content of this band is in `cells`.
    pub(crate) have: CellSet,
    /// Cells declared lost in this band: taken as zeros.
    pub(crate) zeroed: CellSet,
    /// Data cells of the band yet to be written, and those of this pass.
    pub(crate) todo: CellSet,
    pub(crate) pass: CellSet,
    pub(crate) fragments: Vec<Fragment>,
    pub(crate) cells: [Option<Buf>; CELLS_MAX],
    pub(crate) extras: [Option<Buf>; EXTRAS],
    /// Of a row of a new shape, the data cells that are known.
    pub(crate) made: reshape::Made,
    pub(crate) checksums: [u32; PARTIALS_MAX],
    pub(crate) record: Option<u64>,
    pub(crate) verdicts: scrub::Verdicts,
    /// Durable data of several cells was logged: over only when the log says so.
    pub(crate) several: bool,
    /// Nothing was written after all: a trim of a row that is not whole.
    pub(crate) skipped: bool,
    /// Done again block by block, after something could not be read.
    narrowed: bool,
    /// Of a scrub: `bad` has a cell that could be read, and is wrong.
    pub(crate) left_out: bool,
    /// What a scrub found in its row.
    pub(crate) findings: Vec<Found>,
    pub(crate) scrubbed: Scrubbed,
    /// Data cells that a task has written other bytes to than were there.
    pub(crate) rewritten: CellSet,
    pub(crate) intent_held: bool,
    pub(crate) merged: bool,
    pub(crate) error: Option<RequestError>,
    /// The task it is a window of.
    pub(crate) serial: u64,
    size: Size,
    reserved: u32,
    next_in_row: u32,
    live: bool,
}

impl Slice {
    fn new() -> Slice {
        Slice {
            kind: Kind::Resync { compares: false },
            phase: Phase::Finished,
            row: Row(0),
            map: RowMap::EMPTY,
            start: 0,
            sectors: 0,
            band: 0,
            band_sectors: 0,
            step: 0,
            pending: 0,
            durable: false,
            copies: Copies::All,
            bad: CellSet::default(),
            hearsay: false,
            have: CellSet::default(),
            zeroed: CellSet::default(),
            todo: CellSet::default(),
            pass: CellSet::default(),
            fragments: Vec::new(),
            cells: [None; CELLS_MAX],
            extras: [None; EXTRAS],
            made: reshape::Made::default(),
            checksums: [0; PARTIALS_MAX],
            record: None,
            verdicts: scrub::Verdicts::default(),
            several: false,
            skipped: false,
            narrowed: false,
            left_out: false,
            findings: Vec::new(),
            scrubbed: Scrubbed::Compared,
            rewritten: CellSet::EMPTY,
            intent_held: false,
            merged: false,
            error: None,
            serial: 0,
            size: Size::Small,
            reserved: 0,
            next_in_row: NONE,
            live: false,
        }
    }

    fn end(&self) -> u64 {
        self.start + self.sectors
    }

    fn overlaps(&self, other: &Slice) -> bool {
        self.row == other.row && self.start < other.end() && other.start < self.end()
    }

    pub(crate) fn band_bytes(&self) -> u32 {
        (self.band_sectors * SECTOR_BYTES) as u32
    }

    /// A cell's buffer, as far as the band goes.
    pub(crate) fn cell_ref(&self, cell: u8) -> BufRef {
        let buf = self.cells[cell as usize].expect("the cell's buffer was taken");
        BufRef::new(buf, 0, self.band_bytes())
    }

    pub(crate) fn extra_ref(&self, extra: Extra) -> Option<BufRef> {
        self.extras[extra.index()].map(|buf| BufRef::new(buf, 0, self.band_bytes()))
    }
}

/// All slices: those at work, those waiting for a row, and the room for more.
pub(crate) struct Slices {
    pub(crate) list: Vec<Slice>,
    free: Vec<u32>,
    /// Heads of the chains of slices by row, in order of arrival.
    rows: Vec<u32>,
    runnable: VecDeque<u32>,
    /// In `Preparing`, until metadata moves.
    waiting: Vec<u32>,
    /// Whether a slice ended since the slices last began to run.
    ended: bool,
    /// Transitions taken, by kind, from, to.
    pub(crate) transitions: Vec<u64>,
}

const ROWS: usize = 1024;
/// Slices that requests leave to tasks.
const TASK_SLICES: usize = 2;

impl Slices {
    pub(crate) fn new(limit: u32) -> Slices {
        Slices {
            list: (0..limit).map(|_| Slice::new()).collect(),
            free: (0..limit).rev().collect(),
            rows: vec![NONE; ROWS],
            runnable: VecDeque::with_capacity(limit as usize),
            waiting: Vec::with_capacity(limit as usize),
            ended: false,
            transitions: vec![0; KINDS * PHASES * PHASES],
        }
    }

    /// The rows of all slices that may change something.
    pub(crate) fn rows_at_work(&self) -> impl Iterator<Item = u64> + '_ {
        let changes = |slice: &&Slice| match slice.kind {
            Kind::Write(_) | Kind::Resync { .. } | Kind::Replay { .. } => true,
            Kind::Scrub { mode } => mode.writes(),
            // Nothing of the array is there, or it is written until it is done.
            Kind::Reshape(_) => false,
            // A reset makes parity fit what is lost.
            Kind::Fill { .. } | Kind::Move => !slice.zeroed.is_empty(),
            Kind::Read { .. } => false,
        };
        self.list
            .iter()
            .filter(|slice| slice.live)
            .filter(changes)
            .map(|slice| slice.row.0)
    }

    /// Whether a growth is just moving some of these rows.
    pub(crate) fn moves_in(&self, rows: Range<u64>) -> bool {
        let moves = |slice: &&Slice| slice.live && slice.kind == Kind::Move;
        let mut moves = self.list.iter().filter(moves);
        moves.any(|slice| slice.phase != Phase::Queued && rows.contains(&slice.row.0))
    }

    pub(crate) fn idle(&self) -> bool {
        self.free.len() == self.list.len()
    }

    pub(crate) fn get(&mut self, id: u32) -> &mut Slice {
        &mut self.list[id as usize]
    }

    fn enqueue(&mut self, id: u32) {
        let head = self.list[id as usize].row.0 as usize % ROWS;
        self.list[id as usize].next_in_row = NONE;
        if self.rows[head] == NONE {
            self.rows[head] = id;
            return;
        }
        let mut last = self.rows[head];
        while self.list[last as usize].next_in_row != NONE {
            last = self.list[last as usize].next_in_row;
        }
        self.list[last as usize].next_in_row = id;
    }

    /// Whether an older slice holds or awaits some of the same sectors.
    fn blocked(&self, id: u32) -> bool {
        let slice = &self.list[id as usize];
        let mut other = self.rows[slice.row.0 as usize % ROWS];
        while other != id {
            if self.list[other as usize].overlaps(slice) {
                return true;
            }
            other = self.list[other as usize].next_in_row;
        }
        false
    }

    /// Takes a slice out of its row; those that waited behind it may run.
    fn dequeue(&mut self, id: u32) {
        let head = self.list[id as usize].row.0 as usize % ROWS;
        let mut after = self.list[id as usize].next_in_row;
        if self.rows[head] == id {
            self.rows[head] = after;
        } else {
            let mut before = self.rows[head];
            while self.list[before as usize].next_in_row != id {
                before = self.list[before as usize].next_in_row;
            }
            self.list[before as usize].next_in_row = after;
        }
        while after != NONE {
            if self.list[after as usize].phase == Phase::Queued {
                self.runnable.push_back(after);
            }
            after = self.list[after as usize].next_in_row;
        }
    }

    pub(crate) fn coverage(
        &self,
    ) -> impl Iterator<Item = (&'static str, &'static str, &'static str, u64)> + '_ {
        self.transitions
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(index, &count)| {
                let (kind, from, to) = (
                    index / PHASES / PHASES,
                    index / PHASES % PHASES,
                    index % PHASES,
                );
                (KIND_NAMES[kind], PHASE_NAMES[from], PHASE_NAMES[to], count)
            })
    }

    /// Lets everybody who waits for the same sectors go first.
    pub(crate) fn back_of_row(&mut self, id: u32) {
        self.dequeue(id);
        self.enqueue(id);
    }

    /// A slice whose batch was empty goes on.
    pub(crate) fn requeue(&mut self, id: u32) {
        self.runnable.push_back(id);
    }
}

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

impl Core {
    /// Admits a slice with everything its worst case takes; `None` when there is no room.
    pub(crate) fn admit_slice(&mut self, need: &Need) -> Option<u32> {
        let size = Size::holding(need.step * SECTOR_BYTES);
        if self.slices.free.len() <= self.kept_slices(need) || !self.room_in_buffers(need, size) {
            return None;
        }
        let id = self.slices.free.pop().expect("checked above");
        let map = self.row_map(need.row);
        let slice = &mut self.slices.list[id as usize];
        slice.kind = need.kind;
        slice.phase = Phase::Queued;
        (slice.row, slice.map) = (need.row, map);
        (slice.start, slice.sectors) = (need.start, need.sectors);
        slice.step = need.step;
        (slice.size, slice.reserved) = (size, need.buffers);
        (slice.pending, slice.durable, slice.intent_held) = (0, false, false);
        slice.copies = Copies::All;
        (slice.several, slice.skipped, slice.narrowed) = (false, false, false);
        slice.scrubbed = Scrubbed::Compared;
        slice.findings.clear();
        (slice.error, slice.record) = (None, None);
        slice.live = true;
        slice.fragments.clear();
        slice.begin_band(need.start);
        self.slices.enqueue(id);
        self.slices.runnable.push_back(id);
        Some(id)
    }

    /// Requests leave room for tasks, on which they may have to wait.
    fn kept_slices(&self, need: &Need) -> usize {
        if matches!(need.kind, Kind::Write(_) | Kind::Read { .. }) {
            TASK_SLICES
        } else {
            0
        }
    }

    fn room_in_buffers(&mut self, need: &Need, size: Size) -> bool {
        let kept = if self.kept_slices(need) > 0 {
            self.task_buffers()
        } else {
            0
        };
        if !self.buffers.reserve(size, need.buffers + kept) {
            return false;
        }
        self.buffers.unreserve(size, kept);
        true
    }

    /// Runs every slice that can go on. Whether any of them ended, which makes room for requests.
    pub(crate) fn run_slices(&mut self) -> bool {
        self.slices.ended = false;
        while let Some(id) = self.slices.runnable.pop_front() {
            let slice = &self.slices.list[id as usize];
            if !slice.live || slice.pending > 0 {
                continue;
            }
            if slice.phase == Phase::Queued {
                // A write that a resynchronisation of its row goes before would be queued again at once.
                let ordered = !self.planted(Bug::OverlapOrderLost) || !self.in_sync(slice.row);
                if self.slices.blocked(id) && ordered {
                    continue;
                }
                self.set_phase(id, Phase::Preparing);
                self.slices.list[id as usize].map = self.row_now(id);
            }
            self.step_slice(id);
        }
        self.slices.ended
    }

    /// The cells of a slice's row: it may have got more of them, or others places, before the slice had its range for itself.
    fn row_now(&self, id: u32) -> RowMap {
        let map = self.slices.list[id as usize].map;
        match self.layout.rows_are_fixed() || self.planted(Bug::RowSeenOnce) {
            true => map,
            false => self.row_map(map.row),
        }
    }

    /// And it may get more while the slice waits, which knows none of its cells so far.
    fn look_again(&mut self, id: u32) {
        let slice = &self.slices.list[id as usize];
        let known = slice.bad.union(slice.have).union(slice.zeroed);
        if slice.phase == Phase::Preparing && known.is_empty() {
            self.slices.list[id as usize].map = self.row_now(id);
        }
    }

    fn step_slice(&mut self, id: u32) {
        if !self.layout.rows_are_runs() {
            self.look_again(id);
        }
        let slice = &self.slices.list[id as usize];
        if self.halted() && slice.phase == Phase::Preparing && slice.kind.is_window() {
            // What it would wait for becomes durable no more.
            return self.finish_slice(id);
        }
        match self.slices.list[id as usize].kind {
            Kind::Write(kind) => self.step_write(id, kind),
            Kind::Read { .. } => self.step_read(id),
            Kind::Fill { slot } => self.step_fill(id, slot),
            Kind::Move => self.step_move(id),
            Kind::Reshape(aim) => self.step_reshape(id, aim),
            Kind::Resync { compares } => self.step_resync(id, compares),
            Kind::Scrub { mode } => self.step_scrub(id, mode),
            Kind::Replay { record } => self.step_replay(id, record),
        }
    }

    pub(crate) fn set_phase(&mut self, id: u32, to: Phase) {
        let slice = &mut self.slices.list[id as usize];
        let index = (slice.kind.index() * PHASES + slice.phase as usize) * PHASES + to as usize;
        self.slices.transitions[index] += 1;
        slice.phase = to;
    }

    /// Leaves a slice in `Preparing` until metadata moves.
    pub(crate) fn await_metadata(&mut self, id: u32) {
        self.set_phase(id, Phase::Preparing);
        self.slices.waiting.push(id);
    }

    pub(crate) fn slices_wake_waiting(&mut self) {
        let slices = &mut self.slices;
        slices.runnable.extend(slices.waiting.drain(..));
    }

    /// The band is done: the next one, or the end.
    pub(crate) fn band_done(&mut self, id: u32) {
        self.drop_buffers(id);
        let slice = self.slices.get(id);
        let next = slice.band + slice.band_sectors;
        if next < slice.end() {
            slice.begin_band(next);
            self.set_phase(id, Phase::Preparing);
            self.slices.runnable.push_back(id);
        } else {
            self.finish_slice(id);
        }
    }

    /// Starts the band again with one block at a time. False if it is one block already, and the slice has seen for itself
    /// what cannot be read of it.
    pub(crate) fn narrow(&mut self, id: u32) -> bool {
        let block = u64::from(self.superblock.logical_block) / SECTOR_BYTES;
        let slice = self.slices.get(id);
        if slice.band_sectors <= block && !slice.hearsay {
            return false;
        }
        self.drop_buffers(id);
        let slice = self.slices.get(id);
        slice.step = block;
        slice.narrowed = true;
        slice.begin_band(slice.band);
        self.set_phase(id, Phase::Preparing);
        self.slices.runnable.push_back(id);
        true
    }

    /// Starts the band again, as high as it is.
    pub(crate) fn begin_band_again(&mut self, id: u32) {
        self.drop_buffers(id);
        let slice = self.slices.get(id);
        slice.begin_band(slice.band);
        self.set_phase(id, Phase::Preparing);
        self.slices.runnable.push_back(id);
    }

    pub(crate) fn finish_slice(&mut self, id: u32) {
        self.drop_buffers(id);
        self.set_phase(id, Phase::Finished);
        let slice = &mut self.slices.list[id as usize];
        slice.live = false;
        let (size, reserved, row) = (slice.size, slice.reserved, slice.row);
        let intent_held = core::mem::take(&mut slice.intent_held);
        self.buffers.unreserve(size, reserved);
        self.slices.dequeue(id);
        if intent_held {
            self.intent_release(row);
        }
        self.cache_repair_ends(id);
        self.end_slice(id);
        self.slices.free.push(id);
        self.slices.ended = true;
    }

    /// Tells whoever the slice worked for.
    fn end_slice(&mut self, id: u32) {
        let slice = &mut self.slices.list[id as usize];
        let result = slice.error.map_or(Ok(()), Err);
        let row = slice.row;
        match slice.kind {
            Kind::Write(_) => self.end_write(id, result),
            Kind::Read { .. } => self.end_read(id, result),
            Kind::Fill { slot } => {
                self.window_done(id, row);
                self.cache_rebuilt(Slot(slot), row);
            }
            Kind::Move | Kind::Resync { .. } | Kind::Scrub { .. } => self.window_done(id, row),
            Kind::Reshape(_) => self.reshaped_row(result),
            Kind::Replay { .. } => self.replay_done(),
        }
    }

    // -------------------------------------------------------------------------------------------------- buffers

    /// The buffer of a cell, taken if it has none yet.
    pub(crate) fn cell_buffer(&mut self, id: u32, cell: u8) -> BufRef {
        let slice = &mut self.slices.list[id as usize];
        if slice.cells[cell as usize].is_none() {
            slice.cells[cell as usize] = Some(self.below.buffers.take(slice.size));
        }
        slice.cell_ref(cell)
    }

    pub(crate) fn extra_buffer(&mut self, id: u32, extra: Extra) -> BufRef {
        let slice = &mut self.slices.list[id as usize];
        if slice.extras[extra.index()].is_none() {
            slice.extras[extra.index()] = Some(self.below.buffers.take(slice.size));
        }
        slice.extra_ref(extra).expect("taken just now")
    }

    pub(crate) fn drop_buffers(&mut self, id: u32) {
        let slice = &mut self.slices.list[id as usize];
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

    // ---------------------------------------------------------------------------------------------- completions

    /// An operation of a slice has failed. It ends when all is done that its member's failure, if it is one, leads to.
    pub(crate) fn slice_op_failed(
        &mut self,
        id: u32,
        what: SliceOp,
        member: Member,
        error: IoError,
    ) {
        match what {
            SliceOp::Read { cell } => {
                let slice = self.slices.get(id);
                slice.have = slice.have.without(cell);
                if error == IoError::Media {
                    slice.bad = slice.bad.with(cell);
                }
                let check = slice.kind
                    == Kind::Scrub {
                        mode: ScrubMode::Check,
                    };
                // A slice that is narrowed meets again what it has met; it goes on block by block to its end. And without suspects one
                // place is read many times, and repaired but for theirs by nobody.
                let counted = !slice.narrowed && !matches!(slice.copies, Copies::Without(_));
                if error != IoError::Media || counted && !check {
                    self.read_failed(member, error);
                } else if counted {
                    self.check_failed(member);
                }
            }
            SliceOp::Write { cell } => self.write_failed(id, cell, member, error),
            SliceOp::Log { .. } => self.log_failed(id, member, error),
            _ => {}
        }
    }

    /// One operation of a slice has ended; when it was the last of its batch, the slice goes on.
    pub(crate) fn slice_op_ended(&mut self, id: u32) {
        let slice = self.slices.get(id);
        slice.pending -= 1;
        if slice.pending == 0 {
            self.slices.runnable.push_back(id);
        }
    }

    pub(crate) fn slice_computed(&mut self, id: u32, verdict: Verdict, index: u32) {
        let slice = self.slices.get(id);
        match verdict {
            Verdict::Checksum(sum) => slice.checksums[index as usize] = sum,
            Verdict::Done => {}
            other => slice.verdicts.note(index, other),
        }
        self.slice_op_ended(id);
    }

    /// A member could not be read. Media errors are counted, and repaired by whoever met them; others fail it.
    pub(crate) fn read_failed(&mut self, member: Member, error: IoError) {
        if error != IoError::Media {
            let cause = if error == IoError::Gone {
                FailCause::Gone
            } else {
                FailCause::ReadErrors
            };
            self.fail_member(member, cause);
            return;
        }
        let Some(entry) = self.devices[member.0 as usize].entry else {
            return;
        };
        let count = &mut self.superblock.members[entry as usize].read_errors;
        *count = count.saturating_add(1);
        if *count > READ_ERRORS_MAX && !self.indispensable(member) {
            self.fail_member(member, FailCause::ReadErrors);
        }
    }

    /// A check met what cannot be read. It repairs nothing, and would count the same sector each time it runs: each check
    /// counts for itself.
    fn check_failed(&mut self, member: Member) {
        let errors = &mut self.devices[member.0 as usize].check_errors;
        *errors += 1;
        if *errors > READ_ERRORS_MAX && !self.indispensable(member) {
            self.fail_member(member, FailCause::ReadErrors);
        }
    }

    fn write_failed(&mut self, id: u32, cell: u8, member: Member, error: IoError) {
        let slice = &self.slices.list[id as usize];
        let (kind, row) = (slice.kind, slice.map.row);
        let serves = |slot| {
            let home = self.standing_at(slot, row).home;
            home.is_none_or(|serving| serving.member == member)
        };
        let journals = kind == Kind::Reshape(reshape::Aim::Journal);
        if !journals && !self.slots_written(id, cell).any(serves) {
            // It was being filled: the member that serves has the bytes as well.
            return self.fail_member(member, FailCause::WriteError(error));
        }
        if self.layout.tolerance() > 0 {
            return self.fail_member(member, FailCause::WriteError(error));
        }
        let told = match error {
            IoError::NoSpace => {
                self.note_full(member);
                RequestError::NoSpace
            }
            _ => RequestError::ReadOnly,
        };
        self.slices.get(id).error.get_or_insert(told);
        match kind {
            _ if error == IoError::Gone => self.fail_member(member, FailCause::WriteError(error)),
            Kind::Move | Kind::Reshape(_) => {
                let why = error;
                self.fact(Fact::MoveFailed { member, why });
            }
            _ => {}
        }
    }

    /// The slots that a cell of a slice is written to: what moves, where it was or where it will be.
    fn slots_written(&self, id: u32, cell: u8) -> impl Iterator<Item = Slot> + use<> {
        let slice = &self.slices.list[id as usize];
        let slot = |map: &RowMap| map.cells[usize::from(cell)].slot;
        let moved = (slice.kind == Kind::Move).then(|| slot(&self.moving_cells(&slice.map).1));
        [Some(slot(&slice.map)), moved].into_iter().flatten()
    }

    fn log_failed(&mut self, id: u32, member: Member, error: IoError) {
        if let Kind::Replay { .. } = self.slices.get(id).kind {
            self.slices.get(id).verdicts.note(0, Verdict::Differ);
            return;
        }
        self.fail_member(member, FailCause::WriteError(error));
    }
}

/// More read errors than this and a member is failed, if it can be spared (md's default is 20).
const READ_ERRORS_MAX: u32 = 20;

impl Slice {
    /// Starts on the band at `from`, as high as the step allows.
    fn begin_band(&mut self, from: u64) {
        self.band = from;
        self.band_sectors = self.step.min(self.end() - from);
        self.bad = CellSet::default();
        self.hearsay = false;
        self.left_out = false;
        self.have = CellSet::default();
        self.zeroed = CellSet::default();
        self.todo = CellSet::default();
        self.pass = CellSet::default();
        self.merged = false;
        self.verdicts = scrub::Verdicts::default();
    }
}
