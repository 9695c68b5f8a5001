//! A VMM small enough to do wrong what a real one does right: messages byte by byte, and rings by hand.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

pub mod message {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
}

/// Features: of version 1, with flushes and those of vhost-user.
pub const FEATURES: u64 = 1 << 32 | 1 << 30 | 1 << 9;
pub const EVENT_INDEX: u64 = 1 << 29;
/// MQ, REPLY_ACK, BACKEND_REQ, CONFIG and INFLIGHT_SHMFD.
const PROTOCOL: u64 = 1 | 1 << 3 | 1 << 5 | 1 << 9 | 1 << 12;

/// Kinds of requests.
pub const READ: u32 = 0;
pub const WRITE: u32 = 1;
pub const FLUSH: u32 = 4;
pub const GET_ID: u32 = 8;

pub const QUEUE_SIZE: u16 = 1024;
const QUEUES: usize = 64;
/// A queue's part of the memory, and where its rings begin there.
const QUEUE_BYTES: usize = 32 << 10;
const AVAILABLE_AT: usize = 16 << 10;
const USED_AT: usize = 20 << 10;
/// Behind the queues: a page for the ends of each request, and one for its data.
const DATA_AT: usize = QUEUES * QUEUE_BYTES;
const SLOT_BYTES: usize = 8192;
const MEMORY_BYTES: usize = DATA_AT + 256 * SLOT_BYTES;
/// Where the VMM says that it has the memory itself.
const USER: u64 = 0x7f00_0000_0000;

/// The guest's memory, which outlives a connection.
pub struct Memory {
    file: File,
    at: *mut u8,
}

// SAFETY: tests access it by atomic operations, or while nothing else does.
unsafe impl Send for Memory {}
// SAFETY: the same.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new() -> Arc<Memory> {
        // SAFETY: the name is a string that ends in zero.
        let fd = unsafe { libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: just made, with no other owner.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(MEMORY_BYTES as u64).expect("memory");
        let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of a file that is as long.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), MEMORY_BYTES, access, shared, fd, 0) };
        assert!(at != libc::MAP_FAILED);
        Arc::new(Memory {
            file,
            at: at.cast(),
        })
    }

    pub fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= MEMORY_BYTES);
        // SAFETY: within the mapping.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.at.add(at), bytes.len()) };
    }

    pub fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        assert!(at + N <= MEMORY_BYTES);
        // SAFETY: within the mapping.
        unsafe { self.at.add(at).cast::<[u8; N]>().read_unaligned() }
    }

    fn word(&self, at: usize) -> &AtomicU16 {
        assert!(at.is_multiple_of(2) && at + 2 <= MEMORY_BYTES);
        // SAFETY: within the mapping, and aligned.
        unsafe { &*self.at.add(at).cast::<AtomicU16>() }
    }

    fn descriptor(&self, queue: usize, index: u16, (at, bytes, flags): (u64, u32, u16)) {
        let place = queue * QUEUE_BYTES + 16 * usize::from(index);
        self.put(place, &at.to_le_bytes());
        self.put(place + 8, &bytes.to_le_bytes());
        self.put(place + 12, &flags.to_le_bytes());
        self.put(place + 14, &(index + 1).to_le_bytes());
    }

    /// A request of three descriptors in this place, whose first is the head of the chain.
    pub fn request(&self, queue: usize, slot: u16, kind: u32, sector: u64, data: u32) -> u16 {
        const NEXT: u16 = 1;
        const WRITABLE: u16 = 2;
        let (head, at) = (3 * slot, DATA_AT + usize::from(slot) * SLOT_BYTES);
        self.put(at, &kind.to_le_bytes());
        self.put(at + 8, &sector.to_le_bytes());
        self.put(at + 16, &[0xff]);
        let at = at as u64;
        let direction = if kind == WRITE { 0 } else { WRITABLE };
        self.descriptor(queue, head, (at, 16, NEXT));
        self.descriptor(queue, head + 1, (at + 4096, data, NEXT | direction));
        self.descriptor(queue, head + 2, (at + 16, 1, WRITABLE));
        head
    }

    pub fn status(&self, slot: u16) -> u8 {
        self.get::<1>(DATA_AT + usize::from(slot) * SLOT_BYTES + 16)[0]
    }

    /// Makes a chain available.
    pub fn offer(&self, queue: usize, head: u16) {
        let ring = queue * QUEUE_BYTES + AVAILABLE_AT;
        let index = self.word(ring + 2).load(Ordering::Acquire);
        let entry = ring + 4 + 2 * usize::from(index % QUEUE_SIZE);
        self.word(entry).store(head, Ordering::Release);
        self.set_available(queue, index.wrapping_add(1));
    }

    pub fn set_available(&self, queue: usize, index: u16) {
        let at = queue * QUEUE_BYTES + AVAILABLE_AT + 2;
        self.word(at).store(index, Ordering::SeqCst);
    }

    /// Wants a signal once this many chains were given back and one more.
    pub fn set_used_event(&self, queue: usize, index: u16) {
        let at = queue * QUEUE_BYTES + AVAILABLE_AT + 4 + 2 * usize::from(QUEUE_SIZE);
        self.word(at).store(index, Ordering::SeqCst);
    }

    pub fn used(&self, queue: usize) -> u16 {
        let at = queue * QUEUE_BYTES + USED_AT + 2;
        self.word(at).load(Ordering::Acquire)
    }

    /// The head and the length of a chain that was given back.
    pub fn used_entry(&self, queue: usize, index: u16) -> (u32, u32) {
        let entry = 8 * usize::from(index % QUEUE_SIZE);
        let at = queue * QUEUE_BYTES + USED_AT + 4 + entry;
        let word = |at| u32::from_le_bytes(self.get(at));
        (word(at), word(at + 4))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nothing uses any more.
        unsafe { libc::munmap(self.at.cast(), MEMORY_BYTES) };
    }
}

