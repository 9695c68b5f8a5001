//! How a growth by the least moves goes about them: the best way, and that way less one of McPod's techniques each, which are
//! there to be measured beside it.
//!
//! | name | what a region takes | source |
//! |---|---|---|
//! | `best` | a read of each old member and a write of each new one; nothing of parity; on record from time to time | McPod, 3.2 and 3.5; not 3.3 and 3.4, which no row needs here |
//! | `chunkwise` | a read and a write for each chunk that moves | McPod without coalesced accesses (3.2) |
//! | `recorded` | as `best`, and on record before the next region | McPod without delayed metadata (3.5) |
//! | `parity-in-place` | as `best`, and parity read and written | McPod without a surrogate for parity (3.4) |
//! | `parity-recomputed` | as `best`, and all data read and parity written | and without piggybacking (3.3) |
//!
//! Its fifth technique, moving the least (3.1), is the task itself: without it there is `Command::Reshape`.

/// A way by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub enum Moves {
    #[default]
    Best,
    Chunkwise,
    Recorded,
    ParityInPlace,
    ParityRecomputed,
}

restripe_format::named! {
    Moves {
        Best = "best",
        Chunkwise = "chunkwise",
        Recorded = "recorded",
        ParityInPlace = "parity-in-place",
        ParityRecomputed = "parity-recomputed",
    }
}

impl Moves {
    /// Rows of a region go together, and neighbours on a member as one operation.
    pub const fn coalesces(self) -> bool {
        !matches!(self, Moves::Chunkwise)
    }

    pub const fn writes_parity(self) -> bool {
        matches!(self, Moves::ParityInPlace | Moves::ParityRecomputed)
    }
}
