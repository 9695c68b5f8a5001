//! Which disks guard each other: the models by name, and chains by counting where it only matters how many disks failed.

use super::chain::{Cause, Chain, Target, Transition};
use super::conditions::Conditions;
use super::papers;
use super::quantity::{Exact, whole};
use super::sets;
use num_traits::{One, Zero};
use std::collections::BTreeMap;

/// Most disks of a model.
pub const DISKS_MAX: usize = 1024;
/// Most states of a chain by counting.
const STATES_MAX: usize = 4096;
/// Up to here rational arithmetic takes no time to speak of; beyond, its numbers grow long.
const EXACT_STATES_MAX: usize = 64;

/// Disks that guard each other's data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    pub disks: Vec<usize>,
    /// Losses that it bears.
    pub tolerates: usize,
}

/// What makes disks alike enough to be counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// One group of all disks.
    Threshold { tolerates: usize },
    /// Groups of two disks that bear one loss.
    Pairs,
    /// It matters which disks failed.
    Sets,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    pub name: &'static str,
    pub disks: usize,
    /// Data is lost as soon as one of them lost more than it bears.
    pub groups: Vec<Group>,
    /// By disk, failures for each failure of a disk that is awake.
    pub wear: Vec<Exact>,
    /// By disk, the one for whose rebuild it wakes: while that is failed, it fails like one that is awake.
    pub wakes_for: Vec<Option<usize>>,
    shape: Shape,
}

/// What a name leaves open.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameters {
    pub disks: usize,
    /// Losses that `code` bears, or RERAID's code cache (two if left out).
    pub tolerates: Option<usize>,
    /// Disks of a sub-array of S2-RAID: the number of its groups.
    pub row: usize,
    /// Partitions of a disk of S2-RAID; as many as can be without conflict if left out.
    pub partitions: Option<usize>,
    /// Failures of a sleeping disk for each of one that is awake.
    pub asleep: Exact,
    /// And it fails like one that is awake while it is the source of a rebuild.
    pub wakes: bool,
}

impl Parameters {
    pub fn new(disks: usize) -> Parameters {
        Parameters {
            disks,
            tolerates: None,
            row: 3,
            partitions: None,
            asleep: Exact::one(),
            wakes: false,
        }
    }
}

type Build = fn(&Parameters) -> Result<Model, String>;

/// Every model: its name, what it is, and how it is made.
pub const MODELS: [(&str, &str, Build); 13] = [
    ("raid0", "no redundancy", |p| threshold("raid0", p, 0)),
    ("raid1", "copies on every disk", |p| {
        threshold("raid1", p, p.disks.saturating_sub(1))
    }),
    ("raid4", "one parity disk", |p| threshold("raid4", p, 1)),
    ("raid5", "one parity block a row", |p| {
        threshold("raid5", p, 1)
    }),
    ("raid6", "two parity blocks a row", |p| {
        threshold("raid6", p, 2)
    }),
    ("code", "any code that bears --tolerates losses", code),
    ("raid10", "mirrored pairs", pairs),
    (
        "s2-raid5",
        "S2-RAID: skewed sub-arrays of --row disks",
        papers::s2_raid5,
    ),
    ("s2-raid10", "S2-RAID: skewed mirrors", papers::s2_raid10),
    (
        "reraid-text",
        "RERAID as its section 5 has it: sleepers never fail",
        papers::reraid_text,
    ),
    (
        "reraid",
        "RERAID with sleepers that fail, and old data on them",
        papers::reraid,
    ),
    (
        "graid",
        "GRAID: sleeping mirrors and a log disk",
        papers::graid,
    ),
    (
        "eraid",
        "ERAID: sleeping mirrors, new data in one copy",
        papers::eraid,
    ),
];

/// Makes the model of that name.
pub fn named(name: &str, parameters: &Parameters) -> Result<Model, String> {
    if !(1..=DISKS_MAX).contains(&parameters.disks) {
        return Err(format!("a model has 1 to {DISKS_MAX} disks"));
    }
    let (_, _, build) = MODELS
        .iter()
        .find(|(known, _, _)| *known == name)
        .ok_or_else(|| {
            let names: Vec<&str> = MODELS.iter().map(|(known, _, _)| *known).collect();
            format!("there is no model {name:?}; there are {}", names.join(", "))
        })?;
    build(parameters)
}

fn threshold(
    name: &'static str,
    parameters: &Parameters,
    tolerates: usize,
) -> Result<Model, String> {
    let disks = parameters.disks;
    if disks <= tolerates {
        return Err(format!(
            "{name} that bears {tolerates} losses has more than {tolerates} disks"
        ));
    }
    let all = Group {
        disks: (0..disks).collect(),
        tolerates,
    };
    let mut model = Model::of_groups(name, disks, vec![all]);
    model.shape = Shape::Threshold { tolerates };
    Ok(model)
}

