//! Exact numbers: what a person writes (`1e6h`, `0.05`) is a rational, and stays one until it is shown.

use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};
use std::ops::{Add, Div, Mul};

/// A rational of any size.
pub type Exact = BigRational;

/// Beyond this many digits either side of the point a number is a slip, and its rational would only cost time.
const DECIMAL_PLACES_MAX: i64 = 40;

/// Hours of each unit, as numerator and denominator. A year has 365 days.
const TIMES: [(&str, i64, i64); 7] = [
    ("ms", 1, 3_600_000),
    ("s", 1, 3600),
    ("m", 1, 60),
    ("h", 1, 1),
    ("d", 24, 1),
    ("w", 168, 1),
    ("y", 8760, 1),
];

/// What an elimination needs of its numbers: no subtraction, so floats lose nothing to cancellation.
pub trait Number:
    Clone + Zero + Add<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    fn of(exact: &Exact) -> Self;
}

impl Number for f64 {
    fn of(exact: &Exact) -> f64 {
        to_float(exact)
    }
}

impl Number for Exact {
    fn of(exact: &Exact) -> Exact {
        exact.clone()
    }
}

pub fn whole(number: usize) -> Exact {
    Exact::from_integer(number.into())
}

pub fn to_float(exact: &Exact) -> f64 {
    // `to_f64` answers with infinity beyond the range, and always answers for a denominator that is not zero.
    exact.to_f64().unwrap_or(f64::INFINITY)
}

/// `12`, `0.05`, `1e-3`, `1.2e6`: a number of zero or more.
pub fn parse_number(text: &str) -> Result<Exact, String> {
    let wrong = || format!("{text:?} is not a number such as 12, 0.05 or 1e-3");
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().map_err(|_| wrong())?),
        None => (text, 0),
    };
    let (front, back) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{front}{back}");
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let places = i64::try_from(back.len()).map_err(|_| wrong())?;
    let shift = exponent.checked_sub(places).ok_or_else(wrong)?;
    if !plain
        || !(-DECIMAL_PLACES_MAX..=DECIMAL_PLACES_MAX).contains(&shift)
        || places > DECIMAL_PLACES_MAX
    {
        return Err(wrong());
    }
    let digits: u128 = digits.parse().map_err(|_| wrong())?;
    let shift = i32::try_from(shift).expect("within the places allowed");
    Ok(Exact::from_integer(digits.into()) * ten_to(shift))
}

fn ten_to(power: i32) -> Exact {
    Exact::from_integer(10.into()).pow(power)
}

/// `1e6h`, `24h`, `90m`, `3.5d`, `5y`: a time in hours, exact; the unit is never left out.
pub fn parse_hours(text: &str) -> Result<Exact, String> {
    let wrong = || format!("{text:?} is not a time such as 90m, 24h, 3.5d, 5y or 1e6h");
    let last = text.rfind(|c: char| !c.is_ascii_alphabetic());
    let split = last.map_or(0, |last| last + 1);
    if !text.is_char_boundary(split) {
        return Err(wrong());
    }
    let found = TIMES.iter().find(|(unit, _, _)| *unit == &text[split..]);
    let (_, hours, of) = found.ok_or_else(wrong)?;
    let number = parse_number(&text[..split]).map_err(|_| wrong())?;
    Ok(number * Exact::new((*hours).into(), (*of).into()))
}

/// Whether it can be a probability.
pub fn is_probability(exact: &Exact) -> bool {
    !exact.is_negative() && *exact <= Exact::one()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(numerator: i64, denominator: i64) -> Exact {
        Exact::new(numerator.into(), denominator.into())
    }

    #[test]
    fn numbers_are_exact() {
        assert_eq!(parse_number("0.1"), Ok(ratio(1, 10)));
        assert_eq!(parse_number("1.25e2"), Ok(ratio(125, 1)));
        assert_eq!(parse_number("1e-3"), Ok(ratio(1, 1000)));
        assert_eq!(parse_number(".5"), Ok(ratio(1, 2)));
        for wrong in [
            "", ".", "-1", "+1", "1e", "1e99", "e3", "1 ", "nan", "1.e1.2", "é",
        ] {
            assert!(parse_number(wrong).is_err(), "{wrong:?}");
        }
        assert!(parse_number(&"9".repeat(60)).is_err());
        assert!(parse_number("1e-9223372036854775808").is_err());
    }

    #[test]
    fn times_have_units() {
        assert_eq!(parse_hours("1e6h"), Ok(ratio(1_000_000, 1)));
        assert_eq!(parse_hours("90m"), Ok(ratio(3, 2)));
        assert_eq!(parse_hours("1.5d"), Ok(ratio(36, 1)));
        assert_eq!(parse_hours("2y"), Ok(ratio(17_520, 1)));
        assert_eq!(parse_hours("36s"), Ok(ratio(1, 100)));
        for wrong in ["24", "h", "1e6", "-1h", "1 h", "1µ", "1é", "1hh", ""] {
            assert!(parse_hours(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn floats_of_large_rationals_are_right() {
        let large = ten_to(30) / ratio(3, 1);
        assert!((to_float(&large) / (1e30 / 3.0) - 1.0).abs() < 1e-15);
    }
}
