//! Members as the verbs see them that work without an engine: what they carry, which array they belong to.

use crate::arrays::signature::{HEAD_BYTES, TAIL_BYTES, found_in_head, found_in_tail};
use crate::failure::{Failure, Outcome};
use crate::print::terminal::say;
use restripe_array::meta::superblock::{SUPER_A_AT, SUPER_B_PLACES, SUPERBLOCK_BYTES, Superblock};
use restripe_array::meta::{MetaError, Partner, PartnerRole, RegionKind, copies_of, newest_of};
use restripe_array::{SECTOR_BYTES, Uuid};
use restripe_io::member::{MemberSource, OpenError, OpenFailure};
use restripe_io::plain::Plain;
use restripe_io::shell::EXPORT_PREFIX;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{self, PathBuf};

/// Opens a member, with advice if that fails.
pub(crate) fn open(name: &str, read_only: bool) -> Outcome<Plain> {
    Plain::open(name, read_only).map_err(open_failure)
}

/// Links behind each other, as many as the kernel follows.
const LINKS_MAX: usize = 40;

/// What tells a device from others, under whatever names it has.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Identity {
    Block(u64),
    /// File system and inode.
    File(u64, u64),
    /// Of what is not there, and of an export, only the name can be compared.
    Absent(PathBuf),
    Export(String),
}

impl Identity {
    fn of(name: &str) -> Identity {
        match MemberSource::parse(name) {
            Ok(MemberSource::Path(_)) => Identity::of_path(name),
            _ => Identity::Export(name.into()),
        }
    }

    fn of_path(name: &str) -> Identity {
        match fs::metadata(name) {
            Ok(found) if found.file_type().is_block_device() => Identity::Block(found.rdev()),
            Ok(found) => Identity::File(found.dev(), found.ino()),
            Err(_) => Identity::Absent(place_of_absent(name)),
        }
    }
}

/// Where a file would come to lie that is made under this name: links lead there that lead nowhere yet.
fn place_of_absent(name: &str) -> PathBuf {
    let mut path = path::absolute(name).unwrap_or_else(|_| name.into());
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&path) else {
            break;
        };
        path = path.parent().unwrap_or(&path).join(target);
    }
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(file)) => folder.join(file),
        _ => path,
    }
}

/// One file under two names: a link, or a relative path and an absolute one.
pub(crate) fn same_file(one: &str, other: &str) -> bool {
    Identity::of_path(one) == Identity::of_path(other)
}

/// Whether this process has the file of this name open, and not one that had the name before.
pub(crate) fn is_open_here(name: &str) -> bool {
    let wanted = Identity::of_path(name);
    let open = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    open.map(|entry| entry.path())
        .any(|path| Identity::of_path(&path.to_string_lossy()) == wanted)
}

/// Refuses a member that is named twice, under one name or two.
pub(crate) fn check_distinct(names: &[String]) -> Outcome {
    let mut seen: BTreeMap<Identity, &String> = BTreeMap::new();
    for name in names {
        let Some(other) = seen.insert(Identity::of(name), name) else {
            continue;
        };
        if other == name {
            return Err(Failure::usage("a member is named twice").at(name));
        }
        let what = "a member is named twice, by two names";
        return Err(Failure::usage(what).at(format!("{other} and {name}")));
    }
    Ok(())
}

pub(crate) fn open_failure(error: OpenError) -> Failure {
    let hint = match &error.why {
        OpenFailure::InUse => "stop the daemon that serves it, or unmount it",
        OpenFailure::Io(error) if error.kind() == ErrorKind::NotFound => {
            "check the path; `truncate -s SIZE FILE` creates a file for one member, `restripe create --image-size` all files of a new array"
        }
        OpenFailure::Io(error) if error.kind() == ErrorKind::PermissionDenied => {
            "check its permissions"
        }
        _ => "",
    };
    Failure::new(error.to_string()).hint(hint)
}

/// What a member is that can make nothing durable.
pub(crate) const VOLATILE: &str =
    "this member makes no write durable: it supports neither FLUSH nor FUA";
