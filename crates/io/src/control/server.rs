//! The server's side of the control socket: accepts a connection, reads a line, has it answered, writes a
//! line.
//!
//! Each connection has a thread, and there are dozens of connections at most: commands are rare, and none of
//! this is near the data path. Every wait has an end, so a client that stalls holds a thread for seconds
//! only. Silent clients lock no other client out: if many wait, the one that has been silent for the longest
//! time is dropped.

use super::folder::{check_peer, own_uid};
use super::request::{Refusal, Reply, Request};
use super::{Claim, LINE_BYTES_MAX, PlaceError};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Connections at once; one more is told so and closed.
const CONNECTIONS_MAX: usize = 64;
/// Of these, so many may be silent at once.
const SILENT_MAX: usize = 16;
/// How long a new connection waits for a place; one that makes room ends within much less.
const PLACE_TIMEOUT: Duration = Duration::from_millis(100);
/// From the first byte of a request to its last; also the longest silence between requests.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server that ends waits for replies under way.
const LAST_REPLIES: Duration = Duration::from_secs(2);

/// Who answers: the daemon, or a verb that works offline.
pub trait Answer: Send + Sync + 'static {
    fn answer(&self, request: Request) -> Reply;
}

/// A running control socket. Dropping it closes the socket and removes its file, if the file is still there.
pub struct Server {
    /// `None` once given back.
    claim: Option<Claim>,
    listener: Arc<UnixListener>,
    ending: Arc<AtomicBool>,
    open: Arc<Open>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves on a socket already claimed.
    pub fn on(
        claim: Claim,
        listener: UnixListener,
        handler: Arc<dyn Answer>,
    ) -> Result<Server, PlaceError> {
        let ending = Arc::new(AtomicBool::new(false));
        let open = Arc::new(Open::default());
        let listener = Arc::new(listener);
        let path = claim.path().to_path_buf();
        let acceptor = thread::Builder::new()
            .name("control".into())
            .spawn({
                let (ending, open) = (Arc::clone(&ending), Arc::clone(&open));
                let listener = Arc::clone(&listener);
                move || accept_all(&listener, &handler, &open, &ending)
            })
            .map_err(|error| PlaceError::Socket { path, error })?;
        Ok(Server {
            claim: Some(claim),
            listener,
            ending,
            open,
            acceptor: Some(acceptor),
        })
    }
}

impl Server {
    /// Answers what is under way, and accepts no more. The place stays taken until the claim is dropped.
    pub fn end(mut self) -> Option<Claim> {
        self.shut();
        self.claim.take()
    }

    fn shut(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
        // Wakes the acceptor, which then sees that it is to end. Its socket's file is not needed for that: a
        // logout, or whoever sweeps a folder of temporary files, may have taken it away. SAFETY: the
        // descriptor is open as long as the listener lives, and no pointers are passed.
        let _ = unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        // Whoever asked for the end is still to be told that it has come.
        let deadline = Instant::now() + LAST_REPLIES;
        while self.open.answering.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shut();
    }
}

/// What is under way.
#[derive(Default)]
struct Open {
    connections: Mutex<usize>,
    /// A connection has ended.
    ended: Condvar,
    /// Requests read and not yet replied to.
    answering: AtomicUsize,
    /// Number of the next silence.
    next: AtomicU64,
    /// The connections that are to say something, by when they fell silent.
    silent: Mutex<BTreeMap<u64, Arc<UnixStream>>>,
}

