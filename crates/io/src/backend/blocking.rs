//! Operations as blocking system calls, and the threads that make them.
//!
//! The portable backend runs all its device operations here; the ring only those that have no asynchronous
//! form.

use super::{Completion, Erase, Op, Token, Waker, message, outcome, power, vectors};
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// BLKDISCARD and BLKZEROOUT, which libc does not name: `_IO(0x12, 119)` and `_IO(0x12, 127)`.
const BLKDISCARD: libc::c_ulong = 0x1277;
const BLKZEROOUT: libc::c_ulong = 0x127f;

/// Does an operation on this thread; gives back its result and its memory.
pub(super) fn perform(op: Op, iov: &mut Vec<libc::iovec>) -> (i32, Vec<crate::memory::Piece>) {
    match op {
        Op::Read {
            fd,
            at,
            pieces,
            cached,
        } => {
            vectors(&pieces, iov);
            (read(fd, at, iov, cached), pieces)
        }
        Op::Write {
            fd,
            at,
            pieces,
            durable,
        } => {
            vectors(&pieces, iov);
            (write(fd, at, iov, durable), pieces)
        }
        Op::Sync { fd } => (sync(fd), Vec::new()),
        Op::Allocate {
            fd,
            mode,
            at,
            bytes,
        } => (allocate(fd, mode, at, bytes), Vec::new()),
        Op::Power { spindle, turns } => (power::tell(&spindle, turns), Vec::new()),
        Op::Erase { fd, how, at, bytes } => (erase(fd, how, at, bytes), Vec::new()),
        Op::Receive { stream, pieces } => {
            vectors(&pieces, iov);
            (receive(stream, iov, 0), pieces)
        }
        Op::Send { stream, pieces } => {
            vectors(&pieces, iov);
            (send(stream, iov, 0), pieces)
        }
        Op::Accept { fd } => (accept(fd), Vec::new()),
        Op::Command { .. } => (-libc::EOPNOTSUPP, Vec::new()),
        Op::Poll { .. } => unreachable!("a poll is no operation of a worker"),
    }
}

fn read(fd: RawFd, at: u64, iov: &[libc::iovec], cached: bool) -> i32 {
    let flags = if cached { libc::RWF_NOWAIT } else { 0 };
    // SAFETY: the vectors name memory that the operation's pieces keep alive.
    outcome(unsafe { libc::preadv2(fd, iov.as_ptr(), iov.len() as i32, at as i64, flags) })
}

fn write(fd: RawFd, at: u64, iov: &[libc::iovec], durable: bool) -> i32 {
    let flags = if durable { libc::RWF_DSYNC } else { 0 };
    // SAFETY: as in `read`.
    outcome(unsafe { libc::pwritev2(fd, iov.as_ptr(), iov.len() as i32, at as i64, flags) })
}

pub(super) fn sync(fd: RawFd) -> i32 {
    // SAFETY: no pointers are passed.
    outcome(unsafe { libc::fdatasync(fd) } as isize)
}

fn allocate(fd: RawFd, mode: i32, at: u64, bytes: u64) -> i32 {
    // SAFETY: no pointers are passed.
    outcome(unsafe { libc::fallocate(fd, mode, at as i64, bytes as i64) } as isize)
}

fn erase(fd: RawFd, how: Erase, at: u64, bytes: u64) -> i32 {
    let request = match how {
        Erase::Discard => BLKDISCARD,
        Erase::ZeroOut => BLKZEROOUT,
    };
    let range: [u64; 2] = [at, bytes];
    // SAFETY: both requests read two 64-bit numbers.
    outcome(unsafe { libc::ioctl(fd, request as _, range.as_ptr()) } as isize)
}

/// Receives what is there; `flags` may ask not to wait.
pub(super) fn receive(stream: super::Stream, iov: &mut [libc::iovec], flags: i32) -> i32 {
    if !stream.socket {
        // SAFETY: the vectors name memory that the operation's pieces keep alive.
        return outcome(unsafe { libc::readv(stream.fd, iov.as_ptr(), iov.len() as i32) });
    }
    let mut header = message(iov);
    // SAFETY: the header and its vectors live through the call.
    outcome(unsafe { libc::recvmsg(stream.fd, &mut header, flags) })
}

pub(super) fn send(stream: super::Stream, iov: &mut [libc::iovec], flags: i32) -> i32 {
    if !stream.socket {
        // SAFETY: as in `receive`.
        return outcome(unsafe { libc::writev(stream.fd, iov.as_ptr(), iov.len() as i32) });
    }
    let header = message(iov);
    // SAFETY: as in `receive`.
    outcome(unsafe { libc::sendmsg(stream.fd, &header, flags | libc::MSG_NOSIGNAL) })
}

