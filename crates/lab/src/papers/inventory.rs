//! What the papers print, as data: a file for each paper, with every figure, table and printed number.

use crate::experiment::claim::Printed;
use crate::experiment::scenario::BuiltIn;
use serde::Deserialize;

const BUILT_IN: BuiltIn = BuiltIn(texts![
    "../../../../scenarios/papers/":
    "ido", "mcpod", "vdf", "s2-raid", "reraid",
]);

/// A paper.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    /// The name by which sources of printed numbers name it.
    pub paper: String,
    pub(crate) title: String,
    #[serde(rename = "item")]
    pub(crate) items: Vec<Item>,
}

/// A figure, a table, or a sentence with a number.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Item {
    pub(crate) at: String,
    pub(crate) what: String,
    /// What is printed, in words.
    #[serde(default)]
    pub(crate) printed: String,
    /// What answers it: scenarios, or `lab reliability`.
    #[serde(default)]
    pub(crate) answer: Vec<String>,
    /// Why it cannot be had.
    #[serde(default)]
    pub(crate) lost: String,
    #[serde(default)]
    pub(crate) note: String,
}

/// All papers.
pub fn all() -> Result<Vec<Inventory>, String> {
    let read = |name: &str| {
        let text = BUILT_IN.named(name).unwrap_or_default();
        toml::from_str(text).map_err(|error| format!("{name}: {error}"))
    };
    BUILT_IN.names().map(read).collect()
}

/// The paper of a printed number, and the place in it.
pub(crate) fn source(printed: &Printed) -> (&str, &str) {
    let source = printed.source.as_str();
    source.split_once(", ").unwrap_or((source, ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::grid;
    use crate::experiment::claim::PAPERS;
    use crate::experiment::scenario;
    use std::collections::BTreeSet;

    /// The sources of all printed numbers, each with a scenario that has it.
    fn sources() -> Vec<(String, String)> {
        let arrays = scenario::names().map(|name| (name, scenario::named(name)));
        let caches = grid::names().map(|name| (name, grid::named(name)));
        let mut sources = Vec::new();
        for (name, text) in arrays.chain(caches) {
            let scenario = scenario::parse(text.expect("listed")).expect(name);
            let printed = scenario.printed.into_iter();
            sources.extend(printed.map(|line| (line.source, name.to_string())));
        }
        sources
    }

    fn answers(name: &str) -> bool {
        let experiments = scenario::names().chain(grid::names());
        experiments
            .chain(["lab reliability"])
            .any(|known| known == name)
    }

    #[test]
    fn scenarios_can_name_the_papers_that_have_inventories() {
        let papers: BTreeSet<String> = all()
            .expect("sound")
            .into_iter()
            .map(|one| one.paper)
            .collect();
        assert_eq!(papers, PAPERS.map(str::to_string).into());
    }

    #[test]
    fn every_printed_number_is_an_item_and_every_item_is_answered() {
        let sources = sources();
        let papers = all().expect("sound");
        let mut places = BTreeSet::new();
        let mut faults = Vec::new();
        for Inventory { paper, items, .. } in &papers {
            for item in items {
                let place = format!("{paper}, {}", item.at);
                let has_number = sources.iter().any(|(source, _)| *source == place);
                if !(has_number || !item.lost.is_empty() || !item.note.is_empty()) {
                    faults.push(format!(
                        "{place}: neither a number of a scenario, nor lost, nor a note"
                    ));
                }
                let strange = item.answer.iter().filter(|name| !answers(name));
                faults.extend(strange.map(|name| format!("{place}: there is no {name}")));
                if !places.insert(place.clone()) {
                    faults.push(format!("{place} is twice"));
                }
            }
        }
        let strange = sources
            .iter()
            .filter(|(source, _)| !places.contains(source));
        faults.extend(strange.map(|(source, name)| format!("{name}: {source} is no item")));
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
