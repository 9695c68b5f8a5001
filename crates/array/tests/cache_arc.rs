//! ARC and its VDF version: a worked example, and every choice against a naive model that follows figure 4 of the paper
//! (Megiddo and Modha, FAST 2003) over plain vectors.

use restripe_array::cache::{Cache, CacheConfig, Rule, Ties};

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

#[test]
fn figure_4_step_by_step() {
    let mut arc = cache(Rule::Arc, 2, 1);
    let mut ask = |block| request(&mut arc, block, 0);
    assert_eq!((ask(1), ask(2)), (Some(None), Some(None)));
    // A hit: 1 is frequent, 2 recent. The target is 0, so 2 makes room and is remembered.
    assert_eq!((ask(1), ask(3)), (None, Some(Some(2))));
    // 2 was let go too early: the target is 1, the recent list (3) not over it, so the frequent one gives 1.
    assert_eq!(ask(2), Some(Some(1)));
    // 1 too, from the frequent list: the target is 0 again and 3 goes, which leaves 2 and 1 on the frequent list.
    assert_eq!(ask(1), Some(Some(3)));
    // A new block takes the place of 2, the older one.
    assert_eq!(ask(4), Some(Some(2)));
    assert_eq!(ask(1), None);
}

#[test]
fn with_a_failure_the_list_gives_the_block_of_most_age_over_penalty() {
    let mut vdf = cache(Rule::VdfArc, 3, 4);
    vdf.set_penalty(0, 3);
    for (block, stack) in [(10, 0), (1, 1), (2, 2)] {
        assert_eq!(request(&mut vdf, block, stack), Some(None));
    }
    // All are recent. Ages 3, 2, 1: 10 costs three times as much, so 1 goes though it is younger.
    assert_eq!(request(&mut vdf, 3, 3), Some(Some(1)));
    vdf.rebuilt(10);
    assert_eq!(request(&mut vdf, 4, 1), Some(Some(10)));
}

#[derive(Clone, Copy)]
struct Held {
    block: u64,
    stack: u16,
    rebuilt: bool,
    asked: u64,
}

/// The lists of the paper: T1 and T2 hold blocks, B1 and B2 numbers, the oldest first.
struct Naive {
    weighs: bool,
    frames: usize,
    target: usize,
    held: [Vec<Held>; 2],
    ghosts: [Vec<u64>; 2],
    penalties: Vec<u64>,
    clock: u64,
}

impl Naive {
    fn request(&mut self, block: u64, stack: u16) -> Option<Option<u64>> {
        self.clock += 1;
        for list in [0, 1] {
            let found = self.held[list].iter().position(|held| held.block == block);
            if let Some(at) = found {
                let mut held = self.held[list].remove(at);
                held.asked = self.clock;
                self.held[1].push(held);
                return None;
            }
        }
        let (list, evicted) = self.make_room(block);
        self.held[list].push(Held {
            block,
            stack,
            rebuilt: false,
            asked: self.clock,
        });
        Some(evicted)
    }

    fn make_room(&mut self, block: u64) -> (usize, Option<u64>) {
        let lengths = [0, 1].map(|list| self.ghosts[list].len());
        if self.ghosts[0].contains(&block) {
            self.target = self
                .frames
                .min(self.target + (lengths[1] / lengths[0]).max(1));
            self.ghosts[0].retain(|other| *other != block);
            return (1, self.replace(false));
        }
        if self.ghosts[1].contains(&block) {
            self.target = self.target.saturating_sub((lengths[0] / lengths[1]).max(1));
            self.ghosts[1].retain(|other| *other != block);
            return (1, self.replace(true));
        }
        let recent = self.held[0].len() + lengths[0];
        let all = recent + self.held[1].len() + lengths[1];
        if recent == self.frames && self.held[0].len() == self.frames {
            return (0, Some(self.take(0)));
        }
        if recent == self.frames {
            self.ghosts[0].remove(0);
        } else if all == 2 * self.frames {
            self.ghosts[1].remove(0);
        }
        (0, self.replace(false))
    }

    fn replace(&mut self, of_frequent: bool) -> Option<u64> {
        let recent = self.held[0].len();
        if recent + self.held[1].len() < self.frames {
            return None;
        }
        let over = recent > self.target || of_frequent && recent == self.target;
        let list = if recent > 0 && over { 0 } else { 1 };
        let block = self.take(list);
        self.ghosts[list].push(block);
        Some(block)
    }

    /// Most age over penalty; of equal ones the oldest.
    fn take(&mut self, list: usize) -> u64 {
        let weight = |held: &Held| {
            let stands = !self.weighs || held.rebuilt;
            let penalty = if stands {
                1
            } else {
                self.penalties[usize::from(held.stack)]
            };
            (self.clock - held.asked) as f64 / penalty as f64
        };
        let all = self.held[list].iter().enumerate();
        let first = all.max_by(|(_, one), (_, other)| {
            let by_weight = weight(one).total_cmp(&weight(other));
            by_weight.then(other.asked.cmp(&one.asked))
        });
        let (at, _) = first.expect("the list is not empty");
        self.held[list].remove(at).block
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Held> {
        self.held.iter_mut().flatten()
    }

    fn lose_rebuilt(&mut self, stack: u16) {
        let of_stack = self.all().filter(|held| held.stack == stack);
        of_stack.for_each(|held| held.rebuilt = false);
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
    for seed in 0..300 {
        for rule in [Rule::Arc, Rule::VdfArc] {
            let mut state = seed;
            let frames = 1 + next(&mut state) as usize % 24;
            let stacks = 1 + next(&mut state) as u16 % 7;
            let mut cache = cache(rule, frames as u32, stacks);
            let mut naive = Naive {
                weighs: rule == Rule::VdfArc,
                frames,
                target: 0,
                held: [Vec::new(), Vec::new()],
                ghosts: [Vec::new(), Vec::new()],
                penalties: vec![1; stacks.into()],
                clock: 0,
            };
            for step in 0..800 {
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
}

/// Now and then a member fails or returns, a row is rebuilt, what was rebuilt is lost, a block is dropped.
fn disturb(state: &mut u64, cache: &mut Cache, naive: &mut Naive) {
    let stack = (next(state) % naive.penalties.len() as u64) as u16;
    let block = next(state) % 64;
    match next(state) % 40 {
        0 => {
            let reads = 1 + next(state) as u16 % 8;
            cache.set_penalty(stack, reads);
            let penalty = &mut naive.penalties[usize::from(stack)];
            if std::mem::replace(penalty, reads.into()) == 1 && reads > 1 {
                naive.lose_rebuilt(stack);
            }
        }
        1..=4 => {
            cache.rebuilt(block);
            let held = naive.all().find(|held| held.block == block);
            held.into_iter().for_each(|held| held.rebuilt = true);
        }
        5 => {
            cache.settle(stack);
            naive.lose_rebuilt(stack);
        }
        6 => {
            cache.forget(block);
            let lists = naive.held.iter_mut();
            lists.for_each(|list| list.retain(|held| held.block != block));
        }
        _ => {}
    }
}

#[test]
fn without_a_failure_vdf_is_arc() {
    let mut state = 7;
    let (mut one, mut other) = (cache(Rule::Arc, 50, 5), cache(Rule::VdfArc, 50, 5));
    for _ in 0..100_000 {
        let block = next(&mut state) % (1 + next(&mut state) % 300);
        let stack = (block % 5) as u16;
        assert_eq!(
            request(&mut one, block, stack),
            request(&mut other, block, stack)
        );
    }
}
