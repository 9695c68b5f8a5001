//! What is known of each frame: its block, and its place among the others.

/// No frame, no bucket.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) block: u64,
    /// When its block was last asked for: the paper's TS.
    pub(super) asked: u64,
    /// How often it was asked for since it came in: the paper's F. Zero where the rule does not count.
    pub(super) frequency: u32,
    /// The bucket of its stack, or its place in the heap of the moved.
    pub(super) at: u32,
    /// The neighbours in the bucket. Of a free frame, `newer` is the next free one.
    pub(super) newer: u32,
    pub(super) older: u32,
    pub(super) stack: u16,
    /// Whether it has left its stack, since its row was rebuilt.
    pub(super) moved: bool,
}

impl Frame {
    pub(super) const EMPTY: Frame = Frame {
        block: 0,
        asked: 0,
        frequency: 0,
        at: NONE,
        newer: NONE,
        older: NONE,
        stack: 0,
        moved: false,
    };

    /// Its place in the order of a stack: what is least goes first.
    pub(super) fn rank(&self) -> (u32, u64) {
        (self.frequency, self.asked)
    }
}
