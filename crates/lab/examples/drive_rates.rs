//! Sequential rates of every mechanical preset beside what its platters bring by.
//!
//! `cargo run --release -p restripe-lab --example drive_rates`

use restripe_lab::drives::preset::{self, Made};
use restripe_sim::disk::mechanical::{Command, Mechanical};
use restripe_sim::disk::queue::{Policy, Queue};

const BLOCKS: u32 = 128;

/// MB/s of the second half of a gigabyte of 64 KiB commands from the first block on.
fn rate(drive: Mechanical, command: fn(u64, u32) -> Command, depth: u32) -> f64 {
    let policy = Policy::Sptf {
        patience_ns: 2_000_000_000,
    };
    let mut queue = Queue::new(drive, policy, depth);
    let (mut now, mut id, mut warm) = (0, 0, 0);
    let (most, counted) = (16_384, 8_192);
    loop {
        while !queue.full() && id < most {
            queue.submit(now, id, command(id * u64::from(BLOCKS), BLOCKS));
            id += 1;
        }
        let Some(at) = queue.next_event() else {
            break;
        };
        now = at;
        let done = queue.advance(now).expect("due").id;
        if done == most - counted - 1 {
            warm = now;
        }
    }
    counted as f64 * 65_536.0 / 1e6 / ((now - warm) as f64 / 1e9)
}

fn main() {
    println!(
        "{:<12} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "MB/s", "zone", "read, 1", "read, 32", "write, 1", "write, 32"
    );
    for name in preset::names() {
        let preset = preset::named(name).expect("well formed");
        let Made::Mechanical(drive) = preset.make().expect("in range") else {
            continue;
        };
        let layout = &drive.drive().layout;
        let (zone, surfaces) = (&layout.zones[0], f64::from(layout.surfaces));
        let slots = f64::from(zone.slots_per_track);
        let turns = surfaces + (zone.track_skew * (surfaces - 1.0) + zone.cylinder_skew) / slots;
        let zone = slots * surfaces * 512.0 / (turns * layout.turn_ns as f64 / 1e3);
        let new = || Mechanical::new(drive.drive().clone()).expect("in range");
        println!(
            "{name:<12} {zone:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1}",
            rate(new(), Command::read, 1),
            rate(new(), Command::read, 32),
            rate(new(), Command::write, 1),
            rate(new(), Command::write, 32),
        );
    }
}
