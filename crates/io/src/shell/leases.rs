//! Leases as exports: windows onto arrays that lend, each for one borrower at a time.
//!
//! | part of a lease | how it is isolated |
//! |---|---|
//! | its bytes | its window: every request is checked against it in one place, [`Window::place`] |
//! | its turn at the engine | a lane of its own (`host/lanes`) |
//! | its memory | an account of its own (`memory`), separate from the clients' account |
//! | its client | one at a time; the next is accepted when the requests of the last one are done |
//!
//! The borrower's own superblocks, which are in the lease, name the borrower. They are read after a write to
//! them, and when a lease is first seen (`borrowers`); then the array's table is updated. So the table is
//! correct soon after any event, crashes included. While it may be wrong, the lease can be revoked by force
//! only.
//!
//! The table is the engine's. After each command it is compared with the exports.

use super::Shell;
use super::borrowers::{Look, touches_superblocks};
use crate::front::Export;
use crate::host::Host;
use crate::memory::LEASE_BLOCK_MAX;
use restripe_array::report::{Lease, MapExtent, Parcel};
use restripe_array::{
    Command, CommandError, LeaseCommand, LeaseError, LeaseName, RequestError, RequestOp,
    SECTOR_BYTES,
};
use std::sync::mpsc::Sender;

/// What every lease's export begins with, and no array's can: it has a slash.
pub const EXPORT_PREFIX: &str = crate::front::LEASE_PREFIX;
/// Leases have memory as if there were one more: for looks.
const LOOKS: usize = 1;

/// The export of a lease.
pub fn export_name(array: &str, lease: &str) -> String {
    format!("{EXPORT_PREFIX}{array}/{lease}")
}

/// A part of an array, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Window {
    start: u64,
    bytes: u64,
}

impl Window {
    fn of(parcel: &Parcel) -> Window {
        Window {
            start: parcel.start * SECTOR_BYTES,
            bytes: parcel.sectors * SECTOR_BYTES,
        }
    }

    /// Where in the array a range of the lease lies, if it lies within.
    pub(super) fn place(self, offset: u64, bytes: u64) -> Option<u64> {
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes).then_some(self.start + offset)
    }
}

/// A lease, from when it is first seen until nothing knows its index any more, which is its export's: then another lease
/// may have its place.
pub(super) struct Exposed {
    pub(super) host: usize,
    pub(super) name: LeaseName,
    pub(super) window: Window,
    lane: u32,
    /// The connection that has it.
    client: Option<u32>,
    /// It is being taken back: nobody new attaches.
    leaving: bool,
    /// It is a lease no more.
    pub(super) gone: bool,
    pub(super) look: Look,
    /// To be looked at again when this look is done: it has changed meanwhile.
    pub(super) again: bool,
}

/// A lease as only the reactor knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseUse {
    pub name: LeaseName,
    /// A client has it.
    pub attached: bool,
    pub borrower: BorrowerIs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BorrowerIs {
    /// As the array's table has it.
    OnRecord,
    /// Being looked up.
    LookedUp,
    /// It cannot be told: what lies in the lease is damaged, or could not be read, or could not be put on record.
    Unknown,
}

/// Where a connection's request goes.
pub(super) struct Route {
    pub host: usize,
    pub lane: u32,
    pub offset: u64,
    /// The lease through which it goes.
    pub lease: Option<Through>,
}

/// What of a request through a lease matters when it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Through {
    lease: usize,
    /// It may have changed who borrows.
    changes_borrower: bool,
}

impl Exposed {
    fn is(&self, host: usize, parcel: &Parcel, name: LeaseName) -> bool {
        let same = self.name == name && self.window == Window::of(parcel);
        !self.gone && self.host == host && same
    }

    fn busy(&self, hosts: &[Host]) -> bool {
        self.client.is_some() || self.leaving || !self.idle(hosts)
    }

    /// No request through it is under way.
    fn idle(&self, hosts: &[Host]) -> bool {
        hosts[self.host].lane_is_idle(self.lane)
    }

    /// Neither a connection, nor a request, a command or a look is about it any more.
    fn is_forgotten(&self, hosts: &[Host]) -> bool {
        self.gone && !self.busy(hosts) && matches!(self.look, Look::Known | Look::Unknown)
    }

    fn usage(&self) -> LeaseUse {
        let borrower = match self.look {
            Look::Known => BorrowerIs::OnRecord,
            Look::Unknown => BorrowerIs::Unknown,
            Look::Due | Look::Reading | Look::Noting => BorrowerIs::LookedUp,
        };
        LeaseUse {
            name: self.name,
            attached: self.client.is_some(),
            borrower,
        }
    }

