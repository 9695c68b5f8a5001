//! The floor of commands: checked and carried out, each answered when what it changed is durable.
//!
//! Owns the commands that wait, and how far a stop is. Asks every floor below. Sends
//! [`crate::facts::Notice::CarriedOut`], so that what a command leads to comes before its answer is prepared.

mod admission;
mod lease;
mod members;
mod stop;
mod waiting;

use crate::config::Config;
use crate::contract::{Action, Command, CommandError, CommandTag, LeaseError, ScrubMode, refusals};
use crate::facts::Notice;
use crate::members::device::Health;
use crate::members::pool::Share;
use crate::policy::throttle::Limits;
use crate::report::ArrayState;
use crate::runset::RunSet;
use crate::slice::relocate;
use crate::start::Start;
use crate::units::{Member, Uuid};
use alloc::vec::Vec;
use restripe_format::meta::superblock::{Partner, PartnerRole};
use waiting::{Admission, Answer};

/// Refusal of commands to an array that only reads, because too many members are missing.
const FAILED: &str = "too many members are missing: attach them again, stop the array, and serve it with all members";

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
            Command::LogSet(array) => self.command_log_set(array),
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
        let version = self.keeper.version_wanted();
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
        self.keeper.is_durable(answer.version) && !joining
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
        self.keeper.note_change();
        Ok(())
    }
}

/// The member that a command takes in.
fn added(command: &Command) -> Option<Member> {
    match *command {
        Command::Add(member) | Command::Replace { new: member, .. } => Some(member),
        _ => None,
    }
}
