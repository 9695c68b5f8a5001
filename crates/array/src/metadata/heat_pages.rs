//! The pages of heat: which of them are behind what is known, and what a start found.

use crate::metadata::maps::PageState;
use crate::policy::heat::Heat;
use crate::units::Nanos;
use alloc::vec;
use alloc::vec::Vec;
use restripe_format::meta::pages::{ENTRIES_PER_PAGE, HeatScale, PageView};
use restripe_format::zones::ZONES_MAX;

pub(crate) const ENTRIES: u64 = ENTRIES_PER_PAGE as u64;
/// As many as the largest table needs.
pub(crate) const PAGES_MAX: u64 = ZONES_MAX.div_ceil(ENTRIES);
/// Pages written at a time, so that heat leaves room for the metadata on which something hangs.
pub(crate) const WRITING_MAX: usize = 8;
/// Short epochs do not make for more writes than this.
pub(crate) const WRITES_APART: Nanos = Nanos::from_secs(1);

/// A page as it was found: the rows that its first entry begins with, and all entries.
pub(crate) struct Found {
    pub(crate) index: u32,
    pub(crate) scale: HeatScale,
    pub(crate) popularity: Vec<u32>,
}

#[derive(Default)]
pub(crate) struct HeatPages {
    /// Dirty: its zones were read since it was written.
    pub(crate) pages: Vec<PageState>,
    /// Dirty pages are due to be written.
    pub(crate) touched: bool,
    /// Zones of each entry.
    pub(crate) entry_zones: u64,
    pub(crate) zone_rows: u64,
    pub(crate) not_before: Nanos,
    /// While the array starts.
    pub(crate) found: Vec<Found>,
}

impl HeatPages {
    /// For this table, with this number of pages on the members.
    pub(crate) fn new(heat: &Heat, pages: u64) -> HeatPages {
        let pages = pages.min(PAGES_MAX);
        HeatPages {
            pages: vec![PageState::default(); pages as usize],
            entry_zones: heat.zones().div_ceil((pages * ENTRIES).max(1)).max(1),
            zone_rows: heat.zone_rows(),
            ..HeatPages::default()
        }
    }

    pub(crate) fn entry_rows(&self) -> u64 {
        self.entry_zones * self.zone_rows
    }

    pub(crate) fn page_of(&self, zone: u64) -> usize {
        // Nearly always an entry is a zone, and every read asks for this: a division less.
        let entry = match self.entry_zones {
            1 => zone,
            zones => zone / zones,
        };
        (entry / ENTRIES) as usize
    }

    /// What a page is to hold.
    pub(crate) fn of_page<'a>(
        &self,
        heat: &'a Heat,
        page: u32,
    ) -> (HeatScale, impl Iterator<Item = u32> + use<'a>) {
        let scale = HeatScale {
            entry_rows: self.entry_rows(),
            epoch: heat.epochs(),
        };
        let (each, zones) = (self.entry_zones, heat.zones());
        let first = u64::from(page) * ENTRIES;
        let entry = move |entry: u64| {
            let held = (entry * each).min(zones)..((entry + 1) * each).min(zones);
            held.map(|zone| heat.popularity(zone as usize))
                .fold(0, u32::saturating_add)
        };
        (scale, (first..first + ENTRIES).map(entry))
    }

    /// A sound page, in its newest version. One without any read says nothing.
    pub(crate) fn found(&mut self, index: u32, view: &PageView<'_>) {
        self.pages[index as usize].sequence = view.sequence;
        let Some((scale, popularity)) = view.heat() else {
            return;
        };
        let popularity: Vec<u32> = popularity.collect();
        if popularity.iter().any(|&popularity| popularity > 0) {
            self.found.push(Found {
                index,
                scale,
                popularity,
            });
        }
    }

    /// Gives a blank table what was found, and has it go on from there.
    pub(crate) fn recall(&mut self, heat: &mut Heat) {
        let found = core::mem::take(&mut self.found);
        let scales = found.iter().map(|page| page.scale);
        let Some(newest) = scales.max_by_key(|scale| scale.epoch) else {
            return;
        };
        let alike = |page: &&Found| page.scale.entry_rows == newest.entry_rows;
        for page in found.iter().filter(alike) {
            page.give(heat, newest.epoch);
        }
        let resized = newest.entry_rows != self.entry_rows();
        // Pages of the other size are to be the older ones.
        heat.follow(newest.epoch + u64::from(resized));
        if resized {
            self.rewrite();
        }
    }

    /// Whether a page is behind, due or not, or is being written.
    pub(crate) fn dirty(&self) -> bool {
        self.pages.iter().any(|page| page.dirty || page.writing > 0)
    }

    pub(crate) fn rewrite(&mut self) {
        self.pages.iter_mut().for_each(|page| page.dirty = true);
        self.touched = !self.pages.is_empty();
    }
}

