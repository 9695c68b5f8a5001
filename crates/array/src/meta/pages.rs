//! Map pages: the written map, the intent map, the redirected map and the list of lost extents, one page at a time.
//!
//! Every logical page has two homes, side by side: home A for even sequences, home B for odd ones. A page is written
//! with its next sequence, so never over its newest good version, and of two good homes the higher sequence holds.

use super::bytes::{get_u16, get_u32, get_u64, put_u16, put_u32, put_u64};
use super::rules::check_counter;
use super::{MetaError, RegionKind, field, header};
use crate::contract::Page;
use crate::units::{PAGE_BYTES, PAGE_SECTORS, Uuid};

pub const MAGIC: [u8; 8] = *b"RstrpMap";

pub const HEADER_BYTES: usize = 64;
pub const BODY_BYTES: usize = PAGE_BYTES - HEADER_BYTES;
/// Words of 64 bits in the body of a bit page.
pub const WORDS_PER_PAGE: usize = BODY_BYTES / 8;
pub const BITS_PER_PAGE: u64 = WORDS_PER_PAGE as u64 * 64;
/// Bits that the intent map keeps for each region: first, for all regions, whether writes may be in flight; then, for
/// all regions, whether a missing member lacks something.
pub const INTENT_BITS: u64 = 2;

/// Bytes of one extent in a page of the lost list; a count of as many bytes' width as half of it comes first.
pub const EXTENT_BYTES: usize = 16;
pub const EXTENTS_PER_PAGE: usize = (BODY_BYTES - 8) / EXTENT_BYTES;

/// Sectors that one logical page takes in its region: both homes.
pub const HOMES_SECTORS: u64 = 2 * PAGE_SECTORS;

/// Byte offsets in a map page.
pub mod at {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 8;
    pub const KIND: usize = 10;
    pub const CRC: usize = 12;
    pub const ARRAY: usize = 16;
    pub const SEQUENCE: usize = 32;
    pub const INDEX: usize = 40;
    pub const RESERVED: usize = 44;
    pub const BODY: usize = super::HEADER_BYTES;
    pub const COUNT: usize = BODY;
    pub const EXTENTS: usize = BODY + 8;
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum MapKind {
    /// One bit per extent of rows: has it been written since the array was made?
    Written,
    /// One bit per region of rows: may its cells be out of step?
    Intent,
    /// Extents of the array whose contents are lost.
    Lost,
    /// One bit per region of rows, of the intent map's size: does some sector of it have its only current copy in the
    /// surrogate?
    Redirected,
}

impl MapKind {
    pub const ALL: [MapKind; 4] = [
        MapKind::Written,
        MapKind::Intent,
        MapKind::Lost,
        MapKind::Redirected,
    ];

    pub fn code(self) -> u16 {
        match self {
            MapKind::Written => 1,
            MapKind::Intent => 2,
            MapKind::Lost => 3,
            MapKind::Redirected => 4,
        }
    }

