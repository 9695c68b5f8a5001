//! Records and anchors, page by page: round trips, damage, hostile bytes, and pages that must not change.

use super::record::{decode, encode};
use super::*;
use crate::overlay::{EXTENT_SECTORS_MAX, Extent, HOME_SECTORS_MAX, Kind, LOG_SECTORS_MAX};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use restripe_array::meta::bytes::{put, put_u16, put_u32, put_u64};
use restripe_array::{PAGE_BYTES, Page, zeroed_page};
use restripe_format::meta::random::Random;

const OWNER: LogOwner = LogOwner {
    array: Uuid([9; 16]),
    epoch: 5,
};

fn dirty() -> Page {
    Page::new([0xaa; PAGE_BYTES])
}

fn reseal(page: &mut Page) {
    header::seal(&mut page[..]);
}

/// Extents that are a shuffled and thinned cut of the main set, as a record at this place has them.
fn any_record(random: &mut Random, count: usize) -> (RecordHeader, Vec<Extent>) {
    let sequence = 1 + random.below(1 << 40);
    let at = random.below(1 << 40) * 8;
    let mut home = random.below(1 << 40);
    let mut extents: Vec<Extent> = (0..count)
        .map(|_| {
            home += random.below(3);
            let sectors = 1 + random.below(40) as u32;
            let kind = Kind::ALL[random.below(3) as usize];
            let extent = Extent {
                home,
                sectors,
                at: 0,
                sequence,
                kind,
            };
            home = extent.end();
            extent
        })
        .collect();
    for last in (1..count).rev() {
        extents.swap(last, random.below(last as u64 + 1) as usize);
    }
    let mut place = at + 8;
    for extent in &mut extents {
        extent.at = place;
        place = extent.log_end();
    }
    let header = RecordHeader {
        sequence,
        durable: random.below(sequence + 1),
        at,
        payload_sectors: extents.iter().map(|extent| extent.sectors).sum(),
        payload_crc: random.number() as u32,
    };
    (header, extents)
}

fn record_page(random: &mut Random, count: usize) -> (RecordHeader, Page) {
    let (header, extents) = any_record(random, count);
    let mut page = dirty();
    encode(&OWNER, &header, &extents, &mut page);
    (header, page)
}

fn refused(page: &Page, at: u64) -> MetaError {
    decode(&OWNER, at, page).expect_err("refused")
}

#[test]
fn records_round_trip() {
    let mut random = Random::new(1);
    for round in 0..1000 {
        let count = 1 + round % EXTENTS_MAX;
        let (header, extents) = any_record(&mut random, count);
        let mut page = dirty();
        encode(&OWNER, &header, &extents, &mut page);
        let view = decode(&OWNER, header.at, &page).unwrap();
        assert_eq!(view.header, header);
        assert_eq!(view.extents().collect::<Vec<_>>(), extents);
    }
}

#[test]
fn records_reach_their_limits() {
    assert_eq!(EXTENTS_MAX, 250);
    let extents = |count: u64| {
        let largest = |index: u64| Extent {
            home: HOME_SECTORS_MAX - (index + 1) * u64::from(EXTENT_SECTORS_MAX),
            sectors: EXTENT_SECTORS_MAX,
            at: 8 + index * u64::from(EXTENT_SECTORS_MAX),
            sequence: 1,
            kind: Kind::Also,
        };
        (0..count).map(largest).collect::<Vec<_>>()
    };
    let header = RecordHeader {
        sequence: 1,
        durable: 1,
        at: 0,
        payload_sectors: 250 << 20,
        payload_crc: 0,
    };
    let mut page = dirty();
    encode(&OWNER, &header, &extents(250), &mut page);
    let view = decode(&OWNER, 0, &page).unwrap();
    assert!(view.extents().eq(extents(250)));
}

