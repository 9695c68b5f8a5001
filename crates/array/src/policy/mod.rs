//! Policies decide and cannot act: small deterministic machines over a read-only view.

pub(crate) mod marks;
mod md;
mod own;
pub(crate) mod throttle;
pub(crate) mod traffic;
