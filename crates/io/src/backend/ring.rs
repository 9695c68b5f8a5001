//! The io_uring backend: one ring, used by the thread that made it.
//!
//! Each operation in flight has a slot that keeps its memory, its vectors and its message header at fixed
//! addresses until the kernel is done with them. The slot's number is the kernel's user data.

use super::blocking::{Workers, send};
use super::{Backend, Completion, Op, Stream, Token, Waker, message, vectors};
use crate::memory::Piece;
use io_uring::squeue::Entry;
use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode};
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

const ENTRIES: u32 = 1024;
const COMPLETIONS: u32 = 8192;

/// User data of the poll on the waker, and of cancellations.
const WAKER: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;

/// The offset that means "where the stream is".
const STREAM_POSITION: u64 = u64::MAX;

/// A send that had to wait goes on by itself until all is sent.
const SEND_FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;

/// IORING_RECVSEND_POLL_FIRST: wait for data before trying.
const POLL_FIRST: u16 = 1;

/// What an operation in flight needs to stay where it is.
struct Slot {
    token: Option<Token>,
    pieces: Vec<Piece>,
    iov: Vec<libc::iovec>,
    /// The socket that it receives from.
    receives_from: Option<RawFd>,
    /// A driver has it, and need not give it back.
    kept: bool,
    /// Boxed for its address: the list of slots may move.
    header: Box<libc::msghdr>,
}

pub struct Ring {
    ring: IoUring,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Entries that found the submission queue full.
    backlog: VecDeque<Entry>,
    waker: Waker,
    waker_armed: bool,
    /// For the operations that have no asynchronous form, and for copies.
    workers: Workers,
    /// Sends that were done at once, to be reported at the next wait.
    sent: Vec<Completion>,
    /// The wait before did not enter the kernel.
    rested: bool,
    iov: Vec<libc::iovec>,
    /// The kernel knows of receives that poll first.
    polls_first: bool,
    /// By descriptor: the last receive found nothing more. A hint; a wrong one costs a little time.
    drained: Vec<bool>,
}

/// The ring, and whether it has all that kernels from 6.1 on offer.
fn build() -> io::Result<(IoUring, bool)> {
    let lean = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_coop_taskrun()
        .setup_cqsize(COMPLETIONS)
        .build(ENTRIES);
    match lean {
        Ok(ring) => Ok((ring, true)),
        // Kernels before 6.1 know neither flag.
        Err(_) => {
            let mut plain = IoUring::builder();
            Ok((plain.setup_cqsize(COMPLETIONS).build(ENTRIES)?, false))
        }
    }
}

/// Whether this kernel has every operation that we submit.
fn complete(ring: &IoUring) -> io::Result<bool> {
    macro_rules! codes {
        ($($operation:ident)+) => { [$(opcode::$operation::CODE),+] };
    }
    let needed = codes! {
        Read Readv Write Writev Fsync Fallocate Recv RecvMsg Send SendMsg Accept PollAdd AsyncCancel
    };
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let params = ring.params();
    Ok(params.is_feature_ext_arg()
        && params.is_feature_nodrop()
        && needed.iter().all(|code| probe.is_supported(*code)))
}

