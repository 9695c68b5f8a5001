//! Metadata of the set: the floor above the members.
//!
//! Owns what the members have on record, and what is to be written there: the superblock's versions, the
//! maps, and the heat of zones. Asks the members and the facts. Sends
//! [`crate::facts::Notice::MetadataMoved`] when something has become durable.

pub(crate) mod heat_pages;
pub(crate) mod intent;
pub(crate) mod maps;
pub(crate) mod recent;
mod redirected;
pub(crate) mod suspects;
pub(crate) mod writer;
mod written;

use crate::config::Config;
use crate::contract::{Bug, CommandError, DeviceIo, Halt, RequestError, RequestOp, Segment};
use crate::layout::RowMap;
use crate::members::Members;
use crate::members::device::Health;
use crate::members::pool::Share;
use crate::policy::heat::Heat;
use crate::units::{Member, PAGE_BYTES, PAGE_SECTORS, Row, SECTOR_BYTES, Slot};
use alloc::vec::Vec;
use heat_pages::{HeatPages, WRITES_APART, WRITING_MAX};
use maps::{BitMap, LostMap};
use recent::Recent;
use restripe_format::meta::MetaError;
use restripe_format::meta::leases::Parcel;
use restripe_format::meta::rules::check_found;
use restripe_format::meta::superblock::{SUPER_A_AT, SUPER_B_PLACES, Superblock};
use writer::MetadataWriter;

pub struct Metadata {
    pub(crate) below: Members,
    pub(crate) writer: MetadataWriter,
    pub(crate) written: BitMap,
    pub(crate) intent: BitMap,
    /// Writes in flight in each intent region.
    pub(crate) intent_users: Vec<crate::metadata::intent::IntentUsers>,
    pub(crate) lost: LostMap,
    /// What a start without some current members would lose, until the loss is accepted.
    pub(crate) withheld: LostMap,
    /// This start may report nothing lost, also what no absent member could bring back: it is refused then.
    pub(crate) lossless: bool,
    pub(crate) redirected: BitMap,
    pub(crate) heat: Heat,
    pub(crate) heat_pages: HeatPages,
    /// What a failed member lacks is not on record yet.
    pub(crate) owing: bool,
    pub(crate) recent: Recent,
}

floor!(Metadata, Members);

impl Metadata {
    pub(crate) fn new(config: Config, share: Share) -> Metadata {
        Metadata {
            writer: MetadataWriter::default(),
            written: BitMap::new(0),
            intent: BitMap::new(0),
            intent_users: Vec::new(),
            lost: LostMap::default(),
            withheld: LostMap::default(),
            lossless: false,
            redirected: BitMap::new(0),
            heat: Heat::default(),
            heat_pages: HeatPages::default(),
            owing: false,
            recent: Recent::default(),
            below: Members::new(config, share),
        }
    }

    /// No acknowledgement is given while a failure is known here and nowhere else.
    pub(crate) fn settled(&self) -> bool {
        let recorded = self.writer.failures_durable() && !self.owing;
        recorded || self.planted(Bug::FailureNotRecorded)
    }

    /// Whether another run has the array, or may have it for all that this one will know.
    #[inline]
    pub fn disowned(&self) -> bool {
        matches!(self.halt, Some(Halt::Owned(_))) || self.doubted
    }

    /// How a halted array answers what it may not do.
    pub fn refusal(&self, op: RequestOp) -> RequestError {
        match op {
            _ if self.halt == Some(Halt::NoSpace) => RequestError::NoSpace,
            _ if self.disowned() => RequestError::Unavailable,
            RequestOp::Flush => RequestError::Unavailable,
            _ => RequestError::ReadOnly,
        }
    }

    /// The cells of a row that are live and will be after a crash: a cell on a member that is being filled
    /// counts only when the members' superblocks say that it is there.
    pub(crate) fn firm_cells(&self, map: &RowMap) -> crate::layout::code::CellSet {
        let mut set = crate::layout::code::CellSet::default();
        for cell in 0..map.width {
            let slot = map.cells[cell as usize].slot;
            let roles = self.roles_at(slot, map.row);
            let filled = roles.incoming.is_some()
                && self.writer.all_durable()
                && self.tasks.filled_durably(slot, map.row);
            if roles.home.is_some() || filled {
                set = set.with(cell);
            }
        }
        set
    }

