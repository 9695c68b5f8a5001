//! A drive model as an NBD export, in real time: the data is real, and the model decides its timing.
//!
//! | thread | does |
//! |---|---|
//! | listener | accepts, up to [`CONNECTIONS_MAX`] |
//! | one reader a connection | handshake, requests, payloads of writes |
//! | one writer a connection | replies |
//! | spindle | sleeps until the model ends a command, moves its data, passes the reply on |
//!
//! Simple replies only. A write with FUA takes the time of the medium, and is made durable in the file. TRIM
//! is offered only where it has an effect: whole extents of data in memory read as zeros afterwards, while a
//! file keeps its contents.
//!
//! A reply is late by the delay of the kernel's timers, some 50 to 100 µs. This is little compared with a
//! seek, and much compared with a cache hit.

use super::clock::{Asked, Clockwork};
use restripe_io::nbd_wire::message::{REQUEST_BYTES, Request, SimpleReply};
use restripe_io::nbd_wire::option::{
    EXPORT_NAME_PADDING_BYTES, InfoQuery, OPTION_BYTES, OptionHeader, code, encode_greeting,
    encode_reply, info, reply,
};
use restripe_io::nbd_wire::{
    Command as Verb, Errno, PAYLOAD_BYTES_MAX, command_flags, handshake_flags, transmission_flags,
};
use restripe_sim::disk::mechanical::{Access, Command};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub const CONNECTIONS_MAX: usize = 64;
/// Requests of one connection that may be unanswered; the next is not read before one is.
const IN_FLIGHT_MAX: usize = 128;
/// Memory of payloads that are under way, over all connections.
const PAYLOADS_BYTES_MAX: usize = 256 << 20;
const OPTION_DATA_MAX: u32 = 8192;
const OPTIONS_MAX: usize = 64;
const SECTOR: u64 = 512;
const EXTENT: u64 = 64 * 1024;

/// Both ways of a connection.
pub trait Stream: Read + Write + Send + Sized + 'static {
    fn twin(&self) -> io::Result<Self>;
    /// Ends both directions, so that whoever reads wakes up.
    fn end(&self);
}

impl Stream for std::net::TcpStream {
    fn twin(&self) -> io::Result<Self> {
        self.try_clone()
    }

    fn end(&self) {
        // A connection that has ended already is what is wanted.
        drop(self.shutdown(std::net::Shutdown::Both));
    }
}

impl Stream for std::os::unix::net::UnixStream {
    fn twin(&self) -> io::Result<Self> {
        self.try_clone()
    }

    fn end(&self) {
        drop(self.shutdown(std::net::Shutdown::Both));
    }
}

/// Where the data are.
pub enum Backing {
    File(File),
    /// What was never written is not there, and reads as zeros.
    Memory(Mutex<BTreeMap<u64, Box<[u8]>>>),
}

impl Backing {
    pub fn memory() -> Backing {
        Backing::Memory(Mutex::new(BTreeMap::new()))
    }

    fn read(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        match self {
            Backing::File(file) => file.read_exact_at(data, offset),
            Backing::Memory(extents) => {
                let extents = held(extents);
                for (extent, within, range) in pieces(offset, data.len()) {
                    let piece = &mut data[range];
                    match extents.get(&extent) {
                        Some(bytes) => piece.copy_from_slice(&bytes[within..within + piece.len()]),
                        None => piece.fill(0),
                    }
                }
                Ok(())
            }
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match self {
            Backing::File(file) => file.write_all_at(data, offset),
            Backing::Memory(extents) => {
                let mut extents = held(extents);
                for (extent, within, range) in pieces(offset, data.len()) {
                    let bytes = extents
                        .entry(extent)
                        .or_insert_with(|| vec![0; EXTENT as usize].into());
                    bytes[within..within + range.len()].copy_from_slice(&data[range]);
                }
                Ok(())
            }
        }
    }

    fn flush(&self) -> io::Result<()> {
        match self {
            Backing::File(file) => file.sync_data(),
            Backing::Memory(_) => Ok(()),
        }
    }

    /// What a trimmed range holds is nobody's business: memory gives up the extents within it.
    fn trim(&self, offset: u64, bytes: u64) {
        if let Backing::Memory(extents) = self {
            let whole = offset.div_ceil(EXTENT)..(offset + bytes) / EXTENT;
            let mut extents = held(extents);
            let gone: Vec<u64> = match whole.is_empty() {
                true => Vec::new(),
                false => extents.range(whole).map(|(extent, _)| *extent).collect(),
            };
            for extent in gone {
                extents.remove(&extent);
            }
        }
    }
}

/// The pieces of a range by extent: the extent, where the piece begins in it, and which bytes of the range it is.
fn pieces(offset: u64, bytes: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % EXTENT) as usize;
        let length = (bytes - done).min(EXTENT as usize - within);
        let range = done..done + length;
        done += length;
        (length > 0).then_some((at / EXTENT, within, range))
    })
}

