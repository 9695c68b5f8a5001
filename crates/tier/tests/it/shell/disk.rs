//! A simulated member: what reads find, what a crash leaves, and what is only in its cache.

use super::SECTOR;
use std::collections::BTreeSet;

#[derive(Clone)]
pub(super) struct Cached {
    pub(super) at: usize,
    pub(super) bytes: Vec<u8>,
    pub(super) durable: bool,
    pub(super) stamp: u64,
}

/// A member with a volatile cache.
#[derive(Clone)]
pub struct Disk {
    /// As reads find it.
    pub image: Vec<u8>,
    /// As a crash leaves it, but for the cache.
    pub(super) durable: Vec<u8>,
    pub(super) cache: Vec<Cached>,
    pub bad: BTreeSet<u64>,
}

impl Disk {
    pub(super) fn new(sectors: u64) -> Disk {
        let image = vec![0; (sectors * SECTOR) as usize];
        Disk {
            durable: image.clone(),
            image,
            cache: Vec::new(),
            bad: BTreeSet::new(),
        }
    }

    pub(super) fn write(&mut self, at: u64, bytes: Vec<u8>, durable: bool, stamp: u64) {
        for sector in at..at + bytes.len() as u64 / SECTOR {
            self.bad.remove(&sector);
        }
        let at = (at * SECTOR) as usize;
        self.image[at..at + bytes.len()].copy_from_slice(&bytes);
        self.cache.push(Cached {
            at,
            bytes,
            durable,
            stamp,
        });
    }

    /// Puts bytes in place that no engine wrote.
    pub fn forge(&mut self, sector: u64, bytes: &[u8]) {
        let from = (sector * SECTOR) as usize;
        self.image[from..from + bytes.len()].copy_from_slice(bytes);
        self.durable[from..from + bytes.len()].copy_from_slice(bytes);
    }

    /// Fills everything from a sector on with what was there before the array was made.
    pub fn scribble_from(&mut self, sector: u64) {
        let from = (sector * SECTOR) as usize;
        self.image[from..].fill(0xd1);
        self.durable[from..].fill(0xd1);
    }

    /// Makes durable what the filter says, in order, and forgets the rest of it.
    pub(super) fn settle(&mut self, keep: impl Fn(&Cached) -> bool) {
        for cached in &self.cache {
            if keep(cached) {
                self.durable[cached.at..cached.at + cached.bytes.len()]
                    .copy_from_slice(&cached.bytes);
            }
        }
    }
}
