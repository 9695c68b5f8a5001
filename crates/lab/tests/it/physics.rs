//! Every preset against physics: what its platters can bring by, what its arm takes on average, what its cache holds.
//!
//! The figures beside the model's are computed from the numbers of the preset, by formulas of this file.

use restripe_lab::drives::preset::{self, Made, MechanicalPreset, Preset};
use restripe_sim::disk::flash::Flash;
use restripe_sim::disk::geometry::{Layout, Zone};
use restripe_sim::disk::mechanical::{Command, Mechanical};
use restripe_sim::disk::queue::{Policy, Queue};
use restripe_sim::rng::Rng;

/// 64 KiB.
const BLOCKS: u32 = 128;
const MB: u64 = 1_000_000;

struct Case {
    name: &'static str,
    preset: Preset,
    drive: Mechanical,
}

impl Case {
    fn of(&self) -> &MechanicalPreset {
        self.preset.mechanical.as_ref().expect("a mechanical drive")
    }

    fn layout(&self) -> &Layout {
        &self.drive.drive().layout
    }

    /// The same drive, new, with its write cache on or off.
    fn made(&self, write_back: bool) -> Mechanical {
        let mut drive = self.drive.drive().clone();
        drive.cache.write_back = write_back;
        Mechanical::new(drive).expect("in range")
    }

    fn turn_ms(&self) -> f64 {
        60_000.0 / self.of().rpm.value
    }

    /// Blocks that the write cache holds.
    fn cache_blocks(&self) -> f64 {
        self.of().write_segments.value * self.of().segment_blocks.value
    }

    fn command_ms(&self, blocks: u32) -> f64 {
        self.of().overhead_ms.value + f64::from(blocks) * 0.512 / self.of().link_mb_s.value
    }

    /// Mean over random pairs of blocks, from the points or the three times of the preset.
    fn seek_ms(&self) -> f64 {
        let zones = &self.layout().zones;
        let mut places = Vec::new();
        let blocks = |zone: &Zone| {
            f64::from(zone.last_cylinder + 1 - zone.first_cylinder)
                * f64::from(zone.slots_per_track)
        };
        let all: f64 = zones.iter().map(blocks).sum();
        for step in 0..1_000 {
            let mut at = (f64::from(step) + 0.5) / 1_000.0 * all;
            for zone in zones {
                if at < blocks(zone) {
                    places.push(
                        f64::from(zone.first_cylinder) + at / f64::from(zone.slots_per_track),
                    );
                    break;
                }
                at -= blocks(zone);
            }
        }
        let sum: f64 = (places.iter())
            .flat_map(|one| places.iter().map(move |other| (one - other).abs()))
            .map(|distance| self.seek_over_ms(distance))
            .sum();
        sum / (places.len() * places.len()) as f64
    }

    fn seek_over_ms(&self, distance: f64) -> f64 {
        if distance < 1.0 {
            return 0.0;
        }
        let of = self.of();
        if let Some(table) = &of.seek_table {
            let points = &table.points;
            let after = points.partition_point(|(at, _)| f64::from(*at) < distance);
            let after = after.clamp(1, points.len() - 1);
            let ((from, low), (to, high)) = (points[after - 1], points[after]);
            let share = (distance - f64::from(from)) / f64::from(to - from);
            return low + share * (high - low);
        }
        let ms = |time: &Option<preset::Sourced>| time.as_ref().expect("no table").value;
        let (one, average, full) = (
            ms(&of.seek_one_ms),
            ms(&of.seek_average_ms),
            ms(&of.seek_full_ms),
        );
        let cylinders = f64::from(self.layout().cylinders);
        let third = cylinders / 3.0;
        match distance <= third {
            true => one + (average - one) * (distance.sqrt() - 1.0) / (third.sqrt() - 1.0),
            false => average + (full - average) * (distance - third) / (cylinders - third),
        }
    }

