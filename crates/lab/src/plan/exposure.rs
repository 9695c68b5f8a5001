//! What the loss of a second disk takes, while the first is not rebuilt: found by losing every two disks.

use restripe_array::layout::{CellSet, Layout, RowMap};
use restripe_array::{Row, Slot};

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Exposure {
    /// How many of the others lose data if they fail next, behind the disk for which they are most.
    pub hurting: u16,
    pub others: u16,
    /// The data chunks that are lost with the worst of two disks, as a share of all.
    pub lost_share: f64,
}

impl Exposure {
    /// Of a layout that has every turn as often as any other.
    pub fn of(layout: &Layout) -> Exposure {
        let slots = layout.geometry().slots;
        let rows: Vec<RowMap> = (0..layout.rows()).map(|row| layout.row(Row(row))).collect();
        let (mut hurting, mut lost) = (0, 0);
        for first in 0..slots {
            let hurts = |second: &u16| {
                let gone = [Slot(first), Slot(*second)];
                !layout.decodable_without(|slot| gone.contains(&slot))
            };
            let worse = (0..slots).filter(|second| *second != first).filter(hurts);
            let worse: Vec<u16> = worse.collect();
            hurting = hurting.max(worse.len());
            let chunks = worse
                .iter()
                .map(|second| lost_chunks(&rows, [Slot(first), Slot(*second)]));
            lost = chunks.max().unwrap_or(0).max(lost);
        }
        Exposure {
            hurting: hurting as u16, // below `slots`
            others: slots.saturating_sub(1),
            lost_share: lost as f64 / (layout.rows() * layout.data_cells()) as f64,
        }
    }
}

/// Data chunks that no row can bring without these two.
fn lost_chunks(rows: &[RowMap], gone: [Slot; 2]) -> usize {
    let lost = |map: &RowMap| {
        let here = without(map, gone);
        (0..map.data)
            .filter(|data| map.reads_for(*data, here).is_none())
            .count()
    };
    rows.iter().map(lost).sum()
}

/// The cells that stand on other slots.
fn without(map: &RowMap, gone: [Slot; 2]) -> CellSet {
    let here = (0..)
        .zip(map.cells())
        .filter(|(_, cell)| !gone.contains(&cell.slot));
    here.fold(CellSet::EMPTY, |here, (cell, _)| here.with(cell))
}

#[cfg(test)]
mod tests {
    use super::super::candidates::{self, Candidate};
    use super::*;

    fn of(slots: u16, name: &str) -> Exposure {
        let named = |one: &Candidate| one.name() == name;
        let candidate = candidates::of(slots, true).into_iter().find(named);
        let layout = candidate.expect("it is there").sample();
        Exposure::of(&layout.expect("sound"))
    }

    fn close(found: f64, share: f64) -> bool {
        (found - share).abs() < 1e-12
    }

    /// What the paper does not say: 6 of 8 where RAID-5 has all 8, 4 of 7 where RAID-10 has 1. Of a row in which two cells are
    /// lost, both are data in one turn of three.
    #[test]
    fn more_disks_hurt_and_each_hurts_less() {
        let plain = of(9, "RAID-5");
        assert_eq!((plain.hurting, plain.others), (8, 8));
        // Seven rows of nine lose two of eight, two lose one.
        assert!(close(plain.lost_share, 16.0 / 72.0), "{plain:?}");
        let skewed = of(9, "S2-RAID-5");
        assert_eq!((skewed.hurting, skewed.others), (6, 8));
        // One sub-array of nine.
        assert!(close(skewed.lost_share, (4.0 / 6.0) / 9.0), "{skewed:?}");
        let flat = of(9, "RAID-50");
        assert_eq!((flat.hurting, flat.others), (2, 8));
        assert!(close(flat.lost_share, (4.0 / 6.0) / 3.0), "{flat:?}");
        let mirrors = of(8, "RAID-10");
        assert_eq!((mirrors.hurting, mirrors.others), (1, 7));
        assert!(close(mirrors.lost_share, 1.0 / 4.0), "{mirrors:?}");
        let skewed = of(8, "S2-RAID-10");
        assert_eq!((skewed.hurting, skewed.others), (4, 7));
        assert!(close(skewed.lost_share, 1.0 / 16.0), "{skewed:?}");
    }

    #[test]
    fn two_parities_bear_any_second_loss() {
        for (slots, name) in [(9, "RAID-6"), (20, "S2-RAID-6")] {
            let exposure = of(slots, name);
            assert_eq!((exposure.hurting, exposure.lost_share), (0, 0.0));
        }
    }

    /// Copies that wrap: each disk shares chunks with both neighbours.
    #[test]
    fn an_odd_number_of_mirrors_is_exposed_to_two() {
        let odd = of(9, "RAID-10");
        assert_eq!((odd.hurting, odd.others), (2, 8));
    }
}
