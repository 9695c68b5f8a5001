//! Chains for layouts in which it matters which disks failed, and whose sets of failed disks are too many to
//! be states.
//!
//! A state is a number of failed disks, and all sets of this number that lost nothing are assumed to be
//! equally likely. For one failed disk this assumes nothing if every disk is equally exposed. For more, sets
//! that lose data more easily are left a little earlier than others: an error of the order of the number of
//! disks times repair time over lifetime. The chain has states up to the fewest failures that can lose data,
//! and one more; more failures at once count as loss. So this limit does not make the mean time longer.

use super::chain::Chain;
use super::conditions::Conditions;
use super::model::{Count, Model};
use super::quantity::{Exact, whole};
use super::sets::{DISKS_MAX, Guards, Set};
use num_traits::One;
use std::ops::Range;

/// Beyond, the sets are too many to be looked at.
const TOLERATED_MAX: usize = 2;

pub fn chain(model: &Model, conditions: &Conditions) -> Result<Chain, String> {
    conditions.check()?;
    let tolerated = model.groups.iter().map(|group| group.tolerates).min();
    let tolerated = tolerated.filter(|most| *most <= TOLERATED_MAX);
    let tolerated = tolerated.ok_or_else(|| {
        format!("only groups that tolerate at most {TOLERATED_MAX} losses can be counted")
    })?;
    if model.disks > DISKS_MAX || model.wear.iter().any(|wear| *wear != Exact::one()) {
        return Err(format!(
            "only sets of up to {DISKS_MAX} disks, all active, can be counted"
        ));
    }
    let most = (tolerated + 1).min(model.disks - 1);
    let guards = Guards::of(model);
    let fatal = (0..=most).map(|failed| fatal(&guards, model.disks, failed));
    let fatal: Vec<Exact> = fatal.collect();
    let all = |failed, disks: usize| whole(disks - failed);
    let safe = fatal.clone();
    let count = Count {
        fresh: Box::new(move |failed, disks| all(failed, disks) * (Exact::one() - &safe[failed])),
        fatal: Box::new(move |failed, disks| all(failed, disks) * &fatal[failed]),
        bare: Box::new(move |failed| failed >= tolerated),
        disks: model.disks,
        most,
    };
    count.chain(conditions)
}

/// Of the sets of so many disks without loss, each with one disk more: the share that loses data.
fn fatal(guards: &Guards, disks: usize, failed: usize) -> Exact {
    let (mut lost, mut all) = (0, 0);
    safe_sets(guards, failed, 0..disks, 0, &mut |set| {
        for disk in (0..disks).filter(|disk| set & 1 << disk == 0) {
            all += 1;
            lost += usize::from(guards.lost(set | 1 << disk));
        }
    });
    whole(lost) / whole(all.max(1))
}

/// Calls `each` for the set with `more` of `disks` added, each time that nothing is lost by it.
fn safe_sets<F: FnMut(Set)>(of: &Guards, more: usize, disks: Range<usize>, set: Set, each: &mut F) {
    if of.lost(set) {
        return;
    }
    if more == 0 {
        return each(set);
    }
    for disk in disks.clone() {
        safe_sets(of, more - 1, disk + 1..disks.end, set | 1 << disk, each);
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Group, Parameters, named};
    use super::super::papers::{s2_raid5, s2_raid10};
    use super::*;

    /// By sets over by counts.
    fn ratio(model: &Model, conditions: &Conditions) -> f64 {
        let solved = |chain: Chain| chain.expect::<f64>().expect("it ends").hours;
        let sets = model.clone().by_sets().chain(conditions);
        solved(sets.expect("few states")) / solved(chain(model, conditions).expect("sets"))
    }

    fn skewed(disks: usize, row: usize) -> Model {
        let parameters = Parameters {
            row,
            ..Parameters::new(disks)
        };
        s2_raid5(&parameters).expect("free of conflict")
    }

    #[test]
    fn counts_are_close_to_sets_and_never_longer() {
        let conditions = Conditions::new(whole(1_000_000), whole(100));
        let doubled = |at: usize| Group::new(at..at + 4, 2);
        let models = [
            skewed(9, 3),
            skewed(25, 5),
            skewed(15, 3),
            s2_raid10(&Parameters::new(8)).expect("4 + 4"),
            named("raid10", &Parameters::new(8)).expect("four pairs"),
            Model::of_groups("two codes", 8, vec![doubled(0), doubled(4)]),
        ];
        for model in models {
            let ratio = ratio(&model, &conditions);
            let (name, disks) = (model.name, model.disks);
            let close = (0.999_999..1.01).contains(&ratio);
            assert!(close, "{name} of {disks}: {ratio}");
        }
    }

    #[test]
    fn the_share_that_loses_is_counted() {
        let guards = Guards::of(&skewed(9, 3));
        assert_eq!(fatal(&guards, 9, 0), whole(0));
        assert_eq!(fatal(&guards, 9, 1), whole(6) / whole(8));
        // Two that lost nothing are in one group: any of the other six loses, and the third of their own does not.
        assert_eq!(fatal(&guards, 9, 2), whole(6) / whole(7));
    }

    #[test]
    fn what_is_not_even_is_refused() {
        let conditions = Conditions::new(whole(1000), whole(1));
        let mut asleep = Parameters::new(8);
        asleep.asleep = whole(2);
        let sleepers = named("reraid", &asleep).expect("4 + 4");
        assert!(chain(&sleepers, &conditions).is_err());
        let copies = named("raid1", &Parameters::new(5)).expect("five copies");
        assert!(chain(&copies, &conditions).is_err());
    }
}
