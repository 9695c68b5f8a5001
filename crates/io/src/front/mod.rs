//! The interface between the reactor and a protocol: events of a connection, and the calls that it may make.
//!
//! A [`Protocol`] is one connection's state machine without sockets, threads or clock. The reactor owns the
//! socket. It receives bytes and passes them on, receives a write's payload directly into the request's own
//! memory, passes replies back, and sends all bytes of one turn with one system call.
//!
//! The reactor bounds a connection: its requests in flight ([`Link::full`]), its memory ([`Link::buffer`]
//! refuses when the budget is used up), and its time without progress ([`Protocol::patience`]).

pub(crate) mod connection;
pub mod iscsi;
pub mod listen;
pub mod nbd;
pub(crate) mod outbox;
mod report;
pub(crate) mod scsi;
pub(crate) mod secure_wire;
#[cfg(feature = "ublk")]
pub(crate) mod ublk;
#[cfg_attr(not(feature = "vhost-user"), path = "vhost_user/without.rs")]
pub mod vhost_user;
pub(crate) mod watches;

use crate::memory::Piece;
use crate::tls::Channel;
use crate::tls::names::PeerNames;
pub use report::Report;
use restripe_array::report::MapExtent;
use restripe_array::{BufRef, Nanos, RequestError, RequestOp, Uuid};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// One connection of a protocol.
pub trait Protocol {
    /// Called once when the connection is made, before anything was received: the place for a greeting.
    fn opened(&mut self, link: &mut dyn Link);

    /// Takes what it can use from the front of `bytes`. What is not consumed is offered again, with more
    /// behind it.
    fn received(&mut self, bytes: &[u8], link: &mut dyn Link) -> Received;

    /// The buffer named by [`Then::Payload`] is full.
    fn filled(&mut self, link: &mut dyn Link);

    /// A request of this connection has been answered.
    fn replied(&mut self, tag: u64, result: Result<(), RequestError>, link: &mut dyn Link);

    /// The handshake of TLS is over ([`Then::Secure`]). `None`: the peer showed no certificate.
    fn secured(&mut self, _peer: Option<PeerNames>) {}

    /// The peer and TLS do not agree, for this reason. The connection ends.
    fn tls_failed(&mut self, _why: &str, _link: &dyn Link) {}

    /// How long the peer may go without progress (of a half-received message, or of sending what waits for
    /// it) before the connection is closed; `None` while it may rest as long as it likes.
    fn patience(&self) -> Option<Nanos>;

    /// The answer to [`Link::await_memory`] and [`Link::await_turn`].
    fn memory(&mut self, _link: &mut dyn Link) {}

    /// Another connection of this protocol asked for this call, by [`Link::nudge`].
    fn woken(&mut self, _link: &mut dyn Link) {}

    /// Whether it is a session, whose commands end with it. When the peer closes its side, the connection
    /// ends before anything that comes on another is looked at, and none of its requests begins any more,
    /// also none that waits, unread or for memory or its turn: the peer may send it again on another. The
    /// connection stays until those that had begun are answered, each by [`Protocol::replied`].
    fn is_session(&self) -> bool {
        false
    }

    /// Whether it keeps its place for now although its peer has closed: a guess of a secret takes its time.
    /// Nothing of the peer is under way then.
    fn outlasts_peer(&self) -> bool {
        false
    }

    /// Whether the handshake or login is over, so that the peer has shown what it has to show. Until then it
    /// has a minute in all, and may lose its place to others.
    fn is_proven(&self) -> bool;

    /// Whether the peer closes a connection that is too slow, and sends its requests again on another. It
    /// needs one at any time, so it is not counted among the clients.
    fn resends(&self) -> bool {
        false
    }

    /// A command ([`Link::command`]) is back, with what the driver says.
    fn commanded(&mut self, _slot: u16, _result: i32, _link: &mut dyn Link) {}

    /// The connection has ended, and nothing is sent any more: the last call but for those of `replied`. The
    /// kernel may still receive into a buffer of [`Then::Payload`], which is therefore not to be released.
    fn ended(&mut self, _link: &mut dyn Link) {}

    /// Called about once a second while the connection lives, if it [is a session](Protocol::is_session).
    /// Whether it may go on; otherwise it ends at once.
    fn second(&mut self, _link: &mut dyn Link) -> bool {
        true
    }

