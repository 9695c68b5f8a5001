//! Whether ours is what a paper printed: holds, fails, or undecided, with a family corrected.
//!
//! Each claim names a band of ratios. It holds if the interval lies within the band, and fails if it lies
//! outside; an interval across an end of the band decides nothing. The interval is the one that Holm's
//! correction leaves: of a family of claims, all are right together with 95% certainty. With several planned
//! looks at the data, each look has its part of the 5% (Bonferroni).

use super::claim::Claim;
use super::statistics::{ALPHA, Estimate, holm};
use std::fmt;

/// A ratio of up to this, or of its inverse, is taken for equality.
pub(crate) const EQUAL: f64 = 1.05;
/// A ratio is another one up to this factor, or its inverse.
pub(crate) const FACTOR: f64 = 1.25;

/// What is said of a printed number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Holds,
    Fails,
    /// The interval does not decide: this says nothing of equality.
    Undecided,
    /// A phase was offered more than it could serve, so its times show how long it lasted.
    Saturated,
    /// Without repetitions there is no interval; whether the one number lies in the claim's band.
    OneRun {
        agrees: bool,
    },
    /// There is no number: nothing was run, or a run did not end.
    NotRun,
}

impl Verdict {
    /// Those that say that ours is another than the claim has it.
    pub(crate) const DIFFERING: [Verdict; 2] = [Verdict::Fails, Verdict::OneRun { agrees: false }];
    pub(crate) const ALL: [Verdict; 7] = [
        Verdict::Holds,
        Verdict::Fails,
        Verdict::Undecided,
        Verdict::Saturated,
        Verdict::OneRun { agrees: true },
        Verdict::OneRun { agrees: false },
        Verdict::NotRun,
    ];
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Holds => "holds",
            Verdict::Fails => "fails",
            Verdict::Undecided => "undecided",
            Verdict::Saturated => "saturated",
            Verdict::OneRun { agrees: true } => "one run (agrees)",
            Verdict::OneRun { agrees: false } => "one run (differs)",
            Verdict::NotRun => "not run",
        })
    }
}

/// Ratios between two bounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Band {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Band {
    const ABOVE_ONE: Band = Band {
        low: 1.0,
        high: f64::INFINITY,
    };
    const BELOW_ONE: Band = Band {
        low: 0.0,
        high: 1.0,
    };

    fn around(ratio: f64, factor: f64) -> Band {
        Band {
            low: ratio / factor,
            high: ratio * factor,
        }
    }

    /// Where a claim of a printed ratio holds; none of an absolute number. A printed ratio within 5% of 1
    /// has no side, so it claims equality; a factor has the side of the printed one too.
    pub(crate) fn of(claim: Claim, printed: f64) -> Option<Band> {
        let equal = Band::around(1.0, EQUAL);
        let side = match printed {
            printed if equal.holds(printed) => equal,
            printed if printed > 1.0 => Band::ABOVE_ONE,
            _ => Band::BELOW_ONE,
        };
        match claim {
            Claim::Value => None,
            Claim::Equal => Some(equal),
            Claim::Sign | Claim::Order => Some(side),
            Claim::Factor if side == equal => Some(Band::around(printed, FACTOR)),
            Claim::Factor => Some(Band::around(printed, FACTOR).within(side)),
        }
    }

    fn within(self, other: Band) -> Band {
        Band {
            low: self.low.max(other.low),
            high: self.high.min(other.high),
        }
    }

    /// On which side of the band a ratio is that lies outside.
    pub(crate) fn side(self, ratio: f64) -> Option<&'static str> {
        match ratio {
            above if above > self.high => Some("larger"),
            below if below < self.low => Some("smaller"),
            _ => None,
        }
    }

    fn holds(self, ratio: f64) -> bool {
        (self.low..=self.high).contains(&ratio)
    }

    /// The probability at which the interval no longer decides: that of two one-sided tests that the ratio
    /// lies within (an equivalence test), or of one that it lies outside.
    fn p(self, ratio: &Estimate) -> f64 {
        let p = match self.holds(ratio.mean) {
            true => ratio.p_above(self.low).max(ratio.p_below(self.high)),
            false => ratio.p_below(self.low).min(ratio.p_above(self.high)),
        };
        // Both ends of the interval have half of what it leaves out.
        (2.0 * p).min(1.0)
    }
}

