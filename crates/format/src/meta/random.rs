//! Random numbers for tests, here and in the tier.

/// A small generator (splitmix64): the same seed, the same values.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    pub fn flag(&mut self) -> bool {
        self.number() & 1 == 1
    }
}
