//! An array with its engine in this process: questions and commands to the engine, its members' names, and its facts.
//!
//! A member is named as the operator knows it: by the path under which it was opened, by its number in `status`, or by
//! its UUID.

use crate::arrays::member::same_file;
use crate::arrays::origin::other_sets;
use crate::arrays::refusals::refusal;
use crate::arrays::setup::Setup;
use crate::daemon::control::facts::FactLog;
use restripe_array::report::{MemberState, MemberStatus};
use restripe_array::{Command, CommandError, Member, Nanos};
use restripe_io::control::{FactView, HeatView, Refusal, Reply, StatusView};
use restripe_io::member::OpenOptions;
use restripe_io::member::disk::whole_disk;
use restripe_io::remote::{Ended, MemberName, Remote};
use restripe_io::shell::LeaseUse;
use restripe_tier::report::Status;
use std::mem::discriminant;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What the engine said, or that there is none any more.
pub(crate) type Said<T = ()> = Result<T, Refusal>;
pub(crate) type Answered = Said<Reply>;

pub(crate) struct ServedArray {
    pub(super) remote: Remote,
    /// Its number in the reactor.
    pub(super) number: usize,
    epoch: Instant,
    pub(super) setup: Setup,
    pub(super) open: OpenOptions,
    /// The last word about each pace, for an engine that takes the place of this one.
    paces: Mutex<Vec<Command>>,
    facts: Mutex<FactLog>,
}

impl ServedArray {
    pub(crate) fn new(remote: Remote, number: usize, epoch: Instant, setup: Setup) -> ServedArray {
        let open = setup.open_options();
        let facts = FactLog::new(&remote, number, open.read_only);
        ServedArray {
            remote,
            number,
            epoch,
            setup,
            open,
            paces: Mutex::default(),
            facts: Mutex::new(facts),
        }
    }

    /// The log of facts from a sequence number on, and where it goes on.
    pub(crate) fn facts_since(&self, since: u64) -> (Vec<FactView>, u64) {
        locked(&self.facts).since(since)
    }

    /// Returns when the log has every fact that precedes the reactor's last answer.
    pub(crate) fn wait_for_facts(&self) {
        let _ = self.remote.connections();
    }

