//! The kernels' bodies, each written once and generic over the register.
//!
//! A body passes over its targets a single time, keeping all sums of a step in registers: memory, not arithmetic, is
//! what limits them. In the caches a number of sources that is a constant, up to eight, is worth a fifth.

use super::vector::{Vector, Word};
use crate::gf;

/// Computes some targets position by position; no position's result depends on another's or on the target's old bytes,
/// so a position may be computed twice.
pub(super) trait Operation {
    /// Bytes of each source and target.
    fn length(&self) -> usize;

    /// Computes `COUNT` registers' worth from byte `at` on.
    ///
    /// # Safety
    /// As for [`Vector`]; the step ends within [`Operation::length`], and if `STREAM`, the targets are aligned to
    /// `V::BYTES` at `at`.
    unsafe fn step<V: Vector, const COUNT: usize, const STREAM: bool>(&mut self, at: usize);

    /// Computes one byte.
    fn byte(&mut self, at: usize);
}

/// Runs the operation over its whole length, `COUNT` registers a step.
///
/// # Safety
/// The CPU has `V`'s features; if `STREAM`, the targets are aligned to `V::BYTES`.
#[inline(always)]
unsafe fn cover<V: Vector, const COUNT: usize, const STREAM: bool>(mut operation: impl Operation) {
    let length = operation.length();
    if length < V::BYTES {
        return cover_short(operation);
    }
    let mut at = 0;
    while length - at >= COUNT * V::BYTES {
        // SAFETY: the features are the caller's promise, the step ends within the length, `at` is a multiple of BYTES.
        unsafe { operation.step::<V, COUNT, STREAM>(at) };
        at += COUNT * V::BYTES;
    }
    while length - at >= V::BYTES {
        // SAFETY: as above.
        unsafe { operation.step::<V, 1, STREAM>(at) };
        at += V::BYTES;
    }
    if STREAM {
        // SAFETY: the features are the caller's promise.
        unsafe { V::fence() };
    }
    if at < length {
        // SAFETY: the length is at least one register; this last one overlaps what is done already.
        unsafe { operation.step::<V, 1, false>(length - V::BYTES) };
    }
}

/// Lengths below a register, as of tokens of 8 bytes and of odd tails.
#[inline(never)]
fn cover_short(mut operation: impl Operation) {
    let length = operation.length();
    let mut at = 0;
    while length - at >= Word::BYTES {
        // SAFETY: a word needs no features, and the step ends within the length.
        unsafe { operation.step::<Word, 1, false>(at) };
        at += Word::BYTES;
    }
    for at in at..length {
        operation.byte(at);
    }
}

/// Bytes ahead of a store at which a target's line is asked for where there are several targets. Found by trial: P+Q of
/// 64 KiB chunks gains a sixth from the second cache and from memory, 1 KiB is no better, and xor gains nothing.
const FETCH_AHEAD: usize = 512;

/// # Safety
/// As for the method of [`Vector`] that is chosen.
#[inline(always)]
unsafe fn put<V: Vector, const STREAM: bool>(value: V, target: &mut [u8], at: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if STREAM {
            value.stream(target, at)
        } else {
            value.store(target, at)
        }
    }
}

/// Like [`put`], for one of several targets.
///
/// # Safety
/// As for [`put`].
#[inline(always)]
unsafe fn put_one_of_several<V: Vector, const STREAM: bool>(
    value: V,
    target: &mut [u8],
    at: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        // Not past the end: those lines may be another thread's.
        if !STREAM && at + FETCH_AHEAD < target.len() {
            V::fetch_for_store(target, at + FETCH_AHEAD);
        }
        put::<V, STREAM>(value, target, at);
    }
}

/// `target = sum of sources`. There is at least one.
struct Xor<'a, S> {
    sources: S,
    target: &'a mut [u8],
}