    /// The kind of region in which its pages lie.
    pub fn region(self) -> RegionKind {
        match self {
            MapKind::Written => RegionKind::Written,
            MapKind::Intent => RegionKind::Intent,
            MapKind::Lost => RegionKind::Lost,
            MapKind::Redirected => RegionKind::Redirected,
        }
    }
}

/// The sector at which logical page `index` of a map lies when it has this sequence.
pub fn home(region_start: u64, index: u32, sequence: u64) -> u64 {
    region_start + u64::from(index) * HOMES_SECTORS + (sequence & 1) * PAGE_SECTORS
}

/// How many logical pages a map region of this size holds.
pub fn pages_in(region_sectors: u64) -> u64 {
    region_sectors / HOMES_SECTORS
}

/// Writes a page of any map but the lost list. Bits beyond `bits` are 0.
pub fn encode_bits(
    kind: MapKind,
    array: Uuid,
    index: u32,
    sequence: u64,
    bits: &[u64],
    page: &mut Page,
) {
    assert!(kind != MapKind::Lost, "the lost list has no bits");
    assert!(
        bits.len() <= WORDS_PER_PAGE,
        "a page of bits holds {WORDS_PER_PAGE} words"
    );
    begin(kind, array, index, sequence, page);
    let (words, _) = page[at::BODY..].as_chunks_mut::<8>();
    for (place, word) in words.iter_mut().zip(bits) {
        *place = word.to_le_bytes();
    }
    header::seal(&mut page[..]);
}

/// Writes a page of the lost list: extents of (first lba, sectors).
pub fn encode_extents(
    array: Uuid,
    index: u32,
    sequence: u64,
    extents: &[(u64, u64)],
    page: &mut Page,
) {
    assert!(
        extents.len() <= EXTENTS_PER_PAGE,
        "a page holds {EXTENTS_PER_PAGE} extents"
    );
    begin(MapKind::Lost, array, index, sequence, page);
    let bytes = &mut page[..];
    put_u64(bytes, at::COUNT, extents.len() as u64);
    for (i, (lba, sectors)) in extents.iter().enumerate() {
        assert!(
            check_extent(*lba, *sectors).is_ok(),
            "a lost extent is in range"
        );
        put_u64(bytes, at::EXTENTS + i * EXTENT_BYTES, *lba);
        put_u64(bytes, at::EXTENTS + i * EXTENT_BYTES + 8, *sectors);
    }
    header::seal(&mut page[..]);
}

fn begin(kind: MapKind, array: Uuid, index: u32, sequence: u64, page: &mut Page) {
    let bytes = &mut page[..];
    header::begin(bytes, MAGIC, array);
    put_u16(bytes, at::KIND, kind.code());
    put_u64(bytes, at::SEQUENCE, sequence);
    put_u32(bytes, at::INDEX, index);
}

/// A map page that has been checked: every accessor is in range and cannot fail.
#[derive(Clone, Copy, Debug)]
pub struct PageView<'a> {
    page: &'a Page,
    kind: MapKind,
    pub sequence: u64,
}

impl<'a> PageView<'a> {
    /// The page's 64-bit words, in order; all of them. Nothing for a page of the lost list.
    pub fn words(&self) -> impl Iterator<Item = u64> + use<'a> {
        let body = match self.kind {
            MapKind::Lost => &[],
            _ => &self.page[at::BODY..],
        };
        body.as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word))
    }

    /// Bit `bit` of the page. Below [`BITS_PER_PAGE`].
    pub fn bit(&self, bit: u64) -> bool {
        assert!(bit < BITS_PER_PAGE, "a bit lies in its page");
        self.page[at::BODY + (bit / 8) as usize] >> (bit % 8) & 1 == 1
    }

    /// The extents of a page of the lost list. Nothing for a page of bits.
    pub fn extents(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let count = match self.kind {
            MapKind::Lost => get_u64(&self.page[..], at::COUNT) as usize,
            _ => 0,
        };
        let body = self.page[at::EXTENTS..].as_chunks::<EXTENT_BYTES>().0;
        body.iter()
            .take(count)
            .map(|extent| (get_u64(extent, 0), get_u64(extent, 8)))
    }
}

/// Checks a page read from a home of logical page `index` of this map.
pub fn decode(
    page: &Page,
    kind: MapKind,
    array: Uuid,
    index: u32,
) -> Result<PageView<'_>, MetaError> {
    let bytes = &page[..];
    header::check(bytes, MAGIC, array)?;
    if get_u16(bytes, at::KIND) != kind.code() || get_u32(bytes, at::INDEX) != index {
        return Err(MetaError::Misplaced);
    }
    if kind == MapKind::Lost {
        check_extents(bytes)?;
    }
    let sequence = get_u64(bytes, at::SEQUENCE);
    check_counter("map sequence", sequence)?;
    Ok(PageView {
        page,
        kind,
        sequence,
    })
}

