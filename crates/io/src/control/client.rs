//! The client's side: one request, one reply.

use super::folder::{check_peer, own_uid, owner_of_private, runtime_folder};
use super::request::{Reply, Request};
use super::server::{Line, Lines};
use super::{PlaceError, socket_path};
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `stop` waits for every outstanding write, and the removal of a surrogate for what comes home, so this is
/// long; whoever waits may interrupt. The daemon goes on with what was asked when nobody waits any more.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The same for a question, which waits for no member.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub enum ClientError {
    Place(PlaceError),
    /// No daemon serves this array.
    NotRunning {
        path: PathBuf,
    },
    Io {
        path: PathBuf,
        error: io::Error,
    },
    /// The daemon has the request, and goes on with it unless it hangs.
    NoReply {
        path: PathBuf,
        process: u32,
        within: Duration,
    },
    /// The daemon closed the connection, or said something that is not a reply.
    Broken {
        path: PathBuf,
        why: String,
    },
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Place(error) => error.fmt(f),
            ClientError::NotRunning { path } => {
                write!(f, "no daemon responds at {}", path.display())
            }
            ClientError::Io { path, error } => write!(f, "{}: {error}", path.display()),
            ClientError::NoReply {
                path,
                process,
                within,
            } => write!(
                f,
                "{}: no reply within {within:?} from process {process}",
                path.display()
            ),
            ClientError::Broken { path, why } => write!(f, "{}: {why}", path.display()),
        }
    }
}

impl std::error::Error for ClientError {}

/// Sends a request to the daemon of the array `name`. A daemon that hangs is found out by a question that
/// goes first.
pub fn ask(name: &str, request: &Request) -> Result<Reply, ClientError> {
    let path = socket_path(name).map_err(ClientError::Place)?;
    let owner = owner_of_private(&runtime_folder()).map_err(ClientError::Place)?;
    let owner = owner.ok_or_else(|| ClientError::NotRunning { path: path.clone() })?;
    if request.only_asks() {
        return ask_of(&path, request, ANSWER_TIMEOUT, owner);
    }
    // A daemon that does not answer a question would not answer an order either.
    ask_of(&path, &Request::Status, ANSWER_TIMEOUT, owner)?;
    ask_of(&path, request, TIMEOUT, owner)
}

/// Asks whoever serves the socket at `path`, if it is a process of this user or of root.
pub fn ask_at(path: &Path, request: &Request, timeout: Duration) -> Result<Reply, ClientError> {
    ask_of(path, request, timeout, own_uid())
}

fn ask_of(
    path: &Path,
    request: &Request,
    timeout: Duration,
    owner: u32,
) -> Result<Reply, ClientError> {
    let failed = |error| ClientError::Io {
        path: path.into(),
        error,
    };
    let broken = |why: String| ClientError::Broken {
        path: path.into(),
        why,
    };
    let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            ClientError::NotRunning { path: path.into() }
        }
        _ => failed(error),
    })?;
    let process = check_peer(&stream, owner).map_err(failed)?;
    let mut line = serde_json::to_vec(request).map_err(|error| broken(error.to_string()))?;
    line.push(b'\n');
    stream.set_write_timeout(Some(timeout)).map_err(failed)?;
    (&stream).write_all(&line).map_err(failed)?;
    let reply = Lines::new(&stream).next_line(timeout);
    let reply = reply.map_err(|error| match error.kind() {
        ErrorKind::TimedOut => ClientError::NoReply {
            path: path.into(),
            process,
            within: timeout,
        },
        _ => failed(error),
    });
    match reply? {
        Line::Whole(reply) => {
            serde_json::from_slice(&reply).map_err(|e| broken(format!("not a reply: {e}")))
        }
        Line::End => Err(broken("the daemon closed the connection".into())),
        Line::TooLong => Err(broken("the reply is too long".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_daemon_that_takes_its_time_has_the_request() {
        let path = std::env::temp_dir().join(format!("restripe-mute-{}.sock", std::process::id()));
        let _listens = UnixListener::bind(&path).expect("a socket");
        let within = Duration::from_millis(20);
        let error = ask_at(&path, &Request::RemoveSurrogate, within).expect_err("nobody replies");
        assert!(matches!(error, ClientError::NoReply { .. }), "{error:?}");
        let told = error.to_string();
        let own = std::process::id();
        let own = format!(".sock: no reply within 20ms from process {own}");
        assert!(told.ends_with(&own), "{told}");
        std::fs::remove_file(&path).expect("it was there");
    }
}
