//! One end of a TLS connection without a socket.
//!
//! ```text
//! receive -> the owner receives into it -> received -> open: plaintext, and what came of the handshake
//! seal (plaintext) -> launch: ciphertext to send -> the owner sends it -> sent
//! ```
//!
//! All ciphertext that came is opened at once, up to the last whole record. So the owner must have room for
//! the plaintext before it receives, and says how much with the capacity.

use super::der;
use super::event::{CIPHERTEXT_BYTES, Event, Going};
use super::names::PeerNames;
use crate::memory::{Memory, Piece};
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, InsufficientSizeError, UnbufferedStatus,
};
use rustls::{CommonState, Error};
use std::mem;
use webpki::EndEntityCert;

/// Handshake messages and alerts that may wait for the peer to read.
const CONTROL_BYTES_MAX: usize = 64 * 1024;
/// Plaintext of one record at most, and what a record adds to it (RFC 8446, section 5.2; RFC 5246, section
/// 6.2.3).
const RECORD_BYTES: usize = 16 * 1024;
const RECORD_OVERHEAD: usize = 64;
/// Room for a key update in front of the records.
const KEY_UPDATE_BYTES: usize = 512;
/// Messages of the library's own that may come before what is to be written.
const TURNS_MAX: usize = 16;

enum Side {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

/// What to write.
#[derive(Clone, Copy)]
enum What<'a> {
    Bytes(&'a [u8]),
    Close,
}

enum Written {
    Done(usize),
    /// N bytes of the library's own.
    Again(usize),
    Failed,
}

/// What one call of the library came to.
enum Turn {
    /// Call it again.
    Again,
    /// It needs more ciphertext.
    Idle,
    Closed,
    Failed(Error),
}

pub struct Channel {
    side: Side,
    inbox: Memory,
    start: usize,
    end: usize,
    outbox: Memory,
    filled: usize,
    /// The outbox is with the kernel.
    flying: bool,
    /// What comes before everything that is sealed later.
    control: Vec<u8>,
    secured: bool,
    failed: bool,
    closed: bool,
}

impl Channel {
    pub(super) fn of_server(connection: UnbufferedServerConnection) -> Channel {
        Channel::new(Side::Server(connection))
    }

    pub(super) fn of_client(connection: UnbufferedClientConnection) -> Channel {
        Channel::new(Side::Client(connection))
    }

    fn new(side: Side) -> Channel {
        Channel {
            side,
            inbox: Memory::new(CIPHERTEXT_BYTES),
            start: 0,
            end: 0,
            outbox: Memory::new(CIPHERTEXT_BYTES),
            filled: 0,
            flying: false,
            control: Vec::new(),
            secured: false,
            failed: false,
            closed: false,
        }
    }

    /// The handshake is over.
    pub(crate) fn is_secured(&self) -> bool {
        self.secured
    }

    /// Nothing can be opened or sealed any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    // --------------------------------------------------------------------------------------------- receiving

