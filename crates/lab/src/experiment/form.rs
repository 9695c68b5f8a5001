//! How the members of an array are grouped, by a name.

use serde::Deserialize;

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
