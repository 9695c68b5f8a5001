//! Refused peers, for the operator.

use super::Link;
use std::fmt;

/// Takes the reason for which a peer was refused. It is called on the reactor's thread and may not block.
pub struct Report(Box<dyn Fn(&str) + Send + Sync>);

impl Report {
    pub fn new(take: impl Fn(&str) + Send + Sync + 'static) -> Report {
        Report(Box::new(take))
    }

    /// `why` follows the address of the peer.
    pub(super) fn refused(&self, link: &dyn Link, why: &str) {
        match link.peer_address() {
            Some(address) => self.note(&format!("{address}: {why}")),
            None => self.note(why),
        }
    }

    /// The same of a peer that has no address.
    pub(super) fn note(&self, why: &str) {
        (self.0)(why);
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Report")
    }
}