/// A panic elsewhere does not make what is behind the lock unusable.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request under way.
struct Job {
    cookie: u64,
    verb: Verb,
    offset: u64,
    /// Of a range that is trimmed; otherwise `data` is as long as what is asked for.
    bytes: u32,
    durable: bool,
    data: Vec<u8>,
    answers: SyncSender<Answer>,
}

type Answer = (SimpleReply, Vec<u8>);

struct State {
    clockwork: Clockwork,
    jobs: BTreeMap<u64, Job>,
    next: u64,
    payload_bytes: usize,
    stopping: bool,
}

struct Shared {
    size: u64,
    /// What the handshake says that the export can.
    flags: u16,
    backing: Backing,
    start: Instant,
    state: Mutex<State>,
    /// Something for the spindle.
    moved: Condvar,
    /// Memory of payloads became free.
    freed: Condvar,
    connections: AtomicUsize,
}

/// A drive that is served.
#[derive(Clone)]
pub struct Export(Arc<Shared>);

impl Export {
    /// `size` bytes, a whole number of sectors; starts the spindle.
    pub fn start(clockwork: Clockwork, backing: Backing, size: u64) -> Export {
        let state = State {
            clockwork,
            jobs: BTreeMap::new(),
            next: 0,
            payload_bytes: 0,
            stopping: false,
        };
        let shared = Arc::new(Shared {
            size: size / SECTOR * SECTOR,
            flags: flags(&state.clockwork),
            backing,
            start: Instant::now(),
            state: Mutex::new(state),
            moved: Condvar::new(),
            freed: Condvar::new(),
            connections: AtomicUsize::new(0),
        });
        let spindle = Arc::clone(&shared);
        std::thread::spawn(move || spindle.spin());
        Export(shared)
    }

    /// Serves a connection on threads of its own; refuses it when there are too many.
    pub fn attach<S: Stream>(&self, stream: S) {
        if self.0.connections.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
            self.0.connections.fetch_sub(1, Ordering::SeqCst);
            return stream.end();
        }
        let shared = Arc::clone(&self.0);
        std::thread::spawn(move || {
            // However it ends, only this connection does.
            drop(shared.converse(&stream));
            stream.end();
            shared.connections.fetch_sub(1, Ordering::SeqCst);
        });
    }

    /// Ends the spindle, and makes what has been written durable.
    pub fn stop(&self) -> io::Result<()> {
        held(&self.0.state).stopping = true;
        self.0.moved.notify_all();
        self.0.backing.flush()
    }
}

impl Shared {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    // ------------------------------------------------------------------------------------------------- spindle

