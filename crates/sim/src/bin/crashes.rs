//! Assembles crash images: `crashes --images 100000`, or `crashes --seed N --trace IMAGE` to see one fail.

use restripe_sim::enumerate::{
    Reach, Report, enumerate, enumerate_gathering, enumerate_grown, enumerate_growth,
    enumerate_hosts, enumerate_pair, enumerate_reshape,
};
use restripe_sim::invariant::{Invariant, Violation};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const HELP: &str = "\
crashes: cuts power at every write of small arrays, and assembles what is left

  --images N       different images in all (default 10000)
  --each N         of one seed at most (default 2000)
  --seed N         one seed only
  --trace IMAGE    say what happens when this image of the seed is assembled
  --jobs N         in so many threads (default: all cores)
  --keep-going     do not stop at the first failure
  --pair           of arrays with a surrogate, through the loss of a member
  --gathers        of mirrors with a code cache, that sleep; half of them with a buffer
  --hosts          of arrays with spare partitions, through losses and the way home
  --grown          of arrays to which data slots were added
  --growth         of arrays that are growing
  --reshape        of arrays that are growing and keep the plain layout
  --stride N       at one moment in N (default 1)
";

/// Images of one seed, before the next one is taken.
const IMAGES_A_SEED: u64 = 2000;

struct Settings {
    images: u64,
    each: u64,
    seed: Option<u64>,
    trace: Option<u64>,
    jobs: u64,
    keep_going: bool,
    kind: Kind,
    stride: u64,
    bug: Option<restripe_array::Bug>,
}

/// Of which arrays.
#[derive(Clone, Copy)]
enum Kind {
    Plain,
    Pair,
    Gathers,
    Hosts,
    Grown,
    Growth,
    Reshape,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match parse(&arguments) {
        Ok(Some(settings)) => crashes(&settings),
        Ok(None) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("crashes: {error}");
            ExitCode::from(2)
        }
    }
}

fn parse(arguments: &[String]) -> Result<Option<Settings>, String> {
    let jobs = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let mut settings = Settings {
        images: 10_000,
        each: IMAGES_A_SEED,
        seed: None,
        trace: None,
        jobs,
        keep_going: false,
        kind: Kind::Plain,
        stride: 1,
        bug: None,
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--bug" {
            let name = rest.next().ok_or("--bug needs a value")?;
            settings.bug = Some(restripe_sim::swarm::bug(name)?);
            continue;
        }
        let mut value = || {
            let text = rest.next().ok_or(format!("{argument} needs a value"))?;
            text.parse::<u64>()
                .map_err(|_| format!("{text} is not a number"))
        };
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--images" => settings.images = value()?,
            "--each" => settings.each = value()?,
            "--seed" => settings.seed = Some(value()?),
            "--trace" => settings.trace = Some(value()?),
            "--jobs" => settings.jobs = value()?.max(1),
            "--pair" => settings.kind = Kind::Pair,
            "--gathers" => settings.kind = Kind::Gathers,
            "--hosts" => settings.kind = Kind::Hosts,
            "--grown" => settings.kind = Kind::Grown,
            "--growth" => settings.kind = Kind::Growth,
            "--reshape" => settings.kind = Kind::Reshape,
            "--stride" => settings.stride = value()?.max(1),
            "--keep-going" => settings.keep_going = true,
            other => return Err(format!("unknown argument {other}; --help lists them")),
        }
    }
    if settings.images.min(settings.each) == 0 {
        return Err("no images are no check: --images and --each are 1 or more".into());
    }
    Ok(Some(settings))
}

fn crashes(settings: &Settings) -> ExitCode {
    let begun = Instant::now();
    let next = AtomicU64::new(settings.seed.unwrap_or(0));
    let total = Mutex::new((Report::default(), 0u64));
    std::thread::scope(|scope| {
        for _ in 0..settings.jobs {
            scope.spawn(|| work(settings, &next, &total));
        }
    });
    let (report, failed) = total.into_inner().expect("no thread panics with the lock");
    println!(
        "{} different images ({} with members away) from {} moments and {} deaths of the daemon, {} repeats, in {:.1} s; {failed} seeds failed",
        report.images,
        report.reduced,
        report.moments,
        report.deaths,
        report.repeats,
        begun.elapsed().as_secs_f64(),
    );
    for (phase, images) in report.phases {
        println!("{images:>10}  {phase:?}");
    }
    for (moment, images) in report.at {
        println!("{images:>10}  code cache: {moment}");
    }
    if report.buffered > 0 {
        println!(
            "{:>10}  code cache: records in its buffer alone",
            report.buffered
        );
        println!("{:>10}  refused without that buffer", report.unbuffered);
    }
    for (hosting, images) in report.hosting {
        println!("{images:>10}  {hosting:?}");
    }
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn work(settings: &Settings, next: &AtomicU64, total: &Mutex<(Report, u64)>) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        let done = {
            let total = total.lock().expect("no thread panics with the lock");
            total.0.images >= settings.images || (total.1 > 0 && !settings.keep_going)
        };
        if done || settings.seed.is_some_and(|only| seed > only) {
            return;
        }
        let reach = Reach {
            trace: settings.trace,
            stride: settings.stride,
            bug: settings.bug,
            ..Reach::images(settings.each.min(settings.images))
        };
        let report = caught(settings.kind, seed, reach);
        let mut total = total.lock().expect("no thread panics with the lock");
        total.0.images += report.images;
        total.0.moments += report.moments;
        total.0.deaths += report.deaths;
        total.0.repeats += report.repeats;
        total.0.reduced += report.reduced;
        total.0.buffered += report.buffered;
        total.0.unbuffered += report.unbuffered;
        for (phase, images) in &report.phases {
            *total.0.phases.entry(*phase).or_default() += images;
        }
        for (moment, images) in &report.at {
            *total.0.at.entry(*moment).or_default() += images;
        }
        for (hosting, images) in &report.hosting {
            *total.0.hosting.entry(*hosting).or_default() += images;
        }
        if let Some((image, violation)) = report.violation {
            total.1 += 1;
            println!(
                "seed {seed}, image {image}: {violation}\n  replay: crashes{} --stride {} --seed {seed} --trace {image}",
                settings.kind.option(),
                settings.stride,
            );
        }
    }
}

impl Kind {
    fn option(self) -> &'static str {
        match self {
            Kind::Plain => "",
            Kind::Pair => " --pair",
            Kind::Gathers => " --gathers",
            Kind::Hosts => " --hosts",
            Kind::Grown => " --grown",
            Kind::Growth => " --growth",
            Kind::Reshape => " --reshape",
        }
    }
}

fn caught(kind: Kind, seed: u64, reach: Reach) -> Report {
    let run = match kind {
        Kind::Plain => enumerate,
        Kind::Pair => enumerate_pair,
        Kind::Gathers => enumerate_gathering,
        Kind::Hosts => enumerate_hosts,
        Kind::Grown => enumerate_grown,
        Kind::Growth => enumerate_growth,
        Kind::Reshape => enumerate_reshape,
    };
    catch_unwind(AssertUnwindSafe(|| run(seed, reach))).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text
            .or(payload.downcast_ref::<&str>().map(ToString::to_string))
            .unwrap_or_default();
        Report {
            violation: Some((0, Violation::new(Invariant::Panic, text))),
            ..Report::default()
        }
    })
}
