//! The persisted maps: which extents were written, which regions have writes in flight, which sectors are
//! lost, which regions a log set alone has current copies of.
//!
//! Each is kept in pages with two homes on every current member (`meta::pages`). A page is written as a
//! whole, one write of it in flight at a time; a bit counts as durable when a page that holds it is on every
//! current member.

use crate::runset::RunSet;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::{Range, RangeInclusive};
use restripe_format::meta::pages::{BITS_PER_PAGE, EXTENTS_PER_PAGE, WORDS_PER_PAGE};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PageState {
    pub(crate) sequence: u64,
    pub(crate) dirty: bool,
    /// Member writes outstanding of the version being written; 0 when none is.
    pub(crate) writing: u32,
}

/// A bit map in its three versions: live, being written, durable.
pub(crate) struct BitMap {
    live: Vec<u64>,
    in_flight: Vec<u64>,
    durable: Vec<u64>,
    pub(crate) pages: Vec<PageState>,
    /// Some page may be dirty.
    pub(crate) touched: bool,
    bits: u64,
}

impl BitMap {
    pub(crate) fn new(bits: u64) -> BitMap {
        let pages = bits.div_ceil(BITS_PER_PAGE) as usize;
        let words = vec![0; pages * WORDS_PER_PAGE];
        BitMap {
            live: words.clone(),
            in_flight: words.clone(),
            durable: words,
            pages: vec![PageState::default(); pages],
            touched: false,
            bits,
        }
    }

    /// Has `bits` bits from now on; new ones are clear.
    pub(crate) fn widen(&mut self, bits: u64) {
        assert!(bits >= self.bits, "no bit is lost");
        let pages = bits.div_ceil(BITS_PER_PAGE) as usize;
        for words in [&mut self.live, &mut self.in_flight, &mut self.durable] {
            words.resize(pages * WORDS_PER_PAGE, 0);
        }
        self.pages.resize(pages, PageState::default());
        self.bits = bits;
    }

