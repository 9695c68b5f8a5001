//! The simulated world: the real engine in virtual time, on disks that fail, under an oracle.
//!
//! [`world::World`] is the event heap with an engine. [`disk`] and [`fault`] are its devices and their
//! failures. [`oracle`] computes the permitted contents of every sector. [`swarm`] makes a whole run from
//! one seed, and [`crash`] enumerates the images that a power cut may leave. All of it is deterministic: a
//! seed is a run.
#![forbid(unsafe_code)]

/// Gives a kind the list of its values, in this order.
macro_rules! all {
    ($kind:ident { $($value:ident $(($of:expr))?),+ $(,)? }) => {
        impl $kind {
            pub const ALL: [$kind; [$(stringify!($value)),+].len()] = [$($kind::$value $(($of))?),+];
        }
    };
}

pub mod array;
pub mod atlas;
pub mod compute;
pub mod crash;
pub mod digest;
pub mod disk;
pub mod enumerate;
pub mod fault;
pub mod image;
pub mod invariant;
pub mod memory;
pub mod oracle;
pub mod payload;
pub mod program;
pub mod rng;
mod run;
pub mod session;
pub mod surrogate;
pub mod swarm;
pub mod tally;
pub mod workload;
pub mod world;
