//! References within the documents: links, their anchors, paths of the tree, the table of contents, the word list.
//!
//! | rule | where |
//! |---|---|
//! | the file of a relative link exists, and its anchor is a heading there | all pages |
//! | a path of the tree in back-ticks exists | all pages but the changelog |
//! | a path below `crates/` in back-ticks exists | the map of the sources |
//! | a page that a comment or a message names exists | sources |
//! | each page is listed once, and each listed page exists | `docs/SUMMARY.md` |
//! | a term is defined once | `docs/words.md` |

use crate::source::{File, Finding, Tree};
use crate::tokens::{Kind, tokens};
use std::collections::{BTreeMap, HashMap, HashSet};

const SUMMARY: &str = "docs/SUMMARY.md";
const WORDS: &str = "docs/words.md";
/// Names of files change; the changelog tells of old ones.
const HISTORY: &str = "CHANGELOG.md";
/// The page that names files below `crates/` by the rest of their path.
const MAP: &str = "ARCHITECTURE.md";
/// Folders whose paths are checked where a page quotes them.
const FOLDERS: &[&str] = &["crates/", "docs/", "scenarios/", "tests/", "xtask/", ".ci/"];

/// `exists` says whether the tree has a file or folder of that path.
pub fn check(tree: &Tree, exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let pages: Vec<&File> = tree.files.iter().filter(|f| is_page(&f.path)).collect();
    let anchors: HashMap<&str, HashSet<String>> = pages
        .iter()
        .map(|page| (page.path.as_str(), anchors(page)))
        .collect();
    let mut findings = Vec::new();
    for page in &pages {
        findings.extend(links(page, &anchors, exists));
        if page.path != HISTORY {
            findings.extend(quoted_paths(page, exists));
        }
    }
    for file in tree.rust() {
        findings.extend(pages_named(file, exists));
    }
    if let Some(summary) = tree.file(SUMMARY) {
        findings.extend(contents(summary, &pages));
    }
    findings.extend(tree.file(WORDS).into_iter().flat_map(terms));
    findings
}

fn is_page(path: &str) -> bool {
    path.ends_with(".md")
}

/// The lines of a page outside of code blocks, numbered from 1.
fn prose(page: &File) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    page.text
        .lines()
        .enumerate()
        .filter_map(move |(index, line)| {
            let fence = line.trim_start().starts_with("```");
            in_code ^= fence;
            (!in_code && !fence).then_some((index + 1, line))
        })
}

/// A line as pieces between back-ticks: text, code, text, ...
fn pieces(line: &str) -> (String, Vec<&str>) {
    let mut text = String::new();
    let mut code = Vec::new();
    for (index, piece) in line.split('`').enumerate() {
        if index % 2 == 0 {
            text.push_str(piece);
        } else {
            code.push(piece);
        }
    }
    (text, code)
}

/// The targets of the links of a line: `[text](target)` and `[text]: target`.
fn targets(text: &str) -> Vec<&str> {
    let mut found: Vec<&str> = text
        .match_indices("](")
        .filter_map(|(at, _)| text[at + 2..].split([')', ' ']).next())
        .collect();
    if text.starts_with('[')
        && let Some((_, target)) = text.split_once("]: ")
    {
        found.extend(target.split_whitespace().next());
    }
    found
}

/// The path of `target` as seen from the page at `from`; none if it leads out of the tree.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn links(
    page: &File,
    anchors: &HashMap<&str, HashSet<String>>,
    exists: &dyn Fn(&str) -> bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in prose(page) {
        let (text, _) = pieces(line);
        for target in targets(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() {
                Some(page.path.clone())
            } else {
                resolve(&page.path, file)
            };
            let fault = match path {
                Some(path) if exists(&path) => {
                    let known = anchors.get(path.as_str());
                    let found = known.is_none_or(|anchors| anchors.contains(anchor));
                    (!anchor.is_empty() && !found)
                        .then(|| format!("link to {target}: {path} has no such heading"))
                }
                _ => Some(format!("link to {target}: there is no such file")),
            };
            findings.extend(fault.map(|what| Finding::at(&page.path, number, what)));
        }
    }
    findings
}

