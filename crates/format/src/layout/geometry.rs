//! What a layout is made of, and which of it makes sense.
//!
//! Everything that a superblock or an operator says about a layout passes [`Geometry::check`] before it is believed.

use super::reed_solomon::PARITIES_MAX;
use super::scaled::History;
use super::skewed::Skew;
use crate::units::{CELLS_MAX, SECTOR_BYTES, SLOTS_MAX};
use core::fmt;
use core::ops::RangeInclusive;

/// The smallest and the largest chunk: 4 KiB and 4 MiB.
pub const CHUNK_SECTORS_MIN: u32 = 8;
pub const CHUNK_SECTORS_MAX: u32 = 8192;

/// Parities of Reed-Solomon as a level.
const REED_SOLOMON: RangeInclusive<u8> = 3..=PARITIES_MAX as u8;

/// The most sectors that all slots may have together: byte offsets stay below 2^63 everywhere.
pub const SECTORS_MAX: u64 = (1 << 63) / SECTOR_BYTES;

/// The RAID level and what it leaves open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Level {
    Raid0,
    /// Every slot holds a copy.
    Raid1,
    /// Parity on the last slot.
    Raid4,
    Raid5(Rotation),
    Raid6(Rotation),
    /// md's "near" layout.
    Raid10 {
        copies: u8,
    },
    /// Three parities or more, of a [code](super::reed_solomon) that md has not. They stand where level 6 would have them,
    /// rotated left-symmetrically. With one and two parities it is level 5 and 6.
    ReedSolomon {
        parities: u8,
    },
}

impl Level {
    /// The fewest slots, as md has it; with Reed-Solomon one that is no parity.
    pub fn slots_min(&self) -> u16 {
        match self {
            Level::Raid0 => 1,
            Level::Raid1 | Level::Raid4 | Level::Raid5(_) => 2,
            Level::Raid6(_) => 4,
            Level::Raid10 { copies } => u16::from(*copies).max(2),
            Level::ReedSolomon { parities } => u16::from(*parities) + 1,
        }
    }

    /// Whether each chunk has copies, and nothing else.
    pub fn mirrors(&self) -> bool {
        matches!(self, Level::Raid1 | Level::Raid10 { .. })
    }

    /// Parity cells of a row.
    pub fn parities(&self) -> u16 {
        match self {
            Level::Raid0 | Level::Raid1 | Level::Raid10 { .. } => 0,
            Level::Raid4 | Level::Raid5(_) => 1,
            Level::Raid6(_) => 2,
            Level::ReedSolomon { parities } => u16::from(*parities),
        }
    }

    /// Whether partial parity can be logged before a row is written: records know P and Q.
    pub fn logs_parity(&self) -> bool {
        matches!(self, Level::Raid4 | Level::Raid5(_) | Level::Raid6(_))
    }

    /// The `layout` number with which md's superblock names this arrangement.
    pub fn md_layout(&self) -> u32 {
        match self {
            Level::Raid0 | Level::Raid1 | Level::Raid4 => 0,
            Level::Raid5(rotation) | Level::Raid6(rotation) => rotation.md_layout(),
            Level::Raid10 { copies } => 1 << 8 | u32::from(*copies), // one far copy, so many near
            Level::ReedSolomon { .. } => Rotation::LeftSymmetric.md_layout(), // though md has no such level
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Raid0 => f.write_str("RAID-0"),
            Level::Raid1 => f.write_str("RAID-1"),
            Level::Raid4 => f.write_str("RAID-4"),
            Level::Raid5(rotation) => write!(f, "RAID-5 {rotation}"),
            Level::Raid6(rotation) => write!(f, "RAID-6 {rotation}"),
            Level::Raid10 { copies } => write!(f, "RAID-10 near-{copies}"),
            Level::ReedSolomon { parities } => write!(f, "RS-{parities} left-symmetric"),
        }
    }
}

/// md's parity rotations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum Rotation {
    LeftAsymmetric,
    RightAsymmetric,
    #[default]
    LeftSymmetric,
    RightSymmetric,
    ParityFirst,
    ParityLast,
}

named! {
    /// Every rotation in md's order, by mdadm's names.
    Rotation {
        LeftAsymmetric = "left-asymmetric",
        RightAsymmetric = "right-asymmetric",
        LeftSymmetric = "left-symmetric",
        RightSymmetric = "right-symmetric",
        ParityFirst = "parity-first",
        ParityLast = "parity-last",
    }
}

