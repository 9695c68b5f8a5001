//! The contents of a medium: a sparse map from sectors to data at the payload's scale, or to real metadata
//! bytes.
//!
//! Blocks are shared until written, so a copy of an image (a crash image, say) costs a list of pointers.

use crate::payload::Payload;
use crate::rng::mix;
use restripe_array::{PAGE_BYTES, PAGE_SECTORS, SECTOR_BYTES};
use std::sync::Arc;

/// Sectors in a block: 128 KiB.
const BLOCK_SECTORS: u64 = 256;
const BLOCK_PAGES: usize = (BLOCK_SECTORS / PAGE_SECTORS) as usize;
const SECTOR: usize = SECTOR_BYTES as usize;

/// What a medium holds. A sector never written reads as zeros.
#[derive(Clone)]
pub struct Image {
    payload: Payload,
    sectors: u64,
    blocks: Vec<Option<Arc<Block>>>,
}

#[derive(Clone)]
struct Block {
    /// Data of all sectors at the payload's scale, or empty while all of it is zeros.
    data: Vec<u8>,
    /// Real bytes, where sectors hold such (never with [`Payload::Bytes`], whose data are real).
    pages: Vec<Option<Box<Full>>>,
}

/// Real bytes of the sectors named in `mask`.
#[derive(Clone)]
struct Full {
    mask: u8,
    bytes: [u8; PAGE_BYTES],
}

impl Block {
    fn empty() -> Block {
        Block {
            data: Vec::new(),
            pages: Vec::new(),
        }
    }

    fn data_mut(&mut self, unit: usize) -> &mut [u8] {
        if self.data.is_empty() {
            self.data.resize(BLOCK_SECTORS as usize * unit, 0);
        }
        &mut self.data
    }

    fn full(&self, sector: usize) -> Option<&[u8]> {
        let page = self.pages.get(sector / 8)?.as_ref()?;
        let index = sector % 8;
        (page.mask & (1 << index) != 0).then(|| &page.bytes[index * SECTOR..(index + 1) * SECTOR])
    }

    fn set_full(&mut self, sector: usize, bytes: &[u8]) {
        if self.pages.is_empty() {
            self.pages.resize_with(BLOCK_PAGES, || None);
        }
        let page = self.pages[sector / 8].get_or_insert_with(|| {
            Box::new(Full {
                mask: 0,
                bytes: [0; PAGE_BYTES],
            })
        });
        let index = sector % 8;
        page.mask |= 1 << index;
        page.bytes[index * SECTOR..(index + 1) * SECTOR].copy_from_slice(bytes);
    }

    /// Whether any of these sectors may hold real bytes.
    fn may_be_full(&self, from: usize, count: usize) -> bool {
        let pages = self.pages.get(from / 8..(from + count).div_ceil(8));
        pages.is_some_and(|pages| pages.iter().any(Option::is_some))
    }

    fn clear_full(&mut self, from: usize, count: usize) {
        if self.pages.is_empty() {
            return;
        }
        for sector in from..from + count {
            let slot = &mut self.pages[sector / 8];
            if let Some(page) = slot {
                page.mask &= !(1 << (sector % 8));
                if page.mask == 0 {
                    *slot = None;
                }
            }
        }
    }
}

/// A stretch of sectors within one block.
struct Stretch {
    block: usize,
    /// First sector within the block.
    from: usize,
    count: usize,
    /// Sectors of the whole range before this stretch.
    done: usize,
}

fn stretches(at: u64, sectors: u64) -> impl Iterator<Item = Stretch> {
    let end = at + sectors;
    let mut next = at;
    std::iter::from_fn(move || {
        if next >= end {
            return None;
        }
        let from = next % BLOCK_SECTORS;
        let count = (BLOCK_SECTORS - from).min(end - next);
        let stretch = Stretch {
            block: (next / BLOCK_SECTORS) as usize,
            from: from as usize,
            count: count as usize,
            done: (next - at) as usize,
        };
        next += count;
        Some(stretch)
    })
}

impl Image {
    pub fn new(payload: Payload, sectors: u64) -> Image {
        let blocks = sectors.div_ceil(BLOCK_SECTORS) as usize;
        Image {
            payload,
            sectors,
            blocks: vec![None; blocks],
        }
    }

    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    pub fn payload(&self) -> Payload {
        self.payload
    }

    fn block_mut(&mut self, index: usize) -> &mut Block {
        Arc::make_mut(self.blocks[index].get_or_insert_with(|| Arc::new(Block::empty())))
    }

