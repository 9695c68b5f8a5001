//! The table of slices: what each is for, how far it has come, and which go before it in its row. Before it,
//! what a slice is made from (bands and fragments of new data), and what it finds (verdicts of a scrub).

use super::erred::Erred;
use crate::clients::Copies;
use crate::contract::{Buf, BufRef, Cure, Guilty, IoOp, RequestError, ScrubMode, Segment, Verdict};
use crate::layout::reed_solomon::PARITIES_MAX;
use crate::layout::{CellSet, RowMap};
use crate::members::ops::ReadPart;
use crate::members::pool::{Buffers, Size};
use crate::units::{CELLS_MAX, Row, SECTOR_BYTES};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut, Range};

/// Where new data comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Buf(BufRef),
    Zero,
}

impl Source {
    pub(crate) fn part(self, offset_sectors: u64, sectors: u64) -> Source {
        match self {
            Source::Buf(buf) => Source::Buf(buf.part(
                (offset_sectors * SECTOR_BYTES) as u32,
                (sectors * SECTOR_BYTES) as u32,
            )),
            Source::Zero => Source::Zero,
        }
    }
}

/// New data for part of one cell, on behalf of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fragment {
    pub(crate) cell: u8,
    /// Sectors from the start of the chunk.
    pub(crate) start: u64,
    pub(crate) sectors: u64,
    pub(crate) source: Source,
    pub(crate) request: u32,
}

impl Fragment {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.sectors
    }

    /// The part of the fragment that lies in `start..end` of its chunk.
    pub(crate) fn segment(&self, start: u64, end: u64) -> Option<Segment> {
        let (from, to) = (self.start.max(start), self.end().min(end));
        (from < to).then(
            || match self.source.part(from.saturating_sub(self.start), to - from) {
                Source::Buf(buf) => Segment::Buf(buf),
                Source::Zero => Segment::Zero(((to - from) * SECTOR_BYTES) as u32),
            },
        )
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BandKind {
    Data,
    /// Trim or zero whole cells, all that the code binds.
    Discard(IoOp),
    /// Less than a block: the old block is read and the new bytes put over it.
    Merge {
        skip: u32,
        bytes: u32,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Band {
    pub(crate) row: Row,
    pub(crate) start: u64,
    pub(crate) sectors: u64,
    pub(crate) kind: BandKind,
    pub(crate) durable: bool,
    pub(crate) copies: Copies,
}

/// Where a row is made, and of what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Aim {
    /// In its place, of the former rows.
    Place,
    /// In the journal, of the former rows: in its place are some of these.
    Journal,
    /// In its place, of the journal.
    Settle,
}

/// Data cells of a row of a new shape, as far as they are known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Made {
    pub(super) cells: [Option<Buf>; CELLS_MAX],
    pub(super) known: CellSet,
    /// Of those, what needs no buffer.
    pub(super) zeros: CellSet,
    /// The row that is being read.
    pub(super) source: Option<Row>,
}

impl Made {
    pub(super) fn drop_buffers(&mut self, buffers: &mut Buffers) {
        for held in &mut self.cells {
            if let Some(buf) = held.take() {
                buffers.give_back(buf);
            }
        }
    }

    pub(super) fn know(&mut self, data: u8, content: Option<Buf>) {
        self.known = self.known.with(data);
        if content.is_none() {
            self.zeros = self.zeros.with(data);
        }
        self.cells[usize::from(data)] = content;
    }
}

/// What the comparisons of a band said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Verdicts {
    /// Bit `i`: comparison `i` found a difference.
    pub(crate) differ: u32,
    pub(crate) guilty: Option<Guilty>,
    pub(crate) located: bool,
    /// The syndromes of P and Q are in their buffers.
    pub(super) syndromes: bool,
    /// The copy that the others are compared with.
    pub(super) against: u8,
}

/// What a scrub found in a row: all sectors of a cell with the same fault and the same cure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// None: some cell of the row, and the code cannot say which.
    pub(crate) cell: Option<u8>,
    /// The first sector, in the chunk.
    pub(crate) at: u64,
    pub(crate) sectors: u64,
    pub(crate) unreadable: bool,
    pub(crate) cure: Cure,
}

/// What became of the row of a scrub's window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Scrubbed {
    #[default]
    Compared,
    Unwritten,
    /// Not all of it could be compared.
    Passed,
}

