//! The interface between a set and a tier above it, in addition to requests, commands and facts: queries, and
//! changes that no event carries.
//!
//! A set without a tier uses none of this. The tier reaches the rest of a set only by these names, and by the
//! `pub` functions of other parts.

use crate::cache::Cache;
use crate::config::Config;
use crate::contract::{Actions, Halt, MemberInfo, StartMode, TaskKind};
use crate::facts::{NEVER, Ties};
use crate::instance::Instance;
use crate::layout::{Geometry, Layout};
use crate::members::pool::Share;
use crate::metadata::suspects::Attempt;
use crate::report::{ArrayState, HeatMap};
use crate::runset::RunSet;
use crate::slice::rows::Handed;
use crate::units::{Member, Row, Slot, Uuid};
use core::ops::Range;
use restripe_format::meta::superblock::{BufferMark, Partner};

/// A set that is a part of a tier, which decides when the set continues after a halt. A [`crate::Set`] continues
/// by itself.
pub struct Part {
    below: Instance,
}

impl Part {
    pub fn new(config: Config, share: Share) -> Part {
        Part {
            below: Instance::new(config, share),
        }
    }
}

floor!(Part, Instance);

/// The result of a change to one of the maps on the members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Noted {
    /// It is on record.
    pub durable: bool,
    /// It is written in the set's next turn.
    pub in_turn: bool,
}

/// Questions.
impl Part {
    #[inline]
    pub fn id(&self) -> Uuid {
        self.below.superblock.array
    }

    pub fn generation(&self) -> u64 {
        self.below.superblock.generation
    }

    /// Of the newest superblock: it grows with every change on record.
    pub fn sequence(&self) -> u64 {
        self.below.superblock.sequence
    }

    pub fn geometry(&self) -> Geometry {
        self.below.superblock.geometry
    }

    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.below.layout
    }

    pub fn partner(&self) -> Option<Partner> {
        self.below.superblock.partner
    }

    /// Whether the record of the partner, and of how primary copies stand to others, is durable.
    pub fn partner_durable(&self) -> bool {
        self.below.writer.partner_durable()
    }

    /// Whether it is to be on record that primary copies may have data which others lack.
    pub fn records_primary_first(&self) -> bool {
        self.below.superblock.ahead
    }

    /// Whether it is to be on record that no log has that data either.
    pub fn records_primary_only(&self) -> bool {
        self.below.superblock.alone
    }

    /// Whether a log was found that is newer than primary copies.
    pub fn log_counts(&self) -> bool {
        self.below.log_counts
    }

    pub fn buffer_mark(&self) -> BufferMark {
        self.below.superblock.buffer
    }

    #[inline]
    pub fn state(&self) -> ArrayState {
        self.below.state
    }

    #[inline]
    pub fn mode(&self) -> StartMode {
        self.below.mode
    }

    #[inline]
    pub fn halt(&self) -> Option<Halt> {
        self.below.halt
    }

    /// Whether every region is on record as dirty.
    pub fn is_all_dirty(&self) -> bool {
        self.below.all_dirty
    }

    pub fn recovered_rows(&self) -> u64 {
        self.below.recovered_rows
    }

    /// Whether the set accepts another request.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.below.requests.room()
    }

    /// Whether a request that changes some of these sectors is in flight.
    pub fn is_written(&self, sectors: &Range<u64>) -> bool {
        self.below.requests.is_written(sectors)
    }

    pub fn heat_map(&self) -> HeatMap {
        self.below.heat.map()
    }

    /// As [`crate::Set::coverage`].
    pub fn coverage(
        &self,
    ) -> impl Iterator<Item = (&'static str, &'static str, &'static str, u64)> + '_ {
        self.below.slices.coverage()
    }

    /// How often members were sent to standby, each counted by itself.
    pub fn standbys(&self) -> u64 {
        self.below.rests
    }

    /// Tasks that are not paused.
    pub fn running_tasks(&self) -> impl Iterator<Item = TaskKind> + '_ {
        let running = self.below.tasks.list.iter().filter(|task| !task.paused);
        running.map(|task| task.kind)
    }

    pub fn owes_resync(&self) -> bool {
        self.below.tasks.resync_owes().is_some()
    }

    /// The first lost sector of a range.
    pub fn lost_in(&self, lba: u64, sectors: u64) -> Option<u64> {
        self.below.lost.first_in(lba, sectors)
    }

    /// Whether the list of lost sectors is not on record yet.
    pub fn writes_lost_list(&self) -> bool {
        self.below.lost.dirty()
    }

    /// The slot that has a sector.
    pub fn slot_at(&self, lba: u64) -> Slot {
        let place = self.below.layout.place(lba);
        self.below.layout.row(place.row).cells[usize::from(place.data)].slot
    }

    /// The member that a slot's cell of a row is read from; none: no member has it.
    pub fn reader_of(&self, slot: Slot, row: Row) -> Option<Member> {
        self.below.homes(slot, row).reader()
    }

    /// Whether no member has the cell of this sector. A cell that a growth added, and that was never written, is in no
    /// row yet and misses none.
    pub fn misses_member_of(&self, lba: u64) -> bool {
        let place = self.below.layout.place(lba);
        let in_row = place.data < self.below.row_map(place.row).data;
        in_row && self.below.read_home(place.row, place.data).is_none()
    }

    /// Tells a cache what misses cost, by the member that has a block.
    pub fn price_cache(&self, cache: &mut Cache) {
        crate::clients::read_cache::price(cache, &self.below.layout, &self.below.roles);
    }

    /// How these sectors are read after that attempt, or at first, without members that may hold wrong data.
    pub fn next_attempt(&self, sectors: Range<u64>, last: Option<Attempt>) -> Option<Attempt> {
        Attempt::next(&self.below, sectors, last)
    }

    /// Whether the next command that adds this device may overwrite its contents.
    pub fn may_overwrite(&self, member: Member) -> bool {
        self.below.devices[usize::from(member.0)].overwrite
    }

    pub fn ties(&self) -> Ties {
        self.below.ties
    }
}

