//! The floor of commands: checked and carried out, each answered when what it changed is durable.
//!
//! Owns the commands that wait, for what they changed to be durable or for what their device has on record,
//! and how far a stop is. Asks every floor below. Sends [`crate::facts::Notice::CarriedOut`], so that what a
//! command leads to comes before its answer is prepared.

mod admission;
mod members;

use crate::config::Config;
use crate::contract::{Action, Bug, Command, CommandError, CommandTag, Fact, ScrubMode, refusals};
use crate::facts::{Notice, Waiter};
use crate::members::device::Health;
use crate::members::pool::Share;
use crate::policy::throttle::Limits;
use crate::report::ArrayState;
use crate::runset::RunSet;
use crate::slice::relocate;
use crate::start::Start;
use crate::units::{Member, Uuid};
use alloc::vec::Vec;
use restripe_format::meta::MetaError;
use restripe_format::meta::leases::{self, LeaseCommand, LeaseError};
use restripe_format::meta::superblock::{Partner, PartnerRole, SUPER_B_PLACES, Superblock};

/// Refusal of commands to an array that only reads, because too many members are missing.
const FAILED: &str = "too many members are missing: attach them again, stop the array, and serve it with all members";

/// The reply to a command, which waits until what it changed is on the members.
struct Answer {
    tag: CommandTag,
    version: u64,
    /// The member that the command takes in. Its failure meanwhile is the command's.
    added: Option<Member>,
}

/// The places where a device may have superblocks.
const PLACES: usize = 1 + SUPER_B_PLACES.len();

/// A command that waits for what its device has on record.
struct Admission {
    tag: CommandTag,
    command: Command,
    member: Member,
    places: [Option<Result<Superblock, MetaError>>; PLACES],
    outstanding: u32,
    /// Copy A could not be read.
    unread: bool,
    /// Whatever it carries may be overwritten, but for a member that is in use.
    overwrites: bool,
    twin: Option<Twin>,
}

/// The member in use whose superblock the device has.
struct Twin {
    member: Member,
    /// The newest superblock of the device before the step.
    before: Superblock,
    /// The version to be awaited; none once the device is read again.
    version: Option<u64>,
}

pub struct Commands {
    below: Start,
    /// Commands that wait for a version of the superblock to be durable.
    answers: Vec<Answer>,
    admissions: Vec<Admission>,
    stopping: Option<CommandTag>,
    stop_flush: bool,
    stop_version: u64,
    /// The second version of this stop is being written.
    stop_confirms: bool,
}

floor!(Commands, Start);

impl Commands {
    pub(crate) fn new(config: Config, share: Share) -> Commands {
        Commands {
            answers: Vec::new(),
            admissions: Vec::new(),
            stopping: None,
            stop_flush: false,
            stop_version: 0,
            stop_confirms: false,
            below: Start::new(config, share),
        }
    }

    pub(crate) fn command(&mut self, tag: CommandTag, command: Command) {
        let writes = self.serving() && !self.halted() && !self.mode.read_only;
        if !(writes && self.look_before(tag, command)) {
            self.carry_out(tag, command);
        }
    }

