//! A small blocking NBD client: one connection, one request at a time.
//!
//! Written against the protocol's specification and not against our server, so that a mistake in one is not
//! hidden by the same mistake in the other. Only what a load needs: the fixed newstyle handshake with
//! `NBD_OPT_GO`, simple replies, and reads, writes, flushes and trims.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

const MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;

const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const INFO_EXPORT: u16 = 0;
const COMMAND_FLAG_FUA: u16 = 1;
/// Bytes of an option reply that are taken, at most: far above what any of them needs.
const OPTION_REPLY_BYTES_MAX: u32 = 65536;

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    Unix(PathBuf),
    Tcp(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "{}", path.display()),
            Address::Tcp(address) => f.write_str(address),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Command {
    Read = 0,
    Write = 1,
    Disconnect = 2,
    Flush = 3,
    Trim = 4,
}

/// What went wrong with a request.
#[derive(Debug)]
pub enum Error {
    /// The connection: nothing more can be asked over it, and what was outstanding may or may not have happened.
    Connection(io::Error),
    /// The server refused the request, with this errno of the protocol. The connection goes on.
    Refused(u32),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Connection(error) => write!(f, "connection: {error}"),
            Error::Refused(errno) => write!(f, "the server answered with error {errno}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Connection(error)
    }
}

trait Stream: Read + Write + Send {}
impl Stream for UnixStream {}
impl Stream for TcpStream {}

/// One connection to one export.
pub struct Client {
    stream: Box<dyn Stream>,
    size_bytes: u64,
    flags: u16,
    cookie: u64,
    /// The request under way, in one piece, so that it leaves in one packet.
    outgoing: Vec<u8>,
}