pub(super) fn accept(fd: RawFd) -> i32 {
    let (address, length) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: no address is asked for.
    outcome(unsafe { libc::accept4(fd, address, length, libc::SOCK_CLOEXEC) } as isize)
}

// --------------------------------------------------------------------------------------------------------
// workers

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Token, Op)>,
    idle: usize,
    closed: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
    done: Mutex<Vec<Completion>>,
    waker: Waker,
}

/// Most power commands that run at the same time. One may take a minute, so each has a thread of its own:
/// other commands and operations do not wait for it.
const TELLERS_MAX: usize = 128;

/// Threads that copy out of the page cache at the same time: as fast as the reactor passes the bytes on.
const COPIERS_MAX: usize = 2;

/// Threads that perform operations, others that tell spindles, and those that copy. A copy waits for no
/// device, so none is held up by a member that hangs.
pub(super) struct Workers {
    workers: Threads,
    tellers: Threads,
    copiers: Threads,
}

impl Workers {
    /// `limit` is the most threads that perform operations. Power commands and copies have threads of their
    /// own.
    pub fn new(limit: usize, waker: Waker) -> Workers {
        Workers {
            workers: Threads::new(limit, waker.clone()),
            tellers: Threads::new(TELLERS_MAX, waker.clone()),
            copiers: Threads::new(COPIERS_MAX, waker),
        }
    }

    pub fn outstanding(&self) -> usize {
        self.workers.outstanding + self.tellers.outstanding + self.copiers.outstanding
    }

    pub fn submit(&mut self, token: Token, op: Op) {
        match op {
            Op::Power { .. } => self.tellers.submit(token, op),
            Op::Read { cached: true, .. } => self.copiers.submit(token, op),
            _ => self.workers.submit(token, op),
        }
    }

    /// Takes what is done.
    pub fn collect(&mut self, into: &mut Vec<Completion>) {
        self.workers.collect(into);
        self.tellers.collect(into);
        self.copiers.collect(into);
    }
}

/// Threads that are started as they are needed.
struct Threads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    limit: usize,
    outstanding: usize,
}

/// Nothing that can panic runs under these locks, so a poisoned one still guards whole data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Threads {
    fn new(limit: usize, waker: Waker) -> Threads {
        let shared = Shared {
            queue: Mutex::default(),
            more: Condvar::new(),
            done: Mutex::default(),
            waker,
        };
        Threads {
            shared: Arc::new(shared),
            threads: Vec::new(),
            limit,
            outstanding: 0,
        }
    }

    fn submit(&mut self, token: Token, op: Op) {
        self.outstanding += 1;
        let mut queue = lock(&self.shared.queue);
        queue.waiting.push_back((token, op));
        let hungry = queue.waiting.len() > queue.idle && self.threads.len() < self.limit;
        drop(queue);
        if hungry {
            self.start_thread();
        }
        self.shared.more.notify_one();
    }

    /// With at least one thread running, failing to start another only means less concurrency.
    fn start_thread(&mut self) {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("restripe-worker".to_owned());
        match thread.spawn(move || work(&shared)) {
            Ok(thread) => self.threads.push(thread),
            Err(_) if !self.threads.is_empty() => {}
            Err(_) => self.perform_here(),
        }
    }

    /// Without any thread the operations are done in place: slow, but done.
    fn perform_here(&mut self) {
        let waiting: Vec<(Token, Op)> = lock(&self.shared.queue).waiting.drain(..).collect();
        let mut iov = Vec::new();
        for (token, op) in waiting {
            finish(&self.shared, token, perform(op, &mut iov));
        }
    }

    fn collect(&mut self, into: &mut Vec<Completion>) {
        if self.outstanding == 0 {
            return;
        }
        let mut done = lock(&self.shared.done);
        self.outstanding -= done.len();
        into.append(&mut done);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        lock(&self.shared.queue).closed = true;
        self.shared.more.notify_all();
        for thread in self.threads.drain(..) {
            // A worker that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}

fn work(shared: &Shared) {
    let mut iov = Vec::new();
    while let Some((token, op)) = next(shared) {
        finish(shared, token, perform(op, &mut iov));
    }
}

fn next(shared: &Shared) -> Option<(Token, Op)> {
    let mut queue = lock(&shared.queue);
    loop {
        if let Some(work) = queue.waiting.pop_front() {
            return Some(work);
        }
        if queue.closed {
            return None;
        }
        queue.idle += 1;
        let waited = shared.more.wait(queue);
        queue = waited.unwrap_or_else(PoisonError::into_inner);
        queue.idle -= 1;
    }
}

fn finish(shared: &Shared, token: Token, (result, pieces): (i32, Vec<crate::memory::Piece>)) {
    let mut done = lock(&shared.done);
    let first = done.is_empty();
    done.push(Completion {
        token,
        result,
        pieces,
    });
    drop(done);
    if first {
        shared.waker.wake();
    }
}
