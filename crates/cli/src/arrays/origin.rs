//! What a device that is to be taken in has to do with an array and its surrogate, as its superblocks tell. A member that
//! comes back goes to the set that it is of: nobody has to say which, and `--force` makes it no other's. Only of a surrogate that is
//! not served, which holds nothing that counts then, does `--force` take a member for the array.

use crate::arrays::member::{Copies, surrogate_of};
use crate::failure::Outcome;
use restripe_array::meta::Superblock;
use restripe_array::report::{MemberState, MemberStatus, Status as SetStatus};
use restripe_array::{Member, Uuid};
use restripe_io::plain::Plain;
use restripe_tier::report::Status;

/// One of the sets of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whose {
    Array,
    Surrogate,
    /// That of a code cache's buffer.
    Buffer,
}

pub(crate) enum Origin {
    Stranger,
    /// A member that is out of service, or one that its set has forgotten.
    Former(Whose),
    /// It says that it is a member, and that one is in service as another device.
    CopyOf(Member),
    /// It is of this array's surrogate, which is not served.
    OfAbsentSurrogate,
}

/// What it has to do with this set, or with all of them.
pub(crate) fn origin(device: &Plain, status: &Status, into: Option<Whose>) -> Outcome<Origin> {
    let copies = Copies::read(device)?;
    let sound: Vec<&Superblock> = copies
        .found
        .iter()
        .filter_map(|(_, copy)| copy.as_ref().ok())
        .collect();
    for (whose, set) in sets(status) {
        if into.is_some_and(|into| whose != into) {
            continue;
        }
        if let Some(origin) = origin_in(&sound, whose, set) {
            return Ok(origin);
        }
    }
    let newest = copies.newest();
    let of = newest.and_then(|superblock| surrogate_of(superblock.partner));
    Ok(match of == Some(status.uuid) && !serves_surrogate(status) {
        true => Origin::OfAbsentSurrogate,
        false => Origin::Stranger,
    })
}

/// The copies of a superblock may name two members: after a copy that was broken off, or a device that changed its place.
/// Any that names one in service counts, since the other may be the older.
fn origin_in(copies: &[&Superblock], whose: Whose, set: &SetStatus) -> Option<Origin> {
    let ours = copies.iter().filter(|copy| copy.array == set.uuid);
    let named: Vec<Uuid> = ours.map(|copy| copy.member).collect();
    if named.is_empty() {
        return None;
    }
    let in_service = |found: &&MemberStatus| {
        named.contains(&found.uuid)
            && matches!(found.state, MemberState::Active | MemberState::Rebuilding)
    };
    let twin = set.members.iter().find(in_service);
    Some(twin.map_or(Origin::Former(whose), |twin| Origin::CopyOf(twin.member)))
}

/// The set that a member is of; the array's own if nobody knows it.
pub(crate) fn whose_is(status: &Status, member: Member) -> Whose {
    let is_it = |other: &MemberStatus| other.member == member;
    let others = other_sets(status).find(|(_, set)| set.members.iter().any(is_it));
    others.map_or(Whose::Array, |(whose, _)| whose)
}

fn sets(status: &Status) -> impl Iterator<Item = (Whose, &SetStatus)> {
    let served = other_sets(status).filter(|_| serves_surrogate(status));
    std::iter::once((Whose::Array, &status.set)).chain(served)
}

/// The surrogate and its buffer, as far as they are served.
pub(crate) fn other_sets(status: &Status) -> impl Iterator<Item = (Whose, &SetStatus)> {
    status.surrogate.iter().flat_map(|one| {
        let buffer = one.buffer.iter().map(|one| (Whose::Buffer, &one.set));
        std::iter::once((Whose::Surrogate, &one.set)).chain(buffer)
    })
}

/// Of one that could not be started nothing is known.
fn serves_surrogate(status: &Status) -> bool {
    let surrogate = status.surrogate.as_deref();
    surrogate.is_some_and(|surrogate| surrogate.overlay.is_some())
}
