//! Bugs that are planted on purpose: the test suites must find each of them.
//!
//! Builds with debug assertions have them, and so has a build with the feature `planted`. In a release
//! [`PLANTED`] is `false`, every question here is a constant, and the compiler removes the bugs.
//! The configuration of an engine chooses one bug.

/// Whether this build has the bugs.
pub const PLANTED: bool = cfg!(any(debug_assertions, feature = "planted"));

/// A bug of the kind that reviews miss. Each names what goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Bug {
    /// A member that makes nothing durable is taken in without being allowed.
    VolatileTakenIn,
    /// Another run's record in the superblocks is not looked for while an array serves.
    OtherOwnerIgnored,
    /// A flush leaves out one member that has unflushed writes.
    FlushSkipsMember,
    /// A start takes what lies in members' volatile caches for durable.
    StartUnflushed,
    /// The first data cell enters Q, or the second of more parities, with the coefficient of the second.
    WrongQCoefficient,
    /// At a start, a failed member that is here counts as current.
    StaleMemberAccepted,
    /// A write does not wait until its announcement in the intent map is durable.
    IntentNotDurable,
    /// Slices on the same sectors run at once.
    OverlapOrderLost,
    /// A log record is given up when its write has ended, not when it is flushed.
    LogReusedEarly,
    /// An extent counts as written before it was zeroed.
    ExtentNotZeroed,
    /// Writes are acknowledged before a failure is on the other members' record.
    FailureNotRecorded,
    /// The failure of a member too many is put on record like any other.
    OneTooManyRecorded,
    /// What is lost is told but not remembered.
    LossForgotten,
    /// A rebuild counts a row as done when it begins with it.
    RebuildRunsAhead,
    /// A degraded write changes lost and live cells in one step.
    DegradedInOneStep,
    /// Superblocks are always written to the same home.
    SuperblockInPlace,
    /// A resynchronisation finds that all parity agrees.
    ParityBelieved,
    /// A read is answered from one copy while a crash may have left the others different.
    CopiesShownApart,
    /// The read cache keeps what is written over.
    CacheKeepsOverwritten,
    /// A write goes to the surrogate before home knows durably that it may be there.
    RedirectNotAnnounced,
    /// The surrogate's log is voided before what went home is durable there.
    VoidBeforeFlush,
    /// A surrogate is let go while something is on its way there.
    RemovedUnderWay,
    /// What reads wrong in the log is taken for its end, and nobody else asked.
    RotBelieved,
    /// The table of a record that was gathered in memory lacks its last entry: the one before has its sectors.
    EntryLeftOut,
    /// Reads of the log do not look for what is gathered in memory.
    BufferMissed,
    /// A write is copied into memory while another one of the same sectors is.
    PackedOver,
    /// A record is sealed while bytes are copied into it.
    SealedUnderCopy,
    /// A flush does not wait until what was gathered lies in the log.
    FlushUnsealed,
    /// A write that is to be durable is told when it is gathered.
    FuaUnsealed,
    /// Flushes are told when the buffer was written, not when it is flushed.
    BufferNotFlushed,
    /// A record's slot in the buffer is used again before the record is durable in the log.
    SlotReusedEarly,
    /// Mirrors sleep before home has it on record that the log may have any of its sectors.
    SleepUnannounced,
    /// All goes home although mirrors do not turn yet.
    WakeNotAwaited,
    /// What was kept in memory of a way home is believed on later ones.
    StalePieceKept,
    /// Records are void before what was moved out of them is durable.
    MovedNotAwaited,
    /// Two cells of a row may come to lie on one member.
    RowOnOneMember,
    /// What a member that hosted a partition logged of it counts at a start, wherever it lies by then.
    FormerHostHeard,
    /// A spare partition is taken though superblocks that a crash may find name it for another.
    PlaceTakenEarly,
    /// A spare partition is taken while operations on what lay there are under way.
    PlaceTakenInUse,
    /// A host that comes back is still remembered for what it hosted.
    FormerHostBelieved,
    /// A write to a chunk that a growth has moved does not wait until that is on record.
    MoveNotOnRecord,
    /// What a growth added becomes part of its rows as it is.
    AddedNotZeroed,
    /// A slice that waited for its row takes it for what it was when it came.
    RowSeenOnce,
    /// The edge of a reshape passes rows that are not flushed.
    EdgeRunsAhead,
    /// A reshape makes a row where what it takes still stands.
    RowOverItself,
    /// Users do not wait for what a reshape is moving.
    WindowLeftOpen,
    /// A clean stop writes one version of the superblocks, and puts no number on record at a set and its log.
    StopWritesOnce,
    /// A device is taken in whatever history of the array it has.
    NewerOverwritten,
    /// A member that leaves is not owed what a copy of it may lack that has the same superblock.
    CopyNotOwed,
}

