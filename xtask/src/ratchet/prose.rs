//! Prose: lines that are too wide, and words that have a better one (`xtask/words.txt`).

use super::Place;
use super::imports::Source;
use crate::source::File;
use crate::tokens::Kind;
use std::collections::HashMap;

/// Columns that a line of prose may have.
const COLUMNS_MAX: usize = 110;

/// A text with the line where it starts. Lines of one comment that follow each other are texts of their own; a phrase
/// may go on from one to the next.
pub struct Passage<'a> {
    pub path: &'a str,
    pub line: usize,
    pub text: &'a str,
}

/// The words and phrases that are counted, and those that are exempt.
pub struct WordList {
    by_first: HashMap<String, Vec<Entry>>,
}

struct Entry {
    words: Vec<String>,
    /// None for a phrase in which a listed word is right.
    instead: Option<String>,
}

impl WordList {
    /// One entry a line: `WORD OR PHRASE = WHAT TO WRITE INSTEAD`, or `right: PHRASE`. `#` starts a comment.
    pub fn parse(text: &str) -> Result<WordList, String> {
        let mut by_first: HashMap<String, Vec<Entry>> = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (phrase, instead) = match (line.strip_prefix("right: "), line.split_once(" = ")) {
                (Some(phrase), _) => (phrase, None),
                (None, Some((phrase, instead))) => (phrase, Some(instead.trim().to_string())),
                (None, None) => {
                    let expected = "expected `WORD = INSTEAD` or `right: PHRASE`";
                    return Err(format!("xtask/words.txt:{}: {expected}", index + 1));
                }
            };
            let words: Vec<String> = phrase.split_whitespace().map(str::to_lowercase).collect();
            if let Some(first) = words.first().cloned() {
                let entry = Entry { words, instead };
                by_first.entry(first).or_default().push(entry);
            }
        }
        for entries in by_first.values_mut() {
            // The longest phrase counts.
            entries.sort_by_key(|entry| usize::MAX - entry.words.len());
        }
        Ok(WordList { by_first })
    }

    /// Where the listed words stand in `passages`.
    pub fn find(&self, passages: &[Passage<'_>]) -> Vec<Place> {
        let words: Vec<Word<'_>> = passages.iter().flat_map(words).collect();
        let mut found = Vec::new();
        let mut at = 0;
        while at < words.len() {
            match self.entry_at(&words[at..]) {
                None => at += 1,
                Some(entry) => {
                    if let Some(instead) = &entry.instead {
                        found.push(Place {
                            path: words[at].path.into(),
                            line: words[at].line,
                            what: format!("`{}`: {instead}", entry.words.join(" ")),
                        });
                    }
                    at += entry.words.len();
                }
            }
        }
        found
    }

    fn entry_at(&self, words: &[Word<'_>]) -> Option<&Entry> {
        let first = words.first()?;
        let entries = self.by_first.get(&first.text)?;
        entries.iter().find(|entry| {
            let stands = entry.words.iter().zip(words).enumerate();
            entry.words.len() <= words.len()
                && stands.into_iter().all(|(index, (expected, word))| {
                    *expected == word.text
                        && word.path == first.path
                        && (index == 0 || !word.opens_clause)
                })
        })
    }
}

struct Word<'a> {
    path: &'a str,
    line: usize,
    text: String,
    /// Whether punctuation parts it from the word before.
    opens_clause: bool,
}

/// The words of a text in lower case. A name is its parts: `is_told` and `IsTold` have the word `told`.
fn words<'a>(passage: &Passage<'a>) -> Vec<Word<'a>> {
    let mut found: Vec<Word<'a>> = Vec::new();
    let mut line = passage.line;
    let mut text = String::new();
    let mut opens_clause = false;
    let mut was_lower = false;
    let mut close = |text: &mut String, line: usize, opens_clause: &mut bool| {
        if !text.is_empty() {
            found.push(Word {
                path: passage.path,
                line,
                text: std::mem::take(text),
                opens_clause: std::mem::take(opens_clause),
            });
        }
    };
    for c in passage.text.chars() {
        if c.is_alphanumeric() {
            if c.is_uppercase() && was_lower {
                close(&mut text, line, &mut opens_clause);
            }
            was_lower = c.is_lowercase();
            text.extend(c.to_lowercase());
            continue;
        }
        close(&mut text, line, &mut opens_clause);
        was_lower = false;
        match c {
            '\n' => line += 1,
            '.' | ',' | ';' | ':' | '?' | '!' | '(' | ')' | '|' | '"' => opens_clause = true,
            _ => {}
        }
    }
    close(&mut text, line, &mut opens_clause);
    found
}

