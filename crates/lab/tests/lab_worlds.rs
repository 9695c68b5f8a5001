//! One replay in two worlds, and one experiment on any number of threads.

use restripe_array::layout::{Level, Rotation};
use restripe_array::meta::{Content, CreateOptions, Init, WriteHole, create};
use restripe_array::{Command, Limits, Nanos, StartMode, Uuid};
use restripe_io::plain::Plain;
use restripe_io::{ArraySpec, Running, Shell, ShellOptions};
use restripe_lab::experiment::cell::Cell;
use restripe_lab::experiment::outcome::{Outcome, Run};
use restripe_lab::experiment::runner::{Progress, Runner};
use restripe_lab::experiment::scenario::{self, Scenario, Value};
use restripe_lab::experiment::{figure, page};
use restripe_lab::replay::facts::Log;
use restripe_lab::replay::stage::{ArrayPlan, Stage};
use restripe_lab::replay::{Deed, Pace, Plan, Script, Until, real, simulated};
use restripe_lab::trace::{Item, Op, Request};
use restripe_sim::disk::queue::Policy;
use restripe_sim::rng::Rng;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

// ---------------------------------------------------------------------------------------------- two worlds

const MEMBERS: u16 = 5;
const CHUNK_SECTORS: u32 = 128;
const MEMBER_BYTES: u64 = 16 << 20;
/// What a simulated member has beyond its set data.
const METADATA_BYTES: u64 = 16 << 20;

fn level() -> Level {
    Level::Raid5(Rotation::default())
}

/// The same array, simulated.
fn stage(write_hole: WriteHole) -> Stage {
    let plan = ArrayPlan {
        level: level(),
        members: MEMBERS,
        chunk_sectors: CHUNK_SECTORS,
        member_bytes: MEMBER_BYTES,
        write_hole,
        drive: "wd1600aajs".into(),
        schedule: Policy::Fcfs,
        write_cache: true,
        standby_ns: None,
        rebuild_min: 1 << 20,
        rebuild_max: 1 << 30,
    };
    Stage::new(&plan, 1).expect("a sound plan")
}

/// The same array in this process's memory, run by the real reactor.
fn reactor(write_hole: WriteHole) -> Running {
    let size = format!("ram:{}M", (MEMBER_BYTES + METADATA_BYTES) >> 20);
    let open = |_| Plain::open(&size, false).expect("memory");
    let plain: Vec<Plain> = (0..MEMBERS).map(open).collect();
    let mut options = CreateOptions::new("real", Uuid([9; 16]), level(), CHUNK_SECTORS);
    options.members = plain.iter().map(Plain::info).collect();
    options.uuids = (1..=MEMBERS).map(|n| Uuid([n as u8; 16])).collect();
    options.write_hole = write_hole;
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
        io_timeout: Nanos::from_secs(60),
        record: None,
    };
    let running = Shell::spawn(ShellOptions::default(), |shell| shell.host(spec).map(drop));
    let running = running.expect("a reactor");
    let started = running
        .remote
        .command(0, Command::Start(StartMode::default()));
    started.expect("it runs").expect("it starts");
    running
}

/// Reads and writes of all sizes and alignments. No flushes: to how many members one goes hangs on what timers wrote of
/// metadata before, and so on how long the replay takes.
fn requests(size: u64) -> Vec<Item> {
    let mut rng = Rng::new(7);
    let mut all = Vec::new();
    for number in 0..3000 {
        let length = 512 * rng.between(1, if number % 10 == 0 { 1024 } else { 64 });
        let offset = rng.below((size - length) / 512) * 512;
        let op = match rng.chance(9, 20) {
            true => Op::Read,
            false => Op::Write,
        };
        all.push(Ok(Request {
            time: 0,
            device: 0,
            op,
            offset,
            length,
        }));
    }
    all
}

/// Closed loop, one at a time: nothing that depends on time is left, so the counts of member operations are the same.
fn both(write_hole: WriteHole) -> (Log, Log) {
    let mut stage = stage(write_hole);
    let requests = requests(stage.size_bytes);
    let script = Script {
        pace: Pace::Closed { depth: 1 },
        plans: vec![Plan::new("all", Deed::Nothing, Until::Exhausted)],
        step_ns: 1_000_000_000,
    };
    let mut source = requests.clone().into_iter();
    let simulated = simulated::replay(&mut stage, &mut source, &script).expect("it ends");
    let running = reactor(write_hole);
    let world = real::Local {
        remote: running.remote.clone(),
        array: 0,
    };
    let real = real::replay(&world, requests.into_iter(), script.pace, script.step_ns);
    let real = real.expect("it ends");
    running.remote.shutdown().expect("it runs");
    running.join().expect("it ends well");
    (simulated, real)
}

