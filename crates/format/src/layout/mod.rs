//! Layouts: pure maps from logical chunks to rows of cells, and the code that binds the cells of a row.
//!
//! A layout never submits I/O and knows no devices: it speaks of slots, rows and chunks. The slice machine sees only
//! rows, cells and codes, so a new layout is a table plus the laws in `tests/it/layout_laws.rs`. Nothing here allocates.
//!
//! A row is what one code binds. RAID-0: one chunk of every slot, bound by nothing. RAID-1: one chunk and its copy on
//! every other slot. RAID-4, 5, 6 and Reed-Solomon: a stripe. RAID-10: one chunk and its copies, wherever they stand. A skewed layout
//! (S2-RAID) has rows of few cells over many slots, and is cut into partitions. In a RAID-0 or RAID-4 that has grown
//! ([`scaled`]) a row's data are not one run of addresses but one for each generation.

pub mod code;
mod geometry;
mod gf;
pub mod reed_solomon;
mod rotation;
pub mod scaled;
mod skewed;

pub use code::{CellSet, Recipe};
pub use geometry::{
    CHUNK_SECTORS_MAX, CHUNK_SECTORS_MIN, Geometry, GeometryError, Level, Rotation, SECTORS_MAX,
};

pub use skewed::Skew;

use crate::units::{CELLS_MAX, Row, Slot};
use core::ops::Range;
use rotation::Stripe;
use scaled::{Scaled, Seat};
use skewed::{Skewed, greatest_common_divisor};

/// What a cell holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Role {
    /// The row's data chunk of this index.
    Data(u8),
    /// A further copy of data chunk `of`.
    Copy { of: u8 },
    /// The xor of the data.
    #[default]
    P,
    /// The Reed-Solomon sum of the data, each with its own power of 2 (see [`RowMap::exponent`]).
    Q,
    /// The parity of this number of [`Level::ReedSolomon`].
    Parity(u8),
}

/// One slot's part of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cell {
    pub slot: Slot,
    pub role: Role,
    /// First sector of the chunk, counted from the start of the slot's set data.
    pub at: u64,
}

impl Cell {
    /// Fills the places of a [`RowMap`] beyond its width.
    const UNUSED: Cell = Cell {
        slot: Slot(u16::MAX),
        role: Role::P,
        at: u64::MAX,
    };
}

/// The cells of one row: data cells first, in logical order, then the others.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowMap {
    pub row: Row,
    /// Cells in use.
    pub width: u8,
    /// How many of them hold distinct data.
    pub data: u8,
    pub cells: [Cell; CELLS_MAX],
    /// For each data cell, the power of the generator with which it enters Q. Zeros in a row without Q.
    pub exponent: [u8; CELLS_MAX],
}

impl RowMap {
    #[inline]
    fn new(row: Row) -> RowMap {
        RowMap {
            row,
            width: 0,
            data: 0,
            cells: [Cell::UNUSED; CELLS_MAX],
            exponent: [0; CELLS_MAX],
        }
    }

    /// The cells in use.
    #[inline]
    pub fn cells(&self) -> &[Cell] {
        &self.cells[..usize::from(self.width)]
    }

    /// The cell that stands in this slot.
    #[inline]
    pub fn cell_on(&self, slot: Slot) -> Option<u8> {
        (0..self.width).find(|&cell| self.cells[usize::from(cell)].slot == slot)
    }

    /// The cells that stand on other slots than those that are gone.
    #[inline]
    fn without(&self, gone: impl Fn(Slot) -> bool) -> CellSet {
        let here = (0..).zip(self.cells()).filter(|(_, cell)| !gone(cell.slot));
        here.map(|(cell, _)| cell).collect()
    }

    fn push(&mut self, slot: u16, role: Role, at: u64) {
        if let Role::Data(data) = role {
            assert!(
                data == self.width,
                "data cells come first, in logical order"
            );
            self.data += 1;
        }
        self.cells[usize::from(self.width)] = Cell {
            slot: Slot(slot),
            role,
            at,
        };
        self.width += 1;
    }
}

