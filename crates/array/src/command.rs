//! What operators ask for, checked and carried out.

use crate::contract::{
    Action, Command, CommandError, CommandTag, Fact, FailCause, LeaseError, MemberInfo,
    NO_REDIRECT_MAP, ScrubMode, TaskKind,
};
use crate::core::Core;
use crate::durability::flusher::Waiter;
use crate::members::device::{Device, Health, Places};
use crate::planted::Bug;
use crate::policy::throttle::Limits;
use crate::report::ArrayState;
use crate::runset::RunSet;
use crate::slice::relocate;
use crate::standing::{Home, Standing};
use crate::units::{Member, Slot, Uuid};
use alloc::vec::Vec;
use restripe_format::meta::superblock::{
    MEMBERS_MAX, MemberEntry, MemberRole, Partner, PartnerRole, Placement,
};

/// Refusal of commands to an array that only reads, because too many members are missing.
const FAILED: &str = "too many members are missing: attach them again, stop the array, and serve it with all members";

pub const NO_BUFFER: &str = "the array is not served with an NVRAM buffer";

/// The reply to a command, which waits until what it changed is on the members.
pub(crate) struct Answer {
    tag: CommandTag,
    version: u64,
    /// The member that the command takes in. Its failure meanwhile is the command's.
    taken_in: Option<Member>,
}

/// The member that a command takes in.
fn taken_in(command: &Command) -> Option<Member> {
    match *command {
        Command::Add(member) | Command::Replace { new: member, .. } => Some(member),
        _ => None,
    }
}

impl Core {
    pub(crate) fn command(&mut self, tag: CommandTag, command: Command) {
        let writes = self.serving() && !self.halted() && !self.mode.read_only;
        if !(writes && self.look_before(tag, command)) {
            self.carry_out(tag, command);
        }
    }

    /// Carries out a command now that all is known which it hangs on.
    pub(crate) fn carry_out(&mut self, tag: CommandTag, command: Command) {
        let taken_in = taken_in(&command);
        let result = match command {
            Command::Start(mode) => return self.boot_start(tag, mode),
            Command::Stop => return self.stop(tag),
            _ if self.not_started() && self.set_pace(&command) => {
                return self.answer(tag, Ok(()));
            }
            _ if !self.serving() => Err(CommandError::Busy("the array is not serving")),
            // Before anything is changed: what is refused must not have been done.
            _ if self.halted() => self.on_record(),
            _ if self.state == ArrayState::Failed => Err(CommandError::Busy(FAILED)),
            _ if self.mode.read_only => Err(CommandError::Busy("the array was started read-only")),
            Command::Fail(member) => self.command_fail(member),
            Command::Remove(member) => self.command_remove(member),
            Command::Add(member) => self.command_add(member),
            Command::Overwrite(member) => self.command_overwrite(member),
            Command::AddToSurrogate(_) => Err(CommandError::Busy(
                "the array is not served with a surrogate",
            )),
            Command::AddToBuffer(_) => Err(CommandError::Busy(NO_BUFFER)),
            Command::Surrogate(surrogate) => self.command_log_set(surrogate),
            Command::Replace { old, new } => self.command_replace(old, new),
            Command::Grow { by } => self.command_grow(by),
            Command::Reshape { by } => self.command_reshape(by),
            Command::Scrub(mode) => self.command_scrub(mode),
            Command::Pause(paused) => self.command_pause(paused),
            Command::Cancel => {
                if self.cancel_scrub() {
                    Ok(())
                } else {
                    Err(CommandError::Busy("no scrub is running"))
                }
            }
            Command::Rate { .. }
            | Command::Throttle(_)
            | Command::Order(_)
            | Command::OnDemand(_)
            | Command::Moves(_)
            | Command::CopyBack(_)
            | Command::Date(_) => {
                self.set_pace(&command);
                Ok(())
            }
            Command::Destage => Err(CommandError::Unsuited("the array has no log")),
            Command::Lease(command) => self.command_lease(command),
        };
        match result {
            Ok(()) => {
                self.attend();
                self.answer_when_durable(tag, taken_in);
            }
            Err(error) => self.answer(tag, Err(error)),
        }
    }

