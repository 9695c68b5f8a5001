//! The `restripe` command: parses, hands each verb to its module, and turns failures into words and an exit status.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod beside;
mod cache_sim;
mod command;
mod config;
mod create;
mod demo;
mod desk;
mod engine;
mod examine;
mod failure;
mod fit_disk;
mod generated;
mod grow;
mod heat;
mod lab;
mod lease;
mod member;
mod operate;
mod owner;
mod plan;
mod print;
mod reliability;
mod remake;
mod replay;
mod roster;
mod serve;
mod session;
mod sets;
mod signature;
mod sim;
mod sim_disk;
mod status;
mod surrogate;
mod tie;
mod trace;
mod units;
mod watts;
mod wishes;

use crate::print::{journal, terminal};
use clap::Parser;
use command::{Cli, Lab, Surrogate, Verb};
use failure::Outcome;
use lease::Lease;
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(without_help_verb(std::env::args_os().collect())) {
        Ok(cli) => cli,
        Err(other) => return without_verb(&other),
    };
    restripe_io::signals::outlive_file_size_limit();
    if only_prints(&cli.verb) {
        restripe_io::signals::end_on_closed_pipe();
    }
    let outcome = run(cli.verb).and_then(|()| terminal::finish());
    ended(outcome)
}

/// Help, the version, or wrong use.
fn without_verb(other: &clap::Error) -> ExitCode {
    if other.use_stderr() {
        other.exit();
    }
    restripe_io::signals::end_on_closed_pipe();
    terminal::print_piece(other.render());
    ended(terminal::finish())
}

fn ended(outcome: Outcome) -> ExitCode {
    let code = match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            terminal::say_failure(&failure);
            failure.exit_code()
        }
    };
    journal::end(journal::LAST_WORDS);
    code
}

/// Whether a verb reads, computes and prints, and no array or client depends on its going on.
fn only_prints(verb: &Verb) -> bool {
    match verb {
        Verb::Status(_) | Verb::Metrics(_) | Verb::Examine(_) | Verb::Heat(_) => true,
        Verb::Sim(_) | Verb::Surrogate(Surrogate::Status(_)) => true,
        Verb::Lease(Lease::List(_)) => true,
        Verb::Plan(_) | Verb::Lab(_) | Verb::Trace(_) | Verb::CacheSim(_) => true,
        Verb::SimDisk(verb) => verb.preset.is_none(),
        _ => false,
    }
}

/// `restripe help create` is another way to say `restripe create --help`.
fn without_help_verb(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == "help") {
        words.remove(1);
        words.push("--help".into());
    }
    words
}

fn run(verb: Verb) -> Outcome {
    match verb {
        Verb::Plan(verb) => plan::run(&verb),
        Verb::Create(verb) => create::run(verb),
        Verb::Assemble(verb) => serve::assemble(verb),
        Verb::Serve(verb) => serve::serve(verb),
        Verb::Status(verb) => status::run(&verb),
        Verb::Examine(verb) => examine::run(verb),
        Verb::Fail(verb) => operate::fail(&verb),
        Verb::Remove(verb) => operate::remove(&verb),
        Verb::Add(verb) => operate::add(&verb),
        Verb::Replace(verb) => operate::replace(&verb),
        Verb::Grow(verb) => grow::run(&verb),
        Verb::Rebuild(verb) => operate::rebuild(&verb),
        Verb::Scrub(verb) => operate::scrub(&verb),
        Verb::Stop(verb) => operate::stop(&verb),
        Verb::Metrics(verb) => operate::metrics(&verb),
        Verb::Surrogate(Surrogate::Status(verb)) => surrogate::run(&verb),
        Verb::Surrogate(Surrogate::Add(verb)) => operate::add_surrogate(&verb),
        Verb::Surrogate(Surrogate::Remove(verb)) => operate::remove_surrogate(&verb),
        Verb::Surrogate(Surrogate::Destage(verb)) => operate::destage(&verb),
        Verb::Lease(verb) => lease::run(&verb),
        Verb::Heat(verb) => heat::run(&verb),
        Verb::Sim(verb) => sim::run(&verb),
        Verb::SimDisk(verb) => sim_disk::run(&verb),
        Verb::Lab(Lab::List) => lab::list(),
        Verb::Lab(Lab::Run(verb)) => lab::run(&verb),
        Verb::Lab(Lab::Compare(verb)) => lab::compare(&verb),
        Verb::Lab(Lab::Report(verb)) => lab::report(&verb),
        Verb::Lab(Lab::FitDisk(verb)) => fit_disk::run(&verb),
        Verb::Lab(Lab::Reliability(verb)) => reliability::run(&verb),
        Verb::Replay(verb) => replay::run(&verb),
        Verb::Trace(verb) => trace::run(&verb),
        Verb::CacheSim(verb) => cache_sim::run(&verb),
        Verb::Demo(verb) => demo::run(&verb),
        Verb::Generate(verb) => generated::run(&verb),
    }
}
