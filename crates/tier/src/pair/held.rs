//! What the extent map says of a range of the main set, and of the whole log.

use crate::overlay::{ExtentMap, Kind, Piece};
use alloc::vec::Vec;
use core::ops::Range;

/// The copies that count: home is old, or some members of home are.
const INSTEAD: [Kind; 2] = [Kind::Instead, Kind::Also];

/// What the log does not have of a range, in pieces of at most `longest` sectors: (lba, sectors).
pub(crate) fn holes(map: &ExtentMap, range: Range<u64>, longest: u32) -> Vec<(u64, u32)> {
    let mut holes = Vec::new();
    for piece in map.lookup(range) {
        let Piece::Hole { home, sectors } = piece else {
            continue;
        };
        for lba in (home..home + sectors).step_by(longest as usize) {
            let left = home + sectors - lba;
            holes.push((lba, left.min(u64::from(longest)) as u32));
        }
    }
    holes
}

/// What of a range only home has, or would have: (lba, sectors).
pub(crate) fn not_instead(map: &ExtentMap, range: Range<u64>) -> Vec<(u64, u64)> {
    let mut left = Vec::new();
    for piece in map.lookup(range) {
        match piece {
            Piece::Hole { home, sectors } => left.push((home, sectors)),
            Piece::Mapped(copy) if copy.kind == Kind::Clean => {
                left.push((copy.home, u64::from(copy.sectors)));
            }
            Piece::Mapped(_) => {}
        }
    }
    left
}

/// Extents whose only current copy is in the log.
pub(crate) fn extents_instead(map: &ExtentMap) -> u64 {
    INSTEAD.iter().map(|kind| map.total(*kind).extents).sum()
}

/// Sectors whose only current copy is in the log.
pub(crate) fn sectors_instead(map: &ExtentMap) -> u64 {
    INSTEAD.iter().map(|kind| map.total(*kind).sectors).sum()
}

/// Whether something in the log has to go home, or can be forgotten.
pub(crate) fn holds_anything(map: &ExtentMap) -> bool {
    Kind::ALL.iter().any(|kind| map.total(*kind).extents > 0)
}
