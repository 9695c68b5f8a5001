//! Our parity against an independent implementation that is itself held byte-identical to Intel's ISA-L.

use restripe_code::{Kernels, gf};
use rusty_erasure::{isal, raid};

const LENGTH: usize = 4096 + 40;

fn data(count: usize) -> Vec<Vec<u8>> {
    let byte = |cell: usize, at: usize| (((cell + 3) * (at + 7) * 0x9e37_79b1) >> 11) as u8;
    (0..count)
        .map(|cell| (0..LENGTH).map(|at| byte(cell, at)).collect())
        .collect()
}

fn views(cells: &[Vec<u8>]) -> Vec<&[u8]> {
    cells.iter().map(Vec::as_slice).collect()
}

#[test]
fn xor_and_p_and_q_are_the_same() {
    for count in 2..=20 {
        let data = data(count);
        let [mut p, mut q, mut parity] = [0; 3].map(|byte| vec![byte; LENGTH]);
        raid::pq_gen(&views(&data), &mut p, &mut q).unwrap();
        raid::xor_gen(&views(&data), &mut parity).unwrap();
        assert!(p == parity);
        let powers: Vec<u8> = (0..count as u32).map(gf::pow2).collect();
        for kernels in Kernels::available() {
            let [mut own_p, mut own_q] = [vec![1; LENGTH], vec![2; LENGTH]];
            let rows: [&[u8]; 2] = [&vec![1; count], &powers];
            kernels.linear(&views(&data), &rows, &mut [&mut own_p, &mut own_q]);
            assert!(own_p == p && own_q == q, "{} count {count}", kernels.name());
        }
    }
}

#[test]
fn general_combinations_are_the_same() {
    for (count, targets) in [(1, 1), (4, 2), (10, 4), (20, 3), (40, 6)] {
        let data = data(count);
        let row = |target: usize| {
            (0..count)
                .map(|index| (index * 37 + target * 101 + 2) as u8)
                .collect()
        };
        let rows: Vec<Vec<u8>> = (0..targets).map(row).collect();
        let mut tables = vec![0; 32 * count * targets];
        isal::ec_init_tables(count, targets, &rows.concat(), &mut tables).unwrap();
        let mut expected = vec![vec![0; LENGTH]; targets];
        let mut outputs: Vec<&mut [u8]> = expected.iter_mut().map(Vec::as_mut_slice).collect();
        isal::ec_encode_data(LENGTH, count, targets, &tables, &views(&data), &mut outputs).unwrap();
        for kernels in Kernels::available() {
            let mut own = vec![vec![9; LENGTH]; targets];
            let mut outputs: Vec<&mut [u8]> = own.iter_mut().map(Vec::as_mut_slice).collect();
            kernels.linear(&views(&data), &views(&rows), &mut outputs);
            assert!(
                own == expected,
                "{} {count} sources, {targets} targets",
                kernels.name()
            );
        }
    }
}
