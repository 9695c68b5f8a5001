//! The cells of an array that can be read, and so the faults that redundancy can still repair.
//!
//! The answer comes from the media and not from the engine: the newest superblock among the remaining disks
//! says which members are current. A plan that stays within redundancy asks here before it injects a fault.
//! For a plan that goes beyond, this module computes the lost sectors.

use crate::array::{Lies, generations_written, superblock_of};
use crate::disk::Disk;
use crate::image::Image;
use crate::oracle::Oracle;
use crate::world::{World, active, members_in};
use restripe_array::layout::{CellSet, Layout, RowMap};
use restripe_array::meta::{MemberEntry, MemberRole, Superblock, TaskRecord, WriteHole};
use restripe_array::report::MemberState;
use restripe_array::{Member, Row, Slot, TaskKind, Uuid};
use restripe_tier::Engine;

/// Where a partition of a slot lies.
pub struct Spot<'a> {
    pub disk: &'a Disk,
    pub member: Uuid,
    lies: Lies,
}

impl Spot<'_> {
    /// The sector of the disk at which this sector of the slot lies.
    pub fn at(&self, slot_sector: u64) -> u64 {
        self.lies.at(slot_sector)
    }
}

/// Some disks of one array, at rest.
pub struct Atlas<'a> {
    layout: Layout,
    superblock: Superblock,
    /// Where the partitions of each slot lie that are on a disk that is current.
    slots: Vec<Vec<Option<Spot<'a>>>>,
    /// While it grows: the rows that are moved durably.
    moved: Option<Vec<(u64, u64)>>,
    /// A member is not here that was being filled.
    filling_gone: bool,
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

    /// What the active members of a running array make up.
    pub fn active(world: &'a World<Engine>) -> Option<Atlas<'a>> {
        let active = members_in(&world.status(), MemberState::Active);
        Atlas::of(active.into_iter().map(|member| world.disk(member)))
    }

    /// The active member on which this sector of a slot lies in a row, and the sector of the member.
    pub(crate) fn on_active(
        world: &World<Engine>,
        slot: Slot,
        row: Row,
        at: u64,
    ) -> Option<(Member, u64)> {
        let atlas = Atlas::active(world)?;
        let spot = atlas.spot_of(slot.0, row)?;
        Some((active(&world.status(), spot.member)?, spot.at(at)))
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
        let layout = superblock.layout().ok()?;
        let grows = |task: &&TaskRecord| task.kind == TaskKind::Growth;
        let mut growths = superblock.tasks.iter().filter(|_| layout.is_growing());
        let moved = growths.find(grows).map(|growth| growth.done.clone());
        let spot = |slot, partition| spot(&found, &superblock, slot, partition);
        let slot = |slot| {
            let partitions = 0..layout.partitions();
            partitions.map(|partition| spot(slot, partition)).collect()
        };
        let slots = (0..superblock.geometry.slots).map(slot).collect();
        Some(Atlas {
            layout,
            slots,
            filling_gone: filling_gone(&found, &superblock),
            superblock,
            moved,
        })
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Where a sector of a slot lies.
    pub fn spot(&self, slot: u16, at: u64) -> Option<&Spot<'a>> {
        let row = self.layout.row_at(Slot(slot), at)?;
        self.spot_of(slot, row)
    }

    /// Where a slot's cell of a row lies.
    pub fn spot_of(&self, slot: u16, row: Row) -> Option<&Spot<'a>> {
        let partition = self.layout.partition_of(row);
        self.slots[usize::from(slot)][usize::from(partition)].as_ref()
    }

    /// The first sector of a slot's own disk that cannot be read, as one of the slot.
    pub fn first_latent(&self, slot: u16) -> Option<u64> {
        let spot = self.spot(slot, 0)?;
        let at = spot.disk.faults.latent().next()?.checked_sub(spot.at(0))?;
        (at < self.layout.geometry().slot_sectors).then_some(at)
    }

    /// The slot, and the sector of it, that lies at this sector of a member.
    pub fn slot_sector(&self, member: Uuid, at: u64) -> Option<(u16, u64)> {
        let each = self.layout.geometry().partition_sectors();
        let partitions = u64::from(self.layout.partitions());
        let froms = || (0..partitions).map(|partition| partition * each);
        (0..).zip(&self.slots).find_map(|(slot, spots)| {
            let parts = froms().zip(spots);
            let mut own = parts.filter_map(|(from, spot)| Some((from, spot.as_ref()?)));
            own.find_map(|(from, spot)| {
                let within = at.checked_sub(spot.at(from))?;
                (spot.member == member && within < each).then_some((slot, from + within))
            })
        })
    }

    fn spots(&self) -> impl Iterator<Item = &Spot<'a>> {
        self.slots.iter().flatten().flatten()
    }

    /// Whether a current disk is this member.
    pub fn serves(&self, member: Uuid) -> bool {
        self.spots().any(|spot| spot.member == member)
    }

    /// Whether a row counts as written, by the map on one of the current disks.
    pub fn written(&self, row: Row) -> bool {
        self.generations(row) > 0
    }

    /// How many generations of its data cells do.
    pub fn generations(&self, row: Row) -> u8 {
        let witness = self.spots().next();
        let generations = |spot: &Spot| {
            generations_written(spot.disk.live(), &self.superblock, &self.layout, row)
        };
        witness.map_or(0, generations)
    }

    /// Whether the sector counts as written.
    pub fn written_at(&self, lba: u64) -> bool {
        let place = self.layout.place(lba);
        self.layout.generation_of(place.data) < self.generations(place.row)
    }

    /// The cells that are part of a row; of one in which nothing is written, all there will be.
    pub fn row(&self, row: Row) -> RowMap {
        match self.generations(row) {
            0 => self.full_row(row),
            some => self.row_with(row, some),
        }
    }

    /// All cells that there will be.
    fn full_row(&self, row: Row) -> RowMap {
        self.row_with(row, self.layout.generations())
    }

    fn row_with(&self, row: Row, generations: u8) -> RowMap {
        let is_in = |(first, count): &(u64, u64)| (*first..first + count).contains(&row.0);
        let moved = self.moved.as_ref();
        match moved.is_none_or(|moved| moved.iter().any(is_in)) {
            true => self.layout.row_through(row, generations),
            false => self.layout.row_before(row, generations),
        }
    }

    /// A row as it may be for all that can become of it: with every cell, and on both places while it grows.
    fn prospects(&self, row: Row) -> impl Iterator<Item = RowMap> {
        let before = self
            .moved
            .as_ref()
            .map(|_| self.layout.row_before(row, self.layout.generations()));
        let reshaping = self.layout.is_reshaping();
        let former = reshaping.then(|| self.layout.former_row(row));
        let new = self.layout.new_row(row);
        before.into_iter().chain(former).chain([new])
    }

    /// Slots that have no current disk, or not for every partition.
    pub fn absent(&self) -> usize {
        let short = |slot: &&Vec<Option<Spot>>| slot.iter().any(Option::is_none);
        self.slots.iter().filter(short).count()
    }

    /// Slots with a member that is current and not here: it went with the crash, or just before.
    pub fn gone(&self) -> usize {
        let away = |slot: u16, partition: usize| {
            let here = self.slots[usize::from(slot)][partition].is_some();
            !here && current(&self.superblock, slot, partition as u16).is_some()
        };
        let partitions = usize::from(self.layout.partitions());
        let slots = 0..self.superblock.geometry.slots;
        let absent = slots.filter(|slot| (0..partitions).any(|partition| away(*slot, partition)));
        absent.count()
    }

    /// The cells of a row that can be read at this offset.
    fn available(&self, map: &RowMap, offset: u64) -> CellSet {
        let readable = |cell: &u8| {
            let cell = &map.cells[usize::from(*cell)];
            let spot = self.spot_of(cell.slot.0, map.row);
            spot.is_some_and(|spot| !spot.disk.faults.unreadable(spot.at(cell.at + offset)))
        };
        let cells = (0..map.width).filter(readable);
        cells.fold(CellSet::EMPTY, CellSet::with)
    }

    /// The cells of a row that lie on this member.
    fn cells_on(&self, map: &RowMap, member: Uuid) -> CellSet {
        let there = |cell: &u8| {
            let spot = self.spot_of(map.cells[usize::from(*cell)].slot.0, map.row);
            spot.is_some_and(|spot| spot.member == member)
        };
        let cells = (0..map.width).filter(there);
        cells.fold(CellSet::EMPTY, CellSet::with)
    }

    /// Whether enough members are current and here, whatever they cannot read.
    pub fn stands(&self) -> bool {
        let absent = |slot: Slot, partition| {
            self.slots[usize::from(slot.0)][usize::from(partition)].is_none()
        };
        self.layout.decodable_without_parts(absent)
    }

    /// Whether every sector of the array can be had, with the member in `without` gone too, and could be if every cell were
    /// part of its row: it may just become that.
    pub fn whole(&self, without: Option<Uuid>) -> bool {
        let rows = (0..self.layout.rows()).map(|row| (row, 0));
        let latent = (0..).zip(&self.slots).flat_map(|(slot, spots)| {
            let parts = (0..).zip(spots);
            parts.flat_map(move |(partition, spot)| {
                let spot = spot.iter();
                spot.flat_map(move |spot| self.latent(slot, partition, spot))
            })
        });
        rows.chain(latent).all(|(row, offset)| {
            self.prospects(Row(row)).all(|map| {
                let gone = without.map_or(CellSet::EMPTY, |member| self.cells_on(&map, member));
                map.decodable(self.available(&map, offset).minus(gone))
            })
        })
    }

    /// Rows and offsets that a disk cannot read of a partition.
    fn latent(&self, slot: u16, partition: u16, spot: &Spot) -> Vec<(u64, u64)> {
        let each = self.layout.geometry().partition_sectors();
        let from = u64::from(partition) * each;
        let lies = spot.at(from)..spot.at(from) + each;
        let latent = spot.disk.faults.latent();
        let row = |at: u64| {
            let at = at - lies.start + from;
            let row = self.layout.row_at(Slot(slot), at)?;
            Some((row.0, at % self.layout.chunk_sectors()))
        };
        let latent = latent.filter(|at| lies.contains(at));
        latent.filter_map(row).collect()
    }

    /// Whether a sector of the array can be had. What is no part of its row is zeros.
    pub fn readable(&self, lba: u64) -> bool {
        let place = self.layout.place(lba);
        let map = self.row(place.row);
        let available = self.available(&map, place.offset);
        if place.data >= map.data {
            return true;
        }
        available.contains(place.data) || map.recover(place.data, available).is_some()
    }

    /// Whether a sector of the array can be had now, and still can when its cell has become part of its row.
    pub(crate) fn stays_readable(&self, lba: u64) -> bool {
        let place = self.layout.place(lba);
        if place.data < self.row(place.row).data {
            return self.readable(lba);
        }
        self.outlives_first_write(lba)
    }

    /// Whether a sector of the array can still be had when all cells have become part of its row.
    /// The first write puts zeros into new cells on the disks that are here, which mends what cannot be read
    /// there. Of a new cell on any other disk, only the row's code records that it is zeros: where an older
    /// cell cannot be read either, the code gives neither.
    pub(crate) fn outlives_first_write(&self, lba: u64) -> bool {
        let place = self.layout.place(lba);
        let now = self.row(place.row).data;
        let map = self.full_row(place.row);
        let here = |cell: &u8| {
            let slot = map.cells[usize::from(*cell)].slot;
            self.spot_of(slot.0, place.row).is_some()
        };
        let zeroed = (now..map.data).filter(here);
        let available = zeroed.fold(self.available(&map, place.offset), CellSet::with);
        available.contains(place.data) || map.recover(place.data, available).is_some()
    }

    /// Whether a sector of a slot may become unreadable and redundancy still reach.
    pub fn spares_sector(&self, slot: u16, at: u64) -> bool {
        let Some(row) = self.layout.row_at(Slot(slot), at) else {
            return false;
        };
        let offset = at % self.layout.chunk_sectors();
        self.prospects(row).all(|map| {
            let available = self.available(&map, offset);
            let left = map.cell_on(Slot(slot)).map(|cell| available.without(cell));
            map.decodable(left.unwrap_or(available))
        })
    }

    /// Tells the oracle what a start of these disks after a crash may cost, by what the write hole promises: with
    /// partial parity the sectors that were in flight, where a cell of their row is missing; else anything, since a
    /// code that is not in step brings nothing back. `lost_lately`: a member was lost while writes were under way that
    /// may not be durable yet.
    pub fn grant_losses(&self, write_hole: WriteHole, lost_lately: bool, oracle: &mut Oracle) {
        let latent = |spot: &Spot| spot.disk.faults.latent().next().is_some();
        let latent = self.spots().any(latent);
        if !self.layout.parity() || !(latent || self.absent() > 0) {
            return;
        }
        let dirty = write_hole != WriteHole::Ppl && !self.superblock.clean;
        if self.superblock.resync_pending {
            return oracle.allow_all_losses();
        }
        // A write that begins in a row short of a cell goes in two logged steps: it costs nothing. A row that
        // a member had been filled in was not short.
        let gone = self.gone() > 0 || self.filling_gone;
        if !dirty && !latent && !lost_lately && !gone {
            return;
        }
        let open: Vec<u64> = (0..oracle.sectors())
            .filter(|lba| dirty || oracle.unsettled(*lba))
            .collect();
        open.into_iter().for_each(|lba| oracle.allow_loss(lba));
    }
}

