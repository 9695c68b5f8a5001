//! Arrays with a surrogate, through whole lives from seeds. A failure prints the seed; `surrogates --seed N --trace`
//! replays it.

use restripe_sim::surrogate::{Options, run};
use std::collections::BTreeMap;

/// Each of these is met so often at least.
const MET: [(&str, u64); 10] = [
    ("runs to the end", 100),
    ("writes redirected", 1000),
    ("reads of the log", 200),
    ("reads of both", 50),
    ("sectors home", 1000),
    ("crashes with data away", 20),
    ("crashes while going home", 10),
    ("clean copies", 300),
    ("surrogates lost", 20),
    ("tasks of the surrogate", 20),
];

#[test]
fn nothing_is_lost_on_the_way_away_and_home() {
    let seeds = if std::env::var_os("RESTRIPE_DEEP").is_some() {
        20_000
    } else {
        600
    };
    let mut met: BTreeMap<&str, u64> = BTreeMap::new();
    let mut broken = Vec::new();
    for seed in 0..seeds {
        let outcome = run(seed, Options::default());
        if let Some(violation) = outcome.violations.first() {
            broken.push(format!("surrogates --seed {seed}: {violation}"));
        }
        for (what, times) in outcome.met {
            *met.entry(what).or_default() += times;
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    for (what, least) in MET {
        let times = met.get(what).copied().unwrap_or(0);
        assert!(
            times >= least,
            "{what}: {times} times, not {least}: {met:?}"
        );
    }
}

/// The same seed gives the same actions.
#[test]
fn a_seed_says_it_all() {
    for seed in 0..20 {
        assert_eq!(run(seed, Options::default()), run(seed, Options::default()));
    }
}
