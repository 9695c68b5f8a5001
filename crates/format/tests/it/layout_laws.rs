//! The laws that every layout obeys, checked for every level, rotation and geometry up to ten slots.
//!
//! A law is a function of a [`Map`]. A new layout implements the trait, declares what it promises, and is run through
//! all of them by [`obey`]. The codes are judged by brute force that shares nothing with the engine: field arithmetic
//! bit by bit, and the span of every subset of a row's cells.

use restripe_format::layout::scaled::{History, Scaled};
use restripe_format::layout::{
    Cell, CellSet, Geometry, Layout, Level, Place, Role, Rotation, RowMap, Skew,
};
use restripe_format::units::{CELLS_MAX, Row, Slot};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::ops::Range;
use std::sync::LazyLock;

/// A settled map from addresses to rows of cells.
trait Map: Debug {
    fn slots(&self) -> u16;
    /// Chunks in every slot.
    fn slot_chunks(&self) -> u64;
    fn chunk_sectors(&self) -> u64;
    fn rows(&self) -> u64;
    fn size_sectors(&self) -> u64;
    fn tolerance(&self) -> u8;
    /// The data cells whose addresses go through all rows before those of the next ones begin.
    fn runs_of_cells(&self) -> Vec<Range<u8>>;
    fn row(&self, row: Row) -> RowMap;
    fn data_cell(&self, row: Row, data: u8) -> Cell;
    fn place(&self, lba: u64) -> Place;
    fn lba(&self, row: Row, data: u8, offset: u64) -> u64;
    fn row_at(&self, slot: Slot, at: u64) -> Option<Row>;
    fn reads_without(&self, slot: Slot, gone: &dyn Fn(Slot) -> bool) -> Option<u16>;
    /// Whether what a miss costs depends on its row, once several slots are gone.
    fn partitioned(&self) -> bool;
}

impl Map for Layout {
    fn slots(&self) -> u16 {
        self.geometry().slots
    }
    fn slot_chunks(&self) -> u64 {
        self.geometry().slot_sectors / self.chunk_sectors()
    }
    fn chunk_sectors(&self) -> u64 {
        self.chunk_sectors()
    }
    fn rows(&self) -> u64 {
        self.rows()
    }
    fn size_sectors(&self) -> u64 {
        self.size_sectors()
    }
    fn tolerance(&self) -> u8 {
        self.tolerance()
    }
    fn runs_of_cells(&self) -> Vec<Range<u8>> {
        let grown = self.geometry().grown;
        let starts = grown.iter().flat_map(|history| history.growths());
        let mut starts: Vec<u16> = starts.map(|growth| growth.old).collect();
        starts.insert(0, 0);
        starts.push(u16::try_from(self.data_cells()).unwrap());
        let narrow = |at: u16| u8::try_from(at).unwrap();
        let cells = starts.windows(2);
        cells.map(|ends| narrow(ends[0])..narrow(ends[1])).collect()
    }
    fn row(&self, row: Row) -> RowMap {
        self.row(row)
    }
    fn data_cell(&self, row: Row, data: u8) -> Cell {
        self.data_cell(row, data)
    }
    fn place(&self, lba: u64) -> Place {
        self.place(lba)
    }
    fn lba(&self, row: Row, data: u8, offset: u64) -> u64 {
        self.lba(row, data, offset)
    }
    fn row_at(&self, slot: Slot, at: u64) -> Option<Row> {
        self.row_at(slot, at)
    }
    fn reads_without(&self, slot: Slot, gone: &dyn Fn(Slot) -> bool) -> Option<u16> {
        self.reads_without(slot, gone)
    }
    fn partitioned(&self) -> bool {
        self.partitions() > 1
    }
}

/// What a layout promises, written down apart from its map.
struct Promise {
    /// Distinct data chunks of the whole map.
    chunks: u64,
    /// Chunks of the slots that no cell uses.
    unused: u64,
    tolerance: u8,
}

/// All laws.
fn obey(map: &dyn Map, promise: &Promise, codes: &mut Codes) {
    addresses_and_data_cells_match_one_to_one(map, promise);
    cells_stand_apart(map, promise);
    codes_recover_all_that_can_be(map, codes);
    losses_up_to_the_tolerance_are_survived(map, promise, codes);
    misses_cost_what_the_code_needs(map, codes);
}

// ------------------------------------------------------------------------------------------------------- the laws

