//! Facts: the log of what happened to an array.

use crate::{ArrayOwner, CommandError, IoError, LastScrub};
use alloc::boxed::Box;
use restripe_format::units::{Member, Nanos, Uuid};
use restripe_format::values::{Cure, TaskKind};

/// One entry of the log of facts. Levelled by kind; never needed for correctness.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fact {
    /// The array serves.
    Started {
        generation: u64,
        recovered_rows: u64,
    },
    Stopped,
    /// Nothing is written any more: for want of space until there is room, else until the array is started anew.
    Halted(Halt),
    /// A member in service has no space: the array goes on without it, or refuses writes.
    OutOfSpace {
        member: Member,
    },
    /// An array that halted for want of space cannot go on without a restart: its start is refused for this.
    StaysHalted {
        why: Box<CommandError>,
    },
    /// A member of an array that refused writes for want of space has room again: a write to it ended well.
    RoomAgain {
        member: Member,
    },
    MemberFailed {
        member: Member,
        why: FailCause,
    },
    /// A failed member's place went to another.
    SpareTaken {
        spare: Member,
        slot: u16,
    },
    /// A partition of a lost slot is rebuilt onto a spare partition of a member in service.
    PartitionTaken {
        host: Member,
        slot: u16,
        partition: u16,
    },
    /// Metadata on this member are whole, and have numbers that this array cannot have: they do not count.
    Ignored {
        member: Member,
        what: &'static str,
        count: u64,
    },
    /// A read error was repaired from redundancy and rewritten.
    /// `rotten`: they could be read, and were not what had been written.
    Repaired {
        member: Member,
        at: u64,
        sectors: u64,
        rotten: bool,
    },
    /// These sectors of the array are lost.
    Lost {
        lba: u64,
        sectors: u64,
    },
    TaskStarted {
        kind: TaskKind,
        slot: Option<u16>,
    },
    TaskEnded {
        kind: TaskKind,
        slot: Option<u16>,
        outcome: TaskOutcome,
    },
    /// A rebuild or a replace that a start finds on record does not go on: its target is missing.
    TaskDropped(DroppedTask),
    /// A scrub found sectors of a row that disagree, or cannot be read, on a member if the code can tell which. `at` is where in
    /// the chunk the first of them is.
    Mismatch {
        row: u64,
        at: u64,
        sectors: u64,
        guilty: Option<Member>,
        unreadable: bool,
        cure: Cure,
    },
    /// A scrub ended, with this result.
    Scrubbed(Box<LastScrub>),
    /// A growth of an array without redundancy could not write to this member; it is tried again after a while.
    MoveFailed {
        member: Member,
        why: IoError,
    },
    /// A throttle's decision to wait, with its inputs.
    Throttled {
        rate: u64,
        until: Nanos,
    },
    /// Of the array's surrogate, not of its own set.
    OfSurrogate(Box<Fact>),
    /// Of the buffer of its code cache.
    OfBuffer(Box<Fact>),
    /// The buffer cannot be used, for this: flushes seal records, as without one. Or, if something is given up, what a start needs of
    /// it cannot be read.
    BufferAbsent {
        why: Box<CommandError>,
        /// What users flushed may have lain there alone, and is given up: the array is as the log has it.
        forgone: bool,
    },
    /// The buffer failed. Nothing is lost; from now on flushes seal records.
    BufferFailed,
    /// The surrogate cannot be started, for this of its own. If nothing counts that lies there, the array goes on without it.
    SurrogateAbsent {
        why: Box<CommandError>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FailCause {
    /// By command.
    Command,
    WriteError(IoError),
    FlushError(IoError),
    /// Too many read errors.
    ReadErrors,
    Gone,
    TimedOut,
    /// Its metadata could not be read or written.
    Metadata,
    /// Its superblocks are gone, or are another array's.
    Overwritten,
}

impl FailCause {
    pub fn is_no_space(self) -> bool {
        matches!(
            self,
            FailCause::WriteError(IoError::NoSpace) | FailCause::FlushError(IoError::NoSpace)
        )
    }
}

/// Why an array writes nothing any more, as if the power had gone. What was acknowledged is there at the next start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Halt {
    /// No space is left on a member that serves.
    NoSpace,
    /// More members have failed than redundancy tolerates.
    TooFew,
    /// The superblocks record another run as the owner.
    Owned(ArrayOwner),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum TaskOutcome {
    Done,
    Cancelled,
    /// Its target or too many of its sources failed.
    Failed,
}

/// A rebuild or a replace that was under way at the last stop or crash, and whose target is missing since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DroppedTask {
    pub kind: TaskKind,
    pub slot: u16,
    pub target: Uuid,
    /// The start only reads, so the superblock still has the task: a start that writes may go on with it.
    pub waits: bool,
}
