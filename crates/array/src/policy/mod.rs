//! Policies decide and cannot act: small deterministic machines over a read-only view.

pub(crate) mod goal;
pub(crate) mod heat;
pub(crate) mod latency;
mod md;
pub(crate) mod order;
pub(crate) mod spares;
pub(crate) mod throttle;
pub(crate) mod traffic;
