//! What must never happen, by name. The names are part of the interface: suites and replay lines quote them.

use std::fmt;

/// A rule that a run can break.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Invariant {
    /// An acknowledged write cannot be read back, without any crash.
    AckedWriteLost,
    /// A crash undid what a flush or FUA had promised.
    FlushedWriteLost,
    /// A sector holds what nobody ever wrote there.
    MadeUpBytes,
    /// A read gave what an acknowledged write had replaced before.
    StaleRead,
    /// Two reads differ although nothing was written.
    UnstableRead,
    /// Sectors that redundancy cannot bring back were not reported.
    LossNotReported,
    /// Sectors were called lost that are not.
    LossReportedWrongly,
    /// Parity or a copy does not fit the data at rest.
    ParityMismatch,
    /// Two cells of a row lie on one member, or may come to.
    RowOnOneMember,
    /// A request, command or operation never ends.
    StuckRequest,
    /// A request was refused that should have been served.
    RequestRefused,
    /// An array that had halted acknowledged something, or one halted without need.
    HaltBroken,
    /// A member was failed without a fault of its own.
    MemberFailedWrongly,
    /// A member that had what the running array has not was overwritten unasked.
    NewerOverwritten,
    /// An array that should start does not.
    StartRefused,
    /// Members that were all back did not make up the array.
    NotWholeAgain,
    /// A task ended badly, or not at all, without a fault to blame.
    TaskFailed,
    /// The engine broke a rule of its contract with the shell.
    Contract,
    /// Two writes of one range of one member were under way at once.
    OverlappingMemberWrites,
    /// Two computations that write the same memory were under way at once.
    OverlappingComputes,
    /// The memory of a write under way changed.
    BufferChangedInFlight,
    /// Home is written, or going to be, while a mirror stands still.
    SleeperWritten,
    /// Something went into a log that had been let go.
    RemovedWritten,
    /// An array names a surrogate that was taken away.
    RemovalForgotten,
    /// What a range was told to be (holes, health) is not so.
    WrongMap,
    /// The same seed gave different actions.
    NotDeterministic,
    /// The engine panicked.
    Panic,
}

impl Invariant {
    pub const fn name(self) -> &'static str {
        match self {
            Invariant::AckedWriteLost => "acked-write-lost",
            Invariant::FlushedWriteLost => "flushed-write-lost",
            Invariant::MadeUpBytes => "made-up-bytes",
            Invariant::StaleRead => "stale-read",
            Invariant::UnstableRead => "unstable-read",
            Invariant::LossNotReported => "loss-not-reported",
            Invariant::LossReportedWrongly => "loss-reported-wrongly",
            Invariant::ParityMismatch => "parity-mismatch",
            Invariant::RowOnOneMember => "row-on-one-member",
            Invariant::StuckRequest => "stuck-request",
            Invariant::RequestRefused => "request-refused",
            Invariant::HaltBroken => "halt-broken",
            Invariant::MemberFailedWrongly => "member-failed-wrongly",
            Invariant::NewerOverwritten => "newer-overwritten",
            Invariant::StartRefused => "start-refused",
            Invariant::NotWholeAgain => "not-whole-again",
            Invariant::TaskFailed => "task-failed",
            Invariant::Contract => "contract",
            Invariant::OverlappingMemberWrites => "overlapping-member-writes",
            Invariant::OverlappingComputes => "overlapping-computes",
            Invariant::BufferChangedInFlight => "buffer-changed-in-flight",
            Invariant::SleeperWritten => "sleeper-written",
            Invariant::RemovedWritten => "removed-written",
            Invariant::RemovalForgotten => "removal-forgotten",
            Invariant::WrongMap => "wrong-map",
            Invariant::NotDeterministic => "not-deterministic",
            Invariant::Panic => "panic",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One breach of an invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    pub invariant: Invariant,
    pub detail: String,
}

impl Violation {
    pub fn new(invariant: Invariant, detail: impl Into<String>) -> Violation {
        Violation {
            invariant,
            detail: detail.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.detail)
    }
}
