//! The client that measures: a driver without a guest, with as many requests in flight as asked for.

use crate::rounds::{Addresses, Workload};
use blkio::{Blkio, Blkioq, Completion, MemoryRegion, ReqFlags};
use std::error::Error;
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

const PATIENCE: Duration = Duration::from_secs(20);

pub struct Disk {
    queue: Blkioq,
    region: MemoryRegion,
    /// The queue's: it goes last.
    _blkio: Blkio,
    workload: Workload,
    addresses: Addresses,
    done: Vec<MaybeUninit<Completion>>,
}

impl Disk {
    pub fn connect(socket: &Path, workload: Workload) -> Outcome<Disk> {
        let begin = Instant::now();
        let mut blkio = Blkio::new("virtio-blk-vhost-user")?;
        blkio.set_str("path", &socket.display().to_string())?;
        // The client before may not be gone yet.
        while let Err(error) = blkio.connect() {
            if begin.elapsed() > PATIENCE {
                return Err(error.into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut queues = blkio.start()?.queues;
        let region = blkio.alloc_mem_region(workload.depth as usize * workload.bytes as usize)?;
        blkio.map_mem_region(&region)?;
        // SAFETY: the region is mapped, and nothing is in flight.
        unsafe { std::ptr::write_bytes(region.addr as *mut u8, workload.byte, region.len) };
        let size_bytes = blkio.get_u64("capacity")?;
        Ok(Disk {
            queue: queues.pop().ok_or("no queue")?,
            region,
            _blkio: blkio,
            workload,
            addresses: Addresses::new(workload, size_bytes),
            done: (0..workload.depth).map(|_| MaybeUninit::uninit()).collect(),
        })
    }

    /// Keeps the server busy for `time`, and returns how many requests it answered.
    pub fn run(&mut self, time: Duration) -> Outcome<u64> {
        let begin = Instant::now();
        self.go(|_| begin.elapsed() < time)
    }

    /// Goes over every block once.
    pub fn fill(&mut self) -> Outcome<u64> {
        let blocks = self.addresses.blocks();
        self.go(|asked| asked < blocks)
    }

    /// Asks as long as it should, and waits for all answers.
    fn go(&mut self, mut more: impl FnMut(u64) -> bool) -> Outcome<u64> {
        let mut free: Vec<usize> = (0..self.workload.depth as usize).collect();
        let (mut asked, mut answered) = (0, 0);
        loop {
            while !free.is_empty() && more(asked) {
                self.ask(free.pop().unwrap_or_default());
                asked += 1;
            }
            if asked == answered {
                return Ok(answered);
            }
            let mut patience = PATIENCE;
            let count = self
                .queue
                .do_io(&mut self.done, 1, Some(&mut patience), None)?;
            for done in &self.done[..count] {
                // SAFETY: as many were filled in.
                let done = unsafe { done.assume_init_ref() };
                if done.ret != 0 {
                    return Err(format!("a request failed: {}", done.ret).into());
                }
                free.push(done.user_data);
            }
            answered += count as u64;
        }
    }

    fn ask(&mut self, slot: usize) {
        let bytes = self.workload.bytes as usize;
        let memory = (self.region.addr + slot * bytes) as *mut u8;
        let (at, flags) = (self.addresses.next(), ReqFlags::empty());
        match self.workload.write {
            true => self.queue.write(at, memory, bytes, slot, flags),
            false => self.queue.read(at, memory, bytes, slot, flags),
        }
    }
}