    /// Commands about paces hold from before the first task is there.
    fn not_started(&self) -> bool {
        self.state == ArrayState::Starting && !self.starts()
    }

    /// Takes up a command about the paces of tasks; false if it is about something else.
    fn set_pace(&mut self, command: &Command) -> bool {
        match *command {
            Command::Rate { min, max } => {
                let max = max.max(1);
                self.tasks.set_limits(Limits { min, max });
            }
            Command::Throttle(throttle) => self.tasks.set_throttle(throttle),
            Command::Order(order) => self.set_order(order),
            Command::OnDemand(on_demand) => self.tasks.set_on_demand(on_demand),
            Command::Moves(moves) => relocate::set_moves(self, moves),
            Command::CopyBack(copies_back) => self.tasks.stays_apart = !copies_back,
            Command::Date(date) => self.tasks.date = (date > 0).then_some((self.now, date)),
            _ => return false,
        }
        true
    }

    /// A command is answered once what it changed is on the members.
    fn answer_when_durable(&mut self, tag: CommandTag, taken_in: Option<Member>) {
        let version = self.keeper.version_wanted();
        self.answers.push(Answer {
            tag,
            version,
            taken_in,
        });
    }

    pub(crate) fn answers_turn(&mut self) {
        let mut index = 0;
        while index < self.answers.len() {
            if self.is_over(&self.answers[index]) {
                let answer = self.answers.remove(index);
                let result = self.on_record().and_then(|()| self.still_in(&answer));
                self.out.push(Action::CommandReply(answer.tag, result));
            } else {
                index += 1;
            }
        }
    }

    /// Whether what a command changed is on the members. A member that was added has been flushed by then, too, and is free
    /// for the next command.
    fn is_over(&self, answer: &Answer) -> bool {
        let joining = answer.taken_in.is_some() && self.flusher.is_joining();
        self.keeper.is_durable(answer.version) && !joining
    }

    /// Its superblock was written to the member, too: one that could not take it has failed by now.
    fn still_in(&self, answer: &Answer) -> Result<(), CommandError> {
        let failed = |member: &Member| self.devices[member.0 as usize].health != Health::Good;
        match answer.taken_in.filter(failed) {
            Some(member) => Err(CommandError::FailedAgain(member)),
            None => Ok(()),
        }
    }

    fn known(&self, member: Member) -> Result<usize, CommandError> {
        let index = member.0 as usize;
        if index < self.devices.len() {
            Ok(index)
        } else {
            Err(CommandError::NoSuchMember(member))
        }
    }

    /// Whether a member may be failed by command.
    pub fn may_fail(&self, member: Member) -> Result<(), CommandError> {
        let index = self.known(member)?;
        if self.devices[index].health != Health::Good {
            return Err(CommandError::NoSuchMember(member));
        }
        if self.indispensable(member) || self.tells_alone(member) {
            return Err(CommandError::Indispensable(member));
        }
        Ok(())
    }

    fn command_fail(&mut self, member: Member) -> Result<(), CommandError> {
        self.may_fail(member)?;
        self.fail_member(member, FailCause::Command);
        Ok(())
    }

    fn command_remove(&mut self, member: Member) -> Result<(), CommandError> {
        let index = self.known(member)?;
        let Some(entry) = self.devices[index].entry else {
            return Err(CommandError::NoSuchMember(member));
        };
        if self.slot_of(member).is_some() {
            return Err(CommandError::Busy(
                "the member is in use: fail or replace it first",
            ));
        }
        self.devices[index].health = Health::Stranger;
        self.devices[index].entry = None;
        self.forget_dropped_target(entry);
        self.drop_entry(entry);
        self.keeper.note_change();
        Ok(())
    }

    // ---------------------------------------------------------------------------------------------------- adding

