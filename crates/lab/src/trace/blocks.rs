//! A set of 4 KiB blocks: footprints of traces with millions of blocks in little memory.
//!
//! Blocks come in spans of 65,536 (256 MiB). A span with few blocks is a sorted list of 16-bit numbers, one
//! with many a bitmap of 8 KiB, a whole one takes nothing more. Memory is at most [`BYTES_MAX`], so that
//! addresses without sense end in an error and not in an exhausted machine.

use std::collections::BTreeMap;
use std::ops::Range;

pub const BLOCK_BYTES: u64 = 4096;

const SPAN: u64 = 1 << 16;
/// A list longer than this is larger than the bitmap.
const LIST_MAX: usize = 4096;
const WORDS: usize = SPAN as usize / 64;
const BYTES_MAX: usize = 2 << 30;
/// What a span costs besides its blocks.
const SPAN_BYTES: usize = 64;

enum Span {
    List(Vec<u16>),
    Bitmap(Box<[u64; WORDS]>, u32),
    Whole,
}

/// Blocks of any number of devices.
#[derive(Default)]
pub struct BlockSet {
    spans: BTreeMap<(u32, u64), Span>,
    count: u64,
    bytes: usize,
}

/// The set would need more memory than it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLarge;

/// The blocks that a range of bytes touches, partly touched ones too.
pub fn blocks(offset: u64, length: u64) -> Range<u64> {
    let end = offset.saturating_add(length).div_ceil(BLOCK_BYTES);
    offset / BLOCK_BYTES..end.max(offset / BLOCK_BYTES)
}

impl BlockSet {
    /// How many blocks are in the set.
    pub fn len(&self) -> u64 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Puts blocks in; how many of them were there already.
    pub fn insert(&mut self, device: u32, blocks: Range<u64>) -> Result<u64, TooLarge> {
        let mut known = 0;
        for (span, part) in parts(blocks) {
            let fresh = !self.spans.contains_key(&(device, span));
            let entry = self.spans.entry((device, span));
            let entry = entry.or_insert_with(|| Span::List(Vec::new()));
            let before = if fresh { 0 } else { entry.bytes() };
            let length = u64::from(part.end - part.start);
            let added = entry.insert(part);
            self.count += u64::from(added);
            known += length - u64::from(added);
            self.bytes = self.bytes + entry.bytes() - before;
        }
        if self.bytes > BYTES_MAX {
            return Err(TooLarge);
        }
        Ok(known)
    }

    /// Whether all of these blocks are in the set.
    pub fn contains(&self, device: u32, blocks: Range<u64>) -> bool {
        parts(blocks).all(|(span, part)| {
            let found = self.spans.get(&(device, span));
            found.is_some_and(|span| span.contains(part))
        })
    }
}

/// The spans of a range of blocks, with the blocks within each.
fn parts(blocks: Range<u64>) -> impl Iterator<Item = (u64, Range<u32>)> {
    let spans = blocks.start / SPAN..blocks.end.div_ceil(SPAN);
    spans.map(move |span| {
        let base = span * SPAN;
        let start = blocks.start.saturating_sub(base).min(SPAN);
        let end = (blocks.end - base).min(SPAN);
        (span, start as u32..end as u32)
    })
}

impl Span {
    fn bytes(&self) -> usize {
        SPAN_BYTES
            + match self {
                Span::List(list) => list.capacity() * 2,
                Span::Bitmap(..) => WORDS * 8,
                Span::Whole => 0,
            }
    }

    /// How many of the blocks are new.
    fn insert(&mut self, part: Range<u32>) -> u32 {
        if let Span::List(list) = self
            && list.len() + part.len() > LIST_MAX
        {
            *self = bitmap_of(list);
        }
        match self {
            Span::List(list) => insert_into_list(list, part),
            Span::Whole => 0,
            Span::Bitmap(words, count) => {
                let added = insert_into_bitmap(words, part);
                *count += added;
                if u64::from(*count) == SPAN {
                    *self = Span::Whole;
                }
                added
            }
        }
    }

