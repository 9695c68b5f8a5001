//! Groups of disks that protect each other: the models by name, and chains by counting where only the number
//! of failed disks matters.

use super::chain::{Cause, Chain, Target};
use super::conditions::Conditions;
use super::papers;
use super::quantity::{Exact, whole};
use super::sets;
use crate::nearest::unknown;
use num_traits::One;
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

impl Group {
    pub(crate) fn new(disks: impl IntoIterator<Item = usize>, tolerates: usize) -> Group {
        let disks = disks.into_iter().collect();
        Group { disks, tolerates }
    }
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

/// What some models look at and others do not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    Tolerates,
    Row,
    Partitions,
    Asleep,
    Wakes,
}

/// A model by its name, before it is known of how many disks.
pub struct Known {
    pub name: &'static str,
    pub about: &'static str,
    /// What it looks at beside the number of disks.
    pub takes: &'static [Choice],
    build: Build,
}

impl Known {
    /// How many disks it has where nobody says: eight, or the next number that it can have.
    pub fn disks(&self) -> usize {
        match self.name {
            "graid" | "s2-raid5" => 9,
            _ => 8,
        }
    }

    pub fn model(&self, parameters: &Parameters) -> Result<Model, String> {
        if !(1..=DISKS_MAX).contains(&parameters.disks) {
            return Err(format!("a model has 1 to {DISKS_MAX} disks"));
        }
        let name = self.name;
        (self.build)(parameters).map(|model| Model { name, ..model })
    }
}

const SLEEPERS: &[Choice] = &[Choice::Asleep, Choice::Wakes];

/// Every model: its name, what it is, what it takes, and how it is made.
pub static MODELS: [Known; 13] = [
    plain("raid0", "no redundancy", |p| threshold(p, 0)),
    plain("raid1", "copies on every disk", |p| {
        threshold(p, p.disks.saturating_sub(1))
    }),
    plain("raid4", "one parity disk", |p| threshold(p, 1)),
    plain("raid5", "one parity block a row", |p| threshold(p, 1)),
    plain("raid6", "two parity blocks a row", |p| threshold(p, 2)),
    Known {
        takes: &[Choice::Tolerates],
        ..plain("code", "any code that tolerates --tolerates losses", code)
    },
    plain("raid10", "mirrored pairs", pairs),
    Known {
        name: "s2-raid5",
        about: "S2-RAID: skewed sub-arrays of --row disks",
        takes: &[Choice::Row, Choice::Partitions],
        build: papers::s2_raid5,
    },
    Known {
        takes: &[Choice::Partitions],
        ..plain("s2-raid10", "S2-RAID: skewed mirrors", papers::s2_raid10)
    },
    Known {
        name: "reraid-text",
        about: "RERAID as in section 5 of its paper: disks in standby never fail",
        takes: &[Choice::Tolerates],
        build: papers::reraid_text,
    },
    Known {
        name: "reraid",
        about: "RERAID with failures of disks in standby, and old data on them",
        takes: &[Choice::Tolerates, Choice::Asleep, Choice::Wakes],
        build: papers::reraid,
    },
    Known {
        name: "graid",
        about: "GRAID: mirrors in standby and a log disk",
        takes: SLEEPERS,
        build: papers::graid,
    },
    Known {
        name: "eraid",
        about: "ERAID: mirrors in standby, new data in one copy",
        takes: SLEEPERS,
        build: papers::eraid,
    },
];

type Build = fn(&Parameters) -> Result<Model, String>;

/// A model that takes a number of disks and nothing else.
const fn plain(name: &'static str, about: &'static str, build: Build) -> Known {
    Known {
        name,
        about,
        takes: &[],
        build,
    }
}

/// What is known of that name.
pub fn known(name: &str) -> Result<&'static Known, String> {
    let found = MODELS.iter().find(|known| known.name == name);
    found.ok_or_else(|| unknown("model", name, MODELS.iter().map(|known| known.name)))
}

/// Makes the model of that name.
pub fn named(name: &str, parameters: &Parameters) -> Result<Model, String> {
    known(name)?.model(parameters)
}

fn threshold(parameters: &Parameters, tolerates: usize) -> Result<Model, String> {
    let (disks, least) = (parameters.disks, tolerates.saturating_add(1));
    if disks < least {
        return Err(format!(
            "tolerating {tolerates} losses requires at least {least} disks: {disks} are too few"
        ));
    }
    let all = vec![Group::new(0..disks, tolerates)];
    let mut model = Model::of_groups("threshold", disks, all);
    model.shape = Shape::Threshold { tolerates };
    Ok(model)
}

fn code(parameters: &Parameters) -> Result<Model, String> {
    let unknown = "a code needs the number of losses that it tolerates: --tolerates";
    threshold(parameters, parameters.tolerates.ok_or(unknown)?)
}

