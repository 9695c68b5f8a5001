//! Which of the members that are here make up the array: the decision at every start, pure.
//!
//! What it rests on: before a write is acknowledged that a member misses, superblocks that no longer call that member
//! current are durable on all the members that still are. So the newest superblock decides, whoever carries it: a member
//! that it calls current is current even if its own copy is older (a crash caught the write of superblocks half way, or
//! tore its newest copy), and a member that it calls failed is stale however good it looks.
//!
//! What could break that is two histories: parts of one array that were each started alone. Within one history a
//! generation stands for one set of current members, and superblocks remember since when each member has been current
//! or has not; so two histories contradict each other about some generation.
//!
//! A history is void if a member that it counts on is seen to have gone the other way: its superblocks never reached
//! that member, so nothing was acknowledged in it. That is what a crash leaves on a member that then misses the next
//! start; it is stale, and must be rebuilt as a whole. If two histories stand and neither is void, both are refused.

use crate::contract::{CommandError, MemberInfo, StartMode};
use crate::fills::{Own, keep_held};
use crate::units::{Member, Uuid};
use alloc::vec::Vec;
use restripe_format::meta::superblock::SUPER_B_PLACES;
use restripe_format::meta::{
    MemberEntry, MemberRole, MetaError, Region, RegionKind, Superblock, field, rules,
};

/// A device that was opened for a start, and what its two superblock places hold.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub member: Member,
    pub info: MemberInfo,
    /// Copy A and copy B. `None` if it could not be read at all.
    pub copies: [Option<Result<Superblock, MetaError>>; 2],
}

/// The decision. Tables in it run parallel to the chosen superblock's member table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Choice {
    /// The newest; it notes a start from a minority, if this is one. Of tasks that fill members, rows are
    /// done that these have ([`crate::fills`]).
    pub superblock: Superblock,
    /// Which candidate is this member, if it is here.
    pub opened: Vec<Option<usize>>,
    /// The regions of each member that is here, by its own word; else none.
    pub regions: Vec<Vec<Region>>,
    /// Here, and called failed.
    pub stale: Vec<Member>,
    /// Those of the stale that went a way of their own: no map tells what they lack.
    pub strayed: Vec<Member>,
    /// Here, and not of this array any more, or without a superblock that can be used.
    pub foreign: Vec<Member>,
    /// Indices of the members that are not here.
    pub missing: Vec<u16>,
    /// Indices of the members here, not stale, whose newest copy is older than the chosen superblock. They get that
    /// version, durably, before anybody gets a next one: the next goes over the copy that they still have.
    pub lagging: Vec<u16>,
    /// Active or being filled, but with an older copy of what the member held.
    pub outdated: Vec<u16>,
}

/// A candidate with the copy that speaks for it.
struct Claim<'a> {
    candidate: usize,
    member: Member,
    superblock: &'a Superblock,
    /// Copy A is sound.
    anchored: bool,
}

/// The two copies of a device, of what its places hold: copy A, and what lies at each of
/// [`SUPER_B_PLACES`] in their order (`None` if it cannot be read, or lies beyond the end).
///
/// A sound copy A says where copy B is. Otherwise it is the first that lies where its own region table says: the
/// places behind it may be set data, in which a user may write what he likes.
pub fn copies_of(
    a: Option<Result<Superblock, MetaError>>,
    places: [Option<Result<Superblock, MetaError>>; SUPER_B_PLACES.len()],
) -> [Option<Result<Superblock, MetaError>>; 2] {
    let told = a.as_ref().and_then(|copy| place_of_b(copy.as_ref().ok()?));
    let mut held = SUPER_B_PLACES.into_iter().zip(places);
    let b = match told {
        Some(told) => held.find(|(place, _)| *place == told),
        None => held.find(|(place, copy)| match copy {
            Some(Ok(copy)) => place_of_b(copy) == Some(*place),
            _ => false,
        }),
    };
    [a, b.and_then(|(_, copy)| copy)]
}

fn place_of_b(superblock: &Superblock) -> Option<u64> {
    let region = superblock.region(RegionKind::SuperB);
    region.map(|region| region.start)
}

/// Decides. Whether what is missing can be done without is not asked here.
pub fn choose(candidates: &[Candidate], mode: StartMode) -> Result<Choice, CommandError> {
    let mut claims: Vec<Claim> = candidates.iter().enumerate().filter_map(claim).collect();
    if let Some(error) = unsound(candidates).filter(|_| claims.is_empty()) {
        return Err(error);
    }
    drop_planted(&mut claims);
    check_one_array(&claims)?;
    check_clones(&claims)?;
    let winner = elect(&claims)?;
    let strayed = strayed(&claims, winner)?;
    let mut choice = gather(candidates, &claims, winner.superblock, strayed);
    check_regions(candidates, &choice)?;
    if let Err(minority) = check_majority(&choice) {
        if !mode.from_minority || !anybody_current(&choice) {
            return Err(minority);
        }
        choice.superblock.forced = choice.superblock.generation + 1;
    }
    Ok(choice)
}

/// A copy that was written so, under a right checksum, and can be of no array.
fn unsound(candidates: &[Candidate]) -> Option<CommandError> {
    use MetaError::{Field, Geometry, TooLarge};
    let impossible = |error: &_| matches!(error, Field { .. } | Geometry(_) | TooLarge { .. });
    let mut copies = candidates.iter().flat_map(|candidate| {
        let copies = candidate.copies.iter().flatten();
        copies.map(move |copy| (candidate.member, copy))
    });
    copies.find_map(|(member, copy)| match *copy {
        Err(error) if impossible(&error) => Some(CommandError::Unsound { member, error }),
        _ => None,
    })
}

