//! The code of a row, solved: which cells, each times what, give a cell that is not there.
//!
//! Every cell is a linear combination over GF(2^8) of the row's data chunks. Data and copies are single chunks, P and Q
//! are sums of all of them. So a lost cell is found by looking at the *unknown* chunks only, those that no available
//! cell holds as it is: the parities used must add up to the wanted cell there, which fixes their weights; the known
//! chunks then make up the difference. With at most two parities that is a system of at most two unknowns; with more,
//! `reed_solomon` solves it.

use super::reed_solomon::{self, ReedSolomon};
use super::{Role, RowMap, gf};
use crate::units::CELLS_MAX;

/// A set of cells of one row: bit `i` stands for cell `i`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct CellSet(pub u32);

impl CellSet {
    pub const EMPTY: CellSet = CellSet(0);

    /// The first `width` cells.
    #[inline]
    pub fn all(width: u8) -> CellSet {
        assert!(
            usize::from(width) <= CELLS_MAX,
            "a row has at most CELLS_MAX cells"
        );
        CellSet(((1u64 << width) - 1) as u32)
    }

    #[inline]
    pub fn only(cell: u8) -> CellSet {
        CellSet(1 << cell)
    }

    #[inline]
    pub fn with(self, cell: u8) -> CellSet {
        CellSet(self.0 | 1 << cell)
    }

    #[inline]
    pub fn without(self, cell: u8) -> CellSet {
        CellSet(self.0 & !(1 << cell))
    }

    #[inline]
    pub fn contains(self, cell: u8) -> bool {
        self.0 >> cell & 1 == 1
    }

    #[inline]
    pub fn union(self, other: CellSet) -> CellSet {
        CellSet(self.0 | other.0)
    }

    #[inline]
    pub fn intersection(self, other: CellSet) -> CellSet {
        CellSet(self.0 & other.0)
    }

    /// The cells of this set that are not in `other`.
    #[inline]
    pub fn minus(self, other: CellSet) -> CellSet {
        CellSet(self.0 & !other.0)
    }

    /// Whether every cell of this set is in `other`.
    #[inline]
    pub fn within(self, other: CellSet) -> bool {
        self.minus(other).is_empty()
    }

    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub fn len(self) -> u8 {
        self.0.count_ones() as u8 // at most 32
    }

    /// The lowest cell.
    #[inline]
    pub fn first(self) -> Option<u8> {
        self.iter().next()
    }

    /// The cells in ascending order.
    #[inline]
    pub fn iter(self) -> CellIter {
        CellIter(self)
    }
}

impl FromIterator<u8> for CellSet {
    #[inline]
    fn from_iter<I: IntoIterator<Item = u8>>(cells: I) -> CellSet {
        cells.into_iter().fold(CellSet::EMPTY, CellSet::with)
    }
}

impl IntoIterator for CellSet {
    type Item = u8;
    type IntoIter = CellIter;

    #[inline]
    fn into_iter(self) -> CellIter {
        CellIter(self)
    }
}

/// The cells of a set, ascending.
#[derive(Clone, Debug)]
pub struct CellIter(CellSet);

impl Iterator for CellIter {
    type Item = u8;

    #[inline]
    fn next(&mut self) -> Option<u8> {
        if self.0.is_empty() {
            return None;
        }
        let cell = self.0.0.trailing_zeros() as u8; // below 32
        self.0 = self.0.without(cell);
        Some(cell)
    }
}

/// How to make a cell from others: the sum of `coefficients[i] * cells[i]` over the first `count`. No coefficient in
/// use is zero, and no cell is named twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recipe {
    pub count: u8,
    pub cells: [u8; CELLS_MAX],
    pub coefficients: [u8; CELLS_MAX],
}

impl Recipe {
    pub(super) const EMPTY: Recipe = Recipe {
        count: 0,
        cells: [0; CELLS_MAX],
        coefficients: [0; CELLS_MAX],
    };

    #[inline]
    pub(super) fn copy_of(cell: u8) -> Recipe {
        let mut recipe = Recipe::EMPTY;
        recipe.add(cell, 1);
        recipe
    }

    #[inline]
    pub(super) fn add(&mut self, cell: u8, coefficient: u8) {
        if coefficient != 0 {
            self.cells[usize::from(self.count)] = cell;
            self.coefficients[usize::from(self.count)] = coefficient;
            self.count += 1;
        }
    }

