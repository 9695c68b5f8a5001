//! A buffer in persistent memory: versions of records in the halves of slots, what a crash leaves of them, and what a start takes from
//! there into the log.

use super::{Record, World};
use restripe_array::RequestError;
use restripe_sim::payload::Token;
use restripe_tier::overlay::{Effect, Extent, NvramVersion};
use std::collections::BTreeMap;

/// A version of a record, as it lies there.
pub(super) struct Version {
    sequence: u64,
    version: u32,
    closed: bool,
    extents: Vec<Extent>,
    /// From the first sector of its payload on.
    contents: Vec<Token>,
    durable: bool,
}

#[derive(Default)]
pub(super) struct Buffer {
    /// By half: two for each slot, which a record's versions take by turns.
    halves: BTreeMap<u64, Version>,
    /// What lies there may count, as the log has it on record.
    pub(super) counts: bool,
    /// Whatever is asked of it fails; what was durable there still is when it comes back.
    pub(super) fails: bool,
    /// Records in memory that the log has, and the buffer may still want: where they lie.
    sealed: BTreeMap<u64, Vec<Extent>>,
}

impl Buffer {
    /// As a start leaves it, which puts on record whether there is one.
    pub(super) fn begun(slots: Option<u32>) -> Buffer {
        Buffer {
            counts: slots.is_some(),
            ..Buffer::default()
        }
    }
}

impl World {
    fn half_of(&self, sequence: u64, version: u32) -> u64 {
        let slots = self.limits.slots.expect("there is a buffer");
        2 * (sequence % u64::from(slots)) + u64::from(version % 2)
    }

    /// Now and then it fails.
    pub(super) fn step_buffer(&mut self) {
        if self.overlay.uses_nvram() && self.rng.chance(1, 600) {
            self.count("buffers failed");
            self.buffer.fails = true;
            self.overlay.fail_nvram();
            self.collect();
        }
    }

    /// A version is begun: what its half held may be gone.
    pub(super) fn begin_version(&mut self, effect: &Effect) {
        let Effect::WriteNvram(wanted) = effect else {
            return;
        };
        let half = self.half_of(wanted.sequence, wanted.version);
        if let Some(old) = self.buffer.halves.remove(&half) {
            self.count(match old.sequence == wanted.sequence {
                true => "versions written over",
                false => "slots used again",
            });
        }
    }

    pub(super) fn keep_version(&mut self, wanted: &NvramVersion) {
        let NvramVersion {
            sequence,
            version,
            closed,
            extents,
            payload_sectors,
            ..
        } = wanted;
        if self.buffer.fails {
            return;
        }
        self.count(match closed {
            true => "versions of closed records",
            false => "versions of open records",
        });
        let first = extents[0].at;
        let payload = first..first + u64::from(*payload_sectors);
        let half = self.half_of(*sequence, *version);
        let kept = Version {
            sequence: *sequence,
            version: *version,
            closed: *closed,
            extents: extents.clone(),
            contents: payload.map(|at| self.gathered[&at]).collect(),
            durable: false,
        };
        self.buffer.halves.insert(half, kept);
    }

    pub(super) fn flush_buffer(&mut self) {
        if !self.buffer.fails {
            let halves = self.buffer.halves.values_mut();
            halves.for_each(|version| version.durable = true);
        }
    }

    /// What becomes of what is asked of it.
    pub(super) fn of_buffer(&self) -> Result<(), RequestError> {
        match self.buffer.fails {
            true => Err(RequestError::Unavailable),
            false => Ok(()),
        }
    }

    /// The log has a record: its memory stays as long as the buffer may want it.
    pub(super) fn leave_memory(&mut self, sequence: u64, extents: Vec<Extent>) {
        self.buffer.sealed.insert(sequence, extents);
        self.forget_memory();
    }

    pub(super) fn forget_memory(&mut self) {
        let sealed = std::mem::take(&mut self.buffer.sealed);
        for (sequence, extents) in sealed {
            let keeps = |effect: &Effect| matches!(effect, Effect::WriteNvram(wanted) if wanted.sequence == sequence);
            if self.overlay.is_held(sequence) || self.doing.iter().any(keeps) {
                self.buffer.sealed.insert(sequence, extents);
                continue;
            }
            for at in extents.iter().flat_map(|one| one.at..one.log_end()) {
                self.gathered.remove(&at);
            }
        }
    }

    // -------------------------------------------------------------------------------------------------------- crashes

    /// What was not flushed may be gone.
    pub(super) fn cut_buffer(&mut self) {
        self.buffer.sealed.clear();
        let rng = &mut self.rng;
        let halves = &mut self.buffer.halves;
        halves.retain(|_, version| version.durable || rng.chance(1, 2));
    }

    /// A record that the log lacks; and whether nothing more came into it.
    pub(super) fn in_buffer(&self, sequence: u64) -> Option<(Record, bool)> {
        let versions = self.buffer.halves.values();
        let of = versions.filter(|one| one.sequence == sequence && self.buffer.counts);
        let newest = of.max_by_key(|one| one.version)?;
        let at = newest.extents[0].at - 8;
        let sectors = (8 + newest.contents.len() as u64).next_multiple_of(self.limits.grain.into());
        let record = Record {
            sequence,
            footprint: at..at + sectors,
            extents: newest.extents.clone(),
            contents: newest.contents.clone(),
            durable_below: 0,
            durable: true,
        };
        Some((record, newest.closed))
    }

    /// A start has brought all that counts into the log, and says so there: the buffer is used anew.
    pub(super) fn begin_buffer(&mut self, sequence: u64) {
        self.buffer = Buffer::begun(self.limits.slots);
        if self.buffer.counts {
            self.anchor.durable = self.anchor.durable.max(sequence);
        }
    }
}
