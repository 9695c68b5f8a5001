//! Block devices of the kernel as `/dev`, `/sys` and `/proc` show them, whichever driver has them.

use crate::control::{Driver, Refusal};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The name of a device: `/dev/nbdN` or `/dev/ublkbN`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Node {
    pub driver: Driver,
    pub number: u32,
}

impl Node {
    pub(super) fn new(driver: Driver, number: u32) -> Node {
        Node { driver, number }
    }

    /// The device of this name, without a folder.
    pub(super) fn of_name(name: &str) -> Option<Node> {
        [Driver::Nbd, Driver::Ublk].into_iter().find_map(|driver| {
            let number = number_of(name, prefix(driver))?;
            Some(Node { driver, number })
        })
    }

    /// The device at this path, which may be a link to it.
    pub(super) fn of_path(path: &str) -> Result<Node, Refusal> {
        let found = fs::canonicalize(path);
        let found = found.unwrap_or_else(|_| path.into());
        let name = found.strip_prefix("/dev").ok();
        let node = name.and_then(|name| Node::of_name(name.to_str()?));
        node.ok_or_else(|| {
            Refusal::new("is no device that an array can be attached to")
                .at(path)
                .hint("use /dev/nbdN or /dev/ublkbN, or leave it out")
        })
    }

    fn name(self) -> String {
        format!("{}{}", prefix(self.driver), self.number)
    }

    pub(super) fn path(self) -> PathBuf {
        Path::new("/dev").join(self.name())
    }

    /// The path, for people.
    pub(super) fn shown(self) -> String {
        self.path().display().to_string()
    }

    pub(super) fn in_sysfs(self) -> PathBuf {
        Path::new("/sys/block").join(self.name())
    }

    /// Whether it is there and has a server: an NBD device without one is there all the same.
    pub(super) fn is_used(self) -> bool {
        let folder = self.in_sysfs();
        match self.driver {
            Driver::Nbd => folder.join("pid").exists(),
            Driver::Ublk => folder.exists(),
        }
    }

    /// Opens a device so that nothing can mount it or use it exclusively; `ResourceBusy` if something does.
    pub(super) fn hold(self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(libc::O_EXCL);
        options.open(self.path())
    }

    /// Who uses a device, for people: mounts, swap space, other block devices. Empty if that is not known.
    pub(super) fn users(self) -> Vec<String> {
        users_in(&self.in_sysfs(), Path::new("/proc"), &self.name())
    }
}

fn number_of(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

/// The numbers of a folder's entries that begin with this prefix, in their order. None without the folder.
pub(super) fn numbers(folder: &str, prefix: &str) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| number_of(entry.file_name().to_str()?, prefix);
    let numbers: BTreeSet<u32> = entries.filter_map(number).collect();
    numbers.into_iter()
}

fn prefix(driver: Driver) -> &'static str {
    match driver {
        Driver::Nbd => "nbd",
        Driver::Ublk => "ublkb",
    }
}

/// Mounts and swap spaces of a device and of its partitions, and block devices on them.
fn users_in(folder: &Path, proc: &Path, device: &str) -> Vec<String> {
    let mut parts = vec![(folder.to_path_buf(), device.to_owned())];
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(&format!("{device}p")) {
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

    #[test]
    fn only_names_of_whole_devices_are_devices() {
        assert_eq!(Node::of_name("nbd12"), Some(Node::new(Driver::Nbd, 12)));
        assert_eq!(Node::of_name("ublkb0"), Some(Node::new(Driver::Ublk, 0)));
        for name in [
            "nbd", "nbd1p1", "nbd+1", "nbd-1", "sda", "loop1", "ublkc0", "ublkb0p1",
        ] {
            assert_eq!(Node::of_name(name), None, "{name}");
        }
    }

    #[test]
    fn users_of_a_device_and_of_its_partitions_are_named() {
        let name = format!("restripe-node-users-{}", std::process::id());
        let place = std::env::temp_dir().join(name);
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
        assert_eq!(users_in(&block, &proc, "nbd3"), expected);
        let _ = fs::remove_dir_all(place);
    }
}
