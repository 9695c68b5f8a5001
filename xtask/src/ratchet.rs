//! Ratchets: counts that may fall and not rise, against the numbers recorded in `xtask/ratchet.txt`.
//!
//! | count | scope | what it counts |
//! |---|---|---|
//! | `circle` | crate | files in the largest circle of imports |
//! | `circular` | crate | files in any circle of imports |
//! | `methods` | crate | inherent methods of the type that has most |
//! | `spread` | crate | files over which the inherent `impl` blocks of one type spread, at most |
//! | `upward` | crate with floors | imports that lead to a higher floor |
//! | `unused-pub` | crate | `pub` items that nothing outside the crate names |
//! | `wide` | crate, docs | lines of prose over 110 columns |
//! | `words` | crate, docs | words of `xtask/words.txt` in comments, literals, names, pages |
//! | `above` | array | words of the crates above it (`WORDS_ABOVE`) |
//! | `said` | cli, io, docs | the same words in what users read: literals, help, README and docs |
//!
//! A crate's counts are of its product: tests, benches and examples do not count.

pub mod imports;
pub mod prose;
pub mod types;

use crate::source::{File, Finding, Tree};
use crate::tokens::{self, Token};
use imports::{Graph, Source};
use prose::{Passage, WordList};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::path::Path;
use std::process::Command;
use types::Names;

pub const RECORD: &str = "xtask/ratchet.txt";
const WORDS: &str = "xtask/words.txt";
/// Crates whose string literals users read.
const SPEAKING_CRATES: &[&str] = &["cli", "io"];
/// Words that a crate does without, since they belong to a crate above it.
const WORDS_ABOVE: (&str, &str) = (
    "array",
    "surrogate = the set serves a partner\n\
     surrogates = sets that serve a partner\n\
     code cache = a word of tier\n\
     destage = a word of tier\n\
     destages = a word of tier\n\
     destaged = a word of tier",
);
/// Places that a failure lists.
const LISTED_MAX: usize = 12;
/// Stands for files that belong to the `src` of no crate.
const ELSEWHERE: &str = "";

/// Where something stands that a count is made of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub path: String,
    pub line: usize,
    pub what: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Scope and name of a count: the key of its line in the record.
pub type Key = (String, String);

#[derive(Debug)]
pub struct Count {
    pub number: usize,
    pub places: Vec<Place>,
}

impl Count {
    fn of(places: Vec<Place>) -> Count {
        Count {
            number: places.len(),
            places,
        }
    }
}

pub type Counts = BTreeMap<Key, Count>;

