//! Blocks whose rows have been rebuilt while the others of their stack still cost more.
//!
//! They cost one read again. Their order among those of a healthy member is by age, which no stack takes without a
//! search; so they wait in a heap, the first to go on top, until they make room or are asked for after their slot is
//! whole.

use super::frames::Frame;
use alloc::vec::Vec;

pub(super) struct Moved {
    heap: Vec<u32>,
}

impl Moved {
    pub(super) fn new(frames: u32) -> Moved {
        Moved {
            heap: Vec::with_capacity(frames as usize),
        }
    }

    pub(super) fn first(&self) -> Option<u32> {
        self.heap.first().copied()
    }

    /// Brings the frames of a stack's blocks to the end, the last to go at the very end. How many there are.
    pub(super) fn gather(&mut self, frames: &mut [Frame], stack: u16) -> usize {
        let of_stack = |frame: &Frame| frame.stack == stack;
        self.heap.sort_unstable_by_key(|&frame| {
            let frame = &frames[frame as usize];
            (of_stack(frame), frame.rank())
        });
        // The others are in order, and so a heap.
        for place in 0..self.heap.len() {
            self.put(frames, place, self.heap[place]);
        }
        let gathered = |frame: &&u32| of_stack(&frames[**frame as usize]);
        self.heap.iter().filter(gathered).count()
    }

    /// Takes the frame at the end.
    pub(super) fn take_last(&mut self, frames: &mut [Frame]) -> u32 {
        let frame = self.heap.pop().expect("frames were gathered");
        frames[frame as usize].moved = false;
        frame
    }

    pub(super) fn insert(&mut self, frames: &mut [Frame], frame: u32) {
        let place = self.heap.len();
        self.heap.push(frame);
        frames[frame as usize].moved = true;
        self.put(frames, place, frame);
        self.rise(frames, place);
    }

    pub(super) fn remove(&mut self, frames: &mut [Frame], frame: u32) {
        let place = frames[frame as usize].at as usize;
        frames[frame as usize].moved = false;
        let last = self.heap.pop().expect("the frame is in the heap");
        if last == frame {
            return;
        }
        self.put(frames, place, last);
        self.rise(frames, place);
        self.sink(frames, frames[last as usize].at as usize);
    }

    fn put(&mut self, frames: &mut [Frame], place: usize, frame: u32) {
        self.heap[place] = frame;
        frames[frame as usize].at = place as u32;
    }

    fn rank(&self, frames: &[Frame], place: usize) -> (u32, u64) {
        frames[self.heap[place] as usize].rank()
    }

    fn swap(&mut self, frames: &mut [Frame], one: usize, other: usize) {
        let (first, second) = (self.heap[one], self.heap[other]);
        self.put(frames, one, second);
        self.put(frames, other, first);
    }

    fn rise(&mut self, frames: &mut [Frame], mut place: usize) {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.rank(frames, above) <= self.rank(frames, place) {
                return;
            }
            self.swap(frames, above, place);
            place = above;
        }
    }

    fn sink(&mut self, frames: &mut [Frame], mut place: usize) {
        loop {
            let below = [2 * place + 1, 2 * place + 2];
            let inside = below.into_iter().filter(|&below| below < self.heap.len());
            let Some(least) = inside.min_by_key(|&below| self.rank(frames, below)) else {
                return;
            };
            if self.rank(frames, place) <= self.rank(frames, least) {
                return;
            }
            self.swap(frames, place, least);
            place = least;
        }
    }
}
