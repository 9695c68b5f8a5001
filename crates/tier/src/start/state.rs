//! The state of a start under way.

use crate::config::RECORD_SECTORS;
use crate::overlay::format::{LogLayout, Read, RecordHeader, Recovered, Scan, Version};
use crate::overlay::{Extent, FoundInLog, Kind};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use restripe_array::parts::{Attempt, Size};
use restripe_array::{Buf, CommandError, CommandTag, PAGE_SECTORS, Page, StartMode, Verdict};

pub(crate) enum Phase {
    Sets,
    /// Both homes of each anchor, in turn; how many are asked for, and how many are there.
    Anchors {
        layout: LogLayout,
        homes: Vec<Option<Page>>,
        asked: usize,
        ended: usize,
    },
    Scan(Box<Scan>),
    /// What the buffer has, and what of it goes into the log.
    Slots {
        layout: LogLayout,
    },
    Moving {
        layout: LogLayout,
    },
    /// Both sets get the start's number on record ([`super::serve`]).
    Numbering {
        layout: LogLayout,
        session: u32,
        last: u32,
    },
    Flushing(Box<Recovered>),
    /// What the log does not tell is called lost.
    Losing {
        layout: LogLayout,
    },
    Closing {
        found: FoundInLog,
    },
    Beginning {
        found: FoundInLog,
    },
}

impl Phase {
    /// Of a log that is being read.
    pub(crate) fn layout(&self) -> LogLayout {
        match self {
            Phase::Anchors { layout, .. } => *layout,
            Phase::Scan(scan) => *scan.layout(),
            _ => unreachable!("the log is read in these phases"),
        }
    }
}

pub(crate) struct Start {
    pub(crate) tag: CommandTag,
    pub(crate) mode: StartMode,
    pub(crate) phase: Phase,
    pub(crate) reads: Vec<Option<Reading>>,
    /// A read of the scan that found no buffer.
    pub(crate) next: Option<Read>,
    /// What home would lose, while the log is asked whether it has that.
    pub(crate) doubt: Option<Vec<(u64, u64)>>,
    /// The log counts up to this record: what it and those behind it had is lost.
    pub(crate) cut: Option<u64>,
    pub(crate) slots: Slots,
}

/// Whether a set that did not start in this mode would, with room for what it writes, or from the members that are here.
pub(crate) fn can_be_had(error: &CommandError, mode: StartMode) -> bool {
    match error.innermost() {
        CommandError::Minority { .. } => !mode.from_minority,
        error => *error == CommandError::NoSpace,
    }
}

/// What is being read.
#[derive(Clone, Copy)]
pub(crate) enum Wanted {
    Anchor(usize),
    Header(u64),
    Payload(RecordHeader),
}

#[derive(Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) wanted: Wanted,
    pub(crate) buf: Buf,
    pub(crate) step: Step,
    /// It reads again what was wrong.
    pub(crate) again: Option<Again>,
}

/// Of a payload in a log that is written by whole rows, which is read with its header: nobody knows whether its parity was
/// written, so it is written again before it counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Reading,
    /// The payload is sound: the header is looked at once more.
    Sound,
    /// The header that was found goes before the payload.
    Header,
    Rewriting,
}

impl Wanted {
    pub(crate) fn size(&self) -> Size {
        match self {
            Wanted::Anchor(_) | Wanted::Header(_) => Size::Small,
            Wanted::Payload(_) => Size::Large,
        }
    }
}

/// A reading that does without some members.
#[derive(Clone, Copy)]
pub(crate) struct Again {
    /// All readings have brought the same.
    pub(crate) agreed: bool,
    /// What the first reading brought, by its checksum; nothing if it failed.
    pub(crate) plain: Option<u32>,
    pub(crate) attempt: Attempt,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum HalfStep {
    Reading,
    Page,
    Sum(Version),
    Header,
    Writing,
}

/// The half that is being looked at.
pub(crate) struct Half {
    pub(crate) half: u32,
    pub(crate) buf: Buf,
    pub(crate) job: u32,
    pub(crate) step: HalfStep,
    /// No version could be read from it, and so it is read without some of its copies: nobody else says that one is wrong.
    pub(crate) again: Option<Attempt>,
    /// What was found without them, while they are written again.
    pub(crate) found: Option<Version>,
    /// A copy that is here could not be read so: nobody knows what it has.
    pub(crate) unread: bool,
}

/// What the buffer has, as far as a start has looked.
#[derive(Default)]
pub(crate) struct Slots {
    /// It may hold what counts.
    pub(crate) counts: bool,
    pub(crate) next: u32,
    pub(crate) now: Option<Half>,
    /// Versions that are whole, and the halves that they lie in.
    pub(crate) versions: Vec<(u32, Version)>,
    /// Those that go into the log.
    pub(crate) moves: VecDeque<(u32, Version)>,
    /// The first of those that went there last.
    pub(crate) moved: Option<u64>,
    /// It has been told that something of it is given up.
    pub(crate) forgone: bool,
}

impl Slots {
    /// The newest version of a record.
    pub(crate) fn newest(&self, sequence: u64) -> Option<&(u32, Version)> {
        let of = |one: &&(u32, Version)| one.1.header.sequence == sequence;
        let versions = self.versions.iter().filter(of);
        versions.max_by_key(|(_, version)| version.version)
    }

    /// What counts from this sequence on.
    pub(crate) fn chain(&self, mut sequence: u64) -> Vec<(u32, Version)> {
        let mut chain = Vec::new();
        while let Some(found) = self.newest(sequence) {
            chain.push(found.clone());
            sequence += 1;
            if !found.1.closed {
                break;
            }
        }
        chain
    }
}

pub(crate) fn of_buffer(error: CommandError) -> CommandError {
    match error {
        error @ (CommandError::OfBuffer(_) | CommandError::BufferMissing) => error,
        error => CommandError::OfBuffer(Box::new(error)),
    }
}

/// A read's bytes, as far as the start wants to know them.
pub(crate) type Brought = (Option<Page>, Option<Verdict>);

/// The payload of a record at most. Where a record is written at once, with its header, it is one buffer with that.
pub(crate) fn record_sectors(layout: &LogLayout, whole_rows: bool) -> u32 {
    let header = PAGE_SECTORS as u32;
    match whole_rows {
        true => {
            RECORD_SECTORS.min(layout.segment_sectors()) / layout.grain() * layout.grain() - header
        }
        false => RECORD_SECTORS.min(layout.segment_sectors() - header),
    }
}

/// What counts from now on: no clean copies, since a crash may have taken back at home what they are of.
pub(crate) fn found_of(recovered: &Recovered) -> FoundInLog {
    let counts = |extent: &&Extent| extent.kind != Kind::Clean;
    FoundInLog {
        segments: recovered.segments.clone(),
        extents: recovered.extents.iter().filter(counts).copied().collect(),
        sequence: recovered.next,
    }
}
