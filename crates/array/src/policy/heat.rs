//! Heat: which zones users read, learned while nothing is wrong (IDO, section 3.3).
//!
//! A zone is a number of whole rows. Each read adds one to the popularity of every zone that it touches, and at the end of
//! an epoch all popularities are halved. Nothing is halved when an epoch ends: a zone keeps the epoch that its count is
//! of, and is halved as often as epochs have passed when it is looked at. So a read costs a division and an addition,
//! and no epoch's end costs anything. Of a fixed size, 8 bytes a zone (the paper: three words). `heat_pages.rs` keeps it on
//! the members.

use crate::report::HeatMap;
use crate::runset::RunSet;
use crate::units::Nanos;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use restripe_format::meta::rules::COUNTER_LIMIT;
use restripe_format::zones::{HeatLimits, zone_rows};

/// Epochs are counted in 32 bits: these last for weeks, and ten minutes for as long as anybody lives.
const EPOCH_MIN: Nanos = Nanos::from_millis(1);
/// A read counts so many parts, that halving is not rounding to nothing.
const READ: u32 = HeatMap::READ;

#[derive(Clone, Copy, Debug, Default)]
struct Zone {
    /// As of the end of the epoch before `epoch`, and reads since.
    popularity: u32,
    epoch: u32,
}

