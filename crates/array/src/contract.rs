//! What passes between the engine and a shell: events in, actions out.
//!
//! Everything here is plain data, so that a run can be recorded, compared and replayed. Operations travel in boxes
//! that the engine lends out with an action and gets back with the matching event; in steady state nothing is
//! allocated.

use crate::meta::MetaError;
pub use crate::meta::leases::{LeaseCommand, LeaseError, LeaseName};
pub use crate::meta::{ArrayOwner, LastScrub, ScrubState, ScrubbedMember};
pub use crate::policy::goal::LatencyGoal;
pub use crate::policy::heat::HeatLimits;
pub use crate::policy::moves::Moves;
pub use crate::policy::order::Order;
pub use crate::policy::throttle::Throttle;
use crate::report::DroppedTask;
use crate::units::{Member, Nanos, PAGE_BYTES, SECTOR_BYTES, Uuid};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// A small owned block of metadata that travels inside an operation.
pub type Page = Box<[u8; PAGE_BYTES]>;

/// A fresh page of zeros.
pub fn zeroed_page() -> Page {
    Box::new([0; PAGE_BYTES])
}

// ---------------------------------------------------------------------------------------------------- buffers

/// A handle to memory that the shell keeps. The engine passes handles on and never looks at the bytes.
///
/// Handles below [`Buf::USER`] are the engine's own pool: first [`Pool::small`] buffers of [`SMALL_BYTES`], then
/// [`Pool::large`] buffers of [`LARGE_BYTES`]. Handles from [`Buf::USER`] on belong to requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Buf(pub u32);

impl Buf {
    /// The first handle that a front end may use for a request's memory.
    pub const USER: u32 = 1 << 24;
}

/// Bytes in a small pool buffer.
pub const SMALL_BYTES: u32 = 4096;
/// Bytes in a large pool buffer: the most that one cell of a slice covers.
pub const LARGE_BYTES: u32 = 65536;
/// The most sectors of one cell that a slice works on at once.
pub const BAND_SECTORS_MAX: u64 = LARGE_BYTES as u64 / SECTOR_BYTES;

/// How many buffers of each size the shell keeps for the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pool {
    pub small: u32,
    pub large: u32,
}

impl Pool {
    /// The bytes behind a pool handle.
    pub fn bytes_of(&self, buf: Buf) -> u32 {
        if buf.0 < self.small {
            SMALL_BYTES
        } else {
            LARGE_BYTES
        }
    }
}

/// Part of a buffer, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct BufRef {
    pub buf: Buf,
    pub offset: u32,
    pub bytes: u32,
}

impl BufRef {
    pub fn new(buf: Buf, offset: u32, bytes: u32) -> BufRef {
        BufRef { buf, offset, bytes }
    }

    /// The part of this reference that starts `offset` bytes in.
    pub fn part(&self, offset: u32, bytes: u32) -> BufRef {
        assert!(offset + bytes <= self.bytes, "a part lies within its whole");
        BufRef {
            buf: self.buf,
            offset: self.offset + offset,
            bytes,
        }
    }
}

// ----------------------------------------------------------------------------------------------------- device

/// Names one outstanding operation. Unique among those outstanding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Tag(pub u32);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum IoOp {
    Read,
    Write,
    /// Make every write that completed before this one durable.
    Flush,
    /// Make the range read as zeros, by whatever the device does best.
    Zero,
    /// The range's contents are no longer needed. Only sent to members that then read zeros.
    Trim,
    /// Nothing will be asked for a while: the spindle may stand still, once all that was written is durable. Without a range, as
    /// a flush. A device that cannot says [`IoError::Unsupported`]. Whatever is asked next wakes it.
    Standby,
    /// The spindle is to turn again; ends when it does. Without a range.
    Wake,
}

impl IoOp {
    /// Whether it is about a range of sectors.
    pub fn has_range(self) -> bool {
        !matches!(self, IoOp::Flush | IoOp::Standby | IoOp::Wake)
    }
}

/// Where the bytes of a device operation come from or go to, in address order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Segment {
    /// A metadata page, always whole. A read fills it; it comes back with the event.
    Page(Page),
    /// Part of a buffer of the shell.
    Buf(BufRef),
    /// So many zero bytes (writes only).
    Zero(u32),
}

impl Segment {
    pub fn bytes(&self) -> u32 {
        match self {
            Segment::Page(_) => PAGE_BYTES as u32,
            Segment::Buf(buf) => buf.bytes,
            Segment::Zero(bytes) => *bytes,
        }
    }
}

