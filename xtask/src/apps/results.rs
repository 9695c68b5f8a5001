//! The figures of one run: a flat JSON object, kept in a file, so that a run that has ended is not repeated.

use super::tools::{Outcome, text_error, write};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    pub texts: BTreeMap<String, String>,
    pub numbers: BTreeMap<String, f64>,
}

impl Figures {
    pub fn text(&mut self, name: &str, value: &str) {
        self.texts.insert(name.into(), value.into());
    }

    pub fn number(&mut self, name: &str, value: f64) {
        self.numbers.insert(name.into(), value);
    }

    pub fn get(&self, name: &str) -> Option<f64> {
        self.numbers.get(name).copied()
    }

    pub fn json(&self) -> String {
        let mut fields: Vec<String> = Vec::new();
        for (name, value) in &self.texts {
            let mut quoted = String::new();
            for c in value.chars() {
                match c {
                    '"' | '\\' => quoted.extend(['\\', c]),
                    c if c.is_control() => quoted.push(' '),
                    c => quoted.push(c),
                }
            }
            fields.push(format!("  \"{name}\": \"{quoted}\""));
        }
        for (name, value) in &self.numbers {
            let mut text = String::new();
            // Writing to a string cannot fail.
            let _ = write!(text, "  \"{name}\": {value:.4}");
            fields.push(text);
        }
        format!("{{\n{}\n}}\n", fields.join(",\n"))
    }

    /// Of the form that [`Figures::json`] writes: a field a line.
    pub fn parse(json: &str) -> Option<Figures> {
        let mut figures = Figures::default();
        let body = json.trim().strip_prefix('{')?.strip_suffix('}')?;
        for line in body.lines().filter(|line| !line.trim().is_empty()) {
            let (name, value) = line.trim().trim_end_matches(',').split_once(": ")?;
            let name = name.trim_matches('"');
            match value.strip_prefix('"') {
                Some(text) => {
                    let text = text.strip_suffix('"')?;
                    figures.text(name, &text.replace("\\\"", "\"").replace("\\\\", "\\"));
                }
                None => figures.number(name, value.parse().ok()?),
            }
        }
        Some(figures)
    }

    pub fn save(&self, path: &Path) -> Outcome<()> {
        // A run that is interrupted here leaves no half of a file.
        let new = path.with_extension("new");
        write(&new, &self.json())?;
        fs::rename(&new, path).map_err(text_error(path))
    }

    /// None where there is no file.
    pub fn load(path: &Path) -> Outcome<Option<Figures>> {
        match fs::read_to_string(path) {
            Ok(text) => {
                let figures = Figures::parse(&text);
                let hint = format!("{}: not a file of results; remove it", path.display());
                figures.map(Some).ok_or(hint)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(text_error(path)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_loaded() {
        let mut figures = Figures::default();
        figures.text("command", "xtask \"apps\"");
        figures.number("rebuild_s", 61.25);
        figures.number("healthy.mean_ms", 0.5);
        assert_eq!(Figures::parse(&figures.json()), Some(figures.clone()));
        assert_eq!(Figures::parse("{\n  \"a\": x\n}"), None);
        let path = std::env::temp_dir().join(format!("restripe-apps-{}.json", std::process::id()));
        assert_eq!(Figures::load(&path), Ok(None));
        figures.save(&path).expect("saved");
        assert_eq!(Figures::load(&path), Ok(Some(figures)));
        fs::remove_file(&path).expect("it is there");
    }
}
