//! An array and its surrogate, named together: told apart by what their superblocks say, and judged as two arrays that
//! must belong to each other.
//!
//! What lies in a surrogate only its array's engine knows. So an array whose surrogate was not named may be started: if
//! something counts there, the engine refuses, and if nothing does, the array is whole without it.

use crate::arrays::member::{buffer_of, surrogate_of};
use crate::arrays::preflight::{MemberList, Preview};
use crate::arrays::setup::{Others, Setup};
use crate::failure::{Failure, Outcome};
use crate::print::terminal::warn;
use restripe_array::meta::{ArrayOwner, WriteHole};
use restripe_io::member::OpenMember;

/// The members of one array, those of its surrogate, and of that one's buffer.
pub(crate) struct Sets {
    home: MemberList,
    surrogate: Option<MemberList>,
    buffer: Option<MemberList>,
}

impl Sets {
    /// Tells apart who was named together. Who carries nothing is taken for the array's.
    pub fn of(mut list: MemberList) -> Sets {
        let surrogate = list.split_off(|superblock| surrogate_of(superblock.partner).is_some());
        let buffer = list.split_off(|superblock| buffer_of(superblock.partner).is_some());
        Sets {
            home: list,
            surrogate: Some(surrogate).filter(|surrogate| !surrogate.is_empty()),
            buffer: Some(buffer).filter(|buffer| !buffer.is_empty()),
        }
    }

    /// As [`MemberList::check`], for both.
    pub fn check(&mut self, name: Option<&str>, setup: &Setup) -> Outcome<Preview> {
        if let Some(buffer) = self.buffer.as_ref().filter(|_| !self.home.tells()) {
            return Err(buffer_alone(buffer, setup));
        }
        let Some(surrogate) = &self.surrogate else {
            let found = self.home.check(name, setup)?;
            if found.partner.is_some() && found.leans_on_log && !setup.may_leave_behind() {
                return Err(without_log_disk(&found.name));
            }
            return Ok(Preview {
                lacks_surrogate: found.partner.is_some(),
                ..found
            });
        };
        if !self.home.tells() {
            return Err(alone(surrogate, setup));
        }
        let found = self.home.check(name, setup)?;
        if found.partner.is_none() && surrogate.surrogate_of() == Some(found.array) {
            let told = given_up(&found.name, surrogate);
            // A surrogate is wiped after its array has given it up: what has begun is as good as done.
            if surrogate.check(None, &Setup::default()).is_ok() || !self.home.has_blank() {
                return Err(told.hint("omit these members"));
            }
            let (what, at, _) = told.into_parts();
            warn(format_args!(
                "{what}, and is partly wiped: {at} omitted; --force overwrites these members"
            ));
            self.surrogate = None;
            return Ok(found);
        }
        let theirs = match surrogate.check(None, setup) {
            Ok(theirs) => theirs,
            Err(failure) if may_do_without(setup) => {
                let (what, ..) = failure.into_parts();
                warn(format_args!("the surrogate: {what}"));
                return Ok(found);
            }
            Err(failure) => return Err(failure.of("the surrogate")),
        };
        check_pair(&found, &theirs, surrogate)?;
        if let Some(buffer) = &self.buffer {
            check_buffer(&found, buffer, setup)?;
        }
        Ok(Preview {
            may_lose: found.may_lose || theirs.may_lose,
            ..found
        })
    }

    /// Whether the surrogate is a code cache.
    pub(crate) fn has_code_cache(&self) -> bool {
        let whole_rows = |list: &MemberList| list.write_hole() == Some(WriteHole::WholeRows);
        self.surrogate.as_ref().is_some_and(whole_rows)
    }

    /// Whether the surrogate is one disk, with no redundancy of its own nor below: first copies have what it has.
    pub(crate) fn has_log_disk(&self) -> bool {
        self.surrogate.as_ref().is_some_and(MemberList::is_bare)
    }

    /// The runs that superblocks of any set record.
    pub fn owners(&self) -> Vec<ArrayOwner> {
        let rosters = [
            Some(&self.home),
            self.surrogate.as_ref(),
            self.buffer.as_ref(),
        ];
        let mut owners: Vec<ArrayOwner> = Vec::new();
        for owner in rosters.into_iter().flatten().flat_map(MemberList::owners) {
            if owners.iter().all(|known| known.run != owner.run) {
                owners.push(owner);
            }
        }
        owners
    }