    /// Whether descriptors come with its messages. The reactor then receives nothing for it: the protocol
    /// watches the [socket](Link::socket) and whatever came over it, and reads them itself.
    fn carries_descriptors(&self) -> bool {
        false
    }

    /// A descriptor can be read that [`Link::watch`] was called for. It is watched no more.
    fn ready(&mut self, _watch: u16, _link: &mut dyn Link) {}

    /// A turn of the reactor ends in which something of this connection was called: the place for what is
    /// done once for several replies. Only if it [carries descriptors](Protocol::carries_descriptors).
    /// Whether it has left something for the next turn, in which [`Protocol::woken`] is called.
    fn turn_over(&mut self) -> bool {
        false
    }

    /// Whether it holds memory for data that the peer has yet to send. Without progress such a connection is
    /// closed early when others wait for memory.
    fn awaits_data(&self) -> bool {
        false
    }
}

/// What one connection does to another of its protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nudge {
    /// Calls [`Protocol::woken`].
    Wake,
    /// Has it answer nothing more. It ends once what it sent has gone.
    Finish,
    /// Ends it at once.
    End,
}

/// What became of received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    pub consumed: usize,
    pub then: Then,
}

/// What a connection wants next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// More bytes. At most [`MESSAGE_BYTES_MAX`] of them may stay unconsumed.
    More,
    /// The next `buf.bytes` bytes belong into this buffer, or part of a buffer; [`Protocol::filled`] follows.
    Payload(BufRef),
    /// Nothing until something of this connection has been answered or sent ([`Link::full`] was true).
    Hold,
    /// Nothing until memory is free ([`Link::buffer`] refused). The unconsumed bytes are then offered again.
    Memory,
    /// TLS with the channel of [`Link::secure`]: what was sent goes out in clear text, everything else that
    /// comes or goes is TLS's. Bytes of the protocol follow [`Protocol::secured`].
    Secure,
    /// Nothing more. What was sent goes out, what is in flight is answered, then the connection ends.
    Finish,
    /// End at once: the peer cannot be talked to.
    Abort,
}

/// Most bytes that a protocol may leave unconsumed while it asks for more: the longest message without its
/// payload.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// How long a peer may take from connecting to the end of its handshake or login.
pub(crate) const HANDSHAKE_MAX: Nanos = Nanos::from_secs(60);

/// An export whose name begins with it is a lease: `lease/ARRAY/LEASE`.
pub(crate) const LEASE_PREFIX: &str = "lease/";

/// Most bytes of one user buffer.
pub const BUFFER_BYTES_MAX: u32 = 32 << 20;

/// A command to the driver of the device that a connection serves: `IORING_OP_URING_CMD` on its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriverCommand {
    /// Which of the device's requests it is for. One command of a slot is under way at a time.
    pub slot: u16,
    /// The driver's number of the command.
    pub number: u32,
    /// The driver's own part of the entry.
    pub bytes: [u8; 16],
}

/// What a client may know of an array that it can attach to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    pub name: String,
    /// Of the array.
    pub uuid: Uuid,
    pub description: String,
    pub size_bytes: u64,
    pub logical_block: u32,
    /// Requests are whole multiples of it.
    pub minimum_block: u32,
    /// Requests of this size and alignment cost the least.
    pub preferred_block: u32,
    /// Of a full row: an aligned write of it reads nothing first. 0 while no layout is known.
    pub row_bytes: u64,
    /// Reads and writes are no longer; [`BUFFER_BYTES_MAX`] at most.
    pub maximum_block: u32,
    /// For one client at a time, who names it: never the default.
    pub exclusive: bool,
    /// Nobody can attach now, since somebody has, or what he asked for is still under way.
    pub busy: bool,
    pub read_only: bool,
    /// A flush makes what was written durable. Without it neither flushes nor durable writes are offered.
    pub durable: bool,
    /// The array serves; otherwise nobody can attach.
    pub serving: bool,
}

/// A request as a connection makes it. `tag` is the connection's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    pub tag: u64,
    /// Index into the exports.
    pub export: usize,
    pub op: RequestOp,
    pub offset: u64,
    pub bytes: u64,
    /// Memory of the request, as long as it; `None` for operations without data. Stays the connection's own.
    pub buf: Option<BufRef>,
    pub fua: bool,
}

