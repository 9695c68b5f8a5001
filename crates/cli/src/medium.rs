//! A member for the verbs that work without an engine, wherever its bytes are: a file, a block device, an NBD export.

use restripe_array::{MemberInfo, SECTOR_BYTES};
use restripe_io::member::{self, MemberSource, OpenError, OpenFailure, OpenOptions};
use restripe_io::nbd_wire::uri::{Endpoint, NbdUri};
use restripe_io::plain::Plain;
use restripe_lab::nbd::{Address, Client, Error};
use std::cell::RefCell;
use std::io;
use std::time::Duration;

/// The longest wait for a remote member.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of one request to a remote member.
const REQUEST_BYTES: u64 = 1 << 20;

pub enum Medium {
    Plain(Plain),
    Remote(Remote),
}

pub struct Remote {
    name: String,
    info: MemberInfo,
    client: RefCell<Client>,
}

impl Medium {
    /// Opens a member. `read_only` looks and cannot touch.
    pub fn open(name: &str, read_only: bool) -> Result<Medium, OpenError> {
        match MemberSource::parse(name)? {
            MemberSource::Nbd(uri) => Remote::open(name, &uri, read_only).map(Medium::Remote),
            _ => Plain::open(name, read_only).map(Medium::Plain),
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Medium::Plain(member) => member.name(),
            Medium::Remote(member) => &member.name,
        }
    }

    pub fn info(&self) -> MemberInfo {
        match self {
            Medium::Plain(member) => member.info(),
            Medium::Remote(member) => member.info,
        }
    }

    pub fn bytes(&self) -> u64 {
        self.info().sectors * SECTOR_BYTES
    }

    /// Fills the buffer from this sector on.
    pub fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        match self {
            Medium::Plain(member) => member.read(at, into),
            Medium::Remote(member) => member.run(|client| client.read(at * SECTOR_BYTES, into)),
        }
    }

    pub fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        match self {
            Medium::Plain(member) => member.write(at, bytes),
            Medium::Remote(member) => {
                member.run(|client| client.write(at * SECTOR_BYTES, bytes, false))
            }
        }
    }

    /// Makes a range read as zeros.
    pub fn zero(&self, at: u64, sectors: u64) -> io::Result<()> {
        match self {
            Medium::Plain(member) => member.zero(at, sectors),
            Medium::Remote(member) => member.zero(at * SECTOR_BYTES, sectors * SECTOR_BYTES),
        }
    }

    /// Makes everything written so far durable.
    pub fn flush(&self) -> io::Result<()> {
        match self {
            Medium::Plain(member) => member.flush(),
            Medium::Remote(member) => member.run(Client::flush),
        }
    }
}

impl Remote {
    /// The engine's own way of opening says what the export is like, and whether it will do as a member; the work is
    /// done over a connection of ours.
    fn open(name: &str, uri: &NbdUri, read_only: bool) -> Result<Remote, OpenError> {
        let options = OpenOptions {
            read_only,
            ..OpenOptions::default()
        };
        let info = member::open(name, options)?.info;
        let address = match &uri.endpoint {
            Endpoint::Unix(path) => Address::Unix(path.clone()),
            Endpoint::Tcp { host, port } => Address::Tcp(format!("{host}:{port}")),
        };
        let client =
            Client::connect(&address, &uri.export, PATIENCE).map_err(|error| OpenError {
                member: name.into(),
                why: OpenFailure::Io(error),
            })?;
        Ok(Remote {
            name: name.into(),
            info,
            client: RefCell::new(client),
        })
    }

    fn run(&self, work: impl FnOnce(&mut Client) -> Result<(), Error>) -> io::Result<()> {
        work(&mut self.client.borrow_mut()).map_err(io::Error::other)
    }

    fn zero(&self, mut from: u64, bytes: u64) -> io::Result<()> {
        let end = from + bytes;
        let zeros = vec![0; usize::try_from(REQUEST_BYTES).expect("a mebibyte fits")];
        while from < end {
            let bytes = (end - from).min(REQUEST_BYTES);
            let part = &zeros[..usize::try_from(bytes).expect("no more than there are")];
            self.run(|client| client.write(from, part, false))?;
            from += bytes;
        }
        Ok(())
    }
}
