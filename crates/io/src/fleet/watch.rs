//! Checks whether an idle member is still present.
//!
//! | state | cause                                                 | next  |
//! |-------|-------------------------------------------------------|-------|
//! | quiet | a sign of the member, or an operation in flight there | quiet |
//! | quiet | neither for the interval                              | asked |
//! | asked | the answer                                            | quiet |
//! | asked | the answer is an error, [`ERRORS_MAX`] times in a row | lost  |
//! | asked | no answer within the time-out                         | lost  |
//!
//! The check is a read of the page with a superblock, and changes nothing. Operations in flight have
//! time-outs of their own, in the engine. A connection that the peer ends is noticed without a check. Of a
//! local member, the kernel reports the size in each interval, which wakes no disk.

use restripe_array::Nanos;

/// Answers with an error in a row that make a member lost: its metadata cannot be read.
const ERRORS_MAX: u8 = 3;

/// How idle members are watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchLimits {
    /// Between the last sign of life and a question.
    pub interval: Nanos,
    /// Between a question and its answer, at most.
    pub patience: Nanos,
}

/// What is to be done about a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    Nothing,
    Ask,
    /// It does not answer, or only with errors.
    Lost,
}

/// What is known of one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Watch {
    /// When a sign of life was last seen, or the question was asked.
    since: Nanos,
    asked: bool,
    errors: u8,
}

impl Watch {
    /// `lives`: something was heard of the member since the last look, or operations are under way there.
    pub fn look(&mut self, now: Nanos, lives: bool, limits: WatchLimits) -> Look {
        if self.errors >= ERRORS_MAX {
            return Look::Lost;
        }
        if lives && !self.asked {
            self.since = now;
        }
        if now < self.due(limits) {
            return Look::Nothing;
        }
        match self.asked {
            true => Look::Lost,
            false => {
                (self.asked, self.since) = (true, now);
                Look::Ask
            }
        }
    }

    pub fn answered(&mut self, well: bool) {
        self.asked = false;
        self.errors = if well { 0 } else { self.errors + 1 };
    }

    /// When to look again.
    pub fn due(&self, limits: WatchLimits) -> Nanos {
        self.since.after(match self.asked {
            true => limits.patience,
            false => limits.interval,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: WatchLimits = WatchLimits {
        interval: Nanos::from_secs(10),
        patience: Nanos::from_secs(30),
    };

    fn at(seconds: u64) -> Nanos {
        Nanos::from_secs(seconds)
    }

    #[test]
    fn idle_member_is_asked_after_the_interval_and_lost_after_the_time_out() {
        let mut watch = Watch::default();
        assert_eq!(watch.look(at(9), false, LIMITS), Look::Nothing);
        assert_eq!(watch.look(at(10), false, LIMITS), Look::Ask);
        assert_eq!(watch.due(LIMITS), at(40));
        assert_eq!(watch.look(at(39), false, LIMITS), Look::Nothing);
        assert_eq!(watch.look(at(40), false, LIMITS), Look::Lost);
    }

    #[test]
    fn busy_member_is_never_asked() {
        let mut watch = Watch::default();
        for second in 0..1000 {
            assert_eq!(watch.look(at(second), true, LIMITS), Look::Nothing);
        }
        assert_eq!(watch.due(LIMITS), at(1009));
    }

    #[test]
    fn answer_begins_a_new_interval() {
        let mut watch = Watch::default();
        assert_eq!(watch.look(at(10), false, LIMITS), Look::Ask);
        watch.answered(true);
        assert_eq!(watch.look(at(11), true, LIMITS), Look::Nothing);
        assert_eq!(watch.look(at(20), false, LIMITS), Look::Nothing);
        assert_eq!(watch.look(at(21), false, LIMITS), Look::Ask);
    }

    #[test]
    fn member_that_answers_with_errors_only_is_lost() {
        let mut watch = Watch::default();
        for asked in 1..=u64::from(ERRORS_MAX) {
            assert_eq!(watch.look(at(10 * asked), false, LIMITS), Look::Ask);
            watch.answered(false);
        }
        assert_eq!(watch.look(at(31), true, LIMITS), Look::Lost);
        watch.answered(true);
        // A good answer counts.
        assert_eq!(watch.look(at(31), true, LIMITS), Look::Nothing);
    }
}
