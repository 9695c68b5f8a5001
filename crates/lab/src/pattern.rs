//! The contents of a block as a function of its address and version. So a load keeps one number a block
//! instead of 4 KiB, and detects a byte from another address or from another time.

/// Bytes in a block: the unit of the load's record.
pub const BLOCK_BYTES: usize = 4096;
/// Bytes in a sector: what a write may tear into when its daemon is killed.
pub const SECTOR_BYTES: usize = 512;

/// Fills a block with what version `version` of block `block` holds. Version 0 was never written: zeros.
pub fn fill(seed: u64, block: u64, version: u32, bytes: &mut [u8]) {
    assert_eq!(bytes.len(), BLOCK_BYTES, "a block is filled whole");
    if version == 0 {
        bytes.fill(0);
        return;
    }
    let mut state = mix(seed ^ mix(block ^ mix(u64::from(version))));
    for word in bytes.chunks_exact_mut(8) {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        word.copy_from_slice(&(state ^ (state >> 32)).to_le_bytes());
    }
}

/// Spreads every bit of a number over all of it (the finaliser of splitmix64; Steele, Lea and Flood 2014).
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(seed: u64, block: u64, version: u32) -> Vec<u8> {
        let mut bytes = vec![1; BLOCK_BYTES];
        fill(seed, block, version, &mut bytes);
        bytes
    }

    #[test]
    fn what_was_never_written_is_zero() {
        assert!(block(1, 2, 0).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn place_version_and_seed_all_show_in_every_sector() {
        let one = block(1, 2, 3);
        for other in [block(1, 2, 4), block(1, 3, 3), block(2, 2, 3)] {
            for (a, b) in one.chunks(SECTOR_BYTES).zip(other.chunks(SECTOR_BYTES)) {
                assert_ne!(a, b);
            }
        }
        assert_eq!(one, block(1, 2, 3));
    }
}
