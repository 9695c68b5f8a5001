//! Asks whether a bug is planted, to prove that the test suites have teeth; [`Bug`] lists them.

use crate::facts::Facts;
pub use restripe_contract::{Bug, PLANTED};

impl Facts {
    pub fn planted(&self, bug: Bug) -> bool {
        PLANTED && self.config.bug == Some(bug)
    }
}
