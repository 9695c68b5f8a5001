//! A surrogate's space under a rule. A small model of one keeps two kinds of copies: those that are at home as well, which
//! the rule may drop, and those that are the only current ones, which nothing may. It is held against the same thing done
//! naively, as one list of all copies.

use super::{Held, Naive, RULES, cache, next};
use restripe_array::Slot;
use restripe_array::cache::{Cache, Rule};
use restripe_array::layout::{Geometry, Layout, Level};
use std::collections::BTreeSet;

/// What a surrogate makes of a request.
#[derive(PartialEq, Eq, Debug)]
enum Answer {
    /// It has the block.
    Held,
    /// It has it from now on; these were dropped for it.
    Kept(Vec<u64>),
    /// It has no space: the array itself must see to it.
    Full,
}

trait Surrogate {
    /// A copy is kept of what is read.
    fn read(&mut self, block: u64) -> Answer;
    /// The surrogate's copy is the only current one from now on, unless it is full.
    fn write(&mut self, block: u64) -> Answer;
    /// The only current copy was written back: its entry goes.
    fn went_home(&mut self, block: u64);
    /// Drops until there is space for so many, or until it must not. What was dropped, in order.
    fn drop_clean(&mut self, places: usize) -> Vec<u64>;
    /// A miss of this slot's blocks costs so many reads.
    fn price(&mut self, slot: u16, reads: u16);
    fn rebuilt(&mut self, block: u64);
    /// What was rebuilt of a slot is gone.
    fn lose_rebuilt(&mut self, slot: u16);
    /// The only current copies, and the others.
    fn copies(&self) -> [BTreeSet<u64>; 2];
}

// ------------------------------------------------------------------------------------------------ under the rule

/// The map of what is where, and the rule beside it, which knows only what may be dropped.
struct Ruled {
    capacity: usize,
    slots: u16,
    only: BTreeSet<u64>,
    also: BTreeSet<u64>,
    rule: Cache,
}

impl Ruled {
    fn new(rule: Rule, capacity: usize, slots: u16) -> Ruled {
        Ruled {
            capacity,
            slots,
            only: BTreeSet::new(),
            also: BTreeSet::new(),
            rule: cache(rule, capacity as u32, slots),
        }
    }

    fn space(&self) -> usize {
        self.capacity - self.only.len() - self.also.len()
    }
}

impl Surrogate for Ruled {
    fn read(&mut self, block: u64) -> Answer {
        if self.only.contains(&block) || self.rule.ask(block).is_some() {
            return Answer::Held;
        }
        let dropped = self.drop_clean(1);
        if self.space() == 0 {
            return Answer::Full;
        }
        let admission = self.rule.admit(block, slot_of(block, self.slots));
        assert_eq!(admission.evicted, None, "space was made before");
        self.also.insert(block);
        Answer::Kept(dropped)
    }

    fn write(&mut self, block: u64) -> Answer {
        if self.only.contains(&block) {
            return Answer::Held;
        }
        let held = self.rule.forget(block).is_some();
        assert_eq!(self.also.remove(&block), held);
        let dropped = self.drop_clean(1);
        if self.space() == 0 {
            return Answer::Full;
        }
        self.only.insert(block);
        Answer::Kept(dropped)
    }

    fn went_home(&mut self, block: u64) {
        self.only.remove(&block);
    }

    fn drop_clean(&mut self, places: usize) -> Vec<u64> {
        let mut dropped = Vec::new();
        while self.space() < places {
            let Some(block) = self.rule.evict() else {
                break;
            };
            assert!(self.also.remove(&block), "{block} may not be dropped");
            dropped.push(block);
        }
        dropped
    }

    fn price(&mut self, slot: u16, reads: u16) {
        self.rule.set_penalty(slot, reads);
    }

    fn rebuilt(&mut self, block: u64) {
        self.rule.rebuilt(block);
    }

    fn lose_rebuilt(&mut self, slot: u16) {
        self.rule.settle(slot);
    }

    fn copies(&self) -> [BTreeSet<u64>; 2] {
        assert!(self.also.iter().all(|&b| self.rule.find(b).is_some()));
        assert!(self.only.iter().all(|&b| self.rule.find(b).is_none()));
        [self.only.clone(), self.also.clone()]
    }
}

// -------------------------------------------------------------------------------------------------------- naively

/// All copies in one list, each with whether it is the only one.
struct Listed {
    rule: Rule,
    capacity: usize,
    copies: Vec<(Held, bool)>,
    penalties: Vec<u64>,
    /// Reads that met or made a copy that may be dropped.
    clock: u64,
}

impl Listed {
    fn new(rule: Rule, capacity: usize, slots: u16) -> Listed {
        Listed {
            rule,
            capacity,
            copies: Vec::new(),
            penalties: vec![1; slots.into()],
            clock: 0,
        }
    }

    fn place(&self, block: u64) -> Option<usize> {
        self.copies.iter().position(|(held, _)| held.block == block)
    }

