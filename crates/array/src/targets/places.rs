//! Which places are filled for a slot, and what becomes of them: set data of spares and of members that come
//! back, spare partitions of members in service, and the way home from these.
//!
//! Several spares fill a slot's partitions at once, as many as other slots do not need. In the end one of
//! them has the whole slot, and the others are spares again.
//!
//! What lay in a place before counts for a crash that finds older superblocks, for operations that are still
//! under way, and for the log of its member, whose records tell of rows that it held. So a spare is taken
//! when it is on record that it is one, and nothing is under way to it; its log begins anew. A place on a
//! member in service, or for a slot that others have parts of, is taken only when the superblocks are durable
//! as they are, nothing is under way to it, and every record from before its member last gave up a partition
//! is void.

use super::Targets;
use crate::contract::{Bug, Fact, TaskKind};
use crate::facts::Waiter;
use crate::members::device::Health;
use crate::policy::spares;
use crate::report::ArrayState;
use crate::roles::{Home, PartitionRoles, Roles, distinct};
use crate::runset::RunSet;
use crate::units::{Member, Slot};
use alloc::vec::Vec;
use restripe_format::meta::superblock::{MemberRole, PLACEMENTS_MAX, RegionKind};

/// A partition of a slot and where it is to be filled.
pub(crate) type Filled = (u16, Home);

/// The members of these places that are so, each once.
fn members_of(places: &[Filled], is_so: impl Fn(Member) -> bool) -> Vec<Member> {
    let mut members: Vec<Member> = places.iter().map(|(_, home)| home.member).collect();
    members.sort_unstable();
    members.dedup();
    members.retain(|member| is_so(*member));
    members
}

impl Targets {
    // ------------------------------------------------------------------------------------------------ taking

    /// Places for every partition without a serving member, if the rest can still be decoded.
    pub(crate) fn take_spares(&mut self) {
        if self.state != ArrayState::Degraded {
            return;
        }
        for slot in 0..self.roles.slots() {
            let vacant = self.roles.is_short(slot) && !self.roles.is_filled(slot);
            if vacant && self.may_fill() {
                self.take_places(slot);
            }
        }
    }

    fn take_places(&mut self, slot: usize) {
        let mut whole = self.owners_of(slot);
        whole.extend(self.spares_for(slot));
        let in_vain = self.is_in_vain(slot) && whole.is_empty();
        let is_skewed = self.superblock.geometry.skew.is_some();
        let durable = self.writer.all_durable() || self.planted(Bug::PlaceTakenEarly);
        if in_vain || is_skewed && !durable {
            return;
        }
        self.void_vacated();
        let waits = |member: &Member| self.has_vacated(*member);
        whole.retain(|member| !waits(member));
        let mut hosts = match self.may_split(slot) {
            true => self.hosts(),
            false => Vec::new(),
        };
        hosts.retain(|(member, _)| !whole.contains(member));
        let places = self.places_for(slot, &whole, hosts);
        if places.is_empty() && self.tasks.vacated.is_empty() {
            self.note_in_vain(slot);
        }
        if places.is_empty() || places.iter().any(|place| self.is_under_way(place)) {
            return;
        }
        self.tell_taken(slot, &places);
        self.fill(slot, &places, TaskKind::Rebuild, RunSet::default());
    }

    /// Where what is vacant of a slot goes: to the set data of these members, or to free spare partitions of
    /// those, each with the first last.
    fn places_for(
        &self,
        slot: usize,
        whole: &[Member],
        mut hosts: Vec<(Member, Vec<u16>)>,
    ) -> Vec<Filled> {
        let room = hosts.iter().map(|(member, free)| (*member, free.len()));
        let room: Vec<(Member, usize)> = room.collect();
        let roles = (0..).zip(self.roles.of_slot(slot));
        let vacant = roles.filter(|(_, roles)| roles.home.is_none());
        let vacant: Vec<u16> = vacant.map(|(partition, _)| partition).collect();
        let nobody = self
            .planted(Bug::RowOnOneMember)
            .then(|| self.nobody_anywhere());
        let (layout, roles) = (&self.layout, nobody.as_ref().unwrap_or(&self.roles));
        let lost = Slot(slot as u16);
        let targets = spares::targets(layout, roles, lost, &vacant, whole, &room);
        let mut place = |(partition, member)| {
            let region = match hosts.iter_mut().find(|(host, _)| *host == member) {
                Some((_, free)) => free.pop().expect("no more than there is room for"),
                None => 0,
            };
            Some((partition, self.home_on(member, region, partition)?))
        };
        targets.into_iter().filter_map(&mut place).collect()
    }

