//! Commands: each goes to a set, or to the floor that carries it out.

use super::facts::Stage;
use super::route::Route;
use crate::overlay::Site;
use crate::tier::Tier;
use restripe_array::refusals::NO_BUFFER;
use restripe_array::{Command, CommandError, CommandTag, Event, Member, MemberInfo};

impl Tier {
    pub(super) fn command(&mut self, tag: CommandTag, command: Command) {
        match command {
            Command::Start(mode) => {
                self.revive.note(mode);
                self.begin_start(tag, mode);
            }
            Command::Stop => self.begin_stop(tag),
            Command::Rate { .. }
            | Command::Throttle(_)
            | Command::Order(_)
            | Command::OnDemand(_)
            | Command::Moves(_)
            | Command::CopyBack(_)
            | Command::Date(_) => self.deliver(Site::Home, Event::Command(tag, command)),
            Command::LogSet(Some(_)) => {
                self.answer_busy(tag, "it was started as an array with a surrogate");
            }
            Command::AddToBuffer(_) if self.surrogate.buffer_members == 0 => {
                self.answer_busy(tag, NO_BUFFER);
            }
            Command::AddToSurrogate(_) | Command::AddToBuffer(_)
                if self.stage == Stage::MainOnly =>
            {
                self.answer_busy(tag, "the surrogate was not started with the array");
            }
            _ if !matches!(self.stage, Stage::Serving | Stage::MainOnly) => {
                self.answer_busy(tag, "the array is not serving");
            }
            Command::LogSet(None) => self.begin_leaving(tag),
            Command::Destage => {
                let result = self.ask_destage();
                self.answer_command(tag, result);
            }
            command if self.hold(tag, &command) || self.fails_log(tag, &command) => {}
            command => {
                let (site, command) = self.route_command(command);
                self.deliver(site, Event::Command(tag, command));
            }
        }
    }

    /// Whether a member may be failed by command. For members of the log set or NVRAM set only the command
    /// itself decides: the members of the main set may have all data.
    pub(crate) fn may_fail(&self, member: Member) -> Result<(), CommandError> {
        match self.route.set_of(member) {
            (Site::Home, own) => {
                let may = self.home().may_fail(own);
                may.map_err(|error| self.route.error_of(Site::Home, error))
            }
            _ => Ok(()),
        }
    }

    /// The set that a command is for, and the command in that set's numbers.
    fn route_command(&mut self, command: Command) -> (Site, Command) {
        let on = |route: &Route, member, make: fn(Member) -> Command| {
            let (site, member) = route.set_of(member);
            (site, make(member))
        };
        match command {
            Command::Fail(member) => on(&self.route, member, Command::Fail),
            Command::Remove(member) => on(&self.route, member, Command::Remove),
            Command::Add(member) => on(&self.route, member, Command::Add),
            Command::Overwrite(member) => on(&self.route, member, Command::Overwrite),
            Command::AddToSurrogate(member) => {
                (Site::Log, Command::Add(self.move_to(Site::Log, member)))
            }
            Command::AddToBuffer(member) => {
                let local = self.move_to(Site::Nvram, member);
                (Site::Nvram, Command::Add(local))
            }
            Command::Replace { old, new } => {
                let (site, old) = self.route.set_of(old);
                let new = self.move_to(site, new);
                // A log set replaces a missing member as well: devices otherwise go to the main set.
                match site != Site::Home && self.sets[site].slot_of(old).is_none() {
                    true => (site, Command::Add(new)),
                    false => (site, Command::Replace { old, new }),
                }
            }
            other => (Site::Home, other),
        }
    }

    /// Moves a device that no set uses to this set.
    fn move_to(&mut self, site: Site, member: Member) -> Member {
        let (at, local) = self.route.set_of(member);
        if at == site || self.sets[at].slot_of(local).is_some() {
            return local;
        }
        let Some(info) = self.route.reassign(member, site) else {
            return local;
        };
        let overwrite = self.sets[at].may_overwrite(local);
        self.sets[site].arrived_from(info, overwrite);
        self.route.set_of(member).1
    }

    pub(super) fn arrived(&mut self, info: MemberInfo) {
        self.route.arrived(info, Site::Home);
        self.step_former_set(Site::Home, &Event::Arrived(info));
        self.deliver(Site::Home, Event::Arrived(info));
    }
}