    /// Source cells with their coefficients, data before parity.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (u8, u8)> + '_ {
        let sources = self.cells.iter().zip(&self.coefficients);
        sources
            .take(usize::from(self.count))
            .map(|(&cell, &coefficient)| (cell, coefficient))
    }

    /// The source cells.
    #[inline]
    pub fn set(&self) -> CellSet {
        self.iter()
            .fold(CellSet::EMPTY, |set, (cell, _)| set.with(cell))
    }
}

/// What the available cells tell of a row's data chunks without any arithmetic.
struct Known {
    /// Data chunks that an available cell holds, as a set of data indices.
    chunks: CellSet,
    /// For each of them, that cell.
    holder: [u8; CELLS_MAX],
}

/// Up to two parity cells and the weight of each.
#[derive(Clone, Copy)]
struct Weighted {
    p: Option<(u8, u8)>,
    q: Option<(u8, u8)>,
}

impl Weighted {
    #[inline]
    fn iter(&self) -> impl Iterator<Item = (u8, u8)> {
        self.p.into_iter().chain(self.q)
    }
}

impl RowMap {
    /// All the row's cells.
    #[inline]
    pub fn all(&self) -> CellSet {
        CellSet::all(self.width)
    }

    /// The cells that the data is read from and written to first. Each further copy is in none of these sets.
    #[inline]
    pub fn data_set(&self) -> CellSet {
        CellSet::all(self.data)
    }

    /// The parities of the row: P and Q, as far as it has them.
    #[inline]
    pub fn parity_set(&self) -> CellSet {
        self.parities().map(|(_, cell)| cell).collect()
    }

    /// The parities by their numbers, which P begins, each with its cell: all cells behind the data but for copies.
    #[inline]
    pub fn parities(&self) -> impl Iterator<Item = (u8, u8)> + use<> {
        let behind = self.cells().get(usize::from(self.data));
        let bound = behind.is_some_and(|cell| matches!(cell.role, Role::P | Role::Parity(_)));
        let (data, count) = (self.data, if bound { self.width - self.data } else { 0 });
        (0..count).map(move |parity| (parity, data + parity))
    }

    /// Which parity a cell holds.
    #[inline]
    pub fn parity_at(&self, cell: u8) -> Option<u8> {
        let mut parities = self.parities();
        parities.find_map(|(parity, at)| (at == cell).then_some(parity))
    }

    /// The cell that holds P.
    #[inline]
    pub fn p(&self) -> Option<u8> {
        self.find(Role::P)
    }

    /// The cell that holds Q.
    #[inline]
    pub fn q(&self) -> Option<u8> {
        self.find(Role::Q)
    }

    /// Every cell that holds this data chunk as it is, the data cell included.
    #[inline]
    pub fn copies_of(&self, data: u8) -> CellSet {
        assert!(data < self.data, "a data chunk of the row");
        let further = (self.data..self.width)
            .filter(|&cell| self.cells[usize::from(cell)].role == Role::Copy { of: data });
        further.fold(CellSet::only(data), CellSet::with)
    }

    /// With what factor a data chunk enters a cell: one entry of the code's generator matrix.
    #[inline]
    pub fn coefficient(&self, cell: u8, data: u8) -> u8 {
        assert!(
            cell < self.width && data < self.data,
            "a cell and a data chunk of the row"
        );
        match self.cells[usize::from(cell)].role {
            Role::Data(held) | Role::Copy { of: held } => u8::from(held == data),
            Role::P => 1,
            Role::Q => gf::power(self.exponent[usize::from(data)]),
            Role::Parity(parity) => reed_solomon::coefficient(self.data, parity, data),
        }
    }

    /// The data chunk that enters the second parity with this power of the generator more than the first, which is what an
    /// error in it does to what is wrong with the two.
    #[inline]
    pub fn data_of_exponent(&self, exponent: u8) -> Option<u8> {
        let mut parities = self.parities().map(|(_, cell)| cell);
        let (first, second) = (parities.next()?, parities.next()?);
        (0..self.data).find(|&data| {
            let more = gf::multiply(gf::power(exponent), self.coefficient(first, data));
            more == self.coefficient(second, data)
        })
    }

    /// Its code, if that has more parities than P and Q.
    #[inline]
    fn reed_solomon(&self) -> Option<ReedSolomon> {
        let behind = self.cells().get(usize::from(self.data))?;
        let bound = matches!(behind.role, Role::Parity(_));
        bound.then(|| {
            let code = ReedSolomon::new(self.data, self.width - self.data);
            code.expect("a checked geometry has a code")
        })
    }

