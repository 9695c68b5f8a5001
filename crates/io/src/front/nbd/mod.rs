//! The NBD server: one connection as a state machine without I/O of its own.
//!
//! ```text
//! Flags --4 bytes--> Options --GO, EXPORT_NAME--> Transmission --DISC--> Finished
//!   |                 |  ^                          |  ^
//!   |                 '--' other options            '--' requests
//!   '--unknown flag, wrong magic, too many options: aborted
//! ```
//!
//! The cost of a hostile peer is bounded:
//!
//! - An option is read up to [`OPTION_BYTES_MAX`] only; the rest is skipped.
//! - A handshake has at most [`OPTIONS_MAX`] options, and its replies are held back while the peer does not
//!   read.
//! - A request's memory comes from the reactor's budget, and its payload is received directly into this
//!   memory.
//! - The payload of a refused write is skipped without memory.
//! - Half a message has to be completed within a time ([`Protocol::patience`]).
//!
//! With a [`Guard`], `STARTTLS` begins TLS; where it is required, no other option is answered before. What
//! was agreed on before TLS is forgotten.
//!
//! Absent on purpose: extended headers and resize (not settled in the specification).

mod block_status;
mod guard;
mod handshake;
#[cfg(test)]
mod kernel_tests;
mod transmission;

use crate::front::{Link, Protocol, Received, Then};
use crate::nbd_wire::option::encode_greeting;
use crate::tls::names::PeerNames;
pub use guard::Guard;
use handshake::Handshake;
pub use handshake::{OPTION_BYTES_MAX, OPTIONS_MAX};
use restripe_array::{Nanos, RequestError};
use std::sync::Arc;
use transmission::{Client, Transmission};

/// How long a peer may take from one message of the handshake to the next.
pub const HANDSHAKE_PATIENCE: Nanos = Nanos::from_secs(10);
/// How long a peer may take for the rest of a request, payload aside.
pub const REQUEST_PATIENCE: Nanos = Nanos::from_secs(30);
/// The slowest that a payload may come.
pub const PAYLOAD_RATE_BYTES_MIN: u64 = 256 * 1024;

/// One client's connection.
pub struct Connection {
    phase: Phase,
    guard: Option<Arc<Guard>>,
    /// Part of a message has come and the rest has not.
    partial: bool,
    /// The client is the kernel of this machine.
    kernel: Option<KernelPeer>,
}

/// The kernel of this machine as a client: it has a block device whose users outlive this daemon.
///
/// - It learns of a growth while it is connected, so the size is that of the array at each request.
/// - It makes an I/O error of every error. So requests to an array that is stopping get no reply: the kernel
///   sends them again, to the daemon that serves the array next.
/// - It sends a request again, on another connection, after it has closed the first. What had not begun of
///   the first is dropped then ([`Protocol::is_session`]): it would come after newer writes.
pub(crate) struct KernelPeer {
    /// It may not write, whatever the array permits.
    pub read_only: bool,
    /// Dropped when the connection has ended.
    pub alive: Option<Arc<()>>,
}

enum Phase {
    Handshake(Handshake),
    Transmission(Transmission),
    /// Nothing is read any more; what is in flight is still answered.
    Finished(Option<Transmission>),
}

/// What one message, or one piece of what is skipped, came to.
enum Step {
    /// So many bytes are used up; go on.
    Went(usize),
    /// So many bytes are used up; nothing more now, for this reason.
    Stop(usize, Then),
    /// So many bytes are used up by the last option; requests follow.
    Attached(usize, Box<Transmission>),
}

impl Connection {
    /// For all clients, in clear text.
    pub fn new() -> Connection {
        Connection::with(None)
    }

    /// For clients that show what the guard demands.
    pub fn guarded(guard: Arc<Guard>) -> Connection {
        Connection::with(Some(guard))
    }

    fn with(guard: Option<Arc<Guard>>) -> Connection {
        Connection {
            phase: Phase::Handshake(Handshake::new(Client::Remote, guard.clone())),
            guard,
            partial: false,
            kernel: None,
        }
    }

