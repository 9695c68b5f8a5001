//! Targets: the floor above safety.
//!
//! Decides which members and spare partitions are filled for a slot, takes spares for a growth, and puts
//! targets in service when they are filled. Owns no state of its own: places are the roles among the facts.
//! Asks safety and the floors beneath. Sends no notice.

mod growth;
mod places;

use crate::config::Config;
use crate::members::pool::Share;
use crate::safety::Safety;
pub(crate) use growth::TOO_MANY;

pub struct Targets {
    pub(crate) below: Safety,
}

floor!(Targets, Safety);

impl Targets {
    pub(crate) fn new(config: Config, share: Share) -> Targets {
        Targets {
            below: Safety::new(config, share),
        }
    }
}
