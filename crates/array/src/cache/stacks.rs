//! The stacks: the blocks of one slot each, from the one that goes first to the one that goes last.
//!
//! A stack is a list of buckets of rising frequency, a bucket a list of frames from the newest to the oldest. A rule that
//! does not count has one bucket a stack. So every step takes constant time.

use super::frames::{Frame, NONE};
use alloc::vec;
use alloc::vec::Vec;

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

pub(super) struct Stacks {
    /// The rarest bucket of each stack.
    rarest: Vec<u32>,
    buckets: Vec<Bucket>,
    free: Vec<u32>,
}

impl Stacks {
    pub(super) fn new(stacks: u16, frames: u32) -> Stacks {
        // Each bucket holds a frame, but for the one a frame is about to leave.
        let buckets = frames + 1;
        Stacks {
            rarest: vec![NONE; stacks.into()],
            buckets: vec![EMPTY; buckets as usize],
            free: (0..buckets).rev().collect(),
        }
    }

    /// The frame that goes first.
    pub(super) fn bottom(&self, stack: u16) -> Option<u32> {
        let rarest = self.rarest[usize::from(stack)];
        (rarest != NONE).then(|| self.buckets[rarest as usize].oldest)
    }

    /// Puts a frame, the last one asked for, where its frequency says.
    pub(super) fn place(&mut self, frames: &mut [Frame], frame: u32) {
        let bucket = self.bucket_for(&frames[frame as usize], NONE);
        let newest = self.buckets[bucket as usize].newest;
        self.link(frames, frame, bucket, newest);
    }

    /// Moves a frame of a stack that was asked for up to where its new frequency says.
    pub(super) fn raise(&mut self, frames: &mut [Frame], frame: u32) {
        let from = frames[frame as usize].at;
        let bucket = self.bucket_for(&frames[frame as usize], from);
        self.unlink(frames, frame);
        let newest = self.buckets[bucket as usize].newest;
        self.link(frames, frame, bucket, newest);
        self.free_if_empty(from, frames[frame as usize].stack);
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
    }

    pub(super) fn remove(&mut self, frames: &mut [Frame], frame: u32) {
        let bucket = frames[frame as usize].at;
        self.unlink(frames, frame);
        self.free_if_empty(bucket, frames[frame as usize].stack);
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