    /// Of a block, over the whole drive.
    fn transfer_ms(&self, blocks: u32) -> f64 {
        let layout = self.layout();
        let weigh = |zone: &Zone| {
            let cylinders = f64::from(zone.last_cylinder + 1 - zone.first_cylinder);
            (cylinders * f64::from(zone.slots_per_track), cylinders)
        };
        let (slots, tracks) = layout
            .zones
            .iter()
            .map(weigh)
            .fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        f64::from(blocks) * self.turn_ms() / (slots / tracks)
    }
}

fn cases() -> Vec<Case> {
    let mechanical = |name: &'static str| {
        let preset = preset::named(name).expect("well formed");
        match preset.make().expect("in range") {
            Made::Mechanical(drive) => Some(Case {
                name,
                preset,
                drive: *drive,
            }),
            Made::Flash(_) => None,
        }
    };
    let cases: Vec<Case> = preset::names().filter_map(mechanical).collect();
    assert!(cases.len() >= 6, "all mechanical presets are held to this");
    cases
}

/// Bytes a second that pass under the heads of a zone: its tracks, and what the skews between them cost.
fn zone_rate(layout: &Layout, zone: &Zone) -> f64 {
    let (slots, surfaces) = (f64::from(zone.slots_per_track), f64::from(layout.surfaces));
    let skews = zone.track_skew * (surfaces - 1.0) + zone.cylinder_skew;
    let turns = surfaces + skews / slots;
    slots * surfaces * 512.0 / (turns * layout.turn_ns as f64 / 1e9)
}

fn assert_near(what: &str, found: f64, expected: f64, share: f64) {
    let off = found / expected - 1.0;
    assert!(
        off.abs() <= share,
        "{what}: {found:.3}, expected {expected:.3}: {:+.1}%",
        off * 100.0
    );
}

const SPTF: Policy = Policy::Sptf {
    patience_ns: 2_000_000_000,
};

/// Keeps `depth` commands in the drive, and says when each ended.
fn run(
    drive: Mechanical,
    policy: Policy,
    depth: u32,
    commands: impl IntoIterator<Item = Command>,
) -> Vec<u64> {
    let mut queue = Queue::new(drive, policy, depth);
    let mut commands = (0..).zip(commands);
    let (mut now, mut ends) = (0, Vec::new());
    loop {
        while !queue.full() {
            let Some((id, command)) = commands.next() else {
                break;
            };
            queue.submit(now, id, command);
        }
        let Some(at) = queue.next_event() else {
            return ends;
        };
        now = at;
        ends.extend(queue.advance(now).map(|done| done.ended));
    }
}

/// Bytes a second of 64 KiB commands from `first` on. The first `warm` blocks do not count: they fill the caches.
fn sequential(
    drive: Mechanical,
    command: fn(u64, u32) -> Command,
    depth: u32,
    first: u64,
    warm: u64,
) -> f64 {
    let count = (200 * MB / 65_536) as usize;
    let warm = (warm / u64::from(BLOCKS)) as usize;
    let blocks = (first..).step_by(BLOCKS as usize).take(warm + count);
    let ends = run(
        drive,
        SPTF,
        depth,
        blocks.map(|block| command(block, BLOCKS)),
    );
    let ns = ends[warm + count - 1] - ends[warm - 1];
    count as f64 * 65_536.0 / (ns as f64 / 1e9)
}

/// The first block of the outermost and of the innermost zone, and the zone.
fn ends(drive: &Mechanical) -> [(u64, Zone); 2] {
    let zones = &drive.geometry().layout().zones;
    let surfaces = u64::from(drive.geometry().layout().surfaces);
    let blocks = |zone: &Zone| {
        u64::from(zone.last_cylinder + 1 - zone.first_cylinder)
            * surfaces
            * u64::from(zone.slots_per_track)
    };
    let (last, before) = zones.split_last().expect("a zone");
    [
        (0, zones[0].clone()),
        (before.iter().map(blocks).sum(), last.clone()),
    ]
}

