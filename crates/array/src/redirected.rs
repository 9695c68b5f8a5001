//! Which rows a surrogate alone has current copies of: one bit for each region of the intent map.
//!
//! A bit is set, durably on all members that carry maps, before a redirected write is acknowledged that leaves a sector of
//! its rows old at home. So a start that does not find the surrogate knows what it would serve old copies of
//! (`boot/surrogate.rs`). Without a surrogate in the superblock the bits say nothing: a program that knows of none does
//! not keep them up.

use crate::core::Core;
use crate::meta::RegionKind;
use crate::meta::superblock::{Partner, PartnerRole};
use crate::runset::RunSet;
use crate::units::Uuid;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

impl Core {
    /// Regions that have a bit: none in an array of an earlier program, which has no room for the map.
    pub(crate) fn redirected_bits(&self) -> u64 {
        let room = self.superblock.region(RegionKind::Redirected).is_some();
        if room { self.regions() } else { 0 }
    }

    /// The array that is this one's surrogate.
    pub(crate) fn surrogate(&self) -> Option<Uuid> {
        let partner = self.superblock.partner?;
        (partner.role == PartnerRole::Main).then_some(partner.array)
    }

    /// Puts another partner, or none, on record. Nothing may be redirected at the moment. The bits are clear: no start
    /// takes over those of an earlier surrogate.
    pub(crate) fn set_partner(&mut self, partner: Option<Partner>) {
        assert!(
            self.redirected_extents().is_empty(),
            "what a surrogate holds is not let go of"
        );
        self.superblock.partner = partner;
        self.keeper.note_partner();
    }

    // ------------------------------------------------------------------------------------------------ redirected writes

    /// Whether the array has room for the map, without which it can have no surrogate.
    pub(crate) fn redirectable(&self) -> bool {
        !self.redirected.pages.is_empty()
    }

    /// Announces a redirected write of these sectors of the array, of which there is at least one; true once it is on
    /// record that they may be current in the surrogate only, and which one that is. Until then, ask again whenever
    /// metadata has moved.
    pub(crate) fn redirect_ready(&mut self, lba: u64, sectors: u64) -> bool {
        assert!(
            self.surrogate().is_some(),
            "writes are redirected to a surrogate on record"
        );
        // A bit says that the log of the surrogate on record counts: that has to be the right one.
        let mut ready = self.keeper.partner_durable();
        if !ready {
            return false;
        }
        for region in self.regions_of(lba, sectors) {
            self.redirected.put(region, true);
            ready &= self.redirected.is_durable(region);
        }
        ready
    }

    /// The surrogate holds nothing any more, durably, and no redirected write is announced and not yet ended. A crash may
    /// leave bits set: then a start asks for a surrogate that it does not need.
    pub(crate) fn redirects_home(&mut self) {
        self.redirected.clear();
    }

    /// What the bits cover: (lba, sectors), ascending and apart.
    pub(crate) fn redirected_extents(&self) -> Vec<(u64, u64)> {
        let size = self.layout.size_sectors();
        let share = self.region_sectors();
        let mut covered = RunSet::default();
        for region in (0..self.redirected.bits()).filter(|&region| self.redirected.get(region)) {
            let lba = region * share;
            covered.insert(lba, share.min(size - lba));
        }
        covered.runs().to_vec()
    }

    fn region_sectors(&self) -> u64 {
        let rows = self.superblock.intent_rows;
        rows.saturating_mul(self.layout.row_sectors())
    }

    fn regions_of(&self, lba: u64, sectors: u64) -> RangeInclusive<u64> {
        let share = self.region_sectors();
        lba / share..=(lba + sectors - 1) / share
    }
}

#[cfg(test)]
#[path = "redirected_tests.rs"]
mod tests;