impl Found {
    /// Adds what this page knows to a table in which `epochs` epochs have ended.
    pub(crate) fn give(&self, heat: &mut Heat, epochs: u64) {
        let past = u32::try_from(epochs - self.scale.epoch).unwrap_or(u32::MAX);
        let first = u64::from(self.index) * ENTRIES;
        for (entry, &popularity) in (first..).zip(&self.popularity) {
            let popularity = popularity.checked_shr(past).unwrap_or(0);
            let row = entry.checked_mul(self.scale.entry_rows);
            if let Some(row) = row.filter(|_| popularity > 0) {
                heat.absorb(row, self.scale.entry_rows, popularity);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::zeroed_page;
    use crate::units::Uuid;
    use restripe_format::meta::pages::{self, MapKind};
    use restripe_format::zones::HeatLimits;

    const ARRAY: Uuid = Uuid([3; 16]);
    const ROWS: u64 = 5000;
    const ROW_SECTORS: u64 = 64;

    /// A table of zones with this number of rows.
    fn table(zone_rows: u64) -> Heat {
        let limits = HeatLimits {
            zone_sectors: zone_rows * ROW_SECTORS,
            ..HeatLimits::default()
        };
        Heat::new(limits, ROWS, ROW_SECTORS, Nanos::ZERO)
    }

    fn read(heat: &mut Heat, row: u64, times: u64, now: Nanos) {
        for _ in 0..times {
            heat.note_read(row * ROW_SECTORS, 8, now);
        }
    }

    /// Takes a page to a member and back.
    fn carry(from: &HeatPages, heat: &Heat, page: u32, to: &mut HeatPages) {
        let (scale, popularity) = from.of_page(heat, page);
        let mut bytes = zeroed_page();
        pages::encode_heat(ARRAY, page, 2, scale, popularity, &mut bytes);
        let view = pages::decode(&bytes, MapKind::Heat, ARRAY, page).expect("a sound page");
        to.found(page, &view);
    }

    /// What another start knows of all that these pages hold.
    fn recalled(heat: &Heat, pages: u64, zone_rows: u64) -> (Heat, HeatPages) {
        let (from, mut other) = (HeatPages::new(heat, pages), table(zone_rows));
        let mut to = HeatPages::new(&other, pages);
        (0..pages as u32).for_each(|page| carry(&from, heat, page, &mut to));
        to.recall(&mut other);
        (other, to)
    }

    #[test]
    fn a_table_of_the_same_zones_is_the_same_again() {
        let mut heat = table(1);
        for (row, times) in [(0, 3), (2007, 9), (2008, 5), (4999, 1)] {
            read(&mut heat, row, times, Nanos::ZERO);
        }
        let (again, held) = recalled(&heat, 3, 1);
        assert_eq!(again.map().popularity, heat.map().popularity);
        assert!(!held.dirty(), "nothing is to be written");
        assert_eq!(again.map().hottest(), [2007, 2008, 0, 4999]);
    }

    #[test]
    fn zones_share_an_entry_where_there_is_little_room() {
        let mut heat = table(1);
        read(&mut heat, 3000, 6, Nanos::ZERO);
        let held = HeatPages::new(&heat, 1);
        assert_eq!(held.entry_rows(), 3);
        let (again, _) = recalled(&heat, 1, 1);
        let told = |row: usize| again.popularity(row);
        assert_eq!(
            [2999, 3000, 3001, 3002, 3003].map(told),
            [0, 512, 512, 512, 0]
        );
    }

    #[test]
    fn zones_of_another_size_take_their_shares_and_all_is_written_anew() {
        let mut heat = table(4);
        read(&mut heat, 40, 8, Nanos::ZERO);
        read(&mut heat, 80, 2, Nanos::ZERO);
        let (smaller, held) = recalled(&heat, 3, 2);
        assert!(held.touched && held.pages.iter().all(|page| page.dirty));
        let told = |zone: usize| smaller.popularity(zone);
        assert_eq!([19, 20, 21, 22, 40].map(told), [0, 1024, 1024, 0, 256]);
        let (larger, _) = recalled(&heat, 3, 100);
        assert_eq!(larger.map().hottest(), [0]);
        assert_eq!(larger.popularity(0), 2560);
    }

    /// A page that nobody read since an epoch ended is not written again: it is told how old it is by the
    /// others.
    #[test]
    fn a_page_that_was_left_behind_counts_by_its_age() {
        let epoch = HeatLimits::default().epoch;
        let mut heat = table(1);
        read(&mut heat, 10, 8, Nanos::ZERO);
        let held = HeatPages::new(&heat, 3);
        let mut other = table(1);
        let mut to = HeatPages::new(&other, 3);
        carry(&held, &heat, 0, &mut to);
        read(&mut heat, 3000, 3, Nanos(2 * epoch.0));
        carry(&held, &heat, 1, &mut to);
        to.recall(&mut other);
        assert_eq!(other.map().popularity, heat.map().popularity);
        assert_eq!((other.popularity(10), other.epochs()), (512, 2));
    }

    /// A crash while a table of another size was being written: nothing counts twice.
    #[test]
    fn pages_of_the_older_size_are_left_out() {
        let mut old = table(2);
        read(&mut old, 10, 8, Nanos::ZERO);
        read(&mut old, 4500, 8, Nanos::ZERO);
        let (new, new_held) = recalled(&old, 3, 1);
        let mut other = table(1);
        let mut to = HeatPages::new(&other, 3);
        carry(&new_held, &new, 0, &mut to);
        carry(&HeatPages::new(&old, 3), &old, 1, &mut to);
        to.recall(&mut other);
        assert_eq!((other.popularity(10), other.popularity(11)), (1024, 1024));
        assert_eq!(other.map().hottest(), [10, 11]);
    }

    #[test]
    fn hostile_scales_end_in_some_table() {
        for entry_rows in [1, 7, 1 << 40, (1 << 62) - 1] {
            for epoch in [0, (1 << 62) - 1] {
                let mut heat = table(1);
                let mut held = HeatPages::new(&heat, 3);
                for index in 0..3 {
                    held.found.push(Found {
                        index,
                        scale: HeatScale { entry_rows, epoch },
                        popularity: vec![u32::MAX; ENTRIES_PER_PAGE],
                    });
                }
                held.recall(&mut heat);
                let (scale, _) = held.of_page(&heat, 0);
                assert!(scale.epoch < 1 << 62, "it can be written");
            }
        }
    }
}
