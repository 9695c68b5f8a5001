//! Who is here of an array that is about to be started, judged before anything is touched.
//!
//! The engine judges again when it starts. What superblocks tell is judged beforehand as well, for every array that is
//! named, for two reasons: an array should not have been started, and so changed, when the next one turns out to be
//! refused; and a start without a current member makes what that member holds old. Nobody should come to that by
//! leaving a name out, so such a start is refused unless it was asked for. (An array that was degraded before starts
//! without its failed members.) What a start would lose only the engine can tell, from the logs of its members; here is
//! only told that it may.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use crate::desk::refusal;
use crate::engine::Setup;
use crate::failure::{Failure, Outcome};
use crate::member::{readable_copies, was_replaced};
use crate::terminal::say;
use restripe_array::layout::{Geometry, Layout};
use restripe_array::meta::{
    Candidate, Choice, MemberRole, MetaError, Partner, Superblock, choose, newest_of,
};
use restripe_array::{CommandError, Member, StartMode, Uuid};
use restripe_io::member::{MemberSource, OpenMember};
use restripe_io::plain::Plain;
use restripe_io::remote::MemberName;
use std::io;

/// What the operator named as the members of one array.
pub struct Roster {
    members: Vec<Plain>,
    candidates: Vec<Candidate>,
    /// Named, and could not be opened.
    absent: Vec<String>,
    /// Opened, and did not answer or could not be read: as good as absent.
    mute: Vec<String>,
}

/// What is known of an array before it is started.
pub struct Prospect {
    pub name: String,
    /// It was not shut down cleanly and a slot is vacant: the engine may find that a start loses something.
    pub may_lose: bool,
    /// Members that are known and serve no longer, because others took their places.
    pub replaced: Vec<Uuid>,
    pub array: Uuid,
    /// The other array, of one that has a surrogate or is one.
    pub partner: Option<Partner>,
    /// Its surrogate is not here.
    pub lacks_surrogate: bool,
}

impl Prospect {
    /// A start that only reads replays no log: what missing members held of rows that were being written is an error to
    /// whoever reads it, and should be no riddle.
    pub fn warn_of_reading(&self) {
        if self.may_lose {
            say(format_args!(
                "warning: {}: was not shut down cleanly and has members missing: what they held of what was being written reads as an error; a start that writes recovers it, or says what is lost",
                self.name
            ));
        }
    }

    /// What counts there would have refused the start.
    pub fn warn_of_lacking_surrogate(&self) {
        if self.lacks_surrogate {
            say(format_args!(
                "warning: {}: is served without its surrogate, to which nothing goes then",
                self.name
            ));
        }
    }
}

impl Roster {
    /// Reads who the opened members say they are.
    pub fn read(opened: Vec<OpenMember>, absent: Vec<String>) -> Outcome<Roster> {
        let mut roster = Roster {
            members: Vec::with_capacity(opened.len()),
            candidates: Vec::with_capacity(opened.len()),
            absent,
            mute: Vec::new(),
        };
        for member in opened {
            let name = member.name.clone();
            let member =
                Plain::of(member).map_err(|error| Failure::new(error.to_string()).at(name))?;
            roster.take(member);
        }
        Ok(roster)
    }

    /// A member that cannot be read is what redundancy is for, as one that cannot be opened.
    fn take(&mut self, member: Plain) {
        match readable_copies(&member) {
            Ok(copies) => self.seat(member, copies),
            Err(error) => {
                warn_of_mute(member.name(), &error);
                self.mute.push(member.name().into());
            }
        }
    }

    /// Takes out who is of another kind: they and what they carry go to a roster of their own.
    pub fn split_off(&mut self, other: impl Fn(&Superblock) -> bool) -> Roster {
        let mut taken = Roster {
            members: Vec::new(),
            candidates: Vec::new(),
            absent: self.absent.clone(),
            mute: self.mute.clone(),
        };
        let members = std::mem::take(&mut self.members);
        let candidates = std::mem::take(&mut self.candidates);
        for (member, candidate) in members.into_iter().zip(candidates) {
            let side = match newest(&candidate).is_some_and(&other) {
                true => &mut taken,
                false => &mut *self,
            };
            side.seat(member, candidate.copies);
        }
        taken
    }

    fn seat(&mut self, member: Plain, copies: [Option<Result<Superblock, MetaError>>; 2]) {
        let number = u16::try_from(self.members.len()).unwrap_or(u16::MAX);
        self.candidates.push(Candidate {
            member: Member(number),
            info: member.info(),
            copies,
        });
        self.members.push(member);
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether anybody here tells of an array.
    pub fn tells(&self) -> bool {
        self.candidates.iter().any(|one| newest(one).is_some())
    }

    /// The names of those here.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.members.iter().map(Plain::name).collect();
        names.join(", ")
    }

