//! Refusals of the engine in words, with the members' names as the operator knows them.

use crate::arrays::member::VOLATILE;
use crate::arrays::owner::{HINT, HINT_SILENT};
use crate::units::Size;
use restripe_array::meta::{ArrayOwner, MetaError};
use restripe_array::{CommandError, LeaseError, Member, Rival, SECTOR_BYTES, Uuid};
use restripe_io::control::{Refusal, member_name};
use restripe_io::remote::MemberName;

/// What a start says whose metadata is gone.
pub(crate) const UNREADABLE: &str =
    "the array's maps or superblocks could not be read or written on enough members";

/// Extents told in a refusal, at most; `assemble --accept-loss` lists them all.
const EXTENTS_TOLD: usize = 64;

/// Extents of sectors as a status tells what is lost.
fn extents_line(extents: &[(u64, u64)]) -> String {
    let told = extents.iter().take(EXTENTS_TOLD);
    let mut parts: Vec<String> = told
        .map(|(lba, sectors)| {
            let (bytes, at) = (Size(sectors * SECTOR_BYTES), lba * SECTOR_BYTES);
            format!("{bytes} at byte {at}")
        })
        .collect();
    if extents.len() > EXTENTS_TOLD {
        parts.push(format!("and {} more extents", extents.len() - EXTENTS_TOLD));
    }
    parts.join(", ")
}

fn owned(by: &ArrayOwner, rival: Rival) -> Refusal {
    let run = format!("another daemon (run {}, process {})", by.run, by.process);
    let what = match rival {
        Rival::Renews => {
            format!("{run} serves this array: it renews its owner record in the superblocks")
        }
        Rival::Claims => format!("{run} has taken this array"),
        Rival::Silent => format!(
            "{run} may serve this array: it was not stopped, and it guards its members by locks"
        ),
    };
    let hint = match rival {
        Rival::Silent => HINT_SILENT,
        Rival::Renews | Rival::Claims => HINT,
    };
    Refusal::new(what).hint(hint)
}

/// An engine's refusal in words, with the members' names.
pub(crate) fn refusal(error: &CommandError, names: &[MemberName]) -> Refusal {
    let name = |member: &Member| {
        let found = names
            .get(usize::from(member.0))
            .map(|found| found.name.clone());
        found.unwrap_or_else(|| member_name(*member, None))
    };
    match error {
        CommandError::Owned { by, rival } => owned(by, *rival),
        CommandError::NoArray => Refusal::new("these members hold no array that can be read")
            .hint("`restripe examine` shows their contents. If only the start of each member was wiped, recreate the array over its data: `restripe create` with the original options and order of members, and --init sync --force (raid0: --init assume-clean)"),
        CommandError::Clone(one, other) => Refusal::new("two members claim the same slot: one is a copy of the other")
            .at(format!("{} and {}", name(one), name(other)))
            .hint("omit the copy, or wipe it"),
        CommandError::Split(one, other) => Refusal::new("split brain: two groups of members were started separately and differ since then")
            .at(format!("{} and {}", name(one), name(other)))
            .hint("choose one group and start with its members only (`serve --from-minority` if it is the smaller one); add the other members later"),
        CommandError::Foreign(member) => foreign(&name(member)),
        CommandError::SameDevice(path, other) => same_device(&name(path), &name(other)),
        CommandError::OtherHistory { member, theirs, ours } => other_history(&name(member), *theirs, *ours),
        CommandError::Unreadable(member) => unreadable(&name(member)),
        CommandError::Unsound { member, error } => unsound(&name(member), error),
        CommandError::Minority { present, current } => {
            Refusal::new(format!("only {present} of the {current} current members are present"))
                .hint("attach the others; if they are permanently lost, start with `serve --from-minority`, and --accept-loss if the present members do not hold all data")
        }
        CommandError::TooFew { missing } => too_few(missing),
        CommandError::WouldLose { extents } => would_lose(extents),
        CommandError::SurrogateMissing { surrogate, extents } => {
            surrogate_missing(&format!("the surrogate {surrogate} is missing"), extents)
                .hint("attach the surrogate; or pass --accept-loss to discard these bytes and the surrogate")
        }
        CommandError::LogDamaged { surrogate, extents } => {
            surrogate_missing(&format!("the log of the surrogate {surrogate} is damaged"), extents)
                .hint("attach its missing members; or pass --accept-loss to discard these bytes")
        }
        CommandError::IsSurrogate { of } => is_surrogate(*of),
        CommandError::Indispensable(member) => {
            Refusal::new("data would be lost without this member").at(name(member))
                .hint("restore redundancy first: add a device with `restripe add` (--to-surrogate for the surrogate), then wait with `restripe rebuild`")
        }
        CommandError::NoSuchMember(member) => Refusal::new("the array has no such member").at(name(member)),
        CommandError::Volatile(member) => volatile(&name(member)),
        CommandError::FailedAgain(member) => failed_again(&name(member)),
        CommandError::TooSmall { has, needs } => {
            Refusal::new(format!("the device has {} bytes", has * SECTOR_BYTES))
                .hint(format!("it needs at least {} bytes", needs * SECTOR_BYTES))
        }
        CommandError::LogicalBlock { member, array } => Refusal::new(format!(
            "the device has logical blocks of {member} bytes, the array of {array}"
        )),
        CommandError::Busy(why) => Refusal::new(format!("not now: {why}")),
        CommandError::Unsuited(why) => Refusal::new(*why),
        CommandError::NoSpace => Refusal::new("no space is left on a member")
            .hint("nothing is lost: free space on its file system, then retry"),
        CommandError::Metadata => Refusal::new(UNREADABLE),
        CommandError::Lease(error) => lease_refusal(*error),
        CommandError::LogIsOld => {
            Refusal::new("it is stale: it misses the array's last start or clean stop, and all writes since")
                .hint("attach its current members; or pass --accept-loss to discard data that only it holds")
        }
        CommandError::LogIsNewer => {
            Refusal::new("it is newer than the array's own members, which are a stale copy: they miss a start or stop")
                .hint("attach the array's current members; `serve --from-minority` starts with the stale ones")
        }
        CommandError::BufferMissing | CommandError::BufferIsOld => without_buffer(error),
        CommandError::OfBuffer(error) => of_buffer(error, names),
        CommandError::OfSurrogate(error) => of_set("the surrogate", error, names),
    }
}

