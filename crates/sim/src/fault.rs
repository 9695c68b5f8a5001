//! The present faults of a disk. Faults wrap every operation in the same way: they delay it, refuse it, or
//! send it to the wrong address.

use restripe_array::{IoError, IoOp, Nanos};
use std::collections::BTreeSet;

/// A fault that begins at some moment of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// These sectors cannot be read until they are written again.
    Latent {
        at: u64,
        sectors: u64,
    },
    /// These sectors cannot be written.
    Unwritable {
        at: u64,
        sectors: u64,
    },
    /// The device answers nothing but errors, for good.
    Death,
    /// The device answers nothing at all; see [`Faults::release`].
    Hang,
    /// The device answers again.
    Revive,
    /// Service takes so many times as long; 1 ends it.
    Slow {
        factor: u32,
    },
    /// The next operations complete this much later than they should.
    Stuck {
        operations: u32,
        delay: Nanos,
    },
    FlushError {
        flushes: u32,
    },
    /// There is no space for what is written, nor, if `flushes`, for what was written and not flushed.
    Full {
        flushes: bool,
    },
    /// There is space again.
    Room,
    /// The next write lands so many sectors further on.
    Misdirect {
        by: u64,
    },
    /// What is asked first of a device in standby takes so much longer; `None`: it hangs from then on.
    Wakes {
        after: Option<Nanos>,
    },
}

/// The faults of one disk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    latent: BTreeSet<u64>,
    unwritable: BTreeSet<u64>,
    dead: bool,
    hanging: bool,
    slow: Option<u32>,
    stuck: Option<(u32, Nanos)>,
    flush_errors: u32,
    /// Neither writes nor, if it says so, flushes find space.
    full: Option<bool>,
    misdirect: Option<u64>,
    asleep: bool,
    /// It was asked to wake, and does not.
    never_woke: bool,
    /// How it wakes, if that is not at once.
    wakes: Option<Option<Nanos>>,
}

impl Faults {
    pub fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Latent { at, sectors } => self.latent.extend(at..at + sectors),
            Fault::Unwritable { at, sectors } => self.unwritable.extend(at..at + sectors),
            Fault::Death => (self.dead, self.hanging) = (true, false),
            Fault::Hang => self.hanging = true,
            Fault::Revive => (self.dead, self.hanging) = (false, false),
            Fault::Slow { factor } => self.slow = (factor > 1).then_some(factor),
            Fault::Stuck { operations, delay } => {
                self.stuck = (operations > 0).then_some((operations, delay))
            }
            Fault::FlushError { flushes } => self.flush_errors = flushes,
            Fault::Full { flushes } => self.full = Some(flushes),
            Fault::Room => self.full = None,
            Fault::Misdirect { by } => self.misdirect = Some(by),
            Fault::Wakes { after } => self.wakes = Some(after),
        }
    }

    /// Everything is well again, except what cannot be read.
    pub fn clear(&mut self) {
        let latent = std::mem::take(&mut self.latent);
        *self = Faults {
            latent,
            ..Faults::default()
        };
    }

    /// What could not be read can be.
    pub fn mend_reads(&mut self) {
        self.latent.clear();
    }

    pub fn dead(&self) -> bool {
        self.dead
    }

    pub fn full(&self) -> bool {
        self.full.is_some()
    }

    /// Whether it stands still, and will go on to.
    pub fn sleeps_for_good(&self) -> bool {
        self.asleep && self.wakes == Some(None)
    }

    /// Whether it stands still.
    pub fn asleep(&self) -> bool {
        self.asleep
    }

    /// Whether it wakes late, each time.
    pub fn wakes_late(&self) -> bool {
        matches!(self.wakes, Some(Some(_)))
    }

    /// Whether it was asked to wake, and never will.
    pub fn never_woke(&self) -> bool {
        self.never_woke && self.hanging
    }

    pub fn hanging(&self) -> bool {
        self.hanging
    }

    /// Whether this disk must be expected to leave the array.
    pub fn doomed(&self) -> bool {
        self.dead
            || self.hanging
            || self.stuck.is_some()
            || self.flush_errors > 0
            || !self.unwritable.is_empty()
    }

    /// Whether a sector cannot be read.
    pub fn unreadable(&self, at: u64) -> bool {
        self.dead || self.latent.contains(&at)
    }

    /// Sectors that cannot be read, in order.
    pub fn latent(&self) -> impl Iterator<Item = u64> {
        self.latent.iter().copied()
    }

    /// When an operation ends that would be served by `served`; `None` when it hangs.
    pub(crate) fn delay(&mut self, now: Nanos, op: IoOp, served: Nanos) -> Option<Nanos> {
        if self.hanging {
            return None;
        }
        let slept = std::mem::replace(&mut self.asleep, op == IoOp::Standby);
        let mut end = served;
        if slept && op != IoOp::Standby {
            match self.wakes {
                Some(Some(after)) => end = end.after(after),
                Some(None) => {
                    (self.hanging, self.never_woke) = (true, true);
                    return None;
                }
                None => {}
            }
        }
        if let Some(factor) = self.slow {
            end = now.after(Nanos(served.since(now).0.saturating_mul(u64::from(factor))));
        }
        if let (Some((left, delay)), false) = (self.stuck, op == IoOp::Flush) {
            end = end.after(delay);
            self.stuck = (left > 1).then_some((left - 1, delay));
        }
        Some(end)
    }

    /// Whether an operation succeeds.
    pub(crate) fn verdict(&self, op: IoOp, at: u64, sectors: u64) -> Result<(), IoError> {
        if self.dead {
            return Err(IoError::Gone);
        }
        let meets = |set: &BTreeSet<u64>| set.range(at..at + sectors).next().is_some();
        match op {
            IoOp::Read if meets(&self.latent) => Err(IoError::Media),
            IoOp::Write | IoOp::Zero if meets(&self.unwritable) => Err(IoError::Media),
            IoOp::Write | IoOp::Zero if self.full() => Err(IoError::NoSpace),
            IoOp::Flush if self.full == Some(true) => Err(IoError::NoSpace),
            IoOp::Flush if self.flush_errors > 0 => Err(IoError::Other(EIO)),
            _ => Ok(()),
        }
    }

    /// What a completed operation changes about the faults: a write heals what it covers.
    pub(crate) fn completed(
        &mut self,
        op: IoOp,
        at: u64,
        sectors: u64,
        result: Result<(), IoError>,
    ) {
        if op == IoOp::Flush && result == Err(IoError::Other(EIO)) {
            self.flush_errors -= 1;
        }
        if matches!(op, IoOp::Write | IoOp::Zero) && result.is_ok() && !self.latent.is_empty() {
            for sector in at..at + sectors {
                self.latent.remove(&sector);
            }
        }
    }

    /// Where a write really lands.
    pub(crate) fn misdirect(&mut self, at: u64, sectors: u64, end: u64) -> u64 {
        match self.misdirect.take() {
            Some(by) if at + by + sectors <= end => at + by,
            _ => at,
        }
    }

    /// What is left after power went and came: the medium's faults and death stay, and somebody has made space.
    pub(crate) fn after_power_cut(&self) -> Faults {
        Faults {
            latent: self.latent.clone(),
            unwritable: self.unwritable.clone(),
            dead: self.dead,
            ..Faults::default()
        }
    }
}

