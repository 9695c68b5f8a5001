//! The house rules that the compiler does not hold.
//!
//! Needles are written in two halves where the rule would otherwise find itself.

use crate::source::{File, Finding, Tree, is_code};

/// Lines of code that a file may have, without its tests.
const FILE_LINES_MAX: usize = 1000;
/// Lines, of any kind, that a function may have.
const FUNCTION_LINES_MAX: usize = 70;
/// Where `unsafe` may stand.
const UNSAFE_CRATES: &[&str] = &["code", "io"];
/// Notes to oneself; what is open belongs in the tracker.
const LEFTOVERS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
];
/// Paths of one machine, which mean nothing on another.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        findings.extend(words(file));
    }
    for file in tree.rust() {
        findings.extend(file_length(file));
        findings.extend(opening(file));
        findings.extend(unsafe_outside(file));
        findings.extend(standard_library_in_engine(file));
        findings.extend(ignored_tests(file));
        if !file.is_test() {
            findings.extend(function_lengths(file));
        }
    }
    findings
}

fn file_length(file: &File) -> Option<Finding> {
    let lines = file.code_lines();
    let long = !file.is_test() && lines > FILE_LINES_MAX;
    long.then(|| {
        Finding::at(
            &file.path,
            0,
            format!("{lines} lines of code, {FILE_LINES_MAX} at most: split it"),
        )
    })
}

fn opening(file: &File) -> Option<Finding> {
    let opened = file.text.starts_with("//!") || file.text.starts_with("#!");
    (!opened).then(|| {
        Finding::at(
            &file.path,
            1,
            "a file opens with `//!`: what it owns and why it is there",
        )
    })
}

fn words(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for word in LEFTOVERS.iter().filter(|word| has_word(line, word)) {
            findings.push(Finding::at(
                &file.path,
                index + 1,
                format!("{word}: do it or put it in the tracker"),
            ));
        }
        for path in MACHINE_PATHS.iter().filter(|path| line.contains(**path)) {
            findings.push(Finding::at(
                &file.path,
                index + 1,
                format!("{path} is a path of one machine"),
            ));
        }
    }
    findings
}

fn unsafe_outside(file: &File) -> Vec<Finding> {
    let allowed = file
        .crate_name()
        .is_some_and(|name| UNSAFE_CRATES.contains(&name));
    // A test may need it too: an allocator that counts, for instance.
    if allowed || file.is_test() {
        return Vec::new();
    }
    let keyword = concat!("un", "safe");
    let used = |line: &str| is_code(line) && has_word(line, keyword) && !line.contains('"');
    let lines = file.text.lines().enumerate().filter(|(_, line)| used(line));
    lines
        .map(|(i, _)| {
            Finding::at(
                &file.path,
                i + 1,
                format!("{keyword} belongs in code and io only"),
            )
        })
        .collect()
}

fn standard_library_in_engine(file: &File) -> Vec<Finding> {
    if file.crate_name() != Some("array") || file.is_test() {
        return Vec::new();
    }
    let uses = |line: &str| {
        is_code(line) && (line.contains("extern crate std") || line.contains("use std::"))
    };
    let lines = file.product_lines().filter(|(_, line)| uses(line));
    lines
        .map(|(line, _)| {
            Finding::at(
                &file.path,
                line,
                "the engine does without the standard library",
            )
        })
        .collect()
}

fn ignored_tests(file: &File) -> Vec<Finding> {
    let attribute = concat!("#[ig", "nore");
    let lines = file
        .text
        .lines()
        .enumerate()
        .filter(|(_, line)| line.trim_start().starts_with(attribute));
    lines
        .map(|(i, _)| Finding::at(&file.path, i + 1, "no ignored tests: run it or delete it"))
        .collect()
}

