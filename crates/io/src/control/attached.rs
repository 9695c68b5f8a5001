//! An array as a block device: how it is attached, and what `status` shows of it.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The kernel's driver of a block device that this daemon serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// The client of NBD.
    #[default]
    Nbd,
    /// The driver for block devices in user space.
    Ublk,
}

impl Driver {
    fn is_nbd(&self) -> bool {
        *self == Driver::Nbd
    }
}

/// More connections than this gain nothing: one reactor answers all of them.
pub const CONNECTIONS_MAX: u16 = 16;

/// Options of `attach`. Connections, time-out and grace are NBD's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachOptions {
    #[serde(default, skip_serializing_if = "Driver::is_nbd")]
    pub driver: Driver,
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
    /// `/dev/nbdN` or `/dev/ublkbN`.
    pub device: String,
    /// The stable link to it.
    pub link: String,
    /// Connections that live.
    pub connections: usize,
    pub read_only: bool,
    /// Logical block size.
    pub block_bytes: u32,
    /// After this time without a reply a request is sent again. `None`: it is not, as with ublk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// For this time requests wait for a daemon that has ended. `None`: for as long as that takes, as with
    /// ublk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<u64>,
    /// Why it has no connections, or does not follow its array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}
