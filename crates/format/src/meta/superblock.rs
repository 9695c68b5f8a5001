//! The superblock: what every member says about the array, about all its members and about itself.
//!
//! A member keeps two copies, A and B, each 16 KiB. A write of superblocks raises `sequence` and goes to copy A when
//! the sequence is even, to copy B when it is odd, so that a torn write never costs the version before it.
//! `rules.rs` says which values are sound; both directions obey it.

use super::bytes::{get, get_u16, get_u32, get_u64, get_uuid, put, put_u16, put_u32, put_u64};
use super::crc::crc32c_without;
use super::leases::{PARCEL_BYTES, PARCELS_MAX, Parcel, get_parcel, put_parcel};
use super::reshape::{RESHAPE_BYTES, Reshape, get_reshape, put_reshape};
use super::{FORMAT_MAJOR, FORMAT_MINOR, MetaError, field, header, rules};
use crate::layout::scaled::History;
use crate::layout::{Geometry, Level, Rotation, Skew};
use crate::units::{PAGE_BYTES, PAGE_SECTORS, Uuid};
use crate::values::{Page, TaskKind, zeroed_page};
use alloc::string::String;
use alloc::vec::Vec;
use entries::{
    get_member, get_placement, get_region, get_tasks, put_member, put_placement, put_region,
    put_run, put_task,
};
use tables::{Table, TablePlace, append, append_entries, narrow};

pub use last_scrub::{LastScrub, ScrubState, ScrubbedMember};
pub use tail::{ArrayOwner, Tail};

mod entries;
pub mod last_scrub;
pub mod left;
mod tables;
pub mod tail;

pub const MAGIC: [u8; 8] = *b"Restripe";

pub const SUPERBLOCK_PAGES: usize = 4;
pub const SUPERBLOCK_BYTES: usize = SUPERBLOCK_PAGES * PAGE_BYTES;
pub const SUPERBLOCK_SECTORS: u64 = SUPERBLOCK_PAGES as u64 * PAGE_SECTORS;

/// Where copy A starts on every member.
pub const SUPER_A_AT: u64 = 0;

/// Where copy B may start: in front of a power of two, so that it is found without copy A. The first place with a
/// sound copy whose own region table says that it lies there is the one.
pub const SUPER_B_PLACES: [u64; 6] = [
    (1 << 8) - SUPERBLOCK_SECTORS,
    (1 << 9) - SUPERBLOCK_SECTORS,
    (1 << 10) - SUPERBLOCK_SECTORS,
    (1 << 11) - SUPERBLOCK_SECTORS,
    (1 << 12) - SUPERBLOCK_SECTORS,
    (1 << 13) - SUPERBLOCK_SECTORS,
];

pub const NAME_BYTES_MAX: usize = 32;
pub const MEMBERS_MAX: usize = 64;
pub const REGIONS_MAX: usize = 64;
pub const PLACEMENTS_MAX: usize = 256;
pub const TASKS_MAX: usize = 8;
/// Runs of all tasks' done-sets together.
pub const RUNS_MAX: usize = 384;
/// Of one task's: so that none has to give up any when another begins.
pub const RUNS_OF_TASK_MAX: usize = RUNS_MAX / TASKS_MAX;

/// Bytes before the tables.
pub const HEADER_BYTES: usize = 256;
pub const REGION_BYTES: usize = 24;
pub const MEMBER_BYTES: usize = 48;
pub const PLACEMENT_BYTES: usize = 12;
pub const TASK_BYTES: usize = 16;
pub const RUN_BYTES: usize = 16;
pub const HISTORY_BYTES: usize = 4;

/// Stands for "none" where an index or a slot is optional.
const NONE: u16 = u16::MAX;

const FLAG_WRITTEN_ALL: u32 = 1;
const FLAG_CLEAN: u32 = 2;
const FLAG_RESYNC_PENDING: u32 = 4;
const FLAG_PRIMARY_FIRST: u32 = 8;
const FLAG_PRIMARY_ONLY: u32 = 16;
const FLAGS_KNOWN: u32 =
    FLAG_WRITTEN_ALL | FLAG_CLEAN | FLAG_RESYNC_PENDING | FLAG_PRIMARY_FIRST | FLAG_PRIMARY_ONLY;