    pub(crate) fn status(&self) -> Said<StatusView> {
        let (status, names) = self.look()?;
        let now = Nanos(u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let path_of = |number: u16| name_in(&names, Member(number)).to_string();
        let mut view = StatusView::new(&status, now, path_of);
        if let Some(rating) = self.setup.rating() {
            let disk_of = |member: Member| whole_disk(&path_of(member.0));
            view.estimate(&status, now, &rating, disk_of);
        }
        // What only the reactor knows of leases.
        if let Some(lends) = &mut view.lends {
            lends.note_uses(&self.lease_uses()?);
        }
        Ok(view)
    }

    /// What users read, with this many of the hottest zones at most.
    pub(super) fn heat(&self, most: usize) -> Said<HeatView> {
        let name = self.status()?.name;
        let heat = self.remote.heat(self.number).map_err(ended)?;
        Ok(HeatView::new(&name, &heat.unwrap_or_default(), most))
    }

    /// The engine's own status, without devices that it does not know any more, and the names of all devices by number.
    pub(super) fn look(&self) -> Said<(Status, Vec<MemberName>)> {
        let status = self.remote.status(self.number).map_err(ended)?;
        let status = status.ok_or_else(|| Refusal::new("no such array"))?;
        let names = self.remote.member_names(self.number).map_err(ended)?;
        locked(&self.facts).look(&names);
        Ok((without_ghosts(status, &names), names))
    }

    /// Sends a command, and says what an error means in this array.
    pub(crate) fn command(&self, command: Command) -> Said {
        self.ask(command)?.map_err(|error| self.refused(&error))?;
        if is_pace(&command) {
            let mut paces = locked(&self.paces);
            paces.retain(|other| discriminant(other) != discriminant(&command));
            paces.push(command);
        }
        Ok(())
    }

    /// Has a command carried out, and says this of it.
    pub(super) fn order(&self, command: Command, note: &str) -> Answered {
        self.command(command)?;
        Ok(done(note))
    }

    /// The commands about paces that hold.
    pub(super) fn paces(&self) -> Vec<Command> {
        locked(&self.paces).clone()
    }

    /// Sends a command; what the engine says of it.
    pub(super) fn ask(&self, command: Command) -> Said<Result<(), CommandError>> {
        self.remote.command(self.number, command).map_err(ended)
    }

    pub(super) fn refused(&self, error: &CommandError) -> Refusal {
        let names = self.remote.member_names(self.number).unwrap_or_default();
        let refused = refusal(error, &names);
        match error.innermost() {
            CommandError::NoSpace => self.at_full_members(refused),
            _ => refused,
        }
    }

    fn at_full_members(&self, refused: Refusal) -> Refusal {
        let Ok((status, names)) = self.look() else {
            return refused;
        };
        let full = status.all_members().filter(|member| member.full);
        let full: Vec<&str> = full.map(|full| name_in(&names, full.member)).collect();
        refused.at(full.join(", "))
    }

    /// The member that is meant, and its name.
    pub(super) fn resolve(&self, text: &str) -> Said<(Member, String)> {
        let (status, names) = self.look()?;
        let name_of = |member: &MemberStatus| name_in(&names, member.member);
        let mut members = status.all_members();
        match members.find(|member| is_meant(text, member, name_of(member))) {
            Some(member) => Ok((member.member, name_of(member).to_string())),
            None => {
                let listed: Vec<&str> = status.all_members().map(name_of).collect();
                Err(Refusal::new("the array has no such member")
                    .at(text)
                    .hint(format!("the members are {}", listed.join(", "))))
            }
        }
    }

    pub(super) fn state_of(&self, member: Member) -> Said<Option<MemberState>> {
        let (status, _) = self.look()?;
        let found = status.all_members().find(|found| found.member == member);
        Ok(found.map(|found| found.state))
    }

    /// Begins to close a device. Whatever is asked next is answered after the close is done.
    pub(super) fn close(&self, member: Member) -> Said {
        self.remote.close(self.number, member).map_err(ended)
    }

    pub(super) fn lease_uses(&self) -> Said<Vec<LeaseUse>> {
        self.remote.lease_uses(self.number).map_err(ended)
    }
}

/// A lock whose holder may have panicked: what it guards is whole after each step.
pub(super) fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn ended(error: Ended) -> Refusal {
    Refusal::new(error.to_string())
}

pub(super) fn done(note: &str) -> Reply {
    Reply::Done { note: note.into() }
}

/// A member's name; empty if its number was never given.
pub(super) fn name_in(names: &[MemberName], member: Member) -> &str {
    let found = names.get(usize::from(member.0));
    found.map_or("", |found| found.name.as_str())
}

/// Whether a device of this number is open, and under which name.
pub(super) fn open_in(names: &[MemberName], member: Member) -> Option<&str> {
    let found = names.get(usize::from(member.0)).filter(|found| found.open);
    found.map(|found| found.name.as_str())
}

fn is_pace(command: &Command) -> bool {
    use Command::{CopyBack, OnDemand, Order, Rate, Throttle};
    matches!(
        command,
        Rate { .. } | Throttle(_) | Order(_) | OnDemand(_) | CopyBack(_)
    )
}

/// A device that was closed, and that the array does not know any more, keeps its number and nothing else. Nor does one
/// that went over to the surrogate leave anything behind.
fn without_ghosts(mut status: Status, names: &[MemberName]) -> Status {
    let moved = other_sets(&status).flat_map(|(_, set)| &set.members);
    let moved: Vec<Member> = moved.map(|one| one.member).collect();
    let is_open = |member: &MemberStatus| open_in(names, member.member).is_some();
    let stays = |member: &MemberStatus| member.state != MemberState::Foreign || is_open(member);
    status
        .members
        .retain(|member| stays(member) && !moved.contains(&member.member));
    if let Some(surrogate) = &mut status.surrogate {
        surrogate.set.members.retain(stays);
        if let Some(buffer) = &mut surrogate.buffer {
            buffer.set.members.retain(stays);
        }
    }
    status
}

pub(super) fn is_meant(text: &str, member: &MemberStatus, name: &str) -> bool {
    let by_number = text
        .parse::<u16>()
        .is_ok_and(|number| number == member.member.0);
    let by_uuid = text.eq_ignore_ascii_case(&member.uuid.to_string());
    by_number || by_uuid || (!name.is_empty() && (text == name || same_file(text, name)))
}

/// The date, for the records that the engine keeps; 0, not known, of a clock before 1970.
pub(crate) fn date() -> Command {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Command::Date(since.map_or(0, |since| since.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_array::Uuid;

    #[test]
    fn a_member_is_meant_by_path_number_or_uuid() {
        let uuid = Uuid([0xab; 16]);
        let member = MemberStatus {
            volatile: false,
            full: false,
            member: Member(3),
            uuid,
            slot: None,
            has_firsts: true,
            hosts: Vec::new(),
            state: MemberState::Active,
            replaced: false,
            read_errors: 0,
            lost_errors: 0,
            spent: restripe_array::energy::Spent::default(),
        };
        for text in ["3", "d.img", "ABABABAB-ABAB-ABAB-ABAB-ABABABABABAB"] {
            assert!(is_meant(text, &member, "d.img"), "{text}");
        }
        for text in ["4", "e.img", "", "abab"] {
            assert!(!is_meant(text, &member, "d.img"), "{text}");
        }
    }
}
