//! Runs seeds of the swarm: `swarm --seeds 0..1000`, or one line that replays a failure: `swarm --seed N`.

use restripe_array::meta::{Init, WriteHole};
use restripe_sim::invariant::{Invariant, Violation};
use restripe_sim::payload::Payload;
use restripe_sim::swarm::{Coverage, FAMILIES, Options, Outcome, Roughness, run};
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

const HELP: &str = "\
swarm: random arrays, users and faults in virtual time, judged by an oracle

  --seed N            run one seed, saying what happens with --trace
  --seeds A..B        run many (default 0..1000)
  --jobs N            in so many threads (default: all cores)
  --level NAME        only raid0, raid1, raid4, raid5, raid6, raid10 or rs
  --rough NAME        calm, crashes or faults (default)
  --hole NAME         ppl, bitmap or none
  --init NAME         written, zero, sync or trust
  --payload NAME      bytes, tokens or none
  --twice             run each seed twice and compare all actions
  --keep-going        do not stop at the first failure; count by invariant
  --coverage          print what was met
  --canary            expect what is not so: every seed must fail
  --trace             say what happens
";

struct Settings {
    seeds: Range<u64>,
    jobs: u64,
    options: Options,
    twice: bool,
    keep_going: bool,
    coverage: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match parse(&arguments) {
        Ok(Some(settings)) => swarm(Arc::new(settings)),
        Ok(None) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("swarm: {error}");
            ExitCode::from(2)
        }
    }
}

fn parse(arguments: &[String]) -> Result<Option<Settings>, String> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let options = Options::default();
    let mut settings = Settings {
        seeds: 0..1000,
        jobs: cores,
        options,
        twice: false,
        keep_going: false,
        coverage: false,
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || {
            rest.next()
                .map(String::as_str)
                .ok_or(format!("{argument} needs a value"))
        };
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--seed" => settings.seeds = number(value()?).map(|seed| seed..seed + 1)?,
            "--seeds" => settings.seeds = range(value()?)?,
            "--jobs" => settings.jobs = number(value()?)?.max(1),
            "--bug" => settings.options.bug = Some(restripe_sim::swarm::bug(value()?)?),
            "--twice" => settings.twice = true,
            "--keep-going" => settings.keep_going = true,
            "--coverage" => settings.coverage = true,
            "--canary" => settings.options.canary = true,
            "--trace" => settings.options.trace = true,
            "--level" => settings.options.family = Some(named(value()?, &FAMILIES)?),
            "--rough" => settings.options.roughness = named(value()?, &ROUGHNESS)?,
            "--hole" => settings.options.write_hole = Some(named(value()?, &HOLES)?),
            "--init" => settings.options.init = Some(named(value()?, &INITS)?),
            "--payload" => settings.options.payload = Some(named(value()?, &PAYLOADS)?),
            other => return Err(format!("unknown argument {other}; --help lists them")),
        }
    }
    Ok(Some(settings))
}

const ROUGHNESS: [(&str, Roughness); 3] = [
    ("calm", Roughness::Calm),
    ("crashes", Roughness::Crashes),
    ("faults", Roughness::Faults),
];
const HOLES: [(&str, WriteHole); 3] = [
    ("ppl", WriteHole::Ppl),
    ("bitmap", WriteHole::Bitmap),
    ("none", WriteHole::None),
];
const INITS: [(&str, Init); 4] = [
    ("written", Init::Written),
    ("zero", Init::Zero),
    ("sync", Init::Sync),
    ("trust", Init::Trust),
];
const PAYLOADS: [(&str, Payload); 3] = [
    ("bytes", Payload::Bytes),
    ("tokens", Payload::Tokens),
    ("none", Payload::None),
];

fn named<T: Copy>(name: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let names: Vec<&str> = choices.iter().map(|choice| choice.0).collect();
    let found = choices.iter().find(|choice| choice.0 == name);
    found
        .map(|choice| choice.1)
        .ok_or(format!("{name} is none of {}", names.join(", ")))
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text
        .split_once("..")
        .ok_or(format!("{text} is not a range A..B"))?;
    let seeds = number(from)?..number(to)?;
    match seeds.is_empty() {
        true => Err(format!("{text} has no seed, and would find nothing wrong")),
        false => Ok(seeds),
    }
}

/// What all threads have found.
#[derive(Default)]
struct Found {
    coverage: Coverage,
    ios: u64,
    requests: u64,
    runs: u64,
    failures: BTreeMap<Invariant, Vec<u64>>,
}

