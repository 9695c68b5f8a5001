//! TLS on the measuring client's side, and certificates for a bench.

use restripe_io::memory::{Memory, Piece};
use restripe_io::tls::{CIPHERTEXT_BYTES, Channel, ClientSide, Event, Going};
use std::error::Error;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// A connection in clear text, or through TLS.
pub struct Wire {
    stream: UnixStream,
    tls: Option<Channel>,
    came: Vec<u8>,
    /// Opened and not yet taken, from `at` on.
    plain: Vec<u8>,
    at: usize,
}

impl Wire {
    pub fn new(stream: UnixStream) -> Wire {
        Wire {
            stream,
            tls: None,
            came: vec![0; CIPHERTEXT_BYTES],
            plain: Vec::new(),
            at: 0,
        }
    }

    /// Goes through the handshake of TLS.
    pub fn secure(&mut self, side: &ClientSide) -> Result<(), Box<dyn Error>> {
        self.tls = Some(side.begin("localhost")?);
        let mut secured = self.open()?;
        while !secured {
            self.receive()?;
            secured = self.open()?;
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        let piece = tls.receive(CIPHERTEXT_BYTES);
        let piece = piece.ok_or_else(|| io::Error::other("a record that is too long"))?;
        let count = self.stream.read(&mut self.came[..piece.bytes as usize])?;
        let came = &self.came[..count];
        piece.memory.fill(piece.offset as usize, came);
        match count {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => {
                tls.received(count);
                Ok(())
            }
        }
    }

    /// Opens what came, and sends what TLS has to say to it. Whether the handshake ended now.
    fn open(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else {
            return Ok(false);
        };
        let (plain, mut secured) = (&mut self.plain, false);
        let going = tls.open(&mut |event| match event {
            Event::Secured(_) => secured = true,
            Event::Plain(bytes) => plain.extend_from_slice(bytes),
        });
        if let Some(piece) = tls.launch() {
            self.stream.write_all(piece.slice())?;
            tls.sent();
        }
        match going {
            Going::Failed(why) => Err(io::Error::other(why)),
            Going::On | Going::Closed => Ok(secured),
        }
    }
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.tls.is_none() {
            return self.stream.read(into);
        }
        if self.at == self.plain.len() {
            (self.at, _) = (0, self.plain.clear());
            while self.plain.is_empty() {
                self.receive()?;
                self.open()?;
            }
        }
        let count = into.len().min(self.plain.len() - self.at);
        into[..count].copy_from_slice(&self.plain[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return self.stream.write(bytes);
        };
        let bytes = &bytes[..bytes.len().min(CIPHERTEXT_BYTES)];
        if bytes.is_empty() {
            return Ok(0);
        }
        let memory = Memory::new(bytes.len());
        memory.fill(0, bytes);
        let sealed = tls.seal(&[Piece::new(memory, 0, bytes.len() as u32)]);
        if let Some(piece) = tls.launch() {
            self.stream.write_all(piece.slice())?;
            tls.sent();
        }
        Ok(sealed as usize)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An authority and a server's certificate, made in a folder.
const CERTIFICATES: &str = "
set -e
new='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
openssl req -x509 $new -days 2 -subj /CN=authority -keyout ca-key.pem -out ca-cert.pem
openssl req $new -subj /CN=server -keyout server-key.pem -out server.csr
echo subjectAltName=DNS:localhost > server.ext
openssl x509 -req -days 2 -in server.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -extfile server.ext \\
  -out server-cert.pem
";

/// Whether there are certificates now.
pub fn make_certificates(folder: &Path) -> bool {
    let made = Command::new("sh")
        .args(["-c", CERTIFICATES])
        .current_dir(folder)
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .status();
    made.is_ok_and(|status| status.success())
}
