//! Policies decide and cannot act: small deterministic machines over a read-only view.

pub(crate) mod cleaning;
pub mod destage_order;
