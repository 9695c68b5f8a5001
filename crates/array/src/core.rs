//! The middle: what has no floor of its own yet.

use crate::clients::Clients;
use crate::config::Config;
use crate::members::pool::Share;
use crate::report::ArrayState;
use crate::written::{INITS_OPS, Inits};

pub struct Core {
    pub(crate) below: Clients,
    pub(crate) inits: Inits,
}

/// Operations of superblocks, maps and flushes.
pub(crate) const METADATA_OPS: u32 = 3072;

floor!(Core, Clients);

impl Core {
    pub fn new(config: Config, share: Share) -> Core {
        Core {
            inits: Inits::default(),
            below: Clients::new(config, share),
        }
    }

    /// Room for what every admitted slice, the metadata and the direct reads may have outstanding.
    pub(crate) fn size_ops(&mut self) {
        let width = u32::from(self.layout.width());
        let limits = self.config.limits;
        let reserve = limits.slices * (4 * width + 8) + METADATA_OPS + INITS_OPS;
        self.ops.reserve = reserve;
        self.ops.grow(reserve + limits.ios);
    }

    /// The array's state as its members leave it.
    pub(crate) fn assess(&mut self) {
        if matches!(
            self.state,
            ArrayState::Starting | ArrayState::Stopping | ArrayState::Stopped
        ) {
            return;
        }
        self.state = if self.complete() {
            ArrayState::Healthy
        } else if self.all_decodable(|_| false) {
            ArrayState::Degraded
        } else {
            ArrayState::Failed
        };
        self.price_misses();
    }
}
