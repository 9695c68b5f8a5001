//! Takes records from the NVRAM set of a code cache at a start: those that clients flushed and that the log
//! does not have whole. They are written to their places in the log, and the log is read again.
//!
//! | step    | cause                                                      | next             |
//! |---------|------------------------------------------------------------|------------------|
//! | reading | the half has been read                                     | page             |
//! | page    | it is the page of a version                                | sum              |
//! | sum     | its checksum is right: the version is known                | the next half    |
//! | sum     | its checksum is right: the version goes into the log       | header           |
//! | header  | the page that it has in the log is put                     | writing          |
//! | writing | the log has it, not yet durably                            | the next version |
//!
//! If no version can be read from a half, the half is read without one of its copies after the other
//! (reading). A version that is found so is known, and the wrong copy is rewritten. If none is found, the
//! half is empty. There are two exceptions: a copy that is present could not be read, or the half had a
//! version that is to go into the log. Then the start is refused, or the version is reported as lost.

use super::reading::LogReader;
use super::state::{Half, HalfStep, Phase, can_be_had, of_buffer};
use crate::children::Owner;
use crate::overlay::Site;
use crate::overlay::format::slot::{self, HALF_SECTORS};
use crate::overlay::format::{Scan, Version, record};
use crate::works::Job;
use alloc::boxed::Box;
use alloc::vec::Vec;
use restripe_array::meta::superblock::BufferMark;
use restripe_array::parts::{Attempt, Copies, Size, Suspects};
use restripe_array::{
    Buf, BufRef, CommandError, ComputeOp, Fact, PAGE_SECTORS, Page, RequestError, SECTOR_BYTES,
    SMALL_BYTES, Verdict, zeroed_page,
};

impl LogReader {
    /// Records in the log's superblock what the NVRAM set holds from now on. True once the record is durable.
    pub(crate) fn mark_at_start(&mut self, numbered: bool) -> Result<bool, RequestError> {
        match (self.buffer_mark(), self.buffer.used) {
            (BufferMark::None, _) => Ok(true),
            (_, false) => self.mark_buffer(BufferMark::Idle),
            // The NVRAM set has the start's number first.
            (_, true) if numbered => self.mark_buffer(BufferMark::Counts),
            (_, true) => Ok(true),
        }
    }

    /// Continues with the halves, or with the records that are moved. False if it has to wait.
    pub(crate) fn slots_on(&mut self) -> bool {
        let halves = self.slots().halves();
        let start = self.start_mut();
        if start.slots.now.is_some() {
            return false;
        }
        let (moving, layout) = match &start.phase {
            Phase::Slots { layout } => (false, *layout),
            Phase::Moving { layout } => (true, *layout),
            _ => unreachable!("slots are read in these phases"),
        };
        let next = match moving {
            true => start.slots.moves.front().map(|(half, _)| *half),
            false => Some(start.slots.next).filter(|half| *half < halves),
        };
        let Some(half) = next else {
            self.read_log(layout);
            return true;
        };
        let Some(buf) = self.buffers.take_free(Size::Large) else {
            return false;
        };
        let job = self.jobs.list.insert(Job::Slot);
        let step = HalfStep::Reading;
        let now = Half {
            half,
            buf,
            job,
            step,
            again: None,
            found: None,
            unread: false,
        };
        let slots = &mut self.start_mut().slots;
        slots.next += u32::from(!moving);
        slots.now = Some(now);
        // A copy that cannot be read is not rewritten from another copy before that one is known to be right.
        self.read_half(Suspects::NOBODY);
        true
    }

    fn read_half(&mut self, suspects: Suspects) {
        let Half { half, buf, job, .. } = *self.half();
        let at = self.slots().half_at(half);
        let into = BufRef::new(buf, 0, (HALF_SECTORS * SECTOR_BYTES) as u32);
        let copies = Copies::Without(suspects);
        self.read_copies(Site::Nvram, Owner::Job(job), at, into, copies);
    }

    fn read_half_again(&mut self, again: Attempt) {
        let half = self.half();
        half.again = Some(again);
        half.step = HalfStep::Reading;
        self.read_half(again.suspects);
    }

