//! CRC-32C (Castagnoli), the checksum of metadata and logs, with the CPU's instruction where there is one.
//!
//! The instruction takes 8 bytes but answers three cycles later, so three lanes of a block are summed side by side and
//! joined by what the checksum's linearity allows: going on over `n` zero bytes is a linear map, kept as a table.

use crate::Kernels;

/// The polynomial, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Bytes of one of the three lanes. Small enough that a page of 4 KiB is nearly all in lanes.
#[cfg(target_arch = "x86_64")]
const LANE: usize = 256;

type ByteTables<const N: usize> = [[u32; 256]; N];

/// `SLICES[n][b]` is the state after byte `b` and then `n` zero bytes.
static SLICES: ByteTables<8> = {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut state = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            state = (state >> 1) ^ if state & 1 == 0 { 0 } else { POLYNOMIAL };
            bit += 1;
        }
        tables[0][byte] = state;
        byte += 1;
    }
    let mut slice = 1;
    while slice < 8 {
        let mut byte = 0;
        while byte < 256 {
            let state = tables[slice - 1][byte];
            tables[slice][byte] = (state >> 8) ^ tables[0][(state & 0xff) as usize];
            byte += 1;
        }
        slice += 1;
    }
    tables
};

/// `SKIPS[n][b]` is the state that `b << 8n` becomes over a lane of zero bytes.
#[cfg(target_arch = "x86_64")]
static SKIPS: ByteTables<4> = {
    let mut images = [0; 32];
    let mut bit = 0;
    while bit < 32 {
        images[bit] = if bit == 0 { POLYNOMIAL } else { 1 << (bit - 1) };
        bit += 1;
    }
    // The images of the unit states over one zero bit, squared up to a lane of zero bytes.
    let mut bits = 1;
    while bits < LANE * 8 {
        images = twice(&images);
        bits *= 2;
    }
    let mut tables = [[0; 256]; 4];
    let mut entry = 0;
    while entry < 4 * 256 {
        let (table, byte) = (entry / 256, entry % 256);
        tables[table][byte] = image(&images, (byte as u32) << (8 * table));
        entry += 1;
    }
    tables
};

/// Applies a linear map, given by the images of the unit states.
#[cfg(target_arch = "x86_64")]
const fn image(images: &[u32; 32], state: u32) -> u32 {
    let mut sum = 0;
    let mut bit = 0;
    while bit < 32 {
        if (state >> bit) & 1 != 0 {
            sum ^= images[bit];
        }
        bit += 1;
    }
    sum
}

/// The map that applies another one twice.
#[cfg(target_arch = "x86_64")]
const fn twice(images: &[u32; 32]) -> [u32; 32] {
    let mut squared = [0; 32];
    let mut bit = 0;
    while bit < 32 {
        squared[bit] = image(images, images[bit]);
        bit += 1;
    }
    squared
}

/// CRC-32C of `bytes`, going on from the checksum `before` of what precedes them (0 for nothing): the checksum of two
/// pieces is `crc32c(crc32c(0, first), second)`.
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    Kernels::detect().crc32c(before, bytes)
}

/// With tables alone, 8 bytes a step.
pub(crate) fn by_tables(before: u32, bytes: &[u8]) -> u32 {
    let mut state = !before;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mixed = (u64::from_le_bytes(*word) ^ u64::from(state)).to_le_bytes();
        state = 0;
        for (slice, byte) in mixed.into_iter().rev().enumerate() {
            state ^= SLICES[slice][usize::from(byte)];
        }
    }
    for byte in rest {
        state = (state >> 8) ^ SLICES[0][usize::from(state.to_le_bytes()[0] ^ byte)];
    }
    !state
}

/// With the CPU's instruction.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
pub(crate) fn by_instruction(before: u32, bytes: &[u8]) -> u32 {
    let mut state = !before;
    let (blocks, rest) = bytes.as_chunks::<{ 3 * LANE }>();
    for block in blocks {
        state = three_lanes(state, block);
    }
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        state = step(state, word);
    }
    for &byte in rest {
        state = std::arch::x86_64::_mm_crc32_u8(state, byte);
    }
    !state
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn three_lanes(state: u32, block: &[u8; 3 * LANE]) -> u32 {
    let (words, _) = block.as_chunks::<8>();
    let (first, rest) = words.split_at(LANE / 8);
    let (second, third) = rest.split_at(LANE / 8);
    let mut states = [state, 0, 0];
    for ((a, b), c) in first.iter().zip(second).zip(third) {
        states = [step(states[0], a), step(states[1], b), step(states[2], c)];
    }
    skip_lane(skip_lane(states[0]) ^ states[1]) ^ states[2]
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn step(state: u32, word: &[u8; 8]) -> u32 {
    let state = std::arch::x86_64::_mm_crc32_u64(state.into(), u64::from_le_bytes(*word));
    // The instruction leaves the upper half zero.
    state as u32
}

/// The state after a lane of zero bytes.
#[cfg(target_arch = "x86_64")]
fn skip_lane(state: u32) -> u32 {
    let bytes = state.to_le_bytes().map(usize::from);
    SKIPS[0][bytes[0]] ^ SKIPS[1][bytes[1]] ^ SKIPS[2][bytes[2]] ^ SKIPS[3][bytes[3]]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;

    /// Check value of the catalogue of parametrised CRC algorithms, and those of RFC 3720, B.4.
    #[test]
    fn published_values() {
        let ascending: Vec<u8> = (0..32).collect();
        for kernels in Kernels::available() {
            assert_eq!(kernels.crc32c(0, b"123456789"), 0xe306_9283);
            assert_eq!(kernels.crc32c(0, &[0; 32]), 0x8a91_36aa);
            assert_eq!(kernels.crc32c(0, &[0xff; 32]), 0x62a8_ab43);
            assert_eq!(kernels.crc32c(0, &ascending), 0x46dd_794e);
            assert_eq!(kernels.crc32c(0, &[]), 0);
        }
    }

    #[test]
    fn every_length_and_alignment_equals_the_reference() {
        let bytes: Vec<u8> = (0..5000_u32)
            .map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8)
            .collect();
        let lengths = (0..40).chain([255, 256, 767, 768, 769, 1536, 4096, 4101]);
        for length in lengths {
            for start in [0, 1, 3, 8, 500] {
                let piece = &bytes[start..start + length];
                let expected = reference::crc32c(0x1234_5678, piece);
                for kernels in Kernels::available() {
                    assert_eq!(
                        kernels.crc32c(0x1234_5678, piece),
                        expected,
                        "{} {length}",
                        kernels.name()
                    );
                }
            }
        }
    }

    #[test]
    fn pieces_go_on_from_one_another() {
        let bytes: Vec<u8> = (0..2000_u32).map(|at| (at * 7 % 251) as u8).collect();
        for cut in [0, 1, 9, 768, 1000, 2000] {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(crc32c(crc32c(0, first), second), crc32c(0, &bytes));
        }
    }
}
