//! Assembles crash images: `crashes --images 100000`, or `crashes --seed N --trace IMAGE` to see one fail.

use restripe_sim::enumerate::{Enumerate, KINDS, Reach, Report};
use restripe_sim::program::{self, Arguments, caught, cores, in_threads};
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
    /// The option that names the arrays, and what runs a seed of them.
    kind: (&'static str, Enumerate),
    stride: u64,
    bug: Option<restripe_array::Bug>,
}

fn main() -> ExitCode {
    program::main("crashes", HELP, parse, |settings| crashes(&settings))
}

fn parse(mut rest: Arguments) -> Result<Option<Settings>, String> {
    let mut settings = Settings {
        images: 10_000,
        each: IMAGES_A_SEED,
        seed: None,
        trace: None,
        jobs: cores(),
        keep_going: false,
        kind: KINDS[0],
        stride: 1,
        bug: None,
    };
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--images" => settings.images = rest.number()?,
            "--each" => settings.each = rest.number()?,
            "--bug" => settings.bug = rest.bug()?,
            "--seed" => settings.seed = Some(rest.number()?),
            "--trace" => settings.trace = Some(rest.number()?),
            "--jobs" => settings.jobs = rest.number()?.max(1),
            "--stride" => settings.stride = rest.number()?.max(1),
            "--keep-going" => settings.keep_going = true,
            other => match KINDS[1..].iter().find(|kind| kind.0.trim() == other) {
                Some(kind) => settings.kind = *kind,
                None => return program::unknown(other),
            },
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
    in_threads(settings.jobs, || work(settings, &next, &total));
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
        let (buffered, unbuffered) = (report.buffered, report.unbuffered);
        println!("{buffered:>10}  code cache: records in its buffer alone");
        println!("{unbuffered:>10}  refused without that buffer");
    }
    for (hosting, images) in report.hosting {
        println!("{images:>10}  {hosting:?}");
    }
    ExitCode::from(u8::from(failed > 0))
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
        let report = caught(|| settings.kind.1(seed, reach)).unwrap_or_else(|panic| Report {
            violation: Some((0, panic)),
            ..Report::default()
        });
        let mut total = total.lock().expect("no thread panics with the lock");
        total.0.add(&report);
        if let Some((image, violation)) = report.violation {
            total.1 += 1;
            println!(
                "seed {seed}, image {image}: {violation}\n  replay: crashes{} --stride {} --seed {seed} --trace {image}",
                settings.kind.0, settings.stride,
            );
        }
    }
}
