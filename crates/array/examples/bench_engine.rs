//! What the engine alone costs a request, in CPU time, with members that answer at once and keep no data.
//!
//! `cargo run --release -p restripe-array --example bench_engine`

#[path = "../tests/shell/mod.rs"]
mod shell;

use restripe_array::layout::{Level, Rotation};
use shell::{Shell, mixed};
use std::time::Instant;

const ROUNDS: usize = 7;
const REQUESTS: u64 = 200_000;

fn main() {
    println!("engine alone, 5-member RAID-5, 64 KiB chunk, 4 KiB requests all over, depth 32");
    println!("{:<28} {:>12} {:>12}", "", "median ns", "lowest ns");
    for (name, writes, degraded) in [
        ("reads", 0, false),
        ("reads, a member missing", 0, true),
        ("writes", 256, false),
        ("writes, a member missing", 256, true),
    ] {
        let mut times: Vec<u64> = (0..ROUNDS).map(|_| round(writes, degraded)).collect();
        times.sort_unstable();
        println!("{name:<28} {:>12} {:>12}", times[ROUNDS / 2], times[0]);
    }
}

/// Nanoseconds a request, everything between the request and its reply included.
fn round(writes: u64, degraded: bool) -> u64 {
    let mut shell = Shell::new(Level::Raid5(Rotation::LeftSymmetric), 5, 1 << 20);
    if degraded {
        shell.fail(1);
    }
    mixed(&mut shell, 20_000, 32, writes);
    let start = Instant::now();
    mixed(&mut shell, REQUESTS, 32, writes);
    start.elapsed().as_nanos() as u64 / REQUESTS
}
