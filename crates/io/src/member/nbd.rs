//! Members that are exports of an NBD server: opened with blocking calls, then driven by the reactor.
//!
//! ```text
//! start(job)        the job's first request goes to the outbox
//! next_send/next_receive -> the backend -> completed -> the job's next request, or the job is done
//! ```
//!
//! A job is one device operation. It becomes several requests, one after the other, if the server's limits
//! require it, and a flush follows if the server cannot make a write durable by itself. A broken connection
//! ends every job with [`IoError::Gone`], and every later job too, because the writes of a broken server are
//! in an unknown state. A server that answers ESHUTDOWN has the same effect: it is about to end, and remains
//! only while its connections do.

pub(crate) mod agree;

use self::agree::{Agreed, CONNECT_PATIENCE, NotAgreed, agree, connect_tcp, patience};
use super::{OpenFailure, OpenOptions, RETRY_AFTER};
use crate::backend::{Stream, VECTORS_MAX};
use crate::front::listen::Wire;
use crate::front::outbox::Outbox;
use crate::front::secure_wire::{SecureWire, next_send, sent};
use crate::memory::{Memory, Piece, advance};
use crate::nbd_wire::client::{
    Client, ClientEvent, ClientRequest, ExportInfo, MESSAGE_BYTES_MAX, Replies,
};
use crate::nbd_wire::uri::{Endpoint, NbdUri, TlsTerms};
use crate::nbd_wire::{Command, Errno, command_flags};
use crate::tls::{Channel, ClientSide, Event, Going};
use restripe_array::Slab;
use restripe_array::meta::superblock::SUPER_A_AT;
use restripe_array::{DeviceIo, IoError, IoOp, MemberInfo, SECTOR_BYTES, Uuid};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;
/// Most bytes of one request without payload, so that a length fits the wire and a server is not held up for long.
const BARE_BYTES_MAX: u64 = 256 << 20;
const INBOX_BYTES: usize = 4 * MESSAGE_BYTES_MAX;
/// Received behind a payload: enough for many reply headers.
const BEHIND_PAYLOAD_BYTES: usize = 4096;
/// Zeros written at once to a server that cannot zero.
const ZERO_BYTES: usize = 1 << 20;

/// The flight of a question that no operation asks. Flights are counted from 0.
pub const QUESTION: u32 = u32::MAX;
/// As large as the largest block that a member may have.
const QUESTION_BYTES: u32 = 4096;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Data,
    /// Zeroing by writing.
    Zeros,
    /// The flush that makes it durable.
    Flush,
}

/// A device operation on its way.
struct Job {
    /// The host's name for it.
    flight: u32,
    op: IoOp,
    durable: bool,
    stage: Stage,
    at: u64,
    left: u64,
    /// Bytes that the request in flight covers.
    now: u32,
    /// Memory of what is left.
    pieces: Vec<Piece>,
}

/// A read's payload that is being received: where it goes.
struct Filling {
    pieces: Vec<Piece>,
    left: u64,
}

impl Filling {
    /// Copies what is due from the front of `bytes`; how much.
    fn pour(&mut self, bytes: &[u8]) -> usize {
        let here = self.left.min(bytes.len() as u64);
        let mut at = 0;
        for piece in cut(&self.pieces, 0, here as u32) {
            let now = &bytes[at..at + piece.bytes as usize];
            piece.memory.fill(piece.offset as usize, now);
            at += now.len();
        }
        self.left -= here;
        advance(&mut self.pieces, here);
        at
    }
}

pub struct NbdDevice {
    wire: Wire,
    /// What is sent and received goes through TLS.
    tls: Option<Box<SecureWire>>,
    client: Client,
    info: ExportInfo,
    beneath: Vec<Uuid>,
    jobs: Slab<Job>,
    outbox: Outbox,
    header: Vec<u8>,
    inbox: Memory,
    start: usize,
    end: usize,
    filling: Option<Filling>,
    receiving: bool,
    sending: bool,
    broken: bool,
    /// Something was received since it was last asked for.
    heard: bool,
    /// It was told to rest at some time: nothing is asked of it that nobody needs.
    rests: bool,
    /// Receives even while nothing is owed to it, and so notices at once when the server hangs up.
    watching: bool,
    zeros: Memory,
    done: Vec<(u32, Result<(), IoError>)>,
}