impl Open {
    fn connections(&self) -> MutexGuard<'_, usize> {
        let connections = self.connections.lock();
        connections.unwrap_or_else(PoisonError::into_inner)
    }

    fn silent(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<UnixStream>>> {
        // The map is whole after each change, also if its thread died.
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that is to say something. Where too many are, the one that has been silent the longest makes
/// room.
struct Silence {
    open: Arc<Open>,
    number: u64,
}

impl Silence {
    fn begin(open: &Arc<Open>, stream: &Arc<UnixStream>) -> Silence {
        let number = open.next.fetch_add(1, Ordering::SeqCst);
        let mut silent = open.silent();
        silent.insert(number, Arc::clone(stream));
        if silent.len() > SILENT_MAX
            && let Some((_, oldest)) = silent.pop_first()
        {
            // Only what it would still say is cut off: a request that has come is read and answered. If the
            // client closed it there is nothing to cut off.
            let _ = oldest.shutdown(Shutdown::Read);
        }
        drop(silent);
        Silence {
            open: Arc::clone(open),
            number,
        }
    }

    /// It has said something or is gone. Tells whether it was left to, rather than had to make room.
    fn end(self) -> bool {
        self.open.silent().remove(&self.number).is_some()
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        self.open.silent().remove(&self.number);
    }
}

fn accept_all(
    listener: &UnixListener,
    handler: &Arc<dyn Answer>,
    open: &Arc<Open>,
    ending: &AtomicBool,
) {
    loop {
        let accepted = listener.accept();
        if ending.load(Ordering::SeqCst) {
            return;
        }
        match accepted {
            Ok((stream, _)) => admit(stream, handler, open),
            // Out of descriptors or memory: others may close theirs meanwhile.
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                thread::sleep(Duration::from_millis(50))
            }
            Err(_) => {}
        }
    }
}

fn admit(stream: UnixStream, handler: &Arc<dyn Answer>, open: &Arc<Open>) {
    if let Err(error) = check_peer(&stream, own_uid()) {
        let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
        let _ = send(&stream, &Reply::Refused(Refusal::new(error.to_string())));
        return;
    }
    let Some(place) = Place::take(open) else {
        let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
        let _ = send(&stream, &too_many());
        return;
    };
    let stream = Arc::new(stream);
    // From here on, by the acceptor, so that silences are numbered in the order of arrival.
    let silence = Silence::begin(open, &stream);
    let open = Arc::clone(open);
    let handler = Arc::clone(handler);
    let spawned = thread::Builder::new()
        .name("control connection".into())
        .spawn(move || {
            let _place = place;
            // A connection that breaks is the client's affair; nothing is owed to it.
            let _ = converse(&stream, silence, &*handler, &open);
        });
    // Without a thread the connection closes, which the client reports.
    drop(spawned);
}

fn too_many() -> Reply {
    let busy = Refusal::new("too many control connections").hint("try again in a few seconds");
    Reply::Refused(busy)
}

/// One of the places for connections; given back when the connection ends, however it ends.
struct Place(Arc<Open>);

impl Place {
    /// Waits a moment for one, and gives up if nobody ends.
    fn take(open: &Arc<Open>) -> Option<Place> {
        let full = |taken: &mut usize| *taken >= CONNECTIONS_MAX;
        let connections = open.connections();
        let waited = (open.ended).wait_timeout_while(connections, PLACE_TIMEOUT, full);
        let (mut taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if full(&mut taken) {
            return None;
        }
        *taken += 1;
        Some(Place(Arc::clone(open)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.connections() -= 1;
        self.0.ended.notify_one();
    }
}

fn converse(
    stream: &Arc<UnixStream>,
    mut silence: Silence,
    handler: &dyn Answer,
    open: &Arc<Open>,
) -> io::Result<()> {
    stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
    let mut lines = Lines::new(stream);
    loop {
        let line = lines.next_line(REQUEST_TIMEOUT);
        let stays = silence.end();
        match line? {
            Line::End if stays => return Ok(()),
            Line::End => return send(stream, &too_many()),
            Line::TooLong => {
                let refusal =
                    Refusal::new(format!("the request is longer than {LINE_BYTES_MAX} bytes"));
                return send(stream, &Reply::Refused(refusal));
            }
            Line::Whole(line) => {
                open.answering.fetch_add(1, Ordering::SeqCst);
                let sent = send(stream, &answer(&line, handler));
                open.answering.fetch_sub(1, Ordering::SeqCst);
                sent?;
            }
        }
        if !stays {
            return Ok(());
        }
        silence = Silence::begin(open, stream);
    }
}

fn answer(line: &[u8], handler: &dyn Answer) -> Reply {
    match request(line) {
        Ok(request) => handler.answer(request),
        Err(why) => {
            let hint = "send one JSON object per line, like {\"verb\":\"status\"}";
            Reply::Refused(Refusal::new(format!("not a request: {why}")).hint(hint))
        }
    }
}

/// A request with no field that it does not have. Of verbs without any fields serde takes all.
fn request(line: &[u8]) -> Result<Request, String> {
    let request: Request = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let given: Map<String, Value> =
        serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let known = serde_json::to_value(&request).map_err(|error| error.to_string())?;
    match given.keys().find(|key| known.get(key).is_none()) {
        Some(key) => Err(format!("{} has no field {key:?}", request.verb())),
        None => Ok(request),
    }
}

/// Writes a reply as one line.
fn send(mut stream: &UnixStream, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply).map_err(io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// What a connection brings next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Whole(Vec<u8>),
    End,
    TooLong,
}

/// Lines from a stream, bounded in length and in time.
pub(super) struct Lines<'a> {
    stream: &'a UnixStream,
    pending: Vec<u8>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(stream: &'a UnixStream) -> Lines<'a> {
        Lines {
            stream,
            pending: Vec::new(),
        }
    }

    /// The next line without its ending, within `timeout` however the bytes trickle.
    pub(super) fn next_line(&mut self, timeout: Duration) -> io::Result<Line> {
        let deadline = Instant::now() + timeout;
        let mut searched = 0;
        loop {
            let mut bytes = self.pending[searched..].iter();
            if let Some(end) = bytes.position(|byte| *byte == b'\n') {
                return Ok(Line::Whole(self.split(searched + end)));
            }
            searched = self.pending.len();
            if searched > LINE_BYTES_MAX {
                return Ok(Line::TooLong);
            }
            if self.fill(deadline)? == 0 {
                return Ok(Line::End);
            }
        }
    }

    /// Takes the line that ends at `end`, and drops its ending.
    fn split(&mut self, end: usize) -> Vec<u8> {
        let rest = self.pending.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.pending, rest);
        line.pop();
        line
    }

    fn fill(&mut self, deadline: Instant) -> io::Result<usize> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut piece = [0; 4096];
        let mut stream = self.stream;
        match stream.read(&mut piece) {
            Ok(bytes) => {
                self.pending.extend_from_slice(&piece[..bytes]);
                Ok(bytes)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => self.fill(deadline),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(ErrorKind::TimedOut.into()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ClientError, ask_at};
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::path::{Path, PathBuf};

    struct Echo;

    impl Answer for Echo {
        fn answer(&self, request: Request) -> Reply {
            Reply::Done {
                note: request.verb().into(),
            }
        }
    }

    fn start(name: &str) -> (Server, PathBuf) {
        let name = format!("restripe-control-{name}-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        (serve(&path, Arc::new(Echo)), path)
    }

    fn serve(path: &Path, answers: Arc<dyn Answer>) -> Server {
        let (claim, listener) = Claim::take(path).expect("a free place");
        Server::on(claim, listener, answers).expect("a server")
    }

    fn connect(path: &Path) -> UnixStream {
        UnixStream::connect(path).expect("a server")
    }

    fn line_of(stream: &UnixStream) -> String {
        let mut line = String::new();
        let read = BufReader::new(stream).read_line(&mut line);
        read.expect("it answers");
        line
    }

    fn talk(path: &Path, bytes: &[u8]) -> String {
        let mut stream = connect(path);
        stream.write_all(bytes).expect("it reads");
        line_of(&stream)
    }

    #[test]
    fn a_request_gets_its_reply_and_the_socket_goes_with_the_server() {
        let (server, path) = start("reply");
        let ask = |request| ask_at(&path, &request, REPLY_TIMEOUT);
        let (repair, sync) = (true, false);
        let reply = ask(Request::Scrub { repair, sync }).expect("an answer");
        let note = "scrub".into();
        assert_eq!(reply, Reply::Done { note });
        drop(server);
        assert!(!path.exists());
        let asked = ask(Request::Status);
        assert!(matches!(asked, Err(ClientError::NotRunning { .. })));
    }

    /// The file of the socket, its folder, or another program's socket in its place.
    #[test]
    fn a_server_ends_whatever_became_of_its_file() {
        for what in ["gone", "replaced", "deaf", "folder"] {
            let name = format!("restripe-end-{what}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir(&folder).expect("a fresh folder");
            let path = folder.join("tank.sock");
            let server = serve(&path, Arc::new(Echo));
            let mut other = None;
            match what {
                "folder" => std::fs::remove_dir_all(&folder).expect("ours"),
                _ => std::fs::remove_file(&path).expect("ours"),
            }
            match what {
                "replaced" => other = UnixListener::bind(&path).ok(),
                "deaf" => std::fs::write(&path, "no socket").expect("ours"),
                _ => {}
            }
            drop(server);
            drop(other);
            let _ = std::fs::remove_dir_all(&folder);
        }
    }

    #[test]
    fn several_requests_on_one_connection() {
        let (_server, path) = start("several");
        let mut stream = connect(&path);
        for verb in ["status", "pause", "metrics"] {
            let request = format!("{{\"verb\":\"{verb}\"}}\n");
            stream.write_all(request.as_bytes()).expect("it reads");
            let line = line_of(&stream);
            assert!(line.contains(verb), "{line}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_hint_and_the_server_lives() {
        let (_server, path) = start("nonsense");
        for bytes in [
            &b"\n"[..],
            b"{}\n",
            b"\xff\xfe\0\n",
            b"{\"verb\":\"status\"\n",
            b"null\n",
            b"{\"verb\":\"status\",\"x\":1}\n",
            b"{\"verb\":\"stop\",\"member\":\"a\"}\n",
            b"{\"verb\":\"scrub\",\"repair\":true,\"x\":1}\n",
            b"{\"verb\":\"facts\",\"sinc\":1}\n",
        ] {
            assert!(talk(&path, bytes).contains("not a request"));
        }
        let deep = format!("{}\n", "[".repeat(100_000));
        assert!(talk(&path, deep.as_bytes()).contains("not a request"));
        assert!(talk(&path, b"{\"verb\":\"status\"}\n").contains("status"));
    }

    /// Mutations of real requests, the same ones on every run.
    #[test]
    fn whatever_a_line_holds_it_is_answered() {
        let requests = [
            Request::Status,
            Request::Add {
                path: "/dev/x".into(),
                force: true,
                to_surrogate: true,
                to_buffer: false,
            },
            Request::AddSurrogate {
                members: vec!["e".into(), "f".into()],
                level: Some("raid1".into()),
                force: true,
            },
            Request::RemoveSurrogate,
            Request::Destage,
            Request::Replace {
                old: "1".into(),
                path: "y".into(),
                force: false,
            },
            Request::Rate {
                min_bytes: 1,
                max_bytes: u64::MAX,
            },
            Request::Throttle {
                name: "md-6.1".into(),
            },
            Request::Order { name: "ido".into() },
            Request::OnDemand { on: true },
            Request::CopyBack { on: false },
            Request::Facts { since: 7 },
        ];
        let mut state = 1u64;
        let mut draw = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for round in 0..20_000 {
            let request = &requests[round % requests.len()];
            let mut line = serde_json::to_vec(request).expect("plain data");
            for _ in 0..1 + draw(4) {
                let at = draw(line.len());
                match draw(4) {
                    0 => line[at] = draw(256) as u8,
                    1 => line.truncate(at.max(1)),
                    2 => line.insert(at, b"{}[]\",:\\0e-"[draw(11)]),
                    _ => line.extend_from_within(at..),
                }
            }
            let reply = answer(&line, &Echo);
            assert!(matches!(reply, Reply::Done { .. } | Reply::Refused(_)));
        }
    }

    #[test]
    fn an_endless_line_is_cut_off() {
        let (_server, path) = start("endless");
        let mut stream = connect(&path);
        let piece = vec![b'x'; 65536];
        // The server may close before all of it is written.
        for _ in 0..=LINE_BYTES_MAX / piece.len() {
            let _ = stream.write_all(&piece);
        }
        let mut line = String::new();
        let _ = BufReader::new(&stream).read_line(&mut line);
        assert!(line.is_empty() || line.contains("longer than"), "{line}");
        assert!(talk(&path, b"{\"verb\":\"stop\"}\n").contains("stop"));
    }

    /// Asks for the status on a connection that is open, and gives what is said.
    fn say(stream: &UnixStream) -> String {
        // One that had to make room takes no words any more; what was said to it is read all the same.
        let _ = (&*stream).write_all(b"{\"verb\":\"status\"}\n");
        let mut line = String::new();
        let _ = BufReader::new(stream).read_line(&mut line);
        line
    }

    #[test]
    fn silent_connections_lock_nobody_out() {
        let (_server, path) = start("silent");
        let held: Vec<UnixStream> = (0..300).map(|_| connect(&path)).collect();
        let newest = connect(&path);
        assert!(say(&newest).contains("status"), "the newest is served");
        // Accepted in order, so all of them are in their places now: the last ones may still speak.
        let served = held.iter().filter(|stream| say(stream).contains("status"));
        let served = served.count();
        assert!((1..=SILENT_MAX).contains(&served), "{served} of the silent");
        assert!(say(&held[0]).is_empty(), "the oldest made room");
    }

    /// Answers nobody before it is told to.
    struct Slow(Mutex<()>);

    impl Answer for Slow {
        fn answer(&self, _request: Request) -> Reply {
            let _go = self.0.lock();
            Reply::Done {
                note: "at last".into(),
            }
        }
    }

    #[test]
    fn requests_under_way_are_bounded() {
        let path = std::env::temp_dir().join(format!("restripe-busy-{}.sock", std::process::id()));
        let handler = Arc::new(Slow(Mutex::new(())));
        let server = serve(&path, handler.clone());
        let held = handler.0.lock();
        let asking = [(); CONNECTIONS_MAX].map(|()| {
            let mut stream = connect(&path);
            let sent = stream.write_all(b"{\"verb\":\"status\"}\n");
            sent.expect("it takes them");
            stream
        });
        let line = line_of(&connect(&path));
        assert!(line.contains("too many"), "{line}");
        drop(held);
        for stream in &asking {
            let line = line_of(stream);
            assert!(line.contains("at last"), "{line}");
        }
        drop(server);
    }

    #[test]
    fn a_request_that_trickles_runs_out_of_time() {
        let (here, there) = UnixStream::pair().expect("a pair");
        (&there).write_all(b"{\"ver").expect("it takes them");
        let error = Lines::new(&here)
            .next_line(Duration::from_millis(20))
            .expect_err("the rest never comes");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}
