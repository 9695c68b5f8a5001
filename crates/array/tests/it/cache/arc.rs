//! ARC and its VDF version: a worked example, and every choice against a naive model that follows figure 4 of the paper
//! (Megiddo and Modha, FAST 2003) over plain vectors.

use super::{Model, cache, never_differ, never_differs, request};
use restripe_array::cache::Rule;

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

impl Model for Naive {
    fn request(&mut self, block: u64, stack: u16) -> Option<Option<u64>> {
        let clock = self.clock;
        self.clock += 1;
        for list in [0, 1] {
            let found = self.held[list].iter().position(|held| held.block == block);
            if let Some(at) = found {
                let mut held = self.held[list].remove(at);
                held.asked = clock;
                self.held[1].push(held);
                return None;
            }
        }
        let (list, evicted) = self.make_room(block, clock);
        self.held[list].push(Held {
            block,
            stack,
            rebuilt: false,
            asked: clock,
        });
        Some(evicted)
    }

    fn penalties(&mut self) -> &mut [u64] {
        &mut self.penalties
    }

    fn lose_rebuilt(&mut self, stack: u16) {
        let of_stack = self.all().filter(|held| held.stack == stack);
        of_stack.for_each(|held| held.rebuilt = false);
    }

    fn rebuilt(&mut self, block: u64) {
        let held = self.all().find(|held| held.block == block);
        held.into_iter().for_each(|held| held.rebuilt = true);
    }

    fn forget(&mut self, block: u64) {
        let lists = self.held.iter_mut();
        lists.for_each(|list| list.retain(|held| held.block != block));
    }

    fn evict(&mut self) -> Option<u64> {
        let held = self.held[0].len() + self.held[1].len();
        (held > 0).then(|| {
            let list = self.gives(false);
            let block = self.take(list, self.clock);
            if self.ghosts[0].len() + self.ghosts[1].len() == self.frames {
                let from = if self.ghosts[list].is_empty() {
                    1 - list
                } else {
                    list
                };
                self.ghosts[from].remove(0);
            }
            self.ghosts[list].push(block);
            block
        })
    }
}

impl Naive {
    fn make_room(&mut self, block: u64, clock: u64) -> (usize, Option<u64>) {
        let lengths = [0, 1].map(|list| self.ghosts[list].len());
        if self.ghosts[0].contains(&block) {
            self.target = self
                .frames
                .min(self.target + (lengths[1] / lengths[0]).max(1));
            self.ghosts[0].retain(|other| *other != block);
            return (1, self.replace(false, clock));
        }
        if self.ghosts[1].contains(&block) {
            self.target = self.target.saturating_sub((lengths[0] / lengths[1]).max(1));
            self.ghosts[1].retain(|other| *other != block);
            return (1, self.replace(true, clock));
        }
        let recent = self.held[0].len() + lengths[0];
        let all = recent + self.held[1].len() + lengths[1];
        if recent == self.frames && self.held[0].len() == self.frames {
            return (0, Some(self.take(0, clock)));
        }
        if recent == self.frames {
            self.ghosts[0].remove(0);
        } else if all == 2 * self.frames {
            self.ghosts[1].remove(0);
        }
        (0, self.replace(false, clock))
    }

    fn replace(&mut self, of_frequent: bool, clock: u64) -> Option<u64> {
        if self.held[0].len() + self.held[1].len() < self.frames {
            return None;
        }
        let list = self.gives(of_frequent);
        let block = self.take(list, clock);
        self.ghosts[list].push(block);
        Some(block)
    }

    /// The list that gives a block.
    fn gives(&self, of_frequent: bool) -> usize {
        let recent = self.held[0].len();
        let over = recent > self.target || of_frequent && recent == self.target;
        usize::from(recent == 0 || !over && !self.held[1].is_empty())
    }

    /// Most age over penalty; of equal ones the oldest.
    fn take(&mut self, list: usize, clock: u64) -> u64 {
        let weight = |held: &Held| {
            let stands = !self.weighs || held.rebuilt;
            let penalty = if stands {
                1
            } else {
                self.penalties[usize::from(held.stack)]
            };
            (clock - held.asked) as f64 / penalty as f64
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
}

#[test]
fn every_choice_is_the_naive_models_through_failures_and_returns() {
    for rule in [Rule::Arc, Rule::VdfArc] {
        let naive = |frames, stacks| Naive {
            weighs: rule == Rule::VdfArc,
            frames,
            target: 0,
            held: [Vec::new(), Vec::new()],
            ghosts: [Vec::new(), Vec::new()],
            penalties: vec![1; stacks],
            clock: 0,
        };
        never_differs(rule, 0..300, 800, naive);
    }
}

#[test]
fn without_a_failure_vdf_is_arc() {
    never_differ(Rule::Arc, Rule::VdfArc);
}
