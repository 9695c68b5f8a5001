//! Map pages: the written map, the intent map, the redirected map, the list of lost extents and heat, one page at a time.
//!
//! Every logical page has two homes, side by side: home A for even sequences, home B for odd ones. A page is written
//! with its next sequence, so never over its newest good version, and of two good homes the higher sequence holds.

use super::bytes::{get_u16, get_u32, get_u64, put_u16, put_u32, put_u64};
use super::rules::check_counter;
use super::{MetaError, RegionKind, field, header};
use crate::units::{PAGE_BYTES, PAGE_SECTORS, Uuid};
use crate::values::Page;

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

/// Bytes of one entry in a page of heat; what all entries are of comes first.
pub const ENTRY_BYTES: usize = 2;
pub const ENTRIES_PER_PAGE: usize = (BODY_BYTES - 16) / ENTRY_BYTES;

/// Sectors that one logical page takes in its region: both homes.
pub const HOMES_SECTORS: u64 = 2 * PAGE_SECTORS;

offsets! {
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
        pub const ENTRY_ROWS: usize = BODY;
        pub const EPOCH: usize = BODY + 8;
        pub const ENTRIES: usize = BODY + 16;
    }
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
    /// How often users read the zones of the array.
    Heat,
}

impl MapKind {
    pub const ALL: [MapKind; 5] = [
        MapKind::Written,
        MapKind::Intent,
        MapKind::Lost,
        MapKind::Redirected,
        MapKind::Heat,
    ];

    pub fn code(self) -> u16 {
        match self {
            MapKind::Written => 1,
            MapKind::Intent => 2,
            MapKind::Lost => 3,
            MapKind::Redirected => 4,
            MapKind::Heat => 5,
        }
    }

    /// The kind of region in which its pages lie.
    pub fn region(self) -> RegionKind {
        match self {
            MapKind::Written => RegionKind::Written,
            MapKind::Intent => RegionKind::Intent,
            MapKind::Lost => RegionKind::Lost,
            MapKind::Redirected => RegionKind::Redirected,
            MapKind::Heat => RegionKind::Heat,
        }
    }