#[test]
fn every_bit_flip_of_a_record_is_refused() {
    let (header, page) = record_page(&mut Random::new(2), 100);
    for bit in 0..PAGE_BYTES * 8 {
        let mut flipped = page.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&OWNER, header.at, &flipped).is_err(), "bit {bit}");
    }
}

#[test]
fn torn_records_are_refused() {
    let mut random = Random::new(3);
    let (header, new) = record_page(&mut random, EXTENTS_MAX);
    let (_, old) = record_page(&mut random, EXTENTS_MAX);
    for sectors in 1..8 {
        let mut torn = new.clone();
        torn[sectors * 512..].copy_from_slice(&old[sectors * 512..]);
        assert!(decode(&OWNER, header.at, &torn).is_err());
    }
}

#[test]
fn records_of_others_are_told_apart() {
    let (header, page) = record_page(&mut Random::new(4), 3);
    assert_eq!(refused(&zeroed_page(), header.at), MetaError::NotFound);
    assert_eq!(refused(&page, header.at + 8), MetaError::Misplaced);
    let other = |owner: LogOwner| decode(&owner, header.at, &page).expect_err("another's");
    let epoch = MetaError::Field {
        name: "overlay epoch",
        value: 5,
    };
    assert_eq!(other(LogOwner { epoch: 6, ..OWNER }), epoch);
    let array = Uuid([8; 16]);
    assert_eq!(other(LogOwner { array, ..OWNER }), MetaError::OtherArray);
}

/// Two extents, of 16 and 8 sectors, the second behind the first in the main set.
fn small_record() -> Page {
    let extent = |home, sectors, at, kind| Extent {
        home,
        sectors,
        at,
        sequence: 7,
        kind,
    };
    let header = RecordHeader {
        sequence: 7,
        durable: 5,
        at: 64,
        payload_sectors: 24,
        payload_crc: 0x1234_5678,
    };
    let extents = [
        extent(100, 16, 72, Kind::Instead),
        extent(116, 8, 88, Kind::Clean),
    ];
    let mut page = dirty();
    encode(&OWNER, &header, &extents, &mut page);
    page
}

/// The small record, with eight bytes changed.
fn hostile_record(offset: usize, value: u64) -> MetaError {
    let mut page = small_record();
    put_u64(&mut page[..], offset, value);
    reseal(&mut page);
    refused(&page, 64)
}

#[test]
fn hostile_records_with_a_good_checksum_are_refused() {
    use record::at;
    const SECOND: usize = at::EXTENTS + record::EXTENT_BYTES;
    let sized = |sectors: u64, kind: u64| kind << 32 | sectors;
    let fields = [
        (at::SEQUENCE, 0, "record durable"),
        (at::SEQUENCE, 4, "record durable"),
        (at::SEQUENCE, u64::MAX, "record sequence"),
        (at::DURABLE, u64::MAX, "record durable"),
        (at::PAYLOAD_SECTORS, 23, "record payload sectors"),
        (at::PAYLOAD_SECTORS, 0, "record payload sectors"),
        (at::RESERVED, 1 << 63, "record reserved"),
        (at::EXTENTS - 8, 1, "record reserved"),
        (SECOND, 115, "record extent home"),
        (SECOND, 93, "record extent home"),
        (SECOND, 100, "record extent home"),
        (SECOND, HOME_SECTORS_MAX - 7, "record extent home"),
        (SECOND, u64::MAX - 3, "record extent home"),
        (SECOND + 8, sized(0, 1), "record extent home"),
        (SECOND + 8, sized((1 << 20) + 1, 1), "record extent home"),
        (SECOND + 8, sized(0xffff_ffff, 1), "record extent home"),
        (SECOND + 8, sized(7, 1), "record payload sectors"),
        (SECOND + 8, sized(8, 0), "record extent kind"),
        (SECOND + 8, sized(8, 4), "record extent kind"),
        (SECOND + 8, sized(8, 0x101), "record extent reserved"),
        (SECOND + 16, 1, "record unused extents"),
        (PAGE_BYTES - 8, 1 << 56, "record unused extents"),
    ];
    for (offset, value, expected) in fields {
        let found = hostile_record(offset, value);
        let named = matches!(found, MetaError::Field { name, .. } if name == expected);
        assert!(named, "{value:x} at {offset}: {found}");
    }
    assert_eq!(hostile_record(at::AT, 65), MetaError::Misplaced);
}

