//! `xtask md-bench`: rebuilds under load, Linux md beside Restripe on simulated disks of the same kind; and growth
//! ([`super::growth`]).
//!
//! A level-5 array of four disks of 7200 rpm loses one and is given a fifth while fio works on it; measured are the speed
//! of the rebuild and the latencies that fio sees meanwhile, at several settings of the least speed that a rebuild keeps.
//! md runs in the rig's guest, with its stripe cache as it is by default and enlarged; Restripe here, with its members
//! behind NBD. Both guard against the write hole by the same means. What is told of the curves is in [`super::curve`].

use super::curve::{self, Point, Series};
use super::disks::{DISK, Disks};
use super::growth;
use super::guest::{self, Engine, Guest};
use super::house::{Daemon, House, Outcome, words};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const ENGINES: [Engine; 2] = [Engine::UserMode, Engine::UserModeOnLargeState];
const DISKS: usize = 5;
const SLOTS: usize = 4;
const CHUNK_BYTES: u64 = 64 * 1024;
/// Seconds that a point is measured for, unless its rebuild ends before.
const SECONDS: u64 = 12;
/// What a point in the guest takes at most: fio is slow to begin there.
const POINT_SECONDS: u64 = SECONDS + 30;
/// The least speeds of a rebuild, KiB a second; the last is none that a disk reaches.
const LEAST_KIB: [u64; 4] = [1_000, 10_000, 30_000, 1_000_000];
/// md's `stripe_cache_size`: its default, and tuned.
const STRIPE_CACHES: [u32; 2] = [256, 4096];
const PLAN: &str = "plan";
const PATIENCE: Duration = Duration::from_secs(30);

/// What users do meanwhile.
struct Load {
    name: &'static str,
    holes: &'static [&'static str],
    fio: &'static [&'static str],
}

const LOADS: [Load; 2] = [
    Load {
        name: "reads",
        // Reads close no write hole: one means will do.
        holes: &["bitmap"],
        fio: &["--rw=randread", "--iodepth=4"],
    },
    Load {
        name: "mixed",
        holes: &["bitmap", "ppl"],
        fio: &[
            "--rw=randrw",
            "--rwmixread=70",
            "--iodepth=16",
            "--rate_iops=28,12",
        ],
    },
];

const FIO: [&str; 8] = [
    "--name=load",
    "--bs=4k",
    "--randrepeat=0",
    "--norandommap",
    "--time_based",
    "--runtime=600",
    "--output-format=terse",
    "--terse-version=3",
];

