//! How an array comes into being: which regions its members get, and every metadata page that is written to them.
//!
//! Pure: it computes writes, the caller does them. The same arithmetic serves real disks and members of a few hundred
//! sectors, as tests like them.

use super::pages::{
    self, BITS_PER_PAGE, HOMES_SECTORS, HeatScale, INTENT_BITS, MapKind, WORDS_PER_PAGE,
};
use super::superblock::{MEMBERS_MAX, SUPER_A_AT, SUPER_B_PLACES, SUPERBLOCK_SECTORS};
use super::{
    BufferMark, MemberEntry, MemberRole, MetaError, Parcel, Partner, PartnerRole, Placement,
    Region, RegionKind, Superblock, TaskRecord, WriteHole, leases,
};
use crate::layout::{Geometry, GeometryError, Layout, Level};
use crate::units::{PAGE_SECTORS, SECTOR_BYTES, Uuid};
use crate::values::{MemberInfo, Page, TaskKind, zeroed_page};
use crate::zones::{self, HeatLimits};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// The smallest log holds one record of the largest slice, and room to turn around in.
pub const LOG_SECTORS_MIN: u64 = 160;
/// The largest log that may be asked for: what full maps leave in front of the last place of copy B.
pub const LOG_SECTORS_MAX: u64 = 6496;
/// Pages of the list of lost extents.
const LOST_PAGES: u64 = 4;
/// The most pages of the intent map, and of the written map for each generation of data cells.
const MAP_PAGES_MAX: u64 = 4;
/// An array that may grow by the least moves has room in its written map for so many generations: the first, and four
/// growths.
const GENERATIONS: u8 = 5;
/// Where data starts at the latest, unless asked for: 4 MiB.
const DATA_START_MAX: u64 = 8192;
/// Where it starts at the latest without a log: 1 MiB.
const DATA_START_MAX_UNLOGGED: u64 = 2048;
/// A map bit covers this much array data or more, unless the array is small: 1 MiB.
const MAP_BIT_SECTORS_MIN: u64 = 2048;
/// A small array still has this many bits in its maps.
const MAP_BITS_WANTED: u64 = 64;
/// One page of the intent map must do while a bit covers no more than this: 64 MiB.
const INTENT_BIT_SECTORS_MAX: u64 = 131_072;

/// A member has one such part of slack, at most so much, and none below a size.
const SLACK_PARTS: u64 = 1024;
const SLACK_SECTORS_MAX: u64 = (128 << 20) / SECTOR_BYTES;
const SLACK_FROM_SECTORS: u64 = (64 << 20) / SECTOR_BYTES;

/// Sectors that an array leaves free of a member of this size: disks of one nominal size differ by a little, and a
/// replacement may be the smaller one.
pub fn slack_of(sectors: u64) -> u64 {
    let slack = (sectors / SLACK_PARTS).min(SLACK_SECTORS_MAX);
    if sectors < SLACK_FROM_SECTORS {
        return 0;
    }
    round_down(slack, PAGE_SECTORS as u32)
}

/// What the members hold to begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Init {
    /// Ready at once; space never written reads as zeros.
    #[default]
    Written,
    /// Data is what it is; a resync makes the redundancy match.
    Sync,
    /// All set data is zeroed now.
    Zero,
    /// The members are said to be in step already.
    Trust,
}

