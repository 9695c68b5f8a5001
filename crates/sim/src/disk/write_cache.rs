//! Writes that a drive has acknowledged and not yet written to its platters.
//!
//! Writes that follow one another make an extent. There are no more extents than segments for writes, and all
//! together hold no more blocks than these segments: [`WriteCache::take`] asserts it. What joins an extent of
//! which all is being written out counts as another. Extents are written out in the order in which they
//! began; what the platter has taken frees its room at once.

use std::collections::VecDeque;
use std::ops::Range;

/// Blocks that follow one another.
#[derive(Clone, Copy)]
struct Extent {
    block: u64,
    end: u64,
    due: u64,
}

/// What the platter takes without a break, of the first extent.
#[derive(Clone, Copy)]
pub(super) struct Out {
    /// The first block that has not passed, and when it begins to.
    pub block: u64,
    pub at: u64,
    /// The block behind the last.
    pub until: u64,
}

pub(super) struct WriteCache {
    segments: usize,
    segment_blocks: u64,
    extents: VecDeque<Extent>,
    out: Option<Out>,
    /// Of all extents together, without what has passed of the one that is being written out.
    blocks: u64,
}

impl WriteCache {
    pub(super) fn new(segments: u32, segment_blocks: u32) -> WriteCache {
        WriteCache {
            segments: segments.max(1) as usize,
            segment_blocks: u64::from(segment_blocks.max(1)),
            extents: VecDeque::with_capacity(segments as usize + 1),
            out: None,
            blocks: 0,
        }
    }

    /// Blocks that wait, those included that are being written out and have not passed.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Blocks that are being written out and have not passed.
    pub(super) fn under_way(&self) -> u64 {
        self.out.map_or(0, |out| out.until - out.block)
    }

    pub(super) fn out(&self) -> Option<Out> {
        self.out
    }

    /// When the first extent may be written out.
    pub(super) fn due(&self) -> Option<u64> {
        self.extents.front().map(|first| first.due)
    }

    /// These blocks go on where the last write ended.
    pub(super) fn joins(&self, blocks: &Range<u64>) -> bool {
        let last = self.extents.back();
        last.is_some_and(|last| last.end == blocks.start)
    }

    /// Everything is being written out: what joins it takes a segment of its own.
    fn all_under_way(&self) -> bool {
        let last = self.extents.back();
        self.out
            .is_some_and(|out| last.is_some_and(|last| out.until == last.end))
    }

    fn has_segment(&self, blocks: &Range<u64>) -> bool {
        let first = self.extents.front();
        let another = self
            .out
            .is_some_and(|out| first.is_some_and(|first| out.until < first.end));
        let used = self.extents.len() + usize::from(another);
        used < self.segments || self.joins(blocks) && !self.all_under_way()
    }

    /// Blocks that must be written out before these fit in.
    fn too_many(&self, blocks: &Range<u64>) -> u64 {
        let most = self.segments as u64 * self.segment_blocks;
        (self.blocks + blocks.end - blocks.start).saturating_sub(most)
    }

    pub(super) fn has_room(&self, blocks: &Range<u64>) -> bool {
        self.has_segment(blocks) && self.too_many(blocks) == 0
    }

    /// Up to which block the first extent must be written until there is room for these, or all of it; `None`
    /// if there is room.
    pub(super) fn enough_for(&self, blocks: &Range<u64>) -> Option<u64> {
        if self.has_room(blocks) {
            return None;
        }
        let first = self.extents.front()?;
        Some(match self.has_segment(blocks) {
            true => first.end.min(first.block + self.too_many(blocks)),
            false => first.end,
        })
    }

    /// Takes in blocks that there is room for.
    pub(super) fn take(&mut self, blocks: &Range<u64>, due: u64) {
        assert!(
            self.has_room(blocks),
            "a write cache holds no more than its {} segments of {} blocks",
            self.segments,
            self.segment_blocks
        );
        self.blocks += blocks.end - blocks.start;
        let all_under_way = self.all_under_way();
        let joins = self.joins(blocks);
        match self.extents.back_mut() {
            Some(last) if joins => {
                if all_under_way {
                    last.due = due;
                }
                last.end = blocks.end;
            }
            _ => self.extents.push_back(Extent {
                block: blocks.start,
                end: blocks.end,
                due,
            }),
        }
    }

    /// What is to be written out next: a segment's worth of the first extent, or what there is of it.
    pub(super) fn next_run(&self) -> Option<(u64, u64)> {
        let first = self.extents.front()?;
        Some((
            first.block,
            first.end.min(first.block + self.segment_blocks),
        ))
    }

    /// The first block of the next run begins to pass at `at`.
    pub(super) fn begin(&mut self, until: u64, at: u64) {
        let block = self.extents.front().map_or(until, |first| first.block);
        self.out = Some(Out { block, at, until });
    }

    /// The run under way has come to `block`, which begins to pass at `at`.
    pub(super) fn passed(&mut self, block: u64, at: u64) {
        let (Some(out), Some(first)) = (self.out, self.extents.front_mut()) else {
            return;
        };
        assert!(
            out.block <= block && block <= out.until && out.at <= at,
            "a run goes on, and no further than it was begun"
        );
        self.blocks -= block - first.block;
        first.block = block;
        let all = block == first.end;
        self.out = (block < out.until).then_some(Out { block, at, ..out });
        if all {
            self.extents.pop_front();
        }
    }
}