    /// The half could be read. If it has no version, another copy may have one. The wrong copy of a version
    /// that was found is rewritten, unless the version goes into the log now.
    fn half_reads(&mut self, version: Option<Version>) {
        let mends = self.may_write() && !self.is_moving();
        let half = self.half();
        let again = half.again.filter(|again| !again.suspects.repairs);
        match (version, again) {
            (None, _) if half.found.is_some() => self.half_stays(),
            (None, _) => self.try_next_copies(),
            (Some(version), Some(again)) if mends => {
                half.found = Some(version);
                self.read_half_again(again.repairing());
            }
            (found, _) => self.half_is(found),
        }
    }

    /// The half could not be read.
    fn half_fails(&mut self) {
        let half = self.half();
        if half.found.is_some() {
            return self.half_stays();
        }
        half.unread = true;
        match half.again {
            Some(_) => self.try_next_copies(),
            None => self.give_up_half(),
        }
    }

    /// The wrong copy of a version could not be rewritten: the version from the other copies was sound.
    fn half_stays(&mut self) {
        let found = self.half().found.take();
        self.half_is(found);
    }

    fn try_next_copies(&mut self) {
        let Half {
            half,
            again,
            unread,
            ..
        } = *self.half();
        let at = self.slots().half_at(half);
        let next = self.buffer_set().next_attempt(at..at + HALF_SECTORS, again);
        match next {
            Some(next) => self.read_half_again(next),
            None if unread || self.buffer_set().halted() => self.give_up_half(),
            None => self.half_is(None),
        }
    }

    fn is_moving(&mut self) -> bool {
        matches!(self.start_mut().phase, Phase::Moving { .. })
    }

    fn half(&mut self) -> &mut Half {
        let now = self.start_mut().slots.now.as_mut();
        now.expect("one is being read")
    }

    fn step_half(&mut self, step: HalfStep) -> (u32, Buf) {
        let half = self.half();
        half.step = step;
        (half.job, half.buf)
    }

    /// Ends the work on this half.
    fn leave_half(&mut self) -> u32 {
        let now = self.start_mut().slots.now.take();
        let Half { half, buf, job, .. } = now.expect("one is being read");
        self.buffers.release(buf);
        self.jobs.list.remove(job);
        half
    }

    /// A half was read, or a record written into the log.
    pub(crate) fn slot_moved(&mut self, result: Result<(), RequestError>) {
        let writing = self.half().step == HalfStep::Writing;
        match (writing, result) {
            (false, Ok(())) => {
                let (job, buf) = self.step_half(HalfStep::Page);
                let source = BufRef::new(buf, 0, SMALL_BYTES);
                let page = Some(zeroed_page());
                self.compute(job, ComputeOp::TakePage, Some(source), None, page);
            }
            (false, Err(_)) => self.half_fails(),
            (true, Ok(())) => {
                self.leave_half();
                self.start_mut().slots.moves.pop_front();
            }
            (true, Err(_)) => {
                self.leave_half();
                self.cannot_write();
            }
        }
    }

    /// The half may hold flushed data, and no copy of it can be read.
    fn give_up_half(&mut self) {
        self.leave_half();
        let error = self.why_unreadable();
        if self.gives_up(error) && self.is_moving() {
            self.drop_move();
        }
    }

    /// An NVRAM set that loses too many members during the start is treated as one that was not present.
    fn why_unreadable(&self) -> CommandError {
        let buffer = self.buffer_set();
        match buffer.halt().map(|halt| buffer.halt_error(halt)) {
            Some(CommandError::TooFew { .. }) => CommandError::BufferMissing,
            Some(error) => error,
            None => CommandError::Metadata,
        }
    }

    /// The NVRAM set may hold flushed data that cannot be read. It is given up and reported, or the start
    /// refused.
    fn gives_up(&mut self, error: CommandError) -> bool {
        let mode = self.start_mut().mode;
        if !self.accepts_loss() || can_be_had(&error, mode) {
            self.refuse_buffer(error);
            return false;
        }
        let slots = &mut self.start_mut().slots;
        if !core::mem::replace(&mut slots.given_up, true) {
            let (why, forgone) = (Box::new(of_buffer(error)), true);
            self.report_of_start(Fact::BufferAbsent { why, forgone });
        }
        true
    }

    /// The half has a newer version than before: the log is read again, without it. The copies of a half
    /// differ only if a crash came before both had the newer version, and so before its flush was
    /// acknowledged. The data of the older version is in the other half by then, or in the log.
    fn drop_move(&mut self) {
        let slots = &mut self.start_mut().slots;
        let dropped = slots.moves.pop_front().expect("a version is queued");
        slots.moves.clear();
        slots.moved = None;
        slots.versions.retain(|one| *one != dropped);
    }

