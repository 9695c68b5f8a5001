//! What one request costs on a mechanical disk: `cargo run --release -p restripe-sim --example bench_disk`.

use restripe_sim::disk::geometry::{Layout, Order, Sparing, Zone};
use restripe_sim::disk::mechanical::{
    Access, Ahead, AheadTo, AheadWhen, Bus, Cache, Command, Drive, Mechanical, Mechanism, OnWrite,
    Overheads,
};
use restripe_sim::disk::queue::{Policy, Queue};
use restripe_sim::disk::seek::SeekCurve;
use restripe_sim::rng::Rng;
use std::time::Instant;

const ZONES: u32 = 16;
const WIDTH: u32 = 16_000;
const REQUESTS: u64 = 1_000_000;

fn zone(index: u32) -> Zone {
    Zone {
        first_cylinder: index * WIDTH,
        last_cylinder: (index + 1) * WIDTH - 1,
        slots_per_track: 2278 - 70 * index,
        offset: 0.0,
        front: 0,
        track_skew: 250.0,
        cylinder_skew: 260.0,
        sparing: Sparing::None,
        slips: Vec::new(),
    }
}

/// Some 7200 rpm drive of 500 GB.
fn drive() -> Drive {
    let overhead = [90_000; 2];
    Drive {
        layout: Layout {
            surfaces: 2,
            cylinders: ZONES * WIDTH,
            turn_ns: 8_333_333,
            order: Order::SerpentineByParity,
            zones: (0..ZONES).map(zone).collect(),
            blocks: u64::MAX,
        },
        mechanism: Mechanism {
            seek: SeekCurve::RootLine {
                base_ns: 900_000.0,
                root_ns: 25_000.0,
                knee: 90_000,
                slope_ns: 50.0,
            },
            head_switch_ns: 850_000,
            write_settle_ns: 500_000,
            zero_latency: true,
        },
        bus: Bus {
            read_block_ns: 1_700,
            write_block_ns: 1_700,
            read_mark: 0,
            write_mark: 0,
        },
        overheads: Overheads {
            read_hit_ns: overhead,
            read_miss_ns: overhead,
            write_cached_ns: overhead,
            write_through_ns: overhead,
            read_done_ns: 0,
            write_done_ns: 0,
        },
        cache: Cache {
            segments: 32,
            segment_blocks: 3072,
            ahead: Ahead {
                to: AheadTo::SegmentFull,
                when: AheadWhen::Always,
                blocks: 3072,
                over_requested: true,
                follows_hits: true,
            },
            on_write: OnWrite::DropAll,
            write_back: true,
            write_segments: 11,
            write_delay_ns: 0,
            reads_hit_writes: true,
        },
    }
}

fn command(rng: &mut Rng, blocks: u64) -> Command {
    let access = if rng.below(3) == 0 {
        Access::Write
    } else {
        Access::Read
    };
    Command {
        access,
        block: rng.below(blocks / 8) * 8,
        blocks: 8,
        durable: false,
    }
}

fn alone() {
    let mut drive = Mechanical::new(drive()).expect("in range");
    let blocks = drive.geometry().blocks();
    let mut rng = Rng::new(1);
    let mut now = 0;
    let started = Instant::now();
    for _ in 0..REQUESTS {
        now = drive.service(now, command(&mut rng, blocks)) + rng.below(5_000_000);
    }
    report("one at a time", started);
}

fn queued(name: &str, policy: Policy, depth: u32) {
    let mut queue = Queue::new(Mechanical::new(drive()).expect("in range"), policy, depth);
    let blocks = queue.server().geometry().blocks();
    let mut rng = Rng::new(1);
    let started = Instant::now();
    let (mut now, mut served) = (0, 0);
    while served < REQUESTS / 4 {
        while !queue.full() {
            queue.submit(now, served, command(&mut rng, blocks));
        }
        now = queue.next_event().expect("a full queue serves");
        served += u64::from(queue.advance(now).is_some());
    }
    report_count(name, started, served);
}

fn report(name: &str, started: Instant) {
    report_count(name, started, REQUESTS);
}

fn report_count(name: &str, started: Instant, count: u64) {
    let micros = started.elapsed().as_secs_f64() * 1e6 / count as f64;
    println!("{name:<28} {micros:>8.3} us a request");
}

fn main() {
    alone();
    queued("depth 32, by arrival", Policy::Fcfs, 32);
    queued("depth 32, look", Policy::Look, 32);
    queued(
        "depth 32, positioning time",
        Policy::Sptf {
            patience_ns: u64::MAX,
        },
        32,
    );
}
