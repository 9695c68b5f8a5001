//! Whether the media of an array at rest agree with one another: redundancy against data, through the layout.

use super::life::{Life, Run};
use crate::array::mismatches;
use crate::atlas::Atlas;
use crate::invariant::Invariant;
use crate::payload::Payload;
use restripe_array::layout::{Cell, CellSet, RowMap};
use restripe_array::report::{ArrayState, MemberState, MemberStatus};
use restripe_array::{Row, TaskKind};

/// Checks every written row of a quiet array. One in ruins that only reads does not bring rows in step either.
pub fn media(run: &mut Run, life: &mut Life) {
    let tasks = life.session.world.status().set.tasks;
    let owes = tasks.iter().any(|task| task.kind == TaskKind::Resync);
    if run.plan.spec.payload == Payload::None || run.in_ruins() && owes {
        return;
    }
    let found = found(run, life);
    run.base.count("media checks", 1);
    if let Some(first) = found.first() {
        let detail = format!("{} rows; {first}", found.len());
        life.session.violation(Invariant::ParityMismatch, detail);
    }
}

/// Places to look for a sector that can rot.
const ROT_TRIES: u32 = 16;

/// Lets a sector rot that is not zeros, where a scrub can tell which one it is or must take the data for right. False if
/// there is none such.
pub fn rot(run: &mut Run, life: &mut Life) -> bool {
    let status = life.session.world.status();
    let oracle = &life.session.oracle;
    let lossy = oracle.allows_losses();
    let active = |line: &&MemberStatus| line.state == MemberState::Active && line.slot.is_some();
    let members: Vec<&MemberStatus> = status.members.iter().filter(active).collect();
    let complete = status.state == ArrayState::Healthy;
    // What is unreadable is repaired from the rest of its row, which must not be rotten.
    let latent = |line: &&MemberStatus| {
        let disk = life.session.world.disk(line.member);
        disk.faults.latent().next().is_some()
    };
    let sound = !members.iter().any(latent);
    // And nothing else comes over the array meanwhile.
    let calm = life.disturb_after.is_none();
    complete
        && calm
        && sound
        && !lossy
        && status.lost.is_empty()
        && (0..ROT_TRIES).any(|_| try_rot(run, life))
}

fn try_rot(run: &mut Run, life: &mut Life) -> bool {
    let row = Row(run.base.rng.below(run.base.layout.rows()));
    let map =
        Atlas::active(&life.session.world).map_or(run.base.layout.row(row), |atlas| atlas.row(row));
    let candidates: Vec<u8> = judged(&map).iter().collect();
    if candidates.is_empty() {
        return false;
    }
    let place = map.cells[usize::from(*run.base.rng.pick(&candidates))];
    let offset = run.base.rng.below(run.base.layout.chunk_sectors());
    let at = place.at + offset;
    let found = Atlas::on_active(&life.session.world, place.slot, map.row, at);
    let Some((member, at)) = found else {
        return false;
    };
    let disk = life.session.world.disk_mut(member);
    let mut content = vec![0; disk.payload().unit()];
    disk.live().read_data(at, 1, &mut content);
    if content.iter().all(|byte| *byte == 0) {
        return false;
    }
    disk.meddle(|image| image.zero(at, 1));
    run.base.count("sectors rotten", 1);
    true
}

/// Cells in which a scrub puts a single error right.
fn judged(map: &RowMap) -> CellSet {
    let copies = map.copies_of(0);
    let parities = map.parity_set().len();
    let located = parities > 1 || (parities == 0 && copies.len() > 2);
    if located {
        map.all()
    } else {
        map.all().minus(map.data_set())
    }
}

fn found(run: &Run, life: &Life) -> Vec<String> {
    let Some(atlas) = Atlas::active(&life.session.world) else {
        return vec!["no active member carries a superblock".to_string()];
    };
    let lies = |row: Row, cell: &Cell| {
        let spot = atlas.spot_of(cell.slot.0, row)?;
        Some((spot.disk, spot.at(cell.at)))
    };
    let map = |row: Row| atlas.written(row).then(|| atlas.row(row));
    let oracle = &life.session.oracle;
    let reshaping = atlas.layout().is_reshaping();
    let layout = if reshaping {
        atlas.layout()
    } else {
        &run.base.layout
    };
    let lost = |row: Row, offset: u64| {
        let cells = match reshaping {
            true => 0..atlas.row(row).data,
            false => 0..layout.data_cells() as u8,
        };
        cells
            .map(|data| layout.lba(row, data, offset))
            .filter(|lba| *lba < oracle.sectors())
            .any(|lba| oracle.may_be_lost(lba, None))
    };
    mismatches(&run.base.layout, lies, map, lost)
}