    /// As clients may attach to it.
    pub(super) fn export(&self, hosts: &[Host]) -> Option<Export> {
        if self.gone {
            return None;
        }
        let array = hosts[self.host].export();
        Some(Export {
            name: export_name(&array.name, self.name.as_str()),
            description: format!("a lease of the array {} {}", array.name, array.description),
            size_bytes: self.window.bytes,
            maximum_block: LEASE_BLOCK_MAX,
            exclusive: true,
            busy: self.busy(hosts),
            ..array
        })
    }

    pub(super) fn map(
        &self,
        hosts: &[Host],
        offset: u64,
        bytes: u64,
        most: usize,
    ) -> Vec<MapExtent> {
        let Some(at) = self.window.place(offset, bytes) else {
            return Vec::new();
        };
        let mut extents = hosts[self.host].map(at, bytes, most);
        let start = self.window.start / SECTOR_BYTES;
        extents.iter_mut().for_each(|extent| extent.lba -= start);
        extents
    }
}

impl Shell {
    // -------------------------------------------------------------------------------------------------- the exports

    /// Makes the exports follow an array's table of leases.
    pub(super) fn follow_leases(&mut self, host: usize) {
        self.answer_taken_back();
        let lent = self.hosts[host].status().set.lent;
        for place in 0..self.exposed.len() {
            let exposed = &self.exposed[place];
            let stays =
                leases_of(&lent).any(|(parcel, lease)| exposed.is(host, parcel, lease.name));
            if exposed.host == host && !exposed.gone && !stays {
                self.withdraw(place);
            }
        }
        for (parcel, lease) in leases_of(&lent) {
            let known = |exposed: &Exposed| exposed.is(host, parcel, lease.name);
            if !self.exposed.iter().any(known) {
                self.expose(host, parcel, lease.name);
            }
        }
        let leases = self.exposed.iter().filter(|exposed| !exposed.gone).count();
        self.users
            .lend_to(if leases > 0 { leases + LOOKS } else { 0 });
    }

    fn expose(&mut self, host: usize, parcel: &Parcel, name: LeaseName) {
        let forgotten = |one: &Exposed| one.is_forgotten(&self.hosts);
        let free = self.exposed.iter().position(forgotten);
        let lane = self.hosts[host].lanes().open();
        let exposed = Exposed {
            host,
            name,
            window: Window::of(parcel),
            lane,
            client: None,
            leaving: false,
            gone: false,
            look: Look::Unknown,
            again: false,
        };
        let free = free.unwrap_or(self.exposed.len());
        match self.exposed.get_mut(free) {
            Some(place) => *place = exposed,
            None => self.exposed.push(exposed),
        }
        self.look_at(free);
    }

    fn withdraw(&mut self, place: usize) {
        let exposed = &mut self.exposed[place];
        exposed.gone = true;
        self.hosts[exposed.host].lanes().close(exposed.lane);
        if let Some(number) = exposed.client
            && let Some(connection) = self.connections.get_mut(number)
        {
            connection.kill();
            self.dirty.push(number);
        }
    }

    /// How many leases there are: so many connections may come beyond the users'.
    pub(super) fn leases(&self) -> usize {
        self.exposed.iter().filter(|exposed| !exposed.gone).count()
    }

    /// What only the reactor knows of an array's leases.
    pub(super) fn lease_uses(&self, host: usize) -> Vec<LeaseUse> {
        let of_host = |one: &&Exposed| one.host == host && !one.gone;
        let uses = self.exposed.iter().filter(of_host).map(Exposed::usage);
        uses.collect()
    }

    // ------------------------------------------------------------------------------------------------- taking back

    /// The lease that a command is to take back.
    pub(super) fn lease_to_take_back(&self, host: usize, command: &Command) -> Option<usize> {
        let Command::Lease(LeaseCommand::Remove { name, .. }) = command else {
            return None;
        };
        let is_it = |one: &Exposed| one.host == host && !one.gone && one.name == *name;
        self.exposed.iter().position(is_it)
    }

    /// Why a command about leases is not carried out, for what only the reactor knows.
    pub(super) fn lease_in_the_way(
        &mut self,
        host: usize,
        command: &Command,
    ) -> Result<(), CommandError> {
        match command {
            Command::Lease(LeaseCommand::Remove { force: false, .. }) => {
                match self.lease_to_take_back(host, command) {
                    Some(lease) => self.known_to_be_left(lease),
                    None => Ok(()),
                }
            }
            // Its requests may still write where the new lease would lie.
            Command::Lease(LeaseCommand::Add { .. }) => {
                let idle = self.hosts[host].lanes_closed_are_idle();
                let why = "requests through a removed lease are still in flight";
                idle.then_some(()).ok_or(CommandError::Busy(why))
            }
            _ => Ok(()),
        }
    }

