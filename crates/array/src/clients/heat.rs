//! Heat: what users read, by zones. What they read before a restart, clean or not, is known after it.
//!
//! A page is written at the end of an epoch with reads of its zones, and at a clean stop. A read does not
//! wait for it, and an array without reads is not woken for it. So a crash loses the counts of the epoch.
//! Counts are not halved while the array is not served.
//!
//! Nothing hangs on heat. Pages that are torn or cannot be read know nothing of their zones. A table that was
//! written of zones of another size is shared out by rows, and written anew at once; where smaller zones than
//! the default leave too little room, an entry is of several zones. Pages of two sizes lie beside each other
//! when a crash comes in between: those count whose size the newest page has.

use super::Clients;
use crate::facts::{NEVER, Wake};
use crate::layout::Place;
use crate::metadata::Metadata;
use crate::metadata::heat_pages::{Found, HeatPages};
use crate::task::table::Task;
use crate::units::SECTOR_BYTES;
use core::ops::Range;
use restripe_format::meta::RegionKind;
use restripe_format::meta::pages::{self};

impl Clients {
    /// A user reads these bytes of the array. It stays a function of its own so that its cost can be counted.
    #[inline(never)]
    pub(crate) fn note_heat(&mut self, offset: u64, bytes: u64) {
        let lba = offset / SECTOR_BYTES;
        let sectors = (offset + bytes).div_ceil(SECTOR_BYTES) - lba;
        if sectors == 0 {
            return;
        }
        match self.layout.generations_to_come() {
            1 => self.note_zones(lba, sectors),
            _ => self.note_rows(lba, sectors),
        }
    }

    /// A read of an array that has grown: its rows have neighbouring chunks, but not one after another.
    fn note_rows(&mut self, lba: u64, sectors: u64) {
        let chunk = self.layout.chunk_sectors();
        let mut last = None;
        for first in (lba / chunk * chunk..lba + sectors).step_by(chunk as usize) {
            let row = self.layout.place(first).row.0;
            if last.replace(row / self.heat.zone_rows()) != Some(row / self.heat.zone_rows()) {
                self.note_zones(self.heat.sector_of(row), 1);
            }
        }
    }

    fn note_zones(&mut self, lba: u64, sectors: u64) {
        let now = self.now;
        let zones = self.heat.note_read(lba, sectors, now);
        self.heat_changed(&zones);
        let facts = self.facts();
        for task in &mut facts.tasks.list {
            task.path.note_read(lba, sectors, facts.now);
        }
    }

    /// A client's read has to be recovered, since the member of this cell is missing: the task that fills the
    /// slot goes there next.
    pub(crate) fn note_demand(&mut self, place: Place) {
        if !self.tasks.on_demand {
            return;
        }
        let zone = place.row.0 / self.heat.zone_rows();
        let slot = self.row_map(place.row).cells[usize::from(place.data)].slot;
        let fills = |task: &&mut Task| task.is_filling() && task.slot == Some(slot.0);
        if let Some(task) = self.tasks.list.iter_mut().find(fills) {
            task.path.demand(zone);
        }
    }

    pub(crate) fn blank_heat_pages(&self) -> HeatPages {
        let region = self.superblock.region(RegionKind::Heat);
        let room = region.map_or(0, |region| pages::pages_in(region.sectors));
        HeatPages::new(&self.heat, room)
    }

    /// Takes up what the members' pages tell.
    pub(crate) fn recall_heat(&mut self) {
        let metadata: &mut Metadata = self;
        metadata.heat_pages.recall(&mut metadata.heat);
    }

    /// Users read these zones: their pages are behind, and are written when the epoch
    /// has ended.
    pub(crate) fn heat_changed(&mut self, zones: &Range<u64>) {
        let metadata: &mut Metadata = self;
        let held = &mut metadata.heat_pages;
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
        if metadata.below.wake[Wake::Heat as usize] == NEVER {
            let due = metadata.heat.epoch_ends().max(held.not_before);
            self.wake_at(Wake::Heat, due);
        }
    }

    pub(crate) fn heat_timer(&mut self) {
        if self.serving() {
            let now = self.now;
            self.heat.pass(now);
            self.heat_due();
        }
    }

    /// Rows are wider from now on, so that zones have fewer: what is known of them goes over to those that
    /// there are now.
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
