//! Talking to a reactor from other threads: calls with answers, and requests of this process's own.

use crate::backend::Waker;
#[cfg(feature = "ublk")]
use crate::front::Export;
use crate::front::Protocol;
use crate::front::listen::{Listener, Wire};
use crate::host::Exchange;
use crate::member::OpenMember;
use crate::shell::LeaseUse;
use restripe_array::report::{GrowthPlan, HeatMap};
use restripe_array::{Command, CommandError, Fact, Member, Nanos, RequestError, RequestOp};
use restripe_tier::report::Status;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

/// Makes a protocol's side of each new connection, on the reactor's thread.
pub type ProtocolMaker = Arc<dyn Fn() -> Box<dyn Protocol> + Send + Sync>;

/// The reactor has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended;

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the array's reactor has ended")
    }
}

impl std::error::Error for Ended {}

/// A request of this process, with its data.
#[derive(Debug)]
pub struct LocalRequest {
    pub array: usize,
    pub tag: u64,
    pub op: RequestOp,
    pub offset: u64,
    pub bytes: u64,
    /// What to write; as long as `bytes` says.
    pub data: Vec<u8>,
    pub fua: bool,
}

/// Its answer. `data` is what was read.
#[derive(Debug)]
pub struct LocalReply {
    pub tag: u64,
    pub result: Result<(), RequestError>,
    pub data: Vec<u8>,
}

/// A device as status lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberName {
    pub name: String,
    pub open: bool,
}

/// Why a device is not shown to an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotTaken {
    NoArray,
    /// It makes nothing durable, and clients of the array were offered flushes.
    Promised,
}

pub(crate) enum Call {
    Progress(Sender<u64>),
    Status(usize, Sender<Option<Status>>),
    Heat(usize, Sender<Option<HeatMap>>),
    Growth(usize, u16, Sender<Result<GrowthPlan, CommandError>>),
    MayFail(usize, Member, Sender<Result<(), CommandError>>),
    #[cfg(feature = "ublk")]
    Export(String, Sender<Option<Export>>),
    #[cfg(feature = "ublk")]
    HasCommands(Sender<bool>),
    Names(usize, Sender<Vec<MemberName>>),
    LeaseUses(usize, Sender<Vec<LeaseUse>>),
    Command(usize, Command, Sender<Result<(), CommandError>>),
    Arrive(usize, OpenMember, Sender<Result<Member, NotTaken>>),
    Close(usize, Member),
    Hold(usize, bool),
    MayExchange(usize, Sender<io::Result<()>>),
    Exchange(usize, Box<Exchange>, Sender<io::Result<()>>),
    Facts(usize, Sender<(Nanos, Fact)>),
    Submit(LocalRequest, Sender<LocalReply>),
    Listen(Listener, ProtocolMaker),
    Adopt(Wire, ProtocolMaker),
    Connections(Sender<usize>),
    TurnedAway(Sender<u64>),
    Wake(u32),
    Shutdown,
    Abandon,
}

/// A handle to a reactor. Cheap to clone, usable from any thread. Arrays are named by their index in the order in
/// which they were given to the shell.
#[derive(Clone)]
pub struct Remote {
    pub(crate) calls: Sender<Call>,
    pub(crate) waker: Waker,
}

/// What a reactor answers.
type Answered<T> = Result<T, Ended>;

impl Remote {
    fn send(&self, call: Call) -> Result<(), Ended> {
        self.calls.send(call).map_err(|_| Ended)?;
        self.waker.wake();
        Ok(())
    }

    fn ask<T>(&self, make: impl FnOnce(Sender<T>) -> Call) -> Result<T, Ended> {
        let (sender, receiver) = mpsc::channel();
        self.send(make(sender))?;
        receiver.recv().map_err(|_| Ended)
    }

    /// How much the members of all arrays have done, as a number that grows with every operation. `None`: the reactor
    /// does not answer in this time, or has ended.
    pub fn progress(&self, within: Duration) -> Option<u64> {
        let (sender, receiver) = mpsc::channel();
        self.send(Call::Progress(sender)).ok()?;
        receiver.recv_timeout(within).ok()
    }

    /// `None`: there is no such array.
    pub fn status(&self, array: usize) -> Result<Option<Status>, Ended> {
        self.ask(|reply| Call::Status(array, reply))
    }

