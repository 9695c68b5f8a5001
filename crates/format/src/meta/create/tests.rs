//! Arrays made of members of all kinds, and what cannot be made.

use super::super::testing::{Random, any_level, options, uuid};
use super::*;
use crate::layout::Rotation;
use crate::units::PAGE_BYTES;
use alloc::string::ToString;
use alloc::vec;

const RAID5: Level = Level::Raid5(Rotation::LeftSymmetric);

/// A member's sectors in memory, scribbled on before.
fn written(creation: &Creation, member: usize, sectors: u64) -> Vec<u8> {
    let mut bytes = vec![0xa5; (sectors * SECTOR_BYTES) as usize];
    for (_, at, content) in creation.writes.iter().filter(|(of, _, _)| *of == member) {
        let place = &mut bytes[(at * SECTOR_BYTES) as usize..];
        match content {
            Content::Page(page) => place[..PAGE_BYTES].copy_from_slice(&page[..]),
            Content::Zero(sectors) => place[..(sectors * SECTOR_BYTES) as usize].fill(0),
        }
    }
    bytes
}

fn page_at(bytes: &[u8], at: u64) -> Page {
    let start = (at * SECTOR_BYTES) as usize;
    let mut page = zeroed_page();
    page.copy_from_slice(&bytes[start..start + PAGE_BYTES]);
    page
}

fn check_maps(creation: &Creation, bytes: &[u8]) {
    let superblock = &creation.superblock;
    for kind in MapKind::ALL {
        let region = superblock.region(kind.region()).unwrap();
        for index in 0..pages::pages_in(region.sectors) as u32 {
            for sequence in 0..2 {
                let page = page_at(bytes, pages::home(region.start, index, sequence));
                let view = pages::decode(&page, kind, superblock.array, index).unwrap();
                assert_eq!(view.sequence, sequence);
                assert_eq!(view.extents().count(), 0);
                let set = kind == MapKind::Written && superblock.written_all;
                let expected = if set { u64::MAX } else { 0 };
                assert!(view.words().all(|word| word == expected));
            }
        }
    }
}

fn check_member(creation: &Creation, member: usize, bytes: &[u8]) {
    let template = &creation.superblock;
    for (kind, sequence) in [(RegionKind::SuperA, 2), (RegionKind::SuperB, 1)] {
        let at = template.region(kind).unwrap().start * SECTOR_BYTES;
        let read = Superblock::decode(&bytes[at as usize..]).unwrap();
        let mut expected = template.clone();
        (expected.member, expected.sequence) = (template.members[member].uuid, sequence);
        assert_eq!(read, expected);
    }
    if let Some(log) = template.region(RegionKind::Log) {
        let range = (log.start * SECTOR_BYTES) as usize..(log.end() * SECTOR_BYTES) as usize;
        let blank = bytes[range].iter().all(|byte| *byte == 0);
        assert!(blank, "the log is blank");
    }
    check_maps(creation, bytes);
}

#[test]
fn everything_written_reads_back() {
    let mut random = Random::new(1);
    for round in 0..60 {
        let (level, slots) = any_level(&mut random);
        let spares = random.below(3) as u16;
        let sectors = 600 + random.below(if round % 10 == 0 { 60_000 } else { 4000 });
        let mut options = options(level, slots + spares, sectors);
        options.spares = usize::from(spares);
        options.init = [Init::Written, Init::Sync, Init::Zero, Init::Trust][round % 4];
        let creation = create(&options).unwrap();
        for member in 0..options.members.len() {
            check_member(&creation, member, &written(&creation, member, sectors));
        }
    }
}

