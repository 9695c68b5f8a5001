//! An array of a main set and a log set, each a complete set, and the path of requests between them and clients.
//!
//! [`Engine`] is the interface for reactors: one set, or a main set with a log set. Its contract is that of
//! [`restripe_array`], where a set has no knowledge of a log set.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[macro_use]
mod floor;

mod config;
mod engine;
pub mod overlay;
mod pair;
mod policy;
pub mod report;

pub use config::{Config, Destage, Redirect, Sleep, SurrogateConfig, SurrogateLimits};
pub use engine::Engine;
pub use pair::Budget;
pub use policy::destage;
