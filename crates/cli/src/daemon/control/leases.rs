//! Leases: lent and taken back. A lease reads as zeros when it is lent, whatever was there before.
//!
//! Its space is zeroed before the lease is on record, so a crash at any moment lends no old bytes. A lease that is taken
//! back is zeroed as well, so that its borrower's bytes do not stay until somebody borrows the space again.

use crate::daemon::control::array::{Answered, Said, ServedArray, done};
use crate::daemon::control::changes::Changes;
use crate::units::Size;
use restripe_array::layout::Layout;
use restripe_array::meta::leases;
use restripe_array::report::Parcel;
use restripe_array::{Command, LeaseCommand, LeaseName, SECTOR_BYTES};
use restripe_io::control::{Refusal, is_name};
use restripe_io::remote::LocalError;
use restripe_io::shell::{BorrowerIs, LeaseUse};
use restripe_tier::report::Status;
use std::thread;
use std::time::{Duration, Instant};

/// A lease has room for the places of both copies of a superblock, and for a log behind them.
const BYTES_MIN: u64 = 8 << 20;
/// A daemon that has stopped its array is gone soon after, and its connections with it.
const ENDING: Duration = Duration::from_secs(2);
/// Who borrows a lease is looked up in moments.
const LOOKING_UP: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Zeroed at a time, so that users' requests have their turns between.
const WIPED_AT_ONCE: u64 = (1 << 30) / SECTOR_BYTES;

pub(super) fn lend(array: &ServedArray, changes: &Changes, name: &str, bytes: u64) -> Answered {
    let _changing = changes.begin(array)?;
    let name = lease_name(name)?;
    if bytes < BYTES_MIN {
        let what = format!("a lease of {} is too small", Size(bytes));
        return Err(Refusal::new(what).hint(format!("use at least {}", Size(BYTES_MIN))));
    }
    let sectors = bytes.div_ceil(SECTOR_BYTES);
    zero_before_lending(array, name, sectors)?;
    array.command(Command::Lease(LeaseCommand::Add { name, sectors }))?;
    let view = array.status()?;
    let lent = view.lends.iter().flat_map(|lends| &lends.leases);
    let lent = lent.into_iter().find(|lease| lease.name == name.as_str());
    let lease = lent.map_or(String::new(), |lease| {
        format!(", {}, served as {}", Size(lease.bytes), lease.export)
    });
    Ok(done(&format!("{} lends {name}{lease}", view.name)))
}

/// Zeroes the space that the lease will have. A lease that cannot be lent is left for the engine to refuse.
fn zero_before_lending(array: &ServedArray, name: LeaseName, sectors: u64) -> Said {
    let (mut status, _) = array.look()?;
    let row = row_sectors(&status);
    let Some(rounded) = row.and_then(|row| sectors.checked_next_multiple_of(row)) else {
        return Ok(());
    };
    if leases::lend(&mut status.lent, name, rounded).is_err() {
        return Ok(());
    }
    let is_it = |parcel: &&Parcel| parcel.lease.is_some_and(|lease| lease.name == name);
    let parcel = status.lent.iter().find(is_it);
    let wiped = parcel.map_or(Ok(()), |parcel| wipe(array, parcel));
    wiped.map_err(|error| {
        let what = format!("the space for the lease {name} could not be zeroed: {error}");
        Refusal::new(what).hint("no lease was created; check `restripe status`, then retry")
    })
}

/// Only this handler lends, so the space has no other user before it is wiped. When the command has been
/// carried out, no request of the borrower's is under way that could write there later.
pub(super) fn take_back(
    array: &ServedArray,
    changes: &Changes,
    name: &str,
    force: bool,
) -> Answered {
    let _changing = changes.begin(array)?;
    let name = lease_name(name)?;
    let (status, _) = array.look()?;
    let is_it = |parcel: &&Parcel| parcel.lease.is_some_and(|lease| lease.name == name);
    let parcel = status.lent.iter().find(is_it).copied();
    if !force {
        wait_for_look(array, name)?;
    }
    array.command(Command::Lease(LeaseCommand::Remove { name, force }))?;
    if let Some(parcel) = parcel {
        wipe(array, &parcel).map_err(|error| {
            let what = format!("{name} is removed, but could not be wiped: {error}");
            let hint = "its contents remain until the space is lent again; it is zeroed then";
            Refusal::new(what).hint(hint)
        })?;
    }
    Ok(done(&format!("{name} is removed")))
}

/// Waits until it is known who borrows a lease, for as long as that may take.
fn wait_for_look(array: &ServedArray, name: LeaseName) -> Said {
    let looked_up = |one: &LeaseUse| one.name == name && one.borrower == BorrowerIs::LookedUp;
    let begin = Instant::now();
    while begin.elapsed() < LOOKING_UP && array.lease_uses()?.iter().any(looked_up) {
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

fn wipe(array: &ServedArray, parcel: &Parcel) -> Result<(), LocalError> {
    let mut client = array.remote.client(array.number);
    let mut at = parcel.start;
    while at < parcel.end() {
        let sectors = WIPED_AT_ONCE.min(parcel.end() - at);
        client.zero(at * SECTOR_BYTES, sectors * SECTOR_BYTES, false)?;
        at += sectors;
    }
    client.flush()
}

/// Refuses while borrowers have their logs here. One that is ending is waited for.
pub(super) fn no_borrowers(array: &ServedArray) -> Said {
    let begin = Instant::now();
    loop {
        let uses = array.lease_uses()?;
        let attached = uses.iter().filter(|one| one.attached);
        let names: Vec<&str> = attached.map(|one| one.name.as_str()).collect();
        if names.is_empty() {
            return Ok(());
        }
        if begin.elapsed() > ENDING {
            return Err(Refusal::new("leases of this array are in use by other arrays")
                .at(names.join(", "))
                .hint("stop those arrays first; a signal still ends this daemon, and their logs then fail"));
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Leases begin and end with whole rows.
fn row_sectors(status: &Status) -> Option<u64> {
    let layout = Layout::new(status.geometry?).ok()?;
    Some(layout.row_sectors())
}

/// A lease is called as an array may be: its name is part of a URI.
fn lease_name(name: &str) -> Said<LeaseName> {
    let wrong = || {
        Refusal::new(format!("{name:?} is not a name for a lease"))
            .hint("up to 32 letters, digits, `-`, `_` and `.`, the first a letter or digit")
    };
    if !is_name(name) {
        return Err(wrong());
    }
    LeaseName::new(name).map_err(|_| wrong())
}