/// Both ways, one at a time and 32 at a time, outside and inside.
#[test]
fn sequential_commands_run_at_the_rate_of_the_zone() {
    let both = [
        ("read", Command::read as fn(u64, u32) -> Command),
        ("write", Command::write),
    ];
    for case in cases() {
        for (first, zone) in ends(&case.drive) {
            let rate = zone_rate(case.layout(), &zone);
            for (what, command) in both {
                for depth in [1, 32] {
                    let warm = 6 * case.cache_blocks() as u64;
                    let found = sequential(case.made(true), command, depth, first, warm);
                    let what = format!(
                        "{}: {what}, {depth} at a time, from block {first}, MB/s",
                        case.name
                    );
                    assert_near(&what, found / 1e6, rate / 1e6, 0.03);
                }
            }
        }
    }
}

/// Published rates of the outer zone, in MB/s. Seagate's manual of the Constellation ES (revision D) has 140. A
/// review of the WD10EALX has 126, and two presets of that class use its rate.
#[test]
fn printed_rates_are_what_the_outer_zone_sustains() {
    let printed = [
        ("st500nm0001", 140.0),
        ("st500dm002", 126.0),
        ("wd1003fbyx", 126.0),
    ];
    let cases = cases();
    for (name, rate) in printed {
        let case = cases.iter().find(|case| case.name == name);
        let case = case.expect("a preset");
        for command in [Command::read as fn(u64, u32) -> Command, Command::write] {
            let warm = 6 * case.cache_blocks() as u64;
            let found = sequential(case.made(true), command, 32, 0, warm) / 1e6;
            assert_near(&format!("{name}, MB/s"), found, rate, 0.03);
        }
    }
}

/// A track begins so far behind the one before that the head is there in time, to write too; and hardly further.
#[test]
fn skews_cover_what_a_write_needs_and_no_more() {
    for case in cases() {
        let of = case.of();
        let settle = of.write_settle_ms.value;
        let switch = of.head_switch_ms.value + settle;
        let step = case.seek_over_ms(1.0).max(of.head_switch_ms.value) + settle;
        for zone in &case.layout().zones {
            let slot = case.turn_ms() / f64::from(zone.slots_per_track);
            for (skew, needed) in [(zone.track_skew, switch), (zone.cylinder_skew, step)] {
                let spare = skew * slot - needed;
                assert!(
                    (0.0..2.0 * slot).contains(&spare),
                    "{}: a skew of {skew} slots for {needed} ms leaves {spare} ms",
                    case.name
                );
            }
        }
    }
}

/// Mean of many random commands of 4 KiB, in ms, one at a time.
fn random_ms(drive: Mechanical, command: fn(u64, u32) -> Command) -> f64 {
    let (warm, count) = (1_000, 30_000);
    let blocks = drive.geometry().blocks();
    let mut rng = Rng::new(7);
    let commands = (0..warm + count).map(|_| command(rng.below(blocks / 8) * 8, 8));
    let ends = run(drive, Policy::Fcfs, 1, commands);
    (ends[warm + count - 1] - ends[warm - 1]) as f64 / 1e6 / count as f64
}

/// Seek, half a turn, transfer and, where the host waits for the medium, the drive's own time: within 2%.
#[test]
fn random_commands_take_what_arm_and_platter_take_on_average() {
    for case in cases() {
        let (settle, bus) = (
            case.of().write_settle_ms.value,
            0.512 / case.of().link_mb_s.value,
        );
        let medium = case.seek_ms() + case.turn_ms() / 2.0 + case.transfer_ms(8);
        let overhead = case.of().overhead_ms.value;
        let check = |what: &str, found, expected| {
            assert_near(&format!("{}: {what}, ms", case.name), found, expected, 0.02);
        };
        let read = random_ms(case.made(true), Command::read);
        check("a random read", read, medium + overhead + bus);
        let through = random_ms(case.made(false), Command::write);
        check("a write through", through, medium + settle + overhead);
        let cached = random_ms(case.made(true), Command::write);
        check("a cached write in a long row", cached, medium + settle);
    }
}