    /// Writes data at the payload's scale.
    pub fn write_data(&mut self, at: u64, sectors: u64, data: &[u8]) {
        let unit = self.payload.unit();
        let bytes = sectors as usize * unit;
        assert_eq!(data.len(), bytes, "data of the range's length");
        if unit == 0 {
            return self.forget_pages(at, sectors);
        }
        for s in stretches(at, sectors) {
            let block = self.block_mut(s.block);
            block.clear_full(s.from, s.count);
            block.data_mut(unit)[s.from * unit..(s.from + s.count) * unit]
                .copy_from_slice(&data[s.done * unit..(s.done + s.count) * unit]);
        }
    }

    /// Makes the range read as zeros.
    pub fn zero(&mut self, at: u64, sectors: u64) {
        let unit = self.payload.unit();
        for s in stretches(at, sectors) {
            if self.blocks[s.block].is_none() {
                continue;
            }
            let block = self.block_mut(s.block);
            block.clear_full(s.from, s.count);
            if !block.data.is_empty() {
                block.data[s.from * unit..(s.from + s.count) * unit].fill(0);
            }
        }
    }

    /// Without data, only metadata pages can be overwritten.
    fn forget_pages(&mut self, at: u64, sectors: u64) {
        for s in stretches(at, sectors) {
            let block = self.blocks[s.block].as_ref();
            if block.is_some_and(|block| block.may_be_full(s.from, s.count)) {
                self.block_mut(s.block).clear_full(s.from, s.count);
            }
        }
    }

    /// Writes real bytes: whole sectors of a metadata page.
    pub fn write_full(&mut self, at: u64, bytes: &[u8]) {
        if self.payload == Payload::Bytes {
            return self.write_data(at, (bytes.len() / SECTOR) as u64, bytes);
        }
        for s in stretches(at, (bytes.len() / SECTOR) as u64) {
            let source = &bytes[s.done * SECTOR..(s.done + s.count) * SECTOR];
            let block = self.block_mut(s.block);
            for (i, sector) in source.chunks_exact(SECTOR).enumerate() {
                block.set_full(s.from + i, sector);
            }
        }
    }

    /// Reads data at the payload's scale. Real bytes read this way give a value that depends on all of them.
    pub fn read_data(&self, at: u64, sectors: u64, data: &mut [u8]) {
        let unit = self.payload.unit();
        let bytes = sectors as usize * unit;
        assert_eq!(data.len(), bytes, "data of the range's length");
        if unit == 0 {
            return;
        }
        for s in stretches(at, sectors) {
            let target = &mut data[s.done * unit..(s.done + s.count) * unit];
            self.read_stretch(&s, target);
        }
    }

    fn read_stretch(&self, s: &Stretch, target: &mut [u8]) {
        let unit = self.payload.unit();
        let Some(block) = &self.blocks[s.block] else {
            return target.fill(0);
        };
        if block.data.is_empty() {
            target.fill(0);
        } else {
            target.copy_from_slice(&block.data[s.from * unit..(s.from + s.count) * unit]);
        }
        if block.pages.is_empty() {
            return;
        }
        for (i, sector) in target.chunks_exact_mut(unit).enumerate() {
            if let Some(bytes) = block.full(s.from + i) {
                sector.copy_from_slice(&squeeze(bytes).to_le_bytes());
            }
        }
    }

    /// Reads real bytes: whole sectors. Data kept as a token gives the token over and over.
    pub fn read_full(&self, at: u64, bytes: &mut [u8]) {
        if self.payload == Payload::Bytes {
            return self.read_data(at, (bytes.len() / SECTOR) as u64, bytes);
        }
        for (i, sector) in bytes.chunks_exact_mut(SECTOR).enumerate() {
            self.read_full_sector(at + i as u64, sector);
        }
    }

    fn read_full_sector(&self, at: u64, target: &mut [u8]) {
        let unit = self.payload.unit();
        let (block, sector) = ((at / BLOCK_SECTORS) as usize, (at % BLOCK_SECTORS) as usize);
        let Some(block) = &self.blocks[block] else {
            return target.fill(0);
        };
        if let Some(bytes) = block.full(sector) {
            target.copy_from_slice(bytes);
        } else if block.data.is_empty() || unit == 0 {
            target.fill(0);
        } else {
            let token = &block.data[sector * unit..(sector + 1) * unit];
            target
                .chunks_exact_mut(unit)
                .for_each(|chunk| chunk.copy_from_slice(token));
        }
    }

    /// Copies `sectors` sectors from another image, whatever they hold.
    pub fn copy_from(&mut self, from: &Image, at: u64, sectors: u64) {
        for sector in at..at + sectors {
            self.copy_sector(from, sector);
        }
    }

