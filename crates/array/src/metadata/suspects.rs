//! Reads that do without some members, to see whether these hold what they were given: what is read of them
//! is taken as missing, and made of the others. Nobody knows which member is wrong but whoever asks, by a
//! checksum of what is read.

use super::Metadata;
use crate::layout::RowMap;
use crate::layout::code::CellSet;
use crate::units::Slot;
use alloc::vec::Vec;
use core::ops::Range;

/// The slots whose members a read does without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Suspects {
    /// A bit for each slot.
    slots: u64,
    /// What was made of the others is written where they have it.
    pub repairs: bool,
}

/// A reading without one of the sets of suspects.
#[derive(Clone, Copy)]
pub struct Attempt {
    /// Which of the sets it is.
    set: usize,
    /// How many were made before it.
    nth: usize,
    pub suspects: Suspects,
}

impl Attempt {
    /// The same once more, for what was wrong to be written again.
    pub fn repairing(self) -> Attempt {
        let suspects = Suspects {
            repairs: true,
            ..self.suspects
        };
        Attempt { suspects, ..self }
    }

    /// How these sectors are read after that attempt, or at first: none when nobody is left to do without.
    /// Without the suspects they can be read of members that are here: a reading that fails says that one of
    /// these cannot be read.
    pub(crate) fn next(
        metadata: &Metadata,
        sectors: Range<u64>,
        last: Option<Attempt>,
    ) -> Option<Attempt> {
        let (from, nth) = last.map_or((0, 0), |last| (last.set + 1, last.nth + 1));
        let rows = rows_of(metadata, sectors);
        let sets = suspects(metadata, &rows);
        let mut left = sets.into_iter().enumerate().skip(from);
        let next = left.find(|(_, suspects)| can_do_without(metadata, *suspects, &rows));
        next.map(|(set, suspects)| Attempt { set, nth, suspects })
    }

    /// How many were made before it.
    pub fn nth(self) -> usize {
        self.nth
    }
}

/// No more sets of suspects than this are tried.
const SETS_MAX: usize = 256;

impl Suspects {
    /// Nobody is: it is read as always, but what cannot be read is not written again of others that may be
    /// wrong.
    pub const NOBODY: Suspects = Suspects {
        slots: 0,
        repairs: false,
    };

    /// The cells of a row that are theirs.
    pub(crate) fn cells(self, map: &RowMap) -> CellSet {
        let theirs = |&cell: &u8| self.slots & bit(map.cells[usize::from(cell)].slot) != 0;
        let cells = (0..map.width).filter(theirs);
        cells.fold(CellSet::EMPTY, CellSet::with)
    }
}

/// Slots that have none are never under suspicion.
fn bit(slot: Slot) -> u64 {
    1_u64.checked_shl(u32::from(slot.0)).unwrap_or(0)
}

/// Who may be wrong about these rows' parts, the fewest first, whoever of them is here: as many as redundancy
/// can do without, and one of them at least has the parts themselves.
fn suspects(metadata: &Metadata, rows: &[(RowMap, u8)]) -> Vec<Suspects> {
    let (mut all, mut holders) = (0, 0);
    for (map, data) in rows {
        let holding = match metadata.layout.parity() {
            true => CellSet::only(*data),
            false => map.copies_of(*data),
        };
        let slot = |cell: u8| bit(map.cells[usize::from(cell)].slot);
        holders |= holding.iter().fold(0, |bits, cell| bits | slot(cell));
        let others = match metadata.layout.parity() {
            true => map.all(),
            false => holding,
        };
        all |= others.iter().fold(0, |bits, cell| bits | slot(cell));
    }
    let mut sets = Vec::new();
    for count in 1..=u32::from(metadata.layout.tolerance()) {
        choose(all, count, 0, &mut |slots| {
            let met = slots & holders != 0 && sets.len() < SETS_MAX;
            met.then(|| {
                sets.push(Suspects {
                    slots,
                    repairs: false,
                });
            });
            sets.len() < SETS_MAX
        });
    }
    sets
}

/// The rows that sectors lie in, each with the cell that has its part of them.
fn rows_of(metadata: &Metadata, sectors: Range<u64>) -> Vec<(RowMap, u8)> {
    let mut rows = Vec::new();
    let mut lba = sectors.start;
    while lba < sectors.end {
        let place = metadata.layout.place(lba);
        rows.push((metadata.row_map(place.row), place.data));
        lba += metadata.layout.chunk_sectors() - place.offset;
    }
    rows
}

fn can_do_without(metadata: &Metadata, suspects: Suspects, rows: &[(RowMap, u8)]) -> bool {
    rows.iter().all(|(map, data)| {
        let left = metadata.live_cells(map).minus(suspects.cells(map));
        let trusted = !metadata.layout.parity() || metadata.in_sync(map.row);
        left.contains(*data) || trusted && map.recover(*data, left).is_some()
    })
}

/// Tells of every set of so many of these bits, beside those that were taken; until false is said.
fn choose(from: u64, count: u32, taken: u64, tell: &mut impl FnMut(u64) -> bool) -> bool {
    if count == 0 {
        return tell(taken);
    }
    let mut left = from;
    while left != 0 {
        let lowest = left & left.wrapping_neg();
        left ^= lowest;
        if !choose(left, count - 1, taken | lowest, tell) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::choose;

    #[test]
    fn every_set_is_told_of_once() {
        for (bits, count, sets) in [
            (0b1011, 1, 3),
            (0b1011, 2, 3),
            (0b11111, 3, 10),
            (0b1, 2, 0),
        ] {
            let mut told = alloc::vec::Vec::new();
            choose(bits, count, 0, &mut |set| {
                assert_eq!((set & !bits, set.count_ones()), (0, count));
                assert!(!told.contains(&set));
                told.push(set);
                true
            });
            assert_eq!(told.len(), sets, "{count} of {bits:b}");
        }
    }
}