/// What is to be created. `members` and `uuids` run in parallel: the slots in order, then the spares.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    pub name: String,
    pub array: Uuid,
    pub created: u64,
    /// Slots and their size follow from the members. With a history, the array is made as if it had grown so.
    pub geometry: Geometry,
    /// On each member, room for so many partitions of others that fail.
    pub spare_partitions: u16,
    pub write_hole: WriteHole,
    pub init: Init,
    pub members: Vec<MemberInfo>,
    pub uuids: Vec<Uuid>,
    /// How many of the members, the last ones, are spares.
    pub spares: usize,
    /// Bytes; the largest of the members' if not given.
    pub logical_block: Option<u32>,
    /// The sector at which set data starts on every member.
    pub data_offset: Option<u64>,
    /// Sectors of set data on each member, rounded down to whole chunks; all there is if not given.
    pub size_per_member: Option<u64>,
    /// Leave [`slack_of`] the smallest member free at the end of each, unless a size is given.
    pub slack: bool,
    pub log_sectors: Option<u64>,
    /// Rows for each bit of the written map.
    pub extent_rows: Option<u64>,
    /// Rows for each bit of the intent map.
    pub intent_rows: Option<u64>,
    /// The other array, where this one is made as a surrogate or together with its own.
    pub partner: Option<Partner>,
    /// The log that it is to hold has a buffer.
    pub buffered: bool,
    /// Sectors of the array's end to set aside for leases; rounded up to whole rows.
    pub lend_sectors: Option<u64>,
}

impl CreateOptions {
    /// Every choice left to its default.
    pub fn new(name: &str, array: Uuid, level: Level, chunk_sectors: u32) -> CreateOptions {
        CreateOptions {
            name: String::from(name),
            array,
            created: 0,
            geometry: Geometry {
                level,
                chunk_sectors,
                ..Geometry::PLAIN
            },
            spare_partitions: 0,
            write_hole: WriteHole::default_for(level),
            init: Init::default(),
            members: Vec::new(),
            uuids: Vec::new(),
            spares: 0,
            logical_block: None,
            data_offset: None,
            size_per_member: None,
            slack: false,
            log_sectors: None,
            extent_rows: None,
            intent_rows: None,
            partner: None,
            buffered: false,
            lend_sectors: None,
        }
    }
}

/// What is written in one place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    Page(Page),
    /// So many sectors of zeros.
    Zero(u64),
}

/// Something worth telling the operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// This member is larger than the array can use.
    Unused { member: usize, sectors: u64 },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Note::Unused { member, sectors } = self;
        write!(
            f,
            "{sectors} sectors of member {member} stay unused: the smallest member sets the size"
        )
    }
}

