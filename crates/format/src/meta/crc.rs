//! crc32c (Castagnoli, reflected 0x82f63b78): the checksum of everything Restripe keeps on members.
//!
//! Table-driven, eight bytes a step, so that the engine needs no dependency and no CPU feature. User data is never
//! summed here; the shell's kernels do that.

use crate::units::SECTOR_BYTES;

const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `TABLES[k][b]`: the remainder of byte `b` followed by `k` zero bytes.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0u32; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ POLYNOMIAL
            } else {
                crc >> 1
            };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut step = 1;
    while step < 8 {
        let mut byte = 0;
        while byte < 256 {
            let shorter = tables[step - 1][byte];
            tables[step][byte] = (shorter >> 8) ^ tables[0][(shorter & 0xff) as usize];
            byte += 1;
        }
        step += 1;
    }
    tables
}

/// Metadata pages are mostly zeros: so many at once are skipped.
const ZEROS: usize = 64;

/// `SKIP[k][b]`: what [`ZEROS`] zero bytes make of a state whose byte `k` is `b` and whose others are zero.
static SKIP: [[u32; 256]; 4] = skips();

const fn skips() -> [[u32; 256]; 4] {
    let single = tables();
    let mut skips = [[0u32; 256]; 4];
    let mut entry = 0;
    while entry < 4 * 256 {
        let mut state = ((entry % 256) as u32) << (8 * (entry / 256));
        let mut zeros = 0;
        while zeros < ZEROS {
            state = (state >> 8) ^ single[0][(state & 0xff) as usize];
            zeros += 1;
        }
        skips[entry / 256][entry % 256] = state;
        entry += 1;
    }
    skips
}

/// The crc32c of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    finish(extend(START, bytes))
}

/// The crc32c of so many sectors of zeros.
pub fn crc32c_of_zeros(sectors: u64) -> u32 {
    let blocks = sectors * (SECTOR_BYTES / ZEROS as u64);
    finish((0..blocks).fold(START, |state, _| skip_zeros(state)))
}

/// The crc32c of `bytes` as if the four bytes at `field` were zero: how a structure carries its own checksum.
///
/// `field + 4` lies within `bytes`.
pub fn crc32c_without(bytes: &[u8], field: usize) -> u32 {
    let state = extend(START, &bytes[..field]);
    let state = extend(state, &[0; 4]);
    finish(extend(state, &bytes[field + 4..]))
}

const START: u32 = !0;

fn finish(state: u32) -> u32 {
    !state
}

fn extend(mut state: u32, bytes: &[u8]) -> u32 {
    let (blocks, rest) = bytes.as_chunks::<ZEROS>();
    for block in blocks {
        state = if *block == [0; ZEROS] {
            skip_zeros(state)
        } else {
            extend_eights(state, block)
        };
    }
    extend_eights(state, rest)
}

/// [`ZEROS`] zero bytes. What they do to a state is linear, so each of its bytes can be looked up by itself.
fn skip_zeros(state: u32) -> u32 {
    let parts = state.to_le_bytes();
    let skipped = |(place, byte): (usize, &u8)| SKIP[place][usize::from(*byte)];
    parts
        .iter()
        .enumerate()
        .map(skipped)
        .fold(0, |sum, part| sum ^ part)
}

fn extend_eights(mut state: u32, bytes: &[u8]) -> u32 {
    let (eights, rest) = bytes.as_chunks::<8>();
    for eight in eights {
        state = step_eight(state, u64::from_le_bytes(*eight));
    }
    for byte in rest {
        state = (state >> 8) ^ TABLES[0][usize::from(state.to_le_bytes()[0] ^ byte)];
    }
    state
}

fn step_eight(state: u32, eight: u64) -> u32 {
    let mixed = (eight ^ u64::from(state)).to_le_bytes();
    let mut sum = 0;
    for (place, byte) in mixed.iter().enumerate() {
        sum ^= TABLES[7 - place][usize::from(*byte)];
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, B.4.
    #[test]
    fn published_vectors() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let ascending: [u8; 32] = core::array::from_fn(|i| i as u8);
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
        assert_eq!(crc32c(&[]), 0);
    }

    #[test]
    fn zeros_need_not_be_there() {
        for sectors in [0, 1, 3, 128] {
            let zeros = alloc::vec![0; sectors as usize * 512];
            assert_eq!(crc32c_of_zeros(sectors), crc32c(&zeros));
        }
    }

    #[test]
    fn zeros_are_skipped_as_if_they_were_summed() {
        for at in [0, 1, 63, 64, 200, 511] {
            let mut bytes = [0u8; 512];
            bytes[at] = 0x5a;
            let whole = finish(extend_eights(START, &bytes));
            assert_eq!(crc32c(&bytes), whole, "the byte at {at}");
        }
    }

    #[test]
    fn a_field_counts_as_zero() {
        let mut bytes = [7u8; 61];
        bytes[19..23].fill(0);
        let expected = crc32c(&bytes);
        bytes[19..23].copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(crc32c_without(&bytes, 19), expected);
    }
}
