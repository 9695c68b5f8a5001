//! Giving an array a surrogate, or going on without it, while clients stay.
//!
//! | step | add                                                | remove                                             |
//! |------|----------------------------------------------------|----------------------------------------------------|
//! | 1    | the devices are made a surrogate of this array     | the engine sends nothing there any more, and brings home what is there |
//! | 2    | the array has it on record                         | the array has none on record                       |
//! | 3    | the engine is exchanged for one with it            | the engine is exchanged for one without it         |
//! | 4    |                                                    | its members are closed, and their superblocks wiped |
//!
//! The first two of a removal are one command to the engine, which alone knows what users have under way.
//!
//! An end in between leaves an array that starts: it never names a surrogate that was not made, and what is not on record is
//! nothing to it. An array that cannot be started again has stopped, and is served anew by who serves it.

use crate::args::SurrogateLevel;
use crate::arrays::create::devices::{open_all, refuse_to_overwrite};
use crate::arrays::create::surrogate::{Home, surrogate_for};
use crate::arrays::create::write::{carry_out, check_disks};
use crate::arrays::member::{
    Copies, check_distinct, io_failure, open, refuse_cycle, refuse_volatile, same_file,
};
use crate::arrays::owner;
use crate::arrays::setup::{Form, Others};
use crate::daemon::control::array::{Answered, Said, ServedArray, date, done, ended};
use crate::daemon::control::changes::Changes;
use crate::daemon::control::lifecycle::Lifecycle;
use crate::daemon::control::members::{in_the_array, let_go};
use crate::failure::{Failure, Outcome};
use crate::units::Size;
use clap::ValueEnum;
use restripe_array::meta::superblock::SUPERBLOCK_BYTES;
use restripe_array::report::{ArrayState, MemberState, Status as SetStatus};
use restripe_array::{
    Command, LeaseError, Member, SECTOR_BYTES, StartMode, TaskKind, Uuid, refusals,
};
use restripe_io::control::Refusal;
use restripe_io::host::Exchange;
use restripe_io::member::OpenMember;
use restripe_io::plain::Plain;
use restripe_io::remote::Remote;
use restripe_tier::SurrogateConfig;
use restripe_tier::overlay::Kind;
use restripe_tier::report::{Status, SurrogateStatus};

/// Requests wait while this lives.
struct Held<'a> {
    remote: &'a Remote,
    array: usize,
}

impl Held<'_> {
    fn new(remote: &Remote, array: usize) -> Said<Held<'_>> {
        remote.hold(array, true).map_err(ended)?;
        Ok(Held { remote, array })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Where the reactor has ended nobody waits any more.
        let _ = self.remote.hold(self.array, false);
    }
}

/// The log set of an array, which is added or removed while clients stay.
pub(super) struct LogSet<'a> {
    pub(super) array: &'a ServedArray,
    pub(super) changes: &'a Changes,
    pub(super) life: &'a Lifecycle,
}