#[test]
fn init_decides_what_data_holds() {
    for init in [Init::Written, Init::Sync, Init::Zero, Init::Trust] {
        let mut options = options(RAID5, 4, 2000);
        options.spares = 1;
        options.init = init;
        let creation = create(&options).unwrap();
        let superblock = &creation.superblock;
        assert_eq!(superblock.written_all, init != Init::Written);
        assert_eq!(superblock.resync_pending, init == Init::Sync);
        assert_eq!(superblock.tasks.len(), usize::from(init == Init::Sync));
        for member in 0..4 {
            let data = superblock.region(RegionKind::Data).unwrap();
            let bytes = written(&creation, member, 2000);
            let data = [data.start, data.end()].map(|at| (at * SECTOR_BYTES) as usize);
            let zeroed = init == Init::Zero && member < 3;
            let held = if zeroed { 0 } else { 0xa5 };
            assert!(bytes[data[0]..data[1]].iter().all(|byte| *byte == held));
        }
    }
}

/// A crash between the three phases leaves either no superblock or a whole array.
#[test]
fn old_superblocks_go_first_and_new_ones_come_last() {
    let creation = create(&options(RAID5, 3, 20_000)).unwrap();
    let (wipes, rest) = creation.writes.split_at(creation.wipes);
    let (maps, seals) = rest.split_at(creation.seals - creation.wipes);
    assert_eq!(wipes.len(), 3);
    let wiped = |write: &_| matches!(write, (_, 0, Content::Zero(_)));
    assert!(wipes.iter().all(wiped));
    let is_super = |at: u64| {
        let mut regions = creation.superblock.regions.iter();
        let kind = regions.find(|r| r.start <= at && at < r.end());
        let kind = kind.map(|region| region.kind);
        matches!(kind, Some(RegionKind::SuperA | RegionKind::SuperB))
    };
    assert!(maps.iter().all(|(_, at, _)| !is_super(*at)));
    assert_eq!(seals.len(), 3 * 8);
    assert!(seals.iter().all(|(_, at, _)| is_super(*at)));
}

#[test]
fn data_starts_on_a_mebibyte_where_there_is_room() {
    for (sectors, start) in [
        (600, 512),
        (16_384, 1024),
        (32_768, 2048),
        (100_000, 4096),
        (1 << 20, 8192),
        (1 << 40, 8192),
    ] {
        let creation = create(&options(RAID5, 3, sectors)).unwrap();
        let data = creation.superblock.region(RegionKind::Data).unwrap();
        assert_eq!(data.start, start, "{sectors}");
        assert_eq!(data.end(), sectors);
        assert!(creation.superblock.region(RegionKind::Log).unwrap().sectors >= LOG_SECTORS_MIN);
    }
    let unlogged = create(&options(Level::Raid0, 3, 1 << 30)).unwrap();
    let unlogged = unlogged.superblock;
    assert_eq!(unlogged.region(RegionKind::Data).unwrap().start, 2048);
    assert_eq!(unlogged.region(RegionKind::Log), None);
}

#[test]
fn the_largest_log_and_full_maps_fit() {
    let bits = (u64::from(GENERATIONS) + INTENT_BITS + 1) * MAP_PAGES_MAX;
    let heat = crate::zones::ZONES_MAX.div_ceil(pages::ENTRIES_PER_PAGE as u64);
    let maps = (bits + LOST_PAGES + heat) * HOMES_SECTORS;
    let last = SUPER_B_PLACES[SUPER_B_PLACES.len() - 1];
    assert_eq!(SUPERBLOCK_SECTORS + maps + LOG_SECTORS_MAX, last);
}

#[test]
fn maps_have_bits_for_every_row_in_few_pages() {
    for sectors in [600, 4000, 1 << 20, 1 << 31, 1 << 37, 1 << 44] {
        let fits = |chunk: &u32| sectors > 16 * u64::from(*chunk);
        for chunk in [8, 128, 8192].into_iter().filter(fits) {
            let mut options = options(RAID5, 5, sectors + 8192);
            options.geometry.chunk_sectors = chunk;
            let creation = create(&options).unwrap();
            let rows = Layout::new(creation.geometry).unwrap().rows();
            let superblock = creation.superblock;
            let maps = [
                (RegionKind::Written, superblock.extent_rows),
                (RegionKind::Intent, superblock.intent_rows),
                (RegionKind::Redirected, superblock.intent_rows),
            ];
            for (kind, bit_rows) in maps {
                let pages = pages::pages_in(superblock.region(kind).unwrap().sectors);
                assert!((1..=8).contains(&pages));
                let bits = match kind {
                    RegionKind::Intent => INTENT_BITS,
                    _ => 1,
                };
                assert!(bits * rows.div_ceil(bit_rows) <= pages * BITS_PER_PAGE);
                assert!(bit_rows.is_power_of_two());
            }
            let heat = superblock.region(RegionKind::Heat).unwrap().sectors;
            assert!((1..=66).contains(&pages::pages_in(heat)));
        }
    }
}

