//! What is written: noise, so that no sector is like another, in an order that a seed decides.

use std::fmt::Write;

pub const SECTOR: usize = 512;
/// Writes of one stage.
const WRITES: usize = 24;

/// A sequence of numbers that a seed decides (splitmix64).
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Numbers {
        Numbers(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&self.next().to_le_bytes()[..piece.len()]);
        }
    }

    pub fn noise(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.fill(&mut bytes);
        bytes
    }
}

/// A range of sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub at: usize,
    pub sectors: usize,
}

impl Extent {
    pub fn bytes(&self) -> std::ops::Range<usize> {
        self.at * SECTOR..(self.at + self.sectors) * SECTOR
    }
}

/// Writes new noise into random places of the image and says where: single sectors, parts of chunks, ranges across
/// chunks and over several rows, and the image's last sectors.
pub fn scribble(image: &mut [u8], chunk_sectors: usize, numbers: &mut Numbers) -> Vec<Extent> {
    let total = image.len() / SECTOR;
    let longest = [1, 8, chunk_sectors, 3 * chunk_sectors, 12 * chunk_sectors];
    let mut extents = Vec::with_capacity(WRITES);
    for nth in 0..WRITES {
        let longest = longest[nth % longest.len()].min(total);
        let sectors = 1 + numbers.below(longest);
        let at = match nth {
            0 => total - sectors,
            _ => numbers.below(total - sectors + 1),
        };
        let extent = Extent { at, sectors };
        numbers.fill(&mut image[extent.bytes()]);
        extents.push(extent);
    }
    extents
}

/// One extent a line, as the guest's script reads them.
pub fn plan_text(extents: &[Extent]) -> String {
    extents.iter().fold(String::new(), |mut text, extent| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} {}", extent.at, extent.sectors);
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scribbling_changes_only_what_it_names() {
        let mut numbers = Numbers::new(1);
        let before = numbers.noise(1 << 20);
        let mut after = before.clone();
        let extents = scribble(&mut after, 128, &mut numbers);
        assert_eq!(extents.len(), WRITES);
        let mut named = vec![false; before.len() / SECTOR];
        for extent in &extents {
            named[extent.at..extent.at + extent.sectors].fill(true);
        }
        for (sector, named) in named.iter().enumerate() {
            let range = Extent {
                at: sector,
                sectors: 1,
            }
            .bytes();
            assert_eq!(before[range.clone()] != after[range], *named, "{sector}");
        }
        assert!(named[named.len() - 1], "the last sector is among them");
    }

    #[test]
    fn a_seed_decides_everything() {
        assert_eq!(Numbers::new(7).noise(100), Numbers::new(7).noise(100));
        assert_ne!(Numbers::new(7).noise(100), Numbers::new(8).noise(100));
    }

    #[test]
    fn a_plan_is_two_numbers_a_line() {
        let extent = |at, sectors| Extent { at, sectors };
        assert_eq!(plan_text(&[extent(0, 4), extent(9, 1)]), "0 4\n9 1\n");
    }
}
