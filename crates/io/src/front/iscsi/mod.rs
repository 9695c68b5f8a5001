//! The iSCSI target: one connection, which is one session, as a state machine without I/O of its own (RFC
//! 7143).
//!
//! ```text
//! Login --operational keys agreed--> Full --logout--> Finished
//!   '--refused: Refused, Finished      '--broken digest, gap of numbers: aborted
//! ```
//!
//! | file | part |
//! |---|---|
//! | `pdu` | headers, padding, digests |
//! | `keys` | text keys and their results |
//! | `login`, `chap` | the login phase |
//! | `hub` | what connections share: targets, logical units, sessions |
//! | `full` | the full feature phase: PDUs to where they belong |
//! | `session`, `tasks` | commands on their way |
//! | `transfer`, `send` | data in and out, answers |
//! | `management`, `text` | task management; which targets there are |
//!
//! The SCSI commands themselves are in [`crate::front::scsi`]. A session has one connection, and error
//! recovery level 0.

pub mod chap;
mod full;
pub mod hub;
mod keys;
mod login;
mod management;
mod pdu;
mod send;
mod session;
mod tasks;
mod text;
mod transfer;

use crate::front::{Link, Nudge, Protocol, Received, Then};
use hub::Hub;
use login::Login;
use pdu::{HEADER_BYTES, Header, opcode, padding};
use restripe_array::{Nanos, RequestError};
use session::{Session, Step};
use std::sync::Arc;

/// How long a peer may take from one request of the login to the next.
pub(crate) const LOGIN_PATIENCE: Nanos = Nanos::from_secs(10);
/// How long a peer may take for the rest of a PDU, or for data that it was asked for.
pub(crate) const DATA_PATIENCE: Nanos = Nanos::from_secs(30);
/// How long a command may wait for its data, in seconds. Initiators give a command up after 30 to 180 s.
const GATHER_SECONDS_MAX: u32 = 180;
/// After this many seconds of silence an initiator is pinged, and after as many again it is taken for dead.
const SILENT_SECONDS: u32 = 30;
/// The slowest that data may come.
pub(crate) const DATA_RATE_BYTES_MIN: u64 = 256 * 1024;

/// One initiator's connection.
pub struct Connection {
    hub: Arc<Hub>,
    phase: Phase,
    /// Part of a PDU has come and the rest has not.
    partial: bool,
    /// It receives nothing for now, so silence is no sign of a dead peer.
    holds: bool,
    /// Seconds since a session received something.
    seconds: u32,
}

enum Phase {
    Login(Box<Login>),
    Full(Box<Session>),
    /// A login was refused, and is answered later. Whether a second has begun since.
    Refused(Box<Header>, bool),
    /// Nothing is read any more; what is in flight comes back.
    Finished(Option<Box<Session>>),
}

impl Connection {
    pub fn new(hub: Arc<Hub>) -> Connection {
        Connection {
            hub,
            phase: Phase::Login(Box::new(Login::new())),
            partial: false,
            holds: false,
            seconds: 0,
        }
    }

    fn step(&mut self, bytes: &[u8], link: &mut dyn Link) -> Step {
        match &mut self.phase {
            Phase::Login(_) => self.log_in(bytes, link),
            Phase::Full(session) => session.step(bytes, link),
            Phase::Refused(..) => Step::Stop(0, Then::Hold),
            Phase::Finished(_) => Step::Stop(0, Then::Finish),
        }
    }

    /// A request of the login: read whole, because it is short.
    fn log_in(&mut self, bytes: &[u8], link: &mut dyn Link) -> Step {
        let Phase::Login(login) = &mut self.phase else {
            return Step::Went(0);
        };
        if link.full() {
            return Step::Stop(0, Then::Hold);
        }
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Step::Stop(0, Then::More);
        };
        let header = Header(*header);
        let data_bytes = header.data_bytes();
        if header.opcode() != opcode::LOGIN || data_bytes > login::SEGMENT_BYTES_MAX {
            return Step::Stop(HEADER_BYTES, Then::Abort);
        }
        let start = HEADER_BYTES + header.additional_bytes();
        let end = start + data_bytes as usize;
        let whole = end + padding(data_bytes);
        let Some(data) = bytes.get(start..end).filter(|_| bytes.len() >= whole) else {
            return Step::Stop(0, Then::More);
        };
        match login.step(&header, data, &self.hub, link) {
            login::Step::More => Step::Went(whole),
            login::Step::Refused(response, true) => {
                self.phase = Phase::Refused(response, false);
                Step::Stop(whole, Then::Hold)
            }
            login::Step::Refused(response, false) => {
                link.send(&response.0);
                Step::Stop(whole, Then::Finish)
            }
            login::Step::Done(agreed) => {
                let session = Session::new(*agreed, Arc::clone(&self.hub), link);
                self.phase = Phase::Full(Box::new(session));
                self.seconds = 0;
                Step::Went(whole)
            }
        }
    }

    fn stopped(&mut self, left: usize, then: Then, link: &mut dyn Link) {
        self.partial = then == Then::More && left > 0;
        self.holds = matches!(then, Then::Hold | Then::Memory);
        if matches!(then, Then::Finish | Then::Abort) {
            let phase = std::mem::replace(&mut self.phase, Phase::Finished(None));
            self.phase = match phase {
                Phase::Full(mut session) => {
                    session.abandon(link);
                    Phase::Finished(Some(session))
                }
                Phase::Finished(session) => Phase::Finished(session),
                Phase::Login(_) | Phase::Refused(..) => Phase::Finished(None),
            };
        }
    }

    fn session(&mut self) -> Option<&mut Session> {
        match &mut self.phase {
            Phase::Full(session) | Phase::Finished(Some(session)) => Some(session),
            Phase::Login(_) | Phase::Refused(..) | Phase::Finished(None) => None,
        }
    }
}