impl Bug {
    pub const ALL: [Bug; 16] = [
        Bug::FlushSkipsMember,
        Bug::StartUnflushed,
        Bug::WrongQCoefficient,
        Bug::StaleMemberAccepted,
        Bug::IntentNotDurable,
        Bug::OverlapOrderLost,
        Bug::LogReusedEarly,
        Bug::ExtentNotZeroed,
        Bug::FailureNotRecorded,
        Bug::OneTooManyRecorded,
        Bug::LossForgotten,
        Bug::RebuildRunsAhead,
        Bug::DegradedInOneStep,
        Bug::SuperblockInPlace,
        Bug::ParityBelieved,
        Bug::CacheKeepsOverwritten,
    ];

    /// Bugs that only an array with a surrogate has.
    pub const OF_SURROGATES: [Bug; 3] = [
        Bug::RedirectNotAnnounced,
        Bug::VoidBeforeFlush,
        Bug::RemovedUnderWay,
    ];

    /// Bugs that only an array with a code cache has.
    pub const OF_CODE_CACHES: [Bug; 13] = [
        Bug::RotBelieved,
        Bug::EntryLeftOut,
        Bug::BufferMissed,
        Bug::PackedOver,
        Bug::SealedUnderCopy,
        Bug::FlushUnsealed,
        Bug::FuaUnsealed,
        Bug::BufferNotFlushed,
        Bug::SlotReusedEarly,
        Bug::SleepUnannounced,
        Bug::WakeNotAwaited,
        Bug::StalePieceKept,
        Bug::MovedNotAwaited,
    ];

    /// Bugs that only an array with spare partitions has.
    pub const OF_HOSTS: [Bug; 2] = [Bug::RowOnOneMember, Bug::FormerHostBelieved];

    /// Bugs that only an array that grows has.
    pub const OF_GROWTHS: [Bug; 3] = [Bug::MoveNotOnRecord, Bug::AddedNotZeroed, Bug::RowSeenOnce];

    /// Bugs that only an array that grows and keeps the plain layout has.
    pub const OF_RESHAPES: [Bug; 3] = [Bug::EdgeRunsAhead, Bug::RowOverItself, Bug::WindowLeftOpen];

    /// And those of arrays with spare partitions that no seed or one in many thousands has met, but scripts find: a place given away just between two
    /// versions of superblocks, an operation that lingers in just the place that is taken, and a former host's log, which only costs a start time.
    pub const OF_SCRIPTS: [Bug; 3] = [
        Bug::PlaceTakenEarly,
        Bug::PlaceTakenInUse,
        Bug::FormerHostHeard,
    ];

    /// Bugs that sweeps of the simulator find (`sim/tests/it/stale.rs`, `sim/tests/it/returns.rs`,
    /// `sim/tests/it/copies.rs`).
    pub const OF_SWEEPS: [Bug; 3] = [Bug::StopWritesOnce, Bug::NewerOverwritten, Bug::CopyNotOwed];
}
