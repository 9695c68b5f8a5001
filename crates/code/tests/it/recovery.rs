//! Every loss set that single and double parity survive, for 2 to 16 data cells, recovered through `linear` with solved
//! coefficients and compared byte by byte; and what `locate` makes of every single wrong cell.

use restripe_code::{Kernels, Located, gf, locate};

/// A length that takes whole registers of each level, an overlapping end and odd bytes.
const LENGTH: usize = 203;

fn cells(data: usize) -> Vec<Vec<u8>> {
    let byte = |cell: usize, at: usize| (((cell + 1) * 0x9e37_79b1 * (at + 3)) >> 13) as u8;
    (0..data)
        .map(|cell| (0..LENGTH).map(|at| byte(cell, at)).collect())
        .collect()
}

/// The rows of the code: data cells as they are, then P, then Q if there are two.
fn generator(data: usize, parities: usize) -> Vec<Vec<u8>> {
    let unit = |cell| (0..data).map(|column| u8::from(column == cell)).collect();
    let mut rows: Vec<Vec<u8>> = (0..data).map(unit).collect();
    rows.push(vec![1; data]);
    if parities == 2 {
        rows.push((0..data as u32).map(gf::pow2).collect());
    }
    rows
}

fn combine(kernels: Kernels, sources: &[&[u8]], rows: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut targets = vec![vec![0x33; LENGTH]; rows.len()];
    let mut views: Vec<&mut [u8]> = targets.iter_mut().map(Vec::as_mut_slice).collect();
    kernels.linear(sources, rows, &mut views);
    targets
}

/// The inverse by Gauss and Jordan; the matrix is small and regular.
fn inverse(mut matrix: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let size = matrix.len();
    for (index, row) in matrix.iter_mut().enumerate() {
        row.extend((0..size).map(|column| u8::from(column == index)));
    }
    for column in 0..size {
        let pivot = (column..size)
            .find(|&row| matrix[row][column] != 0)
            .expect("the loss set is within tolerance");
        matrix.swap(column, pivot);
        let factor = gf::inv(matrix[column][column]).unwrap();
        matrix[column]
            .iter_mut()
            .for_each(|entry| *entry = gf::mul(*entry, factor));
        let pivot = matrix[column].clone();
        for (index, row) in matrix.iter_mut().enumerate() {
            let factor = row[column];
            if index != column {
                row.iter_mut()
                    .zip(&pivot)
                    .for_each(|(entry, &lead)| *entry ^= gf::mul(factor, lead));
            }
        }
    }
    matrix.into_iter().map(|row| row[size..].to_vec()).collect()
}

/// The coefficients of each lost cell over the first `data` that are left.
fn solve(generator: &[Vec<u8>], left: &[usize], lost: &[usize]) -> Vec<Vec<u8>> {
    let inverse = inverse(left.iter().map(|&cell| generator[cell].clone()).collect());
    let coefficient = |cell: usize, column: usize| {
        let products = inverse
            .iter()
            .zip(&generator[cell])
            .map(|(row, &factor)| gf::mul(factor, row[column]));
        products.fold(0, |sum, product| sum ^ product)
    };
    lost.iter()
        .map(|&cell| {
            (0..left.len())
                .map(|column| coefficient(cell, column))
                .collect()
        })
        .collect()
}

fn views(rows: &[Vec<u8>]) -> Vec<&[u8]> {
    rows.iter().map(Vec::as_slice).collect()
}

fn check_loss(
    kernels: Kernels,
    generator: &[Vec<u8>],
    row: &[Vec<u8>],
    data: usize,
    lost: &[usize],
) {
    let left: Vec<usize> = (0..row.len())
        .filter(|cell| !lost.contains(cell))
        .take(data)
        .collect();
    let coefficients = solve(generator, &left, lost);
    let sources: Vec<&[u8]> = left.iter().map(|&cell| row[cell].as_slice()).collect();
    let recovered = combine(kernels, &sources, &views(&coefficients));
    for (&cell, bytes) in lost.iter().zip(&recovered) {
        assert!(
            *bytes == row[cell],
            "{} data {data} lost {lost:?} cell {cell}",
            kernels.name()
        );
    }
}

