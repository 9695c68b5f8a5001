//! The cache's rules: worked examples, step by step, and every choice against a naive model.

mod arc;
mod surrogate;

use restripe_array::cache::{Cache, CacheConfig, Rule, Ties};
use std::ops::Range;

const RULES: [Rule; 4] = [Rule::Lru, Rule::Lfu, Rule::VdfLru, Rule::VdfLfu];

fn cache(rule: Rule, frames: u32, stacks: u16) -> Cache {
    Cache::new(CacheConfig {
        frames,
        stacks,
        rule,
        ties: Ties::Oldest,
    })
}

/// One request: what made room, if it missed.
fn request(cache: &mut Cache, block: u64, stack: u16) -> Option<Option<u64>> {
    if cache.ask(block).is_some() {
        return None;
    }
    Some(cache.admit(block, stack).evicted)
}

/// Runs requests (block, stack) and gathers which blocks were evicted, 0 where none was.
fn evictions(cache: &mut Cache, requests: &[(u64, u16)]) -> Vec<u64> {
    let evicted = requests
        .iter()
        .map(|&(block, stack)| request(cache, block, stack));
    evicted
        .map(|evicted| evicted.flatten().unwrap_or(0))
        .collect()
}

/// Blocks 1, 2, 3 stand on slots of their own; slot 0, which holds 10 and 11, has failed. With four slots a miss on it
/// costs three reads.
#[test]
fn algorithm_1_step_by_step() {
    let mut vdf = cache(Rule::VdfLru, 3, 4);
    vdf.set_penalty(0, 3);
    // At GTS 3: block 10 has age 3 and weighs 3, block 1 age 2 and weighs 6, block 2 age 1 and weighs 3.
    assert_eq!(
        evictions(&mut vdf, &[(10, 0), (1, 1), (2, 2), (3, 3)]),
        [0, 0, 0, 1]
    );
    // At GTS 4: 10 weighs 4; 2 weighs 2 x 3; 3 weighs 1 x 3.
    assert_eq!(evictions(&mut vdf, &[(1, 1)]), [2]);
    // At GTS 5: 10 weighs 5; 3 weighs 2 x 3; 1 weighs 1 x 3.
    assert_eq!(evictions(&mut vdf, &[(2, 2)]), [3]);
    // A hit at GTS 6 makes 1 the youngest. At GTS 7: 10 weighs 7; 2 weighs 2 x 3; 1 weighs 1 x 3: now the failed disk's goes.
    assert_eq!(evictions(&mut vdf, &[(1, 1), (3, 3)]), [0, 10]);
    // At GTS 8: 2 weighs 3 x 3, 1 weighs 2 x 3, 3 weighs 1 x 3.
    assert_eq!(evictions(&mut vdf, &[(11, 0)]), [2]);
    // The disk is replaced, all weigh their age alone: the oldest is 1, of GTS 6.
    vdf.set_penalty(0, 1);
    assert_eq!(evictions(&mut vdf, &[(2, 2)]), [1]);
}

#[test]
fn algorithm_2_step_by_step() {
    let mut vdf = cache(Rule::VdfLfu, 3, 4);
    vdf.set_penalty(0, 3);
    // Twice for 1 and 2, once for 10, which weighs 1 x 3 against 2 each; of these 1 is the older.
    let requests = [(1, 1), (1, 1), (2, 2), (2, 2), (10, 0), (3, 3)];
    assert_eq!(evictions(&mut vdf, &requests), [0, 0, 0, 0, 0, 1]);
    // 3 weighs 1, less than 2 with its 2 and 10 with its 3.
    assert_eq!(evictions(&mut vdf, &[(1, 1)]), [3]);
    // A frequency is forgotten with its block: 1 came back with 1, asked for once more it has 2, as 2 has, which is older.
    assert_eq!(evictions(&mut vdf, &[(1, 1), (3, 3)]), [0, 2]);
    // Without the failure 10 has 1, as 3 has, and is older.
    vdf.set_penalty(0, 1);
    assert_eq!(evictions(&mut vdf, &[(2, 2)]), [10]);
}

