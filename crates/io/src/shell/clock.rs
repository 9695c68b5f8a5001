//! The reactor's time: what has passed while it could run.
//!
//! A process may be stopped, or its machine frozen, for any time. Operations that were long done by then must not look
//! as if they had taken that long, so a gap that nobody asked for does not count.

use restripe_array::Nanos;
use std::time::{Duration, Instant};

/// The scheduler may be late by so much without a gap being one.
const TOLERANCE: Nanos = Nanos::from_secs(1);

pub struct Clock {
    origin: Instant,
    /// The true time at the last look.
    last: Nanos,
    /// What does not count.
    lost: Nanos,
}

impl Clock {
    pub fn new() -> Clock {
        Clock {
            origin: Instant::now(),
            last: Nanos::ZERO,
            lost: Nanos::ZERO,
        }
    }

    /// The time now, after work that should take no time to speak of, or a wait of at most `waited`; `None`: a wait
    /// without an end.
    pub fn look(&mut self, waited: Option<Duration>) -> Nanos {
        let now = Nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        self.advance(now, waited)
    }

    fn advance(&mut self, now: Nanos, waited: Option<Duration>) -> Nanos {
        let passed = now.since(self.last);
        self.last = now;
        if let Some(waited) = waited {
            let waited = Nanos(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
            let over = passed.since(waited);
            if over > TOLERANCE {
                self.lost = self.lost.after(over);
            }
        }
        now.since(self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_that_nobody_asked_for_does_not_count() {
        let mut clock = Clock::new();
        let (work, second) = (Some(Duration::ZERO), Some(Duration::from_secs(1)));
        assert_eq!(
            clock.advance(Nanos::from_millis(5), work),
            Nanos::from_millis(5)
        );
        assert_eq!(
            clock.advance(Nanos::from_millis(900), work),
            Nanos::from_millis(900),
            "late, but no gap"
        );
        assert_eq!(
            clock.advance(Nanos::from_secs(100), None),
            Nanos::from_secs(100),
            "a wait without an end"
        );
        assert_eq!(
            clock.advance(Nanos::from_secs(200), second),
            Nanos::from_secs(101),
            "stopped for 99 seconds"
        );
        assert_eq!(
            clock.advance(Nanos::from_secs(201), second),
            Nanos::from_secs(102),
            "and time goes on"
        );
        assert_eq!(
            clock.advance(Nanos::from_secs(301), work),
            Nanos::from_secs(102),
            "stopped at work"
        );
    }
}