    /// How to make cell `wanted` from the others among `available`, as cheaply as can be: from a surviving copy, else
    /// from data alone, else with P, else with Q, else with both; of more parities, with the first that there are. `None` when
    /// redundancy does not reach.
    pub fn recover(&self, wanted: u8, available: CellSet) -> Option<Recipe> {
        assert!(wanted < self.width, "a cell of the row");
        let sources = available.intersection(self.all()).without(wanted);
        if let Some(code) = self.reed_solomon() {
            return code.recover(wanted, sources);
        }
        if let Some(copy) = self.twins(wanted).intersection(sources).first() {
            return Some(Recipe::copy_of(copy));
        }
        let known = self.known(sources);
        let p = self.p().filter(|&cell| sources.contains(cell));
        let q = self.q().filter(|&cell| sources.contains(cell));
        let attempts = [(None, None), (p, None), (None, q), (p, q)];
        let weighted = attempts
            .iter()
            .find_map(|&(p, q)| self.weigh(wanted, &known, p, q))?;
        Some(self.combine(wanted, &known, weighted))
    }

    /// How many of the available cells are read to have a data chunk. `None` when it cannot be had.
    #[inline]
    pub fn reads_for(&self, data: u8, available: CellSet) -> Option<u16> {
        assert!(data < self.data, "a data chunk of the row");
        if available.contains(data) {
            return Some(1);
        }
        let recipe = self.recover(data, available)?;
        Some(recipe.count.into())
    }

    /// Whether every data chunk can be had from the available cells.
    #[inline]
    pub fn decodable(&self, available: CellSet) -> bool {
        if let Some(code) = self.reed_solomon() {
            return code.decodable(available.intersection(self.all()));
        }
        let lost = self.data_set().minus(available);
        lost.iter()
            .all(|cell| self.recover(cell, available).is_some())
    }

    /// The cells that hold the same as this one.
    #[inline]
    fn twins(&self, cell: u8) -> CellSet {
        match self.cells[usize::from(cell)].role {
            Role::Data(data) | Role::Copy { of: data } => self.copies_of(data),
            Role::P | Role::Q | Role::Parity(_) => CellSet::only(cell),
        }
    }

    #[inline]
    fn find(&self, role: Role) -> Option<u8> {
        (self.data..self.width).find(|&cell| self.cells[usize::from(cell)].role == role)
    }

    fn known(&self, sources: CellSet) -> Known {
        let mut known = Known {
            chunks: CellSet::EMPTY,
            holder: [0; CELLS_MAX],
        };
        for cell in sources {
            if let Role::Data(data) | Role::Copy { of: data } = self.cells[usize::from(cell)].role
                && !known.chunks.contains(data)
            {
                known.chunks = known.chunks.with(data);
                known.holder[usize::from(data)] = cell;
            }
        }
        known
    }

    /// Weights for these parities such that, on every unknown chunk, they add up to the wanted cell.
    fn weigh(&self, wanted: u8, known: &Known, p: Option<u8>, q: Option<u8>) -> Option<Weighted> {
        let unknown = self.data_set().minus(known.chunks);
        let mut chunks = unknown.iter();
        let weighted = match (p, q) {
            (None, None) => Weighted { p: None, q: None },
            (Some(p), Some(q)) => self.weigh_pair(wanted, p, q, chunks.next()?, chunks.next()?)?,
            (Some(p), None) => Weighted {
                p: Some(self.weigh_one(wanted, p, chunks.next()?)?),
                q: None,
            },
            (None, Some(q)) => Weighted {
                p: None,
                q: Some(self.weigh_one(wanted, q, chunks.next()?)?),
            },
        };
        let fits = |data| self.remainder(wanted, &weighted, data) == 0;
        unknown.iter().all(fits).then_some(weighted)
    }

    /// The weight of one parity that makes the wanted cell's factor of an unknown chunk.
    #[inline]
    fn weigh_one(&self, wanted: u8, parity: u8, chunk: u8) -> Option<(u8, u8)> {
        let target = self.coefficient(wanted, chunk);
        Some((parity, gf::divide(target, self.coefficient(parity, chunk))?))
    }

