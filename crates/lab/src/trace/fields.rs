//! Shared parts of the readers of text: lines of bounded length, fields, numbers and times without rounding.

use super::{END_MAX, LENGTH_MAX, Op, Request};
use crate::trace::source::Bytes;
use std::io::{self, BufRead};
use std::str::FromStr;

/// No format has longer lines; what is longer is no text.
const LINE_MAX: usize = 16 << 10;

/// Nanoseconds have nine decimals of a second, six of a millisecond.
pub const SECONDS: u32 = 9;
pub const MILLISECONDS: u32 = 6;

pub const SECTOR: u64 = 512;

/// The lines of a text, without their ends.
pub struct Lines {
    input: Bytes,
    line: Vec<u8>,
    pub number: u64,
}

/// A line, or why it is none.
pub enum Line<'a> {
    Text(&'a str),
    Bad(&'static str),
}

impl Lines {
    pub fn new(input: Bytes) -> Lines {
        Lines {
            input,
            line: Vec::new(),
            number: 0,
        }
    }

    pub fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        let mut whole = true;
        let mut begun = false;
        loop {
            let chunk = self.input.fill_buf()?;
            if chunk.is_empty() {
                break;
            }
            begun = true;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let text = &chunk[..end.unwrap_or(chunk.len())];
            whole &= self.line.len() + text.len() <= LINE_MAX;
            if whole {
                self.line.extend_from_slice(text);
            }
            let used = text.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_some() {
                break;
            }
        }
        if !begun {
            return Ok(None);
        }
        self.number += 1;
        if !whole {
            return Ok(Some(Line::Bad("the line is longer than any of a trace")));
        }
        Ok(Some(match std::str::from_utf8(&self.line) {
            Ok(text) => Line::Text(text),
            Err(_) => Line::Bad("the line is no text"),
        }))
    }
}

/// The next field, or that it is missing.
pub fn next<'a>(fields: &mut impl Iterator<Item = &'a str>, name: &str) -> Result<&'a str, String> {
    let field = fields.next().map(str::trim);
    field
        .filter(|field| !field.is_empty())
        .ok_or_else(|| format!("the {name} is missing"))
}

/// The next field as a whole number.
pub fn number<'a, N: FromStr>(
    fields: &mut impl Iterator<Item = &'a str>,
    name: &str,
) -> Result<N, String> {
    let field = next(fields, name)?;
    field
        .parse()
        .map_err(|_| format!("the {name} is {field:?}, not a whole number in range"))
}

/// The next field as a time in decimal fractions of a unit of `10^exponent` nanoseconds.
pub fn time<'a>(fields: &mut impl Iterator<Item = &'a str>, exponent: u32) -> Result<u64, String> {
    let field = next(fields, "time")?;
    nanoseconds(field, exponent)
        .ok_or_else(|| format!("the time is {field:?}, not a number in range"))
}

/// Exact for plain decimals; digits below a nanosecond are cut off. Powers of ten (`5e-06`) go through a float.
fn nanoseconds(text: &str, exponent: u32) -> Option<u64> {
    if text.contains(['e', 'E']) {
        let value: f64 = text.parse().ok()?;
        let scaled = value * 10f64.powi(exponent.try_into().ok()?);
        // Beyond 2^63 a float no longer tells nanoseconds apart from garbage.
        return (0.0..9.2e18).contains(&scaled).then_some(scaled as u64);
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let whole: u64 = match whole {
        "" => 0,
        whole => whole.parse().ok()?,
    };
    let digits = fraction.bytes().map(|byte| u64::from(byte - b'0'));
    let kept = digits.chain(std::iter::repeat(0)).take(exponent as usize);
    let fraction = kept.fold(0, |sum, digit| sum * 10 + digit);
    let whole = whole.checked_mul(10u64.pow(exponent))?;
    whole.checked_add(fraction)
}

/// Sectors of 512 bytes as bytes.
pub fn sectors(count: u64) -> Result<u64, String> {
    count
        .checked_mul(SECTOR)
        .ok_or_else(|| format!("sector {count} is beyond what 64 bits of bytes address"))
}

/// A request that keeps what [`Request`] promises.
pub fn request(time: u64, device: u32, op: Op, offset: u64, bytes: u64) -> Result<Request, String> {
    let name = op.name();
    if bytes == 0 && op != Op::Flush {
        return Err(format!("a {name} of no bytes"));
    }
    if bytes > LENGTH_MAX && op != Op::Discard {
        let believed = format!("more than {LENGTH_MAX} in one request is not believed");
        return Err(format!("a {name} of {bytes} bytes: {believed}"));
    }
    if offset.checked_add(bytes).is_none_or(|end| end > END_MAX) {
        let end = format!("{offset} + {bytes}");
        return Err(format!(
            "it ends beyond 2^62 bytes, which no device has: {end}"
        ));
    }
    Ok(Request::new(time, device, op, offset, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn times_are_exact() {
        assert_eq!(nanoseconds("0.026214", SECONDS), Some(26_214_000));
        assert_eq!(nanoseconds("13.191135", MILLISECONDS), Some(13_191_135));
        assert_eq!(nanoseconds(".5", SECONDS), Some(500_000_000));
        assert_eq!(nanoseconds("7", MILLISECONDS), Some(7_000_000));
        assert_eq!(nanoseconds("1.0000000019", SECONDS), Some(1_000_000_001));
        assert_eq!(nanoseconds("5e-06", SECONDS), Some(5000));
        for wrong in ["", ".", "-1", "1.-5", "nan", "1e400", "99999999999999", "+"] {
            assert_eq!(nanoseconds(wrong, SECONDS), None, "{wrong:?}");
        }
    }

    #[test]
    fn long_lines_and_bytes_are_bad_lines_and_the_next_is_read() {
        let mut text = vec![b'x'; LINE_MAX + 1];
        text.extend(b"\n\xff\xfe\nlast");
        let mut lines = Lines::new(Box::new(Cursor::new(text)));
        assert!(matches!(lines.next_line().unwrap(), Some(Line::Bad(_))));
        assert!(matches!(lines.next_line().unwrap(), Some(Line::Bad(_))));
        assert!(matches!(
            lines.next_line().unwrap(),
            Some(Line::Text("last"))
        ));
        assert!(lines.next_line().unwrap().is_none());
        assert_eq!(lines.number, 3);
    }

    #[test]
    fn requests_that_cannot_be_are_refused() {
        assert!(request(0, 0, Op::Read, 0, 0).is_err());
        assert!(request(0, 0, Op::Flush, 0, 0).is_ok());
        assert!(request(0, 0, Op::Write, 0, LENGTH_MAX + 1).is_err());
        assert!(request(0, 0, Op::Discard, 0, LENGTH_MAX + 1).is_ok());
        assert!(request(0, 0, Op::Read, u64::MAX, 1).is_err());
        assert!(request(0, 0, Op::Read, END_MAX - 511, 512).is_err());
        assert!(request(0, 0, Op::Read, END_MAX - 512, 512).is_ok());
    }
}
