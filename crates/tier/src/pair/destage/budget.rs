//! How often mirrors may sleep, by the drives' rating of starts and stops.

use restripe_array::Nanos;

const DAY: Nanos = Nanos::from_secs(24 * 60 * 60);

/// What is left of the budget of starts, at any time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    pub starts_a_day: u32,
    /// Of a day, what starts took that had not grown again when it was looked at.
    spent: Nanos,
    looked: Nanos,
}

impl Budget {
    fn price(&self) -> Nanos {
        Nanos(DAY.0 / u64::from(self.starts_a_day.max(1)))
    }

    fn spent_at(&self, now: Nanos) -> Nanos {
        self.spent.since(now.since(self.looked))
    }

    /// How often mirrors may sleep at once.
    pub fn left(&self, now: Nanos) -> u32 {
        let left = DAY.since(self.spent_at(now)).0 / self.price().0.max(1);
        u32::try_from(left).unwrap_or(u32::MAX)
    }
}

/// What mirrors did, and may do.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rest {
    /// Some of them sleep.
    pub(crate) asleep: bool,
    /// Since when they are awake.
    pub(crate) since: Nanos,
    /// The time that the budget had grown for when it was looked at last, a day at most, less what was spent.
    spent: Nanos,
    looked: Nanos,
}

impl Rest {
    /// When the budget allows another start; it is spent if that is now.
    pub(crate) fn allowed(&mut self, now: Nanos, starts_a_day: u32) -> Nanos {
        let budget = self.budget(starts_a_day);
        let price = budget.price();
        self.spent = budget.spent_at(now);
        self.looked = now;
        let over = (self.spent.0 + price.0).saturating_sub(DAY.0);
        if over == 0 {
            self.spent = self.spent.after(price);
        }
        now.after(Nanos(over))
    }

    pub(crate) fn budget(&self, starts_a_day: u32) -> Budget {
        Budget {
            starts_a_day,
            spent: self.spent,
            looked: self.looked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told to be left is what may be had at once; a start's price grows again in its part of a day.
    #[test]
    fn the_budget_that_is_told_is_the_one_that_is_kept() {
        let mut rest = Rest::default();
        let (a_day, begin) = (24, Nanos::from_secs(1_000_000));
        for left in (1..=a_day).rev() {
            assert_eq!(rest.budget(a_day).left(begin), left);
            assert_eq!(rest.allowed(begin, a_day), begin);
        }
        let hour = begin.after(Nanos::from_secs(3600));
        assert_eq!(rest.budget(a_day).left(begin), 0);
        assert_eq!(rest.budget(a_day).left(hour), 1);
        assert_eq!(rest.allowed(begin, a_day), hour);
        assert_eq!(rest.budget(a_day).left(begin.after(DAY)), 24);
    }
}
