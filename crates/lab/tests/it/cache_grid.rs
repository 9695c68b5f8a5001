//! Grids of caches: those built in are sound and run, threads do not show, and no rule gains what none can.

use crate::shared;
use restripe_lab::cache::grid::{self, Cell};
use restripe_lab::cache::rebuild_seconds;
use restripe_lab::experiment::scenario::{Scale, Scenario, Value, parse};
use std::path::Path;

fn short(name: &str, threads: usize) -> Vec<Cell> {
    let scenario = parse(grid::named(name).expect("built in")).expect(name);
    let cells = grid::run(scenario, Scale::Short, Path::new("."), threads, &|_, _| {});
    cells.unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn every_built_in_grid_is_sound_and_has_ten_pairs_or_says_why_not() {
    for name in grid::names() {
        let scenario = parse(grid::named(name).expect("listed")).expect(name);
        assert_eq!(scenario.name, name);
        // Of a recorded trace there are as many pairs as members.
        let wanted = if recorded(&scenario) { 8 } else { 10 };
        assert_eq!(scenario.seeds, wanted, "{name}");
    }
}

fn recorded(scenario: &Scenario) -> bool {
    let sources = scenario.sweep.get("workload.source").into_iter().flatten();
    let all: Vec<String> = sources.map(|source| source.to_string()).collect();
    all.iter().any(|source| source.starts_with("trace:"))
}

#[test]
fn no_lru_gains_more_than_the_failed_members_share() {
    let synthetic = |name: &&str| {
        let text = grid::named(name).expect("listed");
        !recorded(&parse(text).expect("sound"))
    };
    for name in grid::names().filter(synthetic) {
        for cell in short(name, 2) {
            assert_eq!(cell.pairs.len(), 2);
            for pair in &cell.pairs {
                assert!(pair.base.asked > 0 && pair.base.asked == pair.vdf.asked);
                let lru = pair.base.rule == "lru";
                assert!(!(lru && pair.over_bound()), "{name}, {:?}", cell.point);
            }
        }
    }
}

#[test]
fn the_number_of_threads_does_not_show() {
    assert_eq!(short("vdf-raid6", 1), short("vdf-raid6", 3));
}

#[test]
fn a_weight_of_one_is_the_base_rule() {
    let text = grid::named("vdf-weight").expect("built in");
    let text = text.replace(
        "\"cache.weight\" = [1, 2, 3, 4, 7]",
        "\"cache.weight\" = [1]",
    );
    let cells = grid::run(
        parse(&text).expect("sound"),
        Scale::Short,
        Path::new("."),
        2,
        &|_, _| {},
    );
    for cell in cells.expect("it runs") {
        for pair in cell.pairs {
            let (base, vdf) = (&pair.base, &pair.vdf);
            assert_eq!((base.misses, base.reads), (vdf.misses, vdf.reads));
        }
    }
}

#[test]
fn on_real_samples_too() {
    let test = "cache_grid::on_real_samples_too";
    let Some(folder) = shared::folder("traces", "README.md", test) else {
        return;
    };
    let scenario = grid::load("vdf-samples").expect("built in");
    let cells = grid::run(scenario, Scale::Short, &folder, 2, &|_, _| {}).expect("it runs");
    assert_eq!(cells.len(), 6);
    for cell in &cells {
        let lru = cell.pairs[0].base.rule == "lru";
        assert!(!lru || cell.over_bound() == 0, "{:?}", cell.point);
        assert!(cell.pairs[0].base.misses > 0);
    }
}

#[test]
fn the_papers_rebuild_time_is_what_users_leave() {
    // BW = BWu x RGR + BWr, and RD = Q / BWr.
    let (bandwidth, user, rgr, read) = (700e6, 100e6, 1.75, 105e9);
    let left = bandwidth - user * rgr;
    assert_eq!(
        rebuild_seconds(read, bandwidth, user, rgr),
        Some(read / left)
    );
    assert_eq!(rebuild_seconds(read, bandwidth, user, rgr), Some(200.0));
    assert_eq!(rebuild_seconds(read, bandwidth, 400e6, rgr), None);
}

/// VDF-LRU holds blocks of standing members for a part of the time for which LRU does, and those of the failed one for n-1
/// times as long as that: so it loses what is asked for again within the one span, and gains what is within the other.
#[test]
fn where_blocks_are_asked_for_again_decides_who_gains() {
    let text = grid::named("vdf-distance").expect("built in");
    let says = |distance: &str| {
        let mut scenario = parse(text).expect("sound").shortened();
        scenario.seeds = 4;
        let of = |value: &str| vec![Value::Text(value.into())];
        scenario.sweep.insert("cache.base".into(), of("lru"));
        let depth = distance.parse().expect("a number");
        let depths = vec![Value::Whole(depth)];
        scenario
            .sweep
            .insert("workload.reread_distance".into(), depths);
        let cells = grid::run(scenario, Scale::Whole, Path::new("."), 2, &|_, _| {});
        cells.expect("it runs")[0].says()
    };
    // Of 256 blocks: within both, lost, gained.
    assert_eq!(says("100"), "undecided");
    assert_eq!(says("200"), "more");
    assert_eq!(says("600"), "less");
}

#[test]
fn a_cell_over_its_bound_is_flagged_as_what_it_is() {
    let scenario = parse(grid::named("vdf-raid6").expect("built in")).expect("sound");
    let mut cells = short("vdf-raid6", 2);
    let clean = grid::table(&scenario, &cells);
    assert!(!clean.contains("over the bound"), "{clean}");
    for cell in &mut cells {
        cell.pairs[0].vdf.reads = 1;
        cell.pairs[0].vdf.reads_failed = 0;
    }
    let told = grid::table(&scenario, &cells);
    let flagged: Vec<&str> = told
        .lines()
        .filter(|line| line.starts_with("over the bound"))
        .collect();
    assert_eq!(flagged.len(), cells.len(), "{told}");
    for line in flagged {
        let proved = line.contains(" lru ");
        assert_eq!(line.contains("cannot gain that much"), proved, "{line}");
        assert_eq!(line.contains("no bound is proved"), !proved, "{line}");
    }
}
