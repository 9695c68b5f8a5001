//! Who is let in: a table of connections with a share for peers that have yet to finish their handshake.
//!
//! - At most [`STRANGERS_MAX`] of them are there at once, so the other places are kept for the others.
//! - One that comes when there is no place takes that of another: the oldest of the address that has the
//!   most, or of all such addresses. So a flood from one address displaces its own.
//! - A network of IPv6 (/64) counts as one address, since one host may have all of it.
//! - None is displaced within [`SURE_OF_PLACE`]. Until then those who come wait to be accepted, so a flood
//!   does not outrun an honest handshake.
//! - The kernel's connections to the daemon's own devices are not counted: they are few, and clients must not
//!   keep a mounted device from its array.

use crate::front::connection::Connection;
use restripe_array::{Nanos, Slab};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

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
        let strangers = self.strangers().map(|(number, one)| {
            let address = one.peer_address().map(|address| address.ip());
            (host(address), one.born(), number)
        });
        oldest_of_the_most(&strangers.collect::<Vec<_>>())
    }
}

/// The oldest of the hosts that have the most, by number.
fn oldest_of_the_most(strangers: &[(Option<IpAddr>, Nanos, u32)]) -> Option<u32> {
    let mut counts: BTreeMap<Option<IpAddr>, usize> = BTreeMap::new();
    for (host, ..) in strangers {
        *counts.entry(*host).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    let those = strangers.iter().filter(|(host, ..)| counts[host] == most);
    let oldest = those.min_by_key(|(_, born, number)| (*born, *number))?;
    Some(oldest.2)
}

/// What one host has the use of: an address of IPv4, also if it is mapped into IPv6, or a network of IPv6
/// (RFC 4291, sections 2.5.1 and 2.5.5.2). `None`: a peer of a Unix socket.
fn host(address: Option<IpAddr>) -> Option<IpAddr> {
    Some(match address?.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            Ipv6Addr::from_bits(network).into()
        }
        address => address,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(strangers: &[(&str, u64)]) -> Option<u32> {
        let strangers = strangers.iter().zip(0..);
        let strangers = strangers.map(|((address, born), number)| {
            let address = address.parse().ok();
            (host(address), Nanos(*born), number)
        });
        oldest_of_the_most(&strangers.collect::<Vec<_>>())
    }

    /// Neither the highest nor the lowest address: else one that is renewed there keeps all places taken.
    #[test]
    fn among_equals_the_oldest_makes_room() {
        assert_eq!(next(&[]), None);
        let equals = |oldest: usize| {
            let born = |nth: usize| if nth == oldest { 1 } else { 9 - nth as u64 };
            let all = ["127.0.1.1", "127.0.1.2", "", "fd00::1", "::1"];
            let all = all.into_iter().enumerate();
            next(&all.map(|(nth, one)| (one, born(nth))).collect::<Vec<_>>())
        };
        for oldest in 0..5 {
            assert_eq!(equals(oldest), Some(oldest as u32));
        }
        let two = [("10.0.0.1", 1), ("10.0.0.2", 4), ("10.0.0.2", 3)];
        assert_eq!(next(&two), Some(2), "those of the most before others");
        let twice = [
            ("10.0.0.9", 3),
            ("10.0.0.9", 4),
            ("10.0.0.2", 5),
            ("10.0.0.2", 2),
        ];
        assert_eq!(next(&twice), Some(3));
    }

    #[test]
    fn the_addresses_of_one_host_count_together() {
        let network = [("10.0.0.1", 1), ("fd00::1", 3), ("fd00::ffff:1:2", 2)];
        assert_eq!(next(&network), Some(2));
        let networks = [("10.0.0.1", 1), ("fd00::1", 3), ("fd00:0:0:1::1", 2)];
        assert_eq!(next(&networks), Some(0));
        let mapped = [("10.0.0.2", 1), ("10.0.0.1", 3), ("::ffff:10.0.0.1", 2)];
        assert_eq!(next(&mapped), Some(2));
    }
}