const VOLATILE_HINT: &str = "enable FLUSH or FUA on its server; or pass --volatile-members: clients are then offered neither";

/// Refuses members that make nothing durable, or names them in a warning where they are allowed.
pub(crate) fn refuse_volatile<'a>(names: impl Iterator<Item = &'a str>, allowed: bool) -> Outcome {
    let names: Vec<&str> = names.collect();
    match (names.is_empty(), allowed) {
        (true, _) => {}
        (false, false) => {
            return Err(Failure::new(VOLATILE)
                .at(names.join(", "))
                .hint(VOLATILE_HINT));
        }
        (false, true) => say(format_args!(
            "warning: {}: no write is durable there: clients are offered neither FLUSH nor FUA",
            names.join(", ")
        )),
    }
    Ok(())
}

pub(crate) fn io_failure(member: &Plain, doing: &str) -> impl Fn(io::Error) -> Failure {
    let at = member.name().to_string();
    move |error| Failure::new(format!("{doing} failed: {error}")).at(&at)
}

/// Both copies of a member's superblock, as they lie there.
pub(crate) struct Copies {
    /// (first sector, what is there); nothing there is not listed.
    pub found: Vec<(u64, Result<Superblock, MetaError>)>,
}

impl Copies {
    pub fn read(member: &Plain) -> Outcome<Copies> {
        let mut found = Vec::new();
        for at in std::iter::once(SUPER_A_AT).chain(SUPER_B_PLACES) {
            let there = superblock_at(member, at);
            match there.map_err(io_failure(member, "reading the superblock"))? {
                None | Some(Err(MetaError::NotFound)) => {}
                // Where copy B may lie is a short list of places; only its own table says which one is meant.
                Some(Ok(superblock)) if at != SUPER_A_AT && !lies_at(&superblock, at) => {}
                Some(decoded) => found.push((at, decoded)),
            }
        }
        Ok(Copies { found })
    }

    /// The newest sound copy.
    pub fn newest(&self) -> Option<&Superblock> {
        newest_of(self.found.iter().map(|(_, copy)| copy))
    }
}

/// Both copies of a member's superblock, as the engine reads them. A copy that cannot be read speaks for nobody; a member
/// of which none can be read, because it does not answer or fails, is an error.
pub(crate) fn readable_copies(
    member: &Plain,
) -> io::Result<[Option<Result<Superblock, MetaError>>; 2]> {
    let at = |sector| superblock_at(member, sector);
    let (a, b) = (at(SUPER_A_AT), SUPER_B_PLACES.map(at));
    match a {
        Err(error) if !b.iter().any(|copy| matches!(copy, Ok(Some(_)))) => Err(error),
        a => Ok(copies_of(
            a.ok().flatten(),
            b.map(|copy| copy.ok().flatten()),
        )),
    }
}

/// What lies at a place of a superblock; nothing if the member ends before it.
pub(crate) fn superblock_at(
    member: &Plain,
    sector: u64,
) -> io::Result<Option<Result<Superblock, MetaError>>> {
    if sector * SECTOR_BYTES + SUPERBLOCK_BYTES as u64 > member.bytes() {
        return Ok(None);
    }
    let mut bytes = vec![0; SUPERBLOCK_BYTES];
    member.read(sector, &mut bytes)?;
    Ok(Some(Superblock::decode(&bytes)))
}

fn lies_at(superblock: &Superblock, at: u64) -> bool {
    superblock
        .region(RegionKind::SuperB)
        .is_some_and(|region| region.start == at)
}

/// An array that takes an export which it feeds itself waits for itself, and writes into its own users' bytes.
pub(crate) fn refuse_cycle(name: &str, array: Uuid, member: &str, beneath: &[Uuid]) -> Outcome {
    if !beneath.contains(&array) {
        return Ok(());
    }
    let own = beneath.first() == Some(&array);
    let what = match own {
        true => format!("this is an export of the array {name:?} itself"),
        false => format!(
            "this export depends on the array {name:?} itself: {name:?} is below the array {}, which serves this export",
            beneath[0]
        ),
    };
    Err(Failure::new(what)
        .at(member)
        .hint("an array cannot be its own member: choose a device that does not depend on it"))
}

