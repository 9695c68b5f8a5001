//! The intake: the floor above the rows. It cuts requests into parts; [`crate::clients`] admits them, and
//! replies when every part is done.
//!
//! Owns what has been cut and not started. Asks every floor below. Reads of healthy cells go straight to
//! their members (`reads`). Writes (`writes`), and reads that redundancy must answer, become slices. Two
//! queues, each first come first served, hold what could not be started yet.

mod gather;
mod pieces;
mod reads;
mod writes;

use crate::config::Config;
use crate::members::pool::Share;
use crate::slice::rows::Rows;
use crate::units::SECTOR_BYTES;
use gather::Gather;

pub struct Intake {
    below: Rows,
    gather: Gather,
}

floor!(Intake, Rows);

impl Intake {
    pub(crate) fn new(config: Config, share: Share) -> Intake {
        Intake {
            gather: Gather::new(config.limits.requests),
            below: Rows::new(config, share),
        }
    }

    /// Whether any request has parts that found no room yet.
    pub(crate) fn requests_wait(&self) -> bool {
        self.requests.waiting() || self.gather.waiting()
    }

    /// Whether a reshape has what a request wants next.
    fn waits_for_reshape(&self, id: u32) -> bool {
        let pending = self.requests.get(id);
        let lba = (pending.request.offset + pending.cut) / SECTOR_BYTES;
        let left = pending.cut < pending.request.bytes;
        left && self.is_held(lba, pending.request.op.changes())
    }
}
