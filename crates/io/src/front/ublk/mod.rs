//! The server of a device of the kernel's driver ublk (Linux 6.5 or later), as a state machine.
//!
//! The device has one queue with a fixed number of slots, the kernel's tags. A slot is with the driver, or
//! has a request of the kernel:
//!
//! | slot | event | what is done | then |
//! |---|---|---|---|
//! | `Driver` | its command is back with a request | a buffer, a write's data, the request to the engine | `Engine` |
//! | | the same, and no memory or too much in flight | | `Waiting` |
//! | | the request cannot be done | the error as the answer | `Driver` |
//! | | its command is back: the device ends | | `Ended` |
//! | | its command is back, refused for the moment | noted | `Refused` |
//! | | its command is back, refused for good | noted: the next daemon gets the request | `Ended` |
//! | `Refused` | a second | the same command | `Driver` |
//! | `Waiting` | memory, or something was answered | as for `Driver` | |
//! | `Engine` | the engine's reply | a read's data, the answer | `Driver` |
//! | | the array is not served any more | nothing: the next daemon gets the request | `Left` |
//! | `Left` | the array is served again | | `Waiting` |
//!
//! An answer and the wait for the next request are one command to the driver ([`Link::command`]). Data is
//! copied by the kernel from the request's pages straight to the engine's buffer and back ([`Device`]); so a
//! request has memory only while it is under way, and within the reactor's budget.
//!
//! When the daemon dies, the kernel gives all requests that have no answer to the next one, in no order. The
//! same is true of them as of NBD's: a request that was begun is over before the members are released.

mod device;
pub(crate) mod wire;

#[cfg(test)]
mod tests;

use crate::front::{Ask, DriverCommand, Link, Nudge, Protocol, Received, Then};
use crate::memory::Piece;
use crate::nbd_wire::Errno;
pub(crate) use device::CharDevice;
use restripe_array::{BufRef, Nanos, RequestError, RequestOp};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use wire::{
    COMMIT_AND_FETCH, DESCRIPTOR_BYTES, FETCH, Operation, RESULT_ENDED, RESULT_REQUEST, Request,
};

/// What a server does with its device besides commands.
pub(crate) trait Device: Send {
    /// The descriptor of the request that a slot has.
    fn descriptor(&mut self, slot: u16) -> io::Result<[u8; DESCRIPTOR_BYTES]>;

    /// Copies the data of a write to `into`, whose length it has.
    fn take(&self, slot: u16, into: &Piece) -> io::Result<()>;

    /// Copies `from` to where a read's data goes.
    fn give(&self, slot: u16, from: &Piece) -> io::Result<()>;
}

/// What a queue is made of.
pub(crate) struct Setup {
    /// The export's name.
    pub array: String,
    /// Slots.
    pub depth: u16,
    pub read_only: bool,
}

/// The queue of a device.
pub(crate) struct Queue {
    device: Box<dyn Device>,
    setup: Setup,
    /// Dropped when the device has ended.
    alive: Option<Arc<()>>,
    refused: Arc<Refused>,
    /// The error by which the driver refused a command for good, or 0.
    lost: i32,
    export: usize,
    slots: Vec<Slot>,
    /// Those that wait, the first first.
    waiting: VecDeque<u16>,
}

/// The error of a command that the driver did not take, until it gets the command again; otherwise 0.
#[derive(Default)]
pub(crate) struct Refused(AtomicI32);

