//! The command table: every verb with its line of help, what runs it, and whether it only prints. Parsing,
//! `--help`, the man pages and the completions come from this table and from the arguments in the verbs'
//! files.

mod assemble;
mod attach;
mod create;
mod examine;
mod generated;
mod grow;
mod heat;
mod lab;
mod lease;
mod members;
mod metrics;
mod plan;
mod rebuild;
mod scrub;
pub mod serve;
mod session;
mod status;
mod stop;
pub mod surrogate;
mod watch;

use crate::failure::Outcome;
use assemble::Assemble;
use attach::{Attach, Detach};
use clap::{CommandFactory, Parser, Subcommand};
use create::Create;
use examine::Examine;
use generated::Generate;
use grow::Grow;
use heat::Heat;
use lab::cache_sim::{self, CacheSim};
use lab::demo::{self, Demo};
use lab::replay::{self, Replay};
use lab::sim::{self, Sim};
use lab::sim_disk::{self, SimDisk};
use lab::trace::args::Trace;
use lab::{Lab, claims, experiments, fit_disk, reliability, trace};
use lease::Lease;
use members::{Add, FailMember, OnMember, Replace};
use metrics::Metrics;
use rebuild::Rebuild;
use scrub::Scrub;
use serve::Serve;
use status::Status;
use stop::Stop;
use surrogate::Surrogate;

/// Software RAID for Linux that serves data while disks fail, with the laboratory that tests it.
#[derive(Parser, Debug)]
#[command(
    name = "restripe",
    version,
    disable_help_subcommand = true,
    max_term_width = 100
)]
#[command(
    after_help = "Sizes take K, M, G or T (powers of 1024); times take ms, s, m or h.
A member is a file, a block device, or an NBD URI (nbd://host/export, nbd+unix:///export?socket=path).
Exit status: 0 success, 1 failure, 2 wrong usage."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Compare layouts for given disks; writes nothing
    Plan(plan::Wanted),
    /// Create an array on empty members
    Create(Create),
    /// Check members, replay their logs, print the status and exit, without serving
    Assemble(Assemble),
    /// Serve arrays over NBD, iSCSI and vhost-user until stopped
    Serve(Box<Serve>),
    /// Attach a served array as a block device of the kernel, /dev/nbdN or /dev/ublkbN
    Attach(Attach),
    /// Detach an array's block device
    Detach(Detach),
    /// Show an array's state, members, tasks and lost data
    #[command(override_usage = "restripe status [NAME] [OPTIONS] [--offline <MEMBER>...]")]
    Status(Status),
    /// Show the metadata of members, read-only
    Examine(Examine),
    /// Fail a member: the array stops using it
    #[command(override_usage = "restripe fail <NAME> <MEMBER> [OPTIONS] [--offline <MEMBER>...]")]
    Fail(FailMember),
    /// Remove a failed member or a spare from the array
    #[command(override_usage = "restripe remove <NAME> <MEMBER> [OPTIONS] [--offline <MEMBER>...]")]
    Remove(OnMember),
    /// Add a device: a returning member to its slot, or a new spare
    #[command(override_usage = "restripe add <NAME> <MEMBER> [OPTIONS] [--offline <MEMBER>...]")]
    Add(Add),
    /// Replace a working member by copying it onto another device
    #[command(
        override_usage = "restripe replace <NAME> <OLD> <NEW> [OPTIONS] [--offline <MEMBER>...]"
    )]
    Replace(Replace),
    /// Grow an array by further members while it serves; or watch, pause or throttle a running growth
    #[command(
        override_usage = "restripe grow <NAME> --add <MEMBER>... [OPTIONS] [--offline <MEMBER>...]
       restripe grow <NAME> [OPTIONS] [--offline <MEMBER>...]"
    )]
    Grow(Grow),
    /// Watch, pause or throttle a running rebuild; rebuilds start automatically if there is a spare
    #[command(override_usage = "restripe rebuild <NAME> [OPTIONS] [--offline <MEMBER>...]")]
    Rebuild(Rebuild),
    /// Compare all copies and parity with the data; correct them only with --repair
    #[command(override_usage = "restripe scrub <NAME> [OPTIONS] [--offline <MEMBER>...]")]
    Scrub(Scrub),
    /// Flush, mark the array clean, and end its daemon
    Stop(Stop),
    /// Print the counters in the Prometheus text format
    #[command(override_usage = "restripe metrics <NAME> [OPTIONS] [--offline <MEMBER>...]")]
    Metrics(Metrics),
    /// Show the read counts of zones; `--order ido` rebuilds the most-read zones first
    Heat(Heat),
    /// Manage an array's surrogate, which takes users' writes while a member is rebuilt
    #[command(subcommand)]
    Surrogate(Surrogate),
    /// Manage leases: parts of an array lent to other arrays as space for surrogates
    #[command(subcommand)]
    Lease(Lease),
    /// Run arrays in the simulator: one seed, many seeds, or a recorded run
    Sim(Sim),
    /// Serve the model of a drive over NBD, at the speed of that drive
    SimDisk(SimDisk),
    /// Laboratory: experiments from files, reliability of arrays, models of drives
    #[command(subcommand)]
    Lab(Lab),
    /// Replay a block trace, or a synthetic workload, on a simulated or a served array
    Replay(Box<Replay>),
    /// Analyse block traces, and transform them for a replay
    Trace(Trace),
    /// Simulate read caches on a trace: how many disk reads they avoid, healthy or degraded
    CacheSim(Box<CacheSim>),
    /// Demonstrate fault tolerance on disk images: a RAID-5 loses two disks and its daemon under load
    Demo(Demo),
    /// Write man pages and completions below a folder, as `share` has them
    #[command(hide = true)]
    Generate(Generate),
}

