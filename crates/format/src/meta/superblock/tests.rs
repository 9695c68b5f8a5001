//! Superblocks through their codec: round trips, damage, hostile bytes.

use super::super::create::create;
use super::super::testing::{
    Random, any_owner, any_scrub, any_superblock, bytes_of, options, parcels, uuid,
};
use super::last_scrub::{SCRUB_MEMBERS_MAX, SCRUB_ROWS_MAX, place};
use super::*;
use crate::layout::GeometryError;
use crate::meta::Journal;
use alloc::vec;

const SEVEN_BY_SEVEN: Skew = Skew {
    groups: 7,
    partitions: 7,
};

fn reseal(bytes: &mut [u8]) {
    let crc = crc32c_without(bytes, at::CRC);
    put_u32(bytes, at::CRC, crc);
}

/// What is read of these bytes after a change under a good checksum.
fn changed(bytes: &[u8], change: impl FnOnce(&mut [u8])) -> Result<Superblock, MetaError> {
    let mut changed = bytes.to_vec();
    change(&mut changed);
    reseal(&mut changed);
    Superblock::decode(&changed)
}

/// The offset of an entry of a table in encoded bytes.
fn entry(bytes: &[u8], table: usize, index: usize) -> usize {
    let offset = get_u32(bytes, table + at::TABLE_OFFSET) as usize;
    offset + index * usize::from(get_u16(bytes, table + at::TABLE_ENTRY_BYTES))
}

#[test]
fn round_trip() {
    let mut random = Random::new(1);
    for _ in 0..500 {
        let superblock = any_superblock(&mut random);
        let bytes = bytes_of(&superblock);
        assert_eq!(bytes.len(), SUPERBLOCK_BYTES);
        assert_eq!(Superblock::decode(&bytes), Ok(superblock));
    }
}

#[test]
fn full_tables_fit() {
    let mut options = options(Level::Raid5(Default::default()), 49, 400_000);
    options.geometry.skew = Some(SEVEN_BY_SEVEN);
    let mut full = create(&options).expect("sound options").superblock;
    let beyond = full.regions.iter().map(Region::end).max().unwrap();
    let others = |region: &Region| region.kind != RegionKind::Data;
    full.regions.retain(others);
    let region = |kind, start, sectors| Region {
        kind,
        start,
        sectors,
    };
    let data = region(RegionKind::Data, beyond, 1 << 40);
    full.regions.push(data);
    for i in full.regions.len()..REGIONS_MAX {
        let start = data.end() + 8 * i as u64;
        full.regions.push(region(RegionKind::Other(500), start, 8));
    }
    let entry = full.members[0];
    for i in full.members.len()..MEMBERS_MAX {
        full.members.push(MemberEntry {
            uuid: uuid(100 + i as u16),
            ..entry
        });
    }
    // As many slots as there is room for have a line for each of their partitions.
    let split = (PLACEMENTS_MAX - full.placement.len()) / 6;
    let lines = |line: &Placement| {
        let count = if usize::from(line.slot) < split { 7 } else { 1 };
        let of = |partition| Placement { partition, ..*line };
        (0..count).map(of).collect::<Vec<Placement>>()
    };
    full.placement = full.placement.iter().flat_map(lines).collect();
    assert!(PLACEMENTS_MAX - full.placement.len() < 6);
    let task = |runs: u64| TaskRecord {
        kind: TaskKind::Check,
        slot: None,
        paused: true,
        done: (0..runs).map(|row| (row, 1)).collect(),
    };
    full.tasks = vec![task((RUNS_MAX / TASKS_MAX) as u64); TASKS_MAX];
    assert_eq!(Superblock::decode(&bytes_of(&full)), Ok(full.clone()));

    full.partner = None;
    full.buffer = BufferMark::None;
    full.lent = parcels(&full, PARCELS_MAX);
    assert_eq!(Superblock::decode(&bytes_of(&full)), Ok(full.clone()));

    // Tables that need the space of the tail drop its records and their bits.
    let bytes = bytes_of(&full);
    assert!(get_u32(&bytes, at::LENGTH) as usize > tail::TAIL_AT);
    let mut owned = full.clone();
    owned.tail.owner = Some(any_owner(&mut Random::new(2)));
    assert_eq!(bytes_of(&owned), bytes);

    full.tasks[0].done.push((100, 1));
    let (what, limit) = ("task runs", RUNS_MAX as u64);
    let count = limit + 1;
    assert_eq!(
        full.encode(),
        Err(MetaError::TooLarge { what, count, limit })
    );
}

