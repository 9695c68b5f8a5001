//! An array of a main set and a log set, both complete, and the path of requests between them and clients.
//!
//! [`Engine`] is the interface for reactors: one set, or a main set with a log set. Its contract is that of
//! [`restripe_array`], where a set has no knowledge of a log set.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[macro_use]
mod floor;

mod append;
mod atomic;
mod children;
mod clean;
mod commands;
mod config;
mod deferred_mirror;
mod destage;
mod drive;
mod engine;
mod facts;
mod nvram;
pub mod overlay;
mod pack;
mod policy;
mod reads;
mod redirect;
mod remove;
pub mod report;
mod revive;
mod route;
mod sessions;
mod start;
mod stop;
mod tier;
mod view;
mod works;

pub use config::{Config, Destage, Redirect, Sleep, SurrogateConfig, SurrogateLimits};
pub use destage::Budget;
pub use engine::Engine;
pub use policy::destage_order::DestageOrder;
