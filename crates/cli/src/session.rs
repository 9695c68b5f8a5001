//! Where a verb's requests go: to the daemon that serves the array, or to an engine started for this verb alone.

use crate::command::WithoutDaemon;
use crate::engine::Running;
use crate::failure::{Failure, Outcome};
use restripe_io::control::{self, Answer, FactView, Reply, Request, StatusView};

pub enum Session {
    Daemon { name: String },
    Offline(Running),
}

impl Session {
    /// The daemon of `name`, or the members given if there are any. Those must then be of the array `name`.
    pub fn open(name: &str, without_daemon: &WithoutDaemon) -> Outcome<Session> {
        Session::open_as(name, without_daemon, false)
    }

    /// The same for a verb that only looks: offline, nothing is written.
    pub fn open_to_look(name: &str, offline: &[String]) -> Outcome<Session> {
        let without_daemon = WithoutDaemon {
            offline: offline.to_vec(),
            degraded: false,
        };
        Session::open_as(name, &without_daemon, true)
    }

    fn open_as(name: &str, without_daemon: &WithoutDaemon, read_only: bool) -> Outcome<Session> {
        let WithoutDaemon { offline, degraded } = without_daemon;
        if offline.is_empty() {
            return Ok(Session::Daemon { name: name.into() });
        }
        let running = Running::for_verb(offline, read_only, *degraded)?;
        let found = running.desk().status()?.name;
        if found != name {
            let what = format!("these members are of the array {found:?}, not {name:?}");
            return Err(Failure::new(what).hint("check the name and the members"));
        }
        Ok(Session::Offline(running))
    }

    pub fn ask(&self, request: &Request) -> Outcome<Reply> {
        let reply = match self {
            Session::Daemon { name } => control::ask(name, request)?,
            Session::Offline(running) => running.desk().answer(request.clone()),
        };
        match reply {
            Reply::Refused(refusal) => Err(refusal.into()),
            reply => Ok(reply),
        }
    }

    /// The member that is meant, by the name under which it is known there. A path may be relative to our folder, and
    /// theirs another one.
    pub fn which(&self, text: &str) -> Outcome<String> {
        let ask = |member: String| match self.ask(&Request::Which { member })? {
            Reply::Done { note } => Ok(note),
            _ => Err(unexpected(&Request::Status)),
        };
        let here = std::path::absolute(text).map(|path| path.to_string_lossy().into_owned());
        match (ask(text.into()), here) {
            (Err(refused), Ok(here)) => ask(here).map_err(|_| refused),
            (known, _) => known,
        }
    }

    /// Has something done and says what came of it.
    pub fn order(&self, request: &Request) -> Outcome {
        match self.ask(request)? {
            Reply::Done { note } => {
                println!("{note}");
                Ok(())
            }
            _ => Err(unexpected(request)),
        }
    }

    pub fn status(&self) -> Outcome<StatusView> {
        match self.ask(&Request::Status)? {
            Reply::Status(status) => Ok(*status),
            _ => Err(unexpected(&Request::Status)),
        }
    }

    /// The facts from `since` on, and where the next ones begin.
    pub fn facts(&self, since: u64) -> Outcome<(Vec<FactView>, u64)> {
        let request = Request::Facts { since };
        match self.ask(&request)? {
            Reply::Facts { facts, next } => Ok((facts, next)),
            _ => Err(unexpected(&request)),
        }
    }

    /// Ends what was started for this verb: drained, flushed, marked clean.
    pub fn close(self) -> Outcome {
        match self {
            Session::Daemon { .. } => Ok(()),
            Session::Offline(running) => running.stop(),
        }
    }
}

fn unexpected(request: &Request) -> Failure {
    Failure::new(format!(
        "the daemon answered `{}` with something else",
        request.verb()
    ))
    .hint("is it of the same version as this command?")
}
