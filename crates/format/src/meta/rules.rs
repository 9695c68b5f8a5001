//! What a sound superblock obeys, whether it is to be written or was read. After [`check`] the engine may index, add
//! and multiply with its fields: nothing is out of range and no sum of sectors, rows or counters overflows.

use super::create::LOG_SECTORS_MIN;
use super::leases::PARCELS_MAX;
use super::superblock::{
    BufferMark, MEMBERS_MAX, MemberEntry, MemberRole, NAME_BYTES_MAX, PLACEMENTS_MAX, Partner,
    PartnerRole, Placement, REGIONS_MAX, RUNS_MAX, Region, RegionKind, SUPER_A_AT, SUPER_B_PLACES,
    SUPERBLOCK_SECTORS, Superblock, TASKS_MAX, TaskRecord, WriteHole,
};
use super::{MetaError, field, leases, pages, reshape};
use crate::layout::Layout;
use crate::units::{PAGE_SECTORS, Uuid};
use alloc::vec::Vec;

/// Generations, sequences and floors stay below this, so that counting on cannot overflow.
pub const COUNTER_LIMIT: u64 = 1 << 62;
/// Counters that are found on members leave as much again to count on: no array comes near it.
pub const FOUND_LIMIT: u64 = COUNTER_LIMIT / 2;

/// No member is larger: 2^52 sectors are 2 EiB.
pub const MEMBER_SECTORS_LIMIT: u64 = 1 << 52;

pub fn check(superblock: &Superblock) -> Result<(), MetaError> {
    check_counts(superblock)?;
    check_identity(superblock)?;
    check_counters(superblock)?;
    check_partner(superblock)?;
    if superblock.alone && !superblock.ahead {
        return field("primary only", 1);
    }
    if superblock.ahead && !superblock.geometry.level.mirrors() {
        return field("primary first", 1);
    }
    let layout = Layout::new(superblock.geometry).map_err(MetaError::Geometry)?;
    check_regions(superblock)?;
    check_write_hole(superblock)?;
    check_maps(superblock, &layout)?;
    check_members(superblock)?;
    check_placement(superblock)?;
    check_tasks(superblock, layout.rows())?;
    check_filled(superblock)?;
    reshape::check(superblock, &layout)?;
    superblock.tail.check()?;
    leases::check(superblock, &layout)
}

fn check_counts(superblock: &Superblock) -> Result<(), MetaError> {
    let runs = superblock.tasks.iter().map(|task| task.done.len()).sum();
    let counts = [
        ("regions", superblock.regions.len(), REGIONS_MAX),
        ("members", superblock.members.len(), MEMBERS_MAX),
        ("placements", superblock.placement.len(), PLACEMENTS_MAX),
        ("tasks", superblock.tasks.len(), TASKS_MAX),
        ("task runs", runs, RUNS_MAX),
        ("leases", superblock.lent.len(), PARCELS_MAX),
    ];
    for (what, count, limit) in counts {
        if count > limit {
            let (count, limit) = (count as u64, limit as u64);
            return Err(MetaError::TooLarge { what, count, limit });
        }
    }
    Ok(())
}

fn check_identity(superblock: &Superblock) -> Result<(), MetaError> {
    check_name(&superblock.name)?;
    if superblock.array == Uuid::NIL {
        return field("array", 0);
    }
    if superblock.member == Uuid::NIL {
        return field("member", 0);
    }
    Ok(())
}

/// A name is short and can be printed.
pub fn check_name(name: &str) -> Result<(), MetaError> {
    if name.len() > NAME_BYTES_MAX {
        let (what, limit) = ("bytes of name", NAME_BYTES_MAX as u64);
        let count = name.len() as u64;
        return Err(MetaError::TooLarge { what, count, limit });
    }
    match name.chars().find(|c| c.is_control()) {
        Some(control) => field("name", u64::from(u32::from(control))),
        None => Ok(()),
    }
}

