//! What a client may ask, and what it gets back.

use super::attached::AttachOptions;
use super::facts::FactView;
use super::schema::{GrowthView, HeatView, StatusView};
use serde::{Deserialize, Serialize};

/// One thing to do. Members are named by path, by number or by UUID.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    Status,
    /// Which member is meant: its path, as the daemon knows it.
    Which {
        member: String,
    },
    /// Fail a member; `accept_loss`: also one that has data which no other member has. `dry_run` only tells
    /// whether it may be failed.
    Fail {
        member: String,
        #[serde(default)]
        accept_loss: bool,
        #[serde(default)]
        dry_run: bool,
    },
    /// Forget a failed or spare member and close it.
    Remove {
        member: String,
    },
    /// Open a device and take it in: back into its old place, or as a spare. `force` wipes what other
    /// software left; `to_surrogate` makes a stranger the surrogate's, and `to_buffer` its buffer's.
    Add {
        path: String,
        #[serde(default)]
        force: bool,
        #[serde(default)]
        to_surrogate: bool,
        #[serde(default)]
        to_buffer: bool,
    },
    /// Copy a serving member onto another device, then retire it.
    Replace {
        old: String,
        path: String,
        #[serde(default)]
        force: bool,
    },
    /// Take these devices in and grow by them: new ones, or spares. `moves` names how, if not in the best
    /// way. `dry_run` only tells what that would do.
    Grow {
        members: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        moves: Option<String>,
        #[serde(default)]
        force: bool,
        #[serde(default)]
        dry_run: bool,
    },
    /// Make a surrogate of these devices and go on with it, at a level by name; `force` overwrites what they
    /// carry.
    AddSurrogate {
        members: Vec<String>,
        #[serde(default)]
        level: Option<String>,
        #[serde(default)]
        force: bool,
    },
    /// Go on without the surrogate, in which nothing may be that counts.
    RemoveSurrogate,
    /// Bring home what lies in a log that takes every write.
    Destage,
    /// Compare all rows. `repair` writes what a second witness proves; with `sync`, rows without a witness
    /// are brought in sync, too.
    Scrub {
        repair: bool,
        #[serde(default)]
        sync: bool,
    },
    Pause,
    Resume,
    /// Stop the running scrub.
    Cancel,
    /// Rate limits of tasks, bytes a second of one member.
    Rate {
        min_bytes: u64,
        max_bytes: u64,
    },
    /// What paces tasks, by name.
    Throttle {
        name: String,
    },
    /// In which order tasks go through the array, by name.
    Order {
        name: String,
    },
    /// Whether reads of what is not rebuilt call the task there.
    OnDemand {
        on: bool,
    },
    /// Whether what was rebuilt apart is brought together by itself.
    CopyBack {
        on: bool,
    },
    /// Lend a part of the array to another.
    Lend {
        lease: String,
        bytes: u64,
    },
    /// And take it back. `force`: also from an array that has it on record.
    TakeBack {
        lease: String,
        #[serde(default)]
        force: bool,
    },
    /// Make a block device of the kernel of the array; `device`: this one.
    Attach {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<String>,
        options: AttachOptions,
    },
    /// Give the block device back, if nothing uses it.
    Detach,
    /// Drain, flush, mark clean, and end the daemon if this was its last array.
    Stop,
    /// The counters in the Prometheus text format.
    Metrics,
    /// What users read, by zones: the hottest, so many at most.
    Heat {
        most: u32,
    },
    /// Log entries from this sequence number on.
    Facts {
        #[serde(default)]
        since: u64,
    },
}

impl Request {
    /// Whether it changes nothing, and waits for no member.
    pub fn only_asks(&self) -> bool {
        matches!(
            self,
            Request::Status
                | Request::Which { .. }
                | Request::Metrics
                | Request::Heat { .. }
                | Request::Facts { .. }
        )
    }

    /// The verb, for messages.
    pub fn verb(&self) -> &'static str {
        match self {
            Request::Status => "status",
            Request::Which { .. } => "which",
            Request::Fail { .. } => "fail",
            Request::Remove { .. } => "remove",
            Request::Add { .. } => "add",
            Request::Replace { .. } => "replace",
            Request::Grow { .. } => "grow",
            Request::AddSurrogate { .. } => "add-surrogate",
            Request::RemoveSurrogate => "remove-surrogate",
            Request::Destage => "destage",
            Request::Scrub { .. } => "scrub",
            Request::Pause => "pause",
            Request::Resume => "resume",
            Request::Cancel => "cancel",
            Request::Rate { .. } => "rate",
            Request::Throttle { .. } => "throttle",
            Request::Order { .. } => "order",
            Request::OnDemand { .. } => "on-demand",
            Request::CopyBack { .. } => "copy-back",
            Request::Lend { .. } => "lend",
            Request::TakeBack { .. } => "take-back",
            Request::Attach { .. } => "attach",
            Request::Detach => "detach",
            Request::Stop => "stop",
            Request::Metrics => "metrics",
            Request::Heat { .. } => "heat",
            Request::Facts { .. } => "facts",
        }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// It is done, or under way; `note` says which.
    Done {
        note: String,
    },
    Status(Box<StatusView>),
    Metrics {
        text: String,
    },
    Heat(Box<HeatView>),
    Growth(GrowthView),
    /// `next` is what to ask for next time.
    Facts {
        facts: Vec<FactView>,
        next: u64,
    },
    Refused(Refusal),
}

/// Why not: what was wrong, where, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Refusal {
    pub what: String,
    #[serde(default)]
    pub at: String,
    #[serde(default)]
    pub hint: String,
    /// The array has ended nevertheless.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
}

impl Refusal {
    pub fn new(what: impl Into<String>) -> Refusal {
        Refusal {
            what: what.into(),
            ..Refusal::default()
        }
    }

    pub fn at(mut self, at: impl Into<String>) -> Refusal {
        self.at = at.into();
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Refusal {
        self.hint = hint.into();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_they_are_written_in_the_manual() {
        let read =
            |text: &str| serde_json::from_str::<Request>(text).map_err(|error| error.to_string());
        assert_eq!(read(r#"{"verb":"status"}"#), Ok(Request::Status));
        let fail = Request::Fail {
            member: "d1".into(),
            accept_loss: false,
            dry_run: false,
        };
        assert_eq!(read(r#"{"verb":"fail","member":"d1"}"#), Ok(fail));
        let add = Request::Add {
            path: "x".into(),
            force: false,
            to_surrogate: false,
            to_buffer: false,
        };
        assert_eq!(read(r#"{"verb":"add","path":"x"}"#), Ok(add));
        assert_eq!(read(r#"{"verb":"facts"}"#), Ok(Request::Facts { since: 0 }));
        assert!(read(r#"{"verb":"fail","member":"d1","now":true}"#).is_err());
        assert!(read(r#"{"verb":"explode"}"#).is_err());
        assert!(read("[]").is_err());
    }
}
