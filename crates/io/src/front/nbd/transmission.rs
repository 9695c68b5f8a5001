//! The transmission phase: requests in, replies out.
//!
//! Every request of a client gets one reply, whatever is wrong with it, if its frame can be recognised: the
//! payload of a refused write is skipped. Only a wrong magic ends the connection.

use super::Step;
use super::block_status::{Context, EXTENTS_MAX, MAPPED_BYTES_MAX, descriptors};
use super::handshake::skip;
use crate::front::{Ask, Link, Then};
use crate::nbd_wire::message::{
    CHUNK_DONE, REQUEST_BYTES, Request, SimpleReply, encode_data_chunk, encode_error_chunk,
    encode_status_chunk,
};
use crate::nbd_wire::{Command, Errno, command_flags};
use restripe_array::{BufRef, RequestError, RequestOp, SECTOR_BYTES};

/// Who sends the requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Client {
    /// Any client.
    Remote,
    /// The kernel of this machine ([`super::KernelPeer`]).
    Kernel { read_only: bool },
}

/// What the handshake ended with.
pub(super) struct Attachment {
    pub export: usize,
    pub size_bytes: u64,
    /// Bytes of a read or write at most.
    pub maximum_block: u32,
    pub read_only: bool,
    /// Flushes and durable writes were offered.
    pub durable: bool,
    /// Replies are structured.
    pub structured: bool,
    /// Metadata contexts that block status queries are answered for.
    pub contexts: Vec<Context>,
    pub client: Client,
}