#[test]
fn hostile_counts_of_extents_are_refused() {
    let (header, page) = record_page(&mut Random::new(5), EXTENTS_MAX);
    for count in (0..EXTENTS_MAX as u16).chain([251, 252, 4096, u16::MAX]) {
        let mut page = page.clone();
        put_u16(&mut page[..], record::at::COUNT, count);
        reseal(&mut page);
        assert!(decode(&OWNER, header.at, &page).is_err(), "{count}");
    }
}

/// A place that is odd or beyond the log's sectors is refused though header and caller agree on it.
#[test]
fn hostile_places_are_refused() {
    let (_, page) = record_page(&mut Random::new(6), 2);
    for place in [4, LOG_SECTORS_MAX, LOG_SECTORS_MAX - 8, u64::MAX - 7] {
        let mut page = page.clone();
        put_u64(&mut page[..], record::at::AT, place);
        reseal(&mut page);
        let name = |error| matches!(error, MetaError::Field { .. });
        assert!(name(refused(&page, place)), "{place}");
    }
}

#[test]
fn random_records_never_panic_and_stay_in_range() {
    let mut random = Random::new(7);
    let (header, sound) = record_page(&mut random, 6);
    let mut met = 0;
    for _ in 0..20_000 {
        let mut page = sound.clone();
        for _ in 0..1 + random.below(4) {
            let place = 40 + random.below(152) as usize;
            page[place] = random.number() as u8;
        }
        put_u64(&mut page[..], record::at::AT, header.at);
        reseal(&mut page);
        if let Ok(view) = decode(&OWNER, header.at, &page) {
            met += 1;
            let extents: Vec<Extent> = view.extents().collect();
            let mut again = dirty();
            encode(&OWNER, &view.header, &extents, &mut again);
            assert!(page == again, "what is taken is written alike");
        }
    }
    assert!(met > 100, "{met} were sound");
}

#[test]
fn random_pages_never_panic() {
    let mut random = Random::new(8);
    let layout = layout(300);
    for round in 0..4000 {
        let mut page = zeroed_page();
        for word in page.as_chunks_mut::<8>().0 {
            *word = random.number().to_le_bytes();
        }
        let magic = [record::MAGIC, anchor::MAGIC][round % 2];
        let array = [OWNER.array, Uuid::NIL][round / 2 % 2];
        put(&mut page[..], 0, magic);
        put_u16(&mut page[..], 8, 1);
        put(&mut page[..], 16, array.0);
        put_u64(&mut page[..], EPOCH, OWNER.epoch);
        reseal(&mut page);
        assert!(decode(&OWNER, 0, &page).is_err());
        let homes = vec![Some(page); 4];
        assert!(AnchorTable::load(OWNER, layout, &homes).is_err());
    }
}

#[test]
#[should_panic(expected = "extents make the payload")]
fn a_record_is_not_written_with_extents_astray() {
    let (header, mut extents) = any_record(&mut Random::new(9), 2);
    extents[1].at += 1;
    encode(&OWNER, &header, &extents, &mut dirty());
}

fn layout(segments: u64) -> LogLayout {
    let region = LogRegion {
        start: 1000,
        sectors: segments.div_ceil(248) * 16 + segments * 64,
    };
    region.cut(64).unwrap()
}

/// A log set's anchors: both places of each.
struct Homes(Vec<Option<Page>>);

impl Homes {
    fn of(layout: &LogLayout) -> Homes {
        Homes(vec![Some(zeroed_page()); 2 * layout.anchors() as usize])
    }

    fn place(layout: &LogLayout, sector: u64) -> usize {
        ((sector - layout.anchor_home(0, 0)) / 8) as usize
    }

