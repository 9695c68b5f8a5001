//! What the entries of a superblock's tables look like.

use super::tables::Table;
use super::{
    MemberEntry, MemberRole, NONE, Placement, RUN_BYTES, RUNS_MAX, Region, RegionKind, TASK_BYTES,
    TASKS_MAX, TaskRecord, at,
};
use crate::meta::bytes::{get_u16, get_u32, get_u64, get_uuid, put, put_u16, put_u32, put_u64};
use crate::meta::{MetaError, field};
use crate::values::TaskKind;
use alloc::vec::Vec;

/// The kinds of regions that have a code of their own.
const REGION_KINDS: [(u16, RegionKind); 12] = [
    (1, RegionKind::SuperA),
    (2, RegionKind::SuperB),
    (3, RegionKind::Written),
    (4, RegionKind::Intent),
    (5, RegionKind::Lost),
    (6, RegionKind::Log),
    (7, RegionKind::Data),
    (8, RegionKind::Overlay),
    (9, RegionKind::SparePartition),
    (10, RegionKind::Lease),
    (11, RegionKind::Redirected),
    (12, RegionKind::Heat),
];

pub(super) fn region_code(kind: RegionKind) -> u16 {
    let mut known = REGION_KINDS.into_iter();
    match (kind, known.find(|(_, one)| *one == kind)) {
        (RegionKind::Other(code), _) | (_, Some((code, _))) => code,
        (_, None) => unreachable!("{kind:?} has a code"),
    }
}

pub(super) fn region_kind(code: u16) -> RegionKind {
    let mut known = REGION_KINDS.into_iter();
    let known = known.find(|(one, _)| *one == code);
    known.map_or(RegionKind::Other(code), |(_, kind)| kind)
}

pub(super) fn put_region(bytes: &mut [u8], region: &Region) {
    put_u16(bytes, at::REGION_KIND, region_code(region.kind));
    put_u64(bytes, at::REGION_START, region.start);
    put_u64(bytes, at::REGION_SECTORS, region.sectors);
}

pub(super) fn get_region(bytes: &[u8]) -> Result<Region, MetaError> {
    Ok(Region {
        kind: region_kind(get_u16(bytes, at::REGION_KIND)),
        start: get_u64(bytes, at::REGION_START),
        sectors: get_u64(bytes, at::REGION_SECTORS),
    })
}

pub(super) fn put_member(bytes: &mut [u8], entry: &MemberEntry) {
    let dropped_for = entry.dropped_for.map_or(0, |slot| slot + 1);
    let (role, stale_since, partial, dropped_for) = match entry.role {
        MemberRole::Active => (1, 0, false, 0),
        MemberRole::Rebuilding => (2, 0, false, 0),
        MemberRole::Spare => (3, 0, false, 0),
        MemberRole::Failed {
            stale_since,
            partial,
        } => (4, stale_since, partial, dropped_for),
    };
    put(bytes, at::MEMBER_UUID, entry.uuid.0);
    bytes[at::MEMBER_ROLE] = role;
    bytes[at::MEMBER_PARTIAL] = u8::from(partial);
    put_u16(bytes, at::MEMBER_DROPPED, dropped_for);
    put_u32(bytes, at::MEMBER_READ_ERRORS, entry.read_errors);
    put_u64(bytes, at::MEMBER_STALE_SINCE, stale_since);
    put_u64(bytes, at::MEMBER_LOG_FLOOR, entry.log_floor);
    put_u64(bytes, at::MEMBER_CURRENT_SINCE, entry.current_since);
}

pub(super) fn get_member(bytes: &[u8]) -> Result<MemberEntry, MetaError> {
    let role = match bytes[at::MEMBER_ROLE] {
        1 => MemberRole::Active,
        2 => MemberRole::Rebuilding,
        3 => MemberRole::Spare,
        4 => MemberRole::Failed {
            stale_since: get_u64(bytes, at::MEMBER_STALE_SINCE),
            partial: get_bool(bytes, at::MEMBER_PARTIAL, "partial")?,
        },
        other => return field("role", u64::from(other)),
    };
    let dropped_for = match role {
        MemberRole::Failed { .. } => get_u16(bytes, at::MEMBER_DROPPED).checked_sub(1),
        _ => None,
    };
    Ok(MemberEntry {
        uuid: get_uuid(bytes, at::MEMBER_UUID),
        role,
        current_since: get_u64(bytes, at::MEMBER_CURRENT_SINCE),
        log_floor: get_u64(bytes, at::MEMBER_LOG_FLOOR),
        read_errors: get_u32(bytes, at::MEMBER_READ_ERRORS),
        left_at: 0,
        dropped_for,
    })
}