impl<'a, S: AsRef<[&'a [u8]]>> Operation for Xor<'a, S> {
    #[inline(always)]
    fn length(&self) -> usize {
        self.target.len()
    }

    #[inline(always)]
    unsafe fn step<V: Vector, const COUNT: usize, const STREAM: bool>(&mut self, at: usize) {
        // SAFETY: the caller's promises; all sources are as long as the target.
        unsafe {
            let mut sums = [V::zero(); COUNT];
            for source in self.sources.as_ref() {
                for (register, sum) in sums.iter_mut().enumerate() {
                    *sum = sum.xor(V::load(source, at + register * V::BYTES));
                }
            }
            for (register, sum) in sums.into_iter().enumerate() {
                put::<V, STREAM>(sum, self.target, at + register * V::BYTES);
            }
        }
    }

    #[inline(always)]
    fn byte(&mut self, at: usize) {
        self.target[at] = self
            .sources
            .as_ref()
            .iter()
            .fold(0, |sum, source| sum ^ source[at]);
    }
}

/// `p = sum of sources`, `q = sum of 2^k source`, `k` being a source's index (Horner's rule from the
/// highest down; H. P. Anvin, "The mathematics of RAID-6"). There is at least one.
struct Pq<'a, S> {
    sources: S,
    p: &'a mut [u8],
    q: &'a mut [u8],
}

impl<'a, S: AsRef<[&'a [u8]]>> Operation for Pq<'a, S> {
    #[inline(always)]
    fn length(&self) -> usize {
        self.p.len()
    }

    #[inline(always)]
    unsafe fn step<V: Vector, const COUNT: usize, const STREAM: bool>(&mut self, at: usize) {
        // SAFETY: the caller's promises; all sources are as long as both targets.
        unsafe {
            let mut p = [V::zero(); COUNT];
            let mut q = [V::zero(); COUNT];
            for (index, source) in self.sources.as_ref().iter().rev().enumerate() {
                for register in 0..COUNT {
                    let data = V::load(source, at + register * V::BYTES);
                    p[register] = p[register].xor(data);
                    q[register] = if index == 0 {
                        data
                    } else {
                        q[register].double().xor(data)
                    };
                }
            }
            for register in 0..COUNT {
                put_one_of_several::<V, STREAM>(p[register], self.p, at + register * V::BYTES);
                put_one_of_several::<V, STREAM>(q[register], self.q, at + register * V::BYTES);
            }
        }
    }

    #[inline(always)]
    fn byte(&mut self, at: usize) {
        let sums = self
            .sources
            .as_ref()
            .iter()
            .rev()
            .fold((0, 0), |(p, q), source| {
                let data = source[at];
                (p ^ data, gf::mul(q, 2) ^ data)
            });
        (self.p[at], self.q[at]) = sums;
    }
}

/// Most targets of one pass of [`dot`]; their sums fit the registers.
pub(crate) const DOT_TARGETS: usize = 4;

/// A source and what it counts in each target; the coefficients of targets that there are not are 0.
#[derive(Clone, Copy)]
pub(crate) struct Term<'a> {
    pub(crate) source: &'a [u8],
    pub(crate) coefficients: [u8; DOT_TARGETS],
}

/// `targets[t] = sum of coefficients[t] * source`.
struct Dot<'a, const TARGETS: usize> {
    terms: &'a [Term<'a>],
    targets: [&'a mut [u8]; TARGETS],
}

