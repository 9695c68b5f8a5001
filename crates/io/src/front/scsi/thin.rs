//! Blocks without data: UNMAP's list, and the answer to GET LBA STATUS.

use super::answer::BLOCK_BYTES;
use super::cdb::Extent;
use super::inquiry::UNMAP_BLOCKS_MAX;
use super::sense::{self, Sense};
use crate::front::Link;

/// Extents of the map that one GET LBA STATUS looks at, and bytes of the medium.
const EXTENTS_MAX: usize = 1024;
const MAPPED_BYTES_MAX: u64 = 256 << 20;

/// The extents of an UNMAP, the last first (SBC-3 section 5.28).
pub(super) fn unmap_list(list: &[u8], blocks: u64) -> Result<Vec<Extent>, Sense> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let (header, rest) = list
        .split_first_chunk::<8>()
        .ok_or(sense::PARAMETER_LIST_LENGTH)?;
    let bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let descriptors = rest.len().min(bytes) / 16;
    let mut extents = Vec::with_capacity(descriptors);
    for descriptor in rest.chunks_exact(16).take(descriptors).rev() {
        let number = |from: usize, until: usize| {
            let bytes = descriptor[from..until].iter();
            bytes.fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let extent = Extent {
            lba: number(0, 8),
            blocks: number(8, 12),
            fua: false,
        };
        let end = extent.lba.checked_add(extent.blocks);
        if end.is_none_or(|end| end > blocks) {
            return Err(sense::BEYOND_THE_END);
        }
        extents.push(extent);
    }
    if extents.iter().map(|extent| extent.blocks).sum::<u64>() > UNMAP_BLOCKS_MAX.into() {
        return Err(sense::INVALID_PARAMETER);
    }
    extents.retain(|extent| extent.blocks > 0);
    extents.dedup_by(follows);
    Ok(extents)
}

/// Makes one extent of two, if the one after begins where the one before ends. The list has the last first.
fn follows(before: &mut Extent, after: &mut Extent) -> bool {
    let adjacent = before.lba + before.blocks == after.lba;
    if adjacent {
        after.lba = before.lba;
        after.blocks += before.blocks;
    }
    adjacent
}

/// GET LBA STATUS (SBC-3 section 5.5): from the written map. What was never written is deallocated.
pub(super) fn status(lba: u64, blocks: u64, export: usize, link: &mut dyn Link) -> Vec<u8> {
    let bytes = ((blocks - lba) * BLOCK_BYTES).min(MAPPED_BYTES_MAX);
    let map = link.map(export, lba * BLOCK_BYTES, bytes, EXTENTS_MAX);
    let mut found: Vec<(u64, u64, bool)> = Vec::new();
    let (mut at, end) = (lba, lba + bytes / BLOCK_BYTES);
    for extent in map {
        let until = extent.lba.saturating_add(extent.sectors).min(end);
        if extent.lba > at || until <= at {
            continue;
        }
        match found.last_mut() {
            Some((_, count, hole)) if *hole == extent.hole => *count += until - at,
            _ => found.push((at, until - at, extent.hole)),
        }
        at = until;
    }
    if found.is_empty() {
        found.push((lba, end - lba, false));
    }
    let mut data = ((4 + 16 * found.len()) as u32).to_be_bytes().to_vec();
    data.extend_from_slice(&[0; 4]);
    for (from, count, hole) in found {
        data.extend_from_slice(&from.to_be_bytes());
        data.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
        data.extend_from_slice(&[u8::from(hole), 0, 0, 0]);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(extents: &[(u64, u32)]) -> Vec<u8> {
        let bytes = (extents.len() * 16) as u16;
        let mut list = vec![0; 8];
        list[2..4].copy_from_slice(&bytes.to_be_bytes());
        for (lba, blocks) in extents {
            list.extend_from_slice(&lba.to_be_bytes());
            list.extend_from_slice(&blocks.to_be_bytes());
            list.extend_from_slice(&[0; 4]);
        }
        list
    }

    #[test]
    fn adjacent_extents_are_unmapped_at_once() {
        let found = unmap_list(&list(&[(0, 1), (1, 2), (8, 0), (9, 1)]), 10);
        let found = found.expect("they lie within");
        let pairs: Vec<_> = found.iter().map(|it| (it.lba, it.blocks)).collect();
        assert_eq!(pairs, [(9, 1), (0, 3)]);
    }

    #[test]
    fn all_extents_together_are_within_the_limit() {
        let (blocks, half) = (u64::from(u32::MAX), UNMAP_BLOCKS_MAX / 2);
        for apart in [0, 8] {
            let second = u64::from(half) + apart;
            assert!(unmap_list(&list(&[(0, half), (second, half)]), blocks).is_ok());
            let over = unmap_list(&list(&[(0, half), (second, half + 1)]), blocks);
            assert_eq!(over, Err(sense::INVALID_PARAMETER));
        }
    }

    #[test]
    fn a_list_beyond_the_end_or_cut_short_unmaps_nothing_else() {
        let beyond = unmap_list(&list(&[(0, 1), (9, 2)]), 10);
        assert_eq!(beyond, Err(sense::BEYOND_THE_END));
        let far = unmap_list(&list(&[(u64::MAX, 2)]), 10);
        assert_eq!(far, Err(sense::BEYOND_THE_END));
        let whole = list(&[(0, 1), (4, 1)]);
        for cut in 0..whole.len() {
            let found = unmap_list(&whole[..cut], 10);
            assert!(
                found.is_err() || found.is_ok_and(|it| it.len() <= 1),
                "{cut}"
            );
        }
    }
}
