//! Chains over sets of failed disks: for layouts in which it matters which disks failed, not only how many.

use super::chain::{Cause, Chain, Target};
use super::conditions::Conditions;
use super::model::{Group, Model};
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
    let name = model.name;
    if model.disks > DISKS_MAX {
        return Err(format!("{name} is solved for up to {DISKS_MAX} disks"));
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
                "{name} has more than {STATES_MAX} states under these conditions: fewer disks, or no delay of spares"
            ));
        }
        leave(at, model, conditions, &guards, &mut found);
        at += 1;
    }
    Ok(found.chain)
}

#[derive(Default)]
struct Found {
    order: Vec<State>,
    numbers: BTreeMap<State, usize>,
    chain: Chain,
}

impl Found {
    fn number(&mut self, state: State) -> usize {
        *self.numbers.entry(state).or_insert_with(|| {
            self.order.push(state);
            self.chain.add_state(name(state))
        })
    }

    fn add(&mut self, from: usize, to: Option<State>, rate: Exact, cause: Cause) {
        if rate.is_zero() {
            return;
        }
        let to = to.map_or(Target::Loss, |state| Target::State(self.number(state)));
        self.chain.add_transition(from, to, rate, cause);
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
            let waits = conditions.spare_rate().is_some();
            let failed = state.failed | bit;
            let ready = if waits {
                state.ready
            } else {
                state.ready | bit
            };
            let kept = (!guards.lost(failed)).then_some(State { failed, ready });
            found.add(from, kept, conditions.failure_rate() * wear, Cause::Failure);
        } else if state.ready & bit == 0 {
            let rate = conditions.spare_rate();
            let rate = rate.expect("only a delay leaves a disk without spare");
            let (failed, ready) = (state.failed, state.ready | bit);
            found.add(from, Some(State { failed, ready }), rate, Cause::Spare);
        } else {
            let ready = state.ready.count_ones() as usize;
            let rate = conditions.repair_rate_each(ready);
            let lost = conditions.sector_loss_if(guards.bare(state.failed, disk));
            let [failed, ready] = [state.failed, state.ready].map(|set| set & !bit);
            let well = &rate * (Exact::one() - &lost);
            found.add(from, Some(State { failed, ready }), well, Cause::Repair);
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
        let guard = |group: &Group| (set(&group.disks), most(group.tolerates));
        Guards(model.groups.iter().map(guard).collect())
    }

    pub(super) fn lost(&self, failed: Set) -> bool {
        let mut guards = self.0.iter();
        guards.any(|(group, tolerates)| (group & failed).count_ones() > *tolerates)
    }

    /// Whether some group of the disk has no redundancy left.
    fn bare(&self, failed: Set, disk: usize) -> bool {
        let mut guards = self.0.iter().filter(|(group, _)| group & 1 << disk != 0);
        guards.any(|(group, tolerates)| (group & failed).count_ones() == *tolerates)
    }
}

fn name(state: State) -> String {
    if state.failed == 0 {
        return "whole".into();
    }
    let failed = (0..Set::BITS).filter(|disk| state.failed & 1 << disk != 0);
    let disks = failed.map(|disk| match state.ready & 1 << disk {
        0 => format!("{disk} (no spare)"),
        _ => disk.to_string(),
    });
    format!("without {}", disks.collect::<Vec<_>>().join(", "))
}
