//! Whether what a scenario compares is of it: its parameters and values, the paper, the printed number.

use super::claim::{Claim, Comparison, PAPERS, Printed};
use super::value::{Point, Value};
use crate::nearest;
use std::collections::BTreeMap;

/// The parameters of a scenario, each with its values at any scale.
pub(super) type Known = BTreeMap<String, Vec<Value>>;

/// All that is wrong with the comparisons and printed numbers of a scenario that has these parameters. A
/// comparison may be of values that a narrowed copy of a scenario has no longer.
pub(super) fn mistaken(known: &Known, compared: &[Comparison], printed: &[Printed]) -> Vec<String> {
    let compared = compared.iter().flat_map(|one| {
        let paths = one.at.keys().chain([&one.vary]);
        let said = paths.filter_map(|path| unknown(known, path));
        said.map(|said| format!("{:?}: {said}", one.name))
    });
    let printed = printed.iter().flat_map(|line| {
        let sides = [false, true].map(|second| {
            let side = line.between.as_ref().map(|between| between.side(second));
            side.unwrap_or_default()
        });
        let mut mistakes = strangers(known, &line.what, &[&line.at, &sides[0], &sides[1]]);
        mistakes.extend(mistaken_source(line));
        mistakes.extend(mistaken_number(line));
        mistakes
    });
    compared.chain(printed).collect()
}

/// Parameters and values that no run of the scenario can have. Each is named once.
fn strangers(known: &Known, of: &str, points: &[&Point]) -> Vec<String> {
    let pairs = points.iter().flat_map(|point| point.iter());
    let mut mistakes = Vec::new();
    for said in pairs.filter_map(|(path, value)| stranger(known, path, value)) {
        let said = format!("{of:?}: {said}");
        if !mistakes.contains(&said) {
            mistakes.push(said);
        }
    }
    mistakes
}

fn unknown(known: &Known, path: &str) -> Option<String> {
    let paths = known.keys().map(String::as_str);
    let said = || nearest::unknown_one("parameter", path, paths) + " of the scenario";
    (!known.contains_key(path)).then(said)
}

fn stranger(known: &Known, path: &str, value: &Value) -> Option<String> {
    let Some(values) = known.get(path) else {
        return unknown(known, path);
    };
    let texts: Vec<String> = values.iter().map(Value::canonical).collect();
    let what = format!("value of {path}");
    let said = || nearest::unknown(&what, &value.canonical(), texts.iter().map(String::as_str));
    (!values.contains(value)).then(said)
}

fn mistaken_source(line: &Printed) -> Option<String> {
    let source = line.source.as_str();
    let (paper, place) = source.split_once(", ").unwrap_or((source, ""));
    if !PAPERS.contains(&paper) {
        let said = nearest::unknown("paper", paper, PAPERS);
        return Some(format!("{:?}: {said}", line.what));
    }
    let said = || {
        format!(
            "{:?}: {source:?} has no place, as in \"IDO, table 1\"",
            line.what
        )
    };
    place.trim().is_empty().then(said)
}

/// Ratios are above zero; 0 is a direction without a number. An absolute number may be zero.
fn mistaken_number(line: &Printed) -> Option<String> {
    let may_be_zero = !matches!(line.claim, Claim::Factor | Claim::Equal);
    let sound = line.value > 0.0 || (may_be_zero && line.value == 0.0);
    let claim = line.claim.name();
    let said = format!(
        "{:?}: {} is no printed number of a {claim}",
        line.what, line.value
    );
    (!(sound && line.value.is_finite())).then_some(said)
}

#[cfg(test)]
mod tests {
    use super::super::scenario::parse;
    use super::super::value::Value;

    const SCENARIO: &str = r#"
        name = "small"
        title = "t"
        question = "q"
        seeds = 3
        table = []
        [fixed]
        "rebuild.throttle" = { value = "md-2.6", origin = "paper", range = ["md-6.1"] }
        "rebuild.min_mb_s" = { value = 1, origin = "paper" }
        [sweep]
        "rebuild.scheme" = ["pr", "ido"]
        "workload.source" = ["fin1"]
        [short]
        fixed = { "rebuild.min_mb_s" = 50 }
        sweep = { "workload.source" = ["fin2"] }
    "#;

    const LINE: &str = r#"
        what = "w"
        source = "IDO, table 1"
        value = 2.0
        claim = "factor"
        metric = "rebuild_s"
        between = { vary = "rebuild.scheme", of = "pr", to = "ido" }
        at = { "workload.source" = "fin1" }
    "#;

