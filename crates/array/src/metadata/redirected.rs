//! Which sectors a log set alone has current copies of: one bit for as many as a region of the intent map
//! held when the array was created. An array that grows has bits more, and each goes on to say what it said.
//!
//! A bit is set, durably on all members that carry maps, before a redirected write is acknowledged that
//! leaves a sector of its rows old at home. So a start that does not find the log set knows what it would
//! serve old copies of (`start/adopt.rs`). Without a log set in the superblock the bits say nothing: a
//! program that knows of none does not keep them up.

use super::Metadata;
use super::maps::BitMap;
use crate::contract::CommandError;
use crate::facts::Facts;
use crate::layout::Layout;
use crate::runset::RunSet;
use crate::units::Uuid;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use restripe_format::meta::superblock::{Partner, PartnerRole};
use restripe_format::meta::{RegionKind, pages};

impl Facts {
    /// Bits for all sectors of a layout, with those that a growth under way adds: none in an array that has
    /// no room for so many, as those of an earlier program.
    pub(crate) fn redirected_bits_of(&self, layout: &Layout) -> u64 {
        let cells = u64::from(layout.cells_through(layout.generations_to_come()));
        let sectors = layout.rows() * cells * layout.chunk_sectors();
        let bits = sectors.div_ceil(self.region_sectors());
        let region = self.superblock.region(RegionKind::Redirected);
        let pages = region.map_or(0, |region| pages::pages_in(region.sectors));
        let fits = bits <= pages * pages::BITS_PER_PAGE;
        if fits { bits } else { 0 }
    }

    /// The array that is this one's log set.
    pub(crate) fn log_set(&self) -> Option<Uuid> {
        let partner = self.superblock.partner?;
        (partner.role == PartnerRole::Main).then_some(partner.array)
    }

    /// The number of the last start or stop together with the partner.
    pub fn session(&self) -> u32 {
        let partner = self.superblock.partner.as_ref();
        partner.map_or(0, |partner| partner.session)
    }

    fn region_sectors(&self) -> u64 {
        let rows = self.superblock.intent_rows;
        let first = u64::from(self.layout.cells_through(1)) * self.layout.chunk_sectors();
        rows.saturating_mul(first)
    }

    fn regions_of(&self, lba: u64, sectors: u64) -> RangeInclusive<u64> {
        let share = self.region_sectors();
        lba / share..=(lba + sectors - 1) / share
    }
}

impl Metadata {
    /// A growth has begun. Without room for bits no write is redirected.
    pub(crate) fn widen_redirected(&mut self) {
        match self.redirected_bits_of(&self.layout) {
            0 => self.redirected = BitMap::new(0),
            bits => self.redirected.widen(bits),
        }
    }

    /// Puts another partner, or none, on record. Nothing may be redirected at the moment. The bits are clear:
    /// no start takes over those of an earlier log set.
    pub fn set_partner(&mut self, partner: Option<Partner>) {
        assert!(
            self.redirected_extents().is_empty(),
            "the log set holds the only copy of some sectors"
        );
        self.superblock.partner = partner;
        self.writer.note_partner();
    }

    /// Puts a session on record; false if it is there. What has halted gets nothing on record any more.
    pub fn put_session(&mut self, session: u32) -> bool {
        let partner = self.superblock.partner.as_mut().expect("a set of a tier");
        if partner.session == session {
            return false;
        }
        partner.session = session;
        self.writer.note_partner();
        true
    }

    pub fn has_partner_durable(&self) -> Result<bool, CommandError> {
        match self.halt {
            Some(halt) => Err(self.halt_error(halt)),
            None => Ok(self.writer.partner_durable()),
        }
    }

    /// Whether the array has room for the map, without which it can have no log set.
    pub(crate) fn redirectable(&self) -> bool {
        !self.redirected.pages.is_empty()
    }

    /// Announces a redirected write of these sectors of the array, of which there is at least one; true once
    /// it is on record that they may be current in the log set only, and which one that is. Until then, ask
    /// again whenever metadata has moved.
    pub(crate) fn redirect_ready(&mut self, lba: u64, sectors: u64) -> bool {
        assert!(
            self.log_set().is_some(),
            "writes are redirected to a log set on record"
        );
        // A bit says that the log on record counts: that has to be the right one.
        if !self.writer.partner_durable() {
            return false;
        }
        let regions = self.regions_of(lba, sectors);
        self.redirected.set_all(regions)
    }

    /// The log set holds nothing any more, durably, and no redirected write is announced and not yet ended. A
    /// crash may leave bits set: then a start asks for a log set that it does not need.
    pub fn redirects_home(&mut self) {
        self.redirected.clear();
    }

    /// What the bits cover: (lba, sectors), ascending and apart.
    pub fn redirected_extents(&self) -> Vec<(u64, u64)> {
        let size = self.layout.size_sectors();
        let share = self.region_sectors();
        let mut covered = RunSet::default();
        for region in (0..self.redirected.bits()).filter(|&region| self.redirected.get(region)) {
            let lba = region * share;
            // While it grows there are bits for what is yet to come.
            covered.insert(lba, share.min(size.saturating_sub(lba)));
        }
        covered.runs().to_vec()
    }
}

#[cfg(test)]
#[path = "redirected_tests.rs"]
mod tests;
