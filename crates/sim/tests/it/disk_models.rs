//! The disk models against what is known without them: geometry, media rate, queueing theory, positioning-time scheduling.

use restripe_array::{Class, IoOp, Nanos, Tag};
use restripe_sim::disk::flash::{Flash, FlashDrive};
use restripe_sim::disk::geometry::{Geometry, Layout, Order, Sparing, Zone};
use restripe_sim::disk::mechanical::{
    Ahead, AheadTo, AheadWhen, Bus, Cache, Command, Drive, Mechanical, Mechanism, OnWrite,
    Overheads,
};
use restripe_sim::disk::queue::{Policy, Queue, Server};
use restripe_sim::disk::seek::SeekCurve;
use restripe_sim::disk::served::HardDisk;
use restripe_sim::disk::{Asked, Device};
use restripe_sim::rng::Rng;
use std::collections::BTreeSet;

fn zone(first: u32, last: u32, slots: u32, sparing: Sparing, slips: Vec<u64>) -> Zone {
    Zone {
        first_cylinder: first,
        last_cylinder: last,
        slots_per_track: slots,
        offset: 0.0,
        front: 0,
        track_skew: f64::from(slots / 10),
        cylinder_skew: f64::from(slots / 8),
        sparing,
        slips,
    }
}

fn layout(zones: Vec<Zone>, order: Order) -> Layout {
    Layout {
        surfaces: 4,
        cylinders: zones.last().expect("a zone").last_cylinder + 1,
        turn_ns: 8_333_333,
        order,
        zones,
        blocks: u64::MAX,
    }
}

/// A drive of 7200 turns a minute, about 1.3 GB.
fn drive() -> Drive {
    let zones = vec![
        zone(0, 1499, 400, Sparing::None, vec![]),
        zone(1500, 2999, 300, Sparing::None, vec![]),
    ];
    let overhead = [100_000; 2];
    Drive {
        layout: layout(zones, Order::Forward),
        mechanism: Mechanism {
            seek: SeekCurve::RootLine {
                base_ns: 800_000.0,
                root_ns: 220_000.0,
                knee: 1000,
                slope_ns: 3_000.0,
            },
            head_switch_ns: 800_000,
            write_settle_ns: 500_000,
            zero_latency: false,
        },
        bus: Bus {
            read_block_ns: 2_000,
            write_block_ns: 2_000,
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
            segments: 8,
            segment_blocks: 512,
            ahead: Ahead {
                to: AheadTo::SegmentFull,
                when: AheadWhen::Always,
                blocks: 512,
                over_requested: true,
                follows_hits: true,
            },
            on_write: OnWrite::DropAll,
            write_back: false,
            write_segments: 4,
            write_delay_ns: 0,
            reads_hit_writes: true,
        },
    }
}

fn mechanical(drive: Drive) -> Mechanical {
    Mechanical::new(drive).expect("in range")
}

fn read(block: u64, blocks: u32) -> Command {
    Command::read(block, blocks)
}

fn write(block: u64, blocks: u32) -> Command {
    Command::write(block, blocks)
}

fn forced(block: u64, blocks: u32) -> Command {
    Command {
        durable: true,
        ..write(block, blocks)
    }
}

#[test]
fn every_block_has_a_place_of_its_own() {
    let sparings = [
        Sparing::None,
        Sparing::Tracks(5),
        Sparing::TrackEnd(2),
        Sparing::CylinderEnd(5),
        Sparing::CylinderFront(5),
        Sparing::Range {
            cylinders: 3,
            spares: 7,
        },
        Sparing::Zone(9),
    ];
    for sparing in sparings {
        for order in [Order::Forward, Order::Serpentine, Order::SerpentineByParity] {
            let zones = vec![
                zone(0, 8, 20, sparing, vec![3, 4, 90, 170, 171]),
                zone(10, 18, 13, sparing, vec![]),
            ];
            let geometry = Geometry::new(layout(zones, order)).expect("in range");
            let mut places = BTreeSet::new();
            for block in 0..geometry.blocks() {
                let place = geometry.locate(block);
                assert!(place.angle_ns < 8_333_333 && place.run > 0);
                let new = places.insert((place.cylinder, place.surface, place.angle_ns));
                assert!(new, "block {block} shares a slot ({sparing:?}, {order:?})");
            }
        }
    }
}

