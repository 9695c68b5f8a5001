//! Verbs that take devices in: what each carries is looked at before anything is written to it.

use crate::arrays::member::{
    VOLATILE, content, is_open_here, open_failure, refuse_as_member, refuse_cycle, same_file,
};
use crate::arrays::origin::{Origin, Whose, origin, whose_is};
use crate::arrays::owner::{is_of_this_process, refuse_served};
use crate::daemon::control::array::{Answered, Said, ServedArray, done, ended, name_in, open_in};
use crate::units::Size;
use restripe_array::report::{MemberState, MemberStatus};
use restripe_array::{Command, CommandError, Member};
use restripe_io::control::Refusal;
use restripe_io::member::{self, MemberSource, OpenMember};
use restripe_io::plain::Plain;
use restripe_io::remote::NotTaken;

pub(super) fn add(
    array: &ServedArray,
    path: &str,
    force: bool,
    to_surrogate: bool,
    to_buffer: bool,
) -> Answered {
    let into = match (to_surrogate, to_buffer) {
        (_, true) => Some(Whose::Buffer),
        (true, false) => Some(Whose::Surrogate),
        (false, false) => None,
    };
    let member = admit(array, Newcomer { path, force, into })?;
    let note = match array.state_of(member)? {
        Some(MemberState::Spare) => "is a spare",
        Some(MemberState::Rebuilding) => "is added; its rebuild has started",
        _ => "is added",
    };
    Ok(done(&format!("{path} {note}")))
}

/// A device to add, to this set if one is named.
#[derive(Clone, Copy)]
pub(super) struct Newcomer<'a> {
    pub(super) path: &'a str,
    pub(super) force: bool,
    pub(super) into: Option<Whose>,
}

/// Takes a device in: one that failed and is still open as it is, any other anew.
pub(super) fn admit(array: &ServedArray, newcomer: Newcomer) -> Said<Member> {
    let Newcomer { path, force, into } = newcomer;
    let Some(failed) = held(array, path)? else {
        return add_anew(array, newcomer);
    };
    let whose = whose_is(&array.look()?.0, failed.member);
    if into.is_some_and(|into| into != whose) {
        return Err(in_the_array(path, "failed")
            .hint("remove it with `restripe remove`, then add it to the other set"));
    }
    if force || is_replaced(array, path)? {
        // What is there now is looked at as on any device: another file may have the name by now.
        let_go(array, failed.member)?;
        return add_anew(array, newcomer);
    }
    let again = array.ask(Command::Add(failed.member))?;
    let failed_again =
        |error: &CommandError| matches!(error.innermost(), CommandError::FailedAgain(_));
    if again.as_ref().is_err_and(failed_again) && is_remote(path) {
        // Its server may have been started anew behind a connection that goes to the old one.
        let_go(array, failed.member)?;
        return add_anew(array, newcomer);
    }
    again.map_err(|error| array.refused(&error))?;
    Ok(failed.member)
}

/// As a device that holds nothing of the array. What it was before, if its server had hung up, is forgotten.
fn add_anew(array: &ServedArray, newcomer: Newcomer) -> Said<Member> {
    take_in_anew(array, newcomer, |member, whose| match whose {
        Whose::Array => Command::Add(member),
        Whose::Surrogate => Command::AddToSurrogate(member),
        Whose::Buffer => Command::AddToBuffer(member),
    })
}

fn take_in_anew(
    array: &ServedArray,
    newcomer: Newcomer,
    command: impl FnOnce(Member, Whose) -> Command,
) -> Said<Member> {
    let before = hung_up(array, newcomer.path)?;
    let member = take_in(array, newcomer, command)?;
    for old in before {
        // Refused, it stays on the list.
        let _ = array.command(Command::Remove(old));
    }
    Ok(member)
}

/// Failed members of this name whose connections are of no use any more. These are closed: nothing comes by them once
/// the device is open again.
fn hung_up(array: &ServedArray, path: &str) -> Said<Vec<Member>> {
    let (status, names) = array.look()?;
    let is_it = |member: &&MemberStatus| {
        let name = names.get(usize::from(member.member.0));
        member.state == MemberState::Failed
            && name.is_some_and(|name| !name.open && name.name == path)
    };
    let found = status.all_members().filter(is_it);
    let found: Vec<Member> = found.map(|member| member.member).collect();
    for member in &found {
        array.close(*member)?;
    }
    if !found.is_empty() {
        // Answered after they are closed.
        array.look()?;
    }
    Ok(found)
}

