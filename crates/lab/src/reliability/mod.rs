//! The time for which arrays keep their data: Markov chains solved exactly and in floats, and a simulation
//! of single disks.
//!
//! A [`Model`] says which disks protect each other: groups of disks, each with the number of losses that it
//! tolerates. [`Conditions`] are the lifetimes of disks and their repairs. The two give a [`Chain`], whose
//! mean time to data loss is solved by one elimination over rationals or floats, and a simulation
//! ([`simulate`]) that has disks instead of states. Each checks the other.
//!
//! | module | owns |
//! |---|---|
//! | [`chain`] | states and rates, and the expectations until data is lost |
//! | [`mission`] | the probability of loss, and the number of losses, within a time |
//! | [`conditions`] | lifetimes, repairs, spares, unreadable sectors |
//! | [`model`] | the models by name, and their chains by counting |
//! | [`even`] | chains by counting, for too many sets of failed disks: all sets are assumed equally likely |
//! | [`sets`] | chains over sets of failed disks, for layouts in which it matters which disks failed |
//! | [`papers`] | the systems of the papers, as groups, and the formulas that they print |
//! | [`simulate`] | lives of single disks, from seeds |
//! | [`quantity`] | numbers and times as exact rationals |

pub mod chain;
pub mod conditions;
pub mod even;
pub mod mission;
pub mod model;
pub mod papers;
pub mod quantity;
pub mod sets;
pub mod simulate;

pub use chain::Chain;
pub use conditions::{Conditions, Repair};
pub use model::Model;
pub use quantity::Exact;
