//! What an array with a log beside it reports: its main set's view, and what lies in the log.

use crate::Budget;
use crate::config::Redirect;
use crate::overlay::{Cleans, DestageStage, Kind, OverlayCounters, PackState};
use alloc::boxed::Box;
use core::ops::{Deref, DerefMut};
use restripe_array::meta::BufferMark;
use restripe_array::report::{self, MemberState, MemberStatus};

/// An array: the view of its own set, and of the surrogate that it is served with.
#[derive(Clone, Debug, Default)]
pub struct Status {
    pub set: report::Status,
    /// Of an array that is served with one.
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

/// Most questions about an array are about its own set.
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
    /// The array's members, its surrogate's behind them, and last those of that one's buffer.
    pub fn all_members(&self) -> impl Iterator<Item = &MemberStatus> {
        let buffer = self.surrogate.iter().flat_map(|one| &one.buffer);
        self.disks().chain(buffer.flat_map(|one| &one.set.members))
    }

    /// Whether a flush may be promised: no member that is current, or waits to become so, makes nothing durable.
    pub fn is_durable(&self) -> bool {
        let counts =
            |one: &MemberStatus| !matches!(one.state, MemberState::Failed | MemberState::Foreign);
        !self.all_members().any(|one| one.volatile && counts(one))
    }

    /// The array's members and its surrogate's, which may be drives with spindles; a buffer's are persistent memory.
    pub fn disks(&self) -> impl Iterator<Item = &MemberStatus> {
        let of_surrogate = self.surrogate.iter().flat_map(|one| &one.set.members);
        self.members.iter().chain(of_surrogate)
    }
}

/// A surrogate, and what the overlay has of the array there.
#[derive(Clone, Debug)]
pub struct SurrogateStatus {
    /// Of its buffer in persistent memory, if it has one.
    pub buffer: Option<BufferStatus>,
    pub set: report::Status,
    /// None while nothing is redirected and nothing can be.
    pub overlay: Option<OverlayStatus>,
}

/// A code cache's buffer in persistent memory.
#[derive(Clone, Debug)]
pub struct BufferStatus {
    pub set: report::Status,
    /// What the log has on record of it.
    pub mark: BufferMark,
    /// Records that lie there and are not durable in the log; none if flushes do not go there.
    pub records: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub struct OverlayStatus {
    pub redirect: Redirect,
    /// Extents of the map (IDO's D_Map), and how many it can have.
    pub extents: u32,
    pub capacity: u32,
    /// Sectors of the array with a copy in the log, by [`Kind`]: instead, also, clean.
    pub sectors: [u64; Kind::ALL.len()],
    /// Sectors of the log.
    pub log_sectors: u64,
    pub going_home: bool,
    /// The log failed: what must go there is refused, unless the array goes on without it.
    pub broken: bool,
    /// It failed, and first copies have all that it had: writes go on without it (GRAID).
    pub without_log: bool,
    /// The log has no room, and what lies there does not go home: it failed for want of space, or the last way home was cut short.
    pub full: bool,
    /// First copies at home are believed to have what goes into the log (GRAID).
    pub ahead: bool,
    /// Nobody else has it: there is no log (ERAID), or it failed.
    pub alone: bool,
    /// There never was one.
    pub logless: bool,
    /// Mirrors that stand still now, how often mirrors were let, and how often all went home.
    pub mirrors_asleep: u16,
    /// Mirrors that were told to stand still, and cannot.
    pub mirrors_restless: u16,
    pub rests: u64,
    pub destages: u64,
    /// Where mirrors may sleep.
    pub budget: Option<Budget>,
    /// Where writes are gathered in memory.
    pub code_cache: Option<CodeCacheStatus>,
    pub counters: OverlayCounters,
}

/// What a code cache is at (RERAID).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CodeCacheStatus {
    pub gathering: PackState,
    /// Records whose place at home is being announced, before they are written.
    pub announcing: u32,
    /// The log is so full that everything is to go home.
    pub short: bool,
    /// Users' writes wait for room in it.
    pub starved: bool,
    /// Everything is on its way home, or is going to be once it lies in the log and mirrors are awake.
    pub destaging: bool,
    pub destage_stage: Option<DestageStage>,
    /// The oldest of the log is moved, so that nothing has to go home.
    pub cleans: Option<Cleans>,
    /// Mirrors that were told to stand still, and those that are asked to turn again.
    pub mirrors_resting: u16,
    pub mirrors_waking: u16,
}