    fn contains(&self, part: Range<u32>) -> bool {
        match self {
            Span::Whole => true,
            Span::List(list) => {
                let from = list.partition_point(|block| u32::from(*block) < part.start);
                let to = list.partition_point(|block| u32::from(*block) < part.end);
                to - from == part.len()
            }
            Span::Bitmap(words, _) => masks(part).all(|(word, mask)| words[word] & mask == mask),
        }
    }
}

fn insert_into_list(list: &mut Vec<u16>, part: Range<u32>) -> u32 {
    let from = list.partition_point(|block| u32::from(*block) < part.start);
    let to = list.partition_point(|block| u32::from(*block) < part.end);
    let added = part.len() - (to - from);
    if added > 0 {
        let numbers = part.map(|block| u16::try_from(block).expect("a span has 65,536 blocks"));
        list.splice(from..to, numbers);
    }
    u32::try_from(added).expect("a span has 65,536 blocks")
}

fn bitmap_of(list: &[u16]) -> Span {
    let mut words = Box::new([0; WORDS]);
    for block in list {
        words[usize::from(*block) / 64] |= 1 << (block % 64);
    }
    let count = u32::try_from(list.len()).expect("a list is short");
    Span::Bitmap(words, count)
}

fn insert_into_bitmap(words: &mut [u64; WORDS], part: Range<u32>) -> u32 {
    let mut added = 0;
    for (word, mask) in masks(part) {
        added += (mask & !words[word]).count_ones();
        words[word] |= mask;
    }
    added
}

/// The words of a bitmap that a range covers, with the bits of each.
fn masks(part: Range<u32>) -> impl Iterator<Item = (usize, u64)> {
    let words = part.start / 64..part.end.div_ceil(64);
    words.map(move |word| {
        let low = part.start.saturating_sub(word * 64);
        let high = (part.end - word * 64).min(64);
        let mask = (u64::MAX >> (64 - (high - low))) << low;
        (word as usize, mask)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_range_of_bytes_touches_blocks_partly_too() {
        assert_eq!(blocks(0, 1), 0..1);
        assert_eq!(blocks(4095, 2), 0..2);
        assert_eq!(blocks(8192, 4096), 2..3);
    }

    #[test]
    fn it_agrees_with_a_plain_set() {
        let mut set = BlockSet::default();
        let mut plain = BTreeSet::new();
        let mut state = 1u64;
        for step in 0..4000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Dense in one span, sparse over many, long runs over the bounds of spans.
            let start = match step % 3 {
                0 => state >> 50,
                1 => state >> 40,
                _ => 60_000 + (state >> 52),
            };
            let length = if step % 40 == 2 {
                9000
            } else {
                1 + (state >> 20) % 9
            };
            let device = (step % 2) as u32;
            let inside = (start..start + length).all(|block| plain.contains(&(device, block)));
            assert_eq!(set.contains(device, start..start + length), inside);
            let added = (start..start + length)
                .filter(|block| plain.insert((device, *block)))
                .count();
            let known = set.insert(device, start..start + length).unwrap();
            assert_eq!(known, length - added as u64);
            assert_eq!(set.len(), plain.len() as u64);
        }
    }

    #[test]
    fn whole_spans_take_next_to_nothing() {
        let mut set = BlockSet::default();
        assert_eq!(set.insert(0, 5..(1 << 24) + 5), Ok(0));
        assert_eq!(set.insert(0, 0..1 << 24), Ok((1 << 24) - 5));
        assert!(set.bytes < 256 * 8192 / 10, "{} bytes", set.bytes);
    }

    #[test]
    fn senseless_addresses_end_in_an_error() {
        let mut set = BlockSet {
            bytes: BYTES_MAX - 100,
            ..BlockSet::default()
        };
        let ended = (0..10).any(|span| set.insert(0, span << 20..(span << 20) + 1).is_err());
        assert!(ended);
    }
}
