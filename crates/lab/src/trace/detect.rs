//! Finds the format of a file from its content and its name.

use super::format::{Beginning, Format, Lines};
use super::formats::FORMATS;
use super::options::Options;
use super::{source, text};
use std::fmt;
use std::io;

/// Lines of text that are looked at.
const LINES: usize = 200;

/// The format of a file, from its first bytes and its name, compression taken off.
///
/// A text has a format if *all* its first lines are of it. Where records may be bad (`skip_bad`), or the name ends as
/// that format's files do, half of them are enough.
pub fn detect(name: &str, start: &[u8], skip_bad: bool) -> Result<&'static Format, Unknown> {
    if let Some(format) = first(|format| (format.begins)(start)) {
        return Ok(format);
    }
    let foreign = source::foreign(start);
    let named = by_name(name).filter(|_| foreign.is_none());
    match nearest(start, named, false) {
        Some(near) if near.is_whole() => Ok(near.format),
        Some(near) if near.is_half() && (skip_bad || named.is_some()) => Ok(near.format),
        near => {
            let named = named.filter(|format| format.lines().is_none());
            let resembled = || first(|format| foreign.is_none() && (format.resembles)(start));
            named.or_else(resembled).ok_or_else(|| Unknown {
                is_empty: start.is_empty(),
                is_damage: false,
                foreign,
                nearest: near
                    .filter(|near| near.understood > 0)
                    .or_else(|| nearest_request(start)),
            })
        }
    }
}

fn first(is_it: impl Fn(&Format) -> bool) -> Option<&'static Format> {
    FORMATS.into_iter().find(|format| is_it(format))
}

/// Why a file without a format is a damaged trace. Its first line is a request, half of its lines are of a format, its
/// ending names one, or its packer is not read.
pub fn damage(name: &str, start: &[u8]) -> Option<Unknown> {
    let foreign = source::foreign(start);
    let near = nearest_request(start);
    let is_trace = |near: &Nearest| near.begun == Some(true) || near.is_half();
    let is_named = by_name(name).is_some() && !start.is_empty();
    let is_damaged = foreign.is_some() || is_named || near.as_ref().is_some_and(is_trace);
    is_damaged.then_some(Unknown {
        is_empty: false,
        is_damage: true,
        foreign,
        nearest: near,
    })
}

/// The nearest format of which the file has a request.
fn nearest_request(start: &[u8]) -> Option<Nearest> {
    nearest(start, None, true).filter(|near| near.requests > 0)
}

/// Why a file has no format.
#[derive(Debug)]
pub struct Unknown {
    is_empty: bool,
    /// It was a trace, or cannot be told from one.
    pub is_damage: bool,
    /// The compression that is not read.
    foreign: Option<&'static str>,
    nearest: Option<Nearest>,
}

impl Unknown {
    /// Whether it is a damaged trace whose nearest format is this one.
    pub(super) fn is_damaged(&self, format: &Format) -> bool {
        let near = self.nearest.as_ref();
        let near = near.filter(|_| self.is_damage && self.foreign.is_none());
        near.is_some_and(|near| near.format == format)
    }

    /// The same of a file whose first bytes end with an error.
    pub(super) fn and_failed(&self, start: &[u8], error: &io::Error) -> String {
        match start.is_empty() {
            true => format!("nothing of it can be read: {error}"),
            false => format!("{error}; of what comes before that, {self}"),
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.nearest {
            _ if self.is_empty => write!(f, "the file is empty"),
            _ if self.foreign.is_some() => write!(
                f,
                "the file is packed with {}, which is not read: unpack it, or pack it with gzip, xz or zstd",
                self.foreign.unwrap_or_default()
            ),
            None => write!(
                f,
                "the file is of no known trace format; `restripe trace formats` lists them, --format names one"
            ),
            Some(near) => write!(f, "the file is of no known trace format; {near}"),
        }
    }
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.format.name;
        match &self.odd {
            (0, _) if *self.format == text::FIO => write!(
                f,
                "the nearest is fio, but an iolog's first line is missing: \
                 add `fio version 2 iolog`, or `fio version 3 iolog` if its lines begin with times"
            ),
            (0, _) => write!(
                f,
                "all of its first {} lines are of {name}, but its name ends as files of another format do; \
                 --format {name} reads the file as that",
                self.lines
            ),
            (line, reason) => write!(
                f,
                "the nearest is {name}, which {} of the first {} lines are: line {line} is not ({reason}); \
                 --format {name} reads the file as that",
                self.understood, self.lines
            ),
        }
    }
}

/// The format whose parser understands the most of a text's first lines.
#[derive(Debug)]
struct Nearest {
    format: &'static Format,
    understood: usize,
    /// Of the lines that are understood, those that hold a request.
    requests: usize,
    lines: usize,
    /// Whether the first line that holds anything is a request: it is none where it is not understood.
    begun: Option<bool>,
    /// The first line that is not of the format, from 1, and why.
    odd: (usize, String),
}

impl Nearest {
    fn understand(&mut self, is_request: bool) {
        self.understood += 1;
        if is_request {
            self.requests += 1;
            self.begun.get_or_insert(true);
        }
    }

    fn refuse(&mut self, line: usize, reason: String) {
        self.begun.get_or_insert(false);
        if self.odd.0 == 0 {
            self.odd = (line, reason);
        }
    }

    fn is_whole(&self) -> bool {
        self.understood == self.lines
    }

    fn is_half(&self) -> bool {
        self.understood >= self.lines.div_ceil(2)
    }
}