    /// Writes all changed anchors, and returns their places.
    fn write(&mut self, table: &mut AnchorTable) -> Vec<usize> {
        let mut written = Vec::new();
        while let Some(index) = table.changed() {
            let mut page = dirty();
            let sector = table.encode(index, &mut page);
            table.written(index);
            written.push(Homes::place(table.layout(), sector));
            self.0[written[written.len() - 1]] = Some(page);
        }
        written
    }

    fn load(&self, layout: LogLayout) -> Result<AnchorTable, AnchorError> {
        AnchorTable::load(OWNER, layout, &self.0)
    }
}

/// A table with something in every entry, its anchors, and a model of the valid records.
fn any_table(random: &mut Random, segments: u64) -> (AnchorTable, Homes) {
    let layout = layout(segments);
    let mut table = AnchorTable::new(OWNER, layout);
    let mut homes = Homes::of(&layout);
    homes.write(&mut table);
    for _ in 0..segments * 3 {
        let segment = random.below(segments) as u32;
        table.flushed(random.below(1 << 30));
        let below = random.below(table.durable() + 1);
        match random.flag() {
            true => table.make_obsolete(segment, below),
            false => table.close(segment, below),
        }
        if random.below(20) == 0 {
            homes.write(&mut table);
        }
    }
    homes.write(&mut table);
    (table, homes)
}

fn assert_same(one: &AnchorTable, other: &AnchorTable) {
    for segment in 0..one.layout().segments() {
        assert_eq!(one.end(segment), other.end(segment), "{segment}");
        assert_eq!(
            one.is_obsolete(segment),
            other.is_obsolete(segment),
            "{segment}"
        );
        for sequence in (0..64).map(|bit| 1 << bit) {
            let counts = |table: &AnchorTable| table.counts(segment, sequence);
            assert_eq!(counts(one), counts(other), "{sequence} in {segment}");
        }
    }
}

#[test]
fn anchors_round_trip() {
    let mut random = Random::new(11);
    for segments in [2, 247, 248, 249, 496, 700] {
        let (table, homes) = any_table(&mut random, segments);
        let loaded = homes.load(*table.layout()).unwrap();
        assert_same(&table, &loaded);
        assert_eq!(loaded.changed(), None);
    }
}

#[test]
fn an_entry_says_what_counts() {
    let mut table = AnchorTable::new(OWNER, layout(4));
    let counted = |table: &AnchorTable| -> Vec<u64> {
        let counts = |sequence: &u64| table.counts(2, *sequence);
        (1..20).filter(counts).collect()
    };
    let from = |first: u64| (first..20).collect::<Vec<_>>();
    assert_eq!(counted(&table), from(1));
    table.flushed(10);
    table.make_obsolete(2, 4);
    table.make_obsolete(2, 3);
    assert_eq!(counted(&table), from(4));
    table.close(2, 6);
    assert_eq!((counted(&table), table.end(2)), (vec![4, 5], Some(6)));
    table.make_obsolete(2, 5);
    assert_eq!(counted(&table), [5]);
    table.make_obsolete(2, 6);
    assert_eq!((counted(&table), table.end(2)), (from(10), None), "D is 10");
    table.close(2, 10);
    assert!(table.is_obsolete(2) && counted(&table).is_empty());
    let mut homes = Homes::of(table.layout());
    homes.write(&mut table);
    table.begin(15);
    assert_eq!((counted(&table), table.is_obsolete(2)), (from(15), false));
    assert_eq!(table.durable(), 15);
    table.close(3, 12);
    table.make_all_obsolete(14);
    assert_eq!((counted(&table), table.end(3)), (from(15), None));
    assert!(table.counts(0, 14) && !table.counts(0, 13));
    assert!(table.counts(3, 15) && !table.counts(3, 14), "D is 15");
}