/// Where a sector of the array is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Place {
    pub row: Row,
    /// Which data cell of the row.
    pub data: u8,
    /// Sectors from the start of the chunk.
    pub offset: u64,
}

/// A checked geometry and the map that it stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    geometry: Geometry,
    /// A chunk is 2 to this power sectors.
    chunk_shift: u32,
    rows: u64,
    /// Distinct data chunks of a row.
    data: u8,
    /// Slots over which a row and its rotation go: all, or one of each group.
    lanes: u16,
    skewed: Option<Skewed>,
    grown: Option<Scaled>,
    /// The last growth is under way: what it adds is not there yet.
    growing: bool,
    /// The shape that rows are taken out of (MD-Reshape).
    former: Option<Former>,
}

/// Fewer slots, and the first row that is not in its new shape yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Former {
    slots: u16,
    data: u8,
    edge: u64,
}

impl Layout {
    pub fn new(geometry: Geometry) -> Result<Layout, GeometryError> {
        geometry.check()?;
        let chunk_shift = geometry.chunk_sectors.trailing_zeros();
        let slot_chunks = geometry.slot_sectors >> chunk_shift;
        let slots = geometry.slots;
        let skewed = |skew| Skewed::new(skew, slots, slot_chunks, chunk_shift);
        let skewed = geometry.skew.map(skewed);
        let lanes = geometry.skew.map_or(slots, |skew| skew.groups);
        let rows = match (skewed, geometry.level) {
            (Some(skewed), _) => skewed.rows(),
            (None, Level::Raid10 { copies }) => slot_chunks * u64::from(slots) / u64::from(copies),
            (None, _) => slot_chunks,
        };
        let data = match geometry.level {
            Level::Raid1 | Level::Raid10 { .. } => 1,
            level => (lanes - level.parities()) as u8, // checked: at most CELLS_MAX
        };
        Ok(Layout {
            geometry,
            chunk_shift,
            rows,
            data,
            lanes,
            skewed,
            grown: geometry.grown.map(|history| Scaled::new(history, rows)),
            growing: false,
            former: None,
        })
    }

    /// The same while the last growth of a history is under way: some rows stand as they did before it
    /// ([`Layout::row_before`]), and the array has the addresses that it had.
    #[inline]
    pub fn growing(self) -> Layout {
        let before = self.before().expect("a history has a growth");
        Layout {
            data: before.history().slots() as u8, // less than there will be
            growing: true,
            ..self
        }
    }

    /// That growth is done, or that reshape.
    #[inline]
    pub fn settled(self) -> Layout {
        let data = self.grown.map(|grown| grown.history().slots() as u8);
        Layout {
            data: data.unwrap_or(self.data),
            growing: false,
            former: None,
            ..self
        }
    }

    /// Sectors that there were before any growth.
    #[inline]
    pub fn first_sectors(&self) -> u64 {
        (u64::from(self.cells_through(1)) * self.rows) << self.chunk_shift
    }

    #[inline]
    pub fn is_growing(&self) -> bool {
        self.growing
    }

    /// The map before the last growth.
    #[inline]
    fn before(&self) -> Option<Scaled> {
        let (_, before) = self.grown?.history().last()?;
        Some(Scaled::new(before, self.rows))
    }

    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The map of a geometry as long as rows are taken out of the shape that it had with fewer slots (`task/reshape`). A row is
    /// whole in one shape: those below `edge` in the new one, the others as they were. The addresses below what the first
    /// hold are found in them, and the array has the addresses that it had.
    pub fn reshaping(self, slots: u16, edge: u64) -> Layout {
        let Geometry { level, .. } = self.geometry;
        let takes = matches!(
            level,
            Level::Raid0 | Level::Raid4 | Level::Raid5(_) | Level::Raid6(_)
        );
        assert!(takes && self.grown.is_none() && self.skewed.is_none());
        assert!(slots > level.parities() && slots < self.geometry.slots && edge <= self.rows);
        let data = (slots - level.parities()) as u8; // fewer than there are
        Layout {
            former: Some(Former { slots, data, edge }),
            ..self
        }
    }

    #[inline]
    pub fn is_reshaping(&self) -> bool {
        self.former.is_some()
    }

