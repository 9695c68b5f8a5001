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
//!
//! Every block held may go at any time. So a store in which some blocks must stay, as the space of a log where they
//! are the only copy, keeps here those that need not: [`Cache::admit`] when a copy is made of what is at home as well,
//! [`Cache::forget`] when it becomes the only one or is dropped for other reasons, and [`Cache::evict`], while space is
//! short, for the next to go; `None` is its word for back-pressure. What a read would cost without the log is the
//! penalty, by the block's slot at home.

mod arc;
mod frames;
mod index;
mod moved;
mod rule;
mod stacks;

pub use rule::{Rule, Ties};

use alloc::vec;
use alloc::vec::Vec;
use arc::{Arc, FREQUENT, RECENT};
use core::ops::Range;
use frames::{Frame, NONE};
use index::Index;
use moved::Moved;
use rule::Candidate;
use stacks::{Bottom, Stacks};

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
    /// Stacks of a list: one for each slot, or one alone where a block's slot makes no difference.
    width: u16,
    stacks: Stacks,
    /// By list.
    moved: Vec<Moved>,
    /// Reads that a miss costs, by stack; 1 where the rule does not weigh.
    penalties: Vec<u16>,
    /// Slots whose blocks cost more than one read.
    dear: Vec<u16>,
    /// The paper's GTS: requests so far.
    clock: u64,
    arc: Option<Arc>,
}

impl Cache {
    /// # Panics
    /// Without a frame or a stack, and with more than 2^31 frames or 2^14 stacks.
    pub fn new(config: CacheConfig) -> Cache {
        assert!(
            (1..=1 << 31).contains(&config.frames) && (1..=1 << 14).contains(&config.stacks),
            "a cache has room"
        );
        let rule = config.rule;
        let by_slot = rule.weighs() || rule.counts() && config.ties == Ties::Newest;
        let width = if by_slot { config.stacks } else { 1 };
        let lists = if rule.adapts() { 2 } else { 1 };
        let moved = if rule.weighs() { config.frames } else { 0 };
        Cache {
            config,
            frames: vec![Frame::EMPTY; config.frames as usize],
            fresh: 0,
            spare: NONE,
            held: 0,
            index: Index::new(config.frames),
            width,
            stacks: Stacks::new(width * lists, config.frames, rule.counts()),
            moved: (0..lists).map(|_| Moved::new(moved)).collect(),
            penalties: vec![1; usize::from(width * lists)],
            dear: Vec::with_capacity(width.into()),
            clock: 0,
            arc: rule.adapts().then(|| Arc::new(config.frames)),
        }
    }

    /// Sets how many reads a miss of this stack's blocks costs: 1 while its member stands.
    pub fn set_penalty(&mut self, stack: u16, reads: u16) {
        assert!(stack < self.config.stacks, "the cache has this stack");
        if !self.config.rule.weighs() {
            return;
        }
        let reads = reads.max(1);
        let before = self.penalties[usize::from(stack)];
        for of_list in self.penalties.chunks_mut(self.width.into()) {
            of_list[usize::from(stack)] = reads;
        }
        self.dear.clear();
        let slots = 0..self.width;
        let dear = slots.filter(|slot| self.penalties[usize::from(*slot)] > 1);
        self.dear.extend(dear);
        if before == 1 && reads > 1 {
            self.settle(stack);
        }
    }

    /// The frame of a block, which is not asked for by this.
    pub fn find(&self, block: u64) -> Option<u32> {
        let holds = |frame: u32| self.frames[frame as usize].block == block;
        self.index.find(block, holds)
    }

    /// A block is asked for: its frame, if it is here.
    pub fn ask(&mut self, block: u64) -> Option<u32> {
        let frame = self.find(block)?;
        let Frame { moved, stack, .. } = self.frames[frame as usize];
        let to = self.asked_again(stack);
        if !moved && to == stack {
            self.touch(frame);
            self.stacks.raise(&mut self.frames, frame);
        } else {
            self.take_out(frame);
            self.touch(frame);
            self.frames[frame as usize].stack = to;
            if moved && self.penalties[usize::from(to)] > 1 {
                let list = self.list(to);
                self.moved[list].insert(&mut self.frames, frame);
            } else {
                self.stacks.place(&mut self.frames, frame);
            }
        }
        self.clock += 1;
        Some(frame)
    }

    /// Lets a block in that was asked for and is not here; another makes room first, if there is none.
    pub fn admit(&mut self, block: u64, stack: u16) -> Admission {
        debug_assert!(self.find(block).is_none(), "a block is held once");
        let (list, evicted) = self.make_room(block);
        let frame = self.free_frame();
        let of_slot = if self.width == 1 { 0 } else { stack };
        self.frames[frame as usize] = Frame {
            block,
            stack: list as u16 * self.width + of_slot, // list 0 or 1
            ..Frame::EMPTY
        };
        self.touch(frame);
        self.index.insert(block, frame);
        self.stacks.place(&mut self.frames, frame);
        self.held += 1;
        self.clock += 1;
        Admission { frame, evicted }
    }

    /// Lets a block go though none comes in: for a caller whose space is short for other reasons than the number of
    /// blocks. `None` when none is held.
    pub fn evict(&mut self) -> Option<u64> {
        let list = self.arc.as_ref().map_or(0, |arc| arc.gives(false));
        let evicted = self.evict_of(list)?;
        if let Some(arc) = &mut self.arc {
            arc.dropped(list, evicted);
        }
        Some(evicted)
    }

