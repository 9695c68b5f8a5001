//! The sources as the checks see them: files, their text, and which lines are code of the product.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// One broken rule, at one place.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub path: String,
    /// Counted from 1; 0 is the file as a whole.
    pub line: usize,
    pub what: String,
}

impl Finding {
    pub fn at(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding {
            path: path.to_string(),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{}: {}", self.path, line, self.what),
        }
    }
}

/// A text file. `path` is relative to the root, with forward slashes.
pub struct File {
    pub path: String,
    pub text: String,
}

impl File {
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether the whole file is test code: in a `tests` or `benches` folder, or named for tests.
    pub fn is_test(&self) -> bool {
        let folder = self
            .path
            .split('/')
            .any(|part| part == "tests" || part == "benches" || part == "examples");
        folder || self.path.ends_with("tests.rs") || self.path.ends_with("_test.rs")
    }

    /// The crate's folder name, for files below `crates/`.
    pub fn crate_name(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// The lines before the test module, numbered from 1.
    pub fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.test_module_start();
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
            .take_while(move |(line, _)| *line < end)
    }

    /// The line of the last `#[cfg(test)]` that opens a module with a body; past the end if there is none.
    pub fn test_module_start(&self) -> usize {
        let lines: Vec<&str> = self.text.lines().collect();
        let opens = |index: usize| {
            let body = lines[index + 1..]
                .iter()
                .find(|line| !line.trim_start().starts_with("#["));
            lines[index].starts_with("#[cfg(test)]")
                && body.is_some_and(|l| l.contains("mod ") && l.ends_with('{'))
        };
        (0..lines.len())
            .rev()
            .find(|index| opens(*index))
            .map_or(usize::MAX, |index| index + 1)
    }

    /// How many lines of the product are code: not blank, not comment.
    pub fn code_lines(&self) -> usize {
        self.product_lines()
            .filter(|(_, line)| is_code(line))
            .count()
    }
}

/// Whether a line holds anything but space and a comment.
pub fn is_code(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with("//")
}

pub struct Tree {
    pub files: Vec<File>,
}

impl Tree {
    /// Reads every text file of the project below `root`, in the order of their paths.
    pub fn read(root: &Path) -> io::Result<Tree> {
        let mut files = Vec::new();
        walk(root, "", &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Tree { files })
    }

    pub fn file(&self, path: &str) -> Option<&File> {
        let found = self
            .files
            .binary_search_by(|file| file.path.as_str().cmp(path));
        found.ok().map(|index| &self.files[index])
    }

    pub fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_rust())
    }
}

fn walk(root: &Path, below: &str, files: &mut Vec<File>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() {
            name.clone()
        } else {
            format!("{below}/{name}")
        };
        let kind = entry.file_type()?;
        if kind.is_dir() && !is_skipped(&name) {
            walk(root, &path, files)?;
        } else if kind.is_file() && is_text(&name) {
            let text = fs::read_to_string(entry.path())?;
            files.push(File { path, text });
        }
    }
    Ok(())
}

fn is_skipped(folder: &str) -> bool {
    matches!(folder, ".git" | "target" | "node_modules")
}

fn is_text(name: &str) -> bool {
    let by_ending = [
        ".rs", ".toml", ".md", ".sh", ".py", ".yml", ".yaml", ".1", ".bash", ".zsh", ".fish",
        ".txt",
    ];
    by_ending.iter().any(|ending| name.ends_with(ending))
        || matches!(name, "Makefile" | "run" | "test" | "need")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.into(),
            text: text.into(),
        }
    }

    #[test]
    fn tests_comments_and_blank_lines_are_not_code() {
        let text = "//! Owns it.\n\nfn a() {}\n// why\nfn b() {}\n\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\n";
        assert_eq!(file("crates/io/src/a.rs", text).code_lines(), 2);
    }

    #[test]
    fn a_test_module_in_its_own_file_ends_nothing() {
        let text = "#[cfg(test)]\nmod laws;\nfn a() {}\n";
        assert_eq!(file("crates/array/src/a.rs", text).code_lines(), 3);
    }

    #[test]
    fn crates_are_named_by_their_folder() {
        assert_eq!(file("crates/io/src/a.rs", "").crate_name(), Some("io"));
        assert_eq!(file("xtask/src/main.rs", "").crate_name(), None);
    }
}