    /// What is said of a printed line with this in place of that.
    fn said(that: &str, this: &str) -> Result<(), String> {
        assert!(LINE.contains(that), "{that}");
        let text = format!("{SCENARIO}[[printed]]{}", LINE.replace(that, this));
        parse(&text).map(|_| ())
    }

    #[test]
    fn a_printed_line_names_what_the_scenario_has() {
        for (that, this, told) in [
            (
                "vary = \"rebuild.scheme\"",
                "vary = \"rebuild.shceme\"",
                "the nearest is rebuild.scheme",
            ),
            (
                "\"workload.source\" =",
                "\"workload.sauce\" =",
                "the nearest is workload.source",
            ),
            (
                "\"workload.source\" =",
                "\"array.level\" =",
                "there is no parameter 'array.level'",
            ),
            (
                "of = \"pr\"",
                "of = \"nonsense\"",
                "there is no value of rebuild.scheme '\"nonsense\"'",
            ),
            ("to = \"ido\"", "to = \"idp\"", "the nearest is \"ido\""),
            (
                "to = \"ido\"",
                "to = \"ido\", with = { \"workload.source\" = [\"fin1\", \"fun1\"] }",
                "'\"fun1\"'",
            ),
            (
                "\"fin1\"",
                "\"fin3\"",
                "there is no value of workload.source '\"fin3\"'",
            ),
            (
                "\"workload.source\" = \"fin1\"",
                "\"rebuild.min_mb_s\" = 2",
                "'2'; the nearest is 1;",
            ),
        ] {
            let refused = said(that, this).expect_err(this);
            assert!(
                refused.starts_with("\"w\": ") && refused.contains(told),
                "{refused}"
            );
        }
        let both = format!(
            "{SCENARIO}[[printed]]{}",
            LINE.replace("\"pr\"", "\"x\"").replace("\"fin1\"", "\"y\"")
        );
        assert_eq!(parse(&both).expect_err("two mistakes").lines().count(), 2);
    }

    #[test]
    fn values_of_each_scale_and_range_are_known() {
        let fin1 = "\"workload.source\" = \"fin1\"";
        for known in [
            "\"workload.source\" = \"fin2\"",
            "\"rebuild.min_mb_s\" = 1",
            "\"rebuild.min_mb_s\" = 50",
            "\"rebuild.throttle\" = \"md-6.1\"",
        ] {
            assert_eq!(said(fin1, known), Ok(()), "{known}");
        }
    }

    #[test]
    fn a_comparison_names_what_the_scenario_has() {
        let compare = |vary: &str, to: &str, at: &str| {
            let line = format!("vary = \"{vary}\"\nof = \"pr\"\nto = \"{to}\"\nat = {{ {at} }}");
            parse(&format!(
                "{SCENARIO}[[compare]]\nname = \"n\"\nmetric = \"rebuild_s\"\n{line}"
            ))
        };
        let sound = compare("rebuild.scheme", "ido", "").expect("sound");
        assert_eq!(sound.comparisons[0].to, Value::Text("ido".into()));
        assert!(compare("rebuild.shceme", "ido", "").is_err());
        assert!(compare("rebuild.scheme", "odd", "").is_ok());
        assert!(compare("rebuild.scheme", "ido", "\"workload.sauce\" = 1").is_err());
    }

    #[test]
    fn a_paper_that_is_none_of_the_five_is_refused() {
        let source = "IDO, table 1";
        for (this, told) in [
            ("FOO, figure 9", "there is no paper 'FOO'"),
            ("MacPod, figure 9", "the nearest is McPod"),
            ("IDO", "has no place"),
            ("IDO, ", "has no place"),
        ] {
            let refused = said(source, this).expect_err(this);
            assert!(refused.contains(told), "{refused}");
        }
        assert_eq!(said(source, "McPod, anywhere"), Ok(()));
    }

    #[test]
    fn a_printed_number_is_one_that_its_claim_can_have() {
        for claim in ["sign", "order", "factor", "equal", "value"] {
            let of = |value: &str| {
                let new = format!("value = {value}\nclaim = \"{claim}\"");
                said("value = 2.0\n        claim = \"factor\"", &new)
            };
            for wrong in ["-2", "-0.5", "nan", "inf", "-inf"] {
                assert!(of(wrong).is_err(), "{claim} {wrong}");
            }
            assert_eq!(
                of("0").is_err(),
                ["factor", "equal"].contains(&claim),
                "{claim}"
            );
            assert_eq!(of("0.5"), Ok(()), "{claim}");
        }
    }
}