impl Zone {
    /// As of an epoch that is not before its own.
    fn popularity_in(self, epoch: u32) -> u32 {
        self.popularity.checked_shr(epoch - self.epoch).unwrap_or(0)
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Heat {
    zones: Vec<Zone>,
    /// Of addresses. They are those of the zone's rows, but in a grown array, whose rebuilds order their rows by a guess then.
    zone_sectors: u64,
    zone_rows: u64,
    epoch: u32,
    /// Epochs that had ended before this table was made.
    epochs_before: u64,
    epoch_ends: Nanos,
    epoch_lasts: Nanos,
}

impl Heat {
    /// The empty table of an array with this number of rows.
    pub(crate) fn new(limits: HeatLimits, rows: u64, row_sectors: u64, now: Nanos) -> Heat {
        let zone_rows = zone_rows(limits, rows, row_sectors);
        let epoch_lasts = limits.epoch.max(EPOCH_MIN);
        Heat {
            zones: vec![Zone::default(); rows.div_ceil(zone_rows) as usize],
            zone_sectors: zone_rows * row_sectors,
            zone_rows,
            epoch: 0,
            epochs_before: 0,
            epoch_ends: now.after(epoch_lasts),
            epoch_lasts,
        }
    }

    pub(crate) fn zone_rows(&self) -> u64 {
        self.zone_rows
    }

    /// Where a row's array data would be if rows were filled one after another: so this table takes reads.
    pub(crate) fn sector_of(&self, row: u64) -> u64 {
        row * (self.zone_sectors / self.zone_rows)
    }

    pub(crate) fn zones(&self) -> u64 {
        self.zones.len() as u64
    }

    /// Epochs that have ended, before this table was made and since; stands still where counters on members end.
    pub(crate) fn epochs(&self) -> u64 {
        (self.epochs_before + u64::from(self.epoch)).min(COUNTER_LIMIT - 1)
    }

    pub(crate) fn epoch_ends(&self) -> Nanos {
        self.epoch_ends
    }

    /// This table goes on from one in which this number of epochs had ended.
    pub(crate) fn follow(&mut self, epochs: u64) {
        self.epochs_before = epochs;
    }

    /// Adds what an earlier table knew of some rows: of those that are parts of several zones, or of a part of one, as if
    /// all of them had been read alike.
    pub(crate) fn absorb(&mut self, first_row: u64, rows: u64, popularity: u32) {
        let end = first_row.saturating_add(rows);
        let end = end.min(self.zones() * self.zone_rows);
        if first_row >= end {
            return;
        }
        for zone in first_row / self.zone_rows..=(end - 1) / self.zone_rows {
            let (from, to) = (zone * self.zone_rows, (zone + 1) * self.zone_rows);
            let within = u128::from(end.min(to) - first_row.max(from));
            let share = u128::from(popularity) * within / u128::from(end - first_row);
            let held = &mut self.zones[zone as usize].popularity;
            *held = held.saturating_add(share as u32); // Not above `popularity`.
        }
    }

    /// The zones that these sectors touch.
    pub(crate) fn zones_of(&self, lba: u64, sectors: u64) -> Range<u64> {
        let first = lba / self.zone_sectors;
        // Most reads lie in one zone, and to see that costs less than a division.
        let end = match lba + sectors <= (first + 1) * self.zone_sectors {
            true => first + 1,
            false => (lba + sectors).div_ceil(self.zone_sectors),
        };
        first..end
    }

    /// A read of these sectors of the array, of which there is at least one. Gives the zones that they touch.
    pub(crate) fn note_read(&mut self, lba: u64, sectors: u64, now: Nanos) -> Range<u64> {
        self.pass(now);
        let touched = self.zones_of(lba, sectors);
        let epoch = self.epoch;
        for zone in &mut self.zones[touched.start as usize..touched.end as usize] {
            if zone.epoch != epoch {
                zone.popularity = zone.popularity_in(epoch);
                zone.epoch = epoch;
            }
            zone.popularity = zone.popularity.saturating_add(READ);
        }
        touched
    }

    /// Ends the epochs that are over.
    pub(crate) fn pass(&mut self, now: Nanos) {
        if now < self.epoch_ends {
            return;
        }
        let over = 1 + now.since(self.epoch_ends).0 / self.epoch_lasts.0;
        let epochs = u32::try_from(over).unwrap_or(u32::MAX);
        let time = Nanos(self.epoch_lasts.0.saturating_mul(over));
        self.epoch = self.epoch.saturating_add(epochs);
        self.epoch_ends = self.epoch_ends.after(time);
    }

    /// Reads, those of earlier epochs halved for each since, in parts of a read.
    pub(crate) fn popularity(&self, zone: usize) -> u32 {
        self.zones[zone].popularity_in(self.epoch)
    }

    pub(crate) fn map(&self) -> HeatMap {
        let popularity = (0..self.zones.len()).map(|zone| self.popularity(zone));
        HeatMap {
            zone_sectors: self.zone_sectors,
            popularity: popularity.collect(),
        }
    }

    /// The most popular of some zones, of equal ones the first.
    pub(crate) fn hottest_of(&self, zones: &RunSet) -> Option<u64> {
        let hotter = |zone: &u64| (self.popularity(*zone as usize), u64::MAX - zone);
        let each = |&(first, count): &(u64, u64)| first..first + count;
        zones.runs().iter().flat_map(each).max_by_key(hotter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE_SECTORS: u64 = 12 << 11;
    const EPOCH: Nanos = Nanos::from_secs(600);

    fn of(rows: u64, row_sectors: u64) -> Heat {
        Heat::new(HeatLimits::default(), rows, row_sectors, Nanos::ZERO)
    }

    /// Ten zones of two rows each, of 6 MiB.
    fn heat() -> Heat {
        of(20, ZONE_SECTORS / 2)
    }

    fn after_epochs(count: u64) -> Nanos {
        Nanos(EPOCH.0 * count)
    }

    #[test]
    fn zones_are_whole_rows_of_twelve_mebibytes_or_more() {
        assert_eq!((heat().zones.len(), heat().zone_rows()), (10, 2));
        let uneven = of(100, 5 << 11);
        assert_eq!((uneven.zones.len(), uneven.zone_rows()), (34, 3));
        let large = of(1 << 32, 1 << 11);
        assert!(large.zones.len() as u64 <= restripe_format::zones::ZONES_MAX);
        assert!(large.zone_rows() * large.zones.len() as u64 >= 1 << 32);
    }

    #[test]
    fn a_read_counts_in_each_zone_that_it_touches() {
        let mut heat = heat();
        heat.note_read(ZONE_SECTORS - 8, 16, Nanos::ZERO);
        heat.note_read(ZONE_SECTORS, 8, Nanos::ZERO);
        let popularity: Vec<u32> = (0..3).map(|zone| heat.popularity(zone) / READ).collect();
        assert_eq!(popularity, [1, 2, 0]);
        assert_eq!(heat.map().hottest(), [1, 0]);
    }

    /// The paper's Figure 7: what was there before an epoch's end counts half after it.
    #[test]
    fn popularity_is_halved_with_each_epoch() {
        let mut heat = heat();
        for _ in 0..4 {
            heat.note_read(0, 8, Nanos::ZERO);
        }
        heat.note_read(0, 8, after_epochs(1));
        assert_eq!(heat.popularity(0), 3 * READ);
        heat.note_read(ZONE_SECTORS, 8, after_epochs(3));
        assert_eq!(heat.popularity(0), 3 * READ / 4);
        heat.note_read(ZONE_SECTORS, 8, after_epochs(1000));
        assert_eq!(heat.popularity(0), 0);
        assert_eq!(heat.map().hottest(), [1]);
    }

    #[test]
    fn what_an_earlier_table_knew_is_shared_out_by_rows() {
        let mut heat = heat();
        heat.absorb(2, 2, 700);
        heat.absorb(5, 4, 800);
        let told: Vec<u32> = (0..6).map(|zone| heat.popularity(zone)).collect();
        assert_eq!(told, [0, 700, 200, 400, 200, 0]);
        heat.absorb(18, 1000, 50);
        assert_eq!(
            heat.popularity(9),
            50,
            "what is left of it lies in the array"
        );
        for (first, rows) in [(20, 1), (u64::MAX, u64::MAX)] {
            heat.absorb(first, rows, 9);
        }
        heat.absorb(0, 1, u32::MAX);
        heat.absorb(1, 1, u32::MAX);
        assert_eq!(heat.popularity(0), u32::MAX);
    }

    #[test]
    fn agrees_with_halving_every_zone_at_every_epochs_end() {
        let mut heat = heat();
        let mut naive = [0_u32; 10];
        let (mut now, mut ended, mut seed) = (Nanos::ZERO, 0, 7_u64);
        for _ in 0..5000 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            now = now.after(Nanos(seed >> 27));
            while after_epochs(ended + 1) <= now {
                naive.iter_mut().for_each(|popularity| *popularity /= 2);
                ended += 1;
            }
            let zone = seed >> 60;
            if zone < 10 {
                heat.note_read(zone * ZONE_SECTORS, 8, now);
                naive[zone as usize] += READ;
            }
            heat.pass(now);
            let told: Vec<u32> = (0..10).map(|zone| heat.popularity(zone)).collect();
            assert_eq!(told, naive);
        }
        assert!(ended > 50);
    }
}