/// Every sector of the array is one sector of one data cell, in order, and the other way round.
fn addresses_and_data_cells_match_one_to_one(map: &dyn Map, promise: &Promise) {
    let chunk_sectors = map.chunk_sectors();
    assert_eq!(
        map.size_sectors(),
        promise.chunks * chunk_sectors,
        "size of {map:?}"
    );
    let mut lba = 0;
    let rows = |cells: Range<u8>| (0..map.rows()).map(move |row| (Row(row), cells.clone()));
    for (row, cells) in map.runs_of_cells().into_iter().flat_map(rows) {
        for data in cells {
            for offset in 0..chunk_sectors {
                assert_eq!(
                    map.place(lba),
                    Place { row, data, offset },
                    "sector {lba} of {map:?}"
                );
                assert_eq!(
                    map.lba(row, data, offset),
                    lba,
                    "{row:?} {data} {offset} of {map:?}"
                );
                lba += 1;
            }
        }
    }
    assert_eq!(lba, map.size_sectors(), "{map:?}");
}

/// Data cells come first, in logical order. No two cells of a row share a slot, no two cells of the map a chunk, and
/// the slots know which row each of their chunks belongs to.
fn cells_stand_apart(map: &dyn Map, promise: &Promise) {
    let mut owner = BTreeMap::new();
    for row in (0..map.rows()).map(Row) {
        let cells = map.row(row);
        assert_eq!(cells.row, row);
        assert_eq!(cells.cells().len(), usize::from(cells.width));
        let mut slots = BTreeSet::new();
        for (index, cell) in (0..cells.width).zip(cells.cells()) {
            let is_data = index < cells.data;
            assert!(
                !is_data || map.data_cell(row, index) == *cell,
                "{row:?} of {map:?}"
            );
            assert_eq!(
                cell.role == Role::Data(index),
                is_data,
                "{row:?} of {map:?}"
            );
            assert!(
                is_data || !matches!(cell.role, Role::Data(_)),
                "{row:?} of {map:?}"
            );
            assert!(cell.slot.0 < map.slots(), "{cell:?} of {map:?}");
            assert!(
                slots.insert(cell.slot),
                "two cells of {row:?} on one slot of {map:?}"
            );
            assert_eq!(cells.cell_on(cell.slot), Some(index));
            assert_eq!(cell.at % map.chunk_sectors(), 0, "{cell:?} of {map:?}");
            assert!(
                cell.at / map.chunk_sectors() < map.slot_chunks(),
                "{cell:?} of {map:?}"
            );
            let taken = owner.insert((cell.slot, cell.at), row);
            assert_eq!(taken, None, "{row:?} shares {cell:?} of {map:?}");
        }
    }
    chunks_know_their_rows(map, &owner);
    let chunks = map.slot_chunks() * u64::from(map.slots());
    assert_eq!(
        chunks - owner.len() as u64,
        promise.unused,
        "unused chunks of {map:?}"
    );
}

fn chunks_know_their_rows(map: &dyn Map, owner: &BTreeMap<(Slot, u64), Row>) {
    for slot in (0..=map.slots()).map(Slot) {
        for chunk in 0..=map.slot_chunks() {
            let at = chunk * map.chunk_sectors();
            let row = owner.get(&(slot, at)).copied();
            assert_eq!(map.row_at(slot, at), row, "{slot:?} {at} of {map:?}");
            assert_eq!(
                map.row_at(slot, at + map.chunk_sectors() - 1),
                row,
                "{slot:?} of {map:?}"
            );
        }
    }
}

/// For every row, every set of available cells and every wanted cell: there is a recipe exactly if linear algebra says
/// so, it gives the right value, and it is the cheapest.
fn codes_recover_all_that_can_be(map: &dyn Map, codes: &mut Codes) {
    for row in (0..map.rows()).map(Row) {
        let cells = map.row(row);
        let code = codes.of(&cells);
        for set in 0..1 << cells.width {
            let available = CellSet(set);
            let decodable = cells.data_set().within(CellSet(code.span[set as usize]));
            assert_eq!(
                cells.decodable(available),
                decodable,
                "{available:?} {row:?} of {map:?}"
            );
            for wanted in 0..cells.width {
                check_recipe(&cells, code, wanted, available);
            }
        }
    }
}

