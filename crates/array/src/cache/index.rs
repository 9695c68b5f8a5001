//! From a block's number to its frame.

use super::frames::{Frame, NONE};
use alloc::vec;
use alloc::vec::Vec;

/// Frames of one hash are chained.
pub(super) struct Index {
    heads: Vec<u32>,
    shift: u32,
}

/// 2^64 over the golden ratio: spreads neighbouring numbers over the upper bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

impl Index {
    pub(super) fn new(frames: u32) -> Index {
        let heads = (frames as usize).next_power_of_two().max(2);
        Index {
            heads: vec![NONE; heads],
            shift: 64 - heads.trailing_zeros(),
        }
    }

    pub(super) fn find(&self, frames: &[Frame], block: u64) -> Option<u32> {
        let mut at = self.heads[self.place(block)];
        while at != NONE {
            let frame = &frames[at as usize];
            if frame.block == block {
                return Some(at);
            }
            at = frame.chain;
        }
        None
    }

    pub(super) fn insert(&mut self, frames: &mut [Frame], frame: u32) {
        let place = self.place(frames[frame as usize].block);
        frames[frame as usize].chain = core::mem::replace(&mut self.heads[place], frame);
    }

    pub(super) fn remove(&mut self, frames: &mut [Frame], frame: u32) {
        let place = self.place(frames[frame as usize].block);
        let next = frames[frame as usize].chain;
        if self.heads[place] == frame {
            self.heads[place] = next;
            return;
        }
        let mut at = self.heads[place];
        while frames[at as usize].chain != frame {
            at = frames[at as usize].chain;
        }
        frames[at as usize].chain = next;
    }

    fn place(&self, block: u64) -> usize {
        (block.wrapping_mul(SPREAD) >> self.shift) as usize
    }
}
