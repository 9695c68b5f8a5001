//! An array with a log beside it: two sets, each whole by itself, and what lies between them and users.
//!
//! [`Engine`] is what shells hold: one set, or one with a surrogate. The rules between engine and shell are those of
//! [`restripe_array`]; a set does not know that it has a log beside it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(test)]
#[macro_use]
#[path = "../../array/src/format_tables.rs"]
mod format_tables;
#[cfg(test)]
#[path = "../../array/src/meta/random.rs"]
mod random;

mod engine;
pub mod overlay;
mod pair;
mod planted;
mod policy;
pub mod report;

pub use engine::{Config, Engine};
pub use pair::{Budget, Destage, Redirect, Sleep, SurrogateConfig, SurrogateLimits};
pub use policy::destage;
