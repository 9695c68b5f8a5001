//! Administrative commands, and why one is refused.

use crate::{ArrayOwner, LeaseCommand, LeaseError, Moves, Order, Throttle};
use alloc::boxed::Box;
use alloc::vec::Vec;
use restripe_format::meta::MetaError;
use restripe_format::units::{Member, Uuid};
use restripe_format::values::ScrubMode;

/// Names an administrative command; chosen by the shell, echoed in the reply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct CommandTag(pub u64);

/// What an operator asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Read the members' metadata, recover, and begin to serve. The first command but for those about paces, which then hold
    /// for whatever goes on with the start.
    Start(StartMode),
    /// Drain, flush, mark clean. Requests are refused from now on.
    Stop,
    /// Fail a member.
    Fail(Member),
    /// Forget a failed or spare member.
    Remove(Member),
    /// Take a device in: back into its old place if it was a member, else as a spare.
    Add(Member),
    /// The next command that takes this device in may overwrite what it carries, whatever that is.
    Overwrite(Member),
    /// The same as [`Command::Add`], into the array's surrogate.
    AddToSurrogate(Member),
    /// The same, into the buffer of its code cache.
    AddToBuffer(Member),
    /// Put on record which surrogate the array has from its next start on, or that it has none. Nothing may lie there; an array that is
    /// served with its surrogate brings home what does, before it is answered, and sends nothing there from then on.
    LogSet(Option<Uuid>),
    /// Copy a serving member onto a spare, then retire it.
    Replace {
        old: Member,
        new: Member,
    },
    /// Make data slots of `by` spares, those that came last. The new capacity is there when the task has ended.
    Grow {
        by: u16,
    },
    /// The same, but with every chunk where a new array of that size would have it (md's reshape).
    Reshape {
        by: u16,
    },
    Scrub(ScrubMode),
    /// The date: seconds since 1970-01-01 UTC, or 0 if it is not known. Also before the start. Until the first, dates on record are
    /// unknown.
    Date(u64),
    /// Pause or go on with the running task.
    Pause(bool),
    /// Stop the running scrub.
    Cancel,
    /// Rate limits of tasks, bytes a second of one member.
    Rate {
        min: u64,
        max: u64,
    },
    /// What paces tasks, those that run and those to come.
    Throttle(Throttle),
    /// In which order tasks that restore redundancy go through the rows, those that run and those to come.
    Order(Order),
    /// Whether users' reads of what is not rebuilt call the task there, whatever its order.
    OnDemand(bool),
    /// How growths by the least moves go about them, one that runs and those to come.
    Moves(Moves),
    /// Whether what was rebuilt in spare partitions and on several spares is brought together on one as soon as it can be, or
    /// spread over the spare partitions. It is brought together in any case where a slot waits for a spare that has a part of another.
    CopyBack(bool),
    /// Bring home what lies in the log of an array that redirects every write at all times (RERAID).
    Destage,
    /// What of the array is lent to others.
    Lease(LeaseCommand),
}

/// A start takes the ids of at most this many ended runs.
pub const ENDED_MAX: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StartMode {
    /// Start although fewer than a majority of the current members are here.
    pub from_minority: bool,
    /// Start although sectors are lost by it; they are listed and read as errors.
    pub accept_loss: bool,
    pub read_only: bool,
    /// Take members that make nothing durable. As long as one is current, no flush may be promised to users.
    pub volatile_members: bool,
    /// The run that starts the array, as its superblocks are to record it. None: they record no owner.
    pub owner: Option<ArrayOwner>,
    /// Runs that the shell knows to have ended, however their records look: one for each set, and one more.
    pub ended: [Option<Uuid>; ENDED_MAX],
    /// Take the array over from whichever run its superblocks record.
    pub force_owner: bool,
}

impl StartMode {
    /// Nothing is accepted, and no owner recorded.
    pub const PLAIN: StartMode = StartMode {
        from_minority: false,
        accept_loss: false,
        read_only: false,
        volatile_members: false,
        owner: None,
        ended: [None; ENDED_MAX],
        force_owner: false,
    };

    /// The mode for a restart without a command: it repeats no consent (`from_minority`, `accept_loss`, `force_owner`).
    pub fn again(self) -> StartMode {
        StartMode {
            from_minority: false,
            accept_loss: false,
            force_owner: false,
            ..self
        }
    }
}

impl Command {
    /// Why a set by itself refuses a command that a main set with a log set carries out. `None`: a set's own.
    pub fn refusal_of_set(self) -> Option<CommandError> {
        match self {
            Command::AddToSurrogate(_) => {
                Some(CommandError::Busy(refusals::NOT_SERVED_WITH_LOG_SET))
            }
            Command::AddToBuffer(_) => Some(CommandError::Busy(refusals::NO_BUFFER)),
            Command::Destage => Some(CommandError::Unsuited("the array has no log")),
            Command::Start(_)
            | Command::Stop
            | Command::Fail(_)
            | Command::Remove(_)
            | Command::Add(_)
            | Command::Overwrite(_)
            | Command::LogSet(_)
            | Command::Replace { .. }
            | Command::Grow { .. }
            | Command::Reshape { .. }
            | Command::Scrub(_)
            | Command::Pause(_)
            | Command::Cancel
            | Command::Rate { .. }
            | Command::Throttle(_)
            | Command::Order(_)
            | Command::OnDemand(_)
            | Command::Moves(_)
            | Command::CopyBack(_)
            | Command::Date(_)
            | Command::Lease(_) => None,
        }
    }
}