fn is_surrogate(of: Uuid) -> Refusal {
    Refusal::new(format!("these members are the surrogate of the array {of}"))
        .hint("start it together with that array")
}

fn volatile(path: &str) -> Refusal {
    Refusal::new(VOLATILE).at(path).hint(
        "stop the array and serve it with --volatile-members: clients are then offered neither FLUSH nor FUA",
    )
}

fn same_device(path: &str, other: &str) -> Refusal {
    let what = format!("this device is the same disk as the member {other}, by a second path");
    Refusal::new(what)
        .at(path)
        .hint("name a disk that the array does not use")
}

fn failed_again(path: &str) -> Refusal {
    Refusal::new("the member failed while it was added")
        .at(path)
        .hint("the daemon's log contains the cause; add the member again when its device or server responds")
}

fn unreadable(path: &str) -> Refusal {
    Refusal::new("the superblocks of this device cannot be read, so its content is not known")
        .at(path)
        .hint("choose another device, or pass --force to overwrite this one")
}

fn foreign(path: &str) -> Refusal {
    Refusal::new("this member belongs to another array")
        .at(path)
        .hint("omit it")
}

fn unsound(path: &str, error: &MetaError) -> Refusal {
    Refusal::new(format!(
        "the superblock of this member has a valid checksum but invalid contents: {error}"
    ))
    .at(path)
    .hint("`restripe examine` shows the contents; serve the other members with --degraded, then add this member again")
}

/// Generations and sequences of a device and of the running array, which parted.
fn other_history(path: &str, theirs: (u64, u64), ours: (u64, u64)) -> Refusal {
    let age = |(generation, version): (u64, u64)| {
        format!("generation {generation}, superblock version {version}")
    };
    let written = last_written(path).map_or(String::new(), |when| format!(", last written {when}"));
    let what = format!(
        "this member was used without the running array, and holds writes that the array does not have: \
         the device has {}{written}; the array has {}",
        age(theirs),
        age(ours),
    );
    Refusal::new(what).at(path).hint(
        "to use the device's data, stop the array and serve only the device's group of members (--from-minority, \
         and --accept-loss if the group does not hold all data); \
         to discard the device's data, pass --force",
    )
}

/// When a file was written last, in words; other devices do not tell.
fn last_written(path: &str) -> Option<String> {
    let file = std::fs::metadata(path).ok().filter(|file| file.is_file())?;
    let ago = file.modified().ok()?.elapsed().ok()?;
    Some(match ago.as_secs() {
        seconds @ 0..120 => format!("{seconds} s ago"),
        seconds @ 120..7200 => format!("{} min ago", seconds / 60),
        seconds => format!("{} h ago", seconds / 3600),
    })
}

