//! Verbs of the laboratory: scenarios, drives alone, and reliability.

use crate::units::parse_size;
use clap::{Args, Subcommand, ValueEnum};
use restripe_lab::reliability::quantity::{Exact, parse_hours, parse_number};
use std::path::PathBuf;

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Schedule {
    /// In order of arrival
    Fcfs,
    /// The nearest in the direction in which the arm sweeps
    Look,
    /// The one with the shortest positioning time
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

#[derive(Subcommand, Debug)]
pub enum Lab {
    /// List the scenarios
    List,
    /// Run an experiment, print its results and write its report
    Run(crate::lab::LabRun),
    /// Compare two values of a swept parameter, seed by seed
    Compare(crate::lab::LabCompare),
    /// Rewrite the report of an experiment; runs without stored results are run first
    Report(crate::lab::LabReport),
    /// Fit a drive's parameters to traces, and score the model on the part of each that the fit did not use
    FitDisk(FitDisk),
    /// Compute the mean time to data loss of an array by a Markov chain, and by simulation of disks
    Reliability(Box<Reliability>),
}

#[derive(Args, Debug)]
#[command(
    after_help = "Times are a number with ms, s, m, h, d, w or y (365 days), with decimals and powers of ten: 1e6h, 3.5d, 5y.
A parameter that the model does not use is refused.

Example: restripe lab reliability raid6 --disks 12 --mttf 1e6h --mttr 24h --mission 5y"
)]
pub struct Reliability {
    /// The model; without it, the models are listed
    pub model: Option<String>,
    /// Total number of disks, including disks in standby and the log disk [default: 8; graid and s2-raid5: 9]
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
    /// Mean time until a spare is available; 0h if spares are in stock
    #[arg(long, value_name = "TIME", value_parser = parse_hours, default_value = "0h")]
    pub spare_delay: Exact,
    /// Probability that a repair without remaining redundancy meets an unreadable sector and so loses data
    #[arg(long, value_name = "CHANCE", value_parser = parse_number, default_value = "0")]
    pub sector_loss: Exact,
    /// Failure rate of a disk in standby, relative to an active disk (reraid, graid, eraid) [default: 1]
    #[arg(long, value_name = "FACTOR", value_parser = parse_number)]
    pub asleep: Option<Exact>,
    /// Use the failure rate of an active disk for a standby disk while it is the source of a rebuild,
    /// whatever --asleep is (reraid, graid, eraid)
    #[arg(long)]
    pub wakes: bool,
    /// Number of lost disks that the model `code`, or the code cache of reraid and reraid-text, tolerates
    /// [default of reraid and reraid-text: 2]
    #[arg(long, value_name = "N")]
    pub tolerates: Option<usize>,
    /// Disks of a sub-array of s2-raid5 [default: 3]
    #[arg(long, value_name = "N")]
    pub row: Option<usize>,
    /// Partitions of a disk of s2-raid5 and s2-raid10 [default: the most without conflict]
    #[arg(long, value_name = "N")]
    pub partitions: Option<usize>,
    /// Time in service
    #[arg(long, value_name = "TIME", value_parser = parse_hours, default_value = "5y")]
    pub mission: Exact,
    /// Also simulate single disks, and compare with the chain
    #[arg(long)]
    pub simulate: bool,
    /// With --simulate: number of simulated arrays, one per seed
    #[arg(long, value_name = "N", requires = "simulate", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    pub seeds: u64,
    /// With --simulate: the first seed
    #[arg(long, value_name = "N", requires = "simulate", default_value_t = 1)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Who repairs.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum RepairBy {
    /// One repairer, shared by all failed disks
    One,
    /// Every failed disk at once, at full speed
    All,
}

#[derive(Args, Debug)]
pub struct FitDisk {
    /// The drive's DiskSim .model file, with .diskspecs and .seek in the same folder; may be repeated
    #[arg(long, value_name = "FILE", required = true)]
    pub model: Vec<PathBuf>,
    /// A validation trace of the drive; once for each --model
    #[arg(long, value_name = "FILE", required = true)]
    pub trace: Vec<PathBuf>,
    /// Print the fitted values
    #[arg(long)]
    pub verbose: bool,
}
