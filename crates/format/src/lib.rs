//! What lies on the members of an array: where each block of data and parity is ([`layout`]), and the superblocks, maps
//! and logs beside them ([`meta`]).
//!
//! All of it is pure: no state machine, no input or output. `docs/reference/format.md` describes every byte.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(any(test, feature = "testing"))]
pub mod format_tables;
#[macro_use]
mod macros;
pub mod layout;
pub mod meta;
pub mod units;
pub mod values;
pub mod zones;
