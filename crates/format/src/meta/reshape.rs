//! What the superblock says of a reshape (`task/reshape`): how many slots the rows had that are not in their new shape yet,
//! and whether one of them lies in the journal.

use super::bytes::{get_u16, get_u64, put_u16, put_u64};
use super::superblock::{Superblock, TaskRecord, WriteHole};
use super::{MetaError, field};
use crate::layout::{Layout, Level};
use crate::units::Row;
use crate::values::TaskKind;

/// Behind the header.
pub const RESHAPE_BYTES: usize = 16;

offsets! {
    /// Byte offsets from there.
    pub mod at {
        pub const FORMER_SLOTS: usize = 0;
        pub const JOURNAL: usize = 2;
        pub const FIRST_SECTORS: usize = 8;
    }
}

/// What lies in the journal: the logs of the members, or, without those, the end of what an added member holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Journal {
    /// Nothing. Logs are logs.
    #[default]
    Closed,
    /// Nothing that counts, nor any record.
    Open,
    /// The first row that is not in its new shape yet, in that shape. It may have been written in place in part.
    Filled,
}

codes! { "journal": Journal { Closed = 0, Open = 1, Filled = 2 } }

/// Of an array that takes another shape, or once did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Reshape {
    /// Slots of the former shape, while rows are taken out of it.
    pub former: Option<u16>,
    pub journal: Journal,
    /// Sectors that the array had at first, by which the pages of the lost list go.
    pub first_sectors: u64,
}

pub(super) fn put_reshape(bytes: &mut [u8], reshape: &Reshape) {
    put_u16(bytes, at::FORMER_SLOTS, reshape.former.unwrap_or(0));
    bytes[at::JOURNAL] = reshape.journal.code();
    put_u64(bytes, at::FIRST_SECTORS, reshape.first_sectors);
}

pub(super) fn get_reshape(bytes: &[u8]) -> Result<Reshape, MetaError> {
    Ok(Reshape {
        former: Some(get_u16(bytes, at::FORMER_SLOTS)).filter(|slots| *slots > 0),
        journal: Journal::of_code(bytes[at::JOURNAL])?,
        first_sectors: get_u64(bytes, at::FIRST_SECTORS),
    })
}

/// At most one growth is under way: the last of the history, or one that takes a former shape.
pub(super) fn check(superblock: &Superblock, layout: &Layout) -> Result<(), MetaError> {
    let growths = superblock.tasks.iter();
    let growths = growths.filter(|task| task.kind == TaskKind::Growth);
    let growths: alloc::vec::Vec<&TaskRecord> = growths.collect();
    let geometry = &superblock.geometry;
    let former = superblock.reshape.and_then(|reshape| reshape.former);
    match (&growths[..], former) {
        ([], None) => {}
        ([_], None) if geometry.grown.is_some() => {}
        ([task], Some(slots)) => {
            check_under_way(superblock, task, slots)?;
            check_journal(superblock, *layout, edge(task))?;
        }
        _ => return field("growths under way", growths.len() as u64),
    }
    match superblock.reshape {
        None => Ok(()),
        Some(_) if geometry.skew.is_some() => field("reshape of groups", 0),
        Some(reshape) => check_first(&reshape, layout),
    }
}

fn check_first(reshape: &Reshape, layout: &Layout) -> Result<(), MetaError> {
    let first = reshape.first_sectors;
    if reshape.journal != Journal::Closed && reshape.former.is_none() {
        return field("journal", 0);
    }
    if first == 0 || first > layout.size_sectors() {
        return field("first sectors", first);
    }
    Ok(())
}

/// Rows are in the new shape from the first on. Nobody else has a part in the array meanwhile.
fn check_under_way(
    superblock: &Superblock,
    task: &TaskRecord,
    slots: u16,
) -> Result<(), MetaError> {
    let geometry = &superblock.geometry;
    let level = geometry.level;
    let striped = matches!(
        level,
        Level::Raid0 | Level::Raid4 | Level::Raid5(_) | Level::Raid6(_)
    );
    let fewer = slots > level.parities() && slots < geometry.slots;
    if !striped || geometry.grown.is_some() || !fewer {
        return field("former slots", slots.into());
    }
    if level.parities() > 0 && superblock.write_hole != WriteHole::Ppl {
        return field("reshape without a log", 0);
    }
    if superblock.partner.is_some() || !superblock.lent.is_empty() {
        return field("reshape of a shared array", 0);
    }
    match task.done[..] {
        [] | [(0, _)] => Ok(()),
        [(row, _), ..] => field("task run", row),
    }
}

/// What the journal has is a row that its place has not, and was needed there.
fn check_journal(superblock: &Superblock, layout: Layout, edge: u64) -> Result<(), MetaError> {
    let filled = |reshape: &Reshape| reshape.journal == Journal::Filled;
    let reshape = superblock.reshape.filter(filled);
    let Some(slots) = reshape.and_then(|reshape| reshape.former) else {
        return Ok(());
    };
    match edge < layout.rows() && !layout.reshaping(slots, edge).is_dead(Row(edge)) {
        true => Ok(()),
        false => field("row in the journal", edge),
    }
}

/// The first row that is not in its new shape.
pub fn edge(task: &TaskRecord) -> u64 {
    task.done.first().map_or(0, |run| run.1)
}

impl Superblock {
    /// The map of the array, as far as superblocks tell it.
    pub fn layout(&self) -> Result<Layout, MetaError> {
        let layout = Layout::new(self.geometry).map_err(MetaError::Geometry)?;
        let mut tasks = self.tasks.iter();
        let growth = tasks.find(|task| task.kind == TaskKind::Growth);
        let former = self.reshape.and_then(|reshape| reshape.former);
        Ok(match (growth, former) {
            (None, _) => layout,
            (Some(_), None) => layout.growing(),
            (Some(task), Some(slots)) => layout.reshaping(slots, edge(task)),
        })
    }

    /// Sectors that the array had at first.
    pub fn first_sectors(&self, layout: &Layout) -> u64 {
        let reshaped = self.reshape.map(|reshape| reshape.first_sectors);
        reshaped.unwrap_or(layout.first_sectors())
    }
}
