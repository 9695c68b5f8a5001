//! Leases at the desk: lent, taken back, and wiped where superblocks lie, so that nobody finds another's array in one.

use super::{Desk, Said, done, ended};
use crate::units::Size;
use restripe_array::meta::superblock::{SUPER_B_PLACES, SUPERBLOCK_SECTORS};
use restripe_array::report::Parcel;
use restripe_array::{Command, LeaseCommand, LeaseName, SECTOR_BYTES};
use restripe_io::control::{Refusal, Reply, StatusView, is_name};
use restripe_io::shell::{BorrowerIs, LeaseUse};
use std::thread;
use std::time::{Duration, Instant};

/// A lease has room for the places of both copies of a superblock, and for a log behind them.
const BYTES_MIN: u64 = 8 << 20;
/// A daemon that has stopped its array is gone soon after, and its connections with it.
const ENDING: Duration = Duration::from_secs(2);
/// Who borrows a lease is looked up in moments.
const LOOKING_UP: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Where superblocks may lie.
const WIPED_SECTORS: u64 = SUPER_B_PLACES[SUPER_B_PLACES.len() - 1] + SUPERBLOCK_SECTORS;

impl Desk {
    pub(super) fn lend(&self, name: &str, bytes: u64) -> Result<Reply, Refusal> {
        let _one = self.begin_change()?;
        let name = lease_name(name)?;
        if bytes < BYTES_MIN {
            let what = format!("a lease of {} is too small", Size(bytes));
            return Err(Refusal::new(what).hint(format!("at least {}", Size(BYTES_MIN))));
        }
        let sectors = bytes.div_ceil(SECTOR_BYTES);
        self.command(Command::Lease(LeaseCommand::Add { name, sectors }))?;
        let view = self.status()?;
        let lent = view.lends.iter().flat_map(|lends| &lends.leases);
        let lent = lent.into_iter().find(|lease| lease.name == name.as_str());
        let told = lent.map_or(String::new(), |lease| {
            format!(", {}, served as {}", Size(lease.bytes), lease.export)
        });
        Ok(done(&format!("{} lends {name}{told}", view.name)))
    }

    /// Nobody but the desk lends, so nobody else has the space before it is wiped; and when it is told that the lease is
    /// taken back, no request of the borrower's is under way that could write there after it. A crash between leaves an old
    /// superblock there, which the next borrower's `create` asks about.
    pub(super) fn take_back(&self, name: &str, force: bool) -> Result<Reply, Refusal> {
        let _one = self.begin_change()?;
        let name = lease_name(name)?;
        let (status, _) = self.look()?;
        let is_it = |parcel: &&Parcel| parcel.lease.is_some_and(|lease| lease.name == name);
        let parcel = status.lent.iter().find(is_it).copied();
        if !force {
            self.wait_for_look(name)?;
        }
        self.command(Command::Lease(LeaseCommand::Remove { name, force }))?;
        if let Some(parcel) = parcel {
            self.wipe(&parcel)?;
        }
        Ok(done(&format!("{name} is taken back")))
    }

    /// Waits until it is known who borrows a lease, for as long as that may take.
    fn wait_for_look(&self, name: LeaseName) -> Said {
        let looked_up = |one: &LeaseUse| one.name == name && one.borrower == BorrowerIs::LookedUp;
        let begin = Instant::now();
        while begin.elapsed() < LOOKING_UP && self.lease_uses()?.iter().any(looked_up) {
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn wipe(&self, parcel: &Parcel) -> Said {
        let mut client = self.remote.client(self.array);
        let (start, sectors) = (parcel.start, parcel.sectors.min(WIPED_SECTORS));
        let wiped = client.zero(start * SECTOR_BYTES, sectors * SECTOR_BYTES, false);
        wiped.and_then(|()| client.flush()).map_err(|error| {
            Refusal::new(format!("it is taken back, and could not be wiped: {error}")).hint(
                "whoever gets this space next finds what was there: create --force overwrites it",
            )
        })
    }

    /// Refuses while borrowers have their logs here. One that is ending is waited for.
    pub(super) fn no_borrowers(&self) -> Said {
        let begin = Instant::now();
        loop {
            let uses = self.lease_uses()?;
            let attached = uses.iter().filter(|one| one.attached);
            let names: Vec<&str> = attached.map(|one| one.name.as_str()).collect();
            if names.is_empty() {
                return Ok(());
            }
            if begin.elapsed() > ENDING {
                return Err(Refusal::new("borrowers have leases of this array attached")
                    .at(names.join(", "))
                    .hint("stop them first; a signal ends this daemon all the same, and cuts off their logs"));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// What only the reactor knows of leases.
    pub(super) fn tell_leases(&self, view: &mut StatusView) -> Said {
        if let Some(lends) = &mut view.lends {
            lends.note_uses(&self.lease_uses()?);
        }
        Ok(())
    }

    fn lease_uses(&self) -> Result<Vec<LeaseUse>, Refusal> {
        self.remote.lease_uses(self.array).map_err(ended)
    }
}

/// A lease is called as an array may be: its name is part of a URI.
fn lease_name(name: &str) -> Result<LeaseName, Refusal> {
    let wrong = || {
        Refusal::new(format!("{name:?} is not a name for a lease"))
            .hint("up to 32 letters, digits, `-`, `_` and `.`, the first a letter or digit")
    };
    if !is_name(name) {
        return Err(wrong());
    }
    LeaseName::new(name).map_err(|_| wrong())
}
