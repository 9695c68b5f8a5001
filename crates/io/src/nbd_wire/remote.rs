//! A member that is an NBD export: what each of the engine's operations is on the wire, and when it is done.
//!
//! An operation is a range of the export and, for reads and writes, as much memory, whose bytes are counted from the
//! start of the operation. It becomes one or more requests:
//!
//! | operation | requests |
//! |---|---|
//! | read, write | as many as the server's largest payload demands |
//! | durable write | with FUA, or followed by a flush where the server has no FUA |
//! | flush | one; none where the server promises nothing that a flush could add to |
//! | zero | write-zeroes, or writes of zeros where the server has none |
//! | trim | trim; unsupported where the server has none |
//!
//! The owner of the socket sends what [`Remote::next_outgoing`] gives, feeds [`Remote::received`], moves the bytes that
//! [`ClientEvent::Payload`] and [`ClientEvent::Zeroes`] name (their tags are those of the operations), and collects
//! [`Remote::next_landed`]. After an error, or when the connection breaks, [`Remote::break_off`] lands everything.

use super::client::{Client, ClientError, ClientEvent, ClientRequest, ExportInfo, Replies};
use super::message::REQUEST_BYTES;
use super::{Command, command_flags};
use crate::slab::Slab;
use restripe_array::{IoError, IoOp, MemberInfo, SECTOR_BYTES};
use std::collections::VecDeque;

/// Requests in flight on one connection: enough to fill any link, little enough for any server.
const IN_FLIGHT_MAX: usize = 128;
/// Longest stretch that one request zeroes or trims.
const ERASE_BYTES_MAX: u32 = 1 << 30;

/// An operation of the engine, in bytes of the export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    pub op: IoOp,
    pub offset: u64,
    pub bytes: u64,
    pub durable: bool,
}

/// What follows a request's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    Nothing,
    /// Memory of the operation.
    Memory {
        tag: u64,
        from: u64,
        bytes: u32,
    },
    Zeros(u32),
}

/// A message to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    pub header: [u8; REQUEST_BYTES],
    pub payload: Payload,
}

/// What came of received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Incoming {
    /// Nothing complete yet: more bytes are needed.
    More,
    /// Something was understood; go on with what is left.
    Understood,
    /// The next `bytes` received bytes are those of operation `tag` from `from` on. Call [`Remote::filled`] when they
    /// are there.
    Payload { tag: u64, from: u64, bytes: u32 },
    /// These bytes of operation `tag` are zeros.
    Zeroes { tag: u64, from: u64, bytes: u32 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Data,
    /// The flush that makes a write durable.
    Flush,
}

struct Running {
    /// The caller's name for it.
    tag: u64,
    operation: Operation,
    stage: Stage,
    /// Bytes that are asked for.
    asked: u64,
    /// Requests in flight.
    parts: u32,
    error: Option<IoError>,
}

/// A request in flight: a part of an operation.
struct Part {
    running: u32,
    from: u64,
}

pub struct Remote {
    client: Client,
    running: Slab<Running>,
    /// Operations of which not everything is asked for, oldest first.
    queue: VecDeque<u32>,
    parts: Slab<Part>,
    landed: VecDeque<(u64, Result<(), IoError>)>,
}

impl Remote {
    /// A connection on which the handshake is still to come.
    pub fn new(export: &str) -> Remote {
        Remote {
            client: Client::new(export, Replies::Simple),
            running: Slab::default(),
            queue: VecDeque::new(),
            parts: Slab::default(),
            landed: VecDeque::new(),
        }
    }

    /// What the export is like; `None` until the handshake is over.
    pub fn info(&self) -> Option<&ExportInfo> {
        self.client.info()
    }

    /// Takes an operation in. `tag` is unique among those not yet landed.
    pub fn begin(&mut self, tag: u64, operation: Operation) {
        let index = self.running.insert(Running {
            tag,
            operation,
            stage: Stage::Data,
            asked: 0,
            parts: 0,
            error: None,
        });
        self.queue.push_back(index);
    }

    /// An operation that is done, with its result.
    pub fn next_landed(&mut self) -> Option<(u64, Result<(), IoError>)> {
        self.landed.pop_front()
    }