/// Every loss of at most as many slots as the tolerance leaves all data decodable, and some larger loss does not.
fn losses_up_to_the_tolerance_are_survived(map: &dyn Map, promise: &Promise, codes: &mut Codes) {
    assert_eq!(map.tolerance(), promise.tolerance, "{map:?}");
    let mut fatal = u32::MAX;
    for row in (0..map.rows()).map(Row) {
        let cells = map.row(row);
        let code = codes.of(&cells);
        for lost in 0u32..1 << map.slots() {
            let available = standing(&cells, lost);
            if !cells
                .data_set()
                .within(CellSet(code.span[available.0 as usize]))
            {
                fatal = fatal.min(lost.count_ones());
            }
        }
    }
    assert_eq!(
        fatal,
        u32::from(promise.tolerance) + 1,
        "smallest fatal loss of {map:?}"
    );
}

/// The cells that stand on no lost slot: bit `i` of `lost` stands for slot `i`.
fn standing(cells: &RowMap, lost: u32) -> CellSet {
    let stands = |&cell: &u8| lost >> cells.cells()[usize::from(cell)].slot.0 & 1 == 0;
    let standing = (0..cells.width).filter(stands);
    standing.fold(CellSet::EMPTY, CellSet::with)
}

/// Whatever is lost, a data cell takes as many reads as the smallest set of cells left that spans it has, and as many in
/// every row as the map says of its slot; where a slot has partitions, as many in one row and no more in any. A slot
/// without data takes none.
fn misses_cost_what_the_code_needs(map: &dyn Map, codes: &mut Codes) {
    let mut holds_data = vec![false; map.slots().into()];
    let mut most = vec![vec![None; 1 << map.slots()]; map.slots().into()];
    let of_slot = |slot| -> Vec<Option<u16>> {
        let without = |lost: u32| map.reads_without(slot, &|gone| lost >> gone.0 & 1 == 1);
        (0..1 << map.slots()).map(without).collect()
    };
    let promised: Vec<_> = (0..map.slots()).map(Slot).map(of_slot).collect();
    for row in (0..map.rows()).map(Row) {
        let cells = map.row(row);
        let code = codes.of(&cells);
        for (data, cell) in (0..cells.data).zip(cells.cells()) {
            let slot = usize::from(cell.slot.0);
            holds_data[slot] = true;
            for lost in 0u32..1 << map.slots() {
                let left = standing(&cells, lost);
                let fewest = code.fewest(data, left);
                let context = || format!("cell {data} without {lost:#b}, {row:?} of {map:?}");
                assert_eq!(cells.reads_for(data, left), fewest, "{}", context());
                let most: &mut Option<u16> = &mut most[slot][lost as usize];
                *most = fewest.max(*most);
                let promised = promised[slot][lost as usize];
                assert!(promised == fewest || map.partitioned(), "{}", context());
            }
        }
    }
    assert_eq!(promised, most, "{map:?}");
    for (promised, _) in promised.iter().zip(holds_data).filter(|(_, holds)| !holds) {
        assert!(promised.iter().all(Option::is_none), "{map:?}");
    }
}

/// As for every available set, for one wanted cell.
fn check_recipe(cells: &RowMap, code: &Code, wanted: u8, available: CellSet) {
    let context = || format!("cell {wanted} from {available:?} of {cells:?}");
    let sources = available.without(wanted);
    let reached = |set: CellSet| CellSet(code.span[set.0 as usize]).contains(wanted);
    let recipe = cells.recover(wanted, available);
    assert_eq!(recipe.is_some(), reached(sources), "{}", context());
    let Some(recipe) = recipe else { return };

    let used = recipe.set();
    assert!(used.within(sources), "{}", context());
    assert_eq!(
        used.len(),
        recipe.count,
        "a cell named twice: {}",
        context()
    );
    assert!(
        recipe.iter().all(|(_, coefficient)| coefficient != 0),
        "{}",
        context()
    );
    assert!(code.evaluates_to(recipe.iter(), wanted), "{}", context());

    if code.has_twin(wanted, sources) {
        assert_eq!(recipe.count, 1, "{}", context());
    }
    let p = cells.p().map_or(CellSet::EMPTY, CellSet::only);
    let q = cells.q().map_or(CellSet::EMPTY, CellSet::only);
    if reached(sources.minus(q)) {
        assert!(used.intersection(q).is_empty(), "needless Q: {}", context());
    } else if reached(sources.minus(p)) {
        assert!(used.intersection(p).is_empty(), "needless P: {}", context());
    }
    if reached(sources.minus(p).minus(q)) {
        assert!(
            used.intersection(p.union(q)).is_empty(),
            "needless parity: {}",
            context()
        );
    }
}

// ---------------------------------------------------------------------------------------------- codes by brute force

