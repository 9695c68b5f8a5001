//! What a scenario compares: points with each other, and its own numbers with those that papers printed.

use super::value::{Point, Value};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The papers whose numbers can be named, as their inventories name them.
pub(crate) const PAPERS: [&str; 5] = ["IDO", "McPod", "VDF", "S2-RAID", "RERAID"];

/// Two values of one parameter, all else equal, seed by seed.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    pub name: String,
    pub metric: String,
    pub vary: String,
    pub of: Value,
    pub to: Value,
    #[serde(default)]
    pub at: Point,
}

impl Comparison {
    pub(crate) fn between(&self) -> Between {
        Between {
            vary: self.vary.clone(),
            of: self.of.clone(),
            to: self.to.clone(),
            with: BTreeMap::new(),
        }
    }
}

/// What of a printed number is held against ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Claim {
    /// The ratio is on the printed side of 1.
    Sign,
    /// The same of schemes that a paper ranks.
    Order,
    /// The ratio is the printed one, within 25%, and on the same side of 1.
    Factor,
    /// The ratio is 1, within 5%.
    Equal,
    /// An absolute number, shown next to ours and never judged.
    Value,
}

impl Claim {
    pub fn name(self) -> &'static str {
        match self {
            Claim::Sign => "sign",
            Claim::Order => "order",
            Claim::Factor => "factor",
            Claim::Equal => "equal",
            Claim::Value => "value",
        }
    }
}

/// A number that a paper printed, and what it is compared with: the ratio of two metrics of one run, or of
/// one metric of two runs; of a [`Claim::Value`] one metric of one run.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    pub what: String,
    /// The paper, a comma, and the place in it.
    pub source: String,
    pub value: f64,
    pub claim: Claim,
    /// `restripe lab verify` runs it.
    #[serde(default)]
    pub headline: bool,
    /// Why it does not hold, and the scenario that shows this.
    #[serde(default)]
    pub note: String,
    /// The ratio of these two metrics of the same run; the second may be left out where runs are compared.
    pub metric: String,
    #[serde(default)]
    pub over: String,
    /// In place of a second metric: the first one at two values of a parameter, seed by seed.
    #[serde(default)]
    pub between: Option<Between>,
    #[serde(default)]
    pub at: Point,
}

/// Two values of a parameter.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Between {
    pub vary: String,
    pub of: Value,
    pub to: Value,
    /// Further parameters in which the two runs differ: the value of the first run, and of the second.
    #[serde(default)]
    pub with: BTreeMap<String, [Value; 2]>,
}

impl Printed {
    /// Whether it has a verdict: an absolute number is only shown.
    pub(crate) fn is_judged(&self) -> bool {
        self.claim != Claim::Value
    }
}

impl Between {
    /// Whether the two runs differ in a parameter.
    pub(crate) fn varies(&self, path: &str) -> bool {
        self.vary == path || self.with.contains_key(path)
    }

    /// The values that the first run has, or the second.
    pub(crate) fn side(&self, second: bool) -> Point {
        let both = |[of, to]: &[Value; 2]| if second { to.clone() } else { of.clone() };
        let with = self
            .with
            .iter()
            .map(|(path, values)| (path.clone(), both(values)));
        let varied = both(&[self.of.clone(), self.to.clone()]);
        with.chain([(self.vary.clone(), varied)]).collect()
    }
}

/// Sequential stopping, planned before the first run.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stopping {
    /// Numbers of seeds, rising: after each, points that an undecided claim needs are run with the next. The
    /// last is the cap.
    pub looks: Vec<u64>,
}
