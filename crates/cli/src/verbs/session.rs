//! Where a verb's requests go: to the daemon that serves the array, or to an engine started for this verb alone.

use crate::args::WithoutDaemon;
use crate::daemon::running::Running;
use crate::failure::{Failure, Outcome};
use crate::print::terminal::print_note;
use restripe_io::control::{
    self, Answer, ClientError, FactView, READ_ONLY, RefusalView, Reply, Request, StatusView,
};
use restripe_io::member::MemberSource;
use std::fs;
use std::os::unix::fs::FileTypeExt;

pub(crate) enum Session {
    Daemon { name: String },
    Offline(Running),
}

impl Session {
    /// The daemon of `name`, or the members given if there are any. Those must then be of the array `name`.
    pub fn open(name: &str, without_daemon: &WithoutDaemon) -> Outcome<Session> {
        Session::open_as(name, without_daemon, false)
    }

    /// The same for a verb that only looks: offline, nothing is written.
    pub(crate) fn open_to_look(name: &str, offline: &[String]) -> Outcome<Session> {
        let without_daemon = WithoutDaemon {
            offline: offline.to_vec(),
            ..WithoutDaemon::default()
        };
        Session::open_as(name, &without_daemon, true)
    }

    /// The array of these members, only to look at.
    pub(crate) fn of_members_to_look(name: Option<&str>, members: &[String]) -> Outcome<Session> {
        Running::for_verb(name, members, true, &WithoutDaemon::default()).map(Session::Offline)
    }

    fn open_as(name: &str, without_daemon: &WithoutDaemon, read_only: bool) -> Outcome<Session> {
        let offline = &without_daemon.offline;
        if offline.is_empty() {
            return Ok(Session::Daemon { name: name.into() });
        }
        let running = Running::for_verb(Some(name), offline, read_only, without_daemon)?;
        Ok(Session::Offline(running))
    }

    /// Does a verb's work and ends the session, also when the work fails: an array that was started for it is shut
    /// down cleanly. The first failure is told.
    pub(crate) fn end_after<T>(self, work: impl FnOnce(&Session) -> Outcome<T>) -> Outcome<T> {
        let worked = work(&self);
        let closed = self.close();
        let result = worked?;
        closed.map(|()| result)
    }

    /// By a daemon, which goes on when this verb has ended.
    pub(crate) fn is_served(&self) -> bool {
        matches!(self, Session::Daemon { .. })
    }

    pub fn ask(&self, request: &Request) -> Outcome<Reply> {
        let reply = match self {
            Session::Daemon { name } => {
                control::ask(name, request).map_err(|error| unanswered(name, request, error))?
            }
            Session::Offline(running) => running.control().answer(request.clone()),
        };
        match reply {
            Reply::Refused(refusal) => Err(refusal.into()),
            reply => Ok(reply),
        }
    }

    /// The member that is meant, by the name under which it is known there. What is a file here is asked for by its
    /// absolute path, since their folder may be another one, with another file of that name. What is none here is a
    /// number, a UUID, or a name as they know it.
    pub fn which(&self, text: &str) -> Outcome<String> {
        let here = absolute(text);
        let found = fs::metadata(&here).map(|found| found.file_type());
        if found.is_ok_and(|kind| kind.is_file() || kind.is_block_device()) {
            return self.which_exactly(&here);
        }
        match (self.which_exactly(text), here) {
            (Err(refused), here) if here != text => self.which_exactly(&here).map_err(|_| refused),
            (known, _) => known,
        }
    }

    /// The member that is known there under this very text.
    pub(crate) fn which_exactly(&self, text: &str) -> Outcome<String> {
        let request = Request::Which {
            member: text.into(),
        };
        match self.ask(&request)? {
            Reply::Done { note } => Ok(note),
            _ => Err(unexpected(&request)),
        }
    }

    /// Has something done and says what came of it.
    pub fn order(&self, request: &Request) -> Outcome {
        match self.ask(request)? {
            Reply::Done { note } => {
                print_note(&note);
                Ok(())
            }
            _ => Err(unexpected(request)),
        }
    }

    pub fn status(&self) -> Outcome<StatusView> {
        match self.ask(&Request::Status)? {
            Reply::Status(status) => Ok(self.without_own_mode(*status)),
            _ => Err(unexpected(&Request::Status)),
        }
    }

    /// A verb that only looks starts the array read-only. That is no state of the array.
    fn without_own_mode(&self, mut status: StatusView) -> StatusView {
        let own = |refusal: &mut RefusalView| !self.is_served() && refusal.reason == READ_ONLY;
        if status.refuses_writes.take_if(own).is_some() {
            status.read_only = false;
        }
        status
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
    fn close(self) -> Outcome {
        match self {
            Session::Daemon { .. } => Ok(()),
            Session::Offline(running) => running.stop(),
        }
    }
}

/// A path as it reads from every folder; what is no path on this machine (an NBD URI) stays as it is.
pub(crate) fn absolute(text: &str) -> String {
    if !matches!(MemberSource::parse(text), Ok(MemberSource::Path(_))) {
        return text.into();
    }
    let found = fs::canonicalize(text).or_else(|_| std::path::absolute(text));
    found.map_or_else(|_| text.into(), |path| path.to_string_lossy().into_owned())
}

/// A removal goes on when nobody waits for it any more, and ends with the surrogate's superblocks wiped.
fn unanswered(array: &str, request: &Request, error: ClientError) -> Failure {
    // A daemon that hangs does not answer the question before the order, and has no order.
    let goes_on =
        matches!(error, ClientError::NoReply { within, .. } if within > control::ANSWER_TIMEOUT);
    let failure = Failure::from(error);
    match request {
        Request::RemoveSurrogate if goes_on => failure.hint(format!(
            "the removal continues in the daemon, and frees the surrogate's members at its end: `restripe status {array}` shows \
             whether the surrogate is still present; if it is, retry"
        )),
        _ => failure,
    }
}

fn unexpected(request: &Request) -> Failure {
    Failure::unexpected(request.verb())
        .hint("check that the daemon and this command have the same version")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_removal_that_outlasts_its_client_is_said_to_go_on() {
        let error = |within| ClientError::NoReply {
            path: "tank.sock".into(),
            process: 7,
            within: Duration::from_secs(within),
        };
        let told = unanswered("tank", &Request::RemoveSurrogate, error(120)).to_string();
        let no_reply = "tank.sock: no reply within 120s from process 7";
        assert!(told.contains(no_reply), "{told}");
        assert!(
            told.contains(" hint: the removal continues in the daemon"),
            "{told}"
        );
        assert!(told.contains("`restripe status tank` shows"), "{told}");
        for (request, within) in [(Request::Stop, 120), (Request::RemoveSurrogate, 10)] {
            let told = unanswered("tank", &request, error(within)).to_string();
            assert!(told.contains(" hint: the process hangs"), "{told}");
        }
    }
}
