//! Flushes of clients that NVRAM makes durable: a floor above packing. Flushes are acknowledged in rounds:
//! those that come during a round wait for the next one, and are acknowledged together.
//!
//! | stage    | cause                                                        | next                   |
//! |----------|--------------------------------------------------------------|------------------------|
//! | idle     | a client flushes what NVRAM lacks                            | packing                |
//! | packing  | no copy into a record is in flight, and none is begun        | writing                |
//! | writing  | NVRAM has a version of each record that it lacked            | flushing               |
//! | flushing | NVRAM is flushed                                             | idle: acknowledged     |
//! | any      | NVRAM failed                                                 | sealing                |
//! | sealing  | the log has all that was acknowledged, and is flushed        | marking                |
//! | marking  | it is recorded that NVRAM is not valid                       | over                   |
//! | any      | the log failed                                               | over                   |
//!
//! After the last round flushes seal records, as without NVRAM.

use super::slots::{NvramSlots, Slots, Stage};
use crate::overlay::effect::{Effect, NvramVersion, PartTag, Site};
use crate::overlay::limits::SealCause;
use crate::overlay::pack::{Pack, Packer};
use crate::overlay::requests::Owner;
use alloc::vec::Vec;
use restripe_array::RequestError;
use restripe_array::parts::Bug;

pub struct NvramRounds {
    below: Packer,
    /// Flushes for the next round, and those of the one in flight.
    waiting: Vec<PartTag>,
    round: Vec<PartTag>,
    /// Versions being written.
    writes: u32,
    /// Flushes that are durable, and not yet acknowledged.
    durable_flushes: Vec<PartTag>,
}

floor!(NvramRounds over Packer { waiting, round, writes, durable_flushes });

impl NvramRounds {
    fn slots(&mut self) -> &mut Slots {
        self.below.below.slots.as_mut().expect("there is NVRAM")
    }

    fn stage(&self) -> Stage {
        let slots = self.below.below.slots.as_ref();
        slots.map_or(Stage::Over, |slots| slots.stage)
    }

    /// Whether records in memory, or versions of them for NVRAM, are being written or wait for it.
    pub(in crate::overlay) fn memory_works(&self) -> bool {
        let packs = self.pack.as_ref().is_some_and(|pack| !pack.is_quiet());
        let resting = matches!(self.stage(), Stage::Idle | Stage::Over);
        packs || !resting || !self.waiting.is_empty() || self.writes > 0
    }

    /// A client's flush, or a write of it that has to be durable: flushes NVRAM or the log.
    pub(in crate::overlay) fn flush_for(&mut self, id: u32) {
        let fua = self.pending(id).request.fua;
        let part = self.begin_part(Owner::Request(id));
        if !self.broken && self.stage() != Stage::Over {
            self.waiting.push(part);
            return self.advance_round();
        }
        match fua {
            true => self.flush_sealed(part, SealCause::Fua),
            // A flush for space would make none, again and again.
            false if self.planted(Bug::FlushUnsealed) => {
                let until = self.acknowledged();
                self.flushes.push_back((until, part));
                self.begin_flushes();
            }
            false => self.flush_sealed(part, SealCause::Flush),
        }
    }

    /// Continues with the work that flushes wait for. Those that end are in
    /// [`NvramRounds::take_durable_flushes`].
    pub(in crate::overlay) fn advance_round(&mut self) {
        if self.broken && self.stage() != Stage::Over {
            return self.end_nvram();
        }
        match self.stage() {
            Stage::Idle if !self.waiting.is_empty() => {
                if self.slots().held.iter().any(|held| held.fresh) {
                    self.slots().stage = Stage::Packing;
                    self.write_versions();
                } else {
                    // All that was acknowledged is safe.
                    self.durable_flushes.append(&mut self.waiting);
                }
            }
            Stage::Packing => self.write_versions(),
            Stage::Writing if self.writes == 0 => self.flush_versions(),
            _ => {}
        }
    }

    pub(in crate::overlay) fn take_durable_flushes(&mut self) -> Vec<PartTag> {
        core::mem::take(&mut self.durable_flushes)
    }