impl Ring {
    pub fn new() -> io::Result<Ring> {
        let (ring, polls_first) = build()?;
        if !complete(&ring)? {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring lacks operations we need",
            ));
        }
        let waker = Waker::new()?;
        let workers = Workers::new(2, waker.clone());
        Ok(Ring {
            ring,
            slots: Vec::new(),
            free: Vec::new(),
            backlog: VecDeque::new(),
            waker,
            waker_armed: false,
            workers,
            sent: Vec::new(),
            rested: false,
            iov: Vec::new(),
            polls_first,
            drained: Vec::new(),
        })
    }

    /// Most sends fit the socket's buffer: one plain call then does them, and no completion has to be
    /// fetched. Gives back what has to wait.
    fn send_at_once(&mut self, token: Token, stream: Stream, pieces: Vec<Piece>) -> Option<Op> {
        vectors(&pieces, &mut self.iov);
        let result = send(stream, &mut self.iov, libc::MSG_DONTWAIT);
        if matches!(-result, libc::EAGAIN | libc::EINTR) {
            return Some(Op::Send { stream, pieces });
        }
        self.sent.push(Completion {
            token,
            result,
            pieces,
        });
        None
    }

    /// Whether a receive should wait for data rather than try: the last one emptied the socket.
    fn poll_first(&mut self, fd: RawFd) -> bool {
        self.polls_first && self.drained.get(fd as usize).copied().unwrap_or(false)
    }

    fn take_slot(&mut self, token: Token, pieces: Vec<Piece>) -> usize {
        let index = self.free.pop().unwrap_or_else(|| {
            let header = Box::new(message(&mut []));
            self.slots.push(Slot {
                token: None,
                pieces: Vec::new(),
                iov: Vec::new(),
                receives_from: None,
                kept: false,
                header,
            });
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        assert!(slot.token.is_none(), "a free slot is not in flight");
        slot.token = Some(token);
        slot.pieces = pieces;
        index
    }

    fn push(&mut self, entry: Entry) {
        if self.backlog.is_empty() && self.push_now(&entry) {
            return;
        }
        self.backlog.push_back(entry);
    }

    fn push_now(&mut self, entry: &Entry) -> bool {
        // SAFETY: what the entry points to lives in its slot (or outlives the ring) until the completion is
        // back.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    /// Moves the backlog into the queue, submitting as often as it fills up.
    fn flush_backlog(&mut self) -> io::Result<()> {
        while let Some(entry) = self.backlog.pop_front() {
            if !self.push_now(&entry) {
                self.backlog.push_front(entry);
                if !submitted(self.ring.submit())? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn arm_waker(&mut self) {
        if !self.waker_armed {
            let fd = Fd(self.waker.raw());
            let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true);
            self.push(poll.build().user_data(WAKER));
            self.waker_armed = true;
        }
    }

    fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let result = match timeout {
            None => self.ring.submit_and_wait(1),
            Some(time) => {
                let time = Timespec::from(time);
                let args = SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(1, &args)
            }
        };
        submitted(result).map(|_| ())
    }

    fn reap(&mut self, done: &mut Vec<Completion>) {
        let mut woken = false;
        // The iterator borrows the ring, and finishing a slot needs only the slots.
        let (slots, free, drained) = (&mut self.slots, &mut self.free, &mut self.drained);
        for entry in self.ring.completion() {
            match entry.user_data() {
                CANCEL => {}
                WAKER => {
                    woken = true;
                    self.waker_armed = cqueue::more(entry.flags());
                }
                index => {
                    let slot = &mut slots[index as usize];
                    if let Some(fd) = slot.receives_from.take() {
                        note_drained(drained, fd, !cqueue::sock_nonempty(entry.flags()));
                    }
                    free.push(index as usize);
                    done.push(finish(slot, entry.result()));
                }
            }
        }
        if woken {
            self.waker.drain();
        }
    }
}

fn note_drained(drained: &mut Vec<bool>, fd: RawFd, empty: bool) {
    let index = fd as usize;
    if drained.len() <= index {
        drained.resize(index + 1, false);
    }
    drained[index] = empty;
}

fn finish(slot: &mut Slot, result: i32) -> Completion {
    let token = slot.token.take();
    slot.kept = false;
    Completion {
        token: token.expect("the kernel completes each operation once"),
        result,
        pieces: std::mem::take(&mut slot.pieces),
    }
}

/// Whether a submission went through. A wait that timed out or was interrupted did; a full completion queue
/// did not, and clears by reaping.
fn submitted(result: io::Result<usize>) -> io::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR) => Ok(true),
            Some(libc::EBUSY | libc::EAGAIN) => Ok(false),
            _ => Err(error),
        },
    }
}