const EIO: i32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latent_error_ends_with_a_write() {
        let mut faults = Faults::default();
        faults.inject(Fault::Latent { at: 10, sectors: 2 });
        assert_eq!(faults.verdict(IoOp::Read, 8, 3), Err(IoError::Media));
        assert_eq!(faults.verdict(IoOp::Read, 8, 2), Ok(()));
        assert_eq!(faults.verdict(IoOp::Write, 10, 1), Ok(()));
        faults.completed(IoOp::Write, 10, 1, Ok(()));
        assert_eq!(faults.latent().collect::<Vec<_>>(), [11]);
    }

    #[test]
    fn stuck_operations_end_late_and_are_counted() {
        let mut faults = Faults::default();
        let (operations, delay) = (1, Nanos(50));
        let until = |faults: &mut Faults, now, op, due| {
            let late = faults.delay(Nanos(now), op, Nanos(due));
            late.map(|time| time.0)
        };
        faults.inject(Fault::Stuck { operations, delay });
        assert_eq!(until(&mut faults, 0, IoOp::Write, 7), Some(57));
        assert_eq!(until(&mut faults, 0, IoOp::Write, 7), Some(7));
        faults.inject(Fault::Slow { factor: 3 });
        assert_eq!(until(&mut faults, 10, IoOp::Read, 12), Some(16));
        faults.inject(Fault::Hang);
        assert_eq!(until(&mut faults, 0, IoOp::Read, 7), None);
    }

    #[test]
    fn a_flush_fails_as_often_as_planned() {
        let mut faults = Faults::default();
        faults.inject(Fault::FlushError { flushes: 1 });
        let result = faults.verdict(IoOp::Flush, 0, 0);
        assert!(result.is_err());
        faults.completed(IoOp::Flush, 0, 0, result);
        assert_eq!(faults.verdict(IoOp::Flush, 0, 0), Ok(()));
    }

    #[test]
    fn without_space_nothing_is_written_and_everything_can_be_read() {
        let mut faults = Faults::default();
        faults.inject(Fault::Full { flushes: false });
        for op in [IoOp::Write, IoOp::Zero] {
            assert_eq!(faults.verdict(op, 0, 8), Err(IoError::NoSpace));
        }
        for op in [IoOp::Read, IoOp::Trim, IoOp::Flush] {
            assert_eq!(faults.verdict(op, 0, 8), Ok(()));
        }
        faults.inject(Fault::Full { flushes: true });
        assert_eq!(faults.verdict(IoOp::Flush, 0, 0), Err(IoError::NoSpace));
        assert!(!faults.doomed() && !faults.after_power_cut().full());
    }

    #[test]
    fn death_outlives_a_power_cut_and_a_hang_does_not() {
        let mut faults = Faults::default();
        faults.inject(Fault::Death);
        faults.inject(Fault::Hang);
        assert!(faults.hanging());
        let after = faults.after_power_cut();
        assert_eq!((after.dead(), after.hanging()), (true, false));
    }
}
