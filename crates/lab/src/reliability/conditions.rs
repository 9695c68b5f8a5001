//! What an array lives under: lifetimes, repairs, spares, sectors that cannot be read.

use super::quantity::{Exact, is_probability, whole};
use num_traits::{Signed, Zero};

/// Who repairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repair {
    /// One repairer, who shares its time evenly among all disks that wait for it.
    One,
    /// Every failed disk has a repairer of its own.
    All,
}

/// All times in hours. Lifetimes, repair times and delays of spares are exponentially distributed.
#[derive(Clone, PartialEq, Debug)]
pub struct Conditions {
    /// Mean time to failure of a disk.
    pub mttf: Exact,
    /// Mean time to repair a disk, by a repairer that does nothing else.
    pub mttr: Exact,
    pub repair: Repair,
    /// Mean time until a spare is there and repair can begin; zero for spares at hand. Each failed disk orders its own.
    pub spare_delay: Exact,
    /// The chance that a repair which had no redundancy left to spare meets a sector that it cannot read. That loses data.
    pub sector_loss: Exact,
}

impl Conditions {
    pub fn new(mttf: Exact, mttr: Exact) -> Conditions {
        Conditions {
            mttf,
            mttr,
            repair: Repair::All,
            spare_delay: Exact::zero(),
            sector_loss: Exact::zero(),
        }
    }

    pub fn check(&self) -> Result<(), String> {
        if !self.mttf.is_positive() || !self.mttr.is_positive() {
            return Err("the mean times to failure and to repair are above zero".into());
        }
        if self.spare_delay.is_negative() {
            return Err("a spare does not come before it is needed".into());
        }
        if !is_probability(&self.sector_loss) {
            return Err("the chance of a lost sector must be between 0 and 1".into());
        }
        Ok(())
    }

    /// The chance that a repair loses data, by whether it has no redundancy left to spare.
    pub(super) fn sector_loss_if(&self, bare: bool) -> Exact {
        match bare {
            true => self.sector_loss.clone(),
            false => Exact::zero(),
        }
    }

    /// Failures an hour of one disk.
    pub fn failure_rate(&self) -> Exact {
        self.mttf.recip()
    }

    /// Repairs an hour of each of `ready` disks that wait for no spare.
    pub fn repair_rate_each(&self, ready: usize) -> Exact {
        match self.repair {
            Repair::All => self.mttr.recip(),
            Repair::One => (self.mttr.clone() * whole(ready.max(1))).recip(),
        }
    }

    /// Spares an hour for one disk that waits; none where spares are at hand.
    pub fn spare_rate(&self) -> Option<Exact> {
        (!self.spare_delay.is_zero()).then(|| self.spare_delay.recip())
    }
}