#[test]
fn of_equal_weights_the_tie_rule_decides() {
    for (ties, gone) in [(Ties::Oldest, 1), (Ties::Newest, 2)] {
        let mut vdf = Cache::new(CacheConfig {
            frames: 2,
            stacks: 3,
            rule: Rule::VdfLfu,
            ties,
        });
        assert_eq!(evictions(&mut vdf, &[(1, 0), (2, 1), (3, 2)]), [0, 0, gone]);
    }
}

#[test]
fn a_rebuilt_block_costs_one_read_again() {
    let mut vdf = cache(Rule::VdfLru, 3, 4);
    vdf.set_penalty(0, 3);
    evictions(&mut vdf, &[(10, 0), (11, 0), (1, 1)]);
    vdf.rebuilt(10);
    // Ages 3, 2, 1: 10 and 1 weigh three times theirs, 11 its own.
    assert_eq!(evictions(&mut vdf, &[(2, 2)]), [10]);
    // What was rebuilt is gone again: 11 had moved and now weighs its age alone.
    vdf.rebuilt(11);
    vdf.settle(0);
    assert_eq!(evictions(&mut vdf, &[(3, 3)]), [1]);
}

/// A cache done naively, which the real one must not differ from.
trait Model {
    /// `None` of a hit, or who made room.
    fn request(&mut self, block: u64, stack: u16) -> Option<Option<u64>>;
    fn penalties(&mut self) -> &mut [u64];
    /// What was rebuilt of a stack's slot is gone.
    fn lose_rebuilt(&mut self, stack: u16);
    fn rebuilt(&mut self, block: u64);
    fn forget(&mut self, block: u64);
    /// The next to go, though none comes in.
    fn evict(&mut self) -> Option<u64>;
}

/// A block of the naive model.
#[derive(Clone, Copy)]
struct Held {
    block: u64,
    stack: u16,
    rebuilt: bool,
    asked: u64,
    frequency: u64,
}

/// The rules as the paper words them, over all blocks, without a stack.
struct Naive {
    rule: Rule,
    frames: usize,
    held: Vec<Held>,
    penalties: Vec<u64>,
    clock: u64,
}

impl Model for Naive {
    fn request(&mut self, block: u64, stack: u16) -> Option<Option<u64>> {
        let clock = self.clock;
        self.clock += 1;
        if let Some(held) = self.held.iter_mut().find(|held| held.block == block) {
            (held.asked, held.frequency) = (clock, held.frequency + 1);
            return None;
        }
        let full = self.held.len() == self.frames;
        let evicted = full.then(|| self.held.swap_remove(self.victim(clock)).block);
        self.held.push(Held {
            block,
            stack,
            rebuilt: false,
            asked: clock,
            frequency: 1,
        });
        Some(evicted)
    }

    fn lose_rebuilt(&mut self, stack: u16) {
        let of_stack = self.held.iter_mut().filter(|held| held.stack == stack);
        of_stack.for_each(|held| held.rebuilt = false);
    }

    fn penalties(&mut self) -> &mut [u64] {
        &mut self.penalties
    }

    fn rebuilt(&mut self, block: u64) {
        let held = self.held.iter_mut().find(|held| held.block == block);
        held.into_iter().for_each(|held| held.rebuilt = true);
    }

    fn forget(&mut self, block: u64) {
        self.held.retain(|held| held.block != block);
    }

    fn evict(&mut self) -> Option<u64> {
        let held = !self.held.is_empty();
        held.then(|| self.held.swap_remove(self.victim(self.clock)).block)
    }
}

impl Naive {
    fn victim(&self, clock: u64) -> usize {
        let weighs = matches!(self.rule, Rule::VdfLru | Rule::VdfLfu);
        let counts = matches!(self.rule, Rule::Lfu | Rule::VdfLfu);
        let value = |held: &Held| {
            let stands = !weighs || held.rebuilt;
            let penalty = if stands {
                1
            } else {
                self.penalties[usize::from(held.stack)]
            };
            if counts {
                (held.frequency * penalty) as f64
            } else {
                penalty as f64 / (clock - held.asked) as f64
            }
        };
        let order = |one: &&(usize, Held), other: &&(usize, Held)| {
            let (one, other) = (&one.1, &other.1);
            value(one)
                .total_cmp(&value(other))
                .then(one.asked.cmp(&other.asked))
        };
        let all: Vec<(usize, Held)> = self.held.iter().copied().enumerate().collect();
        all.iter()
            .min_by(order)
            .expect("a full cache holds something")
            .0
    }
}