/// A row's code, and what follows from it.
struct Code {
    /// For each cell, the factor of each data chunk.
    generator: Vec<Vec<u8>>,
    /// For each set of cells, the cells that are linear combinations of it.
    span: Vec<u32>,
    /// For each set of cells and each data chunk, the size of the smallest subset that spans it.
    fewest: Vec<Vec<Option<u16>>>,
}

impl Code {
    fn new(generator: Vec<Vec<u8>>) -> Code {
        let spanned = |set: u32| {
            let member = |cell: &usize| set >> cell & 1 == 1;
            let basis = Basis::of((0..generator.len()).filter(member).map(|c| &generator[c]));
            let inside = (0..generator.len()).filter(|&cell| basis.spans(&generator[cell]));
            inside.fold(0, |span, cell| span | 1 << cell)
        };
        let span: Vec<u32> = (0..1 << generator.len()).map(spanned).collect();
        let fewest = fewest(&span, generator[0].len());
        Code {
            generator,
            span,
            fewest,
        }
    }

    fn fewest(&self, data: u8, set: CellSet) -> Option<u16> {
        self.fewest[set.0 as usize][usize::from(data)]
    }

    /// Whether a sum of cells is the wanted one, chunk by chunk. All is linear, so what holds for the factors of the
    /// chunks holds for any bytes.
    fn evaluates_to(&self, sum: impl Iterator<Item = (u8, u8)>, wanted: u8) -> bool {
        let mut rest = [0; CELLS_MAX];
        for (cell, coefficient) in sum.chain([(wanted, 1)]) {
            for (factor, &entry) in rest.iter_mut().zip(&self.generator[usize::from(cell)]) {
                *factor ^= multiply(coefficient, entry);
            }
        }
        rest == [0; CELLS_MAX]
    }

    fn has_twin(&self, wanted: u8, sources: CellSet) -> bool {
        let twin =
            |cell: u8| self.generator[usize::from(cell)] == self.generator[usize::from(wanted)];
        self.generator[0].len() == 1 && sources.iter().any(twin)
    }
}

/// For each set and each data chunk: what a subset that lacks one more cell takes, or else the whole set.
fn fewest(span: &[u32], chunks: usize) -> Vec<Vec<Option<u16>>> {
    let mut fewest: Vec<Vec<Option<u16>>> = Vec::new();
    for (set, &spanned) in (0u32..).zip(span) {
        let whole = u16::try_from(set.count_ones()).unwrap();
        let of_chunk = |chunk: usize| {
            let lacks_one = CellSet(set).iter().map(|cell| set as usize & !(1 << cell));
            let smaller = lacks_one.filter_map(|subset| fewest[subset][chunk]).min();
            smaller.or_else(|| (spanned >> chunk & 1 == 1).then_some(whole))
        };
        let all = (0..chunks).map(of_chunk).collect();
        fewest.push(all);
    }
    fewest
}

/// Codes met so far: rows of one layout mostly share theirs.
#[derive(Default)]
struct Codes(BTreeMap<Vec<Vec<u8>>, Code>);

impl Codes {
    fn of(&mut self, cells: &RowMap) -> &Code {
        let generator = generator(cells);
        self.0
            .entry(generator.clone())
            .or_insert_with(|| Code::new(generator))
    }
}

/// The generator matrix as the roles define it, also held against the engine's own.
fn generator(cells: &RowMap) -> Vec<Vec<u8>> {
    let entry = |role: Role, data: u8| match role {
        Role::Data(held) | Role::Copy { of: held } => u8::from(held == data),
        Role::P => 1,
        Role::Q => (0..cells.exponent[usize::from(data)]).fold(1, |power, _| multiply(power, 2)),
        Role::Parity(parity) => invert((cells.data + parity) ^ data),
    };
    let line = |cell: u8| -> Vec<u8> {
        let role = cells.cells()[usize::from(cell)].role;
        let line: Vec<u8> = (0..cells.data).map(|data| entry(role, data)).collect();
        assert!(
            (0..cells.data)
                .map(|data| cells.coefficient(cell, data))
                .eq(line.iter().copied())
        );
        line
    };
    (0..cells.width).map(line).collect()
}

/// All products of GF(2^8).
static PRODUCTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let line = |a| (0..=255).map(|b| multiply_bits(a, b)).collect();
    (0..=255).map(line).collect()
});

fn multiply(a: u8, b: u8) -> u8 {
    PRODUCTS[usize::from(a)][usize::from(b)]
}