pub fn event() -> File {
    // SAFETY: no pointers are passed.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    assert!(fd >= 0);
    // SAFETY: just made, with no other owner.
    unsafe { File::from_raw_fd(fd) }
}

pub struct Vmm {
    pub socket: UnixStream,
    pub memory: Arc<Memory>,
    pub kicks: Vec<File>,
    pub calls: Vec<File>,
}

impl Vmm {
    pub fn new(socket: UnixStream, memory: Arc<Memory>) -> Vmm {
        Vmm {
            socket,
            memory,
            kicks: (0..QUEUES).map(|_| event()).collect(),
            calls: (0..QUEUES).map(|_| event()).collect(),
        }
    }

    pub fn send(&self, request: u32, body: &[u8], files: &[RawFd]) -> io::Result<()> {
        let words = [request, 1, body.len() as u32];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(body);
        send_with(&self.socket, &bytes, files)
    }

    /// The body of an answer, and the descriptor that came with it.
    pub fn answer(&self) -> (Vec<u8>, Option<OwnedFd>) {
        let mut header = [0u8; 12];
        let file = receive_with(&self.socket, &mut header).expect("an answer");
        let length = u32::from_le_bytes(header[8..].try_into().expect("four"));
        let mut body = vec![0; length as usize];
        (&self.socket).read_exact(&mut body).expect("all of it");
        (body, file)
    }

    /// What is sent to begin with.
    pub fn begin(&self, features: u64) {
        use message::*;
        let send = |request, body: &[u8]| self.send(request, body, &[]).expect("room");
        send(SET_OWNER, &[]);
        // The library takes features of the protocol only after this.
        send(GET_FEATURES, &[]);
        send(SET_FEATURES, &features.to_le_bytes());
        send(SET_PROTOCOL_FEATURES, &PROTOCOL.to_le_bytes());
        let region = [1, 0, MEMORY_BYTES as u64, USER, 0];
        let table: Vec<u8> = region.iter().flat_map(|word| word.to_le_bytes()).collect();
        let files = [self.memory.file.as_raw_fd()];
        self.send(SET_MEM_TABLE, &table, &files).expect("room");
    }