/// Features whose bit stands in a superblock and that a reader must know: current copies may lie in another array.
const INCOMPATIBLE_PARTNER: u64 = 1;
/// And: the end of the array is not its users'.
const INCOMPATIBLE_LENDS: u64 = 2;
/// And: rows stand over groups of the slots.
const INCOMPATIBLE_SKEWED: u64 = 4;
/// And: data slots were added, and chunks moved to them.
const INCOMPATIBLE_GROWN: u64 = 8;
/// And: rows are taken to another shape, or once were.
const INCOMPATIBLE_RESHAPED: u64 = 16;
/// Secondary copies may lack data that primary copies have.
const INCOMPATIBLE_PRIMARY_FIRST: u64 = 32;
/// Rows have three parities or more.
const INCOMPATIBLE_REED_SOLOMON: u64 = 64;
/// The log has a buffer in persistent memory, and says whether that may hold what counts.
const INCOMPATIBLE_BUFFER: u64 = 128;
const INCOMPATIBLE_KNOWN: u64 = INCOMPATIBLE_PARTNER
    | INCOMPATIBLE_LENDS
    | INCOMPATIBLE_SKEWED
    | INCOMPATIBLE_GROWN
    | INCOMPATIBLE_RESHAPED
    | INCOMPATIBLE_PRIMARY_FIRST
    | INCOMPATIBLE_REED_SOLOMON
    | INCOMPATIBLE_BUFFER;
/// LEVEL of Reed-Solomon, which has no number.
const LEVEL_REED_SOLOMON: u8 = 64;

offsets! {
    /// Byte offsets in the header and in the entries of each table.
    pub mod at {
        pub const MAGIC: usize = 0;
        pub const MAJOR: usize = 8;
        pub const MINOR: usize = 10;
        pub const LENGTH: usize = 12;
        pub const CRC: usize = 16;
        pub const FLAGS: usize = 20;
        pub const INCOMPATIBLE: usize = 24;
        pub const COMPATIBLE: usize = 32;
        pub const ARRAY: usize = 40;
        pub const MEMBER: usize = 56;
        pub const CREATED: usize = 72;
        pub const GENERATION: usize = 80;
        pub const SEQUENCE: usize = 88;
        pub const NAME: usize = 96;
        pub const LEVEL: usize = 128;
        pub const ROTATION: usize = 129;
        pub const COPIES: usize = 130;
        pub const WRITE_HOLE: usize = 131;
        pub const SLOTS: usize = 132;
        pub const GROUPS: usize = 134;
        pub const PARTITIONS: usize = 135;
        /// Of a grown array, which has no groups.
        pub const HISTORY_OFFSET: usize = GROUPS;
        pub const CHUNK_SECTORS: usize = 136;
        pub const LOGICAL_BLOCK: usize = 140;
        pub const SLOT_SECTORS: usize = 144;
        pub const EXTENT_ROWS: usize = 152;
        pub const INTENT_ROWS: usize = 160;
        pub const LOG_FLOOR: usize = 168;
        pub const REGIONS: usize = 176;
        pub const MEMBERS: usize = 184;
        pub const PLACEMENT: usize = 192;
        pub const TASKS: usize = 200;
        pub const RUNS: usize = 208;
        pub const FORCED: usize = 216;
        pub const PARTNER: usize = 224;
        pub const PARTNER_EPOCH: usize = 240;
        pub const PARTNER_SESSION: usize = 244;
        pub const PARTNER_ROLE: usize = 248;
        pub const BUFFER: usize = 249;
        pub const PARCELS_OFFSET: usize = 250;
        pub const PARCELS_ENTRY_BYTES: usize = 252;
        pub const PARCELS_COUNT: usize = 254;

        pub const TABLE_OFFSET: usize = 0;
        pub const TABLE_ENTRY_BYTES: usize = 4;
        pub const TABLE_COUNT: usize = 6;

        pub const REGION_KIND: usize = 0;
        pub const REGION_START: usize = 8;
        pub const REGION_SECTORS: usize = 16;

        pub const MEMBER_UUID: usize = 0;
        pub const MEMBER_ROLE: usize = 16;
        pub const MEMBER_PARTIAL: usize = 17;
        pub const MEMBER_DROPPED: usize = 18;
        pub const MEMBER_READ_ERRORS: usize = 20;
        pub const MEMBER_STALE_SINCE: usize = 24;
        pub const MEMBER_LOG_FLOOR: usize = 32;
        pub const MEMBER_CURRENT_SINCE: usize = 40;

        pub const PLACEMENT_SLOT: usize = 0;
        pub const PLACEMENT_PARTITION: usize = 2;
        pub const PLACEMENT_MEMBER: usize = 4;
        pub const PLACEMENT_INCOMING: usize = 6;
        pub const PLACEMENT_REGION: usize = 8;
        pub const PLACEMENT_INCOMING_REGION: usize = 10;

        pub const TASK_KIND: usize = 0;
        pub const TASK_PAUSED: usize = 1;
        pub const TASK_SLOT: usize = 2;
        pub const TASK_RUNS: usize = 4;

        pub const RUN_ROW: usize = 0;
        pub const RUN_ROWS: usize = 8;

        pub const HISTORY_COUNTS: usize = 0;

        pub const PARCEL_START: usize = 0;
        pub const PARCEL_SECTORS: usize = 8;
        pub const PARCEL_BORROWER: usize = 16;
        pub const PARCEL_NAME: usize = 32;
    }
}