/// The entry for an operation whose memory lies in its slot.
fn entry(op: Shape, slot: &mut Slot) -> Entry {
    vectors(&slot.pieces, &mut slot.iov);
    let single = match slot.iov[..] {
        [v] => Some((v.iov_base.cast(), v.iov_len as u32)),
        _ => None,
    };
    let (iov, count) = (slot.iov.as_mut_ptr(), slot.iov.len() as u32);
    match (op, single) {
        (Shape::Read { fd, at }, Some((base, bytes))) => {
            opcode::Read::new(fd, base, bytes).offset(at).build()
        }
        (Shape::Read { fd, at }, None) => opcode::Readv::new(fd, iov, count).offset(at).build(),
        (Shape::Write { fd, at, flags }, Some((base, bytes))) => {
            let write = opcode::Write::new(fd, base, bytes).offset(at);
            write.rw_flags(flags).build()
        }
        (Shape::Write { fd, at, flags }, None) => {
            let write = opcode::Writev::new(fd, iov, count).offset(at);
            write.rw_flags(flags).build()
        }
        (Shape::Receive { fd, ioprio }, Some((base, bytes))) => {
            opcode::Recv::new(fd, base, bytes).ioprio(ioprio).build()
        }
        (Shape::Receive { fd, ioprio }, None) => {
            *slot.header = message(&mut slot.iov);
            let receive = opcode::RecvMsg::new(fd, &mut *slot.header);
            receive.ioprio(ioprio).build()
        }
        (Shape::Send { fd }, Some((base, bytes))) => {
            opcode::Send::new(fd, base, bytes).flags(SEND_FLAGS).build()
        }
        (Shape::Send { fd }, None) => {
            *slot.header = message(&mut slot.iov);
            let send = opcode::SendMsg::new(fd, &*slot.header);
            send.flags(SEND_FLAGS as u32).build()
        }
        (Shape::Plain(entry), _) => entry,
    }
}

/// An operation without its memory.
enum Shape {
    Read { fd: Fd, at: u64 },
    Write { fd: Fd, at: u64, flags: i32 },
    Receive { fd: Fd, ioprio: u16 },
    Send { fd: Fd },
    Plain(Entry),
}

fn shape(op: Op) -> (Shape, Vec<Piece>) {
    let write = |fd, at, flags| Shape::Write { fd, at, flags };
    let plain = |entry| (Shape::Plain(entry), Vec::new());
    match op {
        Op::Read { fd, at, pieces, .. } => (Shape::Read { fd: Fd(fd), at }, pieces),
        Op::Write {
            fd,
            at,
            pieces,
            durable,
        } => {
            let flags = if durable { libc::RWF_DSYNC } else { 0 };
            (write(Fd(fd), at, flags), pieces)
        }
        Op::Receive { stream, pieces } => {
            let (fd, at, ioprio) = (Fd(stream.fd), STREAM_POSITION, 0);
            match stream.socket {
                true => (Shape::Receive { fd, ioprio }, pieces),
                false => (Shape::Read { fd, at }, pieces),
            }
        }
        Op::Send { stream, pieces } if stream.socket => (Shape::Send { fd: Fd(stream.fd) }, pieces),
        Op::Send { stream, pieces } => (write(Fd(stream.fd), STREAM_POSITION, 0), pieces),
        Op::Sync { fd } => {
            let flags = io_uring::types::FsyncFlags::DATASYNC;
            plain(opcode::Fsync::new(Fd(fd)).flags(flags).build())
        }
        Op::Allocate {
            fd,
            mode,
            at,
            bytes,
        } => {
            let allocate = opcode::Fallocate::new(Fd(fd), bytes).offset(at);
            plain(allocate.mode(mode).build())
        }
        Op::Accept { fd } => {
            let accept = opcode::Accept::new(Fd(fd), std::ptr::null_mut(), std::ptr::null_mut());
            plain(accept.flags(libc::SOCK_CLOEXEC).build())
        }
        Op::Command { fd, number, bytes } => {
            plain(opcode::UringCmd16::new(Fd(fd), number).cmd(bytes).build())
        }
        Op::Poll { fd } => plain(opcode::PollAdd::new(Fd(fd), libc::POLLIN as u32).build()),
        Op::Erase { .. } | Op::Power { .. } => unreachable!("has no asynchronous form"),
    }
}

