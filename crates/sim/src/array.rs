//! Arrays for a world: from a specification to formatted disks, and from disks back to their contents.

use crate::disk::{Device, Disk, DiskConfig, read_page};
use crate::image::Image;
use crate::payload::Payload;
use crate::rng::{Rng, mix};
use restripe_array::layout::scaled::History;
use restripe_array::layout::{Cell, Layout, Level, RowMap, Skew};
use restripe_array::meta::{
    Content, CreateError, CreateOptions, Creation, Init, MapKind, Partner, RegionKind, Superblock,
    WriteHole, create, pages, superblock,
};
use restripe_array::{MemberInfo, Pool, Row, SECTOR_BYTES, Uuid};

/// What an array is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    pub level: Level,
    pub skew: Option<Skew>,
    /// Made as if it had grown so.
    pub grown: Option<History>,
    /// On each member, room for so many partitions of others.
    pub spare_partitions: u16,
    pub slots: u16,
    pub spares: u16,
    pub chunk_sectors: u32,
    /// Chunks of set data on each member.
    pub chunks: u64,
    pub write_hole: WriteHole,
    pub init: Init,
    pub payload: Payload,
    /// Members have a write cache that a power cut empties.
    pub volatile: bool,
    pub depth: u32,
    /// Of the first member; each further one has `uneven_sectors` more.
    pub member_sectors: u64,
    pub uneven_sectors: u64,
    pub logical_block: u32,
    pub trim_zeroes: bool,
    pub extent_rows: Option<u64>,
    pub intent_rows: Option<u64>,
    /// What tells this array and its members from others of a world: see [`Spec::uuid`].
    pub identity: u64,
    pub partner: Option<Partner>,
    /// The log that it is has a buffer.
    pub buffered: bool,
}

impl Spec {
    /// A small array of this kind, all else by default.
    pub fn small(level: Level, slots: u16) -> Spec {
        Spec {
            level,
            skew: None,
            grown: None,
            spare_partitions: 0,
            slots,
            spares: 0,
            chunk_sectors: 16,
            chunks: 16,
            write_hole: WriteHole::default_for(level),
            init: Init::Written,
            payload: Payload::Tokens,
            volatile: true,
            depth: 16,
            member_sectors: 2048,
            uneven_sectors: 0,
            logical_block: 512,
            trim_zeroes: true,
            extent_rows: None,
            intent_rows: None,
            identity: 0,
            partner: None,
            buffered: false,
        }
    }

    /// The array's own.
    pub fn uuid(&self) -> Uuid {
        uuid(0xa11 + self.identity)
    }

    pub fn info(&self, member: u16) -> MemberInfo {
        MemberInfo {
            sectors: self.member_sectors + self.uneven_sectors * u64::from(member),
            logical_block: self.logical_block,
            trim_zeroes: self.trim_zeroes,
            fast_zero: self.trim_zeroes,
            volatile: false,
        }
    }

    fn options(&self) -> CreateOptions {
        let mut options = CreateOptions::new("swarm", self.uuid(), self.level, self.chunk_sectors);
        options.geometry.skew = self.skew;
        options.geometry.grown = self.grown;
        options.spare_partitions = self.spare_partitions;
        let members = 0..self.slots + self.spares;
        options.members = members.clone().map(|member| self.info(member)).collect();
        let own = |member: u16| uuid(self.identity + u64::from(member) + 1);
        options.uuids = members.map(own).collect();
        options.spares = self.spares.into();
        options.write_hole = self.write_hole;
        options.init = self.init;
        options.created = 1;
        options.size_per_member = Some(self.chunks * u64::from(self.chunk_sectors));
        options.extent_rows = self.extent_rows;
        options.intent_rows = self.intent_rows;
        options.partner = self.partner;
        options.buffered = self.buffered;
        options
    }

    pub fn create(&self) -> Result<Creation, CreateError> {
        create(&self.options())
    }

    /// The members of a new array, in the order of its slots and then the spares. `dirt` seeds the bytes of an earlier owner
    /// on the disks. A create that keeps what lies there makes them the array's contents.
    pub fn format(&self, dirt: Option<u64>) -> Result<Vec<Image>, CreateError> {
        self.format_over(dirt, dirt)
    }

