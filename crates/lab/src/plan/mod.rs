//! Layouts for given disks, compared before anything is written: their capacity, their rebuilds, and the
//! cost of a second failure.
//!
//! All properties of a layout are counted from the layout itself: capacity, exposure, the reads of a rebuild
//! from each disk. Properties of disks come from a model, in [`rebuild`] (times) and [`lifetime`] (mean
//! times to data loss).
//!
//! | module | owns |
//! |---|---|
//! | [`candidates`] | the possible layouts of N disks |
//! | [`exposure`] | the loss after a second failed disk |
//! | [`rebuild`] | the target of a rebuild, and its duration |
//! | [`lifetime`] | the mean time to data loss |
//! | [`speed`] | the speed of a modelled drive from end to end |

pub mod candidates;
pub mod exposure;
pub mod lifetime;
pub mod rebuild;
pub mod speed;

pub use candidates::Candidate;
pub use exposure::Exposure;
pub use lifetime::{Lifetime, Lives};
pub use rebuild::Rebuild;
pub use speed::Speed;

use restripe_array::SECTOR_BYTES;
use restripe_array::layout::{Geometry, Layout};

/// Chunks are as `create` has them by default; they decide little here.
const CHUNK_SECTORS: u32 = 128;

/// What there is to build of.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Disks {
    pub count: u16,
    /// Bytes of each for set data, and for spare partitions where there are any.
    pub bytes: u64,
    pub speed: Speed,
}

impl Disks {
    pub fn bytes_of_all(&self) -> u64 {
        self.bytes.saturating_mul(self.count.into())
    }
}

/// A layout on these disks.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    pub candidate: Candidate,
    pub exposure: Exposure,
    /// With one spare disk.
    pub spare: Course,
    /// With one spare disk, and spare partitions on every disk: for layouts whose rebuilds leave disks unread.
    pub spread: Option<Course>,
}

/// What becomes of a lost disk, with a kind of spare space.
#[derive(Clone, PartialEq, Debug)]
pub struct Course {
    /// Bytes that users see.
    pub bytes: u64,
    pub rebuild: Rebuild,
    pub lifetime: Lifetime,
}

/// Every layout that these disks can have. `flat`: groups that are not skewed, too.
pub fn plans(disks: &Disks, lives: &Lives, flat: bool) -> Result<Vec<Plan>, String> {
    let candidates = candidates::of(disks.count, flat);
    let plans = candidates.iter().map(|one| plan(*one, disks, lives));
    plans.collect()
}

fn plan(candidate: Candidate, disks: &Disks, lives: &Lives) -> Result<Plan, String> {
    let layout = candidate.sample()?;
    let course = |spread: Option<rebuild::Spread>| {
        let bytes = usable(candidate, disks, spread)?;
        let rebuild = Rebuild::of(&layout, bytes.of_each, disks.speed, spread);
        Ok::<_, String>(Course {
            bytes: bytes.of_all,
            lifetime: lifetime::of(&layout, lives, rebuild.seconds)?,
            rebuild,
        })
    };
    Ok(Plan {
        candidate,
        exposure: Exposure::of(&layout),
        spare: course(None)?,
        spread: rebuild::Spread::of(&layout)
            .map(|spread| course(Some(spread)))
            .transpose()?,
    })
}

struct Usable {
    /// Bytes of a disk that rows use.
    of_each: u64,
    of_all: u64,
}

fn usable(
    candidate: Candidate,
    disks: &Disks,
    spread: Option<rebuild::Spread>,
) -> Result<Usable, String> {
    let chunks = disks.bytes / (u64::from(CHUNK_SECTORS) * SECTOR_BYTES);
    let partitions = u64::from(candidate.partitions());
    let kept = spread.map_or(0, |spread| u64::from(spread.reserve));
    let of_partition = chunks / (partitions + kept);
    let slot_sectors = of_partition * partitions * u64::from(CHUNK_SECTORS);
    let layout = candidate.layout(slot_sectors)?;
    Ok(Usable {
        of_each: slot_sectors * SECTOR_BYTES,
        of_all: layout.size_sectors() * SECTOR_BYTES,
    })
}

impl Candidate {
    fn layout(&self, slot_sectors: u64) -> Result<Layout, String> {
        let geometry = Geometry {
            level: self.level,
            slots: self.slots,
            chunk_sectors: CHUNK_SECTORS,
            slot_sectors,
            skew: self.skew,
            ..Geometry::PLAIN
        };
        Layout::new(geometry).map_err(|error| error.to_string())
    }

    /// As few chunks as have every turn of the layout, each as often as any other.
    fn sample(&self) -> Result<Layout, String> {
        let turn = self.skew.map_or(self.slots, |skew| skew.groups);
        let chunks = u64::from(turn) * u64::from(self.partitions());
        self.layout(chunks * u64::from(CHUNK_SECTORS))
    }
}
