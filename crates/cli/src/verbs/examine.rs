//! `examine`: what is written on members, read without touching them.

use crate::args::config::members_from;
use crate::arrays::member::{Copies, content, open_failure};
use crate::failure::{Failure, Outcome};
use crate::print::skew::skew_words;
use crate::print::status::scrub_lines;
use crate::print::terminal::{out, outln, say_failure};
use crate::units::Size;
use clap::Args;
use restripe_array::meta::{
    BufferMark, Lease, MemberEntry, MemberRole, MetaError, Parcel, Partner, PartnerRole,
    RegionKind, Superblock,
};
use restripe_array::{SECTOR_BYTES, shown};
use restripe_io::control::LastScrubView;
use restripe_io::member::is_in_use;
use restripe_io::plain::Plain;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(
    after_help = "A member in use is read as well, without disturbing its daemon, and is shown as in use.

--export prints the udev properties (ID_FS_TYPE=restripe_member and others) and nothing else; the udev rule
that `make install` installs runs it."
)]
pub(crate) struct Examine {
    /// The members to examine
    #[arg(value_name = "MEMBER", required_unless_present = "config")]
    pub members: Vec<String>,
    /// Read the members from this file
    #[arg(long, value_name = "FILE", conflicts_with = "members")]
    pub config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print one member's identity as KEY=VALUE lines for udev; exit with 1 if it is not a member
    #[arg(long, conflicts_with_all = ["json", "config"])]
    pub export: bool,
}

/// Readings of superblocks that are being written, and the time between two.
const ATTEMPTS: u32 = 3;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);
/// Of the format of superblocks (docs/reference/format.md).
const FORMAT_VERSION: u32 = 1;

pub(crate) fn run(verb: Examine) -> Outcome {
    if verb.export {
        return export(&verb.members);
    }
    let names = members_from(verb.members, verb.config.as_deref())?;
    let mut failed = None;
    let mut values = Vec::new();
    for name in &names {
        match look(name) {
            Ok(found) if verb.json => values.push(value(name, &found)),
            Ok(found) => out!("{}", text(name, &found)),
            Err(failure) => {
                say_failure(&failure);
                failed = Some(name);
            }
        }
    }
    if verb.json {
        outln!("{}", Value::Array(values));
    }
    match failed {
        None => Ok(()),
        Some(name) => Err(Failure::new("not every member could be examined").at(name)),
    }
}

/// What udev takes as properties of a device (`IMPORT{program}`).
fn export(names: &[String]) -> Outcome {
    let [name] = names else {
        return Err(Failure::usage("--export is of one member"));
    };
    let member = Plain::look(name).map_err(open_failure)?;
    let copies = read_copies(&member)?;
    let superblock = copies
        .newest()
        .ok_or_else(|| Failure::new("no Restripe superblock").at(name))?;
    for (key, value) in properties(superblock) {
        outln!("{key}={value}");
    }
    Ok(())
}

/// The names are those of blkid, as udev's own rules use them.
fn properties(superblock: &Superblock) -> Vec<(&'static str, String)> {
    let (array, member) = (superblock.array.to_string(), superblock.member.to_string());
    vec![
        ("ID_FS_TYPE", "restripe_member".into()),
        ("ID_FS_USAGE", "raid".into()),
        ("ID_FS_VERSION", FORMAT_VERSION.to_string()),
        ("ID_FS_UUID", array.clone()),
        ("ID_FS_UUID_ENC", array),
        ("ID_FS_UUID_SUB", member.clone()),
        ("ID_FS_UUID_SUB_ENC", member),
        ("ID_FS_LABEL", safe(&superblock.name)),
        ("ID_FS_LABEL_ENC", encoded(&superblock.name)),
    ]
}

/// What udev lets into the name of a link. Anybody can write a superblock, and a name in it.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "#+-.:=@_".contains(c)
}

fn safe(name: &str) -> String {
    name.chars()
        .map(|c| if is_plain(c) { c } else { '_' })
        .collect()
}

/// All else as `\\x20`, byte by byte.
fn encoded(name: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes() {
        match is_plain(char::from(byte)) {
            true => out.push(char::from(byte)),
            // Writing to a string cannot fail.
            false => drop(write!(out, "\\x{byte:02x}")),
        }
    }
    out
}

struct Found {
    in_use: bool,
    bytes: u64,
    copies: Copies,
    /// What else is there, where there is no array.
    other: Option<String>,
}

