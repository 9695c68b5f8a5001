//! The stacks: the blocks of one slot each, from the one that goes first to the one that goes last.
//!
//! A stack is a list of buckets of rising frequency, a bucket a list of frames from the newest to the oldest. A rule that
//! does not count has one bucket a stack. So every step takes constant time. What lies at the bottom of each stack is
//! kept side by side, so that choosing among them looks at nothing else.

use super::frames::{Frame, NONE};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

#[derive(Clone, Copy)]
struct Bucket {
    frequency: u32,
    newest: u32,
    oldest: u32,
    /// The neighbours in the stack, or the next free bucket.
    rarer: u32,
    commoner: u32,
}

const EMPTY: Bucket = Bucket {
    frequency: 0,
    newest: NONE,
    oldest: NONE,
    rarer: NONE,
    commoner: NONE,
};

/// The frame of a stack that goes first.
#[derive(Clone, Copy)]
pub(super) struct Bottom {
    pub(super) asked: u64,
    pub(super) frequency: u32,
    /// `NONE` of an empty stack.
    pub(super) frame: u32,
}

impl Bottom {
    /// Behind every other.
    const NOTHING: Bottom = Bottom {
        asked: u64::MAX,
        frequency: u32::MAX,
        frame: NONE,
    };

    pub(super) fn of(index: u32, frame: &Frame) -> Bottom {
        Bottom {
            asked: frame.asked,
            frequency: frame.frequency,
            frame: index,
        }
    }

    fn rank(&self) -> (u32, u64) {
        (self.frequency, self.asked)
    }
}

pub(super) struct Stacks {
    /// The bottom of each stack: what its frame says, always.
    bottoms: Vec<Bottom>,
    /// The rarest bucket of each stack.
    rarest: Vec<u32>,
    buckets: Vec<Bucket>,
    free: Vec<u32>,
}

impl Stacks {
    /// `counts`: whether frequencies differ.
    pub(super) fn new(stacks: u16, frames: u32, counts: bool) -> Stacks {
        // Each bucket holds a frame, but for the one a frame is about to leave.
        let most = if counts { frames } else { stacks.into() };
        let buckets = most + 1;
        Stacks {
            bottoms: vec![Bottom::NOTHING; stacks.into()],
            rarest: vec![NONE; stacks.into()],
            buckets: vec![EMPTY; buckets as usize],
            free: (0..buckets).rev().collect(),
        }
    }

    pub(super) fn bottom(&self, stack: u16) -> Option<Bottom> {
        let bottom = self.bottoms[usize::from(stack)];
        (bottom.frame != NONE).then_some(bottom)
    }

    /// Of the bottoms of those stacks whose penalty is 1, the one that goes first; `newest`: of equal frequency the newest
    /// one. There is nothing to guess in the loop for the processor.
    pub(super) fn least(
        &self,
        stacks: Range<u16>,
        penalties: &[u16],
        newest: bool,
    ) -> Option<Bottom> {
        let stacks = usize::from(stacks.start)..usize::from(stacks.end);
        let bottoms = &self.bottoms[stacks.clone()];
        let flip = if newest { u64::MAX } else { 0 };
        let (mut least, mut first) = (u128::MAX, 0);
        for (at, (bottom, penalty)) in bottoms.iter().zip(&penalties[stacks]).enumerate() {
            let rank = u128::from(bottom.frequency) << 64 | u128::from(bottom.asked ^ flip);
            let rank = if *penalty == 1 { rank } else { u128::MAX };
            let less = rank < least;
            least = if less { rank } else { least };
            first = if less { at } else { first };
        }
        let found = least < u128::MAX && bottoms[first].frame != NONE;
        found.then(|| bottoms[first])
    }

    /// Puts a frame, the last one asked for, where its frequency says.
    pub(super) fn place(&mut self, frames: &mut [Frame], frame: u32) {
        let bucket = self.bucket_for(&frames[frame as usize], NONE);
        let newest = self.buckets[bucket as usize].newest;
        self.link(frames, frame, bucket, newest);
        self.note(frames, frame);
    }

    /// Moves a frame of a stack that was asked for up to where its new frequency says.
    pub(super) fn raise(&mut self, frames: &mut [Frame], frame: u32) {
        let Frame { at, stack, .. } = frames[frame as usize];
        let bucket = self.bucket_for(&frames[frame as usize], at);
        self.unlink(frames, frame);
        let newest = self.buckets[bucket as usize].newest;
        self.link(frames, frame, bucket, newest);
        self.free_if_empty(at, stack);
        self.look_again(frames, frame, stack);
    }

