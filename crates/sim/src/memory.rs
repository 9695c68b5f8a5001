//! The memory behind buffer handles: the engine's pool and the requests' own.
//!
//! An operation that was given up on ([`restripe_array::Action::Detach`]) keeps what its handles named in a
//! [`Private`] copy, so its late completion scribbles on nothing.

use crate::payload::Payload;
use restripe_array::{Buf, BufRef, LARGE_BYTES, Pool, SECTOR_BYTES, Segment};
use std::fmt;
use std::ops::Range;

/// What a handle stands for, at the payload's scale.
pub struct BufferTable {
    payload: Payload,
    pool: Pool,
    /// Each has its memory when it is first written: most of a large pool is never touched.
    pooled: Vec<Vec<u8>>,
    user: Vec<Option<UserBuffer>>,
    free: Vec<u32>,
}

struct UserBuffer {
    bytes: u32,
    contents: Vec<u8>,
}

/// The memory of a detached operation: one part for each of its segments.
pub type Private = Vec<Vec<u8>>;

/// A reference that names no memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadBuffer {
    Unaligned(BufRef),
    /// Beyond the end of its buffer.
    TooLong {
        reference: BufRef,
        bytes: u32,
    },
    /// No such pool buffer, or a request's buffer after its reply.
    Unknown(BufRef),
}

impl fmt::Display for BadBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadBuffer::Unaligned(reference) => {
                write!(f, "{reference:?} does not cover whole sectors")
            }
            BadBuffer::TooLong { reference, bytes } => {
                write!(f, "{reference:?} exceeds the buffer's {bytes} bytes")
            }
            BadBuffer::Unknown(reference) => write!(f, "{reference:?} names no memory"),
        }
    }
}

impl From<BadBuffer> for String {
    fn from(bad: BadBuffer) -> String {
        bad.to_string()
    }
}

