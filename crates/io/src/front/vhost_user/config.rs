//! What the device offers: feature bits and the configuration space (virtio 1.2, section 5.2).

use super::limits::{QUEUES_MAX, RANGE_SECTORS_MAX, RANGES_MAX, SEGMENT_BYTES_MAX, SEGMENTS_MAX};
use crate::front::Export;
use restripe_array::SECTOR_BYTES;

/// Bits of the features of a block device (5.2.3).
mod block {
    pub(crate) const SIZE_MAX: u64 = 1 << 1;
    pub(crate) const SEG_MAX: u64 = 1 << 2;
    pub(crate) const RO: u64 = 1 << 5;
    pub(crate) const BLK_SIZE: u64 = 1 << 6;
    pub(crate) const FLUSH: u64 = 1 << 9;
    pub(crate) const TOPOLOGY: u64 = 1 << 10;
    pub(crate) const CONFIG_WCE: u64 = 1 << 11;
    pub(crate) const MQ: u64 = 1 << 12;
    pub(crate) const DISCARD: u64 = 1 << 13;
    pub(crate) const WRITE_ZEROES: u64 = 1 << 14;
}

/// Bits of the features of queues and devices (6), and the one that vhost-user adds.
const INDIRECT_DESC: u64 = 1 << 28;
pub(crate) const EVENT_IDX: u64 = 1 << 29;
pub(crate) const PROTOCOL_FEATURES: u64 = 1 << 30;
const VERSION_1: u64 = 1 << 32;

/// Where the driver may write: whether the device is a write-back cache.
pub(crate) const WRITEBACK_AT: usize = 32;
/// Bytes of the space that some version of the standard gives a meaning, and after that zeros.
const SPACE_BYTES: usize = 256;

/// What is offered for an array that is like this.
pub(crate) fn features(export: &Export) -> u64 {
    let mut features = block::SIZE_MAX
        | block::SEG_MAX
        | block::BLK_SIZE
        | block::TOPOLOGY
        | block::MQ
        | INDIRECT_DESC
        | EVENT_IDX
        | PROTOCOL_FEATURES
        | VERSION_1;
    if export.durable {
        features |= block::FLUSH | block::CONFIG_WCE;
    }
    match export.read_only {
        true => features | block::RO,
        false => features | block::DISCARD | block::WRITE_ZEROES,
    }
}

/// What a driver may have. It has chosen once, from what was offered then, and the array may have turned
/// read-only or writable since: a request that it cannot have fails.
pub(crate) fn acceptable(export: &Export) -> u64 {
    features(export) | block::RO | block::DISCARD | block::WRITE_ZEROES
}

/// Whether a driver with these features relies on flushes. Any other expects that what it wrote is durable
/// at once.
pub(crate) fn flushes(features: u64) -> bool {
    features & block::FLUSH != 0
}

/// Whether a part of the space has the size of the disk.
pub(crate) fn has_size(at: u32, bytes: u32) -> bool {
    at == 0 && bytes >= 8
}

/// Part of the configuration space. `None`: beyond its end.
pub(crate) fn space(export: &Export, writeback: bool, at: u32, bytes: u32) -> Option<Vec<u8>> {
    let (at, end) = (at as usize, at as usize + bytes as usize);
    whole(export, writeback).get(at..end).map(<[u8]>::to_vec)
}

fn whole(export: &Export, writeback: bool) -> [u8; SPACE_BYTES] {
    let mut space = [0; SPACE_BYTES];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    let in_sectors = |bytes: u32| bytes / SECTOR_BYTES as u32;
    let logical = export.logical_block;
    let preferred = export.preferred_block.max(logical);
    put(0, &(export.size_bytes / SECTOR_BYTES).to_le_bytes());
    put(8, &SEGMENT_BYTES_MAX.to_le_bytes());
    put(12, &SEGMENTS_MAX.to_le_bytes());
    put(20, &logical.to_le_bytes());
    // Blocks that cost the least, in logical blocks: as a power of two, and the smallest worth asking for.
    put(24, &[(preferred / logical).ilog2() as u8]);
    put(26, &((preferred / logical) as u16).to_le_bytes());
    put(WRITEBACK_AT, &[u8::from(writeback)]);
    put(34, &QUEUES_MAX.to_le_bytes());
    for (limits_at, ranges) in [(36, RANGES_MAX), (48, RANGES_MAX)] {
        put(limits_at, &RANGE_SECTORS_MAX.to_le_bytes());
        put(limits_at + 4, &ranges.to_le_bytes());
    }
    put(44, &in_sectors(preferred).to_le_bytes());
    // Zeros may be had by giving space back.
    put(56, &[1]);
    space
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use restripe_array::Uuid;

    pub(in super::super) fn export() -> Export {
        Export {
            name: "tank".to_owned(),
            uuid: Uuid([7; 16]),
            description: String::new(),
            size_bytes: 10 << 20,
            logical_block: 512,
            minimum_block: 1,
            preferred_block: 4096,
            row_bytes: 3 << 16,
            maximum_block: 1 << 20,
            exclusive: false,
            busy: false,
            read_only: false,
            durable: true,
            serving: true,
        }
    }

    #[test]
    fn the_space_has_each_field_at_its_offset() {
        let all = space(&export(), true, 0, 60).expect("within the space");
        let field = |at: usize, bytes: usize| {
            let mut word = [0; 8];
            word[..bytes].copy_from_slice(&all[at..at + bytes]);
            u64::from_le_bytes(word)
        };
        assert_eq!((field(0, 8), field(20, 4)), (20480, 512));
        assert_eq!((field(24, 1), field(26, 2)), (3, 8));
        assert_eq!((field(32, 1), field(34, 2)), (1, u64::from(QUEUES_MAX)));
        assert_eq!((field(36, 4), field(40, 4), field(44, 4)), (1 << 21, 16, 8));
        assert_eq!((field(48, 4), field(52, 4), field(56, 1)), (1 << 21, 16, 1));
        assert!(space(&export(), true, 256, 0).is_some());
        assert!(space(&export(), true, 250, 8).is_none());
        assert!(space(&export(), true, u32::MAX, u32::MAX).is_none());
    }

    #[test]
    fn an_array_offers_what_it_can_do() {
        let usual = features(&export());
        assert!(usual & block::FLUSH != 0 && usual & block::RO == 0);
        let read_only = features(&Export {
            read_only: true,
            ..export()
        });
        assert!(read_only & block::RO != 0 && read_only & block::DISCARD == 0);
        let may_have = acceptable(&Export {
            read_only: true,
            ..export()
        });
        assert_eq!(
            usual & !may_have,
            0,
            "it may have been writable when the driver chose"
        );
        assert_eq!(read_only & !acceptable(&export()), 0);
        let volatile = features(&Export {
            durable: false,
            ..export()
        });
        assert!(volatile & (block::FLUSH | block::CONFIG_WCE) == 0);
        let promised = acceptable(&Export {
            durable: false,
            ..export()
        });
        assert_eq!(
            promised & block::FLUSH,
            0,
            "flushes that make nothing durable"
        );
    }
}
