//! Scales of axes, linear and logarithmic, and the round numbers on them.

/// From numbers to parts of an axis.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Scale {
    pub low: f64,
    pub high: f64,
    pub logarithmic: bool,
}

/// Every axis has as many numbers or more.
pub(crate) const NUMBERS_MIN: usize = 3;

impl Scale {
    /// From the smallest value to the largest, without room around them; `None` of no finite value.
    pub(crate) fn tight(values: impl Iterator<Item = f64>, logarithmic: bool) -> Option<Scale> {
        let finite = values.filter(|value| value.is_finite());
        let ends = finite.fold(None, |ends, value| match ends {
            None => Some((value, value)),
            Some((low, high)) => Some((value.min(low), value.max(high))),
        });
        let (low, high) = ends?;
        let logarithmic = logarithmic && low > 0.0;
        let (low, high) = match (low < high, logarithmic) {
            (true, _) => (low, high),
            (false, true) => (low / 2.0, high * 2.0),
            (false, false) => (low - 0.5, high + 0.5),
        };
        Some(Scale {
            low,
            high,
            logarithmic,
        })
    }

    /// The same with its ends at round numbers. A linear scale begins at zero unless all values lie in its
    /// upper part.
    pub(crate) fn round(values: impl Iterator<Item = f64>, logarithmic: bool) -> Option<Scale> {
        let mut scale = Scale::tight(values, logarithmic)?;
        if scale.logarithmic {
            let room = (scale.high / scale.low).powf(0.04);
            scale.low /= room;
            scale.high *= room;
            return Some(scale);
        }
        let far = scale.low > 0.6 * scale.high && scale.high > 0.0;
        if scale.low >= 0.0 && !far {
            scale.low = 0.0;
        }
        let step = step(scale.high - scale.low, 10);
        scale.low = (scale.low / step).floor() * step;
        scale.high = (scale.high / step).ceil() * step;
        Some(scale)
    }

    /// From zero on: for bars, whose length is their value.
    pub(crate) fn from_zero(values: impl Iterator<Item = f64>) -> Option<Scale> {
        let scale = Scale::tight(values, false)?;
        let most = if scale.high > 0.0 { scale.high } else { 1.0 };
        Some(Scale {
            low: scale.low.min(0.0),
            high: most,
            logarithmic: false,
        })
    }

    /// 0 at the low end, 1 at the high one; values beyond are at the ends.
    pub(crate) fn part(&self, value: f64) -> f64 {
        let part = match self.logarithmic {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        match part.is_nan() {
            true => 0.0,
            false => part.clamp(0.0, 1.0),
        }
    }

    pub(crate) fn holds(&self, value: f64) -> bool {
        let slack = (self.high - self.low) * 1e-9;
        (self.low - slack..=self.high + slack).contains(&value)
    }

    /// Round numbers on it, from many to few: each set has fewer than the one before, and at least
    /// [`NUMBERS_MIN`].
    pub(crate) fn numbers(&self) -> Vec<Vec<f64>> {
        let mut sets: Vec<Vec<f64>> = Vec::new();
        let decades = [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]];
        if self.logarithmic {
            sets.extend(decades.map(|steps| self.of_decades(steps, 1)));
            sets.extend((2..=6).map(|every| self.of_decades(&[1.0], every)));
        }
        let linear = !self.logarithmic || self.high / self.low < 20.0;
        if linear {
            sets.extend((3..=14).rev().map(|about| self.multiples(about)));
        }
        sets.retain(|set| set.len() >= NUMBERS_MIN);
        if sets.is_empty() {
            sets.extend((3..=60).map(|about| self.multiples(about)));
            sets.retain(|set| set.len() >= NUMBERS_MIN);
            sets.truncate(1);
        }
        sets.sort_by_key(|set| std::cmp::Reverse(set.len()));
        sets.dedup_by_key(|set| set.len());
        sets
    }

    fn of_decades(&self, steps: &[f64], every: i32) -> Vec<f64> {
        let first = decade_of(self.low);
        let last = decade_of(self.high);
        let decades = (first..=last).filter(|decade| decade % every == 0);
        let of = |decade| steps.iter().map(move |step| times_ten(*step, decade));
        decades
            .flat_map(of)
            .filter(|value| self.holds(*value))
            .collect()
    }