    /// The members, for a shell.
    pub fn into_members(self) -> Vec<OpenMember> {
        self.members.into_iter().map(Plain::into_member).collect()
    }

    /// Refuses what the engine would refuse for what superblocks tell, an array that is not called `name`, and what
    /// would leave a current member behind unasked.
    pub fn check(&self, name: Option<&str>, setup: &Setup) -> Outcome<Prospect> {
        refuse_to_lose(&self.unanswering(), setup.start)?;
        let choice = choose(&self.candidates, setup.start)
            .map_err(|error| self.refused(&error, &self.old_copies()))?;
        let found = &choice.superblock.name;
        if let Some(name) = name.filter(|name| name != found) {
            let what = format!("these members are of the array {found:?}, not {name:?}");
            return Err(Failure::new(what).hint("check the name and the members"));
        }
        let vacant = vacant_slots(&choice);
        if !setup.start.accept_loss && !decodable(choice.superblock.geometry, &vacant) {
            let error = CommandError::TooFew { missing: vacant };
            return Err(self.refused(&error, &old_copies(&choice)));
        }
        self.check_left_behind(&choice, setup)?;
        Ok(Prospect {
            name: choice.superblock.name.clone(),
            may_lose: !choice.superblock.clean && !vacant.is_empty(),
            replaced: replaced(&choice.superblock),
            array: choice.superblock.array,
            partner: choice.superblock.partner,
            lacks_surrogate: false,
        })
    }

    /// Named, and perhaps only slow: a remote member of which nobody can say that it is gone is one of them.
    fn unanswering(&self) -> Vec<String> {
        let is_remote =
            |name: &&String| matches!(MemberSource::parse(name), Ok(MemberSource::Nbd(_)));
        let remote = self.absent.iter().filter(is_remote);
        self.mute.iter().chain(remote).cloned().collect()
    }

    fn check_left_behind(&self, choice: &Choice, setup: &Setup) -> Outcome {
        let left = left_behind(choice);
        let mode = setup.start;
        let asked = setup.degraded || mode.from_minority || mode.accept_loss || mode.read_only;
        if left.is_empty() || asked {
            return Ok(());
        }
        let slots: Vec<String> = left.iter().map(u16::to_string).collect();
        let what = format!(
            "this start would go on without a current member of the array {:?}: slot {} is missing",
            choice.superblock.name,
            slots.join(", ")
        );
        let here = self.roll_call(&old_copies(choice));
        Err(Failure::new(what).at(here).hint(
            "name every member; or say --degraded, and what is left out must be rebuilt when it comes back",
        ))
    }

    /// Who is here only in an old copy, as far as that can be told without a majority.
    fn old_copies(&self) -> Vec<usize> {
        let anyhow = StartMode {
            from_minority: true,
            ..StartMode::default()
        };
        choose(&self.candidates, anyhow).map_or(Vec::new(), |choice| old_copies(&choice))
    }

    /// The engine's refusal, with the array's name and who is here. The members in the places `old` are old copies.
    fn refused(&self, error: &CommandError, old: &[usize]) -> Failure {
        let names: Vec<MemberName> = self
            .members
            .iter()
            .map(|member| MemberName {
                name: member.name().into(),
                open: true,
            })
            .collect();
        let mut refusal = refusal(error, &names);
        if refusal.at.is_empty() {
            refusal.at = self.roll_call(old);
        }
        if let Some(name) = self.array_name() {
            refusal.what = format!("the array {name:?}: {}", refusal.what);
        }
        Failure::from(refusal)
    }

    /// The array that the first member tells of.
    fn array_name(&self) -> Option<&str> {
        let told = self.candidates.iter().find_map(newest);
        told.map(|superblock| superblock.name.as_str())
    }

    /// Who is here, who is so in an old copy, who was cut off, who carries nothing of an array, and who could not be
    /// opened or read.
    fn roll_call(&self, old: &[usize]) -> String {
        let with = |wanted: Carries| {
            let all = self.members.iter().zip(&self.candidates).enumerate();
            all.filter(move |(place, (_, candidate))| {
                carries(candidate) == wanted && !old.contains(place)
            })
            .map(|(_, (member, _))| member.name())
            .collect::<Vec<_>>()
        };
        let mut parts = Vec::new();
        for (names, what) in [
            (with(Carries::All), ""),
            (
                old.iter()
                    .map(|place| self.members[*place].name())
                    .collect(),
                " only in an old copy",
            ),
            (with(Carries::Part), " shorter than its superblock says"),
            (with(Carries::Nothing), " without a Restripe superblock"),
            (
                self.absent.iter().map(String::as_str).collect(),
                " cannot be opened",
            ),
            (
                self.mute.iter().map(String::as_str).collect(),
                " cannot be read",
            ),
        ] {
            if !names.is_empty() {
                parts.push(format!("{}{what}", names.join(", ")));
            }
        }
        parts.join("; ")
    }
}