    /// A former member goes back to its place; anything else becomes a spare.
    fn command_add(&mut self, member: Member) -> Result<(), CommandError> {
        let index = self.known(member)?;
        if self.devices[index].health == Health::Good {
            return Err(CommandError::Busy("the member is in use"));
        }
        if self.ops.busy(member) {
            return Err(CommandError::Busy(
                "operations on the member are still outstanding",
            ));
        }
        self.fits(member)?;
        let former = self.devices[index]
            .entry
            .map(|entry| self.superblock.members[entry as usize].role);
        let former_place = self.devices[index]
            .entry
            .and_then(|entry| self.vacated_by(entry));
        match (former, former_place) {
            (Some(MemberRole::Failed { partial: true, .. }), Some((slot, partitions))) => {
                self.check_may_fill()?;
                self.devices[index].health = Health::Good;
                self.devices[index].full = false;
                let done = self.rows_not_owed();
                let places = self.places_on(member, partitions.into_iter());
                self.fill(slot.into(), &places, TaskKind::Rebuild, done);
            }
            _ => self.add_spare(member)?,
        }
        // What the member holds is not known to be durable.
        self.flush_for(Waiter::Join);
        self.keeper.note_change();
        Ok(())
    }

    fn fits(&self, member: Member) -> Result<(), CommandError> {
        let info = &self.devices[member.0 as usize].info;
        let allowed = self.mode.volatile_members || self.planted(Bug::VolatileTakenIn);
        if info.volatile && !allowed {
            return Err(CommandError::Volatile(member));
        }
        let needs = self.needs_sectors();
        if info.sectors < needs {
            return Err(CommandError::TooSmall {
                has: info.sectors,
                needs,
            });
        }
        if info.logical_block > self.superblock.logical_block {
            let (member, array) = (info.logical_block, self.superblock.logical_block);
            return Err(CommandError::LogicalBlock { member, array });
        }
        Ok(())
    }

    /// The slot that a former member held in its set data, and the partitions of it that nobody has taken since.
    fn vacated_by(&self, entry: u16) -> Option<(u16, Vec<u16>)> {
        let own = |line: &&Placement| line.member == Some(entry) && line.region == 0;
        let slot = self.superblock.placement.iter().find(own)?.slot;
        if self.standing.is_filled(slot.into()) {
            return None;
        }
        let was_its = |partition: &u16| {
            let line = self.superblock.placement_of(slot, *partition);
            let vacant = self.standing.at(Slot(slot), *partition).home.is_none();
            vacant && line.as_ref().is_some_and(own)
        };
        let partitions: Vec<u16> = (0..self.layout.partitions()).filter(was_its).collect();
        (!partitions.is_empty()).then_some((slot, partitions))
    }

    fn check_may_fill(&self) -> Result<(), CommandError> {
        if self.may_fill() {
            return Ok(());
        }
        Err(CommandError::Busy(
            "the maximum number of members is already being rebuilt: wait for one",
        ))
    }

    /// What a member that left holds still: the rows that it is not owed.
    fn rows_not_owed(&self) -> RunSet {
        let mut rows = RunSet::default();
        rows.insert(0, self.layout.rows());
        for region in 0..self.regions() {
            if self.intent.get(self.owed_bit(region)) {
                let first = region * self.superblock.intent_rows;
                rows.remove(
                    first,
                    self.superblock.intent_rows.min(self.layout.rows() - first),
                );
            }
        }
        rows
    }

    fn add_spare(&mut self, member: Member) -> Result<(), CommandError> {
        let index = member.0 as usize;
        if self.devices[index].entry.is_none() {
            if self.superblock.members.len() >= MEMBERS_MAX {
                return Err(CommandError::Busy(
                    "the member table is full: remove failed members first",
                ));
            }
            let uuid = self.fresh_uuid();
            self.superblock.members.push(MemberEntry {
                uuid,
                role: MemberRole::Spare,
                current_since: 0,
                log_floor: 0,
                read_errors: 0,
                left_at: 0,
                dropped_for: None,
            });
            self.devices[index].entry = Some((self.superblock.members.len() - 1) as u16);
            self.devices[index].regions = self.regions_within(self.devices[index].info.sectors);
            self.devices[index].places = Places::of(&self.devices[index].regions);
        }
        let entry = self.devices[index].entry.expect("given above");
        self.superblock.members[entry as usize].role = MemberRole::Spare;
        self.forget_dropped_target(entry);
        self.forget_former(entry);
        self.devices[index].health = Health::Good;
        self.devices[index].full = false;
        Ok(())
    }