    /// Lands everything that is not done: the connection is gone.
    pub fn break_off(&mut self) {
        self.queue.clear();
        let left: Vec<u32> = self.running.iter().map(|(index, _)| index).collect();
        for index in left {
            self.land(index, Err(IoError::Gone));
        }
    }

    // ------------------------------------------------------------------------------------------------- sending

    /// The next message to send, if there is one and the server is not too busy.
    pub fn next_outgoing(&mut self) -> Option<Outgoing> {
        let info = *self.client.info()?;
        loop {
            if self.client.in_flight() >= IN_FLIGHT_MAX {
                return None;
            }
            let index = *self.queue.front()?;
            let Some(running) = self.running.get_mut(index) else {
                self.queue.pop_front();
                continue;
            };
            let Some(part) = running.next_part(&info) else {
                self.queue.pop_front();
                self.settle(index, &info);
                continue;
            };
            if let Some(outgoing) = self.ask(index, part) {
                return Some(outgoing);
            }
        }
    }

    /// Puts a part on the wire. `None` when the client will not have it, which ends the operation.
    fn ask(&mut self, index: u32, part: NextPart) -> Option<Outgoing> {
        let from = part.from;
        let tag = self.parts.insert(Part {
            running: index,
            from,
        });
        let request = ClientRequest {
            tag: u64::from(tag),
            command: part.command,
            offset: part.offset,
            bytes: part.bytes,
            flags: part.flags,
        };
        let mut header = Vec::with_capacity(REQUEST_BYTES);
        let asked = self.client.request(request, &mut header);
        let running = self.running.get_mut(index)?;
        match asked {
            Ok(()) => {
                running.parts += 1;
                Some(Outgoing {
                    header: *header.first_chunk().expect("a request has its length"),
                    payload: part.payload,
                })
            }
            Err(error) => {
                running.fail(error);
                self.parts.remove(tag);
                None
            }
        }
    }

    /// Lands an operation of which nothing is left to ask and nothing in flight.
    fn settle(&mut self, index: u32, info: &ExportInfo) {
        let Some(running) = self.running.get_mut(index) else {
            return;
        };
        if running.parts > 0 {
            return;
        }
        match running.error {
            Some(error) => self.land(index, Err(error)),
            None if running.needs_flush(info) => {
                running.stage = Stage::Flush;
                running.asked = 0;
                self.queue.push_back(index);
            }
            None => self.land(index, Ok(())),
        }
    }

    fn land(&mut self, index: u32, result: Result<(), IoError>) {
        if let Some(running) = self.running.remove(index) {
            self.landed.push_back((running.tag, result));
        }
    }

    // ----------------------------------------------------------------------------------------------- receiving

    /// Takes what it can use from the front of `bytes`; how much that is, and what it was. The handshake's answers go
    /// to `out`. To be called until it says [`Incoming::More`].
    pub fn received(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Incoming), ClientError> {
        let step = self.client.received(bytes, out)?;
        let incoming = match step.event {
            ClientEvent::More if step.consumed == 0 => Incoming::More,
            ClientEvent::More | ClientEvent::Ready => Incoming::Understood,
            ClientEvent::Payload { tag, offset, bytes } => {
                let (tag, from) = self.place(tag, offset)?;
                Incoming::Payload { tag, from, bytes }
            }
            ClientEvent::Zeroes { tag, offset, bytes } => {
                let (tag, from) = self.place(tag, offset)?;
                Incoming::Zeroes { tag, from, bytes }
            }
            ClientEvent::Reply { tag, result } => {
                self.replied(tag, result.map_err(|errno| errno.io_error()));
                Incoming::Understood
            }
        };
        Ok((step.consumed, incoming))
    }

    /// The memory named by [`Incoming::Payload`] is filled.
    pub fn filled(&mut self) {
        self.client.filled();
    }

    /// Which operation a part belongs to, and where in it an offset of the part is.
    fn place(&self, tag: u64, offset: u32) -> Result<(u64, u64), ClientError> {
        let part = self.parts.get(tag as u32);
        part.and_then(|part| {
            let running = self.running.get(part.running)?;
            Some((running.tag, part.from + u64::from(offset)))
        })
        .ok_or(ClientError::Protocol("data of no operation"))
    }

