//! A client's connection as a state machine without I/O: how a member that is an NBD export is spoken to,
//! and how tests and demonstrations speak to our own server.
//!
//! The owner of the socket feeds what it received to [`Client::received`] and sends what gathered in `out`:
//!
//! ```text
//! Client::new(export)            nothing to send: the server greets first
//! received(bytes, out)  -> Secure   TLS begins (`Client::through_tls`); call `secured` when it is there
//!                       -> More     give more bytes (what was not consumed is offered again)
//!                       -> Ready    the handshake is over; `info` tells of the export, requests may be made
//!                       -> Payload  the next bytes belong into a request's memory; then call `filled`
//!                       -> Zeroes   part of a request's memory is zeros
//!                       -> Reply    a request is answered
//! request(...)                   appends a request's header; a write's payload must be sent right behind it
//! ```
//!
//! Nothing that a server sends makes it panic, allocate beyond [`MESSAGE_BYTES_MAX`], or write outside a
//! request's memory. What it cannot make sense of is a [`ClientError`], after which the connection is of no
//! more use.

mod handshake;

use super::message::{CHUNK_BYTES, Chunk, Request, SIMPLE_REPLY_BYTES, SimpleReply, chunk_kind};
use super::{
    Command, Errno, Fields, MAGIC_SIMPLE_REPLY, MAGIC_STRUCTURED_REPLY, PAYLOAD_BYTES_MAX,
    STRING_BYTES_MAX, command_flags, transmission_flags,
};
use handshake::Handshake;
use restripe_array::shown;
use restripe_array::{IoError, Uuid};
use std::fmt;

/// Most bytes that [`Client::received`] leaves unconsumed while it asks for more.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// Most requests in flight on one connection.
pub const REQUESTS_MAX: usize = 4096;

/// What the server tells of its export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExportInfo {
    pub size_bytes: u64,
    /// See [`transmission_flags`].
    pub flags: u16,
    /// Offsets and lengths of requests must be multiples of this.
    pub block_minimum: u32,
    pub block_preferred: u32,
    /// Longest read or write.
    pub payload_maximum: u32,
}

impl ExportInfo {
    pub(super) fn new(size_bytes: u64, flags: u16) -> ExportInfo {
        ExportInfo {
            size_bytes,
            flags,
            block_minimum: 1,
            block_preferred: 4096,
            payload_maximum: PAYLOAD_BYTES_MAX,
        }
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub fn read_only(&self) -> bool {
        self.has(transmission_flags::READ_ONLY)
    }

    /// Whether a write can be made durable by itself. If not, a flush behind it does it.
    pub fn forces_unit_access(&self) -> bool {
        self.has(transmission_flags::SEND_FUA)
    }

    pub fn zeroes_fast(&self) -> bool {
        self.has(transmission_flags::SEND_FAST_ZERO)
    }

    /// Whether the server takes this command at all.
    pub fn takes(&self, command: Command) -> bool {
        match command {
            Command::Read | Command::Disconnect => true,
            Command::Write => !self.read_only(),
            Command::Flush => self.has(transmission_flags::SEND_FLUSH),
            Command::Trim => self.has(transmission_flags::SEND_TRIM),
            Command::Cache => self.has(transmission_flags::SEND_CACHE),
            Command::WriteZeroes => self.has(transmission_flags::SEND_WRITE_ZEROES),
            Command::BlockStatus => false,
        }
    }
}

/// Which replies the client offers to understand. Simple ones are the cheapest; structured ones tell where a read
/// failed and leave out holes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replies {
    Simple,
    Structured,
}

/// A request to make. `bytes` of a read or write are the length of its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientRequest {
    /// The caller's own name for it.
    pub tag: u64,
    pub command: Command,
    pub offset: u64,
    pub bytes: u32,
    /// See [`command_flags`].
    pub flags: u16,
}

/// What came of received bytes: so many are used up, and this happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub consumed: usize,
    pub event: ClientEvent,
}

impl Step {
    const MORE_LATER: Step = Step::new(0, ClientEvent::More);

    const fn new(consumed: usize, event: ClientEvent) -> Step {
        Step { consumed, event }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientEvent {
    /// Nothing complete yet.
    More,
    /// The next bytes, also those that came behind what was consumed, are TLS's. Call [`Client::secured`]
    /// when its handshake is over.
    Secure,
    /// The handshake is over.
    Ready,
    /// The next `bytes` received bytes belong into the memory of request `tag` at `offset`. Call [`Client::filled`]
    /// when they are there.
    Payload { tag: u64, offset: u32, bytes: u32 },
    /// These bytes of the memory of request `tag` are zeros.
    Zeroes { tag: u64, offset: u32, bytes: u32 },
    /// Request `tag` is answered.
    Reply { tag: u64, result: Result<(), Errno> },
}

/// Why a connection is of no more use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientError {
    /// The peer is no newstyle NBD server.
    NotNbd,
    /// The server refused the export, with its reason.
    Refused(String),
    /// The export is there, and the server does not give it now: somebody else has it.
    Held(String),
    /// The server broke the protocol.
    Protocol(&'static str),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::NotNbd => f.write_str("the peer is not a newstyle NBD server"),
            ClientError::Refused(reason) | ClientError::Held(reason) => {
                write!(f, "the NBD server refused: {}", shown(reason))
            }
            ClientError::Protocol(what) => {
                write!(f, "the NBD server broke the protocol: {what}")
            }
        }
    }
}

