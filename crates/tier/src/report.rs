//! The status of an array with a log set: that of the main set, and what the log has.

use crate::Budget;
use crate::config::Redirect;
use crate::overlay::{Cleans, DestageStage, Kind, OverlayCounters, PackState};
use alloc::boxed::Box;
use core::ops::{Deref, DerefMut};
use restripe_array::meta::BufferMark;
use restripe_array::report::{self, MemberState, MemberStatus};

/// The status of an array: of its main set, and of the log set that it is served with.
#[derive(Clone, Debug, Default)]
pub struct Status {
    pub set: report::Status,
    /// `None` of an array without a log set.
    pub surrogate: Option<Box<SurrogateStatus>>,
}

impl From<report::Status> for Status {
    fn from(set: report::Status) -> Status {
        Status {
            set,
            surrogate: None,
        }
    }
}

/// Most questions about an array are about its main set.
impl Deref for Status {
    type Target = report::Status;

    fn deref(&self) -> &report::Status {
        &self.set
    }
}

impl DerefMut for Status {
    fn deref_mut(&mut self) -> &mut report::Status {
        &mut self.set
    }
}

impl Status {
    /// The members of the main set, then those of the log set, then those of NVRAM.
    pub fn all_members(&self) -> impl Iterator<Item = &MemberStatus> {
        let buffer = self.surrogate.iter().flat_map(|one| &one.buffer);
        self.disks().chain(buffer.flat_map(|one| &one.set.members))
    }

    /// Whether flushes can make data durable: true unless a current or future member is volatile.
    pub fn is_durable(&self) -> bool {
        let counts =
            |one: &MemberStatus| !matches!(one.state, MemberState::Failed | MemberState::Foreign);
        !self.all_members().any(|one| one.volatile && counts(one))
    }

    /// The members of the main set and of the log set, which may have spindles; those of NVRAM have none.
    pub fn disks(&self) -> impl Iterator<Item = &MemberStatus> {
        let of_surrogate = self.surrogate.iter().flat_map(|one| &one.set.members);
        self.members.iter().chain(of_surrogate)
    }
}

/// The status of a log set, and of the overlay.
#[derive(Clone, Debug)]
pub struct SurrogateStatus {
    /// Of its NVRAM, if it has any.
    pub buffer: Option<BufferStatus>,
    pub set: report::Status,
    /// `None` while nothing is redirected and nothing can be.
    pub overlay: Option<OverlayStatus>,
}

/// The status of a code cache's NVRAM.
#[derive(Clone, Debug)]
pub struct BufferStatus {
    pub set: report::Status,
    /// What the superblocks of the log set say about it.
    pub mark: BufferMark,
    /// Records that it has and that are not durable in the log; `None` if flushes do not go there.
    pub records: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub struct OverlayStatus {
    pub redirect: Redirect,
    /// Extents of the map (IDO's D_Map), and its capacity.
    pub extents: u32,
    pub capacity: u32,
    /// Sectors of the array that the log has, by [`Kind`]: instead, also, clean.
    pub sectors: [u64; Kind::ALL.len()],
    /// Sectors of the log.
    pub log_sectors: u64,
    pub going_home: bool,
    /// The log failed: writes that must go there are refused, unless the array goes on without it.
    pub broken: bool,
    /// The log failed, and the primary copies have all that it had: writes go on without it (GRAID).
    pub without_log: bool,
    /// The log has no room, and is not destaged: it lacked space, or the last destage was cut short.
    pub full: bool,
    /// The primary copies are trusted to have what goes into the log (GRAID).
    pub ahead: bool,
    /// Only the primary copies have new writes: there is no log (ERAID), or it failed.
    pub alone: bool,
    /// There is no log (ERAID).
    pub logless: bool,
    /// Mirrors in standby now.
    pub mirrors_asleep: u16,
    /// Mirrors that cannot be put in standby.
    pub mirrors_restless: u16,
    /// How often mirrors were put in standby, and how often the log was destaged.
    pub rests: u64,
    pub destages: u64,
    /// Where mirrors may be put in standby.
    pub budget: Option<Budget>,
    /// Where writes are packed in memory.
    pub code_cache: Option<CodeCacheStatus>,
    pub counters: OverlayCounters,
}

/// The state of a code cache (RERAID).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CodeCacheStatus {
    pub gathering: PackState,
    /// Records that wait to be written until the main set has on record that the log has them.
    pub announcing: u32,
    /// The log is so full that it is to be destaged.
    pub short: bool,
    /// Clients' writes wait for room in the log.
    pub starved: bool,
    /// The log is being destaged, or is going to be once its records are written and mirrors have spun up.
    pub destaging: bool,
    pub destage_stage: Option<DestageStage>,
    /// The oldest segments are cleaned, so that nothing has to be destaged.
    pub cleans: Option<Cleans>,
    /// Mirrors that are being put in standby, and those that are spinning up.
    pub mirrors_resting: u16,
    pub mirrors_waking: u16,
}
