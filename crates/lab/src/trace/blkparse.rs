//! The output of `blkparse`: `maj,min cpu seq seconds pid action RWBS sector + sectors [process]`.
//!
//! One request has many events; exactly one action is used for it, see [`super::Action`]. Lines may be
//! grouped by CPU, so the reader's output goes through [`super::sort`].

use super::fields::{self, SECONDS, number, request, sectors};
use super::format::{Format, Lines, Parsed, Parser};
use super::options::Action;
use super::text::device_number;
use super::{Op, Request};

pub(super) static FORMAT: Format = Format {
    is_grouped: true,
    ..Format::of_lines(
        "blkparse",
        "the text that blkparse prints",
        Lines::of("259,2 0 1 0.5 4020 Q R 282624 + 8 [java]\n", |options| {
            Box::new(Blkparse::new(options.action))
        }),
    )
};

struct Blkparse {
    action: Action,
    /// No action was named: each text's lines decide it.
    guesses: bool,
}

impl Blkparse {
    pub fn new(action: Option<Action>) -> Blkparse {
        Blkparse {
            action: action.unwrap_or(Action::Queued),
            guesses: action.is_none(),
        }
    }
}

/// The words that begin the lines of the summary at the end of blkparse's output.
const SUMMARY: &str = "CPU Total Reads Read PC IO Timer Throughput Events Skips Input";

impl Parser for Blkparse {
    fn begin(&mut self, start: &[u8]) {
        if self.guesses {
            self.action = Action::guess(&String::from_utf8_lossy(start));
        }
    }

    fn parse(&mut self, line: &str) -> Parsed {
        let mut fields = line.split_ascii_whitespace();
        let Some(device) = fields.next() else {
            return Ok(None);
        };
        let Some((major, minor)) = device.split_once(',') else {
            return summary(device);
        };
        if device.starts_with('#') {
            return Ok(None);
        }
        let wrong = |_| format!("the device is {device:?}, not MAJOR,MINOR");
        let part = |part: &str| part.parse().map_err(wrong);
        let device = device_number(part(major)?, part(minor)?)?;
        let _cpu: u32 = number(&mut fields, "CPU")?;
        let _sequence: u64 = number(&mut fields, "sequence number")?;
        let time = fields::time(&mut fields, SECONDS)?;
        let _pid: i64 = number(&mut fields, "pid")?;
        let action = fields::next(&mut fields, "action")?;
        if action.len() != 1 || !action.starts_with(self.action.letter()) {
            return Ok(None);
        }
        event(time, device, &mut fields)
    }
}

fn summary(word: &str) -> Parsed {
    let mut begins = SUMMARY.split(' ').chain(["#"]);
    match begins.any(|begin| word.starts_with(begin)) {
        true => Ok(None),
        false => Err(format!("it begins with {word:?}, not with MAJOR,MINOR")),
    }
}

fn event<'a>(time: u64, device: u32, fields: &mut impl Iterator<Item = &'a str>) -> Parsed {
    let kind = fields::next(fields, "RWBS")?;
    let flush = Request::new(time, device, Op::Flush, 0, 0);
    // A flush without data has no address: `FF [process]`, `FWS [process]`; a command of the driver neither.
    let first = match fields.next().map(str::parse::<u64>) {
        Some(Ok(first)) => first,
        _ if kind.starts_with('F') => return Ok(Some(flush)),
        _ if kind.starts_with('N') => return Ok(None),
        _ => return Err("the sector is missing".into()),
    };
    if fields.next() != Some("+") {
        // A command of the driver: a number of bytes and the command in brackets.
        return Ok(None);
    }
    let length = sectors(number(fields, "length")?)?;
    match op(kind) {
        _ if length == 0 && kind.contains('F') => Ok(Some(flush)),
        Some(op) => request(time, device, op, sectors(first)?, length).map(Some),
        None => Ok(None),
    }
}

/// RWBS: `F` before the direction asks for a flush first, `F` behind it for FUA.
fn op(kind: &str) -> Option<Op> {
    match kind.trim_start_matches('F').chars().next()? {
        'R' => Some(Op::Read),
        'W' => Some(Op::Write),
        'D' => Some(Op::Discard),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Parsed {
        let action = Action::Queued;
        Blkparse::new(Some(action)).parse(line)
    }

    #[test]
    fn only_the_chosen_action_counts() {
        let line = "259,2    0        1     0.000001581  4020  Q  RA 8 + 16 [my java]";
        let found = parse(line).unwrap().unwrap();
        assert_eq!((found.time, found.device), (1581, (259 << 20) | 2));
        assert_eq!(
            (found.op, found.offset, found.length),
            (Op::Read, 4096, 8192)
        );
        assert_eq!(parse(&line.replace(" Q ", " D ")), Ok(None));
    }

    #[test]
    fn flushes_discards_and_commands() {
        let line = |rest: &str| parse(&format!("8,0 1 2 3.5 4 Q {rest}"));
        assert_eq!(line("FWS [jbd2]").unwrap().unwrap().op, Op::Flush);
        assert_eq!(line("FWFS 8 + 8 [jbd2]").unwrap().unwrap().op, Op::Write);
        assert_eq!(
            line("DS 8 + 80000000 [fstrim]").unwrap().unwrap().op,
            Op::Discard
        );
        assert_eq!(line("N 0 (00 ..) [smartd]"), Ok(None));
        assert!(line("R [x]").is_err());
    }

    #[test]
    fn the_summary_is_no_damage_but_other_text_is() {
        assert_eq!(parse("CPU3 (8,16):"), Ok(None));
        assert_eq!(parse(" Reads Queued:         353,     43MiB"), Ok(None));
        assert!(parse("hello").is_err());
        assert!(parse("8,x 1 2").is_err());
    }

    #[test]
    fn the_action_is_guessed_from_what_there_is() {
        assert_eq!(
            Action::guess("8,0 1 2 3 4 I R\n8,0 1 2 3 4 D R"),
            Action::Issued
        );
        assert_eq!(
            Action::guess("8,0 1 2 3 4 D R\n8,0 1 2 3 4 Q R"),
            Action::Queued
        );
    }
}