    fn replied(&mut self, tag: u64, result: Result<(), IoError>) {
        let Some(part) = self.parts.remove(tag as u32) else {
            return;
        };
        let (Some(running), Some(info)) = (self.running.get_mut(part.running), self.client.info())
        else {
            return;
        };
        let info = *info;
        running.parts -= 1;
        if let Err(error) = result {
            running.fail(error);
        }
        if running.all_asked() {
            self.settle(part.running, &info);
        }
    }
}

/// The part of an operation to ask for next.
struct NextPart {
    command: Command,
    offset: u64,
    from: u64,
    bytes: u32,
    flags: u16,
    payload: Payload,
}

impl Running {
    fn fail(&mut self, error: IoError) {
        self.error.get_or_insert(error);
    }

    /// Whether nothing more is to be asked in this stage. A flush counts as one byte.
    fn all_asked(&self) -> bool {
        self.error.is_some() || self.asked == self.to_ask()
    }

    fn to_ask(&self) -> u64 {
        match (self.stage, self.operation.op) {
            (Stage::Flush, _) | (_, IoOp::Flush) => 1,
            _ => self.operation.bytes,
        }
    }

    fn needs_flush(&self, info: &ExportInfo) -> bool {
        let writes = !matches!(self.operation.op, IoOp::Read | IoOp::Flush);
        writes && self.stage == Stage::Data && self.operation.durable && !info.forces_unit_access()
    }

    fn next_part(&mut self, info: &ExportInfo) -> Option<NextPart> {
        if self.all_asked() {
            return None;
        }
        if self.stage == Stage::Flush || self.operation.op == IoOp::Flush {
            self.asked = 1;
            return info.takes(Command::Flush).then_some(NextPart {
                command: Command::Flush,
                offset: 0,
                from: 0,
                bytes: 0,
                flags: 0,
                payload: Payload::Nothing,
            });
        }
        let command = command(self.operation.op, info);
        let most = match command {
            Command::Read | Command::Write => info.payload_maximum,
            _ => ERASE_BYTES_MAX,
        };
        let from = self.asked;
        let left = self.operation.bytes - from;
        let bytes = u32::try_from(left).unwrap_or(u32::MAX).min(most);
        self.asked += u64::from(bytes);
        Some(NextPart {
            command,
            offset: self.operation.offset + from,
            from,
            bytes,
            flags: self.flags(info),
            payload: self.payload(command, from, bytes),
        })
    }

    fn flags(&self, info: &ExportInfo) -> u16 {
        let durable = self.operation.durable && self.operation.op != IoOp::Read;
        if durable && info.forces_unit_access() {
            command_flags::FUA
        } else {
            0
        }
    }

    fn payload(&self, command: Command, from: u64, bytes: u32) -> Payload {
        match (command, self.operation.op) {
            (Command::Write, IoOp::Zero) => Payload::Zeros(bytes),
            (Command::Write, _) => Payload::Memory {
                tag: self.tag,
                from,
                bytes,
            },
            _ => Payload::Nothing,
        }
    }
}

fn command(op: IoOp, info: &ExportInfo) -> Command {
    match op {
        IoOp::Read => Command::Read,
        IoOp::Write => Command::Write,
        IoOp::Flush => Command::Flush,
        IoOp::Trim => Command::Trim,
        IoOp::Zero if info.takes(Command::WriteZeroes) => Command::WriteZeroes,
        IoOp::Zero => Command::Write,
    }
}

/// What the engine is told of an export as a member; `None` if its blocks are larger than any that we can serve.
pub fn member_info(info: &ExportInfo) -> Option<MemberInfo> {
    let logical_block = match info.block_minimum {
        0..=512 => 512,
        513..=4096 => 4096,
        _ => return None,
    };
    Some(MemberInfo {
        sectors: info.size_bytes / SECTOR_BYTES,
        logical_block,
        // The protocol leaves open what a trimmed range reads as.
        trim_zeroes: false,
        fast_zero: info.takes(Command::WriteZeroes) && info.zeroes_fast(),
    })
}