#[test]
fn an_array_that_may_grow_has_room_for_four_growths() {
    for (level, sectors) in [Level::Raid0, Level::Raid4].into_iter().flat_map(|level| {
        [4000, 1 << 20, 1 << 31, 1 << 37, 1 << 44].map(|sectors| (level, sectors))
    }) {
        let superblock = create(&options(level, 5, sectors)).unwrap().superblock;
        let rows = Layout::new(superblock.geometry).unwrap().rows();
        let written = superblock.region(RegionKind::Written).unwrap();
        let room = pages::pages_in(written.sectors) * BITS_PER_PAGE;
        let extents = rows.div_ceil(superblock.extent_rows);
        assert!(5 * extents <= room, "{level:?} of {sectors}: {extents}");
    }
}

#[test]
fn a_small_array_still_has_bits_to_tell_places_apart() {
    let superblock = create(&options(RAID5, 4, 4000)).unwrap().superblock;
    let rows = Layout::new(superblock.geometry).unwrap().rows();
    let each = superblock.extent_rows;
    assert!(rows / each >= 32, "{rows} rows, {each} each");
}

#[test]
fn unequal_members_use_the_smallest_and_say_so() {
    let mut options = options(RAID5, 3, 100_000);
    options.members[1].sectors = 50_003;
    let creation = create(&options).unwrap();
    let data = creation.superblock.region(RegionKind::Data).unwrap();
    assert_eq!(data.end(), 50_000);
    let sectors = 50_000;
    let unused = [0, 2].map(|member| Note::Unused { member, sectors });
    assert_eq!(creation.notes, unused);
    assert!(creation.notes[0].to_string().contains("member 0"));
}

#[test]
fn spare_partitions_are_no_unused_space() {
    let mut options = options(RAID5, 9, 100_000);
    options.geometry.skew = Some(crate::layout::Skew {
        groups: 3,
        partitions: 3,
    });
    for spare_partitions in 0..4 {
        options.spare_partitions = spare_partitions;
        assert_eq!(create(&options).unwrap().notes, []);
    }
}

#[test]
fn the_largest_logical_block_counts() {
    let mut options = options(RAID5, 3, 2000);
    options.members[2].logical_block = 4096;
    assert_eq!(create(&options).unwrap().superblock.logical_block, 4096);
    options.logical_block = Some(512);
    let (bytes, needs) = (512, 4096);
    let refused = CreateError::LogicalBlock { bytes, needs };
    assert_eq!(create(&options).unwrap_err(), refused);
}

/// From 64 MiB on the end of every member stays free for smaller replacements; what is left free is not called unused.
#[test]
fn slack_is_left_at_the_end_unless_a_size_is_asked_for() {
    let end = |options: &CreateOptions| {
        let creation = create(options).unwrap();
        assert_eq!(creation.notes, []);
        let regions = creation.superblock.regions;
        regions.iter().map(Region::end).max().unwrap()
    };
    for (mebibytes, slack) in [
        (32, 0),
        (63, 0),
        (64, 128),
        (1 << 10, 2 << 10),
        (100 << 10, 200 << 10),
        (1 << 20, 256 << 10),
        (20 << 20, 256 << 10),
    ] {
        let sectors = mebibytes << 11;
        let mut options = options(RAID5, 3, sectors);
        let chunk = u64::from(options.geometry.chunk_sectors);
        assert!(sectors - end(&options) < chunk, "asked for by the caller");
        options.slack = true;
        assert_eq!(slack_of(sectors), slack, "{mebibytes} MiB");
        let left = sectors - end(&options);
        assert!((slack..slack + chunk).contains(&left), "{mebibytes} MiB");
        options.size_per_member = Some(sectors - (8 << 11));
        create(&options).expect("a size that is asked for is had");
    }
}