impl Verdicts {
    pub(crate) fn note(&mut self, index: u32, verdict: Verdict) {
        match verdict {
            Verdict::Differ => self.differ |= 1 << index,
            Verdict::Guilty(guilty) => (self.guilty, self.located) = (Some(guilty), true),
            Verdict::Ambiguous => self.located = true,
            Verdict::Equal | Verdict::Done | Verdict::Checksum(_) => {}
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
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
    #[default]
    Finished,
}

pub(crate) const PHASES: usize = 12;

/// What a slice is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Kind {
    Write(BandKind),
    /// A read that no single member can answer, and bytes of its first block that were not asked for.
    Read(ReadPart, u32),
    /// Fill the incoming member of a slot.
    Fill(u16),
    /// Copy what a growth moves.
    #[default]
    Move,
    /// Make a row of a new shape.
    Reshape(Aim),
    /// Bring parity or copies in step with the data.
    Resync {
        /// Parity is read as well, and written only where it differs.
        compares: bool,
    },
    Scrub(ScrubMode),
    /// Make a row whose write was cut short by a crash consistent from its log record.
    Replay(u32),
}

impl Kind {
    /// Whether it is a window of a task.
    pub(super) fn is_window(self) -> bool {
        matches!(
            self,
            Kind::Fill(_) | Kind::Move | Kind::Reshape(_) | Kind::Resync { .. } | Kind::Scrub(_)
        )
    }

    /// Whether it may leave other bytes on members that serve, and announces no write in the intent map.
    ///
    /// A fill does not, also where its member serves other partitions and so is called active all the while.
    /// The member becomes the home of what was filled only when a version of the superblocks is durable that
    /// was begun after the last flush of the fill, and the next version is begun in the same step. So a copy
    /// with one of the last two versions under which the member may leave has all of it.
    pub(super) fn writes_unannounced(self) -> bool {
        use Kind::{Move, Replay, Reshape, Resync};
        matches!(self, Move | Reshape(_) | Resync { .. } | Replay(_))
    }