impl<const TARGETS: usize> Operation for Dot<'_, TARGETS> {
    #[inline(always)]
    fn length(&self) -> usize {
        self.targets[0].len()
    }

    #[inline(always)]
    unsafe fn step<V: Vector, const COUNT: usize, const STREAM: bool>(&mut self, at: usize) {
        // SAFETY: the caller's promises; all sources are as long as all targets.
        unsafe {
            let mut sums = [[V::zero(); COUNT]; TARGETS];
            for term in self.terms {
                for register in 0..COUNT {
                    let data = V::load(term.source, at + register * V::BYTES).prepare();
                    for (target, sums) in sums.iter_mut().enumerate() {
                        sums[register] =
                            sums[register].add_product(data, term.coefficients[target]);
                    }
                }
            }
            for (target, sums) in self.targets.iter_mut().zip(sums) {
                for (register, sum) in sums.into_iter().enumerate() {
                    put_one_of_several::<V, STREAM>(sum, target, at + register * V::BYTES);
                }
            }
        }
    }

    #[inline(always)]
    fn byte(&mut self, at: usize) {
        for (index, target) in self.targets.iter_mut().enumerate() {
            let products = self
                .terms
                .iter()
                .map(|term| gf::mul(term.coefficients[index], term.source[at]));
            target[at] = products.fold(0, |sum, product| sum ^ product);
        }
    }
}

/// Evaluates `$run` with `$few` as an array of constant length where `$sources` are few and `$pays`, a constant, is true,
/// else as the slice they are.
macro_rules! by_count {
    ($sources:ident as $few:ident if $pays:expr, $run:expr) => {
        by_count!($sources as $few if $pays, $run, 1 2 3 4 5 6 7 8)
    };
    ($sources:ident as $few:ident if $pays:expr, $run:expr, $($count:literal)+) => {
        if $pays {
            match $sources.len() {
                $($count => {
                    let $few: [&[u8]; $count] = $sources.try_into().expect("its length was matched");
                    $run
                })+
                _ => {
                    let $few = $sources;
                    $run
                }
            }
        } else {
            let $few = $sources;
            $run
        }
    };
}

/// # Safety
/// The CPU has `V`'s features; all lengths are equal; if `STREAM`, the target is aligned to `V::BYTES`.
#[inline(always)]
pub(super) unsafe fn xor<V: Vector, const COUNT: usize, const STREAM: bool>(
    sources: &[&[u8]],
    target: &mut [u8],
) {
    by_count!(sources as sources if V::BY_COUNT && !STREAM, {
        // SAFETY: the caller's promises.
        unsafe { cover::<V, COUNT, STREAM>(Xor { sources, target }) }
    })
}

/// # Safety
/// The CPU has `V`'s features; all lengths are equal; if `STREAM`, both targets are aligned to `V::BYTES`.
#[inline(always)]
pub(super) unsafe fn pq<V: Vector, const COUNT: usize, const STREAM: bool>(
    sources: &[&[u8]],
    p: &mut [u8],
    q: &mut [u8],
) {
    by_count!(sources as sources if V::BY_COUNT && !STREAM, {
        // SAFETY: the caller's promises.
        unsafe { cover::<V, COUNT, STREAM>(Pq { sources, p, q }) }
    })
}

/// One to [`DOT_TARGETS`] targets, with `FEW` registers a step for up to two and `MANY` for more.
///
/// # Safety
/// The CPU has `V`'s features; all lengths are equal; if `STREAM`, all targets are aligned to `V::BYTES`.
#[inline(always)]
pub(super) unsafe fn dot<V: Vector, const FEW: usize, const MANY: usize, const STREAM: bool>(
    terms: &[Term],
    targets: &mut [&mut [u8]],
) {
    // SAFETY: the caller's promises.
    unsafe {
        match targets {
            [a] => cover::<V, FEW, STREAM>(Dot {
                terms,
                targets: [a],
            }),
            [a, b] => cover::<V, FEW, STREAM>(Dot {
                terms,
                targets: [a, b],
            }),
            [a, b, c] => cover::<V, MANY, STREAM>(Dot {
                terms,
                targets: [a, b, c],
            }),
            [a, b, c, d] => cover::<V, MANY, STREAM>(Dot {
                terms,
                targets: [a, b, c, d],
            }),
            _ => unreachable!("the caller passes one to DOT_TARGETS targets"),
        }
    }
}