    fn keep(&mut self, block: u64, only: bool) -> Answer {
        let dropped = self.drop_clean(1);
        if self.copies.len() == self.capacity {
            return Answer::Full;
        }
        let held = Held {
            block,
            stack: slot_of(block, self.penalties.len() as u16),
            rebuilt: false,
            asked: self.clock,
            frequency: 1,
        };
        self.clock += u64::from(!only);
        self.copies.push((held, only));
        Answer::Kept(dropped)
    }

    /// Among the copies that are not the only ones, the one that the rule as the paper words it lets go.
    fn victim(&self) -> Option<u64> {
        let clean = self.copies.iter().filter(|(_, only)| !only);
        let naive = Naive {
            rule: self.rule,
            frames: self.capacity,
            held: clean.map(|(held, _)| *held).collect(),
            penalties: self.penalties.clone(),
            clock: self.clock,
        };
        let any = !naive.held.is_empty();
        any.then(|| naive.held[naive.victim(self.clock)].block)
    }
}

impl Surrogate for Listed {
    fn read(&mut self, block: u64) -> Answer {
        let Some(place) = self.place(block) else {
            return self.keep(block, false);
        };
        let (held, only) = &mut self.copies[place];
        if !*only {
            (held.asked, held.frequency) = (self.clock, held.frequency + 1);
            self.clock += 1;
        }
        Answer::Held
    }

    fn write(&mut self, block: u64) -> Answer {
        if self.place(block).is_some_and(|place| self.copies[place].1) {
            return Answer::Held;
        }
        self.copies.retain(|(held, _)| held.block != block);
        self.keep(block, true)
    }

    fn went_home(&mut self, block: u64) {
        self.copies
            .retain(|(held, only)| held.block != block || !only);
    }

    fn drop_clean(&mut self, places: usize) -> Vec<u64> {
        let mut dropped = Vec::new();
        while self.capacity - self.copies.len() < places {
            let Some(block) = self.victim() else {
                break;
            };
            self.copies.retain(|(held, _)| held.block != block);
            dropped.push(block);
        }
        dropped
    }

    fn price(&mut self, slot: u16, reads: u16) {
        let before = std::mem::replace(&mut self.penalties[usize::from(slot)], reads.into());
        if before == 1 && reads > 1 {
            self.lose_rebuilt(slot);
        }
    }

    fn rebuilt(&mut self, block: u64) {
        if let Some(place) = self.place(block) {
            self.copies[place].0.rebuilt = true;
        }
    }

    fn lose_rebuilt(&mut self, slot: u16) {
        let of_slot = self
            .copies
            .iter_mut()
            .filter(|(held, _)| held.stack == slot);
        of_slot.for_each(|(held, _)| held.rebuilt = false);
    }

    fn copies(&self) -> [BTreeSet<u64>; 2] {
        [true, false].map(|wanted| {
            let of_kind = self.copies.iter().filter(|(_, only)| *only == wanted);
            of_kind.map(|(held, _)| held.block).collect()
        })
    }
}

// ------------------------------------------------------------------------------------------------------ the tests

/// Where a block is at home.
fn slot_of(block: u64, slots: u16) -> u16 {
    (block % u64::from(slots)) as u16
}

/// What misses cost on an array with these slots gone.
fn price_all(surrogates: &mut [&mut dyn Surrogate], layout: &Layout, gone: &BTreeSet<u16>) {
    for slot in 0..layout.geometry().slots {
        let reads = layout.reads_without(Slot(slot), |slot| gone.contains(&slot.0));
        for surrogate in surrogates.iter_mut() {
            surrogate.price(slot, reads.unwrap_or(1));
        }
    }
}

fn layout(level: Level, slots: u16) -> Layout {
    let geometry = Geometry {
        level,
        slots,
        chunk_sectors: 8,
        slot_sectors: 8 * 64,
        ..Geometry::PLAIN
    };
    Layout::new(geometry).expect("a sound geometry")
}

/// Blocks 0, 4, 8 are at home on slot 0 of four, which has failed: a miss there costs three reads.
#[test]
fn step_by_step() {
    let layout = layout(Level::Raid5(Default::default()), 4);
    let mut space = Ruled::new(Rule::VdfLru, 3, 4);
    let kept = |dropped: &[u64]| Answer::Kept(dropped.to_vec());
    price_all(&mut [&mut space], &layout, &BTreeSet::from([0]));
    // A write to the failed member, and a read of a block of it and of another one fill the space.
    assert_eq!((space.write(8), space.read(4)), (kept(&[]), kept(&[])));
    assert_eq!((space.read(1), space.read(8)), (kept(&[]), Answer::Held));
    // 8 is the oldest and the only copy. 4 has age 2 and weighs a third of it; 1 has age 1 and goes.
    assert_eq!(space.read(2), kept(&[1]));
    // A copy that becomes the only one needs no further space.
    assert_eq!(space.write(4), kept(&[]));
    // And the next takes the last that may be dropped.
    assert_eq!(space.write(0), kept(&[2]));
    // From now on nothing may: that is back-pressure, for reads and writes, but not for what is there.
    assert_eq!(
        (space.read(5), space.write(12)),
        (Answer::Full, Answer::Full)
    );
    assert_eq!(
        (space.write(4), space.drop_clean(2)),
        (Answer::Held, vec![])
    );
    // What goes home makes space.
    space.went_home(4);
    space.went_home(8);
    assert_eq!((space.read(4), space.read(1)), (kept(&[]), kept(&[])));
    // With the member back all cost the same, and the older one goes.
    price_all(&mut [&mut space], &layout, &BTreeSet::new());
    assert_eq!(space.read(2), kept(&[4]));
    assert_eq!(space.copies(), [[0].into(), [1, 2].into()]);
}