/// The anchors of a page, as GitHub and mdBook make them from headings; a repeated one gets a number.
fn anchors(page: &File) -> HashSet<String> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    let mut found = HashSet::new();
    for (_, line) in prose(page) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let slug = slug(heading.trim());
        let count = counts.entry(slug.clone()).or_insert(0);
        found.insert(match *count {
            0 => slug,
            count => format!("{slug}-{count}"),
        });
        *count += 1;
    }
    found
}

fn slug(heading: &str) -> String {
    let mut text = heading.to_string();
    // A link in a heading counts by its text.
    while let Some(start) = text.find("](")
        && let Some(length) = text[start..].find(')')
    {
        text.replace_range(start..=start + length, "");
    }
    text.chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
            _ => None,
        })
        .collect()
}

fn quoted_paths(page: &File, exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in prose(page) {
        for code in pieces(line).1 {
            let below =
                (page.path == MAP && code.contains("/src/")).then(|| format!("crates/{code}"));
            let code = below.as_deref().unwrap_or(code);
            let is_path = FOLDERS.iter().any(|folder| code.starts_with(folder));
            let plain =
                |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '*');
            if !is_path || !code.chars().all(plain) {
                continue;
            }
            // Of a pattern the folder exists.
            let path = match code.split_once('*') {
                Some((before, _)) => before.rsplit_once('/').map_or("", |(folder, _)| folder),
                None => code.trim_end_matches('/'),
            };
            if !exists(path) {
                let what = format!("`{code}`: there is no such file");
                findings.push(Finding::at(&page.path, number, what));
            }
        }
    }
    findings
}

/// Pages that comments name, and string literals of the product.
fn pages_named(file: &File, exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let product_end = if file.is_test() {
        0
    } else {
        file.test_module_start()
    };
    let mut findings = Vec::new();
    for token in tokens(&file.text) {
        let counts = match token.kind {
            Kind::Comment => true,
            Kind::Text => token.line < product_end,
            _ => false,
        };
        if !counts || !token.text.contains("docs/") {
            continue;
        }
        for (at, _) in token.text.match_indices("docs/") {
            let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
            let rest = &token.text[at..];
            let end = rest.find(|c| !part(c)).unwrap_or(rest.len());
            let path = rest[..end].trim_end_matches('.');
            if path.ends_with(".md") && !exists(path) {
                let line = token.line + token.text[..at].matches('\n').count();
                let what = format!("{path}: there is no such page");
                findings.push(Finding::at(&file.path, line, what));
            }
        }
    }
    findings
}

/// Each page below `docs` stands once in the table of contents. That the listed pages exist, `links` checks.
fn contents(summary: &File, pages: &[&File]) -> Vec<Finding> {
    let mut listed: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (number, line) in prose(summary) {
        for target in targets(&pieces(line).0) {
            let file = target.split('#').next().unwrap_or(target);
            if let Some(path) = resolve(&summary.path, file) {
                listed.entry(path).or_default().push(number);
            }
        }
    }
    let mut findings = Vec::new();
    for (path, lines) in &listed {
        for line in &lines[1..] {
            let what = format!("{path} is listed twice: also in line {}", lines[0]);
            findings.push(Finding::at(&summary.path, *line, what));
        }
    }
    let missing = pages.iter().filter(|page| {
        page.path.starts_with("docs/") && page.path != SUMMARY && !listed.contains_key(&page.path)
    });
    findings.extend(missing.map(|page| {
        let what = format!("{} is not listed", page.path);
        Finding::at(&summary.path, 0, what)
    }));
    findings
}

