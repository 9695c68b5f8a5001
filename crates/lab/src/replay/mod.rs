//! Replay: requests of a trace or a generator against an array, simulated or real, with one log of facts.
//!
//! | module | owns |
//! |---|---|
//! | [`source`] | requests as the array takes them: one address space, whole sectors, within its size |
//! | [`stage`] | the simulated array |
//! | [`link`] | a network between the array and some of its drives |
//! | [`meter`] | drives that can be asked how busy they were and what they drew |
//! | [`simulated`] | replay in virtual time |
//! | `second` | a second failure before the first is rebuilt, and what is lost |
//! | [`real`] | replay on a real array, over NBD or in this process |
//! | [`record`] | from answers to the log, for every world |
//! | [`facts`] | the log |
//! | [`answer`] | the log in sentences |
//! | [`histogram`] | times in a histogram of fixed size |
//!
//! Requests stream: memory grows with neither the trace nor the time that a replay takes, but for its course
//! in steps.

pub mod answer;
pub mod facts;
pub mod histogram;
pub mod link;
pub mod meter;
pub mod real;
pub mod record;
mod second;
pub mod simulated;
pub mod source;
pub mod stage;

/// When requests are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// At the trace's own times, all of them divided by `speed_milli` thousandths. A request that finds
    /// [`OUTSTANDING_MAX`] outstanding waits, and its wait counts in its response time.
    Open { speed_milli: u64 },
    /// So many are kept outstanding, whatever the times.
    Closed { depth: u32 },
}

/// Requests outstanding at most, open loop.
pub const OUTSTANDING_MAX: u32 = 1024;

/// What begins a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    Nothing,
    /// A member is taken out of service.
    Fail(u16),
    /// A blank drive arrives; the array rebuilds onto it.
    Spare,
    /// Power goes and comes back; without a record of what was being written the array resynchronises all rows. Requests that
    /// were under way are gone, and those to come are later by as long as the array takes to start.
    Crash,
    /// The rows of a healthy array are checked.
    Check,
    /// The array grows by its spares, by the least moves.
    Grow,
    /// The same, and keeps the plain layout.
    Reshape,
}

/// What ends a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// So many nanoseconds have passed.
    Passed(u64),
    /// The rebuild, the resynchronisation, the check or the growth has ended, or so many nanoseconds have passed.
    Rebuilt(u64),
    /// A second member has failed when these thousandths of the rows were rebuilt, and all is redundant
    /// again, or never will be; or `most` nanoseconds have passed.
    RebuiltTwice {
        member: u16,
        at_milli: u32,
        most: u64,
    },
    /// The time `before` has passed since the phase before this one began; if that phase lasted as long,
    /// `least` since this one began. In nanoseconds.
    Since { before: u64, least: u64 },
    /// The last request is answered.
    Exhausted,
}

/// A phase as planned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    pub name: String,
    pub deed: Deed,
    pub until: Until,
}

impl Plan {
    pub fn new(name: &str, deed: Deed, until: Until) -> Plan {
        Plan {
            name: name.into(),
            deed,
            until,
        }
    }
}

/// How a replay goes: its pace, its phases, and the length of a step of its course.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    pub pace: Pace,
    pub plans: Vec<Plan>,
    pub step_ns: u64,
}
