//! The tail: records in the last 512 bytes of a superblock, which an older program ignores and drops when it writes.
//!
//! Each record has a fixed place and a bit in COMPATIBLE. The records count only while LENGTH leaves the tail free: an
//! encoder whose tables need that space drops all of them with their bits.

use super::last_scrub::{LAST_SCRUB_BYTES, LastScrub};
use super::{SUPERBLOCK_BYTES, at};
use crate::meta::bytes::{get_u32, get_u64, get_uuid, put, put_u32, put_u64};
use crate::meta::{MetaError, field};
use crate::units::Uuid;
use core::ops::Range;

/// Where the tail starts.
pub const TAIL_AT: usize = SUPERBLOCK_BYTES - 512;
pub const OWNER_BYTES: usize = 64;

const COMPATIBLE_OWNER: u64 = 1;
const COMPATIBLE_LAST_SCRUB: u64 = 2;

/// An owner that renews its record does so at least this often.
pub const INTERVAL_MS_MAX: u32 = 60_000;

offsets! {
    /// Byte offsets of the records in a superblock, and of the fields in each record.
    pub mod places {
        pub const OWNER: usize = 15872;
        pub const LAST_SCRUB: usize = 15936;

        pub const OWNER_RUN: usize = 0;
        pub const OWNER_HOST: usize = 16;
        pub const OWNER_STARTED: usize = 32;
        pub const OWNER_PROCESS: usize = 40;
        pub const OWNER_NAMESPACE: usize = 44;
        pub const OWNER_INTERVAL: usize = 48;
        pub const OWNER_RESERVED: usize = 52;
    }
}

/// The run of a daemon that serves the array. A clean stop removes the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ArrayOwner {
    /// Random at each start. Not nil.
    pub run: Uuid,
    /// The boot id of the kernel under which the run has its process.
    pub host: Uuid,
    /// When the process started, in ticks of the host's clock since its boot.
    pub started: u64,
    pub process: u32,
    /// The inode of the process's pid namespace.
    pub namespace: u32,
    /// The longest time between two renewals, in milliseconds: at most [`INTERVAL_MS_MAX`]. 0: locks guard the members,
    /// and the record is not renewed.
    pub interval_ms: u32,
}

/// The records of a tail.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tail {
    pub owner: Option<ArrayOwner>,
    pub last_scrub: Option<LastScrub>,
}

impl Tail {
    pub fn check(&self) -> Result<(), MetaError> {
        self.last_scrub.as_ref().map_or(Ok(()), LastScrub::check)?;
        self.owner.as_ref().map_or(Ok(()), ArrayOwner::check)
    }

    /// Writes the records behind tables that leave the tail free.
    pub(super) fn put(&self, bytes: &mut [u8]) {
        if !is_free(bytes) {
            return;
        }
        let mut compatible = get_u64(bytes, at::COMPATIBLE);
        if let Some(owner) = &self.owner {
            owner.put(&mut bytes[range(places::OWNER, OWNER_BYTES)]);
            compatible |= COMPATIBLE_OWNER;
        }
        if let Some(scrub) = &self.last_scrub {
            scrub.put(&mut bytes[range(places::LAST_SCRUB, LAST_SCRUB_BYTES)]);
            compatible |= COMPATIBLE_LAST_SCRUB;
        }
        put_u64(bytes, at::COMPATIBLE, compatible);
    }

    pub(super) fn get(bytes: &[u8]) -> Result<Tail, MetaError> {
        if !is_free(bytes) {
            return Ok(Tail::default());
        }
        let compatible = get_u64(bytes, at::COMPATIBLE);
        let tail = Tail {
            owner: (compatible & COMPATIBLE_OWNER != 0)
                .then(|| ArrayOwner::get(&bytes[range(places::OWNER, OWNER_BYTES)])),
            last_scrub: (compatible & COMPATIBLE_LAST_SCRUB != 0)
                .then(|| LastScrub::get(&bytes[range(places::LAST_SCRUB, LAST_SCRUB_BYTES)]))
                .flatten(),
        };
        tail.check()?;
        Ok(tail)
    }
}

fn is_free(bytes: &[u8]) -> bool {
    get_u32(bytes, at::LENGTH) as usize <= TAIL_AT
}

fn range(at: usize, bytes: usize) -> Range<usize> {
    at..at + bytes
}

impl ArrayOwner {
    fn check(&self) -> Result<(), MetaError> {
        if self.run == Uuid::NIL {
            return field("owner", 0);
        }
        match self.interval_ms {
            0..=INTERVAL_MS_MAX => Ok(()),
            other => field("owner interval", other.into()),
        }
    }

    fn put(&self, bytes: &mut [u8]) {
        put(bytes, places::OWNER_RUN, self.run.0);
        put(bytes, places::OWNER_HOST, self.host.0);
        put_u64(bytes, places::OWNER_STARTED, self.started);
        put_u32(bytes, places::OWNER_PROCESS, self.process);
        put_u32(bytes, places::OWNER_NAMESPACE, self.namespace);
        put_u32(bytes, places::OWNER_INTERVAL, self.interval_ms);
    }

    fn get(bytes: &[u8]) -> ArrayOwner {
        ArrayOwner {
            run: get_uuid(bytes, places::OWNER_RUN),
            host: get_uuid(bytes, places::OWNER_HOST),
            started: get_u64(bytes, places::OWNER_STARTED),
            process: get_u32(bytes, places::OWNER_PROCESS),
            namespace: get_u32(bytes, places::OWNER_NAMESPACE),
            interval_ms: get_u32(bytes, places::OWNER_INTERVAL),
        }
    }
}

const _: () = assert!(TAIL_AT == places::OWNER);
const _: () = assert!(places::LAST_SCRUB + LAST_SCRUB_BYTES == SUPERBLOCK_BYTES);