/// The tables that are chosen count for each member that is here, beside the regions that it has of its own: these are in range of
/// both, and of the device.
fn check_regions(candidates: &[Candidate], choice: &Choice) -> Result<(), CommandError> {
    let opened = choice.opened.iter().zip(&choice.regions);
    for (entry, (opened, regions)) in choice.superblock.members.iter().zip(opened) {
        let Some(candidate) = opened.map(|index| &candidates[index]) else {
            continue;
        };
        let own = Superblock {
            member: entry.uuid,
            regions: regions.clone(),
            ..choice.superblock.clone()
        };
        let (sound, member) = (rules::check(&own), candidate.member);
        let sound = sound.and_then(|()| check_ends(&own, candidate));
        sound.map_err(|error| CommandError::Unsound { member, error })?;
    }
    Ok(())
}

/// Regions end with the device. (One that is too small for its set data is refused for that.)
fn check_ends(own: &Superblock, candidate: &Candidate) -> Result<(), MetaError> {
    let regions = own.regions.iter();
    let mut others = regions.filter(|region| region.kind != RegionKind::Data);
    match others.find(|region| region.end() > candidate.info.sectors) {
        Some(region) => field("region sectors", region.sectors),
        None => Ok(()),
    }
}

/// Whether a running array may overwrite this device: not if that carries a history of the array which the running one does not have, nor
/// if it is of another array. A history that is void lacks nothing: nobody was told of anything in it.
pub fn admit(running: &Superblock, candidate: &Candidate) -> Result<(), CommandError> {
    let sound = candidate.copies.iter().flatten().flatten();
    let Some(theirs) = newest(sound) else {
        return Ok(());
    };
    if theirs.array != running.array {
        return Err(CommandError::Foreign(candidate.member));
    }
    let serving = running.members.iter();
    let serving = serving.filter(|entry| entry.role == MemberRole::Active);
    let copy_of = |entry: &MemberEntry| Superblock {
        member: entry.uuid,
        ..running.clone()
    };
    let copies: Vec<Superblock> = serving.map(copy_of).collect();
    let claimed = copies.iter().map(|copy| claim_of(candidate, copy));
    let mut claims: Vec<Claim> = claimed.collect();
    claims.push(claim_of(candidate, theirs));
    let newcomer = &claims[copies.len()];
    let ahead = is_current(theirs) && theirs.sequence > running.sequence;
    let newer = ahead || has_more(theirs, running);
    let is_void = void(newcomer, &claims).is_some();
    if !newer && (!diverged(theirs, running) || is_void) {
        return Ok(());
    }
    Err(CommandError::OtherHistory {
        member: candidate.member,
        theirs: age(theirs),
        ours: age(running),
    })
}

fn claim_of<'a>(candidate: &Candidate, superblock: &'a Superblock) -> Claim<'a> {
    Claim {
        candidate: 0,
        member: candidate.member,
        superblock,
        anchored: true,
    }
}

/// Orders superblocks of one history.
fn age(superblock: &Superblock) -> (u64, u64) {
    (superblock.generation, superblock.sequence)
}

fn claim((candidate, described): (usize, &Candidate)) -> Option<Claim<'_>> {
    let superblock = newest_copy(described)?;
    Some(Claim {
        candidate,
        member: described.member,
        superblock,
        anchored: matches!(described.copies[0], Some(Ok(_))),
    })
}

/// Drops claims that rest on a copy B alone where a member with a sound copy A has set data: a user may have written
/// it, on a device whose own two copies are broken.
fn drop_planted(claims: &mut Vec<Claim>) {
    let is_data =
        |region: &&Region| matches!(region.kind, RegionKind::Data | RegionKind::SparePartition);
    let anchored = claims.iter().filter(|claim| claim.anchored);
    let regions = anchored.flat_map(|claim| &claim.superblock.regions);
    let data: Vec<Region> = regions.filter(is_data).copied().collect();
    claims.retain(|claim| {
        let place = place_of_b(claim.superblock).unwrap_or(0);
        let covers = |region: &Region| region.start <= place && place < region.end();
        claim.anchored || !data.iter().any(covers)
    });
}

/// The newest sound copy. Of two arrays' copies (the device was used anew, and the first write tore) the younger array's.
pub fn newest_of<'a>(
    copies: impl Iterator<Item = &'a Result<Superblock, MetaError>>,
) -> Option<&'a Superblock> {
    newest(copies.flatten())
}

/// The newest sound copy that can be meant for this device.
fn newest_copy(candidate: &Candidate) -> Option<&Superblock> {
    let sound = candidate.copies.iter().flatten().flatten();
    newest(sound.filter(|superblock| usable(superblock, &candidate.info)))
}

fn newest<'a>(copies: impl Iterator<Item = &'a Superblock>) -> Option<&'a Superblock> {
    copies.max_by_key(|superblock| (superblock.created, age(superblock)))
}

/// A copy that names its own bearer, on a device that still has all its regions and takes the array's blocks.
fn usable(superblock: &Superblock, info: &MemberInfo) -> bool {
    let mut regions = superblock.regions.iter();
    superblock.index_of(superblock.member).is_some()
        && superblock.logical_block >= info.logical_block
        && regions.all(|region| region.end() <= info.sectors)
}

/// All claims are of one array; else the first member of the array with the fewest is named.
fn check_one_array(claims: &[Claim]) -> Result<(), CommandError> {
    let of_array = |one: &&Claim| {
        let array = one.superblock.array;
        let same = claims
            .iter()
            .filter(|claim| claim.superblock.array == array);
        same.count()
    };
    // The last of equals is the odd one out: whoever was named first is meant.
    match claims.iter().rev().min_by_key(of_array) {
        Some(claim) if of_array(&claim) < claims.len() => Err(CommandError::Foreign(claim.member)),
        _ => Ok(()),
    }
}

