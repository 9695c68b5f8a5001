//! Heat on the members: what users read before a restart, clean or not, is known after it.
//!
//! A page is written at the end of an epoch in which somebody read its zones, and at a clean stop; never on a read's own
//! path, and an array that nobody reads is never woken for it. So a crash takes back the reads of the epoch that it ends.
//! Time in which the array is not served halves nothing.
//!
//! Nothing hangs on heat. Pages that are torn or cannot be read know nothing of their zones. A table that was written of zones
//! of another size is shared out by rows, and written anew at once; where smaller zones than the default leave too
//! little room, an entry is of several zones. Pages of two sizes lie beside each other when a crash comes in between:
//! those count whose size the newest page has.

use crate::core::Core;
use crate::facts::{NEVER, Wake};
use crate::meta::RegionKind;
use crate::meta::pages::{self};
use crate::metadata::heat_pages::{Found, HeatPages};
use crate::report::ArrayState;
use core::ops::Range;

impl Core {
    pub(crate) fn blank_heat_pages(&self) -> HeatPages {
        let region = self.superblock.region(RegionKind::Heat);
        let room = region.map_or(0, |region| pages::pages_in(region.sectors));
        HeatPages::new(&self.heat, room)
    }

    /// Takes up what the members' pages tell.
    pub(crate) fn recall_heat(&mut self) {
        self.below
            .below
            .heat_pages
            .recall(&mut self.below.below.heat);
    }

    /// Users read these zones: their pages are behind, and are written when the epoch
    /// has ended.
    pub(crate) fn heat_changed(&mut self, zones: &Range<u64>) {
        let held = &mut self.below.below.heat_pages;
        if held.pages.is_empty() {
            return;
        }
        let first = held.page_of(zones.start);
        let end = match zones.end - zones.start {
            1 => first + 1,
            _ => held.page_of(zones.end - 1) + 1,
        };
        for page in &mut held.pages[first..end] {
            page.dirty = true;
        }
        if self.below.below.below.wake[Wake::Heat as usize] == NEVER {
            let due = self.below.below.heat.epoch_ends().max(held.not_before);
            self.wake_at(Wake::Heat, due);
        }
    }

    pub(crate) fn heat_timer(&mut self) {
        let serving = [
            ArrayState::Healthy,
            ArrayState::Degraded,
            ArrayState::Failed,
        ];
        if serving.contains(&self.state) {
            self.below.below.heat.pass(self.below.below.now);
            self.heat_due();
        }
    }

    /// Rows are wider from now on, so that zones have fewer: what is known of them goes over to those that there are now.
    pub(crate) fn spread_heat(&mut self) {
        let held = &self.heat_pages;
        let page = |index: usize| {
            let (scale, popularity) = held.of_page(&self.heat, index as u32);
            Found {
                index: index as u32,
                scale,
                popularity: popularity.collect(),
            }
        };
        let found = (0..held.pages.len()).map(page).collect();
        self.heat = self.blank_heat();
        let fresh = self.blank_heat_pages();
        let held = &mut self.heat_pages;
        // Pages may be on their way.
        *held = HeatPages {
            pages: core::mem::take(&mut held.pages),
            not_before: held.not_before,
            found,
            ..fresh
        };
        self.recall_heat();
    }
}