/// What a member already carries, in words; `None` if nothing known.
pub(crate) fn content(member: &Plain) -> Outcome<Option<String>> {
    if let Some(superblock) = Copies::read(member)?.newest() {
        return Ok(Some(format!(
            "the array {:?} ({})",
            superblock.name, superblock.array
        )));
    }
    let failed = io_failure(member, "reading the existing data");
    let length = |most: usize| usize::try_from(member.bytes()).unwrap_or(most).min(most);
    let mut head = vec![0; length(HEAD_BYTES)];
    member.read(0, &mut head).map_err(&failed)?;
    if let Some(found) = found_in_head(&head) {
        return Ok(Some(found.into()));
    }
    let mut tail = vec![0; length(TAIL_BYTES)];
    let from = member.bytes() / SECTOR_BYTES - tail.len() as u64 / SECTOR_BYTES;
    member.read(from, &mut tail).map_err(&failed)?;
    Ok(found_in_tail(&tail).map(String::from))
}

/// A random identifier (RFC 9562, version 4).
pub(crate) fn random_uuid() -> Outcome<Uuid> {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes));
    read.map_err(|error| Failure::new(format!("no random numbers: {error}")).at("/dev/urandom"))?;
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    Ok(Uuid(bytes))
}

/// The array to which a member belongs: a surrogate's belongs to the array that it stands in for, and so does its buffer's.
pub(crate) fn home_of(superblock: &Superblock) -> Uuid {
    let partner = superblock.partner;
    surrogate_of(partner)
        .or(buffer_of(partner))
        .unwrap_or(superblock.array)
}

/// The array whose surrogate one with this record is.
pub(crate) fn surrogate_of(partner: Option<Partner>) -> Option<Uuid> {
    let partner = partner.filter(|partner| partner.role == PartnerRole::Surrogate);
    partner.map(|partner| partner.array)
}

/// The array whose code cache's buffer one with this record is.
pub(crate) fn buffer_of(partner: Option<Partner>) -> Option<Uuid> {
    let partner = partner.filter(|partner| partner.role == PartnerRole::Buffer);
    partner.map(|partner| partner.array)
}

/// Whether a member is a lease: no array is called so.
pub(crate) fn is_lease(member: &str) -> bool {
    match MemberSource::parse(member) {
        Ok(MemberSource::Nbd(uri)) => uri.export.starts_with(EXPORT_PREFIX),
        _ => false,
    }
}

/// Refuses leases as members of an array: they are room for surrogates. So chains of them have one link.
pub(crate) fn refuse_as_member<'a>(members: impl IntoIterator<Item = &'a String>) -> Outcome {
    match members.into_iter().find(|member| is_lease(member)) {
        Some(lease) => Err(Failure::usage("a lease can be a surrogate, not a member")
            .at(lease)
            .hint("pass it with --surrogate")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_named_twice_is_told_by_both_names() {
        let twice = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            check_distinct(&names)
                .map_err(|failure| failure.to_string())
                .err()
        };
        let both = twice(&["/dev/null", "x.img", "/dev/../dev/null"]).expect("one file");
        assert!(both.contains("/dev/null and /dev/../dev/null"), "{both}");
        assert!(twice(&["x.img", "x.img"]).is_some_and(|said| said.ends_with("at: x.img")));
        assert!(twice(&["nowhere.img", "./nowhere.img"]).is_some());
        let uris = ["nbd://a/x", "nbd://b/x", "/dev/null", "/dev/zero"];
        assert_eq!(twice(&uris), None);
    }

    #[test]
    fn identifiers_are_random_and_of_version_4() {
        let (a, b) = (
            random_uuid().expect("random"),
            random_uuid().expect("random"),
        );
        assert_ne!(a, b);
        assert_eq!((a.0[6] >> 4, a.0[8] >> 6), (4, 2));
    }
}