/// No two devices claim to be one member.
fn check_clones(claims: &[Claim]) -> Result<(), CommandError> {
    for (i, claim) in claims.iter().enumerate() {
        let same = |other: &&Claim| other.superblock.member == claim.superblock.member;
        if let Some(first) = claims[..i].iter().find(same) {
            return Err(CommandError::Clone(first.member, claim.member));
        }
    }
    Ok(())
}

/// The newest claim of a history that is not void.
fn elect<'a, 'b>(claims: &'b [Claim<'a>]) -> Result<&'b Claim<'a>, CommandError> {
    let newest = claims.iter().max_by_key(|claim| age(claim.superblock));
    let newest = newest.ok_or(CommandError::NoArray)?;
    let standing = claims.iter().filter(|claim| void(claim, claims).is_none());
    if let Some(winner) = standing.max_by_key(|claim| age(claim.superblock)) {
        return Ok(winner);
    }
    let other = void(newest, claims).map_or(newest.member, |other| other.member);
    Err(CommandError::Split(newest.member, other))
}

/// The members that went a way of their own. An error if it is as good as the winner's.
fn strayed(claims: &[Claim], winner: &Claim) -> Result<Vec<Member>, CommandError> {
    let mut strayed = Vec::new();
    let strays = |claim: &&Claim| parted(claim.superblock, winner.superblock);
    for claim in claims.iter().filter(strays) {
        let role = role_of(winner.superblock, claim.superblock.member);
        let counted_on = role == Some(MemberRole::Active);
        let more = has_more(claim.superblock, winner.superblock);
        if counted_on || more || void(claim, claims).is_none() {
            return Err(CommandError::Split(winner.member, claim.member));
        }
        strayed.push(claim.member);
    }
    Ok(strayed)
}

/// A member that this claim's history counts on and that is in another history.
///
/// Without forced starts no two histories can both have been acknowledged in: the members that a new generation needs
/// and the majority that a start needs have one in common. With one, the other history must say itself that the
/// member was current in it at that time, and not taken in later from the history that is called void.
fn void<'a, 'b>(claim: &Claim, claims: &'b [Claim<'a>]) -> Option<&'b Claim<'a>> {
    let went_elsewhere = |other: &&Claim| {
        let (own, others) = (claim.superblock, other.superblock);
        let then = own.generation.min(others.generation);
        let bearer = others.member;
        let forced = own.forced != 0 || others.forced != 0;
        diverged(own, others)
            && own.was_current(bearer, then) == Some(true)
            && !is_beyond(own, others)
            && (!forced || others.was_current(bearer, then) == Some(true))
    };
    claims.iter().find(went_elsewhere)
}

/// Whether a history has more versions than a fork leaves in a void one. A version is on all members in service before the
/// next one is begun. So a history that counts on a member which left it at the fork has one version beyond it at most;
/// with more, the member's superblock is an old copy.
fn is_beyond(own: &Superblock, others: &Superblock) -> bool {
    fork(own, others).is_some_and(|fork| own.sequence > fork.saturating_add(1))
}

/// The last version that two histories share, as far as the second knows: the first members that it counted out since left
/// it there.
fn fork(own: &Superblock, others: &Superblock) -> Option<u64> {
    let then = own.generation.min(others.generation);
    let left = others.members.iter().filter(|entry| match entry.role {
        MemberRole::Failed { stale_since, .. } => {
            let by_force = others.forced != 0 && stale_since == others.forced;
            by_force || own.was_current(entry.uuid, then) == Some(true)
        }
        _ => false,
    });
    left.map(|entry| entry.left_at).filter(|at| *at != 0).min()
}

/// Whether a member went on when the array had counted it out: further than a crash explains. One that is being filled, by its own word,
/// is what the array last made of it.
fn went_on(theirs: &Superblock, array: &Superblock) -> bool {
    let mut entries = array.members.iter();
    let entry = entries.find(|entry| entry.uuid == theirs.member);
    is_current(theirs) && entry.is_some_and(|entry| entry.went_on(theirs.sequence))
}

/// Whether a device is a current member by its own word.
fn is_current(theirs: &Superblock) -> bool {
    role_of(theirs, theirs.member) == Some(MemberRole::Active)
}

/// Whether a history went on beyond a start from a minority that it has no record of. The devices of the minority may be
/// old copies: then the members may agree about every generation that both know.
fn passed_by(theirs: &Superblock, array: &Superblock) -> bool {
    is_current(theirs) && theirs.forced < array.forced && is_beyond(theirs, array)
}

/// Whether a device has what was acknowledged, perhaps, in a history that the array does not have.
fn has_more(theirs: &Superblock, array: &Superblock) -> bool {
    went_on(theirs, array) || passed_by(theirs, array)
}

fn parted(theirs: &Superblock, array: &Superblock) -> bool {
    diverged(theirs, array) || has_more(theirs, array) || passed_by(array, theirs)
}

/// Whether two superblocks are of two histories: they differ in who was current in the older one's generation, or the
/// one with the lower generation was not written first (a member that was to become current, and alone heard of it,
/// against the others that were started without it).
fn diverged(a: &Superblock, b: &Superblock) -> bool {
    let (older, newer) = if age(a) <= age(b) { (a, b) } else { (b, a) };
    let then = older.generation;
    if then < newer.generation && older.sequence >= newer.sequence {
        return true;
    }
    let disagree = |member: Uuid| {
        let said = older.was_current(member, then);
        let known = newer.was_current(member, then);
        said.is_some() && known.is_some() && said != known
    };
    let mut members = older.members.iter().chain(&newer.members);
    members.any(|entry| disagree(entry.uuid)) || left_apart(older, newer)
}

