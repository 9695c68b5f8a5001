//! Whether what a scenario compares is of it: its parameters and values, the paper, the printed number.

use super::claim::{Between, Claim, Comparison, PAPERS, Printed};
use super::value::{Point, Value};
use crate::nearest;
use std::collections::{BTreeMap, BTreeSet};

/// The parameters of a scenario, each with its values at any scale.
pub(super) type Values = BTreeMap<String, Vec<Value>>;

/// All that is wrong with the comparisons and printed numbers of a scenario that has these parameters, but
/// for their values.
pub(super) fn mistaken(
    known: &BTreeSet<String>,
    compared: &[Comparison],
    printed: &[Printed],
) -> Vec<String> {
    let compared = compared.iter().flat_map(|one| {
        let between = one.between();
        unknown_parameters(known, &one.name, &one.at, Some(&between))
    });
    let printed = printed.iter().flat_map(|line| {
        let between = line.between.as_ref();
        let mut mistakes = unknown_parameters(known, &line.what, &line.at, between);
        mistakes.extend(mistaken_source(line));
        mistakes.extend(mistaken_number(line));
        mistakes.extend(mistaken_form(line));
        mistakes.extend(mistaken_sides(line));
        mistakes
    });
    compared.chain(printed).collect()
}

/// The points of one line of a scenario: of each side the values that it names.
fn sides(at: &Point, between: Option<&Between>) -> [Point; 2] {
    [false, true].map(|second| {
        let mut side = at.clone();
        side.extend(between.map(|one| one.side(second)).unwrap_or_default());
        side
    })
}

/// Each is named once.
fn unknown_parameters(
    known: &BTreeSet<String>,
    of: &str,
    at: &Point,
    between: Option<&Between>,
) -> Vec<String> {
    let paths: BTreeSet<String> = sides(at, between)
        .into_iter()
        .flat_map(Point::into_keys)
        .collect();
    let unknown = paths.difference(known);
    let said = unknown.map(|path| {
        let known = known.iter().map(String::as_str);
        let said = nearest::unknown_one("parameter", path, known);
        format!("{of:?}: {said} of the scenario")
    });
    said.collect()
}

/// Of the values that comparisons and printed numbers name, those that their parameter can never have. A
/// value that only this scenario lacks is no mistake: its line is not run, as in a narrowed copy.
pub(super) fn impossible_values(
    values: &Values,
    points: &[Point],
    compared: &[Comparison],
    printed: &[Printed],
    check: impl Fn(&Point) -> Result<(), String>,
) -> Vec<String> {
    let compared = compared
        .iter()
        .map(|one| (&one.name, sides(&one.at, Some(&one.between()))));
    let printed = printed
        .iter()
        .map(|line| (&line.what, sides(&line.at, line.between.as_ref())));
    let mut mistakes = Vec::new();
    for (of, side) in compared
        .chain(printed)
        .flat_map(|(of, sides)| sides.map(|side| (of, side)))
    {
        let lacking = side
            .iter()
            .filter(|(path, value)| values.get(*path).is_some_and(|all| !all.contains(value)));
        for (path, value) in lacking {
            let said = impossible(points, &side, (path, value), &check);
            let said = said.map(|error| format!("{of:?}: {error}"));
            mistakes.extend(said.filter(|said| !mistakes.contains(said)));
        }
    }
    mistakes
}

