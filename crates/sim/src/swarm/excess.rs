//! Excess failures: more members fail than the level tolerates, on purpose, and the loss must be reported
//! exactly.
//!
//! The failures come when the array is idle, so the media alone show which data is lost: the sectors of
//! written rows that no member and no code can supply. All other data must read correctly, and every lost
//! block must be reported. A lost block that is rewritten is no longer lost. All of that holds across tasks
//! and a restart.

use super::faults;
use super::faults::unsynced;
use super::life::{Life, Run};
use super::plan::Roughness;
use crate::atlas::Atlas;
use crate::fault::Fault;
use crate::invariant::Invariant;
use crate::oracle::WriteKind;
use crate::payload::Payload;
use crate::run::{Course, End};
use crate::session::PATIENCE;
use crate::workload::Ask;
use crate::world::World;
use restripe_array::report::{ArrayState, MemberState, MemberStatus};
use restripe_array::{Member, Row};
use restripe_tier::Engine;
use std::collections::BTreeSet;

/// What an array in ruins must tell.
#[derive(Clone, Debug)]
pub struct Excess {
    /// Lost blocks, by their first sector.
    lost: BTreeSet<u64>,
    /// Members were lost, not only sectors: writes may be refused, and a start must be told to accept it.
    pub members: bool,
}

/// Counted: runs with excess failures, and those of them that found nothing written to lose.
pub const RUINS: &str = "runs into ruin";
pub const RUINS_IN_VAIN: &str = "ruins of nothing written";

/// Sectors of a block of the read cache.
const CACHED_SECTORS: u64 = 8;
/// One run in so many.
const RARITY: u64 = 4;
/// The stream that a member is drawn from which goes from an array in ruins.
const LOST_IN_RUINS: u64 = 0x1057;
/// Requests after the loss.
const REQUESTS: u64 = 60;
/// Rows looked at for one that is written.
const ROW_TRIES: u32 = 8;
/// Rows that lose sectors, at most.
const ROWS: u64 = 3;

/// Ruins the array, perhaps, and checks what it tells. An end, when one has come.
pub fn inject(run: &mut Run, life: &mut Life) -> Option<End> {
    let rough = run.options.roughness == Roughness::Faults;
    let blind = run.plan.spec.payload == Payload::None;
    // What is lost must be known exactly: nothing may be in doubt before.
    let doubtful = unsynced(life) || life.session.oracle.allows_losses();
    if !rough || blind || doubtful || !run.base.rng.chance(1, RARITY) {
        return None;
    }
    let members = destroy(run, life);
    let gone = unreadable_blocks(run, life);
    let lost = written_only(life, &gone);
    run.base
        .say(|| format!("  ruin: members {members}, blocks {lost:?}"));
    run.base.count(RUINS, 1);
    if lost.is_empty() {
        run.base.count(RUINS_IN_VAIN, 1);
    }
    let count = lost.len() as u64;
    run.base.count("blocks ruined", count);
    let block = faults::block_sectors(run);
    // What was never written reads as zeros, but no longer once its extent has become real, or its generation
    // of cells in that.
    let gone = gone.iter().flat_map(|first| *first..first + block);
    for lba in gone.chain(unreadable_sectors(&life.session.world)) {
        life.session.oracle.allow_loss(lba);
    }
    life.session.refusals_expected = members;
    life.session.unreadable = Some(unreadable_sectors);
    run.excess = Some(Excess { lost, members });
    live_in_ruins(run, life)
}

fn live_in_ruins(run: &mut Run, life: &mut Life) -> Option<End> {
    if !tells_exactly(run, life) {
        return Some(End::Broken);
    }
    let repair = run.base.rng.chance(1, 2);
    match run.base.rng.below(4) {
        0 => {}
        1 => {
            lose_in_ruins(run, life);
            faults::arrive(run, life);
        }
        _ => life.session.scrub(repair),
    }
    let end = ask_in_ruins(run, life).or_else(|| run.await_tasks(life));
    if end.is_some() {
        return end;
    }
    (!tells_exactly(run, life)).then_some(End::Broken)
}

/// A member goes from an array in which sectors are lost already: what fills its place meets them.
fn lose_in_ruins(run: &mut Run, life: &mut Life) {
    let status = life.session.world.status();
    if run.in_ruins() || run.base.layout.tolerance() == 0 || status.state != ArrayState::Healthy {
        return;
    }
    let active = |line: &&MemberStatus| line.state == MemberState::Active;
    let serving: Vec<&MemberStatus> = status.members.iter().filter(active).collect();
    // Drawn from a stream of its own.
    let mut drawn = run.base.rng.clone().fork(LOST_IN_RUINS);
    let member = drawn.pick(&serving).member;
    life.faults.gone(member);
    life.session.world.depart(member);
    for lba in unreadable_sectors(&life.session.world) {
        life.session.oracle.allow_loss(lba);
    }
}

