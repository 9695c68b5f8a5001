//! One body of tests for both backends.

use super::*;
use crate::memory::Memory;
use std::io::{Read, Write};
use std::os::fd::RawFd;
use std::os::unix::net::{UnixListener, UnixStream};

/// Every backend that this machine has.
fn each(test: impl Fn(Box<dyn Backend>)) {
    test(open(BackendChoice::Threads).expect("threads are always there"));
    if let Ok(ring) = open(BackendChoice::Ring) {
        test(ring);
    }
}

fn result(backend: &mut dyn Backend, op: Op) -> i32 {
    one(backend, op).0
}

fn one(backend: &mut dyn Backend, op: Op) -> (i32, Vec<Piece>) {
    backend.submit(Token(7), op);
    let mut done = Vec::new();
    while done.is_empty() {
        backend.wait(None, &mut done).expect("waiting works");
    }
    assert_eq!((done.len(), done[0].token), (1, Token(7)));
    let done = done.remove(0);
    (done.result, done.pieces)
}

fn temporary() -> std::fs::File {
    let (process, thread) = (std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(format!("restripe-backend-{process}-{thread:?}"));
    let mut options = std::fs::File::options();
    let file = options.read(true).write(true).create(true).truncate(true);
    let file = file.open(&path);
    std::fs::remove_file(&path).expect("just made");
    file.expect("a temporary file")
}

fn piece(bytes: &[u8]) -> Piece {
    let memory = Memory::new(bytes.len());
    memory.fill(0, bytes);
    Piece::new(memory, 0, bytes.len() as u32)
}

fn socket(end: &UnixStream) -> Stream {
    Stream {
        fd: end.as_raw_fd(),
        socket: true,
    }
}

fn read_of(fd: RawFd, at: u64, pieces: Vec<Piece>, cached: bool) -> Op {
    Op::Read {
        fd,
        at,
        pieces,
        cached,
    }
}

#[test]
fn what_is_written_is_read_back() {
    each(|mut backend| {
        let file = temporary();
        let fd = file.as_raw_fd();
        let (at, bytes, durable) = (4096, 1024, true);
        let pieces = vec![piece(&[1; 512]), piece(&[2; 512])];
        let write = Op::Write {
            fd,
            at,
            pieces,
            durable,
        };
        assert_eq!(result(&mut *backend, write), 1024);
        assert_eq!(result(&mut *backend, Op::Sync { fd }), 0);
        let mut read = |at, cached| {
            let pieces = vec![piece(&[0; 512])];
            one(&mut *backend, read_of(fd, at, pieces, cached))
        };
        let (count, back) = read(at + 256, false);
        assert_eq!(count, 512);
        assert_eq!(back[0].slice(), [[1; 256], [2; 256]].concat());
        // A file system need not know what its page cache has.
        let (count, back) = read(at + 256, true);
        if count >= 0 {
            let count = count as usize;
            assert_eq!(
                back[0].slice()[..count],
                [[1; 256], [2; 256]].concat()[..count]
            );
        }
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let punch = Op::Allocate {
            fd,
            mode,
            at,
            bytes,
        };
        assert_eq!(result(&mut *backend, punch), 0);
        let pieces = vec![piece(&[9; 1024])];
        let (_, back) = one(&mut *backend, read_of(fd, at, pieces, false));
        assert_eq!(back[0].slice(), [0; 1024]);
    });
}

#[test]
fn a_bad_descriptor_is_a_result_not_a_panic() {
    each(|mut backend| {
        let (fd, how, at, bytes) = (-1, Erase::Discard, 0, 512);
        assert_eq!(result(&mut *backend, Op::Sync { fd }), -libc::EBADF);
        let discard = Op::Erase { fd, how, at, bytes };
        assert!(result(&mut *backend, discard) < 0);
    });
}

#[test]
fn sockets_send_receive_and_end() {
    each(|mut backend| {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let stream = socket(&ours);
        let pieces = vec![piece(b"hello "), piece(b"world")];
        assert_eq!(result(&mut *backend, Op::Send { stream, pieces }), 11);
        let mut text = [0; 11];
        theirs.read_exact(&mut text).expect("it was sent");
        assert_eq!(&text, b"hello world");
        theirs.write_all(b"abc").expect("room");
        let receive = || Op::Receive {
            stream,
            pieces: vec![piece(&[0; 8])],
        };
        let (count, back) = one(&mut *backend, receive());
        assert_eq!((count, &back[0].slice()[..3]), (3, &b"abc"[..]));
        drop(theirs);
        assert_eq!(result(&mut *backend, receive()), 0);
        let pieces = vec![piece(b"x")];
        let sent = result(&mut *backend, Op::Send { stream, pieces });
        assert_eq!(sent, -libc::EPIPE);
    });
}

#[test]
fn a_poll_ends_when_there_is_something_to_read() {
    each(|mut backend| {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let fd = ours.as_raw_fd();
        backend.submit(Token(1), Op::Poll { fd });
        let mut done = Vec::new();
        let short = Some(Duration::from_millis(20));
        backend.wait(short, &mut done).expect("waiting works");
        assert!(done.is_empty(), "there is nothing to read");
        theirs.write_all(b"x").expect("room");
        while done.is_empty() {
            backend.wait(None, &mut done).expect("waiting works");
        }
        assert_eq!(done[0].token, Token(1));
        assert!(done[0].result & i32::from(libc::POLLIN) != 0);
        let read = ours
            .set_nonblocking(true)
            .and_then(|()| (&ours).read(&mut [0; 8]));
        assert_eq!(read.expect("the byte"), 1, "a poll takes nothing");
        backend.submit(Token(2), Op::Poll { fd });
        backend.cancel(Token(2));
        done.clear();
        while done.is_empty() {
            backend.wait(None, &mut done).expect("waiting works");
        }
        assert_eq!(
            (done[0].token, done[0].result),
            (Token(2), -libc::ECANCELED)
        );
    });
}

#[test]
fn a_listener_accepts_and_a_cancelled_accept_comes_back() {
    each(|mut backend| {
        let name = format!("restripe-accept-{}-{}", std::process::id(), backend.name());
        let path = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&path).expect("a socket");
        let client = UnixStream::connect(&path).expect("it listens");
        std::fs::remove_file(&path).expect("just made");
        let fd = listener.as_raw_fd();
        let accepted = result(&mut *backend, Op::Accept { fd });
        assert!(accepted >= 0);
        // SAFETY: the kernel just made it for us.
        drop(unsafe { OwnedFd::from_raw_fd(accepted) });
        drop(client);
        backend.submit(Token(1), Op::Accept { fd });
        let mut done = Vec::new();
        let waited = backend.wait(Some(Duration::ZERO), &mut done);
        waited.expect("waiting works");
        assert!(done.is_empty());
        backend.cancel(Token(1));
        while done.is_empty() {
            backend.wait(None, &mut done).expect("waiting works");
        }
        let cancelled = (Token(1), -libc::ECANCELED);
        assert_eq!((done[0].token, done[0].result), cancelled);
        assert_eq!(backend.outstanding(), 0);
    });
}

