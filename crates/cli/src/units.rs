//! Sizes, times and rates as people write and read them.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use restripe_array::cache::Rule;
use restripe_array::{Order, Throttle};
use restripe_tier::{DestageOrder, Redirect};
use std::fmt;
use std::time::Duration;

const UNITS: [(char, u32); 4] = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];

/// `64K`, `1.5G` is refused: a size is a whole number of a unit, so that nothing is rounded behind one's back.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let body = text
        .strip_suffix("iB")
        .or_else(|| text.strip_suffix('B'))
        .unwrap_or(text);
    let (digits, shift) = match body.chars().last().and_then(unit_shift) {
        Some(shift) => (&body[..body.len() - 1], shift),
        None => (body, 0),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("{text:?} is not a size such as 64K, 512M or 2G"))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{text} does not fit in 64 bits"))
}

fn unit_shift(letter: char) -> Option<u32> {
    UNITS
        .iter()
        .find(|(unit, _)| *unit == letter.to_ascii_uppercase())
        .map(|(_, shift)| *shift)
}

/// `500ms`, `30s`, `5m`, `1h`: the unit is never left out.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let wrong = || format!("{text:?} is not a time such as 500ms, 30s, 5m or 1h");
    let number: u64 = text[..split].parse().map_err(|_| wrong())?;
    let milliseconds = match &text[split..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    let total = number
        .checked_mul(milliseconds)
        .ok_or_else(|| format!("{text} is too long"))?;
    Ok(Duration::from_millis(total))
}

/// A time that is waited for: none at all would be over before anything was done.
pub(crate) fn parse_wait(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        Duration::ZERO => Err(format!(
            "{text}: use a time above zero, such as 500ms or 30s"
        )),
        time => Ok(time),
    }
}

/// Memory for requests: what is smaller than the largest of them is taken as that much.
pub(crate) fn parse_memory(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err(format!("{text}: requests need at least 32M of memory")),
        memory => Ok(memory),
    }
}

/// Limits of background work, bytes a second of one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rate {
    pub min: u64,
    pub max: u64,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.min {
            0 => f.write_str("no minimum"),
            min => write!(f, "{} at least", Speed(min)),
        }?;
        match self.max {
            u64::MAX => f.write_str(", no maximum"),
            max => write!(f, ", {} at most", Speed(max)),
        }
    }
}

/// Bytes a second as a person reads them. Whoever left out a unit sees bytes.
struct Speed(u64);

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = if self.0 < 1 << 10 { " bytes" } else { "" };
        write!(f, "{}{bytes}/s", Size(self.0))
    }
}

/// `10M..200M`, `..200M`, `10M..`: without a unit, bytes.
pub(crate) fn parse_rate(text: &str) -> Result<Rate, String> {
    let (min, max) = text.split_once("..").ok_or_else(|| {
        format!("{text:?} is not MIN..MAX, such as 10M..200M; use ..{text} to set only the maximum")
    })?;
    let side = |side: &str, open: u64| match side {
        "" => Ok(open),
        side => parse_size(side),
    };
    let (min, max) = (side(min, 0)?, side(max, u64::MAX)?);
    let rate = Rate { min, max }.checked();
    rate.map_err(|why| format!("{text}: {why}"))
}

impl Rate {
    /// The same, if a task can keep to it.
    pub fn checked(self) -> Result<Rate, &'static str> {
        let why = "the minimum must not exceed the maximum, and the maximum must not be zero";
        match self.max == 0 || self.min > self.max {
            true => Err(why),
            false => Ok(self),
        }
    }
}

fn no_such(what: &str, text: &str, names: &[&str]) -> String {
    format!("{text:?} is not a {what}: use one of {}", names.join(", "))
}

/// What paces background work, by its name.
pub(crate) fn parse_throttle(text: &str) -> Result<Throttle, String> {
    Throttle::named(text).ok_or_else(|| no_such("throttle", text, &Throttle::FORMS))
}