/// Multiplication in GF(2^8) modulo 0x11d, bit by bit.
fn multiply_bits(a: u8, b: u8) -> u8 {
    let mut product = 0u16;
    for bit in 0..8 {
        if b >> bit & 1 == 1 {
            product ^= u16::from(a) << bit;
        }
    }
    for bit in (8..16).rev() {
        if product >> bit & 1 == 1 {
            product ^= 0x11d << (bit - 8);
        }
    }
    u8::try_from(product).unwrap()
}

/// The inverse by trying them all.
fn invert(a: u8) -> u8 {
    (1..=255).find(|&b| multiply(a, b) == 1).unwrap()
}

/// Independent vectors, each 1 at its own pivot.
#[derive(Default)]
struct Basis(Vec<(usize, Vec<u8>)>);

impl Basis {
    fn of<'a>(vectors: impl Iterator<Item = &'a Vec<u8>>) -> Basis {
        let mut basis = Basis::default();
        for vector in vectors {
            let mut rest = basis.reduce(vector);
            if let Some(pivot) = rest.iter().position(|&entry| entry != 0) {
                let scale = invert(rest[pivot]);
                rest.iter_mut()
                    .for_each(|entry| *entry = multiply(*entry, scale));
                basis.0.push((pivot, rest));
            }
        }
        basis
    }

    fn reduce(&self, vector: &[u8]) -> Vec<u8> {
        let mut rest = vector.to_vec();
        for (pivot, line) in &self.0 {
            let scale = rest[*pivot];
            for (entry, &other) in rest.iter_mut().zip(line) {
                *entry ^= multiply(scale, other);
            }
        }
        rest
    }

    fn spans(&self, vector: &[u8]) -> bool {
        self.reduce(vector).iter().all(|&entry| entry == 0)
    }
}

// ---------------------------------------------------------------------------------------------------- the layouts

fn levels(slots: u16) -> Vec<Level> {
    let mut levels = vec![Level::Raid0, Level::Raid1, Level::Raid4];
    levels.extend(Rotation::ALL.map(Level::Raid5));
    if slots >= 4 {
        levels.extend(Rotation::ALL.map(Level::Raid6));
    }
    let copies = 2..=u8::try_from(slots.min(10)).unwrap();
    levels.extend(copies.map(|copies| Level::Raid10 { copies }));
    let parities = 3..=u8::try_from(slots - 1).unwrap().min(8);
    levels.extend(parities.map(|parities| Level::ReedSolomon { parities }));
    levels
}

fn layout(level: Level, slots: u16, slot_chunks: u64) -> Layout {
    let geometry = Geometry {
        level,
        slots,
        chunk_sectors: 8,
        slot_sectors: 8 * slot_chunks,
        ..Geometry::PLAIN
    };
    Layout::new(geometry).unwrap()
}

fn promise(level: Level, slots: u16, slot_chunks: u64) -> Promise {
    let slots = u64::from(slots);
    let (chunks, per_slots, tolerance) = match level {
        Level::Raid0 => (slot_chunks * slots, 1, 0),
        Level::Raid1 => (slot_chunks, slots, slots - 1),
        Level::Raid4 | Level::Raid5(_) => return parity_promise(slots, 1, slot_chunks),
        Level::Raid6(_) => return parity_promise(slots, 2, slot_chunks),
        Level::ReedSolomon { parities } => return parity_promise(slots, parities, slot_chunks),
        Level::Raid10 { copies } => {
            let copies = u64::from(copies);
            (slot_chunks * slots / copies, copies, copies - 1)
        }
    };
    let unused = slot_chunks * slots - chunks * per_slots;
    Promise {
        chunks,
        unused,
        tolerance: u8::try_from(tolerance).unwrap(),
    }
}

fn parity_promise(slots: u64, parities: u8, slot_chunks: u64) -> Promise {
    let chunks = slot_chunks * (slots - u64::from(parities));
    Promise {
        chunks,
        unused: 0,
        tolerance: parities,
    }
}

#[test]
fn every_layout_up_to_ten_slots_obeys() {
    let mut codes = Codes::default();
    for slots in 2..=10 {
        for level in levels(slots) {
            for slot_chunks in [1, 2, 2 * u64::from(slots) + 1] {
                let promise = promise(level, slots, slot_chunks);
                obey(&layout(level, slots, slot_chunks), &promise, &mut codes);
            }
        }
    }
}

