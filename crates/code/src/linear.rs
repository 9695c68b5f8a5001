//! Linear combinations of buffers, and which kernel serves one best.
//!
//! The coefficients say what a combination is: a zero, a copy, a xor, a P+Q pair or something general. They come in any
//! order of sources and with zeros among them, as the machine that asks finds convenient.

use crate::gf;
use crate::kernels::{DOT_TARGETS, Kernels, Term};

/// Sources up to which a call needs no memory of its own.
const FEW: usize = 32;

/// `targets[j] = sum over i of coefficients[j][i] * sources[i]` over GF(2^8), with the fastest kernels of this CPU. The
/// targets' old bytes do not matter; without sources they become zeros. Allocates nothing for up to 32 sources.
///
/// # Panics
/// If the lengths of sources and targets differ, or the coefficients are not one row a target and one a source.
pub fn linear(sources: &[&[u8]], coefficients: &[&[u8]], targets: &mut [&mut [u8]]) {
    Kernels::detect().linear(sources, coefficients, targets);
}

impl Kernels {
    /// See [`linear`], with these kernels.
    ///
    /// # Panics
    /// As [`linear`].
    pub fn linear(self, sources: &[&[u8]], coefficients: &[&[u8]], targets: &mut [&mut [u8]]) {
        assert_shape(sources, coefficients, targets);
        if let ([p_row, q_row], [p, q]) = (coefficients, &mut *targets)
            && self.linear_pq(sources, p_row, q_row, p, q)
        {
            return;
        }
        let mut rest = targets;
        let mut rows = coefficients;
        while !rows.is_empty() {
            let served = self.linear_some(sources, rows, rest);
            rows = &rows[served..];
            rest = &mut rest[served..];
        }
    }

    /// Serves the first target, or the first few that general coefficients allow in one pass. Answers how many.
    fn linear_some(self, sources: &[&[u8]], rows: &[&[u8]], targets: &mut [&mut [u8]]) -> usize {
        let general = rows
            .iter()
            .take(DOT_TARGETS)
            .take_while(|row| is_general(row))
            .count();
        if general == 0 {
            self.linear_xor(sources, rows[0], targets[0]);
            return 1;
        }
        self.linear_dot(sources, &rows[..general], &mut targets[..general]);
        general
    }

    /// Serves a target whose coefficients are 0 and 1.
    fn linear_xor(self, sources: &[&[u8]], row: &[u8], target: &mut [u8]) {
        if row.len() > 1 && row.iter().all(|&coefficient| coefficient == 1) {
            return self.xor(sources, target);
        }
        let chosen = || {
            row.iter()
                .zip(sources)
                .filter(|(coefficient, _)| **coefficient != 0)
        };
        with_room(chosen().count(), &[][..], |room| {
            for (place, (_, source)) in room.iter_mut().zip(chosen()) {
                *place = source;
            }
            match room {
                [source] => target.copy_from_slice(source),
                sources => self.xor(sources, target),
            }
        });
    }

    /// Serves one to [`DOT_TARGETS`] targets of any coefficients.
    fn linear_dot(self, sources: &[&[u8]], rows: &[&[u8]], targets: &mut [&mut [u8]]) {
        let used = |index: &usize| rows.iter().any(|row| row[*index] != 0);
        let chosen = || (0..sources.len()).filter(used);
        let empty = Term {
            source: &[],
            coefficients: [0; DOT_TARGETS],
        };
        with_room(chosen().count(), empty, |terms| {
            for (term, index) in terms.iter_mut().zip(chosen()) {
                term.source = sources[index];
                for (coefficient, row) in term.coefficients.iter_mut().zip(rows) {
                    *coefficient = row[index];
                }
            }
            self.dot(terms, targets);
        });
    }

    /// Serves the two targets if they are P and Q: all coefficients 1 in the first, and the powers of 2 from 0 up
    /// without a gap, in any order, in the second. Sources that are in neither do not count. Answers whether it did.
    fn linear_pq(
        self,
        sources: &[&[u8]],
        p_row: &[u8],
        q_row: &[u8],
        p: &mut [u8],
        q: &mut [u8],
    ) -> bool {
        if is_ordered_pq(p_row, q_row) {
            self.pq(sources, p, q);
            return true;
        }
        let chosen = || (0..sources.len()).filter(|&index| (p_row[index], q_row[index]) != (0, 0));
        let count = chosen().count();
        if !chosen()
            .all(|index| p_row[index] == 1 && exponent(q_row[index]).is_some_and(|e| e < count))
        {
            return false;
        }
        with_room(count, None, |places| {
            for index in chosen() {
                let place = exponent(q_row[index]).expect("the coefficients were looked through");
                places[place] = Some(sources[index]);
            }
            if places.contains(&None) {
                return false;
            }
            with_room(count, &[][..], |ordered| {
                for (to, from) in ordered.iter_mut().zip(places.iter().flatten()) {
                    *to = from;
                }
                self.pq(ordered, p, q);
            });
            true
        })
    }
}

fn is_general(row: &[u8]) -> bool {
    row.iter().any(|&coefficient| coefficient > 1)
}

/// Whether source `i` counts once in P and 2^i times in Q: what a whole row in order asks for.
fn is_ordered_pq(p_row: &[u8], q_row: &[u8]) -> bool {
    let mut pairs = p_row.iter().zip(q_row).zip(0..gf::ORDER);
    p_row.len() <= gf::ORDER as usize
        && pairs.all(|((&p, &q), exponent)| p == 1 && q == gf::pow2(exponent))
}

fn exponent(coefficient: u8) -> Option<usize> {
    gf::log(coefficient).map(usize::from)
}

fn assert_shape(sources: &[&[u8]], coefficients: &[&[u8]], targets: &[&mut [u8]]) {
    assert_eq!(
        coefficients.len(),
        targets.len(),
        "a row of coefficients for each target"
    );
    let Some(first) = targets.first() else { return };
    let fits = |row: &&[u8]| row.len() == sources.len();
    assert!(
        coefficients.iter().all(fits),
        "a coefficient for each source"
    );
    let length = first.len();
    let sources_agree = sources.iter().all(|source| source.len() == length);
    let targets_agree = targets.iter().all(|target| target.len() == length);
    assert!(
        sources_agree && targets_agree,
        "sources and targets are of one length"
    );
}

/// Calls `run` with `count` items, on the stack if they are few.
fn with_room<T: Copy, R>(count: usize, item: T, run: impl FnOnce(&mut [T]) -> R) -> R {
    if count <= FEW {
        run(&mut [item; FEW][..count])
    } else {
        run(&mut vec![item; count])
    }
}