pub(crate) fn run(verb: Verb) -> Outcome {
    match verb {
        Verb::Plan(verb) => plan::run(&verb),
        Verb::Create(verb) => create::run(verb),
        Verb::Assemble(verb) => assemble::run(verb),
        Verb::Serve(verb) => serve::run(*verb),
        Verb::Attach(verb) => attach::attach(&verb),
        Verb::Detach(verb) => attach::detach(&verb),
        Verb::Status(verb) => status::run(&verb),
        Verb::Examine(verb) => examine::run(verb),
        Verb::Fail(verb) => members::fail(&verb),
        Verb::Remove(verb) => members::remove(&verb),
        Verb::Add(verb) => members::add(&verb),
        Verb::Replace(verb) => members::replace(&verb),
        Verb::Grow(verb) => grow::run(&verb),
        Verb::Rebuild(verb) => rebuild::run(&verb),
        Verb::Scrub(verb) => scrub::run(&verb),
        Verb::Stop(verb) => stop::run(&verb),
        Verb::Metrics(verb) => metrics::run(&verb),
        Verb::Surrogate(Surrogate::Status(verb)) => surrogate::status(&verb),
        Verb::Surrogate(Surrogate::Add(verb)) => surrogate::add(&verb),
        Verb::Surrogate(Surrogate::Remove(verb)) => surrogate::remove(&verb),
        Verb::Surrogate(Surrogate::Destage(verb)) => surrogate::destage(&verb),
        Verb::Lease(verb) => lease::run(&verb),
        Verb::Heat(verb) => heat::run(&verb),
        Verb::Sim(verb) => sim::run(&verb),
        Verb::SimDisk(verb) => sim_disk::run(&verb),
        Verb::Lab(Lab::List) => experiments::list(),
        Verb::Lab(Lab::Run(verb)) => experiments::run(&verb),
        Verb::Lab(Lab::Compare(verb)) => experiments::compare(&verb),
        Verb::Lab(Lab::Report(verb)) => experiments::report(&verb),
        Verb::Lab(Lab::Verify(verb)) => claims::verify(&verb),
        Verb::Lab(Lab::Papers(verb)) => claims::papers(&verb),
        Verb::Lab(Lab::FitDisk(verb)) => fit_disk::run(&verb),
        Verb::Lab(Lab::Reliability(verb)) => reliability::run(&verb),
        Verb::Replay(verb) => replay::run(&verb),
        Verb::Trace(verb) => trace::run(&verb),
        Verb::CacheSim(verb) => cache_sim::run(&verb),
        Verb::Demo(verb) => demo::run(&verb),
        Verb::Generate(verb) => generated::run(&verb, Cli::command()),
    }
}

/// Whether a verb reads, computes and prints, and no array or client depends on its going on.
pub(crate) fn only_prints(verb: &Verb) -> bool {
    match verb {
        Verb::Status(_) | Verb::Metrics(_) | Verb::Examine(_) | Verb::Heat(_) => true,
        Verb::Sim(_) | Verb::Surrogate(Surrogate::Status(_)) => true,
        Verb::Lease(Lease::List(_)) => true,
        Verb::Plan(_) | Verb::Lab(_) | Verb::Trace(_) | Verb::CacheSim(_) => true,
        Verb::SimDisk(verb) => verb.preset.is_none(),
        _ => false,
    }
}