/// Whether a member left two histories in one generation, but under two versions. In one history each version is written
/// once: one of two starts from old copies may have counted up to the other's generation.
fn left_apart(a: &Superblock, b: &Superblock) -> bool {
    let left = |entry: &MemberEntry| match entry.role {
        MemberRole::Failed { stale_since, .. } if entry.left_at != 0 => {
            Some((stale_since, entry.left_at))
        }
        _ => None,
    };
    let differs = |entry: &MemberEntry| {
        let mut others = b.members.iter();
        let other = others.find(|other| other.uuid == entry.uuid).and_then(left);
        let both = left(entry).zip(other);
        both.is_some_and(|(own, other)| own.0 == other.0 && own.1 != other.1)
    };
    a.members.iter().any(differs)
}

fn role_of(superblock: &Superblock, member: Uuid) -> Option<MemberRole> {
    let index = superblock.index_of(member)?;
    Some(superblock.members[usize::from(index)].role)
}

fn gather(
    candidates: &[Candidate],
    claims: &[Claim],
    winner: &Superblock,
    strayed: Vec<Member>,
) -> Choice {
    let mut choice = Choice {
        superblock: winner.clone(),
        strayed,
        ..Choice::default()
    };
    for (index, entry) in (0..).zip(&winner.members) {
        let mut of_it = claims.iter();
        let claim = of_it.find(|claim| claim.superblock.member == entry.uuid);
        choice.opened.push(claim.map(|claim| claim.candidate));
        let regions = claim.map(|claim| claim.superblock.regions.clone());
        choice.regions.push(regions.unwrap_or_default());
        match claim {
            None => choice.missing.push(index),
            Some(claim) if matches!(entry.role, MemberRole::Failed { .. }) => {
                choice.stale.push(claim.member);
                if !is_as_it_left(claim.superblock, entry) {
                    choice.strayed.push(claim.member);
                }
            }
            Some(claim) if outdated(claim, entry.role, winner) => {
                choice.outdated.push(index);
                if entry.role == MemberRole::Rebuilding {
                    choice.lagging.push(index);
                }
            }
            Some(claim) if choice.strayed.contains(&claim.member) => {}
            Some(claim) if age(claim.superblock) < age(winner) => choice.lagging.push(index),
            Some(_) => {}
        }
    }
    let owns = owns(claims, winner, &choice);
    keep_held(&mut choice.superblock, &owns);
    let unknown = |(i, _): &(usize, &Candidate)| !choice.opened.contains(&Some(*i));
    let foreign = candidates.iter().enumerate().filter(unknown);
    choice.foreign = foreign.map(|(_, one)| one.member).collect();
    choice
}

/// What the device of each member says of itself.
fn owns<'a>(claims: &[Claim<'a>], winner: &Superblock, choice: &Choice) -> Vec<Own<'a>> {
    let own = |(index, entry): (u16, &MemberEntry)| {
        let mut of_it = claims.iter();
        let claim = of_it.find(|claim| claim.superblock.member == entry.uuid);
        let is_old = |claim: &Claim| {
            choice.outdated.contains(&index) || choice.strayed.contains(&claim.member)
        };
        match claim {
            None => Own::Missing,
            Some(claim) if is_old(claim) => Own::Outdated,
            Some(claim) => Own::Says(claim.superblock),
        }
    };
    (0..).zip(&winner.members).map(own).collect()
}

/// Whether a device may be a member as that left, so that it lacks no more than the intent map has of it:
/// it has the version under which that left, as far as a crash lets it, and was current in it. A copy of a
/// member that was still being filled lacks what was filled since.
fn is_as_it_left(theirs: &Superblock, entry: &MemberEntry) -> bool {
    let is_it = theirs.member == entry.uuid && is_current(theirs);
    is_it && !entry.is_outdated(theirs.sequence)
}

/// The same of a device that a running array takes back, by its newest superblock.
pub(crate) fn returns_as_it_left(theirs: Option<&Superblock>, entry: &MemberEntry) -> bool {
    theirs.is_some_and(|theirs| is_as_it_left(theirs, entry))
}

/// An old copy of a member that is put in the place of the member: a version is on all that are in service before the
/// next one is begun, so no crash leaves one two versions behind. (A spare has nothing to be out of date.)
fn outdated(claim: &Claim, role: MemberRole, winner: &Superblock) -> bool {
    let holds = matches!(role, MemberRole::Active | MemberRole::Rebuilding);
    holds && claim.superblock.sequence + 1 < winner.sequence
}

/// Requires more than half of the current members, so that the others cannot have gone on without them. A
/// replace whose target is missing may have ended: then its source is no longer current, and only another
/// current member has that on record.
fn check_majority(choice: &Choice) -> Result<(), CommandError> {
    let (mut present, mut current) = (0, 0);
    let mut witnesses = 0;
    for (index, entry) in (0..).zip(&choice.superblock.members) {
        if entry.role == MemberRole::Active {
            current += 1;
            present += u16::from(choice.serves(index));
            witnesses += u16::from(choice.serves(index) && !may_be_replaced(choice, index));
        }
    }
    if present * 2 > current && witnesses > 0 {
        return Ok(());
    }
    // The missing target may be current in the place of the source.
    let current = current + u16::from(present * 2 > current);
    Err(CommandError::Minority { present, current })
}

/// Whether the member is the source of a replace whose target is missing.
fn may_be_replaced(choice: &Choice, member: u16) -> bool {
    let mut placements = choice.superblock.placement.iter();
    placements.any(|place| {
        // A copy-back frees spare space of a host, which stays current.
        place.member == Some(member)
            && place.region == 0
            && place.incoming.is_some_and(|target| !choice.serves(target))
    })
}

fn anybody_current(choice: &Choice) -> bool {
    let mut members = (0..).zip(&choice.superblock.members);
    members.any(|(index, entry)| entry.role == MemberRole::Active && choice.serves(index))
}