// -------------------------------------------------------------------------------------------------------- opening

/// Connects, and agrees on the export. One that somebody else has is waited for as a file is: a server, too, lets go of a
/// killed process's exports a moment after the process is gone.
pub fn open(uri: &NbdUri, options: OpenOptions) -> Result<(NbdDevice, MemberInfo), OpenFailure> {
    let begin = Instant::now();
    loop {
        match open_once(uri, options) {
            Err(OpenFailure::Held(_)) if begin.elapsed() < options.patience => {
                std::thread::sleep(RETRY_AFTER)
            }
            other => return other,
        }
    }
}

fn open_once(uri: &NbdUri, options: OpenOptions) -> Result<(NbdDevice, MemberInfo), OpenFailure> {
    // First, since certificates that cannot be used are no reason to bother a server.
    let tls = uri.tls.as_ref().map(|terms| channel(uri, terms));
    let tls = tls.transpose().map_err(OpenFailure::Tls)?;
    let socket = match &uri.endpoint {
        Endpoint::Unix(path) => UnixStream::connect(path).map(OwnedFd::from),
        Endpoint::Tcp { host, port } => connect_tcp(host, *port).map(OwnedFd::from),
    };
    converse(socket.map_err(OpenFailure::Io)?, &uri.export, tls, options)
}

/// Our end of TLS with the server of a URI.
fn channel(uri: &NbdUri, terms: &TlsTerms) -> Result<Channel, String> {
    let side = ClientSide::read(&terms.certificates, terms.verify_peer);
    let side = side.map_err(|error| error.to_string())?;
    side.begin(match (&terms.hostname, &uri.endpoint) {
        (Some(name), _) => name,
        (None, Endpoint::Tcp { host, .. }) => host,
        (None, Endpoint::Unix(_)) => "localhost",
    })
}

/// Goes through the handshake with a server that may stall, and makes a device of what follows.
fn converse(
    socket: OwnedFd,
    export: &str,
    tls: Option<Channel>,
    options: OpenOptions,
) -> Result<(NbdDevice, MemberInfo), OpenFailure> {
    // The calls that matter here do not care which family a stream socket is of.
    let stream = UnixStream::from(socket);
    let agreed = agree(
        &stream,
        export,
        Replies::Structured,
        tls,
        Instant::now() + CONNECT_PATIENCE,
    );
    let agreed = agreed.map_err(|why| match why {
        NotAgreed::Io(error) => OpenFailure::Io(error),
        NotAgreed::Tls(why) => OpenFailure::Tls(why),
        NotAgreed::Remote(why) => OpenFailure::Remote(why),
        NotAgreed::Held(why) => OpenFailure::Held(why),
    })?;
    patience(&stream, None).map_err(OpenFailure::Io)?;
    finish(stream.into(), agreed, options)
}

fn finish(
    socket: OwnedFd,
    agreed: Agreed,
    options: OpenOptions,
) -> Result<(NbdDevice, MemberInfo), OpenFailure> {
    let info = *agreed
        .client
        .info()
        .ok_or_else(|| OpenFailure::Remote("sent no information about its export".to_owned()))?;
    if info.read_only() && !options.read_only {
        return Err(OpenFailure::ReadOnly);
    }
    let logical_block = match info.block_minimum {
        0..=512 => 512,
        513..=4096 => 4096,
        more => return Err(OpenFailure::LogicalBlock(more)),
    };
    let member = MemberInfo {
        sectors: info.size_bytes / SECTOR_BYTES,
        logical_block,
        // The protocol leaves open what a trimmed range reads as.
        trim_zeroes: false,
        fast_zero: info.takes(Command::WriteZeroes) && info.zeroes_fast(),
        volatile: !info.takes(Command::Flush) && !info.forces_unit_access(),
    };
    let device = NbdDevice::new(Wire::socket(socket), agreed, info);
    Ok((device, member))
}

// --------------------------------------------------------------------------------------------------------- driving

