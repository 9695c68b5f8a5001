//! What stands for the bytes of a sector, and how a write's contents are made.
//!
//! The codes are linear and act bytewise, so 8 bytes stand for a sector as well as 512 do: parity, recovery
//! and the oracle stay exact at 1/64 of the memory. Metadata pages are whole in every payload.

use crate::rng::mix;
use restripe_array::SECTOR_BYTES;

/// How much of each sector of data is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Payload {
    /// All 512 bytes.
    Bytes,
    /// 8 bytes.
    Tokens,
    /// Nothing: for times and counts, never for a claim of correctness.
    None,
}

/// The contents of one sector: 0 for zeros, else a value that no other write of any sector makes.
pub type Token = u64;

impl Payload {
    /// Bytes kept of one sector.
    pub const fn unit(self) -> usize {
        match self {
            Payload::Bytes => 512,
            Payload::Tokens => 8,
            Payload::None => 0,
        }
    }

    /// Bytes kept of `bytes` bytes of the array.
    pub const fn scaled(self, bytes: u32) -> usize {
        bytes as usize / SECTOR_BYTES as usize * self.unit()
    }

    /// Fills one sector with what `token` stands for.
    pub fn fill(self, sector: &mut [u8], token: Token) {
        let mut word = token;
        for chunk in sector.chunks_exact_mut(8) {
            chunk.copy_from_slice(&word.to_le_bytes());
            word = next_word(word);
        }
    }

    /// The token of a sector, or `None` when no token makes these bytes.
    pub fn token(self, sector: &[u8]) -> Option<Token> {
        let first = first_word(sector);
        let mut word = first;
        for chunk in sector.chunks_exact(8) {
            if chunk != word.to_le_bytes() {
                return None;
            }
            word = next_word(word);
        }
        Some(first)
    }
}

fn next_word(word: u64) -> u64 {
    if word == 0 { 0 } else { mix(word) }
}

fn first_word(sector: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&sector[..8]);
    u64::from_le_bytes(bytes)
}

/// What write number `write` puts into sector `lba`.
pub fn token_of(write: u64, lba: u64) -> Token {
    mix(mix(write) ^ lba).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_gives_its_token_back() {
        for payload in [Payload::Bytes, Payload::Tokens] {
            for token in [0, 1, token_of(3, 4)] {
                let mut sector = vec![0xee; payload.unit()];
                payload.fill(&mut sector, token);
                assert_eq!(payload.token(&sector), Some(token));
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_no_token() {
        let mut sector = vec![0; 512];
        Payload::Bytes.fill(&mut sector, token_of(1, 1));
        sector[300] ^= 1;
        assert_eq!(Payload::Bytes.token(&sector), None);
    }

    #[test]
    fn writes_and_sectors_differ() {
        assert_ne!(token_of(1, 0), token_of(2, 0));
        assert_ne!(token_of(1, 0), token_of(1, 1));
    }
}
