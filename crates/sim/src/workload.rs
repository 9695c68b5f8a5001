//! Random requests: sizes from a sector to many rows, alignments good and bad, hot spots, flushes, trims and
//! zeroes.

use crate::oracle::WriteKind;
use crate::rng::Rng;
use restripe_array::layout::Layout;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    Read {
        lba: u64,
        sectors: u64,
    },
    Write {
        lba: u64,
        sectors: u64,
        kind: WriteKind,
        fua: bool,
        fast: bool,
    },
    Flush,
}

impl Ask {
    pub fn read(lba: u64, sectors: u64) -> Ask {
        Ask::Read { lba, sectors }
    }

    pub fn write(lba: u64, sectors: u64, kind: WriteKind, fua: bool) -> Ask {
        Ask::Write {
            lba,
            sectors,
            kind,
            fua,
            fast: false,
        }
    }
}

/// The temper of one run's users.
#[derive(Clone, Debug)]
pub struct Workload {
    rng: Rng,
    size: u64,
    chunk: u64,
    row: u64,
    block: u64,
    /// Of 100 requests, how many are of each kind: reads, flushes, trims, zeroes; the rest are writes.
    shares: [u64; 4],
    fua: u64,
    /// Where most requests go.
    hot: (u64, u64),
    hot_share: u64,
    largest: u64,
    /// Where most requests go for a while, instead.
    aim: Option<(u64, u64)>,
    /// Most writes are durable for a while.
    insistent: bool,
}

/// Of 100 requests, how many go where they are aimed, and of writes, how many are durable while that is asked for.
const AIMED: u64 = 90;
const INSISTENT: u64 = 70;

impl Workload {
    /// `size`, `chunk`, `row` and `block` in sectors.
    pub fn new(mut rng: Rng, size: u64, chunk: u64, row: u64, block: u64) -> Workload {
        let hot_sectors = (*rng.pick(&[chunk, row, row * 2, size])).min(size);
        let hot_at = rng.below(size - hot_sectors + 1);
        Workload {
            shares: [
                *rng.pick(&[5, 20, 50]),
                *rng.pick(&[0, 3, 12]),
                *rng.pick(&[0, 0, 5, 12]),
                *rng.pick(&[0, 4, 10]),
            ],
            fua: *rng.pick(&[0, 5, 30]),
            hot: (hot_at, hot_sectors),
            hot_share: *rng.pick(&[20, 60, 95]),
            largest: *rng.pick(&[8, chunk, row * 2, row * 4]),
            rng,
            size,
            chunk,
            row,
            block,
            aim: None,
            insistent: false,
        }
    }

    /// The users of an array with this layout.
    pub fn over(layout: &Layout, rng: Rng, block: u64) -> Workload {
        let (size, row) = (layout.size_sectors(), layout.row_sectors());
        Workload::new(rng, size, layout.chunk_sectors(), row, block)
    }

    /// The array has so many sectors from now on.
    pub fn grow(&mut self, size: u64) {
        self.size = size;
    }

    /// Most requests go there from now on.
    pub fn aim(&mut self, lba: u64, sectors: u64) {
        self.aim = Some((lba, sectors));
    }

    /// Most writes are to be durable from now on.
    pub fn insist(&mut self) {
        self.insistent = true;
    }

    /// The users are themselves again.
    pub fn relax(&mut self) {
        (self.aim, self.insistent) = (None, false);
    }

    pub fn draw(&mut self) -> Ask {
        let drawn = self.rng.below(100);
        let [reads, flushes, trims, zeroes] = self.shares;
        if drawn < flushes {
            return Ask::Flush;
        }
        let (lba, sectors) = self.extent();
        if drawn < flushes + reads {
            return Ask::Read { lba, sectors };
        }
        let kind = match drawn - flushes - reads {
            drawn if drawn < trims => WriteKind::Trim,
            drawn if drawn < trims + zeroes => WriteKind::Zeroes,
            _ => WriteKind::Data,
        };
        let fua = if self.insistent { INSISTENT } else { self.fua };
        let fua = self.rng.chance(fua, 100);
        let fast = kind == WriteKind::Zeroes && self.rng.chance(1, 4);
        Ask::Write {
            lba,
            sectors,
            kind,
            fua,
            fast,
        }
    }

    /// Somewhere to read or write: whole blocks within the array.
    pub fn extent(&mut self) -> (u64, u64) {
        let sectors = self.length();
        let (hot, share) = match self.aim {
            Some(aim) => (aim, AIMED),
            None => (self.hot, self.hot_share),
        };
        let hot = self.rng.chance(share, 100).then_some(hot);
        let (base, span) = hot.unwrap_or((0, self.size));
        let at = (base + self.rng.below(span)).min(self.size - sectors);
        let units = [self.block, self.block, 8, self.chunk, self.row];
        let unit = *self.rng.pick(&units);
        let lba = at / unit * unit / self.block * self.block;
        (lba, sectors)
    }

    fn length(&mut self) -> u64 {
        let sectors = match self.rng.below(6) {
            0 => self.block,
            1 => 8,
            2 => self.chunk,
            3 => self.row,
            _ => self.rng.between(1, self.largest),
        };
        let whole = self.size / self.block * self.block;
        sectors.next_multiple_of(self.block).min(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_stay_within_the_array_and_on_blocks() {
        for seed in 0..50 {
            let block = if seed % 2 == 0 { 1 } else { 8 };
            let mut workload = Workload::new(Rng::new(seed), 960, 16, 48, block);
            for _ in 0..200 {
                let (lba, sectors) = workload.extent();
                assert!(sectors > 0 && lba + sectors <= 960);
                assert!(lba.is_multiple_of(block) && sectors.is_multiple_of(block));
            }
        }
    }
}