/// The cache takes what it holds at the speed of the link, with what the platter takes meanwhile; then the platter's rate.
#[test]
fn a_burst_fills_the_write_cache_and_then_the_platter_sets_the_rate() {
    for case in cases() {
        let zone = &case.layout().zones[0];
        let rate = zone_rate(case.layout(), zone) / 512.0 / 1e3;
        let each = case.command_ms(BLOCKS);
        let mut drive = case.made(true);
        let (mut now, mut burst, mut block) = (0, 0, 0);
        loop {
            let done = drive.service(now, Command::write(block, BLOCKS));
            if (done - now) as f64 / 1e6 > each * 1.01 {
                break;
            }
            now = done;
            burst += u64::from(BLOCKS);
            block += u64::from(BLOCKS);
        }
        // The platter begins after the first turn at most.
        let filled = |late_ms: f64| {
            let link = f64::from(BLOCKS) / each;
            (case.cache_blocks() - rate * late_ms) * link / (link - rate)
        };
        let (least, most) = (filled(2.0 * case.turn_ms()), filled(0.0));
        assert!(
            (least * 0.98..most * 1.02).contains(&(burst as f64)),
            "{}: {burst} blocks at the speed of the link, not {least:.0} to {most:.0}",
            case.name
        );
        // Commands at distant places: each one needs a segment of its own.
        let mut drive = case.made(true);
        let segments = case.of().write_segments.value as u64;
        let (mut now, mut taken) = (0, 0);
        while taken <= segments + 1 {
            let block = taken * 7_919_000 % (drive.geometry().blocks() / 2);
            let done = drive.service(now, Command::write(block, 8));
            let waited = (done - now) as f64 / 1e6 > case.command_ms(8) * 1.01;
            now = done;
            if waited {
                break;
            }
            taken += 1;
        }
        assert!(
            taken == segments || taken == segments + 1,
            "{}: {taken} writes at the speed of the link",
            case.name
        );
    }
}

/// A flush waits for what is left, no longer and no shorter, and a second one for nothing.
#[test]
fn a_flush_takes_what_the_platter_takes_for_what_is_left() {
    for case in cases() {
        let zone = &case.layout().zones[0];
        let rate = zone_rate(case.layout(), zone);
        let mut drive = case.made(true);
        let (mut now, count) = (0, (case.cache_blocks() / f64::from(BLOCKS)) as u64);
        for index in 0..count {
            now = drive.service(now, Command::write(index * u64::from(BLOCKS), BLOCKS));
        }
        let flushed = drive.flush(now);
        assert_eq!(drive.flush(flushed), flushed, "{}", case.name);
        let work = drive.work();
        assert_eq!(work.written_blocks, work.cached_blocks, "{}", case.name);
        let took = flushed as f64 / 1e6 - case.of().overhead_ms.value;
        let least = count as f64 * 65_536.0 / rate * 1e3;
        assert!(
            (least * 0.97..least * 1.03 + 2.0 * case.turn_ms()).contains(&took),
            "{}: {took} ms to flush what takes {least}",
            case.name
        );

        // As many scattered writes as the cache takes at once, again and again.
        let mut rng = Rng::new(11);
        let (mut drive, mut now, rounds) = (case.made(true), 0, 1_000);
        let segments = case.of().write_segments.value as u64;
        let mut took = 0;
        for _ in 0..rounds {
            let begun = now;
            for _ in 0..segments {
                let block = rng.below(drive.geometry().blocks() / 8) * 8;
                now = drive.service(now, Command::write(block, 8));
            }
            now = drive.flush(now);
            took += now - begun;
            now += rng.below(8_000_000);
        }
        let settle = case.of().write_settle_ms.value;
        let one = case.seek_ms() + settle + case.turn_ms() / 2.0 + case.transfer_ms(8);
        let expected = segments as f64 * one + case.of().overhead_ms.value;
        let found = took as f64 / 1e6 / f64::from(rounds);
        assert_near(&format!("{}: flush, ms", case.name), found, expected, 0.02);
    }
}

