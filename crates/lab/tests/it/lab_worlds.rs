//! One replay in two worlds: what the simulator counts is what a real array counts.

use restripe_array::layout::{Level, Rotation, Skew};
use restripe_array::meta::{Content, CreateOptions, Init, WriteHole, create};
use restripe_array::report::Counters;
use restripe_array::{
    Action, Command, Fact, HeatLimits, Limits, Member, Moves, Nanos, Order, StartMode, TaskKind,
    TaskOutcome, Throttle, Uuid,
};
use restripe_io::plain::Plain;
use restripe_io::record;
use restripe_io::{ArraySpec, Running, Shell, ShellOptions};
use restripe_lab::replay::facts::{CAUSES, Log, Phase};
use restripe_lab::replay::stage::{ArrayPlan, Stage};
use restripe_lab::replay::{Deed, Pace, Plan, Script, Until, real, simulated};
use restripe_lab::trace::{Item, Op, Request};
use restripe_sim::disk::queue::Policy;
use restripe_sim::rng::Rng;
use std::path::{Path, PathBuf};

const MEMBERS: u16 = 6;
const CHUNK_SECTORS: u32 = 128;
const MEMBER_BYTES: u64 = 16 << 20;
/// What a simulated member has beyond its set data.
const METADATA_BYTES: u64 = 16 << 20;
const STEP_NS: u64 = 1_000_000_000;
const HOUR_NS: u64 = 3600 * 1_000_000_000;
/// Member operations that a replay of data can cause; metadata is the fourth.
const USER: usize = 0;
const PARITY: usize = 1;
const REBUILD: usize = 2;

/// What both worlds build.
#[derive(Clone, Copy, Debug)]
struct Kind {
    level: Level,
    skew: Option<Skew>,
    write_hole: WriteHole,
    degraded: bool,
}

const RAID5: Level = Level::Raid5(Rotation::LeftSymmetric);
const RAID6: Level = Level::Raid6(Rotation::LeftSymmetric);

const RAID10: Level = Level::Raid10 { copies: 2 };

const KINDS: [Kind; 9] = [
    kind(RAID5, WriteHole::None, false),
    kind(RAID5, WriteHole::Bitmap, true),
    kind(RAID5, WriteHole::Ppl, false),
    kind(RAID5, WriteHole::Ppl, true),
    kind(RAID6, WriteHole::Bitmap, false),
    kind(RAID6, WriteHole::Ppl, true),
    kind(RAID10, WriteHole::Bitmap, true),
    skewed(kind(RAID5, WriteHole::Ppl, true)),
    skewed(kind(RAID10, WriteHole::Bitmap, true)),
];

const fn kind(level: Level, write_hole: WriteHole, degraded: bool) -> Kind {
    Kind {
        level,
        skew: None,
        write_hole,
        degraded,
    }
}

/// As two groups of three, which are rebuilt in three streams.
const fn skewed(kind: Kind) -> Kind {
    let skew = Some(Skew {
        groups: 2,
        partitions: 3,
    });
    Kind { skew, ..kind }
}