impl Protocol for Connection {
    /// The initiator speaks first.
    fn opened(&mut self, _link: &mut dyn Link) {}

    fn received(&mut self, bytes: &[u8], link: &mut dyn Link) -> Received {
        if matches!(self.phase, Phase::Full(_)) {
            self.seconds = 0;
        }
        let mut consumed = 0;
        loop {
            match self.step(&bytes[consumed..], link) {
                Step::Went(used) => consumed += used,
                Step::Stop(used, then) => {
                    consumed += used;
                    self.stopped(bytes.len() - consumed, then, link);
                    return Received { consumed, then };
                }
            }
        }
    }

    fn filled(&mut self, link: &mut dyn Link) {
        if let Some(session) = self.session() {
            session.filled(link);
        }
    }

    fn replied(&mut self, tag: u64, result: Result<(), RequestError>, link: &mut dyn Link) {
        if let Some(session) = self.session() {
            session.replied(tag, result, link);
            session.look(link);
        }
    }

    fn memory(&mut self, link: &mut dyn Link) {
        if let Some(session) = self.session() {
            session.feed(link);
        }
    }

    /// A discovery session proves nothing, and is as short as a login.
    fn is_proven(&self) -> bool {
        match &self.phase {
            Phase::Full(session) | Phase::Finished(Some(session)) => session.target.is_some(),
            Phase::Login(_) | Phase::Refused(..) | Phase::Finished(None) => false,
        }
    }

    fn is_session(&self) -> bool {
        true
    }

    /// Else one who guesses does not wait: no answer within a moment is the answer.
    fn outlasts_peer(&self) -> bool {
        matches!(self.phase, Phase::Refused(..))
    }

    fn ended(&mut self, link: &mut dyn Link) {
        self.stopped(0, Then::Abort, link);
        if let Some(session) = self.session() {
            session.logout = None;
            session.end();
        }
    }

    fn woken(&mut self, link: &mut dyn Link) {
        if let Some(session) = self.session() {
            session.drop_cleared(link);
            session.look(link);
        }
    }

    fn second(&mut self, link: &mut dyn Link) -> bool {
        let session = match &mut self.phase {
            Phase::Full(session) => session,
            Phase::Refused(_, begun) if !*begun => {
                *begun = true;
                return true;
            }
            Phase::Refused(response, _) => {
                link.send(&response.0);
                link.nudge(link.number(), Nudge::Finish);
                self.phase = Phase::Finished(None);
                return true;
            }
            Phase::Login(_) | Phase::Finished(_) => return true,
        };
        if session.tasks.second() > GATHER_SECONDS_MAX {
            return false;
        }
        // Within a segment its patience holds.
        if self.holds || session.bytes_due() > 0 {
            return true;
        }
        self.seconds += 1;
        if self.seconds == SILENT_SECONDS && session.target.is_some() {
            session.ping(link);
        }
        self.seconds <= 2 * SILENT_SECONDS
    }

    fn awaits_data(&self) -> bool {
        matches!(&self.phase, Phase::Full(session) if session.awaits_data())
    }

    fn patience(&self) -> Option<Nanos> {
        let session = match &self.phase {
            Phase::Login(_) => return Some(LOGIN_PATIENCE),
            Phase::Refused(..) | Phase::Finished(_) => return None,
            Phase::Full(session) => session,
        };
        let due = session.bytes_due();
        if due == 0 && !self.partial && !session.awaits_data() {
            return None;
        }
        let transfer = Nanos::from_secs(due / DATA_RATE_BYTES_MIN);
        Some(DATA_PATIENCE.after(transfer))
    }
}