fn pairs(parameters: &Parameters) -> Result<Model, String> {
    let disks = parameters.disks;
    if !disks.is_multiple_of(2) {
        return Err("mirrored pairs are an even number of disks".into());
    }
    let groups = (0..disks / 2).map(|pair| Group::new([2 * pair, 2 * pair + 1], 1));
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
                fresh: Box::new(move |n, disks| whole((disks - n) * usize::from(n < tolerates))),
                fatal: Box::new(move |n, disks| whole((disks - n) * usize::from(n == tolerates))),
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
        for state in states.keys() {
            self.leave(*state, conditions, &states, &mut chain);
        }
        Ok(chain)
    }

    fn leave(
        &self,
        (waiting, ready): Failed,
        conditions: &Conditions,
        states: &BTreeMap<Failed, usize>,
        chain: &mut Chain,
    ) {
        let (failed, from) = (waiting + ready, states[&(waiting, ready)]);
        let to = |state| {
            states
                .get(&state)
                .copied()
                .map_or(Target::Loss, Target::State)
        };
        let mut add = |to, rate, cause| chain.add_transition(from, to, rate, cause);
        let spares = conditions.spare_rate();
        let waits = usize::from(spares.is_some());
        let next = to((waiting + waits, ready + 1 - waits));
        let failures = conditions.failure_rate();
        let [fresh, fatal] = [&self.fresh, &self.fatal].map(|of| of(failed, self.disks));
        add(next, fresh * &failures, Cause::Failure);
        add(Target::Loss, fatal * &failures, Cause::Failure);
        if let (Some(rate), 1..) = (spares, waiting) {
            let next = to((waiting - 1, ready + 1));
            add(next, rate * whole(waiting), Cause::Spare);
        }
        if ready > 0 {
            let rate = conditions.repair_rate_each(ready) * whole(ready);
            let lost = conditions.sector_loss_if((self.bare)(failed));
            let next = to((waiting, ready - 1));
            add(next, &rate * (Exact::one() - &lost), Cause::Repair);
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
    use num_traits::Zero;

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
        for name in ["raid1", "raid10"] {
            let right = hours("raid5", 2, &conditions());
            assert_eq!(hours(name, 2, &conditions()), right, "{name}");
        }
    }

    /// 1/a + 1/b + 1/c + m1/ab + m2/bc + m1 m2/abc, the sum over a birth-and-death chain.
    #[test]
    fn two_parities_have_the_textbook_formula() {
        let rate = whole(1000).recip();
        let repair = whole(10).recip();
        for (discipline, both) in [(Repair::All, 2), (Repair::One, 1)] {
            let mut conditions = conditions();
            conditions.repair = discipline;
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
        assert!(
            model
                .chain(&Conditions::new(whole(1000), Exact::zero()))
                .is_err()
        );
    }

    #[test]
    fn every_model_can_have_as_many_disks_as_it_has_by_default() {
        for known in &MODELS {
            let mut parameters = Parameters::new(known.disks());
            parameters.tolerates = (known.name == "code").then_some(3);
            let model = known.model(&parameters).expect(known.name);
            assert_eq!(model.name, known.name);
        }
    }

    /// Of each model every choice that it takes changes something, and no other does.
    #[test]
    fn what_a_model_takes_is_what_it_looks_at() {
        for known in &MODELS {
            // GRAID has a log disk beside two groups.
            let mut before = Parameters::new(12 + usize::from(known.name == "graid"));
            (before.tolerates, before.partitions) = (Some(2), Some(2));
            let model = |parameters| known.model(&parameters).expect(known.name);
            type Change = fn(&mut Parameters);
            let choices: [(Choice, Change); 5] = [
                (Choice::Tolerates, |after| after.tolerates = Some(3)),
                (Choice::Row, |after| after.row = 2),
                (Choice::Partitions, |after| after.partitions = Some(1)),
                (Choice::Asleep, |after| after.asleep = Exact::zero()),
                (Choice::Wakes, |after| after.wakes = true),
            ];
            for (choice, change) in choices {
                let mut after = before.clone();
                change(&mut after);
                let changed = model(before.clone()) != model(after);
                let taken = known.takes.contains(&choice);
                assert_eq!(changed, taken, "{} {choice:?}", known.name);
            }
        }
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
                    let solved = |chain: Chain| chain.expect::<f64>().expect("it ends");
                    let [a, b] = [counted, sets].map(solved);
                    for of in [a.hours / b.hours, a.repairs / b.repairs] {
                        assert!((of - 1.0).abs() < 1e-12, "{name} {repair:?} {delay}");
                    }
                }
            }
        }
    }
}