    /// Where to receive ciphertext. `capacity`: bytes of plaintext that the owner has room for. `None`: there
    /// is no room, since the peer sends what cannot be opened, or the owner takes nothing.
    pub fn receive(&mut self, capacity: usize) -> Option<Piece> {
        if self.start > 0 {
            let rest = self.inbox.slice(self.start, self.end - self.start);
            self.inbox.fill(0, rest);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = capacity.min(CIPHERTEXT_BYTES).saturating_sub(self.end);
        (room > 0).then(|| Piece::new(self.inbox.clone(), self.end as u32, room as u32))
    }

    /// Bytes came: `count` of them.
    pub fn received(&mut self, count: usize) {
        self.end += count;
    }

    /// Takes bytes that came before the channel was there. Whether it had room.
    pub(crate) fn take_in(&mut self, bytes: &[u8]) -> bool {
        let room = bytes.len() <= CIPHERTEXT_BYTES - self.end;
        if room {
            self.inbox.fill(self.end, bytes);
            self.end += bytes.len();
        }
        room
    }

    /// Opens what came, record by record.
    pub fn open(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Going {
        while !self.failed {
            match self.turn(sink) {
                Turn::Again => {}
                Turn::Idle => return Going::On,
                Turn::Closed => return Going::Closed,
                Turn::Failed(error) => return self.fail(&error),
            }
        }
        Going::Failed("it failed before".to_owned())
    }

    /// Has the library look at what came. Handshake messages to send, and what it came to.
    fn process(&mut self, plain: &mut dyn FnMut(&[u8])) -> (Vec<u8>, Turn) {
        let mut control = Vec::new();
        let came = self.inbox.slice_mut(self.start, self.end - self.start);
        let (used, turn) = match &mut self.side {
            Side::Server(server) => outcome(server.process_tls_records(came), &mut control, plain),
            Side::Client(client) => outcome(client.process_tls_records(came), &mut control, plain),
        };
        self.start += used;
        (control, turn)
    }

    fn turn(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Turn {
        // The first plaintext may come in the turn that ends the handshake.
        let (mut early, secured) = (Vec::new(), self.secured);
        let (control, turn) = self.process(&mut |bytes| match secured {
            true => sink(Event::Plain(bytes)),
            false => early.extend_from_slice(bytes),
        });
        self.append(&control);
        if !self.secured && !self.common().is_handshaking() && !matches!(turn, Turn::Failed(_)) {
            let certificates = self.common().peer_certificates();
            let names = match certificates.and_then(|chain| chain.first()) {
                Some(certificate) => match names(certificate) {
                    Some(names) => Some(names),
                    None => {
                        return Turn::Failed(Error::General("a subject that is no name".into()));
                    }
                },
                None => None,
            };
            self.secured = true;
            sink(Event::Secured(names));
            if !early.is_empty() {
                sink(Event::Plain(&early));
            }
        }
        match self.control.len() > CONTROL_BYTES_MAX {
            true => Turn::Failed(Error::General("the peer does not read".into())),
            false => turn,
        }
    }

    fn common(&self) -> &CommonState {
        match &self.side {
            Side::Server(server) => server,
            Side::Client(client) => client,
        }
    }

    /// No more can be opened or sealed. The alert with the reason is still sent to the peer.
    fn fail(&mut self, error: &Error) -> Going {
        // Not once more than there is to encode: the library is not to look at the records again.
        while self.common().wants_write() {
            let (control, _) = self.process(&mut |_| {});
            if control.is_empty() {
                break;
            }
            self.append(&control);
        }
        self.failed = true;
        Going::Failed(error.to_string())
    }

    // ----------------------------------------------------------------------------------------------- sending

    /// Puts bytes behind what is sealed already.
    fn append(&mut self, bytes: &[u8]) {
        let fits = bytes.len() <= CIPHERTEXT_BYTES - self.filled;
        if self.flying || !self.control.is_empty() || !fits {
            self.control.extend_from_slice(bytes);
        } else {
            self.outbox.fill(self.filled, bytes);
            self.filled += bytes.len();
        }
    }

    /// Seals bytes from the front of `pieces`, as many as there is room for; how many.
    pub fn seal(&mut self, pieces: &[Piece]) -> u64 {
        let mut sealed = 0;
        for piece in pieces {
            let mut bytes = piece.slice();
            while !bytes.is_empty() {
                let now = self.room().min(bytes.len());
                if now == 0 || !self.seal_bytes(&bytes[..now]) {
                    return sealed;
                }
                sealed += now as u64;
                bytes = &bytes[now..];
            }
        }
        sealed
    }

    /// Plaintext that can be sealed now.
    fn room(&self) -> usize {
        let ready = self.secured && !self.failed && !self.flying && self.control.is_empty();
        if !ready {
            return 0;
        }
        let room = (CIPHERTEXT_BYTES - self.filled).saturating_sub(KEY_UPDATE_BYTES);
        let records = room / (RECORD_BYTES + RECORD_OVERHEAD);
        let rest = room % (RECORD_BYTES + RECORD_OVERHEAD);
        records * RECORD_BYTES + rest.saturating_sub(RECORD_OVERHEAD)
    }

    fn seal_bytes(&mut self, bytes: &[u8]) -> bool {
        let sealed = self.write(What::Bytes(bytes));
        self.failed |= !sealed;
        sealed
    }

    /// Says to the peer that nothing more comes. To be called once everything is sealed.
    pub fn close(&mut self) {
        if !self.closed && self.room() > 0 {
            self.closed = true;
            self.write(What::Close);
        }
    }

    /// Has the library write ciphertext into the outbox. Whether it did.
    fn write(&mut self, what: What<'_>) -> bool {
        // All whole records were opened before, so what the library has to send of its own comes to an end.
        for _ in 0..TURNS_MAX {
            let came = self.inbox.slice_mut(self.start, self.end - self.start);
            let room = CIPHERTEXT_BYTES - self.filled;
            let room = self.outbox.slice_mut(self.filled, room);
            let (used, written) = match &mut self.side {
                Side::Server(server) => written(server.process_tls_records(came), what, room),
                Side::Client(client) => written(client.process_tls_records(came), what, room),
            };
            self.start += used;
            match written {
                Written::Done(count) => {
                    self.filled += count;
                    return true;
                }
                Written::Again(count) => self.filled += count,
                Written::Failed => return false,
            }
        }
        false
    }

    /// Ciphertext that is not sent.
    pub(crate) fn unsent(&self) -> usize {
        self.filled + self.control.len()
    }

    /// What to send, if there is anything and nothing is on its way.
    pub fn launch(&mut self) -> Option<Piece> {
        if self.flying || self.filled == 0 {
            return None;
        }
        self.flying = true;
        Some(Piece::new(self.outbox.clone(), 0, self.filled as u32))
    }

    /// What was launched is sent.
    pub fn sent(&mut self) {
        (self.flying, self.filled) = (false, 0);
        let control = mem::take(&mut self.control);
        let now = control.len().min(CIPHERTEXT_BYTES);
        self.append(&control[..now]);
        self.control.extend_from_slice(&control[now..]);
    }
}

/// What a call of the library came to: ciphertext used up, and what is next. Handshake messages go to
/// `control`.
fn outcome<D>(
    status: UnbufferedStatus<'_, '_, D>,
    control: &mut Vec<u8>,
    plain: &mut dyn FnMut(&[u8]),
) -> (usize, Turn) {
    let UnbufferedStatus { mut discard, state } = status;
    let turn = match state {
        Err(error) => Turn::Failed(error),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => {
            let mut turn = Turn::Again;
            while let Some(record) = traffic.next_record() {
                match record {
                    Ok(record) => {
                        discard += record.discard;
                        plain(record.payload);
                    }
                    Err(error) => {
                        turn = Turn::Failed(error);
                        break;
                    }
                }
            }
            turn
        }
        Ok(ConnectionState::EncodeTlsData(mut message)) => {
            encode(&mut message, control);
            Turn::Again
        }
        Ok(ConnectionState::TransmitTlsData(transmit)) => {
            // In order, and before anything that is sealed later.
            transmit.done();
            Turn::Again
        }
        Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => Turn::Idle,
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Turn::Closed,
        // Early data is not offered.
        Ok(_) => Turn::Failed(Error::General("an unexpected state".into())),
    };
    (discard, turn)
}

fn encode<D>(message: &mut EncodeTlsData<'_, D>, control: &mut Vec<u8>) {
    let start = control.len();
    let Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) =
        message.encode(&mut [])
    else {
        return;
    };
    control.resize(start + required_size, 0);
    let encoded = message.encode(&mut control[start..]);
    control.truncate(start + encoded.unwrap_or(0));
}

/// The same for a call that is to write.
fn written<D>(
    status: UnbufferedStatus<'_, '_, D>,
    what: What<'_>,
    room: &mut [u8],
) -> (usize, Written) {
    let UnbufferedStatus { discard, state } = status;
    let written = match state {
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            let count = match what {
                What::Bytes(bytes) => traffic.encrypt(bytes, room),
                What::Close => traffic.queue_close_notify(room),
            };
            count.map_or(Written::Failed, Written::Done)
        }
        Ok(ConnectionState::EncodeTlsData(mut message)) => {
            message.encode(room).map_or(Written::Failed, Written::Again)
        }
        Ok(ConnectionState::TransmitTlsData(transmit)) => {
            transmit.done();
            Written::Again(0)
        }
        _ => Written::Failed,
    };
    (discard, written)
}

/// The names in a certificate that was verified; `None` if its subject is no name.
fn names(certificate: &CertificateDer<'_>) -> Option<PeerNames> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let (distinguished, common) = der::subject(certificate.subject())?;
    let texts = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
    Some(PeerNames {
        distinguished,
        common,
        dns: texts(certificate.valid_dns_names().collect()),
        uris: texts(certificate.valid_uri_names().collect()),
    })
}