/// How a write hole is closed, or bounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum WriteHole {
    /// Nothing: for levels without redundancy, or where a whole resync after a crash is acceptable.
    #[default]
    None,
    /// Partial parity is logged before cells are written in place.
    Ppl,
    /// The intent map says what to resync after a crash.
    Bitmap,
    /// A redo log. Reserved: no version of this code writes it.
    Journal,
    /// Rows are written whole, by somebody who counts none that a crash cut short: the clusters of an overlay's log. So no row
    /// that counts is ever out of step, and nothing has to be said about those that are being written.
    WholeRows,
}

impl WriteHole {
    /// What `create` takes when nothing is asked for.
    pub fn default_for(level: Level) -> WriteHole {
        match level {
            Level::Raid0 => WriteHole::None,
            Level::Raid1 | Level::Raid10 { .. } | Level::ReedSolomon { .. } => WriteHole::Bitmap,
            Level::Raid4 | Level::Raid5(_) | Level::Raid6(_) => WriteHole::Ppl,
        }
    }
}

/// What a region of a member is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum RegionKind {
    SuperA,
    SuperB,
    /// Pages of the written map.
    Written,
    /// Pages of the intent map.
    Intent,
    /// Pages of the list of lost extents.
    Lost,
    /// Partial-parity records.
    Log,
    /// Set data.
    Data,
    /// Reserved: an overlay's log.
    Overlay,
    /// Room for partitions of other members' slots. Arrays without partitions have none.
    SparePartition,
    /// Reserved: lent to another array.
    Lease,
    /// Pages of the redirected map. Arrays of an earlier program have none.
    Redirected,
    /// Pages of heat. Arrays of an earlier program have none.
    Heat,
    /// A kind of a later version. Kept as it is and never touched.
    Other(u16),
}

/// A purpose-bound part of a member, in sectors of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    pub kind: RegionKind,
    pub start: u64,
    pub sectors: u64,
}

impl Region {
    /// The first sector behind the region.
    pub fn end(&self) -> u64 {
        self.start + self.sectors
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum MemberRole {
    /// Current: has missed no acknowledged write.
    Active,
    /// Being brought up to date.
    Rebuilding,
    Spare,
    Failed {
        /// The first generation in which it was no longer current.
        stale_since: u64,
        /// The intent map covers everything that it missed.
        partial: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberEntry {
    pub uuid: Uuid,
    pub role: MemberRole,
    /// While active: the first generation of this spell of being current. Without meaning otherwise.
    pub current_since: u64,
    /// Log records on this member with a sequence below this are void.
    pub log_floor: u64,
    pub read_errors: u32,
    /// While failed: the version of the superblock under which it ceased to be current, or 0 if that is not known.
    pub left_at: u64,
    /// While failed: the slot whose task a start dropped, for want of this member. None once that slot is filled anew.
    pub dropped_for: Option<u16>,
}

/// Which member holds a slot's data: of one partition of the slot, or of all if the slot has this one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    pub slot: u16,
    pub partition: u16,
    /// Index into [`Superblock::members`].
    pub member: Option<u16>,
    /// The member that a rebuild or a replacement writes to.
    pub incoming: Option<u16>,
    /// Where on `member`: 0 is its set data, a higher number one of its spare partitions, counted from 1.
    pub region: u16,
    /// The same on `incoming`.
    pub incoming_region: u16,
}

/// How far a task has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskRecord {
    pub kind: TaskKind,
    pub slot: Option<u16>,
    pub paused: bool,
    /// Rows that are done: (first row, rows), ascending and disjoint.
    pub done: Vec<(u64, u64)>,
}

impl TaskRecord {
    /// The slot it fills, if it fills one.
    pub fn filled_slot(&self) -> Option<u16> {
        self.slot.filter(|_| self.kind.fills())
    }
}

/// What this array is to the other of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum PartnerRole {
    /// It has a surrogate, which may hold the only current copy of some sectors.
    Main,
    /// It is the surrogate: its set data are the other's log.
    Surrogate,
    /// It is the buffer of the other's log: records that were gathered lie there until the log has them.
    Buffer,
}

impl PartnerRole {
    /// Whether only the other array can read what this one holds.
    pub fn serves(self) -> bool {
        matches!(self, PartnerRole::Surrogate | PartnerRole::Buffer)
    }
}

/// What a log has on record of its buffer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub enum BufferMark {
    /// There is none.
    #[default]
    None,
    /// The log has all that it had.
    Idle,
    /// What users flushed may lie there alone.
    Counts,
}

/// The other array of a main set and its surrogate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Partner {
    pub role: PartnerRole,
    /// The other one.
    pub array: Uuid,
    /// Of a main set: of the log that counts. Raised by each start that begins the log anew, since nothing in it counted;
    /// what an earlier time left there never does again. Without meaning in a surrogate. Not 0.
    pub epoch: u32,
    /// Of both sets of a pair: starts that had both, counted twice. The surrogate may have one more after a crash. One that is
    /// put back as it was before has less.
    pub session: u32,
}

