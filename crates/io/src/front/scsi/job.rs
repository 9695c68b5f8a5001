//! A command on its way: the data it wants, the requests it makes of the engine, and its answer.
//!
//! | command | requests, one after the other |
//! |---|---|
//! | READ, WRITE, SYNCHRONIZE CACHE | one |
//! | READ with FUA | a read, then a flush: what was read is durable when it is sent |
//! | VERIFY | reads, piece by piece, each compared |
//! | WRITE AND VERIFY | a write with FUA, then as VERIFY |
//! | COMPARE AND WRITE, ORWRITE | one, which is atomic |
//! | WRITE SAME | zeros: one; another pattern: writes, piece by piece |
//! | UNMAP | one for each descriptor: zeros |
//! | MODE SELECT, PERSISTENT RESERVE OUT, GET LBA STATUS, PRE-FETCH | none |

use super::answer::{Answer, BLOCK_BYTES, Data, Status};
use super::cdb::{Command, Compare, Extent, PersistentOut, WriteSame};
use super::inquiry::{TRANSFER_BLOCKS_MAX, UNMAP_DESCRIPTORS_MAX, WRITE_SAME_BLOCKS_MAX};
use super::mode::Medium;
use super::opcodes::Access;
use super::reserve;
use super::sense::{self, Sense};
use super::thin;
use super::unit::{Nexus, Persisted, Unit};
use crate::front::{Export, Link};
use restripe_array::{BufRef, RequestError, RequestOp, SECTOR_BYTES};

/// Bytes that are read, compared or written at once, where a command is done in pieces.
const PIECE_BYTES: u64 = 1 << 20;
/// Parts of a buffer that the engine uses begin at multiples of this.
const ALIGNMENT: u64 = 4096;
/// Longest list of parameters.
const LIST_BYTES_MAX: u32 = 8 + 16 * UNMAP_DESCRIPTORS_MAX;

/// A request to the engine. `part` is where its data is in the job's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) op: RequestOp,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) part: Option<(u32, u32)>,
    pub(crate) fua: bool,
}

/// What a job does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    Ask(Request),
    Done(Answer),
    /// It has cleared commands, some perhaps of other connections, which are named. It ends with GOOD when no
    /// request of a cleared command is in the engine any more.
    Cleared(Vec<u32>),
    /// What it changes is on its way to the disk, with this ticket. [`Job::kept`] follows.
    Kept(u64),
}

/// What a job works with, for the time of a call.
pub(crate) struct Around<'a> {
    pub(crate) unit: &'a mut Unit,
    pub(crate) nexus: Nexus,
    /// Index of the export.
    pub(crate) export: usize,
    /// As long as [`Job::memory`]; the data from the initiator is at its beginning.
    pub(crate) buf: Option<BufRef>,
    pub(crate) link: &'a mut dyn Link,
}

pub(crate) struct Job {
    work: Work,
    /// For reservations.
    access: Access,
    /// Bytes that the initiator is to send.
    data_out: u32,
    /// Bytes of its buffer; 0: it needs none.
    memory: u32,
}

enum Work {
    Read(Extent),
    Write(Extent),
    CompareAndWrite(Extent),
    OrWrite(Extent),
    Verify(Verify),
    /// First the write, which is done when it is `written`.
    WriteAndVerify {
        verify: Verify,
        written: bool,
    },
    Flush,
    Pattern {
        extent: Extent,
        done: u64,
    },
    /// The pattern of a WRITE SAME has yet to be looked at. Zeros are unmapped, another pattern is written,
    /// whether or not the initiator asked to unmap (SBC-3 section 5.43).
    WriteSame(Extent),
    /// The list has yet to be read: the blocks of the medium.
    Unmap(u64),
    Zeros(Vec<Extent>),
    Select {
        long: bool,
    },
    /// With the ticket of a change that is on its way to the disk.
    Persist(PersistentOut, u64),
    LbaStatus {
        lba: u64,
        length: u32,
        blocks: u64,
    },
    Nothing,
}