pub(super) fn get_bool(bytes: &[u8], at: usize, name: &'static str) -> Result<bool, MetaError> {
    match bytes[at] {
        0 => Ok(false),
        1 => Ok(true),
        other => field(name, u64::from(other)),
    }
}

pub(super) fn get_option(bytes: &[u8], at: usize) -> Option<u16> {
    Some(get_u16(bytes, at)).filter(|value| *value != NONE)
}

pub(super) fn put_placement(bytes: &mut [u8], line: &Placement) {
    let (member, incoming) = (line.member.unwrap_or(NONE), line.incoming.unwrap_or(NONE));
    put_u16(bytes, at::PLACEMENT_SLOT, line.slot);
    put_u16(bytes, at::PLACEMENT_PARTITION, line.partition);
    put_u16(bytes, at::PLACEMENT_MEMBER, member);
    put_u16(bytes, at::PLACEMENT_INCOMING, incoming);
    put_u16(bytes, at::PLACEMENT_REGION, line.region);
    put_u16(bytes, at::PLACEMENT_INCOMING_REGION, line.incoming_region);
}

pub(super) fn get_placement(bytes: &[u8]) -> Result<Placement, MetaError> {
    Ok(Placement {
        slot: get_u16(bytes, at::PLACEMENT_SLOT),
        partition: get_u16(bytes, at::PLACEMENT_PARTITION),
        member: get_option(bytes, at::PLACEMENT_MEMBER),
        incoming: get_option(bytes, at::PLACEMENT_INCOMING),
        region: get_u16(bytes, at::PLACEMENT_REGION),
        incoming_region: get_u16(bytes, at::PLACEMENT_INCOMING_REGION),
    })
}

codes! {
    "task kind": TaskKind {
        Rebuild = 1, Replace = 2, Resync = 3, Check = 4, Repair = 5, Growth = 6,
    }
}

pub(super) fn put_task(bytes: &mut [u8], task: &TaskRecord) {
    bytes[at::TASK_KIND] = task.kind.code();
    bytes[at::TASK_PAUSED] = u8::from(task.paused);
    put_u16(bytes, at::TASK_SLOT, task.slot.unwrap_or(NONE));
    let runs = u16::try_from(task.done.len()).expect("bounded by the rules");
    put_u16(bytes, at::TASK_RUNS, runs);
}

/// A task as its entry tells it: its runs follow in a table of their own.
pub(super) fn get_task(bytes: &[u8]) -> Result<(TaskRecord, u16), MetaError> {
    let task = TaskRecord {
        kind: TaskKind::of_code(bytes[at::TASK_KIND])?,
        slot: get_option(bytes, at::TASK_SLOT),
        paused: get_bool(bytes, at::TASK_PAUSED, "paused")?,
        done: Vec::new(),
    };
    Ok((task, get_u16(bytes, at::TASK_RUNS)))
}

pub(super) fn put_run(bytes: &mut [u8], run: &(u64, u64)) {
    put_u64(bytes, at::RUN_ROW, run.0);
    put_u64(bytes, at::RUN_ROWS, run.1);
}

pub(super) fn get_run(bytes: &[u8]) -> Result<(u64, u64), MetaError> {
    Ok((get_u64(bytes, at::RUN_ROW), get_u64(bytes, at::RUN_ROWS)))
}

/// The tasks, each with its share of the runs, in order. The shares use up the runs exactly.
pub(super) fn get_tasks(bytes: &[u8]) -> Result<Vec<TaskRecord>, MetaError> {
    let entries = Table::open(bytes, "tasks", at::TASKS, TASK_BYTES, TASKS_MAX)?.read(get_task)?;
    let mut runs: Vec<(u64, u64)> =
        Table::open(bytes, "task runs", at::RUNS, RUN_BYTES, RUNS_MAX)?.read(get_run)?;
    let mut tasks = Vec::with_capacity(entries.len());
    for (mut task, count) in entries {
        if usize::from(count) > runs.len() {
            return field("task runs", u64::from(count));
        }
        let others = runs.split_off(usize::from(count));
        task.done = core::mem::replace(&mut runs, others);
        tasks.push(task);
    }
    if !runs.is_empty() {
        return field("task runs", runs.len() as u64);
    }
    Ok(tasks)
}
