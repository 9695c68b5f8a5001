//! Where superblocks lie on a device of which nothing is known, and what was read there.

use crate::contract::{DeviceIo, Segment};
use crate::units::{PAGE_BYTES, PAGE_SECTORS, SECTOR_BYTES};
use alloc::vec::Vec;
use restripe_format::meta::MetaError;
use restripe_format::meta::rules::check_found;
use restripe_format::meta::superblock::{SUPER_A_AT, SUPER_B_PLACES, Superblock};

/// The sector of a place where a superblock may lie: copy A's, then copy B's in their order.
pub(crate) fn super_place(index: usize) -> u64 {
    index
        .checked_sub(1)
        .map_or(SUPER_A_AT, |index| SUPER_B_PLACES[index])
}

/// What was read at a place of a superblock.
pub(crate) fn superblock_in(io: &DeviceIo) -> Result<Superblock, MetaError> {
    let superblock = Superblock::decode(&joined(io))?;
    check_found(&superblock).map(|()| superblock)
}

fn joined(io: &DeviceIo) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(io.segments.len() * PAGE_BYTES);
    for segment in &io.segments {
        if let Segment::Page(page) = segment {
            bytes.extend_from_slice(&page[..]);
        }
    }
    bytes
}

const _: () = assert!(PAGE_SECTORS * SECTOR_BYTES == PAGE_BYTES as u64);