    /// The first row that is as it was; of an array that is not being reshaped, its end.
    #[inline]
    pub fn edge(&self) -> Row {
        Row(self.former.map_or(self.rows, |former| former.edge))
    }

    /// The first row with an address that is still found in the former shape. Those between the edge and it are dead: all
    /// they held is in rows of the new shape.
    #[inline]
    pub fn live_from(&self) -> Row {
        let live = |former: Former| {
            let moved = former.edge * u64::from(self.data);
            (moved / u64::from(former.data)).min(self.rows)
        };
        Row(self.former.map_or(self.rows, live))
    }

    /// Nothing that a row holds is of the array.
    #[inline]
    pub fn is_dead(&self, row: Row) -> bool {
        self.former.is_some() && self.edge() <= row && row < self.live_from()
    }

    /// Whether a data cell of a row still is where its address leads: not if a row of the new shape has taken it, and others of
    /// its row stay.
    #[inline]
    pub fn is_addressed(&self, row: Row, data: u8) -> bool {
        match self.if_former(row) {
            Some(former) => former.lba(row, data, 0) >= self.in_new().lba_of_row(self.edge()),
            None => true,
        }
    }

    /// Where the addresses of a row begin.
    #[inline]
    fn lba_of_row(&self, row: Row) -> u64 {
        (row.0 * self.data_cells()) << self.chunk_shift
    }

    /// Data cells of a row in the former shape, and slots.
    #[inline]
    pub fn former_shape(&self) -> Option<(u8, u16)> {
        self.former.map(|former| (former.data, former.slots))
    }

    /// A row in the new shape, whatever it is in.
    #[inline]
    pub fn new_row(&self, row: Row) -> RowMap {
        self.in_new().row(row)
    }

    /// The map of the new shape alone, for rows.
    #[inline]
    fn in_new(&self) -> Layout {
        Layout {
            former: None,
            ..*self
        }
    }

    /// The first sector of a data cell in the new shape.
    #[inline]
    pub fn new_lba(&self, row: Row, data: u8) -> u64 {
        self.in_new().lba(row, data, 0)
    }

    /// A row in the former shape.
    #[inline]
    pub fn former_row(&self, row: Row) -> RowMap {
        self.in_former().map_or(self.row(row), |old| old.row(row))
    }

    /// The map of the former shape alone.
    fn in_former(&self) -> Option<Layout> {
        let Former { slots, data, .. } = self.former?;
        let geometry = Geometry {
            slots,
            ..self.geometry
        };
        Some(Layout {
            geometry,
            data,
            lanes: slots,
            former: None,
            ..*self
        })
    }

    /// The same if a row is still in the former shape.
    #[inline]
    fn if_former(&self, row: Row) -> Option<Layout> {
        self.in_former().filter(|_| row >= self.edge())
    }

    /// Number of rows.
    #[inline]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Sectors that users see.
    #[inline]
    pub fn size_sectors(&self) -> u64 {
        let data = self.former.map_or(self.data, |former| former.data);
        (self.rows * u64::from(data)) << self.chunk_shift
    }

    #[inline]
    pub fn chunk_sectors(&self) -> u64 {
        1 << self.chunk_shift
    }

    /// Partitions of every slot: 1 unless skewed.
    #[inline]
    pub fn partitions(&self) -> u16 {
        self.geometry.partitions()
    }

    /// In which partition of their slots the row's cells stand.
    #[inline]
    pub fn partition_of(&self, row: Row) -> u16 {
        self.skewed.map_or(0, |skewed| skewed.site(row).partition)
    }

    /// The rows that have their cells in this partition.
    #[inline]
    pub fn partition_rows(&self, partition: u16) -> Range<u64> {
        let each = self.skewed.map_or(self.rows, |one| one.partition_rows());
        let first = u64::from(partition) * each;
        first..first + each
    }

    /// Cells of every row.
    #[inline]
    pub fn width(&self) -> u16 {
        match self.geometry.level {
            Level::Raid10 { copies } => u16::from(copies),
            _ => self.lanes,
        }
    }

