//! Going home: what records wrote is written where the layout puts it, and the records are called void.

use super::{Effect, GoingHome, Overlay, Owner, SealCause, Site, Stage};
use crate::overlay::{Extent, Kind};
use alloc::vec::Vec;
use restripe_array::RequestError;

impl Overlay {
    /// Every record below has been told to its user, and is mapped as far as it counts.
    pub fn told(&self) -> u64 {
        let oldest = self.records.front();
        oldest.map_or(self.sequence, |record| record.extent.sequence)
    }

    /// Whether anything in the log was told to its user: a way home would free something.
    pub fn has_a_way_home(&self) -> bool {
        let below = self.told();
        let mut extents = self.map.extents_from(0);
        extents.any(|extent| extent.sequence < below)
    }

    /// Begins to bring home what was written by records below this sequence, as far as they have landed; nothing if that
    /// is under way already.
    pub fn go_home(&mut self, below: u64) {
        if self.home.is_none() && !self.is_stuck() {
            self.stop_cleaning();
            self.home_below(below.min(self.told()));
        }
    }

    /// Begins the last way home: from now on writes wait that meet what lies in the log.
    pub fn go_home_for_good(&mut self) {
        if self.home.is_none() && !self.is_stuck() {
            self.stop_cleaning();
            self.closing = true;
            self.begin_last();
        }
    }

    /// The last way home begins when no record is under way: then it takes all there is. Writes that wait for room wait for
    /// it.
    pub(super) fn begin_last(&mut self) {
        if self.closing {
            self.seal(SealCause::Destage);
        }
        let ready = self.records.is_empty() && self.home.is_none();
        if self.closing && self.is_stuck() && self.home.is_none() {
            self.end_way_home(false);
        } else if self.closing && ready {
            self.home_below(self.sequence);
        }
    }

    fn home_below(&mut self, until: u64) {
        let by_stripes = self.begin_by_stripes(until);
        let stage = match by_stripes {
            Some(_) => Stage::ByStripes,
            None => Stage::Copying(0),
        };
        self.home = Some(GoingHome {
            below: by_stripes.unwrap_or(until),
            until,
            copies: 0,
            stage,
            failed: false,
        });
        self.copy_more();
    }

    /// Nothing more is copied home: what is under way ends. It can be begun again.
    pub fn rest(&mut self) {
        self.stop_cleaning();
        if let Some(home) = &mut self.home {
            home.failed = true;
            self.copy_more();
        } else {
            self.end_way_home(false);
        }
    }

    /// A way home is over, well or not: who waited for it goes on.
    pub(super) fn end_way_home(&mut self, whole: bool) {
        self.fell_short = !whole;
        self.in_vain &= !whole;
        self.home = None;
        self.end_round();
        self.closing = false;
        for id in core::mem::take(&mut self.held_up) {
            self.change(id, false);
        }
    }

    /// What was kept for what went home is needed no more.
    fn end_round(&mut self) {
        if self.stripes.take().is_some() {
            let (home, log) = (0..u64::MAX, 0..u64::MAX);
            self.effects.push_back(Effect::Forget { home, log });
        }
    }

    pub(super) fn copy_more(&mut self) {
        while let Some(home) = self.home {
            let from = match home.stage {
                Stage::Copying(from) => from,
                Stage::ByStripes => return self.go_by_stripes(),
                Stage::Flushing { .. } | Stage::Voiding => return,
            };
            if home.copies == self.limits.copies {
                return;
            }
            let next = self.next_to_copy(from, &home);
            let Some(extent) = next.filter(|_| !home.failed) else {
                return self.all_copied(&home);
            };
            let home = self.home.as_mut().expect("something goes home");
            home.stage = Stage::Copying(extent.end());
            self.begin_copy_home(Vec::from([extent]), None);
        }
    }

