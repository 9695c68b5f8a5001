//! How a verb fails: what was wrong, where, and what to do.

use restripe_io::control::{ClientError, PlaceError, Refusal};
use std::fmt;
use std::process::ExitCode;

/// Exit status of a command line that makes no sense.
const USAGE: u8 = 2;

#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    what: String,
    at: String,
    hint: String,
    usage: bool,
}

pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub fn new(what: impl Into<String>) -> Failure {
        Failure {
            what: what.into(),
            at: String::new(),
            hint: String::new(),
            usage: false,
        }
    }

    /// The command line contradicts itself: exit status 2.
    pub fn usage(what: impl Into<String>) -> Failure {
        Failure {
            usage: true,
            ..Failure::new(what)
        }
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

    /// What, where, and what to do.
    pub fn into_parts(self) -> (String, String, String) {
        (self.what, self.at, self.hint)
    }

    pub fn exit_code(&self) -> ExitCode {
        if self.usage {
            ExitCode::from(USAGE)
        } else {
            ExitCode::FAILURE
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        if !self.at.is_empty() {
            write!(f, "\n   at: {}", self.at)?;
        }
        if !self.hint.is_empty() {
            write!(f, "\n hint: {}", self.hint)?;
        }
        Ok(())
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure {
            what: refusal.what,
            at: refusal.at,
            hint: refusal.hint,
            usage: false,
        }
    }
}

impl From<PlaceError> for Failure {
    fn from(error: PlaceError) -> Failure {
        let hint = match &error {
            PlaceError::Taken { .. } => "stop that one first, or choose another path",
            PlaceError::InTheWay { .. } => "remove it or choose another path",
            PlaceError::Unsafe { .. } => "set XDG_RUNTIME_DIR to a folder of your own",
            PlaceError::TooLong { .. } => "choose a shorter path",
            _ => "",
        };
        Failure::new(error.to_string()).hint(hint)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let hint = match &error {
            ClientError::NotRunning { .. } => {
                "start it with `restripe serve`, or name its members with --offline"
            }
            _ => "",
        };
        Failure::new(error.to_string()).hint(hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_where_and_what_to_do() {
        let failure = Failure::new("it broke").at("a.img").hint("mend it");
        assert_eq!(
            failure.to_string(),
            "error: it broke\n   at: a.img\n hint: mend it"
        );
        assert_eq!(Failure::new("it broke").to_string(), "error: it broke");
    }
}