/// A zone of heat.
pub(crate) fn parse_zone(text: &str) -> Result<u64, String> {
    let zone = parse_size(text)?;
    if zone < 64 << 10 {
        return Err(format!("{text}: use zones of 64K or more"));
    }
    Ok(zone)
}

/// An epoch of heat: a second or more.
pub(crate) fn parse_epoch(text: &str) -> Result<Duration, String> {
    let epoch = parse_time(text)?;
    if epoch < Duration::from_secs(1) {
        return Err(format!("{text}: use epochs of 1s or more"));
    }
    Ok(epoch)
}

/// The words of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PowerCommand(pub Vec<String>);

/// `exec:` and a command: its words, at blanks.
pub(crate) fn parse_power(text: &str) -> Result<PowerCommand, String> {
    let command = text.strip_prefix("exec:");
    let words = command.unwrap_or("").split_whitespace().map(String::from);
    let words: Vec<String> = words.collect();
    match words.is_empty() {
        true => Err(format!(
            "{text}: use exec: and a command, such as exec:/usr/sbin/hdpower"
        )),
        false => Ok(PowerCommand(words)),
    }
}

/// What memory is cut into.
pub(crate) const DESTAGE_STEP: u64 = 64 << 10;

/// Memory for what is on its way home: whole buffers, so many that a way home goes on, and no more than a log is likely to have.
pub(crate) fn parse_destage_memory(text: &str) -> Result<u64, String> {
    let memory = parse_size(text)?;
    match memory {
        _ if !(1 << 20..=1 << 30).contains(&memory) => {
            Err(format!("{text}: use 1M to 1G of memory for a destage"))
        }
        _ if !memory.is_multiple_of(DESTAGE_STEP) => Err(format!(
            "{text}: use a multiple of 64K for the memory of a destage"
        )),
        _ => Ok(memory),
    }
}

/// `on` or `off`.
pub(crate) fn whether_parser() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new(["on", "off"]).map(|whether| whether == "on")
}

/// For types whose values have names: the function that reads a name from the configuration, and the parser
/// of the command line, where help and completions list the names.
macro_rules! by_name {
    ($($read:ident, $parser:ident: $value:ty, $what:literal;)*) => {$(
        pub(crate) fn $read(text: &str) -> Result<$value, String> {
            let names = <$value>::ALL.map(<$value>::name);
            <$value>::named(text).ok_or_else(|| no_such($what, text, &names))
        }

        pub(crate) fn $parser() -> impl TypedValueParser<Value = $value> {
            PossibleValuesParser::new(<$value>::ALL.map(<$value>::name))
                .map(|name| <$value>::named(&name).expect("one of those"))
        }
    )*};
}

by_name! {
    parse_order, order_parser: Order, "order";
    parse_destage_order, destage_order_parser: DestageOrder, "order";
    parse_redirect, redirect_parser: Redirect, "redirect policy";
    parse_rule, rule_parser: Rule, "rule";
}

/// Bytes as a person reads them, exact where a whole number of a unit says it: `64K`, `1.4G`.
#[derive(Clone, Copy)]
pub(crate) struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fitting = UNITS.iter().rev().find(|(_, shift)| self.0 >> shift > 0);
        let Some((unit, shift)) = fitting else {
            return write!(f, "{}", self.0);
        };
        let tenths = (u128::from(self.0) * 10) >> shift;
        match (tenths / 10, tenths % 10) {
            (whole, 0) => write!(f, "{whole}{unit}"),
            (whole, tenth) => write!(f, "{whole}.{tenth}{unit}"),
        }
    }
}