/// A new array, on paper.
#[derive(Clone, Debug)]
pub struct Creation {
    /// As it lies on the first member, copy A. Other members' differ in `member` only.
    pub superblock: Superblock,
    pub geometry: Geometry,
    pub notes: Vec<Note>,
    /// (index of the member, first sector, what), in this order. The first [`Creation::wipes`] void what lay there
    /// before and the last ones, from [`Creation::seals`] on, are the superblocks: a flush of every member belongs
    /// before either boundary and at the end, so that a crash never leaves half an array that looks whole.
    pub writes: Vec<(usize, u64, Content)>,
    pub wipes: usize,
    pub seals: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CreateError {
    /// Not one identifier for each member, or one twice, or nil.
    Identifiers {
        members: usize,
        distinct: usize,
    },
    /// Fewer members than spares, or more than a superblock lists.
    Members {
        members: usize,
        spares: usize,
        limit: usize,
    },
    Geometry(GeometryError),
    /// A name, a counter or a table that a superblock cannot hold.
    Metadata(MetaError),
    /// Sectors.
    MemberTooSmall {
        member: usize,
        sectors: u64,
        needs: u64,
    },
    /// The data would start before the metadata ends, or off a page boundary.
    DataOffset {
        sectors: u64,
        needs: u64,
    },
    /// Spare partitions where slots have none.
    SparePartitions,
    /// More was asked for than the smallest member has.
    SizePerMember {
        sectors: u64,
        limit: u64,
    },
    /// Less than one record, or more than there is room for.
    LogSize {
        sectors: u64,
    },
    LogicalBlock {
        bytes: u32,
        needs: u32,
    },
    /// This way to close the write hole is for other levels, or for another version.
    WriteHole {
        write_hole: WriteHole,
        level: Level,
    },
    /// The asked-for rows per map bit do not let the map fit: asked, at least.
    MapRows {
        rows: u64,
        needs: u64,
    },
    /// More is to be lent than an array of so many sectors can, or nothing.
    Lend {
        sectors: u64,
        size: u64,
    },
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreateError::Identifiers { members, distinct } => {
                write!(f, "{members} members need as many different identifiers, ")?;
                write!(f, "not {distinct}")
            }
            CreateError::Members {
                members,
                spares,
                limit,
            } => {
                write!(f, "{members} members of which {spares} are spares; ")?;
                write!(f, "at most {limit} members in all")
            }
            CreateError::Geometry(error) => error.fmt(f),
            CreateError::Metadata(error) => error.fmt(f),
            CreateError::MemberTooSmall {
                member,
                sectors,
                needs,
            } => {
                write!(f, "member {member} has {sectors} sectors; ")?;
                write!(f, "this array needs at least {needs}")
            }
            CreateError::DataOffset { sectors, needs } => {
                write!(f, "data cannot start at sector {sectors}: ")?;
                write!(f, "a multiple of 8 of at least {needs} is needed")
            }
            CreateError::SparePartitions => f.write_str(
                "spare partitions are for arrays whose members have partitions: give groups",
            ),
            CreateError::SizePerMember { sectors, limit } => {
                write!(f, "invalid size of {sectors} sectors per member: ")?;
                write!(f, "use one chunk to {limit}")
            }
            CreateError::LogSize { sectors } => {
                write!(f, "invalid log of {sectors} sectors: ")?;
                write!(f, "use {LOG_SECTORS_MIN} to {LOG_SECTORS_MAX}")
            }
            CreateError::LogicalBlock { bytes, needs } => {
                write!(f, "a logical block of {bytes} bytes: ")?;
                write!(f, "these members need 512 or 4096, at least {needs}")
            }
            CreateError::WriteHole { write_hole, level } => {
                write_unfit_hole(f, *write_hole, *level)
            }
            CreateError::MapRows { rows, needs } => {
                write!(f, "{rows} rows a map bit are too few: at least {needs}")
            }
            CreateError::Lend { sectors, size } => {
                write!(
                    f,
                    "{sectors} of {size} sectors cannot be reserved for leases: "
                )?;
                f.write_str("at least one row must remain")
            }
        }
    }
}

fn write_unfit_hole(
    f: &mut fmt::Formatter<'_>,
    write_hole: WriteHole,
    level: Level,
) -> fmt::Result {
    write!(f, "{level} does not support write hole {write_hole:?}")?;
    match (write_hole, level) {
        (WriteHole::Ppl, Level::ReedSolomon { .. }) => {
            f.write_str(": its log has space for two parities")
        }
        (WriteHole::WholeRows, _) => f.write_str(" except as a surrogate"),
        _ => Ok(()),
    }
}

/// Plans a new array.
pub fn create(options: &CreateOptions) -> Result<Creation, CreateError> {
    check_options(options)?;
    let logical_block = logical_block(options)?;
    let plan = Plan::of(options)?;
    let geometry = plan.geometry;
    let mut superblock = superblock(options, &plan, logical_block);
    superblock.lent = lent(options, geometry)?;
    let mut creation = Creation {
        geometry,
        notes: notes(options, &plan),
        writes: Vec::new(),
        wipes: 0,
        seals: 0,
        superblock,
    };
    write_all(options, &plan, &mut creation)?;
    Ok(creation)
}

fn check_options(options: &CreateOptions) -> Result<(), CreateError> {
    let members = options.members.len();
    if members > MEMBERS_MAX || options.spares > members {
        return Err(CreateError::Members {
            members,
            spares: options.spares,
            limit: MEMBERS_MAX,
        });
    }
    let distinct = distinct(&options.uuids);
    if options.uuids.len() != members || distinct != members {
        return Err(CreateError::Identifiers { members, distinct });
    }
    if options.spare_partitions > 0 && options.geometry.skew.is_none() {
        return Err(CreateError::SparePartitions);
    }
    check_write_hole(options)
}

