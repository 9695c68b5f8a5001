//! A buffer in persistent memory: what a flush covers goes there, and records go into the log when they are full.
//!
//! Flushes are told in rounds: those that come during one wait for the next, and are told together.
//!
//! | stage     | cause                                                       | next                  |
//! |-----------|-------------------------------------------------------------|-----------------------|
//! | idle      | somebody flushes what the buffer lacks                      | gathering             |
//! | gathering | no copy into a record is under way, and none is begun       | writing               |
//! | writing   | a version of each record that the buffer lacks lies there   | flushing              |
//! | flushing  | the buffer is flushed                                       | idle: flushes are told |
//! | any       | the buffer failed                                           | sealing               |
//! | sealing   | all that was told lies in the log, and that is flushed      | marking               |
//! | marking   | it is on record that the buffer does not count              | over                  |
//! | any       | the log failed                                              | over                  |
//!
//! A record is *safe* when it is durable in the log: until then it keeps its slot, so no more records are in between than there are slots.
//! From over on flushes seal, as without a buffer.

use super::{Effect, Overlay, Owner, PartTag, SealCause, Site, WantedVersion};
use crate::overlay::Extent;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use restripe_array::RequestError;
use restripe_array::parts::Bug;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Idle,
    Gathering,
    Writing,
    Flushing,
    Sealing,
    Marking,
    Over,
}

/// What a flush has to bring into the buffer of a record that is not safe.
struct Held {
    sequence: u64,
    /// Of the version begun last.
    version: u32,
    /// Users were told of bytes that are in no version.
    fresh: bool,
    /// A version is being written.
    writing: bool,
    /// Of one that is on its way into the log, or there: its table, and sectors of its payload.
    sealed: Option<(Vec<Extent>, u32)>,
}

pub(super) struct Buffering {
    slots: u32,
    stage: Stage,
    /// All that are not safe, the oldest first; their sequences have no gap.
    held: VecDeque<Held>,
    /// Flushes for the next round, and those of the one under way.
    waiting: Vec<PartTag>,
    round: Vec<PartTag>,
    /// Versions under way.
    writes: u32,
    /// The log is being flushed to have slots free.
    slots_flush: bool,
}

impl Buffering {
    pub(super) fn new(slots: u32) -> Buffering {
        Buffering {
            slots,
            stage: Stage::Idle,
            held: VecDeque::new(),
            waiting: Vec::new(),
            round: Vec::new(),
            writes: 0,
            slots_flush: false,
        }
    }

    pub(super) fn is_quiet(&self) -> bool {
        matches!(self.stage, Stage::Idle | Stage::Over)
            && self.waiting.is_empty()
            && self.writes == 0
    }

    fn serves(&self) -> bool {
        !matches!(self.stage, Stage::Sealing | Stage::Marking | Stage::Over)
    }

    fn index_of(&self, sequence: u64) -> Option<usize> {
        let first = self.held.front()?.sequence;
        let index = sequence.checked_sub(first)? as usize;
        (index < self.held.len()).then_some(index)
    }

    fn of(&mut self, sequence: u64) -> Option<&mut Held> {
        let index = self.index_of(sequence)?;
        self.held.get_mut(index)
    }
}

impl Overlay {
    fn buffering(&mut self) -> &mut Buffering {
        self.buffering.as_mut().expect("there is a buffer")
    }

    /// Whether flushes go into a buffer.
    pub fn has_buffer(&self) -> bool {
        !self.broken && self.buffering.as_ref().is_some_and(Buffering::serves)
    }

    /// Records that are not durable in the log, and may be in the buffer; none without one.
    pub fn in_buffer(&self) -> u32 {
        match &self.buffering {
            Some(buffer) if self.has_buffer() => {
                buffer.held.iter().filter(|held| held.version > 0).count() as u32
            }
            _ => 0,
        }
    }

    /// Whether a record in memory is needed there until the buffer or the log has it.
    pub fn is_held(&self, sequence: u64) -> bool {
        let needed = |buffer: &Buffering| {
            let held = &buffer.held[buffer.index_of(sequence)?];
            Some(held.fresh || held.writing)
        };
        let needed = self.buffering.as_ref().and_then(needed);
        self.has_buffer() && needed == Some(true)
    }