    pub(crate) fn get(&self, bit: u64) -> bool {
        self.live[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    pub(crate) fn bits(&self) -> u64 {
        self.bits
    }

    pub(crate) fn is_durable(&self, bit: u64) -> bool {
        self.durable[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    /// Whether the pages of these bits are on every current member as they are.
    pub(crate) fn on_record(&self, bits: Range<u64>) -> bool {
        let pages = bits.start / BITS_PER_PAGE..bits.end.div_ceil(BITS_PER_PAGE);
        let pages = &self.pages[pages.start as usize..pages.end as usize];
        pages.iter().all(|page| !page.dirty && page.writing == 0)
    }

    pub(crate) fn any(&self) -> bool {
        self.live.iter().any(|&word| word != 0)
    }

    /// Sets or clears a bit; its page is written in due course.
    pub(crate) fn put(&mut self, bit: u64, value: bool) {
        assert!(bit < self.bits, "bit {bit} of {}", self.bits);
        let word = &mut self.live[(bit / 64) as usize];
        let mask = 1 << (bit % 64);
        if (*word & mask != 0) != value {
            *word ^= mask;
            self.pages[(bit / BITS_PER_PAGE) as usize].dirty = true;
            self.touched = true;
        }
    }

    /// Sets these bits, word by word; their pages are written in due course. Whether all of them are durable.
    pub(crate) fn set_all(&mut self, bits: RangeInclusive<u64>) -> bool {
        let end = bits.end() + 1;
        assert!(end <= self.bits, "bits to {end} of {}", self.bits);
        let (mut bit, mut durable) = (*bits.start(), true);
        while bit < end {
            let until = end.min((bit | 63) + 1);
            let mask = u64::MAX >> (64 - (until - bit)) << (bit % 64);
            let word = (bit / 64) as usize;
            if self.live[word] & mask != mask {
                self.live[word] |= mask;
                self.pages[(bit / BITS_PER_PAGE) as usize].dirty = true;
                self.touched = true;
            }
            durable &= self.durable[word] & mask == mask;
            bit = until;
        }
        durable
    }

    /// Clears every bit.
    pub(crate) fn clear(&mut self) {
        for page in 0..self.pages.len() {
            let words = &mut self.live[Self::words_of(page)];
            if words.iter().any(|&word| word != 0) {
                words.fill(0);
                self.pages[page].dirty = true;
                self.touched = true;
            }
        }
    }

    fn words_of(page: usize) -> core::ops::Range<usize> {
        page * WORDS_PER_PAGE..(page + 1) * WORDS_PER_PAGE
    }

    pub(crate) fn load(&mut self, page: usize, words: &[u64], sequence: u64) {
        self.live[Self::words_of(page)].copy_from_slice(words);
        self.durable[Self::words_of(page)].copy_from_slice(words);
        self.pages[page].sequence = sequence;
    }

    /// Takes the version of a page that is about to be written. Bits that it clears are durable no longer:
    /// the write may land before anything else does.
    pub(crate) fn begin_write(&mut self, page: usize) -> &[u64] {
        for word in Self::words_of(page) {
            self.in_flight[word] = self.live[word];
            self.durable[word] &= self.live[word];
        }
        &self.in_flight[Self::words_of(page)]
    }

    pub(crate) fn written(&mut self, page: usize) {
        let words = Self::words_of(page);
        self.durable[words.clone()].copy_from_slice(&self.in_flight[words]);
    }

    pub(crate) fn dirty(&self) -> bool {
        self.pages.iter().any(|page| page.dirty || page.writing > 0)
    }
}

/// The lost sectors, as extents of the array. Each page is about a part of the array of its own, so that an
/// extent never moves from one page to another and no crash between two page writes can drop it.
#[derive(Default)]
pub(crate) struct LostMap {
    pub(crate) extents: RunSet,
    /// Written anew, but not flushed since: a crash may take that back, so the members go on calling them
    /// lost. First those that no flush has begun for, then those of the flush that runs.
    regained: [RunSet; 2],
    pub(crate) pages: Vec<PageState>,
    /// Some page may be dirty.
    pub(crate) touched: bool,
    /// Sectors of the array that each page is about.
    share: u64,
}

impl LostMap {
    /// `sectors`: of an array that grows, those that it had at first. What is added goes to the last page.
    pub(crate) fn new(pages: usize, sectors: u64) -> LostMap {
        LostMap {
            extents: RunSet::default(),
            regained: Default::default(),
            pages: vec![PageState::default(); pages],
            touched: false,
            share: sectors.div_ceil(pages.max(1) as u64).max(1),
        }
    }

    pub(crate) fn add(&mut self, lba: u64, sectors: u64) {
        self.extents.insert(lba, sectors);
        self.touch(lba, sectors);
    }

    /// These sectors were written anew: they are lost no more, durably so after the next flush. Returns
    /// whether any of them had been lost.
    pub(crate) fn rewritten(&mut self, lba: u64, sectors: u64) -> bool {
        if self.extents.is_empty() || self.first_in(lba, sectors).is_none() {
            return false;
        }
        for (first, count) in self.extents.within(lba, sectors) {
            self.regained[0].insert(first, count);
        }
        self.extents.remove(lba, sectors);
        true
    }

    /// Nothing that was lost is asked for any more.
    pub(crate) fn forget(&mut self) {
        let lost = core::mem::take(&mut self.extents);
        let regained = core::mem::take(&mut self.regained);
        for runs in [&lost].into_iter().chain(&regained) {
            for &(first, count) in runs.runs() {
                self.touch(first, count);
            }
        }
    }

    /// A flush begins: it covers what was regained so far.
    pub(crate) fn flush_begun(&mut self) {
        let [fresh, covered] = &mut self.regained;
        for &(first, count) in fresh.runs() {
            covered.insert(first, count);
        }
        *fresh = RunSet::default();
    }

    /// The flush ended: what it covered can be forgotten.
    pub(crate) fn flush_ended(&mut self) {
        let covered = core::mem::take(&mut self.regained[1]);
        for &(first, count) in covered.runs() {
            self.touch(first, count);
        }
    }

    /// The first lost sector in a range.
    pub(crate) fn first_in(&self, lba: u64, sectors: u64) -> Option<u64> {
        if self.extents.is_empty() {
            return None;
        }
        let first = self.extents.next_member(lba);
        first.filter(|&first| first < lba + sectors)
    }

    /// The extents of one page, in order, as the members are to have them.
    pub(crate) fn of_page(&self, page: usize) -> Vec<(u64, u64)> {
        let (first, count) = self.of(page);
        let held = self.extents.within(first, count);
        if self.regained.iter().all(RunSet::is_empty) {
            return held;
        }
        let mut held = RunSet::from_runs(&held);
        for regained in &self.regained {
            for (first, count) in regained.within(first, count) {
                held.insert(first, count);
            }
        }
        held.runs().to_vec()
    }

    /// What a page is about: the last one, of all that follows.
    fn of(&self, page: usize) -> (u64, u64) {
        let first = page as u64 * self.share;
        let last = page + 1 == self.pages.len();
        (first, if last { u64::MAX - first } else { self.share })
    }

    /// When a page has more extents than it holds, the narrowest gap between two of them is given up: better
    /// good sectors refused than lost ones made up. Not a gap that touches `written`, if there is another.
    /// What was given up; called until there is nothing.
    pub(crate) fn give_up_gap(&mut self, written: Option<(u64, u64)>) -> Option<(u64, u64)> {
        for page in 0..self.pages.len() {
            // Both as it is and as it will be when what was regained is durable.
            let now = self.of_page(page);
            let (first, count) = self.of(page);
            let then = self.extents.within(first, count);
            let held = if then.len() > now.len() { then } else { now };
            if held.len() <= EXTENTS_PER_PAGE {
                continue;
            }
            let gap =
                |pair: &[(u64, u64)]| (pair[0].0 + pair[0].1, pair[1].0 - pair[0].0 - pair[0].1);
            let spared = |gap: &(u64, u64)| {
                written.is_some_and(|(lba, sectors)| gap.0 < lba + sectors && lba < gap.0 + gap.1)
            };
            let gaps = || held.windows(2).map(gap);
            let other = gaps().filter(|gap| !spared(gap)).min_by_key(|gap| gap.1);
            let (lba, sectors) = other.or_else(|| gaps().min_by_key(|gap| gap.1))?;
            self.add(lba, sectors);
            return Some((lba, sectors));
        }
        None
    }

    fn touch(&mut self, lba: u64, sectors: u64) {
        self.touched = true;
        let last = self.pages.len().saturating_sub(1) as u64;
        let pages = (lba / self.share).min(last)..=((lba + sectors - 1) / self.share).min(last);
        for page in pages {
            if let Some(page) = self.pages.get_mut(page as usize) {
                page.dirty = true;
            }
        }
    }

    pub(crate) fn dirty(&self) -> bool {
        self.pages.iter().any(|page| page.dirty || page.writing > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_set_together_are_those_set_one_by_one() {
        let bits = BITS_PER_PAGE + 100;
        for (first, last) in [
            (0, 0),
            (3, 63),
            (63, 64),
            (0, bits - 1),
            (BITS_PER_PAGE - 1, BITS_PER_PAGE),
        ] {
            let [mut together, mut apart] = [BitMap::new(bits), BitMap::new(bits)];
            (first..=last).for_each(|bit| apart.put(bit, true));
            assert!(!together.set_all(first..=last), "nothing is durable yet");
            let live = |map: &BitMap| (0..bits).map(|bit| map.get(bit)).collect::<Vec<_>>();
            assert_eq!(live(&together), live(&apart), "{first} to {last}");
            for page in 0..2 {
                assert_eq!(together.pages[page].dirty, apart.pages[page].dirty);
                together.begin_write(page);
                together.written(page);
            }
            assert!(together.touched && together.set_all(first..=last));
            let beyond = last + 1;
            assert!(beyond == bits || !together.set_all(first..=beyond));
        }
    }
}