impl std::error::Error for ClientError {}

/// A request in flight. Its cookie is its place in the table with the table's count of uses above it, so that an answer
/// to nothing, or to a request of before, is noticed.
#[derive(Debug)]
struct Outstanding {
    request: ClientRequest,
    cookie: u64,
    /// Bytes of a read that have come.
    covered: u32,
    /// The first error that a chunk told.
    error: Option<Errno>,
}

#[derive(Debug)]
enum Phase {
    Handshake(Handshake),
    /// Between messages.
    Idle,
    /// The caller puts payload into the memory of the request in `slot`.
    Filling {
        slot: usize,
        bytes: u32,
        last: bool,
    },
    /// The request in `slot` is complete and waits to be told.
    Answered {
        slot: usize,
    },
}

pub struct Client {
    phase: Phase,
    info: Option<ExportInfo>,
    beneath: Vec<Uuid>,
    structured: bool,
    outstanding: Vec<Option<Outstanding>>,
    free: Vec<usize>,
    cookies_given: u64,
}

impl Client {
    pub fn new(export: &str, replies: Replies) -> Client {
        Client {
            phase: Phase::Handshake(Handshake::new(export, replies)),
            info: None,
            beneath: Vec::new(),
            structured: false,
            outstanding: Vec::new(),
            free: Vec::new(),
            cookies_given: 0,
        }
    }

    /// The same, and nothing is asked of the server before TLS.
    pub fn through_tls(export: &str, replies: Replies) -> Client {
        let mut client = Client::new(export, replies);
        client.phase = Phase::Handshake(Handshake::through_tls(export, replies));
        client
    }

    /// TLS is there; what to send through it is appended to `out`.
    pub fn secured(&mut self, out: &mut Vec<u8>) {
        if let Phase::Handshake(handshake) = &mut self.phase {
            handshake.secured(out);
        }
    }

    /// What the export is like; `None` until [`ClientEvent::Ready`].
    pub fn info(&self) -> Option<&ExportInfo> {
        self.info.as_ref()
    }

    /// The arrays that lie beneath the export, as it says.
    pub fn beneath(&self) -> &[Uuid] {
        &self.beneath
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.outstanding.len() - self.free.len()
    }

    /// The tags of all requests in flight, for a connection that broke.
    pub fn unanswered(&self) -> impl Iterator<Item = u64> {
        self.outstanding.iter().flatten().map(|o| o.request.tag)
    }

    /// Appends a request's header to `out`. Of a write, the payload must follow it before anything else is sent.
    pub fn request(&mut self, request: ClientRequest, out: &mut Vec<u8>) -> Result<(), IoError> {
        let info = self.info.ok_or(IoError::Gone)?;
        check(&info, &request)?;
        let cookie = self.admit(request).ok_or(IoError::Other(libc::EBUSY))?;
        let message = Request {
            flags: request.flags,
            command: request.command.code(),
            cookie,
            offset: request.offset,
            bytes: request.bytes,
        };
        out.extend_from_slice(&message.encode());
        Ok(())
    }

    /// Appends a farewell. Nothing may be sent after it.
    pub fn disconnect(&mut self, out: &mut Vec<u8>) {
        let message = Request {
            flags: 0,
            command: Command::Disconnect.code(),
            cookie: 0,
            offset: 0,
            bytes: 0,
        };
        out.extend_from_slice(&message.encode());
    }

    /// The memory named by [`ClientEvent::Payload`] is filled.
    pub fn filled(&mut self) {
        if let Phase::Filling { slot, bytes, last } = self.phase {
            if let Some(outstanding) = &mut self.outstanding[slot] {
                outstanding.covered += bytes;
            }
            self.phase = match last {
                true => Phase::Answered { slot },
                false => Phase::Idle,
            };
        }
    }

