//! The planted bugs of the overlay; the others are the sets'.

use crate::overlay::Overlay;
use restripe_array::PLANTED;
use restripe_array::parts::Bug;

impl Overlay {
    /// The bug that it is to have.
    pub(crate) fn plant(&mut self, bug: Option<Bug>) {
        self.bug = bug;
    }

    pub(crate) fn planted(&self, bug: Bug) -> bool {
        PLANTED && self.bug == Some(bug)
    }
}
