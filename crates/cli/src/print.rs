//! What a person reads: standard output, standard error, and the texts of views.

pub mod energy;
pub mod journal;
pub mod leases;
pub mod members;
pub mod skew;
pub mod status;
pub mod surrogate;
pub mod terminal;