    pub fn start(&self, queue: usize, base: u16) {
        use message::*;
        let pair = |value: u32| {
            let words = [queue as u32, value];
            words.iter().flat_map(|word| word.to_le_bytes()).collect()
        };
        let send = |request, body: Vec<u8>| self.send(request, &body, &[]).expect("room");
        send(SET_VRING_NUM, pair(u32::from(QUEUE_SIZE)));
        send(SET_VRING_BASE, pair(u32::from(base)));
        let mut addresses: Vec<u8> = pair(0);
        let at = USER + (queue * QUEUE_BYTES) as u64;
        for address in [at, at + USED_AT as u64, at + AVAILABLE_AT as u64, 0] {
            addresses.extend(address.to_le_bytes());
        }
        send(SET_VRING_ADDR, addresses);
        let number = (queue as u64).to_le_bytes();
        let calls = [self.calls[queue].as_raw_fd()];
        self.send(SET_VRING_CALL, &number, &calls).expect("room");
        let kicks = [self.kicks[queue].as_raw_fd()];
        self.send(SET_VRING_KICK, &number, &kicks).expect("room");
        send(SET_VRING_ENABLE, pair(1));
    }

    pub fn kick(&self, queue: usize) {
        let kick = &mut &self.kicks[queue];
        kick.write_all(&1u64.to_ne_bytes()).expect("room");
    }

    /// Whether the driver of a queue was signalled since the last call.
    pub fn is_called(&self, queue: usize) -> bool {
        (&self.calls[queue]).read_exact(&mut [0; 8]).is_ok()
    }

    /// One queue of requests in flight: how it is named, and its memory.
    pub fn get_inflight(&self) {
        let mut body = vec![0; 16];
        body.extend(1u16.to_le_bytes());
        body.extend(QUEUE_SIZE.to_le_bytes());
        let body = padded(body);
        self.send(message::GET_INFLIGHT_FD, &body, &[])
            .expect("room");
    }

    pub fn set_inflight(&self, named: &[u8], file: &OwnedFd) {
        let files = [file.as_raw_fd()];
        self.send(message::SET_INFLIGHT_FD, named, &files)
            .expect("room");
    }

    /// Asks for the first bytes of the configuration space.
    pub fn get_config(&self) {
        let mut body: Vec<u8> = [0u32, 60, 0]
            .iter()
            .flat_map(|it| it.to_le_bytes())
            .collect();
        body.extend([0; 60]);
        self.send(message::GET_CONFIG, &body, &[]).expect("room");
    }
}

/// The body of a message about requests in flight has 20 bytes, and 4 more in the library's own form.
fn padded(mut body: Vec<u8>) -> Vec<u8> {
    body.resize(24, 0);
    body
}

pub fn send_with(socket: &UnixStream, bytes: &[u8], files: &[RawFd]) -> io::Result<()> {
    let mut vector = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = [0u64; 40];
    // SAFETY: a header of zeros is a valid empty header.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    let length = size_of_val(files) as u32;
    if !files.is_empty() {
        header.msg_control = control.as_mut_ptr().cast();
        // SAFETY: computes a length; the buffer has room for 64 descriptors.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(length) } as _;
        // SAFETY: the buffer has room for the entry.
        unsafe {
            let entry = libc::CMSG_FIRSTHDR(&raw const header);
            (*entry).cmsg_level = libc::SOL_SOCKET;
            (*entry).cmsg_type = libc::SCM_RIGHTS;
            (*entry).cmsg_len = libc::CMSG_LEN(length) as _;
            let place = libc::CMSG_DATA(entry).cast::<RawFd>();
            std::ptr::copy_nonoverlapping(files.as_ptr(), place, files.len());
        }
    }
    let flags = libc::MSG_NOSIGNAL;
    // SAFETY: header, vector and buffers live until the call is over.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, flags) };
    match usize::try_from(sent) {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

fn receive_with(socket: &UnixStream, bytes: &mut [u8; 12]) -> io::Result<Option<OwnedFd>> {
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut control = [0u64; 4];
    // SAFETY: a header of zeros is a valid empty header.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: header, vector and buffers live until the call is over.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) };
    if count != bytes.len() as isize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // SAFETY: the kernel filled the buffer in; an entry has one descriptor, which is now ours.
    unsafe {
        let entry = libc::CMSG_FIRSTHDR(&raw const header);
        Ok((!entry.is_null()).then(|| {
            let fd = libc::CMSG_DATA(entry).cast::<RawFd>().read_unaligned();
            OwnedFd::from_raw_fd(fd)
        }))
    }
}