/// Whether ours is larger or smaller than a claim has it, where the verdict is that it is another. The
/// verdict is in words: a former run's is known only so.
pub(crate) fn side(verdict: &str, claim: Claim, printed: f64, ours: f64) -> Option<&'static str> {
    let differs = |one: &Verdict| one.to_string() == verdict;
    let differs = Verdict::DIFFERING.iter().any(differs);
    Band::of(claim, printed).filter(|_| differs)?.side(ours)
}

/// What decided: probabilities of a test, alone and in its family.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Tested {
    pub(crate) raw: f64,
    pub(crate) corrected: f64,
}

impl Tested {
    pub(crate) fn is_decided(self) -> bool {
        self.corrected <= ALPHA
    }
}

/// One test of a family: a ratio with its band, and how many looks at the data are planned.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Test {
    pub(crate) ratio: Estimate,
    pub(crate) band: Band,
    pub(crate) looks: usize,
}

impl Test {
    pub(crate) fn verdict(&self, tested: Tested) -> Verdict {
        match (tested.is_decided(), self.band.holds(self.ratio.mean)) {
            (false, _) => Verdict::Undecided,
            (true, true) => Verdict::Holds,
            (true, false) => Verdict::Fails,
        }
    }

    /// Of a single run.
    pub(crate) fn one_run(&self) -> Verdict {
        let agrees = self.band.holds(self.ratio.mean);
        Verdict::OneRun { agrees }
    }

    /// On which side of 1 a ratio is.
    pub(crate) fn side_of_one(ratio: Estimate, looks: usize) -> Test {
        let band = match ratio.mean > 1.0 {
            true => Band::ABOVE_ONE,
            false => Band::BELOW_ONE,
        };
        Test { ratio, band, looks }
    }
}

/// The tests of one family, corrected together. In their order; none of a test without repetitions.
pub(crate) fn family(tests: &[Option<Test>]) -> Vec<Option<Tested>> {
    let repeated = |test: &Option<Test>| test.filter(|test| !test.ratio.is_single());
    let raw: Vec<Option<f64>> = tests
        .iter()
        .map(|test| repeated(test).map(|test| test.band.p(&test.ratio)))
        .collect();
    let looks = tests
        .iter()
        .flatten()
        .filter(|test| !test.ratio.is_single());
    let looks = looks.map(|test| test.looks.max(1) as f64);
    let planned: Vec<f64> = raw
        .iter()
        .flatten()
        .zip(looks)
        .map(|(p, looks)| p * looks)
        .collect();
    let mut corrected = holm(&planned).into_iter();
    let tested = |raw: Option<f64>| {
        Some(Tested {
            raw: raw?,
            corrected: corrected.next()?,
        })
    };
    raw.into_iter().map(tested).collect()
}

#[cfg(test)]
mod tests {
    use super::super::statistics::geometric;
    use super::*;

    /// The verdict on values of a claim alone in its family.
    fn verdict(claim: Claim, printed: f64, values: &[f64]) -> Verdict {
        verdict_of(claim, printed, values, 1)
    }

    fn verdict_of(claim: Claim, printed: f64, values: &[f64], looks: usize) -> Verdict {
        let ratio = geometric(values).expect("positive");
        let band = Band::of(claim, printed).expect("it is judged");
        let test = Test { ratio, band, looks };
        match family(&[Some(test)])[0] {
            Some(tested) => test.verdict(tested),
            None => test.one_run(),
        }
    }

    #[test]
    fn a_sign_needs_the_interval_on_one_side() {
        let above = [1.2, 1.3, 1.25, 1.22];
        assert_eq!(verdict(Claim::Sign, 2.0, &above), Verdict::Holds);
        assert_eq!(verdict(Claim::Order, 0.5, &above), Verdict::Fails);
        let across = [0.8, 1.3, 1.4, 0.9];
        assert_eq!(verdict(Claim::Sign, 2.0, &across), Verdict::Undecided);
        assert_eq!(verdict(Claim::Sign, 0.5, &across), Verdict::Undecided);
    }