    /// For coverage: the kind without its data.
    pub(crate) fn index(self) -> usize {
        match self {
            Kind::Write(_) => 0,
            Kind::Read(..) => 1,
            Kind::Fill(_) => 2,
            Kind::Resync { .. } => 3,
            Kind::Scrub(_) => 4,
            Kind::Replay(_) => 5,
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
pub(super) const PARTIALS: [Extra; PARTIALS_MAX] = [Extra::Partial(0), Extra::Partial(1)];

impl Extra {
    pub(super) fn index(self) -> usize {
        match self {
            Extra::New(parity) => parity.into(),
            Extra::Partial(parity) => PARITIES_MAX + usize::from(parity),
            Extra::Bounce => EXTRAS - 1,
        }
    }
}

#[derive(Default)]
pub(crate) struct Slice {
    pub(crate) kind: Kind,
    pub(crate) phase: Phase,
    /// The row that is locked.
    pub(super) row: Row,
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
    /// `bad` was found before the slice had locked its range: a write may have repaired it since.
    pub(crate) unconfirmed: bool,
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
    pub(crate) made: Made,
    pub(crate) checksums: [u32; PARTIALS_MAX],
    pub(crate) record: Option<u64>,
    pub(crate) verdicts: Verdicts,
    /// Durable data of several cells was logged: over only when the log says so.
    pub(crate) several: bool,
    /// Nothing was written after all: a trim of a row that is not whole.
    pub(crate) skipped: bool,
    /// Done again block by block, after something could not be read.
    pub(super) narrowed: bool,
    /// It has written zeros for what was lost, in one of its bands at least.
    pub(super) reset: bool,
    pub(super) erred: Erred,
    /// Of a scrub: `bad` has a cell that could be read, and is wrong.
    pub(crate) left_out: bool,
    /// What a scrub found in its row.
    pub(crate) findings: Vec<Found>,
    pub(crate) scrubbed: Scrubbed,
    /// Data cells that a task has written other bytes to than were there: the read cache forgets them.
    pub(crate) uncached: CellSet,
    pub(crate) intent_held: bool,
    pub(crate) merged: bool,
    pub(crate) error: Option<RequestError>,
    /// Of a move: the task by which a substitute disk gets the row's parity, if it had that of each band.
    pub(crate) outsourced: Option<u64>,
    /// The task it is a window of.
    pub(crate) serial: u64,
    pub(super) size: Size,
    pub(super) reserved: u32,
    pub(super) next_in_row: u32,
    pub(super) live: bool,
}

impl Slice {
    fn new() -> Slice {
        Slice {
            next_in_row: NONE,
            ..Slice::default()
        }
    }

    /// Starts on the band at `from`, as high as the step allows.
    pub(super) fn begin_band(&mut self, from: u64) {
        self.band = from;
        self.band_sectors = self.step.min(self.end() - from);
        self.bad = CellSet::default();
        self.unconfirmed = false;
        self.left_out = false;
        self.have = CellSet::default();
        self.zeroed = CellSet::default();
        self.todo = CellSet::default();
        self.pass = CellSet::default();
        self.merged = false;
        self.verdicts = Verdicts::default();
    }

    pub(super) fn end(&self) -> u64 {
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
    pub(super) free: Vec<u32>,
    /// Heads of the chains of slices by row, in order of arrival.
    rows: Vec<u32>,
    pub(super) runnable: VecDeque<u32>,
    /// In `Preparing`, until metadata moves.
    waiting: Vec<u32>,
    /// Whether a slice ended since the slices last began to run.
    pub(super) ended: bool,
    /// Transitions taken, by kind, from, to.
    pub(crate) transitions: Vec<u64>,
}

const ROWS: usize = 1024;
impl Index<u32> for Slices {
    type Output = Slice;

    #[inline]
    fn index(&self, id: u32) -> &Slice {
        &self.list[id as usize]
    }
}

impl IndexMut<u32> for Slices {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut Slice {
        &mut self.list[id as usize]
    }
}

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
            Kind::Write(_) | Kind::Resync { .. } | Kind::Replay(_) => true,
            Kind::Scrub(mode) => mode.writes(),
            // Nothing of the array is there, or it is written until it is done.
            Kind::Reshape(_) => false,
            // A reset makes parity fit what is lost.
            Kind::Fill(_) | Kind::Move => !slice.zeroed.is_empty(),
            Kind::Read(..) => false,
        };
        let live = self.list.iter().filter(|slice| slice.live);
        live.filter(changes).map(|slice| slice.row.0)
    }

    /// The slices that move rows for a growth.
    pub(super) fn moves(&self) -> impl Iterator<Item = (u32, &Slice)> {
        let slices = (0..).zip(&self.list);
        slices.filter(|(_, slice)| slice.live && slice.kind == Kind::Move)
    }

    /// Whether a growth is just moving some of these rows.
    pub(crate) fn moves_in(&self, rows: Range<u64>) -> bool {
        let begun = |slice: &Slice| slice.phase != Phase::Queued;
        let mut moves = self.moves();
        moves.any(|(_, slice)| begun(slice) && rows.contains(&slice.row.0))
    }

    pub(crate) fn idle(&self) -> bool {
        self.free.len() == self.list.len()
    }

    pub(super) fn enqueue(&mut self, id: u32) {
        let head = self[id].row.0 as usize % ROWS;
        self[id].next_in_row = NONE;
        if self.rows[head] == NONE {
            self.rows[head] = id;
            return;
        }
        let mut last = self.rows[head];
        while self[last].next_in_row != NONE {
            last = self[last].next_in_row;
        }
        self[last].next_in_row = id;
    }

    /// Whether an older slice holds or awaits some of the same sectors.
    pub(super) fn blocked(&self, id: u32) -> bool {
        let slice = &self[id];
        let mut other = self.rows[slice.row.0 as usize % ROWS];
        while other != id {
            if self[other].overlaps(slice) {
                return true;
            }
            other = self[other].next_in_row;
        }
        false
    }

    /// Takes a slice out of its row; those that waited behind it may run.
    pub(super) fn dequeue(&mut self, id: u32) {
        let head = self[id].row.0 as usize % ROWS;
        let mut after = self[id].next_in_row;
        if self.rows[head] == id {
            self.rows[head] = after;
        } else {
            let mut before = self.rows[head];
            while self[before].next_in_row != id {
                before = self[before].next_in_row;
            }
            self[before].next_in_row = after;
        }
        while after != NONE {
            if self[after].phase == Phase::Queued {
                self.runnable.push_back(after);
            }
            after = self[after].next_in_row;
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

    pub(crate) fn set_phase(&mut self, id: u32, to: Phase) {
        let slice = &mut self[id];
        let index = (slice.kind.index() * PHASES + slice.phase as usize) * PHASES + to as usize;
        slice.phase = to;
        self.transitions[index] += 1;
    }

    /// Leaves a slice in `Preparing` until metadata moves.
    pub(super) fn await_metadata(&mut self, id: u32) {
        self.set_phase(id, Phase::Preparing);
        self.wait(id);
    }

    /// Leaves a slice in its phase until metadata moves.
    pub(super) fn wait(&mut self, id: u32) {
        self.waiting.push(id);
    }

    /// Metadata has moved: whatever waits for it looks again.
    pub(crate) fn wake_waiting(&mut self) {
        self.runnable.extend(self.waiting.drain(..));
    }

    /// Lets everybody who waits for the same sectors go first.
    pub(crate) fn back_of_row(&mut self, id: u32) {
        self.dequeue(id);
        self.enqueue(id);
    }

    /// A slice goes on.
    pub(super) fn requeue(&mut self, id: u32) {
        self.runnable.push_back(id);
    }

    /// A slice goes on if its batch was empty.
    pub(super) fn requeue_if_idle(&mut self, id: u32) {
        if self[id].pending == 0 {
            self.requeue(id);
        }
    }

    /// A slice waits for one more of its buffers to be copied.
    pub(crate) fn hold(&mut self, id: u32) {
        self[id].pending += 1;
    }

    /// An operation of a slice has ended. After the last of its batch, the slice goes on.
    pub(crate) fn op_ended(&mut self, id: u32) {
        self[id].pending -= 1;
        self.requeue_if_idle(id);
    }

    /// A computation of a slice has ended.
    pub(crate) fn computed(&mut self, id: u32, verdict: Verdict, index: u32) {
        let slice = &mut self[id];
        match verdict {
            Verdict::Checksum(sum) => slice.checksums[index as usize] = sum,
            Verdict::Done => {}
            other => slice.verdicts.note(index, other),
        }
        self.op_ended(id);
    }
}