fn replaced(superblock: &Superblock) -> Vec<Uuid> {
    let members = superblock.members.iter();
    let replaced = members.filter(|entry| was_replaced(superblock, entry));
    replaced.map(|entry| entry.uuid).collect()
}

fn newest(candidate: &Candidate) -> Option<&Superblock> {
    newest_of(candidate.copies.iter().flatten())
}

/// Losses are accepted of members that are gone. One that was named and does not answer may have been slow this once, and
/// what it holds would be declared lost for good; a start that only reads declares nothing.
pub fn refuse_to_lose(unanswering: &[String], start: StartMode) -> Outcome {
    if unanswering.is_empty() || !start.accept_loss || start.read_only {
        return Ok(());
    }
    let what = "a member does not answer, and what it holds would be lost for good";
    Err(Failure::new(what)
        .at(unanswering.join(", "))
        .hint("wait for it; or leave it out by name, and --accept-loss goes on without it"))
}

/// Says of a member that is open and cannot be read that it is gone without.
pub fn warn_of_mute(name: &str, error: &io::Error) {
    say(format_args!(
        "warning: {name}: cannot be read: {error}; it is taken for missing"
    ));
}

/// How much of an array a device carries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carries {
    All,
    /// It ends before its data does.
    Part,
    Nothing,
}

fn carries(candidate: &Candidate) -> Carries {
    let Some(superblock) = newest(candidate) else {
        return Carries::Nothing;
    };
    let mut ends = superblock
        .regions
        .iter()
        .map(|region| region.start.saturating_add(region.sectors));
    match ends.any(|end| end > candidate.info.sectors) {
        true => Carries::Part,
        false => Carries::All,
    }
}

/// The slots in which nobody serves who is here and current.
fn vacant_slots(choice: &Choice) -> Vec<u16> {
    slots(choice, |entry| {
        !entry.is_some_and(|entry| is_current(choice, entry) && choice.serves(entry))
    })
}

/// The slots of current members that are not here, or here in an old copy.
fn left_behind(choice: &Choice) -> Vec<u16> {
    slots(choice, |entry| {
        entry.is_some_and(|entry| is_current(choice, entry) && !choice.serves(entry))
    })
}

/// Who is here only in an old copy, by their places among the candidates.
fn old_copies(choice: &Choice) -> Vec<usize> {
    let entries = choice.outdated.iter();
    entries
        .filter_map(|entry| choice.opened[usize::from(*entry)])
        .collect()
}

/// The slots of whose lines in the member table this is true.
fn slots(choice: &Choice, wanted: impl Fn(Option<u16>) -> bool) -> Vec<u16> {
    let placement = choice.superblock.placement.iter();
    let found = placement.filter(|placement| wanted(placement.member));
    found.map(|placement| placement.slot).collect()
}

fn is_current(choice: &Choice, entry: u16) -> bool {
    choice.superblock.members[usize::from(entry)].role == MemberRole::Active
}

/// Whether every row can be decoded without these slots.
fn decodable(geometry: Geometry, vacant: &[u16]) -> bool {
    Layout::new(geometry)
        .is_ok_and(|layout| layout.decodable_without(|slot| vacant.contains(&slot.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_array::layout::{Level, Rotation};

    fn geometry(level: Level, slots: u16) -> Geometry {
        Geometry {
            level,
            slots,
            chunk_sectors: 8,
            slot_sectors: 800,
            skew: None,
        }
    }

    #[test]
    fn what_a_level_bears_can_be_decoded_and_no_more() {
        let raid5 = geometry(Level::Raid5(Rotation::LeftSymmetric), 4);
        assert!(decodable(raid5, &[]) && decodable(raid5, &[2]) && !decodable(raid5, &[0, 2]));
        let raid10 = geometry(Level::Raid10 { copies: 2 }, 4);
        assert!(decodable(raid10, &[0, 2]) && !decodable(raid10, &[0, 1]));
        assert!(!decodable(geometry(Level::Raid0, 2), &[1]));
    }
}