    fn spin(&self) {
        let mut state = held(&self.state);
        while !state.stopping {
            let now = self.now();
            if let Some(id) = state.clockwork.ended(now) {
                if let Some(job) = state.jobs.remove(&id) {
                    drop(state);
                    self.finish(job);
                    state = held(&self.state);
                }
                continue;
            }
            let next = state.clockwork.next_event();
            let wait = next.map_or(1_000_000_000, |at| at.saturating_sub(now).max(1));
            let woken = self.moved.wait_timeout(state, Duration::from_nanos(wait));
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Moves the data of a command that has ended, and answers.
    fn finish(&self, mut job: Job) {
        let held_bytes = job.data.len();
        let moved = match job.verb {
            Verb::Read => self.backing.read(job.offset, &mut job.data),
            Verb::Write => self.write(&job),
            Verb::Trim => {
                self.backing.trim(job.offset, u64::from(job.bytes));
                Ok(())
            }
            _ => self.backing.flush(),
        };
        let result = moved.map_err(|_| Errno::Io);
        let data = match job.verb == Verb::Read && result.is_ok() {
            true => job.data,
            false => Vec::new(),
        };
        let reply = SimpleReply::new(job.cookie, result);
        // A connection that is gone wants no answer. Its channel has room for all that it may have in flight.
        drop(job.answers.try_send((reply, data)));
        held(&self.state).payload_bytes -= held_bytes;
        self.freed.notify_all();
    }

    fn write(&self, job: &Job) -> io::Result<()> {
        self.backing.write(job.offset, &job.data)?;
        match job.durable {
            true => self.backing.flush(),
            false => Ok(()),
        }
    }

    // --------------------------------------------------------------------------------------------- connections

    fn converse<S: Stream>(&self, stream: &S) -> io::Result<()> {
        let mut reader = stream.twin()?;
        if !self.shake_hands(&mut reader)? {
            return Ok(());
        }
        let writer = stream.twin()?;
        let in_flight = Arc::new((Mutex::new(0usize), Condvar::new()));
        let (answers, answered) = sync_channel(IN_FLIGHT_MAX);
        let counted = Arc::clone(&in_flight);
        let sender = std::thread::spawn(move || send_answers(writer, &answered, &counted));
        let result = self.take_requests(&mut reader, &answers, &in_flight);
        drop(answers);
        // The sender ends when the last job of this connection has dropped its end of the channel.
        drop(sender.join());
        result
    }

    fn take_requests<S: Stream>(
        &self,
        reader: &mut S,
        answers: &SyncSender<Answer>,
        in_flight: &(Mutex<usize>, Condvar),
    ) -> io::Result<()> {
        loop {
            let mut header = [0; REQUEST_BYTES];
            reader.read_exact(&mut header)?;
            let request = Request::decode(&header).ok_or(io::ErrorKind::InvalidData)?;
            let verb = Verb::of_code(request.command);
            if verb == Some(Verb::Disconnect) {
                return Ok(());
            }
            let count = held(&in_flight.0);
            let full = |count: &mut usize| *count >= IN_FLIGHT_MAX;
            let waited = in_flight.1.wait_while(count, full);
            *waited.unwrap_or_else(PoisonError::into_inner) += 1;
            self.take_request(reader, answers, request, verb)?;
        }
    }

    fn take_request<S: Stream>(
        &self,
        reader: &mut S,
        answers: &SyncSender<Answer>,
        request: Request,
        verb: Option<Verb>,
    ) -> io::Result<()> {
        let writes = verb == Some(Verb::Write);
        if writes && request.bytes > PAYLOAD_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let judged = self.judge(request, verb);
        let bytes = match judged {
            Ok(Asked::Transfer(_)) => request.bytes as usize,
            Ok(Asked::Flush | Asked::Trim) => 0,
            Err(errno) => {
                // What is to be written comes nevertheless.
                let unread = if writes { request.bytes } else { 0 };
                io::copy(&mut reader.take(u64::from(unread)), &mut io::sink())?;
                let errno = if writes { Errno::Invalid } else { errno };
                return answer(answers, SimpleReply::new(request.cookie, Err(errno)));
            }
        };
        self.reserve(bytes);
        let mut data = vec![0; bytes];
        if writes && let Err(error) = reader.read_exact(&mut data) {
            held(&self.state).payload_bytes -= bytes;
            self.freed.notify_all();
            return Err(error);
        }
        let (Ok(asked), Some(verb)) = (judged, verb) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let job = Job {
            cookie: request.cookie,
            verb,
            offset: request.offset,
            bytes: request.bytes,
            durable: request.flags & command_flags::FUA != 0,
            data,
            answers: answers.clone(),
        };
        self.submit(asked, job);
        Ok(())
    }

    /// What a request means, if it means anything.
    fn judge(&self, request: Request, verb: Option<Verb>) -> Result<Asked, Errno> {
        let access = match verb {
            Some(Verb::Read) => Access::Read,
            Some(Verb::Write) => Access::Write,
            Some(Verb::Flush) => return Ok(Asked::Flush),
            Some(Verb::Trim) if self.flags & transmission_flags::SEND_TRIM != 0 => {
                return self.judge_trim(request);
            }
            _ => return Err(Errno::Invalid),
        };
        let aligned = (request.offset | u64::from(request.bytes)).is_multiple_of(SECTOR);
        if !aligned || request.bytes > PAYLOAD_BYTES_MAX || !self.within(request) {
            return Err(Errno::Invalid);
        }
        Ok(Asked::Transfer(Command {
            access,
            block: request.offset / SECTOR,
            blocks: request.bytes / SECTOR as u32,
            durable: request.flags & command_flags::FUA != 0,
        }))
    }

    /// A trim may be longer than any payload, and is none.
    fn judge_trim(&self, request: Request) -> Result<Asked, Errno> {
        match self.within(request) {
            true => Ok(Asked::Trim),
            false => Err(Errno::Invalid),
        }
    }

    /// Whether a request is of bytes that the drive has, with no flag but that of durability.
    fn within(&self, request: Request) -> bool {
        let end = request.offset.checked_add(u64::from(request.bytes));
        let within = end.is_some_and(|end| end <= self.size) && request.bytes > 0;
        within && request.flags & !command_flags::FUA == 0
    }

    /// Waits until there is memory for a payload.
    fn reserve(&self, bytes: usize) {
        let state = held(&self.state);
        let waited = self.freed.wait_while(state, |state| {
            state.payload_bytes > 0 && state.payload_bytes + bytes > PAYLOADS_BYTES_MAX
        });
        waited.unwrap_or_else(PoisonError::into_inner).payload_bytes += bytes;
    }

    fn submit(&self, asked: Asked, job: Job) {
        let mut state = held(&self.state);
        let id = state.next;
        state.next += 1;
        state.jobs.insert(id, job);
        // Read under the lock, so that the model's time never runs backwards.
        let now = self.now();
        state.clockwork.submit(now, id, asked);
        self.moved.notify_all();
    }

    // ----------------------------------------------------------------------------------------------- handshake

    /// Whether requests follow.
    fn shake_hands<S: Stream>(&self, stream: &mut S) -> io::Result<bool> {
        stream.write_all(&encode_greeting())?;
        let mut flags = [0; 4];
        stream.read_exact(&mut flags)?;
        let padded = u32::from_be_bytes(flags) & handshake_flags::CLIENT_NO_ZEROES == 0;
        for _ in 0..OPTIONS_MAX {
            let mut header = [0; OPTION_BYTES];
            stream.read_exact(&mut header)?;
            let header = OptionHeader::decode(&header).ok_or(io::ErrorKind::InvalidData)?;
            if header.bytes > OPTION_DATA_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut data = vec![0; header.bytes as usize];
            stream.read_exact(&mut data)?;
            let mut out = Vec::new();
            let attached = self.answer_option(header.code, &data, padded, &mut out);
            stream.write_all(&out)?;
            if header.code == code::ABORT {
                return Ok(false);
            }
            if attached {
                return Ok(true);
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    /// Whether the option begins the transmission. Every name is this export's.
    fn answer_option(&self, option: u32, data: &[u8], padded: bool, out: &mut Vec<u8>) -> bool {
        let (size, flags) = (self.size.to_be_bytes(), self.flags.to_be_bytes());
        let mut encode = |kind, parts: &[&[u8]]| encode_reply(option, kind, parts, out);
        match option {
            code::EXPORT_NAME => {
                out.extend([&size[..], &flags].concat());
                let padding = if padded { EXPORT_NAME_PADDING_BYTES } else { 0 };
                out.resize(out.len() + padding, 0);
                return true;
            }
            code::GO | code::INFO if InfoQuery::decode(data).is_some() => {
                encode(reply::INFO, &[&info::EXPORT.to_be_bytes(), &size, &flags]);
                let (item, least) = (
                    info::BLOCK_SIZE.to_be_bytes(),
                    (SECTOR as u32).to_be_bytes(),
                );
                let (usual, most) = (4096u32.to_be_bytes(), PAYLOAD_BYTES_MAX.to_be_bytes());
                encode(reply::INFO, &[&item, &least, &usual, &most]);
                encode(reply::ACK, &[]);
                return option == code::GO;
            }
            code::GO | code::INFO => encode(reply::ERR_INVALID, &[]),
            code::LIST => {
                encode(reply::SERVER, &[&0u32.to_be_bytes()]);
                encode(reply::ACK, &[]);
            }
            code::ABORT => encode(reply::ACK, &[]),
            _ => encode(reply::ERR_UNSUP, &[]),
        }
        false
    }
}

fn flags(clockwork: &Clockwork) -> u16 {
    let always = transmission_flags::HAS_FLAGS
        | transmission_flags::SEND_FLUSH
        | transmission_flags::SEND_FUA
        | transmission_flags::CAN_MULTI_CONN;
    let turns = match clockwork.rotates() {
        true => transmission_flags::ROTATIONAL,
        false => 0,
    };
    let trims = match clockwork.trims() {
        true => transmission_flags::SEND_TRIM,
        false => 0,
    };
    always | turns | trims
}

fn answer(answers: &SyncSender<Answer>, reply: SimpleReply) -> io::Result<()> {
    answers
        .send((reply, Vec::new()))
        .map_err(|_| io::ErrorKind::BrokenPipe.into())
}

fn send_answers<S: Stream>(
    writer: S,
    answered: &Receiver<Answer>,
    in_flight: &(Mutex<usize>, Condvar),
) {
    let mut writer = writer;
    let mut broken = false;
    while let Ok((reply, data)) = answered.recv() {
        // After the peer is gone, what is in flight is still taken off the channel.
        broken = broken
            || writer
                .write_all(&reply.encode())
                .and_then(|()| writer.write_all(&data))
                .is_err();
        if broken {
            writer.end();
        }
        *held(&in_flight.0) -= 1;
        in_flight.1.notify_all();
    }
}