/// How many different identifiers there are, not counting nil. At most 64 by 64 comparisons.
fn distinct(uuids: &[Uuid]) -> usize {
    let new = |i: &usize| uuids[*i] != Uuid::NIL && !uuids[..*i].contains(&uuids[*i]);
    (0..uuids.len().min(MEMBERS_MAX)).filter(new).count()
}

fn check_write_hole(options: &CreateOptions) -> Result<(), CreateError> {
    let level = options.geometry.level;
    let fits = match options.write_hole {
        WriteHole::None => true,
        WriteHole::Ppl => level.logs_parity(),
        WriteHole::Bitmap => level != Level::Raid0,
        WriteHole::Journal => false,
        WriteHole::WholeRows => options.partner.is_some_and(is_surrogate),
    };
    if fits {
        return Ok(());
    }
    Err(CreateError::WriteHole {
        write_hole: options.write_hole,
        level,
    })
}

fn is_surrogate(partner: Partner) -> bool {
    partner.role == PartnerRole::Surrogate
}

fn logical_block(options: &CreateOptions) -> Result<u32, CreateError> {
    let members = options.members.iter();
    let needs = members.map(|info| info.logical_block).max().unwrap_or(512);
    let bytes = options.logical_block.unwrap_or(needs);
    if bytes < needs || !matches!(bytes, 512 | 4096) {
        return Err(CreateError::LogicalBlock { bytes, needs });
    }
    Ok(bytes)
}

// ------------------------------------------------------------------------------------------------------- the plan

/// Where everything lies; alike on every member.
struct Plan {
    geometry: Geometry,
    extent_rows: u64,
    intent_rows: u64,
    regions: Vec<Region>,
    data_start: u64,
}

/// Sizes of the regions between the two superblock copies, in sectors.
#[derive(Clone, Copy)]
struct Middle {
    written: u64,
    intent: u64,
    lost: u64,
    redirected: u64,
    heat: u64,
    /// The least that the log needs; it gets what is left up to its limit.
    log_min: u64,
}

impl Middle {
    fn sectors(&self) -> u64 {
        self.written + self.intent + self.lost + self.redirected + self.heat + self.log_min
    }
}

impl Plan {
    fn of(options: &CreateOptions) -> Result<Plan, CreateError> {
        let (smallest, sectors) = smallest_member(options);
        let slots = u16::try_from(options.members.len() - options.spares).expect("64 at most");
        // Maps are sized for the whole member: the metadata that they share it with only makes the array smaller.
        let whole = Geometry {
            slots,
            slot_sectors: round_down(sectors, options.geometry.chunk_sectors)
                .max(options.geometry.chunk_sectors.into()),
            ..options.geometry
        };
        let layout = Layout::new(whole).map_err(CreateError::Geometry)?;
        let extent_rows = map_rows(&layout, options.extent_rows, MAP_PAGES_MAX)?;
        let intent_rows = intent_rows(&layout, options.intent_rows)?;
        let middle = middle(options, &layout, extent_rows, intent_rows)?;
        let data_start = data_start(options, &middle, sectors)?;
        let slack = slack(options, sectors);
        let needs = data_start + u64::from(options.geometry.chunk_sectors) + slack;
        if sectors < needs {
            let sectors = options.members[smallest].sectors;
            return Err(CreateError::MemberTooSmall {
                member: smallest,
                sectors,
                needs,
            });
        }
        let slot_sectors = slot_sectors(options, sectors - data_start - slack)?;
        let geometry = Geometry {
            slot_sectors,
            ..whole
        };
        let partition = geometry.partition_sectors();
        let regions = regions(options, &middle, data_start, slot_sectors, partition);
        Ok(Plan {
            geometry,
            extent_rows,
            intent_rows,
            regions,
            data_start,
        })
    }
}

/// The first of the smallest members, and its size in whole pages.
fn smallest_member(options: &CreateOptions) -> (usize, u64) {
    let sectors = |i: &usize| round_down(options.members[*i].sectors, PAGE_SECTORS as u32);
    let smallest = (0..options.members.len()).min_by_key(sectors);
    smallest.map_or((0, 0), |i| (i, sectors(&i)))
}

