//! A cache of blocks: which are held, in which frame, and which makes room for another.
//!
//! The rules are those of *Victim Disk First* (Wan et al., USENIX ATC 2011, Algorithms 1 and 2) and the two they start
//! from. A miss costs as many reads as the code needs: one where the block's member stands, the rest of the row where it
//! has failed. LRU and LFU evict the block least likely to be asked for; VDF-LRU and VDF-LFU the one whose likelihood
//! times penalty is least.
//!
//! Blocks lie on one stack for each slot of the array, since all blocks of a stack cost the same. The paper keeps a
//! global stack besides, for the time in which nothing has failed. Here that one is implied: its bottom is the oldest of
//! the bottoms. So a failure, or a member's return, changes one penalty and moves no block.
//!
//! Only numbers are kept here; whose memory the frames are is the caller's affair. All room is taken at construction.

mod frames;
mod index;
mod moved;
mod rule;
mod stacks;

pub use rule::{Rule, Ties};

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use frames::{Frame, NONE};
use index::Index;
use moved::Moved;
use rule::Candidate;
use stacks::Stacks;

/// What a cache is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheConfig {
    /// Blocks held at most.
    pub frames: u32,
    /// Stacks: one for each slot of the array.
    pub stacks: u16,
    pub rule: Rule,
    pub ties: Ties,
}

/// A block was let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Admission {
    /// The frame that is its own from now on.
    pub frame: u32,
    /// The block that made room.
    pub evicted: Option<u64>,
}

pub struct Cache {
    config: CacheConfig,
    frames: Vec<Frame>,
    /// Frames from here on were never used; freed ones are chained from `spare`.
    fresh: u32,
    spare: u32,
    held: u32,
    index: Index,
    stacks: Stacks,
    moved: Moved,
    /// Reads that a miss costs, by stack.
    penalties: Vec<u16>,
    /// The paper's GTS: requests so far.
    clock: u64,
}

impl Cache {
    /// # Panics
    /// Without a frame or a stack.
    pub fn new(config: CacheConfig) -> Cache {
        assert!(
            config.frames > 0 && config.frames < NONE && config.stacks > 0,
            "a cache has room"
        );
        Cache {
            config,
            frames: vec![Frame::EMPTY; config.frames as usize],
            fresh: 0,
            spare: NONE,
            held: 0,
            index: Index::new(config.frames),
            stacks: Stacks::new(config.stacks, config.frames),
            moved: Moved::new(config.frames),
            penalties: vec![1; config.stacks.into()],
            clock: 0,
        }
    }

    /// Sets how many reads a miss of this stack's blocks costs: 1 while its member stands.
    pub fn set_penalty(&mut self, stack: u16, reads: u16) {
        let penalty = &mut self.penalties[usize::from(stack)];
        let before = core::mem::replace(penalty, reads.max(1));
        if before == 1 && reads > 1 {
            self.settle(stack);
        }
    }

    /// The frame of a block, which is not asked for by this.
    pub fn find(&self, block: u64) -> Option<u32> {
        self.index.find(&self.frames, block)
    }

    /// A block is asked for: its frame, if it is here.
    pub fn ask(&mut self, block: u64) -> Option<u32> {
        let frame = self.find(block)?;
        let counts = u32::from(self.config.rule.counts());
        let Frame { moved, stack, .. } = self.frames[frame as usize];
        if !moved {
            self.touch(frame, counts);
            self.stacks.raise(&mut self.frames, frame);
        } else {
            self.moved.remove(&mut self.frames, frame);
            self.touch(frame, counts);
            if self.penalties[usize::from(stack)] == 1 {
                self.stacks.place(&mut self.frames, frame);
            } else {
                self.moved.insert(&mut self.frames, frame);
            }
        }
        self.clock += 1;
        Some(frame)
    }

