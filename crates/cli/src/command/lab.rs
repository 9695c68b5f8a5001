//! Verbs of the laboratory: scenarios, drives alone, and reliability.

use crate::units::parse_size;
use clap::{Args, Subcommand, ValueEnum};
use restripe_lab::reliability::quantity::{Exact, parse_hours, parse_number};
use std::path::PathBuf;

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Schedule {
    /// In order of arrival
    Fcfs,
    /// The nearest ahead of the arm, which sweeps to and fro
    Look,
    /// The one that arm and platter reach soonest
    #[default]
    Sptf,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Switch {
    #[default]
    On,
    Off,
}

#[derive(Args, Debug)]
pub struct SimDisk {
    /// The drive: a name, or a TOML file; without it, the names are listed
    #[arg(value_name = "DRIVE")]
    pub preset: Option<String>,
    /// Serve only so much of it [default: all]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Commands within the drive at a time; more wait before it
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: u32,
    /// Which of the commands within the drive is served next
    #[arg(long, value_enum, default_value_t)]
    pub schedule: Schedule,
    /// Whether writes end in the drive's memory
    #[arg(long, value_enum, default_value_t)]
    pub write_cache: Switch,
    /// Keep the data in this file rather than in memory
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Listen on this Unix socket
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// Listen on this TCP address; without a host on loopback [a port, or HOST:PORT; default: 10809]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "unix")]
    pub tcp: Option<String>,
}

#[derive(Subcommand, Debug)]
pub enum Lab {
    /// List the scenarios
    List,
    /// Run an experiment, and show and write what came of it
    Run(crate::lab::LabRun),
    /// Compare two values of a swept parameter, seed by seed
    Compare(crate::lab::LabCompare),
    /// Write an experiment's report anew; runs of it that are not kept are run first
    Report(crate::lab::LabReport),
    /// Fit a drive's parameters to a trace of it, and score the model on what it has not seen
    FitDisk(FitDisk),
    /// The mean time to data loss of an array: a Markov chain solved, and disks simulated
    Reliability(Box<Reliability>),
}

#[derive(Args, Debug)]
#[command(
    after_help = "Times are a number with ms, s, m, h, d, w or y (365 days), with decimals and powers of ten: 1e6h, 3.5d, 5y.
What a model does not look at is refused.

Example: restripe lab reliability raid6 --disks 12 --mttf 1e6h --mttr 24h --mission 5y"
)]
pub struct Reliability {
    /// The model; without it, the models are listed
    pub model: Option<String>,
    /// Disks in all, those asleep and the log disk included [default: 8; of graid and s2-raid5 9]
    #[arg(long, value_name = "N")]
    pub disks: Option<usize>,
    /// Mean time to failure of a disk
    #[arg(long, value_name = "TIME", value_parser = parse_hours, default_value = "1e6h")]
    pub mttf: Exact,
    /// Mean time to repair a disk
    #[arg(long, value_name = "TIME", value_parser = parse_hours, default_value = "24h")]
    pub mttr: Exact,
    /// One repairer for all failed disks, or one for each
    #[arg(long, value_enum, default_value = "all")]
    pub repair: RepairBy,
    /// Mean time until a spare is there; 0h for spares at hand
    #[arg(long, value_name = "TIME", value_parser = parse_hours, default_value = "0h")]
    pub spare_delay: Exact,
    /// The chance that a repair without redundancy left meets an unreadable sector, and so loses data
    #[arg(long, value_name = "CHANCE", value_parser = parse_number, default_value = "0")]
    pub sector_loss: Exact,
    /// Failures of a sleeping disk for each of one awake (reraid, graid, eraid) [default: 1]
    #[arg(long, value_name = "FACTOR", value_parser = parse_number)]
    pub asleep: Option<Exact>,
    /// A sleeping disk fails like one awake while it is the source of a rebuild, whatever --asleep says (reraid, graid, eraid)
    #[arg(long)]
    pub wakes: bool,
    /// Losses that the model `code` bears, or the code cache of reraid and reraid-text [default of these: 2]
    #[arg(long, value_name = "N")]
    pub tolerates: Option<usize>,
    /// Disks of a sub-array of s2-raid5 [default: 3]
    #[arg(long, value_name = "N")]
    pub row: Option<usize>,
    /// Partitions of a disk of s2-raid5 and s2-raid10 [default: the most without conflict]
    #[arg(long, value_name = "N")]
    pub partitions: Option<usize>,
    /// How long the array is to serve
    #[arg(long, value_name = "TIME", value_parser = parse_hours, default_value = "5y")]
    pub mission: Exact,
    /// Simulate single disks too, and hold the chain against them
    #[arg(long)]
    pub simulate: bool,
    /// With --simulate: lives, one a seed
    #[arg(long, value_name = "N", requires = "simulate", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    pub seeds: u64,
    /// With --simulate: the first seed
    #[arg(long, value_name = "N", requires = "simulate", default_value_t = 1)]
    pub seed: u64,
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
}

/// Who repairs.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum RepairBy {
    /// One repairer, who shares its time among all failed disks
    One,
    /// Every failed disk at once, at full speed
    All,
}

#[derive(Args, Debug)]
pub struct FitDisk {
    /// The drive's DiskSim .model file, with .diskspecs and .seek beside it; may be repeated
    #[arg(long, value_name = "FILE", required = true)]
    pub model: Vec<PathBuf>,
    /// A validation trace of it; once for each --model
    #[arg(long, value_name = "FILE", required = true)]
    pub trace: Vec<PathBuf>,
    /// Print what was fitted
    #[arg(long)]
    pub verbose: bool,
}