    #[test]
    fn a_printed_ratio_of_one_has_no_side() {
        let less = [0.85, 0.86, 0.86, 0.855];
        for claim in [Claim::Sign, Claim::Order, Claim::Equal] {
            assert_eq!(verdict(claim, 1.0, &less), Verdict::Fails);
            assert_eq!(verdict(claim, 0.96, &less), Verdict::Fails);
        }
        assert_eq!(verdict(Claim::Sign, 0.94, &less), Verdict::Holds);
        let level = [0.99, 1.01, 1.0, 1.005];
        assert_eq!(verdict(Claim::Sign, 1.0, &level), Verdict::Holds);
        assert_eq!(verdict(Claim::Equal, 1.0, &level), Verdict::Holds);
        // Not different, and not shown to be equal either.
        let wide = [0.8, 1.2, 1.1, 0.95];
        assert_eq!(verdict(Claim::Equal, 1.0, &wide), Verdict::Undecided);
    }

    #[test]
    fn a_factor_holds_within_a_quarter() {
        let two = [2.0, 2.1, 1.95, 2.05];
        assert_eq!(verdict(Claim::Factor, 2.0, &two), Verdict::Holds);
        assert_eq!(verdict(Claim::Factor, 2.4, &two), Verdict::Holds);
        assert_eq!(verdict(Claim::Factor, 3.0, &two), Verdict::Fails);
        assert_eq!(verdict(Claim::Factor, 2.55, &two), Verdict::Undecided);
        assert_eq!(Band::of(Claim::Value, 2.0), None);
        // Nothing gained is no gain of a tenth, and as little is it known to be a loss.
        let none = [1.0, 1.02, 0.99, 1.01];
        assert_eq!(verdict(Claim::Factor, 1.1, &none), Verdict::Undecided);
        assert_eq!(verdict(Claim::Factor, 0.9, &none), Verdict::Undecided);
        assert_eq!(verdict(Claim::Factor, 1.04, &none), Verdict::Holds);
        let loss = [0.95, 0.96, 0.95, 0.955];
        assert_eq!(verdict(Claim::Factor, 1.1, &loss), Verdict::Fails);
    }

    #[test]
    fn a_ratio_outside_a_band_has_a_side() {
        let side = |claim, printed, ours| Band::of(claim, printed).expect("judged").side(ours);
        for (claim, printed, ours, beside) in [
            (Claim::Factor, 2.0, 1.5, Some("smaller")),
            (Claim::Factor, 2.0, 1.7, None),
            (Claim::Factor, 2.0, 2.6, Some("larger")),
            (Claim::Sign, 0.0, 3.6, Some("larger")),
            (Claim::Order, 1.1, 0.6, Some("smaller")),
            (Claim::Equal, 1.0, 1.06, Some("larger")),
        ] {
            assert_eq!(side(claim, printed, ours), beside, "{printed} {ours}");
        }
    }

    #[test]
    fn one_run_decides_nothing() {
        let agrees = |agrees| Verdict::OneRun { agrees };
        assert_eq!(verdict(Claim::Sign, 2.0, &[1.5]), agrees(true));
        assert_eq!(verdict(Claim::Sign, 0.5, &[1.5]), agrees(false));
        assert_eq!(verdict(Claim::Factor, 1.4, &[1.5]), agrees(true));
    }

    #[test]
    fn looks_and_families_cost_certainty() {
        // The interval excludes 1, with little to spare.
        let near = [1.08, 1.2, 1.3, 1.1];
        assert_eq!(verdict_of(Claim::Sign, 2.0, &near, 1), Verdict::Holds);
        assert_eq!(verdict_of(Claim::Sign, 2.0, &near, 4), Verdict::Undecided);
        let ratio = geometric(&near).expect("positive");
        let test = Test::side_of_one(ratio, 1);
        let alone = family(&[Some(test)])[0].expect("it has an interval");
        assert!(alone.is_decided() && alone.raw == alone.corrected);
        let single = Test::side_of_one(Estimate::single(2.0), 1);
        let many = family(&[Some(test), None, Some(single), Some(test), Some(test)]);
        assert_eq!((many[1], many[2]), (None, None));
        let one = many[3].expect("it has an interval");
        assert!(!one.is_decided() && one.raw == alone.raw);
        assert!((one.corrected - 3.0 * alone.raw).abs() < 1e-12);
    }
}