    /// A member's identity, drawn from the array's and the moment, and like neither (RFC 9562, version 8). The engine has
    /// no chance at hand: the same events give the same identities.
    fn fresh_uuid(&self) -> Uuid {
        let array = u128::from_le_bytes(self.superblock.array.0);
        let moment = [
            self.now.0,
            self.superblock.sequence,
            self.superblock.generation,
        ];
        let drawn = moment
            .into_iter()
            .fold(array, |drawn, word| scattered(drawn ^ u128::from(word)));
        let mut bytes = drawn.to_le_bytes();
        bytes[6] = (bytes[6] & 0x0f) | 0x80;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        while self
            .superblock
            .members
            .iter()
            .any(|line| line.uuid.0 == bytes)
        {
            bytes[15] = bytes[15].wrapping_add(1);
        }
        Uuid(bytes)
    }

    /// The superblocks say so durably before it is answered. Whatever was on record of an earlier log set is void: a log
    /// counts under the epochs of its own array only.
    fn command_log_set(&mut self, surrogate: Option<Uuid>) -> Result<(), CommandError> {
        match (surrogate, self.superblock.partner) {
            (Some(_), Some(_)) => {
                return Err(CommandError::Busy("the array already records a surrogate"));
            }
            (None, None) => return Err(CommandError::Busy("the array has no surrogate")),
            (Some(_), None) if !self.superblock.lent.is_empty() => {
                return Err(CommandError::Lease(LeaseError::Lends));
            }
            (Some(_), None) if self.is_reshaping() => {
                return Err(CommandError::Busy(
                    "the array is growing: wait until the growth ends",
                ));
            }
            (Some(_), None) if !self.redirectable() => {
                return Err(CommandError::Busy(NO_REDIRECT_MAP));
            }
            (None, Some(partner)) if !self.redirected_extents().is_empty() => {
                return Err(CommandError::SurrogateMissing {
                    surrogate: partner.array,
                    extents: self.redirected_extents(),
                });
            }
            _ => {}
        }
        self.set_partner(surrogate.map(|array| Partner::new(PartnerRole::Main, array)));
        Ok(())
    }

    // ----------------------------------------------------------------------------------------------------- tasks

    fn command_replace(&mut self, old: Member, new: Member) -> Result<(), CommandError> {
        self.known(old)?;
        self.known(new)?;
        let Some(slot) = self.serving_slot(old) else {
            return Err(CommandError::NoSuchMember(old));
        };
        if self.standing.is_filled(slot) {
            return Err(CommandError::Busy("the member is being replaced already"));
        }
        let shares = |home: Home| home.is_own() && home.member != old;
        let of_slot = self.standing.of_slot(slot).iter();
        if of_slot.flat_map(Standing::homes).any(shares) {
            return Err(CommandError::Busy(
                "other members host partitions of the member's slot: wait for the copy-back",
            ));
        }
        if !self.standing.hosted_by(old).is_empty() {
            return Err(CommandError::Busy(
                "the member hosts partitions of other slots: add a spare, and wait for the copy-back",
            ));
        }
        self.check_may_fill()?;
        if !self.may_begin(new) {
            return Err(CommandError::Busy(
                "the new member is in use, or was removed from its slot a moment ago",
            ));
        }
        self.fits(new)?;
        self.add_spare(new)?;
        let places = self.places_on(new, 0..self.layout.partitions());
        self.fill(slot, &places, TaskKind::Replace, RunSet::default());
        Ok(())
    }

    /// The slot that a member serves: its own, if it has one.
    fn serving_slot(&self, member: Member) -> Option<usize> {
        let serves = self.standing.iter().any(|one| one.serves(member));
        self.slot_of(member).filter(|_| serves)
    }

