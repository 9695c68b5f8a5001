//! Clients: the floor above durability.
//!
//! Owns the table of requests, their latencies, and the read cache. Admits a request and replies to it; a
//! floor above cuts it into parts. Asks durability and the floors beneath. Sends no notice.

mod cached;
mod heat;
pub(crate) mod read_cache;
mod reads;
mod replies;
pub(crate) mod requests;

use crate::config::Config;
use crate::durability::Durability;
use crate::members::pool::Share;
use crate::policy::latency::Latencies;
use read_cache::ReadCache;
use requests::Requests;

pub struct Clients {
    pub(crate) below: Durability,
    pub(crate) requests: Requests,
    pub(crate) latencies: Latencies,
    pub(crate) read_cache: Option<ReadCache>,
}

floor!(Clients, Durability);

impl Clients {
    pub(crate) fn new(config: Config, share: Share) -> Clients {
        Clients {
            requests: Requests::new(config.limits.requests),
            latencies: Latencies::default(),
            read_cache: None,
            below: Durability::new(config, share),
        }
    }
}
