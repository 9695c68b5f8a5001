//! Leases as exports: windows onto arrays that lend, each for one borrower at a time.
//!
//! | of a lease | is kept from others by |
//! |---|---|
//! | its bytes | its window: every request is held against it in one place, [`Window::place`] |
//! | its turn at the engine | a lane of its own (`host/lanes`) |
//! | its memory | an account of its own (`memory`), apart from the users' |
//! | its client | one at a time; the next is let in when what this one asked for is done |
//!
//! Who borrows is told by the borrower's own superblock, which lies at the start of the lease: when something was written
//! there, and when a lease is first seen, it is looked at, and the array's table is made to say the same. So the table
//! is right soon after whatever happened, crashes included.
//!
//! The table is the engine's (`array/src/lease.rs`); after each command it is compared with what is exported.

use super::Shell;
use super::requests::Pending;
use crate::front::Export;
use crate::host::Host;
use crate::memory::LEASE_BLOCK_MAX;
use restripe_array::meta::superblock::SUPERBLOCK_BYTES;
use restripe_array::meta::{MetaError, PartnerRole, Superblock};
use restripe_array::report::{Lease, MapExtent, Parcel};
use restripe_array::{
    BufRef, Command, CommandError, LeaseCommand, LeaseName, Request, RequestError, RequestOp,
    RequestTag, SECTOR_BYTES, Uuid,
};

/// What every lease's export begins with, and no array's can: it has a slash.
pub const EXPORT_PREFIX: &str = "lease/";
/// Owner of memory for looks.
const LOOK_OWNER: u32 = u32::MAX - 2;
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
    fn place(self, offset: u64, bytes: u64) -> Option<u64> {
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes).then_some(self.start + offset)
    }
}

/// A lease, from when it is first seen to the end of the reactor: exports keep their indexes.
pub(super) struct Exposed {
    host: usize,
    name: LeaseName,
    window: Window,
    lane: u32,
    /// The connection that has it.
    client: Option<u32>,
    /// It is a lease no more.
    gone: bool,
    look: Look,
}

/// Whether the start of a lease is looked at for who borrows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Look {
    Rests,
    UnderWay,
    /// And again when it is done: it has changed meanwhile.
    Again,
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
    changes_head: bool,
}

impl Exposed {
    fn is(&self, host: usize, parcel: &Parcel, name: LeaseName) -> bool {
        let same = self.name == name && self.window == Window::of(parcel);
        !self.gone && self.host == host && same
    }

    fn busy(&self, hosts: &[Host]) -> bool {
        self.client.is_some() || !hosts[self.host].lane_is_idle(self.lane)
    }