    /// Distinct data chunks of every row.
    #[inline]
    pub fn data_cells(&self) -> u64 {
        u64::from(self.data)
    }

    /// Data sectors of every row.
    #[inline]
    pub fn row_sectors(&self) -> u64 {
        self.data_cells() << self.chunk_shift
    }

    /// How many losses of slots are survived, whichever they are.
    #[inline]
    pub fn tolerance(&self) -> u8 {
        match self.geometry.level {
            Level::Raid0 => 0,
            Level::Raid1 => self.geometry.slots as u8 - 1, // checked: at most CELLS_MAX
            Level::Raid4 | Level::Raid5(_) => 1,
            Level::Raid6(_) => 2,
            Level::Raid10 { copies } => copies - 1,
            Level::ReedSolomon { parities } => parities,
        }
    }

    /// Whether parity binds the rows, so that a torn write can damage data it did not touch.
    #[inline]
    pub fn parity(&self) -> bool {
        self.geometry.level.parities() > 0
    }

    /// Where a sector of the array is.
    pub fn place(&self, lba: u64) -> Place {
        let chunk = lba >> self.chunk_shift;
        let offset = lba & (self.chunk_sectors() - 1);
        if let Some(grown) = &self.grown {
            let Seat { row, data } = grown.seat(chunk);
            let data = data as u8; // below `data_cells`
            return Place { row, data, offset };
        }
        let row = chunk / self.data_cells();
        if let Some(former) = self.if_former(Row(row)) {
            return former.place(lba);
        }
        assert!(row < self.rows, "an address within the array");
        let data = (chunk - row * self.data_cells()) as u8; // below `data_cells`
        Place {
            row: Row(row),
            data,
            offset,
        }
    }

    /// The address of a sector of a data cell: the inverse of [`Layout::place`].
    pub fn lba(&self, row: Row, data: u8, offset: u64) -> u64 {
        if let Some(former) = self.if_former(row) {
            return former.lba(row, data, offset);
        }
        assert!(
            row.0 < self.rows && data < self.data,
            "a data chunk of the array"
        );
        assert!(offset < self.chunk_sectors(), "an offset within the chunk");
        if let Some(grown) = &self.grown {
            let data = data.into();
            return grown.chunk(Seat { row, data }) << self.chunk_shift | offset;
        }
        (row.0 * self.data_cells() + u64::from(data)) << self.chunk_shift | offset
    }

    /// Sectors from a place on that are one run of addresses and lie in rows below `end`.
    pub fn run_sectors(&self, place: Place, end: Row) -> u64 {
        let Place { row, data, offset } = place;
        if let Some(former) = self.if_former(row) {
            return former.run_sectors(place, end);
        }
        let end = end.min(self.edge());
        assert!(row < end && end.0 <= self.rows, "rows of the array");
        let cells = match &self.grown {
            Some(grown) => grown.history().generation_of(data.into()),
            None => 0..u16::from(self.data),
        };
        let each = u64::from(cells.end - cells.start);
        let chunks = (end.0 - row.0) * each - (u64::from(data) - u64::from(cells.start));
        (chunks << self.chunk_shift) - offset
    }

    /// Whether all data of a row are one run of addresses.
    #[inline]
    pub fn rows_are_runs(&self) -> bool {
        self.grown.is_none()
    }

    /// Whether the cells of a row are always the same.
    #[inline]
    pub fn rows_are_fixed(&self) -> bool {
        self.grown.is_none() && self.former.is_none()
    }

    /// Whether a map is of a whole row as it was before data cells were added to rows.
    #[inline]
    pub fn is_whole(&self, map: &RowMap) -> bool {
        self.former.is_some() || map.data == self.cells_through(1)
    }

    /// Data sectors of this row, of the first generation.
    #[inline]
    pub fn sectors_of(&self, row: Row) -> u64 {
        match self.if_former(row) {
            Some(former) => former.row_sectors(),
            None => self.row_sectors(),
        }
    }

    /// How often data cells were added to the rows, and once for those that were there at first.
    #[inline]
    pub fn generations(&self) -> u8 {
        self.generations_to_come() - u8::from(self.growing)
    }

