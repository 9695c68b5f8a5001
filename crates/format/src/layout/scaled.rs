//! McPod: what moves when data slots are added to a RAID-4, and where everything stands afterwards (Zhang et al.,
//! "Redistribute Data to Regain Load Balance during RAID-4 Scaling", sections 3.1, 3.2 and 4). Without the parity it is
//! FastScale's growth of a RAID-0.
//!
//! All here is about data slots, `0..`. The paper counts disks, one of which holds the parity: its m disks are
//! `old = m - 1` data slots, its n new ones are `added`. Parity stands in no data slot, and keeps its row.
//!
//! **A growth** makes `width = old + added` data slots of `old`. Rows are taken in *regions* of `width`; the row with
//! number `c` within its region is the region's *column* `c`. Old slot `d` gives the chunks of the columns
//! `d .. d + added` to the added slots, which makes a parallelogram. A chunk never leaves its row, so any row can be mapped
//! for itself, and a last region that the members do not fill is simply the first columns of one: nothing is left over,
//! only the spread of that region is not quite even.
//!
//! **Moving.** The chunks that leave a column keep their order: column `c` gives from the old slots
//! `c - added + 1 ..= c` and takes on the added slots `c + 1 ..= c + old`, each cut to those there are, and these are
//! equally many. So the parallelogram's first triangle goes `old` slots on, its last one `added`, and what is
//! between goes as the paper describes it, whichever of the two is larger.
//!
//! **Placing.** A row has room for `added` chunks after that: on what was left behind, and on the places of the added slots
//! that nothing came to. They are the window of `added` slots that ends at slot `c`, around the end. The new capacity
//! fills them, row after row. So every place of a grown array has an address again.
//!
//! **The history** of an array is how many data slots it had at first and after each growth. Each growth appends a
//! *generation* of chunks to the array's addresses, the rows of it in order, and the first has the rows of a plain array.
//! Within a row, data cells are numbered by generation, and so in the order of their addresses. Since no chunk
//! changes its row, that number is its name for good; the growths after its birth tell which slot it is in now.
//!
//! **What was left behind** stays as it was. In the paper it counts in the row's parity, as P' = P xor what was moved: the
//! moved chunk and its dead copy cancel, and places of added slots count as zeros until they are written. Here it is no
//! part of its row, whose parity stays (`task/growth`, `written`).
//!
//! **Uniform** is what was there before a growth: each slot has as many of those chunks, if the rows are whole regions. A single
//! generation does not stay even over several growths.

use crate::units::{CELLS_MAX, Row, Slot};
use core::ops::Range;

/// One growth, in data slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Growth {
    pub old: u16,
    pub added: u16,
}

impl Growth {
    /// Data slots afterwards, and rows of a region.
    pub fn width(&self) -> u16 {
        self.old + self.added
    }

    /// The number of a row within its region.
    fn column(&self, row: Row) -> u16 {
        (row.0 % u64::from(self.width())) as u16 // below `width`
    }

    /// The old slots that give a chunk of this column.
    fn sources(&self, column: u16) -> Range<u16> {
        (column + 1).saturating_sub(self.added)..(column + 1).min(self.old)
    }

    /// The added slots that take them, in the same order.
    fn targets(&self, column: u16) -> Range<u16> {
        (column + 1).max(self.old)..(column + 1 + self.old).min(self.width())
    }

    /// The added slot to which the chunk of an old one goes (the paper's Moving). `None`: it stays.
    pub fn moving(&self, row: Row, old: Slot) -> Option<Slot> {
        assert!(old.0 < self.old, "an old slot");
        let column = self.column(row);
        shifted(old, self.sources(column), self.targets(column))
    }

    /// The old slot from which the chunk of an added one came (Demoving). `None`: nothing came there.
    pub fn demoving(&self, row: Row, added: Slot) -> Option<Slot> {
        let column = self.column(row);
        shifted(added, self.targets(column), self.sources(column))
    }

    /// Where the row's new chunk of this number stands (Placing, whose y is a number of `added` a row).
    pub fn placing(&self, row: Row, new: u16) -> Slot {
        assert!(new < self.added, "a new chunk of the row");
        let start = self.column(row) + self.old + 1;
        Slot((start + new) % self.width())
    }