fn check_all_losses(parities: usize) {
    for data in 2..=16 {
        let generator = generator(data, parities);
        for kernels in Kernels::available() {
            let row = combine(kernels, &views(&cells(data)), &views(&generator));
            for first in 0..row.len() {
                check_loss(kernels, &generator, &row, data, &[first]);
                for second in first + 1..if parities == 2 { row.len() } else { 0 } {
                    check_loss(kernels, &generator, &row, data, &[first, second]);
                }
            }
        }
    }
}

#[test]
fn single_parity_recovers_every_loss() {
    check_all_losses(1);
}

#[test]
fn double_parity_recovers_every_loss() {
    check_all_losses(2);
}

/// A write of one cell by its difference leaves the same parity as making it anew.
#[test]
fn parity_follows_a_difference() {
    for data in 2..=16 {
        let generator = generator(data, 2);
        for kernels in Kernels::available() {
            let mut content = cells(data);
            let row = combine(kernels, &views(&content), &views(&generator));
            for cell in 0..data {
                let old = content[cell].clone();
                let new: Vec<u8> = old.iter().map(|byte| byte.wrapping_mul(5) ^ 0x5a).collect();
                let coefficient = gf::pow2(cell as u32);
                let sources: [&[u8]; 4] = [&row[data], &row[data + 1], &old, &new];
                let rows: [&[u8]; 2] = [&[1, 0, 1, 1], &[0, 1, coefficient, coefficient]];
                let updated = combine(kernels, &sources, &rows);
                content[cell] = new;
                let anew = combine(kernels, &views(&content), &views(&generator));
                assert!(
                    updated[..] == anew[data..],
                    "{} data {data} cell {cell}",
                    kernels.name()
                );
                content[cell] = old;
            }
        }
    }
}

/// Each cell of each row wrong in one byte, in some or in all: the syndromes name it.
#[test]
fn every_wrong_cell_is_located() {
    for data in 2..=16 {
        let generator = generator(data, 2);
        let row = combine(Kernels::detect(), &views(&cells(data)), &views(&generator));
        for wrong in 0..row.len() {
            for stride in [1, 7, LENGTH] {
                let mut read = row.clone();
                read[wrong]
                    .iter_mut()
                    .step_by(stride)
                    .for_each(|byte| *byte ^= 0x41);
                let expected = match wrong {
                    cell if cell < data => Located::Data {
                        exponent: cell as u8,
                    },
                    cell if cell == data => Located::P,
                    _ => Located::Q,
                };
                assert_eq!(
                    located(&read, &generator, data),
                    expected,
                    "data {data} stride {stride}"
                );
            }
        }
        assert_eq!(located(&row, &generator, data), Located::Clean);
    }
}

/// Two wrong cells at different bytes are never blamed on one.
#[test]
fn two_wrong_cells_are_ambiguous() {
    let data = 8;
    let generator = generator(data, 2);
    let row = combine(Kernels::detect(), &views(&cells(data)), &views(&generator));
    for first in 0..row.len() {
        for second in (0..row.len()).filter(|&second| second != first) {
            let mut read = row.clone();
            read[first][3] ^= 0x10;
            read[second][200] ^= 0x01;
            assert_eq!(
                located(&read, &generator, data),
                Located::Ambiguous,
                "{first} {second}"
            );
        }
    }
}

fn located(read: &[Vec<u8>], generator: &[Vec<u8>], data: usize) -> Located {
    let syndromes: Vec<Vec<u8>> = [data, data + 1]
        .into_iter()
        .map(|parity| {
            let mut row = vec![0; read.len()];
            row[..data].copy_from_slice(&generator[parity]);
            row[parity] = 1;
            combine(Kernels::detect(), &views(read), &[&row]).remove(0)
        })
        .collect();
    locate(&syndromes[0], &syndromes[1])
}