impl NbdDevice {
    fn new(wire: Wire, agreed: Agreed, info: ExportInfo) -> NbdDevice {
        let Agreed { client, rest, tls } = agreed;
        let inbox = Memory::new(INBOX_BYTES);
        inbox.fill(0, &rest);
        NbdDevice {
            wire,
            tls,
            beneath: client.beneath().to_vec(),
            client,
            info,
            jobs: Slab::default(),
            outbox: Outbox::default(),
            header: Vec::new(),
            inbox,
            start: 0,
            end: rest.len(),
            filling: None,
            receiving: false,
            sending: false,
            broken: false,
            heard: false,
            rests: false,
            watching: true,
            zeros: Memory::new(ZERO_BYTES),
            done: Vec::new(),
        }
    }

    /// The arrays that lie beneath the export, as it says.
    pub fn beneath(&self) -> &[Uuid] {
        &self.beneath
    }

    pub fn broken(&self) -> bool {
        self.broken
    }

    /// Nothing of it is with the kernel.
    pub fn idle(&self) -> bool {
        !self.receiving && !self.sending
    }

    /// Whether to receive while nothing is in flight. Who hands the device on must not: the kernel would fill the inbox
    /// on behalf of a driver that is gone, and the next one would wait for ever.
    pub fn watch(&mut self, watching: bool) {
        self.watching = watching;
    }

    /// Ends the connection; what is in flight comes back.
    pub fn hang_up(&mut self) {
        self.give_up();
    }

    pub fn input(&self) -> Stream {
        self.wire.input
    }

    pub fn output(&self) -> Stream {
        self.wire.output
    }

    /// Whether something was received since the last call, or is owed.
    pub fn lives(&mut self) -> bool {
        let owed = self.jobs.iter().any(|(_, job)| job.flight != QUESTION);
        std::mem::take(&mut self.heard) || owed
    }

    pub fn rests(&self) -> bool {
        self.rests
    }

    /// Reads a page where a superblock lies, to no other end than an answer: it comes under [`QUESTION`].
    pub fn ask(&mut self) {
        if self.broken {
            return;
        }
        let page = Memory::new(QUESTION_BYTES as usize);
        let job = Job {
            flight: QUESTION,
            op: IoOp::Read,
            durable: false,
            stage: Stage::Data,
            at: SUPER_A_AT * SECTOR_BYTES,
            left: u64::from(QUESTION_BYTES).min(self.info.size_bytes),
            now: 0,
            pieces: vec![Piece::new(page, 0, QUESTION_BYTES)],
        };
        let index = self.jobs.insert(job);
        self.next_request(index);
    }

    /// Takes a device operation in; `pieces` is its memory.
    pub fn start(&mut self, flight: u32, io: &DeviceIo, pieces: Vec<Piece>) {
        self.rests |= io.op == IoOp::Standby;
        if self.broken {
            self.done.push((flight, Err(IoError::Gone)));
            return;
        }
        let (at, left) = (io.at * SECTOR_BYTES, io.sectors * SECTOR_BYTES);
        let stage = match io.op {
            IoOp::Flush => Stage::Flush,
            _ => Stage::Data,
        };
        let job = Job {
            flight,
            op: io.op,
            durable: io.durable,
            stage,
            at,
            left,
            now: 0,
            pieces,
        };
        let index = self.jobs.insert(job);
        self.next_request(index);
    }

    /// Operations that are done since the last call.
    pub fn take_done(&mut self, into: &mut Vec<(u32, Result<(), IoError>)>) {
        into.append(&mut self.done);
    }

    fn end_job(&mut self, index: u32, result: Result<(), IoError>) {
        if let Some(job) = self.jobs.remove(index) {
            self.done.push((job.flight, result));
        }
    }

    /// Makes the request for the next part of a job, or ends it.
    fn next_request(&mut self, index: u32) {
        let Some(job) = self.jobs.get_mut(index) else {
            return;
        };
        if job.left == 0 && job.stage != Stage::Flush {
            let flush = job.durable && job.op != IoOp::Read && !self.info.forces_unit_access();
            if !flush {
                return self.end_job(index, Ok(()));
            }
            job.stage = Stage::Flush;
        }
        let Some(command) = choose(job, &self.info) else {
            // Without a flush every change was made durable, or none can be, and the member is volatile.
            let outcome = match job.stage {
                Stage::Flush => Ok(()),
                _ => Err(IoError::Unsupported),
            };
            return self.end_job(index, outcome);
        };
        self.submit(index, command);
    }

