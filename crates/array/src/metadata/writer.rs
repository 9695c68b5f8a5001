//! Keeps the members' superblocks and map pages in step with the engine's own.
//!
//! | state   | cause                          | next    |
//! |---------|--------------------------------|---------|
//! | clean   | a change                       | dirty   |
//! | dirty   | a turn                         | writing |
//! | writing | all writes ended, no change    | clean   |
//! | writing | all writes ended, a change     | dirty   |
//!
//! A version counts as durable when every member written to has it, or has been failed (which is a change,
//! and so a further version). Copies alternate between two homes, so the last durable version always survives
//! a torn write.

use super::Metadata;
use crate::contract::{Bug, Page};
use crate::facts::Notice;
use crate::members::device::Health;
use crate::members::ops::Owner;
use crate::metadata::maps::{BitMap, PageState};
use crate::units::Member;
use alloc::vec::Vec;
use restripe_format::meta::leases::Parcel;
use restripe_format::meta::pages::{self, MapKind};
use restripe_format::meta::superblock::{MemberRole, Superblock};

#[derive(Default)]
pub(crate) struct MetadataWriter {
    /// Versions of the superblock: wanted, in flight, durable.
    wanted: u64,
    in_flight: u64,
    durable: u64,
    /// The version that records the latest failure.
    failure: u64,
    /// The latest version that all members in service took.
    on_record: u64,
    /// The version that records the partner as it is now.
    partner: u64,
    outstanding: u32,
    /// What the array lends: by the version in flight, and as is on record. Who may reach what goes by the
    /// latter.
    lent_in_flight: Vec<Parcel>,
    pub(super) lent: Vec<Parcel>,
}

impl MetadataWriter {
    /// The superblock changed.
    pub(crate) fn note_change(&mut self) {
        self.wanted += 1;
    }

    /// The superblock changed, and no acknowledgement is given before that is durable.
    pub(crate) fn note_failure(&mut self) {
        self.note_change();
        self.failure = self.wanted;
    }

    /// The partner changed, and nothing is redirected before that is durable.
    pub(crate) fn note_partner(&mut self) {
        self.note_change();
        self.partner = self.wanted;
    }

    pub(crate) fn partner_durable(&self) -> bool {
        self.durable >= self.partner
    }

    pub(crate) fn failures_durable(&self) -> bool {
        self.durable >= self.failure
    }

    /// Whether all failures are on record, also of an array that has halted since.
    pub(crate) fn failures_on_record(&self) -> bool {
        self.on_record >= self.failure
    }

    /// Whether a version waits to be written, and none is being written.
    pub(crate) fn is_due(&self) -> bool {
        self.outstanding == 0 && self.durable < self.wanted
    }

    /// A member has answered about the version in flight.
    pub(crate) fn answered(&mut self) {
        self.outstanding -= 1;
    }

    pub(crate) fn quiet(&self) -> bool {
        self.outstanding == 0
    }

    pub(crate) fn all_durable(&self) -> bool {
        self.durable == self.wanted && self.outstanding == 0
    }

    pub(crate) fn version_wanted(&self) -> u64 {
        self.wanted
    }

    pub(crate) fn is_durable(&self, version: u64) -> bool {
        self.durable >= version
    }
}

impl Metadata {
    /// A read-only array records no change.
    pub(crate) fn keep_nothing(&mut self) {
        self.writer.durable = self.writer.wanted;
        self.owing = false;
        for kind in MapKind::ALL {
            *self.touched(kind) = false;
            for page in 0..self.map_pages(kind) {
                self.page_state(kind, page).dirty = false;
            }
        }
        self.notify(Notice::MetadataMoved);
    }

