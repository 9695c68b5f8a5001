//! What does a request on a single drive model cost, and does that grow with the run? Random reads and writes, half of each,
//! by the order in which the drive serves them.
//!
//! `cargo run --release -p restripe-lab --example disk_scale`

mod clock;

use clock::cpu_seconds;
use restripe_lab::drives::preset::{self, Made};
use restripe_sim::disk::mechanical::{Command, Mechanical};
use restripe_sim::disk::queue::{Policy, Queue};
use restripe_sim::rng::Rng;

const SIZES: [u64; 3] = [100_000, 1_000_000, 10_000_000];
const ORDERS: [(&str, Policy, u32); 3] = [
    ("one at a time", Policy::Fcfs, 1),
    ("look, 32 waiting", Policy::Look, 32),
    ("sptf, 32 waiting", SPTF, 32),
];
const SPTF: Policy = Policy::Sptf {
    patience_ns: 500_000_000,
};

fn main() {
    println!("wd1600aajs, 4 KiB anywhere, write cache on");
    println!(
        "{:<18} {:>10} {:>8} {:>9}",
        "order", "requests", "CPU s", "us each"
    );
    for (name, policy, depth) in ORDERS {
        for requests in SIZES {
            let before = cpu_seconds();
            serve(drive(), policy, depth, requests);
            let took = cpu_seconds() - before;
            let each = took * 1e6 / requests as f64;
            println!("{name:<18} {requests:>10} {took:>8.2} {each:>9.3}");
        }
    }
}

fn drive() -> Mechanical {
    match preset::named("wd1600aajs").and_then(|preset| preset.make()) {
        Ok(Made::Mechanical(drive)) => *drive,
        _ => panic!("a preset of a mechanical drive"),
    }
}

/// So many requests, with as many of them in the drive as it takes.
fn serve(drive: Mechanical, policy: Policy, depth: u32, requests: u64) {
    let blocks = drive.geometry().blocks() / 8;
    let mut queue = Queue::new(drive, policy, depth);
    let mut rng = Rng::new(1);
    let (mut made, mut now) = (0, 0);
    while made < requests || !queue.is_empty() {
        while made < requests && !queue.full() {
            let block = rng.below(blocks) * 8;
            let command = match rng.below(2) {
                0 => Command::read(block, 8),
                _ => Command::write(block, 8),
            };
            queue.submit(now, made, command);
            made += 1;
        }
        if let Some(next) = queue.next_event() {
            now = next;
            queue.advance(now);
        }
    }
}