    /// Records below need no slot any more.
    fn safe(&self) -> u64 {
        match self.planted(Bug::SlotReusedEarly) {
            true => self.told(),
            false => self.durable,
        }
    }

    fn slots(&self) -> u64 {
        let buffer = self.buffering.as_ref().map_or(0, |buffer| buffer.slots);
        let held = self.pack.as_ref().map_or(0, |pack| pack.packing().held);
        buffer.min(held).into()
    }

    /// Whether the next record would have no slot.
    pub(super) fn lacks_slot(&self) -> bool {
        self.has_buffer() && self.sequence - self.safe() >= self.slots()
    }

    /// Flushes the log in time for slots to be free.
    pub(super) fn win_slots(&mut self) {
        let taken = self.sequence - self.safe();
        if !self.has_buffer() || 2 * taken < self.slots() || self.told() <= self.durable {
            return;
        }
        if core::mem::replace(&mut self.buffering().slots_flush, true) {
            return;
        }
        let part = self.begin_part(Owner::Slots);
        self.flush_told(part);
    }

    pub(super) fn slots_won(&mut self) {
        if let Some(buffer) = &mut self.buffering {
            buffer.slots_flush = false;
        }
    }

    pub(super) fn forget_safe(&mut self) {
        let safe = self.safe();
        if let Some(buffer) = &mut self.buffering {
            while buffer
                .held
                .pop_front_if(|held| held.sequence < safe)
                .is_some()
            {}
        }
    }

    // ----------------------------------------------------------------------------------------------------- records

    pub(super) fn hold(&mut self, sequence: u64) {
        if self.has_buffer() {
            self.buffering().held.push_back(Held {
                sequence,
                version: 0,
                fresh: false,
                writing: false,
                sealed: None,
            });
        }
    }

    /// Users are told of bytes in a record.
    pub(super) fn freshen(&mut self, sequence: u64) {
        if let Some(held) = self.buffering.as_mut().and_then(|one| one.of(sequence)) {
            held.fresh = true;
        }
    }

    /// A record is on its way into the log.
    pub(super) fn hold_sealed(&mut self, sequence: u64, extents: &[Extent], sectors: u32) {
        if let Some(held) = self.buffering.as_mut().and_then(|one| one.of(sequence)) {
            held.sealed = held.fresh.then(|| (extents.to_vec(), sectors));
        }
    }

    /// Whether nothing may come into records now, so that versions are of what they have.
    pub(super) fn is_versioning(&self) -> bool {
        let versioning = |stage| matches!(stage, Stage::Gathering | Stage::Writing);
        self.buffering
            .as_ref()
            .is_some_and(|one| versioning(one.stage))
    }

    // ------------------------------------------------------------------------------------------------------ rounds

    /// A flush that the buffer answers; false if there is none to.
    pub(super) fn flush_buffer(&mut self, part: PartTag) -> bool {
        let Some(buffer) = &mut self.buffering else {
            return false;
        };
        if self.broken || buffer.stage == Stage::Over {
            return false;
        }
        buffer.waiting.push(part);
        self.pump_buffer();
        true
    }

    /// Goes on with what flushes wait for.
    pub(super) fn pump_buffer(&mut self) {
        let Some(buffer) = &mut self.buffering else {
            return;
        };
        if self.broken && buffer.stage != Stage::Over {
            return self.end_buffer();
        }
        match buffer.stage {
            Stage::Idle if !buffer.waiting.is_empty() => {
                if buffer.held.iter().any(|held| held.fresh) {
                    buffer.stage = Stage::Gathering;
                    self.write_versions();
                } else {
                    // All that was told is safe.
                    let parts = core::mem::take(&mut buffer.waiting);
                    self.tell_flushed(parts);
                }
            }
            Stage::Gathering => self.write_versions(),
            Stage::Writing if buffer.writes == 0 => self.flush_versions(),
            _ => {}
        }
    }

    fn tell_flushed(&mut self, parts: Vec<PartTag>) {
        for part in parts {
            self.part_done(part, Ok(()));
        }
    }