    /// Whether its pages hold bits.
    pub fn has_bits(self) -> bool {
        match self {
            MapKind::Written | MapKind::Intent | MapKind::Redirected => true,
            MapKind::Lost | MapKind::Heat => false,
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

/// Writes a page of a map of bits. Bits beyond `bits` are 0.
pub fn encode_bits(
    kind: MapKind,
    array: Uuid,
    index: u32,
    sequence: u64,
    bits: &[u64],
    page: &mut Page,
) {
    assert!(kind.has_bits(), "{kind:?} has no bits");
    let fits = bits.len() <= WORDS_PER_PAGE;
    assert!(fits, "a page of bits holds {WORDS_PER_PAGE} words");
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
    let fits = extents.len() <= EXTENTS_PER_PAGE;
    assert!(fits, "a page holds {EXTENTS_PER_PAGE} extents");
    begin(MapKind::Lost, array, index, sequence, page);
    let bytes = &mut page[..];
    put_u64(bytes, at::COUNT, extents.len() as u64);
    for (i, (lba, sectors)) in extents.iter().enumerate() {
        let sound = check_extent(*lba, *sectors).is_ok();
        assert!(sound, "a lost extent is in range");
        put_u64(bytes, at::EXTENTS + i * EXTENT_BYTES, *lba);
        put_u64(bytes, at::EXTENTS + i * EXTENT_BYTES + 8, *sectors);
    }
    header::seal(&mut page[..]);
}

/// What the entries of a page of heat are of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeatScale {
    /// Rows of each entry: entry n of page i is of those from (n + i * [`ENTRIES_PER_PAGE`]) times as many on. Not 0.
    pub entry_rows: u64,
    /// How many epochs had ended, as the array counts: for each that another page is ahead, this one's entries are halved.
    pub epoch: u64,
}

/// Writes a page of heat: the popularity of each entry, as far as 12 bits tell it.
pub fn encode_heat(
    array: Uuid,
    index: u32,
    sequence: u64,
    scale: HeatScale,
    popularity: impl Iterator<Item = u32>,
    page: &mut Page,
) {
    assert!(check_scale(scale).is_ok(), "{scale:?} is in range");
    begin(MapKind::Heat, array, index, sequence, page);
    put_u64(&mut page[..], at::ENTRY_ROWS, scale.entry_rows);
    put_u64(&mut page[..], at::EPOCH, scale.epoch);
    let entries = page[at::ENTRIES..].as_chunks_mut::<ENTRY_BYTES>().0;
    for (entry, popularity) in entries.iter_mut().zip(popularity) {
        *entry = shortened(popularity).to_le_bytes();
    }
    header::seal(&mut page[..]);
}

/// Bits of a shortened number behind its first one.
const FRACTION_BITS: u32 = 11;

/// A number in 16 bits: itself below 4096, else its 12 highest bits and how many there are below. Never rounded up, so
/// that a larger number is never the shorter one.
fn shortened(number: u32) -> u16 {
    let below = (u32::BITS - number.leading_zeros()).saturating_sub(FRACTION_BITS + 1);
    let highest = number >> below;
    // Highest is below 2^12, and its first bit is there whenever `below` is not 0: added, not stored beside it.
    u16::try_from((below << FRACTION_BITS) + highest).expect("20 * 2^11 + 2^12 at most")
}

/// The number again; of bytes that no shortening gives, the largest.
fn lengthened(short: u16) -> u32 {
    let (exponent, fraction) = (short >> FRACTION_BITS, short & ((1 << FRACTION_BITS) - 1));
    let first = u64::from(exponent > 0) << FRACTION_BITS;
    let number = (first + u64::from(fraction)) << exponent.saturating_sub(1);
    u32::try_from(number).unwrap_or(u32::MAX)
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
    /// The 64-bit words of a page of bits, in order; all of them. Nothing for another page.
    pub fn words(&self) -> impl Iterator<Item = u64> + use<'a> {
        let body: &[u8] = match self.kind.has_bits() {
            true => &self.page[at::BODY..],
            false => &[],
        };
        let words = body.as_chunks::<8>().0.iter();
        words.map(|word| u64::from_le_bytes(*word))
    }

    /// Bit `bit` of the page. Below [`BITS_PER_PAGE`].
    pub fn bit(&self, bit: u64) -> bool {
        assert!(bit < BITS_PER_PAGE, "a bit lies in its page");
        self.page[at::BODY + (bit / 8) as usize] >> (bit % 8) & 1 == 1
    }

    /// A page of heat: what its entries are of, and their popularity. Nothing for another page.
    pub fn heat(&self) -> Option<(HeatScale, impl Iterator<Item = u32> + use<'a>)> {
        let entries = self.page[at::ENTRIES..].as_chunks::<ENTRY_BYTES>().0.iter();
        let popularity = entries.map(|entry| lengthened(u16::from_le_bytes(*entry)));
        (self.kind == MapKind::Heat).then(|| (scale_of(&self.page[..]), popularity))
    }

    /// The extents of a page of the lost list. Nothing for another page.
    pub fn extents(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let count = match self.kind {
            MapKind::Lost => get_u64(&self.page[..], at::COUNT) as usize,
            _ => 0,
        };
        let body = self.page[at::EXTENTS..].as_chunks::<EXTENT_BYTES>().0;
        let extents = body.iter().take(count);
        extents.map(|extent| (get_u64(extent, 0), get_u64(extent, 8)))
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
    if kind == MapKind::Heat {
        check_scale(scale_of(bytes))?;
    }
    let sequence = get_u64(bytes, at::SEQUENCE);
    check_counter("map sequence", sequence)?;
    Ok(PageView {
        page,
        kind,
        sequence,
    })
}

fn scale_of(bytes: &[u8]) -> HeatScale {
    HeatScale {
        entry_rows: get_u64(bytes, at::ENTRY_ROWS),
        epoch: get_u64(bytes, at::EPOCH),
    }
}

fn check_scale(scale: HeatScale) -> Result<(), MetaError> {
    if scale.entry_rows == 0 {
        return field("rows of a heat entry", 0);
    }
    check_counter("rows of a heat entry", scale.entry_rows)?;
    check_counter("heat epoch", scale.epoch)
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
    use crate::values::zeroed_page;
    use alloc::vec::Vec;

    const ARRAY: Uuid = Uuid([3; 16]);

    fn dirty() -> Page {
        Page::new([0x5c; PAGE_BYTES])
    }

    fn bits_page(random: &mut Random, words: usize) -> (Vec<u64>, Page) {
        let words: Vec<u64> = (0..words).map(|_| random.number()).collect();
        let mut page = dirty();
        encode_bits(MapKind::Intent, ARRAY, 2, 17, &words, &mut page);
        (words, page)
    }

    fn lost_page(random: &mut Random, count: usize) -> (Vec<(u64, u64)>, Page) {
        let extents: Vec<(u64, u64)> = (0..count)
            .map(|_| (random.number() >> 1, 1 + random.below(1 << 40)))
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
                *word = random.number().to_le_bytes();
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
    fn short_numbers_are_exact_below_4096_and_keep_their_order() {
        for number in 0..4096 {
            assert_eq!(lengthened(shortened(number)), number);
        }
        let mut random = Random::new(9);
        for _ in 0..20_000 {
            let number = (random.number() as u32) >> random.below(32);
            let other = number.wrapping_add(random.below(1 << 20) as u32);
            let (low, high) = (number.min(other), number.max(other));
            assert!(shortened(low) <= shortened(high), "{low} {high}");
            let again = lengthened(shortened(number));
            assert!(
                again <= number && number - again <= number / 2048,
                "{number}: {again}"
            );
            assert_eq!(shortened(again), shortened(number));
        }
        assert_eq!(lengthened(shortened(u32::MAX)), u32::MAX - ((1 << 20) - 1));
        assert_eq!(lengthened(u16::MAX), u32::MAX);
    }

    fn heat_page(random: &mut Random, entries: usize) -> (Vec<u32>, Page) {
        let popularity: Vec<u32> = (0..entries).map(|_| random.below(4096) as u32).collect();
        let mut page = dirty();
        let scale = HeatScale {
            entry_rows: 6,
            epoch: 19,
        };
        encode_heat(ARRAY, 1, 5, scale, popularity.iter().copied(), &mut page);
        (popularity, page)
    }

    #[test]
    fn heat_round_trips() {
        let mut random = Random::new(10);
        for entries in [0, 1, 2000, ENTRIES_PER_PAGE] {
            let (popularity, page) = heat_page(&mut random, entries);
            let view = decode(&page, MapKind::Heat, ARRAY, 1).unwrap();
            let (scale, read) = view.heat().unwrap();
            assert_eq!(
                scale,
                HeatScale {
                    entry_rows: 6,
                    epoch: 19
                }
            );
            let read: Vec<u32> = read.collect();
            assert_eq!(read.len(), ENTRIES_PER_PAGE);
            assert_eq!(read[..entries], popularity[..]);
            assert!(read[entries..].iter().all(|popularity| *popularity == 0));
            assert_eq!((view.words().count(), view.extents().count()), (0, 0));
        }
        let (_, bits) = bits_page(&mut random, 3);
        let view = decode(&bits, MapKind::Intent, ARRAY, 2).unwrap();
        assert!(view.heat().is_none());
    }

    #[test]
    fn hostile_heat_with_a_good_checksum_is_refused() {
        let (_, page) = heat_page(&mut Random::new(11), 3);
        let hostile = [
            (at::ENTRY_ROWS, 0),
            (at::ENTRY_ROWS, 1 << 62),
            (at::ENTRY_ROWS, u64::MAX),
            (at::EPOCH, 1 << 62),
        ];
        for (offset, value) in hostile {
            let mut page = page.clone();
            put_u64(&mut page[..], offset, value);
            header::seal(&mut page[..]);
            let refused = decode(&page, MapKind::Heat, ARRAY, 1).is_err();
            assert!(refused, "{offset} {value}");
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
