//! The portable backend: devices on helper threads, sockets by `poll`.

use super::blocking::{Workers, accept, receive, send};
use super::{Backend, Completion, Op, Token, Waker, vectors};
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// Device operations that block at the same time.
const WORKERS_MAX: usize = 24;

/// What a system call says when it would have to wait.
const WOULD_BLOCK: i32 = -libc::EAGAIN;

pub struct Threads {
    workers: Workers,
    /// Socket operations that wait for their descriptor, in order of submission.
    waiting: Vec<(Token, Op)>,
    ready: Vec<Completion>,
    waker: Waker,
    polls: Vec<libc::pollfd>,
    iov: Vec<libc::iovec>,
}

// SAFETY: what is not `Send` by itself is `iov`, whose addresses are read only within the call that wrote
// them.
unsafe impl Send for Threads {}

impl Threads {
    pub fn new() -> io::Result<Threads> {
        let waker = Waker::new()?;
        let workers = Workers::new(WORKERS_MAX, waker.clone());
        Ok(Threads {
            workers,
            waiting: Vec::new(),
            ready: Vec::new(),
            waker,
            polls: Vec::new(),
            iov: Vec::new(),
        })
    }

    /// Does a socket operation if it need not wait; else keeps it.
    fn attempt(&mut self, token: Token, op: Op) {
        let (result, op) = self.attempt_now(op);
        if result == WOULD_BLOCK {
            self.waiting.push((token, op));
            return;
        }
        self.complete(token, result, op);
    }

    /// Reports the end of a socket operation, with its memory.
    fn complete(&mut self, token: Token, result: i32, op: Op) {
        let pieces = match op {
            Op::Receive { pieces, .. } | Op::Send { pieces, .. } => pieces,
            _ => Vec::new(),
        };
        self.ready.push(Completion {
            token,
            result,
            pieces,
        });
    }

    fn attempt_now(&mut self, op: Op) -> (i32, Op) {
        let result = match &op {
            Op::Receive { stream, pieces } => {
                vectors(pieces, &mut self.iov);
                receive(*stream, &mut self.iov, libc::MSG_DONTWAIT)
            }
            Op::Send { stream, pieces } => {
                vectors(pieces, &mut self.iov);
                send(*stream, &mut self.iov, libc::MSG_DONTWAIT)
            }
            Op::Accept { fd } => accept(*fd),
            Op::Poll { .. } => i32::from(libc::POLLIN),
            _ => unreachable!("device operations go to the workers"),
        };
        let again = matches!(-result, libc::EAGAIN | libc::EINTR);
        (if again { WOULD_BLOCK } else { result }, op)
    }

    fn poll(&mut self, timeout: i32) -> io::Result<()> {
        self.polls.clear();
        self.polls.push(polled(self.waker.raw(), libc::POLLIN));
        let waiting = self.waiting.iter().map(|(_, op)| interest(op));
        self.polls.extend(waiting);
        // SAFETY: the list is as long as said.
        let count = unsafe {
            let count = self.polls.len() as libc::nfds_t;
            libc::poll(self.polls.as_mut_ptr(), count, timeout)
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Tries every operation whose descriptor has something to say.
    fn serve_sockets(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        for (index, (token, op)) in waiting.into_iter().enumerate() {
            if self.polls[index + 1].revents != 0 {
                self.attempt(token, op);
            } else {
                self.waiting.push((token, op));
            }
        }
    }
}

fn interest(op: &Op) -> libc::pollfd {
    match op {
        Op::Receive { stream, .. } => polled(stream.fd, libc::POLLIN),
        Op::Send { stream, .. } => polled(stream.fd, libc::POLLOUT),
        Op::Accept { fd } | Op::Poll { fd } => polled(*fd, libc::POLLIN),
        _ => unreachable!("only socket operations wait"),
    }
}

fn polled(fd: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd {
        fd,
        events,
        revents: 0,
    }
}

/// Rounded up, so that a wait never ends just before its time.
fn millis(timeout: Option<Duration>) -> i32 {
    match timeout {
        None => -1,
        Some(time) => i32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX),
    }
}

impl Backend for Threads {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn submit(&mut self, token: Token, op: Op) {
        match op {
            Op::Send { stream, .. } if stream.socket => self.attempt(token, op),
            // Accepting and reading from a pipe would block if tried before a poll said so, which is all of
            // a poll.
            Op::Accept { .. } | Op::Receive { .. } | Op::Poll { .. } => {
                self.waiting.push((token, op));
            }
            device => self.workers.submit(token, device),
        }
    }

    fn cancel(&mut self, token: Token) {
        let Some(index) = self.waiting.iter().position(|(t, _)| *t == token) else {
            return;
        };
        let (token, op) = self.waiting.remove(index);
        self.complete(token, -libc::ECANCELED, op);
    }

    fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<Completion>) -> io::Result<()> {
        self.workers.collect(&mut self.ready);
        let timeout = match self.ready.is_empty() {
            true => millis(timeout),
            false => 0,
        };
        self.poll(timeout)?;
        if self.polls[0].revents != 0 {
            self.waker.drain();
        }
        self.serve_sockets();
        self.workers.collect(&mut self.ready);
        done.append(&mut self.ready);
        Ok(())
    }

    fn outstanding(&self) -> usize {
        self.workers.outstanding() + self.waiting.len() + self.ready.len()
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }
}