    /// With those of the growth that is under way.
    #[inline]
    pub fn generations_to_come(&self) -> u8 {
        let grown = self.grown.as_ref();
        grown.map_or(1, |grown| grown.history().generations_count())
    }

    /// Which generation has this data cell: 0 is the first.
    #[inline]
    pub fn generation_of(&self, data: u8) -> u8 {
        let grown = self.grown.as_ref();
        grown.map_or(0, |grown| grown.history().number_of(data.into()))
    }

    /// Data cells of a row in so many generations, from the first on.
    #[inline]
    pub fn cells_through(&self, generations: u8) -> u8 {
        match &self.grown {
            Some(grown) => grown.history().cells_through(generations) as u8, // at most CELLS_MAX
            None => self.data * generations.min(1),
        }
    }

    /// The row that has a cell at this sector of a slot's set data. `None` past the end, and on a chunk at the end of a
    /// RAID-10 that no whole set of copies reaches.
    pub fn row_at(&self, slot: Slot, at: u64) -> Option<Row> {
        let slots = self.geometry.slots;
        if slot.0 >= slots || at >= self.geometry.slot_sectors {
            return None;
        }
        let chunk = at >> self.chunk_shift;
        if let Some(skewed) = self.skewed {
            return skewed.row_at(slot, chunk);
        }
        let row = match self.geometry.level {
            Level::Raid10 { copies } => {
                (chunk * u64::from(slots) + u64::from(slot.0)) / u64::from(copies)
            }
            _ => chunk,
        };
        (row < self.rows).then_some(Row(row))
    }

    /// The other slots of the rows that have a cell in this partition of a slot; of an unskewed layout, of one of the rows.
    #[inline]
    pub fn beside(&self, slot: Slot, partition: u16) -> impl Iterator<Item = Slot> + use<> {
        let first = u64::from(partition) * self.geometry.partition_sectors();
        let map = self.row_at(slot, first).map(|row| self.row(row));
        let cells = map.map_or(0, |map| map.width);
        let slots = (0..cells).filter_map(move |cell| Some(map?.cells[usize::from(cell)].slot));
        slots.filter(move |other| *other != slot)
    }

    /// The cells of a row, without the data cells of later generations than so many. Nothing was ever written into those, so
    /// the row's code does not bind them.
    #[inline]
    pub fn row_through(&self, row: Row, generations: u8) -> RowMap {
        match &self.grown {
            Some(grown) => self.grown_row(grown, row, self.cells_through(generations)),
            None => self.row(row),
        }
    }

    /// The same as it stood before the last growth.
    #[inline]
    pub fn row_before(&self, row: Row, generations: u8) -> RowMap {
        match &self.before() {
            Some(before) => self.grown_row(before, row, self.cells_through(generations)),
            None => self.row(row),
        }
    }

    /// The cells of a row; while the array grows, as it will be.
    pub fn row(&self, row: Row) -> RowMap {
        assert!(row.0 < self.rows, "a row of the array");
        if let Some(former) = self.if_former(row) {
            return former.row(row);
        }
        let Some(skewed) = self.skewed else {
            return self.lane_row(row);
        };
        let site = skewed.site(row);
        let mut map = self.lane_row(Row(site.stripe));
        map.row = row;
        skewed.stand_all(site, &mut map);
        map
    }

    /// A row as it stands over the lanes.
    fn lane_row(&self, row: Row) -> RowMap {
        if let Some(grown) = &self.grown {
            return self.grown_row(grown, row, grown.history().slots() as u8);
        }
        let lanes = self.lanes;
        match self.geometry.level {
            Level::Raid0 => self.striped(row),
            Level::Raid1 => self.mirrored(row, lanes, row.0 * u64::from(lanes)),
            Level::Raid4 => self.bound(row, Rotation::ParityLast),
            Level::Raid5(rotation) | Level::Raid6(rotation) => self.bound(row, rotation),
            Level::ReedSolomon { .. } => self.bound(row, Rotation::LeftSymmetric),
            Level::Raid10 { copies } => {
                self.mirrored(row, u16::from(copies), row.0 * u64::from(copies))
            }
        }
    }