    /// Begins to write a version of each record that has data NVRAM lacks, when no copy into one is in
    /// flight.
    fn write_versions(&mut self) {
        let Packer {
            below,
            pack: Some(pack),
            ..
        } = &mut self.below
        else {
            unreachable!("what is packed goes to NVRAM")
        };
        if pack.copies() || pack.begins_segment() {
            return;
        }
        self.round = core::mem::take(&mut self.waiting);
        self.writes += begin_versions(below, pack);
    }

    /// A version was written, or could not be.
    ///
    /// # Panics
    /// If none is in flight.
    pub(in crate::overlay) fn version_written(&mut self, result: Result<(), RequestError>) {
        self.writes = self.writes.checked_sub(1).expect("one is in flight");
        if result.is_err() {
            self.fail_nvram();
        }
    }

    fn flush_versions(&mut self) {
        let slots = self.slots();
        slots.stage = Stage::Flushing;
        slots.held.iter_mut().for_each(|held| held.writing = false);
        let part = self.begin_part(Owner::Nvram);
        let site = Site::Nvram;
        match self.planted(Bug::BufferNotFlushed) {
            true => self.durable_flushes.push(part),
            false => self.emit(Effect::Flush { part, site }),
        }
    }

    /// NVRAM was flushed, or could not be. False if no round ends with it.
    pub(in crate::overlay) fn round_flushed(&mut self, result: Result<(), RequestError>) -> bool {
        if result.is_err() {
            self.fail_nvram();
            return false;
        }
        if self.stage() != Stage::Flushing {
            return false;
        }
        self.slots().stage = Stage::Idle;
        match self.broken {
            true => self.waiting.append(&mut self.round),
            false => self.durable_flushes.append(&mut self.round),
        }
        true
    }

    // --------------------------------------------------------------------------------------------- failures

    /// NVRAM failed: all acknowledged data goes into the log, and then it is recorded that NVRAM is not
    /// valid.
    pub fn fail_nvram(&mut self) {
        if !self.uses_nvram() {
            return;
        }
        self.waiting.append(&mut self.round);
        let slots = self.slots();
        slots.stage = Stage::Sealing;
        slots.held.clear();
        let part = self.begin_part(Owner::NvramEnd);
        self.flush_sealed(part, SealCause::Flush);
    }

    /// Takes the flushes that wait for NVRAM, which may itself wait for the log.
    pub(in crate::overlay) fn take_unanswered_flushes(&mut self) -> Vec<PartTag> {
        let mut parts = core::mem::take(&mut self.round);
        parts.append(&mut self.waiting);
        parts
    }

    /// The log has what NVRAM had.
    pub(in crate::overlay) fn nvram_sealed(&mut self, result: Result<(), RequestError>) {
        if result.is_err() || self.broken {
            return self.end_nvram();
        }
        if self.stage() == Stage::Sealing {
            self.slots().stage = Stage::Marking;
            self.emit(Effect::DisableNvram);
        }
    }

    /// From now on flushes seal records: those that wait do.
    pub(in crate::overlay) fn end_nvram(&mut self) {
        let slots = self.slots();
        slots.stage = Stage::Over;
        slots.held.clear();
        let parts = self.take_unanswered_flushes();
        if parts.is_empty() {
            return;
        }
        let until = self.sequence;
        self.flushes
            .extend(parts.into_iter().map(|part| (until, part)));
        self.seal_records(SealCause::Flush);
        self.begin_flushes();
    }
}

/// Asks for a version of each record that has what NVRAM lacks; says how many.
fn begin_versions(floor: &mut NvramSlots, pack: &Pack) -> u32 {
    let durable = floor.durable;
    let NvramSlots {
        below,
        slots: Some(slots),
    } = floor
    else {
        unreachable!("there is NVRAM")
    };
    slots.stage = Stage::Writing;
    let mut writes = 0;
    for held in slots.held.iter_mut().filter(|held| held.fresh) {
        let packed = pack.packed(held.sequence);
        let closed = packed.is_none_or(|(.., filling)| !filling);
        let (extents, payload_sectors) = match packed {
            Some((extents, sectors, _)) => (extents.to_vec(), sectors),
            None => held.sealed.take().expect("it was sealed with its table"),
        };
        (held.fresh, held.writing) = (false, true);
        held.version += 1;
        writes += 1;
        below.emit(Effect::WriteNvram(NvramVersion {
            sequence: held.sequence,
            version: held.version,
            durable,
            closed,
            extents,
            payload_sectors,
        }));
    }
    below.counters.versions += u64::from(writes);
    writes
}
