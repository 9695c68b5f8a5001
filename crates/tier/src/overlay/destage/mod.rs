//! Destage: writes data in the log to the main set, and makes its records obsolete. A floor above the copies.
//!
//! It takes the records below a sequence, which are the oldest of the log: if it took some in the middle, a
//! crash would bring back what they had replaced.
//!
//! | state    | cause                                                         | next     |
//! |----------|---------------------------------------------------------------|----------|
//! | copying  | every older valid copy has been written to the main set       | flushing |
//! | flushing | main set and log are flushed                                  | voiding  |
//! | voiding  | the log's anchor says durably that these records are obsolete | copying the next of them, or over |
//!
//! Copies go in the order of addresses. Where writes are packed they go stripe by stripe ([`stripes`]),
//! perhaps in rounds: the oldest records that memory has room for, and then the next.
//!
//! Data that clients write again and again would never be destaged completely. So when little is left a last
//! destage holds up writes that meet the log, from before its first copy until it is over.

mod stripes;

use super::clean_copies::CleanCopies;
use super::effect::{Effect, PartTag, Site};
use super::limits::SealCause;
use super::requests::Owner;
use super::{Extent, Kind};
use alloc::vec::Vec;
use restripe_array::RequestError;
use stripes::Stripes;

/// How far a destage has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DestageStage {
    /// Data is being read from the log into memory.
    Reading,
    /// It is being written to the main set.
    Writing,
    /// Main set and log are being flushed.
    Flushing,
    /// It is being recorded in the log that its records are obsolete.
    Voiding,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// From this sector of the main set on.
    Copying(u64),
    /// As [`stripes`] says.
    ByStripes,
    Flushing {
        left: u32,
    },
    Voiding,
}

#[derive(Clone, Copy, Debug)]
struct Destage {
    /// Records below are destaged now: the oldest of those that are to be.
    below: u64,
    /// Records below are to be destaged.
    until: u64,
    /// Copies in flight.
    copies: u32,
    stage: Stage,
    /// Some of it failed: it ends when nothing of it is in flight, and can be begun again.
    failed: bool,
}

pub struct Destaging {
    below: CleanCopies,
    destage: Option<Destage>,
    stripes: Option<Stripes>,
    /// The last destage runs, or is about to begin: writes that meet the log are held up.
    closing: bool,
    /// Requests that are held up, and those that continue because the destage has ended.
    held_up: Vec<u32>,
    released: Vec<u32>,
    /// The destage that ended last was cut short.
    fell_short: bool,
    /// Whether a destage ended since [`Destaging::take_ended`], and everything was destaged.
    ended: Option<bool>,
}

floor!(Destaging over CleanCopies);

impl Destaging {
    pub(super) fn new(below: CleanCopies) -> Destaging {
        Destaging {
            held_up: Vec::with_capacity(below.limits.requests as usize),
            below,
            destage: None,
            stripes: None,
            closing: false,
            released: Vec::new(),
            fell_short: false,
            ended: None,
        }
    }

    /// The progress of the running destage.
    pub fn destage_stage(&self) -> Option<DestageStage> {
        Some(match self.destage?.stage {
            Stage::Copying(_) => DestageStage::Writing,
            Stage::ByStripes => match self.stripes.as_ref().is_some_and(Stripes::fetches) {
                true => DestageStage::Reading,
                false => DestageStage::Writing,
            },
            Stage::Flushing { .. } => DestageStage::Flushing,
            Stage::Voiding => DestageStage::Voiding,
        })
    }

    pub fn is_destaging(&self) -> bool {
        self.destage.is_some() || self.closing
    }

    pub(super) fn runs_destage(&self) -> bool {
        self.destage.is_some()
    }

    /// Whether clients' writes wait for the last destage.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// Whether the destage that ended last was cut short by an error, or by a command to rest.
    pub fn fell_short(&self) -> bool {
        self.fell_short
    }

    /// Whether a destage may begin.
    pub(super) fn may_destage(&self) -> bool {
        self.destage.is_none() && !self.is_stuck()
    }