/// What is left free of each member, of which the smallest has so many sectors.
fn slack(options: &CreateOptions, smallest: u64) -> u64 {
    match options.size_per_member {
        None if options.slack => slack_of(smallest),
        _ => 0,
    }
}

fn round_down(sectors: u64, unit: u32) -> u64 {
    sectors - sectors.checked_rem(u64::from(unit)).unwrap_or(0)
}

/// Rows for each bit of a map of so many pages: a power of two, so that a bit covers 1 MiB of the array or more. In a
/// small array a bit covers less, so that the map still tells places apart.
fn map_rows(layout: &Layout, asked: Option<u64>, pages: u64) -> Result<u64, CreateError> {
    let needs = layout.rows().div_ceil(pages * BITS_PER_PAGE).max(1);
    if let Some(rows) = asked {
        return match rows >= needs {
            true => Ok(rows),
            false => Err(CreateError::MapRows { rows, needs }),
        };
    }
    let bit_sectors = MAP_BIT_SECTORS_MIN.min(layout.size_sectors() / MAP_BITS_WANTED);
    let rows = bit_sectors.div_ceil(layout.row_sectors());
    Ok(needs.max(rows).next_power_of_two())
}

/// The intent map is written often: it takes one page unless the array is very large.
fn intent_rows(layout: &Layout, asked: Option<u64>) -> Result<u64, CreateError> {
    if asked.is_some() {
        return map_rows(layout, asked, MAP_PAGES_MAX);
    }
    let rows = map_rows(layout, None, 1)?;
    if rows * layout.row_sectors() <= INTENT_BIT_SECTORS_MAX {
        return Ok(rows);
    }
    map_rows(layout, None, MAP_PAGES_MAX)
}

fn middle(
    options: &CreateOptions,
    layout: &Layout,
    extent_rows: u64,
    intent_rows: u64,
) -> Result<Middle, CreateError> {
    let rows = layout.rows();
    let map = |bits: u64| bits.div_ceil(BITS_PER_PAGE) * HOMES_SECTORS;
    let log_min = match (options.write_hole, options.log_sectors) {
        (WriteHole::Ppl, Some(sectors))
            if !(LOG_SECTORS_MIN..=LOG_SECTORS_MAX).contains(&sectors) =>
        {
            return Err(CreateError::LogSize { sectors });
        }
        (WriteHole::Ppl, Some(sectors)) => round_down(sectors, PAGE_SECTORS as u32),
        (WriteHole::Ppl, None) => LOG_SECTORS_MIN,
        (_, _) => 0,
    };
    Ok(Middle {
        written: map(u64::from(generations_to_come(options, layout)) * rows.div_ceil(extent_rows)),
        intent: map(INTENT_BITS * rows.div_ceil(intent_rows)),
        lost: LOST_PAGES * HOMES_SECTORS,
        redirected: map(redirected_bits(options, layout, intent_rows)),
        heat: heat_pages(layout) * HOMES_SECTORS,
        log_min,
    })
}

/// Generations of data cells that the written map has room for.
fn generations_to_come(options: &CreateOptions, layout: &Layout) -> u8 {
    let room = if grows(options) { GENERATIONS } else { 1 };
    layout.generations().max(room)
}

/// Bits for the array as it is, and for twice as much as it began with if it can grow to that.
fn redirected_bits(options: &CreateOptions, layout: &Layout, intent_rows: u64) -> u64 {
    let regions = layout.rows().div_ceil(intent_rows);
    let times = |cells: u8| (layout.rows() * u64::from(cells)).div_ceil(intent_rows);
    let now = times(layout.cells_through(layout.generations()));
    let first = u64::from(layout.cells_through(1));
    let room = if grows(options) { 2 } else { 1 };
    now.div_ceil(first).max(room * regions)
}

fn grows(options: &CreateOptions) -> bool {
    matches!(options.geometry.level, Level::Raid0 | Level::Raid4) && options.geometry.skew.is_none()
}