fn look(name: &str) -> Outcome<Found> {
    let in_use = is_in_use(name);
    let member = Plain::look(name).map_err(open_failure)?;
    let copies = read_copies(&member)?;
    let other = if copies.newest().is_some() {
        None
    } else {
        content(&member)?
    };
    Ok(Found {
        in_use,
        bytes: member.bytes(),
        copies,
        other,
    })
}

/// Superblocks as they are between two writes of them: a daemon may be writing one just now.
fn read_copies(member: &Plain) -> Outcome<Copies> {
    for _ in 0..ATTEMPTS {
        let copies = Copies::read(member)?;
        if copies.found.iter().all(|(_, copy)| copy.is_ok()) {
            return Ok(copies);
        }
        thread::sleep(BETWEEN_ATTEMPTS);
    }
    Copies::read(member)
}

fn text(name: &str, found: &Found) -> String {
    let mut out = String::new();
    let name = shown(name);
    // Writing to a string cannot fail, here and below.
    let _ = match found.bytes {
        0 => writeln!(out, "{name}: smaller than a sector"),
        bytes => writeln!(out, "{name}: {}", Size(bytes)),
    };
    if found.in_use {
        out.push_str("  in use (by a daemon, or mounted): these values may have changed since\n");
    }
    for (at, copy) in &found.copies.found {
        let _ = writeln!(out, "  superblock at sector {at}: {}", copy_words(copy));
    }
    if let [_] = found.copies.found[..]
        && found.copies.newest().is_some()
    {
        out.push_str("  the other copy of the superblock is damaged: the next start that may write rewrites it\n");
    }
    match (found.copies.newest(), &found.other) {
        (Some(superblock), _) => describe(&mut out, superblock),
        (None, Some(other)) => {
            let _ = writeln!(out, "  no Restripe superblock; contains {}", shown(other));
        }
        (None, None) => out.push_str("  no Restripe superblock, and no other known format\n"),
    }
    out
}

fn copy_words(copy: &Result<Superblock, MetaError>) -> String {
    match copy {
        Ok(superblock) => format!(
            "sound, generation {}, sequence {}",
            superblock.generation, superblock.sequence
        ),
        Err(error) => format!("damaged: {error}"),
    }
}

fn describe(out: &mut String, superblock: &Superblock) {
    let geometry = &superblock.geometry;
    let _ = writeln!(
        out,
        "  array {:?}, uuid {}",
        superblock.name, superblock.array
    );
    let _ = writeln!(
        out,
        "  {}, {} slots, {}chunk {}, {} of each member, logical block {}",
        geometry,
        geometry.slots,
        skew_words(geometry.slots, geometry.skew),
        Size(u64::from(geometry.chunk_sectors) * SECTOR_BYTES),
        Size(geometry.slot_sectors * SECTOR_BYTES),
        superblock.logical_block
    );
    let shut = if superblock.clean {
        "clean"
    } else {
        "not stopped cleanly"
    };
    let _ = writeln!(
        out,
        "  {shut}, write hole closed by {}",
        write_hole(superblock)
    );
    if let Some(data) = superblock.region(RegionKind::Data) {
        let _ = writeln!(out, "  data from sector {}", data.start);
    }
    if let Some(partner) = &superblock.partner {
        let _ = writeln!(out, "  {}", partner_words(partner));
        match superblock.buffer {
            BufferMark::None => {}
            BufferMark::Idle => {
                out.push_str("  it has an NVRAM buffer, which holds no data that the log lacks\n")
            }
            BufferMark::Counts => {
                out.push_str("  it has an NVRAM buffer, which may hold flushed data\n")
            }
        }
    }
    for parcel in &superblock.lent {
        let _ = writeln!(out, "  {}", parcel_words(parcel));
    }
    let _ = writeln!(out, "  this is member {}", superblock.member);
    for entry in &superblock.members {
        let _ = writeln!(
            out,
            "    {} {}{}",
            entry.uuid,
            role(superblock, entry),
            placed(superblock, entry)
        );
    }
    for task in &superblock.tasks {
        let rows: u64 = task.done.iter().map(|(_, rows)| rows).sum();
        let paused = if task.paused { ", paused" } else { "" };
        let _ = writeln!(out, "  {:?} with {rows} rows done{paused}", task.kind);
    }
    if let Some(last) = &superblock.tail.last_scrub {
        out.push_str(&scrub_lines(&LastScrubView::new(last, |_| None)));
    }
}

