//! What an engine is built with: its members and limits, and how a tier uses its log set.

use crate::overlay::FETCHES;
use crate::policy::destage_order::DestageOrder;
use alloc::vec::Vec;
use restripe_array::{Limits, MemberInfo, Nanos, Pool};

/// What an engine is built with. Everything about the array itself comes from its members' metadata.
#[derive(Clone, Debug)]
pub struct Config {
    /// The devices that the shell has opened, in the order of their [`Member`] numbers.
    pub members: Vec<MemberInfo>,
    pub limits: Limits,
    /// The last members are the log set of the others.
    pub surrogate: Option<SurrogateConfig>,
    /// A member that completes nothing for this time fails; so does one with an operation four times as long.
    pub io_timeout: Nanos,
    /// A planted bug, for tests of the tests.
    pub bug: Option<restripe_array::Bug>,
}

impl Config {
    /// The configuration of one set, with these members and limits.
    pub(crate) fn of_set(
        &self,
        members: Vec<MemberInfo>,
        limits: Limits,
    ) -> restripe_array::Config {
        restripe_array::Config {
            members,
            limits,
            io_timeout: self.io_timeout,
            bug: self.bug,
        }
    }
}

/// The log set's part of a configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SurrogateConfig {
    /// Devices of the log set: the last ones before those of NVRAM.
    pub members: u16,
    /// Devices of the NVRAM set: the last ones.
    pub buffer_members: u16,
    pub limits: SurrogateLimits,
    pub redirect: Redirect,
    /// Clients are redirected during a scrub, too, not only while redundancy is restored.
    pub scrubs: bool,
    /// When the log is destaged, where every write is redirected at all times.
    pub destage: Destage,
}

/// Bounds of the log set and of the overlay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SurrogateLimits {
    /// Buffers of the log set.
    pub pool: Pool,
    pub requests: u32,
    pub slices: u32,
    pub ios: u32,
    /// Extents of the map (IDO's D_Map), 31 bytes each.
    pub extents: u32,
    /// If that is more, as many extents of this length in sectors as the log holds, up to 2,097,152. 0: no.
    pub extent_sectors: u32,
    /// Destage writes in flight, and as many copies on their way into the log.
    pub copies: u32,
    /// Where writes are packed: records of 64 KiB in a cluster, which is written at once.
    pub cluster_records: u32,
    /// Where writes are packed: records in memory. They are being filled or written, or were written last.
    pub records_in_memory: u32,
    /// Buffers of the NVRAM set, if there is one.
    pub buffer_pool: Pool,
    /// Buffers of 64 KiB for data that was read for a destage, besides those of clusters that are being read.
    pub parts_home: u32,
}

impl Default for SurrogateLimits {
    fn default() -> SurrogateLimits {
        SurrogateLimits {
            pool: Pool {
                small: 2048,
                large: 256,
            },
            requests: 1024,
            slices: 256,
            ios: 2048,
            extents: 1 << 18,
            extent_sectors: 0,
            copies: 8,
            cluster_records: 16,
            records_in_memory: 0,
            buffer_pool: Pool { small: 0, large: 0 },
            parts_home: 0,
        }
    }
}

/// A record's payload at most: what a large buffer holds.
pub(crate) const RECORD_SECTORS: u32 = restripe_array::BAND_SECTORS_MAX as u32;
/// The map of a log that takes every write has room for extents of a quarter of a record, 16 KiB.
const EXTENT_SECTORS: u32 = RECORD_SECTORS / 4;
/// Extents of a map at most, 62 MiB, unless more were found in the log.
const EXTENTS_MOST: u64 = 1 << 21;
/// NVRAM takes few requests at once, each of a record at most.
const BUFFER_POOL: Pool = Pool {
    small: 256,
    large: 32,
};
/// Requests, slices and operations of the NVRAM set at once.
pub(crate) const BUFFER_REQUESTS: u32 = 64;
pub(crate) const BUFFER_SLICES: u32 = 16;
pub(crate) const BUFFER_IOS: u32 = 128;
/// Pages on their way into the log or out of it at once: headers of records, anchors.
const PAGES: u32 = 64;

impl SurrogateLimits {
    /// For a code cache: four clusters of 1 MiB in memory (RERAID, section 3.2), and 16 MiB for a destage,
    /// with enough writes in flight for drives to choose among.
    pub fn gathering() -> SurrogateLimits {
        SurrogateLimits {
            extent_sectors: EXTENT_SECTORS,
            copies: 32,
            records_in_memory: 64,
            parts_home: 256,
            ..SurrogateLimits::default()
        }
    }

    /// These limits, with NVRAM.
    pub fn with_buffer(mut self) -> SurrogateLimits {
        self.buffer_pool = BUFFER_POOL;
        self
    }

    /// For deferred mirrors (GRAID, ERAID): enough writes in flight for drives to choose among.
    pub fn ahead() -> SurrogateLimits {
        SurrogateLimits {
            extent_sectors: EXTENT_SECTORS,
            copies: SurrogateLimits::gathering().copies,
            ..SurrogateLimits::default()
        }
    }

