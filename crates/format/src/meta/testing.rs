//! What the tests of this folder share.

use super::leases::PARCELS_MAX;
pub use super::random::Random;
use super::superblock::last_scrub::{Finding, LastScrub};
use super::{
    ArrayOwner, BufferMark, CreateOptions, Journal, Lease, LeaseName, MemberRole, Parcel, Partner,
    PartnerRole, Region, RegionKind, Reshape, Superblock, TaskRecord, WriteHole, create::create,
};
use crate::layout::scaled::History;
use crate::layout::{Layout, Level, Rotation};
use crate::units::Uuid;
use crate::values::{Cure, MemberInfo, ScrubMode, TaskKind};
use alloc::vec::Vec;
use alloc::{format, vec};

/// A uuid that is told apart from others by its number.
pub fn uuid(number: u16) -> Uuid {
    let mut bytes = [0xee; 16];
    bytes[..2].copy_from_slice(&number.to_le_bytes());
    Uuid(bytes)
}

pub const INFO: MemberInfo = MemberInfo {
    sectors: 40_000,
    logical_block: 512,
    trim_zeroes: true,
    fast_zero: true,
    volatile: false,
};

/// Options for an array of so many equal members.
pub fn options(level: Level, members: u16, sectors: u64) -> CreateOptions {
    let mut options = CreateOptions::new("array", uuid(999), level, 8);
    options.members = vec![MemberInfo { sectors, ..INFO }; usize::from(members)];
    options.uuids = (0..members).map(uuid).collect();
    options
}

/// Every kind of level, with slots that suit it.
pub fn any_level(random: &mut Random) -> (Level, u16) {
    let rotation = Rotation::ALL[random.below(6) as usize];
    let slots = 4 + random.below(9) as u16;
    let level = match random.below(7) {
        0 => Level::Raid0,
        1 => Level::Raid1,
        2 => Level::Raid4,
        3 => Level::Raid5(rotation),
        4 => Level::Raid6(rotation),
        5 => Level::ReedSolomon { parities: 3 },
        _ => Level::Raid10 {
            copies: 2 + random.below(2) as u8,
        },
    };
    (level, slots)
}

fn any_partner(random: &mut Random, superblock: &mut Superblock) {
    use PartnerRole::{Buffer, Main, Surrogate};
    superblock.partner = random.flag().then(|| Partner {
        role: [Main, Surrogate, Buffer][random.below(3) as usize],
        array: uuid(random.below(900) as u16),
        epoch: 1 + random.below(1 << 30) as u32,
        session: random.below(1 << 30) as u32,
    });
    let marks = [BufferMark::None, BufferMark::Idle, BufferMark::Counts];
    superblock.buffer = match superblock.partner.map(|partner| partner.role) {
        Some(Surrogate) => marks[random.below(3) as usize],
        _ => BufferMark::None,
    };
}

/// A sound superblock with every table filled in some way.
pub fn any_superblock(random: &mut Random) -> Superblock {
    let (level, slots) = any_level(random);
    let spares = random.below(5) as u16;
    let mut options = options(level, slots + spares, 3000 + random.below(1 << 24));
    options.spares = usize::from(spares);
    options.geometry.grown = any_history(random, level, slots);
    let mut superblock = create(&options).expect("sound options").superblock;
    superblock.generation = random.below(1 << 40);
    superblock.sequence = random.below(1 << 40);
    superblock.forced = random.below(1 << 40);
    superblock.created = random.number();
    superblock.log_floor = random.below(1 << 40);
    superblock.clean = random.flag();
    superblock.written_all = random.flag();
    superblock.resync_pending = random.flag();
    superblock.ahead = random.flag() && level.mirrors();
    superblock.name = "ä".repeat(random.below(17) as usize);
    let ends = superblock.regions.iter().map(Region::end);
    let beyond = ends.max().expect("regions");
    superblock.regions.push(Region {
        kind: RegionKind::Other(77),
        start: beyond,
        sectors: 8,
    });
    superblock.member = superblock.members[random.below(slots.into()) as usize].uuid;
    for member in &mut superblock.members {
        member.role = any_role(random);
        member.current_since = random.below(1 << 40);
        member.log_floor = random.below(1 << 40);
        member.read_errors = random.number() as u32;
        let dropped_for = random.flag().then(|| random.below(slots.into()) as u16);
        member.dropped_for =
            dropped_for.filter(|_| matches!(member.role, MemberRole::Failed { .. }));
    }
    any_partner(random, &mut superblock);
    for _ in 0..random.below(9) {
        let task = any_task(random, &superblock);
        // A task that fills has a slot, which no other task fills.
        let mut others = superblock.tasks.iter().filter_map(TaskRecord::filled_slot);
        let taken = others.any(|slot| task.filled_slot() == Some(slot));
        let is_whole = !task.kind.fills() || task.slot.is_some();
        if is_whole && !taken {
            superblock.tasks.push(task);
        }
        superblock.tasks.truncate(8);
    }
    superblock.reshape = any_reshape(random, &superblock);
    superblock.tail.owner = random.flag().then(|| any_owner(random));
    superblock.tail.last_scrub = random.flag().then(|| any_scrub(random));
    if let Some(reshape) = superblock.reshape.filter(|one| one.former.is_some()) {
        superblock.tasks.truncate(7);
        superblock.tasks.push(task_of_reshape(random, &reshape));
        superblock.partner = None;
        superblock.buffer = BufferMark::None;
        return superblock;
    }
    if superblock.partner.is_none() && superblock.geometry.grown.is_none() {
        let most = 1 + random.below(PARCELS_MAX as u64) as usize;
        superblock.lent = parcels(&superblock, most);
        superblock.lent.drain(..random.below(most as u64) as usize);
    }
    superblock
}