    /// Begins to write extents home that lie side by side there.
    pub(super) fn begin_copy_home(&mut self, mut extents: Vec<Extent>, stripe: Option<u64>) {
        for extent in &mut extents {
            extent.kind = self.kind_now(extent);
        }
        let home = self.home.as_mut().expect("something goes home");
        home.copies += 1;
        let serial = self.begin_reading();
        let part = self.begin_part(Owner::Copy { serial, stripe });
        let sectors = extents.iter().map(|extent| u64::from(extent.sectors));
        self.counters.sectors_home += sectors.sum::<u64>();
        self.counters.writes_home += 1;
        self.effects.push_back(Effect::CopyHome { part, extents });
    }

    /// There is nothing more to copy.
    fn all_copied(&mut self, home: &GoingHome) {
        match home.copies {
            0 if home.failed => self.end_way_home(false),
            0 => self.flush_home(),
            _ => {}
        }
    }

    fn next_to_copy(&self, from: u64, home: &GoingHome) -> Option<Extent> {
        let due = |extent: &Extent| extent.sequence < home.below && self.can_go_home(extent);
        let found = self.map.extents_from(from).find(due)?;
        let start = found.home.max(from);
        found.within(start..start + u64::from(self.limits.record_sectors))
    }

    /// Whether a copy counts, and can be had: of a log that failed, what first copies have as well.
    fn can_go_home(&self, extent: &Extent) -> bool {
        match self.kind_now(extent) {
            Kind::Instead => !self.broken,
            Kind::Also => true,
            Kind::Clean => false,
        }
    }

    pub(super) fn flush_home(&mut self) {
        let broken = self.broken;
        let home = self.home.as_mut().expect("something goes home");
        let left = if broken { 1 } else { 2 };
        home.stage = Stage::Flushing { left };
        let part = self.begin_part(Owner::HomeFlush);
        let site = Site::Home;
        self.effects.push_back(Effect::Flush { part, site });
        if broken {
            return;
        }
        self.flush_log(Owner::LogFlush);
    }

    pub(super) fn flushed_for_home(&mut self, result: Result<(), RequestError>) {
        let home = self.home.as_mut().expect("something goes home");
        home.failed |= result.is_err();
        let Stage::Flushing { left } = &mut home.stage else {
            unreachable!("flushes belong to that stage")
        };
        *left -= 1;
        if *left > 0 {
            return;
        }
        if home.failed {
            return self.end_way_home(false);
        }
        if self.broken {
            // Nothing of it will be read again.
            return self.voided();
        }
        home.stage = Stage::Voiding;
        let below = home.below;
        let part = self.begin_part(Owner::Void);
        self.effects.push_back(Effect::Void { part, below });
    }

    /// The records are void: what is still mapped of them is home.
    pub(super) fn voided(&mut self) {
        let GoingHome {
            below,
            until,
            failed,
            ..
        } = self.home.expect("something goes home");
        let mut gone = Vec::new();
        let mut from = 0;
        loop {
            let kept = |extent: &Extent| self.broken && self.kind_now(extent) == Kind::Instead;
            let due = |extent: &Extent| extent.sequence < below && !kept(extent);
            let Some(extent) = self.map.extents_from(from).find(due) else {
                break;
            };
            from = extent.end();
            self.map
                .remove_if(extent.home..extent.end(), extent.sequence, |piece| {
                    gone.push(piece);
                })
                .expect("a whole extent goes: that takes no room");
        }
        gone.into_iter().for_each(|piece| self.retire(piece, 0));
        self.settle_retired();
        if below == until || failed || self.is_stuck() {
            return self.end_way_home(below == until);
        }
        self.end_round();
        self.home_below(until);
    }

    pub(super) fn copied(
        &mut self,
        serial: u64,
        stripe: Option<u64>,
        result: Result<(), RequestError>,
    ) {
        self.end_reading(serial);
        let home = self.home.as_mut().expect("its copies are under way");
        home.copies -= 1;
        home.failed |= result.is_err();
        if let Some(stripe) = stripe {
            self.run_ended(stripe, result);
        }
        self.copy_more();
    }
}
