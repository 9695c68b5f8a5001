//! Runs seeds of the swarm: `swarm --seeds 0..1000`, or one line that replays a failure: `swarm --seed N`.

use restripe_array::meta::{Init, WriteHole};
use restripe_sim::invariant::{Invariant, Violation};
use restripe_sim::payload::Payload;
use restripe_sim::program::{self, Arguments, caught, cores, in_threads};
use restripe_sim::swarm::{Coverage, FAMILIES, Options, Outcome, Roughness, run};
use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
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
    program::main("swarm", HELP, parse, swarm)
}

fn parse(mut rest: Arguments) -> Result<Option<Settings>, String> {
    let mut settings = Settings {
        seeds: 0..1000,
        jobs: cores(),
        options: Options::default(),
        twice: false,
        keep_going: false,
        coverage: false,
    };
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--seed" => settings.seeds = rest.seed()?,
            "--seeds" => settings.seeds = rest.seeds()?,
            "--jobs" => settings.jobs = rest.number()?.max(1),
            "--bug" => settings.options.bug = rest.bug()?,
            "--twice" => settings.twice = true,
            "--keep-going" => settings.keep_going = true,
            "--coverage" => settings.coverage = true,
            "--canary" => settings.options.canary = true,
            "--trace" => settings.options.trace = true,
            "--level" => settings.options.family = Some(named(rest.value()?, &FAMILIES)?),
            "--rough" => settings.options.roughness = named(rest.value()?, &ROUGHNESS)?,
            "--hole" => settings.options.write_hole = Some(named(rest.value()?, &HOLES)?),
            "--init" => settings.options.init = Some(named(rest.value()?, &INITS)?),
            "--payload" => settings.options.payload = Some(named(rest.value()?, &PAYLOADS)?),
            other => return program::unknown(other),
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

fn named<T: Copy>(name: String, choices: &[(&str, T)]) -> Result<T, String> {
    let names: Vec<&str> = choices.iter().map(|choice| choice.0).collect();
    let mut choices = choices.iter();
    let found = choices.find(|choice| choice.0 == name);
    let found = found.map(|choice| choice.1);
    found.ok_or(format!("{name} is none of {}", names.join(", ")))
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

fn swarm(settings: Settings) -> ExitCode {
    let begun = Instant::now();
    if !settings.options.trace {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let next = AtomicU64::new(settings.seeds.start);
    let found = Mutex::new(Found::default());
    in_threads(settings.jobs, || work(&settings, &next, &found));
    let found = found.into_inner().expect("no thread panics with the lock");
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
    let first = judged(seed, &settings.options);
    if settings.twice && first.violations.is_empty() {
        let second = judged(seed, &settings.options);
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

fn judged(seed: u64, options: &Options) -> Outcome {
    // The hook is silent so that a swarm's output stays readable; a replay with --trace shows where it happened.
    caught(|| run(seed, options)).unwrap_or_else(|panic| Outcome {
        violations: vec![panic],
        ..Outcome::default()
    })
}

/// The line that runs one seed again.
fn replay(seed: u64, settings: &Settings) -> String {
    let options = &settings.options;
    let mut line = format!("swarm --seed {seed}");
    let rough = name_of(Some(options.roughness), &ROUGHNESS).filter(|name| *name != "faults");
    for (flag, name) in [
        ("--level", name_of(options.family, &FAMILIES)),
        ("--rough", rough),
        ("--hole", name_of(options.write_hole, &HOLES)),
        ("--init", name_of(options.init, &INITS)),
        ("--payload", name_of(options.payload, &PAYLOADS)),
    ] {
        line += &name.map_or(String::new(), |name| format!(" {flag} {name}"));
    }
    if let Some(bug) = options.bug {
        line += &format!(" --bug {bug:?}");
    }
    line
}

fn name_of<T: PartialEq>(
    value: Option<T>,
    choices: &'static [(&'static str, T)],
) -> Option<&'static str> {
    let mut choices = choices.iter();
    let choice = choices.find(|choice| value.as_ref() == Some(&choice.1));
    choice.map(|choice| choice.0)
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
        let (name, count) = (invariant.name(), seeds.len());
        let few = &seeds[..count.min(8)];
        println!("  {name:<28} {count:>6}  seeds {few:?}");
    }
    if settings.coverage {
        print!("{}", found.coverage);
    }
    let expected = match settings.options.canary {
        true => found.runs,
        false => 0,
    };
    ExitCode::from(u8::from(failed as u64 != expected))
}
