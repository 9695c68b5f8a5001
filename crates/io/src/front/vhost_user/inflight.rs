//! Requests in flight, in memory that outlives this process (vhost-user's inflight I/O tracking, split
//! queues).
//!
//! The VMM keeps the memory. After a kill of this process it passes the memory to the next one, which does
//! again what the driver was not answered: in the order in which it was begun.

use super::limits::{Guest, QUEUE_SIZE_MAX, QUEUES_MAX};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use vhost::vhost_user::message::VhostUserInflight;
use vm_memory::{Bytes, FileOffset, GuestAddress};

/// Bytes of the header of a queue's part, and of the entry of a descriptor.
const HEADER_BYTES: u64 = 16;
const ENTRY_BYTES: u64 = 16;
/// Each queue's part begins at a multiple of it.
const ALIGNMENT: u64 = 64;

/// Fields of a queue's part.
const VERSION_AT: u64 = 8;
const COUNT_AT: u64 = 10;
const LAST_BATCH_AT: u64 = 12;
const USED_AT: u64 = 14;
/// Fields of an entry.
const NEXT_AT: u64 = 6;
const COUNTER_AT: u64 = 8;

const VERSION: u16 = 1;

/// Behind the last queue's part: how writes are answered, in the lowest byte. The VMM sends that once.
const MODE_BYTES: u64 = 64;
const MODE: u64 = u64::from_be_bytes(*b"RESTRWC\0");
const WRITE_THROUGH: u64 = 1;
const WRITE_BACK: u64 = 2;

/// The memory of all queues.
pub(crate) struct Inflight {
    memory: Guest,
    queue_size: u16,
    queues: u16,
    /// Whether there is room for the mode.
    has_mode: bool,
}

/// The part of one queue.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    memory: &'a Guest,
    at: u64,
    count: u16,
}

