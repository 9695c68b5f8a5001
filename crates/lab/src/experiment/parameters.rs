//! The parameters that a settings type has, and those that may be left out, as its own `Deserialize` defines
//! them.
//!
//! So the list of missing parameters, the parameters that `--set` accepts and the document agree with the
//! code. A type is asked for its fields, and then built from more and more of them until none is missing.

use super::value::Point;
use crate::nearest;
use serde::de::{DeserializeOwned, Deserializer, Error, IntoDeserializer, MapAccess, Visitor};
use serde::forward_to_deserialize_any;
use std::fmt;

/// The keys of one table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keys {
    pub all: &'static [&'static str],
    pub required: Vec<&'static str>,
}

impl Keys {
    pub fn of<T: DeserializeOwned>() -> Keys {
        let mut keys = Keys {
            all: &[],
            required: Vec::new(),
        };
        loop {
            let mut asked = Asked { keys: &mut keys };
            match T::deserialize(&mut asked) {
                Err(Refused::Missing(name)) => keys.required.push(name),
                _ => return keys,
            }
        }
    }

    /// The required ones that a table lacks.
    pub fn missing<'a>(
        &'a self,
        table: &'a toml::Table,
    ) -> impl Iterator<Item = &'static str> + 'a {
        let required = self.required.iter().copied();
        required.filter(|name| !table.contains_key(*name))
    }
}

impl Keys {
    /// Says of each key of a table that is none of these what may have been meant; `of` says whose key it is.
    pub fn unknown(&self, table: &toml::Table, of: &str) -> Vec<String> {
        let unknown = table.keys().filter(|key| !self.all.contains(&key.as_str()));
        let said = unknown.map(|key| {
            let what = nearest::nearest(key, self.all.iter().copied());
            let meant = what.map_or_else(String::new, |meant| format!("; the nearest is {meant}"));
            format!("there is no key '{key}'{of}{meant}")
        });
        said.collect()
    }
}

/// Parameters by group, each a table of its own.
pub type Groups = Vec<(&'static str, Keys)>;

/// Settings whose parameters are in groups.
pub trait Grouped: DeserializeOwned {
    fn groups() -> Groups;

    /// Why nothing can be run at a point, as far as it shows before a run. What is said of one parameter
    /// begins with its path.
    fn check_point(point: &Point) -> Result<(), String>;

    /// The paths of the parameters that must be given.
    fn required() -> Vec<String> {
        let of = |(group, keys): (&'static str, Keys)| {
            let paths = keys.required.into_iter();
            paths.map(move |name| format!("{group}.{name}"))
        };
        Self::groups().into_iter().flat_map(of).collect()
    }

    /// The paths of all parameters.
    fn all() -> Vec<String> {
        let of = |(group, keys): (&'static str, Keys)| {
            keys.all.iter().map(move |name| format!("{group}.{name}"))
        };
        Self::groups().into_iter().flat_map(of).collect()
    }
}

/// Why a type could not be built.
#[derive(Debug)]
enum Refused {
    Missing(&'static str),
    Other,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Refused {}

impl Error for Refused {
    fn custom<T: fmt::Display>(_: T) -> Refused {
        Refused::Other
    }

    fn missing_field(name: &'static str) -> Refused {
        Refused::Missing(name)
    }
}

/// A table that has the required keys found so far.
struct Asked<'a> {
    keys: &'a mut Keys,
}

impl<'de> Deserializer<'de> for &mut Asked<'_> {
    type Error = Refused;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Refused> {
        Err(Refused::Other)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.keys.all = fields;
        visitor.visit_map(Given(self.keys.required.clone().into_iter()))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct Given(std::vec::IntoIter<&'static str>);

impl<'de> MapAccess<'de> for Given {
    type Error = Refused;

    fn next_key_seed<K: serde::de::DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Refused> {
        let next = self.0.next();
        next.map(|name| seed.deserialize(name.into_deserializer()))
            .transpose()
    }

    fn next_value_seed<S: serde::de::DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, Refused> {
        seed.deserialize(Blank)
    }
}

/// A value of whatever type is wanted: nothing, of it.
struct Blank;

impl<'de> Deserializer<'de> for Blank {
    type Error = Refused;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_u64(0)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_bool(false)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_f64(0.0)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_str("")
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_seq(serde::de::value::SeqDeserializer::new(
            std::iter::empty::<u8>(),
        ))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_map(Given(Vec::new().into_iter()))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 char str bytes byte_buf option unit unit_struct
        newtype_struct tuple tuple_struct struct enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Sample {
        text: String,
        #[serde(default)]
        left_out: u64,
        number: f64,
        flag: bool,
        maybe: Option<u8>,
        list: Vec<String>,
        count: u16,
    }

    #[test]
    fn a_type_says_what_it_has_and_what_it_needs() {
        let keys = Keys::of::<Sample>();
        let all = [
            "text", "left_out", "number", "flag", "maybe", "list", "count",
        ];
        assert_eq!(keys.all, all);
        assert_eq!(keys.required, ["text", "number", "flag", "list", "count"]);
        let table = toml::Table::from_iter([("flag".to_string(), true.into())]);
        let missing: Vec<&str> = keys.missing(&table).collect();
        assert_eq!(missing, ["text", "number", "list", "count"]);
    }
}
