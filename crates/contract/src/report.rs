//! What the engine tells about itself: a plain view that shells turn into status, metrics and maps.

pub use crate::DroppedTask;
use crate::energy::Spent;
use crate::{LastScrub, Order, TaskKind, Throttle};
use alloc::string::String;
use alloc::vec::Vec;
use restripe_format::layout::Geometry;
pub use restripe_format::meta::leases::{Lease, Parcel};
use restripe_format::units::{Member, Nanos, Uuid};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ArrayState {
    /// Not started, or starting.
    #[default]
    Starting,
    Healthy,
    /// Redundancy is reduced; every byte is readable.
    Degraded,
    /// Too many members are gone; some bytes are not readable.
    Failed,
    Stopping,
    Stopped,
}

#[derive(Clone, Debug, Default)]
pub struct Status {
    pub name: String,
    pub uuid: Uuid,
    pub generation: u64,
    pub state: ArrayState,
    /// `None` until started.
    pub geometry: Option<Geometry>,
    /// Bytes that users see.
    pub size_bytes: u64,
    pub logical_block: u32,
    pub read_only: bool,
    /// Why it refuses writes, if it does.
    pub refusal: Option<Refusal>,
    pub members: Vec<MemberStatus>,
    pub tasks: Vec<TaskStatus>,
    /// Tasks that this start dropped, until their slots are filled anew.
    pub dropped: Vec<DroppedTask>,
    /// Extents of the array that are lost: (first lba, sectors).
    pub lost: Vec<(u64, u64)>,
    /// An upper bound of the sectors that only primary copies have. Their secondary copies are not in sync yet, so
    /// the loss of a primary copy loses its sectors.
    pub in_doubt: u64,
    /// The result of the scrub that runs, or of the last one.
    pub last_scrub: Option<LastScrub>,
    pub counters: Counters,
    /// The array has room to record what a surrogate holds.
    pub redirectable: bool,
    /// The surrogate on record, served or not.
    pub log_set: Option<Uuid>,
    /// What lies behind the users' own bytes, of an array that lends, as is on record: a change that a crash could still
    /// take back is not seen here.
    pub lent: Vec<Parcel>,
}

/// Why an array refuses writes, and which members are the cause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub why: WhyRefused,
    /// In the numbers of the whole array: of a surrogate, its own.
    pub members: Vec<Member>,
}

/// Every way in which an array that serves refuses writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum WhyRefused {
    /// It was started read-only.
    ReadOnly,
    /// These members have no space, and redundancy does not tolerate all of them. The next write tries again.
    NoSpace,
    /// These members failed or are missing, and redundancy does not tolerate all of them.
    TooFew,
    /// The log of redirected writes has failed by these members of the surrogate, and what it holds must not be lost.
    LogFailed,
    /// These members of the surrogate have no space.
    LogFull,
    /// Another run has taken the array.
    Owned,
}

restripe_format::named! {
    /// Named as `status` and the metrics have them.
    WhyRefused {
        ReadOnly = "read-only",
        NoSpace = "no-space",
        TooFew = "too-few-members",
        LogFailed = "log-failed",
        LogFull = "log-full",
        Owned = "other-owner",
    }
}

/// What a growth would do.
#[derive(Clone, Copy, Debug)]
pub struct GrowthPlan {
    /// Slots afterwards.
    pub slots: u16,
    /// Bytes that users see afterwards.
    pub size_bytes: u64,
    /// Only the new members' share moves, each chunk within its row; otherwise every chunk is dealt anew.
    pub least_moves: bool,
    /// Users' bytes that are copied, about: of what was ever written.
    pub moved_bytes: u64,
    /// Bytes that a new member takes, as limits of its rate count them.
    pub member_bytes: u64,
    /// Bytes that a new member has to have.
    pub needs_bytes: u64,
    /// The member with the parity of all rows, if one has it and the growth moves the least. Only then may a
    /// spare take the parity over.
    pub parity: Option<Member>,
    pub pacing: Pacing,
}

/// What users read, by zones, as of the last read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HeatMap {
    /// Sectors of the array that a zone has; the last may have fewer. 0 until started.
    pub zone_sectors: u64,
    /// Each zone's reads, those of earlier epochs halved for each since, in parts of a read.
    pub popularity: Vec<u32>,
}

impl HeatMap {
    /// Parts of a read.
    pub const READ: u32 = 1 << 8;

    /// Of all zones, the share that counts as hot at most: a fifth.
    const HOT_SHARE: usize = 5;

    /// How many zones count as hot at most.
    pub fn hot_zones(&self) -> usize {
        self.popularity.len().div_ceil(HeatMap::HOT_SHARE)
    }

    /// The zones that anybody reads, most popular first and of equal ones the first.
    pub fn hottest(&self) -> Vec<u32> {
        let popularity = |zone: u32| self.popularity[zone as usize];
        let mut read: Vec<u32> = (0..self.popularity.len() as u32)
            .filter(|&zone| popularity(zone) > 0)
            .collect();
        read.sort_unstable_by_key(|&zone| (u32::MAX - popularity(zone), zone));
        read
    }
}