impl Rotation {
    /// The number in md's superblock.
    pub fn md_layout(&self) -> u32 {
        *self as u32
    }
}

impl fmt::Display for Rotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a layout is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    pub level: Level,
    pub slots: u16,
    pub chunk_sectors: u32,
    /// Sectors of set data in each slot; a whole number of chunks.
    pub slot_sectors: u64,
    /// Sub-arrays over groups of the slots (S2-RAID) instead of one array over all.
    pub skew: Option<Skew>,
    /// How its data slots came to be as many, if some were added later (McPod). A RAID-4's parity then stands where it
    /// stood at first, and what was added behind it.
    pub grown: Option<History>,
}

/// The name of the arrangement: the level, and what it leaves open.
impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.level.fmt(f)
    }
}

impl Default for Geometry {
    fn default() -> Geometry {
        Geometry::PLAIN
    }
}

impl Geometry {
    /// The smallest there is, of one group and without a history.
    pub const PLAIN: Geometry = Geometry {
        level: Level::Raid0,
        slots: 2,
        chunk_sectors: 8,
        slot_sectors: 8,
        skew: None,
        grown: None,
    };

    /// Partitions of each slot: one of an unskewed one.
    pub(crate) fn partitions(&self) -> u16 {
        self.skew.map_or(1, |skew| skew.partitions)
    }

    /// Sectors of each partition of a slot: all of an unskewed one.
    pub fn partition_sectors(&self) -> u64 {
        let chunk = u64::from(self.chunk_sectors);
        self.slot_sectors / chunk / u64::from(self.partitions()) * chunk
    }

    /// Whether a layout can be made of this; if not, the first thing that is wrong.
    pub fn check(&self) -> Result<(), GeometryError> {
        self.check_copies()?;
        self.check_parities()?;
        self.check_grown()?;
        match self.skew {
            Some(skew) => self.check_skew(skew)?,
            None => self.check_slots()?,
        }
        self.check_chunk()?;
        self.check_size()
    }

    fn check_copies(&self) -> Result<(), GeometryError> {
        match self.level {
            Level::Raid10 { copies } if copies < 2 => Err(GeometryError::TooFewCopies { copies }),
            _ => Ok(()),
        }
    }

    /// Of Reed-Solomon: what fewer parities would be has names of its own, and a code that md knows.
    fn check_parities(&self) -> Result<(), GeometryError> {
        match self.level {
            Level::ReedSolomon { parities } if !REED_SOLOMON.contains(&parities) => {
                Err(GeometryError::Parities { parities })
            }
            _ => Ok(()),
        }
    }

    /// Of a grown array; that none is skewed follows, as no level that grows so has groups.
    fn check_grown(&self) -> Result<(), GeometryError> {
        let Some(history) = self.grown else {
            return Ok(());
        };
        let (level, slots) = (self.level, self.slots);
        if !matches!(level, Level::Raid0 | Level::Raid4) {
            return Err(GeometryError::GrownLevel { level });
        }
        if history.last().is_none() {
            return Err(GeometryError::NeverGrown);
        }
        let grown_to = history.slots() + level.parities();
        if grown_to != slots {
            return Err(GeometryError::GrownSlots { slots, grown_to });
        }
        Ok(())
    }

    fn check_slots(&self) -> Result<(), GeometryError> {
        let (slots, min) = (self.slots, self.level.slots_min());
        if slots < min {
            return Err(GeometryError::TooFewSlots { slots, min });
        }
        check_most(slots, CELLS_MAX)
    }

    fn check_skew(&self, skew: Skew) -> Result<(), GeometryError> {
        skew.check(self.level, self.slots)?;
        check_most(skew.groups, CELLS_MAX)?;
        check_most(self.slots, SLOTS_MAX)?;
        let chunks = self.slot_sectors / u64::from(self.chunk_sectors).max(1);
        if chunks < u64::from(skew.partitions) {
            let partitions = skew.partitions;
            return Err(GeometryError::ThinPartitions { chunks, partitions });
        }
        Ok(())
    }

    fn check_chunk(&self) -> Result<(), GeometryError> {
        let range = CHUNK_SECTORS_MIN..=CHUNK_SECTORS_MAX;
        if !self.chunk_sectors.is_power_of_two() || !range.contains(&self.chunk_sectors) {
            let sectors = self.chunk_sectors;
            return Err(GeometryError::Chunk { sectors });
        }
        Ok(())
    }