fn filling_gone(found: &[(&Disk, Superblock)], superblock: &Superblock) -> bool {
    let here = |uuid| found.iter().any(|(_, own)| own.member == uuid);
    let filling = |entry: &&MemberEntry| entry.role == MemberRole::Rebuilding;
    let mut filled = superblock.members.iter().filter(filling);
    filled.any(|entry| !here(entry.uuid))
}

fn current(superblock: &Superblock, slot: u16, partition: u16) -> Option<Uuid> {
    let placement = superblock.placement_of(slot, partition)?;
    let entry = superblock.members.get(usize::from(placement.member?))?;
    (entry.role == MemberRole::Active).then_some(entry.uuid)
}

fn spot<'a>(
    found: &[(&'a Disk, Superblock)],
    superblock: &Superblock,
    slot: u16,
    partition: u16,
) -> Option<Spot<'a>> {
    let member = current(superblock, slot, partition)?;
    let (disk, own) = found.iter().find(|(_, own)| own.member == member)?;
    let region = superblock.placement_of(slot, partition)?.region;
    let lies = Lies::of(superblock, own, region, partition)?;
    Some(Spot { disk, member, lies })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::{Spec, tests::disks};
    use crate::fault::Fault;
    use restripe_array::layout::{Level, Rotation};

    #[test]
    fn losses_count_up_to_the_tolerance() {
        let mut disks = disks(&Spec::small(Level::Raid6(Rotation::default()), 5));
        for lost in 0..3 {
            let atlas = Atlas::of(disks.iter()).expect("an array");
            let fourth = atlas.spot(4, 0).map(|spot| spot.member);
            assert_eq!((atlas.absent(), atlas.whole(None)), (lost, true));
            assert_eq!(atlas.whole(fourth), lost < 2);
            disks[lost].faults.inject(Fault::Death);
        }
        let atlas = Atlas::of(disks.iter()).expect("an array");
        let size = atlas.layout().size_sectors();
        let readable = (0..size).filter(|lba| atlas.readable(*lba)).count() as u64;
        assert!(!atlas.whole(None) && readable > 0 && readable < size);
    }

    /// What was written in rows that it had been filled with went in one step: a crash may cost it.
    #[test]
    fn a_member_that_was_being_filled_is_missed() {
        let disks = disks(&Spec::small(Level::Raid5(Rotation::default()), 4));
        let with = |disk| Some((disk, superblock_of(Disk::live(disk))?));
        let found: Vec<(&Disk, Superblock)> = disks[1..].iter().filter_map(with).collect();
        let mut superblock = found[0].1.clone();
        assert!(!filling_gone(&found, &superblock), "a failed one was not");
        superblock.members[1].role = MemberRole::Rebuilding;
        assert!(!filling_gone(&found, &superblock), "it is here");
        superblock.members[0].role = MemberRole::Rebuilding;
        assert!(filling_gone(&found, &superblock));
    }

    #[test]
    fn latent_errors_count_where_they_are() {
        let mut disks = disks(&Spec::small(Level::Raid5(Rotation::default()), 4));
        let spoiled = |disks: &[Disk]| {
            let atlas = Atlas::of(disks.iter()).expect("an array");
            atlas.spot(1, 5).expect("present").at(5)
        };
        let at = spoiled(&disks);
        disks[1].faults.inject(Fault::Latent { at, sectors: 1 });
        let atlas = Atlas::of(disks.iter()).expect("an array");
        let member = |slot| atlas.spot(slot, 0).map(|spot| spot.member);
        assert!(atlas.whole(None) && !atlas.whole(member(2)) && atlas.whole(member(1)));
        assert!(!atlas.spares_sector(2, 5) && atlas.spares_sector(2, 6));
    }
}
