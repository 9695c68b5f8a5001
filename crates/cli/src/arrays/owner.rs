//! The run of this daemon, as superblocks record it, and what this host knows of the run that they record.
//!
//! A start that finds the record of another run waits until that run shows no life ([`restripe_array`]'s `owner.rs`). On
//! the host of that run there is no need to wait: its process is there, or it has ended.

use crate::arrays::member::{random_uuid, readable_copies};
use crate::failure::{Failure, Outcome};
use restripe_array::meta::{ArrayOwner, Superblock, newest_of};
use restripe_array::{ENDED_MAX, StartMode, Uuid};
use restripe_io::member::OpenMember;
use restripe_io::plain::Plain;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often the record is renewed where no lock guards the members.
const INTERVAL_MS: u32 = 4000;
/// A killed process is there for a moment yet.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// What is known of a run.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Ended,
    /// It was killed, and is there for a moment yet.
    Dying,
    Lives,
    /// It is, or was, on another host or in another container.
    Unknown,
}

/// The start of an array over these members by this run.
pub(crate) fn mode(
    start: StartMode,
    name: &str,
    found: &[ArrayOwner],
    members: &[OpenMember],
) -> Outcome<StartMode> {
    let unlocked = members.iter().any(OpenMember::is_unlocked);
    let owner = match start.read_only {
        true => None,
        false => Some(this_run(if unlocked { INTERVAL_MS } else { 0 })?),
    };
    // Locks guard members that both runs lock: a copy of a served array's images may be started.
    let counts = |found: &&ArrayOwner| unlocked || found.interval_ms > 0;
    let mut ended = [None; ENDED_MAX];
    for (place, found) in ended.iter_mut().zip(found.iter().filter(counts)) {
        if !start.force_owner {
            *place = end_of(name, found)?;
        } else if found.interval_ms == 0 && matches!(fate(found), Fate::Lives) {
            return Err(lives(name, found).hint(HOLDS_LOCKS));
        }
    }
    Ok(StartMode {
        owner,
        ended,
        ..start
    })
}

/// The same run over more members.
pub(crate) fn guarding(owner: ArrayOwner, more: &[OpenMember]) -> ArrayOwner {
    match more.iter().any(OpenMember::is_unlocked) {
        true => ArrayOwner {
            interval_ms: INTERVAL_MS,
            ..owner
        },
        false => owner,
    }
}

/// The run, if it has ended.
fn end_of(name: &str, found: &ArrayOwner) -> Outcome<Option<Uuid>> {
    let begun = Instant::now();
    loop {
        match fate(found) {
            Fate::Ended => return Ok(Some(found.run)),
            Fate::Unknown => return Ok(None),
            Fate::Dying if begun.elapsed() < PATIENCE => sleep(PAUSE),
            Fate::Dying | Fate::Lives => {
                let renews = found.interval_ms > 0;
                return Err(lives(name, found).hint(if renews { HINT } else { HOLDS_LOCKS }));
            }
        }
    }
}

fn lives(name: &str, found: &ArrayOwner) -> Failure {
    let process = found.process;
    Failure::new(format!(
        "the array {name:?} is served by the process {process} of this host"
    ))
}

/// The way out where a run that locks its members has an array: it never looks at superblocks.
const HOLDS_LOCKS: &str = "stop that daemon: it guards its members by locks, and --force-owner would not make it stop writing";

/// The way out where another run may have an array, and locks its members.
pub(crate) const HINT_SILENT: &str = "stop that daemon. When it has certainly ended, take the array over with --force-owner (serve or assemble): a daemon that locks its members does not notice the takeover and would continue to write";

/// The way out where another run has an array.
pub(crate) const HINT: &str = "stop that daemon. If it has ended or hangs permanently, take the array over with --force-owner (serve or assemble): that daemon then stops writing";

/// Refuses devices to which a living daemon may write, whatever else was asked for.
pub(crate) fn refuse_served<'a>(devices: impl Iterator<Item = &'a Plain>) -> Outcome {
    let mut unknown = Vec::new();
    for device in devices {
        let Some((record, owner)) = owned(device) else {
            continue;
        };
        // A lock keeps away all but daemons that know the device as an export.
        if device.is_guarded() && owner.interval_ms == 0 {
            continue;
        }
        match fate(&owner) {
            Fate::Ended | Fate::Dying => {}
            Fate::Lives => {
                let by = format!("the process {} of this host serves", owner.process);
                return Err(served(device, &record, &by));
            }
            Fate::Unknown => unknown.push((device, record)),
        }
    }
    // Without a renewal nothing tells who has it.
    let renewed = |(_, record): &(&Plain, Superblock)| {
        record.tail.owner.is_some_and(|owner| owner.interval_ms > 0)
    };
    unknown.retain(renewed);
    watch(&unknown)
}