    /// The data cells in a partition of a slot, by their first lba, that lie in written rows whose parity is
    /// not in step, or whose further copies are not where first ones go ahead.
    pub(crate) fn unsynced_cells(
        &self,
        slot: usize,
        partition: u16,
    ) -> impl Iterator<Item = u64> + '_ {
        let tells = self.layout.parity() || self.is_ahead();
        let owed = self.tasks.resync_owes().filter(|_| tells);
        let rows = owed.into_iter().flatten();
        let rows = rows.flat_map(|(first, count)| (first..first + count).map(Row));
        let cell = move |row: Row| {
            let map = self.row_map(row);
            let of_slot = |data: &u8| map.cells[*data as usize].slot.0 as usize == slot;
            let data = (0..map.data).find(of_slot)?;
            let addressed = self.layout.is_addressed(row, data);
            addressed.then(|| self.layout.lba(row, data, 0))
        };
        rows.filter(move |&row| self.layout.partition_of(row) == partition)
            .filter(|&row| self.is_written(row))
            .filter_map(cell)
    }

    /// Whether a member alone tells some data: in a row whose parity is not in step.
    pub(crate) fn tells_alone(&self, member: Member) -> bool {
        let partitions = 0..self.layout.partitions();
        let mut places = (0..self.roles.slots())
            .flat_map(|slot| partitions.clone().map(move |partition| (slot, partition)));
        places.any(|(slot, partition)| {
            let roles = self.roles.at(Slot(slot as u16), partition);
            roles.serves(member) && self.unsynced_cells(slot, partition).next().is_some()
        })
    }

    /// What is lent, as far as it is on record.
    pub(crate) fn lent(&self) -> &[Parcel] {
        // Read-only, the array is as it was found, and nothing is written.
        match self.mode.read_only {
            true => &self.superblock.lent,
            false => &self.writer.lent,
        }
    }

    /// Has the pages written that are behind.
    pub(crate) fn heat_due(&mut self) {
        self.heat_pages.not_before = self.now.after(WRITES_APART);
        self.heat_pages.touched |= self.heat_pages.pages.iter().any(|page| page.dirty);
    }

    /// A start may still be refused, and writes none.
    pub(crate) fn heat_may_write(&self) -> bool {
        let pages = self.heat_pages.pages.iter();
        let sleeps = self.devices.iter().any(|device| !device.power.is_up());
        let quiet = self.starts() || sleeps && self.serving();
        !quiet && pages.filter(|page| page.writing > 0).count() < WRITING_MAX
    }

    // ------------------------------------------------------------------------------------- losses of a start

    /// The start under way is to be refused rather than report anything lost.
    pub fn lose_nothing(&mut self) {
        self.lossless = self.starts();
    }

    pub(crate) fn may_lose_nothing(&self) -> bool {
        self.starts() && self.lossless
    }

    /// A loss that is not accepted: the start goes on to find all losses, and then ends.
    pub(crate) fn would_lose(&mut self, lba: u64, sectors: u64) {
        self.withheld.add(lba, sectors);
        while self.withheld.give_up_gap(None).is_some() {}
    }

    /// A start that would lose data says which, and goes on only if the loss is accepted.
    pub(crate) fn check_accepted(&self) -> Result<(), CommandError> {
        let withheld = &self.withheld.extents;
        if withheld.is_empty() {
            return Ok(());
        }
        let extents = withheld.runs().to_vec();
        Err(CommandError::WouldLose { extents })
    }

    // ------------------------------------------------------------------------------------------ after a halt

    /// Members that had failed by the halt. They lack what the others have, whether or not that is on record.
    pub(crate) fn failed_before(&self) -> impl Iterator<Item = Member> + '_ {
        let ended = self.writer.failures_durable();
        self.all().filter(move |member| {
            ended && self.devices[usize::from(member.0)].health == Health::Failed
        })
    }

    /// Whether the members that served until the halt have all that was acknowledged, however few they are:
    /// the halt kept the failures of the others from being recorded, and no other run knows of this array.
    pub fn is_complete(&self) -> bool {
        self.writer.failures_durable() && !self.writer.failures_on_record()
    }

    /// Whether a member that an attempt asks may still do what was given up on.
    pub fn orphans_may_count(&self) -> bool {
        let asked = |member| self.failed_before().all(|failed| failed != member);
        self.ops.orphans().any(asked)
    }
}

/// The sector of a place where a superblock may lie: copy A's, then copy B's in their order.
pub(crate) fn super_place(index: usize) -> u64 {
    index
        .checked_sub(1)
        .map_or(SUPER_A_AT, |index| SUPER_B_PLACES[index])
}

/// What was read at a place of a superblock.
pub(crate) fn superblock_in(io: &DeviceIo) -> Result<Superblock, MetaError> {
    let superblock = Superblock::decode(&joined(io))?;
    check_found(&superblock).map(|()| superblock)
}

fn joined(io: &DeviceIo) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(io.segments.len() * PAGE_BYTES);
    for segment in &io.segments {
        if let Segment::Page(page) = segment {
            bytes.extend_from_slice(&page[..]);
        }
    }
    bytes
}

const _: () = assert!(PAGE_SECTORS * SECTOR_BYTES == PAGE_BYTES as u64);