impl LogSet<'_> {
    pub(super) fn add(&self, members: &[String], level: Option<&str>, force: bool) -> Answered {
        let _changing = self.changes.begin(self.array)?;
        let (status, _) = self.array.look()?;
        check_may_have_one(&status)?;
        self.check_may_exchange(&status)?;
        self.check_strangers(members)?;
        let (surrogate, devices) = make(&status, members, level, force)?;
        self.array.command(Command::LogSet(Some(surrogate)))?;
        let others = Others {
            of_surrogate: u16::try_from(devices.len()).unwrap_or(u16::MAX),
            of_buffer: 0,
        };
        let config = self.array.setup.surrogate(others, Form::Plain);
        let joining = devices.into_iter().map(Plain::into_member).collect();
        let held = Held::new(&self.array.remote, self.array.number)?;
        let stopped = self.stop_engine()?;
        self.exchange(stopped, self.change(joining, Vec::new(), config))?;
        drop(held);
        self.check_all_serve()?;
        let then = "from now on name its members together with the array's";
        Ok(done(&format!("{} has a surrogate; {then}", status.name)))
    }

    /// The surrogate is on record by now, whatever became of its members meanwhile.
    fn check_all_serve(&self) -> Said {
        let (status, _) = self.array.look()?;
        let state = served(&status).map(|surrogate| surrogate.set.state);
        if state == Some(ArrayState::Healthy) {
            return Ok(());
        }
        let what =
            "the array records the surrogate, but some members of the surrogate are not in service";
        let name = &status.name;
        let hint =
            format!("`restripe status {name}` lists them; `restripe add` adds a member again");
        Err(Refusal::new(what).hint(hint))
    }

    pub(super) fn remove(&self) -> Answered {
        let _removal = self.changes.begin_removal(self.array)?;
        let (status, _) = self.array.look()?;
        let on_record = status.log_set;
        if on_record.is_none() && served(&status).is_none() {
            return Err(Refusal::new("the array has no surrogate"));
        }
        let Some(surrogate) = served(&status) else {
            self.array.command(Command::LogSet(None))?;
            let note = "the surrogate is removed; its members were not present and are unchanged";
            return Ok(done(note));
        };
        let uuid = on_record.unwrap_or(surrogate.set.uuid);
        self.check_may_exchange(&status)?;
        // One that is off the record was taken away before, and the exchange could not be then.
        if on_record.is_some() {
            check_may_leave(&status, surrogate)?;
            self.array.command(Command::LogSet(None))?;
        }
        let held = Held::new(&self.array.remote, self.array.number)?;
        // A member may have failed since.
        let (status, _) = self.array.look()?;
        let may = self.check_may_exchange(&status);
        may.map_err(|why| still_served(&status.name, why))?;
        let Some(surrogate) = served(&status) else {
            let what = "the array is no longer served with its surrogate";
            return Err(Refusal::new(what));
        };
        let members = members_of(&surrogate.set);
        let buffer = surrogate.buffer.as_ref().map(|one| &one.set);
        let of_buffer = buffer.map(members_of).unwrap_or_default();
        let buffer = buffer.map_or(uuid, |set| set.uuid);
        let leaving = [&members[..], &of_buffer[..]].concat();
        let stopped = self.stop_engine();
        let stopped = stopped.map_err(|why| still_served(&status.name, why))?;
        self.exchange(stopped, self.change(Vec::new(), leaving, None))?;
        drop(held);
        let mut unwiped = self.dismiss(&members, uuid)?;
        unwiped.extend(self.dismiss(&of_buffer, buffer)?);
        let unwiped = unwiped.join(", ");
        Ok(done(&match unwiped.is_empty() {
            true => "the surrogate is removed, and its members are free".to_string(),
            false => format!("the surrogate is removed; could not be wiped: {unwiped}"),
        }))
    }

    /// Whether the array would start again, and the engine can be exchanged.
    fn check_may_exchange(&self, status: &Status) -> Said {
        if status.read_only {
            return Err(Refusal::new("this array is read-only"));
        }
        if !matches!(status.state, ArrayState::Healthy | ArrayState::Degraded) {
            let what = "the array has lost too many members to be started again";
            return Err(Refusal::new(what).hint("restore its redundancy first"));
        }
        let ServedArray { remote, number, .. } = self.array;
        let may = remote.may_exchange(*number).map_err(ended)?;
        may.map_err(|why| Refusal::new(format!("not now: {why}")))
    }

    /// None of these is in the array, not even by another name. One that was named with the members and is none, as after
    /// a surrogate's making that was cut short, is let go.
    fn check_strangers(&self, members: &[String]) -> Said {
        check_distinct(members)?;
        let (status, names) = self.array.look()?;
        for member in status.all_members() {
            let Some(name) = names.get(usize::from(member.member.0)) else {
                continue;
            };
            let is_it = |path: &&String| **path == name.name || same_file(path, &name.name);
            match members.iter().find(is_it).filter(|_| name.open) {
                Some(_) if member.state == MemberState::Foreign => {
                    let_go(self.array, member.member)?
                }
                Some(path) => return Err(in_the_array(path, "a member")),
                None => {}
            }
        }
        Ok(())
    }

    fn change(
        &self,
        joining: Vec<OpenMember>,
        leaving: Vec<Member>,
        surrogate: Option<SurrogateConfig>,
    ) -> Exchange {
        Exchange {
            joining,
            leaving,
            limits: self.array.setup.limits(surrogate.as_ref()),
            surrogate,
        }
    }

    /// Stops the engine, while requests are held, and tells how that went; refused where it serves on.
    fn stop_engine(&self) -> Said<Said> {
        let stopped = self.array.command(Command::Stop);
        match stopped {
            Err(why) if self.array.look()?.0.state != ArrayState::Stopped => Err(why),
            stopped => Ok(stopped),
        }
    }

    /// Starts another engine in place of one that has stopped, while requests are held.
    fn exchange(&self, stopped: Said, change: Exchange) -> Said {
        let paces = self.array.paces();
        let owner = self.life.owner();
        let owner = owner.map(|owner| owner::guarding(owner, &change.joining));
        let ServedArray { remote, number, .. } = self.array;
        let exchanged = remote.exchange(*number, change).map_err(ended)?;
        let exchanged = exchanged.map_err(|error| Refusal::new(error.to_string()));
        let mut begun = stopped.and(exchanged);
        let start = Command::Start(StartMode {
            volatile_members: self.array.setup.start.volatile_members,
            owner,
            ..StartMode::default()
        });
        for command in paces.into_iter().chain([date(), start]) {
            begun = begun.and_then(|()| self.array.command(command));
        }
        begun.map_err(|why| {
            self.life.leave(self.array);
            let what = format!("the array has stopped: {}", why.what);
            Refusal::new(what).at(why.at).hint("serve it again")
        })
    }

    /// Closes the members of what was the surrogate, and takes its superblocks off them. Names those where that fails:
    /// they are free all the same, to whoever says `--force`.
    fn dismiss(&self, members: &[Member], surrogate: Uuid) -> Said<Vec<String>> {
        let ServedArray { remote, number, .. } = self.array;
        let names = remote.member_names(*number).map_err(ended)?;
        for member in members {
            self.array.close(*member)?;
        }
        // Answered after they are closed.
        self.array.look()?;
        // One that failed may still bear a superblock, and be there again.
        let of = |member: &Member| names.get(usize::from(member.0));
        let names = members.iter().filter_map(of).map(|name| name.name.clone());
        let unwiped = names.filter(|name| wipe(name, surrogate).is_err());
        Ok(unwiped.collect())
    }
}