    fn submit(&mut self, index: u32, command: Command) {
        let Some(job) = self.jobs.get_mut(index) else {
            return;
        };
        let payload = matches!(command, Command::Read | Command::Write);
        let most = match job.stage {
            Stage::Zeros => ZERO_BYTES as u64,
            _ if payload => {
                u64::from(self.info.payload_maximum)
                    / SECTOR_BYTES.max(u64::from(self.info.block_minimum))
                    * SECTOR_BYTES.max(u64::from(self.info.block_minimum))
            }
            _ => BARE_BYTES_MAX,
        };
        let (offset, bytes) = if command == Command::Flush {
            (0, 0)
        } else {
            (job.at, job.left.min(most) as u32)
        };
        job.now = bytes;
        // Without a flush there is no later chance: then every change is durable at once.
        let now = job.durable || !self.info.takes(Command::Flush);
        let fua = now
            && job.op != IoOp::Read
            && command != Command::Flush
            && self.info.forces_unit_access();
        let flags = if fua { command_flags::FUA } else { 0 };
        self.header.clear();
        let request = ClientRequest {
            tag: u64::from(index),
            command,
            offset,
            bytes,
            flags,
        };
        if let Err(error) = self.client.request(request, &mut self.header) {
            return self.end_job(index, Err(error));
        }
        self.outbox.push(&self.header);
        if command == Command::Write {
            let pieces = match job.stage {
                Stage::Zeros => vec![Piece::new(self.zeros.clone(), 0, bytes)],
                _ => cut(&job.pieces, 0, bytes),
            };
            pieces
                .into_iter()
                .for_each(|piece| self.outbox.push_piece(piece));
        }
    }

    // --------------------------------------------------------------------------------------------------- the wire

    pub fn next_send(&mut self) -> Option<Vec<Piece>> {
        if self.sending || self.broken {
            return None;
        }
        let pieces = next_send(self.tls.as_deref_mut(), &mut self.outbox);
        self.sending = pieces.is_some();
        pieces
    }

    /// Receives whenever something is owed to us, or always, if watching.
    pub fn next_receive(&mut self) -> Option<Vec<Piece>> {
        let wanted = self.watching || !self.jobs.is_empty();
        if self.receiving || self.broken || !wanted {
            return None;
        }
        if self.tls.is_some() {
            return self.next_sealed_receive();
        }
        let mut pieces = Vec::with_capacity(2);
        let mut room = INBOX_BYTES - self.end;
        if let Some(Filling { pieces: rest, .. }) = &self.filling {
            pieces.extend(rest.iter().take(VECTORS_MAX - 1).cloned());
            room = match rest.len() < VECTORS_MAX {
                true => room.min(BEHIND_PAYLOAD_BYTES),
                false => 0,
            };
        }
        if room > 0 {
            pieces.push(Piece::new(self.inbox.clone(), self.end as u32, room as u32));
        }
        self.receiving = true;
        Some(pieces)
    }

    /// Ciphertext, of no more plaintext than there is room for.
    fn next_sealed_receive(&mut self) -> Option<Vec<Piece>> {
        let due = self.filling.as_ref().map_or(0, |filling| filling.left);
        let room = INBOX_BYTES - (self.end - self.start);
        let capacity = usize::try_from(due)
            .unwrap_or(usize::MAX)
            .saturating_add(room);
        let piece = self.tls.as_mut()?.channel.receive(capacity);
        match piece {
            Some(_) => self.receiving = true,
            // Longer than any record.
            None => self.give_up(),
        }
        Some(vec![piece?])
    }

    /// A send is back: what to send next of the same batch.
    pub fn sent(&mut self, result: i32, pieces: Vec<Piece>) -> Option<Vec<Piece>> {
        self.sending = false;
        let again = matches!(-result, libc::EAGAIN | libc::EINTR);
        if self.broken || (result < 0 && !again) {
            self.give_up();
            return None;
        }
        let bytes = result.max(0) as u64;
        let (outbox, released) = (&mut self.outbox, &mut Vec::new());
        let more = sent(self.tls.as_deref_mut(), bytes, pieces, outbox, released);
        self.sending = more.is_some();
        more
    }