pub(super) struct Transmission {
    attachment: Attachment,
    /// Requests in flight, by tag. As many as the shell admits.
    pending: Vec<Option<Pending>>,
    free: Vec<usize>,
    /// The write whose payload is coming.
    filling: Option<Ask>,
    /// The refused write whose payload is being skipped.
    skipping: Option<Skipping>,
    /// Replies are put together here.
    out: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Pending {
    cookie: u64,
    offset: u64,
    bytes: u32,
    /// A read's data, or a write's.
    buf: Option<BufRef>,
    read: bool,
}

/// A write that is refused once its payload has gone by: clients do not expect an answer while they still send.
struct Skipping {
    left: u32,
    request: Request,
    refusal: Refusal,
}

enum Work {
    Engine(RequestOp),
    BlockStatus,
    Disconnect,
    /// A hint that there is nothing to be done about: data is not cached yet.
    Nothing,
}

/// Why a request is refused: what goes on the wire, and a word for people.
struct Refusal(Errno, &'static str);

impl Transmission {
    pub(super) fn new(attachment: Attachment) -> Transmission {
        Transmission {
            attachment,
            pending: Vec::new(),
            free: Vec::new(),
            filling: None,
            skipping: None,
            out: Vec::new(),
        }
    }

    /// Bytes that the peer owes before the next request can begin.
    pub(super) fn bytes_due(&self) -> u64 {
        let payload = self.filling.map_or(0, |ask| ask.bytes);
        let skipped = self.skipping.as_ref().map_or(0, |skipping| skipping.left);
        payload + u64::from(skipped)
    }

    pub(super) fn step(&mut self, bytes: &[u8], link: &mut dyn Link) -> Step {
        if self.skipping.is_some() {
            return self.skip(bytes, link);
        }
        let Some(header) = bytes.first_chunk::<REQUEST_BYTES>() else {
            return Step::Stop(0, Then::More);
        };
        if link.full() {
            return Step::Stop(0, Then::Hold);
        }
        match Request::decode(header) {
            Some(request) => self.request(&request, link),
            None => Step::Stop(REQUEST_BYTES, Then::Abort),
        }
    }

    fn skip(&mut self, bytes: &[u8], link: &mut dyn Link) -> Step {
        let Some(skipping) = &mut self.skipping else {
            return Step::Went(0);
        };
        let (used, left) = skip(bytes, skipping.left);
        skipping.left = left;
        if left > 0 {
            return Step::Stop(used, Then::More);
        }
        if let Some(Skipping {
            request, refusal, ..
        }) = self.skipping.take()
        {
            self.refuse(&request, &refusal, link);
        }
        Step::Went(used)
    }

    fn request(&mut self, request: &Request, link: &mut dyn Link) -> Step {
        self.follow_growth(request, link);
        let command = Command::of_code(request.command);
        let work = match command {
            Some(command) => self.check(command, request),
            None => Err(Refusal(Errno::Invalid, "unknown command")),
        };
        match work {
            Ok(Work::Engine(op)) => return self.submit(op, request, link),
            Ok(Work::Disconnect) => return Step::Stop(REQUEST_BYTES, Then::Finish),
            Ok(Work::BlockStatus) => self.block_status(request, link),
            Ok(Work::Nothing) => send_simple(request.cookie, Ok(()), link),
            Err(refusal) if command == Some(Command::Write) => {
                self.skipping = Some(Skipping {
                    left: request.bytes,
                    request: *request,
                    refusal,
                });
            }
            Err(refusal) => self.refuse(request, &refusal, link),
        }
        Step::Went(REQUEST_BYTES)
    }

    // ------------------------------------------------------------------------------------------------- checks

    /// What a request asks for, if it may.
    fn check(&self, command: Command, request: &Request) -> Result<Work, Refusal> {
        let invalid = |why| Err(Refusal(Errno::Invalid, why));
        if command == Command::Disconnect {
            return Ok(Work::Disconnect);
        }
        if request.flags & !self.flags_known(command) != 0 {
            return invalid("a flag that this command does not support");
        }
        if writes(command) && self.attachment.read_only {
            return Err(Refusal(Errno::NotPermitted, "the export is read-only"));
        }
        let durable = command == Command::Flush || request.flags & command_flags::FUA != 0;
        if durable && !self.attachment.durable {
            return invalid("a member of the array makes no write durable");
        }
        if command == Command::Flush {
            return match (request.offset, request.bytes) {
                (0, 0) => Ok(Work::Engine(RequestOp::Flush)),
                _ => invalid("a flush has neither offset nor length"),
            };
        }
        if command == Command::BlockStatus && self.attachment.contexts.is_empty() {
            return invalid("no metadata context was chosen");
        }
        if request.bytes == 0 {
            return invalid("the length is zero");
        }
        self.check_extent(command, request)?;
        Ok(work(command, request.flags))
    }

    /// The flags that may come with a command. FUA may come with any and matters to those that write.
    fn flags_known(&self, command: Command) -> u16 {
        use command_flags::*;
        FUA | match command {
            Command::Read if self.attachment.structured => DF,
            Command::WriteZeroes => NO_HOLE | FAST_ZERO,
            Command::BlockStatus => REQ_ONE,
            _ => 0,
        }
    }

    /// Looks up the size for a kernel's request that seems to be beyond the end.
    fn follow_growth(&mut self, request: &Request, link: &dyn Link) {
        let end = request.offset.saturating_add(u64::from(request.bytes));
        if self.is_for_kernel()
            && end > self.attachment.size_bytes
            && let Some(export) = link.export(self.attachment.export)
        {
            self.attachment.size_bytes = export.size_bytes;
        }
    }

    fn is_for_kernel(&self) -> bool {
        matches!(self.attachment.client, Client::Kernel { .. })
    }

    /// Whether this request of the kernel is left for the daemon that serves the array next.
    fn is_left(&self, result: Result<(), RequestError>, link: &dyn Link) -> bool {
        let export = || link.export(self.attachment.export);
        result == Err(RequestError::Unavailable)
            && self.is_for_kernel()
            && export().is_none_or(|export| !export.serving)
    }

    fn check_extent(&self, command: Command, request: &Request) -> Result<(), Refusal> {
        let end = request.offset.checked_add(u64::from(request.bytes));
        if end.is_none_or(|end| end > self.attachment.size_bytes) {
            let errno = match command {
                Command::Write | Command::WriteZeroes => Errno::NoSpace,
                _ => Errno::Invalid,
            };
            return Err(Refusal(errno, "beyond the end of the export"));
        }
        let with_payload = matches!(command, Command::Read | Command::Write);
        if with_payload && request.bytes > self.attachment.maximum_block {
            return Err(Refusal(Errno::Invalid, "longer than the largest block"));
        }
        Ok(())
    }

    // ---------------------------------------------------------------------------------------- to the engine

    fn submit(&mut self, op: RequestOp, request: &Request, link: &mut dyn Link) -> Step {
        let with_payload = matches!(op, RequestOp::Read | RequestOp::Write);
        let buf = with_payload.then(|| link.buffer(request.bytes));
        if buf == Some(None) {
            return Step::Stop(0, Then::Memory);
        }
        let buf = buf.flatten();
        let tag = self.admit(Pending {
            cookie: request.cookie,
            offset: request.offset,
            bytes: request.bytes,
            buf,
            read: op == RequestOp::Read,
        });
        let ask = Ask {
            tag: tag as u64,
            export: self.attachment.export,
            op,
            offset: request.offset,
            bytes: u64::from(request.bytes),
            buf,
            fua: request.flags & command_flags::FUA != 0,
        };
        if let (RequestOp::Write, Some(buf)) = (op, buf) {
            self.filling = Some(ask);
            return Step::Stop(REQUEST_BYTES, Then::Payload(buf));
        }
        link.submit(ask);
        Step::Went(REQUEST_BYTES)
    }

    fn admit(&mut self, pending: Pending) -> usize {
        if let Some(tag) = self.free.pop() {
            self.pending[tag] = Some(pending);
            return tag;
        }
        self.pending.push(Some(pending));
        self.pending.len() - 1
    }

    pub(super) fn filled(&mut self, link: &mut dyn Link) {
        if let Some(ask) = self.filling.take() {
            link.submit(ask);
        }
    }

    // ---------------------------------------------------------------------------------------------- replies

    pub(super) fn replied(
        &mut self,
        tag: u64,
        result: Result<(), RequestError>,
        link: &mut dyn Link,
    ) {
        let tag = usize::try_from(tag).unwrap_or(usize::MAX);
        let Some(pending) = self.pending.get_mut(tag).and_then(Option::take) else {
            return;
        };
        self.free.push(tag);
        match (result, pending.buf) {
            (Ok(()), Some(buf)) if pending.read => self.send_data(&pending, buf, link),
            (result, buf) => {
                if let Some(buf) = buf {
                    link.release(buf);
                }
                match result {
                    Ok(()) => send_simple(pending.cookie, Ok(()), link),
                    Err(_) if self.is_left(result, link) => {}
                    Err(error) => self.send_error(&pending, error, link),
                }
            }
        }
    }

    fn send_data(&mut self, pending: &Pending, buf: BufRef, link: &mut dyn Link) {
        if self.attachment.structured {
            let (cookie, offset) = (pending.cookie, pending.offset);
            link.send(&encode_data_chunk(cookie, offset, pending.bytes));
        } else {
            send_simple(pending.cookie, Ok(()), link);
        }
        link.send_buffer(buf);
    }

    fn send_error(&mut self, pending: &Pending, error: RequestError, link: &mut dyn Link) {
        let errno = Errno::from(error);
        if !self.attachment.structured {
            return send_simple(pending.cookie, Err(errno), link);
        }
        let last = pending.offset + u64::from(pending.bytes).saturating_sub(1);
        let at = match error {
            RequestError::Lost { lba, .. } => {
                Some(lba.saturating_mul(SECTOR_BYTES).clamp(pending.offset, last))
            }
            _ => None,
        };
        self.out.clear();
        encode_error_chunk(pending.cookie, errno, &error.to_string(), at, &mut self.out);
        link.send(&self.out);
    }

    fn refuse(&mut self, request: &Request, refusal: &Refusal, link: &mut dyn Link) {
        let Refusal(errno, why) = *refusal;
        if !self.attachment.structured {
            return send_simple(request.cookie, Err(errno), link);
        }
        self.out.clear();
        encode_error_chunk(request.cookie, errno, why, None, &mut self.out);
        link.send(&self.out);
    }

    fn block_status(&mut self, request: &Request, link: &mut dyn Link) {
        let Attachment {
            export, contexts, ..
        } = &self.attachment;
        let bytes = request.bytes.min(MAPPED_BYTES_MAX);
        let map = link.map(*export, request.offset, u64::from(bytes), EXTENTS_MAX);
        self.out.clear();
        for (i, context) in contexts.iter().enumerate() {
            let mut answer = descriptors(*context, &map, request.offset, bytes);
            if answer.is_empty() {
                let refusal = Refusal(Errno::Shutdown, "the array is not serving");
                return self.refuse(request, &refusal, link);
            }
            if request.flags & command_flags::REQ_ONE != 0 {
                answer.truncate(1);
            }
            let last = i + 1 == contexts.len();
            let flags = if last { CHUNK_DONE } else { 0 };
            encode_status_chunk(request.cookie, flags, context.id(), &answer, &mut self.out);
        }
        link.send(&self.out);
    }
}

fn send_simple(cookie: u64, result: Result<(), Errno>, link: &mut dyn Link) {
    link.send(&SimpleReply::new(cookie, result).encode());
}

fn writes(command: Command) -> bool {
    use Command::{Trim, Write, WriteZeroes};
    matches!(command, Write | Trim | WriteZeroes)
}

/// What a command means once it may be done.
fn work(command: Command, flags: u16) -> Work {
    match command {
        Command::Read => Work::Engine(RequestOp::Read),
        Command::Write => Work::Engine(RequestOp::Write),
        Command::Flush => Work::Engine(RequestOp::Flush),
        Command::Trim => Work::Engine(RequestOp::Trim),
        Command::WriteZeroes => Work::Engine(RequestOp::WriteZeroes {
            fast: flags & command_flags::FAST_ZERO != 0,
        }),
        Command::Cache => Work::Nothing,
        Command::BlockStatus => Work::BlockStatus,
        Command::Disconnect => Work::Disconnect,
    }
}