/// Pages with an entry for each zone of the default size. With smaller zones, entries may be of several.
fn heat_pages(layout: &Layout) -> u64 {
    let zones = zones::zones_of(HeatLimits::default(), layout.rows(), layout.row_sectors());
    zones.div_ceil(pages::ENTRIES_PER_PAGE as u64)
}

/// Where data starts: a power of two of about a sixteenth of the member, but 4 MiB at most (1 MiB without a log), and
/// at least what the metadata needs; or what was asked for.
fn data_start(options: &CreateOptions, middle: &Middle, sectors: u64) -> Result<u64, CreateError> {
    let needs = super_b_for(middle)? + SUPERBLOCK_SECTORS;
    if let Some(asked) = options.data_offset {
        if asked < needs || !asked.is_multiple_of(PAGE_SECTORS) {
            return Err(CreateError::DataOffset {
                sectors: asked,
                needs,
            });
        }
        return Ok(asked);
    }
    let limit = match middle.log_min {
        0 => DATA_START_MAX_UNLOGGED,
        _ => DATA_START_MAX,
    };
    let share = (sectors / 16 + 1).next_power_of_two() / 2;
    Ok(share.clamp(needs, limit.max(needs)))
}

/// The first place of copy B that leaves room for everything between the copies.
fn super_b_for(middle: &Middle) -> Result<u64, CreateError> {
    let needs = SUPERBLOCK_SECTORS + middle.sectors();
    let place = SUPER_B_PLACES.into_iter().find(|place| *place >= needs);
    // Only the maps of a long history leave the largest log no room.
    let sectors = middle.log_min;
    place.ok_or(CreateError::LogSize { sectors })
}

fn slot_sectors(options: &CreateOptions, available: u64) -> Result<u64, CreateError> {
    let limit = most_slot_sectors(options, available);
    let Some(asked) = options.size_per_member else {
        return Ok(limit);
    };
    let sectors = round_down(asked, options.geometry.chunk_sectors);
    if sectors == 0 || sectors > limit {
        return Err(CreateError::SizePerMember {
            sectors: asked,
            limit,
        });
    }
    Ok(sectors)
}

/// What spare partitions leave for the slot, of this much. They are as large as the slot's own.
fn most_slot_sectors(options: &CreateOptions, available: u64) -> u64 {
    let all = round_down(available, options.geometry.chunk_sectors);
    let spare = u64::from(options.spare_partitions);
    let Some(skew) = options.geometry.skew.filter(|_| spare > 0) else {
        return all;
    };
    let (own, chunk) = (
        u64::from(skew.partitions),
        u64::from(options.geometry.chunk_sectors),
    );
    all / chunk / (own + spare) * own * chunk
}

/// Superblock A, the maps, the log and superblock B in a row, then the data and the spare partitions.
fn regions(
    options: &CreateOptions,
    middle: &Middle,
    data_start: u64,
    slot_sectors: u64,
    partition_sectors: u64,
) -> Vec<Region> {
    let super_b = last_super_b(data_start);
    let log_room = super_b - SUPERBLOCK_SECTORS - (middle.sectors() - middle.log_min);
    let log = match (options.write_hole, options.log_sectors) {
        (WriteHole::Ppl, Some(_)) => middle.log_min,
        (WriteHole::Ppl, None) => log_room,
        (_, _) => 0,
    };
    let parts = [
        (RegionKind::SuperA, SUPERBLOCK_SECTORS),
        (RegionKind::Written, middle.written),
        (RegionKind::Intent, middle.intent),
        (RegionKind::Lost, middle.lost),
        (RegionKind::Redirected, middle.redirected),
        (RegionKind::Heat, middle.heat),
        (RegionKind::Log, log),
    ];
    let region = |kind, start, sectors| Region {
        kind,
        start,
        sectors,
    };
    let mut regions = Vec::with_capacity(parts.len() + 2);
    let mut start = SUPER_A_AT;
    for (kind, sectors) in parts.into_iter().filter(|(_, sectors)| *sectors > 0) {
        regions.push(region(kind, start, sectors));
        start += sectors;
    }
    assert!(start <= super_b, "the metadata fits between the copies");
    regions.push(region(RegionKind::SuperB, super_b, SUPERBLOCK_SECTORS));
    regions.push(region(RegionKind::Data, data_start, slot_sectors));
    let partitions = u64::from(options.spare_partitions);
    if partitions > 0 {
        let (start, sectors) = (data_start + slot_sectors, partitions * partition_sectors);
        regions.push(region(RegionKind::SparePartition, start, sectors));
    }
    regions
}

