//! Verbs that take devices in: what each carries is looked at before anything is written to it.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use crate::arrays::member::{content, open_failure, refuse_as_member, refuse_cycle, same_file};
use crate::arrays::origin::{Origin, Whose, origin, whose_is};
use crate::arrays::owner::{is_of_this_process, refuse_served};
use crate::daemon::control::{
    Desk, Said, done, ended, in_the_array, is_remote, not_taken, of_absent_surrogate, refusal_of,
};
use restripe_array::report::{MemberState, MemberStatus};
use restripe_array::{Command, CommandError, Member};
use restripe_io::control::{Refusal, Reply};
use restripe_io::member::{self, OpenMember};
use restripe_io::plain::Plain;
use restripe_io::remote::MemberName;

impl Desk {
    pub(super) fn add(
        &self,
        path: &str,
        force: bool,
        into: Option<Whose>,
    ) -> Result<Reply, Refusal> {
        let member = self.admit(path, force, into)?;
        let note = match self.state_of(member)? {
            Some(MemberState::Spare) => "is a spare",
            Some(MemberState::Rebuilding) => "is added; its rebuild has started",
            _ => "is added",
        };
        Ok(done(&format!("{path} {note}")))
    }

    /// Takes a device in: one that failed and is still open as it is, any other anew.
    pub(super) fn admit(
        &self,
        path: &str,
        force: bool,
        into: Option<Whose>,
    ) -> Result<Member, Refusal> {
        let Some(failed) = self.held(path)? else {
            return self.add_anew(path, force, into);
        };
        let whose = whose_is(&self.look()?.0, failed.member);
        if into.is_some_and(|into| into != whose) {
            return Err(in_the_array(path, "failed")
                .hint("remove it with `restripe remove`, then add it to the other set"));
        }
        if force {
            // What is there now is looked at as on any device.
            self.let_go(failed.member)?;
            return self.add_anew(path, force, into);
        }
        let again = self.ask(Command::Add(failed.member))?;
        let failed_again =
            |error: &CommandError| matches!(error.innermost(), CommandError::FailedAgain(_));
        if again.as_ref().is_err_and(failed_again) && is_remote(path) {
            // Its server may have been started anew behind a connection that goes to the old one.
            self.let_go(failed.member)?;
            return self.add_anew(path, force, into);
        }
        again.map_err(|error| self.refused(&error))?;
        Ok(failed.member)
    }

    /// As a device that holds nothing of the array. What it was before, if its server had hung up, is forgotten.
    pub(super) fn add_anew(
        &self,
        path: &str,
        force: bool,
        into: Option<Whose>,
    ) -> Result<Member, Refusal> {
        self.take_in_anew(path, force, into, |member, whose| match whose {
            Whose::Array => Command::Add(member),
            Whose::Surrogate => Command::AddToSurrogate(member),
            Whose::Buffer => Command::AddToBuffer(member),
        })
    }

    pub(super) fn take_in_anew(
        &self,
        path: &str,
        force: bool,
        into: Option<Whose>,
        command: impl FnOnce(Member, Whose) -> Command,
    ) -> Result<Member, Refusal> {
        let before = self.hung_up(path)?;
        let member = self.take_in(path, force, into, command)?;
        for old in before {
            // Refused, it stays on the list.
            let _ = self.command(Command::Remove(old));
        }
        Ok(member)
    }

    /// Failed members of this name whose connections are of no use any more. These are closed: nothing comes by them once
    /// the device is open again.
    pub(super) fn hung_up(&self, path: &str) -> Result<Vec<Member>, Refusal> {
        let (status, names) = self.look()?;
        let is_it = |member: &&MemberStatus| {
            let name = names.get(usize::from(member.member.0));
            member.state == MemberState::Failed
                && name.is_some_and(|name| !name.open && name.name == path)
        };
        let found: Vec<Member> = status
            .all_members()
            .filter(is_it)
            .map(|member| member.member)
            .collect();
        for member in &found {
            self.remote.close(self.array, *member).map_err(ended)?;
        }
        if !found.is_empty() {
            // Answered after they are closed.
            self.look()?;
        }
        Ok(found)
    }

    pub(super) fn replace(&self, old: &str, path: &str, force: bool) -> Result<Reply, Refusal> {
        let (old, old_name) = self.resolve(old)?;
        self.may_be_replaced(old, &old_name)?;
        match self.resolve(path) {
            Ok((held, name)) if !self.is_left_behind(held, force)? => {
                let new = self.free(held, &name)?;
                self.command(Command::Replace { old, new })?;
            }
            // Not a spare first: a slot that is vacant would take it.
            found => {
                if let Ok((held, _)) = found {
                    self.let_go(held)?;
                }
                let into = Some(whose_is(&self.look()?.0, old));
                self.take_in_anew(path, force, into, |new, _| Command::Replace { old, new })?;
            }
        }
        Ok(done(&format!(
            "{old_name} is being copied to {path}, which will replace it"
        )))
    }

    /// A replace copies from a member that serves. In a surrogate it takes the place of one that has failed, too.
    fn may_be_replaced(&self, old: Member, name: &str) -> Result<(), Refusal> {
        let (status, _) = self.look()?;
        let state = match whose_is(&status, old) {
            Whose::Array => self.state_of(old)?,
            Whose::Surrogate | Whose::Buffer => return Ok(()),
        };
        let (what, hint) = match state {
            Some(MemberState::Failed) => (
                "the member has failed and cannot be copied",
                "add another device with `restripe add`; it is rebuilt from the other members",
            ),
            Some(MemberState::Spare) => (
                "the member is a spare: it has no data",
                "remove it with `restripe remove`, and add another with `restripe add`",
            ),
            _ => return Ok(()),
        };
        Err(Refusal::new(what).at(name).hint(hint))
    }

