//! The engine: owns the parts and routes events to them. It decides nothing itself.

use crate::contract::{Actions, Event, MemberInfo, Pool};
use crate::report::Status;
use crate::units::Nanos;
use alloc::vec::Vec;

/// What an engine is built with. Everything about the array itself comes from its members' metadata.
#[derive(Clone, Debug)]
pub struct Config {
    /// The devices that the shell has opened, in the order of their [`crate::Member`] numbers.
    pub members: Vec<MemberInfo>,
    pub limits: Limits,
    /// An operation outstanding for longer fails its member.
    pub io_timeout: Nanos,
}

/// Bounds, fixed at construction.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub pool: Pool,
    /// Requests accepted and not yet replied to; see [`Engine::ready`].
    pub requests: u32,
    pub slices: u32,
    /// Device operations in flight.
    pub ios: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { pool: Pool { small: 4096, large: 512 }, requests: 1024, slices: 512, ios: 4096 }
    }
}

pub struct Engine {
    config: Config,
}

impl Engine {
    pub fn new(config: Config) -> Engine {
        Engine { config }
    }

    /// One step: takes an event, appends what is to be done about it.
    pub fn handle(&mut self, now: Nanos, event: Event, actions: &mut Actions) {
        let _ = (now, event, actions, &self.config);
    }

    /// Whether another request is accepted now. A shell holds requests back while this is false.
    pub fn ready(&self) -> bool {
        true
    }

    /// A view of the whole array, for people and metrics.
    pub fn status(&self) -> Status {
        Status::default()
    }
}