    /// The weights of two parities for two unknown chunks, by Cramer's rule.
    fn weigh_pair(&self, wanted: u8, p: u8, q: u8, first: u8, second: u8) -> Option<Weighted> {
        let column = |cell| {
            [
                self.coefficient(cell, first),
                self.coefficient(cell, second),
            ]
        };
        let determinant =
            |a: [u8; 2], b: [u8; 2]| gf::multiply(a[0], b[1]) ^ gf::multiply(a[1], b[0]);
        let (p_column, q_column, target) = (column(p), column(q), column(wanted));
        let whole = determinant(p_column, q_column);
        let p_weight = gf::divide(determinant(target, q_column), whole)?;
        let q_weight = gf::divide(determinant(p_column, target), whole)?;
        Some(Weighted {
            p: Some((p, p_weight)),
            q: Some((q, q_weight)),
        })
    }

    /// What is left of the wanted cell's factor of a chunk after the weighted parities.
    #[inline]
    fn remainder(&self, wanted: u8, weighted: &Weighted, data: u8) -> u8 {
        weighted
            .iter()
            .fold(self.coefficient(wanted, data), |left, (parity, weight)| {
                left ^ gf::multiply(weight, self.coefficient(parity, data))
            })
    }

    #[inline]
    fn combine(&self, wanted: u8, known: &Known, weighted: Weighted) -> Recipe {
        let mut recipe = Recipe::EMPTY;
        for data in known.chunks {
            let cell = known.holder[usize::from(data)];
            recipe.add(cell, self.remainder(wanted, &weighted, data));
        }
        for (parity, weight) in weighted.iter() {
            recipe.add(parity, weight);
        }
        recipe
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Geometry, Layout, Level, Rotation};
    use crate::units::Row;

    fn row(level: Level, slots: u16) -> RowMap {
        let geometry = Geometry {
            level,
            slots,
            chunk_sectors: 8,
            slot_sectors: 8 * 64,
            ..Geometry::PLAIN
        };
        Layout::new(geometry).unwrap().row(Row(0))
    }

    fn recipe(map: &RowMap, wanted: u8, lost: &[u8]) -> alloc::vec::Vec<(u8, u8)> {
        let available = lost.iter().fold(map.all(), |set, &cell| set.without(cell));
        map.recover(wanted, available).unwrap().iter().collect()
    }

    #[test]
    fn a_mirror_is_one_copy() {
        let map = row(Level::Raid1, 4);
        assert_eq!(recipe(&map, 0, &[0]), [(1, 1)]);
        assert_eq!(recipe(&map, 2, &[0, 2]), [(1, 1)]);
        assert_eq!(map.recover(2, CellSet::only(2)), None);
    }

    #[test]
    fn raid5_is_an_xor() {
        let map = row(Level::Raid5(Rotation::LeftSymmetric), 5);
        assert_eq!(recipe(&map, 2, &[2]), [(0, 1), (1, 1), (3, 1), (4, 1)]);
        assert_eq!(recipe(&map, 4, &[4]), [(0, 1), (1, 1), (2, 1), (3, 1)]);
        assert_eq!(map.recover(2, map.all().without(0)), None);
    }

    #[test]
    fn raid6_prefers_p_then_q_then_both() {
        let map = row(Level::Raid6(Rotation::LeftSymmetric), 6);
        let (p, q) = (map.p().unwrap(), map.q().unwrap());
        let parities = |lost: &[u8]| {
            let available = lost.iter().fold(map.all(), |set, &cell| set.without(cell));
            map.recover(0, available)
                .unwrap()
                .set()
                .intersection(map.parity_set())
        };
        assert_eq!(parities(&[0]), CellSet::only(p));
        assert_eq!(parities(&[0, p]), CellSet::only(q));
        assert_eq!(parities(&[0, 1]), map.parity_set());
        assert_eq!(parities(&[0, q]), CellSet::only(p));
    }

    #[test]
    fn q_from_data_has_the_powers_of_two() {
        let map = row(Level::Raid6(Rotation::LeftSymmetric), 6);
        assert_eq!(recipe(&map, 5, &[5]), [(0, 1), (1, 2), (2, 4), (3, 8)]);
        assert_eq!(map.data_of_exponent(3), Some(3));
        assert_eq!(map.data_of_exponent(4), None);
    }

    #[test]
    fn the_wanted_cell_is_never_its_own_source() {
        let map = row(Level::Raid5(Rotation::LeftSymmetric), 4);
        assert!(!map.recover(1, map.all()).unwrap().set().contains(1));
    }

    #[test]
    fn a_set_of_all_cells_may_be_full() {
        assert_eq!(CellSet::all(32).len(), 32);
        assert_eq!(CellSet::all(0), CellSet::EMPTY);
        assert!(CellSet::all(5).iter().eq(0..5));
    }
}