/// The last place of copy B in front of the data.
fn last_super_b(data_start: u64) -> u64 {
    let before = |place: &&u64| **place + SUPERBLOCK_SECTORS <= data_start;
    let last = SUPER_B_PLACES.iter().rev().find(before);
    *last.expect("data starts behind the first place at least")
}

// ------------------------------------------------------------------------------------------------- the superblock

fn superblock(options: &CreateOptions, plan: &Plan, logical_block: u32) -> Superblock {
    let resync = options.init == Init::Sync && options.geometry.level != Level::Raid0;
    Superblock {
        array: options.array,
        name: options.name.clone(),
        created: options.created,
        generation: 1,
        sequence: 2,
        member: options.uuids.first().copied().unwrap_or(Uuid::NIL),
        geometry: plan.geometry,
        logical_block,
        write_hole: options.write_hole,
        regions: plan.regions.clone(),
        extent_rows: plan.extent_rows,
        written_all: options.init != Init::Written,
        intent_rows: plan.intent_rows,
        clean: true,
        resync_pending: resync,
        members: members(options),
        placement: (0..plan.geometry.slots).map(placed).collect(),
        tasks: resync.then(resync_task).into_iter().collect(),
        partner: options.partner,
        buffer: match options.buffered {
            true => BufferMark::Idle,
            false => BufferMark::None,
        },
        ..Superblock::default()
    }
}

/// What is set aside for leases, all of it free.
fn lent(options: &CreateOptions, geometry: Geometry) -> Result<Vec<Parcel>, CreateError> {
    let Some(sectors) = options.lend_sectors else {
        return Ok(Vec::new());
    };
    let layout = Layout::new(geometry).map_err(CreateError::Geometry)?;
    let size = layout.size_sectors();
    let parcel = leases::set_aside(&layout, sectors).ok_or(CreateError::Lend { sectors, size })?;
    Ok(Vec::from([parcel]))
}

fn members(options: &CreateOptions) -> Vec<MemberEntry> {
    let slots = options.members.len() - options.spares;
    let entry = |(i, uuid): (usize, &Uuid)| MemberEntry {
        uuid: *uuid,
        role: match i < slots {
            true => MemberRole::Active,
            false => MemberRole::Spare,
        },
        current_since: 1,
        log_floor: 0,
        read_errors: 0,
        left_at: 0,
        dropped_for: None,
    };
    options.uuids.iter().enumerate().map(entry).collect()
}

/// To begin with, slot and member have the same number.
fn placed(slot: u16) -> Placement {
    Placement {
        slot,
        partition: 0,
        member: Some(slot),
        incoming: None,
        region: 0,
        incoming_region: 0,
    }
}

fn resync_task() -> TaskRecord {
    TaskRecord {
        kind: TaskKind::Resync,
        slot: None,
        paused: false,
        done: Vec::new(),
    }
}