#[test]
fn slack_never_takes_the_last_chunk() {
    let mut options = options(RAID5, 3, 64 << 11);
    options.slack = true;
    options.data_offset = Some((64 << 11) - 128);
    let refused = create(&options).unwrap_err();
    let needs = (64 << 11) + u64::from(options.geometry.chunk_sectors);
    let told = CreateError::MemberTooSmall {
        member: 0,
        sectors: 64 << 11,
        needs,
    };
    assert_eq!(refused, told);
}

#[test]
fn asked_for_places_and_sizes_are_kept() {
    let mut asked = options(RAID5, 3, 300_000);
    asked.data_offset = Some(262_144);
    asked.size_per_member = Some(1001);
    asked.log_sectors = Some(1604);
    asked.extent_rows = Some(3);
    asked.intent_rows = Some(2);
    let superblock = create(&asked).unwrap().superblock;
    let data = superblock.region(RegionKind::Data).unwrap();
    assert_eq!((data.start, data.sectors), (262_144, 1000));
    assert_eq!(superblock.region(RegionKind::Log).unwrap().sectors, 1600);
    assert_eq!(superblock.region(RegionKind::SuperB).unwrap().start, 8160);
    assert_eq!((superblock.extent_rows, superblock.intent_rows), (3, 2));
    let odd = CreateOptions {
        data_offset: Some(2056),
        log_sectors: None,
        ..asked
    };
    let superblock = create(&odd).unwrap().superblock;
    assert_eq!(superblock.region(RegionKind::SuperB).unwrap().start, 2016);
}

#[test]
fn refusals_name_value_and_limit() {
    type Change = fn(&mut CreateOptions);
    let changes: [(&str, Change); 14] = [
        ("spares", |o| o.spares = 4),
        ("3 members need as many different", |o| {
            o.uuids = vec![uuid(1); 3]
        }),
        ("name", |o| o.name = "n".repeat(40)),
        ("sector 511", |o| o.data_offset = Some(511)),
        ("at least 512", |o| o.data_offset = Some(256)),
        ("this array needs at least 4104", |o| {
            o.data_offset = Some(4096)
        }),
        ("use one chunk", |o| o.size_per_member = Some(7)),
        ("use one chunk", |o| o.size_per_member = Some(u64::MAX)),
        ("log of 100", |o| o.log_sectors = Some(100)),
        ("log of", |o| o.log_sectors = Some(u64::MAX)),
        ("0 rows", |o| o.extent_rows = Some(0)),
        ("chunk of", |o| o.geometry.chunk_sectors = 0),
        ("chunk of", |o| o.geometry.chunk_sectors = u32::MAX),
        ("Journal", |o| o.write_hole = WriteHole::Journal),
    ];
    let changed = changes.map(|(expected, change)| {
        let mut options = options(RAID5, 3, 2000);
        change(&mut options);
        (expected, options)
    });
    let mut logged = options(Level::Raid1, 2, 2000);
    logged.write_hole = WriteHole::Ppl;
    let small = "500 sectors; this array needs at least 520";
    let others = [
        (small, options(RAID5, 3, 500)),
        ("0 members", options(RAID5, 0, 2000)),
        ("1 members are too few", options(RAID5, 1, 2000)),
        ("RAID-1 does not support write hole Ppl", logged),
    ];
    let cases = others.into_iter().chain(changed);
    for (expected, options) in cases {
        let said = create(&options).map(|_| ()).unwrap_err().to_string();
        let sound = said.contains(expected) || expected == "0 members" && said.contains("0");
        assert!(sound, "{expected:?} is not in {said:?}");
    }
}

#[test]
fn absurd_sizes_are_errors() {
    for sectors in [u64::MAX, 1 << 63, 1 << 60, 1 << 53, 7, 0] {
        let said = create(&options(RAID5, 5, sectors));
        assert!(said.is_err(), "{sectors} sectors");
    }
}