    /// As clients may attach to it.
    pub(super) fn export(&self, hosts: &[Host]) -> Option<Export> {
        if self.gone {
            return None;
        }
        let array = hosts[self.host].export();
        Some(Export {
            name: export_name(&array.name, self.name.as_str()),
            description: format!("a lease of the array {}", array.name),
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
        let lent = self.hosts[host].status().lent;
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
        let lane = self.hosts[host].lanes().open();
        self.exposed.push(Exposed {
            host,
            name,
            window: Window::of(parcel),
            lane,
            client: None,
            gone: false,
            look: Look::Rests,
        });
        self.looks_due.push_back(self.exposed.len() - 1);
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

    /// The leases of an array that somebody has attached.
    pub(super) fn leases_in_use(&self, host: usize) -> Vec<LeaseName> {
        let of_host = self
            .exposed
            .iter()
            .filter(|one| one.host == host && !one.gone);
        let busy = of_host.filter(|one| one.client.is_some());
        busy.map(|one| one.name).collect()
    }

    /// Why a command about leases has to wait, for what only the reactor knows.
    pub(super) fn lease_in_the_way(&self, host: usize, command: &Command) -> Option<CommandError> {
        match command {
            Command::Lease(LeaseCommand::Remove { name, force: false }) => {
                let in_use = self.leases_in_use(host).contains(name);
                in_use.then_some(CommandError::Busy("a client has the lease attached"))
            }
            // Its requests may still write where the new lease would lie.
            Command::Lease(LeaseCommand::Add { .. }) => {
                let idle = self.hosts[host].lanes_closed_are_idle();
                let why = "requests through a lease that was removed are still under way";
                (!idle).then_some(CommandError::Busy(why))
            }
            _ => None,
        }
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
            let waits = self
                .connections
                .get(number)
                .is_some_and(|one| one.starved());
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
        let changes_head = writes && ask.offset < SUPERBLOCK_BYTES as u64;
        Some(Route {
            host: exposed.host,
            lane: exposed.lane,
            offset: exposed.window.place(ask.offset, ask.bytes)?,
            lease: Some(Through {
                lease,
                changes_head,
            }),
        })
    }

    /// A request through a lease has been answered. Gives the answer back in the lease's own addresses.
    pub(super) fn came_through(
        &mut self,
        through: Through,
        result: Result<(), RequestError>,
    ) -> Result<(), RequestError> {
        if through.changes_head {
            self.looks_due.push_back(through.lease);
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

    // -------------------------------------------------------------------------------------------------- who borrows

    /// Begins the looks that are due. Whether any was begun.
    pub(super) fn begin_looks(&mut self) -> bool {
        let mut begun = false;
        while let Some(place) = self.looks_due.pop_front() {
            let exposed = &mut self.exposed[place];
            if exposed.look != Look::Rests {
                exposed.look = Look::Again;
                continue;
            }
            if exposed.gone {
                continue;
            }
            let bytes = SUPERBLOCK_BYTES as u32;
            let Some(buf) = self.users.allocate_lent(bytes, LOOK_OWNER) else {
                // The end of another look gives memory back.
                self.looks_due.push_front(place);
                break;
            };
            exposed.look = Look::UnderWay;
            self.look(place, buf);
            begun = true;
        }
        begun
    }

    fn look(&mut self, place: usize, buf: BufRef) {
        let pending = Pending::Look { lease: place, buf };
        let tag = RequestTag(u64::from(self.pending.insert(pending)));
        let Exposed {
            host, lane, window, ..
        } = self.exposed[place];
        self.hosts[host].request_in(
            lane,
            Request {
                tag,
                op: RequestOp::Read,
                offset: window.start,
                bytes: SUPERBLOCK_BYTES as u64,
                buf,
                fua: false,
            },
        );
    }

    pub(super) fn looked(&mut self, place: usize, buf: BufRef, result: Result<(), RequestError>) {
        let memory = self.users.memory(buf.buf);
        let found = result
            .ok()
            .and_then(|()| borrower(memory.slice(0, SUPERBLOCK_BYTES)));
        self.users.release(buf);
        let exposed = &mut self.exposed[place];
        let again = exposed.look == Look::Again;
        exposed.look = Look::Rests;
        if again {
            self.looks_due.push_back(place);
        } else if let Some(borrower) = found {
            self.bind(place, borrower);
        }
    }

    /// Has the array's table say who borrows.
    fn bind(&mut self, place: usize, borrower: Option<Uuid>) {
        let Exposed {
            host, name, gone, ..
        } = self.exposed[place];
        let status = self.hosts[host].status();
        let known = leases_of(&status.lent).find(|(_, lease)| lease.name == name);
        let differs = known.is_some_and(|(_, lease)| lease.borrower != borrower);
        if differs && !gone && !status.read_only {
            self.order(host, Command::Lease(LeaseCommand::Bind { name, borrower }));
        }
    }
}

fn leases_of(lent: &[Parcel]) -> impl Iterator<Item = (&Parcel, Lease)> {
    lent.iter()
        .filter_map(|parcel| Some((parcel, parcel.lease?)))
}

/// Who has the lease on record that begins with these bytes: the array whose surrogate it is, or the one whose member.
/// `Some(None)`: nobody. `None`: they are half a superblock, and say nothing.
fn borrower(bytes: &[u8]) -> Option<Option<Uuid>> {
    match Superblock::decode(bytes) {
        Ok(superblock) => {
            let partner = superblock.partner;
            let main = partner.filter(|partner| partner.role == PartnerRole::Surrogate);
            Some(Some(main.map_or(superblock.array, |main| main.array)))
        }
        Err(MetaError::NotFound) => Some(None),
        Err(_) => None,
    }
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

    #[test]
    fn bytes_that_are_no_superblock_tell_of_nobody() {
        assert_eq!(borrower(&[0; SUPERBLOCK_BYTES]), Some(None));
        let mut torn = vec![0; SUPERBLOCK_BYTES];
        torn[..8].copy_from_slice(b"Restripe");
        assert_eq!(borrower(&torn), None);
    }
}