impl Refused {
    pub(crate) fn error(&self) -> Option<io::Error> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            errno => Some(io::Error::from_raw_os_error(errno)),
        }
    }

    fn note(&self, errno: i32) {
        self.0.store(errno, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slot {
    /// This command for it is with the driver.
    Driver(DriverCommand),
    /// The driver did not take this command, and gets it again.
    Refused(DriverCommand),
    /// Its request waits for memory, or for its turn.
    Waiting(Request),
    /// Its request is with the engine.
    Engine(Request, Option<BufRef>),
    /// Its request waits for the array to be served again, by this daemon or the next.
    Left(Request),
    /// The driver has given it up, or takes no command for it.
    Ended,
}

/// What keeps a request from its beginning.
enum Hurdle {
    /// Too much is in flight.
    Turn,
    Memory,
    /// It cannot be done: a negative errno.
    Refused(i32),
}

impl Queue {
    pub(crate) fn new(
        device: Box<dyn Device>,
        setup: Setup,
        alive: Arc<()>,
        refused: Arc<Refused>,
    ) -> Queue {
        Queue {
            device,
            alive: Some(alive),
            refused,
            lost: 0,
            slots: vec![Slot::Ended; usize::from(setup.depth)],
            setup,
            export: 0,
            waiting: VecDeque::new(),
        }
    }

    fn slot(&mut self, slot: u16) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(slot))
    }

    fn set(&mut self, slot: u16, state: Slot) {
        if let Some(slot) = self.slot(slot) {
            *slot = state;
        }
    }

    /// Answers a slot's request with a count or a negative errno, and gives the slot to the driver.
    fn answer(&mut self, slot: u16, result: i32, link: &mut dyn Link) {
        self.give(slot, COMMIT_AND_FETCH, result, link);
    }

    /// Gives a slot to the driver by this command.
    fn give(&mut self, slot: u16, number: u32, result: i32, link: &mut dyn Link) {
        let command = DriverCommand {
            slot,
            number,
            bytes: wire::encode_command(slot, result),
        };
        self.set(slot, Slot::Driver(command));
        link.command(command);
    }

    /// A command is back without a request. `result`: a negative errno.
    fn returned(&mut self, slot: u16, result: i32, link: &mut dyn Link) {
        let state = match self.slot(slot).copied() {
            Some(Slot::Driver(command)) if is_passing(result) => Slot::Refused(command),
            _ => Slot::Ended,
        };
        self.set(slot, state);
        if result != RESULT_ENDED {
            self.refused.note(-result);
            if state == Slot::Ended {
                self.lost = -result;
            }
        }
        if self.slots.iter().all(|slot| *slot == Slot::Ended) {
            link.nudge(link.number(), Nudge::End);
        }
    }

    /// Gives the driver again what it did not take.
    fn give_again(&mut self, link: &mut dyn Link) {
        for state in &mut self.slots {
            if let Slot::Refused(command) = *state {
                *state = Slot::Driver(command);
                self.refused.note(self.lost);
                link.command(command);
            }
        }
    }

    /// Begins a slot's request, or has it wait.
    fn begin(&mut self, slot: u16, request: Request, link: &mut dyn Link) {
        match self.try_begin(slot, &request, link) {
            Ok(()) => {}
            Err(Hurdle::Refused(errno)) => self.answer(slot, errno, link),
            Err(hurdle) => {
                self.set(slot, Slot::Waiting(request));
                self.waiting.push_back(slot);
                await_end(&hurdle, link);
            }
        }
    }

    fn try_begin(
        &mut self,
        slot: u16,
        request: &Request,
        link: &mut dyn Link,
    ) -> Result<(), Hurdle> {
        let op = self.operation(request)?;
        if link.full() {
            return Err(Hurdle::Turn);
        }
        let buf = match op {
            RequestOp::Read | RequestOp::Write => {
                let bytes = u32::try_from(request.bytes).map_err(|_| refused(libc::EINVAL))?;
                Some(link.buffer(bytes).ok_or(Hurdle::Memory)?)
            }
            _ => None,
        };
        if let (RequestOp::Write, Some(buf)) = (op, buf)
            && let Err(error) = self.device.take(slot, &link.piece(buf))
        {
            link.release(buf);
            return Err(refused(errno_of(&error)));
        }
        self.set(slot, Slot::Engine(*request, buf));
        link.submit(Ask {
            tag: u64::from(slot),
            export: self.export,
            op,
            offset: request.offset,
            bytes: request.bytes,
            buf,
            fua: request.fua,
        });
        Ok(())
    }

    /// What the engine is to do, if it may.
    fn operation(&self, request: &Request) -> Result<RequestOp, Hurdle> {
        let op = match request.operation {
            Operation::Read => RequestOp::Read,
            Operation::Write => RequestOp::Write,
            Operation::Flush => return Ok(RequestOp::Flush),
            Operation::Discard => RequestOp::Trim,
            Operation::WriteZeroes => RequestOp::WriteZeroes { fast: false },
            Operation::Unknown(_) => return Err(refused(libc::EOPNOTSUPP)),
        };
        let with_data = matches!(op, RequestOp::Read | RequestOp::Write);
        let longest = u64::from(wire::REQUEST_BYTES_MAX);
        match request.bytes {
            _ if self.setup.read_only && op != RequestOp::Read => Err(refused(libc::EPERM)),
            0 => Err(refused(libc::EINVAL)),
            bytes if with_data && bytes > longest => Err(refused(libc::EINVAL)),
            _ => Ok(op),
        }
    }

    /// Begins what waits, the first first, until something has to wait on.
    fn resume(&mut self, link: &mut dyn Link) {
        while let Some(slot) = self.waiting.front().copied() {
            let Some(Slot::Waiting(request)) = self.slot(slot).copied() else {
                self.waiting.pop_front();
                continue;
            };
            match self.try_begin(slot, &request, link) {
                Ok(()) => {}
                Err(Hurdle::Refused(errno)) => self.answer(slot, errno, link),
                Err(hurdle) => return await_end(&hurdle, link),
            }
            self.waiting.pop_front();
        }
    }

    /// Whether the answer to a request is left to the daemon that serves the array next.
    fn is_left(&self, result: Result<(), RequestError>, link: &dyn Link) -> bool {
        let export = || link.export(self.export);
        result == Err(RequestError::Unavailable) && export().is_none_or(|export| !export.serving)
    }

    /// The answer to a request that was done.
    fn result(&self, slot: u16, request: &Request, buf: Option<&Piece>) -> i32 {
        let given = match (request.operation, buf) {
            (Operation::Read, Some(piece)) => self.device.give(slot, piece),
            _ => Ok(()),
        };
        match given {
            // Of the other operations the driver wants no count.
            Ok(()) => buf.map_or(0, |_| i32::try_from(request.bytes).unwrap_or(-libc::EIO)),
            Err(error) => -errno_of(&error),
        }
    }
}