/// Whether a file that is to be mapped has these bytes: an access beyond its end would end the process.
pub(crate) fn check_bytes(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let metadata = file.metadata()?;
    let end = offset.checked_add(bytes);
    match !metadata.is_file() || end.is_some_and(|end| end <= metadata.len()) {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Has a file in memory stay as long as it is.
fn seal(file: &File) -> io::Result<()> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: no pointers are passed.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether it cannot be cut short.
fn is_sealed(file: &File) -> bool {
    // SAFETY: no pointers are passed.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

fn part_bytes(queue_size: u16) -> u64 {
    (HEADER_BYTES + ENTRY_BYTES * u64::from(queue_size)).next_multiple_of(ALIGNMENT)
}

impl Inflight {
    /// Fresh memory for these queues, and how it is named to the VMM.
    pub(crate) fn create(wanted: &VhostUserInflight) -> io::Result<(VhostUserInflight, File)> {
        let (queues, queue_size) = (wanted.num_queues, wanted.queue_size);
        let bytes = part_bytes(queue_size) * u64::from(queues) + MODE_BYTES;
        // SAFETY: the name is a string that ends in zero.
        let fd = unsafe {
            let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
            libc::memfd_create(c"restripe-inflight".as_ptr(), flags)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, with no other owner.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(bytes)?;
        seal(&file)?;
        let named = VhostUserInflight {
            mmap_size: bytes,
            mmap_offset: 0,
            num_queues: queues,
            queue_size,
        };
        let inflight = Inflight::map(&named, file.try_clone()?)?;
        for queue in 0..queues {
            if let Some(part) = inflight.part(queue, queue_size) {
                part.put(VERSION_AT, VERSION);
                part.put(COUNT_AT, queue_size);
            }
        }
        Ok((named, file))
    }

    /// The memory that a VMM passes.
    pub(crate) fn map(named: &VhostUserInflight, file: File) -> io::Result<Inflight> {
        let (queues, queue_size) = (named.num_queues, named.queue_size);
        let bytes = part_bytes(queue_size) * u64::from(queues);
        let sound = (1..=QUEUES_MAX).contains(&queues)
            && (1..=QUEUE_SIZE_MAX).contains(&queue_size)
            && named.mmap_size >= bytes;
        if !sound {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let has_mode = named.mmap_size >= bytes + MODE_BYTES;
        let bytes = bytes + if has_mode { MODE_BYTES } else { 0 };
        if !is_sealed(&file) {
            seal(&file)?;
        }
        check_bytes(&file, named.mmap_offset, bytes)?;
        let file = FileOffset::new(file, named.mmap_offset);
        let range = (GuestAddress(0), bytes as usize, Some(file));
        let memory = Guest::from_ranges_with_files([range]).map_err(io::Error::other)?;
        Ok(Inflight {
            memory,
            queue_size,
            queues,
            has_mode,
        })
    }

    fn mode_at(&self) -> GuestAddress {
        GuestAddress(part_bytes(self.queue_size) * u64::from(self.queues))
    }

    /// Keeps for the next process whether writes are answered before they are durable.
    pub(crate) fn keep_writeback(&self, writeback: bool) {
        let mode = MODE | if writeback { WRITE_BACK } else { WRITE_THROUGH };
        if self.has_mode {
            let _ = self.memory.store(mode, self.mode_at(), Ordering::SeqCst);
        }
    }

    /// Whether writes are answered before they are durable; in fresh memory, `fresh`. Memory that cannot say
    /// is another program's: then they are not.
    pub(crate) fn writeback(&self, fresh: bool) -> bool {
        let mode = self.memory.load::<u64>(self.mode_at(), Ordering::SeqCst);
        match mode.ok().filter(|_| self.has_mode) {
            Some(0) => fresh,
            Some(mode) => mode == MODE | WRITE_BACK,
            None => false,
        }
    }

    /// The part of a queue of `size` descriptors, if there is room for as many.
    pub(crate) fn part(&self, queue: u16, size: u16) -> Option<Part<'_>> {
        let at = part_bytes(self.queue_size) * u64::from(queue);
        (queue < self.queues && size <= self.queue_size).then_some(Part {
            memory: &self.memory,
            at,
            count: size,
        })
    }
}

impl Part<'_> {
    fn put(&self, at: u64, value: u16) {
        let at = GuestAddress(self.at + at);
        // The part lies within the mapping.
        let _ = self.memory.store(value, at, Ordering::SeqCst);
    }

    fn get(&self, at: u64) -> u16 {
        let at = GuestAddress(self.at + at);
        self.memory.load(at, Ordering::SeqCst).unwrap_or(0)
    }

    fn entry(head: u16) -> u64 {
        HEADER_BYTES + ENTRY_BYTES * u64::from(head)
    }

    fn mark(&self, head: u16, in_flight: bool) {
        let at = GuestAddress(self.at + Part::entry(head));
        let _ = self.memory.store(u8::from(in_flight), at, Ordering::SeqCst);
    }

    fn counter(&self, head: u16) -> u64 {
        let at = GuestAddress(self.at + Part::entry(head) + COUNTER_AT);
        self.memory.load(at, Ordering::SeqCst).unwrap_or(0)
    }

    /// A chain was taken from the queue.
    pub(crate) fn begin(&self, head: u16, counter: u64) {
        let at = GuestAddress(self.at + Part::entry(head) + COUNTER_AT);
        let _ = self.memory.store(counter, at, Ordering::SeqCst);
        self.mark(head, true);
    }

    /// A chain is not done again.
    pub(crate) fn forget(&self, head: u16) {
        self.mark(head, false);
    }

    /// Called before a chain is put into the used ring.
    pub(crate) fn before_used(&self, head: u16) {
        self.put(Part::entry(head) + NEXT_AT, self.get(LAST_BATCH_AT));
        self.put(LAST_BATCH_AT, head);
    }

    /// Called after a chain was put there, whose index is `used` now.
    pub(crate) fn after_used(&self, head: u16, used: u16) {
        self.mark(head, false);
        self.put(USED_AT, used);
    }

    /// The chains that were in flight when another process ended, the first first, and a counter beyond
    /// theirs.
    /// `used`: the index of the used ring.
    pub(crate) fn recover(&self, used: u16) -> (Vec<u16>, u64) {
        if self.get(USED_AT) != used {
            // The end came between the two steps for the last chain.
            let last = self.get(LAST_BATCH_AT);
            if last < self.count {
                self.mark(last, false);
            }
            self.put(USED_AT, used);
        }
        let marked = |head: &u16| {
            let at = GuestAddress(self.at + Part::entry(*head));
            self.memory.load::<u8>(at, Ordering::SeqCst).unwrap_or(0) == 1
        };
        let mut heads: Vec<u16> = (0..self.count).filter(marked).collect();
        heads.sort_by_key(|head| self.counter(*head));
        let last = heads.last().map_or(0, |head| self.counter(*head));
        (heads, last.wrapping_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(num_queues: u16, queue_size: u16) -> VhostUserInflight {
        VhostUserInflight {
            mmap_size: 0,
            mmap_offset: 0,
            num_queues,
            queue_size,
        }
    }

    #[test]
    fn what_was_begun_and_not_answered_is_found_in_order() {
        let (named, file) = Inflight::create(&wanted(2, 8)).expect("memory");
        assert_eq!(
            named.mmap_size,
            2 * 192 + 64,
            "16 and 8 times 16 bytes, in steps of 64, and the mode"
        );
        let first = Inflight::map(&named, file.try_clone().expect("a copy")).expect("sound");
        let part = first.part(1, 8).expect("the second queue");
        for (head, counter) in [(5, 0), (2, 1), (7, 2)] {
            part.begin(head, counter);
        }
        part.before_used(2);
        part.after_used(2, 1);
        // Another process.
        let second = Inflight::map(&named, file).expect("sound");
        let part = second.part(1, 8).expect("the second queue");
        assert_eq!(part.recover(1), (vec![5, 7], 3));
        assert_eq!(
            second.part(0, 8).expect("the first").recover(0),
            (vec![], 1)
        );
        // The chain is in the used ring, and the mark is still there.
        part.before_used(7);
        assert_eq!(part.recover(2), (vec![5], 1));
        assert!(second.part(2, 8).is_none() && second.part(0, 16).is_none());
    }

    #[test]
    fn memory_that_is_too_short_is_refused() {
        let (named, file) = Inflight::create(&wanted(1, 128)).expect("memory");
        let copy = || file.try_clone().expect("a copy");
        let refused = |named| Inflight::map(&named, copy()).is_err();
        assert!(refused(VhostUserInflight {
            num_queues: 2,
            ..named
        }));
        assert!(refused(VhostUserInflight {
            mmap_offset: 4096,
            ..named
        }));
        assert!(refused(wanted(0, 128)) && refused(wanted(1, 0)));
        assert!(Inflight::create(&wanted(1, 2048)).is_err());
    }

    /// An access beyond the end of the file would end the process.
    #[test]
    fn memory_that_can_be_cut_short_is_refused() {
        let (named, file) = Inflight::create(&wanted(1, 8)).expect("memory");
        assert!(file.set_len(64).is_err());
        let unsealed = |flags| {
            // SAFETY: the name is a string that ends in zero; the descriptor is new.
            let file = unsafe {
                let fd = libc::memfd_create(c"another".as_ptr(), libc::MFD_CLOEXEC | flags);
                File::from_raw_fd(fd)
            };
            file.set_len(named.mmap_size).expect("memory");
            file
        };
        assert!(Inflight::map(&named, unsealed(0)).is_err());
        let sealable = unsealed(libc::MFD_ALLOW_SEALING);
        let copy = sealable.try_clone().expect("a copy");
        let _mapped = Inflight::map(&named, copy).expect("sealed now");
        assert!(sealable.set_len(64).is_err());
    }
}
