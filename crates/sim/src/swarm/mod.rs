//! A whole run from one seed: an array, its users, what goes wrong, and whether every promise held.
//!
//! A run has several lives. Each starts the engine on the disks that are there, serves requests while faults
//! come, and ends in a crash or an orderly stop. The last life is calm: it lets the tasks end, reads
//! everything, checks parity on the media, stops, starts again and reads everything once more.
//!
//! `life` has the course of a run, and `ends` the ends of its lives. Each other module does one thing to an
//! array: `faults` what chance brings, `directed` an incident in a phase of a task, `triggers` one while
//! slices do something particular, `hosts` what meets hosted partitions, `copies` old copies and halves,
//! `excess` more failures than the level tolerates.

mod copies;
mod coverage;
mod directed;
mod ends;
mod excess;
mod faults;
mod hosts;
mod life;
pub(crate) mod plan;
mod triggers;
mod verify;

pub use crate::run::DEATHS_ALONE;
pub use copies::{COPIES_BACK, HALVES_MET};
pub use coverage::{Coverage, Hosting, Incident, Moment, Phase, Scene};
pub use excess::{RUINS, RUINS_IN_VAIN};
pub use hosts::{HOSTS_BACK, PLACES_LINGERED, PLACES_NEEDED, crowded};
pub use life::{BLOCKS_CACHED, HALTS, STARTS_WITHOUT_SPACE, UNPLUGGED};
pub use plan::bug;
pub use plan::{FAMILIES, Family, Options, Plan, Roughness};

use crate::invariant::Violation;
use life::Run;

/// What came of a seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub violations: Vec<Violation>,
    /// Of all actions of all lives.
    pub digest: u64,
    pub coverage: Coverage,
    pub ios: u64,
    pub requests: u64,
}

/// Runs one seed.
pub fn run(seed: u64, options: &Options) -> Outcome {
    Run::new(seed, *options).finish()
}