fn code(parameters: &Parameters) -> Result<Model, String> {
    let tolerates = parameters
        .tolerates
        .ok_or("a code needs the number of losses that it bears")?;
    threshold("code", parameters, tolerates)
}

fn pairs(parameters: &Parameters) -> Result<Model, String> {
    let disks = parameters.disks;
    if !disks.is_multiple_of(2) {
        return Err("mirrored pairs are an even number of disks".into());
    }
    let groups = (0..disks / 2).map(|pair| Group {
        disks: vec![2 * pair, 2 * pair + 1],
        tolerates: 1,
    });
    let mut model = Model::of_groups("raid10", disks, groups.collect());
    model.shape = Shape::Pairs;
    Ok(model)
}

impl Model {
    /// A model in which it matters which disks failed; all are awake.
    pub fn of_groups(name: &'static str, disks: usize, groups: Vec<Group>) -> Model {
        let inside = |group: &Group| group.disks.iter().all(|disk| *disk < disks);
        assert!(groups.iter().all(inside), "groups are of the model's disks");
        Model {
            name,
            disks,
            groups,
            wear: vec![Exact::one(); disks],
            wakes_for: vec![None; disks],
            shape: Shape::Sets,
        }
    }

    /// The same model by sets of disks, even if counting would do.
    pub fn by_sets(mut self) -> Model {
        self.shape = Shape::Sets;
        self
    }

    /// The chain under these conditions; refused if it has too many states.
    pub fn chain(&self, conditions: &Conditions) -> Result<Chain, String> {
        conditions.check()?;
        match self.shape {
            Shape::Sets => sets::chain(self, conditions),
            Shape::Threshold { tolerates } => Count {
                fresh: Box::new(move |failed, disks| {
                    whole(if failed < tolerates {
                        disks - failed
                    } else {
                        0
                    })
                }),
                fatal: Box::new(move |failed, disks| {
                    whole(if failed == tolerates {
                        disks - failed
                    } else {
                        0
                    })
                }),
                bare: Box::new(move |failed| failed == tolerates),
                disks: self.disks,
                most: tolerates,
            }
            .chain(conditions),
            Shape::Pairs => Count {
                fresh: Box::new(|failed, disks| whole(disks - 2 * failed)),
                fatal: Box::new(|failed, _| whole(failed)),
                bare: Box::new(|failed| failed > 0),
                disks: self.disks,
                most: self.disks / 2,
            }
            .chain(conditions),
        }
    }

    /// Whether the chain is small enough to be solved in rationals.
    pub fn is_exact_cheap(chain: &Chain) -> bool {
        chain.states() <= EXACT_STATES_MAX
    }
}

/// An array whose state is a number of failed disks, of which some wait for a spare.
pub(super) struct Count {
    /// Of so many failed disks and disks in all: disks whose failure loses nothing, on average.
    pub(super) fresh: Box<dyn Fn(usize, usize) -> Exact>,
    /// Disks whose failure loses data.
    pub(super) fatal: Box<dyn Fn(usize, usize) -> Exact>,
    /// Whether a repair has no redundancy left to spare.
    pub(super) bare: Box<dyn Fn(usize) -> bool>,
    pub(super) disks: usize,
    /// Most failures without loss.
    pub(super) most: usize,
}

/// Failed disks that wait for a spare, and those in repair.
type Failed = (usize, usize);

impl Count {
    pub(super) fn chain(&self, conditions: &Conditions) -> Result<Chain, String> {
        let waits = conditions.spare_rate().is_some();
        let mut chain = Chain::default();
        let mut states = BTreeMap::new();
        for failed in 0..=self.most {
            let waiting_most = if waits { failed } else { 0 };
            for waiting in 0..=waiting_most {
                let state = (waiting, failed - waiting);
                states.insert(state, chain.add_state(name(state)));
            }
            if states.len() > STATES_MAX {
                return Err(format!(
                    "the chain has more than {STATES_MAX} states: fewer disks, or no delay of spares"
                ));
            }
        }
        for (state, from) in &states {
            self.leave(*state, *from, conditions, &states, &mut chain);
        }
        Ok(chain)
    }

    fn leave(
        &self,
        (waiting, ready): Failed,
        from: usize,
        conditions: &Conditions,
        states: &BTreeMap<Failed, usize>,
        chain: &mut Chain,
    ) {
        let failed = waiting + ready;
        let to = |state| {
            states
                .get(&state)
                .map_or(Target::Loss, |to| Target::State(*to))
        };
        let mut add = |to, rate, cause| {
            chain.add_transition(Transition {
                from,
                to,
                rate,
                cause,
            })
        };
        let spares = conditions.spare_rate();
        let next = if spares.is_some() {
            (waiting + 1, ready)
        } else {
            (waiting, ready + 1)
        };
        let failures = conditions.failure_rate();
        add(
            to(next),
            (self.fresh)(failed, self.disks) * &failures,
            Cause::Failure,
        );
        add(
            Target::Loss,
            (self.fatal)(failed, self.disks) * &failures,
            Cause::Failure,
        );
        if let (Some(rate), 1..) = (spares, waiting) {
            add(
                to((waiting - 1, ready + 1)),
                rate * whole(waiting),
                Cause::Spare,
            );
        }
        if ready > 0 {
            let rate = conditions.repair_rate_each(ready) * whole(ready);
            let lost = if (self.bare)(failed) {
                conditions.sector_loss.clone()
            } else {
                Exact::zero()
            };
            add(
                to((waiting, ready - 1)),
                &rate * (Exact::one() - &lost),
                Cause::Repair,
            );
            add(Target::Loss, rate * lost, Cause::Repair);
        }
    }
}

