//! How the members of an array are grouped, and how an array came to have them, by names.

use super::value::Value;
use restripe_array::layout::Level;
use restripe_array::layout::scaled::History;
use serde::Deserialize;

/// Parameters whose values are names, also where a name is a number, as `3`: three groups.
const NAMED: [&str; 18] = [
    "array.level",
    "array.skew",
    "array.grown",
    "array.write_hole",
    "array.drive",
    "array.spare_drive",
    "array.schedule",
    "array.cache_policy",
    "array.surrogate_level",
    "array.destage_order",
    "workload.source",
    "workload.replicate",
    "rebuild.task",
    "rebuild.throttle",
    "rebuild.order",
    "rebuild.redirect",
    "rebuild.scheme",
    "rebuild.moves",
];

/// A value of a parameter as its type reads it: text, for a parameter whose values are names.
pub fn for_parameter(path: &str, value: Value) -> Value {
    if NAMED.contains(&path) {
        Value::Text(value.to_string())
    } else {
        value
    }
}

/// How members are grouped, by a name: `flat` is not skewed, `3` is three groups with the most partitions, `3x5` three groups of
/// five, whatever `members` says, and `1x5` five that are not skewed; with `:1` there is one partition, and with `+1` room for
/// one of others on each member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(try_from = "String")]
pub struct Form {
    /// 0: not skewed.
    pub groups: u16,
    /// Members of a group.
    pub size: Option<u16>,
    /// 0: the most that rebuild in parallel.
    pub partitions: u16,
    pub spare_partitions: u16,
}

impl Form {
    pub const FLAT: Form = Form {
        groups: 0,
        size: None,
        partitions: 0,
        spare_partitions: 0,
    };

    fn read(name: &str) -> Option<Form> {
        if name == "flat" {
            return Some(Form::FLAT);
        }
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let number = |text: &str| {
            let number = text.parse::<u16>().ok();
            number.filter(|number| *number > 0 && digits(text))
        };
        let (name, spare_partitions) = match name.split_once('+') {
            Some((name, spare)) => (name, number(spare)?),
            None => (name, 0),
        };
        let (name, partitions) = match name.split_once(':') {
            Some((name, partitions)) => (name, number(partitions)?),
            None => (name, 0),
        };
        let (groups, size) = match name.split_once('x') {
            Some((groups, size)) => (groups, Some(number(size)?)),
            None => (name, None),
        };
        Some(Form {
            groups: number(groups)?,
            size,
            partitions,
            spare_partitions,
        })
    }
}

impl TryFrom<String> for Form {
    type Error = String;

    fn try_from(name: String) -> Result<Form, String> {
        let read = Form::read(&name);
        read.ok_or_else(|| format!("array.skew is {name:?}, not as flat, 3, 3x5, 3x5:1 or 3+1"))
    }
}

/// How many members an array had at first, and how many were added, each time, by the least moves: `4+1+1`; `6`: it never grew.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Grown(Vec<u16>);

impl Grown {
    pub fn members(&self) -> u16 {
        self.0.iter().fold(0, |sum, some| sum.saturating_add(*some))
    }

    /// Of an array of this level; none of one that never grew.
    pub fn history(&self, level: Level) -> Result<Option<History>, String> {
        let data = |members: u16| members.saturating_sub(level.parities());
        let sizes = self.0.iter().scan(0u16, |sum, some| {
            *sum = sum.saturating_add(*some);
            Some(data(*sum))
        });
        let sizes: Vec<u16> = sizes.collect();
        if sizes.len() == 1 {
            return Ok(None);
        }
        let history = History::of(&sizes);
        let history =
            history.ok_or_else(|| format!("an array does not grow as {sizes:?} data members"));
        history.map(Some)
    }
}

impl TryFrom<String> for Grown {
    type Error = String;

    fn try_from(name: String) -> Result<Grown, String> {
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let number = |text: &str| text.parse::<u16>().ok().filter(|n| *n > 0 && digits(text));
        let parts: Option<Vec<u16>> = name.split('+').map(number).collect();
        parts
            .map(Grown)
            .ok_or_else(|| format!("array.grown is {name:?}, not as 6, 5+1 or 4+1+1"))
    }
}