    /// A receive is back.
    pub fn received(&mut self, result: i32) {
        self.receiving = false;
        let again = matches!(-result, libc::EAGAIN | libc::EINTR);
        if self.broken || (result <= 0 && !again) {
            return self.give_up();
        }
        if again {
            return;
        }
        self.heard = true;
        if self.tls.is_some() {
            return self.open_sealed(result as usize);
        }
        let mut count = result as u64;
        if let Some(filling) = &mut self.filling {
            let filled = count.min(filling.left);
            filling.left -= filled;
            count -= filled;
            advance(&mut filling.pieces, filled);
        }
        self.end += count as usize;
        self.filled_if_whole();
        self.read_inbox();
    }

    fn open_sealed(&mut self, count: usize) {
        let Some(mut tls) = self.tls.take() else {
            return;
        };
        tls.channel.received(count);
        let going = tls.channel.open(&mut |event| {
            if let Event::Plain(bytes) = event {
                self.opened(bytes);
            }
        });
        self.tls = Some(tls);
        if going != Going::On {
            self.give_up();
        }
    }

    /// Takes bytes that came through TLS.
    fn opened(&mut self, mut bytes: &[u8]) {
        if let Some(filling) = &mut self.filling {
            let count = filling.pour(bytes);
            bytes = &bytes[count..];
            self.filled_if_whole();
        }
        if bytes.len() > INBOX_BYTES - self.end {
            let rest = self.end - self.start;
            self.inbox.fill(0, self.inbox.slice(self.start, rest));
            (self.start, self.end) = (0, rest);
        }
        if !self.broken {
            self.inbox.fill(self.end, bytes);
            self.end += bytes.len();
            self.read_inbox();
        }
    }

    fn filled_if_whole(&mut self) {
        if matches!(self.filling, Some(Filling { left: 0, .. })) {
            self.filling = None;
            self.client.filled();
        }
    }

    fn read_inbox(&mut self) {
        while self.filling.is_none() && !self.broken {
            let bytes = self.inbox.slice(self.start, self.end - self.start);
            let step = match self.client.received(bytes, &mut self.header) {
                Ok(step) => step,
                Err(_) => return self.give_up(),
            };
            self.start += step.consumed;
            match step.event {
                ClientEvent::More if step.consumed == 0 || self.start == self.end => break,
                ClientEvent::More | ClientEvent::Ready => {}
                ClientEvent::Secure => return self.give_up(),
                ClientEvent::Payload { tag, offset, bytes } => self.fill(tag as u32, offset, bytes),
                ClientEvent::Zeroes { tag, offset, bytes } => self.clear(tag as u32, offset, bytes),
                ClientEvent::Reply { tag, result } => self.answered(tag as u32, result),
            }
        }
        self.compact();
    }

    fn compact(&mut self) {
        let rest = self.end - self.start;
        if self.start > 0 && (rest == 0 || self.start > INBOX_BYTES / 2) {
            self.inbox.fill(0, self.inbox.slice(self.start, rest));
            (self.start, self.end) = (0, rest);
        }
    }

    /// Directs the next received bytes into a read's memory, beginning with what already came.
    fn fill(&mut self, index: u32, offset: u32, bytes: u32) {
        let Some(job) = self.jobs.get(index) else {
            return self.give_up();
        };
        let mut filling = Filling {
            pieces: cut(&job.pieces, offset, bytes),
            left: u64::from(bytes),
        };
        self.start += filling.pour(self.inbox.slice(self.start, self.end - self.start));
        self.filling = Some(filling);
        self.filled_if_whole();
    }

    fn clear(&mut self, index: u32, offset: u32, bytes: u32) {
        let Some(job) = self.jobs.get(index) else {
            return self.give_up();
        };
        for Piece {
            memory,
            offset,
            bytes,
        } in cut(&job.pieces, offset, bytes)
        {
            memory.clear(offset as usize, bytes as usize);
        }
    }

    fn answered(&mut self, index: u32, result: Result<(), Errno>) {
        let Some(job) = self.jobs.get_mut(index) else {
            return self.give_up();
        };
        match result {
            Err(Errno::NotSupported) if job.op == IoOp::Zero && job.stage == Stage::Data => {
                job.stage = Stage::Zeros;
                self.next_request(index);
            }
            Err(Errno::Shutdown) => self.give_up(),
            Err(errno) => self.end_job(index, Err(errno.io_error())),
            Ok(()) if job.stage == Stage::Flush => self.end_job(index, Ok(())),
            Ok(()) => {
                job.at += u64::from(job.now);
                job.left -= u64::from(job.now);
                advance(&mut job.pieces, u64::from(job.now));
                self.next_request(index);
            }
        }
    }