    /// Takes what it can use from the front of `bytes`, up to the next event.
    pub fn received(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Step, ClientError> {
        match &mut self.phase {
            Phase::Handshake(handshake) => {
                let (consumed, agreed) = handshake.received(bytes, out)?;
                if handshake.waits_for_tls() {
                    return Ok(Step::new(consumed, ClientEvent::Secure));
                }
                let Some(agreed) = agreed else {
                    return Ok(Step::new(consumed, ClientEvent::More));
                };
                self.beneath = handshake.take_beneath();
                self.info = Some(agreed.info);
                self.structured = agreed.structured;
                self.phase = Phase::Idle;
                Ok(Step::new(consumed, ClientEvent::Ready))
            }
            Phase::Filling { .. } => Err(ClientError::Protocol(
                "bytes were offered while a payload is due",
            )),
            Phase::Answered { slot } => {
                let slot = *slot;
                self.phase = Phase::Idle;
                self.answer(slot, 0)
            }
            Phase::Idle => self.reply_received(bytes),
        }
    }

    fn admit(&mut self, request: ClientRequest) -> Option<u64> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.outstanding.len() < REQUESTS_MAX => {
                self.outstanding.push(None);
                self.outstanding.len() - 1
            }
            None => return None,
        };
        self.cookies_given += 1;
        let cookie = self.cookies_given * REQUESTS_MAX as u64 + slot as u64;
        self.outstanding[slot] = Some(Outstanding {
            request,
            cookie,
            covered: 0,
            error: None,
        });
        Some(cookie)
    }

    fn reply_received(&mut self, bytes: &[u8]) -> Result<Step, ClientError> {
        let Some(magic) = Fields::new(bytes).u32() else {
            return Ok(Step::MORE_LATER);
        };
        match magic {
            MAGIC_SIMPLE_REPLY => match bytes.first_chunk::<SIMPLE_REPLY_BYTES>() {
                Some(header) => self.simple_reply(header),
                None => Ok(Step::MORE_LATER),
            },
            MAGIC_STRUCTURED_REPLY if self.structured => match bytes.split_first_chunk() {
                Some((header, rest)) => self.chunk(header, rest),
                None => Ok(Step::MORE_LATER),
            },
            _ => Err(ClientError::Protocol("a reply begins with a wrong magic")),
        }
    }

    fn slot_of(&self, cookie: u64) -> Result<usize, ClientError> {
        let slot = (cookie % REQUESTS_MAX as u64) as usize;
        match self.outstanding.get(slot) {
            Some(Some(outstanding)) if outstanding.cookie == cookie => Ok(slot),
            _ => Err(ClientError::Protocol("a reply without a request")),
        }
    }

    fn at(&mut self, slot: usize) -> &mut Outstanding {
        let outstanding = self.outstanding[slot].as_mut();
        outstanding.expect("slots in use come from slot_of")
    }

    fn simple_reply(&mut self, header: &[u8; SIMPLE_REPLY_BYTES]) -> Result<Step, ClientError> {
        let reply = SimpleReply::decode(header).ok_or(ClientError::Protocol("magic"))?;
        let slot = self.slot_of(reply.cookie)?;
        let structured = self.structured;
        let outstanding = self.at(slot);
        let request = outstanding.request;
        if request.command == Command::Read && structured {
            return Err(ClientError::Protocol(
                "a simple reply to a read after structured ones were agreed on",
            ));
        }
        if outstanding.covered != 0 || outstanding.error.is_some() {
            return Err(ClientError::Protocol("two kinds of reply to one request"));
        }
        if reply.error != 0 {
            outstanding.error = Some(Errno::from_code(reply.error));
        } else if request.command == Command::Read {
            return Ok(self.expect_payload(slot, SIMPLE_REPLY_BYTES, 0, request.bytes, true));
        }
        self.answer(slot, SIMPLE_REPLY_BYTES)
    }

    fn expect_payload(
        &mut self,
        slot: usize,
        consumed: usize,
        offset: u32,
        bytes: u32,
        last: bool,
    ) -> Step {
        self.phase = Phase::Filling { slot, bytes, last };
        let tag = self.at(slot).request.tag;
        Step::new(consumed, ClientEvent::Payload { tag, offset, bytes })
    }

    fn chunk(&mut self, header: &[u8; CHUNK_BYTES], rest: &[u8]) -> Result<Step, ClientError> {
        let chunk = Chunk::decode(header).ok_or(ClientError::Protocol("magic"))?;
        let slot = self.slot_of(chunk.cookie)?;
        match chunk.kind {
            chunk_kind::NONE => {
                if chunk.bytes != 0 || !chunk.is_done() {
                    return Err(ClientError::Protocol("a malformed last chunk"));
                }
                self.answer(slot, CHUNK_BYTES)
            }
            chunk_kind::OFFSET_DATA => self.data_chunk(slot, &chunk, rest),
            chunk_kind::OFFSET_HOLE => self.hole_chunk(slot, &chunk, rest),
            kind if kind & chunk_kind::ERROR_BIT != 0 => self.error_chunk(slot, &chunk, rest),
            _ => Err(ClientError::Protocol("an unknown kind of chunk")),
        }
    }

    fn data_chunk(&mut self, slot: usize, chunk: &Chunk, rest: &[u8]) -> Result<Step, ClientError> {
        let Some(bytes) = chunk.bytes.checked_sub(8).filter(|bytes| *bytes > 0) else {
            return Err(ClientError::Protocol("a chunk of data without data"));
        };
        let Some(offset) = Fields::new(rest).u64() else {
            return Ok(Step::MORE_LATER);
        };
        let offset = self.within(slot, offset, bytes)?;
        Ok(self.expect_payload(slot, CHUNK_BYTES + 8, offset, bytes, chunk.is_done()))
    }

    fn hole_chunk(&mut self, slot: usize, chunk: &Chunk, rest: &[u8]) -> Result<Step, ClientError> {
        if chunk.bytes != 12 {
            return Err(ClientError::Protocol("a malformed hole"));
        }
        let mut fields = Fields::new(rest);
        let (Some(offset), Some(bytes)) = (fields.u64(), fields.u32()) else {
            return Ok(Step::MORE_LATER);
        };
        let offset = self.within(slot, offset, bytes)?;
        let outstanding = self.at(slot);
        outstanding.covered += bytes;
        let tag = outstanding.request.tag;
        if chunk.is_done() {
            self.phase = Phase::Answered { slot };
        }
        let event = ClientEvent::Zeroes { tag, offset, bytes };
        Ok(Step::new(CHUNK_BYTES + 12, event))
    }

    /// The offset in the request's memory of a stretch that must lie within what is still missing of a read.
    fn within(&mut self, slot: usize, offset: u64, bytes: u32) -> Result<u32, ClientError> {
        let Outstanding {
            request, covered, ..
        } = self.at(slot);
        let start = offset.checked_sub(request.offset);
        let start = start.and_then(|start| u32::try_from(start).ok());
        let fits = request.command == Command::Read && bytes <= request.bytes - *covered;
        match start {
            Some(start) if fits && start <= request.bytes - bytes => Ok(start),
            _ => Err(ClientError::Protocol("data that was not requested")),
        }
    }

    fn error_chunk(
        &mut self,
        slot: usize,
        chunk: &Chunk,
        rest: &[u8],
    ) -> Result<Step, ClientError> {
        let bytes = chunk.bytes as usize;
        if !(6..=STRING_BYTES_MAX + 14).contains(&bytes) {
            return Err(ClientError::Protocol("an error of a wrong length"));
        }
        let Some(payload) = rest.get(..bytes) else {
            return Ok(Step::MORE_LATER);
        };
        let mut fields = Fields::new(payload);
        let (Some(error @ 1..), Some(message)) = (fields.u32(), fields.u16()) else {
            return Err(ClientError::Protocol("an error without an error"));
        };
        if usize::from(message) > bytes - 6 {
            return Err(ClientError::Protocol("an error's message leaves its chunk"));
        }
        let outstanding = self.at(slot);
        outstanding.error.get_or_insert(Errno::from_code(error));
        let consumed = CHUNK_BYTES + bytes;
        match chunk.is_done() {
            true => self.answer(slot, consumed),
            false => Ok(Step::new(consumed, ClientEvent::More)),
        }
    }

    fn answer(&mut self, slot: usize, consumed: usize) -> Result<Step, ClientError> {
        let outstanding = self.outstanding[slot].take();
        let outstanding = outstanding.expect("slots in use come from slot_of");
        self.free.push(slot);
        let request = outstanding.request;
        let result = outstanding.error.map_or(Ok(()), Err);
        let short = request.command == Command::Read && outstanding.covered < request.bytes;
        if short && result.is_ok() {
            return Err(ClientError::Protocol("a reply to a read lacks data"));
        }
        let tag = request.tag;
        Ok(Step::new(consumed, ClientEvent::Reply { tag, result }))
    }
}

/// Whether the server would take this request. What it never offered is not sent.
fn check(info: &ExportInfo, request: &ClientRequest) -> Result<(), IoError> {
    let end = request.offset.checked_add(u64::from(request.bytes));
    let in_range = end.is_some_and(|end| end <= info.size_bytes);
    let with_payload = matches!(request.command, Command::Read | Command::Write);
    let empty = request.bytes == 0;
    let fua = request.flags & command_flags::FUA != 0;
    if !info.takes(request.command) || (fua && !info.forces_unit_access()) {
        Err(IoError::Unsupported)
    } else if !in_range
        || (with_payload && request.bytes > info.payload_maximum)
        || (empty && request.command != Command::Flush)
    {
        Err(IoError::Other(libc::EINVAL))
    } else {
        Ok(())
    }
}
