//! Disks of virtual machines without a machine: one body over qemu-storage-daemon's export of a file and
//! over an array, through the library that qemu, libvirt and fio have for it.

mod turns;
mod vmm;

use crate::nbd_clients::array::{Array, wait_until};
use crate::nbd_clients::tools::{Folder, installed};
use crate::nbd_protocol::world::Random;
use blkio::{Blkio, Blkioq, Completion, MemoryRegion, ReqFlags};
use restripe_array::layout::{Level, Rotation};
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const RAID5: Level = Level::Raid5(Rotation::LeftSymmetric);
const MEBI: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

/// A driver's side: its memory, and its queues.
pub struct Client {
    queues: Vec<Blkioq>,
    region: MemoryRegion,
    blkio: Blkio,
}

impl Client {
    pub fn new(socket: &Path, queues: i32) -> blkio::Result<Client> {
        let mut blkio = Blkio::new("virtio-blk-vhost-user")?;
        blkio.set_str("path", &socket.display().to_string())?;
        blkio.connect()?;
        blkio.set_i32("num-queues", queues)?;
        let started = blkio.start()?;
        let region = blkio.alloc_mem_region(4 * MEBI as usize)?;
        blkio.map_mem_region(&region)?;
        Ok(Client {
            queues: started.queues,
            region,
            blkio,
        })
    }