/// Which slots have first copies, counted row by row.
fn slots_with_firsts(layout: &Layout) -> BTreeSet<Slot> {
    let rows = (0..layout.rows()).map(|row| layout.row(Row(row)));
    rows.map(|map| map.cells[0].slot).collect()
}

#[test]
fn first_copies_lie_where_it_is_said() {
    let said = |layout: &Layout, slots: u16| {
        let slots = (0..slots).map(Slot);
        slots.filter(|slot| layout.has_firsts(*slot)).collect()
    };
    for slots in 2..=10 {
        for level in levels(slots).into_iter().filter(Level::mirrors) {
            let layout = layout(level, slots, 2 * u64::from(slots) + 1);
            let said: BTreeSet<Slot> = said(&layout, slots);
            assert_eq!(said, slots_with_firsts(&layout), "{level}, {slots} slots");
        }
    }
    for (groups, size) in [(2, 3), (2, 5), (3, 5)] {
        let (slots, copies) = (groups * size, u8::try_from(groups).unwrap());
        let skew = Skew {
            groups,
            partitions: 3,
        };
        let layout = skewed(Level::Raid10 { copies }, slots, skew, 9);
        let said: BTreeSet<Slot> = said(&layout, slots);
        assert_eq!(said, slots_with_firsts(&layout), "{skew:?}, {slots} slots");
    }
}

/// Levels whose rows have a cell in each of so many groups.
fn skewed_levels(groups: u16) -> Vec<Level> {
    let mut levels = vec![Level::Raid10 {
        copies: u8::try_from(groups).unwrap(),
    }];
    levels.extend(Rotation::ALL.map(Level::Raid5));
    if groups >= 4 {
        levels.extend(Rotation::ALL.map(Level::Raid6));
    }
    levels
}

fn skewed(level: Level, slots: u16, skew: Skew, slot_chunks: u64) -> Layout {
    let geometry = Geometry {
        level,
        slots,
        chunk_sectors: 8,
        slot_sectors: 8 * slot_chunks,
        skew: Some(skew),
        ..Geometry::PLAIN
    };
    Layout::new(geometry).unwrap()
}

/// A row has a cell in every group, and what is left of a slot behind its last partition belongs to none.
fn skewed_promise(level: Level, slots: u16, skew: Skew, slot_chunks: u64) -> Promise {
    let (slots, groups) = (u64::from(slots), u64::from(skew.groups));
    let partitions = u64::from(skew.partitions);
    let used = slot_chunks / partitions * partitions;
    let row = promise(level, skew.groups, 1);
    Promise {
        chunks: used * slots / groups * row.chunks,
        unused: (slot_chunks - used) * slots,
        tolerance: row.tolerance,
    }
}

/// Every grouping that is free of conflict.
#[test]
fn every_skewed_layout_up_to_ten_slots_obeys() {
    let mut codes = Codes::default();
    let mut maps = 0;
    for slots in 2..=10u16 {
        for groups in (2..=slots).filter(|groups| slots.is_multiple_of(*groups)) {
            for partitions in 1..=Skew::partitions_max(groups, slots / groups) {
                let skew = Skew { groups, partitions };
                for level in skewed_levels(groups) {
                    let each = u64::from(partitions);
                    for slot_chunks in [each, 2 * each + each / 2, each * u64::from(groups + 1)] {
                        let promise = skewed_promise(level, slots, skew, slot_chunks);
                        obey(
                            &skewed(level, slots, skew, slot_chunks),
                            &promise,
                            &mut codes,
                        );
                        maps += 1;
                    }
                }
            }
        }
    }
    assert!(maps > 500, "{maps} maps");
}

/// Larger ones, whose losses are too many to go through: the paper's, and the widest that there are.
#[test]
fn large_skewed_layouts_obey() {
    let shapes = [
        (15, 3),
        (25, 5),
        (36, 6),
        (35, 5),
        (49, 7),
        (64, 8),
        (62, 31),
        (62, 2),
    ];
    for (slots, groups) in shapes {
        let partitions = Skew::partitions_max(groups, slots / groups);
        let skew = Skew { groups, partitions };
        for level in skewed_levels(groups) {
            let slot_chunks = 3 * u64::from(partitions) + 1;
            let map = skewed(level, slots, skew, slot_chunks);
            let promise = skewed_promise(level, slots, skew, slot_chunks);
            addresses_and_data_cells_match_one_to_one(&map, &promise);
            cells_stand_apart(&map, &promise);
            for row in (0..map.rows()).map(Row) {
                losses_of_two_cells_are_mended(&map.row(row), map.tolerance());
            }
        }
    }
}