/// Only endings that no other format has.
fn by_name(name: &str) -> Option<&'static Format> {
    let mut name = name.to_ascii_lowercase();
    for packed in [".gz", ".xz", ".zst"] {
        name.truncate(name.strip_suffix(packed).map_or(name.len(), str::len));
    }
    first(|format| format.endings.iter().any(|ending| name.ends_with(ending)))
}

/// Of equals the first. Only the named format is tried where there is one. `headless` also tries what a sound file tells by
/// its first line: fio's iologs.
fn nearest(start: &[u8], named: Option<&'static Format>, headless: bool) -> Option<Nearest> {
    let whole = start.iter().rposition(|byte| *byte == b'\n');
    let text = String::from_utf8_lossy(&start[..whole.map_or(start.len(), |at| at + 1)]);
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let lines: Vec<(usize, &str)> = lines.take(LINES).collect();
    if lines.is_empty() {
        return None;
    }
    let beginning = Beginning {
        lines: &lines,
        headless,
    };
    let tried = FORMATS.into_iter().filter(|format| {
        let suits = |lines: &Lines| (lines.suits)(&beginning);
        let is_named = named.is_none_or(|named| named == *format);
        // An iolog without its first line is tried whatever its name ends in.
        (is_named || (headless && **format == text::FIO)) && format.lines().is_some_and(suits)
    });
    let measured = tried.map(|format| measure(format, text.as_bytes(), &lines));
    measured.reduce(|best, next| match next.understood > best.understood {
        true => next,
        false => best,
    })
}

fn measure(format: &'static Format, start: &[u8], lines: &[(usize, &str)]) -> Nearest {
    let of_lines = format.lines().expect("a text is measured");
    let mut parser = (of_lines.parser)(&Options::default());
    parser.begin(start);
    let mut near = Nearest {
        format,
        understood: 0,
        requests: 0,
        lines: lines.len(),
        begun: None,
        odd: (0, String::new()),
    };
    for (index, line) in lines {
        let parsed = parser.parse(line).and_then(|found| {
            let fields = of_lines.fields.as_ref();
            fields.map_or(Ok(()), |fields| fields.check(line))?;
            Ok(found)
        });
        match parsed {
            Ok(found) => near.understand(found.is_some()),
            Err(reason) => near.refuse(index + 1, reason),
        }
    }
    near
}

#[cfg(test)]
mod tests {
    use super::super::binary;
    use super::*;

    fn detected(text: &str) -> Option<&'static Format> {
        detect("t.txt", text.as_bytes(), false).ok()
    }

    #[test]
    fn texts_are_recognised_by_their_lines() {
        for format in FORMATS {
            let Some(example) = format.example() else {
                continue;
            };
            assert_eq!(detected(example), Some(format), "{example}");
        }
    }

    #[test]
    fn what_is_no_trace_is_nothing() {
        for text in ["", "\n\n", "hello\n", "a,b,c\n"] {
            assert_eq!(detected(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_guess_is_confirmed_by_every_line_or_not_made() {
        let good = "0,303567,3584,w,0.000000\n".repeat(20);
        for odd in ["0,x,3584,w,1.0\n", "hello\n", "1 2 3 4\n"] {
            for text in [
                format!("{odd}{good}"),
                format!("{good}{odd}"),
                format!("{good}{odd}{good}"),
            ] {
                let refused = detect("t.txt", text.as_bytes(), false)
                    .expect_err(&text)
                    .to_string();
                assert!(refused.contains("the nearest is spc") && refused.contains("--format spc"));
                assert!(refused.contains(&format!("{} of the first", text.lines().count() - 1)));
                assert_eq!(
                    detect("t.txt", text.as_bytes(), true).ok(),
                    Some(&text::SPC)
                );
                assert_eq!(
                    detect("t.spc", text.as_bytes(), false).ok(),
                    Some(&text::SPC)
                );
            }
        }
    }

    #[test]
    fn iolog_without_its_first_line_is_said_to_lack_it() {
        for text in [
            "/dev/a write 0 512\n",
            "f read 0 512\nf wait 3\nf read 0 512\n",
            "7 /dev/a write 0 512\n",
        ] {
            let whole = detect("t.log", text.as_bytes(), false).expect_err(text);
            let member = damage("t.log", text.as_bytes()).expect(text);
            for unknown in [whole, member] {
                let said = unknown.to_string();
                assert!(said.contains("first line is missing"), "{said}");
                assert!(!said.contains("line 0") && !said.contains("()"), "{said}");
            }
        }
    }

    #[test]
    fn text_whose_name_ends_as_that_of_another_format_is_said_to_be_whole() {
        let text = "0,303567,3584,w,0.000000\n".repeat(3);
        for name in ["t.lis", "t.u32le.gz"] {
            let unknown = damage(name, text.as_bytes()).expect(name);
            let said = unknown.to_string();
            assert!(said.contains("first 3 lines are of spc"), "{said}");
            assert!(!said.contains("line 0") && !said.contains("()"), "{said}");
        }
    }

    #[test]
    fn numbers_of_another_count_are_no_format_of_numbers() {
        for line in [
            "1000 16",
            "1000 16 13",
            "1000 16 13 x",
            "1000 16 13 0.5",
            "1000 16 0 7 8 9",
            "100 8 W kworker 0.5 7",
            "0.5 0 8 8 1 7",
            "9 8 7 6 5 4 3 2 1 0",
            "128166372003061629,mds,0,Read,3154132992,4096",
        ] {
            let text = format!("{line}\n").repeat(50);
            assert_eq!(detected(&text), None, "{line}");
        }
    }

    #[test]
    fn ending_of_a_name_stands_for_a_format_of_bytes() {
        assert_eq!(
            detect("x.U32LE.xz", &[1, 2, 3, 4], false).ok(),
            Some(&binary::U32LE)
        );
    }
}