    /// Carries out a command now that all is known which it hangs on.
    pub(crate) fn carry_out(&mut self, tag: CommandTag, command: Command) {
        let added = added(&command);
        let result = match command {
            Command::Start(mode) => return self.begin_start(tag, mode),
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
            Command::LogSet(array) => self.command_log_set(array),
            Command::Replace { old, new } => self.command_replace(old, new),
            Command::Grow { by } => self.command_grow(by),
            Command::Reshape { by } => self.command_reshape(by),
            Command::Scrub(mode) => self.command_scrub(mode),
            Command::Pause(paused) => self.command_pause(paused),
            Command::Cancel => match self.cancel_scrub() {
                true => Ok(()),
                false => Err(CommandError::Busy("no scrub is running")),
            },
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
            Command::Lease(command) => self.command_lease(command),
            other => Err(other
                .refusal_of_set()
                .expect("a set carries out all its own commands")),
        };
        match result {
            Ok(()) => self.notify(Notice::CarriedOut { tag, added }),
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
    pub(crate) fn answer_when_durable(&mut self, tag: CommandTag, added: Option<Member>) {
        let version = self.writer.version_wanted();
        self.answers.push(Answer {
            tag,
            version,
            added,
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

    /// Whether what a command changed is on the members. A member that was added has been flushed by then,
    /// too, and is free for the next command.
    fn is_over(&self, answer: &Answer) -> bool {
        let joining = answer.added.is_some() && self.flusher.is_joining();
        self.writer.is_durable(answer.version) && !joining
    }

    /// Its superblock was written to the member, too: one that could not take it has failed by now.
    fn still_in(&self, answer: &Answer) -> Result<(), CommandError> {
        let failed = |member: &Member| self.devices[member.0 as usize].health != Health::Good;
        match answer.added.filter(failed) {
            Some(member) => Err(CommandError::FailedAgain(member)),
            None => Ok(()),
        }
    }

    /// The superblocks say so durably before it is answered. Whatever was on record of an earlier log set is
    /// void: a log counts under the epochs of its own array only.
    fn command_log_set(&mut self, array: Option<Uuid>) -> Result<(), CommandError> {
        match (array, self.superblock.partner) {
            (Some(_), Some(_)) => {
                return Err(CommandError::Busy(refusals::HAS_LOG_SET));
            }
            (None, None) => return Err(CommandError::Busy(refusals::NO_LOG_SET)),
            (Some(_), None) if !self.superblock.lent.is_empty() => {
                return Err(CommandError::Lease(LeaseError::Lends));
            }
            (Some(_), None) if self.is_reshaping() => {
                return Err(CommandError::Busy(
                    "the array is growing: wait until the growth ends",
                ));
            }
            (Some(_), None) if !self.redirectable() => {
                return Err(CommandError::Busy(refusals::NO_REDIRECT_MAP));
            }
            (None, Some(partner)) if !self.redirected_extents().is_empty() => {
                let extents = self.redirected_extents();
                return Err(CommandError::log_set_missing(partner.array, extents));
            }
            _ => {}
        }
        self.set_partner(array.map(|array| Partner::new(PartnerRole::Main, array)));
        Ok(())
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
        self.writer.note_change();
        Ok(())
    }

    // ------------------------------------------------------------------------------------------------- a
    // stop

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
            && self.makes_no_extents()
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
        self.writer.note_change();
        self.stop_version = self.writer.version_wanted();
    }

    /// A stop writes two versions, as a start does: a copy of a member from before is two behind
    /// ([`crate::choose::choose`]). True if the second is to be written now.
    pub(crate) fn stop_settle(&mut self) -> bool {
        let durable = self.stop_version > 0 && self.writer.is_durable(self.stop_version);
        if !durable || self.maps_dirty() || self.heat_pages.dirty() {
            return false;
        }
        let once = self.planted(Bug::StopWritesOnce);
        if core::mem::replace(&mut self.stop_confirms, true) || once || self.halted() {
            self.stopped();
            return false;
        }
        self.writer.note_change();
        self.stop_version = self.writer.version_wanted();
        true
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

    // -------------------------------------------------------------------------------------------------
    // leases

    /// Changes what parts of itself the array lends to other arrays. That is durable on all serving members
    /// before it is answered or reported. Otherwise a crash could undo a lease that a borrower has written
    /// to. The engine treats a borrower's requests as any others; the shell checks which part it may reach.
    fn command_lease(&mut self, command: LeaseCommand) -> Result<(), CommandError> {
        self.change_leases(command).map_err(CommandError::Lease)?;
        self.writer.note_change();
        Ok(())
    }

    fn change_leases(&mut self, command: LeaseCommand) -> Result<(), LeaseError> {
        let row = self.layout.row_sectors();
        let parcels = &mut self.superblock.lent;
        match command {
            LeaseCommand::Add { name, sectors } => {
                // What cannot be rounded up is more than any array has.
                let rounded = sectors.max(1).checked_next_multiple_of(row);
                leases::lend(parcels, name, rounded.unwrap_or(u64::MAX))
            }
            LeaseCommand::Remove { name, force } => leases::take_back(parcels, name, force),
            LeaseCommand::Bind { name, borrower } => leases::bind(parcels, name, borrower),
        }
    }
}

/// The member that a command takes in.
fn added(command: &Command) -> Option<Member> {
    match *command {
        Command::Add(member) | Command::Replace { new: member, .. } => Some(member),
        _ => None,
    }
}