    pub(super) fn hold_up(&mut self, id: u32) {
        self.held_up.push(id);
    }

    pub(super) fn take_held_up(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.held_up)
    }

    /// A destage that ended, if one did: whether everything was destaged, and the writes that continue.
    pub(super) fn take_ended(&mut self) -> Option<(bool, Vec<u32>)> {
        let whole = self.ended.take()?;
        Some((whole, core::mem::take(&mut self.released)))
    }

    /// Begins the last destage as soon as it can.
    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    /// The last destage begins when no record is in flight. Then it takes everything, and waiting writes wait
    /// for it.
    pub(super) fn begin_last(&mut self) {
        let ready = self.records.is_empty() && self.destage.is_none();
        if self.closing && self.is_stuck() && self.destage.is_none() {
            self.end_destage(false);
        } else if self.closing && ready {
            self.destage_below(self.sequence);
        }
    }

    pub(super) fn destage_below(&mut self, until: u64) {
        let below = self.begin_stripes(until);
        let stage = match below {
            Some(_) => Stage::ByStripes,
            None => Stage::Copying(0),
        };
        self.destage = Some(Destage {
            below: below.unwrap_or(until),
            until,
            copies: 0,
            stage,
            failed: false,
        });
        self.copy_more();
    }

    /// Begins to destage the records below, or the oldest of them, by stripes: below which. `None` if writes
    /// are not packed, or memory is too small for some stripe.
    fn begin_stripes(&mut self, until: u64) -> Option<u64> {
        let packing = self.pack.as_ref()?.packing;
        let (stripes, below) = Stripes::begin(&self.below, packing, until)?;
        self.stripes = Some(stripes);
        Some(below)
    }

    /// Nothing more is copied: what is in flight ends. False if no destage runs.
    pub(super) fn cut_short(&mut self) -> bool {
        let Some(destage) = &mut self.destage else {
            return false;
        };
        destage.failed = true;
        self.copy_more();
        true
    }

    /// A destage has ended: writes that waited for it continue.
    pub(super) fn end_destage(&mut self, whole: bool) {
        self.fell_short = !whole;
        self.destage = None;
        self.end_round();
        self.closing = false;
        self.ended = Some(whole);
        self.released = core::mem::take(&mut self.held_up);
    }

    /// Memory need not hold any more what was destaged.
    fn end_round(&mut self) {
        if self.stripes.take().is_some() {
            let (home, log) = (0..u64::MAX, 0..u64::MAX);
            self.emit(Effect::Forget { home, log });
        }
    }

    pub(super) fn copy_more(&mut self) {
        while let Some(destage) = self.destage {
            let from = match destage.stage {
                Stage::Copying(from) => from,
                Stage::ByStripes => return self.copy_by_stripes(destage.failed),
                Stage::Flushing { .. } | Stage::Voiding => return,
            };
            if destage.copies == self.limits.copies {
                return;
            }
            let next = self.next_to_copy(from, &destage);
            let Some(extent) = next.filter(|_| !destage.failed) else {
                return self.all_copied(&destage);
            };
            self.running().stage = Stage::Copying(extent.end());
            self.begin_write(Vec::from([extent]), None);
        }
    }

    fn running(&mut self) -> &mut Destage {
        self.destage.as_mut().expect("a destage runs")
    }

    fn copy_by_stripes(&mut self, failed: bool) {
        let Some(mut stripes) = self.stripes.take() else {
            return;
        };
        if failed {
            stripes.give_up(&mut self.below);
        } else {
            stripes.advance(&mut self.below);
            while self.running().copies < self.limits.copies
                && let Some((stripe, extents)) = stripes.next_run()
            {
                self.begin_write(extents, Some(stripe));
            }
        }
        let over = stripes.is_over(failed);
        self.stripes = Some(stripes);
        match over {
            true if failed => self.end_destage(false),
            true => self.flush_destaged(),
            false => {}
        }
    }

    /// Begins to write extents that are adjacent in the main set.
    fn begin_write(&mut self, mut extents: Vec<Extent>, stripe: Option<u64>) {
        for extent in &mut extents {
            extent.kind = self.kind_now(extent);
        }
        self.running().copies += 1;
        let serial = self.begin_reading();
        let part = self.begin_part(Owner::Copy { serial, stripe });
        let sectors = extents.iter().map(|extent| u64::from(extent.sectors));
        self.counters.sectors_destaged += sectors.sum::<u64>();
        self.counters.destage_writes += 1;
        self.emit(Effect::Destage { part, extents });
    }

    /// There is nothing more to copy.
    fn all_copied(&mut self, destage: &Destage) {
        match destage.copies {
            0 if destage.failed => self.end_destage(false),
            0 => self.flush_destaged(),
            _ => {}
        }
    }

    fn next_to_copy(&self, from: u64, destage: &Destage) -> Option<Extent> {
        let due = |extent: &Extent| extent.sequence < destage.below && self.can_be_destaged(extent);
        let found = self.map.extents_from(from).find(due)?;
        let start = found.home.max(from);
        found.within(start..start + u64::from(self.limits.record_sectors))
    }

    /// Whether a copy is needed and can be read: if the log failed, only from primary copies.
    fn can_be_destaged(&self, extent: &Extent) -> bool {
        match self.kind_now(extent) {
            Kind::Instead => !self.broken,
            Kind::Also => true,
            Kind::Clean => false,
        }
    }

    fn flush_destaged(&mut self) {
        let broken = self.broken;
        let left = if broken { 1 } else { 2 };
        self.running().stage = Stage::Flushing { left };
        let part = self.begin_part(Owner::MainFlush);
        let site = Site::Home;
        self.emit(Effect::Flush { part, site });
        if !broken {
            self.flush_log(Owner::LogFlush, SealCause::Destage);
        }
    }

    pub(super) fn destage_flushed(&mut self, result: Result<(), RequestError>) {
        let destage = self.running();
        destage.failed |= result.is_err();
        let Stage::Flushing { left } = &mut destage.stage else {
            unreachable!("flushes belong to that stage")
        };
        *left -= 1;
        if *left > 0 {
            return;
        }
        if destage.failed {
            return self.end_destage(false);
        }
        let below = destage.below;
        if self.broken {
            // The log will not be read again.
            return self.voided();
        }
        self.running().stage = Stage::Voiding;
        let part = self.begin_part(Owner::Obsolete);
        self.emit(Effect::Void { part, below });
    }

    /// The records are obsolete: the main set has what is still mapped of them.
    pub(super) fn voided(&mut self) {
        let Destage {
            below,
            until,
            failed,
            ..
        } = *self.running();
        let mut gone = Vec::new();
        let mut from = 0;
        loop {
            let kept = |extent: &Extent| self.broken && self.kind_now(extent) == Kind::Instead;
            let due = |extent: &Extent| extent.sequence < below && !kept(extent);
            let Some(extent) = self.map.extents_from(from).find(due) else {
                break;
            };
            from = extent.end();
            let whole = extent.home..extent.end();
            self.map
                .remove_if(whole, extent.sequence, |piece| gone.push(piece))
                .expect("a whole extent goes: that takes no room");
        }
        self.retire_all(gone);
        if below == until || failed || self.is_stuck() {
            return self.end_destage(below == until);
        }
        self.end_round();
        self.destage_below(until);
    }

    pub(super) fn copied(
        &mut self,
        serial: u64,
        stripe: Option<u64>,
        result: Result<(), RequestError>,
    ) {
        self.end_reading(serial);
        let destage = self.running();
        destage.copies -= 1;
        destage.failed |= result.is_err();
        if let Some(stripe) = stripe {
            let stripes = self.stripes.as_mut();
            let stripes = stripes.expect("it is destaged by stripes");
            stripes.run_ended(&mut self.below, stripe, result.is_ok());
        }
        self.copy_more();
    }

    /// A cluster was read. Pieces that could not be read with it are read one by one.
    pub(super) fn fetched(&mut self, part: PartTag, serial: u64) {
        self.end_reading(serial);
        let stripes = self.stripes.as_mut();
        stripes.expect("it is destaged by stripes").fetched(part);
        self.copy_more();
    }
}