#[test]
fn a_wake_from_another_thread_ends_a_wait() {
    each(|mut backend| {
        let waker = backend.waker();
        let other = std::thread::spawn(move || waker.wake());
        let mut done = Vec::new();
        backend.wait(None, &mut done).expect("waiting works");
        assert!(done.is_empty());
        other.join().expect("it only wakes");
        let waited = backend.wait(Some(Duration::ZERO), &mut done);
        waited.expect("waiting works");
    });
}

#[test]
fn more_operations_than_the_queue_holds_all_come_back() {
    each(|mut backend| {
        let file = temporary();
        file.set_len(1 << 20).expect("room");
        let fd = file.as_raw_fd();
        for i in 0..3000 {
            let (at, pieces) = ((i % 256) * 4096, vec![piece(&[1; 512])]);
            backend.submit(Token(i), read_of(fd, at, pieces, i.is_multiple_of(2)));
        }
        let mut done = Vec::new();
        while done.len() < 3000 {
            backend.wait(None, &mut done).expect("waiting works");
        }
        let mut tokens: Vec<_> = done.iter().map(|c| c.token.0).collect();
        tokens.sort_unstable();
        let wanted = |c: &Completion| c.result == 512 || c.token.0.is_multiple_of(2);
        assert!(tokens.iter().copied().eq(0..3000) && done.iter().all(wanted));
        assert_eq!(backend.outstanding(), 0);
    });
}