/// Counts everything.
pub fn count(tree: &Tree) -> Result<Counts, String> {
    let list = tree.file(WORDS).map_or("", |file| &file.text);
    let list = WordList::parse(list)?;
    let lexed: Vec<(&File, Vec<Token<'_>>)> = tree
        .rust()
        .filter(|file| file.path.starts_with("crates/"))
        .map(|file| (file, tokens::tokens(&file.text)))
        .collect();
    let mut names = Names::default();
    for (file, tokens) in &lexed {
        names.add(part_of(file), tokens);
    }
    let crates: BTreeSet<&str> = lexed.iter().filter_map(|(f, _)| f.crate_name()).collect();
    let mut counts = Counts::new();
    for name in crates {
        let product = product(&lexed, name);
        count_structure(&mut counts, name, &product, &names);
        count_prose(&mut counts, tree, name, &product, &list);
    }
    count_pages(&mut counts, tree, &list);
    Ok(counts)
}

fn add(counts: &mut Counts, scope: &str, name: &str, count: Count) {
    counts.insert((scope.into(), name.into()), count);
}

fn part_of(file: &File) -> &str {
    match file.crate_name() {
        Some(name) if file.path[7 + name.len()..].starts_with("/src/") => name,
        _ => ELSEWHERE,
    }
}

/// The product files of a crate, each up to its test module.
fn product<'a>(lexed: &[(&'a File, Vec<Token<'a>>)], name: &str) -> Vec<Source<'a>> {
    let files: Vec<&(&File, Vec<Token<'_>>)> = lexed
        .iter()
        .filter(|(file, _)| part_of(file) == name && !file.is_test())
        .collect();
    let test_modules: Vec<String> = files
        .iter()
        .flat_map(|(file, tokens)| test_modules(&file.path, tokens))
        .collect();
    let is_test = |path: &str| {
        test_modules.iter().any(|module| {
            path.strip_prefix(module.as_str())
                .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        })
    };
    files
        .iter()
        .filter(|(file, _)| !is_test(&file.path))
        .map(|(file, tokens)| {
            let end = file.test_module_start();
            let tokens = tokens.iter().take_while(|token| token.line < end);
            Source {
                path: &file.path,
                tokens: tokens.copied().collect(),
            }
        })
        .collect()
}

/// The paths, without `.rs`, of modules that a file declares for tests alone: `#[cfg(test)] mod name;`.
fn test_modules(path: &str, tokens: &[Token<'_>]) -> Vec<String> {
    const START: &[&str] = &["#", "[", "cfg", "(", "test", ")", "]", "mod"];
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let below = match file {
        "lib.rs" | "main.rs" | "mod.rs" => folder.to_string(),
        _ => path.trim_end_matches(".rs").to_string(),
    };
    let declared = tokens.windows(START.len() + 2).filter(|window| {
        let starts = START
            .iter()
            .zip(*window)
            .all(|(text, token)| token.is(text));
        starts && window[START.len() + 1].is(";")
    });
    declared
        .map(|window| format!("{below}/{}", window[START.len()].text))
        .collect()
}

fn count_structure(counts: &mut Counts, name: &str, product: &[Source<'_>], names: &Names<'_>) {
    let graph = Graph::of(product);
    let circles = graph.circles();
    let largest = circles.first().cloned().unwrap_or_default();
    let all: Vec<usize> = circles.iter().flatten().copied().collect();
    let within = |files: &[usize]| imports::places(product, &graph.within(files));
    let circle = Count {
        number: largest.len(),
        places: within(&largest),
    };
    let circular = Count {
        number: all.len(),
        places: circles.iter().flat_map(|files| within(files)).collect(),
    };
    add(counts, name, "circle", circle);
    add(counts, name, "circular", circular);
    let (methods, spread) = types::largest(product, &graph);
    add(counts, name, "methods", Count::of(methods));
    add(counts, name, "spread", Count::of(spread));
    if let Some(upward) = graph.upward(name, product) {
        add(counts, name, "upward", Count::of(upward));
    }
    let unused = types::unused_pub(name, product, names);
    add(counts, name, "unused-pub", Count::of(unused));
}

fn count_prose(
    counts: &mut Counts,
    tree: &Tree,
    name: &str,
    product: &[Source<'_>],
    list: &WordList,
) {
    let wide = product.iter().flat_map(|source| {
        let text = tree.file(source.path).map_or("", |file| &file.text);
        prose::wide_comments(source, text)
    });
    add(counts, name, "wide", Count::of(wide.collect()));
    let find = |list: &WordList, literals_only: bool| {
        let found = product
            .iter()
            .flat_map(|source| list.find(&prose::passages(source, literals_only)));
        found.collect::<Vec<Place>>()
    };
    add(counts, name, "words", Count::of(find(list, false)));
    let (below, above) = WORDS_ABOVE;
    if name == below
        && let Ok(above) = WordList::parse(above)
    {
        add(counts, name, "above", Count::of(find(&above, false)));
    }
    if SPEAKING_CRATES.contains(&name) {
        let mut said = find(list, true);
        let golden = format!("crates/{name}/tests/golden/");
        let golden = tree.files.iter().filter(|f| f.path.starts_with(&golden));
        said.extend(golden.flat_map(|file| list.find(&[page(file)])));
        add(counts, name, "said", Count::of(said));
    }
}

fn count_pages(counts: &mut Counts, tree: &Tree, list: &WordList) {
    let is_page = |path: &str| {
        let root = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].contains(&path);
        root || (path.starts_with("docs/") && path.ends_with(".md"))
    };
    let pages: Vec<&File> = tree.files.iter().filter(|f| is_page(&f.path)).collect();
    let wide = pages.iter().flat_map(|file| prose::wide_lines(file));
    add(counts, "docs", "wide", Count::of(wide.collect()));
    // The page that defines the words quotes the old ones.
    let defining = |file: &&&File| file.path.ends_with("/words.md");
    let pages = pages.iter().filter(|file| !defining(file));
    let words = pages.flat_map(|file| list.find(&[page(file)]));
    let words: Vec<Place> = words.collect();
    let for_users = |place: &&Place| place.path.starts_with("docs/") || place.path == "README.md";
    let said = words.iter().filter(for_users).cloned().collect();
    add(counts, "docs", "said", Count::of(said));
    add(counts, "docs", "words", Count::of(words));
}

fn page(file: &File) -> Passage<'_> {
    Passage {
        path: &file.path,
        line: 1,
        text: &file.text,
    }
}

/// The numbers of a record. A key that stands in it twice, as after a merge of two falls, has the larger number.
fn parse(record: &str) -> Result<BTreeMap<Key, usize>, String> {
    let mut numbers = BTreeMap::new();
    for (index, line) in record.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split_whitespace();
        let parsed = match (words.next(), words.next(), words.next(), words.next()) {
            (Some(scope), Some(name), Some(number), None) => {
                number.parse::<usize>().ok().map(|n| (scope, name, n))
            }
            _ => None,
        };
        let Some((scope, name, number)) = parsed else {
            let expected = "expected `SCOPE COUNT NUMBER`";
            return Err(format!("{RECORD}:{}: {expected}", index + 1));
        };
        let entry = numbers.entry((scope.into(), name.into())).or_insert(number);
        *entry = number.max(*entry);
    }
    Ok(numbers)
}

/// The record as `counts` make it.
pub fn format(counts: &Counts) -> String {
    let mut text = String::from(
        "# Counts that may fall and not rise; see CONTRIBUTING.md. Written by `cargo run -q -p xtask -- ratchet`.\n",
    );
    for ((scope, name), count) in counts {
        text.push_str(&format!("{scope} {name} {}\n", count.number));
    }
    text
}

/// What differs from the record, with the places of a rise that are in `change`.
pub fn compare(counts: &Counts, record: &str, change: &Change) -> Vec<Finding> {
    let numbers = match parse(record) {
        Ok(numbers) => numbers,
        Err(error) => return vec![Finding::at(RECORD, 0, error)],
    };
    let mut findings = Vec::new();
    let mut unrecorded = Vec::new();
    for ((scope, name), count) in counts {
        let key = (scope.clone(), name.clone());
        match numbers.get(&key) {
            Some(number) if count.number > *number => {
                let what = rise(scope, name, *number, count, change);
                findings.push(Finding::at(RECORD, 0, what));
            }
            Some(number) if count.number < *number => {
                unrecorded.push(format!("{scope} {name} {number} -> {}", count.number));
            }
            Some(_) => {}
            None => unrecorded.push(format!("{scope} {name} is new: {}", count.number)),
        }
    }
    let gone = numbers.keys().filter(|key| !counts.contains_key(*key));
    unrecorded.extend(gone.map(|(scope, name)| format!("{scope} {name} is gone")));
    if findings.is_empty() && unrecorded.is_empty() && record != format(counts) {
        unrecorded.push("lines in another order or twice".into());
    }
    if !unrecorded.is_empty() {
        let what = format!(
            "not recorded: {}; run `cargo run -q -p xtask -- ratchet` and commit the file",
            unrecorded.join(", ")
        );
        findings.push(Finding::at(RECORD, 0, what));
    }
    findings
}

fn rise(scope: &str, name: &str, recorded: usize, count: &Count, change: &Change) -> String {
    let of = |is: &dyn Fn(&Place) -> bool| -> Vec<&Place> {
        count.places.iter().filter(|place| is(place)).collect()
    };
    let new = of(&|place| change.has(place));
    let near = of(&|place| change.paths.contains(&place.path));
    let (title, places) = if !new.is_empty() {
        ("the new places", new)
    } else if !near.is_empty() {
        ("places in files that changed", near)
    } else {
        ("all places", of(&|_| true))
    };
    let mut text = format!(
        "{scope} {name} rose from {recorded} to {}: {}. {title}:",
        count.number,
        remedy(name)
    );
    for place in places.iter().take(LISTED_MAX) {
        text.push_str(&format!("\n    {place}"));
    }
    if places.len() > LISTED_MAX {
        text.push_str(&format!("\n    and {} more", places.len() - LISTED_MAX));
    }
    text
}

fn remedy(name: &str) -> &'static str {
    match name {
        "circle" | "circular" => {
            "break the circle: move what both files need to a third, or pass a value instead"
        }
        "methods" => "give a part of the state a type of its own, with its methods",
        "spread" => "put the method into a file that has an `impl` of the type, or on another type",
        "upward" => {
            "a lower floor may not import a higher one: pass a value, or move the item down"
        }
        "unused-pub" => "nothing outside the crate names it: write `pub(crate)`",
        "above" => "`array` does not know what stands above it: name the fact, not the feature",
        "wide" => "break the line at 110 columns",
        _ => "write the word that stands behind the colon",
    }
}

/// Compares with the record of the tree, and asks git for the new lines if a count rose.
pub fn check(tree: &Tree, root: &Path) -> Vec<Finding> {
    let counts = match count(tree) {
        Ok(counts) => counts,
        Err(error) => return vec![Finding::at(WORDS, 0, error)],
    };
    let record = tree.file(RECORD).map_or("", |file| &file.text);
    let findings = compare(&counts, record, &Change::default());
    if findings.is_empty() {
        return findings;
    }
    compare(&counts, record, &Change::since_record(root))
}

/// Writes the record. A rise is refused unless `rise` is set, so that it is never recorded by accident.
pub fn write(tree: &Tree, root: &Path, rise: bool) -> Result<String, Vec<Finding>> {
    let failed = |what: String| vec![Finding::at(RECORD, 0, what)];
    let counts = count(tree).map_err(failed)?;
    let record = tree.file(RECORD).map_or("", |file| &file.text);
    let numbers = parse(record).map_err(failed)?;
    let rose = counts.iter().any(|(key, count)| {
        numbers
            .get(key)
            .is_some_and(|number| count.number > *number)
    });
    if rose && !rise {
        let mut findings = check(tree, root);
        findings.retain(|finding| finding.what.contains(" rose from "));
        let what = "not written: a count rose. If it must (code moved to another crate), run `ratchet --rise` and \
                    give the reason in the commit";
        findings.push(Finding::at(RECORD, 0, what));
        return Err(findings);
    }
    std::fs::write(root.join(RECORD), format(&counts)).map_err(|e| failed(e.to_string()))?;
    let mut changes = Vec::new();
    for ((scope, name), count) in &counts {
        let before = numbers.get(&(scope.clone(), name.clone())).copied();
        if before != Some(count.number) {
            let before = before.map_or("new".into(), |number| number.to_string());
            changes.push(format!("  {scope} {name}: {before} -> {}\n", count.number));
        }
    }
    Ok(format!(
        "{RECORD}: {} counts changed\n{}",
        changes.len(),
        changes.concat()
    ))
}

/// The places that a count is made of, one a line.
pub fn show(tree: &Tree, scope: &str, name: &str) -> Result<String, Vec<Finding>> {
    let failed = |what: String| vec![Finding::at(RECORD, 0, what)];
    let counts = count(tree).map_err(failed)?;
    let count = counts
        .get(&(scope.into(), name.into()))
        .ok_or_else(|| failed(format!("there is no count {scope} {name}")))?;
    let places = count.places.iter().map(|place| format!("{place}\n"));
    Ok(places.collect())
}

/// What changed in the tree since the commit that last changed the record.
#[derive(Debug, Default)]
pub struct Change {
    paths: HashSet<String>,
    /// Lines that were added or changed.
    lines: HashSet<(String, usize)>,
    /// Files that git does not know.
    unknown: HashSet<String>,
}

impl Change {
    fn has(&self, place: &Place) -> bool {
        self.unknown.contains(&place.path) || self.lines.contains(&(place.path.clone(), place.line))
    }

    /// Empty without git.
    fn since_record(root: &Path) -> Change {
        let git = |arguments: &[&str]| {
            let output = Command::new("git")
                .args(arguments)
                .current_dir(root)
                .output();
            output.map_or(String::new(), |o| {
                String::from_utf8_lossy(&o.stdout).into_owned()
            })
        };
        let commit = git(&["log", "-1", "--format=%H", "--", RECORD]);
        let commit = commit.trim();
        if commit.is_empty() {
            return Change::default();
        }
        let diff = ["diff", "-U0", "--no-color", "--no-ext-diff", commit];
        let unknown = git(&["ls-files", "--others", "--exclude-standard"]);
        Change {
            unknown: unknown.lines().map(String::from).collect(),
            ..Change::of_diff(&git(&diff))
        }
    }

    /// Reads a diff without context.
    fn of_diff(diff: &str) -> Change {
        let mut change = Change::default();
        let mut path = "";
        for line in diff.lines() {
            if let Some(name) = line.strip_prefix("+++ b/") {
                path = name;
                change.paths.insert(name.into());
            } else if line.starts_with("@@ ")
                && let Some(range) = line
                    .split_whitespace()
                    .find_map(|word| word.strip_prefix('+'))
            {
                let (start, length) = range.split_once(',').unwrap_or((range, "1"));
                let start: usize = start.parse().unwrap_or(0);
                let length: usize = length.parse().unwrap_or(0);
                let lines = (start..start + length).map(|line| (path.to_string(), line));
                change.lines.extend(lines);
            }
        }
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let mut files: Vec<File> = files
            .iter()
            .map(|(path, text)| File {
                path: (*path).into(),
                text: (*text).into(),
            })
            .collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Tree { files }
    }

    fn number(counts: &Counts, scope: &str, name: &str) -> Option<usize> {
        let count = counts.get(&(scope.into(), name.into()))?;
        Some(count.number)
    }

    fn findings(counts: &Counts, record: &str) -> Vec<String> {
        let change = Change::of_diff("+++ b/docs/a.md\n@@ -1,0 +2 @@\n");
        compare(counts, record, &change)
            .into_iter()
            .map(|finding| finding.what)
            .collect()
    }

    fn two_words() -> Counts {
        let files = [(WORDS, "told = reported"), ("docs/a.md", "told\ntold\n")];
        count(&tree(&files)).expect("the list is well formed")
    }

    #[test]
    fn recorded_counts_have_no_findings() {
        let counts = two_words();
        assert_eq!(findings(&counts, &format(&counts)), [""; 0]);
    }

    #[test]
    fn rise_names_its_new_places() {
        let counts = two_words();
        let record = format(&counts).replace("docs words 2", "docs words 1");
        let found = findings(&counts, &record);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("docs words rose from 1 to 2: "),
            "{}",
            found[0]
        );
        assert!(
            found[0].ends_with("\n    docs/a.md:2: `told`: reported"),
            "{}",
            found[0]
        );
    }

    #[test]
    fn fall_and_new_and_missing_counts_ask_for_a_record() {
        let counts = two_words();
        let record = format(&counts)
            .replace("docs words 2", "docs words 3\ngone words 1")
            .replace("docs wide 0\n", "");
        let found = findings(&counts, &record);
        assert_eq!(
            found,
            [
                "not recorded: docs wide is new: 0, docs words 3 -> 2, gone words is gone; run `cargo run -q -p \
              xtask -- ratchet` and commit the file"
            ]
        );
    }

    #[test]
    fn line_that_a_merge_doubled_asks_for_a_record() {
        let counts = two_words();
        let record = format(&counts).replace("docs words 2", "docs words 2\ndocs words 1");
        assert!(findings(&counts, &record)[0].starts_with("not recorded: lines"));
    }

    #[test]
    fn malformed_record_is_a_finding() {
        assert_eq!(findings(&two_words(), "docs words\n").len(), 1);
    }

    #[test]
    fn tests_are_no_product() {
        let files = [
            (WORDS, "told = reported"),
            (
                "crates/io/src/lib.rs",
                "#[cfg(test)]\nmod laws;\nmod a;\n#[cfg(test)]\nmod tests {\n// told\n}\n",
            ),
            ("crates/io/src/laws.rs", "// told"),
            ("crates/io/src/laws/more.rs", "// told"),
            ("crates/io/src/a_tests.rs", "// told"),
            ("crates/io/tests/b.rs", "// told"),
            ("crates/io/src/a.rs", "// told\n\"told\""),
            ("crates/io/tests/golden/help.txt", "told"),
        ];
        let counts = count(&tree(&files)).expect("the list is well formed");
        assert_eq!(number(&counts, "io", "words"), Some(2));
        assert_eq!(number(&counts, "io", "said"), Some(2));
        assert_eq!(number(&counts, "io", "circle"), Some(0));
        assert_eq!(number(&counts, "array", "words"), None);
    }

    #[test]
    fn words_of_the_crate_above_count_in_array_alone() {
        let files = [
            (WORDS, "told = reported"),
            (
                "crates/array/src/lib.rs",
                "// surrogate\nfn is_destaged() {}",
            ),
            ("crates/tier/src/lib.rs", "// surrogate"),
        ];
        let counts = count(&tree(&files)).expect("the list is well formed");
        assert_eq!(number(&counts, "array", "above"), Some(2));
        assert_eq!(number(&counts, "tier", "above"), None);
    }

    #[test]
    fn added_lines_of_a_diff_are_read() {
        let diff = "--- a/x.rs\n+++ b/x.rs\n@@ -1,0 +2,2 @@ fn\n+a\n+b\n@@ -9 +11 @@\n+c\n@@ -20,2 +21,0 @@\n";
        let change = Change::of_diff(diff);
        assert!(change.paths.contains("x.rs"));
        let mut lines: Vec<(String, usize)> = change.lines.into_iter().collect();
        lines.sort();
        assert_eq!(lines, [2, 3, 11].map(|line| ("x.rs".to_string(), line)));
    }
}
