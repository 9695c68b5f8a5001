//! Decides whether a log that runs short is cleaned or destaged: cleaning costs log writes, and mirrors stay
//! in standby.
//!
//! Live data of the oldest segments moves to the head of the log, which reclaims the rest. Where a share *u*
//! is live, each reclaimed sector costs *u* / (1 - *u*) moved ones. Two bounds make cleaning end, and limit
//! its cost:
//!
//! - At most three quarters of the oldest segments are live: three sectors moved for one reclaimed. Above
//!   that a round frees next to nothing.
//! - At most a half of the whole log is live. A lap round the log moves the live data, and reclaims the rest:
//!   so over a lap cleaning at most doubles the writes of clients. With more live data the log would soon
//!   need a destage anyway, and mirrors would spin up only a little later.

/// The sectors to move, and to reclaim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fill {
    /// The live sectors of the log, and all its sectors.
    pub live: u64,
    pub log: u64,
    /// The same of the oldest segments, as many as would be cleaned at once.
    pub oldest_live: u64,
    pub oldest: u64,
}

/// Whether cleaning the oldest segments is better than a destage.
pub fn pays(fill: &Fill) -> bool {
    let Fill {
        live,
        log,
        oldest_live,
        oldest,
    } = *fill;
    oldest > 0 && live <= log / 2 && oldest_live <= oldest / 4 * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: u64 = 6400;

    fn of(live: u64, oldest_live: u64, oldest: u64) -> bool {
        pays(&Fill {
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

    /// A log that is written round and round, of which a share stays live, the same in each segment. As long
    /// as it is cleaned, a lap moves no more than it reclaims, and a log with less live data is cleaned.
    #[test]
    fn a_lap_costs_no_more_than_clients_wrote() {
        for share in 0..=100 {
            let live = LOG * share / 100;
            let (moved, won) = (live, LOG - live);
            assert_eq!(of(live, share, 100), moved <= won, "{share}%");
        }
    }
}
