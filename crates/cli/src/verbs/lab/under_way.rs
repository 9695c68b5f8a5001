//! Runs under way: what is kept of them when they end early, by a full disk or a signal.

use crate::failure::{Failure, Outcome, failed, failed_at};
use crate::print::terminal::say;
use restripe_io::signals::Termination;
use restripe_lab::experiment::kept;
use restripe_lab::experiment::runner::{Failed, Progress, RUNS};
use std::io::IsTerminal;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{io, process, thread};

/// Of this process: a signal asks for it from another thread.
static STATE: Mutex<State> = Mutex::new(State {
    fresh: false,
    runs: None,
});

struct State {
    /// The command does not believe what is kept.
    fresh: bool,
    /// Of which scenario, and how far they are.
    runs: Option<(String, Progress)>,
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fails if runs cannot be kept in the folder. From here on a signal that ends the process says what is kept.
/// To be called before the first run, when there is no other thread.
pub(crate) fn begin(folder: &Path, fresh: bool) -> Outcome {
    let folder = folder.join("runs");
    kept::prepare(&folder).map_err(failed_at("runs cannot be kept", &folder))?;
    watch_signals(&folder)?;
    state().fresh = fresh;
    Ok(())
}

/// How far the runs of a scenario are.
pub(crate) fn note(scenario: &str, progress: Progress) {
    state().runs = Some((scenario.to_string(), progress));
}

/// What cells that have no logs make of the command.
pub(crate) fn failure(failed: Failed) -> Failure {
    match failed {
        Failed::Run(error) => Failure::new(error),
        Failed::Keep(error) => {
            Failure::new(format!("a run cannot be kept: {error}")).hint(goes_on())
        }
    }
}

/// How many runs are stored, and how to go on.
pub(crate) fn goes_on() -> String {
    let state = state();
    let stored = match &state.runs {
        None => "no run has ended".to_string(),
        // Capacities are measured before the first run.
        Some((scenario, progress)) if progress.what != RUNS => {
            format!("{scenario}: no run has ended")
        }
        Some((scenario, Progress { kept, total, .. })) => {
            format!("{scenario}: {kept} of {total} runs are stored")
        }
    };
    let without = if state.fresh { " without --fresh" } else { "" };
    format!("{stored}; run the same command{without} to continue")
}

fn watch_signals(folder: &Path) -> Outcome {
    let termination = Termination::hold_heeded().map_err(failed("signals cannot be blocked"))?;
    let folder = folder.to_path_buf();
    let watch = move || {
        if let Ok(signal) = termination.wait() {
            if io::stderr().is_terminal() {
                // The line of progress stays above.
                say("");
            }
            say(format_args!("interrupted: {}", goes_on()));
            kept::clear(&folder);
            // As a shell has it of what a signal ends.
            process::exit(128 + signal);
        }
    };
    let spawned = thread::Builder::new().name("signals".into()).spawn(watch);
    spawned.map_err(failed("signals cannot be waited for"))?;
    Ok(())
}