fn swarm(settings: Arc<Settings>) -> ExitCode {
    let begun = Instant::now();
    if !settings.options.trace {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let next = Arc::new(AtomicU64::new(settings.seeds.start));
    let found = Arc::new(Mutex::new(Found::default()));
    let threads: Vec<_> = (0..settings.jobs)
        .map(|_| {
            let (settings, next, found) = (settings.clone(), next.clone(), found.clone());
            std::thread::spawn(move || work(&settings, &next, &found))
        })
        .collect();
    for thread in threads {
        thread.join().expect("a run that panics is caught");
    }
    let found = found.lock().expect("no thread is left");
    report(&settings, &found, begun.elapsed().as_secs_f64())
}

fn work(settings: &Settings, next: &AtomicU64, found: &Mutex<Found>) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= settings.seeds.end {
            return;
        }
        let outcome = judge(seed, settings);
        let mut found = found.lock().expect("no thread panics with the lock");
        found.runs += 1;
        found.ios += outcome.ios;
        found.requests += outcome.requests;
        found.coverage.merge(&outcome.coverage);
        if let Some(first) = outcome.violations.first() {
            let seen = found.failures.entry(first.invariant).or_default();
            seen.push(seed);
            if seen.len() <= 3 && !settings.options.canary {
                println!("seed {seed}: {first}\n  replay: {}", replay(seed, settings));
            }
            if !settings.keep_going {
                next.store(settings.seeds.end, Ordering::Relaxed);
            }
        }
    }
}

fn judge(seed: u64, settings: &Settings) -> Outcome {
    let first = caught(seed, &settings.options);
    if settings.twice && first.violations.is_empty() {
        let second = caught(seed, &settings.options);
        if second != first {
            let detail = format!("digests {:#x} and {:#x}", first.digest, second.digest);
            let violations = vec![Violation::new(Invariant::NotDeterministic, detail)];
            return Outcome {
                violations,
                ..first
            };
        }
    }
    first
}

fn caught(seed: u64, options: &Options) -> Outcome {
    // The hook is silent so that a swarm's output stays readable; a replay with --trace shows where it happened.
    catch_unwind(AssertUnwindSafe(|| run(seed, options))).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text
            .or(payload.downcast_ref::<&str>().map(ToString::to_string))
            .unwrap_or_default();
        Outcome {
            violations: vec![Violation::new(Invariant::Panic, text)],
            ..Outcome::default()
        }
    })
}

/// The line that runs one seed again.
fn replay(seed: u64, settings: &Settings) -> String {
    let options = &settings.options;
    let mut line = format!("swarm --seed {seed}");
    let mut add = |flag: &str, name: Option<&str>| {
        if let Some(name) = name {
            line += &format!(" {flag} {name}");
        }
    };
    add(
        "--level",
        options.family.and_then(|family| name_of(family, &FAMILIES)),
    );
    add(
        "--rough",
        name_of(options.roughness, &ROUGHNESS).filter(|name| *name != "faults"),
    );
    add(
        "--hole",
        options.write_hole.and_then(|hole| name_of(hole, &HOLES)),
    );
    add(
        "--init",
        options.init.and_then(|init| name_of(init, &INITS)),
    );
    add(
        "--payload",
        options
            .payload
            .and_then(|payload| name_of(payload, &PAYLOADS)),
    );
    if let Some(bug) = options.bug {
        line += &format!(" --bug {bug:?}");
    }
    line
}

fn name_of<T: PartialEq>(value: T, choices: &'static [(&'static str, T)]) -> Option<&'static str> {
    choices
        .iter()
        .find(|choice| choice.1 == value)
        .map(|choice| choice.0)
}

fn report(settings: &Settings, found: &Found, seconds: f64) -> ExitCode {
    let failed: usize = found.failures.values().map(Vec::len).sum();
    println!(
        "{} runs, {} requests, {} member operations in {seconds:.1} s ({:.1} ms a run, {} threads); {failed} failed",
        found.runs,
        found.requests,
        found.ios,
        seconds * 1000.0 * settings.jobs as f64 / found.runs.max(1) as f64,
        settings.jobs,
    );
    for (invariant, seeds) in &found.failures {
        println!(
            "  {:<28} {:>6}  seeds {:?}",
            invariant.name(),
            seeds.len(),
            &seeds[..seeds.len().min(8)]
        );
    }
    if settings.coverage {
        print!("{}", found.coverage);
    }
    let expected = if settings.options.canary {
        found.runs as usize
    } else {
        0
    };
    if failed == expected {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