/// Behind the first row few are needed where they will be: the journal has that one.
fn task_of_reshape(random: &mut Random, reshape: &Reshape) -> TaskRecord {
    let done = match reshape.journal {
        Journal::Filled => vec![],
        Journal::Closed | Journal::Open => vec![(0, 1 + random.below(3))],
    };
    TaskRecord {
        kind: TaskKind::Growth,
        slot: None,
        paused: random.flag(),
        done,
    }
}

/// Of every other array that can take another shape, or have taken one.
fn any_reshape(random: &mut Random, superblock: &Superblock) -> Option<Reshape> {
    let geometry = &superblock.geometry;
    let shaped = matches!(
        geometry.level,
        Level::Raid0 | Level::Raid4 | Level::Raid5(_) | Level::Raid6(_)
    );
    if !shaped || geometry.grown.is_some() || random.flag() {
        return None;
    }
    let logged = geometry.level == Level::Raid0 || superblock.write_hole == WriteHole::Ppl;
    let journals = [Journal::Closed, Journal::Open, Journal::Filled];
    let former = (logged && random.flag()).then(|| geometry.slots - 1);
    let journal = former.map_or(Journal::Closed, |_| journals[random.below(3) as usize]);
    Some(Reshape {
        former,
        journal,
        first_sectors: geometry.chunk_sectors.into(),
    })
}

/// Of two arrays in three that can have grown: how they came to have so many slots.
fn any_history(random: &mut Random, level: Level, slots: u16) -> Option<History> {
    let grows = matches!(level, Level::Raid0 | Level::Raid4) && random.below(3) > 0;
    let last = slots - level.parities();
    let before = random.below(1 << (last - 1)) as u32;
    let mask = before | 1 << (last - 1);
    History::of_mask(mask).filter(|history| grows && history.last().is_some())
}

/// A sound table of so many parcels, one row each but for the last; every third is free.
pub fn parcels(superblock: &Superblock, count: usize) -> Vec<Parcel> {
    let layout = Layout::new(superblock.geometry).expect("sound");
    let (row, size) = (layout.row_sectors(), layout.size_sectors());
    let parcel = |index: usize| {
        let start = (1 + index as u64) * row;
        let name = LeaseName::new(&format!("lease{index}")).expect("short");
        let borrower = index.is_multiple_of(2).then_some(uuid(900 + index as u16));
        Parcel {
            start,
            sectors: if index + 1 < count { row } else { size - start },
            lease: (index % 3 != 2).then_some(Lease { name, borrower }),
        }
    };
    (0..count).map(parcel).collect()
}

pub fn any_owner(random: &mut Random) -> ArrayOwner {
    ArrayOwner {
        run: uuid(random.number() as u16),
        host: uuid(random.number() as u16),
        started: random.number(),
        process: random.number() as u32,
        namespace: random.number() as u32,
        interval_ms: random.below(60_001) as u32,
    }
}

pub fn any_scrub(random: &mut Random) -> LastScrub {
    let mode = ScrubMode::ALL[random.below(3) as usize];
    let mut scrub = LastScrub::new(mode, random.number());
    scrub.rows = random.number();
    scrub.done = random.below(scrub.rows);
    let cures = [Cure::Left, Cure::InSync, Cure::Repaired];
    for row in 0..random.below(40) {
        let finding = Finding {
            member: random.flag().then(|| uuid(random.below(20) as u16)),
            unreadable: random.flag(),
            cure: cures[random.below(3) as usize],
            sectors: 8,
        };
        scrub.note_row(row, &[finding]);
    }
    scrub
}

fn any_role(random: &mut Random) -> MemberRole {
    match random.below(4) {
        0 => MemberRole::Active,
        1 => MemberRole::Rebuilding,
        2 => MemberRole::Spare,
        _ => MemberRole::Failed {
            stale_since: random.below(1 << 40),
            partial: random.flag(),
        },
    }
}

fn any_task(random: &mut Random, superblock: &Superblock) -> TaskRecord {
    let rows = Layout::new(superblock.geometry).expect("sound").rows();
    let mut done = vec![];
    let mut row = 0;
    while done.len() < 16 && random.below(8) != 0 {
        row += random.below(5);
        let run = 1 + random.below(9);
        if row + run > rows {
            break;
        }
        done.push((row, run));
        row += run;
    }
    let kinds = [
        TaskKind::Rebuild,
        TaskKind::Replace,
        TaskKind::Resync,
        TaskKind::Check,
        TaskKind::Repair,
    ];
    let kind = kinds[random.below(5) as usize];
    let has_slot = random.flag();
    let slot = random.below(superblock.geometry.slots.into());
    TaskRecord {
        kind,
        slot: has_slot.then_some(slot as u16),
        paused: random.flag(),
        done,
    }
}

/// The bytes of a superblock, as they lie on its member.
pub fn bytes_of(superblock: &Superblock) -> Vec<u8> {
    let pages = superblock.encode().expect("a sound superblock");
    pages.iter().flat_map(|page| page.to_vec()).collect()
}
