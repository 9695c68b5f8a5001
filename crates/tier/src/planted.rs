//! The planted bugs of the overlay; the others are the sets'.

use crate::overlay::Overlay;
use restripe_array::parts::Bug;

impl Overlay {
    /// The bug that it is to have.
    #[cfg(feature = "planted")]
    pub(crate) fn plant(&mut self, bug: Option<Bug>) {
        self.bug = bug;
    }

    #[cfg(feature = "planted")]
    pub(crate) fn planted(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    #[cfg(not(feature = "planted"))]
    #[inline(always)]
    pub(crate) fn planted(&self, _bug: Bug) -> bool {
        false
    }
}