    pub(crate) fn write_superblocks(&mut self, log_floor: u64) {
        self.tasks_to_superblock();
        self.superblock.sequence += 1;
        self.recent.version_begun();
        self.superblock.log_floor = log_floor;
        self.writer.in_flight = self.writer.wanted;
        let lent = &mut self.writer.lent_in_flight;
        lent.clone_from(&self.below.superblock.lent);
        for index in 0..self.devices.len() {
            if self.devices[index].health == Health::Good && self.devices[index].entry.is_some() {
                self.write_version(Member(index as u16), self.superblock.clone());
            }
        }
        if self.writer.outstanding == 0 {
            // No member is left to record it on: the array has failed as a whole.
            self.superblocks_written();
        }
    }

    /// Whether a member's superblock or map is behind.
    pub(crate) fn has_to_write(&mut self) -> bool {
        let maps = MapKind::ALL.into_iter().any(|kind| *self.touched(kind));
        maps || self.writer.durable != self.writer.wanted
    }

    /// Writes a version of the superblock to a member, as that member's copy.
    pub(crate) fn write_version(&mut self, member: Member, copy: Superblock) {
        let (at, pages) = self.copy_for(member, copy);
        self.writer.outstanding += 1;
        self.write_pages(Owner::Superblock, member, at, pages.into_iter());
    }

    /// A version of the superblock as a member's copy, and where that lies.
    pub(crate) fn copy_for(&self, member: Member, mut copy: Superblock) -> (u64, Vec<Page>) {
        let device = &self.devices[member.0 as usize];
        let entry = device.entry.expect("checked by the caller");
        let home = match self.planted(Bug::SuperblockInPlace) {
            true => 0,
            false => (copy.sequence & 1) as usize,
        };
        let at = device.places.superblock[home];
        copy.member = copy.members[entry as usize].uuid;
        copy.regions.clone_from(&device.regions);
        let pages = copy.encode();
        (
            at,
            pages.expect("the engine keeps its superblock within its bounds"),
        )
    }

    pub(crate) fn superblocks_written(&mut self) {
        self.writer.durable = self.writer.in_flight;
        if !self.halted() {
            self.writer.on_record = self.writer.in_flight;
        }
        if self.on_record().is_ok() {
            let writer = &mut self.writer;
            writer.lent.clone_from(&writer.lent_in_flight);
        }
        self.notify(Notice::MetadataMoved);
    }

    pub(crate) fn map_pages(&self, kind: MapKind) -> usize {
        match kind {
            MapKind::Written => self.written.pages.len(),
            MapKind::Intent => self.intent.pages.len(),
            MapKind::Lost => self.lost.pages.len(),
            MapKind::Redirected => self.redirected.pages.len(),
            MapKind::Heat => self.heat_pages.pages.len(),
        }
    }

    /// Whether the members' maps are behind the engine's. Nothing waits for heat but a stop.
    pub(crate) fn maps_dirty(&self) -> bool {
        let bits = [&self.written, &self.intent, &self.redirected];
        bits.into_iter().any(BitMap::dirty) || self.lost.dirty()
    }

    pub(crate) fn page_state(&mut self, kind: MapKind, page: usize) -> &mut PageState {
        match kind {
            MapKind::Written => &mut self.written.pages[page],
            MapKind::Intent => &mut self.intent.pages[page],
            MapKind::Lost => &mut self.lost.pages[page],
            MapKind::Redirected => &mut self.redirected.pages[page],
            MapKind::Heat => &mut self.heat_pages.pages[page],
        }
    }

    pub(crate) fn write_map(&mut self, kind: MapKind) {
        if !core::mem::take(self.touched(kind)) {
            return;
        }
        let mut left = false;
        for page in 0..self.map_pages(kind) {
            let state = self.page_state(kind, page);
            let due = state.dirty && state.writing == 0;
            if due && (kind != MapKind::Heat || self.heat_may_write()) {
                self.write_map_page(kind, page);
            }
            left |= self.page_state(kind, page).dirty;
        }
        *self.touched(kind) |= left;
    }

