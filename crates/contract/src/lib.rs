//! What passes between the engine and a shell: events in, actions out.
//!
//! Everything here is plain data, so that a run can be recorded, compared and replayed. Operations travel in
//! boxes that the engine lends out with an action and gets back with the matching event. A set allocates
//! nothing in steady state.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod command;
pub mod energy;
mod fact;
mod io;
mod pace;
mod planted;
pub mod report;
mod request;

pub use command::*;
pub use fact::*;
pub use io::*;
pub use request::*;

use alloc::boxed::Box;
use alloc::vec::Vec;
pub use pace::{LatencyGoal, Moves, Order, Throttle};
pub use planted::{Bug, PLANTED};
pub use restripe_format::meta::leases::{LeaseCommand, LeaseError, LeaseName};
pub use restripe_format::meta::{ArrayOwner, LastScrub, ScrubState, ScrubbedMember};
use restripe_format::units::{Member, Nanos};
pub use restripe_format::values::{Cure, MemberInfo, Page, ScrubMode, TaskKind, zeroed_page};
pub use restripe_format::zones::HeatLimits;
pub use restripe_format::{named, offsets};

/// An input of the engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    Request(Request),
    /// An operation ended; the box goes back to the engine. A read's pages are filled when the result is `Ok`.
    Device(Box<DeviceIo>, Result<(), IoError>),
    Compute(Box<Compute>, Verdict),
    /// The time set by the last [`Action::Wake`] has come (or passed).
    Timer,
    /// A device was opened while the array runs; its number is the next free one.
    Arrived(MemberInfo),
    /// The shell lost a device altogether. Outstanding operations still complete, with errors.
    Departed(Member),
    Command(CommandTag, Command),
    /// The shell has no more events for now: start what was gathered.
    Turn,
    /// The shell stood still for this long, which the time of events leaves out. It comes before all that the shell does next.
    Paused(Nanos),
}

/// What the engine wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    Device(Box<DeviceIo>),
    Compute(Box<Compute>),
    Reply(RequestTag, Result<(), RequestError>),
    /// Operation `tag` has been given up on: its memory now belongs to it alone. Every handle it names is backed anew,
    /// with the same contents, so that a late completion scribbles on nothing.
    Detach(Tag),
    /// Send [`Event::Timer`] at this time. Replaces the time set before.
    Wake(Nanos),
    CommandReply(CommandTag, Result<(), CommandError>),
    Fact(Fact),
}

/// The actions of one step, in order. The shell empties it; its room is kept.
pub type Actions = Vec<Action>;