/// Without its write cache a drive that is given one write after the other loses a turn between them.
#[test]
fn without_a_write_cache_each_write_waits_for_the_platter() {
    for case in cases() {
        let zone = &case.layout().zones[0];
        let track = f64::from(zone.slots_per_track);
        let found = sequential(case.made(false), Command::write, 1, 0, 10_000);
        let each = case.turn_ms() * (1.0 + f64::from(BLOCKS) / track);
        assert_near(
            &format!("{}: writes through, MB/s", case.name),
            found / 1e6,
            65.536 / each,
            0.03,
        );
        let reads = sequential(case.made(false), Command::read, 1, 0, 10_000);
        let rate = zone_rate(case.layout(), zone);
        assert_near(case.name, reads / 1e6, rate / 1e6, 0.03);
    }
}

// ------------------------------------------------------------------------------------------------------- flash

fn flash(name: &str) -> (Preset, Flash) {
    let preset = preset::named(name).expect("well formed");
    match preset.make().expect("in range") {
        Made::Flash(drive) => (preset, drive),
        Made::Mechanical(_) => panic!("{name} has arms"),
    }
}

/// Bytes a second of commands with `depth` in the drive.
fn flash_rate(drive: &mut Flash, command: fn(u64, u32) -> Command, depth: usize, mb: u64) -> f64 {
    let mut ends = vec![0; depth];
    let count = mb * MB / 65_536;
    for index in 0..count {
        let slot = index as usize % depth;
        ends[slot] = drive.service(ends[slot], command(index * u64::from(BLOCKS), BLOCKS));
    }
    let last = ends.into_iter().max().expect("a depth");
    count as f64 * 65_536.0 / (last as f64 / 1e9)
}

/// A burst goes into the buffer at the speed of the link, and then channels program; reads are as fast as the link.
#[test]
fn flash_keeps_to_its_link_its_buffer_and_its_channels() {
    let (preset, mut drive) = flash("ssd-sata");
    let of = preset.flash.as_ref().expect("flash");
    let page = of.page_blocks.value * 512.0;
    let link = of.link_mb_s.value;
    let programs = of.channels.value * page / of.program_us.value;
    let reads = (of.channels.value * page / of.read_us.value).min(link);
    let read = flash_rate(&mut drive, Command::read, 32, 400) / 1e6;
    assert_near("reads, MB/s", read, reads, 0.03);

    let (_, mut drive) = flash("ssd-sata");
    let written = flash_rate(&mut drive, Command::write, 32, 800) / 1e6;
    assert_near("writes, MB/s", written, programs, 0.03);
    let (_, mut drive) = flash("ssd-sata");
    let buffer = of.write_buffer_pages.value * of.channels.value * page;
    let (mut now, mut taken) = (0, 0);
    let each = of.overhead_us.value * 1e3 + 65_536.0 * 1e3 / link;
    while taken < 100_000_000 {
        let block = taken / 512;
        let done = drive.service(now, Command::write(block, BLOCKS));
        if (done - now) as f64 > each * 1.01 {
            break;
        }
        (now, taken) = (done, taken + 65_536);
    }
    let filled = buffer / (1.0 - programs / (65_536.0 * 1e3 / each));
    assert_near("a burst, bytes", taken as f64, filled, 0.05);
    let left = taken as f64 - programs * now as f64 / 1e3;
    let flush = (drive.flush(now) - now) as f64 / 1e9;
    assert_near("a flush, s", flush, left / programs / 1e6, 0.05);
    let flushed = drive.flush(now);
    assert_eq!(drive.flush(flushed), flushed);
}