#[test]
fn what_is_dropped_is_what_the_naive_one_drops() {
    for rule in RULES {
        for seed in 0..60 {
            let shape = Shape::of(seed);
            let mut ruled = Ruled::new(rule, shape.capacity, shape.layout.geometry().slots);
            let mut listed = Listed::new(rule, shape.capacity, shape.layout.geometry().slots);
            let mut life = Life::new(seed, shape.layout);
            for step in 0..600 {
                let found = life.step(&mut [&mut ruled, &mut listed]);
                assert_eq!(found[0], found[1], "{rule:?}, seed {seed}, step {step}");
                assert_eq!(ruled.copies(), listed.copies());
            }
        }
    }
}

/// Also the rules that remember what they let go.
#[test]
fn whatever_the_rule_no_only_copy_is_dropped_and_none_refused_while_others_hold_space() {
    for rule in Rule::ALL {
        let mut refusals = 0;
        for seed in 100..140 {
            let shape = Shape::of(seed);
            let mut ruled = Ruled::new(rule, shape.capacity, shape.layout.geometry().slots);
            let mut life = Life::new(seed, shape.layout);
            for _ in 0..600 {
                let (_, answer) = life.step(&mut [&mut ruled]).remove(0);
                let [only, also] = ruled.copies();
                assert_eq!(only, life.only);
                assert!(only.len() + also.len() <= shape.capacity);
                if answer == Answer::Full {
                    assert_eq!(only.len(), shape.capacity, "{rule:?}, seed {seed}");
                    refusals += 1;
                }
            }
        }
        assert!(refusals > 100, "{rule:?}: {refusals} refusals show little");
    }
}

struct Shape {
    capacity: usize,
    layout: Layout,
}

impl Shape {
    fn of(seed: u64) -> Shape {
        let (level, slots) = [
            (Level::Raid4, 4),
            (Level::Raid5(Default::default()), 5),
            (Level::Raid6(Default::default()), 6),
            (Level::Raid10 { copies: 2 }, 4),
        ][seed as usize % 4];
        Shape {
            capacity: 1 + seed as usize % 24,
            layout: layout(level, slots),
        }
    }
}

/// A random life of an array and its surrogate.
struct Life {
    state: u64,
    layout: Layout,
    gone: BTreeSet<u16>,
    /// Blocks of which the surrogate should have the only current copy.
    only: BTreeSet<u64>,
}

impl Life {
    fn new(seed: u64, layout: Layout) -> Life {
        Life {
            state: seed,
            layout,
            gone: BTreeSet::new(),
            only: BTreeSet::new(),
        }
    }

    fn below(&mut self, end: u64) -> u64 {
        next(&mut self.state) % end
    }

    /// One request, after something else now and then: what each surrogate dropped beforehand, and its answer.
    fn step(&mut self, surrogates: &mut [&mut dyn Surrogate]) -> Vec<(Vec<u64>, Answer)> {
        let spread = 1 + self.below(48);
        let (block, slot) = (self.below(spread), self.slot());
        match self.below(40) {
            0 => self.fail_or_return(surrogates, slot),
            1..=3 => surrogates.iter_mut().for_each(|one| one.rebuilt(block)),
            4 => surrogates.iter_mut().for_each(|one| one.lose_rebuilt(slot)),
            5..=12 => self.one_goes_home(surrogates),
            _ => {}
        }
        let (write, places) = (self.below(4) == 0, self.below(64) as usize);
        let answers = surrogates.iter_mut().map(|one| {
            let dropped = match places {
                0..3 => one.drop_clean(places),
                _ => Vec::new(),
            };
            let answer = if write {
                one.write(block)
            } else {
                one.read(block)
            };
            (dropped, answer)
        });
        let answers: Vec<_> = answers.collect();
        if write && answers[0].1 != Answer::Full {
            self.only.insert(block);
        }
        answers
    }

    fn slot(&mut self) -> u16 {
        self.below(self.layout.geometry().slots.into()) as u16
    }

    /// As many as the layout bears may be gone at once.
    fn fail_or_return(&mut self, surrogates: &mut [&mut dyn Surrogate], slot: u16) {
        if !self.gone.remove(&slot) && self.gone.len() < usize::from(self.layout.tolerance()) {
            self.gone.insert(slot);
        }
        price_all(surrogates, &self.layout, &self.gone);
    }

    fn one_goes_home(&mut self, surrogates: &mut [&mut dyn Surrogate]) {
        let index = self.below(self.only.len().max(1) as u64) as usize;
        if let Some(&block) = self.only.iter().nth(index) {
            self.only.remove(&block);
            surrogates.iter_mut().for_each(|one| one.went_home(block));
        }
    }
}