/// With spare tracks, a defect costs its whole track, and a spare makes up for it (DiskSim 4.0's "track sparing").
#[test]
fn spare_tracks_make_up_for_whole_tracks() {
    let of = |slips| {
        let zones = vec![zone(0, 8, 20, Sparing::Tracks(3), slips)];
        Geometry::new(layout(zones, Order::Forward))
    };
    let (whole, slipped) = (of(vec![]).expect("fits"), of(vec![2, 9]).expect("fits"));
    assert_eq!(slipped.capacity(), whole.capacity());
    assert_eq!(whole.capacity(), (9 * 4 - 3) * 20);
    for block in 0..slipped.blocks() {
        let moved = match block / 20 {
            0..2 => 0,
            2..8 => 1,
            _ => 2,
        };
        let (place, expected) = (slipped.locate(block), block + 20 * moved);
        let track = u64::from(place.cylinder) * 4 + u64::from(place.surface);
        assert_eq!(track, expected / 20, "block {block}");
        if expected < whole.blocks() {
            assert_eq!(place.angle_ns, whole.locate(expected).angle_ns);
        }
        assert_eq!(u64::from(place.run), 20 - block % 20);
    }
    assert!(of(vec![1, 2, 3, 4]).is_err(), "more than the spares");
}

#[test]
fn a_run_lies_on_one_track_without_gaps() {
    let zones = vec![zone(
        0,
        8,
        20,
        Sparing::Range {
            cylinders: 3,
            spares: 7,
        },
        vec![3, 4, 90, 170],
    )];
    let geometry = Geometry::new(layout(zones, Order::Serpentine)).expect("in range");
    for block in 0..geometry.blocks() {
        let place = geometry.locate(block);
        for step in 1..u64::from(place.run).min(geometry.blocks() - block) {
            let next = geometry.locate(block + step);
            assert_eq!(
                (next.cylinder, next.surface),
                (place.cylinder, place.surface)
            );
            let turned = (next.angle_ns + 8_333_333 - place.angle_ns) % 8_333_333;
            assert!(
                turned.abs_diff(step * 8_333_333 / 20) <= 2,
                "block {block} + {step}"
            );
        }
    }
}

#[test]
fn sequential_reads_run_at_the_rate_of_the_medium() {
    let mut drive = mechanical(drive());
    let (mut now, blocks) = (0, 400 * 4 * 50);
    for block in (0..blocks).step_by(64) {
        now = drive.service(now, read(block, 64));
    }
    // 50 cylinders: 200 turns, three head switches of a tenth of a turn and a cylinder change of an eighth on each.
    let turns = 200.0 + 50.0 * (0.3 + 0.125);
    let ideal = turns * 8_333_333.0;
    let ratio = now as f64 / ideal;
    assert!((0.99..1.02).contains(&ratio), "{ratio}");
}

#[test]
fn random_reads_take_a_seek_half_a_turn_and_the_transfer() {
    let mut drive = mechanical(drive());
    let mut rng = Rng::new(1);
    let (mut now, count) = (0, 20_000);
    let blocks = drive.geometry().blocks();
    for _ in 0..count {
        now = drive.service(now, read(rng.below(blocks / 8) * 8, 8)) + rng.below(8_333_333);
    }
    let work = drive.work();
    let rotation = work.rotate_ns as f64 / count as f64 / 8_333_333.0;
    assert!((0.48..0.52).contains(&rotation), "{rotation} turns");
}

#[test]
fn a_write_cache_hides_the_medium_until_it_is_full() {
    let mut cached = drive();
    cached.cache.write_back = true;
    let mut drive = mechanical(cached);
    let times: Vec<u64> = (0..6)
        .scan(0, |now, index| {
            let done = drive.service(*now, write(index * 100_000, 8));
            let time = done - *now;
            *now = done;
            Some(time)
        })
        .collect();
    assert!(times[..4].iter().all(|time| *time == 116_000), "{times:?}");
    assert!(times[5] > 1_000_000, "{times:?}");
    let now = times.iter().sum();
    assert!(drive.flush(now) > now + 5_000_000, "the medium is behind");
    let flushed = drive.flush(now);
    assert_eq!(drive.flush(flushed), flushed);
}

