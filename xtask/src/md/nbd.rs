//! As much of an NBD client as this needs: reads, writes and flushes, one at a time, over a Unix socket.

use std::io::{Error, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const HELLO: u64 = 0x4e42_444d_4147_4943;
const OPTION: u64 = 0x4948_4156_454f_5054;
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;
/// Fixed newstyle, and no padding behind the export's size.
const CLIENT_FLAGS: u32 = 3;
const OPTION_EXPORT_NAME: u32 = 1;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
/// Bytes of one request.
const PIECE: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Client {
    stream: UnixStream,
    /// Bytes of the export.
    pub size: u64,
}

impl Client {
    /// Connects to the server's default export.
    pub fn connect(socket: &Path) -> Result<Client> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut hello = [0; 18];
        stream.read_exact(&mut hello)?;
        if hello[..8] != HELLO.to_be_bytes() || hello[8..16] != OPTION.to_be_bytes() {
            return Err(Error::other("this is no NBD server"));
        }
        let mut ask = CLIENT_FLAGS.to_be_bytes().to_vec();
        ask.extend(OPTION.to_be_bytes());
        ask.extend(OPTION_EXPORT_NAME.to_be_bytes());
        ask.extend(0_u32.to_be_bytes());
        stream.write_all(&ask)?;
        let mut export = [0; 10];
        stream.read_exact(&mut export)?;
        let size = u64::from_be_bytes(export[..8].try_into().expect("eight bytes"));
        Ok(Client { stream, size })
    }

    pub fn read(&mut self, at: usize, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let mut from = at;
        for piece in bytes.chunks_mut(PIECE) {
            self.ask(READ, from, piece.len())?;
            self.reply()?;
            self.stream.read_exact(piece)?;
            from += piece.len();
        }
        Ok(bytes)
    }

    pub fn write(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        let mut to = at;
        for piece in bytes.chunks(PIECE) {
            self.ask(WRITE, to, piece.len())?;
            self.stream.write_all(piece)?;
            self.reply()?;
            to += piece.len();
        }
        Ok(())
    }

    pub fn flush(&mut self) -> Result<()> {
        self.ask(FLUSH, 0, 0)?;
        self.reply()
    }

    fn ask(&mut self, command: u16, at: usize, length: usize) -> Result<()> {
        let mut request = REQUEST.to_be_bytes().to_vec();
        request.extend(0_u16.to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend(0_u64.to_be_bytes());
        request.extend((at as u64).to_be_bytes());
        request.extend((length as u32).to_be_bytes()); // a piece at most
        self.stream.write_all(&request)
    }

    fn reply(&mut self) -> Result<()> {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        if reply[..4] != REPLY.to_be_bytes() {
            return Err(Error::other(
                "the server does not answer with a simple reply",
            ));
        }
        match u32::from_be_bytes(reply[4..8].try_into().expect("four bytes")) {
            0 => Ok(()),
            errno => Err(Error::other(format!(
                "the server answers with error {errno}"
            ))),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // A farewell; the server may be gone already.
        let _ = self.ask(DISCONNECT, 0, 0);
    }
}
