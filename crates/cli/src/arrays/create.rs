//! A new set on its devices: what may be made, its plan of writes, and the writes. `create` makes whole arrays of such
//! sets; a daemon makes a surrogate for an array that it serves.

pub(crate) mod at_once;
pub(crate) mod buffer;
pub(crate) mod devices;
pub(crate) mod plan;
pub(crate) mod skew;
pub(crate) mod surrogate;
pub(crate) mod write;
