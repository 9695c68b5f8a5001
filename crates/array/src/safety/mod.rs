//! Safety: the floor above the clients.
//!
//! Takes members out of service that fail, judges those without space, and makes extents real before their
//! first write. Owns the extents that are becoming real; the rest of what it changes lies on the floors
//! beneath. Sends [`crate::facts::Notice::Halted`], [`crate::facts::Notice::MemberOut`] and
//! [`crate::facts::Notice::MetadataMoved`].

mod failure;
mod first_write;
mod full;
mod inits;

use crate::clients::Clients;
use crate::config::Config;
use crate::members::pool::Share;
use inits::Inits;

pub struct Safety {
    pub(crate) below: Clients,
    inits: Inits,
}

floor!(Safety, Clients);

impl Safety {
    pub(crate) fn new(config: Config, share: Share) -> Safety {
        Safety {
            inits: Inits::default(),
            below: Clients::new(config, share),
        }
    }
}