/// Whether a command was refused by the ring or the driver for a reason that passes.
fn is_passing(result: i32) -> bool {
    let passing = [libc::EAGAIN, libc::EINTR, libc::ENOMEM, libc::ECANCELED];
    passing.contains(&-result)
}

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

fn refused(errno: i32) -> Hurdle {
    Hurdle::Refused(-errno)
}

fn await_end(hurdle: &Hurdle, link: &mut dyn Link) {
    match hurdle {
        Hurdle::Turn => link.await_turn(),
        Hurdle::Memory => link.await_memory(),
        Hurdle::Refused(_) => {}
    }
}

/// The errors of Linux have the numbers of the same in NBD, but for those that NBD adds.
fn errno(error: RequestError) -> i32 {
    match Errno::from(error) {
        Errno::NotPermitted => libc::EPERM,
        Errno::NoSpace => libc::ENOSPC,
        Errno::NotSupported => libc::EOPNOTSUPP,
        Errno::Invalid => libc::EINVAL,
        _ => libc::EIO,
    }
}

impl Protocol for Queue {
    fn opened(&mut self, link: &mut dyn Link) {
        let mut exports = 0..link.exports();
        let named = |index: &usize| {
            link.view(*index)
                .is_some_and(|export| export.name == self.setup.array)
        };
        let Some(export) = exports.find(named) else {
            return link.nudge(link.number(), Nudge::End);
        };
        self.export = export;
        link.attach(export);
        for slot in 0..self.setup.depth {
            self.give(slot, FETCH, 0, link);
        }
    }

    /// There are no bytes.
    fn received(&mut self, bytes: &[u8], _link: &mut dyn Link) -> Received {
        Received {
            consumed: bytes.len(),
            then: Then::More,
        }
    }

    fn filled(&mut self, _link: &mut dyn Link) {}

    fn commanded(&mut self, slot: u16, result: i32, link: &mut dyn Link) {
        if result == RESULT_REQUEST {
            let descriptor = self.device.descriptor(slot);
            return match descriptor.map(|bytes| Request::decode(&bytes)) {
                Ok(Some(request)) if self.waiting.is_empty() => self.begin(slot, request, link),
                Ok(Some(request)) => {
                    self.set(slot, Slot::Waiting(request));
                    self.waiting.push_back(slot);
                }
                Ok(None) => self.answer(slot, -libc::EINVAL, link),
                Err(error) => self.answer(slot, -errno_of(&error), link),
            };
        }
        self.returned(slot, result, link);
    }

    fn replied(&mut self, tag: u64, result: Result<(), RequestError>, link: &mut dyn Link) {
        let slot = u16::try_from(tag).unwrap_or(u16::MAX);
        let Some(Slot::Engine(request, buf)) = self.slot(slot).copied() else {
            return;
        };
        let answer = match result {
            Ok(()) => {
                let piece = buf.map(|buf| link.piece(buf));
                Some(self.result(slot, &request, piece.as_ref()))
            }
            Err(_) if self.is_left(result, link) => None,
            Err(error) => Some(-errno(error)),
        };
        if let Some(buf) = buf {
            link.release(buf);
        }
        match answer {
            Some(answer) => self.answer(slot, answer, link),
            None => self.set(slot, Slot::Left(request)),
        }
    }

    fn memory(&mut self, link: &mut dyn Link) {
        self.resume(link);
    }

    /// The peer is the kernel of this machine.
    fn is_proven(&self) -> bool {
        true
    }

    fn patience(&self) -> Option<Nanos> {
        None
    }

    fn is_session(&self) -> bool {
        true
    }

    fn resends(&self) -> bool {
        true
    }

    fn second(&mut self, link: &mut dyn Link) -> bool {
        let serving = |link: &dyn Link| {
            let view = link.view(self.export);
            view.is_some_and(|export| export.serving)
        };
        let left = self.slots.iter().any(|slot| matches!(slot, Slot::Left(_)));
        if left && serving(link) {
            for (slot, state) in (0..).zip(&mut self.slots) {
                if let Slot::Left(request) = *state {
                    *state = Slot::Waiting(request);
                    self.waiting.push_back(slot);
                }
            }
            self.resume(link);
        }
        self.give_again(link);
        true
    }

    fn ended(&mut self, _link: &mut dyn Link) {
        self.alive = None;
    }
}