struct Verify {
    extent: Extent,
    compare: Compare,
    /// Bytes that were verified.
    done: u64,
}

impl Job {
    /// Checks a command against the medium. `access`: what it does, for reservations.
    pub(super) fn new(
        command: Command,
        access: Access,
        medium: Medium,
        export: &Export,
    ) -> Result<Job, Answer> {
        if !export.serving {
            return Err(sense::NOT_READY.into());
        }
        if medium.read_only && changes(&command) {
            return Err(sense::WRITE_PROTECTED.into());
        }
        let job = Job {
            access,
            ..Job::checked(command, medium)?
        };
        let within = u64::from(job.memory) <= u64::from(crate::front::BUFFER_BYTES_MAX);
        within.then_some(job).ok_or(sense::INVALID_FIELD.into())
    }

    fn checked(command: Command, medium: Medium) -> Result<Job, Sense> {
        match command {
            Command::Read(extent) => {
                let bytes = transfer(extent, medium, extent.blocks)?;
                durable(extent.fua, medium)?;
                Ok(Job::of(Work::Read(extent), 0, bytes.into()))
            }
            Command::Write(extent) => {
                let bytes = transfer(extent, medium, extent.blocks)?;
                durable(extent.fua, medium)?;
                Ok(Job::of(Work::Write(extent), bytes, bytes.into()))
            }
            Command::CompareAndWrite(extent) => {
                let bytes = atomic(extent, medium)?;
                let memory = memory_of(RequestOp::CompareAndWrite, bytes.into());
                Ok(Job::of(Work::CompareAndWrite(extent), 2 * bytes, memory))
            }
            Command::OrWrite(extent) => {
                let bytes = atomic(extent, medium)?;
                let memory = memory_of(RequestOp::Or, bytes.into());
                Ok(Job::of(Work::OrWrite(extent), bytes, memory))
            }
            Command::Verify(extent, compare) => verify(extent, compare, medium),
            Command::WriteAndVerify(extent, compare) => write_and_verify(extent, compare, medium),
            Command::WriteSame(command) => write_same(&command, medium),
            Command::Synchronize(extent) => {
                within(extent, medium)?;
                durable(true, medium)?;
                Ok(Job::of(Work::Flush, 0, 0))
            }
            Command::Prefetch(extent) => {
                within(extent, medium)?;
                Ok(Job::of(Work::Nothing, 0, 0))
            }
            Command::LbaStatus { lba, length } => {
                if lba >= medium.blocks {
                    return Err(sense::BEYOND_THE_END);
                }
                let blocks = medium.blocks;
                Ok(Job::of(
                    Work::LbaStatus {
                        lba,
                        length,
                        blocks,
                    },
                    0,
                    0,
                ))
            }
            Command::Unmap { length } => Job::with_list(Work::Unmap(medium.blocks), length),
            Command::ModeSelect { save: true, .. } => Err(sense::INVALID_FIELD),
            Command::ModeSelect { long, length, .. } => {
                Job::with_list(Work::Select { long }, length)
            }
            Command::PersistentOut(command) => {
                Job::with_list(Work::Persist(command, 0), command.length)
            }
            _ => Err(sense::INVALID_OPCODE),
        }
    }

    fn of(work: Work, data_out: u32, memory: u64) -> Job {
        Job {
            work,
            access: Access::Always,
            data_out,
            memory: u32::try_from(memory).unwrap_or(u32::MAX),
        }
    }

    fn with_list(work: Work, length: u32) -> Result<Job, Sense> {
        match length {
            0..=LIST_BYTES_MAX => Ok(Job::of(work, length, length.into())),
            _ => Err(sense::PARAMETER_LIST_LENGTH),
        }
    }

    pub(crate) fn data_out(&self) -> u32 {
        self.data_out
    }

    /// Whether the initiator may expect to send neither more nor less than what the command wants.
    pub(crate) fn is_exact(&self) -> bool {
        matches!(
            self.work,
            Work::WriteSame(_) | Work::CompareAndWrite(_) | Work::OrWrite(_)
        )
    }