    pub(crate) fn for_kernel(peer: KernelPeer) -> Connection {
        let client = Client::Kernel {
            read_only: peer.read_only,
        };
        Connection {
            phase: Phase::Handshake(Handshake::new(client, None)),
            guard: None,
            partial: false,
            kernel: Some(peer),
        }
    }

    fn step(&mut self, bytes: &[u8], link: &mut dyn Link) -> Step {
        match &mut self.phase {
            Phase::Handshake(handshake) => handshake.step(bytes, link),
            Phase::Transmission(transmission) => transmission.step(bytes, link),
            Phase::Finished(_) => Step::Stop(0, Then::Finish),
        }
    }

    fn stopped(&mut self, left: usize, then: Then) {
        self.partial = then == Then::More && left > 0;
        if matches!(then, Then::Finish | Then::Abort) {
            let phase = std::mem::replace(&mut self.phase, Phase::Finished(None));
            self.phase = match phase {
                Phase::Transmission(transmission) => Phase::Finished(Some(transmission)),
                Phase::Handshake(_) | Phase::Finished(_) => Phase::Finished(None),
            };
        }
    }

    fn transmission(&mut self) -> Option<&mut Transmission> {
        match &mut self.phase {
            Phase::Transmission(transmission) | Phase::Finished(Some(transmission)) => {
                Some(transmission)
            }
            Phase::Handshake(_) | Phase::Finished(None) => None,
        }
    }
}

impl Default for Connection {
    fn default() -> Connection {
        Connection::new()
    }
}

impl Protocol for Connection {
    fn opened(&mut self, link: &mut dyn Link) {
        link.send(&encode_greeting());
    }

    fn received(&mut self, bytes: &[u8], link: &mut dyn Link) -> Received {
        let mut consumed = 0;
        loop {
            match self.step(&bytes[consumed..], link) {
                Step::Went(used) => consumed += used,
                Step::Attached(used, transmission) => {
                    consumed += used;
                    self.phase = Phase::Transmission(*transmission);
                }
                Step::Stop(used, then) => {
                    consumed += used;
                    self.stopped(bytes.len() - consumed, then);
                    return Received { consumed, then };
                }
            }
        }
    }

    fn filled(&mut self, link: &mut dyn Link) {
        if let Some(transmission) = self.transmission() {
            transmission.filled(link);
        }
    }

    fn replied(&mut self, tag: u64, result: Result<(), RequestError>, link: &mut dyn Link) {
        if let Some(transmission) = self.transmission() {
            transmission.replied(tag, result, link);
        }
    }

    fn secured(&mut self, peer: Option<PeerNames>) {
        if let Phase::Handshake(handshake) = &mut self.phase {
            handshake.secured(peer);
        }
    }

    fn tls_failed(&mut self, why: &str, link: &dyn Link) {
        if let Some(guard) = &self.guard {
            guard.report.refused(link, &format!("TLS: {why}"));
        }
    }

    fn is_session(&self) -> bool {
        self.kernel.is_some()
    }

    fn is_proven(&self) -> bool {
        matches!(
            self.phase,
            Phase::Transmission(_) | Phase::Finished(Some(_))
        )
    }

    fn resends(&self) -> bool {
        self.kernel.is_some()
    }

    fn ended(&mut self, _link: &mut dyn Link) {
        // Replies that are still to come go nowhere; their memory is released with the connection.
        self.phase = Phase::Finished(None);
        if let Some(kernel) = &mut self.kernel {
            kernel.alive = None;
        }
    }

    fn patience(&self) -> Option<Nanos> {
        let due = match &self.phase {
            Phase::Handshake(_) => return Some(HANDSHAKE_PATIENCE),
            Phase::Finished(_) => return None,
            Phase::Transmission(transmission) => transmission.bytes_due(),
        };
        if due == 0 && !self.partial {
            return None;
        }
        let transfer = Nanos::from_secs(due / PAYLOAD_RATE_BYTES_MIN);
        Some(REQUEST_PATIENCE.after(transfer))
    }
}