    fn nobody_anywhere(&self) -> Roles {
        Roles::new(self.superblock.geometry.slots, self.layout.partitions())
    }

    /// Whether no member could take a partition of this slot, and nothing has changed since.
    fn is_in_vain(&self, slot: usize) -> bool {
        let (version, slots) = &self.tasks.in_vain;
        *version == self.writer.version_wanted() && slots.contains(&slot)
    }

    fn note_in_vain(&mut self, slot: usize) {
        let wanted = self.writer.version_wanted();
        let (version, slots) = &mut self.tasks.in_vain;
        if *version != wanted {
            (*version, *slots) = (wanted, Vec::new());
        }
        if !slots.contains(&slot) {
            slots.push(slot);
        }
    }

    fn tell_taken(&mut self, slot: usize, places: &[Filled]) {
        let slot = slot as u16;
        for spare in members_of(places, |one| self.role_of(one) == Some(MemberRole::Spare)) {
            self.fact(Fact::SpareTaken { spare, slot });
        }
        for &(partition, home) in places.iter().filter(|(_, home)| !home.is_own()) {
            let host = home.member;
            self.fact(Fact::PartitionTaken {
                host,
                slot,
                partition,
            });
        }
    }

    /// Where partitions of a slot are served from set data.
    fn own_homes(&self, slot: usize) -> impl Iterator<Item = Home> + '_ {
        let roles = self.roles.of_slot(slot).iter();
        let homes = roles.filter_map(|roles| roles.home);
        homes.filter(Home::is_own)
    }

    /// Who has some of a slot's partitions in its set data: who has most of them first.
    fn owners_of(&self, slot: usize) -> Vec<Member> {
        let held = |owner: &Member| {
            let homes = self.own_homes(slot);
            homes.filter(|home| home.member == *owner).count()
        };
        let mut owners = distinct(self.own_homes(slot).map(|home| home.member));
        owners.sort_by_key(|owner| core::cmp::Reverse(held(owner)));
        owners
    }

    /// Whether several members have partitions of a slot in their set data.
    fn is_shared(&self, slot: usize) -> bool {
        let mut owners = self.own_homes(slot).map(|home| home.member);
        let first = owners.next();
        owners.any(|other| Some(other) != first)
    }

    /// Whether a slot lies in the set data of one member, all of it.
    fn is_together(&self, slot: usize) -> bool {
        let partitions = usize::from(self.layout.partitions());
        self.own_homes(slot).count() == partitions && !self.is_shared(slot)
    }

    pub(crate) fn spares(&self) -> impl Iterator<Item = Member> + '_ {
        self.all().filter(|&member| {
            let device = &self.devices[member.0 as usize];
            device.health == Health::Good
                && self.role_of(member) == Some(MemberRole::Spare)
                && self.may_begin(member)
        })
    }

    /// Whether a member may be filled from the beginning: it has no place, nothing is under way to it, and no
    /// superblock that a crash may find believes what it held.
    pub(crate) fn may_begin(&self, member: Member) -> bool {
        let left_under = self.devices[member.0 as usize].left_under;
        let forgotten = self.writer.is_durable(left_under);
        self.slot_of(member).is_none() && !self.ops.busy(member) && forgotten
    }

    /// The spares that may take part for a slot: as many as leave one to each other slot that waits for
    /// somebody, and one where the slot has nobody else to go to.
    fn spares_for(&self, slot: usize) -> Vec<Member> {
        let needs = |other: &usize| {
            let vacant = self.roles.is_short(*other) && !self.roles.is_filled(*other);
            *other != slot && vacant && self.own_homes(*other).next().is_none()
        };
        let others = (0..self.roles.slots()).filter(needs).count();
        let least = usize::from(self.own_homes(slot).next().is_none());
        let most = match self.may_split(slot) {
            true => usize::from(self.layout.partitions()),
            false => 1,
        };
        let free = self.spares().count();
        let share = free.saturating_sub(others).clamp(least, most);
        self.spares().take(share).collect()
    }

    // ----------------------------------------------------------------------------------------------- hosting

    /// Members in service with room for partitions of others, and their free spare partitions, the first
    /// last.
    fn hosts(&self) -> Vec<(Member, Vec<u16>)> {
        let mut serving = self.roles.serving();
        serving.retain(|member| self.may_host(*member));
        let hosts = serving
            .into_iter()
            .map(|one| (one, self.free_partitions(one)));
        hosts.filter(|(_, free)| !free.is_empty()).collect()
    }

    /// Who has a slot to itself, and does not wait or leave.
    fn may_host(&self, member: Member) -> bool {
        let leaves = self.roles.iter().any(|roles| {
            let own = roles.home.filter(Home::is_own);
            own.is_some_and(|home| home.member == member) && roles.incoming.is_some()
        });
        let own = self.roles.own_slot(member);
        let alone = own.is_some_and(|slot| !self.is_shared(slot));
        self.good(member) && alone && !leaves && !self.has_vacated(member)
    }

    /// Forgets which members gave something up if their records of that are void by now, and has the others'
    /// made so.
    fn void_vacated(&mut self) {
        let floor = self.logs.floor();
        self.tasks.vacated.retain(|(_, sequence)| floor < *sequence);
        if !self.tasks.vacated.is_empty() {
            self.flush_for(Waiter::Log);
        }
    }

    /// Whether a member that serves has given up something of which its log still tells.
    fn has_vacated(&self, member: Member) -> bool {
        let mut vacated = self.tasks.vacated.iter();
        vacated.any(|(other, _)| *other == member)
    }

    fn free_partitions(&self, member: Member) -> Vec<u16> {
        let there = (1..).take_while(|region| self.home_on(member, *region, 0).is_some());
        let free = there.filter(|region| !self.is_taken(member, *region));
        let mut free: Vec<u16> = free.collect();
        free.reverse();
        free
    }

    /// Whether operations on a place, which may have been another's, are still under way.
    fn is_under_way(&self, (partition, home): &Filled) -> bool {
        let sectors = self.superblock.geometry.partition_sectors();
        let first = home.at(u64::from(*partition) * sectors);
        let busy = self.ops.busy_in(home.member, &(first..first + sectors));
        busy && !self.planted(Bug::PlaceTakenInUse)
    }

    /// Whether nobody stands in a place for a partition of a slot. Set data are one slot's.
    fn is_free(&self, slot: usize, partition: u16, place: &Home) -> bool {
        if !place.is_own() {
            return !self.is_taken(place.member, place.region);
        }
        let own = self.roles.own_slot(place.member);
        let roles = self.roles.of_slot(slot)[usize::from(partition)];
        let stands = roles.homes().any(|home| home == *place);
        own.is_none_or(|own| own == slot) && !stands
    }

    fn is_taken(&self, member: Member, region: u16) -> bool {
        let mut homes = self.roles.iter().flat_map(|roles| roles.homes());
        homes.any(|home| (home.member, home.region) == (member, region))
    }

    /// Whether the placement table has room for a line for each partition of this slot.
    fn may_split(&self, slot: usize) -> bool {
        let lines = self.superblock.placement.iter();
        let others = lines.filter(|line| usize::from(line.slot) != slot).count();
        others + usize::from(self.layout.partitions()) <= PLACEMENTS_MAX
    }

    // ------------------------------------------------------------------------------------------ the way home

    /// When nothing else is to be filled, what lies in spare partitions and on further spares goes to the
    /// member that has most of the slot in its set data, or to a spare. What is to stay apart is spread
    /// instead; but where a slot waits for a place it goes as well, and what several spares share goes first:
    /// each move makes room.
    pub(crate) fn bring_home(&mut self) {
        let serves = matches!(self.state, ArrayState::Healthy | ArrayState::Degraded);
        if !serves || self.tasks.fills() > 0 || !self.writer.all_durable() {
            return;
        }
        let waits = self.state == ArrayState::Degraded;
        if self.tasks.stays_apart && !waits {
            return self.spread();
        }
        let slots = 0..self.roles.slots();
        let (shared, alone): (Vec<usize>, Vec<usize>) = slots
            .filter(|slot| !self.roles.is_short(*slot) && !self.is_together(*slot))
            .partition(|slot| self.is_shared(*slot));
        for slot in shared.into_iter().chain(alone) {
            let places = self.way_home(slot);
            if !places.is_empty() {
                return self.bring(slot, &places);
            }
        }
    }

    /// What is to stay in spare partitions is spread over the members that have them, one after another.
    fn spread(&mut self) {
        let hosted = |roles: &PartitionRoles| roles.home.is_some_and(|home| !home.is_own());
        let version = self.writer.version_wanted();
        if self.tasks.spread_under == version || !self.roles.iter().any(hosted) {
            return;
        }
        self.void_vacated();
        let hosts = self.hosts();
        let room: Vec<Member> = hosts.iter().map(|(member, _)| *member).collect();
        let Some((slot, partition, member)) = spares::uneven(&self.layout, &self.roles, &room)
        else {
            if self.tasks.vacated.is_empty() {
                self.tasks.spread_under = version;
            }
            return;
        };
        let taker = hosts.iter().find(|(host, _)| *host == member);
        let region = taker.and_then(|(_, free)| free.last().copied());
        let place = region.and_then(|region| self.home_on(member, region, partition));
        let place = place.expect("it has room");
        self.bring(slot.0.into(), &[(partition, place)]);
    }

    fn bring(&mut self, slot: usize, places: &[Filled]) {
        self.void_vacated();
        let waits = |place: &Filled| self.has_vacated(place.1.member) || self.is_under_way(place);
        if places.iter().any(waits) {
            return;
        }
        self.tell_taken(slot, places);
        self.fill(slot, places, TaskKind::Replace, RunSet::default());
    }

    fn way_home(&self, slot: usize) -> Vec<Filled> {
        let homes = self.roles.of_slot(slot).iter();
        let homes: Vec<Home> = homes.filter_map(|one| one.home).collect();
        let owner = self.owners_of(slot).first().copied();
        // Where a slot waits, a spare would be its.
        let waits = self.state == ArrayState::Degraded;
        let spare = || self.spares().next().filter(|_| !waits);
        let Some(member) = owner.or_else(spare) else {
            return Vec::new();
        };
        // A forged table may have placed a partition in a spare partition of that same member. It stays
        // there.
        let is_away = |home: &Home| home.member != member;
        let away = (0..).zip(&homes).filter(|(_, home)| is_away(home));
        let free = away.filter(|(partition, _)| {
            let (layout, roles) = (&self.layout, &self.roles);
            !spares::clashes(layout, roles, Slot(slot as u16), *partition, member)
        });
        free.filter_map(|(partition, _)| Some((partition, self.home_on(member, 0, partition)?)))
            .collect()
    }

    // ----------------------------------------------------------------------------------------------- filling

    /// Places in the set data of a member for these partitions of a slot.
    pub(crate) fn places_on(
        &self,
        member: Member,
        partitions: impl Iterator<Item = u16>,
    ) -> Vec<Filled> {
        let place = |partition| Some((partition, self.home_on(member, 0, partition)?));
        partitions.filter_map(place).collect()
    }

    /// Begins to fill places for a slot. `done`: rows that they hold already. Those of other partitions need
    /// nothing.
    pub(crate) fn fill(&mut self, slot: usize, places: &[Filled], kind: TaskKind, done: RunSet) {
        let mut done = done;
        for partition in 0..self.layout.partitions() {
            if !places.iter().any(|(filled, _)| *filled == partition) {
                let rows = self.layout.partition_rows(partition);
                done.insert(rows.start, rows.end - rows.start);
            }
        }
        for &(partition, home) in places {
            let free = self.is_free(slot, partition, &home);
            assert!(free, "what somebody stands in is filled for nobody");
            self.roles.of_slot_mut(slot)[usize::from(partition)].incoming = Some(home);
        }
        for member in members_of(places, |one| self.role_of(one) != Some(MemberRole::Active)) {
            self.begin_member(member);
        }
        self.place_entries();
        self.start_task(kind, Some(slot as u16), done);
    }

    /// What a member that serves nothing yet holds counts for nothing, but for what it is filled with from
    /// now on.
    pub(crate) fn begin_member(&mut self, member: Member) {
        let entry = self.devices[member.0 as usize]
            .entry
            .expect("a member that is filled is in the table");
        self.forget_dropped_target(entry);
        let log_floor = self.logs.next_sequence();
        let line = &mut self.superblock.members[entry as usize];
        line.role = MemberRole::Rebuilding;
        line.log_floor = log_floor;
        line.read_errors = 0;
        if !self.planted(Bug::FormerHostBelieved) {
            self.forget_former(entry);
        }
        let places = self.devices[member.0 as usize].places;
        if self.logged() {
            self.logs.open(member, places.log_sectors);
        }
        self.tasks.vacated.retain(|(other, _)| *other != member);
        self.rewrite_maps();
    }

    /// The placement table calls a member nobody's former one any more: what it held is not to be believed
    /// when it serves again.
    pub(crate) fn forget_former(&mut self, entry: u16) {
        for placement in &mut self.superblock.placement {
            if placement.member == Some(entry) {
                (placement.member, placement.region) = (None, 0);
            }
        }
    }

    /// After a crash, copies of a cell on a member and on the one that is to replace it may differ in these
    /// rows. Rows of which there is one copy only stay as they are: without it there may be none.
    pub(crate) fn undo_replace(&mut self, first: u64, count: u64) {
        let facts = self.facts();
        for task in facts.tasks.list.iter_mut().filter(|task| task.is_filling()) {
            let roles = task.slot.map(|slot| facts.roles.of_slot(slot.into()));
            for (partition, roles) in (0..).zip(roles.into_iter().flatten()) {
                let rows = facts.layout.partition_rows(partition);
                let (from, to) = (first.max(rows.start), (first + count).min(rows.end));
                if roles.home.is_some() && roles.incoming.is_some() && from < to {
                    task.done.remove(from, to - from);
                    task.claimed.remove(from, to - from);
                    task.durable.remove(from, to - from);
                }
            }
        }
    }

    // -------------------------------------------------------------------------------------------- installing

    /// What was filled serves from now on. A member that serves nothing any more becomes a spare again if it
    /// had shared the slot with others or hosted a part of it, or if it is `spared`; else a failed one that
    /// may be removed.
    pub(crate) fn install(&mut self, slot: usize, spared: bool) {
        let was_shared = spared || self.is_shared(slot);
        let (mut fresh, mut replaced) = (Vec::new(), Vec::new());
        for roles in self.roles.of_slot_mut(slot) {
            if let Some(incoming) = roles.incoming.take() {
                replaced.extend(roles.home.replace(incoming));
                fresh.push(incoming.member);
            }
        }
        assert!(!fresh.is_empty(), "a filled slot has an incoming member");
        self.superblock.generation += 1;
        if !replaced.is_empty() {
            // From here on writes pass the old members by: none is acknowledged before the superblocks say
            // so.
            self.writer.note_failure();
        }
        for &home in &replaced {
            self.leave(home, was_shared);
        }
        for member in fresh {
            self.take_office(member);
        }
        self.place_entries();
        self.assess();
    }

    /// A home is one no longer.
    fn leave(&mut self, home: Home, was_shared: bool) {
        self.devices[home.member.0 as usize].left_under = self.writer.version_wanted();
        if self.roles.members().contains(&home.member) {
            let vacated = (home.member, self.logs.next_sequence());
            return self.tasks.vacated.push(vacated);
        }
        if was_shared || !home.is_own() {
            self.release(home.member);
        } else {
            self.retire(home.member);
        }
    }

    /// What a member held lies elsewhere: it is a spare again.
    fn release(&mut self, member: Member) {
        if let Some(entry) = self.devices[member.0 as usize].entry {
            self.superblock.members[entry as usize].role = MemberRole::Spare;
            self.forget_former(entry);
        }
        self.logs.forget(member);
    }

    fn retire(&mut self, member: Member) {
        let device = &mut self.devices[member.0 as usize];
        device.health = Health::Failed;
        if let Some(entry) = device.entry {
            let (generation, sequence) = (self.superblock.generation, self.superblock.sequence);
            self.superblock.members[entry as usize].leave(generation, false, sequence);
        }
        self.logs.forget(member);
    }

    // ----------------------------------------------------------------------------------------- the placement

    /// The regions of a member that joins with so many sectors, by those of another: no spare partitions
    /// where it has no room for them.
    pub(crate) fn regions_within(&self, sectors: u64) -> Vec<restripe_format::meta::Region> {
        let regions = self.superblock.regions.iter().copied();
        let fits = |region: &restripe_format::meta::Region| {
            region.kind != RegionKind::SparePartition || region.end() <= sectors
        };
        regions.filter(fits).collect()
    }
}