impl Client {
    /// Connects and agrees on the export. `timeout` bounds every single wait.
    pub fn connect(address: &Address, export: &str, timeout: Duration) -> io::Result<Client> {
        let stream = open(address, timeout)?;
        let mut client = Client {
            stream,
            size_bytes: 0,
            flags: 0,
            cookie: 0,
            outgoing: Vec::new(),
        };
        client.greet()?;
        client.go(export)?;
        Ok(client)
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The export's transmission flags.
    pub fn flags(&self) -> u16 {
        self.flags
    }

    pub fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.send(Command::Read, 0, offset, length_of(into)?, &[])?;
        self.reply()?;
        self.stream.read_exact(into)?;
        Ok(())
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8], fua: bool) -> Result<(), Error> {
        let flags = if fua { COMMAND_FLAG_FUA } else { 0 };
        self.send(Command::Write, flags, offset, length_of(bytes)?, bytes)?;
        self.reply()
    }

    pub fn flush(&mut self) -> Result<(), Error> {
        self.send(Command::Flush, 0, 0, 0, &[])?;
        self.reply()
    }

    pub fn trim(&mut self, offset: u64, bytes: u32) -> Result<(), Error> {
        self.send(Command::Trim, 0, offset, bytes, &[])?;
        self.reply()
    }

    /// Says goodbye. The server ends the connection; there is no reply.
    pub fn close(mut self) {
        // The connection ends either way.
        let _ = self.send(Command::Disconnect, 0, 0, 0, &[]);
    }

    // -------------------------------------------------------------------------------------------- handshake

    fn greet(&mut self) -> io::Result<()> {
        let mut greeting = [0; 18];
        self.stream.read_exact(&mut greeting)?;
        let (magic, option_magic) = (u64_at(&greeting, 0), u64_at(&greeting, 8));
        if magic != MAGIC || option_magic != OPTION_MAGIC {
            return Err(invalid("this is not a newstyle NBD server"));
        }
        let flags = u16_at(&greeting, 16);
        if flags & FIXED_NEWSTYLE == 0 {
            return Err(invalid("the server does not speak the fixed newstyle"));
        }
        let answer = u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES));
        self.stream.write_all(&answer.to_be_bytes())
    }

    fn go(&mut self, export: &str) -> io::Result<()> {
        let name_bytes = u32::try_from(export.len());
        let name_bytes = name_bytes.map_err(|_| invalid("the export's name is too long"))?;
        let mut option = Vec::new();
        option.extend(OPTION_MAGIC.to_be_bytes());
        for word in [OPTION_GO, 4 + name_bytes + 2, name_bytes] {
            option.extend(word.to_be_bytes());
        }
        option.extend_from_slice(export.as_bytes());
        option.extend(0u16.to_be_bytes());
        self.stream.write_all(&option)?;
        while !self.option_reply()? {}
        Ok(())
    }

    /// Takes one option reply; true for the last.
    fn option_reply(&mut self) -> io::Result<bool> {
        let mut header = [0; 20];
        self.stream.read_exact(&mut header)?;
        let (kind, length) = (u32_at(&header, 12), u32_at(&header, 16));
        if u64_at(&header, 0) != OPTION_REPLY_MAGIC || length > OPTION_REPLY_BYTES_MAX {
            return Err(invalid("the server's option reply is malformed"));
        }
        let mut data = vec![0; length as usize];
        self.stream.read_exact(&mut data)?;
        match kind {
            REPLY_ACK => Ok(true),
            REPLY_INFO => {
                self.take_info(&data);
                Ok(false)
            }
            _ => {
                let why = String::from_utf8_lossy(&data);
                let refused = format!("the server refused the export (reply {kind:#x}) {why}");
                Err(invalid(&refused))
            }
        }
    }

    fn take_info(&mut self, data: &[u8]) {
        if data.len() >= 12 && u16_at(data, 0) == INFO_EXPORT {
            self.size_bytes = u64_at(data, 2);
            self.flags = u16_at(data, 10);
        }
    }

    // -------------------------------------------------------------------------------------------- transmission

    fn send(
        &mut self,
        command: Command,
        flags: u16,
        offset: u64,
        length: u32,
        data: &[u8],
    ) -> io::Result<()> {
        self.cookie += 1;
        let out = &mut self.outgoing;
        out.clear();
        out.extend(REQUEST_MAGIC.to_be_bytes());
        out.extend(flags.to_be_bytes());
        out.extend((command as u16).to_be_bytes());
        out.extend(self.cookie.to_be_bytes());
        out.extend(offset.to_be_bytes());
        out.extend(length.to_be_bytes());
        out.extend_from_slice(data);
        self.stream.write_all(out)
    }

    fn reply(&mut self) -> Result<(), Error> {
        let mut header = [0; 16];
        self.stream.read_exact(&mut header)?;
        let (magic, errno, cookie) = (u32_at(&header, 0), u32_at(&header, 4), u64_at(&header, 8));
        if magic != SIMPLE_REPLY_MAGIC || cookie != self.cookie {
            return Err(invalid("the server's reply is not one to this request").into());
        }
        match errno {
            0 => Ok(()),
            errno => Err(Error::Refused(errno)),
        }
    }
}

fn open(address: &Address, timeout: Duration) -> io::Result<Box<dyn Stream>> {
    match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            Ok(Box::new(stream))
        }
        Address::Tcp(address) => {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            Ok(Box::new(stream))
        }
    }
}

