//! Who may use which export: TLS for a listener, and lists of clients.

use crate::front::{LEASE_PREFIX, Report};
use crate::tls::ServerSide;
use crate::tls::names::{NameRule, PeerNames};

/// What a client has to show before it is served.
#[derive(Debug)]
pub struct Guard {
    pub tls: ServerSide,
    /// A client in clear text gets nothing; otherwise TLS is offered.
    pub required: bool,
    /// Arrays that are for some clients only, and for which. An array's leases are for the same.
    pub clients: Vec<(String, Vec<NameRule>)>,
    pub report: Report,
}

impl Guard {
    /// Whether an export is for this client.
    pub(super) fn admits(&self, export: &str, peer: Option<&PeerNames>) -> bool {
        let array = array_of(export);
        let mut lists = self.clients.iter().filter(|(name, _)| name == array);
        lists.all(|(_, rules)| peer.is_some_and(|peer| rules.iter().any(|rule| rule.admits(peer))))
    }
}

/// The array that an export is of: `NAME`, or `lease/NAME/LEASE`.
fn array_of(export: &str) -> &str {
    let lease = export.strip_prefix(LEASE_PREFIX);
    let array = lease.and_then(|rest| Some(rest.rsplit_once('/')?.0));
    array.unwrap_or(export)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_of_its_array() {
        assert_eq!(array_of("tank"), "tank");
        assert_eq!(array_of("lease/tank/log"), "tank");
        assert_eq!(array_of("lease"), "lease");
    }
}
