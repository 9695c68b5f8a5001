//! What a person reads: standard output, standard error, and the texts of views.

pub(crate) mod energy;
pub(crate) mod journal;
pub(crate) mod leases;
pub(crate) mod members;
pub(crate) mod skew;
pub(crate) mod status;
pub(crate) mod surrogate;
pub(crate) mod terminal;
