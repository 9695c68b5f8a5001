//! Going home: what records wrote is written where the layout puts it, and the records are called void.

use super::{Effect, GoingHome, Overlay, Owner, Site, Stage};
use crate::contract::RequestError;
use crate::overlay::{Extent, Kind};
use alloc::vec::Vec;

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
        if self.home.is_none() && !self.broken {
            self.home_below(below.min(self.told()));
        }
    }

    /// Begins the last way home: from now on writes wait that meet what lies in the log.
    pub fn go_home_for_good(&mut self) {
        if self.home.is_none() && !self.broken {
            self.closing = true;
            self.begin_last();
        }
    }

    /// The last way home begins when no record is under way: then it takes all there is. Writes that wait for room wait for
    /// it.
    pub(super) fn begin_last(&mut self) {
        if self.closing {
            self.seal();
        }
        let ready = self.records.is_empty() && self.home.is_none();
        if self.closing && self.broken && self.home.is_none() {
            self.end_way_home(false);
        } else if self.closing && ready {
            self.home_below(self.sequence);
        }
    }

    fn home_below(&mut self, below: u64) {
        let mut home = GoingHome {
            below,
            segment: None,
            copies: 0,
            stage: Stage::Copying(0),
            failed: false,
        };
        if self.pack.is_some() {
            self.segments_left.clear();
            self.segments_left.extend(self.space.to_copy());
            home.segment = self.segments_left.pop_front();
        }
        self.home = Some(home);
        self.load_segment();
    }

    /// A log of small writes has its pieces everywhere: it goes home a segment at a time, which is read at once.
    fn load_segment(&mut self) {
        let home = self.home.as_mut().expect("something goes home");
        let Some(segment) = home.segment else {
            return self.copy_more();
        };
        home.stage = Stage::Loading;
        let log = self.space.segment_range(segment);
        let part = self.begin_part(Owner::Load);
        self.effects.push_back(Effect::Load { part, log });
    }

    pub(super) fn batch_loaded(&mut self) {
        let home = self.home.as_mut().expect("its segment was read");
        home.stage = Stage::Copying(0);
        self.copy_more();
    }

    /// Nothing more is copied home: what is under way ends. It can be begun again.
    pub fn rest(&mut self) {
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
        self.home = None;
        self.closing = false;
        for id in core::mem::take(&mut self.held_up) {
            self.change(id, false);
        }
    }

    pub(super) fn copy_more(&mut self) {
        while let Some(home) = self.home {
            let Stage::Copying(from) = home.stage else {
                return;
            };
            if home.copies == self.limits.copies {
                return;
            }
            let next = self.next_to_copy(from, &home);
            let Some(extent) = next.filter(|_| !home.failed) else {
                return self.all_copied(&home);
            };
            let serial = self.begin_reading();
            let part = self.begin_part(Owner::Copy { serial });
            self.counters.sectors_home += u64::from(extent.sectors);
            self.home = Some(GoingHome {
                copies: home.copies + 1,
                stage: Stage::Copying(extent.end()),
                ..home
            });
            self.effects.push_back(Effect::CopyHome { part, extent });
        }
    }

    /// There is nothing more to copy.
    fn all_copied(&mut self, home: &GoingHome) {
        if home.copies > 0 {
            return;
        }
        if home.failed {
            return self.end_way_home(false);
        }
        match self.segments_left.pop_front() {
            Some(next) => {
                let home = self.home.as_mut().expect("something goes home");
                home.segment = Some(next);
                self.load_segment();
            }
            None => self.flush_home(),
        }
    }

    fn next_to_copy(&self, from: u64, home: &GoingHome) -> Option<Extent> {
        let here = |extent: &Extent| {
            let segment = home.segment;
            segment.is_none_or(|segment| self.space.segment_of(extent.at) == segment)
        };
        let due = |extent: &Extent| {
            extent.sequence < home.below && extent.kind != Kind::Clean && here(extent)
        };
        let found = self.map.extents_from(from).find(due)?;
        let start = found.home.max(from);
        found.within(start..start + u64::from(self.limits.record_sectors))
    }

    fn flush_home(&mut self) {
        let home = self.home.as_mut().expect("something goes home");
        home.stage = Stage::Flushing { left: 2 };
        let part = self.begin_part(Owner::HomeFlush);
        let site = Site::Home;
        self.effects.push_back(Effect::Flush { part, site });
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
        home.stage = Stage::Voiding;
        let below = home.below;
        let part = self.begin_part(Owner::Void);
        self.effects.push_back(Effect::Void { part, below });
    }

    /// The records are void: what is still mapped of them is home.
    pub(super) fn voided(&mut self) {
        let below = self.home.expect("something goes home").below;
        let mut gone = Vec::new();
        let mut from = 0;
        loop {
            let due = |extent: &Extent| extent.sequence < below;
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
        self.end_way_home(true);
    }

    pub(super) fn copied(&mut self, serial: u64, result: Result<(), RequestError>) {
        self.end_reading(serial);
        let home = self.home.as_mut().expect("its copies are under way");
        home.copies -= 1;
        home.failed |= result.is_err();
        self.copy_more();
    }
}
