//! What a scrub found in a row: verdicts of the computations of a band, and findings that are reported when
//! the row is done.

use crate::contract::{Cure, Guilty, Verdict};

/// What the comparisons of a band said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Verdicts {
    /// Bit `i`: comparison `i` found a difference.
    pub(crate) differ: u32,
    pub(crate) guilty: Option<Guilty>,
    pub(crate) located: bool,
    /// The syndromes of P and Q are in their buffers.
    pub(super) syndromes: bool,
    /// The copy that the others are compared with.
    pub(super) against: u8,
}

/// What a scrub found in a row: all sectors of a cell with the same fault and the same cure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// None: some cell of the row, and the code cannot say which.
    pub(crate) cell: Option<u8>,
    /// The first sector, in the chunk.
    pub(crate) at: u64,
    pub(crate) sectors: u64,
    pub(crate) unreadable: bool,
    pub(crate) cure: Cure,
}

/// What became of the row of a scrub's window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Scrubbed {
    #[default]
    Compared,
    Unwritten,
    /// Not all of it could be compared.
    Passed,
}

impl Verdicts {
    pub(crate) fn note(&mut self, index: u32, verdict: Verdict) {
        match verdict {
            Verdict::Differ => self.differ |= 1 << index,
            Verdict::Guilty(guilty) => (self.guilty, self.located) = (Some(guilty), true),
            Verdict::Ambiguous => self.located = true,
            Verdict::Equal | Verdict::Done | Verdict::Checksum(_) => {}
        }
    }
}