    pub(crate) fn touched(&mut self, kind: MapKind) -> &mut bool {
        match kind {
            MapKind::Written => &mut self.written.touched,
            MapKind::Intent => &mut self.intent.touched,
            MapKind::Lost => &mut self.lost.touched,
            MapKind::Redirected => &mut self.redirected.touched,
            MapKind::Heat => &mut self.heat_pages.touched,
        }
    }

    /// Makes every page of every map be written again, to members that were not there before. As an array
    /// starts, not those of heat: the newest counts, whichever member has it.
    pub(crate) fn rewrite_maps(&mut self) {
        let starting = self.starts();
        let kinds = MapKind::ALL.into_iter();
        for kind in kinds.filter(|&kind| kind != MapKind::Heat || !starting) {
            for page in 0..self.map_pages(kind) {
                self.page_state(kind, page).dirty = true;
                *self.touched(kind) = true;
            }
        }
    }

    fn write_map_page(&mut self, kind: MapKind, page: usize) {
        let holders: Vec<usize> = (0..self.devices.len())
            .filter(|&index| self.holds_page(index, kind, page))
            .collect();
        let state = self.page_state(kind, page);
        state.dirty = false;
        state.sequence += 1;
        state.writing = holders.len() as u32;
        let sequence = state.sequence;
        if kind.has_bits() {
            self.bit_map(kind).begin_write(page);
        }
        for &index in &holders {
            let bytes = self.encode_page(kind, page, sequence);
            let places = &self.devices[index].places;
            let place = places.map_page(kind, page as u32, sequence);
            let at = place.expect("written to holders only");
            let owner = Owner::MapPage(kind as u8, page as u16);
            self.write_pages(owner, Member(index as u16), at, core::iter::once(bytes));
        }
        if holders.is_empty() {
            self.map_page_durable(kind, page);
        }
    }

    pub(crate) fn bit_map(&mut self, kind: MapKind) -> &mut BitMap {
        match kind {
            MapKind::Written => &mut self.written,
            MapKind::Intent => &mut self.intent,
            MapKind::Redirected => &mut self.redirected,
            MapKind::Lost | MapKind::Heat => unreachable!("{kind:?} has no bits"),
        }
    }

    /// Members that are current, or are being made so, carry the maps.
    fn holds_maps(&self, index: usize) -> bool {
        let good = self.devices[index].health == Health::Good;
        let role = self.role_of(Member(index as u16)).filter(|_| good);
        matches!(role, Some(MemberRole::Active | MemberRole::Rebuilding))
    }

    /// Whether a member carries this page: not if an earlier program left no room for the map.
    fn holds_page(&self, index: usize, kind: MapKind, page: usize) -> bool {
        let places = &self.devices[index].places;
        self.holds_maps(index) && places.map_page(kind, page as u32, 0).is_some()
    }

    fn encode_page(&mut self, kind: MapKind, page: usize, sequence: u64) -> Page {
        let mut bytes = self.ops.boxes.page();
        let array = self.superblock.array;
        let index = page as u32;
        match kind {
            MapKind::Lost => {
                let held = self.lost.of_page(page);
                pages::encode_extents(array, index, sequence, &held, &mut bytes);
            }
            MapKind::Heat => {
                let (scale, popularity) = self.heat_pages.of_page(&self.heat, index);
                pages::encode_heat(array, index, sequence, scale, popularity, &mut bytes);
            }
            MapKind::Written | MapKind::Intent | MapKind::Redirected => {
                let bits = self.bit_map(kind).begin_write(page);
                pages::encode_bits(kind, array, index, sequence, bits, &mut bytes);
            }
        }
        bytes
    }

    pub(crate) fn map_page_durable(&mut self, kind: MapKind, page: usize) {
        match kind {
            _ if self.halted() => {}
            MapKind::Lost | MapKind::Heat => {}
            _ => self.bit_map(kind).written(page),
        }
        self.notify(Notice::MetadataMoved);
    }
}
