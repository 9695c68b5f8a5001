//! The array engine: software RAID as a state machine without input or output of its own.
//!
//! [`Set::handle`] takes one [`Event`] and the time, and appends [`Action`]s for the shell to carry out. The engine
//! has no clock, file, socket, thread or random source, and never looks at user bytes.
//!
//! Rules between engine and shell:
//! 1. `now` never decreases.
//! 2. Every tagged action completes exactly once, in any order, perhaps with an error, perhaps long after its member
//!    was failed. The box that went out comes back.
//! 3. Between flushes a member promises no order and no durability; a write marked `durable` is durable when it
//!    completes. The engine orders by waiting.
//! 4. The engine never blocks and never reads user bytes; it asks for [`Compute`].
//! 5. A write's buffer does not change until its reply. A read's buffer is not looked at until its reply, and
//!    nobody but the array changes it.
//! 6. Operations, slices, buffers and log entries in flight stay under limits fixed at construction.
//! 7. Same start, same events: same actions, byte for byte.
//! 8. After a batch of events the shell sends [`Event::Turn`].
//! 9. A time in which the shell could not run may be left out of `now`. Then [`Event::Paused`] comes first.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[macro_use]
mod floor;

pub mod cache;
#[doc(hidden)]
pub mod choose;
#[cfg(test)]
mod choose_model;
mod claims;
mod clients;
mod commands;
mod config;
mod durability;
mod facts;
mod fills;
mod instance;
mod intake;
mod members;
mod metadata;
mod part;
mod policy;
mod revival;
mod roles;
mod runset;
mod safety;
mod set;
mod shown;
mod slab;
mod slice;
mod start;
mod targets;
mod task;

/// What members record, and which of the members that are here make up the array ([`choose`](meta::choose::choose)).
pub mod meta {
    pub use crate::choose::{self, Candidate, Choice, admit, choose, copies_of, newest_of};
    pub use restripe_format::meta::*;
}

/// Parts of a set that a tier reaches beside the contract.
#[doc(hidden)]
pub mod parts {
    pub use crate::claims::refuse_all;
    pub use crate::clients::Copies;
    pub use crate::contract::Bug;
    pub use crate::facts::{NEVER, Ties};
    pub use crate::members::device::Power;
    pub use crate::members::ops::{BlockCopy, Boxes};
    pub use crate::members::pool::{Buffers, Share, Size};
    pub use crate::metadata::suspects::{Attempt, Suspects};
    pub use crate::part::{Noted, Part};
    pub use crate::revival::{RETRY, Refused, TAG, keep_untold};
    pub use crate::runset::RunSet;
    pub use crate::slice::rows::Handed;
}

pub use config::{CacheLimits, Config, Limits};
use restripe_contract as contract;
pub use restripe_contract::*;
pub use restripe_format::layout;
use restripe_format::units;
pub use set::Set;
pub use shown::{Shown, shown, shown_lines};
pub use slab::Slab;
pub use units::*;
