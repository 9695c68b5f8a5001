//! What the extent map costs: nanoseconds an insert and a lookup, by how many extents there are.
//!
//! `cargo run --release -p restripe-tier --example bench_overlay`
//!
//! Extents of 8 sectors, each with its own place in the log. *Fill* inserts them all in a new map, in shuffled or rising
//! order; *overwrite* inserts each again, shuffled, with a new place; *split* overwrites the midst of each, which makes
//! three of one, and *replace part* does so when they are three already; *lookup* asks for a page's sectors; *full* is
//! an overwrite in a map without room. Rounds are interleaved; the lower quartile and the least are told, of the
//! processor's time.

use restripe_tier::overlay::{Extent, ExtentMap, Kind};
use std::hint::black_box;

const ROUNDS: usize = 7;
const SECTORS: u64 = 8;
const NAMES: [&str; 7] = [
    "fill, shuffled",
    "fill, rising",
    "lookup",
    "overwrite",
    "overwrite, full",
    "split",
    "replace part",
];

fn main() {
    for extents in [100_000, 1_000_000] {
        measure(extents);
    }
}

fn measure(extents: u32) {
    let mut times = vec![Vec::new(); NAMES.len()];
    let mut bytes = 0;
    for seed in 0..ROUNDS as u64 {
        let (spent, taken) = round(extents, seed);
        bytes = taken;
        for (times, ns) in times.iter_mut().zip(spent) {
            times.push(ns);
        }
    }
    println!("\n{extents} extents, room for three times as many: {bytes} bytes");
    println!("{:<16} {:>12} {:>10}", "", "quartile ns", "least ns");
    for (name, times) in NAMES.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!("{name:<16} {:>12.1} {:>10.1}", times[ROUNDS / 4], times[0]);
    }
}

/// Nanoseconds by what is measured, and the bytes of the map.
fn round(extents: u32, seed: u64) -> ([f64; NAMES.len()], usize) {
    let rising: Vec<u64> = (0..u64::from(extents)).map(|page| page * SECTORS).collect();
    let shuffled = shuffled(&rising, seed);
    let count = f64::from(extents);
    let mut map = ExtentMap::new(extents * 3);
    let mut full = ExtentMap::new(extents);
    let fill_shuffled = insert_all(&mut map, &shuffled, SECTORS, 1) / count;
    let fill_rising = insert_all(&mut full, &rising, SECTORS, 1) / count;
    let lookup = timed(|| {
        for home in &shuffled {
            map.lookup(*home..home + SECTORS).for_each(|piece| {
                black_box(piece);
            });
        }
    }) / count;
    let overwrite = insert_all(&mut map, &shuffled, SECTORS, 2) / count;
    let overwrite_full = insert_all(&mut full, &shuffled, SECTORS, 2) / count;
    let midst: Vec<u64> = shuffled.iter().map(|home| home + 2).collect();
    let split = insert_all(&mut map, &midst, SECTORS / 2, 3) / count;
    let part = insert_all(&mut map, &midst, SECTORS / 2, 4) / count;
    assert_eq!(map.extent_count(), extents * 3);
    let spent = [
        fill_shuffled,
        fill_rising,
        lookup,
        overwrite,
        overwrite_full,
        split,
        part,
    ];
    (spent, map.memory_bytes())
}

/// Nanoseconds of all these inserts, each at a place that no other continues.
fn insert_all(map: &mut ExtentMap, homes: &[u64], sectors: u64, sequence: u64) -> f64 {
    timed(|| {
        for (index, home) in homes.iter().enumerate() {
            let extent = Extent {
                home: *home,
                sectors: sectors as u32,
                at: index as u64 * 2 * SECTORS,
                sequence,
                kind: Kind::Instead,
            };
            map.insert(extent, |piece| {
                black_box(piece);
            })
            .expect("there is room");
        }
    })
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = processor_ns();
    work();
    (processor_ns() - start) as f64
}

/// What this process has had of a processor: other processes are not measured along.
fn processor_ns() -> u64 {
    let told = std::fs::read_to_string("/proc/self/schedstat").expect("Linux tells it");
    let first = told.split_whitespace().next();
    first.and_then(|ns| ns.parse().ok()).expect("a number")
}

fn shuffled(homes: &[u64], seed: u64) -> Vec<u64> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let mut homes = homes.to_vec();
    for last in (1..homes.len()).rev() {
        homes.swap(last, next() % (last + 1));
    }
    homes
}