    /// Puts a frame among the others of its frequency where its age says: below the one placed before, if that has the
    /// same frequency. Frames placed from the last to go to the first take one walk together.
    pub(super) fn place_below(&mut self, frames: &mut [Frame], frame: u32, above: u32) {
        let bucket = self.bucket_for(&frames[frame as usize], NONE);
        let asked = frames[frame as usize].asked;
        let mut older = self.buckets[bucket as usize].newest;
        if above != NONE && frames[above as usize].at == bucket {
            older = frames[above as usize].older;
        }
        while older != NONE && frames[older as usize].asked > asked {
            older = frames[older as usize].older;
        }
        self.link(frames, frame, bucket, older);
        self.note(frames, frame);
    }

    pub(super) fn remove(&mut self, frames: &mut [Frame], frame: u32) {
        let Frame { at, stack, .. } = frames[frame as usize];
        self.unlink(frames, frame);
        self.free_if_empty(at, stack);
        self.look_again(frames, frame, stack);
    }

    /// A frame was put into its stack: it may be the bottom.
    fn note(&mut self, frames: &[Frame], index: u32) {
        let frame = &frames[index as usize];
        let bottom = &mut self.bottoms[usize::from(frame.stack)];
        if bottom.frame == NONE || frame.rank() < bottom.rank() {
            *bottom = Bottom::of(index, frame);
        }
    }

    /// A frame has left its place in a stack: if it was the bottom, another is.
    fn look_again(&mut self, frames: &[Frame], left: u32, stack: u16) {
        let bottom = &mut self.bottoms[usize::from(stack)];
        if bottom.frame != left {
            return;
        }
        let rarest = self.rarest[usize::from(stack)];
        *bottom = Bottom::NOTHING;
        if rarest != NONE {
            let oldest = self.buckets[rarest as usize].oldest;
            *bottom = Bottom::of(oldest, &frames[oldest as usize]);
        }
    }

    /// The bucket of a frame's frequency, made if there is none. Looks from this bucket of the stack upwards.
    fn bucket_for(&mut self, frame: &Frame, from: u32) -> u32 {
        let stack = usize::from(frame.stack);
        let (mut rarer, mut next) = (NONE, self.rarest[stack]);
        if from != NONE {
            (rarer, next) = (self.buckets[from as usize].rarer, from);
        }
        while next != NONE && self.buckets[next as usize].frequency < frame.frequency {
            (rarer, next) = (next, self.buckets[next as usize].commoner);
        }
        if next != NONE && self.buckets[next as usize].frequency == frame.frequency {
            return next;
        }
        let made = self.free.pop().expect("no more buckets than frames");
        self.buckets[made as usize] = Bucket {
            frequency: frame.frequency,
            rarer,
            commoner: next,
            ..EMPTY
        };
        self.join(stack, rarer, made);
        if next != NONE {
            self.buckets[next as usize].rarer = made;
        }
        made
    }

    /// What follows a bucket, or opens the stack.
    fn join(&mut self, stack: usize, rarer: u32, next: u32) {
        if rarer == NONE {
            self.rarest[stack] = next;
        } else {
            self.buckets[rarer as usize].commoner = next;
        }
    }

    fn free_if_empty(&mut self, bucket: u32, stack: u16) {
        let Bucket {
            newest,
            rarer,
            commoner,
            ..
        } = self.buckets[bucket as usize];
        if newest != NONE {
            return;
        }
        self.join(stack.into(), rarer, commoner);
        if commoner != NONE {
            self.buckets[commoner as usize].rarer = rarer;
        }
        self.free.push(bucket);
    }

    /// Puts a frame into a bucket, just above the next older one.
    fn link(&mut self, frames: &mut [Frame], frame: u32, bucket: u32, older: u32) {
        let ends = &mut self.buckets[bucket as usize];
        let newer = if older == NONE {
            core::mem::replace(&mut ends.oldest, frame)
        } else {
            core::mem::replace(&mut frames[older as usize].newer, frame)
        };
        if newer == NONE {
            ends.newest = frame;
        } else {
            frames[newer as usize].older = frame;
        }
        let own = &mut frames[frame as usize];
        (own.at, own.newer, own.older) = (bucket, newer, older);
    }

    fn unlink(&mut self, frames: &mut [Frame], frame: u32) {
        let Frame {
            at, newer, older, ..
        } = frames[frame as usize];
        let ends = &mut self.buckets[at as usize];
        if newer == NONE {
            ends.newest = older;
        } else {
            frames[newer as usize].older = older;
        }
        if older == NONE {
            ends.oldest = newer;
        } else {
            frames[older as usize].newer = newer;
        }
    }
}