    /// Whether a device that is still open is none that serves, and may be overwritten: what is there now is looked at as on
    /// any device.
    pub(super) fn is_left_behind(&self, held: Member, force: bool) -> Result<bool, Refusal> {
        let state = self.state_of(held)?;
        let idle = matches!(state, Some(MemberState::Failed | MemberState::Foreign));
        Ok(force && idle)
    }

    /// The failed member that is still open under this path, and so comes back as it is. A stranger is let go, to be
    /// looked at like any device; what is in the array cannot be added.
    pub(super) fn held(&self, path: &str) -> Result<Option<MemberStatus>, Refusal> {
        let (status, names) = self.look()?;
        let is_path =
            |name: &MemberName| name.open && (name.name == path || same_file(path, &name.name));
        let found = status
            .all_members()
            .find(|member| names.get(usize::from(member.member.0)).is_some_and(is_path));
        let Some(found) = found else { return Ok(None) };
        let state = match found.state {
            MemberState::Failed => return Ok(Some(found.clone())),
            MemberState::Foreign => return self.let_go(found.member).map(|()| None),
            MemberState::Active => "active",
            MemberState::Rebuilding => "being rebuilt",
            MemberState::Spare => "a spare",
        };
        Err(in_the_array(path, state))
    }

    /// Closes a device that is none of the members that serve.
    pub(super) fn let_go(&self, idle: Member) -> Said {
        self.remote.close(self.array, idle).map_err(ended)?;
        // Answered after the close is done.
        self.look().map(|_| ())
    }

    /// A device of the array that holds nothing of it yet.
    pub(super) fn free(&self, member: Member, name: &str) -> Result<Member, Refusal> {
        match self.state_of(member)? {
            Some(MemberState::Active) => Err(in_the_array(name, "active")),
            Some(MemberState::Rebuilding) => Err(in_the_array(name, "being rebuilt")),
            _ => Ok(member),
        }
    }

    pub(super) fn state_of(&self, member: Member) -> Result<Option<MemberState>, Refusal> {
        let (status, _) = self.look()?;
        let found = status.all_members().find(|found| found.member == member);
        Ok(found.map(|found| found.state))
    }

    /// Opens a device and hands it over by this command, which is told whose it is: this set's if one is named, or else
    /// the one's that its superblocks tell of. If the engine does not want it, it is closed again.
    pub(super) fn take_in(
        &self,
        path: &str,
        force: bool,
        into: Option<Whose>,
        command: impl FnOnce(Member, Whose) -> Command,
    ) -> Result<Member, Refusal> {
        let device =
            member::open(path, self.open).map_err(|error| refusal_of(open_failure(error)))?;
        let (device, whose) = self.checked(device, force, into)?;
        let arrived = self.remote.arrive(self.array, device).map_err(ended)?;
        let member = arrived.map_err(|why| not_taken(why).at(path))?;
        let overwritten = match force {
            true => self.command(Command::Overwrite(member)),
            false => Ok(()),
        };
        let taken = overwritten.and_then(|()| self.command(command(member, whose)));
        if let Err(refused) = taken {
            self.remote.close(self.array, member).map_err(ended)?;
            return Err(if refused.at.is_empty() {
                refused.at(path)
            } else {
                refused
            });
        }
        Ok(member)
    }

    /// What a device carries must not be overwritten unasked; a former member of a set comes home to it.
    pub(super) fn checked(
        &self,
        device: OpenMember,
        force: bool,
        into: Option<Whose>,
    ) -> Result<(OpenMember, Whose), Refusal> {
        let path = device.name.clone();
        let (status, names) = self.look()?;
        if let Err(cycle) = refuse_cycle(&status.name, status.uuid, &path, device.beneath()) {
            // A lease is no member of whichever array.
            refuse_as_member([&path]).map_err(refusal_of)?;
            return Err(refusal_of(cycle));
        }
        let device =
            Plain::of(device).map_err(|error| Refusal::new(error.to_string()).at(&path))?;
        let origin = match origin(&device, &status, into) {
            // Who overwrites does not care what it is that cannot be read.
            Err(_) if force => Origin::Stranger,
            origin => origin.map_err(refusal_of)?,
        };
        // The engine tells a copy of its own member from a second path to it.
        let judged = match origin {
            Origin::Former(_) => true,
            Origin::CopyOf(member) => whose_is(&status, member) == into.unwrap_or(Whose::Array),
            _ => false,
        };
        if !(judged && is_of_this_process(&device)) {
            refuse_served(std::iter::once(&device)).map_err(refusal_of)?;
        }
        let (whose, carried) = match origin {
            Origin::Former(whose) => (whose, None),
            _ if force => (Whose::Array, None),
            Origin::OfAbsentSurrogate => return Err(of_absent_surrogate(&path)),
            Origin::CopyOf(member) => {
                let name = names.get(usize::from(member.0));
                let name = name.map_or("", |found| found.name.as_str());
                (Whose::Array, Some(format!("a copy of the member {name}")))
            }
            Origin::Stranger => (Whose::Array, content(&device).map_err(refusal_of)?),
        };
        let whose = into.unwrap_or(whose);
        if whose == Whose::Array {
            refuse_as_member([&path]).map_err(refusal_of)?;
        }
        match carried {
            None => Ok((device.into_member(), whose)),
            Some(what) => Err(Refusal::new(format!("this device already contains {what}"))
                .at(path)
                .hint("choose an empty one, or pass --force to overwrite it")),
        }
    }
}