fn name((waiting, ready): Failed) -> String {
    match (waiting, ready) {
        (0, 0) => "whole".into(),
        (0, ready) => format!("{ready} failed"),
        (waiting, ready) => format!("{} failed, {waiting} without spare", waiting + ready),
    }
}

#[cfg(test)]
mod tests {
    use super::super::conditions::Repair;
    use super::*;

    fn conditions() -> Conditions {
        Conditions::new(whole(1000), whole(10))
    }

    fn hours(name: &str, disks: usize, conditions: &Conditions) -> Exact {
        let model = named(name, &Parameters::new(disks)).expect("a model");
        let chain = model.chain(conditions).expect("a chain");
        chain.expect().expect("it ends").hours
    }

    /// Mean time to data loss of n disks that bear one loss: (a + b + mu) / (a b).
    #[test]
    fn one_parity_has_the_textbook_formula() {
        let (rate, repair) = (whole(1000).recip(), whole(10).recip());
        for disks in [2, 5, 9, 40] {
            let (a, b) = (whole(disks) * &rate, whole(disks - 1) * &rate);
            let right = (&a + &b + &repair) / (a * b);
            for name in ["raid4", "raid5"] {
                assert_eq!(hours(name, disks, &conditions()), right);
            }
        }
        assert_eq!(
            hours("raid1", 2, &conditions()),
            hours("raid5", 2, &conditions())
        );
        assert_eq!(
            hours("raid10", 2, &conditions()),
            hours("raid5", 2, &conditions())
        );
    }

    /// 1/a + 1/b + 1/c + m1/ab + m2/bc + m1 m2/abc, the sum over a birth-and-death chain.
    #[test]
    fn two_parities_have_the_textbook_formula() {
        let rate = whole(1000).recip();
        let repair = whole(10).recip();
        for (discipline, both) in [(Repair::All, 2), (Repair::One, 1)] {
            let conditions = Conditions {
                repair: discipline,
                ..conditions()
            };
            let [a, b, c] = [6, 5, 4].map(|disks| whole(disks) * &rate);
            let (first, second) = (repair.clone(), whole(both) * &repair);
            let right = a.recip()
                + b.recip()
                + c.recip()
                + &first / (&a * &b)
                + &second / (&b * &c)
                + &first * &second / (&a * &b * &c);
            assert_eq!(hours("raid6", 6, &conditions), right);
        }
    }

    #[test]
    fn no_redundancy_lasts_as_long_as_the_first_disk() {
        assert_eq!(hours("raid0", 4, &conditions()), whole(250));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |name, disks| named(name, &Parameters::new(disks)).is_err();
        assert!(refused("raid5", 1) && refused("raid6", 2) && refused("raid10", 5));
        assert!(refused("raid5", 0) && refused("raid5", DISKS_MAX + 1) && refused("raid7", 4));
        assert!(refused("code", 4));
        let model = named("raid5", &Parameters::new(4)).expect("a model");
        let never = Conditions {
            mttr: Exact::zero(),
            ..conditions()
        };
        assert!(model.chain(&never).is_err());
    }

    #[test]
    fn counting_and_sets_give_one_result() {
        for (name, disks) in [("raid5", 5), ("raid6", 5), ("raid10", 6), ("raid1", 3)] {
            for repair in [Repair::One, Repair::All] {
                for delay in [0, 20] {
                    let conditions = Conditions {
                        repair,
                        spare_delay: whole(delay),
                        sector_loss: Exact::new(1.into(), 50.into()),
                        ..conditions()
                    };
                    let model = named(name, &Parameters::new(disks)).expect("a model");
                    let counted = model.chain(&conditions).expect("a chain");
                    let sets = model.by_sets().chain(&conditions).expect("a chain");
                    assert!(sets.states() > counted.states());
                    let [a, b] =
                        [counted, sets].map(|chain| chain.expect::<f64>().expect("it ends"));
                    assert!(
                        (a.hours / b.hours - 1.0).abs() < 1e-12,
                        "{name} {repair:?} {delay}"
                    );
                    assert!((a.repairs / b.repairs - 1.0).abs() < 1e-12);
                }
            }
        }
    }
}