/// The array, simulated.
fn stage(kind: Kind) -> Stage {
    let plan = ArrayPlan {
        level: kind.level,
        skew: kind.skew,
        grown: None,
        spare_partitions: 0,
        members: MEMBERS,
        spares: 0,
        chunk_sectors: CHUNK_SECTORS,
        member_bytes: MEMBER_BYTES,
        write_hole: kind.write_hole,
        drive: "wd1600aajs".into(),
        spare_drive: None,
        schedule: Policy::Fcfs,
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
    Stage::new(&plan, 1).expect("a sound plan")
}

fn memory() -> Plain {
    let size = format!("ram:{}M", (MEMBER_BYTES + METADATA_BYTES) >> 20);
    Plain::open(&size, false).expect("memory")
}

/// The same array in this process's memory, run by the real reactor.
fn reactor(kind: Kind, record: Option<PathBuf>) -> Running {
    let plain: Vec<Plain> = (0..MEMBERS).map(|_| memory()).collect();
    let mut options = CreateOptions::new("real", Uuid([9; 16]), kind.level, CHUNK_SECTORS);
    options.members = plain.iter().map(Plain::info).collect();
    options.uuids = (1..=MEMBERS).map(|n| Uuid([n as u8; 16])).collect();
    options.geometry.skew = kind.skew;
    options.write_hole = kind.write_hole;
    options.init = Init::Trust;
    options.size_per_member = Some(MEMBER_BYTES / 512);
    let creation = create(&options).expect("a sound geometry");
    for (member, at, content) in &creation.writes {
        let written = match content {
            Content::Page(page) => plain[*member].write(*at, &page[..]),
            Content::Zero(sectors) => plain[*member].zero(*at, *sectors),
        };
        written.expect("memory takes it");
    }
    let spec = ArraySpec {
        members: plain.into_iter().map(Plain::into_member).collect(),
        limits: Limits::default(),
        surrogate: None,
        io_timeout: Nanos::from_secs(60),
        probe: Nanos::from_secs(10),
        record,
    };
    let running = Shell::spawn(ShellOptions::default(), |shell| shell.host(spec).map(drop));
    let running = running.expect("a reactor");
    order(&running, Command::Start(StartMode::default()));
    if kind.degraded {
        order(&running, Command::Fail(Member(0)));
    }
    running
}

fn order(running: &Running, command: Command) {
    let answer = running.remote.command(0, command);
    answer.expect("it runs").expect("it is done");
}

fn counters(running: &Running) -> Counters {
    let status = running.remote.status(0).expect("it runs");
    status.expect("there is an array").counters
}

fn end(running: Running) {
    running.remote.shutdown().expect("it runs");
    running.join().expect("it ends well");
}

/// Reads, writes and flushes of all sizes and alignments, a gap apart.
fn requests(size: u64, count: u64, gap_ns: u64) -> Vec<Item> {
    let mut rng = Rng::new(7);
    let mut all = Vec::new();
    for number in 0..count {
        let length = 512 * rng.between(1, if number % 10 == 0 { 1024 } else { 64 });
        let offset = rng.below((size - length) / 512) * 512;
        let op = match rng.below(40) {
            0 => Op::Flush,
            1..=18 => Op::Read,
            _ => Op::Write,
        };
        all.push(Ok(Request {
            time: number * gap_ns,
            device: 0,
            op,
            offset,
            length: if op == Op::Flush { 0 } else { length },
        }));
    }
    all
}

/// The phases `all` and, of a degraded array, `rebuild`.
fn simulate(kind: Kind, pace: Pace, requests: &[Item]) -> Log {
    let mut stage = stage(kind);
    let deed = match kind.degraded {
        true => Deed::Fail(0),
        false => Deed::Nothing,
    };
    let mut plans = vec![Plan::new("all", deed, Until::Exhausted)];
    if kind.degraded {
        plans.push(Plan::new("rebuild", Deed::Spare, Until::Rebuilt(HOUR_NS)));
    }
    let script = Script {
        pace,
        plans,
        step_ns: STEP_NS,
    };
    let mut source = requests.iter().cloned();
    simulated::replay(&mut stage, &mut source, &script).expect("it ends")
}

/// What the phase `all` was, and what the rebuild after it added to the counters.
fn on_memory(kind: Kind, pace: Pace, requests: &[Item]) -> (Phase, Counters) {
    let running = reactor(kind, None);
    let world = real::Local {
        remote: running.remote.clone(),
        array: 0,
    };
    let log = real::replay(&world, requests.iter().cloned(), pace, STEP_NS);
    let mut rebuilt = Counters::default();
    if kind.degraded {
        let before = counters(&running);
        rebuild(&running);
        rebuilt = counters(&running);
        for (after, before) in rebuilt.ios.iter_mut().zip(before.ios) {
            *after -= before;
        }
    }
    end(running);
    let phase = log.expect("it ends").phases.remove(0);
    (phase, rebuilt)
}

fn rebuild(running: &Running) {
    let facts = running.remote.facts(0).expect("it runs");
    let arrived = running.remote.arrive(0, memory().into_member());
    let spare = arrived.expect("it runs").expect("it is taken");
    order(running, Command::Add(spare));
    let ended = facts.iter().find_map(|(_, fact)| match fact {
        Fact::TaskEnded { kind, outcome, .. } => Some((kind, outcome)),
        _ => None,
    });
    assert_eq!(ended, Some((TaskKind::Rebuild, TaskOutcome::Done)));
}

#[test]
fn one_at_a_time_both_worlds_do_the_same_member_operations() {
    let count = 2000;
    for kind in KINDS {
        let pace = Pace::Closed { depth: 1 };
        let requests = requests(stage(kind).size_bytes, count, 0);
        let simulated = simulate(kind, pace, &requests);
        let (theirs, rebuilt) = on_memory(kind, pace, &requests);
        let ours = &simulated.phases[0];
        assert_eq!((ours.times.count, ours.failed), (count, 0), "{kind:?}");
        assert_eq!((theirs.times.count, theirs.failed), (count, 0), "{kind:?}");
        // Metadata is written by timers too, so it hangs on how long a replay takes. All else is the same.
        for cause in [USER, PARITY, REBUILD] {
            let of = |phase: &Phase| (phase.ios[cause], phase.io_bytes[cause]);
            assert_eq!(of(ours), of(&theirs), "{} of {kind:?}", CAUSES[cause]);
        }
        assert!(ours.ios[USER] > count / 2, "{:?}", ours.ios);
        if kind.degraded {
            let theirs = rebuilt.ios[REBUILD];
            assert_eq!(simulated.phases[1].ios[REBUILD], theirs, "{kind:?}");
            let partitions = kind.skew.map_or(1, |skew| u64::from(skew.partitions));
            let chunks = MEMBER_BYTES / (512 * u64::from(CHUNK_SECTORS));
            assert!(theirs >= 2 * (chunks / partitions * partitions));
        }
    }
}

// ------------------------------------------------------------------------------------------------ recorded events

/// Removes a file when the test is over, however it ends.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // What is not there need not go.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A new engine is told what the recorded one was told: member operations that it asks for, by cause.
fn told_again(path: &Path) -> ([u64; 4], [u64; 4]) {
    let record = std::fs::read(path).expect("the record");
    let (mut ios, mut bytes) = ([0; 4], [0; 4]);
    let replayed = record::replay(&record, |step| {
        for action in step.actions {
            if let Action::Device(io) = action {
                ios[io.class as usize] += 1;
                bytes[io.class as usize] += io.sectors * 512;
            }
        }
    });
    assert!(!replayed.expect("the same run").cut);
    (ios, bytes)
}

#[test]
fn recorded_events_give_the_same_member_operations_of_every_cause() {
    for (number, kind) in KINDS.into_iter().enumerate() {
        let name = format!("restripe-worlds-{}-{number}", std::process::id());
        let path = Temporary(std::env::temp_dir().join(name));
        let running = reactor(kind, Some(path.0.clone()));
        let world = real::Local {
            remote: running.remote.clone(),
            array: 0,
        };
        let requests = requests(stage(kind).size_bytes, 500, 0);
        let pace = Pace::Closed { depth: 16 };
        let log = real::replay(&world, requests.into_iter(), pace, STEP_NS);
        assert_eq!(log.expect("it ends").phases[0].failed, 0);
        if kind.degraded {
            rebuild(&running);
        }
        order(&running, Command::Stop);
        let counted = counters(&running);
        end(running);
        let (ios, bytes) = told_again(&path.0);
        assert_eq!((ios, bytes), (counted.ios, counted.io_bytes), "{kind:?}");
        assert_eq!(kind.degraded, ios[REBUILD] > 0);
    }
}

// ------------------------------------------------------------------------------------------------------ open loop

/// Requests at their times: those that overlap on a row may wait for each other or not, as the members are fast or
/// slow; so counts may differ, and by little. One at a time, the very same requests make no difference: it is timing.
#[test]
fn at_their_own_times_both_worlds_differ_by_timing_only_and_little() {
    for kind in KINDS {
        let requests = requests(stage(kind).size_bytes, 1500, 1_000_000);
        let open = Pace::Open { speed_milli: 2000 };
        let simulated = simulate(kind, open, &requests);
        let (theirs, _) = on_memory(kind, open, &requests);
        let ours = &simulated.phases[0];
        assert_eq!(ours.times.count, theirs.times.count);
        for cause in [USER, PARITY] {
            let (ours, theirs) = (ours.ios[cause], theirs.ios[cause]);
            let (less, more) = (ours.min(theirs), ours.max(theirs));
            assert!(
                (more - less) * 100 <= 5 * more,
                "{} of {kind:?}: {ours} simulated, {theirs} real",
                CAUSES[cause]
            );
        }
        let one = Pace::Closed { depth: 1 };
        let simulated = simulate(kind, one, &requests);
        let (theirs, _) = on_memory(kind, one, &requests);
        assert_eq!(simulated.phases[0].ios[..3], theirs.ios[..3], "{kind:?}");
    }
}
