//! Checks of cells against one another: equality, zeros, and which cell of a P+Q row is the wrong one.

use crate::gf;

/// Whether both have the same bytes.
pub fn compare(a: &[u8], b: &[u8]) -> bool {
    a == b
}

/// Whether every byte is zero. True of no bytes.
pub fn is_zero(bytes: &[u8]) -> bool {
    // Words are gathered with `or` over a block, so that the compiler sees no branch inside it, and the blocks are
    // small enough that data which is not zero is found out at once.
    const BLOCK: usize = 256;
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    let gather = |bytes: &[u8]| bytes.iter().fold(0, |all, &byte| all | byte);
    blocks.iter().all(|block| gather(block) == 0) && gather(rest) == 0
}

/// What a pair of syndromes (what was read xor what was computed) says of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Located {
    /// Both are zero: the cells agree.
    Clean,
    /// The data cell whose coefficient in Q is 2^exponent. The exponent is below 255 and may be that of no cell: then
    /// more than one is wrong, which only the caller, who knows how many cells there are, can tell.
    Data {
        exponent: u8,
    },
    P,
    Q,
    /// No single cell explains both.
    Ambiguous,
}

/// The single cell whose being wrong explains both syndromes of a slice.
///
/// An error `e` in data cell `k` adds `e` to P's syndrome and `2^k e` to Q's, so every byte position that is wrong has
/// both non-zero and tells the same `k`; an error in P or Q alone leaves the other zero everywhere.
///
/// # Panics
/// If the two differ in length.
pub fn locate(p_syndrome: &[u8], q_syndrome: &[u8]) -> Located {
    assert_eq!(p_syndrome.len(), q_syndrome.len(), "syndromes of one slice");
    match (is_zero(p_syndrome), is_zero(q_syndrome)) {
        (true, true) => Located::Clean,
        (false, true) => Located::P,
        (true, false) => Located::Q,
        (false, false) => locate_data(p_syndrome, q_syndrome),
    }
}

fn locate_data(p_syndrome: &[u8], q_syndrome: &[u8]) -> Located {
    let pairs = || p_syndrome.iter().copied().zip(q_syndrome.iter().copied());
    let first = pairs().find(|&pair| pair != (0, 0));
    let Some(exponent) = first.and_then(|(p, q)| exponent(p, q)) else {
        return Located::Ambiguous;
    };
    let coefficient = gf::pow2(exponent.into());
    if pairs().all(|(p, q)| gf::mul(coefficient, p) == q) {
        Located::Data { exponent }
    } else {
        Located::Ambiguous
    }
}

/// The exponent with `2^exponent * p = q`; none if either is zero.
fn exponent(p: u8, q: u8) -> Option<u8> {
    gf::log(gf::mul(q, gf::inv(p)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;

    #[test]
    fn zeros_are_told_at_every_position() {
        for length in [0, 1, 8, 255, 256, 257, 1024, 1031] {
            let mut bytes = vec![0; length];
            assert!(is_zero(&bytes));
            for at in 0..length {
                bytes[at] = 0x80;
                assert!(!is_zero(&bytes), "byte {at} of {length}");
                bytes[at] = 0;
            }
        }
    }

    #[test]
    fn comparison_sees_every_byte_and_the_length() {
        let a: Vec<u8> = (0..100).collect();
        assert!(compare(&a, &a.clone()) && compare(&[], &[]) && !compare(&a, &a[..99]));
        for at in 0..a.len() {
            let mut b = a.clone();
            b[at] ^= 1;
            assert!(!compare(&a, &b));
        }
    }

    /// Every cell that can be wrong, every error byte, at both ends and in the middle of a slice.
    #[test]
    fn a_single_wrong_cell_is_named() {
        for exponent in 0..=254_u8 {
            for error in 1..=255_u8 {
                for at in [0, 3, 7] {
                    let [mut p, mut q] = [[0; 8]; 2];
                    p[at] = error;
                    q[at] = gf::mul(gf::pow2(exponent.into()), error);
                    assert_eq!(locate(&p, &q), Located::Data { exponent });
                    assert_eq!(
                        (locate(&p, &[0; 8]), locate(&[0; 8], &q)),
                        (Located::P, Located::Q)
                    );
                }
            }
        }
        assert_eq!(
            (locate(&[0; 8], &[0; 8]), locate(&[], &[])),
            (Located::Clean, Located::Clean)
        );
    }

    #[test]
    fn many_wrong_bytes_of_one_cell_agree() {
        for exponent in [0, 1, 13, 254_u8] {
            let p: Vec<u8> = (0..4096_u32)
                .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
                .collect();
            let q: Vec<u8> = p
                .iter()
                .map(|&e| reference::mul(gf::pow2(exponent.into()), e))
                .collect();
            assert_eq!(locate(&p, &q), Located::Data { exponent });
            for (p_flip, q_flip) in [(0, 1), (1, 0)] {
                let [mut p, mut q] = [p.clone(), q.clone()];
                p[4095] ^= p_flip;
                q[4095] ^= q_flip;
                assert_eq!(locate(&p, &q), Located::Ambiguous);
            }
        }
    }

    /// Two positions, each with any of these syndromes: exhaustive against the reference.
    #[test]
    fn location_equals_the_reference() {
        let values = [0, 1, 2, 4, 0x1d, 0x80, 0xff];
        let pairs: Vec<(u8, u8)> = values
            .iter()
            .flat_map(|&p| values.map(|q| (p, q)))
            .collect();
        for (p0, q0) in &pairs {
            for (p1, q1) in &pairs {
                let (p, q) = ([*p0, *p1], [*q0, *q1]);
                assert_eq!(locate(&p, &q), reference::locate(&p, &q), "{p:?} {q:?}");
            }
        }
    }
}
