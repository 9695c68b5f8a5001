//! A walk through the sources: a page whose table has a file and its functions in each row.
//!
//! | rule | where |
//! |---|---|
//! | each function of a row is in the row's file | the page |
//! | the rows name no more files than a reader should have to open | the page |

use crate::source::{Finding, Tree};
use std::collections::BTreeSet;

const PAGE: &str = "docs/explanation/redirected-write.md";
const FILES_MAX: usize = 24;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.file(PAGE) else {
        return vec![Finding::at(PAGE, 0, "the page is missing")];
    };
    let mut findings = Vec::new();
    let mut files = BTreeSet::new();
    for (index, line) in page.text.lines().enumerate() {
        let Some((path, functions)) = row(line) else {
            continue;
        };
        files.insert(path);
        let text = tree.file(path).map_or("", |file| file.text.as_str());
        let is_there = |name: &str| {
            let heads = [format!("fn {name}("), format!("fn {name}<")];
            heads.iter().any(|head| text.contains(head.as_str()))
        };
        let missing = functions.into_iter().filter(|name| !is_there(name));
        findings.extend(missing.map(|name| {
            let what = format!("{path} has no function {name}");
            Finding::at(PAGE, index + 1, what)
        }));
    }
    if files.is_empty() || files.len() > FILES_MAX {
        let what = format!("{} files, {FILES_MAX} at most", files.len());
        findings.push(Finding::at(PAGE, 0, what));
    }
    findings
}

/// The path and the functions of a row: the second and the third cell, in back-ticks.
fn row(line: &str) -> Option<(&str, Vec<&str>)> {
    let mut cells = line.strip_prefix("| ")?.split('|').skip(1);
    let path = code(cells.next()?).next()?;
    let functions = code(cells.next()?).collect();
    path.ends_with(".rs").then_some((path, functions))
}

/// What stands between back-ticks.
fn code(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::File;

    #[test]
    fn function_that_has_moved_is_found() {
        let file = |path: &str, text: &str| File {
            path: path.into(),
            text: text.into(),
        };
        let rows = "| step | file | functions | what |\n|---|---|---|---|\n\
                    | 1 | `crates/a.rs` | `begin`, `step` | it begins |\n\
                    | 2 | `crates/b.rs` | `end` | it ends |\n";
        let tree = Tree {
            files: vec![
                file("crates/a.rs", "fn begin() {}\nfn step<T>() {}\n"),
                file("crates/b.rs", "fn ending() {}\n"),
                file(PAGE, rows),
            ],
        };
        let found: Vec<String> = check(&tree).iter().map(Finding::to_string).collect();
        assert_eq!(
            found,
            [format!("{PAGE}:4: crates/b.rs has no function end")]
        );
    }
}
