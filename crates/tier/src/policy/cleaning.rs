//! Whether a log that runs short is cleaned, or goes home: cleaning lets mirrors sleep on, and costs writes to the log.
//!
//! What is live in the oldest segments is moved to the head of the log, and the rest of them is won. Where a share *u* is live, each
//! sector won costs *u* / (1 - *u*) moved. Two bounds make it end, and keep it cheap:
//!
//! - of the oldest segments three quarters at most: three sectors moved for one won. Above that a round frees next to nothing;
//! - of the whole log a half at most. A lap round the log moves what is live, and wins the rest: so over a lap users' writes cost no more
//!   than as much again. What is live above that would soon ask for its way home anyway, and mirrors wake but for a while less.

/// What there is to move, and to win. All in sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// What is live in the log, and all of the log.
    pub live: u64,
    pub log: u64,
    /// The same of the oldest segments, as many as would be cleaned at once.
    pub oldest_live: u64,
    pub oldest: u64,
}

/// Whether cleaning the oldest segments is better than going home.
pub fn pays(standing: &Standing) -> bool {
    let Standing {
        live,
        log,
        oldest_live,
        oldest,
    } = *standing;
    oldest > 0 && live <= log / 2 && oldest_live <= oldest / 4 * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: u64 = 6400;

    fn of(live: u64, oldest_live: u64, oldest: u64) -> bool {
        pays(&Standing {
            live,
            log: LOG,
            oldest_live,
            oldest,
        })
    }

    #[test]
    fn half_of_the_log_and_three_quarters_of_the_oldest_are_the_most() {
        assert!(of(LOG / 2, 75, 100));
        assert!(!of(LOG / 2 + 1, 75, 100));
        assert!(!of(LOG / 2, 76, 100));
        assert!(of(0, 0, 100));
    }

    #[test]
    fn nothing_is_won_of_nothing() {
        assert!(!of(0, 0, 0));
    }

    /// A log that is written round and round, of which a share stays live, in each segment as much: as long as it is cleaned, a lap moves
    /// no more than it wins, and a log of which less is live is cleaned.
    #[test]
    fn a_lap_costs_no_more_than_users_wrote() {
        for share in 0..=100 {
            let live = LOG * share / 100;
            let (moved, won) = (live, LOG - live);
            assert_eq!(of(live, share, 100), moved <= won, "{share}%");
        }
    }
}
