//! Who is here of an array that is about to be started, judged before anything is touched.
//!
//! The engine judges again when it starts. What superblocks tell is judged beforehand as well, for every array that is
//! named, for two reasons: an array should not have been started, and so changed, when the next one turns out to be
//! refused; and a start without a current member makes what that member holds old. Nobody should come to that by
//! leaving a name out, so such a start is refused unless it was asked for. (An array that was degraded before starts
//! without its failed members.) What a start would lose only the engine can tell, from the logs of its members; here is
//! only told that it may.

use crate::arrays::member::{is_lease, readable_copies, surrogate_of};
use crate::arrays::refusals::{UNREADABLE, refusal};
use crate::arrays::remake;
use crate::arrays::setup::{Form, Setup};
use crate::failure::{Failure, Outcome};
use crate::print::terminal::warn;
use restripe_array::layout::{Geometry, Layout, Level};
use restripe_array::meta::{
    ArrayOwner, Candidate, Choice, MemberRole, MetaError, Partner, Placement, Superblock,
    WriteHole, choose, newest_of,
};
use restripe_array::{CommandError, Member, Slot, StartMode, Uuid};
use restripe_io::control::Refusal;
use restripe_io::member::{MemberSource, OpenMember};
use restripe_io::plain::Plain;
use restripe_io::remote::MemberName;
use std::io;

/// What the operator named as the members of one array.
pub(crate) struct MemberList {
    members: Vec<Plain>,
    candidates: Vec<Candidate>,
    /// Named, and could not be opened.
    absent: Vec<String>,
    /// Opened, and did not answer or could not be read: as good as absent.
    mute: Vec<String>,
}

/// What is known of an array before it is started.
pub(crate) struct Preview {
    pub name: String,
    /// It was not shut down cleanly and a slot is vacant: the engine may find that a start loses something.
    pub may_lose: bool,
    pub array: Uuid,
    /// The other array, of one that has a surrogate or is one.
    pub partner: Option<Partner>,
    /// What its surrogate here is for; none without one.
    pub form: Option<Form>,
    /// Its surrogate is not here.
    pub lacks_surrogate: bool,
    pub geometry: Geometry,
    /// First copies may have what the others lack, beside a log that counts.
    pub leans_on_log: bool,
    /// The command that makes it anew over its data, where one can.
    pub remake: Option<String>,
    /// How this run starts it, once its members are known.
    pub start: StartMode,
}

impl Preview {
    /// A refused start with what can be done, where the maps of all members are gone.
    pub(crate) fn way_out(&self, refused: Refusal) -> Refusal {
        if refused.what != UNREADABLE || !refused.hint.is_empty() {
            return refused;
        }
        match &self.remake {
            Some(command) => refused.hint(format!(
                "retry if a member becomes readable. Otherwise copy the members, then recreate the array over its data; unwritten extents then no longer read as zeros: {command}"
            )),
            None => refused.hint(
                "retry if a member becomes readable; otherwise restore the first MiB of each member from a backup",
            ),
        }
    }

    /// A start that only reads replays no log: what missing members held of rows that were being written is an error to
    /// whoever reads it, and should be no riddle.
    pub(crate) fn warn_of_reading(&self) {
        if self.may_lose {
            warn(format_args!(
                "{}: not stopped cleanly, and members are missing: their part of rows that were being written reads as an error; a start that may write recovers these rows, or lists them as lost",
                self.name
            ));
        }
    }

    /// What counts there would have refused the start.
    pub(crate) fn warn_of_lacking_surrogate(&self) {
        if self.lacks_surrogate {
            warn(format_args!(
                "{}: served without its surrogate: nothing is redirected",
                self.name
            ));
        }
    }
}