/// Changes.
impl Part {
    pub fn ties_mut(&mut self) -> &mut Ties {
        &mut self.below.ties
    }

    /// Whether writes of the set's own and tasks wait until the tier has started.
    pub fn wait_for_tier(&mut self, waits: bool) {
        self.below.tasks.waits_for_start = waits;
    }

    /// A device that comes from another set.
    pub fn arrived_from(&mut self, info: MemberInfo, overwrite: bool) {
        self.below.arrived(info);
        let device = self.below.devices.last_mut();
        device.expect("it has arrived").overwrite = overwrite;
    }

    /// Announces that the partner may get the only copy of these sectors.
    pub fn announce_redirect(&mut self, lba: u64, sectors: u64) -> Noted {
        let before = self.below.redirected.touched;
        let durable = self.below.redirect_ready(lba, sectors);
        let in_turn = self.below.redirected.touched && !before;
        Noted { durable, in_turn }
    }

    /// Calls every region dirty.
    pub fn announce_all_dirty(&mut self) -> Noted {
        let before = self.below.intent.touched;
        let durable = self.below.dirty_all();
        let in_turn = self.below.intent.touched && !before;
        Noted { durable, in_turn }
    }

    pub fn set_buffer_mark(&mut self, mark: BufferMark) {
        self.below.superblock.buffer = mark;
        self.below.writer.note_partner();
    }

    /// No sector counts as lost any more.
    pub fn forget_lost(&mut self) {
        self.below.lost.forget();
    }

    /// Zones whose data are handed over as tasks read them.
    pub fn want_zones(&mut self, zones: RunSet) {
        self.below.transfers.zones = zones;
    }

    pub fn next_handed(&mut self) -> Option<Handed> {
        self.below.transfers.next()
    }

    /// A window of a task waits for one more part of the buffers that it passed.
    pub fn hold(&mut self, slice: u32) {
        self.below.slices.hold(slice);
    }

    /// A part of those buffers was copied or refused. After the last of them, the window goes on with the next step.
    pub fn transferred(&mut self, slice: u32) {
        self.below.slices.op_ended(slice);
    }

    /// The actions of a change that came by no event.
    #[inline]
    pub fn take_actions(&mut self) -> Actions {
        self.below.attend();
        core::mem::take(&mut self.below.out)
    }

    /// Its next wish to be woken is an action, whatever it was last time.
    pub fn arm_anew(&mut self) {
        self.below.armed = NEVER;
    }

    /// The same set once more, not started yet. Members that failed take no part.
    pub fn renewed(&self, share: Share) -> Part {
        let mut config = self.below.config.clone();
        let devices = self.below.devices.iter();
        config.members = devices.map(|device| device.info).collect();
        let mut fresh = Part::new(config, share);
        fresh.below.tasks.paced_like(&self.below.tasks);
        for member in self.below.failed_before() {
            fresh.below.devices[usize::from(member.0)].info.sectors = 0; // So nothing is asked of it.
        }
        fresh
    }
}
