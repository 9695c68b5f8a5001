//! How a verb fails: what was wrong, where, and what to do.

use restripe_array::shown;
use restripe_io::control::{ClientError, PlaceError, Refusal};
use std::path::Path;
use std::process::ExitCode;
use std::{fmt, io};

/// What to do where a runtime folder is not to be trusted.
const OWN_FOLDER: &str = "use a folder of your own, also for the daemon: mkdir -p -m 700 ~/.restripe; export XDG_RUNTIME_DIR=~/.restripe";
/// Exit status of a verb that did not do what it was asked for.
const FAILED: u8 = 1;
/// Exit status of a command line that makes no sense.
const USAGE: u8 = 2;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    what: String,
    at: String,
    hint: String,
    /// Exit status.
    code: u8,
    not_running: bool,
    /// The array has ended nevertheless.
    ended: bool,
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub fn new(what: impl Into<String>) -> Failure {
        Failure {
            what: what.into(),
            at: String::new(),
            hint: String::new(),
            code: FAILED,
            not_running: false,
            ended: false,
        }
    }

    /// The command line contradicts itself: exit status 2.
    pub fn usage(what: impl Into<String>) -> Failure {
        Failure::new(what).with_code(USAGE)
    }

    pub fn at(mut self, at: impl fmt::Display) -> Failure {
        self.at = at.to_string();
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = hint.into();
        self
    }

    /// The same, told of a part of the whole.
    pub fn of(mut self, part: &str) -> Failure {
        self.what = format!("{part}: {}", self.what);
        self
    }

    /// A reply that is of another request.
    pub(crate) fn unexpected(verb: &str) -> Failure {
        Failure::new(format!("the daemon sent an unexpected reply to `{verb}`"))
    }

    /// An exit status that says all that there is to say.
    pub fn silent(code: u8) -> Failure {
        Failure::new("").with_code(code)
    }

    pub(crate) fn with_code(mut self, code: u8) -> Failure {
        self.code = code;
        self
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.what.is_empty()
    }

    /// Nothing serves the array.
    pub(crate) fn is_not_running(&self) -> bool {
        self.not_running
    }

    /// The daemon refused a good end, and the array has ended.
    pub(crate) fn is_of_ended(&self) -> bool {
        self.ended
    }

    /// What, where, and what to do.
    pub(crate) fn into_parts(self) -> (String, String, String) {
        (self.what, self.at, self.hint)
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

/// What an error becomes: what failed, and why.
pub(crate) fn failed<E: fmt::Display>(what: &str) -> impl Fn(E) -> Failure {
    move |error| Failure::new(format!("{what}: {error}"))
}

/// What an error at a file becomes: what failed and why, and the path.
pub(crate) fn failed_at(what: &str, path: &Path) -> impl Fn(io::Error) -> Failure {
    move |error| failed(what)(error).at(path.display())
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut what = self.what.lines();
        write!(f, "error: {}", shown(what.next().unwrap_or_default()))?;
        // An excerpt of a file, as the readers of such files give it.
        for line in what {
            write!(f, "\n       | {}", shown(line))?;
        }
        if !self.at.is_empty() {
            write!(f, "\n   at: {}", shown(&self.at))?;
        }
        if !self.hint.is_empty() {
            write!(f, "\n hint: {}", shown(&self.hint))?;
        }
        Ok(())
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        let ended = refusal.ended;
        let failure = Failure::new(refusal.what).at(refusal.at).hint(refusal.hint);
        Failure { ended, ..failure }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Refusal {
        Refusal::new(failure.what).at(failure.at).hint(failure.hint)
    }
}

impl From<PlaceError> for Failure {
    fn from(error: PlaceError) -> Failure {
        let hint = match &error {
            PlaceError::Taken { .. } => "stop that daemon first, or choose another path",
            PlaceError::InTheWay { .. } => "remove it or choose another path",
            PlaceError::Unsafe { .. } => OWN_FOLDER,
            PlaceError::TooLong { .. } => "choose a shorter path",
            _ => "",
        };
        Failure::new(error.to_string()).hint(hint)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let hint = match &error {
            ClientError::Place(PlaceError::Unsafe { .. }) => OWN_FOLDER,
            ClientError::NotRunning { .. } => {
                "start it with `restripe serve`, or name its members with --offline"
            }
            ClientError::NoReply { .. } => {
                "the process hangs, is stopped (SIGSTOP), or is still working: check it with ps"
            }
            _ => "",
        };
        let mut failure = Failure::new(error.to_string()).hint(hint);
        failure.not_running = matches!(error, ClientError::NotRunning { .. });
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_where_and_what_to_do() {
        let plain = Failure::new("it broke");
        assert_eq!(plain.to_string(), "error: it broke");
        let full = plain.at("a.img").hint("mend it").to_string();
        assert_eq!(full, "error: it broke\n   at: a.img\n hint: mend it");
        let excerpt = Failure::new("wrong:\nline \u{1b}[2J")
            .at("a\nb")
            .to_string();
        assert_eq!(
            excerpt,
            "error: wrong:\n       | line \\u001b[2J\n   at: a\\nb"
        );
    }
}