fn length_of(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(|_| invalid("a request holds less than 4 GiB"))
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
pub(crate) mod testing {
    //! A server of the same subset over a vector: enough to test the client and the load without an array.

    use super::*;
    use std::os::unix::net::UnixListener;
    use std::sync::{Arc, Mutex};
    use std::thread;

    /// What a test may do to the server's memory, and how the server misbehaves.
    pub struct Medium {
        pub bytes: Vec<u8>,
        pub refuse: Option<u32>,
        /// Connections end after so many requests.
        pub requests_left: Option<u32>,
    }

    impl Medium {
        pub(crate) fn of_bytes(count: usize) -> Arc<Mutex<Medium>> {
            Arc::new(Mutex::new(Medium {
                bytes: vec![0; count],
                refuse: None,
                requests_left: None,
            }))
        }
    }

    pub fn serve(name: &str, medium: Arc<Mutex<Medium>>) -> Address {
        let name = format!("restripe-lab-{name}-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a socket");
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let medium = Arc::clone(&medium);
                thread::spawn(move || connection(stream, &medium));
            }
        });
        Address::Unix(path)
    }

    fn connection(mut stream: UnixStream, medium: &Mutex<Medium>) -> io::Result<()> {
        let size = medium.lock().expect("no test panics with it").bytes.len() as u64;
        let greeting = [
            &MAGIC.to_be_bytes()[..],
            &OPTION_MAGIC.to_be_bytes(),
            &[0, 3],
        ];
        stream.write_all(&greeting.concat())?;
        let mut head = [0; 20];
        stream.read_exact(&mut head)?;
        let mut rest = vec![0; u32_at(&head, 16) as usize];
        stream.read_exact(&mut rest)?;
        let info = [&[0, 0][..], &size.to_be_bytes(), &[0, 1]].concat();
        for (kind, data) in [(REPLY_INFO, info), (REPLY_ACK, vec![])] {
            stream.write_all(&OPTION_REPLY_MAGIC.to_be_bytes())?;
            stream.write_all(&OPTION_GO.to_be_bytes())?;
            stream.write_all(&kind.to_be_bytes())?;
            stream.write_all(&(data.len() as u32).to_be_bytes())?;
            stream.write_all(&data)?;
        }
        while request(&mut stream, medium)? {}
        Ok(())
    }

    fn request(stream: &mut UnixStream, medium: &Mutex<Medium>) -> io::Result<bool> {
        let mut head = [0; 28];
        stream.read_exact(&mut head)?;
        let (command, cookie) = (u16_at(&head, 6), u64_at(&head, 8));
        let (offset, length) = (u64_at(&head, 16) as usize, u32_at(&head, 24) as usize);
        let writes = command == Command::Write as u16;
        let mut data = vec![0; if writes { length } else { 0 }];
        stream.read_exact(&mut data)?;
        let mut medium = medium.lock().expect("no test panics with it");
        let refused = medium.refuse;
        if refused.is_none() && !data.is_empty() {
            medium.bytes[offset..offset + length].copy_from_slice(&data);
        }
        if let Some(left) = &mut medium.requests_left {
            if *left == 0 {
                medium.requests_left = None;
                return Ok(false);
            }
            *left -= 1;
        }
        stream.write_all(&SIMPLE_REPLY_MAGIC.to_be_bytes())?;
        stream.write_all(&refused.unwrap_or(0).to_be_bytes())?;
        stream.write_all(&cookie.to_be_bytes())?;
        if command == Command::Read as u16 && refused.is_none() {
            stream.write_all(&medium.bytes[offset..offset + length])?;
        }
        Ok(command != Command::Disconnect as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{Medium, serve};
    use super::*;
    use std::sync::Arc;

    const WAIT: Duration = Duration::from_secs(10);

    #[test]
    fn what_is_written_is_read() {
        let medium = Medium::of_bytes(8192);
        let address = serve("written", Arc::clone(&medium));
        let mut client = Client::connect(&address, "", WAIT).expect("it serves");
        assert_eq!(client.size_bytes(), 8192);
        client.write(4096, &[7; 512], true).expect("it takes it");
        client.flush().expect("it flushes");
        let mut bytes = [0; 1024];
        client.read(3584, &mut bytes).expect("it reads");
        assert_eq!((bytes[511], bytes[512], bytes[1023]), (0, 7, 7));
        client.close();
    }

    #[test]
    fn a_refusal_leaves_the_connection_open() {
        let medium = Medium::of_bytes(8192);
        medium.lock().expect("free").refuse = Some(5);
        let address = serve("refusal", Arc::clone(&medium));
        let mut client = Client::connect(&address, "", WAIT).expect("it serves");
        let refused = client.read(0, &mut [0; 512]);
        assert!(matches!(refused, Err(Error::Refused(5))));
        medium.lock().expect("free").refuse = None;
        client.read(0, &mut [0; 512]).expect("the next one works");
    }
}