/// What the shell offers to a connection, for the time of a call.
pub trait Link {
    /// How many exports there are; their indexes never change.
    fn exports(&self) -> usize;

    fn export(&self, index: usize) -> Option<Export>;

    /// The same for every small command: it costs little, and may be 100 ms old.
    fn view(&self, index: usize) -> Option<Arc<Export>>;

    /// This connection has attached to an export, which was not busy. It may attach to several that are not
    /// exclusive. It counts as a client of each of these arrays, and as one of the users' connections.
    fn attach(&mut self, _export: usize) {}

    /// What `[offset, offset + bytes)` of an export is like, in order, at most `max` extents; the last may
    /// end early. Its answer is sent: after some of this work the connection is full until something was
    /// sent.
    fn map(&mut self, export: usize, offset: u64, bytes: u64, max: usize) -> Vec<MapExtent>;

    /// Memory for a request, aligned to 4096; `None` when the budget is used up (answer [`Then::Memory`]) —
    /// never for lengths of zero or above [`BUFFER_BYTES_MAX`], which are the caller's fault.
    fn buffer(&mut self, bytes: u32) -> Option<BufRef>;

    /// Gives memory back. Not while a request uses it.
    fn release(&mut self, buf: BufRef);

    /// Whether as many requests are in flight, or as many bytes unsent, as one connection may have, or it
    /// had its turn of the reactor. To be asked before each message is taken up, also during a handshake; or
    /// before its work begins, if the protocol bounds the messages that it takes up meanwhile.
    fn full(&self) -> bool;

    /// Whether as many bytes are unsent as one connection may have: its peer does not read.
    fn unread(&self) -> bool;

    /// Has [`Protocol::memory`] called when this connection's turn for memory comes. Unlike with
    /// [`Then::Memory`] the connection receives meanwhile.
    fn await_memory(&mut self);

    /// Has [`Protocol::memory`] called when something of this connection was sent or answered: the answer to
    /// [`Link::full`] may have changed.
    fn await_turn(&mut self);

    /// The bytes of a buffer, or of part of one, that no request uses.
    fn bytes(&self, part: BufRef) -> &[u8];

    /// The memory of a buffer, or of part of one, that no request uses, for the kernel to read or write.
    fn piece(&self, part: BufRef) -> Piece;

    /// The bytes of a part that no request uses, to be changed.
    fn bytes_mut(&mut self, part: BufRef) -> &mut [u8];

    /// Copies `bytes` to the beginning of a part that no request uses. They are no more than the part has.
    fn fill(&mut self, part: BufRef, bytes: &[u8]);

    /// The address at which the peer reached us, if it has one.
    fn local_address(&self) -> Option<SocketAddr>;

    /// The address of the peer, if it has one.
    fn peer_address(&self) -> Option<SocketAddr> {
        None
    }

    /// The number of this connection. No other has it until the protocol's state machine was dropped.
    fn number(&self) -> u32;

    /// Acts on another connection, soon after this call.
    fn nudge(&mut self, connection: u32, how: Nudge);

    /// Hands a request in. Its reply comes through [`Protocol::replied`], never from within this call.
    fn submit(&mut self, ask: Ask);

    /// A duplicate of the connection's socket.
    fn socket(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Has [`Protocol::ready`] called once the descriptor can be read, with the number that this call
    /// returns. The descriptor stays open until then, or until the watch was given up.
    fn watch(&mut self, _fd: &Arc<OwnedFd>) -> u16 {
        0
    }

    /// Gives a watch up: `ready` is not called for it any more.
    fn unwatch(&mut self, _watch: u16) {}

    /// The channel for [`Then::Secure`], which is answered next.
    fn secure(&mut self, _channel: Channel) {}

    /// Queues bytes for the peer.
    fn send(&mut self, bytes: &[u8]);

    /// Queues part of a buffer for the peer. The buffer stays until a later [`Link::send_buffer`].
    fn send_part(&mut self, part: BufRef);

    /// Queues bytes of a buffer for the peer: all, or a last part. When they are sent, the whole buffer is
    /// released.
    fn send_buffer(&mut self, buf: BufRef);

    /// Gives a command to the driver, for a connection that serves a device of the kernel.
    /// [`Protocol::commanded`] follows. Only io_uring has it; with other backends the result is `EOPNOTSUPP`.
    fn command(&mut self, _command: DriverCommand) {}
}
