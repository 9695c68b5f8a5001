//! Workloads by name: TOML files with the source of every number, built into the command.
//!
//! A file has the parameters that its localities share, and a table of those in which they differ.
//! `fin1-low` is its locality `low`; the name `fin1` means `mid`. Numbers are from published statistics
//! where there are any; the others are marked as assumed. No preset is the trace that it is named after.

use super::parameters::{Invalid, Parameters};
use crate::nearest;
use std::collections::BTreeSet;
use std::sync::OnceLock;
use toml::{Table, Value};

const FILES: &[(&str, &str)] = texts![
    "../../presets/workloads/":
    "fin1", "fin2", "web2", "proj", "tpcc", "user", "web", "mds", "rsrch", "lm-tbe", "dtrs", "noise", "stable",
];

pub const LOCALITIES: [&str; 3] = ["low", "mid", "high"];

/// A workload that the command knows by name.
#[derive(Clone, PartialEq, Debug)]
pub struct Preset {
    pub name: &'static str,
    pub summary: String,
    table: Table,
}

impl Preset {
    pub fn all() -> Vec<Preset> {
        FILES
            .iter()
            .map(|(name, text)| Preset::of(name, text))
            .collect()
    }

    fn of(name: &'static str, text: &str) -> Preset {
        let table: Table = text.parse().expect("a test reads every preset");
        let summary = table.get("summary").and_then(Value::as_str);
        Preset {
            name,
            summary: summary.unwrap_or_default().to_string(),
            table,
        }
    }

    /// The localities that it has; none if it is of one only.
    pub fn localities(&self) -> Vec<&'static str> {
        let own = self.table.get("locality").and_then(Value::as_table);
        let has = |name: &&str| own.is_some_and(|own| own.contains_key(*name));
        LOCALITIES.into_iter().filter(has).collect()
    }

    /// Its parameters at a locality; `mid` or the only one without.
    pub fn parameters(&self, locality: Option<&str>) -> Result<Parameters, Invalid> {
        let mut table = self.table.clone();
        let own = table.remove("locality");
        let mut name = self.name.to_string();
        if let Some(Value::Table(own)) = own {
            let chosen = locality.unwrap_or("mid");
            let unknown = || Invalid(format!("{name} has no locality {chosen:?}"));
            let differing = own
                .get(chosen)
                .and_then(Value::as_table)
                .ok_or_else(unknown)?;
            table.extend(differing.clone());
            name = format!("{name}-{chosen}");
        } else if let Some(locality) = locality {
            return Err(Invalid(format!("{name} has no locality {locality:?}")));
        }
        table.insert("name".into(), Value::String(name));
        let parameters: Parameters = table
            .try_into()
            .map_err(|error: toml::de::Error| Invalid(error.to_string()))?;
        parameters.check()?;
        Ok(parameters)
    }
}

/// All names that lead to parameters.
pub(crate) fn names() -> &'static BTreeSet<String> {
    static NAMES: OnceLock<BTreeSet<String>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let localities = every().into_iter().map(|parameters| parameters.name);
        let files = FILES.iter().map(|(name, _)| (*name).to_string());
        files.chain(localities).collect()
    })
}

/// What is said of a name that no preset has.
pub fn unknown(name: &str) -> String {
    nearest::unknown("workload", name, names().iter().map(String::as_str))
}

/// The parameters of a preset's name: `fin1`, `fin1-high`, `noise`. Nothing if there is no such preset.
pub fn named(name: &str) -> Option<Result<Parameters, Invalid>> {
    let presets = Preset::all();
    let find = |name: &str| presets.iter().find(|preset| preset.name == name);
    if let Some(preset) = find(name) {
        return Some(preset.parameters(None));
    }
    let (name, locality) = name.rsplit_once('-')?;
    LOCALITIES.contains(&locality).then_some(())?;
    find(name).map(|preset| preset.parameters(Some(locality)))
}

/// Every preset at every locality that it has.
pub fn every() -> Vec<Parameters> {
    let mut all = Vec::new();
    for preset in Preset::all() {
        let localities = preset.localities();
        let chosen: Vec<Option<&str>> = match localities.is_empty() {
            true => vec![None],
            false => localities.into_iter().map(Some).collect(),
        };
        for locality in chosen {
            all.push(
                preset
                    .parameters(locality)
                    .expect("a test makes every preset"),
            );
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::parameters::numbers;
    use super::*;

    #[test]
    fn every_preset_makes_parameters_and_every_number_has_its_source() {
        assert_eq!(every().len(), 11 * 3 + 2);
        for parameters in every() {
            for number in numbers() {
                let source = parameters.sources.get(number);
                let kind = source.and_then(|source| source.split_once(':'));
                let mut kinds = "printed measured recalled assumed derived set".split(' ');
                let said = kinds.any(|known| kind.is_some_and(|(kind, _)| kind == known));
                assert!(said, "{} of {}: {source:?}", number, parameters.name);
            }
            let (found, name) = (parameters.sources.len(), parameters.name);
            assert_eq!(found, numbers().count(), "{name}");
        }
    }

    #[test]
    fn localities_are_those_laid_down() {
        for preset in Preset::all().iter().take(11) {
            let thetas = match preset.name {
                "web2" => [0.6, 0.75, 0.9],
                "fin1" | "fin2" => [0.9, 1.2, 1.6],
                _ => [0.7, 1.0, 1.2],
            };
            let rereads = match preset.name {
                "web2" => (0.0, 0.05),
                "fin1" | "fin2" => (0.3, 0.6),
                _ => (0.2, 0.35),
            };
            let cv = if preset.name == "web2" { 1.4 } else { 3.5 };
            let all = LOCALITIES.map(|name| preset.parameters(Some(name)).unwrap());
            assert_eq!(all.clone().map(|one| one.theta), thetas);
            assert_eq!((all[0].reread_share, all[2].reread_share), rereads);
            assert_eq!(all.clone().map(|one| one.drift), [0.5, 0.1, 0.0]);
            assert_eq!(all.map(|one| one.gap_cv), [cv; 3]);
        }
    }

    #[test]
    fn names_lead_to_parameters() {
        for name in names() {
            assert!(named(name).is_some_and(|found| found.is_ok()), "{name}");
        }
        let name = |text| named(text).map(|found| found.unwrap().name);
        assert_eq!(name("fin1"), Some("fin1-mid".into()));
        assert_eq!(name("lm-tbe-high"), Some("lm-tbe-high".into()));
        assert_eq!(name("noise"), Some("noise".into()));
        assert_eq!(name("fin3"), None);
        assert!(named("noise-low").unwrap().is_err());
    }
}