    /// The refusal of a command whose initiator means to send too little, or too much where that matters.
    /// libiscsi's suite demands the first of these.
    pub(crate) fn wrong_size(&self) -> Sense {
        match self.work {
            Work::CompareAndWrite(_) | Work::OrWrite(_) => sense::INVALID_FIELD,
            _ => sense::SHORT_DATA,
        }
    }

    /// Makes a write end early, after the first bytes of its data: the initiator sends no more. Whether that
    /// can be done.
    pub(crate) fn shorten(&mut self, bytes: u32) -> bool {
        let whole = u64::from(bytes).is_multiple_of(BLOCK_BYTES);
        let blocks = u64::from(bytes) / BLOCK_BYTES;
        match &mut self.work {
            Work::Write(extent) if whole => extent.blocks = blocks,
            Work::WriteAndVerify { verify, .. } if whole => verify.extent.blocks = blocks,
            _ => return false,
        }
        self.data_out = bytes;
        true
    }

    pub(crate) fn memory(&self) -> u32 {
        self.memory
    }

    // -------------------------------------------------------------------------------------------- on its way

    /// The first step, when all data is there. The command is refused if a reservation that was made since it
    /// began conflicts with it.
    pub(crate) fn start(&mut self, around: &mut Around<'_>) -> Next {
        if around.unit.conflicts(around.nexus, self.access) {
            return Next::Done(Answer::status(Status::ReservationConflict));
        }
        match &mut self.work {
            Work::Read(extent) => ask(RequestOp::Read, *extent, around, false),
            Work::Write(extent) => ask(RequestOp::Write, *extent, around, extent.fua),
            Work::CompareAndWrite(extent) => {
                ask(RequestOp::CompareAndWrite, *extent, around, extent.fua)
            }
            Work::OrWrite(extent) => ask(RequestOp::Or, *extent, around, extent.fua),
            Work::WriteAndVerify { verify, .. } => {
                let extent = verify.extent;
                ask(RequestOp::Write, extent, around, extent.fua)
            }
            Work::Verify(verify) => verify.next(self.memory),
            Work::Flush => flush(),
            Work::WriteSame(extent) => {
                let extent = *extent;
                self.look_at_pattern(extent, around)
            }
            Work::Pattern { .. } => self.next_pattern(),
            Work::Unmap(blocks) => match thin::unmap_list(list(around), *blocks) {
                Ok(extents) => {
                    self.work = Work::Zeros(extents);
                    self.next_zeros()
                }
                Err(sense) => Next::Done(sense.into()),
            },
            Work::Zeros(_) => self.next_zeros(),
            Work::Select { long } => {
                let (long, list) = (*long, list(around).to_vec());
                Next::Done(around.unit.select(around.nexus, &list, long))
            }
            Work::Persist(command, ticket) => {
                let list = list(around).to_vec();
                let connection = around.link.number();
                let unit = &mut around.unit;
                match unit.persist(around.nexus, command, &list, connection) {
                    Ok(result) => persisted(command, result),
                    Err(later) => {
                        *ticket = later;
                        Next::Kept(later)
                    }
                }
            }
            Work::LbaStatus {
                lba,
                length,
                blocks,
            } => {
                let data = thin::status(*lba, *blocks, around.export, around.link);
                Next::Done(Answer::bytes(data, *length))
            }
            Work::Nothing => Next::Done(Answer::GOOD),
        }
    }