#[test]
fn one_at_a_time_both_worlds_do_the_same_member_operations() {
    for write_hole in [WriteHole::None, WriteHole::Ppl] {
        let (simulated, real) = both(write_hole);
        let (ours, theirs) = (&simulated.phases[0], &real.phases[0]);
        assert_eq!((ours.times.count, ours.failed), (3000, 0));
        assert_eq!((theirs.times.count, theirs.failed), (3000, 0));
        // Bytes of user, parity and rebuild; flushes have none. The engine also flushes by timer, before it clears its
        // intent map, and counts that as the users' too: such operations, and metadata, hang on how long a replay takes.
        assert_eq!(ours.io_bytes[..3], theirs.io_bytes[..3], "{write_hole:?}");
        assert_eq!(ours.ios[1..3], theirs.ios[1..3], "{write_hole:?}");
        assert!(ours.ios[0] > 3000 && ours.ios[1] > 1000, "{:?}", ours.ios);
    }
}

// ------------------------------------------------------------------------------------------- any number of threads

/// The quick form of what a rebuild costs, on members that are rebuilt in a second.
fn small() -> Scenario {
    let text = scenario::named("rebuild-cost").expect("built in");
    let mut scenario = scenario::parse(text).expect("sound").shortened();
    scenario.seeds = 2;
    let short = [
        ("array.member_mib", 96),
        ("phases.warm_up_s", 1),
        ("phases.before_s", 5),
        ("phases.degraded_s", 5),
        ("phases.after_s", 1),
        ("capacity.warm_up_s", 1),
        ("capacity.measure_s", 5),
    ];
    for (path, value) in short {
        scenario.fixed.get_mut(path).expect("it has it").value = Value::Whole(value);
    }
    let swept = BTreeMap::from([
        (
            "rebuild.min_mb_s".to_string(),
            vec![Value::Whole(1), Value::Whole(50)],
        ),
        (
            "workload.load".to_string(),
            vec![Value::Real(0.0), Value::Real(0.4)],
        ),
        (
            "workload.source".to_string(),
            vec![Value::Text("noise".into())],
        ),
    ]);
    scenario.sweep.extend(swept);
    for figure in &mut scenario.figures {
        figure.at.remove("workload.source");
        figure.at.remove("workload.load");
    }
    scenario
}

fn cells(scenario: &Scenario) -> Vec<Cell> {
    let seeds = |point: &_| -> Vec<Cell> {
        (1..=scenario.seeds)
            .map(|seed| Cell::new(point, seed).expect("sound"))
            .collect()
    };
    scenario.points().iter().flat_map(seeds).collect()
}

/// Everything that is written of an experiment, in one text.
fn written(
    scenario: &Scenario,
    threads: usize,
    cache: Option<PathBuf>,
    cached: &Mutex<usize>,
) -> String {
    let progress = |progress: Progress| *cached.lock().expect("sound") = progress.cached;
    let runner = Runner {
        threads,
        cache,
        fresh: false,
        progress: &progress,
    };
    let cells = cells(scenario);
    let logs = runner.run(&cells).expect("it runs");
    let runs = cells
        .into_iter()
        .zip(logs)
        .map(|(cell, log)| Run { cell, log });
    let outcome = Outcome::new(scenario, runs.collect());
    let figures = figure::all(&outcome);
    assert!(!figures.is_empty());
    for (name, svg) in &figures {
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{name}");
    }
    let page = page::report(&outcome, &figures);
    assert!(
        !page.contains("src=") && !page.contains("<link"),
        "it needs nothing beside itself"
    );
    outcome.csv() + &outcome.json_lines() + &outcome.table().text() + &page
}

#[test]
fn the_same_scenario_gives_the_same_bytes_on_any_number_of_threads_and_from_the_cache() {
    let scenario = small();
    let cached = Mutex::new(0);
    let folder = std::env::temp_dir().join(format!("restripe-lab-{}", std::process::id()));
    let alone = written(&scenario, 1, None, &cached);
    let together = written(&scenario, 4, Some(folder.clone()), &cached);
    assert_eq!(*cached.lock().expect("sound"), 0);
    let again = written(&scenario, 2, Some(folder.clone()), &cached);
    assert_eq!(*cached.lock().expect("sound"), cells(&scenario).len());
    std::fs::remove_dir_all(&folder).expect("a folder of ours");
    assert!(alone == together, "threads show in the results");
    assert!(alone == again, "the cache shows in the results");
}

#[test]
fn a_rebuild_ends_sooner_without_users() {
    let scenario = small();
    let cells = cells(&scenario);
    let runner = Runner {
        threads: 2,
        cache: None,
        fresh: false,
        progress: &|_| {},
    };
    let logs = runner.run(&cells).expect("it runs");
    let took = |load: f64| -> Vec<u64> {
        let of = cells
            .iter()
            .zip(&logs)
            .filter(|(cell, _)| cell.settings.workload.load == load);
        let rebuild = |log: &Log| log.rebuild.expect("it has one");
        of.map(|(_, log)| rebuild(log).to_ns.expect("it ended") - rebuild(log).from_ns)
            .collect()
    };
    let (idle, loaded) = (took(0.0), took(0.4));
    assert_eq!((idle.len(), loaded.len()), (4, 4));
    for (idle, loaded) in idle.iter().zip(&loaded) {
        assert!(loaded > idle, "{loaded} after {idle}");
    }
}