fn partner_words(partner: &Partner) -> String {
    let Partner { array, epoch, .. } = partner;
    match partner.role {
        PartnerRole::Main => format!("its surrogate is array {array}, epoch {epoch}"),
        PartnerRole::Surrogate => format!("it is the surrogate of array {array}, epoch {epoch}"),
        PartnerRole::Buffer => format!("it is the NVRAM buffer of the code cache of array {array}"),
    }
}

fn parcel_words(parcel: &Parcel) -> String {
    let bytes = Size(parcel.sectors * SECTOR_BYTES);
    match parcel.lease {
        None => format!("{bytes} free for leases"),
        Some(Lease { name, borrower }) => {
            let by = borrower.map_or("none".into(), |array| format!("array {array}"));
            format!("{bytes} lent as {name}, borrower: {by}")
        }
    }
}

fn write_hole(superblock: &Superblock) -> String {
    format!("{:?}", superblock.write_hole).to_lowercase()
}

fn role(superblock: &Superblock, entry: &MemberEntry) -> String {
    match entry.role {
        MemberRole::Active => "active".into(),
        MemberRole::Rebuilding => "rebuilding".into(),
        MemberRole::Spare => "spare".into(),
        MemberRole::Failed { stale_since, .. } if superblock.was_replaced(entry) => {
            format!("replaced, stale since generation {stale_since}")
        }
        MemberRole::Failed { stale_since, .. } => {
            format!("failed, stale since generation {stale_since}")
        }
    }
}

fn placed(superblock: &Superblock, entry: &MemberEntry) -> String {
    let slot = own_slot(superblock, entry).map(|slot| format!(", slot {slot}"));
    let hosts = hosted(superblock, entry);
    let hosts = hosts
        .iter()
        .map(|(slot, partition)| format!(", hosts {slot}/{partition}"));
    slot.into_iter().chain(hosts).collect()
}

/// The slot whose data lie, or are to lie, in a member's set data.
fn own_slot(superblock: &Superblock, entry: &MemberEntry) -> Option<u16> {
    let own = Some((superblock.index_of(entry.uuid)?, 0));
    let mut lines = superblock.placement.iter();
    let line = lines.find(|line| {
        let incoming = line.incoming.map(|entry| (entry, line.incoming_region));
        line.member.map(|entry| (entry, line.region)) == own || incoming == own
    });
    line.map(|line| line.slot)
}

/// The slots and partitions that lie, or are to lie, in a member's spare partitions.
fn hosted(superblock: &Superblock, entry: &MemberEntry) -> Vec<(u16, u16)> {
    let Some(index) = superblock.index_of(entry.uuid) else {
        return Vec::new();
    };
    let lines = superblock.placement.iter();
    let there = lines.filter(|line| {
        let serves = line.member == Some(index) && line.region > 0;
        serves || (line.incoming == Some(index) && line.incoming_region > 0)
    });
    there.map(|line| (line.slot, line.partition)).collect()
}

fn value(name: &str, found: &Found) -> Value {
    let copies: Vec<Value> = found
        .copies
        .found
        .iter()
        .map(|(at, copy)| copy_value(*at, copy))
        .collect();
    json!({
        "member": name,
        "in_use": found.in_use,
        "bytes": found.bytes,
        "superblocks": copies,
        "array": found.copies.newest().map(array_value),
        "carries": found.other,
    })
}

fn copy_value(at: u64, copy: &Result<Superblock, MetaError>) -> Value {
    match copy {
        Ok(superblock) => {
            json!({"sector": at, "sound": true, "generation": superblock.generation, "sequence": superblock.sequence})
        }
        Err(error) => json!({"sector": at, "sound": false, "why": error.to_string()}),
    }
}

fn array_value(superblock: &Superblock) -> Value {
    let members: Vec<Value> = superblock
        .members
        .iter()
        .map(|entry| member_value(superblock, entry))
        .collect();
    json!({
        "name": superblock.name,
        "uuid": superblock.array.to_string(),
        "member_uuid": superblock.member.to_string(),
        "level": superblock.geometry.to_string(),
        "slots": superblock.geometry.slots,
        "groups": superblock.geometry.skew.map(|skew| skew.groups),
        "partitions": superblock.geometry.skew.map(|skew| skew.partitions),
        "chunk_bytes": u64::from(superblock.geometry.chunk_sectors) * SECTOR_BYTES,
        "slot_bytes": superblock.geometry.slot_sectors * SECTOR_BYTES,
        "logical_block_bytes": superblock.logical_block,
        "generation": superblock.generation,
        "clean": superblock.clean,
        "write_hole": write_hole(superblock),
        "data_sector": superblock.region(RegionKind::Data).map(|region| region.start),
        "partner": superblock.partner.as_ref().map(partner_value),
        "buffer": buffer_word(superblock),
        "lent": superblock.lent.iter().map(parcel_value).collect::<Vec<Value>>(),
        "last_scrub": superblock.tail.last_scrub.as_ref().map(|last| LastScrubView::new(last, |_| None)),
        "members": members,
    })
}