    fn multiples(&self, about: u32) -> Vec<f64> {
        let step = step(self.high - self.low, about);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        let numbers = (first..=last).take(100);
        numbers.map(|number| number as f64 * step).collect()
    }
}

/// The smallest of 1, 2 and 5 times a power of ten that divides a span in at most `about` parts.
fn step(span: f64, about: u32) -> f64 {
    let rough = span / f64::from(about);
    let decade = decade_of(rough);
    let steps = [1.0, 2.0, 5.0].map(|step| times_ten(step, decade));
    let found = steps.into_iter().find(|step| *step >= rough * (1.0 - 1e-9));
    found.unwrap_or_else(|| times_ten(1.0, decade + 1))
}

/// The power of ten that is not above a value.
fn decade_of(value: f64) -> i32 {
    let mut decade = value.log10().floor() as i32;
    if times_ten(1.0, decade) > value {
        decade -= 1;
    }
    if times_ten(1.0, decade + 1) <= value {
        decade += 1;
    }
    decade
}

/// By a product, which has the same bits on every machine; `powi` promises none.
fn times_ten(value: f64, decade: i32) -> f64 {
    let power = (0..decade.unsigned_abs()).fold(1.0, |power, _| power * 10.0);
    match decade < 0 {
        true => value / power,
        false => value * power,
    }
}

/// Four digits that count, without zeros behind the point, and with commas between thousands.
pub(crate) fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let decimals = usize::try_from((3 - decade_of(value.abs())).clamp(0, 9)).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    thousands(text)
}

/// Commas in a whole number of five digits or more.
fn thousands(text: &str) -> String {
    let digits = text.trim_start_matches('-');
    if digits.contains('.') || digits.len() < 5 {
        return text.to_string();
    }
    let mut out = text[..text.len() - digits.len()].to_string();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(low: f64, high: f64, logarithmic: bool) -> Scale {
        Scale {
            low,
            high,
            logarithmic,
        }
    }

    #[test]
    fn every_axis_has_three_numbers_or_more_within_it() {
        for (low, high) in [
            (0.0, 1.0),
            (11.0, 14.0),
            (0.08, 872.0),
            (1.0, 1.001),
            (9.7, 10.2),
            (3.0, 4e9),
            (0.5, 70.0),
            (2.0, 17.0),
        ] {
            for logarithmic in [false, true] {
                let scale = scale(low, high, logarithmic && low > 0.0);
                let sets = scale.numbers();
                assert!(!sets.is_empty(), "{scale:?}");
                for set in sets {
                    assert!(set.len() >= NUMBERS_MIN, "{scale:?} {set:?}");
                    assert!(set.iter().all(|value| scale.holds(*value)), "{scale:?}");
                    assert!(set.windows(2).all(|two| two[0] < two[1]));
                }
            }
        }
    }

    #[test]
    fn ends_are_round_and_bars_begin_at_zero() {
        let ends = |low: f64, high: f64| {
            let scale = Scale::round([low, high].into_iter(), false).expect("finite");
            (scale.low, scale.high)
        };
        assert_eq!(ends(12.0, 97.0), (0.0, 100.0));
        // Values that differ by a few percent fill the range.
        assert_eq!(ends(172.3, 187.9), (172.0, 188.0));
        assert_eq!(ends(-3.0, 7.5), (-4.0, 8.0));
        let bars = Scale::from_zero([90.0, 91.0].into_iter()).expect("finite");
        assert_eq!((bars.low, bars.high), (0.0, 91.0));
        assert_eq!(Scale::round(std::iter::empty(), true), None);
    }

    #[test]
    fn numbers_are_read_at_once() {
        let shown = [0.30000000000000004, 12000.0, 1.5e6, 872.4, 0.0125, -20000.0].map(number);
        assert_eq!(
            shown,
            ["0.3", "12,000", "1,500,000", "872.4", "0.0125", "-20,000"]
        );
    }

    #[test]
    fn a_part_is_logarithmic_and_stays_on_the_axis() {
        let scale = scale(1.0, 100.0, true);
        assert!((scale.part(10.0) - 0.5).abs() < 1e-12);
        assert_eq!((scale.part(0.0), scale.part(1e9)), (0.0, 1.0));
    }
}
