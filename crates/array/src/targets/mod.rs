//! Targets: the floor above safety.
//!
//! Decides which members and spare partitions are filled for a slot, takes spares for a growth, and puts
//! targets in service when they are filled. Owns no state of its own: places are the roles among the facts.
//! Asks safety and the floors beneath. Sends no notice.

mod places;

use crate::config::Config;
use crate::contract::{CommandError, TaskKind, refusals};
use crate::layout::scaled::History;
use crate::layout::{Geometry, Layout, Level};
use crate::members::pool::Share;
use crate::report::{ArrayState, GrowthPlan};
use crate::roles::PartitionRoles;
use crate::safety::Safety;
use crate::units::{CELLS_MAX, Member, Row, SECTOR_BYTES, Slot};
use alloc::vec::Vec;
use restripe_format::meta::pages;
use restripe_format::meta::superblock::{MemberRole, RegionKind};

pub(crate) const TOO_MANY: &str = "the array would exceed the maximum number of members";

pub struct Targets {
    pub(crate) below: Safety,
}

floor!(Targets, Safety);

impl Targets {
    pub(crate) fn new(config: Config, share: Share) -> Targets {
        Targets {
            below: Safety::new(config, share),
        }
    }

    /// Rows in whose extents a generation is written.
    pub(crate) fn rows_of_generation(&self, generation: u8) -> u64 {
        let extents = (0..self.extents()).filter(|nth| self.has_generation(*nth, generation));
        (extents.count() as u64 * self.superblock.extent_rows).min(self.layout.rows())
    }

    pub(crate) fn least_growth_plan(&self, by: u16) -> Result<GrowthPlan, CommandError> {
        let grown = self.layout_grown_by(by)?;
        let chunk = self.layout.chunk_sectors() * SECTOR_BYTES;
        let cells = |generations| u64::from(self.layout.cells_through(generations));
        let generations = 0..self.layout.generations();
        let chunks: u64 = generations
            .map(|nth| self.rows_of_generation(nth) * (cells(nth + 1) - cells(nth)))
            .sum();
        Ok(GrowthPlan {
            slots: grown.geometry().slots,
            size_bytes: grown.size_sectors() * SECTOR_BYTES,
            moved_bytes: chunks * u64::from(by) / grown.data_cells() * chunk,
            least_moves: true,
            member_bytes: self.rows_of_generation(0) * chunk * self.layout.data_cells()
                / grown.data_cells(),
            needs_bytes: self.needs_sectors() * SECTOR_BYTES,
            parity: self.parity_slot().and_then(|slot| self.member_of(slot)),
            pacing: self.tasks.pacing(TaskKind::Growth),
        })
    }

    /// The slot with the parity of all rows, of an array that grows by the least moves. None without parity.
    pub(crate) fn parity_slot(&self) -> Option<Slot> {
        let map = self.row_map(Row(0));
        Some(map.cells[usize::from(map.p()?)].slot)
    }

    fn member_of(&self, slot: Slot) -> Option<Member> {
        Some(self.roles_at(slot, Row(0)).home?.member)
    }

    /// The layout with `by` more slots, or why the array cannot grow to it now.
    pub(crate) fn layout_grown_by(&self, by: u16) -> Result<Layout, CommandError> {
        self.check_may_grow(by)?;
        let geometry = self.grown_by(by)?;
        let layout = Layout::new(geometry).map_err(|_| CommandError::Unsuited(TOO_MANY))?;
        self.check_has_room(&layout)?;
        Ok(layout)
    }

    fn check_may_grow(&self, by: u16) -> Result<(), CommandError> {
        let unsuited = |why| Err(CommandError::Unsuited(why));
        let Geometry { level, skew, .. } = self.superblock.geometry;
        if skew.is_some() {
            return unsuited("arrays with groups cannot grow");
        }
        match level {
            Level::Raid0 | Level::Raid4 => self.check_free_to_grow(by),
            Level::Raid5(_) | Level::Raid6(_) => {
                unsuited("levels 5 and 6 do not grow by the least moves")
            }
            Level::Raid1 | Level::Raid10 { .. } => unsuited("arrays of level 1 and 10 cannot grow"),
            Level::ReedSolomon { .. } => unsuited("arrays of three parities or more cannot grow"),
        }
    }

    /// Whether nothing else keeps the array busy, and nobody has a part in it.
    pub(crate) fn check_free_to_grow(&self, by: u16) -> Result<(), CommandError> {
        let refused = |why| Err(CommandError::Busy(why));
        if by == 0 {
            return refused("a growth needs at least one new member");
        }
        if self.state != ArrayState::Healthy || !self.complete() {
            return refused("a degraded array cannot grow");
        }
        if !self.tasks.list.is_empty() {
            return refused("a task is running: wait for it");
        }
        if self.superblock.partner.is_some() && self.log_set().is_none() {
            return refused(refusals::LOG_SET_CANNOT_GROW);
        }
        if !self.superblock.lent.is_empty() {
            return refused("an array with space for leases cannot grow");
        }
        Ok(())
    }

    fn grown_by(&self, by: u16) -> Result<Geometry, CommandError> {
        let geometry = self.superblock.geometry;
        let data = geometry.slots - geometry.level.parities();
        let mask = geometry
            .grown
            .map_or(1 << (data - 1), |history| history.mask());
        let grown = data.checked_add(by).filter(|grown| *grown > data);
        let grown = grown.filter(|grown| usize::from(*grown) <= CELLS_MAX);
        let history = grown.and_then(|grown| History::of_mask(mask | 1 << (grown - 1)));
        Ok(Geometry {
            slots: geometry.slots + by,
            grown: Some(history.ok_or(CommandError::Unsuited(TOO_MANY))?),
            ..geometry
        })
    }

    /// In the map of what is written, and in memory.
    fn check_has_room(&self, layout: &Layout) -> Result<(), CommandError> {
        let region = self.superblock.region(RegionKind::Written);
        let pages = region.map_or(0, |region| pages::pages_in(region.sectors));
        let bits = u64::from(layout.generations()) * self.extents();
        if bits > pages * pages::BITS_PER_PAGE {
            return Err(CommandError::Unsuited(
                "the array's written map has no space for the growth",
            ));
        }
        if self.log_set().is_some() && self.redirected_bits_of(layout) == 0 {
            return Err(CommandError::Busy(refusals::NO_SPACE_TO_GROW));
        }
        if self.config.limits.pool.large < 2 * (u32::from(layout.width()) + 5) {
            return Err(CommandError::Busy("too few buffers for rows so wide"));
        }
        Ok(())
    }

    /// As many spares as are asked for: those that came last.
    pub(crate) fn spares_to_take(&self, by: u16) -> Result<Vec<Member>, CommandError> {
        let mut spares: Vec<Member> = self.spares().collect();
        let Some(first) = spares.len().checked_sub(by.into()) else {
            return Err(CommandError::Busy(
                "the array has too few spares: add some first",
            ));
        };
        Ok(spares.split_off(first))
    }

    /// A spare serves the next slot.
    pub(crate) fn take_slot(&mut self, member: Member) {
        let home = self.home_on(member, 0, 0);
        let incoming = None;
        self.roles.add_slot(PartitionRoles { home, incoming });
        self.begin_member(member);
        let entry = self.devices[member.0 as usize]
            .entry
            .expect("a spare is in the table");
        let facts = self.facts();
        let line = &mut facts.superblock.members[usize::from(entry)];
        line.role = MemberRole::Active;
        line.current_since = facts.superblock.generation;
    }
}