    fn check_size(&self) -> Result<(), GeometryError> {
        let (sectors, chunk_sectors) = (self.slot_sectors, self.chunk_sectors);
        if sectors == 0 || !sectors.is_multiple_of(u64::from(chunk_sectors)) {
            return Err(GeometryError::NotWholeChunks {
                sectors,
                chunk_sectors,
            });
        }
        match sectors.checked_mul(u64::from(self.slots)) {
            Some(total) if total < SECTORS_MAX => Ok(()),
            _ => {
                let slots = self.slots;
                Err(GeometryError::TooLarge { slots, sectors })
            }
        }
    }
}

fn check_most(slots: u16, max: usize) -> Result<(), GeometryError> {
    if usize::from(slots) > max {
        let max = max as u16; // both limits are small
        return Err(GeometryError::TooManySlots { slots, max });
    }
    Ok(())
}

/// Why no layout can be made of a geometry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GeometryError {
    TooFewSlots {
        slots: u16,
        min: u16,
    },
    TooManySlots {
        slots: u16,
        max: u16,
    },
    TooFewCopies {
        copies: u8,
    },
    Parities {
        parities: u8,
    },
    Chunk {
        sectors: u32,
    },
    NotWholeChunks {
        sectors: u64,
        chunk_sectors: u32,
    },
    TooLarge {
        slots: u16,
        sectors: u64,
    },
    NotSkewed {
        level: Level,
        groups: u16,
        slots: u16,
    },
    UnevenGroups {
        slots: u16,
        groups: u16,
    },
    Colliding {
        level: Level,
        skew: Skew,
        size: u16,
    },
    ThinPartitions {
        chunks: u64,
        partitions: u16,
    },
    GrownLevel {
        level: Level,
    },
    NeverGrown,
    GrownSlots {
        slots: u16,
        grown_to: u16,
    },
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GeometryError::TooFewSlots { slots, min } => {
                write!(f, "{slots} members are too few: ")?;
                write!(f, "this level needs {min} or more")
            }
            GeometryError::TooManySlots { slots, max } => {
                write!(f, "{slots} members are too many: ")?;
                write!(f, "an array has at most {max}")
            }
            GeometryError::TooFewCopies { copies } => {
                write!(f, "RAID-10 with {copies} copies: use 2 or more")
            }
            GeometryError::Parities { parities } => write_parities(f, *parities),
            GeometryError::Chunk { sectors } => {
                let bytes = u64::from(*sectors) * SECTOR_BYTES;
                write!(f, "a chunk of {bytes} bytes: ")?;
                f.write_str("it must be a power of two from 4K to 4M")
            }
            GeometryError::NotWholeChunks {
                sectors,
                chunk_sectors,
            } => {
                write!(f, "{sectors} sectors a member: need 1 or more chunks ")?;
                write!(f, "of {chunk_sectors} sectors, and only whole ones")
            }
            GeometryError::TooLarge { slots, sectors } => {
                write!(f, "{slots} members of {sectors} sectors are too large: ")?;
                write!(f, "together they must stay below {SECTORS_MAX} sectors")
            }
            GeometryError::NotSkewed {
                level,
                groups,
                slots,
            } => write_not_skewed(f, *level, *groups, *slots),
            GeometryError::UnevenGroups { slots, groups } => {
                write!(f, "{slots} members do not make {groups} groups of one size")?;
                write_nearest(f, *groups, *slots)
            }
            GeometryError::Colliding { level, skew, size } => {
                write_colliding(f, *level, *skew, *size)
            }
            GeometryError::ThinPartitions { chunks, partitions } => {
                write!(f, "{chunks} chunks a member are too few ")?;
                write!(f, "for {partitions} partitions")
            }
            GeometryError::GrownLevel { level } => {
                write!(f, "{level} does not grow chunk by chunk: levels 0 and 4 do")
            }
            GeometryError::NeverGrown => f.write_str("a history of growth that has no growth"),
            GeometryError::GrownSlots { slots, grown_to } => {
                write!(f, "{slots} members of an array ")?;
                write!(f, "that has grown to {grown_to}")
            }
        }
    }
}

impl core::error::Error for GeometryError {}