    fn copy_sector(&mut self, from: &Image, at: u64) {
        let index = (at % BLOCK_SECTORS) as usize;
        let unit = self.payload.unit();
        match &from.blocks[(at / BLOCK_SECTORS) as usize] {
            None => self.zero(at, 1),
            Some(block) => match block.full(index) {
                Some(bytes) => self.write_full(at, bytes),
                None if block.data.is_empty() => self.zero(at, 1),
                None => self.write_data(at, 1, &block.data[index * unit..(index + 1) * unit]),
            },
        }
    }

    /// A digest of the contents: equal images have equal digests, whatever their history.
    pub fn digest(&self) -> u64 {
        let mut digest = mix(self.sectors);
        for (index, block) in self.blocks.iter().enumerate() {
            if let Some(block) = block {
                digest =
                    digest.wrapping_add(block_digest(block, index as u64, self.payload.unit()));
            }
        }
        digest
    }
}

/// A sum over the block's sectors that hold anything but zeros.
fn block_digest(block: &Block, index: u64, unit: usize) -> u64 {
    let mut sum = 0u64;
    for sector in 0..BLOCK_SECTORS as usize {
        let key = mix(index * BLOCK_SECTORS + sector as u64);
        let bytes = match block.full(sector) {
            Some(bytes) => bytes,
            None if block.data.is_empty() => continue,
            None => &block.data[sector * unit..(sector + 1) * unit],
        };
        if bytes.iter().any(|byte| *byte != 0) {
            sum = sum.wrapping_add(words_digest(key, bytes));
        }
    }
    sum
}

/// A digest of bytes, a word at a time.
pub fn words_digest(start: u64, bytes: &[u8]) -> u64 {
    let more = |digest: u64, word: [u8; 8]| {
        let digest = (digest ^ u64::from_le_bytes(word)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        digest ^ (digest >> 29)
    };
    let (words, rest) = bytes.as_chunks();
    let mut digest = words.iter().fold(start, |digest, word| more(digest, *word));
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        digest = more(digest, word);
    }
    mix(digest)
}

/// Real bytes as a token: zeros stay zeros.
fn squeeze(bytes: &[u8]) -> u64 {
    if bytes.iter().all(|byte| *byte == 0) {
        0
    } else {
        words_digest(0, bytes).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(payload: Payload) -> Image {
        Image::new(payload, 1000)
    }

    #[test]
    fn data_reads_back_across_blocks() {
        let mut image = image(Payload::Tokens);
        let data: Vec<u8> = (0..80).collect();
        image.write_data(250, 10, &data);
        let mut back = vec![0; 12 * 8];
        image.read_data(249, 12, &mut back);
        assert_eq!(back[8..88], data);
        assert_eq!([&back[..8], &back[88..]].concat(), [0; 16]);
    }

    #[test]
    fn pages_are_real_in_every_payload() {
        for payload in [Payload::Bytes, Payload::Tokens, Payload::None] {
            let mut image = image(payload);
            let page: Vec<u8> = (0..PAGE_BYTES).map(|i| (i * 7) as u8).collect();
            image.write_full(252, &page);
            let mut back = vec![0; PAGE_BYTES];
            image.read_full(252, &mut back);
            assert_eq!(back, page);
            image.zero(253, 1);
            image.read_full(252, &mut back);
            assert_eq!(
                (&back[..512], &back[512..1024], &back[1024..]),
                (&page[..512], &[0; 512][..], &page[1024..])
            );
        }
    }

    #[test]
    fn data_replaces_a_page_and_a_page_data() {
        let mut image = image(Payload::Tokens);
        image.write_full(0, &[5; PAGE_BYTES]);
        image.write_data(1, 1, &[9; 8]);
        let mut token = [0; 8];
        image.read_data(1, 1, &mut token);
        assert_eq!(token, [9; 8]);
        image.write_full(0, &[6; PAGE_BYTES]);
        let mut page = vec![0; PAGE_BYTES];
        image.read_full(0, &mut page);
        assert_eq!(page, vec![6; PAGE_BYTES]);
    }

    #[test]
    fn copies_are_independent_and_digests_follow_contents() {
        let mut one = image(Payload::Tokens);
        one.write_data(3, 1, &[1; 8]);
        let mut two = one.clone();
        two.write_data(300, 1, &[2; 8]);
        assert_ne!(one.digest(), two.digest());
        two.zero(300, 1);
        assert_eq!(one.digest(), two.digest());
        let mut three = image(Payload::Tokens);
        three.copy_from(&one, 0, 1000);
        assert_eq!(one.digest(), three.digest());
    }
}