    /// Extents of the map of a log of this length.
    pub(crate) fn map_extents(&self, log_sectors: u64) -> u32 {
        let room = log_sectors.checked_div(self.extent_sectors.into());
        let room = room.unwrap_or(0).min(EXTENTS_MOST);
        self.extents.max(room as u32)
    }

    /// Buffers that no set has: for pages, and for copies.
    pub(crate) fn own_pool(&self) -> Pool {
        Pool {
            small: PAGES,
            large: 2 * self.copies + self.records_in_memory + self.destage_buffers(),
        }
    }

    /// Buffers of a destage from packed records: for data that was read, and for data being read.
    pub fn destage_buffers(&self) -> u32 {
        self.parts_home.saturating_add(self.load_buffers())
    }

    /// Buffers of as many clusters as may be read at once.
    pub(crate) fn load_buffers(&self) -> u32 {
        match self.parts_home {
            0 => 0,
            _ => self.cluster_records.saturating_mul(FETCHES as u32),
        }
    }

    /// All buffers that a log set takes of the pool, besides those of the main set.
    pub fn whole_pool(&self) -> Pool {
        let own = self.own_pool();
        Pool {
            small: self.pool.small + own.small + self.buffer_pool.small,
            large: self.pool.large + own.large + self.buffer_pool.large,
        }
    }
}

/// When the log is destaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destage {
    /// After clients have requested nothing for this time.
    pub idle: Option<Nanos>,
    /// This time after the last destage, whatever the log holds.
    pub every: Option<Nanos>,
    /// A record in memory is written into the log this time after its first write, without a flush.
    pub seal: Nanos,
    /// The order in which stripes are destaged.
    pub order: DestageOrder,
    /// Mirrors are in standby between destages.
    pub sleep: Option<Sleep>,
    /// Where they are, and writes are packed, a log that runs short is cleaned as long as that pays. Then
    /// nothing is destaged, and they stay in standby.
    pub clean: bool,
}

/// When mirrors are put in standby.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sleep {
    /// This time after they were last used.
    pub after: Nanos,
    /// Times a day at most, by the drives' rating of starts and stops. More wait until the budget has grown.
    pub starts_a_day: u32,
}

impl Default for Sleep {
    /// 50,000 starts in five years, as drives are rated.
    fn default() -> Sleep {
        Sleep {
            after: Nanos::from_secs(10),
            starts_a_day: 27,
        }
    }
}

impl Default for Destage {
    fn default() -> Destage {
        Destage {
            idle: None,
            every: None,
            seal: Nanos::from_secs(5),
            order: DestageOrder::default(),
            sleep: None,
            clean: true,
        }
    }
}

impl Destage {
    /// Whether a log of packed records is cleaned.
    pub(crate) fn cleans(&self) -> bool {
        self.clean && self.sleep.is_some()
    }
}

/// Which requests are redirected while a task runs that clients would slow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub enum Redirect {
    /// None: every request goes to the main set.
    None,
    /// Every write, and reads of what was read before (WorkOut: Wu et al., FAST 2009).
    WorkOut,
    /// Writes of cells of a missing member, and every read (Victim Disk First for a log set, IDO, section 4).
    Vdf,
    /// Every write, and the zones that clients read most, as they are restored (IDO, section 3.4).
    #[default]
    Ido,
    /// Every write, at all times. The log is destaged when nearly full, or when clients are idle (RERAID).
    Reraid,
    /// Every write, and to the primary copies as well. The secondary copies are in standby, and are written
    /// when the log is nearly full (GRAID: Mao et al., MASCOTS 2008).
    Graid,
    /// Every write to the primary copies, without a log. The secondary copies are in standby, and are written
    /// when the map is nearly full, after a time, or on request (ERAID: Li and Wang, 2006). Until then **the
    /// loss of a primary copy loses new writes**.
    Eraid,
}

restripe_array::named! {
    Redirect {
        None = "none",
        WorkOut = "workout",
        Vdf = "vdf",
        Ido = "ido",
        Reraid = "reraid",
        Graid = "graid",
        Eraid = "eraid",
    }
}

impl Redirect {
    /// Whether writes are redirected at all times, so that mirrors can sleep.
    pub fn is_constant(self) -> bool {
        matches!(self, Redirect::Reraid | Redirect::Graid | Redirect::Eraid)
    }

    /// Whether primary copies are written first.
    pub fn goes_ahead(self) -> bool {
        matches!(self, Redirect::Graid | Redirect::Eraid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_log_has_a_larger_map() {
        const GIB: u64 = 1 << 21;
        let of =
            |limits: SurrogateLimits| [1, 4, 16, 1024].map(|gib| limits.map_extents(gib * GIB));
        assert_eq!(
            of(SurrogateLimits::gathering()),
            [1 << 18, 1 << 18, 1 << 20, 1 << 21]
        );
        assert_eq!(of(SurrogateLimits::default()), [1 << 18; 4]);
    }
}
