//! Chains over sets of failed disks: for layouts in which it matters which disks failed, not only how many.

use super::chain::{Cause, Chain, Target, Transition};
use super::conditions::Conditions;
use super::model::Model;
use super::quantity::Exact;
use num_traits::{One, Zero};
use std::collections::BTreeMap;

/// Most disks: a set is a word.
pub(super) const DISKS_MAX: usize = 64;
/// Most states: the elimination of a chain of this kind takes time with their cube.
const STATES_MAX: usize = 2000;

/// Bit i is disk i.
pub(super) type Set = u64;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct State {
    failed: Set,
    /// Of the failed, those that have a spare.
    ready: Set,
}

/// The states that a new array reaches, in the order in which they are found, and what leads from each.
pub fn chain(model: &Model, conditions: &Conditions) -> Result<Chain, String> {
    if model.disks > DISKS_MAX {
        return Err(format!(
            "{} is solved for up to {DISKS_MAX} disks",
            model.name
        ));
    }
    let mut found = Found::default();
    found.number(State {
        failed: 0,
        ready: 0,
    });
    let guards = Guards::of(model);
    let mut at = 0;
    while at < found.order.len() {
        if found.order.len() > STATES_MAX {
            return Err(format!(
                "{} has more than {STATES_MAX} states under these conditions: fewer disks, or no delay of spares",
                model.name
            ));
        }
        leave(at, model, conditions, &guards, &mut found);
        at += 1;
    }
    Ok(found.into_chain())
}

#[derive(Default)]
struct Found {
    order: Vec<State>,
    numbers: BTreeMap<State, usize>,
    transitions: Vec<Transition>,
}

impl Found {
    fn number(&mut self, state: State) -> usize {
        let next = self.order.len();
        *self.numbers.entry(state).or_insert_with(|| {
            self.order.push(state);
            next
        })
    }

    fn add(&mut self, from: usize, to: Option<State>, rate: Exact, cause: Cause) {
        if rate.is_zero() {
            return;
        }
        let to = to.map_or(Target::Loss, |state| Target::State(self.number(state)));
        self.transitions.push(Transition {
            from,
            to,
            rate,
            cause,
        });
    }

    fn into_chain(self) -> Chain {
        let mut chain = Chain::default();
        for state in &self.order {
            chain.add_state(name(*state));
        }
        for transition in self.transitions {
            chain.add_transition(transition);
        }
        chain
    }
}

fn leave(from: usize, model: &Model, conditions: &Conditions, guards: &Guards, found: &mut Found) {
    let state = found.order[from];
    for disk in 0..model.disks {
        let bit = 1 << disk;
        let one = Exact::one();
        let awake = model.wakes_for[disk].is_some_and(|source| state.failed & 1 << source != 0);
        let wear = if awake { &one } else { &model.wear[disk] };
        if state.failed & bit == 0 {
            let ready = if conditions.spare_rate().is_some() {
                0
            } else {
                bit
            };
            let next = State {
                failed: state.failed | bit,
                ready: state.ready | ready,
            };
            let kept = (!guards.lost(next.failed)).then_some(next);
            found.add(from, kept, conditions.failure_rate() * wear, Cause::Failure);
        } else if state.ready & bit == 0 {
            let rate = conditions
                .spare_rate()
                .expect("only a delay leaves a disk without spare");
            let next = State {
                ready: state.ready | bit,
                ..state
            };
            found.add(from, Some(next), rate, Cause::Spare);
        } else {
            let ready = state.ready.count_ones() as usize;
            let rate = conditions.repair_rate_each(ready);
            let lost = if guards.bare(state.failed, disk) {
                conditions.sector_loss.clone()
            } else {
                Exact::zero()
            };
            let next = State {
                failed: state.failed & !bit,
                ready: state.ready & !bit,
            };
            found.add(
                from,
                Some(next),
                &rate * (Exact::one() - &lost),
                Cause::Repair,
            );
            found.add(from, None, rate * lost, Cause::Repair);
        }
    }
}

/// The groups as sets.
pub(super) struct Guards(Vec<(Set, u32)>);

impl Guards {
    pub(super) fn of(model: &Model) -> Guards {
        let set = |disks: &[usize]| disks.iter().fold(0, |set, disk| set | 1 << disk);
        let most = |tolerates| u32::try_from(tolerates).unwrap_or(u32::MAX);
        Guards(
            model
                .groups
                .iter()
                .map(|group| (set(&group.disks), most(group.tolerates)))
                .collect(),
        )
    }

    pub(super) fn lost(&self, failed: Set) -> bool {
        self.0
            .iter()
            .any(|(group, tolerates)| (group & failed).count_ones() > *tolerates)
    }

    /// Whether some group of the disk has no redundancy left.
    fn bare(&self, failed: Set, disk: usize) -> bool {
        self.0
            .iter()
            .filter(|(group, _)| group & 1 << disk != 0)
            .any(|(group, tolerates)| (group & failed).count_ones() == *tolerates)
    }
}

fn name(state: State) -> String {
    if state.failed == 0 {
        return "whole".into();
    }
    let disks: Vec<String> = (0..Set::BITS)
        .filter(|disk| state.failed & 1 << disk != 0)
        .map(|disk| {
            let waits = state.ready & 1 << disk == 0;
            format!("{disk}{}", if waits { " (no spare)" } else { "" })
        })
        .collect();
    format!("without {}", disks.join(", "))
}
