//! The coverage table of a code cache: each event meets it at each moment, or cannot, and then never does. A failure prints the
//! seed; `surrogates --gathers --quests --seed N --trace` replays it.

use crate::cover::{Suite, deep, fill};
use restripe_array::BAND_SECTORS_MAX;
use restripe_sim::surrogate::{Event, Moment, Options, Outcome, run, seeds_for, why_not};
use restripe_tier::overlay::format::EXTENTS_MAX;

/// No record is ever sealed because its table is full: each entry of it is of a sector of its payload or more. So the table
/// has no such moment.
const _: () = assert!(EXTENTS_MAX as u64 >= BAND_SECTORS_MAX);

/// Seeds of each cell that the cover is chosen from: not each life that sets out for a cell meets it.
const EACH: usize = 4;
const EACH_IN_DEPTH: usize = 40;

fn cells() -> impl Iterator<Item = (Moment, Event)> {
    let events = Event::ALL.into_iter();
    events.flat_map(|event| Moment::ALL.map(|moment| (moment, event)))
}

/// Seeds that set out for each cell this often.
fn seeds_of_all(each: usize) -> u64 {
    let seeds = cells().flat_map(|(moment, event)| seeds_for(moment, event).take(each));
    seeds.max().map_or(0, |last| last + 1)
}

#[test]
fn each_event_meets_a_code_cache_at_each_moment() {
    let options = Options {
        gathers: true,
        quests: true,
        ..Options::default()
    };
    let suite = Suite {
        command: "surrogates --gathers --quests".into(),
        full: 0..seeds_of_all(EACH),
        deep: seeds_of_all(EACH_IN_DEPTH),
        fresh: 150,
        run: Box::new(move |seed| run(seed, options)),
    };
    let met = fill("quests", &[suite]);
    let wrong = cells_missed(&met, deep(1, 8));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Of cells that can be met, those that were not so often; of others, those that were.
fn cells_missed(met: &Outcome, least: u64) -> Vec<String> {
    let mut wrong = Vec::new();
    for (moment, event) in cells() {
        let times = met.events.get(&(moment, event)).copied().unwrap_or(0);
        match why_not(moment, event) {
            None if times < least => {
                wrong.push(format!("{event:?}, {moment}: {times} times, not {least}"));
            }
            Some(why) if times > 0 => {
                wrong.push(format!("{event:?}, {moment}: {times} times, but {why}"));
            }
            _ => {}
        }
    }
    wrong
}

/// The same seed gives the same life.
#[test]
fn a_seed_says_it_all() {
    let options = Options {
        gathers: true,
        quests: true,
        ..Options::default()
    };
    for seed in 0..10 {
        assert_eq!(run(seed, options), run(seed, options));
    }
}