#[derive(Clone, Debug)]
pub struct MemberStatus {
    pub member: Member,
    pub uuid: Uuid,
    /// The slot in which it serves or into which it is rebuilt.
    pub slot: Option<u16>,
    /// It serves first copies of chunks: of an array without copies, whatever has a slot.
    pub has_firsts: bool,
    /// Partitions of other slots that lie on it, or are rebuilt there: slot and partition.
    pub hosts: Vec<(u16, u16)>,
    pub state: MemberState,
    /// It failed only because another member took its place by a replace.
    pub replaced: bool,
    /// It makes nothing durable.
    pub volatile: bool,
    /// Its last write found no space: it failed for that, or the array refuses writes.
    pub full: bool,
    /// Those that count against it, and since the start those of the last check and the lost ones.
    pub read_errors: u32,
    /// Of these, errors in this run where nothing is known to recover what is there. They never fail it.
    pub lost_errors: u32,
    /// What its spindle was at since the start; [`Spent::until`] adds what lasts.
    pub spent: Spent,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum MemberState {
    /// Current: serves reads and writes.
    Active,
    Rebuilding,
    Spare,
    Failed,
    /// Opened, and not (or no longer) of this array.
    Foreign,
}

#[derive(Clone, Debug)]
pub struct TaskStatus {
    pub kind: TaskKind,
    pub slot: Option<u16>,
    pub paused: bool,
    /// Windows are given to it, or would be if it were not paused: to one task at a time.
    pub first: bool,
    /// The growth fills its target as it moves rows.
    pub rides: bool,
    pub rows_done: u64,
    pub rows_total: u64,
    /// None while it does not go: paused, or another goes first.
    pub moved: Option<Moved>,
    /// Bytes of one member that are not done.
    pub left: u64,
    pub pacing: Pacing,
    /// What its throttle aims at, while it goes.
    pub aim: Option<Aim>,
    /// Rows in which a scrub found cells that disagree.
    pub mismatches: u64,
}

impl TaskStatus {
    /// Bytes of one member a second, over the last seconds; none while it has gone for less than it takes to tell.
    pub fn rate(&self, now: Nanos) -> Option<u64> {
        match self.moved {
            None => Some(0),
            Some(moved) if now.since(moved.since) < TELLING => None,
            Some(moved) => Some(moved.rate(now)),
        }
    }

    /// How long it takes from now on at this rate; none when nothing moves, or it is not known yet.
    pub fn lasts(&self, now: Nanos) -> Option<Nanos> {
        let rate = u128::from(self.rate(now)?);
        let nanos = (u128::from(self.left) * SECOND).checked_div(rate)?;
        Some(Nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

const SECOND: u128 = 1_000_000_000;
/// A task's first windows end together, and tell nothing of its speed.
const TELLING: Nanos = Nanos(500_000_000);

/// What a task has moved of one member since a moment of the last seconds. Nothing happens in an engine while a task
/// waits, so whoever asks for a speed brings the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    pub since: Nanos,
    pub bytes: u64,
}

impl Moved {
    /// Bytes a second.
    pub fn rate(self, now: Nanos) -> u64 {
        let nanos = u128::from(now.since(self.since).0.max(1));
        u64::try_from(u128::from(self.bytes) * SECOND / nanos).unwrap_or(u64::MAX)
    }
}

/// How a task is told to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pacing {
    /// Bytes of one member a second, which it may go however busy users are.
    pub rate_min: u64,
    /// And which it never exceeds.
    pub rate_max: u64,
    pub throttle: Throttle,
    pub order: Order,
    /// Reads of what is not rebuilt call it there.
    pub on_demand: bool,
}

/// What a throttle with a goal aims at, and how it fares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aim {
    Latency {
        /// Of a hundred reads and writes, so many are to take no longer.
        percentile: u8,
        at_most: Nanos,
        /// How long they took in the last ten to twenty seconds; none of too few.
        is: Option<Nanos>,
        /// Bytes of one member a second that the task may go beside users.
        rate: u64,
        /// They take longer though the task goes at its minimum.
        missed: bool,
    },
    Finish {
        /// When it is to be done.
        by: Nanos,
        /// Bytes of one member a second that this takes from now on.
        needs: u64,
        /// That is above the maximum, or above what members give.
        missed: bool,
    },
}

/// Counts since the start, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub trims: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Member operations, by [`crate::Class`] in its order: user, parity, task, metadata.
    pub ios: [u64; 4],
    pub io_bytes: [u64; 4],
    /// Blocks of 4 KiB that reads asked for, where anything was ever written.
    pub blocks_asked: u64,
    /// Of these, answered by the read cache.
    pub blocks_cached: u64,
    /// Blocks that members were asked for on account of the others. Over `blocks_asked`, the *requests generation ratio*
    /// of Victim Disk First (RGR): how much more, or less, the members do than was asked of the array.
    pub blocks_fetched: u64,
    pub degraded_reads: u64,
    pub full_row_writes: u64,
    pub read_modify_writes: u64,
    pub reconstruct_writes: u64,
    pub repaired_sectors: u64,
}

/// What a part of the array's address space is like: for block-status queries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapExtent {
    pub lba: u64,
    pub sectors: u64,
    /// Never written: reads as zeros.
    pub hole: bool,
    pub health: Health,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    Healthy,
    Degraded,
    /// Redundancy was restored by the running rebuild.
    Rebuilt,
    Lost,
}