    /// All members, the surrogate's and then its buffer's last, and how many these are. A buffer is nobody's without a surrogate.
    pub(crate) fn into_members(self) -> (Vec<OpenMember>, Others) {
        let mut members = self.home.into_members();
        let count = |members: &[OpenMember]| u16::try_from(members.len()).unwrap_or(u16::MAX);
        let mut others = Others::default();
        if let Some(surrogate) = self.surrogate {
            let of_surrogate = surrogate.into_members();
            let of_buffer = self.buffer.map_or(Vec::new(), MemberList::into_members);
            others.of_surrogate = count(&of_surrogate);
            others.of_buffer = count(&of_buffer);
            members.extend(of_surrogate);
            members.extend(of_buffer);
        }
        (members, others)
    }
}

/// A surrogate that is short of members keeps nobody who asked to go on degraded from an array that is whole without it:
/// the engine judges that. Whoever accepts losses is told what could still be brought.
fn may_do_without(setup: &Setup) -> bool {
    (setup.degraded || setup.start.read_only) && !setup.start.accept_loss
}

/// The other copies are to be brought in step before they may stand in for a first one, and the log disk is of no use afterwards: nobody
/// should come to that by leaving a name out.
fn without_log_disk(name: &str) -> Failure {
    let what = format!(
        "this start would omit the log disk of the array {name:?}, whose primary copies may be newer than the secondary copies"
    );
    Failure::new(what).hint(
        "name it with the members; or pass --degraded: the primary copies hold all data, the secondary copies are resynced, and the log is permanently discarded",
    )
}

/// A surrogate without its array.
fn alone(surrogate: &MemberList, setup: &Setup) -> Failure {
    let found = match surrogate.check(None, setup) {
        Ok(found) => found,
        Err(failure) => return failure.of("a surrogate"),
    };
    let of = surrogate_of(found.partner).unwrap_or(found.array);
    let name = &found.name;
    Failure::new(format!(
        "these members are the surrogate {name:?} of the array {of}"
    ))
    .at(surrogate.names())
    .hint("a surrogate is started together with its array: name that array's members as well")
}

/// A surrogate of this array, which has it on record no more.
fn given_up(home: &str, surrogate: &MemberList) -> Failure {
    let name = surrogate.array_name().unwrap_or_default();
    let what = format!("the array {home:?} no longer uses its surrogate {name:?}");
    Failure::new(what).at(surrogate.names())
}

/// Members of a buffer, and no others.
fn buffer_alone(buffer: &MemberList, setup: &Setup) -> Failure {
    let name = match buffer.check(None, setup) {
        Ok(found) => found.name,
        Err(failure) => return failure.of("an NVRAM buffer"),
    };
    let hint =
        "an NVRAM buffer is started together with its array: name that array's members as well";
    let what = format!("these members are the NVRAM buffer {name:?} of a code cache");
    Failure::new(what).at(buffer.names()).hint(hint)
}

/// What too few of them are to the array the engine judges: it may need none.
fn check_buffer(home: &Preview, buffer: &MemberList, setup: &Setup) -> Outcome {
    let theirs = match buffer.check(None, setup) {
        Ok(theirs) => theirs,
        Err(failure) if setup.degraded || setup.start.accept_loss => {
            let (what, ..) = failure.into_parts();
            warn(format_args!("the NVRAM buffer: {what}"));
            return Ok(());
        }
        Err(failure) => return Err(failure.of("the NVRAM buffer")),
    };
    match buffer_of(theirs.partner) == Some(home.array) {
        true => Ok(()),
        false => Err(of_another("NVRAM buffer", &theirs, home, buffer)),
    }
}

fn of_another(set: &str, theirs: &Preview, home: &Preview, members: &MemberList) -> Failure {
    let (theirs, home) = (&theirs.name, &home.name);
    let what = format!("{theirs:?} is the {set} of another array, not of {home:?}");
    Failure::new(what)
        .at(members.names())
        .hint("omit these members")
}

/// Each must have the other on record.
fn check_pair(home: &Preview, surrogate: &Preview, members: &MemberList) -> Outcome {
    let ours = home.partner.map(|partner| partner.array);
    let theirs = surrogate_of(surrogate.partner);
    if ours == Some(surrogate.array) && theirs == Some(home.array) {
        return Ok(());
    }
    Err(of_another("surrogate", surrogate, home, members))
}