    pub(crate) fn slot_computed(&mut self, page: Option<Page>, verdict: Verdict) {
        let owner = self.log_owner();
        match (self.half().step.clone(), page, verdict) {
            (HalfStep::Page, Some(page), _) => match slot::decode(&owner, &page) {
                Ok(version) if self.fits(&version) => {
                    let sectors = u64::from(version.header.payload_sectors);
                    let (job, buf) = self.step_half(HalfStep::Sum(version));
                    let bytes = (sectors * SECTOR_BYTES) as u32;
                    let source = BufRef::new(buf, SMALL_BYTES, bytes);
                    self.checksum(job, source);
                }
                _ => self.half_reads(None),
            },
            (HalfStep::Sum(version), _, Verdict::Checksum(crc)) => {
                self.half_reads((crc == version.header.payload_crc).then_some(version));
            }
            (HalfStep::Header, ..) => self.move_into_log(),
            _ => self.half_reads(None),
        }
    }

    /// Whether a version belongs to this half's slot, and is no longer than a half.
    fn fits(&mut self, version: &Version) -> bool {
        let half = self.half().half;
        let header = version.header;
        let short = u64::from(header.payload_sectors) + PAGE_SECTORS <= HALF_SECTORS;
        short && self.slots().half_of(header.sequence, version.version) == half
    }

    /// Handles the version that a half turned out to have.
    fn half_is(&mut self, version: Option<Version>) {
        if !self.is_moving() {
            let half = self.leave_half();
            let found = version.map(|version| (half, version));
            return self.start_mut().slots.versions.extend(found);
        }
        // The half had a whole version a moment ago.
        let Some(version) = version else {
            return self.give_up_half();
        };
        let expected = self.start_mut().slots.moves.front();
        let expected = &expected.expect("a version is queued").1;
        if *expected != version {
            let age = |one: &Version| (one.header.sequence, one.version);
            // The version found now is older: the newer one was on a member that does not return it any more.
            if age(&version) < age(expected) {
                return self.give_up_half();
            }
            self.leave_half();
            return self.drop_move();
        }
        let mut page = self.jobs.boxes.page();
        let owner = self.log_owner();
        record::encode(&owner, &version.header, &version.extents, &mut page);
        let (job, buf) = self.step_half(HalfStep::Header);
        self.put_page(job, page, buf);
    }

    fn move_into_log(&mut self) {
        let start = self.start_mut();
        let Phase::Moving { layout } = start.phase else {
            unreachable!("records are moved in this phase")
        };
        let moved = start.slots.moves.front().expect("a version is queued");
        let header = moved.1.header;
        let (job, buf) = self.step_half(HalfStep::Writing);
        let sectors = u64::from(layout.footprint(header.payload_sectors));
        let source = BufRef::new(buf, 0, (sectors * SECTOR_BYTES) as u32);
        let at = layout.sector(header.at);
        self.write(Site::Log, Owner::Job(job), at, source);
    }

    /// The log was read: records that only the NVRAM set has go there. False if there are none.
    pub(crate) fn move_from_buffer(&mut self, scan: &Scan) -> bool {
        let layout = *scan.layout();
        let whole = |one: &&(u32, Version)| one.1.closed;
        let start = self.start_mut();
        if !start.slots.counts || start.cut.is_some() || start.doubt.is_some() {
            return false;
        }
        // A record that can no longer be read in the log, or the records behind the last whole one.
        let unread = scan.unread_from();
        let again = unread.and_then(|sequence| start.slots.newest(sequence).filter(whole));
        let moves = match again.cloned() {
            Some(again) => Vec::from([again]),
            None => start.slots.chain(scan.gap()),
        };
        let Some(first) = moves.first().map(|(_, version)| version.header.sequence) else {
            return false;
        };
        if start.mode.read_only {
            let why = "its NVRAM buffer must first be replayed into the log: start it once without --read-only";
            self.refuse_buffer(CommandError::Unsuited(why));
            return true;
        }
        let placed = moves
            .iter()
            .all(|(_, version)| scan.has_place(&version.header));
        if !placed || start.slots.moved == Some(first) {
            // No writer leaves such a state.
            if !self.gives_up(CommandError::Metadata) {
                return true;
            }
            self.start_mut().slots.counts = false;
            return false;
        }
        start.slots.moved = Some(first);
        start.slots.moves = moves.into();
        start.phase = Phase::Moving { layout };
        true
    }
}