/// Places alternate. Whatever happens to the newer version, the older one is valid.
#[test]
fn a_torn_anchor_leaves_the_one_before() {
    let layout = layout(300);
    let mut table = AnchorTable::new(OWNER, layout);
    let mut homes = Homes::of(&layout);
    assert_eq!(homes.write(&mut table), [1, 3]);
    for sequence in 1..10 {
        table.flushed(sequence);
        table.make_obsolete(270, sequence);
        let home = 2 + usize::from(sequence % 2 == 0);
        let before = homes.0[home].clone();
        assert_eq!(homes.write(&mut table), [home]);
        let newest = homes.0[home].clone().expect("just written");
        let mut torn = newest.clone();
        torn[512..].copy_from_slice(&before.expect("there")[512..]);
        torn[9] ^= 1;
        for (content, expected) in [
            (None, sequence - 1),
            (Some(torn), sequence - 1),
            (Some(newest), sequence),
        ] {
            homes.0[home] = content;
            let found = homes.load(layout).unwrap();
            let voided = (0..100).find(|sequence| found.counts(270, *sequence));
            assert_eq!(voided, Some(expected));
            assert_eq!(found.durable(), expected.max(1));
        }
    }
}

#[test]
fn an_anchor_without_a_sound_home_is_named() {
    let (table, mut homes) = any_table(&mut Random::new(12), 700);
    let layout = *table.layout();
    let error = |homes: &Homes| homes.load(layout).err().expect("refused");
    let cause = |cause| AnchorError { index: 1, cause };
    homes.0[2] = None;
    homes.0[3] = None;
    assert_eq!(error(&homes), cause(None));
    homes.0[3] = Some(zeroed_page());
    assert_eq!(error(&homes), cause(Some(MetaError::NotFound)));
    homes.0[2] = homes.0[4].clone();
    assert_eq!(error(&homes), cause(Some(MetaError::Misplaced)));
    homes.0.swap(2, 3);
    assert_eq!(error(&homes), cause(Some(MetaError::Misplaced)));
    let text = format!("{}", error(&homes));
    assert!(
        text.starts_with("anchor 1 of the overlay's log: "),
        "{text}"
    );
}

#[test]
fn every_bit_flip_of_an_anchor_is_refused() {
    let (table, mut homes) = any_table(&mut Random::new(13), 2);
    let layout = *table.layout();
    homes.0[1] = None;
    let sound = homes.0[0].clone().expect("there");
    for bit in 0..PAGE_BYTES * 8 {
        let mut flipped = sound.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        homes.0[0] = Some(flipped);
        assert!(homes.load(layout).is_err(), "bit {bit}");
    }
    homes.0 = vec![None, Some(sound)];
    let misplaced = homes.load(layout).err().expect("an even version");
    assert_eq!(misplaced.cause, Some(MetaError::Misplaced));
}

