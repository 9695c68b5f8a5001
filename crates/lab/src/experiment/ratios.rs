//! Printed ratios by the values of a parameter, as far as their side of 1 hangs on it.

use super::judged::Judged;
use super::outcome::{Outcome, short};
use super::scenario::Figure;
use super::statistics::Estimate;
use super::value::Value;
use super::words::{self, Words};
use crate::plot::bars::{Bar, Bars, Group};

/// A ratio at each value of a parameter.
type Ratios = Vec<(Value, Estimate)>;

/// A group of bars for each ratio that is above 1 at one value of the figure's parameter and below at
/// another.
pub(super) fn ratios(outcome: &Outcome<'_>, figure: &Figure) -> Bars {
    let mut found: Vec<(String, Ratios)> = Vec::new();
    for line in outcome.judged() {
        let place = line.at.iter().position(|(path, _)| *path == figure.x);
        let (Some(place), Ok(ours)) = (place, line.ours) else {
            continue;
        };
        let (name, value) = (name(&line, &figure.x), line.at[place].1.clone());
        match found.iter_mut().find(|(known, _)| *known == name) {
            Some((_, ratios)) => ratios.push((value, ours)),
            None => found.push((name, vec![(value, ours)])),
        }
    }
    found.retain(|(_, ratios)| changes_side(ratios));
    let group = |(name, ratios): (String, Ratios)| Group {
        name,
        bars: bars(&figure.x, ratios),
    };
    Bars {
        title: figure.title.clone(),
        name: "ratio".into(),
        heading: format!("By claim, then by {}", Words::of_parameter(&figure.x).words),
        groups: found.into_iter().map(group).collect(),
    }
}

/// What the ratio is of, with the parameters that it has but for the swept one.
fn name(line: &Judged, swept: &str) -> String {
    let others = line.at.iter().filter(|(path, _)| path != swept);
    let others = others.map(|(path, value)| words::value(path, value));
    let parts: Vec<String> = [line.printed.what.clone()]
        .into_iter()
        .chain(others)
        .collect();
    parts.join(", ")
}

fn changes_side(ratios: &Ratios) -> bool {
    let above = ratios.iter().filter(|(_, ratio)| ratio.mean > 1.0).count();
    (1..ratios.len()).contains(&above)
}

fn bars(path: &str, ratios: Ratios) -> Vec<Bar> {
    let bar = |(number, (value, ratio)): (usize, (Value, Estimate))| Bar {
        name: words::value(path, &value),
        number,
        value: ratio.mean,
        low: ratio.low,
        high: ratio.high,
        shown: short(ratio.mean),
    };
    ratios.into_iter().enumerate().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::super::statistics::geometric;
    use super::*;

    #[test]
    fn a_ratio_is_shown_where_its_side_of_one_changes() {
        let ratios = |means: &[f64]| -> Ratios {
            let one = |mean: &f64| (Value::Real(*mean), geometric(&[*mean]).expect("positive"));
            means.iter().map(one).collect()
        };
        assert!(changes_side(&ratios(&[0.9, 1.2])) && changes_side(&ratios(&[2.0, 0.5, 3.0])));
        assert!(!changes_side(&ratios(&[1.1, 1.2])) && !changes_side(&ratios(&[0.5])));
        let bars = bars("array.write_cache", ratios(&[0.9, 1.2]));
        let values: Vec<f64> = bars.iter().map(|bar| bar.value).collect();
        assert_eq!((values, bars[1].number), (vec![0.9, 1.2], 1));
    }
}
