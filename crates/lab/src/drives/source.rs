//! Reads the files of DiskSim's tools about a drive: the parameter language of `.model` and `.diskspecs`,
//! `.seek` tables and validation traces.
//!
//! The language is `name = value` with commas between, where a value is a scalar, a list in brackets or a
//! named block in braces; `#` begins a comment.

use restripe_sim::disk::mechanical::{Access, Command};
use std::str::FromStr;

/// A value of the parameter language.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Scalar(String),
    List(Vec<Value>),
    Block(Vec<(String, Value)>),
}

/// How deep blocks may lie in blocks: a hostile file must not exhaust the stack.
const DEEPEST: usize = 16;

impl Value {
    pub fn field(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Block(fields) => fields
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    /// A number that must be there.
    pub fn number(&self, name: &str) -> Result<f64, String> {
        match self.field(name) {
            Some(Value::Scalar(text)) => text
                .parse()
                .map_err(|_| format!("'{name}' is '{text}', not a number")),
            Some(_) => Err(format!("'{name}' is not a number")),
            None => Err(format!("there is no '{name}'")),
        }
    }

    /// A number, or what it is when nobody says.
    pub fn number_or(&self, name: &str, default: f64) -> Result<f64, String> {
        match self.field(name) {
            None => Ok(default),
            Some(_) => self.number(name),
        }
    }

    pub fn whole(&self, name: &str) -> Result<u32, String> {
        let number = self.number(name)?;
        if number.fract() != 0.0 || !(0.0..=f64::from(u32::MAX)).contains(&number) {
            return Err(format!("'{name}' is {number}, not a whole number"));
        }
        Ok(number as u32)
    }

    pub fn list(&self, name: &str) -> Result<&[Value], String> {
        match self.field(name) {
            Some(Value::List(values)) => Ok(values),
            _ => Err(format!("there is no list '{name}'")),
        }
    }

    /// A text that must be there.
    pub fn text(&self, name: &str) -> Result<&str, String> {
        match self.field(name) {
            Some(Value::Scalar(text)) => Ok(text),
            _ => Err(format!("there is no '{name}'")),
        }
    }

    pub fn numbers<T: FromStr>(&self, name: &str) -> Result<Vec<T>, String> {
        let number = |value: &Value| match value {
            Value::Scalar(text) => text.parse().map_err(|_| format!("'{name}' holds '{text}'")),
            _ => Err(format!("'{name}' holds more than numbers")),
        };
        self.list(name)?.iter().map(number).collect()
    }
}

/// The block that a file describes, without its name.
pub fn parse(text: &str) -> Result<Value, String> {
    let bare: String = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or(""))
        .collect::<Vec<_>>()
        .join("\n");
    let mut reader = Reader { rest: &bare };
    reader.until('{')?;
    reader.block(0)
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    /// What stands before `mark`, which is passed.
    fn until(&mut self, mark: char) -> Result<&'a str, String> {
        let at = self
            .rest
            .find(mark)
            .ok_or_else(|| format!("the file ends before a '{mark}'"))?;
        let text = &self.rest[..at];
        self.rest = &self.rest[at + mark.len_utf8()..];
        Ok(text.trim())
    }

    /// Passes `mark` if it comes next.
    fn pass(&mut self, mark: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(mark) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn block(&mut self, depth: usize) -> Result<Value, String> {
        let mut fields = Vec::new();
        while !self.pass('}') {
            let name = self.until('=')?.to_string();
            fields.push((name, self.value(depth + 1)?));
            self.pass(',');
        }
        Ok(Value::Block(fields))
    }

    fn list(&mut self, depth: usize) -> Result<Value, String> {
        let mut values = Vec::new();
        while !self.pass(']') {
            values.push(self.value(depth + 1)?);
            self.pass(',');
        }
        Ok(Value::List(values))
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > DEEPEST {
            return Err(format!("blocks are nested more than {DEEPEST} deep"));
        }
        if self.pass('[') {
            return self.list(depth);
        }
        let at = self
            .rest
            .find([',', '{', '}', ']'])
            .ok_or("the file ends within a value")?;
        let word = self.rest[..at].trim().to_string();
        self.rest = &self.rest[at..];
        if self.pass('{') {
            return self.block(depth);
        }
        if word.is_empty() {
            return Err("a value is missing".into());
        }
        Ok(Value::Scalar(word))
    }
}

/// Points `(cylinders, ns)` of a `.seek` file, whose times are milliseconds.
pub fn seek_points(text: &str) -> Result<Vec<(u32, u64)>, String> {
    let mut points: Vec<(u32, u64)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some((distance, time)) = line.split_once(',') else {
            continue;
        };
        let bad = || format!("line {} of the seek table is '{line}'", index + 1);
        let distance: u32 = distance.trim().parse().map_err(|_| bad())?;
        // What stands behind the time is its deviation.
        let time = time.split(',').next().unwrap_or(time);
        let time: f64 = time.trim().parse().map_err(|_| bad())?;
        if !(0.0..10_000.0).contains(&time) {
            return Err(bad());
        }
        if distance > 0 {
            points.push((distance, (time * 1e6).round() as u64));
        }
    }
    points.sort_unstable();
    points.dedup_by_key(|(distance, _)| *distance);
    Ok(points)
}

/// One measured request: what was asked, how long it took, and how long the host then thought.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    pub command: Command,
    pub service_ns: u64,
    pub think_ns: u64,
}

/// A validation trace: `R|W`, a word that says nothing, first block, blocks, service time and think time in µs.
pub fn trace(text: &str) -> Result<Vec<Measured>, String> {
    let filled = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    filled
        .map(|(index, line)| {
            measured(line).ok_or_else(|| format!("line {} of the trace is '{line}'", index + 1))
        })
        .collect()
}

fn measured(line: &str) -> Option<Measured> {
    let mut words = line.split_whitespace();
    let access = match words.next()? {
        "R" => Access::Read,
        "W" => Access::Write,
        _ => return None,
    };
    words.next()?;
    let block = words.next()?.parse().ok()?;
    let blocks = words.next()?.parse().ok().filter(|blocks| *blocks > 0)?;
    let mut time = || {
        let micros: f64 = words.next()?.parse().ok()?;
        (0.0..1e10)
            .contains(&micros)
            .then_some((micros * 1000.0).round() as u64)
    };
    Some(Measured {
        command: Command {
            access,
            block,
            blocks,
            durable: false,
        },
        service_ns: time()?,
        think_ns: time()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_nests_and_comments() {
        let text = "disk NAME { a b = 1.5, # c = 2,\n m = kind { z = [ 1, 2, ], empty = [] } }";
        let value = parse(text).expect("well formed");
        assert_eq!(value.number("a b"), Ok(1.5));
        assert!(value.number("c").is_err());
        let inner = value.field("m").expect("m");
        assert_eq!(inner.numbers::<u64>("z"), Ok(vec![1, 2]));
        assert_eq!(inner.numbers::<u64>("empty"), Ok(vec![]));
    }

    #[test]
    fn what_is_cut_short_or_too_deep_is_refused() {
        assert!(parse("disk N { a = 1").is_err());
        assert!(parse("disk N { a = , }").is_err());
        assert!(parse(&format!("d {{ a = {}", "[".repeat(100))).is_err());
    }

    #[test]
    fn a_bad_line_is_named() {
        let error = trace("R Hit 1 8 10.0 20.0\nW Hit 1 0 10.0 20.0\n").expect_err("no blocks");
        assert!(error.contains("line 2"), "{error}");
        assert!(seek_points("Seek\n1, x\n").is_err());
    }
}
