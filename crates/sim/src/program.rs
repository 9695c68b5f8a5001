//! The parts that the programs of this crate share: arguments, ranges of seeds, threads, and runs that panic.

use crate::invariant::{Invariant, Violation};
use restripe_array::Bug;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// Runs a program: `None` from `parse` prints the help.
pub fn main<S>(
    name: &str,
    help: &str,
    parse: impl FnOnce(Arguments) -> Result<Option<S>, String>,
    run: impl FnOnce(S) -> ExitCode,
) -> ExitCode {
    let rest = std::env::args().skip(1).collect::<Vec<_>>().into_iter();
    let last = String::new();
    match parse(Arguments { rest, last }) {
        Ok(Some(settings)) => run(settings),
        Ok(None) => {
            print!("{help}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::from(2)
        }
    }
}

/// The arguments of a program, and the values between them.
pub struct Arguments {
    rest: std::vec::IntoIter<String>,
    last: String,
}

impl Iterator for Arguments {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        self.last = self.rest.next()?;
        Some(self.last.clone())
    }
}

impl Arguments {
    /// The value of the last argument.
    pub fn value(&mut self) -> Result<String, String> {
        let value = self.rest.next();
        value.ok_or(format!("{} needs a value", self.last))
    }

    pub fn number(&mut self) -> Result<u64, String> {
        self.value().and_then(|text| number(&text))
    }

    /// One seed, as a range.
    pub fn seed(&mut self) -> Result<Range<u64>, String> {
        self.number().map(|seed| seed..seed + 1)
    }

    /// Seeds `A..B`.
    pub fn seeds(&mut self) -> Result<Range<u64>, String> {
        let text = self.value()?;
        let ends = text.split_once("..");
        let (from, to) = ends.ok_or(format!("{text} is not a range A..B"))?;
        let seeds = number(from)?..number(to)?;
        match seeds.is_empty() {
            true => Err(format!("{text} has no seed, and would find nothing wrong")),
            false => Ok(seeds),
        }
    }

    pub fn bug(&mut self) -> Result<Option<Bug>, String> {
        let name = self.value()?;
        crate::swarm::bug(&name).map(Some)
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}

/// The error for an argument that a program does not have.
pub fn unknown<T>(argument: &str) -> Result<T, String> {
    Err(format!("unknown argument {argument}; --help lists them"))
}

/// As many threads as there are cores.
pub fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64)
}

/// Runs `work` in that many threads, and waits for them.
pub fn in_threads(threads: u64, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(&work);
        }
    });
}

/// A run, or the violation that its panic is.
pub fn caught<T>(run: impl FnOnce() -> T) -> Result<T, Violation> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or(payload.downcast_ref::<&str>().map(ToString::to_string));
        Violation::new(Invariant::Panic, text.unwrap_or_default())
    })
}
