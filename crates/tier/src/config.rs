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
    /// Some of the members are a surrogate of the others.
    pub surrogate: Option<SurrogateConfig>,
    /// A member that completes nothing for so long is failed, and one that keeps a single operation four times as long.
    pub io_timeout: Nanos,
    /// The bug to have.
    pub bug: Option<restripe_array::Bug>,
}

impl Config {
    /// Of one set that has these members and limits.
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

/// The surrogate's part of a configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SurrogateConfig {
    /// How many of the configured devices are the surrogate's: the last ones, but for its buffer's.
    pub members: u16,
    /// How many are its buffer's, the last ones.
    pub buffer_members: u16,
    pub limits: SurrogateLimits,
    pub redirect: Redirect,
    /// Users are moved out of a scrub's way, too, not only of tasks that restore redundancy.
    pub scrubs: bool,
    /// Where every write is redirected at all times.
    pub destage: Destage,
}

/// Bounds of the surrogate's engine and of the overlay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SurrogateLimits {
    /// Buffers of the surrogate's engine.
    pub pool: Pool,
    pub requests: u32,
    pub slices: u32,
    pub ios: u32,
    /// Extents of the map (IDO's D_Map), 31 bytes each.
    pub extents: u32,
    /// Or, if that is more, as many as a log holds of this length, in sectors, up to 2,097,152; 0: never.
    pub extent_sectors: u32,
    /// Copies on their way home at once, and as many on their way into the log.
    pub copies: u32,
    /// Where writes are gathered: records of 64 KiB of a cluster, which goes into the log at once.
    pub cluster_records: u32,
    /// And records in memory: those of clusters that are being filled or written, and the newest of those that were. None where
    /// nothing is gathered.
    pub records_in_memory: u32,
    /// Buffers of the engine of the code cache's buffer in persistent memory, if it has one.
    pub buffer_pool: Pool,
    /// And so many buffers of 64 KiB for what of the log is on its way home, besides those of the clusters that are just being read.
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
/// What a map is made for, of a log that takes every write: extents of a quarter of a record, 16 KiB.
const EXTENT_SECTORS: u32 = RECORD_SECTORS / 4;
/// Extents of a map at most, 62 MiB, unless more were found in the log.
const EXTENTS_MOST: u64 = 1 << 21;
/// A buffer takes few requests at once, each of a record at most.
const BUFFER_POOL: Pool = Pool {
    small: 256,
    large: 32,
};
/// Requests, slices and operations of a buffer at once.
pub(crate) const BUFFER_REQUESTS: u32 = 64;
pub(crate) const BUFFER_SLICES: u32 = 16;
pub(crate) const BUFFER_IOS: u32 = 128;
/// Pages on their way into the log or out of it at once: headers of records, anchors.
const PAGES: u32 = 64;

impl SurrogateLimits {
    /// Of an array whose surrogate is a code cache: four clusters of 1 MiB in memory (RERAID, section 3.2), and 16 MiB on its way
    /// home, so many copies at once that drives can choose among them.
    pub fn gathering() -> SurrogateLimits {
        SurrogateLimits {
            extent_sectors: EXTENT_SECTORS,
            copies: 32,
            records_in_memory: 64,
            parts_home: 256,
            ..SurrogateLimits::default()
        }
    }

    /// The same with a buffer in persistent memory.
    pub fn with_buffer(mut self) -> SurrogateLimits {
        self.buffer_pool = BUFFER_POOL;
        self
    }

    /// Of an array whose first copies go ahead of the further ones: so many copies at once that drives can choose among them.
    pub fn ahead() -> SurrogateLimits {
        SurrogateLimits {
            extent_sectors: EXTENT_SECTORS,
            copies: SurrogateLimits::gathering().copies,
            ..SurrogateLimits::default()
        }
    }

    /// Extents of the map of a log of so many sectors.
    pub(crate) fn map_extents(&self, log_sectors: u64) -> u32 {
        let room = log_sectors.checked_div(self.extent_sectors.into());
        let room = room.unwrap_or(0).min(EXTENTS_MOST);
        self.extents.max(room as u32)
    }

    /// Buffers that neither engine has: for pages, and for copies.
    pub(crate) fn own_pool(&self) -> Pool {
        Pool {
            small: PAGES,
            large: 2 * self.copies + self.records_in_memory + self.homeward_buffers(),
        }
    }

    /// Buffers of what goes home from a log in which writes are gathered: kept, or being read.
    pub fn homeward_buffers(&self) -> u32 {
        self.parts_home.saturating_add(self.load_buffers())
    }

    /// Buffers of clusters that are being read, as many at once as there may be.
    pub(crate) fn load_buffers(&self) -> u32 {
        match self.parts_home {
            0 => 0,
            _ => self.cluster_records.saturating_mul(FETCHES as u32),
        }
    }

    /// All buffers that a surrogate takes of the pool: what the limits of its array need besides.
    pub fn whole_pool(&self) -> Pool {
        let own = self.own_pool();
        Pool {
            small: self.pool.small + own.small + self.buffer_pool.small,
            large: self.pool.large + own.large + self.buffer_pool.large,
        }
    }
}

/// When what lies in the log goes home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destage {
    /// When users have asked for nothing for so long.
    pub idle: Option<Nanos>,
    /// So long after the last time, whatever the log holds.
    pub every: Option<Nanos>,
    /// What was gathered in memory goes into the log so long after it came, though nobody flushes.
    pub seal: Nanos,
    /// In which order stripes go home.
    pub order: DestageOrder,
    /// Mirrors sleep between ways home.
    pub sleep: Option<Sleep>,
    /// Where they do, and writes are gathered, a log that runs short is cleaned as long as that pays: then nothing goes home, and they sleep on.
    pub clean: bool,
}

/// When mirrors are let sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sleep {
    /// So long after they were needed last.
    pub after: Nanos,
    /// How often a day at most: what the drives' rating of starts and stops allows. More of them wait until the budget has grown
    /// again.
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
    /// Whether a log in which writes are gathered is cleaned.
    pub(crate) fn cleans(&self) -> bool {
        self.clean && self.sleep.is_some()
    }
}

/// Which requests are moved away while a task runs that users are to be out of the way of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub enum Redirect {
    /// None: every request goes home.
    None,
    /// Every write, and reads of what was read before (WorkOut: Wu et al., FAST 2009).
    WorkOut,
    /// Writes of what a missing member held, and every read (Victim Disk First, as IDO's section 4 has it manage a
    /// surrogate).
    Vdf,
    /// Every write, and the zones that users read most, as they are restored (IDO, section 3.4).
    #[default]
    Ido,
    /// Every write, at all times: home is written when the log is nearly full, or users have been idle for long (RERAID).
    Reraid,
    /// Every write, and to first copies at home as well: mirrors sleep, and get it from there when the log is nearly full (GRAID: Mao
    /// et al., MASCOTS 2008).
    Graid,
    /// Every write to first copies, and to nothing else: mirrors sleep, and get it from there when the map is nearly full, in time or
    /// when somebody asks (ERAID: Li and Wang, 2006). Until then **a first copy that is lost takes new writes with it**.
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

    /// Whether first copies go ahead of the further ones.
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