    /// The engine has answered the last request.
    pub(crate) fn replied(
        &mut self,
        result: Result<(), RequestError>,
        around: &mut Around<'_>,
    ) -> Next {
        if let (Work::CompareAndWrite(extent), Err(RequestError::Differs)) = (&self.work, result) {
            return Next::Done(miscompare(*extent, around).into());
        }
        if let Err(error) = result {
            let reads = matches!(
                self.work,
                Work::Read(_) | Work::Verify(_) | Work::WriteAndVerify { written: true, .. }
            );
            return Next::Done(failed(error, reads).into());
        }
        match &mut self.work {
            Work::Read(extent) => match std::mem::take(&mut extent.fua) {
                true => flush(),
                false => Next::Done(Answer {
                    data: Data::Buffer(self.memory),
                    ..Answer::GOOD
                }),
            },
            Work::Verify(verify) => verify.verified(self.memory, around),
            Work::WriteAndVerify { verify, written } => match std::mem::replace(written, true) {
                true => verify.verified(self.memory, around),
                false => verify.next(self.memory),
            },
            Work::Pattern { .. } => self.next_pattern(),
            Work::Zeros(_) => self.next_zeros(),
            _ => Next::Done(Answer::GOOD),
        }
    }

    /// The change of reservations has reached the disk, or could not.
    pub(crate) fn kept(&mut self, around: &mut Around<'_>) -> Next {
        let Work::Persist(command, ticket) = &self.work else {
            return Next::Done(sense::INTERNAL_FAILURE.into());
        };
        match around.unit.persisted(*ticket) {
            Some(result) => persisted(command, result),
            None => Next::Done(sense::INTERNAL_FAILURE.into()),
        }
    }

    fn look_at_pattern(&mut self, extent: Extent, around: &mut Around<'_>) -> Next {
        let block = list(around)[..BLOCK_BYTES as usize].to_vec();
        if block.iter().all(|byte| *byte == 0) {
            self.work = Work::Zeros(vec![extent]);
            return self.next_zeros();
        }
        if let Some(buf) = around.buf {
            for at in (0..buf.bytes).step_by(BLOCK_BYTES as usize) {
                let part = buf.part(at, BLOCK_BYTES as u32);
                around.link.fill(part, &block);
            }
        }
        self.work = Work::Pattern { extent, done: 0 };
        self.next_pattern()
    }

    fn next_pattern(&mut self) -> Next {
        let Work::Pattern { extent, done } = &mut self.work else {
            return Next::Done(Answer::GOOD);
        };
        let left = extent.blocks * BLOCK_BYTES - *done;
        let bytes = left.min(u64::from(self.memory));
        if bytes == 0 {
            return Next::Done(Answer::GOOD);
        }
        let offset = extent.lba * BLOCK_BYTES + *done;
        *done += bytes;
        Next::Ask(Request {
            op: RequestOp::Write,
            offset,
            bytes,
            part: Some((0, bytes as u32)),
            fua: false,
        })
    }

    fn next_zeros(&mut self) -> Next {
        let Work::Zeros(extents) = &mut self.work else {
            return Next::Done(Answer::GOOD);
        };
        match extents.pop() {
            Some(extent) => zeros(extent),
            None => Next::Done(Answer::GOOD),
        }
    }
}

impl Verify {
    /// Where the medium's bytes are read to: behind the initiator's.
    fn scratch(&self) -> u64 {
        let given = match self.compare {
            Compare::Nothing => 0,
            Compare::All => self.extent.blocks * BLOCK_BYTES,
            Compare::OneBlock => BLOCK_BYTES,
        };
        given.next_multiple_of(ALIGNMENT)
    }

    fn piece(&self, memory: u32) -> u64 {
        let left = self.extent.blocks * BLOCK_BYTES - self.done;
        left.min(u64::from(memory).saturating_sub(self.scratch()))
    }

    /// The next piece to read; the end, if there is none.
    fn next(&self, memory: u32) -> Next {
        let bytes = self.piece(memory);
        if bytes == 0 {
            return Next::Done(Answer::GOOD);
        }
        Next::Ask(Request {
            op: RequestOp::Read,
            offset: self.extent.lba * BLOCK_BYTES + self.done,
            bytes,
            part: Some((self.scratch() as u32, bytes as u32)),
            fua: false,
        })
    }