/// The surrogate that an array is served with, on record or taken off it lately.
fn served(status: &Status) -> Option<&SurrogateStatus> {
    let served = status.surrogate.as_deref();
    served.filter(|one| !one.set.members.is_empty())
}

fn check_may_have_one(status: &Status) -> Said {
    if status.log_set.is_some() || served(status).is_some() {
        let hint = format!("remove it with `restripe surrogate remove {}`", status.name);
        return Err(Refusal::new("the array has a surrogate already").hint(hint));
    }
    if !status.lent.is_empty() {
        return Err(Refusal::new(LeaseError::Lends.to_string()));
    }
    if !status.redirectable {
        return Err(Refusal::new(refusals::NO_REDIRECT_MAP));
    }
    Ok(())
}

/// The engine sends nothing there any more, and goes on.
fn still_served(array: &str, why: Refusal) -> Refusal {
    let free = "the array no longer records the surrogate, but its members are not yet free";
    let what = format!("{free}: {}", why.what);
    let hint = format!(
        "the log is empty; repeat `restripe surrogate remove {array}` to free them. \
         After the daemon has ended they can also be overwritten with --force"
    );
    Refusal::new(what).at(why.at).hint(hint)
}

/// What a removal brings home by itself. That takes as long as it takes: in records of 4 KiB it may be minutes. Whoever asked
/// waits for two minutes, as for every reply, and is told then that the daemon goes on.
const AWAY_MAX: u64 = 64 << 20;

