//! What the cache's rules cost a request: nanoseconds by rule, on a whole array and on a degraded one.
//!
//! `cargo run --release -p restripe-array --example bench_cache`
//!
//! The requests are CloudPhysics' where the shared folder of traces is there: the whole trace as libCacheSim ships it,
//! otherwise the sample of its first 80,000 requests. Each request is one block, by its first sector. A synthetic string
//! comes beside it, in a cache that no processor's cache holds. Rounds of all rules are interleaved; the lower quartile
//! of the rounds is told, the least besides; of the processor's time, so that other processes count less.

use restripe_array::cache::{Cache, CacheConfig, Rule, Ties};
use std::path::{Path, PathBuf};
use std::process::Command;

const ROUNDS: usize = 7;
/// Requests of a round, at least: a string is repeated until it has as many.
const REQUESTS: usize = 1_000_000;
const SLOTS: u16 = 8;
/// Blocks of a chunk, where the string counts sectors of 512 bytes and where it counts blocks of 4 KiB.
const CHUNK_SECTORS: u64 = 128;

struct Load {
    name: String,
    frames: u32,
    /// Blocks with the slots that they lie on.
    blocks: Vec<(u64, u16)>,
}

fn main() {
    for load in [cloudphysics(), Some(synthetic())].into_iter().flatten() {
        measure(&load);
    }
}

fn measure(load: &Load) {
    println!("\n{}, {} frames, {SLOTS} slots", load.name, load.frames);
    println!(
        "{:<10} {:>10} {:>8} {:>12} {:>10}",
        "rule", "slot 0", "missed", "quartile ns", "least ns"
    );
    let contenders: Vec<(Rule, u16)> = [1, SLOTS - 1]
        .into_iter()
        .flat_map(|reads| Rule::ALL.map(|rule| (rule, reads)))
        .collect();
    let mut times = vec![Vec::new(); contenders.len()];
    let mut missed = vec![0.0; contenders.len()];
    for _ in 0..ROUNDS {
        for (index, &(rule, reads)) in contenders.iter().enumerate() {
            let (ns, share) = round(load, rule, reads);
            times[index].push(ns);
            missed[index] = share;
        }
    }
    for (index, (rule, reads)) in contenders.iter().enumerate() {
        times[index].sort_by(f64::total_cmp);
        println!(
            "{:<10} {:>10} {:>7.2}% {:>12.1} {:>10.1}",
            rule.name(),
            if *reads == 1 { "stands" } else { "failed" },
            missed[index] * 100.0,
            times[index][ROUNDS / 4],
            times[index][0],
        );
    }
}

/// Nanoseconds a request, and the share that missed.
fn round(load: &Load, rule: Rule, reads: u16) -> (f64, f64) {
    let mut cache = Cache::new(CacheConfig {
        frames: load.frames,
        stacks: SLOTS,
        rule,
        ties: Ties::Oldest,
    });
    cache.set_penalty(0, reads);
    let times = REQUESTS.div_ceil(load.blocks.len());
    let mut misses = 0u64;
    let start = processor_ns();
    for _ in 0..times {
        for &(block, slot) in &load.blocks {
            if cache.ask(block).is_none() {
                cache.admit(block, slot);
                misses += 1;
            }
        }
    }
    let count = (times * load.blocks.len()) as f64;
    let spent = processor_ns() - start;
    (spent as f64 / count, misses as f64 / count)
}

/// What this process has had of a processor: other processes are not measured along.
fn processor_ns() -> u64 {
    let told = std::fs::read_to_string("/proc/self/schedstat").expect("Linux tells it");
    let first = told.split_whitespace().next();
    first.and_then(|ns| ns.parse().ok()).expect("a number")
}

fn cloudphysics() -> Option<Load> {
    let shared = std::env::var_os("RESTRIPE_SHARED").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let traces = shared.unwrap_or(beside).join("traces");
    let (name, bytes) = match std::fs::read(traces.join("cloudPhysicsIO.vscsi")) {
        Ok(bytes) => ("CloudPhysics, whole", bytes),
        Err(_) => {
            let sample = traces.join("cloudphysics.req00001-80000.vscsi1.zst");
            let told = Command::new("zstd").arg("-dc").arg(sample).output().ok()?;
            ("CloudPhysics, its first 80,000 requests", told.stdout)
        }
    };
    // Records of 32 bytes; the first sector is a little-endian number at byte 16.
    let sector = |record: &[u8]| {
        let number = record[16..24].try_into().expect("eight bytes");
        u64::from_le_bytes(number)
    };
    let sectors: Vec<u64> = bytes.chunks_exact(32).map(sector).collect();
    let load = Load {
        name: format!("{name}, over and over"),
        frames: 5000,
        blocks: sectors.into_iter().map(placed).collect(),
    };
    (!load.blocks.is_empty()).then_some(load)
}

/// Half the requests go to a place of their own, the others to one of 2^k for some k: a string without a scale.
fn synthetic() -> Load {
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut block = || match next() % 2 {
        0 => next() % (1 << 22),
        _ => next() % (1 << (next() % 22)),
    };
    Load {
        name: "synthetic string".into(),
        frames: 262_144,
        blocks: (0..REQUESTS).map(|_| placed(block() * 8)).collect(),
    }
}

/// A first sector with the slot that has it: chunks go round.
fn placed(sector: u64) -> (u64, u16) {
    (sector, (sector / CHUNK_SECTORS % u64::from(SLOTS)) as u16)
}
