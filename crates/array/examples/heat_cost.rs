//! Instructions of a read and of a write, from the arrival to the reply, and those of them that note what is hot. valgrind
//! counts them, so neither the machine nor its load shows. Besides, the time of a read.
//!
//! `cargo run --release -p restripe-array --example heat_cost`

#[path = "../tests/shell/mod.rs"]
#[allow(dead_code)] // Its other users have members fail.
mod shell;

use restripe_array::layout::{Level, Rotation};
use shell::{Shell, mixed};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Counted, and timed.
const COUNTED: u64 = 20_000;
const TIMED: u64 = 200_000;
const WARM_UP: u64 = 20_000;
const ROUNDS: usize = 9;
/// The argument with which this program only reads, and that with which it only writes.
const READS: &str = "reads";
const WRITES: &str = "writes";
/// Of 256 requests.
const ALL: u64 = 256;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some(READS) => return measured(&mut array(), COUNTED, 0),
        Some(WRITES) => return measured(&mut array(), COUNTED, ALL),
        _ => {}
    }
    println!("engine alone, 5-member RAID-5, 64 KiB chunk, reads of 4 KiB all over, depth 32");
    let mut times: Vec<u64> = (0..ROUNDS).map(|_| timed()).collect();
    times.sort_unstable();
    let median = times[ROUNDS / 2];
    println!(
        "a read: median {median} ns, {} to {}, of {ROUNDS} rounds",
        times[0],
        times[ROUNDS - 1]
    );
    let whole = instructions(READS, "measured");
    let heat = instructions(READS, "note_heat");
    let write = instructions(WRITES, "measured");
    let (Some(whole), Some(heat), Some(write)) = (whole, heat, write) else {
        println!("skipped: instructions: needs valgrind");
        return;
    };
    let whole = whole as f64 / COUNTED as f64;
    // It is called while the array is read for the first time, too.
    let heat = heat as f64 / (WARM_UP + COUNTED) as f64;
    let share = heat / whole;
    println!(
        "instructions: {whole:.1} a read, {heat:.1} of them note what is hot, {:.2} %: {:.1} ns at the median",
        share * 100.0,
        share * median as f64
    );
    println!("instructions: {:.1} a write", write as f64 / COUNTED as f64);
}

fn array() -> Shell {
    let mut shell = Shell::new(Level::Raid5(Rotation::LeftSymmetric), 5, 1 << 20);
    mixed(&mut shell, WARM_UP, 32, 0);
    shell
}

/// A place with a name, at which counting begins and ends.
#[inline(never)]
fn measured(shell: &mut Shell, requests: u64, writes: u64) {
    mixed(shell, requests, 32, writes);
}

/// Nanoseconds a read.
fn timed() -> u64 {
    let mut shell = array();
    let start = Instant::now();
    measured(&mut shell, TIMED, 0);
    start.elapsed().as_nanos() as u64 / TIMED
}

/// Those of a function and of what it calls, within what is measured; `None` where nobody counts.
fn instructions(requests: &str, function: &str) -> Option<u64> {
    let myself = std::env::current_exe().ok()?;
    let out = std::env::temp_dir().join(format!("restripe-heat-{}", std::process::id()));
    let count = |path: &Path| {
        let ran = Command::new("valgrind")
            .args(["--tool=callgrind", "--collect-atstart=no"])
            .arg(format!("--toggle-collect=*{function}*"))
            .arg(format!("--callgrind-out-file={}", path.display()))
            .arg(&myself)
            .arg(requests)
            .stderr(Stdio::null())
            .status();
        ran.ok().filter(std::process::ExitStatus::success)?;
        let told = std::fs::read_to_string(path).ok()?;
        let line = told
            .lines()
            .find_map(|line| line.strip_prefix("totals: "))?;
        line.trim().parse().ok()
    };
    let counted = count(&out);
    // It is not there where nothing was counted.
    let _ = std::fs::remove_file(&out);
    counted
}