    /// The same with spares that have other such bytes: a spare holds nothing of the array, however that was created.
    pub(crate) fn format_over(
        &self,
        dirt: Option<u64>,
        of_spares: Option<u64>,
    ) -> Result<Vec<Image>, CreateError> {
        let creation = self.create()?;
        let slots = (0..self.slots).map(|member| self.blank(member, dirt));
        let spares = self.slots..self.slots + self.spares;
        let spares = spares.map(|member| self.blank(member, of_spares));
        let mut images: Vec<Image> = slots.chain(spares).collect();
        for (member, at, content) in &creation.writes {
            match content {
                Content::Page(page) => images[*member].write_full(*at, &page[..]),
                Content::Zero(sectors) => images[*member].zero(*at, *sectors),
            }
        }
        Ok(images)
    }

    /// A disk that was never a member. `dirt` seeds the bytes of an earlier owner.
    pub fn blank(&self, member: u16, dirt: Option<u64>) -> Image {
        let sectors = self.info(member).sectors;
        let mut image = Image::new(self.payload, sectors);
        if let (Some(seed), true) = (dirt, self.payload != Payload::None) {
            let mut rng = Rng::new(seed ^ u64::from(member));
            let unit = self.payload.unit();
            let mut data = vec![0; EARLIER_SECTORS * unit];
            data.chunks_exact_mut(unit)
                .for_each(|sector| self.payload.fill(sector, rng.word()));
            let mut data = data.repeat((sectors as usize).div_ceil(EARLIER_SECTORS));
            data.truncate(sectors as usize * unit);
            image.write_data(0, sectors, &data);
        }
        image
    }

    /// A disk of this array's kind.
    pub fn disk(&self, member: u16, image: Image, device: Box<dyn Device>, seed: u64) -> Disk {
        let config = DiskConfig {
            info: self.info(member),
            volatile: self.volatile,
            depth: self.depth,
        };
        Disk::new(config, image, device, Rng::new(seed ^ u64::from(member)))
    }
}

/// The bytes of an earlier owner repeat after this many sectors. The contents do not matter, and take time to make.
const EARLIER_SECTORS: usize = 61;

/// The bytes of an earlier owner, for disks that have this seed: a stream of its own. One seed in three has them: they
/// take time.
pub fn earlier(seed: u64) -> Option<u64> {
    let own = mix(seed ^ 0x01d_b17e5);
    own.is_multiple_of(3).then_some(own)
}

/// Buffers for this many requests of each size.
pub(crate) fn pool(small: u32, large: u32) -> Pool {
    Pool { small, large }
}