/// A start that only reads cannot tell which part of a row was being written, nor put it right: what the row's parity
/// would have to tell is lost meanwhile.
pub fn doubt_rows(run: &mut Run, life: &mut Life) {
    let oracle = &mut life.session.oracle;
    for row in 0..run.base.layout.rows() {
        let cells = 0..run.base.layout.data_cells() as u8;
        let first = |data| run.base.layout.lba(Row(row), data, 0);
        let chunk = run.base.layout.chunk_sectors();
        let sectors = cells.map(first).flat_map(|first| first..first + chunk);
        if sectors.clone().any(|lba| oracle.failed_write(lba)) {
            sectors.for_each(|lba| oracle.allow_loss(lba));
        }
    }
}

// ------------------------------------------------------------------------------------------- destroying

/// Breaks more than redundancy bears. Whether members went.
fn destroy(run: &mut Run, life: &mut Life) -> bool {
    let members: Vec<Member> = life.session.world.members().collect();
    for member in members {
        life.faults.suspect(member);
    }
    let mirror = run.base.layout.tolerance() + 1 == run.base.layout.geometry().slots as u8;
    if !mirror && run.base.rng.chance(1, 3) {
        destroy_members(run, life);
        return true;
    }
    if run.base.rng.chance(1, 3) {
        lose_tolerated(run, life);
    }
    for _ in 0..run.base.rng.between(1, ROWS) {
        destroy_sectors(run, life);
    }
    false
}

/// Members go until some row cannot be decoded. One stays: an array of which nothing current is left is not what is
/// asked for.
fn destroy_members(run: &mut Run, life: &mut Life) {
    let slots = usize::from(run.base.layout.geometry().slots);
    let mut left = life.session.world.status().set.members;
    left.retain(|line| line.state == MemberState::Active);
    for slot in run.base.rng.order(slots) {
        let here = |line: &MemberStatus| line.slot == Some(slot as u16);
        let Some(index) = left.iter().position(here).filter(|_| left.len() > 1) else {
            continue;
        };
        let member = left.remove(index).member;
        let world = &mut life.session.world;
        world.inject(member, Fault::Death);
        if !Atlas::active(&life.session.world).is_some_and(|atlas| atlas.whole(None)) {
            return;
        }
    }
}

/// One member less, which redundancy bears: then a sector is enough. If there is a spare, it is filled first.
fn lose_tolerated(run: &mut Run, life: &mut Life) {
    if run.base.layout.tolerance() > 0 {
        faults::lose_member(run, life, 6);
        // What ends this is a breach, and that stands until the next step.
        let _ = run.await_tasks(life);
    }
}

/// The same block of a row on most of its members.
fn destroy_sectors(run: &mut Run, life: &mut Life) {
    let block = faults::block_sectors(run);
    let row = written_row(run, life);
    let offset = run.base.rng.below(run.base.layout.chunk_sectors() / block) * block;
    let map = run.base.layout.row(row);
    let least = u64::from(run.base.layout.tolerance()).min(u64::from(map.width) - 1) + 1;
    let count = run.base.rng.between(least, u64::from(map.width)) as usize;
    let cells = run.base.rng.order(usize::from(map.width));
    for cell in cells.into_iter().take(count) {
        let place = map.cells[cell];
        let at = place.at + offset;
        if let Some((member, at)) = Atlas::on_active(&life.session.world, place.slot, row, at) {
            let fault = Fault::Latent { at, sectors: block };
            life.session.world.inject(member, fault);
        }
    }
}

/// A row, and a written one if there are many.
fn written_row(run: &mut Run, life: &Life) -> Row {
    let atlas = Atlas::active(&life.session.world);
    let written = |row: Row| {
        let atlas = atlas.as_ref();
        atlas.is_some_and(|atlas| atlas.written(row))
    };
    let mut row = Row(run.base.rng.below(run.base.layout.rows()));
    for _ in 0..ROW_TRIES {
        if written(row) {
            break;
        }
        row = Row(run.base.rng.below(run.base.layout.rows()));
    }
    row
}

// ------------------------------------------------------------------------------------------------ telling

/// Blocks that no member and no code gives any more, or will not once their cells are part of their rows.
fn unreadable_blocks(run: &Run, life: &Life) -> BTreeSet<u64> {
    let block = faults::block_sectors(run) as usize;
    let blocks = (0..life.session.oracle.sectors()).step_by(block);
    let atlas = Atlas::active(&life.session.world);
    let stays = |lba: &u64| {
        atlas
            .as_ref()
            .is_some_and(|atlas| atlas.stays_readable(*lba))
    };
    blocks.filter(|lba| !stays(lba)).collect()
}