impl BufferTable {
    pub fn new(payload: Payload, pool: Pool) -> BufferTable {
        BufferTable {
            payload,
            pool,
            pooled: vec![Vec::new(); (pool.small + pool.large) as usize],
            user: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Memory for a request of `bytes` bytes.
    pub fn allocate(&mut self, bytes: u32) -> Buf {
        let index = self.free.pop().unwrap_or_else(|| {
            self.user.push(None);
            self.user.len() as u32 - 1
        });
        let contents = vec![0; self.payload.scaled(bytes)];
        self.user[index as usize] = Some(UserBuffer { bytes, contents });
        Buf(Buf::USER + index)
    }

    /// Gives a request's memory back.
    pub fn release(&mut self, buf: Buf) {
        let index = buf.0 - Buf::USER;
        let released = self.user[index as usize].take();
        assert!(released.is_some(), "a buffer is released once");
        self.free.push(index);
    }

    /// Whether `reference` names memory.
    pub fn check(&self, reference: BufRef) -> Result<(), BadBuffer> {
        let sector = SECTOR_BYTES as u32;
        if !reference.offset.is_multiple_of(sector) || !reference.bytes.is_multiple_of(sector) {
            return Err(BadBuffer::Unaligned(reference));
        }
        let bytes = self.bytes_of(reference.buf);
        let bytes = bytes.ok_or(BadBuffer::Unknown(reference))?;
        if reference.offset.saturating_add(reference.bytes) > bytes {
            return Err(BadBuffer::TooLong { reference, bytes });
        }
        Ok(())
    }

    fn bytes_of(&self, buf: Buf) -> Option<u32> {
        if buf.0 >= Buf::USER {
            let slot = self.user.get((buf.0 - Buf::USER) as usize)?;
            return slot.as_ref().map(|buffer| buffer.bytes);
        }
        (buf.0 < self.pool.small + self.pool.large).then(|| self.pool.bytes_of(buf))
    }

    /// The contents behind a reference. It was checked before.
    pub fn get(&self, reference: BufRef) -> &[u8] {
        let span = self.span(reference);
        match self.place(reference.buf) {
            Place::Pool(index) => match self.pooled[index].as_slice() {
                [] => &UNWRITTEN[span],
                contents => &contents[span],
            },
            Place::User(index) => {
                let user = self.user[index].as_ref();
                &user.expect("checked at submission").contents[span]
            }
        }
    }

    pub fn get_mut(&mut self, reference: BufRef) -> &mut [u8] {
        let span = self.span(reference);
        match self.place(reference.buf) {
            Place::Pool(index) => {
                let contents = &mut self.pooled[index];
                if contents.is_empty() {
                    let bytes = self.pool.bytes_of(reference.buf);
                    *contents = vec![0; self.payload.scaled(bytes)];
                }
                &mut contents[span]
            }
            Place::User(index) => {
                let user = self.user[index].as_mut();
                &mut user.expect("checked at submission").contents[span]
            }
        }
    }

    /// A copy of what an operation's handles name now: its own from here on.
    pub fn detach(&self, segments: &[Segment]) -> Private {
        let part = |segment: &Segment| match segment {
            Segment::Buf(reference) => self.get(*reference).to_vec(),
            Segment::Page(_) | Segment::Zero(_) => Vec::new(),
        };
        segments.iter().map(part).collect()
    }

    fn place(&self, buf: Buf) -> Place {
        match buf.0.checked_sub(Buf::USER) {
            Some(index) => Place::User(index as usize),
            None => Place::Pool(buf.0 as usize),
        }
    }

    /// Where a reference lies in its buffer, at the payload's scale.
    fn span(&self, reference: BufRef) -> Range<usize> {
        let from = self.payload.scaled(reference.offset);
        from..from + self.payload.scaled(reference.bytes)
    }
}

/// What a buffer of the pool holds before anything is written there.
static UNWRITTEN: [u8; LARGE_BYTES as usize] = [0; LARGE_BYTES as usize];

enum Place {
    Pool(usize),
    User(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> BufferTable {
        BufferTable::new(Payload::Tokens, Pool { small: 2, large: 1 })
    }

    #[test]
    fn handles_name_separate_memory() {
        let mut table = table();
        let user = table.allocate(1024);
        let all = [Buf(0), Buf(1), Buf(2), user].map(|buf| BufRef::new(buf, 512, 512));
        for (i, reference) in all.iter().enumerate() {
            table.check(*reference).expect("within its buffer");
            table.get_mut(*reference).fill(i as u8 + 1);
        }
        for (i, reference) in all.iter().enumerate() {
            assert_eq!(table.get(*reference), [i as u8 + 1; 8]);
        }
        assert_eq!(table.get(BufRef::new(Buf(0), 0, 512)), [0; 8]);
    }

    /// It has memory of its own only once it is written.
    #[test]
    fn a_buffer_of_the_pool_begins_with_zeros() {
        let mut table = table();
        let [small, large] = [Buf(1), Buf(2)].map(|buf| BufRef::new(buf, 0, 4096));
        assert_eq!(table.get(small), [0; 64]);
        assert_eq!(table.get(large), [0; 64]);
        assert_eq!(table.detach(&[Segment::Buf(large)]), vec![vec![0; 64]]);
        assert_eq!(table.get_mut(large), [0; 64]);
    }

    #[test]
    fn bad_references_are_told_apart() {
        let mut table = table();
        let user = table.allocate(512);
        let unaligned = BufRef::new(Buf(0), 100, 512);
        assert_eq!(table.check(unaligned), Err(BadBuffer::Unaligned(unaligned)));
        let (reference, bytes) = (BufRef::new(Buf(1), 512, 4096), 4096);
        let too_long = BadBuffer::TooLong { reference, bytes };
        assert_eq!(table.check(reference), Err(too_long));
        let beyond = BufRef::new(Buf(3), 0, 512);
        assert_eq!(table.check(beyond), Err(BadBuffer::Unknown(beyond)));
        table.release(user);
        let released = BufRef::new(user, 0, 512);
        assert_eq!(table.check(released), Err(BadBuffer::Unknown(released)));
    }

    #[test]
    fn detached_memory_keeps_its_contents() {
        let mut table = table();
        let reference = BufRef::new(Buf(0), 0, 512);
        table.get_mut(reference).fill(7);
        let private = table.detach(&[Segment::Zero(512), Segment::Buf(reference)]);
        table.get_mut(reference).fill(9);
        assert_eq!(private, vec![Vec::new(), vec![7; 8]]);
    }
}
