//! Requests of one size, one after another or anywhere: what a block benchmark makes.

use super::random::chance;
use crate::trace::{Item, Op, Request};
use restripe_sim::rng::Rng;

/// How the places follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Course {
    /// Each begins where the one before ended; at the end of the range it goes on at the beginning.
    Sequential,
    /// Any multiple of the size, each as likely.
    Random,
}

impl Course {
    pub fn named(name: &str) -> Option<Course> {
        match name {
            "sequential" => Some(Course::Sequential),
            "random" => Some(Course::Random),
            _ => None,
        }
    }
}

/// Endless requests of `block_bytes` on `range_bytes` from the first byte on. All are due at once: who asks paces them.
pub struct Blocks {
    course: Course,
    block_bytes: u64,
    blocks: u64,
    write_share: f64,
    next: u64,
    rng: Rng,
}

impl Blocks {
    /// `None`: not one block fits.
    pub fn new(
        course: Course,
        block_bytes: u64,
        range_bytes: u64,
        write_share: f64,
        seed: u64,
    ) -> Option<Blocks> {
        let blocks = range_bytes.checked_div(block_bytes).unwrap_or(0);
        let mut rng = Rng::new(seed);
        // Seeds of a sequential course differ in where it begins.
        let next = rng.below(blocks.max(1));
        (blocks > 0).then_some(Blocks {
            course,
            block_bytes,
            blocks,
            write_share,
            next,
            rng,
        })
    }
}

impl Iterator for Blocks {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        let block = match self.course {
            Course::Sequential => self.next,
            Course::Random => self.rng.below(self.blocks),
        };
        self.next = (block + 1) % self.blocks;
        let op = match chance(&mut self.rng, self.write_share) {
            true => Op::Write,
            false => Op::Read,
        };
        let bytes = self.block_bytes;
        Some(Ok(Request::new(0, 0, op, block * bytes, bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(course: Course, seed: u64) -> Vec<u64> {
        let blocks = Blocks::new(course, 4096, 5 * 4096 + 17, 1.0, seed).expect("five fit");
        let request = |item: Item| item.expect("nothing is read");
        let taken = blocks.take(100).map(request);
        let offset = |request: Request| {
            assert_eq!((request.op, request.length), (Op::Write, 4096));
            request.offset / 4096
        };
        taken.map(offset).collect()
    }

    #[test]
    fn a_sequential_course_goes_round() {
        let places = places(Course::Sequential, 3);
        assert!(places.windows(2).all(|pair| pair[1] == (pair[0] + 1) % 5));
    }

    #[test]
    fn a_random_course_is_everywhere_and_hangs_on_the_seed() {
        let one = places(Course::Random, 1);
        assert!((0..5).all(|block| one.contains(&block)));
        assert!(one.iter().all(|block| *block < 5));
        assert_ne!(one, places(Course::Random, 2));
        assert_eq!(one, places(Course::Random, 1));
    }

    #[test]
    fn a_block_beyond_the_range_makes_none() {
        assert!(Blocks::new(Course::Random, 4096, 4095, 1.0, 1).is_none());
        assert!(Blocks::new(Course::Random, 0, 4095, 1.0, 1).is_none());
    }
}
