//! The engine's own buffers, as handles, in two sizes; reserved ahead so that nothing admitted can starve.

use crate::contract::{Buf, LARGE_BYTES, Pool, SMALL_BYTES};
use alloc::vec::Vec;
use core::ops::Range;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Size {
    #[default]
    Small,
    Large,
}

impl Size {
    /// The smaller size that holds `bytes`.
    pub(crate) fn holding(bytes: u64) -> Size {
        assert!(
            bytes <= u64::from(LARGE_BYTES),
            "no pool buffer holds {bytes} bytes"
        );
        match bytes <= u64::from(SMALL_BYTES) {
            true => Size::Small,
            false => Size::Large,
        }
    }
}

/// Handles of a pool that are somebody's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Share {
    small: Range<u32>,
    large: Range<u32>,
}

impl Share {
    pub fn whole(pool: Pool) -> Share {
        Share {
            small: 0..pool.small,
            large: pool.small..pool.small + pool.large,
        }
    }

    /// Splits off the first handles of each size, as many as `part` has.
    ///
    /// # Panics
    /// If it has fewer.
    pub fn split_off(&mut self, part: Pool) -> Share {
        let take = |handles: &mut Range<u32>, count: u32| {
            assert!(count <= handles.end - handles.start, "a part of the pool");
            let first = handles.start;
            handles.start += count;
            first..handles.start
        };
        Share {
            small: take(&mut self.small, part.small),
            large: take(&mut self.large, part.large),
        }
    }
}

/// Free handles and promises. Invariant: for each size, `promised <= free`.
pub struct Buffers {
    share: Share,
    free: [Vec<Buf>; 2],
    promised: [u32; 2],
    /// Small ones that were lent for good.
    lent: u32,
}

impl Buffers {
    pub fn new(share: Share) -> Buffers {
        let small = share.small.clone().rev().map(Buf).collect();
        let large = share.large.clone().rev().map(Buf).collect();
        Buffers {
            share,
            free: [small, large],
            promised: [0, 0],
            lent: 0,
        }
    }

    /// Lends small buffers for as long as the engine lives.
    pub(crate) fn lend(&mut self, count: u32) -> Vec<Buf> {
        let [small, _] = &mut self.free;
        assert!(
            small.len() as u32 - self.promised[0] >= count,
            "the pool is made with what is lent of it"
        );
        self.lent += count;
        small.split_off(small.len() - count as usize)
    }

    /// A buffer, if one is free and not reserved.
    pub fn take_free(&mut self, size: Size) -> Option<Buf> {
        self.reserve(size, 1).then(|| self.take(size))
    }

    /// Gives such a buffer back.
    pub fn release(&mut self, buf: Buf) {
        let size = self.size_of(buf);
        self.give_back(buf);
        self.unreserve(size, 1);
    }

    fn size_of(&self, buf: Buf) -> Size {
        match self.share.small.contains(&buf.0) {
            true => Size::Small,
            false => Size::Large,
        }
    }

    /// Promises `count` buffers to the caller, or none.
    pub fn reserve(&mut self, size: Size, count: u32) -> bool {
        let promised = &mut self.promised[size as usize];
        let free = self.free[size as usize].len() as u32;
        if free - *promised < count {
            return false;
        }
        *promised += count;
        true
    }

    /// Takes back a promise that was not used up.
    pub(crate) fn unreserve(&mut self, size: Size, count: u32) {
        self.promised[size as usize] -= count;
    }

    /// Makes one promised buffer a real one.
    pub fn take(&mut self, size: Size) -> Buf {
        assert!(
            self.promised[size as usize] > 0,
            "buffers are taken within a reservation"
        );
        self.promised[size as usize] -= 1;
        self.free[size as usize]
            .pop()
            .expect("a promised buffer is free")
    }

    /// Gives a buffer back; its promise stands again, until it is unreserved.
    pub(crate) fn give_back(&mut self, buf: Buf) {
        let size = self.size_of(buf);
        self.free[size as usize].push(buf);
        self.promised[size as usize] += 1;
    }

    /// Nothing is taken and nothing promised.
    pub(crate) fn all_free(&self) -> bool {
        self.promised == [0, 0]
            && self.free[0].len() as u32 + self.lent == self.share.small.len() as u32
            && self.free[1].len() == self.share.large.len()
    }
}
