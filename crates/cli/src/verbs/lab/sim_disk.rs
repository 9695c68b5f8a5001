//! `sim-disk`: serves a model of a drive over NBD, in real time, until told to stop.

use crate::failure::{Failure, Outcome, failed_at};
use crate::print::terminal::{outln, print_note};
use crate::units::parse_size;
use clap::{Args, ValueEnum};
use restripe_io::signals::Termination;
use restripe_lab::drives::clock::Clockwork;
use restripe_lab::drives::export::{Backing, Export, Stream};
use restripe_lab::drives::preset::{self, Made, Preset};
use restripe_sim::disk::mechanical::Mechanical;
use restripe_sim::disk::queue::Policy;
use restripe_sim::disk::served::HardDisk;
use std::fs::OpenOptions;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Schedule {
    /// In order of arrival
    Fcfs,
    /// The nearest in the direction in which the arm sweeps
    Look,
    /// The one with the shortest positioning time
    #[default]
    Sptf,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Switch {
    #[default]
    On,
    Off,
}

#[derive(Args, Debug)]
pub(crate) struct SimDisk {
    /// The drive: a name, or a TOML file, or DiskSim's .model or .diskspecs; without it, the names are listed
    #[arg(value_name = "DRIVE")]
    pub preset: Option<String>,
    /// Serve only SIZE of the drive [default: all]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Number of commands in the drive at a time; further commands wait in front of it
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: u32,
    /// Order of commands within the drive
    #[arg(long, value_enum, default_value_t)]
    pub schedule: Schedule,
    /// Whether the drive acknowledges writes from its memory
    #[arg(long, value_enum, default_value_t)]
    pub write_cache: Switch,
    /// Store the data in this file instead of in memory
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Listen on this Unix socket
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// Listen on this TCP address: PORT, on loopback, or HOST:PORT [default: 10809]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "unix")]
    pub tcp: Option<String>,
}

/// No command waits longer than this for nearer ones.
const PATIENCE_NS: u64 = 2_000_000_000;

pub(crate) fn run(verb: &SimDisk) -> Outcome {
    let Some(name) = &verb.preset else {
        return list();
    };
    let termination =
        Termination::hold().map_err(|e| Failure::new(format!("signals cannot be blocked: {e}")))?;
    let (clockwork, blocks) = clockwork(verb, name).map_err(Failure::new)?;
    let capacity = blocks * 512;
    let size = verb.size.unwrap_or(capacity);
    if size > capacity || size < 512 {
        return Err(Failure::usage(format!(
            "--size must be from 512 to the drive's {capacity} bytes"
        )));
    }
    let backing = backing(verb.file.as_deref(), size)?;
    let export = Export::start(clockwork, backing, size);
    listen(verb, &export)?;
    termination
        .wait()
        .map_err(|e| Failure::new(format!("signals cannot be waited for: {e}")))?;
    if let Some(path) = &verb.unix {
        // Somebody may have removed it already.
        drop(std::fs::remove_file(path));
    }
    export
        .stop()
        .map_err(|e| Failure::new(format!("the data could not be made durable: {e}")))
}

fn list() -> Outcome {
    for name in preset::names() {
        let preset = preset::named(name).map_err(Failure::new)?;
        outln!("{name:<14} {}", preset.summary);
    }
    Ok(())
}

/// By name, or from a file when the name is a path.
fn load(name: &str) -> Result<Preset, String> {
    if name.contains('/') || name.ends_with(".toml") {
        return preset::at(Path::new(name));
    }
    preset::of(name)
}

fn clockwork(verb: &SimDisk, name: &str) -> Result<(Clockwork, u64), String> {
    let policy = match verb.schedule {
        Schedule::Fcfs => Policy::Fcfs,
        Schedule::Look => Policy::Look,
        Schedule::Sptf => Policy::Sptf {
            patience_ns: PATIENCE_NS,
        },
    };
    let preset = load(name)?;
    let made = preset.make()?;
    let blocks = made.blocks();
    let clockwork = match made {
        Made::Flash(drive) => Clockwork::flash(drive, verb.depth),
        Made::Mechanical(drive) => {
            let mut parts = drive.drive().clone();
            parts.cache.write_back = verb.write_cache == Switch::On;
            let drive = HardDisk::new(Mechanical::new(parts)?, policy, preset.power()?);
            Clockwork::hard(drive, policy, verb.depth)
        }
    };
    Ok((clockwork, blocks))
}

fn backing(file: Option<&Path>, size: u64) -> Outcome<Backing> {
    let Some(path) = file else {
        return Ok(Backing::memory());
    };
    let open = || -> io::Result<_> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        if file.metadata()?.len() < size {
            file.set_len(size)?;
        }
        Ok(file)
    };
    open()
        .map(Backing::File)
        .map_err(failed_at("the file cannot be used", path))
}

fn listen(verb: &SimDisk, export: &Export) -> Outcome {
    if let Some(path) = &verb.unix {
        let failed = failed_at("cannot listen", path);
        let listener = UnixListener::bind(path).map_err(failed)?;
        print_note(&format!("serving nbd+unix:///?socket={}", path.display()));
        return accept(export, move || listener.accept().map(|(stream, _)| stream));
    }
    let address = verb.tcp.as_deref().unwrap_or("10809");
    let address = if address.contains(':') {
        address.to_string()
    } else {
        format!("127.0.0.1:{address}")
    };
    let failed = |e: io::Error| Failure::new(format!("cannot listen: {e}")).at(&address);
    let listener = TcpListener::bind(&address).map_err(failed)?;
    outln!("serving nbd://{}", listener.local_addr().map_err(failed)?);
    accept(export, move || {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        Ok(stream)
    })
}

/// Accepts on a thread of its own, as long as the process lives.
fn accept<S: Stream>(
    export: &Export,
    next: impl Fn() -> io::Result<S> + Send + 'static,
) -> Outcome {
    let export = export.clone();
    std::thread::spawn(move || {
        loop {
            match next() {
                Ok(stream) => export.attach(stream),
                // Out of descriptors, say: the next attempt must not come at once.
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(50)),
            }
        }
    });
    Ok(())
}
