//! Which of the members that are here make up the array: the decision at every start, pure.
//!
//! What it rests on: before a write is acknowledged that a member misses, superblocks that no longer call that member
//! current are durable on all the members that still are. So the newest superblock decides, whoever carries it: a member
//! that it calls current is current even if its own copy is older (a crash caught the write of superblocks half way, or
//! tore its newest copy), and a member that it calls failed is stale however good it looks.
//!
//! What could break that is two histories: halves of one array that were each started alone. They betray themselves,
//! since a member that was left out of a generation never carries that generation unless it went its own way.

use super::{MemberRole, MetaError, Region, Superblock};
use crate::contract::{CommandError, MemberInfo, StartMode};
use crate::units::{Member, Uuid};
use alloc::vec::Vec;

/// A device that was opened for a start, and what its two superblock places hold.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub member: Member,
    pub info: MemberInfo,
    /// Copy A and copy B. `None` if it could not be read at all.
    pub copies: [Option<Result<Superblock, MetaError>>; 2],
}

/// The decision. Tables in it run parallel to the chosen superblock's member table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    pub superblock: Superblock,
    /// Which candidate is this member, if it is here.
    pub opened: Vec<Option<usize>>,
    /// The regions of each member that is here, by its own word; else none.
    pub regions: Vec<Vec<Region>>,
    /// Here, and called failed.
    pub stale: Vec<Member>,
    /// Here, and not of this array any more, or without a superblock that can be used.
    pub foreign: Vec<Member>,
    /// Indices of the members that are not here.
    pub missing: Vec<u16>,
}

/// A candidate with the copy that speaks for it.
struct Claim<'a> {
    candidate: usize,
    member: Member,
    superblock: &'a Superblock,
}

/// Decides. Whether what is missing can be done without is not asked here.
pub fn choose(candidates: &[Candidate], mode: StartMode) -> Result<Choice, CommandError> {
    let claims: Vec<Claim> = candidates.iter().enumerate().filter_map(claim).collect();
    check_one_array(&claims)?;
    check_clones(&claims)?;
    let winner = claims.iter().max_by_key(|claim| age(claim.superblock));
    let winner = winner.ok_or(CommandError::NoArray)?;
    check_one_history(&claims, winner)?;
    let choice = gather(candidates, &claims, winner.superblock);
    check_majority(&choice, mode)?;
    Ok(choice)
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
    })
}

/// The newest sound copy that can be meant for this device. Of two arrays' copies (the device was used anew, and the
/// first write tore) the younger array's.
fn newest_copy(candidate: &Candidate) -> Option<&Superblock> {
    let sound = candidate.copies.iter().flatten().flatten();
    let usable = sound.filter(|superblock| usable(superblock, &candidate.info));
    usable.max_by_key(|superblock| (superblock.created, age(superblock)))
}

/// A copy that names its own bearer, on a device that still has all its regions and takes the array's blocks.
fn usable(superblock: &Superblock, info: &MemberInfo) -> bool {
    superblock.index_of(superblock.member).is_some()
        && superblock.logical_block >= info.logical_block
        && superblock
            .regions
            .iter()
            .all(|region| region.end() <= info.sectors)
}

/// All claims are of one array; else the first member of the array with the fewest is named.
fn check_one_array(claims: &[Claim]) -> Result<(), CommandError> {
    let of_array = |array: Uuid| {
        claims
            .iter()
            .filter(|claim| claim.superblock.array == array)
            .count()
    };
    // The last of equals is the odd one out: whoever was named first is meant.
    let fewest = claims
        .iter()
        .rev()
        .min_by_key(|claim| of_array(claim.superblock.array));
    match fewest {
        Some(claim) if of_array(claim.superblock.array) < claims.len() => {
            Err(CommandError::Foreign(claim.member))
        }
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

fn check_one_history(claims: &[Claim], winner: &Claim) -> Result<(), CommandError> {
    match claims
        .iter()
        .find(|claim| diverged(claim.superblock, winner.superblock))
    {
        Some(claim) => Err(CommandError::Split(winner.member, claim.member)),
        None => Ok(()),
    }
}

/// Whether `own` was written in a history that `winner` does not continue.
fn diverged(own: &Superblock, winner: &Superblock) -> bool {
    let other_members = own.generation == winner.generation && current(own) != current(winner);
    other_members || outlived(own, winner)
}

/// The bearer went on as a current member into a generation from which the winner had already left it out.
fn outlived(own: &Superblock, winner: &Superblock) -> bool {
    let Some(MemberRole::Failed { stale_since, .. }) = role_of(winner, own.member) else {
        return false;
    };
    role_of(own, own.member) == Some(MemberRole::Active) && own.generation >= stale_since
}

fn role_of(superblock: &Superblock, member: Uuid) -> Option<MemberRole> {
    let index = superblock.index_of(member)?;
    Some(superblock.members[usize::from(index)].role)
}

/// The current members, in an order that does not depend on the table's.
fn current(superblock: &Superblock) -> Vec<Uuid> {
    let active = superblock
        .members
        .iter()
        .filter(|entry| entry.role == MemberRole::Active);
    let mut uuids: Vec<Uuid> = active.map(|entry| entry.uuid).collect();
    uuids.sort_unstable();
    uuids
}

fn gather(candidates: &[Candidate], claims: &[Claim], winner: &Superblock) -> Choice {
    let mut choice = Choice {
        superblock: winner.clone(),
        opened: Vec::with_capacity(winner.members.len()),
        regions: Vec::with_capacity(winner.members.len()),
        stale: Vec::new(),
        foreign: Vec::new(),
        missing: Vec::new(),
    };
    for (index, entry) in (0..).zip(&winner.members) {
        let claim = claims
            .iter()
            .find(|claim| claim.superblock.member == entry.uuid);
        choice.opened.push(claim.map(|claim| claim.candidate));
        choice
            .regions
            .push(claim.map_or(Vec::new(), |claim| claim.superblock.regions.clone()));
        match claim {
            None => choice.missing.push(index),
            Some(claim) if matches!(entry.role, MemberRole::Failed { .. }) => {
                choice.stale.push(claim.member);
            }
            Some(_) => {}
        }
    }
    let unknown = |(i, _): &(usize, &Candidate)| !choice.opened.contains(&Some(*i));
    choice.foreign = candidates
        .iter()
        .enumerate()
        .filter(unknown)
        .map(|(_, candidate)| candidate.member)
        .collect();
    choice
}

/// More than half of the current members are here, so that the others cannot have gone on without them.
fn check_majority(choice: &Choice, mode: StartMode) -> Result<(), CommandError> {
    let active = |entry: &&super::MemberEntry| entry.role == MemberRole::Active;
    let current = choice.superblock.members.iter().filter(active).count() as u16; // 64 at most
    let here = choice.superblock.members.iter().zip(&choice.opened);
    let present = here
        .filter(|(entry, opened)| active(entry) && opened.is_some())
        .count() as u16;
    if present * 2 > current || (mode.from_minority && present > 0) {
        return Ok(());
    }
    Err(CommandError::Minority { present, current })
}