    /// One that can be had within a while.
    fn within_patience(socket: &Path, queues: i32) -> Client {
        let begin = Instant::now();
        loop {
            match Client::new(socket, queues) {
                Ok(client) => return client,
                Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn capacity(&self) -> u64 {
        self.blkio.get_u64("capacity").expect("a disk has one")
    }

    fn memory(&mut self, at: usize, bytes: usize) -> &mut [u8] {
        assert!(at + bytes <= self.region.len);
        // SAFETY: the region is mapped and lives as long as this; nothing is in flight while a test looks
        // at it.
        unsafe { std::slice::from_raw_parts_mut((self.region.addr + at) as *mut u8, bytes) }
    }

    fn at(&self, at: usize) -> *mut u8 {
        (self.region.addr + at) as *mut u8
    }

    /// Waits for `count` answers of a queue, and returns the request and the result of each.
    fn answers(&mut self, queue: usize, count: usize) -> Vec<(usize, i32)> {
        let mut done: Vec<_> = (0..count)
            .map(|_| MaybeUninit::<Completion>::uninit())
            .collect();
        let mut patience = PATIENCE;
        let got = self.queues[queue].do_io(&mut done, count, Some(&mut patience), None);
        assert_eq!(got.expect("answers in time"), count);
        // SAFETY: as many were filled in.
        let done = done.iter().map(|one| unsafe { one.assume_init_ref() });
        done.map(|one| (one.user_data, one.ret)).collect()
    }

    fn one(&mut self, queue: usize) -> i32 {
        self.answers(queue, 1)[0].1
    }

    fn write(&mut self, queue: usize, at: u64, byte: u8, bytes: usize) -> i32 {
        self.memory(0, bytes).fill(byte);
        let memory = self.at(0);
        self.queues[queue].write(at, memory, bytes, 0, ReqFlags::empty());
        self.one(queue)
    }

    /// Asserts that the bytes there are all this one.
    fn expect(&mut self, queue: usize, at: u64, byte: u8, bytes: usize) {
        self.memory(0, bytes).fill(!byte);
        let memory = self.at(0);
        self.queues[queue].read(at, memory, bytes, 0, ReqFlags::empty());
        assert_eq!(self.one(queue), 0);
        let found = self.memory(0, bytes);
        let wrong = found.iter().position(|found| *found != byte);
        assert_eq!(wrong, None, "of {bytes} bytes {byte:#x} at {at}");
    }

    fn flush(&mut self, queue: usize) -> i32 {
        self.queues[queue].flush(0, ReqFlags::empty());
        self.one(queue)
    }
}

/// What every such disk does.
fn body(socket: &Path) {
    let mut client = Client::within_patience(socket, 4);
    let capacity = client.capacity();
    assert!(capacity >= 8 * MEBI && capacity.is_multiple_of(512));
    for queue in 0..4 {
        let at = queue as u64 * MEBI;
        assert_eq!(client.write(queue, at, 0x11 + queue as u8, 256 * 1024), 0);
        assert_eq!(client.flush(queue), 0);
    }
    for queue in 0..4 {
        let other = 3 - queue;
        client.expect(queue, other as u64 * MEBI, 0x11 + other as u8, 256 * 1024);
    }
    // Sectors, not blocks.
    assert_eq!(client.write(0, 512, 0x5a, 1536), 0);
    client.expect(1, 0, 0x11, 512);
    client.expect(1, 512, 0x5a, 1536);
    client.expect(1, 2048, 0x11, 2048);
    many_at_once(&mut client);
    in_pieces(&mut client);
    client.queues[0].write_zeroes(MEBI, 128 * 1024, 0, ReqFlags::empty());
    assert_eq!(client.one(0), 0);
    client.expect(0, MEBI, 0, 128 * 1024);
    client.expect(0, MEBI + 128 * 1024, 0x12, 128 * 1024);
    client.queues[0].discard(2 * MEBI, 64 * 1024, 0, ReqFlags::empty());
    assert_eq!(client.one(0), 0);
    client.expect(0, 2 * MEBI + 64 * 1024, 0x13, 64 * 1024);
    // Beyond the end nothing is written, and the disk goes on.
    assert!(client.write(0, capacity, 1, 4096) != 0);
    assert!(client.write(0, capacity - 4096, 1, 8192) != 0);
    assert_eq!(client.write(0, capacity - 4096, 0x77, 4096), 0);
    drop(client);
    // Another VMM after the first.
    let mut client = Client::within_patience(socket, 1);
    client.expect(0, capacity - 4096, 0x77, 4096);
    client.expect(0, 3 * MEBI, 0x14, 256 * 1024);
}

/// Requests of all queues at the same time, to blocks of their own.
fn many_at_once(client: &mut Client) {
    const BLOCK: usize = 4096;
    const DEPTH: usize = 64;
    for queue in 0..4 {
        for slot in 0..DEPTH {
            let number = queue * DEPTH + slot;
            client.memory(number * BLOCK, BLOCK).fill(number as u8);
            let (at, memory) = (
                4 * MEBI + (number * BLOCK) as u64,
                client.at(number * BLOCK),
            );
            client.queues[queue].write(at, memory, BLOCK, slot, ReqFlags::empty());
        }
    }
    for queue in 0..4 {
        let mut done = client.answers(queue, DEPTH);
        done.sort_unstable();
        assert!(done.iter().enumerate().all(|(slot, one)| *one == (slot, 0)));
    }
    for number in 0..4 * DEPTH {
        let at = 4 * MEBI + (number * BLOCK) as u64;
        client.expect(number % 4, at, number as u8, BLOCK);
    }
}

/// A request whose data lies in many places.
fn in_pieces(client: &mut Client) {
    let piece = |client: &Client, index: usize| libc::iovec {
        iov_base: client.at(index * 8192).cast(),
        iov_len: 512,
    };
    let pieces: Vec<libc::iovec> = (0..64).map(|index| piece(client, index)).collect();
    for index in 0..64 {
        client.memory(index * 8192, 512).fill(index as u8);
    }
    let at = 6 * MEBI + 512;
    client.queues[0].writev(at, pieces.as_ptr(), 64, 0, ReqFlags::empty());
    assert_eq!(client.one(0), 0);
    for index in 0..64 {
        client.expect(0, at + index * 512, index as u8, 512);
    }
    client.memory(0, MEBI as usize).fill(0xff);
    client.queues[0].readv(at, pieces.as_ptr(), 64, 0, ReqFlags::empty());
    assert_eq!(client.one(0), 0);
    for index in 0..64 {
        let found = client.memory(index * 8192, 1024).to_vec();
        assert!(found[..512].iter().all(|byte| *byte == index as u8));
        assert!(
            found[512..].iter().all(|byte| *byte == 0xff),
            "not asked for"
        );
    }
}

struct StorageDaemon(Child);

impl Drop for StorageDaemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// qemu's own disk of a file.
fn storage_daemon(file: &Path, socket: &Path) -> StorageDaemon {
    let mut command = Command::new("qemu-storage-daemon");
    let node = format!(
        "driver=file,node-name=disk,filename={},discard=unmap",
        file.display()
    );
    let export = format!(
        "type=vhost-user-blk,id=export,node-name=disk,writable=on,num-queues=4,addr.type=unix,addr.path={}",
        socket.display()
    );
    command.args(["--blockdev", &node, "--export", &export]);
    StorageDaemon(command.spawn().expect("it is installed"))
}

#[test]
fn qemus_disk_passes_the_body() {
    if !installed(&["qemu-storage-daemon"]) {
        return;
    }
    let folder = Folder::new();
    let (file, socket) = (folder.file("disk"), folder.file("vhost"));
    let made = std::fs::File::create_new(&file).expect("a new file");
    made.set_len(16 * MEBI).expect("room");
    let _daemon = storage_daemon(&file, &socket);
    body(&socket);
}

#[test]
fn an_array_is_the_same_disk() {
    let array = Array::new(RAID5, 4);
    let socket = array.serve_vhost_user();
    body(&socket);
    array.fail(1);
    body(&socket);
}

#[test]
fn a_second_vmm_is_refused_and_the_first_goes_on() {
    let array = Array::new(RAID5, 3);
    let socket: PathBuf = array.serve_vhost_user();
    let mut first = Client::within_patience(&socket, 1);
    assert!(Client::new(&socket, 1).is_err(), "one VMM at a time");
    assert_eq!(first.write(0, 0, 7, 4096), 0);
    first.expect(0, 0, 7, 4096);
}

/// A guest whose 64 queues are never empty, of requests that are answered at once.
#[test]
fn a_flood_of_one_guest_leaves_others_their_turns() {
    let array = Array::new(RAID5, 3);
    let socket = UnixStream::connect(array.serve_vhost_user()).expect("a VMM's place");
    let vmm = vmm::Vmm::new(socket, vmm::Memory::new());
    vmm.begin(vmm::FEATURES);
    for queue in 0..64 {
        vmm.start(queue, 0);
        let head = vmm.memory.request(queue, 0, vmm::READ, u64::MAX, 512);
        (0..vmm::QUEUE_SIZE).for_each(|_| vmm.memory.offer(queue, head));
    }
    let (over, mut client) = (AtomicBool::new(false), array.remote().client(0));
    let begin = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for queue in 0..64 {
                    let index = vmm.memory.used(queue).wrapping_add(vmm::QUEUE_SIZE);
                    vmm.memory.set_available(queue, index);
                    vmm.kick(queue);
                }
            }
        });
        let read = |_| client.read(0, 4096).map(drop);
        let reads: Vec<_> = (0..100).map(read).collect();
        wait_until(|| vmm.memory.used(63) > 0);
        over.store(true, Ordering::Relaxed);
        assert!(reads.iter().all(Result::is_ok));
    });
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
}

#[test]
fn random_bytes_on_the_socket_disturb_no_other() {
    let array = Array::new(RAID5, 3);
    let (path, mut client) = (array.serve_vhost_user(), array.remote().client(0));
    let random = &mut Random::new(7);
    for _ in 0..100 {
        let mut socket = UnixStream::connect(&path).expect("it listens");
        let mut bytes = vec![0; 1 + random.below(200)];
        random.fill(&mut bytes);
        // A message of a known kind, and then whatever comes.
        bytes[0] = random.below(45) as u8;
        let head = [0, 0, 0, 1, 0, 0, 0, random.below(32) as u8, 0, 0, 0];
        let known = head.len().min(bytes.len() - 1);
        bytes[1..=known].copy_from_slice(&head[..known]);
        // It may have ended the connection.
        let _ = socket.write_all(&bytes);
        client.read(0, 4096).expect("it serves");
    }
    let mut disk = Client::within_patience(&path, 1);
    assert_eq!(disk.write(0, 0, 7, 4096), 0);
    disk.expect(0, 0, 7, 4096);
}
