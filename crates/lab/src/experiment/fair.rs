//! Whether the two sides of a comparison promise the same: an array that promises more pays for it, and the
//! ratio then says as much of the promise as of the scheme.
//!
//! | promise | what differs |
//! |---|---|
//! | `write hole` | how writes that a power cut interrupts are found (`array.write_hole`) |
//! | `intent map` | both have one, and only one side marks it before each write: the other's writes go to a log or surrogate |
//! | `drive cache` | writes end in the drives' caches (`array.write_cache`) |
//! | `read cache` | memory for reads (`array.cache_mib`) |
//! | `write buffer` | writes end in memory of the array: RERAID's records, in the paper MRAM |
//! | `copies` | ERAID has one copy of new data until its mirrors wake |
//! | `drives` | members, spares (one at least, which comes when it is needed) and drives of a surrogate in use |
//! | `space` | bytes that clients can use, by more than a hundredth |
//! | `rate limits` | the least and the most of the rebuild; per stream they are those of K arrays |
//!
//! A scenario that compares what is unequal names it in `unequal`, else it is refused. The tables show it.

use super::cell::Settings;
use super::judged::{compared_at, points_of};
use super::scenario::Scenario;
use super::value::Point;
use crate::replay::stage::{ArrayPlan, size_bytes};
use restripe_array::meta::WriteHole;
use restripe_sim::rng::mix;
use restripe_tier::Redirect;

/// The names of all promises.
const PROMISES: [&str; 9] = [
    "write hole",
    "intent map",
    "drive cache",
    "read cache",
    "write buffer",
    "copies",
    "drives",
    "space",
    "rate limits",
];

/// What an array promises, in the order of [`PROMISES`].
type Promises = [u64; PROMISES.len()];

fn promises(settings: &Settings) -> Result<Promises, String> {
    let plan = settings.plan()?;
    let redirect = plan.surrogate.as_ref().map(|surrogate| surrogate.redirect);
    let redirect = redirect.unwrap_or(Redirect::None);
    let surrogate = plan
        .surrogate
        .as_ref()
        .filter(|one| one.code_cache.is_none());
    let spares = plan.spares.max(1) + plan.spares_for_parity();
    let drives = plan.members + spares + surrogate.map_or(0, |one| one.members);
    Ok([
        hole(plan.write_hole),
        u64::from(marks_before_writes(&plan, redirect)),
        u64::from(plan.write_cache),
        plan.cache.map_or(0, |cache| u64::from(cache.blocks)),
        u64::from(redirect == Redirect::Reraid),
        u64::from(redirect == Redirect::Eraid),
        drives.into(),
        hundredths(size_bytes(&plan)?),
        mix(mix(plan.rebuild_min) ^ plan.rebuild_max),
    ])
}

fn hole(write_hole: WriteHole) -> u64 {
    match write_hole {
        WriteHole::None => 0,
        WriteHole::Bitmap => 1,
        WriteHole::Ppl => 2,
        WriteHole::WholeRows => 3,
        WriteHole::Journal => 4,
    }
}

/// Whether clients' writes mark the intent map of the main set.
fn marks_before_writes(plan: &ArrayPlan, redirect: Redirect) -> bool {
    let takes_all = !matches!(redirect, Redirect::None | Redirect::Vdf);
    plan.write_hole != WriteHole::None && !takes_all
}

/// A size as steps of a hundredth: sizes in one step or neighbouring ones are equal.
fn hundredths(bytes: u64) -> u64 {
    ((bytes.max(1) as f64).ln() * 100.0) as u64
}

/// The promises that the arrays of two points do not have in common; none of a single point.
pub(crate) fn unequal(pair: &[Point]) -> Result<Vec<&'static str>, String> {
    let [of, to] = pair else {
        return Ok(Vec::new());
    };
    let of = promises(&Settings::of(of)?)?;
    let to = promises(&Settings::of(to)?)?;
    let differs = |index: &usize| match PROMISES[*index] {
        "space" => of[*index].abs_diff(to[*index]) > 1,
        _ => of[*index] != to[*index],
    };
    let differing = (0..PROMISES.len()).filter(differs);
    Ok(differing.map(|index| PROMISES[index]).collect())
}