/// Every history that ends with so many data slots.
fn histories(slots: u16) -> Vec<History> {
    let below = 1..1u32 << (slots - 1);
    let of = |set: u32| History::of_mask(set | 1 << (slots - 1)).unwrap();
    below.map(of).collect()
}

fn grown(level: Level, history: History, slot_chunks: u64) -> Layout {
    let geometry = Geometry {
        level,
        slots: history.slots() + level.parities(),
        chunk_sectors: 8,
        slot_sectors: 8 * slot_chunks,
        grown: Some(history),
        ..Geometry::PLAIN
    };
    Layout::new(geometry).unwrap()
}

#[test]
fn every_grown_layout_up_to_seven_data_slots_obeys() {
    let mut codes = Codes::default();
    for slots in 2..=7 {
        for history in histories(slots) {
            for level in [Level::Raid0, Level::Raid4] {
                for slot_chunks in [1, 2, u64::from(slots) + 2] {
                    let map = grown(level, history, slot_chunks);
                    let promise = promise(level, map.geometry().slots, slot_chunks);
                    obey(&map, &promise, &mut codes);
                    it_is_the_settled_map(&map);
                    runs_end_where_addresses_leave(&map);
                }
            }
        }
    }
}

#[test]
fn large_grown_layouts_obey() {
    for counts in [&[1, 2, 3, 31][..], &[4, 5, 13, 31], &[30, 31], &[2, 31]] {
        let history = History::of(counts).unwrap();
        for level in [Level::Raid0, Level::Raid4] {
            let map = grown(level, history, 67);
            let promise = promise(level, map.geometry().slots, 67);
            addresses_and_data_cells_match_one_to_one(&map, &promise);
            cells_stand_apart(&map, &promise);
            it_is_the_settled_map(&map);
        }
    }
}

/// The history's map, but that the parity keeps the slot it had at first.
fn it_is_the_settled_map(map: &Layout) {
    let history = map.geometry().grown.unwrap();
    let settled = Scaled::new(history, map.rows());
    let parities = map.geometry().level.parities();
    for chunk in 0..settled.chunks() {
        let seat = settled.seat(chunk);
        let place = map.place(chunk * map.chunk_sectors());
        assert_eq!((place.row, u16::from(place.data)), (seat.row, seat.data));
        let Slot(slot) = settled.slot(seat);
        let behind = if slot < history.first() { 0 } else { parities };
        let cell = map.data_cell(place.row, place.data);
        assert_eq!(cell.slot, Slot(slot + behind), "{seat:?} of {map:?}");
    }
    let p = |row| {
        map.row(row)
            .p()
            .map(|p| map.row(row).cells[usize::from(p)].slot)
    };
    let stays = (parities > 0).then_some(Slot(history.first()));
    assert!((0..map.rows()).all(|row| p(Row(row)) == stays), "{map:?}");
}

#[test]
fn runs_of_plain_layouts_end_where_addresses_leave() {
    for slots in 2..=5 {
        for level in levels(slots) {
            runs_end_where_addresses_leave(&layout(level, slots, 4));
        }
    }
}

/// A run goes on as long as the next address is of the same cells of a row, or of the next one, below the end.
fn runs_end_where_addresses_leave(map: &Layout) {
    let generations = map.runs_of_cells();
    let of = |data: u8| generations.iter().position(|cells| cells.contains(&data));
    for lba in (3..map.size_sectors()).step_by(8) {
        let place = map.place(lba);
        for end in place.row.0 + 1..=map.rows() {
            let joins = |at: &u64| {
                let next = map.place(*at);
                next.row.0 < end && of(next.data) == of(place.data)
            };
            let run = (lba..map.size_sectors()).take_while(joins).count() as u64;
            assert_eq!(
                map.run_sectors(place, Row(end)),
                run,
                "{place:?} of {map:?}"
            );
        }
    }
}

/// What is asked of every row can be asked of as many as there are slots.
#[test]
fn rows_repeat_after_as_many_as_there_are_slots() {
    for slots in 2..=10 {
        for level in levels(slots) {
            let map = layout(level, slots, 4 * u64::from(slots));
            let slots_of = |row| {
                map.row(Row(row))
                    .cells()
                    .iter()
                    .map(|cell| (cell.slot, cell.role))
                    .collect::<Vec<_>>()
            };
            for row in 0..map.rows() - u64::from(slots) {
                assert_eq!(
                    slots_of(row),
                    slots_of(row + u64::from(slots)),
                    "{level}, {slots} slots"
                );
            }
        }
    }
}