    /// The connection is of no more use: everything in flight has failed. Jobs end only when the kernel has given back
    /// the memory that it may still write or read, for their handles are used again then.
    fn give_up(&mut self) {
        if !self.broken {
            self.broken = true;
            self.wire.shut();
            self.filling = None;
        }
        if !self.idle() {
            return;
        }
        let jobs: Vec<u32> = self.jobs.iter().map(|(index, _)| index).collect();
        jobs.into_iter()
            .for_each(|index| self.end_job(index, Err(IoError::Gone)));
    }
}

/// The command for a job's next request; `None` when the server does not take it.
fn choose(job: &mut Job, info: &ExportInfo) -> Option<Command> {
    let command = match (job.stage, job.op) {
        (Stage::Flush, _) => Command::Flush,
        (Stage::Zeros, _) | (_, IoOp::Write) => Command::Write,
        (_, IoOp::Read) => Command::Read,
        (_, IoOp::Trim) => Command::Trim,
        (_, IoOp::Zero) if info.takes(Command::WriteZeroes) => Command::WriteZeroes,
        (_, IoOp::Zero) => {
            job.stage = Stage::Zeros;
            Command::Write
        }
        (_, IoOp::Flush) => Command::Flush,
        // A peer's disks are its own affair.
        (_, IoOp::Standby | IoOp::Wake) => return None,
    };
    info.takes(command).then_some(command)
}