/// Writes that join one another, and writes that do not, for five simulated minutes: what is in the cache is never more than
/// it has, and what the platter has taken is never more than it brings by. Both are counted here, by the drive's own clock.
#[test]
fn a_write_cache_holds_what_it_has_however_its_writes_lie() {
    for (what, stride) in [("one stream", 0), ("with gaps", 40), ("scattered", 999_983)] {
        let mut cached = drive();
        cached.cache.write_back = true;
        let most = u64::from(cached.cache.write_segments * cached.cache.segment_blocks);
        let media = 400.0 * 512.0 / 8_333_333.0;
        let mut drive = mechanical(cached);
        let room = drive.geometry().blocks() - 1_000;
        let (mut now, mut block, mut index) = (0, 0, 0);
        while now < 300_000_000_000 {
            now = drive.service(now, write(block, 64));
            index += 1;
            let gap = if index % 5 == 0 { stride } else { 0 };
            block = (block + 64 + gap) % room;
            let work = drive.work();
            assert_eq!(work.cached_blocks, 64 * index, "{what}");
            let on_medium = media * now as f64 / 512.0;
            let taken = work.cached_blocks as f64 - most as f64;
            assert!(
                taken <= on_medium,
                "{what}: {taken} by {now}, not {on_medium}"
            );
        }
        let flushed = drive.flush(now);
        let work = drive.work();
        assert_eq!(work.written_blocks, work.cached_blocks, "{what}");
        assert!(
            flushed < now + 4_000_000_000,
            "{what}: one flush writes what is left"
        );
    }
}

/// The drive's own word of what a write costs: nothing where the cache has room, and then its service needs no more than
/// its overhead and the bus.
#[test]
fn a_write_that_needs_no_positioning_does_not_wait() {
    let mut cached = drive();
    cached.cache.write_back = true;
    let mut drive = mechanical(cached);
    let mut rng = Rng::new(8);
    let (mut now, mut block, mut free, mut waited) = (0, 0, 0, 0);
    for index in 0..20_000 {
        if index % 7 == 0 {
            block = rng.below(100_000) * 8;
        }
        let command = write(block, 32);
        drive.advance(now);
        let positioning = drive.positioning(now, command);
        let done = drive.service(now, command);
        let waits = done > now + 100_000 + 32 * 2_000;
        assert_eq!(positioning > 0, waits, "write {index}");
        free += u64::from(!waits);
        waited += u64::from(waits);
        block += 32;
        now = done + rng.below(4_000_000);
    }
    assert!(free > 1_000 && waited > 1_000, "{free} {waited}");
}

/// A forced write costs what it costs with the cache off, and what waits in the cache goes on waiting.
#[test]
fn a_forced_write_passes_the_write_cache() {
    let mut cached = drive();
    cached.cache.write_back = true;
    cached.cache.write_delay_ns = 1_000_000_000;
    let (mut forcing, mut through) = (mechanical(cached), mechanical(drive()));
    let mut now = 0;
    for index in 0..20 {
        let block = index * 37_111 % 90_000;
        let done = forcing.service(now, forced(block, 8));
        assert_eq!(done, through.service(now, write(block, 8)), "write {index}");
        now = done + 3_000_000;
    }
    let cached = forcing.service(now, write(50_000, 8));
    assert_eq!(cached - now, 116_000);
    let forced = forcing.service(cached, forced(70_000, 8));
    assert!(forced > cached + 1_000_000);
    assert!(forcing.flush(forced) > forced + 1_000_000, "one waits yet");
}

/// The seam passes on what the engine asks for: [`restripe_array::DeviceIo::durable`].
#[test]
fn the_simulated_world_forces_writes_on_both_kinds_of_drive() {
    let mut cached = drive();
    cached.cache.write_back = true;
    let hard = HardDisk::new(mechanical(cached), Policy::Fcfs, None);
    let flash = Flash::new(FlashDrive {
        blocks: 1 << 20,
        page_blocks: 8,
        channels: 4,
        read_ns: 50_000,
        program_ns: 600_000,
        overhead_ns: 10_000,
        link_rate: 500_000_000,
        write_buffer_pages: 16,
    });
    let devices: [Box<dyn Device>; 2] = [Box::new(hard), Box::new(flash.expect("sound"))];
    for mut device in devices {
        let mut rng = Rng::new(1);
        let mut took = |op, durable, from: u64| {
            let asked = Asked {
                tag: Tag(1),
                op,
                class: Class::User,
                at: 4096,
                sectors: 8,
                durable,
                arrived: Nanos(from),
            };
            device.serve(Nanos(from), &asked, &mut rng).0 - from
        };
        let cached = took(IoOp::Write, false, 0);
        let flush = took(IoOp::Flush, false, cached);
        assert!(cached < 200_000 && flush > 400_000, "{cached} {flush}");
        let forced = took(IoOp::Write, true, 1_000_000_000);
        assert!(forced > 500_000, "{forced}");
        assert_eq!(took(IoOp::Flush, false, 2_000_000_000), 0, "nothing waits");
        assert!(took(IoOp::Trim, false, 3_000_000_000) < 100_000);
    }
}