pub(super) fn replace(array: &ServedArray, old: &str, path: &str, force: bool) -> Answered {
    let (old, old_name) = array.resolve(old)?;
    may_be_replaced(array, old, &old_name)?;
    match array.resolve(path) {
        Ok((held, name)) if !is_left_behind(array, held, &name, force)? => {
            let new = free(array, held, &name)?;
            array.command(Command::Replace { old, new })?;
        }
        // Not a spare first: a slot that is vacant would take it.
        found => {
            if let Ok((held, _)) = found {
                let_go(array, held)?;
            }
            let into = Some(whose_is(&array.look()?.0, old));
            let newcomer = Newcomer { path, force, into };
            take_in_anew(array, newcomer, |new, _| Command::Replace { old, new })?;
        }
    }
    Ok(done(&format!(
        "{old_name} is being copied to {path}, which will replace it"
    )))
}

/// A replace copies from a member that serves. In a surrogate it takes the place of one that has failed, too.
fn may_be_replaced(array: &ServedArray, old: Member, name: &str) -> Said {
    let (status, _) = array.look()?;
    let state = match whose_is(&status, old) {
        Whose::Array => array.state_of(old)?,
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
fn is_left_behind(array: &ServedArray, held: Member, name: &str, force: bool) -> Said<bool> {
    let state = array.state_of(held)?;
    let idle = matches!(state, Some(MemberState::Failed | MemberState::Foreign));
    Ok(idle && (force || is_replaced(array, name)?))
}

/// The failed member that is still open under this path, and so comes back as it is. A stranger is let go, to be
/// looked at like any device; what is in the array cannot be added.
pub(super) fn held(array: &ServedArray, path: &str) -> Said<Option<MemberStatus>> {
    let (status, names) = array.look()?;
    let is_path = |name: &str| name == path || same_file(path, name);
    let mut members = status.all_members();
    let found = members.find(|member| open_in(&names, member.member).is_some_and(is_path));
    let Some(found) = found else { return Ok(None) };
    let state = match found.state {
        MemberState::Failed => return Ok(Some(found.clone())),
        MemberState::Foreign => return let_go(array, found.member).map(|()| None),
        MemberState::Active => "active",
        MemberState::Rebuilding => "being rebuilt",
        MemberState::Spare => "a spare",
    };
    Err(in_the_array(path, state))
}

/// Closes a device that is none of the members that serve.
pub(super) fn let_go(array: &ServedArray, idle: Member) -> Said {
    array.close(idle)?;
    // Answered after the close is done.
    array.look().map(|_| ())
}

/// A device of the array that holds nothing of it yet.
fn free(array: &ServedArray, member: Member, name: &str) -> Said<Member> {
    match array.state_of(member)? {
        Some(MemberState::Active) => Err(in_the_array(name, "active")),
        Some(MemberState::Rebuilding) => Err(in_the_array(name, "being rebuilt")),
        _ => Ok(member),
    }
}

/// Opens a device and hands it over by this command, which is told whose it is: this set's if one is named, or else
/// the one's that its superblocks tell of. If the engine does not want it, it is closed again.
fn take_in(
    array: &ServedArray,
    Newcomer { path, force, into }: Newcomer,
    command: impl FnOnce(Member, Whose) -> Command,
) -> Said<Member> {
    let device = member::open(path, array.open).map_err(open_failure)?;
    let (device, whose) = checked(array, device, force, into)?;
    let arrived = array.remote.arrive(array.number, device).map_err(ended)?;
    let member = arrived.map_err(|why| not_taken(why).at(path))?;
    let overwritten = match force {
        true => array.command(Command::Overwrite(member)),
        false => Ok(()),
    };
    let taken = overwritten.and_then(|()| array.command(command(member, whose)));
    if let Err(refused) = taken {
        array.close(member)?;
        return Err(match refused.at.is_empty() {
            true => refused.at(path),
            false => refused,
        });
    }
    Ok(member)
}

/// What a device carries must not be overwritten unasked; a former member of a set comes home to it.
pub(super) fn checked(
    array: &ServedArray,
    device: OpenMember,
    force: bool,
    into: Option<Whose>,
) -> Said<(OpenMember, Whose)> {
    let path = device.name.clone();
    let (status, names) = array.look()?;
    if let Err(cycle) = refuse_cycle(&status.name, status.uuid, &path, device.beneath()) {
        // A lease is no member of whichever array.
        refuse_as_member([&path])?;
        return Err(cycle.into());
    }
    let device = Plain::of(device).map_err(|error| Refusal::new(error.to_string()).at(&path))?;
    let origin = match origin(&device, &status, into) {
        // Who overwrites does not care what it is that cannot be read.
        Err(_) if force => Origin::Stranger,
        origin => origin?,
    };
    // The engine tells a copy of its own member from a second path to it.
    let judged = match origin {
        Origin::Former(_) => true,
        Origin::CopyOf(member) => whose_is(&status, member) == into.unwrap_or(Whose::Array),
        _ => false,
    };
    if !(judged && is_of_this_process(&device)) {
        refuse_served(std::iter::once(&device))?;
    }
    let (whose, carried) = match origin {
        Origin::Former(whose) => (whose, None),
        _ if force => (Whose::Array, None),
        Origin::OfAbsentSurrogate => return Err(of_absent_surrogate(&path)),
        Origin::CopyOf(member) => {
            let name = name_in(&names, member);
            (Whose::Array, Some(format!("a copy of the member {name}")))
        }
        Origin::Stranger => (Whose::Array, content(&device)?),
    };
    let whose = into.unwrap_or(whose);
    if whose == Whose::Array {
        refuse_as_member([&path])?;
    }
    match carried {
        None => Ok((device.into_member(), whose)),
        Some(what) => Err(Refusal::new(format!("this device already contains {what}"))
            .at(path)
            .hint("choose an empty one, or pass --force to overwrite it")),
    }
}

pub(super) fn fail(array: &ServedArray, text: &str, accept_loss: bool, dry_run: bool) -> Answered {
    let (member, name) = array.resolve(text)?;
    let view = array.status()?;
    let exposed = view.members.iter().find(|one| one.member == member.0);
    let exposed = exposed.map_or(0, |one| one.exposed_bytes);
    if exposed > 0 && !accept_loss {
        let what = format!(
            "up to {} would be lost: only this member holds the current data",
            Size(exposed)
        );
        let hint = format!(
            "run `restripe surrogate destage {} --wait` first",
            view.name
        );
        return Err(Refusal::new(what).at(name).hint(hint));
    }
    if array.state_of(member)? == Some(MemberState::Failed) {
        return Ok(done(&format!(
            "{name} has failed already: `restripe add` adds it again, `restripe remove` removes it"
        )));
    }
    if dry_run {
        let may = array.remote.may_fail(array.number, member).map_err(ended)?;
        let may = may.map_err(|error| array.refused(&error));
        return may.map(|()| done(&format!("{name} may be failed")));
    }
    array.command(Command::Fail(member))?;
    Ok(done(&format!("{name} failed")))
}

pub(super) fn remove(array: &ServedArray, text: &str) -> Answered {
    let (member, name) = array.resolve(text)?;
    array.command(Command::Remove(member))?;
    array.close(member)?;
    Ok(done(&format!("{name} is removed and closed")))
}

fn not_taken(why: NotTaken) -> Refusal {
    match why {
        NotTaken::NoArray => Refusal::new("the array accepts no more devices"),
        NotTaken::Promised => Refusal::new(VOLATILE)
            .hint("connected clients were offered FLUSH: disconnect them first"),
    }
}

/// Whether another file has the name of a member that is still open. An error if that file cannot be opened;
/// then nothing is closed.
fn is_replaced(array: &ServedArray, path: &str) -> Said<bool> {
    let is_file = matches!(MemberSource::parse(path), Ok(MemberSource::Path(_)));
    let replaced = is_file && !is_open_here(path);
    if replaced {
        member::open(path, array.open).map_err(open_failure)?;
    }
    Ok(replaced)
}

fn is_remote(path: &str) -> bool {
    matches!(MemberSource::parse(path), Ok(MemberSource::Nbd(_)))
}

pub(super) fn in_the_array(name: &str, state: &str) -> Refusal {
    Refusal::new(format!(
        "this device is in the array already, and is {state}"
    ))
    .at(name)
}

fn of_absent_surrogate(path: &str) -> Refusal {
    Refusal::new("this device is a member of the array's surrogate, which is not served")
        .at(path)
        .hint("stop the array and start `serve` with the surrogate's members as well; --force makes the device a member of the array itself")
}
