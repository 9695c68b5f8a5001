//! Who is let in: a table of connections with a share for peers that have yet to finish their handshake.
//!
//! - At most [`STRANGERS_MAX`] of them are there at once, so the other places are kept for the others.
//! - One that comes when there is no place takes that of another: the oldest of the address that has the
//!   most. So a flood from one address displaces its own.
//! - None is displaced within [`SURE_OF_PLACE`]. Until then those who come wait to be accepted, so a flood
//!   does not outrun an honest handshake.
//! - The kernel's connections to the daemon's own devices are not counted: they are few, and clients must not
//!   keep a mounted device from its array.

use crate::front::connection::Connection;
use restripe_array::{Nanos, Slab};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Connections of clients at once; leases have one more each.
pub(super) const CONNECTIONS_MAX: usize = 256;
/// The most of these that have not finished their handshake.
pub(super) const STRANGERS_MAX: usize = 64;
/// How long one of them has its place at least.
const SURE_OF_PLACE: Nanos = Nanos::from_secs(1);

/// The connections that there are, by who has to make room.
pub(super) struct Places<'a> {
    connections: &'a Slab<Connection>,
    leases: usize,
}

impl Places<'_> {
    pub(super) fn of(connections: &Slab<Connection>, leases: usize) -> Places<'_> {
        Places {
            connections,
            leases,
        }
    }

    fn strangers(&self) -> impl Iterator<Item = (u32, &Connection)> {
        let all = self.connections.iter();
        all.filter(|(_, one)| !one.dead() && one.is_stranger())
    }

    pub(super) fn are_full(&self) -> bool {
        // Strangers that are dead have nothing in flight, and go at once.
        let leaves = |one: &Connection| one.dead() && one.is_stranger();
        let clients = self.connections.iter();
        let clients = clients.filter(|(_, one)| !one.resends() && !leaves(one));
        let most = CONNECTIONS_MAX + self.leases;
        clients.count() >= most || self.strangers().count() >= STRANGERS_MAX
    }

    /// Before this time no peer is to be accepted: there is no place that it could take.
    pub(super) fn none_before(&self, now: Nanos) -> Option<Nanos> {
        let next = self.next_displaced().filter(|_| self.are_full())?;
        let time = self.connections.get(next)?.born().after(SURE_OF_PLACE);
        (time > now).then_some(time)
    }

    /// Whose place is taken next.
    pub(super) fn next_displaced(&self) -> Option<u32> {
        let mut by_address: BTreeMap<Option<IpAddr>, Vec<(Nanos, u32)>> = BTreeMap::new();
        for (number, one) in self.strangers() {
            let address = one.peer_address().map(|address| address.ip());
            by_address
                .entry(address)
                .or_default()
                .push((one.born(), number));
        }
        let those = by_address.into_values().max_by_key(Vec::len)?;
        those.into_iter().min().map(|(_, number)| number)
    }
}