/// Whether this very process recorded itself there.
pub(crate) fn is_of_this_process(device: &Plain) -> bool {
    let own = |owner: &ArrayOwner| {
        owner.process == std::process::id() && matches!(fate(owner), Fate::Lives)
    };
    owned(device).is_some_and(|(_, owner)| own(&owner))
}

/// The newest superblock of a device that can be read, and the owner that it records.
fn owned(device: &Plain) -> Option<(Superblock, ArrayOwner)> {
    let copies = readable_copies(device).ok()?;
    let record = newest_of(copies.iter().flatten())?;
    Some((record.clone(), record.tail.owner?))
}

/// Waits until the records would have been renewed, and refuses what was.
fn watch(silent: &[(&Plain, Superblock)]) -> Outcome {
    let begun = Instant::now();
    let patience = 2 * Duration::from_millis(INTERVAL_MS.into());
    while !silent.is_empty() && begun.elapsed() < patience {
        sleep(Duration::from_millis(500));
        for (device, before) in silent {
            if owned(device).is_some_and(|(now, _)| now.sequence != before.sequence) {
                return Err(served(device, before, "a daemon elsewhere serves"));
            }
        }
    }
    Ok(())
}

fn served(device: &Plain, record: &Superblock, by: &str) -> Failure {
    let what = format!(
        "this device is in use: it is a member of the array {:?}, which {by}",
        record.name
    );
    Failure::new(what)
        .at(device.name())
        .hint("choose another device, or stop that array first; if the device was removed from that array, wipe it first")
}

fn this_run(interval_ms: u32) -> Outcome<ArrayOwner> {
    let process = std::process::id();
    Ok(ArrayOwner {
        run: random_uuid()?,
        host: boot_id(),
        started: started(process).map_or(0, |(started, _)| started),
        process,
        namespace: namespace(),
        interval_ms,
    })
}

fn fate(found: &ArrayOwner) -> Fate {
    let here = found.host != Uuid::NIL && found.host == boot_id();
    if !here || found.namespace != namespace() {
        return Fate::Unknown;
    }
    match started(found.process) {
        Some((started, true)) if started == found.started => match is_killed(found.process) {
            true => Fate::Dying,
            false => Fate::Lives,
        },
        _ => Fate::Ended,
    }
}

/// Whether SIGKILL is on its way to a process.
fn is_killed(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let pending = |line: &str| {
        let (name, mask) = line.split_once(':')?;
        let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
        matches!(name, "SigPnd" | "ShdPnd").then_some(mask & (1 << (libc::SIGKILL - 1)) != 0)
    };
    status.is_empty() || status.lines().filter_map(pending).any(|killed| killed)
}

/// The kernel's id of this boot; nil where it cannot be read.
fn boot_id() -> Uuid {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let id = u128::from_str_radix(&digits, 16).unwrap_or(0);
    Uuid(id.to_be_bytes())
}

/// The inode of this process's pid namespace. It has 32 bits.
fn namespace() -> u32 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino() as u32)
}

/// When a process started, in ticks since boot, and whether it still runs.
fn started(process: u32) -> Option<(u64, bool)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let runs = !matches!(*fields.first()?, "Z" | "X");
    Some((fields.get(19)?.parse().ok()?, runs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_run_of_this_host_lives_or_has_ended() {
        let own = this_run(0).expect("random");
        assert_eq!(fate(&own), Fate::Lives);
        let started = own.started + 1;
        assert_eq!(fate(&ArrayOwner { started, ..own }), Fate::Ended);
        let mut child = Command::new("true").spawn().expect("a process");
        child.wait().expect("it ends");
        let process = child.id();
        assert_eq!(fate(&ArrayOwner { process, ..own }), Fate::Ended);
    }

    #[test]
    fn a_run_elsewhere_is_unknown() {
        let own = this_run(0).expect("random");
        let host = Uuid([1; 16]);
        assert_eq!(fate(&ArrayOwner { host, ..own }), Fate::Unknown);
        let namespace = own.namespace ^ 1;
        assert_eq!(fate(&ArrayOwner { namespace, ..own }), Fate::Unknown);
    }
}
