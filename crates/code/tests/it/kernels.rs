//! Every kernel of this CPU against the plain reference, over lengths, alignments, counts and shapes of coefficients.

use restripe_code::{Kernels, Store, gf, linear, reference};

/// Bytes without pattern, the same for the same seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Kernels with each way of storing.
fn choices() -> Vec<Kernels> {
    let stores = [Store::Auto, Store::Cached, Store::Streamed];
    Kernels::available()
        .flat_map(|kernels| stores.map(|store| kernels.with_store(store)))
        .collect()
}

/// A buffer whose wanted part starts `offset` bytes after an address aligned to 64.
struct Placed {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Placed {
    fn new(content: &[u8], offset: usize) -> Placed {
        let mut bytes = vec![0xee; content.len() + 192];
        let start = bytes.as_ptr().align_offset(64) + offset;
        bytes[start..start + content.len()].copy_from_slice(content);
        Placed {
            bytes,
            start,
            length: content.len(),
        }
    }

    fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }

    /// Nothing outside the wanted part was written.
    fn assert_surroundings(&self) {
        let end = self.start + self.length;
        assert!(
            self.bytes[..self.start]
                .iter()
                .chain(&self.bytes[end..])
                .all(|&byte| byte == 0xee)
        );
    }
}

/// One combination at one length and alignment, by all kernels, against the reference.
fn check(rows: &[Vec<u8>], length: usize, offset: usize) {
    let count = rows.first().map_or(0, Vec::len);
    let sources: Vec<Placed> = (0..count)
        .map(|i| Placed::new(&noise(i as u64 + 1, length), (offset * (i + 1)) % 64))
        .collect();
    let sources: Vec<&[u8]> = sources.iter().map(Placed::get).collect();
    let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
    let mut expected = vec![vec![0x55; length]; rows.len()];
    let mut targets: Vec<&mut [u8]> = expected.iter_mut().map(Vec::as_mut_slice).collect();
    reference::linear(&sources, &rows, &mut targets);
    for kernels in choices() {
        let mut placed: Vec<Placed> = rows
            .iter()
            .map(|_| Placed::new(&vec![0xaa; length], offset))
            .collect();
        let mut targets: Vec<&mut [u8]> = placed.iter_mut().map(Placed::get_mut).collect();
        kernels.linear(&sources, &rows, &mut targets);
        for (target, expected) in placed.iter().zip(&expected) {
            assert!(
                target.get() == expected,
                "{kernels:?} {rows:?} length {length} offset {offset}"
            );
            target.assert_surroundings();
        }
    }
}

const LENGTHS: [usize; 26] = [
    0, 1, 2, 7, 8, 9, 15, 16, 24, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 255, 256, 320, 511,
    777, 1000, 4096,
];

fn check_lengths(rows: &[Vec<u8>]) {
    for length in LENGTHS {
        for offset in [0, 1, 8, 63] {
            check(rows, length, offset);
        }
    }
}

fn q_row(exponents: impl IntoIterator<Item = u32>) -> Vec<u8> {
    exponents.into_iter().map(gf::pow2).collect()
}

#[test]
fn copies_and_zeros() {
    check_lengths(&[vec![]]);
    check_lengths(&[vec![], vec![]]);
    check_lengths(&[vec![0, 0]]);
    check_lengths(&[vec![1]]);
    check_lengths(&[vec![0, 1, 0]]);
    check_lengths(&[vec![1], vec![1], vec![0]]);
}

#[test]
fn xor_of_any_count() {
    for count in (2..=10).chain([17, 40]) {
        check_lengths(&[vec![1; count]]);
    }
    check_lengths(&[vec![1, 0, 1, 1, 0]]);
}

#[test]
fn p_and_q_of_any_count() {
    for count in (1..=10).chain([17]) {
        check_lengths(&[vec![1; count], q_row(0..count as u32)]);
    }
    for count in [40, 255] {
        for length in [0, 8, 100, 512] {
            check(&[vec![1; count], q_row(0..count as u32)], length, 0);
        }
    }
}

