//! The one source of chance in the simulated world: xoshiro256**, seeded through splitmix64.
//!
//! Its output is part of what a seed means, so it never changes: a replay line printed years ago still
//! replays. A golden test holds it to that.

/// A seeded generator. Streams that must not disturb each other are split off with [`Rng::fork`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

/// One step of splitmix64: also the mixing function of tokens and digests.
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    pub fn new(seed: u64) -> Rng {
        let mut state = [0; 4];
        let mut at = seed;
        for word in &mut state {
            *word = mix(at);
            at = at.wrapping_add(0x9e37_79b9_7f4a_7c15);
        }
        Rng { state }
    }

    /// A generator of its own for one purpose: what is drawn from it leaves this one's future alone.
    pub fn fork(&mut self, purpose: u64) -> Rng {
        Rng::new(self.word() ^ mix(purpose))
    }

    pub fn word(&mut self) -> u64 {
        let result = self.state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = self.state[1] << 17;
        self.state[2] ^= self.state[0];
        self.state[3] ^= self.state[1];
        self.state[1] ^= self.state[2];
        self.state[0] ^= self.state[3];
        self.state[2] ^= shifted;
        self.state[3] = self.state[3].rotate_left(45);
        result
    }

    /// Below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "an empty range has no member");
        let wide = u128::from(self.word()) * u128::from(bound);
        (wide >> 64) as u64
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "a range runs upwards");
        low + self.below(high - low + 1)
    }

    /// True `of` times in `out_of`.
    pub fn chance(&mut self, of: u64, out_of: u64) -> bool {
        self.below(out_of) < of
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = self.below(from.len() as u64);
        &from[index as usize]
    }

    /// A random order of `0..count`.
    pub fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for i in (1..count).rev() {
            order.swap(i, self.below(i as u64 + 1) as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_never_changes() {
        let mut rng = Rng::new(1);
        let first: Vec<u64> = (0..4).map(|_| rng.word()).collect();
        assert_eq!(
            first,
            [
                12966619160104079557,
                9600361134598540522,
                10590380919521690900,
                7218738570589545383
            ]
        );
    }

    #[test]
    fn ranges_are_reached_and_kept() {
        let mut rng = Rng::new(7);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[rng.between(3, 7) as usize - 3] = true;
        }
        assert_eq!(seen, [true; 5]);
    }

    #[test]
    fn order_is_a_permutation() {
        let mut order = Rng::new(3).order(20);
        order.sort_unstable();
        assert_eq!(order, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn a_fork_is_independent_of_its_siblings_use() {
        let (mut a, mut b) = (Rng::new(5), Rng::new(5));
        a.fork(1).word();
        b.fork(1);
        assert_eq!(a.word(), b.word());
    }
}