/// Comments, string literals and names of a source, or its string literals alone.
pub fn passages<'a>(source: &Source<'a>, literals_only: bool) -> Vec<Passage<'a>> {
    let counts = |kind: Kind| match kind {
        Kind::Text => true,
        Kind::Word | Kind::Comment => !literals_only,
        Kind::Mark | Kind::Other => false,
    };
    let tokens = source.tokens.iter().filter(|token| counts(token.kind));
    tokens
        .map(|token| Passage {
            path: source.path,
            line: token.line,
            text: token.text,
        })
        .collect()
}

/// Lines with a comment that are too wide.
pub fn wide_comments(source: &Source<'_>, text: &str) -> Vec<Place> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let comments = source.tokens.iter().filter(|t| t.kind == Kind::Comment);
    for comment in comments {
        for (index, part) in comment.text.lines().enumerate() {
            let number = comment.line + index;
            let is_table = part.trim_start_matches(['/', '!', ' ']).starts_with('|');
            let line = lines.get(number - 1).copied().unwrap_or_default();
            found.extend(
                (!is_table)
                    .then(|| wide(source.path, number, line))
                    .flatten(),
            );
        }
    }
    found
}

/// Lines of a page that are too wide, outside of code blocks and tables.
pub fn wide_lines(page: &File) -> Vec<Place> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (index, line) in page.text.lines().enumerate() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            in_code = !in_code;
        } else if !in_code && !trimmed.starts_with('|') {
            found.extend(wide(&page.path, index + 1, line));
        }
    }
    found
}

fn wide(path: &str, number: usize, line: &str) -> Option<Place> {
    let columns = without_links(line).chars().count();
    (columns > COLUMNS_MAX).then(|| Place {
        path: path.into(),
        line: number,
        what: format!("{columns} columns"),
    })
}

/// The line with the targets of its links taken out, since a link cannot be broken over lines.
fn without_links(line: &str) -> String {
    let mut rest = line;
    let mut kept = String::new();
    while let Some(start) = rest.find("](") {
        let end = rest[start..]
            .find(')')
            .map_or(rest.len(), |end| start + end + 1);
        kept.push_str(&rest[..=start]);
        rest = &rest[end..];
    }
    kept.push_str(rest);
    match kept.find("://") {
        Some(start) => {
            let end = kept[start..].find(char::is_whitespace);
            format!(
                "{}{}",
                &kept[..start],
                end.map_or("", |end| &kept[start + end..])
            )
        }
        None => kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::tokens;

    const LIST: &str = "# comment\ntold = reported\nso many = N\nahead = before\nright: ahead of\n";

    fn source(text: &str) -> Source<'_> {
        Source {
            path: "crates/x/src/a.rs",
            tokens: tokens(text),
        }
    }

    fn found(text: &str, literals_only: bool) -> Vec<String> {
        let list = WordList::parse(LIST).expect("the list is well formed");
        let places = list.find(&passages(&source(text), literals_only));
        places.iter().map(|place| place.to_string()).collect()
    }

    #[test]
    fn words_are_found_in_names_comments_and_literals() {
        let text = "fn is_told() {\n    // Told,\n    \"told\";\n    WasTold::untold()\n}";
        let lines = [1, 2, 3, 4].map(|line| format!("crates/x/src/a.rs:{line}: `told`: reported"));
        assert_eq!(found(text, false), lines);
        assert_eq!(found(text, true), lines[2..3]);
    }

    #[test]
    fn phrase_goes_on_over_a_line_and_not_over_punctuation() {
        assert_eq!(found("// after so\n// many starts", false).len(), 1);
        assert_eq!(found("// it is so. Many starts", false).len(), 0);
    }

    #[test]
    fn exempt_phrase_is_not_found() {
        assert_eq!(found("// ahead of time", false).len(), 0);
        assert_eq!(found("// goes ahead", false).len(), 1);
    }

    #[test]
    fn malformed_entry_is_an_error_with_its_line() {
        let error = WordList::parse("told = reported\nnobody\n").err();
        assert!(error.is_some_and(|error| error.starts_with("xtask/words.txt:2:")));
    }

    #[test]
    fn wide_comments_count_and_wide_code_and_tables_do_not() {
        let text = format!(
            "// {0}\nlet a = \"{0}\";\n/// | {0} |\n// short\n",
            "word ".repeat(25)
        );
        let lines: Vec<usize> = wide_comments(&source(&text), &text)
            .iter()
            .map(|place| place.line)
            .collect();
        assert_eq!(lines, [1]);
    }

    #[test]
    fn wide_lines_of_a_page_count_outside_code_tables_and_links() {
        let wide = "word ".repeat(25);
        let link = format!("see [this]({})", "a".repeat(120));
        let text = format!("{wide}\n```\n{wide}\n```\n| {wide} |\n{link}\n");
        let page = File {
            path: "docs/a.md".into(),
            text,
        };
        let lines: Vec<usize> = wide_lines(&page).iter().map(|place| place.line).collect();
        assert_eq!(lines, [1]);
    }
}