/// Those of them that are not zeros for want of a first write.
fn written_only(life: &Life, blocks: &BTreeSet<u64>) -> BTreeSet<u64> {
    let atlas = Atlas::active(&life.session.world);
    let real = |lba: &&u64| atlas.as_ref().is_some_and(|atlas| atlas.written_at(**lba));
    blocks.iter().filter(real).copied().collect()
}

/// Reads everything: lost blocks one by one, the rest in large pieces. What is told must be what is lost.
pub fn tells_exactly(run: &mut Run, life: &mut Life) -> bool {
    let Some(excess) = run.excess.clone() else {
        return true;
    };
    let block = faults::block_sectors(run);
    life.session.told_lost.clear();
    let size = life.session.oracle.sectors();
    let at_once = run.base.layout.chunk_sectors() * 3;
    let mut lba = 0;
    while lba < size {
        let next = excess.lost.range(lba..).next().copied().unwrap_or(size);
        let sectors = match next == lba {
            true => block,
            false => at_once.min(next - lba),
        };
        if !life.session.world.ready() && !life.session.settle(PATIENCE) {
            return false;
        }
        life.session.read(lba, sectors);
        lba += sectors;
    }
    if !life.session.settle(PATIENCE) {
        return false;
    }
    compare(run, life, &excess)
}

fn compare(run: &mut Run, life: &mut Life, excess: &Excess) -> bool {
    let block = faults::block_sectors(run);
    let told = &life.session.told_lost;
    let silent = |first: &&u64| {
        let mut sectors = **first..**first + block;
        let oracle = &life.session.oracle;
        let still = |lba: u64| oracle.may_be_lost(lba, None) && !oracle.failed_write(lba);
        sectors.clone().all(still) && !sectors.any(|lba| told.contains(&lba))
    };
    let mut silent: Vec<u64> = excess.lost.iter().filter(silent).copied().collect();
    // What a cache holds outlives the medium; that its bytes are right is judged with every read.
    let held = run.plan.limits.cache.map_or(0, |cache| cache.blocks);
    if silent.len() as u64 * block <= u64::from(held) * CACHED_SECTORS {
        silent.clear();
    }
    // A crash may bring losses back that a write had ended: what is written anew counts no more.
    let still = |first: &u64| life.session.oracle.may_be_lost(*first, None);
    if let Some(excess) = &mut run.excess {
        excess.lost.retain(still);
    }
    if !silent.is_empty() {
        let detail = format!("blocks at {silent:?} were read, and nothing can give them");
        life.session.violation(Invariant::LossNotReported, detail);
    }
    silent.is_empty()
}

/// Users go on, most of them where it hurts. An end, when one has come.
fn ask_in_ruins(run: &mut Run, life: &mut Life) -> Option<End> {
    let excess = run.excess.clone()?;
    let lost: Vec<u64> = excess.lost.iter().copied().collect();
    for _ in 0..if lost.is_empty() { 0 } else { REQUESTS } {
        let row = run.base.layout.place(*run.base.rng.pick(&lost)).row;
        run.base.aim_at_row(row);
        let ask = run.base.workload.draw();
        if let Ask::Write {
            lba,
            sectors,
            kind: WriteKind::Trim,
            ..
        } = ask
        {
            forget_lost(run, lba, sectors);
        }
        while !life.session.world.ready() {
            if let Some(end) = step_in_ruins(run, life) {
                return Some(end);
            }
        }
        life.session.issue(ask);
        for _ in 0..run.base.rng.below(6) {
            if let Some(end) = step_in_ruins(run, life) {
                return Some(end);
            }
        }
    }
    run.base.workload.relax();
    None
}

fn step_in_ruins(run: &mut Run, life: &mut Life) -> Option<End> {
    run.hear(life, None);
    run.step(life)
}

/// A trim may or may not make zeros of what was lost.
fn forget_lost(run: &mut Run, lba: u64, sectors: u64) {
    let block = faults::block_sectors(run);
    if let Some(excess) = &mut run.excess {
        let elsewhere = |first: &u64| first + block <= lba || lba + sectors <= *first;
        excess.lost.retain(elsewhere);
    }
}

/// Sectors that no member and no code gives any more, or will not once their cells are part of their rows.
pub fn unreadable_sectors(world: &World<Engine>) -> Vec<u64> {
    Atlas::active(world).map_or(Vec::new(), |atlas| {
        let sectors = 0..atlas.layout().size_sectors();
        let lost = |lba: &u64| !(atlas.stays_readable(*lba) && atlas.outlives_first_write(*lba));
        sectors.filter(lost).collect()
    })
}