/// An identifier made of a small number.
pub fn uuid(number: u64) -> Uuid {
    let mut bytes = [0x5a; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    Uuid(bytes)
}

/// The newest sound superblock on a medium.
pub fn superblock_of(image: &Image) -> Option<Superblock> {
    let places = std::iter::once(superblock::SUPER_A_AT).chain(superblock::SUPER_B_PLACES);
    let fits = |at: &u64| at + superblock::SUPERBLOCK_SECTORS <= image.sectors();
    let mut candidates: Vec<((u64, u64), u64)> = places
        .filter(fits)
        .filter_map(|at| Some((claimed_age(image, at)?, at)))
        .collect();
    // Checksums are most of the work of a run: the newest first, and mostly no other.
    candidates.sort_unstable_by(|one, other| other.cmp(one));
    candidates.into_iter().find_map(|(_, at)| {
        let mut bytes = vec![0; superblock::SUPERBLOCK_BYTES];
        image.read_full(at, &mut bytes);
        Superblock::decode(&bytes)
            .ok()
            .filter(|found| found.home().is_some_and(|home| home.start == at))
    })
}

/// The generation and sequence that a superblock at `at` claims; `None` where there can be none.
fn claimed_age(image: &Image, at: u64) -> Option<(u64, u64)> {
    let mut head = [0; SECTOR_BYTES as usize];
    image.read_full(at, &mut head);
    let word = |at: usize| {
        head[at..at + 8]
            .first_chunk()
            .copied()
            .map(u64::from_le_bytes)
    };
    let begins = head.starts_with(&superblock::MAGIC);
    begins.then_some((word(GENERATION_AT)?, word(SEQUENCE_AT)?))
}

/// Where a superblock keeps them (docs/reference/format.md).
const GENERATION_AT: usize = 80;
const SEQUENCE_AT: usize = 88;

/// How many generations of a row's data cells count as written, by the written map on this medium: more than one only in
/// an array that has grown.
pub fn generations_written(
    image: &Image,
    superblock: &Superblock,
    layout: &Layout,
    row: Row,
) -> u8 {
    let extents = layout.rows().div_ceil(superblock.extent_rows);
    let extent = row.0 / superblock.extent_rows;
    if layout.is_reshaping() {
        // Of an extent with rows of both shapes, those of the new one are written.
        let end = ((extent + 1) * superblock.extent_rows).min(layout.rows());
        let made = row < layout.edge() && layout.edge().0 < end;
        let written = superblock.written_all || bit_written(image, superblock, extent);
        return u8::from((written || made) && !layout.is_dead(row));
    }
    let bit = |generation: &u8| u64::from(*generation) * extents + extent;
    let all = |generation: &u8| *generation == 0 && superblock.written_all;
    let is_set =
        |generation: &u8| all(generation) || bit_written(image, superblock, bit(generation));
    (0..layout.generations()).take_while(is_set).count() as u8
}

fn bit_written(image: &Image, superblock: &Superblock, bit: u64) -> bool {
    let Some(region) = superblock.region(RegionKind::Written) else {
        return true;
    };
    let index = (bit / pages::BITS_PER_PAGE) as u32;
    let read = |sequence: u64| read_page(image, pages::home(region.start, index, sequence));
    let homes = [read(0), read(1)];
    let views = homes
        .iter()
        .filter_map(|page| pages::decode(page, MapKind::Written, superblock.array, index).ok());
    let newest = views.max_by_key(|view| view.sequence);
    newest.is_some_and(|view| view.bit(bit % pages::BITS_PER_PAGE))
}

/// Where on its member a partition of a slot lies.
#[derive(Clone, Copy, Debug)]
pub struct Lies {
    start: u64,
    from: u64,
}

impl Lies {
    /// In this region of the member whose superblock `own` is, by the array's own word of it.
    pub fn of(array: &Superblock, own: &Superblock, region: u16, partition: u16) -> Option<Lies> {
        let (start, from) = array.place_in(&own.regions, region, partition)?;
        Some(Lies { start, from })
    }

    /// The sector of the member at which this sector of the slot lies.
    pub fn at(&self, slot_sector: u64) -> u64 {
        self.start + slot_sector - self.from
    }
}

/// Rows whose cells do not agree with one another, as text. `map` says which cells a row has, if anything is written there,
/// and `lies` on which disk a cell lies, and at which sector. Rows with an absent or unreadable cell are left out, and so are the sectors that `skip` names (by lba of the row's
/// first data sector at that offset).
pub fn mismatches<'a>(
    layout: &Layout,
    lies: impl Fn(Row, &Cell) -> Option<(&'a Disk, u64)>,
    map: impl Fn(Row) -> Option<RowMap>,
    skip: impl Fn(Row, u64) -> bool,
) -> Vec<String> {
    let mut found = Vec::new();
    for map in (0..layout.rows()).map(Row).filter_map(map) {
        let row = map.row;
        let read = |cell: &Cell| read_cell(layout, lies(row, cell)?);
        let cells: Option<Vec<Vec<u8>>> = map.cells().iter().map(read).collect();
        if let Some(cells) = cells {
            found.extend(disagreement(layout, &map, &cells, |offset| {
                skip(row, offset)
            }));
        }
    }
    found
}

fn read_cell(layout: &Layout, (disk, at): (&Disk, u64)) -> Option<Vec<u8>> {
    let sectors = layout.chunk_sectors();
    if (at..at + sectors).any(|sector| disk.faults.unreadable(sector)) {
        return None;
    }
    let mut data = vec![0; sectors as usize * disk.payload().unit()];
    disk.live().read_data(at, sectors, &mut data);
    Some(data)
}

/// The first sector of a row at which a redundant cell is not what the data make it.
fn disagreement(
    layout: &Layout,
    map: &RowMap,
    cells: &[Vec<u8>],
    skip: impl Fn(u64) -> bool,
) -> Option<String> {
    let data = usize::from(map.data);
    let sources: Vec<&[u8]> = cells[..data].iter().map(|cell| &cell[..]).collect();
    for (index, held) in cells.iter().enumerate().skip(data) {
        let coefficients: Vec<u8> = (0..map.data)
            .map(|source| map.coefficient(index as u8, source))
            .collect();
        let mut made = vec![0; held.len()];
        restripe_code::linear(&sources, &[&coefficients], &mut [&mut made]);
        let unit = made.len() / layout.chunk_sectors() as usize;
        let wrong = |offset: &u64| {
            let span = *offset as usize * unit..(*offset as usize + 1) * unit;
            made[span.clone()] != held[span] && !skip(*offset)
        };
        let sectors: Vec<u64> = (0..layout.chunk_sectors()).filter(wrong).collect();
        if let Some(first) = sectors.first() {
            let cell = map.cells[index];
            let place = layout.lba(map.row, 0, *first);
            return Some(format!(
                "row {} ({:?} on slot {}): {} sectors differ, the first at offset {first} (data from lba {place})",
                map.row.0,
                cell.role,
                cell.slot.0,
                sectors.len(),
            ));
        }
    }
    None
}

/// Bytes that users see.
pub fn size_bytes(layout: &Layout) -> u64 {
    layout.size_sectors() * SECTOR_BYTES
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::disk::Simple;
    use restripe_array::Nanos;
    use restripe_array::layout::Rotation;

    /// The formatted disks of an array, which take next to no time.
    pub(crate) fn disks(spec: &Spec) -> Vec<Disk> {
        let images = spec.format(None).expect("a sound specification");
        let device = || Box::new(Simple::new(Nanos(1), 1 << 30, Nanos(0)));
        let disks = (0..).zip(images);
        let disks = disks.map(|(i, image)| spec.disk(i, image, device(), 1));
        disks.collect()
    }

    #[test]
    fn a_formatted_member_names_itself() {
        let spec = Spec::small(Level::Raid5(Rotation::default()), 4);
        for (i, disk) in disks(&spec).iter().enumerate() {
            let superblock = superblock_of(disk.live()).expect("a superblock");
            assert_eq!(superblock.index_of(superblock.member), Some(i as u16));
            let layout = Layout::new(superblock.geometry).expect("sound");
            let written = generations_written(disk.live(), &superblock, &layout, Row(0));
            assert_eq!(written, 0);
            let home = superblock.home().expect("it lies in one").start;
            let age = (superblock.generation, superblock.sequence);
            assert_eq!(claimed_age(disk.live(), home), Some(age));
        }
    }

    #[test]
    fn a_row_that_does_not_add_up_is_found() {
        let spec = Spec::small(Level::Raid6(Rotation::default()), 5);
        let mut disks = disks(&spec);
        let layout = Layout::new(spec.create().expect("sound").geometry).expect("sound");
        let lies = |disk: &Disk| {
            let superblock = superblock_of(disk.live()).expect("a superblock");
            Lies::of(&superblock, &superblock, 0, 0).expect("a data region")
        };
        let cell = layout.row(Row(3)).cells[1];
        let place = lies(&disks[0]).at(cell.at + 2);
        disks[usize::from(cell.slot.0)].meddle(|image| image.write_data(place, 1, &[1; 8]));
        let place = |_: Row, cell: &Cell| {
            let disk = &disks[usize::from(cell.slot.0)];
            Some((disk, lies(disk).at(cell.at)))
        };
        let all = |row: Row| Some(layout.row(row));
        let but_third = |row: Row| all(row).filter(|_| row != Row(3));
        let found = mismatches(&layout, place, all, |_, _| false);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("row 3 (P on slot"), "{found:?}");
        assert!(mismatches(&layout, place, but_third, |_, _| false).is_empty());
        assert!(mismatches(&layout, place, all, |_, offset| offset == 2).is_empty());
    }
}
