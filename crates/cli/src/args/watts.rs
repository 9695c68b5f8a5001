//! `--power-rating`: what a drive draws, by the name of a known one or in numbers, for an estimate of joules.

use restripe_array::energy::Rating;
use restripe_io::control::NamedRating;
use restripe_lab::drives::preset;

/// A 3.5" drive of 7200 rpm whose figures RERAID's paper prints (WD1003FBYX): what is taken where nothing else is said.
const USUAL: &str = "wd1003fbyx";
/// Watts, and joules, above this are a slip.
const MOST: f64 = 100_000.0;

pub(crate) fn usual() -> NamedRating {
    parse_watts(USUAL).expect("it is built in")
}

/// `wd1003fbyx`, or `active=8.4,idle=6.4,standby=0.8,start=135J`, and `stop=4J` too.
pub(crate) fn parse_watts(text: &str) -> Result<NamedRating, String> {
    match text.contains('=') {
        true => given(text),
        false => named(text),
    }
}

/// Known drives that have a rating.
fn names() -> Vec<&'static str> {
    let rated = |name: &&str| preset::named(name).is_ok_and(|drive| drive.power.is_some());
    preset::names().filter(rated).collect()
}

fn named(name: &str) -> Result<NamedRating, String> {
    let power = preset::named(name).ok().map(|drive| drive.power());
    let Some(Ok(Some(model))) = power else {
        let known = names().join(", ");
        return Err(format!(
            "{name:?} is neither a drive with a rating ({known}) nor numbers such as active=8.4,idle=6.4,standby=0.8,start=135J"
        ));
    };
    Ok(NamedRating {
        name: name.into(),
        rating: model.rating(),
    })
}

fn given(text: &str) -> Result<NamedRating, String> {
    let mut values: [Option<u32>; WORDS.len()] = [None; WORDS.len()];
    for part in text.split(',') {
        let (word, number) = part.split_once('=').unwrap_or((part, ""));
        let at = WORDS.iter().position(|(known, _)| *known == word.trim());
        let Some(at) = at else {
            let known = WORDS.map(|(word, _)| word).join(", ");
            return Err(format!("{part:?}: the words are {known}"));
        };
        let value = thousandths(number.trim(), WORDS[at].1)?;
        if values[at].replace(value).is_some() {
            return Err(format!("{word} is given twice"));
        }
    }
    let wanted =
        |at: usize| values[at].ok_or_else(|| format!("{text}: {} is missing", WORDS[at].0));
    Ok(NamedRating {
        name: "given".into(),
        rating: Rating {
            active_mw: wanted(0)?,
            idle_mw: wanted(1)?,
            standby_mw: wanted(2)?,
            start_mj: wanted(3)?.into(),
            stop_mj: values[4].unwrap_or(0).into(),
        },
    })
}

/// What is said, and its unit.
const WORDS: [(&str, char); 5] = [
    ("active", 'W'),
    ("idle", 'W'),
    ("standby", 'W'),
    ("start", 'J'),
    ("stop", 'J'),
];

/// `8.4`, `8.4W`: in milliwatts, or millijoules.
fn thousandths(text: &str, unit: char) -> Result<u32, String> {
    let number = text.strip_suffix(unit).unwrap_or(text);
    let value: Option<f64> = number.parse().ok();
    match value.filter(|value| (0.0..=MOST).contains(value)) {
        Some(value) => Ok((value * 1e3).round() as u32),
        None => Err(format!(
            "{text:?} is not a number of {unit} from 0 to {MOST}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rating_is_a_drives_or_given() {
        let usual = usual();
        let rating = usual.rating;
        assert_eq!(usual.name, "wd1003fbyx");
        assert_eq!(
            (rating.active_mw, rating.idle_mw, rating.standby_mw),
            (7_900, 5_900, 700)
        );
        let given = parse_watts("active=8.4,idle=6.4W, standby=0.8,start=135J").expect("sound");
        let wanted = Rating {
            active_mw: 8_400,
            idle_mw: 6_400,
            standby_mw: 800,
            start_mj: 135_000,
            stop_mj: 0,
        };
        assert_eq!((&*given.name, given.rating), ("given", wanted));
        let stops = parse_watts("active=1,idle=1,standby=1,start=1,stop=4.5J").expect("sound");
        assert_eq!(stops.rating.stop_mj, 4_500);
    }

    #[test]
    fn what_is_wrong_with_a_rating_is_said() {
        let wrong = |text: &str| parse_watts(text).expect_err("it is wrong");
        assert!(
            wrong("ssd-sata").contains("wd1003fbyx"),
            "{}",
            wrong("ssd-sata")
        );
        assert!(wrong("active=8,idle=6,standby=1").contains("start is missing"));
        assert!(wrong("active=8,active=6").contains("given twice"));
        assert!(wrong("actve=8").contains("the words are active"));
        assert!(wrong("active=-1").contains("not a number of W"));
        assert!(wrong("active=8,idle=6,standby=1,start=135W").contains("number of J"));
        assert!(wrong("active=NaN,idle=6").contains("not a number"));
    }
}
