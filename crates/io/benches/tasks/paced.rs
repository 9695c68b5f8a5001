//! A member with a speed of its own and nothing else of a disk: memory behind NBD, one transfer at a time, each taking
//! its length divided by the rate.

use crate::Outcome;
use restripe_io::nbd_wire::message::REQUEST_BYTES;
use restripe_io::nbd_wire::option::OPTION_BYTES;
use restripe_io::nbd_wire::{
    Command, MAGIC_GREETING, MAGIC_OPTION, MAGIC_SIMPLE_REPLY, handshake_flags, transmission_flags,
};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// So late may this thread be without the member becoming slower by it.
const LATENESS: Duration = Duration::from_millis(2);

/// Its thread ends with the process.
pub struct Paced;

struct Member {
    disk: Vec<u8>,
    rate: u64,
    /// When the last transfer is over.
    free_at: Instant,
}

impl Paced {
    /// Serves so many bytes at so many a second, to one client after the other.
    pub fn start(socket: &Path, bytes: u64, rate: u64) -> Outcome<Paced> {
        let listener = UnixListener::bind(socket)?;
        let mut member = Member {
            disk: vec![0; bytes as usize],
            rate,
            free_at: Instant::now(),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that hangs up is how a conversation ends.
                let _ = member.serve(stream);
            }
        });
        Ok(Paced)
    }
}

impl Member {
    fn serve(&mut self, mut stream: UnixStream) -> io::Result<()> {
        let flags = transmission_flags::HAS_FLAGS | transmission_flags::SEND_FLUSH;
        stream.write_all(&MAGIC_GREETING.to_be_bytes())?;
        stream.write_all(&MAGIC_OPTION.to_be_bytes())?;
        // Not the fixed handshake: all that a client can say is which export it wants.
        stream.write_all(&handshake_flags::NO_ZEROES.to_be_bytes())?;
        stream.read_exact(&mut [0; 4 + OPTION_BYTES])?;
        stream.write_all(&(self.disk.len() as u64).to_be_bytes())?;
        stream.write_all(&flags.to_be_bytes())?;
        let mut request = [0; REQUEST_BYTES];
        while stream.read_exact(&mut request).is_ok() {
            self.answer(&request, &mut stream)?;
        }
        Ok(())
    }

    fn answer(&mut self, request: &[u8; REQUEST_BYTES], stream: &mut UnixStream) -> io::Result<()> {
        let command = Command::of_code(u16::from_be_bytes([request[6], request[7]]));
        let at = u64::from_be_bytes(request[16..24].try_into().expect("eight bytes")) as usize;
        let bytes = u32::from_be_bytes(request[24..].try_into().expect("four bytes")) as usize;
        if command == Some(Command::Disconnect) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if command == Some(Command::Write) {
            stream.read_exact(&mut self.disk[at..at + bytes])?;
        }
        self.take_time(bytes);
        stream.write_all(&MAGIC_SIMPLE_REPLY.to_be_bytes())?;
        stream.write_all(&[0; 4])?;
        stream.write_all(&request[8..16])?;
        if command == Some(Command::Read) {
            stream.write_all(&self.disk[at..at + bytes])?;
        }
        Ok(())
    }

    fn take_time(&mut self, bytes: usize) {
        let now = Instant::now();
        let time = Duration::from_nanos(bytes as u64 * 1_000_000_000 / self.rate);
        self.free_at = self.free_at.max(now - LATENESS) + time;
        std::thread::sleep(self.free_at.saturating_duration_since(now));
    }
}
