//! Clean copies: the log's copies of sectors that are current in the main set, for reads (WorkOut, IDO). A
//! floor above packing; where writes are packed there are none.
//!
//! The sectors are read first and then appended. A write of some of them that begins in between spoils the
//! copy. A start ignores clean copies: they may have bytes that the main set had not made durable, and a
//! crash undid.

use super::Kind;
use super::effect::{CopyTag, Effect};
use super::nvram::rounds::NvramRounds;
use super::records::AckTarget;
use alloc::vec::Vec;
use core::ops::Range;
use restripe_array::{BufRef, RequestError};

/// Sectors that are being read for a clean copy.
#[derive(Clone, Copy, Debug)]
struct CleanCopy {
    tag: CopyTag,
    home: u64,
    sectors: u32,
    /// A write of some of them has begun.
    spoiled: bool,
}

pub struct CleanCopies {
    below: NvramRounds,
    copies: Vec<CleanCopy>,
    next_copy: u64,
}

floor!(CleanCopies over NvramRounds);

impl CleanCopies {
    pub(super) fn new(below: NvramRounds) -> CleanCopies {
        CleanCopies {
            copies: Vec::with_capacity(below.limits.copies as usize),
            below,
            next_copy: 0,
        }
    }

    pub(super) fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Sectors, a record's payload at most, are going to be read to be copied into the log: none if the log
    /// has some of them, or they are being written, or too many copies are being made.
    ///
    /// # Panics
    /// If they are none, or more than a record's payload.
    pub fn begin_copy(&mut self, home: u64, sectors: u32) -> Option<CopyTag> {
        assert!((1..=self.limits.record_sectors).contains(&sectors));
        let range = home..home + u64::from(sectors);
        let room = self.copies.len() < self.limits.copies as usize;
        if !room
            || self.broken
            || self.pack.is_some()
            || self.is_in_log(range.clone())
            || self.is_written(&range)
        {
            return None;
        }
        self.next_copy += 1;
        let tag = CopyTag(self.next_copy);
        self.copies.push(CleanCopy {
            tag,
            home,
            sectors,
            spoiled: false,
        });
        Some(tag)
    }

    fn take_copy(&mut self, tag: CopyTag) -> CleanCopy {
        let index = self.copies.iter().position(|copy| copy.tag == tag);
        self.copies.swap_remove(index.expect("it was begun"))
    }

    /// The sectors have been read: they are appended, if `room` for it is free.
    pub(super) fn append_read(&mut self, tag: CopyTag, payload: BufRef, room: bool) {
        let copy = self.take_copy(tag);
        self.counters.copies_spoiled += u64::from(copy.spoiled);
        let fits = !copy.spoiled && !self.broken && room;
        let (home, sectors) = (copy.home, copy.sectors);
        let target = AckTarget::Copy(tag);
        if !fits || !self.begin_record(home, sectors, Kind::Clean, target, Some(payload)) {
            let refused = Err(RequestError::Unavailable);
            self.emit(Effect::Copied(tag, refused));
        }
    }

    /// A record of a copy has landed, or failed.
    pub(super) fn copied_clean(&mut self, tag: CopyTag, result: Result<(), RequestError>) {
        self.counters.clean_copies += u64::from(result.is_ok());
        self.emit(Effect::Copied(tag, result));
    }

    /// A write of these sectors begins.
    pub(super) fn spoil(&mut self, sectors: Range<u64>) {
        for copy in &mut self.copies {
            let end = copy.home + u64::from(copy.sectors);
            copy.spoiled |= copy.home < sectors.end && sectors.start < end;
        }
    }

    /// Copying is given up before anything was appended.
    ///
    /// # Panics
    /// If it was not begun.
    pub(crate) fn abandon_copy(&mut self, tag: CopyTag) {
        self.take_copy(tag);
    }
}