fn write_parities(f: &mut fmt::Formatter<'_>, parities: u8) -> fmt::Result {
    let (least, most) = (REED_SOLOMON.start(), REED_SOLOMON.end());
    write!(f, "Reed-Solomon with {parities} parities: ")?;
    write!(f, "it has {least} to {most}; ")?;
    f.write_str("with 1 it is RAID-5, with 2 RAID-6")
}

fn write_not_skewed(
    f: &mut fmt::Formatter<'_>,
    level: Level,
    groups: u16,
    slots: u16,
) -> fmt::Result {
    match level {
        Level::Raid5(_) | Level::Raid6(_) => {
            let min = level.slots_min();
            match groups {
                1 => f.write_str("1 group is too few")?,
                _ => write!(f, "{groups} groups are too few")?,
            }
            f.write_str(": a row has a cell in each, ")?;
            write!(f, "and this level needs {min} or more")?;
            write_of_slots(f, level, groups, slots)
        }
        Level::Raid10 { copies } => {
            write!(f, "{groups} groups for {copies} copies: ")?;
            f.write_str("a skewed RAID-10 has a group for each copy")?;
            write_of_slots(f, level, groups, slots)
        }
        _ => write!(f, "{level} has no groups: levels 5, 6 and 10 have"),
    }
}

fn write_colliding(f: &mut fmt::Formatter<'_>, level: Level, skew: Skew, size: u16) -> fmt::Result {
    let Skew { groups, partitions } = skew;
    if partitions == 0 {
        return f.write_str("a member has 1 or more partitions");
    }
    if size == 1 {
        write!(f, "{groups} groups of 1 member: ")?;
        f.write_str("each group needs at least 2 members")?;
        return write_of_slots(f, level, groups, groups);
    }
    write!(f, "with {partitions} partitions the rebuild streams ")?;
    write!(f, "of {groups} groups of {size} ")?;
    write!(f, "collide: {} at most", Skew::partitions_max(groups, size))?;
    write_nearest(f, groups, size * groups)
}

/// The nearest numbers of groups of so many members, or what comes nearest to as many.
fn write_of_slots(
    f: &mut fmt::Formatter<'_>,
    level: Level,
    groups: u16,
    slots: u16,
) -> fmt::Result {
    let mut found = Skew::of_slots(level, groups, slots).take(3).peekable();
    if found.peek().is_none() {
        let fewest = match level {
            Level::Raid10 { copies } => copies.into(),
            _ => level.slots_min(),
        };
        return write_nearest(f, fewest, slots);
    }
    for (index, Skew { groups, partitions }) in found.enumerate() {
        f.write_str(if index == 0 { "; these work: " } else { ", " })?;
        write_grouping(f, slots, groups, partitions)?;
    }
    Ok(())
}

fn write_grouping(
    f: &mut fmt::Formatter<'_>,
    slots: u16,
    groups: u16,
    partitions: u16,
) -> fmt::Result {
    let size = slots / groups;
    write!(f, "{slots} members as {groups} x {size} ")?;
    write!(f, "with up to {partitions} partitions")
}