/// Where all subsets are too many: the maps in full, the codes for every loss within the tolerance.
#[test]
fn the_widest_layouts_obey() {
    for slots in [31, 32] {
        for level in levels(slots) {
            let map = layout(level, slots, 67);
            let promise = promise(level, slots, 67);
            addresses_and_data_cells_match_one_to_one(&map, &promise);
            cells_stand_apart(&map, &promise);
            for row in (0..map.rows()).map(Row) {
                losses_of_two_cells_are_mended(&map.row(row), map.tolerance());
            }
        }
    }
}

fn losses_of_two_cells_are_mended(cells: &RowMap, tolerance: u8) {
    let code = Code {
        generator: generator(cells),
        span: Vec::new(),
        fewest: Vec::new(),
    };
    for first in 0..cells.width {
        for second in first..cells.width {
            let available = cells.all().without(first).without(second);
            if cells.all().minus(available).len() <= tolerance {
                let recipe = cells.recover(first, available).unwrap();
                assert!(recipe.set().within(available));
                assert!(code.evaluates_to(recipe.iter(), first));
            }
        }
    }
}

// --------------------------------------------------------------------------------------------------- md's own rules

/// How often each slot holds a role over one full turn.
fn spread(map: &Layout, role: Role) -> Vec<u64> {
    let mut counts = vec![0; usize::from(map.geometry().slots)];
    for row in (0..map.rows()).map(Row) {
        let cells = map.row(row);
        let holders = cells.cells().iter().filter(|cell| cell.role == role);
        holders.for_each(|cell| counts[usize::from(cell.slot.0)] += 1);
    }
    counts
}

#[test]
fn rotating_parity_is_spread_evenly_and_fixed_parity_stays() {
    for slots in 4..=10 {
        let (n, turn) = (usize::from(slots), u64::from(slots));
        let even = vec![3; n];
        let fixed_on = |slot: usize| {
            (0..n)
                .map(|s| if s == slot { 3 * turn } else { 0 })
                .collect()
        };
        let of = |level, role| spread(&layout(level, slots, 3 * turn), role);
        assert_eq!(of(Level::Raid4, Role::P), fixed_on(n - 1));
        for rotation in Rotation::ALL {
            let (p5, p6, q6): (Vec<u64>, Vec<u64>, Vec<u64>) = match rotation {
                Rotation::ParityFirst => (fixed_on(0), fixed_on(0), fixed_on(1)),
                Rotation::ParityLast => (fixed_on(n - 1), fixed_on(n - 2), fixed_on(n - 1)),
                _ => (even.clone(), even.clone(), even.clone()),
            };
            assert_eq!(of(Level::Raid5(rotation), Role::P), p5, "{rotation}");
            assert_eq!(of(Level::Raid6(rotation), Role::P), p6, "{rotation}");
            assert_eq!(of(Level::Raid6(rotation), Role::Q), q6, "{rotation}");
        }
        for parities in 3..slots.min(9) as u8 {
            for parity in 0..parities {
                let found = of(Level::ReedSolomon { parities }, Role::Parity(parity));
                assert_eq!(found, even, "parity {parity} of {parities}");
            }
        }
    }
}

/// md numbers the powers in Q by slot: from the slot after Q around, skipping P.
#[test]
fn powers_in_q_count_slots_from_the_one_after_q() {
    for slots in 4..=10u16 {
        for rotation in Rotation::ALL {
            let map = layout(Level::Raid6(rotation), slots, 2 * u64::from(slots));
            for row in (0..map.rows()).map(Row) {
                let cells = map.row(row);
                let slot_of = |cell: Option<u8>| cells.cells()[usize::from(cell.unwrap())].slot.0;
                let (p, q) = (slot_of(cells.p()), slot_of(cells.q()));
                let around = (1..slots)
                    .map(|step| (q + step) % slots)
                    .filter(|&slot| slot != p);
                for (power, slot) in (0..).zip(around) {
                    let data = cells.cell_on(Slot(slot)).unwrap();
                    assert_eq!(
                        cells.exponent[usize::from(data)],
                        power,
                        "{rotation} {row:?}"
                    );
                    assert_eq!(
                        cells.data_of_exponent(power),
                        Some(data),
                        "{rotation} {row:?}"
                    );
                }
            }
        }
    }
}