/// Little is there that home has not, and no task sends anything there.
fn check_may_leave(status: &Status, surrogate: &SurrogateStatus) -> Said {
    let overlay = surrogate.overlay.as_ref();
    let away = overlay.map_or(0, |overlay| {
        let of = |kind: Kind| overlay.sectors[kind as usize];
        (of(Kind::Instead) + of(Kind::Also)) * SECTOR_BYTES
    });
    if away > AWAY_MAX {
        let constant = overlay.is_some_and(|overlay| overlay.redirect.is_constant());
        let what = format!(
            "the surrogate's log holds {} of the array's data",
            Size(away)
        );
        return Err(Refusal::new(what).hint(way_home(&status.name, constant)));
    }
    let senders = [TaskKind::Rebuild, TaskKind::Replace, TaskKind::Resync];
    let mut tasks = status.tasks.iter();
    match tasks.find(|task| senders.contains(&task.kind)) {
        Some(task) => {
            let what = "the array is being rebuilt, and writes are redirected to its surrogate";
            Err(Refusal::new(what).hint(end_of_rebuild(&status.name, task.paused)))
        }
        None => Ok(()),
    }
}

/// How more than a removal brings home by itself comes there.
fn way_home(array: &str, constant: bool) -> String {
    match constant {
        true => format!(
            "destage it with `restripe surrogate destage {array} --wait`; the removal itself destages at most {}",
            Size(AWAY_MAX)
        ),
        false => format!(
            "it is destaged after the array's rebuild: `restripe surrogate status {array}` shows how much is left"
        ),
    }
}

fn end_of_rebuild(array: &str, paused: bool) -> String {
    let rebuild = format!("`restripe rebuild {array}");
    match paused {
        true => format!("the rebuild is paused: resume it with {rebuild} --resume`"),
        false => format!("wait for its end with {rebuild}`"),
    }
}

/// Makes the surrogate, and gives its UUID and its devices.
fn make(
    status: &Status,
    members: &[String],
    level: Option<&str>,
    force: bool,
) -> Outcome<(Uuid, Vec<Plain>)> {
    let level = level.map(|name| SurrogateLevel::from_str(name, false));
    let level = level.transpose().map_err(Failure::usage)?;
    let not_serving = || Failure::new("the array is not serving");
    let geometry = status.geometry.ok_or_else(not_serving)?;
    let mut devices = open_all(members)?;
    // Clients are connected: they keep what they were offered.
    let volatile = devices.iter().filter(|device| device.info().volatile);
    refuse_volatile(volatile.map(Plain::name), !status.is_durable())?;
    for device in &devices {
        refuse_cycle(&status.name, status.uuid, device.name(), &device.beneath())?;
    }
    refuse_to_overwrite(&mut devices, force)?;
    let home = Home {
        name: &status.name,
        array: status.uuid,
        level: geometry.level,
        logical_block: status.logical_block,
    };
    let creation = surrogate_for(&home, members, level, &devices)?;
    carry_out(&creation, &mut devices)?;
    check_disks(&creation, &devices)?;
    Ok((creation.superblock.array, devices))
}

/// Takes every superblock of this array off a device.
fn wipe(name: &str, array: Uuid) -> Outcome {
    let device = open(name, false)?;
    for (at, copy) in Copies::read(&device)?.found {
        if copy.is_ok_and(|superblock| superblock.array == array) {
            let wiped = device.zero(at, SUPERBLOCK_BYTES as u64 / SECTOR_BYTES);
            wiped.map_err(io_failure(&device, "wiping"))?;
        }
    }
    device.flush().map_err(io_failure(&device, "flushing"))
}

fn members_of(set: &SetStatus) -> Vec<Member> {
    set.members.iter().map(|one| one.member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A destage would lead to the same refusal.
    #[test]
    fn a_removal_beneath_a_rebuild_is_told_to_wait_for_that() {
        for paused in [false, true] {
            let hint = end_of_rebuild("tank", paused);
            assert!(hint.contains("restripe rebuild tank"), "{hint}");
            assert_eq!(hint.contains("--resume"), paused, "{hint}");
        }
        let (home, verb) = (
            way_home("tank", true),
            "restripe surrogate destage tank --wait",
        );
        assert!(home.contains(verb), "{home}");
    }

    #[test]
    fn a_removal_that_is_half_done_says_what_is_left() {
        let Refusal { what, hint, .. } = still_served("tank", Refusal::new("no space is left"));
        assert!(what.contains("no longer records the surrogate"), "{what}");
        assert!(what.ends_with("no space is left"), "{what}");
        assert!(hint.contains("restripe surrogate remove tank"), "{hint}");
    }
}
