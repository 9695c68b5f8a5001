//! Values that records on members share with the engine: pages, what is known of a device, kinds of tasks and scrubs.

use crate::units::PAGE_BYTES;
use alloc::boxed::Box;

/// A small owned block of metadata that travels inside an operation.
pub type Page = Box<[u8; PAGE_BYTES]>;

/// A fresh page of zeros.
pub fn zeroed_page() -> Page {
    Box::new([0; PAGE_BYTES])
}

/// What the shell knows of a device when it has opened it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberInfo {
    pub sectors: u64,
    /// Bytes: 512 or 4096.
    pub logical_block: u32,
    /// A trimmed range reads as zeros.
    pub trim_zeroes: bool,
    /// Zeroing is much faster than writing.
    pub fast_zero: bool,
    /// The device makes nothing durable: it takes neither flushes nor durable writes.
    pub volatile: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum TaskKind {
    Rebuild,
    Replace,
    Resync,
    Check,
    Repair,
    /// Chunks move to members that were added.
    Growth,
}

impl TaskKind {
    /// Whether it writes what a slot holds to a member that has not got it yet.
    pub fn fills(self) -> bool {
        matches!(self, TaskKind::Rebuild | TaskKind::Replace)
    }

    pub fn is_scrub(self) -> bool {
        matches!(self, TaskKind::Check | TaskKind::Repair)
    }
}

/// What a scrub does about a row whose cells disagree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ScrubMode {
    /// It writes nothing.
    Check,
    /// It repairs what a second witness proves wrong, and what cannot be read.
    Repair,
    /// It also brings in sync what has no second witness: parity is made of the data, and further copies of the first. If the
    /// data was wrong, it stays wrong.
    Sync,
}

impl ScrubMode {
    /// In the order of their numbers on members and in records.
    pub const ALL: [ScrubMode; 3] = [ScrubMode::Check, ScrubMode::Repair, ScrubMode::Sync];

    /// A sync if it writes, else a check.
    pub fn writing(writes: bool) -> ScrubMode {
        match writes {
            true => ScrubMode::Sync,
            false => ScrubMode::Check,
        }
    }

    pub fn writes(self) -> bool {
        self != ScrubMode::Check
    }
}

/// What a scrub did about something that it found, the worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Cure {
    /// It is as it was.
    Left,
    /// The row is in sync, and whether its data is right is not verified.
    InSync,
    /// It is as it had been written.
    Repaired,
}
