//! One body of tests for both backends.

use super::*;
use crate::memory::Memory;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

/// Every backend that this machine has.
fn each(test: impl Fn(Box<dyn Backend>)) {
    test(open(BackendChoice::Threads).expect("threads are always there"));
    if let Ok(ring) = open(BackendChoice::Ring) {
        test(ring);
    }
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
    let path = std::env::temp_dir().join(format!(
        "restripe-backend-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path);
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

#[test]
fn what_is_written_is_read_back() {
    each(|mut backend| {
        let file = temporary();
        let fd = file.as_raw_fd();
        let pieces = vec![piece(&[1; 512]), piece(&[2; 512])];
        assert_eq!(
            one(
                &mut *backend,
                Op::Write {
                    fd,
                    at: 4096,
                    pieces,
                    durable: true
                }
            )
            .0,
            1024
        );
        assert_eq!(one(&mut *backend, Op::Sync { fd }).0, 0);
        let (count, back) = one(
            &mut *backend,
            Op::Read {
                fd,
                at: 4096 + 256,
                pieces: vec![piece(&[0; 512])],
            },
        );
        assert_eq!(count, 512);
        assert!(
            back[0].slice()[..256].iter().all(|b| *b == 1)
                && back[0].slice()[256..].iter().all(|b| *b == 2)
        );
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        assert_eq!(
            one(
                &mut *backend,
                Op::Allocate {
                    fd,
                    mode,
                    at: 4096,
                    bytes: 1024
                }
            )
            .0,
            0
        );
        let (_, back) = one(
            &mut *backend,
            Op::Read {
                fd,
                at: 4096,
                pieces: vec![piece(&[9; 1024])],
            },
        );
        assert!(back[0].slice().iter().all(|b| *b == 0));
    });
}

#[test]
fn a_bad_descriptor_is_a_result_not_a_panic() {
    each(|mut backend| {
        assert_eq!(one(&mut *backend, Op::Sync { fd: -1 }).0, -libc::EBADF);
        assert!(
            one(
                &mut *backend,
                Op::Erase {
                    fd: -1,
                    how: Erase::Discard,
                    at: 0,
                    bytes: 512
                }
            )
            .0 < 0
        );
    });
}

#[test]
fn sockets_send_receive_and_end() {
    each(|mut backend| {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let pieces = vec![piece(b"hello "), piece(b"world")];
        assert_eq!(
            one(
                &mut *backend,
                Op::Send {
                    stream: socket(&ours),
                    pieces
                }
            )
            .0,
            11
        );
        let mut text = [0; 11];
        theirs.read_exact(&mut text).expect("it was sent");
        assert_eq!(&text, b"hello world");
        theirs.write_all(b"abc").expect("room");
        let (count, back) = one(
            &mut *backend,
            Op::Receive {
                stream: socket(&ours),
                pieces: vec![piece(&[0; 8])],
            },
        );
        assert_eq!((count, &back[0].slice()[..3]), (3, &b"abc"[..]));
        drop(theirs);
        assert_eq!(
            one(
                &mut *backend,
                Op::Receive {
                    stream: socket(&ours),
                    pieces: vec![piece(&[0; 8])]
                }
            )
            .0,
            0
        );
        assert_eq!(
            one(
                &mut *backend,
                Op::Send {
                    stream: socket(&ours),
                    pieces: vec![piece(b"x")]
                }
            )
            .0,
            -libc::EPIPE
        );
    });
}

#[test]
fn a_listener_accepts_and_a_cancelled_accept_comes_back() {
    each(|mut backend| {
        let path = std::env::temp_dir().join(format!(
            "restripe-accept-{}-{}",
            std::process::id(),
            backend.name()
        ));
        let listener = UnixListener::bind(&path).expect("a socket");
        let client = UnixStream::connect(&path).expect("it listens");
        std::fs::remove_file(&path).expect("just made");
        let (fd, _) = one(
            &mut *backend,
            Op::Accept {
                fd: listener.as_raw_fd(),
            },
        );
        assert!(fd >= 0);
        // SAFETY: the kernel just made it for us.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
        drop(client);
        backend.submit(
            Token(1),
            Op::Accept {
                fd: listener.as_raw_fd(),
            },
        );
        let mut done = Vec::new();
        backend
            .wait(Some(Duration::ZERO), &mut done)
            .expect("waiting works");
        assert!(done.is_empty());
        backend.cancel(Token(1));
        while done.is_empty() {
            backend.wait(None, &mut done).expect("waiting works");
        }
        assert_eq!(
            (done[0].token, done[0].result),
            (Token(1), -libc::ECANCELED)
        );
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
        backend
            .wait(Some(Duration::ZERO), &mut done)
            .expect("waiting works");
    });
}

#[test]
fn more_operations_than_the_queue_holds_all_come_back() {
    each(|mut backend| {
        let file = temporary();
        file.set_len(1 << 20).expect("room");
        let fd = file.as_raw_fd();
        for i in 0..3000 {
            backend.submit(
                Token(i),
                Op::Read {
                    fd,
                    at: (i % 256) * 4096,
                    pieces: vec![piece(&[1; 512])],
                },
            );
        }
        let mut done = Vec::new();
        while done.len() < 3000 {
            backend.wait(None, &mut done).expect("waiting works");
        }
        let mut tokens: Vec<_> = done.iter().map(|c| c.token.0).collect();
        tokens.sort_unstable();
        assert!(tokens.iter().copied().eq(0..3000) && done.iter().all(|c| c.result == 512));
        assert_eq!(backend.outstanding(), 0);
    });
}
