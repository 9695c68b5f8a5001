//! The state of a start in progress.

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
    /// Both places of each anchor, in turn; the number requested, and the number that have ended.
    Anchors {
        layout: LogLayout,
        homes: Vec<Option<Page>>,
        asked: usize,
        ended: usize,
    },
    Scan(Box<Scan>),
    /// Reads the records in the NVRAM set, and decides which of them go into the log.
    Slots {
        layout: LogLayout,
    },
    Moving {
        layout: LogLayout,
    },
    /// Both sets record the start's number ([`super::serve`]).
    Numbering {
        layout: LogLayout,
        session: u32,
        last: u32,
    },
    Flushing(Box<Recovered>),
    /// The main set records as lost the data that the log does not have.
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
    /// The layout of the log that is being read.
    pub(crate) fn layout(&self) -> LogLayout {
        match self {
            Phase::Anchors { layout, .. } => *layout,
            Phase::Scan(scan) => *scan.layout(),
            _ => unreachable!("the log is read in these phases"),
        }
    }
}

pub(crate) struct StartState {
    pub(crate) tag: CommandTag,
    pub(crate) mode: StartMode,
    pub(crate) phase: Phase,
    pub(crate) reads: Vec<Option<Reading>>,
    /// A read of the scan for which no buffer was free.
    pub(crate) next: Option<Read>,
    /// The extents that the main set would lose, while the log is read to see whether it has them.
    pub(crate) doubt: Option<Vec<(u64, u64)>>,
    /// The log is valid up to this record: the data of this record and of those behind it is lost.
    pub(crate) cut: Option<u64>,
    pub(crate) slots: Slots,
}

/// Whether a set that did not start in this mode would start with free space, or from the present members.
pub(crate) fn can_be_had(error: &CommandError, mode: StartMode) -> bool {
    match error.innermost() {
        CommandError::Minority { .. } => !mode.from_minority,
        error => *error == CommandError::NoSpace,
    }
}

/// The page or payload that is being read.
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
    /// Set while something that was wrong is read again.
    pub(crate) again: Option<Again>,
}

/// The steps of a payload in a log that is written by whole rows. It is read with its header. Whether its
/// parity was written is unknown, so the record is rewritten before it is valid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Reading,
    /// The payload is sound: the header is checked once more.
    Sound,
    /// The header that was found is put in front of the payload.
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
    /// All readings have given the same bytes.
    pub(crate) agreed: bool,
    /// The checksum of the first reading; none if it failed.
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

/// The half that is being read.
pub(crate) struct Half {
    pub(crate) half: u32,
    pub(crate) buf: Buf,
    pub(crate) job: u32,
    pub(crate) step: HalfStep,
    /// Set if no version could be read from the half: it is read without some of its copies, since nothing
    /// else shows which copy is wrong.
    pub(crate) again: Option<Attempt>,
    /// The version that was found without some copies, while those are rewritten.
    pub(crate) found: Option<Version>,
    /// A copy that is present could not be read in this way: its content is unknown.
    pub(crate) unread: bool,
}

/// The content of the NVRAM set, as far as a start has read it.
#[derive(Default)]
pub(crate) struct Slots {
    /// The NVRAM set may hold valid data.
    pub(crate) counts: bool,
    pub(crate) next: u32,
    pub(crate) now: Option<Half>,
    /// Versions that are whole, and the halves that they are in.
    pub(crate) versions: Vec<(u32, Version)>,
    /// The versions that go into the log.
    pub(crate) moves: VecDeque<(u32, Version)>,
    /// The first of the versions that went into the log last.
    pub(crate) moved: Option<u64>,
    /// A fact has reported that some of the content is given up.
    pub(crate) given_up: bool,
}

impl Slots {
    /// The newest version of a record.
    pub(crate) fn newest(&self, sequence: u64) -> Option<&(u32, Version)> {
        let of = |one: &&(u32, Version)| one.1.header.sequence == sequence;
        let versions = self.versions.iter().filter(of);
        versions.max_by_key(|(_, version)| version.version)
    }

    /// The valid versions from this sequence on.
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

/// The bytes of a read, as far as the start needs them.
pub(crate) type Brought = (Option<Page>, Option<Verdict>);

/// The largest payload of a record. A record that is written in one request shares a buffer with its header.
pub(crate) fn record_sectors(layout: &LogLayout, whole_rows: bool) -> u32 {
    let header = PAGE_SECTORS as u32;
    match whole_rows {
        true => {
            RECORD_SECTORS.min(layout.segment_sectors()) / layout.grain() * layout.grain() - header
        }
        false => RECORD_SECTORS.min(layout.segment_sectors() - header),
    }
}

/// The records that are valid from now on. Clean copies are left out: a crash may have undone the writes to
/// the main set that made them clean.
pub(crate) fn found_of(recovered: &Recovered) -> FoundInLog {
    let counts = |extent: &&Extent| extent.kind != Kind::Clean;
    FoundInLog {
        segments: recovered.segments.clone(),
        extents: recovered.extents.iter().filter(counts).copied().collect(),
        sequence: recovered.next,
    }
}