    /// What users read of an array. `None`: there is no such array.
    pub fn heat(&self, array: usize) -> Result<Option<HeatMap>, Ended> {
        self.ask(|reply| Call::Heat(array, reply))
    }

    /// Whether a member may be failed by command, or why not.
    pub fn may_fail(&self, array: usize, member: Member) -> Answered<Result<(), CommandError>> {
        self.ask(|reply| Call::MayFail(array, member, reply))
    }

    /// What a growth of an array by so many members would do, or why there can be none now.
    pub fn growth_plan(&self, array: usize, by: u16) -> Answered<Result<GrowthPlan, CommandError>> {
        self.ask(|reply| Call::Growth(array, by, reply))
    }

    /// The array of this name, as clients see it. `None`: there is no such array.
    #[cfg(feature = "ublk")]
    pub(crate) fn export(&self, name: &str) -> Result<Option<Export>, Ended> {
        self.ask(|reply| Call::Export(name.to_owned(), reply))
    }

    /// Whether connections may serve devices of the kernel ([`crate::front::Link::command`]).
    #[cfg(feature = "ublk")]
    pub(crate) fn has_commands(&self) -> Result<bool, Ended> {
        self.ask(Call::HasCommands)
    }

    /// The devices of an array, in the order of their [`Member`] numbers.
    pub fn member_names(&self, array: usize) -> Result<Vec<MemberName>, Ended> {
        self.ask(|reply| Call::Names(array, reply))
    }

    /// The leases of an array, who has them attached, and whether it is known who borrows them.
    pub fn lease_uses(&self, array: usize) -> Result<Vec<LeaseUse>, Ended> {
        self.ask(|reply| Call::LeaseUses(array, reply))
    }

    /// Waits for the engine's answer.
    pub fn command(&self, array: usize, command: Command) -> Answered<Result<(), CommandError>> {
        self.ask(|reply| Call::Command(array, command, reply))
    }

    /// Shows a device to the engine; a following [`Command::Add`] or [`Command::Replace`] uses it.
    pub fn arrive(&self, array: usize, member: OpenMember) -> Answered<Result<Member, NotTaken>> {
        self.ask(|reply| Call::Arrive(array, member, reply))
    }

    /// Closes a device that the engine has forgotten.
    pub fn close(&self, array: usize, member: Member) -> Result<(), Ended> {
        self.send(Call::Close(array, member))
    }

    /// Lets an array's requests wait, or go on; see [`Exchange`].
    pub fn hold(&self, array: usize, held: bool) -> Result<(), Ended> {
        self.send(Call::Hold(array, held))
    }

    /// Whether nothing would be in the way of that.
    pub fn may_exchange(&self, array: usize) -> Result<io::Result<()>, Ended> {
        self.ask(|reply| Call::MayExchange(array, reply))
    }

    /// Gives the devices of an array that has stopped to another engine, and further ones.
    pub fn exchange(&self, array: usize, change: Exchange) -> Result<io::Result<()>, Ended> {
        self.ask(|reply| Call::Exchange(array, Box::new(change), reply))
    }

    /// Every fact of an array from now on, with its time since the reactor began.
    pub fn facts(&self, array: usize) -> Result<Receiver<(Nanos, Fact)>, Ended> {
        let (sender, receiver) = mpsc::channel();
        self.send(Call::Facts(array, sender))?;
        Ok(receiver)
    }

    /// Accepts connections from now on.
    pub fn listen(&self, listener: Listener, protocol: ProtocolMaker) -> Result<(), Ended> {
        self.send(Call::Listen(listener, protocol))
    }

    /// Serves a connection that is already there.
    pub fn adopt(&self, wire: Wire, protocol: ProtocolMaker) -> Result<(), Ended> {
        self.send(Call::Adopt(wire, protocol))
    }

    /// Connections being served.
    pub fn connections(&self) -> Result<usize, Ended> {
        self.ask(Call::Connections)
    }

    /// How often a peer found no place since the reactor began, or lost its own before its handshake was
    /// over.
    pub fn turned_away(&self) -> Result<u64, Ended> {
        self.ask(Call::TurnedAway)
    }