/// The bus waits for a share of a read's blocks: the time between two tracks is none, wherever in the read it lies.
#[test]
fn the_bus_begins_when_enough_blocks_have_passed() {
    let bus_begins = |before_switch: u64, mark: u32| {
        let mut slow = drive();
        slow.bus.read_mark = mark;
        slow.bus.read_block_ns = 200_000;
        let mut slow = mechanical(slow);
        let command = read(400 - before_switch, 40);
        let passes = slow.positioning(100_000, command) + 100_000;
        let bus = 40 * 200_000;
        slow.service(0, command) - bus - passes
    };
    let slot = 8_333_333 / 400;
    // The bus begins before the head leaves the track, as late as in a read within the track.
    for (before_switch, mark, blocks) in [(39, 75, 30), (30, 75, 30), (400, 75, 30), (20, 0, 1)] {
        let begun = bus_begins(before_switch, mark);
        assert!(
            begun.abs_diff(blocks * slot) < 100,
            "{before_switch} {begun}"
        );
    }
    let skew = 40 * slot;
    let begun = bus_begins(29, 75);
    assert!(begun.abs_diff(30 * slot + skew) < 100, "{begun}");
}

#[test]
fn what_was_read_ahead_is_a_hit_and_what_was_overwritten_is_not() {
    let mut drive = mechanical(drive());
    let done = drive.service(0, read(1000, 8));
    let later = done + 50_000_000;
    assert_eq!(drive.service(later, read(1008, 8)), later + 116_000);
    let written = drive.service(later + 10_000_000, write(1020, 8));
    let again = written + 50_000_000;
    assert!(drive.service(again, read(1016, 8)) > again + 300_000);
}

// ----------------------------------------------------------------------------------------------- queueing theory

/// Serves in a time that does not depend on the command.
struct Line {
    mean_ns: f64,
    exponential: Option<Rng>,
}

fn exponential(rng: &mut Rng) -> f64 {
    let uniform = (rng.below(1 << 53) as f64 + 0.5) / (1u64 << 53) as f64;
    -uniform.ln()
}

impl Server for Line {
    fn serve(&mut self, now: u64, _: Command) -> u64 {
        let factor = self.exponential.as_mut().map_or(1.0, exponential);
        now + (self.mean_ns * factor) as u64
    }

    fn positioning(&self, _: u64, _: Command) -> u64 {
        0
    }

    fn arm(&self) -> u64 {
        0
    }
}

/// Mean response of batches of an open queue at the load `rho`, in units of the mean service time.
fn open_queue(exponential_service: bool, rho: f64, seed: u64) -> Vec<f64> {
    let mean_ns = 1e6;
    let server = Line {
        mean_ns,
        exponential: exponential_service.then(|| Rng::new(seed ^ 77)),
    };
    let mut queue = Queue::new(server, Policy::Fcfs, 100_000);
    let mut rng = Rng::new(seed);
    let (batches, batch) = (40, 10_000u64);
    let mut sums = vec![0.0; batches];
    let mut arrival = 0.0;
    for id in 0..batches as u64 * batch {
        arrival += exponential(&mut rng) * mean_ns / rho;
        while let Some(done) = queue.advance(arrival as u64) {
            sums[(done.id / batch) as usize] += (done.ended - done.arrived) as f64;
        }
        queue.submit(arrival as u64, id, read(0, 1));
    }
    while let Some(done) = queue.advance(u64::MAX) {
        sums[(done.id / batch) as usize] += (done.ended - done.arrived) as f64;
    }
    sums.iter()
        .map(|sum| sum / batch as f64 / mean_ns)
        .collect()
}

/// Mean and half the width of its 99% interval, by batch means; the first batch is warm-up.
fn interval(batches: &[f64]) -> (f64, f64) {
    let batches = &batches[1..];
    let count = batches.len() as f64;
    let mean = batches.iter().sum::<f64>() / count;
    let variance = batches.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, 2.71 * (variance / count).sqrt())
}

#[test]
fn queues_wait_as_long_as_theory_says() {
    for rho in [0.3, 0.6, 0.8] {
        let (mean, half) = interval(&open_queue(true, rho, 11));
        let theory = 1.0 / (1.0 - rho);
        assert!(
            (mean - theory).abs() < half,
            "M/M/1 at {rho}: {mean} +- {half}, theory {theory}"
        );
        let (mean, half) = interval(&open_queue(false, rho, 12));
        let theory = 1.0 + rho / (2.0 * (1.0 - rho));
        assert!(
            (mean - theory).abs() < half,
            "M/D/1 at {rho}: {mean} +- {half}, theory {theory}"
        );
    }
}