    /// A piece was read: compares it.
    fn verified(&mut self, memory: u32, around: &mut Around<'_>) -> Next {
        let bytes = self.piece(memory);
        if let Some(buf) = around.buf
            && let Some(at) = self.differs(buf, bytes, &*around.link)
        {
            return Next::Done(sense::MISCOMPARE.at(at).into());
        }
        self.done += bytes;
        self.next(memory)
    }

    /// The offset of the first byte that differs.
    fn differs(&self, buf: BufRef, bytes: u64, link: &dyn Link) -> Option<u64> {
        let read = link.bytes(buf.part(self.scratch() as u32, bytes as u32));
        match self.compare {
            Compare::Nothing => None,
            Compare::All => {
                let given = link.bytes(buf.part(self.done as u32, bytes as u32));
                first_difference(read, given).map(|at| self.done + at)
            }
            Compare::OneBlock => {
                let given = link.bytes(buf.part(0, BLOCK_BYTES as u32));
                let mut blocks = read.chunks(BLOCK_BYTES as usize);
                blocks.find_map(|block| first_difference(block, given))
            }
        }
    }
}

fn first_difference(one: &[u8], other: &[u8]) -> Option<u64> {
    if one == other {
        return None;
    }
    let at = one.iter().zip(other).position(|(a, b)| a != b);
    at.map(|at| at as u64)
}

// ---------------------------------------------------------------------------------------------------- checks

fn changes(command: &Command) -> bool {
    matches!(
        command,
        Command::Write(_)
            | Command::WriteAndVerify(..)
            | Command::CompareAndWrite(_)
            | Command::OrWrite(_)
            | Command::WriteSame(_)
            | Command::Unmap { .. }
    )
}

/// An extent lies within the medium.
fn within(extent: Extent, medium: Medium) -> Result<(), Sense> {
    let end = extent.lba.checked_add(extent.blocks);
    match end.is_some_and(|end| end <= medium.blocks) {
        true => Ok(()),
        false => Err(sense::BEYOND_THE_END),
    }
}

/// The bytes of a transfer of this number of blocks, for an extent that lies within the medium.
fn transfer(extent: Extent, medium: Medium, blocks: u64) -> Result<u32, Sense> {
    within(extent, medium)?;
    match blocks <= u64::from(TRANSFER_BLOCKS_MAX) {
        true => Ok((blocks * BLOCK_BYTES) as u32),
        false => Err(sense::INVALID_FIELD),
    }
}

/// Durable writes, where members make none, are refused.
fn durable(asked: bool, medium: Medium) -> Result<(), Sense> {
    match asked && !medium.durable {
        true => Err(sense::INVALID_FIELD),
        false => Ok(()),
    }
}

/// The bytes of an atomic command.
fn atomic(extent: Extent, medium: Medium) -> Result<u32, Sense> {
    durable(extent.fua, medium)?;
    transfer(extent, medium, extent.blocks)
}

fn verify(extent: Extent, compare: Compare, medium: Medium) -> Result<Job, Sense> {
    within(extent, medium)?;
    let data_out = match compare {
        Compare::Nothing => 0,
        Compare::All => transfer(extent, medium, extent.blocks)?,
        Compare::OneBlock => BLOCK_BYTES as u32,
    };
    let verify = Verify {
        extent,
        compare,
        done: 0,
    };
    let memory = verify.scratch() + PIECE_BYTES.min(extent.blocks * BLOCK_BYTES);
    Ok(Job::of(Work::Verify(verify), data_out, memory))
}

fn write_and_verify(extent: Extent, compare: Compare, medium: Medium) -> Result<Job, Sense> {
    let bytes = transfer(extent, medium, extent.blocks)?;
    durable(extent.fua, medium)?;
    let verify = Verify {
        extent,
        compare: match compare {
            Compare::Nothing => Compare::All,
            compare => compare,
        },
        done: 0,
    };
    let memory = verify.scratch() + PIECE_BYTES.min(u64::from(bytes));
    let work = Work::WriteAndVerify {
        verify,
        written: false,
    };
    Ok(Job::of(work, bytes, memory))
}

