//! Is a replay linear in its requests, and is its memory flat? One million and ten million requests of a synthetic
//! workload on a RAID-5 over nine drives, each in a process of its own.
//!
//! `cargo run --release -p restripe-lab --example replay_scale`

mod clock;

use clock::cpu_seconds;
use restripe_array::layout::{Level, Rotation};
use restripe_array::meta::WriteHole;
use restripe_array::{HeatLimits, Moves, Order, Throttle};
use restripe_lab::experiment::requests::generated;
use restripe_lab::generate::preset;
use restripe_lab::replay::simulated::replay;
use restripe_lab::replay::stage::{ArrayPlan, Stage};
use restripe_lab::replay::{Deed, Pace, Plan, Script, Until};
use restripe_sim::disk::queue::Policy;
use std::process::Command;

const SIZES: [usize; 3] = [100_000, 1_000_000, 10_000_000];

fn main() {
    if let Some(requests) = std::env::args().nth(1) {
        return one(requests.parse().expect("a number of requests"));
    }
    println!(
        "RAID-5 of nine wd1600aajs, fin1 (synthetic, mid locality), open loop at its own rate"
    );
    println!(
        "{:>10} {:>10} {:>10} {:>12} {:>14}",
        "requests", "CPU s", "us each", "peak MiB", "mean ms"
    );
    let myself = std::env::current_exe().expect("this program has a path");
    for requests in SIZES {
        let status = Command::new(&myself).arg(requests.to_string()).status();
        assert!(status.expect("this program runs").success());
    }
}

fn one(requests: usize) {
    let plan = ArrayPlan {
        level: Level::Raid5(Rotation::default()),
        skew: None,
        grown: None,
        spare_partitions: 0,
        members: 9,
        spares: 0,
        chunk_sectors: 128,
        member_bytes: 8 << 30,
        write_hole: WriteHole::Bitmap,
        drive: "wd1600aajs".into(),
        spare_drive: None,
        schedule: Policy::Sptf {
            patience_ns: 500_000_000,
        },
        write_cache: true,
        region_rows: None,
        standby_ns: None,
        cache: None,
        throttle: Throttle::default(),
        order: Order::default(),
        on_demand: false,
        moves: Moves::default(),
        heat: HeatLimits::default(),
        rebuild_min: 1 << 20,
        rebuild_max: 1 << 30,
        surrogate: None,
    };
    let mut stage = Stage::new(&plan, 1).expect("a sound plan");
    let parameters = preset::named("fin1").expect("there").expect("sound");
    let source = generated(&parameters, stage.size_bytes, 1).expect("it fits");
    let script = Script {
        pace: Pace::Open { speed_milli: 1000 },
        plans: vec![Plan::new("all", Deed::Nothing, Until::Exhausted)],
        step_ns: 60_000_000_000,
    };
    let log = replay(&mut stage, &mut source.take(requests), &script).expect("it ends");
    let (seconds, times) = (cpu_seconds(), &log.phases[0].times);
    println!(
        "{:>10} {seconds:>10.1} {:>10.2} {:>12.1} {:>14.2}",
        times.count,
        seconds * 1e6 / times.count as f64,
        peak_mib(),
        times.mean_ns as f64 / 1e6
    );
}

/// The most memory that this process ever had.
fn peak_mib() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}