// -------------------------------------------------------------------------------------------------- scheduling

/// Commands a second of random 4 KiB reads with `depth` always within the drive.
fn saturated(policy: Policy, depth: u32) -> f64 {
    let mut queue = Queue::new(mechanical(drive()), policy, depth);
    let mut rng = Rng::new(5);
    let blocks = queue.server().geometry().blocks();
    let (mut now, mut served, count) = (0, 0, 6_000);
    while served < count {
        while !queue.full() {
            queue.submit(now, served, read(rng.below(blocks / 8) * 8, 8));
        }
        now = queue.next_event().expect("a full queue serves");
        served += u64::from(queue.advance(now).is_some());
    }
    count as f64 / (now as f64 / 1e9)
}

#[test]
fn positioning_time_first_gains_with_depth() {
    let sptf = Policy::Sptf {
        patience_ns: u64::MAX,
    };
    let rates: Vec<f64> = [1, 4, 8, 16, 32]
        .map(|depth| saturated(sptf, depth))
        .to_vec();
    assert!(
        rates.windows(2).all(|pair| pair[1] > pair[0] * 1.03),
        "{rates:?}"
    );
    let fcfs = saturated(Policy::Fcfs, 32);
    assert!(
        (fcfs / rates[0] - 1.0).abs() < 0.03,
        "order of arrival gains nothing: {fcfs} {}",
        rates[0]
    );
    // Worthington, Ganger and Patt 1994 and drive makers' figures: about twice the rate at 32, not four times.
    let gain = rates[4] / rates[0];
    assert!((1.7..3.2).contains(&gain), "{gain}");
    let look = saturated(Policy::Look, 32);
    assert!(
        look > fcfs * 1.1 && look < rates[4],
        "{look} between {fcfs} and {}",
        rates[4]
    );
}

#[test]
fn patience_bounds_the_wait() {
    let patient = Policy::Sptf {
        patience_ns: 200_000_000,
    };
    let longest = |policy| {
        let mut queue = Queue::new(mechanical(drive()), policy, 16);
        let mut rng = Rng::new(9);
        let blocks = queue.server().geometry().blocks();
        let (mut now, mut longest) = (0, 0);
        for id in 0..20_000 {
            while !queue.full() {
                queue.submit(now, id, read(rng.below(blocks / 8) * 8, 8));
            }
            now = queue.next_event().expect("a full queue serves");
            if let Some(done) = queue.advance(now) {
                longest = longest.max(done.ended - done.arrived);
            }
        }
        longest
    };
    let bound = 200_000_000 + 16 * 25_000_000;
    assert!(longest(patient) < bound);
    assert!(
        longest(Policy::Sptf {
            patience_ns: u64::MAX
        }) > longest(patient)
    );
}

/// A stream of writes, as a rebuild makes it, beside reads all over: the writes in the order in which they are served,
/// and commands a second.
fn streamed(policy: Policy) -> (Vec<u64>, f64) {
    let mut drive = drive();
    drive.cache.write_back = true;
    drive.cache.segment_blocks = 256;
    drive.cache.write_segments = 8;
    let mut queue = Queue::new(mechanical(drive), policy, 16);
    let mut rng = Rng::new(5);
    let blocks = queue.server().geometry().blocks();
    let (mut now, mut id, mut writes) = (0, 0, Vec::new());
    while writes.len() < 3_000 {
        while !queue.full() {
            let command = match id % 4 {
                0 => read(rng.below(blocks / 8) * 8, 8),
                _ => Command::write((id - id / 4) * 128, 128),
            };
            queue.submit(now, id, command);
            id += 1;
        }
        now = queue.next_event().expect("a full queue serves");
        let done = queue.advance(now).filter(|done| done.id % 4 != 0);
        writes.extend(done.map(|done| done.id));
    }
    (writes, id as f64 / (now as f64 / 1e9))
}

/// The drive takes what its write cache has room for in the order in which it comes, so a stream is written out in one
/// piece, and not torn apart for being nearer here and there.
#[test]
fn positioning_time_first_leaves_a_stream_of_cached_writes_whole() {
    let (writes, rate) = streamed(Policy::Sptf {
        patience_ns: 2_000_000_000,
    });
    assert!(writes.is_sorted(), "the stream is served in order");
    let (_, look) = streamed(Policy::Look);
    assert!(
        rate > 0.8 * look,
        "{rate} commands a second, {look} by look"
    );
}
