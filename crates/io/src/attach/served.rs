//! A device that this daemon serves, whichever driver has it.

use super::record::{Places, Record};
use crate::control::Refusal;

/// What a look after a device did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tended {
    /// All is as it should be.
    Well,
    /// Connections that had died were replaced.
    Reconnected(usize),
    /// The array has this size now, and so has the device.
    Resized(u64),
    /// Something else has disconnected the device: it is not attached any more.
    Gone,
}

/// A device that is served.
pub(super) trait Served: Send {
    fn record(&self) -> &Record;

    fn places(&self) -> &Places;

    /// Connections between kernel and daemon that live.
    fn connections(&self) -> usize;

    fn tend(&mut self, size_bytes: u64) -> Result<Tended, Refusal>;

    fn detach(&self, may_end: &dyn Fn() -> Result<(), Refusal>) -> Result<(), Refusal>;
}