/// The terms in the first columns of the word list's tables; commas part terms of one row.
fn terms(page: &File) -> Vec<Finding> {
    let mut defined: HashMap<String, usize> = HashMap::new();
    let mut findings = Vec::new();
    let mut header = true;
    for (number, line) in prose(page) {
        let Some(row) = line.trim().strip_prefix('|') else {
            header = true;
            continue;
        };
        let first = row.split('|').next().unwrap_or_default().trim();
        if std::mem::take(&mut header) || first.trim_matches(['-', ':']).is_empty() {
            continue;
        }
        for term in first.split(',') {
            let term = term.trim().trim_matches(['*', '`']).to_lowercase();
            if let Some(before) = defined.get(&term) {
                let what = format!(
                    "{term} is defined twice: also in line {before}; one word, one meaning"
                );
                findings.push(Finding::at(&page.path, number, what));
            } else {
                defined.insert(term, number);
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let mut files: Vec<File> = files
            .iter()
            .map(|(path, text)| File {
                path: (*path).into(),
                text: (*text).into(),
            })
            .collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let tree = Tree { files };
        let exists = |path: &str| {
            let folder = format!("{path}/");
            let mut files = tree.files.iter();
            files.any(|file| file.path == path || file.path.starts_with(&folder))
        };
        check(&tree, &exists)
            .iter()
            .map(|finding| finding.to_string())
            .collect()
    }

    #[test]
    fn link_to_a_missing_file_is_found() {
        let page =
            "[a](docs/a.md) [b](docs/b.md)\n[c](https://c.example) `[d](d.md)`\n[up](../e.md)\n";
        assert_eq!(
            findings(&[("README.md", page), ("docs/a.md", "[home](../README.md)")]),
            [
                "README.md:1: link to docs/b.md: there is no such file",
                "README.md:3: link to ../e.md: there is no such file",
            ]
        );
    }

    #[test]
    fn code_block_has_no_links() {
        assert_eq!(findings(&[("a.md", "```\n[b](b.md)\n```\n")]), [""; 0]);
    }

    #[test]
    fn anchor_is_a_heading_of_its_page() {
        let a = "# A `x`: what, why?\n## Twice\n## Twice\n[self](#a-x-what-why) [none](#what)\n";
        let b = "[one](a.md#twice) [two](a.md#twice-1) [three](a.md#twice-2)\n";
        assert_eq!(
            findings(&[("a.md", a), ("b.md", b)]),
            [
                "a.md:4: link to #what: a.md has no such heading",
                "b.md:1: link to a.md#twice-2: a.md has no such heading",
            ]
        );
    }

    #[test]
    fn quoted_path_exists_but_for_the_changelog() {
        let text = "`crates/io/src/` `crates/io/src/*.rs` `crates/old/a.rs` `docs/x/*.md` `crates/{a,b}`\n";
        let files = [
            ("README.md", text),
            ("CHANGELOG.md", text),
            ("crates/io/src/a.rs", ""),
        ];
        assert_eq!(
            findings(&files),
            [
                "README.md:1: `crates/old/a.rs`: there is no such file",
                "README.md:1: `docs/x/*.md`: there is no such file",
            ]
        );
    }

    #[test]
    fn page_that_a_source_names_exists() {
        let text = "//! See docs/a.md.\nconst A: &str = \"docs/b.md\";\n#[cfg(test)]\nmod tests {\n    // docs/c.md\n    const D: &str = \"docs/d.md\";\n}\n";
        assert_eq!(
            findings(&[("crates/io/src/a.rs", text), ("docs/a.md", "")]),
            [
                "crates/io/src/a.rs:2: docs/b.md: there is no such page",
                "crates/io/src/a.rs:5: docs/c.md: there is no such page",
            ]
        );
    }

    #[test]
    fn table_of_contents_lists_each_page_once() {
        let summary = "- [a](a.md)\n- [a](a.md)\n- [gone](gone.md)\n";
        let files = [
            ("docs/SUMMARY.md", summary),
            ("docs/a.md", ""),
            ("docs/b.md", ""),
        ];
        assert_eq!(
            findings(&files),
            [
                "docs/SUMMARY.md:3: link to gone.md: there is no such file",
                "docs/SUMMARY.md:2: docs/a.md is listed twice: also in line 1",
                "docs/SUMMARY.md: docs/b.md is not listed",
            ]
        );
    }

    #[test]
    fn term_is_defined_once() {
        let words = "| word | meaning |\n|---|---|\n| set, Row | x |\n\n| word | meaning |\n|--|--|\n| row | y |\n";
        assert_eq!(
            findings(&[("docs/words.md", words)]),
            ["docs/words.md:7: row is defined twice: also in line 3; one word, one meaning"]
        );
    }
}