/// Functions by their indentation, as rustfmt lays them out: from `fn` to the brace in the same column.
fn function_lengths(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut open: Option<(usize, usize)> = None;
    for (number, line) in file.product_lines() {
        let indent = line.len() - line.trim_start().len();
        match open {
            None if starts_function(line) => open = Some((number, indent)),
            Some((start, column)) if indent == column && closes(line) => {
                let lines = number - start + 1;
                if lines > FUNCTION_LINES_MAX {
                    let what = format!("a function of {lines} lines, {FUNCTION_LINES_MAX} at most");
                    findings.push(Finding::at(&file.path, start, what));
                }
                open = None;
            }
            _ => {}
        }
    }
    findings
}

fn starts_function(line: &str) -> bool {
    let line = line.trim_start();
    let prefixes = [
        "fn ",
        "pub fn ",
        "const fn ",
        "pub const fn ",
        "pub(crate) fn ",
        "pub(super) fn ",
        "async fn ",
    ];
    let one_line = line.ends_with('}') || line.ends_with(';');
    prefixes.iter().any(|prefix| line.starts_with(prefix)) && !one_line
}

/// A closing brace, or the semicolon of a declaration without a body.
fn closes(line: &str) -> bool {
    let line = line.trim();
    line == "}" || line.starts_with(") ->") && line.ends_with(';') || line == ");"
}

fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let file = File {
            path: path.into(),
            text: text.into(),
        };
        check(&Tree { files: vec![file] })
            .iter()
            .map(|finding| finding.to_string())
            .collect()
    }

    #[test]
    fn a_clean_file_has_no_findings() {
        assert_eq!(
            findings("crates/array/src/a.rs", "//! Owns a.\nfn a() {}\n"),
            [""; 0]
        );
    }

    #[test]
    fn a_long_file_is_found_and_its_tests_are_not_counted() {
        let long = format!("//! Owns it.\n{}", "const A: u8 = 0;\n".repeat(1001));
        assert_eq!(findings("crates/io/src/a.rs", &long).len(), 1);
        let tests = format!(
            "//! Owns it.\n#[cfg(test)]\nmod tests {{\n{}}}\n",
            "    const A: u8 = 0;\n".repeat(1001)
        );
        assert_eq!(findings("crates/io/src/a.rs", &tests), [""; 0]);
    }

    #[test]
    fn a_long_function_is_found_by_its_first_line() {
        let body = "    let _ = 0;\n".repeat(69);
        let found = findings(
            "crates/io/src/a.rs",
            &format!("//! Owns it.\nfn long() {{\n{body}}}\n"),
        );
        assert_eq!(
            found,
            ["crates/io/src/a.rs:2: a function of 71 lines, 70 at most"]
        );
    }

    #[test]
    fn unsafe_belongs_in_two_crates() {
        let text = format!("//! Owns it.\n{} {{ f() }}\n", concat!("un", "safe"));
        assert_eq!(findings("crates/sim/src/a.rs", &text).len(), 1);
        assert_eq!(findings("crates/io/src/a.rs", &text), [""; 0]);
        assert_eq!(
            findings(
                "crates/sim/src/a.rs",
                "//! Owns it.\n#![forbid(unsafe_code)]\n"
            ),
            [""; 0]
        );
    }

    #[test]
    fn leftovers_and_machine_paths_are_found_in_any_file() {
        let note = format!("a {} here\n", concat!("TO", "DO"));
        assert_eq!(findings("docs/a.md", &note).len(), 1);
        let path = format!("see {}x\n", concat!("/wo", "rk/"));
        assert_eq!(findings("Makefile", &path).len(), 1);
    }

    #[test]
    fn the_engine_does_without_the_standard_library() {
        assert_eq!(
            findings(
                "crates/array/src/a.rs",
                "//! Owns it.\nuse std::vec::Vec;\n"
            )
            .len(),
            1
        );
        let tests = "//! Owns it.\n#[cfg(test)]\nmod tests {\n    use std::vec::Vec;\n}\n";
        assert_eq!(findings("crates/array/src/a.rs", tests), [""; 0]);
    }
}
