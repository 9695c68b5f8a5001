//! Turns of TLS handshakes with peers that have proved nothing.
//!
//! One step takes the processor for up to some milliseconds (a signature by a long RSA key), while a request
//! takes microseconds. So there is one at a time, in the order in which they came, and after it a rest of
//! [`RESTS`] times as long. However many peers connect, at least 4/5 of the time is left to what is served.

use restripe_array::Nanos;
use std::collections::VecDeque;
use std::time::Duration;

/// How long the rest after a step is, in lengths of the step.
const RESTS: u64 = 4;

#[derive(Default)]
pub(super) struct Handshakes {
    waiting: VecDeque<u32>,
    rests_until: Nanos,
}

impl Handshakes {
    /// What came for this connection waits for its turn.
    pub(super) fn join(&mut self, number: u32) {
        if !self.waiting.contains(&number) {
            self.waiting.push_back(number);
        }
    }

    /// Whose turn it is.
    pub(super) fn next(&mut self, now: Nanos) -> Option<u32> {
        match now >= self.rests_until {
            true => self.waiting.pop_front(),
            false => None,
        }
    }

    /// A step that began now took this long.
    pub(super) fn took(&mut self, now: Nanos, step: Duration) {
        let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX / (1 + RESTS));
        self.rests_until = now.after(Nanos(step * (1 + RESTS)));
    }

    /// When the next turn is.
    pub(super) fn due(&self) -> Option<Nanos> {
        (!self.waiting.is_empty()).then_some(self.rests_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_handshakes_takes_a_fifth_of_the_time_at_most() {
        let mut handshakes = Handshakes::default();
        let (mut now, mut spent) = (Nanos::ZERO, Duration::ZERO);
        let mut turns = [0; 64];
        while now < Nanos::from_secs(1) {
            (0..64).for_each(|number| handshakes.join(number));
            // A turn of the reactor that serves others.
            now = now.after(Nanos(50_000));
            if let Some(number) = handshakes.next(now) {
                let step = Duration::from_micros(6000);
                handshakes.took(now, step);
                (now, spent) = (now.after(Nanos(6_000_000)), spent + step);
                turns[number as usize] += 1;
            }
        }
        assert!(spent <= Duration::from_millis(210), "{spent:?}");
        assert!(turns.iter().max() <= Some(&1), "in their order: {turns:?}");
        assert!(handshakes.due().is_some_and(|time| time > now), "it rests");
    }

    #[test]
    fn cheap_steps_hardly_wait() {
        let mut handshakes = Handshakes::default();
        (0..2).for_each(|number| handshakes.join(number));
        let begun = Nanos::from_secs(1);
        assert_eq!(handshakes.next(begun), Some(0));
        handshakes.took(begun, Duration::from_micros(100));
        assert_eq!(handshakes.next(begun.after(Nanos(499_999))), None);
        assert_eq!(handshakes.next(begun.after(Nanos(500_000))), Some(1));
        assert_eq!(handshakes.due(), None);
    }
}
