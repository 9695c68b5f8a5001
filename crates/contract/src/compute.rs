//! Computations on buffers, and their verdicts.

use crate::{BufRef, Page, Tag};
use alloc::vec::Vec;

/// One output of a linear combination over GF(2^8), polynomial 0x11d: `target = sum of coefficients[i] * sources[i]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinearOutput {
    pub target: BufRef,
    pub coefficients: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ComputeOp {
    /// Every output from the sources. No target overlaps a source. Without sources the targets become zeros; with one
    /// source and a coefficient of 1 it is a copy. Xor, P+Q, delta, recovery and Reed-Solomon are all this.
    Linear,
    /// The crc32c of the first source. Verdict: [`Verdict::Checksum`].
    Checksum,
    /// Are the first two sources equal? Verdict: [`Verdict::Equal`] or [`Verdict::Differ`].
    Compare,
    /// `sources[0]` is the P syndrome (read xor computed), `sources[1]` the Q syndrome. Which single cell explains both?
    /// Verdict: [`Verdict::Equal`] when both are zero, [`Verdict::Guilty`] or [`Verdict::Ambiguous`].
    Locate,
    /// The only output becomes what the page holds. Verdict: [`Verdict::Done`].
    PutPage,
    /// The page becomes what the only source holds. Verdict: [`Verdict::Done`].
    TakePage,
}

/// A computation on buffers. All sources and targets have the same length, that of a page if it has one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compute {
    pub tag: Tag,
    pub op: ComputeOp,
    pub sources: Vec<BufRef>,
    pub outputs: Vec<LinearOutput>,
    /// Of [`ComputeOp::PutPage`] and [`ComputeOp::TakePage`]: metadata that lies among data, and so in a buffer.
    pub page: Option<Page>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Verdict {
    /// A linear combination is done.
    Done,
    Checksum(u32),
    Equal,
    Differ,
    /// Which cell is wrong: data with this exponent of the generator in Q, or P, or Q.
    Guilty(Guilty),
    /// More than one cell is wrong.
    Ambiguous,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Guilty {
    Data { exponent: u8 },
    P,
    Q,
}