/// Why commands about a partner are refused: both engines and the command line say it in the same words.
pub mod refusals {
    /// The array was created without a redirect map, or with too little space for one.
    pub const NO_REDIRECT_MAP: &str =
        "the array has no space for the redirect map that a surrogate requires";
    pub(super) const NOT_SERVED_WITH_LOG_SET: &str = "the array is not served with a surrogate";
    pub const NO_BUFFER: &str = "the array is not served with an NVRAM buffer";
    pub const HAS_LOG_SET: &str = "the array already records a surrogate";
    pub const NO_LOG_SET: &str = "the array has no surrogate";
    pub const LOG_SET_CANNOT_GROW: &str = "an array that serves as a surrogate cannot grow";
    pub const NO_SPACE_TO_GROW: &str =
        "the array's redirect map has no space for the growth: remove the surrogate first";
    pub const CANNOT_RESHAPE: &str =
        "an array cannot be reshaped with a surrogate: remove it first";
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommandError {
    /// Another run has the array.
    Owned {
        by: ArrayOwner,
        rival: Rival,
    },
    /// No members that belong together, or none that can be read.
    NoArray,
    /// Two members claim one place: a clone.
    Clone(Member, Member),
    /// These two were started apart from each other and went different ways: only one side can be kept.
    Split(Member, Member),
    /// Members of two different arrays.
    Foreign(Member),
    /// Too few of the current members: present, needed for a start that cannot be challenged.
    Minority {
        present: u16,
        current: u16,
    },
    /// Redundancy does not reach: these slots have no current member.
    TooFew {
        missing: Vec<u16>,
    },
    /// A start would lose these extents (lba, sectors), merged where there are too many to list.
    WouldLose {
        extents: Vec<(u64, u64)>,
    },
    /// The only current copies of these extents (lba, sectors), merged where there are too many to list, lie in this array's
    /// surrogate, which is not here.
    SurrogateMissing {
        surrogate: Uuid,
        extents: Vec<(u64, u64)>,
    },
    /// As before, but that the surrogate is here, and its log does not tell what it should have.
    LogDamaged {
        surrogate: Uuid,
        extents: Vec<(u64, u64)>,
    },
    /// This array is another one's surrogate: it starts beside that one only.
    IsSurrogate {
        of: Uuid,
    },
    /// This device has a history of the array that the running array does not have: its generation and sequence, and the array's.
    OtherHistory {
        member: Member,
        theirs: (u64, u64),
        ours: (u64, u64),
    },
    /// A superblock of this member is whole, and has a number that this array cannot have.
    Unsound {
        member: Member,
        error: MetaError,
    },
    /// The first is a second path to the disk of the other, which is in use.
    SameDevice(Member, Member),
    /// No superblock of this device can be read: its contents are unknown.
    Unreadable(Member),
    /// Redundancy does not allow taking this member out.
    Indispensable(Member),
    NoSuchMember(Member),
    /// This member makes nothing durable, and the start did not allow such members.
    Volatile(Member),
    /// This member failed while it was being added.
    FailedAgain(Member),
    /// The device is too small: has, needs (sectors).
    TooSmall {
        has: u64,
        needs: u64,
    },
    /// The device's logical block is larger than the array's.
    LogicalBlock {
        member: u32,
        array: u32,
    },
    /// Not now: a task runs, or none does, or the array is not serving.
    Busy(&'static str),
    /// Not now, nor later: the array is not made for it.
    Unsuited(&'static str),
    /// Metadata could not be read from, or not be written to, enough members.
    Metadata,
    /// No space is left on a member.
    NoSpace,
    /// The leases cannot be changed so.
    Lease(LeaseError),
    /// The log is as it was before the array's last start or clean stop.
    LogIsOld,
    /// The array's own members are as they were before the log's last start or clean stop.
    LogIsNewer,
    /// What users flushed may lie in the buffer of the array's code cache alone, and that is not here.
    BufferMissing,
    /// The buffer is as it was before the array's last start or clean stop, or it is a
    /// member that failed before another, and lacks what was flushed since.
    BufferIsOld,
    /// Of the array's surrogate, not of its own set.
    OfSurrogate(Box<CommandError>),
    /// Of the buffer of its code cache.
    OfBuffer(Box<CommandError>),
}

impl CommandError {
    /// The error, of whichever set it is.
    pub fn innermost(&self) -> &CommandError {
        match self {
            CommandError::OfSurrogate(error) | CommandError::OfBuffer(error) => error.innermost(),
            error => error,
        }
    }

    /// The set serves another array, which alone can read what it holds.
    pub fn serves_another(array: Uuid) -> CommandError {
        CommandError::IsSurrogate { of: array }
    }

    /// Some sectors are current in the log set only, and it is not here.
    pub fn log_set_missing(surrogate: Uuid, extents: Vec<(u64, u64)>) -> CommandError {
        CommandError::SurrogateMissing { surrogate, extents }
    }
}

/// Why a start does not take an array over from the run that its superblocks record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Rival {
    /// The run renews its record.
    Renews,
    /// The run recorded itself while this start was under way, or since.
    Claims,
    /// The run does not renew its record, and may live.
    Silent,
}
