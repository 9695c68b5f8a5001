//! The place where a lost disk is rebuilt, and the time that this takes without requests.
//!
//! Every disk reads or writes at its own speed from end to end, all of them at once; parity and links cost
//! nothing. So the slowest disk decides: the one with the most bytes to read, or the one with the most bytes
//! to write. One spare disk receives all bytes of the lost disk, whatever the number of streams. With spare
//! partitions the streams end on different disks: the spare, and the disks that have no cell in a row with
//! the lost disk. These are not read, and may receive any of its partitions without two cells of a row on
//! one disk. Partitions are distributed evenly over them.

use super::speed::Speed;
use restripe_array::layout::{CellSet, Layout, RowMap};
use restripe_array::{Row, Slot};

/// The spare disk that all rebuilds have.
const SPARES: u16 = 1;
const LOST: Slot = Slot(0);

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rebuild {
    pub streams: u16,
    pub seconds: f64,
}

/// Spare partitions, as few on each disk as a lost disk needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spread {
    /// Disks that take partitions, the spare among them.
    pub targets: u16,
    /// Spare partitions on each disk, and the most that one target takes.
    pub reserve: u16,
}

impl Spread {
    /// None where a single stream has nothing to spread, or the rebuild leaves no disk alone.
    pub fn of(layout: &Layout) -> Option<Spread> {
        let streams = layout.partitions();
        let apart = apart(layout);
        (streams > 1 && apart > 0).then(|| {
            let targets = apart + SPARES;
            Spread {
                targets,
                reserve: streams.div_ceil(targets),
            }
        })
    }
}

impl Rebuild {
    /// Of a disk of which rows use so many bytes.
    pub fn of(layout: &Layout, bytes: u64, speed: Speed, spread: Option<Spread>) -> Rebuild {
        let streams = layout.partitions();
        let written = spread.map_or(1.0, |spread| f64::from(spread.reserve) / f64::from(streams));
        let each = (read_share(layout) / speed.read).max(written / speed.write);
        Rebuild {
            streams,
            seconds: bytes as f64 * each,
        }
    }
}

fn rows(layout: &Layout) -> impl Iterator<Item = RowMap> + '_ {
    let all = (0..layout.rows()).map(|row| layout.row(Row(row)));
    all.filter(|map| map.cell_on(LOST).is_some())
}

/// The most that is read of one disk, for each byte of the lost one.
fn read_share(layout: &Layout) -> f64 {
    let mut read = vec![0u64; usize::from(layout.geometry().slots)];
    let mut lost = 0;
    for map in rows(layout) {
        let wanted = map.cell_on(LOST).expect("only rows that have it");
        let here = CellSet::all(map.width).without(wanted);
        let recipe = map.recover(wanted, here).expect("one loss is borne");
        for (cell, _) in recipe.iter() {
            let slot = map.cells()[usize::from(cell)].slot;
            read[usize::from(slot.0)] += 1;
        }
        lost += 1;
    }
    let most = read.into_iter().max().unwrap_or(0);
    most as f64 / f64::from(lost.max(1))
}

/// Disks that have no cell in a row with the lost one.
fn apart(layout: &Layout) -> u16 {
    let mut beside = vec![false; usize::from(layout.geometry().slots)];
    for map in rows(layout) {
        for cell in map.cells() {
            beside[usize::from(cell.slot.0)] = true;
        }
    }
    beside.iter().filter(|beside| !**beside).count() as u16 // at most SLOTS_MAX
}

#[cfg(test)]
mod tests {
    use super::super::candidates::{self, Candidate};
    use super::*;

    const BYTES: u64 = 600;
    const EVEN: Speed = Speed {
        read: 10.0,
        write: 10.0,
    };

    fn sample(slots: u16, name: &str) -> Layout {
        let named = |one: &Candidate| one.name() == name;
        let candidate = candidates::of(slots, true).into_iter().find(named);
        let layout = candidate.expect("it is there").sample();
        layout.expect("sound")
    }

    fn seconds(layout: &Layout, speed: Speed, spread: Option<Spread>) -> f64 {
        Rebuild::of(layout, BYTES, speed, spread).seconds
    }

    /// One spare takes as long whatever brings it; spread, each stream has a disk of its own.
    #[test]
    fn a_spare_bounds_all_streams_and_spare_partitions_none() {
        for (slots, name, streams) in [
            (9, "S2-RAID-5", 3),
            (8, "S2-RAID-10", 4),
            (25, "S2-RAID-5", 5),
        ] {
            let layout = sample(slots, name);
            let spread = Spread::of(&layout).expect("some disks are not read");
            assert_eq!((spread.targets, spread.reserve), (streams, 1));
            assert_eq!(seconds(&layout, EVEN, None), 60.0);
            let spread = seconds(&layout, EVEN, Some(spread));
            assert_eq!(spread, 60.0 / f64::from(streams), "{slots} {name}");
        }
    }

    #[test]
    fn the_slower_of_reading_and_writing_counts() {
        let layout = sample(9, "S2-RAID-5");
        let read = |read| Speed { read, ..EVEN };
        // A third is read of each.
        assert_eq!(seconds(&layout, read(5.0), None), 60.0);
        assert_eq!(seconds(&layout, read(2.0), None), 100.0);
        assert_eq!(seconds(&layout, read(5.0), Spread::of(&layout)), 40.0);
        // All is read of each.
        let plain = sample(9, "RAID-5");
        assert_eq!(seconds(&plain, read(5.0), None), 120.0);
    }

    #[test]
    fn one_stream_has_nothing_to_spread() {
        for (slots, name) in [(9, "RAID-5"), (9, "RAID-50"), (8, "RAID-10")] {
            assert_eq!(Spread::of(&sample(slots, name)), None);
        }
    }

    /// Six groups of six have two streams and many disks that nobody reads.
    #[test]
    fn more_targets_than_streams_take_one_partition_each() {
        let candidates = candidates::of(36, false);
        let six = candidates
            .iter()
            .find(|one| one.skew.is_some_and(|skew| skew.groups == 6));
        let layout = six.expect("6 x 6").sample().expect("sound");
        let spread = Spread::of(&layout).expect("unread disks");
        assert_eq!((spread.targets, spread.reserve), (36 - 1 - 2 * 5 + 1, 1));
    }
}
