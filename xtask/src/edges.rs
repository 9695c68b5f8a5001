//! Which crate may depend on which: `cli -> lab -> {sim, io} -> tier -> array -> contract -> format`, and `{sim, io} -> code`.
//!
//! `format` depends on nothing, and `code` on no crate of ours. A RAID set has no knowledge of a tier above it.
//! `sim` and `io` do not use each other, except that the conformance test of `io` runs on both.

use crate::source::{Finding, Tree};

/// A crate, the crates of ours that its product may use, and those that its tests may use besides.
struct Rule {
    name: &'static str,
    uses: &'static [&'static str],
    tests_use: &'static [&'static str],
    /// Whether crates from elsewhere are allowed at all.
    outside: bool,
}

const RULES: &[Rule] = &[
    Rule {
        name: "code",
        uses: &[],
        tests_use: &[],
        outside: true,
    },
    Rule {
        name: "format",
        uses: &[],
        tests_use: &[],
        outside: false,
    },
    Rule {
        name: "contract",
        uses: &["format"],
        tests_use: &[],
        outside: false,
    },
    Rule {
        name: "array",
        uses: &["format", "contract"],
        tests_use: &["code"],
        outside: false,
    },
    Rule {
        name: "tier",
        uses: &["format", "contract", "array"],
        tests_use: &["code"],
        outside: false,
    },
    Rule {
        name: "sim",
        uses: &["array", "tier", "code"],
        tests_use: &[],
        outside: true,
    },
    Rule {
        name: "io",
        uses: &["array", "tier", "code"],
        tests_use: &["sim"],
        outside: true,
    },
    Rule {
        name: "lab",
        uses: &["array", "tier", "code", "sim", "io"],
        tests_use: &[],
        outside: true,
    },
    Rule {
        name: "cli",
        uses: &["array", "tier", "code", "sim", "io", "lab"],
        tests_use: &[],
        outside: true,
    },
];

/// A dependency as a manifest names it.
#[derive(Debug, PartialEq, Eq)]
struct Dependency {
    name: String,
    line: usize,
    for_tests: bool,
}

pub fn check(tree: &Tree) -> Vec<Finding> {
    let manifests = tree
        .files
        .iter()
        .filter(|file| file.path.ends_with("/Cargo.toml"));
    let mut findings = Vec::new();
    for manifest in manifests {
        let Some(name) = manifest.crate_name() else {
            continue;
        };
        match RULES.iter().find(|rule| rule.name == name) {
            None => findings.push(Finding::at(
                &manifest.path,
                0,
                "a new crate needs a rule in xtask/src/edges.rs",
            )),
            Some(rule) => {
                let found = dependencies(&manifest.text);
                let broken = found
                    .iter()
                    .filter_map(|dependency| broken(rule, dependency));
                findings.extend(broken.map(|(line, what)| Finding::at(&manifest.path, line, what)));
            }
        }
    }
    findings
}

fn broken(rule: &Rule, dependency: &Dependency) -> Option<(usize, String)> {
    let allowed = match dependency.name.strip_prefix("restripe-") {
        Some(ours) => {
            // A crate's tests may turn on features of its own.
            let for_tests = rule.tests_use.contains(&ours) || rule.name == ours;
            rule.uses.contains(&ours) || (dependency.for_tests && for_tests)
        }
        None => rule.outside || dependency.for_tests,
    };
    (!allowed).then(|| {
        (
            dependency.line,
            format!("{} may not depend on {}", rule.name, dependency.name),
        )
    })
}

/// The dependencies of a manifest, read line by line: enough for the way our manifests are written.
fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut section = String::new();
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).to_string();
            if let Some((kind, name)) = section.rsplit_once("dependencies.") {
                found.push(Dependency {
                    name: name.into(),
                    line: index + 1,
                    for_tests: kind.ends_with("dev-"),
                });
            }
        } else if section.ends_with("dependencies")
            && let Some(name) = name_of(line)
        {
            let for_tests = section.ends_with("dev-dependencies");
            found.push(Dependency {
                name,
                line: index + 1,
                for_tests,
            });
        }
    }
    found
}

fn name_of(line: &str) -> Option<String> {
    let key = line.split('=').next()?.trim();
    let name = key.split('.').next()?.trim_matches('"');
    (!name.is_empty() && !line.starts_with('#') && line.contains('=')).then(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::File;

    fn findings(path: &str, manifest: &str) -> Vec<String> {
        let file = File {
            path: path.into(),
            text: manifest.into(),
        };
        check(&Tree { files: vec![file] })
            .iter()
            .map(|finding| finding.to_string())
            .collect()
    }

    #[test]
    fn the_engine_depends_on_nothing() {
        let found = findings(
            "crates/array/Cargo.toml",
            "[dependencies]\nlibc = \"0.2\"\n",
        );
        assert_eq!(
            found,
            ["crates/array/Cargo.toml:2: array may not depend on libc"]
        );
    }

    #[test]
    fn a_set_does_not_know_of_a_tier() {
        let found = findings(
            "crates/array/Cargo.toml",
            "[dev-dependencies]\nrestripe-tier.workspace = true\n",
        );
        assert_eq!(
            found,
            ["crates/array/Cargo.toml:2: array may not depend on restripe-tier"]
        );
    }

    #[test]
    fn the_two_worlds_do_not_know_each_other() {
        let both =
            "[dependencies]\nrestripe-array.workspace = true\nrestripe-io = { path = \"x\" }\n";
        assert_eq!(
            findings("crates/sim/Cargo.toml", both),
            ["crates/sim/Cargo.toml:3: sim may not depend on restripe-io"]
        );
        assert_eq!(
            findings(
                "crates/io/Cargo.toml",
                "[dev-dependencies]\nrestripe-sim.workspace = true\nrestripe-io = { path = \".\" }\n"
            ),
            [""; 0]
        );
    }

    #[test]
    fn a_dependency_in_a_section_of_its_own_counts() {
        let found = findings(
            "crates/array/Cargo.toml",
            "[dependencies.serde]\nversion = \"1\"\n",
        );
        assert_eq!(
            found,
            ["crates/array/Cargo.toml:1: array may not depend on serde"]
        );
    }

    #[test]
    fn a_crate_without_a_rule_is_a_finding() {
        assert_eq!(findings("crates/new/Cargo.toml", "").len(), 1);
    }
}