#[test]
fn a_log_of_another_shape_or_epoch_is_refused() {
    let (table, homes) = any_table(&mut Random::new(14), 20);
    let name = |owner: LogOwner, layout: LogLayout| {
        let error = AnchorTable::load(owner, layout, &homes.0)
            .err()
            .expect("refused");
        match error.cause {
            Some(MetaError::Field { name, .. }) => name,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(name(OWNER, layout(21)), "segments");
    let region = LogRegion {
        start: 1000,
        sectors: 16 + 20 * 72,
    };
    assert_eq!(name(OWNER, region.cut(72).unwrap()), "segment sectors");
    let later = LogOwner { epoch: 6, ..OWNER };
    assert_eq!(name(later, *table.layout()), "overlay epoch");
}

/// Of four segments: one closed, one obsolete, two untouched.
fn small_anchor() -> Page {
    let mut table = AnchorTable::new(OWNER, layout(4));
    table.flushed(30);
    table.make_obsolete(0, 10);
    table.close(0, 20);
    table.make_obsolete(1, 25);
    let mut page = dirty();
    assert_eq!(table.encode(0, &mut page), 1008);
    page
}

#[test]
fn hostile_anchors_with_a_good_checksum_are_refused() {
    use anchor::at;
    let layout = layout(4);
    let mut homes = Homes::of(&layout);
    let sound = small_anchor();
    let fields = [
        (at::PAGE_VERSION, 1 << 61 | 1, "anchor version"),
        (at::DURABLE, 1 << 62, "anchor durable"),
        (at::DURABLE, 9, "segment void below"),
        (at::DURABLE, 19, "segment end"),
        (at::INDEX, 2 << 32, "anchors"),
        (at::SEGMENT_SECTORS, 4 << 32, "segment sectors"),
        (at::SEGMENT_SECTORS, 5 << 32 | 64, "segments"),
        (at::RESERVED, 1, "anchor reserved"),
        (at::ENTRIES - 8, 1 << 63, "anchor reserved"),
        (at::ENTRIES, 21, "segment end"),
        (at::ENTRIES, u64::MAX, "segment void below"),
        (at::ENTRIES + 8, 9, "segment end"),
        (at::ENTRIES + 8, u64::MAX, "segment end"),
        (at::ENTRIES + 4 * 16, 1, "anchor unused entries"),
        (PAGE_BYTES - 8, 1 << 63, "anchor unused entries"),
    ];
    for (offset, value, expected) in fields {
        let mut page = sound.clone();
        put_u64(&mut page[..], offset, value);
        reseal(&mut page);
        homes.0[1] = Some(page);
        let found = homes.load(layout).err().expect("refused").cause;
        let named = matches!(found, Some(MetaError::Field { name, .. }) if name == expected);
        assert!(named, "{value:x} at {offset}: {found:?}");
    }
    let mut page = sound;
    put_u32(&mut page[..], at::INDEX, 1);
    reseal(&mut page);
    homes.0[1] = Some(page);
    let found = homes.load(layout).err().expect("refused");
    assert_eq!(found.cause, Some(MetaError::Misplaced));
}

#[test]
#[should_panic(expected = "one write of an anchor at a time")]
fn an_anchor_is_not_written_over_its_older_home_too_early() {
    let mut table = AnchorTable::new(OWNER, layout(4));
    table.encode(0, &mut dirty());
    table.encode(0, &mut dirty());
}

#[test]
fn an_anchor_under_way_waits_with_its_changes() {
    let mut table = AnchorTable::new(OWNER, layout(300));
    let first = table.changed().expect("new");
    table.encode(first, &mut dirty());
    assert_eq!(table.changed(), Some(1));
    table.flushed(5);
    table.make_obsolete(0, 5);
    assert_eq!(table.changed(), Some(1), "the first is under way");
    table.written(first);
    assert_eq!(table.changed(), Some(0));
}

/// The bytes that have a meaning, 16 a line; all behind them are zeros.
fn lines(page: &Page) -> Vec<String> {
    let used = PAGE_BYTES - page.iter().rev().take_while(|byte| **byte == 0).count();
    let line = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    page[..used].chunks(16).map(line).collect()
}

/// Log sets have these bytes already: a change of them is a change of the format.
#[test]
fn the_format_stays() {
    let record = [
        "52737472704f766c010002000d646b0d",
        "09090909090909090909090909090909",
        "05000000000000000700000000000000",
        "05000000000000004000000000000000",
        "18000000785634120000000000000000",
        "00000000000000000000000000000000",
        "64000000000000001000000001000000",
        "74000000000000000800000003",
    ];
    assert_eq!(lines(&small_record()), record);
    let anchor = [
        "5273747270416e63010000003e2c0494",
        "09090909090909090909090909090909",
        "05000000000000000100000000000000",
        "1e000000000000000000000001000000",
        "40000000040000000000000000000000",
        "00000000000000000000000000000000",
        "00000000000000000000000000000000",
        "00000000000000000000000000000000",
        "0a000000000000001400000000000000",
        "19",
    ];
    assert_eq!(lines(&small_anchor()), anchor);
}