    /// Which of the row's new chunks stands in a slot (Deplacing). `None`: one that was there before the growth.
    pub fn deplacing(&self, row: Row, slot: Slot) -> Option<u16> {
        assert!(slot.0 < self.width(), "a data slot");
        let start = (self.column(row) + self.old + 1) % self.width();
        let new = (slot.0 + self.width() - start) % self.width();
        (new < self.added).then_some(new)
    }

    /// Where a chunk stands after the growth.
    fn after(&self, row: Row, old: Slot) -> Slot {
        self.moving(row, old).unwrap_or(old)
    }

    /// Where what stands in a slot stood before the growth, or which new chunk it is.
    fn before(&self, row: Row, slot: Slot) -> Result<Slot, u16> {
        match self.deplacing(row, slot) {
            Some(new) => Err(new),
            None => Ok(self.demoving(row, slot).unwrap_or(slot)),
        }
    }

    /// Regions of so many rows, with one that is cut short.
    pub fn regions(&self, rows: u64) -> u64 {
        rows.div_ceil(u64::from(self.width()))
    }

    /// A region of an array of so many rows.
    pub fn region(&self, index: u64, rows: u64) -> Region {
        assert!(index < self.regions(rows), "a region of the array");
        let width = u64::from(self.width());
        let first = index * width;
        Region {
            growth: *self,
            rows: first..(first + width).min(rows),
        }
    }
}

/// The slot as far into `to` as the given one is into `from`.
fn shifted(slot: Slot, from: Range<u16>, to: Range<u16>) -> Option<Slot> {
    from.contains(&slot.0)
        .then(|| Slot(to.start + (slot.0 - from.start)))
}

/// What is copied as one step of a growth: all that moves in `width` rows, or in as many as are left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    growth: Growth,
    rows: Range<u64>,
}

/// A chunk's way: its row stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    pub row: Row,
    pub from: Slot,
    pub to: Slot,
}

/// Chunks of one slot that are read, or written, as one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    pub slot: Slot,
    pub rows: Range<u64>,
}

impl Region {
    pub fn rows(&self) -> Range<u64> {
        self.rows.clone()
    }

    /// Every chunk that moves, row by row. Any order would do: nothing is written where anything is read.
    pub fn moves(&self) -> impl Iterator<Item = Move> + use<> {
        let growth = self.growth;
        self.rows().map(Row).flat_map(move |row| {
            let column = growth.column(row);
            let pairs = growth.sources(column).zip(growth.targets(column));
            pairs.map(move |(from, to)| Move {
                row,
                from: Slot(from),
                to: Slot(to),
            })
        })
    }

    /// What brings all that moves: one read of each old slot.
    pub fn reads(&self) -> impl Iterator<Item = Run> + use<> {
        let Growth { old, added } = self.growth;
        self.runs(0, old, added)
    }

    /// What puts it where it goes: one write of each added slot.
    pub fn writes(&self) -> impl Iterator<Item = Run> + use<> {
        let Growth { old, added } = self.growth;
        self.runs(old, added, old)
    }

    /// A run of so many chunks in each of `count` slots from `first` on, which start at column 0, 1, 2 and so on.
    fn runs(&self, first: u16, count: u16, chunks: u16) -> impl Iterator<Item = Run> + use<> {
        let rows = self.rows();
        let run = move |column: u16| {
            let start = rows.start + u64::from(column);
            Run {
                slot: Slot(first + column),
                rows: start..(start + u64::from(chunks)).min(rows.end),
            }
        };
        (0..count).map(run).filter(|run| !run.rows.is_empty())
    }

    /// The rows whose parity changes, if what is left behind counts: all but the last of a whole region, which gives nothing.
    pub fn parity(&self) -> Range<u64> {
        let last = self.rows.start + u64::from(self.growth.width()) - 1;
        self.rows.start..self.rows.end.min(last)
    }
}

/// How many data slots an array had at first, and after each growth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct History {
    /// As each is larger than the one before, there is room for all. Zeros behind the last.
    counts: [u8; CELLS_MAX],
    growths: u8,
}

impl History {
    /// `None` if these are no history: each count is larger than the one before, the first is 1 or more, and the last at
    /// most [`CELLS_MAX`].
    pub fn of(counts: &[u16]) -> Option<History> {
        let (first, last) = (*counts.first()?, *counts.last()?);
        let grows = counts.windows(2).all(|pair| pair[0] < pair[1]);
        if first == 0 || !grows || usize::from(last) > CELLS_MAX {
            return None;
        }
        let mut history = History {
            counts: [0; CELLS_MAX],
            growths: (counts.len() - 1) as u8, // as many counts as there are different ones
        };
        for (to, from) in history.counts.iter_mut().zip(counts) {
            *to = *from as u8; // at most CELLS_MAX
        }
        Some(history)
    }