fn counters(superblock: &Superblock) -> [(&'static str, u64); 4] {
    [
        ("generation", superblock.generation),
        ("sequence", superblock.sequence),
        ("forced", superblock.forced),
        ("log floor", superblock.log_floor),
    ]
}

fn check_counters(superblock: &Superblock) -> Result<(), MetaError> {
    let mut counters = counters(superblock).into_iter();
    counters.try_for_each(|(name, value)| check_counter(name, value))
}

/// 0 of a member that has not failed.
fn stale_since(entry: &MemberEntry) -> u64 {
    match entry.role {
        MemberRole::Failed { stale_since, .. } => stale_since,
        _ => 0,
    }
}

/// Whether a start can count on from what it found in a superblock.
pub fn check_found(superblock: &Superblock) -> Result<(), MetaError> {
    let of_members = superblock.members.iter().flat_map(|member| {
        [
            ("member log floor", member.log_floor),
            ("current since", member.current_since),
            ("stale since", stale_since(member)),
            ("left at", member.left_at),
        ]
    });
    let mut counters = counters(superblock).into_iter().chain(of_members);
    if let Some((name, value)) = counters.find(|(_, value)| *value >= FOUND_LIMIT) {
        return field(name, value);
    }
    let mut counts = superblock.partner.iter().flat_map(partner_counters);
    match counts.find(|(_, value)| *value >= PARTNER_COUNTER_LIMIT / 2) {
        Some((name, value)) => field(name, value.into()),
        None => Ok(()),
    }
}

/// What counts starts has room to go on.
const PARTNER_COUNTER_LIMIT: u32 = 1 << 31;

/// The partner is another array, and its epoch can be told from none.
fn check_partner(superblock: &Superblock) -> Result<(), MetaError> {
    let is_log = |partner: &Partner| partner.role == PartnerRole::Surrogate;
    if superblock.buffer != BufferMark::None && !superblock.partner.as_ref().is_some_and(is_log) {
        return field("buffer", superblock.buffer as u64);
    }
    let Some(partner) = &superblock.partner else {
        return Ok(());
    };
    if partner.array == Uuid::NIL || partner.array == superblock.array {
        return field("partner", 0);
    }
    let mut counters = partner_counters(partner).into_iter();
    match counters.find(|(_, value)| *value >= PARTNER_COUNTER_LIMIT) {
        Some((name, value)) => field(name, value.into()),
        None if partner.epoch == 0 => field("partner epoch", 0),
        None => Ok(()),
    }
}

fn partner_counters(partner: &Partner) -> [(&'static str, u32); 2] {
    [
        ("partner epoch", partner.epoch),
        ("partner session", partner.session),
    ]
}

pub fn check_counter(name: &'static str, value: u64) -> Result<(), MetaError> {
    match value < COUNTER_LIMIT {
        true => Ok(()),
        false => field(name, value),
    }
}

fn check_write_hole(superblock: &Superblock) -> Result<(), MetaError> {
    let logged = superblock.write_hole == WriteHole::Ppl;
    if logged && !superblock.geometry.level.logs_parity() {
        return field("write hole", 1);
    }
    match superblock.region(RegionKind::Log) {
        None if logged => return field("regions without a log", superblock.regions.len() as u64),
        Some(log) if logged && log.sectors < LOG_SECTORS_MIN => {
            return field("sectors of the log", log.sectors);
        }
        _ => {}
    }
    if !matches!(superblock.logical_block, 512 | 4096) {
        return field("logical block", u64::from(superblock.logical_block));
    }
    Ok(())
}

fn check_regions(superblock: &Superblock) -> Result<(), MetaError> {
    let regions = &superblock.regions;
    for (i, region) in regions.iter().enumerate() {
        check_region(region, superblock.geometry.slot_sectors)?;
        if regions[..i].iter().any(|other| overlap(region, other)) {
            return field("region start", region.start);
        }
    }
    for kind in [RegionKind::SuperA, RegionKind::SuperB] {
        if regions.iter().filter(|region| region.kind == kind).count() != 1 {
            return field("regions without superblocks", regions.len() as u64);
        }
    }
    let spares = superblock.region(RegionKind::SparePartition).is_some();
    if spares && superblock.geometry.skew.is_none() {
        return field("spare partitions without groups", 0);
    }
    for kind in [
        RegionKind::Written,
        RegionKind::Intent,
        RegionKind::Lost,
        RegionKind::Log,
        RegionKind::Redirected,
        RegionKind::Heat,
        RegionKind::SparePartition,
    ] {
        if regions.iter().filter(|region| region.kind == kind).count() > 1 {
            return field("regions of one kind", regions.len() as u64);
        }
    }
    Ok(())
}

fn overlap(a: &Region, b: &Region) -> bool {
    a.start < b.end() && b.start < a.end()
}

fn check_region(region: &Region, slot_sectors: u64) -> Result<(), MetaError> {
    let end = region.start.checked_add(region.sectors);
    if end.is_none_or(|end| end > MEMBER_SECTORS_LIMIT) || region.sectors == 0 {
        return field("region sectors", region.sectors);
    }
    let aligned =
        region.start.is_multiple_of(PAGE_SECTORS) && region.sectors.is_multiple_of(PAGE_SECTORS);
    let copy = region.sectors == SUPERBLOCK_SECTORS;
    let fits = match region.kind {
        RegionKind::SuperA => region.start == SUPER_A_AT && copy,
        RegionKind::SuperB => SUPER_B_PLACES.contains(&region.start) && copy,
        RegionKind::Data => region.sectors >= slot_sectors,
        _ => true,
    };
    match aligned && fits {
        true => Ok(()),
        false => field("region start", region.start),
    }
}

/// Every bit of the maps, and at least one page of the lost list, has its place. The redirected map may be missing.
fn check_maps(superblock: &Superblock, layout: &Layout) -> Result<(), MetaError> {
    let rows = layout.rows();
    let (extents, regions) = (superblock.extent_rows, superblock.intent_rows);
    let generations = layout.generations().into();
    let redirected = superblock.region(RegionKind::Redirected).is_some().into();
    let bit_rows = [
        (RegionKind::Written, "written map", extents, generations),
        (
            RegionKind::Intent,
            "intent map",
            regions,
            pages::INTENT_BITS,
        ),
        (
            RegionKind::Redirected,
            "redirected map",
            regions,
            redirected,
        ),
    ];
    for (kind, name, rows_per_bit, each) in bit_rows {
        if rows_per_bit == 0 || rows_per_bit >= COUNTER_LIMIT {
            return field("rows of a map bit", rows_per_bit);
        }
        let bits = rows.div_ceil(rows_per_bit).saturating_mul(each);
        if bits.div_ceil(pages::BITS_PER_PAGE) > map_pages(superblock, kind) {
            return field(name, bits);
        }
    }
    if map_pages(superblock, RegionKind::Lost) == 0 {
        return field("lost list", 0);
    }
    Ok(())
}

fn map_pages(superblock: &Superblock, kind: RegionKind) -> u64 {
    let region = superblock.region(kind);
    region.map_or(0, |region| pages::pages_in(region.sectors))
}

fn check_members(superblock: &Superblock) -> Result<(), MetaError> {
    for (i, entry) in superblock.members.iter().enumerate() {
        let mut others = superblock.members[..i].iter();
        let twice = others.any(|other| other.uuid == entry.uuid);
        if twice || entry.uuid == Uuid::NIL {
            return field("member uuid of entry", i as u64);
        }
        let beyond = |slot: &u16| *slot >= superblock.geometry.slots;
        if let Some(slot) = entry.dropped_for.filter(beyond) {
            return field("slot of a dropped target", slot.into());
        }
        check_counter("member log floor", entry.log_floor)?;
        check_counter("current since", entry.current_since)?;
        check_counter("stale since", stale_since(entry))?;
    }
    Ok(())
}

/// Every slot has one line for all of it, or one for each of its partitions.
fn check_placement(superblock: &Superblock) -> Result<(), MetaError> {
    let partitions = superblock.geometry.partitions();
    let mut rest = &superblock.placement[..];
    for slot in 0..superblock.geometry.slots {
        let lines = rest.iter().take_while(|line| line.slot == slot).count();
        let (own, others) = rest.split_at(lines);
        let numbered = (0..).zip(own).all(|(nth, line)| line.partition == nth);
        if !numbered || (lines != 1 && lines != usize::from(partitions)) {
            return field("placed slots", u64::from(slot));
        }
        rest = others;
    }
    if let Some(line) = rest.first() {
        return field("placement slot", u64::from(line.slot));
    }
    (0..superblock.placement.len()).try_for_each(|index| check_placed(superblock, index))
}

/// A placement names members of the table, and no place on a member twice.
fn check_placed(superblock: &Superblock, index: usize) -> Result<(), MetaError> {
    let entry = &superblock.placement[index];
    for (member, region) in placed(entry) {
        if usize::from(member) >= superblock.members.len() {
            return field("placed member", u64::from(member));
        }
        // The set data have room for every partition of one slot.
        let others = superblock.placement[..index].iter();
        let others = others.filter(|other| region > 0 || other.slot != entry.slot);
        let mut others = others.flat_map(placed);
        if others.any(|other| other == (member, region)) {
            return field("member placed twice", u64::from(member));
        }
        check_bearer_region(superblock, member, region, entry.partition)?;
    }
    if let Some(incoming) = entry.incoming {
        let role = superblock.members[usize::from(incoming)].role;
        if !matches!(role, MemberRole::Rebuilding | MemberRole::Active) {
            return field("incoming role", u64::from(entry.slot));
        }
    }
    if entry.member.is_some() && entry.member == entry.incoming {
        return field("incoming member", u64::from(entry.slot));
    }
    let split = superblock.geometry.skew.is_some_and(|skew| {
        let lines = superblock.placement.iter();
        let own = lines.filter(|line| line.slot == entry.slot);
        own.count() == usize::from(skew.partitions)
    });
    let spare = entry.region.max(entry.incoming_region);
    if spare > 0 && !split {
        return field("placement region", u64::from(spare));
    }
    Ok(())
}

/// Who holds it and who is filled for it, each with where.
fn placed(entry: &Placement) -> impl Iterator<Item = (u16, u16)> + use<> {
    let serving = entry.member.map(|member| (member, entry.region));
    let incoming = entry.incoming.map(|member| (member, entry.incoming_region));
    [serving, incoming].into_iter().flatten()
}

/// The one member whose regions this superblock knows has the place that a placement counts on.
fn check_bearer_region(
    superblock: &Superblock,
    member: u16,
    region: u16,
    partition: u16,
) -> Result<(), MetaError> {
    let own = superblock.members[usize::from(member)].uuid == superblock.member;
    let there = superblock.place_in(&superblock.regions, region, partition);
    if own && there.is_none() {
        return field("placement region", u64::from(region));
    }
    Ok(())
}

fn check_tasks(superblock: &Superblock, rows: u64) -> Result<(), MetaError> {
    for task in &superblock.tasks {
        if let Some(slot) = task.slot.filter(|slot| *slot >= superblock.geometry.slots) {
            return field("task slot", u64::from(slot));
        }
        if task.kind.fills() && task.slot.is_none() {
            return field("task that fills no slot", task.kind as u64);
        }
        check_done(task, rows)?;
    }
    Ok(())
}

/// A slot is filled by one task at most, and a slot with a member that is being filled for it by one.
fn check_filled(superblock: &Superblock) -> Result<(), MetaError> {
    let tasks = superblock.tasks.iter();
    let filled: Vec<u16> = tasks.filter_map(TaskRecord::filled_slot).collect();
    for (index, slot) in filled.iter().enumerate() {
        if filled[..index].contains(slot) {
            return field("slot that two tasks fill", u64::from(*slot));
        }
    }
    let mut lines = superblock.placement.iter();
    match lines.find(|line| line.incoming.is_some() && !filled.contains(&line.slot)) {
        Some(line) => field("slot that no task fills", u64::from(line.slot)),
        None => Ok(()),
    }
}

fn check_done(task: &TaskRecord, rows_limit: u64) -> Result<(), MetaError> {
    let mut free_from = 0;
    for (row, rows) in &task.done {
        let end = row.checked_add(*rows).filter(|end| *end <= rows_limit);
        if *rows == 0 || *row < free_from || end.is_none() {
            return field("task run", *row);
        }
        free_from = row + rows;
    }
    Ok(())
}
