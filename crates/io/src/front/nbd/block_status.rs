//! The contexts of block status queries, and the translation of an array's map into a reply.
//!
//! | context | flags |
//! |---|---|
//! | `base:allocation` | 0 data; 3 (hole, zero) never written: reads as zeros |
//! | `restripe:health` | 0 healthy; 1 degraded: redundancy is reduced; 2 rebuilt: restored by the running rebuild; 3 lost |

use crate::nbd_wire::message::Descriptor;
use restripe_array::SECTOR_BYTES;
use restripe_array::report::{Health, MapExtent};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Context {
    Allocation,
    Health,
}

const STATE_HOLE: u32 = 1 << 0;
const STATE_ZERO: u32 = 1 << 1;

impl Context {
    pub const ALL: [Context; 2] = [Context::Allocation, Context::Health];

    pub fn id(self) -> u32 {
        match self {
            Context::Allocation => 1,
            Context::Health => 2,
        }
    }

    pub fn name(self) -> &'static [u8] {
        match self {
            Context::Allocation => b"base:allocation",
            Context::Health => b"restripe:health",
        }
    }

    /// Whether a query of `LIST_META_CONTEXT` lists this context: its name, or its namespace with nothing behind it.
    pub fn is_listed_by(self, query: &[u8]) -> bool {
        let name = self.name();
        let namespace = name.iter().position(|byte| *byte == b':').map(|at| at + 1);
        query == name || namespace.is_some_and(|end| query == &name[..end])
    }

    fn flags(self, extent: &MapExtent) -> u32 {
        match (self, extent.health) {
            (Context::Allocation, _) if extent.hole => STATE_HOLE | STATE_ZERO,
            (Context::Allocation, _) => 0,
            (Context::Health, Health::Healthy) => 0,
            (Context::Health, Health::Degraded) => 1,
            (Context::Health, Health::Rebuilt) => 2,
            (Context::Health, Health::Lost) => 3,
        }
    }
}

/// Most extents of the map that one query looks at: more are left to the client's next query.
pub(super) const EXTENTS_MAX: usize = 1024;
/// Most bytes of the export that one query looks at: making a map takes time for each of its chunks.
pub(super) const MAPPED_BYTES_MAX: u32 = 256 << 20;

/// What `context` says of the `bytes` bytes from `offset` on: neighbours that say the same are one. The answer ends
/// where the map does, or where it has a gap.
pub(super) fn descriptors(
    context: Context,
    map: &[MapExtent],
    offset: u64,
    bytes: u32,
) -> Vec<Descriptor> {
    let end = offset + u64::from(bytes);
    let mut at = offset;
    let mut answer: Vec<Descriptor> = Vec::new();
    for extent in map {
        let start = extent.lba.saturating_mul(SECTOR_BYTES);
        let until = start.saturating_add(extent.sectors.saturating_mul(SECTOR_BYTES));
        let until = until.min(end);
        if start > at || at == end {
            break;
        }
        if until <= at {
            continue;
        }
        let covered = u32::try_from(until - at).expect("no longer than the query");
        let flags = context.flags(extent);
        match answer.last_mut() {
            Some(last) if last.flags == flags => last.bytes += covered,
            _ => answer.push(Descriptor {
                bytes: covered,
                flags,
            }),
        }
        at = until;
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(lba: u64, sectors: u64, hole: bool, health: Health) -> MapExtent {
        MapExtent {
            lba,
            sectors,
            hole,
            health,
        }
    }

    fn descriptor((bytes, flags): (u32, u32)) -> Descriptor {
        Descriptor { bytes, flags }
    }

    #[test]
    fn neighbours_that_say_the_same_are_one_descriptor() {
        let map = [
            extent(0, 8, false, Health::Healthy),
            extent(8, 8, true, Health::Healthy),
            extent(16, 8, true, Health::Degraded),
            extent(24, 8, false, Health::Lost),
        ];
        assert_eq!(
            descriptors(Context::Allocation, &map, 0, 16384),
            [(4096, 0), (8192, 3), (4096, 0)].map(descriptor)
        );
        assert_eq!(
            descriptors(Context::Health, &map, 0, 16384),
            [(8192, 0), (4096, 1), (4096, 3)].map(descriptor)
        );
    }

    #[test]
    fn an_answer_stays_within_the_query_and_ends_at_a_gap() {
        let map = [
            extent(0, 2, false, Health::Healthy),
            extent(2, 100, true, Health::Rebuilt),
            extent(110, 2, false, Health::Healthy),
        ];
        assert_eq!(
            descriptors(Context::Health, &map, 1000, 100),
            [(24, 0), (76, 2)].map(descriptor)
        );
        assert_eq!(
            descriptors(Context::Allocation, &map, 52000, 10000),
            [descriptor((102 * 512 - 52000, 3))]
        );
        assert_eq!(descriptors(Context::Allocation, &[], 0, 512), []);
        assert_eq!(descriptors(Context::Allocation, &map[2..], 0, 512), []);
    }

    #[test]
    fn a_namespace_lists_what_is_in_it() {
        assert!(Context::Allocation.is_listed_by(b"base:"));
        assert!(Context::Health.is_listed_by(b"restripe:health"));
        assert!(!Context::Health.is_listed_by(b"base:"));
        assert!(!Context::Health.is_listed_by(b"restripe"));
        assert!(!Context::Health.is_listed_by(b""));
    }
}