/// Bytes to the last one, in the largest unit that is a whole number of them: `64K`, `1152K`.
#[derive(Clone, Copy)]
pub(crate) struct Exact(pub u64);

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |(_, shift): &&(char, u32)| self.0 > 0 && self.0.trailing_zeros() >= *shift;
        match UNITS.iter().rev().find(whole) {
            Some((unit, shift)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Seconds as a person reads them: `42s`, `3m 20s`, `2h 05m`.
pub(crate) fn seconds(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_a_destage_has_bounds_and_steps() {
        assert_eq!(parse_destage_memory("1M"), Ok(1 << 20));
        assert_eq!(parse_destage_memory("1G"), Ok(1 << 30));
        let wrong = |text: &str| parse_destage_memory(text).expect_err("it is wrong");
        for text in ["0", "1023K", "2G"] {
            assert!(wrong(text).contains("use 1M to 1G"), "{}", wrong(text));
        }
        assert!(wrong("1025K").contains("a multiple of 64K"));
        assert!(parse_destage_order("mcfd").is_ok() && parse_destage_order("pr").is_err());
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse_size("512"), Ok(512));
        assert_eq!(parse_size("64K"), Ok(65536));
        assert_eq!(parse_size("64k"), Ok(65536));
        assert_eq!(parse_size("2GiB"), Ok(2 << 30));
        assert_eq!(parse_size("1T"), Ok(1 << 40));
        for wrong in ["", "K", "1.5G", "-1", "1X", "99999999999T", "1 K", "é"] {
            assert!(parse_size(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_configurations_manual_lists_every_rule() {
        let manual = include_str!("../../../docs/reference/configuration.md");
        let of_key = |line: &&str| line.starts_with("| `cache-policy` |");
        let line = manual.lines().find(of_key).expect("the key has a line");
        for rule in Rule::ALL {
            assert!(line.contains(&format!("`{}`", rule.name())), "{rule:?}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(parse_time("0s"), Ok(Duration::ZERO));
        assert!(parse_wait("0s").is_err() && parse_wait("1ms").is_ok());
        assert!(parse_memory("0").is_err() && parse_memory("1M").is_ok());
        let (many, more) = ("99999999999999999999s", "9999999999999999h");
        for wrong in ["30", "s", "1d", "", "1.5s", many, more] {
            assert!(parse_time(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn zones_and_epochs_have_a_least() {
        assert_eq!(parse_zone("384K"), Ok(384 << 10));
        assert_eq!(parse_epoch("1m"), Ok(Duration::from_secs(60)));
        for wrong in ["0", "512", "12X"] {
            assert!(parse_zone(wrong).is_err(), "{wrong}");
        }
        for wrong in ["0s", "999ms", "ever"] {
            assert!(parse_epoch(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_have_two_sides() {
        for (text, min, max) in [
            ("1M..2M", 1 << 20, 2 << 20),
            ("..2M", 0, 2 << 20),
            ("1M..", 1 << 20, u64::MAX),
        ] {
            assert_eq!(parse_rate(text), Ok(Rate { min, max }));
        }
        let told = |text| parse_rate(text).map(|rate| rate.to_string());
        for (text, wanted) in [
            ("10M..200M", "10M/s at least, 200M/s at most"),
            ("10..2000", "10 bytes/s at least, 1.9K/s at most"),
            ("..2M", "no minimum, 2M/s at most"),
            ("1M..", "1M/s at least, no maximum"),
        ] {
            assert_eq!(told(text).as_deref(), Ok(wanted));
        }
        for wrong in ["1M", "2M..1M", "..0", "a..b"] {
            assert!(parse_rate(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn sizes_are_shown_short() {
        let shown = [0, 1000, 65536, 1500 << 20, u64::MAX].map(|b| Size(b).to_string());
        assert_eq!(shown, ["0", "1000", "64K", "1.4G", "16777215.9T"]);
        let bytes = [0, 1000, 65536, 1152 << 10, 3 << 40, u64::MAX];
        let exact = bytes.map(|b| Exact(b).to_string());
        let wanted = ["0", "1000", "64K", "1152K", "3T", "18446744073709551615"];
        assert_eq!(exact, wanted);
        assert_eq!([5, 200, 7500].map(seconds), ["5s", "3m 20s", "2h 05m"]);
    }
}
