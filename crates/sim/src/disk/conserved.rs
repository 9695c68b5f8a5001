//! What a drive's model may not do, whatever it is asked for: write more blocks than the platter brings by.
//!
//! [`Written`] checks each stretch that is written. Stretches never overlap in time. And as long as the head
//! stays where tracks have one length, the blocks written are no more than the turns times that length: a
//! zone's rate times the time. What a write cache holds is checked where it is counted, in `write_cache.rs`,
//! and what a flush writes where it is begun, in `mechanical.rs`. The checks are a few additions for each
//! track, in every build.

/// What has been written since the head came to tracks of this length.
#[derive(Default)]
pub(super) struct Written {
    slots_per_track: u32,
    /// When it came, and until when it is busy.
    since: u64,
    until: u64,
    blocks: u64,
    /// Each stretch is rounded down by less than a nanosecond.
    stretches: u64,
}

impl Written {
    /// Writes `blocks` of one track of `slots_per_track`, from and until the given times.
    pub fn pass(&mut self, slots_per_track: u32, turn_ns: u64, blocks: u64, times: (u64, u64)) {
        let (from, until) = times;
        assert!(
            self.until <= from && from <= until,
            "the head writes one track at a time"
        );
        if self.slots_per_track != slots_per_track {
            *self = Written {
                slots_per_track,
                since: from,
                ..Written::default()
            };
        }
        self.until = until;
        self.blocks += blocks;
        self.stretches += 1;
        let passed = u128::from(until - self.since + self.stretches) * u128::from(slots_per_track);
        assert!(
            u128::from(self.blocks) * u128::from(turn_ns) <= passed,
            "a zone's rate times the time is all that can be written"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Written {
        let mut written = Written::default();
        written.pass(100, 1_000_000, 50, (7_000_000, 7_500_000));
        written
    }

    #[test]
    fn a_track_after_another_is_all_right() {
        written().pass(100, 1_000_000, 100, (7_500_000, 8_500_000));
        written().pass(200, 1_000_000, 100, (7_500_000, 8_000_000));
    }

    #[test]
    #[should_panic(expected = "one track at a time")]
    fn two_tracks_at_once_are_not() {
        written().pass(100, 1_000_000, 50, (7_400_000, 7_900_000));
    }

    #[test]
    #[should_panic(expected = "rate times the time")]
    fn more_than_the_platter_brings_by_is_not() {
        written().pass(100, 1_000_000, 100, (7_500_000, 8_400_000));
    }
}