/// What is said of a value if no point can have it, neither alone nor with the others of its side.
fn impossible(
    points: &[Point],
    side: &Point,
    (path, value): (&String, &Value),
    check: &impl Fn(&Point) -> Result<(), String>,
) -> Option<String> {
    let sound = points.iter().filter(|point| check(point).is_ok());
    let mut said = None;
    for point in sound {
        let (mut alone, mut whole) = (point.clone(), point.clone());
        alone.insert(path.clone(), value.clone());
        whole.extend(side.clone());
        match (check(&alone), check(&whole)) {
            (Err(error), Err(_)) if error.starts_with(path.as_str()) => said = Some(error),
            _ => return None,
        }
    }
    said
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

/// A value is one metric of one run. Anything else is a ratio: of two metrics, or of two runs.
fn mistaken_form(line: &Printed) -> Option<String> {
    let (over, between) = (!line.over.is_empty(), line.between.is_some());
    let said = match (line.claim, over, between) {
        (Claim::Value, false, false) => return None,
        (Claim::Value, ..) => "a value has neither over nor between",
        (_, true, true) => "a ratio has over or between, not both",
        (_, false, false) => "a ratio needs over (a second metric) or between (two values)",
        _ => return None,
    };
    Some(format!("{:?}: {said}", line.what))
}

/// Two runs that are one, or of which one does not have the values that both are said to have.
fn mistaken_sides(line: &Printed) -> Option<String> {
    let between = line.between.as_ref()?;
    let said = match line.at.keys().find(|path| between.varies(path)) {
        Some(path) => format!("{path} is in at, and is what between varies"),
        None if between.side(false) == between.side(true) => "between has one value twice".into(),
        None => return None,
    };
    Some(format!("{:?}: {said}", line.what))
}

#[cfg(test)]
mod tests {
    use super::super::cell::Settings;
    use super::super::scenario::{Scenario, named, parse, parse_of};
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
        for (that, this, says) in [
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
                "to = \"ido\"",
                "to = \"ido\", with = { \"rebuild.odrer\" = [1, 2] }",
                "there is no parameter 'rebuild.odrer'",
            ),
        ] {
            let refused = said(that, this).expect_err(this);
            assert!(
                refused.starts_with("\"w\": ") && refused.contains(says),
                "{refused}"
            );
            assert_eq!(refused.lines().count(), 1, "{refused}");
        }
    }

    /// A whole scenario, narrowed to one source and two schemes, with a line that compares them.
    fn narrowed(kind: &str, that: &str, this: &str) -> Result<Scenario, String> {
        let text = named("rebuild-cost").expect("built in");
        let mut table: toml::Table = text.parse().expect("sound");
        for part in ["short", "quick", "verify", "compare", "printed", "figure"] {
            table.remove(part);
        }
        let line = match kind {
            "printed" => LINE.to_string(),
            _ => "name = \"w\"\nmetric = \"rebuild_s\"\nvary = \"rebuild.scheme\"\nof = \"pr\"\nto = \"ido\"\n\
                  at = { \"workload.source\" = \"fin1\" }"
                .to_string(),
        };
        for path in [
            "workload.source",
            "rebuild.scheme",
            "rebuild.min_mb_s",
            "rebuild.redirect",
            "rebuild.order",
        ] {
            for group in ["fixed", "sweep"] {
                if let Some(toml::Value::Table(group)) = table.get_mut(group) {
                    group.remove(path);
                }
            }
        }
        if let Some(toml::Value::Table(sweep)) = table.get_mut("sweep") {
            sweep.insert("workload.source".into(), vec!["fin1"].into());
            sweep.insert("rebuild.scheme".into(), vec!["pr", "ido"].into());
            sweep.insert("rebuild.min_mb_s".into(), vec![1, 5].into());
        }
        assert!(line.contains(that), "{that}");
        let line = line.replace(that, this);
        parse_of::<Settings>(&format!("{table}\n[[{kind}]]\n{line}"))
    }

    #[test]
    fn a_value_that_a_narrowed_copy_lacks_is_sound_and_one_that_cannot_be_is_refused() {
        let fin1 = "\"workload.source\" = \"fin1\"";
        for kind in ["printed", "compare"] {
            for (that, this) in [
                (fin1, "\"workload.source\" = \"fin2\""),
                (fin1, "\"workload.source\" = \"trace:of/another.spc\""),
                (fin1, "\"rebuild.min_mb_s\" = 50"),
                ("to = \"ido\"", "to = \"workout\""),
                ("of = \"pr\"", "of = \"vdf\""),
            ] {
                let sound = narrowed(kind, that, this);
                assert_eq!(sound.map(drop), Ok(()), "{kind} {this}");
            }
            for (that, this, says) in [
                (
                    "of = \"pr\"",
                    "of = \"nonsense\"",
                    "rebuild.scheme: there is no scheme 'nonsense'; there are ",
                ),
                ("to = \"ido\"", "to = \"idp\"", "the nearest is ido; "),
                (
                    fin1,
                    "\"workload.source\" = \"fin9\"",
                    "the nearest is fin1; ",
                ),
                (fin1, "\"rebuild.min_mb_s\" = -2", "rebuild.min_mb_s"),
                (
                    fin1,
                    "\"rebuild.min_mb_s\" = \"slow\"",
                    "rebuild.min_mb_s: takes ",
                ),
            ] {
                let refused = narrowed(kind, that, this).expect_err(this);
                let begins = refused.starts_with("\"w\": ");
                assert!(begins && refused.contains(says), "{refused}");
                assert_eq!(refused.lines().count(), 1, "{refused}");
            }
        }
        let with = "to = \"ido\", with = { \"rebuild.throttle\" = [\"md-2.6\", \"fun1\"] }";
        let refused = narrowed("printed", "to = \"ido\"", with).expect_err("no fun1");
        assert!(refused.contains("'fun1'"), "{refused}");
        let two = narrowed("printed", "\"pr\", to = \"ido\"", "\"x\", to = \"y\"");
        assert_eq!(two.expect_err("two mistakes").lines().count(), 2);
    }

    #[test]
    fn a_built_in_scenario_may_be_narrowed_to_any_one_value() {
        for name in super::super::scenario::names() {
            let text = named(name).expect("listed");
            let table: toml::Table = text.parse().expect("sound");
            let sweep = table.get("sweep").and_then(toml::Value::as_table);
            for (path, values) in sweep.into_iter().flatten() {
                let mut narrow = table.clone();
                for part in ["short", "quick", "verify"] {
                    narrow.remove(part);
                }
                let first = values.as_array().expect("a sweep")[..1].to_vec();
                if let Some(toml::Value::Table(sweep)) = narrow.get_mut("sweep") {
                    sweep.insert(path.clone(), first.into());
                }
                let sound = parse_of::<Settings>(&narrow.to_string());
                assert_eq!(sound.map(drop), Ok(()), "{name}: {path}");
            }
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
        assert!(compare("rebuild.scheme", "ido", "\"workload.sauce\" = 1").is_err());
    }

    #[test]
    fn a_paper_that_is_none_of_the_five_is_refused() {
        let source = "IDO, table 1";
        for (this, says) in [
            ("FOO, figure 9", "there is no paper 'FOO'"),
            ("MacPod, figure 9", "the nearest is McPod"),
            ("IDO", "has no place"),
            ("IDO, ", "has no place"),
        ] {
            let refused = said(source, this).expect_err(this);
            assert!(refused.contains(says), "{refused}");
        }
        assert_eq!(said(source, "McPod, anywhere"), Ok(()));
    }

    #[test]
    fn a_printed_number_is_one_that_its_claim_can_have() {
        for claim in ["sign", "order", "factor", "equal", "value"] {
            let of = |value: &str| {
                let new = format!("value = {value}\nclaim = \"{claim}\"");
                let line = LINE.replace("value = 2.0\n        claim = \"factor\"", &new);
                let line = match claim {
                    "value" => line.replace("between = {", "# {"),
                    _ => line,
                };
                parse(&format!("{SCENARIO}[[printed]]{line}")).map(|_| ())
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

    #[test]
    fn a_ratio_is_of_two_and_a_value_of_one() {
        let between = "between = { vary = \"rebuild.scheme\", of = \"pr\", to = \"ido\" }";
        let over = "over = \"before.mean_ms\"";
        for (claim, is_ratio) in [("value", false), ("sign", true), ("factor", true)] {
            let of = |form: &str| {
                let line = LINE.replace("\"factor\"", &format!("\"{claim}\""));
                let line = line.replace(between, form);
                parse(&format!("{SCENARIO}[[printed]]{line}"))
            };
            for (form, sound) in [
                (String::new(), !is_ratio),
                (over.into(), is_ratio),
                (between.into(), is_ratio),
                (format!("{over}\n{between}"), false),
            ] {
                assert_eq!(of(&form).is_ok(), sound, "{claim} with {form:?}");
            }
        }
    }

    #[test]
    fn the_runs_of_a_ratio_are_two() {
        for (that, this) in [
            ("to = \"ido\"", "to = \"pr\""),
            (
                "\"workload.source\" = \"fin1\"",
                "\"rebuild.scheme\" = \"ido\"",
            ),
        ] {
            assert!(said(that, this).is_err(), "{this}");
        }
    }
}