/// What a code cache has on record of its buffer; `null` if it has none.
fn buffer_word(superblock: &Superblock) -> Option<&'static str> {
    match superblock.buffer {
        BufferMark::None => None,
        BufferMark::Idle => Some("idle"),
        BufferMark::Counts => Some("needed"),
    }
}

fn partner_value(partner: &Partner) -> Value {
    let role = match partner.role {
        PartnerRole::Main => "main",
        PartnerRole::Surrogate => "surrogate",
        PartnerRole::Buffer => "buffer",
    };
    json!({"role": role, "array": partner.array.to_string(), "epoch": partner.epoch})
}

fn parcel_value(parcel: &Parcel) -> Value {
    let lease = parcel.lease;
    json!({
        "start_bytes": parcel.start * SECTOR_BYTES,
        "bytes": parcel.sectors * SECTOR_BYTES,
        "lease": lease.map(|lease| lease.name.to_string()),
        "borrower": lease.and_then(|lease| lease.borrower).map(|array| array.to_string()),
    })
}

fn member_value(superblock: &Superblock, entry: &MemberEntry) -> Value {
    let state = match entry.role {
        MemberRole::Active => "active",
        MemberRole::Rebuilding => "rebuilding",
        MemberRole::Spare => "spare",
        MemberRole::Failed { .. } if superblock.was_replaced(entry) => "replaced",
        MemberRole::Failed { .. } => "failed",
    };
    json!({
        "uuid": entry.uuid.to_string(),
        "state": state,
        "slot": own_slot(superblock, entry),
        "read_errors": entry.read_errors,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_array::layout::Level;
    use restripe_array::meta::{CreateOptions, create};
    use restripe_array::{MemberInfo, Uuid};

    fn with_partner(role: PartnerRole) -> Superblock {
        let mut options = CreateOptions::new("pair", Uuid([1; 16]), Level::Raid1, 8);
        let info = MemberInfo {
            sectors: 4096,
            logical_block: 512,
            trim_zeroes: true,
            fast_zero: true,
            volatile: false,
        };
        options.members = vec![info; 2];
        options.uuids = vec![Uuid([2; 16]), Uuid([3; 16])];
        options.partner = Some(Partner {
            role,
            array: Uuid([4; 16]),
            epoch: 5,
            session: 0,
        });
        create(&options).expect("sound options").superblock
    }

    #[test]
    fn a_name_of_a_stranger_cannot_become_a_property() {
        for (name, label, escaped) in [
            ("tank", "tank", "tank"),
            (
                "a b\nID_FS_TYPE=ext4",
                "a_b_ID_FS_TYPE=ext4",
                "a\\x20b\\x0aID_FS_TYPE=ext4",
            ),
            (
                "../\\\"'$`;",
                ".._______",
                "..\\x2f\\x5c\\x22\\x27\\x24\\x60\\x3b",
            ),
            ("\u{e4}\u{1b}", "__", "\\xc3\\xa4\\x1b"),
        ] {
            assert_eq!((safe(name), encoded(name)), (label.into(), escaped.into()));
        }
    }

    #[test]
    fn a_partner_is_told_by_both_sides() {
        let other = Uuid([4; 16]);
        use PartnerRole::{Main, Surrogate};
        for (role, words, name) in [
            (Main, "its surrogate is", "main"),
            (Surrogate, "it is the surrogate of", "surrogate"),
        ] {
            let superblock = with_partner(role);
            let mut told = String::new();
            describe(&mut told, &superblock);
            let line = format!("  {words} array {other}, epoch 5\n");
            assert!(told.contains(&line), "{told}");
            let expected = json!({"role": name, "array": other.to_string(), "epoch": 5});
            assert_eq!(array_value(&superblock)["partner"], expected);
        }
    }
}
