//! Synthetic workloads: block traces that are made, not measured, from parameters that are all told.
//!
//! | module | owns |
//! |---|---|
//! | [`parameters`] | every number of the model, its bounds, TOML |
//! | [`preset`] | workloads by name, from published statistics |
//! | [`arrivals`] | when requests come |
//! | [`places`] | zones by popularity, drift, places within zones |
//! | [`stack`] | what was used recently, by depth |
//! | [`generator`] | requests, one by one |
//! | [`fit`] | parameters from a trace |
//! | [`blocks`] | no model: blocks of one size, in sequence or anywhere |
//!
//! The model is told in `docs/reference/workloads.md`. The same parameters and seed give the same requests
//! on every machine and build: integers, and floats by the four operations in a fixed order (`math`).

pub mod arrivals;
pub mod blocks;
pub mod fit;
pub mod generator;
mod math;
pub mod parameters;
pub mod places;
pub mod preset;
mod random;
pub mod stack;

pub use fit::{Fitted, fit};
pub use generator::Generator;
pub use parameters::{Device, Invalid, Parameters};
pub use preset::Preset;

/// What a trace of a generator says of itself, in files too.
pub fn label(parameters: &Parameters, seed: u64) -> String {
    format!("synthetic: workload {}, seed {seed}", parameters.name)
}