    /// Whether first copies of chunks lie on a slot, or further ones alone. Without copies they all are.
    #[inline]
    pub fn has_firsts(&self, slot: Slot) -> bool {
        let slots = self.geometry.slots;
        match (self.geometry.level, self.geometry.skew) {
            (Level::Raid10 { .. }, Some(skew)) => slot.0 < slots / skew.groups,
            // Row r begins at slot r * copies, counted around.
            (Level::Raid10 { copies }, None) => slot
                .0
                .is_multiple_of(greatest_common_divisor(u16::from(copies), slots)),
            (Level::Raid1, _) => slot.0 == 0,
            _ => true,
        }
    }

    /// Whether a row has a cell in this slot.
    #[inline]
    pub fn stands_on(&self, row: Row, slot: Slot) -> bool {
        let all = self.width() == self.geometry.slots && self.former.is_none();
        all || self.row(row).cell_on(slot).is_some()
    }

    /// How many of so many rows have a cell in one slot, on average.
    #[inline]
    pub fn rows_of_slot(&self, rows: u64) -> u64 {
        rows * u64::from(self.width()) / u64::from(self.geometry.slots)
    }

    /// Whether every row can be decoded without the slots that are gone.
    #[inline]
    pub fn decodable_without(&self, gone: impl Fn(Slot) -> bool) -> bool {
        self.decodable_without_parts(|slot, _| gone(slot))
    }

    /// As [`Layout::decodable_without`], where some partitions of a slot may be gone and others not.
    #[inline]
    pub fn decodable_without_parts(&self, gone: impl Fn(Slot, u16) -> bool) -> bool {
        self.turn().all(|map| {
            let partition = self.partition_of(map.row);
            map.decodable(map.without(|slot| gone(slot, partition)))
        })
    }

    /// How many reads bring a data cell of this slot without the slots that are gone, in the row that takes the most. It
    /// differs only where partitions do. `None` when no row can bring it, and of a slot that holds no data.
    #[inline]
    pub fn reads_without(&self, slot: Slot, gone: impl Fn(Slot) -> bool) -> Option<u16> {
        self.reads_without_parts(slot, |slot, _| gone(slot))
    }

    /// As [`Layout::reads_without`], where some partitions of a slot may be gone and others not.
    #[inline]
    pub fn reads_without_parts(&self, slot: Slot, gone: impl Fn(Slot, u16) -> bool) -> Option<u16> {
        let reads = |map: RowMap| {
            let data = map.cell_on(slot).filter(|&cell| cell < map.data)?;
            let partition = self.partition_of(map.row);
            map.reads_for(data, map.without(|slot| gone(slot, partition)))
        };
        self.turn().filter_map(reads).max()
    }