    /// A bit for each count, the lowest for 1: all that there is to say of a history.
    pub fn mask(&self) -> u32 {
        let counts = (0..=self.growths).map(|growths| self.count(growths));
        counts.fold(0, |mask, count| mask | 1 << (count - 1))
    }

    /// The history of a [`History::mask`]; `None` of none.
    pub fn of_mask(mask: u32) -> Option<History> {
        let mut counts = [0; CELLS_MAX];
        let set = (1..=CELLS_MAX as u16).filter(|count| mask >> (count - 1) & 1 == 1);
        let filled = counts.iter_mut().zip(set);
        let filled = filled.map(|(to, count)| *to = count).count();
        History::of(&counts[..filled])
    }

    /// Data slots after so many growths.
    fn count(&self, growths: u8) -> u16 {
        u16::from(self.counts[usize::from(growths)])
    }

    /// Data slots at first.
    pub fn first(&self) -> u16 {
        self.count(0)
    }

    /// Data slots now.
    pub fn slots(&self) -> u16 {
        self.count(self.growths)
    }

    /// The growths, oldest first.
    pub fn growths(&self) -> impl DoubleEndedIterator<Item = Growth> + use<> {
        let history = *self;
        (1..=self.growths).map(move |nth| history.growth(nth))
    }

    fn growth(&self, nth: u8) -> Growth {
        let old = self.count(nth - 1);
        Growth {
            old,
            added: self.count(nth) - old,
        }
    }

    /// The last growth, and the history without it.
    pub fn last(&self) -> Option<(Growth, History)> {
        let growths = self.growths.checked_sub(1)?;
        let mut before = *self;
        before.counts[usize::from(self.growths)] = 0;
        before.growths = growths;
        Some((self.growth(self.growths), before))
    }

    /// The first data cell of a generation, and how many a row has.
    fn generation(&self, nth: u8) -> Range<u16> {
        let first = if nth == 0 { 0 } else { self.count(nth - 1) };
        first..self.count(nth)
    }

    /// Generations of data cells, the first among them.
    pub(crate) fn generations_count(&self) -> u8 {
        self.growths + 1
    }

    /// Data cells of a row in so many generations, from the first on.
    pub fn cells_through(&self, generations: u8) -> u16 {
        generations
            .checked_sub(1)
            .map_or(0, |last| self.generation(last).end)
    }

    /// Which generation has this data cell: 0 is the first.
    pub(crate) fn number_of(&self, data: u16) -> u8 {
        let nth = (0..=self.growths).find(|nth| data < self.generation(*nth).end);
        nth.expect("the last has the last cell")
    }

    /// The data cells of the generation that has this one.
    pub fn generation_of(&self, data: u16) -> Range<u16> {
        self.generation(self.number_of(data))
    }

    fn generations(&self) -> impl Iterator<Item = Range<u16>> + use<> {
        let history = *self;
        (0..=self.growths).map(move |nth| history.generation(nth))
    }
}

/// A chunk by its name for good: which data cell of which row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seat {
    pub row: Row,
    pub data: u16,
}

/// The map of an array of so many rows when all growths of its history are done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scaled {
    history: History,
    rows: u64,
}

impl Scaled {
    pub fn new(history: History, rows: u64) -> Scaled {
        Scaled { history, rows }
    }

