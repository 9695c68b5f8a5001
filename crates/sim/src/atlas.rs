//! Where faults may land: which cells of an array can be had, and so what redundancy still repairs.
//!
//! The media themselves are asked, not the engine: the newest superblock among the disks that are left says which
//! members are current. A plan stays within redundancy by asking here before a fault is injected; beyond it, this says
//! which sectors are lost.

use crate::array::{row_written, superblock_of};
use crate::disk::Disk;
use crate::image::Image;
use crate::oracle::Oracle;
use restripe_array::layout::{CellSet, Layout, RowMap};
use restripe_array::meta::{MemberRole, RegionKind, Superblock, WriteHole};
use restripe_array::{Row, Uuid};

/// One disk as the atlas sees it.
pub struct Place<'a> {
    pub disk: &'a Disk,
    /// By the newest superblock it carries; none on a disk that is no member.
    pub uuid: Option<Uuid>,
    data_start: u64,
}

/// Some disks of one array, at rest.
pub struct Atlas<'a> {
    layout: Layout,
    superblock: Superblock,
    /// The disk that stands in each slot and is current.
    slots: Vec<Option<Place<'a>>>,
}

impl<'a> Atlas<'a> {
    /// What `disks` make up together. `None` when none of them carries a superblock.
    pub fn of(disks: impl Iterator<Item = &'a Disk>) -> Option<Atlas<'a>> {
        Atlas::by(disks, Disk::live)
    }

    /// What they would make up if power went now and every cached write were lost.
    pub fn durably(disks: impl Iterator<Item = &'a Disk>) -> Option<Atlas<'a>> {
        Atlas::by(disks, Disk::durable)
    }

    fn by(disks: impl Iterator<Item = &'a Disk>, image: fn(&Disk) -> &Image) -> Option<Atlas<'a>> {
        let mut found: Vec<(&Disk, Superblock)> = Vec::new();
        for disk in disks.filter(|disk| !disk.faults.doomed()) {
            found.extend(superblock_of(image(disk)).map(|superblock| (disk, superblock)));
        }
        let newest = found
            .iter()
            .max_by_key(|(_, superblock)| (superblock.generation, superblock.sequence))?;
        let superblock = newest.1.clone();
        let layout = Layout::new(superblock.geometry).ok()?;
        let slot = |slot: u16| current(&superblock, slot).and_then(|uuid| place(&found, uuid));
        let slots = (0..superblock.geometry.slots).map(slot).collect();
        Some(Atlas {
            layout,
            slots,
            superblock,
        })
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The current disk of a slot.
    pub fn slot(&self, slot: u16) -> Option<&Place<'a>> {
        self.slots[usize::from(slot)].as_ref()
    }

    /// Whether a row counts as written, by the map on one of the current disks.
    pub fn written(&self, row: Row) -> bool {
        let witness = self.slots.iter().flatten().next();
        witness.is_some_and(|place| row_written(place.disk.live(), &self.superblock, row))
    }

    /// Slots without a current disk.
    pub fn absent(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_none()).count()
    }

    /// Slots whose member is current and not here: it went with the crash, or just before.
    pub fn gone(&self) -> usize {
        let slots = 0..self.superblock.geometry.slots;
        slots
            .filter(|slot| current(&self.superblock, *slot).is_some() && self.slot(*slot).is_none())
            .count()
    }

    /// Members that the newest superblock calls current, and how many of them are here.
    pub fn quorum(&self) -> (usize, usize) {
        let active = self
            .superblock
            .members
            .iter()
            .filter(|entry| entry.role == MemberRole::Active)
            .count();
        (
            active,
            self.slots.iter().filter(|slot| slot.is_some()).count(),
        )
    }

    /// The cells of a row that can be read at this offset.
    fn available(&self, map: &RowMap, offset: u64) -> CellSet {
        let readable = |cell: &u8| {
            let cell = &map.cells[usize::from(*cell)];
            let place = self.slots[usize::from(cell.slot.0)].as_ref();
            place.is_some_and(|place| {
                !place
                    .disk
                    .faults
                    .unreadable(place.data_start + cell.at + offset)
            })
        };
        (0..map.width)
            .filter(readable)
            .fold(CellSet::EMPTY, CellSet::with)
    }

    /// Whether every sector of the array can be had, with the disk in `without` gone too.
    pub fn whole(&self, without: Option<u16>) -> bool {
        let mut offsets: Vec<(u64, u64)> = vec![];
        for row in 0..self.layout.rows() {
            offsets.extend([(row, 0)]);
        }
        for (slot, place) in self.slots.iter().enumerate() {
            offsets.extend(
                place
                    .iter()
                    .flat_map(|place| self.latent(slot as u16, place)),
            );
        }
        offsets
            .into_iter()
            .all(|(row, offset)| self.decodable(Row(row), offset, without))
    }

    /// Whether enough members are current and here, whatever they cannot read.
    pub fn stands(&self) -> bool {
        let absent = |slot: restripe_array::Slot| self.slot(slot.0).is_none();
        self.layout.decodable_without(absent)
    }

    /// Rows and offsets that a disk cannot read.
    fn latent(&self, slot: u16, place: &Place) -> Vec<(u64, u64)> {
        let end = place.data_start + self.layout.geometry().slot_sectors;
        let within = place
            .disk
            .faults
            .latent()
            .filter(|at| (place.data_start..end).contains(at));
        let row = |at: u64| {
            let at = at - place.data_start;
            let row = self.layout.row_at(restripe_array::Slot(slot), at)?;
            Some((row.0, at % self.layout.chunk_sectors()))
        };
        within.filter_map(row).collect()
    }

    fn decodable(&self, row: Row, offset: u64, without: Option<u16>) -> bool {
        let map = self.layout.row(row);
        let mut available = self.available(&map, offset);
        if let Some(cell) = without.and_then(|slot| map.cell_on(restripe_array::Slot(slot))) {
            available = available.without(cell);
        }
        map.decodable(available)
    }

    /// Whether a sector of the array can be had.
    pub fn readable(&self, lba: u64) -> bool {
        let place = self.layout.place(lba);
        let map = self.layout.row(place.row);
        let available = self.available(&map, place.offset);
        available.contains(place.data) || map.recover(place.data, available).is_some()
    }

    /// Whether a sector of a slot may become unreadable and redundancy still reach.
    pub fn spares_sector(&self, slot: u16, at: u64) -> bool {
        let Some(row) = self.layout.row_at(restripe_array::Slot(slot), at) else {
            return false;
        };
        self.decodable(row, at % self.layout.chunk_sectors(), Some(slot))
    }

    /// Tells the oracle what a start of these disks after a crash may cost, by what the write hole promises: with
    /// partial parity the sectors that were in flight, where a cell of their row is missing; else anything, since a
    /// code that is not in step brings nothing back. `lost_lately`: a member was lost while writes were under way that
    /// may not be durable yet.
    pub fn grant_losses(&self, write_hole: WriteHole, lost_lately: bool, oracle: &mut Oracle) {
        let latent = |place: &Place| place.disk.faults.latent().next().is_some();
        let latent = self.slots.iter().flatten().any(latent);
        if !self.layout.parity() || !(latent || self.absent() > 0) {
            return;
        }
        let dirty = write_hole != WriteHole::Ppl && !self.superblock.clean;
        if self.superblock.resync_pending {
            return oracle.allow_all_losses();
        }
        // A write that begins in a row short of a cell goes in two logged steps: it costs nothing.
        if !dirty && !latent && !lost_lately && self.gone() == 0 {
            return;
        }
        let open: Vec<u64> = (0..oracle.sectors())
            .filter(|lba| dirty || oracle.unsettled(*lba))
            .collect();
        open.into_iter().for_each(|lba| oracle.allow_loss(lba));
    }

    /// Where a slot's set data start on its disk.
    pub fn data_start(&self, slot: u16) -> Option<u64> {
        self.slots[usize::from(slot)]
            .as_ref()
            .map(|place| place.data_start)
    }
}

fn current(superblock: &Superblock, slot: u16) -> Option<Uuid> {
    let placement = superblock
        .placement
        .iter()
        .find(|placement| placement.slot == slot)?;
    let entry = superblock.members.get(usize::from(placement.member?))?;
    (entry.role == MemberRole::Active).then_some(entry.uuid)
}

fn place<'a>(found: &[(&'a Disk, Superblock)], uuid: Uuid) -> Option<Place<'a>> {
    let (disk, superblock) = found
        .iter()
        .find(|(_, superblock)| superblock.member == uuid)?;
    let data_start = superblock.region(RegionKind::Data)?.start;
    Some(Place {
        disk,
        uuid: Some(uuid),
        data_start,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Spec;
    use crate::disk::Simple;
    use crate::fault::Fault;
    use restripe_array::Nanos;
    use restripe_array::layout::{Level, Rotation};

    fn disks(level: Level, slots: u16) -> Vec<Disk> {
        let spec = Spec::small(level, slots);
        let device = || Box::new(Simple::new(Nanos(1), 1 << 30, Nanos(0)));
        let images = spec.format(None).expect("a sound specification");
        images
            .into_iter()
            .enumerate()
            .map(|(i, image)| spec.disk(i as u16, image, device(), 1))
            .collect()
    }

    #[test]
    fn losses_count_up_to_the_tolerance() {
        let mut disks = disks(Level::Raid6(Rotation::default()), 5);
        for lost in 0..3 {
            let atlas = Atlas::of(disks.iter()).expect("an array");
            assert_eq!(
                (atlas.absent(), atlas.whole(None), atlas.whole(Some(4))),
                (lost, true, lost < 2)
            );
            disks[lost].faults.inject(Fault::Death);
        }
        let atlas = Atlas::of(disks.iter()).expect("an array");
        let readable = (0..atlas.layout().size_sectors())
            .filter(|lba| atlas.readable(*lba))
            .count() as u64;
        assert!(!atlas.whole(None) && readable > 0 && readable < atlas.layout().size_sectors());
    }

    #[test]
    fn latent_errors_count_where_they_are() {
        let mut disks = disks(Level::Raid5(Rotation::default()), 4);
        let start = Atlas::of(disks.iter())
            .expect("an array")
            .data_start(1)
            .expect("present");
        disks[1].faults.inject(Fault::Latent {
            at: start + 5,
            sectors: 1,
        });
        let atlas = Atlas::of(disks.iter()).expect("an array");
        assert!(atlas.whole(None) && !atlas.whole(Some(2)) && atlas.whole(Some(1)));
        assert!(!atlas.spares_sector(2, 5) && atlas.spares_sector(2, 6));
    }
}
