//! The way out of an array whose maps are gone: the `create` that makes it anew over its data.
//!
//! A superblock has two copies, and so has each map; but all of a member's maps lie within its first MiB. Whatever wipes
//! that much of every member leaves the second superblock of each, and all users' data. The second superblock tells
//! the shape; with the same shape data lie where they lay, and parity and copies are made anew of them.

use crate::units::Exact;
use restripe_array::SECTOR_BYTES;
use restripe_array::layout::{Geometry, Level};
use restripe_array::meta::{Choice, RegionKind, Superblock};

/// The command, of an array that `create` can make as it is and whose members are all here and current; `names` are
/// those of the candidates.
pub(crate) fn command(choice: &Choice, names: &[&str]) -> Option<String> {
    let superblock = &choice.superblock;
    let geometry = superblock.geometry;
    let plain = Geometry {
        level: geometry.level,
        slots: geometry.slots,
        chunk_sectors: geometry.chunk_sectors,
        slot_sectors: geometry.slot_sectors,
        ..Geometry::PLAIN
    };
    if geometry != plain || superblock.partner.is_some() || !superblock.lent.is_empty() {
        return None;
    }
    let members = in_order_of_slots(choice, names)?;
    let options = options(superblock)?;
    Some(format!(
        "restripe create {} {options} --force {}",
        superblock.name,
        members.join(" ")
    ))
}

fn in_order_of_slots<'a>(choice: &Choice, names: &[&'a str]) -> Option<Vec<&'a str>> {
    let here = |entry: u16| {
        let outdated = choice.outdated.contains(&entry);
        let candidate = choice.opened.get(usize::from(entry)).copied().flatten();
        candidate.filter(|_| !outdated)
    };
    let mut lines: Vec<_> = choice.superblock.placement.iter().collect();
    lines.sort_by_key(|line| line.slot);
    let whole = lines
        .iter()
        .all(|line| line.incoming.is_none() && line.region == 0);
    let members = lines.iter().map(|line| {
        let name = *names.get(here(line.member?)?)?;
        // A person is to paste this.
        let plain = |c: char| c.is_alphanumeric() || "/-_.:=+@%?".contains(c);
        name.chars().all(plain).then_some(name)
    });
    let members: Vec<&str> = members.collect::<Option<_>>()?;
    (whole && members.len() == usize::from(choice.superblock.geometry.slots)).then_some(members)
}

fn options(superblock: &Superblock) -> Option<String> {
    let geometry = &superblock.geometry;
    let level = match geometry.level {
        Level::Raid0 => "raid0".to_string(),
        Level::Raid1 => "raid1".into(),
        Level::Raid4 => "raid4".into(),
        Level::Raid5(rotation) => format!("raid5 --rotation {rotation}"),
        Level::Raid6(rotation) => format!("raid6 --rotation {rotation}"),
        Level::Raid10 { copies } => format!("raid10 --copies {copies}"),
        Level::ReedSolomon { .. } => return None,
    };
    let init = match geometry.level {
        Level::Raid0 => "assume-clean",
        _ => "sync",
    };
    let bytes = |sectors: u64| Exact(sectors * SECTOR_BYTES);
    let offset = superblock.region(RegionKind::Data)?.start;
    let hole = format!("{:?}", superblock.write_hole).to_lowercase();
    Some(format!(
        "--level {level} --chunk {} --data-offset {} --size-per-member {} --write-hole {hole} --init {init}",
        bytes(u64::from(geometry.chunk_sectors)),
        bytes(offset),
        bytes(geometry.slot_sectors),
    ))
}