/// Why an operation is done: for schedulers and for accounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Class {
    /// A user waits for it.
    User,
    /// Parity and old data that a user's write needs.
    Parity,
    /// A task: rebuild, resync, scrub.
    Task,
    /// Superblocks, maps, logs; and flushes, whoever asks: to how many members one goes hangs on what else was written,
    /// and by timers. So the other causes count data only, and do not hang on time.
    Metadata,
}

/// One operation on one member. `segments` cover exactly `sectors` for reads and writes and are empty otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceIo {
    pub tag: Tag,
    pub member: Member,
    pub op: IoOp,
    /// First sector on the member.
    pub at: u64,
    pub sectors: u64,
    pub segments: Vec<Segment>,
    /// A write is durable when it completes (forced unit access).
    pub durable: bool,
    pub class: Class,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum IoError {
    /// This range cannot be read or written; others may.
    Media,
    /// The device does not answer any more.
    Gone,
    /// A thin device has no room left.
    NoSpace,
    /// The device does not know this operation.
    Unsupported,
    /// Anything else, by its errno.
    Other(i32),
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IoError::Media => f.write_str("media error"),
            IoError::Gone => f.write_str("device gone"),
            IoError::NoSpace => f.write_str("no space left on device"),
            IoError::Unsupported => f.write_str("operation not supported"),
            IoError::Other(errno) => write!(f, "errno {errno}"),
        }
    }
}

// ---------------------------------------------------------------------------------------------------- compute

/// One output of a linear combination over GF(2^8), polynomial 0x11d: `target = sum of coefficients[i] * sources[i]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinearOutput {
    pub target: BufRef,
    pub coefficients: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ComputeOp {
    /// Every output from the sources. No target overlaps a source. Without sources the targets become zeros; with one
    /// source and a coefficient of 1 it is a copy. Xor, P+Q, delta, recovery and Reed-Solomon are all this.
    Linear,
    /// The crc32c of the first source. Verdict: [`Verdict::Checksum`].
    Checksum,
    /// Are the first two sources equal? Verdict: [`Verdict::Equal`] or [`Verdict::Differ`].
    Compare,
    /// `sources[0]` is the P syndrome (read xor computed), `sources[1]` the Q syndrome. Which single cell explains both?
    /// Verdict: [`Verdict::Equal`] when both are zero, [`Verdict::Guilty`] or [`Verdict::Ambiguous`].
    Locate,
    /// The only output becomes what the page holds. Verdict: [`Verdict::Done`].
    PutPage,
    /// The page becomes what the only source holds. Verdict: [`Verdict::Done`].
    TakePage,
}

/// A computation on buffers. All sources and targets have the same length, that of a page if it has one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compute {
    pub tag: Tag,
    pub op: ComputeOp,
    pub sources: Vec<BufRef>,
    pub outputs: Vec<LinearOutput>,
    /// Of [`ComputeOp::PutPage`] and [`ComputeOp::TakePage`]: metadata that lies among data, and so in a buffer.
    pub page: Option<Page>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Verdict {
    /// A linear combination is done.
    Done,
    Checksum(u32),
    Equal,
    Differ,
    /// Which cell is wrong: data with this exponent of the generator in Q, or P, or Q.
    Guilty(Guilty),
    /// More than one cell is wrong.
    Ambiguous,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Guilty {
    Data { exponent: u8 },
    P,
    Q,
}

// --------------------------------------------------------------------------------------------------- requests

/// Names a request; chosen by the front end, echoed in the reply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct RequestTag(pub u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum RequestOp {
    Read,
    Write,
    /// Covers every write replied to before it, on all connections.
    Flush,
    Trim,
    /// `fast`: refuse rather than be slow.
    WriteZeroes {
        fast: bool,
    },
}

impl RequestOp {
    /// Whether it changes bytes.
    pub fn changes(self) -> bool {
        !matches!(self, RequestOp::Read | RequestOp::Flush)
    }
}

/// A user's request, in bytes. `buf` is as long as the request for reads and writes and ignored otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    pub tag: RequestTag,
    pub op: RequestOp,
    pub offset: u64,
    pub bytes: u64,
    pub buf: BufRef,
    /// Durable when replied to.
    pub fua: bool,
}