    /// Begins to write a version of each record that has what the buffer lacks, when nothing is on its way into any.
    fn write_versions(&mut self) {
        let Overlay {
            pack: Some(pack),
            buffering: Some(buffer),
            durable,
            effects,
            counters,
            ..
        } = self
        else {
            unreachable!("what is gathered is buffered")
        };
        if pack.copies() || pack.begins_segment() {
            return;
        }
        buffer.stage = Stage::Writing;
        buffer.round = core::mem::take(&mut buffer.waiting);
        for held in buffer.held.iter_mut().filter(|held| held.fresh) {
            let gathered = pack.gathered(held.sequence);
            let closed = gathered.is_none_or(|(.., filling)| !filling);
            let (extents, payload_sectors) = match gathered {
                Some((extents, sectors, _)) => (extents.to_vec(), sectors),
                None => held.sealed.take().expect("it was sealed with its table"),
            };
            (held.fresh, held.writing) = (false, true);
            held.version += 1;
            buffer.writes += 1;
            counters.versions += 1;
            effects.push_back(Effect::Keep(WantedVersion {
                sequence: held.sequence,
                version: held.version,
                durable: *durable,
                closed,
                extents,
                payload_sectors,
            }));
        }
    }

    /// A version was written, or could not be.
    ///
    /// # Panics
    /// If none is under way.
    pub fn kept(&mut self, result: Result<(), RequestError>) {
        let buffer = self.buffering();
        buffer.writes = buffer.writes.checked_sub(1).expect("one is under way");
        if result.is_err() {
            self.fail_buffer();
        }
        self.pump_reads();
        self.pump_writes();
        self.clean_more();
        self.begin_last();
    }

    fn flush_versions(&mut self) {
        let buffer = self.buffering();
        buffer.stage = Stage::Flushing;
        buffer.held.iter_mut().for_each(|held| held.writing = false);
        let part = self.begin_part(Owner::Buffer);
        let site = Site::Buffer;
        match self.planted(Bug::BufferNotFlushed) {
            true => self.part_done(part, Ok(())),
            false => self.effects.push_back(Effect::Flush { part, site }),
        }
    }

    pub(super) fn buffer_flushed(&mut self, result: Result<(), RequestError>) {
        if result.is_err() {
            return self.fail_buffer();
        }
        let buffer = self.buffering();
        if buffer.stage != Stage::Flushing {
            return;
        }
        buffer.stage = Stage::Idle;
        let parts = core::mem::take(&mut buffer.round);
        if self.broken {
            self.buffering().waiting.extend(parts);
        } else {
            self.tell_flushed(parts);
        }
        self.pump_buffer();
    }

    // ---------------------------------------------------------------------------------------------------- failures

    /// The buffer failed: all that was told goes into the log, and then it is put on record that the buffer does not count.
    pub fn fail_buffer(&mut self) {
        if !self.has_buffer() {
            return;
        }
        let buffer = self.buffering();
        buffer.stage = Stage::Sealing;
        let round = core::mem::take(&mut buffer.round);
        buffer.waiting.extend(round);
        buffer.held.clear();
        let part = self.begin_part(Owner::Forgo);
        self.flushes.push_back((self.sequence, part));
        self.seal(SealCause::Flush);
        self.begin_flushes();
    }

    /// Takes the flushes that wait for the buffer, which may itself wait for the log.
    pub(super) fn unanswered_flushes(&mut self) -> Vec<PartTag> {
        let Some(buffer) = &mut self.buffering else {
            return Vec::new();
        };
        let mut parts = core::mem::take(&mut buffer.round);
        parts.append(&mut buffer.waiting);
        parts
    }

    pub(super) fn buffer_sealed(&mut self, result: Result<(), RequestError>) {
        if result.is_err() || self.broken {
            return self.end_buffer();
        }
        let buffer = self.buffering();
        if buffer.stage == Stage::Sealing {
            buffer.stage = Stage::Marking;
            self.effects.push_back(Effect::Forgo);
        }
    }

    /// It is on record that the buffer does not count.
    pub fn buffer_forgone(&mut self) {
        self.end_buffer();
        self.pump_writes();
        self.begin_last();
    }

    /// From now on flushes seal: those that wait do.
    fn end_buffer(&mut self) {
        let buffer = self.buffering();
        buffer.stage = Stage::Over;
        buffer.held.clear();
        let mut parts = core::mem::take(&mut buffer.round);
        parts.append(&mut buffer.waiting);
        if parts.is_empty() {
            return;
        }
        let until = self.sequence;
        self.flushes
            .extend(parts.into_iter().map(|part| (until, part)));
        self.seal(SealCause::Flush);
        self.begin_flushes();
    }
}