    fn command_scrub(&mut self, mode: ScrubMode) -> Result<(), CommandError> {
        if self.layout.tolerance() == 0 {
            return Err(CommandError::Busy("there is no redundancy to check"));
        }
        if !self.complete() {
            return Err(CommandError::Busy(
                "the array is degraded: scrub it after the rebuild",
            ));
        }
        if self.tasks.list.iter().any(|task| task.kind.is_scrub()) {
            return Err(CommandError::Busy("a scrub is running"));
        }
        for device in &mut self.devices {
            device.check_errors = 0;
        }
        self.start_scrub(mode, RunSet::default());
        Ok(())
    }

    fn command_pause(&mut self, paused: bool) -> Result<(), CommandError> {
        if self.tasks.list.is_empty() {
            return Err(CommandError::Busy("no task is running"));
        }
        for task in &mut self.tasks.list {
            task.paused = paused;
        }
        self.keeper.note_change();
        Ok(())
    }

    pub(crate) fn arrived(&mut self, info: MemberInfo) {
        self.devices.push(Device::new(info));
    }

    pub(crate) fn departed(&mut self, member: Member) {
        if (member.0 as usize) < self.devices.len() {
            self.fail_member(member, FailCause::Gone);
        }
    }

    // -------------------------------------------------------------------------------------------------- stopping

    /// Refuses requests from now on, lets those under way end, flushes, and marks the array clean.
    fn stop(&mut self, tag: CommandTag) {
        if !self.serving() {
            let error = CommandError::Busy("the array is not serving");
            self.out.push(Action::CommandReply(tag, Err(error)));
            return;
        }
        self.state = ArrayState::Stopping;
        self.stopping = Some(tag);
        self.stop_turn();
    }

    /// Goes on with a stop when nothing is in flight any more.
    pub(crate) fn stop_turn(&mut self) {
        if self.state != ArrayState::Stopping || self.stop_flush {
            return;
        }
        let drained = self.requests.idle()
            && self.slices.idle()
            && self.inits.is_empty()
            && self.flusher.idle()
            && self.admissions.is_empty()
            && self.reshape_rests();
        if drained {
            self.stop_flush = true;
            self.flush_for(Waiter::Stop);
        }
    }

    pub(crate) fn stop_flushed(&mut self) {
        if self.mode.read_only {
            return self.stopped();
        }
        self.tasks.all_durable();
        self.scrub_stops();
        self.heat_due();
        self.superblock.clean = true;
        self.superblock.tail.owner = None;
        self.keeper.note_change();
        self.stop_version = self.keeper.version_wanted();
    }

    /// A stop writes two versions, as a start does: a copy of a member from before is two behind ([`crate::choose::choose`]).
    pub(crate) fn stop_settle(&mut self) {
        let durable = self.stop_version > 0 && self.keeper.is_durable(self.stop_version);
        if !durable || self.maps_dirty() || self.heat_pages.dirty() {
            return;
        }
        let once = self.planted(Bug::StopWritesOnce);
        if core::mem::replace(&mut self.stop_confirms, true) || once || self.halted() {
            return self.stopped();
        }
        self.keeper.note_change();
        self.stop_version = self.keeper.version_wanted();
        self.keep();
    }

    fn stopped(&mut self) {
        self.stop_version = 0;
        self.stop_confirms = false;
        self.state = ArrayState::Stopped;
        let on_record = self.on_record();
        if on_record.is_ok() {
            self.fact(Fact::Stopped);
        }
        if let Some(tag) = self.stopping.take() {
            self.out.push(Action::CommandReply(tag, on_record));
        }
    }
}

/// Another number for each number, every bit of which hangs on all bits: odd factors and shifted sums can be undone, so no
/// two become one. Four rounds.
fn scattered(number: u128) -> u128 {
    const ODD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    (0..4u32).fold(number, |number, _| {
        let number = number.wrapping_add(1).wrapping_mul(ODD);
        number ^ (number >> 67)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_scattered_over_all_bits() {
        for base in [0u128, 1, u128::MAX, 0x1234_5678 << 64] {
            for bit in 0..128 {
                let differing = scattered(base) ^ scattered(base ^ (1 << bit));
                let ones = differing.count_ones();
                assert!((40..=88).contains(&ones), "{base:x} {bit}: {ones}");
            }
        }
    }
}
