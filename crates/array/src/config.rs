//! What a set is built with, and its bounds.

use crate::cache::Rule;
use crate::contract::{HeatLimits, MemberInfo, Pool};
use crate::units::Nanos;
use alloc::vec::Vec;

/// Memory beyond that of the frames, for those that make room while they are copied from.
pub(crate) const SPARES: u32 = 64;

/// What a set is built with. Everything about the array itself comes from its members' metadata.
#[derive(Clone, Debug)]
pub struct Config {
    /// The devices that the shell has opened, in the order of their [`crate::Member`] numbers.
    pub members: Vec<MemberInfo>,
    pub limits: Limits,
    /// A member is failed if it completes no operation for this time, or if a single operation takes four times
    /// as long.
    pub io_timeout: Nanos,
    /// The bug to have, in a build that has them.
    pub bug: Option<crate::Bug>,
}

/// Bounds, fixed at construction.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub pool: Pool,
    /// Requests accepted and not yet replied to; see [`crate::Set::ready`].
    pub requests: u32,
    pub slices: u32,
    /// Device operations of direct reads in flight; slices have their own on top.
    pub ios: u32,
    /// A cache of what was read; its memory comes out of the pool.
    pub cache: Option<CacheLimits>,
    pub heat: HeatLimits,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            pool: Pool {
                small: 4096,
                large: 512,
            },
            requests: 1024,
            slices: 512,
            ios: 4096,
            cache: None,
            heat: HeatLimits::default(),
        }
    }
}

impl Limits {
    /// The same with a read cache, if there is to be one, and the memory for it.
    pub fn with_cache(mut self, cache: Option<CacheLimits>) -> Limits {
        self.pool.small += cache.map_or(0, CacheLimits::buffers);
        self.cache = cache;
        self
    }

    /// The same with this memory besides, if there is to be any.
    pub fn with_pool(mut self, more: Option<Pool>) -> Limits {
        if let Some(more) = more {
            self.pool.small += more.small;
            self.pool.large += more.large;
        }
        self
    }
}

/// A read cache, as the shell asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheLimits {
    /// Blocks of 4 KiB held at most.
    pub blocks: u32,
    pub rule: Rule,
}

impl CacheLimits {
    /// Small buffers of the pool that the cache takes for itself.
    pub fn buffers(self) -> u32 {
        self.blocks.saturating_add(SPARES)
    }
}