fn check_extents(bytes: &[u8]) -> Result<(), MetaError> {
    let count = get_u64(bytes, at::COUNT);
    if count > EXTENTS_PER_PAGE as u64 {
        return field("lost extents", count);
    }
    for i in 0..count as usize {
        let extent = at::EXTENTS + i * EXTENT_BYTES;
        check_extent(get_u64(bytes, extent), get_u64(bytes, extent + 8))?;
    }
    Ok(())
}

fn check_extent(lba: u64, sectors: u64) -> Result<(), MetaError> {
    if sectors == 0 || lba.checked_add(sectors).is_none() {
        return field("lost extent sectors", sectors);
    }
    Ok(())
}

/// Of the two homes of a logical page, the one that holds; the more telling error if neither does.
pub fn newest<'a>(
    a: Result<PageView<'a>, MetaError>,
    b: Result<PageView<'a>, MetaError>,
) -> Result<PageView<'a>, MetaError> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok(if b.sequence > a.sequence { b } else { a }),
        (Ok(only), Err(_)) | (Err(_), Ok(only)) => Ok(only),
        (Err(MetaError::NotFound), Err(b)) => Err(b),
        (Err(a), Err(_)) => Err(a),
    }
}

#[cfg(test)]
mod tests {
    use super::super::FORMAT_MAJOR;
    use super::super::bytes::put;
    use super::super::testing::Random;
    use super::*;
    use crate::contract::zeroed_page;
    use alloc::vec::Vec;

    const ARRAY: Uuid = Uuid([3; 16]);

    fn dirty() -> Page {
        Page::new([0x5c; PAGE_BYTES])
    }

    fn bits_page(random: &mut Random, words: usize) -> (Vec<u64>, Page) {
        let words: Vec<u64> = (0..words).map(|_| random.next()).collect();
        let mut page = dirty();
        encode_bits(MapKind::Intent, ARRAY, 2, 17, &words, &mut page);
        (words, page)
    }

    fn lost_page(random: &mut Random, count: usize) -> (Vec<(u64, u64)>, Page) {
        let extents: Vec<(u64, u64)> = (0..count)
            .map(|_| (random.next() >> 1, 1 + random.below(1 << 40)))
            .collect();
        let mut page = dirty();
        encode_extents(ARRAY, 0, 4, &extents, &mut page);
        (extents, page)
    }

    #[test]
    fn sizes() {
        assert_eq!(BITS_PER_PAGE, 32256);
        assert_eq!(EXTENTS_PER_PAGE, 251);
        assert_eq!(home(100, 0, 6), 100);
        assert_eq!(home(100, 2, 7), 140);
        assert_eq!(pages_in(64), 4);
    }

    #[test]
    fn bits_round_trip() {
        let mut random = Random::new(1);
        for words in [0, 1, 7, 503, WORDS_PER_PAGE] {
            let (bits, page) = bits_page(&mut random, words);
            let view = decode(&page, MapKind::Intent, ARRAY, 2).unwrap();
            assert_eq!(view.sequence, 17);
            let read: Vec<u64> = view.words().collect();
            assert_eq!(read.len(), WORDS_PER_PAGE);
            assert_eq!(read[..words], bits[..]);
            assert!(read[words..].iter().all(|word| *word == 0));
            for bit in 0..BITS_PER_PAGE {
                assert_eq!(
                    view.bit(bit),
                    read[(bit / 64) as usize] >> (bit % 64) & 1 == 1
                );
            }
            assert_eq!(view.extents().count(), 0);
        }
    }

    #[test]
    fn extents_round_trip() {
        let mut random = Random::new(2);
        for count in [0, 1, 250, EXTENTS_PER_PAGE] {
            let (extents, page) = lost_page(&mut random, count);
            let view = decode(&page, MapKind::Lost, ARRAY, 0).unwrap();
            assert_eq!(view.extents().collect::<Vec<_>>(), extents);
            assert_eq!(view.words().count(), 0);
        }
    }