impl Backend for Ring {
    fn name(&self) -> &'static str {
        "ring"
    }

    /// Where this kernel's ring has not, the driver's own kernel is older than any with ublk.
    fn has_commands(&self) -> bool {
        true
    }

    fn submit(&mut self, token: Token, op: Op) {
        if let Op::Erase { .. } | Op::Power { .. } | Op::Read { cached: true, .. } = op {
            self.workers.submit(token, op);
            return;
        }
        let op = match op {
            Op::Send { stream, pieces } if stream.socket => {
                match self.send_at_once(token, stream, pieces) {
                    Some(op) => op,
                    None => return,
                }
            }
            op => op,
        };
        let kept = matches!(op, Op::Command { .. });
        let (mut shape, pieces) = shape(op);
        let index = self.take_slot(token, pieces);
        self.slots[index].kept = kept;
        if let Shape::Receive { fd, ioprio } = &mut shape {
            self.slots[index].receives_from = Some(fd.0);
            *ioprio = if self.poll_first(fd.0) { POLL_FIRST } else { 0 };
        }
        let entry = entry(shape, &mut self.slots[index]).user_data(index as u64);
        self.push(entry);
    }

    fn cancel(&mut self, token: Token) {
        let Some(index) = self.slots.iter().position(|slot| slot.token == Some(token)) else {
            return;
        };
        let cancel = opcode::AsyncCancel::new(index as u64).build();
        self.push(cancel.user_data(CANCEL));
    }

    fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<Completion>) -> io::Result<()> {
        if !self.sent.is_empty() && !self.rested {
            // Only every other wait, so that sends without end cannot keep the kernel's completions away.
            self.rested = true;
            done.append(&mut self.sent);
            return Ok(());
        }
        self.rested = false;
        self.arm_waker();
        self.flush_backlog()?;
        let before = done.len();
        done.append(&mut self.sent);
        self.workers.collect(done);
        let more = done.len() > before || !self.backlog.is_empty();
        self.enter(if more { Some(Duration::ZERO) } else { timeout })?;
        self.reap(done);
        self.workers.collect(done);
        Ok(())
    }

    fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len() + self.workers.outstanding() + self.sent.len()
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }
}

impl Drop for Ring {
    /// Cancels what is in flight and waits for it, so that the kernel is done with the memory. What does
    /// not come back in time keeps its memory for good.
    fn drop(&mut self) {
        let _ = self.flush_backlog();
        let (within, everything) = (Timespec::new().sec(2), CancelBuilder::any());
        let submitter = self.ring.submitter();
        let _ = submitter.register_sync_cancel(Some(within), everything);
        let mut done = Vec::new();
        for _ in 0..20 {
            let awaited = |slot: &Slot| slot.token.is_some() && !slot.kept;
            if !self.slots.iter().any(awaited) {
                return;
            }
            let _ = self.enter(Some(Duration::from_millis(100)));
            self.reap(&mut done);
        }
        for slot in self.slots.drain(..).filter(|slot| slot.token.is_some()) {
            std::mem::forget(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The probe is what decides; both outcomes are right, a panic or a half-working ring is not.
    #[test]
    fn a_ring_is_whole_or_refused() {
        match Ring::new() {
            Ok(ring) => assert_eq!(ring.outstanding(), 0),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
