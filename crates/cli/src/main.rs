//! The `restripe` command: parses, hands each verb to its module, and turns failures into words and an exit status.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod arrays;
mod daemon;
mod failure;
mod print;
mod units;
mod verbs;

use clap::Parser;
use failure::Outcome;
use print::{journal, terminal};
use std::ffi::OsString;
use std::process::ExitCode;
use verbs::{Cli, only_prints, run};

fn main() -> ExitCode {
    let (words, warnings) = args::renamed::line(std::env::args_os().collect());
    warnings.iter().for_each(terminal::warn);
    let cli = match Cli::try_parse_from(without_help_verb(words)) {
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

/// `restripe help create` is another way to say `restripe create --help`.
fn without_help_verb(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == "help") {
        words.remove(1);
        words.push("--help".into());
    }
    words
}
