//! An array as a block device: how it is attached, and what `status` shows of it.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// More connections than this gain nothing: one reactor answers all of them.
pub const CONNECTIONS_MAX: u16 = 16;
/// Options of `attach`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachOptions {
    /// Connections between the kernel and the daemon.
    pub connections: u16,
    /// Seconds without a reply after which a request is sent again.
    pub timeout_seconds: u64,
    /// Seconds that requests wait for a daemon that has ended.
    pub grace_seconds: u64,
    pub read_only: bool,
    /// Logical block size.
    pub block_bytes: u32,
}

impl AttachOptions {
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }

    pub(crate) fn grace(&self) -> Duration {
        Duration::from_secs(self.grace_seconds)
    }
}

/// A block device of the kernel that is made of an array.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AttachedView {
    /// `/dev/nbdN`.
    pub device: String,
    /// The stable link to it.
    pub link: String,
    /// Connections that live.
    pub connections: usize,
    pub read_only: bool,
    /// Logical block size.
    pub block_bytes: u32,
    /// After this time without a reply a request is sent again.
    pub timeout_seconds: u64,
    /// For this time requests wait for a daemon that has ended.
    pub grace_seconds: u64,
    /// Why it has no connections, or does not follow its array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}