/// A small generator of numbers: the state is the seed.
fn next(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn every_choice_is_the_naive_models_through_failures_and_returns() {
    for rule in RULES {
        let naive = |frames, stacks| Naive {
            rule,
            frames,
            held: Vec::new(),
            penalties: vec![1; stacks],
            clock: 0,
        };
        never_differs(rule, 0..200, 600, naive);
    }
}

/// Random requests, of caches of many shapes, with failures and returns in between.
fn never_differs<M: Model>(
    rule: Rule,
    seeds: Range<u64>,
    steps: u32,
    naive: impl Fn(usize, usize) -> M,
) {
    for seed in seeds {
        let mut state = seed;
        let frames = 1 + next(&mut state) as usize % 24;
        let stacks = 1 + next(&mut state) as u16 % 7;
        let mut cache = cache(rule, frames as u32, stacks);
        let mut naive = naive(frames, stacks.into());
        for step in 0..steps {
            disturb(&mut state, &mut cache, &mut naive);
            let spread = 1 + next(&mut state) % 64;
            let block = next(&mut state) % spread;
            let stack = (block % u64::from(stacks)) as u16;
            let found = request(&mut cache, block, stack);
            let wanted = naive.request(block, stack);
            assert_eq!(found, wanted, "seed {seed}, {}, step {step}", rule.name());
        }
    }
}

/// Now and then a member fails or returns, a row is rebuilt, what was rebuilt is lost, a block is dropped, one makes room
/// for nothing, or all that go before one.
fn disturb(state: &mut u64, cache: &mut Cache, naive: &mut impl Model) {
    let stack = (next(state) % naive.penalties().len() as u64) as u16;
    let block = next(state) % 64;
    match next(state) % 40 {
        0 => {
            let reads = 1 + next(state) as u16 % 8;
            cache.set_penalty(stack, reads);
            let penalty = &mut naive.penalties()[usize::from(stack)];
            if std::mem::replace(penalty, reads.into()) == 1 && reads > 1 {
                naive.lose_rebuilt(stack);
            }
        }
        1..=4 => {
            cache.rebuilt(block);
            naive.rebuilt(block);
        }
        5 => {
            cache.settle(stack);
            naive.lose_rebuilt(stack);
        }
        6 => {
            cache.forget(block);
            naive.forget(block);
        }
        7..=8 => assert_eq!(cache.evict(), naive.evict()),
        9 if next(state).is_multiple_of(8) => {
            while cache.find(block).is_some() {
                assert_eq!(cache.evict(), naive.evict());
            }
        }
        _ => {}
    }
}

#[test]
fn without_a_failure_vdf_is_its_base_rule() {
    for (base, vdf) in [(Rule::Lru, Rule::VdfLru), (Rule::Lfu, Rule::VdfLfu)] {
        never_differ(base, vdf);
    }
}

/// Two rules make the same choices while nothing has failed.
fn never_differ(one: Rule, other: Rule) {
    let mut state = 7;
    let (mut one, mut other) = (cache(one, 50, 5), cache(other, 50, 5));
    for _ in 0..100_000 {
        let block = next(&mut state) % (1 + next(&mut state) % 300);
        let stack = (block % 5) as u16;
        assert_eq!(
            request(&mut one, block, stack),
            request(&mut other, block, stack)
        );
    }
}

/// Long ranges and short ones, of a full cache and of one that has been all but emptied.
#[test]
fn a_range_is_forgotten_and_nothing_else() {
    for rule in Rule::ALL {
        let mut cache = cache(rule, 64, 4);
        for block in 0..64 {
            cache.admit(block, (block % 4) as u16);
        }
        for range in [3..4, 10..20, 30..1 << 40, 5..9] {
            cache.forget_all(range);
        }
        let kept: Vec<u64> = (0..64)
            .filter(|block| cache.find(*block).is_some())
            .collect();
        let wanted: Vec<u64> = (0..3).chain(4..5).chain(9..10).chain(20..30).collect();
        assert_eq!(kept, wanted, "{rule:?}");
        cache.forget_all(0..u64::MAX);
        assert!((0..64).all(|block| cache.find(block).is_none()));
        assert!(cache.admit(7, 3).evicted.is_none());
    }
}