/// The first bytes of a request, and what they cost the members: as much as writing `cost` bytes does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    pub bytes: u64,
    pub cost: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum RequestError {
    /// Beyond the end of the array.
    OutOfRange {
        end: u64,
        size: u64,
    },
    /// These bytes are lost: redundancy could not bring them back, and no made-up byte stands in for them.
    Lost {
        lba: u64,
        sectors: u64,
    },
    /// The array takes no writes: too many members are gone, or it was started read-only.
    ReadOnly,
    NoSpace,
    /// A fast zero would have been slow.
    NotFast,
    /// An array with a surrogate takes whole sectors only.
    NotWholeSectors,
    /// The array is stopping or not yet started.
    Unavailable,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::OutOfRange { end, size } => {
                write!(f, "request ends at byte {end}, the array at {size}")
            }
            RequestError::Lost { lba, sectors } => write!(f, "{sectors} sectors at {lba} are lost"),
            RequestError::ReadOnly => f.write_str("the array takes no writes"),
            RequestError::NoSpace => f.write_str("a member has no space left"),
            RequestError::NotFast => f.write_str("zeroing this range would be slow"),
            RequestError::NotWholeSectors => f.write_str("not whole sectors of 512 bytes"),
            RequestError::Unavailable => f.write_str("the array is not serving"),
        }
    }
}

// ------------------------------------------------------------------------------------------------- the two lists

/// Names an administrative command; chosen by the shell, echoed in the reply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct CommandTag(pub u64);

/// What the engine is told.
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

// ---------------------------------------------------------------------------------------- members, commands, facts

/// What the shell knows of a device when it has opened it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberInfo {
    pub sectors: u64,
    /// Bytes: 512 or 4096.
    pub logical_block: u32,
    /// A trimmed range reads as zeros.
    pub trim_zeroes: bool,
    /// [`IoOp::Zero`] is much faster than writing.
    pub fast_zero: bool,
    /// The device makes nothing durable: it takes neither flushes nor durable writes.
    pub volatile: bool,
}

/// What an operator asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Read the members' metadata, recover, and begin to serve. The first command but for those about paces, which then hold
    /// for whatever goes on with the start.
    Start(StartMode),
    /// Drain, flush, mark clean. Requests are refused from now on.
    Stop,
    /// Take a member out of service.
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
    Surrogate(Option<Uuid>),
    /// Copy a serving member onto a spare, then retire it.
    Replace {
        old: Member,
        new: Member,
    },
    /// Make data slots of so many spares, those that came last. The new capacity is there when the task has ended.
    Grow {
        by: u16,
    },
    /// The same, but with every chunk where a new array of so many slots would have it (md's reshape).
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
    /// No superblock of this device can be read: nobody knows what it carries.
    Unreadable(Member),
    /// Redundancy does not allow taking this member out.
    Indispensable(Member),
    NoSuchMember(Member),
    /// This member makes nothing durable, and the start did not allow such members.
    Volatile(Member),
    /// This member failed as it was taken in.
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
    /// The buffer is as it was before the array's last start or clean stop.
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
}

/// Why an array writes nothing any more, as if the power had gone. What was acknowledged is there at the next start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Halt {
    /// No space is left on a member that serves.
    NoSpace,
    /// A member more has failed than redundancy bears.
    TooFew,
    /// The superblocks record another run as the owner.
    Owned(ArrayOwner),
}

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
    /// An operator said so.
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
    pub(crate) fn is_no_space(self) -> bool {
        matches!(
            self,
            FailCause::WriteError(IoError::NoSpace) | FailCause::FlushError(IoError::NoSpace)
        )
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum TaskKind {
    Rebuild,
    Replace,
    Resync,
    Check,
    Repair,
    /// Chunks move to members that were added.
    Growth,
}

impl TaskKind {
    /// Whether it writes what a slot holds to a member that has not got it yet.
    pub fn fills(self) -> bool {
        matches!(self, TaskKind::Rebuild | TaskKind::Replace)
    }
}

/// What a scrub does about a row whose cells disagree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ScrubMode {
    /// It writes nothing.
    Check,
    /// It repairs what a second witness proves wrong, and what cannot be read.
    Repair,
    /// It also brings in sync what has no second witness: parity is made of the data, and further copies of the first. If the
    /// data was wrong, it stays wrong.
    Sync,
}

impl ScrubMode {
    /// In the order of their numbers on members and in records.
    pub const ALL: [ScrubMode; 3] = [ScrubMode::Check, ScrubMode::Repair, ScrubMode::Sync];

    /// A sync if it writes, else a check.
    pub fn writing(writes: bool) -> ScrubMode {
        match writes {
            true => ScrubMode::Sync,
            false => ScrubMode::Check,
        }
    }

    pub fn writes(self) -> bool {
        self != ScrubMode::Check
    }
}

/// What a scrub did about something that it found, the worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Cure {
    /// It is as it was.
    Left,
    /// The row is in sync, and whether its data is right is not verified.
    InSync,
    /// It is as it had been written.
    Repaired,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum TaskOutcome {
    Done,
    Cancelled,
    /// Its target or too many of its sources failed.
    Failed,
}
