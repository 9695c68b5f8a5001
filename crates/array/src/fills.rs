//! How far a member has been filled, by its own word.
//!
//! The newest superblock says which rows of a task are done. The device of the member that is filled may be a
//! copy from before some of them: put back under an old superblock, or under the version before the newest,
//! which a crash may also leave there. So a row counts as done only if the device's own superblock says so as
//! well, and of an old copy none does. After a crash that fills the rows of one checkpoint again.
//!
//! The version to which a start brings members that lag has these rows and no more. So a start that is cut
//! short does not make an old copy look like the member.

use crate::runset::RunSet;
use alloc::vec::Vec;
use core::ops::Range;
use restripe_format::layout::Layout;
use restripe_format::meta::Superblock;
use restripe_format::meta::superblock::{Placement, TaskRecord};

/// The device of a line of the member table.
#[derive(Clone, Copy)]
pub(crate) enum Own<'a> {
    Missing,
    /// It says this, and lacks nothing that it says is done.
    Says(&'a Superblock),
    Outdated,
}

/// Takes the rows out of each task that the devices of the members that it fills may lack. `own` runs
/// parallel to the member table.
pub(crate) fn keep_held(chosen: &mut Superblock, own: &[Own]) {
    let Ok(layout) = chosen.layout() else {
        return;
    };
    let mut tasks = core::mem::take(&mut chosen.tasks);
    for task in &mut tasks {
        if let Some(slot) = task.filled_slot() {
            *task = held(chosen, own, &layout, slot, task);
        }
    }
    chosen.tasks = tasks;
}

fn held(
    chosen: &Superblock,
    own: &[Own],
    layout: &Layout,
    slot: u16,
    task: &TaskRecord,
) -> TaskRecord {
    let mut done = RunSet::from_runs(&task.done);
    for line in chosen.placement.iter().filter(|line| line.slot == slot) {
        let own = line.incoming.map(|target| own[usize::from(target)]);
        let theirs = match own {
            None | Some(Own::Missing) => continue,
            Some(Own::Outdated) => Vec::new(),
            Some(Own::Says(theirs)) => done_by(theirs, line),
        };
        keep_within(&mut done, &rows_of(chosen, layout, line), &theirs);
    }
    // No more runs than there were: a superblock has room for those.
    let done = done.at_most(task.done.len(), &RunSet::default());
    TaskRecord {
        done: done.runs().to_vec(),
        ..task.clone()
    }
}

/// The rows with which a device says it has been filled in this place.
fn done_by(theirs: &Superblock, place: &Placement) -> Vec<(u64, u64)> {
    let me = theirs.index_of(theirs.member);
    let mut lines = theirs.placement.iter();
    let same = lines.any(|line| {
        (line.slot, line.partition) == (place.slot, place.partition)
            && line.incoming == me
            && line.incoming_region == place.incoming_region
    });
    let mut tasks = theirs.tasks.iter();
    let task = tasks.find(|task| task.filled_slot() == Some(place.slot));
    let done = task.filter(|_| same && me.is_some());
    done.map_or(Vec::new(), |task| task.done.clone())
}

/// The rows of a line of the placement table: those of its partition, or all.
fn rows_of(chosen: &Superblock, layout: &Layout, line: &Placement) -> Range<u64> {
    let lines = chosen.placement.iter();
    match lines.filter(|other| other.slot == line.slot).count() {
        1 => 0..u64::MAX,
        _ => layout.partition_rows(line.partition),
    }
}

/// Of these rows, keeps what is in `held` as well, which ascends.
fn keep_within(done: &mut RunSet, rows: &Range<u64>, held: &[(u64, u64)]) {
    let mut from = rows.start;
    for &(first, count) in held {
        let gap_ends = first.min(rows.end);
        done.remove(from, gap_ends.saturating_sub(from));
        from = from.max(first + count);
    }
    done.remove(from, rows.end.saturating_sub(from));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_some_rows_those_are_kept_that_are_held() {
        let kept = |rows: Range<u64>, held: &[(u64, u64)]| {
            let mut done = RunSet::from_runs(&[(0, 10), (20, 10), (40, 10)]);
            keep_within(&mut done, &rows, held);
            done.runs().to_vec()
        };
        let all = [(0, 10), (20, 10), (40, 10)];
        assert_eq!(kept(0..50, &all), all);
        assert_eq!(kept(0..50, &[]), []);
        assert_eq!(kept(0..50, &[(5, 20), (48, 1)]), [(5, 5), (20, 5), (48, 1)]);
        assert_eq!(kept(20..40, &[]), [(0, 10), (40, 10)]);
        assert_eq!(kept(20..40, &[(0, 22)]), [(0, 10), (20, 2), (40, 10)]);
        assert_eq!(kept(20..40, &[(28, 30)]), [(0, 10), (28, 2), (40, 10)]);
    }
}