fn write_same(command: &WriteSame, medium: Medium) -> Result<Job, Sense> {
    let mut extent = command.extent;
    within(extent, medium)?;
    if extent.blocks == 0 {
        extent.blocks = medium.blocks - extent.lba;
    }
    if extent.blocks > WRITE_SAME_BLOCKS_MAX {
        return Err(sense::INVALID_FIELD);
    }
    if command.without_data {
        return Ok(Job::of(Work::Zeros(vec![extent]), 0, 0));
    }
    let bytes = (extent.blocks * BLOCK_BYTES).clamp(BLOCK_BYTES, PIECE_BYTES);
    let work = Work::WriteSame(extent);
    Ok(Job::of(work, BLOCK_BYTES as u32, bytes))
}

// -------------------------------------------------------------------------------------------------- requests

fn persisted(command: &PersistentOut, result: Persisted) -> Next {
    match result {
        Ok(others) if reserve::aborts(command) => Next::Cleared(others),
        Ok(_) => Next::Done(Answer::GOOD),
        Err(refusal) => Next::Done(refusal.into()),
    }
}

/// The data of the initiator.
fn list<'a>(around: &'a Around<'_>) -> &'a [u8] {
    around.buf.map_or(&[], |buf| around.link.bytes(buf))
}

fn flush() -> Next {
    Next::Ask(Request {
        op: RequestOp::Flush,
        offset: 0,
        bytes: 0,
        part: None,
        fua: false,
    })
}

fn ask(op: RequestOp, extent: Extent, around: &Around<'_>, fua: bool) -> Next {
    let bytes = extent.blocks * BLOCK_BYTES;
    if bytes == 0 {
        return Next::Done(Answer::GOOD);
    }
    if around.buf.is_none() {
        return Next::Done(sense::INTERNAL_FAILURE.into());
    }
    Next::Ask(Request {
        op,
        offset: extent.lba * BLOCK_BYTES,
        bytes,
        part: Some((0, memory_of(op, bytes) as u32)),
        fua,
    })
}

/// Bytes of memory that the engine wants for a request.
fn memory_of(op: RequestOp, bytes: u64) -> u64 {
    if op.is_atomic() { 3 * bytes } else { bytes }
}

/// The first byte that differs between what a COMPARE AND WRITE was given and what it found.
fn miscompare(extent: Extent, around: &Around<'_>) -> Sense {
    let bytes = (extent.blocks * BLOCK_BYTES) as u32;
    let at = around.buf.and_then(|buf| {
        let [given, found] = [0, 2].map(|part| around.link.bytes(buf.part(part * bytes, bytes)));
        first_difference(given, found)
    });
    sense::MISCOMPARE.at(at.unwrap_or(0))
}

fn zeros(extent: Extent) -> Next {
    if extent.blocks == 0 {
        return Next::Done(Answer::GOOD);
    }
    Next::Ask(Request {
        op: RequestOp::WriteZeroes { fast: false },
        offset: extent.lba * BLOCK_BYTES,
        bytes: extent.blocks * BLOCK_BYTES,
        part: None,
        fua: false,
    })
}

/// Why the engine failed a request, as sense data.
fn failed(error: RequestError, reads: bool) -> Sense {
    match error {
        RequestError::OutOfRange { .. } => sense::BEYOND_THE_END,
        RequestError::Lost { lba, .. } => {
            let lba = lba.saturating_mul(SECTOR_BYTES) / BLOCK_BYTES;
            let what = if reads {
                sense::READ_ERROR
            } else {
                sense::WRITE_ERROR
            };
            what.at(lba)
        }
        RequestError::ReadOnly => sense::WRITE_PROTECTED,
        RequestError::NoSpace => sense::NO_SPACE,
        RequestError::NotFast | RequestError::NotWholeSectors => sense::INVALID_FIELD,
        RequestError::Differs => sense::MISCOMPARE,
        RequestError::Unavailable => sense::NOT_READY,
    }
}