    pub fn history(&self) -> &History {
        &self.history
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Data chunks of the array: every place in every slot.
    pub fn chunks(&self) -> u64 {
        self.rows * u64::from(self.history.slots())
    }

    /// Which data cell of which row a chunk of the array is.
    pub fn seat(&self, chunk: u64) -> Seat {
        assert!(chunk < self.chunks(), "a chunk of the array");
        let below = |cells: &Range<u16>| chunk < self.rows * u64::from(cells.end);
        let mut generations = self.history.generations();
        let cells = generations
            .find(below)
            .expect("the last has the last chunk");
        let within = chunk - self.rows * u64::from(cells.start);
        let each = u64::from(cells.end - cells.start);
        Seat {
            row: Row(within / each),
            data: cells.start + (within % each) as u16, // below `cells.end`
        }
    }

    /// The number of a chunk in the array: the inverse of [`Scaled::seat`].
    pub fn chunk(&self, seat: Seat) -> u64 {
        let Seat { row, data } = seat;
        assert!(row.0 < self.rows && data < self.history.slots(), "a seat");
        let cells = self.history.generation_of(data);
        let within = row.0 * u64::from(cells.end - cells.start) + u64::from(data - cells.start);
        self.rows * u64::from(cells.start) + within
    }

    /// The slot that a data cell stands in (with [`Scaled::seat`], the paper's Mapping).
    pub fn slot(&self, seat: Seat) -> Slot {
        let Seat { row, data } = seat;
        assert!(data < self.history.slots(), "a data cell");
        let mut slot = Slot(data);
        for growth in self.history.growths() {
            if data < growth.old {
                slot = growth.after(row, slot);
            } else if data < growth.width() {
                slot = growth.placing(row, data - growth.old);
            }
        }
        slot
    }

    /// The data cell that stands in a slot (with [`Scaled::chunk`], the paper's Demapping).
    pub fn seat_in(&self, row: Row, slot: Slot) -> Seat {
        assert!(slot.0 < self.history.slots(), "a data slot");
        let mut slot = slot;
        for growth in self.history.growths().rev() {
            match growth.before(row, slot) {
                Ok(old) => slot = old,
                Err(new) => {
                    let data = growth.old + new;
                    return Seat { row, data };
                }
            }
        }
        Seat { row, data: slot.0 }
    }

    /// The chunks of the array in a range of rows: a run for each generation, in the order of addresses.
    pub fn chunks_in(&self, rows: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let all = self.rows;
        self.history.generations().map(move |cells| {
            let base = all * u64::from(cells.start);
            let each = u64::from(cells.end - cells.start);
            base + rows.start * each..base + rows.end * each
        })
    }

    /// Where the run of chunks ends that starts with the given one and stays in one generation and on one side of `edge`.
    fn run_end(&self, chunk: u64, edge: u64) -> u64 {
        let ends = self.chunks_in(0..edge).zip(self.chunks_in(edge..self.rows));
        let mut ends = ends.flat_map(|(below, above)| [below.end, above.end]);
        ends.find(|&end| chunk < end).expect("a chunk of the array")
    }
}

/// The map of an array while the last growth of its history is under way: rows below an edge are as after it, the others
/// as before. The new capacity is not there yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Growing {
    before: Scaled,
    after: Scaled,
    growth: Growth,
    edge: u64,
}

impl Growing {
    /// `regions`: how many have been moved. `None` without a growth.
    pub fn new(history: History, rows: u64, regions: u64) -> Option<Growing> {
        let (growth, before) = history.last()?;
        let edge = (regions * u64::from(growth.width())).min(rows);
        Some(Growing {
            before: Scaled::new(before, rows),
            after: Scaled::new(history, rows),
            growth,
            edge,
        })
    }

    pub fn growth(&self) -> Growth {
        self.growth
    }

    /// The first row that is as before.
    pub fn edge(&self) -> Row {
        Row(self.edge)
    }

    /// Data chunks that there are so far.
    pub fn chunks(&self) -> u64 {
        self.before.chunks()
    }

    /// Which data cell of which row a chunk is: on both sides, and before and after.
    pub fn seat(&self, chunk: u64) -> Seat {
        self.before.seat(chunk)
    }

    /// The slot that a data cell stands in.
    pub fn slot(&self, seat: Seat) -> Slot {
        assert!(seat.data < self.growth.old, "a data cell that is there");
        if seat.row.0 < self.edge {
            self.after.slot(seat)
        } else {
            self.before.slot(seat)
        }
    }

    /// The data cell that stands in a slot. `None`: a place that is free so far, or the dead copy of what was moved.
    pub fn seat_in(&self, row: Row, slot: Slot) -> Option<Seat> {
        assert!(slot.0 < self.growth.width(), "a data slot");
        if row.0 < self.edge {
            let seat = self.after.seat_in(row, slot);
            (seat.data < self.growth.old).then_some(seat)
        } else {
            (slot.0 < self.growth.old).then(|| self.before.seat_in(row, slot))
        }
    }

    /// The first of these chunks, and as many after it as are on the same side of the edge: where a request is cut.
    pub fn cut(&self, chunks: Range<u64>) -> Range<u64> {
        assert!(
            !chunks.is_empty() && chunks.end <= self.chunks(),
            "chunks of the array"
        );
        chunks.start..self.before.run_end(chunks.start, self.edge).min(chunks.end)
    }
}
