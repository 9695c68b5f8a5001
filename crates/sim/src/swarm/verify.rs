//! Whether the media of an array at rest agree with one another: redundancy against data, through the layout.

use super::life::{Life, Run};
use crate::array::{Slots, mismatches, row_written, superblock_of};
use crate::invariant::Invariant;
use crate::payload::Payload;
use restripe_array::Row;
use restripe_array::meta::RegionKind;
use restripe_array::report::MemberState;

/// Checks every written row of a quiet array.
pub fn media(run: &mut Run, life: &mut Life) {
    if run.plan.spec.payload == Payload::None {
        return;
    }
    let found = found(run, life);
    run.outcome.coverage.count("media checks", 1);
    if let Some(first) = found.first() {
        let detail = format!("{} rows; {first}", found.len());
        life.session.violation(Invariant::ParityMismatch, detail);
    }
}

fn found(run: &Run, life: &Life) -> Vec<String> {
    let world = &life.session.world;
    let status = world.status();
    let mut slots: Slots = (0..run.layout.geometry().slots).map(|_| None).collect();
    let mut superblock = None;
    for member in status
        .members
        .iter()
        .filter(|member| member.state == MemberState::Active)
    {
        let disk = world.disk(member.member);
        let (Some(slot), Some(found)) = (member.slot, superblock_of(disk.live())) else {
            continue;
        };
        let start = found.region(RegionKind::Data).map(|region| region.start);
        slots[usize::from(slot)] = start.map(|start| (disk, start));
        superblock = Some((disk, found));
    }
    let Some((witness, superblock)) = superblock else {
        return vec!["no active member carries a superblock".to_string()];
    };
    let written = |row: Row| row_written(witness.live(), &superblock, row);
    let oracle = &life.session.oracle;
    let lost = |row: Row, offset: u64| {
        let cells = 0..run.layout.data_cells() as u8;
        cells
            .map(|data| run.layout.lba(row, data, offset))
            .any(|lba| oracle.may_be_lost(lba, None))
    };
    mismatches(&run.layout, &slots, written, lost)
}
