//! Blocking calls until a server and we agree on an export, in clear text or through TLS.

use crate::front::outbox::Outbox;
use crate::front::secure_wire::{SecureWire, next_send, sent};
use crate::nbd_wire::client::{Client, ClientError, ClientEvent, Replies};
use crate::tls::{Channel, Event, Going};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// To connect; and then for the whole handshake, however its bytes trickle.
pub(super) const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// Received at once.
const STEP_BYTES: usize = 4096;

/// Why there is no agreement.
#[derive(Debug)]
pub(crate) enum NotAgreed {
    Io(io::Error),
    Tls(String),
    /// The server refused, or broke the conversation.
    Remote(String),
    /// Another client has the export.
    Held(String),
}

impl From<NotAgreed> for io::Error {
    fn from(why: NotAgreed) -> io::Error {
        match why {
            NotAgreed::Io(error) => error,
            NotAgreed::Tls(why) | NotAgreed::Remote(why) | NotAgreed::Held(why) => {
                io::Error::other(why)
            }
        }
    }
}

/// A handshake's end.
pub(crate) struct Agreed {
    pub client: Client,
    /// Received, and not a part of the handshake.
    pub rest: Vec<u8>,
    pub tls: Option<Box<SecureWire>>,
}

pub(crate) fn patience(stream: &UnixStream, time: Option<Duration>) -> io::Result<()> {
    stream.set_read_timeout(time)?;
    stream.set_write_timeout(time)
}

/// Leaves the next calls the time that is left.
fn patience_until(stream: &UnixStream, deadline: Instant) -> io::Result<()> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(ErrorKind::TimedOut.into()),
        left => patience(stream, Some(left)),
    }
}

fn stalled(error: io::Error) -> NotAgreed {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            NotAgreed::Remote("does not respond in time".to_owned())
        }
        _ => NotAgreed::Io(error),
    }
}

pub(super) fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
            Ok(stream) => {
                drop_unsent(&stream)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// What is unsent when the socket is closed, also by a kill, is never sent. The kernel would go on trying
/// behind our back while the way there is cut, and bring old writes when others have long been made by
/// another connection. Whatever was to count was waited for.
fn drop_unsent(stream: &TcpStream) -> io::Result<()> {
    let now = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    let length = size_of::<libc::linger>() as libc::socklen_t;
    // SAFETY: the option's value is a `linger` of this length, and lives through the call.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const now).cast(),
            length,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Goes through the handshake. With a channel, the export is asked for through TLS or not at all.
pub(crate) fn agree(
    stream: &UnixStream,
    export: &str,
    replies: Replies,
    mut channel: Option<Channel>,
    deadline: Instant,
) -> Result<Agreed, NotAgreed> {
    let failed = |why: &str| NotAgreed::Remote(why.to_owned());
    let remote = |error: ClientError| match error {
        ClientError::Held(why) => NotAgreed::Held(why),
        error => failed(&error.to_string()),
    };
    let mut client = match channel {
        Some(_) => Client::through_tls(export, replies),
        None => Client::new(export, replies),
    };
    let mut talk = Talk {
        stream,
        deadline,
        came: Vec::new(),
        outbox: Outbox::default(),
        tls: None,
    };
    let mut out = Vec::new();
    loop {
        let step = client.received(&talk.came, &mut out).map_err(remote)?;
        talk.came.drain(..step.consumed);
        talk.send(&out)?;
        out.clear();
        match (step.event, channel.take()) {
            (ClientEvent::Ready, _) => {
                let (rest, tls) = (talk.came, talk.tls);
                return Ok(Agreed { client, rest, tls });
            }
            (ClientEvent::Secure, Some(channel)) => {
                talk.secure(channel)?;
                client.secured(&mut out);
            }
            (ClientEvent::More, waiting) => {
                channel = waiting;
                if step.consumed == 0 || talk.came.is_empty() {
                    talk.receive()?;
                }
            }
            _ => return Err(failed("sent a reply before a request")),
        }
    }
}

/// Bytes to and from a server, with one deadline for all.
struct Talk<'a> {
    stream: &'a UnixStream,
    deadline: Instant,
    /// Received and not yet used.
    came: Vec<u8>,
    outbox: Outbox,
    tls: Option<Box<SecureWire>>,
}

impl Talk<'_> {
    fn send(&mut self, bytes: &[u8]) -> Result<(), NotAgreed> {
        if !bytes.is_empty() {
            self.outbox.push(bytes);
        }
        let outbox = &mut self.outbox;
        let mut next = next_send(self.tls.as_deref_mut(), outbox);
        while let Some(pieces) = next {
            let mut count = 0;
            for piece in &pieces {
                patience_until(self.stream, self.deadline).map_err(stalled)?;
                self.stream.write_all(piece.slice()).map_err(stalled)?;
                count += u64::from(piece.bytes);
            }
            let (outbox, released) = (&mut self.outbox, &mut Vec::new());
            next = sent(self.tls.as_deref_mut(), count, pieces, outbox, released);
        }
        Ok(())
    }

    /// Waits for bytes.
    fn read(&mut self) -> Result<Vec<u8>, NotAgreed> {
        let mut bytes = vec![0; STEP_BYTES];
        patience_until(self.stream, self.deadline).map_err(stalled)?;
        match self.stream.read(&mut bytes).map_err(stalled)? {
            0 => Err(NotAgreed::Remote(
                "closed the connection during the handshake".to_owned(),
            )),
            count => {
                bytes.truncate(count);
                Ok(bytes)
            }
        }
    }

    /// Waits for bytes of the protocol.
    fn receive(&mut self) -> Result<(), NotAgreed> {
        let before = self.came.len();
        while self.came.len() == before {
            let bytes = self.read()?;
            match self.tls {
                Some(_) => self.open(&bytes)?,
                None => self.came.extend_from_slice(&bytes),
            }
        }
        Ok(())
    }

    /// Goes through the handshake of TLS. What came already is a part of it.
    fn secure(&mut self, channel: Channel) -> Result<(), NotAgreed> {
        self.tls = Some(Box::new(SecureWire::new(channel, true)));
        let came = std::mem::take(&mut self.came);
        self.open(&came)?;
        while self
            .tls
            .as_ref()
            .is_some_and(|tls| !tls.channel.is_secured())
        {
            let bytes = self.read()?;
            self.open(&bytes)?;
        }
        Ok(())
    }

    /// Opens ciphertext, and sends what TLS has to say to it.
    fn open(&mut self, bytes: &[u8]) -> Result<(), NotAgreed> {
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        let came = &mut self.came;
        let going = match tls.channel.take_in(bytes) {
            true => tls.channel.open(&mut |event| {
                if let Event::Plain(bytes) = event {
                    came.extend_from_slice(bytes);
                }
            }),
            false => Going::Failed("the server sends what cannot be opened".to_owned()),
        };
        // Also an alert that says why we go.
        let sent = self.send(&[]);
        match going {
            Going::On => sent,
            Going::Closed => Err(NotAgreed::Tls("the server ended it".to_owned())),
            Going::Failed(why) => Err(NotAgreed::Tls(why)),
        }
    }
}
