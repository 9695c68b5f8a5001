//! What a tier above asks of a set beside requests, commands and facts, and changes there that no event carries.
//!
//! A set by itself is asked none of this. The rest of it hides behind these names, and behind the functions of other
//! parts that are `pub`.

use crate::cache::Cache;
use crate::contract::{Actions, Halt, MemberInfo, StartMode, TaskKind};
use crate::core::{Core, NEVER};
use crate::handover::Handed;
use crate::layout::{Geometry, Layout};
use crate::meta::superblock::{BufferMark, Partner};
use crate::pool::Share;
use crate::report::{ArrayState, HeatMap};
use crate::runset::RunSet;
use crate::units::{Member, Slot, Uuid};

/// How a set takes part in a tier. None of this holds of a set by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ties {
    /// It is started as a part of the array that its superblock names, and not as an array.
    pub is_part: bool,
    /// Its partner is here, and started with it.
    pub attached: bool,
    /// Some writes go to primary copies only.
    pub primaries_first: bool,
    /// Users' requests are counted above.
    pub counted_above: bool,
    /// The read cache is asked from above, and users' changes are reported to it from there.
    pub cached_above: bool,
}

/// The result of a change to one of the maps on the members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Noted {
    /// It is on record.
    pub durable: bool,
    /// It is written in the set's next turn.
    pub in_turn: bool,
}

/// Questions.
impl Core {
    #[inline]
    pub fn id(&self) -> Uuid {
        self.superblock.array
    }

    pub fn generation(&self) -> u64 {
        self.superblock.generation
    }

    /// Of the newest superblock: it grows with every change on record.
    pub fn sequence(&self) -> u64 {
        self.superblock.sequence
    }

    pub fn geometry(&self) -> Geometry {
        self.superblock.geometry
    }

    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn partner(&self) -> Option<Partner> {
        self.superblock.partner
    }

    /// Whether the record of the partner, and of how primary copies stand to others, is durable.
    pub fn partner_durable(&self) -> bool {
        self.keeper.partner_durable()
    }

    /// Whether it is to be on record that primary copies may have data which others lack.
    pub fn records_primary_first(&self) -> bool {
        self.superblock.ahead
    }

    /// Whether it is to be on record that no log has that data either.
    pub fn records_primary_only(&self) -> bool {
        self.superblock.alone
    }

    /// Whether a log was found that is newer than primary copies.
    pub fn log_counts(&self) -> bool {
        self.log_counts
    }

    pub fn buffer_mark(&self) -> BufferMark {
        self.superblock.buffer
    }

    #[inline]
    pub fn state(&self) -> ArrayState {
        self.state
    }

    #[inline]
    pub fn mode(&self) -> StartMode {
        self.mode
    }

    #[inline]
    pub fn halt(&self) -> Option<Halt> {
        self.halt
    }

    /// Whether every region is on record as dirty.
    pub fn is_all_dirty(&self) -> bool {
        self.all_dirty
    }

    pub fn recovered_rows(&self) -> u64 {
        self.recovered_rows
    }

    /// Whether the set accepts another request.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.requests.room()
    }

    pub fn heat_map(&self) -> HeatMap {
        self.heat.map()
    }

    /// As [`crate::Set::coverage`].
    pub fn coverage(
        &self,
    ) -> impl Iterator<Item = (&'static str, &'static str, &'static str, u64)> + '_ {
        self.slices.coverage()
    }

    /// How often members were sent to standby, each counted by itself.
    pub fn standbys(&self) -> u64 {
        self.rests
    }

    /// Tasks that are not paused.
    pub fn running_tasks(&self) -> impl Iterator<Item = TaskKind> + '_ {
        let running = self.tasks.list.iter().filter(|task| !task.paused);
        running.map(|task| task.kind)
    }

    pub fn owes_resync(&self) -> bool {
        self.tasks.resync_owes().is_some()
    }

    /// The first lost sector of a range.
    pub fn lost_in(&self, lba: u64, sectors: u64) -> Option<u64> {
        self.lost.first_in(lba, sectors)
    }

    /// Whether the list of lost sectors is not on record yet.
    pub fn writes_lost_list(&self) -> bool {
        self.lost.dirty()
    }

    /// The slot that has a sector.
    pub fn slot_at(&self, lba: u64) -> Slot {
        let place = self.layout.place(lba);
        self.layout.row(place.row).cells[usize::from(place.data)].slot
    }

    /// Whether no member has the cell of this sector. A cell that a growth added, and that was never written, is in no
    /// row yet and misses none.
    pub fn misses_member_of(&self, lba: u64) -> bool {
        let place = self.layout.place(lba);
        let in_row = place.data < self.row_map(place.row).data;
        in_row && self.read_home(place.row, place.data).is_none()
    }

    /// Tells a cache what misses cost, by the member that has a block.
    pub fn price_cache(&self, cache: &mut Cache) {
        crate::read_cache::price(cache, &self.layout, &self.standing);
    }

    /// Whether the next command that adds this device may overwrite its contents.
    pub fn may_overwrite(&self, member: Member) -> bool {
        self.devices[usize::from(member.0)].overwrite
    }

    pub fn ties(&self) -> Ties {
        self.ties
    }
}

/// Changes.
impl Core {
    pub fn ties_mut(&mut self) -> &mut Ties {
        &mut self.ties
    }

    /// Whether writes of the set's own and tasks wait until the tier has started.
    pub fn wait_for_tier(&mut self, waits: bool) {
        self.tasks.waits_for_start = waits;
    }

    /// A device that comes from another set.
    pub fn arrived_from(&mut self, info: MemberInfo, overwrite: bool) {
        self.arrived(info);
        self.devices.last_mut().expect("it has arrived").overwrite = overwrite;
    }

    /// Announces that the partner may get the only copy of these sectors.
    pub fn announce_redirect(&mut self, lba: u64, sectors: u64) -> Noted {
        let before = self.redirected.touched;
        let durable = self.redirect_ready(lba, sectors);
        let in_turn = self.redirected.touched && !before;
        Noted { durable, in_turn }
    }

    /// Calls every region dirty.
    pub fn announce_all_dirty(&mut self) -> Noted {
        let before = self.intent.touched;
        let durable = self.dirty_all();
        let in_turn = self.intent.touched && !before;
        Noted { durable, in_turn }
    }

    pub fn set_buffer_mark(&mut self, mark: BufferMark) {
        self.superblock.buffer = mark;
        self.keeper.note_partner();
    }

    /// No sector counts as lost any more.
    pub fn forget_lost(&mut self) {
        self.lost.forget();
    }

    /// Zones whose data are handed over as tasks read them.
    pub fn want_zones(&mut self, zones: RunSet) {
        self.handover.zones = zones;
    }

    pub fn next_handed(&mut self) -> Option<Handed> {
        self.handover.next()
    }

    /// The actions of a change that came by no event.
    #[inline]
    pub fn take_actions(&mut self) -> Actions {
        core::mem::take(&mut self.out)
    }

    /// Its next wish to be woken is an action, whatever it was last time.
    pub fn arm_anew(&mut self) {
        self.armed = NEVER;
    }

    /// The same set once more, not started yet. Members that failed take no part.
    pub fn renewed(&self, share: Share) -> Core {
        let mut config = self.config.clone();
        config.members = self.devices.iter().map(|device| device.info).collect();
        let mut fresh = Core::new(config, share);
        fresh.tasks.paced_like(&self.tasks);
        for member in self.failed_before() {
            fresh.devices[usize::from(member.0)].info.sectors = 0; // So nothing is asked of it.
        }
        fresh
    }
}
