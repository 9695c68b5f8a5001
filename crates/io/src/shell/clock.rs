//! The reactor's time: the time that passed while the reactor could run.
//!
//! A process may be stopped, or its machine frozen or suspended, for any time. Operations that ended long
//! before must not appear to have taken that long. So an unexpected gap does not count. It is reported,
//! since the surroundings continued meanwhile.

use restripe_array::Nanos;
use std::time::Duration;

/// The scheduler may be late by so much without a gap being one.
const TOLERANCE: Nanos = Nanos::from_secs(1);

pub struct Clock {
    origin: Nanos,
    /// The true time at the last look.
    last: Nanos,
    /// What does not count.
    lost: Nanos,
}

impl Clock {
    pub fn new() -> Clock {
        Clock {
            origin: since_boot(),
            last: Nanos::ZERO,
            lost: Nanos::ZERO,
        }
    }

    /// The time now, and a gap if there was one, after work that should take no time to speak of, or a wait of at most
    /// `waited`; `None`: a wait without an end.
    pub fn look(&mut self, waited: Option<Duration>) -> (Nanos, Option<Nanos>) {
        self.advance(since_boot().since(self.origin), waited)
    }

    fn advance(&mut self, now: Nanos, waited: Option<Duration>) -> (Nanos, Option<Nanos>) {
        let passed = now.since(self.last);
        self.last = now;
        let over = waited.map(|waited| passed.since(nanos(waited)));
        let gap = over.filter(|over| *over > TOLERANCE);
        self.lost = self.lost.after(gap.unwrap_or(Nanos::ZERO));
        (now.since(self.lost), gap)
    }
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// The time since the kernel started, which goes on while the machine is suspended.
fn since_boot() -> Nanos {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec that the kernel fills. The call cannot fail for a clock that every kernel has.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    nanos(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_that_nobody_asked_for_does_not_count_and_is_reported() {
        let mut clock = Clock::new();
        let (work, second) = (Some(Duration::ZERO), Some(Duration::from_secs(1)));
        let seconds = Nanos::from_secs;
        let early = Nanos::from_millis(5);
        assert_eq!(clock.advance(early, work), (early, None));
        let late = Nanos::from_millis(900);
        assert_eq!(clock.advance(late, work), (late, None), "late, but no gap");
        let steps = [
            (100, None, 100, None, "a wait without an end"),
            (200, second, 101, Some(99), "stopped for 99 seconds"),
            (201, second, 102, None, "and time goes on"),
            (301, work, 102, Some(100), "stopped at work"),
        ];
        for (now, waited, counts, gap, what) in steps {
            let found = clock.advance(seconds(now), waited);
            assert_eq!(found, (seconds(counts), gap.map(seconds)), "{what}");
        }
    }
}