    /// Has [`crate::front::Protocol::woken`] called of a connection, if there is one of this number.
    pub fn wake(&self, connection: u32) -> Result<(), Ended> {
        self.send(Call::Wake(connection))
    }

    /// Stops accepting, stops every array (drained, flushed, marked clean), and ends the reactor.
    pub fn shutdown(&self) -> Result<(), Ended> {
        self.send(Call::Shutdown)
    }

    /// Ends the reactor as a crash would: nothing is drained, flushed or marked clean.
    pub fn abandon(&self) -> Result<(), Ended> {
        self.send(Call::Abandon)
    }

    /// A client for requests of this process.
    pub fn client(&self, array: usize) -> LocalClient {
        let (sender, replies) = mpsc::channel();
        LocalClient {
            remote: self.clone(),
            array,
            sender,
            replies,
            next_tag: 0,
        }
    }
}

/// Why a request of this process failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalError {
    Request(RequestError),
    Ended,
}

impl fmt::Display for LocalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocalError::Request(error) => error.fmt(f),
            LocalError::Ended => Ended.fmt(f),
        }
    }
}

impl std::error::Error for LocalError {}

/// Makes requests of an array from this process: one at a time with the verbs, or many with [`LocalClient::submit`] and
/// [`LocalClient::next_reply`], but not both at once.
pub struct LocalClient {
    remote: Remote,
    array: usize,
    sender: Sender<LocalReply>,
    replies: Receiver<LocalReply>,
    next_tag: u64,
}

impl LocalClient {
    pub fn read(&mut self, offset: u64, bytes: u64) -> Result<Vec<u8>, LocalError> {
        self.without_data(RequestOp::Read, offset, bytes)
    }

    pub fn write(&mut self, offset: u64, data: Vec<u8>, fua: bool) -> Result<(), LocalError> {
        self.run(RequestOp::Write, offset, data.len() as u64, data, fua)
            .map(drop)
    }

    pub fn flush(&mut self) -> Result<(), LocalError> {
        self.without_data(RequestOp::Flush, 0, 0).map(drop)
    }

    pub fn trim(&mut self, offset: u64, bytes: u64) -> Result<(), LocalError> {
        self.without_data(RequestOp::Trim, offset, bytes).map(drop)
    }

    pub fn zero(&mut self, offset: u64, bytes: u64, fast: bool) -> Result<(), LocalError> {
        let op = RequestOp::WriteZeroes { fast };
        self.without_data(op, offset, bytes).map(drop)
    }

    fn without_data(
        &mut self,
        op: RequestOp,
        offset: u64,
        bytes: u64,
    ) -> Result<Vec<u8>, LocalError> {
        self.run(op, offset, bytes, Vec::new(), false)
    }

    fn run(
        &mut self,
        op: RequestOp,
        offset: u64,
        bytes: u64,
        data: Vec<u8>,
        fua: bool,
    ) -> Result<Vec<u8>, LocalError> {
        self.submit(op, offset, bytes, data, fua)
            .map_err(|_| LocalError::Ended)?;
        let reply = self.next_reply().map_err(|_| LocalError::Ended)?;
        reply.result.map_err(LocalError::Request)?;
        Ok(reply.data)
    }

    /// Starts a request and gives its tag. At most [`crate::front::BUFFER_BYTES_MAX`] bytes are read or written.
    pub fn submit(
        &mut self,
        op: RequestOp,
        offset: u64,
        bytes: u64,
        data: Vec<u8>,
        fua: bool,
    ) -> Result<u64, Ended> {
        let tag = self.next_tag;
        self.next_tag += 1;
        let request = LocalRequest {
            array: self.array,
            tag,
            op,
            offset,
            bytes,
            data,
            fua,
        };
        self.remote
            .send(Call::Submit(request, self.sender.clone()))?;
        Ok(tag)
    }

    /// Waits for the next reply to any request.
    pub fn next_reply(&mut self) -> Result<LocalReply, Ended> {
        loop {
            match self.replies.recv_timeout(Duration::from_millis(500)) {
                Ok(reply) => return Ok(reply),
                // Our own sender keeps the channel open, so the reactor's end shows only by asking.
                Err(_) => drop(self.remote.connections()?),
            }
        }
    }
}