/// The part of a list of pieces that starts `offset` bytes in.
fn cut(pieces: &[Piece], offset: u32, bytes: u32) -> Vec<Piece> {
    let (mut skip, mut left, mut part) = (offset, bytes, Vec::new());
    for piece in pieces {
        if left == 0 {
            break;
        }
        if skip >= piece.bytes {
            skip -= piece.bytes;
            continue;
        }
        let now = left.min(piece.bytes - skip);
        part.push(Piece::new(piece.memory.clone(), piece.offset + skip, now));
        skip = 0;
        left -= now;
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::{Device, OpenMember};
    use crate::nbd_wire::message::REQUEST_BYTES;
    use crate::nbd_wire::option::OPTION_BYTES;
    use crate::nbd_wire::{
        MAGIC_GREETING, MAGIC_OPTION, MAGIC_SIMPLE_REPLY, handshake_flags, transmission_flags,
    };
    use crate::plain::{Plain, bare_io};
    use std::io::{self, Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    const SIZE: usize = 1 << 20;

    #[test]
    fn a_server_that_stalls_in_the_handshake_is_given_up() {
        let (here, mut there) = UnixStream::pair().expect("a pair");
        let greeting = MAGIC_GREETING.to_be_bytes();
        there.write_all(&greeting).expect("room");
        let moment = Duration::from_millis(20);
        for deadline in [Instant::now() + moment, Instant::now()] {
            let failure = agree(&here, "", Replies::Structured, None, deadline)
                .err()
                .expect("half a greeting");
            let late = matches!(&failure, NotAgreed::Remote(what) if what.contains("in time"));
            assert!(late, "{failure:?}");
        }
    }

    /// A daemon that was killed while a link was cut must not have its last writes arrive when the next one works.
    #[test]
    fn nothing_is_sent_after_the_end() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback");
        let port = listener.local_addr().expect("bound").port();
        let mut stream = connect_tcp("127.0.0.1", port).expect("it listens");
        let (mut there, _) = listener.accept().expect("a client");
        stream.set_nonblocking(true).expect("a socket");
        let (mut sent, block) = (0, [7; 65536]);
        while let Ok(count) = stream.write(&block) {
            sent += count;
        }
        drop(stream);
        let mut came = Vec::new();
        let end = there.read_to_end(&mut came);
        let came = came.len();
        assert!(end.is_err() && came < sent, "{came} of {sent}");
    }

    /// The smallest server there is, on the other end of a socket pair: old handshake, simple replies, memory.
    fn serve(mut stream: UnixStream) -> io::Result<()> {
        let flags = transmission_flags::HAS_FLAGS | transmission_flags::SEND_FLUSH;
        let mut disk = vec![0; SIZE];
        stream.write_all(&MAGIC_GREETING.to_be_bytes())?;
        stream.write_all(&MAGIC_OPTION.to_be_bytes())?;
        stream.write_all(&handshake_flags::NO_ZEROES.to_be_bytes())?;
        // The client's flags and its wish for the export without a name.
        stream.read_exact(&mut [0; 4 + OPTION_BYTES])?;
        stream.write_all(&(SIZE as u64).to_be_bytes())?;
        stream.write_all(&flags.to_be_bytes())?;
        loop {
            let mut request = [0; REQUEST_BYTES];
            stream.read_exact(&mut request)?;
            let at = u64::from_be_bytes(request[16..24].try_into().expect("eight bytes")) as usize;
            let bytes = u32::from_be_bytes(request[24..].try_into().expect("four bytes")) as usize;
            let command = Command::of_code(u16::from_be_bytes([request[6], request[7]]));
            if command == Some(Command::Write) {
                stream.read_exact(&mut disk[at..at + bytes])?;
            }
            stream.write_all(&MAGIC_SIMPLE_REPLY.to_be_bytes())?;
            stream.write_all(&[0; 4])?;
            stream.write_all(&request[8..16])?;
            if command == Some(Command::Read) {
                stream.write_all(&disk[at..at + bytes])?;
            }
        }
    }

    fn connected() -> OpenMember {
        let (here, there) = UnixStream::pair().expect("a socket pair");
        // It ends when the client hangs up.
        std::thread::spawn(move || serve(there));
        let opened = converse(here.into(), "", None, OpenOptions::default());
        let (device, info) = opened.expect("the server answers");
        OpenMember {
            name: "remote".into(),
            info,
            device: Device::Nbd(Box::new(device)),
        }
    }

    fn device_of(member: &mut OpenMember) -> &mut NbdDevice {
        match &mut member.device {
            Device::Nbd(device) => device,
            _ => unreachable!("it is remote"),
        }
    }

    #[test]
    fn a_device_used_plainly_can_be_handed_on() {
        let bytes: Vec<u8> = (0..300 * 512).map(|i| (i / 512) as u8).collect();
        let mut member = connected();
        for round in 0..20 {
            let plain = Plain::of(member).expect("a driver");
            plain.write(round, &bytes).expect("room");
            plain.flush().expect("it flushes");
            member = plain.into_member();
            // Nobody would see what is in flight come back.
            assert!(device_of(&mut member).idle());
            let plain = Plain::of(member).expect("a driver");
            let mut back = vec![0; bytes.len()];
            plain.read(round, &mut back).expect("it reads");
            assert!(back == bytes, "round {round}");
            member = plain.into_member();
        }
    }

    #[test]
    fn a_read_given_up_keeps_its_memory_until_the_kernel_is_done_with_it() {
        let mut member = connected();
        let device = device_of(&mut member);
        let memory = Memory::new(4096);
        let io = bare_io(IoOp::Read, 0, 8);
        device.start(7, &io, vec![Piece::new(memory, 0, 4096)]);
        let sending = device.next_send().expect("a request");
        let _receiving = device.next_receive().expect("an answer is owed");
        let mut done = Vec::new();
        device.hang_up();
        device.take_done(&mut done);
        assert!(done.is_empty(), "both are still with the kernel");
        assert!(device.sent(-libc::EPIPE, sending).is_none());
        device.take_done(&mut done);
        assert!(done.is_empty(), "the receive may still write to it");
        device.received(0);
        device.take_done(&mut done);
        assert_eq!(done, [(7, Err(IoError::Gone))]);
        assert!(device.next_receive().is_none() && device.next_send().is_none());
    }

    #[test]
    fn a_cut_takes_the_middle_of_several_pieces() {
        let memory = Memory::new(100);
        let pieces = [0, 10, 20, 30].map(|at| Piece::new(memory.clone(), at, 10));
        let part = cut(&pieces, 15, 12);
        let spans = part.iter().map(|piece| (piece.offset, piece.bytes));
        assert!(spans.eq([(15, 5), (20, 7)]));
        assert!(cut(&pieces, 0, 0).is_empty());
    }
}
