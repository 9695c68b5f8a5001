//! Arrays as their members show them: what members carry, who uses them, and what a start or a new set would do to
//! them. Nothing here runs an engine.

pub(crate) mod create;
pub(crate) mod member;
pub(crate) mod opening;
pub(crate) mod option_check;
pub(crate) mod origin;
pub(crate) mod owner;
pub(crate) mod preflight;
pub(crate) mod refusals;
pub(crate) mod remake;
pub(crate) mod sets;
pub(crate) mod setup;
pub(crate) mod signature;