impl MemberList {
    /// Reads who the opened members say they are.
    pub fn read(opened: Vec<OpenMember>, absent: Vec<String>) -> Outcome<MemberList> {
        let mut list = MemberList {
            members: Vec::with_capacity(opened.len()),
            candidates: Vec::with_capacity(opened.len()),
            absent,
            mute: Vec::new(),
        };
        for member in opened {
            let name = member.name.clone();
            let member =
                Plain::of(member).map_err(|error| Failure::new(error.to_string()).at(name))?;
            list.take(member);
        }
        Ok(list)
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

    /// Takes out who is of another kind: they and what they carry go to a list of their own.
    pub fn split_off(&mut self, other: impl Fn(&Superblock) -> bool) -> MemberList {
        let mut taken = MemberList {
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

    /// Whether anybody here carries nothing of an array.
    pub(crate) fn has_blank(&self) -> bool {
        let mut carried = self.candidates.iter().map(carries);
        carried.any(|one| one == Carries::Nothing)
    }

    /// The array whose surrogate this is, as the first member tells.
    pub(crate) fn surrogate_of(&self) -> Option<Uuid> {
        let told = self.candidates.iter().find_map(newest);
        told.and_then(|superblock| surrogate_of(superblock.partner))
    }

    /// The names of those here.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.members.iter().map(Plain::name).collect();
        names.join(", ")
    }

    /// Whether it stripes, with no redundancy of its own nor of whoever lends it.
    pub(crate) fn is_bare(&self) -> bool {
        let told = self.candidates.iter().find_map(newest);
        let striped = told.is_some_and(|superblock| superblock.geometry.level == Level::Raid0);
        striped && !self.members.iter().any(|member| is_lease(member.name()))
    }

    /// How the write hole is closed, as those tell who carry a superblock.
    pub fn write_hole(&self) -> Option<WriteHole> {
        let told = self.candidates.iter().find_map(newest);
        told.map(|superblock| superblock.write_hole)
    }

    /// The runs that have or had the members, by their superblocks; none after a clean stop.
    pub fn owners(&self) -> impl Iterator<Item = ArrayOwner> + '_ {
        let newest = self.candidates.iter().filter_map(newest);
        newest.filter_map(|superblock| superblock.tail.owner)
    }

    /// The members, for a shell.
    pub(crate) fn into_members(self) -> Vec<OpenMember> {
        self.members.into_iter().map(Plain::into_member).collect()
    }

    /// Refuses what the engine would refuse for what superblocks tell, an array that is not called `name`, and what
    /// would leave a current member behind unasked.
    pub fn check(&self, name: Option<&str>, setup: &Setup) -> Outcome<Preview> {
        refuse_to_lose(&self.unanswering(), setup.start)?;
        let choice = choose(&self.candidates, setup.start)
            .map_err(|error| self.refused(&error, &self.old_copies()))?;
        let found = &choice.superblock.name;
        if let Some(name) = name.filter(|name| name != found) {
            let what = format!("these members belong to the array {found:?}, not {name:?}");
            return Err(Failure::new(what).hint("check the name and the members"));
        }
        let vacant = vacant_slots(&choice);
        let vacant_part = |line: &Placement| is_vacant(&choice, line.member);
        if !setup.start.accept_loss && !decodable(&choice.superblock, vacant_part) {
            let error = CommandError::TooFew { missing: vacant };
            return Err(self.refused(&error, &old_copies(&choice)));
        }
        self.check_left_behind(&choice, setup)?;
        Ok(Preview {
            name: choice.superblock.name.clone(),
            may_lose: !choice.superblock.clean && !vacant.is_empty(),
            array: choice.superblock.array,
            partner: choice.superblock.partner,
            form: None,
            lacks_surrogate: false,
            geometry: choice.superblock.geometry,
            leans_on_log: choice.superblock.ahead && !choice.superblock.alone,
            remake: self.remake(&choice),
            start: setup.start,
        })
    }

    fn remake(&self, choice: &Choice) -> Option<String> {
        let names: Vec<&str> = self.members.iter().map(Plain::name).collect();
        remake::command(choice, &names)
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
        if left.is_empty() || setup.may_leave_behind() {
            return Ok(());
        }
        let slots: Vec<String> = left.iter().map(u16::to_string).collect();
        let (name, slots) = (&choice.superblock.name, slots.join(", "));
        let what = format!(
            "this start would omit a current member of the array {name:?}: slot {slots} is missing"
        );
        let all = "name every member; or pass --degraded: omitted members become stale and must be rebuilt";
        let current = "attach the current member; or pass --degraded, and `restripe add` rebuilds the stale copy";
        let old = old_copies(choice);
        let hint = if old.is_empty() { all } else { current };
        Err(Failure::new(what).at(self.roll_call(&old)).hint(hint))
    }

    /// Who is here only as a stale copy, as far as that can be told without a majority.
    fn old_copies(&self) -> Vec<usize> {
        let anyhow = StartMode {
            from_minority: true,
            ..StartMode::default()
        };
        choose(&self.candidates, anyhow).map_or(Vec::new(), |choice| old_copies(&choice))
    }

    /// The engine's refusal, with the array's name and who is here. The members in the places `old` are old copies.
    fn refused(&self, error: &CommandError, old: &[usize]) -> Failure {
        let name = |member: &Plain| MemberName {
            name: member.name().into(),
            open: true,
        };
        let names: Vec<MemberName> = self.members.iter().map(name).collect();
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
    pub(crate) fn array_name(&self) -> Option<&str> {
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
        let old = old.iter().map(|place| self.members[*place].name());
        let [absent, mute] = [&self.absent, &self.mute].map(|names| names.iter());
        let mut parts = Vec::new();
        for (names, what) in [
            (with(Carries::All), ""),
            (old.collect(), " only as a stale copy"),
            (with(Carries::Part), " smaller than its superblock records"),
            (with(Carries::Nothing), " without a Restripe superblock"),
            (absent.map(String::as_str).collect(), " cannot be opened"),
            (mute.map(String::as_str).collect(), " cannot be read"),
        ] {
            if !names.is_empty() {
                parts.push(format!("{}{what}", names.join(", ")));
            }
        }
        parts.join("; ")
    }
}

fn newest(candidate: &Candidate) -> Option<&Superblock> {
    newest_of(candidate.copies.iter().flatten())
}

/// Losses are accepted of members that are gone. One that was named and does not answer may have been slow this once, and
/// what it holds would be declared lost for good; a start that only reads declares nothing.
pub(crate) fn refuse_to_lose(unanswering: &[String], start: StartMode) -> Outcome {
    if unanswering.is_empty() || !start.accept_loss || start.read_only {
        return Ok(());
    }
    let what = "a member does not respond, and its data would be permanently lost";
    Err(Failure::new(what)
        .at(unanswering.join(", "))
        .hint("wait until it responds; or start without naming it to continue with --accept-loss"))
}

/// Says of a member that is open and cannot be read that it is gone without.
pub(crate) fn warn_of_mute(name: &str, error: &io::Error) {
    warn(format_args!(
        "{name}: cannot be read: {error}; it counts as missing"
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

/// The slots in which, or in some partitions of which, nobody serves who is here and current.
fn vacant_slots(choice: &Choice) -> Vec<u16> {
    slots(choice, |entry| is_vacant(choice, entry))
}

fn is_vacant(choice: &Choice, entry: Option<u16>) -> bool {
    !entry.is_some_and(|entry| is_current(choice, entry) && choice.serves(entry))
}

/// The slots of current members that are not here, or here in an old copy.
fn left_behind(choice: &Choice) -> Vec<u16> {
    slots(choice, |entry| {
        entry.is_some_and(|entry| is_current(choice, entry) && !choice.serves(entry))
    })
}

/// Who is here only as a stale copy, by their places among the candidates.
fn old_copies(choice: &Choice) -> Vec<usize> {
    let entries = choice.outdated.iter();
    entries
        .filter_map(|entry| choice.opened[usize::from(*entry)])
        .collect()
}

/// The slots of one of whose lines in the placement table this is true, each once.
fn slots(choice: &Choice, wanted: impl Fn(Option<u16>) -> bool) -> Vec<u16> {
    let placement = choice.superblock.placement.iter();
    let found = placement.filter(|placement| wanted(placement.member));
    let mut slots: Vec<u16> = found.map(|placement| placement.slot).collect();
    slots.dedup();
    slots
}

fn is_current(choice: &Choice, entry: u16) -> bool {
    choice.superblock.members[usize::from(entry)].role == MemberRole::Active
}

/// Whether every row can be decoded without the partitions of whose lines this is true.
fn decodable(superblock: &Superblock, vacant: impl Fn(&Placement) -> bool) -> bool {
    let gone = |slot: Slot, partition| {
        let line = superblock.placement_of(slot.0, partition);
        line.is_none_or(&vacant)
    };
    Layout::new(superblock.geometry).is_ok_and(|layout| layout.decodable_without_parts(gone))
}

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_array::MemberInfo;
    use restripe_array::layout::{Level, Rotation, Skew};
    use restripe_array::meta::{CreateOptions, create};

    fn superblock(level: Level, slots: u8, skew: Option<Skew>) -> Superblock {
        let mut options = CreateOptions::new("judged", Uuid([1; 16]), level, 8);
        let info = MemberInfo {
            sectors: 8192,
            logical_block: 512,
            trim_zeroes: true,
            fast_zero: true,
            volatile: false,
        };
        options.members = vec![info; usize::from(slots)];
        options.uuids = (0..slots).map(|slot| Uuid([slot + 2; 16])).collect();
        options.geometry.skew = skew;
        create(&options).expect("sound options").superblock
    }

    fn decodable_without(superblock: &Superblock, slots: &[u16]) -> bool {
        decodable(superblock, |line| slots.contains(&line.slot))
    }

    #[test]
    fn what_a_level_bears_can_be_decoded_and_no_more() {
        let raid5 = superblock(Level::Raid5(Rotation::LeftSymmetric), 4, None);
        assert!(decodable_without(&raid5, &[]) && decodable_without(&raid5, &[2]));
        assert!(!decodable_without(&raid5, &[0, 2]));
        let raid10 = superblock(Level::Raid10 { copies: 2 }, 4, None);
        assert!(decodable_without(&raid10, &[0, 2]) && !decodable_without(&raid10, &[0, 1]));
        assert!(!decodable_without(&superblock(Level::Raid0, 2, None), &[1]));
    }

    /// Slots that could not both be missed may well lack some partitions each.
    #[test]
    fn a_slot_may_be_vacant_in_part() {
        let skew = Some(Skew::with_most_partitions(3, 9));
        let raid5 = superblock(Level::Raid5(Rotation::LeftSymmetric), 9, skew);
        assert!(!decodable_without(&raid5, &[0, 3]));
        let mut split = raid5.clone();
        let lines = |line: &Placement| {
            let of = |partition| Placement { partition, ..*line };
            (0..3).map(of).collect::<Vec<Placement>>()
        };
        split.placement = raid5.placement.iter().flat_map(lines).collect();
        let undecodable = |partition: &u16| {
            let lost = |line: &Placement| (line.slot, line.partition) == (3, *partition);
            !decodable(&split, |line| line.slot == 0 || lost(line))
        };
        assert_eq!((0..3).filter(undecodable).count(), 1);
    }
}