/// The nearest numbers of members that so many groups rebuild from in parallel.
fn write_nearest(f: &mut fmt::Formatter<'_>, groups: u16, slots: u16) -> fmt::Result {
    for (index, (slots, skew)) in Skew::nearest(groups, slots).take(3).enumerate() {
        f.write_str(if index == 0 { "; these work: " } else { ", " })?;
        write_grouping(f, slots, groups, skew.partitions)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    const GOOD: Geometry = Geometry {
        level: Level::Raid5(Rotation::LeftSymmetric),
        slots: 5,
        chunk_sectors: 128,
        slot_sectors: 1280,
        ..Geometry::PLAIN
    };

    fn error(geometry: Geometry) -> GeometryError {
        Layout::new(geometry).unwrap_err()
    }

    #[test]
    fn slots_are_bounded_by_level() {
        let raid6 = Level::Raid6(Rotation::LeftSymmetric);
        assert!(Layout::new(Geometry { slots: 32, ..GOOD }).is_ok());
        assert_eq!(
            error(Geometry { slots: 33, ..GOOD }),
            GeometryError::TooManySlots { slots: 33, max: 32 }
        );
        assert_eq!(
            error(Geometry { slots: 1, ..GOOD }),
            GeometryError::TooFewSlots { slots: 1, min: 2 }
        );
        assert_eq!(
            error(Geometry {
                level: raid6,
                slots: 3,
                ..GOOD
            }),
            GeometryError::TooFewSlots { slots: 3, min: 4 }
        );
        assert_eq!(
            error(Geometry {
                slots: u16::MAX,
                ..GOOD
            }),
            GeometryError::TooManySlots {
                slots: u16::MAX,
                max: 32
            }
        );
    }

    #[test]
    fn copies_are_two_or_more_and_fit_the_slots() {
        let near = |copies| Geometry {
            level: Level::Raid10 { copies },
            ..GOOD
        };
        assert_eq!(error(near(0)), GeometryError::TooFewCopies { copies: 0 });
        assert_eq!(error(near(1)), GeometryError::TooFewCopies { copies: 1 });
        assert!(Layout::new(near(5)).is_ok());
        assert_eq!(
            error(near(6)),
            GeometryError::TooFewSlots { slots: 5, min: 6 }
        );
    }

    #[test]
    fn chunks_are_powers_of_two_within_bounds() {
        for sectors in [0, 1, 4, 12, 129, 16384, u32::MAX] {
            let geometry = Geometry {
                chunk_sectors: sectors,
                ..GOOD
            };
            assert_eq!(error(geometry), GeometryError::Chunk { sectors });
        }
        for sectors in [8, 8192] {
            let geometry = Geometry {
                chunk_sectors: sectors,
                slot_sectors: 8192,
                ..GOOD
            };
            assert!(Layout::new(geometry).is_ok());
        }
    }

    #[test]
    fn slots_hold_whole_chunks_and_offsets_fit() {
        for sectors in [0, 1, 127, 1281] {
            let geometry = Geometry {
                slot_sectors: sectors,
                ..GOOD
            };
            assert_eq!(
                error(geometry),
                GeometryError::NotWholeChunks {
                    sectors,
                    chunk_sectors: 128
                }
            );
        }
        for sectors in [u64::MAX - 127, SECTORS_MAX, 1 << 53] {
            let geometry = Geometry {
                slot_sectors: sectors,
                ..GOOD
            };
            assert_eq!(
                error(geometry),
                GeometryError::TooLarge { slots: 5, sectors }
            );
        }
        let most = (SECTORS_MAX - 1) / 5 / 128 * 128;
        let layout = Layout::new(Geometry {
            slot_sectors: most,
            ..GOOD
        })
        .unwrap();
        let last = layout.size_sectors() - 1;
        let place = layout.place(last);
        assert_eq!(layout.lba(place.row, place.data, place.offset), last);
    }

    #[test]
    fn only_levels_0_and_4_grow_and_to_as_many_slots_as_they_have() {
        let grown = |level, slots, counts: &[u16]| {
            let grown = History::of(counts);
            assert!(grown.is_some(), "{counts:?}");
            Layout::new(Geometry {
                level,
                slots,
                grown,
                ..GOOD
            })
        };
        assert!(grown(Level::Raid0, 5, &[2, 3, 5]).is_ok());
        assert!(grown(Level::Raid4, 5, &[1, 4]).is_ok());
        for level in [Level::Raid1, GOOD.level, Level::Raid10 { copies: 2 }] {
            let refused = Err(GeometryError::GrownLevel { level });
            assert_eq!(grown(level, 5, &[3, 4]), refused);
        }
        assert_eq!(grown(Level::Raid4, 5, &[4]), Err(GeometryError::NeverGrown));
        let (slots, grown_to) = (5, 6);
        assert_eq!(
            grown(Level::Raid4, slots, &[4, 5]),
            Err(GeometryError::GrownSlots { slots, grown_to })
        );
        assert_eq!(
            grown(Level::Raid4, 33, &[4, 32]),
            Err(GeometryError::TooManySlots { slots: 33, max: 32 })
        );
        let skewed = Geometry {
            level: Level::Raid4,
            grown: History::of(&[2, 4]),
            skew: Some(Skew {
                groups: 5,
                partitions: 1,
            }),
            ..GOOD
        };
        assert!(matches!(error(skewed), GeometryError::NotSkewed { .. }));
    }

    #[test]
    fn rotations_are_found_by_name() {
        for rotation in Rotation::ALL {
            assert_eq!(Rotation::named(rotation.name()), Some(rotation));
        }
        assert_eq!(Rotation::named("sideways"), None);
    }
}