fn of_buffer(error: &CommandError, names: &[MemberName]) -> Refusal {
    match error {
        CommandError::Metadata => Refusal::new(
            "the NVRAM buffer: part of its contents cannot be read, and may be flushed data",
        )
        .hint("attach its missing members; or pass --accept-loss to discard the unreadable part"),
        error => of_set("the NVRAM buffer", error, names),
    }
}

/// A refusal of a set beside the array's own.
fn of_set(set: &str, error: &CommandError, names: &[MemberName]) -> Refusal {
    let refused = match (refusal(error, names), error) {
        (refused, CommandError::NoSpace) => {
            refused.hint("free space on the file system that holds its members, then retry")
        }
        (refused, _) => refused,
    };
    Refusal {
        what: format!("{set}: {}", refused.what),
        ..refused
    }
}

/// What is not there, or is of another time, cannot tell what it has.
fn without_buffer(error: &CommandError) -> Refusal {
    match error {
        CommandError::BufferIsOld => Refusal::new(
            "it is stale: it misses the array's last start or clean stop, or failed before another of its members, \
             and it misses all data flushed since",
        )
        .hint("attach its current members; or pass --accept-loss to return to the state of the log"),
        _ => Refusal::new(
            "the NVRAM buffer of its code cache is missing, and may hold the only copy of the last flushed data",
        )
        .hint("name its members as well; or pass --accept-loss to return to the state of the log, some seconds before the crash"),
    }
}

const BORROWED_HINT: &str =
    "it may hold the only copy of some data; --force removes the lease and loses that data";

fn lease_refusal(error: LeaseError) -> Refusal {
    match error {
        LeaseError::NotLending => Refusal::new("this array has no space reserved for leases")
            .hint("`restripe create --lend SIZE` creates an array with such space"),
        LeaseError::NoRoom { largest } => {
            let free = Size(largest * SECTOR_BYTES);
            Refusal::new(format!(
                "the largest possible lease of this array is {free}"
            ))
            .hint("`restripe lease list` shows the free space")
        }
        LeaseError::Borrowed { name, by } => Refusal::new(format!(
            "the array {by} records this lease as its surrogate"
        ))
        .at(name.as_str())
        .hint(BORROWED_HINT),
        LeaseError::BorrowerUnknown(name) => {
            let what = "the borrower of this lease is unknown: its contents are damaged, or could not be read or recorded";
            Refusal::new(what).at(name.as_str()).hint(BORROWED_HINT)
        }
        other => Refusal::new(other.to_string()),
    }
}

fn too_few(missing: &[u16]) -> Refusal {
    let slots: Vec<String> = missing.iter().map(u16::to_string).collect();
    let word = if slots.len() == 1 { "slot" } else { "slots" };
    Refusal::new(format!(
        "too many members are missing: no current member for {word} {}",
        slots.join(", ")
    ))
    .hint("attach a current member, or pass --accept-loss to read the remaining data")
}

fn would_lose(extents: &[(u64, u64)]) -> Refusal {
    let sectors = extents.iter().map(|extent| extent.1).sum::<u64>();
    Refusal::new(format!(
        "a start without the missing members would lose {}",
        Size(sectors * SECTOR_BYTES)
    ))
    .at(extents_line(extents))
    .hint("attach the missing members, or pass --accept-loss to start without these bytes")
}

fn surrogate_missing(what: &str, extents: &[(u64, u64)]) -> Refusal {
    let sectors = extents.iter().map(|extent| extent.1).sum::<u64>();
    Refusal::new(format!(
        "{what}, and may have the only current copies of {}",
        Size(sectors * SECTOR_BYTES)
    ))
    .at(extents_line(extents))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_members_as_the_operator_does() {
        let names = ["a.img", "b.img"].map(|name| MemberName {
            name: name.into(),
            open: true,
        });
        let told = refusal(&CommandError::Clone(Member(0), Member(1)), &names);
        assert_eq!(told.at, "a.img and b.img");
        assert_eq!(
            refusal(&CommandError::Foreign(Member(9)), &names).at,
            "member 9"
        );
        assert!(
            refusal(
                &CommandError::Minority {
                    present: 1,
                    current: 3
                },
                &names
            )
            .hint
            // Not every verb that starts an array has that option.
            .contains("serve --from-minority")
        );
    }
}