#[test]
fn every_bit_flip_is_refused() {
    let bytes = bytes_of(&any_superblock(&mut Random::new(3)));
    let used = get_u32(&bytes, at::LENGTH) as usize;
    let sparse = (used..SUPERBLOCK_BYTES).step_by(61);
    for byte in (0..used).step_by(3).chain(sparse) {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[byte] ^= 1 << bit;
            let read = Superblock::decode(&flipped);
            assert!(read.is_err(), "byte {byte} bit {bit}");
        }
    }
}

#[test]
fn truncations_and_torn_writes_are_refused() {
    let mut random = Random::new(4);
    let old = bytes_of(&any_superblock(&mut random));
    let new = bytes_of(&any_superblock(&mut random));
    for length in (0..SUPERBLOCK_BYTES).step_by(509) {
        let refused = Superblock::decode(&new[..length]);
        assert!(matches!(refused, Err(MetaError::Truncated { .. })));
    }
    for sectors in 1..SUPERBLOCK_BYTES / 512 {
        let mut torn = new.clone();
        torn[sectors * 512..].copy_from_slice(&old[sectors * 512..]);
        let refused = Superblock::decode(&torn).is_err();
        assert!(torn == new || refused, "{sectors} sectors");
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut random = Random::new(5);
    for _ in 0..300 {
        let words = (0..SUPERBLOCK_BYTES / 8).map(|_| random.number().to_le_bytes());
        let mut bytes: Vec<u8> = words.flatten().collect();
        assert!(Superblock::decode(&bytes).is_err());
        put(&mut bytes, at::MAGIC, MAGIC);
        put_u16(&mut bytes, at::MAJOR, FORMAT_MAJOR);
        put_u64(&mut bytes, at::INCOMPATIBLE, 0);
        reseal(&mut bytes);
        assert!(Superblock::decode(&bytes).is_err());
    }
}

/// Whatever hostile bytes pass, passes the rules, and can be written again.
#[test]
fn scribbled_fields_with_a_good_checksum_are_refused_or_sound() {
    let mut random = Random::new(6);
    let mut passed = 0;
    for _ in 0..300 {
        let bytes = bytes_of(&any_superblock(&mut random));
        let used = u64::from(get_u32(&bytes, at::LENGTH));
        for _ in 0..100 {
            let mut bytes = bytes.clone();
            for _ in 0..1 + random.below(3) {
                let byte = 12 + random.below(used - 12) as usize;
                let edge = [0, 1, 0x7f, 0x80, 0xff, random.number() as u8];
                bytes[byte] = edge[random.below(6) as usize];
            }
            reseal(&mut bytes);
            if let Ok(superblock) = Superblock::decode(&bytes) {
                passed += 1;
                assert_eq!(Superblock::decode(&bytes_of(&superblock)), Ok(superblock));
            }
        }
    }
    assert!(passed > 0, "some scribbles are harmless");
}

#[test]
fn owner_counts_by_its_bit_and_within_its_range() {
    let mut superblock = unremarkable(19);
    superblock.tail.owner = Some(any_owner(&mut Random::new(19)));
    superblock.tail.last_scrub = None;
    let bytes = bytes_of(&superblock);
    assert_eq!(get_u64(&bytes, at::COMPATIBLE), 1);
    let with = |change: &dyn Fn(&mut [u8])| changed(&bytes, change);
    let owner = |field: usize| tail::places::OWNER + field;
    let interval = owner(tail::places::OWNER_INTERVAL);
    for value in [tail::INTERVAL_MS_MAX + 1, u32::MAX] {
        let found = with(&|bytes| put_u32(bytes, interval, value));
        assert_eq!(found, field("owner interval", value.into()));
    }
    let run = owner(tail::places::OWNER_RUN);
    assert!(with(&|bytes| put(bytes, run, [0; 16])).is_err());
    let reserved = owner(tail::places::OWNER_RESERVED);
    let ignored = with(&|bytes| put(bytes, reserved, [7; 12]));
    assert_eq!(ignored, Ok(superblock.clone()));

    superblock.tail.owner = None;
    let length = tail::TAIL_AT as u32 + 1;
    let tables_reach_in = with(&|bytes| put_u32(bytes, at::LENGTH, length));
    assert_eq!(tables_reach_in, Ok(superblock.clone()));
    let bit_is_clear = with(&|bytes| put_u64(bytes, at::COMPATIBLE, 0));
    assert_eq!(bit_is_clear, Ok(superblock));
}

#[test]
fn last_scrub_out_of_range_is_left_out_and_the_superblock_counts() {
    let mut superblock = unremarkable(19);
    superblock.tail.owner = None;
    superblock.tail.last_scrub = Some(any_scrub(&mut Random::new(23)));
    let sound = bytes_of(&superblock);
    assert_eq!(get_u64(&sound, at::COMPATIBLE) & 2, 2);
    let with = |at: usize, value: &[u8]| {
        let at = tail::places::LAST_SCRUB + at;
        let put = |bytes: &mut [u8]| bytes[at..at + value.len()].copy_from_slice(value);
        changed(&sound, put).map(|found| found.tail.last_scrub)
    };
    let most = u64::MAX.to_le_bytes();
    let unchanged = with(place::SCRUB_OTHERS, &[]);
    assert_eq!(unchanged, Ok(superblock.tail.last_scrub));
    for (at, value) in [
        (place::SCRUB_MODE, &[3][..]),
        (place::SCRUB_STATE, &[4]),
        (place::SCRUB_ROWS_LISTED, &[SCRUB_ROWS_MAX as u8 + 1]),
        (place::SCRUB_MEMBERS_LISTED, &[SCRUB_MEMBERS_MAX as u8 + 1]),
        (place::SCRUB_DONE, &most),
    ] {
        assert_eq!(with(at, value), Ok(None), "field at {at}");
    }
    // Every counter may have any value, and what is made of them has no overflow.
    for at in (place::SCRUB_BEGUN..place::SCRUB_FIRST_ROWS).step_by(8) {
        let Some(last) = with(at, &most).expect("the superblock counts") else {
            continue;
        };
        let _ = (last.found(), last.not_compared());
    }
}

#[test]
fn departures_count_for_failed_members_while_there_is_room() {
    let mut superblock = unremarkable(21);
    let role = MemberRole::Failed {
        stale_since: 5,
        partial: true,
    };
    let entry = superblock.members[0];
    superblock.members.push(MemberEntry {
        uuid: uuid(400),
        role,
        left_at: 9,
        ..entry
    });
    let bytes = bytes_of(&superblock);
    assert_eq!(get_u64(&bytes, at::COMPATIBLE) & 4, 4);
    assert_eq!(Superblock::decode(&bytes), Ok(superblock.clone()));
    let members = superblock.members.iter_mut();
    members.for_each(|entry| entry.left_at = 0);
    let length = left::LEFT_AT as u32 + 1;
    let reaching = changed(&bytes, |bytes| put_u32(bytes, at::LENGTH, length));
    assert_eq!(reaching, Ok(superblock));
}

#[test]
fn slot_of_a_dropped_task_counts_for_failed_members_alone() {
    let mut random = Random::new(28);
    for _ in 0..200 {
        let mut superblock = any_superblock(&mut random);
        let bytes = bytes_of(&superblock);
        for nth in 0..superblock.members.len() {
            let is_failed = matches!(superblock.members[nth].role, MemberRole::Failed { .. });
            let at = entry(&bytes, at::MEMBERS, nth) + at::MEMBER_DROPPED;
            let read = changed(&bytes, |bytes| put_u16(bytes, at, u16::MAX));
            assert_eq!(read == Ok(superblock.clone()), !is_failed, "{nth}");
            assert_eq!(read.is_err(), is_failed, "{nth}");
            if !is_failed {
                let former = superblock.members[nth].dropped_for.replace(0);
                assert_eq!(get_u16(&bytes_of(&superblock), at), 0, "{nth}");
                superblock.members[nth].dropped_for = former;
            }
        }
    }
}

/// Whatever a record holds, it is refused or sound, and can be written again.
#[test]
fn scribbled_tails_are_refused_or_sound() {
    let mut random = Random::new(20);
    let sound = bytes_of(&unremarkable(20));
    for _ in 0..1000 {
        let mut bytes = sound.clone();
        put_u64(&mut bytes, at::COMPATIBLE, random.number());
        for byte in &mut bytes[tail::TAIL_AT..] {
            *byte = [0, 0, 1, 0xff, random.number() as u8][random.below(5) as usize];
        }
        reseal(&mut bytes);
        if let Ok(superblock) = Superblock::decode(&bytes) {
            assert_eq!(Superblock::decode(&bytes_of(&superblock)), Ok(superblock));
        }
    }
}

#[test]
fn hostile_tables_are_refused() {
    let bytes = bytes_of(&any_superblock(&mut Random::new(7)));
    for table in [at::REGIONS, at::MEMBERS, at::PLACEMENT, at::TASKS, at::RUNS] {
        for offset in [0, 255, SUPERBLOCK_BYTES as u32, u32::MAX] {
            let hostile = changed(&bytes, |bytes| {
                put_u32(bytes, table + at::TABLE_OFFSET, offset);
                put_u16(bytes, table + at::TABLE_COUNT, 8);
            });
            assert!(hostile.is_err(), "table {table} at {offset}");
        }
        for (width, count) in [(0, 3), (1, 3), (u16::MAX, 8), (u16::MAX, u16::MAX)] {
            let hostile = changed(&bytes, |bytes| {
                put_u16(bytes, table + at::TABLE_ENTRY_BYTES, width);
                put_u16(bytes, table + at::TABLE_COUNT, count);
            });
            assert!(hostile.is_err(), "table {table} of {width}");
        }
    }
}

#[test]
fn versions_and_features() {
    let mut superblock = any_superblock(&mut Random::new(8));
    let bytes = bytes_of(&superblock);
    let with = |offset, value| changed(&bytes, |bytes| put_u16(bytes, offset, value));
    let (major, supported) = (2, 1);
    let refused = MetaError::Version { major, supported };
    assert_eq!(with(at::MAJOR, major), Err(refused));
    let refused = MetaError::Features { unknown: 256 };
    assert_eq!(with(at::INCOMPATIBLE, 256), Err(refused));
    assert_eq!(with(at::MINOR, 9).as_ref(), Ok(&superblock));
    // Without its bit a record of the tail is not there, and bits of a later version are ignored.
    superblock.tail = Tail::default();
    assert_eq!(with(at::COMPATIBLE, 4).as_ref(), Ok(&superblock));
    assert!(with(at::FLAGS, 16).is_err());
    assert_eq!(with(at::MAGIC, 0), Err(MetaError::NotFound));
}

/// A later minor version may lengthen the entries of a table.
#[test]
fn longer_entries_are_read_by_their_known_part() {
    let superblock = any_superblock(&mut Random::new(9));
    let mut bytes = bytes_of(&superblock);
    let length = get_u32(&bytes, at::LENGTH) as usize;
    let wide = MEMBER_BYTES + 16;
    for i in 0..superblock.members.len() {
        let old = entry(&bytes, at::MEMBERS, i);
        bytes.copy_within(old..old + MEMBER_BYTES, length + i * wide);
        bytes[length + i * wide + MEMBER_BYTES..][..16].fill(0x99);
    }
    put_u32(&mut bytes, at::MEMBERS + at::TABLE_OFFSET, length as u32);
    put_u16(&mut bytes, at::MEMBERS + at::TABLE_ENTRY_BYTES, wide as u16);
    let length = length + superblock.members.len() * wide;
    put_u32(&mut bytes, at::LENGTH, length as u32);
    reseal(&mut bytes);
    assert_eq!(Superblock::decode(&bytes), Ok(superblock));
}

fn filling(slot: u16) -> TaskRecord {
    TaskRecord {
        kind: TaskKind::Rebuild,
        slot: Some(slot),
        paused: false,
        done: Vec::new(),
    }
}

fn resync(slot: u16) -> TaskRecord {
    TaskRecord {
        kind: TaskKind::Resync,
        ..filling(slot)
    }
}

/// A slot that is filled by its task, beside another's.
#[test]
fn a_place_that_is_filled_is_sound() {
    let mut superblock = any_superblock(&mut Random::new(10));
    superblock.tasks = vec![resync(0), filling(1), filling(0)];
    let member = superblock.placement[0].member.take();
    superblock.placement[0].incoming = member;
    let filled = &mut superblock.members[usize::from(member.expect("placed"))];
    (filled.role, filled.dropped_for) = (MemberRole::Rebuilding, None);
    let read = Superblock::decode(&bytes_of(&superblock)).expect("it is sound");
    assert_eq!(read, superblock);
}

#[test]
fn unsound_values_are_neither_written_nor_read() {
    let sound = any_superblock(&mut Random::new(10));
    type Change = (&'static str, fn(&mut Superblock));
    let changes: [Change; 32] = [
        ("nil array", |s| s.array = Uuid::NIL),
        ("nil member", |s| s.member = Uuid::NIL),
        ("generation at the limit", |s| s.generation = 1 << 62),
        ("sequence at the limit", |s| s.sequence = u64::MAX),
        ("no slots", |s| s.geometry.slots = 0),
        ("too many slots", |s| s.geometry.slots = 33),
        ("no chunk", |s| s.geometry.chunk_sectors = 0),
        ("crooked chunk", |s| s.geometry.chunk_sectors = 24),
        ("huge slot", |s| s.geometry.slot_sectors = 1 << 60),
        ("logical block", |s| s.logical_block = 1024),
        ("extent rows", |s| s.extent_rows = 0),
        ("intent rows", |s| s.intent_rows = u64::MAX),
        ("member twice", |s| s.members[1].uuid = s.members[0].uuid),
        ("slot without place", |s| s.placement.truncate(2)),
        ("places out of order", |s| s.placement.swap(0, 1)),
        ("place on nobody", |s| s.placement[0].member = Some(64)),
        ("two slots on one member", |s| {
            s.placement[0].member = s.placement[1].member
        }),
        ("member comes to itself", |s| {
            s.placement[0].incoming = s.placement[0].member
        }),
        ("place that no task fills", |s| {
            s.placement[0].incoming = s.placement[0].member.take();
            s.tasks = vec![filling(1), resync(0)];
        }),
        ("place on one that is not filled", |s| {
            let member = s.placement[0].member.take();
            s.placement[0].incoming = member;
            s.members[usize::from(member.expect("placed"))].role = MemberRole::Spare;
            s.tasks = vec![filling(0)];
        }),
        ("slot that two tasks fill", |s| {
            s.tasks = vec![filling(0), filling(1), filling(0)];
        }),
        ("region beyond the end", |s| s.regions[1].sectors = u64::MAX),
        ("regions overlap", |s| s.regions[1].start = 0),
        ("small data", |s| {
            s.geometry.slot_sectors += u64::from(s.geometry.chunk_sectors)
        }),
        ("no copy B", |s| {
            s.regions.retain(|region| region.kind != RegionKind::SuperB)
        }),
        ("no lost list", |s| {
            s.regions.retain(|region| region.kind != RegionKind::Lost)
        }),
        ("no written map", |s| {
            s.regions
                .retain(|region| region.kind != RegionKind::Written)
        }),
        ("partner nil", |s| partner(s).array = Uuid::NIL),
        ("partner of itself", |s| partner(s).array = s.array),
        ("no epoch", |s| partner(s).epoch = 0),
        ("epoch at the limit", |s| partner(s).epoch = 1 << 31),
        ("session at the limit", |s| partner(s).session = 1 << 31),
    ];
    for (what, change) in changes {
        let mut unsound = sound.clone();
        change(&mut unsound);
        assert!(unsound.encode().is_err(), "{what}");
    }
}

fn partner(superblock: &mut Superblock) -> &mut Partner {
    superblock.partner.insert(Partner {
        role: PartnerRole::Main,
        array: uuid(7),
        epoch: 3,
        session: 4,
    })
}

/// A program that does not know of partners must not start either set: the one would serve old copies, the other's log
/// would be written over.
#[test]
fn a_partner_is_a_feature_that_must_be_known() {
    let mut superblock = unremarkable(14);
    superblock.partner = None;
    superblock.lent.clear();
    superblock.geometry.grown = None;
    let alone = bytes_of(&superblock);
    assert_eq!(get_u64(&alone, at::INCOMPATIBLE), 0);
    use PartnerRole::{Buffer, Main, Surrogate};
    for role in [Main, Surrogate, Buffer] {
        partner(&mut superblock).role = role;
        let bytes = bytes_of(&superblock);
        assert_eq!(get_u64(&bytes, at::INCOMPATIBLE), INCOMPATIBLE_PARTNER);
        assert_eq!(Superblock::decode(&bytes).as_ref(), Ok(&superblock));
    }
}

/// A log that has a buffer says so, and nothing else does.
#[test]
fn a_buffer_is_a_feature_that_must_be_known() {
    let mut superblock = unremarkable(16);
    superblock.lent.clear();
    for mark in [BufferMark::Idle, BufferMark::Counts] {
        superblock.buffer = mark;
        for role in [PartnerRole::Main, PartnerRole::Buffer] {
            partner(&mut superblock).role = role;
            assert!(superblock.encode().is_err(), "{role:?}");
        }
        partner(&mut superblock).role = PartnerRole::Surrogate;
        let bytes = bytes_of(&superblock);
        assert_ne!(get_u64(&bytes, at::INCOMPATIBLE) & INCOMPATIBLE_BUFFER, 0);
        assert_eq!(Superblock::decode(&bytes).as_ref(), Ok(&superblock));
        for other in [0, 3, u8::MAX] {
            let hostile = changed(&bytes, |bytes| bytes[at::BUFFER] = other);
            assert!(hostile.is_err(), "{other}");
        }
    }
}

/// Drawn from this seed or the next ones: without a feature that cannot be taken off it.
fn unremarkable(seed: u64) -> Superblock {
    let mut drawn = (seed..).map(|seed| any_superblock(&mut Random::new(seed)));
    let plain = |one: &Superblock| {
        one.reshape.is_none()
            && !one.ahead
            && one.buffer == BufferMark::None
            && !is_reed_solomon(one.geometry.level)
    };
    drawn.find(plain).expect("some are")
}

#[test]
fn hostile_partners_are_refused() {
    let mut superblock = any_superblock(&mut Random::new(15));
    superblock.lent.clear();
    superblock.buffer = BufferMark::None;
    partner(&mut superblock);
    let bytes = bytes_of(&superblock);
    let refused = |change: &dyn Fn(&mut [u8])| changed(&bytes, change).is_err();
    for role in [0, 4, u8::MAX] {
        assert!(refused(&|bytes| bytes[at::PARTNER_ROLE] = role), "{role}");
    }
    for (at, counters) in [
        (at::PARTNER_EPOCH, [0, 1 << 31, u32::MAX]),
        (at::PARTNER_SESSION, [1 << 31, 3 << 30, u32::MAX]),
    ] {
        for counter in counters {
            assert!(refused(&|bytes| put_u32(bytes, at, counter)));
        }
    }
    for array in [Uuid::NIL, superblock.array] {
        assert!(refused(&|bytes| put(bytes, at::PARTNER, array.0)));
    }
    let read = changed(&bytes, |bytes| {
        put_u64(bytes, at::INCOMPATIBLE, 0);
        bytes[at::PARTNER_ROLE] = 99;
    });
    assert_eq!(read.expect("reserved bytes are ignored").partner, None);
}

/// Partitions of a lost slot on spare partitions of others.
#[test]
fn partitions_lie_where_their_lines_say() {
    let mut options = options(Level::Raid5(Default::default()), 9, 40_000);
    options.geometry.skew = Some(Skew {
        groups: 3,
        partitions: 3,
    });
    options.spare_partitions = 2;
    let mut superblock = create(&options).expect("sound options").superblock;
    let each = superblock.geometry.partition_sectors();
    assert_eq!(superblock.geometry.slot_sectors, 3 * each);
    let spare = superblock.region(RegionKind::SparePartition);
    let spare = spare.expect("asked for");
    let data = superblock.region(RegionKind::Data).expect("always there");
    assert_eq!((spare.start, spare.sectors), (data.end(), 2 * each));

    let line = |partition, member, region| Placement {
        slot: 4,
        partition,
        member: Some(member),
        incoming: None,
        region,
        incoming_region: 0,
    };
    let lines = [line(0, 3, 1), line(1, 5, 1), line(2, 3, 2)];
    superblock.placement.splice(4..5, lines);
    let read = Superblock::decode(&bytes_of(&superblock)).expect("it is sound");
    assert_eq!(read, superblock);
    assert_eq!(read.placement_of(4, 2), Some(&lines[2]));
    let whole = read.placement_of(5, 2).map(|line| line.member);
    assert_eq!(whole, Some(Some(5)));
    assert_eq!(read.placement_of(9, 0), None);
    let place = |region, partition| read.place_in(&read.regions, region, partition);
    assert_eq!(place(0, 2), Some((data.start, 0)));
    assert_eq!(place(2, 2), Some((spare.start + each, 2 * each)));
    assert_eq!(place(3, 2), None);

    type Change = fn(&mut Superblock);
    let unsound: [(&str, Change); 6] = [
        ("no such spare partition", |s| {
            s.placement[4].region = 3;
            s.member = s.members[3].uuid;
        }),
        ("two on one", |s| s.placement[6].region = 1),
        ("one too few", |s| s.placement.truncate(10)),
        ("one twice", |s| s.placement[6].partition = 1),
        ("all of a slot in a partition", |s| {
            s.placement[0].region = 1
        }),
        ("what comes where something lies", |s| {
            (s.placement[0].incoming, s.placement[0].incoming_region) = (Some(3), 1)
        }),
    ];
    for (what, change) in unsound {
        let mut changed = superblock.clone();
        change(&mut changed);
        assert!(changed.encode().is_err(), "{what}");
    }
}

/// A program that does not know of groups would look for every row in the wrong place.
#[test]
fn a_skew_is_a_feature_that_must_be_known() {
    let mut options = options(Level::Raid5(Default::default()), 49, 40_000);
    options.geometry.skew = Some(SEVEN_BY_SEVEN);
    let superblock = create(&options).expect("sound options").superblock;
    let bytes = bytes_of(&superblock);
    assert_eq!(get_u64(&bytes, at::INCOMPATIBLE), INCOMPATIBLE_SKEWED);
    let read = Superblock::decode(&bytes).expect("it is sound");
    assert_eq!(read.geometry.skew, Some(SEVEN_BY_SEVEN));

    let reserved = changed(&bytes, |bytes| put_u64(bytes, at::INCOMPATIBLE, 0));
    assert!(reserved.is_err(), "49 slots are too many for a row");
    match changed(&bytes, |bytes| bytes[at::PARTITIONS] = 8) {
        Err(MetaError::Geometry(GeometryError::Colliding { .. })) => {}
        other => panic!("{other:?}"),
    }
}

/// A program that does not know the code would take its level for no level, and the member for a damaged one.
#[test]
fn more_than_two_parities_are_a_feature_that_must_be_known() {
    for parities in 3..=8 {
        let level = Level::ReedSolomon { parities };
        let superblock = create(&options(level, 12, 40_000)).expect("sound options");
        let superblock = superblock.superblock;
        let bytes = bytes_of(&superblock);
        assert_eq!(get_u64(&bytes, at::INCOMPATIBLE), 64);
        assert_eq!(bytes[at::LEVEL..at::LEVEL + 3], [64, 2, parities]);
        assert_eq!(Superblock::decode(&bytes), Ok(superblock));

        let with = |offset: usize, value| changed(&bytes, |bytes| bytes[offset] = value);
        let refused = |name, value| Err(MetaError::Field { name, value });
        assert_eq!(with(at::INCOMPATIBLE, 0), refused("level", 64));
        assert_eq!(with(at::LEVEL, 6), refused("level", 6));
        assert_eq!(with(at::ROTATION, 0), refused("rotation", 0));
        assert_eq!(with(at::WRITE_HOLE, 1), refused("write hole", 1));
        for parities in [0, 1, 2, 9, 255] {
            let error = GeometryError::Parities { parities };
            assert_eq!(with(at::COPIES, parities), Err(MetaError::Geometry(error)));
        }
    }
    let raid6 = create(&options(Level::Raid6(Rotation::default()), 12, 40_000));
    let bytes = bytes_of(&raid6.expect("sound options").superblock);
    let feature = INCOMPATIBLE_REED_SOLOMON;
    let claimed = changed(&bytes, |bytes| put_u64(bytes, at::INCOMPATIBLE, feature));
    assert!(claimed.is_err());
}

/// A program that does not know of growth would look for most chunks in the wrong place.
#[test]
fn a_history_is_a_feature_that_must_be_known() {
    let mut options = options(Level::Raid4, 7, 40_000);
    options.geometry.grown = History::of(&[2, 3, 6]);
    let superblock = create(&options).expect("sound options").superblock;
    let bytes = bytes_of(&superblock);
    assert_eq!(get_u64(&bytes, at::INCOMPATIBLE), INCOMPATIBLE_GROWN);
    assert_eq!(Superblock::decode(&bytes), Ok(superblock));

    let offset = usize::from(get_u16(&bytes, at::HISTORY_OFFSET));
    assert_eq!(get_u32(&bytes, offset), 0b10_0110);
    let with = |mask| changed(&bytes, |bytes| put_u32(bytes, offset, mask));
    assert_eq!(with(0), field("history", 0));
    let (slots, grown_to) = (7, 6);
    for (mask, error) in [
        (0b10_0000, GeometryError::NeverGrown),
        (0b01_0110, GeometryError::GrownSlots { slots, grown_to }),
    ] {
        assert_eq!(with(mask), Err(MetaError::Geometry(error)));
    }
    let beyond = get_u32(&bytes, at::LENGTH) as u16 - 3;
    let read = changed(&bytes, |bytes| put_u16(bytes, at::HISTORY_OFFSET, beyond));
    assert!(matches!(read, Err(MetaError::Field { name, .. }) if name == "history"));
}

/// A program that does not know of shapes would look for most chunks in the wrong place; and once rows were taken to another,
/// it would look for lost sectors in the wrong pages.
#[test]
fn a_reshape_is_a_feature_that_must_be_known() {
    let creation = create(&options(Level::Raid0, 5, 40_000));
    let mut superblock = creation.expect("sound options").superblock;
    let first_sectors = 3 * superblock.geometry.slot_sectors;
    let reshape = |former, journal| {
        Some(Reshape {
            former,
            journal,
            first_sectors,
        })
    };
    let over = reshape(None, Journal::Closed);
    let under_way = reshape(Some(3), Journal::Open);
    let unsound = [
        reshape(None, Journal::Open),
        reshape(Some(5), Journal::Closed),
        // Nobody needs what lies where row 7 will be.
        reshape(Some(3), Journal::Filled),
    ];
    superblock.reshape = over;
    let bytes = bytes_of(&superblock);
    assert_eq!(get_u64(&bytes, at::INCOMPATIBLE), INCOMPATIBLE_RESHAPED);
    assert_eq!(Superblock::decode(&bytes), Ok(superblock.clone()));
    superblock.reshape = under_way;
    assert!(superblock.encode().is_err(), "no task knows of it");
    let task = |done| TaskRecord {
        kind: TaskKind::Growth,
        slot: None,
        paused: false,
        done,
    };
    superblock.tasks = alloc::vec![task(alloc::vec![(0, 7)])];
    let read = Superblock::decode(&bytes_of(&superblock));
    assert_eq!(read, Ok(superblock.clone()));
    let layout = superblock.layout().expect("sound");
    assert_eq!((layout.edge().0, layout.former_shape()), (7, Some((3, 3))));
    for reshape in unsound {
        superblock.reshape = reshape;
        assert!(superblock.encode().is_err());
    }
    superblock.tasks = alloc::vec![task(alloc::vec![(0, 1)])];
    let sound = superblock.encode().is_ok();
    assert!(sound, "row 1 is needed where it will be");
    superblock.tasks = alloc::vec![task(alloc::vec![(0, superblock.geometry.slot_sectors)])];
    assert!(superblock.encode().is_err(), "there is no such row");
    superblock.reshape = under_way;
    superblock.tasks = alloc::vec![task(alloc::vec![(1, 7)])];
    assert!(superblock.encode().is_err(), "rows go in order");
    superblock.tasks = alloc::vec![task(alloc::vec![]), task(alloc::vec![])];
    assert!(superblock.encode().is_err(), "one at a time");
    superblock.reshape = None;
    superblock.tasks.truncate(1);
    assert!(superblock.encode().is_err(), "a growth of what?");
}

#[test]
fn a_grown_array_lends_nothing() {
    let mut options = options(Level::Raid0, 3, 40_000);
    options.geometry.grown = History::of(&[2, 3]);
    options.lend_sectors = Some(8);
    assert!(create(&options).is_err(), "its end lies in all its rows");
    options.geometry.grown = None;
    let mut superblock = create(&options).expect("sound options").superblock;
    superblock.geometry.grown = History::of(&[2, 3]);
    assert!(superblock.encode().is_err());
}

/// A program that does not know of leases must not serve what is lent to users of its own.
#[test]
fn lending_is_a_feature_that_must_be_known() {
    let mut superblock = unremarkable(16);
    superblock.partner = None;
    superblock.reshape = None;
    let reshapes = |task: &TaskRecord| task.kind == TaskKind::Growth;
    superblock.tasks.retain(|task| !reshapes(task));
    superblock.lent = parcels(&superblock, 5);
    let bytes = bytes_of(&superblock);
    assert_eq!(get_u64(&bytes, at::INCOMPATIBLE), INCOMPATIBLE_LENDS);
    let read = changed(&bytes, |bytes| put_u64(bytes, at::INCOMPATIBLE, 0));
    assert!(read.expect("reserved bytes are ignored").lent.is_empty());
    for (place, value) in [
        (at::PARCELS_OFFSET, 0),
        (at::PARCELS_OFFSET, SUPERBLOCK_BYTES as u16),
        (at::PARCELS_OFFSET, u16::MAX),
        (at::PARCELS_ENTRY_BYTES, 0),
        (at::PARCELS_ENTRY_BYTES, PARCEL_BYTES as u16 - 1),
        (at::PARCELS_ENTRY_BYTES, u16::MAX),
        (at::PARCELS_COUNT, 0),
        (at::PARCELS_COUNT, PARCELS_MAX as u16),
        (at::PARCELS_COUNT, u16::MAX),
    ] {
        let hostile = changed(&bytes, |bytes| put_u16(bytes, place, value));
        assert!(hostile.is_err(), "{value} at {place}");
    }
}

#[test]
fn unsound_runs_are_refused() {
    let mut superblock = any_superblock(&mut Random::new(11));
    let runs = [
        vec![(0, 0)],
        vec![(5, 2), (6, 1)],
        vec![(5, 1), (2, 1)],
        vec![(u64::MAX, 2)],
        vec![(0, 1 << 60)],
    ];
    for done in runs {
        superblock.tasks = vec![resync(0)];
        (superblock.tasks[0].slot, superblock.tasks[0].done) = (None, done);
        assert!(superblock.encode().is_err());
    }
}

#[test]
fn names_are_short_and_printable() {
    let mut superblock = any_superblock(&mut Random::new(12));
    let names = [
        ("", true),
        ("a\u{7}b", false),
        ("naïve", true),
        ("a\0b", false),
    ];
    for (name, good) in names {
        superblock.name = String::from(name);
        assert_eq!(superblock.encode().is_ok(), good, "{name:?}");
    }
    superblock.name = "x".repeat(33);
    assert!(superblock.encode().is_err());
    superblock.name = "x".repeat(32);
    let bytes = bytes_of(&superblock);
    assert_eq!(Superblock::decode(&bytes).unwrap().name, superblock.name);
    let cut = changed(&bytes, |bytes| bytes[at::NAME + 31] = 0xc3);
    assert_eq!(cut, field("name", 31));
}

#[test]
fn unknown_regions_are_kept() {
    let superblock = any_superblock(&mut Random::new(13));
    let read = Superblock::decode(&bytes_of(&superblock)).unwrap();
    let kinds = read.regions.iter().map(|region| region.kind);
    assert!(kinds.into_iter().any(|kind| kind == RegionKind::Other(77)));
}