/// Refuses a scenario that compares unequal promises without saying so.
pub fn check(scenario: &Scenario) -> Result<(), String> {
    let known = PROMISES.join(", ");
    if let Some(stray) = scenario
        .unequal
        .iter()
        .find(|one| !PROMISES.contains(&one.as_str()))
    {
        return Err(format!("there is no promise {stray:?}: there are {known}"));
    }
    let points = scenario.points();
    let compared = scenario.comparisons.iter();
    let compared = compared.map(|one| {
        let pairs = compared_at(&one.at, Some(&one.between()), &points);
        (&one.name, pairs)
    });
    let printed = scenario.printed.iter();
    let printed = printed.map(|one| (&one.what, points_of(one, &points)));
    for (name, pairs) in compared.chain(printed) {
        for pair in pairs {
            let found = unequal(&pair)?;
            let is_said = |one: &&&str| scenario.unequal.iter().any(|said| said == **one);
            if let Some(unsaid) = found.iter().find(|one| !is_said(one)) {
                return Err(format!(
                    "{name:?} compares arrays with unequal promises: {unsaid}. A scenario that does so on purpose \
                     says unequal = {found:?}"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::claim::Comparison;
    use super::super::value::Value;
    use super::*;
    use crate::experiment::scenario::{Scale, named, names, parse};

    /// The scenario, changed, with what is wrong with it.
    fn refused(name: &str, change: impl Fn(&mut Scenario)) -> Result<(), String> {
        let mut scenario = parse(named(name).expect("listed")).expect(name).shortened();
        change(&mut scenario);
        check(&scenario)
    }

    #[test]
    fn each_unequal_promise_is_refused_unless_it_is_said() {
        let with = |scenario: &mut Scenario, path: &str, values: [Value; 2]| {
            scenario.fixed.remove(path);
            scenario.sweep.insert(path.into(), values.to_vec());
            let [of, to] = values;
            scenario.comparisons = vec![Comparison {
                name: "two sides".into(),
                metric: "rebuild_s".into(),
                vary: path.into(),
                of,
                to,
                at: Point::new(),
            }];
            scenario.printed.clear();
            scenario.unequal.clear();
        };
        let text = |text: &str| Value::Text(text.into());
        for (path, values, promise) in [
            (
                "array.write_hole",
                [text("none"), text("bitmap")],
                "write hole",
            ),
            (
                "array.write_cache",
                [Value::Flag(true), Value::Flag(false)],
                "drive cache",
            ),
            (
                "array.cache_mib",
                [Value::Real(0.0), Value::Real(4.0)],
                "read cache",
            ),
            (
                "array.members",
                [Value::Whole(5), Value::Whole(6)],
                "drives",
            ),
            ("array.level", [text("raid5"), text("raid6")], "space"),
            (
                "rebuild.min_mb_s",
                [Value::Whole(2), Value::Whole(8)],
                "rate limits",
            ),
        ] {
            let told = refused("levels", |scenario| with(scenario, path, values.clone()));
            assert!(told.expect_err(path).contains(promise), "{path}");
            let said = refused("levels", |scenario| {
                with(scenario, path, values.clone());
                scenario.unequal = PROMISES.map(str::to_string).to_vec();
            });
            assert_eq!(said, Ok(()), "{path}");
        }
        let stray = refused("levels", |scenario| scenario.unequal = vec!["luck".into()]);
        assert!(stray.expect_err("unknown").contains("luck"));
    }

    #[test]
    fn an_intent_map_that_only_one_side_marks_is_unequal() {
        let marked = |write_hole: &str| {
            refused("reraid", |scenario| {
                scenario.fix("array.write_hole", Value::Text(write_hole.into()));
                scenario.unequal.retain(|one| one != "intent map");
            })
        };
        assert_eq!(marked("none"), Ok(()));
        assert!(
            marked("bitmap")
                .expect_err("RAID-10 alone marks")
                .contains("intent map")
        );
    }

    #[test]
    fn every_built_in_scenario_says_what_is_unequal() {
        let mut refused = Vec::new();
        for name in names() {
            for scale in [Scale::Whole, Scale::Quick, Scale::Short] {
                let scenario = parse(named(name).expect("listed"))
                    .expect(name)
                    .scaled(scale);
                if let Err(mistake) = check(&scenario) {
                    refused.push(format!("{name}: {mistake}"));
                }
            }
        }
        assert!(refused.is_empty(), "{}", refused.join("\n"));
    }
}
