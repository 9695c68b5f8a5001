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
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
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
pub(super) struct Setup {
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

/// What the kernel shows of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// There is no such device yet.
    Missing,
    /// It is free.
    Idle,
    /// It has a client: ours if the identifier is ours. Kernels before 5.14 show none.
    Connected(Option<String>),
}

/// The kernel's side, or a model of it.
pub(super) trait Kernel {
    fn connect(&self, device: u32, setup: &Setup, sockets: &[OwnedFd]) -> io::Result<()>;

    /// Replaces connections that are dead. Sockets beyond their number are not used, without an error.
    fn reconnect(&self, device: u32, backend: &str, sockets: &[OwnedFd]) -> io::Result<()>;

    fn resize(&self, device: u32, backend: &str, bytes: u64) -> io::Result<()>;

    fn disconnect(&self, device: u32) -> io::Result<()>;

    fn seen(&self, device: u32) -> Seen;

    /// The numbers of all devices, in order.
    fn devices(&self) -> Vec<u32>;

    /// Opens a device so that nothing can mount it or use it exclusively; `ResourceBusy` if something does.
    fn hold(&self, device: u32) -> io::Result<Option<File>>;

    /// Who uses a device, for people: mounts, swap space, other block devices. Empty if that is not known.
    fn users(&self, device: u32) -> Vec<String>;
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

    fn disconnect(&self, device: u32) -> io::Result<()> {
        self.order(DISCONNECT, &of_device(device))
    }

    fn seen(&self, device: u32) -> Seen {
        seen_in(&in_sysfs(device))
    }

    fn devices(&self) -> Vec<u32> {
        let Ok(entries) = fs::read_dir("/sys/block") else {
            return Vec::new();
        };
        let number = |entry: fs::DirEntry| number_of(entry.file_name().to_str()?);
        let mut numbers: Vec<u32> = entries.flatten().filter_map(number).collect();
        numbers.sort_unstable();
        numbers
    }

    fn hold(&self, device: u32) -> io::Result<Option<File>> {
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(libc::O_EXCL);
        options.open(device_path(device)).map(Some)
    }

    fn users(&self, device: u32) -> Vec<String> {
        users_in(&in_sysfs(device), Path::new("/proc"), device)
    }
}

/// The number of `nbdN`.
pub(super) fn number_of(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("nbd")?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

/// The path of a device.
pub(super) fn device_path(device: u32) -> PathBuf {
    PathBuf::from(format!("/dev/nbd{device}"))
}

fn in_sysfs(device: u32) -> PathBuf {
    PathBuf::from(format!("/sys/block/nbd{device}"))
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

/// Mounts and swap spaces of a device and of its partitions, and block devices on them.
fn users_in(folder: &Path, proc: &Path, device: u32) -> Vec<String> {
    let mut parts = vec![(folder.to_path_buf(), format!("nbd{device}"))];
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(&format!("nbd{device}p")) {
            parts.push((entry.path(), name));
        }
    }
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let (mounts, swaps) = (read(proc.join("self/mountinfo")), read(proc.join("swaps")));
    let mut users = Vec::new();
    for (part, name) in parts {
        let number = read(part.join("dev"));
        users.extend(
            mounts
                .lines()
                .filter_map(|line| mounted(line, number.trim())),
        );
        let path = format!("/dev/{name}");
        let swap = swaps
            .lines()
            .any(|line| line.split(' ').next() == Some(&path));
        users.extend(swap.then(|| format!("{path} is swap space")));
        for entry in fs::read_dir(part.join("holders"))
            .into_iter()
            .flatten()
            .flatten()
        {
            users.push(format!("used by {}", entry.file_name().to_string_lossy()));
        }
    }
    users
}

/// A line of mountinfo: number, parent, device, root, mount point (with octal escapes), and more.
fn mounted(line: &str, device: &str) -> Option<String> {
    let mut words = line.split(' ').skip(2);
    let found = words.next()? == device;
    let place = words.nth(1)?.replace("\\040", " ");
    found.then(|| format!("mounted at {place}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let name = format!("restripe-kernel-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        path
    }

    #[test]
    fn only_names_of_whole_devices_have_numbers() {
        assert_eq!(number_of("nbd12"), Some(12));
        for name in ["nbd", "nbd1p1", "nbd+1", "nbd-1", "sda", "loop1"] {
            assert_eq!(number_of(name), None, "{name}");
        }
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

    #[test]
    fn users_of_a_device_and_of_its_partitions_are_named() {
        let place = folder("users");
        let (block, proc) = (place.join("nbd3"), place.join("proc"));
        for part in [
            block.join("holders"),
            block.join("nbd3p1/holders/dm-0"),
            proc.join("self"),
        ] {
            fs::create_dir_all(part).expect("a folder");
        }
        fs::write(block.join("dev"), "43:96\n").expect("a file");
        fs::write(block.join("nbd3p1/dev"), "43:97\n").expect("a file");
        let mounts = "24 1 43:9 / /no rw - ext4 x rw\n25 1 43:97 / /a\\040b rw - ext4 x rw\n";
        fs::write(proc.join("self/mountinfo"), mounts).expect("a file");
        fs::write(
            proc.join("swaps"),
            "Filename Type\n/dev/nbd3 partition 1 0 -2\n",
        )
        .expect("a file");
        let expected = ["/dev/nbd3 is swap space", "mounted at /a b", "used by dm-0"];
        assert_eq!(users_in(&block, &proc, 3), expected);
        let _ = fs::remove_dir_all(place);
    }
}