    #[test]
    fn every_bit_flip_is_refused() {
        let (_, page) = bits_page(&mut Random::new(3), 40);
        for bit in 0..PAGE_BYTES * 8 {
            let mut flipped = page.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(
                decode(&flipped, MapKind::Intent, ARRAY, 2).is_err(),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn torn_pages_are_refused() {
        let (_, new) = bits_page(&mut Random::new(4), WORDS_PER_PAGE);
        let (_, old) = bits_page(&mut Random::new(5), WORDS_PER_PAGE);
        for sectors in 1..8 {
            let mut torn = new.clone();
            torn[sectors * 512..].copy_from_slice(&old[sectors * 512..]);
            assert!(decode(&torn, MapKind::Intent, ARRAY, 2).is_err());
        }
    }

    #[test]
    fn pages_in_the_wrong_place_are_refused() {
        let (_, page) = bits_page(&mut Random::new(6), 4);
        let refused = |kind, array, index| decode(&page, kind, array, index).unwrap_err();
        assert_eq!(
            refused(MapKind::Intent, Uuid([4; 16]), 2),
            MetaError::OtherArray
        );
        assert_eq!(refused(MapKind::Written, ARRAY, 2), MetaError::Misplaced);
        assert_eq!(refused(MapKind::Intent, ARRAY, 1), MetaError::Misplaced);
        let blank = zeroed_page();
        assert_eq!(
            decode(&blank, MapKind::Lost, ARRAY, 0).unwrap_err(),
            MetaError::NotFound
        );
    }

    #[test]
    fn hostile_extents_with_a_good_checksum_are_refused() {
        let (_, page) = lost_page(&mut Random::new(7), 3);
        let hostile = [
            (at::COUNT, EXTENTS_PER_PAGE as u64 + 1),
            (at::COUNT, u64::MAX),
            (at::COUNT, 4),
            (at::EXTENTS, u64::MAX),
            (at::EXTENTS + 8, u64::MAX),
            (at::EXTENTS + 8, 0),
        ];
        for (offset, value) in hostile {
            let mut page = page.clone();
            put_u64(&mut page[..], offset, value);
            header::seal(&mut page[..]);
            assert!(
                decode(&page, MapKind::Lost, ARRAY, 0).is_err(),
                "{offset} {value}"
            );
        }
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut random = Random::new(8);
        for round in 0..2000 {
            let mut page = zeroed_page();
            for word in page.as_chunks_mut::<8>().0 {
                *word = random.next().to_le_bytes();
            }
            if round % 2 == 0 {
                put(&mut page[..], at::MAGIC, MAGIC);
                put_u16(&mut page[..], at::VERSION, FORMAT_MAJOR);
                put(&mut page[..], at::ARRAY, ARRAY.0);
                put_u16(&mut page[..], at::KIND, MapKind::Lost.code());
                put_u32(&mut page[..], at::INDEX, 0);
                put_u64(&mut page[..], at::COUNT, random.below(300));
                header::seal(&mut page[..]);
            }
            if let Ok(view) = decode(&page, MapKind::Lost, ARRAY, 0) {
                assert!(
                    view.extents()
                        .all(|(lba, sectors)| lba.checked_add(sectors).is_some())
                );
            }
        }
    }

    #[test]
    fn the_newer_good_home_holds() {
        let mut old = dirty();
        let mut new = dirty();
        encode_bits(MapKind::Written, ARRAY, 0, 8, &[1], &mut old);
        encode_bits(MapKind::Written, ARRAY, 0, 9, &[3], &mut new);
        fn read(page: &Page) -> Result<PageView<'_>, MetaError> {
            decode(page, MapKind::Written, ARRAY, 0)
        }
        assert_eq!(newest(read(&old), read(&new)).unwrap().sequence, 9);
        assert_eq!(newest(read(&new), read(&old)).unwrap().sequence, 9);
        new[700] ^= 1;
        assert_eq!(newest(read(&old), read(&new)).unwrap().sequence, 8);
        let blank = zeroed_page();
        assert!(matches!(
            newest(read(&blank), read(&new)).unwrap_err(),
            MetaError::Checksum { .. }
        ));
    }
}