impl Partner {
    /// Of a set that is made for a pair: of the first log, and no start has had both.
    pub const fn new(role: PartnerRole, array: Uuid) -> Partner {
        Partner {
            role,
            array,
            epoch: 1,
            session: 0,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Superblock {
    pub array: Uuid,
    /// For people; at most 32 bytes, no control characters.
    pub name: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Raised whenever the set of current members changes.
    pub generation: u64,
    /// Raised at each write of superblocks; its lowest bit says which copy this is.
    pub sequence: u64,
    /// The generation that the last start from a minority began; 0 if there was none. Such a start may have left a
    /// majority behind that went on as well.
    pub forced: u64,
    /// The member on which this copy lies.
    pub member: Uuid,
    pub geometry: Geometry,
    /// Bytes; the largest of the members' when the array was made.
    pub logical_block: u32,
    pub write_hole: WriteHole,
    /// The parts of the member on which this copy lies.
    pub regions: Vec<Region>,
    /// Rows for each bit of the written map.
    pub extent_rows: u64,
    /// Every row counts as written, whatever the map says.
    pub written_all: bool,
    /// Rows for each bit of the intent map.
    pub intent_rows: u64,
    /// Nothing was in flight when this was written, and nothing has been since.
    pub clean: bool,
    /// Log records with a sequence below this are obsolete on every member.
    pub log_floor: u64,
    /// Rows outside the resync task's done-set are not known to be in step.
    pub resync_pending: bool,
    /// Primary copies may have data that secondary copies lack; only the primary copies are trusted.
    pub ahead: bool,
    /// The log lacks data that primary copies have, and is ignored. Never without `ahead`.
    pub alone: bool,
    pub members: Vec<MemberEntry>,
    /// Ascending by (slot, partition); every slot is in it.
    pub placement: Vec<Placement>,
    pub tasks: Vec<TaskRecord>,
    pub partner: Option<Partner>,
    /// Of a log that is written by whole rows: its buffer.
    pub buffer: BufferMark,
    /// The end of the array, if it lends: ascending and without gaps.
    pub lent: Vec<Parcel>,
    pub reshape: Option<Reshape>,
    /// The records that an older program ignores, and drops when it writes.
    pub tail: Tail,
}

impl Superblock {
    /// Sectors of the array that are its users' own, of all that its layout has.
    pub fn own_sectors(&self, all: u64) -> u64 {
        self.lent.first().map_or(all, |parcel| parcel.start)
    }

    /// Whether the tables leave the tail free.
    pub fn keeps_tail(&self) -> bool {
        let runs: usize = self.tasks.iter().map(|task| task.done.len()).sum();
        let tables = [
            (self.regions.len(), REGION_BYTES),
            (self.members.len(), MEMBER_BYTES),
            (self.placement.len(), PLACEMENT_BYTES),
            (self.tasks.len(), TASK_BYTES),
            (runs, RUN_BYTES),
            (self.lent.len(), PARCEL_BYTES),
        ];
        let tables: usize = tables.iter().map(|(count, bytes)| count * bytes).sum();
        // A history and a reshape at most.
        HEADER_BYTES + RESHAPE_BYTES + HISTORY_BYTES + tables <= tail::TAIL_AT
    }

    /// The line that says where a partition of a slot lies.
    pub fn placement_of(&self, slot: u16, partition: u16) -> Option<&Placement> {
        let mut of_slot = self.placement.iter().filter(|line| line.slot == slot);
        of_slot.rfind(|line| line.partition <= partition)
    }

    /// Where on its member a placed partition lies, by the regions of that member: the sector of the member at which it
    /// starts, and the sector of the slot that lies there.
    pub fn place_in(&self, regions: &[Region], region: u16, partition: u16) -> Option<(u64, u64)> {
        let first = |kind| regions.iter().find(|region| region.kind == kind);
        let Some(index) = region.checked_sub(1) else {
            return first(RegionKind::Data).map(|data| (data.start, 0));
        };
        let each = self.geometry.partition_sectors();
        let spare = first(RegionKind::SparePartition)?;
        let (from, index) = (u64::from(partition) * each, u64::from(index));
        (index < spare.sectors / each).then(|| (spare.start + index * each, from))
    }

    /// The index of a member in the member table.
    pub fn index_of(&self, member: Uuid) -> Option<u16> {
        let index = self.members.iter().position(|entry| entry.uuid == member)?;
        u16::try_from(index).ok()
    }

    /// The first region of this kind on this member.
    pub fn region(&self, kind: RegionKind) -> Option<Region> {
        let mut regions = self.regions.iter();
        regions.find(|region| region.kind == kind).copied()
    }

    /// Where the copy with this superblock's sequence belongs on its member.
    pub fn home(&self) -> Option<Region> {
        self.region(match self.sequence.is_multiple_of(2) {
            true => RegionKind::SuperA,
            false => RegionKind::SuperB,
        })
    }

    /// A member has become current: a new generation begins.
    pub fn activate(&mut self, index: u16) {
        self.generation += 1;
        let entry = &mut self.members[usize::from(index)];
        entry.role = MemberRole::Active;
        entry.current_since = self.generation;
    }

    /// A member is current no longer: a new generation begins.
    pub fn fail(&mut self, index: u16, partial: bool) {
        self.generation += 1;
        let (stale_since, sequence) = (self.generation, self.sequence);
        self.members[usize::from(index)].leave(stale_since, partial, sequence);
    }

    /// Whether a failed member of the table did not fail, but was replaced: its successor became current in the generation
    /// in which it left. A failure and the end of a rebuild have generations of their own.
    pub fn was_replaced(&self, entry: &MemberEntry) -> bool {
        let MemberRole::Failed { stale_since, .. } = entry.role else {
            return false;
        };
        let succeeds = |other: &MemberEntry| {
            let served = matches!(other.role, MemberRole::Active | MemberRole::Failed { .. });
            served && other.uuid != entry.uuid && other.current_since == stale_since
        };
        self.members.iter().any(succeeds)
    }

    /// What this superblock knows of the past: was this member current in that generation? `generation` is not later
    /// than this superblock's own.
    pub fn was_current(&self, member: Uuid, generation: u64) -> Option<bool> {
        let entry = self.members.iter().find(|entry| entry.uuid == member);
        let now = entry.is_some_and(|entry| entry.role == MemberRole::Active);
        let since = match entry {
            Some(MemberEntry {
                role: MemberRole::Active,
                current_since,
                ..
            }) => *current_since,
            Some(MemberEntry {
                role: MemberRole::Failed { stale_since, .. },
                ..
            }) => *stale_since,
            _ => self.generation,
        };
        (generation >= since).then_some(now)
    }

    /// The pages of this copy. Refuses what [`Superblock::decode`] would refuse.
    pub fn encode(&self) -> Result<Vec<Page>, MetaError> {
        rules::check(self)?;
        let mut bytes = Vec::with_capacity(SUPERBLOCK_BYTES);
        bytes.resize(HEADER_BYTES, 0);
        self.put_header(&mut bytes);
        if let Some(reshape) = &self.reshape {
            append_entries(&mut bytes, RESHAPE_BYTES, &[*reshape], put_reshape);
        }
        self.put_tables(&mut bytes);
        assert!(bytes.len() <= SUPERBLOCK_BYTES, "full tables fit");
        let length = u32::try_from(bytes.len()).expect("16 KiB at most");
        put_u32(&mut bytes, at::LENGTH, length);
        bytes.resize(SUPERBLOCK_BYTES, 0);
        self.tail.put(&mut bytes);
        left::put(&self.members, &mut bytes);
        let crc = crc32c_without(&bytes, at::CRC);
        put_u32(&mut bytes, at::CRC, crc);
        Ok(into_pages(&bytes))
    }

    fn put_header(&self, bytes: &mut [u8]) {
        put(bytes, at::MAGIC, MAGIC);
        put_u16(bytes, at::MAJOR, FORMAT_MAJOR);
        put_u16(bytes, at::MINOR, FORMAT_MINOR);
        put_u32(bytes, at::FLAGS, self.flags());
        put(bytes, at::ARRAY, self.array.0);
        put(bytes, at::MEMBER, self.member.0);
        put_u64(bytes, at::CREATED, self.created);
        put_u64(bytes, at::GENERATION, self.generation);
        put_u64(bytes, at::SEQUENCE, self.sequence);
        put_u64(bytes, at::FORCED, self.forced);
        bytes[at::NAME..at::NAME + self.name.len()].copy_from_slice(self.name.as_bytes());
        self.put_geometry(bytes);
        put_u32(bytes, at::LOGICAL_BLOCK, self.logical_block);
        bytes[at::WRITE_HOLE] = self.write_hole.code();
        put_u64(bytes, at::EXTENT_ROWS, self.extent_rows);
        put_u64(bytes, at::INTENT_ROWS, self.intent_rows);
        put_u64(bytes, at::LOG_FLOOR, self.log_floor);
        put_u64(bytes, at::INCOMPATIBLE, self.features());
        if let Some(partner) = &self.partner {
            put_partner(bytes, partner);
        }
        bytes[at::BUFFER] = self.buffer as u8;
    }

    fn features(&self) -> u64 {
        let bit = |set: bool, feature: u64| if set { feature } else { 0 };
        let level = self.geometry.level;
        bit(self.partner.is_some(), INCOMPATIBLE_PARTNER)
            | bit(!self.lent.is_empty(), INCOMPATIBLE_LENDS)
            | bit(self.geometry.skew.is_some(), INCOMPATIBLE_SKEWED)
            | bit(self.geometry.grown.is_some(), INCOMPATIBLE_GROWN)
            | bit(self.reshape.is_some(), INCOMPATIBLE_RESHAPED)
            | bit(self.ahead, INCOMPATIBLE_PRIMARY_FIRST)
            | bit(is_reed_solomon(level), INCOMPATIBLE_REED_SOLOMON)
            | bit(self.buffer != BufferMark::None, INCOMPATIBLE_BUFFER)
    }

    fn put_geometry(&self, bytes: &mut [u8]) {
        let (level, rotation, copies) = level_codes(self.geometry.level);
        bytes[at::LEVEL] = level;
        bytes[at::ROTATION] = rotation;
        bytes[at::COPIES] = copies;
        put_u16(bytes, at::SLOTS, self.geometry.slots);
        put_u32(bytes, at::CHUNK_SECTORS, self.geometry.chunk_sectors);
        put_u64(bytes, at::SLOT_SECTORS, self.geometry.slot_sectors);
        if let Some(skew) = self.geometry.skew {
            bytes[at::GROUPS] = skew.groups as u8; // checked: at most CELLS_MAX
            bytes[at::PARTITIONS] = skew.partitions as u8; // checked: at most SLOTS_MAX
        }
    }

    fn flags(&self) -> u32 {
        let bit = |set: bool, flag: u32| if set { flag } else { 0 };
        bit(self.written_all, FLAG_WRITTEN_ALL)
            | bit(self.clean, FLAG_CLEAN)
            | bit(self.resync_pending, FLAG_RESYNC_PENDING)
            | bit(self.ahead, FLAG_PRIMARY_FIRST)
            | bit(self.alone, FLAG_PRIMARY_ONLY)
    }

    fn put_tables(&self, bytes: &mut Vec<u8>) {
        append(bytes, at::REGIONS, REGION_BYTES, &self.regions, put_region);
        append(bytes, at::MEMBERS, MEMBER_BYTES, &self.members, put_member);
        let (lines, tasks) = (&self.placement, &self.tasks);
        append(bytes, at::PLACEMENT, PLACEMENT_BYTES, lines, put_placement);
        append(bytes, at::TASKS, TASK_BYTES, tasks, put_task);
        let runs = tasks.iter().flat_map(|task| task.done.clone());
        let runs: Vec<(u64, u64)> = runs.collect();
        append(bytes, at::RUNS, RUN_BYTES, &runs, put_run);
        if !self.lent.is_empty() {
            self.put_parcels(bytes);
        }
        if let Some(history) = &self.geometry.grown {
            let offset = append_entries(bytes, HISTORY_BYTES, &[*history], put_history);
            put_u16(bytes, at::HISTORY_OFFSET, narrow(offset));
        }
    }

    /// The table with the short descriptor.
    fn put_parcels(&self, bytes: &mut Vec<u8>) {
        let offset = append_entries(bytes, PARCEL_BYTES, &self.lent, put_parcel);
        put_u16(bytes, at::PARCELS_OFFSET, narrow(offset));
        put_u16(bytes, at::PARCELS_ENTRY_BYTES, narrow(PARCEL_BYTES));
        put_u16(bytes, at::PARCELS_COUNT, narrow(self.lent.len()));
    }

    /// Reads a copy: the first [`SUPERBLOCK_BYTES`] of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, MetaError> {
        let bytes = sound_bytes(bytes)?;
        let flags = get_u32(bytes, at::FLAGS);
        if flags & !FLAGS_KNOWN != 0 {
            return field("flags", u64::from(flags));
        }
        let table = |what, at, size, most| Table::open(bytes, what, at, size, most);
        let mut superblock = Superblock {
            array: get_uuid(bytes, at::ARRAY),
            name: get_name(bytes)?,
            created: get_u64(bytes, at::CREATED),
            generation: get_u64(bytes, at::GENERATION),
            sequence: get_u64(bytes, at::SEQUENCE),
            forced: get_u64(bytes, at::FORCED),
            member: get_uuid(bytes, at::MEMBER),
            geometry: get_geometry(bytes)?,
            logical_block: get_u32(bytes, at::LOGICAL_BLOCK),
            write_hole: WriteHole::of_code(bytes[at::WRITE_HOLE])?,
            regions: table("regions", at::REGIONS, REGION_BYTES, REGIONS_MAX)?.read(get_region)?,
            extent_rows: get_u64(bytes, at::EXTENT_ROWS),
            written_all: flags & FLAG_WRITTEN_ALL != 0,
            intent_rows: get_u64(bytes, at::INTENT_ROWS),
            clean: flags & FLAG_CLEAN != 0,
            log_floor: get_u64(bytes, at::LOG_FLOOR),
            resync_pending: flags & FLAG_RESYNC_PENDING != 0,
            ahead: flags & FLAG_PRIMARY_FIRST != 0,
            alone: flags & FLAG_PRIMARY_ONLY != 0,
            members: table("members", at::MEMBERS, MEMBER_BYTES, MEMBERS_MAX)?.read(get_member)?,
            placement: table("placements", at::PLACEMENT, PLACEMENT_BYTES, PLACEMENTS_MAX)?
                .read(get_placement)?,
            tasks: get_tasks(bytes)?,
            partner: get_partner(bytes)?,
            buffer: get_buffer(bytes)?,
            lent: get_parcels(bytes)?,
            reshape: reshape_in(bytes)?,
            tail: Tail::get(bytes)?,
        };
        left::get(bytes, &mut superblock.members);
        rules::check(&superblock)?;
        Ok(superblock)
    }
}

fn into_pages(bytes: &[u8]) -> Vec<Page> {
    let page = |chunk: &[u8; PAGE_BYTES]| {
        let mut page = zeroed_page();
        page.copy_from_slice(chunk);
        page
    };
    bytes.as_chunks::<PAGE_BYTES>().0.iter().map(page).collect()
}

/// The bytes of a copy whose magic, checksum, version and features allow reading on.
fn sound_bytes(bytes: &[u8]) -> Result<&[u8], MetaError> {
    let needs = SUPERBLOCK_BYTES as u64;
    let short = MetaError::Truncated {
        bytes: bytes.len() as u64,
        needs,
    };
    let bytes = bytes.get(..SUPERBLOCK_BYTES).ok_or(short)?;
    if bytes[..MAGIC.len()] != MAGIC {
        return Err(MetaError::NotFound);
    }
    header::check_version(bytes, at::CRC, at::MAJOR)?;
    let unknown = get_u64(bytes, at::INCOMPATIBLE) & !INCOMPATIBLE_KNOWN;
    if unknown != 0 {
        return Err(MetaError::Features { unknown });
    }
    Ok(bytes)
}

// ------------------------------------------------------------------------------------------- header fields

fn get_name(bytes: &[u8]) -> Result<String, MetaError> {
    let field_bytes: [u8; NAME_BYTES_MAX] = get(bytes, at::NAME);
    let end = field_bytes.iter().position(|byte| *byte == 0);
    let length = end.unwrap_or(NAME_BYTES_MAX);
    if let Some(at) = field_bytes[length..].iter().position(|byte| *byte != 0) {
        return field("name", (length + at) as u64);
    }
    match core::str::from_utf8(&field_bytes[..length]) {
        Ok(name) => Ok(String::from(name)),
        Err(error) => field("name", error.valid_up_to() as u64),
    }
}

fn get_geometry(bytes: &[u8]) -> Result<Geometry, MetaError> {
    Ok(Geometry {
        level: get_level(bytes)?,
        slots: get_u16(bytes, at::SLOTS),
        chunk_sectors: get_u32(bytes, at::CHUNK_SECTORS),
        slot_sectors: get_u64(bytes, at::SLOT_SECTORS),
        skew: get_skew(bytes),
        grown: get_history(bytes)?,
    })
}

/// Without the bit that tells of groups, their bytes are reserved.
fn get_skew(bytes: &[u8]) -> Option<Skew> {
    let skewed = get_u64(bytes, at::INCOMPATIBLE) & INCOMPATIBLE_SKEWED != 0;
    skewed.then(|| Skew {
        groups: bytes[at::GROUPS].into(),
        partitions: bytes[at::PARTITIONS].into(),
    })
}

fn put_history(bytes: &mut [u8], history: &History) {
    put_u32(bytes, at::HISTORY_COUNTS, history.mask());
}

fn get_history(bytes: &[u8]) -> Result<Option<History>, MetaError> {
    if get_u64(bytes, at::INCOMPATIBLE) & INCOMPATIBLE_GROWN == 0 {
        return Ok(None);
    }
    let place = TablePlace {
        offset: get_u16(bytes, at::HISTORY_OFFSET).into(),
        entry_bytes: HISTORY_BYTES as u16, // 4
        count: 1,
    };
    let table = Table::at(bytes, "history", place, HISTORY_BYTES, 1)?;
    let mask = get_u32(table.bytes, at::HISTORY_COUNTS);
    match History::of_mask(mask) {
        Some(history) => Ok(Some(history)),
        None => field("history", mask.into()),
    }
}

fn level_codes(level: Level) -> (u8, u8, u8) {
    match level {
        Level::Raid0 => (0, 0, 0),
        Level::Raid1 => (1, 0, 0),
        Level::Raid4 => (4, 0, 0),
        Level::Raid5(rotation) => (5, rotation_code(rotation), 0),
        Level::Raid6(rotation) => (6, rotation_code(rotation), 0),
        Level::Raid10 { copies } => (10, 0, copies),
        Level::ReedSolomon { parities } => {
            let rotation = rotation_code(Rotation::LeftSymmetric);
            (LEVEL_REED_SOLOMON, rotation, parities)
        }
    }
}

fn is_reed_solomon(level: Level) -> bool {
    matches!(level, Level::ReedSolomon { .. })
}

fn get_level(bytes: &[u8]) -> Result<Level, MetaError> {
    let rotation = bytes[at::ROTATION];
    let level = match bytes[at::LEVEL] {
        0 => Level::Raid0,
        1 => Level::Raid1,
        4 => Level::Raid4,
        5 => Level::Raid5(get_rotation(rotation)?),
        6 => Level::Raid6(get_rotation(rotation)?),
        10 => Level::Raid10 {
            copies: bytes[at::COPIES],
        },
        LEVEL_REED_SOLOMON => Level::ReedSolomon {
            parities: bytes[at::COPIES],
        },
        other => return field("level", u64::from(other)),
    };
    let told = get_u64(bytes, at::INCOMPATIBLE) & INCOMPATIBLE_REED_SOLOMON != 0;
    if told != is_reed_solomon(level) {
        return field("level", u64::from(bytes[at::LEVEL]));
    }
    let (_, rotation_expected, copies_expected) = level_codes(level);
    if rotation != rotation_expected {
        return field("rotation", u64::from(rotation));
    }
    if bytes[at::COPIES] != copies_expected {
        return field("copies", u64::from(bytes[at::COPIES]));
    }
    Ok(level)
}

/// md's numbers.
fn rotation_code(rotation: Rotation) -> u8 {
    u8::try_from(rotation.md_layout()).expect("md numbers them from 0 to 5")
}

fn get_rotation(code: u8) -> Result<Rotation, MetaError> {
    let mut all = Rotation::ALL.into_iter();
    match all.find(|rotation| rotation_code(*rotation) == code) {
        Some(rotation) => Ok(rotation),
        None => field("rotation", code.into()),
    }
}

codes! { "write hole": WriteHole { None = 0, Ppl = 1, Bitmap = 2, Journal = 3, WholeRows = 4 } }
codes! { "partner role": PartnerRole { Main = 1, Surrogate = 2, Buffer = 3 } }

fn put_partner(bytes: &mut [u8], partner: &Partner) {
    put(bytes, at::PARTNER, partner.array.0);
    put_u32(bytes, at::PARTNER_EPOCH, partner.epoch);
    put_u32(bytes, at::PARTNER_SESSION, partner.session);
    bytes[at::PARTNER_ROLE] = partner.role.code();
}

/// Without the feature these bytes are reserved ones, whatever they hold.
fn get_partner(bytes: &[u8]) -> Result<Option<Partner>, MetaError> {
    if get_u64(bytes, at::INCOMPATIBLE) & INCOMPATIBLE_PARTNER == 0 {
        return Ok(None);
    }
    Ok(Some(Partner {
        role: PartnerRole::of_code(bytes[at::PARTNER_ROLE])?,
        array: get_uuid(bytes, at::PARTNER),
        epoch: get_u32(bytes, at::PARTNER_EPOCH),
        session: get_u32(bytes, at::PARTNER_SESSION),
    }))
}

/// Without the feature it is a reserved byte, whatever it holds.
fn get_buffer(bytes: &[u8]) -> Result<BufferMark, MetaError> {
    if get_u64(bytes, at::INCOMPATIBLE) & INCOMPATIBLE_BUFFER == 0 {
        return Ok(BufferMark::None);
    }
    match bytes[at::BUFFER] {
        1 => Ok(BufferMark::Idle),
        2 => Ok(BufferMark::Counts),
        other => field("buffer", u64::from(other)),
    }
}

/// With the feature the header goes on, whatever lies there without it.
fn reshape_in(bytes: &[u8]) -> Result<Option<Reshape>, MetaError> {
    if get_u64(bytes, at::INCOMPATIBLE) & INCOMPATIBLE_RESHAPED == 0 {
        return Ok(None);
    }
    get_reshape(&bytes[HEADER_BYTES..]).map(Some)
}

/// Without the feature there is no table, whatever the bytes of its descriptor hold. With it there is something in it.
fn get_parcels(bytes: &[u8]) -> Result<Vec<Parcel>, MetaError> {
    if get_u64(bytes, at::INCOMPATIBLE) & INCOMPATIBLE_LENDS == 0 {
        return Ok(Vec::new());
    }
    let place = TablePlace {
        offset: get_u16(bytes, at::PARCELS_OFFSET).into(),
        entry_bytes: get_u16(bytes, at::PARCELS_ENTRY_BYTES),
        count: get_u16(bytes, at::PARCELS_COUNT),
    };
    if place.count == 0 {
        return field("leases", 0);
    }
    Table::at(bytes, "leases", place, PARCEL_BYTES, PARCELS_MAX)?.read(get_parcel)
}

#[cfg(test)]
mod tests;
