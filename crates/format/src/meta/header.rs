//! What stands alike at the start of every page but a superblock's: magic, version, checksum, array.
//!
//! A checksum covers what it is asked to cover, from the magic on: a whole page, or a header of one sector.

use super::bytes::{get_u16, get_u32, get_uuid, put, put_u16, put_u32};
use super::crc::crc32c_without;
use super::{FORMAT_MAJOR, MetaError};
use crate::units::Uuid;

const MAGIC_BYTES: usize = 8;
const VERSION: usize = 8;
const CRC: usize = 12;
const ARRAY: usize = 16;

/// Zeros, with a header in front that is still to be sealed.
pub fn begin(bytes: &mut [u8], magic: [u8; MAGIC_BYTES], array: Uuid) {
    bytes.fill(0);
    put(bytes, 0, magic);
    put_u16(bytes, VERSION, FORMAT_MAJOR);
    put(bytes, ARRAY, array.0);
}

/// Puts the checksum of these bytes in its place among them.
pub fn seal(bytes: &mut [u8]) {
    let crc = crc32c_without(bytes, CRC);
    put_u32(bytes, CRC, crc);
}

/// Checks all that [`begin`] and [`seal`] wrote.
pub fn check(bytes: &[u8], magic: [u8; MAGIC_BYTES], array: Uuid) -> Result<(), MetaError> {
    if bytes[..MAGIC_BYTES] != magic {
        return Err(MetaError::NotFound);
    }
    check_version(bytes, CRC, VERSION)?;
    if get_uuid(bytes, ARRAY) != array {
        return Err(MetaError::OtherArray);
    }
    Ok(())
}

/// Checks the checksum at `crc` and then the version at `version`.
pub(super) fn check_version(bytes: &[u8], crc: usize, version: usize) -> Result<(), MetaError> {
    let stored = get_u32(bytes, crc);
    let computed = crc32c_without(bytes, crc);
    if stored != computed {
        return Err(MetaError::Checksum { stored, computed });
    }
    match get_u16(bytes, version) {
        FORMAT_MAJOR => Ok(()),
        major => Err(MetaError::Version {
            major,
            supported: FORMAT_MAJOR,
        }),
    }
}
