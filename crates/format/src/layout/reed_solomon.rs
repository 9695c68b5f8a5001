//! Reed-Solomon, solved: `data` cells and as many parities as are to be borne losses, any `data` of which tell the others.
//!
//! Data cells come first, then parities. The coefficient of data cell *i* in parity *j* of *m* data cells is
//! 1 / ((*m* + *j*) xor *i*), a Cauchy matrix, as Intel's ISA-L has it (`gf_gen_cauchy1_matrix`): each of its square parts can
//! be inverted, which is what any set of losses asks for.
//!
//! Nobody here sees a byte. Encoding is [`ReedSolomon::coefficient`] over all data; a changed cell adds its difference, times that,
//! to each parity; decoding is a [`Recipe`]. What computes them is `restripe-code`'s `linear`.

use super::code::{CellSet, Recipe};
use super::gf;
use crate::units::CELLS_MAX;

/// The most parities.
pub const PARITIES_MAX: usize = 8;

/// A code by its numbers of cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ReedSolomon {
    data: u8,
    parities: u8,
}

/// The weights of the parities that a loss is solved by.
type Weights = [u8; PARITIES_MAX];
/// As many equations as there are unknown cells.
type Matrix = [Weights; PARITIES_MAX];

impl ReedSolomon {
    /// A code of so many data cells and parities: one or more of each, [`PARITIES_MAX`] parities and [`CELLS_MAX`] cells at most.
    pub fn new(data: u8, parities: u8) -> Option<ReedSolomon> {
        let cells = usize::from(data) + usize::from(parities);
        let fits = cells <= CELLS_MAX && usize::from(parities) <= PARITIES_MAX;
        (data > 0 && parities > 0 && fits).then_some(ReedSolomon { data, parities })
    }

    pub fn data(&self) -> u8 {
        self.data
    }

    pub fn parities(&self) -> u8 {
        self.parities
    }

    /// Cells in all.
    pub fn width(&self) -> u8 {
        self.data + self.parities
    }

    /// What a data cell is multiplied by in a parity; both by their numbers, from 0.
    pub fn coefficient(&self, parity: u8, data: u8) -> u8 {
        assert!(parity < self.parities && data < self.data, "cells of it");
        coefficient(self.data, parity, data)
    }

    /// How to make a cell from those that are there. None if they are fewer than the data cells, and the wanted one is none of them.
    pub fn recover(&self, wanted: u8, available: CellSet) -> Option<Recipe> {
        assert!(wanted < self.width(), "a cell of it");
        if available.contains(wanted) {
            return Some(Recipe::copy_of(wanted));
        }
        let unknown = CellSet::all(self.data).minus(available);
        let parities = self.parities_for(unknown.len(), available)?;
        let matrix = self.matrix(unknown, &parities);
        let mut target = Weights::default();
        for (place, cell) in target.iter_mut().zip(unknown.iter()) {
            *place = self.weight_in(wanted, cell);
        }
        let weights = solve(matrix, target, usize::from(unknown.len()));
        Some(self.combine(wanted, available, &parities, &weights, unknown.len()))
    }

    /// Whether every cell can be made from these.
    pub fn decodable(&self, available: CellSet) -> bool {
        available.len() >= self.data
    }

    /// The first so many parities that are there.
    fn parities_for(&self, count: u8, available: CellSet) -> Option<Weights> {
        let mut found = Weights::default();
        let there = (0..self.parities).filter(|parity| available.contains(self.data + parity));
        let taken = found.iter_mut().take(count.into()).zip(there);
        let taken = taken.map(|(place, parity)| *place = parity).count();
        (taken == usize::from(count)).then_some(found)
    }

    /// How often a data cell counts in any cell.
    fn weight_in(&self, cell: u8, data: u8) -> u8 {
        match cell.checked_sub(self.data) {
            Some(parity) => self.coefficient(parity, data),
            None => u8::from(cell == data),
        }
    }

    /// A line for each unknown cell: how often it counts in each of the parities.
    fn matrix(&self, unknown: CellSet, parities: &Weights) -> Matrix {
        let count = usize::from(unknown.len());
        let mut matrix = Matrix::default();
        for (line, cell) in matrix.iter_mut().zip(unknown.iter()) {
            for (place, parity) in line.iter_mut().zip(&parities[..count]) {
                *place = self.coefficient(*parity, cell);
            }
        }
        matrix
    }