    /// Rows that all others repeat; those of a grown array repeat which slots hold data, not which data.
    fn turn(&self) -> impl Iterator<Item = RowMap> + '_ {
        let plain = self.skewed.is_none().then(|| {
            let period = u64::from(self.geometry.slots).min(self.rows);
            (0..period).map(Row)
        });
        let skewed = self.skewed.map(|skewed| skewed.turn());
        let (plain, skewed) = (plain.into_iter().flatten(), skewed.into_iter().flatten());
        let rows = plain.chain(skewed);
        // A reshape takes rows from the one shape to the other.
        let (new, former) = (self.in_new(), self.in_former());
        rows.flat_map(move |row| {
            let shapes = [Some(&new), former.as_ref()];
            shapes.map(|shape| shape.map(|shape| shape.row(row)))
        })
        .flatten()
    }

    /// One data cell of a row: what a plain read needs, without the rest of the row.
    pub fn data_cell(&self, row: Row, data: u8) -> Cell {
        assert!(
            row.0 < self.rows && data < self.data,
            "a data chunk of the array"
        );
        let Some(skewed) = self.skewed else {
            return match self.if_former(row) {
                Some(former) => former.lane_cell(row, data),
                None => self.lane_cell(row, data),
            };
        };
        let site = skewed.site(row);
        let mut cell = self.lane_cell(Row(site.stripe), data);
        skewed.stand(site, &mut cell);
        cell
    }

    fn lane_cell(&self, row: Row, data: u8) -> Cell {
        if let Some(grown) = &self.grown {
            return Cell {
                slot: self.grown_slot(grown, row, data),
                role: Role::Data(data),
                at: row.0 << self.chunk_shift,
            };
        }
        let level = self.geometry.level;
        let in_stripe = |rotation| {
            let stripe = Stripe::new(rotation, level.parities(), self.lanes, row);
            (stripe.data(data.into()), row.0)
        };
        let (slot, chunk) = match level {
            Level::Raid0 | Level::Raid4 => (u16::from(data), row.0),
            Level::Raid1 => (0, row.0),
            Level::Raid5(rotation) | Level::Raid6(rotation) => in_stripe(rotation),
            Level::ReedSolomon { .. } => in_stripe(Rotation::LeftSymmetric),
            Level::Raid10 { copies } => self.position(row.0 * u64::from(copies)),
        };
        Cell {
            slot: Slot(slot),
            role: Role::Data(data),
            at: chunk << self.chunk_shift,
        }
    }

    /// The slot and the chunk at a flat position: positions count through the slots, chunk after chunk.
    #[inline]
    fn position(&self, position: u64) -> (u16, u64) {
        let lanes = u64::from(self.lanes);
        let chunk = position / lanes;
        ((position - chunk * lanes) as u16, chunk) // the rest is below `lanes`
    }

    /// The slot of a data cell: what was added stands behind the first parity.
    #[inline]
    fn grown_slot(&self, grown: &Scaled, row: Row, data: u8) -> Slot {
        let data = data.into();
        let Slot(among_data) = grown.slot(Seat { row, data });
        match self.geometry.level.parities() {
            parities if among_data >= grown.history().first() => Slot(among_data + parities),
            _ => Slot(among_data),
        }
    }

    #[inline]
    fn grown_row(&self, grown: &Scaled, row: Row, cells: u8) -> RowMap {
        let at = row.0 << self.chunk_shift;
        let mut map = RowMap::new(row);
        for data in 0..cells {
            let Slot(slot) = self.grown_slot(grown, row, data);
            map.push(slot, Role::Data(data), at);
        }
        if self.parity() {
            map.push(grown.history().first(), Role::P, at);
        }
        map
    }

    /// One chunk of every slot, side by side.
    #[inline]
    fn striped(&self, row: Row) -> RowMap {
        let mut map = RowMap::new(row);
        for slot in 0..self.lanes {
            let data = slot as u8; // below CELLS_MAX
            map.push(slot, Role::Data(data), row.0 << self.chunk_shift);
        }
        map
    }

    /// A chunk and its copies at consecutive positions from `position` on.
    fn mirrored(&self, row: Row, copies: u16, position: u64) -> RowMap {
        let mut map = RowMap::new(row);
        let (mut slot, mut chunk) = self.position(position);
        for copy in 0..copies {
            let role = if copy == 0 {
                Role::Data(0)
            } else {
                Role::Copy { of: 0 }
            };
            map.push(slot, role, chunk << self.chunk_shift);
            slot += 1;
            if slot == self.lanes {
                (slot, chunk) = (0, chunk + 1);
            }
        }
        map
    }

    /// A stripe bound by P, by P and Q, or by more.
    fn bound(&self, row: Row, rotation: Rotation) -> RowMap {
        let at = row.0 << self.chunk_shift;
        let parities = self.geometry.level.parities();
        let stripe = Stripe::new(rotation, parities, self.lanes, row);
        let mut map = RowMap::new(row);
        for data in 0..self.data {
            let slot = stripe.data(u16::from(data));
            map.push(slot, Role::Data(data), at);
            if parities == 2 {
                map.exponent[usize::from(data)] = stripe.exponent(slot);
            }
        }
        for number in 0..parities {
            let role = match (parities, number) {
                (3.., _) => Role::Parity(number as u8), // below PARITIES_MAX
                (_, 0) => Role::P,
                _ => Role::Q,
            };
            map.push(stripe.parity(number), role, at);
        }
        map
    }
}