    /// Whether the table tells all there is to know of a lease that is to be taken back without force.
    fn known_to_be_left(&mut self, lease: usize) -> Result<(), CommandError> {
        let exposed = &self.exposed[lease];
        let busy = match exposed.look {
            _ if exposed.client.is_some() => "a client has the lease attached",
            _ if exposed.leaving => "the lease is being removed",
            _ if !exposed.idle(&self.hosts) => "requests through the lease are still in flight",
            Look::Known => return Ok(()),
            Look::Unknown => {
                let name = exposed.name;
                self.look_at(lease);
                return Err(CommandError::Lease(LeaseError::BorrowerUnknown(name)));
            }
            Look::Due | Look::Reading | Look::Noting => {
                "the borrower of the lease is being looked up"
            }
        };
        Err(CommandError::Busy(busy))
    }

    /// A lease is taken back, or not, from when this is said to its answer.
    pub(super) fn note_leaving(&mut self, lease: usize, leaving: bool) {
        self.exposed[lease].leaving = leaving;
    }

    /// A lease is no more. Whoever took it back is told when nothing can write there any more: he wipes it.
    pub(super) fn taken_back(
        &mut self,
        lease: usize,
        result: Result<(), CommandError>,
        reply: Sender<Result<(), CommandError>>,
    ) {
        self.note_leaving(lease, false);
        if result.is_ok() {
            self.taken_back.push((lease, reply));
        } else {
            // Whoever asked may have gone; that is their affair.
            let _ = reply.send(result);
        }
    }

    /// Answers those who took back what nobody writes to any more.
    pub(super) fn answer_taken_back(&mut self) {
        let (exposed, hosts) = (&self.exposed, &self.hosts);
        self.taken_back.retain(|(lease, reply)| {
            let idle = exposed[*lease].idle(hosts);
            if idle {
                let _ = reply.send(Ok(()));
            }
            !idle
        });
    }

    // -------------------------------------------------------------------------------------------------- connections

    /// A connection may have attached to a lease.
    pub(super) fn note_client(&mut self, number: u32, export: usize) {
        let place = export.checked_sub(self.hosts.len());
        if let Some(exposed) = place.and_then(|place| self.exposed.get_mut(place)) {
            exposed.client = Some(number);
        }
    }

    pub(super) fn forget_client(&mut self, number: u32) {
        for exposed in &mut self.exposed {
            exposed.client = exposed.client.filter(|client| *client != number);
        }
    }

    /// Gives memory to the borrowers that wait for their own. Whether anyone got some.
    pub(super) fn feed_borrowers(&mut self) -> bool {
        let mut fed = false;
        for number in std::mem::take(&mut self.starved_borrowers) {
            let connection = self.connections.get(number);
            let waits = connection.is_some_and(|one| one.starved());
            // One that still has too little is put on the list again.
            fed |= waits && self.with_memory(number, false, |c, around| c.retry_memory(around));
        }
        fed
    }

    /// Where a request goes that was made of an export. `None`: it lies outside, or the lease is gone.
    pub(super) fn route(&self, ask: &crate::front::Ask) -> Option<Route> {
        let Some(lease) = ask.export.checked_sub(self.hosts.len()) else {
            return Some(Route {
                host: ask.export,
                lane: crate::host::lanes::USERS,
                offset: ask.offset,
                lease: None,
            });
        };
        let exposed = self.exposed.get(lease).filter(|exposed| !exposed.gone)?;
        let writes = !matches!(ask.op, RequestOp::Read | RequestOp::Flush);
        let changes_borrower = writes && touches_superblocks(ask.offset, ask.bytes);
        Some(Route {
            host: exposed.host,
            lane: exposed.lane,
            offset: exposed.window.place(ask.offset, ask.bytes)?,
            lease: Some(Through {
                lease,
                changes_borrower,
            }),
        })
    }

    /// A request through a lease has been answered. Gives the answer back in the lease's own addresses.
    pub(super) fn came_through(
        &mut self,
        through: Through,
        result: Result<(), RequestError>,
    ) -> Result<(), RequestError> {
        if through.changes_borrower && !self.exposed[through.lease].gone {
            self.look_at(through.lease);
        }
        result.map_err(|error| match error {
            RequestError::Lost { lba, sectors } => {
                let start = self.exposed[through.lease].window.start / SECTOR_BYTES;
                let lba = lba.saturating_sub(start);
                RequestError::Lost { lba, sectors }
            }
            other => other,
        })
    }
}

fn leases_of(lent: &[Parcel]) -> impl Iterator<Item = (&Parcel, Lease)> {
    lent.iter()
        .filter_map(|parcel| Some((parcel, parcel.lease?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_ends_where_the_lease_does() {
        let window = Window {
            start: 1000,
            bytes: 100,
        };
        assert_eq!(window.place(0, 100), Some(1000));
        assert_eq!(window.place(99, 1), Some(1099));
        assert_eq!(window.place(0, 0), Some(1000));
        for (offset, bytes) in [(0, 101), (100, 1), (99, 2), (u64::MAX, 1), (1, u64::MAX)] {
            assert_eq!(window.place(offset, bytes), None, "{offset} {bytes}");
        }
    }
}
