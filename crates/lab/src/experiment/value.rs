//! A parameter's value as scenarios write it, and the parameters of a run.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// A parameter's value.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Flag(bool),
    Whole(i64),
    Real(f64),
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag(value) => write!(f, "{value}"),
            Value::Whole(value) => write!(f, "{value}"),
            Value::Real(value) => write!(f, "{value}"),
            Value::Text(value) => f.write_str(value),
        }
    }
}

impl Value {
    /// As TOML writes it, one way for each value.
    pub fn canonical(&self) -> String {
        match self {
            Value::Text(text) => format!("{text:?}"),
            Value::Real(value) => format!("{value:?}"),
            other => other.to_string(),
        }
    }

    /// Puts the relative path of a trace, or of a drive's file, in a folder.
    pub(super) fn put_in(&mut self, folder: &Path) {
        if let Value::Text(text) = self
            && let Some((kind @ ("trace" | "file"), path)) = text.split_once(':')
        {
            *text = format!("{kind}:{}", folder.join(path).display());
        }
    }

    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Whole(value) => Some(*value as f64),
            Value::Real(value) => Some(*value),
            Value::Flag(_) | Value::Text(_) => None,
        }
    }

    /// Whether the two are equal, however a number is written.
    pub(super) fn is_same(&self, other: &Value) -> bool {
        self == other || self.number().is_some_and(|own| other.number() == Some(own))
    }

    /// As a value of TOML or JSON.
    pub fn to<T: From<bool> + From<i64> + From<f64> + for<'a> From<&'a str>>(&self) -> T {
        match self {
            Value::Flag(value) => (*value).into(),
            Value::Whole(value) => (*value).into(),
            Value::Real(value) => (*value).into(),
            Value::Text(value) => value.as_str().into(),
        }
    }
}

/// The parameters of a cell but for its seed.
pub type Point = BTreeMap<String, Value>;