    /// The parities by their weights, and of each known data cell what they leave to be added.
    fn combine(
        &self,
        wanted: u8,
        available: CellSet,
        parities: &Weights,
        weights: &Weights,
        count: u8,
    ) -> Recipe {
        let count = usize::from(count);
        let used = || weights[..count].iter().zip(parities);
        let mut recipe = Recipe::EMPTY;
        for data in (0..self.data).filter(|data| available.contains(*data)) {
            let brought = used()
                .map(|(weight, parity)| gf::multiply(*weight, self.coefficient(*parity, data)));
            let brought = brought.fold(0, |sum, part| sum ^ part);
            recipe.add(data, brought ^ self.weight_in(wanted, data));
        }
        for (weight, parity) in used() {
            recipe.add(self.data + parity, *weight);
        }
        recipe
    }
}

/// As [`ReedSolomon::coefficient`], of a code of so many data cells.
pub(super) fn coefficient(data_cells: u8, parity: u8, data: u8) -> u8 {
    inverse((data_cells + parity) ^ data)
}

/// The weights of so many columns with which each line adds up to its target: Gauss and Jordan's way. The lines are part of a
/// Cauchy matrix, so there is always one answer.
fn solve(mut matrix: Matrix, mut target: Weights, count: usize) -> Weights {
    for column in 0..count {
        let pivot = (column..count).find(|line| matrix[*line][column] != 0);
        let pivot = pivot.expect("every part of the matrix can be inverted");
        matrix.swap(column, pivot);
        target.swap(column, pivot);
        let scale = inverse(matrix[column][column]);
        scale_line(&mut matrix[column], scale);
        target[column] = gf::multiply(target[column], scale);
        let (line, own) = (matrix[column], target[column]);
        for other in (0..count).filter(|other| *other != column) {
            let times = matrix[other][column];
            for (place, part) in matrix[other].iter_mut().zip(line) {
                *place ^= gf::multiply(times, part);
            }
            target[other] ^= gf::multiply(times, own);
        }
    }
    target
}

fn inverse(element: u8) -> u8 {
    gf::divide(1, element).expect("no element of the matrix is zero")
}

fn scale_line(line: &mut Weights, scale: u8) {
    for place in line {
        *place = gf::multiply(*place, scale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cell as the sum of data cells that a recipe comes to: each data cell is a unit, so the recipe is right for all bytes.
    fn sum_of(code: &ReedSolomon, recipe: &Recipe) -> [u8; CELLS_MAX] {
        let mut sum = [0; CELLS_MAX];
        for (cell, coefficient) in recipe.iter() {
            for data in 0..code.data {
                let part = gf::multiply(coefficient, code.weight_in(cell, data));
                sum[usize::from(data)] ^= part;
            }
        }
        sum
    }

    /// Every set of losses, of codes up to 10 + 4: each cell is what it was, and one loss more is told to be too many.
    #[test]
    fn every_set_of_losses_is_recovered() {
        for data in 1..=10 {
            for parities in 1..=4 {
                let code = ReedSolomon::new(data, parities).expect("it fits");
                for lost in 0..1_u32 << code.width() {
                    let available = CellSet::all(code.width()).minus(CellSet(lost));
                    check(&code, available);
                }
            }
        }
    }

    fn check(code: &ReedSolomon, available: CellSet) {
        let all = CellSet::all(code.width());
        assert_eq!(
            code.decodable(available),
            all.minus(available).len() <= code.parities
        );
        for wanted in all.iter() {
            let Some(recipe) = code.recover(wanted, available) else {
                assert!(!code.decodable(available) && !available.contains(wanted));
                continue;
            };
            assert!(recipe.set().within(available));
            assert!(recipe.count <= code.data.max(1));
            let mut whole = [0; CELLS_MAX];
            for data in 0..code.data {
                whole[usize::from(data)] = code.weight_in(wanted, data);
            }
            assert_eq!(
                sum_of(code, &recipe),
                whole,
                "{code:?} {available:?} {wanted}"
            );
        }
    }

    #[test]
    fn the_largest_codes_bear_their_losses() {
        let code = ReedSolomon::new(24, 8).expect("it fits");
        for first in 0..=24 {
            let lost = CellSet(0xff << first);
            check(&code, CellSet::all(32).minus(lost));
        }
    }

    #[test]
    fn what_is_no_code_is_none() {
        for (data, parities) in [(0, 1), (1, 0), (25, 8), (31, 2), (10, 9), (255, 255)] {
            assert_eq!(ReedSolomon::new(data, parities), None);
        }
    }
}