    /// A block is held no longer: it changed below the cache, or nobody needs it. Returns the frame it had.
    pub fn forget(&mut self, block: u64) -> Option<u32> {
        let frame = self.find(block)?;
        self.let_go(frame);
        Some(frame)
    }

    /// Forgets all blocks of a range. A range longer than the cache takes as long as the frames ever used.
    pub fn forget_all(&mut self, blocks: Range<u64>) {
        if self.held == 0 {
            return;
        }
        if blocks.end.saturating_sub(blocks.start) <= u64::from(self.fresh) {
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
        if !self.config.rule.weighs() {
            return;
        }
        if let Some(frame) = self.find(block)
            && !self.frames[frame as usize].moved
        {
            let list = self.list(self.frames[frame as usize].stack);
            self.stacks.remove(&mut self.frames, frame);
            self.moved[list].insert(&mut self.frames, frame);
        }
    }

    /// What was rebuilt of this stack's slot is gone: all its blocks cost the same again.
    pub fn settle(&mut self, stack: u16) {
        for (list, moved) in self.moved.iter_mut().enumerate() {
            let of_list = list as u16 * self.width; // list 0 or 1
            let mut count = moved.gather(&mut self.frames, of_list + stack);
            let mut above = NONE;
            while count > 0 {
                let frame = moved.take_last(&mut self.frames);
                self.stacks.place_below(&mut self.frames, frame, above);
                above = frame;
                count -= 1;
            }
        }
    }

    fn list(&self, stack: u16) -> usize {
        (stack / self.width).into()
    }

    /// The stack of a block that is asked for again.
    fn asked_again(&mut self, stack: u16) -> u16 {
        match &mut self.arc {
            Some(arc) if stack < self.width => {
                arc.left(RECENT);
                arc.came(FREQUENT);
                stack + self.width
            }
            _ => stack,
        }
    }

    fn touch(&mut self, frame: u32) {
        let counts = u32::from(self.config.rule.counts());
        let frame = &mut self.frames[frame as usize];
        frame.asked = self.clock;
        frame.frequency = frame.frequency.saturating_add(counts);
    }

    /// The list of a block that is let in, and who made room.
    fn make_room(&mut self, block: u64) -> (usize, Option<u64>) {
        let Some(arc) = &mut self.arc else {
            let full = self.held == self.config.frames;
            return (0, if full { self.evict_of(0) } else { None });
        };
        let arrival = arc.arrive(block);
        let evicted = arrival.from.and_then(|from| {
            let evicted = self.evict_of(from);
            let remembered = evicted.filter(|_| arrival.remembered);
            if let (Some(arc), Some(block)) = (&mut self.arc, remembered) {
                arc.remember(from, block);
            }
            evicted
        });
        if let Some(arc) = &mut self.arc {
            arc.came(arrival.list);
        }
        (arrival.list, evicted)
    }

    fn evict_of(&mut self, list: usize) -> Option<u64> {
        let frame = self.victim(list)?;
        let block = self.frames[frame as usize].block;
        self.let_go(frame);
        Some(block)
    }

    /// Among the bottoms of a list's stacks, the one that goes first.
    fn victim(&self, list: usize) -> Option<u32> {
        let begin = list as u16 * self.width; // list 0 or 1
        let end = begin + self.width;
        let newest = self.config.rule.counts() && self.config.ties == Ties::Newest;
        let cheap = self.stacks.least(begin..end, &self.penalties, newest);
        let mut first = cheap.map(|bottom| self.candidate(bottom, 1));
        for stack in self.dear.iter().map(|slot| begin + slot) {
            if let Some(bottom) = self.stacks.bottom(stack) {
                let penalty = self.penalties[usize::from(stack)];
                first = Some(self.first_of(first, self.candidate(bottom, penalty)));
            }
        }
        if let Some(frame) = self.moved[list].first() {
            let moved = Bottom::of(frame, &self.frames[frame as usize]);
            first = Some(self.first_of(first, self.candidate(moved, 1)));
        }
        first.map(|candidate| candidate.frame)
    }

    fn first_of(&self, first: Option<Candidate>, other: Candidate) -> Candidate {
        let (rule, ties) = (self.config.rule, self.config.ties);
        match first {
            Some(first) if !rule.goes_before(ties, &other, &first) => first,
            _ => other,
        }
    }

    fn candidate(&self, bottom: Bottom, penalty: u16) -> Candidate {
        Candidate {
            frame: bottom.frame,
            age: self.clock - bottom.asked,
            frequency: bottom.frequency,
            penalty,
        }
    }

    fn free_frame(&mut self) -> u32 {
        if self.spare == NONE {
            self.fresh += 1;
            return self.fresh - 1;
        }
        let next = self.frames[self.spare as usize].newer;
        core::mem::replace(&mut self.spare, next)
    }

    /// Takes a frame out of its stack, or from among the moved.
    fn take_out(&mut self, frame: u32) {
        let Frame { moved, stack, .. } = self.frames[frame as usize];
        if moved {
            let list = self.list(stack);
            self.moved[list].remove(&mut self.frames, frame);
        } else {
            self.stacks.remove(&mut self.frames, frame);
        }
    }

    fn let_go(&mut self, frame: u32) {
        let Frame { block, stack, .. } = self.frames[frame as usize];
        self.index.remove(block, frame);
        self.take_out(frame);
        let list = self.list(stack);
        if let Some(arc) = &mut self.arc {
            arc.left(list);
        }
        self.frames[frame as usize].newer = self.spare;
        self.spare = frame;
        self.held -= 1;
    }
}