/// Measures the loads whose names contain one of the patterns, or all.
pub fn run(root: &Path, patterns: &[&str]) -> ExitCode {
    let Some(rig) = guest::rig(root) else {
        println!("skipped md-bench: needs root and rig/md-guest below $RESTRIPE_SHARED");
        return ExitCode::SUCCESS;
    };
    let folder = std::env::temp_dir().join(format!("restripe-md-bench-{}", std::process::id()));
    let out = root.join("target/md-bench");
    let done = grown(root, &rig, &folder, patterns)
        .and_then(|()| measure(root, &rig, &folder, patterns))
        .and_then(|series| match series.is_empty() {
            true => Ok(()),
            false => curve::tell(&series, &out),
        });
    // Sockets and programs of ours.
    let _ = fs::remove_dir_all(&folder);
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("md-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How arrays grow, if that is asked for.
fn grown(root: &Path, rig: &Path, folder: &Path, patterns: &[&str]) -> Outcome<()> {
    match patterns.is_empty() || patterns.iter().any(|p| growth::NAME.contains(p)) {
        true => growth::run(root, rig, &folder.join(growth::NAME)),
        false => Ok(()),
    }
}

fn measure(root: &Path, rig: &Path, folder: &Path, patterns: &[&str]) -> Outcome<Vec<Series>> {
    let chosen: Vec<&Load> = LOADS
        .iter()
        .filter(|load| patterns.is_empty() || patterns.iter().any(|p| load.name.contains(p)))
        .collect();
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let house = House::new(super::binary()?, &folder.join("house"))?;
    let disks = Disks::start(rig, folder, DISKS)?;
    let mut series = Vec::new();
    for load in &chosen {
        for hole in load.holes {
            series.push(ours(&house, &disks, load, hole)?);
        }
    }
    drop(disks);
    series.extend(theirs(root, rig, folder, &chosen)?);
    Ok(series)
}

// ------------------------------------------------------------------------------------------------------- Linux md

fn theirs(root: &Path, rig: &Path, folder: &Path, chosen: &[&Load]) -> Outcome<Vec<Series>> {
    let (mut plan, mut series) = (String::new(), Vec::new());
    for load in chosen {
        for hole in load.holes {
            for cache in STRIPE_CACHES {
                let who = format!("md, stripe cache {cache}");
                for least in LEAST_KIB {
                    let name = format!("{}.{least}", series.len());
                    let fio = [&FIO, load.fio].concat().join(" ");
                    plan += &format!("{name} {hole} {cache} {least} {SECONDS} {fio}\n");
                }
                series.push(Series::new(load.name, hole, &who));
            }
        }
    }
    super::write(&folder.join(PLAN), plan.as_bytes())?;
    let guest = Guest {
        root,
        rig,
        folder,
        options: words(&[&["--mem", "1G"][..], &["--hdd", DISK].repeat(DISKS)].concat()),
        seconds: POINT_SECONDS * plan.lines().count() as u64,
    };
    let said = guest.run(&ENGINES, "bench.py", &[PLAN])?;
    for line in said.lines() {
        if let Some((nth, point)) = told(line) {
            let series = series
                .get_mut(nth)
                .ok_or("the guest names no point of ours")?;
            series.points.push(point);
        } else if line != super::END {
            eprintln!("md-bench: {line}");
        }
    }
    Ok(series)
}

/// A line `point SERIES.LEAST REBUILT_KIB MILLISECONDS TERSE`.
fn told(line: &str) -> Option<(usize, Point)> {
    let mut words = line.strip_prefix("point ")?.splitn(4, ' ');
    let (nth, least) = words.next()?.split_once('.')?;
    let rebuilt_kib: f64 = words.next()?.parse().ok()?;
    let millis: f64 = words.next()?.parse().ok()?;
    let rate = rebuilt_kib / 1024.0 / (millis / 1000.0);
    let point = Point::new(least.parse().ok()?, rate, words.next()?)?;
    Some((nth.parse().ok()?, point))
}

// ------------------------------------------------------------------------------------------------------- Restripe

fn ours(house: &House, disks: &Disks, load: &Load, hole: &str) -> Outcome<Series> {
    let mut series = Series::new(load.name, hole, "restripe");
    for least in LEAST_KIB {
        let point = our_point(house, disks, load, hole, least)
            .map_err(|error| format!("{} {hole} {least}: {error}", load.name))?;
        // It takes minutes until all is told: a sign of life.
        eprintln!("{} {hole}: restripe from {least} KiB/s {point}", load.name);
        series.points.push(point);
    }
    Ok(series)
}

fn our_point(house: &House, disks: &Disks, load: &Load, hole: &str, least: u64) -> Outcome<Point> {
    let members = &disks.names[..SLOTS];
    let options = [
        "--level",
        "raid5",
        "--chunk",
        "64K",
        "--init",
        "assume-clean",
    ];
    let options = [&options[..], &["--write-hole", hole, "--force", "--yes"]].concat();
    house.create(&words(&options), members)?;
    let rate = format!("{least}K..");
    let daemon = house.serve_with(&["--rate", &rate], members)?;
    daemon.fail(&members[SLOTS - 1])?;
    let mut fio = Fio::start(daemon.uri(), load)?;
    await_work(&daemon)?;
    let spare = disks.names[SLOTS].display().to_string();
    daemon.ask("add", &[&spare, "--force", "--yes"])?;
    let begin = Instant::now();
    let rebuilt = watch(&daemon, begin)? * CHUNK_BYTES;
    let elapsed = begin.elapsed();
    let terse = fio.end()?;
    daemon.stop()?;
    let rate = rebuilt as f64 / f64::from(1 << 20) / elapsed.as_secs_f64();
    Point::new(least, rate, &terse).ok_or(format!("fio says {terse}"))
}

/// Waits until fio's requests arrive.
fn await_work(daemon: &Daemon<'_>) -> Outcome<()> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let status = daemon.ask("status", &["--json"])?;
        if number(&status, "reads").is_some_and(|count| count > 8) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err("fio does not begin".into())
}

/// Rows rebuilt until the end of the rebuild or of the time.
fn watch(daemon: &Daemon<'_>, begin: Instant) -> Outcome<u64> {
    let (mut done, mut total) = (0, 0);
    loop {
        let status = daemon.ask("status", &["--json"])?;
        match number(&status, "rows_done") {
            Some(rows) => done = rows,
            // It was there, and is over.
            None if total > 0 => return Ok(total),
            None => {}
        }
        total = number(&status, "rows_total").unwrap_or(total);
        if begin.elapsed() >= Duration::from_secs(SECONDS) {
            return Ok(done);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The first number of this name in a JSON text.
fn number(json: &str, name: &str) -> Option<u64> {
    let rest = json.split_once(&format!("\"{name}\":"))?.1.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    rest[..end].parse().ok()
}

struct Fio(Child);

impl Fio {
    fn start(uri: &str, load: &Load) -> Outcome<Fio> {
        let child = Command::new("fio")
            .args(["--ioengine=nbd", &format!("--uri={uri}")])
            .args(FIO)
            .args(load.fio)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        child.map(Fio).map_err(|error| format!("fio: {error}"))
    }

    /// Ends it before its time. Gives its line of results.
    fn end(&mut self) -> Outcome<String> {
        let mut said = String::new();
        let asked = Command::new("kill")
            .args(["-s", "INT", &self.0.id().to_string()])
            .status();
        asked.map_err(|error| format!("kill: {error}"))?;
        if let Some(mut stdout) = self.0.stdout.take() {
            std::io::Read::read_to_string(&mut stdout, &mut said)
                .map_err(|error| error.to_string())?;
        }
        let line = said.lines().find(|line| line.starts_with("3;"));
        Ok(line.ok_or(format!("fio says {said}"))?.to_string())
    }
}

impl Drop for Fio {
    fn drop(&mut self) {
        // It has ended already, unless something else failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_json() {
        let json = r#"{"tasks":[{"rows_done": 12,"rows_total":8192}],"counters":{"reads":7}}"#;
        assert_eq!(number(json, "rows_done"), Some(12));
        assert_eq!(number(json, "reads"), Some(7));
        assert_eq!(number(json, "writes"), None);
    }

    #[test]
    fn a_point_of_the_guest_is_read() {
        let terse = "3;fio-3.33;load;0;0;3272;385;96.5;1;99.000000%=1500;99.000000%=0";
        let line = format!("point 3.1000 10240 2000 {terse}");
        let (nth, point) = told(&line).expect("a point");
        assert_eq!((nth, point.least_kib, point.read_p99_us), (3, 1000, 1500.0));
        assert!((point.rate - 5.0).abs() < 1e-9);
        assert!(told("failed 3.1000: no").is_none());
    }
}
