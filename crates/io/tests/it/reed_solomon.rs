//! The engine's Reed-Solomon codes over bytes: its coefficients and recipes, by these kernels, beside an independent
//! implementation that is itself held byte-identical to Intel's ISA-L.

use restripe_array::layout::CellSet;
use restripe_array::layout::reed_solomon::ReedSolomon;
use restripe_code::{Kernels, linear};
use rusty_erasure::isal;

const LENGTH: usize = 1024 + 24;

fn data(count: usize) -> Vec<Vec<u8>> {
    let byte = |cell: usize, at: usize| (((cell + 5) * (at + 11) * 0x9e37_79b1) >> 13) as u8;
    (0..count)
        .map(|cell| (0..LENGTH).map(|at| byte(cell, at)).collect())
        .collect()
}

fn views(cells: &[Vec<u8>]) -> Vec<&[u8]> {
    cells.iter().map(Vec::as_slice).collect()
}

fn rows(code: &ReedSolomon) -> Vec<Vec<u8>> {
    let row = |parity| {
        let cells = 0..code.data();
        cells.map(|cell| code.coefficient(parity, cell)).collect()
    };
    (0..code.parities()).map(row).collect()
}

/// All cells of a code: data, then parities.
fn encoded(code: &ReedSolomon, kernels: Kernels) -> Vec<Vec<u8>> {
    let data = data(code.data().into());
    let mut parities = vec![vec![7; LENGTH]; code.parities().into()];
    let mut targets: Vec<&mut [u8]> = parities.iter_mut().map(Vec::as_mut_slice).collect();
    kernels.linear(&views(&data), &views(&rows(code)), &mut targets);
    [data, parities].concat()
}

/// The shapes of codes up to 10 + 4.
fn codes() -> impl Iterator<Item = ReedSolomon> {
    let shapes = (1..=10).flat_map(|data| (1..=4).map(move |parities| (data, parities)));
    shapes.map(|(data, parities)| ReedSolomon::new(data, parities).expect("it fits"))
}

#[test]
fn parities_are_those_of_isa_l() {
    for code in codes() {
        let (data, parities) = (usize::from(code.data()), usize::from(code.parities()));
        let width = data + parities;
        let mut matrix = vec![0; width * data];
        isal::gf_gen_cauchy1_matrix(&mut matrix, width, data).unwrap();
        assert_eq!(rows(&code).concat(), matrix[data * data..]);
        let mut tables = vec![0; 32 * data * parities];
        isal::ec_init_tables(data, parities, &matrix[data * data..], &mut tables).unwrap();
        for kernels in Kernels::available() {
            let cells = encoded(&code, kernels);
            let mut expected = vec![vec![0; LENGTH]; parities];
            let mut outputs: Vec<&mut [u8]> = expected.iter_mut().map(Vec::as_mut_slice).collect();
            let sources = views(&cells[..data]);
            isal::ec_encode_data(LENGTH, data, parities, &tables, &sources, &mut outputs).unwrap();
            assert!(cells[data..] == expected, "{code:?} {}", kernels.name());
        }
    }
}

/// Every set of as many losses as are borne, and of fewer.
#[test]
fn every_set_of_losses_is_decoded() {
    for code in codes() {
        let cells = encoded(&code, Kernels::detect());
        for lost in 1..1_u32 << code.width() {
            let lost = CellSet(lost);
            if lost.len() <= code.parities() {
                decode(&code, &cells, lost);
            }
        }
    }
}

fn decode(code: &ReedSolomon, cells: &[Vec<u8>], lost: CellSet) {
    let available = CellSet::all(code.width()).minus(lost);
    for wanted in lost.iter() {
        let recipe = code
            .recover(wanted, available)
            .expect("few enough are lost");
        let sources: Vec<&[u8]> = recipe
            .iter()
            .map(|(cell, _)| &cells[usize::from(cell)][..64])
            .collect();
        let coefficients: Vec<u8> = recipe.iter().map(|(_, coefficient)| coefficient).collect();
        let mut target = [9; 64];
        linear(&sources, &[&coefficients], &mut [&mut target]);
        assert!(
            target == cells[usize::from(wanted)][..64],
            "{code:?} {lost:?} {wanted}"
        );
    }
}

/// A cell that changes adds its difference to each parity, times its coefficient there.
#[test]
fn a_difference_brings_parities_up_to_date() {
    for code in codes() {
        let mut cells = encoded(&code, Kernels::detect());
        let data = usize::from(code.data());
        for changed in 0..data {
            let difference: Vec<u8> = (0..LENGTH).map(|at| (at * 31 + changed) as u8).collect();
            let old = cells.clone();
            linear(
                &[&old[changed], &difference],
                &[&[1, 1]],
                &mut [&mut cells[changed]],
            );
            for parity in 0..code.parities() {
                let place = data + usize::from(parity);
                let coefficient = code.coefficient(parity, changed as u8);
                linear(
                    &[&old[place], &difference],
                    &[&[1, coefficient]],
                    &mut [&mut cells[place]],
                );
            }
        }
        let mut anew = vec![vec![0; LENGTH]; code.parities().into()];
        let mut targets: Vec<&mut [u8]> = anew.iter_mut().map(Vec::as_mut_slice).collect();
        linear(&views(&cells[..data]), &views(&rows(&code)), &mut targets);
        assert!(cells[data..] == anew, "{code:?}");
    }
}