fn notes(options: &CreateOptions, plan: &Plan) -> Vec<Note> {
    let ends = plan.regions.iter().map(|region| region.end());
    let used = ends.max().expect("there are regions");
    let slack = slack(options, smallest_member(options).1);
    let mebibyte = (1 << 20) / SECTOR_BYTES;
    let own = u64::from(options.geometry.partitions());
    let partitions = own + u64::from(options.spare_partitions);
    let rounded = partitions * u64::from(plan.geometry.chunk_sectors);
    let unused = |(member, info): (usize, &MemberInfo)| {
        let sectors = info.sectors.saturating_sub(used + slack);
        // What rounding to a chunk of each partition costs is not worth a word.
        let limit = mebibyte.min(used).max(rounded);
        (sectors >= limit).then_some(Note::Unused { member, sectors })
    };
    if options.size_per_member.is_some() {
        return Vec::new();
    }
    let members = options.members.iter().enumerate();
    members.filter_map(unused).collect()
}

// ----------------------------------------------------------------------------------------------------- the writes

fn write_all(
    options: &CreateOptions,
    plan: &Plan,
    creation: &mut Creation,
) -> Result<(), CreateError> {
    let Creation {
        superblock,
        writes,
        wipes,
        seals,
        ..
    } = creation;
    let metadata = plan.data_start.min(DATA_START_MAX);
    for member in 0..options.members.len() {
        writes.push((member, 0, Content::Zero(metadata)));
    }
    *wipes = writes.len();
    for member in 0..options.members.len() {
        write_maps(options, plan, member, writes);
        if options.init == Init::Zero && member < usize::from(plan.geometry.slots) {
            let zeros = Content::Zero(plan.geometry.slot_sectors);
            writes.push((member, plan.data_start, zeros));
        }
    }
    *seals = writes.len();
    for member in 0..options.members.len() {
        write_superblocks(superblock, options.uuids[member], member, writes)?;
    }
    Ok(())
}

/// Both homes of every map page, alike but for their sequences: 0 in home A, 1 in home B.
fn write_maps(
    options: &CreateOptions,
    plan: &Plan,
    member: usize,
    writes: &mut Vec<(usize, u64, Content)>,
) {
    for kind in MapKind::ALL {
        let mut regions = plan.regions.iter();
        let region = regions.find(|region| region.kind == kind.region());
        let region = region.expect("every plan has all maps");
        let pages = u32::try_from(pages::pages_in(region.sectors)).expect("66 pages at most");
        for index in 0..pages {
            for sequence in 0..2 {
                let page = map_page(options, kind, index, sequence);
                let at = pages::home(region.start, index, sequence);
                writes.push((member, at, Content::Page(page)));
            }
        }
    }
}

/// A map page of a new array: nothing lost, nothing out of step, nothing read, and written only if the array is said to be.
fn map_page(options: &CreateOptions, kind: MapKind, index: u32, sequence: u64) -> Page {
    let mut page = zeroed_page();
    match kind {
        MapKind::Lost => pages::encode_extents(options.array, index, sequence, &[], &mut page),
        MapKind::Heat => {
            let (entry_rows, epoch) = (1, 0);
            let scale = HeatScale { entry_rows, epoch };
            let none = core::iter::empty();
            pages::encode_heat(options.array, index, sequence, scale, none, &mut page);
        }
        MapKind::Written if options.init != Init::Written => {
            let all = [u64::MAX; WORDS_PER_PAGE];
            pages::encode_bits(kind, options.array, index, sequence, &all, &mut page);
        }
        MapKind::Written | MapKind::Intent | MapKind::Redirected => {
            pages::encode_bits(kind, options.array, index, sequence, &[], &mut page);
        }
    }
    page
}

/// Copy B with sequence 1 and copy A with sequence 2.
fn write_superblocks(
    template: &Superblock,
    uuid: Uuid,
    member: usize,
    writes: &mut Vec<(usize, u64, Content)>,
) -> Result<(), CreateError> {
    for sequence in [1, 2] {
        let copy = Superblock {
            member: uuid,
            sequence,
            ..template.clone()
        };
        let home = copy.home().expect("every plan has both copies");
        let pages = copy.encode().map_err(CreateError::Metadata)?;
        let places = (home.start..home.end()).step_by(PAGE_SECTORS as usize);
        for (page, at) in pages.into_iter().zip(places) {
            writes.push((member, at, Content::Page(page)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