impl Choice {
    /// Whether the device of this line of the table is here, and up to date.
    pub fn serves(&self, index: u16) -> bool {
        self.opened[usize::from(index)].is_some() && !self.outdated.contains(&index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskKind;
    use crate::layout::{Level, Rotation};
    use alloc::vec;
    use restripe_format::meta::create::create;
    use restripe_format::meta::superblock::TaskRecord;
    use restripe_format::meta::testing::{INFO, Random, options, uuid};

    const MODE: StartMode = StartMode::PLAIN;
    const ALONE: StartMode = StartMode {
        from_minority: true,
        ..MODE
    };

    /// The copy of a member.
    fn of(superblock: &Superblock, member: Uuid) -> Option<Result<Superblock, MetaError>> {
        let superblock = superblock.clone();
        Some(Ok(Superblock {
            member,
            ..superblock
        }))
    }

    fn minority(present: u16, current: u16) -> CommandError {
        CommandError::Minority { present, current }
    }

    /// An array in memory, played through failures: what each member's newest copy says.
    #[derive(Clone)]
    struct Played {
        superblock: Superblock,
        copies: Vec<[Option<Result<Superblock, MetaError>>; 2]>,
    }

    impl Played {
        fn new(level: Level, members: u16) -> Played {
            let superblock = create(&options(level, members, 2000)).unwrap().superblock;
            let mut before = superblock.clone();
            before.sequence = 1;
            let both = |i| [of(&superblock, uuid(i)), of(&before, uuid(i))];
            let copies = (0..members).map(both).collect();
            Played { superblock, copies }
        }

        fn raid5(members: u16) -> Played {
            Played::new(Level::Raid5(Rotation::LeftSymmetric), members)
        }

        /// The next version of the superblock reaches these members.
        fn write(&mut self, members: &[u16]) {
            self.superblock.sequence += 1;
            for i in members {
                let place = (self.superblock.sequence & 1) as usize;
                self.copies[usize::from(*i)][place] = of(&self.superblock, uuid(*i));
            }
        }

        fn fail(&mut self, member: u16) {
            self.superblock.fail(member, false);
        }

        fn activate(&mut self, member: u16) {
            self.superblock.activate(member);
        }

        fn active(&self) -> Vec<u16> {
            let members = (0..).zip(&self.superblock.members);
            let active = members.filter(|(_, m)| m.role == MemberRole::Active);
            active.map(|(i, _)| i).collect()
        }

        fn candidates(&self, members: &[u16]) -> Vec<Candidate> {
            let candidate = |i: &u16| Candidate {
                member: Member(*i),
                info: INFO,
                copies: self.copies[usize::from(*i)].clone(),
            };
            members.iter().map(candidate).collect()
        }

        fn choose(&self, members: &[u16]) -> Result<Choice, CommandError> {
            choose(&self.candidates(members), MODE)
        }
    }

    #[test]
    fn all_here_in_any_order() {
        let choice = Played::raid5(4).choose(&[2, 0, 3, 1]).unwrap();
        assert_eq!(choice.opened, [Some(1), Some(3), Some(0), Some(2)]);
        assert_eq!(choice.superblock.sequence, 2);
        assert!(choice.stale.is_empty() && choice.foreign.is_empty() && choice.missing.is_empty());
        let alike = |regions: &Vec<Region>| *regions == choice.superblock.regions;
        assert!(choice.regions.iter().all(alike));
    }

    #[test]
    fn nobody_is_no_array() {
        assert_eq!(choose(&[], MODE), Err(CommandError::NoArray));
        let mut played = Played::raid5(3);
        for copies in &mut played.copies {
            *copies = [None, Some(Err(MetaError::NotFound))];
        }
        assert_eq!(played.choose(&[0, 1, 2]), Err(CommandError::NoArray));
    }

    #[test]
    fn a_majority_of_the_current_is_needed() {
        let played = Played::raid5(4);
        assert_eq!(played.choose(&[0, 1, 3]).unwrap().missing, [2]);
        let refused = minority(2, 4);
        assert_eq!(played.choose(&[0, 1]), Err(refused));
        let forced = choose(&played.candidates(&[0, 1]), ALONE).unwrap();
        let generation = forced.superblock.forced;
        assert_eq!(generation, 2, "the generation that is about to begin");
        assert_eq!(played.choose(&[0, 1, 3]).unwrap().superblock.forced, 0);
        let mirror = Played::new(Level::Raid1, 2);
        let refused = minority(1, 2);
        assert_eq!(mirror.choose(&[1]), Err(refused));
    }

    #[test]
    fn source_of_a_replace_does_not_start_alone_without_its_target() {
        let mut played = Played::new(Level::Raid1, 3);
        played.fail(2);
        played.superblock.members[2].role = MemberRole::Rebuilding;
        played.superblock.placement[2].member = None;
        played.superblock.placement[0].incoming = Some(2);
        played.superblock.tasks.push(TaskRecord {
            kind: TaskKind::Replace,
            slot: Some(0),
            paused: false,
            done: vec![],
        });
        played.write(&[0, 1, 2]);
        let both = played.choose(&[0, 1]);
        assert!(both.is_ok(), "member 1 would know: {both:?}");
        played.fail(1);
        played.write(&[0, 2]);
        let refused = minority(1, 2);
        assert_eq!(played.choose(&[0]), Err(refused.clone()));
        assert_eq!(played.choose(&[0, 1]), Err(refused), "member 1 is stale");
        assert!(played.choose(&[0, 2]).is_ok());
        assert!(choose(&played.candidates(&[0]), ALONE).is_ok());
    }

    #[test]
    fn spares_do_not_vote() {
        let mut options = options(Level::Raid1, 5, 2000);
        options.spares = 3;
        let superblock = create(&options).unwrap().superblock;
        let candidate = |i: u16| Candidate {
            member: Member(i),
            info: INFO,
            copies: [of(&superblock, uuid(i)), None],
        };
        let here: Vec<Candidate> = [0, 2, 3, 4].map(candidate).into();
        let refused = minority(1, 2);
        assert_eq!(choose(&here, MODE), Err(refused));
        let spares = &here[1..];
        let refused = minority(0, 2);
        assert_eq!(choose(spares, ALONE), Err(refused));
    }

    #[test]
    fn a_stale_member_is_named_and_does_not_win() {
        let mut played = Played::raid5(4);
        played.write(&[0, 1, 2, 3]);
        played.fail(3);
        played.write(&[0, 1, 2]);
        let choice = played.choose(&[3, 0, 1, 2]).unwrap();
        assert_eq!(choice.stale, [Member(3)]);
        assert_eq!(choice.superblock.generation, 2);
        let here = choice.opened[3];
        assert_eq!(here, Some(0), "it is present, and can be added");
        // Two of the three that are current suffice; the stale one counts for nothing.
        assert_eq!(played.choose(&[3, 1, 0]).unwrap().missing, [2]);
        let refused = minority(1, 3);
        assert_eq!(played.choose(&[3, 1]), Err(refused));
    }

    #[test]
    fn a_stale_mirror_half_cannot_start_alone() {
        let mut played = Played::new(Level::Raid1, 2);
        played.fail(1);
        played.write(&[0]);
        let alone = played.choose(&[0]);
        assert!(alone.is_ok(), "the one current member is all there is");
        let other = played.choose(&[1]);
        assert_eq!(
            other,
            Err(minority(1, 2)),
            "by its own word, it is one of two"
        );
    }

    /// A crash amid the write of superblocks: nothing was acknowledged that the slower members lack.
    #[test]
    fn a_generation_that_reached_only_some_makes_nobody_stale() {
        for reached in [vec![0], vec![2], vec![0, 1]] {
            let mut played = Played::raid5(4);
            played.fail(3);
            played.write(&reached);
            let choice = played.choose(&[0, 1, 2, 3]).unwrap();
            assert_eq!(choice.superblock.generation, 2);
            assert_eq!(choice.stale, [Member(3)]);
            assert!(choice.missing.is_empty());
            let behind: Vec<u16> = (0..3).filter(|i| !reached.contains(i)).collect();
            assert_eq!(choice.lagging, behind);
        }
    }

    /// A start brings everybody to one version before the next: two behind is no crash, but an old copy.
    #[test]
    fn an_old_copy_of_a_member_is_outdated() {
        let mut played = Played::raid5(4);
        played.write(&[0, 1, 2, 3]);
        let old = played.copies[2].clone();
        played.write(&[0, 1, 2, 3]);
        let older = played.copies[2].clone();
        played.write(&[0, 1, 2, 3]);
        assert!(played.choose(&[0, 1, 2, 3]).unwrap().outdated.is_empty());
        played.write(&[0, 1, 2, 3]);
        for copies in [old, older] {
            played.copies[2] = copies;
            let choice = played.choose(&[0, 1, 2, 3]).unwrap();
            assert_eq!(choice.outdated, [2]);
            assert!(choice.lagging.is_empty());
        }
    }

    /// It was being filled in the version before the one under which it left: nothing says how far.
    #[test]
    fn a_copy_of_a_member_that_was_being_filled_is_filled_in_full() {
        let mut played = Played::raid5(4);
        played.fail(2);
        played.superblock.members[2].role = MemberRole::Rebuilding;
        played.write(&[0, 1, 2, 3]);
        let copy = played.copies[2].clone();
        played.activate(2);
        played.write(&[0, 1, 2, 3]);
        played.superblock.fail(2, true);
        played.write(&[0, 1, 3]);
        let choice = played.choose(&[0, 1, 2, 3]).unwrap();
        assert_eq!((choice.stale, choice.strayed), (vec![Member(2)], vec![]));
        played.copies[2] = copy;
        let choice = played.choose(&[0, 1, 2, 3]).unwrap();
        assert_eq!(choice.strayed, [Member(2)]);
    }

    #[test]
    fn a_torn_copy_gives_way_to_the_one_before() {
        let mut played = Played::raid5(3);
        played.write(&[0, 1, 2]);
        for torn in 0..3 {
            let mut played = played.clone();
            let checksum = MetaError::Checksum {
                stored: 1,
                computed: 2,
            };
            played.copies[torn][1] = Some(Err(checksum));
            let choice = played.choose(&[0, 1, 2]).unwrap();
            assert_eq!(choice.superblock.sequence, 3);
            assert_eq!(choice.lagging, [torn as u16]);
            assert!(choice.stale.is_empty() && choice.missing.is_empty());
        }
        for copies in &mut played.copies {
            copies[1] = None;
        }
        assert_eq!(played.choose(&[0, 1, 2]).unwrap().superblock.sequence, 2);
    }

    #[test]
    fn a_clone_is_refused_and_both_are_named() {
        let played = Played::raid5(3);
        let mut candidates = played.candidates(&[0, 1, 2]);
        let mut copy = candidates[1].clone();
        copy.member = Member(7);
        candidates.push(copy);
        let refused = CommandError::Clone(Member(1), Member(7));
        assert_eq!(choose(&candidates, ALONE), Err(refused));
    }

    #[test]
    fn a_member_of_another_array_is_refused() {
        let played = Played::raid5(3);
        let mut other = Played::raid5(3);
        for copy in other.copies.iter_mut().flatten().flatten().flatten() {
            copy.array = uuid(998);
        }
        let mut candidates = played.candidates(&[0, 1]);
        let mut foreign = other.candidates(&[2]).remove(0);
        foreign.member = Member(9);
        candidates.insert(0, foreign);
        let refused = |one| Err(CommandError::Foreign(Member(one)));
        assert_eq!(choose(&candidates, ALONE), refused(9));
        // One against one: the first named is meant.
        candidates.remove(1);
        assert_eq!(choose(&candidates, ALONE), refused(1));
    }

    #[test]
    fn devices_without_use_are_listed_as_foreign() {
        let played = Played::raid5(3);
        let mut candidates = played.candidates(&[0, 1, 2]);
        candidates[0].info.sectors = 1999;
        let blank = Candidate {
            member: Member(5),
            info: INFO,
            copies: [None, None],
        };
        candidates.push(blank);
        let choice = choose(&candidates, MODE).unwrap();
        assert_eq!(choice.foreign, [Member(0), Member(5)]);
        assert_eq!(choice.missing, [0]);

        let mut coarse = played.candidates(&[0, 1, 2]);
        coarse[2].info.logical_block = 4096;
        assert_eq!(choose(&coarse, MODE).unwrap().foreign, [Member(2)]);
    }

    #[test]
    fn a_removed_member_is_foreign() {
        let mut played = Played::raid5(4);
        played.fail(3);
        played.superblock.members.truncate(3);
        played.superblock.placement[3].member = None;
        played.write(&[0, 1, 2]);
        let choice = played.choose(&[3, 2, 1, 0]).unwrap();
        assert_eq!(choice.foreign, [Member(3)]);
        assert_eq!(choice.opened, [Some(3), Some(2), Some(1)]);
    }

    /// A copy that lies on a device whose table does not know it was copied there by something else.
    #[test]
    fn a_copy_that_does_not_know_its_bearer_counts_for_nothing() {
        let mut played = Played::raid5(3);
        for copy in played.copies[1].iter_mut().flatten().flatten() {
            copy.member = uuid(77);
        }
        let choice = played.choose(&[0, 1, 2]).unwrap();
        assert_eq!((choice.foreign, choice.missing), (vec![Member(1)], vec![1]));
    }

    #[test]
    fn two_halves_started_alone_are_refused_together() {
        let together = Played::new(Level::Raid1, 2);
        let (mut left, mut right) = (together.clone(), together);
        left.fail(1);
        left.write(&[0]);
        right.superblock.forced = 2;
        right.fail(0);
        right.write(&[1]);
        right.write(&[1]);
        let mut both = left.clone();
        both.copies[1] = right.copies[1].clone();
        let refused = CommandError::Split(Member(1), Member(0));
        assert_eq!(both.choose(&[0, 1]), Err(refused.clone()));
        assert_eq!(choose(&both.candidates(&[0, 1]), ALONE), Err(refused));
        let alone = both.choose(&[0]);
        assert!(alone.is_ok(), "either side alone is its own array");
        assert!(both.choose(&[1]).is_ok());
    }

    /// Two of three mirrors went on without the third, and the third alone without them, counting further: one more
    /// failure is one more generation.
    #[test]
    fn a_loner_that_counted_further_does_not_win() {
        let together = Played::new(Level::Raid1, 3);
        let (mut many, mut loner) = (together.clone(), together);
        many.fail(2);
        many.write(&[0, 1]);
        loner.superblock.forced = 2;
        loner.fail(0);
        loner.fail(1);
        loner.write(&[2]);
        let mut all = many.clone();
        all.copies[2] = loner.copies[2].clone();
        let split = |one, other| Err(CommandError::Split(Member(one), Member(other)));
        for (here, named) in [(vec![0, 1, 2], 0), (vec![1, 2], 1), (vec![2, 0], 0)] {
            assert_eq!(all.choose(&here), split(2, named));
        }
        let missing = all.choose(&[0, 1]).unwrap().missing;
        assert_eq!(missing, [2], "leaving one side out decides");

        // Even if the loner has forgotten the others.
        let mut alone = loner.clone();
        alone.superblock.members[0].uuid = uuid(40);
        alone.superblock.members[1].uuid = uuid(41);
        alone.write(&[2]);
        let mut all = many.clone();
        all.copies[2] = alone.copies[2].clone();
        assert_eq!(all.choose(&[1, 2]), split(2, 1));

        // The other way round: the many counted further.
        let mut all = Played {
            copies: all.copies,
            ..many
        };
        for _ in 0..3 {
            all.fail(1);
            all.activate(1);
        }
        all.write(&[0, 1]);
        assert_eq!(all.choose(&[0, 1, 2]), split(1, 2));
    }

    /// A crash caught the news of a failure when it had reached one member only. That member missed the next start, and
    /// the others went on without ever hearing of it.
    #[test]
    fn news_that_nobody_else_heard_is_void() {
        let together = Played::new(Level::Raid1, 3);
        for (wrote, later) in [(1, 1), (1, 5)] {
            let (mut lonely, mut others) = (together.clone(), together.clone());
            lonely.fail(2);
            (0..wrote).for_each(|_| lonely.write(&[0]));
            others.fail(0);
            (0..later).for_each(|_| others.write(&[1, 2]));
            others.copies[0] = lonely.copies[0].clone();
            let choice = others.choose(&[0, 1, 2]).unwrap();
            assert_eq!(choice.stale, [Member(0)]);
            assert_eq!(choice.strayed, [Member(0)]);
            assert_eq!(choice.superblock.members[2].role, MemberRole::Active);
            // The one that was not to be current any more cannot tell what the second heard.
            let refused = others.choose(&[0, 2]).unwrap_err();
            assert!(matches!(refused, CommandError::Split(..)));
        }
    }

    /// A version is on all who are current before the next: further than one ahead no crash explains.
    #[test]
    fn a_member_that_went_on_is_no_stray() {
        let mut played = Played::raid5(4);
        played.write(&[0, 1, 2, 3]);
        let mut on = played.clone();
        (0..3).for_each(|_| on.write(&[0, 1, 2, 3]));
        played.fail(3);
        played.write(&[0, 1, 2]);
        (0..5).for_each(|_| played.write(&[0, 1, 2]));
        played.copies[3] = on.copies[3].clone();
        let refused = played.choose(&[0, 1, 2, 3]).unwrap_err();
        assert!(matches!(refused, CommandError::Split(_, Member(3))));
    }

    /// What it lacks is not what it missed since it left.
    #[test]
    fn an_old_copy_of_a_failed_member_is_rebuilt_in_full() {
        let mut played = Played::raid5(4);
        played.write(&[0, 1, 2, 3]);
        let old = played.copies[3].clone();
        (0..2).for_each(|_| played.write(&[0, 1, 2, 3]));
        played.superblock.fail(3, true);
        played.write(&[0, 1, 2]);
        assert!(played.choose(&[0, 1, 2, 3]).unwrap().strayed.is_empty());
        played.copies[3] = old;
        assert_eq!(played.choose(&[0, 1, 2, 3]).unwrap().strayed, [Member(3)]);
    }

    /// Members fail, return and are left behind at random in one history: it never looks like two.
    #[test]
    fn one_history_is_never_called_two() {
        let mut random = Random::new(1);
        for _ in 0..300 {
            let mut played = Played::new(Level::Raid1, 5);
            let writes = random.below(30);
            for write in 0..writes {
                let member = random.below(5) as u16;
                let role = played.superblock.members[usize::from(member)].role;
                let (current, last) = (played.active(), write + 1 == writes);
                match role {
                    MemberRole::Active if current.len() > 1 => played.fail(member),
                    MemberRole::Active => {}
                    // Whoever becomes current has had the versions of the time when it was filled.
                    _ if last => {}
                    _ => played.activate(member),
                }
                // A crash may let only some have the news, and the next start tells the others first.
                let now = played.active();
                let heard = |_: &u16| !last || random.below(8) != 0;
                let reached: Vec<u16> = now.iter().copied().filter(heard).collect();
                played.write(if reached.is_empty() { &now } else { &reached });
            }
            let here: Vec<u16> = (0..5).filter(|_| random.below(4) != 0).collect();
            match choose(&played.candidates(&here), ALONE) {
                Ok(_) | Err(CommandError::NoArray | CommandError::Minority { .. }) => {}
                Err(other) => panic!("{other:?}"),
            }
            assert!(choose(&played.candidates(&[0, 1, 2, 3, 4]), MODE).is_ok());
        }
    }

    #[test]
    fn a_member_taken_back_in_is_no_split() {
        let mut played = Played::raid5(4);
        played.fail(2);
        played.write(&[0, 1, 3]);
        played.superblock.members[2].role = MemberRole::Rebuilding;
        played.write(&[0, 1, 2, 3]);
        let choice = played.choose(&[0, 1, 2, 3]).unwrap();
        assert!(choice.stale.is_empty());
        played.activate(2);
        // The crash comes when only the newcomer knows that it is current.
        played.write(&[2]);
        let choice = played.choose(&[0, 1, 2, 3]).unwrap();
        assert_eq!(choice.superblock.members[2].role, MemberRole::Active);
        assert!(choice.stale.is_empty() && choice.missing.is_empty());
    }

    /// The copy B of this superblock, at this place.
    fn b_at(superblock: &Superblock, place: u64) -> Option<Result<Superblock, MetaError>> {
        let mut copy = superblock.clone();
        let mut regions = copy.regions.iter_mut();
        let region = regions.find(|region| region.kind == RegionKind::SuperB);
        region.unwrap().start = place;
        Some(Ok(copy))
    }

    #[test]
    fn copy_b_is_where_copy_a_says_or_else_the_first_that_knows_its_place() {
        let a = Played::raid5(3).superblock;
        assert_eq!(place_of_b(&a), Some(480));
        let broken = || Some(Err(MetaError::NotFound));
        let mut newer = a.clone();
        newer.generation = 99;
        let planted = || b_at(&newer, 992);
        let misplaced = || b_at(&a, 480);
        let found = [broken(), b_at(&a, 480), planted(), misplaced(), None, None];
        let sound = copies_of(Some(Ok(a.clone())), found.clone());
        assert_eq!(sound[1], found[1]);
        assert_eq!(copies_of(broken(), found.clone())[1], found[1]);
        assert_eq!(copies_of(None, found.clone()), [None, found[1].clone()]);
        let lost = [broken(), broken(), planted(), misplaced(), None, None];
        let [_, b] = copies_of(Some(Ok(a.clone())), lost);
        assert_eq!(b, broken(), "never another place");
        assert_eq!(copies_of(broken(), [const { None }; 6])[1], None);
    }

    #[test]
    fn a_superblock_that_a_user_wrote_into_set_data_counts_for_nothing() {
        let played = Played::raid5(3);
        let mut candidates = played.candidates(&[0, 1, 2]);
        let mut planted = played.superblock.clone();
        (planted.generation, planted.member) = (99, uuid(1));
        candidates[1].copies = [Some(Err(MetaError::NotFound)), b_at(&planted, 992)];
        let choice = choose(&candidates, MODE).unwrap();
        assert_eq!(choice.superblock.generation, 1);
        assert_eq!(choice.foreign, [Member(1)]);
    }

    #[test]
    fn a_device_used_anew_speaks_for_its_younger_array() {
        let mut played = Played::raid5(3);
        let mut old = played.superblock.clone();
        (old.array, old.sequence, old.member) = (uuid(500), 9001, uuid(1));
        for copy in played.copies.iter_mut().flatten().flatten().flatten() {
            copy.created = 100;
        }
        played.copies[1][1] = Some(Ok(old));
        assert!(played.choose(&[0, 1, 2]).is_ok());
    }
}
