//! NBD servers with volatile caches, as members: they outlive daemons, and a power cut takes what no flush covered. Sectors
//! may be unreadable until they are written.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::ops::Range;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Fixed newstyle, and no zeroes behind an export.
const HANDSHAKE_FLAGS: u16 = 3;
/// Flags are there, FLUSH, FUA, WRITE_ZEROES.
const EXPORT_FLAGS: u16 = 1 | 4 | 8 | 64;
const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const INFO: u32 = 6;
const GO: u32 = 7;
const ACK: u32 = 1;
const INFO_REPLY: u32 = 3;
const UNSUPPORTED: u32 = (1 << 31) + 1;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const WRITE_ZEROES: u16 = 6;
const FUA: u16 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;
const SECTOR: usize = 512;

/// What a server holds.
struct Medium {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// Ranges that only the cache has.
    cached: Vec<(usize, usize)>,
    unreadable: BTreeSet<usize>,
    connections: Vec<UnixStream>,
}

fn sectors(from: usize, bytes: usize) -> Range<usize> {
    from / SECTOR..(from + bytes).div_ceil(SECTOR)
}

impl Medium {
    fn write(&mut self, from: usize, bytes: &[u8], durable: bool) {
        let end = from + bytes.len();
        self.live[from..end].copy_from_slice(bytes);
        for sector in sectors(from, bytes.len()) {
            self.unreadable.remove(&sector);
        }
        match durable {
            true => self.durable[from..end].copy_from_slice(bytes),
            false => self.cached.push((from, end)),
        }
    }

    fn is_readable(&self, from: usize, bytes: usize) -> bool {
        self.unreadable.range(sectors(from, bytes)).next().is_none()
    }

    fn flush(&mut self) {
        for (from, end) in self.cached.drain(..) {
            self.durable[from..end].copy_from_slice(&self.live[from..end]);
        }
    }

    /// Power goes and comes: connections and the cache are lost.
    fn cut(&mut self) {
        for (from, end) in self.cached.drain(..) {
            self.live[from..end].copy_from_slice(&self.durable[from..end]);
        }
        for connection in self.connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// A server, listening until its test ends.
#[derive(Clone)]
pub struct Volatile {
    medium: Arc<Mutex<Medium>>,
    /// What a command takes for a member.
    pub uri: String,
}

impl Volatile {
    /// A server of this many bytes, all zeros.
    pub fn listen(socket: &str, bytes: usize) -> Volatile {
        let medium = Arc::new(Mutex::new(Medium {
            live: vec![0; bytes],
            durable: vec![0; bytes],
            cached: Vec::new(),
            unreadable: BTreeSet::new(),
            connections: Vec::new(),
        }));
        let server = Volatile {
            medium,
            uri: format!("nbd+unix:///?socket={socket}"),
        };
        let (listener, own) = (
            UnixListener::bind(socket).expect("a free path"),
            server.clone(),
        );
        thread::spawn(move || {
            for wire in listener.incoming().flatten() {
                let serving = own.clone();
                thread::spawn(move || serving.serve(wire));
            }
        });
        server
    }

    pub fn cut(&self) {
        self.medium().cut();
    }

    /// Whether something would be lost with the cache.
    pub fn holds_back(&self) -> bool {
        !self.medium().cached.is_empty()
    }

    /// Makes sectors unreadable until they are written.
    pub fn spoil(&self, from: usize, bytes: usize) {
        self.medium().unreadable.extend(sectors(from, bytes));
    }

    pub fn is_readable(&self, from: usize, bytes: usize) -> bool {
        self.medium().is_readable(from, bytes)
    }

    /// Where these bytes lie, at a multiple of their length.
    pub fn find(&self, bytes: &[u8]) -> Option<usize> {
        let medium = self.medium();
        let mut parts = medium.live.chunks(bytes.len());
        Some(parts.position(|part| part == bytes)? * bytes.len())
    }

    fn medium(&self) -> MutexGuard<'_, Medium> {
        self.medium.lock().expect("no thread panics with it")
    }

    fn serve(&self, mut wire: UnixStream) {
        let handle = wire.try_clone().expect("a second handle");
        self.medium().connections.push(handle);
        // A client that is gone, or is sent away, ends it.
        let _ = self.greet(&mut wire).and_then(|goes_on| match goes_on {
            true => self.answer(&mut wire),
            false => Ok(()),
        });
    }

    /// The handshake. False if no transmission follows.
    fn greet(&self, wire: &mut UnixStream) -> io::Result<bool> {
        wire.write_all(b"NBDMAGICIHAVEOPT")?;
        wire.write_all(&HANDSHAKE_FLAGS.to_be_bytes())?;
        number::<4>(wire)?;
        loop {
            if u64::from_be_bytes(number(wire)?) != OPTION_MAGIC {
                return Ok(false);
            }
            let option = u32::from_be_bytes(number(wire)?);
            let length = u32::from_be_bytes(number(wire)?);
            io::copy(&mut wire.take(length.into()), &mut io::sink())?;
            let size = self.medium().live.len() as u64;
            let export = [&size.to_be_bytes()[..], &EXPORT_FLAGS.to_be_bytes()].concat();
            match option {
                EXPORT_NAME => return wire.write_all(&export).map(|()| true),
                GO | INFO => {
                    let info = [&[0, 0][..], &export].concat();
                    tell(wire, option, INFO_REPLY, &info)?;
                    tell(wire, option, ACK, &[])?;
                    if option == GO {
                        return Ok(true);
                    }
                }
                ABORT => return tell(wire, option, ACK, &[]).map(|()| false),
                _ => tell(wire, option, UNSUPPORTED, &[])?,
            }
        }
    }

    /// Transmission, until the client leaves.
    fn answer(&self, wire: &mut UnixStream) -> io::Result<()> {
        loop {
            if u32::from_be_bytes(number(wire)?) != REQUEST_MAGIC {
                return Ok(());
            }
            let flags = u16::from_be_bytes(number(wire)?);
            let command = u16::from_be_bytes(number(wire)?);
            let cookie: [u8; 8] = number(wire)?;
            let from = u64::from_be_bytes(number(wire)?) as usize;
            let length = u32::from_be_bytes(number(wire)?) as usize;
            let mut payload = vec![0; if command == FLUSH { 0 } else { length }];
            if command == WRITE {
                wire.read_exact(&mut payload)?;
            }
            let mut error = 0;
            {
                let mut medium = self.medium();
                match command {
                    READ if !medium.is_readable(from, length) => error = EIO,
                    READ => payload.copy_from_slice(&medium.live[from..from + length]),
                    WRITE | WRITE_ZEROES => medium.write(from, &payload, flags & FUA != 0),
                    FLUSH => medium.flush(),
                    DISCONNECT => return Ok(()),
                    _ => error = EINVAL,
                }
            }
            wire.write_all(&SIMPLE_REPLY_MAGIC.to_be_bytes())?;
            wire.write_all(&u32::to_be_bytes(error))?;
            wire.write_all(&cookie)?;
            if command == READ && error == 0 {
                wire.write_all(&payload)?;
            }
        }
    }
}

fn number<const BYTES: usize>(wire: &mut UnixStream) -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    wire.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn tell(wire: &mut UnixStream, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    wire.write_all(&REPLY_MAGIC.to_be_bytes())?;
    for word in [option, kind, data.len() as u32] {
        wire.write_all(&word.to_be_bytes())?;
    }
    wire.write_all(data)
}