#[test]
fn p_and_q_in_any_order_and_nearly() {
    check_lengths(&[vec![1; 5], q_row([4, 3, 2, 1, 0])]);
    check_lengths(&[vec![1; 5], q_row([2, 0, 4, 1, 3])]);
    check_lengths(&[vec![1, 0, 1, 1], vec![2, 0, 1, 4]]);
    // Not P and Q after all: a gap, one twice, a start above 0, Q before P, a source in one of them only.
    check_lengths(&[vec![1; 4], q_row([0, 1, 2, 4])]);
    check_lengths(&[vec![1; 4], q_row([0, 1, 1, 2])]);
    check_lengths(&[vec![1; 3], q_row([1, 2, 3])]);
    check_lengths(&[q_row([0, 1, 2]), vec![1; 3]]);
    check_lengths(&[vec![1, 0, 1], vec![0, 1, 0x53]]);
    check_lengths(&[vec![1, 2, 1], vec![1, 2, 4]]);
}

#[test]
fn general_coefficients() {
    for targets in 1..=6 {
        for sources in [1, 2, 3, 9, 33] {
            let row = |target: u64| noise(1000 + target, sources);
            let rows: Vec<Vec<u8>> = (0..targets).map(row).collect();
            for length in [0, 1, 8, 31, 64, 200, 333, 1024] {
                for offset in [0, 5] {
                    check(&rows, length, offset);
                }
            }
        }
    }
}

#[test]
fn general_rows_among_plain_ones() {
    let rows = [
        vec![1, 1, 1],
        vec![3, 0, 0],
        vec![0, 7, 9],
        vec![0, 0, 0],
        vec![1, 0, 0],
        vec![5, 1, 255],
    ];
    check_lengths(&rows);
}

#[test]
fn every_coefficient_times_every_byte() {
    let bytes: Vec<u8> = (0..=255).collect();
    for coefficient in 0..=255_u8 {
        let expected: Vec<u8> = bytes
            .iter()
            .map(|&byte| reference::mul(coefficient, byte))
            .collect();
        for kernels in choices() {
            let mut target = [0; 256];
            kernels.linear(&[&bytes], &[&[coefficient]], &mut [&mut target]);
            assert_eq!(target[..], expected[..], "{kernels:?} {coefficient}");
        }
    }
}

/// Long enough that targets are streamed by choice of the kernels themselves.
#[test]
fn large_buffers() {
    let length = (1 << 20) + 72;
    for rows in [
        vec![vec![1; 3]],
        vec![vec![1; 3], q_row(0..3)],
        vec![vec![1, 7], vec![9, 2]],
    ] {
        check(&rows, length, 0);
    }
}

/// The stated order: Q is the sum of 2^k times data cell k, made by hand from a row of three cells.
#[test]
fn p_and_q_have_the_bytes_of_md() {
    let data: [&[u8]; 3] = [
        &[0x01, 0x80, 0x53],
        &[0x02, 0x80, 0xca],
        &[0x80, 0x80, 0xff],
    ];
    // Q[0] = 01 + 2*02 + 4*80 = 01 ^ 04 ^ 3a; Q[1] = 80 + 1d + 3a; Q[2] = 53 + 2*ca + 4*ff = 53 ^ 89 ^ db.
    let expected: [[u8; 3]; 2] = [[0x83, 0x80, 0x66], [0x3f, 0xa7, 0x01]];
    for kernels in choices() {
        let [mut p, mut q] = [[0; 3]; 2];
        kernels.linear(&data, &[&[1, 1, 1], &[1, 2, 4]], &mut [&mut p, &mut q]);
        assert_eq!([p, q], expected);
        kernels.pq(&data, &mut p, &mut q);
        assert_eq!([p, q], expected);
    }
}

#[test]
fn named_kernels_serve_without_sources() {
    for kernels in choices() {
        let [mut p, mut q] = [[7; 9]; 2];
        kernels.xor(&[], &mut p);
        assert_eq!(p, [0; 9]);
        kernels.pq(&[], &mut p, &mut q);
        assert_eq!([p, q], [[0; 9]; 2]);
    }
}

#[test]
fn the_choice_is_named() {
    assert_eq!(Kernels::portable().name(), "portable");
    assert_eq!(Kernels::available().last(), Some(Kernels::detect()));
    assert_eq!(Kernels::available().next(), Some(Kernels::portable()));
}

#[test]
#[should_panic(expected = "one length")]
fn lengths_must_agree() {
    linear(&[&[1, 2]], &[&[1]], &mut [&mut [0; 3]]);
}

#[test]
#[should_panic(expected = "a coefficient for each source")]
fn coefficients_must_fit_the_sources() {
    linear(&[&[1, 2]], &[&[1, 1]], &mut [&mut [0; 2]]);
}