    /// Lets a block in that was asked for and is not here; another makes room first, if there is none.
    pub fn admit(&mut self, block: u64, stack: u16) -> Admission {
        debug_assert!(self.find(block).is_none(), "a block is held once");
        let evicted = if self.held == self.config.frames {
            self.evict()
        } else {
            None
        };
        let frame = self.free_frame();
        self.frames[frame as usize] = Frame {
            block,
            stack,
            ..Frame::EMPTY
        };
        self.touch(frame, u32::from(self.config.rule.counts()));
        self.index.insert(&mut self.frames, frame);
        self.stacks.place(&mut self.frames, frame);
        self.held += 1;
        self.clock += 1;
        Admission { frame, evicted }
    }

    /// A block is held no longer: it changed below the cache, or nobody needs it. Returns the frame it had.
    pub fn forget(&mut self, block: u64) -> Option<u32> {
        let frame = self.find(block)?;
        self.let_go(frame);
        Some(frame)
    }

    /// Forgets all blocks of a range, in time that is bounded by what is held, however long the range.
    pub fn forget_all(&mut self, blocks: Range<u64>) {
        if blocks.end.saturating_sub(blocks.start) <= u64::from(self.held) {
            return blocks.for_each(|block| {
                self.forget(block);
            });
        }
        for frame in 0..self.fresh {
            let block = self.frames[frame as usize].block;
            if blocks.contains(&block) && self.find(block) == Some(frame) {
                self.let_go(frame);
            }
        }
    }

    /// The block's row has been rebuilt: from now on a miss costs one read, whatever its stack's penalty. (The paper's
    /// penalty stays until the failed disk is replaced as a whole: then this is not called.)
    pub fn rebuilt(&mut self, block: u64) {
        if let Some(frame) = self.find(block)
            && !self.frames[frame as usize].moved
        {
            self.stacks.remove(&mut self.frames, frame);
            self.moved.insert(&mut self.frames, frame);
        }
    }

    /// What was rebuilt of this stack's slot is gone: all its blocks cost the same again.
    pub fn settle(&mut self, stack: u16) {
        let mut count = self.moved.gather(&mut self.frames, stack);
        let mut above = NONE;
        while count > 0 {
            let frame = self.moved.take_last(&mut self.frames);
            self.stacks.place_below(&mut self.frames, frame, above);
            above = frame;
            count -= 1;
        }
    }

    fn touch(&mut self, frame: u32, times: u32) {
        let frame = &mut self.frames[frame as usize];
        frame.asked = self.clock;
        frame.frequency = frame.frequency.saturating_add(times);
    }

    fn evict(&mut self) -> Option<u64> {
        let frame = self.victim()?;
        let block = self.frames[frame as usize].block;
        self.let_go(frame);
        Some(block)
    }

    /// Among the bottoms of the stacks, the one that goes first.
    fn victim(&self) -> Option<u32> {
        let stacks = 0..self.config.stacks;
        let bottoms = stacks.filter_map(|stack| {
            let frame = self.stacks.bottom(stack)?;
            Some(self.candidate(frame, self.penalties[usize::from(stack)]))
        });
        let moved = self.moved.first().map(|frame| self.candidate(frame, 1));
        let (rule, ties) = (self.config.rule, self.config.ties);
        let first = bottoms.chain(moved).reduce(|first, other| {
            if rule.goes_before(ties, &other, &first) {
                other
            } else {
                first
            }
        });
        first.map(|candidate| candidate.frame)
    }

    fn candidate(&self, index: u32, penalty: u16) -> Candidate {
        let frame = &self.frames[index as usize];
        Candidate {
            frame: index,
            age: self.clock - frame.asked,
            frequency: frame.frequency,
            penalty: if self.config.rule.weighs() {
                penalty
            } else {
                1
            },
        }
    }

    fn free_frame(&mut self) -> u32 {
        if self.spare == NONE {
            self.fresh += 1;
            return self.fresh - 1;
        }
        let next = self.frames[self.spare as usize].chain;
        core::mem::replace(&mut self.spare, next)
    }

    fn let_go(&mut self, frame: u32) {
        self.index.remove(&mut self.frames, frame);
        if self.frames[frame as usize].moved {
            self.moved.remove(&mut self.frames, frame);
        } else {
            self.stacks.remove(&mut self.frames, frame);
        }
        self.frames[frame as usize].chain = self.spare;
        self.spare = frame;
        self.held -= 1;
    }
}
