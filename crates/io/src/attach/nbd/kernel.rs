//! The kernel's NBD client: its generic netlink family `nbd` (`linux/nbd-netlink.h`), and what sysfs shows.
//!
//! | command | here |
//! |---|---|
//! | `CONNECT` | makes a device of connected sockets |
//! | `RECONFIGURE` | replaces dead sockets by new ones; changes the size |
//! | `DISCONNECT` | ends a device; what is in flight fails |
//! | `STATUS` | not used: it counts a device that is merely open as connected; the file `pid` in sysfs does not |
//!
//! No client flag is set. `DISCONNECT_ON_CLOSE` would end a device with its last user, and
//! `DESTROY_ON_DISCONNECT` would remove a device file that was there before.

use super::netlink::{Attributes, Channel};
use crate::attach::hold::{Devices, Seen};
use crate::attach::node::{Node, numbers};
use crate::control::Driver;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

const FAMILY: &str = "nbd";
const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const RECONFIGURE: u8 = 3;

const INDEX: u16 = 1;
const SIZE_BYTES: u16 = 2;
const BLOCK_BYTES: u16 = 3;
const TIMEOUT: u16 = 4;
const SERVER_FLAGS: u16 = 5;
const SOCKETS: u16 = 7;
const DEAD_TIMEOUT: u16 = 8;
const BACKEND: u16 = 10;
const SOCKET_ITEM: u16 = 1;
const SOCKET_FD: u16 = 1;

/// What a device is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Setup {
    pub size_bytes: u64,
    /// Logical and physical block size: a power of two, 512 to a page.
    pub block_bytes: u32,
    /// The transmission flags of the export.
    pub flags: u16,
    /// A request without a reply for this long is sent again on another connection.
    pub timeout: Duration,
    /// While all connections are dead, requests wait for this long before they fail.
    pub grace: Duration,
    /// Whose device this is. Kernels before 5.14 do not know it.
    pub backend: String,
}

/// The kernel's side, or a model of it.
pub(crate) trait Kernel: Devices {
    fn connect(&self, device: u32, setup: &Setup, sockets: &[OwnedFd]) -> io::Result<()>;

    /// Replaces connections that are dead. Sockets beyond their number are not used, without an error.
    fn reconnect(&self, device: u32, backend: &str, sockets: &[OwnedFd]) -> io::Result<()>;

    fn resize(&self, device: u32, backend: &str, bytes: u64) -> io::Result<()>;
}

/// The running kernel.
pub(super) struct Linux {
    channel: Channel,
}

impl Linux {
    /// `NotFound` without the module `nbd`.
    pub(super) fn open() -> io::Result<Linux> {
        let channel = Channel::open(FAMILY)?;
        Ok(Linux { channel })
    }

    fn order(&self, command: u8, attributes: &Attributes) -> io::Result<()> {
        self.channel.call(command, attributes).map(drop)
    }
}

impl Kernel for Linux {
    fn connect(&self, device: u32, setup: &Setup, sockets: &[OwnedFd]) -> io::Result<()> {
        self.order(CONNECT, &connect_attributes(device, setup, sockets))
    }

    fn reconnect(&self, device: u32, backend: &str, sockets: &[OwnedFd]) -> io::Result<()> {
        let whose = of_device(device).text(BACKEND, backend);
        let attributes = whose.nested(SOCKETS, &socket_list(sockets));
        self.order(RECONFIGURE, &attributes)
    }

    fn resize(&self, device: u32, backend: &str, bytes: u64) -> io::Result<()> {
        let whose = of_device(device).text(BACKEND, backend);
        self.order(RECONFIGURE, &whose.u64(SIZE_BYTES, bytes))
    }
}

impl Devices for Linux {
    fn driver(&self) -> Driver {
        Driver::Nbd
    }

    fn shown(&self) -> Vec<(u32, Seen)> {
        numbers("/sys/block", "nbd")
            .map(|number| (number, self.seen(number)))
            .collect()
    }

    fn seen(&self, device: u32) -> Seen {
        seen_in(&Node::new(Driver::Nbd, device).in_sysfs())
    }

    fn disconnect(&self, device: u32, _held: Option<File>) -> io::Result<()> {
        self.order(DISCONNECT, &of_device(device))
    }
}

fn of_device(device: u32) -> Attributes {
    Attributes::default().u32(INDEX, device)
}

fn socket_list(sockets: &[OwnedFd]) -> Attributes {
    sockets.iter().fold(Attributes::default(), |list, socket| {
        let fd = socket.as_raw_fd().cast_unsigned();
        list.nested(SOCKET_ITEM, &Attributes::default().u32(SOCKET_FD, fd))
    })
}

fn connect_attributes(device: u32, setup: &Setup, sockets: &[OwnedFd]) -> Attributes {
    of_device(device)
        .u64(SIZE_BYTES, setup.size_bytes)
        .u64(BLOCK_BYTES, u64::from(setup.block_bytes))
        .u64(TIMEOUT, setup.timeout.as_secs())
        .u64(DEAD_TIMEOUT, setup.grace.as_secs())
        .u64(SERVER_FLAGS, u64::from(setup.flags))
        .text(BACKEND, &setup.backend)
        .nested(SOCKETS, &socket_list(sockets))
}

fn seen_in(folder: &Path) -> Seen {
    if !folder.exists() {
        return Seen::Missing;
    }
    if !folder.join("pid").exists() {
        return Seen::Idle;
    }
    let backend = fs::read_to_string(folder.join("backend")).ok();
    Seen::Connected(backend.map(|text| text.trim_end().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn folder(name: &str) -> PathBuf {
        let name = format!("restripe-kernel-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        path
    }

    #[test]
    fn a_device_with_a_client_has_a_pid_and_perhaps_an_identifier() {
        let place = folder("seen");
        assert_eq!(seen_in(&place.join("nbd0")), Seen::Missing);
        assert_eq!(seen_in(&place), Seen::Idle);
        fs::write(place.join("pid"), "1\n").expect("a file");
        assert_eq!(seen_in(&place), Seen::Connected(None));
        fs::write(place.join("backend"), "restripe:x\n").expect("a file");
        let ours = Seen::Connected(Some("restripe:x".into()));
        assert_eq!(seen_in(&place), ours);
        let _ = fs::remove_dir_all(place);
    }
}
